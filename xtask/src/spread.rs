//! The median of the figures that the rounds have measured, with the smallest and the largest.

use std::fmt;

pub(crate) struct Spread {
    pub(crate) median: f64,
    smallest: f64,
    largest: f64,
}

impl Spread {
    /// Returns the spread of at least one figure. Of an even number of figures, the median is the
    /// larger of the two in the middle.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        Self { median, smallest: sorted[0], largest: sorted[sorted.len() - 1] }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2}–{:.2})", self.median, self.smallest, self.largest)
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn the_median_does_not_depend_on_the_order() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]).to_string(), "2.00 (1.00–3.00)");
        assert_eq!(Spread::of([0.5]).to_string(), "0.50 (0.50–0.50)");
    }
}
