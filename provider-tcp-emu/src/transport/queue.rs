//! Queue pairs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use dat_core::provider::{Allocated, BindWr, Close, Connect, PostError, Queue, ReadDepth, RecvWr, SendWr};
use dat_core::{Error, Result};
use dat_sys::DAT_INVALID_STATE;
use rnic::rdmap::setup::MAX_READ_DEPTH;

use super::{Request, Tcp, no_resources};
use crate::drive::Drive;
use crate::engine::Engine;
use crate::link::{self, Target};
use crate::map;
use crate::socket;

/// Queue pair.
pub struct Qp {
    pub(super) qp: Arc<rnic::Qp>,
    pub(super) shared: Arc<link::Shared>,
    pub(super) index: usize,
    pub(super) batch: Batch,
    pub(super) drive: Arc<Drive>,
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

impl Queue<Tcp> for Qp {
    #[inline]
    unsafe fn post_send(&self, wr: &SendWr<'_>) -> std::result::Result<(), PostError> {
        // SAFETY: the caller's promise, and dat-core's to post from one thread at a time.
        let bytes = unsafe { self.qp.post_send(&map::send(wr)) }.map_err(map::post_error)?;
        self.posted(bytes);
        Ok(())
    }

    unsafe fn post_bind(&self, wr: &BindWr<'_, Tcp>) -> std::result::Result<u32, PostError> {
        // Windows and regions lose what is rnic's only when they are dropped.
        let window = wr.window.mw.as_ref().ok_or(PostError::Unsupported)?;
        let view = match &wr.view {
            Some(view) => Some(rnic::View {
                region: view.region.mr.as_ref().ok_or(PostError::Bounds)?,
                addr: view.addr,
                len: view.len,
                access: map::access(view.access),
                zero_based: view.zero_based,
            }),
            None => None,
        };
        let wr = rnic::BindWr { id: wr.id, window, view, signalled: wr.signalled, quiet: wr.quiet };
        // SAFETY: the caller's promise.
        let key = unsafe { self.qp.post_bind(&wr) }.map_err(map::post_error)?;
        self.posted(0);
        Ok(key)
    }

    #[inline]
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        // SAFETY: as above.
        unsafe { self.qp.post_recv(&map::recv(wr)) }.map_err(map::post_error)?;
        // Either the end of the connection finds the buffer (its fence is in link.rs), or it is seen here.
        fence(Ordering::SeqCst);
        if self.shared.ended.load(Ordering::Relaxed) {
            self.mark();
            self.drive.engine.serve();
        }
        Ok(())
    }

    fn connect(&self, to: &Connect<'_>) -> Result<()> {
        let mut addr = to.addr;
        addr.set_port(socket::port(to.port));
        let target =
            Target { to: addr, private: to.private, timeout: to.timeout, depth: within_limits(to.depth) };
        {
            let mut engine = self.drive.engine.lock();
            let Engine { kit, links, .. } = &mut *engine;
            let link = links.get_mut(self.index).ok_or(Error::of(DAT_INVALID_STATE))?;
            link.dial(kit, &target)?;
        }
        self.drive.start_background().map_err(no_resources)
    }

    fn accept(&self, mut request: Request, private: &[u8], depth: ReadDepth) -> Result<()> {
        request.answered = true;
        let mut engine = self.drive.engine.lock();
        let Engine { kit, links, calls, .. } = &mut *engine;
        let link = links.get_mut(self.index).ok_or(Error::of(DAT_INVALID_STATE))?;
        match calls.take(kit, request.call) {
            Some(caller) => link.answer(kit, caller, private, within_limits(depth)),
            None => {
                link.answer_nobody(kit);
                Ok(())
            }
        }
    }

    fn disconnect(&self, how: Close) {
        let mut engine = self.drive.engine.lock();
        let Engine { kit, links, lingerers, .. } = &mut *engine;
        if let Some(link) = links.get_mut(self.index) {
            link.disconnect(kit, lingerers, how);
        }
    }

    fn allocated(&self) -> Allocated {
        let mut engine = self.drive.engine.lock();
        let buffers = engine.links.get_mut(self.index).map_or(0, |link| link.allocated());
        // TCP delivers messages in order.
        Allocated { buffers, span: buffers }
    }
}

impl Qp {
    /// A request of so many bytes is in the queue: sees to it that it is sent.
    #[inline]
    fn posted(&self, bytes: u32) {
        let pass = self.drive.board.passes();
        if self.batch.pass.load(Ordering::Relaxed) != pass {
            self.batch.begin(pass);
            // Alone since the last pass: somebody may wait for it, so it goes at once.
            match self.drive.engine.try_lock() {
                Some(mut engine) => engine.transmit(self.index),
                None => {
                    self.mark();
                    self.drive.engine.serve();
                }
            }
            return;
        }
        // More may follow: they go together, at the latest with the consumer's next look at a queue.
        if self.mark() {
            self.drive.nudge();
        }
        if self.batch.is_full_with(bytes) {
            self.drive.engine.serve();
        }
    }

    /// Marks the queue pair. True: it was not marked yet.
    fn mark(&self) -> bool {
        // SAFETY: the mark is shared with the link, whose removal (`drop`) takes all marks from the stack first.
        unsafe { self.drive.board.dirty.push(&self.shared.mark) }
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

impl Drop for Qp {
    fn drop(&mut self) {
        self.drive.engine.lock().remove_link(self.index);
    }
}

fn within_limits(depth: ReadDepth) -> ReadDepth {
    ReadDepth { incoming: depth.incoming.min(MAX_READ_DEPTH), outgoing: depth.outgoing.min(MAX_READ_DEPTH) }
}
