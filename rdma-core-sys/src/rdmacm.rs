//! The functions of librdmacm.

use std::ffi::{c_int, c_void};

use libc::sockaddr;

use crate::describe::functions;
use crate::{
    ibv_qp_attr, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_port_space,
};

functions! {
    /// The functions of librdmacm. If a function returns null or -1, it has failed, and errno has
    /// the reason. The functions' manual pages state when a call is safe.
    pub struct RdmaCm {
        /// Creates an event channel.
        pub fn rdma_create_event_channel() -> *mut rdma_event_channel;
        /// Destroys an event channel.
        pub fn rdma_destroy_event_channel(channel: *mut rdma_event_channel);
        /// Takes the next event, which must be acknowledged later. Waits for an event if the
        /// channel's descriptor is in blocking mode.
        pub fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int;
        /// Acknowledges and frees an event. Destroying an identifier waits until its events are
        /// acknowledged.
        pub fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;

        /// Creates an identifier.
        pub fn rdma_create_id(
            channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, context: *mut c_void, ps: rdma_port_space,
        ) -> c_int;
        /// Destroys an identifier in any state. The events of the identifier must be acknowledged.
        pub fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
        /// Binds an identifier to a local address, and thereby to a device. For port 0 the function
        /// chooses a port.
        pub fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
        /// Resolves an address. The resolution ends with the event `ADDR_RESOLVED` or `ADDR_ERROR`.
        pub fn rdma_resolve_addr(
            id: *mut rdma_cm_id, src_addr: *mut sockaddr, dst_addr: *mut sockaddr, timeout_ms: c_int,
        ) -> c_int;
        /// Resolves the route. The resolution ends with the event `ROUTE_RESOLVED` or
        /// `ROUTE_ERROR`.
        pub fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
        /// Starts to listen for connection requests.
        pub fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
        /// Returns the local port of an identifier in network byte order.
        pub fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16;

        /// Sends a connection request.
        pub fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
        /// Confirms the connection after the event `CONNECT_RESPONSE`, when the queue pair is
        /// ready.
        pub fn rdma_establish(id: *mut rdma_cm_id) -> c_int;
        /// Accepts a connection request.
        pub fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
        /// Rejects a connection request.
        pub fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int;
        /// Ends a connection.
        pub fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
        /// Returns the attributes to set for the state in `qp_attr.qp_state`.
        pub fn rdma_init_qp_attr(id: *mut rdma_cm_id, qp_attr: *mut ibv_qp_attr, qp_attr_mask: *mut c_int) -> c_int;
    }
}
