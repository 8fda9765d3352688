//! Queue pairs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use dat_core::Result;
use dat_core::provider::{
    Allocated, BindWr, Close, Connect, PostError, Queue, ReadDepth, RecvWr, SendWr,
};

use super::{Adapter, Request, no_resources};
use crate::doorbells::Doorbell;
use crate::engine::Engine;
use crate::reactor::Reactor;

/// Queue pair.
pub struct Qp<E: Engine> {
    pub(super) qp: Arc<rnic::Qp>,
    pub(super) shared: Arc<Shared>,
    /// The engine's number of it.
    pub(super) index: usize,
    pub(super) batch: Batch,
    /// There is, or was, a connection or an attempt at one.
    pub(super) begun: AtomicBool,
    pub(super) reactor: Arc<Reactor<E>>,
}

/// What posting threads and engine share of a queue pair.
pub struct Shared {
    mark: Doorbell,
    /// The engine wants to hear of receives: a message waits for one, or they are only to be flushed.
    wants_receives: AtomicBool,
}

impl Shared {
    /// For the queue pair of this number.
    pub fn new(index: usize) -> Self {
        Shared { mark: Doorbell::new(index), wants_receives: AtomicBool::new(false) }
    }

    /// The connection has ended, or will never be. What was posted is to be flushed after this; what is
    /// posted later makes its thread call [`Engine::transmit`], which flushes it.
    pub fn end(&self) {
        self.want_receives(true);
    }

    /// A message of the peer waits for a receive, or does not any more. The engine looks for one once more
    /// after saying that it does; a receive that is posted later makes its thread call [`Engine::transmit`].
    pub fn want_receives(&self, yes: bool) {
        self.wants_receives.store(yes, Ordering::Relaxed);
        // Either a posting thread sees the flag (its fence is in `post_recv`), or the engine sees its buffer.
        fence(Ordering::SeqCst);
    }

    /// The number of the queue pair.
    pub fn index(&self) -> usize {
        self.mark.index()
    }
}

/// What was posted since the last pass over the engine. Written by the posting thread alone.
#[derive(Default)]
pub(super) struct Batch {
    pass: AtomicU32,
    requests: AtomicU32,
    bytes: AtomicU32,
}

/// Requests, or bytes of them, that are sent without waiting for the consumer's next look at a queue.
const FULL_BATCH: (u32, u32) = (64, 64 << 10);

// SAFETY: by the number of the promise:
// 1. rnic completes each work request in its turn and once, from its slot in the ring that it was posted to.
// 2. `Work`, which completes, is used in the engine's calls alone, and not any more after `remove_qp`, which
//    `drop` calls under the engine lock.
// 3. rnic counts requests that have left the ring, which unsignalled ones do without a completion. A queue
//    pair that was never connected and is not flushed takes its receives along.
// 4. rnic calls `watch_receives` where a message takes a buffer.
unsafe impl<E: Engine> Queue<Adapter<E>> for Qp<E> {
    #[inline]
    unsafe fn post_send(&self, wr: &SendWr<'_>) -> std::result::Result<(), PostError> {
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.qp.post_send(wr) }?;
        self.posted(bytes);
        Ok(())
    }

    unsafe fn post_bind(&self, wr: &BindWr<'_, Adapter<E>>) -> std::result::Result<u32, PostError> {
        // Windows and regions lose what is rnic's only when they are dropped.
        let window = wr.window.mw.as_ref().ok_or(PostError::Unsupported)?;
        let view = match &wr.view {
            Some(view) => Some(rnic::View {
                region: view.region.mr.as_ref().ok_or(PostError::Bounds)?,
                addr: view.addr,
                len: view.len,
                access: view.access,
                zero_based: view.zero_based,
            }),
            None => None,
        };
        let wr = rnic::BindWr { id: wr.id, window, view, signalled: wr.signalled, quiet: wr.quiet };
        // SAFETY: the caller's promise.
        let key = unsafe { self.qp.post_bind(&wr) }?;
        self.posted(0);
        Ok(key)
    }

    #[inline]
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.qp.post_recv(wr) }?;
        // Either the engine finds the buffer (its fence is in `Shared::want_receives`), or it is seen here
        // that it wants it.
        fence(Ordering::SeqCst);
        if self.shared.wants_receives.load(Ordering::Relaxed) {
            self.mark();
            self.reactor.engine.run_or_delegate();
        }
        Ok(())
    }

    fn connect(&self, to: &Connect<'_>) -> Result<()> {
        // First what can fail without a trace.
        self.reactor.start_background().map_err(no_resources)?;
        self.begun.store(true, Ordering::Relaxed);
        self.reactor.engine.lock().engine.connect(self.index, to)
    }

    fn accept(&self, mut request: Request<E>, private: &[u8], depth: ReadDepth) -> Result<()> {
        request.answered = true;
        self.begun.store(true, Ordering::Relaxed);
        self.reactor.engine.lock().engine.accept(self.index, request.call, private, depth)
    }

    fn disconnect(&self, how: Close) {
        self.reactor.engine.lock().engine.disconnect(self.index, how);
    }

    fn allocated(&self) -> Allocated {
        self.reactor.engine.lock().engine.allocated(self.index)
    }

    unsafe fn carried_out(&self) -> u64 {
        self.qp.carried_out()
    }

    /// The end of a connection completes all receives; a queue pair that never had one takes them along.
    fn withdrawn(&self) -> usize {
        match self.begun.load(Ordering::Relaxed)
            || self.shared.wants_receives.load(Ordering::Relaxed)
        {
            true => 0,
            false => self.allocated().buffers,
        }
    }
}

impl<E: Engine> Qp<E> {
    /// A request of so many bytes is in the queue: sees to it that it is sent.
    #[inline(always)]
    fn posted(&self, bytes: u32) {
        let pass = self.reactor.shared.passes();
        if self.batch.pass.load(Ordering::Relaxed) != pass {
            self.batch.begin(pass);
            // Alone since the last pass: somebody may wait for it, so it goes at once.
            match self.reactor.engine.try_lock() {
                Some(mut locked) => locked.engine.transmit(self.index),
                None => {
                    self.mark();
                    self.reactor.engine.run_or_delegate();
                }
            }
            return;
        }
        // More may follow: they go together, at the latest with the consumer's next look at a queue.
        if self.mark() {
            self.reactor.nudge();
        }
        if self.batch.is_full_with(bytes) {
            self.reactor.engine.run_or_delegate();
        }
    }

    /// Marks the queue pair. True: it was not marked yet.
    fn mark(&self) -> bool {
        // SAFETY: this queue pair keeps the mark until `drop`, which takes all marks from the stack first.
        unsafe { self.reactor.shared.doorbells.push(&self.shared.mark) }
    }
}

impl Batch {
    #[inline]
    fn begin(&self, pass: u32) {
        self.pass.store(pass, Ordering::Relaxed);
        self.requests.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Adds a request; true if that makes a batch, and begins another.
    #[inline]
    fn is_full_with(&self, bytes: u32) -> bool {
        let requests = self.requests.load(Ordering::Relaxed) + 1;
        let bytes = self.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        let full = requests >= FULL_BATCH.0 || bytes >= FULL_BATCH.1;
        self.requests.store(if full { 0 } else { requests }, Ordering::Relaxed);
        self.bytes.store(if full { 0 } else { bytes }, Ordering::Relaxed);
        full
    }
}

impl<E: Engine> Drop for Qp<E> {
    fn drop(&mut self) {
        self.reactor.engine.lock().remove_qp(self.index);
    }
}
