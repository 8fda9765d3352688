//! A software RNIC without I/O: what an RDMA adapter does between the consumer's queues and the wire, as plain data
//! structures and state machines. Whoever owns the socket moves the bytes; nothing here reads a clock or a socket.
//!
//! | file | what |
//! |---|---|
//! | [`wr`] | work requests and completions |
//! | [`key`] | the table of STags: who may touch which memory; memory windows |
//! | [`mr`] | registered memory |
//! | [`cq`], [`srq`], [`qp`] | completion queue, shared receive queue, queue pair |
//! | [`cm`] | communication management of InfiniBand: how queue pairs find each other |
//! | [`rdmap`] | RDMAP over DDP over MPA: connection setup, and the engine of an established stream |
//! | [`rc`] | InfiniBand's reliable connection over RoCEv2: the engine of an established connection |
//!
//! # Who calls what
//!
//! An adapter has one *engine lock* (the provider's). Everything that completes work runs under it: [`Work`],
//! [`Stream`], [`Rc`] and the `drop` of an [`Mr`]. Posting, polling and arming take no lock: each ring has one producer and
//! one consumer, and of these two one is the holder of the engine lock.

pub mod cm;
pub mod cq;
pub mod key;
mod memory;
pub mod mr;
pub mod qp;
pub mod rc;
pub mod rdmap;
mod ring;
pub mod srq;
mod sync;
pub mod wr;

pub use work::{Access, BindState};

pub use cq::{Cq, CqEvent};
pub use key::window::{Mw, View};
pub use key::{KeyError, Keys, Pd, RegisterError, Scope};
pub use mr::Mr;
pub use qp::{Qp, QpCfg, Work};
pub use rc::{Burst, Rc, RcCfg};
pub use rdmap::stream::{Failure, Stats, Stream, StreamCfg};
pub use rdmap::vec::{RxVec, TxVec};
pub use ring::OutOfMemory;
pub use srq::Srq;
pub use wr::{
    Arrival, BindWr, PostError, RecvWr, Remote, Segment, SendOp, SendWr, Wc, WcOp, WcStatus,
};

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(test)]
mod tests;
