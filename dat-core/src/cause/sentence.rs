//! The sentence that tells a programmer about a cause: what happened, and what to do. The sentences
//! stay on the host. They are never sent to a peer.

use std::fmt;
use std::io;
use std::net::IpAddr;

use work::cause::{Access, AccessKind, Cause, LocalUse, Refusal};

/// Returns the sentence about a cause for the programmer of this side. `peer` is the address of the
/// peer.
pub(crate) fn about(cause: &Cause, peer: Option<IpAddr>) -> About<'_> {
    About { cause, peer: Peer(peer) }
}

/// A cause as a sentence.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
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
            Cause::ReceiveDeclined => f.write_str(
                "the endpoint holds more receive buffers than its hard watermark: dequeue \
                 completions sooner, or raise the mark with dat_ep_set_watermark",
            ),
            Cause::Refused { access, .. } if access.key == Some(0) => {
                write!(f, "{peer} may not {}: {}", End(access), NoRemoteAccess(access.kind))
            }
            Cause::RefusedByPeer { access: Some(access), .. } if access.key == Some(0) => {
                let explanation = NoRemoteAccess(access.kind);
                write!(f, "{peer} does not let this side {}: {explanation}", End(access))
            }
            Cause::Refused { access, why } => {
                write!(f, "{peer} may not {}: ", End(access))?;
                explain(*why, f, access.kind, Owner::This)
            }
            Cause::RefusedByPeer { access, why } => {
                write!(f, "{peer} does not let this side ")?;
                match access {
                    Some(access) => End(access).fmt(f)?,
                    None => f.write_str("access its memory")?,
                }
                f.write_str(": ")?;
                let kind = access.map_or(AccessKind::Write, |access| access.kind);
                match why {
                    Some(why) => explain(*why, f, kind, Owner::Peer),
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
                write!(f, "{} ", Usage(*usage))?;
                explain_local(*why, f, *usage)
            }
            Cause::PostRefused { usage, why } => {
                write!(f, "a post was refused: {} ", Usage(*usage))?;
                explain_local(*why, f, *usage)
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
                    Some(path) => write!(f, ", because the path takes {path}: give")?,
                    None => f.write_str(
                        " or do not come back, although short ones do: an interface or a switch on \
                         the path takes less. Give",
                    )?,
                }
                f.write_str(
                    " all interfaces on the path the same MTU, or set mtu= to a smaller path MTU",
                )
            }
            Cause::ConnectionLost { errno } => {
                write!(f, "the connection to {peer} was lost")?;
                if let Some(errno) = errno {
                    write!(f, " ({})", io::Error::from_raw_os_error(*errno))?;
                }
                f.write_str(": its host or its program has ended, or the network has failed")
            }
            Cause::Broken { why: Some(why) } => write!(f, "the connection to {peer} broke: {why}"),
            Cause::Broken { why: None } => write!(f, "the connection to {peer} broke"),
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

/// An access as the end of "may not".
struct End<'a>(&'a Access);

impl fmt::Display for End<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let End(access) = self;
        if let (AccessKind::Invalidate, Some(key)) = (access.kind, access.key) {
            return write!(f, "invalidate the RMR context {key:#010x}");
        }
        f.write_str(match access.kind {
            AccessKind::Write => "write",
            AccessKind::Read => "read",
            AccessKind::Atomic => "perform an atomic operation",
            AccessKind::Invalidate => "invalidate a key",
        })?;
        if let Some(octets) = access.octets {
            let on = if access.kind == AccessKind::Atomic { " on" } else { "" };
            write!(f, "{on} {octets}")?;
        }
        if let Some(addr) = access.addr {
            write!(f, " at {addr:#x}")?;
        }
        access.key.map_or(Ok(()), |key| write!(f, " with the RMR context {key:#010x}"))
    }
}

/// The use of local memory, as the beginning of a sentence.
struct Usage(LocalUse);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            LocalUse::Source => "the memory of a send or an RDMA write",
            LocalUse::Sink => "the memory for the result of an RDMA read or an atomic operation",
            LocalUse::WindowSink => "the memory of the RMR for the result of an RDMA read",
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

/// Is displayed as some words and the privilege that an access needs. If the access needs no
/// privilege, nothing is displayed.
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

/// Says why a peer may not access memory, and what to do.
fn explain(
    why: Refusal,
    f: &mut fmt::Formatter<'_>,
    kind: AccessKind,
    owner: Owner,
) -> fmt::Result {
    let whose = if owner == Owner::This { "the region" } else { "the peer's region" };
    let accesses = match kind {
        AccessKind::Write => "remote writes",
        AccessKind::Read => "remote reads",
        AccessKind::Atomic => "remote atomic operations",
        AccessKind::Invalidate => "an invalidation",
    };
    match why {
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
        Refusal::Domain => write!(
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
        Refusal::Unmapped => {
            write!(f, "the memory of {whose} is no longer mapped: free a region before its memory")
        }
    }
}

/// Says why an operation of this side may not use local memory, and what to do.
fn explain_local(why: Refusal, f: &mut fmt::Formatter<'_>, usage: LocalUse) -> fmt::Result {
    match why {
        Refusal::Unknown | Refusal::UnknownOrRight => f.write_str(
            "is no longer registered: free a region only after the operations that use it have \
             completed",
        ),
        Refusal::Domain => f.write_str(
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
                LocalUse::WindowSink => "bind the RMR with DAT_MEM_PRIV_REMOTE_WRITE_FLAG",
            }
        ),
        Refusal::Bounds | Refusal::Misaligned => f.write_str(
            "is not inside its region: compare the address and the length of each segment with \
             those of the region",
        ),
        Refusal::Unmapped => f.write_str("is no longer mapped: free a region before its memory"),
    }
}

#[cfg(test)]
mod tests;
