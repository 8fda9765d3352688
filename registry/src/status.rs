//! Status words for people.

use std::fmt;

use dat_sys::DAT_RETURN;
use dat_sys::describe::status_names;

/// Displays a status as the names of its type and subtype: `DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub DAT_RETURN);

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match status_names(self.0) {
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
        let text = |status| Status(status).to_string();
        assert_eq!(text(0), "DAT_SUCCESS");
        assert_eq!(text(0x0004_0000), "DAT_INTERNAL_ERROR");
        assert_eq!(text(0x800a_0064), "DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED");
        assert_eq!(text(0x8018_0000), "a status that the standard does not define");
    }
}
