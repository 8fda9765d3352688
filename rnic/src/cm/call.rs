//! What the consumer says.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use wire::cm::{MAD_SIZE, Timeout};
use wire::rocev2::{PathMtu, Psn};

/// What an adapter says and takes.
#[derive(Clone, Debug)]
pub struct Cfg {
    /// The low 7 bits of all communication IDs; below 128.
    pub slot: u8,
    /// Not 0, and no other adapter's: peers tell connections apart by it.
    pub ca_guid: u64,
    /// The largest that is taken from callers.
    pub path_mtu: PathMtu,
    /// The same, from callers at the same address, whose packets do not leave the host.
    pub loopback_path_mtu: PathMtu,
    /// How long peers may take to answer, and we.
    pub response_timeout: Timeout,
    /// How long a datagram is under way at most.
    pub packet_lifetime: Timeout,
    /// How often a message is repeated; at most 15.
    pub max_cm_retries: u8,
    /// How long our side takes to acknowledge.
    pub target_ack_delay: Timeout,
    /// Private data of a rejection start with the version that OFED's uDAPL expects there.
    pub ofed_reject_prefix: bool,
}

impl Cfg {
    /// With Linux's times, at path MTU 4096, for peers that run OFED's uDAPL.
    pub fn new(slot: u8, ca_guid: u64) -> Self {
        Cfg {
            slot,
            ca_guid,
            path_mtu: PathMtu::Octets4096,
            loopback_path_mtu: PathMtu::Octets4096,
            response_timeout: Timeout::new(20),
            packet_lifetime: Timeout::new(16),
            max_cm_retries: 15,
            target_ack_delay: Timeout::new(15),
            ofed_reject_prefix: true,
        }
    }

    /// How long until an answer is there that takes its time.
    pub(super) fn interval(&self, response: Timeout) -> Duration {
        2 * self.packet_lifetime.duration() + response.duration()
    }
}

/// A call.
#[derive(Clone, Debug)]
pub struct Connect<'a> {
    /// Who calls, with its port.
    pub local: SocketAddr,
    /// Whom, with its port; of the same family.
    pub remote: SocketAddr,
    /// Our queue pair, 24 bits. A number is free again when [`Event::Released`](super::Event::Released) says so.
    pub qpn: u32,
    /// The PSN with which the peer's send queue starts.
    pub starting_psn: Psn,
    /// What is proposed.
    pub path_mtu: PathMtu,
    /// READs and atomics from the peer that we hold at most.
    pub responder_resources: u8,
    /// READs and atomics that we would have outstanding.
    pub initiator_depth: u8,
    /// How long a requester waits for an ACK.
    pub ack_timeout: Timeout,
    /// How often the peer repeats a packet that is not acknowledged, 0 to 7.
    pub retry_count: u8,
    /// How often the peer repeats a packet for which there was no receive; 7: for ever.
    pub rnr_retry_count: u8,
    /// Our receives come from a shared queue.
    pub srq: bool,
    /// At most [`Cm::MAX_CONNECT_PRIVATE`](super::Cm::MAX_CONNECT_PRIVATE) octets.
    pub private: &'a [u8],
    /// When the consumer gives up. `None`: when the protocol does, after more than a minute.
    pub deadline: Option<Instant>,
}

/// An acceptance.
#[derive(Clone, Debug)]
pub struct Accept<'a> {
    /// Our queue pair, 24 bits. It must be ready to receive.
    pub qpn: u32,
    /// The PSN with which the peer's send queue starts.
    pub starting_psn: Psn,
    /// READs and atomics from the peer that we hold at most.
    pub responder_resources: u8,
    /// READs and atomics that we will have outstanding.
    pub initiator_depth: u8,
    /// How often the peer repeats a packet for which there was no receive; 7: for ever.
    pub rnr_retry_count: u8,
    /// Our receives come from a shared queue.
    pub srq: bool,
    /// At most [`Cm::MAX_ACCEPT_PRIVATE`](super::Cm::MAX_ACCEPT_PRIVATE) octets.
    pub private: &'a [u8],
}

/// How a connection is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// [`Event::Disconnected`](super::Event::Disconnected) is told when the peer has answered, or cannot be reached.
    Graceful,
    /// The same, after 250 ms at the latest.
    Abrupt,
}

/// A datagram to be sent from QP 1 to QP 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Our address.
    pub from: IpAddr,
    /// The peer's.
    pub to: IpAddr,
    /// Its payload.
    pub mad: [u8; MAD_SIZE],
}

/// A call that cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CmError {
    /// There is no request of this name that waits for a decision: it was decided on, or withdrawn.
    #[error("there is no request to answer: it was answered before, or its caller has gone")]
    NoRequest,
    /// More private data than fit.
    #[error("{len} octets of private data, where {max} fit")]
    PrivateData {
        /// How many.
        len: usize,
        /// How many would fit.
        max: usize,
    },
    /// Somebody listens to the port.
    #[error("port {0} is listened to already")]
    PortInUse(u16),
    /// One address is of IPv4, the other of IPv6.
    #[error("a call between IPv4 and IPv6")]
    Families,
}
