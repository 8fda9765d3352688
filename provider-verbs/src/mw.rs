//! Memory windows: of type 1 for the peers of a domain, of type 2 for the peer of one queue pair.
//!
//! A window of type 1 is bound anew in one request. One of type 2 has to be invalidated first, by a request that must not find it
//! invalid (rxe 6.12 takes the host down), while its peer may invalidate it at any time: so each bind is of a window of its own,
//! and the one before ends when the bind has completed. All binds complete, so that it is known what a window shows; the consumer
//! need not hear of it.
//!
//! Three things are for rxe (Linux 6.12). It looks at a window's rights, but only at the bounds of the window's region
//! (`check_rkey`): so each bind is of a region of its own, which is no larger than what is shown. A window of type 2 keeps the
//! queue pair (`rxe_do_bind_mw`), whose end would wait 50 s for it (`__rxe_cleanup`): so the window ends first. And what
//! a bind has to wait for is in `Pair::wait_for_earlier`.

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

/// Memory window.
pub struct Mw(Arc<Pane>);

/// What the queue pairs keep that bind it.
pub(crate) struct Pane {
    pub(crate) domain: Arc<Domain>,
    panes: Arc<Panes>,
    scoped: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The device's: for all binds if it is of type 1, else for the next one, which makes it if there is none.
    made: Option<Made>,
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
    /// The peer has invalidated it before its completion was taken.
    is_over: bool,
    /// The window, if it is of this bind alone. Ends before the region.
    _made: Option<Made>,
    _part: Option<Part>,
}

/// A window of the device's.
struct Made {
    mw: NonNull<ibv_mw>,
    /// What it is found by.
    index: u32,
    domain: Arc<Domain>,
    panes: Arc<Panes>,
}

// SAFETY: the library locks what threads share.
unsafe impl Send for Pane {}
// SAFETY: as above.
unsafe impl Sync for Pane {}

/// All windows of an adapter that peers can invalidate, by what their keys have in common.
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
        let Some(pane) = pane else { return };
        let mut state = pane.state();
        if state.bound.key == key {
            state.bound = Shown::default();
        }
        state.posted.iter_mut().filter(|posted| posted.key == key).for_each(|posted| posted.is_over = true);
    }

    /// A queue pair ends: what windows show to its peer, they show to nobody.
    pub(crate) fn forget_pair(&self, number: u32) {
        let panes: Vec<_> = self.map().values().filter_map(Weak::upgrade).collect();
        for pane in panes {
            let mut state = pane.state();
            if state.bound.by == number {
                state.bound = Shown::default();
            }
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // First: the kernel may give the key to another at once.
        self.panes.map().remove(&self.index);
        // SAFETY: live. From now on its keys name nothing.
        unsafe { self.domain.device.core.verbs.ibv_dealloc_mw(self.mw.as_ptr()) };
    }
}

impl Mw {
    pub(crate) fn new(panes: &Arc<Panes>, pd: &Pd, scoped: bool) -> Result<Mw> {
        let domain = Arc::clone(&pd.0);
        if !domain.device.has_windows(scoped) {
            return Err(Error::of(DAT_MODEL_NOT_SUPPORTED));
        }
        let pane = Arc::new(Pane { domain, panes: Arc::clone(panes), scoped, state: Mutex::default() });
        let made = pane.make()?;
        pane.state().made = Some(made);
        Ok(Mw(pane))
    }

    pub(crate) fn pane(&self) -> &Arc<Pane> {
        &self.0
    }
}

impl Window for Mw {
    fn state(&self, rkey: u32) -> BindState {
        let state = self.0.state();
        match state.bound.key {
            _ if state.posted.iter().any(|posted| posted.key == rkey) => BindState::Posted,
            bound if bound == rkey && rkey != 0 => BindState::Bound,
            _ => BindState::Over,
        }
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        let mut state = self.0.state();
        // What is queued keeps the rest until it has completed: it would fail, and the connection with it.
        if self.0.scoped || state.posted.is_empty() {
            state.made = None;
            state.bound = Shown::default();
        }
    }
}

impl Pane {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a window of the device's.
    fn make(self: &Arc<Self>) -> Result<Made> {
        let kind = if self.scoped { IBV_MW_TYPE_2 } else { IBV_MW_TYPE_1 };
        let Domain { device, pd, .. } = &*self.domain;
        // SAFETY: a live domain.
        let mw = NonNull::new(unsafe { device.core.verbs.ibv_alloc_mw(pd.as_ptr(), kind) });
        let mw = mw.ok_or_else(|| match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EOPNOTSUPP) => Error::of(DAT_MODEL_NOT_SUPPORTED),
            _ => Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY),
        })?;
        // SAFETY: live.
        let index = unsafe { mw.as_ref() }.rkey & !BIND;
        if self.scoped {
            self.panes.map().insert(index, Arc::downgrade(self));
        }
        let (domain, panes) = (Arc::clone(&self.domain), Arc::clone(&self.panes));
        Ok(Made { mw, index, domain, panes })
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

    /// Queues a bind as the request with this id; `post` posts a request to the queue pair. Answers the new key, or an errno.
    /// One thread at a time for each domain: dat-core's lock, so that there is one region of [`Domain::nothing`].
    pub(crate) fn post(
        self: &Arc<Self>,
        wr: &BindWr<'_, Adapter>,
        (wr_id, qp): (u64, NonNull<ibv_qp>),
        post: impl FnOnce(&mut ibv_send_wr) -> i32,
    ) -> std::result::Result<u32, i32> {
        let mut state = self.state();
        let view = wr.view.as_ref();
        let part = match view {
            Some(view) if self.domain.device.is_rxe() => Some(view.region.part(view).ok_or(libc::ENOMEM)?),
            _ => None,
        };
        let info = self.info(view, part.as_ref())?;
        let send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
        let made = match view {
            None if self.scoped => None,
            _ => Some(state.made.take().map_or_else(|| self.make(), Ok).map_err(|_| libc::ENOMEM)?),
        };
        let (key, done) = match &made {
            // An empty request: when it has completed, the window ends.
            None => {
                let opcode = IBV_WR_RDMA_WRITE;
                (0, post(&mut ibv_send_wr { wr_id, opcode, send_flags, ..ibv_send_wr::zeroed() }))
            }
            Some(made) if self.scoped => {
                // SAFETY: live.
                let rkey = next(unsafe { made.mw.as_ref() }.rkey);
                let bind_mw = ibv_wr_bind_mw { mw: made.mw.as_ptr(), rkey, bind_info: info };
                let opcode = IBV_WR_BIND_MW;
                (rkey, post(&mut ibv_send_wr { wr_id, opcode, send_flags, bind_mw, ..ibv_send_wr::zeroed() }))
            }
            Some(made) => {
                let mut bind = ibv_mw_bind { wr_id, send_flags, bind_info: info };
                // SAFETY: all are live and of one device; the library writes the new key to the window.
                unsafe {
                    let done =
                        self.domain.device.core.verbs.ibv_bind_mw(qp.as_ptr(), made.mw.as_ptr(), &mut bind);
                    (made.mw.as_ref().rkey, done)
                }
            }
        };
        let own = made.and_then(|made| match self.scoped && done == 0 {
            true => Some(made),
            false => state.made.replace(made),
        });
        if done != 0 {
            return Err(done);
        }
        if key != 0 {
            state.last = key;
        }
        let key = if view.is_some() { key } else { 0 };
        // SAFETY: live.
        let by = unsafe { qp.as_ref() }.qp_num;
        state.posted.push_back(Shown { key, by, is_over: false, _made: own, _part: part });
        Ok(key)
    }

    /// What a bind says to the device: the region, which may be a part of the view's, and what of it is shown.
    fn info(
        &self,
        view: Option<&View<'_, Adapter>>,
        part: Option<&Part>,
    ) -> std::result::Result<ibv_mw_bind_info, i32> {
        let mr = match view {
            Some(view) => part.map_or_else(|| view.region.as_ptr(), Part::as_ptr),
            None if self.scoped => ptr::null_mut(),
            None => NonNull::new(self.domain.nothing()).ok_or(libc::ENOMEM)?.as_ptr(),
        };
        let access = view.map_or(0, |view| map::access(view.access, view.zero_based));
        Ok(ibv_mw_bind_info {
            mr,
            addr: view.map_or(0, |view| view.addr),
            length: view.map_or(0, |view| view.len),
            mw_access_flags: access & !IBV_ACCESS_LOCAL_WRITE,
        })
    }

    /// The bind with this key has ended.
    pub(crate) fn ended(&self, key: u32, done: bool) {
        let mut state = self.state();
        let at = state.posted.iter().position(|posted| posted.key == key);
        if let Some(shown) = at.and_then(|at| state.posted.remove(at))
            && done
        {
            state.bound = if shown.is_over { Shown::default() } else { shown };
        }
    }
}

fn next(key: u32) -> u32 {
    (key & !BIND) | (key.wrapping_add(1) & BIND)
}
