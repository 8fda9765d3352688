//! What all files of the connection use: its parameters, the path of its packets, its counters, and
//! the reasons for which it ends.

use wire::rocev2::{Bth, NakCode, Opcode, PathMtu, Psn, RnrTimer};

/// The maximum length of a message in octets (IBA, section 9.7.4.1.6).
pub const MAX_MESSAGE: u32 = 1 << 31;

/// The parameters that connection management has agreed on, and those that this end chooses itself.
#[derive(Clone, Copy, Debug)]
pub struct RcCfg {
    /// The maximum payload of a packet.
    pub mtu: PathMtu,
    /// The maximum number of octets in an IP packet on the path, and so in a segment of TCP. The
    /// window grows so that the connection carries as many octets as TCP does on the same path.
    pub ip_mtu: usize,
    /// The number of the peer's queue pair.
    pub peer_qpn: u32,
    /// The partition key. Packets with the key of another partition are ignored.
    pub p_key: u16,
    /// The PSN of the first packet that this end sends: the starting PSN that the peer chose.
    pub sq_psn: Psn,
    /// The PSN of the first packet that the peer sends: the starting PSN that this end chose.
    pub rq_psn: Psn,
    /// The maximum number of RDMA reads and atomic operations outstanding at the peer. If it is 0,
    /// a posted read or atomic operation never starts.
    pub initiator_depth: u32,
    /// The maximum number of the peer's RDMA reads and atomic operations that are kept here,
    /// because the peer may repeat them.
    pub responder_resources: u32,
    /// The code n of the local ACK timeout, which is 4.096 µs << n, but at least 32 ms. With code 0
    /// there is no timeout.
    pub ack_timeout: u8,
    /// The maximum number of consecutive timeouts after which the requester retries. The next one
    /// ends the connection.
    pub retries: u32,
    /// The maximum number of consecutive RNR NAKs after which the requester retries. 7 means any
    /// number. A further RNR NAK ends the connection if enough time has passed since the first one:
    /// this number of waits, each as long as the further RNR NAK asks for.
    pub rnr_retries: u8,
    /// The time that the peer must wait if no receive is posted here. Each further RNR NAK for the
    /// same packet has the next longer time that IBA knows, up to 0.64 ms.
    pub rnr_timer: RnrTimer,
    /// The maximum number of PSNs in flight, 1 to 2^20. It should correspond to the size of the
    /// receive buffer of the peer's socket. The congestion control may permit fewer: at most 1 MiB
    /// and 1,024 packets if a round trip takes 25 ms or less, and in proportion to the round trip
    /// if it takes longer.
    pub window: u32,
}

/// The reason for which the connection cannot continue (IBA: the queue pair enters the error
/// state). If a work request is the cause, it completes with a status of its own: a receive
/// completes at once, and a request completes when [`flush`] is called.
///
/// [`flush`]: super::ReliableConnection::flush
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer refused a request of this end.
    #[error("the peer answered a request with a NAK: {0}")]
    Refused(NakCode),
    /// This end refused a request of the peer. [`transmit_fatal_nak`] reports the refusal to the
    /// peer.
    ///
    /// [`transmit_fatal_nak`]: super::ReliableConnection::transmit_fatal_nak
    #[error("a request of the peer was refused: {0}")]
    Refusing(NakCode),
    /// The peer has not answered any retry.
    #[error("the peer does not answer")]
    Silent,
    /// Connection management has heard that the peer's queue pair is in another connection, and the
    /// peer has not answered the challenge whether it still has this one (see
    /// [`start_challenge`](super::ReliableConnection::start_challenge)).
    #[error(
        "the peer does not answer, and its queue pair was reported to be in another connection"
    )]
    Stale,
    /// The peer answers, but full packets do not get through.
    #[error("packets of the path MTU do not get through, although short packets do")]
    PathMtu,
    /// The peer had no receive posted in any retry.
    #[error("the peer had no receive buffer in any retry")]
    ReceiverNotReady,
    /// The peer's response is not a valid answer to the request.
    #[error("the peer's response does not match the request")]
    BadResponse,
    /// The memory of a local request is no longer registered, or the request is longer than 2^31
    /// octets.
    #[error("a request could not be carried out on this side")]
    Local,
    /// [`flush`](super::ReliableConnection::flush) was called.
    #[error("the queue pair was flushed")]
    Flushed,
}

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of packets that were put into [bursts](super::Burst) to be sent.
    pub tx_packets: u64,
    /// The number of request packets that were sent again. `tx_packets` counts them, too.
    pub sent_again: u64,
    /// The number of requests that have completed.
    pub tx_messages: u64,
    /// The number of packets of this connection that were received.
    pub rx_packets: u64,
    /// The number of request packets that had been received before.
    pub duplicates: u64,
    /// The number of request packets that arrived while an earlier one was missing.
    pub out_of_order: u64,
    /// How many of the packets in `out_of_order` were kept until the missing one arrived.
    pub kept: u64,
    /// The number of received answers for which no request was in flight.
    pub unexpected: u64,
    /// The number of received NAKs for a PSN sequence error.
    pub rx_sequence_naks: u64,
    /// The number of received RNR NAKs.
    pub rx_rnr_naks: u64,
    /// The number of completed requests of the peer.
    pub rx_messages: u64,
    /// The number of NAKs for a PSN sequence error that were sent to the peer.
    pub tx_sequence_naks: u64,
    /// The number of RNR NAKs that were sent to the peer.
    pub tx_rnr_naks: u64,
    /// The number of times that the oldest packet was sent again before the ACK timeout because no
    /// response came.
    pub probes: u64,
    /// The number of expired ACK timeouts.
    pub timeouts: u64,
    /// The number of received congestion notifications (CNP).
    pub rx_congestion_notifications: u64,
}

impl Stats {
    /// The names and values of the counters. The names and their order are the same for all
    /// connections.
    pub fn list(&self) -> [(&'static str, u64); 16] {
        [
            ("packets-sent", self.tx_packets),
            ("packets-sent-again", self.sent_again),
            ("requests-completed", self.tx_messages),
            ("packets-received", self.rx_packets),
            ("packets-received-again", self.duplicates),
            ("packets-out-of-order", self.out_of_order),
            ("packets-kept", self.kept),
            ("answers-unexpected", self.unexpected),
            ("sequence-naks-received", self.rx_sequence_naks),
            ("rnr-naks-received", self.rx_rnr_naks),
            ("requests-served", self.rx_messages),
            ("sequence-naks-sent", self.tx_sequence_naks),
            ("rnr-naks-sent", self.tx_rnr_naks),
            ("probes", self.probes),
            ("ack-timeouts", self.timeouts),
            ("congestion-notifications-received", self.rx_congestion_notifications),
        ]
    }
}

/// Where the packets of a connection go, and how long they may be.
#[derive(Clone, Copy)]
pub(super) struct Path {
    pub(super) mtu: PathMtu,
    pub(super) peer_qpn: u32,
    pub(super) p_key: u16,
}

impl Path {
    /// Makes the BTH of a packet to the peer.
    #[inline]
    pub(super) fn bth(&self, opcode: Opcode, psn: Psn) -> Bth {
        // As hardware adapters without path migration do, set the bit MigReq.
        Bth { p_key: self.p_key, migrated: true, ..Bth::new(opcode, self.peer_qpn, psn) }
    }
}
