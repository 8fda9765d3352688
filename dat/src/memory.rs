//! Memory for operations and peers: zones, regions, and segments of regions.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::{fmt, ptr};

use bitflags::bitflags;
use dat_sys::*;

use crate::error::{Error, Result};
use crate::object::{Interface, Object, call};

/// A protection zone. Endpoints in a zone can use only the memory regions in that zone.
///
/// A clone is another handle of the same zone, for example for another part of the program. The
/// zone is freed when all its handles have been dropped, and all objects in it.
///
/// ```
/// use dat::{Access, Adapter};
///
/// let adapter = Adapter::open("tcp-emu")?;
/// let zone = adapter.zone()?;
/// let region = zone.register(vec![0; 4096], Access::LOCAL)?;
/// # Ok::<(), dat::Error>(())
/// ```
#[derive(Clone)]
pub struct ProtectionZone {
    pub(crate) object: Arc<Object>,
}

impl ProtectionZone {
    pub(crate) fn create(interface: &Arc<Interface>) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: the IA is open, and the handle is writable.
        unsafe {
            call!(interface, "dat_pz_create", pz_create_func(interface.handle(), &mut handle))
        }?;
        // SAFETY: the object was just created, and only this value frees it.
        let object =
            unsafe { Object::new(interface, handle, interface.table().pz_free_func, Vec::new()) };
        Ok(ProtectionZone { object: Arc::new(object) })
    }

    /// Registers a buffer, which the region then owns. The registered length is the buffer's
    /// length, not its capacity.
    ///
    /// # Errors
    ///
    /// [`InvalidParameter`](crate::ErrorKind::InvalidParameter) for an empty buffer, and other
    /// errors of the provider.
    pub fn register(&self, buffer: Vec<u8>, access: Access) -> Result<MemoryRegion<'static>> {
        // From now on only this pointer accesses the memory.
        let mut buffer = ManuallyDrop::new(buffer);
        let memory = Memory {
            start: buffer.as_mut_ptr(),
            len: buffer.len(),
            owned: Some(buffer.capacity()),
        };
        // SAFETY: the memory stays until `MemoryRegion` has deregistered it.
        unsafe { self.register_memory(memory, access) }
    }

    /// Registers memory that the region borrows.
    ///
    /// # Errors
    ///
    /// The errors of [`register`](Self::register).
    ///
    /// # Safety
    ///
    /// The region must be dropped or [deregistered](MemoryRegion::deregister). A forgotten region
    /// ([`std::mem::forget`], a cycle of `Arc`s) would stay registered after the end of the borrow.
    /// If the provider fails to deregister the region, the process is aborted.
    pub unsafe fn register_borrowed<'m>(
        &self,
        memory: &'m mut [u8],
        access: Access,
    ) -> Result<MemoryRegion<'m>> {
        let memory = Memory { start: memory.as_mut_ptr(), len: memory.len(), owned: None };
        // SAFETY: the memory is borrowed for 'm, and the caller guarantees that the region ends
        // before 'm does.
        unsafe { self.register_memory(memory, access) }
    }

    /// Registers memory.
    ///
    /// # Safety
    ///
    /// The memory must stay in place, without any reference into it, until it is deregistered.
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
        // SAFETY: the caller guarantees that the memory is valid, the zone belongs to this
        // interface, and the variables are writable.
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
                    access.bits(),
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
        // SAFETY: the object was just created, and only this value frees it.
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

bitflags! {
    /// The permitted access to a memory region. Combine values with `|`.
    ///
    /// ```
    /// use dat::Access;
    ///
    /// let published = Access::LOCAL | Access::REMOTE_READ;
    /// assert!(published.contains(Access::LOCAL_WRITE) && !published.contains(Access::REMOTE_WRITE));
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: DAT_MEM_PRIV_FLAGS {
        /// Local operations may send and write from the region.
        const LOCAL_READ = DAT_MEM_PRIV_LOCAL_READ_FLAG;
        /// Local operations may receive and read into the region.
        const LOCAL_WRITE = DAT_MEM_PRIV_LOCAL_WRITE_FLAG;
        /// Local operations may send and write from the region, and receive and read into it.
        const LOCAL = DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG;
        /// Peers may read from the region.
        const REMOTE_READ = DAT_MEM_PRIV_REMOTE_READ_FLAG;
        /// Peers may write to the region.
        const REMOTE_WRITE = DAT_MEM_PRIV_REMOTE_WRITE_FLAG;
        /// All access that the standard defines.
        const ALL = DAT_MEM_PRIV_ALL_FLAG;
        /// Peers may change the region with atomic operations, if the adapter supports them
        /// ([`Attributes::extended`](crate::Attributes::extended)). [`ALL`](Self::ALL) does not
        /// include this access.
        const REMOTE_ATOMIC = dat_sys::ib::DAT_IB_MEM_PRIV_REMOTE_ATOMIC;
    }
}

/// The bytes of a region.
struct Memory {
    start: *mut u8,
    len: usize,
    /// The capacity of the `Vec` that owned the bytes. `None` for borrowed memory.
    owned: Option<usize>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(capacity) = self.owned {
            // SAFETY: these are the parts of the `Vec` that was passed to `register`.
            drop(unsafe { Vec::from_raw_parts(self.start, self.len, capacity) });
        }
    }
}

/// Registered memory (LMR in the standard). Its bytes stay in place until it is deregistered.
/// Dropping the region deregisters it.
///
/// Operations and peers may change the bytes at any time. [`load`](Self::load) copies their current
/// values. Received data are visible after the completion of the receive.
///
/// ```
/// use dat::{Access, Adapter};
///
/// let adapter = Adapter::open("tcp-emu")?;
/// let zone = adapter.zone()?;
/// let mut region = zone.register(vec![0; 16], Access::LOCAL)?;
/// region.store(4, b"hello")?;
/// assert_eq!(region.to_vec(0..9)?, b"\0\0\0\0hello");
/// assert_eq!(region.deregister()?.map(|buffer| buffer.len()), Some(16));
/// # Ok::<(), dat::Error>(())
/// ```
pub struct MemoryRegion<'m> {
    object: Object,
    /// The memory. It is dropped only after the provider has deregistered it. If the provider fails
    /// to do so, the memory is never freed.
    memory: ManuallyDrop<Memory>,
    local_key: DAT_LMR_CONTEXT,
    remote_key: DAT_RMR_CONTEXT,
    lifetime: PhantomData<&'m mut [u8]>,
}

// SAFETY: the memory is owned or exclusively borrowed. Writing to it requires `&mut`.
unsafe impl Send for MemoryRegion<'_> {}
// SAFETY: the memory is owned or exclusively borrowed. Writing to it requires `&mut`.
unsafe impl Sync for MemoryRegion<'_> {}

impl MemoryRegion<'_> {
    /// The length of the region in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> usize {
        self.memory.len
    }

    /// Returns a segment that names a range of the bytes in an operation.
    ///
    /// # Errors
    ///
    /// [`Length`](crate::ErrorKind::Length) for a range outside the region or longer than 4 GiB.
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

    /// The description that a peer needs to read from or write to the region. The peer's access
    /// requires [`Access::REMOTE_READ`] or [`Access::REMOTE_WRITE`].
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
    /// [`Length`](crate::ErrorKind::Length) if the bytes do not fit.
    pub fn store(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        check_range(
            "MemoryRegion::store",
            &(offset..offset.saturating_add(bytes.len())),
            self.memory.len,
        )?;
        // SAFETY: the range was checked, and `bytes` cannot overlap because there are no references
        // into the region.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.start.add(offset), bytes.len())
        };
        // The copy is visible before any later post or flag.
        fence(Ordering::Release);
        Ok(())
    }

    /// Copies bytes out of the region.
    ///
    /// # Errors
    ///
    /// [`Length`](crate::ErrorKind::Length) if the region has fewer bytes.
    pub fn load(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        check_range(
            "MemoryRegion::load",
            &(offset..offset.saturating_add(bytes.len())),
            self.memory.len,
        )?;
        // The bytes may have changed since an earlier load.
        fence(Ordering::Acquire);
        // SAFETY: the range was checked, and there are no references into the region. If a peer
        // writes at the same time, the copy mixes old and new bytes, all of which are valid.
        unsafe {
            ptr::copy_nonoverlapping(self.memory.start.add(offset), bytes.as_mut_ptr(), bytes.len())
        };
        Ok(())
    }

    /// Returns a copy of a range of the bytes.
    ///
    /// # Errors
    ///
    /// The errors of [`load`](Self::load).
    pub fn to_vec(&self, range: Range<usize>) -> Result<Vec<u8>> {
        check_range("MemoryRegion::to_vec", &range, self.memory.len)?;
        let mut bytes = vec![0; range.len()];
        self.load(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns a pointer to the memory, for programs for which copies are too slow. The caller must
    /// ensure that no operation or peer changes the accessed bytes at the same time, in particular
    /// while a reference to them exists.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.start
    }

    /// Deregisters the memory. Returns the buffer if [`register`](ProtectionZone::register) has
    /// created the region from one.
    ///
    /// # Errors
    ///
    /// The error of the provider. A buffer that the provider does not deregister is leaked.
    pub fn deregister(mut self) -> Result<Option<Vec<u8>>> {
        self.object.free("dat_lmr_free")?;
        let Memory { start, len, owned } = *self.memory;
        // The buffer now belongs to the caller, so `drop` must not free it.
        self.memory.owned = None;
        // SAFETY: these are the parts of the `Vec` that was passed to `register`, and the provider
        // has deregistered it.
        Ok(owned.map(|capacity| unsafe { Vec::from_raw_parts(start, len, capacity) }))
    }
}

impl Drop for MemoryRegion<'_> {
    fn drop(&mut self) {
        if self.object.free("dat_lmr_free").is_ok() {
            // SAFETY: the memory is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        } else if self.memory.owned.is_none() {
            // Only a defective provider fails to deregister the memory. Peers could then still
            // write to it after the end of the borrow, so the process must not continue.
            std::process::abort();
        }
    }
}

impl<'m> AsRef<MemoryRegion<'m>> for MemoryRegion<'m> {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl fmt::Debug for MemoryRegion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion").field("remote", &self.remote()).finish_non_exhaustive()
    }
}

/// Checks a range of a region and returns its length for C.
#[inline]
fn check_range(call: &'static str, range: &Range<usize>, len: usize) -> Result<DAT_SEG_LENGTH> {
    let inside = range.start <= range.end && range.end <= len;
    match DAT_SEG_LENGTH::try_from(range.end.wrapping_sub(range.start)) {
        Ok(length) if inside => Ok(length),
        _ => Err(outside(call, range, len)),
    }
}

#[cold]
fn outside(call: &'static str, range: &Range<usize>, len: usize) -> Error {
    let Range { start, end } = range;
    let detail = if *end > len || start > end {
        format!("bytes {start} to {end} of a region of {len} bytes")
    } else {
        format!("{} bytes, and an operation has at most {}", end - start, DAT_SEG_LENGTH::MAX)
    };
    Error::new(call, DAT_ERROR(DAT_LENGTH_ERROR, DAT_NO_SUBTYPE)).explained(Some(detail))
}

/// A part of a local memory region, for an operation.
///
/// ```
/// use dat::{Access, Adapter};
///
/// let adapter = Adapter::open("tcp-emu")?;
/// let region = adapter.zone()?.register(vec![0; 16], Access::LOCAL)?;
/// assert_eq!(region.segment(4..9)?.length(), 5);
/// assert!(region.segment(4..17).is_err(), "the region ends");
/// # Ok::<(), dat::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Segment(pub(crate) DAT_LMR_TRIPLET);

impl Segment {
    /// Length in bytes.
    pub fn length(&self) -> u32 {
        self.0.segment_length
    }
}

/// Converts the segments of an operation to C.
#[inline]
pub(crate) fn iov(segments: &[Segment]) -> (DAT_COUNT, *mut DAT_LMR_TRIPLET) {
    // The pointer is not const in C. With DAT_IOV_CONSUMER, which `Adapter::open` requires, the
    // segments are only read.
    let start = if segments.is_empty() { null_mut() } else { segments.as_ptr().cast_mut().cast() };
    (crate::adapter::count_to_c(segments.len()), start)
}

/// A peer's memory region, which the peer gets from [`MemoryRegion::remote`]. The program transfers
/// this description, for example as private data.
///
/// ```no_run
/// use dat::RemoteRegion;
///
/// # fn connected(answer: &[u8], endpoint: &mut dat::Endpoint, local: dat::Segment)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// // The peer has sent `region.remote().to_bytes()` as private data.
/// let remote = RemoteRegion::from_bytes(answer).ok_or("the answer does not describe memory")?;
/// endpoint.post_write(&[local], remote.segment(0..64)?, 1, dat::Flags::default())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Address of the first byte at the peer.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// The key that grants access.
    pub key: u32,
}

impl RemoteRegion {
    /// Size of [`to_bytes`](Self::to_bytes) in bytes.
    pub const SIZE: usize = 20;

    /// Returns a segment that names a range of the bytes in an operation.
    ///
    /// # Errors
    ///
    /// [`Length`](crate::ErrorKind::Length) for a range outside the region or longer than 4 GiB.
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

    /// Address, length and key in network byte order.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_be_bytes());
        bytes[16..].copy_from_slice(&self.key.to_be_bytes());
        bytes
    }

    /// Parses the result of [`to_bytes`](Self::to_bytes). Returns `None` if there are fewer bytes.
    /// Further bytes are ignored, because InfiniBand providers pad private data with zeros.
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

/// A part of a peer's memory region, for an RDMA operation.
///
/// ```
/// let region = dat::RemoteRegion { address: 0x1000, length: 64, key: 7 };
/// assert_eq!(region.segment(10..20)?.length(), 10);
/// # Ok::<(), dat::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct RemoteSegment(pub(crate) DAT_RMR_TRIPLET);

impl RemoteSegment {
    /// Length in bytes.
    pub fn length(&self) -> u32 {
        self.0.segment_length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        let region = RemoteRegion { address: u64::MAX - 3, length: 8, key: 1 };
        assert_eq!(
            region.segment(2..8).expect("the segment is inside the region").0.segment_length,
            6
        );
        assert_eq!(
            region
                .segment(8..8)
                .expect("an empty segment at the end is inside the region")
                .0
                .segment_length,
            0
        );
        #[expect(clippy::reversed_empty_ranges, reason = "the test needs a reversed range")]
        let outside = [0..9, 9..9, 5..4, usize::MAX..0];
        for range in outside {
            let error = region
                .segment(range.clone())
                .expect_err("a range outside the region must be refused");
            assert_eq!(error.kind(), crate::ErrorKind::Length, "{range:?}");
        }
        let large = RemoteRegion { length: 1 << 33, ..region };
        assert!(large.segment(0..1 << 32).is_err(), "one operation moves less than 4 GiB");
    }
}
