//! The function table of uDAPL 1.2.

use std::ffi::c_char;
use std::ptr::null_mut;

use dat_sys::v1::DAT_PROVIDER;
use dat_sys::{DAT_CR_HANDLE, DAT_RETURN};

use super::convert::v1_functions;
use super::{ep, evd, ia, mem, post, same};
use crate::export::conn;
use crate::provider::Transport;

/// The type of the function table of uDAPL 1.2.
pub(in crate::export) type TableV1 = DAT_PROVIDER;

/// Creates the 1.2 table of a transport, which has 70 words. The 2.0 table
/// ([`table`](crate::export::function_table)) has 81 words.
pub(in crate::export) fn table<T: Transport, const THREAD_SAFE: bool>(
    device_name: *const c_char,
) -> TableV1 {
    DAT_PROVIDER {
        ia_open_func: Some(ia::open::<THREAD_SAFE>),
        ia_query_func: Some(ia::ia_query::<T>),
        ia_close_func: Some(ia::ia_close::<T>),
        cr_reject_func: Some(cr_reject::<T>),
        cno_query_func: Some(evd::cno_query::<T>),
        evd_wait_func: Some(post::evd_wait::<T, THREAD_SAFE>),
        evd_post_se_func: Some(evd::evd_post_se::<T, THREAD_SAFE>),
        evd_dequeue_func: Some(post::evd_dequeue::<T, THREAD_SAFE>),
        ep_create_func: Some(ep::ep_create::<T>),
        ep_query_func: Some(ep::ep_query::<T>),
        ep_modify_func: Some(ep::ep_modify::<T, THREAD_SAFE>),
        ep_post_send_func: Some(post::ep_post_send::<T, THREAD_SAFE>),
        ep_post_recv_func: Some(post::ep_post_recv::<T, THREAD_SAFE>),
        ep_post_rdma_read_func: Some(post::ep_post_rdma_read::<T, THREAD_SAFE>),
        ep_post_rdma_write_func: Some(post::ep_post_rdma_write::<T, THREAD_SAFE>),
        ep_get_status_func: Some(ep::ep_get_status::<T, THREAD_SAFE>),
        lmr_create_func: Some(mem::lmr_create::<T>),
        lmr_query_func: Some(mem::lmr_query::<T>),
        rmr_query_func: Some(mem::rmr_query::<T>),
        rmr_bind_func: Some(mem::rmr_bind::<T, THREAD_SAFE>),
        lmr_sync_rdma_read_func: Some(mem::lmr_sync_rdma_read::<T>),
        lmr_sync_rdma_write_func: Some(mem::lmr_sync_rdma_write::<T>),
        ep_create_with_srq_func: Some(ep::ep_create_with_srq::<T>),
        srq_post_recv_func: Some(post::srq_post_recv::<T, THREAD_SAFE>),
        srq_query_func: Some(mem::srq_query::<T>),
        ..same::table::<T, THREAD_SAFE>(device_name)
    }
}

v1_functions! {
    /// dat_cr_reject. In uDAPL 1.2 the consumer passes no private data with a rejection.
    fn cr_reject<T>(cr: DAT_CR_HANDLE) {
        conn::cr_reject::<T>(cr, 0, null_mut())
    }
}
