//! The semantics of Direct Access Transport, written once for all providers and generic over a
//! [`provider::Transport`].
//!
//! A provider supplies a transport. This crate implements everything that the standard says about
//! adapters, endpoints, event dispatchers, memory and connections.

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
pub mod cno;
pub mod counters;
pub mod environment;
pub mod error;
mod event_fd;
pub mod futex;
pub mod handle;
pub mod log;
pub mod nesting;
mod sync;
pub mod threads;
pub mod user_directory;
pub mod wake;

pub use error::{Error, OpenError, Result};
