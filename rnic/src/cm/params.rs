//! The configuration, and the parameters of the calls.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use wire::cm::{MAD_SIZE, Timeout};
use wire::rocev2::{PathMtu, Psn};

/// The configuration of an adapter.
#[derive(Clone, Debug)]
pub struct Cfg {
    /// The low 7 bits of all communication IDs; below 128.
    pub slot: u8,
    /// Not 0, and different from that of every other adapter: peers tell connections apart by it.
    pub ca_guid: u64,
    /// The largest path MTU that is accepted from callers.
    pub path_mtu: PathMtu,
    /// The same for callers at the same address, whose packets do not leave the host.
    pub loopback_path_mtu: PathMtu,
    /// How long either side may take to answer.
    pub response_timeout: Timeout,
    /// The longest time that a datagram is under way.
    pub packet_lifetime: Timeout,
    /// How often a message is repeated; at most 15.
    pub max_cm_retries: u8,
    /// How long our side takes to acknowledge.
    pub target_ack_delay: Timeout,
    /// Whether the private data of a rejection start with the version that OFED's uDAPL expects
    /// there.
    pub ofed_reject_prefix: bool,
}

impl Cfg {
    /// Makes a configuration with Linux's times and path MTU 4096, for peers that run OFED's uDAPL.
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

    /// How long to wait for an answer that may take `response`, including the way there and back.
    pub(super) fn interval(&self, response: Timeout) -> Duration {
        2 * self.packet_lifetime.duration() + response.duration()
    }
}

/// A request to connect, as the caller makes it.
#[derive(Clone, Debug)]
pub struct Connect<'a> {
    /// The caller's address and port.
    pub local: SocketAddr,
    /// The address and port to call; of the same family.
    pub remote: SocketAddr,
    /// Our queue pair, 24 bits. [`Event::Released`](super::Event::Released) says when the number is
    /// free again.
    pub qpn: u32,
    /// The PSN with which the peer's send queue starts.
    pub starting_psn: Psn,
    /// The path MTU that is proposed.
    pub path_mtu: PathMtu,
    /// The most READs and atomics from the peer that we hold.
    pub responder_resources: u8,
    /// The most READs and atomics that we would have outstanding.
    pub initiator_depth: u8,
    /// How long a requester waits for an ACK.
    pub ack_timeout: Timeout,
    /// How often the peer repeats a packet that is not acknowledged, 0 to 7.
    pub retry_count: u8,
    /// How often the peer repeats a packet for which there was no receive; 7 means for ever.
    pub rnr_retry_count: u8,
    /// Whether our receives come from a shared receive queue.
    pub srq: bool,
    /// At most [`Cm::MAX_CONNECT_PRIVATE`](super::Cm::MAX_CONNECT_PRIVATE) octets.
    pub private: &'a [u8],
    /// When the consumer gives up. `None`: when the protocol does, after more than a minute.
    pub deadline: Option<Instant>,
}

/// The acceptance of a request.
#[derive(Clone, Debug)]
pub struct Accept<'a> {
    /// Our queue pair, 24 bits. It must be ready to receive.
    pub qpn: u32,
    /// The PSN with which the peer's send queue starts.
    pub starting_psn: Psn,
    /// The most READs and atomics from the peer that we hold.
    pub responder_resources: u8,
    /// The most READs and atomics that we will have outstanding.
    pub initiator_depth: u8,
    /// How often the peer repeats a packet for which there was no receive; 7 means for ever.
    pub rnr_retry_count: u8,
    /// Whether our receives come from a shared receive queue.
    pub srq: bool,
    /// At most [`Cm::MAX_ACCEPT_PRIVATE`](super::Cm::MAX_ACCEPT_PRIVATE) octets.
    pub private: &'a [u8],
}

/// How a connection is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// [`Event::Disconnected`](super::Event::Disconnected) follows when the peer has answered, or
    /// cannot be reached.
    Graceful,
    /// The same, but after 250 ms at the latest.
    Abrupt,
}

/// A datagram to be sent from QP 1 to QP 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Our address.
    pub from: IpAddr,
    /// The peer's address.
    pub to: IpAddr,
    /// Its payload.
    pub mad: [u8; MAD_SIZE],
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CmError {
    /// No request with this ID waits for a decision: it was decided on, or withdrawn.
    #[error("there is no request to answer: it was answered before, or its caller has gone")]
    NoRequest,
    /// The private data are too long.
    #[error("{len} octets of private data exceed the maximum of {max}")]
    PrivateData {
        /// The length in octets.
        len: usize,
        /// The limit in octets.
        max: usize,
    },
    /// There is already a listener for the port.
    #[error("port {0} already has a listener")]
    PortInUse(u16),
    /// One address is IPv4, the other IPv6.
    #[error("one address is IPv4, the other IPv6")]
    Families,
}
