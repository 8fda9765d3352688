//! Packets in networks of several links, for fixed seeds and under a clock that the test controls.

use super::*;

const MICROSECOND: Duration = Duration::from_micros(1);

fn dumbbell(text: &str) -> Dumbbell {
    let mut dumbbell = Dumbbell::default();
    netem::text::parse_words(text, "a key", |key, value| dumbbell.set(key, value))
        .unwrap_or_else(|error| panic!("{error}"));
    dumbbell
}

fn packet(from: usize, to: usize, content: u64) -> Packet<u64> {
    Packet { from, to, flow: from as u64, octets: 1000, ecn: Ecn::Capable, content }
}

/// Receives until nothing is under way. Returns the content of each packet, its ECN field, and the
/// time of its arrival.
fn receive_all(network: &mut Network<u64>, start: Instant) -> Vec<(u64, Ecn, Duration)> {
    let mut arrived = Vec::new();
    while let Some(at) = network.deadline() {
        while let Some(packet) = network.receive(at) {
            arrived.push((packet.content, packet.ecn, at - start));
        }
    }
    arrived
}

#[test]
fn packets_take_the_shortest_path() {
    let mut topology = Topology::new();
    let mut link = |from, to, micros| {
        let conditions = Conditions { delay: MICROSECOND * micros, ..Conditions::OFF };
        topology.add(ChannelSpec { from, to, conditions, queue: QueueLimits::NONE });
    };
    // From 0 to 3 there is a path over 1 and a longer one over 1 and 2.
    link(0, 1, 1);
    link(1, 3, 10);
    link(1, 2, 1);
    link(2, 3, 1);
    let mut network = Network::new(&topology, Balance::Flow, 1);
    let start = Instant::now();
    network.send(start, packet(0, 3, 7));
    assert_eq!(receive_all(&mut network, start), [(7, Ecn::Capable, MICROSECOND * 11)]);
    network.send(start, packet(2, 3, 8));
    assert_eq!(receive_all(&mut network, start), [(8, Ecn::Capable, MICROSECOND)]);
}

/// 1,000 octets take 8 us at 1 Gbit/s and 0.8 us on each of the two other links.
#[test]
fn a_bottleneck_has_its_rate_delay_and_queue() {
    let dumbbell = dumbbell("rate=1gbit,delay=100us,queue=3000,mark=1500");
    let (topology, layout) = dumbbell.topology(2);
    let mut network = Network::new(&topology, Balance::Flow, 1);
    let start = Instant::now();
    for number in 0..8 {
        let pair = (number % 2) as usize;
        network.send(start, packet(layout.sources[pair].node, layout.sinks[pair].node, number));
    }
    let arrived = receive_all(&mut network, start);
    // The first two packets arrive at the switch at the same time. One of them is transmitted, and
    // the queue has room for three more. The next packet leaves after 8 us.
    let numbers: Vec<u64> = arrived.iter().map(|&(number, ..)| number).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    let times: Vec<u128> = arrived.iter().map(|&(.., at)| at.as_nanos()).collect();
    assert_eq!(times, [109_600, 117_600, 125_600, 133_600]);
    let marks: Vec<bool> = arrived.iter().map(|&(_, ecn, _)| ecn == Ecn::Marked).collect();
    assert_eq!(marks, [false, false, false, true]);
    let counters = network.queue_counters(layout.bottlenecks[0]);
    assert_eq!((counters.arrived, counters.overflowed, counters.marked), (8, 4, 1));
    assert_eq!(counters.octets_max, 3000);
    network.restart_queue_maximum(layout.bottlenecks[0]);
    assert_eq!(network.queue_counters(layout.bottlenecks[0]).octets_max, 0);
    assert_eq!(network.queued_octets(layout.bottlenecks[0]), 0);
}

#[test]
fn both_directions_have_a_bottleneck() {
    let (topology, layout) = dumbbell("rate=1gbit,delay=100us").topology(1);
    let mut network = Network::new(&topology, Balance::Flow, 1);
    let start = Instant::now();
    network.send(start, packet(layout.sinks[0].node, layout.sources[0].node, 1));
    let arrived = receive_all(&mut network, start);
    assert_eq!(arrived, [(1, Ecn::Capable, Duration::from_nanos(109_600))]);
}

#[test]
fn paths_reorder_packets_but_no_flow() {
    for (balance, reorders) in [("packet", true), ("flow", false)] {
        let text = format!("rate=10gbit,delay=10us,paths=2,skew=50us,balance={balance}");
        let dumbbell = dumbbell(&text);
        let (topology, layout) = dumbbell.topology(2);
        let mut network = Network::new(&topology, dumbbell.balance, 1);
        let start = Instant::now();
        for number in 0..200 {
            let pair = (number % 2) as usize;
            let packet = packet(layout.sources[pair].node, layout.sinks[pair].node, number);
            network.send(start, Packet { flow: pair as u64, ..packet });
        }
        let arrived = receive_all(&mut network, start);
        assert_eq!(arrived.len(), 200);
        for pair in 0..2 {
            let of_pair = arrived.iter().map(|&(number, ..)| number).filter(|n| n % 2 == pair);
            assert_eq!(!of_pair.is_sorted(), reorders, "{balance}");
        }
        let used = layout.bottlenecks.iter().map(|&link| network.queue_counters(link).arrived);
        assert!(used.clone().all(|arrived| (70..=130).contains(&arrived)), "{balance}");
    }
}

#[test]
fn the_seed_decides() {
    let run = |seed: u64| {
        let dumbbell = dumbbell(
            "rate=100mbit,loss=3%,duplicate=3%,reorder=3%,jitter=100us,queue=20K,red=2K-15K,\
             paths=3,balance=packet",
        );
        let (topology, layout) = dumbbell.topology(1);
        let mut network = Network::new(&topology, dumbbell.balance, seed);
        let start = Instant::now();
        let mut arrived = Vec::new();
        for number in 0..2000u64 {
            let now = start + MICROSECOND * 30 * number as u32;
            while let Some(packet) = network.receive(now) {
                arrived.push((packet.content, packet.ecn, now - start));
            }
            network.send(now, packet(layout.sources[0].node, layout.sinks[0].node, number));
        }
        arrived.extend(receive_all(&mut network, start));
        arrived
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert!(run(1).len() > 1500);
}
