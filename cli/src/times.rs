//! How long something took, done again and again.

use serde::{Deserialize, Serialize};

use crate::measure::median;

/// In seconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
}

impl Times {
    pub(crate) fn of(mut times: Vec<f64>) -> Times {
        times.sort_by(f64::total_cmp);
        // The smallest that so many are not above.
        let at = |share: f64| {
            let rank = (share * times.len() as f64).ceil() as usize;
            times.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
        };
        Times {
            min: at(0.0),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
            mean: times.iter().sum::<f64>() / times.len() as f64,
        }
    }

    /// The middle of each over several rounds.
    pub(crate) fn median(rounds: &[Times]) -> Option<Times> {
        let middle = |value: fn(&Times) -> f64| median(&rounds.iter().map(value).collect::<Vec<_>>());
        (!rounds.is_empty()).then(|| Times {
            min: middle(|times| times.min),
            p50: middle(|times| times.p50),
            p90: middle(|times| times.p90),
            p99: middle(|times| times.p99),
            p999: middle(|times| times.p999),
            max: middle(|times| times.max),
            mean: middle(|times| times.mean),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let times = Times::of((1..=1000).rev().map(f64::from).collect());
        assert_eq!(
            [times.min, times.p50, times.p90, times.p99, times.p999, times.max],
            [1.0, 500.0, 900.0, 990.0, 999.0, 1000.0]
        );
        assert_eq!(times.mean, 500.5);
        let one = Times::of(vec![2.0]);
        assert_eq!([one.min, one.p50, one.p999, one.max], [2.0; 4]);
    }
}
