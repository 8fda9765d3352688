//! Sends packets through the socket or the emulated network, with their ICRC and in batches. Checks
//! received packets.
//!
//! Packets are not sent from port 4791, but from a port that the system has chosen at random. An
//! attacker who forges a packet must guess that port in addition to the numbers of the connection,
//! and no other user of this host can send from it.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use capture::{Capture, Datagram, Direction};
use netem::Conditions;
use rnic::rc::Burst;
use wire::rocev2::{Icrc, Identification};

use crate::connected_socket::ConnectedSocket;
use crate::outgoing::{Batch, Destination, Outgoing};
use crate::socket::{MAX_SEGMENTS, Udp};

/// The packet I/O of a local address, between the engine and its socket.
pub(crate) struct PacketIo {
    /// The address to which peers send.
    address: SocketAddr,
    sender: Udp,
    /// A socket that reserves the port of `source`, so that no other user of the host can send from
    /// that port.
    _port_reservation: Udp,
    /// The source address of all packets.
    source: SocketAddr,
    /// Whether the kernel splits a batch into packets (UDP_SEGMENT), so that one call sends the
    /// batch.
    gso: bool,
    /// The packets that wait to be sent.
    outgoing: Outgoing,
    /// The connected socket, which is a faster path to peers at this adapter's own address. `None`
    /// if it is not in use.
    connected_socket: Option<ConnectedSocket>,
    net: Option<netem::Link<InFlight>>,
    capture: Option<Capture>,
}

/// A packet in the emulated network.
#[derive(Clone)]
struct InFlight {
    to: SocketAddr,
    datagram: Vec<u8>,
}

/// The addresses and checksums of a peer.
pub(crate) struct Peer {
    /// The address of the peer, with the UDP port.
    pub(crate) address: SocketAddr,
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
    /// Creates a peer. `source` is the source address of packets to the peer, and `ours` is the
    /// destination address of packets from the peer. Returns `None` if `address`, the peer's
    /// address, is not of the same family.
    pub(crate) fn new(source: SocketAddr, ours: SocketAddr, address: SocketAddr) -> Option<Self> {
        let (tx_icrc, rx_icrc) = (Icrc::new(source, address)?, Icrc::new(address, ours)?);
        Some(Peer {
            address,
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
        conditions: &Conditions,
        capture: Option<Capture>,
    ) -> io::Result<Self> {
        let net = (!conditions.is_off()).then(|| netem::Link::new(conditions.clone()));
        let (port_reservation, port) = Udp::reserve_port()?;
        let mut source = address;
        source.set_port(port);
        let sender = Udp::bind_send_only(source, address)?;
        Ok(PacketIo {
            address,
            sender,
            _port_reservation: port_reservation,
            source,
            gso,
            outgoing: Outgoing::new(),
            connected_socket: None,
            net,
            capture,
        })
    }

    /// Whether packets pass the emulated network.
    pub(crate) fn has_emulated_network(&self) -> bool {
        self.net.is_some()
    }

    /// The source address of this side's packets.
    pub(crate) fn source(&self) -> SocketAddr {
        self.source
    }

    /// Prepares for a connection with this peer. If the peer is at the same address, opens the
    /// connected socket.
    pub(crate) fn prepare_connected_socket(&mut self, peer: SocketAddr) {
        if peer == self.address && self.connected_socket.is_none() && self.gso && self.net.is_none()
        {
            self.connected_socket = ConnectedSocket::new(self.source, peer);
        }
    }

    /// Returns the burst of the packets that wait to be sent to a peer. The caller may add packets
    /// to it, which leave with the next [`flush`](Self::flush). If the waiting packets are for
    /// another peer, or if the burst has no room for a packet, they are sent now.
    #[inline]
    pub(crate) fn burst_to(&mut self, to: &Peer, now: Instant) -> &mut Burst {
        if !self.outgoing.accepts(to.address) {
            self.flush();
        }
        self.outgoing.burst_to(Destination { address: to.address, icrc: to.tx_icrc, now })
    }

    /// Sends the packets that wait to be sent.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if !self.outgoing.is_empty() {
            self.send_waiting();
        }
    }

    fn send_waiting(&mut self) {
        let PacketIo { outgoing, connected_socket, net, capture, .. } = self;
        let max_packets = if self.gso && net.is_none() { MAX_SEGMENTS } else { 1 };
        let Some((destination, batches)) = outgoing.batches(max_packets) else { return };
        let Destination { address: to, icrc, now } = destination;
        for batch in batches {
            let mut via_connected =
                connected_socket.as_mut().filter(|_| batch.is_single() && to == self.address);
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
                    record(capture, now, Direction::Out, [self.source, to], id, datagram);
                }
            }
            // A packet that cannot be sent counts as lost. The protocol retransmits it.
            match (&mut *net, via_connected) {
                (Some(net), _) => {
                    net.send(now, InFlight { to, datagram: octets.to_vec() }, octets.len())
                }
                (None, Some(via_connected)) => {
                    if !via_connected.send(octets) {
                        *connected_socket = None;
                    }
                }
                (None, None) => {
                    self.sender.send(to, octets, size);
                }
            }
        }
        outgoing.clear();
    }

    /// Sends the packets that have passed the emulated network by now.
    pub(crate) fn send_due(&mut self, now: Instant) {
        let Some(net) = &mut self.net else { return };
        while let Some(InFlight { to, datagram }) = net.receive(now) {
            self.sender.send(to, &datagram, datagram.len());
        }
    }

    /// Sends all packets that are still in the emulated network.
    pub(crate) fn drain_network(&mut self) {
        while let Some(at) = self.deadline() {
            self.send_due(at);
        }
    }

    /// The time at which the emulated network delivers the next packet.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.net.as_ref().and_then(netem::Link::deadline)
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
mod tests {
    use super::*;

    /// A sender without segmentation offload splits a batch, and the packets arrive one by one.
    #[test]
    fn identifications_go_on_from_one_queue_pair_to_the_next() {
        let address = |last| SocketAddr::from(([192, 0, 2, last], 4791));
        let (ours, source) = (address(1), address(2));
        let peer = || Peer::new(ours, ours, source).expect("addresses of one family");
        let (mut first, mut second, mut last) = (peer(), peer(), LastSource::default());
        let icrc = Icrc::new(source, ours).expect("addresses of one family");
        let mut check = |peer: &mut Peer, id, expected| {
            let mut datagram = [7; 80];
            icrc.seal(id, &mut datagram);
            assert_eq!(peer.expected_id(&last, source, 0), expected);
            let (_, ip) = peer.check(ours, source, 0, &datagram, &mut last).expect("a valid ICRC");
            assert_eq!(ip, Identification::unfragmented(id));
        };
        check(&mut first, 0, 0);
        check(&mut second, 1, 0);
        check(&mut first, 2, 2);
        check(&mut second, 3, 3);
        check(&mut second, 0, 4);
        assert_eq!(first.expected_id(&last, address(3), 0), 3, "another source");
    }
}
