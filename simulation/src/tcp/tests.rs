//! A sender and a receiver with a constant delay between them, and losses that the test chooses.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::*;

const ROUND_TRIP: Duration = Duration::from_millis(10);

/// A transfer that has ended.
struct Outcome {
    /// The time and the number of each transmission.
    sent: Vec<(Duration, u64)>,
    elapsed: Duration,
    window: u64,
}

impl Outcome {
    /// The times at which a segment was sent.
    fn times(&self, number: u64) -> Vec<Duration> {
        self.sent.iter().filter(|(_, sent)| *sent == number).map(|(at, _)| *at).collect()
    }
}

/// Sends segments. `travel` returns the time that the n-th transmission of a segment takes to the
/// receiver, or `None` if it is lost. Acknowledgements take no time.
fn transfer(segments: u64, travel: impl Fn(u64, usize) -> Option<Duration>) -> Outcome {
    let start = Instant::now();
    let (mut sender, mut receiver) =
        (Sender::new(Algorithm::Reno, ROUND_TRIP), Receiver::default());
    let (mut now, mut sent) = (start, Vec::new());
    let mut transmissions = BTreeMap::new();
    let mut under_way: VecDeque<(Instant, u64)> = VecDeque::new();
    sender.supply(segments);
    while sender.acknowledged() < segments {
        while let Some(number) = sender.transmit(now) {
            let count = transmissions.entry(number).or_insert(0);
            if let Some(time) = travel(number, *count) {
                let behind = under_way.partition_point(|&(at, _)| at <= now + time);
                under_way.insert(behind, (now + time, number));
            }
            *count += 1;
            sent.push((now - start, number));
        }
        let arrival = under_way.front().map(|&(at, _)| at);
        now = arrival.into_iter().chain(sender.deadline()).min().expect("the transfer goes on");
        assert!(now - start < Duration::from_secs(60), "the transfer stalls");
        if let Some((_, number)) = under_way.pop_front_if(|(at, _)| *at <= now) {
            sender.receive(now, &receiver.receive(number));
        }
        sender.expire(now);
    }
    assert_eq!(receiver.next(), segments);
    Outcome { sent, elapsed: now - start, window: sender.window() }
}

#[test]
fn slow_start_without_losses() {
    let outcome = transfer(70, |_, _| Some(ROUND_TRIP));
    // 10, 20 and 40 segments.
    assert_eq!(outcome.elapsed, ROUND_TRIP * 3);
    assert_eq!(outcome.sent.len(), 70);
}

#[test]
fn a_lost_segment_is_sent_again_once_and_halves_the_window_once() {
    let outcome = transfer(70, |number, count| ((number, count) != (12, 0)).then_some(ROUND_TRIP));
    assert_eq!(outcome.sent.len(), 71);
    assert_eq!(outcome.times(12), [ROUND_TRIP, ROUND_TRIP * 2]);
    assert!(outcome.window < 25, "{}", outcome.window);
}

/// All losses of a window are repaired in one round trip, as far as the window permits.
#[test]
fn several_lost_segments_of_a_window_are_repaired_together() {
    let lost = |number| (10..30).contains(&number) && number % 4 == 0;
    let outcome = transfer(30, |number, count| (!lost(number) || count > 0).then_some(ROUND_TRIP));
    for number in (12..28).step_by(4) {
        assert_eq!(outcome.times(number).len(), 2, "{number}");
        assert_eq!(outcome.times(number)[1], ROUND_TRIP * 2, "{number}");
    }
    assert_eq!(outcome.elapsed, ROUND_TRIP * 3);
}

/// RACK also notices that a segment was lost again.
#[test]
fn a_segment_that_is_lost_twice_needs_no_timeout() {
    let outcome = transfer(200, |number, count| (number != 12 || count > 1).then_some(ROUND_TRIP));
    assert_eq!(outcome.times(12), [ROUND_TRIP, ROUND_TRIP * 2, ROUND_TRIP * 3]);
}

#[test]
fn the_last_segment_is_probed_after_two_round_trips() {
    let outcome = transfer(30, |number, count| (number != 29 || count > 0).then_some(ROUND_TRIP));
    assert_eq!(outcome.times(29), [ROUND_TRIP, ROUND_TRIP * 4]);
}

#[test]
fn a_network_that_is_down_costs_timeouts_that_double() {
    let outcome = transfer(5, |_, count| (count > 3).then_some(ROUND_TRIP));
    let seconds: Vec<f64> = outcome.times(0).iter().map(Duration::as_secs_f64).collect();
    // After two round trips, the last segment is probed. Then the minimum timeout of 0.2 s follows,
    // and it is doubled each time.
    assert_eq!(seconds, [0.0, 0.22, 0.62, 1.42, 3.02]);
}

#[test]
fn reordering_is_tolerated_once_it_was_seen() {
    // Each 20th segment takes 1.5 ms more, while a quarter of the round trip is 2.5 ms.
    let late = Duration::from_micros(1500);
    let outcome = transfer(1000, |number, _| {
        Some(ROUND_TRIP + if number % 20 == 15 { late } else { Duration::ZERO })
    });
    assert!(outcome.sent.len() <= 1001, "{}", outcome.sent.len());
}

#[test]
fn acknowledgements_have_the_latest_ranges_first() {
    let mut receiver = Receiver::default();
    assert_eq!(receiver.receive(0), Ack { next: 1, ranges: [(0, 0); 3] });
    assert_eq!(receiver.receive(3).ranges, [(3, 4), (0, 0), (0, 0)]);
    assert_eq!(receiver.receive(5).ranges, [(5, 6), (3, 4), (0, 0)]);
    assert_eq!(receiver.receive(4).ranges, [(3, 6), (0, 0), (0, 0)]);
    assert_eq!(receiver.receive(8).ranges, [(8, 9), (3, 6), (0, 0)]);
    assert_eq!(receiver.receive(4).ranges, [(8, 9), (3, 6), (0, 0)]);
    assert_eq!(receiver.receive(1), Ack { next: 2, ranges: [(8, 9), (3, 6), (0, 0)] });
    assert_eq!(receiver.receive(2), Ack { next: 6, ranges: [(8, 9), (0, 0), (0, 0)] });
}
