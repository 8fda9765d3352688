//! The results of an experiment.

use std::time::Duration;

use crate::{Protocol, Series};

/// The results of an experiment. Unless a field says otherwise, they are those of the flows under
/// test.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The protocol of the flows under test.
    pub protocol: Protocol,
    /// The time until the last message was complete, or until the experiment ended.
    pub elapsed: Duration,
    /// The number of messages that are complete.
    pub messages: u64,
    /// The number of flows that have not completed all their messages. It is 0 if their number has
    /// no limit and no flow is broken.
    pub unfinished: usize,
    /// The reasons for which flows are broken.
    pub failures: Vec<String>,
    /// The payload of complete messages, in bits per second.
    pub goodput: u64,
    /// The octets of payload that were sent in vain, as a share of all octets of payload that were
    /// sent. What belongs to outstanding messages does not count as sent in vain.
    pub waste: f64,
    /// Jain's index of the flows' goodputs: 1 if all are alike, 1 / n if one of n flows has
    /// everything.
    pub fairness: f64,
    /// The median time from the post of a message to its completion.
    pub completion_median: Duration,
    /// The 99th percentile of this time.
    pub completion_p99: Duration,
    /// The number of octets in the fullest queue of the bottleneck, averaged over time.
    pub queue_mean: u64,
    /// The maximum number of octets in a queue of the bottleneck.
    pub queue_max: u64,
    /// The maximum number of octets in a queue of the bottleneck after the first second.
    pub queue_max_late: u64,
    /// The packets of all flows that the bottleneck dropped because a queue was full, or early.
    pub dropped: u64,
    /// The packets of all flows that the bottleneck dropped after the first second.
    pub dropped_late: u64,
    /// The packets of all flows that the bottleneck marked.
    pub marked: u64,
    /// The packets that both ends of the flows sent.
    pub packets: u64,
    /// The goodput of the cross traffic, in bits per second.
    pub cross_traffic: Vec<(Protocol, u64)>,
    /// The octets of payload that arrived at the sink of each flow over time, again for packets
    /// that arrived again.
    pub arrivals: Vec<Series>,
    /// The octets in the fullest queue of the bottleneck over time.
    pub queue: Series,
}

impl Report {
    /// Complete messages per second.
    pub fn message_rate(&self) -> f64 {
        self.messages as f64 / self.elapsed.as_secs_f64()
    }
}

/// Jain's index of fairness (Jain, Chiu and Hawe, 1984). It is 1 for no values, and if all are 0.
pub(crate) fn jain(values: &[f64]) -> f64 {
    let (sum, squares) = values
        .iter()
        .fold((0.0, 0.0), |(sum, squares), value| (sum + value, squares + value * value));
    if squares == 0.0 { 1.0 } else { sum * sum / (values.len() as f64 * squares) }
}

/// The value below or at which this share of the sorted values is (nearest rank), in per cent.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}
