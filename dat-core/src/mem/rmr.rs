//! Remote memory regions (memory windows): created and freed in a protection zone. Binding one is not built yet, so each
//! is unbound for life.

use dat_sys::*;

use super::Pz;
use crate::error::Result;
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::provider::Transport;

/// A remote memory region.
pub struct Rmr<T: Transport> {
    /// Its protection zone.
    pub pz: Ref<Pz<T>>,
    /// Its adapter.
    pub ia: Ref<Ia<T>>,
}

impl<T: Transport> Object for Rmr<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_RMR;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_RMR;
}

/// dat_rmr_create.
pub fn create<T: Transport>(pz: &Node<Pz<T>>) -> Result<&'static Node<Rmr<T>>> {
    let ia = pz.ia.clone();
    let _control = ia.control();
    ia.add(|_| Ok(Rmr { pz: Ref::new(pz), ia: ia.clone() }))
}

/// dat_rmr_free.
pub fn free<T: Transport>(rmr: &Node<Rmr<T>>) -> Result<()> {
    let ia = rmr.ia.clone();
    let control = ia.control();
    ia.delist(rmr);
    // SAFETY: nothing depends on it.
    drop(unsafe { handle::remove(rmr) });
    drop(control);
    Ok(())
}

impl<T: Transport> Rmr<T> {
    /// dat_rmr_query: of an unbound region there is only where it belongs.
    pub fn query(&self, param: &mut DAT_RMR_PARAM) {
        *param = DAT_RMR_PARAM {
            ia_handle: self.ia.consumer_handle(),
            pz_handle: self.pz.handle(),
            rmr_scope: DAT_RMR_SCOPE_PZ,
            va_type: DAT_VA_TYPE_VA,
            ..DAT_RMR_PARAM::zeroed()
        };
    }
}
