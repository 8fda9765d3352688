//! Memory that operations and peers may use: zones, regions, and the segments that name parts of them.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{BitOr, Range};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::{fmt, ptr};

use dat_sys::*;

use crate::error::{Error, Result};
use crate::object::{Interface, Object, call};

/// A protection zone: endpoints of a zone reach the memory regions of that zone only.
pub struct ProtectionZone {
    pub(crate) object: Arc<Object>,
}

impl ProtectionZone {
    pub(crate) fn create(interface: &Arc<Interface>) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: an open IA, and a handle to write to.
        unsafe {
            call!(interface, "dat_pz_create", pz_create_func(interface.handle(), &mut handle))
        }?;
        // SAFETY: just created.
        let object =
            unsafe { Object::new(interface, handle, interface.table().pz_free_func, Vec::new()) };
        Ok(ProtectionZone { object: Arc::new(object) })
    }

    /// Registers a buffer, which the region then owns. A buffer is registered with its length, not its capacity.
    ///
    /// # Errors
    ///
    /// [`InvalidParameter`](crate::ErrorKind::InvalidParameter) for an empty buffer, and what else the provider says.
    pub fn register(&self, buffer: Vec<u8>, access: Access) -> Result<MemoryRegion<'static>> {
        // From here on the memory is reached through this pointer alone.
        let mut buffer = ManuallyDrop::new(buffer);
        let memory = Memory {
            start: buffer.as_mut_ptr(),
            len: buffer.len(),
            owned: Some(buffer.capacity()),
        };
        // SAFETY: the memory stays until `MemoryRegion` has deregistered it.
        unsafe { self.register_memory(memory, access) }
    }

    /// Registers memory that is borrowed for as long as the region exists.
    ///
    /// # Errors
    ///
    /// As [`register`](Self::register).
    ///
    /// # Safety
    ///
    /// The region is dropped, or [deregistered](MemoryRegion::deregister): a region that is forgotten
    /// ([`std::mem::forget`], a cycle of `Arc`s) would stay registered when the borrow has ended. Should the provider
    /// refuse to deregister it, the process is aborted.
    pub unsafe fn register_borrowed<'m>(
        &self,
        memory: &'m mut [u8],
        access: Access,
    ) -> Result<MemoryRegion<'m>> {
        let memory = Memory { start: memory.as_mut_ptr(), len: memory.len(), owned: None };
        // SAFETY: the memory is borrowed for 'm, and the caller has the region end before.
        unsafe { self.register_memory(memory, access) }
    }

    /// # Safety
    ///
    /// The memory stays, and nobody has a reference into it, until it is deregistered.
    unsafe fn register_memory<'m>(
        &self,
        memory: Memory,
        access: Access,
    ) -> Result<MemoryRegion<'m>> {
        let interface = &self.object.interface;
        let description = DAT_REGION_DESCRIPTION { for_va: memory.start.cast() };
        let mut handle = DAT_HANDLE_NULL;
        let (mut local_key, mut remote_key) = (0, 0);
        let (mut length, mut address) = (0, 0);
        // SAFETY: memory as described, a zone of this interface, and variables to write to.
        unsafe {
            call!(
                interface,
                "dat_lmr_create",
                lmr_create_func(
                    interface.handle(),
                    DAT_MEM_TYPE_VIRTUAL,
                    description,
                    memory.len as DAT_VLEN,
                    self.object.handle,
                    access.0,
                    DAT_VA_TYPE_VA,
                    &mut handle,
                    &mut local_key,
                    &mut remote_key,
                    &mut length,
                    &mut address,
                )
            )
        }?;
        let free = interface.table().lmr_free_func;
        // SAFETY: just created.
        let object = unsafe { Object::new(interface, handle, free, vec![self.object.clone()]) };
        Ok(MemoryRegion {
            object,
            memory: ManuallyDrop::new(memory),
            local_key,
            remote_key,
            lifetime: PhantomData,
        })
    }
}

/// Who may do what with a memory region; combine with `|`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access(DAT_MEM_PRIV_FLAGS);

impl Access {
    /// The local side may send and write from it, receive and read into it.
    pub const LOCAL: Access = Access(DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG);
    /// The local side may send and write from it.
    pub const LOCAL_READ: Access = Access(DAT_MEM_PRIV_LOCAL_READ_FLAG);
    /// The local side may receive and read into it.
    pub const LOCAL_WRITE: Access = Access(DAT_MEM_PRIV_LOCAL_WRITE_FLAG);
    /// Peers may read from it.
    pub const REMOTE_READ: Access = Access(DAT_MEM_PRIV_REMOTE_READ_FLAG);
    /// Peers may write to it.
    pub const REMOTE_WRITE: Access = Access(DAT_MEM_PRIV_REMOTE_WRITE_FLAG);
    /// Peers may change it by atomic operations, where the adapter has them
    /// ([`Attributes::extended`](crate::Attributes::extended)); not in [`ALL`](Self::ALL).
    pub const REMOTE_ATOMIC: Access = Access(dat_sys::ib::DAT_IB_MEM_PRIV_REMOTE_ATOMIC);
    /// Everything that the standard has.
    pub const ALL: Access = Access(DAT_MEM_PRIV_ALL_FLAG);
}

impl BitOr for Access {
    type Output = Access;

    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// The bytes of a region.
struct Memory {
    start: *mut u8,
    len: usize,
    /// The capacity of the `Vec` that they are from.
    owned: Option<usize>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(capacity) = self.owned {
            // SAFETY: the parts of the `Vec` that `register` was given.
            drop(unsafe { Vec::from_raw_parts(self.start, self.len, capacity) });
        }
    }
}

/// Registered memory (LMR). Its bytes stay where they are until it is deregistered, which `drop` does.
///
/// Operations and peers may change the bytes at any time. [`load`](Self::load) copies what is there; what a completion
/// says has arrived is there from then on.
pub struct MemoryRegion<'m> {
    object: Object,
    /// Dropped once the provider has let go of it, else never.
    memory: ManuallyDrop<Memory>,
    local_key: DAT_LMR_CONTEXT,
    remote_key: DAT_RMR_CONTEXT,
    lifetime: PhantomData<&'m mut [u8]>,
}

// SAFETY: the memory is ours, or exclusively borrowed; to write to it takes `&mut`.
unsafe impl Send for MemoryRegion<'_> {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion<'_> {}

impl MemoryRegion<'_> {
    /// Bytes.
    #[expect(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> usize {
        self.memory.len
    }

    /// Names some of the bytes in a local operation.
    ///
    /// # Errors
    ///
    /// [`Length`](crate::ErrorKind::Length) for a range outside of the region or longer than 4 GiB.
    #[inline]
    pub fn segment(&self, range: Range<usize>) -> Result<Segment> {
        let length = check_range("MemoryRegion::segment", &range, self.memory.len)?;
        let virtual_address = self.memory.start as DAT_VADDR + range.start as DAT_VADDR;
        Ok(Segment(DAT_LMR_TRIPLET {
            virtual_address,
            segment_length: length,
            lmr_context: self.local_key,
        }))
    }

    /// What a peer needs to know to read from or write to the region; useless without [`Access::REMOTE_READ`] or
    /// [`Access::REMOTE_WRITE`].
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion {
            address: self.memory.start as DAT_VADDR,
            length: self.memory.len as u64,
            key: self.remote_key,
        }
    }

    /// Copies bytes into the region.
    ///
    /// # Errors
    ///
    /// [`Length`](crate::ErrorKind::Length) where they do not fit.
    pub fn store(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        check_range(
            "MemoryRegion::store",
            &(offset..offset.saturating_add(bytes.len())),
            self.memory.len,
        )?;
        // SAFETY: checked; there are no references into the region that `bytes` could be.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.start.add(offset), bytes.len())
        };
        // A post or a flag that comes after is not seen before.
        fence(Ordering::Release);
        Ok(())
    }

    /// Copies bytes out of the region.
    ///
    /// # Errors
    ///
    /// [`Length`](crate::ErrorKind::Length) where the region has not that many.
    pub fn load(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        check_range(
            "MemoryRegion::load",
            &(offset..offset.saturating_add(bytes.len())),
            self.memory.len,
        )?;
        // The bytes may have changed since an earlier load.
        fence(Ordering::Acquire);
        // SAFETY: checked, and no references into the region exist. That a peer may be writing at the same
        // time makes the copy a mixture; it is bytes whatever they are.
        unsafe {
            ptr::copy_nonoverlapping(self.memory.start.add(offset), bytes.as_mut_ptr(), bytes.len())
        };
        Ok(())
    }

    /// A copy of some of the bytes.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn to_vec(&self, range: Range<usize>) -> Result<Vec<u8>> {
        check_range("MemoryRegion::to_vec", &range, self.memory.len)?;
        let mut bytes = vec![0; range.len()];
        self.load(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// The memory itself, for what copies are too slow for. It is the caller's to see to it that what he reads or
    /// writes is not changed by an operation or a peer at the same time, above all before he makes a reference of it.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.start
    }

    /// Deregisters the memory, and gives back the buffer if it was [registered](ProtectionZone::register) as one.
    ///
    /// # Errors
    ///
    /// What the provider says. A buffer that the provider does not let go of is leaked.
    pub fn deregister(mut self) -> Result<Option<Vec<u8>>> {
        self.object.free("dat_lmr_free")?;
        let Memory { start, len, owned } = *self.memory;
        // Nothing is left to be done by drop: neither to free nor to deregister.
        self.memory.owned = None;
        // SAFETY: the parts of the `Vec` that `register` was given; the provider has let go of it.
        Ok(owned.map(|capacity| unsafe { Vec::from_raw_parts(start, len, capacity) }))
    }
}

impl Drop for MemoryRegion<'_> {
    fn drop(&mut self) {
        if self.object.free("dat_lmr_free").is_ok() {
            // SAFETY: not used again.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        } else if self.memory.owned.is_none() {
            // The borrow ends and peers would go on writing. No provider refuses unless it has lost its mind.
            std::process::abort();
        }
    }
}

impl fmt::Debug for MemoryRegion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion").field("remote", &self.remote()).finish_non_exhaustive()
    }
}

/// The length of a range of a region, for C.
#[inline]
fn check_range(call: &'static str, range: &Range<usize>, len: usize) -> Result<DAT_SEG_LENGTH> {
    let inside = range.start <= range.end && range.end <= len;
    match DAT_SEG_LENGTH::try_from(range.end.wrapping_sub(range.start)) {
        Ok(length) if inside => Ok(length),
        _ => Err(Error::new(call, DAT_ERROR(DAT_LENGTH_ERROR, DAT_NO_SUBTYPE))),
    }
}

/// Part of a local memory region, in an operation.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Segment(pub(crate) DAT_LMR_TRIPLET);

impl Segment {
    /// Bytes.
    pub fn length(&self) -> u32 {
        self.0.segment_length
    }
}

/// The segments of an operation, for C.
#[inline]
pub(crate) fn iov(segments: &[Segment]) -> (DAT_COUNT, *mut DAT_LMR_TRIPLET) {
    // Without const only in C's signature: with DAT_IOV_CONSUMER, which `Adapter::open` insists on, it is only read.
    let start = if segments.is_empty() { null_mut() } else { segments.as_ptr().cast_mut().cast() };
    (crate::adapter::count_to_c(segments.len()), start)
}

/// A peer's memory region, as [`MemoryRegion::remote`] describes it there. How it gets here is up to the program;
/// private data is one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Address of the first byte, at the peer.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The key that grants access.
    pub key: u32,
}

impl RemoteRegion {
    /// Bytes of [`to_bytes`](Self::to_bytes).
    pub const SIZE: usize = 20;

    /// Names some of the bytes in an RDMA operation.
    ///
    /// # Errors
    ///
    /// [`Length`](crate::ErrorKind::Length) for a range outside of the region or longer than 4 GiB.
    #[inline]
    pub fn segment(&self, range: Range<usize>) -> Result<RemoteSegment> {
        let len = usize::try_from(self.length).unwrap_or(usize::MAX);
        let length = check_range("RemoteRegion::segment", &range, len)?;
        let virtual_address = self.address.wrapping_add(range.start as u64);
        Ok(RemoteSegment(DAT_RMR_TRIPLET {
            virtual_address,
            segment_length: length,
            rmr_context: self.key,
        }))
    }

    /// Address, length, key, each in network byte order.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_be_bytes());
        bytes[16..].copy_from_slice(&self.key.to_be_bytes());
        bytes
    }

    /// Reads [`to_bytes`](Self::to_bytes); `None` for fewer bytes. More are left alone: providers of InfiniBand fill
    /// private data up with zeros.
    ///
    /// ```
    /// use dat::RemoteRegion;
    /// let region = RemoteRegion { address: 0x7f00_0000_1000, length: 4096, key: 0x1234_5601 };
    /// assert_eq!(RemoteRegion::from_bytes(&region.to_bytes()), Some(region));
    /// assert_eq!(RemoteRegion::from_bytes(&[&region.to_bytes()[..], &[0; 36]].concat()), Some(region));
    /// assert_eq!(RemoteRegion::from_bytes(b"short"), None);
    /// ```
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (address, rest) = bytes.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let key = rest.first_chunk()?;
        Some(RemoteRegion {
            address: u64::from_be_bytes(*address),
            length: u64::from_be_bytes(*length),
            key: u32::from_be_bytes(*key),
        })
    }
}

/// Part of a peer's memory region, in an RDMA operation.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct RemoteSegment(pub(crate) DAT_RMR_TRIPLET);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        let region = RemoteRegion { address: u64::MAX - 3, length: 8, key: 1 };
        assert_eq!(region.segment(2..8).expect("inside").0.segment_length, 6);
        assert_eq!(region.segment(8..8).expect("nothing at the end").0.segment_length, 0);
        #[expect(clippy::reversed_empty_ranges, reason = "that is the case")]
        let outside = [0..9, 9..9, 5..4, usize::MAX..0];
        for range in outside {
            let error = region.segment(range.clone()).expect_err("outside");
            assert_eq!(error.kind(), crate::ErrorKind::Length, "{range:?}");
        }
        let large = RemoteRegion { length: 1 << 33, ..region };
        assert!(large.segment(0..1 << 32).is_err(), "one operation moves less than 4 GiB");
    }
}
