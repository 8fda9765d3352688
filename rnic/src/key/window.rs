//! Memory windows: keys that a consumer makes and ends through a send queue, without registering memory.
//!
//! A bind takes its new STag out of the table when it is posted, granting nothing, so that the consumer knows it at once;
//! the engine makes it valid in its turn, and ends the key before it. A key that a window has lost is never valid again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use work::{Access, BindState};

use super::{Entry, KeyError, Keys, Pd, Registry, Right, Scope};
use crate::mr::Mr;
use crate::wr::{PostError, post_error};

/// A memory window; `drop` unbinds it. Binds that have been posted then do nothing. The owner of the engine lock drops it
/// under that lock: when `drop` has returned, no engine lets anybody in through it any more.
pub struct Mw {
    keys: Arc<Keys>,
    pd: Pd,
    id: u32,
    scoped: bool,
}

/// What a window shall show.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Memory that is registered.
    pub region: &'a Mr,
    /// The first byte, as local segments name it.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// What peers may do. Remote reading takes a region that may be read locally, remote writing and atomic operations
    /// one that may be written.
    pub access: Access,
    /// Peers count from 0 instead of from the address.
    pub zero_based: bool,
}

impl Mw {
    /// An unbound window. `scoped`: a bind lets in the peer of the queue pair that it was posted to, and nobody else.
    pub fn new(keys: &Arc<Keys>, pd: Pd, scoped: bool) -> Self {
        let id = keys.registry().windows.open();
        Mw { keys: Arc::clone(keys), pd, id, scoped }
    }

    /// What became of the bind that made this key.
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
            registry.end(bound);
        }
    }
}

/// The windows of an adapter.
#[derive(Default)]
pub(super) struct Windows {
    /// By window: the key that it is bound by, 0 for none.
    bound: HashMap<u32, u32>,
    /// By key: binds that are posted or hold.
    binds: HashMap<u32, Bind>,
    /// By region: how many of those there are. Regions without any are not in it.
    over: HashMap<u32, usize>,
    last: u32,
}

struct Bind {
    window: u32,
    /// 0: none, since it unbinds.
    region: u32,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    /// Waits for its turn, to grant these rights.
    Posted {
        rights: u32,
    },
    Bound,
    /// Its region went away before its turn came.
    Void,
}

impl Windows {
    fn open(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if let std::collections::hash_map::Entry::Vacant(place) = self.bound.entry(self.last) {
                place.insert(0);
                return self.last;
            }
        }
    }
}

/// Binds. The engine's calls are made under its lock.
impl Keys {
    /// Takes a key for a bind that is about to be posted by a queue pair; it grants nothing yet.
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
                let shown = self.look_up(region).map_err(|error| post_error(error, false))?;
                let needed = |asked: bool, right: Right| if asked { right as u32 } else { 0 };
                let read = needed(access.remote_read, Right::LocalRead);
                let write = needed(access.remote_write || access.remote_atomic, Right::LocalWrite);
                shown.check(by, addr, len, write).map_err(|error| post_error(error, true))?;
                let addr =
                    shown.check(by, addr, len, read).map_err(|error| post_error(error, false))?;
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
            *windows.over.entry(region).or_default() += 1;
        }
        Ok(stag)
    }

    /// Carries out the bind that made this key. `Invalid`: its region is gone.
    pub(crate) fn bind(&self, stag: u32) -> Result<(), KeyError> {
        let registry = &mut *self.registry();
        let Some(bind) = registry.windows.binds.get_mut(&stag) else {
            return Err(KeyError::Invalid);
        };
        let (window, region) = (bind.window, bind.region);
        let State::Posted { rights } = std::mem::replace(&mut bind.state, State::Bound) else {
            registry.end(stag);
            return Err(KeyError::Invalid);
        };
        // A window that was freed meanwhile stays unbound.
        let old = match registry.windows.bound.get_mut(&window) {
            Some(bound) => std::mem::replace(bound, if region == 0 { 0 } else { stag }),
            None => stag,
        };
        registry.end(old);
        if region == 0 {
            registry.end(stag);
        }
        for slot in registry.slots(stag) {
            slot.rights.store(rights, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Gives the key of a bind back that is not carried out.
    pub(crate) fn cancel(&self, stag: u32) {
        self.registry().end(stag);
    }

    /// Unbinds a window at the wish of a peer (SEND with invalidate). `Invalid`: nothing has this STag; `Domain`: not the
    /// peer's; `Access`: it is a region's, which only its owner can take back.
    pub fn invalidate(&self, stag: u32, by: Scope) -> Result<(), KeyError> {
        let registry = &mut *self.registry();
        let owner =
            registry.slots(stag).next().ok_or(KeyError::Invalid)?.owner.load(Ordering::Relaxed);
        if !by.is_within(owner) {
            return Err(KeyError::Domain);
        }
        match registry.windows.binds.get(&stag) {
            None => return Err(KeyError::Access),
            Some(&Bind { window, state: State::Bound, .. }) => {
                registry.windows.bound.insert(window, 0);
            }
            Some(_) => return Err(KeyError::Invalid),
        }
        registry.end(stag);
        Ok(())
    }
}

impl Registry {
    /// Ends a bind and its key.
    fn end(&mut self, stag: u32) {
        let Some(bind) = self.windows.binds.remove(&stag) else { return };
        self.remove(stag);
        if let Some(over) = self.windows.over.get_mut(&bind.region) {
            *over -= 1;
            if *over == 0 {
                self.windows.over.remove(&bind.region);
            }
        }
    }

    /// A region goes: so do its windows' keys, and binds that wait for their turn will fail.
    pub(super) fn unbind_all(&mut self, region: u32) {
        if !self.windows.over.contains_key(&region) {
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
                // The region's STag may be drawn again.
                State::Posted { .. } | State::Void => (bind.region, bind.state) = (0, State::Void),
            }
        }
        for stag in ended {
            self.end(stag);
        }
        self.windows.over.remove(&region);
    }
}

#[cfg(test)]
mod tests;
