//! Sums of the counters of connections.

/// One sum for each counter name, in the order in which the first connection lists its counters.
#[derive(Clone, Debug, Default)]
pub struct Counts(Vec<(&'static str, u64)>);

impl Counts {
    /// Adds the counters of one connection. All connections have counters of the same names in the
    /// same order.
    pub fn add(&mut self, counters: &[(&'static str, u64)]) {
        match self.0.is_empty() {
            true => self.0 = counters.to_vec(),
            false => self.0.iter_mut().zip(counters).for_each(|((_, sum), (_, n))| *sum += n),
        }
    }

    /// Returns the name and the sum of each counter.
    pub fn into_list(self) -> Vec<(&'static str, u64)> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn counts_add_up() {
        let mut counts = Counts::default();
        counts.add(&[("sent", 1), ("lost", 0)]);
        counts.add(&[("sent", 2), ("lost", 5)]);
        assert_eq!(counts.into_list(), [("sent", 3), ("lost", 5)]);
    }
}
