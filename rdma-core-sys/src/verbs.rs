//! The functions of libibverbs. The functions that C defines inline are in `inline`.

use std::ffi::{c_char, c_int, c_void};

use crate::describe::functions;
use crate::{
    ibv_ah, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device,
    ibv_device_attr, ibv_gid, ibv_mr, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_srq,
    ibv_srq_attr, ibv_srq_init_attr,
};

/// The original attributes of a port: the first 44 bytes of
/// [`ibv_port_attr`](crate::ibv_port_attr), which has grown since.
#[repr(C)]
pub struct _compat_ibv_port_attr(());

functions! {
    /// The functions of libibverbs. If a function returns a null pointer or a non-zero integer, it
    /// has failed. The reason is in errno or is the integer. The functions' manual pages state when
    /// a call is safe: pointers must refer to live objects of the library, and an object must not
    /// be destroyed while another object uses it.
    pub struct Verbs {
        /// Returns the name of a device, such as `rxe0`.
        pub fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
        /// Opens a device.
        pub fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
        /// Closes a device. All objects created from it must be destroyed before.
        pub fn ibv_close_device(context: *mut ibv_context) -> c_int;
        /// Queries the limits and the identification of a device.
        pub fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
        /// Queries those attributes of a port that existed in 2005; see the method `query_port`.
        pub fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut _compat_ibv_port_attr) -> c_int;
        /// Queries an entry of the port's table of GIDs.
        pub fn ibv_query_gid(
            context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid,
        ) -> c_int;
        /// Takes the next asynchronous event, which must be acknowledged later. Waits for an event
        /// if `async_fd` is in blocking mode.
        pub fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
        /// Acknowledges an event. The destruction of an object waits until the object's events are
        /// acknowledged.
        pub fn ibv_ack_async_event(event: *mut ibv_async_event);
        /// Protects registered memory from fork(2). This function must be called before any other
        /// function of the library.
        pub fn ibv_fork_init() -> c_int;

        /// Creates a protection domain.
        pub fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
        /// Destroys a protection domain.
        pub fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
        /// Registers memory.
        pub fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
        /// Registers memory like `ibv_reg_mr`, but segments and peers use `iova` as the address of
        /// the memory.
        pub fn ibv_reg_mr_iova(
            pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int,
        ) -> *mut ibv_mr;
        /// Deregisters memory.
        pub fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;

        /// Creates a completion channel.
        pub fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
        /// Destroys a completion channel.
        pub fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
        /// Creates a completion queue for at least `cqe` completions.
        pub fn ibv_create_cq(
            context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel,
            comp_vector: c_int,
        ) -> *mut ibv_cq;
        /// Changes the size of a completion queue.
        pub fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int;
        /// Waits until all events of a completion queue are acknowledged, and destroys the queue.
        pub fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
        /// Takes the next completion event, which must be acknowledged later. Waits for an event if
        /// the channel's descriptor is in blocking mode.
        pub fn ibv_get_cq_event(
            channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void,
        ) -> c_int;
        /// Acknowledges `nevents` events. The function takes a lock.
        pub fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: u32);

        /// Creates a shared receive queue.
        pub fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
        /// Changes the size or the limit of a shared receive queue.
        pub fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int;
        /// Destroys a shared receive queue.
        pub fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;

        /// Creates a queue pair, in the state [`IBV_QPS_RESET`](crate::IBV_QPS_RESET).
        pub fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
        /// Modifies the attributes of a queue pair.
        pub fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
        /// Queries the attributes of a queue pair.
        pub fn ibv_query_qp(
            qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init_attr: *mut ibv_qp_init_attr,
        ) -> c_int;
        /// Waits until all events of a queue pair are acknowledged, and destroys the queue pair.
        /// Work requests that were posted to the queue pair no longer complete.
        pub fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;

        /// Creates an address handle. On RoCE, the function looks up the MAC address of the peer,
        /// and may wait for the peer's answer.
        pub fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
        /// Destroys an address handle. No posted request may use it any more.
        pub fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
    }
}
