//! From work requests to packets.

use std::time::Instant;

use wire::rocev2::{AtomicEth, Extension, ExtensionKind, Opcode, Position, Reth, SendKind};

use super::burst::Burst;
use super::engine::{Failure, MAX_MESSAGE, Path, Stats};
use super::requester::{Requester, Step, packets};
use crate::qp::{self, Work, Wqe};
use crate::wr::{WcOp, WcStatus};

/// An acknowledgement is asked for with every so many packets, at the latest.
const ASK_EVERY: u32 = 64;

impl Requester {
    /// Adds packets that may be sent now.
    pub(super) fn transmit(
        &mut self,
        work: &mut Work,
        path: &Path,
        now: Instant,
        burst: &mut Burst,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        while burst.room() > 0 {
            let Some(step) = self.choose(work) else { break };
            let Some((&wqe, _)) = work.request(self.next.at) else { break };
            let done = match step {
                Step::Fail => return Err(self.fail(work)),
                _ if wqe.len > MAX_MESSAGE => Err(WcStatus::LocalLength),
                Step::Message => self.message(work, &wqe, path, now, burst, stats),
                Step::Read => Ok(self.read(&wqe, path, now, burst, stats)),
                Step::Atomic => Ok(self.atomic(&wqe, path, now, burst, stats)),
                Step::Bind => {
                    self.bind(work, &wqe, stats)?;
                    Ok(true)
                }
            };
            match done {
                Ok(true) => {}
                Ok(false) => break,
                // Not before what was posted earlier is done: that may yet succeed.
                Err(status) => self.unable = Some((self.next.at, status)),
            }
        }
        Ok(())
    }

    /// Adds packets of a SEND or WRITE, as many as may be; false: the burst takes no more.
    #[inline]
    fn message(
        &mut self,
        work: &Work,
        wqe: &Wqe,
        path: &Path,
        now: Instant,
        burst: &mut Burst,
        stats: &mut Stats,
    ) -> Result<bool, WcStatus> {
        let Some((_, segments)) = work.request(self.next.at) else { return Ok(false) };
        let (mtu, at, packets) = (path.mtu.octets(), self.next.at, packets(wqe, path.mtu));
        while self.next.at == at && self.may_send() {
            let (index, offset) = (self.next.index, self.next.index as usize * mtu);
            let position = Position::new(index == 0, index + 1 == packets);
            let payload_len = (wqe.len as usize - offset).min(mtu);
            let opcode = opcode(wqe, position);
            let asks = position.ends() || self.wants_ack();
            let mut bth = path.bth(opcode, self.next.psn);
            bth.ack_request = asks;
            // Plain WRITEs complete nothing at the peer.
            bth.solicited =
                position.ends() && wqe.flags & qp::SOLICITED != 0 && wqe.op != WcOp::Write;
            let Some(place) = burst.packet(&bth, &extension(wqe, opcode), payload_len) else {
                return Ok(false);
            };
            if work.gather(segments, offset, place).is_err() {
                burst.pop();
                return Err(WcStatus::LocalProtection);
            }
            self.sent(1, packets, asks, now, stats);
        }
        Ok(true)
    }

    /// Whether the next packet is to ask for an acknowledgement although its message goes on: none has for long, or the
    /// window is full with it.
    #[inline]
    fn wants_ack(&self) -> bool {
        let (window, unasked) = (self.window.size(), self.unasked + 1);
        unasked >= ASK_EVERY || unasked >= window / 4 || self.in_flight() + 1 >= window
    }

    /// Adds a READ request for the next part of a READ, or for what is left of that.
    fn read(
        &mut self,
        wqe: &Wqe,
        path: &Path,
        now: Instant,
        burst: &mut Burst,
        stats: &mut Stats,
    ) -> bool {
        let (index, packets) = (self.next.index, packets(wqe, path.mtu));
        let end = self.part_end(index, packets);
        let from = u64::from(index) * path.mtu.octets() as u64;
        let to = (u64::from(end) * path.mtu.octets() as u64).min(wqe.len.into());
        // `wrapping_add`: the peer checks for a wrap.
        let va = wqe.remote.addr.wrapping_add(from);
        let reth = Reth { va, r_key: wqe.remote.key, len: (to - from) as u32 };
        let mut bth = path.bth(Opcode::ReadRequest, self.next.psn);
        bth.ack_request = true;
        if burst.packet(&bth, &Extension::Reth(reth), 0).is_none() {
            return false;
        }
        self.sent(end - index, packets, true, now, stats);
        self.awaited.push_back(self.next.psn);
        true
    }

    /// Adds an atomic request.
    fn atomic(
        &mut self,
        wqe: &Wqe,
        path: &Path,
        now: Instant,
        burst: &mut Burst,
        stats: &mut Stats,
    ) -> bool {
        let (va, r_key, [first, second]) = (wqe.remote.addr, wqe.remote.key, wqe.operands);
        let (opcode, swap_or_add, compare) = match wqe.op {
            WcOp::CompareSwap => (Opcode::CompareSwap, second, first),
            _ => (Opcode::FetchAdd, first, 0),
        };
        let atomic = AtomicEth { va, r_key, swap_or_add, compare };
        let mut bth = path.bth(opcode, self.next.psn);
        bth.ack_request = true;
        if burst.packet(&bth, &Extension::Atomic(atomic), 0).is_none() {
            return false;
        }
        self.sent(1, 1, true, now, stats);
        self.awaited.push_back(self.next.psn);
        true
    }

    /// Binds a window, at the head of the send queue: all earlier requests are done.
    fn bind(&mut self, work: &mut Work, wqe: &Wqe, stats: &mut Stats) -> Result<(), Failure> {
        if work.keys().bind(wqe.remote.key).is_err() {
            work.fail(self.next.at, WcStatus::BindFailed);
            return Err(Failure::Local);
        }
        work.done(self.next.at);
        stats.tx_messages += work.retire();
        work.announce();
        self.next.step(0, 0);
        self.oldest = self.next;
        Ok(())
    }

    #[cold]
    fn fail(&self, work: &mut Work) -> Failure {
        if let Some((at, status)) = self.unable {
            work.fail(at, status);
        }
        Failure::Local
    }
}

/// The opcode of a packet of a SEND or WRITE.
#[inline]
fn opcode(wqe: &Wqe, position: Position) -> Opcode {
    match wqe.op {
        WcOp::Write => Opcode::write(position, false),
        WcOp::WriteImm => Opcode::write(position, true),
        _ if wqe.flags & qp::INVALIDATE != 0 => Opcode::send(position, SendKind::Invalidate),
        _ => Opcode::send(position, SendKind::Plain),
    }
}

/// Immediate data as a consumer has them, for a header, and back: the header has the octets that the number has in memory,
/// and takes them for one in network order. (Verbs hand over octets, and OFED's DAPL its consumers' numbers as they are.)
pub(super) fn memory_order(number: u32) -> u32 {
    number.to_be()
}

/// The headers that a packet of a SEND or WRITE has besides its BTH.
#[inline]
fn extension(wqe: &Wqe, opcode: Opcode) -> Extension {
    let reth = Reth { va: wqe.remote.addr, r_key: wqe.remote.key, len: wqe.len };
    let immediate = memory_order(wqe.operands[0] as u32);
    match opcode.extension_kind() {
        ExtensionKind::Reth => Extension::Reth(reth),
        ExtensionKind::RethImmediate => Extension::RethImmediate(reth, immediate),
        ExtensionKind::Immediate => Extension::Immediate(immediate),
        ExtensionKind::Invalidate => Extension::Invalidate(wqe.remote.key),
        _ => Extension::None,
    }
}
