//! A queue pair and its connection.
//!
//! ```text
//! Idle ─ dial ──► Dialing ─ accepted ──► Up ──────────► Ended      everything posted completes before the upcall
//!      ─ answer ───────────────────────► Up ──► Parting ► Ended      that says how it ended
//! ```

mod debt;
mod end;
mod parting;
mod up;

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

use self::end::{Breach, End};
use self::parting::Parting;
use self::up::{Terms, Up};
use crate::engine::{Key, Kit, Sink, Upcall};
use crate::line::Peer;
use crate::port::{Lifeline, slot_of};
use crate::scout::Refusal;
use crate::station::{GSI, Owner, Station, random};

/// How long a requester waits for an acknowledgement: 2^17 · 4.096 µs, as kernels do.
const ACK_TIMEOUT: Timeout = Timeout::new(17);
/// Such times in a row until a connection is given up. One less than there can be: a peer on rxe (Linux 6.12)
/// takes 7 for ever, and would never miss a process that is killed.
const RETRIES: u8 = 6;
/// For ever: a peer that posts no receive is waited for.
const RNR_RETRIES: u8 = 7;
/// Numbers that a queue pair tries whose peer believes that it is connected.
const STALE_TRIES: u8 = 3;

/// A queue pair, as the engine sees it.
pub(crate) struct Link {
    index: usize,
    sink: Sink,
    shared: Arc<Shared>,
    phase: Phase,
    /// It is in the kit's list of those who have received something.
    touched: bool,
    /// It is in the kit's list of those who owe an acknowledgement.
    owing: bool,
}

/// The name of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Conn {
    pub(crate) station: usize,
    pub(crate) id: ConnId,
    pub(crate) qpn: u32,
    /// Address and slot of whom it is with, once that is known.
    pub(crate) peer: (IpAddr, u8),
}

enum Phase {
    Idle(Work),
    Dialing(Box<Dialing>),
    Up(Box<Up>),
    /// This side has ended it; the consumer is told when the peer has answered to that.
    Parting(Box<Parting>),
    Ended(Work),
    /// While one of the others becomes another.
    Between,
}

/// An attempt to connect.
struct Dialing {
    work: Work,
    target: Target,
    /// None: the attempt has failed before it began.
    call: Option<(Conn, Psn)>,
    /// Of this, if it is known.
    local_failure: Option<String>,
    stale_tries: u8,
}

/// Whom to connect to, and on what terms.
pub(crate) struct Target {
    /// Its port number is the one that is called.
    pub(crate) to: SocketAddr,
    /// Ours, likewise.
    pub(crate) from: SocketAddr,
    pub(crate) private: Vec<u8>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) depth: ReadDepth,
    pub(crate) mtu: PathMtu,
}

/// The engine's parts that a connection's calls need besides the queue pair.
pub(crate) struct Tools<'a> {
    pub(crate) station: &'a mut Station,
    pub(crate) kit: &'a mut Kit,
    pub(crate) now: Instant,
}

impl Link {
    pub(crate) fn new(index: usize, sink: Sink, shared: Arc<Shared>, work: Work) -> Self {
        Link { index, sink, shared, phase: Phase::Idle(work), touched: false, owing: false }
    }

    /// Where its connection is.
    pub(crate) fn station(&self) -> Option<usize> {
        match &self.phase {
            Phase::Dialing(dialing) => dialing.call.map(|(conn, _)| conn.station),
            Phase::Up(up) => Some(up.conn.station),
            Phase::Parting(parting) => Some(parting.conn.station),
            Phase::Idle(_) | Phase::Ended(_) | Phase::Between => None,
        }
    }

    /// The peer, if there is a connection of ours with this number, and its packets can come from there.
    #[inline]
    pub(crate) fn peer(&mut self, from: SocketAddr, qpn: u32) -> Option<&mut Peer> {
        match &mut self.phase {
            Phase::Up(up) if up.conn.qpn == qpn && up.peer.may_send_from(from) => {
                Some(&mut up.peer)
            }
            Phase::Parting(of) if of.conn.qpn == qpn && of.peer.may_send_from(from) => {
                Some(&mut of.peer)
            }
            _ => None,
        }
    }

    /// Whether its connection is with the adapter that has this slot.
    pub(crate) fn is_with_slot(&self, peer: IpAddr, slot: u8) -> bool {
        match &self.phase {
            Phase::Up(up) => up.conn.peer == (peer, slot),
            Phase::Parting(parting) => parting.conn.peer == (peer, slot),
            _ => false,
        }
    }

    /// Whether that is an answer to what it has asked last.
    pub(crate) fn has_asked(&self, refusal: &Refusal) -> bool {
        let asked = match &self.phase {
            Phase::Dialing(dialing) => Some((dialing.target.to.ip(), GSI)),
            // The peer has answered a call since, whatever was said of that.
            Phase::Up(up) => Some((up.peer.address.ip(), up.peer_qpn)),
            Phase::Parting(parting) => Some((parting.peer.address.ip(), GSI)),
            Phase::Idle(_) | Phase::Ended(_) | Phase::Between => None,
        };
        asked == Some((refusal.host, refusal.qpn)) && self.conn() == Some(refusal.id)
    }

    /// Its connection, or its attempt to have one.
    pub(crate) fn conn(&self) -> Option<ConnId> {
        match &self.phase {
            Phase::Dialing(dialing) => dialing.call.map(|(conn, _)| conn.id),
            Phase::Up(up) => Some(up.conn.id),
            Phase::Parting(parting) => Some(parting.conn.id),
            Phase::Idle(_) | Phase::Ended(_) | Phase::Between => None,
        }
    }

    /// What its connection has done, if it is up.
    pub(crate) fn count(&self, counts: &mut Counts) {
        if let Phase::Up(up) = &self.phase {
            counts.add(&up.rc.stats().list());
        }
    }

    /// Receive buffers that belong to it and have not completed.
    pub(crate) fn allocated(&self) -> usize {
        match &self.phase {
            Phase::Idle(work) | Phase::Ended(work) => work.allocated(),
            Phase::Dialing(dialing) => dialing.work.allocated(),
            Phase::Up(up) => up.rc.work().allocated(),
            Phase::Parting(parting) => parting.rest.work().allocated(),
            Phase::Between => 0,
        }
    }
}

/// The active side.
impl Link {
    /// Starts to connect.
    pub(crate) fn dial(&mut self, tools: &mut Tools<'_>, station: usize, target: Target) {
        let Phase::Idle(work) = std::mem::replace(&mut self.phase, Phase::Between) else { return };
        let call = call(tools, (self.index, &work), station, &target);
        if call.is_none() {
            tools.kit.fail_soon(self.index);
        }
        self.phase = Phase::Dialing(Box::new(Dialing {
            work,
            target,
            call,
            local_failure: None,
            stale_tries: 0,
        }));
    }

    /// An attempt that has failed before it began: there is no way to the peer.
    pub(crate) fn dial_nowhere(&mut self, kit: &mut Kit, target: Target, local_failure: String) {
        let Phase::Idle(work) = std::mem::replace(&mut self.phase, Phase::Between) else { return };
        kit.fail_soon(self.index);
        let dialing = Dialing {
            work,
            target,
            call: None,
            local_failure: Some(local_failure),
            stale_tries: 0,
        };
        self.phase = Phase::Dialing(Box::new(dialing));
    }

    /// Says so, now that the consumer's call is over.
    pub(crate) fn fail_now(&mut self, tools: Option<&mut Tools<'_>>) {
        match &self.phase {
            Phase::Dialing(dialing) if dialing.call.is_none() => {
                let local_failure = dialing.local_failure.clone();
                self.fail(Upcall::Unreachable {
                    because: local_failure.as_ref().map(|why| why as &dyn Display),
                });
            }
            Phase::Ended(_) => self.sink.call(Upcall::AcceptFailed),
            Phase::Up(_) | Phase::Parting(_) => {
                tools.into_iter().for_each(|tools| self.peer_is_gone(tools))
            }
            _ => {}
        }
    }

    /// A connection has its two ends: from now on the end of either is noticed.
    fn up(&mut self, tools: &mut Tools<'_>, up: Up) {
        let (station, (_, slot)) = (up.conn.station, up.conn.peer);
        tools.station.line.expect(up.peer.address);
        let Kit { context, failing, .. } = &mut *tools.kit;
        let watch = |number, line: &Lifeline| {
            // One that cannot be watched is only noticed later.
            context.watch(Key::Lifeline { station, number }, line, Interest::READABLE).ok();
        };
        if !tools.station.look_after(up.peer.address, slot, watch) {
            failing.push(self.index);
        }
        self.phase = Phase::Up(Box::new(up));
    }

    /// The attempt has failed.
    fn fail(&mut self, why: Upcall<'_>) {
        match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Dialing(dialing) => self.finish(dialing.work),
            other => return self.phase = other,
        }
        self.sink.call(why);
    }

    /// The peer accepts.
    fn accepted(&mut self, tools: &mut Tools<'_>, answer: &Accepted) {
        let dialing = match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Dialing(dialing) => dialing,
            other => return self.phase = other,
        };
        let Dialing { work, target, call, .. } = *dialing;
        let ((mut conn, rq_psn), peer) = match (call, tools.station.peer(target.to.ip())) {
            (Some(call), Some(peer)) => (call, peer),
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
            // What was offered is held, whatever the peer makes of it.
            depth: ReadDepth { incoming: target.depth.incoming, ..depth },
            ack_timeout: tools.station.timeout.unwrap_or(ACK_TIMEOUT),
            retries: tools.station.retries.unwrap_or(RETRIES),
            rnr_retries: answer.rnr_retry_count,
        };
        let mut up = Up::new(self.index, work, terms, conn, peer, tools);
        up.announced = true;
        self.up(tools, up);
        // The consumer of the peer has said so much; the rest is what its field is filled up with.
        let private = &answer.private[..];
        let (peer, local) = (target.to, target.from);
        self.sink.call(Upcall::Established { private, peer, local, depth });
        self.transmit(tools);
    }

    /// The peer's adapter refuses; perhaps not another try.
    fn refused(&mut self, tools: &mut Tools<'_>, reason: Reason, takes: Option<PathMtu>) {
        let index = self.index;
        let Phase::Dialing(dialing) = &mut self.phase else { return };
        let Dialing { work, target, call, stale_tries, .. } = &mut **dialing;
        let again = match (reason, takes) {
            (Reason::INVALID_MTU, Some(mtu)) if mtu < target.mtu => {
                target.mtu = mtu;
                true
            }
            (Reason::STALE_CONNECTION, _) => {
                *stale_tries += 1;
                *stale_tries < STALE_TRIES
            }
            _ => false,
        };
        let station = call.map(|(conn, _)| conn.station);
        if let (true, Some(station)) = (again, station)
            && let Some(next) = self::call(tools, (index, work), station, target)
        {
            *call = Some(next);
            return;
        }
        self.fail(Upcall::Rejected { by_peer: false, private: &[] });
    }
}

/// Calls; the connection, and the PSN that its peer begins with. None: there are no queue pair numbers left.
fn call(
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
        retry_count: station.retries.unwrap_or(RETRIES),
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
    pub(crate) fn answer(
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
            return self.answer_nobody(tools.kit);
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
            return self.answer_nobody(tools.kit);
        }
        station.owners.insert(id, Owner::Link(self.index));
        let work = match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Idle(work) => work,
            // dat-core does not do that.
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
        let mut up = Up::new(
            self.index,
            work,
            terms,
            Conn { station: index, id, qpn, peer: (ip, slot_of(request.qpn)) },
            peer,
            tools,
        );
        up.ends = Some((request.from, request.to));
        self.up(tools, up);
    }

    /// Accepts a request that is not there any more.
    pub(crate) fn answer_nobody(&mut self, kit: &mut Kit) {
        if let Phase::Idle(work) = std::mem::replace(&mut self.phase, Phase::Between) {
            self.finish(work);
            kit.fail_soon(self.index);
        }
    }

    /// The peer has seen our acceptance.
    fn established(&mut self, tools: &mut Tools<'_>) {
        let Phase::Up(up) = &mut self.phase else { return };
        if std::mem::replace(&mut up.announced, true) {
            return;
        }
        let (peer, local) = up.ends.unwrap_or((up.peer.address, tools.station.address()));
        self.sink.call(Upcall::Established { private: &[], peer, local, depth: up.depth });
        self.transmit(tools);
    }
}

/// The connection.
impl Link {
    /// What the connection manager has to say of it.
    pub(crate) fn told(&mut self, tools: &mut Tools<'_>, id: ConnId, event: Event) {
        // Of an attempt that was followed by another.
        if self.conn() != Some(id) {
            return;
        }
        match event {
            Event::Accepted(answer) => self.accepted(tools, &answer),
            Event::Established => self.established(tools),
            Event::Rejected { private } => {
                self.fail(Upcall::Rejected { by_peer: true, private: &private })
            }
            Event::Refused { reason, path_mtu } => self.refused(tools, reason, path_mtu),
            Event::Unreachable => self.fail(Upcall::Unreachable { because: None }),
            Event::TimedOut => self.fail(Upcall::TimedOut),
            Event::AcceptFailed | Event::Withdrawn => self.end(tools, End::NotAccepted),
            Event::Disconnecting { broke } => self.peer_leaves(tools, broke),
            Event::Disconnected => self.disconnected(tools),
            Event::Broken => self.end(tools, End::Broken(Breach::Left)),
            Event::Stale => self.challenge(tools),
            Event::Request(_) | Event::Released { .. } => {}
        }
    }

    /// The peer's queue pair is said to be in another connection.
    fn challenge(&mut self, tools: &mut Tools<'_>) {
        if let Phase::Up(up) = &mut self.phase {
            up.rc.start_challenge(tools.now, &mut tools.kit.burst);
            if up.rc.is_last_retry() {
                tools.station.probe_host(up.peer.address, tools.now);
            }
            tools.station.send(&up.peer, &mut tools.kit.burst, tools.now);
            tools.kit.wheel.set(self.index, up.rc.deadline());
        }
    }

    /// A packet for it has come, from where its peer's can come from.
    #[inline]
    pub(crate) fn receive(&mut self, tools: &mut Tools<'_>, from: SocketAddr, packet: &Packet<'_>) {
        if let Phase::Up(up) = &mut self.phase
            && (up.peer.is_new() || !up.announced)
            && up.rc.has_expected_psn(packet)
        {
            up.peer.comes_from(tools.station.address(), from);
            // The consumer hears of the connection before it hears of a message: the RTU may be lost, or have
            // come with the packet.
            if !up.announced {
                tools.station.cm.established_by_data(tools.now, up.conn.id);
                self.established(tools);
            }
        }
        let up = match &mut self.phase {
            Phase::Up(up) => up,
            Phase::Parting(parting) => return parting.receive(tools, packet),
            _ => return,
        };
        if !std::mem::replace(&mut self.touched, true) {
            tools.kit.touched.push(self.index);
        }
        // A READ is carried out when it is answered: before anything that was asked for behind it.
        if up.rc.wants_tx() && changes_memory(packet) {
            up.failure = up.failure.or(up.transmit(tools).err());
        }
        // What failed is dealt with when all that came has been looked at.
        up.failure = up.failure.or(up.rc.receive(tools.now, packet).err());
    }

    /// All that came at one time has been looked at.
    #[inline]
    pub(crate) fn after_receive(&mut self, tools: &mut Tools<'_>) {
        self.touched = false;
        let Phase::Up(up) = &mut self.phase else { return };
        if let Some(failure) = up.failure {
            return self.end(tools, End::Broken(failure.into()));
        }
        // Whether or not the refusal has left already: with a message behind it in one batch it has.
        if let Some(Arrival { octets, whole }) = up.rc.take_rnr_arrival() {
            self.sink.call(Upcall::ReceiverNotReady { octets, whole });
        }
        if up.rc.wants_tx() || up.closing.is_some() || up.peer_leaves.is_some() {
            self.transmit(tools);
        }
        let Phase::Up(up) = &mut self.phase else { return };
        if !up.rc.owes_ack() {
            // The engine has sent it.
            up.debt.paid();
        } else {
            up.debt.grows(tools.now);
            if !std::mem::replace(&mut self.owing, true) {
                tools.kit.owing.push(self.index);
            }
        }
        tools.kit.wheel.set(self.index, up.rc.deadline());
    }

    /// Whether a message of the peer has come in part.
    #[inline]
    pub(crate) fn is_mid_message(&self) -> bool {
        matches!(&self.phase, Phase::Up(up) if up.rc.is_mid_message())
    }

    /// Whether the consumer has sent something since an acknowledgement is owed.
    #[inline]
    pub(crate) fn has_answered(&self) -> bool {
        matches!(&self.phase, Phase::Up(up) if up.debt.has_answer())
    }

    /// Whether it owes an acknowledgement that can wait.
    #[inline]
    pub(crate) fn holds(&mut self, now: Instant) -> bool {
        match &mut self.phase {
            Phase::Up(up) => up.rc.owes_ack() && up.closing.is_none() && up.debt.holds(now),
            _ => false,
        }
    }

    /// When the acknowledgement leaves that it owes.
    pub(crate) fn acknowledges_at(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Up(up) => up.debt.due(),
            _ => None,
        }
    }

    /// Sends the acknowledgement that is owed.
    pub(crate) fn acknowledge(&mut self, tools: Option<&mut Tools<'_>>) {
        self.owing = false;
        let (Phase::Up(up), Some(tools)) = (&mut self.phase, tools) else { return };
        if up.rc.owes_ack() {
            up.rc.acknowledge(&mut tools.kit.burst);
            tools.station.send(&up.peer, &mut tools.kit.burst, tools.now);
        }
        up.debt.paid();
        if up.closing.is_some() {
            self.transmit(tools);
        }
    }

    /// Sends what is ready.
    pub(crate) fn transmit(&mut self, tools: &mut Tools<'_>) {
        match &mut self.phase {
            Phase::Up(up) => {
                if up.rc.is_peer_close_done()
                    && let Some(end) = up.peers_end()
                {
                    return self.end(tools, end);
                }
                if let Err(failure) = up.transmit(tools) {
                    up.failure = Some(failure);
                    return self.end(tools, End::Broken(failure.into()));
                }
                if let Some(how) = up.closing
                    && up.rc.is_drained()
                {
                    return self.end(tools, End::Local(how));
                }
                tools.kit.wheel.set(self.index, up.rc.deadline());
            }
            Phase::Parting(parting) => {
                parting.rest.flush();
                parting.transmit(tools);
            }
            Phase::Ended(work) => work.flush(),
            Phase::Idle(_) | Phase::Dialing(_) | Phase::Between => {}
        }
    }

    /// Sends what had to wait for others.
    pub(crate) fn go_on(&mut self, tools: &mut Tools<'_>) {
        match &mut self.phase {
            Phase::Up(up) => up.queued = false,
            Phase::Parting(parting) => parting.queued = false,
            _ => return,
        }
        self.transmit(tools);
    }

    /// The same where there is no connection any more.
    pub(crate) fn flush_ended(&mut self) {
        if let Phase::Ended(work) = &mut self.phase {
            work.flush();
        }
    }

    /// A time is over.
    pub(crate) fn expire(&mut self, tools: &mut Tools<'_>) {
        let Phase::Up(up) = &mut self.phase else { return };
        let before = up.rc.stats();
        if let Some(quiet) = up.rc.silent_for(tools.now)
            && tools.station.lives(up.conn.peer, quiet, tools.now)
        {
            up.rc.note_peer_alive(tools.now);
        }
        match up.rc.expire(tools.now) {
            Ok(()) => {
                let after = up.rc.stats();
                let timed_out = up.rc.repeat_challenge(tools.now, &mut tools.kit.burst)
                    || after.timeouts > before.timeouts;
                let is_silent = timed_out || after.probes > before.probes;
                if is_silent {
                    tools.station.probe_port(up.peer.address, up.conn.id, up.peer_qpn);
                }
                // Before the last timeout: what is heard of the host later comes too late.
                if timed_out || is_silent && up.rc.is_last_retry() {
                    tools.station.probe_host(up.peer.address, tools.now);
                }
                tools.station.send(&up.peer, &mut tools.kit.burst, tools.now);
                self.transmit(tools);
            }
            Err(failure) => {
                if failure == Failure::Stale {
                    tools.station.cm.stale(tools.now, up.conn.id);
                }
                up.failure = Some(failure);
                self.end(tools, End::Broken(failure.into()));
            }
        }
    }
}

/// Whether memory that a READ before it shows may be other memory afterwards.
#[inline]
fn changes_memory(packet: &Packet<'_>) -> bool {
    use Operation::{CompareSwap, FetchAdd, Send, Write};
    matches!(packet.bth.opcode.operation(), Send | Write | FetchAdd | CompareSwap)
}

/// When a consumer gives up that says after how long.
pub(crate) fn deadline(now: Instant, timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| now.checked_add(timeout))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ACK_TIMEOUT, RETRIES};
    use crate::station::OUTAGE;

    /// The end of a peer of which nothing is known is reported within 5 s. A peer that is known to live may
    /// be silent for 8 s and more.
    #[test]
    fn default_times() {
        let timeout = Duration::from_nanos(4096 << ACK_TIMEOUT.code());
        assert!(timeout * (u32::from(RETRIES) + 1) < Duration::from_secs(5));
        assert!(OUTAGE >= Duration::from_secs(8));
    }
}
