//! Memory: protection zones, local and remote memory regions, and the segments that name parts of
//! them.

use core::ffi::{c_char, c_uint};
use core::fmt;

use crate::describe::{constants, records};
use crate::*;

/// The name of a shared memory region: a pointer to [`DAT_LMR_COOKIE_SIZE`] bytes, which are the
/// same in every process.
pub type DAT_LMR_COOKIE = *mut [c_char; DAT_LMR_COOKIE_SIZE];

constants! {
    /// The type of memory that a [`DAT_REGION_DESCRIPTION`] describes. As a provider attribute, the
    /// value is a mask of the supported types.
    pub type DAT_MEM_TYPE = c_uint {
        DAT_MEM_TYPE_VIRTUAL = 0,
        DAT_MEM_TYPE_LMR = 1,
        DAT_MEM_TYPE_SHARED_VIRTUAL = 2,
    }

    /// The privileges to access memory.
    pub type DAT_MEM_PRIV_FLAGS = c_uint {
        DAT_MEM_PRIV_NONE_FLAG = 0x0,
        DAT_MEM_PRIV_LOCAL_READ_FLAG = 0x1,
        DAT_MEM_PRIV_REMOTE_READ_FLAG = 0x2,
        DAT_MEM_PRIV_LOCAL_WRITE_FLAG = 0x10,
        DAT_MEM_PRIV_REMOTE_WRITE_FLAG = 0x20,
        DAT_MEM_PRIV_ALL_FLAG = 0x33,
        DAT_MEM_PRIV_EXTENSION_BASE = 0x40,
        /// A name of DAT 1.0 for the privileges of local and remote read.
        DAT_MEM_PRIV_READ_FLAG = DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG,
        /// A name of DAT 1.0 for the privileges of local and remote write.
        DAT_MEM_PRIV_WRITE_FLAG = DAT_MEM_PRIV_LOCAL_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG,
    }

    /// The meaning of the addresses in a region: virtual or zero-based.
    pub type DAT_VA_TYPE = c_uint {
        DAT_VA_TYPE_VA = 0,
        DAT_VA_TYPE_ZB = 1,
    }

    /// The protection scope of an RMR.
    pub type DAT_RMR_SCOPE = c_uint {
        DAT_RMR_SCOPE_EP = 0,
        DAT_RMR_SCOPE_PZ = 1,
        DAT_RMR_SCOPE_ANY = 2,
    }

    /// A mask of the fields of [`DAT_PZ_PARAM`] that dat_pz_query returns.
    pub type DAT_PZ_PARAM_MASK = c_uint {
        DAT_PZ_FIELD_IA_HANDLE = 0x1,
        DAT_PZ_FIELD_ALL = 0x1,
    }

    /// A mask of the fields of [`DAT_LMR_PARAM`] that dat_lmr_query returns.
    pub type DAT_LMR_PARAM_MASK = c_uint {
        DAT_LMR_FIELD_IA_HANDLE = 0x1,
        DAT_LMR_FIELD_MEM_TYPE = 0x2,
        DAT_LMR_FIELD_REGION_DESC = 0x4,
        DAT_LMR_FIELD_LENGTH = 0x8,
        DAT_LMR_FIELD_PZ_HANDLE = 0x10,
        DAT_LMR_FIELD_MEM_PRIV = 0x20,
        DAT_LMR_FIELD_VA_TYPE = 0x40,
        DAT_LMR_FIELD_LMR_CONTEXT = 0x80,
        DAT_LMR_FIELD_RMR_CONTEXT = 0x100,
        DAT_LMR_FIELD_REGISTERED_SIZE = 0x200,
        DAT_LMR_FIELD_REGISTERED_ADDRESS = 0x400,
        DAT_LMR_FIELD_ALL = 0x7ff,
    }

    /// A mask of the fields of [`DAT_RMR_PARAM`] that dat_rmr_query returns.
    pub type DAT_RMR_PARAM_MASK = c_uint {
        DAT_RMR_FIELD_IA_HANDLE = 0x1,
        DAT_RMR_FIELD_PZ_HANDLE = 0x2,
        DAT_RMR_FIELD_LMR_TRIPLET = 0x4,
        DAT_RMR_FIELD_MEM_PRIV = 0x8,
        DAT_RMR_FIELD_RMR_CONTEXT = 0x10,
        DAT_RMR_FIELD_RMR_SCOPE = 0x20,
        DAT_RMR_FIELD_VA_TYPE = 0x40,
        DAT_RMR_FIELD_ALL = 0x7f,
    }
}

records! {
    /// One local segment of a DTO. If the length is 0, the other members are ignored.
    #[derive(Debug)]
    pub struct DAT_LMR_TRIPLET {
        /// The start of the segment, an address in the region.
        pub virtual_address: DAT_VADDR,
        /// The length of the segment in bytes.
        pub segment_length: DAT_SEG_LENGTH,
        /// The key of the region.
        pub lmr_context: DAT_LMR_CONTEXT,
    }

    /// One remote segment of an RDMA operation.
    #[derive(Debug)]
    pub struct DAT_RMR_TRIPLET {
        /// The start of the segment, an address in the remote region.
        pub virtual_address: DAT_VADDR,
        /// The length of the segment in bytes.
        pub segment_length: DAT_SEG_LENGTH,
        /// The key of the remote region.
        pub rmr_context: DAT_RMR_CONTEXT,
    }

    /// Memory that several processes register together.
    #[derive(Debug)]
    pub struct DAT_SHARED_MEMORY {
        /// The address of the memory in this process.
        pub virtual_address: DAT_PVOID,
        /// The name of the memory.
        pub shared_memory_id: DAT_LMR_COOKIE,
    }

    /// The memory to register, passed by value. [`DAT_MEM_TYPE`] says which member is valid.
    pub union DAT_REGION_DESCRIPTION {
        /// For `DAT_MEM_TYPE_VIRTUAL`: the start address.
        pub for_va: DAT_PVOID,
        /// For `DAT_MEM_TYPE_LMR`: an existing region.
        pub for_lmr_handle: DAT_LMR_HANDLE,
        /// For `DAT_MEM_TYPE_SHARED_VIRTUAL`: the shared memory.
        pub for_shared_memory: DAT_SHARED_MEMORY,
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
        /// The meaning of the addresses in the region.
        pub va_type: DAT_VA_TYPE,
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
        /// The protection scope.
        pub rmr_scope: DAT_RMR_SCOPE,
        /// The meaning of the addresses in the region.
        pub va_type: DAT_VA_TYPE,
    }

    /// The result of dat_pz_query.
    #[derive(Debug)]
    pub struct DAT_PZ_PARAM {
        /// The IA of the protection zone.
        pub ia_handle: DAT_IA_HANDLE,
    }
}

impl fmt::Debug for DAT_REGION_DESCRIPTION {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DAT_REGION_DESCRIPTION { .. }")
    }
}
