//! What the parts of the engine share: its resources, and the names of the adapter's types for it.

use std::sync::Arc;
use std::time::Instant;

use adapter::{Context, Counts};
use mio::Token;
use rnic::cm::ConnId;
use rnic::rc::{Burst, EarlyPool, Wheel};

use crate::Engine;
use crate::delayed_ack::PendingAcks;
use crate::local_address::LocalAddress;
use crate::packet_io::Peer;
use crate::refused_requests::RefusedRequests;

/// The shared resources of an engine. The private lists contain each queue pair at most once, and
/// none that was [forgotten](Self::forget); packets that wait are noted until they are flushed.
pub(crate) struct EngineResources {
    pub(crate) context: Context<Engine>,
    /// Whether packets may wait to be sent.
    has_outgoing: bool,
    wheel: Wheel,
    /// The adapter's memory for packets that arrive before an earlier packet of their connection.
    pub(crate) early_pool: Arc<EarlyPool>,
    /// Queue pairs that have received packets in this pass.
    received: Vec<usize>,
    /// Queue pairs that have received packets in the consumer's latest pass. The acknowledgements
    /// that they owe wait for an answer of the consumer.
    pending_acks: PendingAcks,
    /// Queue pairs that have more to send.
    transmit_pending: Vec<usize>,
    /// Queue pairs whose failure is to be reported in the next pass.
    failed: Vec<usize>,
    /// The counters of connections that have ended.
    pub(crate) ended_counts: Counts,
    /// The counters of datagram queue pairs that are gone.
    pub(crate) ended_datagram_counts: Counts,
    /// The number of packets for a queue pair that did not come from its peer.
    pub(crate) foreign_packets: u64,
    /// The log of refused connection requests.
    pub(crate) refused_requests: RefusedRequests,
}

impl EngineResources {
    pub(crate) fn new(context: Context<Engine>, early_pool: Arc<EarlyPool>) -> Self {
        EngineResources {
            context,
            has_outgoing: false,
            wheel: Wheel::new(Instant::now()),
            early_pool,
            received: Vec::new(),
            pending_acks: PendingAcks::new(Instant::now()),
            transmit_pending: Vec::new(),
            failed: Vec::new(),
            ended_counts: Counts::default(),
            ended_datagram_counts: Counts::default(),
            foreign_packets: 0,
            refused_requests: RefusedRequests::default(),
        }
    }

    /// Removes a queue pair from all lists.
    pub(crate) fn forget(&mut self, link: usize) {
        self.wheel.clear(link);
        self.pending_acks.remove(link);
        for list in [&mut self.received, &mut self.transmit_pending, &mut self.failed] {
            list.retain(|&of| of != link);
        }
    }

    /// Schedules the report of a queue pair's failure. A failure inside a call of the consumer must
    /// not be reported before that call has returned.
    pub(crate) fn defer_failure(&mut self, link: usize) {
        if !self.failed.contains(&link) {
            self.failed.push(link);
        }
    }

    /// Takes a queue pair whose failure is to be reported.
    pub(crate) fn take_failed(&mut self) -> Option<usize> {
        self.failed.pop()
    }

    /// Records that packets may wait to be sent.
    #[inline]
    pub(crate) fn note_outgoing(&mut self) {
        self.has_outgoing = true;
    }

    /// Whether packets may wait to be sent.
    #[inline]
    pub(crate) fn has_outgoing(&self) -> bool {
        self.has_outgoing
    }

    /// Whether packets may wait to be sent. The caller sends them now.
    #[inline]
    pub(crate) fn take_outgoing(&mut self) -> bool {
        std::mem::take(&mut self.has_outgoing)
    }

    /// Sets the deadline of a queue pair: see [`Wheel::set`].
    #[inline]
    pub(crate) fn set_deadline(&mut self, link: usize, at: Option<Instant>) {
        self.wheel.set(link, at);
    }

    /// Takes a queue pair whose deadline has passed.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Option<usize> {
        self.wheel.pop(now)
    }

    /// The time at which a deadline of a queue pair passes, or at which acknowledgements that wait
    /// are due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.wheel.deadline().into_iter().chain(self.pending_acks.since()).min()
    }

    /// Records that a queue pair has received packets in this pass. The queue pair knows whether it
    /// is in the list already.
    #[inline]
    pub(crate) fn note_received(&mut self, link: usize) {
        debug_assert!(!self.received.contains(&link));
        self.received.push(link);
    }

    /// Takes a queue pair that has received packets in this pass.
    #[inline]
    pub(crate) fn take_received(&mut self) -> Option<usize> {
        self.received.pop()
    }

    /// Lets the acknowledgement of a queue pair wait for an answer of the consumer. The queue pair
    /// knows whether it is in the list already.
    #[inline]
    pub(crate) fn hold_ack(&mut self, link: usize, now: Instant) {
        self.pending_acks.push(link, now);
    }

    /// Takes a queue pair whose acknowledgement waits.
    pub(crate) fn take_held_ack(&mut self) -> Option<usize> {
        self.pending_acks.pop()
    }

    /// Whether the acknowledgements must not wait any longer, not even for the end of other work.
    #[inline]
    pub(crate) fn held_acks_are_due(&self, now: Instant) -> bool {
        self.pending_acks.are_due(now)
    }

    /// Gives a queue pair that has more to send another turn. The queue pair knows whether it is in
    /// the list already.
    pub(crate) fn queue_to_transmit(&mut self, link: usize) {
        self.transmit_pending.push(link);
    }

    /// Queue pairs that have more to send, in the order of their turns.
    pub(crate) fn queued_to_transmit(&self) -> &[usize] {
        &self.transmit_pending
    }

    /// Takes the queue pair whose turn to send is the next one.
    pub(crate) fn take_turn(&mut self) -> Option<usize> {
        (!self.transmit_pending.is_empty()).then(|| self.transmit_pending.remove(0))
    }

    /// Whether any queue pair has a failure to be reported.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Whether the next pass has work for any queue pair: to acknowledge, send or report.
    #[inline]
    pub(crate) fn has_pending_work(&self) -> bool {
        self.pending_acks.since().is_some()
            || !self.transmit_pending.is_empty()
            || self.has_failed()
    }
}

/// The parts of the engine that the methods of a connection need besides the queue pair.
pub(crate) struct EngineContext<'a> {
    pub(crate) local_address: &'a mut LocalAddress,
    pub(crate) resources: &'a mut EngineResources,
    pub(crate) now: Instant,
}

impl EngineContext<'_> {
    /// Returns the burst to which the packets for a peer are added. The engine sends them when it
    /// flushes.
    #[inline]
    pub(crate) fn burst_to(&mut self, peer: &Peer) -> &mut Burst {
        self.resources.note_outgoing();
        self.local_address.packet_io.burst_to(peer, self.now)
    }

    /// Gives up the queue pair number of a connection that has ended. If there is an `id`, the
    /// connection manager still needs the number for this connection, so the number stays reserved.
    pub(crate) fn release_qpn(&mut self, qpn: u32, id: Option<ConnId>) {
        self.local_address.qpns.retire(qpn);
        if id.is_none() {
            self.local_address.qpns.release(qpn);
        }
    }
}

/// The key by which the poller reports a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketKey {
    /// The slot's socket of a local address.
    Socket(usize),
    /// The REQ socket of a local address.
    ReqSocket(usize),
    /// The local socket of a local address's slot. Other adapters send messages to it.
    LocalSocket(usize),
    /// The local socket of a listener at a local address. Other adapters forward requests to it.
    Service { listener: usize, local_address: usize },
    /// The socket to which peers on this host connect in order to notice the end of this process.
    LivenessListener(usize),
    /// A connection that a peer on this host has made to the `LivenessListener`.
    LivenessWatcher { local_address: usize, watcher: usize },
    /// A connection to a peer adapter on this host. It ends when the peer's process ends.
    LivenessConnection { local_address: usize, number: usize },
    /// The socket that sends host probes and receives the answers.
    HostProbe(usize),
}

/// The maximum number of local addresses that tokens can represent.
const LOCAL_ADDRESSES_MAX: usize = 1 << 16;

impl From<SocketKey> for Token {
    fn from(key: SocketKey) -> Self {
        Token(match key {
            SocketKey::Socket(local_address) => local_address << 3,
            SocketKey::ReqSocket(local_address) => local_address << 3 | 1,
            SocketKey::LocalSocket(local_address) => local_address << 3 | 2,
            SocketKey::LivenessListener(local_address) => local_address << 3 | 3,
            SocketKey::Service { listener, local_address } => {
                (listener * LOCAL_ADDRESSES_MAX + local_address) << 3 | 4
            }
            SocketKey::LivenessWatcher { local_address, watcher } => {
                (watcher * LOCAL_ADDRESSES_MAX + local_address) << 3 | 5
            }
            SocketKey::LivenessConnection { local_address, number } => {
                (number * LOCAL_ADDRESSES_MAX + local_address) << 3 | 6
            }
            SocketKey::HostProbe(local_address) => local_address << 3 | 7,
        })
    }
}

impl From<Token> for SocketKey {
    fn from(token: Token) -> Self {
        let index = token.0 >> 3;
        let (number, local_address) = (index / LOCAL_ADDRESSES_MAX, index % LOCAL_ADDRESSES_MAX);
        match token.0 & 7 {
            0 => SocketKey::Socket(index),
            1 => SocketKey::ReqSocket(index),
            2 => SocketKey::LocalSocket(index),
            3 => SocketKey::LivenessListener(index),
            4 => SocketKey::Service { listener: number, local_address },
            5 => SocketKey::LivenessWatcher { local_address, watcher: number },
            6 => SocketKey::LivenessConnection { local_address, number },
            _ => SocketKey::HostProbe(index),
        }
    }
}

/// The receiver of an engine's events.
pub(crate) type Sink = adapter::Sink<Engine>;
/// An event that an engine reports.
pub(crate) type EngineEvent<'a> = adapter::Event<'a, Engine>;
