//! Creates packets from work requests.

use std::time::Instant;

use wire::rocev2::{
    AtomicEth, Extension, ExtensionKind, Opcode, PathMtu, Position, Reth, SendKind, packet_len,
};
use work::cause::{Cause, LocalUse};

use super::burst::Burst;
use super::congestion::CongestionControl;
use super::engine::{Failure, MAX_MESSAGE, OldestPacket, Path, Stats};
use super::requester::{Cursor, Requester, Step, packets};
use crate::qp::{self, Work, Wqe};
use crate::wr::{WcOp, WcStatus};

/// In a sequence of this many packets, at least one requests an acknowledgement.
const ACK_REQUEST_INTERVAL_PACKETS: u32 = 64;

impl Requester {
    /// Adds the packets that may be sent now to the burst.
    pub(super) fn transmit(
        &mut self,
        work: &mut Work,
        path: &Path,
        now: Instant,
        burst: &mut Burst,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        self.advance(now);
        if self.requests_missing && burst.room() > 0 {
            self.push_missing(work, path, now, burst, stats);
        }
        while burst.room() > 0 {
            let Some(step) = self.next_step(work, path.mtu) else { break };
            let Some((&wqe, _)) = work.request(self.next.at) else { break };
            let done = match step {
                Step::Fail => return Err(self.fail(work)),
                _ if wqe.len > MAX_MESSAGE => Err(WcStatus::LocalLength),
                Step::Message => self.push_message(work, &wqe, path, now, burst, stats),
                Step::Read(count) => Ok(self.push_read(&wqe, count, path, now, burst, stats)),
                Step::Atomic => Ok(self.push_atomic(&wqe, path, now, burst, stats)),
                Step::Bind => {
                    self.bind(work, &wqe, stats)?;
                    Ok(true)
                }
            };
            match done {
                Ok(true) => {}
                Ok(false) => break,
                // The request fails when all earlier ones are done, because the earlier ones may
                // still succeed.
                Err(status) => self.failed_request = Some((self.next.at, status)),
            }
        }
        Ok(())
    }

    /// Adds as many packets of a SEND or WRITE as possible. Returns false if the burst is full.
    #[inline]
    fn push_message(
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
            let requests_ack = position.ends() || self.must_request_ack();
            let mut bth = path.bth(opcode, self.next.psn);
            bth.ack_request = requests_ack;
            // A WRITE without immediate data causes no completion at the peer.
            bth.solicited =
                position.ends() && wqe.flags & qp::SOLICITED != 0 && wqe.op != WcOp::Write;
            let Some(place) = burst.push_packet(&bth, &extension(wqe, opcode), payload_len) else {
                return Ok(false);
            };
            if let Err(error) = work.gather(segments, offset, place) {
                work.report_local(LocalUse::Source, error);
                burst.pop();
                return Err(WcStatus::LocalProtection);
            }
            self.on_sent(1, packets, requests_ack, now, stats);
        }
        Ok(true)
    }

    /// Whether the next packet must request an acknowledgement although it does not end its
    /// message: no recent packet has requested one, the packet fills the window, or it is sent
    /// again alone.
    #[inline]
    fn must_request_ack(&self) -> bool {
        let (window, packets_since_ack_request) =
            (self.congestion.window(), self.packets_since_ack_request + 1);
        packets_since_ack_request >= ACK_REQUEST_INTERVAL_PACKETS
            || packets_since_ack_request >= window / 4
            || self.in_flight() + 1 >= window
            || self.resume.is_some()
    }

    /// Adds a READ request for the next `count` packets of a READ.
    fn push_read(
        &mut self,
        wqe: &Wqe,
        count: u32,
        path: &Path,
        now: Instant,
        burst: &mut Burst,
        stats: &mut Stats,
    ) -> bool {
        if !push_read_request(wqe, self.next, count, path, burst) {
            return false;
        }
        self.await_responses(self.next.psn, self.next.psn + count);
        self.on_sent(count, packets(wqe, path.mtu), true, now, stats);
        true
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
        let (oldest, missing) = (self.oldest, self.take_missing(now));
        if let (Some((wqe, _)), Some(count)) = (work.request(oldest.at), missing)
            && push_read_request(wqe, oldest, count, path, burst)
        {
            self.on_repeated(oldest.psn, count, now, stats);
        }
    }

    /// Adds an atomic request.
    fn push_atomic(
        &mut self,
        wqe: &Wqe,
        path: &Path,
        now: Instant,
        burst: &mut Burst,
        stats: &mut Stats,
    ) -> bool {
        let (va, r_key, [first, second]) = (wqe.remote_addr, wqe.remote_key, wqe.operands);
        let (opcode, swap_or_add, compare) = match wqe.op {
            WcOp::CompareSwap => (Opcode::CompareSwap, second, first),
            _ => (Opcode::FetchAdd, first, 0),
        };
        let atomic = AtomicEth { va, r_key, swap_or_add, compare };
        let mut bth = path.bth(opcode, self.next.psn);
        bth.ack_request = true;
        if burst.push_packet(&bth, &Extension::Atomic(atomic), 0).is_none() {
            return false;
        }
        self.await_responses(self.next.psn, self.next.psn.next());
        self.on_sent(1, 1, true, now, stats);
        true
    }

    /// Binds a window. The bind is at the head of the send queue, so all earlier requests are done.
    fn bind(&mut self, work: &mut Work, wqe: &Wqe, stats: &mut Stats) -> Result<(), Failure> {
        if work.keys().bind(wqe.remote_key).is_err() {
            work.report(Cause::BindFailed);
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

    /// The oldest packet that is not acknowledged, or the oldest response that has not arrived.
    pub(super) fn oldest_packet(&self, work: &Work, mtu: PathMtu) -> Option<OldestPacket> {
        let Cursor { at, index, .. } = self.oldest;
        let (wqe, _) = work.request(at)?;
        let position = Position::new(index == 0, index + 1 == packets(wqe, mtu));
        let offset = index as usize * mtu.octets();
        let payload_len = (wqe.len as usize).saturating_sub(offset).min(mtu.octets());
        Some(match wqe.op {
            WcOp::Read => {
                OldestPacket::Response(packet_len(Opcode::read_response(position), payload_len))
            }
            WcOp::FetchAdd | WcOp::CompareSwap => {
                OldestPacket::Request(packet_len(Opcode::FetchAdd, 0))
            }
            WcOp::Bind => return None,
            WcOp::Send | WcOp::Write | WcOp::WriteImm | WcOp::Recv | WcOp::RecvMessageImm => {
                OldestPacket::Request(packet_len(opcode(wqe, position), payload_len))
            }
        })
    }

    #[cold]
    fn fail(&self, work: &mut Work) -> Failure {
        if let Some((at, status)) = self.failed_request {
            work.fail(at, status);
        }
        Failure::Local
    }
}

/// Adds a READ request for `count` packets of a READ, the first of which is at `from`. Returns
/// false if the burst is full.
fn push_read_request(wqe: &Wqe, from: Cursor, count: u32, path: &Path, burst: &mut Burst) -> bool {
    let mtu = path.mtu.octets() as u64;
    let start = u64::from(from.index) * mtu;
    let end = (u64::from(from.index + count) * mtu).min(wqe.len.into());
    // The sum may wrap. The peer checks the address.
    let va = wqe.remote_addr.wrapping_add(start);
    let reth = Reth { va, r_key: wqe.remote_key, len: (end - start) as u32 };
    let mut bth = path.bth(Opcode::ReadRequest, from.psn);
    bth.ack_request = true;
    burst.push_packet(&bth, &Extension::Reth(reth), 0).is_some()
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

/// Converts immediate data between the consumer's number and the value of the header field. The
/// header carries the octets of the consumer's number in the order in which they lie in memory, but
/// its field is read as a number in network byte order. (In verbs, immediate data are octets, and
/// OFED's DAPL passes its consumers' numbers unchanged.)
pub(crate) fn convert_immediate(number: u32) -> u32 {
    number.to_be()
}

/// The extension headers of a packet of a SEND or WRITE.
#[inline]
fn extension(wqe: &Wqe, opcode: Opcode) -> Extension {
    let reth = Reth { va: wqe.remote_addr, r_key: wqe.remote_key, len: wqe.len };
    let immediate = convert_immediate(wqe.operands[0] as u32);
    match opcode.extension_kind() {
        ExtensionKind::Reth => Extension::Reth(reth),
        ExtensionKind::RethImmediate => Extension::RethImmediate(reth, immediate),
        ExtensionKind::Immediate => Extension::Immediate(immediate),
        ExtensionKind::Invalidate => Extension::Invalidate(wqe.remote_key),
        _ => Extension::None,
    }
}
