//! MPA connection setup for both roles, without I/O (RFC 5044 section 7.1, RFC 6581).
//!
//! ```text
//! initiator                                      responder
//! Initiator::new ── request ──────────────────►  Responder::feed → Call::Request(Request)
//! Initiator::feed ◄───────────────────── reply ── Request::accept / Request::reject
//! Gate::initiator ── RTR (zero-length WRITE) ──►  Gate::responder opens
//! ```
//!
//! Each side reads exactly one frame: [`Initiator::wants`] and [`Responder::wants`] say how many octets to read next, so
//! that the FPDUs behind the frame stay in the socket. The [`Gate`] keeps a side's first FPDUs back for as long as the
//! peer could not take them; peers that are not of this project need such patience in three places.

use std::time::{Duration, Instant};

use wire::iwarp::{
    Enhanced, ReadDepth, Revision, Setup, SetupError, SetupKind, SetupProgress, mpa,
};

/// How long an initiator waits for the reply where its consumer names no shorter time.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a responder waits for the request, and later for the RTR frame.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a responder keeps back its first FPDU where no RTR was agreed on and the initiator stays silent.
pub const GRACE: Duration = Duration::from_millis(100);
/// How long an initiator keeps back its first FPDU towards a stranger: siw's responder loses sight of what arrives
/// while it changes its socket callbacks after the reply.
pub const FIRST_FRAME_DELAY: Duration = Duration::from_millis(10);
/// How long it then waits for a sign that they have been seen before it sends a frame more, which siw looks up at; twice as
/// long before the next. (Where the host is slow so is the change of callbacks.)
pub const NUDGE: Duration = Duration::from_millis(20);
/// Such frames at most, to a peer that stays silent.
pub const NUDGES: u8 = 6;
/// RDMA READs in flight at most, each way.
pub const MAX_READ_DEPTH: u32 = 128;
/// Private data that fits a request, an acceptance and a refusal alike.
pub const MAX_PRIVATE: usize = mpa::MAX_PRIVATE_DATA - Enhanced::SIZE - REJECT_HEADER.len();

/// What OFED's uDAPL puts before the private data of a refusal, and expects there.
const REJECT_HEADER: [u8; 4] = [0x02, 0x00, 0x02, 0x00];

/// What a side brings to the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// READs from the peer that this side will hold.
    pub ird: u32,
    /// READs that this side would like to have outstanding.
    pub ord: u32,
    /// CRCs are wanted.
    pub crc: bool,
    /// The operations of RFC 7306 are taken.
    pub extended: bool,
}

/// What was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// READs from the peer in flight at most.
    pub ird: u32,
    /// READs to the peer in flight at most.
    pub ord: u32,
    /// FPDUs carry CRCs, both ways.
    pub crc: bool,
    /// Both sides take FPDUs beyond the MSS.
    pub large_fpdus: bool,
    /// Both sides take the operations of RFC 7306. It marks a peer of this project.
    pub extended: bool,
    /// The initiator sends a zero-length frame first.
    pub rtr: Rtr,
}

/// The frame by which an initiator says that it is ready to receive (RFC 6581, section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtr {
    /// None: client-server model.
    None,
    /// A zero-length RDMA WRITE.
    Write,
    /// A zero-length RDMA READ.
    Read,
}

/// The side that connected, waiting for the reply.
#[derive(Debug)]
pub struct Initiator {
    offer: Offer,
    inbox: Inbox,
    deadline: Instant,
}

/// How an attempt ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The peer's consumer accepted.
    Accepted {
        /// What was agreed on.
        terms: Terms,
        /// Its private data.
        private: &'a [u8],
    },
    /// The peer's consumer refused.
    Rejected {
        /// Its private data.
        private: &'a [u8],
    },
    /// The peer's stack refused, or what it says is not understood: close.
    Failed,
}

impl Initiator {
    /// An initiator and the request it sends. Asks for the peer-to-peer model with a zero-length WRITE, so that the
    /// responder knows when it may send first. Refused is private data that does not fit.
    pub fn new(
        offer: Offer,
        private: &[u8],
        deadline: Instant,
    ) -> Result<(Self, Vec<u8>), SetupError> {
        let enhanced = Enhanced {
            peer_to_peer: true,
            rtr_write: true,
            ..Enhanced::new(ReadDepth::new(offer.ird), ReadDepth::new(offer.ord))
        };
        let frame = Setup {
            crc: offer.crc,
            gso: true,
            extended: offer.extended,
            ..Setup::new(SetupKind::Request, enhanced, private)
        };
        let mut request = Vec::new();
        frame.emit(&mut request)?;
        Ok((Initiator { offer, inbox: Inbox::new(SetupKind::Reply), deadline }, request))
    }

    /// When the attempt is given up.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Octets to read next: at least one, never beyond the reply.
    pub fn wants(&self) -> usize {
        self.inbox.wants()
    }

    /// Takes octets, at most as many as [`wants`](Self::wants) said. `None`: more are needed.
    pub fn feed(&mut self, octets: &[u8]) -> Option<Reply<'_>> {
        let offer = self.offer;
        let reply = match self.inbox.feed(octets)? {
            Ok(reply) => reply,
            Err(_) => return Some(Reply::Failed),
        };
        // A reply of revision 1, or without the enhanced data, to an enhanced request: the depths stay unknown (siw
        // fails such a connection, too). Markers are demanded by nobody who read our request.
        let Some(theirs) = reply.enhanced().filter(|_| !reply.markers || reply.rejected) else {
            return Some(match reply.rejected {
                true => Reply::Rejected { private: without_reject_header(reply.private_data) },
                false => Reply::Failed,
            });
        };
        if reply.rejected {
            return Some(Reply::Rejected { private: without_reject_header(reply.private_data) });
        }
        let terms = Terms {
            // A responder that insists on more READs than it was offered gets them (siw is as relaxed).
            ird: depth(theirs.ord).unwrap_or(offer.ird).min(MAX_READ_DEPTH),
            ord: depth(theirs.ird).map_or(offer.ord, |ird| ird.min(offer.ord)).min(MAX_READ_DEPTH),
            crc: offer.crc || reply.crc,
            // A siw responder reflects the bit as it came.
            large_fpdus: reply.gso && reply.extended,
            extended: offer.extended && reply.extended,
            // What was offered is a WRITE; a reply that names nothing means that.
            rtr: if theirs.peer_to_peer { Rtr::Write } else { Rtr::None },
        };
        Some(Reply::Accepted { terms, private: reply.private_data })
    }
}

/// The side that was called, waiting for the request.
#[derive(Debug)]
pub struct Responder {
    inbox: Inbox,
    deadline: Instant,
}

/// What a caller turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub enum Call {
    /// A request for the consumer to answer.
    Request(Request),
    /// One that cannot be served: send this, then close.
    Refuse(Vec<u8>),
    /// Not MPA: close.
    Stranger,
}

impl Responder {
    /// A responder that gives up at a deadline.
    pub fn new(deadline: Instant) -> Self {
        Responder { inbox: Inbox::new(SetupKind::Request), deadline }
    }

    /// When the caller is given up.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Octets to read next: at least one, never beyond the request.
    pub fn wants(&self) -> usize {
        self.inbox.wants()
    }

    /// Takes octets, at most as many as [`wants`](Self::wants) said. `None`: more are needed.
    pub fn feed(&mut self, octets: &[u8]) -> Option<Call> {
        let frame = match self.inbox.feed(octets)? {
            Ok(frame) => frame,
            Err(_) => return Some(Call::Stranger),
        };
        let enhanced = frame.enhanced();
        let rtr = match enhanced {
            Some(e) if !e.peer_to_peer => Some(Rtr::None),
            None => Some(Rtr::None),
            Some(e) if e.rtr_write => Some(Rtr::Write),
            Some(e) if e.rtr_read => Some(Rtr::Read),
            // Nothing but a SEND, which would take a receive buffer of the consumer's.
            Some(e) if e.rtr_send => None,
            // Nothing named: siw answers with a WRITE, and does not mind what comes.
            Some(_) => Some(Rtr::Write),
        };
        let request = Request {
            enhanced,
            crc: frame.crc,
            gso: frame.gso,
            extended: frame.extended,
            rtr: rtr.unwrap_or(Rtr::None),
            private: frame.private_data.to_vec(),
        };
        // Markers are not sent (nor does siw): refuse in the way siw does.
        Some(match frame.markers || rtr.is_none() {
            true => Call::Refuse(request.refusal(&[])),
            false => Call::Request(request),
        })
    }
}

/// A request that waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    enhanced: Option<Enhanced>,
    crc: bool,
    gso: bool,
    extended: bool,
    rtr: Rtr,
    private: Vec<u8>,
}

impl Request {
    /// The caller's private data.
    pub fn private(&self) -> &[u8] {
        &self.private
    }

    /// The reply that accepts, and what is then agreed on. Refused is private data that does not fit.
    pub fn accept(&self, offer: Offer, private: &[u8]) -> Result<(Vec<u8>, Terms), SetupError> {
        let (their_ird, their_ord) =
            self.enhanced.map_or((None, None), |e| (depth(e.ird), depth(e.ord)));
        let terms = Terms {
            ird: their_ord.map_or(offer.ird, |ord| ord.min(offer.ird)).min(MAX_READ_DEPTH),
            ord: their_ird.map_or(offer.ord, |ird| ird.min(offer.ord)).min(MAX_READ_DEPTH),
            crc: offer.crc || self.crc,
            large_fpdus: self.gso,
            extended: offer.extended && self.extended,
            rtr: self.rtr,
        };
        let frame = Setup {
            crc: terms.crc,
            gso: self.gso,
            extended: terms.extended,
            revision: self.revision(Enhanced {
                peer_to_peer: self.rtr != Rtr::None,
                rtr_write: self.rtr == Rtr::Write,
                rtr_read: self.rtr == Rtr::Read,
                ..Enhanced::new(ReadDepth::new(terms.ird), ReadDepth::new(terms.ord))
            }),
            ..Setup::new(SetupKind::Reply, NOTHING, private)
        };
        let mut reply = Vec::new();
        frame.emit(&mut reply)?;
        Ok((reply, terms))
    }

    /// The reply that refuses with the consumer's private data. Refused itself is private data that does not fit.
    pub fn reject(&self, private: &[u8]) -> Result<Vec<u8>, SetupError> {
        if private.len() > MAX_PRIVATE {
            return Err(SetupError::PrivateData { len: private.len() });
        }
        Ok(self.refusal(&[&REJECT_HEADER, private].concat()))
    }

    fn refusal(&self, private: &[u8]) -> Vec<u8> {
        let frame = Setup {
            rejected: true,
            revision: self.revision(NOTHING),
            ..Setup::new(SetupKind::Reply, NOTHING, private)
        };
        let mut reply = Vec::new();
        let fits = frame.emit(&mut reply);
        debug_assert!(fits.is_ok(), "the callers checked the length");
        reply
    }

    /// The caller's revision, with enhanced data where it sent some.
    fn revision(&self, enhanced: Enhanced) -> Revision {
        match self.enhanced {
            Some(_) => Revision::Two(Some(enhanced)),
            None => Revision::One,
        }
    }
}

const NOTHING: Enhanced = Enhanced::new(ReadDepth::new(0), ReadDepth::new(0));

fn depth(said: ReadDepth) -> Option<u32> {
    said.reads().map(u32::from)
}

fn without_reject_header(private: &[u8]) -> &[u8] {
    private.strip_prefix(&REJECT_HEADER).unwrap_or(private)
}

/// Keeps a side's first FPDUs back. Closed until told otherwise by a frame from the peer or by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// FPDUs may leave.
    Open,
    /// Initiator towards a stranger: opens at this time.
    Delay(Instant),
    /// The same, open: until the peer's first frame comes a zero-length WRITE is due at this time, after so many others.
    Nudge(Instant, u8),
    /// Responder that was promised an RTR frame; the connection is established only then, and fails at this time.
    Rtr(Instant),
    /// Responder without such a promise: opens with the initiator's first frame, or at this time.
    FirstFrame(Instant),
}

impl Gate {
    /// The initiator's gate, once the reply is in.
    pub fn initiator(terms: &Terms, now: Instant) -> Self {
        match terms.extended {
            true => Gate::Open,
            false => Gate::Delay(now + FIRST_FRAME_DELAY),
        }
    }

    /// The responder's gate, once the reply is out. siw's initiator fails the connection when an FPDU comes right
    /// behind the reply.
    pub fn responder(terms: &Terms, now: Instant) -> Self {
        match terms.rtr {
            Rtr::None => Gate::FirstFrame(now + GRACE),
            Rtr::Write | Rtr::Read => Gate::Rtr(now + REQUEST_TIMEOUT),
        }
    }

    /// Whether FPDUs may leave.
    pub fn is_open(&self) -> bool {
        matches!(self, Gate::Open | Gate::Nudge(..))
    }

    /// When [`Gate::expire`] has something to say.
    pub fn deadline(&self) -> Option<Instant> {
        match *self {
            Gate::Open => None,
            Gate::Delay(at) | Gate::Nudge(at, _) | Gate::Rtr(at) | Gate::FirstFrame(at) => Some(at),
        }
    }

    /// A frame arrived. True: the gate opened by it.
    pub fn frame_arrived(&mut self) -> bool {
        match self {
            Gate::Rtr(_) | Gate::FirstFrame(_) => {
                *self = Gate::Open;
                true
            }
            Gate::Nudge(..) => {
                *self = Gate::Open;
                false
            }
            Gate::Open | Gate::Delay(_) => false,
        }
    }

    /// Time passed: opens a gate that waited for it. True: a zero-length WRITE is to be sent. `Err`: the promised RTR did
    /// not come.
    pub fn expire(&mut self, now: Instant) -> Result<bool, RtrMissing> {
        match *self {
            Gate::Delay(at) if at <= now => *self = Gate::Nudge(now + NUDGE, 0),
            Gate::Nudge(at, sent) if at <= now => {
                let sent = sent + 1;
                *self = if sent < NUDGES {
                    Gate::Nudge(now + NUDGE * (1 << sent), sent)
                } else {
                    Gate::Open
                };
                return Ok(true);
            }
            Gate::FirstFrame(at) if at <= now => *self = Gate::Open,
            Gate::Rtr(at) if at <= now => return Err(RtrMissing),
            _ => {}
        }
        Ok(false)
    }
}

/// The initiator promised an RTR frame and did not send it in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no RTR frame within {} s of the MPA reply", REQUEST_TIMEOUT.as_secs())]
pub struct RtrMissing;

/// Collects one setup frame.
#[derive(Debug)]
struct Inbox {
    kind: SetupKind,
    octets: Vec<u8>,
    needed: usize,
}

impl Inbox {
    fn new(kind: SetupKind) -> Self {
        Inbox { kind, octets: Vec::new(), needed: mpa::SETUP_SIZE }
    }

    fn wants(&self) -> usize {
        self.needed - self.octets.len()
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
