//! The semantics of Direct Access Transport, written once for all providers and generic over a
//! [`provider::Transport`].
//!
//! A provider supplies a transport. This crate implements everything that the standard says about
//! adapters, endpoints, event dispatchers, memory and connections.

// The layers, from top to bottom. `export` is the C interface at the top.
pub mod export;

// The objects of the standard. They refer to one another.
pub mod cno;
pub mod conn;
pub mod ep;
pub mod evd;
pub mod ia;
pub mod mem;
pub mod srq;

// Where these objects do not obey the letter of the standard.
mod relaxed;

// Causes of failures, counters, log events and statistics of adapters and their objects.
pub mod cause;
pub mod counters;
pub mod log;
mod stats;

// The parts of which objects consist.
pub mod addr;
mod agent;
mod allocate;
pub mod error;
mod event_fd;
pub mod handle;
mod operation;
mod sync;

// What a provider supplies.
pub mod provider;

pub use error::{Error, OpenError, Result};
