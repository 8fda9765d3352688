//! Two queue pairs over networks that lose, duplicate and reorder packets.

use std::time::{Duration, Instant};

use netem::{Channel, Conditions, Probability};

use super::*;

const NETWORKS: u64 = if cfg!(miri) { 2 } else { 60 };
const DATAGRAMS: usize = if cfg!(miri) { 50 } else { 1000 };
const MAX_LEN: usize = 1500;

/// The payload of the datagram with this number, which begins with the number.
fn payload(number: u32) -> Vec<u8> {
    let mut rng = Rng(number.into());
    let mut payload = vec![0; 4 + rng.below(MAX_LEN - 4)];
    rng.fill(&mut payload);
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload
}

#[test]
fn what_arrives_is_what_was_sent() {
    for seed in 0..NETWORKS {
        over(Conditions {
            loss: Probability::percent(5 * (seed % 3) as u32),
            duplicate: Probability::percent(5),
            reorder: Probability::percent(20),
            delay: Duration::from_micros(20),
            jitter: Duration::from_micros(30),
            seed,
            ..Conditions::OFF
        });
    }
}

fn over(conditions: Conditions) {
    let mut rng = Rng(conditions.seed);
    let (mut a, mut b) = (End::new(), End::new());
    let mut channel = Channel::new(conditions);
    let mut now = Instant::now();
    // Each receive has its own memory. Some receives are too small for some datagrams.
    let source = a.buf(64 * MAX_LEN);
    let sinks: Vec<Buf> = (0..16).map(|_| b.buf(MAX_LEN + HEADER_SIZE)).collect();
    let mut posted: Vec<Option<Vec<Segment>>> = sinks.iter().map(|_| None).collect();
    let (mut next, mut delivered) = (0, vec![0u32; DATAGRAMS]);
    let mut arrived = 0;
    while next < DATAGRAMS || channel.deadline().is_some() {
        for slot in 0..rng.below(64.min(DATAGRAMS - next) + 1) {
            let octets = payload(next as u32);
            source.octets_mut()[slot * MAX_LEN..][..octets.len()].copy_from_slice(&octets);
            let cut = rng.below(octets.len() + 1);
            let segments = [
                source.seg(slot * MAX_LEN, cut),
                source.seg(slot * MAX_LEN + cut, octets.len() - cut),
            ];
            let immediate = (next % 2 == 0).then_some(next as u32);
            a.datagram(DatagramWr { immediate, ..datagram(next as u64, &segments) });
            next += 1;
        }
        while let Some(to) = a.ud.next() {
            a.transmit(to).unwrap();
        }
        for packet in a.sent() {
            let octets = packet.len();
            channel.send(now, packet, octets);
        }
        for (id, posted) in posted.iter_mut().enumerate() {
            if posted.is_none() && rng.chance(2) {
                let len = HEADER_SIZE + if rng.chance(5) { 700 } else { MAX_LEN };
                let segments = scattered(&mut rng, &sinks[id], len);
                b.recv(id as u64, &segments);
                *posted = Some(segments);
            }
        }
        while let Some(packet) = channel.receive(now) {
            arrived += 1;
            b.take(&packet).unwrap();
        }
        for wc in b.received() {
            assert_eq!((wc.status, wc.op), (WcStatus::Success, WcOp::Recv));
            let segments = posted[wc.id as usize].take().unwrap();
            let octets = octets_of(&sinks[wc.id as usize], &segments);
            let (header, received) = octets[..wc.bytes as usize].split_at(HEADER_SIZE);
            let number = u32::from_be_bytes(*received.first_chunk().unwrap());
            assert_eq!(header, HEADER);
            assert!(received == payload(number), "datagram {number} arrived with other octets");
            assert_eq!(wc.immediate, (number % 2 == 0).then_some(number));
            delivered[number as usize] += 1;
        }
        now = channel.deadline().map_or(now, |at| at.max(now + Duration::from_nanos(1)));
    }

    let (sent, received, network) = (*a.ud.stats(), *b.ud.stats(), channel.counters());
    assert_eq!(a.completions().len(), DATAGRAMS);
    assert_eq!(sent, Stats { tx_datagrams: DATAGRAMS as u64, ..Stats::default() });
    assert_eq!(network.sent, sent.tx_datagrams);
    assert_eq!(arrived, network.sent - network.lost + network.repeated - network.overflowed);
    let all: u64 = received.list().iter().map(|(_, count)| count).sum();
    assert_eq!(all, arrived);
    assert_eq!(
        received.rx_datagrams + received.rx_no_receive + received.rx_too_long,
        arrived,
        "{received:?}"
    );
    assert_eq!(u64::from(delivered.iter().sum::<u32>()), received.rx_datagrams);
    assert!(delivered.iter().all(|&times| times <= 2));
    if DATAGRAMS > 500 {
        assert!(received.rx_datagrams > 100 && received.rx_no_receive > 0, "{received:?}");
    }
}
