//! Work requests and receive buffers as an engine sees them: the headers of the slots of a send
//! queue and of a receive queue.

use crate::wr::{OpKind, WcOp};

/// A request in its slot of the send queue. [`Work::request`](crate::Work::request) returns it
/// together with its segments.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Wqe {
    /// The id of the request, which its completion returns.
    pub id: u64,
    /// The address of the remote memory of an RDMA request or an atomic operation.
    pub remote_addr: u64,
    /// The STag of that memory, or the STag that the peer invalidates or that a bind makes valid.
    /// For a datagram, the number of the queue pair.
    pub remote_key: u32,
    /// The Q_Key of a datagram.
    pub q_key: u32,
    /// Further operands: the immediate data, the addend of a fetch-and-add, or the expected value
    /// and the replacement of a compare-and-swap ([`SendOp::parts`](crate::SendOp::parts)). For a
    /// datagram, the address.
    pub operands: [u64; 2],
    /// The total length in octets.
    pub len: u32,
    /// The flags, for example [`Wqe::FENCE`].
    pub flags: u16,
    /// The number of non-empty segments.
    pub segments: u8,
    /// The operation.
    pub op: OpKind,
}

// The send queues of all queue pairs consist of these structures, so their size matters.
const _: () = assert!(size_of::<Wqe>() == 48);

impl Wqe {
    /// The flag of a request whose success is reported with a completion.
    pub const SIGNALLED: u16 = 1 << 0;
    /// The flag of a message that causes a solicited completion at the peer.
    pub const SOLICITED: u16 = 1 << 1;
    /// The flag of a request that waits for earlier reads and atomic operations to complete.
    pub const FENCE: u16 = 1 << 2;
    /// The flag of a request whose successful completion is not solicited.
    pub const QUIET: u16 = 1 << 3;
    /// The flag of a datagram.
    pub const DATAGRAM: u16 = 1 << 4;
    /// The flag of a request that has been carried out and waits for earlier ones to complete.
    pub(crate) const DONE: u16 = 1 << 5;

    /// Whether the request has this flag.
    #[inline]
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Whether the request has been carried out and waits for earlier ones to complete.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.has(Wqe::DONE)
    }
}

/// A receive buffer in its slot of a receive queue.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Rqe {
    /// The id of the receive, which its completion returns.
    pub id: u64,
    /// The total length in octets.
    pub len: u64,
    // With a u8, the compiler moves the last seven octets of the structure in two pieces that
    // overlap, and a processor that loads such a piece again waits until the other one is stored.
    /// The number of non-empty segments.
    pub segments: u16,
    /// Whether the completion is not solicited, even if every receive is
    /// ([`Work::solicit_all_receives`](crate::Work::solicit_all_receives)).
    pub quiet: bool,
}

/// The effects of a message that was delivered into a receive buffer: see [`Wc`](crate::Wc).
#[derive(Clone, Copy)]
pub struct Received {
    /// The number of octets that were placed, or that the peer has written.
    pub octets: u32,
    /// The STag that the message has invalidated.
    pub invalidated: Option<u32>,
    /// The immediate data of the message, or of an RDMA write.
    pub immediate: Option<u32>,
    /// [`WcOp::Recv`], or [`WcOp::RecvMessageImm`].
    pub op: WcOp,
}

impl Received {
    /// The effects of a message that was not delivered.
    pub const NOTHING: Self = Self::octets(0);

    /// The effects of a message of this many octets without immediate data or invalidation.
    pub const fn octets(octets: u32) -> Self {
        Received { octets, invalidated: None, immediate: None, op: WcOp::Recv }
    }
}
