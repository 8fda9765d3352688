//! The result of `dat bench`.

use measurement::machine::MeasurementInfo;
use measurement::operation::Operation;
use measurement::schedule::Figure;
use measurement::wait_mode::WaitMode;
use serde::Serialize;

use crate::tasks::bench::{Figures, Outcome, Point};

/// An adapter: its name in the registry, and the name of its provider.
#[derive(Serialize)]
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) provider: String,
}

#[derive(Serialize)]
pub(super) struct Measured {
    pub(super) operation: Operation,
    pub(super) size: usize,
    pub(super) depth: usize,
    pub(super) connections: usize,
    pub(super) wait: WaitMode,
    /// The figures of each adapter, in the order of the command line.
    pub(super) figures: Vec<Figures>,
    /// The bytes per second of a copy between the two processors, beside the rounds of this row.
    pub(super) copy: Option<Figure>,
}

#[derive(Serialize)]
pub(super) struct Document {
    pub(super) adapters: Vec<Subject>,
    /// The address of the peer.
    pub(super) address: String,
    #[serde(flatten)]
    pub(super) circumstances: MeasurementInfo,
    /// The processors of the client and the server, if either is pinned.
    pub(super) pinned: Option<[Option<usize>; 2]>,
    /// The minimum number of rounds per row.
    pub(super) rounds: u32,
    /// Whether a signal ended the measurement. Rows without any round are then left out.
    pub(super) interrupted: bool,
    pub(super) points: Vec<Measured>,
}

impl Measured {
    pub(super) fn new(point: Point, wait: WaitMode, outcome: Outcome) -> Self {
        let Point { operation, size, depth, connections } = point;
        let Outcome { figures, copy, .. } = outcome;
        Measured { operation, size, depth, connections, wait, figures, copy }
    }
}

/// Examples of results, for the tests of the modules that print a result.
#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::times::Times;
    use measurement::schedule::State;

    /// A row whose figures have the maximum width.
    pub(in crate::bench) fn measured(size: usize, depth: usize) -> Measured {
        let latency = Times {
            samples: 900,
            min: 900e-6,
            p50: 999.4e-6,
            p90: Some(1e-3),
            p99: Some(1.1e-3),
            p999: None,
            max: 2e-3,
            mean: 1e-3,
        };
        let figures = Figures {
            latency,
            latency_spread: Some(0.04),
            latency_other_state: None,
            operations_per_second: 1e9,
            bytes_per_second: 1e9 * size as f64,
            rate_spread: Some(0.01),
            rate_other_state: None,
            client_cpu: 300e-6,
            server_cpu: 400e-6,
            rounds: 5,
            operations: 1000,
            noisy: false,
        };
        let point = Point { operation: Operation::Send, size, depth, connections: 1 };
        let copy = Figure::of(&[9e9, 9.1e9, 9.2e9]);
        let outcome = Outcome { point: 0, figures: vec![figures], copy: Some(copy) };
        Measured::new(point, WaitMode::Poll, outcome)
    }

    /// A row that had half the latency and twice the rate in two of its five rounds.
    pub(in crate::bench) fn measured_in_two_states(size: usize, depth: usize) -> Measured {
        let mut row = measured(size, depth);
        let other = |median: f64| Some(State { rounds: 2, median, spread: Some(0.02) });
        row.figures[0].latency_other_state = other(499.7e-6);
        row.figures[0].rate_other_state = other(2e9);
        row.copy = Some(Figure::of(&[9e9, 4e9, 4e9, 9.1e9, 4.1e9]));
        row
    }

    pub(in crate::bench) fn document(points: Vec<Measured>) -> Document {
        Document {
            adapters: vec![Subject { name: "tcp-emu".to_owned(), provider: "tcp-emu".to_owned() }],
            address: "127.0.0.1".to_owned(),
            circumstances: MeasurementInfo {
                date: "2026-11-25T07:03:04Z".to_owned(),
                version: "0.1.0",
                command: "dat bench --html 'a <b>'".to_owned(),
                cpu: "A CPU".to_owned(),
                processors: 2,
                kernel: "6.1".to_owned(),
            },
            pinned: Some([Some(0), Some(1)]),
            rounds: 5,
            interrupted: false,
            points,
        }
    }
}
