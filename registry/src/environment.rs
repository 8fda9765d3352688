//! The environment, as far as a library may heed it: not at all in a program that has more rights than whoever started it, since
//! it names libraries that are loaded, and what is printed where.

use std::ffi::OsString;

/// A variable, if whoever started the program has all rights that it has (getauxval(3), AT_SECURE).
pub(crate) fn variable(name: &str) -> Option<OsString> {
    // SAFETY: reads what the kernel gave the process.
    let trusted = unsafe { libc::getauxval(libc::AT_SECURE) } == 0;
    std::env::var_os(name).filter(|_| trusted)
}
