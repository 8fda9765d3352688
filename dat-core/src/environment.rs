//! The environment, as far as a library may heed it: not at all in a program that has more rights than whoever started it
//! (set-user-ID and the like), since it names files that are read and written.

use std::sync::OnceLock;

/// A variable, if the environment is that of somebody who has all rights that the program has.
pub fn variable(name: &str) -> Option<String> {
    is_trusted().then(|| std::env::var(name).ok())?
}

/// See above (getauxval(3), AT_SECURE).
pub fn is_trusted() -> bool {
    static TRUSTED: OnceLock<bool> = OnceLock::new();
    // SAFETY: reads what the kernel gave the process.
    *TRUSTED.get_or_init(|| unsafe { libc::getauxval(libc::AT_SECURE) } == 0)
}

/// A number as such variables have it: decimal, or 0x and hexadecimal.
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
