//! Memory that processes share, and the cookie that names it in DAT.

use std::fs::OpenOptions;
use std::mem::forget;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::null_mut;

use dat_sys::*;
use serde::{Deserialize, Serialize};

use super::adapter::Rig;
use super::memory::Region;
use crate::check::{Outcome, failed};

/// Memory that processes share: a file, and the cookie that names the memory in DAT.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SharedMemory {
    file: PathBuf,
    /// The cookie, which has 40 bytes.
    pub(crate) cookie: Vec<u8>,
    length: u32,
}

impl Rig {
    /// Creates memory that can be shared, with a unique cookie. The memory is never freed.
    pub(crate) fn to_share(&self, length: u32) -> Outcome<SharedMemory> {
        // SAFETY: the text is NUL-terminated, and the result is checked.
        let fd = unsafe { libc::memfd_create(c"conformance".as_ptr(), 0) };
        if fd < 0 {
            return Err(failed(std::io::Error::last_os_error()));
        }
        // SAFETY: the descriptor is open, and no other code owns it.
        let memory = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        memory.set_len(length.into()).map_err(failed)?;
        let (process, number) = (std::process::id(), memory.as_raw_fd());
        let file = PathBuf::from(format!("/proc/{process}/fd/{number}"));
        // The file stays open as long as this process runs, so that no other memory of the run gets
        // the same cookie.
        forget(memory);
        let mut cookie = format!("conformance {process} {number}").into_bytes();
        cookie.resize(DAT_LMR_COOKIE_SIZE, 0xa5);
        Ok(SharedMemory { file, cookie, length })
    }

    /// Maps the memory into this process. Returns its address.
    pub(crate) fn map(&self, memory: &SharedMemory) -> Outcome<DAT_PVOID> {
        let file = OpenOptions::new().read(true).write(true).open(&memory.file).map_err(failed)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (length, fd) = (memory.length as usize, file.as_raw_fd());
        // SAFETY: this creates a new mapping at an address that the system chooses.
        let at = unsafe { libc::mmap(null_mut(), length, access, libc::MAP_SHARED, fd, 0) };
        match at == libc::MAP_FAILED {
            true => Err(failed(std::io::Error::last_os_error())),
            false => Ok(at),
        }
    }

    /// Maps shared memory into this process, and calls dat_lmr_create on it in the rig's zone.
    pub(crate) fn share(&self, memory: &SharedMemory, region: &mut Region) -> Outcome<DAT_RETURN> {
        self.share_at(self.map(memory)?, memory, region)
    }

    /// Calls dat_lmr_create on memory at any address, with the cookie of this shared memory.
    pub(crate) fn share_at(
        &self,
        at: DAT_PVOID,
        named: &SharedMemory,
        region: &mut Region,
    ) -> Outcome<DAT_RETURN> {
        let mut cookie = [0; DAT_LMR_COOKIE_SIZE];
        for (to, from) in cookie.iter_mut().zip(&named.cookie) {
            *to = *from as std::ffi::c_char;
        }
        let memory = DAT_SHARED_MEMORY { virtual_address: at, shared_memory_id: &mut cookie };
        let (mut size, mut address) = (0, 0);
        (region.address, region.length) = (at as DAT_VADDR, named.length);
        Ok(self.api.dat_lmr_create(
            self.ia,
            DAT_MEM_TYPE_SHARED_VIRTUAL,
            DAT_REGION_DESCRIPTION { for_shared_memory: memory },
            named.length.into(),
            self.pz()?,
            DAT_MEM_PRIV_ALL_FLAG,
            DAT_VA_TYPE_VA,
            &mut region.lmr,
            &mut region.lmr_context,
            &mut region.rmr_context,
            &mut size,
            &mut address,
        ))
    }
}
