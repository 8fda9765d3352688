//! Local memory regions: memory the adapter may touch.

use dat_sys::*;

use super::Pz;
use crate::handle::{Object, Ref};
use crate::ia::Ia;
use crate::provider::Transport;

/// A local memory region.
pub struct Lmr<T: Transport> {
    /// What the transport calls it.
    pub mr: T::Mr,
    /// Its protection zone.
    pub pz: Ref<Pz<T>>,
    /// Its adapter.
    pub ia: Ref<Ia<T>>,
}

impl<T: Transport> Object for Lmr<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_LMR;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_LMR;
}
