//! Protection domains, regions, windows.

use std::ffi::{c_uint, c_void};

use crate::describe::{constants, records};
use crate::ibv_context;

constants! {
    /// What may be done to a region or a window, and how its bytes are named.
    pub type ibv_access_flags = c_uint {
        IBV_ACCESS_LOCAL_WRITE = 1,
        IBV_ACCESS_REMOTE_WRITE = 1 << 1,
        IBV_ACCESS_REMOTE_READ = 1 << 2,
        IBV_ACCESS_REMOTE_ATOMIC = 1 << 3,
        /// Windows may be bound to it.
        IBV_ACCESS_MW_BIND = 1 << 4,
        /// Addresses count from 0 at its start.
        IBV_ACCESS_ZERO_BASED = 1 << 5,
    }

    /// The kind of a window.
    pub type ibv_mw_type = c_uint {
        /// Bound by a call; for all queue pairs of its domain.
        IBV_MW_TYPE_1 = 1,
        /// Bound by a work request, its key partly the consumer's choice; may be invalidated.
        IBV_MW_TYPE_2 = 2,
    }
}

records! {
    /// A protection domain.
    pub struct ibv_pd {
        /// Its device.
        pub context: *mut ibv_context,
        /// The kernel's name for it.
        pub handle: u32,
    }

    /// A memory region.
    pub struct ibv_mr {
        /// Its device.
        pub context: *mut ibv_context,
        /// Its domain.
        pub pd: *mut ibv_pd,
        /// First byte.
        pub addr: *mut c_void,
        /// Bytes.
        pub length: usize,
        /// The kernel's name for it.
        pub handle: u32,
        /// Names it in local segments.
        pub lkey: u32,
        /// Names it to peers.
        pub rkey: u32,
    }

    /// A memory window.
    pub struct ibv_mw {
        /// Its device.
        pub context: *mut ibv_context,
        /// Its domain.
        pub pd: *mut ibv_pd,
        /// Names it to peers.
        pub rkey: u32,
        /// The kernel's name for it.
        pub handle: u32,
        /// Its kind (`type` in C).
        pub r#type: ibv_mw_type,
    }

    /// What a window shall show.
    pub struct ibv_mw_bind_info {
        /// A part of this region.
        pub mr: *mut ibv_mr,
        /// The first byte.
        pub addr: u64,
        /// Bytes; 0 unbinds a window of type 1.
        pub length: u64,
        /// What peers may do.
        pub mw_access_flags: ibv_access_flags,
    }

    /// A bind of a window of type 1.
    pub struct ibv_mw_bind {
        /// Comes back in the completion.
        pub wr_id: u64,
        /// As those of a work request.
        pub send_flags: c_uint,
        /// What it shall show.
        pub bind_info: ibv_mw_bind_info,
    }
}
