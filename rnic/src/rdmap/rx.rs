//! From octets to frames, to memory and completions (RFC 5040, section 7; RFC 5041, section 7): here the way of the octets,
//! in `rules` what a frame may be, in `place` where its payload goes.
//!
//! Without CRC an FPDU is taken as it comes: header, payload straight to its place, trailer. With CRC the whole FPDU is
//! collected and verified first, then taken the same way.
//!
//! Every octet of payload is placed under a check of its key made in the same call: a region may go between two calls.
//!
//! A message that finds no receive may wait for one ([`State::Stalled`]). Then its first frame, and what was read behind it, is
//! kept until it can be taken: at most what one read brings, and an FPDU.

mod collected;
mod place;
mod rules;

use wire::iwarp::mpa::fpdu::{Fpdu, LENGTH_SIZE, Trailer, fpdu_len};
use wire::iwarp::{
    AtomicRequest, AtomicResponse, Header, Immediate, MAX_HEADER, ReadRequest, TaggedOpcode,
    Terminate, ddp,
};

use self::collected::Collected;
use super::stream::{Failure, Stream};
use super::vec::RxVec;
use crate::wr::Arrival;

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
    /// With CRC: an FPDU that has not come whole, or waits.
    fpdu: Collected,
    /// While stalled: octets behind the carried header, or that FPDU. The first so many have been taken.
    held: Vec<u8>,
    held_taken: usize,

    /// MSN of the SEND in hand or to come, and the octets of it that have been placed.
    send_msn: u32,
    send_placed: u32,
    /// MSN of the next READ or atomic request.
    read_msn: u32,
    /// MSN of the next atomic response.
    atomic_msn: u32,
    /// The WRITE in hand: STag, and where it goes on.
    write: Option<(u32, u64)>,
    /// Octets of the WRITE in hand, or of the one before, as long as immediate data may follow it.
    written: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Header,
    /// Payload, possibly none.
    Payload,
    /// Pad and CRC: so many octets more.
    Trailer(usize),
    /// Before a header whose message needs a receive, and none is posted.
    Stalled,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    header: Header,
    ulpdu_len: usize,
    /// Octets of payload to be placed.
    left: usize,
    /// What follows the header of a message of a fixed size.
    body: Body,
}

#[derive(Clone, Copy, Debug)]
enum Body {
    /// Nothing: the message has payload.
    None,
    Read(ReadRequest),
    Atomic(AtomicRequest),
    AtomicResponse(AtomicResponse),
    Immediate(Immediate),
}

/// What is known of the start of a frame.
enum Start {
    /// At least so many octets are needed, length field included.
    Needs(usize),
    /// Header, with so many octets.
    Took(usize),
    /// The header is not taken: its message waits for a receive.
    Stalled,
}

impl Rx {
    pub(super) fn new() -> Self {
        let header = Header::Tagged { last: true, opcode: TaggedOpcode::Write, stag: 0, to: 0 };
        Rx {
            state: State::Header,
            frame: Frame { header, ulpdu_len: 0, left: 0, body: Body::None },
            carry: [0; CARRY],
            carried: 0,
            fpdu: Collected::default(),
            held: Vec::new(),
            held_taken: 0,
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
            || self.carried > 0
            || !self.fpdu.is_empty()
            || self.send_placed > 0
            || self.write.is_some()
    }

    #[inline]
    pub(super) fn is_stalled(&self) -> bool {
        self.state == State::Stalled
    }

    /// The message that waits for a receive.
    pub(super) fn arrival(&self) -> Option<Arrival> {
        self.is_stalled().then(|| match self.frame.body {
            Body::Immediate(_) => Arrival { octets: self.written, whole: true },
            _ => Arrival { octets: self.frame.left as u32, whole: self.frame.header.last() },
        })
    }
}

impl Stream {
    /// Says where the next octets go.
    pub(super) fn scatter(&mut self, rx: &mut RxVec) -> Result<(), Failure> {
        rx.clear();
        let bulk = self.rx.frame.ulpdu_len >= BULK_MIN;
        if self.crc {
            if let Some(missing) = self.rx.missing_of_fpdu() {
                rx.push_direct(self.rx.fpdu.room(missing), missing);
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
        self.stats.rx_bytes += (direct + staged.len()) as u64;
        if direct > 0 {
            if self.crc {
                self.rx.fpdu.filled(direct);
                self.take_collected()?;
            } else {
                self.stats.rx_direct += direct as u64;
                self.placed(direct);
            }
        }
        if staged.is_empty() { Ok(()) } else { self.feed(staged) }
    }

    /// Takes octets of the TCP stream.
    pub(super) fn feed(&mut self, data: &[u8]) -> Result<(), Failure> {
        let left = self.digest(data)?;
        if left > 0 {
            self.rx.held.extend_from_slice(&data[data.len() - left..]);
        }
        Ok(())
    }

    /// Takes what has been held back, up to the next message that waits.
    pub(super) fn feed_held(&mut self) -> Result<(), Failure> {
        self.rx.state = State::Header;
        let held = std::mem::take(&mut self.rx.held);
        let mut data = &held[std::mem::take(&mut self.rx.held_taken)..];
        if self.rx.carried > 0 {
            data = self.take_header(data)?;
        }
        self.take_collected()?;
        let left = self.digest(data)?;
        if left > 0 {
            self.rx.held_taken = held.len() - left;
            self.rx.held = held;
        }
        Ok(())
    }

    /// Takes octets up to a message that waits; returns how many are left then.
    #[inline]
    fn digest(&mut self, data: &[u8]) -> Result<usize, Failure> {
        if self.crc { self.collect(data) } else { self.take(data) }
    }

    /// With CRC: takes whole FPDUs and keeps what remains.
    fn collect(&mut self, mut data: &[u8]) -> Result<usize, Failure> {
        while !data.is_empty() && !self.is_stalled() {
            if self.rx.fpdu.is_empty() {
                match Fpdu::parse(data) {
                    Some(fpdu) => {
                        let (fpdu, rest) = data.split_at(fpdu.len());
                        self.verified(fpdu)?;
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
            self.take_collected()?;
        }
        Ok(data.len())
    }

    /// Takes the FPDU that has been collected, if it is whole and does not wait.
    #[inline]
    fn take_collected(&mut self) -> Result<(), Failure> {
        if self.rx.missing_of_fpdu() == Some(0) {
            let fpdu = std::mem::take(&mut self.rx.fpdu);
            self.verified(fpdu.octets())?;
            match self.is_stalled() {
                true => self.rx.fpdu = fpdu,
                false => self.rx.fpdu = fpdu.cleared(),
            }
        }
        Ok(())
    }

    /// Takes one whole FPDU, if its CRC is right.
    fn verified(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if let Some(Err(error)) = Fpdu::parse(bytes).map(|fpdu| fpdu.check_crc()) {
            return Err(self.fail(Terminate::new(error.cause())));
        }
        self.take(bytes).map(drop)
    }

    /// Takes octets as they come: without CRC, or verified. Returns how many are left, behind a message that waits.
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
                        self.copy_to_place(payload)?;
                        self.placed(n);
                        data = rest;
                    }
                    if self.rx.frame.left > 0 {
                        return Ok(0);
                    }
                    self.rx.state = State::Trailer(Trailer::size(self.rx.frame.ulpdu_len));
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

    /// Takes the start of a frame, or carries what there is of it.
    #[inline]
    fn take_header<'a>(&mut self, data: &'a [u8]) -> Result<&'a [u8], Failure> {
        if self.rx.carried == 0 {
            return match self.start(data)? {
                Start::Took(n) => Ok(&data[n..]),
                Start::Stalled => Ok(data),
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
                Start::Stalled => return Ok(rest),
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
}

impl Rx {
    /// With CRC: octets that the FPDU begun still needs; `None`: none begun, or its length has not come.
    fn missing_of_fpdu(&self) -> Option<usize> {
        let octets = self.fpdu.octets();
        let len = octets.first_chunk::<LENGTH_SIZE>()?;
        Some(fpdu_len(usize::from(u16::from_be_bytes(*len))) - octets.len())
    }
}
