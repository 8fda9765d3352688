//! Interface adapters (IAs). Every other object belongs to an IA.

mod close;
mod objects;
mod open;
mod pending_frees;
mod query;
mod sharing;

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_sys::describe::event_name;
use dat_sys::ib::*;
use dat_sys::*;
use telemetry::Hex;
use tracing::warn;
use waiting::nesting;

pub use self::close::close;
pub(crate) use self::close::close_handle;
use self::objects::Objects;
pub use self::open::{AsyncEvd, open, open_with_transport};
use self::pending_frees::PendingFrees;
use self::query::QueryData;
use crate::counters::IaCounters;
use crate::ep::FreedFlows;
use crate::error::Result;
use crate::evd::Evd;
use crate::handle::{self, HandleSlot, Node, Object, Ref};
use crate::mem::mapping::Mappings;
use crate::provider::Transport;

/// An open interface adapter.
pub struct Ia<T: Transport> {
    /// The transport. It exists longer than all objects of the adapter, because each of them holds
    /// a `Ref<Ia>`.
    pub transport: T,
    /// The name of the adapter in the registry.
    pub name: String,
    /// The function table to which the handles of the adapter and of its objects lead.
    pub table: *const DAT_PROVIDER,
    /// The functions of the registry. One of them converts the adapter's handle to the handle that
    /// the consumer holds, which is a small integer on Linux.
    pub registry: RegistryFns,
    /// Whether the consumer asked for a thread-safe adapter.
    pub thread_safe: bool,
    /// The name of the provider.
    pub provider: &'static str,
    /// Counters of the adapter.
    pub counters: IaCounters,
    query_data: QueryData,
    /// The EVD of asynchronous errors. `None` if the consumer has declared that this EVD is out of
    /// scope.
    async_evd: Mutex<Option<Ref<Evd<T>>>>,
    closing: AtomicBool,
    control: Mutex<FreedFlows>,
    pending_frees: Arc<PendingFrees>,
    objects: Objects,
    /// The open file that lists the process's memory mappings. dat_lmr_create checks with it
    /// whether memory may be registered.
    pub(crate) mappings: Mappings,
}

/// The registry's entry for which an adapter is opened.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The name of the entry and of the adapter.
    pub name: &'a str,
    /// The name of the entry's provider.
    pub provider: &'static str,
    /// The function table of the adapter's handles.
    pub table: *const DAT_PROVIDER,
    /// The registry that contains the entry.
    pub registry: RegistryFns,
    /// Whether the entry promises thread safety.
    pub thread_safe: bool,
}

// SAFETY: `table` is an immutable static. `query_data` only points into itself and never changes.
unsafe impl<T: Transport> Send for Ia<T> {}
// SAFETY: `table` is an immutable static. `query_data` only points into itself and never changes.
unsafe impl<T: Transport> Sync for Ia<T> {}

impl<T: Transport> Object for Ia<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_IA;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_IA;
}

impl<T: Transport> Ia<T> {
    /// Creates an adapter without objects.
    fn new(transport: T, entry: &Entry<'_>) -> Self {
        let query_data = QueryData::new(transport.attrs());
        Ia {
            transport,
            name: entry.name.to_owned(),
            table: entry.table,
            registry: entry.registry,
            thread_safe: entry.thread_safe,
            provider: entry.provider,
            counters: IaCounters::default(),
            query_data,
            async_evd: Mutex::new(None),
            closing: AtomicBool::new(false),
            control: Mutex::new(FreedFlows::default()),
            pending_frees: Arc::default(),
            objects: Objects::default(),
            mappings: Mappings::default(),
        }
    }

    /// Takes the control lock, which serializes calls that create, free or reconnect objects. It is
    /// never taken in an upcall.
    pub fn control(&self) -> MutexGuard<'_, FreedFlows> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the control lock for a call that frees an object. If another thread has freed the
    /// object during the wait for the lock, the error is that of an invalid handle.
    pub(crate) fn control_to_free<O: Object>(
        &self,
        handle: *mut c_void,
    ) -> Result<MutexGuard<'_, FreedFlows>> {
        let control = self.control();
        // SAFETY: the result is not used, and no object is freed while the lock is held.
        unsafe { handle::get::<O>(handle) }?;
        Ok(control)
    }

    /// The EVD to which asynchronous errors are reported.
    pub fn async_evd(&self) -> Option<Ref<Evd<T>>> {
        self.async_evd.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets or removes the EVD of asynchronous errors.
    pub fn set_async_evd(&self, evd: Option<Ref<Evd<T>>>) {
        let old = std::mem::replace(
            &mut *self.async_evd.lock().unwrap_or_else(PoisonError::into_inner),
            evd,
        );
        drop(old);
    }

    /// Reports an asynchronous error to the asynchronous EVD. `event` is one of
    /// `DAT_ASYNC_ERROR_…`, and `reason` is a value of one of the types `DAT_…_ASYNC_ERROR_REASON`.
    pub fn report(&self, event: DAT_EVENT_NUMBER, handle: *mut c_void, reason: u32) {
        self.counters.count(&[match handle::live_slot(handle).map(HandleSlot::kind) {
            Ok(DAT_HANDLE_TYPE_EP) => DCNT_IA_ASYNC_QP_ERROR,
            Ok(DAT_HANDLE_TYPE_EVD) => DCNT_IA_ASYNC_CQ_ERROR,
            _ => DCNT_IA_ASYNC_ERROR,
        }]);
        let (ia, about, what) = (&self.name, Hex(handle as usize), event_name(event));
        warn!(target: "dat::ia", ia, %about, event = what, reason, "asynchronous error");
        if let Some(evd) = self.async_evd() {
            let data =
                DAT_ASYNCH_ERROR_EVENT_DATA { dat_handle: handle, reason: reason as DAT_COUNT };
            // Ignore the result: if the asynchronous EVD is full, there is no other EVD to which
            // its overflow could be reported.
            let _ = evd.post(
                event,
                DAT_EVENT_DATA { asynch_error_event_data: data },
                crate::evd::Order::Now,
            );
        }
    }

    /// Frees an object later, in another thread. A signal handler calls this while the wait that it
    /// has interrupted still uses the object. `free` waits until that wait has ended. The object is
    /// no longer registered. If no thread can be started, the thread of a later call frees the
    /// object, or it is freed when the adapter is closed.
    pub(crate) fn free_later(&self, free: impl FnOnce() + Send + 'static) {
        self.pending_frees.add(Box::new(free));
        let pending_frees = Arc::clone(&self.pending_frees);
        let started = nesting::in_other_thread(move |done| {
            drop(done);
            pending_frees.do_all();
        });
        if let Err(error) = started {
            warn!(target: "dat::ia", ia = self.name, %error, "an object is freed at the close");
        }
    }

    /// Whether the adapter is being closed. If it is, waits end with `DAT_ABORT`, and no more
    /// objects are created.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Declares that the adapter is being closed.
    pub fn set_closing(&self) {
        self.closing.store(true, Ordering::Release);
    }
}

impl<T: Transport> Node<Ia<T>> {
    /// Whether dat_ia_open created the EVD of asynchronous errors.
    fn owns_async_evd(&self) -> bool {
        self.async_evd().is_some_and(|evd| evd.ia.handle() == self.handle())
    }

    /// The adapter's handle in the form that the consumer knows and that queries report.
    pub fn consumer_handle(&self) -> DAT_IA_HANDLE {
        let mut mapped = std::ptr::null_mut();
        // SAFETY: the registry's function takes any value and writes one handle.
        match unsafe { (self.registry.get_ia_handle)(self.handle(), &mut mapped) } {
            DAT_SUCCESS => mapped,
            _ => self.handle(),
        }
    }
}
