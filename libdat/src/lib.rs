//! The common part of the two C libraries: libdat.so.1 (`v1`, uDAPL 1.2) and libdat2.so.2 (`v2`,
//! uDAPL 2.0).
//!
//! A function on an object is forwarded to the object's provider ([`forward!`]). A [`Library`]
//! implements the other functions with the registry ([`functions!`]). Each function is exported
//! under the library's symbol version ([`export!`]). A library that uses these macros has a `static
//! LIBRARY: Library` at its root.

#![expect(clippy::crate_in_macro_def, reason = "LIBRARY belongs to the calling library")]

mod export;
pub mod forward;
mod functions;
mod library;
mod strerror;

pub use export::run;
pub use library::{Library, ia_name, invalid};
