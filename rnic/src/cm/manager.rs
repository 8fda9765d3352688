//! The connections of an adapter.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use wire::cm::{IpHeader, Mad, Message, Path, Reason, Rej, Rep, Req, ServiceId, Timeout};
use wire::rocev2::PathMtu;

use super::connection::{Conn, Peer};
use super::half_open::HalfOpen;
use super::hand_over::Records;
use super::ids::{Ids, Random};
use super::incoming_req::{Listener, PeerQp, RequestKey};
use super::state::{Input, State};
use super::{Accept, Cfg, CmError, ConnId, Connect, Ending, Event, Transmit};
use crate::rate_limit::TokenBuckets;

/// OFED's uDAPL puts these octets before the private data of a rejection. When it receives a
/// rejection, it expects them there.
pub(super) const OFED_REJECT_PREFIX: [u8; 4] = [0x02, 0x00, 0x02, 0x00];
/// The maximum time that the program waits for [`Event::Disconnected`] after it has ended a
/// connection abruptly.
const ABRUPT_END_TIMEOUT: Duration = Duration::from_millis(250);

/// Communication management of one adapter.
pub struct Cm {
    pub(super) cfg: Cfg,
    pub(super) ids: Ids,
    /// The connections are boxed, because a growing table has room for twice as many.
    pub(super) conns: HashMap<u32, Box<Conn>>,
    /// The requests that another manager answers.
    pub(super) records: Records,
    /// Passive connections and requests that another manager answers, by the values that identify
    /// their REQs.
    pub(super) by_request: HashMap<RequestKey, u32>,
    /// From a peer's queue pair to the connection that it is in, or may be in.
    pub(super) by_peer_qp: HashMap<PeerQp, u32>,
    pub(super) listeners: HashMap<u16, Listener>,
    pub(super) half_open: HalfOpen,
    /// Limits answers to messages that belong to no connection.
    pub(super) answers: TokenBuckets,
    /// The serial number of the latest listener. It distinguishes listeners of the same port.
    listener_serial: u64,
    /// Connections that are kept in order to repeat a rejection, the oldest first. Some of them may
    /// no longer exist.
    pub(super) rejected: VecDeque<u32>,
    pub(super) timers: BTreeSet<(Instant, u32)>,
    pub(super) transmits: VecDeque<Transmit>,
    pub(super) events: VecDeque<(ConnId, Event)>,
    /// Returns the path MTU of the path to a caller. `None`: paths have no limits of their own.
    pub(super) path_limit: Option<PathLimit>,
    /// Returns the number of queue pairs that could accept a request. `None`: it is not known.
    free_queue_pairs: Option<FreeQueuePairs>,
}

/// Returns the number of queue pairs that have no connection and are in no attempt to connect.
pub type FreeQueuePairs = Box<dyn Fn() -> usize + Send>;

/// Returns the largest path MTU that the path to a caller carries at this time. `None`: no limit is
/// known.
pub type PathLimit = Box<dyn Fn(IpAddr, Instant) -> Option<PathMtu> + Send>;

impl Cm {
    /// The maximum number of octets of private data in a request.
    pub const MAX_CONNECT_PRIVATE: usize = Req::MAX_PRIVATE - IpHeader::SIZE;
    /// The maximum number of octets of private data in an acceptance.
    pub const MAX_ACCEPT_PRIVATE: usize = Rep::MAX_PRIVATE;

    /// Makes a manager without connections. `random` supplies the IDs, which strangers must not be
    /// able to guess.
    ///
    /// # Panics
    /// If the value of the low bits does not fit in them, or there are 32 or more.
    pub fn new(cfg: Cfg, random: Random) -> Self {
        Cm {
            ids: Ids::new(cfg.low_bits, random),
            cfg,
            conns: HashMap::new(),
            records: Records::default(),
            by_request: HashMap::new(),
            by_peer_qp: HashMap::new(),
            listeners: HashMap::new(),
            half_open: HalfOpen::default(),
            answers: TokenBuckets::default(),
            listener_serial: 0,
            rejected: VecDeque::new(),
            timers: BTreeSet::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            path_limit: None,
            free_queue_pairs: None,
        }
    }

    /// Makes callers share the queue pairs: an address may hold at most as many unconfirmed
    /// acceptances as queue pairs are free
    /// ([`may_hold_another`](crate::rate_limit::may_hold_another)).
    pub fn share_queue_pairs(&mut self, free_queue_pairs: FreeQueuePairs) {
        self.free_queue_pairs = Some(free_queue_pairs);
    }

    /// Whether a further request of this address must wait, because the address already has its
    /// share of the queue pairs.
    pub(super) fn exceeds_share(&self, source: IpAddr) -> bool {
        let free = self.free_queue_pairs.as_ref();
        free.is_some_and(|free| self.half_open.exceeds_share(source, free()))
    }

    /// Limits the path MTU of callers at other addresses by the path to them. `path_limit` is
    /// called for requests that would be admitted otherwise.
    pub fn with_path_limit(mut self, path_limit: PathLimit) -> Self {
        self.path_limit = Some(path_limit);
        self
    }

    /// Calls a peer. [`Event::Accepted`] or the reason of the failure follows.
    pub fn connect(&mut self, now: Instant, call: &Connect<'_>) -> Result<ConnId, CmError> {
        check_private(call.private, Self::MAX_CONNECT_PRIVATE)?;
        let (local, remote) = (call.local.ip(), call.remote.ip());
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(CmError::Families);
        }
        let mut conn = self.new_conn(State::ReqSent, call.local, call.remote, call.ack_timeout);
        conn.qpn = Some(call.qpn);
        conn.deadline = call.deadline;
        conn.transaction = self.ids.transaction();

        let header =
            IpHeader { source_port: call.local.port(), source: local, destination: remote };
        let req = Req {
            local_id: conn.id,
            service: ServiceId::tcp(call.remote.port()),
            ca_guid: self.cfg.ca_guid,
            qpn: call.qpn,
            responder_resources: call.responder_resources,
            initiator_depth: call.initiator_depth,
            remote_response_timeout: self.cfg.response_timeout,
            transport: Req::RC,
            flow_control: false,
            starting_psn: call.starting_psn,
            local_response_timeout: self.cfg.response_timeout,
            retry_count: call.retry_count,
            p_key: 0xFFFF,
            path_mtu: call.path_mtu.code(),
            rnr_retry_count: call.rnr_retry_count,
            max_cm_retries: self.cfg.max_cm_retries,
            srq: call.srq,
            primary: Path {
                traffic_class: self.cfg.traffic_class,
                ..Path::over_ip(local, remote, call.ack_timeout)
            },
            alternate: None,
            private: &[&header.emit()[..], call.private].concat(),
        };
        conn.keep_repeating(
            now,
            Mad { transaction: conn.transaction, message: Message::Req(req) }.emit(),
        );
        let id = conn.id;
        self.conns.insert(id, Box::new(conn));
        self.send_kept(id);
        self.arm(id);
        Ok(ConnId(id))
    }

    /// Starts to accept requests to a port. At most `backlog` requests wait for a decision at a
    /// time.
    pub fn listen(&mut self, port: u16, backlog: usize) -> Result<(), CmError> {
        if self.listeners.contains_key(&port) {
            return Err(CmError::PortInUse(port));
        }
        self.listener_serial += 1;
        self.listeners.insert(port, Listener::new(self.listener_serial, backlog));
        Ok(())
    }

    /// Stops accepting requests to a port. Requests that the program already knows are not
    /// affected.
    pub fn unlisten(&mut self, port: u16) {
        self.listeners.remove(&port);
    }

    /// Whether this manager has, or has handed over, a connection that this REQ requested.
    pub fn has_request(&self, from: IpAddr, req: &Req<'_>) -> bool {
        self.by_request.contains_key(&(from, req.ca_guid, req.local_id))
    }

    /// Whether a request to a port is open: the program has not decided, or the caller possibly
    /// does not have the answer yet and so may repeat its REQ.
    pub fn has_open_requests(&self, port: u16) -> bool {
        let mut open = self.conns.values().filter(|conn| conn.state.is_open_request());
        open.any(|conn| conn.local.port() == port) || self.records.any_open(port)
    }

    /// Accepts a request. [`Event::Established`] or [`Event::AcceptFailed`] follows. The peer may
    /// send data before [`Event::Established`].
    pub fn accept(&mut self, now: Instant, id: ConnId, accept: &Accept<'_>) -> Result<(), CmError> {
        check_private(accept.private, Self::MAX_ACCEPT_PRIVATE)?;
        let Cfg { ca_guid, target_ack_delay, .. } = self.cfg;
        let (conn, alternate) = self.pending_request(id)?;
        let rep = Rep {
            local_id: conn.id,
            remote_id: conn.peer.id,
            qpn: accept.qpn,
            starting_psn: accept.starting_psn,
            responder_resources: accept.responder_resources,
            initiator_depth: accept.initiator_depth,
            target_ack_delay,
            failover: u8::from(alternate),
            flow_control: false,
            rnr_retry_count: accept.rnr_retry_count,
            srq: accept.srq,
            ca_guid,
            private: accept.private,
        };
        let rep = Mad { transaction: conn.transaction, message: Message::Rep(rep) }.emit();
        conn.qpn = Some(accept.qpn);
        conn.keep_repeating(now, rep);
        let source = conn.remote.ip();
        self.apply(now, id.0, Input::Accept, None);
        self.evict_excess(now, source);
        Ok(())
    }

    /// The maximum number of octets of private data in a rejection.
    pub fn max_reject_private(&self) -> usize {
        Rej::MAX_PRIVATE - if self.cfg.ofed_reject_prefix { OFED_REJECT_PREFIX.len() } else { 0 }
    }

    /// Rejects a request. The reason is [`Reason::CONSUMER`] if the program rejects it. No event
    /// follows.
    pub fn reject(
        &mut self,
        now: Instant,
        id: ConnId,
        reason: Reason,
        private: &[u8],
    ) -> Result<(), CmError> {
        check_private(private, self.max_reject_private())?;
        let prefix = match self.cfg.ofed_reject_prefix && reason == Reason::CONSUMER {
            true => &OFED_REJECT_PREFIX[..],
            false => &[],
        };
        let (conn, _) = self.pending_request(id)?;
        let rej = conn.rej_of_req(reason, &[prefix, private].concat());
        conn.keep(rej.mad);
        self.apply(now, id.0, Input::Reject, None);
        Ok(())
    }

    /// Ends a connection, ends an attempt that [`connect`](Self::connect) began, or answers the
    /// DREQ of a peer that disconnects. [`Event::Disconnected`] follows, unless the end was
    /// reported before.
    pub fn disconnect(&mut self, now: Instant, id: ConnId, ending: Ending) {
        self.apply(now, id.0, Input::Disconnect, None);
        if ending == Ending::Abrupt {
            self.give_up_drep_at(id.0, now + ABRUPT_END_TIMEOUT);
        }
    }

    /// Limits the time for which a connection waits for the answer to its DREQ.
    fn give_up_drep_at(&mut self, id: u32, until: Instant) {
        if let Some(conn) = self.conns.get_mut(&id)
            && conn.state == State::DreqSent
        {
            conn.deadline = Some(conn.deadline.map_or(until, |deadline| deadline.min(until)));
            self.arm(id);
        }
    }

    /// Ends a connection in any state. Afterwards its only event is [`Event::Released`].
    pub fn forget(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id.0) else { return };
        conn.muted = true;
        self.events.retain(|(of, event)| *of != id || matches!(event, Event::Released { .. }));
        if self.reject(now, id, Reason::CONSUMER, &[]).is_err() {
            self.disconnect(now, id, Ending::Abrupt);
        }
    }

    /// Does the same as [`forget`](Self::forget), for a connection that broke on this side. The
    /// DREQ tells the peer that the connection broke.
    pub fn break_off(&mut self, now: Instant, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id.0) {
            conn.broke = true;
        }
        self.forget(now, id);
    }

    /// Reports that an RC packet has arrived for the connection's queue pair. The packet counts as
    /// the RTU, which may be lost.
    pub fn established_by_data(&mut self, now: Instant, id: ConnId) {
        self.apply(now, id.0, Input::Data, None);
    }

    /// Reports that the peer has not answered over a connection after its [`Event::Stale`], so it
    /// has left the connection. [`Event::Broken`] follows, and the peer's queue pair may then be in
    /// another connection.
    pub fn stale(&mut self, now: Instant, id: ConnId) {
        self.apply(now, id.0, Input::Stale, None);
    }

    /// Reports that the peer's host has no receiver of RoCE packets (an ICMP message said that the
    /// port is unreachable), so repetitions are useless.
    pub fn unreachable(&mut self, now: Instant, id: ConnId) {
        self.apply(now, id.0, Input::Exhausted, None);
    }

    /// Reports that some peers no longer exist. `are_gone` gets a peer's address and the peer's ID
    /// of a connection, and returns whether that peer no longer exists. The connections to these
    /// peers stop waiting for the answer to their DREQ.
    pub fn peers_are_gone(&mut self, now: Instant, are_gone: impl Fn(IpAddr, ConnId) -> bool) {
        let ending = self.conns.iter().filter(|(_, conn)| conn.state == State::DreqSent);
        let gone = ending.filter(|(_, conn)| are_gone(conn.remote.ip(), ConnId(conn.peer.id)));
        let gone: Vec<u32> = gone.map(|(&id, _)| id).collect();
        gone.into_iter().for_each(|id| self.apply(now, id, Input::Exhausted, None));
    }

    /// The next datagram to be sent.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<(ConnId, Event)> {
        self.events.pop_front()
    }

    /// The time at which [`expire`](Self::expire) must be called next.
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Handles all timers that have expired.
    pub fn expire(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            let Some(conn) = self.conns.get_mut(&id) else {
                self.timers.remove(&(at, id));
                self.check_record(now, id);
                continue;
            };
            if conn.armed != Some(at) {
                // This is the timer of a record that is gone, and whose ID the connection has got.
                self.timers.remove(&(at, id));
                continue;
            }
            if conn.deadline.is_some_and(|deadline| deadline <= now) {
                self.deadline_passed(now, id);
            } else if let Some(again) = conn.repeat(now) {
                self.transmits.push_back(again);
            } else {
                self.apply(now, id, Input::Exhausted, None);
            }
            self.arm(id);
        }
    }

    /// Handles the end of the time that a connection may spend in its state.
    pub(super) fn deadline_passed(&mut self, now: Instant, id: u32) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.deadline = None;
        if conn.state == State::RepSent {
            // The REQ may be forged, and may ask for the longest response time and for many
            // retries. So the connection sends only a few DREQs to the alleged caller, and waits
            // for the DREP only for a short time.
            (conn.interval, conn.retries) = (conn.interval.min(ABRUPT_END_TIMEOUT), 0);
        }
        self.apply(now, id, Input::Deadline, None);
    }

    /// The latest time until which an abruptly ended or forgotten connection waits for the answer
    /// to its DREQ. If the adapter stops before that time, some peers may never learn of the end.
    pub fn disconnecting_until(&self) -> Option<Instant> {
        let ending = self.conns.values().filter(|conn| conn.state == State::DreqSent);
        ending.filter_map(|conn| conn.deadline).max()
    }

    /// The number of messages that got no answer because of the limit on answers to strangers.
    pub fn unanswered(&self) -> u64 {
        self.answers.refused()
    }

    /// The number of connections, in whatever state.
    pub fn len(&self) -> usize {
        self.conns.len()
    }

    /// Whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    pub(super) fn new_id(&mut self) -> u32 {
        let Cm { ids, conns, records, .. } = self;
        ids.communication(|id| conns.contains_key(&id) || records.contains(id))
    }

    /// Makes a connection with a new ID.
    pub(super) fn new_conn(
        &mut self,
        state: State,
        local: SocketAddr,
        remote: SocketAddr,
        ack_timeout: Timeout,
    ) -> Conn {
        Conn {
            id: self.new_id(),
            state,
            local,
            remote,
            qpn: None,
            peer: Peer::default(),
            transaction: 0,
            dreq_transaction: 0,
            interval: self.cfg.interval(self.cfg.response_timeout),
            retries: self.cfg.max_cm_retries,
            ack_timeout,
            retention: Duration::ZERO,
            muted: false,
            broke: false,
            rep_is_seen: false,
            pending: None,
            adoption: None,
            last_repeat: None,
            kept: None,
            deadline: None,
            armed: None,
        }
    }

    /// Returns a request that waits for a decision, and whether it names an alternate path.
    fn pending_request(&mut self, id: ConnId) -> Result<(&mut Conn, bool), CmError> {
        let conn = self.conns.get_mut(&id.0).ok_or(CmError::NoRequest)?;
        let alternate = conn.pending.as_ref().ok_or(CmError::NoRequest)?.alternate;
        Ok((conn, alternate))
    }
}

fn check_private(private: &[u8], max: usize) -> Result<(), CmError> {
    match private.len() {
        len if len > max => Err(CmError::PrivateData { len, max }),
        _ => Ok(()),
    }
}
