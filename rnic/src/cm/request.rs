//! REQs of callers: who may connect.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use wire::cm::path::gid;
use wire::cm::{Answered, IpHeader, Mad, Message, Reason, Rej, Req};
use wire::rocev2::PathMtu;

use super::conn::Peer;
use super::state::{Input, State};
use super::{Cm, ConnId, Event, Request, Transmit};

/// What makes two REQs the same: the caller's address, CA GUID and communication ID.
pub(super) type RequestKey = (IpAddr, u64, u32);

/// A queue pair of a peer: its address, CA GUID and QPN.
pub(super) type PeerQp = (IpAddr, u64, u32);

/// How soon a caller may ask us to repeat ourselves, and how late.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// How long a request is kept that neither its caller nor the consumer asks for, at least and at most.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(120));

/// Who takes calls to a port.
pub(super) struct Listener {
    pub(super) serial: u64,
    pub(super) backlog: usize,
    /// Requests that wait for a decision.
    pub(super) pending: usize,
}

/// A request's place in a backlog.
pub(super) struct Pending {
    port: u16,
    serial: u64,
    /// The caller names an alternate path.
    pub(super) alternate: bool,
}

impl Pending {
    /// Makes room for another request.
    pub(super) fn leave(self, listeners: &mut HashMap<u16, Listener>) {
        if let Some(listener) = listeners.get_mut(&self.port)
            && listener.serial == self.serial
        {
            listener.pending -= 1;
        }
    }
}

/// A REQ that is refused: why, and what would do instead.
struct Refusal {
    reason: Reason,
    ari: Vec<u8>,
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Refusal { reason, ari: Vec::new() }
    }
}

/// What the consumer sees of a caller.
struct Caller<'a> {
    from: SocketAddr,
    to: SocketAddr,
    path_mtu: PathMtu,
    private: &'a [u8],
}

impl Cm {
    /// Handles a REQ: a repetition of a known one, one to be deferred, or a new one.
    pub(super) fn request(
        &mut self,
        now: Instant,
        from: IpAddr,
        to: IpAddr,
        mad: &Mad<'_>,
        req: &Req<'_>,
    ) {
        let key = (from, req.ca_guid, req.local_id);
        if let Some(&id) = self.by_request.get(&key) {
            self.request_again(now, id, mad);
        } else if self.half_open.is_full(from) && self.half_open.to_evict(from, now).is_none() {
            self.half_open.defer(key, to, now, || mad.emit());
        } else {
            self.half_open.drop_deferred(&key);
            self.new_request(now, from, to, mad, req);
        }
    }

    /// Handles the repetition of a known REQ. It is ignored if it comes sooner than a caller
    /// repeats a REQ.
    fn request_again(&mut self, now: Instant, id: u32, mad: &Mad<'_>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.last_repeat.is_none_or(|asked| now >= asked + INTERVAL.0) {
            conn.last_repeat = Some(now);
            self.apply(now, id, Input::Req, Some(mad));
        }
    }

    /// Admits a deferred REQ of an address. Call this when one of its acceptances no longer waits
    /// for its RTU, or one of its requests ends without an acceptance.
    pub(super) fn admit_deferred(&mut self, now: Instant, source: IpAddr) {
        while let Some(deferred) = self.half_open.next_deferred(source, now) {
            if let Ok(mad) = Mad::parse(&deferred.mad[..])
                && let Message::Req(req) = &mad.message
                && self.new_request(now, deferred.from(), deferred.to, &mad, req)
            {
                return;
            }
        }
    }

    /// Handles a new REQ. Returns whether the consumer is told of it. Otherwise it is refused, and
    /// no state of it is kept.
    fn new_request(
        &mut self,
        now: Instant,
        from: IpAddr,
        to: IpAddr,
        mad: &Mad<'_>,
        req: &Req<'_>,
    ) -> bool {
        let caller = match self.admit(from, to, req) {
            Ok(caller) => caller,
            Err(_) if !self.answers.take(now, from) => return false,
            Err(Refusal { reason, ari }) => {
                if reason == Reason::STALE_CONNECTION {
                    self.challenge((from, req.ca_guid, req.qpn));
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
        listener.pending += 1;
        let serial = listener.serial;
        let mut conn = self.conn(State::ReqRcvd, caller.to, caller.from, req.primary.ack_timeout);
        conn.pending =
            Some(Pending { port: caller.to.port(), serial, alternate: req.alternate.is_some() });
        conn.peer = Peer { id: req.local_id, ca_guid: req.ca_guid, qpn: req.qpn };
        conn.transaction = mad.transaction;
        conn.interval = self.cfg.interval(req.local_response_timeout).clamp(INTERVAL.0, INTERVAL.1);
        conn.retries = req.max_cm_retries;
        // A REQ may come again after two of its intervals, if the second was lost.
        let repeated = self.cfg.interval(req.remote_response_timeout).clamp(INTERVAL.0, INTERVAL.1);
        conn.linger = 2 * repeated;
        let patience = repeated * (1 + u32::from(req.max_cm_retries));
        conn.deadline = Some(now + patience.clamp(PATIENCE.0, PATIENCE.1));

        let id = conn.id;
        self.by_request.insert(conn.request(), id);
        self.by_peer_qp.insert(conn.peer_qp(), id);
        self.conns.insert(id, conn);
        self.arm(id);
        let request = Request {
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

    /// Ends the oldest acceptance of this caller's address if there are too many, and it may be ended.
    pub(super) fn make_room(&mut self, now: Instant, source: IpAddr) {
        if self.half_open.is_overfull(source)
            && let Some(oldest) = self.half_open.to_evict(source, now)
        {
            self.time_is_over(now, oldest);
        }
    }

    /// Has the consumer ask the peer whether it still uses a connection ([`Event::Stale`]), because
    /// a REQ or REP names the queue pair that the peer uses there. The message may be forged. It is
    /// refused until that connection has ended.
    pub(super) fn challenge(&mut self, peer_qp: PeerQp) {
        if let Some(&id) = self.by_peer_qp.get(&peer_qp)
            && self.conns.get(&id).is_some_and(|conn| conn.state == State::Established)
        {
            self.events.push_back((ConnId(id), Event::Stale));
        }
    }

    /// Whether a REQ that is not known makes sense and somebody takes it.
    fn admit<'a>(
        &mut self,
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
        // RC packets will go to the GID, and are taken from it alone: only the caller may be meant. Linux names a wrong
        // partition in the same way.
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
        let most = if from == to { self.cfg.loopback_path_mtu } else { self.cfg.path_mtu };
        let path_mtu = PathMtu::new(req.path_mtu)
            .filter(|&mtu| mtu <= most)
            .ok_or_else(|| Refusal { reason: Reason::INVALID_MTU, ari: vec![most.code()] })?;
        if listener.pending >= listener.backlog {
            return Err(Reason::NO_RESOURCES.into());
        }
        Ok(Caller {
            from: (from, header.source_port).into(),
            to: (to, port).into(),
            path_mtu,
            private,
        })
    }
}
