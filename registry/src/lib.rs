//! The DAT registry: finds the provider of an IA name.
//!
//! A [`Registry`] reads entries from a file ([`conf`], [`toml`]) and from the program itself
//! ([`Builtin`]) into a [`List`]. [`Registry::open`] finds the entries that fit a request, loads
//! their providers, and opens an IA of the first entry that can be opened. If none can be opened,
//! [`OpenError`] gives the reason of each failure. The table of registered providers ([`dynamic`]),
//! the handles of open IAs ([`ia`]) and the check of all other handles ([`handle`]) are global to
//! the process, as in C.
//! # Example
//!
//! A registry file has one adapter. The program misspells its name, and learns what went wrong:
//!
//! ```
//! use std::ptr::null_mut;
//!
//! use dat_sys::{DAT_GET_TYPE, DAT_PROVIDER_NOT_FOUND};
//! use registry::{Builtins, List, OpenRequest, Registry, Wanted};
//!
//! let directory = tempfile::tempdir()?;
//! let file = directory.path().join("dat.conf");
//! let entry = r#"cluster-ib0 u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "ib0 0" """#;
//! std::fs::write(&file, entry)?;
//! let list = List::new(Some(file.into()), None, Builtins::NONE);
//!
//! let wanted = |name| Wanted { name, major: 2, minor: 0, threadsafe: false };
//! let candidates = list.find(&wanted("cluster-ib0")).map_err(|mismatch| mismatch.to_string())?;
//! assert_eq!(candidates[0].entry.library, "libdaplofa.so.2");
//!
//! let registry = Registry::with_list(list);
//! let wanted = wanted("cluster-ibo");
//! let request = OpenRequest { wanted, async_evd_qlen: 8, async_evd: null_mut() };
//! let error = registry.open(&request).unwrap_err();
//! assert_eq!(DAT_GET_TYPE(error.status()), DAT_PROVIDER_NOT_FOUND);
//! assert!(error.to_string().contains("cluster-ib0"), "the error suggests a name: {error}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// The layers, from top to bottom. First opening an IA, and querying a provider without one:
mod open;
mod open_error;
mod query;

// Open IAs, the providers that are loaded for them, and the functions that providers call:
pub mod abi;
pub mod dynamic;
pub mod handle;
pub mod ia;
mod load;

// The entries, and the formats of the file:
pub mod conf;
pub mod entry;
pub mod list;
pub mod toml;

// Locks, the host, and the boundary to C:
pub mod boundary;
pub mod host;
mod signal_lock;
pub mod status;

pub use abi::FNS;
pub use entry::{Api, Entry, Origin};
pub use handle::table_of;
pub use host::Host;
pub use ia::close;
pub use list::{
    Builtin, Builtins, Candidate, DiscoverFn, List, ListError, Mismatch, TableFn, Wanted,
};
pub use load::{LoadError, check_loads, check_starts};
pub use open::{OpenRequest, Opened, Registry, open_candidate};
pub use open_error::{Attempt, OpenError, OpenFailure};
pub use query::close_query;
