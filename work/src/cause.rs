//! The causes for which operations fail, connections end and messages wait, and the sentence that
//! tells a programmer about each of them: what happened, and what to do.
//!
//! An engine reports a cause with the data that it knows. A peer's protocol often says less than
//! the side that found the mistake knows, so a cause is reported at both ends, each with its own
//! data. The sentences stay on the host. They are never sent to a peer.

use std::fmt;
use std::io;
use std::net::IpAddr;

/// The cause of a failure, of the end of a connection or of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A message of the peer finds no receive.
    NoReceive {
        /// The octets of the message.
        octets: Octets,
        /// Whether the endpoint takes its receives from a shared receive queue.
        on_srq: bool,
        /// Whether the message waits. If not, the connection ends.
        waits: bool,
    },
    /// A message of this side finds no receive at the peer.
    PeerHasNoReceive {
        /// The octets of the message, if they are known.
        octets: Option<Octets>,
        /// Whether the message waits. If not, the connection ends.
        waits: bool,
    },
    /// A message of the peer is longer than the receive buffer.
    ReceiveTooSmall {
        /// The octets of the message and the length of the receive buffer, if they are known.
        lengths: Option<(Octets, u64)>,
    },
    /// A message of this side is longer than the receive buffer of the peer.
    PeerReceiveTooSmall {
        /// The octets of the message, if they are known.
        octets: Option<Octets>,
    },
    /// The endpoint holds more receive buffers than its hard watermark.
    HardWatermark,
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
        /// The octets of the request.
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
        /// The length that the path takes, if a router has said so.
        path: Option<usize>,
    },
    /// The connection broke, and the provider does not know a better cause.
    Broken {
        /// What the provider says.
        why: String,
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
    /// Nothing listens at the peer's connection qualifier.
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
    /// The remote key (RMR context).
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
    /// The result of an RDMA read goes to the memory, which is named by an RMR context.
    RmrSink,
    /// A message goes to the memory.
    Receive,
}

/// The reason for which memory may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No region and no bound window has the key.
    Unknown,
    /// The region or window belongs to another protection zone, or the window to another endpoint.
    Zone,
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

    /// The sentence for the programmer of this side. `peer` is the peer's address.
    pub fn about(&self, peer: Option<IpAddr>) -> About<'_> {
        About { cause: self, peer: Peer(peer) }
    }
}

/// A cause as a sentence.
#[derive(Clone, Copy)]
pub struct About<'a> {
    cause: &'a Cause,
    peer: Peer,
}

impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = self.peer;
        match self.cause {
            Cause::NoReceive { octets, on_srq: false, .. } => write!(
                f,
                "{peer} sent {octets} and no receive is posted on this endpoint: post a receive for \
                 each message of the peer, the first ones before you connect or accept"
            ),
            Cause::NoReceive { octets, on_srq: true, .. } => write!(
                f,
                "{peer} sent {octets} and the shared receive queue is empty: post more buffers to \
                 it, and post them again sooner"
            ),
            Cause::PeerHasNoReceive { octets, waits } => {
                match octets {
                    Some(octets) => write!(f, "a message of {octets}")?,
                    None => f.write_str("a message")?,
                }
                write!(
                    f,
                    " {} because {peer} has no receive posted: its program must post a receive for \
                     each message of this side, the first ones before it connects or accepts",
                    if *waits { "waits" } else { "failed" }
                )
            }
            Cause::ReceiveTooSmall { lengths } => {
                match lengths {
                    Some((octets, room)) => write!(
                        f,
                        "{peer} sent {octets} and the receive buffer has room for {room}"
                    )?,
                    None => {
                        write!(f, "{peer} sent a message that is longer than the receive buffer")?
                    }
                }
                f.write_str(": post receive buffers that are as long as the longest message")
            }
            Cause::PeerReceiveTooSmall { octets } => {
                match octets {
                    Some(octets) => write!(f, "a message of {octets}")?,
                    None => f.write_str("a message")?,
                }
                write!(
                    f,
                    " is longer than the receive buffer of {peer}: its program must post longer \
                     receive buffers, or this side must send shorter messages"
                )
            }
            Cause::HardWatermark => f.write_str(
                "the endpoint holds more receive buffers than its hard watermark: dequeue \
                 completions sooner, or raise the mark with dat_ep_set_watermark",
            ),
            Cause::Refused { access, .. } if access.key == Some(0) => {
                write!(f, "{peer} may not {access}: {}", NoRemoteAccess(access.kind))
            }
            Cause::RefusedByPeer { access: Some(access), .. } if access.key == Some(0) => {
                let explanation = NoRemoteAccess(access.kind);
                write!(f, "{peer} does not let this side {access}: {explanation}")
            }
            Cause::Refused { access, why } => {
                write!(f, "{peer} may not {access}: ")?;
                why.explain(f, access.kind, Owner::This)
            }
            Cause::RefusedByPeer { access, why } => {
                write!(f, "{peer} does not let this side ")?;
                match access {
                    Some(access) => access.fmt(f)?,
                    None => f.write_str("access its memory")?,
                }
                f.write_str(": ")?;
                let kind = access.map_or(AccessKind::Write, |access| access.kind);
                match why {
                    Some(why) => why.explain(f, kind, Owner::Peer),
                    None => write!(
                        f,
                        "compare the key, the address and the length with those of the peer's \
                         region or RMR, which must still exist, must be in the protection zone of \
                         the peer's endpoint{}",
                        Flag(kind, ", and must be created with ")
                    ),
                }
            }
            Cause::LocalMemory { usage, why } => {
                write!(f, "{usage} ")?;
                why.explain_local(f, *usage)
            }
            Cause::PostRefused { usage, why } => {
                write!(f, "a post was refused: {usage} ")?;
                why.explain_local(f, *usage)
            }
            Cause::BindFailed => f.write_str(
                "an RMR could not be bound: its region was freed, or another bind or an \
                 invalidation came first. Free a region only after the binds to it have completed",
            ),
            Cause::TooManyReads { limit } => write!(
                f,
                "{peer} has more than {limit} RDMA reads and atomic operations outstanding: raise \
                 max_rdma_read_in of this endpoint, or lower max_rdma_read_out of the peer's"
            ),
            Cause::PeerRefusedRead => write!(
                f,
                "{peer} refuses an RDMA read or an atomic operation: this side has more of them \
                 outstanding than the peer's max_rdma_read_in, or the target of an atomic \
                 operation is not a multiple of 8"
            ),
            Cause::InvalidAtPeer { is_message: true, octets } => write!(
                f,
                "{peer} refuses a message of {octets} octets: most likely its receive buffer is \
                 shorter. Its program must post longer receive buffers, or this side must send \
                 shorter messages"
            ),
            Cause::InvalidAtPeer { is_message: false, octets } => write!(
                f,
                "{peer} refuses a request of {octets} octets: most likely more RDMA reads and \
                 atomic operations are outstanding than its max_rdma_read_in, or the target of an \
                 atomic operation is not a multiple of 8"
            ),
            Cause::PeerFailed => write!(
                f,
                "{peer} could not carry out a request because of a mistake on its own side, such \
                 as a region that was freed too soon or an exceeded watermark: the log of the \
                 peer's program says more"
            ),
            Cause::Silent => write!(
                f,
                "{peer} does not answer: its host or its program has ended, or the network does \
                 not carry packets to it and back"
            ),
            Cause::ProcessGone => write!(
                f,
                "the program of {peer} has ended without dat_ep_disconnect: look for the reason \
                 there"
            ),
            Cause::Forgotten => write!(
                f,
                "{peer} no longer has the connection: its program has ended, or it has given up \
                 waiting for an answer"
            ),
            Cause::BrokenByPeer => write!(
                f,
                "the connection broke on the side of {peer}: the log of the peer's program says \
                 why"
            ),
            Cause::PacketsTooLong { octets, path } => {
                write!(f, "packets of {octets} octets do not reach {peer}")?;
                match path {
                    Some(path) => write!(f, ", because the path takes {path}")?,
                    None => f.write_str(", although short ones do")?,
                }
                f.write_str(
                    ": give all interfaces on the path the same MTU, or set mtu= to a smaller \
                     path MTU",
                )
            }
            Cause::ConnectionLost { errno } => {
                write!(f, "the connection to {peer} was lost")?;
                if let Some(errno) = errno {
                    write!(f, " ({})", io::Error::from_raw_os_error(*errno))?;
                }
                f.write_str(": its host or its program has ended, or the network has failed")
            }
            Cause::Broken { why } => write!(f, "the connection to {peer} broke: {why}"),
            Cause::PartialMessage => write!(
                f,
                "{peer} closed the connection in the middle of a message: its program has ended, \
                 or has disconnected abruptly"
            ),
            Cause::Protocol { by_peer: false, what } => write!(
                f,
                "{peer} violated the protocol ({what}): it is not a DAT adapter, or has a defect"
            ),
            Cause::Protocol { by_peer: true, what } => write!(
                f,
                "{peer} ended the connection because of an error ({what}): its log may say more"
            ),
            Cause::Rejected => write!(
                f,
                "the program of {peer} rejected the connection request with dat_cr_reject: its \
                 private data or its log may say why"
            ),
            Cause::NoListener => write!(
                f,
                "no program listens on this connection qualifier of {peer}: start it before this \
                 side connects, and compare the qualifier with that of its service point"
            ),
            Cause::NoAdapter => write!(
                f,
                "no program of {peer} has an adapter of this kind open: start it before this side \
                 connects"
            ),
            Cause::RejectedByProvider { why: Some(why) } => {
                write!(f, "the adapter of {peer} refused the connection request: {why}")
            }
            Cause::RejectedByProvider { why: None } => write!(
                f,
                "the adapter of {peer} refused the connection request: no program listens on this \
                 connection qualifier, or too many requests wait there"
            ),
            Cause::Unreachable { why: Some(why) } => {
                write!(f, "this side cannot connect to {peer}: {why}")
            }
            Cause::Unreachable { why: None } => write!(
                f,
                "{peer} does not answer: check the address, the network, and whether an adapter of \
                 the same kind is open there"
            ),
            Cause::ConnectTimedOut => write!(
                f,
                "{peer} has not accepted the connection within the time limit of the call: its \
                 program must accept sooner, or this side must wait longer"
            ),
            Cause::AcceptFailed => write!(
                f,
                "{peer} did not complete the connection that this side accepted: its program has \
                 given up or ended"
            ),
            Cause::Disconnected { by_peer: true } => {
                write!(f, "{peer} has disconnected, or its program has ended")
            }
            Cause::Disconnected { by_peer: false } => f.write_str("this side has disconnected"),
        }
    }
}

/// The peer, as a sentence names it.
#[derive(Clone, Copy)]
struct Peer(Option<IpAddr>);

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => write!(f, "peer {address}"),
            None => f.write_str("the peer"),
        }
    }
}

impl fmt::Display for Octets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.count == 1 { "octet" } else { "octets" };
        write!(f, "{} {unit}{}", self.count, if self.whole { "" } else { " or more" })
    }
}

/// The access as the end of "may not".
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (AccessKind::Invalidate, Some(key)) = (self.kind, self.key) {
            return write!(f, "invalidate the RMR context {key:#010x}");
        }
        f.write_str(match self.kind {
            AccessKind::Write => "write",
            AccessKind::Read => "read",
            AccessKind::Atomic => "perform an atomic operation",
            AccessKind::Invalidate => "invalidate a key",
        })?;
        if let Some(octets) = self.octets {
            let on = if self.kind == AccessKind::Atomic { " on" } else { "" };
            write!(f, "{on} {octets}")?;
        }
        if let Some(addr) = self.addr {
            write!(f, " at {addr:#x}")?;
        }
        self.key.map_or(Ok(()), |key| write!(f, " with the RMR context {key:#010x}"))
    }
}

impl fmt::Display for LocalUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LocalUse::Source => "the memory of a send or an RDMA write",
            LocalUse::Sink => "the memory for the result of an RDMA read or an atomic operation",
            LocalUse::RmrSink => "the memory of the RMR for the result of an RDMA read",
            LocalUse::Receive => "the memory of a receive",
        })
    }
}

/// The side to which memory belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    This,
    Peer,
}

/// The privilege that an access needs, after some words. Nothing if it needs none.
struct Flag(AccessKind, &'static str);

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = match self.0 {
            AccessKind::Write => "DAT_MEM_PRIV_REMOTE_WRITE_FLAG",
            AccessKind::Read => "DAT_MEM_PRIV_REMOTE_READ_FLAG",
            AccessKind::Atomic => "DAT_IB_MEM_PRIV_REMOTE_ATOMIC",
            AccessKind::Invalidate => return Ok(()),
        };
        write!(f, "{}{flag}", self.1)
    }
}

/// What the key 0 means.
struct NoRemoteAccess(AccessKind);

impl fmt::Display for NoRemoteAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the RMR context 0 is that of a region without remote privileges{}",
            Flag(self.0, ": create the region with ")
        )
    }
}

impl Refusal {
    /// Says why a peer may not access memory, and what to do.
    fn explain(self, f: &mut fmt::Formatter<'_>, kind: AccessKind, owner: Owner) -> fmt::Result {
        let whose = if owner == Owner::This { "the region" } else { "the peer's region" };
        let accesses = match kind {
            AccessKind::Write => "remote writes",
            AccessKind::Read => "remote reads",
            AccessKind::Atomic => "remote atomic operations",
            AccessKind::Invalidate => "an invalidation",
        };
        match self {
            Refusal::Right if kind == AccessKind::Invalidate => f.write_str(
                "the key is that of a region, and only the key of an RMR can be invalidated",
            ),
            Refusal::Right => write!(
                f,
                "{whose}, or the RMR that is bound to it, does not allow {accesses}{}",
                Flag(kind, ": create the region, and bind the RMR, with ")
            ),
            Refusal::Unknown => f.write_str(
                "no region and no bound RMR has this key: it was freed, unbound or invalidated, or \
                 the key was passed on wrongly. Free a region or unbind an RMR only after the last \
                 access to it",
            ),
            Refusal::UnknownOrRight => write!(
                f,
                "{whose} does not exist any more or does not allow {accesses}: compare the key \
                 with the one that the peer has passed on{}",
                Flag(kind, ", and create the region with ")
            ),
            Refusal::Zone => write!(
                f,
                "{whose} belongs to another protection zone than the endpoint, or the RMR to \
                 another endpoint: create both in the same zone"
            ),
            Refusal::Bounds => write!(
                f,
                "these octets are not inside {whose}: compare the address and the length with \
                 those of the region or RMR"
            ),
            Refusal::Misaligned => {
                f.write_str("the address of an atomic operation must be a multiple of 8")
            }
            Refusal::Unmapped => write!(
                f,
                "the memory of {whose} is no longer mapped: free a region before its memory"
            ),
        }
    }

    /// Says why an operation of this side may not use local memory, and what to do.
    fn explain_local(self, f: &mut fmt::Formatter<'_>, usage: LocalUse) -> fmt::Result {
        match self {
            Refusal::Unknown | Refusal::UnknownOrRight => f.write_str(
                "is no longer registered: free a region only after the operations that use it have \
                 completed",
            ),
            Refusal::Zone => f.write_str(
                "belongs to another protection zone than the endpoint: create the region in the \
                 endpoint's zone",
            ),
            Refusal::Right => write!(
                f,
                "does not allow this use: {}",
                match usage {
                    LocalUse::Source => "create the region with DAT_MEM_PRIV_LOCAL_READ_FLAG",
                    LocalUse::Sink | LocalUse::Receive => {
                        "create the region with DAT_MEM_PRIV_LOCAL_WRITE_FLAG"
                    }
                    LocalUse::RmrSink => "bind the RMR with DAT_MEM_PRIV_REMOTE_WRITE_FLAG",
                }
            ),
            Refusal::Bounds | Refusal::Misaligned => f.write_str(
                "is not inside its region: compare the address and the length of each segment with \
                 those of the region",
            ),
            Refusal::Unmapped => {
                f.write_str("is no longer mapped: free a region before its memory")
            }
        }
    }
}

#[cfg(test)]
mod tests;
