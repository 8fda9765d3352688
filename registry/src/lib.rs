//! The DAT registry: who is behind an IA name.
//!
//! A [`Registry`] reads entries from a file ([`conf`], [`toml`]) and from the program itself ([`Builtin`]) into a
//! [`List`]. [`Registry::open`] finds the entries that fit, brings in their providers, and opens an IA of the first
//! that can; [`OpenError`] says of each that could not why. What providers register ([`dynamic`]), the handles of
//! open IAs ([`ia`]) and the check of any other handle ([`handle`]) are one for the process, as C has it.

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
pub use entry::{Entry, Origin};
pub use handle::table_of;
pub use host::Host;
pub use ia::close;
pub use list::{Builtin, Candidate, Find, List, ListError, Mismatch, Wanted};
pub use load::{LoadError, inspect, start};
pub use open::{Opened, Registry, Request, open_candidate};
pub use open_error::{Attempt, OpenError, Why};
pub use query::close_query;
