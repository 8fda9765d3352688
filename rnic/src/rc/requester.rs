//! The requester, which tracks the requests of the send queue: which of them are acknowledged,
//! which are in flight, and which are sent next.
//!
//! Two cursors move through the send queue, packet by packet. All packets before *oldest* are
//! acknowledged. All packets from *next* on have not been sent, or are to be sent again: a loss
//! only sets *next* back (go-back-N). No copies of packets in flight are kept, because a packet can
//! be created again from its request. The PSNs of a READ's responses count like sent packets.
//!
//! A peer may keep the packets after a lost one. Then only the lost packet is sent again, and
//! *next* continues where it was, at *resume*. Nothing on the wire says what a peer does. After the
//! first loss, only the lost packet is sent again. The acknowledgement that answers it shows
//! whether the peer has kept the packets after it. A NAK names only the first missing packet. If
//! one flight lacks several packets, each of them costs a round trip. So from the fourth one on,
//! more packets are sent again each time, up to 16.
//!
//! After an RNR NAK, one packet is sent per RNR time until the peer takes a message, and then one
//! message at a time, because the peer may have just one receive buffer. Each message that the
//! peer takes without an RNR NAK doubles that number.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::rocev2::{PathMtu, Psn};

use super::challenge::Challenge;
use super::congestion::{Acknowledged, CongestionControl, Cubic};
use super::early::EARLY_PSNS;
use super::engine::{Failure, RcCfg, Stats};
use super::read_requests::{AwaitedResponses, EarlyResponses, Repair};
use super::recovery::Recovery;
use super::retransmission::{RetransmissionTimer, TimerExpiry};
use crate::qp::{self, Work, Wqe};
use crate::wr::{WcOp, WcStatus};

/// The maximum number of PSNs in flight. It is far below the number at which PSNs wrap.
const WINDOW_MAX: u32 = 1 << 20;
/// The value of [`RcCfg::rnr_retries`] that stands for any number of retries.
const RNR_RETRIES_INFINITE: u8 = 7;
/// The time after which a wait for a receive buffer of the peer is reported to the program.
const RECEIVER_STALL_MIN: Duration = Duration::from_secs(1);
/// The number of missing packets of a flight that are sent again alone.
const MISSING_SENT_ALONE: u32 = 3;
/// The maximum number of PSNs between the last SEND or WRITE and the oldest unacknowledged packet
/// so that the peer certainly takes a repetition of the former for a duplicate.
const LAST_MESSAGE_DISTANCE_MAX: i32 = (Psn::COUNT / 4) as i32;
/// The maximum number of packets that are sent again for one NAK.
const SENT_AGAIN_MAX: u32 = 16;

/// The requester's state.
pub(super) struct Requester {
    /// The oldest packet that is not acknowledged, or whose response has not arrived.
    pub(super) oldest: Cursor,
    /// The latest packet of a SEND or WRITE that is acknowledged.
    last_message: Psn,
    /// The packet to be sent next.
    pub(super) next: Cursor,
    /// The first PSN that has never been sent.
    pub(super) first_unsent: Psn,
    /// The READ requests (each part counts as one) and atomic operations that have been sent and
    /// whose responses have not all arrived, oldest first.
    pub(super) awaited: VecDeque<AwaitedResponses>,
    /// The number of elements of `awaited` that lie before `next`. The others are to be sent again.
    pub(super) awaited_before_next: usize,
    /// The maximum length of `awaited`.
    pub(super) initiator_depth: usize,
    /// The responses of the oldest request, a READ, that have arrived although an earlier one is
    /// missing. Bit n is the response with the PSN `oldest` + n.
    pub(super) early_responses: EarlyResponses,
    /// Whether the missing responses before the first early one are to be requested again.
    pub(super) requests_missing: bool,
    /// The last request for missing responses.
    pub(super) repair: Option<Repair>,
    /// The number of packets sent since the last packet that requested an acknowledgement.
    pub(super) packets_since_ack_request: u32,
    /// The position of a request that cannot be carried out, and its status. The request fails when
    /// all earlier requests are done.
    pub(super) failed_request: Option<(usize, WcStatus)>,
    /// The time until which the requester waits because the peer had no receive buffer.
    pub(super) rnr_wait: Option<Instant>,
    rnr_retries: u8,
    rnr_retries_left: u8,
    /// The RNR NAKs since the last progress.
    receiver_stall: Option<ReceiverStall>,
    /// The maximum number of requests in flight. 0 means one request, after an RNR NAK for it.
    requests_max: usize,
    pub(super) congestion: Cubic,
    pub(super) timer: RetransmissionTimer,
    loss: Option<Loss>,
    /// If set, only some packets at `next` are sent again.
    pub(super) resume: Option<Resume>,
    /// The packets that were last sent again.
    sent_again: Option<SentAgain>,
    peer_keeps: PeerKeeps,
    /// If set, the peer keeps packets after a missing one, and new packets are sent meanwhile.
    recovery: Option<Recovery>,
    /// The missing packets of the current flight: how many a peer that keeps packets has reported,
    /// and the PSN after the flight.
    missing: (u32, Psn),
    /// The first packet that was sent again with all packets after it, and the PSN after the
    /// packets that had been sent before.
    repeated: (Psn, Psn),
    peer_close: PeerClose,
    pub(super) challenge: Option<Box<Challenge>>,
    /// The time at which the peer answered the last challenge.
    pub(super) challenge_answered_at: Option<Instant>,
}

/// A wait for a receive buffer of the peer.
struct ReceiverStall {
    /// The time of the first RNR NAK.
    since: Instant,
    is_reported: bool,
}

/// Whether the peer is closing the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerClose {
    Open,
    /// The peer accepts no new requests. Requests that it may have carried out are sent again.
    Draining,
    /// The peer has had enough time to answer.
    Done,
}

/// A packet of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The request's position in the send queue.
    pub(super) at: usize,
    /// The index of the packet in the request.
    pub(super) index: u32,
    /// The packet's PSN.
    pub(super) psn: Psn,
}

impl Cursor {
    /// Advances the cursor by `by` packets of its request, which has `packets` in total.
    #[inline]
    pub(super) fn step(&mut self, by: u32, packets: u32) {
        self.psn = self.psn + by;
        self.index += by;
        if self.index >= packets {
            (self.at, self.index) = (self.at.wrapping_add(1), 0);
        }
    }
}

/// The last retransmission that was caused by a lost packet.
struct Loss {
    /// The PSN of the lost packet.
    psn: Psn,
    /// The PSN of the last packet whose response showed the loss.
    detected_by: Psn,
    at: Instant,
}

/// Whether the peer keeps the packets that arrive after a lost packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerKeeps {
    Unknown,
    Yes,
    No,
}

/// The place at which the requester continues after it has sent some packets again.
#[derive(Clone, Copy)]
pub(super) struct Resume {
    at: Cursor,
    /// The number of packets that are to be sent again before.
    after: u32,
}

/// Packets of SENDs or WRITEs that were sent again while the packets after them were not.
#[derive(Clone, Copy)]
struct SentAgain {
    packets: u32,
    /// The PSN after these packets.
    until: Psn,
    /// The first packet that had not been sent before.
    end: Cursor,
    at: Instant,
}

/// The next step of the requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Send one or more packets of a SEND or WRITE.
    Message,
    /// Send a READ request for this number of packets.
    Read(u32),
    Atomic,
    Bind,
    /// Fail with [`Requester::failed_request`].
    Fail,
}

impl Requester {
    pub(super) fn new(at: usize, cfg: &RcCfg, now: Instant) -> Self {
        let window = cfg.window.clamp(1, WINDOW_MAX);
        // The numbers differ between the connections of an adapter, and between adapters.
        let seed = cfg.sq_psn.value() ^ cfg.peer_qpn.rotate_left(8);
        let start = Cursor { at, index: 0, psn: cfg.sq_psn };
        Requester {
            oldest: start,
            last_message: start.psn.previous(),
            next: start,
            first_unsent: start.psn,
            awaited: VecDeque::new(),
            awaited_before_next: 0,
            initiator_depth: cfg.initiator_depth as usize,
            early_responses: 0,
            requests_missing: false,
            repair: None,
            packets_since_ack_request: 0,
            failed_request: None,
            rnr_wait: None,
            rnr_retries: cfg.rnr_retries,
            rnr_retries_left: cfg.rnr_retries,
            receiver_stall: None,
            requests_max: usize::MAX,
            congestion: Cubic::new(cfg.mtu, cfg.ip_mtu, window),
            timer: RetransmissionTimer::new(cfg.ack_timeout, cfg.retries, seed, now),
            loss: None,
            resume: None,
            sent_again: None,
            peer_keeps: PeerKeeps::Unknown,
            recovery: None,
            missing: (0, cfg.sq_psn),
            repeated: (cfg.sq_psn, cfg.sq_psn),
            peer_close: PeerClose::Open,
            challenge: None,
            challenge_answered_at: None,
        }
    }

    /// The next step that the requester may take, if any.
    #[inline]
    pub(super) fn next_step(&self, work: &Work, mtu: PathMtu) -> Option<Step> {
        if self.rnr_wait.is_some() || !self.may_send() {
            return None;
        }
        let (wqe, _) = work.request(self.next.at)?;
        let requests = self.next.at.wrapping_sub(self.oldest.at);
        if requests > 0 && requests >= self.requests_max {
            return None;
        }
        let alone = self.oldest.at == self.next.at;
        if self.failed_request.is_some_and(|(at, _)| at == self.next.at) {
            return alone.then_some(Step::Fail);
        }
        let starts = self.next.index == 0;
        if starts && wqe.flags & qp::FENCE != 0 && self.awaited_before_next > 0 {
            return None;
        }
        match wqe.op {
            WcOp::Bind => alone.then_some(Step::Bind),
            op if op.awaits_response() && self.awaited_before_next >= self.initiator_depth => None,
            WcOp::Read => self.next_read(wqe, mtu).map(Step::Read),
            WcOp::FetchAdd | WcOp::CompareSwap => Some(Step::Atomic),
            WcOp::Send | WcOp::Write | WcOp::WriteImm | WcOp::Recv | WcOp::RecvMessageImm => {
                Some(Step::Message)
            }
        }
    }

    /// Whether the next packet may be sent: the window is open, and the peer accepts the packet or
    /// may have accepted it already.
    #[inline]
    pub(super) fn may_send(&self) -> bool {
        let may_be_taken = self.peer_close == PeerClose::Open || self.is_repeating();
        may_be_taken && self.has_room() && self.congestion.blocked_until().is_none()
    }

    /// Whether the window has room for the next packet.
    #[inline]
    fn has_room(&self) -> bool {
        self.unanswered() < self.congestion.window()
            || self
                .recovery
                .as_ref()
                .is_some_and(|recovery| recovery.permits(self.oldest, self.next.psn))
    }

    /// Records that time has passed, which may permit more packets.
    #[inline]
    pub(super) fn advance(&mut self, now: Instant) {
        self.congestion.advance(now);
        if let Some(recovery) = &mut self.recovery {
            recovery.advance(self.next.psn, self.congestion.window(), now);
        }
    }

    /// Whether the requester can take a step.
    #[inline]
    pub(super) fn is_ready(&self, work: &Work, mtu: PathMtu) -> bool {
        self.requests_missing || self.next_step(work, mtu).is_some()
    }

    /// Whether the next packet has been sent before.
    #[inline]
    pub(super) fn is_repeating(&self) -> bool {
        self.next.psn.is_before(self.first_unsent)
    }

    /// The number of PSNs between the cursors `oldest` and `next`.
    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        self.next.psn.distance(self.oldest.psn) as u32
    }

    /// The number of PSNs in flight, without those of responses that came early.
    #[inline]
    pub(super) fn unanswered(&self) -> u32 {
        match self.early_responses {
            0 => self.in_flight(),
            early => self.in_flight().saturating_sub(early.count_ones()),
        }
    }

    /// Whether a PSN has been sent and is not acknowledged.
    #[inline]
    pub(super) fn is_unacknowledged(&self, psn: Psn) -> bool {
        psn.is_within(self.oldest.psn, self.first_unsent.distance(self.oldest.psn) as u32)
    }

    /// Records that a packet or READ request has been sent. The packet uses `psns` PSNs of its
    /// request, which has `packets` packets in total.
    #[inline]
    pub(super) fn on_sent(
        &mut self,
        psns: u32,
        packets: u32,
        requests_ack: bool,
        now: Instant,
        stats: &mut Stats,
    ) {
        let psn = self.next.psn;
        let is_new = !psn.is_before(self.first_unsent);
        self.timer.on_sent(psn, is_new, requests_ack, now);
        self.next.step(psns, packets);
        self.congestion.on_sent(psns, self.in_flight(), now);
        if self.next.psn.is_after(self.first_unsent) {
            self.first_unsent = self.next.psn;
        }
        self.packets_since_ack_request =
            if requests_ack { 0 } else { self.packets_since_ack_request + 1 };
        if !is_new {
            stats.repeated += 1;
            self.count_sent_again();
        }
    }

    /// Records that a request for `psns` responses has been sent again, although it is not at
    /// `next`.
    pub(super) fn on_repeated(&mut self, psn: Psn, psns: u32, now: Instant, stats: &mut Stats) {
        self.timer.on_sent(psn, false, true, now);
        self.congestion.on_sent(psns, self.in_flight(), now);
        stats.repeated += 1;
    }

    /// Records that all packets before `until` are acknowledged. If one of these packets belongs to
    /// a READ or atomic operation whose response has not arrived, returns false and acknowledges
    /// only the requests before that operation.
    #[inline]
    pub(super) fn on_ack(
        &mut self,
        work: &mut Work,
        mtu: PathMtu,
        until: Psn,
        now: Instant,
    ) -> bool {
        let mut whole = true;
        let before = self.oldest;
        loop {
            let more = until.distance(self.oldest.psn);
            if more <= 0 {
                break;
            }
            let Some((wqe, _)) =
                work.request(self.oldest.at).filter(|(wqe, _)| !wqe.op.awaits_response())
            else {
                whole = false;
                break;
            };
            let packets = packets(wqe, mtu);
            let left = packets - self.oldest.index;
            if left <= more as u32 {
                work.done(self.oldest.at);
            }
            self.oldest.step(left.min(more as u32), packets);
        }
        if self.oldest.psn != before.psn {
            self.last_message = self.oldest.psn.previous();
            self.on_progress(before, now);
        }
        whole
    }

    /// The PSN of the latest packet of a SEND or WRITE that is acknowledged. If very many PSNs of
    /// READs follow it, returns the PSN before the oldest unacknowledged one.
    pub(super) fn last_acknowledged(&self) -> Psn {
        let before_oldest = self.oldest.psn.previous();
        match before_oldest.distance(self.last_message) {
            0..LAST_MESSAGE_DISTANCE_MAX => self.last_message,
            _ => before_oldest,
        }
    }

    /// Whether an acknowledgement of this PSN repeats the last one. Responders repeat the PSN of
    /// the last SEND or WRITE, or that of the last request of any kind.
    pub(super) fn repeats_last(&self, psn: Psn) -> bool {
        psn == self.last_acknowledged() || psn == self.oldest.psn.previous()
    }

    /// Records that the cursor `oldest` has advanced. It was at `before`.
    #[inline]
    pub(super) fn on_progress(&mut self, before: Cursor, now: Instant) {
        let packets = self.oldest.psn.distance(before.psn) as u32;
        let is_last = self.oldest.psn == self.first_unsent;
        if self.oldest.psn.is_after(self.next.psn) {
            // Packets that were to be sent again have been acknowledged. If the peer had reported a
            // missing packet, it has kept them. After a probe, the acknowledgement may be late.
            if self.loss.is_some() && self.resume.is_none() && !self.timer.has_probed() {
                self.peer_keeps = PeerKeeps::Yes;
            }
            let resume = self.resume.take().map(|resume| resume.at);
            let at = resume.filter(|at| at.psn.is_after(self.oldest.psn)).unwrap_or(self.oldest);
            self.continue_at(at);
            if is_last {
                self.congestion.on_late_ack();
            }
        }
        while self.awaited.pop_front_if(|part| !part.end.is_after(self.oldest.psn)).is_some() {
            self.awaited_before_next = self.awaited_before_next.saturating_sub(1);
        }
        (self.rnr_wait, self.rnr_retries_left, self.loss) = (None, self.rnr_retries, None);
        self.receiver_stall = None;
        self.recovery.take_if(|recovery| recovery.is_done(self.oldest.psn));
        let completed = self.oldest.at.wrapping_sub(before.at);
        self.requests_max = self.requests_max.saturating_add(completed);
        let round_trip = self.timer.on_ack(self.oldest.psn, is_last, now);
        let smoothed = self.timer.round_trip();
        let (oldest, in_flight) = (self.oldest.psn, self.in_flight());
        let ack = Acknowledged { psns: packets, in_flight, oldest, is_last, round_trip, smoothed };
        self.congestion.on_ack(&ack, now);
        self.advance(now);
        if self.sent_again.is_some() {
            self.learn_whether_peer_keeps(now);
        }
    }

    /// Counts a packet that has been sent again. Continues at `resume` if it was the last one.
    #[cold]
    fn count_sent_again(&mut self) {
        if let Some(Resume { at, after }) = &mut self.resume {
            *after -= 1;
            let is_reached = !at.psn.is_after(self.next.psn);
            if *after == 0 || is_reached {
                let at = if is_reached { self.next } else { *at };
                self.resume = None;
                self.continue_at(at);
            }
        }
    }

    /// Continues at a later packet.
    fn continue_at(&mut self, at: Cursor) {
        self.next = at;
        let is_before = |part: &&AwaitedResponses| !part.end.is_after(at.psn);
        self.awaited_before_next = self.awaited.iter().take_while(is_before).count();
    }

    /// Learns from an acknowledgement after packets were sent again.
    #[cold]
    fn learn_whether_peer_keeps(&mut self, now: Instant) {
        let Some(SentAgain { until, end, at, .. }) = self.sent_again else { return };
        let acknowledged = self.oldest.psn;
        if now < at + self.congestion.shortest_round_trip().unwrap_or_default() {
            // The acknowledgement cannot answer the repeated packet yet, so the packet was only
            // late.
            self.congestion.on_late_ack();
            if end.psn.is_after(self.next.psn) {
                self.resume = None;
                self.continue_at(end);
            }
        }
        if acknowledged.is_after(until) {
            (self.peer_keeps, self.sent_again) = (PeerKeeps::Yes, None);
        } else if end.psn.is_after(acknowledged) && self.peer_keeps == PeerKeeps::Unknown {
            // The peer has dropped the packets after the lost one. It has sent a NAK for them if
            // others have arrived since. The requester does not react to that NAK again.
            self.peer_keeps = PeerKeeps::No;
            self.loss = Some(Loss { psn: acknowledged, detected_by: acknowledged, at: now });
            self.go_back();
        }
    }

    /// Handles a NAK that reports the oldest packet as missing: sends this packet again, and all
    /// later packets unless the peer keeps them.
    pub(super) fn on_sequence_nak(&mut self, work: &Work, mtu: PathMtu, psn: Psn, now: Instant) {
        // A NAK for a packet that was sent again a moment ago refers to the first transmission. A
        // peer that keeps packets repeats the NAK if it does not; kernel rxe sends only one.
        if self.peer_keeps == PeerKeeps::Yes
            && self.was_repeated(psn)
            && self.timer.has_just_repeated(now)
        {
            return;
        }
        // If the NAK is for a later packet, a READ before it lacks a response.
        if self.oldest.psn != psn || self.peer_keeps == PeerKeeps::No {
            self.on_loss(psn, now);
        } else if self.is_new_loss(psn, now) {
            self.send_missing(work, mtu, now);
        }
    }

    /// Handles the loss of the oldest packet: sends this packet and all later packets again.
    /// `detected_by` is the PSN of the response that shows the loss, which answers this packet or a
    /// later packet.
    pub(super) fn on_loss(&mut self, detected_by: Psn, now: Instant) {
        if self.is_new_loss(detected_by, now) {
            self.go_back();
        }
    }

    /// Records a loss of the oldest packet. Returns false if the packets have already been sent
    /// again and the response refers to the first transmission.
    fn is_new_loss(&mut self, detected_by: Psn, now: Instant) -> bool {
        let psn = self.oldest.psn;
        if self.rnr_wait.is_some() {
            return false;
        }
        if let Some(loss) = self.loss.as_mut().filter(|loss| loss.psn == psn) {
            // Responses to the packets that were sent first have increasing PSNs. Responses to the
            // retransmitted packets start again at the beginning.
            let goes_on = detected_by.is_after(loss.detected_by);
            loss.detected_by = detected_by;
            if goes_on || now < loss.at + self.timer.min_response_time() || self.next == self.oldest
            {
                return false;
            }
        }
        self.loss = Some(Loss { psn, detected_by, at: now });
        self.congestion.on_loss(self.first_unsent);
        true
    }

    /// Sends the oldest packet again, and more packets if the flight lacks many.
    fn send_missing(&mut self, work: &Work, mtu: PathMtu, now: Instant) {
        let psn = self.oldest.psn;
        let awaits_response =
            work.request(self.oldest.at).is_some_and(|(wqe, _)| wqe.op.awaits_response());
        // A part of a READ that exceeds the window is repeated in pieces.
        let exceeds_window =
            |part: &AwaitedResponses| part.end.distance(psn) as u32 > self.congestion.window();
        if awaits_response
            && (self.peer_keeps == PeerKeeps::Unknown
                || self.awaited.front().is_some_and(exceeds_window))
        {
            return self.go_back();
        }
        let end = self.resume.map_or(self.next, |resume| resume.at);
        if !end.psn.is_after(psn) {
            return self.go_back();
        }
        let (missing, flight_end) = &mut self.missing;
        if !psn.is_before(*flight_end) {
            (*missing, *flight_end) = (0, self.first_unsent);
        }
        *missing += 1;
        let after = match self.sent_again.filter(|sent| sent.until == psn) {
            _ if awaits_response => 1,
            None => 1 << missing.saturating_sub(MISSING_SENT_ALONE).min(SENT_AGAIN_MAX.ilog2()),
            // Several packets in a row are missing, or the peer has stopped keeping packets.
            Some(sent) if sent.packets < SENT_AGAIN_MAX => (sent.packets * 4).min(SENT_AGAIN_MAX),
            Some(_) => {
                self.peer_keeps = PeerKeeps::No;
                return self.go_back();
            }
        };
        let at = self.first_not_kept(work, mtu, end);
        if at.psn.is_before(end.psn) {
            self.repeated = (at.psn, self.first_unsent);
            self.recovery = None;
        } else if self.peer_keeps == PeerKeeps::Yes && self.congestion.may_send_in_recovery() {
            self.start_recovery(now);
        }
        self.resume = Some(Resume { at, after });
        let sent = SentAgain { packets: after, until: psn + after, end, at: now };
        self.sent_again = (!awaits_response).then_some(sent);
        self.packets_since_ack_request = 0;
        self.continue_at(self.oldest);
        self.timer.discard_sample();
    }

    /// Permits new packets from now on, although a packet is missing, unless they already are.
    fn start_recovery(&mut self, now: Instant) {
        if let (None, Some(round_trip)) = (&self.recovery, self.timer.round_trip()) {
            // The peer has waited for a quarter of a round trip before it has sent the NAK, and
            // packets have left the network meanwhile.
            let start = now.checked_sub(round_trip / 4).unwrap_or(now);
            self.recovery = Some(Recovery::new(self.first_unsent, round_trip, start));
        }
    }

    /// Whether this packet has been sent again, together with the packets after it.
    fn was_repeated(&self, psn: Psn) -> bool {
        let (from, end) = self.repeated;
        !psn.is_before(from) && psn.is_before(end) && psn.is_before(self.next.psn)
    }

    /// The first packet that a peer has not kept after the oldest packet was lost, if `end` is the
    /// first packet that has not been sent. A peer like this implementation keeps packets up to a
    /// distance of [`EARLY_PSNS`].
    fn first_not_kept(&self, work: &Work, mtu: PathMtu, end: Cursor) -> Cursor {
        let psn = self.oldest.psn + EARLY_PSNS;
        let mut at = self.oldest;
        while at.psn.is_before(psn) {
            match work.request(at.at) {
                Some((wqe, _)) if at.psn.is_before(end.psn) && !wqe.op.awaits_response() => {
                    let packets = packets(wqe, mtu);
                    at.step((packets - at.index).min(psn.distance(at.psn) as u32), packets);
                }
                _ => return end,
            }
        }
        if at.psn.is_before(end.psn) { at } else { end }
    }

    /// Handles a congestion notification (IBA, annex A17.9.3).
    pub(super) fn on_congestion_notification(&mut self, stats: &mut Stats) {
        stats.rx_congestion_notifications += 1;
        self.on_mark();
    }

    /// Handles a congestion notification that may be forged.
    pub(super) fn on_unproven_notification(&mut self, stats: &mut Stats) {
        stats.rx_congestion_notifications += 1;
        if self.oldest.psn != self.first_unsent {
            self.congestion.on_unproven_mark(self.first_unsent);
        }
    }

    /// Records that a switch has marked a packet of a request, or a response that this side has
    /// asked for.
    pub(super) fn on_mark(&mut self) {
        if self.oldest.psn != self.first_unsent {
            self.congestion.on_mark(self.first_unsent);
        }
    }

    /// Waits because the peer has no receive buffer. Then sends one packet.
    pub(super) fn wait_for_receiver(&mut self, until: Instant) {
        self.go_back();
        self.rnr_wait = Some(until);
        self.requests_max = 0;
        self.congestion.on_receiver_not_ready();
    }

    /// Ends the wait for the peer's receive buffer.
    pub(super) fn end_receiver_wait(&mut self, now: Instant) {
        self.rnr_wait = None;
        self.timer.restart(now);
    }

    /// Counts an RNR NAK that asks for a wait of `time`. Returns false if there have been too many
    /// in a row. A responder may ask for a short time first and for longer times later. Therefore
    /// the retries are used up only when they would also be used up if each of them had lasted for
    /// the latest time.
    pub(super) fn count_rnr_nak(&mut self, time: Duration, now: Instant) -> bool {
        let stall = ReceiverStall { since: now, is_reported: false };
        let since = self.receiver_stall.get_or_insert(stall).since;
        if self.rnr_retries == RNR_RETRIES_INFINITE {
            return true;
        }
        let left = self.rnr_retries_left > 0;
        self.rnr_retries_left = self.rnr_retries_left.saturating_sub(1);
        left || now < since + time * self.rnr_retries.into()
    }

    /// Whether the peer has had no receive buffer for long. Returns true only once until a message
    /// has made progress.
    pub(super) fn take_receiver_stall(&mut self, now: Instant) -> bool {
        self.receiver_stall
            .as_mut()
            .filter(|stall| !stall.is_reported && now >= stall.since + RECEIVER_STALL_MIN)
            .map(|stall| stall.is_reported = true)
            .is_some()
    }

    /// Sends all unacknowledged packets again.
    pub(super) fn go_back(&mut self) {
        (self.next, self.packets_since_ack_request) = (self.oldest, 0);
        (self.requests_missing, self.repair) = (false, None);
        (self.resume, self.sent_again, self.recovery) = (None, None, None);
        self.repeated = (self.oldest.psn, self.first_unsent);
        self.awaited_before_next = 0;
        self.timer.discard_sample();
    }

    /// Records that the peer disconnects. Packets that may have arrived are sent again, but no new
    /// ones are sent.
    pub(super) fn start_peer_close(
        &mut self,
        work: &Work,
        mtu: PathMtu,
        now: Instant,
        stats: &mut Stats,
    ) {
        if self.peer_close != PeerClose::Open {
            return;
        }
        self.peer_close = PeerClose::Draining;
        self.challenge = None;
        self.timer.start_peer_close(now);
        if !self.is_peer_close_done(work, mtu) {
            stats.probes += 1;
            self.congestion.on_timeout(self.first_unsent);
            self.go_back();
        }
    }

    /// After [`start_peer_close`](Self::start_peer_close), whether all posted requests must fail:
    /// the peer has no receive buffer for the oldest request, part of that request was never sent,
    /// or the peer has been silent for too long.
    pub(super) fn is_peer_close_done(&self, work: &Work, mtu: PathMtu) -> bool {
        let all_sent = |(wqe, _): (&Wqe, _)| {
            let left = packets(wqe, mtu) - self.oldest.index;
            wqe.op != WcOp::Bind && !(self.oldest.psn + left).is_after(self.first_unsent)
        };
        match self.peer_close {
            PeerClose::Open => false,
            PeerClose::Draining => {
                self.rnr_wait.is_some() || !work.request(self.oldest.at).is_some_and(all_sent)
            }
            PeerClose::Done => true,
        }
    }

    /// The time for which the peer has not answered the packets in flight. If none is in flight,
    /// the time for which it has not answered the open challenge.
    pub(super) fn silent_for(&self, now: Instant) -> Option<Duration> {
        self.timer.silent_for(now).or_else(|| Some(self.challenge.as_ref()?.age(now)))
    }

    /// Records that the peer is alive although it does not answer.
    pub(super) fn note_peer_alive(&mut self, now: Instant) {
        self.timer.note_peer_alive(now);
        if let Some(challenge) = &mut self.challenge {
            challenge.note_peer_alive();
        }
    }

    /// The time at which [`expire`](Self::expire) is to be called: the next batch may leave, or
    /// something has not been answered.
    pub(super) fn deadline(&self, work: &Work) -> Option<Instant> {
        let requests = self.rnr_wait.or_else(|| {
            let more = match self.has_room() {
                true => self.congestion.blocked_until(),
                false => self
                    .recovery
                    .as_ref()
                    .and_then(|recovery| recovery.deadline(self.oldest, self.next.psn)),
            };
            let more = more.filter(|_| work.request(self.next.at).is_some());
            more.into_iter().chain(self.timer.deadline()).min()
        });
        match &self.challenge {
            None => requests,
            Some(challenge) => Some(requests.map_or(challenge.due(), |at| at.min(challenge.due()))),
        }
    }

    /// Handles deadlines that have passed.
    pub(super) fn expire(
        &mut self,
        work: &mut Work,
        now: Instant,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        if self.challenge.as_ref().is_some_and(|challenge| challenge.is_expired(now)) {
            return Err(Failure::Stale);
        }
        self.advance(now);
        if let Some(until) = self.rnr_wait {
            if now >= until {
                self.end_receiver_wait(now);
            }
            return Ok(());
        }
        match self.timer.expire(now) {
            None => return Ok(()),
            Some(TimerExpiry::PeerCloseTimedOut) => {
                self.peer_close = PeerClose::Done;
                return Ok(());
            }
            // A peer that disconnects will not answer any more, so the close is done.
            Some(TimerExpiry::Exhausted) if self.peer_close != PeerClose::Open => {
                self.peer_close = PeerClose::Done;
                return Ok(());
            }
            Some(TimerExpiry::Exhausted) => {
                work.fail(self.oldest.at, WcStatus::Transport);
                return Err(Failure::Silent);
            }
            Some(TimerExpiry::Probe) => stats.probes += 1,
            Some(TimerExpiry::Retry) => stats.timeouts += 1,
        }
        self.congestion.on_timeout(self.first_unsent);
        self.go_back();
        Ok(())
    }
}

/// The number of packets of a request, or of the response to a READ. The request uses one PSN for
/// each of them.
#[inline]
pub(super) fn packets(wqe: &Wqe, mtu: PathMtu) -> u32 {
    match wqe.op {
        WcOp::Bind => 0,
        WcOp::FetchAdd | WcOp::CompareSwap => 1,
        _ => mtu.packets(wqe.len),
    }
}
