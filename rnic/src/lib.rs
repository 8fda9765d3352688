//! A software RNIC without I/O. It does the work of an RDMA adapter between the program's queues
//! and the wire, as data structures and state machines. The owner of the socket moves the octets.
//! This crate reads neither a clock nor a socket.
//!
//! # Example
//!
//! Two queue pairs exchange a message in memory. Their engines carry datagrams, which need no
//! connection. [`ReliableConnection`], the engine of a connection over RoCEv2, is called in the
//! same way, and is also told the time.
//!
//! ```
//! use std::sync::Arc;
//!
//! use rnic::ud::HEADER_SIZE;
//! use rnic::{
//!     Access, Burst, Cq, DatagramQp, DatagramWr, Destination, Keys, Mr, OutOfMemory, Qp, QpCfg,
//!     RecvWr, Segment, UdCfg, WcOp, WcStatus,
//! };
//! use wire::rocev2::{Bth, Icrc, Packet, PathMtu};
//!
//! let (host, q_key) = ([127, 0, 0, 1].into(), 0x1234);
//! let keys = Arc::new(Keys::new());
//! let pd = keys.pd();
//! let cq = Arc::new(Cq::new(2, |_event| {})?);
//! let queue_pair = |token| {
//!     let cfg = QpCfg {
//!         keys: Arc::clone(&keys),
//!         pd,
//!         request_cq: Some(Arc::clone(&cq)),
//!         recv_cq: Some(Arc::clone(&cq)),
//!         srq: None,
//!         token,
//!         max_requests: 1,
//!         max_recvs: 1,
//!         max_request_segments: 1,
//!         max_recv_segments: 1,
//!     };
//!     // SAFETY: the example has one thread, and so it needs no engine lock.
//!     let (qp, work) = unsafe { Qp::new(cfg) }?;
//!     let cfg = UdCfg { q_key, mtu: PathMtu::Octets1024, p_key: Bth::DEFAULT_P_KEY };
//!     Ok::<_, OutOfMemory>((qp, DatagramQp::new(work, cfg)))
//! };
//! let (sender, mut sender_engine) = queue_pair(1)?;
//! let (receiver, mut receiver_engine) = queue_pair(2)?;
//!
//! // The memory holds the message and, after it, the receive buffer: a header and the message.
//! let mut memory = *b"hello.............................................";
//! let access = Access { local_read: true, local_write: true, ..Access::default() };
//! // SAFETY: the memory outlives the region, and nothing else uses it while the engines work.
//! let region = unsafe { Mr::new(&keys, pd, memory.as_mut_ptr(), memory.len(), access, true) }?;
//! let message = [Segment { addr: 0, len: 5, key: region.lkey() }];
//! let buffer = [Segment { addr: 5, len: HEADER_SIZE as u32 + 5, key: region.lkey() }];
//!
//! let to = Destination { address: host, route: 0, qpn: 2, q_key };
//! let datagram = DatagramWr {
//!     id: 10,
//!     to,
//!     immediate: None,
//!     segments: &message,
//!     signalled: true,
//!     solicited: false,
//!     quiet: false,
//! };
//! // SAFETY: one thread posts, and the memory outlives the work requests.
//! unsafe {
//!     receiver.post_recv(&RecvWr { id: 20, segments: &buffer, quiet: false })?;
//!     sender.post_datagram(&datagram)?;
//! }
//!
//! // The owner of a socket would write the checksum at the end of the packet, and send the packet.
//! let mut burst = Burst::new(1, Icrc::MAX_DATAGRAM);
//! let next = sender_engine.next().ok_or("a datagram is posted")?;
//! sender_engine.transmit(next, 1, &mut burst)?;
//! let (packet, _) = burst.octets().split_last_chunk::<{ Icrc::SIZE }>().ok_or("a packet")?;
//! receiver_engine.receive(&Packet::parse(packet)?, host, &[0; HEADER_SIZE])?;
//!
//! // Both work requests have completed, and the message has arrived.
//! let mut completions = Vec::new();
//! // SAFETY: one thread polls.
//! unsafe { cq.poll_with(2, |wc| completions.push((wc.qp, wc.id, wc.op, wc.status))) };
//! let success = WcStatus::Success;
//! assert_eq!(completions, [(1, 10, WcOp::Send, success), (2, 20, WcOp::Recv, success)]);
//! assert_eq!(memory[5 + HEADER_SIZE..], *b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Files
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
//! consumer, and the holder of the engine lock is one of the two. Only a [`ConcurrentCq`] has a
//! lock for its consumers.

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
pub mod shrinking_map;
mod spin_lock;
pub mod srq;
mod sync;
pub mod ud;
mod wqe;
pub mod wr;

pub use work::{Access, BindState};

pub use cq::{ConcurrentCq, Cq, CqEvent};
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
    Arrival, BindWr, DatagramWr, Destination, OpFacts, OpKind, OpSet, PostError, RecvWr, Remote,
    Segment, SendOp, SendWr, Wc, WcOp, WcStatus,
};

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(test)]
mod tests;
