//! The responder, which decides which packets of the peer are carried out and how they are answered
//! (IBA, section 9.7.5.1).
//!
//! A packet that arrives early, because an earlier packet is missing, is kept in the
//! [reorder buffer](super::reorder_buffer) until the missing packet arrives. The responder then
//! carries out both, in order. [`super::gap`] says when it sends a NAK for the missing packet.
//!
//! # Kernel rxe as the requester
//!
//! rxe (Linux 6.12) goes back to a lost packet and sends all later ones again. A peer counts as rxe
//! if the bit MigReq is 0 in its packets. Some properties of rxe decide how the responder answers:
//!
//! | property of rxe | what the responder does |
//! |---|---|
//! | It ignores each NAK after the first one until an acknowledgement of a PSN that is new to it arrives. With an ACK timeout of seconds it then stands still most of the time. | It sends an acknowledgement before each NAK (`push_nak`). |
//! | It completes a READ or an atomic operation without its data if an acknowledgement has the PSN of that request. | No acknowledgement ends with such a request (`acknowledged`). |
//! | It takes the next packet of a READ response for an error if an acknowledgement of an earlier packet arrives between the packets of the response. | It sends no acknowledgement that ends before a READ whose response has several packets (`acknowledged`). |
//! | It stops its timer, but does not complete a message, if the end is acknowledged while it sends the message again. If a second acknowledgement is lost, it waits forever. | It acknowledges the end when the end arrives again, or after a delay, and once more (`on_repeated`). |
//! | It flushes its requests as soon as the peer disconnects, also those that were carried out but whose acknowledgement was lost. | It sends the last acknowledgement twice before the DREQ (`acknowledge_finally`). |
//! | If a packet that it sends again is lost, too, it ignores the next NAK and waits until its ACK timeout expires. | It can do nothing: this makes rxe slow on lossy networks. |
//!
//! The crate `rxe-model` has these properties. `cargo test -p opendat-rnic --lib rxe_writes`
//! measures what they cost, and `cargo xtask guest --loss` measures it with rxe itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::rocev2::{
    Aeth, Extension, NakCode, Opcode, Operation, Packet, Position, Psn, RnrTimer, Syndrome,
};

use super::burst::Burst;
use super::execution::{Executed, Executor, NotExecuted};
use super::gap::{Gap, GapPolicy};
use super::reorder_buffer::{EARLY_PSNS, EarlyPackets, EarlyPool, Keeping};
use super::responder_resources::{ReadFailed, RepeatedRead, ResponderResources};
use super::types::{Failure, Path, RcCfg, Stats};
use crate::qp::Work;
use crate::wr::Arrival;

/// After this many packets that request an acknowledgement, the acknowledgement is sent at once.
const ACK_REQUESTS_MAX: u32 = 16;
/// After this many packets, a requested acknowledgement is sent at once.
const UNACKNOWLEDGED_PACKETS_MAX: u32 = 64;
/// The end of a message that the peer sends again is acknowledged when the end arrives again, or
/// when no packet of the message has arrived again for this time. After the same time it is
/// acknowledged once more.
const END_DELAY: Duration = Duration::from_millis(20);
/// The maximum time for which the end of a message is not acknowledged.
const END_DELAY_MAX: Duration = Duration::from_millis(200);
/// The code of the longest time in a repeated RNR NAK: 0.64 ms.
const RNR_TIMER_CODE_MAX: u8 = 12;

/// The responder's state.
///
/// The methods stand in this order: those that process the peer's packets, from
/// [`receive`](Self::receive) on; [`expire`](Self::expire), which is called at
/// [`deadline`](Self::deadline), and what it needs; and those that send, from
/// [`transmit`](Self::transmit) on. Questions stand beside the methods that act on the answer.
pub(super) struct Responder {
    /// The PSN of the next request packet.
    expected: Psn,
    executor: Executor,
    resources: ResponderResources,
    /// The memory for packets that arrive early. `None` means that none are kept.
    early_pool: Option<Arc<EarlyPool>>,
    /// The packets that arrived early. They are present only if there is a gap.
    early: Option<EarlyPackets>,
    /// The expected packet is missing, although later packets have arrived.
    gap: Option<Gap>,
    gap_policy: GapPolicy,
    /// A NAK that must be sent before any acknowledgement.
    nak: Option<Nak>,
    /// The number of packets that have requested an acknowledgement since the last acknowledgement
    /// was sent.
    ack_requests: u32,
    /// The number of packets received since the last acknowledgement.
    unacknowledged_packets: u32,
    /// If only repeated packets have requested the acknowledgement, the latest packet that it may
    /// acknowledge. See [`acknowledged`](Self::acknowledged).
    ack_limit: Option<Psn>,
    /// Whether the packet before `expected` is the last one of several packets of a message, and
    /// may have been sent by kernel rxe.
    is_after_end: bool,
    /// Whether the peer may be kernel rxe.
    may_be_rxe: bool,
    /// The [last](Self::last_message_packet) message, if it has several packets and the peer is
    /// sending it again. See [`on_repeated`](Self::on_repeated).
    repeated_message: Option<Box<RepeatedMessage>>,
    /// The time in the first RNR NAK for a packet.
    rnr_timer: RnrTimer,
    /// The time in the last RNR NAK.
    last_rnr_timer: RnrTimer,
    /// The PSN of the latest packet that found no receive buffer.
    last_rnr_psn: Option<Psn>,
    /// Whether an RNR NAK was the last answer, so that the peer waits before it sends again.
    is_peer_waiting: bool,
    /// The message that found no receive buffer, until [`take_rnr_arrival`](Self::take_rnr_arrival)
    /// returns it.
    rnr_arrival: Option<Arrival>,
}

/// A message that the peer is sending again although all of it has arrived.
struct RepeatedMessage {
    since: Instant,
    /// Whether the message's end has been acknowledged since the message arrived again.
    is_acknowledged: bool,
    /// The time of the next acknowledgement of the message's end.
    due: Instant,
}

#[derive(Clone, Copy)]
struct Nak {
    psn: Psn,
    syndrome: Syndrome,
}

impl Responder {
    pub(super) fn new(cfg: &RcCfg) -> Self {
        Responder {
            expected: cfg.rq_psn,
            executor: Executor::new(),
            resources: ResponderResources::new(cfg.responder_resources),
            early_pool: None,
            early: None,
            gap: None,
            gap_policy: GapPolicy::default(),
            nak: None,
            ack_requests: 0,
            unacknowledged_packets: 0,
            ack_limit: None,
            is_after_end: false,
            may_be_rxe: false,
            repeated_message: None,
            rnr_timer: cfg.rnr_timer,
            last_rnr_timer: cfg.rnr_timer,
            last_rnr_psn: None,
            is_peer_waiting: false,
            rnr_arrival: None,
        }
    }

    /// Keeps packets that arrive early in the memory of this pool.
    pub(super) fn keep_early_in(&mut self, pool: &Arc<EarlyPool>) {
        self.early_pool = Some(Arc::clone(pool));
    }

    /// Whether this is the PSN of the next request packet.
    pub(super) fn expects(&self, psn: Psn) -> bool {
        psn == self.expected
    }

    /// Whether the last message of the peer has not arrived completely.
    #[inline]
    pub(super) fn is_mid_message(&self) -> bool {
        self.executor.is_mid_message()
    }

    /// Processes a request packet.
    #[inline]
    pub(super) fn receive(
        &mut self,
        work: &mut Work,
        path: &Path,
        now: Instant,
        packet: &Packet<'_>,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        let psn = packet.bth.psn;
        match psn.distance(self.expected) {
            0 => match self.accept(work, path, now, packet, stats)? {
                Some(psns) if self.gap.is_some() => {
                    self.on_gap_closed(work, path, now, (psn, psns), stats)
                }
                _ => Ok(()),
            },
            ahead @ 1.. => {
                stats.out_of_order += 1;
                self.on_early(path, now, packet, ahead as u32, stats);
                Ok(())
            }
            _ => {
                stats.duplicates += 1;
                self.gap_policy.on_duplicate((psn, self.expected), self.gap.as_mut(), now);
                self.on_duplicate(path, packet);
                self.on_repeated(psn, now);
                Ok(())
            }
        }
    }

    /// Carries out the expected packet. Returns the number of PSNs that it uses, or `None` if it
    /// finds no receive buffer.
    #[inline]
    fn accept(
        &mut self,
        work: &mut Work,
        path: &Path,
        now: Instant,
        packet: &Packet<'_>,
        stats: &mut Stats,
    ) -> Result<Option<u32>, Failure> {
        let psn = packet.bth.psn;
        let resources = (&mut self.resources, self.is_after_end);
        match self.executor.execute(work, path, packet, resources, stats) {
            Ok(Executed { psns, requests_ack }) => {
                if requests_ack {
                    self.ack_requests += 1;
                    self.ack_limit = None;
                }
                self.expected = self.expected + psns;
                // Hardware adapters and this implementation set the bit MigReq, and kernel rxe does
                // not.
                self.may_be_rxe = !packet.bth.migrated;
                self.is_after_end =
                    packet.bth.opcode.position() == Position::Last && self.may_be_rxe;
                self.repeated_message = None;
                self.unacknowledged_packets += 1;
                Ok(Some(psns))
            }
            Err(NotExecuted::ReceiverNotReady) => {
                stats.tx_rnr_naks += 1;
                self.on_receiver_not_ready(packet);
                // The peer sends the packets after the refused one again. Those that are already
                // under way are dropped without a NAK.
                (self.gap, self.early) = (Some(Gap::refused(psn, now)), None);
                Ok(None)
            }
            Err(NotExecuted::Nak(code)) => Err(self.refuse(psn, code)),
        }
    }

    /// Refuses a packet because there is no receive buffer. The first wait is short, because a
    /// program often posts a receive soon. A peer that repeats the packet waits longer each time.
    #[cold]
    fn on_receiver_not_ready(&mut self, packet: &Packet<'_>) {
        let psn = packet.bth.psn;
        self.last_rnr_timer = match self.last_rnr_psn.replace(psn) == Some(psn) {
            true => longer(self.last_rnr_timer),
            false => {
                self.rnr_arrival = Some(self.executor.arrival(packet));
                self.rnr_timer
            }
        };
        self.nak = Some(Nak { psn, syndrome: Syndrome::Rnr(self.last_rnr_timer) });
        self.is_peer_waiting = true;
    }

    /// Whether the peer waits because it got an RNR NAK.
    #[inline]
    pub(super) fn is_peer_waiting_for_receive(&self) -> bool {
        self.is_peer_waiting && self.nak.is_none()
    }

    /// Tells the peer that there is a receive buffer now, by repeating the last acknowledgement of
    /// a SEND or WRITE. A requester of this implementation then sends again at once
    /// (`Requester::receive`). Other requesters ignore a duplicate acknowledgement (for kernel rxe
    /// see `check_psn` in `rxe_comp.c`), and send again when the time of the RNR NAK has passed.
    pub(super) fn announce_receive(&mut self) {
        (self.is_peer_waiting, self.ack_limit) = (false, None);
        self.ack_requests = self.ack_requests.max(ACK_REQUESTS_MAX);
    }

    /// Continues after a gap: the missing packet, which has this PSN and uses this number of PSNs,
    /// has been carried out.
    #[cold]
    fn on_gap_closed(
        &mut self,
        work: &mut Work,
        path: &Path,
        now: Instant,
        (psn, psns): (Psn, u32),
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        // No NAK for the missing packet is needed any more.
        (self.nak, self.is_peer_waiting) = (None, false);
        let Some(gap) = self.gap.take() else { return Ok(()) };
        self.gap_policy.on_closed(&gap, psn, self.early.is_some(), now);
        if let Some(early) = &mut self.early {
            early.advance(psns, now);
        }
        self.continue_after(work, path, now, &gap, stats)
    }

    /// Carries out the early packets that are expected now. `before` is the gap before them.
    fn continue_after(
        &mut self,
        work: &mut Work,
        path: &Path,
        now: Instant,
        before: &Gap,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        let (ack_requests, last) = (self.ack_requests, self.expected.previous());
        let result = self.execute_early(work, path, now, before, stats);
        if self.gap_policy.peer_may_go_back(before, self.may_be_rxe) {
            // After a NAK, the peer requests an acknowledgement again: in the missing packet, or in
            // the packets after it if it goes back. So the early packets need not cause one.
            self.ack_requests = ack_requests;
            if last != self.expected.previous() {
                self.on_repeated(last, now);
            }
        }
        result
    }

    /// Carries out the early packets that are expected now, in order, until one is missing or must
    /// wait.
    fn execute_early(
        &mut self,
        work: &mut Work,
        path: &Path,
        now: Instant,
        before: &Gap,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        let mut skips = false;
        if let Some(mut early) = self.early.take() {
            while let Some(packet) = early.next(self.expected) {
                // A READ before this packet must return the memory as it was before this packet.
                let is_read = packet.bth.opcode.operation() == Operation::ReadRequest;
                if self.resources.is_due() && !is_read {
                    (self.gap, self.early) = (Some(Gap::paused(before, now)), Some(early));
                    return Ok(());
                }
                match self.accept(work, path, now, &packet, stats)? {
                    Some(psns) => early.advance(psns, now),
                    None => return Ok(()),
                }
                skips = true;
            }
            self.early = Some(early).filter(|early| !early.is_empty());
        }
        self.gap = self.gap_policy.next_gap(before, self.expected, skips, now);
        self.expire(now, stats);
        Ok(())
    }

    /// Whether early packets wait until the responses to a READ are sent.
    #[inline]
    fn is_paused(&self) -> bool {
        self.gap.as_ref().is_some_and(Gap::is_paused)
    }

    /// Carries out early packets that had to wait until the responses to a READ were sent.
    fn resume(
        &mut self,
        work: &mut Work,
        path: &Path,
        now: Instant,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        match self.gap.take_if(|gap| gap.is_paused()) {
            Some(gap) => self.continue_after(work, path, now, &gap, stats),
            None => Ok(()),
        }
    }

    /// Takes the latest READ of which the peer has requested responses again, although at least one
    /// of them had been sent. Returns `None` until that happens again.
    #[inline]
    pub(super) fn take_repeated_read(&mut self) -> Option<RepeatedRead> {
        self.resources.take_repeated_read()
    }

    /// Returns a message that found no receive buffer. Returns each such message only once, after
    /// it was refused for the first time.
    pub(super) fn take_rnr_arrival(&mut self) -> Option<Arrival> {
        self.rnr_arrival.take()
    }

    /// Accepts no new requests from now on. Only [`receive_duplicate`](Self::receive_duplicate) may
    /// be called for packets.
    pub(super) fn stop_accepting(&mut self) {
        self.executor.forget_message();
        self.nak = None;
        (self.gap, self.early, self.repeated_message) = (None, None, None);
    }

    /// Processes a request packet if it was received before.
    pub(super) fn receive_duplicate(&mut self, path: &Path, packet: &Packet<'_>) {
        if packet.bth.psn.distance(self.expected) < 0 {
            self.on_duplicate(path, packet);
        }
    }

    /// Handles a packet that arrived although an earlier one is missing. Its PSN is `ahead` after
    /// the expected PSN.
    #[cold]
    fn on_early(
        &mut self,
        path: &Path,
        now: Instant,
        packet: &Packet<'_>,
        ahead: u32,
        stats: &mut Stats,
    ) {
        let keeping = match &self.gap {
            Some(gap) if gap.is_refused() => Keeping::Dropped,
            _ => self.keep(path, now, packet, ahead),
        };
        stats.kept += u64::from(keeping == Keeping::Kept);
        let is_due = self.gap_policy.on_early(&mut self.gap, (packet.bth.psn, ahead), keeping, now);
        // If another NAK has not been sent yet, it is for the same PSN, and may be an RNR NAK.
        if is_due && self.nak.is_none() {
            self.report_gap(now, stats);
        }
    }

    /// Keeps a packet, and takes memory for the purpose if it is the first one.
    fn keep(&mut self, path: &Path, now: Instant, packet: &Packet<'_>, ahead: u32) -> Keeping {
        if ahead < EARLY_PSNS && self.early.is_none() {
            let pool = self.early_pool.as_ref();
            self.early =
                pool.and_then(|pool| EarlyPackets::new(pool, path.mtu, self.expected, now));
        }
        self.early.as_mut().map_or(Keeping::Dropped, |early| early.keep(packet, ahead))
    }

    /// Schedules a NAK for the missing packet.
    fn report_gap(&mut self, now: Instant, stats: &mut Stats) {
        if let Some(gap) = &mut self.gap {
            self.gap_policy.on_reported(gap, now);
            stats.tx_sequence_naks += 1;
            let syndrome = Syndrome::Nak(NakCode::SequenceError);
            self.nak = Some(Nak { psn: self.expected, syndrome });
        }
    }

    /// The time at which to call [`expire`](Self::expire).
    #[inline]
    pub(super) fn deadline(&self) -> Option<Instant> {
        let end_due = self.repeated_message.as_ref().map(|message| message.due);
        let Some(gap) = &self.gap else { return end_due };
        let drop_at = self.early.as_ref().map(EarlyPackets::drop_at);
        [gap.nak_due(), drop_at, end_due].into_iter().flatten().min()
    }

    /// Handles a deadline that has passed.
    pub(super) fn expire(&mut self, now: Instant, stats: &mut Stats) {
        if self.gap.as_ref().and_then(Gap::nak_due).is_some_and(|due| due <= now) {
            self.report_gap(now, stats);
        }
        self.early.take_if(|early| early.drop_at() <= now);
        if let Some(message) = self.repeated_message.as_mut().filter(|message| message.due <= now) {
            self.ack_requests = self.ack_requests.max(ACK_REQUESTS_MAX);
            if std::mem::replace(&mut message.is_acknowledged, true) {
                self.repeated_message = None;
            } else {
                message.due = now + END_DELAY;
            }
        }
    }

    /// Decides when the end of the last message is acknowledged now that the peer has sent the
    /// packet with this PSN again. All packets before `expected` have arrived.
    ///
    /// Kernel rxe sends all packets from this packet on again. It must not get an acknowledgement
    /// of the end of a message while it is sending the message again: it would stop its timer, but
    /// it would not complete the message (`COMPST_WRITE_SEND`, `COMPST_UPDATE_COMP` and
    /// `reset_retry_timer` in rxe_comp.c). Then it waits for the acknowledgement of the repeated
    /// end, and if that is lost, it waits forever. So the end is acknowledged when it arrives
    /// again. If the end is lost on its way, rxe repeats it only when its timer expires. Therefore
    /// the end is also acknowledged after a delay.
    ///
    /// The first acknowledgement of the end may have been under way when the timer of rxe expired.
    /// Then rxe does wait for the acknowledgement of the repeated end, so this acknowledgement is
    /// sent twice.
    ///
    /// A message of one packet needs no such care. A message before the last one needs no such care
    /// either: rxe ignores acknowledgements of later packets while it is sending a message.
    #[cold]
    fn on_repeated(&mut self, psn: Psn, now: Instant) {
        let (end, is_end) = self.last_message_packet();
        if psn.is_after(end) {
            // The response to this READ or atomic operation acknowledges the message, too.
            self.repeated_message = None;
        }
        if !is_end || psn.is_after(end) {
            return;
        }
        let is_acknowledged = psn == end;
        let message = self.repeated_message.get_or_insert_with(|| {
            Box::new(RepeatedMessage { since: now, is_acknowledged, due: now })
        });
        if message.is_acknowledged {
            message.since = now;
        }
        message.is_acknowledged = is_acknowledged;
        message.due = (now + END_DELAY).min(message.since + END_DELAY_MAX);
    }

    /// Whether the end of a message is not acknowledged yet, because the peer may be sending the
    /// message again.
    pub(super) fn withholds_end(&self) -> bool {
        self.repeated_message.as_ref().is_some_and(|message| !message.is_acknowledged)
    }

    /// Handles a packet that was received before. The peer sends it again if the answer was lost.
    #[cold]
    fn on_duplicate(&mut self, path: &Path, packet: &Packet<'_>) {
        let psn = packet.bth.psn;
        match (packet.bth.opcode.operation(), packet.extension) {
            (Operation::ReadRequest, Extension::Reth(reth)) => {
                self.resources.repeat_read(psn, &reth, path)
            }
            (Operation::FetchAdd | Operation::CompareSwap, _) => self.resources.repeat_atomic(psn),
            _ => {
                if self.ack_requests == 0 || self.ack_limit.is_some() {
                    let unanswered = self.resources.first_after(psn);
                    self.ack_limit = unanswered.map(|first| match first.is_after(psn) {
                        true => psn,
                        false => first.previous(),
                    });
                }
                self.ack_requests += 1;
            }
        }
    }

    #[cold]
    fn refuse(&mut self, psn: Psn, code: NakCode) -> Failure {
        (self.gap, self.early) = (None, None);
        self.nak = Some(Nak { psn, syndrome: Syndrome::Nak(code) });
        Failure::Refusing(code)
    }

    /// Whether [`transmit`](Self::transmit) would add a packet.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.resources.is_due() || self.nak.is_some() || self.must_acknowledge()
    }

    #[inline]
    fn must_acknowledge(&self) -> bool {
        self.ack_requests >= ACK_REQUESTS_MAX
            || (self.ack_requests > 0 && self.unacknowledged_packets >= UNACKNOWLEDGED_PACKETS_MAX)
    }

    /// Adds responses, the NAK, and the acknowledgement if it must be sent at once. The responses
    /// leave room for `reserved` packets.
    pub(super) fn transmit(
        &mut self,
        work: &Work,
        path: &Path,
        burst: &mut Burst,
        reserved: usize,
    ) -> Result<(), Failure> {
        if self.resources.is_due() {
            match self.resources.transmit(work, path, self.executor.msn(), burst, reserved) {
                // The last response acknowledges all requests before it. If early packets wait for
                // it, they are carried out next, and the acknowledgement is still owed for them.
                Ok(Some(until)) if until == self.expected && !self.is_paused() => {
                    self.note_acknowledged()
                }
                Ok(_) => {}
                Err(ReadFailed { psn, access, error }) => {
                    work.report_refused(access, error);
                    return Err(self.refuse(psn, NakCode::RemoteAccess));
                }
            }
        }
        // A NAK or acknowledgement would overtake the responses to a READ. The peer would take them
        // for lost.
        if self.resources.is_due() {
            return Ok(());
        }
        if let Some(nak) = self.nak
            && self.push_nak(path, burst, nak)
        {
            self.nak = None;
        }
        if self.must_acknowledge() {
            self.acknowledge(path, burst);
        }
        Ok(())
    }

    /// Does the same as [`transmit`](Self::transmit). Then carries out the early packets that had
    /// to wait for the responses.
    #[inline]
    pub(super) fn transmit_and_resume(
        &mut self,
        work: &mut Work,
        path: &Path,
        now: Instant,
        (burst, reserved): (&mut Burst, usize),
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        self.transmit(work, path, burst, reserved)?;
        if !self.is_paused() {
            return Ok(());
        }
        let result = self.resume(work, path, now, stats);
        work.announce();
        result
    }

    /// Whether an acknowledgement is owed and may be sent.
    #[inline]
    pub(super) fn owes_ack(&self) -> bool {
        self.ack_requests > 0 && !self.resources.is_due()
    }

    /// Adds one acknowledgement for all received packets, if it is owed and may be sent. Returns
    /// whether it was added.
    #[inline]
    pub(super) fn acknowledge(&mut self, path: &Path, burst: &mut Burst) -> bool {
        self.owes_ack() && self.push_ack(path, burst) == Some(true)
    }

    /// Adds the acknowledgement that is owed to a burst to which other packets have been added. It
    /// comes last, because it is short: of the packets that one system call sends, only the last
    /// may be shorter. If the burst has no room for it, it is the first packet of the next burst.
    #[inline]
    pub(super) fn acknowledge_with_packets(&mut self, path: &Path, burst: &mut Burst) {
        if !self.acknowledge(path, burst) && self.owes_ack() {
            self.ack_requests = self.ack_requests.max(ACK_REQUESTS_MAX);
        }
    }

    /// The PSN of the latest packet that may be acknowledged. Each acknowledgement and each NAK for
    /// a missing packet uses it.
    ///
    /// A READ or an atomic operation is acknowledged only by its response. If a response is lost,
    /// and an acknowledgement has the PSN of the request, kernel rxe completes the request without
    /// its data (`check_psn` and `check_ack` in rxe_comp.c). Therefore the acknowledgement ends
    /// before such requests if no SEND or WRITE has arrived after them. If one has arrived, its
    /// acknowledgement shows the peer that a response is missing.
    ///
    /// A peer that repeats a packet has got no response to later requests. It repeats them, too, so
    /// the acknowledgement then ends with the repeated packet.
    ///
    /// Returns `None` if no acknowledgement may be sent, because kernel rxe may have got some
    /// packets of the response to a READ. Between them it must not get an acknowledgement of an
    /// earlier packet: it would take the next packet of the response for an error
    /// (`COMPST_UPDATE_COMP` resets `comp.opcode`, which `check_ack` compares). The response itself
    /// acknowledges all packets before it, and rxe asks for it again if it is lost.
    #[inline]
    fn acknowledged(&self) -> Option<Psn> {
        let (latest, _) = self.last_message_packet();
        let latest = if self.withholds_end() { latest.previous() } else { latest };
        let latest = self.ack_limit.filter(|psn| psn.is_before(latest)).unwrap_or(latest);
        (!self.may_be_rxe || !self.resources.has_long_read_after(latest)).then_some(latest)
    }

    /// The packet before the READs and atomic operations that have arrived last: its PSN, and
    /// whether it is the last one of several packets of a message and may have been sent by kernel
    /// rxe.
    #[inline]
    fn last_message_packet(&self) -> (Psn, bool) {
        match self.resources.first_of_last(self.expected) {
            Some(first) => (first.psn.previous(), first.is_after_end),
            None => (self.expected.previous(), self.is_after_end),
        }
    }

    /// Adds the last acknowledgement of all received packets, unless READ responses must come
    /// first. Adds it twice, because it may be lost. Returns the number of added packets.
    pub(super) fn acknowledge_finally(&mut self, path: &Path, burst: &mut Burst) -> usize {
        if self.executor.msn() == 0 || self.resources.is_due() {
            return 0;
        }
        self.repeated_message = None;
        let mut push = || self.push_ack(path, burst) == Some(true);
        usize::from(push()) + usize::from(push())
    }

    /// Adds the NAK that ends the connection, if there is one. Returns whether it was added.
    pub(super) fn transmit_fatal_nak(&mut self, path: &Path, burst: &mut Burst) -> bool {
        self.nak
            .take()
            .is_some_and(|Nak { psn, syndrome }| self.push_ack_packet(path, burst, psn, syndrome))
    }

    /// Discards all answers that are owed to the peer.
    pub(super) fn clear_pending(&mut self) {
        self.nak = None;
        self.note_acknowledged();
        (self.gap, self.early, self.repeated_message) = (None, None, None);
        self.resources = ResponderResources::new(0);
    }

    /// Adds a NAK, with an acknowledgement of the packets before it if a packet is missing. Returns
    /// false if the burst is full.
    ///
    /// Kernel rxe (`check_ack` in rxe_comp.c) would take a NAK alone as an acknowledgement of the
    /// packets before it. But rxe ignores each NAK after the first one, and counts its retries
    /// down, until an acknowledgement of a PSN that is new to it arrives (`reset_retry_counters`).
    /// So the acknowledgement must come first: after the NAK its PSN would not be new.
    #[cold]
    fn push_nak(&mut self, path: &Path, burst: &mut Burst, Nak { psn, syndrome }: Nak) -> bool {
        let is_sequence_error = syndrome == Syndrome::Nak(NakCode::SequenceError);
        (!is_sequence_error || self.push_ack(path, burst) != Some(false))
            && self.push_ack_packet(path, burst, psn, syndrome)
    }

    /// Adds the acknowledgement of all packets that may be acknowledged. Returns `Some(false)` if
    /// the burst is full, and `None` if none may be sent and therefore none is owed.
    #[inline]
    fn push_ack(&mut self, path: &Path, burst: &mut Burst) -> Option<bool> {
        let psn = self.acknowledged();
        if psn.is_none() {
            self.note_acknowledged();
        }
        Some(self.push_ack_packet(path, burst, psn?, Syndrome::ACK))
    }

    /// Adds an ACK packet with any syndrome. Returns false if the burst is full.
    #[inline]
    fn push_ack_packet(
        &mut self,
        path: &Path,
        burst: &mut Burst,
        psn: Psn,
        syndrome: Syndrome,
    ) -> bool {
        let aeth = Extension::Aeth(Aeth { syndrome, msn: self.executor.msn() });
        let pushed = burst.push_packet(&path.bth(Opcode::Acknowledge, psn), &aeth, 0).is_some();
        if pushed {
            self.note_acknowledged();
        }
        pushed
    }

    /// Records that no acknowledgement is owed any more.
    #[inline]
    fn note_acknowledged(&mut self) {
        (self.ack_requests, self.unacknowledged_packets, self.ack_limit) = (0, 0, None);
    }
}

/// The next longer time, up to the longest time of repeated RNR NAKs.
fn longer(timer: RnrTimer) -> RnrTimer {
    match timer.code() {
        code @ 1..RNR_TIMER_CODE_MAX => RnrTimer::from_code(code + 1),
        _ => timer,
    }
}
