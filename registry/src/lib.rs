//! The DAT registry: finds the provider of an IA name.
//!
//! A [`Registry`] reads entries from a file ([`conf`], [`toml`]) and from the program itself
//! ([`Builtin`]) into a [`List`]. [`Registry::open`] finds the entries that fit a request, loads
//! their providers, and opens an IA of the first entry that can be opened. If none can be opened,
//! [`OpenError`] gives the reason of each failure. The table of registered providers ([`dynamic`]),
//! the handles of open IAs ([`ia`]) and the check of all other handles ([`handle`]) are global to
//! the process, as in C.

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
