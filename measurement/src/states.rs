//! Recognizes two states of a machine in the rounds of a row.
//!
//! Some machines run at two speeds and change from one to the other after seconds or minutes. For
//! example, the host of a virtual machine may move its processors nearer together or further apart.
//! The median of all rounds would then belong to the state that happened to last longer, and the
//! spread to neither state.

/// The minimum number of rounds in a state. A single round may have been disturbed.
const MIN_ROUNDS: usize = 2;
/// The minimum ratio of the smallest value above the gap and the largest value below it.
const MIN_RATIO: f64 = 1.3;
/// The minimum ratio of the gap and the width of either state, both as logarithms.
const MIN_GAP: f64 = 2.0;
/// The share of a state's rounds that its width leaves out at either end.
const OUTLIERS: f64 = 0.1;

/// Divides rounds into one state, or into two if there is a clear gap between two clusters of their
/// values. Returns the indexes of the rounds of each state, the state with more rounds first. If
/// both have the same number, the state with the smaller values is first.
pub fn states(values: &[f64]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let logarithms: Vec<f64> = order.iter().map(|&round| values[round].ln()).collect();
    let gap = |cut: usize| logarithms[cut] - logarithms[cut - 1];
    let cuts = MIN_ROUNDS..=values.len().saturating_sub(MIN_ROUNDS);
    let widest = cuts.max_by(|&a, &b| gap(a).total_cmp(&gap(b)));
    let is_clear = |&cut: &usize| {
        let (below, above) = logarithms.split_at(cut);
        gap(cut) >= MIN_RATIO.ln() && gap(cut) >= MIN_GAP * width(below).max(width(above))
    };
    let Some(cut) = widest.filter(is_clear) else { return vec![order] };
    let above = order.split_off(cut);
    if above.len() > order.len() { vec![above, order] } else { vec![order, above] }
}

/// Returns the width of sorted values without outliers.
fn width(sorted: &[f64]) -> f64 {
    quantile(sorted, 1.0 - OUTLIERS) - quantile(sorted, OUTLIERS)
}

/// Returns a quantile of sorted values, interpolated between two values.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Microseconds of 64 KiB sends over tcp-emu. Runs on a virtual machine printed 8.6 µs in one
    /// of its states and 32 µs in the other, each with a spread of at most 2 %.
    const SENDS: [f64; 7] = [8.61, 8.55, 32.0, 31.9, 8.64, 32.1, 8.7];
    /// Measured microseconds of copies of 64 KiB between the two processors of that machine.
    const COPIES: [f64; 8] = [6.79, 15.39, 15.77, 6.9, 16.37, 7.07, 7.3, 16.56];

    #[test]
    fn a_clear_gap_divides_the_rounds_into_two_states() {
        assert_eq!(states(&SENDS), [vec![1, 0, 4, 6], vec![3, 2, 5]]);
        assert_eq!(states(&COPIES), [vec![0, 3, 5, 6], vec![1, 2, 4, 7]]);
        let slower = [2.15, 8.55, 2.16, 2.14, 8.5];
        assert_eq!(states(&slower), [vec![3, 0, 2], vec![4, 1]], "more rounds come first");
    }

    #[test]
    fn rounds_without_a_clear_gap_have_one_state() {
        for values in [
            &[][..],
            &[1.0],
            &[1.0, 5.0],
            &[1.0, 1.0, 5.0, 5.0][..3],
            // One round is not a state, because it may have been interrupted.
            &[8.6, 8.5, 32.0, 8.7, 8.6],
            // The gap is too small.
            &[8.6, 8.5, 10.0, 10.1, 8.6],
            // The values on both sides of the widest gap are as far apart as the gap is wide.
            &[1.0, 1.5, 2.0, 3.0, 5.0],
            &[5.25, 5.25, 7.25, 10.75, 15.25],
            &[0.0, 0.0, 0.0, 0.0],
            &[f64::NAN, 1.0, 1.0, f64::NAN],
        ] {
            let states = states(values);
            assert_eq!((states.len(), states[0].len()), (1, values.len()), "{values:?}");
        }
    }

    #[test]
    fn an_interrupted_round_belongs_to_one_of_the_states() {
        let values = [8.6, 8.5, 8.6, 8.7, 8.6, 8.6, 11.0, 32.0, 32.1];
        assert_eq!(states(&values)[0].len(), 7);
    }

    #[test]
    fn a_quantile_is_interpolated() {
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 0.75), 3.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
