//! The functions that uDAPL 1.2 and 2.0 have with the same arguments. The structures behind
//! pointers may differ.

/// Defines and exports the functions that both versions have with the same arguments, with the
/// types that are in scope where the macro is called.
#[macro_export]
macro_rules! functions {
    ($version:literal) => {
        $crate::forward! {
            $version;
            dat_ia_query(IA, async_evd: *mut DAT_EVD_HANDLE, ia_mask: DAT_IA_ATTR_MASK, ia_attr: *mut DAT_IA_ATTR,
                provider_mask: DAT_PROVIDER_ATTR_MASK, provider_attr: *mut DAT_PROVIDER_ATTR) => ia_query_func;
            dat_set_consumer_context(ANY, context: DAT_CONTEXT) => set_consumer_context_func;
            dat_get_consumer_context(ANY, context: *mut DAT_CONTEXT) => get_consumer_context_func;
            dat_get_handle_type(ANY, handle_type: *mut DAT_HANDLE_TYPE) => get_handle_type_func;
            dat_cno_create(IA, agent: DAT_OS_WAIT_PROXY_AGENT, cno: *mut DAT_CNO_HANDLE) => cno_create_func;
            dat_cno_modify_agent(CNO, agent: DAT_OS_WAIT_PROXY_AGENT) => cno_modify_agent_func;
            dat_cno_query(CNO, mask: DAT_CNO_PARAM_MASK, param: *mut DAT_CNO_PARAM) => cno_query_func;
            dat_cno_free(CNO) => cno_free_func;
            dat_cno_wait(CNO, timeout: DAT_TIMEOUT, evd: *mut DAT_EVD_HANDLE) => cno_wait_func;
            dat_cr_query(CR, mask: DAT_CR_PARAM_MASK, param: *mut DAT_CR_PARAM) => cr_query_func;
            dat_cr_accept(CR, ep: DAT_EP_HANDLE, size: DAT_COUNT, private_data: DAT_PVOID) => cr_accept_func;
            dat_cr_handoff(CR, handoff: DAT_CONN_QUAL) => cr_handoff_func;
            dat_evd_create(IA, min_qlen: DAT_COUNT, cno: DAT_CNO_HANDLE, flags: DAT_EVD_FLAGS,
                evd: *mut DAT_EVD_HANDLE) => evd_create_func;
            dat_evd_query(EVD, mask: DAT_EVD_PARAM_MASK, param: *mut DAT_EVD_PARAM) => evd_query_func;
            dat_evd_modify_cno(EVD, cno: DAT_CNO_HANDLE) => evd_modify_cno_func;
            dat_evd_enable(EVD) => evd_enable_func;
            dat_evd_disable(EVD) => evd_disable_func;
            dat_evd_set_unwaitable(EVD) => evd_set_unwaitable_func;
            dat_evd_clear_unwaitable(EVD) => evd_clear_unwaitable_func;
            dat_evd_wait(EVD, timeout: DAT_TIMEOUT, threshold: DAT_COUNT, event: *mut DAT_EVENT,
                more: *mut DAT_COUNT) => evd_wait_func;
            dat_evd_dequeue(EVD, event: *mut DAT_EVENT) => evd_dequeue_func;
            dat_evd_post_se(EVD, event: *const DAT_EVENT) => evd_post_se_func;
            dat_evd_resize(EVD, min_qlen: DAT_COUNT) => evd_resize_func;
            dat_evd_free(EVD) => evd_free_func;
            dat_ep_create(IA, pz: DAT_PZ_HANDLE, recv_evd: DAT_EVD_HANDLE, request_evd: DAT_EVD_HANDLE,
                connect_evd: DAT_EVD_HANDLE, attr: *const DAT_EP_ATTR, ep: *mut DAT_EP_HANDLE) => ep_create_func;
            dat_ep_create_with_srq(IA, pz: DAT_PZ_HANDLE, recv_evd: DAT_EVD_HANDLE, request_evd: DAT_EVD_HANDLE,
                connect_evd: DAT_EVD_HANDLE, srq: DAT_SRQ_HANDLE, attr: *const DAT_EP_ATTR,
                ep: *mut DAT_EP_HANDLE) => ep_create_with_srq_func;
            dat_ep_query(EP, mask: DAT_EP_PARAM_MASK, param: *mut DAT_EP_PARAM) => ep_query_func;
            dat_ep_modify(EP, mask: DAT_EP_PARAM_MASK, param: *const DAT_EP_PARAM) => ep_modify_func;
            dat_ep_connect(EP, address: DAT_IA_ADDRESS_PTR, conn_qual: DAT_CONN_QUAL, timeout: DAT_TIMEOUT,
                size: DAT_COUNT, private_data: DAT_PVOID, qos: DAT_QOS, flags: DAT_CONNECT_FLAGS) => ep_connect_func;
            dat_ep_dup_connect(EP, other: DAT_EP_HANDLE, timeout: DAT_TIMEOUT, size: DAT_COUNT,
                private_data: DAT_PVOID, qos: DAT_QOS) => ep_dup_connect_func;
            dat_ep_disconnect(EP, flags: DAT_CLOSE_FLAGS) => ep_disconnect_func;
            dat_ep_post_send(EP, segments: DAT_COUNT, iov: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE,
                flags: DAT_COMPLETION_FLAGS) => ep_post_send_func;
            dat_ep_post_recv(EP, segments: DAT_COUNT, iov: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE,
                flags: DAT_COMPLETION_FLAGS) => ep_post_recv_func;
            dat_ep_post_rdma_read(EP, segments: DAT_COUNT, iov: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE,
                remote: *const DAT_RMR_TRIPLET, flags: DAT_COMPLETION_FLAGS) => ep_post_rdma_read_func;
            dat_ep_post_rdma_write(EP, segments: DAT_COUNT, iov: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE,
                remote: *const DAT_RMR_TRIPLET, flags: DAT_COMPLETION_FLAGS) => ep_post_rdma_write_func;
            dat_ep_get_status(EP, state: *mut DAT_EP_STATE, recv_idle: *mut DAT_BOOLEAN,
                request_idle: *mut DAT_BOOLEAN) => ep_get_status_func;
            dat_ep_recv_query(EP, allocated: *mut DAT_COUNT, span: *mut DAT_COUNT) => ep_recv_query_func;
            dat_ep_set_watermark(EP, soft: DAT_COUNT, hard: DAT_COUNT) => ep_set_watermark_func;
            dat_ep_reset(EP) => ep_reset_func;
            dat_ep_free(EP) => ep_free_func;
            dat_lmr_query(LMR, mask: DAT_LMR_PARAM_MASK, param: *mut DAT_LMR_PARAM) => lmr_query_func;
            dat_lmr_free(LMR) => lmr_free_func;
            dat_lmr_sync_rdma_read(IA, iov: *const DAT_LMR_TRIPLET, segments: DAT_VLEN) => lmr_sync_rdma_read_func;
            dat_lmr_sync_rdma_write(IA, iov: *const DAT_LMR_TRIPLET, segments: DAT_VLEN) => lmr_sync_rdma_write_func;
            dat_rmr_create(PZ, rmr: *mut DAT_RMR_HANDLE) => rmr_create_func;
            dat_rmr_query(RMR, mask: DAT_RMR_PARAM_MASK, param: *mut DAT_RMR_PARAM) => rmr_query_func;
            dat_rmr_free(RMR) => rmr_free_func;
            dat_psp_create(IA, conn_qual: DAT_CONN_QUAL, evd: DAT_EVD_HANDLE, flags: DAT_PSP_FLAGS,
                psp: *mut DAT_PSP_HANDLE) => psp_create_func;
            dat_psp_create_any(IA, conn_qual: *mut DAT_CONN_QUAL, evd: DAT_EVD_HANDLE, flags: DAT_PSP_FLAGS,
                psp: *mut DAT_PSP_HANDLE) => psp_create_any_func;
            dat_psp_query(PSP, mask: DAT_PSP_PARAM_MASK, param: *mut DAT_PSP_PARAM) => psp_query_func;
            dat_psp_free(PSP) => psp_free_func;
            dat_rsp_create(IA, conn_qual: DAT_CONN_QUAL, ep: DAT_EP_HANDLE, evd: DAT_EVD_HANDLE,
                rsp: *mut DAT_RSP_HANDLE) => rsp_create_func;
            dat_rsp_query(RSP, mask: DAT_RSP_PARAM_MASK, param: *mut DAT_RSP_PARAM) => rsp_query_func;
            dat_rsp_free(RSP) => rsp_free_func;
            dat_pz_create(IA, pz: *mut DAT_PZ_HANDLE) => pz_create_func;
            dat_pz_query(PZ, mask: DAT_PZ_PARAM_MASK, param: *mut DAT_PZ_PARAM) => pz_query_func;
            dat_pz_free(PZ) => pz_free_func;
            dat_srq_create(IA, pz: DAT_PZ_HANDLE, attr: *mut DAT_SRQ_ATTR, srq: *mut DAT_SRQ_HANDLE) => srq_create_func;
            dat_srq_query(SRQ, mask: DAT_SRQ_PARAM_MASK, param: *mut DAT_SRQ_PARAM) => srq_query_func;
            dat_srq_post_recv(SRQ, segments: DAT_COUNT, iov: *mut DAT_LMR_TRIPLET,
                cookie: DAT_DTO_COOKIE) => srq_post_recv_func;
            dat_srq_resize(SRQ, length: DAT_COUNT) => srq_resize_func;
            dat_srq_set_lw(SRQ, low_watermark: DAT_COUNT) => srq_set_lw_func;
            dat_srq_free(SRQ) => srq_free_func;
        }

        $crate::export! {
            $version;

            /// dat_ia_openv: opens an IA for the version and the thread safety that the consumer
            /// was compiled for.
            ///
            /// # Safety
            ///
            /// The requirements are those of [`Library::open`]($crate::Library::open).
            #[allow(clippy::too_many_arguments)] // The prototype is the standard's.
            fn dat_ia_openv(
                name: DAT_NAME_PTR,
                async_evd_qlen: DAT_COUNT,
                async_evd: *mut DAT_EVD_HANDLE,
                ia: *mut DAT_IA_HANDLE,
                major: u32,
                minor: u32,
                threadsafe: DAT_BOOLEAN,
            ) -> DAT_RETURN {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { crate::LIBRARY.open(name, async_evd_qlen, async_evd, ia, major, minor, threadsafe) }
            }

            /// dat_ia_close.
            ///
            /// # Safety
            ///
            /// No requirements: every handle is checked.
            fn dat_ia_close(ia: DAT_IA_HANDLE, flags: DAT_CLOSE_FLAGS) -> DAT_RETURN {
                crate::LIBRARY.close(ia, flags)
            }

            /// dat_registry_list_providers.
            ///
            /// # Safety
            ///
            /// The requirements are those of
            /// [`Library::list_providers`]($crate::Library::list_providers).
            fn dat_registry_list_providers(
                max: DAT_COUNT,
                count: *mut DAT_COUNT,
                infos: *mut *mut DAT_PROVIDER_INFO,
            ) -> DAT_RETURN {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { crate::LIBRARY.list_providers(max, count, infos) }
            }

            /// dat_registry_add_provider: registers a provider.
            ///
            /// # Safety
            ///
            /// The requirements are those of
            /// [`Library::add_provider`]($crate::Library::add_provider).
            fn dat_registry_add_provider(
                table: *const DAT_PROVIDER,
                info: *const DAT_PROVIDER_INFO,
            ) -> DAT_RETURN {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { crate::LIBRARY.add_provider(table.cast(), info) }
            }

            /// dat_registry_remove_provider: unregisters a provider.
            ///
            /// # Safety
            ///
            /// The requirements are those of
            /// [`Library::remove_provider`]($crate::Library::remove_provider).
            fn dat_registry_remove_provider(
                table: *const DAT_PROVIDER,
                info: *const DAT_PROVIDER_INFO,
            ) -> DAT_RETURN {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { crate::LIBRARY.remove_provider(table.cast(), info) }
            }

            /// dats_get_ia_handle: converts between the consumer's IA handle and the provider's.
            ///
            /// # Safety
            ///
            /// The requirements are those of
            /// [`Library::get_ia_handle`]($crate::Library::get_ia_handle).
            fn dats_get_ia_handle(handle: DAT_IA_HANDLE, out: *mut DAT_IA_HANDLE) -> DAT_RETURN {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { crate::LIBRARY.get_ia_handle(handle, out) }
            }

            /// dat_strerror.
            ///
            /// # Safety
            ///
            /// The requirements are those of [`Library::strerror`]($crate::Library::strerror).
            fn dat_strerror(
                status: DAT_RETURN,
                type_name: *mut *const std::ffi::c_char,
                subtype_name: *mut *const std::ffi::c_char,
            ) -> DAT_RETURN {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { crate::LIBRARY.strerror(status, type_name, subtype_name) }
            }
        }
    };
}
