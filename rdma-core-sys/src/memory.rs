//! Protection domains, regions, windows.

use std::ffi::{c_uint, c_void};

use crate::describe::{constants, records};
use crate::ibv_context;

constants! {
    /// Permitted access to a region or window, and its kind of addresses.
    pub type ibv_access_flags = c_uint {
        IBV_ACCESS_LOCAL_WRITE = 1,
        IBV_ACCESS_REMOTE_WRITE = 1 << 1,
        IBV_ACCESS_REMOTE_READ = 1 << 2,
        IBV_ACCESS_REMOTE_ATOMIC = 1 << 3,
        /// Windows may be bound to it.
        IBV_ACCESS_MW_BIND = 1 << 4,
        /// Addresses start at 0.
        IBV_ACCESS_ZERO_BASED = 1 << 5,
    }

    /// The kind of a window.
    pub type ibv_mw_type = c_uint {
        /// Bound by a call; usable by all queue pairs of its protection domain.
        IBV_MW_TYPE_1 = 1,
        /// Bound by a work request. The consumer chooses a part of its key. It can be invalidated.
        IBV_MW_TYPE_2 = 2,
    }
}

records! {
    /// A protection domain.
    pub struct ibv_pd {
        /// Its device.
        pub context: *mut ibv_context,
        /// The kernel's handle.
        pub handle: u32,
    }

    /// A memory region.
    pub struct ibv_mr {
        /// Its device.
        pub context: *mut ibv_context,
        /// Its domain.
        pub pd: *mut ibv_pd,
        /// Address of the first byte.
        pub addr: *mut c_void,
        /// Length in bytes.
        pub length: usize,
        /// The kernel's handle.
        pub handle: u32,
        /// The key for local segments.
        pub lkey: u32,
        /// The key for peers.
        pub rkey: u32,
    }

    /// A memory window.
    pub struct ibv_mw {
        /// Its device.
        pub context: *mut ibv_context,
        /// Its domain.
        pub pd: *mut ibv_pd,
        /// The key for peers.
        pub rkey: u32,
        /// The kernel's handle.
        pub handle: u32,
        /// Its kind (`type` in C).
        pub r#type: ibv_mw_type,
    }

    /// The memory that a window is bound to.
    pub struct ibv_mw_bind_info {
        /// The region that contains the memory.
        pub mr: *mut ibv_mr,
        /// Address of the first byte.
        pub addr: u64,
        /// Bytes; 0 unbinds a window of type 1.
        pub length: u64,
        /// The access that peers get.
        pub mw_access_flags: ibv_access_flags,
    }

    /// A bind of a window of type 1.
    pub struct ibv_mw_bind {
        /// Identifies the request in its completion.
        pub wr_id: u64,
        /// Flags as in a work request.
        pub send_flags: c_uint,
        /// The memory to bind to.
        pub bind_info: ibv_mw_bind_info,
    }
}
