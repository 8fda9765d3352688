//! The requester's READs: which responses are requested, awaited, kept and requested again.
//!
//! A long READ is requested in *parts*, so that its responses stay within the congestion window.
//! For the responder, each part is a READ of its own. The next part is requested when the window
//! has room for all its responses. If responses are lost, the requester requests a part again. The
//! responder then accepts only octets of the original part, so the limits of each part are kept
//! until all its responses have arrived. If the window has become smaller than the part, the part
//! is requested again in *pieces*, one after the other.
//!
//! If a response of a READ is missing, the responses after it are kept, and only the missing ones
//! are requested again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::rocev2::{PathMtu, Psn};

use super::cursors::Cursors;
use super::request_packets::{Cursor, packets};
use crate::wqe::Wqe;

/// The minimum time after which missing responses are requested again. It matters on paths with
/// short round trips, because a busy peer needs longer than such a round trip.
const REPAIR_DELAY_MIN: Duration = Duration::from_micros(200);
/// The number of parts of a READ that fill a large window, and a small one, if the initiator depth
/// permits as many.
const READ_PARTS_PER_WINDOW: (u32, u32) = (4, 2);
/// A window with fewer packets than this is small.
const SMALL_WINDOW_PACKETS: u32 = 32;

/// A bit for each PSN from the oldest unacknowledged one on.
pub(super) type EarlyResponses = u128;

/// The READs and atomic operations that a requester has sent, and which of their responses are
/// awaited, have arrived early, or are to be requested again.
pub(super) struct ReadRequests {
    /// The maximum length of `awaited`.
    initiator_depth: usize,
    /// The READ requests (each part counts as one) and atomic operations that have been sent and
    /// whose responses have not all arrived, oldest first.
    awaited: VecDeque<AwaitedResponses>,
    /// The number of elements of `awaited` that lie before the cursor `next`. The others are to be
    /// sent again.
    awaited_before_next: usize,
    /// The responses of the oldest request, a READ, that have arrived although an earlier one is
    /// missing. Bit n is the response with the PSN `oldest` + n.
    early: EarlyResponses,
    /// Whether the missing responses before the first early one are to be requested again.
    requests_missing: bool,
    /// The last request for missing responses.
    repair: Option<Repair>,
}

/// A READ request or an atomic operation that awaits its responses.
struct AwaitedResponses {
    /// The PSN of the request and of its first response.
    start: Psn,
    /// The PSN after the last response.
    end: Psn,
    /// Whether the request has been repeated in pieces, so that each response may end a piece.
    is_in_pieces: bool,
}

/// A request for missing responses of a READ.
struct Repair {
    /// The PSN of the first response that the request asks for.
    start: Psn,
    /// The PSN after the last response that the request asks for.
    end: Psn,
    /// The time of the request, or of the last response to it.
    at: Instant,
}

impl ReadRequests {
    pub(super) fn new(initiator_depth: u32) -> Self {
        ReadRequests {
            initiator_depth: initiator_depth as usize,
            awaited: VecDeque::new(),
            awaited_before_next: 0,
            early: 0,
            requests_missing: false,
            repair: None,
        }
    }

    /// Whether any READ or atomic operation before `next` awaits a response.
    #[inline]
    pub(super) fn is_any_awaited(&self) -> bool {
        self.awaited_before_next > 0
    }

    /// Whether the peer accepts another READ or atomic operation.
    #[inline]
    pub(super) fn may_start(&self) -> bool {
        self.awaited_before_next < self.initiator_depth
    }

    /// Whether missing responses are to be requested again.
    #[inline]
    pub(super) fn requests_missing(&self) -> bool {
        self.requests_missing
    }

    /// Whether responses have arrived although an earlier one is missing.
    #[inline]
    pub(super) fn has_early(&self) -> bool {
        self.early != 0
    }

    /// The number of PSNs in flight, without those of responses that came early.
    #[inline]
    pub(super) fn unanswered(&self, in_flight: u32) -> u32 {
        match self.early {
            0 => in_flight,
            early => in_flight.saturating_sub(early.count_ones()),
        }
    }

    /// The number of packets that the next request of a READ asks for. `None` if the window has no
    /// room for them yet.
    pub(super) fn next_part(
        &self,
        wqe: &Wqe,
        mtu: PathMtu,
        cursors: &Cursors,
        window: u32,
    ) -> Option<u32> {
        let (next, in_flight) = (cursors.next(), cursors.in_flight());
        let is_alone = in_flight == 0;
        let left = match self.awaited.get(self.awaited_before_next) {
            // A responder may forget the rest of a piece when it gets the request for another
            // piece of the same part.
            Some(part) if !is_alone && part.start.is_before(next.psn) => return None,
            Some(part) => part.end.distance(next.psn) as u32,
            None => packets(wqe, mtu) - next.index,
        };
        let (of_large, of_small) = READ_PARTS_PER_WINDOW;
        let parts = if window < SMALL_WINDOW_PACKETS { of_small } else { of_large };
        let parts = parts.min(self.initiator_depth as u32);
        // The whole window is free if nothing is in flight. So a part that is repeated alone gets
        // all of it.
        let part = match is_alone && cursors.is_repeating() {
            true => window,
            false => (window >> parts.ilog2()).max(1),
        };
        let packets = part.min(left);
        // Responses after a gap can be kept only up to a limit.
        let is_kept = self.early == 0 || in_flight + packets <= EarlyResponses::BITS;
        let room = window.saturating_sub(self.unanswered(in_flight));
        (packets <= room && is_kept).then_some(packets)
    }

    /// Whether the opcode of the response with the PSN `oldest` is valid. `ends` means that this
    /// opcode ends a message.
    #[inline]
    pub(super) fn may_end(&self, ends: bool, oldest: Psn) -> bool {
        self.awaited.front().is_some_and(|part| {
            let is_last = oldest.next() == part.end;
            ends == is_last || (ends && part.is_in_pieces)
        })
    }

    /// Whether the oldest part has more responses than the window has room for.
    pub(super) fn oldest_part_exceeds(&self, window: u32, oldest: Psn) -> bool {
        self.awaited.front().is_some_and(|part| part.end.distance(oldest) as u32 > window)
    }

    /// Records that the request at `next` is being sent, and awaits the responses from `start` up
    /// to, but not including, `end`. If the request repeats a piece of an earlier request, the
    /// limits of the earlier request stay.
    pub(super) fn on_sent(&mut self, start: Psn, end: Psn) {
        match self.awaited.get_mut(self.awaited_before_next) {
            Some(part) if part.end != end => part.is_in_pieces = true,
            Some(_) => self.awaited_before_next += 1,
            None => {
                self.awaited.push_back(AwaitedResponses { start, end, is_in_pieces: false });
                self.awaited_before_next += 1;
            }
        }
    }

    /// Records that the response with the PSN `oldest` + `ahead` has arrived, although an earlier
    /// one is missing.
    pub(super) fn on_early(&mut self, ahead: u32) {
        self.early |= 1 << ahead;
    }

    /// Records that responses before the first early one are missing. They are requested again,
    /// unless that was done less than a round trip ago. Returns whether they are.
    pub(super) fn on_missing(&mut self, oldest: Psn, round_trip: Duration, now: Instant) -> bool {
        let delay = round_trip.max(REPAIR_DELAY_MIN);
        let is_requested = self
            .repair
            .as_ref()
            .is_some_and(|repair| oldest.is_before(repair.end) && now < repair.at + delay);
        self.requests_missing |= !is_requested;
        !is_requested
    }

    /// Takes the number of missing responses that are to be requested again now.
    pub(super) fn take_missing(&mut self, oldest: Psn, now: Instant) -> Option<u32> {
        let is_due = std::mem::take(&mut self.requests_missing);
        let part = self.awaited.front_mut().filter(|_| is_due && self.early != 0)?;
        let left = part.end.distance(oldest) as u32;
        let missing = self.early.trailing_zeros().min(left);
        part.is_in_pieces |= missing < left;
        self.repair = Some(Repair { start: oldest, end: oldest + missing, at: now });
        Some(missing)
    }

    /// Records that the response with the PSN `oldest` has arrived, and moves `oldest` after it and
    /// after the responses that came early. The request has `packets` packets. Returns whether
    /// the response had been requested again, but came sooner than `min_answer_time` after the
    /// repeated request, so that it cannot answer that request.
    #[inline]
    pub(super) fn on_response(
        &mut self,
        cursors: &mut Cursors,
        packets: u32,
        min_answer_time: impl FnOnce() -> Duration,
        now: Instant,
    ) -> bool {
        let Cursor { psn, .. } = cursors.oldest();
        let mut was_late = false;
        if let Some(repair) = self.repair.as_mut().filter(|repair| psn.is_before(repair.end)) {
            was_late = psn == repair.start && now < repair.at + min_answer_time();
            repair.at = now;
        }
        self.early |= 1;
        while self.early & 1 != 0 {
            self.early >>= 1;
            cursors.acknowledge(1, packets);
        }
        let oldest = cursors.oldest().psn;
        self.repair.take_if(|repair| !oldest.is_before(repair.end));
        was_late
    }

    /// Records that the cursor `oldest` has moved to this packet.
    #[inline]
    pub(super) fn on_progress(&mut self, oldest: Psn) {
        while self.awaited.pop_front_if(|part| !part.end.is_after(oldest)).is_some() {
            self.awaited_before_next = self.awaited_before_next.saturating_sub(1);
        }
    }

    /// Records that the cursor `next` has jumped to this packet.
    pub(super) fn on_jump(&mut self, next: Psn) {
        let is_before = |part: &&AwaitedResponses| !part.end.is_after(next);
        self.awaited_before_next = self.awaited.iter().take_while(is_before).count();
    }

    /// Records that all unacknowledged packets are sent again.
    pub(super) fn on_go_back(&mut self) {
        (self.requests_missing, self.repair, self.awaited_before_next) = (false, None, 0);
    }
}
