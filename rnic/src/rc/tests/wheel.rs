//! Compares the timer wheel with a list that is searched each time.

use std::collections::HashMap;

use super::*;

const TICK: Duration = Duration::from_nanos(1 << 16);

#[test]
fn a_key_fires_once_in_its_tick_and_never_early() {
    let start = Instant::now();
    for seed in 0..if cfg!(miri) { 1 } else { 50 } {
        let mut rng = Rng(seed);
        let (mut wheel, mut now) = (Wheel::new(start), start);
        // For each key, the latest time at which it must fire.
        let mut model: HashMap<usize, Instant> = HashMap::new();
        for _ in 0..if cfg!(miri) { 40 } else { 400 } {
            for _ in 0..rng.below(4) {
                let (key, far) = (rng.below(20), 1 << rng.below(44));
                let at = now + Duration::from_nanos(rng.below(far) as u64);
                wheel.set(key, Some(at));
                let fires = model.entry(key).or_insert(at);
                *fires = at.min(*fires);
            }
            if rng.chance(10) {
                let key = rng.below(20);
                wheel.clear(key);
                model.remove(&key);
            }
            let deadline = wheel.deadline();
            let earliest = model.values().min().copied();
            match (deadline, earliest) {
                (Some(deadline), Some(earliest)) => assert!(deadline <= earliest + TICK),
                (None, Some(_)) => panic!("forgotten"),
                // An entry for a cleared key may still be in the wheel.
                (_, None) => {}
            }
            now = match deadline {
                Some(at) if rng.chance(2) => at.max(now),
                _ => {
                    let far = 1 << rng.below(40);
                    now + Duration::from_nanos(rng.below(far) as u64)
                }
            };
            while let Some(key) = wheel.pop(now) {
                let at = model.remove(&key).expect("the key is set, and fires once");
                assert!(at <= now, "the key fired early");
            }
            assert!(model.values().all(|&at| at + TICK > now), "the key fired late");
        }
    }
}

#[test]
fn a_later_deadline_leaves_the_earlier_armed() {
    let start = Instant::now();
    let mut wheel = Wheel::new(start);
    wheel.set(3, Some(start + TICK));
    wheel.set(3, Some(start + 100 * TICK));
    wheel.set(3, None);
    assert_eq!(wheel.deadline(), Some(start + TICK));
    assert_eq!(wheel.pop(start), None);
    assert_eq!(wheel.pop(start + TICK), Some(3));
    assert_eq!(wheel.pop(start + 200 * TICK), None);
    assert_eq!(wheel.deadline(), None);
}

#[test]
fn an_earlier_deadline_takes_its_place() {
    let start = Instant::now();
    let mut wheel = Wheel::new(start);
    wheel.set(0, Some(start + 5000 * TICK));
    wheel.set(0, Some(start + 70 * TICK));
    assert_eq!(wheel.pop(start + 69 * TICK), None);
    assert_eq!(wheel.pop(start + 70 * TICK), Some(0));
    assert_eq!(wheel.pop(start + 6000 * TICK), None);
}

/// A caller that takes only one of two expired keys gets a deadline for the other key.
#[test]
fn two_of_one_tick_and_one_is_taken() {
    let start = Instant::now();
    let mut wheel = Wheel::new(start);
    (0..2).for_each(|key| wheel.set(key, Some(start + TICK)));
    assert!(wheel.pop(start + 3 * TICK).is_some());
    assert!(wheel.deadline().is_some_and(|at| at <= start + 3 * TICK));
    assert!(wheel.pop(start + 3 * TICK).is_some());
    assert_eq!((wheel.pop(start + 3 * TICK), wheel.deadline()), (None, None));
}

#[test]
fn what_is_long_past_or_very_far_is_no_harm() {
    let start = Instant::now();
    let (mut wheel, year) = (Wheel::new(start), Duration::from_secs(365 * 86_400));
    wheel.set(1, Some(start + year));
    assert!(wheel.deadline().is_some_and(|at| at < start + year));
    let later = start + Duration::from_secs(10);
    assert_eq!(wheel.pop(later), None);
    wheel.set(2, Some(start));
    assert_eq!(wheel.pop(later), Some(2));
    assert_eq!(wheel.pop(start + year), Some(1));
}
