//! An established connection.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use adapter::QpShared;
use rnic::Work;
use rnic::rc::{Burst, Failure, RcCfg, ReliableConnection};
use wire::cm::Timeout;
use wire::rocev2::{Bth, PathMtu, Psn, RnrTimer};
use work::{Close, ReadDepth};

use super::Conn;
use super::end::PeerDisconnect;
use crate::delayed_ack::DelayedAck;
use crate::local_address::LocalAddress;
use crate::packet_io::{PacketIo, Peer};
use crate::resources::EngineContext;

/// The RNR timer of a connection, 0.08 ms: the time that the peer must wait if no receive is
/// posted. The peer waits longer if it sends again and still no receive is posted.
pub(super) const RNR_TIMER: RnrTimer = RnrTimer::from_code(6);
/// The maximum number of octets in flight. Short paths have less: see [`RcCfg::window`].
const WINDOW_MAX_BYTES: usize = 8 << 20;
/// The minimum and the maximum number of packets in flight.
const WINDOW_PACKETS: RangeInclusive<usize> = 16..=8192;

/// The longest ACK timeout that the requester of this side uses: 2^17 · 4.096 µs = 0.54 s. Within
/// this time after the end of an outage, the requester sends again.
const REQUESTER_TIMEOUT_MAX: Timeout = Timeout::new(17);

/// The number of bursts of one queue pair before other queue pairs have their turn.
pub(super) const BURSTS_PER_TURN: usize = 16;

/// An established connection.
pub(super) struct Established {
    pub(super) rc: ReliableConnection,
    pub(super) conn: Conn,
    pub(super) peer: Peer,
    pub(super) peer_qpn: u32,
    /// The maximum numbers of RDMA READs in flight, incoming and outgoing, as both sides negotiated
    /// them.
    pub(super) depth: ReadDepth,
    /// On the passive side, the addresses of the peer and of this side, with their ports.
    pub(super) addresses: Option<(SocketAddr, SocketAddr)>,
    /// What this side may send.
    pub(super) sends: Sends,
    /// Set if the consumer has requested a disconnect that must wait
    /// ([`can_close`](Self::can_close)). It says how the connection ends.
    pub(super) closing: Option<Close>,
    /// Set when the peer has disconnected. The connection ends when the requests in flight are
    /// settled.
    pub(super) peer_disconnect: Option<PeerDisconnect>,
    pub(super) failure: Option<Failure>,
    /// The reports of the peer's host that no process has the port.
    pub(super) port_refusals: PortRefusals,
    /// The state of the acknowledgement that this side owes to the peer.
    pub(super) delayed_ack: DelayedAck,
    /// The index of the queue pair.
    pub(super) link_index: usize,
    /// Whether the queue pair is in the engine's list of queue pairs that have more to send.
    pub(super) queued: bool,
    /// Whether a thread that posts a receive must notify the engine, because the peer waits for a
    /// receive.
    wants_receives: bool,
}

/// What the side of a connection may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sends {
    /// Nothing: this is the passive side, and the peer has not confirmed the connection. The
    /// connection has not been reported to the consumer.
    Nothing,
    /// Responses to the peer's requests: the connection is explicit, and its requester has not
    /// started.
    Responses,
    /// Requests, too.
    All,
}

/// The time for which the peer's host must have refused packets before the connection breaks.
const PORT_REFUSED_MIN: Duration = Duration::from_millis(1500);

/// The time at which the peer's host first refused a packet, and the number of packets received by
/// then.
#[derive(Default)]
pub(super) struct PortRefusals(Option<(Instant, u64)>);

impl PortRefusals {
    /// Records that the host refuses a packet. Returns whether the connection is over: the host has
    /// refused packets for long enough, and `received`, the number of packets from the peer, has
    /// not changed in that time.
    pub(super) fn note_refusal(&mut self, received: u64, now: Instant) -> bool {
        match self.0 {
            Some((since, before)) if before == received => now >= since + PORT_REFUSED_MIN,
            _ => {
                self.0 = Some((now, received));
                false
            }
        }
    }
}

/// Divides an ACK timeout that is longer than [`REQUESTER_TIMEOUT_MAX`] into shorter ones, with
/// more retries. The requester gives up after the same time, but sends again more often.
pub(super) fn divided(timeout: Timeout, retries: u8) -> (Timeout, u32) {
    let divided = timeout.code().min(REQUESTER_TIMEOUT_MAX.code());
    let timeouts = (u32::from(retries) + 1) << (timeout.code() - divided);
    (Timeout::new(divided), timeouts - 1)
}

/// The parameters of the connection that were agreed on.
pub(super) struct Terms {
    pub(super) mtu: PathMtu,
    pub(super) peer_qpn: u32,
    pub(super) sq_psn: Psn,
    pub(super) rq_psn: Psn,
    pub(super) depth: ReadDepth,
    pub(super) ack_timeout: Timeout,
    pub(super) retries: u8,
    pub(super) rnr_retries: u8,
    pub(super) rnr_timer: RnrTimer,
}

impl Terms {
    fn cfg(&self, local_address: &LocalAddress) -> RcCfg {
        let (ack_timeout, retries) = divided(self.ack_timeout, self.retries);
        // Assume that the peer's receive buffer is as large as the receive buffer of this socket.
        // Use half of that size, because the kernel counts more octets than the packets have.
        let octets = WINDOW_MAX_BYTES.min(local_address.port.socket.receive_buffer() / 2);
        let window = octets / self.mtu.octets();
        RcCfg {
            mtu: self.mtu,
            ip_mtu: local_address.ip_mtu,
            peer_qpn: self.peer_qpn,
            p_key: Bth::DEFAULT_P_KEY,
            sq_psn: self.sq_psn,
            rq_psn: self.rq_psn,
            initiator_depth: self.depth.outgoing,
            responder_resources: self.depth.incoming,
            ack_timeout: ack_timeout.code(),
            retries,
            rnr_retries: self.rnr_retries,
            rnr_timer: self.rnr_timer,
            window: window.clamp(*WINDOW_PACKETS.start(), *WINDOW_PACKETS.end()) as u32,
        }
    }
}

impl Established {
    pub(super) fn new(
        link_index: usize,
        work: Work,
        terms: Terms,
        conn: Conn,
        peer: Peer,
        cx: &EngineContext<'_>,
    ) -> Self {
        let Terms { peer_qpn, depth, .. } = terms;
        let cfg = terms.cfg(cx.local_address);
        let mut rc =
            ReliableConnection::new(work, cfg, cx.now).with_early_pool(&cx.resources.early_pool);
        if !cx.local_address.has_network_to(peer.address.ip()) {
            rc.disable_pacing();
        }
        Established {
            rc,
            conn,
            peer,
            peer_qpn,
            depth,
            addresses: None,
            sends: Sends::Nothing,
            closing: None,
            peer_disconnect: None,
            failure: None,
            port_refusals: PortRefusals::default(),
            delayed_ack: DelayedAck::default(),
            link_index,
            queued: false,
            wants_receives: false,
        }
    }

    /// Lets this side of an explicit connection send requests. `terms` says how.
    pub(super) fn start_requester(&mut self, terms: Terms, cx: &EngineContext<'_>) {
        self.rc.start_requester(&terms.cfg(cx.local_address), cx.now);
        if !cx.local_address.has_network_to(self.peer.address.ip()) {
            self.rc.disable_pacing();
        }
        (self.depth, self.sends) = (terms.depth, Sends::All);
    }

    /// Whether the consumer's disconnect can be carried out now.
    pub(super) fn can_close(&self, how: Close) -> bool {
        match how {
            Close::Graceful => self.rc.is_drained(),
            Close::Abrupt => !self.rc.withholds_ack(),
        }
    }

    /// Sends all packets that are ready. They wait in their queue pairs while the socket has no
    /// room.
    pub(super) fn transmit(&mut self, cx: &mut EngineContext<'_>) -> Result<(), Failure> {
        if self.sends != Sends::All {
            return self.respond(cx);
        }
        self.transmit_turn(
            cx,
            |packet_io, peer| !packet_io.has_unsent(peer),
            ReliableConnection::transmit,
            ReliableConnection::wants_tx,
        )
    }

    /// Sends the responses that are ready, but no requests. They wait if the socket has no room.
    pub(super) fn respond(&mut self, cx: &mut EngineContext<'_>) -> Result<(), Failure> {
        if self.sends == Sends::Nothing {
            return Ok(());
        }
        self.transmit_turn(
            cx,
            PacketIo::has_room_for_unsent,
            ReliableConnection::transmit_responses,
            ReliableConnection::wants_to_respond,
        )
    }

    /// Sends bursts until one turn ends, or until `wants_more` returns false. `may_send` says
    /// whether another burst is permitted, and `transmit` adds packets to a burst.
    #[inline]
    fn transmit_turn(
        &mut self,
        cx: &mut EngineContext<'_>,
        may_send: impl Fn(&PacketIo, &Peer) -> bool,
        transmit: impl Fn(&mut ReliableConnection, Instant, &mut Burst) -> Result<(), Failure>,
        wants_more: impl Fn(&ReliableConnection) -> bool,
    ) -> Result<(), Failure> {
        for _ in 0..BURSTS_PER_TURN {
            if !may_send(&cx.local_address.packet_io, &self.peer) {
                break;
            }
            let is_first = !cx.resources.has_outgoing();
            let (now, burst) = (cx.now, cx.burst_to(&self.peer));
            let before = burst.len();
            transmit(&mut self.rc, now, burst)?;
            if burst.len() > before && !self.rc.owes_ack() {
                self.delayed_ack.consumer_returned(now);
            }
            // A consumer may wait for the first packets since the last flush, so they are sent at
            // once. The packets of other queue pairs are gathered.
            if is_first {
                cx.local_address.packet_io.flush();
            }
            if !wants_more(&self.rc) {
                return Ok(());
            }
        }
        if !std::mem::replace(&mut self.queued, true) {
            cx.resources.queue_to_transmit(self.link_index);
        }
        Ok(())
    }

    /// After an RNR NAK, tells the peer when a receive has been posted. Until then, threads that
    /// post receives tell the engine. A posted buffer of a shared receive queue is for any queue
    /// pair, so its posting is not reported, and the peer sends again after the time of the NAK.
    pub(super) fn announce_receive(
        &mut self,
        cx: &mut EngineContext<'_>,
        shared: &QpShared,
    ) -> Result<(), Failure> {
        let is_waiting = self.rc.is_peer_waiting_for_receive();
        if self.wants_receives != is_waiting {
            self.wants_receives = is_waiting;
            // First make the request, then look at the queue: see `QpShared::want_receives`.
            shared.want_receives(is_waiting);
        }
        if !is_waiting || !self.rc.work().has_recv() {
            return Ok(());
        }
        self.wants_receives = false;
        shared.want_receives(false);
        self.rc.announce_receive();
        self.transmit(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the time after which the connection breaks if the peer's host refuses a packet at
    /// this interval. `received` returns the number of packets from the peer at a given time.
    fn known_after(every: Duration, received: impl Fn(Duration) -> u64) -> Option<Duration> {
        let (mut port_refusals, start) = (PortRefusals::default(), Instant::now());
        let times = (1..).map(|n| every * n).take_while(|&time| time < 60 * SECOND);
        times.into_iter().find(|&time| port_refusals.note_refusal(received(time), start + time))
    }

    /// The host of a dead peer answers each repeated packet by reporting that no process has the
    /// port. At least one packet is repeated in each ACK timeout, and Linux sends at least one such
    /// report a second. So the death is reported to the consumer within 5 s.
    #[test]
    fn a_port_that_nobody_has_is_told_of_within_five_seconds() {
        let timeout = Duration::from_nanos(4096 << REQUESTER_TIMEOUT_MAX.code());
        for every in [Duration::from_millis(5), Duration::from_millis(100), timeout, SECOND] {
            let known =
                known_after(every, |_| 7).expect("the adapter learns that the port is refused");
            assert!(PORT_REFUSED_MIN < known && known < 5 * SECOND, "{every:?}: {known:?}");
        }
    }

    /// A peer counts as alive while packets arrive from it.
    #[test]
    fn a_peer_that_is_heard_is_not_dead() {
        let heard_every = |time: Duration| time.as_millis() as u64 / 1400;
        assert_eq!(known_after(Duration::from_millis(100), heard_every), None);
    }
}
