//! An endpoint's part in binding a remote memory region.

use std::ffi::c_void;

use dat_sys::*;

use super::Ep;
use super::post::refused;
use super::state::Event;
use crate::error::{Error, Result};
use crate::handle::Node;
use crate::mem::Pz;
use crate::provider::{BindWr, Queue, Transport, View};

/// uDAPL 1.2, dat_rmr_bind: neither solicits anybody. It waits for earlier requests, fence or not.
const BIND_FLAGS: DAT_COMPLETION_FLAGS = DAT_COMPLETION_SUPPRESS_FLAG
    | DAT_COMPLETION_BARRIER_FENCE_FLAG
    | DAT_COMPLETION_EVD_THRESHOLD_FLAG;

impl<T: Transport> Node<Ep<T>> {
    /// Whether a bind may be posted now, with these flags: without those that mean nothing.
    ///
    /// # Safety
    /// As of all posts.
    pub(crate) unsafe fn check_bind(
        &self,
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<DAT_COMPLETION_FLAGS> {
        self.shared.state.check(Event::PostRequest)?;
        // uDAPL 1.2, dat_rmr_bind: the completion is an event of the request EVD, which must be made for such.
        // SAFETY: as the caller promised.
        let link = unsafe { self.link() }?;
        if !link.takes_binds {
            return Err(Error::state(DAT_INVALID_STATE_EP_EVD_REQUEST));
        }
        // uDAPL 1.2, dat_rmr_bind: unsignalled only if the endpoint was made for it.
        let known = BIND_FLAGS | link.unsignalled;
        if flags & !known == 0 { Ok(flags) } else { self.known_flags(known, flags, 8) }
    }

    /// Whether the endpoint is in this protection zone.
    ///
    /// # Safety
    /// As of all posts.
    pub(crate) unsafe fn is_in(&self, pz: &Node<Pz<T>>) -> bool {
        // SAFETY: as the caller promised.
        unsafe { self.link() }.is_ok_and(|link| link.pz == pz.handle() as usize)
    }

    /// Posts the bind of an RMR, given by its handle and window; answers its new context.
    ///
    /// # Safety
    /// As of all posts.
    pub(crate) unsafe fn post_bind(
        &self,
        (rmr, window): (*mut c_void, &T::Mw),
        view: Option<View<'_, T>>,
        cookie: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<DAT_RMR_CONTEXT> {
        // SAFETY: as the caller promised.
        let link = unsafe { self.link() }?;
        let signalled = flags & DAT_COMPLETION_SUPPRESS_FLAG == 0;
        let quiet = flags & DAT_COMPLETION_UNSIGNALLED_FLAG != 0;
        link.flow.prepare_binds()?;
        // SAFETY: as the caller promised.
        let claim = unsafe { self.claim(link, cookie, !signalled) }?;
        link.flow.set_rmr(claim.cell, rmr);
        let wr = BindWr { id: claim.cell as u64, window, view, signalled, quiet };
        // SAFETY: as the caller promised.
        unsafe { link.qp.post_bind(&wr) }.map_err(|e| {
            link.flow.requests.withdraw(&claim);
            refused(e)
        })
    }
}
