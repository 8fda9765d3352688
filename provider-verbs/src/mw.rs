//! Memory windows: of type 1 for the peers of a domain, of type 2 for the peer of one queue pair.
//!
//! Each bind is of a window of its own, and the one before ends when the bind has completed. A window of type 2 could be bound anew
//! once it is invalidated, but by a request that must not find it invalid (rxe 6.12 takes the host down), while its peer may
//! invalidate it at any time. To unbind is an empty request, at whose completion the window ends. All binds complete, so that it is
//! known what a window shows; the consumer need not hear of it.
//!
//! A bind that is queued when its RMR is freed is carried out, since a window that goes before would fail it, and the connection
//! with it; what it shows ends when its completion is taken.
//!
//! Three things are for rxe (Linux 6.12). It looks at a window's rights, but only at the bounds of the window's region
//! (`check_rkey`): so each bind is of a region of its own, which is no larger than what is shown. A window of type 2 keeps the
//! queue pair (`rxe_do_bind_mw`), whose end would wait 50 s for it (`__rxe_cleanup`): so the window ends first. And what
//! a bind has to wait for is in `Pair::wait_for_earlier`.

use std::collections::{HashMap, VecDeque};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dat_core::provider::{BindState, BindWr, PostError, View, Window};
use dat_core::{Error, Result};
use dat_sys::{DAT_INSUFFICIENT_RESOURCES, DAT_MODEL_NOT_SUPPORTED, DAT_RESOURCE_MEMORY};
use rdma_core_sys::*;

use crate::Adapter;
use crate::map;
use crate::mr::{Domain, Pd, Registered};

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
    /// The device's, for the next bind, which makes it if there is none.
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
    /// Ends before the region.
    _made: Option<Made>,
    _region: Option<Arc<Registered>>,
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
        state
            .posted
            .iter_mut()
            .filter(|posted| posted.key == key)
            .for_each(|posted| posted.is_over = true);
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
        let pane =
            Arc::new(Pane { domain, panes: Arc::clone(panes), scoped, state: Mutex::default() });
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
        state.made = None;
        state.bound = Shown::default();
        // Those that are queued keep the rest.
        state.posted.iter_mut().for_each(|posted| posted.is_over = true);
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
    pub(crate) fn post(
        self: &Arc<Self>,
        wr: &BindWr<'_, Adapter>,
        (wr_id, qp): (u64, NonNull<ibv_qp>),
        post: impl FnOnce(&mut ibv_send_wr) -> i32,
    ) -> std::result::Result<u32, i32> {
        let send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
        // SAFETY: live.
        let by = unsafe { qp.as_ref() }.qp_num;
        let mut state = self.state();
        let Some(view) = &wr.view else {
            let opcode = IBV_WR_RDMA_WRITE;
            return match post(&mut ibv_send_wr {
                wr_id,
                opcode,
                send_flags,
                ..ibv_send_wr::zeroed()
            }) {
                0 => {
                    state.posted.push_back(Shown { by, ..Shown::default() });
                    Ok(0)
                }
                errno => Err(errno),
            };
        };
        let region = view.region.to_show(view).ok_or(libc::ENOMEM)?;
        let made = state.made.take().map_or_else(|| self.make(), Ok).map_err(|_| libc::ENOMEM)?;
        let bind_info = ibv_mw_bind_info {
            mr: region.as_ptr(),
            addr: view.addr,
            length: view.len,
            mw_access_flags: map::access(view.access, view.zero_based) & !IBV_ACCESS_LOCAL_WRITE,
        };
        let mw = made.mw.as_ptr();
        // SAFETY: all are live and of one device. The library writes the new key to a window of type 1.
        let (done, key) = unsafe {
            if self.scoped {
                let rkey = next((*mw).rkey);
                let (opcode, bind_mw) = (IBV_WR_BIND_MW, ibv_wr_bind_mw { mw, rkey, bind_info });
                (
                    post(&mut ibv_send_wr {
                        wr_id,
                        opcode,
                        send_flags,
                        bind_mw,
                        ..ibv_send_wr::zeroed()
                    }),
                    rkey,
                )
            } else {
                let mut bind = ibv_mw_bind { wr_id, send_flags, bind_info };
                (self.domain.device.core.verbs.ibv_bind_mw(qp.as_ptr(), mw, &mut bind), (*mw).rkey)
            }
        };
        if done != 0 {
            state.made = Some(made);
            return Err(done);
        }
        state.last = key;
        state.posted.push_back(Shown {
            key,
            by,
            is_over: false,
            _made: Some(made),
            _region: Some(region),
        });
        Ok(key)
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
