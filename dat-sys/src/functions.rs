//! The functions of a provider: one list, from which all other declarations of them are made.

use core::ffi::c_char;

use crate::describe::records;
use crate::*;

/// Invokes a macro with the functions of the table of uDAPL 1.2 or 2.0. `provider_functions!(2.0 =>
/// then, first)` expands to `then! { first list }`.
///
/// The list begins with the functions behind `library`. They are not in the table: a C library
/// implements them in both versions, with the method that follows a function.
///
/// The other functions have the order of [`DAT_PROVIDER`], so the words `registry` and `forwarded`
/// alternate in the list. The registry implements the functions behind `registry` for the consumer.
/// It forwards the functions behind `forwarded` to the provider of their first argument. The word
/// in front of a first argument is the type of the object:
///
/// - `IA`: an IA, whose handle is the number that the consumer has;
/// - `ANY`: an object of any type;
/// - otherwise an object of the type to which the subtype of DAT_INVALID_HANDLE with this name
///   belongs.
///
/// The member of the table and the name of its type follow a function. The word `changed` follows
/// them if arguments, or what they lead to, differ between 1.2 and 2.0. One row serves both
/// versions, because the types in the list are those that are in scope where the macro is invoked.
///
/// The signatures match those of C exactly. In C, `const DAT_PVOID` is a constant pointer to
/// non-constant data. Therefore the pointers to private data are not `*const` here, although no
/// provider writes to private data.
#[macro_export]
macro_rules! provider_functions {
    (1.2 => $($then:tt)*) => { $crate::provider_functions! { [] [] [] [] []; $($then)* } };
    (2.0 => $($then:tt)*) => {
        $crate::provider_functions! {
            [, private_data_size: DAT_COUNT, private_data: DAT_PVOID]
            [va_type: DAT_VA_TYPE,]
            [lmr_handle: DAT_LMR_HANDLE,]
            [
                "C" dat_csp_create(IA ia_handle: DAT_IA_HANDLE, communicator: *mut DAT_COMM,
                    address: DAT_IA_ADDRESS_PTR, evd_handle: DAT_EVD_HANDLE,
                    csp_handle: *mut DAT_CSP_HANDLE) => csp_create_func: DAT_CSP_CREATE_FUNC;
                "C" dat_csp_query(CSP csp_handle: DAT_CSP_HANDLE,
                    csp_param_mask: DAT_CSP_PARAM_MASK, csp_param: *mut DAT_CSP_PARAM)
                    => csp_query_func: DAT_CSP_QUERY_FUNC;
                "C" dat_csp_free(CSP csp_handle: DAT_CSP_HANDLE)
                    => csp_free_func: DAT_CSP_FREE_FUNC;
                "C" dat_ep_common_connect(EP ep_handle: DAT_EP_HANDLE,
                    remote_ia_address: DAT_IA_ADDRESS_PTR, timeout: DAT_TIMEOUT,
                    private_data_size: DAT_COUNT, private_data: DAT_PVOID)
                    => ep_common_connect_func: DAT_EP_COMMON_CONNECT_FUNC;
                "C" dat_rmr_create_for_ep(PZ pz_handle: DAT_PZ_HANDLE,
                    rmr_handle: *mut DAT_RMR_HANDLE)
                    => rmr_create_for_ep_func: DAT_RMR_CREATE_FOR_EP_FUNC;
                "C" dat_ep_post_send_with_invalidate(EP ep_handle: DAT_EP_HANDLE,
                    num_segments: DAT_COUNT, local_iov: *mut DAT_LMR_TRIPLET,
                    user_cookie: DAT_DTO_COOKIE, completion_flags: DAT_COMPLETION_FLAGS,
                    invalidate_flag: DAT_BOOLEAN, rmr_context: DAT_RMR_CONTEXT)
                    => ep_post_send_with_invalidate_func: DAT_EP_POST_SEND_WITH_INVALIDATE_FUNC;
                "C" dat_ep_post_rdma_read_to_rmr(EP ep_handle: DAT_EP_HANDLE,
                    local_iov: *const DAT_RMR_TRIPLET, user_cookie: DAT_DTO_COOKIE,
                    remote_iov: *const DAT_RMR_TRIPLET, completion_flags: DAT_COMPLETION_FLAGS)
                    => ep_post_rdma_read_to_rmr_func: DAT_EP_POST_RDMA_READ_TO_RMR_FUNC;
                "C" dat_cno_fd_create(IA ia_handle: DAT_IA_HANDLE, file_descriptor: *mut DAT_FD,
                    cno_handle: *mut DAT_CNO_HANDLE) => cno_fd_create_func: DAT_CNO_FD_CREATE_FUNC;
                "C" dat_cno_trigger(CNO cno_handle: DAT_CNO_HANDLE, evd_handle: *mut DAT_EVD_HANDLE)
                    => cno_trigger_func: DAT_CNO_TRIGGER_FUNC;
            ]
            [
                /// The function says whether `provider` shares a point of failure with this IA.
                "C" dat_registry_providers_related(ia_handle: DAT_IA_HANDLE, provider: DAT_NAME_PTR,
                    answer: *mut DAT_BOOLEAN) => ia_ha_related_func: DAT_IA_HA_RELATED_FUNC;
                /// The variable arguments are passed as a list.
                "C" dat_extension_op(handle: DAT_HANDLE, extended_op: DAT_EXTENDED_OP,
                    args: DAT_VA_LIST) => handle_extendedop_func: DAT_HANDLE_EXTENDEDOP_FUNC;
            ];
            $($then)*
        }
    };
    (
        [$($private_data:tt)*] [$($va_type:tt)*] [$($lmr_handle:tt)*]
        [$($forwarded:tt)*] [$($registry:tt)*];
        $($then:ident)::+, $($first:tt)*
    ) => {
        $($then)::+! {
            $($first)*
            library {
                dat_ia_openv(name: DAT_NAME_PTR, async_evd_qlen: DAT_COUNT,
                    async_evd: *mut DAT_EVD_HANDLE, ia: *mut DAT_IA_HANDLE, major: u32, minor: u32,
                    threadsafe: DAT_BOOLEAN) => open;
                dat_ia_close(ia: DAT_IA_HANDLE, flags: DAT_CLOSE_FLAGS) => close;
                dat_registry_list_providers(max: DAT_COUNT, count: *mut DAT_COUNT,
                    infos: *mut *mut DAT_PROVIDER_INFO) => list_providers;
                dat_registry_add_provider(table: *const DAT_PROVIDER,
                    info: *const DAT_PROVIDER_INFO) => add_provider;
                dat_registry_remove_provider(table: *const DAT_PROVIDER,
                    info: *const DAT_PROVIDER_INFO) => remove_provider;
                dat_strerror(status: DAT_RETURN, type_name: *mut *const core::ffi::c_char,
                    subtype_name: *mut *const core::ffi::c_char) => strerror;
            }
            registry {
                /// The version and the thread safety are not among the arguments, because the
                /// registry evaluates them.
                "C" dat_ia_open(provider: DAT_NAME_PTR, asynch_evd_min_qlen: DAT_COUNT,
                    asynch_evd_handle: *mut DAT_EVD_HANDLE, ia_handle: *mut DAT_IA_HANDLE)
                    => ia_open_func: DAT_IA_OPEN_FUNC;
            }
            forwarded {
                "C" dat_ia_query(IA ia_handle: DAT_IA_HANDLE, async_evd_handle: *mut DAT_EVD_HANDLE,
                    ia_attr_mask: DAT_IA_ATTR_MASK, ia_attr: *mut DAT_IA_ATTR,
                    provider_attr_mask: DAT_PROVIDER_ATTR_MASK,
                    provider_attr: *mut DAT_PROVIDER_ATTR)
                    => ia_query_func: DAT_IA_QUERY_FUNC, changed;
            }
            registry {
                "C" dat_ia_close(ia_handle: DAT_IA_HANDLE, close_flags: DAT_CLOSE_FLAGS)
                    => ia_close_func: DAT_IA_CLOSE_FUNC;
            }
            forwarded {
                "C" dat_set_consumer_context(ANY dat_handle: DAT_HANDLE, context: DAT_CONTEXT)
                    => set_consumer_context_func: DAT_SET_CONSUMER_CONTEXT_FUNC;
                "C" dat_get_consumer_context(ANY dat_handle: DAT_HANDLE, context: *mut DAT_CONTEXT)
                    => get_consumer_context_func: DAT_GET_CONSUMER_CONTEXT_FUNC;
                "C" dat_get_handle_type(ANY dat_handle: DAT_HANDLE,
                    handle_type: *mut DAT_HANDLE_TYPE)
                    => get_handle_type_func: DAT_GET_HANDLE_TYPE_FUNC;
                "C" dat_cno_create(IA ia_handle: DAT_IA_HANDLE, agent: DAT_OS_WAIT_PROXY_AGENT,
                    cno_handle: *mut DAT_CNO_HANDLE) => cno_create_func: DAT_CNO_CREATE_FUNC;
                "C" dat_cno_modify_agent(CNO cno_handle: DAT_CNO_HANDLE,
                    agent: DAT_OS_WAIT_PROXY_AGENT)
                    => cno_modify_agent_func: DAT_CNO_MODIFY_AGENT_FUNC;
                "C" dat_cno_query(CNO cno_handle: DAT_CNO_HANDLE,
                    cno_param_mask: DAT_CNO_PARAM_MASK, cno_param: *mut DAT_CNO_PARAM)
                    => cno_query_func: DAT_CNO_QUERY_FUNC, changed;
                "C" dat_cno_free(CNO cno_handle: DAT_CNO_HANDLE)
                    => cno_free_func: DAT_CNO_FREE_FUNC;
                /// The stack is unwound through the function if the thread is cancelled.
                "C-unwind" dat_cno_wait(CNO cno_handle: DAT_CNO_HANDLE, timeout: DAT_TIMEOUT,
                    evd_handle: *mut DAT_EVD_HANDLE) => cno_wait_func: DAT_CNO_WAIT_FUNC;
                "C" dat_cr_query(CR cr_handle: DAT_CR_HANDLE, cr_param_mask: DAT_CR_PARAM_MASK,
                    cr_param: *mut DAT_CR_PARAM) => cr_query_func: DAT_CR_QUERY_FUNC;
                "C" dat_cr_accept(CR cr_handle: DAT_CR_HANDLE, ep_handle: DAT_EP_HANDLE,
                    private_data_size: DAT_COUNT, private_data: DAT_PVOID)
                    => cr_accept_func: DAT_CR_ACCEPT_FUNC;
                "C" dat_cr_reject(CR cr_handle: DAT_CR_HANDLE $($private_data)*)
                    => cr_reject_func: DAT_CR_REJECT_FUNC, changed;
                "C" dat_cr_handoff(CR cr_handle: DAT_CR_HANDLE, handoff: DAT_CONN_QUAL)
                    => cr_handoff_func: DAT_CR_HANDOFF_FUNC;
                "C" dat_evd_create(IA ia_handle: DAT_IA_HANDLE, evd_min_qlen: DAT_COUNT,
                    cno_handle: DAT_CNO_HANDLE, evd_flags: DAT_EVD_FLAGS,
                    evd_handle: *mut DAT_EVD_HANDLE) => evd_create_func: DAT_EVD_CREATE_FUNC;
                "C" dat_evd_query(EVD evd_handle: DAT_EVD_HANDLE,
                    evd_param_mask: DAT_EVD_PARAM_MASK, evd_param: *mut DAT_EVD_PARAM)
                    => evd_query_func: DAT_EVD_QUERY_FUNC;
                "C" dat_evd_modify_cno(EVD evd_handle: DAT_EVD_HANDLE, cno_handle: DAT_CNO_HANDLE)
                    => evd_modify_cno_func: DAT_EVD_MODIFY_CNO_FUNC;
                "C" dat_evd_enable(EVD evd_handle: DAT_EVD_HANDLE)
                    => evd_enable_func: DAT_EVD_ENABLE_FUNC;
                "C" dat_evd_disable(EVD evd_handle: DAT_EVD_HANDLE)
                    => evd_disable_func: DAT_EVD_DISABLE_FUNC;
                /// The stack is unwound through the function if the thread is cancelled.
                "C-unwind" dat_evd_wait(EVD evd_handle: DAT_EVD_HANDLE, timeout: DAT_TIMEOUT,
                    threshold: DAT_COUNT, event: *mut DAT_EVENT, n_more_events: *mut DAT_COUNT)
                    => evd_wait_func: DAT_EVD_WAIT_FUNC, changed;
                "C" dat_evd_resize(EVD evd_handle: DAT_EVD_HANDLE, evd_min_qlen: DAT_COUNT)
                    => evd_resize_func: DAT_EVD_RESIZE_FUNC;
                "C" dat_evd_post_se(EVD evd_handle: DAT_EVD_HANDLE, event: *const DAT_EVENT)
                    => evd_post_se_func: DAT_EVD_POST_SE_FUNC, changed;
                "C" dat_evd_dequeue(EVD evd_handle: DAT_EVD_HANDLE, event: *mut DAT_EVENT)
                    => evd_dequeue_func: DAT_EVD_DEQUEUE_FUNC, changed;
                "C" dat_evd_free(EVD evd_handle: DAT_EVD_HANDLE)
                    => evd_free_func: DAT_EVD_FREE_FUNC;
                "C" dat_ep_create(IA ia_handle: DAT_IA_HANDLE, pz_handle: DAT_PZ_HANDLE,
                    recv_completion_evd_handle: DAT_EVD_HANDLE,
                    request_completion_evd_handle: DAT_EVD_HANDLE,
                    connect_evd_handle: DAT_EVD_HANDLE, ep_attributes: *const DAT_EP_ATTR,
                    ep_handle: *mut DAT_EP_HANDLE) => ep_create_func: DAT_EP_CREATE_FUNC, changed;
                "C" dat_ep_query(EP ep_handle: DAT_EP_HANDLE, ep_param_mask: DAT_EP_PARAM_MASK,
                    ep_param: *mut DAT_EP_PARAM) => ep_query_func: DAT_EP_QUERY_FUNC, changed;
                "C" dat_ep_modify(EP ep_handle: DAT_EP_HANDLE, ep_param_mask: DAT_EP_PARAM_MASK,
                    ep_param: *const DAT_EP_PARAM) => ep_modify_func: DAT_EP_MODIFY_FUNC, changed;
                "C" dat_ep_connect(EP ep_handle: DAT_EP_HANDLE,
                    remote_ia_address: DAT_IA_ADDRESS_PTR, remote_conn_qual: DAT_CONN_QUAL,
                    timeout: DAT_TIMEOUT, private_data_size: DAT_COUNT, private_data: DAT_PVOID,
                    quality_of_service: DAT_QOS, connect_flags: DAT_CONNECT_FLAGS)
                    => ep_connect_func: DAT_EP_CONNECT_FUNC;
                "C" dat_ep_dup_connect(EP ep_handle: DAT_EP_HANDLE, ep_dup_handle: DAT_EP_HANDLE,
                    timeout: DAT_TIMEOUT, private_data_size: DAT_COUNT, private_data: DAT_PVOID,
                    quality_of_service: DAT_QOS) => ep_dup_connect_func: DAT_EP_DUP_CONNECT_FUNC;
                "C" dat_ep_disconnect(EP ep_handle: DAT_EP_HANDLE, close_flags: DAT_CLOSE_FLAGS)
                    => ep_disconnect_func: DAT_EP_DISCONNECT_FUNC;
                "C" dat_ep_post_send(EP ep_handle: DAT_EP_HANDLE, num_segments: DAT_COUNT,
                    local_iov: *mut DAT_LMR_TRIPLET, user_cookie: DAT_DTO_COOKIE,
                    completion_flags: DAT_COMPLETION_FLAGS)
                    => ep_post_send_func: DAT_EP_POST_SEND_FUNC, changed;
                "C" dat_ep_post_recv(EP ep_handle: DAT_EP_HANDLE, num_segments: DAT_COUNT,
                    local_iov: *mut DAT_LMR_TRIPLET, user_cookie: DAT_DTO_COOKIE,
                    completion_flags: DAT_COMPLETION_FLAGS)
                    => ep_post_recv_func: DAT_EP_POST_RECV_FUNC, changed;
                "C" dat_ep_post_rdma_read(EP ep_handle: DAT_EP_HANDLE, num_segments: DAT_COUNT,
                    local_iov: *mut DAT_LMR_TRIPLET, user_cookie: DAT_DTO_COOKIE,
                    remote_iov: *const DAT_RMR_TRIPLET, completion_flags: DAT_COMPLETION_FLAGS)
                    => ep_post_rdma_read_func: DAT_EP_POST_RDMA_READ_FUNC, changed;
                "C" dat_ep_post_rdma_write(EP ep_handle: DAT_EP_HANDLE, num_segments: DAT_COUNT,
                    local_iov: *mut DAT_LMR_TRIPLET, user_cookie: DAT_DTO_COOKIE,
                    remote_iov: *const DAT_RMR_TRIPLET, completion_flags: DAT_COMPLETION_FLAGS)
                    => ep_post_rdma_write_func: DAT_EP_POST_RDMA_WRITE_FUNC, changed;
                "C" dat_ep_get_status(EP ep_handle: DAT_EP_HANDLE, ep_state: *mut DAT_EP_STATE,
                    recv_idle: *mut DAT_BOOLEAN, request_idle: *mut DAT_BOOLEAN)
                    => ep_get_status_func: DAT_EP_GET_STATUS_FUNC, changed;
                "C" dat_ep_free(EP ep_handle: DAT_EP_HANDLE) => ep_free_func: DAT_EP_FREE_FUNC;
                "C" dat_lmr_create(IA ia_handle: DAT_IA_HANDLE, mem_type: DAT_MEM_TYPE,
                    region_description: DAT_REGION_DESCRIPTION, length: DAT_VLEN,
                    pz_handle: DAT_PZ_HANDLE, privileges: DAT_MEM_PRIV_FLAGS, $($va_type)*
                    lmr_handle: *mut DAT_LMR_HANDLE, lmr_context: *mut DAT_LMR_CONTEXT,
                    rmr_context: *mut DAT_RMR_CONTEXT, registered_length: *mut DAT_VLEN,
                    registered_address: *mut DAT_VADDR)
                    => lmr_create_func: DAT_LMR_CREATE_FUNC, changed;
                "C" dat_lmr_query(LMR lmr_handle: DAT_LMR_HANDLE,
                    lmr_param_mask: DAT_LMR_PARAM_MASK, lmr_param: *mut DAT_LMR_PARAM)
                    => lmr_query_func: DAT_LMR_QUERY_FUNC, changed;
                "C" dat_lmr_free(LMR lmr_handle: DAT_LMR_HANDLE)
                    => lmr_free_func: DAT_LMR_FREE_FUNC;
                "C" dat_rmr_create(PZ pz_handle: DAT_PZ_HANDLE, rmr_handle: *mut DAT_RMR_HANDLE)
                    => rmr_create_func: DAT_RMR_CREATE_FUNC;
                "C" dat_rmr_query(RMR rmr_handle: DAT_RMR_HANDLE,
                    rmr_param_mask: DAT_RMR_PARAM_MASK, rmr_param: *mut DAT_RMR_PARAM)
                    => rmr_query_func: DAT_RMR_QUERY_FUNC, changed;
                "C" dat_rmr_bind(RMR rmr_handle: DAT_RMR_HANDLE, $($lmr_handle)*
                    lmr_triplet: *const DAT_LMR_TRIPLET, mem_priv: DAT_MEM_PRIV_FLAGS, $($va_type)*
                    ep_handle: DAT_EP_HANDLE, user_cookie: DAT_RMR_COOKIE,
                    completion_flags: DAT_COMPLETION_FLAGS, rmr_context: *mut DAT_RMR_CONTEXT)
                    => rmr_bind_func: DAT_RMR_BIND_FUNC, changed;
                "C" dat_rmr_free(RMR rmr_handle: DAT_RMR_HANDLE)
                    => rmr_free_func: DAT_RMR_FREE_FUNC;
                "C" dat_psp_create(IA ia_handle: DAT_IA_HANDLE, conn_qual: DAT_CONN_QUAL,
                    evd_handle: DAT_EVD_HANDLE, psp_flags: DAT_PSP_FLAGS,
                    psp_handle: *mut DAT_PSP_HANDLE) => psp_create_func: DAT_PSP_CREATE_FUNC;
                "C" dat_psp_query(PSP psp_handle: DAT_PSP_HANDLE,
                    psp_param_mask: DAT_PSP_PARAM_MASK, psp_param: *mut DAT_PSP_PARAM)
                    => psp_query_func: DAT_PSP_QUERY_FUNC;
                "C" dat_psp_free(PSP psp_handle: DAT_PSP_HANDLE)
                    => psp_free_func: DAT_PSP_FREE_FUNC;
                "C" dat_rsp_create(IA ia_handle: DAT_IA_HANDLE, conn_qual: DAT_CONN_QUAL,
                    ep_handle: DAT_EP_HANDLE, evd_handle: DAT_EVD_HANDLE,
                    rsp_handle: *mut DAT_RSP_HANDLE) => rsp_create_func: DAT_RSP_CREATE_FUNC;
                "C" dat_rsp_query(RSP rsp_handle: DAT_RSP_HANDLE,
                    rsp_param_mask: DAT_RSP_PARAM_MASK, rsp_param: *mut DAT_RSP_PARAM)
                    => rsp_query_func: DAT_RSP_QUERY_FUNC;
                "C" dat_rsp_free(RSP rsp_handle: DAT_RSP_HANDLE)
                    => rsp_free_func: DAT_RSP_FREE_FUNC;
                "C" dat_pz_create(IA ia_handle: DAT_IA_HANDLE, pz_handle: *mut DAT_PZ_HANDLE)
                    => pz_create_func: DAT_PZ_CREATE_FUNC;
                "C" dat_pz_query(PZ pz_handle: DAT_PZ_HANDLE, pz_param_mask: DAT_PZ_PARAM_MASK,
                    pz_param: *mut DAT_PZ_PARAM) => pz_query_func: DAT_PZ_QUERY_FUNC;
                "C" dat_pz_free(PZ pz_handle: DAT_PZ_HANDLE) => pz_free_func: DAT_PZ_FREE_FUNC;
                "C" dat_psp_create_any(IA ia_handle: DAT_IA_HANDLE, conn_qual: *mut DAT_CONN_QUAL,
                    evd_handle: DAT_EVD_HANDLE, psp_flags: DAT_PSP_FLAGS,
                    psp_handle: *mut DAT_PSP_HANDLE)
                    => psp_create_any_func: DAT_PSP_CREATE_ANY_FUNC;
                "C" dat_ep_reset(EP ep_handle: DAT_EP_HANDLE) => ep_reset_func: DAT_EP_RESET_FUNC;
                "C" dat_evd_set_unwaitable(EVD evd_handle: DAT_EVD_HANDLE)
                    => evd_set_unwaitable_func: DAT_EVD_SET_UNWAITABLE_FUNC;
                "C" dat_evd_clear_unwaitable(EVD evd_handle: DAT_EVD_HANDLE)
                    => evd_clear_unwaitable_func: DAT_EVD_CLEAR_UNWAITABLE_FUNC;
                "C" dat_lmr_sync_rdma_read(IA ia_handle: DAT_IA_HANDLE,
                    local_segments: *const DAT_LMR_TRIPLET, num_segments: DAT_VLEN)
                    => lmr_sync_rdma_read_func: DAT_LMR_SYNC_RDMA_READ_FUNC, changed;
                "C" dat_lmr_sync_rdma_write(IA ia_handle: DAT_IA_HANDLE,
                    local_segments: *const DAT_LMR_TRIPLET, num_segments: DAT_VLEN)
                    => lmr_sync_rdma_write_func: DAT_LMR_SYNC_RDMA_WRITE_FUNC, changed;
                "C" dat_ep_create_with_srq(IA ia_handle: DAT_IA_HANDLE, pz_handle: DAT_PZ_HANDLE,
                    recv_completion_evd_handle: DAT_EVD_HANDLE,
                    request_completion_evd_handle: DAT_EVD_HANDLE,
                    connect_evd_handle: DAT_EVD_HANDLE, srq_handle: DAT_SRQ_HANDLE,
                    ep_attributes: *const DAT_EP_ATTR, ep_handle: *mut DAT_EP_HANDLE)
                    => ep_create_with_srq_func: DAT_EP_CREATE_WITH_SRQ_FUNC, changed;
                "C" dat_ep_recv_query(EP ep_handle: DAT_EP_HANDLE, nbufs_allocated: *mut DAT_COUNT,
                    bufs_alloc_span: *mut DAT_COUNT) => ep_recv_query_func: DAT_EP_RECV_QUERY_FUNC;
                "C" dat_ep_set_watermark(EP ep_handle: DAT_EP_HANDLE,
                    ep_soft_high_watermark: DAT_COUNT, hard_high_watermark: DAT_COUNT)
                    => ep_set_watermark_func: DAT_EP_SET_WATERMARK_FUNC;
                "C" dat_srq_create(IA ia_handle: DAT_IA_HANDLE, pz_handle: DAT_PZ_HANDLE,
                    srq_attributes: *mut DAT_SRQ_ATTR, srq_handle: *mut DAT_SRQ_HANDLE)
                    => srq_create_func: DAT_SRQ_CREATE_FUNC;
                "C" dat_srq_free(SRQ srq_handle: DAT_SRQ_HANDLE)
                    => srq_free_func: DAT_SRQ_FREE_FUNC;
                "C" dat_srq_post_recv(SRQ srq_handle: DAT_SRQ_HANDLE, num_segments: DAT_COUNT,
                    local_iov: *mut DAT_LMR_TRIPLET, user_cookie: DAT_DTO_COOKIE)
                    => srq_post_recv_func: DAT_SRQ_POST_RECV_FUNC, changed;
                "C" dat_srq_query(SRQ srq_handle: DAT_SRQ_HANDLE,
                    srq_param_mask: DAT_SRQ_PARAM_MASK, srq_param: *mut DAT_SRQ_PARAM)
                    => srq_query_func: DAT_SRQ_QUERY_FUNC, changed;
                "C" dat_srq_resize(SRQ srq_handle: DAT_SRQ_HANDLE, srq_max_recv_dto: DAT_COUNT)
                    => srq_resize_func: DAT_SRQ_RESIZE_FUNC;
                "C" dat_srq_set_lw(SRQ srq_handle: DAT_SRQ_HANDLE, low_watermark: DAT_COUNT)
                    => srq_set_lw_func: DAT_SRQ_SET_LW_FUNC;
                $($forwarded)*
            }
            registry { $($registry)* }
            forwarded {}
        }
    };
}

/// Declares the types of the functions, and the table of a provider. `$pages` is the directory of
/// the manual pages, and `$table` the documentation of the table.
macro_rules! provider_table {
    (
        $pages:literal $(#[$table:meta])*
        library { $($of_library:tt)* }
        $(
            registry { $(
                $(#[$own_remark:meta])*
                $own_abi:literal $own:ident($($own_arg:ident: $own_type:ty),*)
                    => $own_member:ident: $own_signature:ident;
            )* }
            forwarded { $(
                $(#[$remark:meta])*
                $abi:literal $name:ident($kind:ident $($arg:ident: $type:ty),*)
                    => $member:ident: $signature:ident $(, $changed:ident)?;
            )* }
        )*
    ) => {
        $(
            $(
                #[doc = concat!("The signature of a provider's part of ", stringify!($own), ".")]
                $(#[$own_remark])*
                #[doc = ""]
                #[doc = include_str!(concat!($pages, stringify!($own), ".md"))]
                pub type $own_signature =
                    unsafe extern $own_abi fn($($own_arg: $own_type),*) -> DAT_RETURN;
            )*
            $(
                #[doc = concat!("The signature of ", stringify!($name), " in a provider.")]
                $(#[$remark])*
                #[doc = ""]
                #[doc = include_str!(concat!($pages, stringify!($name), ".md"))]
                pub type $signature = unsafe extern $abi fn($($arg: $type),*) -> DAT_RETURN;
            )*
        )*

        records! {
            $(#[$table])*
            #[derive(Debug)]
            pub struct DAT_PROVIDER {
                /// The name of the IA, NUL-terminated.
                pub device_name: *const c_char,
                /// A pointer for the provider's own use.
                pub extension: DAT_PVOID,
                $(
                    $(
                        #[doc = concat!("The provider's part of ", stringify!($own), ".")]
                        pub $own_member: Option<$own_signature>,
                    )*
                    $(
                        #[doc = concat!("The function ", stringify!($name), ".")]
                        pub $member: Option<$signature>,
                    )*
                )*
            }
        }

        // SAFETY: `DAT_PROVIDER` is plain data. Code that follows its pointers or calls its
        // functions is unsafe and must justify that itself. uDAPL providers share one table between
        // all threads.
        unsafe impl Send for DAT_PROVIDER {}
        // SAFETY: the same reason applies.
        unsafe impl Sync for DAT_PROVIDER {}
    };
}
pub(crate) use provider_table;

provider_functions! {
    2.0 => provider_table,
    "../reference/"
    /// The function table behind every handle. The table has 81 words, of which the first 70 are
    /// those of uDAPL 1.2.
}

/// The signature of `dat_provider_init`, which a loadable provider exports. The function registers
/// the provider of `provider_info`. `instance_data` is the ia_params field of the registry entry.
pub type DAT_PROVIDER_INIT_FUNC =
    unsafe extern "C" fn(provider_info: *const DAT_PROVIDER_INFO, instance_data: *const c_char);
/// The signature of `dat_provider_fini`, which a loadable provider exports. The function undoes
/// `dat_provider_init`.
pub type DAT_PROVIDER_FINI_FUNC = unsafe extern "C" fn(provider_info: *const DAT_PROVIDER_INFO);
