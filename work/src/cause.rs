//! The causes for which operations fail, connections end and messages wait.
//!
//! An engine reports a cause with the data that it knows. The side that finds a mistake often knows
//! more than its protocol can tell the peer. So a cause is reported at both ends, and each end uses
//! its own data. A cause is a fact. The layer above tells the programmer about it, in the terms of
//! its own interface: what happened, and what to do.

use std::fmt;

/// The cause of a failure, of the end of a connection or of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A message of the peer finds no receive.
    NoReceive {
        /// The number of octets of the message.
        octets: Octets,
        /// Whether the queue pair takes its receives from a shared receive queue.
        on_srq: bool,
        /// Whether the message waits. If not, the connection ends.
        waits: bool,
    },
    /// A message of this side finds no receive at the peer.
    PeerHasNoReceive {
        /// The number of octets of the message, if it is known.
        octets: Option<Octets>,
        /// Whether the message waits. If not, the connection ends.
        waits: bool,
    },
    /// A message of the peer is longer than the receive buffer.
    ReceiveTooSmall {
        /// The number of octets of the message and the length of the receive buffer, if both are
        /// known.
        lengths: Option<(Octets, u64)>,
    },
    /// A message of this side is longer than the receive buffer of the peer.
    PeerReceiveTooSmall {
        /// The number of octets of the message, if it is known.
        octets: Option<Octets>,
    },
    /// The owner of the queue pair let a message take no receive buffer, although one is posted.
    ReceiveDeclined,
    /// The peer may not access memory of this side.
    Refused {
        /// The access.
        access: Access,
        /// Why it was refused.
        why: Refusal,
    },
    /// The peer does not let this side access its memory.
    RefusedByPeer {
        /// The access, if it is known.
        access: Option<Access>,
        /// Why it was refused, if the peer has said so.
        why: Option<Refusal>,
    },
    /// An operation may not use local memory.
    LocalMemory {
        /// The use.
        usage: LocalUse,
        /// Why the memory may not be used.
        why: Refusal,
    },
    /// A post is refused, because its operation may not use local memory.
    PostRefused {
        /// The use.
        usage: LocalUse,
        /// Why the memory may not be used.
        why: Refusal,
    },
    /// A window could not be bound.
    BindFailed,
    /// The peer has more RDMA reads and atomic operations outstanding than agreed.
    TooManyReads {
        /// The number that was agreed.
        limit: u32,
    },
    /// The peer says that this side has more RDMA reads and atomic operations outstanding than
    /// agreed, or has addressed an atomic operation to an odd address.
    PeerRefusedRead,
    /// The peer refuses a request, and its protocol does not say why.
    InvalidAtPeer {
        /// Whether the request was a message for a receive.
        is_message: bool,
        /// The number of octets of the request.
        octets: u32,
    },
    /// The peer could not carry out a request, because of an error on its own side.
    PeerFailed,
    /// The peer does not answer.
    Silent,
    /// The peer's process has ended.
    ProcessGone,
    /// The peer no longer has the connection.
    Forgotten,
    /// The connection broke on the peer's side.
    BrokenByPeer,
    /// Packets are too long for the path.
    PacketsTooLong {
        /// The length of the packets in octets, with their headers.
        octets: usize,
        /// The length of the longest packets that the path carries, if a router has said so.
        path: Option<usize>,
    },
    /// The connection broke, and the provider does not know a better cause.
    Broken {
        /// What the provider says.
        why: Option<String>,
    },
    /// The TCP connection was lost.
    ConnectionLost {
        /// The number of the system's error, if there is one.
        errno: Option<i32>,
    },
    /// The peer's program or host left in the middle of a message.
    PartialMessage,
    /// One side violated the protocol.
    Protocol {
        /// Whether the peer has found the violation.
        by_peer: bool,
        /// The violation, in the terms of the protocol.
        what: String,
    },
    /// The peer's program rejected the connection request.
    Rejected,
    /// Nothing listens at the peer's port.
    NoListener,
    /// No program of the peer has an adapter of this kind open.
    NoAdapter,
    /// The peer's provider rejected the connection request.
    RejectedByProvider {
        /// The reason, if the peer has said it.
        why: Option<String>,
    },
    /// This host cannot reach the peer.
    Unreachable {
        /// The reason, if it is known.
        why: Option<String>,
    },
    /// The connection was not established within the time limit of the program.
    ConnectTimedOut,
    /// The connection could not be established after it was accepted.
    AcceptFailed,
    /// One of the two programs has disconnected.
    Disconnected {
        /// Whether the peer's program has done so.
        by_peer: bool,
    },
}

/// The number of octets of a message, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Octets {
    /// The number.
    pub count: u64,
    /// Whether the message has exactly that many octets. If false, it may have more.
    pub whole: bool,
}

/// An access of one side to the memory of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The kind of access.
    pub kind: AccessKind,
    /// The first address, as the requester names it. `None` if it is not known.
    pub addr: Option<u64>,
    /// The number of octets. `None` if it is not known.
    pub octets: Option<Octets>,
    /// The remote key.
    pub key: Option<u32>,
}

/// The kind of an access to remote memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// An RDMA write.
    Write,
    /// An RDMA read.
    Read,
    /// An atomic operation.
    Atomic,
    /// A send that invalidates a key.
    Invalidate,
}

/// The use of local memory by an operation of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalUse {
    /// A request reads the memory: a send or an RDMA write.
    Source,
    /// The result of an RDMA read or of an atomic operation goes to the memory.
    Sink,
    /// The result of an RDMA read goes to the memory, which is named by a remote key.
    WindowSink,
    /// A message goes to the memory.
    Receive,
}

/// The reason for which memory may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No region and no bound window has the key.
    Unknown,
    /// The region or window belongs to another protection domain, or the window to another queue
    /// pair.
    Domain,
    /// The region or window does not grant the access.
    Right,
    /// The key is unknown or does not grant the access. The protocol has one code for both.
    UnknownOrRight,
    /// The octets are not inside the region or window.
    Bounds,
    /// The target of an atomic operation is not aligned.
    Misaligned,
    /// The memory is no longer mapped.
    Unmapped,
}

impl Cause {
    /// Whether the connection goes on: a message waits, or a post was refused.
    pub fn connection_goes_on(&self) -> bool {
        use Cause::{NoReceive, PeerHasNoReceive, PostRefused};
        matches!(
            self,
            NoReceive { waits: true, .. }
                | PeerHasNoReceive { waits: true, .. }
                | PostRefused { .. }
        )
    }
}

impl fmt::Display for Octets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.count == 1 { "octet" } else { "octets" };
        write!(f, "{} {unit}{}", self.count, if self.whole { "" } else { " or more" })
    }
}
