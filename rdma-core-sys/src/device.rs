//! Devices, their contexts and ports, asynchronous events.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::describe::{constants, records};
use crate::{
    ibv_cq, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq,
    ibv_wc,
};

constants! {
    /// The kind of a device.
    pub type ibv_node_type = c_int {
        IBV_NODE_UNKNOWN = -1,
        IBV_NODE_CA = 1,
        IBV_NODE_RNIC = 4,
    }

    /// The transport of a device.
    pub type ibv_transport_type = c_int {
        IBV_TRANSPORT_UNKNOWN = -1,
        /// The transport of InfiniBand and RoCE.
        IBV_TRANSPORT_IB = 0,
        IBV_TRANSPORT_IWARP = 1,
    }

    /// The capabilities of a device, in [`ibv_device_attr::device_cap_flags`].
    pub type ibv_device_cap_flags = c_uint {
        IBV_DEVICE_RC_RNR_NAK_GEN = 1 << 12,
        IBV_DEVICE_SRQ_RESIZE = 1 << 13,
        IBV_DEVICE_MEM_WINDOW = 1 << 17,
        /// The device supports local and remote invalidation.
        IBV_DEVICE_MEM_MGT_EXTENSIONS = 1 << 21,
        IBV_DEVICE_MEM_WINDOW_TYPE_2A = 1 << 23,
        IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24,
    }

    /// The scope in which atomic operations are atomic.
    pub type ibv_atomic_cap = c_uint {
        IBV_ATOMIC_NONE = 0,
        /// Operations are atomic with respect to other operations of the device.
        IBV_ATOMIC_HCA = 1,
        /// Operations are atomic also with respect to the host's processors.
        IBV_ATOMIC_GLOB = 2,
    }

    /// A path MTU as a code.
    pub type ibv_mtu = c_uint {
        IBV_MTU_256 = 1,
        IBV_MTU_512 = 2,
        IBV_MTU_1024 = 3,
        IBV_MTU_2048 = 4,
        IBV_MTU_4096 = 5,
    }

    /// The state of a port.
    pub type ibv_port_state = c_uint {
        IBV_PORT_NOP = 0,
        IBV_PORT_DOWN = 1,
        IBV_PORT_INIT = 2,
        IBV_PORT_ARMED = 3,
        IBV_PORT_ACTIVE = 4,
        IBV_PORT_ACTIVE_DEFER = 5,
    }

    /// The link layer of a port, in [`ibv_port_attr::link_layer`].
    pub type ibv_link_layer = u8 {
        IBV_LINK_LAYER_UNSPECIFIED = 0,
        IBV_LINK_LAYER_INFINIBAND = 1,
        IBV_LINK_LAYER_ETHERNET = 2,
    }

    /// Asynchronous events of a device or of its objects.
    pub type ibv_event_type = c_uint {
        /// A completion queue has overrun.
        IBV_EVENT_CQ_ERR = 0,
        IBV_EVENT_QP_FATAL = 1,
        IBV_EVENT_QP_REQ_ERR = 2,
        IBV_EVENT_QP_ACCESS_ERR = 3,
        /// Data arrived before the message that completes the connection had arrived.
        IBV_EVENT_COMM_EST = 4,
        IBV_EVENT_SQ_DRAINED = 5,
        IBV_EVENT_PATH_MIG = 6,
        IBV_EVENT_PATH_MIG_ERR = 7,
        IBV_EVENT_DEVICE_FATAL = 8,
        IBV_EVENT_PORT_ACTIVE = 9,
        IBV_EVENT_PORT_ERR = 10,
        IBV_EVENT_LID_CHANGE = 11,
        IBV_EVENT_PKEY_CHANGE = 12,
        IBV_EVENT_SM_CHANGE = 13,
        IBV_EVENT_SRQ_ERR = 14,
        IBV_EVENT_SRQ_LIMIT_REACHED = 15,
        /// A queue pair in the error state takes no more receives from its shared receive queue.
        IBV_EVENT_QP_LAST_WQE_REACHED = 16,
        IBV_EVENT_CLIENT_REREGISTER = 17,
        IBV_EVENT_GID_CHANGE = 18,
        IBV_EVENT_WQ_FATAL = 19,
    }

    /// The sizes of the name and path members of a device, in bytes.
    pub type ibv_sysfs_size = usize {
        IBV_SYSFS_NAME_MAX = 64,
        IBV_SYSFS_PATH_MAX = 256,
    }
}

records! {
    /// The address of a port: 128 bits in network byte order.
    #[derive(Debug, PartialEq, Eq)]
    #[repr(align(8))] // In C it is a union with two integers.
    pub struct ibv_gid {
        /// The octets of the address.
        pub raw: [u8; 16],
    }

    /// A structure that has been unused since 2005. It remains so that the offsets of later members
    /// do not change.
    pub struct _ibv_device_ops {
        /// This member is unused.
        pub _dummy1: *mut c_void,
        /// This member is unused.
        pub _dummy2: *mut c_void,
    }

    /// An RDMA device of this host.
    pub struct ibv_device {
        /// This member is unused.
        pub _ops: _ibv_device_ops,
        /// The kind of the device.
        pub node_type: ibv_node_type,
        /// The transport of the device.
        pub transport_type: ibv_transport_type,
        /// The name of the device, such as `rxe0`.
        pub name: [c_char; IBV_SYSFS_NAME_MAX],
        /// The name of the device's character device, such as `uverbs0`.
        pub dev_name: [c_char; IBV_SYSFS_NAME_MAX],
        /// The path of the character device in sysfs.
        pub dev_path: [c_char; IBV_SYSFS_PATH_MAX],
        /// The path of the device in sysfs.
        pub ibdev_path: [c_char; IBV_SYSFS_PATH_MAX],
    }

    /// The functions of the data path, which the driver supplies. Members whose names begin with
    /// `_compat` are former functions, which are not used any more.
    pub struct ibv_context_ops {
        /// A former function pointer, which is not used any more.
        pub _compat_query_device: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_query_port: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_alloc_pd: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_dealloc_pd: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_reg_mr: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_rereg_mr: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_dereg_mr: *mut c_void,
        /// The driver's function for [`ibv_alloc_mw`](crate::Verbs::ibv_alloc_mw).
        pub alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, ibv_mw_type) -> *mut ibv_mw>,
        /// The driver's function for [`ibv_bind_mw`](crate::Verbs::ibv_bind_mw).
        pub bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
        /// The driver's function for [`ibv_dealloc_mw`](crate::Verbs::ibv_dealloc_mw).
        pub dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
        /// A former function pointer, which is not used any more.
        pub _compat_create_cq: *mut c_void,
        /// The driver's function for [`ibv_poll_cq`](crate::Verbs::ibv_poll_cq).
        pub poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
        /// The driver's function for [`ibv_req_notify_cq`](crate::Verbs::ibv_req_notify_cq).
        pub req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
        /// A former function pointer, which is not used any more.
        pub _compat_cq_event: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_resize_cq: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_destroy_cq: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_create_srq: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_modify_srq: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_query_srq: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_destroy_srq: *mut c_void,
        /// The driver's function for [`ibv_post_srq_recv`](crate::Verbs::ibv_post_srq_recv).
        pub post_srq_recv:
            Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        /// A former function pointer, which is not used any more.
        pub _compat_create_qp: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_query_qp: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_modify_qp: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_destroy_qp: *mut c_void,
        /// The driver's function for [`ibv_post_send`](crate::Verbs::ibv_post_send).
        pub post_send:
            Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
        /// The driver's function for [`ibv_post_recv`](crate::Verbs::ibv_post_recv).
        pub post_recv:
            Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        /// A former function pointer, which is not used any more.
        pub _compat_create_ah: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_destroy_ah: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_attach_mcast: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_detach_mcast: *mut c_void,
        /// A former function pointer, which is not used any more.
        pub _compat_async_event: *mut c_void,
    }

    /// An open device.
    pub struct ibv_context {
        /// The device.
        pub device: *mut ibv_device,
        /// The functions of the device's data path.
        pub ops: ibv_context_ops,
        /// The descriptor for commands to the kernel.
        pub cmd_fd: c_int,
        /// The file descriptor that is readable when there is an asynchronous event.
        pub async_fd: c_int,
        /// The number of completion vectors, which are numbered from 0.
        pub num_comp_vectors: c_int,
        /// Only the library uses this member.
        pub mutex: libc::pthread_mutex_t,
        /// If all bits are ones, the context is the last member of a `verbs_context`.
        pub abi_compat: *mut c_void,
    }

    /// The limits and the identification of a device. Members with the prefix `max_` are maxima.
    pub struct ibv_device_attr {
        /// The version of the firmware.
        pub fw_ver: [c_char; 64],
        /// The GUID of the node in network byte order.
        pub node_guid: u64,
        /// The GUID of the system in network byte order.
        pub sys_image_guid: u64,
        /// The maximum size of one region in bytes.
        pub max_mr_size: u64,
        /// The supported page sizes, with one bit for each size.
        pub page_size_cap: u64,
        /// The number of the vendor, which the IEEE has assigned.
        pub vendor_id: u32,
        /// The vendor's number of the part.
        pub vendor_part_id: u32,
        /// The version of the hardware.
        pub hw_ver: u32,
        /// The maximum number of queue pairs.
        pub max_qp: c_int,
        /// The maximum number of work requests in one queue.
        pub max_qp_wr: c_int,
        /// The capabilities of the device, see [`ibv_device_cap_flags`].
        pub device_cap_flags: c_uint,
        /// The maximum number of segments of a work request that is not a READ.
        pub max_sge: c_int,
        /// The maximum number of segments of a READ.
        pub max_sge_rd: c_int,
        /// The maximum number of completion queues.
        pub max_cq: c_int,
        /// The maximum number of completions in one completion queue.
        pub max_cqe: c_int,
        /// The maximum number of memory regions.
        pub max_mr: c_int,
        /// The maximum number of protection domains.
        pub max_pd: c_int,
        /// The maximum number of READs and atomic operations that a queue pair can hold as
        /// responder.
        pub max_qp_rd_atom: c_int,
        /// The maximum number of READs and atomic operations that an end-to-end context can hold as
        /// responder.
        pub max_ee_rd_atom: c_int,
        /// The maximum number of READs and atomic operations that the device can hold as responder.
        pub max_res_rd_atom: c_int,
        /// The maximum number of READs and atomic operations that a queue pair can have outstanding
        /// as initiator.
        pub max_qp_init_rd_atom: c_int,
        /// The maximum number of READs and atomic operations that an end-to-end context can have
        /// outstanding as initiator.
        pub max_ee_init_rd_atom: c_int,
        /// The scope in which atomic operations are atomic.
        pub atomic_cap: ibv_atomic_cap,
        /// The maximum number of end-to-end contexts.
        pub max_ee: c_int,
        /// The maximum number of reliable-datagram domains.
        pub max_rdd: c_int,
        /// The maximum number of memory windows.
        pub max_mw: c_int,
        /// The maximum number of raw IPv6 queue pairs.
        pub max_raw_ipv6_qp: c_int,
        /// The maximum number of raw Ethertype queue pairs.
        pub max_raw_ethy_qp: c_int,
        /// The maximum number of multicast groups.
        pub max_mcast_grp: c_int,
        /// The maximum number of queue pairs in one multicast group.
        pub max_mcast_qp_attach: c_int,
        /// The maximum number of queue pairs in all multicast groups together.
        pub max_total_mcast_qp_attach: c_int,
        /// The maximum number of address handles.
        pub max_ah: c_int,
        /// The maximum number of fast memory regions (FMRs).
        pub max_fmr: c_int,
        /// The maximum number of mappings of one fast memory region (FMR).
        pub max_map_per_fmr: c_int,
        /// The maximum number of shared receive queues.
        pub max_srq: c_int,
        /// The maximum number of work requests in one shared receive queue.
        pub max_srq_wr: c_int,
        /// The maximum number of segments of a work request in a shared receive queue.
        pub max_srq_sge: c_int,
        /// The maximum number of partition keys.
        pub max_pkeys: u16,
        /// The maximum delay of an acknowledgement: 4.096 µs times 2 to the power of this value.
        pub local_ca_ack_delay: u8,
        /// The number of ports, which are numbered from 1.
        pub phys_port_cnt: u8,
    }

    /// The state and the limits of a port.
    #[derive(Debug)]
    pub struct ibv_port_attr {
        /// The state of the port.
        pub state: ibv_port_state,
        /// The largest MTU.
        pub max_mtu: ibv_mtu,
        /// The MTU in use.
        pub active_mtu: ibv_mtu,
        /// The number of entries in the table of GIDs.
        pub gid_tbl_len: c_int,
        /// The capabilities of the port.
        pub port_cap_flags: u32,
        /// The maximum size of one message in bytes.
        pub max_msg_sz: u32,
        /// The number of packets with a wrong partition key.
        pub bad_pkey_cntr: u32,
        /// The number of packets with a wrong queue key.
        pub qkey_viol_cntr: u32,
        /// The number of entries in the table of partition keys.
        pub pkey_tbl_len: u16,
        /// The local identifier.
        pub lid: u16,
        /// The local identifier of the subnet manager.
        pub sm_lid: u16,
        /// The mask of the local identifiers.
        pub lmc: u8,
        /// The maximum number of virtual lanes.
        pub max_vl_num: u8,
        /// The service level of the subnet manager.
        pub sm_sl: u8,
        /// The maximum delay of the subnet: 4.096 µs times 2 to the power of this value.
        pub subnet_timeout: u8,
        /// The kind of initialization that the subnet manager has performed.
        pub init_type_reply: u8,
        /// The number of lanes, as a code.
        pub active_width: u8,
        /// The speed of a lane, as a code.
        pub active_speed: u8,
        /// The physical state.
        pub phys_state: u8,
        /// The link layer.
        pub link_layer: ibv_link_layer,
        /// The flags of the port.
        pub flags: u8,
        /// Further capabilities of the port.
        pub port_cap_flags2: u16,
    }

    /// The object that an asynchronous event concerns.
    pub union ibv_async_element {
        /// A completion queue.
        pub cq: *mut ibv_cq,
        /// A queue pair.
        pub qp: *mut ibv_qp,
        /// A shared receive queue.
        pub srq: *mut ibv_srq,
        /// The number of a port.
        pub port_num: c_int,
    }

    /// An asynchronous event.
    pub struct ibv_async_event {
        /// The object that the event concerns. The type of the event selects the valid member.
        pub element: ibv_async_element,
        /// The kind of event.
        pub event_type: ibv_event_type,
    }
}
