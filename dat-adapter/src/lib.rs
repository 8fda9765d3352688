//! A software adapter as a transport of dat-core: this crate translates between the objects, events
//! and errors of the crate `adapter`, which know no programming interface, and those of DAT. All
//! calls of the data path are inlined. The files from top to bottom:
//!
//! | file | contents |
//! |---|---|
//! | `transport` | an open adapter: [`Adapter`] |
//! | `queue` | queue pairs: [`Qp`] |
//! | `completion` | completion queues: [`Cq`] |
//! | `receive` | shared receive queues: [`Srq`] |
//! | `memory` | protection domains, regions and windows: [`Pd`], [`Mr`], [`Mw`] |
//! | `upcall` | events of an engine as upcalls of dat-core |
//! | `error` | errors of an adapter as errors of DAT: [`error`], [`open_error`] |
//!
//! A provider over this crate opens an [`adapter::Adapter`] and passes it to [`Adapter::new`];
//! `adapter` says how to write the engine.

mod completion;
mod error;
mod memory;
mod queue;
mod receive;
mod transport;
mod upcall;

pub use completion::Cq;
pub use error::{error, open_error};
pub use memory::{Mr, Mw, Pd};
pub use queue::Qp;
pub use receive::Srq;
pub use transport::Adapter;
