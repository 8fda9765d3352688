//! Shared receive queues.

use std::ffi::c_void;

use crate::describe::{constants, records};
use crate::{ibv_context, ibv_pd};

constants! {
    /// Selects the members of [`ibv_srq_attr`] to change.
    pub type ibv_srq_attr_mask = i32 {
        IBV_SRQ_MAX_WR = 1 << 0,
        IBV_SRQ_LIMIT = 1 << 1,
    }
}

records! {
    /// A shared receive queue.
    pub struct ibv_srq {
        /// Its device.
        pub context: *mut ibv_context,
        /// The owner's context.
        pub srq_context: *mut c_void,
        /// Its domain.
        pub pd: *mut ibv_pd,
        /// The kernel's handle.
        pub handle: u32,
        /// Private to the library.
        pub mutex: libc::pthread_mutex_t,
        /// Private to the library.
        pub cond: libc::pthread_cond_t,
        /// Private to the library.
        pub events_completed: u32,
    }

    /// Size and limit of a shared receive queue.
    #[derive(Debug)]
    pub struct ibv_srq_attr {
        /// Size in work requests.
        pub max_wr: u32,
        /// Segments of one work request.
        pub max_sge: u32,
        /// If fewer work requests are left, one
        /// [`IBV_EVENT_SRQ_LIMIT_REACHED`](crate::IBV_EVENT_SRQ_LIMIT_REACHED) is raised; 0: never.
        pub srq_limit: u32,
    }

    /// Attributes of a new shared receive queue.
    pub struct ibv_srq_init_attr {
        /// The owner's context.
        pub srq_context: *mut c_void,
        /// Size.
        pub attr: ibv_srq_attr,
    }
}
