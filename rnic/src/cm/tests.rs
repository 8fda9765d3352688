//! Two [`Cm`]s with a network between them. The test controls the clock.

mod close;
mod floods;
mod forged;
mod hand_over;
mod many;
mod network;
mod rare;
mod repeat;
mod replay;
mod setup;
mod sidr;

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use netem::{Channel, Conditions};
use wire::cm::{Mad, Message, Reason, Timeout};
use wire::rocev2::{PathMtu, Psn};

use super::state::State;
use super::*;
use crate::tests::Rng;

/// The active side and the passive side.
const A: usize = 0;
const B: usize = 1;
/// A second manager of the passive side, with the address of B. It has no listener.
const C: usize = 2;
const PORT: u16 = 7174;
const SECOND: Duration = Duration::from_secs(1);

/// Random numbers that are the same in each run.
fn random(seed: u64) -> Random {
    let mut rng = Rng(seed);
    Box::new(move || rng.next())
}

/// Two adapters.
struct Pair {
    now: Instant,
    cms: [Cm; 3],
    /// The channels that A and B send over.
    channels: [Channel<Transmit>; 2],
    /// The messages that were sent, each as the letter of the sender and the name of the message.
    /// Lost messages are in parentheses.
    log: Vec<String>,
    /// The names of messages to lose. Each entry makes the network lose one message.
    lose: Vec<&'static str>,
    /// Whether the programs have requests in flight when their peer disconnects. If false, `Pair`
    /// answers the DREQ for them at once.
    busy: bool,
}

impl Pair {
    /// Makes a pair over a network that loses nothing and takes no time.
    fn new() -> Self {
        Self::over(Conditions::OFF)
    }

    fn over(conditions: Conditions) -> Self {
        let cm = |slot: u8| {
            let seed = conditions.seed ^ u64::from(slot);
            let low_bits = LowBits { count: 7, value: slot.into() };
            let cfg = Cfg { low_bits, ..Cfg::new(0xA0 + u64::from(slot)) };
            Cm::new(cfg, random(seed))
        };
        let channel = |salt| {
            Channel::new(Conditions {
                seed: conditions.seed.wrapping_mul(31) + salt,
                ..conditions.clone()
            })
        };
        Pair {
            now: Instant::now(),
            cms: [cm(1), cm(2), cm(3)],
            channels: [channel(1), channel(2)],
            log: vec![],
            lose: vec![],
            busy: false,
        }
    }

    /// Makes A call B.
    fn connect(&mut self, qpn: u32) -> ConnId {
        self.connect_with(|call| call.qpn = qpn)
    }

    fn connect_with(&mut self, change: impl FnOnce(&mut Connect<'_>)) -> ConnId {
        let mut call = call();
        change(&mut call);
        self.cms[A].connect(self.now, &call).unwrap()
    }

    /// The request that B has got. Panics if B has got any other event.
    fn request(&mut self) -> (ConnId, IncomingRequest) {
        match &self.events(B)[..] {
            [(id, Event::Request(request))] => (*id, (**request).clone()),
            other => panic!("{other:?}"),
        }
    }

    fn accept(&mut self, id: ConnId, qpn: u32) {
        self.cms[B].accept(self.now, id, &Accept { qpn, ..accept() }).unwrap();
    }

    /// Makes an established connection. Returns its ID on either side.
    fn connected(&mut self) -> [ConnId; 2] {
        if self.cms[B].listeners.is_empty() {
            self.cms[B].listen(PORT, 16).unwrap();
        }
        let a = self.connect(QPN[A]);
        self.run();
        let (b, _) = self.request();
        self.accept(b, QPN[B]);
        self.run();
        assert!(matches!(self.events(A)[..], [(id, Event::Accepted(_))] if id == a));
        assert_eq!(self.events(B), [(b, Event::Established)]);
        self.log.clear();
        [a, b]
    }

    /// Sends and delivers all messages that are due now.
    fn run(&mut self) {
        loop {
            for side in [A, B, C] {
                while let Some(transmit) = self.cms[side].poll_transmit() {
                    let name = format!("{}:{}", ["A", "B", "C"][side], name(&transmit));
                    if let Some(at) = self.lose.iter().position(|&lost| lost == name) {
                        self.lose.remove(at);
                        self.log.push(format!("({name})"));
                    } else {
                        self.log.push(name);
                        self.channels[side.min(B)].send(self.now, transmit, 320);
                    }
                }
            }
            let arrivals = [A, B].map(|side| self.channels[side].receive(self.now));
            if arrivals.iter().all(Option::is_none) {
                return;
            }
            for (from, arrival) in arrivals.into_iter().enumerate() {
                if let Some(Transmit { from: sender, to, mad }) = arrival {
                    let receiver = if from == B { A } else { self.passive_receiver(sender, &mad) };
                    self.cms[receiver].receive(self.now, sender, to, &mad).unwrap();
                    self.answer(receiver);
                }
            }
        }
    }

    /// The manager of the passive side to which a message is delivered.
    fn passive_receiver(&self, sender: IpAddr, mad: &[u8]) -> usize {
        let id = match Mad::parse(mad).unwrap().message {
            Message::Req(req) => self.cms[B].adopter(sender, &req).map_or(0, |id| id.0),
            Message::Mra(mra) => mra.remote_id,
            Message::Rej(rej) => rej.remote_id,
            Message::Rep(rep) => rep.remote_id,
            Message::Rtu(rtu) => rtu.remote_id,
            Message::Dreq(dreq) => dreq.remote_id,
            Message::Drep(drep) => drep.remote_id,
            Message::SidrReq(_) | Message::SidrRep(_) => 0,
        };
        if id & 0x7F == self.cms[C].cfg.low_bits.value { C } else { B }
    }

    /// The next time at which a timer expires or a datagram arrives.
    fn deadline(&self) -> Option<Instant> {
        let cms = self.cms.iter().filter_map(Cm::deadline);
        cms.chain(self.channels.iter().filter_map(Channel::deadline)).min()
    }

    /// Lets time pass.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.run();
        while let Some(due) = self.deadline().filter(|&due| due <= end) {
            self.now = self.now.max(due);
            for cm in &mut self.cms {
                cm.expire(self.now);
            }
            self.run();
        }
        self.now = end;
    }

    /// Lets time pass until no timer is left and nothing is under way.
    fn pass_all(&mut self) {
        while let Some(due) = self.deadline() {
            self.pass(due.saturating_duration_since(self.now));
        }
    }

    fn events(&mut self, side: usize) -> Vec<(ConnId, Event)> {
        std::iter::from_fn(|| self.cms[side].poll_event()).collect()
    }

    /// Answers the DREQ for a program that has no request in flight.
    fn answer(&mut self, side: usize) {
        let cm = &mut self.cms[side];
        let asked =
            cm.events.iter().position(|(_, event)| matches!(event, Event::Disconnecting { .. }));
        if let Some((id, _)) = asked.filter(|_| !self.busy).and_then(|at| cm.events.remove(at)) {
            cm.disconnect(self.now, id, Ending::Graceful);
        }
    }

    fn state(&self, side: usize, id: ConnId) -> State {
        self.cms[side].conns.get(&id.0).map_or(State::Closed, |conn| conn.state)
    }

    /// The messages sent since the last call.
    fn sent(&mut self) -> String {
        std::mem::take(&mut self.log).join(" ")
    }

    /// Whether no state of any connection is left.
    fn is_empty(&mut self) -> bool {
        self.cms[B].sweep_records();
        self.cms.iter().all(|cm| {
            cm.is_empty()
                && cm.records.len() == 0
                && cm.by_request.is_empty()
                && cm.by_peer_qp.is_empty()
                && cm.timers.is_empty()
                && cm.half_open.is_empty()
                && cm.listeners.values().all(|listener| listener.pending == 0)
        })
    }
}

const QPN: [u32; 2] = [0x00_1181, 0x00_2282];

fn address(side: usize) -> IpAddr {
    [[10, 0, 0, 1], [10, 0, 0, 2]][side].into()
}

fn call() -> Connect<'static> {
    Connect {
        local: SocketAddr::new(address(A), 40_000),
        remote: SocketAddr::new(address(B), PORT),
        qpn: QPN[A],
        starting_psn: Psn::new(0x11_1111),
        path_mtu: PathMtu::Octets1024,
        responder_resources: 3,
        initiator_depth: 4,
        ack_timeout: Timeout::new(17),
        retry_count: 7,
        rnr_retry_count: 6,
        srq: true,
        private: b"call",
        deadline: None,
    }
}

fn accept() -> Accept<'static> {
    Accept {
        qpn: QPN[B],
        starting_psn: Psn::new(0x22_2222),
        responder_resources: 4,
        initiator_depth: 3,
        rnr_retry_count: 5,
        srq: false,
        private: b"accept",
    }
}

fn name(transmit: &Transmit) -> String {
    let mut name = String::new();
    match Mad::parse(&transmit.mad).unwrap().message {
        Message::Req(_) => name += "REQ",
        Message::Mra(_) => name += "MRA",
        Message::Rep(_) => name += "REP",
        Message::Rtu(_) => name += "RTU",
        Message::Dreq(_) => name += "DREQ",
        Message::Drep(_) => name += "DREP",
        Message::Rej(rej) => write!(name, "REJ{}", rej.reason.0).unwrap(),
        Message::SidrReq(_) => name += "SIDR REQ",
        Message::SidrRep(_) => name += "SIDR REP",
    }
    name
}

/// Private data as the peer receives them: padded with zeros.
fn padded(private: &[u8], size: usize) -> Vec<u8> {
    let mut padded = private.to_vec();
    padded.resize(size, 0);
    padded
}

fn refused(reason: Reason) -> Event {
    Event::Refused { reason, path_mtu: None }
}
