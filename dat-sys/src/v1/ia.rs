//! Attributes of adapters and providers of uDAPL 1.2. Sizes have 64 bits, and the additions of 2.0
//! are missing.

use core::ffi::{c_char, c_int};

use crate::describe::{constants, records};
use crate::*;

constants! {
    /// The version of the API.
    pub type DAT_API_NUMBER = c_int {
        DAT_VERSION_MAJOR = 1,
        DAT_VERSION_MINOR = 2,
    }

    /// A mask of the fields of [`DAT_IA_ATTR`] that dat_ia_query returns. The fields with lower
    /// bits than these are the same as in 2.0.
    pub type DAT_IA_ATTR_MASK = u64 {
        DAT_IA_FIELD_IA_NUM_TRANSPORT_ATTR = 0x8000_0000,
        DAT_IA_FIELD_IA_TRANSPORT_ATTR = 0x1_0000_0000,
        DAT_IA_FIELD_IA_NUM_VENDOR_ATTR = 0x2_0000_0000,
        DAT_IA_FIELD_IA_VENDOR_ATTR = 0x4_0000_0000,
        DAT_IA_FIELD_ALL = 0x7_ffff_ffff,
        /// The DAT 1.0 name of `DAT_IA_FIELD_ALL`.
        DAT_IA_ALL = DAT_IA_FIELD_ALL,
    }

    /// A mask of the fields of [`DAT_PROVIDER_ATTR`] that dat_ia_query returns. The fields with
    /// lower bits than these are the same as in 2.0.
    pub type DAT_PROVIDER_ATTR_MASK = u64 {
        DAT_PROVIDER_FIELD_NUM_PROVIDER_SPECIFIC_ATTR = 0x100_0000,
        DAT_PROVIDER_FIELD_PROVIDER_SPECIFIC_ATTR = 0x200_0000,
        DAT_PROVIDER_FIELD_ALL = 0x3ff_ffff,
    }
}

records! {
    /// The attributes of an interface adapter, which dat_ia_query returns. Limits are maxima; sizes
    /// are in bytes.
    #[derive(Debug)]
    pub struct DAT_IA_ATTR {
        /// The name of the adapter, NUL-terminated.
        pub adapter_name: [c_char; DAT_NAME_MAX_LENGTH],
        /// The name of the vendor, NUL-terminated.
        pub vendor_name: [c_char; DAT_NAME_MAX_LENGTH],
        /// The major version of the hardware.
        pub hardware_version_major: u32,
        /// The minor version of the hardware.
        pub hardware_version_minor: u32,
        /// The major version of the firmware.
        pub firmware_version_major: u32,
        /// The minor version of the firmware.
        pub firmware_version_minor: u32,
        /// The address of the adapter. The provider owns the memory.
        pub ia_address_ptr: DAT_IA_ADDRESS_PTR,
        /// The maximum number of endpoints.
        pub max_eps: DAT_COUNT,
        /// The maximum number of outstanding DTOs on a work queue of an EP.
        pub max_dto_per_ep: DAT_COUNT,
        /// The maximum number of RDMA reads in progress on an EP as target.
        pub max_rdma_read_per_ep_in: DAT_COUNT,
        /// The maximum number of RDMA reads in progress on an EP as initiator.
        pub max_rdma_read_per_ep_out: DAT_COUNT,
        /// The maximum number of event dispatchers.
        pub max_evds: DAT_COUNT,
        /// The maximum number of events in an EVD.
        pub max_evd_qlen: DAT_COUNT,
        /// The maximum number of segments of a send or receive.
        pub max_iov_segments_per_dto: DAT_COUNT,
        /// The maximum number of local memory regions.
        pub max_lmrs: DAT_COUNT,
        /// The maximum size of a contiguous region in bytes.
        pub max_lmr_block_size: DAT_VLEN,
        /// The highest address that can be registered.
        pub max_lmr_virtual_address: DAT_VADDR,
        /// The maximum number of protection zones.
        pub max_pzs: DAT_COUNT,
        /// The maximum size of a send in bytes.
        pub max_message_size: DAT_VLEN,
        /// The maximum size of an RDMA operation in bytes.
        pub max_rdma_size: DAT_VLEN,
        /// The maximum number of remote memory regions.
        pub max_rmrs: DAT_COUNT,
        /// The highest address that an RMR can have.
        pub max_rmr_target_address: DAT_VADDR,
        /// The maximum number of shared receive queues.
        pub max_srqs: DAT_COUNT,
        /// The maximum number of endpoints of one SRQ.
        pub max_ep_per_srq: DAT_COUNT,
        /// The maximum number of receives posted to one SRQ.
        pub max_recv_per_srq: DAT_COUNT,
        /// The maximum number of segments of an RDMA read.
        pub max_iov_segments_per_rdma_read: DAT_COUNT,
        /// The maximum number of segments of an RDMA write.
        pub max_iov_segments_per_rdma_write: DAT_COUNT,
        /// The maximum number of RDMA reads in progress on the IA as target.
        pub max_rdma_read_in: DAT_COUNT,
        /// The maximum number of RDMA reads in progress on the IA as initiator.
        pub max_rdma_read_out: DAT_COUNT,
        /// Whether every EP can have its maximum number of inbound RDMA reads at the same time.
        pub max_rdma_read_per_ep_in_guaranteed: DAT_BOOLEAN,
        /// Whether every EP can have its maximum number of outbound RDMA reads at the same time.
        pub max_rdma_read_per_ep_out_guaranteed: DAT_BOOLEAN,
        /// The number of elements of `transport_attr`.
        pub num_transport_attr: DAT_COUNT,
        /// The attributes of the transport. The provider owns the memory.
        pub transport_attr: *mut DAT_NAMED_ATTR,
        /// The number of elements of `vendor_attr`.
        pub num_vendor_attr: DAT_COUNT,
        /// The attributes of the vendor. The provider owns the memory.
        pub vendor_attr: *mut DAT_NAMED_ATTR,
    }

    /// The attributes of a provider, which dat_ia_query returns.
    #[derive(Debug)]
    pub struct DAT_PROVIDER_ATTR {
        /// The name of the provider, NUL-terminated.
        pub provider_name: [c_char; DAT_NAME_MAX_LENGTH],
        /// The major version of the provider.
        pub provider_version_major: u32,
        /// The minor version of the provider.
        pub provider_version_minor: u32,
        /// The major version of the API.
        pub dapl_version_major: u32,
        /// The minor version of the API.
        pub dapl_version_minor: u32,
        /// The mask of the supported memory types.
        pub lmr_mem_types_supported: DAT_MEM_TYPE,
        /// Who owns the segment array when a post returns.
        pub iov_ownership_on_return: DAT_IOV_OWNERSHIP,
        /// The mask of the supported qualities of service.
        pub dat_qos_supported: DAT_QOS,
        /// The mask of the supported completion flags.
        pub completion_flags_supported: DAT_COMPLETION_FLAGS,
        /// Whether the provider is thread-safe, so that the consumer need not lock its calls.
        pub is_thread_safe: DAT_BOOLEAN,
        /// The maximum size in bytes of private data that connection calls accept.
        pub max_private_data_size: DAT_COUNT,
        /// Whether connections can use several paths.
        pub supports_multipath: DAT_BOOLEAN,
        /// When the provider creates endpoints for service points.
        pub ep_creator: DAT_EP_CREATOR_FOR_PSP,
        /// Whether protection zones can be shared.
        pub pz_support: DAT_PZ_SUPPORT,
        /// The alignment of buffers, in bytes, that gives the best performance.
        pub optimal_buffer_alignment: u32,
        /// Which event streams may share an EVD. The order of rows and columns is: software, CR,
        /// DTO, connection, RMR bind, asynchronous.
        pub evd_stream_merging_supported: [[DAT_BOOLEAN; 6]; 6],
        /// Whether shared receive queues are supported.
        pub srq_supported: DAT_BOOLEAN,
        /// The number of supported SRQ watermarks.
        pub srq_watermarks_supported: DAT_COUNT,
        /// Whether an EP may have another protection zone than its SRQ.
        pub srq_ep_pz_difference_supported: DAT_BOOLEAN,
        /// The counts that dat_srq_query returns.
        pub srq_info_supported: DAT_COUNT,
        /// The counts that dat_ep_recv_query returns.
        pub ep_recv_info_supported: DAT_COUNT,
        /// Whether dat_lmr_sync_rdma_read and dat_lmr_sync_rdma_write are required.
        pub lmr_sync_req: DAT_BOOLEAN,
        /// Whether a post returns without waiting for the operation.
        pub dto_async_return_guaranteed: DAT_BOOLEAN,
        /// Whether the sink of an RDMA read needs remote write privilege.
        pub rdma_write_for_rdma_read_req: DAT_BOOLEAN,
        /// The number of elements of `provider_specific_attr`.
        pub num_provider_specific_attr: DAT_COUNT,
        /// The attributes of the provider, which owns the memory.
        pub provider_specific_attr: *mut DAT_NAMED_ATTR,
    }
}
