//! The connections of an adapter.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use wire::cm::{IpHeader, Mad, Message, Path, Reason, Rej, Rep, Req, ServiceId, Timeout};

use super::conn::{Conn, Peer};
use super::half_open::HalfOpen;
use super::ids::{Ids, Random};
use super::request::{Listener, PeerQp, RequestKey};
use super::state::{Input, State};
use super::{Accept, Cfg, CmError, ConnId, Connect, Ending, Event, Transmit};
use crate::allowance::Allowances;

/// What OFED's uDAPL puts before the private data of a refusal, and expects there.
pub(super) const OFED_REJECT_PREFIX: [u8; 4] = [0x02, 0x00, 0x02, 0x00];
/// How long a consumer waits for the end of a connection that it ends abruptly.
const ABRUPT: Duration = Duration::from_millis(250);

/// Communication management of one adapter.
pub struct Cm {
    pub(super) cfg: Cfg,
    pub(super) ids: Ids,
    pub(super) conns: HashMap<u32, Conn>,
    /// Passive connections, by what makes a REQ theirs.
    pub(super) by_request: HashMap<RequestKey, u32>,
    /// The connections that peers' queue pairs are in, or may be.
    pub(super) by_peer_qp: HashMap<PeerQp, u32>,
    pub(super) listeners: HashMap<u16, Listener>,
    pub(super) half_open: HalfOpen,
    /// Limits answers to messages that belong to no connection.
    pub(super) answers: Allowances,
    /// Tells listeners apart: the same port may be listened to again.
    listener_serial: u64,
    /// Those that are kept to repeat a refusal, the oldest first. May name some that are gone.
    pub(super) refused: VecDeque<u32>,
    pub(super) timers: BTreeSet<(Instant, u32)>,
    pub(super) transmits: VecDeque<Transmit>,
    pub(super) events: VecDeque<(ConnId, Event)>,
}

impl Cm {
    /// Octets of private data in a call.
    pub const MAX_CONNECT_PRIVATE: usize = Req::MAX_PRIVATE - IpHeader::SIZE;
    /// Octets of private data in an acceptance.
    pub const MAX_ACCEPT_PRIVATE: usize = Rep::MAX_PRIVATE;

    /// Without connections. `random` gives the IDs, which strangers must not be able to guess.
    ///
    /// # Panics
    /// If the slot is not below 128.
    pub fn new(cfg: Cfg, random: Random) -> Self {
        Cm {
            ids: Ids::new(cfg.slot, random),
            cfg,
            conns: HashMap::new(),
            by_request: HashMap::new(),
            by_peer_qp: HashMap::new(),
            listeners: HashMap::new(),
            half_open: HalfOpen::default(),
            answers: Allowances::default(),
            listener_serial: 0,
            refused: VecDeque::new(),
            timers: BTreeSet::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Calls a peer. [`Event::Accepted`] or the reason why not follows.
    pub fn connect(&mut self, now: Instant, call: &Connect<'_>) -> Result<ConnId, CmError> {
        check_private(call.private, Self::MAX_CONNECT_PRIVATE)?;
        let (local, remote) = (call.local.ip(), call.remote.ip());
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(CmError::Families);
        }
        let mut conn = self.conn(State::ReqSent, call.local, call.remote, call.ack_timeout);
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
            primary: Path::over_ip(local, remote, call.ack_timeout),
            alternate: None,
            private: &[&header.emit()[..], call.private].concat(),
        };
        conn.keep_repeating(
            now,
            Mad { transaction: conn.transaction, message: Message::Req(req) }.emit(),
        );
        let id = conn.id;
        self.conns.insert(id, conn);
        self.send_kept(id);
        self.arm(id);
        Ok(ConnId(id))
    }

    /// Takes calls to a port, as many at a time as the backlog says until they are decided on.
    pub fn listen(&mut self, port: u16, backlog: usize) -> Result<(), CmError> {
        if self.listeners.contains_key(&port) {
            return Err(CmError::PortInUse(port));
        }
        self.listener_serial += 1;
        self.listeners.insert(port, Listener { serial: self.listener_serial, backlog, pending: 0 });
        Ok(())
    }

    /// Takes no more calls to a port. Requests that were told stay as they are.
    pub fn unlisten(&mut self, port: u16) {
        self.listeners.remove(&port);
    }

    /// Accepts a request. [`Event::Established`] or [`Event::AcceptFailed`] follows; the peer may send before the
    /// first.
    pub fn accept(&mut self, now: Instant, id: ConnId, accept: &Accept<'_>) -> Result<(), CmError> {
        check_private(accept.private, Self::MAX_ACCEPT_PRIVATE)?;
        let Cfg { ca_guid, target_ack_delay, .. } = self.cfg;
        let (conn, alternate) = self.undecided(id)?;
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
        self.make_room(now, source);
        Ok(())
    }

    /// Octets of private data in a rejection.
    pub fn max_reject_private(&self) -> usize {
        Rej::MAX_PRIVATE - if self.cfg.ofed_reject_prefix { OFED_REJECT_PREFIX.len() } else { 0 }
    }

    /// Rejects a request; [`Reason::CONSUMER`] is the consumer's. Nothing more is told of it.
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
        let (conn, _) = self.undecided(id)?;
        let rej = conn.rej_of_req(reason, &[prefix, private].concat());
        conn.keep(rej.mad);
        self.apply(now, id.0, Input::Reject, None);
        Ok(())
    }

    /// Ends a connection, or an attempt that [`connect`](Self::connect) began, or answers a peer that disconnects.
    /// [`Event::Disconnected`] follows, unless another end was told before.
    pub fn disconnect(&mut self, now: Instant, id: ConnId, ending: Ending) {
        self.apply(now, id.0, Input::Disconnect, None);
        if ending == Ending::Abrupt {
            self.give_up_drep_at(id.0, now + ABRUPT);
        }
    }

    /// The time is limited in which the answer to a DREQ is waited for.
    fn give_up_drep_at(&mut self, id: u32, until: Instant) {
        if let Some(conn) = self.conns.get_mut(&id)
            && conn.state == State::DreqSent
        {
            conn.deadline = Some(conn.deadline.map_or(until, |deadline| deadline.min(until)));
            self.arm(id);
        }
    }

    /// Ends whatever there is of it, as far as it has come, and tells no more of it than [`Event::Released`].
    pub fn forget(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id.0) else { return };
        conn.silent = true;
        self.events.retain(|(of, event)| *of != id || matches!(event, Event::Released { .. }));
        if self.reject(now, id, Reason::CONSUMER, &[]).is_err() {
            self.disconnect(now, id, Ending::Abrupt);
        }
    }

    /// As [`forget`](Self::forget), of a connection that broke on this side: the peer is told so.
    pub fn break_off(&mut self, now: Instant, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id.0) {
            conn.broke = true;
        }
        self.forget(now, id);
    }

    /// An RC packet has come for the connection's queue pair: that stands for an RTU that was lost.
    pub fn established_by_data(&mut self, now: Instant, id: ConnId) {
        self.apply(now, id.0, Input::Data, None);
    }

    /// The peer has not answered over a connection of which [`Event::Stale`] was told: it has left that.
    /// [`Event::Broken`] follows, and the peer's queue pair may be in another connection.
    pub fn stale(&mut self, now: Instant, id: ConnId) {
        self.apply(now, id.0, Input::Stale, None);
    }

    /// The peer's host says that nobody takes packets of RoCE there (ICMP, port unreachable): repeating is of no use.
    pub fn unreachable(&mut self, now: Instant, id: ConnId) {
        self.apply(now, id.0, Input::Exhausted, None);
    }

    /// Peers are gone, told by their addresses and IDs: nobody answers to the ends of connections with them.
    pub fn peers_are_gone(&mut self, now: Instant, are_gone: impl Fn(IpAddr, ConnId) -> bool) {
        let parting = self.conns.iter().filter(|(_, conn)| conn.state == State::DreqSent);
        let gone = parting.filter(|(_, conn)| are_gone(conn.remote.ip(), ConnId(conn.peer.id)));
        let gone: Vec<u32> = gone.map(|(&id, _)| id).collect();
        gone.into_iter().for_each(|id| self.apply(now, id, Input::Exhausted, None));
    }

    /// The next datagram to be sent.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next of what is to be told.
    pub fn poll_event(&mut self) -> Option<(ConnId, Event)> {
        self.events.pop_front()
    }

    /// When [`expire`](Self::expire) is to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Does what is due.
    pub fn expire(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            let conn = self.conns.get_mut(&id).expect("an armed connection");
            if conn.deadline.is_some_and(|deadline| deadline <= now) {
                self.time_is_over(now, id);
            } else if let Some(again) = conn.repeat(now) {
                self.transmits.push_back(again);
            } else {
                self.apply(now, id, Input::Exhausted, None);
            }
            self.arm(id);
        }
    }

    /// The time for a connection's state is over.
    pub(super) fn time_is_over(&mut self, now: Instant, id: u32) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.deadline = None;
        if conn.state == State::RepSent {
            // The REQ may be forged, with times as long as can be: whom it names gets few DREQs, and soon no more.
            (conn.interval, conn.retries) = (conn.interval.min(ABRUPT), 0);
        }
        self.apply(now, id, Input::Deadline, None);
    }

    /// Until when the answer to a DREQ of an abrupt end, or of a forgotten connection, is waited for. Whoever
    /// stops before has to reckon with peers that have not heard of the end, and perhaps never will.
    pub fn parting_until(&self) -> Option<Instant> {
        let parting = self.conns.values().filter(|conn| conn.state == State::DreqSent);
        parting.filter_map(|conn| conn.deadline).max()
    }

    /// The number of messages that got no answer because of the limit on answers to strangers.
    pub fn unanswered(&self) -> u64 {
        self.answers.refused()
    }

    /// Connections that something is known of, whatever their state.
    pub fn len(&self) -> usize {
        self.conns.len()
    }

    /// Whether nothing is known of any connection.
    pub fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    /// A connection of which nothing is known yet.
    pub(super) fn conn(
        &mut self,
        state: State,
        local: SocketAddr,
        remote: SocketAddr,
        ack_timeout: Timeout,
    ) -> Conn {
        let id = self.ids.communication(|id| self.conns.contains_key(&id));
        Conn {
            id,
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
            linger: Duration::ZERO,
            silent: false,
            broke: false,
            rep_is_seen: false,
            pending: None,
            last_repeat: None,
            kept: None,
            deadline: None,
            armed: None,
        }
    }

    /// A request that waits for a decision, and whether it names an alternate path.
    fn undecided(&mut self, id: ConnId) -> Result<(&mut Conn, bool), CmError> {
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
