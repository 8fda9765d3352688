//! Registered memory: keys, what they allow, and the copy itself.

use std::collections::HashMap;

use dat_sys::*;

use super::engine::Id;
use crate::error::{Error, Result};
use crate::provider::{Access, Mem, PostError, Remote, Segment};

/// The regions of a fabric by local and by remote key. No number is ever both.
#[derive(Default)]
pub(super) struct Memory {
    local: HashMap<u32, Region>,
    remote: HashMap<u32, Region>,
    last: u32,
}

#[derive(Clone, Copy)]
struct Region {
    pd: Id,
    addr: u64,
    len: u64,
    access: Access,
}

impl Memory {
    /// Registers memory; answers the local and the remote key.
    pub(super) fn register(&mut self, pd: Id, mem: Mem, access: Access) -> Result<(u32, u32)> {
        let (addr, len) = (mem.addr as u64, mem.len as u64);
        if addr.checked_add(len).is_none() {
            return Err(Error::of(DAT_INVALID_PARAMETER));
        }
        let region = Region { pd, addr, len, access };
        let lkey = self.key();
        self.local.insert(lkey, region);
        if !access.remote_read && !access.remote_write {
            return Ok((lkey, 0));
        }
        let rkey = self.key();
        self.remote.insert(rkey, region);
        Ok((lkey, rkey))
    }

    pub(super) fn deregister(&mut self, lkey: u32, rkey: u32) {
        self.local.remove(&lkey);
        self.remote.remove(&rkey);
    }

    /// Takes a remote key away from the peers of a domain; false: they had no such key.
    pub(super) fn invalidate(&mut self, pd: Id, rkey: u32) -> bool {
        let known = self.remote.get(&rkey).is_some_and(|r| r.pd == pd);
        if known {
            self.remote.remove(&rkey);
        }
        known
    }

    /// Checks segments for a local access; answers their total length.
    pub(super) fn local(
        &self,
        pd: Id,
        segments: &[Segment],
        write: bool,
    ) -> std::result::Result<u32, PostError> {
        // An empty segment names no byte, so nothing about it can be wrong (InfiniBand 1.3, 9.4.1 treats keys so).
        for s in segments.iter().filter(|s| s.len != 0) {
            let region = self.local.get(&s.key).ok_or(PostError::Bounds)?;
            if region.pd != pd {
                return Err(PostError::Domain);
            }
            if !region.contains(s.addr, s.len) {
                return Err(PostError::Bounds);
            }
            let allowed = if write { region.access.local_write } else { region.access.local_read };
            if !allowed {
                return Err(PostError::Access { write });
            }
        }
        let total: u64 = segments.iter().map(|s| u64::from(s.len)).sum();
        u32::try_from(total).map_err(|_| PostError::Unsupported)
    }

    /// Checks a peer's access to `len` bytes; `None`: refused.
    pub(super) fn remote(&self, pd: Id, at: Remote, len: u32, write: bool) -> Option<Segment> {
        let granted = |r: &Region| {
            let allowed = if write { r.access.remote_write } else { r.access.remote_read };
            r.pd == pd && allowed && r.contains(at.addr, len)
        };
        // RFC 5040, 5.1 and 5.2.1: the STag of an empty access is not looked at.
        let ok = len == 0 || self.remote.get(&at.key).is_some_and(granted);
        ok.then_some(Segment { addr: at.addr, len, key: at.key })
    }

    fn key(&mut self) -> u32 {
        loop {
            // An odd step visits every number, and neighbours are far apart: an off-by-one is never valid by chance.
            self.last = self.last.wrapping_add(0x9e37_79b1);
            let taken = self.local.contains_key(&self.last) || self.remote.contains_key(&self.last);
            if self.last != 0 && !taken {
                return self.last;
            }
        }
    }
}

impl Region {
    fn contains(&self, addr: u64, len: u32) -> bool {
        addr >= self.addr && addr.checked_add(u64::from(len)).is_some_and(|end| end <= self.addr + self.len)
    }
}

/// Copies `from` to `to`, both in order, until either ends. Overlaps are allowed.
///
/// # Safety
/// Every non-empty segment lies in memory that is mapped and that its owner has opened to this access.
pub(super) unsafe fn copy(from: &[Segment], to: &[Segment]) {
    let mut from = from.iter().filter(|s| s.len != 0);
    let mut to = to.iter().filter(|s| s.len != 0);
    let (mut src, mut dst) = (Segment::default(), Segment::default());
    loop {
        for (part, rest) in [(&mut src, &mut from as &mut dyn Iterator<Item = &Segment>), (&mut dst, &mut to)]
        {
            if part.len == 0 {
                match rest.next() {
                    Some(next) => *part = *next,
                    None => return,
                }
            }
        }
        let n = src.len.min(dst.len);
        // SAFETY: both ranges lie inside segments that the caller vouches for.
        unsafe { std::ptr::copy(src.addr as *const u8, dst.addr as *mut u8, n as usize) };
        for part in [&mut src, &mut dst] {
            part.addr += u64::from(n);
            part.len -= n;
        }
    }
}
