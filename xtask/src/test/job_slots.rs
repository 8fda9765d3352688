//! Decides which job starts next.

use super::job::Load;

/// The number of jobs of each kind that run in parallel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobSlots {
    computing: usize,
    spinning: usize,
    guests: usize,
}

impl JobSlots {
    /// Returns the slots for this number of processors. The number of computing jobs is one more
    /// than the number of processors, because jobs sometimes wait.
    pub(crate) fn of(processors: usize) -> Self {
        Self {
            computing: processors + 1,
            spinning: (processors / 2).max(1),
            guests: 2 * processors,
        }
    }

    fn count(self, load: Load) -> usize {
        match load {
            Load::Computes => self.computing,
            Load::Spins => self.spinning,
            Load::Guest => self.guests,
        }
    }

    /// Returns the index of the first waiting job that may start now. Jobs that busy-wait never run
    /// at the same time as jobs with a guest. The jobs that busy-wait start first.
    pub(crate) fn next(self, left: &[Load], running: &[Load]) -> Option<usize> {
        let room = |load| {
            let must_wait = match load {
                Load::Computes => false,
                Load::Spins => running.contains(&Load::Guest),
                Load::Guest => running.contains(&Load::Spins) || left.contains(&Load::Spins),
            };
            !must_wait && running.iter().filter(|other| **other == load).count() < self.count(load)
        };
        left.iter().position(|&load| room(load))
    }
}

#[cfg(test)]
mod tests {
    use super::JobSlots;
    use crate::test::job::Load::{Computes, Guest, Spins};

    const TWO: JobSlots = JobSlots { computing: 3, spinning: 1, guests: 4 };

    #[test]
    fn full_slots_hold_up_their_own_kind_only() {
        assert_eq!(TWO.next(&[Computes, Spins], &[]), Some(0));
        assert_eq!(TWO.next(&[Computes, Spins], &[Computes; 3]), Some(1));
        assert_eq!(TWO.next(&[Computes, Spins, Computes], &[Computes, Spins]), Some(0));
        assert_eq!(TWO.next(&[Spins], &[Spins]), None);
        assert_eq!(TWO.next(&[], &[]), None);
    }

    #[test]
    fn a_guest_has_nothing_that_spins_beside_it() {
        assert_eq!(TWO.next(&[Guest, Spins], &[]), Some(1));
        assert_eq!(TWO.next(&[Guest], &[Spins]), None);
        assert_eq!(TWO.next(&[Spins], &[Guest]), None);
        assert_eq!(TWO.next(&[Guest], &[Guest; 3]), Some(0));
        assert_eq!(TWO.next(&[Guest, Computes], &[Guest; 4]), Some(1));
    }
}
