//! Registered memory.

use std::sync::Arc;

use work::Access;

use crate::key::{Keys, Pd, RegisterError};

/// A registered region; `drop` ends its key. The owner of the engine lock drops it under that lock: when `drop` has
/// returned, no engine touches the memory any more.
pub struct Mr {
    keys: Arc<Keys>,
    stag: u32,
    remote: bool,
}

impl Mr {
    /// Registers `len` bytes at `addr`; with `zero_based` they are named by offsets from 0 on, locally and by peers.
    ///
    /// # Safety
    /// The memory stays mapped until the region is dropped, writable if `access` grants any writing or atomic operations, and whoever reads or
    /// writes it meanwhile accepts that engines read and write it as `access` says.
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

    /// Names the region in local segments.
    pub fn lkey(&self) -> u32 {
        self.stag
    }

    /// Names the region to peers; 0 when it grants them nothing.
    pub fn rkey(&self) -> u32 {
        if self.remote { self.stag } else { 0 }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        self.keys.deregister(self.stag);
    }
}
