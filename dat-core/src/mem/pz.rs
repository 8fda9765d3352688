//! Protection zones (PZs). An endpoint can only access memory of its own zone.

use dat_sys::*;

use crate::error::{Error, Result};
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::provider::Transport;

/// A protection zone.
pub struct Pz<T: Transport> {
    /// The transport's object for the zone.
    pub pd: T::Pd,
    /// The adapter of the zone.
    pub ia: Ref<Ia<T>>,
}

impl<T: Transport> Object for Pz<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_PZ;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_PZ;
}

/// Implements dat_pz_create.
pub fn create<T: Transport>(ia: &Node<Ia<T>>) -> Result<&'static Node<Pz<T>>> {
    let _control = ia.control();
    ia.add(|_| Ok(Pz { pd: ia.transport.pd()?, ia: Ref::new(ia) }))
}

/// Implements dat_pz_free. The call is refused while an endpoint, an LMR, an RMR or a shared
/// receive queue belongs to the zone.
///
/// # Safety
/// If this call succeeds, nobody uses a reference to the zone after the call.
pub unsafe fn free<T: Transport>(pz: &Node<Pz<T>>) -> Result<()> {
    let (ia, handle) = (pz.ia.clone(), pz.handle());
    let control = ia.control_to_free::<Pz<T>>(handle)?;
    if pz.in_use() {
        return Err(Error::state(DAT_INVALID_STATE_PZ_IN_USE));
    }
    ia.unregister_object(pz);
    // SAFETY: no object depends on the zone.
    let removed = unsafe { handle::remove(pz) };
    drop(removed);
    drop(control);
    Ok(())
}

impl<T: Transport> Pz<T> {
    /// Implements dat_pz_query.
    pub fn query(&self, param: &mut DAT_PZ_PARAM) {
        *param = DAT_PZ_PARAM { ia_handle: self.ia.consumer_handle() };
    }
}
