//! Memory windows: keys that a program creates and invalidates through a send queue, without
//! registering memory.
//!
//! When a bind is posted, it takes its new STag from the table, so that the program knows the STag
//! at once. The STag grants no access yet. The engine carries out the bind in its turn: it makes
//! the new key valid and invalidates the window's previous key. A key that was invalidated never
//! becomes valid again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use work::{Access, BindState};

use super::{Entry, KeyError, Keys, Pd, Registry, Right, Scope};
use crate::mr::Mr;
use crate::wr::{PostError, post_error};

/// A memory window. Dropping it unbinds it, and binds that are posted at that time have no effect.
/// When `drop` has returned, engines that look up the key find it invalid. An engine may still use
/// memory that it has looked up before.
pub struct Mw {
    keys: Arc<Keys>,
    pd: Pd,
    id: u32,
    scoped: bool,
}

/// The memory and the access that a bind gives to a window.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The region that contains the memory.
    pub region: &'a Mr,
    /// The address of the first octet, in the form that local segments use.
    pub addr: u64,
    /// The length in octets.
    pub len: u64,
    /// The accesses that peers get. Remote reads need a region that allows local reads; remote
    /// writes and atomic operations need one that allows local writes.
    pub access: Access,
    /// Whether peers address the memory by offsets from 0 instead of by address.
    pub zero_based: bool,
}

impl Mw {
    /// Creates an unbound window. If the window is `scoped`, a bind gives access only to the peer
    /// of the queue pair to which the bind was posted.
    pub fn new(keys: &Arc<Keys>, pd: Pd, scoped: bool) -> Self {
        let id = keys.registry().windows.add();
        Mw { keys: Arc::clone(keys), pd, id, scoped }
    }

    /// The state of the bind that created the key `stag`.
    pub fn state(&self, stag: u32) -> BindState {
        match self.keys.registry().windows.binds.get(&stag) {
            Some(bind) if bind.window != self.id => BindState::Over,
            Some(Bind { state: State::Bound, .. }) => BindState::Bound,
            Some(_) => BindState::Posted,
            None => BindState::Over,
        }
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        let mut registry = self.keys.registry();
        if let Some(bound) = registry.windows.bound.remove(&self.id) {
            registry.end_bind(bound);
        }
    }
}

/// The windows of an adapter.
#[derive(Default)]
pub(super) struct Windows {
    /// Maps each window to the key of its bind, or to 0 if the window is not bound.
    bound: HashMap<u32, u32>,
    /// Maps the key of each bind that is posted or in force to the bind.
    binds: HashMap<u32, Bind>,
    /// Maps the key of a region to the number of its binds in `binds`. A region without binds has
    /// no entry.
    binds_by_region: HashMap<u32, usize>,
    last_id: u32,
}

struct Bind {
    window: u32,
    /// The key of the region, or 0 for an unbind.
    region: u32,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    /// The bind waits until the engine carries it out and grants these rights.
    Posted {
        rights: u32,
    },
    Bound,
    /// The region was deregistered before the bind was carried out.
    RegionGone,
}

impl Windows {
    fn add(&mut self) -> u32 {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            if let std::collections::hash_map::Entry::Vacant(place) = self.bound.entry(self.last_id)
            {
                place.insert(0);
                return self.last_id;
            }
        }
    }
}

/// The operations on binds. The engine calls them under the engine lock.
impl Keys {
    /// Reserves a key for a bind that a queue pair is about to post. The key grants no access yet.
    pub(crate) fn reserve(
        &self,
        mw: &Mw,
        by: Scope,
        view: Option<&View<'_>>,
    ) -> Result<u32, PostError> {
        if !by.is_within(Scope::from(mw.pd).0) {
            return Err(PostError::Domain);
        }
        let owner = if mw.scoped { by } else { mw.pd.into() }.0;
        let (entry, region, rights) = match view {
            None => (Entry::new(owner, Access::default(), 0, 0, true), 0, 0),
            Some(&View { region, addr, len, access, zero_based }) => {
                let region = region.lkey();
                let region_entry =
                    self.look_up(region).map_err(|error| post_error(error, false))?;
                let needed = |asked: bool, right: Right| if asked { right as u32 } else { 0 };
                let read = needed(access.remote_read, Right::LocalRead);
                let write = needed(access.remote_write || access.remote_atomic, Right::LocalWrite);
                region_entry
                    .check(by, addr, len, write)
                    .map_err(|error| post_error(error, true))?;
                let addr = region_entry
                    .check(by, addr, len, read)
                    .map_err(|error| post_error(error, false))?;
                let access = Access { local_read: false, local_write: false, ..access };
                let entry = Entry::new(owner, access, addr, len, zero_based);
                (Entry { rights: 0, ..entry }, region, entry.rights)
            }
        };
        let mut registry = self.registry();
        let stag = registry.add(&self.table, entry).map_err(|_| PostError::Full)?;
        let windows = &mut registry.windows;
        windows.binds.insert(stag, Bind { window: mw.id, region, state: State::Posted { rights } });
        if region != 0 {
            *windows.binds_by_region.entry(region).or_default() += 1;
        }
        Ok(stag)
    }

    /// Carries out the bind that created this key. Afterwards no engine uses memory through the
    /// window's previous key. Fails with `Invalid` if the region of the bind is gone.
    pub fn bind(&self, stag: u32) -> Result<(), KeyError> {
        self.registry().bind(stag)?;
        self.await_other_engines();
        Ok(())
    }

    /// Releases the key of a bind that will not be carried out.
    pub(crate) fn cancel(&self, stag: u32) {
        self.registry().end_bind(stag);
    }

    /// Unbinds a window at the request of a peer (SEND with invalidate). Afterwards no engine uses
    /// memory through the window's key. Fails with `Invalid` if no key has this STag, with `Domain`
    /// if the peer may not use the key, and with `Access` if the key is a region's: only the
    /// region's owner can invalidate its key.
    pub fn invalidate(&self, stag: u32, by: Scope) -> Result<(), KeyError> {
        self.registry().invalidate(stag, by)?;
        self.await_other_engines();
        Ok(())
    }
}

impl Registry {
    /// Implements [`Keys::bind`].
    fn bind(&mut self, stag: u32) -> Result<(), KeyError> {
        let Some(bind) = self.windows.binds.get_mut(&stag) else {
            return Err(KeyError::Invalid);
        };
        let (window, region) = (bind.window, bind.region);
        let State::Posted { rights } = std::mem::replace(&mut bind.state, State::Bound) else {
            self.end_bind(stag);
            return Err(KeyError::Invalid);
        };
        // A window that was freed after the bind was posted stays unbound.
        let old = match self.windows.bound.get_mut(&window) {
            Some(bound) => std::mem::replace(bound, if region == 0 { 0 } else { stag }),
            None => stag,
        };
        self.end_bind(old);
        if region == 0 {
            self.end_bind(stag);
        }
        for slot in self.slots(stag) {
            slot.rights.store(rights, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Implements [`Keys::invalidate`].
    fn invalidate(&mut self, stag: u32, by: Scope) -> Result<(), KeyError> {
        let owner = self.slots(stag).next().ok_or(KeyError::Invalid)?.owner.load(Ordering::Relaxed);
        if !by.is_within(owner) {
            return Err(KeyError::Domain);
        }
        match self.windows.binds.get(&stag) {
            None => return Err(KeyError::Access),
            Some(&Bind { window, state: State::Bound, .. }) => {
                self.windows.bound.insert(window, 0);
            }
            Some(_) => return Err(KeyError::Invalid),
        }
        self.end_bind(stag);
        Ok(())
    }

    /// Ends a bind and invalidates its key.
    fn end_bind(&mut self, stag: u32) {
        let Some(bind) = self.windows.binds.remove(&stag) else { return };
        self.remove(stag);
        if let Some(count) = self.windows.binds_by_region.get_mut(&bind.region) {
            *count -= 1;
            if *count == 0 {
                self.windows.binds_by_region.remove(&bind.region);
            }
        }
    }

    /// Invalidates the keys of all windows bound to a region that is being deregistered. Posted
    /// binds to it will fail.
    pub(super) fn unbind_all(&mut self, region: u32) {
        if !self.windows.binds_by_region.contains_key(&region) {
            return;
        }
        let Windows { binds, bound, .. } = &mut self.windows;
        let mut ended = Vec::new();
        for (&stag, bind) in binds.iter_mut().filter(|(_, bind)| bind.region == region) {
            match bind.state {
                State::Bound => {
                    bound.insert(bind.window, 0);
                    ended.push(stag);
                }
                // The bind forgets the region's STag, because a new region may get the same STag.
                State::Posted { .. } | State::RegionGone => {
                    (bind.region, bind.state) = (0, State::RegionGone)
                }
            }
        }
        for stag in ended {
            self.end_bind(stag);
        }
        self.windows.binds_by_region.remove(&region);
    }
}

#[cfg(test)]
mod tests;
