//! The peer's READs and atomic operations (IBA calls them responder resources): the responses that
//! are due, and the requests that are kept in case the peer repeats them.
//!
//! A READ is carried out when its responses are created, burst by burst. If the responses are lost,
//! it is carried out again. An atomic operation is carried out once, when it arrives, and the
//! original value of its target is kept. The last [`RcCfg::responder_resources`] requests are kept,
//! because a peer has no more in flight.
//!
//! [`RcCfg::responder_resources`]: super::types::RcCfg::responder_resources

use std::collections::VecDeque;

use wire::rocev2::{
    Aeth, AtomicAckEth, Extension, Opcode, Position, Psn, Reth, Syndrome, packet_len,
};
use work::cause::{Access, AccessKind};

use super::burst::Burst;
use super::types::Path;
use crate::cause::{access, octets};
use crate::key::KeyError;
use crate::qp::Work;

/// Requests of the peer, oldest first.
pub(super) struct ResponderResources {
    queue: VecDeque<HeldRequest>,
    /// The maximum number of requests in the queue.
    max: usize,
    /// The number of requests that have responses to be sent.
    due: usize,
    /// The result of [`take_repeated_read`](Self::take_repeated_read).
    repeated_read: Option<RepeatedRead>,
}

/// The number of repetitions of a READ that are dropped if its memory is gone. The network
/// duplicates a packet once or twice; a peer that lacks a response repeats its request for longer.
const MAX_DROPPED_REPETITIONS: u32 = 4;

/// The READs and atomic operations that have arrived last are not acknowledged, but answered (see
/// [`first_of_last`](ResponderResources::first_of_last)). They make an acknowledgement end at most
/// this number of PSNs before the expected PSN. The number is less than half of all PSNs, so that
/// the peer sees that the acknowledgement is old, whatever it has sent meanwhile. A peer has fewer
/// PSNs in flight.
const ACK_DISTANCE_MAX: i32 = (Psn::COUNT / 16 * 7) as i32;

/// A READ or an atomic operation of the peer.
pub(super) struct HeldRequest {
    /// The PSN of the request. Its responses have this PSN and the following ones.
    pub(super) psn: Psn,
    packets: u32,
    /// The number of responses that have been sent at least once.
    sent: u32,
    /// The number of repetitions that were dropped because the memory is gone.
    dropped: u32,
    /// Whether the packet before the request is the last one of several packets of a message, and
    /// may have been sent by kernel rxe. If rxe sends that message again, the
    /// [responder](super::responder) delays the acknowledgement of its end.
    pub(super) is_after_end: bool,
    body: Body,
    /// The responses to be sent, as indices of packets. The range is empty if no response is due.
    due: PacketRange,
    /// The responses to be sent after `due`. The range is empty unless the peer has requested some
    /// responses again before all of them were sent.
    rest: PacketRange,
}

enum Body {
    Read(Reth),
    Atomic { original: u64 },
}

/// A range of packets of a response.
#[derive(Clone, Copy, Default)]
struct PacketRange {
    /// The first packet of the range, which has a FIRST or ONLY opcode.
    start: u32,
    /// The packet of the range that is sent next.
    next: u32,
    end: u32,
    /// The number of octets from the beginning of the READ to the end of this range.
    len: u32,
}

impl PacketRange {
    /// The packets of the range, from this one on, that are not sent yet.
    fn unsent_from(self, packet: u32) -> PacketRange {
        let next = self.next.max(packet);
        match next < self.end {
            true => PacketRange { start: next, next, ..self },
            false => PacketRange::default(),
        }
    }

    fn is_empty(&self) -> bool {
        self.next == self.end
    }
}

/// The error of a request that cannot be held, because the peer has more requests in flight than
/// was agreed on.
pub(super) struct Full;

/// The error of a READ that failed.
pub(super) struct ReadFailed {
    /// The PSN of its next response.
    pub(super) psn: Psn,
    /// The READ, and why it is refused.
    pub(super) access: Access,
    pub(super) error: KeyError,
}

impl ResponderResources {
    pub(super) fn new(max: u32) -> Self {
        // The limit comes from the wire, in 8 bits. So memory is allocated only when it is first
        // needed.
        ResponderResources {
            queue: VecDeque::new(),
            max: max as usize,
            due: 0,
            repeated_read: None,
        }
    }

    /// The maximum number of requests that the peer may have in flight.
    pub(super) fn max(&self) -> u32 {
        self.max as u32
    }

    /// Whether responses are to be sent.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.due > 0
    }

    /// Adds a READ whose response has `packets` packets. For `is_after_end` see [`HeldRequest`].
    pub(super) fn add_read(
        &mut self,
        psn: Psn,
        reth: Reth,
        packets: u32,
        is_after_end: bool,
    ) -> Result<(), Full> {
        self.add((psn, packets), reth.len, Body::Read(reth), is_after_end)
    }

    /// Adds an atomic operation that has been carried out. The caller has checked that there is
    /// [room](Self::has_room). For `is_after_end` see [`HeldRequest`].
    pub(super) fn add_atomic(
        &mut self,
        psn: Psn,
        original: u64,
        is_after_end: bool,
    ) -> Result<(), Full> {
        self.add((psn, 1), 0, Body::Atomic { original }, is_after_end)
    }

    /// Whether another request can be held: the queue is not full, or its oldest request has been
    /// answered and can be dropped.
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < self.max || self.queue.front().is_some_and(HeldRequest::is_answered)
    }

    fn add(
        &mut self,
        (psn, packets): (Psn, u32),
        len: u32,
        body: Body,
        is_after_end: bool,
    ) -> Result<(), Full> {
        if !self.has_room() {
            return Err(Full);
        }
        if self.queue.len() == self.max
            && let Some(oldest) = self.queue.pop_front()
        {
            // The responses of the oldest request may be due again, but a peer that has sent the
            // new request has received them.
            self.due -= usize::from(!oldest.due.is_empty());
        }
        let due = PacketRange { start: 0, next: 0, end: packets, len };
        let (sent, dropped, rest) = (0, 0, PacketRange::default());
        self.queue.push_back(HeldRequest {
            psn,
            packets,
            sent,
            dropped,
            is_after_end,
            body,
            due,
            rest,
        });
        self.due += 1;
        Ok(())
    }

    /// Handles a peer that requests responses to a READ again: all responses, those from some
    /// packet on, or a range of them. A peer that requests a range has all responses before the
    /// range, and still waits for those after it. The request is dropped if no such READ is kept.
    pub(super) fn repeat_read(&mut self, psn: Psn, reth: &Reth, path: &Path) {
        let Some(request) = self.find_held(psn) else { return };
        let Body::Read(first) = &request.body else { return };
        let start = psn.distance(request.psn) as u32;
        let offset = start * path.mtu.octets() as u32;
        let same = reth.r_key == first.r_key && reth.va == first.va.wrapping_add(offset.into());
        // The repeated request must not exceed the original one.
        let (Some(len), true) =
            (offset.checked_add(reth.len).filter(|&len| len <= first.len), same)
        else {
            return;
        };
        let packets = path.mtu.packets(reth.len);
        let end = start + packets;
        let was_due = !request.due.is_empty();
        request.rest = request.unsent_from(end);
        request.due = PacketRange { start, next: start, end, len };
        if let Some(sent @ 1..) = request.sent.checked_sub(start) {
            let payload_len = path.mtu.octets().min(reth.len as usize);
            let opcode = Opcode::read_response(Position::new(true, packets == 1));
            let len = packet_len(opcode, payload_len);
            self.repeated_read = Some(RepeatedRead { start: psn, sent: sent.min(packets), len });
        }
        self.due += usize::from(!was_due);
    }

    /// Takes the latest READ of which the peer has requested responses again, although at least one
    /// of them had been sent. Returns `None` until that happens again.
    #[inline]
    pub(super) fn take_repeated_read(&mut self) -> Option<RepeatedRead> {
        self.repeated_read.take()
    }

    /// Handles a peer that requests the response to an atomic operation again.
    pub(super) fn repeat_atomic(&mut self, psn: Psn) {
        let Some(request) = self.find_held(psn) else { return };
        if let (Body::Atomic { .. }, true) = (&request.body, request.due.is_empty()) {
            request.due.next = 0;
            self.due += 1;
        }
    }

    /// The first of the READs and atomic operations that have arrived since the last SEND or WRITE.
    /// `expected` is the PSN after all requests. Returns `None` if a SEND or WRITE has arrived
    /// last.
    ///
    /// The peer may still wait for the responses to all of these requests. It no longer waits for
    /// the responses to requests that are not kept, because it has sent later requests.
    #[inline]
    pub(super) fn first_of_last(&self, expected: Psn) -> Option<&HeldRequest> {
        let mut end = expected;
        let mut first = None;
        for request in self.queue.iter().rev() {
            let distance = expected.distance(request.psn);
            if request.end() != end || !(0..ACK_DISTANCE_MAX).contains(&distance) {
                break;
            }
            (first, end) = (Some(request), request.psn);
        }
        first
    }

    /// The PSN of the first request that ends after this PSN.
    pub(super) fn first_after(&self, psn: Psn) -> Option<Psn> {
        self.queue.iter().find(|request| request.end().is_after(psn)).map(|request| request.psn)
    }

    /// Whether the response to a READ that ends after this PSN has several packets.
    pub(super) fn has_long_read_after(&self, psn: Psn) -> bool {
        self.queue.iter().rev().any(|request| request.packets > 1 && request.end().is_after(psn))
    }

    fn find_held(&mut self, psn: Psn) -> Option<&mut HeldRequest> {
        self.queue.iter_mut().find(|request| psn.is_within(request.psn, request.packets))
    }

    /// Adds responses that are due, but leaves room for `reserved` packets in the burst. Returns
    /// the PSN after the last response of the last request that has been completely answered, if
    /// any.
    pub(super) fn transmit(
        &mut self,
        work: &Work,
        path: &Path,
        msn: u32,
        burst: &mut Burst,
        reserved: usize,
    ) -> Result<Option<Psn>, ReadFailed> {
        let mut complete = None;
        for request in self.queue.iter_mut().filter(|request| !request.due.is_empty()) {
            match request.transmit_due(work, path, msn, burst, reserved) {
                Ok(true) => {}
                Ok(false) => break,
                // The peer may have all responses: the network may have duplicated its request, and
                // the programs may have agreed meanwhile that the memory is no longer needed. A
                // peer that lacks a response repeats the request more often, and is then told that
                // the READ failed.
                Err(_) if request.is_answered() && request.dropped < MAX_DROPPED_REPETITIONS => {
                    request.dropped += 1;
                    (request.due, request.rest) = Default::default();
                    self.due -= 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.due -= 1;
            complete = Some(request.psn + request.due.end);
        }
        Ok(complete)
    }
}

impl HeldRequest {
    /// The PSN after the last response.
    fn end(&self) -> Psn {
        self.psn + self.packets
    }

    /// Whether all responses to the request have been sent at least once.
    fn is_answered(&self) -> bool {
        self.sent == self.packets
    }

    /// The responses, from this packet on, that are due and not sent yet.
    fn unsent_from(&self, packet: u32) -> PacketRange {
        let (due, rest) = (self.due.unsent_from(packet), self.rest.unsent_from(packet));
        match (due.is_empty(), rest.is_empty()) {
            (true, _) => rest,
            (false, true) => due,
            (false, false) => PacketRange { end: rest.end, len: rest.len, ..due },
        }
    }

    /// Adds responses of this request. Returns whether all due responses have been added.
    fn transmit_due(
        &mut self,
        work: &Work,
        path: &Path,
        msn: u32,
        burst: &mut Burst,
        reserved: usize,
    ) -> Result<bool, ReadFailed> {
        let aeth = Aeth { syndrome: Syndrome::ACK, msn };
        while !self.due.is_empty() {
            if burst.room() <= reserved {
                return Ok(false);
            }
            let psn = self.psn + self.due.next;
            match &self.body {
                Body::Atomic { original } => {
                    let extension =
                        Extension::AtomicAck(aeth, AtomicAckEth { original: *original });
                    if burst
                        .push_packet(&path.bth(Opcode::AtomicAcknowledge, psn), &extension, 0)
                        .is_none()
                    {
                        return Ok(false);
                    }
                }
                Body::Read(reth) => {
                    let PacketRange { start, next, end, len } = self.due;
                    let offset = next * path.mtu.octets() as u32;
                    let remaining = len - offset;
                    let position = Position::new(next == start, next + 1 == end);
                    let extension = match position {
                        Position::Middle => Extension::None,
                        _ => Extension::Aeth(aeth),
                    };
                    let payload_len = path.mtu.octets().min(remaining as usize);
                    let bth = path.bth(Opcode::read_response(position), psn);
                    let Some(place) = burst.push_packet(&bth, &extension, payload_len) else {
                        return Ok(false);
                    };
                    let from = reth.va.wrapping_add(offset.into());
                    if remaining > 0
                        && let Err(error) = work.fetch((reth.r_key, from), remaining.into(), place)
                    {
                        burst.pop();
                        return Err(ReadFailed { psn, access: read_access(reth), error });
                    }
                }
            }
            self.due.next += 1;
            self.sent = self.sent.max(self.due.next);
            if self.due.is_empty() && !self.rest.is_empty() {
                self.due = std::mem::take(&mut self.rest);
            }
        }
        Ok(true)
    }
}

/// Responses to a READ that the peer has requested again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedRead {
    /// The PSN of the first response that the peer has requested again.
    start: Psn,
    /// The number of responses that the peer has requested again and that had been sent before.
    sent: u32,
    /// The length of the first response in octets, without its ICRC.
    len: usize,
}

impl RepeatedRead {
    /// Whether this is the PSN of a response that had been sent before.
    pub fn contains(&self, psn: Psn) -> bool {
        psn.is_within(self.start, self.sent)
    }

    /// The length in octets, without its ICRC, of the first response that the peer has requested
    /// again.
    pub fn packet_len(&self) -> usize {
        self.len
    }
}

/// The access of a READ.
pub(super) fn read_access(reth: &Reth) -> Access {
    access(AccessKind::Read, (reth.r_key, reth.va), octets(reth.len.into(), true))
}
