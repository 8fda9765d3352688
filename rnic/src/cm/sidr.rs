//! Service ID resolution (IBA volume 1, section 12.11), without I/O: how a datagram queue pair
//! finds the queue pair behind a service, and how the service learns of its caller.
//!
//! ```text
//! caller                                                service
//! Sidr::resolve ─── SIDR REQ ────────────────────────►  Event::Request
//!                                                       Sidr::accept / Sidr::reject
//! Event::Resolved ◄─ SIDR REP ────────────────────────
//! ```
//!
//! There is no third message, so the service does not learn whether its reply has arrived. A caller
//! that has no reply repeats its request. Each request that was answered is remembered for
//! [`REMEMBERED_FOR`], and its repetitions get the same reply.
//!
//! [`wire::cm::sidr_trailer`] describes what this implementation adds to the private data.
//!
//! Strangers can make this module keep only the following state.
//!
//! - requests, up to the backlog of each listener and [`REQUESTS_MAX_PER_SOURCE`] of each source; a
//!   request that is not repeated for [`REMEMBERED_FOR`] ends
//! - [`ANSWERS_MAX`] replies, of which at most [`ANSWERS_MAX_PER_SOURCE`] are to one source
//!
//! A source is an IPv4 address, or an IPv6 network of 64 bits.
//!
//! They get at most one reply for each message, which is as long as the message. The number of
//! refusals and repeated replies is limited, too ([`rate_limit`](crate::rate_limit)).

mod answers;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use wire::cm::sidr_trailer::{self, DatagramQp};
use wire::cm::{IpHeader, MAD_SIZE, Mad, Message, ServiceId, SidrRep, SidrReq, SidrStatus};

use super::ids::Ids;
use super::{CmError, LowBits, Random, Transmit};
use crate::rate_limit::{TokenBuckets, network};
use crate::shrinking_map;
use answers::Answers;

pub use answers::{ANSWERS_MAX, ANSWERS_MAX_PER_SOURCE, REMEMBERED_FOR};

/// The time after which a request is repeated for the first time. The time doubles with each
/// repetition, up to [`REPEAT_MAX`]. Linux takes each repetition for a new request, so a request
/// must not be repeated sooner than a program may take to answer.
const REPEAT_MIN: Duration = Duration::from_millis(500);
/// The maximum time between two repetitions.
const REPEAT_MAX: Duration = Duration::from_secs(4);
/// The time after which an attempt without an answer ends.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);
/// The maximum number of requests of one source that wait for an answer.
pub const REQUESTS_MAX_PER_SOURCE: usize = 64;
/// The maximum number of messages that wait to be sent.
const TRANSMITS_MAX: usize = 256;
/// The only partition.
const P_KEY: u16 = 0xFFFF;

/// Names an attempt or a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResolveId(pub u32);

/// A request for the queue pair behind a service.
#[derive(Clone, Copy, Debug)]
pub struct Resolve<'a> {
    /// The caller's address and port.
    pub local: SocketAddr,
    /// The address and port of the service, of the same family as `local`.
    pub remote: SocketAddr,
    /// The caller's queue pair, to which the service may send datagrams.
    pub caller: DatagramQp,
    /// The private data, at most [`Sidr::MAX_REQUEST_PRIVATE`] octets.
    pub private: &'a [u8],
    /// The time at which the program gives up. `None`: the attempt ends after a minute without an
    /// answer.
    pub deadline: Option<Instant>,
}

/// An event of an attempt, or a request of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A caller asks for a queue pair. Answer with [`Sidr::accept`] or [`Sidr::reject`].
    Request {
        /// The caller's address and port.
        from: SocketAddr,
        /// The address and port of the service.
        to: SocketAddr,
        /// The caller's private data. If the caller is another implementation, they are padded with
        /// zeros.
        private: Vec<u8>,
        /// The caller's queue pair. `None` if the caller is another implementation, which does not
        /// tell it.
        caller: Option<DatagramQp>,
    },
    /// The service has answered with its queue pair.
    Resolved {
        /// The queue pair.
        service: DatagramQp,
        /// The private data of the service. If it is another implementation, they are padded with
        /// zeros.
        private: Vec<u8>,
        /// Whether the service knows the caller's queue pair and its Q_Key. Another implementation
        /// does not know them.
        knows_caller: bool,
    },
    /// The service, or its host, has refused the request.
    Refused {
        /// The reason. It is not [`SidrStatus::SUCCESS`]. It is [`SidrStatus::NO_QP`] also if the
        /// service claims success, but its queue pair cannot receive datagrams.
        status: SidrStatus,
        /// The private data of the service.
        private: Vec<u8>,
    },
    /// There was no answer, although the request was repeated, or nobody can answer.
    NoAnswer,
    /// There was no answer before the program's deadline.
    TimedOut,
}

/// Service ID resolution of one adapter.
pub struct Sidr {
    ids: Ids,
    attempts: HashMap<u32, Attempt>,
    /// The times at which attempts and requests must be looked at.
    timers: BTreeSet<(Instant, u32)>,
    listeners: HashMap<u16, Listener>,
    /// The serial number of the latest listener.
    listener_serial: u64,
    /// The requests that wait for the program's answer.
    requests: HashMap<u32, WaitingRequest>,
    /// The IDs of these requests, by the values that identify a SIDR REQ.
    by_key: HashMap<RequestKey, u32>,
    /// The number of these requests, for each address that has any.
    requests_of: HashMap<IpAddr, usize>,
    answers: Answers,
    /// Limits the replies that the program has not decided on.
    buckets: TokenBuckets,
    /// The number of requests that were dropped, because a backlog was full or a message was
    /// invalid.
    dropped: u64,
    transmits: VecDeque<Transmit>,
    events: VecDeque<(ResolveId, Event)>,
}

/// An attempt to resolve an address.
struct Attempt {
    request: Transmit,
    transaction: u64,
    service: ServiceId,
    /// The time between the next two repetitions.
    interval: Duration,
    repeat_at: Instant,
    /// The time at which the attempt ends, and whether the program has set it.
    end: (Instant, bool),
}

impl Attempt {
    fn next(&self) -> Instant {
        self.repeat_at.min(self.end.0)
    }
}

struct Listener {
    /// Distinguishes listeners of the same port.
    serial: u64,
    backlog: usize,
    /// The number of requests that wait for an answer.
    waiting: usize,
}

/// What identifies a SIDR REQ: the caller's address, its request ID and the transaction.
type RequestKey = (IpAddr, u32, u64);

/// A request that waits for the program's answer.
struct WaitingRequest {
    key: RequestKey,
    to: IpAddr,
    service: ServiceId,
    port: u16,
    /// The serial number of the listener, in whose backlog the request has a place.
    listener: u64,
    /// Whether the caller understands the trailer of a reply.
    has_trailer: bool,
    /// The time at which the request ends. Each repetition postpones it.
    end: Instant,
    /// The time of the request's timer. It is earlier than `end` if the request was repeated.
    timer: Instant,
}

impl Sidr {
    /// The maximum number of octets of private data in a request.
    pub const MAX_REQUEST_PRIVATE: usize = sidr_trailer::MAX_REQ_DATA;
    /// The maximum number of octets of private data in an answer.
    pub const MAX_REPLY_PRIVATE: usize = sidr_trailer::MAX_REP_DATA;

    /// Makes a manager. `low_bits` are the low bits of all request IDs. `random` supplies the IDs,
    /// which strangers must not be able to guess.
    ///
    /// # Panics
    /// If the value of the low bits does not fit in them, or there are 32 or more.
    pub fn new(low_bits: LowBits, random: Random) -> Self {
        Sidr {
            ids: Ids::new(low_bits, random),
            attempts: HashMap::new(),
            timers: BTreeSet::new(),
            listeners: HashMap::new(),
            listener_serial: 0,
            requests: HashMap::new(),
            by_key: HashMap::new(),
            requests_of: HashMap::new(),
            answers: Answers::default(),
            buckets: TokenBuckets::default(),
            dropped: 0,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Asks for the queue pair behind a service. One event reports the answer or the failure.
    pub fn resolve(&mut self, now: Instant, call: &Resolve<'_>) -> Result<ResolveId, CmError> {
        check_private(call.private, Self::MAX_REQUEST_PRIVATE)?;
        let (local, remote) = (call.local.ip(), call.remote.ip());
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(CmError::Families);
        }
        let request_id = self.new_id();
        let transaction = self.ids.transaction();
        let service = ServiceId::udp(call.remote.port());
        let header =
            IpHeader { source_port: call.local.port(), source: local, destination: remote };
        let data = sidr_trailer::emit_req(call.private, call.caller);
        let req = SidrReq {
            request_id,
            p_key: P_KEY,
            service,
            private: &[&header.emit()[..], &data].concat(),
        };
        let mad = Mad { transaction, message: Message::SidrReq(req) }.emit();
        let request = Transmit { from: local, to: remote, mad };
        self.transmits.push_back(request);
        let end = match call.deadline {
            Some(deadline) if deadline < now + GIVE_UP_AFTER => (deadline, true),
            _ => (now + GIVE_UP_AFTER, false),
        };
        let attempt = Attempt {
            request,
            transaction,
            service,
            interval: REPEAT_MIN,
            repeat_at: now + REPEAT_MIN,
            end,
        };
        self.timers.insert((attempt.next(), request_id));
        self.attempts.insert(request_id, attempt);
        Ok(ResolveId(request_id))
    }

    /// Ends an attempt without an event. Does not affect the request of a caller.
    pub fn cancel(&mut self, id: ResolveId) {
        self.end_attempt(id.0);
        let is_request = |event: &Event| matches!(event, Event::Request { .. });
        self.events.retain(|(of, event)| *of != id || is_request(event));
    }

    /// Starts to accept requests to a port. At most `backlog` requests wait for an answer at a
    /// time.
    pub fn listen(&mut self, port: u16, backlog: usize) -> Result<(), CmError> {
        if self.listeners.contains_key(&port) {
            return Err(CmError::PortInUse(port));
        }
        self.listener_serial += 1;
        self.listeners.insert(port, Listener { serial: self.listener_serial, backlog, waiting: 0 });
        Ok(())
    }

    /// Stops accepting requests to a port. Requests that the program already knows are not
    /// affected.
    pub fn unlisten(&mut self, port: u16) {
        self.listeners.remove(&port);
    }

    /// Whether this manager has this request, or has answered it.
    pub fn has_request(&self, from: IpAddr, transaction: u64, req: &SidrReq<'_>) -> bool {
        let key = (from, req.request_id, transaction);
        self.by_key.contains_key(&key) || self.answers.find(&key).is_some()
    }

    /// Whether a request to a port is open: the program has not answered it, or the caller may not
    /// have the reply and may repeat its request.
    pub fn has_open_requests(&self, port: u16) -> bool {
        self.requests.values().any(|request| request.port == port) || self.answers.any_of(port)
    }

    /// Answers a request with a queue pair.
    pub fn accept(
        &mut self,
        now: Instant,
        id: ResolveId,
        service: DatagramQp,
        private: &[u8],
    ) -> Result<(), CmError> {
        check_private(private, Self::MAX_REPLY_PRIVATE)?;
        self.answer(now, id, SidrStatus::SUCCESS, service, private)
    }

    /// Refuses a request. The status is [`SidrStatus::REJECT`] if the program refuses it.
    /// [`SidrStatus::SUCCESS`] counts as [`SidrStatus::REJECT`].
    pub fn reject(
        &mut self,
        now: Instant,
        id: ResolveId,
        status: SidrStatus,
        private: &[u8],
    ) -> Result<(), CmError> {
        check_private(private, Self::MAX_REPLY_PRIVATE)?;
        let status = if status == SidrStatus::SUCCESS { SidrStatus::REJECT } else { status };
        self.answer(now, id, status, DatagramQp { qpn: 0, q_key: 0 }, private)
    }

    fn answer(
        &mut self,
        now: Instant,
        id: ResolveId,
        status: SidrStatus,
        DatagramQp { qpn, q_key }: DatagramQp,
        private: &[u8],
    ) -> Result<(), CmError> {
        let request = self.remove_request(id.0).ok_or(CmError::NoRequest)?;
        let WaitingRequest { key, to, service, port, has_trailer, .. } = request;
        // The program of another implementation gets the whole field, so nothing is added to it.
        let data = sidr_trailer::emit_rep(private);
        let data = if has_trailer { &data } else { private };
        let reply = reply(key, to, SidrRep { status, qpn, service, q_key, ..empty_rep(data) });
        self.answers.remember(now, key, port, reply);
        self.transmits.push_back(reply);
        Ok(())
    }

    /// Removes a request, its timer, and its places in the backlog and in the count of its address.
    fn remove_request(&mut self, id: u32) -> Option<WaitingRequest> {
        let request = shrinking_map::remove(&mut self.requests, &id)?;
        self.timers.remove(&(request.timer, id));
        shrinking_map::remove(&mut self.by_key, &request.key);
        if let Some(listener) = self.listeners.get_mut(&request.port)
            && listener.serial == request.listener
        {
            listener.waiting -= 1;
        }
        let source = network(request.key.0);
        if let Some(count) = self.requests_of.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                shrinking_map::remove(&mut self.requests_of, &source);
            }
        }
        Some(request)
    }

    /// Processes a SIDR REQ or SIDR REP. Ignores other messages.
    pub fn receive(&mut self, now: Instant, from: IpAddr, to: IpAddr, mad: &Mad<'_>) {
        match &mad.message {
            Message::SidrReq(req) => self.receive_req(now, (from, to), mad.transaction, req),
            Message::SidrRep(rep) => self.receive_rep((from, to), mad.transaction, rep),
            _ => {}
        }
    }

    fn receive_req(
        &mut self,
        now: Instant,
        (from, to): (IpAddr, IpAddr),
        transaction: u64,
        req: &SidrReq<'_>,
    ) {
        if self.transmits.len() >= TRANSMITS_MAX {
            self.dropped += 1;
            return;
        }
        let key = (from, req.request_id, transaction);
        self.answers.forget(now);
        if let Some(reply) = self.answers.find(&key) {
            // The caller has perhaps not got the reply.
            if self.buckets.take(now, from) {
                self.transmits.push_back(reply);
            }
            return;
        }
        if let Some(request) = self.by_key.get(&key).and_then(|id| self.requests.get_mut(id)) {
            request.end = now + REMEMBERED_FOR;
            return;
        }
        let header = IpHeader::parse(req.private);
        let listener =
            req.service.udp_port().and_then(|port| Some((port, self.listeners.get_mut(&port)?)));
        let of_source = self.requests_of.get(&network(from)).copied().unwrap_or_default();
        let refusal = match (&header, &listener) {
            (Ok((header, _)), _) if (header.source, header.destination) != (from, to) => {
                self.dropped += 1;
                return;
            }
            (_, None) => SidrStatus::UNSUPPORTED,
            (Err(_), _) => SidrStatus::REJECT,
            (Ok(_), Some((_, listener)))
                if listener.waiting >= listener.backlog || of_source >= REQUESTS_MAX_PER_SOURCE =>
            {
                // The caller repeats the request.
                self.dropped += 1;
                return;
            }
            (Ok(_), Some(_)) => SidrStatus::SUCCESS,
        };
        let (Ok((header, private)), Some((port, listener)), SidrStatus::SUCCESS) =
            (header, listener, refusal)
        else {
            if self.buckets.take(now, from) {
                let has_trailer = header.is_ok_and(|(_, data)| has_trailer(data));
                let data = if has_trailer { &sidr_trailer::emit_rep(&[])[..] } else { &[] };
                let rep = SidrRep { status: refusal, service: req.service, ..empty_rep(data) };
                self.transmits.push_back(reply(key, to, rep));
            }
            return;
        };
        listener.waiting += 1;
        *self.requests_of.entry(network(from)).or_default() += 1;
        let serial = listener.serial;
        let (private, caller) = sidr_trailer::parse_req(private);
        let has_trailer = caller.is_some();
        let event = Event::Request {
            from: (from, header.source_port).into(),
            to: (to, port).into(),
            private: private.to_vec(),
            caller,
        };
        let id = self.new_id();
        self.by_key.insert(key, id);
        let end = now + REMEMBERED_FOR;
        self.timers.insert((end, id));
        self.requests.insert(
            id,
            WaitingRequest {
                key,
                to,
                service: req.service,
                port,
                listener: serial,
                has_trailer,
                end,
                timer: end,
            },
        );
        self.events.push_back((ResolveId(id), event));
    }

    fn receive_rep(&mut self, route: (IpAddr, IpAddr), transaction: u64, rep: &SidrRep<'_>) {
        let is_answered = self.attempts.get(&rep.request_id).is_some_and(|attempt| {
            (attempt.request.to, attempt.request.from) == route
                && (attempt.transaction, attempt.service) == (transaction, rep.service)
        });
        if !is_answered {
            return;
        }
        self.end_attempt(rep.request_id);
        let (private, knows_caller) = sidr_trailer::parse_rep(rep.private);
        let private = private.to_vec();
        let event = match rep.status {
            SidrStatus::SUCCESS if !is_datagram_qpn(rep.qpn) => {
                Event::Refused { status: SidrStatus::NO_QP, private }
            }
            SidrStatus::SUCCESS => {
                let service = DatagramQp { qpn: rep.qpn, q_key: rep.q_key };
                Event::Resolved { service, private, knows_caller }
            }
            status => Event::Refused { status, private },
        };
        self.events.push_back((ResolveId(rep.request_id), event));
    }

    /// Returns the next message to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<(ResolveId, Event)> {
        self.events.pop_front()
    }

    /// The time of the next [`expire`](Self::expire).
    pub fn deadline(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.answers.deadline()).min()
    }

    /// Repeats requests, ends attempts and the requests of callers that have given up, and forgets
    /// old replies.
    pub fn expire(&mut self, now: Instant) {
        self.answers.forget(now);
        while let Some((_, id)) = self.next_timer(now) {
            let Some(attempt) = self.attempts.get_mut(&id) else {
                self.request_timer(now, id);
                continue;
            };
            let (end, is_of_program) = attempt.end;
            if end <= now {
                shrinking_map::remove(&mut self.attempts, &id);
                let event = if is_of_program { Event::TimedOut } else { Event::NoAnswer };
                self.events.push_back((ResolveId(id), event));
                continue;
            }
            attempt.interval = (attempt.interval * 2).min(REPEAT_MAX);
            attempt.repeat_at = now + attempt.interval;
            self.transmits.push_back(attempt.request);
            self.timers.insert((attempt.next(), id));
        }
    }

    /// Handles the timer of a request. A request that has ended has no event: the program's answer
    /// fails with [`CmError::NoRequest`].
    fn request_timer(&mut self, now: Instant, id: u32) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.timer = request.end;
        if request.end <= now {
            self.remove_request(id);
        } else {
            self.timers.insert((request.end, id));
        }
    }

    /// Takes the first timer that has expired.
    fn next_timer(&mut self, now: Instant) -> Option<(Instant, u32)> {
        let is_due = self.timers.first().is_some_and(|(at, _)| *at <= now);
        if is_due { self.timers.pop_first() } else { None }
    }

    /// The number of requests that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped + self.buckets.refused()
    }

    /// An ID that no attempt and no request has.
    fn new_id(&mut self) -> u32 {
        let Sidr { ids, attempts, requests, .. } = self;
        ids.communication(|id| attempts.contains_key(&id) || requests.contains_key(&id))
    }

    /// Reports that this host has no receiver of RoCE packets (an ICMP message said that the port
    /// is unreachable), so repetitions of the request are useless.
    pub fn unreachable(&mut self, id: ResolveId, host: IpAddr) {
        if self.attempts.get(&id.0).is_some_and(|attempt| attempt.request.to == host) {
            self.end_attempt(id.0);
            self.events.push_back((id, Event::NoAnswer));
        }
    }

    fn end_attempt(&mut self, id: u32) {
        if let Some(attempt) = shrinking_map::remove(&mut self.attempts, &id) {
            self.timers.remove(&(attempt.next(), id));
        }
    }
}

/// Whether the program's data of a SIDR REQ have a trailer. If so, the data of the reply get a
/// trailer, too.
fn has_trailer(data: &[u8]) -> bool {
    sidr_trailer::parse_req(data).1.is_some()
}

/// Whether this can be the number of a queue pair that receives a program's datagrams. 0 and 1 are
/// the management queue pairs, and the last number stands for multicast.
const fn is_datagram_qpn(qpn: u32) -> bool {
    matches!(qpn, 2..0xFF_FFFF)
}

fn empty_rep(private: &[u8]) -> SidrRep<'_> {
    let (status, service) = (SidrStatus::SUCCESS, ServiceId(0));
    SidrRep { request_id: 0, status, qpn: 0, service, q_key: 0, info: &[], private }
}

/// Makes the reply to a request that was sent to the address `own`.
fn reply((from, request_id, transaction): RequestKey, own: IpAddr, rep: SidrRep<'_>) -> Transmit {
    let message = Message::SidrRep(SidrRep { request_id, ..rep });
    let mad: [u8; MAD_SIZE] = Mad { transaction, message }.emit();
    Transmit { from: own, to: from, mad }
}

fn check_private(private: &[u8], max: usize) -> Result<(), CmError> {
    match private.len() {
        len if len <= max => Ok(()),
        len => Err(CmError::PrivateData { len, max }),
    }
}
