//! The requester's READs: which responses are requested, awaited, kept and requested again.
//!
//! A long READ is requested in parts, so that its responses stay within the window. For the
//! responder these are separate READs. The next part is requested when the window has room for all
//! its responses. A request that is repeated must lie within the original request, so the limits
//! of each part are kept until all its responses have arrived. If the window has become smaller
//! than the part, the part is repeated in pieces, one after the other.
//!
//! If a response of a READ is missing, the responses after it are kept, and only the missing ones
//! are requested again.

use std::time::{Duration, Instant};

use wire::rocev2::{PathMtu, Psn};

use super::congestion::CongestionControl;
use super::requester::{Cursor, Requester, packets};
use crate::qp::Wqe;

/// The minimum time after which missing responses are requested again. It is for short round trips,
/// which a busy peer exceeds.
const REPAIR_DELAY_MIN: Duration = Duration::from_micros(200);
/// The number of parts of a READ that fill a large window, and a small one, if the initiator depth
/// permits as many.
const READ_PARTS_PER_WINDOW: (u32, u32) = (4, 2);
/// A window with fewer packets than this is small.
const SMALL_WINDOW_PACKETS: u32 = 32;

/// A READ request or an atomic operation that awaits its responses.
pub(super) struct AwaitedResponses {
    /// The PSN of the request and of its first response.
    pub(super) start: Psn,
    /// The PSN after the last response.
    pub(super) end: Psn,
    /// Whether the request has been repeated in pieces, so that each response may end a piece.
    pub(super) is_in_pieces: bool,
}

/// A bit for each PSN from the oldest one.
pub(super) type EarlyResponses = u128;

/// A request for missing responses of a READ.
pub(super) struct Repair {
    /// The PSN of the first response that it asks for.
    start: Psn,
    /// The PSN after the last response that it asks for.
    end: Psn,
    /// The time of the request, or of the last response to it.
    at: Instant,
}

impl Requester {
    /// The number of packets that the next request of a READ asks for. `None` if the window has no
    /// room for them yet.
    pub(super) fn next_read(&self, wqe: &Wqe, mtu: PathMtu) -> Option<u32> {
        let window = self.congestion.window();
        let is_alone = self.next.psn == self.oldest.psn;
        let left = match self.awaited.get(self.awaited_before_next) {
            // A responder may forget the rest of a piece when it gets the request for another
            // piece of the same part.
            Some(part) if !is_alone && part.start.is_before(self.next.psn) => return None,
            Some(part) => part.end.distance(self.next.psn) as u32,
            None => packets(wqe, mtu) - self.next.index,
        };
        let (of_large, of_small) = READ_PARTS_PER_WINDOW;
        let parts = if window < SMALL_WINDOW_PACKETS { of_small } else { of_large };
        let parts = parts.min(self.initiator_depth as u32);
        // The whole window is free if nothing is in flight. So a part that is repeated alone gets
        // all of it.
        let part =
            if is_alone && self.is_repeating() { window } else { (window >> parts.ilog2()).max(1) };
        let packets = part.min(left);
        // Responses after a gap can be kept only up to a limit.
        let is_kept =
            self.early_responses == 0 || self.in_flight() + packets <= EarlyResponses::BITS;
        (packets <= window.saturating_sub(self.unanswered()) && is_kept).then_some(packets)
    }

    /// Handles a gap in the responses of the oldest request, a READ: requests the missing responses
    /// again, once in a round trip. `detected_by` is the PSN of the response after the gap.
    pub(super) fn on_missing_response(&mut self, detected_by: Psn, now: Instant) {
        // After a timeout all responses are requested again anyway. If no response was kept, it is
        // unknown which ones are missing.
        if self.is_repeating() || self.early_responses == 0 {
            return self.on_loss(detected_by, now);
        }
        let delay = self.timer.round_trip().unwrap_or_default().max(REPAIR_DELAY_MIN);
        let is_requested = self
            .repair
            .as_ref()
            .is_some_and(|repair| self.oldest.psn.is_before(repair.end) && now < repair.at + delay);
        if !is_requested {
            self.congestion.on_loss(self.first_unsent);
            self.timer.discard_sample();
            self.requests_missing = true;
        }
    }

    /// Takes the number of missing responses that are to be requested again now.
    pub(super) fn take_missing(&mut self, now: Instant) -> Option<u32> {
        let is_due = std::mem::take(&mut self.requests_missing);
        let part = self.awaited.front_mut().filter(|_| is_due && self.early_responses != 0)?;
        let left = part.end.distance(self.oldest.psn) as u32;
        let missing = self.early_responses.trailing_zeros().min(left);
        part.is_in_pieces |= missing < left;
        let start = self.oldest.psn;
        self.repair = Some(Repair { start, end: start + missing, at: now });
        Some(missing)
    }

    /// Records that the response with the oldest PSN has arrived. Responses that came early follow.
    /// The request has `packets` packets. Returns whether it is complete.
    #[inline]
    pub(super) fn on_oldest_response(&mut self, packets: u32, now: Instant) -> bool {
        let Cursor { at, psn, .. } = self.oldest;
        if let Some(repair) = self.repair.as_mut().filter(|repair| psn.is_before(repair.end)) {
            // The response cannot answer the repeated request yet, so it was only late.
            if psn == repair.start && now < repair.at + self.timer.min_response_time() {
                self.congestion.on_late_ack();
            }
            repair.at = now;
        }
        self.early_responses |= 1;
        while self.early_responses & 1 != 0 {
            self.early_responses >>= 1;
            self.oldest.step(1, packets);
        }
        self.repair.take_if(|repair| !self.oldest.psn.is_before(repair.end));
        self.oldest.at != at
    }

    /// Records that the request at `next`, which has been sent, awaits its responses until `end`,
    /// or until the end of the original request if it is repeated.
    pub(super) fn await_responses(&mut self, start: Psn, end: Psn) {
        match self.awaited.get_mut(self.awaited_before_next) {
            Some(part) if part.end != end => part.is_in_pieces = true,
            Some(_) => self.awaited_before_next += 1,
            None => {
                self.awaited.push_back(AwaitedResponses { start, end, is_in_pieces: false });
                self.awaited_before_next += 1;
            }
        }
    }

    /// Whether a READ response that ends a message, or does not end one, is valid for the oldest
    /// packet.
    #[inline]
    pub(super) fn may_end(&self, ends: bool) -> bool {
        self.awaited.front().is_some_and(|part| {
            let is_last = self.oldest.psn.next() == part.end;
            ends == is_last || (ends && part.is_in_pieces)
        })
    }
}
