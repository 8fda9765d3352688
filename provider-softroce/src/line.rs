//! Packets on their way out: the socket that they leave from, their ICRC, batches, the emulated network; and
//! what is checked of those that come.
//!
//! They do not leave from port 4791, but from one that the system has picked at random: together with a connection's
//! numbers it has to be guessed by whoever would forge a packet, and no other user of this host can send from it.

use std::io;
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
    /// Where peers send to.
    address: SocketAddr,
    sender: Udp,
    /// Where all packets come from.
    source: SocketAddr,
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
    /// One of them was right: no others will come from elsewhere.
    source_is_known: bool,
    /// The peer counts its packets, as kernels do: the number expected next. None: it is as ours, see
    /// [`crate::socket`].
    next_id: Option<u16>,
}

impl Peer {
    /// `source`: where our packets come from, `ours`: where its packets go. None: it is of the other family.
    pub(crate) fn new(source: SocketAddr, ours: SocketAddr, address: SocketAddr) -> Option<Self> {
        let (there, here) = (Icrc::new(source, address)?, Icrc::new(address, ours)?);
        Some(Peer { address, there, source: address, here, source_is_known: false, next_id: None })
    }

    /// Whether a packet from there can be one of the peer's.
    #[inline]
    pub(crate) fn may_send_from(&self, from: SocketAddr) -> bool {
        from == self.source || !self.source_is_known && from.ip() == self.address.ip()
    }

    /// Whether it is not known yet where its packets come from.
    #[inline]
    pub(crate) fn is_new(&self) -> bool {
        !self.source_is_known
    }

    /// A right packet has come from there, and so all others will.
    pub(crate) fn comes_from(&mut self, ours: SocketAddr, from: SocketAddr) {
        if let Some(here) = Icrc::new(from, ours) {
            (self.source, self.here, self.source_is_known) = (from, here, true);
        }
    }

    /// Checks a datagram from where it [may send from](Self::may_send_from), the `place`-th of a batch, and
    /// gives the packet in it.
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
    ) -> io::Result<Self> {
        let net = (!conditions.is_off()).then(|| netem::Link::new(conditions.clone()));
        let mut any = address;
        any.set_port(0);
        let sender = Udp::bind_to_send(any, address)?;
        let source = sender.local_addr()?;
        Ok(Line { address, sender, source, gso, express: None, net, capture })
    }

    /// Where its packets come from.
    pub(crate) fn source(&self) -> SocketAddr {
        self.source
    }

    /// There is a connection with this peer.
    pub(crate) fn expect(&mut self, peer: SocketAddr) {
        if peer == self.address && self.express.is_none() && self.gso && self.net.is_none() {
            self.express = Express::new(self.source, peer);
        }
    }

    /// Sends the packets of a burst to a peer, and empties it.
    pub(crate) fn send(&mut self, to: &Peer, burst: &mut Burst, now: Instant) {
        let (mut first, mut from) = (0, 0);
        while let Some(&size) = burst.lens().get(first) {
            let size = usize::from(size);
            let (packets, octets) = self.run(&burst.lens()[first..]);
            let run = &mut burst.bytes_mut()[from..from + octets];
            let mut express =
                self.express.as_mut().filter(|_| packets == 1 && to.address == self.address);
            for (id, datagram) in (0..).zip(run.chunks_mut(size)) {
                let id = match &mut express {
                    Some(express) => express.seal(datagram),
                    None => {
                        to.there.seal(id, datagram);
                        id
                    }
                };
                if let Some(capture) = &self.capture {
                    record(capture, now, Direction::Out, [self.source, to.address], id, datagram);
                }
            }
            // What does not leave is as good as lost, and is sent again in its time.
            match (&mut self.net, express) {
                (Some(net), _) => {
                    net.send(now, Flying { to: to.address, datagram: run.to_vec() }, octets)
                }
                (None, Some(express)) => {
                    if !express.send(run) {
                        self.express = None;
                    }
                }
                (None, None) => {
                    self.sender.send(to.address, run, size);
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
    pub(crate) fn go_on(&mut self, now: Instant) {
        let Some(net) = &mut self.net else { return };
        while let Some(Flying { to, datagram }) = net.receive(now) {
            self.sender.send(to, &datagram, datagram.len());
        }
    }

    /// Sends all that is in the emulated network.
    pub(crate) fn flush(&mut self) {
        while let Some(at) = self.deadline() {
            self.go_on(at);
        }
    }

    /// When to do so next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.net.as_ref().and_then(netem::Link::deadline)
    }

    /// Whether a capture records what comes.
    #[inline]
    pub(crate) fn is_captured(&self) -> bool {
        self.capture.is_some()
    }

    /// Writes down a datagram that has come.
    #[inline]
    pub(crate) fn received(
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
