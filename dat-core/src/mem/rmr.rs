//! Remote memory regions (memory windows): what peers may do with part of a region, until it is bound anew.
//!
//! A bind goes through an endpoint's request queue. When it is carried out only the transport knows; so an RMR keeps each
//! bind that may hold or may come to hold, and asks. As long as it keeps one, the LMR is in use.

use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_sys::*;

use super::{Lmr, Pz};
use crate::ep::Ep;
use crate::error::{Error, Result};
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::provider::{BindState, Transport, View, Window};

/// A remote memory region. Fields are dropped in this order.
pub struct Rmr<T: Transport> {
    /// What the transport calls it.
    pub window: T::Mw,
    /// Its protection zone.
    pub pz: Ref<Pz<T>>,
    /// Its adapter.
    pub ia: Ref<Ia<T>>,
    scope: DAT_RMR_SCOPE,
    binds: Mutex<Vec<Bind<T>>>,
}

/// A bind that has been posted.
struct Bind<T: Transport> {
    context: DAT_RMR_CONTEXT,
    to: DAT_LMR_TRIPLET,
    privileges: DAT_MEM_PRIV_FLAGS,
    va_type: DAT_VA_TYPE,
    _lmr: Ref<Lmr<T>>,
}

/// What dat_rmr_bind is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Which part of the region; length 0 unbinds.
    pub to: DAT_LMR_TRIPLET,
    /// What peers may do.
    pub privileges: DAT_MEM_PRIV_FLAGS,
    /// How peers name the bytes.
    pub va_type: DAT_VA_TYPE,
    /// Comes back in the event.
    pub cookie: u64,
    /// `DAT_COMPLETION_…`.
    pub flags: DAT_COMPLETION_FLAGS,
}

impl<T: Transport> Object for Rmr<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_RMR;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_RMR;
}

/// dat_rmr_create (`DAT_RMR_SCOPE_PZ`) and dat_rmr_create_for_ep (`DAT_RMR_SCOPE_EP`: what it is bound to is for the peer
/// of the endpoint that the bind was posted to).
pub fn create<T: Transport>(
    pz: &Node<Pz<T>>,
    scope: DAT_RMR_SCOPE,
) -> Result<&'static Node<Rmr<T>>> {
    let ia = pz.ia.clone();
    if ia.transport.attrs().max_windows == 0 {
        return Err(Error::of(DAT_MODEL_NOT_SUPPORTED));
    }
    let _control = ia.control();
    ia.add(|_| {
        let window = ia.transport.mw(&pz.pd, scope == DAT_RMR_SCOPE_EP)?;
        Ok(Rmr { window, pz: Ref::new(pz), ia: ia.clone(), scope, binds: Mutex::new(Vec::new()) })
    })
}

/// dat_rmr_free: bound or not.
///
/// # Safety
/// Nobody uses a reference to it any more, if this succeeds.
pub unsafe fn free<T: Transport>(rmr: &Node<Rmr<T>>) -> Result<()> {
    let (ia, handle) = (rmr.ia.clone(), rmr.handle());
    let control = ia.control_to_free::<Rmr<T>>(handle)?;
    ia.delist(rmr);
    // SAFETY: nothing depends on it.
    drop(unsafe { handle::remove(rmr) });
    drop(control);
    Ok(())
}

/// dat_rmr_bind: answers the new context, which is valid when the bind has been carried out; 0 if it unbinds,
/// for which there is no region. Arguments are counted as in uDAPL 2.0, where the region is the second.
///
/// # Safety
/// As of all posts to the endpoint (`ep::post`).
pub unsafe fn bind<T: Transport>(
    rmr: &Node<Rmr<T>>,
    lmr: Option<&Node<Lmr<T>>>,
    ep: &Node<Ep<T>>,
    request: &Request,
) -> Result<DAT_RMR_CONTEXT> {
    let control = ep.ia.control();
    if lmr.is_some_and(|lmr| lmr.ia.handle() != rmr.ia.handle()) {
        return Err(Error::handle(DAT_INVALID_HANDLE_LMR));
    }
    if ep.ia.handle() != rmr.ia.handle() {
        return Err(Error::handle(DAT_INVALID_HANDLE_EP));
    }
    // SAFETY: as the caller promised.
    let flags = unsafe { ep.check_bind(request.flags) }?;
    if request.privileges & !DAT_MEM_PRIV_ALL_FLAG != 0 {
        return Err(Error::arg(4));
    }
    if ![DAT_VA_TYPE_VA, DAT_VA_TYPE_ZB].contains(&request.va_type) {
        return Err(Error::arg(5));
    }
    // uDAPL 1.2, dat_rmr_create: a zone restricts an RMR to its own connections, and memory.
    // SAFETY: as the caller promised.
    if !unsafe { ep.is_in(&rmr.pz) } || lmr.is_some_and(|lmr| lmr.pz.handle() != rmr.pz.handle()) {
        return Err(Error::of(DAT_PROTECTION_VIOLATION));
    }
    let view = lmr.map(|lmr| view(lmr, request)).transpose()?;
    let mut binds = rmr.current();
    // SAFETY: as the caller promised.
    let context =
        unsafe { ep.post_bind((rmr.handle(), &rmr.window), view, request.cookie, flags) }?;
    if let Some(lmr) = lmr {
        let &Request { to, privileges, va_type, .. } = request;
        binds.push(Bind { context, to, privileges, va_type, _lmr: Ref::new(lmr) });
    }
    drop(binds);
    drop(control);
    Ok(context)
}

/// What peers shall see, if they may.
fn view<'a, T: Transport>(lmr: &'a Node<Lmr<T>>, request: &Request) -> Result<View<'a, T>> {
    let &Request { to, privileges, va_type, .. } = request;
    // uDAPL 1.2, dat_rmr_bind: the segment must not exceed the region.
    if !lmr.contains(&to) {
        return Err(Error::arg(3));
    }
    let access = super::lmr::access(privileges, false);
    // uDAPL 1.2, dat_rmr_bind: peers may read what the owner may read, and write what the owner may write.
    for (asked, needed, missing) in [
        (access.remote_read, DAT_MEM_PRIV_LOCAL_READ_FLAG, DAT_PRIVILEGES_READ),
        (access.remote_write, DAT_MEM_PRIV_LOCAL_WRITE_FLAG, DAT_PRIVILEGES_WRITE),
    ] {
        if asked && lmr.privileges() & needed == 0 {
            return Err(Error::new(DAT_PRIVILEGES_VIOLATION, missing));
        }
    }
    Ok(View {
        region: &lmr.mr,
        addr: to.virtual_address,
        len: to.segment_length.into(),
        access,
        zero_based: va_type == DAT_VA_TYPE_ZB,
    })
}

impl<T: Transport> Rmr<T> {
    /// Lets go of the regions that it is not bound to any more. Called under the control lock.
    pub fn settle(&self) {
        drop(self.current());
    }

    /// The binds that hold, or wait for their turn. Called under the control lock.
    fn current(&self) -> MutexGuard<'_, Vec<Bind<T>>> {
        let mut binds = self.binds.lock().unwrap_or_else(PoisonError::into_inner);
        binds.retain(|bind| self.window.state(bind.context) != BindState::Over);
        binds
    }

    /// dat_rmr_query: of an unbound region there is only where it belongs.
    pub fn query(&self, param: &mut DAT_RMR_PARAM) {
        let _control = self.ia.control();
        *param = DAT_RMR_PARAM {
            ia_handle: self.ia.consumer_handle(),
            pz_handle: self.pz.handle(),
            rmr_scope: self.scope,
            va_type: DAT_VA_TYPE_VA,
            ..DAT_RMR_PARAM::zeroed()
        };
        let binds = self.current();
        if let Some(bind) =
            binds.iter().find(|bind| self.window.state(bind.context) == BindState::Bound)
        {
            param.lmr_triplet = bind.to;
            param.mem_priv = bind.privileges;
            param.rmr_context = bind.context;
            param.va_type = bind.va_type;
        }
    }
}
