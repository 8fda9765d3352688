//! The responder: which packets of the peer are carried out, and what the peer is told (IBA, section 9.7.5.1).

use wire::rocev2::{Aeth, Extension, NakCode, Opcode, Operation, Packet, Psn, RnrTimer, Syndrome};

use super::answers::{Answers, Unreadable};
use super::burst::Burst;
use super::engine::{Failure, Path, RcCfg, Stats};
use super::messages::{Message, Refusal};
use crate::qp::Work;
use crate::wr::Arrival;

/// An acknowledgement that was asked for so often is not held back any longer.
const ASKED_MAX: u32 = 16;
/// The same, after so many packets.
const TAKEN_MAX: u32 = 64;

/// The responder's state.
pub(super) struct Responder {
    /// The number of the next request packet.
    pub(super) expected: Psn,
    /// Requests completed, modulo 2^24.
    pub(super) msn: u32,
    /// The message in hand.
    pub(super) message: Message,
    pub(super) answers: Answers,
    /// A packet is missing, and the peer has been told: the latest packet behind it.
    behind: Option<Psn>,
    /// To be sent before anything else is acknowledged.
    nak: Option<Nak>,
    /// Since the last acknowledgement: packets that asked for one.
    pub(super) asked: u32,
    /// The same: packets taken.
    taken: u32,
    rnr_timer: RnrTimer,
    /// The latest packet that found no receive buffer.
    unready: Option<Psn>,
    /// Its message, until somebody asks.
    stalled: Option<Arrival>,
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
            answers: Answers::new(cfg.responder_resources),
            behind: None,
            nak: None,
            asked: 0,
            taken: 0,
            rnr_timer: cfg.rnr_timer,
            unready: None,
            stalled: None,
        }
    }

    /// Takes a request packet.
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
                self.missing(psn, stats);
                return Ok(());
            }
            _ => {
                stats.duplicates += 1;
                self.again(path, packet);
                return Ok(());
            }
        }
        match self.execute(work, path, packet, stats) {
            Ok(psns) => {
                // Nothing is missing any more that the peer was to be told of.
                (self.behind, self.nak) = (None, None);
                self.expected = self.expected + psns;
                self.taken += 1;
                Ok(())
            }
            Err(Refusal::NotReady) => {
                stats.tx_rnr_naks += 1;
                self.nak = Some(Nak { psn, syndrome: Syndrome::Rnr(self.rnr_timer) });
                // What follows it in the peer's window is dropped without a word.
                self.behind = Some(psn);
                if self.unready.replace(psn) != Some(psn) {
                    self.stalled = Some(self.arrival(packet));
                }
                Ok(())
            }
            Err(Refusal::Nak(code)) => Err(self.refuse(psn, code)),
        }
    }

    /// A message that has found no receive buffer, the first time that it was refused.
    pub(super) fn take_stalled(&mut self) -> Option<Arrival> {
        self.stalled.take()
    }

    /// The message whose packet takes a receive buffer.
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

    /// Takes nothing new from now on: only [`receive_again`](Self::receive_again).
    pub(super) fn leave(&mut self) {
        (self.behind, self.nak, self.message) = (None, None, Message::None);
    }

    /// Takes a request packet if it is one that was taken before.
    pub(super) fn receive_again(&mut self, path: &Path, packet: &Packet<'_>) {
        if packet.bth.psn.distance(self.expected) < 0 {
            self.again(path, packet);
        }
    }

    /// A packet is missing before this one.
    #[cold]
    fn missing(&mut self, psn: Psn, stats: &mut Stats) {
        // Once for all that was in flight. If numbers start over the peer has sent again, and it is missing again.
        let told = self.behind.is_some_and(|behind| psn.is_after(behind));
        self.behind = Some(psn);
        if !told {
            stats.tx_sequence_naks += 1;
            let syndrome = Syndrome::Nak(NakCode::SequenceError);
            self.nak = Some(Nak { psn: self.expected, syndrome });
        }
    }

    /// A packet that was taken before: what it asked for was lost on its way back.
    #[cold]
    fn again(&mut self, path: &Path, packet: &Packet<'_>) {
        let psn = packet.bth.psn;
        match (packet.bth.opcode.operation(), packet.extension) {
            (Operation::ReadRequest, Extension::Reth(reth)) => {
                self.answers.read_again(psn, &reth, path)
            }
            (Operation::FetchAdd | Operation::CompareSwap, _) => self.answers.atomic_again(psn),
            _ => self.asked += 1,
        }
    }

    #[cold]
    fn refuse(&mut self, psn: Psn, code: NakCode) -> Failure {
        self.nak = Some(Nak { psn, syndrome: Syndrome::Nak(code) });
        Failure::Refusing(code)
    }

    /// Whether [`transmit`](Self::transmit) would add anything.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.answers.is_due() || self.nak.is_some() || self.has_to_acknowledge()
    }

    #[inline]
    fn has_to_acknowledge(&self) -> bool {
        self.asked >= ASKED_MAX || (self.asked > 0 && self.taken >= TAKEN_MAX)
    }

    /// Adds responses, a NAK, and the acknowledgement if it is urgent; leaves room for `kept` packets.
    pub(super) fn transmit(
        &mut self,
        work: &Work,
        path: &Path,
        burst: &mut Burst,
        kept: usize,
    ) -> Result<(), Failure> {
        if self.answers.is_due() {
            match self.answers.transmit(work, path, self.msn, burst, kept) {
                // It acknowledges all before it.
                Ok(Some(until)) if until == self.expected => (self.asked, self.taken) = (0, 0),
                Ok(_) => {}
                Err(Unreadable(psn)) => return Err(self.refuse(psn, NakCode::RemoteAccess)),
            }
        }
        // Either would acknowledge a READ whose responses have not been sent.
        if self.answers.is_due() {
            return Ok(());
        }
        if let Some(Nak { psn, syndrome }) = self.nak
            && self.tell(path, burst, psn, syndrome)
        {
            self.nak = None;
        }
        if self.has_to_acknowledge() {
            self.acknowledge(path, burst);
        }
        Ok(())
    }

    /// Whether an acknowledgement is owed, and may be sent.
    #[inline]
    pub(super) fn owes_ack(&self) -> bool {
        self.asked > 0 && !self.answers.is_due()
    }

    /// Adds one acknowledgement for all there is, if it is owed and may be sent; whether it did.
    #[inline]
    pub(super) fn acknowledge(&mut self, path: &Path, burst: &mut Burst) -> bool {
        self.owes_ack() && self.tell(path, burst, self.expected.previous(), Syndrome::ACK)
    }

    /// Adds the NAK that ends the connection, if there is one; whether it did.
    pub(super) fn last_words(&mut self, path: &Path, burst: &mut Burst) -> bool {
        self.nak.take().is_some_and(|Nak { psn, syndrome }| self.tell(path, burst, psn, syndrome))
    }

    /// Owes nothing any more.
    pub(super) fn abandon(&mut self) {
        (self.nak, self.asked, self.taken) = (None, 0, 0);
        self.answers = Answers::new(0);
    }

    /// Adds an ACK packet, of whatever kind; false: the burst is full.
    #[inline]
    fn tell(&mut self, path: &Path, burst: &mut Burst, psn: Psn, syndrome: Syndrome) -> bool {
        let aeth = Extension::Aeth(Aeth { syndrome, msn: self.msn });
        let told = burst.packet(&path.bth(Opcode::Acknowledge, psn), &aeth, 0).is_some();
        if told {
            (self.asked, self.taken) = (0, 0);
        }
        told
    }
}
