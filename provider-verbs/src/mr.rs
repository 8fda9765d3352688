//! Protection domains and memory regions.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use dat_core::provider::{Access, Mem, Region};
use dat_core::{Error, Result};
use dat_sys::{
    DAT_INSUFFICIENT_RESOURCES, DAT_MODEL_NOT_SUPPORTED, DAT_RESOURCE_MEMORY_REGION,
    DAT_RESOURCE_PROTECTION_DOMAIN,
};
use rdma_core_sys::*;

use crate::device::Device;
use crate::map;

/// Protection domain.
pub struct Pd(pub(crate) Arc<Domain>);

/// What is made in it keeps it.
pub(crate) struct Domain {
    pub(crate) device: Arc<Device>,
    pub(crate) pd: NonNull<ibv_pd>,
}

// SAFETY: the library locks what threads share.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Pd {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Pd> {
        // SAFETY: an open context.
        let pd = NonNull::new(unsafe { (device.core.verbs.ibv_alloc_pd)(device.context.as_ptr()) });
        let full = || Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_PROTECTION_DOMAIN);
        Ok(Pd(Arc::new(Domain { device: Arc::clone(device), pd: pd.ok_or_else(full)? })))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: nothing made in it is left.
        unsafe { (self.device.core.verbs.ibv_dealloc_pd)(self.pd.as_ptr()) };
    }
}

/// Registered memory.
pub struct Mr {
    domain: Arc<Domain>,
    mr: NonNull<ibv_mr>,
    lkey: u32,
    rkey: u32,
}

// SAFETY: as above.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Mr {
    /// # Safety
    /// `mem` stays mapped until the region is dropped, and may be written to as `access` says.
    pub(crate) unsafe fn new(pd: &Pd, mem: Mem, access: Access) -> Result<Mr> {
        let domain = Arc::clone(&pd.0);
        let verbs = &domain.device.core.verbs;
        let (addr, flags) = (mem.addr.cast(), map::access(access, false) as i32);
        // A region that counts from zero is one whose first byte is named 0.
        let mr = NonNull::new(match mem.zero_based {
            // SAFETY: as the caller promised.
            true => unsafe { (verbs.ibv_reg_mr_iova)(domain.pd.as_ptr(), addr, mem.len, 0, flags) },
            // SAFETY: as the caller promised.
            false => unsafe { (verbs.ibv_reg_mr)(domain.pd.as_ptr(), addr, mem.len, flags) },
        });
        let mr = mr.ok_or_else(|| match io::Error::last_os_error().raw_os_error() {
            // The kernel wants the first byte at the same place of a page under both names.
            Some(libc::EINVAL) if mem.zero_based => Error::of(DAT_MODEL_NOT_SUPPORTED),
            Some(libc::EINVAL | libc::EFAULT) => Error::arg(3),
            _ => Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY_REGION),
        })?;
        // SAFETY: a live region.
        let ibv_mr { lkey, rkey, .. } = unsafe { mr.read() };
        let remote = access.remote_read || access.remote_write || access.remote_atomic;
        Ok(Mr { domain, mr, lkey, rkey: if remote { rkey } else { 0 } })
    }
}

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
        // SAFETY: live; dat-core drops no region that is in use.
        unsafe { (self.domain.device.core.verbs.ibv_dereg_mr)(self.mr.as_ptr()) };
    }
}
