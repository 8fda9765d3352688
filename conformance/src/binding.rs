//! The ways in which the suite calls the functions of DAT.

pub(crate) mod extension;
mod libdat1;
mod library;
mod linked;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::api::Api;

pub use self::library::Version;
pub(crate) use self::linked::REGISTRY;

/// The way in which the suite calls the functions of DAT.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Binding {
    /// The suite uses the registry and the function tables that are linked into this program, as
    /// the crate `dat` does. The adapters `mem` and `tcp-emu` are built in. Other names are looked
    /// up in dat.conf.
    Linked,
    /// The suite loads the C library at this path, which implements this version, and calls its
    /// functions.
    Library(PathBuf, Version),
}

impl Binding {
    /// Returns the binding to the C library at this path, which may implement either version.
    ///
    /// # Errors
    ///
    /// Returns why the library cannot be loaded or is not a DAT library.
    pub fn library(path: &Path) -> Result<Binding, String> {
        Ok(Binding::Library(path.to_owned(), library::version(path)?))
    }

    /// Returns the functions of the binding. A library that is loaded for this is never unloaded.
    pub(crate) fn api(&self) -> Result<&'static Api, String> {
        match self {
            Binding::Linked => Ok(&linked::API),
            Binding::Library(path, Version::V1_2) => libdat1::api(path),
            Binding::Library(path, Version::V2_0) => library::api(path),
        }
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Binding::Linked => f.write_str("the linked-in registry"),
            Binding::Library(path, Version::V1_2) => write!(f, "{} (uDAPL 1.2)", path.display()),
            Binding::Library(path, Version::V2_0) => path.display().fmt(f),
        }
    }
}
