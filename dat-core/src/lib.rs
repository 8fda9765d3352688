//! The semantics of Direct Access Transport, once, generic over a [`provider::Transport`].
//!
//! A provider supplies a transport; this crate supplies everything the standard says about adapters, endpoints, event
//! dispatchers, memory and connections.

pub mod export;
pub mod provider;

pub mod conn;
pub mod ep;
pub mod evd;
pub mod ia;
pub mod mem;
pub mod srq;
pub mod stats;

pub mod addr;
mod agent;
mod allocate;
pub mod barrier;
mod beacon;
pub mod cno;
pub mod counters;
pub mod environment;
pub mod error;
pub mod futex;
pub mod handle;
pub mod log;
pub mod nesting;
mod sync;
pub mod threads;
pub mod user_directory;
pub mod wake;

pub use error::{Error, OpenError, Result};
