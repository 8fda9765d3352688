//! A network that loses, repeats and reorders: either both sides are connected or both are told, and nothing is left.

use std::collections::BTreeMap;

use netem::Probability;

use super::*;

const CALLS: u32 = 8;
const NETWORKS: u64 = if cfg!(miri) { 3 } else { 1000 };

/// Seeded choices of the consumers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ mixed >> 27) % n
    }
}

#[test]
fn thousand_networks() {
    let mut ends = BTreeMap::<String, usize>::new();
    for seed in 0..NETWORKS {
        let percent = Probability::percent(seed as u32 % 21);
        // Datagrams of a whole attempt overtake each other.
        let jitter = [Duration::ZERO, Duration::from_millis(100), 6 * SECOND][seed as usize % 3];
        let conditions = Conditions {
            loss: percent,
            duplicate: percent,
            reorder: percent,
            jitter,
            seed,
            ..Conditions::OFF
        };
        for end in one_network(conditions) {
            *ends.entry(end).or_default() += 1;
        }
    }
    // That all happened is what makes the rest mean something.
    for end in [
        "Accepted Disconnected",
        "Rejected",
        "Disconnected",
        "TimedOut",
        "Established Disconnected",
        "Withdrawn",
    ] {
        assert!(cfg!(miri) || ends.get(end).is_some_and(|&times| times > 100), "{end}: {ends:?}");
    }
}

/// What each consumer was told of each of its connections, without the requests and releases.
fn one_network(conditions: Conditions) -> Vec<String> {
    let seed = conditions.seed;
    let mut pair = Pair::over(conditions);
    let mut dice = Dice(seed);
    pair.cms[B].listen(PORT, CALLS as usize).unwrap();
    let mut told = [BTreeMap::<ConnId, Vec<Event>>::new(), BTreeMap::new()];
    let mut names = BTreeMap::new();
    for call in 0..CALLS {
        let deadline = (dice.below(4) == 0).then(|| pair.now + SECOND * dice.below(20) as u32);
        let port = 40_000 + call as u16;
        let id = pair.connect_with(|connect| {
            connect.qpn = call << 7 | 1;
            connect.deadline = deadline;
            connect.local.set_port(port);
        });
        names.insert(port, id);
    }

    // The consumers' turn comes each second, until all is said and everything in the air has arrived.
    for turn in 0..400 {
        pair.pass(SECOND);
        for side in [A, B] {
            for (id, event) in pair.told(side) {
                let told = told[side].entry(id).or_default();
                assert!(!ended(told) || matches!(event, Event::Released { .. }), "{event:?} after {told:?}");
                told.push(event);
            }
            for (&id, told) in &told[side] {
                let last = told.last().unwrap();
                match last {
                    Event::Request(_) if pair.state(side, id) == State::ReqRcvd && dice.below(8) == 0 => {
                        match dice.below(4) {
                            0 => pair.cms[side].reject(pair.now, id, Reason::CONSUMER, b"no").unwrap(),
                            _ => pair.accept(id, id.0 & 0xFF_FFFF),
                        }
                    }
                    Event::Request(_) if pair.state(side, id) == State::RepSent && dice.below(100) == 0 => {
                        pair.cms[side].disconnect(pair.now, id, Ending::Graceful);
                    }
                    Event::Accepted(_) | Event::Established if turn > 150 && dice.below(16) == 0 => {
                        let ending = [Ending::Graceful, Ending::Abrupt][dice.below(2) as usize];
                        pair.cms[side].disconnect(pair.now, id, ending);
                    }
                    _ => {}
                }
            }
        }
        if turn == 150 {
            agree(&pair, &told, &names);
        }
    }
    assert!(pair.is_empty(), "seed {seed}: something is left");
    assert_eq!(told[A].len(), CALLS as usize);
    told.iter().flat_map(BTreeMap::values).map(|told| summary(told)).collect()
}

/// Nothing has changed for a while: what one side takes for a connection, the other does too.
fn agree(pair: &Pair, told: &[BTreeMap<ConnId, Vec<Event>>; 2], names: &BTreeMap<u16, ConnId>) {
    let up = |side: usize| told[side].keys().filter(move |&&id| pair.state(side, id) == State::Established);
    let callers = up(B).map(|&id| {
        let Some(Event::Request(request)) = told[B][&id].first() else { panic!() };
        (names[&request.from.port()], id)
    });
    let (mut active, mut passive): (Vec<_>, Vec<_>) = (up(A).copied().collect(), callers.collect());
    active.sort();
    passive.sort();
    assert_eq!(active, passive.iter().map(|&(a, _)| a).collect::<Vec<_>>());
    for (a, b) in passive {
        let [a, b] = [&pair.cms[A].conns[&a.0], &pair.cms[B].conns[&b.0]];
        assert_eq!((a.peer.id, a.peer.qpn), (b.id, b.qpn.unwrap()));
        assert_eq!((b.peer.id, b.peer.qpn), (a.id, a.qpn.unwrap()));
    }
}

fn ended(told: &[Event]) -> bool {
    let open = |event: &Event| matches!(event, Event::Request(_) | Event::Accepted(_) | Event::Established);
    told.iter().any(|event| !open(event))
}

fn summary(told: &[Event]) -> String {
    let name = |event: &Event| format!("{event:?}").split(['(', ' ']).next().unwrap().to_owned();
    let silent = |event: &&Event| !matches!(event, Event::Request(_) | Event::Released { .. });
    told.iter().filter(silent).map(name).collect::<Vec<_>>().join(" ")
}
