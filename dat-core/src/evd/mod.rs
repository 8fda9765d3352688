//! Event dispatchers: where a consumer learns what happened.
//!
//! An EVD merges event streams. Data transfer completions come straight from the transport's completion queue and
//! are turned into events when they are taken. Everything else (connection requests, connections, software events,
//! asynchronous errors) is queued here, in `soft`. An event that ends a connection waits until the completion queue has
//! been empty, so that completions come before it (dat_ep_disconnect: all completions precede the disconnect event).

mod extended;
mod feed;
mod wait;

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_sys::ib::{DAT_IB_DTO_EVENT, DAT_IB_EXTENSION_EVENT_DATA};
use dat_sys::*;

pub use self::feed::Feed;
use crate::cno::Cno;
use crate::ep::Flow;
use crate::error::{Error, Result};
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::provider::{Completions, Receiver, Sink, Transport, Upcall, Wc, WcOp};
use crate::wake::Wake;

/// An event dispatcher.
pub struct Evd<T: Transport> {
    /// Its adapter.
    pub ia: Ref<Ia<T>>,
    /// Which streams may feed it.
    pub flags: DAT_EVD_FLAGS,
    cq: Option<T::Cq>,
    soft: Mutex<VecDeque<Soft>>,
    soft_len: AtomicUsize,
    depth: AtomicUsize,
    taker: Taker,
    /// How often the completion queue was seen empty: completions queued before have all been taken by then.
    empties: Arc<AtomicU64>,
    bell: Arc<Bell<T>>,
}

/// Who is told of new events. Apart from the EVD because the completion queue's upcalls come here.
struct Bell<T: Transport> {
    ia: Ref<Ia<T>>,
    evd: usize,
    /// A thread waits in dat_evd_wait.
    waiting: AtomicBool,
    /// Threads that are on their way out of dat_evd_wait.
    leaving: AtomicU32,
    wake: Wake,
    enabled: AtomicBool,
    waitable: AtomicBool,
    /// The EVD is being destroyed.
    dead: AtomicBool,
    cno: Mutex<Option<Ref<Cno<T>>>>,
    has_cno: AtomicBool,
    /// Completion streams that feed it.
    feeds: AtomicU32,
    /// The completion flags they agree on (see [`Feed`]).
    config: AtomicU32,
    /// Events were lost: what was there before can be taken, then it is of no use.
    overflowed: AtomicBool,
}

/// An event that is not a completion.
struct Soft {
    event: DAT_EVENT,
    order: Order,
}

// SAFETY: the event's pointers are handed to the consumer, never followed.
unsafe impl Send for Soft {}

/// When an event may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As soon as it is first.
    Now,
    /// Not before the completions that were queued when it came.
    AfterCompletions,
}

/// Completions taken from the transport to be counted, not yet taken by the consumer.
struct Taker(UnsafeCell<VecDeque<Wc>>);

// SAFETY: only the one thread that takes events from the EVD uses it: the waiter while there is one (others are
// refused), else the caller of dat_evd_dequeue, which the standard lets consumers of an adapter that is not
// thread-safe call from one thread at a time; thread-safe tables serialise it with the handle's lock.
unsafe impl Sync for Taker {}

impl<T: Transport> Object for Evd<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_EVD;
    // OFED's answer for a NULL EVD handle, whatever the stream; kept because programs print it.
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_EVD_REQUEST;
}

/// All streams an EVD can merge.
const STREAMS: DAT_EVD_FLAGS = DAT_EVD_SOFTWARE_FLAG | DAT_EVD_DEFAULT_FLAG;

/// dat_evd_create. `depth` is a minimum.
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
    let node = ia.add(|handle| {
        let bell = Arc::new(Bell {
            ia: Ref::new(ia),
            evd: handle as usize,
            waiting: AtomicBool::new(false),
            leaving: AtomicU32::new(0),
            wake: Wake::new(),
            enabled: AtomicBool::new(true),
            waitable: AtomicBool::new(true),
            dead: AtomicBool::new(false),
            cno: Mutex::new(cno.map(Ref::new)),
            has_cno: AtomicBool::new(cno.is_some()),
            feeds: AtomicU32::new(0),
            config: AtomicU32::new(DAT_COMPLETION_DEFAULT_FLAG),
            overflowed: AtomicBool::new(false),
        });
        let completes = flags & (DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG) != 0;
        // SAFETY: the bell is dropped after the completion queue (field order in `Evd`).
        let sink = unsafe { Sink::new(&*bell) };
        let cq = if completes { Some(ia.transport.cq(depth, sink)?) } else { None };
        Ok(Evd {
            ia: Ref::new(ia),
            flags,
            cq,
            soft: Mutex::new(VecDeque::new()),
            soft_len: AtomicUsize::new(0),
            depth: AtomicUsize::new(depth),
            taker: Taker(UnsafeCell::new(VecDeque::new())),
            empties: Arc::new(AtomicU64::new(0)),
            bell,
        })
    })?;
    node.arm_for_cno();
    Ok(node)
}

/// dat_evd_free. A thread that waits on it leaves with `DAT_ABORT`.
pub fn free<T: Transport>(evd: &Node<Evd<T>>) -> Result<()> {
    let ia = evd.ia.clone();
    let mut control = ia.control();
    if evd.in_use() {
        return Err(Error::state(DAT_INVALID_STATE_EVD_IN_USE));
    }
    evd.bell.dead.store(true, Ordering::SeqCst);
    evd.bell.interrupt_waiter();
    while evd.bell.waiting.load(Ordering::SeqCst) || evd.bell.leaving.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
    ia.delist(evd);
    if let Some(cno) = &*evd.bell.cno() {
        cno.forget(evd.bell.evd);
    }
    // SAFETY: no waiter is left, and the standard leaves a concurrent use of a freed handle to the consumer.
    unsafe { evd.retire_all() };
    control.forget_evd(evd.handle() as usize);
    // SAFETY: nobody depends on it, and the standard leaves a concurrent use of a freed handle to the consumer.
    let gone = unsafe { handle::remove(evd) };
    drop(gone);
    drop(control);
    Ok(())
}

impl<T: Transport> Evd<T> {
    /// The completion queue, if completions may feed it.
    pub fn cq(&self) -> Option<&T::Cq> {
        self.cq.as_ref()
    }

    /// At least this many events fit.
    pub fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    /// How often the completion queue was seen empty.
    pub fn empties(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.empties)
    }

    /// The completion flags of the streams that feed it: what wakes a waiter.
    pub fn config(&self) -> DAT_COMPLETION_FLAGS {
        self.bell.config.load(Ordering::Relaxed)
    }

    fn soft(&self) -> MutexGuard<'_, VecDeque<Soft>> {
        self.soft.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// dat_evd_dequeue: the first event.
    ///
    /// # Safety
    /// One caller at a time (see [`Taker`]).
    pub unsafe fn dequeue(&self) -> Result<DAT_EVENT> {
        let mut event = DAT_EVENT::zeroed();
        // SAFETY: as the caller promised.
        unsafe { self.dequeue_into(&mut event) }?;
        Ok(event)
    }

    /// As [`Evd::dequeue`], straight to where the consumer wants it: the record is large, and most of it unused.
    ///
    /// # Safety
    /// One caller at a time (see [`Taker`]), and `event` may be written to.
    #[inline]
    pub unsafe fn dequeue_into(&self, event: *mut DAT_EVENT) -> Result<()> {
        if self.bell.waiting.load(Ordering::Acquire) {
            return Err(Error::state(DAT_INVALID_STATE_EVD_WAITER));
        }
        // SAFETY: as the caller promised.
        if unsafe { self.take(event) } {
            self.remind_cno();
            return Ok(());
        }
        self.ia.transport.progress();
        loop {
            // SAFETY: as the caller promised.
            if unsafe { self.take(event) } {
                self.remind_cno();
                return Ok(());
            }
            if self.settle_cno() {
                return Err(self.nothing());
            }
        }
    }

    /// Why there is no event.
    #[cold]
    fn nothing(&self) -> Error {
        // uDAPL 1.2: an EVD that has overflowed is broken; an empty queue would be a lie.
        let overflowed = self.bell.overflowed.load(Ordering::Acquire);
        Error::of(if overflowed { DAT_INVALID_STATE } else { DAT_QUEUE_EMPTY })
    }

    /// One event was taken. If more are queued, a CNO that is waited on next shall return at once: not every consumer
    /// empties the queue after each trigger.
    #[inline(always)]
    fn remind_cno(&self) {
        if self.bell.has_cno.load(Ordering::Acquire)
            && (!self.arm_for_cno() || self.soft_len.load(Ordering::Acquire) > 0)
        {
            self.bell.remind();
        }
    }

    /// The queue was found empty: the CNO forgets this EVD and hears of the next event. False: there is one already.
    #[inline]
    fn settle_cno(&self) -> bool {
        if self.bell.has_cno.load(Ordering::Acquire) {
            self.bell.settle();
            // An event that was queued before that has had its trigger taken back.
            if self.soft_len.load(Ordering::Acquire) > 0 {
                return false;
            }
        }
        self.arm_for_cno()
    }

    /// The first event, if any.
    ///
    /// # Safety
    /// As [`Evd::dequeue_into`].
    #[inline(always)]
    unsafe fn take(&self, event: *mut DAT_EVENT) -> bool {
        // SAFETY: as the caller promised.
        unsafe {
            if self.soft_len.load(Ordering::Acquire) > 0 && self.take_soft(Order::Now, event) {
                return true;
            }
            if let Some(wc) = self.take_completion() {
                self.write_completion(&wc, event);
                return true;
            }
            self.soft_len.load(Ordering::Acquire) > 0 && self.take_soft(Order::AfterCompletions, event)
        }
    }

    /// # Safety
    /// As [`Evd::dequeue`].
    #[inline(always)]
    unsafe fn take_completion(&self) -> Option<Wc> {
        let cq = self.cq.as_ref()?;
        // SAFETY: the caller is the only one that takes events.
        if let Some(wc) = unsafe { (*self.taker.0.get()).pop_front() } {
            return Some(wc);
        }
        let mut wc = [MaybeUninit::uninit()];
        if cq.poll(&mut wc) == 0 {
            self.empties.store(self.empties.load(Ordering::Relaxed) + 1, Ordering::Release);
            return None;
        }
        // SAFETY: poll wrote one.
        Some(unsafe { wc[0].assume_init() })
    }

    /// Gives back what completions that nobody will take still occupy: buffers of shared receive queues.
    ///
    /// # Safety
    /// As [`Evd::dequeue`].
    unsafe fn retire_all(&self) {
        // SAFETY: as the caller promised; the flow of each outlives it (`Orphans`).
        while let Some(wc) = unsafe { self.take_completion() } {
            // SAFETY: as above.
            unsafe { &*(wc.qp as *const Flow) }.retire(&wc);
        }
    }

    /// The first queued event, if its order is at most `order`.
    ///
    /// # Safety
    /// `event` may be written to.
    #[cold]
    unsafe fn take_soft(&self, order: Order, event: *mut DAT_EVENT) -> bool {
        let mut soft = self.soft();
        let Some(first) =
            soft.pop_front_if(|first| order == Order::AfterCompletions || first.order == Order::Now)
        else {
            return false;
        };
        self.soft_len.store(soft.len(), Ordering::Release);
        // SAFETY: as the caller promised.
        unsafe { event.write(first.event) };
        true
    }

    /// Counts the events, taking completions out of the transport to do so.
    ///
    /// # Safety
    /// As [`Evd::dequeue`].
    unsafe fn count(&self) -> usize {
        // SAFETY: the caller is the only one that takes events.
        let staged = unsafe { &mut *self.taker.0.get() };
        if let Some(cq) = &self.cq {
            let mut batch = [MaybeUninit::uninit(); 16];
            loop {
                let n = cq.poll(&mut batch);
                // SAFETY: poll wrote the first n.
                staged.extend(batch[..n].iter().map(|wc| unsafe { wc.assume_init() }));
                if n < batch.len() {
                    break;
                }
            }
        }
        staged.len() + self.soft_len.load(Ordering::Acquire)
    }

    /// Only what the event number makes valid.
    ///
    /// # Safety
    /// `event` may be written to.
    #[inline(always)]
    unsafe fn write_completion(&self, wc: &Wc, event: *mut DAT_EVENT) {
        // SAFETY: `Wc::qp` is the address of the endpoint's flow, which outlives every completion of it (`Orphans`).
        let flow = unsafe { &*(wc.qp as *const Flow) };
        // SAFETY: as the caller promised.
        unsafe {
            (&raw mut (*event).evd_handle).write(self.bell.evd as *mut c_void);
            if wc.op == WcOp::Bind {
                (&raw mut (*event).event_number).write(DAT_RMR_BIND_COMPLETION_EVENT);
                (&raw mut (*event).event_data.rmr_completion_event_data).write(flow.retire_bind(wc));
                return;
            }
            let mut number = DAT_DTO_COMPLETION_EVENT;
            if let Some(data) = extended::data(wc) {
                number = DAT_IB_DTO_EVENT;
                (&raw mut (*event).event_extension_data).cast::<DAT_IB_EXTENSION_EVENT_DATA>().write(data);
            }
            (&raw mut (*event).event_number).write(number);
            (&raw mut (*event).event_data.dto_completion_event_data).write(flow.retire(wc));
        }
    }

    #[inline]
    fn event(&self, number: DAT_EVENT_NUMBER, data: DAT_EVENT_DATA) -> DAT_EVENT {
        DAT_EVENT {
            event_number: number,
            evd_handle: self.bell.evd as *mut c_void,
            event_data: data,
            event_extension_data: [0; 8],
        }
    }

    /// Queues an event that is not a completion and tells whoever cares. `DAT_QUEUE_FULL`: there was no room;
    /// `DAT_INVALID_STATE`: nor will there be.
    pub fn post(&self, number: DAT_EVENT_NUMBER, data: DAT_EVENT_DATA, order: Order) -> Result<()> {
        if self.bell.overflowed.load(Ordering::Acquire) {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        {
            let mut soft = self.soft();
            if soft.len() >= self.depth() {
                return Err(Error::of(DAT_QUEUE_FULL));
            }
            soft.push_back(Soft { event: self.event(number, data), order });
            self.soft_len.store(soft.len(), Ordering::Release);
        }
        self.bell.ring();
        Ok(())
    }

    /// As [`Evd::post`]; a full queue is reported as an EVD overflow (uDAPL 1.2, dat_evd_create: async EVD).
    pub fn post_or_report(&self, number: DAT_EVENT_NUMBER, data: DAT_EVENT_DATA, order: Order) {
        if self.post(number, data, order).is_err() {
            self.bell.overflow();
        }
    }

    /// dat_evd_post_se.
    pub fn post_software(&self, event: &DAT_EVENT) -> Result<()> {
        if self.flags & DAT_EVD_SOFTWARE_FLAG == 0 {
            return Err(Error::arg(1));
        }
        if event.event_number != DAT_SOFTWARE_EVENT {
            return Err(Error::arg(2));
        }
        self.post(DAT_SOFTWARE_EVENT, event.event_data, Order::Now)
    }

    /// dat_evd_resize. Nothing queued is lost.
    ///
    /// # Safety
    /// As [`Evd::dequeue`].
    pub unsafe fn resize(&self, depth: DAT_COUNT) -> Result<()> {
        if depth <= 0 {
            return Err(Error::arg(2));
        }
        let depth = depth as usize;
        if depth > self.ia.transport.attrs().max_evd_depth {
            return Err(Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEVD));
        }
        // Counting what is queued takes it out of the transport, which is the waiter's while there is one.
        if self.bell.waiting.load(Ordering::SeqCst) {
            return Err(Error::state(DAT_INVALID_STATE_EVD_WAITER));
        }
        if self.bell.overflowed.load(Ordering::Acquire) {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        let _control = self.ia.control();
        // SAFETY: as the caller promised.
        if depth < unsafe { self.count() } {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        if let Some(cq) = &self.cq {
            cq.resize(depth)?;
        }
        self.depth.store(depth, Ordering::Relaxed);
        Ok(())
    }

    /// dat_evd_query: state and CNO.
    pub fn state(&self) -> DAT_EVD_STATE {
        let bit = |flag: &AtomicBool, yes, no| if flag.load(Ordering::Relaxed) { yes } else { no };
        let config = match self.config() {
            DAT_COMPLETION_UNSIGNALLED_FLAG => DAT_EVD_STATE_CONFIG_NOTIFY,
            DAT_COMPLETION_SOLICITED_WAIT_FLAG => DAT_EVD_STATE_CONFIG_SOLICITED,
            // Always exactly one of the three (DAT_INVALID_STATE_EVD_CONFIG_… in the headers).
            _ => DAT_EVD_STATE_CONFIG_THRESHOLD,
        };
        bit(&self.bell.enabled, DAT_EVD_STATE_ENABLED, DAT_EVD_STATE_DISABLED)
            | bit(&self.bell.waitable, DAT_EVD_STATE_WAITABLE, DAT_EVD_STATE_UNWAITABLE)
            | config
    }

    /// The CNO's handle, or NULL.
    pub fn cno_handle(&self) -> DAT_CNO_HANDLE {
        self.bell.cno().as_ref().map_or(std::ptr::null_mut(), |cno| cno.handle())
    }

    /// dat_evd_modify_cno: `None` takes it away.
    pub fn set_cno(&self, cno: Option<&Node<Cno<T>>>) {
        let _control = self.ia.control();
        let old = std::mem::replace(&mut *self.bell.cno(), cno.map(Ref::new));
        self.bell.has_cno.store(cno.is_some(), Ordering::Release);
        drop(old);
        self.renotify();
    }

    /// dat_evd_enable and dat_evd_disable: whether events trigger the CNO.
    pub fn set_enabled(&self, enabled: bool) {
        self.bell.enabled.store(enabled, Ordering::Release);
        self.renotify();
    }

    /// dat_evd_set_unwaitable and dat_evd_clear_unwaitable. A thread that waits leaves with `DAT_INVALID_STATE`.
    pub fn set_waitable(&self, waitable: bool) {
        self.bell.waitable.store(waitable, Ordering::SeqCst);
        if !waitable {
            self.bell.interrupt_waiter();
        }
    }

    /// Wakes a waiter so that it sees that the adapter closes.
    pub fn interrupt_waiter(&self) {
        self.bell.interrupt_waiter();
    }

    /// Arms the completion queue if a CNO wants to hear of the next completion. False: there is one already.
    #[inline]
    fn arm_for_cno(&self) -> bool {
        let wanted = self.bell.has_cno.load(Ordering::Acquire) && self.bell.enabled.load(Ordering::Relaxed);
        match &self.cq {
            Some(cq) if wanted => cq.arm(self.bell.solicited()),
            _ => true,
        }
    }

    /// After a change of CNO or its enabling: events that are queued already count as new.
    fn renotify(&self) {
        if !self.arm_for_cno() || self.soft_len.load(Ordering::Acquire) > 0 {
            self.bell.ring();
        }
    }
}

impl<T: Transport> Bell<T> {
    fn cno(&self) -> MutexGuard<'_, Option<Ref<Cno<T>>>> {
        self.cno.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Only completions wake that the consumer, here or at the peer, wants to.
    fn solicited(&self) -> bool {
        feed::is_selective(self.config.load(Ordering::Relaxed))
    }

    /// There is a new event. The waiter is told, or else the CNO (dat_evd_wait: not both).
    fn ring(&self) {
        if self.waiting.load(Ordering::SeqCst) {
            self.interrupt_waiter();
        } else if self.has_cno.load(Ordering::Acquire)
            && self.enabled.load(Ordering::Acquire)
            && let Some(cno) = &*self.cno()
        {
            cno.trigger(self.evd);
        }
    }

    /// Triggers the CNO again for what is still queued.
    #[cold]
    fn remind(&self) {
        if self.enabled.load(Ordering::Acquire)
            && let Some(cno) = &*self.cno()
        {
            cno.remind(self.evd);
        }
    }

    /// Takes a trigger back that nobody has consumed.
    fn settle(&self) {
        if let Some(cno) = &*self.cno() {
            cno.settle(self.evd);
        }
    }

    fn interrupt_waiter(&self) {
        if self.wake.signal() {
            self.ia.transport.interrupt();
        }
    }

    /// Events were lost. Told once.
    fn overflow(&self) {
        if self.overflowed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.interrupt_waiter();
        self.ia.report(DAT_ASYNC_ERROR_EVD_OVERFLOW, self.evd as *mut c_void, DAT_EVD_OVERFLOW_ERROR);
    }
}

impl<T: Transport> Receiver<T> for Bell<T> {
    fn upcall(&self, up: Upcall<'_, T>) {
        match up {
            Upcall::CqOverflow => self.overflow(),
            _ => self.ring(),
        }
    }
}
