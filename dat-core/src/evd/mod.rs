//! Event dispatchers: where a consumer learns what happened.
//!
//! An EVD merges event streams. Data transfer completions come straight from the transport's completion queue and
//! are turned into events when they are taken. Everything else (connection requests, connections, software events,
//! asynchronous errors) is queued here, in `soft`. An event that ends a connection waits until the completion queue has
//! been empty, so that completions come before it (dat_ep_disconnect: all completions precede the disconnect event).

mod attendance;
mod bell;
mod extended;
mod feed;
mod take;
mod wait;

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_sys::describe::event_name;
use dat_sys::ib::*;
use dat_sys::*;
use tracing::warn;

use self::attendance::Attendance;
use self::bell::Bell;
pub(crate) use self::feed::{Feed, STREAM_FLAGS};
use self::take::Taker;
use crate::allocate::no_memory;
use crate::cno::Cno;
use crate::counters::{self, Ask, EvdCounters};
use crate::error::{Error, Result};
use crate::handle::{self, Node, Object, Ref, Retired};
use crate::ia::Ia;
use crate::nesting::{self, Doing};
use crate::provider::{Completions, Sink, Transport};

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
    cno.map_or(Ok(()), Cno::admit)?;
    ia.add(|handle| {
        let bell = Arc::new(Bell {
            ia: Ref::new(ia),
            evd: handle as usize,
            attendance: Attendance::default(),
            enabled: AtomicBool::new(true),
            waitable: AtomicBool::new(true),
            dead: AtomicBool::new(false),
            cno: Mutex::new(cno.map(Ref::new)),
            has_cno: AtomicBool::new(cno.is_some()),
            counters: EvdCounters::default(),
            streams: feed::Streams::default(),
            overflowed: AtomicBool::new(false),
            completions_end: AtomicBool::new(false),
        });
        let completes = flags & (DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG) != 0;
        // SAFETY: the bell is dropped after the completion queue (field order in `Evd`).
        let sink = unsafe { Sink::new(&*bell) };
        let cq = if completes { Some(ia.transport.cq(depth, sink)?) } else { None };
        let evd = Evd {
            ia: Ref::new(ia),
            flags,
            cq,
            soft: Mutex::new(VecDeque::new()),
            soft_len: AtomicUsize::new(0),
            depth: AtomicUsize::new(depth),
            taker: Taker::default(),
            empties: Arc::new(AtomicU64::new(0)),
            bell,
        };
        evd.tend_for_cno(cno.is_some());
        // SAFETY: nobody else can use it before there is a handle.
        unsafe { evd.arm_for_cno() };
        Ok(evd)
    })
}

/// dat_evd_free. A thread that waits on it leaves with `DAT_ABORT`, and is waited for, unless it may be this one, in a signal handler.
///
/// # Safety
/// Nobody uses a reference to it any more, if this succeeds.
pub unsafe fn free<T: Transport>(evd: &Node<Evd<T>>) -> Result<()> {
    // SAFETY: as the caller promised.
    end_free(unsafe { begin_free(evd) }?)
}

/// The first half of dat_evd_free: the handle is stale.
///
/// # Safety
/// As [`free`].
pub(crate) unsafe fn begin_free<T: Transport>(evd: &Node<Evd<T>>) -> Result<Retired<Evd<T>>> {
    let (ia, handle) = (evd.ia.clone(), evd.handle());
    let _control = ia.control_to_free::<Evd<T>>(handle)?;
    if evd.in_use() {
        return Err(Error::state(DAT_INVALID_STATE_EVD_IN_USE));
    }
    evd.bell.dead.store(true, Ordering::SeqCst);
    evd.bell.interrupt_waiter();
    ia.delist(evd);
    evd.leave_cno();
    // SAFETY: nobody depends on it, and who waits on it is waited for; the caller has promised the rest.
    unsafe { handle::retire(evd) }.ok_or(Error::handle(DAT_INVALID_HANDLE_EVD_REQUEST))
}

/// The second half, without any lock: a thread that waits may be in a signal handler that wants one.
pub(crate) fn end_free<T: Transport>(evd: Retired<Evd<T>>) -> Result<()> {
    let ia = evd.ia.clone();
    if nesting::below() == Doing::Nothing || evd.bell.attendance.is_deserted() {
        finish(evd);
        return Ok(());
    }
    ia.free_later(move || finish(evd))
}

/// Frees what is marked as dead, once it has no waiter.
pub(crate) fn finish<T: Transport>(evd: Retired<Evd<T>>) {
    let ia = evd.ia.clone();
    evd.await_desertion();
    let mut control = ia.control();
    // SAFETY: no waiter is left, and nobody else uses what is retired.
    unsafe { evd.retire_all() };
    control.forget_evd(evd.handle() as usize);
    // SAFETY: as above.
    drop(unsafe { evd.reclaim() });
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

    /// It has lost events.
    fn has_overflowed(&self) -> bool {
        self.bell.overflowed.load(Ordering::Acquire)
    }

    /// It has lost a completion, and queues no more of them.
    pub(crate) fn takes_no_more_completions(&self) -> bool {
        self.bell.completions_end.load(Ordering::Acquire)
    }

    /// How often the completion queue was seen empty.
    pub fn empties(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.empties)
    }

    /// The completion flags of the streams that feed it, if they agree: what wakes a waiter. Else the default flag.
    pub fn config(&self) -> DAT_COMPLETION_FLAGS {
        self.bell.streams.agreed()
    }

    fn soft(&self) -> MutexGuard<'_, VecDeque<Soft>> {
        self.soft.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// `DAT_INVALID_STATE`: nor will there be; `DAT_INSUFFICIENT_RESOURCES`: there was no memory for it.
    pub fn post(&self, number: DAT_EVENT_NUMBER, data: DAT_EVENT_DATA, order: Order) -> Result<()> {
        if self.has_overflowed() {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        {
            let mut soft = self.soft();
            if soft.len() >= self.depth() {
                return Err(Error::of(DAT_QUEUE_FULL));
            }
            soft.try_reserve(1).map_err(no_memory)?;
            soft.push_back(Soft { event: self.event(number, data), order });
            self.soft_len.store(soft.len(), Ordering::Release);
        }
        if let DAT_CONNECTION_REQUEST_EVENT
        | DAT_CONNECTION_EVENT_ESTABLISHED..=DAT_CONNECTION_EVENT_UNREACHABLE = number
        {
            self.bell.counters.tally.count(DCNT_EVD_CONN_CALLBACK);
        }
        self.bell.ring();
        Ok(())
    }

    /// dat_ib_query_counters.
    pub fn counters(&self, ask: Ask) -> [u64; counters::EVD] {
        self.bell.counters.read(ask, self.empties.load(Ordering::Relaxed))
    }

    /// As [`Evd::post`]; a full queue is reported as an EVD overflow (uDAPL 1.2, dat_evd_create: async EVD).
    pub fn post_or_report(&self, number: DAT_EVENT_NUMBER, data: DAT_EVENT_DATA, order: Order) {
        if self.post(number, data, order).is_err() {
            warn!(target: "dat::evd", ia = self.ia.name, event = event_name(number), "no room");
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
        if self.bell.attendance.is_attended() {
            return Err(Error::state(DAT_INVALID_STATE_EVD_WAITER));
        }
        if self.has_overflowed() {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        let _control = self.ia.control();
        // SAFETY: as the caller promised.
        if depth < unsafe { self.count() } {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        if let Some(cq) = &self.cq {
            // SAFETY: as the caller promised.
            unsafe { cq.resize(depth) }?;
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

    /// The EVD is being freed, under the control lock. The last one of a CNO takes its waiters along.
    fn leave_cno(&self) {
        self.bell.has_cno.store(false, Ordering::Release);
        let Some(cno) = self.bell.cno().take() else { return };
        cno.forget(self.bell.evd);
        let handle = cno.handle();
        drop(cno);
        // SAFETY: under the control lock no CNO of this adapter goes away.
        if let Ok(cno) = unsafe { handle::get::<Cno<T>>(handle) }
            && !cno.in_use()
        {
            cno.bereave();
        }
    }

    /// dat_evd_modify_cno: `None` takes it away. `DAT_INSUFFICIENT_RESOURCES`: there is no memory for its triggers.
    ///
    /// # Safety
    /// As [`Evd::dequeue`], unless there is a waiter.
    pub unsafe fn set_cno(&self, cno: Option<&Node<Cno<T>>>) -> Result<()> {
        let _control = self.ia.control();
        cno.map_or(Ok(()), Cno::admit)?;
        let old = std::mem::replace(&mut *self.bell.cno(), cno.map(Ref::new));
        self.bell.has_cno.store(cno.is_some(), Ordering::Release);
        drop(old);
        self.tend_for_cno(cno.is_some());
        // SAFETY: as the caller promised.
        unsafe { self.renotify() };
        Ok(())
    }

    /// dat_evd_enable and dat_evd_disable: whether events trigger the CNO.
    ///
    /// # Safety
    /// As [`Evd::set_cno`].
    pub unsafe fn set_enabled(&self, enabled: bool) {
        self.bell.enabled.store(enabled, Ordering::Release);
        // SAFETY: as the caller promised.
        unsafe { self.renotify() };
    }

    /// dat_evd_set_unwaitable and dat_evd_clear_unwaitable. A thread that waits leaves with `DAT_INVALID_STATE`.
    pub fn set_waitable(&self, waitable: bool) {
        self.bell.waitable.store(waitable, Ordering::SeqCst);
        if !waitable {
            self.bell.interrupt_waiter();
        }
    }

    /// Waits until nobody waits on it.
    fn await_desertion(&self) {
        while !self.bell.attendance.is_deserted() {
            std::thread::yield_now();
        }
    }

    /// Wakes a waiter so that it sees that the adapter closes.
    pub fn interrupt_waiter(&self) {
        self.bell.interrupt_waiter();
    }

    /// A CNO wants to hear of completions, or no longer.
    fn tend_for_cno(&self, on: bool) {
        if let Some(cq) = &self.cq {
            cq.attend(on);
        }
    }

    /// Arms the completion queue if a CNO wants to hear of the next completion. False: there is one already.
    ///
    /// # Safety
    /// As [`Evd::dequeue`].
    #[inline]
    unsafe fn arm_for_cno(&self) -> bool {
        let wanted =
            self.bell.has_cno.load(Ordering::Acquire) && self.bell.enabled.load(Ordering::Relaxed);
        match &self.cq {
            // SAFETY: as the caller promised.
            Some(cq) if wanted => unsafe { cq.arm(self.bell.solicited()) },
            _ => true,
        }
    }

    /// After a change of CNO or its enabling: events that are queued already count as new.
    ///
    /// # Safety
    /// As [`Evd::set_cno`].
    unsafe fn renotify(&self) {
        // Whoever queues an event looks for the CNO after that (`Bell::ring`).
        fence(Ordering::SeqCst);
        // Arming looks at what has completed, which is the waiter's while there is one; it does so when it leaves.
        // SAFETY: there is no waiter, and so the caller has the taking side.
        if self.bell.attendance.is_attended() || unsafe { self.has_left() } {
            self.bell.ring();
        }
    }
}
