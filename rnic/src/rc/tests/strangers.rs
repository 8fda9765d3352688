//! Strangers request connections and never answer. An established connection must be unaffected, or
//! be delayed by at most 10 ms. The test has two adapters as in a provider, each with a connection
//! manager and the engine of a connection. They share a wire with all messages that strangers send
//! and receive. The processing time of datagrams is not part of the test.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use wire::cm::{Dreq, MAD_SIZE, Mad, Message};
use wire::rocev2::Deth;

use super::*;
use crate::cm::{Accept, Cfg, Cm, ConnId, Connect, Event, Random, Transmit};

/// A is the caller of the connection. B is the server, which the strangers also call.
const A: usize = 0;
const B: usize = 1;
const ADDRESSES: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];
const GUIDS: [u64; 2] = [0xA0, 0xB0];
const PORT: u16 = 7174;
/// The number of queue pairs that the server has for other callers.
const QUEUE_PAIRS: usize = 16;

/// The duration of the test. It is long enough for every unconfirmed acceptance to be given up.
const TEST_DURATION: Duration = Duration::from_secs(20);
/// The interval at which messages go to the peer and back.
const PING_INTERVAL: Duration = Duration::from_millis(1);
/// The interval at which strangers call.
const CALL_INTERVAL: Duration = Duration::from_micros(700);

/// A frame on the wire.
#[derive(Clone)]
enum Frame {
    Packet(Vec<u8>),
    Message(Box<Transmit>),
}

/// The size of a message: Ethernet, IPv4, UDP, BTH, DETH, the MAD and the ICRC.
const MESSAGE: usize = 14 + 20 + 8 + 12 + Deth::SIZE + MAD_SIZE + 4;

/// The strangers, who call and never answer.
#[derive(Clone, Copy, PartialEq)]
enum Strangers {
    Nobody,
    /// Strangers call from their own addresses and from the peer's address, and send messages of
    /// connections that do not exist.
    Callers,
    /// The same as `Callers`, and some of the strangers name the peer's queue pair.
    CallersNamingPeersQp,
}

struct Adapter {
    cm: Cm,
    side: Side,
    buf: Buf,
    out: Channel<Frame>,
}

struct Scene {
    start: Instant,
    now: Instant,
    ends: [Adapter; 2],
    strangers: Strangers,
    calls: u32,
    /// Requests that wait until one of the queue pairs is free.
    waiting: VecDeque<ConnId>,
    accepted: Vec<ConnId>,
    established: [Option<ConnId>; 2],
    /// The number of acceptances, the number of acceptances that were given up, and the number of
    /// challenges to the peer.
    counts: [u32; 3],
    observed: Observed,
}

/// The completions that the users of the connection get, and the packets on the wire.
#[derive(Default)]
struct Observed {
    /// The arriving packets of the connection, each with time, sender and content.
    packets: Vec<(Duration, usize, String)>,
    /// The completions, each with time, side and id.
    completions: Vec<(Duration, usize, u64)>,
}

fn address(side: usize) -> IpAddr {
    ADDRESSES[side].into()
}

fn random(seed: u64) -> Random {
    let mut rng = Rng(seed);
    Box::new(move || rng.next())
}

/// A connection request to B from this address, with this queue pair.
fn req(now: Instant, guid: u64, from: IpAddr, qpn: u32) -> Transmit {
    let mut cm = Cm::new(Cfg::new(guid), random(guid << 32 | u64::from(qpn)));
    call(&mut cm, now, from, qpn);
    cm.poll_transmit().unwrap()
}

fn call(cm: &mut Cm, now: Instant, from: IpAddr, qpn: u32) {
    let connect = Connect {
        local: SocketAddr::new(from, 40_000),
        remote: SocketAddr::new(address(B), PORT),
        qpn,
        starting_psn: PSNS[B],
        path_mtu: MTU,
        responder_resources: 4,
        initiator_depth: 4,
        ack_timeout: wire::cm::Timeout::new(17),
        retry_count: 7,
        rnr_retry_count: 7,
        srq: false,
        private: b"",
        deadline: None,
    };
    cm.connect(now, &connect).unwrap();
}

impl Adapter {
    fn new(side: usize, conditions: &Conditions, now: Instant) -> Adapter {
        let cm = Cm::new(Cfg::new(GUIDS[side]), random(side as u64));
        let side = Side::new(cfg(1 - side), now);
        let buf = side.buf(16 * OCTETS);
        Adapter { cm, side, buf, out: Channel::new(conditions.clone()) }
    }

    /// Sends the packets and messages of this side. Returns whether anything was sent.
    fn send_burst(&mut self, now: Instant) -> bool {
        let packets = self.side.sent();
        let mut any = !packets.is_empty();
        for packet in packets {
            let octets = packet.len() + 14 + 20 + 8 + 4;
            self.out.send(now, Frame::Packet(packet), octets);
        }
        while let Some(message) = self.cm.poll_transmit() {
            self.out.send(now, Frame::Message(Box::new(message)), MESSAGE);
            any = true;
        }
        any
    }

    fn deadline(&self) -> Option<Instant> {
        [self.cm.deadline(), self.side.rc.deadline(), self.out.deadline()]
            .into_iter()
            .flatten()
            .min()
    }
}

impl Scene {
    /// Establishes A's connection with B.
    fn new(conditions: &Conditions, strangers: Strangers) -> Scene {
        let start = Instant::now();
        let ends = [A, B].map(|side| Adapter::new(side, conditions, start));
        let (waiting, accepted, observed) = (VecDeque::new(), Vec::new(), Observed::default());
        let (calls, established, counts) = (0, [None; 2], [0; 3]);
        let mut scene = Scene {
            start,
            now: start,
            ends,
            strangers,
            calls,
            waiting,
            accepted,
            established,
            counts,
            observed,
        };
        scene.ends[B].cm.listen(PORT, 64).unwrap();
        call(&mut scene.ends[A].cm, start, address(A), QPNS[A]);
        while scene.established.contains(&None) {
            scene.advance_to(scene.now + Duration::from_millis(1));
        }
        scene.start = scene.now;
        scene.observed = Observed::default();
        scene
    }

    /// Sends messages to the peer and back. Every tenth message comes with a READ.
    fn run(mut self) -> (Observed, [u32; 3]) {
        let (mut ping, mut call) = (self.now, self.now + CALL_INTERVAL / 3);
        let mut pings = 0;
        for side in [A, B] {
            let Adapter { side, buf, .. } = &self.ends[side];
            side.recv(0, &[buf.seg(0, 2 * OCTETS)]);
        }
        while self.now < self.start + TEST_DURATION {
            self.advance_to(ping.min(call));
            if self.now >= ping {
                let Adapter { side, buf, .. } = &self.ends[A];
                side.post(send(pings, &[buf.seg(4 * OCTETS, 2 * OCTETS - 1)]));
                if pings % 10 == 0 {
                    let from = self.ends[B].buf.remote(0);
                    side.post(read(pings, &[buf.seg(8 * OCTETS, 4 * OCTETS)], from));
                }
                (ping, pings) = (ping + PING_INTERVAL, pings + 1);
            }
            if self.now >= call {
                self.stranger_calls();
                call += CALL_INTERVAL;
            }
        }
        self.advance_to(self.now + PING_INTERVAL);
        let back =
            self.observed.completions.iter().filter(|(_, side, _)| *side == A).count() as u64;
        // Each round completes a message and its answer. Every tenth round also completes a READ.
        assert_eq!(back, 2 * pings + pings.div_ceil(10));
        (self.observed, self.counts)
    }

    fn stranger_calls(&mut self) {
        self.calls += 1;
        let (n, now) = (self.calls, self.now);
        let [_, _, high, low] = n.to_be_bytes();
        let elsewhere = IpAddr::from([10, 1, high, low]);
        let guid = 0x1_0000 + u64::from(n);
        let qpn = n << 7 | 9;
        let message = match (n % 4, self.strangers) {
            (_, Strangers::Nobody) => return,
            (0, Strangers::CallersNamingPeersQp) => req(now, GUIDS[A], address(A), QPNS[A]),
            (1, _) => req(now, guid, address(A), qpn),
            (2, _) => {
                let dreq =
                    Dreq { local_id: n, remote_id: n << 7 | 2, remote_qpn: QPNS[B], private: &[] };
                let mad = Mad { transaction: guid, message: Message::Dreq(dreq) }.emit();
                Transmit { from: address(A), to: address(B), mad }
            }
            _ => req(now, guid, elsewhere, qpn),
        };
        self.ends[A].out.send(now, Frame::Message(Box::new(message)), MESSAGE);
    }

    /// Advances the clock to `end`.
    fn advance_to(&mut self, end: Instant) {
        loop {
            while self.step() {}
            let due = self.ends.iter().filter_map(Adapter::deadline).min();
            match due.filter(|&due| due < end) {
                Some(due) => self.now = due.max(self.now + Duration::from_nanos(1)),
                None => break,
            }
        }
        self.now = end;
        while self.step() {}
    }

    /// Performs all actions that are possible at this time. Returns whether there were any.
    fn step(&mut self) -> bool {
        let now = self.now;
        let mut moved = false;
        for side in [A, B] {
            while let Some(frame) = self.ends[1 - side].out.receive(now) {
                moved = true;
                let Adapter { cm, side: end, .. } = &mut self.ends[side];
                match frame {
                    Frame::Packet(packet) => {
                        let word = words(std::slice::from_ref(&packet)).remove(0);
                        self.observed.packets.push((now - self.start, 1 - side, word));
                        end.take(now, &packet).unwrap();
                    }
                    // A message to a stranger has no receiver, so it is dropped here.
                    Frame::Message(message) if message.to != address(side) => {}
                    Frame::Message(message) => {
                        let Transmit { from, to, mad } = *message;
                        cm.receive(now, from, to, &mad).unwrap();
                    }
                }
            }
            moved |= self.run_program(side);
            let Adapter { cm, side: end, .. } = &mut self.ends[side];
            if cm.deadline().is_some_and(|at| at <= now) {
                cm.expire(now);
                moved = true;
            }
            if end.rc.deadline().is_some_and(|at| at <= now) {
                end.rc.expire(now).unwrap();
                end.rc.repeat_challenge(now, &mut end.burst);
                moved = true;
            }
            loop {
                let Adapter { side: end, .. } = &mut self.ends[side];
                end.rc.transmit(now, &mut end.burst).unwrap();
                end.rc.acknowledge(&mut end.burst);
                if !self.ends[side].send_burst(now) {
                    break;
                }
                moved = true;
            }
        }
        moved
    }

    /// Acts as the program of a side.
    fn run_program(&mut self, at: usize) -> bool {
        let now = self.now;
        let mut moved = false;
        while let Some((id, event)) = self.ends[at].cm.poll_event() {
            moved = true;
            match event {
                Event::Request(_) => self.waiting.push_back(id),
                Event::Withdrawn => self.waiting.retain(|&of| of != id),
                Event::Accepted(_) | Event::Established => {
                    assert_eq!(self.established[at].replace(id), None);
                    self.accepted.retain(|&of| of != id);
                }
                Event::AcceptFailed => {
                    self.accepted.retain(|&of| of != id);
                    self.counts[1] += 1;
                }
                Event::Stale => {
                    assert_eq!(self.established[at], Some(id));
                    let Side { rc, burst, .. } = &mut self.ends[at].side;
                    rc.start_challenge(now, burst);
                    self.counts[2] += 1;
                }
                Event::Released { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        while self.accepted.len() < QUEUE_PAIRS
            && let Some(id) = self.waiting.pop_front()
        {
            // The first acceptance belongs to A's connection.
            let qpn = if self.established[B].is_none() { QPNS[B] } else { id.0 & 0xFF_FFFF };
            let accept = Accept {
                qpn,
                starting_psn: PSNS[A],
                responder_resources: 4,
                initiator_depth: 4,
                rnr_retry_count: 7,
                srq: false,
                private: b"",
            };
            self.ends[B].cm.accept(now, id, &accept).unwrap();
            self.accepted.push(id);
            self.counts[0] += 1;
            moved = true;
        }
        let Adapter { side, buf, .. } = &self.ends[at];
        let (received, completed) = (side.received(), side.completions());
        moved |= !received.is_empty() || !completed.is_empty();
        for wc in received.iter().chain(&completed) {
            assert_eq!(wc.status, crate::WcStatus::Success);
            self.observed.completions.push((now - self.start, at, wc.id));
        }
        for wc in received {
            side.recv(wc.id + 1, &[buf.seg(0, 2 * OCTETS)]);
            if at == B {
                side.post(send(wc.id, &[buf.seg(4 * OCTETS, 2 * OCTETS - 1)]));
            }
        }
        moved
    }
}

const DELAY: Duration = Duration::from_micros(50);

/// With and without strangers, every packet of the connection is sent and received at the same
/// time, to the nanosecond.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn a_connection_notices_nothing_of_silent_callers() {
    let conditions = Conditions { delay: DELAY, ..Conditions::OFF };
    let (alone, counts) = Scene::new(&conditions, Strangers::Nobody).run();
    assert_eq!(counts, [1, 0, 0]);
    let (beside, [accepted, given_up, _]) = Scene::new(&conditions, Strangers::Callers).run();
    assert!(
        accepted > 200 && given_up + QUEUE_PAIRS as u32 >= accepted - 1,
        "{given_up} of {accepted} accepted connections were given up"
    );
    assert!(alone.packets.len() > 100_000, "{}", alone.packets.len());
    assert_eq!(alone.packets.len(), beside.packets.len());
    for (alone, beside) in alone.packets.iter().zip(&beside.packets) {
        assert_eq!(alone, beside);
    }
    assert_eq!(alone.completions, beside.completions);
}

/// Some strangers name the peer's queue pair. As a result the peer is challenged, at most once in
/// each ACK timeout, but no request takes longer.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn questions_whether_the_peer_is_there_take_no_time() {
    let conditions = Conditions { delay: DELAY, ..Conditions::OFF };
    let (alone, _) = Scene::new(&conditions, Strangers::Nobody).run();
    let (beside, [_, _, named]) = Scene::new(&conditions, Strangers::CallersNamingPeersQp).run();
    assert_eq!(alone.completions, beside.completions);
    let questions =
        beside.packets.iter().filter(|(_, _, word)| word.contains("WRITE only of 0")).count();
    assert!(named > 1000 && questions > 10, "{named} calls, {questions} challenges");
    let timeout = Duration::from_nanos(4096 << cfg(A).ack_timeout);
    assert!(
        questions as u32 <= TEST_DURATION.div_duration_f64(timeout) as u32 + 1,
        "{questions} challenges"
    );
    // Each challenge is answered.
    assert_eq!(beside.packets.len(), alone.packets.len() + 2 * questions);
}

/// The strangers' traffic takes time on the wire, because it uses a third of 100 Mbit/s. No request
/// may be delayed by 10 ms. In fact none is delayed by 1 ms.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn silent_callers_on_a_narrow_wire_cost_their_octets() {
    let conditions = Conditions {
        rate: std::num::NonZeroU64::new(100_000_000),
        delay: DELAY,
        ..Conditions::OFF
    };
    let (alone, _) = Scene::new(&conditions, Strangers::Nobody).run();
    let (beside, _) = Scene::new(&conditions, Strangers::CallersNamingPeersQp).run();
    let requests = |seen: &Observed, side| -> Vec<_> {
        let of_side = seen.completions.iter().filter(|(_, of, _)| *of == side);
        let mut of_side: Vec<_> = of_side.map(|&(at, _, id)| (id, at)).collect();
        of_side.sort();
        of_side
    };
    for side in [A, B] {
        let (alone, beside) = (requests(&alone, side), requests(&beside, side));
        assert_eq!(alone.len(), beside.len());
        let late = alone.iter().zip(&beside).map(|(&(id, before), &(of, after))| {
            assert_eq!(id, of);
            after.saturating_sub(before)
        });
        let latest = late.max().unwrap();
        assert!(latest < Duration::from_millis(1), "{latest:?}");
    }
}
