//! Code shared by tests that involve several crates. It finds the libraries and programs under
//! test, runs programs and judges their output.
//!
//! The tests are in `tests/`: `programs/` runs Debian's unmodified programs; the others are our own
//! C programs (`programs/*.c`) and callers of the C ABI. The tests use the layout of `cargo xtask
//! dist` that `cargo xtask test` has created. Without the layout they are skipped.
#![forbid(unsafe_code)]

mod build;
mod dist;
mod network;
mod process;
mod provider;
mod registry;
mod torn;
mod trial;

pub use build::{
    Version, c_example, c_preload, c_program, c_program_1_2, c_program_by_pkg_config,
    c_program_sanitized, c_vendor, compiled,
};
pub use dist::{Dist, find_program};
pub use network::{enter_network_of_all_users, enter_own_network, has_own_network};
pub use process::{Ended, Running, ends_with_ok};
pub use provider::{PROVIDERS, Provider, VERBS};
pub use registry::Registry;
pub use torn::is_torn;
pub use trial::{SHARE, Stop, is_short_run, run, setting, trial};

/// The reason why a test cannot run on this machine. A skipped test is not a failure of the
/// product, and is never counted as a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip(pub String);

/// Reports, in the form that `cargo xtask test` counts, that this test could not run. After this
/// call, the test must return.
pub fn skip(reason: &Skip) {
    println!("SKIP: {}", reason.0);
}
