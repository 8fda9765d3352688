//! Protection domains, regions, windows.

use std::ffi::{c_uint, c_void};

use crate::describe::{constants, records};
use crate::ibv_context;

constants! {
    /// The permitted access to a region or window, and its kind of addresses.
    pub type ibv_access_flags = c_uint {
        IBV_ACCESS_LOCAL_WRITE = 1,
        IBV_ACCESS_REMOTE_WRITE = 1 << 1,
        IBV_ACCESS_REMOTE_READ = 1 << 2,
        IBV_ACCESS_REMOTE_ATOMIC = 1 << 3,
        /// Windows may be bound to the region.
        IBV_ACCESS_MW_BIND = 1 << 4,
        /// Addresses start at 0.
        IBV_ACCESS_ZERO_BASED = 1 << 5,
    }

    /// The kind of a window.
    pub type ibv_mw_type = c_uint {
        /// The function `ibv_bind_mw` binds the window. All queue pairs of its protection domain
        /// can use the window.
        IBV_MW_TYPE_1 = 1,
        /// A work request binds the window. The consumer chooses a part of the window's key, and
        /// can invalidate the window.
        IBV_MW_TYPE_2 = 2,
    }
}

records! {
    /// A protection domain.
    pub struct ibv_pd {
        /// The device to which the protection domain belongs.
        pub context: *mut ibv_context,
        /// The kernel's handle of the protection domain.
        pub handle: u32,
    }

    /// A memory region.
    pub struct ibv_mr {
        /// The device to which the region belongs.
        pub context: *mut ibv_context,
        /// The protection domain of the region.
        pub pd: *mut ibv_pd,
        /// The address of the first byte.
        pub addr: *mut c_void,
        /// The length in bytes.
        pub length: usize,
        /// The kernel's handle of the region.
        pub handle: u32,
        /// The key for local segments.
        pub lkey: u32,
        /// The key for peers.
        pub rkey: u32,
    }

    /// A memory window.
    pub struct ibv_mw {
        /// The device to which the window belongs.
        pub context: *mut ibv_context,
        /// The protection domain of the window.
        pub pd: *mut ibv_pd,
        /// The key for peers.
        pub rkey: u32,
        /// The kernel's handle of the window.
        pub handle: u32,
        /// The kind of the window (`type` in C).
        pub r#type: ibv_mw_type,
    }

    /// The memory to which a window is bound.
    pub struct ibv_mw_bind_info {
        /// The region that contains the memory.
        pub mr: *mut ibv_mr,
        /// The address of the first byte.
        pub addr: u64,
        /// The length in bytes. The value 0 unbinds a window of type 1.
        pub length: u64,
        /// The access that peers get.
        pub mw_access_flags: ibv_access_flags,
    }

    /// A bind of a window of type 1.
    pub struct ibv_mw_bind {
        /// A number that identifies the request in its completion.
        pub wr_id: u64,
        /// The flags, which are those of a work request.
        pub send_flags: c_uint,
        /// The memory to which the window is bound.
        pub bind_info: ibv_mw_bind_info,
    }
}
