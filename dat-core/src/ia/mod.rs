//! Interface adapters: the object everything else belongs to.

mod close;
mod objects;
mod open;
mod query;
mod sharing;

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_sys::describe::event_name;
use dat_sys::ib::*;
use dat_sys::*;
use tracing::warn;

pub use self::close::close;
pub(crate) use self::close::{begin_close, end_close};
use self::objects::Objects;
pub use self::open::{AsyncEvd, enter, open};
use self::query::Facts;
use crate::counters::IaCounters;
use crate::ep::Orphans;
use crate::error::Result;
use crate::evd::Evd;
use crate::handle::{self, Node, Object, Ref, Slot};
use crate::log::Hex;
use crate::mem::mapping::Mappings;
use crate::nesting;
use crate::provider::Transport;

/// An open interface adapter.
pub struct Ia<T: Transport> {
    /// The provider under it. Dropped last: every object of the adapter holds a `Ref<Ia>`.
    pub transport: T,
    /// The registry's name for it.
    pub name: String,
    /// The function table of its objects' handles.
    pub table: *const DAT_PROVIDER,
    /// Turns this adapter's handle into the one the consumer holds (a small integer on Linux) and back.
    pub registry: RegistryFns,
    /// Whether the consumer asked for a thread-safe adapter.
    pub thread_safe: bool,
    /// The provider's name.
    pub provider: &'static str,
    /// What it has done.
    pub counters: IaCounters,
    facts: Facts,
    /// Where asynchronous errors go; none when the consumer declared the dispatcher out of scope.
    async_evd: Mutex<Option<Ref<Evd<T>>>>,
    closing: AtomicBool,
    control: Mutex<Orphans>,
    /// How many objects were freed that a thread below a signal handler still uses.
    lingering: Arc<AtomicUsize>,
    objects: Objects,
    /// What memory there is to be registered.
    pub(crate) mappings: Mappings,
}

/// The registry's entry that an adapter is opened for.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its name: that of the adapter.
    pub name: &'a str,
    /// The name of its provider.
    pub provider: &'static str,
    /// The function table of the adapter's handles.
    pub table: *const DAT_PROVIDER,
    /// Where it was registered.
    pub registry: RegistryFns,
    /// Whether it promises thread safety.
    pub thread_safe: bool,
}

// SAFETY: `table` is an immutable static, and `facts` points into itself and is never changed.
unsafe impl<T: Transport> Send for Ia<T> {}
// SAFETY: as above.
unsafe impl<T: Transport> Sync for Ia<T> {}

impl<T: Transport> Object for Ia<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_IA;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_IA;
}

impl<T: Transport> Ia<T> {
    /// An adapter without objects.
    fn new(transport: T, entry: &Entry<'_>) -> Self {
        let facts = Facts::new(transport.attrs());
        Ia {
            transport,
            name: entry.name.to_owned(),
            table: entry.table,
            registry: entry.registry,
            thread_safe: entry.thread_safe,
            provider: entry.provider,
            counters: IaCounters::default(),
            facts,
            async_evd: Mutex::new(None),
            closing: AtomicBool::new(false),
            control: Mutex::new(Orphans::default()),
            lingering: Arc::default(),
            objects: Objects::default(),
            mappings: Mappings::default(),
        }
    }

    /// Serialises calls that create, free or re-wire objects. Never taken inside an upcall.
    pub fn control(&self) -> MutexGuard<'_, Orphans> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, for who frees an object. Another thread may have done so while this one waited: then the handle is invalid, as it
    /// would have been a moment later.
    pub(crate) fn control_to_free<O: Object>(
        &self,
        handle: *mut c_void,
    ) -> Result<MutexGuard<'_, Orphans>> {
        let control = self.control();
        // SAFETY: nothing is done with it; and under the lock nobody frees it.
        unsafe { handle::get::<O>(handle) }?;
        Ok(control)
    }

    /// Where asynchronous errors are reported.
    pub fn async_evd(&self) -> Option<Ref<Evd<T>>> {
        self.async_evd.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets or takes away the dispatcher of asynchronous errors.
    pub fn set_async_evd(&self, evd: Option<Ref<Evd<T>>>) {
        let old = std::mem::replace(
            &mut *self.async_evd.lock().unwrap_or_else(PoisonError::into_inner),
            evd,
        );
        drop(old);
    }

    /// Reports an asynchronous error: `event` is `DAT_ASYNC_ERROR_…`, `reason` one of `DAT_…_ASYNC_ERROR_REASON`.
    pub fn report(&self, event: DAT_EVENT_NUMBER, handle: *mut c_void, reason: u32) {
        self.counters.count(&[match handle::live(handle).map(Slot::kind) {
            Ok(DAT_HANDLE_TYPE_EP) => DCNT_IA_ASYNC_QP_ERROR,
            Ok(DAT_HANDLE_TYPE_EVD) => DCNT_IA_ASYNC_CQ_ERROR,
            _ => DCNT_IA_ASYNC_ERROR,
        }]);
        let (ia, about, what) = (&self.name, Hex(handle as usize), event_name(event));
        warn!(target: "dat::ia", ia, %about, event = what, reason, "asynchronous error");
        if let Some(evd) = self.async_evd() {
            let data =
                DAT_ASYNCH_ERROR_EVENT_DATA { dat_handle: handle, reason: reason as DAT_COUNT };
            // A full async queue has nowhere to report its own overflow to.
            let _ = evd.post(
                event,
                DAT_EVENT_DATA { asynch_error_event_data: data },
                crate::evd::Order::Now,
            );
        }
    }

    /// Frees an object, no longer listed, as soon as the wait ends that the handler which this is called in has interrupted.
    pub(crate) fn free_later(&self, free: impl FnOnce() + Send + 'static) -> Result<()> {
        let lingering = Arc::clone(&self.lingering);
        lingering.fetch_add(1, Ordering::AcqRel);
        nesting::later(move |told| {
            drop(told);
            free();
            lingering.fetch_sub(1, Ordering::AcqRel);
        })
    }

    /// Waits until all is gone that [`free_later`](Self::free_later) was asked to free.
    fn await_lingering(&self) {
        while self.lingering.load(Ordering::Acquire) != 0 {
            std::thread::yield_now();
        }
    }

    /// Whether it is being closed: waiters give up with `DAT_ABORT`, and no more objects are made.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Announces that it is being closed.
    pub fn set_closing(&self) {
        self.closing.store(true, Ordering::Release);
    }
}

impl<T: Transport> Node<Ia<T>> {
    /// Whether dat_ia_open made the dispatcher of asynchronous errors.
    fn owns_async_evd(&self) -> bool {
        self.async_evd().is_some_and(|evd| evd.ia.handle() == self.handle())
    }

    /// The handle that the consumer knows: what queries report.
    pub fn consumer_handle(&self) -> DAT_IA_HANDLE {
        let mut mapped = std::ptr::null_mut();
        // SAFETY: the registry's function takes any value and writes one handle.
        match unsafe { (self.registry.get_ia_handle)(self.handle(), &mut mapped) } {
            DAT_SUCCESS => mapped,
            _ => self.handle(),
        }
    }
}
