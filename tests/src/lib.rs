//! What tests that cross crates share: where the artefacts are, how a program is run and judged.
//!
//! The tests themselves are in `tests/`: `programs/` runs Debian's unmodified programs, the others are C
//! programs of our own (`programs/*.c`) and callers of the C ABI. They look at what `cargo xtask test` has
//! laid out as `cargo xtask dist` does; without it they say that they are skipped.
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
    c_preload, c_program, c_program_1_2, c_program_by_pkg_config, c_program_sanitized, c_vendor,
};
pub use dist::{Dist, find_program};
pub use network::{enter_network_of_all_users, enter_own_network, has_own_network};
pub use process::{Ended, Running, ends_with_ok};
pub use provider::{PROVIDERS, Provider, VERBS};
pub use registry::Registry;
pub use torn::is_torn;
pub use trial::{SHARE, Stop, is_short_run, run, trial};

/// Why a test cannot run here. It is not a failure of the product, and never counted as a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip(pub String);

/// Says in the way that `cargo xtask test` counts that this test could not run; the caller returns at once.
pub fn skip(reason: &Skip) {
    println!("SKIP: {}", reason.0);
}
