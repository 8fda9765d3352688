//! Attributes of adapters and providers: sizes have 64 bits, and the additions of 2.0 are missing.

use core::ffi::{c_char, c_int};

use crate::describe::{constants, records};
use crate::*;

constants! {
    /// Version of the API.
    pub type DAT_API_NUMBER = c_int {
        DAT_VERSION_MAJOR = 1,
        DAT_VERSION_MINOR = 2,
    }

    /// Fields of [`DAT_IA_ATTR`] wanted, dat_ia_query. Below these they are those of 2.0.
    pub type DAT_IA_ATTR_MASK = u64 {
        DAT_IA_FIELD_IA_NUM_TRANSPORT_ATTR = 0x8000_0000,
        DAT_IA_FIELD_IA_TRANSPORT_ATTR = 0x1_0000_0000,
        DAT_IA_FIELD_IA_NUM_VENDOR_ATTR = 0x2_0000_0000,
        DAT_IA_FIELD_IA_VENDOR_ATTR = 0x4_0000_0000,
        DAT_IA_FIELD_ALL = 0x7_ffff_ffff,
        /// DAT 1.0 name.
        DAT_IA_ALL = DAT_IA_FIELD_ALL,
    }

    /// Fields of [`DAT_PROVIDER_ATTR`] wanted, dat_ia_query. Below these they are those of 2.0.
    pub type DAT_PROVIDER_ATTR_MASK = u64 {
        DAT_PROVIDER_FIELD_NUM_PROVIDER_SPECIFIC_ATTR = 0x100_0000,
        DAT_PROVIDER_FIELD_PROVIDER_SPECIFIC_ATTR = 0x200_0000,
        DAT_PROVIDER_FIELD_ALL = 0x3ff_ffff,
    }
}

records! {
    /// Attributes of an interface adapter, dat_ia_query. Limits are maxima; sizes are in bytes.
    #[derive(Debug)]
    pub struct DAT_IA_ATTR {
        /// Name of the adapter, NUL-terminated.
        pub adapter_name: [c_char; DAT_NAME_MAX_LENGTH],
        /// Name of the vendor, NUL-terminated.
        pub vendor_name: [c_char; DAT_NAME_MAX_LENGTH],
        /// Hardware version, major.
        pub hardware_version_major: u32,
        /// Hardware version, minor.
        pub hardware_version_minor: u32,
        /// Firmware version, major.
        pub firmware_version_major: u32,
        /// Firmware version, minor.
        pub firmware_version_minor: u32,
        /// Its address, owned by the provider.
        pub ia_address_ptr: DAT_IA_ADDRESS_PTR,
        /// Endpoints.
        pub max_eps: DAT_COUNT,
        /// DTOs outstanding on a work queue of an EP.
        pub max_dto_per_ep: DAT_COUNT,
        /// RDMA reads in progress on an EP as target.
        pub max_rdma_read_per_ep_in: DAT_COUNT,
        /// RDMA reads in progress on an EP as initiator.
        pub max_rdma_read_per_ep_out: DAT_COUNT,
        /// Event dispatchers.
        pub max_evds: DAT_COUNT,
        /// Events in an EVD.
        pub max_evd_qlen: DAT_COUNT,
        /// Segments of a send or receive.
        pub max_iov_segments_per_dto: DAT_COUNT,
        /// Local memory regions.
        pub max_lmrs: DAT_COUNT,
        /// Bytes of a contiguous region.
        pub max_lmr_block_size: DAT_VLEN,
        /// Highest address that can be registered.
        pub max_lmr_virtual_address: DAT_VADDR,
        /// Protection zones.
        pub max_pzs: DAT_COUNT,
        /// Bytes of a send.
        pub max_message_size: DAT_VLEN,
        /// Bytes of an RDMA operation.
        pub max_rdma_size: DAT_VLEN,
        /// Remote memory regions.
        pub max_rmrs: DAT_COUNT,
        /// Highest address that an RMR can have.
        pub max_rmr_target_address: DAT_VADDR,
        /// Shared receive queues.
        pub max_srqs: DAT_COUNT,
        /// Endpoints of one SRQ.
        pub max_ep_per_srq: DAT_COUNT,
        /// Receives posted to one SRQ.
        pub max_recv_per_srq: DAT_COUNT,
        /// Segments of an RDMA read.
        pub max_iov_segments_per_rdma_read: DAT_COUNT,
        /// Segments of an RDMA write.
        pub max_iov_segments_per_rdma_write: DAT_COUNT,
        /// RDMA reads in progress on the IA as target.
        pub max_rdma_read_in: DAT_COUNT,
        /// RDMA reads in progress on the IA as initiator.
        pub max_rdma_read_out: DAT_COUNT,
        /// Whether every EP can have its inbound maximum at once.
        pub max_rdma_read_per_ep_in_guaranteed: DAT_BOOLEAN,
        /// Whether every EP can have its outbound maximum at once.
        pub max_rdma_read_per_ep_out_guaranteed: DAT_BOOLEAN,
        /// Number of `transport_attr`.
        pub num_transport_attr: DAT_COUNT,
        /// Attributes of the transport, owned by the provider.
        pub transport_attr: *mut DAT_NAMED_ATTR,
        /// Number of `vendor_attr`.
        pub num_vendor_attr: DAT_COUNT,
        /// Attributes of the vendor, owned by the provider.
        pub vendor_attr: *mut DAT_NAMED_ATTR,
    }

    /// Attributes of a provider, dat_ia_query.
    #[derive(Debug)]
    pub struct DAT_PROVIDER_ATTR {
        /// Name of the provider, NUL-terminated.
        pub provider_name: [c_char; DAT_NAME_MAX_LENGTH],
        /// Version of the provider, major.
        pub provider_version_major: u32,
        /// Version of the provider, minor.
        pub provider_version_minor: u32,
        /// Version of the API, major.
        pub dapl_version_major: u32,
        /// Version of the API, minor.
        pub dapl_version_minor: u32,
        /// Mask of memory types.
        pub lmr_mem_types_supported: DAT_MEM_TYPE,
        /// Who owns the segment array when a post returns.
        pub iov_ownership_on_return: DAT_IOV_OWNERSHIP,
        /// Mask of qualities of service.
        pub dat_qos_supported: DAT_QOS,
        /// Mask of completion flags.
        pub completion_flags_supported: DAT_COMPLETION_FLAGS,
        /// Whether calls need no locking by the consumer.
        pub is_thread_safe: DAT_BOOLEAN,
        /// Bytes of private data that connection calls accept.
        pub max_private_data_size: DAT_COUNT,
        /// Whether connections can use several paths.
        pub supports_multipath: DAT_BOOLEAN,
        /// When the provider creates endpoints for service points.
        pub ep_creator: DAT_EP_CREATOR_FOR_PSP,
        /// Whether protection zones can be shared.
        pub pz_support: DAT_PZ_SUPPORT,
        /// Buffer alignment in bytes with the best performance.
        pub optimal_buffer_alignment: u32,
        /// Which streams may share an EVD; rows and columns: software, CR, DTO, connection, RMR
        /// bind, asynchronous.
        pub evd_stream_merging_supported: [[DAT_BOOLEAN; 6]; 6],
        /// Whether shared receive queues are supported.
        pub srq_supported: DAT_BOOLEAN,
        /// Number of SRQ watermarks.
        pub srq_watermarks_supported: DAT_COUNT,
        /// Whether an EP may have another protection zone than its SRQ.
        pub srq_ep_pz_difference_supported: DAT_BOOLEAN,
        /// Which counts dat_srq_query returns.
        pub srq_info_supported: DAT_COUNT,
        /// Which counts dat_ep_recv_query returns.
        pub ep_recv_info_supported: DAT_COUNT,
        /// Whether dat_lmr_sync_rdma_read and _write are required.
        pub lmr_sync_req: DAT_BOOLEAN,
        /// Whether a post never waits for the operation.
        pub dto_async_return_guaranteed: DAT_BOOLEAN,
        /// Whether the sink of an RDMA read needs remote write privilege.
        pub rdma_write_for_rdma_read_req: DAT_BOOLEAN,
        /// Number of `provider_specific_attr`.
        pub num_provider_specific_attr: DAT_COUNT,
        /// Attributes of the provider, owned by it.
        pub provider_specific_attr: *mut DAT_NAMED_ATTR,
    }
}
