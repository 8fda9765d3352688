//! Registered memory, and calls of the DTOs that use it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::null_mut;

use dat_sys::*;

use super::adapter::Rig;
use super::events::cookie;
use crate::check::{Outcome, failed, ok};

/// Memory to which a provider may write at any time. So the suite holds no reference to it and only
/// copies data in and out.
struct Block {
    at: *mut u8,
    layout: Layout,
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block was allocated with this layout, and the adapter that knew it is closed.
        unsafe { dealloc(self.at, self.layout) }
    }
}

/// The size of a page of memory.
const PAGE: usize = 4096;

/// A mapping of one page.
struct Page(DAT_PVOID);

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: `Rig::page` has created the mapping, and no reference to it exists.
        unsafe { libc::munmap(self.0, PAGE) };
    }
}

/// Registered memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    /// The LMR of the region.
    pub(crate) lmr: DAT_LMR_HANDLE,
    /// The LMR context, which local segments contain.
    pub(crate) lmr_context: DAT_LMR_CONTEXT,
    /// The RMR context, with which peers access the memory.
    pub(crate) rmr_context: DAT_RMR_CONTEXT,
    /// The address of the first byte.
    pub(crate) address: DAT_VADDR,
    /// The length in bytes.
    pub(crate) length: u32,
}

impl Rig {
    /// Allocates zeroed memory that exists until the rig is closed.
    pub(crate) fn allocate(&self, length: usize) -> DAT_PVOID {
        // The memory consists of whole pages. A device may hide registered pages from the children
        // of this process, together with all other data in these pages.
        let pages = length.max(1).next_multiple_of(4096);
        let layout = Layout::from_size_align(pages, 4096).expect("a small buffer");
        // SAFETY: the size is not 0.
        let at = unsafe { alloc_zeroed(layout) };
        if at.is_null() {
            handle_alloc_error(layout);
        }
        self.keep_memory(Block { at, layout });
        at.cast()
    }

    /// Maps one page of memory with this protection (`PROT_NONE` or `PROT_READ`). The page exists
    /// until the rig is closed.
    pub(crate) fn page(&self, protection: libc::c_int) -> Outcome<DAT_PVOID> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: this creates a new mapping at an address that the system chooses.
        let at = unsafe { libc::mmap(null_mut(), PAGE, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(failed(std::io::Error::last_os_error()));
        }
        self.keep_memory(Page(at));
        Ok(at)
    }

    /// Registers memory of this length with all privileges in the rig's zone.
    pub(crate) fn memory(&self, length: u32) -> Outcome<Region> {
        self.memory_with(self.pz()?, length, DAT_MEM_PRIV_ALL_FLAG)
    }

    /// Registers memory of this length in a zone with these privileges.
    pub(crate) fn memory_with(
        &self,
        pz: DAT_PZ_HANDLE,
        length: u32,
        privileges: DAT_MEM_PRIV_FLAGS,
    ) -> Outcome<Region> {
        let at = self.allocate(length as usize);
        let mut region = Region { address: at as DAT_VADDR, length, ..Region::none() };
        ok(self.register(at, length.into(), pz, privileges, &mut region))?;
        Ok(region)
    }

    /// Calls dat_lmr_create on virtual memory.
    pub(crate) fn register(
        &self,
        at: DAT_PVOID,
        length: DAT_VLEN,
        pz: DAT_PZ_HANDLE,
        privileges: DAT_MEM_PRIV_FLAGS,
        region: &mut Region,
    ) -> DAT_RETURN {
        let (mut size, mut address) = (0, 0);
        self.api.dat_lmr_create(
            self.ia,
            DAT_MEM_TYPE_VIRTUAL,
            DAT_REGION_DESCRIPTION { for_va: at },
            length,
            pz,
            privileges,
            DAT_VA_TYPE_VA,
            &mut region.lmr,
            &mut region.lmr_context,
            &mut region.rmr_context,
            &mut size,
            &mut address,
        )
    }

    /// Calls dat_ep_post_send with an array of segments.
    pub(crate) fn send(&self, ep: DAT_EP_HANDLE, iov: &[DAT_LMR_TRIPLET], id: u64) -> DAT_RETURN {
        self.send_with(ep, iov, id, DAT_COMPLETION_DEFAULT_FLAG)
    }

    /// Calls dat_ep_post_send.
    pub(crate) fn send_with(
        &self,
        ep: DAT_EP_HANDLE,
        iov: &[DAT_LMR_TRIPLET],
        id: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> DAT_RETURN {
        let (count, iov) = (iov.len() as DAT_COUNT, iov.as_ptr().cast_mut());
        self.api.dat_ep_post_send(ep, count, iov, cookie(id), flags)
    }

    /// Calls dat_ep_post_recv.
    pub(crate) fn recv(&self, ep: DAT_EP_HANDLE, iov: &[DAT_LMR_TRIPLET], id: u64) -> DAT_RETURN {
        self.recv_with(ep, iov, id, DAT_COMPLETION_DEFAULT_FLAG)
    }

    /// Calls dat_ep_post_recv with flags.
    pub(crate) fn recv_with(
        &self,
        ep: DAT_EP_HANDLE,
        iov: &[DAT_LMR_TRIPLET],
        id: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> DAT_RETURN {
        let (count, iov) = (iov.len() as DAT_COUNT, iov.as_ptr().cast_mut());
        self.api.dat_ep_post_recv(ep, count, iov, cookie(id), flags)
    }

    /// Calls dat_srq_post_recv.
    pub(crate) fn recv_srq(
        &self,
        srq: DAT_SRQ_HANDLE,
        iov: &[DAT_LMR_TRIPLET],
        id: u64,
    ) -> DAT_RETURN {
        let (count, iov) = (iov.len() as DAT_COUNT, iov.as_ptr().cast_mut());
        self.api.dat_srq_post_recv(srq, count, iov, cookie(id))
    }

    /// Calls dat_ep_post_rdma_write.
    pub(crate) fn write(
        &self,
        ep: DAT_EP_HANDLE,
        iov: &[DAT_LMR_TRIPLET],
        id: u64,
        remote: &DAT_RMR_TRIPLET,
    ) -> DAT_RETURN {
        self.write_with(ep, iov, id, remote, DAT_COMPLETION_DEFAULT_FLAG)
    }

    /// Calls dat_ep_post_rdma_write with flags.
    pub(crate) fn write_with(
        &self,
        ep: DAT_EP_HANDLE,
        iov: &[DAT_LMR_TRIPLET],
        id: u64,
        remote: &DAT_RMR_TRIPLET,
        flags: DAT_COMPLETION_FLAGS,
    ) -> DAT_RETURN {
        let (count, iov) = (iov.len() as DAT_COUNT, iov.as_ptr().cast_mut());
        self.api.dat_ep_post_rdma_write(ep, count, iov, cookie(id), remote, flags)
    }

    /// Calls dat_ep_post_rdma_read.
    pub(crate) fn read(
        &self,
        ep: DAT_EP_HANDLE,
        iov: &[DAT_LMR_TRIPLET],
        id: u64,
        remote: &DAT_RMR_TRIPLET,
    ) -> DAT_RETURN {
        self.read_with(ep, iov, id, remote, DAT_COMPLETION_DEFAULT_FLAG)
    }

    /// Calls dat_ep_post_rdma_read with flags.
    pub(crate) fn read_with(
        &self,
        ep: DAT_EP_HANDLE,
        iov: &[DAT_LMR_TRIPLET],
        id: u64,
        remote: &DAT_RMR_TRIPLET,
        flags: DAT_COMPLETION_FLAGS,
    ) -> DAT_RETURN {
        let (count, iov) = (iov.len() as DAT_COUNT, iov.as_ptr().cast_mut());
        self.api.dat_ep_post_rdma_read(ep, count, iov, cookie(id), remote, flags)
    }
}

impl Region {
    /// Returns an empty region, whose fields a later call fills in.
    pub(crate) fn none() -> Region {
        Region { lmr: null_mut(), lmr_context: 0, rmr_context: 0, address: 0, length: 0 }
    }

    /// Returns a local segment that covers the whole region.
    pub(crate) fn all(&self) -> DAT_LMR_TRIPLET {
        self.part(0, self.length)
    }

    /// Returns a local segment that covers a part of the region. Tests may pass a part outside of
    /// the region.
    pub(crate) fn part(&self, from: u32, length: u32) -> DAT_LMR_TRIPLET {
        DAT_LMR_TRIPLET {
            virtual_address: self.address + u64::from(from),
            segment_length: length,
            lmr_context: self.lmr_context,
        }
    }

    /// Returns a remote segment that covers the whole region.
    pub(crate) fn remote(&self) -> DAT_RMR_TRIPLET {
        self.remote_part(0, self.length)
    }

    /// Returns a remote segment that covers a part of the region.
    pub(crate) fn remote_part(&self, from: u32, length: u32) -> DAT_RMR_TRIPLET {
        self.remote_through(self.rmr_context, from, length)
    }

    /// Returns a remote segment that covers a part of the region, with another RMR context.
    pub(crate) fn remote_through(
        &self,
        rmr_context: DAT_RMR_CONTEXT,
        from: u32,
        length: u32,
    ) -> DAT_RMR_TRIPLET {
        let virtual_address = self.address + u64::from(from);
        DAT_RMR_TRIPLET { virtual_address, segment_length: length, rmr_context }
    }

    /// Copies bytes into the region. Bytes beyond the end of the region are omitted.
    pub(crate) fn store(&self, from: u32, bytes: &[u8]) {
        let room = self.length.saturating_sub(from) as usize;
        let bytes = &bytes[..bytes.len().min(room)];
        // SAFETY: the bytes are inside the block or mapping, which exists as long as the rig. No
        // reference to the bytes exists.
        unsafe {
            let to = (self.address as *mut u8).add(from as usize);
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Copies bytes out of the region. Bytes beyond the end of the region are omitted.
    pub(crate) fn load(&self, from: u32, length: u32) -> Vec<u8> {
        let length = length.min(self.length.saturating_sub(from)) as usize;
        let mut bytes = vec![0; length];
        // SAFETY: the bytes are inside the block or mapping, which exists as long as the rig. No
        // reference to the bytes exists.
        unsafe {
            let source = (self.address as *const u8).add(from as usize);
            source.copy_to_nonoverlapping(bytes.as_mut_ptr(), length);
        }
        bytes
    }
}

/// Returns a copy of private data that the provider owns.
pub(crate) fn private(at: DAT_PVOID, size: DAT_COUNT) -> Vec<u8> {
    match usize::try_from(size) {
        Ok(size) if !at.is_null() => {
            // SAFETY: the data belong to the provider, and are valid as long as the request or
            // endpoint with which they came.
            unsafe { std::slice::from_raw_parts(at.cast::<u8>(), size) }.to_vec()
        }
        _ => Vec::new(),
    }
}
