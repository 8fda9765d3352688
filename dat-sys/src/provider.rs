//! The provider function table, and the functions that a provider calls back.

use core::ffi::c_char;

use crate::describe::{records, texts};
use crate::*;

texts! {
    /// The name of the exported function of type [`DAT_PROVIDER_INIT_FUNC`].
    pub const DAT_PROVIDER_INIT_FUNC_STR = c"dat_provider_init";
    /// The name of the exported function of type [`DAT_PROVIDER_FINI_FUNC`].
    pub const DAT_PROVIDER_FINI_FUNC_STR = c"dat_provider_fini";
}

/// A function that registers or unregisters a provider.
pub type RegistryFn =
    unsafe extern "C" fn(*const DAT_PROVIDER, *const DAT_PROVIDER_INFO) -> DAT_RETURN;

/// The functions of the registry that a provider calls. This structure is not part of the C
/// interface: a loadable provider finds the functions by symbol name, a built-in provider receives
/// this structure.
#[derive(Clone, Copy, Debug)]
pub struct RegistryFns {
    /// The function dat_registry_add_provider.
    pub add_provider: RegistryFn,
    /// The function dat_registry_remove_provider.
    pub remove_provider: RegistryFn,
    /// The function dats_get_ia_handle, which converts between the consumer's IA handle and the
    /// provider's.
    pub get_ia_handle: unsafe extern "C" fn(DAT_IA_HANDLE, *mut DAT_IA_HANDLE) -> DAT_RETURN,
}

records! {
    /// The function table behind every handle. The table has 81 words, of which the first 70 are
    /// those of uDAPL 1.2.
    #[derive(Debug)]
    pub struct DAT_PROVIDER {
        /// The name of the IA, NUL-terminated.
        pub device_name: *const c_char,
        /// A pointer for the provider's own use.
        pub extension: DAT_PVOID,
        /// The provider's implementation of dat_ia_open.
        pub ia_open_func: Option<DAT_IA_OPEN_FUNC>,
        /// The provider's implementation of dat_ia_query.
        pub ia_query_func: Option<DAT_IA_QUERY_FUNC>,
        /// The provider's implementation of dat_ia_close.
        pub ia_close_func: Option<DAT_IA_CLOSE_FUNC>,
        /// The provider's implementation of dat_set_consumer_context.
        pub set_consumer_context_func: Option<DAT_SET_CONSUMER_CONTEXT_FUNC>,
        /// The provider's implementation of dat_get_consumer_context.
        pub get_consumer_context_func: Option<DAT_GET_CONSUMER_CONTEXT_FUNC>,
        /// The provider's implementation of dat_get_handle_type.
        pub get_handle_type_func: Option<DAT_GET_HANDLE_TYPE_FUNC>,
        /// The provider's implementation of dat_cno_create.
        pub cno_create_func: Option<DAT_CNO_CREATE_FUNC>,
        /// The provider's implementation of dat_cno_modify_agent.
        pub cno_modify_agent_func: Option<DAT_CNO_MODIFY_AGENT_FUNC>,
        /// The provider's implementation of dat_cno_query.
        pub cno_query_func: Option<DAT_CNO_QUERY_FUNC>,
        /// The provider's implementation of dat_cno_free.
        pub cno_free_func: Option<DAT_CNO_FREE_FUNC>,
        /// The provider's implementation of dat_cno_wait.
        pub cno_wait_func: Option<DAT_CNO_WAIT_FUNC>,
        /// The provider's implementation of dat_cr_query.
        pub cr_query_func: Option<DAT_CR_QUERY_FUNC>,
        /// The provider's implementation of dat_cr_accept.
        pub cr_accept_func: Option<DAT_CR_ACCEPT_FUNC>,
        /// The provider's implementation of dat_cr_reject.
        pub cr_reject_func: Option<DAT_CR_REJECT_FUNC>,
        /// The provider's implementation of dat_cr_handoff.
        pub cr_handoff_func: Option<DAT_CR_HANDOFF_FUNC>,
        /// The provider's implementation of dat_evd_create.
        pub evd_create_func: Option<DAT_EVD_CREATE_FUNC>,
        /// The provider's implementation of dat_evd_query.
        pub evd_query_func: Option<DAT_EVD_QUERY_FUNC>,
        /// The provider's implementation of dat_evd_modify_cno.
        pub evd_modify_cno_func: Option<DAT_EVD_MODIFY_CNO_FUNC>,
        /// The provider's implementation of dat_evd_enable.
        pub evd_enable_func: Option<DAT_EVD_ENABLE_FUNC>,
        /// The provider's implementation of dat_evd_disable.
        pub evd_disable_func: Option<DAT_EVD_DISABLE_FUNC>,
        /// The provider's implementation of dat_evd_wait.
        pub evd_wait_func: Option<DAT_EVD_WAIT_FUNC>,
        /// The provider's implementation of dat_evd_resize.
        pub evd_resize_func: Option<DAT_EVD_RESIZE_FUNC>,
        /// The provider's implementation of dat_evd_post_se.
        pub evd_post_se_func: Option<DAT_EVD_POST_SE_FUNC>,
        /// The provider's implementation of dat_evd_dequeue.
        pub evd_dequeue_func: Option<DAT_EVD_DEQUEUE_FUNC>,
        /// The provider's implementation of dat_evd_free.
        pub evd_free_func: Option<DAT_EVD_FREE_FUNC>,
        /// The provider's implementation of dat_ep_create.
        pub ep_create_func: Option<DAT_EP_CREATE_FUNC>,
        /// The provider's implementation of dat_ep_query.
        pub ep_query_func: Option<DAT_EP_QUERY_FUNC>,
        /// The provider's implementation of dat_ep_modify.
        pub ep_modify_func: Option<DAT_EP_MODIFY_FUNC>,
        /// The provider's implementation of dat_ep_connect.
        pub ep_connect_func: Option<DAT_EP_CONNECT_FUNC>,
        /// The provider's implementation of dat_ep_dup_connect.
        pub ep_dup_connect_func: Option<DAT_EP_DUP_CONNECT_FUNC>,
        /// The provider's implementation of dat_ep_disconnect.
        pub ep_disconnect_func: Option<DAT_EP_DISCONNECT_FUNC>,
        /// The provider's implementation of dat_ep_post_send.
        pub ep_post_send_func: Option<DAT_EP_POST_SEND_FUNC>,
        /// The provider's implementation of dat_ep_post_recv.
        pub ep_post_recv_func: Option<DAT_EP_POST_RECV_FUNC>,
        /// The provider's implementation of dat_ep_post_rdma_read.
        pub ep_post_rdma_read_func: Option<DAT_EP_POST_RDMA_READ_FUNC>,
        /// The provider's implementation of dat_ep_post_rdma_write.
        pub ep_post_rdma_write_func: Option<DAT_EP_POST_RDMA_WRITE_FUNC>,
        /// The provider's implementation of dat_ep_get_status.
        pub ep_get_status_func: Option<DAT_EP_GET_STATUS_FUNC>,
        /// The provider's implementation of dat_ep_free.
        pub ep_free_func: Option<DAT_EP_FREE_FUNC>,
        /// The provider's implementation of dat_lmr_create.
        pub lmr_create_func: Option<DAT_LMR_CREATE_FUNC>,
        /// The provider's implementation of dat_lmr_query.
        pub lmr_query_func: Option<DAT_LMR_QUERY_FUNC>,
        /// The provider's implementation of dat_lmr_free.
        pub lmr_free_func: Option<DAT_LMR_FREE_FUNC>,
        /// The provider's implementation of dat_rmr_create.
        pub rmr_create_func: Option<DAT_RMR_CREATE_FUNC>,
        /// The provider's implementation of dat_rmr_query.
        pub rmr_query_func: Option<DAT_RMR_QUERY_FUNC>,
        /// The provider's implementation of dat_rmr_bind.
        pub rmr_bind_func: Option<DAT_RMR_BIND_FUNC>,
        /// The provider's implementation of dat_rmr_free.
        pub rmr_free_func: Option<DAT_RMR_FREE_FUNC>,
        /// The provider's implementation of dat_psp_create.
        pub psp_create_func: Option<DAT_PSP_CREATE_FUNC>,
        /// The provider's implementation of dat_psp_query.
        pub psp_query_func: Option<DAT_PSP_QUERY_FUNC>,
        /// The provider's implementation of dat_psp_free.
        pub psp_free_func: Option<DAT_PSP_FREE_FUNC>,
        /// The provider's implementation of dat_rsp_create.
        pub rsp_create_func: Option<DAT_RSP_CREATE_FUNC>,
        /// The provider's implementation of dat_rsp_query.
        pub rsp_query_func: Option<DAT_RSP_QUERY_FUNC>,
        /// The provider's implementation of dat_rsp_free.
        pub rsp_free_func: Option<DAT_RSP_FREE_FUNC>,
        /// The provider's implementation of dat_pz_create.
        pub pz_create_func: Option<DAT_PZ_CREATE_FUNC>,
        /// The provider's implementation of dat_pz_query.
        pub pz_query_func: Option<DAT_PZ_QUERY_FUNC>,
        /// The provider's implementation of dat_pz_free.
        pub pz_free_func: Option<DAT_PZ_FREE_FUNC>,
        /// The provider's implementation of dat_psp_create_any.
        pub psp_create_any_func: Option<DAT_PSP_CREATE_ANY_FUNC>,
        /// The provider's implementation of dat_ep_reset.
        pub ep_reset_func: Option<DAT_EP_RESET_FUNC>,
        /// The provider's implementation of dat_evd_set_unwaitable.
        pub evd_set_unwaitable_func: Option<DAT_EVD_SET_UNWAITABLE_FUNC>,
        /// The provider's implementation of dat_evd_clear_unwaitable.
        pub evd_clear_unwaitable_func: Option<DAT_EVD_CLEAR_UNWAITABLE_FUNC>,
        /// The provider's implementation of dat_lmr_sync_rdma_read.
        pub lmr_sync_rdma_read_func: Option<DAT_LMR_SYNC_RDMA_READ_FUNC>,
        /// The provider's implementation of dat_lmr_sync_rdma_write.
        pub lmr_sync_rdma_write_func: Option<DAT_LMR_SYNC_RDMA_WRITE_FUNC>,
        /// The provider's implementation of dat_ep_create_with_srq.
        pub ep_create_with_srq_func: Option<DAT_EP_CREATE_WITH_SRQ_FUNC>,
        /// The provider's implementation of dat_ep_recv_query.
        pub ep_recv_query_func: Option<DAT_EP_RECV_QUERY_FUNC>,
        /// The provider's implementation of dat_ep_set_watermark.
        pub ep_set_watermark_func: Option<DAT_EP_SET_WATERMARK_FUNC>,
        /// The provider's implementation of dat_srq_create.
        pub srq_create_func: Option<DAT_SRQ_CREATE_FUNC>,
        /// The provider's implementation of dat_srq_free.
        pub srq_free_func: Option<DAT_SRQ_FREE_FUNC>,
        /// The provider's implementation of dat_srq_post_recv.
        pub srq_post_recv_func: Option<DAT_SRQ_POST_RECV_FUNC>,
        /// The provider's implementation of dat_srq_query.
        pub srq_query_func: Option<DAT_SRQ_QUERY_FUNC>,
        /// The provider's implementation of dat_srq_resize.
        pub srq_resize_func: Option<DAT_SRQ_RESIZE_FUNC>,
        /// The provider's implementation of dat_srq_set_lw.
        pub srq_set_lw_func: Option<DAT_SRQ_SET_LW_FUNC>,
        /// The provider's implementation of dat_csp_create.
        pub csp_create_func: Option<DAT_CSP_CREATE_FUNC>,
        /// The provider's implementation of dat_csp_query.
        pub csp_query_func: Option<DAT_CSP_QUERY_FUNC>,
        /// The provider's implementation of dat_csp_free.
        pub csp_free_func: Option<DAT_CSP_FREE_FUNC>,
        /// The provider's implementation of dat_ep_common_connect.
        pub ep_common_connect_func: Option<DAT_EP_COMMON_CONNECT_FUNC>,
        /// The provider's implementation of dat_rmr_create_for_ep.
        pub rmr_create_for_ep_func: Option<DAT_RMR_CREATE_FOR_EP_FUNC>,
        /// The provider's implementation of dat_ep_post_send_with_invalidate.
        pub ep_post_send_with_invalidate_func: Option<DAT_EP_POST_SEND_WITH_INVALIDATE_FUNC>,
        /// The provider's implementation of dat_ep_post_rdma_read_to_rmr.
        pub ep_post_rdma_read_to_rmr_func: Option<DAT_EP_POST_RDMA_READ_TO_RMR_FUNC>,
        /// The provider's implementation of dat_cno_fd_create.
        pub cno_fd_create_func: Option<DAT_CNO_FD_CREATE_FUNC>,
        /// The provider's implementation of dat_cno_trigger.
        pub cno_trigger_func: Option<DAT_CNO_TRIGGER_FUNC>,
        /// The provider's part of dat_registry_providers_related.
        pub ia_ha_related_func: Option<DAT_IA_HA_RELATED_FUNC>,
        /// The provider's implementation of dat_extension_op.
        pub handle_extendedop_func: Option<DAT_HANDLE_EXTENDEDOP_FUNC>,
    }
}

// SAFETY: `DAT_PROVIDER` is plain data. Code that follows its pointers or calls its functions is
// unsafe and must justify that itself. uDAPL providers share one table between all threads.
unsafe impl Send for DAT_PROVIDER {}
// SAFETY: `DAT_PROVIDER` is plain data. Code that follows its pointers or calls its functions is
// unsafe and must justify that itself. uDAPL providers share one table between all threads.
unsafe impl Sync for DAT_PROVIDER {}
