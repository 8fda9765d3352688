//! Event dispatchers (EVDs): the queues from which a consumer takes events.
//!
//! An EVD merges event streams:
//!
//! - Completions of data transfers come from the transport's completion queue. They become events
//!   when the consumer takes them.
//! - All other events (connection requests, connections, software events, asynchronous errors) are
//!   queued here, in `queued_events`.
//!
//! An event that reports the end of a connection waits until the completion queue was found empty,
//! because the consumer must get all completions before the disconnect event (dat_ep_disconnect).

mod evd_shared;
mod extended;
mod stream;
mod take;
mod wait;
mod waiter_slot;

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_sys::describe::event_name;
use dat_sys::ib::*;
use dat_sys::*;
use tracing::warn;
use waiting::nesting::{self, Activity};

use self::evd_shared::EvdShared;
pub(crate) use self::stream::{CompletionStream, Stream, StreamOf};
use self::take::StagedCompletions;
use self::waiter_slot::WaiterSlot;
use crate::allocate::no_memory;
use crate::cno::Cno;
use crate::conn::cr::{self, Cr};
use crate::counters::{self, CounterQuery, EvdCounters};
use crate::error::{Error, Result};
use crate::handle::{self, Node, Object, Ref, Retired};
use crate::ia::Ia;
use crate::provider::{Completions, Sink, Transport};

/// An event dispatcher.
pub struct Evd<T: Transport> {
    /// The adapter of the EVD.
    pub ia: Ref<Ia<T>>,
    /// The kinds of events that the EVD accepts.
    pub flags: DAT_EVD_FLAGS,
    cq: Option<T::Cq>,
    queued_events: Mutex<VecDeque<QueuedEvent>>,
    queued_len: AtomicUsize,
    depth: AtomicUsize,
    staged: StagedCompletions,
    /// How often the completion queue was found empty. Each time, all completions that were queued
    /// earlier have been taken.
    empty_polls: Arc<AtomicU64>,
    shared: Arc<EvdShared<T>>,
}

/// An event that is not a completion.
struct QueuedEvent {
    event: DAT_EVENT,
    order: Order,
}

// SAFETY: the event's pointers are passed to the consumer and never followed here.
unsafe impl Send for QueuedEvent {}

/// When an event may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The event may be taken as soon as it is the first event in the queue.
    Now,
    /// The event may be taken only after the completions that were queued when it arrived.
    AfterCompletions,
}

impl<T: Transport> Object for Evd<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_EVD;
    // For a NULL EVD handle, OFED's library returns this code, whatever the EVD is for. Programs
    // print the code, so this library returns the same code.
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_EVD_REQUEST;
}

/// All kinds of events that an EVD can accept.
const STREAMS: DAT_EVD_FLAGS = DAT_EVD_SOFTWARE_FLAG | DAT_EVD_DEFAULT_FLAG;

/// Implements dat_evd_create. `depth` is the minimum number of events that the EVD can hold.
pub fn create<T: Transport>(
    ia: &Node<Ia<T>>,
    depth: DAT_COUNT,
    cno: Option<&Node<Cno<T>>>,
    flags: DAT_EVD_FLAGS,
) -> Result<&'static Node<Evd<T>>> {
    if depth <= 0 {
        return Err(Error::arg(2));
    }
    if flags & !STREAMS != 0 || flags == 0 {
        return Err(Error::arg(4));
    }
    let depth = depth as usize;
    if depth > ia.transport.attrs().max_evd_depth {
        return Err(Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEVD));
    }
    let _control = ia.control();
    cno.map_or(Ok(()), Cno::reserve_trigger)?;
    ia.add(|handle| {
        let shared = Arc::new(EvdShared {
            ia: Ref::new(ia),
            evd: handle as usize,
            waiter_slot: WaiterSlot::default(),
            enabled: AtomicBool::new(true),
            waitable: AtomicBool::new(true),
            dead: AtomicBool::new(false),
            cno: Mutex::new(cno.map(Ref::new)),
            has_cno: AtomicBool::new(cno.is_some()),
            counters: EvdCounters::default(),
            streams: stream::Streams::default(),
            overflowed: AtomicBool::new(false),
            completions_lost: AtomicBool::new(false),
        });
        let completes = flags & (DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG) != 0;
        // SAFETY: `EvdShared` is dropped after the completion queue (field order in `Evd`).
        let sink = unsafe { Sink::new(&*shared) };
        let cq = if completes { Some(ia.transport.cq(depth, sink)?) } else { None };
        let evd = Evd {
            ia: Ref::new(ia),
            flags,
            cq,
            queued_events: Mutex::new(VecDeque::new()),
            queued_len: AtomicUsize::new(0),
            depth: AtomicUsize::new(depth),
            staged: StagedCompletions::new()?,
            empty_polls: Arc::new(AtomicU64::new(0)),
            shared,
        };
        evd.require_upcalls_for_cno(cno.is_some());
        // SAFETY: nobody else can use the EVD before its handle exists.
        unsafe { evd.arm_for_cno() };
        Ok(evd)
    })
}

/// Implements dat_evd_free. All queued events are lost (uDAPL 1.2, dat_evd_free). Connection
/// requests among them are refused, because nobody could answer them any more. A thread that waits
/// on the EVD leaves with `DAT_ABORT`, and this call waits until it has left. If this call is made
/// in a signal handler, the waiter may be this very thread. Then another thread waits and frees the
/// EVD.
///
/// # Safety
/// If this call succeeds, nobody uses a reference to the EVD after the call.
pub unsafe fn free<T: Transport>(evd: &Node<Evd<T>>) -> Result<()> {
    // SAFETY: the caller guarantees that nobody uses a reference to the EVD after this call if it
    // succeeds.
    end_free(unsafe { begin_free(evd) }?);
    Ok(())
}

/// The first half of dat_evd_free: makes the handle stale.
///
/// # Safety
/// The requirements of [`free`] apply.
pub(crate) unsafe fn begin_free<T: Transport>(evd: &Node<Evd<T>>) -> Result<Retired<Evd<T>>> {
    let (ia, handle) = (evd.ia.clone(), evd.handle());
    let _control = ia.control_to_free::<Evd<T>>(handle)?;
    if evd.in_use() {
        return Err(Error::state(DAT_INVALID_STATE_EVD_IN_USE));
    }
    evd.shared.dead.store(true, Ordering::SeqCst);
    evd.shared.interrupt_waiter();
    ia.unregister_object(evd);
    evd.leave_cno();
    // SAFETY: no object depends on the EVD, and `end_free` waits for its waiter. The caller
    // guarantees the rest.
    unsafe { handle::retire(evd) }.ok_or(Error::handle(DAT_INVALID_HANDLE_EVD_REQUEST))
}

/// The second half of dat_evd_free: frees the EVD when no thread waits on it. The caller holds no
/// lock, because the thread that waits may be in a signal handler that needs a lock.
pub(crate) fn end_free<T: Transport>(evd: Retired<Evd<T>>) {
    let ia = evd.ia.clone();
    if nesting::interrupted_activity() == Activity::Nothing || evd.shared.waiter_slot.is_vacant() {
        finish_free(evd);
    } else {
        ia.free_later(move || finish_free(evd));
    }
}

/// Frees an EVD that is marked as dead, as soon as no thread waits on it.
pub(crate) fn finish_free<T: Transport>(evd: Retired<Evd<T>>) {
    let ia = evd.ia.clone();
    evd.await_no_waiter();
    evd.refuse_requests();
    let mut control = ia.control();
    // SAFETY: no waiter is left, and nobody else uses a retired object.
    unsafe { evd.retire_all() };
    control.forget_evd(evd.handle() as usize);
    // SAFETY: no waiter is left, and nobody else uses a retired object.
    drop(unsafe { evd.reclaim() });
}

impl<T: Transport> Evd<T> {
    /// The completion queue. `None` if the EVD accepts no completions.
    pub fn cq(&self) -> Option<&T::Cq> {
        self.cq.as_ref()
    }

    /// The minimum number of events that the EVD can hold.
    pub fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    /// Whether the EVD has lost events.
    fn has_overflowed(&self) -> bool {
        self.shared.overflowed.load(Ordering::Acquire)
    }

    /// Whether the EVD has lost a completion. If it has, it queues no more completions.
    pub(crate) fn has_lost_completions(&self) -> bool {
        self.shared.completions_lost.load(Ordering::Acquire)
    }

    /// How often the completion queue was found empty.
    pub fn empty_polls(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.empty_polls)
    }

    /// The completion flags that all streams of the EVD have. They decide which completions wake a
    /// waiter. If the streams have different flags, the result is the default flag.
    pub fn config(&self) -> DAT_COMPLETION_FLAGS {
        self.shared.streams.common_flags()
    }

    /// Removes all queued events, and refuses the connection requests among them. The caller holds
    /// no lock.
    fn refuse_requests(&self) {
        let events = std::mem::take(&mut *self.queued_events());
        for QueuedEvent { event, .. } in events {
            if event.event_number == DAT_CONNECTION_REQUEST_EVENT {
                // SAFETY: the number of the event says that this member of the union is valid.
                let cr = unsafe { event.event_data.cr_arrival_event_data.cr_handle };
                // The handle is stale if the adapter is closing.
                // SAFETY: the consumer has not taken the event, so no call uses the request.
                let withdrawn = unsafe {
                    handle::with_exclusive::<Cr<T>, _>(cr, |cr| Ok(cr::begin_abandon(cr)))
                };
                drop(withdrawn);
            }
        }
    }

    fn queued_events(&self) -> MutexGuard<'_, VecDeque<QueuedEvent>> {
        self.queued_events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an event that is not a completion, and notifies the waiter or the CNO. Errors:
    ///
    /// - `DAT_QUEUE_FULL`: the queue is full.
    /// - `DAT_INVALID_STATE`: the EVD has overflowed before and takes no more events.
    /// - `DAT_INSUFFICIENT_RESOURCES`: there is no memory for the event.
    pub fn post(&self, number: DAT_EVENT_NUMBER, data: DAT_EVENT_DATA, order: Order) -> Result<()> {
        self.post_event(number, data, [0; 8], order)
    }

    /// Queues an event of the IB extension as [`Evd::post`] does.
    pub(crate) fn post_extended(
        &self,
        number: DAT_IB_EVENT_NUMBER,
        data: DAT_EVENT_DATA,
        extension: &DAT_IB_EXTENSION_EVENT_DATA,
        order: Order,
    ) -> Result<()> {
        self.post_event(number, data, extension.to_words(), order)
    }

    fn post_event(
        &self,
        event_number: DAT_EVENT_NUMBER,
        event_data: DAT_EVENT_DATA,
        event_extension_data: [u64; 8],
        order: Order,
    ) -> Result<()> {
        let number = event_number;
        let evd_handle = self.shared.evd as *mut c_void;
        let event = DAT_EVENT { event_number, evd_handle, event_data, event_extension_data };
        if self.has_overflowed() {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        {
            let mut queued_events = self.queued_events();
            if queued_events.len() >= self.depth() {
                return Err(Error::of(DAT_QUEUE_FULL));
            }
            queued_events.try_reserve(1).map_err(no_memory)?;
            queued_events.push_back(QueuedEvent { event, order });
            self.queued_len.store(queued_events.len(), Ordering::Release);
        }
        if let DAT_CONNECTION_REQUEST_EVENT
        | DAT_IB_UD_CONNECTION_REQUEST_EVENT..=DAT_IB_UD_CONNECTION_ERROR_EVENT
        | DAT_CONNECTION_EVENT_ESTABLISHED..=DAT_CONNECTION_EVENT_UNREACHABLE = number
        {
            self.shared.counters.tally.count(DCNT_EVD_CONN_CALLBACK);
        }
        self.shared.notify();
        Ok(())
    }

    /// Implements dat_ib_query_counters.
    pub fn counters(&self, query: CounterQuery) -> [u64; counters::EVD] {
        self.shared.counters.read(query, self.empty_polls.load(Ordering::Relaxed))
    }

    /// Queues an event as [`Evd::post`] does. If that fails, reports an EVD overflow (uDAPL 1.2,
    /// dat_evd_create: async EVD).
    pub fn post_or_report(&self, number: DAT_EVENT_NUMBER, data: DAT_EVENT_DATA, order: Order) {
        if self.post(number, data, order).is_err() {
            self.report_overflow(number);
        }
    }

    /// Queues an event of the IB extension as [`Evd::post_or_report`] does.
    pub(crate) fn post_extended_or_report(
        &self,
        number: DAT_IB_EVENT_NUMBER,
        data: DAT_EVENT_DATA,
        extension: &DAT_IB_EXTENSION_EVENT_DATA,
        order: Order,
    ) {
        if self.post_extended(number, data, extension, order).is_err() {
            self.report_overflow(number);
        }
    }

    #[cold]
    fn report_overflow(&self, number: DAT_EVENT_NUMBER) {
        warn!(
            target: "dat::evd", ia = self.ia.name, event = event_name(number),
            "the event queue is full"
        );
        self.shared.overflow();
    }

    /// Implements dat_evd_post_se.
    pub fn post_software(&self, event: &DAT_EVENT) -> Result<()> {
        if self.flags & DAT_EVD_SOFTWARE_FLAG == 0 {
            return Err(Error::arg(1));
        }
        if event.event_number != DAT_SOFTWARE_EVENT {
            return Err(Error::arg(2));
        }
        self.post(DAT_SOFTWARE_EVENT, event.event_data, Order::Now)
    }

    /// Implements dat_evd_resize. Queued events are kept.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue`] apply.
    pub unsafe fn resize(&self, depth: DAT_COUNT) -> Result<()> {
        if depth <= 0 {
            return Err(Error::arg(2));
        }
        let depth = depth as usize;
        if depth > self.ia.transport.attrs().max_evd_depth {
            return Err(Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEVD));
        }
        // Counting the events takes completions out of the transport. While a thread waits on the
        // EVD, only that thread may take completions.
        if self.shared.waiter_slot.is_occupied() {
            return Err(Error::state(DAT_INVALID_STATE_EVD_WAITER));
        }
        if self.has_overflowed() {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        let _control = self.ia.control();
        // SAFETY: the caller guarantees that this thread has the right to dequeue.
        if depth < unsafe { self.count() } {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        if let Some(cq) = &self.cq {
            // SAFETY: the caller guarantees that this thread has the right to dequeue.
            unsafe { cq.resize(depth) }?;
        }
        self.depth.store(depth, Ordering::Relaxed);
        Ok(())
    }

    /// The state of the EVD, as dat_evd_query reports it.
    pub fn state(&self) -> DAT_EVD_STATE {
        let bit = |flag: &AtomicBool, yes, no| if flag.load(Ordering::Relaxed) { yes } else { no };
        let config = match self.config() {
            DAT_COMPLETION_UNSIGNALLED_FLAG => DAT_EVD_STATE_CONFIG_NOTIFY,
            DAT_COMPLETION_SOLICITED_WAIT_FLAG => DAT_EVD_STATE_CONFIG_SOLICITED,
            // The state has exactly one of the three configuration flags
            // (DAT_INVALID_STATE_EVD_CONFIG_… in the headers).
            _ => DAT_EVD_STATE_CONFIG_THRESHOLD,
        };
        bit(&self.shared.enabled, DAT_EVD_STATE_ENABLED, DAT_EVD_STATE_DISABLED)
            | bit(&self.shared.waitable, DAT_EVD_STATE_WAITABLE, DAT_EVD_STATE_UNWAITABLE)
            | config
    }

    /// The handle of the CNO, or NULL.
    pub fn cno_handle(&self) -> DAT_CNO_HANDLE {
        self.shared.cno().as_ref().map_or(std::ptr::null_mut(), |cno| cno.handle())
    }

    /// Detaches an EVD that is being freed from its CNO. If no EVD is left on the CNO, the CNO's
    /// waiters leave. The caller holds the control lock.
    fn leave_cno(&self) {
        self.shared.has_cno.store(false, Ordering::Release);
        let Some(cno) = self.shared.cno().take() else { return };
        cno.remove_evd(self.shared.evd);
        let handle = cno.handle();
        drop(cno);
        // SAFETY: while the control lock is held, no CNO of this adapter is freed.
        if let Ok(cno) = unsafe { handle::get::<Cno<T>>(handle) }
            && !cno.in_use()
        {
            cno.release_waiters();
        }
    }

    /// Implements dat_evd_modify_cno. `None` detaches the EVD from its CNO. Fails with
    /// `DAT_INSUFFICIENT_RESOURCES` if the CNO has no memory for the trigger of one more EVD.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue`] apply, unless a thread waits on the EVD.
    pub unsafe fn set_cno(&self, cno: Option<&Node<Cno<T>>>) -> Result<()> {
        let _control = self.ia.control();
        cno.map_or(Ok(()), Cno::reserve_trigger)?;
        let old = std::mem::replace(&mut *self.shared.cno(), cno.map(Ref::new));
        self.shared.has_cno.store(cno.is_some(), Ordering::Release);
        drop(old);
        self.require_upcalls_for_cno(cno.is_some());
        // SAFETY: the caller guarantees that this thread has the right to dequeue, unless there is
        // a waiter.
        unsafe { self.renotify() };
        Ok(())
    }

    /// Implements dat_evd_enable and dat_evd_disable, which set whether events trigger the CNO.
    ///
    /// # Safety
    /// The requirements of [`Evd::set_cno`] apply.
    pub unsafe fn set_enabled(&self, enabled: bool) {
        self.shared.enabled.store(enabled, Ordering::Release);
        // SAFETY: the caller guarantees that this thread has the right to dequeue, unless there is
        // a waiter.
        unsafe { self.renotify() };
    }

    /// Implements dat_evd_set_unwaitable and dat_evd_clear_unwaitable. If the EVD becomes
    /// unwaitable, a thread that waits on it leaves with `DAT_INVALID_STATE`.
    pub fn set_waitable(&self, waitable: bool) {
        self.shared.waitable.store(waitable, Ordering::SeqCst);
        if !waitable {
            self.shared.interrupt_waiter();
        }
    }

    /// Blocks until no thread waits on the EVD.
    fn await_no_waiter(&self) {
        while !self.shared.waiter_slot.is_vacant() {
            std::thread::yield_now();
        }
    }

    /// Wakes the thread that waits on the EVD, so that it notices that the adapter is closing.
    pub fn interrupt_waiter(&self) {
        self.shared.interrupt_waiter();
    }

    /// Tells the completion queue whether a CNO needs upcalls of the queue.
    fn require_upcalls_for_cno(&self, on: bool) {
        if let Some(cq) = &self.cq {
            cq.require_upcalls(on);
        }
    }

    /// Arms the completion queue if the next completion must trigger a CNO. Returns false if a
    /// completion is queued already.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue`] apply.
    #[inline]
    unsafe fn arm_for_cno(&self) -> bool {
        let wanted = self.shared.has_cno.load(Ordering::Acquire)
            && self.shared.enabled.load(Ordering::Relaxed);
        match &self.cq {
            // SAFETY: the caller guarantees that this thread has the right to dequeue.
            Some(cq) if wanted => unsafe { cq.arm(self.shared.solicited()) },
            _ => true,
        }
    }

    /// Notifies the CNO of events that are already queued, after the CNO was changed or enabled.
    ///
    /// # Safety
    /// The requirements of [`Evd::set_cno`] apply.
    unsafe fn renotify(&self) {
        // A thread that queues an event reads the CNO's settings afterwards (`EvdShared::notify`).
        // The fence in `record_cno_change` ensures that either that thread sees the new settings or
        // this thread sees the event.
        //
        // While a thread waits on the EVD, only that thread may read the completion queue and get
        // notifications. It reads the queue, and notifies the CNO, when it leaves.
        if self.shared.waiter_slot.record_cno_change() {
            return;
        }
        // SAFETY: there is no waiter, so the caller has the right to dequeue.
        if unsafe { self.arm_and_check_events() } {
            self.shared.notify_cno();
        }
    }
}
