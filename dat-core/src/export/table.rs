//! The function table.

use std::ffi::c_char;

use dat_sys::*;

use super::{conn, ep, evd, extension, ia, mem, post};
use crate::provider::Provider;

/// All 81 words, for a provider and an IA name that outlives the table. `SAFE`: calls on one handle may come from
/// several threads at a time.
pub(super) fn table<P: Provider, const SAFE: bool>(device_name: *const c_char) -> DAT_PROVIDER {
    build::<P, P::Transport, SAFE>(device_name)
}

fn build<P: Provider<Transport = T>, T: crate::provider::Transport, const SAFE: bool>(
    device_name: *const c_char,
) -> DAT_PROVIDER {
    DAT_PROVIDER {
        device_name,
        extension: std::ptr::null_mut(),
        ia_open_func: Some(ia::open::<P, SAFE>),
        ia_query_func: Some(ia::ia_query::<T>),
        ia_close_func: Some(ia::ia_close::<T>),
        set_consumer_context_func: Some(ia::set_consumer_context),
        get_consumer_context_func: Some(ia::get_consumer_context),
        get_handle_type_func: Some(ia::get_handle_type),
        cno_create_func: Some(evd::cno_create::<T>),
        cno_modify_agent_func: Some(evd::cno_modify_agent::<T>),
        cno_query_func: Some(evd::cno_query::<T>),
        cno_free_func: Some(evd::cno_free::<T>),
        cno_wait_func: Some(evd::cno_wait::<T>),
        cr_query_func: Some(conn::cr_query::<T>),
        cr_accept_func: Some(conn::cr_accept::<T>),
        cr_reject_func: Some(conn::cr_reject::<T>),
        cr_handoff_func: Some(conn::cr_handoff::<T>),
        evd_create_func: Some(evd::evd_create::<T>),
        evd_query_func: Some(evd::evd_query::<T, SAFE>),
        evd_modify_cno_func: Some(evd::evd_modify_cno::<T, SAFE>),
        evd_enable_func: Some(evd::evd_enable::<T, SAFE>),
        evd_disable_func: Some(evd::evd_disable::<T, SAFE>),
        evd_wait_func: Some(evd::evd_wait::<T, SAFE>),
        evd_resize_func: Some(evd::evd_resize::<T, SAFE>),
        evd_post_se_func: Some(evd::evd_post_se::<T, SAFE>),
        evd_dequeue_func: Some(post::evd_dequeue::<T, SAFE>),
        evd_free_func: Some(evd::evd_free::<T, SAFE>),
        ep_create_func: Some(ep::ep_create::<T>),
        ep_query_func: Some(ep::ep_query::<T>),
        ep_modify_func: Some(ep::ep_modify::<T, SAFE>),
        ep_connect_func: Some(ep::ep_connect::<T>),
        ep_dup_connect_func: Some(ep::ep_dup_connect::<T>),
        ep_disconnect_func: Some(ep::ep_disconnect::<T, SAFE>),
        ep_post_send_func: Some(post::ep_post_send::<T, SAFE>),
        ep_post_recv_func: Some(post::ep_post_recv::<T, SAFE>),
        ep_post_rdma_read_func: Some(post::ep_post_rdma_read::<T, SAFE>),
        ep_post_rdma_write_func: Some(post::ep_post_rdma_write::<T, SAFE>),
        ep_get_status_func: Some(ep::ep_get_status::<T, SAFE>),
        ep_free_func: Some(ep::ep_free::<T, SAFE>),
        lmr_create_func: Some(mem::lmr_create::<T>),
        lmr_query_func: Some(mem::lmr_query::<T>),
        lmr_free_func: Some(mem::lmr_free::<T>),
        rmr_create_func: Some(mem::rmr_create::<T>),
        rmr_query_func: Some(mem::rmr_query::<T>),
        rmr_bind_func: Some(mem::rmr_bind::<T, SAFE>),
        rmr_free_func: Some(mem::rmr_free::<T>),
        psp_create_func: Some(conn::psp_create::<T>),
        psp_query_func: Some(conn::psp_query::<T>),
        psp_free_func: Some(conn::psp_free::<T>),
        rsp_create_func: Some(conn::rsp_create::<T>),
        rsp_query_func: Some(conn::rsp_query::<T>),
        rsp_free_func: Some(conn::rsp_free::<T>),
        pz_create_func: Some(mem::pz_create::<T>),
        pz_query_func: Some(mem::pz_query::<T>),
        pz_free_func: Some(mem::pz_free::<T>),
        psp_create_any_func: Some(conn::psp_create_any::<T>),
        ep_reset_func: Some(ep::ep_reset::<T, SAFE>),
        evd_set_unwaitable_func: Some(evd::evd_set_unwaitable::<T, SAFE>),
        evd_clear_unwaitable_func: Some(evd::evd_clear_unwaitable::<T, SAFE>),
        lmr_sync_rdma_read_func: Some(mem::lmr_sync_rdma_read::<T>),
        lmr_sync_rdma_write_func: Some(mem::lmr_sync_rdma_write::<T>),
        ep_create_with_srq_func: Some(ep::ep_create_with_srq::<T>),
        ep_recv_query_func: Some(ep::ep_recv_query::<T, SAFE>),
        ep_set_watermark_func: Some(ep::ep_set_watermark::<T, SAFE>),
        srq_create_func: Some(mem::srq_create::<T>),
        srq_free_func: Some(mem::srq_free::<T, SAFE>),
        srq_post_recv_func: Some(post::srq_post_recv::<T, SAFE>),
        srq_query_func: Some(mem::srq_query::<T>),
        srq_resize_func: Some(mem::srq_resize::<T, SAFE>),
        srq_set_lw_func: Some(mem::srq_set_lw::<T>),
        csp_create_func: Some(conn::csp_create::<T>),
        csp_query_func: Some(conn::csp_query::<T>),
        csp_free_func: Some(conn::csp_free::<T>),
        ep_common_connect_func: Some(ep::ep_common_connect::<T>),
        rmr_create_for_ep_func: Some(mem::rmr_create_for_ep::<T>),
        ep_post_send_with_invalidate_func: Some(post::ep_post_send_with_invalidate::<T, SAFE>),
        ep_post_rdma_read_to_rmr_func: Some(post::ep_post_rdma_read_to_rmr::<T, SAFE>),
        cno_fd_create_func: Some(evd::cno_fd_create::<T>),
        cno_trigger_func: Some(evd::cno_trigger::<T>),
        ia_ha_related_func: Some(ia::ia_ha_related::<T>),
        handle_extendedop_func: Some(extension::handle_extendedop::<P, SAFE>),
    }
}
