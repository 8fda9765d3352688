//! Carries out the peer's requests: places data and completes receives (IBA, section 9.7.4).

use wire::rocev2::{AtomicEth, Extension, NakCode, Opcode, Operation, Packet, Position, Psn, Reth};
use work::cause::{AccessKind, Cause, LocalUse, Octets};

use super::request_packets::convert_immediate;
use super::responder_resources::{ResponderResources, read_access};
use super::types::{MAX_MESSAGE, Path, Stats};
use crate::cause::{access, atomic_access, invalidation, octets};
use crate::key::Right;
use crate::memory::AtomicError;
use crate::qp::Work;
use crate::wqe::{Received, Rqe};
use crate::wr::{Arrival, WcOp, WcStatus};

/// The maximum number of PSNs of a READ's response: a quarter of all PSNs, so that old and new PSNs
/// can be told apart.
const READ_PACKETS_MAX: u32 = Psn::COUNT / 4;
const MSN_MASK: u32 = Psn::COUNT - 1;

/// Carries out the peer's requests, packet by packet and in order.
pub(super) struct Executor {
    /// The message that has not arrived completely.
    message: Message,
    /// The number of completed requests, modulo 2^24.
    msn: u32,
}

/// A message that has not arrived completely.
#[derive(Clone, Copy)]
enum Message {
    None,
    /// A SEND, with the number of octets that have been placed in the receive buffer.
    Send {
        placed: u32,
    },
    Write(Write),
}

#[derive(Clone, Copy)]
struct Write {
    r_key: u32,
    /// The address of the next octet.
    va: u64,
    /// The number of octets that have not arrived.
    left: u32,
    /// The total length in octets.
    len: u32,
}

/// What the responder must know of a packet that has been carried out, to acknowledge it.
pub(super) struct Executed {
    /// The number of PSNs that the packet uses.
    pub(super) psns: u32,
    /// Whether the peer requests an acknowledgement. A READ and an atomic operation are answered
    /// by their responses.
    pub(super) requests_ack: bool,
}

impl Executed {
    #[inline]
    fn message(packet: &Packet<'_>) -> Self {
        Executed { psns: 1, requests_ack: packet.bth.ack_request }
    }

    fn awaits_response(psns: u32) -> Self {
        Executed { psns, requests_ack: false }
    }
}

/// The reason for which a packet is not accepted.
pub(super) enum NotExecuted {
    /// No receive buffer is posted. The packet may come again.
    ReceiverNotReady,
    Nak(NakCode),
}

use NotExecuted::ReceiverNotReady;

const INVALID_REQUEST: NotExecuted = NotExecuted::Nak(NakCode::InvalidRequest);
const REMOTE_ACCESS: NotExecuted = NotExecuted::Nak(NakCode::RemoteAccess);
const REMOTE_OPERATIONAL: NotExecuted = NotExecuted::Nak(NakCode::RemoteOperational);

impl Executor {
    pub(super) fn new() -> Self {
        Executor { message: Message::None, msn: 0 }
    }

    /// Whether the last message has not arrived completely.
    #[inline]
    pub(super) fn is_mid_message(&self) -> bool {
        !matches!(self.message, Message::None)
    }

    /// The number of completed requests, modulo 2^24.
    #[inline]
    pub(super) fn msn(&self) -> u32 {
        self.msn
    }

    /// The message whose packet needs a receive buffer.
    #[cold]
    pub(super) fn arrival(&self, packet: &Packet<'_>) -> Arrival {
        match (self.message, packet.extension) {
            (Message::Write(write), _) => Arrival { octets: write.len, whole: true },
            (_, Extension::RethImmediate(reth, _)) => Arrival { octets: reth.len, whole: true },
            _ => {
                let whole = packet.bth.opcode.position().ends();
                Arrival { octets: packet.payload.len() as u32, whole }
            }
        }
    }

    /// Forgets the message that has not arrived completely.
    pub(super) fn forget_message(&mut self) {
        self.message = Message::None;
    }

    /// Carries out the packet that is expected next. READs and atomic operations are added to
    /// `resources`. For `is_after_end` see
    /// [`HeldRequest`](super::responder_resources::HeldRequest).
    #[inline]
    pub(super) fn execute(
        &mut self,
        work: &mut Work,
        path: &Path,
        packet: &Packet<'_>,
        (resources, is_after_end): (&mut ResponderResources, bool),
        stats: &mut Stats,
    ) -> Result<Executed, NotExecuted> {
        let position = packet.bth.opcode.position();
        let executed = match (packet.bth.opcode.operation(), packet.extension) {
            (Operation::Send, _) => self.send(work, path, packet)?,
            (Operation::Write, _) => self.write(work, path, packet)?,
            (Operation::ReadRequest, Extension::Reth(reth)) => {
                let psn = packet.bth.psn;
                self.read(work, path, (psn, reth), (resources, is_after_end))?
            }
            (_, Extension::Atomic(atomic)) => {
                self.atomic(work, packet, atomic, (resources, is_after_end))?
            }
            _ => return Err(INVALID_REQUEST),
        };
        if position.ends() {
            self.msn = (self.msn + 1) & MSN_MASK;
            stats.rx_messages += 1;
        }
        Ok(executed)
    }

    #[inline]
    fn send(
        &mut self,
        work: &mut Work,
        path: &Path,
        packet: &Packet<'_>,
    ) -> Result<Executed, NotExecuted> {
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
            work.finish_recv(Received::octets(len), WcStatus::LocalLength, true);
            return Err(INVALID_REQUEST);
        }
        let (by, segments) = work.recv_segments();
        let placed_all =
            work.scatter((by, Right::LocalWrite), segments, placed as usize, packet.payload);
        if let Err(error) = placed_all {
            // The buffer's memory is no longer registered.
            work.report_local(LocalUse::Receive, error);
            work.finish_recv(Received::octets(placed), WcStatus::LocalProtection, true);
            return Err(REMOTE_OPERATIONAL);
        }
        if !position.ends() {
            self.message = Message::Send { placed: len };
            return Ok(Executed::message(packet));
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
        let received = Received { octets: len, invalidated, immediate, op };
        work.finish_recv(received, WcStatus::Success, packet.bth.solicited);
        Ok(Executed::message(packet))
    }

    #[inline]
    fn write(
        &mut self,
        work: &mut Work,
        path: &Path,
        packet: &Packet<'_>,
    ) -> Result<Executed, NotExecuted> {
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
        if immediate.is_some() {
            let received = Received { immediate, ..Received::octets(write.len) };
            work.finish_recv(received, WcStatus::Success, packet.bth.solicited);
        }
        Ok(Executed::message(packet))
    }

    fn read(
        &mut self,
        work: &Work,
        path: &Path,
        (psn, reth): (Psn, Reth),
        (resources, is_after_end): (&mut ResponderResources, bool),
    ) -> Result<Executed, NotExecuted> {
        let packets = path.mtu.packets(reth.len);
        if self.is_mid_message() || reth.len > MAX_MESSAGE || packets > READ_PACKETS_MAX {
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
        let added = resources.add_read(psn, reth, packets, is_after_end);
        added.map_err(|_| too_many(work, resources))?;
        Ok(Executed::awaits_response(packets))
    }

    fn atomic(
        &mut self,
        work: &Work,
        packet: &Packet<'_>,
        atomic: AtomicEth,
        (resources, is_after_end): (&mut ResponderResources, bool),
    ) -> Result<Executed, NotExecuted> {
        if self.is_mid_message() {
            return Err(INVALID_REQUEST);
        }
        if !resources.has_room() {
            return Err(too_many(work, resources));
        }
        let AtomicEth { va, r_key, swap_or_add, compare } = atomic;
        let swaps = packet.bth.opcode == Opcode::CompareSwap;
        let apply = |original: u64| match swaps {
            true if original == compare => swap_or_add,
            true => original,
            false => original.wrapping_add(swap_or_add),
        };
        let updated = work.update((r_key, va), apply);
        let original = updated.map_err(|error| {
            work.report_refused(atomic_access((r_key, va)), error);
            match error {
                AtomicError::Misaligned => INVALID_REQUEST,
                AtomicError::Key(_) => REMOTE_ACCESS,
            }
        })?;
        let added = resources.add_atomic(packet.bth.psn, original, is_after_end);
        added.map_err(|_| too_many(work, resources))?;
        Ok(Executed::awaits_response(1))
    }
}

/// Refuses a READ or an atomic operation, because the peer has too many in flight.
#[cold]
fn too_many(work: &Work, resources: &ResponderResources) -> NotExecuted {
    work.report(Cause::TooManyReads { limit: resources.max() });
    INVALID_REQUEST
}

/// Takes the receive buffer for a message, if the message may use it.
#[inline]
fn take_buffer(work: &mut Work, octets: impl FnOnce() -> Octets) -> Result<Rqe, NotExecuted> {
    let buffer = work.take_recv().ok_or(ReceiverNotReady)?;
    // If the message may not use the buffer, the connection fails, and the buffer is flushed with
    // the others.
    if work.may_take() {
        return Ok(buffer);
    }
    work.report_no_receive(octets());
    Err(REMOTE_OPERATIONAL)
}

/// Checks the length of a payload (IBA, section 9.7.4.1.6). A FIRST or MIDDLE packet is full, a
/// LAST packet has at least one octet, and an ONLY packet may be empty.
#[inline]
fn check_len(position: Position, len: usize, path: &Path) -> Result<(), NotExecuted> {
    let fits = match position {
        Position::First | Position::Middle => len == path.mtu.octets(),
        Position::Last => 0 < len && len <= path.mtu.octets(),
        Position::Only => len <= path.mtu.octets(),
    };
    if fits { Ok(()) } else { Err(INVALID_REQUEST) }
}
