//! The receiver of a transfer.

use super::{Ack, SACK_RANGES};

/// A receiver, which acknowledges each segment.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    next: u64,
    /// The ranges after `next` that have arrived. The range that has changed most recently is the
    /// first one. A range contains its first number and not its second.
    ranges: Vec<(u64, u64)>,
}

impl Receiver {
    /// Handles a segment, and returns its acknowledgement.
    pub(crate) fn receive(&mut self, number: u64) -> Ack {
        let is_known = self.ranges.iter().any(|&(from, to)| (from..to).contains(&number));
        if number >= self.next && !is_known {
            let mut range = (number, number + 1);
            self.ranges.retain(|&(from, to)| {
                let touches = to == range.0 || from == range.1;
                if touches {
                    range = (from.min(range.0), to.max(range.1));
                }
                !touches
            });
            if range.0 == self.next {
                self.next = range.1;
            } else {
                self.ranges.insert(0, range);
            }
        }
        let mut ranges = [(0, 0); SACK_RANGES];
        ranges.iter_mut().zip(&self.ranges).for_each(|(to, range)| *to = *range);
        Ack { next: self.next, ranges }
    }

    /// The first segment that has not arrived.
    #[cfg(test)]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }
}
