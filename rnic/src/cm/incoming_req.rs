//! Handles REQs: decides which callers may connect.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use wire::cm::path::gid;
use wire::cm::{Answered, IpHeader, MAD_SIZE, Mad, Message, Reason, Rej, Req};
use wire::rocev2::PathMtu;

use super::connection::{Conn, Peer};
use super::half_open::DeferredReq;
use super::state::{Input, State};
use super::{Cm, ConnId, Event, IncomingRequest, Transmit};
use crate::rate_limit::network;

/// The values that identify a REQ: the caller's address, CA GUID and communication ID.
pub(super) type RequestKey = (IpAddr, u64, u32);

/// A queue pair of a peer: its address, CA GUID and QPN.
pub(super) type PeerQp = (IpAddr, u64, u32);

/// The shortest interval at which a REQ or REP is repeated. If a REQ is repeated after a shorter
/// time, the repetition is ignored.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// The longest interval at which a REQ or REP is repeated.
const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// If the program does not decide on a request and the caller does not repeat the REQ, the request
/// is kept at least for this time.
const MIN_DECISION_TIME: Duration = Duration::from_secs(5);
/// If the program does not decide on a request and the caller does not repeat the REQ, the request
/// is kept at most for this time.
const MAX_DECISION_TIME: Duration = Duration::from_secs(120);

/// The maximum number of REQs that one listener defers because its backlog is full.
pub(super) const MAX_DEFERRED_PER_LISTENER: usize = 64;
/// The maximum number of REQs of one address that one listener defers because its backlog is full.
const MAX_DEFERRED_PER_CALLER: usize = 8;

/// A port at which requests are accepted.
pub(super) struct Listener {
    pub(super) serial: u64,
    pub(super) backlog: usize,
    /// The number of requests that wait for a decision.
    pub(super) pending: usize,
    /// The number of requests that wait for a decision, for each address that has any.
    pending_of: HashMap<IpAddr, usize>,
    /// REQs that arrived while the backlog was full of requests of other addresses, the oldest
    /// first. The program's next decision admits the oldest of them, so requests of one address
    /// cannot exclude other addresses.
    pub(super) deferred: VecDeque<DeferredReq>,
}

impl Listener {
    pub(super) fn new(serial: u64, backlog: usize) -> Self {
        let (pending_of, deferred) = (HashMap::new(), VecDeque::new());
        Listener { serial, backlog, pending: 0, pending_of, deferred }
    }

    fn is_full(&self) -> bool {
        self.pending >= self.backlog
    }

    /// Takes a place in the backlog.
    fn take_place(&mut self, source: IpAddr) {
        self.pending += 1;
        *self.pending_of.entry(network(source)).or_default() += 1;
    }

    fn release_place(&mut self, source: IpAddr) {
        self.pending -= 1;
        let source = network(source);
        if let Some(count) = self.pending_of.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.pending_of.remove(&source);
            }
        }
    }

    /// Defers a REQ until the backlog has a place. Returns false if the REQ must be refused,
    /// because a request of its address is in the backlog or too many REQs are deferred.
    fn defer(
        &mut self,
        request: RequestKey,
        to: IpAddr,
        now: Instant,
        mad: impl FnOnce() -> [u8; MAD_SIZE],
    ) -> bool {
        // The repetition of a deferred REQ must not be refused. The refused caller would give up,
        // but its deferred REQ would still be admitted later.
        if let Some(known) = self.deferred.iter_mut().find(|req| req.request() == request) {
            known.repeated(now);
            return true;
        }
        let source = network(request.0);
        if self.pending_of.contains_key(&source) || self.backlog == 0 {
            return false;
        }
        self.deferred.retain(|req| req.is_current(now));
        let others = self.deferred.iter().filter(|req| network(req.from()) == source).count();
        if self.deferred.len() >= MAX_DEFERRED_PER_LISTENER || others >= MAX_DEFERRED_PER_CALLER {
            return false;
        }
        self.deferred.push_back(DeferredReq::new(request, to, now, mad()));
        true
    }
}

/// A serial number that no listener has.
const NO_SERIAL: u64 = 0;

/// A request's place in a listener's backlog.
pub(super) struct Pending {
    port: u16,
    serial: u64,
    /// Whether the caller names an alternate path.
    pub(super) alternate: bool,
}

impl Pending {
    /// A request that takes no place in a backlog, because it did not arrive at this manager.
    pub(super) fn without_place(port: u16, alternate: bool) -> Pending {
        Pending { port, serial: NO_SERIAL, alternate }
    }

    /// Frees the request's place in the backlog. Returns the listener's port.
    pub(super) fn release(self, listeners: &mut HashMap<u16, Listener>, source: IpAddr) -> u16 {
        if let Some(listener) = listeners.get_mut(&self.port)
            && listener.serial == self.serial
        {
            listener.release_place(source);
        }
        self.port
    }
}

/// The reason for which a REQ is refused, with additional rejection information (ARI), such as the
/// largest path MTU that would be accepted.
struct Refusal {
    reason: Reason,
    ari: Vec<u8>,
}

impl Refusal {
    /// The refusal of a path MTU, which contains the largest path MTU that is accepted.
    fn of_path_mtu(largest: PathMtu) -> Self {
        Refusal { reason: Reason::INVALID_MTU, ari: vec![largest.code()] }
    }
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Refusal { reason, ari: Vec::new() }
    }
}

/// The verified data of a REQ.
struct Caller<'a> {
    from: SocketAddr,
    to: SocketAddr,
    path_mtu: PathMtu,
    private: &'a [u8],
}

impl Cm {
    /// Handles a REQ: repeats the answer to a known REQ, defers the REQ, or handles it as a new
    /// one.
    pub(super) fn receive_req(
        &mut self,
        now: Instant,
        from: IpAddr,
        to: IpAddr,
        mad: &Mad<'_>,
        req: &Req<'_>,
    ) {
        let key = (from, req.ca_guid, req.local_id);
        self.forget_if_ended(now, &key);
        if let Some(&id) = self.by_request.get(&key) {
            self.repeated_request(now, id, mad);
        } else if self.half_open.must_defer(from, now) || self.exceeds_share(from) {
            self.half_open.defer(key, to, now, || mad.emit());
        } else {
            self.half_open.drop_deferred(&key);
            self.new_request(now, from, to, mad, req);
        }
    }

    /// Handles the repetition of a known REQ. Ignores it if it comes sooner than a caller would
    /// repeat a REQ.
    fn repeated_request(&mut self, now: Instant, id: u32, mad: &Mad<'_>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.last_repeat.is_none_or(|last| now >= last + MIN_INTERVAL) {
            conn.last_repeat = Some(now);
            self.apply(now, id, Input::Req, Some(mad));
        }
    }

    /// Admits a deferred REQ of an address. Call this when an acceptance of the address no longer
    /// waits for its RTU, or when a request of the address ends without an acceptance.
    pub(super) fn admit_deferred(&mut self, now: Instant, source: IpAddr) {
        while !self.exceeds_share(source)
            && let Some(deferred) = self.half_open.next_deferred(source, now)
        {
            let Ok(mad) = Mad::parse(&deferred.mad[..]) else { continue };
            let Message::Req(req) = &mad.message else { continue };
            // If requests of other addresses fill the backlog, the REQ is dropped and not refused.
            // The caller repeats it, and there may be room then.
            let listener = req.service.tcp_port().and_then(|port| self.listeners.get(&port));
            if listener.is_some_and(Listener::is_full) {
                continue;
            }
            if self.new_request(now, deferred.from(), deferred.to, &mad, req) {
                return;
            }
        }
    }

    /// Defers a REQ whose listener has a full backlog. Returns false if the REQ must be refused.
    fn defer_until_decision(
        &mut self,
        now: Instant,
        from: IpAddr,
        to: IpAddr,
        mad: &Mad<'_>,
        req: &Req<'_>,
    ) -> bool {
        let listener = req.service.tcp_port().and_then(|port| self.listeners.get_mut(&port));
        let request = (from, req.ca_guid, req.local_id);
        listener.is_some_and(|listener| listener.defer(request, to, now, || mad.emit()))
    }

    /// Admits deferred REQs of a listener. Call this when its backlog has a place again.
    pub(super) fn admit_after_decision(&mut self, now: Instant, port: u16) {
        while let Some(listener) = self.listeners.get_mut(&port)
            && !listener.is_full()
            && let Some(deferred) = listener.deferred.pop_front()
        {
            if deferred.is_current(now)
                && let Ok(mad) = Mad::parse(&deferred.mad[..])
                && let Message::Req(req) = &mad.message
            {
                self.receive_req(now, deferred.from(), deferred.to, &mad, req);
            }
        }
    }

    /// Drops a REQ whose caller has given up, if a listener has deferred it.
    pub(super) fn drop_deferred_by_listener(&mut self, request: &RequestKey) {
        for listener in self.listeners.values_mut() {
            listener.deferred.retain(|req| req.request() != *request);
        }
    }

    /// Handles a new REQ. Returns true if the program gets the request. Returns false if the REQ
    /// was deferred or refused. No state of a refused REQ is kept.
    fn new_request(
        &mut self,
        now: Instant,
        from: IpAddr,
        to: IpAddr,
        mad: &Mad<'_>,
        req: &Req<'_>,
    ) -> bool {
        let caller = match self.admit(now, from, to, req) {
            Ok(caller) => caller,
            Err(Refusal { reason: Reason::NO_RESOURCES, .. })
                if self.defer_until_decision(now, from, to, mad, req) =>
            {
                return false;
            }
            Err(_) if !self.answers.take(now, from) => return false,
            Err(Refusal { reason, ari }) => {
                match reason {
                    Reason::STALE_CONNECTION => self.challenge((from, req.ca_guid, req.qpn)),
                    Reason::INVALID_MTU => {
                        let largest = ari.first().and_then(|&code| PathMtu::new(code));
                        let largest = largest.unwrap_or_else(|| self.max_path_mtu(from, to));
                        let proposed = PathMtu::new(req.path_mtu);
                        let event = Event::PathMtuRefused { from, proposed, largest };
                        self.events.push_back((ConnId(0), event));
                    }
                    _ => {}
                }
                let rej = Rej {
                    local_id: 0,
                    remote_id: req.local_id,
                    answered: Answered::Req,
                    reason,
                    ari: &ari,
                    private: &[],
                };
                let mad = Mad { transaction: mad.transaction, message: Message::Rej(rej) }.emit();
                self.transmits.push_back(Transmit { from: to, to: from, mad });
                return false;
            }
        };

        let listener =
            self.listeners.get_mut(&caller.to.port()).expect("an admitted caller has a listener");
        listener.take_place(from);
        self.half_open.add_undecided(from);
        let serial = listener.serial;
        let mut conn =
            self.new_conn(State::ReqRcvd, caller.to, caller.from, req.primary.ack_timeout);
        conn.pending =
            Some(Pending { port: caller.to.port(), serial, alternate: req.alternate.is_some() });
        conn.peer = Peer { id: req.local_id, ca_guid: req.ca_guid, qpn: req.qpn };
        conn.transaction = mad.transaction;
        conn.interval =
            self.cfg.interval(req.local_response_timeout).clamp(MIN_INTERVAL, MAX_INTERVAL);
        conn.retries = req.max_cm_retries;
        // If the second REQ is lost, the next repetition comes two intervals after the first REQ.
        let repeated =
            self.cfg.interval(req.remote_response_timeout).clamp(MIN_INTERVAL, MAX_INTERVAL);
        conn.retention = 2 * repeated;
        let decision_time = repeated * (1 + u32::from(req.max_cm_retries));
        conn.deadline = Some(now + decision_time.clamp(MIN_DECISION_TIME, MAX_DECISION_TIME));

        let id = conn.id;
        self.insert_request(conn);
        let request = IncomingRequest {
            from: caller.from,
            to: caller.to,
            qpn: req.qpn,
            starting_psn: req.starting_psn,
            path_mtu: caller.path_mtu,
            responder_resources: req.responder_resources,
            initiator_depth: req.initiator_depth,
            ack_timeout: req.primary.ack_timeout,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            srq: req.srq,
            private: caller.private.to_vec(),
        };
        self.events.push_back((ConnId(id), Event::Request(Box::new(request))));
        true
    }

    pub(super) fn insert_request(&mut self, conn: Conn) {
        let id = conn.id;
        self.by_request.insert(conn.request_key(), id);
        self.by_peer_qp.insert(conn.peer_qp(), id);
        self.conns.insert(id, Box::new(conn));
        self.arm(id);
    }

    /// If more acceptances of this caller's address wait than the limit allows, ends the oldest
    /// ones, provided that they have waited long enough.
    pub(super) fn evict_excess(&mut self, now: Instant, source: IpAddr) {
        while self.half_open.is_overfull(source)
            && let Some(oldest) = self.half_open.evictable(source, now)
        {
            match self.conns.contains_key(&oldest) {
                true => self.deadline_passed(now, oldest),
                // The manager that has adopted the request limits its own acceptances.
                false => self.half_open.remove(source, oldest),
            }
        }
    }

    /// A REQ or REP names a queue pair of a peer that is already in a connection. Makes the program
    /// ask the peer whether it still uses that connection ([`Event::Stale`]). The REQ or REP may be
    /// forged, so it is refused until the connection has ended.
    pub(super) fn challenge(&mut self, peer_qp: PeerQp) {
        if let Some(&id) = self.by_peer_qp.get(&peer_qp)
            && self.conns.get(&id).is_some_and(|conn| conn.state == State::Established)
        {
            self.events.push_back((ConnId(id), Event::Stale));
        }
    }

    /// The largest path MTU that is accepted from a caller, if the path to it carries as much.
    pub fn max_path_mtu(&self, from: IpAddr, to: IpAddr) -> PathMtu {
        if from == to { self.cfg.loopback_path_mtu } else { self.cfg.path_mtu }
    }

    /// Checks a new REQ, and whether the port has a listener with room for the request.
    fn admit<'a>(
        &mut self,
        now: Instant,
        from: IpAddr,
        to: IpAddr,
        req: &Req<'a>,
    ) -> Result<Caller<'a>, Refusal> {
        if req.local_id == 0 {
            return Err(Reason::INVALID_COMM_ID.into());
        }
        if req.transport != Req::RC {
            return Err(Reason::INVALID_TRANSPORT.into());
        }
        // RC packets are sent to the GID and accepted only from it, so the GID must be the caller's
        // address. A wrong partition is refused with the same reason, as Linux does.
        let path = (req.primary.local_gid, req.primary.remote_gid);
        if path != (gid(from), gid(to)) || req.p_key & 0x7FFF != 0x7FFF {
            return Err(Reason::INVALID_GID.into());
        }
        let port = req.service.tcp_port().ok_or(Reason::INVALID_SERVICE_ID)?;
        let (header, private) = IpHeader::parse(req.private).map_err(|_| Reason::UNSUPPORTED)?;
        if (header.source, header.destination) != (from, to) {
            return Err(Reason::INVALID_GID.into());
        }

        let listener = self.listeners.get(&port).ok_or(Reason::INVALID_SERVICE_ID)?;
        if self.by_peer_qp.contains_key(&(from, req.ca_guid, req.qpn)) {
            return Err(Reason::STALE_CONNECTION.into());
        }
        let max_path_mtu = self.max_path_mtu(from, to);
        let path_mtu = PathMtu::new(req.path_mtu)
            .filter(|&mtu| mtu <= max_path_mtu)
            .ok_or_else(|| Refusal::of_path_mtu(max_path_mtu))?;
        if listener.is_full() {
            return Err(Reason::NO_RESOURCES.into());
        }
        // This check takes longer than the others, so it comes last.
        if from != to
            && let Some(largest) = self.path_limit.as_ref().and_then(|limit| limit(from, now))
            && path_mtu > largest
        {
            return Err(Refusal::of_path_mtu(largest.min(max_path_mtu)));
        }
        Ok(Caller {
            from: (from, header.source_port).into(),
            to: (to, port).into(),
            path_mtu,
            private,
        })
    }
}
