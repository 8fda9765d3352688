//! Shared receive queues.

use std::ffi::c_void;

use crate::describe::{constants, records};
use crate::{ibv_context, ibv_pd};

constants! {
    /// Which members of [`ibv_srq_attr`] are to be changed.
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
        /// The owner's.
        pub srq_context: *mut c_void,
        /// Its domain.
        pub pd: *mut ibv_pd,
        /// The kernel's name for it.
        pub handle: u32,
        /// The library's.
        pub mutex: libc::pthread_mutex_t,
        /// The library's.
        pub cond: libc::pthread_cond_t,
        /// The library's.
        pub events_completed: u32,
    }

    /// Its size and limit.
    #[derive(Debug)]
    pub struct ibv_srq_attr {
        /// Work requests that fit.
        pub max_wr: u32,
        /// Segments of one.
        pub max_sge: u32,
        /// Fewer than so many left: [`IBV_EVENT_SRQ_LIMIT_REACHED`](crate::IBV_EVENT_SRQ_LIMIT_REACHED), once; 0: never.
        pub srq_limit: u32,
    }

    /// How to make one.
    pub struct ibv_srq_init_attr {
        /// The owner's.
        pub srq_context: *mut c_void,
        /// Size.
        pub attr: ibv_srq_attr,
    }
}
