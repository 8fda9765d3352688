//! Compares sizes and offsets with numbers that were measured with the headers of OFED DAPL 2.1.10
//! on x86_64. `tests/tests/headers.rs` compares the C headers with this crate; the comparison with
//! this table also works without a C compiler.

use core::mem::offset_of;

use crate::*;

/// Checks the layout of structures, each written as `NAME size { field offset/size, ... }`.
macro_rules! layout {
    ($($name:ident $size:literal { $($field:ident $offset:literal/$bytes:literal,)* })*) => {
        $(
            assert_eq!(size_of::<$name>(), $size, stringify!($name));
            $(
                let at = concat!(stringify!($name), ".", stringify!($field));
                assert_eq!(offset_of!($name, $field), $offset, "{at}");
                assert_eq!(size_of_val(&$name::zeroed().$field), $bytes, "{at}");
            )*
        )*
    };
}

#[test]
fn records_have_the_measured_layout() {
    layout! {
        DAT_LMR_TRIPLET 16 {
            virtual_address 0/8,
            segment_length 8/4,
            lmr_context 12/4,
        }
        DAT_RMR_TRIPLET 16 {
            virtual_address 0/8,
            segment_length 8/4,
            rmr_context 12/4,
        }
        DAT_RMR_PARAM 48 {
            ia_handle 0/8,
            pz_handle 8/8,
            lmr_triplet 16/16,
            mem_priv 32/4,
            rmr_context 36/4,
            rmr_scope 40/4,
            va_type 44/4,
        }
        DAT_EP_ATTR 88 {
            service_type 0/4,
            max_message_size 4/4,
            max_rdma_size 8/4,
            qos 12/4,
            recv_completion_flags 16/4,
            request_completion_flags 20/4,
            max_recv_dtos 24/4,
            max_request_dtos 28/4,
            max_recv_iov 32/4,
            max_request_iov 36/4,
            max_rdma_read_in 40/4,
            max_rdma_read_out 44/4,
            srq_soft_hw 48/4,
            max_rdma_read_iov 52/4,
            max_rdma_write_iov 56/4,
            ep_transport_specific_count 60/4,
            ep_transport_specific 64/8,
            ep_provider_specific_count 72/4,
            ep_provider_specific 80/8,
        }
        DAT_EP_PARAM 184 {
            ia_handle 0/8,
            ep_state 8/4,
            comm 12/12,
            local_ia_address_ptr 24/8,
            local_port_qual 32/8,
            remote_ia_address_ptr 40/8,
            remote_port_qual 48/8,
            pz_handle 56/8,
            recv_evd_handle 64/8,
            request_evd_handle 72/8,
            connect_evd_handle 80/8,
            srq_handle 88/8,
            ep_attr 96/88,
        }
        DAT_SRQ_PARAM 48 {
            ia_handle 0/8,
            srq_state 8/4,
            pz_handle 16/8,
            max_recv_dtos 24/4,
            max_recv_iov 28/4,
            low_watermark 32/4,
            available_dto_count 36/4,
            outstanding_dto_count 40/4,
        }
        DAT_CR_PARAM 40 {
            remote_ia_address_ptr 0/8,
            remote_port_qual 8/8,
            private_data_size 16/4,
            private_data 24/8,
            local_ep_handle 32/8,
        }
        DAT_DTO_COMPLETION_EVENT_DATA 32 {
            ep_handle 0/8,
            user_cookie 8/8,
            status 16/4,
            transfered_length 20/4,
            operation 24/4,
            rmr_context 28/4,
        }
        DAT_CR_ARRIVAL_EVENT_DATA 40 {
            sp_handle 0/8,
            local_ia_address_ptr 8/8,
            conn_qual 16/8,
            cr_handle 24/8,
            truncate_flag 32/4,
        }
        DAT_CONNECTION_EVENT_DATA 24 {
            ep_handle 0/8,
            private_data_size 8/4,
            private_data 16/8,
        }
        DAT_EVENT 120 {
            event_number 0/4,
            evd_handle 8/8,
            event_data 16/40,
            event_extension_data 56/64,
        }
        DAT_EVD_PARAM 32 {
            ia_handle 0/8,
            evd_qlen 8/4,
            evd_state 12/4,
            cno_handle 16/8,
            evd_flags 24/4,
        }
        DAT_LMR_PARAM 80 {
            ia_handle 0/8,
            mem_type 8/4,
            region_desc 16/16,
            length 32/8,
            pz_handle 40/8,
            mem_priv 48/4,
            va_type 52/4,
            lmr_context 56/4,
            rmr_context 60/4,
            registered_size 64/8,
            registered_address 72/8,
        }
        DAT_CNO_PARAM 32 {
            ia_handle 0/8,
            proxy_type 8/4,
        }
        DAT_IA_ATTR 688 {
            adapter_name 0/256,
            vendor_name 256/256,
            hardware_version_major 512/4,
            hardware_version_minor 516/4,
            firmware_version_major 520/4,
            firmware_version_minor 524/4,
            ia_address_ptr 528/8,
            max_eps 536/4,
            max_dto_per_ep 540/4,
            max_rdma_read_per_ep_in 544/4,
            max_rdma_read_per_ep_out 548/4,
            max_evds 552/4,
            max_evd_qlen 556/4,
            max_iov_segments_per_dto 560/4,
            max_lmrs 564/4,
            max_lmr_block_size 568/4,
            max_lmr_virtual_address 576/8,
            max_pzs 584/4,
            max_message_size 588/4,
            max_rdma_size 592/4,
            max_rmrs 596/4,
            max_rmr_target_address 600/8,
            max_srqs 608/4,
            max_ep_per_srq 612/4,
            max_recv_per_srq 616/4,
            max_iov_segments_per_rdma_read 620/4,
            max_iov_segments_per_rdma_write 624/4,
            max_rdma_read_in 628/4,
            max_rdma_read_out 632/4,
            max_rdma_read_per_ep_in_guaranteed 636/4,
            max_rdma_read_per_ep_out_guaranteed 640/4,
            zb_supported 644/4,
            extension_supported 648/4,
            extension_version 652/4,
            num_transport_attr 656/4,
            transport_attr 664/8,
            num_vendor_attr 672/4,
            vendor_attr 680/8,
        }
        DAT_PROVIDER_ATTR 520 {
            provider_name 0/256,
            provider_version_major 256/4,
            provider_version_minor 260/4,
            dapl_version_major 264/4,
            dapl_version_minor 268/4,
            lmr_mem_types_supported 272/4,
            iov_ownership_on_return 276/4,
            dat_qos_supported 280/4,
            completion_flags_supported 284/4,
            is_thread_safe 288/4,
            max_private_data_size 292/4,
            supports_multipath 296/4,
            ep_creator 300/4,
            pz_support 304/4,
            optimal_buffer_alignment 308/4,
            evd_stream_merging_supported 312/144,
            srq_supported 456/4,
            srq_watermarks_supported 460/4,
            srq_ep_pz_difference_supported 464/4,
            srq_info_supported 468/4,
            ep_recv_info_supported 472/4,
            lmr_sync_req 476/4,
            dto_async_return_guaranteed 480/4,
            rdma_write_for_rdma_read_req 484/4,
            rdma_read_lmr_rmr_context_exposure 488/4,
            rmr_scope_supported 492/4,
            is_signal_safe 496/4,
            ha_supported 500/4,
            ha_loadbalancing 504/4,
            num_provider_specific_attr 508/4,
            provider_specific_attr 512/8,
        }
        DAT_PROVIDER_INFO 268 {
            ia_name 0/256,
            dapl_version_major 256/4,
            dapl_version_minor 260/4,
            is_thread_safe 264/4,
        }
        DAT_REGION_DESCRIPTION 16 {}
        DAT_CSP_PARAM 32 {}
        DAT_COMM 12 {}
        DAT_NAMED_ATTR 16 {}
        DAT_CONTEXT 8 {}
        DAT_SRQ_ATTR 12 {}
        DAT_PZ_PARAM 8 {}
        DAT_PSP_PARAM 32 {}
        DAT_RSP_PARAM 32 {}
        DAT_RMR_BIND_COMPLETION_EVENT_DATA 24 {}
        DAT_ASYNCH_ERROR_EVENT_DATA 16 {}
        DAT_SOFTWARE_EVENT_DATA 8 {}
        DAT_OS_WAIT_PROXY_AGENT 16 {}
        DAT_EVENT_DATA 40 {}
        DAT_PROVIDER 648 {}
    }
}

#[test]
fn extension_payload_fills_the_extension_data_of_an_event() {
    use crate::ib::*;
    layout! {
        DAT_IB_EXTENSION_EVENT_DATA 64 {
            r#type 0/4,
            status 4/4,
            val 8/4,
            detail 16/40,
            context 56/8,
        }
        DAT_IB_ADDR_HANDLE 40 {
            ah 0/8,
            qpn 8/4,
            ia_addr 12/28,
        }
        DAT_SOCK_ADDR6 28 {}
    }
    assert_eq!(
        size_of::<DAT_IB_EXTENSION_EVENT_DATA>(),
        size_of_val(&DAT_EVENT::zeroed().event_extension_data)
    );
}

/// The words of the provider function table, in order.
const PROVIDER_WORDS: &str = "
    device_name extension ia_open_func ia_query_func ia_close_func set_consumer_context_func
    get_consumer_context_func get_handle_type_func cno_create_func cno_modify_agent_func \
    cno_query_func
    cno_free_func cno_wait_func cr_query_func cr_accept_func cr_reject_func cr_handoff_func \
    evd_create_func
    evd_query_func evd_modify_cno_func evd_enable_func evd_disable_func evd_wait_func \
    evd_resize_func
    evd_post_se_func evd_dequeue_func evd_free_func ep_create_func ep_query_func ep_modify_func
    ep_connect_func ep_dup_connect_func ep_disconnect_func ep_post_send_func ep_post_recv_func
    ep_post_rdma_read_func ep_post_rdma_write_func ep_get_status_func ep_free_func lmr_create_func
    lmr_query_func lmr_free_func rmr_create_func rmr_query_func rmr_bind_func rmr_free_func \
    psp_create_func
    psp_query_func psp_free_func rsp_create_func rsp_query_func rsp_free_func pz_create_func \
    pz_query_func
    pz_free_func psp_create_any_func ep_reset_func evd_set_unwaitable_func evd_clear_unwaitable_func
    lmr_sync_rdma_read_func lmr_sync_rdma_write_func ep_create_with_srq_func ep_recv_query_func
    ep_set_watermark_func srq_create_func srq_free_func srq_post_recv_func srq_query_func \
    srq_resize_func
    srq_set_lw_func csp_create_func csp_query_func csp_free_func ep_common_connect_func
    rmr_create_for_ep_func ep_post_send_with_invalidate_func ep_post_rdma_read_to_rmr_func
    cno_fd_create_func cno_trigger_func ia_ha_related_func handle_extendedop_func
";

#[test]
fn provider_table_has_its_81_words_in_order() {
    let table = describe::RECORDS
        .iter()
        .copied()
        .flatten()
        .find(|record| record.name == "DAT_PROVIDER")
        .unwrap();
    assert_eq!(table.fields.len(), 81);
    for (index, (word, field)) in PROVIDER_WORDS.split_whitespace().zip(table.fields).enumerate() {
        assert_eq!((word, index * 8, 8), (field.name, field.offset, field.size));
    }
}

#[test]
fn status_words_are_taken_apart_as_they_were_put_together() {
    const STATUS: DAT_RETURN = DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    assert_eq!(STATUS, 0x8005_000c);
    assert_eq!(DAT_GET_TYPE(STATUS), DAT_INVALID_HANDLE);
    assert_eq!(DAT_GET_SUBTYPE(STATUS), DAT_INVALID_HANDLE_EP);
    assert!(!DAT_IS_WARNING(STATUS));
    assert!(DAT_IS_WARNING(DAT_CLASS_WARNING | DAT_TIMEOUT_EXPIRED));
}

#[test]
fn constants_have_the_measured_values() {
    assert_eq!(DAT_THREAD_SAFETY_NOT_FOUND, 103);
    assert_eq!(DAT_INVALID_STATE_SRQ_SHUTDOWN, 88);
    assert_eq!(DAT_NOT_IMPLEMENTED, 0x3fff_0000);
    assert_eq!((DAT_SRQ_STATE_ERROR, DAT_SRQ_STATE_OPERATIONAL, DAT_SRQ_STATE_SHUTDOWN), (0, 1, 2));
    assert_eq!((DAT_CNO_FIELD_PROXY, DAT_CNO_FIELD_ALL), (3, 4));
    assert_eq!(DAT_IA_FIELD_ALL, 0x3f_ffff_ffff);
    assert_eq!(DAT_EP_FIELD_ALL, 0x7fff_ffff);
    assert_eq!(DAT_PROVIDER_FIELD_ALL, 0x7fff_ffff);
    assert_eq!(DAT_EVD_DEFAULT_FLAG, 0x1f0);
    assert_eq!(DAT_TIMEOUT_INFINITE, 0xffff_ffff);
    assert_eq!(
        (ib::DCNT_IA_ALL_COUNTERS, ib::DCNT_EP_ALL_COUNTERS, ib::DCNT_EVD_ALL_COUNTERS),
        (85, 24, 10)
    );
}
