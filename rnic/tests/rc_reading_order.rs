//! Whoever reads `src/rc` in the order of the table in `src/rc.rs` meets no name before it is
//! explained: a file uses only files before it, and a type has all its methods in its own file.

#[path = "reading_order/mod.rs"]
mod order;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use order::{code, identifier, listed};

/// What is wrong with the file `name`. `before` are the files before it in the table, and
/// `exported` are the names that `rc.rs` exports.
fn faults(name: &str, source: &str, before: &[&str], exported: &BTreeSet<&str>) -> Vec<String> {
    let code = code(source);
    let mut faults = Vec::new();
    for root in ["super::", "crate::rc::"] {
        for used in code.split(root).skip(1).map(identifier) {
            if !before.contains(&used) {
                faults.push(format!("{name}.rs uses `{root}{used}`, which is no file before it"));
            }
        }
    }
    for used in code.split("crate::").skip(1).map(identifier) {
        if exported.contains(used) {
            faults.push(format!("{name}.rs uses `crate::{used}` and does not name its file"));
        }
    }
    let impls = code.lines().filter_map(|line| line.strip_prefix("impl "));
    for of in impls.filter(|line| !line.contains(" for ")).map(identifier) {
        let is_defined = |kind| code.contains(&format!("{kind} {of} "));
        if !["struct", "enum"].into_iter().any(is_defined) {
            faults.push(format!("{name}.rs adds methods to `{of}` of another file"));
        }
    }
    faults
}

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn each_file_of_rc_uses_only_files_before_it() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rc");
    let module = fs::read_to_string(dir.with_extension("rs")).expect("rc.rs");
    let order = listed(&module);
    let files = fs::read_dir(&dir).expect("src/rc").map(|entry| entry.expect("an entry").path());
    let present: BTreeSet<String> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .filter(|name| name != "tests")
        .collect();
    let rows: BTreeSet<String> = order.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(present, rows, "the files of src/rc and the table in rc.rs");
    assert_eq!(order.len(), rows.len(), "a file stands in the table twice");
    let exports = module.split("pub use ").skip(1).filter_map(|text| text.split(';').next());
    let exported: BTreeSet<&str> = exports
        .flat_map(|export| export.split(|c: char| !c.is_alphanumeric()))
        .filter(|name| name.starts_with(char::is_uppercase))
        .collect();
    let mut found = Vec::new();
    for (at, name) in order.iter().enumerate() {
        let source = fs::read_to_string(dir.join(format!("{name}.rs"))).expect(name);
        found.extend(faults(name, &source, &order[..at], &exported));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn faults_are_found() {
    let exported = BTreeSet::from(["Burst"]);
    let check = |source| faults("b", source, &["a"], &exported).len();
    assert_eq!(check("use super::a::A;\nstruct B {}\nimpl B {\n}\nimpl From<B> for A {\n}\n"), 0);
    assert_eq!(check("// super::c\n#[cfg(test)]\nmod tests {\n    use super::*;\n}\n"), 0);
    assert_eq!(check("use super::c::C;\n"), 1);
    assert_eq!(check("use super::{a::A, c::C};\n"), 1);
    assert_eq!(check("use super::Burst;\n"), 1);
    assert_eq!(check("fn f() {\n    crate::rc::c::f();\n}\n"), 1);
    assert_eq!(check("use crate::Burst;\n"), 1);
    assert_eq!(check("use super::a::A;\nimpl A {\n}\n"), 1);
}
