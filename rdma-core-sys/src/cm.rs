//! rdma_cm: identifiers, event channels, events.

use std::ffi::{c_int, c_uint, c_void};

use crate::describe::{constants, records};
use crate::{ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_qp_type, ibv_srq};

constants! {
    /// What happened to an identifier.
    pub type rdma_cm_event_type = c_uint {
        RDMA_CM_EVENT_ADDR_RESOLVED = 0,
        RDMA_CM_EVENT_ADDR_ERROR = 1,
        RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
        RDMA_CM_EVENT_ROUTE_ERROR = 3,
        RDMA_CM_EVENT_CONNECT_REQUEST = 4,
        /// The peer has accepted; of an identifier without a queue pair.
        RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
        RDMA_CM_EVENT_CONNECT_ERROR = 6,
        RDMA_CM_EVENT_UNREACHABLE = 7,
        RDMA_CM_EVENT_REJECTED = 8,
        RDMA_CM_EVENT_ESTABLISHED = 9,
        RDMA_CM_EVENT_DISCONNECTED = 10,
        RDMA_CM_EVENT_DEVICE_REMOVAL = 11,
        RDMA_CM_EVENT_MULTICAST_JOIN = 12,
        RDMA_CM_EVENT_MULTICAST_ERROR = 13,
        /// The network below has moved to another device.
        RDMA_CM_EVENT_ADDR_CHANGE = 14,
        RDMA_CM_EVENT_TIMEWAIT_EXIT = 15,
    }

    /// What a port number means.
    pub type rdma_port_space = c_uint {
        /// Reliable connections.
        RDMA_PS_TCP = 0x0106,
        /// Datagrams.
        RDMA_PS_UDP = 0x0111,
    }

    /// Limits of [`rdma_conn_param`].
    pub type rdma_depth = u8 {
        RDMA_MAX_RESP_RES = 0xff,
        RDMA_MAX_INIT_DEPTH = 0xff,
    }
}

records! {
    /// The address of InfiniBand below that of IP.
    #[derive(Debug)]
    pub struct rdma_ib_addr {
        /// Source.
        pub sgid: ibv_gid,
        /// Destination.
        pub dgid: ibv_gid,
        /// Partition, network byte order.
        pub pkey: u16,
    }

    /// Both ends, below IP.
    pub union rdma_addr_below {
        /// In InfiniBand's terms.
        pub ibaddr: rdma_ib_addr,
    }

    /// Both ends, as socket addresses.
    pub struct rdma_addr {
        /// This one; has no name of its own in C.
        pub src_storage: libc::sockaddr_storage,
        /// The peer's.
        pub dst_storage: libc::sockaddr_storage,
        /// Below.
        pub addr: rdma_addr_below,
    }

    /// How to the peer.
    pub struct rdma_route {
        /// From where to where.
        pub addr: rdma_addr,
        /// Paths of InfiniBand.
        pub path_rec: *mut c_void,
        /// How many.
        pub num_paths: c_int,
    }

    /// Where identifiers tell of events.
    pub struct rdma_event_channel {
        /// Readable when there is an event.
        pub fd: c_int,
    }

    /// An identifier: a connection, an attempt at one, or a listener.
    pub struct rdma_cm_id {
        /// The device it is bound to, or null. The library's context, not one of ibv_open_device.
        pub verbs: *mut ibv_context,
        /// Where it tells of events.
        pub channel: *mut rdma_event_channel,
        /// The owner's.
        pub context: *mut c_void,
        /// The queue pair, if rdma_create_qp made it.
        pub qp: *mut ibv_qp,
        /// From where to where.
        pub route: rdma_route,
        /// What port numbers mean.
        pub ps: rdma_port_space,
        /// The device's port.
        pub port_num: u8,
        /// Of synchronous use.
        pub event: *mut rdma_cm_event,
        /// Of rdma_create_ep.
        pub send_cq_channel: *mut ibv_comp_channel,
        /// Of rdma_create_ep.
        pub send_cq: *mut ibv_cq,
        /// Of rdma_create_ep.
        pub recv_cq_channel: *mut ibv_comp_channel,
        /// Of rdma_create_ep.
        pub recv_cq: *mut ibv_cq,
        /// Of rdma_create_srq.
        pub srq: *mut ibv_srq,
        /// Domain.
        pub pd: *mut ibv_pd,
        /// Kind of queue pair.
        pub qp_type: ibv_qp_type,
    }

    /// What the two ends tell each other.
    #[derive(Debug)]
    pub struct rdma_conn_param {
        /// For the peer's consumer.
        pub private_data: *const c_void,
        /// Bytes.
        pub private_data_len: u8,
        /// READs and atomics this side holds.
        pub responder_resources: u8,
        /// READs and atomics this side has outstanding.
        pub initiator_depth: u8,
        /// End-to-end flow control.
        pub flow_control: u8,
        /// Retries after a time-out; not used in an accept.
        pub retry_count: u8,
        /// Retries after an RNR NAK; 7: no limit.
        pub rnr_retry_count: u8,
        /// Its queue pair is on a shared receive queue. Used, as is the next, if rdma_create_qp did not make it.
        pub srq: u8,
        /// Its queue pair.
        pub qp_num: u32,
    }

    /// What is told of datagrams.
    pub struct rdma_ud_param {
        /// For the peer's consumer.
        pub private_data: *const c_void,
        /// Bytes.
        pub private_data_len: u8,
        /// Its address.
        pub ah_attr: crate::ibv_ah_attr,
        /// Its number.
        pub qp_num: u32,
        /// Its key.
        pub qkey: u32,
    }

    /// What depends on the kind of port.
    pub union rdma_event_param {
        /// Connections.
        pub conn: rdma_conn_param,
        /// Datagrams.
        pub ud: rdma_ud_param,
    }

    /// An event.
    pub struct rdma_cm_event {
        /// What it is about; of a connection request, a new identifier.
        pub id: *mut rdma_cm_id,
        /// The listener, of a connection request.
        pub listen_id: *mut rdma_cm_id,
        /// What happened.
        pub event: rdma_cm_event_type,
        /// 0, a negative errno, or the reason of a rejection.
        pub status: c_int,
        /// What the peer told.
        pub param: rdma_event_param,
    }
}
