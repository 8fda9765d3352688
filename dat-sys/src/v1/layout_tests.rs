//! Compares sizes and offsets with numbers that were measured with the 1.2 headers of Linux on
//! x86_64.

use core::mem::offset_of;

// Types that differ from 2.0 are imported explicitly and take precedence over the glob import.
use crate::v1::{
    DAT_CNO_PARAM, DAT_CR_ARRIVAL_EVENT_DATA, DAT_DTO_COMPLETION_EVENT_DATA, DAT_EP_ATTR,
    DAT_EP_PARAM, DAT_EVENT, DAT_EVENT_DATA, DAT_IA_ATTR, DAT_LMR_PARAM, DAT_LMR_TRIPLET,
    DAT_PROVIDER, DAT_PROVIDER_ATTR, DAT_RMR_PARAM, DAT_RMR_TRIPLET,
};
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
        DAT_LMR_TRIPLET 24 {
            virtual_address 8/8,
            segment_length 16/8,
            lmr_context 0/4,
            pad 4/4,
        }
        DAT_RMR_TRIPLET 24 {
            segment_length 16/8,
            rmr_context 0/4,
            pad 4/4,
            target_address 8/8,
        }
        DAT_RMR_PARAM 48 {
            ia_handle 0/8,
            pz_handle 8/8,
            lmr_triplet 16/24,
            mem_priv 40/4,
            rmr_context 44/4,
        }
        DAT_EP_ATTR 104 {
            service_type 0/4,
            max_message_size 8/8,
            max_rdma_size 16/8,
            qos 24/4,
            recv_completion_flags 28/4,
            request_completion_flags 32/4,
            max_recv_dtos 36/4,
            max_request_dtos 40/4,
            max_recv_iov 44/4,
            max_request_iov 48/4,
            max_rdma_read_in 52/4,
            max_rdma_read_out 56/4,
            srq_soft_hw 60/4,
            max_rdma_read_iov 64/4,
            max_rdma_write_iov 68/4,
            ep_transport_specific_count 72/4,
            ep_transport_specific 80/8,
            ep_provider_specific_count 88/4,
            ep_provider_specific 96/8,
        }
        DAT_EP_PARAM 192 {
            ia_handle 0/8,
            ep_state 8/4,
            local_ia_address_ptr 16/8,
            local_port_qual 24/8,
            remote_ia_address_ptr 32/8,
            remote_port_qual 40/8,
            pz_handle 48/8,
            recv_evd_handle 56/8,
            request_evd_handle 64/8,
            connect_evd_handle 72/8,
            srq_handle 80/8,
            ep_attr 88/104,
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
            transfered_length 24/8,
        }
        DAT_CR_ARRIVAL_EVENT_DATA 32 {
            sp_handle 0/8,
            local_ia_address_ptr 8/8,
            conn_qual 16/8,
            cr_handle 24/8,
        }
        DAT_CONNECTION_EVENT_DATA 24 {
            ep_handle 0/8,
            private_data_size 8/4,
            private_data 16/8,
        }
        DAT_EVENT 48 {
            event_number 0/4,
            evd_handle 8/8,
            event_data 16/32,
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
            lmr_context 52/4,
            rmr_context 56/4,
            registered_size 64/8,
            registered_address 72/8,
        }
        DAT_CNO_PARAM 24 {
            ia_handle 0/8,
            agent 8/16,
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
            max_lmr_block_size 568/8,
            max_lmr_virtual_address 576/8,
            max_pzs 584/4,
            max_message_size 592/8,
            max_rdma_size 600/8,
            max_rmrs 608/4,
            max_rmr_target_address 616/8,
            max_srqs 624/4,
            max_ep_per_srq 628/4,
            max_recv_per_srq 632/4,
            max_iov_segments_per_rdma_read 636/4,
            max_iov_segments_per_rdma_write 640/4,
            max_rdma_read_in 644/4,
            max_rdma_read_out 648/4,
            max_rdma_read_per_ep_in_guaranteed 652/4,
            max_rdma_read_per_ep_out_guaranteed 656/4,
            num_transport_attr 660/4,
            transport_attr 664/8,
            num_vendor_attr 672/4,
            vendor_attr 680/8,
        }
        DAT_PROVIDER_ATTR 504 {
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
            num_provider_specific_attr 488/4,
            provider_specific_attr 496/8,
        }
        DAT_PROVIDER_INFO 268 {
            ia_name 0/256,
            dapl_version_major 256/4,
            dapl_version_minor 260/4,
            is_thread_safe 264/4,
        }
        DAT_REGION_DESCRIPTION 16 {}
        DAT_EVENT_DATA 32 {}
        DAT_PROVIDER 560 {}
    }
}

#[test]
fn the_table_is_the_beginning_of_the_one_of_2_0() {
    let fields = |records: &'static [&'static [describe::Record]]| {
        let mut all = records.iter().copied().flatten();
        all.find(|record| record.name == "DAT_PROVIDER").expect("the structure is declared").fields
    };
    let (old, new) = (fields(v1::RECORDS), fields(describe::RECORDS));
    assert_eq!(old.len(), 70);
    for (old, new) in old.iter().zip(new) {
        assert_eq!((old.name, old.offset, old.size), (new.name, new.offset, new.size));
    }
}

#[test]
fn every_status_of_2_0_has_its_number_of_1_2() {
    let changed =
        || v1::error::CONSTANTS.iter().filter(|constant| constant.name != "DAT_NOT_IMPLEMENTED");
    let mut seen = 0;
    for old in changed() {
        let new = error::CONSTANTS.iter().find(|new| new.name == old.name).expect("a name of 2.0");
        assert_eq!(v1::status(new.value as u32), old.value as u32, "{}", old.name);
        let subtype = if old.value == 0 { "" } else { old.name };
        assert_eq!(v1::status_names(old.value as u32), Some(("DAT_SUCCESS", subtype)));
        seen += 1;
    }
    assert_eq!(seen, 102);
}

#[test]
fn statuses_keep_class_and_type() {
    assert_eq!(v1::status(DAT_SUCCESS), DAT_SUCCESS);
    assert_eq!(
        v1::status(DAT_QUEUE_EMPTY),
        0x000d_0000,
        "a status without a class must stay without one"
    );
    assert_eq!(v1::status(DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3)), 0x8006_0026);
    assert_eq!(
        v1::status(DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_SHUTDOWN)),
        0x8007_0055
    );
    assert_eq!(v1::status(DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CSP)), 0x8005_001a);
    assert_eq!(v1::status(DAT_ERROR(DAT_NOT_IMPLEMENTED, 0)), 0xffff_0000);
    assert_eq!(v1::status(DAT_ERROR(DAT_PORT_IN_USE, 0)), 0x8002_0000);
    assert_eq!(v1::status_names(0xffff_0000), Some(("DAT_NOT_IMPLEMENTED", "")));
    assert_eq!(v1::status_names(0x8016_0000), None);
    assert_eq!(v1::status_names(0x8005_0066), None);
}

#[test]
fn what_2_0_added_is_of_2_0() {
    let names = || {
        let constants = describe::CONSTANTS.iter().copied().flatten().map(|constant| constant.name);
        constants.chain(describe::RECORDS.iter().copied().flatten().map(|record| record.name))
    };
    for added in v1::ADDED_IN_2_0 {
        assert!(names().any(|name| name == *added), "{added}");
        assert!(!v1::constants().any(|constant| constant.name == *added), "{added}");
    }
}
