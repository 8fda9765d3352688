//! A software RNIC without I/O. It does the work of an RDMA adapter between the consumer's queues
//! and the wire, as data structures and state machines. The owner of the socket moves the octets.
//! This crate reads neither a clock nor a socket.
//!
//! | file | what |
//! |---|---|
//! | [`rate_limit`] | the limit on work for strangers |
//! | `cause` | what the engines report about failures |
//! | [`wr`] | work requests and completions |
//! | [`key`] | the table of STags, which says who may access which memory; memory windows |
//! | [`mr`] | memory regions |
//! | [`cq`], [`srq`], [`qp`] | completion queue, shared receive queue, queue pair |
//! | `wqe` | requests and receive buffers as an engine sees them |
//! | [`cm`] | InfiniBand's communication management, which connects queue pairs |
//! | [`rdmap`] | RDMAP over DDP over MPA: connection setup, and the engine of a stream |
//! | [`rc`] | reliable connections over RoCEv2: the engine of an established connection |
//! | [`ud`] | datagrams over RoCEv2: the engine of a datagram queue pair |
//!
//! # Who calls what
//!
//! Each adapter has one *engine lock*, which belongs to the provider. Everything that completes
//! work runs under it: [`Work`], [`Stream`], [`ReliableConnection`], [`DatagramQp`] and the `drop`
//! of an [`Mr`]. Posting, polling and arming take no lock: each ring has one producer and one
//! consumer, and the holder of the engine lock is one of the two.

mod cause;
pub mod cm;
pub mod cq;
pub mod key;
mod memory;
pub mod mr;
pub mod qp;
pub mod rate_limit;
pub mod rc;
pub mod rdmap;
mod ring;
mod spin_lock;
pub mod srq;
mod sync;
pub mod table;
pub mod ud;
mod wqe;
pub mod wr;

pub use work::{Access, BindState};

pub use cq::{Cq, CqEvent};
pub use key::window::{Mw, View};
pub use key::{KeyError, Keys, Pd, RegisterError, Right, Scope};
pub use memory::{AtomicError, place};
pub use mr::Mr;
pub use qp::{Qp, QpCfg, Work};
pub use rc::{Burst, RcCfg, ReliableConnection};
pub use rdmap::stream::{Failure, Stats, Stream, StreamCfg};
pub use rdmap::vec::{RxVec, TxVec};
pub use ring::OutOfMemory;
pub use srq::Srq;
pub use ud::{DatagramQp, UdCfg};
pub use wqe::{Received, Rqe, Wqe};
pub use wr::{
    Arrival, BindWr, DatagramWr, Destination, PostError, RecvWr, Remote, Segment, SendOp, SendWr,
    Wc, WcOp, WcStatus,
};

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(test)]
mod tests;
