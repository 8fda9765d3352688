//! How the functions of DAT are reached.
//!
//! A third door, `libdat.so.1`, needs a shim here: an [`Api`] of functions with these signatures that convert to
//! uDAPL 1.2 and back. [`Case::is_in_1_2`](crate::Case::is_in_1_2) says which cases it can be asked.

mod library;
mod linked;

use std::fmt;
use std::path::PathBuf;

use crate::Case;
use crate::api::Api;

pub(crate) use self::linked::REGISTRY;

/// How the functions of DAT are reached.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Door {
    /// The registry and the function tables, linked into this program, as the crate `dat` uses them. `mem` and
    /// `tcp-emu` are built in; other names are looked up in dat.conf.
    Linked,
    /// A `libdat2.so.2`: its file.
    Library(PathBuf),
}

/// Functions that no provider has a part in.
const C_LIBRARY: &[&str] = &["dat_registry_list_providers", "dat_registry_providers_related", "dat_strerror"];

impl Door {
    /// Whether a case is about something that this door has: the C library's own functions, or the Rust API.
    pub fn has(&self, case: &Case) -> bool {
        match self {
            Door::Linked => !C_LIBRARY.contains(&case.function()),
            Door::Library(_) => case.function() != "rust",
        }
    }

    /// The functions; a library stays loaded.
    pub(crate) fn api(&self) -> Result<&'static Api, String> {
        match self {
            Door::Linked => Ok(&linked::API),
            Door::Library(path) => library::api(path),
        }
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Door::Linked => f.write_str("the linked-in registry"),
            Door::Library(path) => path.display().fmt(f),
        }
    }
}
