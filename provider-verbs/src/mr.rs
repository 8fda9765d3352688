//! Protection domains and memory regions.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use dat_core::provider::{Access, Mem, PostError, Region, Segment, View};
use dat_core::{Error, Result};
use dat_sys::{
    DAT_INSUFFICIENT_RESOURCES, DAT_MODEL_NOT_SUPPORTED, DAT_RESOURCE_MEMORY_REGION,
    DAT_RESOURCE_PROTECTION_DOMAIN,
};
use rdma_core_sys::*;

use crate::device::Device;
use crate::key_table::KeyedRange;
use crate::{Adapter, map};

/// A protection domain.
pub struct Pd(pub(crate) Arc<Domain>);

/// The part of a protection domain that its objects share.
pub(crate) struct Domain {
    pub(crate) device: Arc<Device>,
    pub(crate) pd: NonNull<ibv_pd>,
}

// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Send for Domain {}
// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Sync for Domain {}

impl Pd {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Pd> {
        // SAFETY: the context is open.
        let pd = NonNull::new(unsafe { (device.core.verbs.ibv_alloc_pd)(device.context.as_ptr()) });
        let full = || Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_PROTECTION_DOMAIN);
        Ok(Pd(Arc::new(Domain { device: Arc::clone(device), pd: pd.ok_or_else(full)? })))
    }
}

impl Domain {
    /// The identity of the domain in [`crate::key_table::KeyTable`].
    #[inline]
    pub(crate) fn id(&self) -> usize {
        self.pd.as_ptr().addr()
    }

    /// Returns whether a work request with these segments will fail because the device cannot read
    /// them or, if `writes`, cannot write to them. Returns false for hardware: only the kernel's
    /// drivers need this check, because their status does not show the reason (see [`map::request`]
    /// and [`map::receive`]).
    #[inline]
    pub(crate) fn is_inaccessible(&self, segments: &[Segment], writes: bool) -> bool {
        let Device { keys, kernel_driver, .. } = &*self.device;
        kernel_driver.is_some()
            && !segments.iter().all(|segment| keys.is_accessible(segment, self.id(), writes))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: no object of the domain is left that could use it.
        unsafe { (self.device.core.verbs.ibv_dealloc_pd)(self.pd.as_ptr()) };
    }
}

/// A memory region.
pub struct Mr {
    region: Arc<Registered>,
    lkey: u32,
    rkey: u32,
    memory: *mut c_void,
    /// The address by which segments refer to the region's first byte: its memory address, or 0 for
    /// a zero-based region.
    start: u64,
    len: u64,
    access: Access,
}

// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Send for Mr {}
// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers memory.
    ///
    /// # Safety
    /// `mem` stays mapped until the region is dropped. The caller permits all accesses to it that
    /// `access` grants.
    pub(crate) unsafe fn new(pd: &Pd, mem: Mem, access: Access) -> Result<Mr> {
        let domain = Arc::clone(&pd.0);
        let verbs = &domain.device.core.verbs;
        let windows = if domain.device.has_any_windows() { IBV_ACCESS_MW_BIND } else { 0 };
        let (addr, flags) = (mem.addr.cast(), (map::access(access, false) | windows) as i32);
        // A zero-based region is a region whose I/O virtual address is 0.
        let mr = NonNull::new(match mem.zero_based {
            // SAFETY: the caller keeps the memory mapped and grants this access.
            true => unsafe { (verbs.ibv_reg_mr_iova)(domain.pd.as_ptr(), addr, mem.len, 0, flags) },
            // SAFETY: the caller keeps the memory mapped and grants this access.
            false => unsafe { (verbs.ibv_reg_mr)(domain.pd.as_ptr(), addr, mem.len, flags) },
        });
        let mr = mr.ok_or_else(|| match io::Error::last_os_error().raw_os_error() {
            // The kernel requires that the memory address and the I/O virtual address of a region
            // have the same offset in a page.
            Some(libc::EINVAL) if mem.zero_based => Error::of(DAT_MODEL_NOT_SUPPORTED),
            Some(libc::EINVAL | libc::EFAULT) => Error::arg(3),
            _ => Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY_REGION),
        })?;
        // SAFETY: the region is live.
        let ibv_mr { lkey, rkey, .. } = unsafe { mr.read() };
        let remote = access.remote_read || access.remote_write || access.remote_atomic;
        let start = if mem.zero_based { 0 } else { mem.addr.addr() as u64 };
        let rkey = if remote { rkey } else { 0 };
        let len = mem.len as u64;
        let is_writable = flags & IBV_ACCESS_LOCAL_WRITE as i32 != 0;
        let range =
            KeyedRange { domain: domain.id(), start, end: start.saturating_add(len), is_writable };
        domain.device.keys.insert(lkey, range);
        Ok(Mr {
            region: Arc::new(Registered { domain, mr }),
            lkey,
            rkey,
            memory: addr,
            start,
            len,
            access,
        })
    }
}

impl Mr {
    /// Returns the region to which a window must be bound so that it gives access to `view`. On rxe
    /// this is a new region of exactly that range (see [`crate::mw`]), otherwise this region.
    pub(crate) fn bindable(&self, view: &View<'_, Adapter>) -> Option<Arc<Registered>> {
        let domain = &self.region.domain;
        if !domain.device.is_rxe() {
            return Some(Arc::clone(&self.region));
        }
        let memory = self.memory.wrapping_byte_add(view.addr.checked_sub(self.start)? as usize);
        let flags = map::access(view.access, false) & IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
        let (reg_mr, len) = (domain.device.core.verbs.ibv_reg_mr_iova, view.len as usize);
        // SAFETY: the domain is live. The memory belongs to this region, which outlives the windows
        // that show it.
        let mr = unsafe { reg_mr(domain.pd.as_ptr(), memory, len, view.addr, flags as i32) };
        Some(Arc::new(Registered { domain: Arc::clone(domain), mr: NonNull::new(mr)? }))
    }

    pub(crate) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.region.domain, domain)
    }

    /// Checks whether a window may give access to this range of the region.
    pub(crate) fn check(&self, view: &View<'_, Adapter>) -> std::result::Result<(), PostError> {
        let inside = view
            .addr
            .checked_sub(self.start)
            .is_some_and(|at| at.checked_add(view.len).is_some_and(|end| end <= self.len));
        if !inside {
            return Err(PostError::Bounds);
        }
        if view.access.remote_read && !self.access.local_read {
            return Err(PostError::Access { write: false });
        }
        let writes = view.access.remote_write || view.access.remote_atomic;
        match writes && !self.access.local_write {
            true => Err(PostError::Access { write: true }),
            false => Ok(()),
        }
    }
}

/// A region of the device. It stays registered while a window is bound to it, and while a bind to
/// it is queued.
pub(crate) struct Registered {
    domain: Arc<Domain>,
    mr: NonNull<ibv_mr>,
}

impl Registered {
    pub(crate) fn as_ptr(&self) -> *mut ibv_mr {
        self.mr.as_ptr()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: the region is live, and no window shows it any more.
        unsafe { (self.domain.device.core.verbs.ibv_dereg_mr)(self.mr.as_ptr()) };
    }
}

// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Send for Registered {}
// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Sync for Registered {}

impl Region for Mr {
    fn lkey(&self) -> u32 {
        self.lkey
    }

    fn rkey(&self) -> u32 {
        self.rkey
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // Remove the key from the table first, because the device may give the key to another
        // region at once.
        self.region.domain.device.keys.remove(self.lkey);
    }
}
