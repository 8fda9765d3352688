//! How an endpoint posts the bind of a remote memory region (RMR).

use std::ffi::c_void;

use dat_sys::*;

use super::Ep;
use super::post::post_error;
use super::state::States;
use crate::error::{Error, Result};
use crate::handle::Node;
use crate::mem::Pz;
use crate::provider::{BindWr, Queue, ServiceType, Transport, View};

/// The completion flags that a bind may have (uDAPL 1.2, dat_rmr_bind). The solicited-wait flag is
/// not one of them. The fence flag has no effect, because a bind always waits for earlier requests.
const BIND_FLAGS: DAT_COMPLETION_FLAGS = DAT_COMPLETION_SUPPRESS_FLAG
    | DAT_COMPLETION_BARRIER_FENCE_FLAG
    | DAT_COMPLETION_EVD_THRESHOLD_FLAG;

impl<T: Transport> Node<Ep<T>> {
    /// Checks whether a bind with these flags may be posted now.
    ///
    /// # Safety
    /// The requirements of all posts apply (see `post`).
    pub(crate) unsafe fn check_bind(&self, flags: DAT_COMPLETION_FLAGS) -> Result<()> {
        self.shared.state.check(States::POST_REQUEST)?;
        if self.service() != ServiceType::Connection {
            return Err(Error::handle(DAT_INVALID_HANDLE_EP));
        }
        // The completion of the bind goes to the request EVD, which must accept completions of
        // binds (uDAPL 1.2, dat_rmr_bind).
        // SAFETY: the caller guarantees that no other thread posts requests to the endpoint or
        // replaces its queue pair during this call.
        let bound = unsafe { self.qp_for_post() }?;
        if !bound.takes_binds {
            return Err(Error::state(DAT_INVALID_STATE_EP_EVD_REQUEST));
        }
        // The unsignalled flag is legal only if the endpoint was created with it (uDAPL 1.2,
        // dat_rmr_bind).
        let known = BIND_FLAGS | bound.unsignalled;
        if flags & !known == 0 { Ok(()) } else { Err(Error::arg(8)) }
    }

    /// Whether the endpoint belongs to this protection zone.
    ///
    /// # Safety
    /// The requirements of all posts apply (see `post`).
    pub(crate) unsafe fn is_in(&self, pz: &Node<Pz<T>>) -> bool {
        // SAFETY: the caller guarantees that no other thread replaces the queue pair during this
        // call.
        unsafe { self.qp_for_post() }.is_ok_and(|bound| bound.pz == pz.handle() as usize)
    }

    /// Posts the bind of an RMR, which is given by its handle and window. Returns the new RMR
    /// context.
    ///
    /// # Safety
    /// The requirements of all posts apply (see `post`).
    pub(crate) unsafe fn post_bind(
        &self,
        (rmr, window): (*mut c_void, &T::Mw),
        view: Option<View<'_, T>>,
        cookie: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<DAT_RMR_CONTEXT> {
        // SAFETY: the caller guarantees that no other thread replaces the queue pair during this
        // call.
        let bound = unsafe { self.qp_for_post() }?;
        let signalled = flags & DAT_COMPLETION_SUPPRESS_FLAG == 0;
        let quiet = flags & DAT_COMPLETION_UNSIGNALLED_FLAG != 0;
        bound.flow.prepare_binds()?;
        // SAFETY: the caller guarantees that no other thread posts requests during this call.
        let claim = unsafe { self.claim(bound, cookie, !signalled) }?;
        bound.flow.set_rmr(claim.cell, rmr);
        let wr = BindWr { id: claim.cell as u64, window, view, signalled, quiet };
        // SAFETY: the caller guarantees that no other thread posts requests during this call.
        unsafe { bound.qp.post_bind(&wr) }.map_err(|e| {
            bound.flow.requests.withdraw(&claim);
            post_error(e)
        })
    }
}
