//! Statistics of repeated time measurements.

use measurement::schedule::median;
use serde::{Deserialize, Serialize};

/// Statistics of times in seconds. A percentile is `None` if less than one sample would be above
/// it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Times {
    /// The number of samples. For several rounds, the number of samples in the round that has the
    /// fewest.
    pub(crate) samples: usize,
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p90: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) p999: Option<f64>,
    pub(crate) max: f64,
    pub(crate) mean: f64,
}

impl Times {
    pub(crate) fn of(mut times: Vec<f64>) -> Times {
        times.sort_by(f64::total_cmp);
        // Computes the nearest-rank percentile.
        let at = |share: f64| {
            let rank = (share * times.len() as f64).ceil() as usize;
            times.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
        };
        let if_so_many = |least: usize, share: f64| (times.len() >= least).then(|| at(share));
        Times {
            samples: times.len(),
            min: at(0.0),
            p50: at(0.5),
            p90: if_so_many(10, 0.9),
            p99: if_so_many(100, 0.99),
            p999: if_so_many(1000, 0.999),
            max: at(1.0),
            mean: times.iter().sum::<f64>() / times.len() as f64,
        }
    }

    /// Returns the median of each value over several rounds.
    pub(crate) fn median(rounds: &[Times]) -> Option<Times> {
        let middle =
            |value: fn(&Times) -> f64| median(&rounds.iter().map(value).collect::<Vec<_>>());
        let middle_if_all = |value: fn(&Times) -> Option<f64>| {
            let all: Option<Vec<f64>> = rounds.iter().map(value).collect();
            all.map(|all| median(&all))
        };
        Some(Times {
            samples: rounds.iter().map(|times| times.samples).min()?,
            min: middle(|times| times.min),
            p50: middle(|times| times.p50),
            p90: middle_if_all(|times| times.p90),
            p99: middle_if_all(|times| times.p99),
            p999: middle_if_all(|times| times.p999),
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
        assert_eq!([times.min, times.p50, times.max], [1.0, 500.0, 1000.0]);
        assert_eq!([times.p90, times.p99, times.p999], [900.0, 990.0, 999.0].map(Some));
        assert_eq!(times.mean, 500.5);
        let one = Times::of(vec![2.0]);
        assert_eq!([one.min, one.p50, one.max], [2.0; 3]);
    }

    #[test]
    fn a_percentile_takes_enough_samples() {
        let of = |count: u32| Times::of((1..=count).map(f64::from).collect());
        assert_eq!([of(9).p90, of(99).p99, of(999).p999], [None; 3]);
        assert_eq!([of(10).p90, of(100).p99, of(1000).p999], [Some(9.0), Some(99.0), Some(999.0)]);
        let rounds = Times::median(&[of(1000), of(100)]).expect("there are two rounds");
        assert_eq!(
            (rounds.samples, rounds.p99, rounds.p999),
            (100, Some((99.0 + 990.0) / 2.0), None)
        );
        assert!(Times::median(&[]).is_none());
    }
}
