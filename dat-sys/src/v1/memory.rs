//! Segments and regions of uDAPL 1.2. Lengths have 64 bits, the context is the first member, and
//! there are no address types.

use core::ffi::c_uint;

use crate::describe::{constants, records};
use crate::*;

constants! {
    /// A mask of the fields of [`DAT_LMR_PARAM`] that dat_lmr_query returns.
    pub type DAT_LMR_PARAM_MASK = c_uint {
        DAT_LMR_FIELD_LMR_CONTEXT = 0x40,
        DAT_LMR_FIELD_RMR_CONTEXT = 0x80,
        DAT_LMR_FIELD_REGISTERED_SIZE = 0x100,
        DAT_LMR_FIELD_REGISTERED_ADDRESS = 0x200,
        DAT_LMR_FIELD_ALL = 0x3ff,
    }

    /// A mask of the fields of [`DAT_RMR_PARAM`] that dat_rmr_query returns.
    pub type DAT_RMR_PARAM_MASK = c_uint {
        DAT_RMR_FIELD_ALL = 0x1f,
    }
}

records! {
    /// One local segment of a DTO. If the length is 0, the other members are ignored.
    #[derive(Debug)]
    pub struct DAT_LMR_TRIPLET {
        /// The key of the region.
        pub lmr_context: DAT_LMR_CONTEXT,
        /// Unused bytes.
        pub pad: u32,
        /// The start of the segment, an address in the region.
        pub virtual_address: DAT_VADDR,
        /// The length of the segment in bytes.
        pub segment_length: DAT_VLEN,
    }

    /// One remote segment of an RDMA operation.
    #[derive(Debug)]
    pub struct DAT_RMR_TRIPLET {
        /// The key of the remote region.
        pub rmr_context: DAT_RMR_CONTEXT,
        /// Unused bytes.
        pub pad: u32,
        /// The start of the segment, an address in the remote region.
        pub target_address: DAT_VADDR,
        /// The length of the segment in bytes.
        pub segment_length: DAT_VLEN,
    }

    /// The result of dat_lmr_query.
    #[derive(Debug)]
    pub struct DAT_LMR_PARAM {
        /// The IA of the region.
        pub ia_handle: DAT_IA_HANDLE,
        /// The kind of memory.
        pub mem_type: DAT_MEM_TYPE,
        /// The memory, as the consumer described it.
        pub region_desc: DAT_REGION_DESCRIPTION,
        /// The length in bytes that the consumer asked for.
        pub length: DAT_VLEN,
        /// The protection zone of the region.
        pub pz_handle: DAT_PZ_HANDLE,
        /// The privileges of the region.
        pub mem_priv: DAT_MEM_PRIV_FLAGS,
        /// The key for local segments.
        pub lmr_context: DAT_LMR_CONTEXT,
        /// The key for remote peers.
        pub rmr_context: DAT_RMR_CONTEXT,
        /// The size of the registered memory in bytes. Providers may round it up to pages. This
        /// library's providers never do.
        pub registered_size: DAT_VLEN,
        /// The start of the registered memory. Providers may round it down to a page.
        pub registered_address: DAT_VADDR,
    }

    /// The result of dat_rmr_query.
    #[derive(Debug)]
    pub struct DAT_RMR_PARAM {
        /// The IA of the region.
        pub ia_handle: DAT_IA_HANDLE,
        /// The protection zone of the region.
        pub pz_handle: DAT_PZ_HANDLE,
        /// The memory to which the region is bound.
        pub lmr_triplet: DAT_LMR_TRIPLET,
        /// The privileges with which the region was bound.
        pub mem_priv: DAT_MEM_PRIV_FLAGS,
        /// The key for remote peers.
        pub rmr_context: DAT_RMR_CONTEXT,
    }
}
