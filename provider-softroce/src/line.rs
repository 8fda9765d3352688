//! Packets to and from a socket: their ICRC, batches, the emulated network, captures.

use std::net::SocketAddr;
use std::time::Instant;

use capture::{Capture, Datagram, Direction};
use netem::Conditions;
use rnic::rc::Burst;
use wire::rocev2::{Icrc, Identification};

use crate::express::Express;
use crate::socket::{MAX_BATCH, MAX_SEGMENTS, Udp};

/// What is between an address's engine and its socket.
pub(crate) struct Line {
    address: SocketAddr,
    /// Whether batches leave with one call.
    gso: bool,
    /// The quicker way to this very address, once there is a peer.
    express: Option<Express>,
    net: Option<netem::Link<Flying>>,
    capture: Option<Capture>,
}

/// A packet in the emulated network.
#[derive(Clone)]
struct Flying {
    to: SocketAddr,
    datagram: Vec<u8>,
}

/// The other end of some packets.
pub(crate) struct Peer {
    /// Where they go, with UDP port.
    pub(crate) address: SocketAddr,
    /// Of packets to there.
    there: Icrc,
    /// Where the last ones came from, and the checksum of such packets. Each queue pair may have a port of its own.
    source: SocketAddr,
    here: Icrc,
    /// The peer counts its packets, as kernels do: the number expected next. None: it is as ours, see [`crate::socket`].
    next_id: Option<u16>,
}

impl Peer {
    /// None: it is of the other family.
    pub(crate) fn new(ours: SocketAddr, address: SocketAddr) -> Option<Self> {
        let (there, here) = (Icrc::new(ours, address)?, Icrc::new(address, ours)?);
        Some(Peer { address, there, source: address, here, next_id: None })
    }

    /// Checks a datagram of its, the `place`-th of a batch, and gives the packet in it.
    #[inline]
    pub(crate) fn check<'a>(
        &mut self,
        ours: SocketAddr,
        from: SocketAddr,
        place: usize,
        datagram: &'a [u8],
    ) -> Option<(&'a [u8], Identification)> {
        if from != self.source {
            (self.source, self.here) = (from, Icrc::new(from, ours)?);
        }
        let expected = self.next_id.unwrap_or(place as u16);
        let (packet, id) = self.here.recover(expected, datagram).ok()?;
        self.next_id = match id.id {
            id if id == place as u16 => None,
            id => Some(id.wrapping_add(1)),
        };
        Some((packet, id))
    }
}

/// Checks the datagram of a stranger.
pub(crate) fn check_strangers(
    ours: SocketAddr,
    from: SocketAddr,
    place: usize,
    datagram: &[u8],
) -> Option<(&[u8], Identification)> {
    Icrc::new(from, ours)?.recover(place as u16, datagram).ok()
}

impl Line {
    pub(crate) fn new(
        address: SocketAddr,
        gso: bool,
        conditions: &Conditions,
        capture: Option<Capture>,
    ) -> Self {
        let net = (!conditions.is_off()).then(|| netem::Link::new(conditions.clone()));
        Line { address, gso, express: None, net, capture }
    }

    /// There is a connection with this peer.
    pub(crate) fn expect(&mut self, peer: SocketAddr) {
        if peer == self.address && self.express.is_none() && self.gso && self.net.is_none() {
            self.express = Express::to(peer);
        }
    }

    /// Sends the packets of a burst to a peer, and empties it.
    pub(crate) fn send(&mut self, socket: &Udp, to: &Peer, burst: &mut Burst, now: Instant) {
        let (mut first, mut from) = (0, 0);
        while let Some(&size) = burst.lens().get(first) {
            let size = usize::from(size);
            let (packets, octets) = self.run(&burst.lens()[first..]);
            let run = &mut burst.bytes_mut()[from..from + octets];
            let mut express = self.express.as_mut().filter(|_| packets == 1 && to.address == self.address);
            let source = express.as_ref().map_or(self.address, |express| express.from());
            for (id, datagram) in (0..).zip(run.chunks_mut(size)) {
                let id = match &mut express {
                    Some(express) => express.seal(datagram),
                    None => {
                        to.there.seal(id, datagram);
                        id
                    }
                };
                if let Some(capture) = &self.capture {
                    record(capture, now, Direction::Out, [source, to.address], id, datagram);
                }
            }
            // What does not leave is as good as lost, and is sent again in its time.
            match (&mut self.net, express) {
                (Some(net), _) => net.send(now, Flying { to: to.address, datagram: run.to_vec() }, octets),
                (None, Some(express)) => {
                    if !express.send(run) {
                        self.express = None;
                    }
                }
                (None, None) => {
                    socket.send(to.address, run, size);
                }
            }
            (first, from) = (first + packets, from + octets);
        }
        burst.clear();
    }

    /// How many packets leave together, and their octets: of equal length, but for the last which may be shorter.
    fn run(&self, lens: &[u16]) -> (usize, usize) {
        let size = lens[0];
        let most = if self.gso && self.net.is_none() { MAX_SEGMENTS } else { 1 };
        let (mut packets, mut octets) = (0, 0);
        for &len in lens.iter().take(most) {
            if len > size || octets + usize::from(len) > MAX_BATCH {
                break;
            }
            packets += 1;
            octets += usize::from(len);
            if len < size {
                break;
            }
        }
        (packets, octets)
    }

    /// Sends what has come through the emulated network.
    pub(crate) fn go_on(&mut self, socket: &Udp, now: Instant) {
        let Some(net) = &mut self.net else { return };
        while let Some(Flying { to, datagram }) = net.receive(now) {
            socket.send(to, &datagram, datagram.len());
        }
    }

    /// Sends all that is in the emulated network.
    pub(crate) fn flush(&mut self, socket: &Udp) {
        while let Some(at) = self.deadline() {
            self.go_on(socket, at);
        }
    }

    /// When to do so next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.net.as_ref().and_then(netem::Link::deadline)
    }

    /// Writes down a datagram that has come.
    #[inline]
    pub(crate) fn received(&self, now: Instant, from: SocketAddr, ip: Identification, datagram: &[u8]) {
        if let Some(capture) = &self.capture {
            let Identification { id, dont_fragment } = ip;
            let (src, dst) = (from, self.address);
            capture.udp(now, Direction::In, &Datagram { src, dst, id, dont_fragment, payload: datagram });
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
