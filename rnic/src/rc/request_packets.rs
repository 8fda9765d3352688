//! The requester's packets: how many a request has, and how each of them is made. Nothing here
//! decides when a packet is sent.

use wire::rocev2::{
    AtomicEth, Extension, ExtensionKind, Opcode, PathMtu, Position, Psn, Reth, SendKind, packet_len,
};
use work::cause::{AccessKind, LocalUse};

use super::burst::Burst;
use super::types::Path;
use crate::qp::Work;
use crate::wqe::Wqe;
use crate::wr::{OpFacts, OpKind, Segment, WcStatus};

/// A request in the send queue: its header and its segments.
pub(super) type Request<'a> = (&'a Wqe, &'a [Segment]);

/// A place in the send queue: a packet of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The request's position in the send queue.
    pub(super) at: usize,
    /// The index of the packet in the request.
    pub(super) index: u32,
    /// The packet's PSN.
    pub(super) psn: Psn,
}

impl Cursor {
    /// Advances the cursor by `by` packets of its request, which has `packets` in total.
    #[inline]
    pub(super) fn step(&mut self, by: u32, packets: u32) {
        self.psn = self.psn + by;
        self.index += by;
        if self.index >= packets {
            (self.at, self.index) = (self.at.wrapping_add(1), 0);
        }
    }
}

/// The number of packets of a request, or of the response to a READ. The request uses one PSN for
/// each of them.
#[inline]
pub(super) fn packets(wqe: &Wqe, mtu: PathMtu) -> u32 {
    if wqe.op.facts().is_local() { 0 } else { mtu.packets(wqe.len) }
}

/// Adds the packet of a SEND or WRITE that is at the cursor. The request has `packets` packets.
/// Returns false if the burst is full.
#[inline]
pub(super) fn push_message(
    work: &Work,
    (wqe, segments): Request<'_>,
    (at, packets): (Cursor, u32),
    path: &Path,
    requests_ack: bool,
    burst: &mut Burst,
) -> Result<bool, WcStatus> {
    let offset = at.index as usize * path.mtu.octets();
    let position = Position::new(at.index == 0, at.index + 1 == packets);
    let payload_len = (wqe.len as usize - offset).min(path.mtu.octets());
    let opcode = opcode(wqe, position);
    let mut bth = path.bth(opcode, at.psn);
    bth.ack_request = requests_ack;
    bth.solicited = position.ends() && wqe.has(Wqe::SOLICITED) && wqe.op.facts().takes_receive;
    let Some(place) = burst.push_packet(&bth, &extension(wqe, opcode), payload_len) else {
        return Ok(false);
    };
    if let Err(error) = work.gather(segments, offset, place) {
        work.report_local(LocalUse::Source, error);
        burst.pop();
        return Err(WcStatus::LocalProtection);
    }
    Ok(true)
}

/// Adds a READ request for `count` packets of a READ, the first of which is at `from`. Returns
/// false if the burst is full.
pub(super) fn push_read(
    wqe: &Wqe,
    from: Cursor,
    count: u32,
    path: &Path,
    burst: &mut Burst,
) -> bool {
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

/// Adds an atomic request. Returns false if the burst is full.
pub(super) fn push_atomic(wqe: &Wqe, psn: Psn, path: &Path, burst: &mut Burst) -> bool {
    let (va, r_key, [first, second]) = (wqe.remote_addr, wqe.remote_key, wqe.operands);
    let (opcode, swap_or_add, compare) = match wqe.op {
        OpKind::CompareSwap => (Opcode::CompareSwap, second, first),
        _ => (Opcode::FetchAdd, first, 0),
    };
    let atomic = AtomicEth { va, r_key, swap_or_add, compare };
    let mut bth = path.bth(opcode, psn);
    bth.ack_request = true;
    burst.push_packet(&bth, &Extension::Atomic(atomic), 0).is_some()
}

/// Adds an RDMA write with this number of octets and a PSN that the peer has acknowledged, so that
/// the peer does not carry it out, but acknowledges it again. Returns false if the burst is full.
pub(super) fn push_acknowledged_write(
    path: &Path,
    psn: Psn,
    octets: usize,
    burst: &mut Burst,
) -> bool {
    let mut bth = path.bth(Opcode::write(Position::Only, false), psn);
    bth.ack_request = true;
    let reth = Extension::Reth(Reth { va: 0, r_key: 0, len: octets as u32 });
    burst.push_packet(&bth, &reth, octets).map(|payload| payload.fill(0)).is_some()
}

/// The opcode of a packet of a SEND or WRITE.
#[inline]
fn opcode(wqe: &Wqe, position: Position) -> Opcode {
    let OpFacts { remote, has_immediate, .. } = wqe.op.facts();
    match remote {
        Some(AccessKind::Write) => Opcode::write(position, has_immediate),
        Some(AccessKind::Invalidate) => Opcode::send(position, SendKind::Invalidate),
        _ if has_immediate => Opcode::send(position, SendKind::Immediate),
        _ => Opcode::send(position, SendKind::Plain),
    }
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

/// Converts immediate data between the program's number and the value of the header field, in
/// either direction. The header carries the octets of the program's number in the order in which
/// they lie in memory. The field is these octets, read as a number in network byte order. (Other
/// implementations do the same: immediate data are four octets in verbs, and OFED's DAPL does not
/// change the order of its programs' numbers.)
pub(crate) fn convert_immediate(number: u32) -> u32 {
    number.to_be()
}

/// The oldest packet for which a requester waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldestPacket {
    /// An unacknowledged packet of a request. The number is the packet's length in octets, without
    /// its ICRC.
    Request(usize),
    /// A response to a READ. The response has not arrived. The number is its length in octets,
    /// without its ICRC.
    Response(usize),
}

impl OldestPacket {
    /// The packet at the cursor, or the response to it. `None` if there is no such packet.
    pub(super) fn at(Cursor { at, index, .. }: Cursor, work: &Work, mtu: PathMtu) -> Option<Self> {
        let (wqe, _) = work.request(at)?;
        let position = Position::new(index == 0, index + 1 == packets(wqe, mtu));
        let offset = index as usize * mtu.octets();
        let payload_len = (wqe.len as usize).saturating_sub(offset).min(mtu.octets());
        let facts = wqe.op.facts();
        Some(match facts.remote {
            Some(AccessKind::Read) => {
                OldestPacket::Response(packet_len(Opcode::read_response(position), payload_len))
            }
            Some(AccessKind::Atomic) => OldestPacket::Request(packet_len(Opcode::FetchAdd, 0)),
            _ if facts.is_local() => return None,
            _ => OldestPacket::Request(packet_len(opcode(wqe, position), payload_len)),
        })
    }
}
