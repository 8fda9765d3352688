//! Completion queues that any thread may poll.

use std::sync::Arc;

use super::{ARMED_ANY, ARMED_SOLICITED, Cq, CqEvent};
use crate::ring::OutOfMemory;
use crate::sync::atomic::{Ordering, fence};
use crate::wr::Wc;

/// A completion queue that any thread may poll and arm at any time, also while it is not empty.
/// Queue pairs complete to its [`queue`](Self::queue) as to any other. Only this type polls and
/// arms that queue.
///
/// A consumer that sleeps arms the queue first, then polls until the queue is empty, and then waits
/// for the event. A completion that this poll does not find causes the event.
pub struct ConcurrentCq {
    queue: Arc<Cq>,
}

impl ConcurrentCq {
    /// Creates a queue for at least `depth` completions. `notify` is called under the engine lock
    /// and must not call the engine.
    pub fn new(
        depth: usize,
        notify: impl Fn(CqEvent) + Send + Sync + 'static,
    ) -> Result<Self, OutOfMemory> {
        Ok(ConcurrentCq { queue: Arc::new(Cq::new(depth, notify)?) })
    }

    /// The queue as queue pairs use it. Its methods for consumers must not be called.
    pub fn queue(&self) -> &Arc<Cq> {
        &self.queue
    }

    /// Passes up to `max` completions to `take`, oldest first, and returns their number. `take`
    /// must not call this queue, and should be short, because other threads that poll wait for it.
    #[inline]
    pub fn poll_with(&self, max: usize, take: impl FnMut(Wc)) -> usize {
        let _consumer = self.queue.consumer.0.lock();
        // SAFETY: only this type polls the queue, and this thread holds the consumer's lock.
        unsafe { self.queue.poll_with(max, take) }
    }

    /// Requests one [`CqEvent::Ready`] at the next completion that is added or, with `solicited`,
    /// at the next one that is solicited or failed. The completions that a poll finds before this
    /// call do not count. Until the event, the wider of several requests holds.
    pub fn arm(&self, solicited: bool) {
        let wish = if solicited { ARMED_SOLICITED } else { ARMED_ANY };
        self.queue.armed.fetch_max(wish, Ordering::Relaxed);
        // There are two cases. Either the producer sees that the queue is armed (its fence is in
        // `Cq::announce`), or a poll that follows this call sees the completion that the producer
        // has pushed.
        fence(Ordering::SeqCst);
    }

    /// Changes the depth to at least `depth`. No queued completion is lost. Returns false, and
    /// changes nothing, if more than `depth` completions are queued.
    ///
    /// # Safety
    /// The locks of all engines whose queue pairs use the queue must be held.
    pub unsafe fn resize(&self, depth: usize) -> Result<bool, OutOfMemory> {
        let _consumer = self.queue.consumer.0.lock();
        // SAFETY: the caller holds the locks of the engines, only this type polls the queue, and
        // this thread holds the consumer's lock.
        unsafe { self.queue.resize(depth) }
    }
}
