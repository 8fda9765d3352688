//! Segments and regions: lengths have 64 bits, the context comes first, and there are no address
//! types.

use core::ffi::c_uint;

use crate::describe::{constants, records};
use crate::*;

constants! {
    /// Fields of [`DAT_LMR_PARAM`] wanted, dat_lmr_query.
    pub type DAT_LMR_PARAM_MASK = c_uint {
        DAT_LMR_FIELD_LMR_CONTEXT = 0x40,
        DAT_LMR_FIELD_RMR_CONTEXT = 0x80,
        DAT_LMR_FIELD_REGISTERED_SIZE = 0x100,
        DAT_LMR_FIELD_REGISTERED_ADDRESS = 0x200,
        DAT_LMR_FIELD_ALL = 0x3ff,
    }

    /// Fields of [`DAT_RMR_PARAM`] wanted, dat_rmr_query.
    pub type DAT_RMR_PARAM_MASK = c_uint {
        DAT_RMR_FIELD_ALL = 0x1f,
    }
}

records! {
    /// One local segment of a DTO. With length 0 the other members are ignored.
    #[derive(Debug)]
    pub struct DAT_LMR_TRIPLET {
        /// Key of the region.
        pub lmr_context: DAT_LMR_CONTEXT,
        /// Nothing.
        pub pad: u32,
        /// Start, an address in the region.
        pub virtual_address: DAT_VADDR,
        /// Bytes.
        pub segment_length: DAT_VLEN,
    }

    /// One remote segment of an RDMA operation.
    #[derive(Debug)]
    pub struct DAT_RMR_TRIPLET {
        /// Key of the remote region.
        pub rmr_context: DAT_RMR_CONTEXT,
        /// Nothing.
        pub pad: u32,
        /// Start, an address in the remote region.
        pub target_address: DAT_VADDR,
        /// Bytes.
        pub segment_length: DAT_VLEN,
    }

    /// Result of dat_lmr_query.
    #[derive(Debug)]
    pub struct DAT_LMR_PARAM {
        /// IA of the region.
        pub ia_handle: DAT_IA_HANDLE,
        /// Kind of memory.
        pub mem_type: DAT_MEM_TYPE,
        /// The memory, as the consumer described it.
        pub region_desc: DAT_REGION_DESCRIPTION,
        /// Bytes asked for.
        pub length: DAT_VLEN,
        /// Its protection zone.
        pub pz_handle: DAT_PZ_HANDLE,
        /// Privileges.
        pub mem_priv: DAT_MEM_PRIV_FLAGS,
        /// Key for local segments.
        pub lmr_context: DAT_LMR_CONTEXT,
        /// Key for remote peers.
        pub rmr_context: DAT_RMR_CONTEXT,
        /// Bytes registered, after rounding to pages.
        pub registered_size: DAT_VLEN,
        /// Start of the registered memory, after rounding to pages.
        pub registered_address: DAT_VADDR,
    }

    /// Result of dat_rmr_query.
    #[derive(Debug)]
    pub struct DAT_RMR_PARAM {
        /// IA of the region.
        pub ia_handle: DAT_IA_HANDLE,
        /// Its protection zone.
        pub pz_handle: DAT_PZ_HANDLE,
        /// The memory it is bound to.
        pub lmr_triplet: DAT_LMR_TRIPLET,
        /// Privileges it was bound with.
        pub mem_priv: DAT_MEM_PRIV_FLAGS,
        /// Key for remote peers.
        pub rmr_context: DAT_RMR_CONTEXT,
    }
}
