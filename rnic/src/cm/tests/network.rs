//! A network that loses, repeats and reorders: either both sides are connected or both are told, and nothing is left.

use std::collections::BTreeMap;

use netem::Probability;

use super::*;

const NETWORKS: u64 = 1000;
/// Queue pairs of the active side. Each calls again when its number is released, up to so many calls in all.
const QPS: u16 = 8;
const CALLS: usize = 32;
/// After so many seconds nobody calls or disconnects any more, after so many all has settled, and everything is ended.
const BUSY: u32 = 200;
const SETTLED: u32 = 350;
const END: u32 = 600;

#[test]
#[cfg_attr(miri, ignore = "not a test: its volume takes Miri hours and shows it nothing new")]
fn a_thousand_networks() {
    let mut ends = BTreeMap::<String, usize>::new();
    for seed in 0..NETWORKS {
        let percent = Probability::percent(seed as u32 % 21);
        // Datagrams of whole attempts overtake each other.
        let jitter = [Duration::ZERO, Duration::from_millis(100), 6 * SECOND][seed as usize % 3];
        let conditions = Conditions {
            loss: percent,
            duplicate: percent,
            reorder: percent,
            jitter,
            seed,
            ..Conditions::OFF
        };
        for end in Network::new(conditions).run() {
            *ends.entry(end).or_default() += 1;
        }
    }
    // That all of these happened, often, is what gives the rest a meaning.
    let accepted = ["Accepted Disconnected", "Established Disconnected", "AcceptFailed"];
    let not_accepted = ["Rejected", "Disconnected", "TimedOut", "Withdrawn"];
    for end in accepted.into_iter().chain(not_accepted) {
        assert!(ends.get(end).is_some_and(|&times| times > 400), "{end}: {ends:?}");
    }
}

/// Two adapters with a network between them, and their consumers.
struct Network {
    pair: Pair,
    dice: Rng,
    /// What each consumer was told of each of its connections.
    told: [BTreeMap<ConnId, Vec<Event>>; 2],
    /// The calls, in their order; the caller's port says which it is.
    calls: Vec<ConnId>,
}

impl Network {
    fn new(conditions: Conditions) -> Self {
        let dice = Rng(conditions.seed);
        let busy = conditions.seed.is_multiple_of(2);
        Network {
            pair: Pair { busy, ..Pair::over(conditions) },
            dice,
            told: [BTreeMap::new(), BTreeMap::new()],
            calls: vec![],
        }
    }

    /// What was told of each connection, in words.
    fn run(mut self) -> Vec<String> {
        self.pair.cms[B].listen(PORT, QPS.into()).unwrap();
        for qp in 0..QPS {
            self.call(u32::from(qp) << 7 | 1);
        }
        for second in 0..END {
            self.pair.pass(SECOND);
            for side in [A, B] {
                self.hear(side, second);
                self.act(side, second);
            }
            if second == SETTLED {
                self.agree();
            }
        }
        assert!(self.pair.is_empty(), "something is left");
        assert_eq!(self.told[A].len(), self.calls.len());
        self.told.iter().flat_map(BTreeMap::values).map(|told| summary(told)).collect()
    }

    fn call(&mut self, qpn: u32) {
        let patience = SECOND * self.dice.below(20) as u32;
        let deadline = self.dice.chance(4).then(|| self.pair.now + patience);
        let port = self.calls.len() as u16;
        let id = self.pair.connect_with(|call| {
            call.qpn = qpn;
            call.deadline = deadline;
            call.local.set_port(port);
        });
        self.calls.push(id);
    }

    fn hear(&mut self, side: usize, second: u32) {
        for (id, event) in self.pair.told(side) {
            let told = self.told[side].entry(id).or_default();
            let released = matches!(event, Event::Released { .. });
            assert_eq!(ended(told), released, "{event:?} after {told:?}");
            told.push(event.clone());
            if let Event::Released { qpn } = event
                && side == A
                && second < BUSY
                && self.calls.len() < CALLS
            {
                self.call(qpn);
            }
        }
    }

    fn act(&mut self, side: usize, second: u32) {
        let Network { pair, dice, told, .. } = self;
        for (&id, told) in &told[side] {
            match told.last().unwrap() {
                Event::Request(_) if pair.state(side, id) == State::ReqRcvd && dice.chance(8) => {
                    match dice.chance(4) {
                        true => {
                            pair.cms[side].reject(pair.now, id, Reason::CONSUMER, b"no").unwrap()
                        }
                        false => pair.accept(id, id.0 & 0xFF_FFFF),
                    }
                }
                // Not yet established.
                Event::Request(_) if pair.state(side, id) == State::RepSent && dice.chance(100) => {
                    pair.cms[side].disconnect(pair.now, id, Ending::Graceful);
                }
                Event::Accepted(_) | Event::Established => {
                    let tired =
                        second < BUSY && dice.chance(128) || second > SETTLED && dice.chance(16);
                    let ending = [Ending::Graceful, Ending::Abrupt][dice.below(2)];
                    if tired {
                        pair.cms[side].disconnect(pair.now, id, ending);
                    }
                }
                Event::Disconnecting { .. } if dice.chance(3) => {
                    pair.cms[side].disconnect(pair.now, id, Ending::Graceful);
                }
                _ => {}
            }
        }
    }

    /// What one side takes for a connection, the other does too, with the same numbers.
    fn agree(&self) {
        let Network { pair, told, calls, .. } = self;
        let up = |side: usize| {
            told[side].keys().copied().filter(move |&id| pair.state(side, id) == State::Established)
        };
        let mut passive: Vec<_> = up(B)
            .map(|id| {
                let Event::Request(request) = &told[B][&id][0] else {
                    panic!("{:?}", told[B][&id])
                };
                (calls[usize::from(request.from.port())], id)
            })
            .collect();
        passive.sort();
        assert!(
            up(A).eq(passive.iter().map(|&(a, _)| a)),
            "{:?}, {passive:?}",
            up(A).collect::<Vec<_>>()
        );
        for (a, b) in passive {
            let [a, b] = [&pair.cms[A].conns[&a.0], &pair.cms[B].conns[&b.0]];
            assert_eq!((a.peer.id, Some(a.peer.qpn)), (b.id, b.qpn));
            assert_eq!((b.peer.id, Some(b.peer.qpn)), (a.id, a.qpn));
        }
    }
}

fn ended(told: &[Event]) -> bool {
    let open = |event: &Event| {
        matches!(
            event,
            Event::Request(_)
                | Event::Accepted(_)
                | Event::Established
                | Event::Disconnecting { .. }
        )
    };
    told.iter().any(|event| !open(event))
}

fn summary(told: &[Event]) -> String {
    let name = |event: &Event| format!("{event:?}").split(['(', ' ']).next().unwrap().to_owned();
    let silent = |event: &&Event| {
        !matches!(event, Event::Request(_) | Event::Disconnecting { .. } | Event::Released { .. })
    };
    told.iter().filter(silent).map(name).collect::<Vec<_>>().join(" ")
}
