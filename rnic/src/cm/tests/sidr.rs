//! Managers of service ID resolution with a network between them. The test controls the clock.

mod findings;
mod hostile;
mod network;
mod replay;
mod resolve;

use netem::{Channel, Conditions};
use wire::cm::sidr_trailer::DatagramQp;
use wire::cm::{IpHeader, MAD_SIZE, Mad, Message, ServiceId, SidrRep, SidrReq, SidrStatus};

use super::{A, B, PORT, SECOND, address, padded, random};
use crate::cm::sidr::{Event, Resolve, ResolveId, Sidr};
use crate::cm::{CmError, LowBits, Transmit};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// The managers 2 and 3 share the addresses of A and B.
const A2: usize = 2;
const B2: usize = 3;
const CALLER: DatagramQp = DatagramQp { qpn: 0x00_1181, q_key: 0x8765_4321 };
const SERVICE: DatagramQp = DatagramQp { qpn: 0x00_2282, q_key: wire::cm::UDP_Q_KEY };

/// Two addresses, each with two managers.
struct Net {
    now: Instant,
    managers: [Sidr; 4],
    /// The channels that A and B send over.
    channels: [Channel<Transmit>; 2],
    /// All messages that were sent. Lost messages are among them.
    sent: Vec<Transmit>,
    /// The number of messages of either address that the network is about to lose.
    lose: [usize; 2],
}

impl Net {
    /// Makes a network that loses nothing and takes no time.
    fn new() -> Self {
        Self::over(Conditions::OFF)
    }

    fn over(conditions: Conditions) -> Self {
        let manager = |slot: u32| {
            let seed = conditions.seed ^ u64::from(slot);
            Sidr::new(LowBits { count: 7, value: slot }, random(seed))
        };
        let channel = |salt| {
            let seed = conditions.seed.wrapping_mul(31) + salt;
            Channel::new(Conditions { seed, ..conditions.clone() })
        };
        Net {
            now: Instant::now(),
            managers: [0, 1, 2, 3].map(manager),
            channels: [channel(1), channel(2)],
            sent: vec![],
            lose: [0; 2],
        }
    }

    /// A network in which B listens.
    fn listening(backlog: usize) -> Self {
        let mut net = Self::new();
        net.managers[B].listen(PORT, backlog).unwrap();
        net
    }

    /// Makes A call B.
    fn resolve(&mut self, private: &[u8]) -> ResolveId {
        self.resolve_with(|_| {}, private)
    }

    fn resolve_with(&mut self, change: impl FnOnce(&mut Resolve<'_>), private: &[u8]) -> ResolveId {
        let mut call = Resolve { private, ..call() };
        change(&mut call);
        self.managers[A].resolve(self.now, &call).unwrap()
    }

    /// Sends and delivers all messages that are due now.
    fn run(&mut self) {
        loop {
            for (at, manager) in self.managers.iter_mut().enumerate() {
                let side = at % 2;
                while let Some(transmit) = manager.poll_transmit() {
                    assert_eq!(transmit.from.is_ipv4(), transmit.to.is_ipv4());
                    self.sent.push(transmit);
                    match self.lose[side].checked_sub(1) {
                        Some(left) => self.lose[side] = left,
                        None => self.channels[side].send(self.now, transmit, 320),
                    }
                }
            }
            let arrivals = [A, B].map(|side| self.channels[side].receive(self.now));
            if arrivals.iter().all(Option::is_none) {
                return;
            }
            for (from, arrival) in arrivals.into_iter().enumerate() {
                if let Some(arrival) = arrival {
                    let mad = Mad::parse(&arrival.mad).unwrap();
                    let to = self.receiver(1 - from, arrival.from, &mad);
                    self.managers[to].receive(self.now, arrival.from, arrival.to, &mad);
                }
            }
        }
    }

    /// Finds the manager of an address that a message is for, as the process that receives the
    /// datagrams to QP 1 does.
    fn receiver(&self, side: usize, from: IpAddr, mad: &Mad<'_>) -> usize {
        match &mad.message {
            Message::SidrReq(req) => {
                let knows = |&at: &usize| self.managers[at].has_request(from, mad.transaction, req);
                let listens = if req.service == ServiceId::udp(PORT + 1) { side + 2 } else { side };
                [side, side + 2].into_iter().find(knows).unwrap_or(listens)
            }
            Message::SidrRep(rep) => rep.request_id as usize & 0x7F,
            other => panic!("{other:?}"),
        }
    }

    /// The next time at which a timer expires or a datagram arrives.
    fn deadline(&self) -> Option<Instant> {
        let managers = self.managers.iter().filter_map(Sidr::deadline);
        managers.chain(self.channels.iter().filter_map(Channel::deadline)).min()
    }

    /// Lets time pass.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.run();
        while let Some(due) = self.deadline().filter(|&due| due <= end) {
            self.now = self.now.max(due);
            for manager in &mut self.managers {
                manager.expire(self.now);
            }
            self.run();
        }
        self.now = end;
    }

    fn events(&mut self, at: usize) -> Vec<(ResolveId, Event)> {
        std::iter::from_fn(|| self.managers[at].poll_event()).collect()
    }

    /// The only event of a manager.
    fn event(&mut self, at: usize) -> (ResolveId, Event) {
        match &self.events(at)[..] {
            [event] => event.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn accept(&mut self, id: ResolveId, private: &[u8]) {
        self.managers[B].accept(self.now, id, SERVICE, private).unwrap();
    }

    /// Delivers a message to a manager.
    fn deliver(&mut self, at: usize, from: IpAddr, transaction: u64, message: Message<'_>) {
        let mad = Mad { transaction, message }.emit();
        let mad = Mad::parse(&mad).unwrap();
        self.managers[at].receive(self.now, from, address(at % 2), &mad);
    }

    /// The messages of a manager that wait to be sent.
    fn transmits(&mut self, at: usize) -> Vec<Transmit> {
        std::iter::from_fn(|| self.managers[at].poll_transmit()).collect()
    }
}

fn call() -> Resolve<'static> {
    Resolve {
        local: SocketAddr::new(address(A), 40_000),
        remote: SocketAddr::new(address(B), PORT),
        caller: CALLER,
        private: b"",
        deadline: None,
    }
}

/// A SIDR REQ of the address `from` to B, as Linux sends it. `field` is the private data with the
/// header of IP connections.
fn kernel_req(request_id: u32, field: &[u8]) -> Message<'_> {
    let service = ServiceId::udp(PORT);
    Message::SidrReq(SidrReq { request_id, p_key: 0xFFFF, service, private: field })
}

/// The private data of a SIDR REQ of the address `from` to B.
fn field(from: IpAddr, private: &[u8]) -> Vec<u8> {
    let header = IpHeader { source_port: 40_001, source: from, destination: address(B) };
    [&header.emit()[..], private].concat()
}

/// A SIDR REP that answers the REQ of A, as Linux sends it.
fn kernel_rep<'a>(id: ResolveId, status: SidrStatus, private: &'a [u8]) -> SidrRep<'a> {
    let DatagramQp { qpn, q_key } = match status {
        SidrStatus::SUCCESS => SERVICE,
        _ => DatagramQp { qpn: 0, q_key: 0 },
    };
    let service = ServiceId::udp(PORT);
    SidrRep { request_id: id.0, status, qpn, service, q_key, info: &[], private }
}

fn transaction(mad: &[u8; MAD_SIZE]) -> u64 {
    Mad::parse(mad).unwrap().transaction
}

fn is_req(transmit: &Transmit) -> bool {
    matches!(Mad::parse(&transmit.mad).unwrap().message, Message::SidrReq(_))
}

fn request(private: &[u8]) -> Event {
    let Resolve { local: from, remote: to, .. } = call();
    Event::Request { from, to, private: private.to_vec(), caller: Some(CALLER) }
}

fn resolved(private: &[u8]) -> Event {
    resolved_by(true, private)
}

/// The event of an attempt that such a service has answered.
fn resolved_by(knows_caller: bool, private: &[u8]) -> Event {
    Event::Resolved { service: SERVICE, private: private.to_vec(), knows_caller }
}

fn refused(status: SidrStatus, private: &[u8]) -> Event {
    Event::Refused { status, private: private.to_vec() }
}
