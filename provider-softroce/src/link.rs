//! A queue pair and its connection.
//!
//! ```text
//! Idle ─ connect ─► Connecting ─ accepted ─► Established ─────────────────► Ended
//!      ─ accept ───────────────────────────► Established ─► Disconnecting ─► Ended
//! ```
//!
//! Everything that is posted completes before the upcall that reports how the connection ended.

mod delayed_ack;
mod disconnecting;
mod end;
mod established;

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use adapter::{Counts, Shared};
use dat_core::provider::ReadDepth;
use mio::Interest;
use rnic::cm::{Accept, Accepted, ConnId, Connect, Event, Request};
use rnic::rc::Failure;
use rnic::{Arrival, Work};
use wire::cm::{Reason, Timeout};
use wire::rocev2::{Operation, Packet, PathMtu, Psn};

use self::disconnecting::Disconnecting;
use self::end::{BreakReason, End};
use self::established::{Established, Terms};
use crate::engine::{Key, Kit, Sink, Upcall};
use crate::line::Peer;
use crate::port::{Lifeline, slot_of};
use crate::scout::Refusal;
use crate::station::{GSI, Owner, Station, random};

/// How long a requester waits for an acknowledgement: 2^17 · 4.096 µs, as kernels do.
const ACK_TIMEOUT: Timeout = Timeout::new(17);
/// Consecutive timeouts after which the requester still retries. The maximum would be 7, but a peer
/// on rxe (Linux 6.12) takes 7 as no limit and would never notice that a process has been killed.
const ACK_TIMEOUT_RETRIES: u8 = 6;
/// 7 stands for no limit: a peer that posts no receive is waited for.
const RNR_RETRIES: u8 = 7;
/// Number of attempts with different queue pair numbers if the peer believes that the queue pair is
/// already connected.
const STALE_CONNECTION_TRIES: u8 = 3;

/// A queue pair, as the engine sees it.
pub(crate) struct Link {
    index: usize,
    sink: Sink,
    shared: Arc<Shared>,
    phase: Phase,
    /// Whether it is in the kit's list of queue pairs that have received something.
    touched: bool,
    /// Whether it is in the kit's list of queue pairs that owe an acknowledgement.
    owing: bool,
}

/// What identifies a connection.
#[derive(Clone, Copy)]
pub(crate) struct Conn {
    pub(crate) station: usize,
    pub(crate) id: ConnId,
    pub(crate) qpn: u32,
    /// The address and slot of the peer. The slot is 0 until it is known.
    pub(crate) peer: (IpAddr, u8),
}

enum Phase {
    Idle(Work),
    Connecting(Box<Connecting>),
    Established(Box<Established>),
    /// This side has closed the connection. The consumer is told when the peer has answered.
    Disconnecting(Box<Disconnecting>),
    Ended(Work),
    /// Only while one phase is replaced by another.
    Transition,
}

/// An attempt to connect.
struct Connecting {
    work: Work,
    target: Target,
    /// `None`: the attempt failed before a request was sent.
    attempt: Option<(Conn, Psn)>,
    /// The local cause of that failure, if it is known.
    local_failure: Option<String>,
    stale_attempts: u8,
}

/// The peer to connect to, and the parameters of the connection.
pub(crate) struct Target {
    /// The peer's address and the connection qualifier.
    pub(crate) to: SocketAddr,
    /// The local address and port.
    pub(crate) from: SocketAddr,
    pub(crate) private: Vec<u8>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) depth: ReadDepth,
    pub(crate) mtu: PathMtu,
}

/// The parts of the engine that the methods of a connection need besides the queue pair.
pub(crate) struct Tools<'a> {
    pub(crate) station: &'a mut Station,
    pub(crate) kit: &'a mut Kit,
    pub(crate) now: Instant,
}

impl Link {
    pub(crate) fn new(index: usize, sink: Sink, shared: Arc<Shared>, work: Work) -> Self {
        Link { index, sink, shared, phase: Phase::Idle(work), touched: false, owing: false }
    }

    /// The index of the station that its connection uses.
    pub(crate) fn station(&self) -> Option<usize> {
        match &self.phase {
            Phase::Connecting(connecting) => connecting.attempt.map(|(conn, _)| conn.station),
            Phase::Established(established) => Some(established.conn.station),
            Phase::Disconnecting(disconnecting) => Some(disconnecting.conn.station),
            Phase::Idle(_) | Phase::Ended(_) | Phase::Transition => None,
        }
    }

    /// The peer of its connection, if that has this queue pair number and accepts packets from this
    /// address.
    #[inline]
    pub(crate) fn peer(&mut self, from: SocketAddr, qpn: u32) -> Option<&mut Peer> {
        match &mut self.phase {
            Phase::Established(established)
                if established.conn.qpn == qpn && established.peer.may_send_from(from) =>
            {
                Some(&mut established.peer)
            }
            Phase::Disconnecting(of) if of.conn.qpn == qpn && of.peer.may_send_from(from) => {
                Some(&mut of.peer)
            }
            _ => None,
        }
    }

    /// Whether its connection is with the adapter that has this address and slot.
    pub(crate) fn is_connected_to(&self, peer: IpAddr, slot: u8) -> bool {
        match &self.phase {
            Phase::Established(established) => established.conn.peer == (peer, slot),
            Phase::Disconnecting(disconnecting) => disconnecting.conn.peer == (peer, slot),
            _ => false,
        }
    }

    /// Whether a refusal refers to the last message that this queue pair has sent to find out
    /// whether the peer is there.
    pub(crate) fn matches_refusal(&self, refusal: &Refusal) -> bool {
        let asked = match &self.phase {
            Phase::Connecting(connecting) => Some((connecting.target.to.ip(), GSI)),
            // The peer has answered the connection request, whatever its host reported about that.
            Phase::Established(established) => {
                Some((established.peer.address.ip(), established.peer_qpn))
            }
            Phase::Disconnecting(disconnecting) => Some((disconnecting.peer.address.ip(), GSI)),
            Phase::Idle(_) | Phase::Ended(_) | Phase::Transition => None,
        };
        asked == Some((refusal.host, refusal.qpn)) && self.conn() == Some(refusal.id)
    }

    /// The id of its connection or of its attempt to connect.
    pub(crate) fn conn(&self) -> Option<ConnId> {
        match &self.phase {
            Phase::Connecting(connecting) => connecting.attempt.map(|(conn, _)| conn.id),
            Phase::Established(established) => Some(established.conn.id),
            Phase::Disconnecting(disconnecting) => Some(disconnecting.conn.id),
            Phase::Idle(_) | Phase::Ended(_) | Phase::Transition => None,
        }
    }

    /// Adds the counters of its connection, if there is one.
    pub(crate) fn count(&self, counts: &mut Counts) {
        if let Phase::Established(established) = &self.phase {
            counts.add(&established.rc.stats().list());
        }
    }

    /// The number of receive buffers that belong to it and have not completed.
    pub(crate) fn allocated(&self) -> usize {
        match &self.phase {
            Phase::Idle(work) | Phase::Ended(work) => work.allocated(),
            Phase::Connecting(connecting) => connecting.work.allocated(),
            Phase::Established(established) => established.rc.work().allocated(),
            Phase::Disconnecting(disconnecting) => disconnecting.responder.work().allocated(),
            Phase::Transition => 0,
        }
    }
}

/// The active side.
impl Link {
    /// Sends a connection request.
    pub(crate) fn connect(&mut self, tools: &mut Tools<'_>, station: usize, target: Target) {
        let Phase::Idle(work) = std::mem::replace(&mut self.phase, Phase::Transition) else {
            return;
        };
        let attempt = send_connect_request(tools, (self.index, &work), station, &target);
        if attempt.is_none() {
            tools.kit.fail_soon(self.index);
        }
        self.phase = Phase::Connecting(Box::new(Connecting {
            work,
            target,
            attempt,
            local_failure: None,
            stale_attempts: 0,
        }));
    }

    /// Starts an attempt that has already failed: there is no route to the peer.
    pub(crate) fn fail_connect(&mut self, kit: &mut Kit, target: Target, local_failure: String) {
        let Phase::Idle(work) = std::mem::replace(&mut self.phase, Phase::Transition) else {
            return;
        };
        kit.fail_soon(self.index);
        let connecting = Connecting {
            work,
            target,
            attempt: None,
            local_failure: Some(local_failure),
            stale_attempts: 0,
        };
        self.phase = Phase::Connecting(Box::new(connecting));
    }

    /// Reports such a failure, now that the consumer's call has returned.
    pub(crate) fn report_failure(&mut self, tools: Option<&mut Tools<'_>>) {
        match &self.phase {
            Phase::Connecting(connecting) if connecting.attempt.is_none() => {
                let local_failure = connecting.local_failure.clone();
                self.fail(Upcall::Unreachable {
                    because: local_failure.as_ref().map(|why| why as &dyn Display),
                });
            }
            Phase::Ended(_) => self.sink.call(Upcall::AcceptFailed),
            Phase::Established(_) | Phase::Disconnecting(_) => {
                tools.into_iter().for_each(|tools| self.on_peer_gone(tools))
            }
            _ => {}
        }
    }

    /// Enters the phase `Established`. From now on the end of the peer's process is noticed.
    fn enter_established(&mut self, tools: &mut Tools<'_>, established: Established) {
        let (station, (_, slot)) = (established.conn.station, established.conn.peer);
        tools.station.line.expect(established.peer.address);
        let Kit { context, failing, .. } = &mut *tools.kit;
        let watch = |number, line: &Lifeline| {
            // If the lifeline cannot be watched, the end of the process is noticed later.
            context.watch(Key::Lifeline { station, number }, line, Interest::READABLE).ok();
        };
        if !tools.station.look_after(established.peer.address, slot, watch) {
            failing.push(self.index);
        }
        self.phase = Phase::Established(Box::new(established));
    }

    /// The attempt to connect has failed.
    fn fail(&mut self, why: Upcall<'_>) {
        match std::mem::replace(&mut self.phase, Phase::Transition) {
            Phase::Connecting(connecting) => self.finish(connecting.work),
            other => return self.phase = other,
        }
        self.sink.call(why);
    }

    /// The peer has accepted.
    fn on_accepted(&mut self, tools: &mut Tools<'_>, answer: &Accepted) {
        let connecting = match std::mem::replace(&mut self.phase, Phase::Transition) {
            Phase::Connecting(connecting) => connecting,
            other => return self.phase = other,
        };
        let Connecting { work, target, attempt, .. } = *connecting;
        let ((mut conn, rq_psn), peer) = match (attempt, tools.station.peer(target.to.ip())) {
            (Some(attempt), Some(peer)) => (attempt, peer),
            _ => {
                self.finish(work);
                return self.sink.call(Upcall::Unreachable { because: None });
            }
        };
        conn.peer.1 = slot_of(answer.qpn);
        let depth = ReadDepth {
            incoming: target.depth.incoming.min(answer.initiator_depth.into()),
            outgoing: target.depth.outgoing.min(answer.responder_resources.into()),
        };
        let terms = Terms {
            mtu: target.mtu,
            peer_qpn: answer.qpn,
            sq_psn: answer.starting_psn,
            rq_psn,
            // The resources that were offered are kept, even if the peer uses fewer.
            depth: ReadDepth { incoming: target.depth.incoming, ..depth },
            ack_timeout: tools.station.timeout.unwrap_or(ACK_TIMEOUT),
            retries: tools.station.retries.unwrap_or(ACK_TIMEOUT_RETRIES),
            rnr_retries: answer.rnr_retry_count,
        };
        let mut established = Established::new(self.index, work, terms, conn, peer, tools);
        established.reported = true;
        self.enter_established(tools, established);
        // The private data are padded with zeros to the length of their field.
        let private = &answer.private[..];
        let (peer, local) = (target.to, target.from);
        self.sink.call(Upcall::Established { private, peer, local, depth });
        self.transmit(tools);
    }

    /// The peer's adapter has refused the request. Another attempt may succeed.
    fn on_refused(&mut self, tools: &mut Tools<'_>, reason: Reason, takes: Option<PathMtu>) {
        let index = self.index;
        let Phase::Connecting(connecting) = &mut self.phase else { return };
        let Connecting { work, target, attempt, stale_attempts, .. } = &mut **connecting;
        let again = match (reason, takes) {
            (Reason::INVALID_MTU, Some(mtu)) if mtu < target.mtu => {
                target.mtu = mtu;
                true
            }
            (Reason::STALE_CONNECTION, _) => {
                *stale_attempts += 1;
                *stale_attempts < STALE_CONNECTION_TRIES
            }
            _ => false,
        };
        let station = attempt.map(|(conn, _)| conn.station);
        if let (true, Some(station)) = (again, station)
            && let Some(next) = self::send_connect_request(tools, (index, work), station, target)
        {
            *attempt = Some(next);
            return;
        }
        self.fail(Upcall::Rejected { by_peer: false, private: &[] });
    }
}

/// Sends a connection request. Returns the connection and the starting PSN for the peer, or `None`
/// if no queue pair number is free.
fn send_connect_request(
    tools: &mut Tools<'_>,
    (link, work): (usize, &Work),
    index: usize,
    target: &Target,
) -> Option<(Conn, Psn)> {
    let Tools { station, now, .. } = tools;
    let qpn = station.qpns.assign(link)?;
    let rq_psn = Psn::new(random() as u32);
    let connect = Connect {
        local: target.from,
        remote: target.to,
        qpn,
        starting_psn: rq_psn,
        path_mtu: target.mtu,
        responder_resources: target.depth.incoming as u8,
        initiator_depth: target.depth.outgoing as u8,
        ack_timeout: station.timeout.unwrap_or(ACK_TIMEOUT),
        retry_count: station.retries.unwrap_or(ACK_TIMEOUT_RETRIES),
        rnr_retry_count: RNR_RETRIES,
        srq: work.has_srq(),
        private: &target.private,
        deadline: target.deadline,
    };
    match station.cm.connect(*now, &connect) {
        Ok(id) => {
            station.owners.insert(id, Owner::Link(link));
            Some((Conn { station: index, id, qpn, peer: (target.to.ip(), 0) }, rq_psn))
        }
        Err(_) => {
            station.qpns.release(qpn);
            None
        }
    }
}

/// The passive side.
impl Link {
    /// Accepts a request.
    pub(crate) fn accept(
        &mut self,
        tools: &mut Tools<'_>,
        (index, id): (usize, ConnId),
        request: &Request,
        private: &[u8],
        depth: ReadDepth,
    ) {
        let Tools { station, now, .. } = tools;
        let ip = request.from.ip();
        let (Some(peer), Some(qpn)) = (station.peer(ip), station.qpns.assign(self.index)) else {
            station.cm.reject(*now, id, Reason::NO_QP, &[]).ok();
            return self.fail_accept(tools.kit);
        };
        let rq_psn = Psn::new(random() as u32);
        let depth = ReadDepth {
            incoming: depth.incoming.min(request.initiator_depth.into()),
            outgoing: depth.outgoing.min(request.responder_resources.into()),
        };
        let accept = Accept {
            qpn,
            starting_psn: rq_psn,
            responder_resources: depth.incoming as u8,
            initiator_depth: depth.outgoing as u8,
            rnr_retry_count: RNR_RETRIES,
            srq: matches!(&self.phase, Phase::Idle(work) if work.has_srq()),
            private,
        };
        if station.cm.accept(*now, id, &accept).is_err() {
            station.qpns.release(qpn);
            return self.fail_accept(tools.kit);
        }
        station.owners.insert(id, Owner::Link(self.index));
        let work = match std::mem::replace(&mut self.phase, Phase::Transition) {
            Phase::Idle(work) => work,
            // dat-core never accepts with a queue pair that is not idle.
            other => return self.phase = other,
        };
        let terms = Terms {
            mtu: request.path_mtu,
            peer_qpn: request.qpn,
            sq_psn: request.starting_psn,
            rq_psn,
            depth,
            ack_timeout: station.timeout.unwrap_or(request.ack_timeout),
            retries: station.retries.unwrap_or(request.retry_count),
            rnr_retries: request.rnr_retry_count,
        };
        let mut established = Established::new(
            self.index,
            work,
            terms,
            Conn { station: index, id, qpn, peer: (ip, slot_of(request.qpn)) },
            peer,
            tools,
        );
        established.endpoints = Some((request.from, request.to));
        self.enter_established(tools, established);
    }

    /// Accepts a request that no longer exists: the consumer is told that accepting has failed.
    pub(crate) fn fail_accept(&mut self, kit: &mut Kit) {
        if let Phase::Idle(work) = std::mem::replace(&mut self.phase, Phase::Transition) {
            self.finish(work);
            kit.fail_soon(self.index);
        }
    }

    /// The peer has confirmed the acceptance.
    fn on_established(&mut self, tools: &mut Tools<'_>) {
        let Phase::Established(established) = &mut self.phase else { return };
        if std::mem::replace(&mut established.reported, true) {
            return;
        }
        let (peer, local) =
            established.endpoints.unwrap_or((established.peer.address, tools.station.address()));
        self.sink.call(Upcall::Established { private: &[], peer, local, depth: established.depth });
        self.transmit(tools);
    }
}

/// The connection.
impl Link {
    /// Handles an event from the connection manager.
    pub(crate) fn on_cm_event(&mut self, tools: &mut Tools<'_>, id: ConnId, event: Event) {
        // The event belongs to an earlier attempt.
        if self.conn() != Some(id) {
            return;
        }
        match event {
            Event::Accepted(answer) => self.on_accepted(tools, &answer),
            Event::Established => self.on_established(tools),
            Event::Rejected { private } => {
                self.fail(Upcall::Rejected { by_peer: true, private: &private })
            }
            Event::Refused { reason, path_mtu } => self.on_refused(tools, reason, path_mtu),
            Event::Unreachable => self.fail(Upcall::Unreachable { because: None }),
            Event::TimedOut => self.fail(Upcall::TimedOut),
            Event::AcceptFailed | Event::Withdrawn => self.end(tools, End::NotAccepted),
            Event::Disconnecting { broke } => self.on_peer_disconnecting(tools, broke),
            Event::Disconnected => self.on_disconnected(tools),
            Event::Broken => self.end(tools, End::Broken(BreakReason::ConnectionForgotten)),
            Event::Stale => self.on_stale(tools),
            Event::Request(_) | Event::Released { .. } => {}
        }
    }

    /// A message claims that the peer's queue pair is in another connection.
    fn on_stale(&mut self, tools: &mut Tools<'_>) {
        if let Phase::Established(established) = &mut self.phase {
            established.rc.start_challenge(tools.now, &mut tools.kit.burst);
            if established.rc.is_last_retry() {
                tools.station.probe_host(established.peer.address, tools.now);
            }
            tools.station.send(&established.peer, &mut tools.kit.burst, tools.now);
            tools.kit.wheel.set(self.index, established.rc.deadline());
        }
    }

    /// Handles a packet for this queue pair from an address that its peer may have.
    #[inline]
    pub(crate) fn receive(&mut self, tools: &mut Tools<'_>, from: SocketAddr, packet: &Packet<'_>) {
        if let Phase::Established(established) = &mut self.phase
            && (established.peer.is_new() || !established.reported)
            && established.rc.has_expected_psn(packet)
        {
            established.peer.comes_from(tools.station.address(), from);
            // The consumer must learn of the connection before it learns of a message. The RTU may
            // have been lost, or it may arrive after the packet.
            if !established.reported {
                tools.station.cm.established_by_data(tools.now, established.conn.id);
                self.on_established(tools);
            }
        }
        let established = match &mut self.phase {
            Phase::Established(established) => established,
            Phase::Disconnecting(disconnecting) => return disconnecting.receive(tools, packet),
            _ => return,
        };
        if !std::mem::replace(&mut self.touched, true) {
            tools.kit.touched.push(self.index);
        }
        // A READ is carried out when its responses are created. That must happen before any later
        // request changes the memory.
        if established.rc.wants_tx() && changes_memory(packet) {
            established.failure = established.failure.or(established.transmit(tools).err());
        }
        // The failure is handled when the whole batch of packets has been processed.
        established.failure =
            established.failure.or(established.rc.receive(tools.now, packet).err());
    }

    /// A batch of packets has been processed.
    #[inline]
    pub(crate) fn after_receive(&mut self, tools: &mut Tools<'_>) {
        self.touched = false;
        let Phase::Established(established) = &mut self.phase else { return };
        if let Some(failure) = established.failure {
            return self.end(tools, End::Broken(failure.into()));
        }
        // The RNR NAK may have been sent already: that happens if another message follows in the
        // batch.
        if let Some(Arrival { octets, whole }) = established.rc.take_rnr_arrival() {
            self.sink.call(Upcall::ReceiverNotReady { octets, whole });
        }
        if established.rc.wants_tx()
            || established.closing.is_some()
            || established.peer_disconnect.is_some()
        {
            self.transmit(tools);
        }
        let Phase::Established(established) = &mut self.phase else { return };
        if !established.rc.owes_ack() {
            // The engine has sent the acknowledgement.
            established.delayed_ack.sent();
        } else {
            established.delayed_ack.owe(tools.now);
            if !std::mem::replace(&mut self.owing, true) {
                tools.kit.owing.push(self.index);
            }
        }
        tools.kit.wheel.set(self.index, established.rc.deadline());
    }

    /// Whether only part of a message of the peer has arrived.
    #[inline]
    pub(crate) fn is_mid_message(&self) -> bool {
        matches!(&self.phase, Phase::Established(established) if established.rc.is_mid_message())
    }

    /// Whether the consumer has sent something since the acknowledgement has been owed.
    #[inline]
    pub(crate) fn consumer_has_sent(&self) -> bool {
        match &self.phase {
            Phase::Established(established) => established.delayed_ack.consumer_has_sent(),
            _ => false,
        }
    }

    /// Whether it owes an acknowledgement that can be delayed further.
    #[inline]
    pub(crate) fn can_delay_ack(&mut self, now: Instant) -> bool {
        match &mut self.phase {
            Phase::Established(established) => {
                established.rc.owes_ack()
                    && established.closing.is_none()
                    && established.delayed_ack.can_wait(now)
            }
            _ => false,
        }
    }

    /// When the acknowledgement that it owes must be sent.
    pub(crate) fn ack_deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Established(established) => established.delayed_ack.deadline(),
            _ => None,
        }
    }

    /// Sends the acknowledgement that is owed.
    pub(crate) fn acknowledge(&mut self, tools: Option<&mut Tools<'_>>) {
        self.owing = false;
        let (Phase::Established(established), Some(tools)) = (&mut self.phase, tools) else {
            return;
        };
        if established.rc.owes_ack() {
            established.rc.acknowledge(&mut tools.kit.burst);
            tools.station.send(&established.peer, &mut tools.kit.burst, tools.now);
        }
        established.delayed_ack.sent();
        if established.closing.is_some() {
            self.transmit(tools);
        }
    }

    /// Sends everything that is ready.
    pub(crate) fn transmit(&mut self, tools: &mut Tools<'_>) {
        match &mut self.phase {
            Phase::Established(established) => {
                if established.rc.is_peer_close_done()
                    && let Some(end) = established.end_by_peer()
                {
                    return self.end(tools, end);
                }
                if let Err(failure) = established.transmit(tools) {
                    established.failure = Some(failure);
                    return self.end(tools, End::Broken(failure.into()));
                }
                if let Some(how) = established.closing
                    && established.rc.is_drained()
                {
                    return self.end(tools, End::Local(how));
                }
                tools.kit.wheel.set(self.index, established.rc.deadline());
            }
            Phase::Disconnecting(disconnecting) => {
                disconnecting.responder.flush();
                disconnecting.transmit(tools);
            }
            Phase::Ended(work) => work.flush(),
            Phase::Idle(_) | Phase::Connecting(_) | Phase::Transition => {}
        }
    }

    /// Continues to send after other queue pairs have had their turn.
    pub(crate) fn resume_transmit(&mut self, tools: &mut Tools<'_>) {
        match &mut self.phase {
            Phase::Established(established) => established.queued = false,
            Phase::Disconnecting(disconnecting) => disconnecting.queued = false,
            _ => return,
        }
        self.transmit(tools);
    }

    /// Flushes what has been posted since the connection ended.
    pub(crate) fn flush_ended(&mut self) {
        if let Phase::Ended(work) = &mut self.phase {
            work.flush();
        }
    }

    /// Handles a deadline that has passed.
    pub(crate) fn expire(&mut self, tools: &mut Tools<'_>) {
        let Phase::Established(established) = &mut self.phase else { return };
        let before = established.rc.stats();
        if let Some(silence) = established.rc.silent_for(tools.now)
            && tools.station.lives(established.conn.peer, silence, tools.now)
        {
            established.rc.note_peer_alive(tools.now);
        }
        match established.rc.expire(tools.now) {
            Ok(()) => {
                let after = established.rc.stats();
                let timed_out = established.rc.repeat_challenge(tools.now, &mut tools.kit.burst)
                    || after.timeouts > before.timeouts;
                let is_silent = timed_out || after.probes > before.probes;
                if is_silent {
                    tools.station.probe_port(
                        established.peer.address,
                        established.conn.id,
                        established.peer_qpn,
                    );
                }
                // The host is probed before the last timeout: a later answer would come too late.
                if timed_out || is_silent && established.rc.is_last_retry() {
                    tools.station.probe_host(established.peer.address, tools.now);
                }
                tools.station.send(&established.peer, &mut tools.kit.burst, tools.now);
                self.transmit(tools);
            }
            Err(failure) => {
                if failure == Failure::Stale {
                    tools.station.cm.stale(tools.now, established.conn.id);
                }
                established.failure = Some(failure);
                self.end(tools, End::Broken(failure.into()));
            }
        }
    }
}

/// Whether a request may change memory that an earlier READ returns.
#[inline]
fn changes_memory(packet: &Packet<'_>) -> bool {
    use Operation::{CompareSwap, FetchAdd, Send, Write};
    matches!(packet.bth.opcode.operation(), Send | Write | FetchAdd | CompareSwap)
}

/// The time at which a consumer with this timeout gives up.
pub(crate) fn deadline(now: Instant, timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| now.checked_add(timeout))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ACK_TIMEOUT, ACK_TIMEOUT_RETRIES};
    use crate::station::OUTAGE;

    /// The death of a peer is reported within 5 s if nothing is known of its host. A peer that is
    /// known to be alive may be silent for 8 s and more.
    #[test]
    fn default_times() {
        let timeout = Duration::from_nanos(4096 << ACK_TIMEOUT.code());
        assert!(timeout * (u32::from(ACK_TIMEOUT_RETRIES) + 1) < Duration::from_secs(5));
        assert!(OUTAGE >= Duration::from_secs(8));
    }
}
