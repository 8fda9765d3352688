//! rdma_cm: identifiers, event channels, events.

use std::ffi::{c_int, c_uint, c_void};

use crate::describe::{constants, records};
use crate::{ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_qp_type, ibv_srq};

constants! {
    /// The events of an identifier.
    pub type rdma_cm_event_type = c_uint {
        RDMA_CM_EVENT_ADDR_RESOLVED = 0,
        RDMA_CM_EVENT_ADDR_ERROR = 1,
        RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
        RDMA_CM_EVENT_ROUTE_ERROR = 3,
        RDMA_CM_EVENT_CONNECT_REQUEST = 4,
        /// The peer has accepted. This event is reported only for identifiers without a queue pair.
        RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
        RDMA_CM_EVENT_CONNECT_ERROR = 6,
        RDMA_CM_EVENT_UNREACHABLE = 7,
        RDMA_CM_EVENT_REJECTED = 8,
        RDMA_CM_EVENT_ESTABLISHED = 9,
        RDMA_CM_EVENT_DISCONNECTED = 10,
        RDMA_CM_EVENT_DEVICE_REMOVAL = 11,
        RDMA_CM_EVENT_MULTICAST_JOIN = 12,
        RDMA_CM_EVENT_MULTICAST_ERROR = 13,
        /// The network interface has moved to another device.
        RDMA_CM_EVENT_ADDR_CHANGE = 14,
        RDMA_CM_EVENT_TIMEWAIT_EXIT = 15,
    }

    /// A port space, which determines the meaning of a port number.
    pub type rdma_port_space = c_uint {
        /// The port space of reliable connections.
        RDMA_PS_TCP = 0x0106,
        /// The port space of datagrams.
        RDMA_PS_UDP = 0x0111,
    }

    /// The queue key of datagrams.
    pub type rdma_queue_key = u32 {
        /// The key of all queue pairs of the port space for datagrams.
        RDMA_UDP_QKEY = 0x0123_4567,
    }

    /// The limits of members of [`rdma_conn_param`].
    pub type rdma_depth = u8 {
        RDMA_MAX_RESP_RES = 0xff,
        RDMA_MAX_INIT_DEPTH = 0xff,
    }
}

records! {
    /// The InfiniBand addresses of both ends of a connection.
    #[derive(Debug)]
    pub struct rdma_ib_addr {
        /// The source address.
        pub sgid: ibv_gid,
        /// The destination address.
        pub dgid: ibv_gid,
        /// The partition key in network byte order.
        pub pkey: u16,
    }

    /// The addresses of both ends in the layer below IP.
    pub union rdma_addr_below {
        /// The InfiniBand addresses.
        pub ibaddr: rdma_ib_addr,
    }

    /// The addresses of both ends.
    pub struct rdma_addr {
        /// The local address, which is part of an anonymous union in C.
        pub src_storage: libc::sockaddr_storage,
        /// The peer's address.
        pub dst_storage: libc::sockaddr_storage,
        /// The addresses of the layer below IP.
        pub addr: rdma_addr_below,
    }

    /// The route to the peer.
    pub struct rdma_route {
        /// The addresses of both ends.
        pub addr: rdma_addr,
        /// The InfiniBand path records.
        pub path_rec: *mut c_void,
        /// The number of path records.
        pub num_paths: c_int,
    }

    /// A channel that reports events of identifiers.
    pub struct rdma_event_channel {
        /// The file descriptor, which is readable when there is an event.
        pub fd: c_int,
    }

    /// An identifier of rdma_cm, which stands for a connection, an attempt to connect, or a
    /// listener.
    pub struct rdma_cm_id {
        /// The device to which the identifier is bound, or null. The context belongs to librdmacm
        /// and does not come from ibv_open_device.
        pub verbs: *mut ibv_context,
        /// The channel that reports the events of the identifier.
        pub channel: *mut rdma_event_channel,
        /// The context that the owner has set.
        pub context: *mut c_void,
        /// The queue pair, if rdma_create_qp has created one.
        pub qp: *mut ibv_qp,
        /// The addresses of both ends.
        pub route: rdma_route,
        /// The port space of the identifier.
        pub ps: rdma_port_space,
        /// The port of the device.
        pub port_num: u8,
        /// The latest event, if the identifier is used synchronously.
        pub event: *mut rdma_cm_event,
        /// A member that only rdma_create_ep sets.
        pub send_cq_channel: *mut ibv_comp_channel,
        /// A member that only rdma_create_ep sets.
        pub send_cq: *mut ibv_cq,
        /// A member that only rdma_create_ep sets.
        pub recv_cq_channel: *mut ibv_comp_channel,
        /// A member that only rdma_create_ep sets.
        pub recv_cq: *mut ibv_cq,
        /// A member that only rdma_create_srq sets.
        pub srq: *mut ibv_srq,
        /// The protection domain.
        pub pd: *mut ibv_pd,
        /// The kind of queue pair.
        pub qp_type: ibv_qp_type,
    }

    /// The parameters that the two ends exchange.
    #[derive(Debug)]
    pub struct rdma_conn_param {
        /// The private data for the peer.
        pub private_data: *const c_void,
        /// The length of the private data in bytes.
        pub private_data_len: u8,
        /// The number of READs and atomic operations that this side can hold as responder.
        pub responder_resources: u8,
        /// The number of READs and atomic operations that this side can have outstanding.
        pub initiator_depth: u8,
        /// Whether end-to-end flow control is used.
        pub flow_control: u8,
        /// The number of retries after a time-out. The function rdma_accept ignores this member.
        pub retry_count: u8,
        /// The number of retries after an RNR NAK. The value 7 means no limit.
        pub rnr_retry_count: u8,
        /// Whether the queue pair uses a shared receive queue. This member and `qp_num` are used
        /// only if rdma_create_qp has not created the queue pair.
        pub srq: u8,
        /// The number of the queue pair.
        pub qp_num: u32,
    }

    /// The parameters for datagrams.
    pub struct rdma_ud_param {
        /// The private data for the peer.
        pub private_data: *const c_void,
        /// The length of the private data in bytes.
        pub private_data_len: u8,
        /// The address of the peer.
        pub ah_attr: crate::ibv_ah_attr,
        /// The number of the peer's queue pair.
        pub qp_num: u32,
        /// The queue key of the peer.
        pub qkey: u32,
    }

    /// The parameters of an event. The port space selects the valid member.
    pub union rdma_event_param {
        /// The parameters of a connection.
        pub conn: rdma_conn_param,
        /// The parameters of a datagram.
        pub ud: rdma_ud_param,
    }

    /// An event.
    pub struct rdma_cm_event {
        /// The identifier. A connection request has a new identifier.
        pub id: *mut rdma_cm_id,
        /// The listener that received a connection request.
        pub listen_id: *mut rdma_cm_id,
        /// The kind of event.
        pub event: rdma_cm_event_type,
        /// The status: 0, a negative errno, or the reason for a rejection.
        pub status: c_int,
        /// The parameters from the peer.
        pub param: rdma_event_param,
    }
}
