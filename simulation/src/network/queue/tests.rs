//! Tests of the disciplines against numbers computed by hand.

use super::*;

const PACKET: u64 = 1000;

fn queue(limits: QueueLimits) -> Queue<Ecn> {
    Queue::new(limits, 7)
}

fn push(queue: &mut Queue<Ecn>, now: Instant, ecn: Ecn) {
    queue.push(now, ecn, PACKET, |packet| {
        let capable = *packet == Ecn::Capable;
        if capable {
            *packet = Ecn::Marked;
        }
        capable
    });
}

fn drain(queue: &mut Queue<Ecn>, now: Instant) -> Vec<Ecn> {
    std::iter::from_fn(|| queue.pop(now, Duration::from_micros(8))).map(|(ecn, _)| ecn).collect()
}

#[test]
fn a_full_queue_drops_what_comes_next() {
    let now = Instant::now();
    let mut by_octets = queue(QueueLimits { octets: 3500, ..QueueLimits::NONE });
    let mut by_packets = queue(QueueLimits { packets: 3, ..QueueLimits::NONE });
    for queue in [&mut by_octets, &mut by_packets] {
        (0..5).for_each(|_| push(queue, now, Ecn::Capable));
        let counters = queue.counters();
        assert_eq!((counters.arrived, counters.overflowed, counters.octets_max), (5, 2, 3000));
        assert_eq!(drain(queue, now), [Ecn::Capable; 3]);
        assert_eq!(queue.octets(), 0);
    }
}

#[test]
fn the_mean_is_over_time() {
    let start = Instant::now();
    let at = |micros| start + Duration::from_micros(micros);
    let mut queue = queue(QueueLimits::NONE);
    push(&mut queue, at(10), Ecn::NotCapable);
    push(&mut queue, at(20), Ecn::NotCapable);
    drain(&mut queue, at(30));
    // 1,000 octets for 10 us and 2,000 octets for 10 us, in 100 us.
    assert_eq!(queue.counters().octets_mean(Duration::from_micros(100)), 300);
    assert_eq!(queue.counters().octets_mean(Duration::ZERO), 0);
}

#[test]
fn a_threshold_marks_packets_that_find_as_many_octets() {
    let now = Instant::now();
    let discipline = Discipline::Threshold { octets: 2000 };
    let mut queue = queue(QueueLimits { octets: 4000, packets: 100, discipline });
    for ecn in [Ecn::Capable, Ecn::Capable, Ecn::Capable, Ecn::NotCapable, Ecn::Capable] {
        push(&mut queue, now, ecn);
    }
    let counters = queue.counters();
    assert_eq!((counters.marked, counters.overflowed, counters.dropped_early), (1, 1, 0));
    let marked = [Ecn::Capable, Ecn::Capable, Ecn::Marked, Ecn::NotCapable];
    assert_eq!(drain(&mut queue, now), marked);
}

/// The queue is kept at a constant length, so the average approaches this length.
#[test]
fn red_drops_between_its_thresholds_as_often_as_it_should() {
    for (length, min, max, percent) in [
        // Below the minimum nothing is dropped, and above twice the maximum everything.
        (10, 20, 30, 0.0..=0.0),
        (70, 20, 30, 99.9..=100.0),
        // Between them, the probability is 55 %. Even intervals of 1 or 2 packets make it 69 %.
        (45, 20, 30, 68.0..=70.0),
        // In the middle, the probability is 5 %. Even intervals of 1 to 20 packets make it 9.5 %.
        (25, 20, 30, 9.0..=10.0),
    ] {
        let now = Instant::now();
        let discipline = Discipline::Red { min: min * PACKET, max: max * PACKET };
        let mut queue = queue(QueueLimits { discipline, ..QueueLimits::NONE });
        queue.octets = length * PACKET;
        queue.red.average = (length * PACKET) << RED_FRACTION_BITS;
        for _ in 0..20_000 {
            push(&mut queue, now, Ecn::NotCapable);
            queue.octets = length * PACKET;
            queue.packets.clear();
        }
        let dropped = queue.counters().dropped_early as f64 / 200.0;
        assert!(percent.contains(&dropped), "{length}: {dropped} %");
    }
}

#[test]
fn red_marks_packets_that_can_be_marked() {
    let now = Instant::now();
    let discipline = Discipline::Red { min: PACKET, max: 2 * PACKET };
    let mut queue = queue(QueueLimits { discipline, ..QueueLimits::NONE });
    queue.octets = 5 * PACKET;
    queue.red.average = (5 * PACKET) << RED_FRACTION_BITS;
    push(&mut queue, now, Ecn::Capable);
    push(&mut queue, now, Ecn::NotCapable);
    assert_eq!((queue.counters().marked, queue.counters().dropped_early), (1, 1));
}

/// One packet in 512 moves the average by 1/512 of the difference. An idle time makes it fall.
#[test]
fn the_average_of_red_follows_the_queue_slowly() {
    let start = Instant::now();
    let discipline = Discipline::Red { min: 1 << 40, max: 1 << 41 };
    let mut queue = queue(QueueLimits { discipline, ..QueueLimits::NONE });
    queue.octets = 512 * PACKET;
    push(&mut queue, start, Ecn::NotCapable);
    assert_eq!(queue.red.average >> RED_FRACTION_BITS, 1000);
    queue.octets = PACKET;
    drain(&mut queue, start);
    // 355 packets take 2,840 us. (511/512)^355 is a half.
    push(&mut queue, start + Duration::from_micros(2840), Ecn::NotCapable);
    let average = queue.red.average >> RED_FRACTION_BITS;
    assert!((497..=501).contains(&average), "{average}");
}
