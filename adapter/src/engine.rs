//! The trait that a provider implements: the engine of an open adapter.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use rnic::Work;
use work::{Close, ReadDepth};

use crate::error::{Error, Result};
use crate::event::{PeerAddress, Sink};
use crate::progress::MakeProgress;
use crate::qp_shared::QpShared;

/// The part of an adapter that uses sockets: its connections, listeners and timers. The caller of
/// each method holds the engine lock, so there is one call at a time.
///
/// The engine chooses small numbers as the names of its objects. It may report events at any time.
/// A sink holds only leaf locks, and makes no call of the adapter except [`Adapter::interrupt`].
///
/// [`Adapter::interrupt`]: crate::Adapter::interrupt
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

    /// Adds a queue pair. `sink` receives its events; `work` is the engine's half of the queue
    /// pair, which takes requests and completes them.
    ///
    /// # Errors
    /// [`Error::NoQueuePair`] if the protocol has no queue pair number left.
    fn add_qp(&mut self, sink: Sink<Self>, work: Work) -> Result<Arc<QpShared>>;
    /// The number of queue pairs that can be connected at the same time. Without a limit of the
    /// protocol, this is `usize::MAX`.
    fn max_qps(&self) -> usize {
        usize::MAX
    }
    /// Adds a queue pair for datagrams.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the protocol has no datagrams, and those of [`Engine::add_qp`].
    fn add_datagram_qp(&mut self, sink: Sink<Self>, work: Work) -> Result<Arc<QpShared>> {
        let (_, _) = (sink, work);
        Err(Error::NotSupported)
    }
    /// Starts to find out a peer's queue pair: see [`Qp::resolve`](crate::Qp::resolve).
    fn resolve(&mut self, qp: usize, number: u64, to: &Target<'_>) -> Result<()> {
        let (_, _, _) = (qp, number, to);
        Err(Error::NotSupported)
    }
    /// Prepares a queue pair of this engine for [`Engine::answer`] of the engine at which the
    /// request arrived. Returns what the answer tells of the queue pair, and the peer's address.
    fn prepare_answer(
        &mut self,
        qp: usize,
        request: &Self::RequestData,
    ) -> Result<(DatagramEnd, PeerAddress)> {
        let (_, _) = (qp, request);
        Err(Error::NotSupported)
    }
    /// Answers a request of a peer that wants to send datagrams to this queue pair: see
    /// [`Qp::answer`](crate::Qp::answer). Returns the number of the peer's queue pair, or 0 if the
    /// number is not known.
    fn answer(
        &mut self,
        request: Self::RequestData,
        own: DatagramEnd,
        private: &[u8],
    ) -> Result<u32> {
        let (_, _, _) = (request, own, private);
        Err(Error::NotSupported)
    }
    /// Removes a queue pair and its connection. Afterwards there are no events of the queue pair.
    fn remove_qp(&mut self, qp: usize);
    /// Requests a connection: see [`Qp::connect`](crate::Qp::connect).
    fn connect(&mut self, qp: usize, to: &Target<'_>) -> Result<()>;
    /// Accepts a connection request: see [`Qp::accept`](crate::Qp::accept).
    fn accept(
        &mut self,
        qp: usize,
        request: Self::RequestData,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<()>;
    /// The number of a queue pair, if the protocol has such numbers and the queue pair has its own
    /// already: see [`Qp::number`](crate::Qp::number).
    fn number(&mut self, qp: usize) -> Option<u32> {
        let _ = qp;
        None
    }
    /// Makes a queue pair answer a peer: see
    /// [`Qp::establish_responder`](crate::Qp::establish_responder).
    fn establish_responder(&mut self, qp: usize, cfg: &ResponderCfg) -> Result<()> {
        let (_, _) = (qp, cfg);
        Err(Error::NotSupported)
    }
    /// Lets a queue pair send requests, too: see
    /// [`Qp::establish_requester`](crate::Qp::establish_requester).
    fn establish_requester(&mut self, qp: usize, cfg: &RequesterCfg) -> Result<()> {
        let (_, _) = (qp, cfg);
        Err(Error::NotSupported)
    }
    /// Returns a queue pair to the state in which it was created: see
    /// [`Qp::reset`](crate::Qp::reset).
    fn reset(&mut self, qp: usize) -> Result<()> {
        let _ = qp;
        Err(Error::NotSupported)
    }
    /// Prepares a request that arrived at this engine for [`Engine::accept`] of another engine of
    /// the adapter.
    fn hand_over(&mut self, request: Self::RequestData) -> Self::RequestData {
        request
    }
    /// Ends a connection: see [`Qp::disconnect`](crate::Qp::disconnect).
    fn disconnect(&mut self, qp: usize, how: Close);
    /// Returns the number of posted receive buffers that have not completed. Messages complete the
    /// buffers in order.
    fn allocated(&mut self, qp: usize) -> usize;

    /// The counters of the adapter's connections, including those that have ended. See
    /// [`Adapter::counters`](crate::Adapter::counters).
    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Opens a listener at a port, or at any free port, and returns its number and its port. See
    /// [`Adapter::listen`](crate::Adapter::listen).
    fn listen(
        &mut self,
        port: Option<u16>,
        backlog: usize,
        sink: Sink<Self>,
    ) -> Result<(usize, u16)>;
    /// Closes a listener. Requests that the consumer already has stay valid.
    fn close(&mut self, listener: usize);
    /// Rejects a request with the consumer's private data.
    fn reject(&mut self, request: Self::RequestData, private: &[u8]) -> Result<()>;
}

/// What a peer must know of a queue pair to send datagrams to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramEnd {
    /// The number of the queue pair.
    pub qpn: u32,
    /// The key that datagrams to the queue pair must carry.
    pub q_key: u32,
}

/// What a queue pair must know to answer a peer, without connection management. Numbers have the
/// ranges and the codes of IBA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderCfg {
    /// The local address, to which the peer sends. Its port does not matter.
    pub local: SocketAddr,
    /// The peer's address. Packets from other addresses are not accepted.
    pub peer: IpAddr,
    /// The number of the peer's queue pair.
    pub peer_number: u32,
    /// The maximum payload of a packet in octets.
    pub path_mtu: u32,
    /// The PSN of the first request packet of the peer.
    pub first_psn: u32,
    /// The maximum number of the peer's RDMA reads and atomic operations at the same time.
    pub read_depth: u32,
    /// The code of the time that the peer must wait if no receive is posted.
    pub rnr_timer: u8,
}

/// What a queue pair must know in addition, in order to send requests to its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterCfg {
    /// The PSN of the first request packet.
    pub first_psn: u32,
    /// The maximum number of RDMA reads and atomic operations at the same time.
    pub read_depth: u32,
    /// The code of the time to wait for an acknowledgement. 0 means without limit.
    pub ack_timeout: u8,
    /// How often a request is repeated when this time has passed, 0 to 7 times.
    pub retries: u8,
    /// How often a request is repeated for which the peer had no receive, 0 to 6 times. 7 means
    /// without limit.
    pub rnr_retries: u8,
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
