//! The responder: from the peer's packets to memory and completions, and what the peer is told (IBA, section 9.7.4 and 9.9).

use wire::rocev2::{
    Aeth, AtomicEth, Extension, NakCode, Opcode, Operation, Packet, Position, Psn, Reth, RnrTimer, Syndrome,
};

use super::answers::{Answers, Unreadable};
use super::burst::Burst;
use super::engine::{Failure, MAX_MESSAGE, Path, RcCfg, SENT, Stats};
use crate::key::Right;
use crate::memory::{AtomicError, update};
use crate::qp::{Received, Rqe, Work};
use crate::wr::WcStatus;

/// An acknowledgement that was asked for so often is not held back any longer.
const ASKED_MAX: u32 = 16;
/// The same, after so many packets.
const TAKEN_MAX: u32 = 64;
/// PSNs of a READ's response at most: a quarter of all, so that what is old and what is new can be told apart.
const READ_MAX: u32 = Psn::COUNT / 4;
const MSN_MASK: u32 = Psn::COUNT - 1;

/// The responder's state.
pub(super) struct Responder {
    /// The number of the next request packet.
    expected: Psn,
    /// Requests completed, modulo 2^24.
    msn: u32,
    /// The message in hand.
    message: Message,
    answers: Answers,
    /// A packet is missing, and the peer has been told: the latest packet behind it.
    behind: Option<Psn>,
    /// To be sent before anything else is acknowledged.
    nak: Option<Nak>,
    /// Since the last acknowledgement: packets that asked for one.
    asked: u32,
    /// The same: packets taken.
    taken: u32,
    rnr_timer: RnrTimer,
}

#[derive(Clone, Copy)]
enum Message {
    None,
    /// So much of it has been placed in the receive buffer.
    Send {
        placed: u32,
    },
    Write(Write),
}

#[derive(Clone, Copy)]
struct Write {
    r_key: u32,
    /// Where it goes on.
    va: u64,
    /// Octets to come.
    left: u32,
    /// Octets in all.
    len: u32,
}

#[derive(Clone, Copy)]
struct Nak {
    psn: Psn,
    syndrome: Syndrome,
}

/// Why a packet is not taken.
enum Refusal {
    /// It may come again.
    NotReady,
    Nak(NakCode),
}

use Refusal::NotReady;

const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest);
const ACCESS: Refusal = Refusal::Nak(NakCode::RemoteAccess);
const OPERATIONAL: Refusal = Refusal::Nak(NakCode::RemoteOperational);

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
            Err(NotReady) => {
                stats.rnr_naks[SENT] += 1;
                self.nak = Some(Nak { psn, syndrome: Syndrome::Rnr(self.rnr_timer) });
                // What follows it in the peer's window is dropped without a word.
                self.behind = Some(psn);
                Ok(())
            }
            Err(Refusal::Nak(code)) => Err(self.refuse(psn, code)),
        }
    }

    /// A packet is missing before this one.
    #[cold]
    fn missing(&mut self, psn: Psn, stats: &mut Stats) {
        // Once for all that was in flight. If numbers start over the peer has sent again, and it is missing again.
        let told = self.behind.is_some_and(|behind| psn.is_after(behind));
        self.behind = Some(psn);
        if !told {
            stats.sequence_naks[SENT] += 1;
            let syndrome = Syndrome::Nak(NakCode::SequenceError);
            self.nak = Some(Nak { psn: self.expected, syndrome });
        }
    }

    /// A packet that was taken before: what it asked for was lost on its way back.
    #[cold]
    fn again(&mut self, path: &Path, packet: &Packet<'_>) {
        let psn = packet.bth.psn;
        match (packet.bth.opcode.operation(), packet.extension) {
            (Operation::ReadRequest, Extension::Reth(reth)) => self.answers.read_again(psn, &reth, path),
            (Operation::FetchAdd | Operation::CompareSwap, _) => self.answers.atomic_again(psn),
            _ => self.asked += 1,
        }
    }

    /// Carries out the packet that is expected; answers how many PSNs it takes.
    #[inline]
    fn execute(
        &mut self,
        work: &mut Work,
        path: &Path,
        packet: &Packet<'_>,
        stats: &mut Stats,
    ) -> Result<u32, Refusal> {
        let position = packet.bth.opcode.position();
        let psns = match (packet.bth.opcode.operation(), packet.extension) {
            (Operation::Send, _) => self.send(work, path, packet)?,
            (Operation::Write, _) => self.write(work, path, packet)?,
            (Operation::ReadRequest, Extension::Reth(reth)) => self.read(work, path, packet.bth.psn, reth)?,
            (_, Extension::Atomic(atomic)) => self.atomic(work, packet, atomic)?,
            _ => return Err(INVALID),
        };
        if position.ends() {
            self.msn = (self.msn + 1) & MSN_MASK;
            stats.rx_messages += 1;
        }
        Ok(psns)
    }

    #[inline]
    fn send(&mut self, work: &mut Work, path: &Path, packet: &Packet<'_>) -> Result<u32, Refusal> {
        let position = packet.bth.opcode.position();
        let placed = match (self.message, position.starts()) {
            (Message::None, true) => 0,
            (Message::Send { placed }, false) => placed,
            _ => return Err(INVALID),
        };
        let buffer = match position.starts() {
            true => take_buffer(work)?,
            false => work.recv().ok_or(OPERATIONAL)?,
        };
        check_len(position, packet.payload.len(), path)?;
        let len = placed + packet.payload.len() as u32;
        if u64::from(len) > buffer.len || len > MAX_MESSAGE {
            work.finish_recv(Received::bytes(len), WcStatus::LocalLength, true);
            return Err(INVALID);
        }
        let (by, segments) = work.recv_segments();
        if work.scatter((by, Right::LocalWrite), segments, placed as usize, packet.payload).is_err() {
            // The buffer's memory is registered no more.
            work.finish_recv(Received::bytes(placed), WcStatus::LocalProtection, true);
            return Err(OPERATIONAL);
        }
        if !position.ends() {
            self.message = Message::Send { placed: len };
            self.ask(packet);
            return Ok(1);
        }
        let (immediate, invalidated) = match packet.extension {
            Extension::Immediate(data) => (Some(data), None),
            Extension::Invalidate(r_key) => (None, Some(r_key)),
            _ => (None, None),
        };
        if invalidated.is_some_and(|r_key| work.keys().invalidate(r_key, work.scope()).is_err()) {
            return Err(ACCESS);
        }
        self.message = Message::None;
        self.ask(packet);
        let received = Received { bytes: len, invalidated, immediate };
        work.finish_recv(received, WcStatus::Success, packet.bth.solicited);
        Ok(1)
    }

    #[inline]
    fn write(&mut self, work: &mut Work, path: &Path, packet: &Packet<'_>) -> Result<u32, Refusal> {
        let (position, len) = (packet.bth.opcode.position(), packet.payload.len() as u32);
        let (reth, immediate) = match packet.extension {
            Extension::Reth(reth) => (Some(reth), None),
            Extension::RethImmediate(reth, data) => (Some(reth), Some(data)),
            Extension::Immediate(data) => (None, Some(data)),
            _ => (None, None),
        };
        let write = match (self.message, reth) {
            (Message::None, Some(Reth { va, r_key, len })) => Write { r_key, va, left: len, len },
            (Message::Write(write), None) => write,
            _ => return Err(INVALID),
        };
        check_len(position, packet.payload.len(), path)?;
        // It ends with its last octet, and not before.
        if write.len > MAX_MESSAGE || len > write.left || position.ends() != (len == write.left) {
            return Err(INVALID);
        }
        if immediate.is_some() {
            take_buffer(work)?;
        }
        let to = (write.r_key, write.va);
        if write.left > 0 && work.store(to, write.left.into(), packet.payload).is_err() {
            return Err(ACCESS);
        }
        self.message = match position.ends() {
            true => Message::None,
            // `wrapping_add`: one beyond 2^64 was refused with its first packet.
            false => {
                let (va, left) = (write.va.wrapping_add(len.into()), write.left - len);
                Message::Write(Write { va, left, ..write })
            }
        };
        self.ask(packet);
        if immediate.is_some() {
            let received = Received { immediate, ..Received::bytes(write.len) };
            work.finish_recv(received, WcStatus::Success, packet.bth.solicited);
        }
        Ok(1)
    }

    fn read(&mut self, work: &Work, path: &Path, psn: Psn, reth: Reth) -> Result<u32, Refusal> {
        let packets = path.mtu.packets(reth.len);
        if !matches!(self.message, Message::None) || reth.len > MAX_MESSAGE || packets > READ_MAX {
            return Err(INVALID);
        }
        let checked =
            |len: u32| work.keys().check(reth.r_key, work.scope(), reth.va, len.into(), Right::RemoteRead);
        if reth.len > 0 && checked(reth.len).is_err() {
            return Err(ACCESS);
        }
        self.answers.add_read(psn, reth, packets).map_err(|_| INVALID)?;
        Ok(packets)
    }

    fn atomic(&mut self, work: &Work, packet: &Packet<'_>, atomic: AtomicEth) -> Result<u32, Refusal> {
        if !matches!(self.message, Message::None) || !self.answers.has_room() {
            return Err(INVALID);
        }
        let AtomicEth { va, r_key, swap_or_add, compare } = atomic;
        let swaps = packet.bth.opcode == Opcode::CompareSwap;
        let apply = |original: u64| match swaps {
            true if original == compare => swap_or_add,
            true => original,
            false => original.wrapping_add(swap_or_add),
        };
        let original =
            update(work.keys(), work.scope(), (r_key, va), apply).map_err(|error| match error {
                AtomicError::Misaligned => INVALID,
                AtomicError::Key(_) => ACCESS,
            })?;
        self.answers.add_atomic(packet.bth.psn, original).map_err(|_| INVALID)?;
        Ok(1)
    }

    /// The peer wants to know that a packet has arrived, or does not.
    #[inline]
    fn ask(&mut self, packet: &Packet<'_>) {
        self.asked += u32::from(packet.bth.ack_request);
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

/// Takes the receive buffer for a message, if it may have it.
#[inline]
fn take_buffer(work: &mut Work) -> Result<Rqe, Refusal> {
    let buffer = work.take_recv().ok_or(NotReady)?;
    // One that the message may not have is flushed with the rest.
    if work.may_take() { Ok(buffer) } else { Err(OPERATIONAL) }
}

/// All packets of a message but the last are full, and the last is not empty (IBA, section 9.7.4.1.6).
#[inline]
fn check_len(position: Position, len: usize, path: &Path) -> Result<(), Refusal> {
    let fits = match position {
        Position::First | Position::Middle => len == path.mtu.octets(),
        Position::Last => 0 < len && len <= path.mtu.octets(),
        Position::Only => len <= path.mtu.octets(),
    };
    if fits { Ok(()) } else { Err(INVALID) }
}
