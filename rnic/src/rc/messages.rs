//! Carries out the peer's requests: places data and completes receives (IBA, section 9.7.4).

use wire::rocev2::{AtomicEth, Extension, NakCode, Opcode, Operation, Packet, Position, Psn, Reth};
use work::cause::{Access, AccessKind, Cause, LocalUse, Octets};

use super::engine::{MAX_MESSAGE, Path, Stats};
use super::requests::convert_immediate;
use super::responder::Responder;
use crate::cause::{access, atomic_access, invalidation, octets};
use crate::key::Right;
use crate::memory::{AtomicError, update};
use crate::qp::{Received, Rqe, Work};
use crate::wr::{WcOp, WcStatus};

/// The maximum number of PSNs of a READ's response: a quarter of all PSNs, so that old and new PSNs
/// can be told apart.
const READ_PACKETS_MAX: u32 = Psn::COUNT / 4;
const MSN_MASK: u32 = Psn::COUNT - 1;

/// A message of which only a part has arrived.
#[derive(Clone, Copy)]
pub(super) enum Message {
    None,
    /// A SEND, with the number of octets that have been placed in the receive buffer.
    Send {
        placed: u32,
    },
    Write(Write),
}

#[derive(Clone, Copy)]
pub(super) struct Write {
    r_key: u32,
    /// The address of the next octet.
    va: u64,
    /// The number of octets that have not arrived.
    left: u32,
    /// The total length in octets.
    pub(super) len: u32,
}

/// The reason for which a packet is not accepted.
pub(super) enum Refusal {
    /// No receive buffer is posted. The packet may come again.
    ReceiverNotReady,
    Nak(NakCode),
}

use Refusal::ReceiverNotReady;

const INVALID_REQUEST: Refusal = Refusal::Nak(NakCode::InvalidRequest);
const REMOTE_ACCESS: Refusal = Refusal::Nak(NakCode::RemoteAccess);
const REMOTE_OPERATIONAL: Refusal = Refusal::Nak(NakCode::RemoteOperational);

impl Responder {
    /// Carries out the packet that is expected next. Returns the number of PSNs that the packet
    /// uses.
    #[inline]
    pub(super) fn execute(
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
            (Operation::ReadRequest, Extension::Reth(reth)) => {
                self.read(work, path, packet.bth.psn, reth)?
            }
            (_, Extension::Atomic(atomic)) => self.atomic(work, packet, atomic)?,
            _ => return Err(INVALID_REQUEST),
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
            _ => return Err(INVALID_REQUEST),
        };
        let buffer = match position.starts() {
            true => take_buffer(work, || octets(packet.payload.len() as u64, position.ends()))?,
            false => work.recv().ok_or(REMOTE_OPERATIONAL)?,
        };
        check_len(position, packet.payload.len(), path)?;
        let len = placed + packet.payload.len() as u32;
        if u64::from(len) > buffer.len || len > MAX_MESSAGE {
            let octets = octets(len.into(), position.ends());
            work.report(Cause::ReceiveTooSmall { lengths: Some((octets, buffer.len)) });
            work.finish_recv(Received::bytes(len), WcStatus::LocalLength, true);
            return Err(INVALID_REQUEST);
        }
        let (by, segments) = work.recv_segments();
        let placed_all =
            work.scatter((by, Right::LocalWrite), segments, placed as usize, packet.payload);
        if let Err(error) = placed_all {
            // The buffer's memory is no longer registered.
            work.report_local(LocalUse::Receive, error);
            work.finish_recv(Received::bytes(placed), WcStatus::LocalProtection, true);
            return Err(REMOTE_OPERATIONAL);
        }
        if !position.ends() {
            self.message = Message::Send { placed: len };
            self.note_ack_request(packet);
            return Ok(1);
        }
        let (op, immediate, invalidated) = match packet.extension {
            Extension::Immediate(data) => {
                (WcOp::RecvMessageImm, Some(convert_immediate(data)), None)
            }
            Extension::Invalidate(r_key) => (WcOp::Recv, None, Some(r_key)),
            _ => (WcOp::Recv, None, None),
        };
        if let Some(r_key) = invalidated
            && let Err(error) = work.keys().invalidate(r_key, work.scope())
        {
            work.report_refused(invalidation(r_key), error);
            return Err(REMOTE_ACCESS);
        }
        self.message = Message::None;
        self.note_ack_request(packet);
        let received = Received { bytes: len, invalidated, immediate, op };
        work.finish_recv(received, WcStatus::Success, packet.bth.solicited);
        Ok(1)
    }

    #[inline]
    fn write(&mut self, work: &mut Work, path: &Path, packet: &Packet<'_>) -> Result<u32, Refusal> {
        let (position, len) = (packet.bth.opcode.position(), packet.payload.len() as u32);
        let (reth, immediate) = match packet.extension {
            Extension::Reth(reth) => (Some(reth), None),
            Extension::RethImmediate(reth, data) => (Some(reth), Some(convert_immediate(data))),
            Extension::Immediate(data) => (None, Some(convert_immediate(data))),
            _ => (None, None),
        };
        let write = match (self.message, reth) {
            (Message::None, Some(Reth { va, r_key, len })) => Write { r_key, va, left: len, len },
            (Message::Write(write), None) => write,
            _ => return Err(INVALID_REQUEST),
        };
        check_len(position, packet.payload.len(), path)?;
        // The message must end with the packet that contains its last octet.
        if write.len > MAX_MESSAGE || len > write.left || position.ends() != (len == write.left) {
            return Err(INVALID_REQUEST);
        }
        if immediate.is_some() {
            take_buffer(work, || octets(write.len.into(), true))?;
        }
        let to = (write.r_key, write.va);
        if write.left > 0
            && let Err(error) = work.store(to, write.left.into(), packet.payload)
        {
            let left = octets(write.left.into(), true);
            work.report_refused(access(AccessKind::Write, to, left), error);
            return Err(REMOTE_ACCESS);
        }
        self.message = match position.ends() {
            true => Message::None,
            // The sum cannot wrap, because the first packet of a message that extends beyond 2^64
            // is refused.
            false => {
                let (va, left) = (write.va.wrapping_add(len.into()), write.left - len);
                Message::Write(Write { va, left, ..write })
            }
        };
        self.note_ack_request(packet);
        if immediate.is_some() {
            let received = Received { immediate, ..Received::bytes(write.len) };
            work.finish_recv(received, WcStatus::Success, packet.bth.solicited);
        }
        Ok(1)
    }

    fn read(&mut self, work: &Work, path: &Path, psn: Psn, reth: Reth) -> Result<u32, Refusal> {
        let packets = path.mtu.packets(reth.len);
        if !matches!(self.message, Message::None)
            || reth.len > MAX_MESSAGE
            || packets > READ_PACKETS_MAX
        {
            return Err(INVALID_REQUEST);
        }
        let checked = |len: u32| {
            work.keys().check(reth.r_key, work.scope(), reth.va, len.into(), Right::RemoteRead)
        };
        if reth.len > 0
            && let Err(error) = checked(reth.len)
        {
            work.report_refused(read_access(&reth), error);
            return Err(REMOTE_ACCESS);
        }
        let added = self.resources.add_read(psn, reth, packets, self.is_after_end);
        added.map_err(|_| self.too_many(work))?;
        Ok(packets)
    }

    fn atomic(
        &mut self,
        work: &Work,
        packet: &Packet<'_>,
        atomic: AtomicEth,
    ) -> Result<u32, Refusal> {
        if !matches!(self.message, Message::None) {
            return Err(INVALID_REQUEST);
        }
        if !self.resources.has_room() {
            return Err(self.too_many(work));
        }
        let AtomicEth { va, r_key, swap_or_add, compare } = atomic;
        let swaps = packet.bth.opcode == Opcode::CompareSwap;
        let apply = |original: u64| match swaps {
            true if original == compare => swap_or_add,
            true => original,
            false => original.wrapping_add(swap_or_add),
        };
        let updated = update(work.keys(), work.scope(), (r_key, va), apply);
        let original = updated.map_err(|error| {
            work.report_refused(atomic_access((r_key, va)), error);
            match error {
                AtomicError::Misaligned => INVALID_REQUEST,
                AtomicError::Key(_) => REMOTE_ACCESS,
            }
        })?;
        let added = self.resources.add_atomic(packet.bth.psn, original, self.is_after_end);
        added.map_err(|_| self.too_many(work))?;
        Ok(1)
    }

    /// Refuses a READ or an atomic operation, because the peer has too many in flight.
    #[cold]
    fn too_many(&self, work: &Work) -> Refusal {
        work.report(Cause::TooManyReads { limit: self.resources.max() });
        INVALID_REQUEST
    }

    /// Records whether the peer requests an acknowledgement of this packet.
    #[inline]
    fn note_ack_request(&mut self, packet: &Packet<'_>) {
        if packet.bth.ack_request {
            self.ack_requests += 1;
            self.repeated = None;
        }
    }
}

/// Takes the receive buffer for a message, if the message may use it.
#[inline]
fn take_buffer(work: &mut Work, octets: impl FnOnce() -> Octets) -> Result<Rqe, Refusal> {
    let buffer = work.take_recv().ok_or(ReceiverNotReady)?;
    // A buffer that the message must not use is flushed later with the other buffers.
    if work.may_take() {
        return Ok(buffer);
    }
    work.report_no_receive(octets());
    Err(REMOTE_OPERATIONAL)
}

/// The access of a READ.
pub(super) fn read_access(reth: &Reth) -> Access {
    access(AccessKind::Read, (reth.r_key, reth.va), octets(reth.len.into(), true))
}

/// Checks the length of a payload (IBA, section 9.7.4.1.6). A FIRST or MIDDLE packet is full, a
/// LAST packet has at least one octet, and an ONLY packet may be empty.
#[inline]
fn check_len(position: Position, len: usize, path: &Path) -> Result<(), Refusal> {
    let fits = match position {
        Position::First | Position::Middle => len == path.mtu.octets(),
        Position::Last => 0 < len && len <= path.mtu.octets(),
        Position::Only => len <= path.mtu.octets(),
    };
    if fits { Ok(()) } else { Err(INVALID_REQUEST) }
}
