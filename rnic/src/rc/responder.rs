//! The responder, which decides which packets of the peer are carried out and how they are answered
//! (IBA, section 9.7.5.1).

use wire::rocev2::{Aeth, Extension, NakCode, Opcode, Operation, Packet, Psn, RnrTimer, Syndrome};

use super::burst::Burst;
use super::engine::{Failure, Path, RcCfg, Stats};
use super::messages::{Message, Refusal};
use super::responder_resources::{ReadFailed, ResponderResources};
use crate::qp::Work;
use crate::wr::Arrival;

/// After this many packets that request an acknowledgement, the acknowledgement is sent at once.
const ACK_REQUESTS_MAX: u32 = 16;
/// After this many packets, a requested acknowledgement is sent at once.
const UNACKNOWLEDGED_PACKETS_MAX: u32 = 64;
/// The code of the longest time in a repeated RNR NAK: 0.64 ms.
const RNR_TIMER_CODE_MAX: u8 = 12;

/// The responder's state.
pub(super) struct Responder {
    /// The PSN of the next request packet.
    pub(super) expected: Psn,
    /// The number of completed requests, modulo 2^24.
    pub(super) msn: u32,
    /// The message of which only a part has arrived.
    pub(super) message: Message,
    pub(super) resources: ResponderResources,
    /// If a packet is missing and a NAK has reported this to the peer: the PSN of the latest packet
    /// that arrived after the missing packet.
    last_after_gap: Option<Psn>,
    /// A NAK that must be sent before any acknowledgement.
    nak: Option<Nak>,
    /// The number of packets that have requested an acknowledgement since the last acknowledgement
    /// was sent.
    pub(super) ack_requests: u32,
    /// The number of packets received since the last acknowledgement.
    unacknowledged_packets: u32,
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

#[derive(Clone, Copy)]
struct Nak {
    psn: Psn,
    syndrome: Syndrome,
}

impl Responder {
    pub(super) fn new(cfg: &RcCfg) -> Self {
        Responder {
            expected: cfg.rq_psn,
            msn: 0,
            message: Message::None,
            resources: ResponderResources::new(cfg.responder_resources),
            last_after_gap: None,
            nak: None,
            ack_requests: 0,
            unacknowledged_packets: 0,
            rnr_timer: cfg.rnr_timer,
            last_rnr_timer: cfg.rnr_timer,
            last_rnr_psn: None,
            is_peer_waiting: false,
            rnr_arrival: None,
        }
    }

    /// Processes a request packet.
    #[inline]
    pub(super) fn receive(
        &mut self,
        work: &mut Work,
        path: &Path,
        packet: &Packet<'_>,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        let psn = packet.bth.psn;
        match psn.distance(self.expected) {
            0 => {}
            1.. => {
                stats.out_of_order += 1;
                self.on_gap(psn, stats);
                return Ok(());
            }
            _ => {
                stats.duplicates += 1;
                self.on_duplicate(path, packet);
                return Ok(());
            }
        }
        match self.execute(work, path, packet, stats) {
            Ok(psns) => {
                // The missing packet has arrived, so no NAK for it is needed any more.
                (self.last_after_gap, self.nak, self.is_peer_waiting) = (None, None, false);
                self.expected = self.expected + psns;
                self.unacknowledged_packets += 1;
                Ok(())
            }
            Err(Refusal::ReceiverNotReady) => {
                stats.tx_rnr_naks += 1;
                self.on_receiver_not_ready(packet);
                // The packets after the refused one are already under way, and are dropped without
                // a NAK.
                self.last_after_gap = Some(psn);
                Ok(())
            }
            Err(Refusal::Nak(code)) => Err(self.refuse(psn, code)),
        }
    }

    /// Refuses a packet because there is no receive buffer. The first wait is short, because a
    /// consumer often posts a receive soon. A peer that repeats the packet waits longer each time.
    #[cold]
    fn on_receiver_not_ready(&mut self, packet: &Packet<'_>) {
        let psn = packet.bth.psn;
        self.last_rnr_timer = match self.last_rnr_psn.replace(psn) == Some(psn) {
            true => longer(self.last_rnr_timer),
            false => {
                self.rnr_arrival = Some(self.arrival(packet));
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

    /// Tells the peer that there is a receive buffer now, by repeating the last acknowledgement.
    /// This requester then sends again at once (`Requester::receive`). Other requesters ignore a
    /// duplicate acknowledgement (for kernel rxe see `check_psn` in `rxe_comp.c`), and send again
    /// when the time of the RNR NAK has passed.
    pub(super) fn announce_receive(&mut self) {
        self.is_peer_waiting = false;
        self.ack_requests = self.ack_requests.max(ACK_REQUESTS_MAX);
    }

    /// Returns a message that found no receive buffer. Returns each such message only once, after
    /// it was refused for the first time.
    pub(super) fn take_rnr_arrival(&mut self) -> Option<Arrival> {
        self.rnr_arrival.take()
    }

    /// The message whose packet needs a receive buffer.
    #[cold]
    fn arrival(&self, packet: &Packet<'_>) -> Arrival {
        match (self.message, packet.extension) {
            (Message::Write(write), _) => Arrival { octets: write.len, whole: true },
            (_, Extension::RethImmediate(reth, _)) => Arrival { octets: reth.len, whole: true },
            _ => {
                let whole = packet.bth.opcode.position().ends();
                Arrival { octets: packet.payload.len() as u32, whole }
            }
        }
    }

    /// Accepts no new requests from now on. Only [`receive_duplicate`](Self::receive_duplicate) may
    /// be called for packets.
    pub(super) fn stop_accepting(&mut self) {
        (self.last_after_gap, self.nak, self.message) = (None, None, Message::None);
    }

    /// Processes a request packet if it was received before.
    pub(super) fn receive_duplicate(&mut self, path: &Path, packet: &Packet<'_>) {
        if packet.bth.psn.distance(self.expected) < 0 {
            self.on_duplicate(path, packet);
        }
    }

    /// Handles a packet that arrived although an earlier one is missing.
    #[cold]
    fn on_gap(&mut self, psn: Psn, stats: &mut Stats) {
        // One NAK is enough for all packets that were in flight. A PSN that is not higher than the
        // PSN of the previous packet after the gap shows that the peer has sent the packets again,
        // and that the missing packet was lost again. Then another NAK is sent.
        let is_reported = self.last_after_gap.is_some_and(|last| psn.is_after(last));
        self.last_after_gap = Some(psn);
        if !is_reported {
            stats.tx_sequence_naks += 1;
            let syndrome = Syndrome::Nak(NakCode::SequenceError);
            self.nak = Some(Nak { psn: self.expected, syndrome });
        }
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
            _ => self.ack_requests += 1,
        }
    }

    #[cold]
    fn refuse(&mut self, psn: Psn, code: NakCode) -> Failure {
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

    /// Adds responses, the NAK, and the acknowledgement if it must be sent at once. Leaves room for
    /// `reserved` packets.
    pub(super) fn transmit(
        &mut self,
        work: &Work,
        path: &Path,
        burst: &mut Burst,
        reserved: usize,
    ) -> Result<(), Failure> {
        if self.resources.is_due() {
            match self.resources.transmit(work, path, self.msn, burst, reserved) {
                // The last response acknowledges all requests before it.
                Ok(Some(until)) if until == self.expected => {
                    (self.ack_requests, self.unacknowledged_packets) = (0, 0)
                }
                Ok(_) => {}
                Err(ReadFailed(psn)) => return Err(self.refuse(psn, NakCode::RemoteAccess)),
            }
        }
        // A NAK or acknowledgement would also acknowledge a READ whose responses have not been
        // sent.
        if self.resources.is_due() {
            return Ok(());
        }
        if let Some(Nak { psn, syndrome }) = self.nak
            && self.push_ack_packet(path, burst, psn, syndrome)
        {
            self.nak = None;
        }
        if self.must_acknowledge() {
            self.acknowledge(path, burst);
        }
        Ok(())
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
        self.owes_ack()
            && self.push_ack_packet(path, burst, self.expected.previous(), Syndrome::ACK)
    }

    /// Adds the NAK that ends the connection, if there is one. Returns whether it was added.
    pub(super) fn transmit_fatal_nak(&mut self, path: &Path, burst: &mut Burst) -> bool {
        self.nak
            .take()
            .is_some_and(|Nak { psn, syndrome }| self.push_ack_packet(path, burst, psn, syndrome))
    }

    /// Discards all answers that are owed to the peer.
    pub(super) fn clear_pending(&mut self) {
        (self.nak, self.ack_requests, self.unacknowledged_packets) = (None, 0, 0);
        self.resources = ResponderResources::new(0);
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
        let aeth = Extension::Aeth(Aeth { syndrome, msn: self.msn });
        let pushed = burst.push_packet(&path.bth(Opcode::Acknowledge, psn), &aeth, 0).is_some();
        if pushed {
            (self.ack_requests, self.unacknowledged_packets) = (0, 0);
        }
        pushed
    }
}

/// The next longer time, up to the longest time of repeated RNR NAKs.
fn longer(timer: RnrTimer) -> RnrTimer {
    match timer.code() {
        code @ 1..RNR_TIMER_CODE_MAX => RnrTimer::from_code(code + 1),
        _ => timer,
    }
}
