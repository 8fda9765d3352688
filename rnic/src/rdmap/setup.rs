//! MPA connection setup for both roles, without I/O (RFC 5044, section 7.1; RFC 6581).
//!
//! ```text
//! initiator                                    responder
//! Initiator::new ── request ────────────────►  Responder::feed → Call::Request(MpaRequest)
//! Initiator::feed ◄─────────────────── reply ── MpaRequest::accept, reject
//! Gate::initiator ── RTR (zero-length WRITE) ►  Gate::responder opens
//! ```
//!
//! The request offers the operations of RFC 7306, and with them everything that OpenDAT does only
//! with another OpenDAT, by a private flag. Other implementations may use this flag for something
//! else. So a responder takes the peer for another implementation until the peer's first frame has
//! proved the opposite ([`Recognition`]). An initiator trusts a reply with the flag and with siw's
//! flag `gso` that agrees to the peer-to-peer model with a WRITE as the first frame: siw copies
//! `gso`, but does not set the flag.
//!
//! Each side reads exactly one frame: [`Initiator::wants`] and [`Responder::wants`] say how many
//! octets to read next, so that the FPDUs after the frame stay in the socket. The [`Gate`] holds
//! back a side's first FPDUs until the peer can accept them. The states [`Gate::Delay`],
//! [`Gate::Probe`] and [`Gate::FirstFrame`] are for peers of other implementations.

use std::time::{Duration, Instant};

use wire::iwarp::{
    Enhanced, ReadDepth, Revision, Setup, SetupError, SetupKind, SetupProgress, mpa,
};

/// The time that an initiator waits for the reply, if its program sets no shorter time.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that a responder waits for the request, and later for the RTR frame. If the initiator
/// has promised no RTR frame, it is the time that a disconnect waits for the first frame.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which an initiator holds back its first FPDU towards a peer of another
/// implementation. siw's responder does not notice data that arrive while it changes its socket
/// callbacks after the reply.
pub const FIRST_FRAME_DELAY: Duration = Duration::from_millis(10);
/// The time that an initiator waits for a frame of the peer after the gate has opened, before it
/// sends a probe. A probe makes siw look at its socket again. The time doubles with each probe,
/// because on a slow host the change of the callbacks is slow as well.
pub const PROBE_DELAY: Duration = Duration::from_millis(20);
/// The maximum number of probes to a peer that sends nothing. The last one leaves 5.1 s after the
/// gate has opened.
pub const MAX_PROBES: u8 = 8;
/// The maximum number of RDMA READs in flight, in each direction.
pub const MAX_READ_DEPTH: u32 = 128;
/// The maximum size of private data. It fits in a request, in an acceptance and in a rejection.
pub const MAX_PRIVATE: usize = mpa::MAX_PRIVATE_DATA - Enhanced::SIZE - REJECT_HEADER.len();

/// OFED's uDAPL puts these octets before the private data of a rejection. When it receives a
/// rejection, it expects them there.
const REJECT_HEADER: [u8; 4] = [0x02, 0x00, 0x02, 0x00];

/// The terms that a side offers in the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The maximum number of READs that this side accepts from the peer at a time.
    pub ird: u32,
    /// The number of READs that this side would like to have outstanding.
    pub ord: u32,
    /// Whether this side wants CRCs.
    pub crc: bool,
    /// Whether this side supports the operations of RFC 7306.
    pub extended: bool,
}

/// The negotiated terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The maximum number of READs of the peer in flight.
    pub ird: u32,
    /// The maximum number of READs to the peer in flight.
    pub ord: u32,
    /// Whether FPDUs carry CRCs, in both directions.
    pub crc: bool,
    /// Whether the peer is an OpenDAT, too, and both sides support the operations of RFC 7306. For
    /// a responder this is only what the peer has announced, until a [`Recognition`] has proved it.
    pub extended: bool,
    /// The RTR frame that the initiator sends first.
    pub rtr: Rtr,
}

/// The frame by which an initiator shows that it is ready to receive (RFC 6581, section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtr {
    /// The initiator sends no RTR frame. This is the client-server model.
    None,
    /// A zero-length RDMA WRITE.
    Write,
    /// A zero-length RDMA READ.
    Read,
}

/// The side that connects, while it waits for the reply.
#[derive(Debug)]
pub struct Initiator {
    offer: Offer,
    private: Vec<u8>,
    call: Attempt,
    reader: FrameReader,
    deadline: Instant,
}

/// One of the calls by which a side tries to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// The first call, with a request of revision 2.
    First,
    /// A repetition of the first call.
    Repetition,
    /// The last call, with a request of revision 1.
    Revision1,
}

/// The outcome of an attempt to connect.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The peer's program has accepted.
    Accepted {
        /// The negotiated terms.
        terms: Terms,
        /// The private data of the peer's program.
        private: &'a [u8],
    },
    /// The peer's program has rejected the request.
    Rejected {
        /// The private data of the peer's program.
        private: &'a [u8],
    },
    /// The peer's implementation has rejected the request, or its reply cannot be understood. The
    /// caller must close the connection.
    Failed,
    /// The peer's reply is of revision 1. The caller must close the connection, and may try again
    /// ([`Initiator::next_attempt`]).
    Older,
}

impl Initiator {
    /// Creates an initiator and the request that it sends. The request asks for the peer-to-peer
    /// model with a zero-length WRITE, so that the responder knows when it may send. Private data
    /// that do not fit are an error.
    pub fn new(
        offer: Offer,
        private: &[u8],
        deadline: Instant,
    ) -> Result<(Self, Vec<u8>), SetupError> {
        Initiator::attempt(Attempt::First, offer, private.to_vec(), deadline)
    }

    /// Creates an initiator for the next attempt, on a new connection, and its request. The caller
    /// must have closed the connection, or seen its end.
    ///
    /// A peer that knows only revision 1 (RFC 5044) sends a reply of this revision, or closes the
    /// connection without a reply. But the connection to any other peer may end without a reply,
    /// too, for example because it starts again. So a request without a reply is repeated first.
    /// Returns `None` if this was the last attempt, or if a part of another reply has arrived.
    pub fn next_attempt(&self) -> Option<(Initiator, Vec<u8>)> {
        let next = match self.call {
            Attempt::First if self.reader.is_empty() => Attempt::Repetition,
            Attempt::Repetition if self.reader.is_empty() => Attempt::Revision1,
            Attempt::First | Attempt::Repetition if self.reader.is_of_revision_1() => {
                Attempt::Revision1
            }
            _ => return None,
        };
        Initiator::attempt(next, self.offer, self.private.clone(), self.deadline).ok()
    }

    fn attempt(
        call: Attempt,
        offer: Offer,
        private: Vec<u8>,
        deadline: Instant,
    ) -> Result<(Self, Vec<u8>), SetupError> {
        let enhanced = Enhanced {
            peer_to_peer: true,
            rtr_write: true,
            ..Enhanced::new(ReadDepth::new(offer.ird), ReadDepth::new(offer.ord))
        };
        let frame = Setup { crc: offer.crc, ..Setup::new(SetupKind::Request, enhanced, &private) };
        let frame = match call {
            Attempt::Revision1 => Setup { revision: Revision::One, ..frame },
            _ => Setup { gso: true, extended: offer.extended, ..frame },
        };
        let mut request = Vec::new();
        frame.emit(&mut request)?;
        let reader = FrameReader::new(SetupKind::Reply);
        Ok((Initiator { offer, private, call, reader, deadline }, request))
    }

    /// Whether the request is of revision 1.
    pub fn is_revision_1(&self) -> bool {
        self.call == Attempt::Revision1
    }

    /// The time at which the attempt times out.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The number of octets to read next: at least one, and never beyond the reply.
    pub fn wants(&self) -> usize {
        self.reader.wants()
    }

    /// Processes octets, at most as many as [`wants`](Self::wants) returned. Returns `None` if more
    /// are needed.
    pub fn feed(&mut self, octets: &[u8]) -> Option<Reply<'_>> {
        let (offer, is_revision_1) = (self.offer, self.is_revision_1());
        let reply = match self.reader.feed(octets)? {
            Ok(reply) => reply,
            Err(_) => return Some(Reply::Failed),
        };
        if reply.rejected {
            return Some(match reply.extended {
                // The adapter of another OpenDAT has refused the request, not its program.
                true => Reply::Failed,
                false => Reply::Rejected { private: without_reject_header(reply.private_data) },
            });
        }
        // A reply must not demand markers: a peer that has read this side's request does not demand
        // them.
        if reply.markers {
            return Some(Reply::Failed);
        }
        let theirs = match (reply.enhanced(), reply.revision) {
            // Revision 1 negotiates no depths and has no RTR frame.
            (_, Revision::One) if is_revision_1 => {
                let terms = Terms {
                    ird: offer.ird.min(MAX_READ_DEPTH),
                    ord: offer.ord.min(MAX_READ_DEPTH),
                    crc: offer.crc || reply.crc,
                    extended: false,
                    rtr: Rtr::None,
                };
                return Some(Reply::Accepted { terms, private: reply.private_data });
            }
            (_, Revision::One) => return Some(Reply::Older),
            (Some(theirs), _) if !is_revision_1 => theirs,
            // The peer answers with more than was asked for, or leaves the depths unknown.
            _ => return Some(Reply::Failed),
        };
        // The request offered only a WRITE as the RTR frame, so this side sends a WRITE even if the
        // reply names no RTR frame.
        let rtr = if theirs.peer_to_peer { Rtr::Write } else { Rtr::None };
        let terms = Terms {
            // If the responder insists on more READs than this side offered, it gets them. siw
            // grants them, too.
            ird: depth(theirs.ord).unwrap_or(offer.ird).min(MAX_READ_DEPTH),
            ord: depth(theirs.ird).map_or(offer.ord, |ird| ird.min(offer.ord)).min(MAX_READ_DEPTH),
            crc: offer.crc || reply.crc,
            // An OpenDAT sets both flags. A siw responder copies the GSO flag from the request.
            extended: offer.extended && reply.extended && reply.gso && rtr == Rtr::Write,
            rtr,
        };
        Some(Reply::Accepted { terms, private: reply.private_data })
    }
}

/// The side that accepts, while it waits for the request.
#[derive(Debug)]
pub struct Responder {
    reader: FrameReader,
    deadline: Instant,
}

/// The outcome of reading a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Call {
    /// A request for the program to answer.
    Request(MpaRequest),
    /// A request that cannot be served: send this reply, then close the connection.
    Refuse(Vec<u8>),
    /// The octets are not MPA: close the connection.
    Stranger,
}

impl Responder {
    /// Creates a responder that gives up at a deadline.
    pub fn new(deadline: Instant) -> Self {
        Responder { reader: FrameReader::new(SetupKind::Request), deadline }
    }

    /// The time at which the responder gives up.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The number of octets to read next: at least one, and never beyond the request.
    pub fn wants(&self) -> usize {
        self.reader.wants()
    }

    /// Processes octets, at most as many as [`wants`](Self::wants) returned. Returns `None` if more
    /// are needed.
    pub fn feed(&mut self, octets: &[u8]) -> Option<Call> {
        let frame = match self.reader.feed(octets)? {
            Ok(frame) => frame,
            Err(_) => return Some(Call::Stranger),
        };
        let rtr = match frame.enhanced() {
            Some(e) if !e.peer_to_peer => Some(Rtr::None),
            None => Some(Rtr::None),
            Some(e) if e.rtr_write => Some(Rtr::Write),
            Some(e) if e.rtr_read => Some(Rtr::Read),
            // The initiator offers only a SEND as the RTR frame. The SEND would consume a receive
            // of the program, so the request is refused.
            Some(e) if e.rtr_send => None,
            // The initiator names no RTR frame. The reply must not choose one that the request does
            // not offer (RFC 6581, section 9), so any first frame opens the gate. An initiator like
            // siw's, which offers no RTR frame, sends none.
            Some(_) => Some(Rtr::None),
        };
        let request = MpaRequest {
            revision: frame.revision,
            crc: frame.crc,
            gso: frame.gso,
            extended: frame.extended,
            rtr: rtr.unwrap_or(Rtr::None),
            private: frame.private_data.to_vec(),
        };
        // A request that demands markers is refused, because this side does not send markers. siw,
        // which does not send them either, refuses such a request in the same way.
        Some(match frame.markers || rtr.is_none() {
            true => Call::Refuse(request.refuse()),
            false => Call::Request(request),
        })
    }
}

/// A request that waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpaRequest {
    revision: Revision,
    crc: bool,
    gso: bool,
    extended: bool,
    rtr: Rtr,
    private: Vec<u8>,
}

impl MpaRequest {
    /// The private data of the peer's program.
    pub fn private(&self) -> &[u8] {
        &self.private
    }

    /// Whether the caller promises an RTR frame, by which it confirms an acceptance.
    pub fn promises_rtr(&self) -> bool {
        self.rtr != Rtr::None
    }

    /// Creates the reply that accepts the request, and returns the resulting terms. Private data
    /// that do not fit are an error.
    pub fn accept(&self, offer: Offer, private: &[u8]) -> Result<(Vec<u8>, Terms), SetupError> {
        let theirs = match self.revision {
            Revision::Two(enhanced) => enhanced,
            Revision::One => None,
        };
        let (their_ird, their_ord) = theirs.map_or((None, None), |e| (depth(e.ird), depth(e.ord)));
        let terms = Terms {
            ird: their_ord.map_or(offer.ird, |ord| ord.min(offer.ird)).min(MAX_READ_DEPTH),
            ord: their_ird.map_or(offer.ord, |ird| ird.min(offer.ord)).min(MAX_READ_DEPTH),
            crc: offer.crc || self.crc,
            // Without a WRITE as RTR frame the peer cannot prove to be an OpenDAT.
            extended: offer.extended && self.extended && self.gso && self.rtr == Rtr::Write,
            rtr: self.rtr,
        };
        let frame = Setup {
            crc: terms.crc,
            gso: self.gso,
            extended: terms.extended,
            revision: self.revision_of_reply(Enhanced {
                peer_to_peer: theirs.is_some_and(|e| e.peer_to_peer),
                rtr_write: self.rtr == Rtr::Write,
                rtr_read: self.rtr == Rtr::Read,
                ..Enhanced::new(ReadDepth::new(terms.ird), ReadDepth::new(terms.ord))
            }),
            ..Setup::new(SetupKind::Reply, ZERO_DEPTHS, private)
        };
        let mut reply = Vec::new();
        frame.emit(&mut reply)?;
        Ok((reply, terms))
    }

    /// Creates the reply that rejects the request, with the program's private data. Private data
    /// that do not fit are an error.
    pub fn reject(&self, private: &[u8]) -> Result<Vec<u8>, SetupError> {
        if private.len() > MAX_PRIVATE {
            return Err(SetupError::PrivateData { len: private.len() });
        }
        Ok(self.refusal(&[&REJECT_HEADER, private].concat(), false))
    }

    /// Creates the reply by which the adapter refuses the request, not the program. An OpenDAT
    /// learns that from the flag `extended`, even if it does not offer RFC 7306 itself. Without a
    /// reply, the caller would call again, and at last take this side for one that knows only
    /// revision 1.
    ///
    /// A request of revision 1 does not say whether it comes from an OpenDAT. The reply does not
    /// have the flag, because RFC 5044 reserves the bit.
    pub fn refuse(&self) -> Vec<u8> {
        self.refusal(&[], self.gso)
    }

    fn refusal(&self, private: &[u8], extended: bool) -> Vec<u8> {
        let frame = Setup {
            rejected: true,
            extended,
            revision: self.revision_of_reply(ZERO_DEPTHS),
            ..Setup::new(SetupKind::Reply, ZERO_DEPTHS, private)
        };
        let mut reply = Vec::new();
        let fits = frame.emit(&mut reply);
        debug_assert!(fits.is_ok(), "the callers checked the length");
        reply
    }

    /// The revision of the request, with enhanced data if the request had some.
    fn revision_of_reply(&self, enhanced: Enhanced) -> Revision {
        match self.revision {
            Revision::Two(Some(_)) => Revision::Two(Some(enhanced)),
            other => other,
        }
    }
}

const ZERO_DEPTHS: Enhanced = Enhanced::new(ReadDepth::new(0), ReadDepth::new(0));

fn depth(field: ReadDepth) -> Option<u32> {
    field.reads().map(u32::from)
}

fn without_reject_header(private: &[u8]) -> &[u8] {
    private.strip_prefix(&REJECT_HEADER).unwrap_or(private)
}

/// The first octets of the RTR frame of an OpenDAT that has agreed on RFC 7306 with its peer: the
/// length and header of a zero-length RDMA WRITE with an STag and an offset that no other
/// implementation uses. A receiver does not check the STag and offset of a zero-length WRITE (RFC
/// 6581, section 9.1).
pub const SIGNATURE: [u8; 16] = *b"\x00\x0E\xC1\x40OpenDAT RTR1";

/// The STag of the [`SIGNATURE`].
pub(super) const SIGNATURE_STAG: u32 = u32::from_be_bytes(*b"Open");
/// The tagged offset of the [`SIGNATURE`].
pub(super) const SIGNATURE_TO: u64 = u64::from_be_bytes(*b"DAT RTR1");

/// Finds out from the first octets of the peer's FPDUs whether the peer is an OpenDAT. This can be
/// done before the FPDUs are processed: no untagged FPDU is so short that these octets alone
/// complete work.
#[derive(Debug, Default)]
pub struct Recognition {
    octets: [u8; SIGNATURE.len()],
    arrived: usize,
}

impl Recognition {
    /// The number of octets to read next: at least one, until [`feed`](Self::feed) has returned the
    /// result.
    pub fn wants(&self) -> usize {
        SIGNATURE.len() - self.arrived
    }

    /// Takes octets, at most as many as [`wants`](Self::wants) returned. Returns all octets and
    /// whether they are the [`SIGNATURE`], or `None` if more are needed. The octets that are
    /// returned must still be passed to [`Stream::rx_octets`](crate::Stream::rx_octets).
    pub fn feed(&mut self, octets: &[u8]) -> Option<(&[u8], bool)> {
        let n = octets.len().min(self.wants());
        self.octets[self.arrived..][..n].copy_from_slice(&octets[..n]);
        self.arrived += n;
        let arrived = &self.octets[..self.arrived];
        match SIGNATURE.starts_with(arrived) {
            true if self.arrived < SIGNATURE.len() => None,
            is_opendat => Some((arrived, is_opendat)),
        }
    }
}

/// Holds back a side's first FPDUs until they may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// FPDUs may be sent.
    Open,
    /// An initiator waits before it sends to another implementation. The gate opens at this time.
    Delay(Instant),
    /// The gate is open. Until the peer's first frame arrives, a probe (a zero-length WRITE) is due
    /// at this time. The number says how many probes have been sent.
    Probe(Instant, u8),
    /// A responder waits for the RTR frame that the initiator has promised. The connection is
    /// established when the frame arrives. It fails if the frame has not arrived at this time.
    Rtr(Instant),
    /// A responder waits for the initiator's first frame (RFC 5044, section 7.1.3). The initiator
    /// has not promised an RTR frame, so it may take any time. After a graceful disconnect, the
    /// connection fails if the frame has not arrived at this time.
    FirstFrame(Option<Instant>),
}

impl Gate {
    /// Creates the initiator's gate, after the reply has arrived.
    pub fn initiator(terms: &Terms, now: Instant) -> Self {
        match terms.extended {
            true => Gate::Open,
            false => Gate::Delay(now + FIRST_FRAME_DELAY),
        }
    }

    /// Creates the responder's gate, after the reply has been sent. For example, siw's initiator
    /// fails the connection when an FPDU arrives directly after the reply.
    pub fn responder(terms: &Terms, now: Instant) -> Self {
        match terms.rtr {
            Rtr::None => Gate::FirstFrame(None),
            Rtr::Write | Rtr::Read => Gate::Rtr(now + REQUEST_TIMEOUT),
        }
    }

    /// Returns whether FPDUs may be sent.
    pub fn is_open(&self) -> bool {
        matches!(self, Gate::Open | Gate::Probe(..))
    }

    /// The time at which to call [`Gate::expire`].
    pub fn deadline(&self) -> Option<Instant> {
        match *self {
            Gate::Open => None,
            Gate::FirstFrame(by) => by,
            Gate::Delay(at) | Gate::Probe(at, _) | Gate::Rtr(at) => Some(at),
        }
    }

    /// Limits the time that the gate stays closed, because the program disconnects gracefully.
    pub fn limit(&mut self, now: Instant) {
        if let Gate::FirstFrame(by @ None) = self {
            *by = Some(now + REQUEST_TIMEOUT);
        }
    }

    /// Handles a frame of the peer. Returns true if it has opened the gate.
    pub fn frame_arrived(&mut self) -> bool {
        match self {
            Gate::Rtr(_) | Gate::FirstFrame(_) => {
                *self = Gate::Open;
                true
            }
            Gate::Probe(..) => {
                *self = Gate::Open;
                false
            }
            Gate::Open | Gate::Delay(_) => false,
        }
    }

    /// Handles the passage of time: opens the gate if its time has come. Returns true if a probe
    /// must be sent now. Returns an error if the peer's frame did not arrive in time.
    pub fn expire(&mut self, now: Instant) -> Result<bool, FrameMissing> {
        match *self {
            Gate::Delay(at) if at <= now => *self = Gate::Probe(now + PROBE_DELAY, 0),
            Gate::Probe(at, sent) if at <= now => {
                let sent = sent + 1;
                *self = if sent < MAX_PROBES {
                    Gate::Probe(now + PROBE_DELAY * (1 << sent), sent)
                } else {
                    Gate::Open
                };
                return Ok(true);
            }
            Gate::Rtr(at) if at <= now => return Err(FrameMissing::Rtr),
            Gate::FirstFrame(Some(at)) if at <= now => return Err(FrameMissing::First),
            _ => {}
        }
        Ok(false)
    }
}

/// The initiator has not sent the frame that a [`Gate`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameMissing {
    /// The initiator has promised an RTR frame, but has not sent it in time.
    #[error("no RTR frame within {} s of the MPA reply", REQUEST_TIMEOUT.as_secs())]
    Rtr,
    /// The initiator has sent nothing, and this side's program has disconnected.
    #[error("the caller's first message has not arrived within {} s of the disconnect, \
             so this side's requests could not be sent", REQUEST_TIMEOUT.as_secs())]
    First,
}

/// Collects one setup frame.
#[derive(Debug)]
struct FrameReader {
    kind: SetupKind,
    octets: Vec<u8>,
    needed: usize,
}

impl FrameReader {
    fn new(kind: SetupKind) -> Self {
        FrameReader { kind, octets: Vec::new(), needed: mpa::SETUP_SIZE }
    }

    fn wants(&self) -> usize {
        self.needed - self.octets.len()
    }

    fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// Whether a whole frame of revision 1 has arrived.
    fn is_of_revision_1(&self) -> bool {
        match Setup::parse(self.kind, &self.octets) {
            Ok(SetupProgress::Frame(frame, _)) => frame.revision == Revision::One,
            _ => false,
        }
    }

    fn feed(&mut self, octets: &[u8]) -> Option<Result<Setup<'_>, SetupError>> {
        debug_assert!(octets.len() <= self.wants(), "read past the setup frame");
        self.octets.extend_from_slice(octets);
        match Setup::parse(self.kind, &self.octets) {
            Ok(SetupProgress::Incomplete(needed)) => {
                self.needed = needed;
                None
            }
            Ok(SetupProgress::Frame(frame, _)) => Some(Ok(frame)),
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(test)]
#[path = "setup_tests.rs"]
mod tests;
