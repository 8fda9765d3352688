//! From work requests to frames.
//!
//! A frame is built each time it is given to TCP, from the work request and a position; what TCP does not accept is built
//! again. So a stream needs no buffer of its own. The exception is a frame under a CRC that is half sent: the memory it was
//! built from may have changed, so its rest is kept.

use std::ptr::with_exposed_provenance_mut;

use wire::iwarp::mpa::fpdu::{LENGTH_SIZE, Trailer, fpdu_len};
use wire::iwarp::{
    Cause, Crc32c, Header, Queue, ReadRequest, TaggedOpcode, Terminate, UntaggedOpcode, crc::crc32c,
};

use super::message::{Cut, Frame};
use super::stream::{Failure, Reads, Stream};
use super::vec::TxVec;
use crate::key::{KeyError, Right};
use crate::qp::{self, Wqe};
use crate::wr::{Segment, WcOp, WcStatus};

/// Messages up to so many octets are copied next to their headers; others are sent from where they are.
const COPY_MAX: usize = 8 << 10;
/// Messages of more segments are copied as well.
const REFERENCE_MAX_SEGMENTS: usize = 128;
/// Answers to the peer's reads in a row while requests of ours wait.
const ANSWER_BURST: u8 = 4;

/// The sending side of a stream.
pub(super) struct Tx {
    mulpdu: usize,
    /// Position in the send queue of the next request to be started, or of the one that is half sent.
    next: usize,
    /// The message of which TCP has accepted `pos` octets, but not all.
    half: Option<Kind>,
    pos: u64,
    send_msn: u32,
    /// Answers since the last request of ours.
    answered: u8,
    /// RTR frames to be sent.
    pub(super) rtr: u32,
    /// With CRC: the rest of a frame that is half sent. `pos` is behind it.
    rest: Vec<u8>,
}

/// An RDMA read of the peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) request: ReadRequest,
    pub(super) msn: u32,
}

/// What a message is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The RTR frame.
    Rtr,
    /// The first (or a later one, while gathering) of [`Stream::answers`].
    Answer,
    /// The request at [`Tx::next`] (or later).
    Request,
}

/// What a [`TxVec`] holds of one message: the octets from `from` to `to` of it.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// `None`: [`Tx::rest`].
    message: Option<(Kind, Cut)>,
    from: u64,
    to: u64,
}

/// Where gathering is: as [`Tx`] and [`Reads`] will be when all that is gathered has been accepted.
struct Ahead {
    request: usize,
    answer: usize,
    answered: u8,
    rtr: u32,
    send_msn: u32,
    read_msn: u32,
    reads: u32,
}

/// A message about to be framed.
struct Message<'a> {
    cut: Cut,
    /// The header of its first segment, but for `last`.
    header: Header,
    body: Body<'a>,
}

enum Body<'a> {
    Segments(&'a [Segment]),
    /// A READ request's own header.
    Inline([u8; ReadRequest::SIZE]),
    /// What the peer reads.
    Source(ReadRequest),
}

impl Tx {
    pub(super) fn new(next: usize, mulpdu: usize) -> Self {
        Tx { mulpdu, next, half: None, pos: 0, send_msn: 1, answered: 0, rtr: 0, rest: Vec::new() }
    }

    /// Forgets what is half sent.
    pub(super) fn abandon(&mut self) {
        (self.half, self.pos, self.rtr, self.rest) = (None, 0, 0, Vec::new());
    }
}

impl Stream {
    pub(super) fn is_half_sent(&self) -> bool {
        self.tx.half.is_some() || !self.tx.rest.is_empty()
    }

    /// Whether a message can be started.
    pub(super) fn has_ready(&self) -> bool {
        self.choose(&self.ahead()).is_some()
    }

    fn ahead(&self) -> Ahead {
        Ahead {
            request: self.tx.next,
            answer: 0,
            answered: self.tx.answered,
            rtr: self.tx.rtr,
            send_msn: self.tx.send_msn,
            read_msn: self.reads.next_msn,
            reads: self.reads.outstanding,
        }
    }

    /// What to send next, if anything may be sent.
    #[inline]
    fn choose(&self, ahead: &Ahead) -> Option<Kind> {
        if ahead.rtr > 0 {
            return Some(Kind::Rtr);
        }
        let answer = ahead.answer < self.answers.len();
        if answer && ahead.answered < ANSWER_BURST {
            return Some(Kind::Answer);
        }
        let request = self.work.request(ahead.request).is_some_and(|(wqe, _)| {
            // iwarp, section 4: a fenced request waits for all own reads, a read for one of ORD to come back.
            let fenced = wqe.flags & qp::FENCE != 0 && ahead.reads > 0;
            let stalled = wqe.op == WcOp::Read && ahead.reads >= self.ord;
            !fenced && !stalled
        });
        match (request, answer) {
            (true, _) => Some(Kind::Request),
            (false, true) => Some(Kind::Answer),
            (false, false) => None,
        }
    }

    /// Fills `tx` with frames that are ready.
    pub(super) fn gather(&mut self, tx: &mut TxVec) -> Result<(), Failure> {
        tx.clear();
        self.alive()?;
        if self.hold {
            return Ok(());
        }
        if !self.tx.rest.is_empty() {
            let len = self.tx.rest.len();
            tx.staged(len).copy_from_slice(&self.tx.rest);
            tx.push_staged(len);
            tx.parts.push(Part { message: None, from: 0, to: len as u64 });
        }
        let mut ahead = self.ahead();
        let (mut half, mut pos) = (self.tx.half, self.tx.pos);
        while tx.bytes() < TxVec::MAX_BYTES {
            let Some(kind) = half.take().or_else(|| self.choose(&ahead)) else { break };
            let Some(message) = self.message(kind, &ahead) else { break };
            let (cut, total) = (message.cut, message.cut.total());
            let (to, result) = self.frames(tx, &message, pos, total);
            if to > pos {
                tx.parts.push(Part { message: Some((kind, cut)), from: pos, to });
            }
            if let Err(error) = result {
                // What is before it is sent first; then the error is met again.
                if tx.bytes() == 0 {
                    return Err(self.gather_failed(kind, error));
                }
                break;
            }
            if to < total {
                break;
            }
            pos = 0;
            self.step(kind, &mut ahead);
        }
        Ok(())
    }

    /// Moves on behind a message.
    #[inline]
    fn step(&self, kind: Kind, ahead: &mut Ahead) {
        match kind {
            Kind::Rtr => ahead.rtr -= 1,
            Kind::Answer => {
                ahead.answer += 1;
                ahead.answered = ahead.answered.saturating_add(1);
            }
            Kind::Request => {
                match self.work.request(ahead.request).map(|(wqe, _)| wqe.op) {
                    Some(WcOp::Send) => ahead.send_msn = ahead.send_msn.wrapping_add(1),
                    Some(WcOp::Read) => {
                        ahead.read_msn = ahead.read_msn.wrapping_add(1);
                        ahead.reads += 1;
                    }
                    _ => {}
                }
                ahead.request = ahead.request.wrapping_add(1);
                ahead.answered = 0;
            }
        }
    }

    #[inline]
    fn message(&self, kind: Kind, ahead: &Ahead) -> Option<Message<'_>> {
        let mulpdu = self.tx.mulpdu;
        Some(match kind {
            Kind::Request => {
                let (wqe, segments) = self.work.request(ahead.request)?;
                self.request_message(&wqe, segments, ahead)
            }
            Kind::Answer => {
                let request = self.answers.get(ahead.answer)?.request;
                Message {
                    cut: Cut::tagged(mulpdu, request.len as usize),
                    header: tagged(TaggedOpcode::ReadResponse, request.sink_stag, request.sink_to),
                    body: Body::Source(request),
                }
            }
            // RFC 6581, section 9.1: any STag and offset will do in a zero-length write; siw uses these.
            Kind::Rtr => Message {
                cut: Cut::tagged(mulpdu, 0),
                header: tagged(TaggedOpcode::Write, 1, 0),
                body: Body::Segments(&[]),
            },
        })
    }

    #[inline]
    fn request_message<'a>(&self, wqe: &Wqe, segments: &'a [Segment], ahead: &Ahead) -> Message<'a> {
        let (mulpdu, len) = (self.tx.mulpdu, wqe.len as usize);
        match wqe.op {
            WcOp::Write => Message {
                cut: Cut::tagged(mulpdu, len),
                header: tagged(TaggedOpcode::Write, wqe.remote.key, wqe.remote.addr),
                body: Body::Segments(segments),
            },
            WcOp::Read => {
                let request = ReadRequest {
                    sink_stag: self.reads.sink_stag,
                    sink_to: Reads::sink_to(ahead.read_msn),
                    len: wqe.len,
                    source_stag: wqe.remote.key,
                    source_to: wqe.remote.addr,
                };
                let mut bytes = [0; ReadRequest::SIZE];
                request.emit(&mut bytes);
                Message {
                    cut: Cut::untagged(mulpdu, ReadRequest::SIZE),
                    header: untagged(UntaggedOpcode::ReadRequest, 0, ahead.read_msn),
                    body: Body::Inline(bytes),
                }
            }
            WcOp::Send | WcOp::Recv => {
                let invalidates = wqe.flags & qp::INVALIDATE != 0;
                let opcode = UntaggedOpcode::send(wqe.flags & qp::SOLICITED != 0, invalidates);
                let invalidate = if invalidates { wqe.remote.key } else { 0 };
                Message {
                    cut: Cut::untagged(mulpdu, len),
                    header: untagged(opcode, invalidate, ahead.send_msn),
                    body: Body::Segments(segments),
                }
            }
        }
    }

    /// Frames a message from position `pos` to `until` or until there is no room; returns how far it came. The last position
    /// is the end of a frame, and so is `until`.
    #[inline]
    fn frames(
        &self,
        tx: &mut TxVec,
        message: &Message<'_>,
        mut pos: u64,
        until: u64,
    ) -> (u64, Result<(), KeyError>) {
        let cut = message.cut;
        let elements = match message.body {
            Body::Segments(segments) => segments.len(),
            Body::Inline(_) | Body::Source(_) => 1,
        };
        let copied = self.crc
            || cut.len() <= COPY_MAX
            || elements > REFERENCE_MAX_SEGMENTS
            || matches!(message.body, Body::Inline(_));
        while pos < until && tx.bytes() < TxVec::MAX_BYTES {
            let frame = cut.frame(pos);
            let wire_len = cut.wire_len(frame.payload);
            let (staged, elements) =
                if copied { (wire_len, 1) } else { (wire_len - frame.payload, 2 + elements) };
            if !tx.has_room(staged, elements) {
                break;
            }
            let mark = tx.mark();
            let skip = (pos - frame.start) as usize;
            let result = match copied {
                true => self.copy_frame(tx, message, frame, skip),
                false => self.refer_frame(tx, message, frame, skip),
            };
            if let Err(error) = result {
                tx.cut(mark);
                return (pos, Err(error));
            }
            pos = frame.start + wire_len as u64;
        }
        (pos, Ok(()))
    }

    /// Gathers a frame, less the first `skip` octets, with its payload copied.
    #[inline]
    fn copy_frame(
        &self,
        tx: &mut TxVec,
        message: &Message<'_>,
        frame: Frame,
        skip: usize,
    ) -> Result<(), KeyError> {
        let wire_len = message.cut.wire_len(frame.payload);
        let out = tx.staged(wire_len);
        let (header, rest) = out.split_at_mut(message.cut.header());
        let (payload, trailer) = rest.split_at_mut(frame.payload);
        message.emit_header(frame, header);
        if let Body::Inline(bytes) = &message.body {
            payload.copy_from_slice(bytes);
        } else {
            let mut at = payload.as_mut_ptr();
            self.pieces(message, frame.offset, frame.payload, |from, len| {
                // SAFETY: the pieces' lengths add up to the payload's; registered memory is readable.
                unsafe {
                    at.copy_from_nonoverlapping(from, len);
                    at = at.add(len);
                }
            })?;
        }
        trailer.fill(0);
        if self.crc {
            let (covered, crc) = out.split_at_mut(wire_len - Crc32c::SIZE);
            crc.copy_from_slice(&crc32c(covered).to_le_bytes());
        }
        tx.push_staged(wire_len - skip);
        Ok(())
    }

    /// Gathers a frame without CRC, less the first `skip` octets, with its payload where it is.
    fn refer_frame(
        &self,
        tx: &mut TxVec,
        message: &Message<'_>,
        frame: Frame,
        skip: usize,
    ) -> Result<(), KeyError> {
        let header = message.cut.header();
        message.emit_header(frame, tx.staged(header));
        tx.push_staged(header - skip.min(header));

        let skip = skip.saturating_sub(header);
        let skipped = skip.min(frame.payload);
        self.pieces(message, frame.offset + skipped, frame.payload - skipped, |from, len| {
            tx.push_memory(from, len);
        })?;

        let trailer = Trailer::size(message.cut.ulpdu(frame.payload));
        tx.staged(trailer).fill(0);
        tx.push_staged(trailer - (skip - skipped));
        Ok(())
    }

    /// Names the memory of `len` octets of a message, once it has been checked that it may be read now.
    #[inline]
    fn pieces(
        &self,
        message: &Message<'_>,
        mut offset: usize,
        mut len: usize,
        mut piece: impl FnMut(*mut u8, usize),
    ) -> Result<(), KeyError> {
        if len == 0 {
            return Ok(());
        }
        let (keys, pd) = (self.work.keys(), self.work.pd());
        match &message.body {
            Body::Inline(_) => {}
            Body::Source(request) => {
                // All the rest is checked, not this frame alone: nothing of a read that must fail is sent.
                // `wrapping_add`: then one beyond 2^64 was refused with its first frame.
                let addr = request.source_to.wrapping_add(offset as u64);
                let rest = u64::from(request.len) - offset as u64;
                keys.check(request.source_stag, pd, addr, rest, Right::RemoteRead)?;
                piece(with_exposed_provenance_mut(addr as usize), len);
            }
            Body::Segments(segments) => {
                for segment in *segments {
                    let size = segment.len as usize;
                    if offset >= size {
                        offset -= size;
                        continue;
                    }
                    let n = len.min(size - offset);
                    let addr = segment.addr + offset as u64;
                    keys.check(segment.key, pd, addr, n as u64, Right::LocalRead)?;
                    piece(with_exposed_provenance_mut(addr as usize), n);
                    (offset, len) = (0, len - n);
                    if len == 0 {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// A message's memory may not be read (any more).
    #[cold]
    fn gather_failed(&mut self, kind: Kind, error: KeyError) -> Failure {
        let terminate = match (kind, self.answers.front()) {
            (Kind::Answer, Some(&Answer { request, msn })) => {
                let cause = match error {
                    KeyError::Invalid => Cause::PROTECTION_STAG,
                    KeyError::Bounds => Cause::PROTECTION_BOUNDS,
                    KeyError::Access => Cause::PROTECTION_ACCESS,
                    KeyError::Domain => Cause::PROTECTION_NOT_ASSOCIATED,
                    KeyError::Wrap => Cause::PROTECTION_TO_WRAP,
                };
                let mut header = untagged(UntaggedOpcode::ReadRequest, 0, msn);
                set_last(&mut header, true);
                Terminate {
                    cause,
                    segment_len: Some((header.len() + ReadRequest::SIZE) as u16),
                    header: Some(header.into()),
                    read_request: Some(request),
                }
            }
            _ => {
                self.work.fail(self.tx.next, WcStatus::LocalProtection);
                Terminate::new(Cause::RDMAP_CATASTROPHIC)
            }
        };
        self.fail(terminate)
    }

    /// TCP has accepted the first `n` octets of a vector.
    pub(super) fn accepted(&mut self, tx: &mut TxVec, n: usize) {
        let n = n.min(tx.bytes());
        self.stats.tx_bytes += n as u64;
        let mut left = n as u64;
        for part in &tx.parts {
            let took = left.min(part.to - part.from);
            left -= took;
            let Some((kind, cut)) = part.message else {
                self.tx.rest.drain(..took as usize);
                if !self.tx.rest.is_empty() {
                    break;
                }
                continue;
            };
            let mut pos = part.from + took;
            if self.crc && pos > 0 && pos < part.to && cut.frame(pos).start != pos {
                let end = cut.frame_end(pos);
                // SAFETY: with CRC all is gathered in the stage of `tx`, which nobody has touched since.
                unsafe { tx.copy_to(&mut self.tx.rest, n, (end - pos) as usize) };
                pos = end;
            }
            if pos == cut.total() {
                self.finish(kind);
                (self.tx.half, self.tx.pos) = (None, 0);
            } else if pos > 0 {
                (self.tx.half, self.tx.pos) = (Some(kind), pos);
            }
            if left == 0 {
                break;
            }
        }
        tx.parts.clear();
    }

    /// A message has been accepted whole.
    #[inline]
    fn finish(&mut self, kind: Kind) {
        match kind {
            Kind::Rtr => self.tx.rtr -= 1,
            Kind::Answer => {
                self.answers.pop_front();
                self.tx.answered = self.tx.answered.saturating_add(1);
            }
            Kind::Request => {
                let at = self.tx.next;
                match self.work.request(at).map(|(wqe, _)| wqe.op) {
                    Some(WcOp::Read) => {
                        if self.reads.outstanding == 0 {
                            self.reads.oldest = at;
                        }
                        self.reads.outstanding += 1;
                        self.reads.next_msn = self.reads.next_msn.wrapping_add(1);
                    }
                    Some(op) => {
                        if op == WcOp::Send {
                            self.tx.send_msn = self.tx.send_msn.wrapping_add(1);
                        }
                        self.work.done(at);
                    }
                    None => {}
                }
                self.tx.next = at.wrapping_add(1);
                self.tx.answered = 0;
            }
        }
        self.stats.tx_messages += 1;
    }

    /// The octets that end this direction after a [`Failure`] not by the peer: the rest of an FPDU that is half sent, and
    /// the TERMINATE message. Best effort. Once, and before [`flush`](Self::flush); empty when there is none.
    pub fn terminate(&mut self) -> Vec<u8> {
        let Some(terminate) = self.last_words.take() else { return Vec::new() };
        let mut out = std::mem::take(&mut self.tx.rest);
        if let Some(kind) = self.tx.half {
            let pos = self.tx.pos;
            let Some(message) = self.message(kind, &self.ahead()) else { return Vec::new() };
            if message.cut.frame(pos).start != pos {
                let mut tx = TxVec::new();
                let (_, result) = self.frames(&mut tx, &message, pos, message.cut.frame_end(pos));
                if result.is_err() {
                    return Vec::new();
                }
                // SAFETY: just gathered.
                unsafe { tx.copy_to(&mut out, 0, tx.bytes()) };
            }
        }
        self.tx.abandon();

        let header = Header::Untagged {
            last: true,
            opcode: UntaggedOpcode::Terminate,
            invalidate: 0,
            qn: Queue::Terminate.number(),
            msn: 1,
            mo: 0,
        };
        let ulpdu_len = header.len() + terminate.len();
        let start = out.len();
        out.resize(start + fpdu_len(ulpdu_len), 0);
        let frame = &mut out[start..];
        frame[..LENGTH_SIZE].copy_from_slice(&(ulpdu_len as u16).to_be_bytes());
        let at = LENGTH_SIZE + header.emit(&mut frame[LENGTH_SIZE..]);
        terminate.emit(&mut frame[at..]);
        if self.crc {
            let (covered, crc) = frame.split_at_mut(fpdu_len(ulpdu_len) - Crc32c::SIZE);
            crc.copy_from_slice(&crc32c(covered).to_le_bytes());
        }
        out
    }
}

impl Message<'_> {
    /// Writes ULPDU length and header of a frame.
    #[inline]
    fn emit_header(&self, frame: Frame, out: &mut [u8]) {
        let mut header = self.header;
        set_last(&mut header, frame.last);
        match &mut header {
            // `wrapping_add`: the peer checks for a wrap.
            Header::Tagged { to, .. } => *to = to.wrapping_add(frame.offset as u64),
            Header::Untagged { mo, .. } => *mo = frame.offset as u32,
        }
        let ulpdu_len = self.cut.ulpdu(frame.payload) as u16;
        out[..LENGTH_SIZE].copy_from_slice(&ulpdu_len.to_be_bytes());
        header.emit(&mut out[LENGTH_SIZE..]);
    }
}

#[inline]
fn tagged(opcode: TaggedOpcode, stag: u32, to: u64) -> Header {
    Header::Tagged { last: false, opcode, stag, to }
}

#[inline]
fn untagged(opcode: UntaggedOpcode, invalidate: u32, msn: u32) -> Header {
    Header::Untagged { last: false, opcode, invalidate, qn: opcode.queue().number(), msn, mo: 0 }
}

#[inline]
fn set_last(header: &mut Header, value: bool) {
    match header {
        Header::Tagged { last, .. } | Header::Untagged { last, .. } => *last = value,
    }
}
