//! One of the two work queues of a queue pair. A work queue has a record of each work request, and
//! holds the completions of work requests that are posted after the end of the connection.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use dat_core::provider::{Wc, WcOp};

use crate::cq;
use crate::gate::Gate;

/// A send queue or a receive queue.
pub(crate) struct WorkQueue {
    /// The gate that the posting thread enters.
    pub(crate) gate: Gate,
    slots: Box<[RequestSlot]>,
    posted: AtomicU64,
    done: AtomicU64,
    /// The values of `posted` and `done` at the latest call of [`WorkQueue::take_activity`].
    last_activity: [AtomicU64; 2],
    /// The slot of the last work request that has completed.
    last: AtomicUsize,
    /// The number of requests that are known to have been carried out. Requests are carried out in
    /// order.
    carried_out: AtomicU64,
    /// The number of unsignalled requests since the last unsignalled request that got a hidden
    /// completion. Only the posting thread uses this number.
    unsignalled: AtomicU32,
    /// The bits of the markers that have completed.
    pub(crate) markers: AtomicU32,
    /// Completions of work requests that were posted after the end. They are held back until all
    /// work requests before the end have completed. From then on this is `None`, and such
    /// completions go to the completion queue at once.
    late: Mutex<Option<Vec<Wc>>>,
}

/// A record of a posted work request. The device returns the index of the slot as the ID of the
/// completion.
#[derive(Default)]
struct RequestSlot {
    id: AtomicU64,
    bytes: AtomicU32,
    op: AtomicU8,
    inaccessible: AtomicBool,
    hidden: AtomicBool,
}

impl RequestSlot {
    #[inline]
    fn op(&self) -> WcOp {
        WcOp::ALL[usize::from(self.op.load(Ordering::Relaxed)) % WcOp::ALL.len()]
    }
}

/// A posted work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PostedRequest {
    pub(crate) id: u64,
    pub(crate) op: WcOp,
    pub(crate) bytes: u32,
    /// Whether the device cannot access the segments: see [`crate::mr::Domain::is_inaccessible`].
    pub(crate) inaccessible: bool,
    /// Whether the completion is hidden: this crate, and not the consumer, has asked for it, so
    /// that the device frees the request. The consumer gets it only if the request fails.
    pub(crate) hidden: bool,
}

impl WorkQueue {
    /// Creates a queue for at most `places` outstanding work requests.
    pub(crate) fn new(places: u32) -> WorkQueue {
        WorkQueue {
            gate: Gate::default(),
            slots: (0..(places + 1).next_power_of_two()).map(|_| RequestSlot::default()).collect(),
            posted: AtomicU64::new(0),
            done: AtomicU64::new(0),
            last_activity: Default::default(),
            last: AtomicUsize::new(usize::MAX),
            carried_out: AtomicU64::new(0),
            unsignalled: AtomicU32::new(0),
            markers: AtomicU32::new(0),
            late: Mutex::new(Some(Vec::new())),
        }
    }

    /// Fills the slot of the next work request and returns its index. Only one thread at a time
    /// calls this.
    #[inline]
    pub(crate) fn fill(
        &self,
        PostedRequest { id, op, bytes, inaccessible, hidden }: PostedRequest,
    ) -> u64 {
        let at = self.posted.load(Ordering::Relaxed) as usize & (self.slots.len() - 1);
        let slot = &self.slots[at];
        slot.id.store(id, Ordering::Relaxed);
        slot.bytes.store(bytes, Ordering::Relaxed);
        slot.inaccessible.store(inaccessible, Ordering::Relaxed);
        slot.hidden.store(hidden, Ordering::Relaxed);
        slot.op.store(op as u8, Ordering::Relaxed);
        at as u64
    }

    /// Counts the work request of the filled slot as posted.
    #[inline]
    pub(crate) fn posted(&self) {
        self.posted.store(self.posted.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Returns the work request in this slot, which has completed. Only one thread at a time calls
    /// this function.
    #[inline]
    pub(crate) fn take(&self, at: usize) -> Option<PostedRequest> {
        let slot = self.slots.get(at)?;
        self.last.store(at, Ordering::Relaxed);
        self.done.store(self.done.load(Ordering::Relaxed) + 1, Ordering::Release);
        let op = slot.op();
        let (id, bytes) = (slot.id.load(Ordering::Relaxed), slot.bytes.load(Ordering::Relaxed));
        let (inaccessible, hidden) =
            (slot.inaccessible.load(Ordering::Relaxed), slot.hidden.load(Ordering::Relaxed));
        Some(PostedRequest { id, op, bytes, inaccessible, hidden })
    }

    /// Counts an unsignalled request that is about to be posted. Returns true for one in `one_in`
    /// requests; this request must be signalled with a hidden completion.
    #[inline]
    pub(crate) fn count_unsignalled(&self, one_in: u32) -> bool {
        let unsignalled = self.unsignalled.load(Ordering::Relaxed) + 1;
        let hides = unsignalled >= one_in;
        self.unsignalled.store(if hides { 0 } else { unsignalled }, Ordering::Relaxed);
        hides
    }

    /// Records that the request in this slot and all requests before it have been carried out. Only
    /// one thread at a time calls this function.
    #[inline]
    pub(crate) fn succeeded(&self, at: usize) {
        let before = self.carried_out.load(Ordering::Relaxed);
        // Fewer requests are outstanding than there are slots. So this difference, modulo the
        // number of slots, is the number of earlier requests that have been carried out in the
        // meantime.
        let more = at.wrapping_sub(before as usize) & (self.slots.len() - 1);
        self.carried_out.store(before + more as u64 + 1, Ordering::Release);
    }

    /// Records that the first `count` requests have been carried out. Only one thread at a time
    /// calls this.
    pub(crate) fn succeeded_up_to(&self, count: u64) {
        if count > self.carried_out() {
            self.carried_out.store(count, Ordering::Release);
            self.last.store((count - 1) as usize & (self.slots.len() - 1), Ordering::Relaxed);
        }
    }

    /// The number of requests that are known to have been carried out. Requests are carried out in
    /// order.
    pub(crate) fn carried_out(&self) -> u64 {
        self.carried_out.load(Ordering::Acquire)
    }

    /// The number of work requests that were posted.
    pub(crate) fn count(&self) -> u64 {
        self.posted.load(Ordering::Acquire)
    }

    /// The number of work requests that are posted and not completed. The number is correct only if
    /// all work requests are signalled.
    pub(crate) fn outstanding(&self) -> usize {
        let done = self.done.load(Ordering::Acquire);
        self.posted.load(Ordering::Acquire).saturating_sub(done) as usize
    }

    /// Returns whether the latest work request has not completed yet. Earlier work requests may
    /// then be outstanding, too. An unsignalled work request counts as outstanding until a later
    /// one completes.
    pub(crate) fn is_busy(&self) -> bool {
        let posted = self.posted.load(Ordering::Acquire) as usize;
        posted != 0 && self.last.load(Ordering::Relaxed) != (posted - 1) & (self.slots.len() - 1)
    }

    /// Returns the work requests that are posted and not completed, oldest first. An unsignalled
    /// request counts until a later request completes. The caller ensures that no thread posts or
    /// takes completions during this call.
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
                let slot = &self.slots[slot(number)];
                (slot.id.load(Ordering::Relaxed), slot.op())
            })
            .collect()
    }

    /// Returns whether any work request was posted, and whether any completed, since the previous
    /// call. Only one thread at a time calls this function.
    pub(crate) fn take_activity(&self) -> [bool; 2] {
        [(&self.posted, 0), (&self.done, 1)].map(|(count, at)| {
            let count = count.load(Ordering::Acquire);
            self.last_activity[at].swap(count, Ordering::Relaxed) != count
        })
    }

    /// Adds the completion of a work request that is posted after the end of the connection.
    #[cold]
    pub(crate) fn post_late(&self, queue: &cq::CqShared, wc: Wc) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *late {
            Some(late) => late.push(wc),
            None => queue.add(wc),
        }
    }

    /// Releases the completions of work requests that were posted after the end of the connection,
    /// because all earlier work requests have completed.
    pub(crate) fn release_late(&self, queue: &cq::CqShared) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.take().into_iter().flatten().for_each(|wc| queue.add(wc));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(id: u64, op: WcOp, bytes: u32) -> PostedRequest {
        PostedRequest { id, op, bytes, inaccessible: bytes == 7, hidden: false }
    }

    #[test]
    fn a_slot_says_what_its_work_request_was() {
        let work_queue = WorkQueue::new(3);
        let fill = |id, op, bytes| {
            let at = work_queue.fill(work(id, op, bytes));
            work_queue.posted();
            at as usize
        };
        assert!(!work_queue.is_busy());
        assert_eq!(work_queue.take_activity(), [false, false]);
        let first = fill(u64::MAX, WcOp::Read, 7);
        let second = fill(1, WcOp::CompareSwap, 8);
        assert_eq!((work_queue.outstanding(), work_queue.is_busy()), (2, true));
        assert_eq!(
            [work_queue.take_activity(), work_queue.take_activity()],
            [[true, false], [false, false]]
        );
        assert_eq!(work_queue.take(first), Some(work(u64::MAX, WcOp::Read, 7)));
        assert_eq!(
            [work_queue.take_activity(), work_queue.take_activity()],
            [[false, true], [false, false]]
        );
        assert!(work_queue.is_busy());
        assert_eq!(work_queue.take(second), Some(work(1, WcOp::CompareSwap, 8)));
        assert_eq!((work_queue.outstanding(), work_queue.is_busy()), (0, false));
        assert_eq!(
            work_queue.take(1000),
            None,
            "an index that `fill` never returns must find no request"
        );
    }

    #[test]
    fn what_was_posted_after_the_last_completion_is_pending() {
        let work_queue = WorkQueue::new(3);
        let post = |id, op| (work_queue.fill(work(id, op, 0)), work_queue.posted()).0 as usize;
        assert_eq!(work_queue.pending(), []);
        let first = post(1, WcOp::Send);
        let second = post(2, WcOp::Bind);
        assert_eq!(work_queue.pending(), [(1, WcOp::Send), (2, WcOp::Bind)]);
        work_queue.take(first);
        assert_eq!(work_queue.pending(), [(2, WcOp::Bind)]);
        work_queue.take(second);
        assert_eq!(work_queue.pending(), []);
        for id in 3..6 {
            post(id, WcOp::Write);
        }
        assert_eq!(work_queue.pending(), [3, 4, 5].map(|id| (id, WcOp::Write)));
    }

    #[test]
    fn a_refused_post_leaves_other_slots_alone() {
        let work_queue = WorkQueue::new(4);
        let places: Vec<_> = (0..4)
            .map(|id| (work_queue.fill(work(id, WcOp::Send, 0)), work_queue.posted()).0)
            .collect();
        work_queue.fill(work(9, WcOp::Send, 0));
        let ids: Vec<_> =
            places.iter().map(|&at| work_queue.take(at as usize).map(|work| work.id)).collect();
        assert_eq!(ids, [0, 1, 2, 3].map(Some));
    }
}
