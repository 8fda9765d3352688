//! Shared receive queues (SRQs), whose receive buffers several endpoints share.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_sys::*;

use crate::ep::post;
use crate::error::{Error, Result};
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::mem::Pz;
use crate::provider::{Receiver, Receives, RecvWr, Segment, Sink, Transport, Upcall};

/// A shared receive queue.
pub struct Srq<T: Transport> {
    /// The transport's object for the queue.
    pub srq: T::Srq,
    /// Counters of the queue's buffers.
    pub counts: Arc<SrqCounts>,
    /// The maximum number of segments of a buffer.
    pub max_recv_iov: usize,
    /// The protection zone of the queue.
    pub pz: Ref<Pz<T>>,
    /// The adapter of the queue.
    pub ia: Ref<Ia<T>>,
    max_recv_dtos: AtomicUsize,
    low_watermark: AtomicUsize,
    /// The receiver of upcalls. The field is declared after `srq`, because `srq` makes upcalls
    /// until it is dropped.
    _upcalls: Arc<SrqUpcalls<T>>,
}

/// The numbers of buffers that were posted and that were returned to the consumer.
#[derive(Debug, Default)]
pub struct SrqCounts {
    /// The number of posted buffers. Only one thread at a time posts, and that thread writes this
    /// number.
    posted: AtomicU64,
    retired: Mutex<ReturnedBuffers>,
}

/// The number of buffers that were returned. Each flow has its own counter, because several threads
/// would write to a common counter.
#[derive(Debug, Default)]
struct ReturnedBuffers {
    /// The number of buffers that were returned through flows that do not exist any more.
    of_gone_flows: u64,
    /// The counters of the existing flows.
    flows: Vec<Arc<AtomicU64>>,
}

/// The number of buffers that one endpoint has returned to the consumer.
#[derive(Debug)]
pub struct SrqShare {
    counts: Arc<SrqCounts>,
    /// The number of returned buffers. Only one thread at a time writes it. This is the thread that
    /// takes the events of the flow's receives or, if these are not reported, the transport's
    /// thread.
    retired: Arc<AtomicU64>,
}

/// The receiver of the queue's upcalls, which report that the queue has run low or has failed.
struct SrqUpcalls<T: Transport> {
    ia: Ref<Ia<T>>,
    srq: usize,
}

impl<T: Transport> Object for Srq<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_SRQ;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_SRQ;
}

/// Implements dat_srq_create. The values in the attributes are minimums.
pub fn create<T: Transport>(
    ia: &Node<Ia<T>>,
    pz: &Node<Pz<T>>,
    attr: &DAT_SRQ_ATTR,
) -> Result<&'static Node<Srq<T>>> {
    if pz.ia.handle() != ia.handle() {
        return Err(Error::handle(DAT_INVALID_HANDLE_PZ));
    }
    let limits = ia.transport.attrs();
    if limits.max_srqs == 0 {
        return Err(Error::of(DAT_MODEL_NOT_SUPPORTED));
    }
    let count = |n: DAT_COUNT| usize::try_from(n).map_err(|_| Error::arg(3));
    let (depth, iov, mark) =
        (count(attr.max_recv_dtos)?, count(attr.max_recv_iov)?, count(attr.low_watermark)?);
    if depth == 0 || mark > depth || iov > limits.max_segments {
        return Err(Error::arg(3));
    }
    if depth > limits.max_srq_depth {
        return Err(Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_SRQ));
    }
    let _control = ia.control();
    ia.add(|handle| {
        let upcalls = Arc::new(SrqUpcalls { ia: Ref::new(ia), srq: handle as usize });
        // SAFETY: the receiver is dropped after the transport's queue (field order in `Srq`).
        let sink = unsafe { Sink::new(&*upcalls) };
        let srq = ia.transport.srq(&pz.pd, depth, iov, sink)?;
        if mark != DAT_SRQ_LW_DEFAULT as usize {
            // The queue is empty, so any mark except the default causes the event at once (uDAPL
            // 1.2, dat_srq_create).
            srq.set_low_watermark(mark);
        }
        Ok(Srq {
            srq,
            counts: Arc::default(),
            max_recv_iov: iov,
            pz: Ref::new(pz),
            ia: Ref::new(ia),
            max_recv_dtos: AtomicUsize::new(depth),
            low_watermark: AtomicUsize::new(mark),
            _upcalls: upcalls,
        })
    })
}

/// Implements dat_srq_free. The call is refused while an endpoint uses the queue.
///
/// # Safety
/// If this call succeeds, nobody uses a reference to the queue after the call.
pub unsafe fn free<T: Transport>(srq: &Node<Srq<T>>) -> Result<()> {
    let (ia, handle) = (srq.ia.clone(), srq.handle());
    let control = ia.control_to_free::<Srq<T>>(handle)?;
    if srq.in_use() {
        return Err(Error::state(DAT_INVALID_STATE_SRQ_IN_USE));
    }
    ia.unregister_object(srq);
    // SAFETY: no object depends on the queue.
    let removed = unsafe { handle::remove(srq) };
    drop(removed);
    drop(control);
    Ok(())
}

impl<T: Transport> Srq<T> {
    /// Implements dat_srq_post_recv.
    ///
    /// # Safety
    /// The segments' memory stays valid until the receive completes. Only one thread at a time
    /// posts to the queue. The functions of a thread-safe adapter ensure that with a lock.
    #[inline]
    pub unsafe fn post_recv(&self, segments: &[Segment], cookie: u64) -> Result<()> {
        if segments.len() > self.max_recv_iov {
            return Err(Error::arg(2));
        }
        let posted = self.counts.posted.load(Ordering::Relaxed);
        // Count the buffer before it is posted, because it may complete and be retired before
        // `post_recv` returns.
        self.counts.posted.store(posted + 1, Ordering::Release);
        // The transport checks whether the queue has room. Only buffers that no message has taken
        // yet take up room.
        // SAFETY: the caller guarantees that the segments' memory stays valid and that no other
        // thread posts to the queue.
        unsafe { self.srq.post_recv(&RecvWr { id: cookie, segments, quiet: false }) }.map_err(|e| {
            self.counts.posted.store(posted, Ordering::Release);
            post::post_error(e)
        })
    }

    /// The maximum number of outstanding buffers.
    #[inline]
    pub fn max_recv_dtos(&self) -> usize {
        self.max_recv_dtos.load(Ordering::Relaxed)
    }

    /// Implements dat_srq_query.
    pub fn query(&self, param: &mut DAT_SRQ_PARAM) {
        let count = |n: u64| DAT_COUNT::try_from(n).unwrap_or(DAT_COUNT::MAX);
        *param = DAT_SRQ_PARAM {
            ia_handle: self.ia.consumer_handle(),
            srq_state: DAT_SRQ_STATE_OPERATIONAL,
            pz_handle: self.pz.handle(),
            max_recv_dtos: count(self.max_recv_dtos() as u64),
            max_recv_iov: count(self.max_recv_iov as u64),
            low_watermark: count(self.low_watermark.load(Ordering::Relaxed) as u64),
            available_dto_count: count(self.srq.available() as u64),
            outstanding_dto_count: count(self.counts.outstanding()),
        };
    }

    /// Implements dat_srq_set_lw: requests one event as soon as fewer than `mark` buffers are left,
    /// which may already be the case.
    pub fn set_low_watermark(&self, mark: DAT_COUNT) -> Result<()> {
        let _control = self.ia.control();
        let mark = usize::try_from(mark).map_err(|_| Error::arg(2))?;
        if mark > self.max_recv_dtos() {
            return Err(Error::arg(2));
        }
        self.srq.set_low_watermark(mark);
        self.low_watermark.store(mark, Ordering::Relaxed);
        Ok(())
    }

    /// Implements dat_srq_resize.
    pub fn resize(&self, max_recv_dtos: DAT_COUNT) -> Result<()> {
        let _control = self.ia.control();
        let depth = usize::try_from(max_recv_dtos).map_err(|_| Error::arg(2))?;
        if depth == 0 {
            return Err(Error::arg(2));
        }
        if depth > self.ia.transport.attrs().max_srq_depth {
            return Err(Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_SRQ));
        }
        if (depth as u64) < self.counts.outstanding()
            || depth < self.low_watermark.load(Ordering::Relaxed)
        {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        self.srq.resize(depth)?;
        self.max_recv_dtos.store(depth, Ordering::Relaxed);
        Ok(())
    }
}

impl SrqCounts {
    /// Adds a counter for one more flow.
    pub fn share(self: &Arc<Self>) -> SrqShare {
        let retired = Arc::<AtomicU64>::default();
        self.retired().flows.push(Arc::clone(&retired));
        SrqShare { counts: Arc::clone(self), retired }
    }

    /// The number of buffers that were posted and not returned yet.
    pub fn outstanding(&self) -> u64 {
        // Read `retired` first: each retired buffer was counted as posted before, so `posted`
        // cannot be the smaller number.
        let retired = {
            let retired = self.retired();
            retired.of_gone_flows
                + retired.flows.iter().map(|flow| flow.load(Ordering::Acquire)).sum::<u64>()
        };
        self.posted.load(Ordering::Acquire) - retired
    }

    fn retired(&self) -> MutexGuard<'_, ReturnedBuffers> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SrqShare {
    /// Counts one buffer as returned, because the consumer has dequeued its receive or nobody will
    /// dequeue it any more.
    #[inline]
    pub fn retire(&self) {
        self.retired.store(self.retired.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl Drop for SrqShare {
    fn drop(&mut self) {
        let mut retired = self.counts.retired();
        retired.flows.retain(|flow| !Arc::ptr_eq(flow, &self.retired));
        retired.of_gone_flows += self.retired.load(Ordering::Acquire);
    }
}

impl<T: Transport> Receiver<T> for SrqUpcalls<T> {
    fn upcall(&self, up: Upcall<'_, T>) {
        let reason = match up {
            Upcall::LowWatermark => DAT_SRQ_LOW_WATERMARK_EVENT,
            Upcall::Failed => DAT_SRQ_TRANSFER_TO_ERROR,
            _ => return,
        };
        // The standard defines reasons for these events, but no event number for them. The handle
        // in the event names the queue.
        self.ia.report(DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR, self.srq as *mut c_void, reason);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn returned_buffers_stay_counted_when_the_endpoint_is_freed() {
        let counts = Arc::new(SrqCounts::default());
        counts.posted.store(10, Ordering::Relaxed);
        for left in (5..10).rev() {
            counts.share().retire();
            assert_eq!(counts.outstanding(), left);
        }
        assert!(counts.retired().flows.is_empty(), "no counter of a dropped flow may be kept");
    }
}
