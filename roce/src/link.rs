//! A queue pair and its connection.
//!
//! ```text
//! Idle ─ connect ─► Connecting ─ accepted ─► Established ─────────────────► Ended
//!      ─ accept ───────────────────────────► Established ─► Disconnecting ─► Ended
//! ```
//!
//! All posted work completes before the event that reports the end of the connection.

mod disconnecting;
mod end;
mod established;
mod explicit;
mod setup;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use adapter::{Counts, QpShared, netdev};
use rnic::cm::{ConnId, Event};
use rnic::rc::Failure;
use rnic::{Arrival, Work};
use wire::rocev2::{Operation, Packet, PathMtu};
use work::cause::Cause;

use self::disconnecting::Disconnecting;
use self::end::End;
use self::established::{Established, Sends};
use self::setup::Connecting;
pub(crate) use self::setup::Target;
use crate::cm_packet::GSI;
use crate::host_probe::Refusal;
use crate::local_address::LocalAddress;
use crate::packet_io::Peer;
use crate::resources::{EngineContext, EngineEvent, Sink};
use crate::shared_port::PortSlot;

/// The engine's view of a queue pair.
pub(crate) struct Link {
    index: usize,
    /// The number that the queue pair has had since its creation, if it has one.
    pub(crate) number: Option<u32>,
    sink: Sink,
    shared: Arc<QpShared>,
    phase: Phase,
    /// Whether the queue pair is in the engine's list of queue pairs that have received packets.
    received: bool,
    /// Whether the queue pair is in the engine's list of queue pairs whose acknowledgements wait
    /// for an answer of the consumer.
    ack_pending: bool,
}

/// The identity of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Conn {
    /// The index of the local address.
    pub(crate) local_address: usize,
    /// The connection in the connection manager. `None` if the connection is
    /// [explicit](explicit).
    pub(crate) id: Option<ConnId>,
    pub(crate) qpn: u32,
    /// The address and slot of the peer. The slot is 0 until it is known.
    pub(crate) peer: (IpAddr, PortSlot),
}

type Phase = adapter::LinkPhase<Box<Connecting>, Box<Established>, Box<Disconnecting>>;

impl Link {
    pub(crate) fn new(
        (index, number): (usize, Option<u32>),
        sink: Sink,
        shared: Arc<QpShared>,
        work: Work,
    ) -> Self {
        let (received, ack_pending) = (false, false);
        Link { index, number, sink, shared, phase: Phase::Idle(work), received, ack_pending }
    }

    /// The index of the local address that the queue pair's connection uses.
    pub(crate) fn local_address(&self) -> Option<usize> {
        match &self.phase {
            Phase::Connecting(connecting) => connecting.attempt.map(|(conn, _)| conn.local_address),
            Phase::Established(established) => Some(established.conn.local_address),
            Phase::Disconnecting(disconnecting) => Some(disconnecting.conn.local_address),
            Phase::Idle(_) | Phase::Ended(_) | Phase::Transition => None,
        }
    }

    /// The peer of the queue pair's connection, if the connection has this queue pair number and
    /// accepts packets from this address.
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

    /// Whether the queue pair's connection has this queue pair number and this address of the peer.
    /// Any port of the peer's host, and anyone who forges the address, may have sent such a packet.
    pub(crate) fn is_peer_address(&self, from: IpAddr, qpn: u32) -> bool {
        matches!(&self.phase, Phase::Established(established)
            if established.conn.qpn == qpn && established.peer.address.ip() == from)
    }

    /// Whether the queue pair is connected to the adapter that has this address and slot.
    pub(crate) fn is_connected_to(&self, peer: IpAddr, slot: PortSlot) -> bool {
        match &self.phase {
            // The end of the peer's process is no end of an explicit connection.
            Phase::Established(established) => {
                established.conn.id.is_some() && established.conn.peer == (peer, slot)
            }
            Phase::Disconnecting(disconnecting) => disconnecting.conn.peer == (peer, slot),
            _ => false,
        }
    }

    /// Whether an ICMP error answers a probe that this queue pair has sent in its current phase. An
    /// answer to an earlier probe says nothing about the current state of the peer.
    pub(crate) fn matches_refusal(&self, refusal: &Refusal) -> bool {
        let asked = match &self.phase {
            Phase::Connecting(connecting) => Some((connecting.target.to.ip(), GSI)),
            // An answer to the probe that went with the connection request no longer matters,
            // because the peer itself has answered the request.
            Phase::Established(established) => {
                Some((established.peer.address.ip(), established.peer_qpn))
            }
            Phase::Disconnecting(disconnecting) => Some((disconnecting.peer.address.ip(), GSI)),
            Phase::Idle(_) | Phase::Ended(_) | Phase::Transition => None,
        };
        asked == Some((refusal.host, refusal.qpn)) && self.conn() == Some(refusal.id)
    }

    /// The id of the queue pair's connection, or of its attempt to connect, in the connection
    /// manager.
    pub(crate) fn conn(&self) -> Option<ConnId> {
        match &self.phase {
            Phase::Connecting(connecting) => connecting.attempt.and_then(|(conn, _)| conn.id),
            Phase::Established(established) => established.conn.id,
            Phase::Disconnecting(disconnecting) => disconnecting.conn.id,
            Phase::Idle(_) | Phase::Ended(_) | Phase::Transition => None,
        }
    }

    /// Whether the queue pair's packets wait because its sender has no room.
    pub(crate) fn has_unsent(&self, local_addresses: &[LocalAddress]) -> bool {
        let (conn, peer) = match &self.phase {
            Phase::Established(established) => (&established.conn, &established.peer),
            Phase::Disconnecting(disconnecting) => (&disconnecting.conn, &disconnecting.peer),
            _ => return false,
        };
        local_addresses[conn.local_address].packet_io.has_unsent(peer)
    }

    /// Adds the counters of the queue pair's connection, if there is one.
    pub(crate) fn count(&self, counts: &mut Counts) {
        if let Phase::Established(established) = &self.phase {
            counts.add(&established.rc.stats().list());
        }
    }

    /// The number of receive buffers that belong to the queue pair and have not completed.
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

/// The largest path MTU that every Ethernet carries. It is not probed.
const UNPROBED_PATH_MTU: PathMtu = PathMtu::Octets1024;

/// The connection, on either side.
impl Link {
    /// Sends a full packet that changes nothing. If a router on the path cannot forward the packet,
    /// the router says so by ICMP. This side then knows the reason when a full packet is not
    /// acknowledged. The report ends no connection that sends only short packets.
    fn probe_path(&mut self, cx: &mut EngineContext<'_>) {
        if let Phase::Established(established) = &mut self.phase
            && established.rc.path_mtu() > UNPROBED_PATH_MTU
            && established.peer.address.ip() != cx.local_address.address().ip()
            && !netdev::is_own(established.peer.address.ip())
        {
            established.rc.check_path(cx.burst_to(&established.peer));
        }
    }

    /// Handles a packet that a switch has marked.
    #[cold]
    pub(crate) fn note_marked(&mut self, cx: &mut EngineContext<'_>, packet: &Packet<'_>) {
        if let Phase::Established(established) = &mut self.phase
            && established.sends != Sends::Nothing
            && packet.bth.opcode.has_payload()
        {
            let (opcode, now) = (packet.bth.opcode, cx.now);
            established.rc.note_marked(opcode, now, cx.burst_to(&established.peer));
        }
    }

    /// Handles an event from the connection manager.
    pub(crate) fn on_cm_event(&mut self, cx: &mut EngineContext<'_>, id: ConnId, event: Event) {
        // The event belongs to an earlier attempt to connect.
        if self.conn() != Some(id) {
            return;
        }
        match event {
            Event::Accepted(answer) => self.on_accepted(cx, &answer),
            Event::Established => self.on_established(cx),
            Event::Rejected { private } => {
                self.fail(EngineEvent::Rejected { by_peer: true, private: &private })
            }
            Event::Refused { reason, path_mtu } => self.on_refused(cx, reason, path_mtu),
            Event::Unreachable => self.fail(EngineEvent::Unreachable { because: None }),
            Event::TimedOut => self.fail(EngineEvent::TimedOut),
            Event::AcceptFailed | Event::Withdrawn => self.end(cx, End::NotAccepted),
            Event::Disconnecting { broke } => self.on_peer_disconnecting(cx, broke),
            Event::Disconnected => self.on_disconnected(cx),
            Event::Broken => self.end(cx, End::Broken(Cause::Forgotten)),
            Event::Stale => self.on_stale(cx),
            Event::Request(_) | Event::Released { .. } | Event::PathMtuRefused { .. } => {}
        }
    }

    /// Handles a message that claims that the peer's queue pair is in another connection.
    fn on_stale(&mut self, cx: &mut EngineContext<'_>) {
        if let Phase::Established(established) = &mut self.phase {
            established.rc.start_challenge(cx.now, cx.burst_to(&established.peer));
            if established.rc.is_last_retry() {
                cx.local_address.probe_host(established.peer.address, cx.now);
            }
            cx.resources.set_deadline(self.index, established.rc.deadline());
        }
    }

    /// Handles a packet for this queue pair. The caller has checked with [`peer`](Self::peer) that
    /// the source address may belong to the queue pair's peer.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        cx: &mut EngineContext<'_>,
        from: SocketAddr,
        packet: &Packet<'_>,
    ) {
        if let Phase::Established(established) = &mut self.phase
            && (established.peer.is_source_unknown() || established.sends == Sends::Nothing)
            && established.rc.has_expected_psn(packet)
        {
            established.peer.set_source(cx.local_address.address(), from);
            // The consumer must learn of the connection before it learns of a message. The RTU may
            // have been lost, or it may arrive after the packet.
            if established.sends == Sends::Nothing
                && let Some(id) = established.conn.id
            {
                cx.local_address.cm.established_by_data(cx.now, id);
                self.on_established(cx);
            }
        }
        let established = match &mut self.phase {
            Phase::Established(established) => established,
            Phase::Disconnecting(disconnecting) => return disconnecting.receive(cx, packet),
            _ => return,
        };
        if !std::mem::replace(&mut self.received, true) {
            cx.resources.note_received(self.index);
        }
        // A READ returns the memory as it is when the responses are created. So create them before
        // a later request changes the memory, unless the turn is over or no more responses may wait
        // to be sent. IBA guarantees this order only if the request has a fence.
        if established.rc.wants_to_respond() && changes_memory(packet) {
            established.failure = established.failure.or(established.respond(cx).err());
        }
        // The failure is handled when the whole batch of packets has been processed.
        established.failure = established.failure.or(established.rc.receive(cx.now, packet).err());
    }

    /// Handles a congestion notification from another port of the [peer's
    /// address](Self::is_peer_address). Some adapters send notifications from port 0, others from
    /// any port.
    #[cold]
    pub(crate) fn receive_unproven_notification(&mut self, packet: &Packet<'_>) {
        if let Phase::Established(established) = &mut self.phase {
            established.rc.receive_unproven_notification(packet);
        }
    }

    /// Handles the end of a batch of packets.
    #[inline]
    pub(crate) fn after_receive(&mut self, cx: &mut EngineContext<'_>) {
        self.received = false;
        let Phase::Established(established) = &mut self.phase else { return };
        if let Some(failure) = established.failure {
            let end = established.end_by_failure(failure);
            return self.end(cx, end);
        }
        if let Some(read) = established.rc.take_repeated_read()
            && let Some(cause) = established.response_too_long(cx.local_address, read)
        {
            return self.end_too_long(cx, cause);
        }
        // The RNR NAK has already been sent if another message followed in the same batch.
        if let Some(Arrival { octets, whole }) = established.rc.take_rnr_arrival() {
            self.sink.call(EngineEvent::ReceiverNotReady { octets, whole });
        }
        if established.rc.wants_tx()
            || established.closing.is_some()
            || established.peer_disconnect.is_some()
        {
            self.transmit(cx);
        }
        self.schedule_ack(cx);
        if let Phase::Established(established) = &self.phase {
            cx.resources.set_deadline(self.index, established.rc.deadline());
        }
    }

    /// Decides when the acknowledgement of received packets is sent, if it is owed: now, or when
    /// the consumer has had time to answer.
    #[inline]
    fn schedule_ack(&mut self, cx: &mut EngineContext<'_>) {
        let Phase::Established(established) = &mut self.phase else { return };
        if !established.rc.owes_ack() {
            established.delayed_ack.sent();
        } else if !established.delayed_ack.owe(cx.now) {
            established.rc.acknowledge(cx.burst_to(&established.peer));
        } else if !std::mem::replace(&mut self.ack_pending, true) {
            cx.resources.hold_ack(self.index, cx.now);
        }
    }

    /// Whether only a part of a message of the peer has arrived.
    #[inline]
    pub(crate) fn is_mid_message(&self) -> bool {
        matches!(&self.phase, Phase::Established(established) if established.rc.is_mid_message())
    }

    /// Records that the queue pair is no longer in the engine's list of queue pairs whose
    /// acknowledgements wait. Returns whether an acknowledgement is still owed.
    pub(crate) fn take_ack_pending(&mut self) -> bool {
        self.ack_pending = false;
        matches!(&self.phase, Phase::Established(established) if established.rc.owes_ack())
    }

    /// Sends the acknowledgement that is owed.
    pub(crate) fn acknowledge(&mut self, cx: Option<&mut EngineContext<'_>>) {
        let (Phase::Established(established), Some(cx)) = (&mut self.phase, cx) else {
            return;
        };
        established.rc.acknowledge(cx.burst_to(&established.peer));
        established.delayed_ack.consumer_returned(cx.now);
        if established.closing.is_some() {
            self.transmit(cx);
        }
    }

    /// Sends all packets that are ready.
    pub(crate) fn transmit(&mut self, cx: &mut EngineContext<'_>) {
        match &mut self.phase {
            Phase::Established(established) => {
                if established.rc.is_peer_close_done()
                    && let Some(end) = established.end_by_peer()
                {
                    return self.end(cx, end);
                }
                let sent = established.transmit(cx);
                if let Err(failure) =
                    sent.and_then(|()| established.announce_receive(cx, &self.shared))
                {
                    established.failure = Some(failure);
                    let end = established.end_by_failure(failure);
                    return self.end(cx, end);
                }
                if let Some(how) = established.closing
                    && established.can_close(how)
                {
                    return self.end(cx, End::Local(how));
                }
                cx.resources.set_deadline(self.index, established.rc.deadline());
            }
            Phase::Disconnecting(disconnecting) => {
                disconnecting.responder.flush();
                disconnecting.transmit(cx);
            }
            Phase::Ended(work) => work.flush(),
            Phase::Idle(_) | Phase::Connecting(_) | Phase::Transition => {}
        }
    }

    /// Continues to send after other queue pairs have had their turn.
    pub(crate) fn resume_transmit(&mut self, cx: &mut EngineContext<'_>) {
        match &mut self.phase {
            Phase::Established(established) => established.queued = false,
            Phase::Disconnecting(disconnecting) => disconnecting.queued = false,
            _ => return,
        }
        self.transmit(cx);
        // An acknowledgement may have waited for the responses that were sent just now.
        self.schedule_ack(cx);
    }

    /// Flushes the work that was posted since the connection ended.
    pub(crate) fn flush_ended(&mut self) {
        if let Phase::Ended(work) = &mut self.phase {
            work.flush();
        }
    }

    /// Handles a deadline that has passed.
    pub(crate) fn expire(&mut self, cx: &mut EngineContext<'_>) {
        let Phase::Established(established) = &mut self.phase else { return };
        let before = established.rc.stats();
        if let Some(silence) = established.rc.silent_for(cx.now)
            && established.conn.id.is_some()
            && cx.local_address.is_peer_alive(established.conn.peer, silence, cx.now)
        {
            established.rc.note_peer_alive(cx.now);
        }
        match established.rc.expire(cx.now) {
            Ok(()) => {
                let after = established.rc.stats();
                let timed_out =
                    established.rc.repeat_challenge(cx.now, cx.burst_to(&established.peer))
                        || after.timeouts > before.timeouts;
                let is_silent = timed_out || after.probes > before.probes;
                if is_silent {
                    if let Some(cause) = established.request_too_long(cx.local_address) {
                        return self.end_too_long(cx, cause);
                    }
                    if let Some(id) = established.conn.id {
                        let peer = (established.peer.address, established.peer_qpn);
                        cx.local_address.probe_port(peer.0, id, peer.1);
                    }
                }
                // The host is probed before the last timeout expires, because the answer must
                // arrive before that timeout ends the connection.
                if established.conn.id.is_some()
                    && (timed_out || is_silent && established.rc.is_last_retry())
                {
                    cx.local_address.probe_host(established.peer.address, cx.now);
                }
                self.transmit(cx);
            }
            Err(failure) => {
                if failure == Failure::Stale
                    && let Some(id) = established.conn.id
                {
                    cx.local_address.cm.stale(cx.now, id);
                }
                established.failure = Some(failure);
                let end = established.end_by_failure(failure);
                self.end(cx, end);
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
