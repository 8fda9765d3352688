//! The trait that a provider implements: the engine of an open adapter.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use dat_core::provider::{Close, ReadDepth};
use dat_core::{Error, Result};
use dat_sys::DAT_MODEL_NOT_SUPPORTED;
use rnic::Work;

use crate::adapter::Adapter;
use crate::progress::MakeProgress;
use crate::shared_qp::Shared;

/// The part of an adapter that uses sockets: its connections, listeners and timers. The caller of
/// each method holds the engine lock, so there is one call at a time.
///
/// The engine chooses small numbers as the names of its objects. It may make upcalls at any time,
/// within dat-core's [contract](dat_core::provider).
///
/// # Safety
/// The engine uses the arguments of [`Engine::add_qp`], and everything derived from them, only
/// inside of the methods of this trait and of [`MakeProgress`], and not after
/// [`Engine::remove_qp`]. After `remove_qp` or [`Engine::close`] the engine does not call the sink
/// of the removed object any more.
pub unsafe trait Engine: MakeProgress {
    /// Whether the progress thread starts when the adapter is opened, because the adapter has work
    /// before it listens or connects.
    const STARTS_PROGRESS_THREAD: bool = false;

    /// Whether an adapter may have several engines. If so, [`Engine::hand_over`] is needed.
    const CAN_BE_SEVERAL: bool = false;

    /// Adds a queue pair. `sink` receives its upcalls; `work` is the engine's half of the queue
    /// pair, which takes requests and completes them.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES` if the protocol has no queue pair number left.
    fn add_qp(&mut self, sink: Sink<Self>, work: Work) -> Result<Arc<Shared>>;
    /// The number of queue pairs that can be connected at the same time. Without a limit of the
    /// protocol, this is `usize::MAX`.
    fn max_qps(&self) -> usize {
        usize::MAX
    }
    /// Adds a queue pair for datagrams.
    ///
    /// # Errors
    /// `DAT_MODEL_NOT_SUPPORTED` if the protocol has no datagrams, and those of
    /// [`Engine::add_qp`].
    fn add_datagram_qp(&mut self, sink: Sink<Self>, work: Work) -> Result<Arc<Shared>> {
        let (_, _) = (sink, work);
        Err(Error::of(DAT_MODEL_NOT_SUPPORTED))
    }
    /// Starts to find out a peer's queue pair: see
    /// [`Queue::resolve`](dat_core::provider::Queue::resolve).
    fn resolve(&mut self, qp: usize, number: u64, to: &Target<'_>) -> Result<()> {
        let (_, _, _) = (qp, number, to);
        Err(Error::of(DAT_MODEL_NOT_SUPPORTED))
    }
    /// Prepares a queue pair of this engine for [`Engine::answer`] of the engine at which the
    /// request arrived. Returns what the answer tells of the queue pair, and the peer's address.
    fn prepare_answer(
        &mut self,
        qp: usize,
        request: &Self::Request,
    ) -> Result<(DatagramEnd, PeerAddress)> {
        let (_, _) = (qp, request);
        Err(Error::of(DAT_MODEL_NOT_SUPPORTED))
    }
    /// Answers a request of a peer that wants to send datagrams to this queue pair: see
    /// [`Queue::answer`](dat_core::provider::Queue::answer). Returns the number of the peer's
    /// queue pair, or 0 if the number is not known.
    fn answer(&mut self, request: Self::Request, own: DatagramEnd, private: &[u8]) -> Result<u32> {
        let (_, _, _) = (request, own, private);
        Err(Error::of(DAT_MODEL_NOT_SUPPORTED))
    }
    /// Removes a queue pair and its connection. Afterwards there are no upcalls for the queue pair.
    fn remove_qp(&mut self, qp: usize);
    /// Requests a connection: see [`Queue::connect`](dat_core::provider::Queue::connect).
    fn connect(&mut self, qp: usize, to: &Target<'_>) -> Result<()>;
    /// Accepts a connection request: see [`Queue::accept`](dat_core::provider::Queue::accept).
    fn accept(
        &mut self,
        qp: usize,
        request: Self::Request,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<()>;
    /// Prepares a request that arrived at this engine for [`Engine::accept`] of another engine of
    /// the adapter.
    fn hand_over(&mut self, request: Self::Request) -> Self::Request {
        request
    }
    /// Ends a connection: see [`Queue::disconnect`](dat_core::provider::Queue::disconnect).
    fn disconnect(&mut self, qp: usize, how: Close);
    /// Returns the number of posted receive buffers that have not completed. Messages complete the
    /// buffers in order.
    fn allocated(&mut self, qp: usize) -> usize;

    /// The counters of the adapter's connections, including those that have ended. See
    /// [`Transport::counters`](dat_core::provider::Transport::counters).
    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Opens a listener at a port, or at any free port, and returns its number and its port. See
    /// [`Transport::listen`](dat_core::provider::Transport::listen).
    fn listen(
        &mut self,
        port: Option<u16>,
        backlog: usize,
        sink: Sink<Self>,
    ) -> Result<(usize, u16)>;
    /// Closes a listener. Requests that the consumer already has stay valid.
    fn close(&mut self, listener: usize);
    /// Rejects a request with the consumer's private data.
    fn reject(&mut self, request: Self::Request, private: &[u8]) -> Result<()>;
}

/// The address of a peer's adapter, to which datagrams are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// The IP address.
    pub ip: IpAddr,
    /// The way to the peer, as a number that only the engine understands.
    pub route: u32,
    /// The key that the peer's queue pair expects in datagrams.
    pub q_key: u32,
}

/// What a peer must know of a queue pair to send datagrams to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramEnd {
    /// The number of the queue pair.
    pub qpn: u32,
    /// The key that datagrams to the queue pair must carry.
    pub q_key: u32,
}

/// The target of a connection, and its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The peer's address, with the port of the connection qualifier.
    pub peer: SocketAddr,
    /// Private data for the peer.
    pub private: &'a [u8],
    /// The time at which the consumer gives up, if it has set a time limit.
    pub deadline: Option<Instant>,
    /// The requested RDMA read depths, which do not exceed the maximum of the wire protocol.
    pub depth: ReadDepth,
}

/// The receiver of an engine's upcalls.
pub type Sink<E> = dat_core::provider::Sink<Adapter<E>>;
/// An upcall of an engine.
pub type Upcall<'a, E> = dat_core::provider::Upcall<'a, Adapter<E>>;
