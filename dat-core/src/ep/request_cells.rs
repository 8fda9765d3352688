//! The outstanding requests of an endpoint.
//!
//! Each request has a number, which counts the requests in posting order from 1. Each request also
//! has a cell, which stores its cookie. The index of the cell is the id by which the transport
//! knows the request. The cell becomes free for another request as soon as one of these conditions
//! holds:
//!
//! - The consumer has taken the completion of this request or of a later one. Completions come in
//!   posting order.
//! - The request was suppressed, so it causes no completion, and the transport has carried it out.
//!
//! This module can check the first condition itself. It asks the transport about the second
//! condition only if the first condition does not free the next cell, or if the caller asks whether
//! the queue is idle. Cells are used in any order. So a request whose completion was not taken
//! keeps its cell, no matter how many suppressed requests are posted after it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::allocate::slice_of;
use crate::error::Result;

/// The requests of one queue pair of an endpoint.
pub(super) struct RequestCells {
    /// The number of the last posted request. The posting thread writes this field, `next` and the
    /// cells.
    posted: AtomicU64,
    /// The index of the cell that the next request tries first.
    next: AtomicUsize,
    cells: Box<[Cell]>,
    /// The number of the last request whose completion the consumer has taken. The thread that
    /// takes completions writes this field.
    taken: AtomicU64,
    /// The number of the last request that was suppressed.
    last_suppressed: AtomicU64,
    /// Whether completions of requests are reported to the consumer.
    reported: bool,
    /// The number of the last request that causes a completion. This number is set when the queue
    /// pair is about to be dropped.
    expected: AtomicU64,
}

/// The record of one request. The posting thread writes the cell while the cell is free. The thread
/// that takes completions reads the cell after the request has completed and before it advances
/// `taken`. The fields are atomic only so that any thread may read them.
struct Cell {
    cookie: AtomicU64,
    /// Twice the request's number, plus 1 if the request was suppressed.
    mark: AtomicU64,
}

/// A request number that is never reached.
const NEVER_REACHED: u64 = u64::MAX >> 1;

/// A request that is about to be posted.
pub(super) struct Claim {
    /// The id of the request for the transport.
    pub(super) cell: usize,
    number: u64,
    /// If the request is suppressed: the number of the last request before it that was suppressed.
    last_suppressed: Option<u64>,
}

impl RequestCells {
    /// Creates a queue for at most `max` requests. Fails with `DAT_INSUFFICIENT_RESOURCES` if there
    /// is no memory for the queue.
    pub(super) fn new(max: usize) -> Result<Self> {
        // A queue of length 0 has one cell that is never free.
        let mark = if max == 0 { NEVER_REACHED << 1 } else { 0 };
        let cell = || Cell { cookie: AtomicU64::new(0), mark: AtomicU64::new(mark) };
        Ok(RequestCells {
            posted: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            cells: slice_of(max.max(1), cell)?,
            taken: AtomicU64::new(0),
            last_suppressed: AtomicU64::new(0),
            reported: true,
            expected: AtomicU64::new(0),
        })
    }

    /// Declares that completions are not reported. Every cell is then always free, and only the
    /// transport's queue limits the number of requests.
    pub(super) fn set_unreported(&mut self) {
        self.reported = false;
        *self.taken.get_mut() = NEVER_REACHED - 1;
    }

    /// The number of cells.
    pub(super) fn cells(&self) -> usize {
        self.cells.len()
    }

    /// Claims a cell for the next request and stores the request's cookie in it. Returns `None` if
    /// the maximum number of requests is outstanding. `carried_out` asks the transport how many
    /// requests it has carried out. If the argument of `carried_out` is true, the transport makes
    /// progress first. Only one thread at a time calls this function.
    #[inline]
    pub(super) fn claim(
        &self,
        cookie: u64,
        suppressed: bool,
        carried_out: impl FnMut(bool) -> u64,
    ) -> Option<Claim> {
        let cells = &*self.cells;
        let mut cell = self.next.load(Ordering::Relaxed);
        let mut place = &cells[cell];
        if place.mark() >> 1 > self.taken() {
            cell = self.find_free(carried_out)?;
            place = &cells[cell];
        }
        let number = self.posted.load(Ordering::Relaxed) + 1;
        place.cookie.store(cookie, Ordering::Relaxed);
        place.mark.store(number << 1 | u64::from(suppressed), Ordering::Relaxed);
        let last_suppressed = suppressed.then(|| {
            let last = self.last_suppressed.load(Ordering::Relaxed);
            self.last_suppressed.store(number, Ordering::Relaxed);
            last
        });
        self.next.store(if cell + 1 < cells.len() { cell + 1 } else { 0 }, Ordering::Relaxed);
        // Count the request before it is posted, because it may complete and its completion may be
        // taken before the transport's function returns.
        self.posted.store(number, Ordering::Release);
        Some(Claim { cell, number, last_suppressed })
    }

    /// Releases the cell of a request that the transport has refused.
    #[cold]
    pub(super) fn withdraw(&self, claim: &Claim) {
        self.posted.store(claim.number - 1, Ordering::Release);
        if let Some(last) = claim.last_suppressed {
            self.last_suppressed.store(last, Ordering::Relaxed);
        }
        self.cells[claim.cell].mark.store(0, Ordering::Relaxed);
        self.next.store(claim.cell, Ordering::Relaxed);
    }

    /// Searches for a free cell, beginning with the cell after the last one that was claimed.
    #[cold]
    fn find_free(&self, mut carried_out: impl FnMut(bool) -> u64) -> Option<usize> {
        for progress in [false, true] {
            let taken = self.taken();
            if self.last_suppressed.load(Ordering::Relaxed) <= taken {
                // All suppressed requests are older than a request whose completion was taken. So
                // each younger request keeps its cell until its completion is taken, and the
                // outstanding requests can be counted.
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

    /// The cookie and the number of the completed request in this cell.
    #[inline]
    pub(super) fn cookie_and_number(&self, cell: usize) -> (u64, u64) {
        let Cell { cookie, mark } = &self.cells[cell];
        (cookie.load(Ordering::Relaxed), mark.load(Ordering::Relaxed) >> 1)
    }

    /// Records that the consumer has taken the completion of this request.
    #[inline]
    pub(super) fn take(&self, number: u64) {
        self.taken.store(number, Ordering::Release);
    }

    #[inline]
    fn taken(&self) -> u64 {
        self.taken.load(Ordering::Acquire)
    }

    /// Whether no request is outstanding. `carried_out` asks the transport how many requests it has
    /// carried out.
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

    /// Sets the number of the last request that causes a completion. The transport has carried out
    /// `carried_out` requests and will carry out no more.
    pub(super) fn set_expected(&self, carried_out: u64) {
        let posted = self.posted.load(Ordering::Acquire);
        let reported = |cell: &Cell| (cell.mark() & 1 == 0).then_some(cell.mark() >> 1);
        let expected = match (self.reported, carried_out >= posted) {
            (false, _) => 0,
            (true, true) if posted > 0 => self.cells.iter().filter_map(reported).max().unwrap_or(0),
            (true, _) => posted,
        };
        self.expected.store(expected, Ordering::Release);
    }

    /// Whether the consumer has taken all completions. Call this only after
    /// [`RequestCells::set_expected`].
    pub(super) fn is_drained(&self) -> bool {
        self.taken() >= self.expected.load(Ordering::Acquire)
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
    fn a_queue_of_length_0_takes_nothing() {
        for reported in [true, false] {
            let (mut none, mut one) =
                (RequestCells::new(0).unwrap(), RequestCells::new(1).unwrap());
            if !reported {
                none.set_unreported();
                one.set_unreported();
            }
            assert!(none.claim(1, false, |_| 0).is_none(), "{reported}");
            assert!(none.is_idle(|| 0) && none.is_drained(), "{reported}");
            assert!(one.claim(1, false, |_| 0).is_some(), "{reported}");
            assert_eq!(
                one.claim(2, false, |_| 0).is_some(),
                !reported,
                "an unreported request needs no cell, so only the transport's queue is the limit"
            );
        }
    }
}
