//! Tests over networks that lose, repeat and reorder messages. Each attempt has one event, each
//! attempt makes at most one request, and both sides agree on the answer.

use std::collections::{BTreeMap, HashMap};

use netem::Probability;

use super::*;
use crate::tests::Rng;

const NETWORKS: u64 = 1000;
const CALLS: u32 = 24;
/// The time in which all calls are made.
const CALL_SECONDS: usize = 20;

#[test]
#[cfg_attr(miri, ignore = "not a test: it takes hours in Miri, which would find nothing new")]
fn a_thousand_networks() {
    let mut ends = BTreeMap::<&str, usize>::new();
    for seed in 0..NETWORKS {
        let percent = Probability::percent(seed as u32 % 5 * 20);
        // With the longest jitter, the REQs of an attempt overtake each other.
        let jitter = [Duration::ZERO, Duration::from_millis(100), 6 * SECOND][seed as usize % 3];
        let (loss, duplicate, reorder) = (percent, percent, percent);
        let conditions = Conditions { loss, duplicate, reorder, jitter, seed, ..Conditions::OFF };
        for end in run(conditions) {
            *ends.entry(end).or_default() += 1;
        }
    }
    // The test is useful only if each of these endings happened often.
    for end in ["resolved", "rejected", "no listener", "no answer", "timed out", "cancelled"] {
        assert!(ends.get(end).is_some_and(|&times| times > 200), "{end}: {ends:?}");
    }
}

/// Returns how each attempt ended.
fn run(conditions: Conditions) -> Vec<&'static str> {
    let mut rng = Rng(conditions.seed);
    let mut net = Net::over(conditions);
    // Both managers of the passive address have listeners. Nobody listens to the third port.
    net.managers[B].listen(PORT, 4).unwrap();
    net.managers[B2].listen(PORT + 1, 4).unwrap();

    let mut calls: Vec<(usize, ResolveId)> = vec![];
    let mut ends: Vec<Option<&'static str>> = vec![];
    // The answers to the requests, by the private data of the attempt.
    let mut answers = HashMap::<Vec<u8>, Event>::new();
    let mut undecided = vec![];
    for second in 0..260 {
        while calls.len() < CALLS as usize && second < CALL_SECONDS && rng.chance(2) {
            let n = calls.len() as u32;
            let at = [A, A2][rng.below(2)];
            let private = n.to_be_bytes();
            let mut call = Resolve { private: &private, ..call() };
            call.remote.set_port(PORT + rng.below(3) as u16);
            call.deadline = rng.chance(4).then(|| net.now + SECOND * rng.below(10) as u32);
            let id = net.managers[at].resolve(net.now, &call).unwrap();
            calls.push((at, id));
            ends.push(None);
        }
        net.pass(SECOND);
        for at in [B, B2] {
            for (id, event) in net.events(at) {
                let Event::Request { private, caller, to, .. } = event else { panic!("{event:?}") };
                assert_eq!((caller, to.port()), (Some(CALLER), PORT + (at / 2) as u16));
                undecided.push((at, id, private));
            }
        }
        undecided.retain(|(at, id, private): &(usize, ResolveId, Vec<u8>)| {
            if !rng.chance(3) {
                return true;
            }
            let manager = &mut net.managers[*at];
            let answer = if rng.chance(3) {
                manager.reject(net.now, *id, SidrStatus::REJECT, private).unwrap();
                refused(SidrStatus::REJECT, private)
            } else {
                manager.accept(net.now, *id, SERVICE, private).unwrap();
                resolved(private)
            };
            let earlier = answers.insert(private.clone(), answer);
            assert_eq!(earlier, None, "an attempt made two requests");
            false
        });
        for at in [A, A2] {
            for (id, event) in net.events(at) {
                let n = calls.iter().position(|call| *call == (at, id)).expect("a call");
                let answer = answers.get(&(n as u32).to_be_bytes()[..]);
                let end = match &event {
                    Event::Refused { status: SidrStatus::UNSUPPORTED, .. } => "no listener",
                    Event::Refused { .. } => "rejected",
                    Event::Resolved { .. } => "resolved",
                    Event::NoAnswer => "no answer",
                    Event::TimedOut => "timed out",
                    Event::Request { .. } => panic!("{event:?}"),
                };
                if matches!(end, "rejected" | "resolved") {
                    assert_eq!(answer, Some(&event));
                }
                assert_eq!(ends[n].replace(end), None, "an attempt had two events");
            }
        }
        if !calls.is_empty() && rng.chance(8) {
            let n = rng.below(calls.len());
            let (at, id) = calls[n];
            net.managers[at].cancel(id);
            ends[n].get_or_insert("cancelled");
        }
    }
    assert!(undecided.is_empty());
    assert_eq!(net.deadline(), None, "an attempt is left");
    ends.into_iter().map(|end| end.expect("each attempt ends")).collect()
}
