//! What the two C libraries share: libdat.so.1 (`v1`, uDAPL 1.2) and libdat2.so.2 (`v2`, uDAPL 2.0).
//!
//! Functions that concern an object go to the provider behind its handle ([`forward!`]); a [`Library`] answers the
//! others from the registry. [`functions!`] defines all that both versions have; each is exported under the library's
//! symbol version ([`export!`]). The library that calls these macros has a `static LIBRARY: Library` at its root.

#![expect(clippy::crate_in_macro_def, reason = "LIBRARY is the calling library's")]

mod export;
pub mod forward;
mod functions;
mod library;
mod strerror;

pub use library::{Library, ia_name, invalid};
pub use registry::boundary::guard;
