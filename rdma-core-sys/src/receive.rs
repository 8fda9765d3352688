//! Shared receive queues.

use std::ffi::c_void;

use crate::describe::{constants, records};
use crate::{ibv_context, ibv_pd};

constants! {
    /// A mask that selects the members of [`ibv_srq_attr`] to change.
    pub type ibv_srq_attr_mask = i32 {
        IBV_SRQ_MAX_WR = 1 << 0,
        IBV_SRQ_LIMIT = 1 << 1,
    }
}

records! {
    /// A shared receive queue.
    pub struct ibv_srq {
        /// The device to which the shared receive queue belongs.
        pub context: *mut ibv_context,
        /// The context that the owner has set.
        pub srq_context: *mut c_void,
        /// The protection domain of the shared receive queue.
        pub pd: *mut ibv_pd,
        /// The kernel's handle of the shared receive queue.
        pub handle: u32,
        /// Only the library uses this member.
        pub mutex: libc::pthread_mutex_t,
        /// Only the library uses this member.
        pub cond: libc::pthread_cond_t,
        /// Only the library uses this member.
        pub events_completed: u32,
    }

    /// The size and the limit of a shared receive queue.
    #[derive(Debug)]
    pub struct ibv_srq_attr {
        /// The maximum number of work requests in the queue.
        pub max_wr: u32,
        /// The maximum number of segments of one work request.
        pub max_sge: u32,
        /// If fewer work requests than this are left, one
        /// [`IBV_EVENT_SRQ_LIMIT_REACHED`](crate::IBV_EVENT_SRQ_LIMIT_REACHED) is raised. With the
        /// value 0, no event is raised.
        pub srq_limit: u32,
    }

    /// The attributes of a new shared receive queue.
    pub struct ibv_srq_init_attr {
        /// The context that the owner has set.
        pub srq_context: *mut c_void,
        /// The size and the limit.
        pub attr: ibv_srq_attr,
    }
}
