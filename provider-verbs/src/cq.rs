//! Completion queues. Each consists of the device's queue, and of a list in front of it. The list
//! contains completions that were taken from the device before the consumer polled (*prefetched*
//! completions).

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use dat_core::provider::{Completions, Polled, Sink, Upcall, Wc};
use dat_core::{Error, Result};
use dat_sys::{
    DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_STATE, DAT_MODEL_NOT_SUPPORTED, DAT_RESOURCE_MEMORY,
};
use rdma_core_sys::*;
use waiting::{Wake, WakeReason, nesting};

use crate::Adapter;
use crate::descriptor::{InterruptibleSleep, SleepEnd, set_nonblocking};
use crate::gate::Gate;
use crate::progress::ProgressContext;

/// A completion queue.
pub struct Cq(pub(crate) Arc<CqShared>);

/// The part of a completion queue that its queue pairs share.
pub(crate) struct CqShared {
    pub(crate) progress: Arc<ProgressContext>,
    cq: NonNull<ibv_cq>,
    channel: NonNull<ibv_comp_channel>,
    channel_fd: RawFd,
    /// The gate that the consumer enters while it polls.
    gate: Gate,
    /// The number of successive yields of the processor that brought no completion.
    futile_yields: AtomicU32,
    /// Completions that were taken from the device already, or that did not come from the device.
    /// The consumer gets these first.
    prefetched: Mutex<VecDeque<Wc>>,
    prefetched_len: AtomicUsize,
    capacity: Mutex<Capacity>,
    /// Whether a thread waits for a notification from this queue.
    armed: AtomicBool,
    /// Whether the progress thread takes the notifications, because no consumer sleeps on this
    /// queue.
    pub(crate) watched: AtomicBool,
    /// Whether the progress thread takes the completions, because no consumer polls this queue.
    is_unpolled: AtomicBool,
    /// How often the queue was armed since its notifications were last taken. The device sends at
    /// most one notification each time.
    arm_count: AtomicU32,
    /// The number of notifications that were taken and not acknowledged yet. Destroying the queue
    /// acknowledges them.
    unacknowledged: AtomicU32,
    sink: Mutex<Option<Sink<Adapter>>>,
    /// The object on which a consumer sleeps. The first sleep creates it.
    sleeper: OnceLock<InterruptibleSleep>,
}

/// The room in a completion queue, in completions: the consumer's depth, and room for the
/// completions of the provider's own requests, which are mostly markers.
struct Capacity {
    depth: usize,
    markers: usize,
    /// The number of markers for which the device's queue has room. When the room is used up, the
    /// number doubles.
    marker_capacity: usize,
}

/// After this number of successive yields without a completion, only one of this number of waits
/// yields the processor. A yield costs about a tenth of the time that a successful yield saves.
const FUTILE_YIELDS_MAX: u32 = 64;

/// The maximum number of completions that one call takes from the device.
const BATCH_COUNT: usize = 16;

/// The number of markers for which a new completion queue has room.
pub(crate) const MARKER_CAPACITY_MIN: usize = 64;

// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Send for CqShared {}
// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Sync for CqShared {}

impl Cq {
    pub(crate) fn new(
        progress: &Arc<ProgressContext>,
        depth: usize,
        sink: Option<Sink<Adapter>>,
    ) -> Result<Cq> {
        let full = || Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
        let (verbs, context) = (&progress.device.core.verbs, progress.device.context.as_ptr());
        // SAFETY: the context is open.
        let channel =
            NonNull::new(unsafe { (verbs.ibv_create_comp_channel)(context) }).ok_or_else(full)?;
        // SAFETY: the channel is live.
        let channel_fd = unsafe { channel.as_ref() }.fd;
        let entries = i32::try_from(depth + MARKER_CAPACITY_MIN).map_err(|_| full())?;
        // SAFETY: the context and the channel are live.
        let made = unsafe {
            set_nonblocking(channel_fd);
            (verbs.ibv_create_cq)(context, entries, ptr::null_mut(), channel.as_ptr(), 0)
        };
        let Some(cq) = NonNull::new(made) else {
            // SAFETY: no completion queue uses the channel.
            unsafe { (verbs.ibv_destroy_comp_channel)(channel.as_ptr()) };
            return Err(full());
        };
        let queue = Arc::new(CqShared {
            progress: Arc::clone(progress),
            cq,
            channel,
            channel_fd,
            gate: Gate::default(),
            futile_yields: AtomicU32::new(0),
            prefetched: Mutex::default(),
            prefetched_len: AtomicUsize::new(0),
            capacity: Mutex::new(Capacity {
                depth,
                markers: 0,
                marker_capacity: MARKER_CAPACITY_MIN,
            }),
            armed: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            is_unpolled: AtomicBool::new(false),
            arm_count: AtomicU32::new(0),
            unacknowledged: AtomicU32::new(0),
            sink: Mutex::new(sink),
            sleeper: OnceLock::new(),
        });
        progress.add_cq(&queue);
        Ok(Cq(queue))
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // An upcall holds this lock. So taking the lock waits until an upcall in progress has
        // returned.
        *self.0.sink.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.progress.remove_cq(&self.0);
        if self.0.watched.load(Ordering::Acquire) {
            // The progress thread waits for notifications from the queue and keeps the queue alive.
            // When it is woken, it releases the queue.
            self.0.progress.wake();
        }
    }
}

impl Drop for CqShared {
    fn drop(&mut self) {
        let verbs = &self.progress.device.core.verbs;
        // SAFETY: no queue pair completes here any more, and no thread takes notifications.
        unsafe {
            (verbs.ibv_ack_cq_events)(self.cq.as_ptr(), *self.unacknowledged.get_mut());
            (verbs.ibv_destroy_cq)(self.cq.as_ptr());
            (verbs.ibv_destroy_comp_channel)(self.channel.as_ptr());
        }
    }
}

// SAFETY: the promises of `Completions`, by their numbers:
// 1. The completions are those that `QpShared::complete` derives from the device's and those that
//    `CqShared::add` receives. They come in order and once each, because prefetched completions are
//    returned first and the `gate` excludes all other takers.
// 2. A queue pair is removed from the table of numbers while no thread takes completions.
//    Completions of the queue pair that were taken before the removal are in `prefetched`, as
//    `prefetched_len` says. Completions that the device still holds after the removal are
//    discarded.
unsafe impl Completions for Cq {
    #[inline]
    unsafe fn poll(&self, out: &mut Polled<'_>) {
        let _work = nesting::work();
        // SAFETY: the caller is the one thread that polls.
        unsafe { self.0.poll(out) };
    }

    unsafe fn arm(&self, solicited: bool) -> bool {
        let _work = nesting::work();
        // SAFETY: the caller is the one thread that polls.
        unsafe { self.0.arm(solicited) }
    }

    fn require_upcalls(&self, on: bool) {
        if self.0.watched.swap(on, Ordering::AcqRel) != on {
            self.0.progress.wake();
        }
    }

    unsafe fn resize(&self, depth: usize) -> Result<()> {
        let mut capacity = self.0.capacity();
        // The new depth is checked here. The device cannot check it, because its queue also has
        // room for markers.
        if self.0.prefetch() > depth {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        self.0.resize(depth + capacity.marker_capacity)?;
        capacity.depth = depth;
        Ok(())
    }
}

impl CqShared {
    pub(crate) fn as_ptr(&self) -> *mut ibv_cq {
        self.cq.as_ptr()
    }

    fn resize(&self, entries: usize) -> Result<()> {
        let _closed = self.gate.close();
        let entries = i32::try_from(entries).map_err(|_| Error::of(DAT_INVALID_STATE))?;
        // SAFETY: the queue is live.
        match unsafe { (self.progress.device.core.verbs.ibv_resize_cq)(self.cq.as_ptr(), entries) }
            .abs()
        {
            0 => Ok(()),
            libc::EOPNOTSUPP | libc::ENOSYS => Err(Error::of(DAT_MODEL_NOT_SUPPORTED)),
            libc::EINVAL => Err(Error::of(DAT_INVALID_STATE)),
            _ => Err(Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY)),
        }
    }

    fn capacity(&self) -> MutexGuard<'_, Capacity> {
        self.capacity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves room for `markers` more markers, so that the markers never cause an overrun.
    pub(crate) fn reserve(&self, markers: usize) -> Result<()> {
        let mut capacity = self.capacity();
        if capacity.markers + markers > capacity.marker_capacity {
            let marker_capacity = (2 * capacity.marker_capacity).max(capacity.markers + markers);
            self.resize(capacity.depth + marker_capacity)?;
            capacity.marker_capacity = marker_capacity;
        }
        capacity.markers += markers;
        Ok(())
    }

    /// Increases the depth of the queue by `by` completions.
    pub(crate) fn grow(&self, by: usize) -> Result<()> {
        let mut capacity = self.capacity();
        self.resize(capacity.depth + by + capacity.marker_capacity)?;
        capacity.depth += by;
        Ok(())
    }

    /// Frees the room for `markers` markers that [`CqShared::reserve`] has reserved.
    pub(crate) fn release(&self, markers: usize) {
        self.capacity().markers -= markers;
    }

    /// Takes completions and adds them to `out`, beginning with prefetched completions.
    ///
    /// # Safety
    /// The caller is the one thread that takes completions.
    #[inline]
    unsafe fn poll(&self, out: &mut Polled<'_>) {
        // SAFETY: the caller is the one thread that takes completions.
        let inside = unsafe { self.gate.enter() };
        if self.prefetched_len.load(Ordering::Acquire) > 0 {
            return self.poll_prefetched(out);
        }
        if inside.is_none() {
            return;
        }
        while out.room() > 0 {
            let mut batch = [const { MaybeUninit::uninit() }; BATCH_COUNT];
            let wanted = BATCH_COUNT.min(out.room());
            let taken = self.take(&mut batch[..wanted]);
            taken.iter().filter_map(|wc| self.complete(wc)).for_each(|wc| out.push(wc));
            if taken.len() < wanted {
                break;
            }
        }
    }

    #[cold]
    fn poll_prefetched(&self, out: &mut Polled<'_>) {
        let mut prefetched = self.prefetched();
        let count = out.room().min(prefetched.len());
        prefetched.drain(..count).for_each(|wc| out.push(wc));
        self.prefetched_len.store(prefetched.len(), Ordering::Release);
    }

    /// Takes the next completions from the device. The caller holds the gate, or has closed it and
    /// is the only thread that takes completions.
    #[inline]
    fn take<'a>(&self, room: &'a mut [MaybeUninit<ibv_wc>]) -> &'a [ibv_wc] {
        let verbs = &self.progress.device.core.verbs;
        // SAFETY: the queue is live, and `room` has as many entries as are requested.
        let count = unsafe {
            verbs.ibv_poll_cq(self.cq.as_ptr(), room.len() as i32, room.as_mut_ptr().cast())
        };
        let taken = &room[..count.max(0) as usize];
        // SAFETY: the device has written these entries.
        unsafe { taken.assume_init_ref() }
    }

    /// Converts one completion to dat-core's type. Returns `None` if the consumer does not get the
    /// completion.
    #[inline]
    fn complete(&self, wc: &ibv_wc) -> Option<Wc> {
        // SAFETY: a queue pair leaves the table only while the gate is closed.
        unsafe { self.progress.qps.get(wc.qp_num) }.and_then(|qp| qp.complete(wc))
    }

    /// Moves all completions from the device to `prefetched`.
    fn prefetch_into(&self, prefetched: &mut VecDeque<Wc>) {
        let mut batch = [const { MaybeUninit::uninit() }; BATCH_COUNT];
        loop {
            let taken = self.take(&mut batch);
            prefetched.extend(taken.iter().filter_map(|wc| self.complete(wc)));
            if taken.len() < BATCH_COUNT {
                break;
            }
        }
        self.prefetched_len.store(prefetched.len(), Ordering::Release);
    }

    /// Prefetches all completions. If the list of prefetched completions is not empty then,
    /// notifies the thread that armed the queue.
    pub(crate) fn prefetch_and_notify(&self) {
        if self.prefetch() > 0 {
            self.notify_armed();
        }
    }

    /// Prefetches all completions without a notification. Returns the number of prefetched
    /// completions.
    fn prefetch(&self) -> usize {
        let _closed = self.gate.close();
        let mut prefetched = self.prefetched();
        self.prefetch_into(&mut prefetched);
        prefetched.len()
    }

    /// Runs `what` while no thread takes completions.
    pub(crate) fn exclusively(&self, what: impl FnOnce()) {
        let _closed = self.gate.close();
        let _prefetched = self.prefetched();
        what();
    }

    /// Adds a completion that does not come from the device.
    pub(crate) fn add(&self, wc: Wc) {
        {
            let mut prefetched = self.prefetched();
            prefetched.push_back(wc);
            self.prefetched_len.store(prefetched.len(), Ordering::Release);
        }
        self.notify_armed();
    }

    /// Requests a notification of the next completion. Returns false if there are completions
    /// already.
    ///
    /// # Safety
    /// The caller is the one thread that takes completions.
    unsafe fn arm(&self, solicited: bool) -> bool {
        // SAFETY: the caller is the one thread that takes completions.
        if self.progress.yields_processor() && unsafe { self.yield_brings_completions() } {
            return false;
        }
        self.armed.store(true, Ordering::SeqCst);
        self.arm_count
            .store(self.arm_count.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        let verbs = &self.progress.device.core.verbs;
        // SAFETY: the queue is live.
        unsafe { verbs.ibv_req_notify_cq(self.cq.as_ptr(), i32::from(solicited)) };
        // A completion that arrived before this call causes no notification, so check the queue
        // again. A closed gate counts as "not empty", because the thread that closed it may have
        // consumed the notification.
        // SAFETY: the caller is the one thread that takes completions.
        let empty = unsafe { self.is_empty() };
        if !empty {
            self.disarm();
        }
        empty
    }

    /// Yields the processor and returns whether that brought completions. If the kernel does the
    /// device's work on this processor, a yield lets the kernel finish, and costs less than arming
    /// and sleeping. A yield is tried less often if earlier yields did not help. The kernel then
    /// works on another processor, or has too much work.
    ///
    /// # Safety
    /// The caller is the one thread that takes completions.
    unsafe fn yield_brings_completions(&self) -> bool {
        let futile = self.futile_yields.load(Ordering::Relaxed);
        let found = (futile < FUTILE_YIELDS_MAX || futile.is_multiple_of(FUTILE_YIELDS_MAX)) && {
            std::thread::yield_now();
            // SAFETY: the caller is the one thread that takes completions.
            !unsafe { self.is_empty() }
        };
        self.futile_yields.store(if found { 0 } else { futile.wrapping_add(1) }, Ordering::Relaxed);
        found
    }

    /// Returns whether the queue has no completions, after prefetching a batch of completions from
    /// the device. Returns false if the gate is closed.
    ///
    /// # Safety
    /// The caller is the one thread that takes completions.
    unsafe fn is_empty(&self) -> bool {
        // SAFETY: the caller is the one thread that takes completions.
        let inside = unsafe { self.gate.enter() };
        inside.is_some() && self.prefetched_len.load(Ordering::SeqCst) == 0 && {
            let mut batch = [const { MaybeUninit::uninit() }; BATCH_COUNT];
            let taken = self.take(&mut batch);
            taken.is_empty() || {
                let mut prefetched = self.prefetched();
                prefetched.extend(taken.iter().filter_map(|wc| self.complete(wc)));
                self.prefetched_len.store(prefetched.len(), Ordering::Release);
                // If the batch consists only of markers, the caller finds no completion when it
                // polls, and checks again.
                false
            }
        }
    }

    fn disarm(&self) -> bool {
        self.armed.swap(false, Ordering::SeqCst)
    }

    /// Notifies the thread that armed the queue.
    fn notify_armed(&self) {
        if self.disarm() {
            self.call(Upcall::CqReady);
        }
    }

    /// Sleeps until there is a notification, another thread interrupts the sleep, or the deadline
    /// passes. The calling consumer has armed the queue.
    pub(crate) fn sleep(&self, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        let sleeper = match self.sleeper.get() {
            Some(sleeper) => sleeper,
            None => match InterruptibleSleep::new() {
                Ok(sleeper) => self.sleeper.get_or_init(|| sleeper),
                // Without a free file descriptor the thread cannot sleep here. `Woken` makes the
                // caller poll again.
                Err(_) => return WakeReason::Woken,
            },
        };
        if !wake.enter_poller() {
            return WakeReason::Woken;
        }
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let reason = sleeper.sleep(self, left);
        let signalled = wake.leave_poller();
        match reason {
            SleepEnd::Readable => {
                self.take_notifications();
                WakeReason::Woken
            }
            SleepEnd::TimedOut if !signalled => WakeReason::TimedOut,
            SleepEnd::Signal if !signalled => WakeReason::Interrupted,
            _ => WakeReason::Woken,
        }
    }

    /// Wakes the thread that sleeps on this queue.
    pub(crate) fn interrupt(&self) {
        self.sleeper.get().iter().for_each(|sleeper| sleeper.interrupt());
    }

    pub(crate) fn call(&self, up: Upcall<'_, Adapter>) {
        if let Some(sink) = &*self.sink.lock().unwrap_or_else(PoisonError::into_inner) {
            sink.call(up);
        }
    }

    /// Takes the notifications from the queue's channel. Returns whether there was a notification.
    pub(crate) fn take_notifications(&self) -> bool {
        let verbs = &self.progress.device.core.verbs;
        let (mut cq, mut context, mut unacknowledged) = (ptr::null_mut(), ptr::null_mut(), 0);
        let arm_count = self.arm_count.swap(0, Ordering::Relaxed);
        // SAFETY: the channel is live and does not block. Only this queue notifies there.
        while unsafe { (verbs.ibv_get_cq_event)(self.channel.as_ptr(), &mut cq, &mut context) } == 0
        {
            unacknowledged += 1;
            // A queue that was armed once has at most one notification. Stopping after that
            // notification saves a call.
            if arm_count == 1 {
                break;
            }
        }
        self.unacknowledged.fetch_add(unacknowledged, Ordering::Relaxed);
        unacknowledged > 0
    }

    /// Takes the notifications on the progress thread, because no consumer sleeps on this queue.
    /// Then notifies the thread that armed the queue or, if no consumer polls the queue, discards
    /// its completions.
    pub(crate) fn handle_notifications(&self) {
        if self.take_notifications() {
            match self.is_unpolled.load(Ordering::Acquire) {
                true => self.discard(),
                false => self.notify_armed(),
            }
        }
    }

    /// Makes the progress thread take the completions, because no consumer polls this queue and the
    /// slots of the completed receives must be freed. The caller calls this before there are any
    /// completions.
    pub(crate) fn poll_on_progress_thread(&self) {
        self.is_unpolled.store(true, Ordering::Release);
        // SAFETY: no thread takes completions yet.
        unsafe { self.arm(false) };
        self.watched.store(true, Ordering::Release);
        self.progress.wake();
    }

    /// Takes and discards completions until no more arrive.
    fn discard(&self) {
        loop {
            self.prefetch();
            debug_assert!(self.prefetched().is_empty(), "nobody polls this queue");
            // SAFETY: without a consumer, only the progress thread takes completions, and that
            // thread runs this function.
            if unsafe { self.arm(false) } {
                break;
            }
        }
    }

    fn prefetched(&self) -> MutexGuard<'_, VecDeque<Wc>> {
        self.prefetched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for CqShared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel exists.
        unsafe { BorrowedFd::borrow_raw(self.channel_fd) }
    }
}
