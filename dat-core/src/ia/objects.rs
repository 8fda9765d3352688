//! The objects of an adapter, and their maximum numbers.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_sys::ib::*;
use dat_sys::*;

use super::Ia;
use crate::allocate::no_memory;
use crate::error::{Error, Result};
use crate::handle::{self, Node, Object};
use crate::provider::{Attrs, Transport};

/// The handles of an adapter's objects. Upcalls may take this lock. A thread that holds it takes no
/// other lock.
#[derive(Default)]
pub(super) struct Objects(Mutex<HashMap<DAT_HANDLE_TYPE, HashSet<usize>>>);

impl<T: Transport> Ia<T> {
    /// Creates an object of the adapter behind a new handle, which `make` gets as an argument.
    /// Errors:
    ///
    /// - `DAT_INSUFFICIENT_RESOURCES`: the adapter already has its maximum number of objects of
    ///   this type.
    /// - `DAT_INVALID_HANDLE`: the adapter is being closed.
    pub fn add<O: Object>(
        &self,
        make: impl FnOnce(*mut c_void) -> Result<O>,
    ) -> Result<&'static Node<O>> {
        handle::insert(self.table, self.thread_safe, |handle| {
            self.register_object::<O>(handle)?;
            make(handle).inspect_err(|_| self.remove_entry(O::KIND, handle))
        })
        .inspect(|_| self.counters.count(create_counters(O::KIND)))
    }

    /// Removes an object from the list of the adapter. This is the first step of freeing it.
    pub fn unregister_object<O: Object>(&self, node: &Node<O>) {
        self.remove_entry(O::KIND, node.handle());
        self.counters.count(free_counters(O::KIND));
    }

    /// The handles of all objects of a type.
    pub fn objects(&self, kind: DAT_HANDLE_TYPE) -> Vec<*mut c_void> {
        self.objects
            .lock()
            .get(&kind)
            .into_iter()
            .flatten()
            .map(|handle| *handle as *mut c_void)
            .collect()
    }

    /// The handles of all objects of a type. Unlike [`Ia::objects`], this function fails if
    /// there is no memory for the handles.
    pub(crate) fn try_objects(&self, kind: DAT_HANDLE_TYPE) -> Result<Vec<*mut c_void>> {
        let objects = self.objects.lock();
        let of_kind = objects.get(&kind).into_iter().flatten();
        let mut handles = Vec::new();
        handles.try_reserve_exact(of_kind.clone().count()).map_err(no_memory)?;
        handles.extend(of_kind.map(|handle| *handle as *mut c_void));
        Ok(handles)
    }

    /// Finds an object of the adapter. `wanted` takes no lock.
    ///
    /// # Safety
    /// The caller holds the control lock, under which no object is freed, and does not use the
    /// result after it releases the lock.
    pub(crate) unsafe fn find<O: Object>(
        &self,
        wanted: impl Fn(&Node<O>) -> bool,
    ) -> Option<&Node<O>> {
        let objects = self.objects.lock();
        let handles = objects.get(&O::KIND).into_iter().flatten();
        // SAFETY: the caller holds the control lock, under which no object is freed.
        let node = |handle: &usize| unsafe { handle::get::<O>(*handle as *mut c_void) }.ok();
        handles.filter_map(node).find(|node| wanted(node))
    }

    /// The number of objects of the adapter.
    pub fn object_count(&self) -> usize {
        self.objects.lock().values().map(HashSet::len).sum()
    }

    fn register_object<O: Object>(&self, handle: *mut c_void) -> Result<()> {
        if self.is_closing() {
            return Err(Error::handle(DAT_INVALID_HANDLE_IA));
        }
        let (max, resource) = limit(self.transport.attrs(), O::KIND);
        let mut objects = self.objects.lock();
        objects.try_reserve(1).map_err(no_memory)?;
        let of_kind = objects.entry(O::KIND).or_default();
        if of_kind.len() >= max {
            return Err(Error::new(DAT_INSUFFICIENT_RESOURCES, resource));
        }
        of_kind.try_reserve(1).map_err(no_memory)?;
        of_kind.insert(handle as usize);
        Ok(())
    }

    fn remove_entry(&self, kind: DAT_HANDLE_TYPE, handle: *mut c_void) {
        if let Some(of_kind) = self.objects.lock().get_mut(&kind) {
            of_kind.remove(&(handle as usize));
        }
    }
}

/// The maximum number of objects of a type, and the subtype of the error if one more is created.
fn limit(attrs: &Attrs, kind: DAT_HANDLE_TYPE) -> (usize, DAT_RETURN) {
    match kind {
        DAT_HANDLE_TYPE_EP => (attrs.max_eps, DAT_RESOURCE_TEP),
        DAT_HANDLE_TYPE_EVD => (attrs.max_evds, DAT_RESOURCE_TEVD),
        DAT_HANDLE_TYPE_LMR => (attrs.max_regions, DAT_RESOURCE_MEMORY_REGION),
        DAT_HANDLE_TYPE_PZ => (attrs.max_pds, DAT_RESOURCE_PROTECTION_DOMAIN),
        DAT_HANDLE_TYPE_SRQ => (attrs.max_srqs, DAT_RESOURCE_SRQ),
        DAT_HANDLE_TYPE_RMR => (attrs.max_windows, DAT_RESOURCE_MEMORY_REGION),
        // The adapter's attributes have no limit for objects of other types.
        _ => (usize::MAX, DAT_NO_SUBTYPE),
    }
}

/// The counters to increment when an object is created. For a public service point, `psp::create`
/// also increments the counter of the call: dat_psp_create or dat_psp_create_any.
fn create_counters(kind: DAT_HANDLE_TYPE) -> &'static [DAT_IA_COUNTERS] {
    match kind {
        DAT_HANDLE_TYPE_PZ => &[DCNT_IA_PZ_CREATE],
        DAT_HANDLE_TYPE_LMR => &[DCNT_IA_LMR_CREATE],
        DAT_HANDLE_TYPE_RMR => &[DCNT_IA_RMR_CREATE],
        DAT_HANDLE_TYPE_EVD => &[DCNT_IA_EVD_CREATE],
        DAT_HANDLE_TYPE_EP => &[DCNT_IA_EP_CREATE],
        DAT_HANDLE_TYPE_SRQ => &[DCNT_IA_SRQ_CREATE],
        DAT_HANDLE_TYPE_RSP => &[DCNT_IA_RSP_CREATE, DCNT_IA_CM_LISTEN],
        DAT_HANDLE_TYPE_PSP | DAT_HANDLE_TYPE_CSP => &[DCNT_IA_CM_LISTEN],
        DAT_HANDLE_TYPE_CR => &[DCNT_IA_SP_CR],
        _ => &[],
    }
}

/// The counters to increment when an object is freed.
fn free_counters(kind: DAT_HANDLE_TYPE) -> &'static [DAT_IA_COUNTERS] {
    match kind {
        DAT_HANDLE_TYPE_PZ => &[DCNT_IA_PZ_FREE],
        DAT_HANDLE_TYPE_LMR => &[DCNT_IA_LMR_FREE],
        DAT_HANDLE_TYPE_RMR => &[DCNT_IA_RMR_FREE],
        DAT_HANDLE_TYPE_EVD => &[DCNT_IA_EVD_FREE],
        DAT_HANDLE_TYPE_EP => &[DCNT_IA_EP_FREE],
        DAT_HANDLE_TYPE_SRQ => &[DCNT_IA_SRQ_FREE],
        DAT_HANDLE_TYPE_RSP => &[DCNT_IA_RSP_FREE],
        DAT_HANDLE_TYPE_PSP => &[DCNT_IA_PSP_FREE],
        _ => &[],
    }
}

impl Objects {
    fn lock(&self) -> MutexGuard<'_, HashMap<DAT_HANDLE_TYPE, HashSet<usize>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
