//! The results that softroce must reach.

use netem::Probability;

use crate::{Discipline, Operation, Protocol, Receives, Report, Scenario, run};

/// The maximum share of octets sent in vain.
const WASTE_MAX: f64 = 0.25;
/// The maximum time, as a multiple of CUBIC's.
const TIME_MAX: f64 = 1.1;
/// The minimum goodput of one flow with losses, as a multiple of CUBIC's.
const LOSS_GOODPUT_MIN: f64 = 1.0;
/// The minimum index of fairness.
const FAIRNESS_MIN: f64 = 0.95;
/// The minimum goodput with reordering, as a share of the goodput without.
const REORDER_GOODPUT_MIN: f64 = 0.9;
/// The maximum queue, as a multiple of the threshold from which it marks.
const QUEUE_THRESHOLDS_MAX: f64 = 2.0;
/// The maximum number of packets per RNR time to a peer without receives.
const RNR_PACKETS_MAX: f64 = 10.0;
/// The longest time for which softroce lets a peer wait if no receive is posted, in seconds.
const RNR_TIME: f64 = 0.64e-3;
/// The minimum rate of short messages to a peer on the same host that posts one receive at a time.
const ONE_RECEIVE_RATE_MIN: f64 = 20_000.0;
/// The maximum delay to a peer on the same host, in microseconds.
const SAME_HOST_MICROS: u128 = 10;
/// The minimum goodput of rxe to softroce over a local network, in megabytes per second, with
/// messages of at least 1 MiB and at most this loss.
const FROM_RXE_MEGABYTES_MIN: f64 = 1.5;
const FROM_RXE_GOODPUT_LOSS_MAX: Probability = Probability::percent(2);
/// The maximum loss with which no connection from rxe to softroce breaks.
const FROM_RXE_LOSS_MAX: Probability = Probability::percent(5);
/// The maximum delay of a local network, in microseconds.
const LOCAL_MICROS: u128 = 1000;

/// A result that softroce must reach, and whether it does.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What is measured.
    pub what: &'static str,
    /// The value.
    pub value: f64,
    /// The limit of the value.
    pub limit: f64,
    /// Whether the limit is a minimum and not a maximum.
    pub is_minimum: bool,
}

impl Bar {
    fn at_most(what: &'static str, value: f64, limit: f64) -> Self {
        Bar { what, value, limit, is_minimum: false }
    }

    fn at_least(what: &'static str, value: f64, limit: f64) -> Self {
        Bar { what, value, limit, is_minimum: true }
    }

    /// Whether the value is within its limit.
    pub fn is_met(&self) -> bool {
        if self.is_minimum { self.value >= self.limit } else { self.value <= self.limit }
    }
}

/// The bars that apply to the scenario, with the results of its flows. Bars of softroce need the
/// report of OpenDAT. Bars of softroce against CUBIC also need the report of CUBIC. Bars of rxe as
/// the peer of softroce need the report of rxe.
pub fn bars(scenario: &Scenario, reports: &[Report]) -> Vec<Bar> {
    let of = |protocol| reports.iter().find(|report: &&Report| report.protocol == protocol);
    let mut bars = Vec::new();
    if let Some(ours) = of(Protocol::OpenDat) {
        bars.extend(bars_of_softroce(scenario, ours, of(Protocol::Cubic)));
    }
    if let Some(rxe) = of(Protocol::Rxe).filter(|_| scenario.peer == Some(Protocol::OpenDat)) {
        bars.extend(bars_from_rxe(scenario, rxe));
    }
    bars
}

/// The bars of rxe that writes to softroce.
fn bars_from_rxe(scenario: &Scenario, rxe: &Report) -> Vec<Bar> {
    let conditions = &scenario.dumbbell.conditions;
    let mut bars = Vec::new();
    if conditions.loss <= FROM_RXE_LOSS_MAX {
        let broken = rxe.failures.len() as f64;
        bars.push(Bar::at_most("connections from rxe that break", broken, 0.0));
    }
    let is_large = scenario.flows == 1 && scenario.size >= 1 << 20;
    let is_local = conditions.delay.as_micros() <= LOCAL_MICROS;
    if is_large && is_local && conditions.loss <= FROM_RXE_GOODPUT_LOSS_MAX {
        let megabytes = rxe.goodput as f64 / 8e6;
        bars.push(Bar::at_least("MB/s from rxe", megabytes, FROM_RXE_MEGABYTES_MIN));
    }
    bars
}

/// The bars of softroce. Those against CUBIC need its report.
fn bars_of_softroce(scenario: &Scenario, ours: &Report, cubic: Option<&Report>) -> Vec<Bar> {
    let mut bars = Vec::new();
    let conditions = &scenario.dumbbell.conditions;
    match scenario.receives {
        Receives::None => {
            let times = ours.elapsed.as_secs_f64() / RNR_TIME * scenario.flows as f64;
            let packets = ours.packets as f64 / times;
            let broken = ours.failures.len() as f64;
            bars.push(Bar::at_most("packets per RNR time", packets, RNR_PACKETS_MAX));
            bars.push(Bar::at_most("broken connections", broken, 0.0));
            return bars;
        }
        Receives::One if conditions.delay.as_micros() <= SAME_HOST_MICROS => {
            let rate = ours.message_rate();
            bars.push(Bar::at_least("messages a second", rate, ONE_RECEIVE_RATE_MIN));
        }
        _ => {}
    }
    bars.push(Bar::at_most("unfinished flows", ours.unfinished as f64, 0.0));
    let is_lossy = conditions.loss != Probability::NEVER;
    if scenario.flows > 1 && scenario.operation == Operation::Read {
        bars.push(Bar::at_most("share sent in vain", ours.waste, WASTE_MAX));
    }
    // Flows that end have different shares of the network at the end.
    if scenario.flows > 1 && scenario.messages.is_none() {
        bars.push(Bar::at_least("fairness", ours.fairness, FAIRNESS_MIN));
    }
    if conditions.reorder != Probability::NEVER {
        let mut in_order = scenario.clone();
        in_order.dumbbell.conditions.reorder = Probability::NEVER;
        let without = run(&in_order, Protocol::OpenDat).goodput.max(1) as f64;
        let goodput = ours.goodput as f64 / without;
        bars.push(Bar::at_least("goodput / in order", goodput, REORDER_GOODPUT_MIN));
    } else if let Some(cubic) = cubic {
        if is_lossy && scenario.flows == 1 {
            let goodput = ours.goodput as f64 / cubic.goodput.max(1) as f64;
            bars.push(Bar::at_least("goodput / CUBIC's", goodput, LOSS_GOODPUT_MIN));
        } else if scenario.messages.is_some() {
            let time = ours.elapsed.as_secs_f64() / cubic.elapsed.as_secs_f64();
            bars.push(Bar::at_most("time / CUBIC's", time, TIME_MAX));
        }
    }
    if let Discipline::Threshold { octets } = scenario.dumbbell.discipline
        && ours.elapsed.as_secs() >= 2
    {
        let queue = ours.queue_max_late as f64 / octets as f64;
        bars.push(Bar::at_most("queue / threshold", queue, QUEUE_THRESHOLDS_MAX));
        bars.push(Bar::at_most("drops after 1 s", ours.dropped_late as f64, 0.0));
    }
    bars
}
