//! Local memory regions (LMRs): memory that the adapter may access.

use std::ffi::c_void;

use dat_sys::ib::DAT_IB_MEM_PRIV_REMOTE_ATOMIC;
use dat_sys::*;

use super::mapping::{MappingError, Protection};
use super::shared_region::{Cookie, CookieClaim};
use super::{Pz, Rmr};
use crate::allocate::no_memory;
use crate::error::{Error, Result};
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::provider::{Access, Mem, Region, Transport};

/// A local memory region.
pub struct Lmr<T: Transport> {
    /// The transport's object for the region.
    pub mr: T::Mr,
    /// The protection zone of the region.
    pub pz: Ref<Pz<T>>,
    /// The adapter of the region.
    pub ia: Ref<Ia<T>>,
    mem: Mem,
    privileges: DAT_MEM_PRIV_FLAGS,
    origin: Origin,
}

/// The kind of memory that the consumer has registered.
enum Origin {
    Virtual,
    /// The memory of another region. The value is the handle of that region, which may be stale by
    /// now.
    Lmr(usize),
    Shared(CookieClaim),
}

// SAFETY: the address in `mem` is never followed here.
unsafe impl<T: Transport> Send for Lmr<T> {}
// SAFETY: the address in `mem` is never followed here.
unsafe impl<T: Transport> Sync for Lmr<T> {}

/// The memory to register.
pub enum Memory<'a, T: Transport> {
    /// `DAT_MEM_TYPE_VIRTUAL`: a range of addresses.
    Virtual {
        /// The address of the first byte.
        addr: *mut c_void,
        /// The length in bytes.
        length: DAT_VLEN,
    },
    /// `DAT_MEM_TYPE_LMR`: the memory of another region. The new region and the other region are
    /// independent of each other.
    Lmr(&'a Node<Lmr<T>>),
    /// `DAT_MEM_TYPE_SHARED_VIRTUAL`: a range of addresses that other processes have mapped, too.
    Shared {
        /// The address of the first byte.
        addr: *mut c_void,
        /// The length in bytes.
        length: DAT_VLEN,
        /// The cookie by which all processes that have mapped the memory name it.
        cookie: Cookie,
    },
}

impl<T: Transport> Object for Lmr<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_LMR;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_LMR;
}

/// Implements dat_lmr_create. Errors name argument positions of uDAPL 2.0, where `va_type` is the
/// seventh argument.
///
/// # Safety
/// The memory stays mapped until the region is freed. The consumer accepts that peers read and
/// write it as `privileges` permit.
pub unsafe fn create<T: Transport>(
    ia: &Node<Ia<T>>,
    memory: Memory<'_, T>,
    pz: &Node<Pz<T>>,
    privileges: DAT_MEM_PRIV_FLAGS,
    va_type: DAT_VA_TYPE,
) -> Result<&'static Node<Lmr<T>>> {
    let mem = match memory {
        Memory::Virtual { addr, length } | Memory::Shared { addr, length, .. } => {
            virtual_range(ia, addr, length)?
        }
        Memory::Lmr(lmr) if lmr.ia.handle() == ia.handle() => lmr.mem,
        Memory::Lmr(_) => return Err(Error::handle(DAT_INVALID_HANDLE_LMR)),
    };
    if pz.ia.handle() != ia.handle() {
        return Err(Error::handle(DAT_INVALID_HANDLE_PZ));
    }
    let atomics = if ia.transport.attrs().atomics { DAT_IB_MEM_PRIV_REMOTE_ATOMIC } else { 0 };
    if privileges & !(DAT_MEM_PRIV_ALL_FLAG | atomics) != 0 {
        return Err(Error::arg(6));
    }
    let mem = match va_type {
        DAT_VA_TYPE_VA => Mem { zero_based: false, ..mem },
        DAT_VA_TYPE_ZB if !ia.transport.attrs().zero_based => {
            return Err(Error::of(DAT_MODEL_NOT_SUPPORTED));
        }
        DAT_VA_TYPE_ZB => Mem { zero_based: true, ..mem },
        _ => return Err(Error::arg(7)),
    };
    let access = access(privileges, ia.transport.attrs().implies_local_read());
    check_mapping(ia, mem, access, privileges, !ia.transport.attrs().pins)?;
    let origin = match memory {
        Memory::Virtual { .. } => Origin::Virtual,
        Memory::Lmr(lmr) => Origin::Lmr(lmr.handle() as usize),
        Memory::Shared { cookie, .. } => {
            Origin::Shared(CookieClaim::new(ia.provider, cookie, mem.addr as u64, mem.len as u64)?)
        }
    };
    let _control = ia.control();
    ia.add(|_| {
        // SAFETY: the caller guarantees that the memory stays mapped until the region is freed.
        let mr = unsafe { ia.transport.mr(&pz.pd, mem, access) }.map_err(|refused| {
            // A device says only that it cannot pin the memory.
            match check_mapping(ia, mem, access, privileges, true) {
                Err(why) if why.kind() == DAT_PRIVILEGES_VIOLATION => why,
                _ => refused,
            }
        })?;
        Ok(Lmr { mr, pz: Ref::new(pz), ia: Ref::new(ia), mem, privileges, origin })
    })
}

fn virtual_range<T: Transport>(ia: &Ia<T>, addr: *mut c_void, length: DAT_VLEN) -> Result<Mem> {
    // A length of 0 is a `DAT_LENGTH_ERROR` (uDAPL 1.2, dat_lmr_create). `dapltest -T F mem` checks
    // that.
    if length == 0 {
        return Err(Error::of(DAT_LENGTH_ERROR));
    }
    if addr.is_null() {
        return Err(Error::arg(3));
    }
    let len = usize::try_from(length).map_err(|_| Error::arg(4))?;
    let fits = (addr as usize).checked_add(len).is_some()
        && length <= ia.transport.attrs().max_region_size;
    if !fits {
        return Err(Error::arg(4));
    }
    Ok(Mem { addr: addr.cast(), len, zero_based: false })
}

/// Checks that the memory is mapped, and, if `checks_access` is true, that the process itself may
/// access it as the region's privileges permit. If it may not, and no device pins the memory, an
/// access by a peer would end the process.
fn check_mapping<T: Transport>(
    ia: &Ia<T>,
    mem: Mem,
    access: Access,
    privileges: DAT_MEM_PRIV_FLAGS,
    checks_access: bool,
) -> Result<()> {
    let wanted = Protection {
        read: checks_access && (access.local_read || access.remote_read || access.remote_atomic),
        write: checks_access && (access.local_write || access.remote_write || access.remote_atomic),
    };
    let has = |flag| privileges & flag != 0;
    let subtype = match ia.mappings.check(mem.addr as usize, mem.len, wanted) {
        Ok(()) => return Ok(()),
        // The consumer must have allocated the buffer (uDAPL 1.2, dat_lmr_create).
        Err(MappingError::NotMapped) => return Err(Error::arg(3)),
        Err(MappingError::NoMemory) => return Err(no_memory(())),
        Err(MappingError::NotReadable)
            if has(DAT_MEM_PRIV_REMOTE_READ_FLAG) && !has(DAT_MEM_PRIV_LOCAL_READ_FLAG) =>
        {
            DAT_PRIVILEGES_RDMA_READ
        }
        Err(MappingError::NotReadable) => DAT_PRIVILEGES_READ,
        Err(MappingError::NotWritable) if has(DAT_MEM_PRIV_LOCAL_WRITE_FLAG) => {
            DAT_PRIVILEGES_WRITE
        }
        Err(MappingError::NotWritable) => DAT_PRIVILEGES_RDMA_WRITE,
    };
    Err(Error::new(DAT_PRIVILEGES_VIOLATION, subtype))
}

/// The accesses that the privileges permit. If `implies_local_read` is true, local reading is
/// always permitted, as in verbs.
pub(super) fn access(privileges: DAT_MEM_PRIV_FLAGS, implies_local_read: bool) -> Access {
    Access {
        local_read: implies_local_read || privileges & DAT_MEM_PRIV_LOCAL_READ_FLAG != 0,
        local_write: privileges & DAT_MEM_PRIV_LOCAL_WRITE_FLAG != 0,
        remote_read: privileges & DAT_MEM_PRIV_REMOTE_READ_FLAG != 0,
        remote_write: privileges & DAT_MEM_PRIV_REMOTE_WRITE_FLAG != 0,
        remote_atomic: privileges & DAT_IB_MEM_PRIV_REMOTE_ATOMIC != 0,
    }
}

/// Implements dat_lmr_free, which makes the contexts of the region invalid. The call is refused
/// while an RMR is bound to the region or a bind to the region is queued.
///
/// # Safety
/// If this call succeeds, nobody uses a reference to the region after the call.
pub unsafe fn free<T: Transport>(lmr: &Node<Lmr<T>>) -> Result<()> {
    let (ia, handle) = (lmr.ia.clone(), lmr.handle());
    let control = ia.control_to_free::<Lmr<T>>(handle)?;
    if lmr.in_use() {
        for rmr in ia.try_objects(DAT_HANDLE_TYPE_RMR)? {
            // SAFETY: while the control lock is held, no RMR is freed.
            if let Ok(rmr) = unsafe { handle::get::<Rmr<T>>(rmr) } {
                rmr.release_unbound();
            }
        }
    }
    if lmr.in_use() {
        return Err(Error::state(DAT_INVALID_STATE_LMR_IN_USE));
    }
    ia.unregister_object(lmr);
    // SAFETY: no object depends on the region.
    let removed = unsafe { handle::remove(lmr) };
    drop(removed);
    drop(control);
    Ok(())
}

/// Implements dat_lmr_sync_rdma_read and dat_lmr_sync_rdma_write. Memory is coherent, so these
/// calls only check that the segments are registered. The segments may belong to any protection
/// zone.
pub fn sync<T: Transport>(
    ia: &Node<Ia<T>>,
    mut segments: impl Iterator<Item = DAT_LMR_TRIPLET>,
) -> Result<()> {
    let _control = ia.control();
    let is_registered = |segment: DAT_LMR_TRIPLET| {
        segment.segment_length == 0
            // SAFETY: the control lock is held, and the region is not used outside this function.
            || unsafe { ia.find::<Lmr<T>>(|lmr| lmr.contains(&segment)) }.is_some()
    };
    if segments.all(is_registered) { Ok(()) } else { Err(Error::arg(2)) }
}

impl<T: Transport> Lmr<T> {
    /// The memory key that local segments use.
    pub fn context(&self) -> DAT_LMR_CONTEXT {
        self.mr.lkey()
    }

    /// The memory key that peers use. 0 if the region was created without a remote privilege.
    pub fn rmr_context(&self) -> DAT_RMR_CONTEXT {
        let remote = DAT_MEM_PRIV_REMOTE_READ_FLAG
            | DAT_MEM_PRIV_REMOTE_WRITE_FLAG
            | DAT_IB_MEM_PRIV_REMOTE_ATOMIC;
        if self.privileges & remote == 0 { 0 } else { self.mr.rkey() }
    }

    /// Implements dat_lmr_query.
    pub fn query(&self, param: &mut DAT_LMR_PARAM) {
        let for_va = self.mem.addr.cast();
        let (mem_type, region_desc) = match &self.origin {
            Origin::Virtual => (DAT_MEM_TYPE_VIRTUAL, DAT_REGION_DESCRIPTION { for_va }),
            &Origin::Lmr(lmr) => {
                (DAT_MEM_TYPE_LMR, DAT_REGION_DESCRIPTION { for_lmr_handle: lmr as DAT_LMR_HANDLE })
            }
            Origin::Shared(claim) => {
                // Return this copy of the cookie, because the consumer's own cookie may be gone.
                // The copy exists as long as the region.
                let shared_memory_id = std::ptr::from_ref(claim.cookie()).cast_mut();
                let for_shared_memory =
                    DAT_SHARED_MEMORY { virtual_address: for_va, shared_memory_id };
                (DAT_MEM_TYPE_SHARED_VIRTUAL, DAT_REGION_DESCRIPTION { for_shared_memory })
            }
        };
        *param = DAT_LMR_PARAM {
            ia_handle: self.ia.consumer_handle(),
            mem_type,
            region_desc,
            length: self.mem.len as DAT_VLEN,
            pz_handle: self.pz.handle(),
            mem_priv: self.privileges,
            va_type: if self.mem.zero_based { DAT_VA_TYPE_ZB } else { DAT_VA_TYPE_VA },
            lmr_context: self.context(),
            rmr_context: self.rmr_context(),
            registered_size: self.mem.len as DAT_VLEN,
            registered_address: self.mem.addr as DAT_VADDR,
        };
    }

    /// The privileges that the region was created with.
    pub fn privileges(&self) -> DAT_MEM_PRIV_FLAGS {
        self.privileges
    }

    /// Whether a segment contains the context of this region and lies inside the region.
    pub fn contains(&self, segment: &DAT_LMR_TRIPLET) -> bool {
        let base = if self.mem.zero_based { 0 } else { self.mem.addr as u64 };
        let end = segment.virtual_address.checked_add(segment.segment_length.into());
        self.context() == segment.lmr_context
            && segment.virtual_address >= base
            && end.is_some_and(|end| end <= base + self.mem.len as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each privilege permits only the access after which it is named. Local reading may need no
    /// privilege.
    #[test]
    fn each_privilege_gives_its_own_access() {
        let none = Access::default();
        let cases = [
            (0, none),
            (DAT_MEM_PRIV_LOCAL_READ_FLAG, Access { local_read: true, ..none }),
            (DAT_MEM_PRIV_LOCAL_WRITE_FLAG, Access { local_write: true, ..none }),
            (DAT_MEM_PRIV_REMOTE_READ_FLAG, Access { remote_read: true, ..none }),
            (DAT_MEM_PRIV_REMOTE_WRITE_FLAG, Access { remote_write: true, ..none }),
            (DAT_IB_MEM_PRIV_REMOTE_ATOMIC, Access { remote_atomic: true, ..none }),
        ];
        for (privilege, expected) in cases {
            assert_eq!(access(privilege, false), expected, "{privilege:#x}");
            assert_eq!(
                access(privilege, true),
                Access { local_read: true, ..expected },
                "{privilege:#x}"
            );
        }
    }
}
