//! The DAT registry: finds the provider of an IA name.
//!
//! A [`Registry`] reads entries from a file ([`conf`], [`toml`]) and from the program itself
//! ([`Builtin`]) into a [`List`]. [`Registry::open`] finds the entries that fit a request, loads
//! their providers, and opens an IA of the first entry that can be opened. If none can be opened,
//! [`OpenError`] gives the reason of each failure. The table of registered providers ([`dynamic`]),
//! the handles of open IAs ([`ia`]) and the check of all other handles ([`handle`]) are global to
//! the process, as in C.

pub mod abi;
pub mod boundary;
pub mod conf;
pub mod dynamic;
pub mod entry;
mod environment;
pub mod handle;
pub mod host;
pub mod ia;
pub mod list;
pub mod report;
pub mod status;
pub mod toml;

mod load;
mod open;
mod open_error;
mod query;

pub use abi::FNS;
pub use entry::{Api, Entry, Origin};
pub use handle::table_of;
pub use host::Host;
pub use ia::close;
pub use list::{
    Builtin, Builtins, Candidate, DiscoverFn, List, ListError, Mismatch, TableFn, Wanted,
};
pub use load::{LoadError, check_loads, check_starts};
pub use open::{Opened, Registry, Request, open_candidate};
pub use open_error::{Attempt, OpenError, OpenFailure};
pub use query::close_query;
