//! A datagram queue pair. It needs no connection. For each peer, the connection manager finds out
//! the peer's queue pair (`engine::resolution`).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use adapter::{Counts, QpShared, Result, Slab, no_memory};
use rnic::ud::Failure;
use rnic::{Burst, DatagramQp, Destination, UdCfg, Work};
use wire::cm::UDP_Q_KEY;
use wire::rocev2::{Grh, Icrc, Packet, PathMtu};
use work::ResolveFailure;

use crate::local_address::{LocalAddress, random};
use crate::packet_io::{LastSource, Peer};
use crate::resources::{EngineEvent, EngineResources, Sink};
use crate::socket::Datagrams;

/// The indices of datagram queue pairs in the engine begin with this number. Smaller indices are
/// those of the queue pairs that have connections.
pub(crate) const FIRST_INDEX: usize = 1 << 31;
/// The number of bursts that a queue pair sends before others have their turn.
const BURSTS_PER_TURN: usize = 16;
/// The hop limit in the header before a received datagram. The kernel does not tell the hop limit
/// of a packet unless it is asked, and this is the value that kernels send.
const HOP_LIMIT: u8 = 64;
const UDP_HEADER: u16 = 8;

/// The engine's view of a datagram queue pair.
pub(crate) struct DatagramLink {
    /// The index in the engine, from [`FIRST_INDEX`] on.
    index: usize,
    /// The number that the queue pair has had since its creation, if it has one.
    number: Option<u32>,
    sink: Sink,
    shared: Arc<QpShared>,
    qp: DatagramQp,
    /// The Q_Key of the queue pair.
    q_key: u32,
    /// The numbers under which the queue pair receives.
    ends: Vec<End>,
    /// The receiver of the last burst, with the number of the local address.
    receiver: Option<(u32, Peer)>,
    /// The sender of the last packet, with the number of the local address at which the packet
    /// arrived.
    sender: Option<(u32, Peer)>,
    /// Attempts to resolve an address that have failed before a message was sent.
    failed_attempts: Vec<(u64, String)>,
    /// Why the queue pair has failed. It is reported when the consumer's call has returned.
    failure: Option<Failure>,
    has_ended: bool,
}

/// The datagram queue pairs of an engine.
#[derive(Default)]
pub(crate) struct DatagramLinks(Slab<DatagramLink>);

impl DatagramLinks {
    /// Reserves memory for another queue pair, and returns the index that it will have.
    pub(crate) fn reserve(&mut self) -> Result<usize> {
        self.0.reserve().map_err(no_memory)?;
        Ok(FIRST_INDEX + self.0.next_index())
    }

    /// Adds the queue pair with the index that [`reserve`](Self::reserve) returned.
    pub(crate) fn insert(&mut self, link: DatagramLink) {
        self.0.insert(link);
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut DatagramLink> {
        self.0.get_mut(index.checked_sub(FIRST_INDEX)?)
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<DatagramLink> {
        self.0.remove(index.checked_sub(FIRST_INDEX)?)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &DatagramLink> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut DatagramLink> {
        self.0.iter_mut()
    }
}

/// A random Q_Key. It is not 0 and not the key of Linux's RDMA CM. Its highest bit is 0, because a
/// device takes a key with this bit for a privileged one, and sends that of its queue pair instead
/// (IBA, section 10.2.5).
fn draw_q_key() -> u32 {
    loop {
        let q_key = random() as u32 & 0x7FFF_FFFF;
        if q_key != 0 && q_key != UDP_Q_KEY {
            return q_key;
        }
    }
}

/// The number of a queue pair at a local address.
#[derive(Clone, Copy)]
struct End {
    local_address: usize,
    qpn: u32,
}

impl DatagramLink {
    pub(crate) fn new(
        (index, number): (usize, Option<u32>),
        sink: Sink,
        shared: Arc<QpShared>,
        work: Work,
        mtu: PathMtu,
    ) -> Self {
        let q_key = draw_q_key();
        let cfg = UdCfg { q_key, mtu, p_key: 0xFFFF };
        DatagramLink {
            index,
            number,
            q_key,
            sink,
            shared,
            qp: DatagramQp::new(work, cfg),
            ends: Vec::new(),
            receiver: None,
            sender: None,
            failed_attempts: Vec::new(),
            failure: None,
            has_ended: false,
        }
    }

    /// The number that the queue pair has had since its creation, if it has one.
    pub(crate) fn number(&self) -> Option<u32> {
        self.number
    }

    /// The number of the queue pair at a local address. Assigns the number if necessary. From now
    /// on the queue pair receives at this address. Returns `None` if all numbers are in use.
    pub(crate) fn qpn_at(&mut self, index: usize, local_address: &mut LocalAddress) -> Option<u32> {
        if let Some(end) = self.ends.iter().find(|end| end.local_address == index) {
            return Some(end.qpn);
        }
        let qpn = local_address.qpns.assign_for_use(self.index, self.number)?;
        self.ends.push(End { local_address: index, qpn });
        Some(qpn)
    }

    /// The Q_Key that is told to peers. Only they can send to the queue pair.
    pub(crate) fn q_key(&self) -> u32 {
        self.q_key
    }

    /// Also accepts datagrams of this host with the Q_Key of Linux's RDMA CM.
    pub(crate) fn accept_cm_key(&mut self, host: IpAddr) {
        self.qp.accept_cm_key(host);
    }

    /// The receiver of the queue pair's events.
    pub(crate) fn sink(&self) -> &Sink {
        &self.sink
    }

    /// Records an attempt to resolve an address that has failed inside a call of the consumer.
    pub(crate) fn defer_failed_attempt(
        &mut self,
        resources: &mut EngineResources,
        number: u64,
        why: String,
    ) {
        self.failed_attempts.push((number, why));
        resources.defer_failure(self.index);
    }

    /// Reports what has failed inside a call of the consumer, now that the call has returned.
    pub(crate) fn report_failure(&mut self) {
        for (number, why) in std::mem::take(&mut self.failed_attempts) {
            let why = ResolveFailure::Unreachable { because: Some(&why) };
            self.sink.call(EngineEvent::Unresolved { number, why });
        }
        if let Some(failure) = self.failure.take() {
            self.sink.call(EngineEvent::Broken { because: Some(&failure) });
        }
    }

    /// Processes a datagram of a socket that is for this queue pair. `position` is its position in
    /// its batch.
    #[inline]
    pub(crate) fn receive_octets(
        &mut self,
        (local_address, resources): (&mut LocalAddress, &mut EngineResources),
        datagrams: &Datagrams<'_>,
        (position, octets): (usize, &[u8]),
        now: Instant,
    ) {
        let from = datagrams.from;
        let number = local_address.number;
        let is_sender = |(at, peer): &(u32, Peer)| (*at, peer.address.ip()) == (number, from.ip());
        if !self.sender.as_ref().is_some_and(is_sender) {
            self.sender = local_address.peer(from.ip()).map(|peer| (number, peer));
        }
        let Some((_, sender)) = &mut self.sender else { return };
        let mut last = LastSource::default();
        let ours = local_address.address();
        let Some((packet, ip)) = sender.check(ours, from, position, octets, &mut last) else {
            return self.qp.count_invalid();
        };
        local_address.packet_io.capture_received(now, from, ip, octets);
        let Ok(packet) = Packet::parse(packet) else { return self.qp.count_invalid() };
        self.receive((ours.ip(), from, octets.len()), &packet, resources);
    }

    /// Processes a packet for this queue pair. `len` is the length of the UDP payload.
    pub(crate) fn receive(
        &mut self,
        (ours, from, len): (IpAddr, SocketAddr, usize),
        packet: &Packet<'_>,
        resources: &mut EngineResources,
    ) {
        let header = Grh {
            source: from.ip(),
            destination: ours,
            traffic_class: 0,
            hop_limit: HOP_LIMIT,
            udp_len: UDP_HEADER.saturating_add(len as u16),
        };
        let Some(header) = header.to_octets() else { return };
        if let Err(failure) = self.qp.receive(packet, from.ip(), &header) {
            self.fail(failure, resources);
        }
    }

    /// Sends posted datagrams. If the next one leaves from a local address that is not open in this
    /// engine, returns the number of this address.
    #[must_use]
    pub(crate) fn transmit(
        &mut self,
        local_addresses: &mut [LocalAddress],
        resources: &mut EngineResources,
        now: Instant,
    ) -> Option<u32> {
        if self.has_ended {
            self.qp.flush();
            return None;
        }
        for _ in 0..BURSTS_PER_TURN {
            let to = self.qp.next()?;
            let Some(index) = local_addresses.iter().position(|at| at.number == to.route) else {
                return Some(to.route);
            };
            match self.send_burst(to, (index, &mut local_addresses[index]), resources, now) {
                Ok(true) => {}
                Ok(false) => break,
                Err(failure) => {
                    self.fail(failure, resources);
                    return None;
                }
            }
        }
        if self.qp.next().is_some() && !resources.queued_to_transmit().contains(&self.index) {
            resources.queue_to_transmit(self.index);
        }
        None
    }

    /// Completes the next datagrams without sending them, as long as they leave from the local
    /// address with this number. They are lost, because the address cannot be opened.
    #[cold]
    pub(crate) fn lose(&mut self, route: u32, resources: &mut EngineResources) {
        while let Some(to) = self.qp.next().filter(|to| to.route == route) {
            let mut lost = Burst::new(1, Icrc::MAX_DATAGRAM);
            if let Err(failure) = self.qp.transmit(to, 0, &mut lost) {
                return self.fail(failure, resources);
            }
        }
    }

    /// Sends datagrams to one destination. Returns false if the socket has no room.
    fn send_burst(
        &mut self,
        to: Destination,
        (index, local_address): (usize, &mut LocalAddress),
        resources: &mut EngineResources,
        now: Instant,
    ) -> std::result::Result<bool, Failure> {
        let qpn = self.qpn_at(index, local_address).filter(|&qpn| {
            let is_receiver = |(number, peer): &(u32, Peer)| {
                (*number, peer.address.ip()) == (to.route, to.address)
            };
            if self.receiver.as_ref().is_some_and(is_receiver) {
                return true;
            }
            let Some(mut peer) = local_address.peer(to.address) else { return false };
            local_address.packet_io.choose_sender(&mut peer, [qpn, 0]);
            local_address.packet_io.prepare_connected_socket(peer.address);
            self.receiver = Some((to.route, peer));
            true
        });
        let (Some(qpn), Some((_, peer))) = (qpn, &self.receiver) else {
            // The local address has no number left, or is of another family. So the datagrams to
            // this destination are lost.
            let mut lost = Burst::new(1, Icrc::MAX_DATAGRAM);
            return self.qp.transmit(to, 0, &mut lost).map(|()| true);
        };
        if local_address.packet_io.has_unsent(peer) {
            return Ok(false);
        }
        resources.note_outgoing();
        let burst = local_address.packet_io.burst_to(peer, now);
        self.qp.transmit(to, qpn, burst)?;
        Ok(true)
    }

    /// Ends the queue pair, which has failed. All posted work completes before the event that
    /// reports the end.
    fn fail(&mut self, failure: Failure, resources: &mut EngineResources) {
        if self.end() {
            self.failure = Some(failure);
            resources.defer_failure(self.index);
        }
    }

    /// Ends the queue pair and flushes its work. Returns false if it has ended before.
    fn end(&mut self) -> bool {
        if std::mem::replace(&mut self.has_ended, true) {
            return false;
        }
        self.shared.end();
        self.qp.flush();
        true
    }

    /// Ends the queue pair because the consumer wants it.
    pub(crate) fn disconnect(&mut self) {
        if self.end() {
            self.sink.call(EngineEvent::Disconnected);
        }
    }

    /// Releases what the queue pair has in the engine. The queue pair is gone.
    pub(crate) fn close(self, local_addresses: &mut [LocalAddress], counts: &mut Counts) {
        self.count(counts);
        for End { local_address, qpn } in self.ends {
            local_addresses[local_address].qpns.release(qpn);
        }
        if let Some(number) = self.number {
            local_addresses.iter_mut().for_each(|of| of.qpns.unreserve(number));
        }
    }

    /// Adds the counters of the queue pair.
    pub(crate) fn count(&self, counts: &mut Counts) {
        counts.add(&self.qp.stats().list());
    }

    /// The number of receive buffers that belong to the queue pair and have not completed.
    pub(crate) fn allocated(&self) -> usize {
        self.qp.work().allocated()
    }
}
