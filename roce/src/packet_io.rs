//! Sends packets through the socket or the emulated network, with their ICRC and in batches. Checks
//! received packets.
//!
//! Packets are not sent from port 4791, but from ports that the system has chosen at random. An
//! attacker who forges a packet must guess the port in addition to the numbers of the connection,
//! and no other user of this host can send from it. Connections to other addresses are spread over
//! several ports, because switches and network cards with several paths or queues choose one by the
//! addresses and ports of a packet. All packets of a connection leave from one port, so they do not
//! overtake each other.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use capture::{Capture, Datagram, Direction};
use netem::Conditions;
use rnic::rc::Burst;
use wire::rocev2::{Icrc, Identification, Psn};

use crate::connected_socket::ConnectedSocket;
use crate::outgoing::{Batch, Destination, Outgoing};
use crate::path_reports::{PathReport, PathReports};
use crate::socket::{ECN_CAPABLE, MAX_SEGMENTS, SendFailure, Sent, Udp};
use crate::unsent_batches::{self, UnsentBatches};

/// The maximum number of ports from which the packets of a local address leave.
const SENDERS_MAX: usize = 4;

/// The packet I/O of a local address, between the engine and its socket.
pub(crate) struct PacketIo {
    /// The address to which peers send.
    address: SocketAddr,
    /// The senders. The first one exists from the start. It sends the messages of connection
    /// management and all packets to this adapter's own address. The others are opened for
    /// connections to other addresses.
    senders: Vec<Sender>,
    /// The DSCP and the ECN codepoint of all packets.
    traffic_class: u8,
    /// Whether the kernel splits a batch into packets (UDP_SEGMENT), so that one call sends the
    /// batch.
    gso: bool,
    /// The packets that wait to be sent.
    outgoing: Outgoing,
    /// The connected socket, which is a faster path to peers at this adapter's own address. `None`
    /// if it is not in use.
    connected_socket: Option<ConnectedSocket>,
    /// The packets that were too long for an interface of this host, until
    /// [`take_too_long`](PacketIo::take_too_long) returns them.
    too_long: Vec<TooLong>,
    net: Option<netem::Channel<InFlight>>,
    capture: Option<Capture>,
}

/// A port from which packets leave.
struct Sender {
    socket: Udp,
    /// A socket that reserves the port of `source`, so that no other user of the host can send from
    /// that port.
    _port_reservation: Udp,
    /// The source address of the packets.
    source: SocketAddr,
    /// The batches for which the socket had no room. All packets of a connection leave from one
    /// sender, so a sender without room delays only its own connections.
    unsent: UnsentBatches,
    /// The reports of routers about packets from this port.
    path_reports: PathReports,
}

impl Sender {
    fn open(address: SocketAddr, traffic_class: u8) -> io::Result<Self> {
        let (port_reservation, port) = Udp::reserve_port()?;
        let mut source = address;
        source.set_port(port);
        let socket = Udp::bind_send_only(source, address)?;
        socket.set_traffic_class(traffic_class)?;
        socket.drop_incoming()?;
        socket.enable_error_queue()?;
        Ok(Sender {
            socket,
            _port_reservation: port_reservation,
            source,
            unsent: UnsentBatches::default(),
            path_reports: PathReports::default(),
        })
    }

    /// Sends packets as [`Udp::send`] does. Adds the packets that are too long for the interface to
    /// `too_long`.
    fn send(
        &mut self,
        to: SocketAddr,
        octets: &[u8],
        size: usize,
        too_long: &mut Vec<TooLong>,
    ) -> Sent {
        // The kernel also refuses to send once after an ICMP message about an earlier packet, so
        // the first refusal may have nothing to do with these packets. The kernel may give no
        // reason for the refusal of a batch, so the last attempt sends a single packet. If that
        // packet leaves, the other packets of the batch count as lost.
        for packets in [octets, octets, &octets[..size.min(octets.len())]] {
            match self.socket.send(to, packets, size) {
                Sent::TooLong => {}
                Sent::All if packets.len() < octets.len() => return Sent::Failed,
                sent => return sent,
            }
            if let Some(mtu) = self.read_reports() {
                note_too_long(too_long, to, octets, size, mtu);
                return Sent::TooLong;
            }
        }
        Sent::Failed
    }

    /// Reads the reports about packets from this port. Returns the MTU of the interface, in octets
    /// of an IP packet, if this host has refused a packet because of it.
    fn read_reports(&mut self) -> Option<usize> {
        let (mut of_interface, path_reports) = (None, &mut self.path_reports);
        self.socket.read_errors(|report| match report.cause {
            SendFailure::TooLongForInterface { mtu } => of_interface = Some(mtu),
            SendFailure::TooLongForRouter { mtu: path } => {
                if let Some((qpn, psn)) = dest_qpn(report.packet).zip(psn(report.packet)) {
                    path_reports.add(PathReport { peer: report.to.ip(), qpn, psn, path });
                }
            }
            SendFailure::Refused | SendFailure::Other => {}
        });
        of_interface
    }
}

/// A packet that this host has not sent, because it is longer than the MTU of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    /// The address of the peer.
    pub(crate) peer: IpAddr,
    /// The peer's queue pair.
    pub(crate) qpn: u32,
    pub(crate) psn: Psn,
    /// The length of the IP packet.
    pub(crate) octets: usize,
    /// The MTU of the interface: the length of the longest IP packet that it carries.
    pub(crate) mtu: usize,
}

/// A packet in the emulated network.
#[derive(Clone)]
struct InFlight {
    sender: usize,
    to: SocketAddr,
    datagram: Vec<u8>,
}

/// The addresses and checksums of a peer.
pub(crate) struct Peer {
    /// The address of the peer, with the UDP port.
    pub(crate) address: SocketAddr,
    /// The index of the sender of packets to the peer.
    sender: usize,
    /// The ICRC of packets to the peer.
    tx_icrc: Icrc,
    /// The source address of the peer's last packets. Each queue pair may have a source port of its
    /// own.
    source: SocketAddr,
    /// The ICRC of packets from `source`.
    rx_icrc: Icrc,
    /// Whether a valid packet has come from `source`. After the first valid packet, packets from
    /// other sources are not accepted.
    source_is_known: bool,
    /// The expected IPv4 identification of the peer's next packet, if the peer numbers its packets
    /// as kernels do. `None` if the peer uses the same identifications as this provider: see
    /// [`crate::socket`].
    next_id: Option<u16>,
}

/// The source of the last valid packet, and the value of [`Peer::next_id`] after that packet. All
/// queue pairs whose peers have this source expect the same identification next, because the sender
/// numbers the packets of all its queue pairs together.
#[derive(Default)]
pub(crate) struct LastSource(Option<(SocketAddr, Option<u16>)>);

impl Peer {
    /// Creates a peer to which the first sender sends. `source` is the source address of packets to
    /// the peer, and `ours` is the destination address of packets from the peer. Returns `None` if
    /// `address`, the peer's address, is not of the same family.
    pub(crate) fn new(source: SocketAddr, ours: SocketAddr, address: SocketAddr) -> Option<Self> {
        let (tx_icrc, rx_icrc) = (Icrc::new(source, address)?, Icrc::new(address, ours)?);
        Some(Peer {
            address,
            sender: 0,
            tx_icrc,
            source: address,
            rx_icrc,
            source_is_known: false,
            next_id: None,
        })
    }

    /// Whether the peer may send packets from this source.
    #[inline]
    pub(crate) fn may_send_from(&self, from: SocketAddr) -> bool {
        from == self.source || !self.source_is_known && from.ip() == self.address.ip()
    }

    /// Whether the source of the peer's packets is still unknown.
    #[inline]
    pub(crate) fn is_source_unknown(&self) -> bool {
        !self.source_is_known
    }

    /// Records that a valid packet has come from this source. From now on no other source is
    /// accepted.
    pub(crate) fn set_source(&mut self, ours: SocketAddr, from: SocketAddr) {
        if let Some(rx_icrc) = Icrc::new(from, ours) {
            (self.source, self.rx_icrc, self.source_is_known) = (from, rx_icrc, true);
        }
    }

    /// The expected IPv4 identification of a datagram. `position` is the datagram's position in its
    /// batch.
    #[inline]
    fn expected_id(&self, last: &LastSource, from: SocketAddr, position: usize) -> u16 {
        let next_id = match last.0 {
            Some((source, next_id)) if source == from => next_id,
            _ => self.next_id,
        };
        next_id.unwrap_or(position as u16)
    }

    /// Checks a datagram from a source that the peer [may send from](Self::may_send_from), and
    /// returns the packet in it. `position` is the datagram's position in its batch.
    #[inline]
    pub(crate) fn check<'a>(
        &mut self,
        ours: SocketAddr,
        from: SocketAddr,
        position: usize,
        datagram: &'a [u8],
        last: &mut LastSource,
    ) -> Option<(&'a [u8], Identification)> {
        if from != self.source {
            (self.source, self.rx_icrc) = (from, Icrc::new(from, ours)?);
        }
        let expected = self.expected_id(last, from, position);
        let (packet, id) = self.rx_icrc.recover(expected, datagram).ok()?;
        self.next_id = match id.id {
            id if id == position as u16 => None,
            id => Some(id.wrapping_add(1)),
        };
        last.0 = Some((from, self.next_id));
        Some((packet, id))
    }
}

/// Checks a datagram of an unknown sender.
pub(crate) fn check_unknown(
    ours: SocketAddr,
    from: SocketAddr,
    position: usize,
    datagram: &[u8],
) -> Option<(&[u8], Identification)> {
    Icrc::new(from, ours)?.recover(position as u16, datagram).ok()
}

impl PacketIo {
    pub(crate) fn new(
        address: SocketAddr,
        gso: bool,
        dscp: u8,
        conditions: &Conditions,
        capture: Option<Capture>,
    ) -> io::Result<Self> {
        let net = (!conditions.is_off()).then(|| netem::Channel::new(conditions.clone()));
        let traffic_class = dscp << 2 | ECN_CAPABLE;
        Ok(PacketIo {
            address,
            senders: vec![Sender::open(address, traffic_class)?],
            traffic_class,
            gso,
            outgoing: Outgoing::new(),
            connected_socket: None,
            too_long: Vec::new(),
            net,
            capture,
        })
    }

    /// Whether packets pass the emulated network.
    pub(crate) fn has_emulated_network(&self) -> bool {
        self.net.is_some()
    }

    /// The source address of the first sender's packets.
    pub(crate) fn source(&self) -> SocketAddr {
        self.senders[0].source
    }

    /// Chooses the sender for a connection, by the numbers of its queue pairs. Opens the sender if
    /// necessary. If it cannot be opened, or if the peer is at this adapter's own address, the
    /// connection shares a sender with other connections.
    pub(crate) fn choose_sender(&mut self, peer: &mut Peer, [ours, theirs]: [u32; 2]) {
        if peer.address.ip() == self.address.ip() {
            return;
        }
        // Fibonacci hashing: the upper bits of the product depend on all bits of the numbers.
        let hash = (ours ^ theirs.rotate_left(12)).wrapping_mul(0x9E37_79B9) >> 24;
        let mut index = hash as usize % SENDERS_MAX;
        if index >= self.senders.len() {
            self.senders.extend(Sender::open(self.address, self.traffic_class));
            index = self.senders.len() - 1;
        }
        if let Some(tx_icrc) = Icrc::new(self.senders[index].source, peer.address) {
            (peer.sender, peer.tx_icrc) = (index, tx_icrc);
        }
    }

    /// Prepares for a connection with this peer. If the peer is at the same address, opens the
    /// connected socket.
    pub(crate) fn prepare_connected_socket(&mut self, peer: SocketAddr) {
        if peer == self.address && self.connected_socket.is_none() && self.gso && self.net.is_none()
        {
            self.connected_socket = ConnectedSocket::new(self.source(), peer);
        }
    }

    /// Returns the burst of the packets that wait to be sent to a peer. The caller may add packets
    /// to it, which leave with the next [`flush`](Self::flush). If the waiting packets are for
    /// another peer, or if the burst has no room for a packet, they are sent now.
    #[inline]
    pub(crate) fn burst_to(&mut self, to: &Peer, now: Instant) -> &mut Burst {
        let &Peer { address, sender, tx_icrc: icrc, .. } = to;
        if !self.outgoing.accepts(address, sender) {
            self.flush();
        }
        self.outgoing.burst_to(Destination { address, sender, icrc, now })
    }

    /// Sends the packets that wait to be sent.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if !self.outgoing.is_empty() {
            self.send_waiting();
        }
    }

    fn send_waiting(&mut self) {
        let PacketIo {
            address,
            senders,
            gso,
            outgoing,
            connected_socket,
            too_long,
            net,
            capture,
            ..
        } = self;
        let max_packets = if *gso && net.is_none() { MAX_SEGMENTS } else { 1 };
        let Some((destination, batches)) = outgoing.batches(max_packets) else { return };
        let Destination { address: to, sender: index, icrc, now } = destination;
        let sender = &mut senders[index];
        for batch in batches {
            // The unsent batches leave first.
            let has_unsent = !sender.unsent.is_empty();
            let mut via_connected = connected_socket
                .as_mut()
                .filter(|_| batch.is_single() && to == *address && !has_unsent);
            let Batch { octets, size } = batch;
            for (id, datagram) in (0..).zip(octets.chunks_mut(size)) {
                let id = match &mut via_connected {
                    Some(connected_socket) => connected_socket.seal(datagram),
                    None => {
                        icrc.seal(id, datagram);
                        id
                    }
                };
                if let Some(capture) = capture {
                    record(capture, now, Direction::Out, [sender.source, to], id, datagram);
                }
            }
            // Apart from a packet for which the socket has no room, a packet that cannot be sent
            // counts as lost. The protocol retransmits it.
            match (&mut *net, via_connected) {
                (Some(net), _) => {
                    let datagram = octets.to_vec();
                    net.send(now, InFlight { sender: index, to, datagram }, octets.len())
                }
                (None, Some(via_connected)) => {
                    if !via_connected.send(octets) {
                        *connected_socket = None;
                    }
                }
                (None, None) => {
                    if has_unsent || sender.send(to, octets, size, too_long) == Sent::NoRoom {
                        let octets = octets.to_vec();
                        sender.unsent.push(now, unsent_batches::Batch { to, octets, size });
                    }
                }
            }
        }
        outgoing.clear();
    }

    /// Sends the batches for which a socket had no room, if it is time to try again.
    pub(crate) fn send_unsent(&mut self, now: Instant) {
        for sender in &mut self.senders {
            if sender.unsent.is_empty() {
                continue;
            }
            let mut unsent = std::mem::take(&mut sender.unsent);
            unsent.retry(now, |&unsent_batches::Batch { to, ref octets, size }| {
                sender.send(to, octets, size, &mut self.too_long)
            });
            sender.unsent = unsent;
        }
    }

    /// Sends the batches for which a socket has no room, until `latest`. Call this before the
    /// sockets are closed. `wait_until` waits until a time, and returns the time at its end.
    pub(crate) fn drain_unsent(
        &mut self,
        latest: Instant,
        wait_until: impl Fn(&Self, Instant) -> Instant,
    ) {
        let due = |this: &Self| this.senders.iter().filter_map(|of| of.unsent.deadline()).min();
        while let Some(at) = due(self).filter(|&at| at < latest) {
            let now = wait_until(self, at);
            self.send_unsent(now);
        }
    }

    /// Whether packets from the peer's sender wait because its socket has no room. Queue pairs must
    /// not create requests then.
    #[inline]
    pub(crate) fn has_unsent(&self, to: &Peer) -> bool {
        !self.senders[to.sender].unsent.is_empty()
    }

    /// Whether a batch of any length may wait for the socket of the peer's sender.
    #[inline]
    pub(crate) fn has_room_for_unsent(&self, to: &Peer) -> bool {
        self.senders[to.sender].unsent.has_room()
    }

    /// The length of the longest IP packet that the path to a peer carries, if a router has
    /// reported that it could not forward a packet to the peer's queue pair `qpn`. Reports are
    /// often forged. `may_be_quoted` says whether the connection may have sent the packet with this
    /// PSN.
    #[cold]
    pub(crate) fn reported_path(
        &mut self,
        to: &Peer,
        qpn: u32,
        may_be_quoted: impl Fn(Psn) -> bool,
    ) -> Option<usize> {
        let sender = &mut self.senders[to.sender];
        sender.read_reports();
        sender.path_reports.path((to.address.ip(), qpn), may_be_quoted)
    }

    /// Whether [`take_too_long`](Self::take_too_long) would return packets.
    #[inline]
    pub(crate) fn has_too_long(&self) -> bool {
        !self.too_long.is_empty()
    }

    /// Returns packets that were too long for an interface of this host. Returns each packet once.
    pub(crate) fn take_too_long(&mut self) -> Vec<TooLong> {
        std::mem::take(&mut self.too_long)
    }

    /// Sends the packets that have passed the emulated network by now.
    pub(crate) fn send_due(&mut self, now: Instant) {
        let Some(net) = &mut self.net else { return };
        while let Some(InFlight { sender, to, datagram }) = net.receive(now) {
            self.senders[sender].send(to, &datagram, datagram.len(), &mut self.too_long);
        }
    }

    /// Sends all packets that are still in the emulated network.
    pub(crate) fn drain_network(&mut self) {
        while let Some(at) = self.net.as_ref().and_then(netem::Channel::deadline) {
            self.send_due(at);
        }
    }

    /// The time at which the emulated network delivers the next packet, or at which a sender tries
    /// again to send its unsent batches.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let of_net = self.net.as_ref().and_then(netem::Channel::deadline);
        let of_unsent = self.senders.iter().filter_map(|sender| sender.unsent.deadline());
        of_net.into_iter().chain(of_unsent).min()
    }

    /// Whether a capture records the packets.
    #[inline]
    pub(crate) fn is_captured(&self) -> bool {
        self.capture.is_some()
    }

    /// Records a received datagram in the capture.
    #[inline]
    pub(crate) fn capture_received(
        &self,
        now: Instant,
        from: SocketAddr,
        ip: Identification,
        datagram: &[u8],
    ) {
        if let Some(capture) = &self.capture {
            let Identification { id, dont_fragment } = ip;
            let (src, dst) = (from, self.address);
            capture.udp(
                now,
                Direction::In,
                &Datagram { src, dst, id, dont_fragment, payload: datagram },
            );
        }
    }
}

/// Returns the destination queue pair of a packet that has not been checked yet.
#[inline]
pub(crate) fn dest_qpn(packet: &[u8]) -> Option<u32> {
    let &[_, high, middle, low] = packet.get(4..)?.first_chunk()?;
    Some(u32::from_be_bytes([0, high, middle, low]))
}

/// Returns the PSN of a packet that has not been checked.
fn psn(packet: &[u8]) -> Option<Psn> {
    let &[high, middle, low] = packet.get(9..)?.first_chunk()?;
    Some(Psn::new(u32::from_be_bytes([0, high, middle, low])))
}

/// The length of the IP packet that carries a UDP payload of this length to a peer.
pub(crate) fn ip_packet_len(peer: IpAddr, payload: usize) -> usize {
    const UDP_HEADER: usize = 8;
    let ip_header = if peer.is_ipv4() { 20 } else { 40 };
    ip_header + UDP_HEADER + payload
}

/// The maximum number of packets that wait for [`PacketIo::take_too_long`]. Further ones are
/// dropped: the protocol sends them again, and the kernel refuses them again.
const TOO_LONG_MAX: usize = 256;

/// Records the packets of a batch that the kernel refused because they are longer than `mtu`, the
/// MTU of the interface. Only the last packet of a batch may be shorter than the others.
#[cold]
fn note_too_long(
    too_long: &mut Vec<TooLong>,
    to: SocketAddr,
    octets: &[u8],
    size: usize,
    mtu: usize,
) {
    for packet in octets.chunks(size.max(1)).filter(|packet| packet.len() == size) {
        if let Some((qpn, psn)) = dest_qpn(packet).zip(psn(packet))
            && too_long.len() < TOO_LONG_MAX
        {
            let (peer, octets) = (to.ip(), ip_packet_len(to.ip(), packet.len()));
            too_long.push(TooLong { peer, qpn, psn, octets, mtu });
        }
    }
}

#[cold]
fn record(
    capture: &Capture,
    now: Instant,
    direction: Direction,
    [src, dst]: [SocketAddr; 2],
    id: u16,
    payload: &[u8],
) {
    capture.udp(now, direction, &Datagram { src, dst, id, dont_fragment: true, payload });
}

#[cfg(test)]
mod tests;
