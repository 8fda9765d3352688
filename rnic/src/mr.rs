//! Memory regions.

use std::sync::Arc;

use work::Access;

use crate::key::{Keys, Pd, RegisterError};

/// A registered memory region. Dropping it invalidates its key. When `drop` has returned, engines
/// that look up the key find it invalid. An engine may still use memory that it has looked up
/// before, until it releases its lock.
pub struct Mr {
    keys: Arc<Keys>,
    stag: u32,
    remote: bool,
}

impl Mr {
    /// Registers `len` octets at `addr`. With `zero_based`, local segments and peers address these
    /// octets by offsets from 0.
    ///
    /// # Safety
    /// The memory must stay mapped until the region is dropped, and writable if `access` grants
    /// writes or atomic operations. Engines may read and write the memory at any time as `access`
    /// allows. Other code that accesses the memory must tolerate this.
    pub unsafe fn new(
        keys: &Arc<Keys>,
        pd: Pd,
        addr: *mut u8,
        len: usize,
        access: Access,
        zero_based: bool,
    ) -> Result<Self, RegisterError> {
        let stag =
            keys.register(pd, addr.expose_provenance() as u64, len as u64, access, zero_based)?;
        Ok(Mr { keys: Arc::clone(keys), stag, remote: access.is_remote() })
    }

    /// The key of the region in local segments.
    pub fn lkey(&self) -> u32 {
        self.stag
    }

    /// The key of the region for peers. 0 if they have no access.
    pub fn rkey(&self) -> u32 {
        if self.remote { self.stag } else { 0 }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        self.keys.deregister(self.stag);
    }
}
