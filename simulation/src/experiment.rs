//! Runs a scenario.

use std::num::NonZeroU64;
use std::rc::Rc;
use std::time::{Duration, Instant};

use netem::SplitMix64;
use wire::rocev2::Psn;

use crate::agenda::Agenda;
use crate::ends::{Content, End, Outgoing, RXE_MEMORY, Rxe, Softroce, TcpSink, TcpSource};
use crate::network::{ACCESS_RATE_MULTIPLE, Ecn, Host, Network, Packet};
use crate::posted_messages::{Load, PostedMessages};
use crate::queue_pair::Memory;
use crate::report::{jain, percentile};
use crate::tcp::Algorithm;
use crate::{Operation, Protocol, Receives, Report, Scenario, Series};

/// The flows start at random times in this interval, so that they are not in step.
const START_SPREAD: Duration = Duration::from_micros(100);
/// An experiment without a time ends after this time.
const TIME_MAX: Duration = Duration::from_secs(120);
/// The messages of cross traffic: their size and how many each flow has outstanding.
const CROSS_SIZE: u32 = 64 << 10;
const CROSS_DEPTH: usize = 16;
/// The drops and the maximum of the queue after this time are reported separately.
const START_UP: Duration = Duration::from_secs(1);
/// If the link of a host has this many octets to transmit, the host takes no more packets from its
/// ends: the send buffer of their socket is full. The number is Linux's default.
const SEND_BUFFER_OCTETS: u64 = 212_992;
/// The index of the end of a flow that sends data, and of the end that receives them.
const SOURCE: usize = 0;
const SINK: usize = 1;

/// Runs a scenario. The flows under test have this protocol.
///
/// # Panics
/// Panics if the protocol does not [suit](Scenario::suits) the scenario.
pub fn run(scenario: &Scenario, protocol: Protocol) -> Report {
    assert!(scenario.suits(protocol), "{protocol} does not suit the scenario");
    let mut experiment = Experiment::new(scenario, protocol);
    experiment.drive();
    experiment.report()
}

struct Experiment<'a> {
    scenario: &'a Scenario,
    protocol: Protocol,
    flows: Vec<Flow>,
    network: Network<(usize, Content)>,
    /// The links whose queues are reported.
    bottlenecks: Vec<usize>,
    /// The deadlines of the ends. The ends of flow n have the numbers 2n and 2n + 1.
    agenda: Agenda,
    start: Instant,
    now: Instant,
    queue: Series,
    /// What has happened until the end of [`START_UP`]. `None` before.
    early: Option<Early>,
}

/// What the bottleneck has done until the end of [`START_UP`].
struct Early {
    dropped: u64,
    queue_max: u64,
}

struct Flow {
    protocol: Protocol,
    /// Whether the flow is under test.
    is_main: bool,
    ends: [Box<dyn End>; 2],
    hosts: [Host; 2],
    is_done: bool,
    /// The numbers of payload octets and of packets that both ends have sent.
    payload_sent: u64,
    packets_sent: u64,
    /// The part of `payload_sent` that had been sent before.
    payload_repeated: u64,
    /// What each end has sent.
    sent: [SentNumbers; 2],
    arrivals: Series,
}

/// How far an end has sent packets with payload: the number of the first segment of TCP, and the
/// first PSN, that it has never sent.
#[derive(Default)]
struct SentNumbers {
    segment: u64,
    psn: Option<Psn>,
}

impl SentNumbers {
    /// Records that a packet is sent. Returns whether it was sent before.
    fn is_repeated(&mut self, content: &Content) -> bool {
        match content {
            Content::TcpAck(_) => false,
            Content::TcpSegment(number) => {
                let is_repeated = *number < self.segment;
                self.segment = self.segment.max(number + 1);
                is_repeated
            }
            Content::RoceV2(octets) => {
                let Ok(packet) = wire::rocev2::Packet::parse(octets) else { return false };
                if packet.payload.is_empty() {
                    return false;
                }
                let psn = packet.bth.psn;
                let is_repeated = self.psn.is_some_and(|unsent| psn.is_before(unsent));
                if !is_repeated {
                    self.psn = Some(psn.next());
                }
                is_repeated
            }
        }
    }
}

impl<'a> Experiment<'a> {
    fn new(scenario: &'a Scenario, protocol: Protocol) -> Self {
        let start = Instant::now();
        let seed = scenario.dumbbell.conditions.seed;
        let mut rng = SplitMix64::new(seed);
        let main = std::iter::repeat_n((protocol, true), scenario.flows);
        let cross = scenario
            .cross_traffic
            .into_iter()
            .flat_map(|(protocol, flows)| std::iter::repeat_n((protocol, false), flows));
        let all: Vec<_> = main.chain(cross).collect();
        let (topology, layout) = scenario.dumbbell.topology(all.len());
        let memory = Memory::new(scenario.size.max(CROSS_SIZE) as usize);
        let flow = |(number, &(protocol, is_main)): (usize, &(Protocol, bool))| {
            let spread = START_SPREAD.as_nanos() as u64;
            let begin = start + Duration::from_nanos(1 + rng.below(spread));
            Flow {
                protocol,
                is_main,
                ends: ends(scenario, protocol, is_main, &memory, begin, start),
                hosts: [layout.sources[number], layout.sinks[number]],
                is_done: false,
                payload_sent: 0,
                packets_sent: 0,
                payload_repeated: 0,
                sent: Default::default(),
                arrivals: Series::of_sums(),
            }
        };
        let flows: Vec<_> = all.iter().enumerate().map(flow).collect();
        Experiment {
            network: Network::new(&topology, scenario.dumbbell.balance, seed),
            bottlenecks: layout.bottlenecks,
            agenda: Agenda::new(2 * flows.len()),
            flows,
            scenario,
            protocol,
            start,
            now: start,
            queue: Series::of_maxima(),
            early: None,
        }
    }

    /// Runs until all messages are complete, or until the time has passed.
    fn drive(&mut self) {
        let end = self.start + self.scenario.time.unwrap_or(TIME_MAX);
        let mut touched: Vec<usize> = (0..2 * self.flows.len()).collect();
        loop {
            while !touched.is_empty() {
                self.act(&mut touched);
                self.collect(&mut touched);
            }
            if self.is_done() {
                break;
            }
            let next = self.network.deadline();
            let next = next.into_iter().chain(self.agenda.first().map(|(at, _)| at)).min();
            // A deadline that has passed already is handled a nanosecond later.
            let next = next.map(|at| at.max(self.now + Duration::from_nanos(1)));
            let Some(next) = next.filter(|&at| at < end) else {
                self.now = end;
                break;
            };
            self.now = next;
            self.collect(&mut touched);
        }
    }

    /// Lets ends act, and clears the list of their numbers.
    fn act(&mut self, touched: &mut Vec<usize>) {
        let mut out = Vec::new();
        touched.sort_unstable();
        touched.dedup();
        for number in touched.drain(..) {
            let (index, side) = (number / 2, number % 2);
            let flow = &mut self.flows[index];
            let backlog = self.network.queued_octets(flow.hosts[side].uplink);
            if backlog >= SEND_BUFFER_OCTETS {
                self.agenda.set(number, Some(self.now + self.transmission_time(backlog / 2)));
                continue;
            }
            flow.ends[side].act(self.now, &mut out);
            let deadline = flow.ends[side].deadline();
            self.agenda.set(number, deadline.map(|at| at.max(self.now + Duration::from_nanos(1))));
            flow.is_done |= flow.is_main
                && flow.ends.iter().any(|end| {
                    end.failure().is_some() || end.requests().is_some_and(PostedMessages::is_done)
                });
            for Outgoing { content, octets, payload, ecn } in out.drain(..) {
                flow.payload_sent += payload as u64;
                if flow.sent[side].is_repeated(&content) {
                    flow.payload_repeated += payload as u64;
                }
                flow.packets_sent += 1;
                let packet = Packet {
                    from: flow.hosts[side].node,
                    to: flow.hosts[1 - side].node,
                    flow: index as u64,
                    octets,
                    ecn,
                    content: (payload, content),
                };
                self.network.send(self.now, packet);
            }
        }
        let queued = self.bottlenecks.iter().map(|&link| self.network.queued_octets(link));
        self.queue.note(self.now - self.start, queued.max().unwrap_or(0));
    }

    /// The time that a host's link takes for this number of octets.
    fn transmission_time(&self, octets: u64) -> Duration {
        let rate = self.scenario.dumbbell.conditions.rate.map_or(u64::MAX, NonZeroU64::get);
        let rate = u128::from(rate) * u128::from(ACCESS_RATE_MULTIPLE);
        Duration::from_nanos((u128::from(octets) * 8 * 1_000_000_000 / rate) as u64)
    }

    /// Passes packets that have arrived to their ends. Adds the numbers of these ends, and of those
    /// whose deadlines have passed, to the list.
    fn collect(&mut self, touched: &mut Vec<usize>) {
        if self.early.is_none() && self.now >= self.start + START_UP {
            self.early = Some(Early { dropped: self.drops(), queue_max: self.queue_max() });
            self.bottlenecks.iter().for_each(|&link| self.network.restart_queue_maximum(link));
        }
        while let Some(packet) = self.network.receive(self.now) {
            let index = packet.flow as usize;
            let flow = &mut self.flows[index];
            let side = usize::from(packet.to == flow.hosts[SINK].node);
            let (payload, content) = &packet.content;
            if side == SINK {
                flow.arrivals.note(self.now - self.start, *payload as u64);
            }
            flow.ends[side].receive(self.now, content, packet.ecn == Ecn::Marked);
            touched.push(2 * index + side);
        }
        while let Some((_, number)) = self.agenda.first().filter(|&(at, _)| at <= self.now) {
            self.agenda.set(number, None);
            touched.push(number);
        }
    }

    fn is_done(&self) -> bool {
        self.flows.iter().all(|flow| flow.is_done || !flow.is_main)
    }

    /// The number of packets that the bottleneck has dropped.
    fn drops(&self) -> u64 {
        let counters = self.bottlenecks.iter().map(|&link| self.network.queue_counters(link));
        counters.map(|counters| counters.overflowed + counters.dropped_early).sum()
    }

    /// The maximum number of octets in a queue of the bottleneck.
    fn queue_max(&self) -> u64 {
        let counters = self.bottlenecks.iter().map(|&link| self.network.queue_counters(link));
        counters.map(|counters| counters.octets_max).max().unwrap_or(0)
    }

    fn report(self) -> Report {
        let elapsed = self.now - self.start;
        let size = u64::from(self.scenario.size);
        let (main, cross): (Vec<&Flow>, Vec<&Flow>) =
            self.flows.iter().partition(|flow| flow.is_main);
        let mut times: Vec<Duration> =
            main.iter().flat_map(|flow| flow.completed()).copied().collect();
        times.sort_unstable();
        let sent: u64 = main.iter().map(|flow| flow.payload_sent).sum();
        let repeated: u64 = main.iter().map(|flow| flow.payload_repeated).sum();
        let rates: Vec<f64> = main.iter().map(|flow| flow.rate(self.start, self.now)).collect();
        let queues: Vec<_> =
            self.bottlenecks.iter().map(|&link| self.network.queue_counters(link)).collect();
        let cross_rate = |protocol: Protocol| {
            let flows = cross.iter().filter(|flow| flow.protocol == protocol);
            let messages: u64 = flows.map(|flow| flow.completed().len() as u64).sum();
            (protocol, bits_per_second(messages * u64::from(CROSS_SIZE), elapsed))
        };
        let crossing = self.scenario.cross_traffic.iter().filter(|(_, flows)| *flows > 0);
        Report {
            protocol: self.protocol,
            elapsed,
            messages: times.len() as u64,
            unfinished: match self.scenario.messages {
                Some(messages) => {
                    main.iter().filter(|flow| flow.completed().len() < messages).count()
                }
                None => main.iter().filter(|flow| flow.failure().is_some()).count(),
            },
            failures: main.iter().filter_map(|flow| flow.failure()).collect(),
            goodput: bits_per_second(times.len() as u64 * size, elapsed),
            waste: repeated as f64 / sent.max(1) as f64,
            fairness: jain(&rates),
            completion_median: percentile(&times, 50),
            completion_p99: percentile(&times, 99),
            queue_mean: queues.iter().map(|queue| queue.octets_mean(elapsed)).max().unwrap_or(0),
            queue_max: self.early.as_ref().map_or(0, |early| early.queue_max).max(self.queue_max()),
            queue_max_late: self.early.as_ref().map_or(0, |_| self.queue_max()),
            dropped: self.drops(),
            dropped_late: self.early.as_ref().map_or(0, |early| self.drops() - early.dropped),
            marked: queues.iter().map(|queue| queue.marked).sum(),
            packets: main.iter().map(|flow| flow.packets_sent).sum(),
            cross_traffic: crossing.map(|&(protocol, _)| cross_rate(protocol)).collect(),
            arrivals: main.iter().map(|flow| flow.arrivals.clone()).collect(),
            queue: self.queue,
        }
    }
}

impl Flow {
    fn requests(&self) -> impl Iterator<Item = &PostedMessages> {
        self.ends.iter().filter_map(|end| end.requests())
    }

    fn completed(&self) -> &[Duration] {
        self.requests().next().map_or(&[], |requests| &requests.completed)
    }

    /// The messages per second until the flow's last message, or until `now` if more are to come.
    fn rate(&self, start: Instant, now: Instant) -> f64 {
        let last = self.requests().find(|one| one.is_done()).and_then(|one| one.last_completion);
        let time = last.unwrap_or(now) - start;
        self.completed().len() as f64 / time.as_secs_f64().max(1e-9)
    }

    fn failure(&self) -> Option<String> {
        self.ends.iter().find_map(|end| end.failure())
    }
}

/// The two ends of a flow: the source of the data and the sink.
fn ends(
    scenario: &Scenario,
    protocol: Protocol,
    is_main: bool,
    memory: &Rc<Memory>,
    start: Instant,
    now: Instant,
) -> [Box<dyn End>; 2] {
    let load = match is_main {
        true => Load {
            operation: scenario.operation,
            size: scenario.size,
            messages: scenario.messages,
            depth: scenario.depth,
            start,
        },
        false => Load {
            operation: Operation::Write,
            size: CROSS_SIZE,
            messages: None,
            depth: CROSS_DEPTH,
            start,
        },
    };
    let roce = |protocol: Protocol, peer: Protocol, side: usize| -> Box<dyn End> {
        // The sink posts READs, and the source posts everything else.
        let posts = (side == SINK) == (load.operation == Operation::Read);
        let receives = if is_main { scenario.receives } else { Receives::Many };
        let remote = if peer == Protocol::Rxe { RXE_MEMORY } else { memory.remote() };
        match protocol {
            Protocol::Rxe => Box::new(Rxe::new(remote, scenario.path_mtu(), load, posts)),
            _ => Box::new(Softroce::new((memory, remote), scenario, load, posts, receives, now)),
        }
    };
    let tcp = |algorithm| -> [Box<dyn End>; 2] {
        let round_trip = 2 * scenario.dumbbell.conditions.delay;
        let source = TcpSource::new(algorithm, scenario.dumbbell.mtu, round_trip, load);
        [Box::new(source), Box::new(TcpSink::default())]
    };
    let peer = scenario.peer.filter(|_| is_main).unwrap_or(protocol);
    match protocol {
        Protocol::Cubic => tcp(Algorithm::Cubic),
        Protocol::Reno => tcp(Algorithm::Reno),
        Protocol::OpenDat | Protocol::Rxe => {
            let mut ends = [roce(protocol, peer, SOURCE), roce(peer, protocol, SINK)];
            establish(&mut ends, now);
            ends
        }
    }
}

/// Lets two ends exchange what they send before the first message. This takes no time and does not
/// pass the network, because an experiment begins with connections that exist.
fn establish(ends: &mut [Box<dyn End>; 2], now: Instant) {
    let mut out = Vec::new();
    loop {
        let mut is_quiet = true;
        for side in [SOURCE, SINK] {
            ends[side].act(now, &mut out);
            for packet in out.drain(..) {
                ends[1 - side].receive(now, &packet.content, false);
                is_quiet = false;
            }
        }
        if is_quiet {
            return;
        }
    }
}

fn bits_per_second(octets: u64, time: Duration) -> u64 {
    (u128::from(octets) * 8 * 1_000_000_000).checked_div(time.as_nanos()).unwrap_or(0) as u64
}
