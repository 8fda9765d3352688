//! Displays status words, and converts the registry's own status to the numbers of a consumer's
//! version.

use std::fmt;

use dat_sys::DAT_RETURN;
use dat_sys::describe::status_names;
use dat_sys::v1;

/// A status word in the numbering of an API version. It is displayed as the names of its type and
/// subtype: `DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The status word.
    pub word: DAT_RETURN,
    /// The major version of the API whose numbering the word uses.
    pub major: u32,
}

/// Converts a status of this crate, which uses the numbering of 2.0, to the numbering of a
/// consumer's major version.
pub fn in_version(major: u32, status: DAT_RETURN) -> DAT_RETURN {
    if major < 2 { v1::status(status) } else { status }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            if self.major < 2 { v1::status_names(self.word) } else { status_names(self.word) };
        match names {
            Some((kind, "")) => f.write_str(kind),
            Some((kind, subtype)) => write!(f, "{kind}, {subtype}"),
            None => f.write_str("a status that the standard does not define"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn a_status_reads_as_its_names_whatever_its_class() {
        let text = |word| Status { word, major: 2 }.to_string();
        assert_eq!(text(0), "DAT_SUCCESS");
        assert_eq!(text(0x0004_0000), "DAT_INTERNAL_ERROR");
        assert_eq!(text(0x800a_0064), "DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED");
        assert_eq!(
            Status { word: 0x800a_0062, major: 1 }.to_string(),
            "DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED"
        );
        assert_eq!(text(0x8018_0000), "a status that the standard does not define");
    }
}
