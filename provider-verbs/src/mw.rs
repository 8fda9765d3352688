//! Memory windows: of type 1 for the peers of a domain, of type 2 for the peer of one queue pair.
//!
//! A window of type 1 is bound anew in one request, one of type 2 has to be unbound first, in a request of its own before. All
//! binds complete, so that it is known what a window shows; the consumer need not hear of it.
//!
//! Two things are for rxe (Linux 6.12). It looks at a window's rights, but only at the bounds of the window's region
//! (`check_rkey`): so each bind is of a region of its own, which is no larger than what is shown. And a window of type 2 keeps
//! the queue pair (`rxe_do_bind_mw`), whose end would wait 50 s for it (`__rxe_cleanup`): so the window ends first.

use std::collections::{HashMap, VecDeque};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dat_core::provider::{BindState, BindWr, PostError, View, Window};
use dat_core::{Error, Result};
use dat_sys::{DAT_INSUFFICIENT_RESOURCES, DAT_MODEL_NOT_SUPPORTED, DAT_RESOURCE_MEMORY};
use rdma_core_sys::*;

use crate::Adapter;
use crate::map;
use crate::mr::{Domain, Part, Pd};
use crate::work::MARK;

/// Memory window.
pub struct Mw {
    pane: Arc<Pane>,
    panes: Arc<Panes>,
}

/// What the queue pairs keep that bind it.
pub(crate) struct Pane {
    pub(crate) domain: Arc<Domain>,
    scoped: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// None: it has ended with the queue pair that it was bound by, and is made anew by the next bind.
    mw: Option<NonNull<ibv_mw>>,
    /// The key that was given out last.
    last: u32,
    /// Binds that are queued, in the order of their posts.
    posted: VecDeque<Shown>,
    /// What it is bound as; key 0: it is not.
    bound: Shown,
}

/// What a bind shows.
#[derive(Default)]
struct Shown {
    /// 0 unbinds.
    key: u32,
    /// The number of the queue pair that binds it.
    by: u32,
    part: Option<Part>,
}

// SAFETY: the library locks what threads share.
unsafe impl Send for Pane {}
// SAFETY: as above.
unsafe impl Sync for Pane {}

/// All windows of an adapter, by what their keys have in common.
#[derive(Default)]
pub(crate) struct Panes(Mutex<HashMap<u32, Weak<Pane>>>);

/// The last octet of a key is a bind's.
const BIND: u32 = 0xff;

impl Panes {
    fn map(&self) -> MutexGuard<'_, HashMap<u32, Weak<Pane>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A peer has invalidated a key.
    #[cold]
    pub(crate) fn invalidated(&self, key: u32) {
        let pane = self.map().get(&(key & !BIND)).and_then(Weak::upgrade);
        pane.iter().for_each(|pane| pane.state().bound = Shown::default());
    }

    /// A queue pair ends: what windows show to its peer, they show to nobody.
    pub(crate) fn forget_pair(&self, number: u32) {
        let panes: Vec<_> = self.map().values().filter_map(Weak::upgrade).collect();
        for pane in panes.iter().filter(|pane| pane.scoped) {
            let mut state = pane.state();
            // One that another queue pair is about to bind is about to be let go.
            if state.bound.key != 0 && state.bound.by == number && state.posted.is_empty() {
                self.end(pane, &mut state);
            }
        }
    }

    /// Ends a window, and what it shows.
    fn end(&self, pane: &Pane, state: &mut State) {
        if let Some(mw) = state.mw.take() {
            // First: the kernel may give the key to another at once.
            self.map().remove(&(state.last & !BIND));
            // SAFETY: live. From now on its keys name nothing; requests that are queued and name it fail, or are flushed.
            unsafe { pane.domain.device.core.verbs.ibv_dealloc_mw(mw.as_ptr()) };
            state.bound.part = None;
        }
    }
}

impl Mw {
    pub(crate) fn new(panes: &Arc<Panes>, pd: &Pd, scoped: bool) -> Result<Mw> {
        let domain = Arc::clone(&pd.0);
        if !domain.device.has_windows(scoped) {
            return Err(Error::of(DAT_MODEL_NOT_SUPPORTED));
        }
        let pane = Arc::new(Pane { domain, scoped, state: Mutex::new(State::default()) });
        pane.make(panes, &mut pane.state())?;
        Ok(Mw { pane, panes: Arc::clone(panes) })
    }

    pub(crate) fn pane(&self) -> &Arc<Pane> {
        &self.pane
    }
}

impl Window for Mw {
    fn state(&self, rkey: u32) -> BindState {
        let state = self.pane.state();
        match state.bound.key {
            _ if state.posted.iter().any(|posted| posted.key == rkey) => BindState::Posted,
            bound if bound == rkey && rkey != 0 => BindState::Bound,
            _ => BindState::Over,
        }
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        let mut state = self.pane.state();
        self.panes.end(&self.pane, &mut state);
        // Binds that are queued show nothing.
        *state = State::default();
    }
}

impl Pane {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the device's window.
    fn make(self: &Arc<Self>, panes: &Panes, state: &mut State) -> Result<NonNull<ibv_mw>> {
        let kind = if self.scoped { IBV_MW_TYPE_2 } else { IBV_MW_TYPE_1 };
        let Domain { device, pd, .. } = &*self.domain;
        // SAFETY: a live domain.
        let mw = NonNull::new(unsafe { device.core.verbs.ibv_alloc_mw(pd.as_ptr(), kind) });
        let mw = mw.ok_or_else(|| match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EOPNOTSUPP) => Error::of(DAT_MODEL_NOT_SUPPORTED),
            _ => Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY),
        })?;
        state.mw = Some(mw);
        // SAFETY: live.
        state.last = unsafe { mw.as_ref() }.rkey;
        panes.map().insert(state.last & !BIND, Arc::downgrade(self));
        Ok(mw)
    }

    /// What is wrong with a bind, in the order in which dat-core's contract has it.
    pub(crate) fn check(
        &self,
        of: &Arc<Domain>,
        view: Option<&View<'_, Adapter>>,
    ) -> std::result::Result<(), PostError> {
        if !Arc::ptr_eq(&self.domain, of) {
            return Err(PostError::Domain);
        }
        let Some(view) = view else { return Ok(()) };
        if !view.region.is_of(of) {
            return Err(PostError::Domain);
        }
        view.region.check(view)?;
        // IBA 10.6.7.2: only those of type 2 count from zero.
        if view.zero_based && !self.scoped {
            return Err(PostError::Unsupported);
        }
        Ok(())
    }

    /// A bind that is flushed before the device sees it: what its key would have been.
    pub(crate) fn lost(&self, unbinds: bool) -> u32 {
        if unbinds { 0 } else { next(self.state().last) }
    }

    /// Queues a bind as the request with this id; `post` posts a list of requests to the queue pair. Answers the new key, or an
    /// errno. One thread at a time for each domain: dat-core's lock, so that there is one region of [`Domain::nothing`].
    pub(crate) fn post(
        self: &Arc<Self>,
        panes: &Panes,
        wr: &BindWr<'_, Adapter>,
        (wr_id, qp): (u64, NonNull<ibv_qp>),
        post: impl FnOnce(&mut ibv_send_wr) -> i32,
    ) -> std::result::Result<u32, i32> {
        let mut state = self.state();
        let view = wr.view.as_ref();
        // What it will be when this request's turn comes.
        let before = state.posted.back().unwrap_or(&state.bound).key;
        let before = if state.mw.is_some() { before } else { 0 };
        let mw = match state.mw {
            Some(mw) => mw,
            None => self.make(panes, &mut state).map_err(|_| libc::ENOMEM)?,
        };
        let part = match view {
            Some(view) if self.domain.device.is_rxe() => Some(view.region.part(view).ok_or(libc::ENOMEM)?),
            _ => None,
        };
        let info = ibv_mw_bind_info {
            mr: match view {
                Some(view) => part.as_ref().map_or_else(|| view.region.as_ptr(), Part::as_ptr),
                None if self.scoped => ptr::null_mut(),
                None => match self.domain.nothing() {
                    nothing if nothing.is_null() => return Err(libc::ENOMEM),
                    nothing => nothing,
                },
            },
            addr: view.map_or(0, |view| view.addr),
            length: view.map_or(0, |view| view.len),
            mw_access_flags: view
                .map_or(0, |view| map::access(view.access, view.zero_based) & !IBV_ACCESS_LOCAL_WRITE),
        };
        // It waits for all earlier requests.
        let send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
        let key = next(state.last);
        let done = if self.scoped {
            let nothing = ibv_send_wr::zeroed;
            let mut unbind = ibv_send_wr {
                wr_id,
                opcode: IBV_WR_LOCAL_INV,
                imm_data: before,
                send_flags: IBV_SEND_FENCE,
                ..nothing()
            };
            let mut bind = ibv_send_wr {
                wr_id,
                opcode: IBV_WR_BIND_MW,
                send_flags,
                bind_mw: ibv_wr_bind_mw { mw: mw.as_ptr(), rkey: key, bind_info: info },
                ..nothing()
            };
            match (before, view) {
                (0, Some(_)) => post(&mut bind),
                (_, Some(_)) => {
                    // If it fails, the bind is flushed, which tells.
                    unbind.wr_id = MARK;
                    unbind.next = &mut bind;
                    post(&mut unbind)
                }
                // Nothing to unbind: an empty request takes its place.
                (0, None) => {
                    let opcode = IBV_WR_RDMA_WRITE;
                    post(&mut ibv_send_wr { wr_id, opcode, send_flags, ..nothing() })
                }
                (_, None) => {
                    unbind.send_flags = send_flags;
                    post(&mut unbind)
                }
            }
        } else {
            let mut bind = ibv_mw_bind { wr_id, send_flags, bind_info: info };
            // SAFETY: all are live and of one device.
            unsafe { self.domain.device.core.verbs.ibv_bind_mw(qp.as_ptr(), mw.as_ptr(), &mut bind) }
        };
        if done != 0 {
            return Err(done);
        }
        // The library has put the new key of a window of type 1 there; of one of type 2 it looks for the last one there.
        if self.scoped && view.is_some() {
            // SAFETY: live, and used under the lock.
            unsafe { (*mw.as_ptr()).rkey = key };
        }
        // SAFETY: as above.
        state.last = unsafe { (*mw.as_ptr()).rkey };
        let key = if view.is_some() { state.last } else { 0 };
        // SAFETY: live.
        let by = unsafe { qp.as_ref() }.qp_num;
        state.posted.push_back(Shown { key, by, part });
        Ok(key)
    }

    /// The bind with this key has ended.
    pub(crate) fn ended(&self, key: u32, done: bool) {
        let mut state = self.state();
        let at = state.posted.iter().position(|posted| posted.key == key);
        // None: the window is no more.
        if let Some(shown) = at.and_then(|at| state.posted.remove(at))
            && done
        {
            state.bound = shown;
        }
    }
}

fn next(key: u32) -> u32 {
    (key & !BIND) | (key.wrapping_add(1) & BIND)
}
