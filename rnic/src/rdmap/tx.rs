//! From work requests to frames.
//!
//! A frame is built each time it is given to TCP, from the work request and a position; what TCP does not accept is built
//! again. So a stream needs no buffer of its own. The exception is a frame under a CRC that is half sent: the memory it was
//! built from may have changed, so its rest is kept.

use wire::iwarp::mpa::fpdu::{LENGTH_SIZE, fpdu_len};
use wire::iwarp::{
    AtomicOp, AtomicRequest, AtomicResponse, Cause, Crc32c, Header, Immediate, Queue, ReadRequest,
    TaggedOpcode, Terminate, UntaggedOpcode, crc::crc32c,
};

use super::answer::{Answer, request_header, response_header};
use super::frame::{Framing, Inline, Local, Source};
use super::message::Cut;
use super::stream::{Failure, Reads, Stream};
use super::vec::{Turn, TxVec};
use crate::key::KeyError;
use crate::qp;
use crate::wr::{WcOp, WcStatus};

/// Answers to the peer's requests in a row while requests of ours wait.
const ANSWER_BURST: u8 = 4;

/// The sending side of a stream.
pub(super) struct Tx {
    mulpdu: usize,
    /// Position in the send queue of the next request to be started, or of the one that is half sent.
    next: usize,
    /// The message of which TCP has accepted `pos` octets, but not all.
    half: Option<Kind>,
    pos: u64,
    /// Of the request at `next` the write has been sent; its immediate data are next.
    written: bool,
    send_msn: u32,
    /// Answers since the last request of ours.
    answered: u8,
    /// RTR frames to be sent.
    pub(super) rtr: u32,
    /// With CRC: the rest of a frame that is half sent. `pos` is behind it.
    rest: Vec<u8>,
    /// [`StreamCfg::segment`](super::stream::StreamCfg::segment).
    segment: usize,
    /// Octets that TCP has accepted since a segment had to begin.
    record: usize,
    /// What is gathered now. A flush ends it.
    turn: Turn,
}

/// What a message is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The RTR frame.
    Rtr,
    /// The first (or a later one, while gathering) of [`Stream::answers`].
    Answer,
    /// The request at [`Tx::next`] (or later).
    Send,
    /// The same.
    Write,
    /// The same: the first of its two messages.
    WriteFirst,
    /// The same: the second.
    Immediate,
    /// The same.
    Read,
    /// The same.
    Atomic,
    /// The same; nothing is sent for it.
    Bind,
}

/// What a [`TxVec`] holds of one message: the octets from `from` to `to` of it.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// `None`: [`Tx::rest`].
    message: Option<(Kind, Cut)>,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// Where gathering is: as [`Tx`] and [`Reads`] will be when all that is gathered has been accepted.
struct Ahead {
    request: usize,
    written: bool,
    answer: usize,
    answered: u8,
    rtr: u32,
    send_msn: u32,
    read_msn: u32,
    reads: u32,
}

/// How far a message went into a [`TxVec`].
struct Framed {
    cut: Cut,
    to: u64,
    result: Result<(), KeyError>,
}

impl Ahead {
    /// Moves on behind a message.
    #[inline]
    fn step(&mut self, kind: Kind) {
        match kind {
            Kind::Rtr => {
                self.rtr -= 1;
                return;
            }
            Kind::Answer => {
                self.answer += 1;
                self.answered = self.answered.saturating_add(1);
                return;
            }
            Kind::WriteFirst => {
                self.written = true;
                return;
            }
            Kind::Send | Kind::Immediate => self.send_msn = self.send_msn.wrapping_add(1),
            Kind::Write | Kind::Bind => {}
            Kind::Read | Kind::Atomic => {
                self.read_msn = self.read_msn.wrapping_add(1);
                self.reads += 1;
            }
        }
        self.request = self.request.wrapping_add(1);
        self.written = false;
        self.answered = 0;
    }
}

impl Tx {
    pub(super) fn new(next: usize, mulpdu: usize, segment: usize) -> Self {
        Tx {
            mulpdu,
            next,
            half: None,
            pos: 0,
            written: false,
            send_msn: 1,
            answered: 0,
            rtr: 0,
            rest: Vec::new(),
            segment,
            record: 0,
            turn: Turn::first(),
        }
    }

    /// Keeps the rest of a frame that is half sent: `len` octets, `skip` octets from the start of a vector.
    /// With CRC all of it is in the stage.
    #[cold]
    fn keep(&mut self, tx: &TxVec, skip: usize, len: usize) {
        tx.copy_staged_to(&mut self.rest, skip, len);
    }

    /// Forgets what is half sent.
    pub(super) fn abandon(&mut self) {
        self.turn.end();
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
            written: self.tx.written,
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
        if ahead.written {
            return Some(Kind::Immediate);
        }
        let answer = self.answers.ready(ahead.answer).map(|_| Kind::Answer);
        if answer.is_some() && ahead.answered < ANSWER_BURST {
            return answer;
        }
        let Some((wqe, _)) = self.work.request(ahead.request) else { return answer };
        // A fenced request waits for all own reads and atomic operations, one of these for one of ORD to come back.
        if wqe.flags & qp::FENCE != 0 && ahead.reads > 0 {
            return answer;
        }
        match wqe.op {
            WcOp::Bind if ahead.reads > 0 => answer,
            WcOp::Bind => Some(Kind::Bind),
            op if op.awaits_response() && ahead.reads >= self.ord => answer,
            WcOp::Read => Some(Kind::Read),
            WcOp::FetchAdd | WcOp::CompareSwap => Some(Kind::Atomic),
            WcOp::Write => Some(Kind::Write),
            WcOp::WriteImm => Some(Kind::WriteFirst),
            WcOp::Send | WcOp::Recv => Some(Kind::Send),
        }
    }

    /// Fills `tx` with frames that are ready.
    pub(super) fn gather(&mut self, tx: &mut TxVec) -> Result<(), Failure> {
        self.tx.turn.end();
        tx.begin(self.tx.turn, self.tx.segment, self.tx.record);
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
            if kind == Kind::Bind {
                // Not before what is gathered has been accepted: then it is met again.
                if tx.bytes() > 0 {
                    break;
                }
                self.bind()?;
                ahead = self.ahead();
                continue;
            }
            let Some(Framed { cut, to, result }) = self.frame(tx, kind, &ahead, pos, false) else {
                break;
            };
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
            if to < cut.total() {
                break;
            }
            pos = 0;
            ahead.step(kind);
        }
        Ok(())
    }

    /// Frames a message from position `pos` on, or only the frame that this is in.
    #[inline]
    fn frame(
        &self,
        tx: &mut TxVec,
        kind: Kind,
        ahead: &Ahead,
        pos: u64,
        one: bool,
    ) -> Option<Framed> {
        let (crc, mulpdu, keys, by) =
            (self.crc, self.tx.mulpdu, self.work.keys(), self.work.scope());
        let until = |cut: Cut| if one { cut.frame_end(pos) } else { cut.total() };
        let request = || self.work.request(ahead.request);
        let (cut, (to, result)) = match kind {
            Kind::Send => {
                let (wqe, segments) = request()?;
                let invalidates = wqe.flags & qp::INVALIDATE != 0;
                let opcode = UntaggedOpcode::send(wqe.flags & qp::SOLICITED != 0, invalidates);
                let invalidate = if invalidates { wqe.remote.key } else { 0 };
                let cut = Cut::untagged(mulpdu, wqe.len as usize);
                let header = |last, offset: usize| {
                    let (qn, msn, mo) = (Queue::Send.number(), ahead.send_msn, offset as u32);
                    Header::Untagged { last, opcode, invalidate, qn, msn, mo }
                };
                let payload = Local { keys, by, segments };
                (cut, Framing { cut, header, payload, crc }.put(tx, pos, until(cut)))
            }
            Kind::Write | Kind::WriteFirst => {
                let (wqe, segments) = request()?;
                let cut = Cut::tagged(mulpdu, wqe.len as usize);
                let header = tagged(TaggedOpcode::Write, wqe.remote.key, wqe.remote.addr);
                let payload = Local { keys, by, segments };
                (cut, Framing { cut, header, payload, crc }.put(tx, pos, until(cut)))
            }
            Kind::Immediate => {
                let (wqe, _) = request()?;
                let mut payload = Inline([0; Immediate::SIZE]);
                Immediate(wqe.operands[0] as u32).emit(&mut payload.0);
                let cut = Cut::untagged(mulpdu, Immediate::SIZE);
                let opcode = UntaggedOpcode::immediate(wqe.flags & qp::SOLICITED != 0);
                let (qn, msn) = (Queue::Send.number(), ahead.send_msn);
                let header =
                    |last, _| Header::Untagged { last, opcode, invalidate: 0, qn, msn, mo: 0 };
                (cut, Framing { cut, header, payload, crc }.put(tx, pos, until(cut)))
            }
            Kind::Atomic => {
                let (wqe, _) = request()?;
                let [first, second] = wqe.operands;
                let request = AtomicRequest {
                    id: ahead.read_msn,
                    stag: wqe.remote.key,
                    to: wqe.remote.addr,
                    op: match wqe.op {
                        WcOp::CompareSwap => AtomicOp::cmp_swap(first, second),
                        _ => AtomicOp::fetch_add(first),
                    },
                };
                let mut payload = Inline([0; AtomicRequest::SIZE]);
                request.emit(&mut payload.0);
                let cut = Cut::untagged(mulpdu, AtomicRequest::SIZE);
                let header = |_, _| request_header(UntaggedOpcode::AtomicRequest, ahead.read_msn);
                (cut, Framing { cut, header, payload, crc }.put(tx, pos, until(cut)))
            }
            Kind::Read => {
                let (wqe, _) = request()?;
                let request = ReadRequest {
                    sink_stag: self.reads.sink_stag,
                    sink_to: Reads::sink_to(ahead.read_msn),
                    len: wqe.len,
                    source_stag: wqe.remote.key,
                    source_to: wqe.remote.addr,
                };
                let mut payload = Inline([0; ReadRequest::SIZE]);
                request.emit(&mut payload.0);
                let cut = Cut::untagged(mulpdu, ReadRequest::SIZE);
                let header = |_, _| request_header(UntaggedOpcode::ReadRequest, ahead.read_msn);
                (cut, Framing { cut, header, payload, crc }.put(tx, pos, until(cut)))
            }
            Kind::Answer => match *self.answers.ready(ahead.answer)? {
                Answer::Read { request, .. } => {
                    let cut = Cut::tagged(mulpdu, request.len as usize);
                    let header =
                        tagged(TaggedOpcode::ReadResponse, request.sink_stag, request.sink_to);
                    let payload = Source { keys, by, request };
                    (cut, Framing { cut, header, payload, crc }.put(tx, pos, until(cut)))
                }
                Answer::Performed { response, response_msn } => {
                    let mut payload = Inline([0; AtomicResponse::SIZE]);
                    response.emit(&mut payload.0);
                    let cut = Cut::untagged(mulpdu, AtomicResponse::SIZE);
                    let header = |_, _| response_header(response_msn);
                    (cut, Framing { cut, header, payload, crc }.put(tx, pos, until(cut)))
                }
                // Met in its turn, as with a read that fails; the cause is known already.
                Answer::Refused { .. } => (Cut::untagged(mulpdu, 0), (pos, Err(KeyError::Access))),
                Answer::Atomic { .. } => return None,
            },
            // There is nothing of it to be sent.
            Kind::Bind => return None,
            Kind::Rtr => {
                // RFC 6581, section 9.1: any STag and offset will do in a zero-length write; siw uses these.
                let cut = Cut::tagged(mulpdu, 0);
                let header = tagged(TaggedOpcode::Write, 1, 0);
                let payload = Local { keys, by, segments: &[] };
                (cut, Framing { cut, header, payload, crc }.put(tx, pos, until(cut)))
            }
        };
        Some(Framed { cut, to, result })
    }

    /// Binds a window, at the head of the send queue: all earlier requests are done.
    fn bind(&mut self) -> Result<(), Failure> {
        let bound = match self.work.request(self.tx.next) {
            Some((wqe, _)) => self.work.keys().bind(wqe.remote.key),
            None => Ok(()),
        };
        if bound.is_err() {
            self.work.fail(self.tx.next, WcStatus::BindFailed);
            return Err(self.fail(Terminate::new(Cause::RDMAP_CATASTROPHIC)));
        }
        self.work.done(self.tx.next);
        self.work.retire();
        self.work.announce();
        self.tx.next = self.tx.next.wrapping_add(1);
        self.tx.answered = 0;
        Ok(())
    }

    /// A message's memory may not be read (any more).
    #[cold]
    fn gather_failed(&mut self, kind: Kind, error: KeyError) -> Failure {
        let refusal = if kind == Kind::Answer { self.answers.refusal(error) } else { None };
        let terminate = refusal.unwrap_or_else(|| {
            self.work.fail(self.tx.next, WcStatus::LocalProtection);
            Terminate::new(Cause::RDMAP_CATASTROPHIC)
        });
        self.fail(terminate)
    }

    /// The kernel has found that memory which a vector names is not there any more, and has taken nothing.
    #[cold]
    pub(super) fn faulted(&mut self, tx: &mut TxVec) -> Result<(), Failure> {
        self.alive()?;
        if tx.keep_first() {
            return Ok(());
        }
        // The requests of any other vector may have left the queue.
        let first = tx.parts.first().filter(|_| tx.is_of(self.tx.turn));
        Err(match first.and_then(|part| part.message) {
            Some((kind, _)) => self.gather_failed(kind, KeyError::Invalid),
            None => self.fail(Terminate::new(Cause::RDMAP_CATASTROPHIC)),
        })
    }

    /// TCP has accepted the first `n` octets of a vector.
    pub(super) fn accepted(&mut self, tx: &mut TxVec, n: usize) {
        // The requests of any other vector may have left the queue.
        if !tx.is_of(self.tx.turn) {
            return;
        }
        let n = n.min(tx.bytes());
        self.stats.tx_bytes += n as u64;
        self.tx.record = if n == tx.bytes() { 0 } else { self.tx.record + n };
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
                self.tx.keep(tx, n, (end - pos) as usize);
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
        self.stats.tx_messages += 1;
        match kind {
            Kind::Rtr => {
                self.tx.rtr -= 1;
                return;
            }
            Kind::Answer => {
                self.answers.done(self.work.keys(), self.work.scope());
                self.tx.answered = self.tx.answered.saturating_add(1);
                return;
            }
            Kind::WriteFirst => {
                self.tx.written = true;
                return;
            }
            Kind::Send | Kind::Immediate => self.tx.send_msn = self.tx.send_msn.wrapping_add(1),
            Kind::Write | Kind::Bind => {}
            Kind::Read | Kind::Atomic => {
                if self.reads.outstanding == 0 {
                    self.reads.oldest = self.tx.next;
                }
                self.reads.outstanding += 1;
                self.reads.next_msn = self.reads.next_msn.wrapping_add(1);
            }
        }
        if !matches!(kind, Kind::Read | Kind::Atomic) {
            self.work.done(self.tx.next);
        }
        self.tx.next = self.tx.next.wrapping_add(1);
        self.tx.written = false;
        self.tx.answered = 0;
    }

    /// The octets that end this direction after a [`Failure`] not by the peer: the rest of an FPDU that is half sent, and
    /// the TERMINATE message. Best effort. Once, and before [`flush`](Self::flush); empty when there is none.
    pub fn terminate(&mut self) -> Vec<u8> {
        let Some(terminate) = self.last_words.take() else { return Vec::new() };
        let mut out = std::mem::take(&mut self.tx.rest);
        if let Some(kind) = self.tx.half {
            let pos = self.tx.pos;
            let mut tx = TxVec::new();
            match self.frame(&mut tx, kind, &self.ahead(), pos, true) {
                Some(framed) if framed.cut.frame(pos).start == pos => {}
                // SAFETY: its keys have just been checked, and under the engine lock no region goes.
                Some(Framed { result: Ok(()), .. }) if unsafe { tx.copy_to(&mut out) } => {}
                // The peer sees that the stream ends in the middle of a frame.
                _ => return Vec::new(),
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

/// The headers of a tagged message.
#[inline]
fn tagged(opcode: TaggedOpcode, stag: u32, base: u64) -> impl Fn(bool, usize) -> Header {
    // `wrapping_add`: the peer checks for a wrap.
    move |last, offset| Header::Tagged { last, opcode, stag, to: base.wrapping_add(offset as u64) }
}
