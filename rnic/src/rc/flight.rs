//! The packets in flight: which of them are acknowledged, which are lost, and what may be sent.
//!
//! No copies of packets in flight are kept, because a packet can be created again from its request.
//! A loss only sets the cursor `next` back (go-back-N). The PSNs of a READ's responses count like
//! sent packets.
//!
//! A peer may keep the packets after a lost one. Then only the lost packet is sent again, and
//! `next` continues where it was. Nothing on the wire says what a peer does. After the first loss,
//! only the lost packet is sent again. The acknowledgement that answers it shows whether the peer
//! has kept the packets after it. A NAK names only the first missing packet. If several packets in
//! flight are missing, each of them costs a round trip. So from the fourth one on, more packets
//! are sent again for each NAK, up to 16.

use std::time::Instant;

use wire::rocev2::{PathMtu, Psn};

use super::congestion::{Acknowledged, CongestionControl, Cubic};
use super::cursors::Cursors;
use super::read_requests::ReadRequests;
use super::receiver_wait::ReceiverWait;
use super::recovery::Recovery;
use super::reorder_buffer::EARLY_PSNS;
use super::request_packets::{Cursor, packets};
use super::retransmission::RetransmissionTimer;
use super::types::{RcCfg, Stats};
use crate::qp::Work;
use crate::wqe::Wqe;

/// The maximum number of PSNs in flight. It is far below the number at which PSNs wrap.
const WINDOW_MAX: u32 = 1 << 20;
/// The number of missing packets of a flight that are sent again alone.
const MISSING_SENT_ALONE: u32 = 3;
/// The maximum number of packets that are sent again for one NAK.
const SENT_AGAIN_MAX: u32 = 16;
/// In a sequence of this many packets, at least one requests an acknowledgement.
const ACK_REQUEST_INTERVAL_PACKETS: u32 = 64;

/// The packets in flight, and all that decides when packets are sent.
///
/// The methods are of four kinds, and stand in this order:
///
/// 1. Questions, which change nothing.
/// 2. What was sent: [`on_sent`](Self::on_sent) and the methods after it. The caller has put the
///    packet into a burst.
/// 3. What the peer has answered: [`on_ack`](Self::on_ack) and the methods after it. They move
///    `oldest`, and set `next` back after a loss.
/// 4. Time: [`advance`](Self::advance) and [`on_timeout`](Self::on_timeout). `advance` comes before
///    the questions, because it permits packets.
///
/// [`Cursors`] says which of these events moves which cursor.
pub(super) struct Flight {
    cursors: Cursors,
    reads: ReadRequests,
    receiver: ReceiverWait,
    congestion: Cubic,
    timer: RetransmissionTimer,
    /// The number of packets sent since the last packet that requested an acknowledgement.
    packets_since_ack_request: u32,
    loss: Option<Loss>,
    /// The packets that were last sent again.
    sent_again: Option<SentAgain>,
    peer_keeps: PeerKeeps,
    /// If set, the peer keeps packets after a missing one, and new packets are sent meanwhile.
    recovery: Option<Recovery>,
    /// How many packets of the current flight the peer has reported as missing, if it keeps
    /// packets; and the PSN after the flight.
    missing: (u32, Psn),
    /// The range of packets that were sent again when the requester last went back: the first PSN,
    /// and the PSN after the last one.
    last_go_back: (Psn, Psn),
}

/// The last retransmission that was caused by a lost packet.
struct Loss {
    /// The PSN of the lost packet.
    psn: Psn,
    /// The PSN of the last answer that showed the loss.
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

impl Flight {
    /// The flight of a connection on which nothing has been sent. `at` is the position of the
    /// oldest request in the send queue.
    pub(super) fn new(at: usize, cfg: &RcCfg, now: Instant) -> Self {
        let window = cfg.window.clamp(1, WINDOW_MAX);
        // The numbers differ between the connections of an adapter, and between adapters.
        let seed = cfg.sq_psn.value() ^ cfg.peer_qpn.rotate_left(8);
        Flight {
            cursors: Cursors::new(Cursor { at, index: 0, psn: cfg.sq_psn }),
            reads: ReadRequests::new(cfg.initiator_depth),
            receiver: ReceiverWait::new(cfg.rnr_retries),
            congestion: Cubic::new(cfg.mtu, cfg.ip_mtu, window),
            timer: RetransmissionTimer::new(cfg.ack_timeout, cfg.retries, seed, now),
            packets_since_ack_request: 0,
            loss: None,
            sent_again: None,
            peer_keeps: PeerKeeps::Unknown,
            recovery: None,
            missing: (0, cfg.sq_psn),
            last_go_back: (cfg.sq_psn, cfg.sq_psn),
        }
    }

    /// Switches the pacing off.
    pub(super) fn disable_pacing(&mut self) {
        self.congestion.disable_pacing();
    }

    /// Opens the congestion window to its maximum.
    #[cfg(test)]
    pub(super) fn open_window(&mut self) {
        self.congestion.open();
    }

    /// The places up to which packets are acknowledged and sent.
    #[inline]
    pub(super) fn cursors(&self) -> &Cursors {
        &self.cursors
    }

    /// The READs and atomic operations that await responses.
    #[inline]
    pub(super) fn reads(&self) -> &ReadRequests {
        &self.reads
    }

    /// The wait for a receive buffer of the peer.
    #[inline]
    pub(super) fn receiver_wait(&self) -> &ReceiverWait {
        &self.receiver
    }

    /// The wait for a receive buffer of the peer, to count RNR NAKs.
    pub(super) fn receiver_wait_mut(&mut self) -> &mut ReceiverWait {
        &mut self.receiver
    }

    /// The retransmission timer.
    pub(super) fn timer(&self) -> &RetransmissionTimer {
        &self.timer
    }

    /// The retransmission timer, for events that are no packets.
    pub(super) fn timer_mut(&mut self) -> &mut RetransmissionTimer {
        &mut self.timer
    }

    /// Whether the window and the pacing permit the next packet.
    #[inline]
    pub(super) fn permits_packet(&self) -> bool {
        self.has_room() && self.congestion.blocked_until().is_none()
    }

    /// Whether the window has room for the next packet.
    #[inline]
    fn has_room(&self) -> bool {
        self.reads.unanswered(self.cursors.in_flight()) < self.congestion.window()
            || self.recovery.as_ref().is_some_and(|recovery| {
                recovery.permits(self.cursors.oldest(), self.cursors.next().psn)
            })
    }

    /// Whether the next packet must request an acknowledgement although it does not end its
    /// message: no recent packet has requested one, the packet fills the window, or it is sent
    /// again alone.
    #[inline]
    pub(super) fn must_request_ack(&self) -> bool {
        let (window, packets_since_ack_request) =
            (self.congestion.window(), self.packets_since_ack_request + 1);
        packets_since_ack_request >= ACK_REQUEST_INTERVAL_PACKETS
            || packets_since_ack_request >= window / 4
            || self.cursors.in_flight() + 1 >= window
            || self.cursors.repeats_some()
    }

    /// The number of packets that the next request of a READ asks for. `None` if the window has no
    /// room for them yet.
    pub(super) fn next_part(&self, wqe: &Wqe, mtu: PathMtu) -> Option<u32> {
        self.reads.next_part(wqe, mtu, &self.cursors, self.congestion.window())
    }

    /// The time at which the wait for the receiver ends, more packets may leave, or something has
    /// not been answered.
    pub(super) fn deadline(&self, work: &Work) -> Option<Instant> {
        self.receiver.until().or_else(|| {
            let more = match self.has_room() {
                true => self.congestion.blocked_until(),
                false => self.recovery.as_ref().and_then(|recovery| {
                    recovery.deadline(self.cursors.oldest(), self.cursors.next().psn)
                }),
            };
            let more = more.filter(|_| work.request(self.cursors.next().at).is_some());
            more.into_iter().chain(self.timer.deadline()).min()
        })
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
        let (psn, is_new) = (self.cursors.next().psn, !self.cursors.is_repeating());
        self.timer.on_sent(psn, is_new, requests_ack, now);
        self.cursors.on_sent(psns, packets);
        self.congestion.on_sent(psns, self.cursors.in_flight(), now);
        self.packets_since_ack_request =
            if requests_ack { 0 } else { self.packets_since_ack_request + 1 };
        if !is_new {
            stats.sent_again += 1;
            self.on_sent_again();
        }
    }

    /// Counts a packet that has been sent again.
    #[cold]
    fn on_sent_again(&mut self) {
        if self.cursors.on_sent_again() {
            self.reads.on_jump(self.cursors.next().psn);
        }
    }

    /// Records that a READ request for `count` responses, or an atomic operation, has been sent.
    /// The READ has `packets` responses in total.
    pub(super) fn on_read_sent(
        &mut self,
        count: u32,
        packets: u32,
        now: Instant,
        stats: &mut Stats,
    ) {
        let start = self.cursors.next().psn;
        self.reads.on_sent(start, start + count);
        self.on_sent(count, packets, true, now, stats);
    }

    /// Takes the number of missing responses that are to be requested again now, from `oldest` on.
    pub(super) fn take_missing(&mut self, now: Instant) -> Option<u32> {
        self.reads.take_missing(self.cursors.oldest().psn, now)
    }

    /// Records that missing responses have been requested again, from `oldest` on.
    pub(super) fn on_missing_requested(&mut self, psns: u32, now: Instant, stats: &mut Stats) {
        self.timer.on_sent(self.cursors.oldest().psn, false, true, now);
        self.congestion.on_sent(psns, self.cursors.in_flight(), now);
        stats.sent_again += 1;
    }

    /// Records that the oldest request, which is also the next one, sends nothing and is done.
    pub(super) fn pass_local(&mut self) {
        self.cursors.pass_local();
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
        let before = self.cursors.oldest();
        loop {
            let oldest = self.cursors.oldest();
            let more = until.distance(oldest.psn);
            if more <= 0 {
                break;
            }
            let Some((wqe, _)) =
                work.request(oldest.at).filter(|(wqe, _)| !wqe.op.facts().awaits_response())
            else {
                whole = false;
                break;
            };
            let packets = packets(wqe, mtu);
            let left = packets - oldest.index;
            if left <= more as u32 {
                work.done(oldest.at);
            }
            self.cursors.acknowledge(left.min(more as u32), packets);
        }
        if self.cursors.oldest().psn != before.psn {
            self.cursors.note_message();
            self.on_progress(before, now);
        }
        whole
    }

    /// Records that the response with the PSN `oldest` has arrived. Responses that came early
    /// follow. The request has `packets` packets. Returns whether it is complete.
    #[inline]
    pub(super) fn on_response(&mut self, packets: u32, now: Instant) -> bool {
        let Flight { cursors, reads, timer, congestion, .. } = self;
        let before = cursors.oldest();
        // A late response shows that nothing was lost.
        if reads.on_response(cursors, packets, || timer.min_answer_time(), now) {
            congestion.on_late_ack();
        }
        let is_complete = cursors.oldest().at != before.at;
        self.on_progress(before, now);
        is_complete
    }

    /// Records that the response to the oldest request, an atomic operation, has arrived.
    pub(super) fn on_atomic_response(&mut self, now: Instant) {
        let before = self.cursors.oldest();
        self.cursors.acknowledge(1, 1);
        self.on_progress(before, now);
    }

    /// Records that a response has arrived although an earlier one is missing. Its PSN is `oldest`
    /// + `ahead`.
    pub(super) fn on_early_response(&mut self, ahead: u32, now: Instant) {
        self.reads.on_early(ahead);
        self.timer.on_early_response(now);
    }

    /// Records that the cursor `oldest` has advanced. It was at `before`.
    #[inline]
    fn on_progress(&mut self, before: Cursor, now: Instant) {
        let oldest = self.cursors.oldest();
        let packets = oldest.psn.distance(before.psn) as u32;
        let is_last = self.cursors.all_acknowledged();
        if self.cursors.is_overtaken() {
            // Packets that were to be sent again have been acknowledged. If the peer had reported a
            // missing packet, it has kept them. After a probe, the acknowledgement may be late.
            if self.loss.is_some() && !self.cursors.repeats_some() && !self.timer.has_probed() {
                self.peer_keeps = PeerKeeps::Yes;
            }
            self.cursors.catch_up();
            self.reads.on_jump(self.cursors.next().psn);
            if is_last {
                self.congestion.on_late_ack();
            }
        }
        self.reads.on_progress(oldest.psn);
        self.receiver.on_progress(oldest.at.wrapping_sub(before.at));
        self.loss = None;
        self.recovery.take_if(|recovery| recovery.is_done(oldest.psn));
        let round_trip = self.timer.on_ack(oldest.psn, is_last, now);
        let (smoothed, in_flight) = (self.timer.round_trip(), self.cursors.in_flight());
        let oldest = oldest.psn;
        let ack = Acknowledged { psns: packets, in_flight, oldest, is_last, round_trip, smoothed };
        self.congestion.on_ack(&ack, now);
        self.advance(now);
        if self.sent_again.is_some() {
            self.learn_whether_peer_keeps(now);
        }
    }

    /// Learns from an acknowledgement after packets were sent again.
    #[cold]
    fn learn_whether_peer_keeps(&mut self, now: Instant) {
        let Some(SentAgain { until, end, at, .. }) = self.sent_again else { return };
        let acknowledged = self.cursors.oldest().psn;
        if now < at + self.congestion.shortest_round_trip().unwrap_or_default() {
            // The acknowledgement cannot answer the repeated packet yet, so the packet was only
            // late.
            self.congestion.on_late_ack();
            if self.cursors.skip_to(end) {
                self.reads.on_jump(end.psn);
            }
        }
        if acknowledged.is_after(until) {
            (self.peer_keeps, self.sent_again) = (PeerKeeps::Yes, None);
        } else if end.psn.is_after(acknowledged) && self.peer_keeps == PeerKeeps::Unknown {
            // The peer has dropped the packets after the lost one, and they are sent again now. If
            // other packets have reached the peer since, it has also sent a NAK for the dropped
            // ones. `loss` makes the requester ignore that NAK.
            self.peer_keeps = PeerKeeps::No;
            self.loss = Some(Loss { psn: acknowledged, detected_by: acknowledged, at: now });
            self.go_back();
        }
    }

    /// Handles a NAK that reports the oldest packet as missing: sends this packet again, and all
    /// later packets unless the peer keeps them.
    pub(super) fn on_sequence_nak(&mut self, work: &Work, mtu: PathMtu, psn: Psn, now: Instant) {
        // A NAK for a packet that was sent again a moment ago refers to the first transmission, so
        // it is ignored. If the packet is lost again, a peer that keeps packets repeats the NAK.
        // (Kernel rxe keeps no packets and sends only one NAK, so its NAK is not ignored.)
        if self.peer_keeps == PeerKeeps::Yes
            && self.was_in_last_go_back(psn)
            && self.timer.has_just_repeated(now)
        {
            return;
        }
        // If the NAK is for a later packet, a READ before it lacks a response.
        if self.cursors.oldest().psn != psn || self.peer_keeps == PeerKeeps::No {
            self.on_loss(psn, now);
        } else if self.is_new_loss(psn, now) {
            self.send_missing(work, mtu, now);
        }
    }

    /// Handles the loss of the oldest packet: sends this packet and all later packets again.
    /// `detected_by` is the PSN of the answer that shows the loss, which answers this packet or a
    /// later packet.
    pub(super) fn on_loss(&mut self, detected_by: Psn, now: Instant) {
        if self.is_new_loss(detected_by, now) {
            self.go_back();
        }
    }

    /// Handles a gap in the responses of the oldest request, a READ: requests the missing responses
    /// again, once in a round trip. `detected_by` is the PSN of the response after the gap.
    pub(super) fn on_missing_response(&mut self, detected_by: Psn, now: Instant) {
        // After a timeout all responses are requested again anyway. If no response was kept, it is
        // unknown which ones are missing.
        if self.cursors.is_repeating() || !self.reads.has_early() {
            return self.on_loss(detected_by, now);
        }
        let round_trip = self.timer.round_trip().unwrap_or_default();
        if self.reads.on_missing(self.cursors.oldest().psn, round_trip, now) {
            self.congestion.on_loss(self.cursors.first_unsent());
            self.timer.discard_sample();
        }
    }

    /// Records a loss of the oldest packet. Returns false if nothing is to be sent again, because
    /// the requester waits for a receive buffer of the peer, or because the packets have already
    /// been sent again and the answer refers to the first transmission.
    fn is_new_loss(&mut self, detected_by: Psn, now: Instant) -> bool {
        let psn = self.cursors.oldest().psn;
        if self.receiver.until().is_some() {
            return false;
        }
        if let Some(loss) = self.loss.as_mut().filter(|loss| loss.psn == psn) {
            // Answers to the packets that were sent first have increasing PSNs. Answers to the
            // retransmitted packets start again at the beginning.
            let goes_on = detected_by.is_after(loss.detected_by);
            loss.detected_by = detected_by;
            if goes_on
                || now < loss.at + self.timer.min_answer_time()
                || self.cursors.next() == self.cursors.oldest()
            {
                return false;
            }
        }
        self.loss = Some(Loss { psn, detected_by, at: now });
        self.congestion.on_loss(self.cursors.first_unsent());
        true
    }

    /// Sends the oldest packet again, and more packets if the flight lacks many.
    fn send_missing(&mut self, work: &Work, mtu: PathMtu, now: Instant) {
        let Cursor { at, psn, .. } = self.cursors.oldest();
        let awaits_response =
            work.request(at).is_some_and(|(wqe, _)| wqe.op.facts().awaits_response());
        // A part of a READ that exceeds the window is repeated in pieces.
        if awaits_response
            && (self.peer_keeps == PeerKeeps::Unknown
                || self.reads.oldest_part_exceeds(self.congestion.window(), psn))
        {
            return self.go_back();
        }
        let end = self.cursors.end_of_sent();
        if !end.psn.is_after(psn) {
            return self.go_back();
        }
        let (missing, flight_end) = &mut self.missing;
        if !psn.is_before(*flight_end) {
            (*missing, *flight_end) = (0, self.cursors.first_unsent());
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
            self.last_go_back = (at.psn, self.cursors.first_unsent());
            self.recovery = None;
        } else if self.peer_keeps == PeerKeeps::Yes && self.congestion.may_send_in_recovery() {
            self.start_recovery(now);
        }
        let sent = SentAgain { packets: after, until: psn + after, end, at: now };
        self.sent_again = (!awaits_response).then_some(sent);
        self.packets_since_ack_request = 0;
        self.cursors.repeat(after, at);
        self.reads.on_jump(psn);
        self.timer.discard_sample();
    }

    /// Permits new packets from now on, although a packet is missing, unless they already are.
    fn start_recovery(&mut self, now: Instant) {
        if let (None, Some(round_trip)) = (&self.recovery, self.timer.round_trip()) {
            // The peer has waited for a quarter of a round trip before it has sent the NAK, and
            // packets have left the network meanwhile.
            let start = now.checked_sub(round_trip / 4).unwrap_or(now);
            self.recovery = Some(Recovery::new(self.cursors.first_unsent(), round_trip, start));
        }
    }

    /// Whether this packet has been sent again together with all packets after it.
    fn was_in_last_go_back(&self, psn: Psn) -> bool {
        let (from, end) = self.last_go_back;
        !psn.is_before(from) && psn.is_before(end) && psn.is_before(self.cursors.next().psn)
    }

    /// The first packet after the oldest one, which was lost, that the peer has not kept. `end` is
    /// the first packet that has not been sent; if the peer has kept all packets before it, returns
    /// `end`. A peer like this implementation keeps packets up to a distance of [`EARLY_PSNS`].
    fn first_not_kept(&self, work: &Work, mtu: PathMtu, end: Cursor) -> Cursor {
        let mut at = self.cursors.oldest();
        let psn = at.psn + EARLY_PSNS;
        while at.psn.is_before(psn) {
            match work.request(at.at) {
                Some((wqe, _))
                    if at.psn.is_before(end.psn) && !wqe.op.facts().awaits_response() =>
                {
                    let packets = packets(wqe, mtu);
                    at.step((packets - at.index).min(psn.distance(at.psn) as u32), packets);
                }
                _ => return end,
            }
        }
        if at.psn.is_before(end.psn) { at } else { end }
    }

    /// Records that a switch has marked a packet of a request, or a response that this side has
    /// asked for.
    pub(super) fn on_mark(&mut self) {
        if !self.cursors.all_acknowledged() {
            self.congestion.on_mark(self.cursors.first_unsent());
        }
    }

    /// Does the same as [`on_mark`](Self::on_mark) for a notification that may be forged.
    pub(super) fn on_unproven_mark(&mut self) {
        if !self.cursors.all_acknowledged() {
            self.congestion.on_unproven_mark(self.cursors.first_unsent());
        }
    }

    /// Waits because the peer has no receive buffer. Then sends one packet.
    pub(super) fn wait_for_receiver(&mut self, until: Instant) {
        self.go_back();
        self.receiver.start(until);
        self.congestion.on_receiver_not_ready();
    }

    /// Ends the wait for the peer's receive buffer.
    pub(super) fn end_receiver_wait(&mut self, now: Instant) {
        self.receiver.end();
        self.timer.restart(now);
    }

    /// Records that time has passed, which may permit more packets.
    #[inline]
    pub(super) fn advance(&mut self, now: Instant) {
        self.congestion.advance(now);
        if let Some(recovery) = &mut self.recovery {
            recovery.advance(self.cursors.next().psn, self.congestion.window(), now);
        }
    }

    /// Handles a peer that has not answered in time: sends all unacknowledged packets again.
    pub(super) fn on_timeout(&mut self) {
        self.congestion.on_timeout(self.cursors.first_unsent());
        self.go_back();
    }

    /// Sends all unacknowledged packets again.
    fn go_back(&mut self) {
        self.cursors.go_back();
        self.reads.on_go_back();
        self.packets_since_ack_request = 0;
        (self.sent_again, self.recovery) = (None, None);
        self.last_go_back = (self.cursors.oldest().psn, self.cursors.first_unsent());
        self.timer.discard_sample();
    }
}
