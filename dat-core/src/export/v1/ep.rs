//! The functions of the 1.2 table for endpoints, except for posts.

use std::ptr::{from_ref, null};

use dat_sys::*;

use super::convert::{query, refuse, v1_functions};
use super::record::{TooLarge, ep_attr_to_2_0, ep_param_to_2_0};
use super::{mask, record};
use crate::ep::Ep;
use crate::error::Error;
use crate::export::ep;
use crate::ia::Ia;
use crate::provider::Transport;

v1_functions! {
    /// dat_ep_create.
    fn ep_create<T>(
        ia: DAT_IA_HANDLE,
        pz: DAT_PZ_HANDLE,
        recv_evd: DAT_EVD_HANDLE,
        request_evd: DAT_EVD_HANDLE,
        connect_evd: DAT_EVD_HANDLE,
        attr: *const v1::DAT_EP_ATTR,
        ep: *mut DAT_EP_HANDLE,
    ) {
        let Ok(attr) = attr.as_ref().map(ep_attr_to_2_0).transpose() else {
            return refuse::<Ia<T>>(ia, Error::arg(6));
        };
        let attr = attr.as_ref().map_or(null(), from_ref);
        ep::ep_create::<T>(ia, pz, recv_evd, request_evd, connect_evd, attr, ep)
    }

    /// dat_ep_create_with_srq.
    fn ep_create_with_srq<T>(
        ia: DAT_IA_HANDLE,
        pz: DAT_PZ_HANDLE,
        recv_evd: DAT_EVD_HANDLE,
        request_evd: DAT_EVD_HANDLE,
        connect_evd: DAT_EVD_HANDLE,
        srq: DAT_SRQ_HANDLE,
        attr: *const v1::DAT_EP_ATTR,
        ep: *mut DAT_EP_HANDLE,
    ) {
        let Ok(attr) = attr.as_ref().map(ep_attr_to_2_0).transpose() else {
            return refuse::<Ia<T>>(ia, Error::arg(7));
        };
        let attr = attr.as_ref().map_or(null(), from_ref);
        ep::ep_create_with_srq::<T>(ia, pz, recv_evd, request_evd, connect_evd, srq, attr, ep)
    }

    /// dat_ep_query.
    fn ep_query<T>(ep: DAT_EP_HANDLE, mask: v1::DAT_EP_PARAM_MASK, param: *mut v1::DAT_EP_PARAM) {
        let ask = |param: *mut _| ep::ep_query::<T>(ep, mask::ep(mask), param);
        query(mask != 0, param, DAT_EP_PARAM::zeroed(), ask, record::ep_param)
    }

    /// dat_ep_modify.
    fn ep_modify<T, THREAD_SAFE>(
        ep: DAT_EP_HANDLE,
        mask: v1::DAT_EP_PARAM_MASK,
        param: *const v1::DAT_EP_PARAM,
    ) {
        let mask = mask::ep(mask);
        match param.as_ref().map(|param| ep_param_to_2_0(param, mask)) {
            Some(Ok(param)) => ep::ep_modify::<T, THREAD_SAFE>(ep, mask, &param),
            Some(Err(TooLarge)) => refuse::<Ep<T>>(ep, Error::arg(3)),
            None => ep::ep_modify::<T, THREAD_SAFE>(ep, mask, null()),
        }
    }

    /// dat_ep_get_status.
    fn ep_get_status<T, THREAD_SAFE>(
        ep: DAT_EP_HANDLE,
        state: *mut DAT_EP_STATE,
        recv_idle: *mut DAT_BOOLEAN,
        request_idle: *mut DAT_BOOLEAN,
    ) {
        let status = ep::ep_get_status::<T, THREAD_SAFE>(ep, state, recv_idle, request_idle);
        if status == DAT_SUCCESS && let Some(state) = state.as_mut() {
            *state = record::ep_state(*state);
        }
        status
    }
}
