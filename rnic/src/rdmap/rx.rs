//! From frames to memory and completions: the rules of reception (RFC 5040, section 7; RFC 5041, section 7).
//!
//! Without CRC an FPDU is taken as it comes: header, payload straight to its place, trailer. With CRC the whole FPDU is
//! collected and verified first, then taken the same way.
//!
//! Every octet of payload is placed under a check of its key made in the same call: a region may go between two calls.

use std::ptr::with_exposed_provenance_mut;

use wire::iwarp::mpa::fpdu::{self, Fpdu, LENGTH_SIZE, Trailer, fpdu_len};
use wire::iwarp::{
    Cause, Header, MAX_HEADER, ReadRequest, TaggedOpcode, Terminate, TerminatedHeader, UntaggedOpcode, ddp,
};

use super::stream::{Failure, Stream};
use super::tx::Answer;
use super::vec::RxVec;
use crate::key::{KeyError, Right};
use crate::wr::{Segment, WcStatus};

/// The rest of a payload goes to its place by itself from so many octets; a smaller one is cheaper copied.
const DIRECT_MIN: usize = 2 << 10;
/// Behind an FPDU of so many octets the stage is short: another such is likely to follow, and its payload shall go to its
/// place as well. If it does not, that costs one system call.
const BULK_MIN: usize = 16 << 10;
/// Octets of ULPDU that are looked at together: the longest start of a frame, or a TERMINATE with all it may include.
const CARRY: usize = {
    let terminate = LENGTH_SIZE + ddp::UNTAGGED_SIZE + Terminate::MAX_SIZE;
    if terminate > MAX_HEADER { terminate } else { MAX_HEADER }
};

/// The receiving side of a stream.
pub(super) struct Rx {
    state: State,
    /// The FPDU in hand.
    frame: Frame,
    /// A header that has not come whole.
    carry: [u8; CARRY],
    carried: usize,
    /// With CRC: an FPDU that has not come whole.
    fpdu: Vec<u8>,

    /// MSN of the SEND in hand or to come, and the octets of it that have been placed.
    send_msn: u32,
    send_placed: u32,
    /// MSN of the next READ request.
    read_msn: u32,
    /// The WRITE in hand: STag, and where it goes on.
    write: Option<(u32, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Header,
    /// Payload, possibly none.
    Payload,
    /// Pad and CRC: so many octets more.
    Trailer(usize),
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    header: Header,
    ulpdu_len: usize,
    /// Octets of payload to be placed.
    left: usize,
    /// A [`Header::Untagged`] READ request's own header.
    request: Option<ReadRequest>,
}

/// What is known of the start of a frame.
enum Start {
    /// At least so many octets are needed, length field included.
    Needs(usize),
    /// Header, with so many octets.
    Took(usize),
}

impl Rx {
    pub(super) fn new() -> Self {
        let header = Header::Tagged { last: true, opcode: TaggedOpcode::Write, stag: 0, to: 0 };
        Rx {
            state: State::Header,
            frame: Frame { header, ulpdu_len: 0, left: 0, request: None },
            carry: [0; CARRY],
            carried: 0,
            fpdu: Vec::new(),
            send_msn: 1,
            send_placed: 0,
            read_msn: 1,
            write: None,
        }
    }

    pub(super) fn is_mid_message(&self) -> bool {
        self.state != State::Header
            || self.carried > 0
            || !self.fpdu.is_empty()
            || self.send_placed > 0
            || self.write.is_some()
    }
}

impl Stream {
    /// Says where the next octets go.
    pub(super) fn scatter(&mut self, rx: &mut RxVec) -> Result<(), Failure> {
        rx.clear();
        let bulk = self.rx.frame.ulpdu_len >= BULK_MIN;
        if self.crc {
            if let Some(missing) = self.rx.missing_of_fpdu() {
                self.rx.fpdu.reserve_exact(missing);
                rx.push_direct(self.rx.fpdu.spare_capacity_mut().as_mut_ptr().cast(), missing);
            }
            rx.push_stage(bulk);
            return Ok(());
        }
        let left = self.rx.frame.left;
        let mut room = true;
        if self.rx.state == State::Payload && left > 0 && (bulk || left >= DIRECT_MIN) {
            self.places(left, |at, len| {
                room = room && rx.push_direct(at, len);
            })?;
        }
        if room {
            rx.push_stage(bulk);
        }
        Ok(())
    }

    /// Takes what has come to where [`scatter`](Self::scatter) said.
    pub(super) fn scattered(&mut self, rx: &mut RxVec, n: usize) -> Result<(), Failure> {
        let (direct, staged) = rx.split(n);
        if direct > 0 {
            self.stats.rx_bytes += direct as u64;
            if self.crc {
                // SAFETY: so many octets have been read into the spare capacity, which `scatter` reserved.
                unsafe { self.rx.fpdu.set_len(self.rx.fpdu.len() + direct) };
                if self.rx.missing_of_fpdu() == Some(0) {
                    let fpdu = std::mem::take(&mut self.rx.fpdu);
                    self.verified(&fpdu)?;
                    self.rx.recycle(fpdu);
                }
            } else {
                self.stats.rx_direct += direct as u64;
                self.placed(direct);
            }
        }
        if staged.is_empty() { Ok(()) } else { self.feed(staged) }
    }

    /// Takes octets of the TCP stream.
    pub(super) fn feed(&mut self, data: &[u8]) -> Result<(), Failure> {
        self.stats.rx_bytes += data.len() as u64;
        if self.crc { self.collect(data) } else { self.take(data) }
    }

    /// With CRC: takes whole FPDUs and keeps what remains.
    fn collect(&mut self, mut data: &[u8]) -> Result<(), Failure> {
        while !data.is_empty() {
            if self.rx.fpdu.is_empty() {
                match Fpdu::parse(data) {
                    Some(fpdu) => {
                        let (fpdu, rest) = data.split_at(fpdu.len());
                        self.verified(fpdu)?;
                        data = rest;
                    }
                    None => {
                        self.rx.fpdu.extend_from_slice(data);
                        break;
                    }
                }
                continue;
            }
            let missing = match self.rx.missing_of_fpdu() {
                Some(missing) => missing,
                None => LENGTH_SIZE - self.rx.fpdu.len(),
            };
            let (more, rest) = data.split_at(missing.min(data.len()));
            self.rx.fpdu.extend_from_slice(more);
            data = rest;
            if self.rx.missing_of_fpdu() == Some(0) {
                let fpdu = std::mem::take(&mut self.rx.fpdu);
                self.verified(&fpdu)?;
                self.rx.recycle(fpdu);
            }
        }
        Ok(())
    }

    /// Takes one whole FPDU, if its CRC is right.
    fn verified(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if let Some(Err(error)) = Fpdu::parse(bytes).map(|fpdu| fpdu.check_crc()) {
            return Err(self.fail(Terminate::new(error.cause())));
        }
        self.take(bytes)
    }

    /// Takes octets as they come: without CRC, or verified.
    #[inline]
    fn take(&mut self, mut data: &[u8]) -> Result<(), Failure> {
        loop {
            match self.rx.state {
                State::Header => {
                    if data.is_empty() {
                        return Ok(());
                    }
                    data = self.take_header(data)?;
                }
                State::Payload => {
                    let n = self.rx.frame.left.min(data.len());
                    if n > 0 {
                        let (payload, rest) = data.split_at(n);
                        self.copy_to_place(payload)?;
                        self.placed(n);
                        data = rest;
                    }
                    if self.rx.frame.left > 0 {
                        return Ok(());
                    }
                    self.rx.state = State::Trailer(Trailer::size(self.rx.frame.ulpdu_len));
                }
                State::Trailer(left) => {
                    let n = left.min(data.len());
                    data = &data[n..];
                    if n < left {
                        self.rx.state = State::Trailer(left - n);
                        return Ok(());
                    }
                    self.rx.state = State::Header;
                    self.end_of_frame()?;
                }
            }
        }
    }

    /// Takes the start of a frame, or carries what there is of it.
    #[inline]
    fn take_header<'a>(&mut self, data: &'a [u8]) -> Result<&'a [u8], Failure> {
        if self.rx.carried == 0 {
            return match self.start(data)? {
                Start::Took(n) => Ok(&data[n..]),
                Start::Needs(_) => {
                    // Less than a header: what is needed never is more than fits.
                    self.rx.carry[..data.len()].copy_from_slice(data);
                    self.rx.carried = data.len();
                    Ok(&[])
                }
            };
        }
        let mut rest = data;
        loop {
            let carry = self.rx.carry;
            match self.start(&carry[..self.rx.carried])? {
                Start::Took(_) => {
                    self.rx.carried = 0;
                    return Ok(rest);
                }
                Start::Needs(_) if rest.is_empty() => return Ok(rest),
                // No more than is needed: the payload behind it stays in `rest`.
                Start::Needs(needed) => {
                    let n = (needed - self.rx.carried).min(rest.len());
                    let (more, after) = rest.split_at(n);
                    self.rx.carry[self.rx.carried..][..n].copy_from_slice(more);
                    self.rx.carried += n;
                    rest = after;
                }
            }
        }
    }

    /// Reads the start of a frame and decides what to do with its payload.
    #[inline]
    fn start(&mut self, bytes: &[u8]) -> Result<Start, Failure> {
        let Some((len, ulpdu)) = bytes.split_first_chunk::<LENGTH_SIZE>() else {
            return Ok(Start::Needs(LENGTH_SIZE));
        };
        let ulpdu_len = usize::from(u16::from_be_bytes(*len));
        if ulpdu_len < ddp::TAGGED_SIZE {
            return Err(self.fail(Terminate::new(Cause::MPA_LENGTH)));
        }
        let shown = ulpdu.get(..ulpdu_len).unwrap_or(ulpdu);
        let (header, size) = match Header::parse(shown) {
            Ok(Some(parsed)) => parsed,
            Ok(None) if shown.len() < ulpdu_len => {
                // The control octets tell which of the two.
                let untagged = shown.first().is_some_and(|control| control & 0x80 == 0);
                let size = if untagged { ddp::UNTAGGED_SIZE } else { ddp::TAGGED_SIZE };
                return Ok(Start::Needs(LENGTH_SIZE + size.min(ulpdu_len)));
            }
            Ok(None) => return Err(self.fail(Terminate::new(Cause::MPA_LENGTH))),
            Err(error) => {
                let cause = error.cause();
                // Errors of DDP name the segment (RFC 5040, figure 10): wait for its header.
                let header = TerminatedHeader::new(shown);
                if cause.layer == 1 && header.is_none() && shown.len() < ulpdu_len {
                    let size =
                        if cause == Cause::TAGGED_VERSION { ddp::TAGGED_SIZE } else { ddp::UNTAGGED_SIZE };
                    return Ok(Start::Needs(LENGTH_SIZE + size.min(ulpdu_len)));
                }
                let mut terminate = Terminate::new(cause);
                if cause.layer == 1 && header.is_some() {
                    terminate.header = header;
                    terminate.segment_len = Some(ulpdu_len as u16);
                }
                return Err(self.fail(terminate));
            }
        };
        let took = LENGTH_SIZE + size;
        self.rx.frame = Frame { header, ulpdu_len, left: ulpdu_len - size, request: None };
        let took = match header {
            Header::Tagged { opcode: TaggedOpcode::Write, stag, to, .. } => {
                self.start_write(stag, to)?;
                took
            }
            Header::Tagged { opcode: TaggedOpcode::ReadResponse, last, stag, to } => {
                self.start_response(last, stag, to)?;
                took
            }
            Header::Untagged { opcode, qn, msn, mo, last, .. } => {
                if qn != opcode.queue().number() {
                    return Err(self.refuse(Cause::UNTAGGED_QN));
                }
                match opcode {
                    _ if opcode.is_send() => {
                        self.start_send(msn, mo)?;
                        took
                    }
                    UntaggedOpcode::ReadRequest => {
                        if ulpdu_len != size + ReadRequest::SIZE {
                            return Err(self.fail(Terminate::new(Cause::MPA_LENGTH)));
                        }
                        let Some(request) = ReadRequest::parse(&shown[size..]) else {
                            return Ok(Start::Needs(took + ReadRequest::SIZE));
                        };
                        self.start_request(msn, mo, last, request)?;
                        took + ReadRequest::SIZE
                    }
                    UntaggedOpcode::Terminate => {
                        let len = ulpdu_len.min(CARRY - LENGTH_SIZE);
                        if shown.len() < len {
                            return Ok(Start::Needs(LENGTH_SIZE + len));
                        }
                        return Err(self.terminated(&shown[size..len]));
                    }
                    // The operations of RFC 7306 have not been agreed on.
                    _ => return Err(self.fail(Terminate::new(Cause::UNEXPECTED_OPCODE))),
                }
            }
        };
        self.rx.state = State::Payload;
        Ok(Start::Took(took))
    }

    #[inline]
    fn start_send(&mut self, msn: u32, mo: u32) -> Result<(), Failure> {
        if msn != self.rx.send_msn {
            return Err(self.refuse(Cause::UNTAGGED_MSN));
        }
        if mo != self.rx.send_placed {
            return Err(self.refuse(Cause::UNTAGGED_MO));
        }
        let Some(buffer) = self.work.recv().or_else(|| self.work.take_recv()) else {
            return Err(self.refuse(Cause::UNTAGGED_NO_BUFFER));
        };
        let len = u64::from(mo) + self.rx.frame.left as u64;
        if len > buffer.len.min(u32::MAX.into()) {
            self.work.finish_recv(len.min(u32::MAX.into()) as u32, None, WcStatus::LocalLength, true);
            return Err(self.refuse(Cause::UNTAGGED_TOO_LONG));
        }
        Ok(())
    }

    #[inline]
    fn start_write(&mut self, stag: u32, to: u64) -> Result<(), Failure> {
        if let Some((expected_stag, expected_to)) = self.rx.write {
            if stag != expected_stag {
                return Err(self.refuse(Cause::TAGGED_STAG));
            }
            if to != expected_to {
                return Err(self.refuse(Cause::TAGGED_BOUNDS));
            }
        }
        self.rx.write = Some((stag, to));
        self.check_write()
    }

    /// Checks that the rest of a WRITE segment may be placed.
    #[inline]
    fn check_write(&mut self) -> Result<(), Failure> {
        let left = self.rx.frame.left as u64;
        let Some((stag, to)) = self.rx.write.filter(|_| left > 0) else { return Ok(()) };
        self.work.keys().check(stag, self.work.pd(), to, left, Right::RemoteWrite).map_err(|error| {
            self.refuse(match error {
                KeyError::Invalid | KeyError::Access => Cause::TAGGED_STAG,
                KeyError::Domain => Cause::TAGGED_NOT_ASSOCIATED,
                KeyError::Bounds => Cause::TAGGED_BOUNDS,
                KeyError::Wrap => Cause::TAGGED_TO_WRAP,
            })
        })
    }

    #[inline]
    fn start_response(&mut self, last: bool, stag: u32, to: u64) -> Result<(), Failure> {
        let read = match self.reads.outstanding {
            0 => None,
            _ => self.work.request(self.reads.oldest).map(|(&wqe, _)| wqe),
        };
        let Some(wqe) = read else { return Err(self.refuse(Cause::TAGGED_STAG)) };
        let end = u64::from(self.reads.placed) + self.rx.frame.left as u64;
        let cause = match wqe.len {
            // STag and offset of nothing are not looked at.
            0 if last && end == 0 => return Ok(()),
            _ if stag != self.reads.sink_stag => Cause::TAGGED_STAG,
            _ if to != self.reads.oldest_sink_to() + u64::from(self.reads.placed) => Cause::TAGGED_BOUNDS,
            // Too much, or the end too soon.
            len if end > len.into() || (last && end < len.into()) => Cause::TAGGED_BOUNDS,
            _ => return Ok(()),
        };
        self.work.fail(self.reads.oldest, WcStatus::BadResponse);
        Err(self.refuse(cause))
    }

    #[inline]
    fn start_request(&mut self, msn: u32, mo: u32, last: bool, request: ReadRequest) -> Result<(), Failure> {
        self.rx.frame.left = 0;
        self.rx.frame.request = Some(request);
        if msn != self.rx.read_msn {
            return Err(self.refuse(Cause::UNTAGGED_MSN));
        }
        // RFC 5040, section 4.4: a READ request is one segment.
        if mo != 0 || !last {
            return Err(self.refuse(Cause::UNTAGGED_MO));
        }
        // A zero-length READ may serve as RTR frame, which no depth is needed for (RFC 6581, section 9.1).
        let rtr = msn == 1 && request.len == 0;
        if self.answers.len() >= self.ird && !rtr {
            return Err(self.fail(Terminate::new(Cause::STREAM_CATASTROPHIC)));
        }
        Ok(())
    }

    /// The FPDU in hand is complete.
    #[inline]
    fn end_of_frame(&mut self) -> Result<(), Failure> {
        self.stats.rx_fpdus += 1;
        // RFC 5044, section 7.1.3: with the first FPDU the initiator shows that it is ready.
        self.hold = false;
        if !self.rx.frame.header.last() {
            return Ok(());
        }
        self.stats.rx_messages += 1;
        match self.rx.frame.header {
            Header::Tagged { opcode: TaggedOpcode::Write, .. } => self.rx.write = None,
            Header::Tagged { opcode: TaggedOpcode::ReadResponse, .. } => self.end_of_response(),
            Header::Untagged { opcode: UntaggedOpcode::ReadRequest, msn, .. } => {
                self.rx.read_msn = msn.wrapping_add(1);
                if let Some(request) = self.rx.frame.request {
                    self.answers.push_back(Answer { request, msn });
                }
            }
            Header::Untagged { opcode, invalidate, .. } => {
                let invalidated = opcode.invalidates().then_some(invalidate);
                if let Some(stag) = invalidated {
                    self.invalidate(stag)?;
                }
                let bytes = std::mem::take(&mut self.rx.send_placed);
                self.rx.send_msn = self.rx.send_msn.wrapping_add(1);
                self.work.finish_recv(bytes, invalidated, WcStatus::Success, opcode.solicited());
            }
        }
        Ok(())
    }

    #[inline]
    fn end_of_response(&mut self) {
        let reads = &mut self.reads;
        self.work.done(reads.oldest);
        (reads.placed, reads.outstanding) = (0, reads.outstanding - 1);
        if reads.outstanding > 0 {
            loop {
                reads.oldest = reads.oldest.wrapping_add(1);
                match self.work.request(reads.oldest) {
                    Some((wqe, _)) if wqe.op != crate::wr::WcOp::Read => {}
                    _ => break,
                }
            }
        }
    }

    fn invalidate(&mut self, stag: u32) -> Result<(), Failure> {
        let cause = match self.work.keys().invalidate(stag, self.work.pd()) {
            Ok(()) => return Ok(()),
            Err(KeyError::Domain) => Cause::PROTECTION_INVALIDATE,
            Err(_) => Cause::OPERATION_INVALIDATE,
        };
        Err(self.refuse(cause))
    }

    /// Copies payload to its place.
    #[inline]
    fn copy_to_place(&mut self, mut payload: &[u8]) -> Result<(), Failure> {
        self.places(payload.len(), |at, len| {
            let (piece, rest) = payload.split_at(len);
            // SAFETY: registered memory, checked to be writable for this use; the stage is no part of it.
            unsafe { at.copy_from_nonoverlapping(piece.as_ptr(), len) };
            payload = rest;
        })
    }

    /// Names the memory where the next `len` octets of the payload in hand go, once it has been checked that they may.
    #[inline]
    fn places(&mut self, len: usize, mut place: impl FnMut(*mut u8, usize)) -> Result<(), Failure> {
        let failed = match self.rx.frame.header {
            Header::Tagged { opcode: TaggedOpcode::Write, .. } => {
                self.check_write()?;
                if let Some((_, to)) = self.rx.write {
                    place(with_exposed_provenance_mut(to as usize), len);
                }
                return Ok(());
            }
            Header::Tagged { opcode: TaggedOpcode::ReadResponse, .. } => {
                let read = self.work.request(self.reads.oldest);
                let segments = read.map_or(&[][..], |(_, segments)| segments);
                let placed = self.reads.placed as usize;
                self.pieces_of(segments, self.work.pd(), placed, len, &mut place)
            }
            Header::Untagged { .. } => {
                let (pd, segments) = self.work.recv_segments();
                self.pieces_of(segments, pd, self.rx.send_placed as usize, len, &mut place)
            }
        };
        failed.map_err(|_| self.sink_gone())
    }

    #[inline]
    fn pieces_of(
        &self,
        segments: &[Segment],
        pd: crate::key::Pd,
        mut offset: usize,
        mut len: usize,
        place: &mut impl FnMut(*mut u8, usize),
    ) -> Result<(), KeyError> {
        for segment in segments {
            let size = segment.len as usize;
            if offset >= size {
                offset -= size;
                continue;
            }
            let n = len.min(size - offset);
            let addr = segment.addr + offset as u64;
            self.work.keys().check(segment.key, pd, addr, n as u64, Right::LocalWrite)?;
            place(with_exposed_provenance_mut(addr as usize), n);
            (offset, len) = (0, len - n);
            if len == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Local memory of the message in hand is registered no more.
    #[cold]
    fn sink_gone(&mut self) -> Failure {
        match self.rx.frame.header {
            Header::Tagged { .. } => self.work.fail(self.reads.oldest, WcStatus::LocalProtection),
            Header::Untagged { .. } => {
                self.work.finish_recv(self.rx.send_placed, None, WcStatus::LocalProtection, true);
            }
        }
        self.fail(Terminate::new(Cause::RDMAP_CATASTROPHIC))
    }

    /// `n` octets of payload are in their place.
    #[inline]
    fn placed(&mut self, n: usize) {
        self.rx.frame.left -= n;
        match self.rx.frame.header {
            Header::Tagged { opcode: TaggedOpcode::Write, .. } => {
                if let Some((_, to)) = &mut self.rx.write {
                    *to = to.wrapping_add(n as u64);
                }
            }
            Header::Tagged { opcode: TaggedOpcode::ReadResponse, .. } => self.reads.placed += n as u32,
            Header::Untagged { .. } => self.rx.send_placed += n as u32,
        }
    }

    /// The peer has sent TERMINATE.
    #[cold]
    fn terminated(&mut self, bytes: &[u8]) -> Failure {
        let cause = match Terminate::parse(bytes) {
            Ok((terminate, _)) => terminate.cause,
            // Its sender has given up, whatever for.
            Err(_) => Cause::OPERATION_UNSPECIFIED,
        };
        // It does not say which request it is about, or truncates it; where access was refused, the read that waits for
        // its answer is the likely one.
        if self.reads.outstanding > 0 && matches!(cause, Cause { layer: 0 | 1, etype: 1, .. }) {
            self.work.fail(self.reads.oldest, WcStatus::RemoteAccess);
        }
        let failure = Failure { by_peer: true, cause };
        self.failure = Some(failure);
        failure
    }

    /// Refuses the segment in hand, naming it.
    #[cold]
    fn refuse(&mut self, cause: Cause) -> Failure {
        let mut terminate = Terminate::new(cause);
        terminate.segment_len = Some(self.rx.frame.ulpdu_len as u16);
        terminate.header = Some(self.rx.frame.header.into());
        self.fail(terminate)
    }
}

impl Rx {
    /// With CRC: octets that the FPDU begun still needs; `None`: none begun, or its length has not come.
    fn missing_of_fpdu(&self) -> Option<usize> {
        let len = self.fpdu.first_chunk::<LENGTH_SIZE>()?;
        Some(fpdu_len(usize::from(u16::from_be_bytes(*len))) - self.fpdu.len())
    }

    /// Keeps the memory of an FPDU for the next.
    fn recycle(&mut self, mut fpdu: Vec<u8>) {
        const { assert!(fpdu_len(fpdu::MAX_ULPDU) < 1 << 17) };
        fpdu.clear();
        self.fpdu = fpdu;
    }
}
