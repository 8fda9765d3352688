//! The requester's wait for a receive buffer of the peer, after an RNR NAK.
//!
//! An RNR NAK names the time that the requester must wait. Then one packet is sent (`congestion`
//! limits the packets, and this file the requests). If the peer takes the message, one message at a
//! time may be in flight, because the peer may have just one receive buffer. Each message that the
//! peer then takes without an RNR NAK permits one more, so the number can double with each round
//! trip.

use std::time::{Duration, Instant};

/// The value of [`RcCfg::rnr_retries`](super::types::RcCfg::rnr_retries) that stands for any number
/// of retries.
const RNR_RETRIES_INFINITE: u8 = 7;
/// The time after which a wait for a receive buffer of the peer is reported to the program.
const RECEIVER_STALL_MIN: Duration = Duration::from_secs(1);

/// What the requester knows of the peer's receive buffers.
pub(super) struct ReceiverWait {
    /// The time until which the requester waits because the peer had no receive buffer.
    until: Option<Instant>,
    retries: u8,
    retries_left: u8,
    /// The RNR NAKs since the peer has last acknowledged a new packet.
    stall: Option<ReceiverStall>,
    /// The maximum number of requests in flight. From the start of a wait until the peer takes the
    /// message that it has refused, the value is 0, which permits one request, as 1 does.
    requests_max: usize,
}

/// RNR NAKs between which the peer has acknowledged no new packet.
struct ReceiverStall {
    /// The time of the first RNR NAK.
    since: Instant,
    is_reported: bool,
}

impl ReceiverWait {
    pub(super) fn new(retries: u8) -> Self {
        let retries_left = retries;
        ReceiverWait { until: None, retries, retries_left, stall: None, requests_max: usize::MAX }
    }

    /// The time until which the requester waits.
    #[inline]
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether another request may be sent while this number of requests is in flight.
    #[inline]
    pub(super) fn permits_request(&self, in_flight: usize) -> bool {
        in_flight == 0 || in_flight < self.requests_max
    }

    /// Counts an RNR NAK that asks for a wait of `time`. Returns false if there have been too many
    /// in a row. A responder may ask for a short time first and for longer times later. Therefore
    /// the requester goes on until it has waited for as long as all retries with `time` would take.
    pub(super) fn count_nak(&mut self, time: Duration, now: Instant) -> bool {
        let stall = ReceiverStall { since: now, is_reported: false };
        let since = self.stall.get_or_insert(stall).since;
        if self.retries == RNR_RETRIES_INFINITE {
            return true;
        }
        let left = self.retries_left > 0;
        self.retries_left = self.retries_left.saturating_sub(1);
        left || now < since + time * self.retries.into()
    }

    /// Whether the peer has had no receive buffer for [`RECEIVER_STALL_MIN`]. After it has returned
    /// true, it returns false until the peer has acknowledged a packet and then has had no receive
    /// buffer for that time again.
    pub(super) fn take_stall(&mut self, now: Instant) -> bool {
        self.stall
            .as_mut()
            .filter(|stall| !stall.is_reported && now >= stall.since + RECEIVER_STALL_MIN)
            .map(|stall| stall.is_reported = true)
            .is_some()
    }

    /// Starts a wait. After it, one packet may be sent.
    pub(super) fn start(&mut self, until: Instant) {
        (self.until, self.requests_max) = (Some(until), 0);
    }

    /// Ends the wait.
    pub(super) fn end(&mut self) {
        self.until = None;
    }

    /// Records that the peer has acknowledged packets, among which this number of requests end.
    #[inline]
    pub(super) fn on_progress(&mut self, requests: usize) {
        (self.until, self.retries_left, self.stall) = (None, self.retries, None);
        self.requests_max = self.requests_max.saturating_add(requests);
    }
}
