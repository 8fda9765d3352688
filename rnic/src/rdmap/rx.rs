//! The receiving side: turns octets into frames, and frames into memory and completions (RFC 5040,
//! section 7; RFC 5041, section 7). This module moves the octets, `rules` decides which frames are
//! valid, and `place` determines where their payload goes.
//!
//! Without CRC the parts of an FPDU are processed as they arrive: the header, the payload straight
//! to its destination, the trailer. With CRC the whole FPDU is collected and verified first, and
//! then processed the same way.
//!
//! The key of a payload is checked in the same call that places the payload, because a region may
//! be deregistered between two calls.
//!
//! A message that finds no receive may wait for one ([`State::Stalled`]). In this case the first
//! frame of the message and the octets after it are kept until they can be processed. The kept
//! octets are at most those of one read and one FPDU, and the octets in which `ahead` looks for
//! reports.

mod ahead;
mod destination;
mod partial_fpdu;
mod rules;

use wire::iwarp::mpa::fpdu::{Fpdu, LENGTH_SIZE, fpdu_len, trailer_len};
use wire::iwarp::{
    AtomicRequest, AtomicResponse, Header, Immediate, MAX_HEADER, Placement, ReadRequest,
    TaggedOpcode, Terminate, ddp,
};

use self::partial_fpdu::PartialFpdu;
use super::stream::{Failure, Stream};
use super::vec::RxVec;
use crate::wr::Arrival;

/// If at least this many octets of a payload are missing, they are read straight to their
/// destination. For fewer octets, copying is cheaper.
const DIRECT_MIN_OCTETS: usize = 2 << 10;
/// After an FPDU of at least this many octets, the next read gets only a short stage (the buffer
/// for octets whose destination is not known yet). Another large FPDU is likely to follow, and most
/// of its payload can then be read straight to its destination. If no large FPDU follows, the short
/// stage costs one system call.
const BULK_FPDU_MIN_OCTETS: usize = 16 << 10;
/// The size of the buffer for the start of a frame: the longest header, or a TERMINATE message with
/// everything that it may include.
const HEADER_BUFFER_SIZE: usize = {
    let terminate = LENGTH_SIZE + ddp::UNTAGGED_SIZE + Terminate::MAX_SIZE;
    if terminate > MAX_HEADER { terminate } else { MAX_HEADER }
};

/// The receiving side of a stream.
pub(super) struct Rx {
    state: State,
    /// The current FPDU.
    frame: Frame,
    /// A header of which only a part has arrived.
    partial_header: [u8; HEADER_BUFFER_SIZE],
    partial_header_len: usize,
    /// With CRC, an FPDU of which only a part has arrived, or which waits for a receive.
    fpdu: PartialFpdu,
    /// While the stream is stalled, the octets after the partial header or the kept FPDU. The first
    /// `backlog_taken` of them have been processed.
    backlog: Vec<u8>,
    backlog_taken: usize,
    /// While the stream is stalled, the position in the backlog from which on the search for
    /// reports continues: the first frame that was not searched. `None` if the search has not
    /// begun.
    ahead: Option<usize>,

    /// The MSN of the current or next SEND. `send_placed` is the number of its octets that have
    /// been placed.
    send_msn: u32,
    send_placed: u32,
    /// The MSN of the next READ or atomic request.
    read_msn: u32,
    /// The MSN of the next atomic response.
    atomic_msn: u32,
    /// The current WRITE: its STag, and the offset at which it continues.
    write: Option<(u32, u64)>,
    /// The number of octets of the current or latest WRITE, while immediate data may follow the
    /// WRITE.
    written: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Header,
    /// The payload of a frame, which may be empty.
    Payload,
    /// The pad and the CRC, with the number of octets that are missing.
    Trailer(usize),
    /// The stream is stalled: the message of the next header needs a receive, and none is posted.
    Stalled,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    header: Header,
    ulpdu_len: usize,
    /// The number of octets of payload that are not placed yet.
    left: usize,
    /// The body of a message of fixed size.
    body: Body,
}

#[derive(Clone, Copy, Debug)]
enum Body {
    /// The message has payload and no fixed body.
    None,
    Read(ReadRequest),
    Atomic(AtomicRequest),
    AtomicResponse(AtomicResponse),
    Immediate(Immediate),
}

/// The result of parsing the start of a frame.
enum Start {
    /// The parser needs at least this many octets, including the length field.
    Needs(usize),
    /// The header, which has this many octets, was processed.
    Taken(usize),
    /// The header was not processed, because its message waits for a receive.
    Stalled,
}

impl Rx {
    pub(super) fn new() -> Self {
        let (opcode, placement) = (TaggedOpcode::Write, Placement::Unsaid);
        let header = Header::Tagged { last: true, opcode, placement, stag: 0, to: 0 };
        Rx {
            state: State::Header,
            frame: Frame { header, ulpdu_len: 0, left: 0, body: Body::None },
            partial_header: [0; HEADER_BUFFER_SIZE],
            partial_header_len: 0,
            fpdu: PartialFpdu::default(),
            backlog: Vec::new(),
            backlog_taken: 0,
            ahead: None,
            send_msn: 1,
            send_placed: 0,
            read_msn: 1,
            atomic_msn: 1,
            write: None,
            written: 0,
        }
    }

    pub(super) fn is_mid_message(&self) -> bool {
        self.state != State::Header
            || self.partial_header_len > 0
            || !self.fpdu.is_empty()
            || self.send_placed > 0
            || self.write.is_some()
    }

    #[inline]
    pub(super) fn is_stalled(&self) -> bool {
        self.state == State::Stalled
    }

    /// Whether payload of the current segment has not been placed.
    pub(super) fn has_payload_left(&self) -> bool {
        self.frame.left > 0
    }

    /// The message that waits for a receive.
    pub(super) fn arrival(&self) -> Arrival {
        match self.frame.body {
            Body::Immediate(_) => Arrival { octets: self.written, whole: true },
            _ => Arrival { octets: self.frame.left as u32, whole: self.frame.header.last() },
        }
    }
}

impl Stream {
    /// Determines the memory into which the next octets are read.
    pub(super) fn scatter(&mut self, rx: &mut RxVec) -> Result<(), Failure> {
        rx.clear();
        let bulk = self.rx.frame.ulpdu_len >= BULK_FPDU_MIN_OCTETS;
        if self.crc {
            if let Some(missing) = self.rx.missing_of_fpdu() {
                rx.push_direct(self.rx.fpdu.room(missing), missing);
            }
            rx.push_stage(bulk);
            return Ok(());
        }
        let left = self.rx.frame.left;
        let mut room = true;
        if self.rx.state == State::Payload && left > 0 && (bulk || left >= DIRECT_MIN_OCTETS) {
            self.for_each_destination(left, |at, len| {
                room = room && rx.push_direct(at, len);
            })?;
        }
        if room {
            rx.push_stage(bulk);
        }
        Ok(())
    }

    /// Processes `n` octets that were read into the memory that [`scatter`](Self::scatter)
    /// determined.
    pub(super) fn scattered(&mut self, rx: &mut RxVec, n: usize) -> Result<(), Failure> {
        let (direct, staged) = rx.split(n);
        self.stats.rx_octets += (direct + staged.len()) as u64;
        if direct > 0 {
            if self.crc {
                self.rx.fpdu.filled(direct);
                self.take_partial_fpdu()?;
            } else {
                self.stats.rx_direct += direct as u64;
                self.placed(direct);
            }
        }
        if staged.is_empty() { Ok(()) } else { self.feed(staged) }
    }

    /// Processes octets of the TCP stream.
    pub(super) fn feed(&mut self, data: &[u8]) -> Result<(), Failure> {
        let left = self.consume(data)?;
        if left > 0 {
            self.rx.backlog.extend_from_slice(&data[data.len() - left..]);
        }
        Ok(())
    }

    /// Processes the octets of the backlog, up to the next message that must wait for a receive.
    pub(super) fn feed_backlog(&mut self) -> Result<(), Failure> {
        self.rx.state = State::Header;
        self.rx.ahead = None;
        let backlog = std::mem::take(&mut self.rx.backlog);
        let mut data = &backlog[std::mem::take(&mut self.rx.backlog_taken)..];
        if self.rx.partial_header_len > 0 {
            data = self.take_header(data)?;
        }
        self.take_partial_fpdu()?;
        let left = self.consume(data)?;
        if left > 0 {
            self.rx.backlog_taken = backlog.len() - left;
            self.rx.backlog = backlog;
        }
        Ok(())
    }

    /// Processes octets up to a message that must wait for a receive. Returns the number of octets
    /// that remain.
    #[inline]
    fn consume(&mut self, data: &[u8]) -> Result<usize, Failure> {
        if self.crc { self.collect(data) } else { self.take(data) }
    }

    /// With CRC, processes whole FPDUs and keeps the rest.
    fn collect(&mut self, mut data: &[u8]) -> Result<usize, Failure> {
        while !data.is_empty() && !self.is_stalled() {
            if self.rx.fpdu.is_empty() {
                match Fpdu::parse(data) {
                    Some(fpdu) => {
                        let (fpdu, rest) = data.split_at(fpdu.len());
                        self.take_fpdu(fpdu)?;
                        if !self.is_stalled() {
                            data = rest;
                        }
                    }
                    None => {
                        self.rx.fpdu.extend(data);
                        return Ok(0);
                    }
                }
                continue;
            }
            let missing = match self.rx.missing_of_fpdu() {
                Some(missing) => missing,
                None => LENGTH_SIZE - self.rx.fpdu.octets().len(),
            };
            let (more, rest) = data.split_at(missing.min(data.len()));
            self.rx.fpdu.extend(more);
            data = rest;
            self.take_partial_fpdu()?;
        }
        Ok(data.len())
    }

    /// Processes the collected FPDU if it is complete. Keeps it if its message must wait for a
    /// receive.
    #[inline]
    fn take_partial_fpdu(&mut self) -> Result<(), Failure> {
        if self.rx.missing_of_fpdu() == Some(0) {
            let fpdu = std::mem::take(&mut self.rx.fpdu);
            self.take_fpdu(fpdu.octets())?;
            match self.is_stalled() {
                true => self.rx.fpdu = fpdu,
                false => self.rx.fpdu = fpdu.cleared(),
            }
        }
        Ok(())
    }

    /// Checks the CRC of a whole FPDU and processes it.
    fn take_fpdu(&mut self, octets: &[u8]) -> Result<(), Failure> {
        if let Some(Err(error)) = Fpdu::parse(octets).map(|fpdu| fpdu.check_crc()) {
            return Err(self.fail(Terminate::new(error.cause())));
        }
        self.take(octets).map(drop)
    }

    /// Processes octets without CRC, or the octets of a verified FPDU. If a message must wait for a
    /// receive, returns the number of octets that remain.
    #[inline]
    fn take(&mut self, mut data: &[u8]) -> Result<usize, Failure> {
        loop {
            match self.rx.state {
                State::Header => {
                    if data.is_empty() {
                        return Ok(0);
                    }
                    data = self.take_header(data)?;
                }
                State::Payload => {
                    let n = self.rx.frame.left.min(data.len());
                    if n > 0 {
                        let (payload, rest) = data.split_at(n);
                        self.copy_to_destination(payload)?;
                        self.placed(n);
                        data = rest;
                    }
                    if self.rx.frame.left > 0 {
                        return Ok(0);
                    }
                    self.rx.state = State::Trailer(trailer_len(self.rx.frame.ulpdu_len));
                }
                State::Trailer(left) => {
                    let n = left.min(data.len());
                    data = &data[n..];
                    if n < left {
                        self.rx.state = State::Trailer(left - n);
                        return Ok(0);
                    }
                    self.rx.state = State::Header;
                    self.end_of_frame()?;
                }
                State::Stalled => return Ok(data.len()),
            }
        }
    }

    /// Processes the start of a frame, or keeps the part of it that has arrived.
    #[inline]
    fn take_header<'a>(&mut self, data: &'a [u8]) -> Result<&'a [u8], Failure> {
        if self.rx.partial_header_len == 0 {
            return match self.start(data)? {
                Start::Taken(n) => Ok(&data[n..]),
                Start::Stalled => Ok(data),
                Start::Needs(_) => {
                    // The data are shorter than a header, so there is room for them.
                    self.rx.partial_header[..data.len()].copy_from_slice(data);
                    self.rx.partial_header_len = data.len();
                    Ok(&[])
                }
            };
        }
        let mut rest = data;
        loop {
            let partial_header = self.rx.partial_header;
            match self.start(&partial_header[..self.rx.partial_header_len])? {
                Start::Taken(_) => {
                    self.rx.partial_header_len = 0;
                    return Ok(rest);
                }
                Start::Stalled => return Ok(rest),
                Start::Needs(_) if rest.is_empty() => return Ok(rest),
                // Only the needed octets are copied. The payload after them stays in `rest`.
                Start::Needs(needed) => {
                    let n = (needed - self.rx.partial_header_len).min(rest.len());
                    let (more, after) = rest.split_at(n);
                    self.rx.partial_header[self.rx.partial_header_len..][..n].copy_from_slice(more);
                    self.rx.partial_header_len += n;
                    rest = after;
                }
            }
        }
    }
}

impl Rx {
    /// With CRC, the number of octets that the partial FPDU still needs. `None` if there is no
    /// partial FPDU or its length has not arrived.
    fn missing_of_fpdu(&self) -> Option<usize> {
        let octets = self.fpdu.octets();
        let len = octets.first_chunk::<LENGTH_SIZE>()?;
        Some(fpdu_len(usize::from(u16::from_be_bytes(*len))) - octets.len())
    }
}
