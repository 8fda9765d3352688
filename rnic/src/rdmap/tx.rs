//! The sending side: turns work requests into frames.
//!
//! Each time a frame is passed to TCP, it is built from the work request and a position. Octets
//! that TCP does not accept are built again, so a stream needs no buffer of its own. There is one
//! exception: if a frame with a CRC is partly sent, the rest of the frame is kept. If it were built
//! again from memory that has changed, the CRC would not match.

use wire::iwarp::mpa::fpdu::{LENGTH_SIZE, fpdu_len, write_crc};
use wire::iwarp::{
    AtomicOp, AtomicRequest, AtomicResponse, Cause, Header, Immediate, Placement, Queue,
    ReadRequest, TaggedOpcode, Terminate, UntaggedOpcode,
};
use work::cause::{AccessKind, LocalUse, Refusal};

use super::answer::{Answer, request_header, response_header};
use super::frame::{Framing, Inline, Local, Source};
use super::message::MessageLayout;
use super::setup::{SIGNATURE_STAG, SIGNATURE_TO};
use super::stream::{Failure, Reads, Stream};
use super::vec::{GatherId, TxVec};
use crate::key::KeyError;
use crate::wqe::Wqe;
use crate::wr::{OpKind, WcStatus};

/// The number of answers to the peer's requests that are sent in a row while requests of this side
/// wait.
const ANSWER_BURST: u8 = 4;

/// The sending side of a stream.
pub(super) struct Tx {
    mulpdu: usize,
    /// The position in the send queue of the request that is partly sent, or of the next request to
    /// be started.
    pub(super) next: usize,
    /// The message of which TCP has accepted the first `pos` octets but not the rest.
    partial: Option<Kind>,
    pos: u64,
    /// Whether the write of the request at `next` has been sent, so that its immediate data come
    /// next.
    written: bool,
    send_msn: u32,
    /// The number of answers since the latest request of this side.
    answered: u8,
    /// The number of RTR frames to be sent.
    pub(super) rtr: u32,
    /// With CRC, the octets of a partly sent frame that TCP has not accepted. `pos` is the end of
    /// this frame.
    rest: Vec<u8>,
    /// The segment size: see [`StreamCfg::segment`](super::stream::StreamCfg::segment).
    segment: usize,
    /// The number of octets that TCP has accepted since the last octet that had to start a segment.
    record: usize,
    /// The current gathering. A flush ends this gathering.
    gather_id: GatherId,
}

/// The source of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The RTR frame.
    Rtr,
    /// The report that this number of the peer's writes are placed.
    Report(u64),
    /// The oldest entry of [`Stream::answers`], or a later entry while gathering.
    Answer,
    /// A send request. Like each kind below, it is the request at [`Tx::next`], or a later one
    /// while gathering.
    Send,
    Write,
    /// The first of the two messages of a write with immediate data.
    WriteFirst,
    /// The second of the two messages of a write with immediate data.
    Immediate,
    Read,
    Atomic,
    /// A request that concerns only this side, so that no octets are sent for it.
    Local,
}

/// The octets of one message that a [`TxVec`] holds, from `from` to `to`.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The message. `None` for the octets of [`Tx::rest`].
    message: Option<(Kind, MessageLayout)>,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// The state of gathering: the values that [`Tx`] and [`Reads`] will have when all gathered octets
/// have been accepted.
struct GatherState {
    request: usize,
    written: bool,
    answer: usize,
    answered: u8,
    rtr: u32,
    told: u64,
    send_msn: u32,
    read_msn: u32,
    reads: u32,
}

/// The part of a message that was added to a [`TxVec`]: the message up to position `to`.
struct Framed {
    layout: MessageLayout,
    to: u64,
    result: Result<(), KeyError>,
}

impl GatherState {
    /// Advances past a message.
    #[inline]
    fn advance(&mut self, kind: Kind) {
        match kind {
            Kind::Rtr => {
                self.rtr -= 1;
                return;
            }
            Kind::Report(placed) => {
                self.told = placed;
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
            Kind::Write | Kind::Local => {}
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
            partial: None,
            pos: 0,
            written: false,
            send_msn: 1,
            answered: 0,
            rtr: 0,
            rest: Vec::new(),
            segment,
            record: 0,
            gather_id: GatherId::first(),
        }
    }

    /// Sets the sizes of frames. Nothing may have been sent yet.
    pub(super) fn set_sizes(&mut self, mulpdu: usize, segment: usize) {
        (self.mulpdu, self.segment) = (mulpdu, segment);
    }

    /// Keeps the rest of a frame that is partly sent: `len` octets, from the `skip`th octet of a
    /// vector on. With CRC, all these octets are in the stage.
    #[cold]
    fn keep_rest(&mut self, tx: &TxVec, skip: usize, len: usize) {
        tx.copy_staged_to(&mut self.rest, skip, len);
    }

    /// Discards a message that is partly sent.
    pub(super) fn abandon(&mut self) {
        self.gather_id.renew();
        (self.partial, self.pos, self.rtr, self.rest) = (None, 0, 0, Vec::new());
    }
}

impl Stream {
    pub(super) fn is_partly_sent(&self) -> bool {
        self.tx.partial.is_some() || !self.tx.rest.is_empty()
    }

    /// Returns whether a message can be started.
    pub(super) fn has_ready(&self) -> bool {
        self.next_message(&self.gather_state()).is_some()
    }

    /// Returns whether a message can be started that is not a report of placed writes.
    pub(super) fn has_ready_beside_report(&self) -> bool {
        let state = GatherState { told: self.writes.placed, ..self.gather_state() };
        self.next_message(&state).is_some()
    }

    fn gather_state(&self) -> GatherState {
        GatherState {
            request: self.tx.next,
            written: self.tx.written,
            answer: 0,
            answered: self.tx.answered,
            rtr: self.tx.rtr,
            told: self.writes.told,
            send_msn: self.tx.send_msn,
            read_msn: self.reads.next_msn,
            reads: self.reads.outstanding,
        }
    }

    /// Returns the next message, or `None` if nothing may be sent.
    #[inline]
    fn next_message(&self, state: &GatherState) -> Option<Kind> {
        if state.rtr > 0 {
            return Some(Kind::Rtr);
        }
        if state.told != self.writes.placed {
            return Some(Kind::Report(self.writes.placed));
        }
        if state.written {
            return Some(Kind::Immediate);
        }
        let answer = self.answers.ready(state.answer).map(|_| Kind::Answer);
        if answer.is_some() && state.answered < ANSWER_BURST {
            return answer;
        }
        let Some((wqe, _)) = self.work.request(state.request) else { return answer };
        // A fenced request waits until all reads and atomic operations of this side have completed.
        // A read or atomic operation waits until fewer than ORD of these operations are
        // outstanding.
        if wqe.has(Wqe::FENCE) && state.reads > 0 {
            return answer;
        }
        let facts = wqe.op.facts();
        match facts.remote {
            _ if facts.awaits_response() && state.reads >= self.ord => answer,
            Some(AccessKind::Read) => Some(Kind::Read),
            Some(AccessKind::Atomic) => Some(Kind::Atomic),
            Some(AccessKind::Write) if facts.has_immediate => Some(Kind::WriteFirst),
            Some(AccessKind::Write) => Some(Kind::Write),
            _ if !facts.is_local() => Some(Kind::Send),
            _ if state.reads > 0 => answer,
            _ => Some(Kind::Local),
        }
    }

    /// Fills `tx` with frames that are ready.
    pub(super) fn gather(&mut self, tx: &mut TxVec) -> Result<(), Failure> {
        self.tx.gather_id.renew();
        tx.begin(self.tx.gather_id, self.tx.segment, self.tx.record);
        self.check_failure()?;
        if self.hold {
            return Ok(());
        }
        if !self.tx.rest.is_empty() {
            let len = self.tx.rest.len();
            tx.staged(len).copy_from_slice(&self.tx.rest);
            tx.push_staged(len);
            tx.parts.push(Part { message: None, from: 0, to: len as u64 });
        }
        let mut state = self.gather_state();
        let (mut partial, mut pos) = (self.tx.partial, self.tx.pos);
        while tx.octets() < TxVec::MAX_OCTETS {
            let Some(kind) = partial.take().or_else(|| self.next_message(&state)) else { break };
            if kind == Kind::Local {
                // The request waits until all gathered octets have been accepted. The next
                // gathering then begins at this request.
                if tx.octets() > 0 {
                    break;
                }
                self.carry_out_local()?;
                state = self.gather_state();
                continue;
            }
            let Some(Framed { layout, to, result }) = self.frame(tx, kind, &state, pos, false)
            else {
                break;
            };
            if to > pos {
                tx.parts.push(Part { message: Some((kind, layout)), from: pos, to });
            }
            if let Err(error) = result {
                // The octets before the failed message are sent first. The next gathering then
                // finds the error again.
                if tx.octets() == 0 {
                    return Err(self.gather_failed(kind, error, error.into()));
                }
                break;
            }
            if to < layout.total() {
                break;
            }
            pos = 0;
            state.advance(kind);
        }
        Ok(())
    }

    /// Frames a message from position `pos` on. If `one` is true, frames only the frame that
    /// contains this position.
    #[inline]
    fn frame(
        &self,
        tx: &mut TxVec,
        kind: Kind,
        state: &GatherState,
        pos: u64,
        one: bool,
    ) -> Option<Framed> {
        let (crc, mulpdu, keys, by) =
            (self.crc, self.tx.mulpdu, self.work.keys(), self.work.scope());
        let until =
            |layout: MessageLayout| if one { layout.frame_end(pos) } else { layout.total() };
        let request = || self.work.request(state.request);
        let (layout, (to, result)) = match kind {
            Kind::Send => {
                let (wqe, segments) = request()?;
                let invalidates = wqe.op.facts().remote == Some(AccessKind::Invalidate);
                let opcode = UntaggedOpcode::send(wqe.has(Wqe::SOLICITED), invalidates);
                let invalidate = if invalidates { wqe.remote_key } else { 0 };
                let layout = MessageLayout::untagged(mulpdu, wqe.len as usize);
                let header = |last, offset: usize| {
                    let (qn, msn, mo) = (Queue::Send.number(), state.send_msn, offset as u32);
                    Header::Untagged { last, opcode, invalidate, qn, msn, mo }
                };
                let payload = Local { keys, by, segments };
                (layout, Framing { layout, header, payload, crc }.put(tx, pos, until(layout)))
            }
            Kind::Write | Kind::WriteFirst => {
                let (wqe, segments) = request()?;
                let layout = MessageLayout::tagged(mulpdu, wqe.len as usize);
                let placement = match self.writes.awaits_report(wqe) {
                    true => Placement::Wanted,
                    false => Placement::Unsaid,
                };
                let header = write(placement, wqe.remote_key, wqe.remote_addr);
                let payload = Local { keys, by, segments };
                (layout, Framing { layout, header, payload, crc }.put(tx, pos, until(layout)))
            }
            Kind::Immediate => {
                let (wqe, _) = request()?;
                let mut payload = Inline([0; Immediate::SIZE]);
                Immediate(wqe.operands[0] as u32).emit(&mut payload.0);
                let layout = MessageLayout::untagged(mulpdu, Immediate::SIZE);
                let opcode = UntaggedOpcode::immediate(wqe.has(Wqe::SOLICITED));
                let (qn, msn) = (Queue::Send.number(), state.send_msn);
                let header =
                    |last, _| Header::Untagged { last, opcode, invalidate: 0, qn, msn, mo: 0 };
                (layout, Framing { layout, header, payload, crc }.put(tx, pos, until(layout)))
            }
            Kind::Atomic => {
                let (wqe, _) = request()?;
                let [first, second] = wqe.operands;
                let request = AtomicRequest {
                    id: state.read_msn,
                    stag: wqe.remote_key,
                    to: wqe.remote_addr,
                    op: match wqe.op {
                        OpKind::CompareSwap => AtomicOp::cmp_swap(first, second),
                        _ => AtomicOp::fetch_add(first),
                    },
                };
                let mut payload = Inline([0; AtomicRequest::SIZE]);
                request.emit(&mut payload.0);
                let layout = MessageLayout::untagged(mulpdu, AtomicRequest::SIZE);
                let header = |_, _| request_header(UntaggedOpcode::AtomicRequest, state.read_msn);
                (layout, Framing { layout, header, payload, crc }.put(tx, pos, until(layout)))
            }
            Kind::Read => {
                let (wqe, _) = request()?;
                let request = ReadRequest {
                    sink_stag: self.reads.sink_stag,
                    sink_to: Reads::sink_to(state.read_msn),
                    len: wqe.len,
                    source_stag: wqe.remote_key,
                    source_to: wqe.remote_addr,
                };
                let mut payload = Inline([0; ReadRequest::SIZE]);
                request.emit(&mut payload.0);
                let layout = MessageLayout::untagged(mulpdu, ReadRequest::SIZE);
                let header = |_, _| request_header(UntaggedOpcode::ReadRequest, state.read_msn);
                (layout, Framing { layout, header, payload, crc }.put(tx, pos, until(layout)))
            }
            Kind::Answer => match *self.answers.ready(state.answer)? {
                Answer::Read { request, .. } => {
                    let layout = MessageLayout::tagged(mulpdu, request.len as usize);
                    let header = read_response(request.sink_stag, request.sink_to);
                    let payload = Source { keys, by, request };
                    (layout, Framing { layout, header, payload, crc }.put(tx, pos, until(layout)))
                }
                Answer::Performed { response, response_msn } => {
                    let mut payload = Inline([0; AtomicResponse::SIZE]);
                    response.emit(&mut payload.0);
                    let layout = MessageLayout::untagged(mulpdu, AtomicResponse::SIZE);
                    let header = |_, _| response_header(response_msn);
                    (layout, Framing { layout, header, payload, crc }.put(tx, pos, until(layout)))
                }
                // A refused atomic operation is reported when its turn comes, like a read that
                // fails. `refusal` then returns its actual cause.
                Answer::Refused { .. } => {
                    (MessageLayout::untagged(mulpdu, 0), (pos, Err(KeyError::Access)))
                }
                Answer::Atomic { .. } => return None,
            },
            Kind::Local => return None,
            Kind::Rtr => {
                // A zero-length write may name any STag and offset (RFC 6581, section 9.1). Towards
                // another implementation, these are the ones that siw uses.
                let layout = MessageLayout::tagged(mulpdu, 0);
                let (stag, to) = match self.extended {
                    true => (SIGNATURE_STAG, SIGNATURE_TO),
                    false => (1, 0),
                };
                let header = write(Placement::Unsaid, stag, to);
                let payload = Local { keys, by, segments: &[] };
                (layout, Framing { layout, header, payload, crc }.put(tx, pos, until(layout)))
            }
            Kind::Report(placed) => {
                let layout = MessageLayout::tagged(mulpdu, 0);
                let header = write(Placement::Reported, 1, placed);
                let payload = Local { keys, by, segments: &[] };
                (layout, Framing { layout, header, payload, crc }.put(tx, pos, until(layout)))
            }
        };
        Some(Framed { layout, to, result })
    }

    /// Carries out a request that concerns only this side, when all earlier ones have completed.
    fn carry_out_local(&mut self) -> Result<(), Failure> {
        if self.work.carry_out_local(self.tx.next).is_none() {
            return Err(self.fail(Terminate::new(Cause::RDMAP_CATASTROPHIC)));
        }
        self.tx.next = self.tx.next.wrapping_add(1);
        self.tx.answered = 0;
        Ok(())
    }

    /// Handles a message whose memory cannot be read, because access was never allowed or is no
    /// longer allowed.
    #[cold]
    fn gather_failed(&mut self, kind: Kind, error: KeyError, why: Refusal) -> Failure {
        match self.answers.refused_access(why).filter(|_| kind == Kind::Answer) {
            Some((access, why)) => self.work.report_refused(access, why),
            None => self.work.report_local(LocalUse::Source, why),
        }
        let refusal = if kind == Kind::Answer { self.answers.refusal(error) } else { None };
        let terminate = refusal.unwrap_or_else(|| {
            self.work.fail(self.tx.next, WcStatus::LocalProtection);
            Terminate::new(Cause::RDMAP_CATASTROPHIC)
        });
        self.fail(terminate)
    }

    /// Handles a vector that names memory which is no longer mapped. The kernel has accepted no
    /// octet of the vector.
    #[cold]
    pub(super) fn faulted(&mut self, tx: &mut TxVec) -> Result<(), Failure> {
        self.check_failure()?;
        if tx.keep_first() {
            return Ok(());
        }
        // If another gathering has filled the vector, its requests may have left the queue.
        let first = tx.parts.first().filter(|_| tx.was_filled_by(self.tx.gather_id));
        Err(match first.and_then(|part| part.message) {
            Some((kind, _)) => self.gather_failed(kind, KeyError::Invalid, Refusal::Unmapped),
            None => self.fail(Terminate::new(Cause::RDMAP_CATASTROPHIC)),
        })
    }

    /// Handles the first `n` octets of a vector, which TCP has accepted.
    pub(super) fn accepted(&mut self, tx: &mut TxVec, n: usize) {
        // If another gathering has filled the vector, its requests may have left the queue.
        if !tx.was_filled_by(self.tx.gather_id) {
            return;
        }
        let n = n.min(tx.octets());
        self.stats.tx_octets += n as u64;
        self.tx.record = if n == tx.octets() { 0 } else { self.tx.record + n };
        let mut left = n as u64;
        for part in &tx.parts {
            let took = left.min(part.to - part.from);
            left -= took;
            let Some((kind, layout)) = part.message else {
                self.tx.rest.drain(..took as usize);
                if !self.tx.rest.is_empty() {
                    break;
                }
                continue;
            };
            let mut pos = part.from + took;
            if self.crc && pos > 0 && pos < part.to && layout.frame(pos).start != pos {
                let end = layout.frame_end(pos);
                self.tx.keep_rest(tx, n, (end - pos) as usize);
                pos = end;
            }
            if pos == layout.total() {
                self.finish(kind);
                (self.tx.partial, self.tx.pos) = (None, 0);
            } else if pos > 0 {
                (self.tx.partial, self.tx.pos) = (Some(kind), pos);
            }
            if left == 0 {
                break;
            }
        }
        tx.parts.clear();
    }

    /// Handles a message that TCP has accepted completely.
    #[inline]
    fn finish(&mut self, kind: Kind) {
        self.stats.tx_messages += 1;
        let mut is_done = true;
        match kind {
            Kind::Rtr => {
                self.tx.rtr -= 1;
                return;
            }
            Kind::Report(placed) => {
                self.writes.told = placed;
                return;
            }
            Kind::Answer => {
                self.answers.remove_oldest(self.work.keys(), self.work.scope());
                self.tx.answered = self.tx.answered.saturating_add(1);
                return;
            }
            Kind::WriteFirst => {
                self.await_report();
                self.tx.written = true;
                return;
            }
            Kind::Immediate => {
                self.tx.send_msn = self.tx.send_msn.wrapping_add(1);
                is_done = !self.is_next_unreported();
            }
            Kind::Send => self.tx.send_msn = self.tx.send_msn.wrapping_add(1),
            Kind::Write => is_done = !self.await_report(),
            Kind::Local => {}
            Kind::Read | Kind::Atomic => {
                is_done = false;
                if self.reads.outstanding == 0 {
                    self.reads.oldest = self.tx.next;
                }
                self.reads.outstanding += 1;
                self.reads.next_msn = self.reads.next_msn.wrapping_add(1);
            }
        }
        if is_done {
            self.work.done(self.tx.next);
        }
        self.tx.next = self.tx.next.wrapping_add(1);
        self.tx.written = false;
        self.tx.answered = 0;
    }

    /// Returns the last octets that this side sends after it has detected a [`Failure`]: the rest
    /// of an FPDU that is partly sent, and the TERMINATE message. Call this once, before
    /// [`flush`](Self::flush). The result is empty if there is no message, or if the rest of the
    /// FPDU cannot be read any more.
    pub fn terminate(&mut self) -> Vec<u8> {
        let Some(terminate) = self.pending_terminate.take() else { return Vec::new() };
        let mut out = std::mem::take(&mut self.tx.rest);
        if let Some(kind) = self.tx.partial {
            let pos = self.tx.pos;
            let mut tx = TxVec::new();
            match self.frame(&mut tx, kind, &self.gather_state(), pos, true) {
                Some(framed) if framed.layout.frame(pos).start == pos => {}
                // SAFETY: the keys have just been checked, and no region is deregistered under the
                // engine lock.
                Some(Framed { result: Ok(()), .. }) if unsafe { tx.copy_to(&mut out) } => {}
                // The rest of the FPDU cannot be read. The peer sees that the stream has ended in
                // the middle of a frame.
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
            write_crc(frame);
        }
        out
    }
}

/// Creates the headers of an RDMA WRITE. Only the last one has the `placement`.
#[inline]
fn write(placement: Placement, stag: u32, base: u64) -> impl Fn(bool, usize) -> Header {
    move |last, offset| Header::Tagged {
        last,
        opcode: TaggedOpcode::Write,
        placement: if last { placement } else { Placement::Unsaid },
        stag,
        // The sum may wrap. The peer checks the offset.
        to: base.wrapping_add(offset as u64),
    }
}

/// Creates the headers of a READ response.
#[inline]
fn read_response(stag: u32, base: u64) -> impl Fn(bool, usize) -> Header {
    move |last, offset| Header::Tagged {
        last,
        opcode: TaggedOpcode::ReadResponse,
        placement: Placement::Unsaid,
        stag,
        to: base.wrapping_add(offset as u64),
    }
}
