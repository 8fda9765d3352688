//! The configuration, and the parameters of the calls.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use wire::cm::{MAD_SIZE, Timeout};
use wire::rocev2::{PathMtu, Psn};

use super::LowBits;

/// The configuration of an adapter.
#[derive(Clone, Debug)]
pub struct Cfg {
    /// The low bits of all communication IDs. Fewer than 32 bits.
    pub low_bits: LowBits,
    /// The CA GUID, by which peers distinguish adapters. It must not be 0, and no other adapter may
    /// have the same GUID.
    pub ca_guid: u64,
    /// The largest path MTU that is accepted from callers.
    pub path_mtu: PathMtu,
    /// The largest path MTU for callers at the same address, whose packets do not leave the host.
    pub loopback_path_mtu: PathMtu,
    /// The traffic class that this side's REQs propose for the packets of the connection.
    pub traffic_class: u8,
    /// The time that either side may take to answer.
    pub response_timeout: Timeout,
    /// The maximum time that a datagram is under way.
    pub packet_lifetime: Timeout,
    /// The number of times that a message is repeated, at most 15.
    pub max_cm_retries: u8,
    /// The time that this side takes to acknowledge.
    pub target_ack_delay: Timeout,
    /// Whether the private data of a rejection start with the version number that OFED's uDAPL
    /// expects at the start.
    pub ofed_reject_prefix: bool,
}

impl Cfg {
    /// Makes a configuration with the times that Linux uses and a path MTU of 4096, for peers that
    /// run OFED's uDAPL. All bits of communication IDs are random.
    pub fn new(ca_guid: u64) -> Self {
        Cfg {
            low_bits: LowBits::default(),
            ca_guid,
            path_mtu: PathMtu::Octets4096,
            loopback_path_mtu: PathMtu::Octets4096,
            traffic_class: 0,
            response_timeout: Timeout::new(20),
            packet_lifetime: Timeout::new(16),
            max_cm_retries: 15,
            target_ack_delay: Timeout::new(15),
            ofed_reject_prefix: true,
        }
    }

    /// The time to wait for an answer: the time `response` that the peer may take to answer, plus
    /// the time of one round trip.
    pub(super) fn interval(&self, response: Timeout) -> Duration {
        2 * self.packet_lifetime.duration() + response.duration()
    }
}

/// A request to connect, as the caller makes it.
#[derive(Clone, Debug)]
pub struct Connect<'a> {
    /// The caller's address and port.
    pub local: SocketAddr,
    /// The address and port to call, of the same family as `local`.
    pub remote: SocketAddr,
    /// The queue pair of this side, 24 bits. [`Event::Released`](super::Event::Released) reports
    /// when the number may be used again.
    pub qpn: u32,
    /// The PSN with which the peer's send queue starts.
    pub starting_psn: Psn,
    /// The path MTU that is proposed.
    pub path_mtu: PathMtu,
    /// The responder resources of this side: the maximum number of READs and atomic operations that
    /// it accepts from the peer at a time.
    pub responder_resources: u8,
    /// The maximum number of READs and atomic operations that this side wants to have outstanding.
    pub initiator_depth: u8,
    /// The time that a requester waits for an ACK.
    pub ack_timeout: Timeout,
    /// The number of times, 0 to 7, that the peer repeats a packet that is not acknowledged.
    pub retry_count: u8,
    /// The number of times that the peer repeats a packet for which no receive was posted. 7 means
    /// without limit.
    pub rnr_retry_count: u8,
    /// Whether the receives of this side come from a shared receive queue.
    pub srq: bool,
    /// The private data, at most [`Cm::MAX_CONNECT_PRIVATE`](super::Cm::MAX_CONNECT_PRIVATE)
    /// octets.
    pub private: &'a [u8],
    /// The time at which the program gives up. `None`: the attempt ends when the protocol gives up,
    /// after more than a minute.
    pub deadline: Option<Instant>,
}

/// The acceptance of a request.
#[derive(Clone, Debug)]
pub struct Accept<'a> {
    /// The queue pair of this side, 24 bits. It must be ready to receive.
    pub qpn: u32,
    /// The PSN with which the peer's send queue starts.
    pub starting_psn: Psn,
    /// The responder resources of this side: the maximum number of READs and atomic operations that
    /// it accepts from the peer at a time.
    pub responder_resources: u8,
    /// The maximum number of READs and atomic operations that this side will have outstanding.
    pub initiator_depth: u8,
    /// The number of times that the peer repeats a packet for which no receive was posted. 7 means
    /// without limit.
    pub rnr_retry_count: u8,
    /// Whether the receives of this side come from a shared receive queue.
    pub srq: bool,
    /// The private data, at most [`Cm::MAX_ACCEPT_PRIVATE`](super::Cm::MAX_ACCEPT_PRIVATE) octets.
    pub private: &'a [u8],
}

/// The way in which a connection is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// [`Event::Disconnected`](super::Event::Disconnected) follows when the peer has answered, or
    /// cannot be reached.
    Graceful,
    /// [`Event::Disconnected`](super::Event::Disconnected) follows when the peer has answered or
    /// cannot be reached, but after 250 ms at the latest.
    Abrupt,
}

/// A datagram to be sent from QP 1 to QP 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The address of this side.
    pub from: IpAddr,
    /// The peer's address.
    pub to: IpAddr,
    /// The payload of the datagram.
    pub mad: [u8; MAD_SIZE],
}

/// The reason for which a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CmError {
    /// No request with this ID waits for a decision. The request was accepted, rejected or
    /// withdrawn.
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
    /// One of the two addresses is IPv4, the other IPv6.
    #[error("one address is IPv4, the other IPv6")]
    Families,
}
