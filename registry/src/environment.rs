//! Environment variables that a privileged program ignores.
//!
//! The variables name libraries to load and places to print to. A program that runs with more
//! rights than the user who started it must not use these variables.

use std::ffi::OsString;

/// The value of a variable. `None` in a privileged program (getauxval(3), AT_SECURE).
pub(crate) fn variable(name: &str) -> Option<OsString> {
    // SAFETY: getauxval only reads values that the kernel gave the process.
    let trusted = unsafe { libc::getauxval(libc::AT_SECURE) } == 0;
    std::env::var_os(name).filter(|_| trusted)
}
