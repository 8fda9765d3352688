//! Registered memory: the keys, the accesses that the keys permit, and copying.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use dat_sys::*;

use super::objects::Id;
use dat_core::error::no_memory;
use dat_core::error::{Error, Result};
use dat_core::provider::cause::Refusal;
use dat_core::provider::{Access, BindState, Mem, PostError, Remote, Segment};

/// The regions of a fabric by local and by remote key, and the windows by remote key. No number is
/// both a local and a remote key.
#[derive(Default)]
pub(super) struct Memory {
    local: HashMap<u32, Region>,
    remote: HashMap<u32, Region>,
    /// The binds that are queued or current, indexed by the key that they create.
    binds: HashMap<u32, Bind>,
    /// The windows, each with the key of its current bind, if it is bound.
    bound: HashMap<Id, Option<u32>>,
    last: u32,
}

/// The memory that a key names.
#[derive(Clone, Copy)]
struct Region {
    pd: Id,
    /// The queue pair whose peer may use the memory. `None` if all peers may use it.
    qp: Option<Id>,
    addr: u64,
    len: u64,
    /// The address by which segments refer to the first byte: the memory address, or 0 if the
    /// region is zero-based.
    base: u64,
    access: Access,
}

#[derive(Clone, Copy)]
struct Bind {
    window: Id,
    /// The memory that the key will name, and the local key of its region. `None` for an unbind.
    view: Option<(u32, Region)>,
}

/// The memory to which a window will give access, in the form that the consumer requests.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub(super) lkey: u32,
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) access: Access,
    pub(super) zero_based: bool,
}

/// The data of a window's handle.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) id: Id,
    pub(super) pd: Id,
    pub(super) scoped: bool,
}

impl Memory {
    /// Registers memory. Returns the local and the remote key.
    ///
    /// # Safety
    /// As [`Transport::mr`](dat_core::provider::Transport::mr) requires, the memory stays mapped
    /// until the keys are deregistered.
    pub(super) unsafe fn register(
        &mut self,
        pd: Id,
        mem: Mem,
        access: Access,
    ) -> Result<(u32, u32)> {
        let (addr, len) = (mem.addr as u64, mem.len as u64);
        if addr.checked_add(len).is_none() {
            return Err(Error::of(DAT_INVALID_PARAMETER));
        }
        self.local.try_reserve(1).and_then(|()| self.remote.try_reserve(1)).map_err(no_memory)?;
        let base = if mem.zero_based { 0 } else { addr };
        let region = Region { pd, qp: None, addr, len, base, access };
        let lkey = self.key();
        self.local.insert(lkey, region);
        if !access.remote_read && !access.remote_write && !access.remote_atomic {
            return Ok((lkey, 0));
        }
        let rkey = self.key();
        self.remote.insert(rkey, region);
        Ok((lkey, rkey))
    }

    /// Makes both keys of a region invalid, and the keys of windows that are bound to the region.
    /// Queued binds to the region will fail.
    pub(super) fn deregister(&mut self, lkey: u32, rkey: u32) {
        self.local.remove(&lkey);
        self.remote.remove(&rkey);
        let is_on_region = |key: &&mut Option<u32>| {
            let bind = (**key).and_then(|key| self.binds.get(&key));
            bind.is_some_and(|bind| bind.view.is_some_and(|(region, _)| region == lkey))
        };
        let keys: Vec<u32> =
            self.bound.values_mut().filter(is_on_region).filter_map(Option::take).collect();
        for key in keys {
            self.end(key);
        }
    }

    /// Makes a window's key invalid, if the peer of a queue pair may use that key. The key of a
    /// region is refused, because only the owner can invalidate it.
    pub(super) fn invalidate(
        &mut self,
        pd: Id,
        qp: Id,
        rkey: u32,
    ) -> std::result::Result<(), Refusal> {
        let region = self.remote.get(&rkey).ok_or(Refusal::Unknown)?;
        if !region.permits(pd, qp) {
            return Err(Refusal::Domain);
        }
        let bind = self.binds.get(&rkey).ok_or(Refusal::Right)?;
        self.bound.insert(bind.window, None);
        self.end(rkey);
        Ok(())
    }

    /// Checks segments for a local access. Returns their addresses.
    pub(super) fn local(
        &self,
        pd: Id,
        segments: &[Segment],
        write: bool,
    ) -> std::result::Result<Vec<Segment>, PostError> {
        locate(segments, |segment| {
            let region = self.local.get(&segment.key).ok_or(PostError::Key)?;
            region.check(pd, segment.addr, segment.len.into(), write)
        })
    }

    /// Checks segments like [`Memory::local`], but for the sink of a read. The segments name the
    /// sink by remote keys of this side.
    pub(super) fn locate_sink(
        &self,
        pd: Id,
        qp: Id,
        segments: &[Segment],
    ) -> std::result::Result<Vec<Segment>, PostError> {
        locate(segments, |segment| {
            let region = self.remote.get(&segment.key).ok_or(PostError::Key)?;
            match region.permits(pd, qp) {
                false => Err(PostError::Domain),
                true if !region.access.remote_write => Err(PostError::Access { write: true }),
                true => region.locate(segment.addr, segment.len.into()).ok_or(PostError::Bounds),
            }
        })
    }

    /// Checks whether the peer of a queue pair may access `len` bytes. Returns the memory address
    /// of these bytes, or the reason for which the access is refused.
    pub(super) fn remote(
        &self,
        pd: Id,
        qp: Id,
        at: Remote,
        len: u32,
        write: bool,
    ) -> std::result::Result<Segment, Refusal> {
        // The STag of an empty access is not checked (RFC 5040, 5.1 and 5.2.1).
        if len == 0 {
            return Ok(Segment::default());
        }
        let allows = |access: Access| if write { access.remote_write } else { access.remote_read };
        let addr = self.permitted((pd, qp), at, len.into(), allows)?;
        Ok(Segment { addr, len, key: at.key })
    }

    /// Checks whether the peer of a queue pair may access bytes. Returns their address.
    fn permitted(
        &self,
        (pd, qp): (Id, Id),
        at: Remote,
        len: u64,
        allows: impl Fn(Access) -> bool,
    ) -> std::result::Result<u64, Refusal> {
        let region = self.remote.get(&at.key).ok_or(Refusal::Unknown)?;
        if !region.permits(pd, qp) {
            return Err(Refusal::Domain);
        }
        if !allows(region.access) {
            return Err(Refusal::Right);
        }
        region.locate(at.addr, len).ok_or(Refusal::Bounds)
    }

    /// Checks an access like [`Memory::remote`], but for an atomic operation on 64 bits. The
    /// address must be aligned.
    pub(super) fn atomic(&self, pd: Id, qp: Id, at: Remote) -> std::result::Result<u64, Refusal> {
        let size = size_of::<u64>() as u64;
        let addr = self.permitted((pd, qp), at, size, |access| access.remote_atomic)?;
        if addr.is_multiple_of(align_of::<AtomicU64>() as u64) {
            Ok(addr)
        } else {
            Err(Refusal::Misaligned)
        }
    }

    fn key(&mut self) -> u32 {
        loop {
            // The step is odd, so the key takes every value. Successive keys differ so much that a
            // key which is wrong by one is not valid by chance.
            self.last = self.last.wrapping_add(0x9e37_79b1);
            let taken = self.local.contains_key(&self.last)
                || self.remote.contains_key(&self.last)
                || self.binds.contains_key(&self.last);
            if self.last != 0 && !taken {
                return self.last;
            }
        }
    }
}

/// The methods for windows.
impl Memory {
    pub(super) fn open(&mut self, window: Id) {
        self.bound.insert(window, None);
    }

    pub(super) fn close(&mut self, window: Id) {
        if let Some(key) = self.bound.remove(&window).flatten() {
            self.end(key);
        }
    }

    /// Reserves a key for a bind that is about to be queued at `qp`.
    pub(super) fn reserve(
        &mut self,
        window: Window,
        pd: Id,
        qp: Id,
        view: Option<View>,
    ) -> std::result::Result<u32, PostError> {
        if window.pd != pd {
            return Err(PostError::Domain);
        }
        let bound_view = match view {
            None => None,
            Some(View { lkey, addr, len, access, zero_based }) => {
                let region = self.local.get(&lkey).ok_or(PostError::Key)?;
                let addr = region.check(pd, addr, len, access.remote_write)?;
                if access.remote_read && !region.access.local_read {
                    return Err(PostError::Access { write: false });
                }
                let base = if zero_based { 0 } else { addr };
                Some((
                    lkey,
                    Region { pd, qp: window.scoped.then_some(qp), addr, len, base, access },
                ))
            }
        };
        let key = self.key();
        self.binds.insert(key, Bind { window: window.id, view: bound_view });
        Ok(key)
    }

    /// Carries out the bind that created `key`. Returns false if the region of the bind is gone.
    pub(super) fn bind(&mut self, key: u32) -> bool {
        let Some(&Bind { window, view }) = self.binds.get(&key) else { return false };
        if view.is_some_and(|(lkey, _)| !self.local.contains_key(&lkey)) {
            self.end(key);
            return false;
        }
        // A window that was freed after the bind was posted stays unbound.
        let old = match self.bound.get_mut(&window) {
            Some(bound) => std::mem::replace(bound, view.map(|_| key)),
            None => Some(key),
        };
        if let Some(old) = old {
            self.end(old);
        }
        match view {
            Some((_, region)) if old != Some(key) => {
                self.remote.insert(key, region);
            }
            _ => self.end(key),
        }
        true
    }

    /// Returns the state of the window's bind that created `key`.
    pub(super) fn state(&self, window: Id, key: u32) -> BindState {
        match self.binds.get(&key) {
            Some(bind) if bind.window != window => BindState::Over,
            Some(_) if self.remote.contains_key(&key) => BindState::Bound,
            Some(_) => BindState::Posted,
            None => BindState::Over,
        }
    }

    /// Ends a bind, whether or not it was carried out, and makes its key invalid.
    pub(super) fn end(&mut self, key: u32) {
        if self.binds.remove(&key).is_some() {
            self.remote.remove(&key);
        }
    }
}

impl Region {
    fn permits(&self, pd: Id, qp: Id) -> bool {
        self.pd == pd && self.qp.is_none_or(|only| only == qp)
    }

    /// Checks a local access. Returns the address of the accessed memory.
    fn check(&self, pd: Id, at: u64, len: u64, write: bool) -> std::result::Result<u64, PostError> {
        let allowed = if write { self.access.local_write } else { self.access.local_read };
        match self.locate(at, len) {
            _ if self.pd != pd => Err(PostError::Domain),
            None => Err(PostError::Bounds),
            Some(_) if !allowed => Err(PostError::Access { write }),
            Some(addr) => Ok(addr),
        }
    }

    /// Returns the address of `len` bytes, if they are inside the region.
    fn locate(&self, at: u64, len: u64) -> Option<u64> {
        let offset = at.checked_sub(self.base)?;
        (offset.checked_add(len)? <= self.len).then(|| self.addr + offset)
    }
}

/// Replaces the address of each non-empty segment by the address that `find` returns. Drops empty
/// segments.
fn locate(
    segments: &[Segment],
    find: impl Fn(&Segment) -> std::result::Result<u64, PostError>,
) -> std::result::Result<Vec<Segment>, PostError> {
    // An empty segment names no byte, so its key cannot be wrong (InfiniBand 1.3, 9.4.1).
    let named = segments.iter().filter(|s| s.len != 0);
    named.map(|s| Ok(Segment { addr: find(s)?, ..*s })).collect()
}

/// Returns the total length of segments.
pub(super) fn length(segments: &[Segment]) -> std::result::Result<u32, PostError> {
    let total: u64 = segments.iter().map(|s| u64::from(s.len)).sum();
    u32::try_from(total).map_err(|_| PostError::Unsupported)
}

/// Copies the bytes of `from` to `to`, in order, until one of the lists ends. The memory may
/// overlap.
///
/// # Safety
/// Every non-empty segment is in memory that is mapped, and whose owner permits this access.
pub(super) unsafe fn copy(from: &[Segment], to: &[Segment]) {
    let mut from = from.iter().filter(|s| s.len != 0);
    let mut to = to.iter().filter(|s| s.len != 0);
    let (mut src, mut dst) = (Segment::default(), Segment::default());
    loop {
        for (part, rest) in
            [(&mut src, &mut from as &mut dyn Iterator<Item = &Segment>), (&mut dst, &mut to)]
        {
            if part.len == 0 {
                match rest.next() {
                    Some(next) => *part = *next,
                    None => return,
                }
            }
        }
        let n = src.len.min(dst.len);
        // SAFETY: the caller guarantees that both ranges are inside valid segments.
        unsafe { std::ptr::copy(src.addr as *const u8, dst.addr as *mut u8, n as usize) };
        for part in [&mut src, &mut dst] {
            part.addr += u64::from(n);
            part.len -= n;
        }
    }
}
