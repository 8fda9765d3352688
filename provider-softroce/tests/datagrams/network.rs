//! Datagrams over an emulated network that loses, duplicates and reorders packets.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use dat_core::provider::{Queue, Transport, WcStatus};
use provider_mem::contract::rig::{End, Event, Failure, QUEUE, Rig, Service, pattern, poll};
use provider_softroce::Roce;

use super::ends::*;

/// The number of datagrams in each direction.
const DATAGRAMS: u64 = 4000;
/// The room for a received datagram and the octets before it.
const SLOT: usize = 1024;
const LONGEST: usize = SLOT - HEADER;
/// The time without a datagram after which no more are expected. A packet is in the emulated
/// network for some milliseconds.
const SILENCE: Duration = Duration::from_millis(300);

/// The content of a datagram: its number and sender, and octets that only this datagram has, so
/// that any mixture of two datagrams is noticed. All octets depend on the number.
fn content(sender: u64, number: u64) -> Vec<u8> {
    let len = 16 + (number * 37 % (LONGEST as u64 - 15)) as usize;
    let mut octets = pattern(number << 8 | sender, len);
    octets[..8].copy_from_slice(&number.to_be_bytes());
    octets[8..16].copy_from_slice(&sender.to_be_bytes());
    octets
}

/// One direction of the traffic.
struct Direction<'a, 't> {
    from: &'a End<'t, Roce>,
    to: (&'a End<'t, Roce>, To),
    sender: u64,
    posted: u64,
    completed: u64,
    /// How often each datagram has arrived.
    arrived: HashMap<u64, usize>,
}

impl<'a, 't> Direction<'a, 't> {
    fn new(from: &'a End<'t, Roce>, to: (&'a End<'t, Roce>, To), sender: u64) -> Self {
        for slot in 0..QUEUE {
            to.0.recv(slot as u64, &[to.0.mem.segment(slot * SLOT, SLOT)]);
        }
        Direction { from, to, sender, posted: 0, completed: 0, arrived: HashMap::new() }
    }

    /// Posts as many datagrams as the queue takes, and checks what has completed. Returns whether a
    /// datagram has arrived.
    fn advance(&mut self) -> bool {
        // The upper half of the memory has the datagrams to send.
        let (from, base) = (self.from, 2 * QUEUE * SLOT);
        while self.posted < DATAGRAMS && self.posted - self.completed < QUEUE as u64 {
            let (number, octets) = (self.posted, content(self.sender, self.posted));
            let at = base + number as usize % QUEUE * SLOT;
            from.mem.write(at, &octets);
            let immediate = number.is_multiple_of(2).then_some(number as u32);
            send(from, number, &self.to.1, immediate, &[from.mem.segment(at, octets.len())]);
            self.posted += 1;
        }
        for wc in poll::<Roce>(&from.requests, QUEUE) {
            assert_eq!((wc.id, wc.status), (self.completed, WcStatus::Success));
            self.completed += 1;
        }
        let receiver = self.to.0;
        let received = poll::<Roce>(&receiver.recvs, QUEUE);
        for wc in &received {
            assert_eq!(wc.status, WcStatus::Success);
            let (at, len) = (wc.id as usize * SLOT, wc.bytes as usize - HEADER);
            let octets = receiver.mem.read(at + HEADER, len);
            let number = u64::from_be_bytes(octets[..8].try_into().expect("8 octets"));
            assert!(octets == content(self.sender, number), "datagram {number} is damaged");
            assert_eq!(wc.immediate, number.is_multiple_of(2).then_some(number as u32));
            *self.arrived.entry(number).or_default() += 1;
            receiver.recv(wc.id, &[receiver.mem.segment(at, SLOT)]);
        }
        !received.is_empty()
    }
}

/// Sends datagrams in both directions at once.
fn exchange(address: &str, net: &str, seed: u64) {
    let ip: IpAddr = address.parse().expect("an address");
    let params = format!("{address} threads=2 mtu=1024 net={net},seed={seed}");
    let (a, b) = (open(&params), open(&params));
    let rig = Rig { a: &a, b: &b };
    let (x, y) =
        (end_with(&a, 2 * QUEUE, 4 * QUEUE * SLOT), end_with(&b, 2 * QUEUE, 4 * QUEUE * SLOT));
    let (to_y, to_x) = introduce(&rig, &x, (&y, ip));
    let mut directions = [Direction::new(&x, (&y, to_y), 1), Direction::new(&y, (&x, to_x), 2)];
    let mut last = Instant::now();
    rig.until("all datagrams", || {
        for direction in &mut directions {
            if direction.advance() {
                last = Instant::now();
            }
        }
        let is_done = directions.iter().all(|of| of.completed == DATAGRAMS);
        (is_done && last.elapsed() > SILENCE).then_some(())
    });
    for (direction, receiver) in directions.iter().zip([&b, &a]) {
        let copies: usize = direction.arrived.values().sum();
        let most = if net.contains("duplicate") { 2 } else { 1 };
        assert!(direction.arrived.values().all(|&times| times <= most), "{net}, seed {seed}");
        let distinct = direction.arrived.len() as u64;
        println!("{net}, seed {seed}: {distinct} of {DATAGRAMS} datagrams, {copies} copies");
        assert_eq!(counter(receiver, "datagrams-received"), copies as u64);
        // The network loses a tenth of the packets at most, but a busy machine loses others for
        // want of receives or of room in the socket.
        assert!(distinct >= DATAGRAMS / 20, "{net}, seed {seed}: {distinct}");
        for dropped in ["wrong-opcode", "wrong-partition", "wrong-q-key", "receive-too-small"] {
            assert_eq!(counter(receiver, &format!("dropped-{dropped}")), 0, "{dropped}");
        }
        direction.from.log.assert_silent();
    }
}

#[test]
fn nothing_wrong_arrives() {
    for seed in 1..=4 {
        exchange("127.0.0.97", "loss=5%,duplicate=5%,reorder=10%", seed);
    }
}

#[test]
fn nothing_wrong_arrives_over_ipv6() {
    exchange("::1", "loss=10%,duplicate=10%,reorder=30%,jitter=200us", 5);
}

#[test]
fn nothing_arrives_twice_if_the_network_does_not_duplicate() {
    for seed in 6..=8 {
        exchange("127.0.0.98", "loss=10%,reorder=20%,delay=100us", seed);
    }
    exchange("127.0.0.98", "reorder=50%", 9);
}

/// An end has many attempts at once over a network that loses many packets. Each attempt succeeds,
/// and the consumer of the service sees one request for each.
#[test]
fn addresses_are_found_out_under_loss() {
    const ATTEMPTS: u64 = 40;
    let params = "127.0.0.99 threads=2 net=loss=30%,duplicate=20%,reorder=20%,seed=10";
    let (a, b) = (open(params), open(params));
    let rig = Rig { a: &a, b: &b };
    let (asking, answering) = (end(&a), [end(&b), end(&b)]);
    let service = Service::new(&b, 64);
    let to = ("127.0.0.99".parse().expect("an address"), service.port(&b));
    for number in 0..ATTEMPTS {
        resolve(&asking, number, to, &number.to_be_bytes());
    }
    let (mut requested, mut resolved) = (vec![0; ATTEMPTS as usize], vec![0; ATTEMPTS as usize]);
    rig.until("all addresses", || {
        while let Some(event) = service.log.take() {
            let Event::Request { request, private, .. } = event else { panic!("{event:?}") };
            let number = u64::from_be_bytes(private[..].try_into().expect("8 octets"));
            requested[number as usize] += 1;
            if number.is_multiple_of(5) {
                b.reject(request, &private).expect("a rejection");
                continue;
            }
            let by = &answering[number as usize % 2];
            by.qp.answer(request, &private).expect("the request is answered");
        }
        while let Some(event) = asking.log.take() {
            let (number, answer, is_rejection) = match event {
                Event::Resolved { number, private, .. } => (number, private, false),
                Event::Unresolved { number, why: Failure::Rejected(private) } => {
                    (number, private, true)
                }
                other => panic!("{other:?}"),
            };
            assert_eq!((&answer[..], is_rejection), (&number.to_be_bytes()[..], number % 5 == 0));
            resolved[number as usize] += 1;
        }
        (resolved.iter().sum::<usize>() >= ATTEMPTS as usize).then_some(())
    });
    // Copies that are still in the network cause no further events.
    let since = Instant::now();
    rig.until("the copies", || (since.elapsed() > SILENCE).then_some(()));
    assert!(requested.iter().chain(&resolved).all(|&times| times == 1), "{requested:?}");
    service.log.assert_silent();
    asking.log.assert_silent();
}
