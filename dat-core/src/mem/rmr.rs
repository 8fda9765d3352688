//! Remote memory regions (RMRs, memory windows). While an RMR is bound, peers may access a part of
//! a region through it.
//!
//! A bind goes through an endpoint's request queue. Only the transport knows when the bind is
//! carried out. So an RMR keeps a record of each bind that is in effect or may come into effect,
//! and asks the transport about it. While the RMR keeps the record of a bind, the LMR of that bind
//! is in use.

use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_sys::*;

use super::{Lmr, Pz};
use crate::ep::Ep;
use crate::error::{Error, Result};
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::provider::{BindState, Transport, View, Window};

/// A remote memory region. Its fields are dropped in the order of declaration.
pub struct Rmr<T: Transport> {
    /// The transport's object for the RMR.
    pub window: T::Mw,
    /// The protection zone of the RMR.
    pub pz: Ref<Pz<T>>,
    /// The adapter of the RMR.
    pub ia: Ref<Ia<T>>,
    scope: DAT_RMR_SCOPE,
    binds: Mutex<Vec<PostedBind<T>>>,
}

/// A bind that has been posted.
struct PostedBind<T: Transport> {
    context: DAT_RMR_CONTEXT,
    to: DAT_LMR_TRIPLET,
    privileges: DAT_MEM_PRIV_FLAGS,
    va_type: DAT_VA_TYPE,
    _lmr: Ref<Lmr<T>>,
}

/// The arguments of dat_rmr_bind.
#[derive(Clone, Copy, Debug)]
pub struct BindRequest {
    /// The part of the region to which the RMR is bound. A length of 0 unbinds the RMR.
    pub to: DAT_LMR_TRIPLET,
    /// The privileges that peers get.
    pub privileges: DAT_MEM_PRIV_FLAGS,
    /// How peers address the bytes of the bound part.
    pub va_type: DAT_VA_TYPE,
    /// The cookie that the completion event returns.
    pub cookie: u64,
    /// The completion flags, `DAT_COMPLETION_…`.
    pub flags: DAT_COMPLETION_FLAGS,
}

impl<T: Transport> Object for Rmr<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_RMR;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_RMR;
}

/// Implements dat_rmr_create (scope `DAT_RMR_SCOPE_PZ`) and dat_rmr_create_for_ep (scope
/// `DAT_RMR_SCOPE_EP`). With the scope `DAT_RMR_SCOPE_EP`, only the peer of the endpoint to which a
/// bind is posted may use the RMR.
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

/// Implements dat_rmr_free. The RMR may still be bound to a region.
///
/// # Safety
/// If this call succeeds, nobody uses a reference to the RMR after the call.
pub unsafe fn free<T: Transport>(rmr: &Node<Rmr<T>>) -> Result<()> {
    let (ia, handle) = (rmr.ia.clone(), rmr.handle());
    let control = ia.control_to_free::<Rmr<T>>(handle)?;
    ia.unregister_object(rmr);
    // SAFETY: no object depends on the RMR.
    drop(unsafe { handle::remove(rmr) });
    drop(control);
    Ok(())
}

/// Implements dat_rmr_bind. Returns the new context, which is valid once the bind has been carried
/// out. Without a region, the call unbinds the RMR and returns 0. Errors name argument positions of
/// uDAPL 2.0, where the region is the second argument.
///
/// # Safety
/// The requirements of all posts to the endpoint apply (see `ep::post`).
pub unsafe fn bind<T: Transport>(
    rmr: &Node<Rmr<T>>,
    lmr: Option<&Node<Lmr<T>>>,
    ep: &Node<Ep<T>>,
    request: &BindRequest,
) -> Result<DAT_RMR_CONTEXT> {
    let control = ep.ia.control();
    if lmr.is_some_and(|lmr| lmr.ia.handle() != rmr.ia.handle()) {
        return Err(Error::handle(DAT_INVALID_HANDLE_LMR));
    }
    if ep.ia.handle() != rmr.ia.handle() {
        return Err(Error::handle(DAT_INVALID_HANDLE_EP));
    }
    // SAFETY: the caller keeps the rules of all posts (see `ep::post`).
    unsafe { ep.check_bind(request.flags) }?;
    if request.privileges & !DAT_MEM_PRIV_ALL_FLAG != 0 {
        return Err(Error::arg(4));
    }
    if ![DAT_VA_TYPE_VA, DAT_VA_TYPE_ZB].contains(&request.va_type) {
        return Err(Error::arg(5));
    }
    // A zone restricts an RMR to the zone's own connections and memory (uDAPL 1.2, dat_rmr_create).
    // SAFETY: the caller keeps the rules of all posts (see `ep::post`).
    if !unsafe { ep.is_in(&rmr.pz) } || lmr.is_some_and(|lmr| lmr.pz.handle() != rmr.pz.handle()) {
        return Err(Error::of(DAT_PROTECTION_VIOLATION));
    }
    let view = lmr.map(|lmr| view(lmr, request)).transpose()?;
    let mut binds = rmr.current_binds();
    // SAFETY: the caller keeps the rules of all posts (see `ep::post`).
    let context =
        unsafe { ep.post_bind((rmr.handle(), &rmr.window), view, request.cookie, request.flags) }?;
    if let Some(lmr) = lmr {
        let &BindRequest { to, privileges, va_type, .. } = request;
        binds.push(PostedBind { context, to, privileges, va_type, _lmr: Ref::new(lmr) });
    }
    drop(binds);
    drop(control);
    Ok(context)
}

/// The memory that the request lets peers access. Fails if the region does not permit this access.
fn view<'a, T: Transport>(lmr: &'a Node<Lmr<T>>, request: &BindRequest) -> Result<View<'a, T>> {
    let &BindRequest { to, privileges, va_type, .. } = request;
    // The segment must not exceed the region (uDAPL 1.2, dat_rmr_bind).
    if !lmr.contains(&to) {
        return Err(Error::arg(3));
    }
    let access = super::lmr::access(privileges, true);
    // Peers may read only what the owner may read, and write only what the owner may write (uDAPL
    // 1.2, dat_rmr_bind).
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
    /// Forgets binds that are over, so that their regions are no longer in use. The caller holds
    /// the control lock.
    pub fn release_unbound(&self) {
        drop(self.current_binds());
    }

    /// The binds that are in effect or wait in the request queue. The caller holds the control
    /// lock.
    fn current_binds(&self) -> MutexGuard<'_, Vec<PostedBind<T>>> {
        let mut binds = self.binds.lock().unwrap_or_else(PoisonError::into_inner);
        binds.retain(|bind| self.window.state(bind.context) != BindState::Over);
        binds
    }

    /// Implements dat_rmr_query. If the RMR is unbound, only its adapter, its zone and its scope
    /// are reported.
    pub fn query(&self, param: &mut DAT_RMR_PARAM) {
        let _control = self.ia.control();
        *param = DAT_RMR_PARAM {
            ia_handle: self.ia.consumer_handle(),
            pz_handle: self.pz.handle(),
            rmr_scope: self.scope,
            va_type: DAT_VA_TYPE_VA,
            ..DAT_RMR_PARAM::zeroed()
        };
        let binds = self.current_binds();
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
