//! The engine of an established connection, between a queue pair and packets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::rocev2::{Bth, Opcode, Packet, PathMtu, Psn};
use work::cause::Cause;

use super::ack_only::AckOnlyResponder;
use super::burst::Burst;
use super::notification::Notifier;
use super::path_check::{Oldest, PathCheck};
use super::reorder_buffer::EarlyPool;
use super::request_packets::OldestPacket;
use super::requester::Requester;
use super::responder::Responder;
use super::responder_resources::RepeatedRead;
use super::types::{Failure, Path, RcCfg, Stats};
use crate::qp::Work;
use crate::wr::{Arrival, OpSet, WcStatus};

/// The engine of a connection. It is used under the engine lock (see the crate's page).
///
/// ```text
/// on a packet:            rc.receive(now, &packet)?
/// on work, or after that: while rc.wants_tx() { rc.transmit(now, &mut burst)?; send }
/// when no packet is left: if rc.owes_ack() { rc.acknowledge(&mut burst); send }
/// at rc.deadline():       rc.expire(now)?
/// on Err(failure):        rc.transmit_fatal_nak(&mut burst); send; rc.flush(); tell the program
/// ```
///
/// [`acknowledge`](Self::acknowledge) is called last, so that an acknowledgement does not delay an
/// answer that the program sends. If it is owed when `transmit` adds packets, it leaves with these
/// packets. `transmit` adds an acknowledgement alone only if, since the last acknowledgement, many
/// packets have arrived or many acknowledgements were requested.
///
/// The methods are of four kinds, and stand in this order:
///
/// 1. Questions, which change nothing, take `&self` and are cheap.
/// 2. Events: [`receive`](Self::receive) and [`expire`](Self::expire). The questions may have
///    other answers afterwards.
/// 3. Packets: [`transmit`](Self::transmit) and all other methods that take a [`Burst`]. They add
///    what is due to the burst, as far as it fits.
/// 4. What the owner of the connection wants, or knows from elsewhere. None of these adds a packet;
///    the questions then say what to send.
///
/// `transmit` carries out a READ of the peer, because it creates the responses; `receive` carries
/// out all other requests. A caller that wants a READ to return the memory as it was before a later
/// request must therefore call `transmit` before it passes that request to `receive`.
///
/// A packet with a PSN that this end does not expect, or one that has been received before, changes
/// neither memory nor queues. After a failure, `receive`, `transmit` and `expire` return that
/// failure again.
pub struct ReliableConnection {
    work: Work,
    path: Path,
    requester: Requester,
    responder: Responder,
    path_check: PathCheck,
    notifier: Notifier,
    failure: Option<Failure>,
    stats: Stats,
}

impl ReliableConnection {
    /// The engine of a connection on which nothing has been sent or received yet.
    pub fn new(work: Work, cfg: RcCfg, now: Instant) -> Self {
        work.permit(OpSet::All);
        ReliableConnection {
            path: Path { mtu: cfg.mtu, peer_qpn: cfg.peer_qpn, p_key: cfg.p_key },
            requester: Requester::new(work.oldest_request(), &cfg, now),
            responder: Responder::new(&cfg),
            work,
            path_check: PathCheck::default(),
            notifier: Notifier::default(),
            failure: None,
            stats: Stats::default(),
        }
    }

    /// Keeps packets that arrive early in the memory of this pool, which belongs to the adapter.
    /// Without a pool they are dropped.
    pub fn with_early_pool(mut self, pool: &Arc<EarlyPool>) -> Self {
        self.responder.keep_early_in(pool);
        self
    }

    /// Switches the pacing off, because the peer is on the same host.
    pub fn disable_pacing(&mut self) {
        self.requester.disable_pacing();
    }

    /// Whether [`transmit`](Self::transmit) would add a packet or bind a memory window. This check
    /// is cheap.
    #[inline]
    pub fn wants_tx(&self) -> bool {
        let ReliableConnection { work, path, requester, responder, path_check, .. } = self;
        self.failure.is_none()
            && (responder.is_ready()
                || path_check.question_is_due()
                || !path_check.holds() && requester.is_ready(work, path.mtu))
    }

    /// Whether [`transmit_responses`](Self::transmit_responses) would add a packet. This check is
    /// cheap.
    #[inline]
    pub fn wants_to_respond(&self) -> bool {
        self.failure.is_none() && self.responder.is_ready()
    }

    /// Whether [`acknowledge`](Self::acknowledge) would add an acknowledgement.
    #[inline]
    pub fn owes_ack(&self) -> bool {
        self.failure.is_none() && self.responder.owes_ack()
    }

    /// Whether the peer may be sending a message again, and so cannot learn yet that all of the
    /// message has arrived.
    pub fn withholds_ack(&self) -> bool {
        self.failure.is_none() && self.responder.withholds_end()
    }

    /// The time at which [`expire`](Self::expire) is to be called: the pacing permits more packets,
    /// or something has not been answered. Any call may change this time, and it may be earlier
    /// than necessary.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        if self.failure.is_some() {
            return None;
        }
        let deadlines = [self.requester.deadline(&self.work), self.responder.deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Whether a graceful close can finish: no request is queued or in flight, and no response or
    /// acknowledgement is owed.
    pub fn is_drained(&self) -> bool {
        let all_answered = !self.responder.is_ready()
            && !self.responder.owes_ack()
            && !self.responder.withholds_end();
        !self.work.has_requests() && all_answered
    }

    /// Whether the last message of the peer has not arrived completely.
    #[inline]
    pub fn is_mid_message(&self) -> bool {
        self.responder.is_mid_message()
    }

    /// Whether the peer waits after an RNR NAK. When a receive is posted, call
    /// [`announce_receive`](Self::announce_receive).
    #[inline]
    pub fn is_peer_waiting_for_receive(&self) -> bool {
        self.failure.is_none() && self.responder.is_peer_waiting_for_receive()
    }

    /// After [`start_peer_close`](Self::start_peer_close), whether all requests that are still
    /// posted can only be flushed.
    pub fn is_peer_close_done(&self) -> bool {
        self.requester.is_peer_close_done(&self.work, self.path.mtu)
    }

    /// Whether the connection ends at the next ACK timeout if the peer does not answer before.
    pub fn is_last_retry(&self) -> bool {
        self.requester.is_last_retry()
    }

    /// The time for which the peer has not acknowledged anything new, if a packet is in flight.
    /// Otherwise, the time for which a [challenge](Self::start_challenge) has not been answered, if
    /// one is open.
    pub fn silent_for(&self, now: Instant) -> Option<Duration> {
        self.requester.silent_for(now)
    }

    /// Whether the PSN of a packet shows that the peer sent it: it is the PSN of the peer's next
    /// request, of a response to a request in flight, or of the answer that adapters give to a
    /// [challenge](Self::start_challenge). A sender that has not seen the connection's packets
    /// would have to guess the PSN.
    pub fn has_expected_psn(&self, packet: &Packet<'_>) -> bool {
        let (opcode, psn) = (packet.bth.opcode, packet.bth.psn);
        match opcode.is_response() {
            true => {
                self.requester.cursors().is_unacknowledged(psn)
                    || self.requester.is_challenge_answer(psn)
            }
            false => opcode.is_request() && self.responder.expects(psn),
        }
    }

    /// Whether this end may have sent a packet with this PSN that the peer has not acknowledged: a
    /// packet of a request in flight, or the [check packet](Self::check_path). A sender that has
    /// not seen the connection's packets would have to guess the PSN. For responses see
    /// [`take_repeated_read`](Self::take_repeated_read).
    pub fn may_have_sent(&self, psn: Psn) -> bool {
        self.requester.cursors().is_unacknowledged(psn) || self.is_path_check(psn)
    }

    /// Whether this is the PSN of a [check packet](Self::check_path) that has possibly not reached
    /// the peer.
    pub fn is_path_check(&self, psn: Psn) -> bool {
        self.path_check.is_check(psn)
    }

    /// The oldest packet for which this end waits. `None` if no request is posted.
    #[cold]
    pub fn oldest_packet(&self) -> Option<OldestPacket> {
        self.requester.oldest_packet(&self.work, self.path.mtu)
    }

    /// The path MTU of the connection.
    pub fn path_mtu(&self) -> PathMtu {
        self.path.mtu
    }

    /// The half of the queue pair that completes work.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// The counters of this connection.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Processes a packet for this queue pair: places data and completes work. The caller has
    /// checked its ICRC and that it came from the peer's address. Responses wait for
    /// [`transmit`](Self::transmit) or [`acknowledge`](Self::acknowledge).
    #[inline]
    pub fn receive(&mut self, now: Instant, packet: &Packet<'_>) -> Result<(), Failure> {
        self.check_not_failed()?;
        if !Bth::same_partition(packet.bth.p_key, self.path.p_key) {
            return Ok(());
        }
        self.stats.rx_packets += 1;
        let opcode = packet.bth.opcode;
        let ReliableConnection { work, path, requester, responder, path_check, stats, .. } = self;
        let result = if opcode.is_response() {
            if path_check.is_answer(requester, packet) {
                return Ok(());
            }
            let before =
                path_check.is_active().then(|| Oldest::of(requester, work, path)).flatten();
            let result = requester.receive(work, path, now, packet, stats);
            path_check.note_response(before, requester, packet);
            stats.tx_messages += work.retire();
            result
        } else if opcode.is_request() {
            responder.receive(work, path, now, packet, stats)
        } else {
            if opcode == Opcode::CongestionNotification {
                requester.on_congestion_notification(stats);
            }
            // Other packets, such as those of UD and UC, are ignored.
            Ok(())
        };
        self.work.announce();
        result.map_err(|failure| self.fail(failure))
    }

    /// Processes a congestion notification (CNP) that came from the peer's address, but not from
    /// the port of its other packets, so that anyone may have sent it. Such notifications shrink
    /// the window once in a round trip, and never below the initial window. Other packets are
    /// ignored.
    #[cold]
    pub fn receive_unproven_notification(&mut self, packet: &Packet<'_>) {
        if self.failure.is_none()
            && packet.bth.opcode == Opcode::CongestionNotification
            && Bth::same_partition(packet.bth.p_key, self.path.p_key)
        {
            self.requester.on_unproven_notification(&mut self.stats);
        }
    }

    /// Handles deadlines that have passed. Packets to be sent again wait for
    /// [`transmit`](Self::transmit).
    pub fn expire(&mut self, now: Instant) -> Result<(), Failure> {
        self.check_not_failed()?;
        let ReliableConnection { work, path, requester, responder, path_check, stats, .. } = self;
        responder.expire(now, stats);
        let before = *stats;
        let mut result = requester.expire(work, now, stats);
        let timed_out = stats.timeouts > before.timeouts;
        if (timed_out || stats.probes > before.probes)
            && path_check.note_retransmission(Oldest::of(requester, work, path), timed_out)
        {
            requester.fail_oldest(work, WcStatus::Transport);
            result = Err(Failure::PathMtu);
        }
        result.map_err(|failure| self.fail(failure))
    }

    /// Adds the packets that may be sent now to a burst, until the burst or the window is full:
    /// first responses, then requests. Carries out binds of memory windows.
    pub fn transmit(&mut self, now: Instant, burst: &mut Burst) -> Result<(), Failure> {
        self.check_not_failed()?;
        let before = burst.len();
        let ReliableConnection { work, path, requester, responder, path_check, stats, .. } = self;
        path_check.send_question(path, requester.cursors().last_acknowledged(), burst);
        let mut result = Ok(());
        if responder.is_ready() {
            // A peer that reads all the time must leave some room in the burst for requests of this
            // end.
            let reserved = if requester.is_ready(work, path.mtu) { burst.room() / 4 } else { 0 };
            result = responder.transmit_and_resume(work, path, now, (burst, reserved), stats);
        }
        let result = result.and_then(|()| match path_check.holds() {
            false => requester.transmit(work, path, now, burst, stats),
            true => Ok(()),
        });
        if result.is_ok() && burst.len() > before {
            responder.acknowledge_with_packets(path, burst);
        }
        stats.tx_packets += (burst.len() - before) as u64;
        result.map_err(|failure| self.fail(failure))
    }

    /// Adds the responses that may be sent now, as [`transmit`](Self::transmit) does, but no
    /// requests.
    pub fn transmit_responses(&mut self, now: Instant, burst: &mut Burst) -> Result<(), Failure> {
        self.check_not_failed()?;
        let before = burst.len();
        let ReliableConnection { work, path, responder, stats, .. } = self;
        let result = responder.transmit_and_resume(work, path, now, (burst, 0), stats);
        stats.tx_packets += (burst.len() - before) as u64;
        result.map_err(|failure| self.fail(failure))
    }

    /// Adds the acknowledgement that is owed to the peer, if there is one. Adds none while
    /// responses to earlier READs are still to be sent, because they must come first.
    #[inline]
    pub fn acknowledge(&mut self, burst: &mut Burst) {
        if self.failure.is_none() && self.responder.acknowledge(&self.path, burst) {
            self.stats.tx_packets += 1;
        }
    }

    /// Adds the last acknowledgement before this end disconnects. A peer like kernel rxe flushes
    /// its requests as soon as it learns of the disconnect, also those that were carried out but
    /// whose acknowledgement was lost. So the acknowledgement is sent twice.
    pub fn acknowledge_finally(&mut self, burst: &mut Burst) {
        if self.failure.is_none() {
            let added = self.responder.acknowledge_finally(&self.path, burst);
            self.stats.tx_packets += added as u64;
        }
    }

    /// After a [`Failure`], adds the NAK that reports the failure to the peer, if there is one. The
    /// NAK is sent once, and only before [`flush`](Self::flush).
    pub fn transmit_fatal_nak(&mut self, burst: &mut Burst) {
        if self.failure.is_some() && self.responder.transmit_fatal_nak(&self.path, burst) {
            self.stats.tx_packets += 1;
        }
    }

    /// Records that a packet of the peer has arrived that a switch has marked (ECN, codepoint CE).
    /// If it is a response, this side asks for less. For other packets, adds a congestion
    /// notification (CNP) for the peer, at most one in 50 µs.
    pub fn note_marked(&mut self, opcode: Opcode, now: Instant, burst: &mut Burst) {
        if self.failure.is_some() {
            return;
        }
        if opcode.is_response() {
            return self.requester.on_mark();
        }
        let is_sent = self.notifier.note_marked(&self.path, now, burst);
        self.stats.tx_packets += u64::from(is_sent);
    }

    /// Adds a check packet: it has the full path MTU, and the peer acknowledges it but does not
    /// carry it out. If a router cannot forward the packet, this host learns so by ICMP. If the
    /// packet is lost, nothing happens.
    pub fn check_path(&mut self, burst: &mut Burst) {
        let ReliableConnection { path, requester, path_check, .. } = self;
        let is_sent = self.failure.is_none()
            && path_check.send_check(path, requester.cursors().last_acknowledged(), burst);
        self.stats.tx_packets += u64::from(is_sent);
    }

    /// Asks the peer whether it still has this connection, because a message claims that the peer's
    /// queue pair is in another connection. [`repeat_challenge`](Self::repeat_challenge) asks
    /// again. If the peer does not answer, [`expire`](Self::expire) fails with [`Failure::Stale`].
    pub fn start_challenge(&mut self, now: Instant, burst: &mut Burst) {
        if self.failure.is_none() {
            self.requester.start_challenge(now);
            self.repeat_challenge(now, burst);
        }
    }

    /// Adds the [challenge](Self::start_challenge) again if it is due. Call this at
    /// [`deadline`](Self::deadline). Returns whether the challenge was added.
    pub fn repeat_challenge(&mut self, now: Instant, burst: &mut Burst) -> bool {
        let is_sent =
            self.failure.is_none() && self.requester.send_challenge(&self.path, now, burst);
        self.stats.tx_packets += u64::from(is_sent);
        is_sent
    }

    /// Returns a message for which there was no receive. Returns each such message only once, when
    /// the first RNR NAK for it is due.
    pub fn take_rnr_arrival(&mut self) -> Option<Arrival> {
        self.responder.take_rnr_arrival()
    }

    /// Returns the READ whose responses the peer has requested again since the last call, although
    /// they had been sent.
    #[inline]
    pub fn take_repeated_read(&mut self) -> Option<RepeatedRead> {
        self.responder.take_repeated_read()
    }

    /// Tells the peer that it need not wait any longer, because a receive has been posted.
    pub fn announce_receive(&mut self) {
        self.responder.announce_receive();
    }

    /// Starts the requester anew, with the parameters of `cfg` that concern it. Until now this end
    /// has only responded: its requester has sent nothing, because only
    /// [`transmit_responses`](Self::transmit_responses) was called.
    pub fn start_requester(&mut self, cfg: &RcCfg, now: Instant) {
        self.requester = Requester::new(self.work.oldest_request(), cfg, now);
    }

    /// Records that the peer is alive although it does not answer: its process is stopped, or the
    /// network is interrupted. For two ACK timeouts its silence does not break the connection,
    /// whatever the number of retries.
    pub fn note_peer_alive(&mut self, now: Instant) {
        self.requester.note_peer_alive(now);
    }

    /// Records that the peer disconnects. The peer accepts no new requests, but it may have carried
    /// out requests whose acknowledgement was lost. When
    /// [`is_peer_close_done`](Self::is_peer_close_done) returns true, call [`flush`](Self::flush).
    /// Requests that were never sent stay unsent. Requests that have been sent are sent again until
    /// one of the following happens:
    ///
    /// - All requests in flight are acknowledged.
    /// - The peer has been silent for 50 ms, or for 16 round trips if that is longer.
    /// - 2 s have passed.
    /// - The retries are used up.
    pub fn start_peer_close(&mut self, now: Instant) {
        let ReliableConnection { work, path, requester, stats, .. } = self;
        requester.start_peer_close(work, path.mtu, now, stats);
    }

    /// Completes all posted work as flushed. Call this again for work that is posted later. From
    /// now on no packet is sent or received.
    pub fn flush(&mut self) {
        self.failure.get_or_insert(Failure::Flushed);
        self.responder.clear_pending();
        self.work.flush();
    }

    /// Ends the engine. Posted work that has not completed stays in the queues until
    /// [`Work::flush`].
    pub fn into_work(self) -> Work {
        self.work
    }

    /// Ends the engine and completes all posted work as flushed. The returned responder repeats
    /// acknowledgements and responses when the peer asks for them again.
    pub fn into_ack_only_responder(self) -> AckOnlyResponder {
        AckOnlyResponder::new(self.work, self.path, self.responder)
    }

    /// Ends slow start: opens the congestion window as far as the configuration permits.
    #[cfg(test)]
    pub(crate) fn open_window(&mut self) {
        self.requester.open_window();
    }

    #[inline]
    fn check_not_failed(&self) -> Result<(), Failure> {
        match self.failure {
            None => Ok(()),
            Some(failure) => Err(failure),
        }
    }

    #[cold]
    fn fail(&mut self, failure: Failure) -> Failure {
        // Other causes have been reported where they were found.
        match failure {
            Failure::Silent => self.work.report(Cause::Silent),
            Failure::Stale => self.work.report(Cause::Forgotten),
            Failure::Refusing(_) | Failure::BadResponse => {
                self.work.report(Cause::Protocol { by_peer: false, what: failure.to_string() });
            }
            _ => {}
        }
        self.failure = Some(failure);
        failure
    }
}
