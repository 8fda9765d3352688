//! Tests over networks that lose, repeat and reorder messages. In the end either both sides are
//! connected, or both have an event that says that they are not. No state is left.

use std::collections::BTreeMap;

use netem::Probability;

use super::*;

const NETWORKS: u64 = 1000;
/// The number of queue pairs of the active side. Each queue pair calls again when its number is
/// released, until there were `CALLS` calls in all.
const QPS: u16 = 8;
const CALLS: usize = 32;
/// BUSY_SECONDS: the time after which no side calls or disconnects any more. SETTLED_SECONDS: the
/// time after which all connections are settled. END_SECONDS: the time after which all have ended.
const BUSY_SECONDS: u32 = 200;
const SETTLED_SECONDS: u32 = 350;
const END_SECONDS: u32 = 600;

#[test]
#[cfg_attr(miri, ignore = "not a test: it takes hours in Miri, which would find nothing new")]
fn a_thousand_networks() {
    run_networks(false);
}

/// The passive side has two managers, and one of them answers requests that arrived at the other.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes hours in Miri, which would find nothing new")]
fn a_thousand_networks_with_two_managers() {
    run_networks(true);
}

fn run_networks(hands_over: bool) {
    let mut ends = BTreeMap::<String, usize>::new();
    for seed in 0..NETWORKS {
        let percent = Probability::percent(seed as u32 % 21);
        // With the longest jitter, the datagrams of whole attempts overtake each other.
        let jitter = [Duration::ZERO, Duration::from_millis(100), 6 * SECOND][seed as usize % 3];
        let conditions = Conditions {
            loss: percent,
            duplicate: percent,
            reorder: percent,
            jitter,
            seed,
            ..Conditions::OFF
        };
        for end in Network::new(conditions, hands_over).run() {
            *ends.entry(end).or_default() += 1;
        }
    }
    // The test is useful only if each of these endings happened often.
    let accepted = ["Accepted Disconnected", "Established Disconnected", "AcceptFailed"];
    let not_accepted = ["Rejected", "Disconnected", "TimedOut", "Withdrawn"];
    for end in accepted.into_iter().chain(not_accepted) {
        assert!(ends.get(end).is_some_and(|&times| times > 400), "{end}: {ends:?}");
    }
}

/// Two adapters with a network between them, and their programs.
struct Network {
    pair: Pair,
    rng: Rng,
    /// The number of queue pairs of the passive side, each of which has another number.
    passive_qps: u32,
    /// Whether B hands some requests over to C.
    hands_over: bool,
    /// The events that each program got, by connection.
    events: [BTreeMap<ConnId, Vec<Event>>; 3],
    /// The calls in their order. The caller's port is the index of the call.
    calls: Vec<ConnId>,
}

impl Network {
    fn new(conditions: Conditions, hands_over: bool) -> Self {
        let rng = Rng(conditions.seed);
        let busy = conditions.seed.is_multiple_of(2);
        Network {
            pair: Pair { busy, ..Pair::over(conditions) },
            rng,
            passive_qps: 0,
            hands_over,
            events: Default::default(),
            calls: vec![],
        }
    }

    /// Returns the names of the events of each connection.
    fn run(mut self) -> Vec<String> {
        self.pair.cms[B].listen(PORT, QPS.into()).unwrap();
        for qp in 0..QPS {
            self.call(u32::from(qp) << 7 | 1);
        }
        for second in 0..END_SECONDS {
            self.pair.pass(SECOND);
            for side in [A, B, C] {
                self.take_events(side, second);
                self.act(side, second);
            }
            if second == SETTLED_SECONDS {
                self.assert_agreement();
            }
        }
        assert!(self.pair.is_empty(), "some state is left after the connections have ended");
        assert_eq!(self.events[A].len(), self.calls.len());
        self.events.iter().flat_map(BTreeMap::values).map(|events| summary(events)).collect()
    }

    fn call(&mut self, qpn: u32) {
        let timeout = SECOND * self.rng.below(20) as u32;
        let deadline = self.rng.chance(4).then(|| self.pair.now + timeout);
        let port = self.calls.len() as u16;
        let id = self.pair.connect_with(|call| {
            call.qpn = qpn;
            call.deadline = deadline;
            call.local.set_port(port);
        });
        self.calls.push(id);
    }

    fn take_events(&mut self, side: usize, second: u32) {
        for (id, event) in self.pair.events(side) {
            let events = self.events[side].entry(id).or_default();
            let released = matches!(event, Event::Released { .. });
            assert_eq!(ended(events), released, "{event:?} after {events:?}");
            events.push(event.clone());
            if let Event::Released { qpn } = event
                && side == A
                && second < BUSY_SECONDS
                && self.calls.len() < CALLS
            {
                self.call(qpn);
            }
        }
    }

    fn act(&mut self, side: usize, second: u32) {
        let Network { pair, rng, events, passive_qps, hands_over, .. } = self;
        let mut moved = vec![];
        for (&id, events) in &events[side] {
            match events.last().unwrap() {
                Event::Request(_)
                    if *hands_over
                        && side == B
                        && pair.state(B, id) == State::ReqRcvd
                        && rng.chance(4) =>
                {
                    let handed_over = pair.cms[B].hand_over(pair.now, id).unwrap();
                    let id = pair.cms[C].adopt(handed_over);
                    moved.extend(id.map(|id| (id, events.clone())));
                }
                Event::Request(_) if pair.state(side, id) == State::ReqRcvd && rng.chance(8) => {
                    match rng.chance(4) {
                        true => {
                            pair.cms[side].reject(pair.now, id, Reason::CONSUMER, b"no").unwrap()
                        }
                        false => {
                            *passive_qps += 1;
                            let accept = Accept { qpn: *passive_qps, ..accept() };
                            pair.cms[side].accept(pair.now, id, &accept).unwrap();
                        }
                    }
                }
                // The connection is not yet established.
                Event::Request(_) if pair.state(side, id) == State::RepSent && rng.chance(100) => {
                    pair.cms[side].disconnect(pair.now, id, Ending::Graceful);
                }
                Event::Accepted(_) | Event::Established => {
                    let disconnects = second < BUSY_SECONDS && rng.chance(128)
                        || second > SETTLED_SECONDS && rng.chance(16);
                    let ending = [Ending::Graceful, Ending::Abrupt][rng.below(2)];
                    if disconnects {
                        pair.cms[side].disconnect(pair.now, id, ending);
                    }
                }
                Event::Disconnecting { .. } if rng.chance(3) => {
                    pair.cms[side].disconnect(pair.now, id, Ending::Graceful);
                }
                _ => {}
            }
        }
        events[C].extend(moved);
    }

    /// Checks that both sides have the same connections, with the same IDs and numbers.
    fn assert_agreement(&self) {
        let Network { pair, events, calls, .. } = self;
        let up = |side: usize| {
            events[side]
                .keys()
                .copied()
                .filter(move |&id| pair.state(side, id) == State::Established)
        };
        let passive = [B, C].into_iter().flat_map(|side| up(side).map(move |id| (side, id)));
        let mut passive: Vec<_> = passive
            .map(|(side, id)| {
                let Event::Request(request) = &events[side][&id][0] else {
                    panic!("{:?}", events[side][&id])
                };
                (calls[usize::from(request.from.port())], (side, id))
            })
            .collect();
        passive.sort();
        assert!(
            up(A).eq(passive.iter().map(|&(a, _)| a)),
            "{:?}, {passive:?}",
            up(A).collect::<Vec<_>>()
        );
        for (a, (side, b)) in passive {
            let [a, b] = [&pair.cms[A].conns[&a.0], &pair.cms[side].conns[&b.0]];
            assert_eq!((a.peer.id, Some(a.peer.qpn)), (b.id, b.qpn));
            assert_eq!((b.peer.id, Some(b.peer.qpn)), (a.id, a.qpn));
        }
    }
}

fn ended(events: &[Event]) -> bool {
    let open = |event: &Event| {
        matches!(
            event,
            Event::Request(_)
                | Event::Accepted(_)
                | Event::Established
                | Event::Disconnecting { .. }
        )
    };
    events.iter().any(|event| !open(event))
}

fn summary(events: &[Event]) -> String {
    let name = |event: &Event| format!("{event:?}").split(['(', ' ']).next().unwrap().to_owned();
    let silent = |event: &&Event| {
        !matches!(event, Event::Request(_) | Event::Disconnecting { .. } | Event::Released { .. })
    };
    events.iter().filter(silent).map(name).collect::<Vec<_>>().join(" ")
}
