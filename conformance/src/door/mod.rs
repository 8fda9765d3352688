//! How the functions of DAT are reached.

pub(crate) mod extension;
mod libdat1;
mod library;
mod linked;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Case;
use crate::api::Api;

pub(crate) use self::linked::REGISTRY;

/// How the functions of DAT are reached.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Door {
    /// The registry and the function tables, linked into this program, as the crate `dat` uses them. `mem` and
    /// `tcp-emu` are built in; other names are looked up in dat.conf.
    Linked,
    /// A C library: its file.
    Library(PathBuf, Version),
}

/// Version of the interface that a C library has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Version {
    /// uDAPL 1.2, a `libdat.so.1`.
    V1_2,
    /// uDAPL 2.0, a `libdat2.so.2`.
    V2_0,
}

/// Functions that no provider has a part in.
const C_LIBRARY: &[&str] =
    &["dat_registry_list_providers", "dat_registry_providers_related", "dat_strerror"];

impl Door {
    /// A library of either version.
    ///
    /// # Errors
    ///
    /// It cannot be loaded, or is no library of DAT; the text says why.
    pub fn library(path: &Path) -> Result<Door, String> {
        Ok(Door::Library(path.to_owned(), library::version(path)?))
    }

    /// Whether a case is about something that this door has: the C library's own functions, or the Rust API.
    pub fn has(&self, case: &Case) -> bool {
        match self {
            Door::Linked => !C_LIBRARY.contains(&case.function()),
            Door::Library(_, Version::V1_2) => case.is_in_1_2(),
            Door::Library(_, Version::V2_0) => case.function() != "rust",
        }
    }

    /// The functions; a library stays loaded.
    pub(crate) fn api(&self) -> Result<&'static Api, String> {
        match self {
            Door::Linked => Ok(&linked::API),
            Door::Library(path, Version::V1_2) => libdat1::api(path),
            Door::Library(path, Version::V2_0) => library::api(path),
        }
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Door::Linked => f.write_str("the linked-in registry"),
            Door::Library(path, Version::V1_2) => write!(f, "{} (uDAPL 1.2)", path.display()),
            Door::Library(path, Version::V2_0) => path.display().fmt(f),
        }
    }
}
