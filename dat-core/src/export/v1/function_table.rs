//! The function table of uDAPL 1.2.

use std::ffi::c_char;

use dat_sys::v1::DAT_PROVIDER;

use super::{ep, evd, ia, mem, post, same};
use crate::provider::Transport;

/// The type of the function table of uDAPL 1.2.
pub(in crate::export) type TableV1 = DAT_PROVIDER;

/// Creates the 1.2 table of a transport, which has 70 words. The 2.0 table
/// ([`table`](crate::export::function_table)) has 81 words.
pub(in crate::export) fn table<T: Transport, const THREAD_SAFE: bool>(
    device_name: *const c_char,
) -> TableV1 {
    DAT_PROVIDER {
        device_name,
        extension: std::ptr::null_mut(),
        ia_open_func: Some(ia::open::<THREAD_SAFE>),
        ia_query_func: Some(ia::ia_query::<T>),
        ia_close_func: Some(same::ia_close::<T>),
        set_consumer_context_func: Some(same::set_consumer_context::<T>),
        get_consumer_context_func: Some(same::get_consumer_context::<T>),
        get_handle_type_func: Some(same::get_handle_type::<T>),
        cno_create_func: Some(same::cno_create::<T>),
        cno_modify_agent_func: Some(same::cno_modify_agent::<T>),
        cno_query_func: Some(evd::cno_query::<T>),
        cno_free_func: Some(same::cno_free::<T>),
        cno_wait_func: Some(same::cno_wait::<T>),
        cr_query_func: Some(same::cr_query::<T>),
        cr_accept_func: Some(same::cr_accept::<T>),
        cr_reject_func: Some(same::cr_reject::<T>),
        cr_handoff_func: Some(same::cr_handoff::<T>),
        evd_create_func: Some(same::evd_create::<T>),
        evd_query_func: Some(same::evd_query::<T, THREAD_SAFE>),
        evd_modify_cno_func: Some(same::evd_modify_cno::<T, THREAD_SAFE>),
        evd_enable_func: Some(same::evd_enable::<T, THREAD_SAFE>),
        evd_disable_func: Some(same::evd_disable::<T, THREAD_SAFE>),
        evd_wait_func: Some(post::evd_wait::<T, THREAD_SAFE>),
        evd_resize_func: Some(same::evd_resize::<T, THREAD_SAFE>),
        evd_post_se_func: Some(evd::evd_post_se::<T, THREAD_SAFE>),
        evd_dequeue_func: Some(post::evd_dequeue::<T, THREAD_SAFE>),
        evd_free_func: Some(same::evd_free::<T, THREAD_SAFE>),
        ep_create_func: Some(ep::ep_create::<T>),
        ep_query_func: Some(ep::ep_query::<T>),
        ep_modify_func: Some(ep::ep_modify::<T, THREAD_SAFE>),
        ep_connect_func: Some(same::ep_connect::<T>),
        ep_dup_connect_func: Some(same::ep_dup_connect::<T>),
        ep_disconnect_func: Some(same::ep_disconnect::<T, THREAD_SAFE>),
        ep_post_send_func: Some(post::ep_post_send::<T, THREAD_SAFE>),
        ep_post_recv_func: Some(post::ep_post_recv::<T, THREAD_SAFE>),
        ep_post_rdma_read_func: Some(post::ep_post_rdma_read::<T, THREAD_SAFE>),
        ep_post_rdma_write_func: Some(post::ep_post_rdma_write::<T, THREAD_SAFE>),
        ep_get_status_func: Some(ep::ep_get_status::<T, THREAD_SAFE>),
        ep_free_func: Some(same::ep_free::<T, THREAD_SAFE>),
        lmr_create_func: Some(mem::lmr_create::<T>),
        lmr_query_func: Some(mem::lmr_query::<T>),
        lmr_free_func: Some(same::lmr_free::<T>),
        rmr_create_func: Some(same::rmr_create::<T>),
        rmr_query_func: Some(mem::rmr_query::<T>),
        rmr_bind_func: Some(mem::rmr_bind::<T, THREAD_SAFE>),
        rmr_free_func: Some(same::rmr_free::<T>),
        psp_create_func: Some(same::psp_create::<T>),
        psp_query_func: Some(same::psp_query::<T>),
        psp_free_func: Some(same::psp_free::<T>),
        rsp_create_func: Some(same::rsp_create::<T>),
        rsp_query_func: Some(same::rsp_query::<T>),
        rsp_free_func: Some(same::rsp_free::<T>),
        pz_create_func: Some(same::pz_create::<T>),
        pz_query_func: Some(same::pz_query::<T>),
        pz_free_func: Some(same::pz_free::<T>),
        psp_create_any_func: Some(same::psp_create_any::<T>),
        ep_reset_func: Some(same::ep_reset::<T, THREAD_SAFE>),
        evd_set_unwaitable_func: Some(same::evd_set_unwaitable::<T, THREAD_SAFE>),
        evd_clear_unwaitable_func: Some(same::evd_clear_unwaitable::<T, THREAD_SAFE>),
        lmr_sync_rdma_read_func: Some(mem::lmr_sync_rdma_read::<T>),
        lmr_sync_rdma_write_func: Some(mem::lmr_sync_rdma_write::<T>),
        ep_create_with_srq_func: Some(ep::ep_create_with_srq::<T>),
        ep_recv_query_func: Some(same::ep_recv_query::<T, THREAD_SAFE>),
        ep_set_watermark_func: Some(same::ep_set_watermark::<T, THREAD_SAFE>),
        srq_create_func: Some(same::srq_create::<T>),
        srq_free_func: Some(same::srq_free::<T, THREAD_SAFE>),
        srq_post_recv_func: Some(post::srq_post_recv::<T, THREAD_SAFE>),
        srq_query_func: Some(mem::srq_query::<T>),
        srq_resize_func: Some(same::srq_resize::<T, THREAD_SAFE>),
        srq_set_lw_func: Some(same::srq_set_lw::<T>),
    }
}
