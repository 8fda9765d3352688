//! The requester, which sends the requests of the send queue and completes them when the peer has
//! answered (IBA, section 9.7.5).
//!
//! [`Flight`] knows which packets may be sent. The requester decides what the next packet is, puts
//! it into a burst, and passes the peer's responses to the flight and to memory.

use std::time::{Duration, Instant};

use wire::rocev2::{Extension, NakCode, Operation, Packet, PathMtu, Psn, RnrTimer, Syndrome};
use work::cause::{AccessKind, Cause, LocalUse, Octets};

use super::burst::Burst;
use super::challenge::Challenges;
use super::cursors::Cursors;
use super::flight::Flight;
use super::read_requests::EarlyResponses;
use super::request_packets::{
    OldestPacket, Request, packets, push_atomic, push_message, push_read,
};
use super::retransmission::TimerExpiry;
use super::types::{Failure, MAX_MESSAGE, Path, RcCfg, Stats};
use crate::cause::octets;
use crate::key::{KeyError, Right};
use crate::qp::Work;
use crate::wqe::Wqe;
use crate::wr::WcStatus;

/// The requester's state.
///
/// The methods are of four kinds, and stand in this order:
///
/// 1. Questions, which change nothing.
/// 2. [`transmit`](Self::transmit) sends what may be sent.
/// 3. [`receive`](Self::receive) processes responses. The methods whose names begin with `on_`
///    process other news from the network.
/// 4. [`expire`](Self::expire) is called at [`deadline`](Self::deadline). The methods after it are
///    what the owner of the connection wants or has learned elsewhere.
pub(super) struct Requester {
    flight: Flight,
    /// The position of a request that cannot be carried out, and its status. The request fails when
    /// all earlier requests are done.
    failed_request: Option<(usize, WcStatus)>,
    peer_close: PeerClose,
    challenges: Challenges,
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

/// The next step of the requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Send one or more packets of a SEND or WRITE.
    Message,
    /// Send a READ request for this number of packets.
    Read(u32),
    Atomic,
    /// Carry out a request that concerns only this side. All earlier requests are done.
    Local,
    /// Fail with [`Requester::failed_request`].
    Fail,
}

impl Requester {
    pub(super) fn new(at: usize, cfg: &RcCfg, now: Instant) -> Self {
        Requester {
            flight: Flight::new(at, cfg, now),
            failed_request: None,
            peer_close: PeerClose::Open,
            challenges: Challenges::default(),
        }
    }

    /// Switches the pacing off.
    pub(super) fn disable_pacing(&mut self) {
        self.flight.disable_pacing();
    }

    /// Opens the congestion window to its maximum.
    #[cfg(test)]
    pub(super) fn open_window(&mut self) {
        self.flight.open_window();
    }

    /// The places up to which packets are acknowledged and sent.
    #[inline]
    pub(super) fn cursors(&self) -> &Cursors {
        self.flight.cursors()
    }

    /// Whether the requester can take a step.
    #[inline]
    pub(super) fn is_ready(&self, work: &Work, mtu: PathMtu) -> bool {
        self.flight.reads().requests_missing() || self.next_step(work, mtu).is_some()
    }

    /// The next step that the requester may take, if any, and its request. A call would return them
    /// through memory, so the function is always inlined.
    #[inline(always)]
    fn next_step<'a>(&self, work: &'a Work, mtu: PathMtu) -> Option<(Step, Request<'a>)> {
        let (flight, reads) = (&self.flight, self.flight.reads());
        if flight.receiver_wait().until().is_some() || !self.may_send() {
            return None;
        }
        let (oldest, next) = (flight.cursors().oldest(), flight.cursors().next());
        let request = work.request(next.at)?;
        let (wqe, _) = request;
        if !flight.receiver_wait().permits_request(next.at.wrapping_sub(oldest.at)) {
            return None;
        }
        let alone = oldest.at == next.at;
        if self.failed_request.is_some_and(|(at, _)| at == next.at) {
            return alone.then_some((Step::Fail, request));
        }
        if next.index == 0 && wqe.has(Wqe::FENCE) && reads.is_any_awaited() {
            return None;
        }
        let facts = wqe.op.facts();
        let step = match facts.remote {
            _ if facts.awaits_response() && !reads.may_start() => None,
            Some(AccessKind::Read) => flight.next_part(wqe, mtu).map(Step::Read),
            Some(AccessKind::Atomic) => Some(Step::Atomic),
            _ if facts.is_local() => alone.then_some(Step::Local),
            _ => Some(Step::Message),
        };
        step.map(|step| (step, request))
    }

    /// Whether the next packet may be sent: the window is open, and the peer accepts the packet or
    /// may have accepted it already.
    #[inline]
    fn may_send(&self) -> bool {
        let may_be_taken = self.peer_close == PeerClose::Open || self.cursors().is_repeating();
        may_be_taken && self.flight.permits_packet()
    }

    /// The oldest packet that is not acknowledged, or the oldest response that has not arrived.
    pub(super) fn oldest_packet(&self, work: &Work, mtu: PathMtu) -> Option<OldestPacket> {
        OldestPacket::at(self.cursors().oldest(), work, mtu)
    }

    /// Whether a challenge has not been answered.
    pub(super) fn has_open_challenge(&self) -> bool {
        self.challenges.is_open()
    }

    /// Whether this is the PSN with which adapters answer the challenge. A stranger can hardly
    /// guess it. Kernel rxe may answer with another PSN, and such an answer does not count here.
    pub(super) fn is_challenge_answer(&self, psn: Psn) -> bool {
        self.challenges.is_open() && self.cursors().repeats_last(psn)
    }

    /// The time for which the peer has not answered the packets in flight. If none is in flight,
    /// the time for which it has not answered the open challenge.
    pub(super) fn silent_for(&self, now: Instant) -> Option<Duration> {
        self.flight.timer().silent_for(now).or_else(|| self.challenges.age(now))
    }

    /// Whether the connection ends at the next ACK timeout if the peer does not answer before.
    pub(super) fn is_last_retry(&self) -> bool {
        self.flight.timer().is_last_retry()
    }

    /// After [`start_peer_close`](Self::start_peer_close), whether all posted requests must fail:
    /// the peer has no receive buffer for the oldest request, part of that request was never sent,
    /// or the peer has been silent for too long.
    pub(super) fn is_peer_close_done(&self, work: &Work, mtu: PathMtu) -> bool {
        let (oldest, first_unsent) = (self.cursors().oldest(), self.cursors().first_unsent());
        let all_sent = |(wqe, _): (&Wqe, _)| {
            let left = packets(wqe, mtu) - oldest.index;
            !wqe.op.facts().is_local() && !(oldest.psn + left).is_after(first_unsent)
        };
        match self.peer_close {
            PeerClose::Open => false,
            PeerClose::Draining => {
                self.flight.receiver_wait().until().is_some()
                    || !work.request(oldest.at).is_some_and(all_sent)
            }
            PeerClose::Done => true,
        }
    }

    /// The time at which [`expire`](Self::expire) is to be called: the next batch may leave, or
    /// something has not been answered.
    pub(super) fn deadline(&self, work: &Work) -> Option<Instant> {
        let requests = self.flight.deadline(work);
        match self.challenges.deadline() {
            None => requests,
            Some(due) => Some(requests.map_or(due, |at| at.min(due))),
        }
    }

    /// Adds the packets that may be sent now to the burst.
    pub(super) fn transmit(
        &mut self,
        work: &mut Work,
        path: &Path,
        now: Instant,
        burst: &mut Burst,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        self.flight.advance(now);
        if self.flight.reads().requests_missing() && burst.room() > 0 {
            self.push_missing(work, path, now, burst, stats);
        }
        while burst.room() > 0 {
            let Some((step, request)) = self.next_step(work, path.mtu) else { break };
            let ((wqe, _), next) = (request, self.cursors().next());
            let done = match step {
                Step::Fail => return Err(self.fail(work)),
                _ if wqe.len > MAX_MESSAGE => Err(WcStatus::LocalLength),
                Step::Message => self.push_message(work, request, path, now, burst, stats),
                Step::Read(count) => {
                    let is_sent = push_read(wqe, next, count, path, burst);
                    if is_sent {
                        self.flight.on_read_sent(count, packets(wqe, path.mtu), now, stats);
                    }
                    Ok(is_sent)
                }
                Step::Atomic => {
                    let is_sent = push_atomic(wqe, next.psn, path, burst);
                    if is_sent {
                        self.flight.on_read_sent(1, 1, now, stats);
                    }
                    Ok(is_sent)
                }
                Step::Local => {
                    stats.tx_messages += work.carry_out_local(next.at).ok_or(Failure::Local)?;
                    self.flight.pass_local();
                    Ok(true)
                }
            };
            match done {
                Ok(true) => {}
                Ok(false) => break,
                // The request fails when all earlier ones are done, because the earlier ones may
                // still succeed.
                Err(status) => self.failed_request = Some((self.cursors().next().at, status)),
            }
        }
        Ok(())
    }

    /// Adds as many packets of a SEND or WRITE as possible. Returns false if the burst is full.
    #[inline]
    fn push_message(
        &mut self,
        work: &Work,
        request: Request<'_>,
        path: &Path,
        now: Instant,
        burst: &mut Burst,
        stats: &mut Stats,
    ) -> Result<bool, WcStatus> {
        let (at, packets) = (self.cursors().next().at, packets(request.0, path.mtu));
        while self.cursors().next().at == at && self.may_send() {
            let next = self.cursors().next();
            let requests_ack = next.index + 1 == packets || self.flight.must_request_ack();
            if !push_message(work, request, (next, packets), path, requests_ack, burst)? {
                return Ok(false);
            }
            self.flight.on_sent(1, packets, requests_ack, now, stats);
        }
        Ok(true)
    }

    /// Adds a READ request for the missing responses before the first early one.
    #[cold]
    fn push_missing(
        &mut self,
        work: &Work,
        path: &Path,
        now: Instant,
        burst: &mut Burst,
        stats: &mut Stats,
    ) {
        let (oldest, missing) = (self.cursors().oldest(), self.flight.take_missing(now));
        if let (Some((wqe, _)), Some(count)) = (work.request(oldest.at), missing)
            && push_read(wqe, oldest, count, path, burst)
        {
            self.flight.on_missing_requested(count, now, stats);
        }
    }

    #[cold]
    fn fail(&self, work: &mut Work) -> Failure {
        if let Some((at, status)) = self.failed_request {
            work.fail(at, status);
        }
        Failure::Local
    }

    /// Adds the open challenge to the burst if it is due. Returns whether it was added.
    pub(super) fn send_challenge(&mut self, path: &Path, now: Instant, burst: &mut Burst) -> bool {
        self.challenges.send(self.flight.cursors().last_acknowledged(), path, now, burst)
    }

    /// Processes a response. Ignores it if no request in flight matches it.
    #[inline]
    pub(super) fn receive(
        &mut self,
        work: &mut Work,
        path: &Path,
        now: Instant,
        packet: &Packet<'_>,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        let (psn, mtu) = (packet.bth.psn, path.mtu);
        let syndrome = match packet.extension {
            Extension::Aeth(aeth) | Extension::AtomicAck(aeth, _) => aeth.syndrome,
            _ => Syndrome::ACK,
        };
        if self.challenges.is_open()
            && self.challenges.take_answer(self.flight.cursors(), now, packet, syndrome)
        {
            return Ok(());
        }
        if !self.cursors().is_unacknowledged(psn) {
            let is_waiting = self.flight.receiver_wait().until().is_some();
            if is_waiting && self.repeats_last_ack(packet, syndrome) {
                self.flight.end_receiver_wait(now);
            } else {
                stats.unexpected += 1;
            }
            return Ok(());
        }
        match (packet.bth.opcode.operation(), syndrome) {
            (Operation::Acknowledge, Syndrome::Ack { .. }) => {
                if !self.flight.on_ack(work, mtu, psn.next(), now) {
                    self.flight.on_missing_response(psn, now);
                }
                Ok(())
            }
            (Operation::Acknowledge, Syndrome::Rnr(timer)) => {
                self.on_rnr_nak(work, mtu, psn, timer, now, stats)
            }
            (Operation::Acknowledge, Syndrome::Nak(NakCode::SequenceError)) => {
                stats.rx_sequence_naks += 1;
                // A READ before this PSN whose response is missing is sent again, too, because
                // retransmission starts at the oldest packet.
                self.flight.on_ack(work, mtu, psn, now);
                self.flight.on_sequence_nak(work, mtu, psn, now);
                Ok(())
            }
            (Operation::Acknowledge, Syndrome::Nak(code)) => {
                Err(self.on_fatal_nak(work, mtu, psn, code, now))
            }
            (Operation::ReadResponse, Syndrome::Ack { .. }) => {
                self.on_read_response(work, path, now, packet)
            }
            (Operation::AtomicAcknowledge, Syndrome::Ack { .. }) => {
                self.on_atomic_response(work, mtu, now, packet)
            }
            _ => Err(self.bad_response(work)),
        }
    }

    /// Whether this packet repeats the last acknowledgement of a SEND or WRITE. This
    /// implementation's responder sends such a packet after an RNR NAK, when a receive buffer has
    /// been posted. The packet may also have the PSN of a READ or an atomic operation after the
    /// message: a responder that no longer remembers such a request acknowledges it like a SEND or
    /// WRITE.
    fn repeats_last_ack(&self, packet: &Packet<'_>, syndrome: Syndrome) -> bool {
        let first = self.cursors().last_acknowledged();
        packet.bth.psn.is_within(first, self.cursors().oldest().psn.distance(first) as u32)
            && packet.bth.opcode.operation() == Operation::Acknowledge
            && matches!(syndrome, Syndrome::Ack { .. })
    }

    /// Handles an RNR NAK: the peer has no receive buffer for the message to which the packet
    /// belongs.
    fn on_rnr_nak(
        &mut self,
        work: &mut Work,
        mtu: PathMtu,
        psn: Psn,
        timer: RnrTimer,
        now: Instant,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        stats.rx_rnr_naks += 1;
        self.flight.on_ack(work, mtu, psn, now);
        if self.flight.receiver_wait().until().is_some() {
            // The RNR NAK is a copy of the one for which the requester already waits.
            return Ok(());
        }
        if !self.flight.receiver_wait_mut().count_nak(timer.duration(), now) {
            let at = self.request_position(work, mtu, psn);
            let octets = message_octets(work, at);
            work.report(Cause::PeerHasNoReceive { octets, waits: false });
            work.fail(at, WcStatus::ReceiverNotReady);
            return Err(Failure::ReceiverNotReady);
        }
        if self.flight.receiver_wait_mut().take_stall(now) {
            let octets = message_octets(work, self.request_position(work, mtu, psn));
            work.report(Cause::PeerHasNoReceive { octets, waits: true });
        }
        self.flight.wait_for_receiver(now + timer.duration());
        Ok(())
    }

    /// Handles a NAK that says that a request failed at the peer.
    #[cold]
    fn on_fatal_nak(
        &mut self,
        work: &mut Work,
        mtu: PathMtu,
        psn: Psn,
        code: NakCode,
        now: Instant,
    ) -> Failure {
        self.flight.on_ack(work, mtu, psn, now);
        let status = match code {
            NakCode::RemoteAccess => WcStatus::RemoteAccess,
            _ => WcStatus::RemoteResponder,
        };
        let at = self.request_position(work, mtu, psn);
        work.report(refused(code, work.request(at).map(|(wqe, _)| wqe)));
        work.fail(at, status);
        Failure::Refused(code)
    }

    #[inline]
    fn on_read_response(
        &mut self,
        work: &mut Work,
        path: &Path,
        now: Instant,
        packet: &Packet<'_>,
    ) -> Result<(), Failure> {
        let psn = packet.bth.psn;
        let is_oldest = self.flight.on_ack(work, path.mtu, psn, now);
        let oldest = self.cursors().oldest();
        let ahead = psn.distance(oldest.psn) as u32;
        let request = work.request(oldest.at).filter(|(wqe, _)| wqe.op.facts().is_read());
        let Some((wqe, segments)) = request else {
            if !is_oldest {
                self.flight.on_loss(psn, now);
                return Ok(());
            }
            return Err(self.bad_response(work));
        };
        let (index, packets) = (oldest.index + ahead, packets(wqe, path.mtu));
        if index >= packets || ahead >= EarlyResponses::BITS {
            self.flight.on_missing_response(psn, now);
            return Ok(());
        }
        let offset = index as usize * path.mtu.octets();
        // The packet need not be a FIRST packet, because after a loss a responder may either start
        // a new response or continue the old response.
        let fits = packet.payload.len() == (wqe.len as usize - offset).min(path.mtu.octets());
        let ends = packet.bth.opcode.position().ends();
        if !fits || is_oldest && !self.flight.reads().may_end(ends, oldest.psn) {
            return Err(self.bad_response(work));
        }
        let right = wqe.op.facts().local.into();
        if let Err(error) = work.scatter((work.scope(), right), segments, offset, packet.payload) {
            return Err(self.local_memory_gone(work, error));
        }
        if !is_oldest {
            self.flight.on_early_response(ahead, now);
            self.flight.on_missing_response(psn, now);
            return Ok(());
        }
        if self.flight.on_response(packets, now) {
            work.done(oldest.at);
        }
        if self.flight.reads().has_early() {
            self.flight.on_missing_response(psn, now);
        }
        Ok(())
    }

    fn on_atomic_response(
        &mut self,
        work: &mut Work,
        mtu: PathMtu,
        now: Instant,
        packet: &Packet<'_>,
    ) -> Result<(), Failure> {
        let psn = packet.bth.psn;
        if !self.flight.on_ack(work, mtu, psn, now) {
            self.flight.on_loss(psn, now);
            return Ok(());
        }
        let at = self.cursors().oldest().at;
        let request = work.request(at).filter(|(wqe, _)| wqe.op.facts().is_atomic());
        let (Some((_, segments)), Extension::AtomicAck(_, answer)) = (request, packet.extension)
        else {
            return Err(self.bad_response(work));
        };
        // The packet carries the value as a number. Memory holds it in the processor's byte order.
        let octets = answer.original.to_ne_bytes();
        if let Err(error) = work.scatter((work.scope(), Right::LocalWrite), segments, 0, &octets) {
            return Err(self.local_memory_gone(work, error));
        }
        work.done(at);
        self.flight.on_atomic_response(now);
        Ok(())
    }

    /// Ends the connection because the response to the oldest request does not match that request.
    #[cold]
    fn bad_response(&self, work: &mut Work) -> Failure {
        work.fail(self.cursors().oldest().at, WcStatus::BadResponse);
        Failure::BadResponse
    }

    /// Ends the connection because the local memory of the oldest request is no longer registered.
    #[cold]
    fn local_memory_gone(&self, work: &mut Work, error: KeyError) -> Failure {
        work.report_local(LocalUse::Sink, error);
        work.fail(self.cursors().oldest().at, WcStatus::LocalProtection);
        Failure::Local
    }

    /// The position of the request to which a packet in flight belongs.
    fn request_position(&self, work: &Work, mtu: PathMtu, psn: Psn) -> usize {
        let mut cursor = self.cursors().oldest();
        while let Some((wqe, _)) = work.request(cursor.at) {
            let packets = packets(wqe, mtu);
            let left = packets - cursor.index;
            if psn.is_within(cursor.psn, left) || left == 0 {
                break;
            }
            cursor.step(left, packets);
        }
        cursor.at
    }

    /// Handles a congestion notification (IBA, annex A17.9.3).
    pub(super) fn on_congestion_notification(&mut self, stats: &mut Stats) {
        stats.rx_congestion_notifications += 1;
        self.flight.on_mark();
    }

    /// Handles a congestion notification that may be forged.
    pub(super) fn on_unproven_notification(&mut self, stats: &mut Stats) {
        stats.rx_congestion_notifications += 1;
        self.flight.on_unproven_mark();
    }

    /// Records that a switch has marked a response.
    pub(super) fn on_mark(&mut self) {
        self.flight.on_mark();
    }

    /// Handles deadlines that have passed.
    pub(super) fn expire(
        &mut self,
        work: &mut Work,
        now: Instant,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        if self.challenges.is_expired(now) {
            return Err(Failure::Stale);
        }
        self.flight.advance(now);
        if let Some(until) = self.flight.receiver_wait().until() {
            if now >= until {
                self.flight.end_receiver_wait(now);
            }
            return Ok(());
        }
        match self.flight.timer_mut().expire(now) {
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
                self.fail_oldest(work, WcStatus::Transport);
                return Err(Failure::Silent);
            }
            Some(TimerExpiry::Probe) => stats.probes += 1,
            Some(TimerExpiry::Retry) => stats.timeouts += 1,
        }
        self.flight.on_timeout();
        Ok(())
    }

    /// Records that the oldest request has failed with this status.
    pub(super) fn fail_oldest(&self, work: &mut Work, status: WcStatus) {
        work.fail(self.cursors().oldest().at, status);
    }

    /// Starts a challenge. The challenge is repeated until the peer answers, at most as often as a
    /// request is repeated. A peer that has just answered a challenge is not challenged again
    /// within an ACK timeout.
    pub(super) fn start_challenge(&mut self, now: Instant) {
        self.challenges.start(self.flight.timer().timeout_and_retries(), now);
    }

    /// Records that the peer is alive although it does not answer.
    pub(super) fn note_peer_alive(&mut self, now: Instant) {
        self.flight.timer_mut().note_peer_alive(now);
        self.challenges.note_peer_alive();
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
        self.challenges.cancel();
        self.flight.timer_mut().start_peer_close(now);
        if !self.is_peer_close_done(work, mtu) {
            stats.probes += 1;
            self.flight.on_timeout();
        }
    }
}

/// The number of octets of the message that is at a position of the send queue.
fn message_octets(work: &Work, at: usize) -> Option<Octets> {
    work.request(at).map(|(wqe, _)| octets(wqe.len.into(), true))
}

/// The cause that a NAK of the peer names, if it refuses this request.
fn refused(code: NakCode, request: Option<&Wqe>) -> Cause {
    match (code, request) {
        (NakCode::RemoteAccess, request) => {
            Cause::RefusedByPeer { access: request.and_then(Wqe::access), why: None }
        }
        (NakCode::InvalidRequest, Some(wqe)) => {
            let facts = wqe.op.facts();
            let is_message = facts.takes_receive && !facts.is_write();
            Cause::InvalidAtPeer { is_message, octets: wqe.len }
        }
        (NakCode::RemoteOperational, _) => Cause::PeerFailed,
        (code, _) => Cause::Protocol { by_peer: true, what: code.to_string() },
    }
}
