//! The deadlines of many parts of a simulation.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// The deadlines of parts that have numbers from 0 on. A part has at most one deadline.
///
/// Parts with the same deadline come in the order of their numbers, so that a simulation does the
/// same in every run.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// The deadline of each part.
    deadlines: Vec<Option<Instant>>,
    /// The earliest entry of each part in the heap. It is never later than the part's deadline.
    queued: Vec<Option<Instant>>,
    /// Entries of parts. An entry that is not the part's entry in `queued` is out of date.
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl Agenda {
    /// An agenda for `parts` parts without deadlines.
    pub(crate) fn new(parts: usize) -> Self {
        Agenda { deadlines: vec![None; parts], queued: vec![None; parts], heap: BinaryHeap::new() }
    }

    /// Sets the deadline of a part, or removes it.
    ///
    /// # Panics
    /// Panics if there is no part of this number.
    pub(crate) fn set(&mut self, part: usize, deadline: Option<Instant>) {
        self.deadlines[part] = deadline;
        if let Some(at) = deadline
            && self.queued[part].is_none_or(|queued| at < queued)
        {
            self.queued[part] = Some(at);
            self.heap.push(Reverse((at, part)));
        }
    }

    /// The part with the earliest deadline, and that deadline.
    pub(crate) fn first(&mut self) -> Option<(Instant, usize)> {
        loop {
            let &Reverse((at, part)) = self.heap.peek()?;
            if self.queued[part] == Some(at) && self.deadlines[part] == Some(at) {
                return Some((at, part));
            }
            self.heap.pop();
            if self.queued[part] == Some(at) {
                // The deadline has been removed, or is later than it was.
                self.queued[part] = None;
                self.set(part, self.deadlines[part]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_earliest_deadline_is_next_and_a_deadline_may_move_in_both_directions() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let mut agenda = Agenda::new(3);
        assert_eq!(agenda.first(), None);
        agenda.set(2, Some(at(5)));
        agenda.set(1, Some(at(5)));
        agenda.set(0, Some(at(7)));
        assert_eq!(agenda.first(), Some((at(5), 1)));
        agenda.set(1, Some(at(9)));
        assert_eq!(agenda.first(), Some((at(5), 2)));
        agenda.set(2, None);
        assert_eq!(agenda.first(), Some((at(7), 0)));
        agenda.set(1, Some(at(6)));
        assert_eq!(agenda.first(), Some((at(6), 1)));
        agenda.set(1, None);
        agenda.set(0, None);
        assert_eq!(agenda.first(), None);
        agenda.set(2, Some(at(1)));
        assert_eq!(agenda.first(), Some((at(1), 2)));
    }
}
