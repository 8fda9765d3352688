//! One of the two queues of a queue pair: what its work requests stand for, and what comes after its end.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use dat_core::provider::{Wc, WcOp};

use crate::cq;
use crate::gate::Gate;

/// One of the two queues.
pub(crate) struct Side {
    /// Who posts is inside.
    pub(crate) gate: Gate,
    slots: Box<[Slot]>,
    posted: AtomicU64,
    done: AtomicU64,
    /// Both, when they were last asked for.
    known: [AtomicU64; 2],
    /// The slot of the last request that has completed.
    last: AtomicUsize,
    /// How many, from the first one, are known to have been carried out.
    carried_out: AtomicU64,
    /// Requests that complete in silence, in a row. The poster's.
    silent: AtomicU32,
    /// Marks that have come by.
    pub(crate) marks: AtomicU32,
    /// Posted after the end; none: everything before the end has completed.
    late: Mutex<Option<Vec<Wc>>>,
}

/// What the 64 bits of a work request stand for.
#[derive(Default)]
struct Slot {
    id: AtomicU64,
    bytes: AtomicU32,
    op: AtomicU8,
    unfit: AtomicBool,
    hidden: AtomicBool,
}

/// A work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) id: u64,
    pub(crate) op: WcOp,
    pub(crate) bytes: u32,
    /// See [`crate::mr::Domain::is_unfit`].
    pub(crate) unfit: bool,
    /// Its success is told to us alone.
    pub(crate) hidden: bool,
}

const OPS: [WcOp; 8] = [
    WcOp::Send,
    WcOp::Write,
    WcOp::Read,
    WcOp::WriteImm,
    WcOp::FetchAdd,
    WcOp::CompareSwap,
    WcOp::Recv,
    WcOp::Bind,
];

impl Side {
    /// For so many that the device takes.
    pub(crate) fn new(places: u32) -> Side {
        Side {
            gate: Gate::default(),
            slots: (0..(places + 1).next_power_of_two()).map(|_| Slot::default()).collect(),
            posted: AtomicU64::new(0),
            done: AtomicU64::new(0),
            known: Default::default(),
            last: AtomicUsize::new(usize::MAX),
            carried_out: AtomicU64::new(0),
            silent: AtomicU32::new(0),
            marks: AtomicU32::new(0),
            late: Mutex::new(Some(Vec::new())),
        }
    }

    /// The place of the next work request. One thread at a time.
    #[inline]
    pub(crate) fn fill(&self, Work { id, op, bytes, unfit, hidden }: Work) -> u64 {
        let at = self.posted.load(Ordering::Relaxed) as usize & (self.slots.len() - 1);
        let slot = &self.slots[at];
        slot.id.store(id, Ordering::Relaxed);
        slot.bytes.store(bytes, Ordering::Relaxed);
        slot.unfit.store(unfit, Ordering::Relaxed);
        slot.hidden.store(hidden, Ordering::Relaxed);
        let op = OPS.iter().position(|&o| o == op).unwrap_or(0);
        slot.op.store(op as u8, Ordering::Relaxed);
        at as u64
    }

    /// It was posted.
    #[inline]
    pub(crate) fn posted(&self) {
        self.posted.store(self.posted.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// The one of this place has completed. One thread at a time.
    #[inline]
    pub(crate) fn take(&self, at: usize) -> Option<Work> {
        let slot = self.slots.get(at)?;
        self.last.store(at, Ordering::Relaxed);
        self.done.store(self.done.load(Ordering::Relaxed) + 1, Ordering::Release);
        let op = OPS[usize::from(slot.op.load(Ordering::Relaxed)) % OPS.len()];
        let (id, bytes) = (slot.id.load(Ordering::Relaxed), slot.bytes.load(Ordering::Relaxed));
        let (unfit, hidden) =
            (slot.unfit.load(Ordering::Relaxed), slot.hidden.load(Ordering::Relaxed));
        Some(Work { id, op, bytes, unfit, hidden })
    }

    /// A request is about to be posted whose success the consumer does not want to hear of. True: one in so many is to be
    /// told to us.
    #[inline]
    pub(crate) fn hides(&self, one_in: u32) -> bool {
        let silent = self.silent.load(Ordering::Relaxed) + 1;
        let hides = silent >= one_in;
        self.silent.store(if hides { 0 } else { silent }, Ordering::Relaxed);
        hides
    }

    /// The one of this place, and so all before it, has been carried out. One thread at a time.
    #[inline]
    pub(crate) fn succeeded(&self, at: usize) {
        let before = self.carried_out.load(Ordering::Relaxed);
        // Fewer than there are slots are outstanding.
        let more = at.wrapping_sub(before as usize) & (self.slots.len() - 1);
        self.carried_out.store(before + more as u64 + 1, Ordering::Release);
    }

    /// So many have been carried out, and of later ones nothing is known. One thread at a time.
    pub(crate) fn succeeded_up_to(&self, count: u64) {
        if count > self.carried_out() {
            self.carried_out.store(count, Ordering::Release);
            self.last.store((count - 1) as usize & (self.slots.len() - 1), Ordering::Relaxed);
        }
    }

    /// How many, from the first one, are known to have been carried out.
    pub(crate) fn carried_out(&self) -> u64 {
        self.carried_out.load(Ordering::Acquire)
    }

    /// How many were posted.
    pub(crate) fn count(&self) -> u64 {
        self.posted.load(Ordering::Acquire)
    }

    /// Posted and not completed, where each completes.
    pub(crate) fn outstanding(&self) -> usize {
        let done = self.done.load(Ordering::Acquire);
        self.posted.load(Ordering::Acquire).saturating_sub(done) as usize
    }

    /// There may be some, whether they complete or not: the last one has not.
    pub(crate) fn is_busy(&self) -> bool {
        let posted = self.posted.load(Ordering::Acquire) as usize;
        posted != 0 && self.last.load(Ordering::Relaxed) != (posted - 1) & (self.slots.len() - 1)
    }

    /// What was posted and has not completed, oldest first; requests that complete in silence count until a later one has. While
    /// nobody posts or takes completions.
    pub(crate) fn pending(&self) -> Vec<(u64, WcOp)> {
        let (posted, last) =
            (self.posted.load(Ordering::Acquire), self.last.load(Ordering::Relaxed));
        let slot = |number: u64| number as usize & (self.slots.len() - 1);
        let first = (0..posted)
            .rev()
            .take(self.slots.len())
            .take_while(|&number| slot(number) != last)
            .last();
        let numbers = first.unwrap_or(posted)..posted;
        numbers
            .map(|number| {
                let Slot { id, op, .. } = &self.slots[slot(number)];
                (
                    id.load(Ordering::Relaxed),
                    OPS[usize::from(op.load(Ordering::Relaxed)) % OPS.len()],
                )
            })
            .collect()
    }

    /// Whether anything was posted, and anything completed, since this was asked before. One thread at a time.
    pub(crate) fn stirred(&self) -> [bool; 2] {
        [(&self.posted, 0), (&self.done, 1)].map(|(count, at)| {
            let count = count.load(Ordering::Acquire);
            self.known[at].swap(count, Ordering::Relaxed) != count
        })
    }

    /// A work request that is posted after the end.
    #[cold]
    pub(crate) fn post_late(&self, queue: &cq::Queue, wc: Wc) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *late {
            Some(late) => late.push(wc),
            None => queue.add(wc),
        }
    }

    /// All that was posted in time has completed: now the rest.
    pub(crate) fn over(&self, queue: &cq::Queue) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.take().into_iter().flatten().for_each(|wc| queue.add(wc));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(id: u64, op: WcOp, bytes: u32) -> Work {
        Work { id, op, bytes, unfit: bytes == 7, hidden: false }
    }

    #[test]
    fn a_place_says_what_its_work_request_was() {
        let side = Side::new(3);
        let fill = |id, op, bytes| {
            let at = side.fill(work(id, op, bytes));
            side.posted();
            at as usize
        };
        assert!(!side.is_busy());
        assert_eq!(side.stirred(), [false, false]);
        let first = fill(u64::MAX, WcOp::Read, 7);
        let second = fill(1, WcOp::CompareSwap, 8);
        assert_eq!((side.outstanding(), side.is_busy()), (2, true));
        assert_eq!([side.stirred(), side.stirred()], [[true, false], [false, false]]);
        assert_eq!(side.take(first), Some(work(u64::MAX, WcOp::Read, 7)));
        assert_eq!([side.stirred(), side.stirred()], [[false, true], [false, false]]);
        assert!(side.is_busy());
        assert_eq!(side.take(second), Some(work(1, WcOp::CompareSwap, 8)));
        assert_eq!((side.outstanding(), side.is_busy()), (0, false));
        assert_eq!(side.take(1000), None, "not of our making");
    }

    #[test]
    fn what_is_after_the_last_that_has_completed_is_pending() {
        let side = Side::new(3);
        let post = |id, op| (side.fill(work(id, op, 0)), side.posted()).0 as usize;
        assert_eq!(side.pending(), []);
        let first = post(1, WcOp::Send);
        let second = post(2, WcOp::Bind);
        assert_eq!(side.pending(), [(1, WcOp::Send), (2, WcOp::Bind)]);
        side.take(first);
        assert_eq!(side.pending(), [(2, WcOp::Bind)]);
        side.take(second);
        assert_eq!(side.pending(), []);
        for id in 3..6 {
            post(id, WcOp::Write);
        }
        assert_eq!(side.pending(), [3, 4, 5].map(|id| (id, WcOp::Write)));
    }

    #[test]
    fn one_that_is_refused_spoils_no_place() {
        let side = Side::new(4);
        let places: Vec<_> =
            (0..4).map(|id| (side.fill(work(id, WcOp::Send, 0)), side.posted()).0).collect();
        side.fill(work(9, WcOp::Send, 0));
        let ids: Vec<_> =
            places.iter().map(|&at| side.take(at as usize).map(|work| work.id)).collect();
        assert_eq!(ids, [0, 1, 2, 3].map(Some));
    }
}
