//! Protection zones: an endpoint reaches the memory of its own zone only.

use dat_sys::*;

use crate::error::{Error, Result};
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::provider::Transport;

/// A protection zone.
pub struct Pz<T: Transport> {
    /// What the transport calls it.
    pub pd: T::Pd,
    /// Its adapter.
    pub ia: Ref<Ia<T>>,
}

impl<T: Transport> Object for Pz<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_PZ;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_PZ;
}

/// dat_pz_create.
pub fn create<T: Transport>(ia: &Node<Ia<T>>) -> Result<&'static Node<Pz<T>>> {
    let _control = ia.control();
    ia.add(|_| Ok(Pz { pd: ia.transport.pd()?, ia: Ref::new(ia) }))
}

/// dat_pz_free: refused while an endpoint, a region or a shared receive queue is in it.
///
/// # Safety
/// Nobody uses a reference to it any more, if this succeeds.
pub unsafe fn free<T: Transport>(pz: &Node<Pz<T>>) -> Result<()> {
    let (ia, handle) = (pz.ia.clone(), pz.handle());
    let control = ia.control_to_free::<Pz<T>>(handle)?;
    if pz.in_use() {
        return Err(Error::state(DAT_INVALID_STATE_PZ_IN_USE));
    }
    ia.delist(pz);
    // SAFETY: nobody depends on it.
    let gone = unsafe { handle::remove(pz) };
    drop(gone);
    drop(control);
    Ok(())
}

impl<T: Transport> Pz<T> {
    /// dat_pz_query.
    pub fn query(&self, param: &mut DAT_PZ_PARAM) {
        *param = DAT_PZ_PARAM { ia_handle: self.ia.consumer_handle() };
    }
}
