//! Adapters.

use dat_sys::*;

use super::convert::{query, status, v1_functions};
use super::{mask, record};
use crate::export::ia;
use crate::export::register::Version;
use crate::provider::Transport;

/// dat_ia_openv, which the registry calls.
pub(super) unsafe extern "C" fn open<const THREAD_SAFE: bool>(
    name: DAT_NAME_PTR,
    async_evd_min_qlen: DAT_COUNT,
    async_evd: *mut DAT_EVD_HANDLE,
    ia_handle: *mut DAT_IA_HANDLE,
) -> DAT_RETURN {
    // SAFETY: C code satisfies the standard's prototype.
    status(unsafe {
        ia::open_as(
            Version::V1_2,
            THREAD_SAFE,
            ia::Handles::OfTransport,
            name,
            async_evd_min_qlen,
            async_evd,
            ia_handle,
        )
    })
}

v1_functions! {
    /// dat_ia_close.
    fn ia_close<T>(ia: DAT_IA_HANDLE, flags: DAT_CLOSE_FLAGS) {
        ia::ia_close::<T>(ia, flags)
    }

    /// dat_ia_query. One call queries both the adapter and the provider.
    fn ia_query<T>(
        ia: DAT_IA_HANDLE,
        async_evd: *mut DAT_EVD_HANDLE,
        ia_mask: v1::DAT_IA_ATTR_MASK,
        ia_attr: *mut v1::DAT_IA_ATTR,
        provider_mask: v1::DAT_PROVIDER_ATTR_MASK,
        provider_attr: *mut v1::DAT_PROVIDER_ATTR,
    ) {
        let (new_ia_mask, new_provider_mask) = (mask::ia(ia_mask), mask::provider(provider_mask));
        query(ia_mask != 0, ia_attr, DAT_IA_ATTR::zeroed(), |ia_attr| {
            query(provider_mask != 0, provider_attr, DAT_PROVIDER_ATTR::zeroed(), |provider_attr| {
                ia::ia_query::<T>(
                    ia, async_evd, new_ia_mask, ia_attr, new_provider_mask, provider_attr
                )
            }, record::provider_attr)
        }, record::ia_attr)
    }
}
