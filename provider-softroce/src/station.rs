//! An address in use: its share of the port, its line, its connection manager, its queue pairs' numbers.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use adapter::{Table, netdev};
use netem::Conditions;
use rnic::cm::{Cfg, Cm, ConnId};
use rnic::rc::Burst;
use wire::cm::{Dreq, MAD_SIZE, Mad, Message, Req, Timeout};
use wire::rocev2::{Bth, Deth, Extension, Opcode, Packet, Psn, packet_len};

use crate::calls::RequestId;
use crate::hosts::Hosts;
use crate::line::{Line, Peer};
use crate::params::Params;
use crate::port::{Lifeline, Port, PortError, UDP_PORT};
use crate::read_pacing::ReadPacing;
use crate::route::Route;
use crate::scout::Scout;
use crate::selftest;
use crate::socket::Habits;

/// How long a peer may take to answer a message of the connection manager before it is repeated: 2^17 · 4.096
/// µs. Kernels say eight times as much; a lost message then costs seconds.
const RESPONSE_TIMEOUT: Timeout = Timeout::new(17);
/// How long such a message is under way at most: 67 ms.
const PACKET_LIFETIME: Timeout = Timeout::new(14);

/// How long a connection is kept whose peer does not answer, if the peer's host lives and has the port open:
/// a process that is stopped, or a network that loses one direction. If the peer is on this host, the
/// connection is kept for as long as the peer's process lives.
pub(crate) const OUTAGE: Duration = Duration::from_secs(12);

/// An address in use.
pub(crate) struct Station {
    pub(crate) port: Port,
    pub(crate) line: Line,
    /// None: there is no descriptor left, and what ends elsewhere is noticed later.
    pub(crate) scout: Option<Scout>,
    pub(crate) cm: Cm,
    pub(crate) owners: HashMap<ConnId, Owner>,
    pub(crate) qpns: Qpns,
    /// Adapters of this host that its queue pairs have connections with.
    pub(crate) neighbours: Table<Neighbour>,
    /// What has come of late.
    pub(crate) habits: Habits,
    /// When the engine reads the door.
    pub(crate) door_pacing: ReadPacing,
    /// What is known of peers' hosts.
    pub(crate) hosts: Hosts,
    /// [`Params::timeout`], which connections of this address have.
    pub(crate) timeout: Option<Timeout>,
    /// [`Params::retries`], likewise.
    pub(crate) retries: Option<u8>,
    /// Looks at the socket that found something.
    pub(crate) good_looks: u32,
    /// The socket has left the poller, since consumers look at it all the time.
    pub(crate) is_absent: bool,
}

/// Another adapter of this host.
pub(crate) struct Neighbour {
    pub(crate) address: IpAddr,
    pub(crate) slot: u8,
    pub(crate) line: Lifeline,
}

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A queue pair's.
    Link(usize),
    /// A request's that nobody has answered.
    Call(RequestId),
}

impl Station {
    /// Begins to use an address; `patience` as [`Port::open`] has it.
    pub(crate) fn open(
        (address, patience): (SocketAddr, Duration),
        guid: u64,
        params: &Params,
        capture: Option<capture::Capture>,
    ) -> Result<Self, PortError> {
        let port = Port::open(address, patience)?;
        let address = port.address();
        let gso = match (params.gso, address) {
            (Some(gso), _) => gso,
            // Nothing in IPv6's header depends on it.
            (None, SocketAddr::V6(_)) => true,
            (None, SocketAddr::V4(_)) => selftest::batches_are_as_they_should(address),
        };
        let mtu = Route::mtu_of(address);
        let loopback = Route::to(address, None).map_or(mtu, |route| route.mtu);
        let cfg = Cfg {
            path_mtu: mtu.min(params.mtu),
            loopback_path_mtu: loopback.min(params.mtu),
            response_timeout: RESPONSE_TIMEOUT,
            packet_lifetime: PACKET_LIFETIME,
            ..Cfg::new(port.slot(), guid)
        };
        let slot = port.slot();
        // Other stations, and other adapters, lose other packets.
        let seed = params.conditions.seed.wrapping_add(u64::from(slot));
        let conditions = Conditions { seed, ..params.conditions.clone() };
        let system = |error| PortError::of_sender(address.ip(), error);
        let line = Line::new(address, gso, &conditions, capture).map_err(system)?;
        let owners = HashMap::new();
        Ok(Station {
            port,
            line,
            scout: Scout::new(address).ok(),
            cm: Cm::new(cfg, Box::new(random)),
            owners,
            qpns: Qpns::new(slot),
            neighbours: Table::new(),
            habits: Habits::default(),
            door_pacing: ReadPacing::default(),
            hosts: Hosts::default(),
            timeout: params.timeout,
            retries: params.retries,
            good_looks: 0,
            is_absent: false,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Sends the packets of a burst to a peer, and empties it.
    #[inline]
    pub(crate) fn send(&mut self, to: &Peer, burst: &mut Burst, now: Instant) {
        if !burst.is_empty() {
            self.line.send(to, burst, now);
        }
    }

    /// Sends what the connection manager has to say.
    pub(crate) fn send_messages(&mut self, burst: &mut Burst, now: Instant) {
        while let Some(message) = self.cm.poll_transmit() {
            let Some(peer) = self.peer(message.to) else { continue };
            burst.clear();
            if let Some(place) = burst.push(packet_len(Opcode::DatagramSendOnly, MAD_SIZE)) {
                datagram(&message.mad, self.qpns.next_gsi_psn()).emit(place);
                self.send(&peer, burst, now);
            }
            let said = Mad::parse(&message.mad).map(|mad| mad.message);
            if let Ok(Message::Req(Req { local_id, .. }) | Message::Dreq(Dreq { local_id, .. })) =
                said
            {
                self.probe_port(peer.address, ConnId(local_id), GSI);
            }
        }
    }

    /// Asks a host whether nobody there has the port, for a connection with this queue pair.
    pub(crate) fn probe_port(&self, host: SocketAddr, id: ConnId, qpn: u32) {
        // This address is ours.
        if let Some(scout) = self.scout.as_ref().filter(|_| host != self.address()) {
            scout.probe_port(host, id, qpn);
        }
    }

    /// A peer at this address; none: it is of the other family.
    pub(crate) fn peer(&self, ip: IpAddr) -> Option<Peer> {
        Peer::new(self.line.source(), self.address(), self.far(ip))
    }

    /// Whether a peer lives that has not answered for so long.
    pub(crate) fn lives(&self, peer: (IpAddr, u8), quiet: Duration, now: Instant) -> bool {
        let is_neighbour = self.neighbours.iter().any(|of| (of.address, of.slot) == peer);
        is_neighbour || quiet < OUTAGE && self.hosts.lives(peer.0, now)
    }

    /// Asks whether a peer's host lives, whoever has the port there.
    pub(crate) fn probe_host(&mut self, host: SocketAddr, now: Instant) {
        if let Some(scout) = &self.scout
            && let Some(word) = self.hosts.word_to_ask(host.ip(), now, random)
        {
            scout.probe_host(host, word);
        }
    }

    /// The address of a peer, with its UDP port, and the scope that ours has.
    pub(crate) fn far(&self, ip: IpAddr) -> SocketAddr {
        let mut far = SocketAddr::new(ip, UDP_PORT);
        if let (SocketAddr::V6(far), SocketAddr::V6(near)) = (&mut far, self.address())
            && far.ip().is_unicast_link_local()
        {
            far.set_scope_id(near.scope_id());
        }
        far
    }

    /// Sees to it that the end of a peer's process is noticed if it is on this host. False: it has ended already.
    pub(crate) fn look_after(
        &mut self,
        peer: SocketAddr,
        slot: u8,
        watch: impl FnOnce(usize, &Lifeline),
    ) -> bool {
        let indices: Vec<usize> = self.neighbours.indices().collect();
        let mut known = indices
            .into_iter()
            .filter_map(|index| self.neighbours.get_mut(index).map(|n| (n.address, n.slot)));
        if known.any(|known| known == (peer.ip(), slot)) {
            return true;
        }
        match self.port.lifeline(peer, slot) {
            // Another program of this user may take the name of an adapter that is elsewhere.
            Ok(_) if !netdev::is_own(peer.ip()) => true,
            Ok(line) => {
                watch(self.neighbours.next_index(), &line);
                self.neighbours.insert(Neighbour { address: peer.ip(), slot, line });
                true
            }
            // Whoever has this address has it with us.
            Err(error) => {
                error.kind() != io::ErrorKind::ConnectionRefused || peer.ip() != self.address().ip()
            }
        }
    }

    /// The earliest deadline of its parts.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let Station { cm, line, port, door_pacing, .. } = self;
        let all = [cm.deadline(), line.deadline(), port.deadline(), door_pacing.deadline()];
        all.into_iter().flatten().min()
    }
}

/// A message of connection management, as a packet.
pub(crate) fn datagram(mad: &[u8; MAD_SIZE], psn: u32) -> Packet<'_> {
    let mut bth = Bth::new(Opcode::DatagramSendOnly, GSI, Psn::new(psn));
    bth.migrated = true;
    let deth = Deth { q_key: Deth::GSI_Q_KEY, source_qpn: GSI };
    Packet { bth, extension: Extension::Deth(deth), payload: mad }
}

/// The queue pair of connection management, in every adapter.
pub(crate) const GSI: u32 = 1;

/// Numbers of queue pairs: the low bits are the slot, the others are random, since whoever would forge a
/// packet has to guess them. A number is not used again for long: a peer of an earlier connection may still
/// believe in it.
pub(crate) struct Qpns {
    slot: u8,
    gsi_psn: u32,
    /// Those in use, and those that nothing may use yet (`None`).
    used: HashMap<u32, Option<usize>>,
    /// Those that were released last, the oldest first.
    recent: VecDeque<u32>,
    last: (u32, usize),
}

const SLOT_BITS: u32 = 7;
/// Numbers that are not used again yet.
const RECENT: usize = 1024;

impl Qpns {
    fn new(slot: u8) -> Self {
        Qpns {
            slot,
            gsi_psn: random() as u32,
            used: HashMap::new(),
            recent: VecDeque::new(),
            last: (u32::MAX, 0),
        }
    }

    /// A number for a queue pair; `None`: there are none left.
    pub(crate) fn assign(&mut self, link: usize) -> Option<u32> {
        const NUMBERS: u32 = 1 << (24 - SLOT_BITS);
        let start = random() as u32 % NUMBERS;
        // As a rule the first one is free.
        for number in (start..NUMBERS).chain(0..start) {
            let qpn = number << SLOT_BITS | u32::from(self.slot);
            // 0 and 1 are special, and the last one means all that take part in a multicast.
            let is_special = number == 0 || number == NUMBERS - 1;
            if !is_special && !self.used.contains_key(&qpn) && !self.recent.contains(&qpn) {
                self.used.insert(qpn, Some(link));
                return Some(qpn);
            }
        }
        None
    }

    /// The queue pair of a number.
    #[inline]
    pub(crate) fn find(&mut self, qpn: u32) -> Option<usize> {
        if self.last.0 != qpn {
            self.last = (qpn, self.used.get(&qpn).copied().flatten()?);
        }
        Some(self.last.1)
    }

    /// Whether any are in use.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.used.is_empty()
    }

    /// The queue pair is gone; the number is kept until it is released.
    pub(crate) fn retire(&mut self, qpn: u32) {
        if let Some(link) = self.used.get_mut(&qpn) {
            *link = None;
        }
        self.last.0 = u32::MAX;
    }

    /// The number may be used again.
    pub(crate) fn release(&mut self, qpn: u32) {
        if self.used.remove(&qpn).is_some() {
            if self.recent.len() >= RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(qpn);
        }
        self.last.0 = u32::MAX;
    }

    fn next_gsi_psn(&mut self) -> u32 {
        self.gsi_psn = self.gsi_psn.wrapping_add(1);
        self.gsi_psn & 0xff_ffff
    }
}

/// A number of the system's generator.
pub(crate) fn random() -> u64 {
    let mut octets = [0; 8];
    // So few octets come at once or, right after the start of the system, later: never in part.
    while rustix::rand::getrandom(&mut octets, rustix::rand::GetRandomFlags::empty())
        != Ok(octets.len())
    {}
    u64::from_ne_bytes(octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{self, MORE_PATIENCE};

    #[test]
    fn numbers_have_the_slot_and_are_not_used_again_soon() {
        let mut qpns = Qpns::new(0x55);
        let numbers: Vec<u32> = (0..1000).map(|link| qpns.assign(link).expect("enough")).collect();
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
    fn the_name_of_an_adapter_elsewhere_says_nothing() {
        let params = Params::parse("", |_| None).expect("the defaults");
        // That no other run of this test uses.
        let [.., high, low] = std::process::id().to_be_bytes();
        let own = |n: u8| SocketAddr::from(([127, 80 + n, high, low.max(1)], 0));
        let mut station = Station::open((own(0), MORE_PATIENCE), 1, &params, None).expect("free");
        let elsewhere = SocketAddr::from(([10, 80, high, low], UDP_PORT));
        let _taken = port::pretend(elsewhere, 5);
        assert!(station.look_after(elsewhere, 5, |_, _| panic!("it is believed")));
        let neighbour = Port::open(own(1), MORE_PATIENCE).expect("free");
        let mut is_watched = false;
        assert!(
            station.look_after(neighbour.address(), neighbour.slot(), |_, _| is_watched = true)
        );
        assert!(is_watched);
    }

    #[test]
    fn numbers_can_run_out() {
        let mut qpns = Qpns::new(0);
        let n = (0..).take_while(|&link| qpns.assign(link).is_some()).count();
        assert_eq!(n, (1 << 17) - 2);
    }
}
