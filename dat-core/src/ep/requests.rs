//! What is outstanding on an endpoint's request queue.
//!
//! A request has a number, in posting order from 1, and a cell that remembers its cookie; the cell is its id for the transport.
//! The cell is free again, and with it the request's place in the queue, as soon as nobody needs it:
//!
//! - the consumer has taken the completion of this request or of a later one, since completions come in order;
//! - or it was suppressed and the transport has carried it out: nothing comes of it any more.
//!
//! The first is known here. The transport is asked for the second only when the next cell is not free by the first, or when
//! somebody wants to know whether the queue is idle. A completion that nobody has taken keeps its own cell, however many
//! suppressed requests come and go behind it: cells are used in any order.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::allocate::slice_of;
use crate::error::Result;

/// The requests of one incarnation of an endpoint.
pub(super) struct Requests {
    /// The number of the last one. The poster's, as `next` and what is in the cells.
    posted: AtomicU64,
    /// The cell to try first.
    next: AtomicUsize,
    cells: Box<[Cell]>,
    /// The number of the last one whose completion the consumer has taken: the taker's.
    taken: AtomicU64,
    /// The number of the last one that was suppressed.
    silent: AtomicU64,
    /// Completions are reported.
    reported: bool,
    /// Once the queue pair is gone: the number of the last one that completes.
    due: AtomicU64,
}

/// Where a request is remembered. Written by the poster while it is free, read by the taker between the request's completion
/// and the advance of `taken`; atomic only so that everybody may look.
struct Cell {
    cookie: AtomicU64,
    /// Twice the request's number, and 1 if it was suppressed.
    mark: AtomicU64,
}

/// The number of a request that nobody posts.
const NEVER: u64 = u64::MAX >> 1;

/// A request that is about to be posted.
pub(super) struct Claim {
    /// Its id for the transport.
    pub(super) cell: usize,
    number: u64,
    silent: u64,
}

impl Requests {
    /// For at most so many. `DAT_INSUFFICIENT_RESOURCES`: there is no memory for them.
    pub(super) fn new(max: usize) -> Result<Self> {
        // Without any place, one that is never free.
        let mark = if max == 0 { NEVER << 1 } else { 0 };
        let cell = || Cell { cookie: AtomicU64::new(0), mark: AtomicU64::new(mark) };
        Ok(Requests {
            posted: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            cells: slice_of(max.max(1), cell)?,
            taken: AtomicU64::new(0),
            silent: AtomicU64::new(0),
            reported: true,
            due: AtomicU64::new(0),
        })
    }

    /// Nobody is told of completions: every cell is free, and the transport's queue is the limit.
    pub(super) fn report_nothing(&mut self) {
        self.reported = false;
        *self.taken.get_mut() = NEVER - 1;
    }

    /// Cells in all.
    pub(super) fn cells(&self) -> usize {
        self.cells.len()
    }

    /// A place for the next request, with its cookie; none if all are outstanding. `carried_out` asks the transport; told
    /// true, the transport makes progress first. One thread at a time.
    #[inline]
    pub(super) fn claim(
        &self,
        cookie: u64,
        suppressed: bool,
        carried_out: impl FnMut(bool) -> u64,
    ) -> Option<Claim> {
        let next = self.next.load(Ordering::Relaxed);
        let cell = if self.cells[next].mark() >> 1 <= self.taken() {
            next
        } else {
            self.search(carried_out)?
        };
        let number = self.posted.load(Ordering::Relaxed) + 1;
        let Cell { cookie: place, mark } = &self.cells[cell];
        place.store(cookie, Ordering::Relaxed);
        mark.store(number << 1 | u64::from(suppressed), Ordering::Relaxed);
        let silent = self.silent.load(Ordering::Relaxed);
        if suppressed {
            self.silent.store(number, Ordering::Relaxed);
        }
        self.next.store(if cell + 1 < self.cells.len() { cell + 1 } else { 0 }, Ordering::Relaxed);
        // Counted before it is posted: it may complete, and be taken, before the transport returns.
        self.posted.store(number, Ordering::Release);
        Some(Claim { cell, number, silent })
    }

    /// The transport has refused it.
    #[cold]
    pub(super) fn withdraw(&self, claim: &Claim) {
        self.posted.store(claim.number - 1, Ordering::Release);
        self.silent.store(claim.silent, Ordering::Relaxed);
        self.cells[claim.cell].mark.store(0, Ordering::Relaxed);
        self.next.store(claim.cell, Ordering::Relaxed);
    }

    /// A free cell, from the next one on.
    #[cold]
    fn search(&self, mut carried_out: impl FnMut(bool) -> u64) -> Option<usize> {
        for progress in [false, true] {
            let taken = self.taken();
            if self.silent.load(Ordering::Relaxed) <= taken {
                // Each of the others keeps its cell until it is taken.
                let outstanding = self.posted.load(Ordering::Relaxed).saturating_sub(taken);
                if outstanding >= self.cells.len() as u64 {
                    return None;
                }
            }
            let (carried_out, next) = (carried_out(progress), self.next.load(Ordering::Relaxed));
            let free = |&at: &usize| self.cells[at].is_free(taken, carried_out);
            if let Some(at) = (next..self.cells.len()).chain(0..next).find(free) {
                return Some(at);
            }
        }
        None
    }

    /// Cookie and number of a request that has completed, by its cell.
    #[inline]
    pub(super) fn look(&self, cell: usize) -> (u64, u64) {
        let Cell { cookie, mark } = &self.cells[cell];
        (cookie.load(Ordering::Relaxed), mark.load(Ordering::Relaxed) >> 1)
    }

    /// The consumer has taken the completion of this request.
    #[inline]
    pub(super) fn take(&self, number: u64) {
        self.taken.store(number, Ordering::Release);
    }

    #[inline]
    fn taken(&self) -> u64 {
        self.taken.load(Ordering::Acquire)
    }

    /// Nothing is outstanding. `carried_out` asks the transport.
    pub(super) fn is_idle(&self, carried_out: impl FnOnce() -> u64) -> bool {
        let posted = self.posted.load(Ordering::Acquire);
        if self.reported && self.taken() >= posted {
            return true;
        }
        let (carried_out, taken) = (carried_out(), self.taken());
        match self.reported {
            true => self.cells.iter().all(|cell| cell.is_free(taken, carried_out)),
            false => carried_out >= posted,
        }
    }

    /// So many were carried out, and no more will be.
    pub(super) fn settle(&self, carried_out: u64) {
        let posted = self.posted.load(Ordering::Acquire);
        let reported = |cell: &Cell| (cell.mark() & 1 == 0).then_some(cell.mark() >> 1);
        let due = match (self.reported, carried_out >= posted) {
            (false, _) => 0,
            (true, true) if posted > 0 => self.cells.iter().filter_map(reported).max().unwrap_or(0),
            (true, _) => posted,
        };
        self.due.store(due, Ordering::Release);
    }

    /// After [`Requests::settle`]: the consumer has all completions.
    pub(super) fn is_over(&self) -> bool {
        self.taken() >= self.due.load(Ordering::Acquire)
    }
}

impl Cell {
    #[inline]
    fn mark(&self) -> u64 {
        self.mark.load(Ordering::Relaxed)
    }

    fn is_free(&self, taken: u64, carried_out: u64) -> bool {
        let mark = self.mark();
        mark >> 1 <= taken || mark & 1 == 1 && mark >> 1 <= carried_out
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_queue_without_any_place_takes_nothing() {
        for reported in [true, false] {
            let (mut none, mut one) = (Requests::new(0).unwrap(), Requests::new(1).unwrap());
            if !reported {
                none.report_nothing();
                one.report_nothing();
            }
            assert!(none.claim(1, false, |_| 0).is_none(), "{reported}");
            assert!(none.is_idle(|| 0) && none.is_over(), "{reported}");
            assert!(one.claim(1, false, |_| 0).is_some(), "{reported}");
            assert_eq!(
                one.claim(2, false, |_| 0).is_some(),
                !reported,
                "the transport's queue is the limit"
            );
        }
    }
}
