//! Whoever reads the modules from bottom to top meets no name before it is explained: in the order
//! of the table in `lib.rs`, a module uses only modules below it.

#[path = "../../rnic/tests/reading_order/mod.rs"]
mod order;

use std::path::Path;

#[test]
fn each_module_uses_only_modules_below_it() {
    let found = order::upward_uses(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(found.is_empty(), "{}", found.join("\n"));
}
