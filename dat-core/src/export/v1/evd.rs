//! The functions of the 1.2 table for EVDs and CNOs, except for dequeuing events, which is in
//! `post`.

use std::ptr::null;

use dat_sys::*;

use super::convert::{query, v1_functions};
use super::{mask, record};
use crate::export::evd;
use crate::provider::Transport;

v1_functions! {
    /// dat_evd_post_se.
    fn evd_post_se<T, THREAD_SAFE>(evd: DAT_EVD_HANDLE, event: *const v1::DAT_EVENT) {
        let Some(event) = event.as_ref() else {
            return evd::evd_post_se::<T, THREAD_SAFE>(evd, null());
        };
        let software_event_data = event.event_data.software_event_data;
        let event = DAT_EVENT {
            event_number: event.event_number,
            evd_handle: event.evd_handle,
            event_data: DAT_EVENT_DATA { software_event_data },
            ..DAT_EVENT::zeroed()
        };
        evd::evd_post_se::<T, THREAD_SAFE>(evd, &event)
    }

    /// dat_cno_query.
    fn cno_query<T>(
        cno: DAT_CNO_HANDLE,
        mask: v1::DAT_CNO_PARAM_MASK,
        param: *mut v1::DAT_CNO_PARAM,
    ) {
        let ask = |param: *mut _| evd::cno_query::<T>(cno, mask::cno(mask), param);
        query(mask != 0, param, DAT_CNO_PARAM::zeroed(), ask, record::cno_param)
    }
}
