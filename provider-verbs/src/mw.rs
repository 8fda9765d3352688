//! Memory windows: type 1 for all peers of a protection domain, type 2 for the peer of one queue
//! pair.
//!
//! Each bind uses a new window of the device, and the previous window is deallocated when the bind
//! has completed. A window of type 2 can be reused only after this side has invalidated it with a
//! request. If the peer has already invalidated the window, which it may do at any time, the
//! request crashes the host (rxe 6.12). An unbind is an empty request. When it completes, the
//! window is deallocated. All binds are signalled, so that this crate knows which memory a window
//! gives access to. The consumer does not get completions that it has not asked for.
//!
//! A queued bind is carried out even if the consumer frees its RMR first. If the window were
//! deallocated before the bind completes, the bind would fail and break the connection. So the
//! window is deallocated when the completion of the bind is taken.
//!
//! Three rules exist because of rxe (Linux 6.12):
//!
//! - rxe checks the access rights of a window, but not its bounds. It checks only the bounds of the
//!   region (`check_rkey`). So each bind registers a new region of exactly the window's range.
//! - A window of type 2 holds a reference to its queue pair (`rxe_do_bind_mw`). Destroying the
//!   queue pair would wait 50 s for this reference (`__rxe_cleanup`). So windows are deallocated
//!   before queue pairs are destroyed.
//! - A bind may have to wait for earlier requests: see `QpShared::wait_for_earlier`.

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

/// A memory window.
pub struct Mw(Arc<WindowShared>);

/// The part of a memory window that is shared with the queue pairs that bind it.
pub(crate) struct WindowShared {
    pub(crate) domain: Arc<Domain>,
    windows: Arc<WindowTable>,
    scoped: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The window of the device for the next bind. `None` if that bind must allocate a window.
    next_window: Option<DeviceWindow>,
    /// The key that the latest bind has returned.
    last_key: u32,
    /// Queued binds in the order in which they were posted.
    posted: VecDeque<Binding>,
    /// The current binding. Its key is 0 if the window is not bound.
    current: Binding,
}

/// A bind that is queued or has completed: the window, and the region that the window gives access
/// to.
#[derive(Default)]
struct Binding {
    /// The key of the window, or 0 for an unbind.
    key: u32,
    /// The number of the queue pair that binds the window.
    qp_num: u32,
    /// Whether the window must be deallocated when the bind completes, because a peer has
    /// invalidated it or its RMR has been freed.
    is_discarded: bool,
    /// The window. It is declared before `_region`, so that the window is dropped before the
    /// region.
    _window: Option<DeviceWindow>,
    _region: Option<Arc<Registered>>,
}

/// A window of the device.
struct DeviceWindow {
    mw: NonNull<ibv_mw>,
    /// The key of the window with the last octet set to 0. It is the index into [`WindowTable`].
    index: u32,
    domain: Arc<Domain>,
    windows: Arc<WindowTable>,
}

// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Send for WindowShared {}
// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Sync for WindowShared {}

/// All windows of an adapter that peers can invalidate, indexed by their keys with the last octet
/// set to 0.
#[derive(Default)]
pub(crate) struct WindowTable(Mutex<HashMap<u32, Weak<WindowShared>>>);

/// The last octet of a key, which each bind changes.
const BIND_KEY_MASK: u32 = 0xff;

impl WindowTable {
    fn map(&self) -> MutexGuard<'_, HashMap<u32, Weak<WindowShared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a peer has invalidated the window with this key.
    #[cold]
    pub(crate) fn invalidate(&self, key: u32) {
        let window = self.map().get(&(key & !BIND_KEY_MASK)).and_then(Weak::upgrade);
        let Some(window) = window else { return };
        let mut state = window.state();
        if state.current.key == key {
            state.current = Binding::default();
        }
        state
            .posted
            .iter_mut()
            .filter(|posted| posted.key == key)
            .for_each(|posted| posted.is_discarded = true);
    }

    /// Unbinds the windows that are bound to a queue pair which is being dropped.
    pub(crate) fn remove_pair(&self, number: u32) {
        let windows: Vec<_> = self.map().values().filter_map(Weak::upgrade).collect();
        for window in windows {
            let mut state = window.state();
            if state.current.qp_num == number {
                state.current = Binding::default();
            }
        }
    }
}

impl Drop for DeviceWindow {
    fn drop(&mut self) {
        // Remove the key from the table first, because the kernel may give the key to another
        // window at once.
        self.windows.map().remove(&self.index);
        // SAFETY: the window is live. From now on no access uses its keys.
        unsafe { self.domain.device.core.verbs.ibv_dealloc_mw(self.mw.as_ptr()) };
    }
}

impl Mw {
    pub(crate) fn new(windows: &Arc<WindowTable>, pd: &Pd, scoped: bool) -> Result<Mw> {
        let domain = Arc::clone(&pd.0);
        if !domain.device.has_windows(scoped) {
            return Err(Error::of(DAT_MODEL_NOT_SUPPORTED));
        }
        let window = Arc::new(WindowShared {
            domain,
            windows: Arc::clone(windows),
            scoped,
            state: Mutex::default(),
        });
        let next_window = window.allocate()?;
        window.state().next_window = Some(next_window);
        Ok(Mw(window))
    }

    pub(crate) fn shared(&self) -> &Arc<WindowShared> {
        &self.0
    }
}

impl Window for Mw {
    fn state(&self, rkey: u32) -> BindState {
        let state = self.0.state();
        match state.current.key {
            _ if state.posted.iter().any(|posted| posted.key == rkey) => BindState::Posted,
            current if current == rkey && rkey != 0 => BindState::Bound,
            _ => BindState::Over,
        }
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.next_window = None;
        state.current = Binding::default();
        // Queued binds keep their windows and regions until they complete.
        state.posted.iter_mut().for_each(|posted| posted.is_discarded = true);
    }
}

impl WindowShared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates a window of the device.
    fn allocate(self: &Arc<Self>) -> Result<DeviceWindow> {
        let kind = if self.scoped { IBV_MW_TYPE_2 } else { IBV_MW_TYPE_1 };
        let Domain { device, pd, .. } = &*self.domain;
        // SAFETY: the domain is live.
        let mw = NonNull::new(unsafe { device.core.verbs.ibv_alloc_mw(pd.as_ptr(), kind) });
        let mw = mw.ok_or_else(|| match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EOPNOTSUPP) => Error::of(DAT_MODEL_NOT_SUPPORTED),
            _ => Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY),
        })?;
        // SAFETY: the window is live.
        let index = unsafe { mw.as_ref() }.rkey & !BIND_KEY_MASK;
        if self.scoped {
            self.windows.map().insert(index, Arc::downgrade(self));
        }
        let (domain, windows) = (Arc::clone(&self.domain), Arc::clone(&self.windows));
        Ok(DeviceWindow { mw, index, domain, windows })
    }

    /// Checks a bind in the order that dat-core's contract prescribes.
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
        // IBA 10.6.7.2: only windows of type 2 can be zero-based.
        if view.zero_based && !self.scoped {
            return Err(PostError::Unsupported);
        }
        Ok(())
    }

    /// Returns the key for a bind that is flushed and never reaches the device.
    pub(crate) fn flushed_key(&self, unbinds: bool) -> u32 {
        if unbinds { 0 } else { next_key(self.state().last_key) }
    }

    /// Queues a bind as the request with the ID `wr_id`; `post` posts a request to the queue pair.
    /// Returns the new key, or an errno.
    pub(crate) fn post(
        self: &Arc<Self>,
        wr: &BindWr<'_, Adapter>,
        (wr_id, qp): (u64, NonNull<ibv_qp>),
        post: impl FnOnce(&mut ibv_send_wr) -> i32,
    ) -> std::result::Result<u32, i32> {
        let send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
        // SAFETY: the queue pair is live.
        let qp_num = unsafe { qp.as_ref() }.qp_num;
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
                    state.posted.push_back(Binding { qp_num, ..Binding::default() });
                    Ok(0)
                }
                errno => Err(errno),
            };
        };
        let region = view.region.bindable(view).ok_or(libc::ENOMEM)?;
        let next_window = state
            .next_window
            .take()
            .map_or_else(|| self.allocate(), Ok)
            .map_err(|_| libc::ENOMEM)?;
        let bind_info = ibv_mw_bind_info {
            mr: region.as_ptr(),
            addr: view.addr,
            length: view.len,
            mw_access_flags: map::access(view.access, view.zero_based) & !IBV_ACCESS_LOCAL_WRITE,
        };
        let mw = next_window.mw.as_ptr();
        // SAFETY: the queue pair, the window and the region are live and belong to one device. The
        // library updates the key of a window of type 1.
        let (done, key) = unsafe {
            if self.scoped {
                let rkey = next_key((*mw).rkey);
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
            state.next_window = Some(next_window);
            return Err(done);
        }
        state.last_key = key;
        state.posted.push_back(Binding {
            key,
            qp_num,
            is_discarded: false,
            _window: Some(next_window),
            _region: Some(region),
        });
        Ok(key)
    }

    /// Records that the bind with this key has ended. `done` says whether the bind succeeded.
    pub(crate) fn bind_ended(&self, key: u32, done: bool) {
        let mut state = self.state();
        let at = state.posted.iter().position(|posted| posted.key == key);
        if let Some(binding) = at.and_then(|at| state.posted.remove(at))
            && done
        {
            state.current = if binding.is_discarded { Binding::default() } else { binding };
        }
    }
}

fn next_key(key: u32) -> u32 {
    (key & !BIND_KEY_MASK) | (key.wrapping_add(1) & BIND_KEY_MASK)
}
