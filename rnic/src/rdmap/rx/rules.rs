//! The rules of reception: which segments are valid, how they are processed, and which TERMINATE
//! message answers an invalid segment.

use wire::iwarp::mpa::fpdu::LENGTH_SIZE;
use wire::iwarp::{
    AtomicRequest, AtomicResponse, Cause, Header, Immediate, Placement, ReadRequest, TaggedOpcode,
    Terminate, TerminatedHeader, UntaggedOpcode, ddp,
};
use work::cause::Cause as Told;

use super::super::stream::{Failure, Stream};
use super::super::terminated::told;
use super::{Body, Frame, HEADER_BUFFER_SIZE, Start, State};
use crate::cause;
use crate::key::KeyError;
use crate::wqe::{Received, Rqe, Wqe};
use crate::wr::{Arrival, WcStatus};

impl Stream {
    /// Parses the start of a frame and decides what happens to its payload.
    #[inline]
    pub(super) fn start(&mut self, octets: &[u8]) -> Result<Start, Failure> {
        let Some((len, ulpdu)) = octets.split_first_chunk::<LENGTH_SIZE>() else {
            return Ok(Start::Needs(LENGTH_SIZE));
        };
        let ulpdu_len = usize::from(u16::from_be_bytes(*len));
        if ulpdu_len < ddp::TAGGED_SIZE {
            return Err(self.fail(Terminate::new(Cause::MPA_LENGTH)));
        }
        let available = ulpdu.get(..ulpdu_len).unwrap_or(ulpdu);
        let (header, size) = match Header::parse(available) {
            Ok(Some(parsed)) => parsed,
            Ok(None) if available.len() < ulpdu_len => {
                // The control octet says which of the two header sizes applies.
                let untagged = available.first().is_some_and(|control| control & 0x80 == 0);
                let size = if untagged { ddp::UNTAGGED_SIZE } else { ddp::TAGGED_SIZE };
                return Ok(Start::Needs(LENGTH_SIZE + size.min(ulpdu_len)));
            }
            Ok(None) => return Err(self.fail(Terminate::new(Cause::MPA_LENGTH))),
            Err(error) => {
                let cause = error.cause();
                // Errors of DDP name the segment (RFC 5040, figure 10), so the whole header is
                // needed first.
                let header = TerminatedHeader::new(available);
                if cause.layer == 1 && header.is_none() && available.len() < ulpdu_len {
                    let size = if cause == Cause::TAGGED_VERSION {
                        ddp::TAGGED_SIZE
                    } else {
                        ddp::UNTAGGED_SIZE
                    };
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
        let taken = LENGTH_SIZE + size;
        self.rx.frame = Frame { header, ulpdu_len, left: ulpdu_len - size, body: Body::None };
        let taken = match header {
            Header::Tagged { opcode: TaggedOpcode::Write, placement, last, to, .. }
                if self.extended && placement == Placement::Reported =>
            {
                self.take_report(last, to)?;
                taken
            }
            Header::Tagged { opcode: TaggedOpcode::Write, stag, to, .. } => {
                self.start_write(stag, to)?;
                taken
            }
            Header::Tagged { opcode: TaggedOpcode::ReadResponse, last, stag, to, .. } => {
                self.start_response(last, stag, to)?;
                taken
            }
            Header::Untagged { opcode, qn, msn, mo, last, .. } => {
                if qn != opcode.queue().number() {
                    return Err(self.refuse(Cause::UNTAGGED_QN));
                }
                match opcode {
                    _ if opcode.is_send() => {
                        if !self.start_send(msn, mo)? {
                            return Ok(self.stall());
                        }
                        taken
                    }
                    UntaggedOpcode::Terminate => {
                        let len = ulpdu_len.min(HEADER_BUFFER_SIZE - LENGTH_SIZE);
                        if available.len() < len {
                            return Ok(Start::Needs(LENGTH_SIZE + len));
                        }
                        return Err(self.terminated(&available[size..len]));
                    }
                    _ => {
                        let size = self.body_size(opcode)?;
                        if ulpdu_len != header.len() + size {
                            return Err(self.fail(Terminate::new(Cause::MPA_LENGTH)));
                        }
                        let Some(body) = available[header.len()..].get(..size) else {
                            return Ok(Start::Needs(taken + size));
                        };
                        if !self.start_body(opcode, body, (msn, mo, last))? {
                            return Ok(self.stall());
                        }
                        taken + size
                    }
                }
            }
        };
        self.rx.state = State::Payload;
        Ok(Start::Taken(taken))
    }

    /// Makes the current message wait for a receive.
    #[cold]
    fn stall(&mut self) -> Start {
        self.rx.state = State::Stalled;
        self.stats.rx_stalls += 1;
        Start::Stalled
    }

    /// Starts a SEND. Returns false if the message waits for a receive.
    #[inline]
    fn start_send(&mut self, msn: u32, mo: u32) -> Result<bool, Failure> {
        if msn != self.rx.send_msn {
            return Err(self.refuse(Cause::UNTAGGED_MSN));
        }
        if mo != self.rx.send_placed {
            return Err(self.refuse(Cause::UNTAGGED_MO));
        }
        let Some(buffer) = self.receive()? else { return Ok(false) };
        let len = u64::from(mo) + self.rx.frame.left as u64;
        if len > buffer.len.min(u32::MAX.into()) {
            let octets = cause::octets(len, self.rx.frame.header.last());
            self.work.report(Told::ReceiveTooSmall { lengths: Some((octets, buffer.len)) });
            let received = Received::octets(len.min(u32::MAX.into()) as u32);
            self.work.finish_recv(received, WcStatus::LocalLength, true);
            return Err(self.refuse(Cause::UNTAGGED_TOO_LONG));
        }
        Ok(true)
    }

    /// Returns the receive of the current message, or `None` if the message waits for a receive. If
    /// the message may not use the receive, the connection fails, which flushes the receive.
    #[inline]
    fn receive(&mut self) -> Result<Option<Rqe>, Failure> {
        if let Some(buffer) = self.work.recv() {
            return Ok(Some(buffer));
        }
        match self.work.take_recv() {
            Some(buffer) if self.work.may_take() => Ok(Some(buffer)),
            None if self.waits => Ok(None),
            _ => {
                let Arrival { octets, whole } = self.rx.arrival();
                self.work.report_no_receive(cause::octets(octets.into(), whole));
                Err(self.refuse(Cause::UNTAGGED_NO_BUFFER))
            }
        }
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
        if self.rx.write.replace((stag, to)).is_none() {
            self.rx.written = 0;
        }
        self.rx.written = self.rx.written.wrapping_add(self.rx.frame.left as u32);
        self.check_write().map(drop)
    }

    #[inline]
    fn start_response(&mut self, last: bool, stag: u32, to: u64) -> Result<(), Failure> {
        let Some(wqe) = self.oldest_read().filter(|wqe| wqe.op.facts().is_read()) else {
            return Err(self.refuse(Cause::TAGGED_STAG));
        };
        let end = u64::from(self.reads.placed) + self.rx.frame.left as u64;
        let cause = match wqe.len {
            // The STag and offset of an empty response are ignored.
            0 if last && end == 0 => return Ok(()),
            _ if stag != self.reads.sink_stag => Cause::TAGGED_STAG,
            _ if to != self.reads.oldest_sink_to() + u64::from(self.reads.placed) => {
                Cause::TAGGED_BOUNDS
            }
            // The response is too long, or ends too soon.
            len if end > len.into() || (last && end < len.into()) => Cause::TAGGED_BOUNDS,
            _ => return Ok(()),
        };
        self.work.fail(self.reads.oldest, WcStatus::BadResponse);
        Err(self.refuse(cause))
    }

    /// The oldest one of this side's reads and atomic operations that wait for their response.
    #[inline]
    fn oldest_read(&self) -> Option<Wqe> {
        match self.reads.outstanding {
            0 => None,
            _ => self.work.request(self.reads.oldest).map(|(&wqe, _)| wqe),
        }
    }

    /// The size of the body of a message without payload, in octets.
    #[inline]
    fn body_size(&mut self, opcode: UntaggedOpcode) -> Result<usize, Failure> {
        use UntaggedOpcode::{
            AtomicRequest as Atomic, AtomicResponse as Response, Immediate as Data,
        };
        match opcode {
            UntaggedOpcode::ReadRequest => Ok(ReadRequest::SIZE),
            Data | UntaggedOpcode::ImmediateSolicited if self.extended => Ok(Immediate::SIZE),
            Atomic if self.extended => Ok(AtomicRequest::SIZE),
            Response if self.extended => Ok(AtomicResponse::SIZE),
            // The opcode was not negotiated.
            _ => Err(self.fail(Terminate::new(Cause::UNEXPECTED_OPCODE))),
        }
    }

    /// Starts a message without payload. `octets` contains its body. Returns false if the message
    /// waits for a receive.
    #[inline]
    fn start_body(
        &mut self,
        opcode: UntaggedOpcode,
        octets: &[u8],
        (msn, mo, last): (u32, u32, bool),
    ) -> Result<bool, Failure> {
        self.rx.frame.left = 0;
        let (body, next_msn) = match opcode {
            UntaggedOpcode::AtomicRequest => {
                let request = match AtomicRequest::parse(octets) {
                    Some(Err(unknown)) => return Err(self.refuse(unknown.cause())),
                    parsed => parsed.and_then(Result::ok).map(Body::Atomic),
                };
                (request, self.rx.read_msn)
            }
            UntaggedOpcode::AtomicResponse => {
                (AtomicResponse::parse(octets).map(Body::AtomicResponse), self.rx.atomic_msn)
            }
            UntaggedOpcode::Immediate | UntaggedOpcode::ImmediateSolicited => {
                (Immediate::parse(octets).map(Body::Immediate), self.rx.send_msn)
            }
            _ => (ReadRequest::parse(octets).map(Body::Read), self.rx.read_msn),
        };
        self.rx.frame.body = body.unwrap_or(Body::None);
        if msn != next_msn {
            return Err(self.refuse(Cause::UNTAGGED_MSN));
        }
        // RFC 5040, section 4.4; RFC 7306: each of these messages is one segment.
        if mo != 0 || !last {
            return Err(self.refuse(Cause::UNTAGGED_MO));
        }
        match self.rx.frame.body {
            // A zero-length READ may serve as the RTR frame (RFC 6581, section 9.1). This READ is
            // allowed even if the negotiated depth is 0.
            Body::Read(request) if msn == 1 && request.len == 0 => Ok(true),
            Body::Read(_) | Body::Atomic(_) if self.answers.len() >= self.ird => {
                self.work.report(Told::TooManyReads { limit: self.ird as u32 });
                Err(self.fail(Terminate::new(Cause::STREAM_CATASTROPHIC)))
            }
            // The message arrives in the middle of a SEND, which has the same MSN.
            Body::Immediate(_) if self.rx.send_placed > 0 => Err(self.refuse(Cause::UNTAGGED_MO)),
            Body::Immediate(_) => self.receive().map(|buffer| buffer.is_some()),
            Body::AtomicResponse(response) => self.start_atomic_response(response).map(|()| true),
            _ => Ok(true),
        }
    }

    fn start_atomic_response(&mut self, response: AtomicResponse) -> Result<(), Failure> {
        match self.oldest_read() {
            Some(wqe) if wqe.op.facts().is_atomic() => {
                if response.id == self.reads.oldest_msn() {
                    return Ok(());
                }
                self.work.fail(self.reads.oldest, WcStatus::BadResponse);
                Err(self.refuse(Cause::OPERATION_UNSPECIFIED))
            }
            // No request waits for a response, or a READ response must come first.
            _ => Err(self.refuse(Cause::UNTAGGED_NO_BUFFER)),
        }
    }

    /// Handles the end of the current FPDU.
    #[inline]
    pub(super) fn end_of_frame(&mut self) -> Result<(), Failure> {
        self.stats.rx_fpdus += 1;
        // RFC 5044, section 7.1.3: with its first FPDU the initiator shows that it is ready.
        self.hold = false;
        if !self.rx.frame.header.last() {
            return Ok(());
        }
        self.stats.rx_messages += 1;
        match self.rx.frame.header {
            Header::Tagged { opcode: TaggedOpcode::Write, placement, .. } => {
                self.rx.write = None;
                if self.extended && placement == Placement::Wanted {
                    self.writes.placed += 1;
                }
            }
            Header::Tagged { opcode: TaggedOpcode::ReadResponse, .. } => self.end_of_response(),
            Header::Untagged { opcode, msn, .. } if !opcode.is_send() => {
                self.end_of_body(opcode.solicited(), msn)?;
            }
            Header::Untagged { opcode, invalidate, .. } => {
                let invalidated = opcode.invalidates().then_some(invalidate);
                if let Some(stag) = invalidated {
                    self.invalidate(stag)?;
                }
                let octets = std::mem::take(&mut self.rx.send_placed);
                self.rx.send_msn = self.rx.send_msn.wrapping_add(1);
                self.rx.written = 0;
                let received = Received { invalidated, ..Received::octets(octets) };
                self.work.finish_recv(received, WcStatus::Success, opcode.solicited());
            }
        }
        Ok(())
    }

    /// Handles the end of a message without payload.
    #[inline]
    fn end_of_body(&mut self, solicited: bool, msn: u32) -> Result<(), Failure> {
        match self.rx.frame.body {
            Body::Read(request) => {
                self.rx.read_msn = msn.wrapping_add(1);
                self.answers.add_read(request, msn);
            }
            Body::Atomic(request) => {
                self.rx.read_msn = msn.wrapping_add(1);
                self.answers.add_atomic(request, msn, self.work.keys(), self.work.scope());
            }
            Body::AtomicResponse(response) => {
                self.rx.atomic_msn = msn.wrapping_add(1);
                self.place_original(response.original)?;
                self.end_of_response();
            }
            Body::Immediate(Immediate(data)) => {
                self.rx.send_msn = msn.wrapping_add(1);
                let octets = std::mem::take(&mut self.rx.written);
                let received = Received { immediate: Some(data), ..Received::octets(octets) };
                self.work.finish_recv(received, WcStatus::Success, solicited);
            }
            Body::None => {}
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
                    Some((wqe, _)) if !wqe.op.facts().awaits_response() => {}
                    _ => break,
                }
            }
        }
    }

    fn invalidate(&mut self, stag: u32) -> Result<(), Failure> {
        let Err(error) = self.work.keys().invalidate(stag, self.work.scope()) else {
            return Ok(());
        };
        self.work.report_refused(cause::invalidation(stag), error);
        Err(self.refuse(match error {
            // The key exists, but it belongs to another peer or is the key of a region.
            KeyError::Domain | KeyError::Access => Cause::PROTECTION_INVALIDATE,
            _ => Cause::OPERATION_INVALIDATE,
        }))
    }

    /// Handles a TERMINATE message of the peer.
    #[cold]
    fn terminated(&mut self, octets: &[u8]) -> Failure {
        // A malformed message also shows that its sender has given up the connection.
        let terminate = Terminate::parse(octets)
            .map_or(Terminate::new(Cause::OPERATION_UNSPECIFIED), |(terminate, _)| terminate);
        let cause = terminate.cause;
        self.work.report(told(&terminate, self.oldest_read()));
        // If a write was refused, the message names its segment, and thus the write. If another
        // request was refused, the message does not name the request, or contains only a part of
        // the request's header. If the reason was a lack of access, the refused request is most
        // likely the oldest read or atomic operation that waits for its answer.
        match self.oldest_read() {
            _ if self.fail_write(&terminate) => {}
            Some(_) if matches!(cause, Cause { layer: 0 | 1, etype: 1, .. }) => {
                self.work.fail(self.reads.oldest, WcStatus::RemoteAccess);
            }
            // RFC 7306, section 8.2: the target is not aligned.
            Some(wqe) if wqe.op.facts().is_atomic() && cause == Cause::STREAM_CATASTROPHIC => {
                self.work.fail(self.reads.oldest, WcStatus::RemoteResponder);
            }
            _ => {}
        }
        let failure = Failure { by_peer: true, cause };
        self.failure = Some(failure);
        failure
    }

    /// Refuses the current segment with a TERMINATE message that names it.
    #[cold]
    pub(in super::super) fn refuse(&mut self, cause: Cause) -> Failure {
        let mut terminate = Terminate::new(cause);
        terminate.segment_len = Some(self.rx.frame.ulpdu_len as u16);
        terminate.header = Some(self.rx.frame.header.into());
        self.fail(terminate)
    }
}
