//! A local address in use: its reference to the UDP port that the processes of a user share, its
//! packet I/O, its connection manager, and its queue pair numbers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::{Duration, Instant};

use adapter::Slab;
use adapter::netdev::{self, NetAddr};
use netem::Conditions;
use rnic::cm::sidr::{ResolveId, Sidr};
use rnic::cm::{Cfg, Cm, ConnId, LowBits};
use wire::cm::{Dreq, MAD_SIZE, Mad, Message, Req, SidrReq, Timeout};
use wire::rocev2::{Opcode, PathMtu, packet_len};

use crate::cm_packet::{GSI, cm_packet};
use crate::config::Config;
use crate::host_probe::HostProbe;
use crate::hosts::SharedHosts;
use crate::owner::{LocalRequest, Owner, ResolutionOwner};
use crate::packet_io::{LastSource, PacketIo, Peer};
use crate::read_pacing::ReadPacing;
use crate::route::Route;
use crate::selftest;
use crate::shared_port::{
    ClosedService, LivenessConnection, Port, PortError, PortSlot, UDP_PORT, low_bits,
};
use crate::socket::ReceiveStrategy;

/// The time that a peer may take to answer a message of the connection manager before the message
/// is repeated: 2^17 · 4.096 µs. Kernels use eight times as much, so a lost message costs them
/// seconds.
const RESPONSE_TIMEOUT: Timeout = Timeout::new(17);
/// The maximum time that a message of the connection manager is in transit: 67 ms.
const PACKET_LIFETIME: Timeout = Timeout::new(14);

/// The time for which a connection is kept if the peer does not answer although its host is up and
/// has the port open. The peer's process may be stopped, or the network may lose the packets of one
/// direction. If the peer is on this host, the connection is kept for as long as the peer's process
/// exists.
pub(crate) const OUTAGE_MAX: Duration = Duration::from_secs(12);

/// A local address in use. A connection or a resolution has one owner, from the time when the
/// manager knows it until the manager releases it. A socket leaves the poller only while it is read
/// all the time.
pub(crate) struct LocalAddress {
    pub(crate) port: Port,
    /// The index of the interface, on which peers with link-local addresses are. 0 for an IPv4
    /// address, whose peers have no scope.
    interface: u32,
    /// The MTU of the interface, in octets of an IP packet.
    pub(crate) ip_mtu: usize,
    pub(crate) packet_io: PacketIo,
    /// The socket that probes peers' hosts. `None` if no descriptor was available. Then this side
    /// notices the end of remote processes later.
    pub(crate) host_probe: Option<HostProbe>,
    /// The number of the address, which is the same in all engines of the adapter.
    pub(crate) number: u32,
    pub(crate) cm: Cm,
    /// The owners of the connections of `cm`.
    owners: HashMap<ConnId, Owner>,
    pub(crate) sidr: Sidr,
    /// The owners of the resolutions of `sidr`.
    resolutions: HashMap<ResolveId, ResolutionOwner>,
    pub(crate) qpns: Qpns,
    /// The services whose listener was closed while requests were undecided, with their ports.
    closed_services: Vec<(u16, ClosedService)>,
    /// The adapters on this host to which the queue pairs of this address are connected.
    pub(crate) local_peers: Slab<LocalPeer>,
    /// The fastest way to read the slot's socket.
    pub(crate) receive_strategy: ReceiveStrategy,
    /// The source of the last valid packet.
    pub(crate) last_source: LastSource,
    /// The schedule by which the engine reads the REQ socket.
    pub(crate) req_pacing: ReadPacing,
    /// Records which hosts of silent peers are up, and which paths carry less than the interface.
    pub(crate) hosts: SharedHosts,
    /// [`Config::timeout`] for the connections of this address.
    pub(crate) timeout: Option<Timeout>,
    /// [`Config::retries`] for the connections of this address.
    pub(crate) retries: Option<u8>,
    /// The number of reads of the slot's socket that found packets.
    successful_reads: u32,
    /// Whether the slot's socket has left the poller because consumers poll it all the time.
    is_suspended: bool,
}

/// After this number of reads that find packets, a slot's socket leaves the poller. Consumers poll
/// the socket anyway, so the poller's wake-ups would only cost time.
const READS_BEFORE_SUSPEND: u32 = 64;

/// A peer adapter on this host.
pub(crate) struct LocalPeer {
    pub(crate) address: IpAddr,
    pub(crate) slot: PortSlot,
    pub(crate) liveness: LivenessConnection,
}

impl LocalAddress {
    /// Whether a request is still open: the peer has not withdrawn it, and the consumer has not
    /// answered it.
    pub(crate) fn has_request(&self, request: LocalRequest) -> bool {
        self.owners.get(&request.id) == Some(&Owner::Request(request.serial))
    }

    /// The owner of a connection of the connection manager.
    pub(crate) fn owner(&self, id: ConnId) -> Option<Owner> {
        self.owners.get(&id).copied()
    }

    /// Records the owner of a connection, which may have had another one.
    pub(crate) fn set_owner(&mut self, id: ConnId, owner: Owner) {
        self.owners.insert(id, owner);
    }

    /// Records that nobody owns the connection any more.
    pub(crate) fn remove_owner(&mut self, id: ConnId) {
        rnic::shrinking_map::remove(&mut self.owners, &id);
    }

    /// Records the owner of a resolution.
    pub(crate) fn set_resolution_owner(&mut self, id: ResolveId, owner: ResolutionOwner) {
        self.resolutions.insert(id, owner);
    }

    /// Takes the owner of a resolution that has ended.
    pub(crate) fn take_resolution_owner(&mut self, id: ResolveId) -> Option<ResolutionOwner> {
        rnic::shrinking_map::remove(&mut self.resolutions, &id)
    }

    /// Takes a request out of the unanswered ones. Returns false if it is not one of them.
    pub(crate) fn take_datagram_request(&mut self, id: ResolveId, serial: u64) -> bool {
        let is_open = self.resolutions.get(&id) == Some(&ResolutionOwner::Request(serial));
        if is_open {
            self.take_resolution_owner(id);
        }
        is_open
    }

    /// Ends the attempts of a datagram queue pair to resolve an address.
    pub(crate) fn cancel_resolutions(&mut self, qp: usize) {
        let is_of_qp = |_: &ResolveId, owner: &mut ResolutionOwner| match owner {
            ResolutionOwner::Attempt { link, .. } => *link == qp,
            ResolutionOwner::Request(_) => false,
        };
        let LocalAddress { resolutions, sidr, .. } = self;
        resolutions.extract_if(is_of_qp).for_each(|(id, _)| sidr.cancel(id));
    }

    /// Records that a consumer's read of the slot's socket has found packets. Returns whether the
    /// socket should leave the poller now.
    pub(crate) fn note_read(&mut self) -> bool {
        self.successful_reads = self.successful_reads.wrapping_add(1);
        self.successful_reads.is_multiple_of(READS_BEFORE_SUSPEND) && !self.is_suspended
    }

    /// Records whether the slot's socket has left the poller.
    pub(crate) fn set_suspended(&mut self, is_suspended: bool) {
        self.is_suspended = is_suspended;
    }

    /// Whether the slot's socket has left the poller. The caller returns it.
    pub(crate) fn take_suspended(&mut self) -> bool {
        std::mem::take(&mut self.is_suspended)
    }

    /// Opens a local address with one of `slots`. `timeout` is the time to wait for the shared
    /// sockets, as in [`Port::open`]. `host` has the addresses of the host, and `hosts` records
    /// what is known of the hosts of peers. `number` is the number of the address in the adapter.
    pub(crate) fn open(
        (address, slots, timeout): (SocketAddr, Range<PortSlot>, Duration),
        (host, hosts, number): (&[NetAddr], SharedHosts, u32),
        guid: u64,
        config: &Config,
        capture: Option<capture::Capture>,
    ) -> Result<Self, PortError> {
        let port = Port::open(address, slots, timeout)?;
        let address = port.address();
        let gso = match (config.gso, address) {
            (Some(gso), _) => gso,
            // The IPv6 header has no identification field.
            (None, SocketAddr::V6(_)) => true,
            (None, SocketAddr::V4(_)) => selftest::gso_headers_fit_icrc(address),
        };
        let ip_mtu = Route::ip_mtu_of(address, host);
        let mtu = PathMtu::of_interface(ip_mtu).unwrap_or(PathMtu::Octets256);
        let loopback = Route::to(address, None).map_or(mtu, |route| route.mtu);
        let cfg = Cfg {
            path_mtu: mtu.min(config.mtu),
            loopback_path_mtu: loopback.min(config.mtu),
            traffic_class: config.dscp << 2,
            response_timeout: RESPONSE_TIMEOUT,
            packet_lifetime: PACKET_LIFETIME,
            low_bits: low_bits(port.slot()),
            ..Cfg::new(guid)
        };
        let slot = port.slot();
        // A different seed for each address and adapter makes them lose different packets.
        let seed = config.conditions.seed.wrapping_add(u64::from(slot));
        let conditions = Conditions { seed, ..config.conditions.clone() };
        let system = |error| PortError::of_sender(address.ip(), error);
        let packet_io =
            PacketIo::new(address, gso, config.dscp, &conditions, capture).map_err(system)?;
        let paths = hosts.clone();
        let path_limit = Box::new(move |caller, now| paths.lock().path_mtu(caller, now));
        Ok(LocalAddress {
            port,
            interface: if address.is_ipv6() { netdev::interface_of(address) } else { 0 },
            ip_mtu,
            packet_io,
            host_probe: HostProbe::new(address).ok(),
            cm: Cm::new(cfg, Box::new(random)).with_path_limit(path_limit),
            owners: HashMap::new(),
            number,
            sidr: Sidr::new(low_bits(slot), Box::new(random)),
            resolutions: HashMap::new(),
            qpns: Qpns::new(low_bits(slot)),
            closed_services: Vec::new(),
            local_peers: Slab::new(),
            receive_strategy: ReceiveStrategy::default(),
            last_source: LastSource::default(),
            req_pacing: ReadPacing::default(),
            hosts,
            timeout: config.timeout,
            retries: config.retries,
            successful_reads: 0,
            is_suspended: false,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Whether this is the local address `other`, whose port does not matter. Several interfaces
    /// may have the same link-local address, with different scopes.
    pub(crate) fn is_at(&self, mut other: SocketAddr) -> bool {
        other.set_port(self.address().port());
        other == self.address()
    }

    /// Stops listening at a port. A caller repeats its request until it has the answer. Any adapter
    /// of this address may receive the repetition, because all of them share the REQ socket.
    /// Therefore `closed` keeps a name for the service while such requests exist. By this name the
    /// other adapters forward repetitions to this adapter. Without it they would refuse them.
    pub(crate) fn unlisten(&mut self, port: u16, mut closed: ClosedService) {
        self.cm.unlisten(port);
        self.sidr.unlisten(port);
        self.remove_closed_services();
        // Remove the name that an earlier listener of the same port may have left.
        self.closed_services.retain(|&(earlier, _)| earlier != port);
        // If the link cannot be made, another adapter may refuse a repeated request.
        if self.has_open_requests(port)
            && self.closed_services.len() < self.closed_services.capacity()
            && closed.link().is_ok()
        {
            self.closed_services.push((port, closed));
        }
    }

    /// Reserves memory so that this number of listeners can be closed without any.
    pub(crate) fn reserve_closed_services(&mut self, listeners: usize) -> io::Result<()> {
        let reserved = self.closed_services.try_reserve(listeners);
        reserved.map_err(|_| io::ErrorKind::OutOfMemory.into())
    }

    /// Whether a request to a port is open: it was not answered, or its caller may repeat it.
    fn has_open_requests(&self, port: u16) -> bool {
        self.cm.has_open_requests(port) || self.sidr.has_open_requests(port)
    }

    /// Removes the names of closed services whose requests have ended.
    pub(crate) fn remove_closed_services(&mut self) {
        let LocalAddress { cm, sidr, closed_services, .. } = self;
        let is_open = |port| cm.has_open_requests(port) || sidr.has_open_requests(port);
        closed_services.retain(|&(port, _)| is_open(port));
    }

    /// Adds the pending messages of the connection manager to the outgoing packets. Returns whether
    /// there were any.
    pub(crate) fn send_messages(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(message) = self.cm.poll_transmit().or_else(|| self.sidr.poll_transmit()) {
            let Some(peer) = self.peer(message.to) else { continue };
            any = true;
            let burst = self.packet_io.burst_to(&peer, now);
            if let Some(buffer) = burst.push(packet_len(Opcode::DatagramSendOnly, MAD_SIZE)) {
                cm_packet(&message.mad, self.qpns.next_gsi_psn()).emit(buffer);
            }
            match Mad::parse(&message.mad).map(|mad| mad.message) {
                Ok(Message::Req(Req { local_id, .. }) | Message::Dreq(Dreq { local_id, .. })) => {
                    self.probe_port(peer.address, ConnId(local_id), GSI);
                }
                Ok(Message::SidrReq(SidrReq { request_id, .. })) => {
                    if let Some(host_probe) = self.host_probe_to(peer.address) {
                        host_probe.probe_port_for(peer.address, ResolveId(request_id));
                    }
                }
                _ => {}
            }
        }
        any
    }

    /// Whether packets to this peer pass a network, which may be emulated.
    pub(crate) fn has_network_to(&self, peer: IpAddr) -> bool {
        let is_local = peer.is_loopback() || peer == self.address().ip();
        !is_local || self.packet_io.has_emulated_network()
    }

    /// Asks a host whether any process has the port, for a connection with this queue pair.
    pub(crate) fn probe_port(&self, host: SocketAddr, id: ConnId, qpn: u32) {
        if let Some(host_probe) = self.host_probe_to(host) {
            host_probe.probe_port(host, id, qpn);
        }
    }

    /// The prober of a host. This adapter's own address needs no probe.
    fn host_probe_to(&self, host: SocketAddr) -> Option<&HostProbe> {
        self.host_probe.as_ref().filter(|_| host != self.address())
    }

    /// Returns a peer at this address. Returns `None` if the peer's address is not of the same
    /// family (IPv4 or IPv6) as this side's address.
    pub(crate) fn peer(&self, ip: IpAddr) -> Option<Peer> {
        Peer::new(self.packet_io.source(), self.address(), self.peer_address(ip))
    }

    /// Makes the kernel report the marks of switches. Packets from this adapter's own address pass
    /// no switch, so an adapter without other peers need not read the marks.
    pub(crate) fn read_marks_of(&mut self, peer: IpAddr) {
        if peer != self.address().ip()
            && !self.receive_strategy.reads_marks()
            && self.port.socket.report_traffic_class().is_ok()
        {
            self.receive_strategy.read_marks();
        }
    }

    /// Whether a peer that has been silent for the time `quiet` is known to be alive.
    pub(crate) fn is_peer_alive(
        &self,
        peer: (IpAddr, PortSlot),
        quiet: Duration,
        now: Instant,
    ) -> bool {
        let is_local_peer_connected =
            self.local_peers.iter().any(|of| (of.address, of.slot) == peer);
        is_local_peer_connected || quiet < OUTAGE_MAX && self.hosts.lock().is_up(peer.0, now)
    }

    /// Asks a host whether it is up. The answer does not depend on the processes of the host.
    pub(crate) fn probe_host(&mut self, host: SocketAddr, now: Instant) {
        if let Some(host_probe) = &self.host_probe
            && let Some(nonce) = self.hosts.lock().nonce_to_send(host.ip(), now, random)
        {
            host_probe.probe_host(host, nonce);
        }
    }

    /// The socket address of a peer: its IP address and the UDP port.
    pub(crate) fn peer_address(&self, ip: IpAddr) -> SocketAddr {
        self.with_scope(SocketAddr::new(ip, UDP_PORT))
    }

    /// Gives a link-local address from a message the scope of this side's interface. Messages
    /// contain no scopes.
    pub(crate) fn with_scope(&self, address: SocketAddr) -> SocketAddr {
        ::address::with_scope(address, self.interface).unwrap_or(address)
    }

    /// Connects to a peer's liveness socket if the peer is on this host, so that this side notices
    /// the end of the peer's process. Returns false if that process has ended already.
    pub(crate) fn watch_peer(
        &mut self,
        peer: SocketAddr,
        slot: PortSlot,
        watch: impl FnOnce(usize, &LivenessConnection),
    ) -> bool {
        let indices: Vec<usize> = self.local_peers.indices().collect();
        let mut known = indices
            .into_iter()
            .filter_map(|index| self.local_peers.get_mut(index).map(|n| (n.address, n.slot)));
        if known.any(|known| known == (peer.ip(), slot)) {
            return true;
        }
        match self.port.connect_liveness(peer, slot) {
            // The peer's address is not on this host, so the socket does not belong to the peer. It
            // only has the same name as the peer's socket on the peer's host.
            Ok(_) if !netdev::is_own(peer.ip()) => true,
            Ok(liveness) => {
                watch(self.local_peers.next_index(), &liveness);
                self.local_peers.insert(LocalPeer { address: peer.ip(), slot, liveness });
                true
            }
            // Adapters at the same address share its port. So if the peer has this side's address,
            // a refusal means that the peer has ended.
            Err(error) => {
                error.kind() != io::ErrorKind::ConnectionRefused || peer.ip() != self.address().ip()
            }
        }
    }

    /// The earliest deadline of the connection manager, the packet I/O, the port and the reads of
    /// the REQ socket.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let LocalAddress { cm, sidr, packet_io, port, req_pacing, .. } = self;
        let cm = cm.deadline().into_iter().chain(sidr.deadline()).min();
        let all = [cm, packet_io.deadline(), port.deadline(), req_pacing.deadline()];
        all.into_iter().flatten().min()
    }
}

/// Assigns queue pair numbers. The low bits of a number are the adapter's slot. The other bits are
/// random, because an attacker who forges a packet must guess them. A number is not reused for a
/// while after its release, because a peer may still use it for an earlier connection.
pub(crate) struct Qpns {
    low_bits: LowBits,
    gsi_psn: u32,
    /// The numbers of connections and of datagram queue pairs.
    used: HashMap<u32, Use>,
    /// The numbers that queue pairs have had since their creation, with or without a connection.
    own: HashSet<u32>,
    /// The numbers that were released last, the oldest one first.
    recent: VecDeque<u32>,
    /// A cache of the last result of `find`: a queue pair number and the index of its queue pair.
    last: (u32, usize),
}

/// The use of a number by connections.
struct Use {
    /// The index of the queue pair. `None` if it no longer exists or no longer has a connection,
    /// but the number is not released yet.
    link: Option<usize>,
    /// The number of connections for which the queue pair number is not released yet. It exceeds 1
    /// only for a queue pair that keeps its number.
    connections: u32,
}

impl Qpns {
    fn new(low_bits: LowBits) -> Self {
        Qpns {
            low_bits,
            gsi_psn: random() as u32,
            used: HashMap::new(),
            own: HashSet::new(),
            recent: VecDeque::new(),
            last: (u32::MAX, 0),
        }
    }

    /// The number of values of the bits that are not fixed.
    fn numbers(&self) -> u32 {
        1 << (24 - self.low_bits.count)
    }

    /// The maximum number of released numbers that are not reused yet.
    fn recent_max(&self) -> usize {
        self.numbers() as usize / 128
    }

    /// The number of queue pairs that can have a number at the same time.
    pub(crate) fn capacity(&self) -> usize {
        self.numbers() as usize - 2 - self.recent_max()
    }

    /// Assigns a number to a queue pair. Returns `None` if all numbers are in use.
    pub(crate) fn assign(&mut self, link: usize) -> Option<u32> {
        let qpn = self.free_number(|_| true)?;
        self.used.insert(qpn, Use { link: Some(link), connections: 1 });
        Some(qpn)
    }

    /// Assigns a number to a queue pair for a connection or for datagrams. `own` is the number that
    /// the queue pair has had since its creation.
    pub(crate) fn assign_for_use(&mut self, link: usize, own: Option<u32>) -> Option<u32> {
        let Some(qpn) = own else { return self.assign(link) };
        let number = self.used.entry(qpn).or_insert(Use { link: None, connections: 0 });
        number.link = Some(link);
        number.connections += 1;
        self.last.0 = u32::MAX;
        Some(qpn)
    }

    /// A random number that is free and for which `is_free_elsewhere` returns true.
    fn free_number(&self, is_free_elsewhere: impl Fn(u32) -> bool) -> Option<u32> {
        let numbers = self.numbers();
        let start = random() as u32 % numbers;
        // The first number that is tried is usually free.
        for number in (start..numbers).chain(0..start) {
            let qpn = self.low_bits.append_to(number);
            // Numbers 0 and 1 are reserved, and 0xffffff is the multicast queue pair.
            let is_special = number == 0 || number == numbers - 1;
            if !is_special && self.is_free(qpn) && is_free_elsewhere(qpn) {
                return Some(qpn);
            }
        }
        None
    }

    fn is_free(&self, qpn: u32) -> bool {
        !(self.used.contains_key(&qpn) || self.own.contains(&qpn) || self.recent.contains(&qpn))
    }

    /// Reserves a number for a queue pair that keeps it.
    pub(crate) fn reserve(&mut self, qpn: u32) {
        self.own.insert(qpn);
    }

    /// Ends the reservation of a number, because its queue pair no longer exists.
    pub(crate) fn unreserve(&mut self, qpn: u32) {
        if self.own.remove(&qpn) && !self.used.contains_key(&qpn) {
            self.note_released(qpn);
        }
    }

    /// Returns the index of the queue pair with this number.
    #[inline]
    pub(crate) fn find(&mut self, qpn: u32) -> Option<usize> {
        if self.last.0 != qpn {
            self.last = (qpn, self.used.get(&qpn)?.link?);
        }
        Some(self.last.1)
    }

    /// Whether any numbers are in use.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.used.is_empty()
    }

    /// Records that the queue pair no longer has a connection. The number stays reserved until it
    /// is released.
    pub(crate) fn retire(&mut self, qpn: u32) {
        if let Some(number) = self.used.get_mut(&qpn) {
            number.link = None;
        }
        self.last.0 = u32::MAX;
    }

    /// Releases a number for one connection. It may be reused after a while.
    pub(crate) fn release(&mut self, qpn: u32) {
        if let Some(number) = self.used.get_mut(&qpn).filter(|number| number.connections > 1) {
            number.connections -= 1;
        } else if self.used.remove(&qpn).is_some() && !self.own.contains(&qpn) {
            self.note_released(qpn);
        }
        self.last.0 = u32::MAX;
    }

    fn note_released(&mut self, qpn: u32) {
        if self.recent.len() >= self.recent_max() {
            self.recent.pop_front();
        }
        self.recent.push_back(qpn);
    }

    fn next_gsi_psn(&mut self) -> u32 {
        self.gsi_psn = self.gsi_psn.wrapping_add(1);
        self.gsi_psn & 0xff_ffff
    }
}

/// Assigns a number to a queue pair that is being created. The number is valid at all these
/// addresses, which have the same slot. Returns `None` if all numbers are in use.
pub(crate) fn assign_everywhere(local_addresses: &mut [LocalAddress]) -> Option<u32> {
    let (first, others) = local_addresses.split_first()?;
    let is_free = |qpn| others.iter().all(|of| of.qpns.is_free(qpn));
    let qpn = first.qpns.free_number(is_free)?;
    local_addresses.iter_mut().for_each(|of| of.qpns.reserve(qpn));
    Some(qpn)
}

/// A random number from the system's generator.
pub(crate) fn random() -> u64 {
    let mut octets = [0; 8];
    // The kernel returns all 8 octets or, early after boot, none of them. The call is repeated
    // until it succeeds.
    while rustix::rand::getrandom(&mut octets, rustix::rand::GetRandomFlags::empty())
        != Ok(octets.len())
    {}
    u64::from_ne_bytes(octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_port::{self, OPEN_TIMEOUT, SLOTS};

    #[test]
    fn numbers_have_the_slot_and_are_not_used_again_soon() {
        let mut qpns = Qpns::new(LowBits { count: 7, value: 0x55 });
        let numbers: Vec<u32> = (0..1000)
            .map(|link| qpns.assign(link).expect("there are enough free numbers"))
            .collect();
        for (link, &qpn) in numbers.iter().enumerate() {
            assert_eq!((qpn & 0x7f, qpns.find(qpn)), (0x55, Some(link)));
            assert!((2..0xff_ffff).contains(&qpn));
        }
        qpns.retire(numbers[7]);
        assert_eq!((qpns.find(numbers[7]), qpns.find(numbers[8])), (None, Some(8)));
        qpns.release(numbers[7]);
        assert!((0..1000).all(|link| qpns.assign(link) != Some(numbers[7])));
    }

    #[test]
    fn a_number_from_the_creation_outlives_the_connections_of_its_queue_pair() {
        let mut qpns = Qpns::new(LowBits { count: 7, value: 0x55 });
        let qpn = qpns.free_number(|_| true).expect("there are enough free numbers");
        qpns.reserve(qpn);
        assert!(qpns.find(qpn).is_none() && !qpns.any(), "the queue pair has no connection");
        for _ in 0..2 {
            assert_eq!(qpns.assign_for_use(3, Some(qpn)), Some(qpn));
            assert_eq!(qpns.find(qpn), Some(3));
            qpns.retire(qpn);
            assert_eq!(qpns.find(qpn), None);
        }
        // The connection manager releases the number once for each connection.
        qpns.release(qpn);
        assert_eq!(qpns.assign_for_use(3, Some(qpn)), Some(qpn));
        qpns.release(qpn);
        assert_eq!(qpns.find(qpn), Some(3), "an earlier connection has released the number");
        qpns.retire(qpn);
        qpns.release(qpn);
        assert!(!qpns.any() && qpns.recent.is_empty() && !qpns.is_free(qpn));
        qpns.unreserve(qpn);
        assert!(!qpns.is_free(qpn), "the number is not used again soon");
    }

    #[test]
    fn the_name_of_an_adapter_on_another_host_is_ignored() {
        let config = Config::default();
        // An address that no other run of this test uses.
        let [.., high, low] = std::process::id().to_be_bytes();
        let own = |n: u8| SocketAddr::from(([127, 80 + n, high, low.max(1)], 0));
        let none = (&[][..], SharedHosts::default(), 0);
        let mut local_address =
            LocalAddress::open((own(0), SLOTS, OPEN_TIMEOUT), none, 1, &config, None)
                .expect("the address is free");
        let elsewhere = SocketAddr::from(([10, 80, high, low], UDP_PORT));
        let _taken = shared_port::take_liveness_name(elsewhere, 5);
        assert!(local_address.watch_peer(elsewhere, 5, |_, _| panic!(
            "the name of an adapter on another host must be ignored"
        )));
        let local_peer = Port::open(own(1), SLOTS, OPEN_TIMEOUT).expect("the address is free");
        let mut is_watched = false;
        assert!(
            local_address
                .watch_peer(local_peer.address(), local_peer.slot(), |_, _| is_watched = true)
        );
        assert!(is_watched);
    }

    #[test]
    fn numbers_can_run_out() {
        for (slot, expected) in [(0, 1 << 17), (1086, 1 << 13)] {
            let mut qpns = Qpns::new(low_bits(slot));
            let n = (0..).take_while(|&link| qpns.assign(link).is_some()).count();
            assert_eq!(n, expected - 2, "slot {slot}");
        }
    }
}
