//! The environment of the process. It is ignored in a program that has more rights than the user
//! who started it (set-user-ID and the like), because it names files that are read and written.

use std::ffi::OsString;
use std::sync::OnceLock;

/// The value of an environment variable. `None` if the variable is not set, or if the environment
/// must not be trusted.
pub fn os_variable(name: &str) -> Option<OsString> {
    is_trusted().then(|| std::env::var_os(name))?
}

/// The value of an environment variable, like [`os_variable`]. Octets that are not UTF-8 become
/// U+FFFD.
pub fn variable(name: &str) -> Option<String> {
    os_variable(name).map(|value| value.to_string_lossy().into_owned())
}

/// Whether the environment may be trusted: the program has no more rights than the user who started
/// it (getauxval(3), AT_SECURE).
pub fn is_trusted() -> bool {
    static TRUSTED: OnceLock<bool> = OnceLock::new();
    // SAFETY: the call only reads a value that the kernel passed to the process.
    *TRUSTED.get_or_init(|| unsafe { libc::getauxval(libc::AT_SECURE) } == 0)
}

/// Parses a number in an environment variable. The number is decimal, or hexadecimal after 0x.
pub fn number(text: &str) -> Option<u32> {
    match text.trim().strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.trim().parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(number("255"), Some(255));
        assert_eq!(number(" 0xff "), Some(255));
        assert_eq!(number(""), None);
        assert_eq!(number("all"), None);
    }
}
