//! The attributes of interface adapters and providers.

use core::ffi::{c_char, c_uint};

use crate::describe::{constants, records};
use crate::*;

constants! {
    /// Flags that choose how dat_ia_close and dat_ep_disconnect treat work in progress.
    pub type DAT_CLOSE_FLAGS = c_uint {
        DAT_CLOSE_ABRUPT_FLAG = 0,
        DAT_CLOSE_GRACEFUL_FLAG = 1,
        DAT_CLOSE_DEFAULT = DAT_CLOSE_ABRUPT_FLAG,
    }

    /// The transport extension that an IA supports.
    pub type DAT_EXTENSION = c_uint {
        DAT_EXTENSION_NONE = 0,
        DAT_EXTENSION_IB = 1,
        DAT_EXTENSION_IW = 2,
        /// A constant that shows that the headers have the IB extension.
        DAT_IB_EXTENSION = DAT_EXTENSION_IB,
        /// A constant that shows that the headers have the iWARP extension.
        DAT_IW_EXTENSION = DAT_EXTENSION_IW,
    }

    /// Whether protection zones can be shared by the objects of several IAs.
    pub type DAT_PZ_SUPPORT = c_uint {
        DAT_PZ_UNIQUE = 0,
        DAT_PZ_SHAREABLE = 1,
    }

    /// Who owns the segment array after a post returns.
    pub type DAT_IOV_OWNERSHIP = c_uint {
        DAT_IOV_CONSUMER = 0,
        DAT_IOV_PROVIDER_NOMOD = 1,
        DAT_IOV_PROVIDER_MOD = 2,
    }

    /// When the provider creates endpoints for service points.
    pub type DAT_EP_CREATOR_FOR_PSP = c_uint {
        DAT_PSP_CREATES_EP_NEVER = 0,
        DAT_PSP_CREATES_EP_IFASKED = 1,
        DAT_PSP_CREATES_EP_ALWAYS = 2,
    }

    /// The kind of load balancing over several paths.
    pub type DAT_HA_LB = u32 {
        DAT_HA_LB_NONE = 0,
        DAT_HA_LB_INTERCOMM = 1,
        DAT_HA_LB_INTRACOMM = 2,
    }

    /// Whether two IAs share a point of failure. dat_registry_providers_related returns this value.
    pub type DAT_HA_RELATIONSHIP = c_uint {
        DAT_HA_FALSE = 0,
        DAT_HA_TRUE = 1,
        DAT_HA_UNKNOWN = 2,
        DAT_HA_CONFLICTING = 3,
        DAT_HA_EXTENSION_BASE = 4,
    }

    /// A mask of the fields of [`DAT_IA_ATTR`] that dat_ia_query returns.
    pub type DAT_IA_ATTR_MASK = u64 {
        DAT_IA_FIELD_NONE = 0x0,
        DAT_IA_FIELD_IA_ADAPTER_NAME = 0x1,
        DAT_IA_FIELD_IA_VENDOR_NAME = 0x2,
        DAT_IA_FIELD_IA_HARDWARE_MAJOR_VERSION = 0x4,
        DAT_IA_FIELD_IA_HARDWARE_MINOR_VERSION = 0x8,
        DAT_IA_FIELD_IA_FIRMWARE_MAJOR_VERSION = 0x10,
        DAT_IA_FIELD_IA_FIRMWARE_MINOR_VERSION = 0x20,
        DAT_IA_FIELD_IA_ADDRESS_PTR = 0x40,
        DAT_IA_FIELD_IA_MAX_EPS = 0x80,
        DAT_IA_FIELD_IA_MAX_DTO_PER_EP = 0x100,
        DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_IN = 0x200,
        DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_OUT = 0x400,
        DAT_IA_FIELD_IA_MAX_EVDS = 0x800,
        DAT_IA_FIELD_IA_MAX_EVD_QLEN = 0x1000,
        DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_DTO = 0x2000,
        DAT_IA_FIELD_IA_MAX_LMRS = 0x4000,
        DAT_IA_FIELD_IA_MAX_LMR_BLOCK_SIZE = 0x8000,
        DAT_IA_FIELD_IA_MAX_LMR_VIRTUAL_ADDRESS = 0x1_0000,
        DAT_IA_FIELD_IA_MAX_PZS = 0x2_0000,
        DAT_IA_FIELD_IA_MAX_MESSAGE_SIZE = 0x4_0000,
        DAT_IA_FIELD_IA_MAX_RDMA_SIZE = 0x8_0000,
        DAT_IA_FIELD_IA_MAX_RMRS = 0x10_0000,
        DAT_IA_FIELD_IA_MAX_RMR_TARGET_ADDRESS = 0x20_0000,
        DAT_IA_FIELD_IA_MAX_SRQS = 0x40_0000,
        DAT_IA_FIELD_IA_MAX_EP_PER_SRQ = 0x80_0000,
        DAT_IA_FIELD_IA_MAX_RECV_PER_SRQ = 0x100_0000,
        DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_RDMA_READ = 0x200_0000,
        DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_RDMA_WRITE = 0x400_0000,
        DAT_IA_FIELD_IA_MAX_RDMA_READ_IN = 0x800_0000,
        DAT_IA_FIELD_IA_MAX_RDMA_READ_OUT = 0x1000_0000,
        DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_IN_GUARANTEED = 0x2000_0000,
        DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_OUT_GUARANTEED = 0x4000_0000,
        DAT_IA_FIELD_IA_ZB_SUPPORTED = 0x8000_0000,
        DAT_IA_FIELD_IA_EXTENSION = 0x1_0000_0000,
        DAT_IA_FIELD_IA_EXTENSIONS_SUPPORTED = DAT_IA_FIELD_IA_EXTENSION,
        DAT_IA_FIELD_IA_EXTENSION_VERSION = 0x2_0000_0000,
        DAT_IA_FIELD_IA_NUM_TRANSPORT_ATTR = 0x4_0000_0000,
        DAT_IA_FIELD_IA_TRANSPORT_ATTR = 0x8_0000_0000,
        DAT_IA_FIELD_IA_NUM_VENDOR_ATTR = 0x10_0000_0000,
        DAT_IA_FIELD_IA_VENDOR_ATTR = 0x20_0000_0000,
        DAT_IA_FIELD_ALL = 0x3f_ffff_ffff,
        /// The DAT 1.0 name of `DAT_IA_FIELD_ALL`.
        DAT_IA_ALL = DAT_IA_FIELD_ALL,
        /// The DAT 1.0 name of `DAT_IA_FIELD_IA_MAX_MESSAGE_SIZE`.
        DAT_IA_FIELD_IA_MAX_MTU_SIZE = DAT_IA_FIELD_IA_MAX_MESSAGE_SIZE,
    }

    /// A mask of the fields of [`DAT_PROVIDER_ATTR`] that dat_ia_query returns.
    pub type DAT_PROVIDER_ATTR_MASK = u64 {
        DAT_PROVIDER_FIELD_PROVIDER_NAME = 0x1,
        DAT_PROVIDER_FIELD_PROVIDER_VERSION_MAJOR = 0x2,
        DAT_PROVIDER_FIELD_PROVIDER_VERSION_MINOR = 0x4,
        DAT_PROVIDER_FIELD_DAPL_VERSION_MAJOR = 0x8,
        DAT_PROVIDER_FIELD_DAPL_VERSION_MINOR = 0x10,
        DAT_PROVIDER_FIELD_LMR_MEM_TYPE_SUPPORTED = 0x20,
        DAT_PROVIDER_FIELD_IOV_OWNERSHIP = 0x40,
        DAT_PROVIDER_FIELD_DAT_QOS_SUPPORTED = 0x80,
        DAT_PROVIDER_FIELD_COMPLETION_FLAGS_SUPPORTED = 0x100,
        DAT_PROVIDER_FIELD_IS_THREAD_SAFE = 0x200,
        DAT_PROVIDER_FIELD_MAX_PRIVATE_DATA_SIZE = 0x400,
        DAT_PROVIDER_FIELD_SUPPORTS_MULTIPATH = 0x800,
        DAT_PROVIDER_FIELD_EP_CREATOR = 0x1000,
        DAT_PROVIDER_FIELD_PZ_SUPPORT = 0x2000,
        DAT_PROVIDER_FIELD_OPTIMAL_BUFFER_ALIGNMENT = 0x4000,
        DAT_PROVIDER_FIELD_EVD_STREAM_MERGING_SUPPORTED = 0x8000,
        DAT_PROVIDER_FIELD_SRQ_SUPPORTED = 0x1_0000,
        DAT_PROVIDER_FIELD_SRQ_WATERMARKS_SUPPORTED = 0x2_0000,
        DAT_PROVIDER_FIELD_SRQ_EP_PZ_DIFFERENCE_SUPPORTED = 0x4_0000,
        DAT_PROVIDER_FIELD_SRQ_INFO_SUPPORTED = 0x8_0000,
        DAT_PROVIDER_FIELD_EP_RECV_INFO_SUPPORTED = 0x10_0000,
        DAT_PROVIDER_FIELD_LMR_SYNC_REQ = 0x20_0000,
        DAT_PROVIDER_FIELD_DTO_ASYNC_RETURN_GUARANTEED = 0x40_0000,
        DAT_PROVIDER_FIELD_RDMA_WRITE_FOR_RDMA_READ_REQ = 0x80_0000,
        DAT_PROVIDER_FIELD_RDMA_READ_LMR_RMR_CONTEXT_EXPOSURE = 0x100_0000,
        DAT_PROVIDER_FIELD_RMR_SCOPE_SUPPORTED = 0x200_0000,
        DAT_PROVIDER_FIELD_IS_SIGNAL_SAFE = 0x400_0000,
        DAT_PROVIDER_FIELD_HA_SUPPORTED = 0x800_0000,
        DAT_PROVIDER_FIELD_HA_LB = 0x1000_0000,
        DAT_PROVIDER_FIELD_NUM_PROVIDER_SPECIFIC_ATTR = 0x2000_0000,
        DAT_PROVIDER_FIELD_PROVIDER_SPECIFIC_ATTR = 0x4000_0000,
        DAT_PROVIDER_FIELD_ALL = 0x7fff_ffff,
        DAT_PROVIDER_FIELD_NONE = 0x0,
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
        pub max_lmr_block_size: DAT_SEG_LENGTH,
        /// The highest address that can be registered.
        pub max_lmr_virtual_address: DAT_VADDR,
        /// The maximum number of protection zones.
        pub max_pzs: DAT_COUNT,
        /// The maximum size of a send in bytes.
        pub max_message_size: DAT_SEG_LENGTH,
        /// The maximum size of an RDMA operation in bytes.
        pub max_rdma_size: DAT_SEG_LENGTH,
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
        /// Whether zero-based regions are supported.
        pub zb_supported: DAT_BOOLEAN,
        /// The supported transport extension.
        pub extension_supported: DAT_EXTENSION,
        /// The version of the extension.
        pub extension_version: DAT_COUNT,
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
        /// When the provider creates the endpoints for service points.
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
        /// Whether an RDMA read exposes the context of its local sink to the peer.
        pub rdma_read_lmr_rmr_context_exposure: DAT_BOOLEAN,
        /// The supported protection scopes of RMRs.
        pub rmr_scope_supported: DAT_RMR_SCOPE,
        /// Whether calls can be made from signal handlers.
        pub is_signal_safe: DAT_BOOLEAN,
        /// Whether high availability is supported.
        pub ha_supported: DAT_BOOLEAN,
        /// The kind of load balancing over several paths.
        pub ha_loadbalancing: DAT_HA_LB,
        /// The number of elements of `provider_specific_attr`.
        pub num_provider_specific_attr: DAT_COUNT,
        /// The attributes of the provider, which owns the memory.
        pub provider_specific_attr: *mut DAT_NAMED_ATTR,
    }

    /// An entry of the registry: the name of an IA and the API of its provider.
    #[derive(Debug)]
    pub struct DAT_PROVIDER_INFO {
        /// The name of the IA, NUL-terminated.
        pub ia_name: [c_char; DAT_NAME_MAX_LENGTH],
        /// The major version of the API.
        pub dapl_version_major: u32,
        /// The minor version of the API.
        pub dapl_version_minor: u32,
        /// Whether the provider is thread-safe, so that the consumer need not lock its calls.
        pub is_thread_safe: DAT_BOOLEAN,
    }
}
