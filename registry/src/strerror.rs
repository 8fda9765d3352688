//! The names of status words: what `dat_strerror` answers.
//!
//! Built from the declarations of dat-sys, so that no constant can be forgotten here.

use std::ffi::{CStr, CString};
use std::fmt;
use std::sync::OnceLock;

use dat_sys::describe::{CONSTANTS, Constant};
use dat_sys::*;

/// The names of the type and the subtype of a status; the class does not matter. The subtype's name is empty for
/// DAT_NO_SUBTYPE. `None` for a status that the standard does not define.
pub fn strerror(status: DAT_RETURN) -> Option<(&'static CStr, &'static CStr)> {
    let names = names();
    let kind = names.types.iter().find(|(value, _)| *value == DAT_GET_TYPE(status));
    let subtype = names.subtypes.iter().find(|(value, _)| *value == DAT_GET_SUBTYPE(status));
    Some((&kind?.1, &subtype?.1))
}

/// Displays a status: `DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED`.
pub struct Text(pub DAT_RETURN);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match strerror(self.0) {
            Some((kind, subtype)) if subtype.is_empty() => f.write_str(&kind.to_string_lossy()),
            Some((kind, subtype)) => write!(f, "{}, {}", kind.to_string_lossy(), subtype.to_string_lossy()),
            None => f.write_str("a status that the standard does not define"),
        }
    }
}

struct Names {
    types: Vec<(DAT_RETURN_TYPE, CString)>,
    subtypes: Vec<(DAT_RETURN_SUBTYPE, CString)>,
}

fn names() -> &'static Names {
    static NAMES: OnceLock<Names> = OnceLock::new();
    NAMES.get_or_init(|| {
        let declared = |first: &str, last: &str| {
            let constants: Vec<&Constant> = CONSTANTS.iter().copied().flatten().collect();
            let position = |name: &str| constants.iter().position(|constant| constant.name == name);
            let range = position(first).unwrap_or(0)..position(last).map_or(0, |last| last + 1);
            let named = |constant: &&Constant| (constant.value as u32, CString::new(constant.name));
            let keep = |(value, name): (u32, Result<CString, _>)| Some((value, name.ok()?));
            constants[range].iter().map(named).filter_map(keep).collect::<Vec<_>>()
        };
        let mut names = Names {
            types: declared("DAT_SUCCESS", "DAT_NOT_IMPLEMENTED"),
            subtypes: declared("DAT_NO_SUBTYPE", "DAT_THREAD_SAFETY_NOT_FOUND"),
        };
        for (value, name) in &mut names.subtypes {
            if *value == DAT_NO_SUBTYPE {
                *name = CString::default(); // nothing to say, as in the original
            }
        }
        names
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_and_subtype_has_its_name() {
        for kind in (0..=0x17).map(|n| n << 16).chain([DAT_EXTENSION_BASE, DAT_NOT_IMPLEMENTED]) {
            for subtype in 0..=DAT_THREAD_SAFETY_NOT_FOUND {
                let (kind_name, subtype_name) = strerror(DAT_CLASS_ERROR | kind | subtype).expect("a name");
                assert!(kind_name.to_bytes().starts_with(b"DAT_"));
                assert_eq!(subtype_name.is_empty(), subtype == DAT_NO_SUBTYPE);
            }
        }
        assert_eq!(names().types.len(), 26);
        assert_eq!(names().subtypes.len(), 104);
    }

    #[test]
    fn a_status_reads_as_its_names() {
        let text = |status| Text(status).to_string();
        assert_eq!(text(DAT_SUCCESS), "DAT_SUCCESS");
        assert_eq!(text(0x0004_0000), "DAT_INTERNAL_ERROR");
        assert_eq!(text(0x800a_0064), "DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED");
        assert_eq!(text(DAT_CLASS_ERROR | DAT_NOT_IMPLEMENTED), "DAT_NOT_IMPLEMENTED");
        assert_eq!(text(0x8018_0000), "a status that the standard does not define");
        assert_eq!(text(0x8004_0068), "a status that the standard does not define");
    }
}
