//! The part of a queue pair that posting threads and the engine share.

use std::sync::atomic::{AtomicBool, Ordering, fence};

use crate::doorbells::Doorbell;

/// The part of a queue pair that posting threads and the engine share.
pub struct QpShared {
    pub(crate) doorbell: Doorbell,
    /// Whether a thread that posts a receive must tell the engine: either a message waits for a
    /// receive, or the engine has to flush receives.
    pub(crate) wants_receives: AtomicBool,
    /// Whether the connection has ended or will never exist.
    has_ended: AtomicBool,
}

impl QpShared {
    /// Creates the shared part of the queue pair with this index.
    pub fn new(index: usize) -> Self {
        QpShared {
            doorbell: Doorbell::new(index),
            wants_receives: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Records that the connection has ended or will never exist. The engine flushes the requests
    /// that were posted before, and reports the end afterwards. A thread that posts later calls
    /// [`MakeProgress::transmit`](crate::MakeProgress::transmit), which flushes the new request.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.want_receives(true);
    }

    /// Records that the queue pair may be connected again. Nobody posts during this call.
    pub fn reset(&self) {
        self.has_ended.store(false, Ordering::Release);
        self.want_receives(false);
    }

    /// Whether [`QpShared::end`] was called. A thread that has got the report of the end sees this.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Records whether a message of the peer waits for a receive. After recording that a message
    /// waits, the engine looks for a receive once more. A thread that posts a receive later calls
    /// [`MakeProgress::transmit`](crate::MakeProgress::transmit).
    pub fn want_receives(&self, yes: bool) {
        self.wants_receives.store(yes, Ordering::Relaxed);
        // The fence pairs with the one in `post_recv`: either the posting thread sees the flag, or
        // the engine sees the receive.
        fence(Ordering::SeqCst);
    }

    /// The index of the queue pair.
    pub fn index(&self) -> usize {
        self.doorbell.index()
    }
}
