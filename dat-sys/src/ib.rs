//! The InfiniBand extension. Programs reach it through dat_extension_op and
//! [`DAT_EVENT::event_extension_data`].

use core::ffi::{c_int, c_uint, c_void};
use core::fmt;

use crate::describe::{constants, records, texts};
use crate::*;

/// The handle of a collective group.
pub type DAT_IB_COLLECTIVE_HANDLE = DAT_HANDLE;
/// A rank in a collective group.
pub type DAT_IB_COLLECTIVE_RANK = c_uint;
/// The identifier of a collective group, which is unique in the network.
pub type DAT_IB_COLLECTIVE_ID = c_uint;
/// The address information of one member of a collective group.
pub type DAT_IB_COLLECTIVE_MEMBER = *mut c_void;

constants! {
    /// The version of the extension interface.
    pub type DAT_IB_VERSION = c_int {
        DAT_IB_EXTENSION_VERSION = 209,
    }

    /// The event numbers of the IB extension, from `DAT_IB_EXTENSION_RANGE_BASE` on.
    pub type DAT_IB_EVENT_NUMBER = c_uint {
        DAT_IB_DTO_EVENT = 0x4_0000,
        DAT_IB_UD_CONNECTION_REQUEST_EVENT = 0x4_0001,
        DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED = 0x4_0002,
        DAT_IB_UD_CONNECTION_REJECT_EVENT = 0x4_0003,
        DAT_IB_UD_CONNECTION_ERROR_EVENT = 0x4_0004,
        DAT_IB_COLLECTIVE_EVENT = 0x4_0005,
    }

    /// The operations of the IB extension, which are the second argument of dat_extension_op.
    pub type DAT_IB_OP = c_uint {
        DAT_IB_FETCH_AND_ADD_OP = 0,
        DAT_IB_CMP_AND_SWAP_OP = 1,
        DAT_IB_RDMA_WRITE_IMMED_OP = 2,
        DAT_IB_UD_SEND_OP = 3,
        DAT_IB_QUERY_COUNTERS_OP = 4,
        DAT_IB_PRINT_COUNTERS_OP = 5,
        DAT_IB_COLLECTIVE_CREATE_MEMBER_OP = 6,
        DAT_IB_COLLECTIVE_FREE_MEMBER_OP = 7,
        DAT_IB_COLLECTIVE_CREATE_GROUP_OP = 8,
        DAT_IB_COLLECTIVE_FREE_GROUP_OP = 9,
        DAT_IB_COLLECTIVE_SET_CLOCK_OP = 10,
        DAT_IB_COLLECTIVE_READ_CLOCK_OP = 11,
        DAT_IB_COLLECTIVE_SCATTER_OP = 12,
        DAT_IB_COLLECTIVE_SCATTERV_OP = 13,
        DAT_IB_COLLECTIVE_GATHER_OP = 14,
        DAT_IB_COLLECTIVE_GATHERV_OP = 15,
        DAT_IB_COLLECTIVE_ALLGATHER_OP = 16,
        DAT_IB_COLLECTIVE_ALLGATHERV_OP = 17,
        DAT_IB_COLLECTIVE_ALLTOALL_OP = 18,
        DAT_IB_COLLECTIVE_ALLTOALLV_OP = 19,
        DAT_IB_COLLECTIVE_REDUCE_OP = 20,
        DAT_IB_COLLECTIVE_ALLREDUCE_OP = 21,
        DAT_IB_COLLECTIVE_REDUCE_SCATTER_OP = 22,
        DAT_IB_COLLECTIVE_SCAN_OP = 23,
        DAT_IB_COLLECTIVE_BROADCAST_OP = 24,
        DAT_IB_COLLECTIVE_BARRIER_OP = 25,
        DAT_IB_START_COUNTERS_OP = 26,
        DAT_IB_STOP_COUNTERS_OP = 27,
        DAT_IB_UD_CM_FREE_OP = 28,
        DAT_IB_UD_AH_FREE_OP = 29,
        DAT_IB_OPEN_QUERY_OP = 0x1000,
        DAT_IB_CLOSE_QUERY_OP = 0x2000,
    }

    /// The extended operation or event that a [`DAT_IB_EXTENSION_EVENT_DATA`] describes.
    pub type DAT_IB_EXT_TYPE = c_uint {
        DAT_IB_FETCH_AND_ADD = 0,
        DAT_IB_CMP_AND_SWAP = 1,
        DAT_IB_RDMA_WRITE_IMMED = 2,
        DAT_IB_RDMA_WRITE_IMMED_DATA = 3,
        DAT_IB_RECV_IMMED_DATA = 4,
        DAT_IB_UD_CONNECT_REQUEST = 5,
        DAT_IB_UD_REMOTE_AH = 6,
        DAT_IB_UD_PASSIVE_REMOTE_AH = 7,
        DAT_IB_UD_SEND = 8,
        DAT_IB_UD_RECV = 9,
        DAT_IB_UD_CONNECT_REJECT = 10,
        DAT_IB_UD_CONNECT_ERROR = 11,
        DAT_IB_COLLECTIVE_CREATE_STATUS = 12,
        DAT_IB_COLLECTIVE_CREATE_DATA = 13,
        DAT_IB_COLLECTIVE_CLOCK_SET_STATUS = 14,
        DAT_IB_COLLECTIVE_SCATTER_STATUS = 15,
        DAT_IB_COLLECTIVE_SCATTERV_STATUS = 16,
        DAT_IB_COLLECTIVE_GATHER_STATUS = 17,
        DAT_IB_COLLECTIVE_GATHERV_STATUS = 18,
        DAT_IB_COLLECTIVE_ALLGATHER_STATUS = 19,
        DAT_IB_COLLECTIVE_ALLGATHERV_STATUS = 20,
        DAT_IB_COLLECTIVE_ALLTOALL_STATUS = 21,
        DAT_IB_COLLECTIVE_ALLTOALLV_STATUS = 22,
        DAT_IB_COLLECTIVE_REDUCE_STATUS = 23,
        DAT_IB_COLLECTIVE_ALLREDUCE_STATUS = 24,
        DAT_IB_COLLECTIVE_REDUCE_SCATTER_STATUS = 25,
        DAT_IB_COLLECTIVE_SCAN_STATUS = 26,
        DAT_IB_COLLECTIVE_BROADCAST_STATUS = 27,
        DAT_IB_COLLECTIVE_BARRIER_STATUS = 28,
    }

    /// The outcome of an extended operation.
    pub type DAT_IB_STATUS = c_uint {
        DAT_OP_SUCCESS = 0,
        DAT_IB_OP_ERR = 1,
        DAT_IB_COLL_COMP_ERR = 2,
    }

    /// The status types of the IB extension, from `DAT_EXTENSION_BASE` on.
    pub type DAT_IB_RETURN = c_uint {
        DAT_IB_ERR = 0x1000_0000,
        DAT_IB_COLLECTIVE_ERR = 0x1000_0001,
    }

    /// The extended DTO operations, from `DAT_DTO_EXTENSION_BASE` on.
    pub type DAT_IB_DTOS = c_uint {
        DAT_IB_DTO_RDMA_WRITE_IMMED = 0x8,
        DAT_IB_DTO_RECV_IMMED = 0x9,
        DAT_IB_DTO_FETCH_ADD = 0xa,
        DAT_IB_DTO_CMP_SWAP = 0xb,
        DAT_IB_DTO_RECV_MSG_IMMED = 0xc,
        DAT_IB_DTO_SEND_UD = 0xd,
        DAT_IB_DTO_RECV_UD = 0xe,
        DAT_IB_DTO_RECV_UD_IMMED = 0xf,
        DAT_IB_DTO_COLLECTIVES = 0x10,
    }

    /// The extended handle types, from `DAT_HANDLE_TYPE_EXTENSION_BASE` on.
    pub type DAT_IB_HANDLE_TYPE = c_uint {
        DAT_IB_HANDLE_TYPE_EXT = 0xc,
        DAT_IB_HANDLE_TYPE_COLLECTIVE = 0xd,
    }

    /// The EVD flag for the stream of extended events.
    pub type DAT_IB_EVD_EXTENSION_FLAGS = c_uint {
        DAT_IB_EVD_EXTENSION_FLAG = 0x200,
    }

    /// The memory privileges for the extended operations.
    pub type DAT_IB_MEM_PRIV_FLAGS = c_uint {
        DAT_IB_MEM_PRIV_REMOTE_ATOMIC = 0x40,
    }

    /// The extended service type: unreliable datagram.
    pub type DAT_IB_SERVICE_TYPE = c_uint {
        DAT_IB_SERVICE_TYPE_UD = 0x1,
    }

    /// The counters of an IA. `DCNT_IA_ALL_COUNTERS` is the number of counters, and as an argument
    /// selects all of them.
    pub type DAT_IA_COUNTERS = c_uint {
        DCNT_IA_PZ_CREATE = 0,
        DCNT_IA_PZ_FREE = 1,
        DCNT_IA_LMR_CREATE = 2,
        DCNT_IA_LMR_FREE = 3,
        DCNT_IA_RMR_CREATE = 4,
        DCNT_IA_RMR_FREE = 5,
        DCNT_IA_PSP_CREATE = 6,
        DCNT_IA_PSP_CREATE_ANY = 7,
        DCNT_IA_PSP_FREE = 8,
        DCNT_IA_RSP_CREATE = 9,
        DCNT_IA_RSP_FREE = 10,
        DCNT_IA_EVD_CREATE = 11,
        DCNT_IA_EVD_FREE = 12,
        DCNT_IA_EP_CREATE = 13,
        DCNT_IA_EP_FREE = 14,
        DCNT_IA_SRQ_CREATE = 15,
        DCNT_IA_SRQ_FREE = 16,
        DCNT_IA_SP_CR = 17,
        DCNT_IA_SP_CR_ACCEPTED = 18,
        DCNT_IA_SP_CR_REJECTED = 19,
        DCNT_IA_MEM_ALLOC = 20,
        DCNT_IA_MEM_ALLOC_DATA = 21,
        DCNT_IA_MEM_FREE = 22,
        DCNT_IA_ASYNC_ERROR = 23,
        DCNT_IA_ASYNC_QP_ERROR = 24,
        DCNT_IA_ASYNC_CQ_ERROR = 25,
        DCNT_IA_CM_LISTEN = 26,
        DCNT_IA_CM_REQ_TX = 27,
        DCNT_IA_CM_REQ_RX = 28,
        DCNT_IA_CM_REP_TX = 29,
        DCNT_IA_CM_REP_RX = 30,
        DCNT_IA_CM_RTU_TX = 31,
        DCNT_IA_CM_RTU_RX = 32,
        DCNT_IA_CM_USER_REJ_TX = 33,
        DCNT_IA_CM_USER_REJ_RX = 34,
        DCNT_IA_CM_ACTIVE_EST = 35,
        DCNT_IA_CM_PASSIVE_EST = 36,
        DCNT_IA_CM_AH_REQ_TX = 37,
        DCNT_IA_CM_AH_REQ_RX = 38,
        DCNT_IA_CM_AH_RESOLVED = 39,
        DCNT_IA_CM_DREQ_TX = 40,
        DCNT_IA_CM_DREQ_RX = 41,
        DCNT_IA_CM_DREP_TX = 42,
        DCNT_IA_CM_DREP_RX = 43,
        DCNT_IA_CM_MRA_TX = 44,
        DCNT_IA_CM_MRA_RX = 45,
        DCNT_IA_CM_REQ_FULLQ_POLL = 46,
        DCNT_IA_CM_ERR = 47,
        DCNT_IA_CM_ERR_REQ_FULLQ = 48,
        DCNT_IA_CM_ERR_REQ_DUP = 49,
        DCNT_IA_CM_ERR_REQ_RETRY = 50,
        DCNT_IA_CM_ERR_REP_DUP = 51,
        DCNT_IA_CM_ERR_REP_RETRY = 52,
        DCNT_IA_CM_ERR_RTU_DUP = 53,
        DCNT_IA_CM_ERR_RTU_RETRY = 54,
        DCNT_IA_CM_ERR_REFUSED = 55,
        DCNT_IA_CM_ERR_RESET = 56,
        DCNT_IA_CM_ERR_TIMEOUT = 57,
        DCNT_IA_CM_ERR_REJ_TX = 58,
        DCNT_IA_CM_ERR_REJ_RX = 59,
        DCNT_IA_CM_ERR_DREQ_DUP = 60,
        DCNT_IA_CM_ERR_DREQ_RETRY = 61,
        DCNT_IA_CM_ERR_DREP_DUP = 62,
        DCNT_IA_CM_ERR_DREP_RETRY = 63,
        DCNT_IA_CM_ERR_MRA_DUP = 64,
        DCNT_IA_CM_ERR_MRA_RETRY = 65,
        DCNT_IA_CM_ERR_UNEXPECTED = 66,
        DCNT_IA_LNK_ERR_RCV = 67,
        DCNT_IA_LNK_ERR_RCV_REM_PHYS = 68,
        DCNT_IA_LNK_ERR_RCV_CONSTRAINT = 69,
        DCNT_IA_LNK_ERR_XMT_DISCARDS = 70,
        DCNT_IA_LNK_ERR_XMT_CONTRAINT = 71,
        DCNT_IA_LNK_ERR_INTEGRITY = 72,
        DCNT_IA_LNK_ERR_EXC_BUF_OVERRUN = 73,
        DCNT_IA_LNK_WARN_RCV_SW_RELAY = 74,
        DCNT_IA_LNK_WARN_XMT_WAIT = 75,
        DCNT_IA_DIAG_ERR_RQ_RAE = 76,
        DCNT_IA_DIAG_ERR_RQ_OOS = 77,
        DCNT_IA_DIAG_ERR_RQ_RIRE = 78,
        DCNT_IA_DIAG_ERR_RQ_UDSDPRD = 79,
        DCNT_IA_DIAG_ERR_SQ_RAE = 80,
        DCNT_IA_DIAG_ERR_SQ_OOS = 81,
        DCNT_IA_DIAG_ERR_SQ_RIRE = 82,
        DCNT_IA_DIAG_ERR_SQ_RREE = 83,
        DCNT_IA_DIAG_ERR_SQ_TREE = 84,
        DCNT_IA_ALL_COUNTERS = 85,
    }

    /// The counters of an EP. `DCNT_EP_ALL_COUNTERS` is the number of counters, and as an argument
    /// selects all of them.
    pub type DAT_EP_COUNTERS = c_uint {
        DCNT_EP_CONNECT = 0,
        DCNT_EP_DISCONNECT = 1,
        DCNT_EP_POST_SEND = 2,
        DCNT_EP_POST_SEND_DATA = 3,
        DCNT_EP_POST_SEND_UD = 4,
        DCNT_EP_POST_SEND_UD_DATA = 5,
        DCNT_EP_POST_RECV = 6,
        DCNT_EP_POST_RECV_DATA = 7,
        DCNT_EP_POST_WRITE = 8,
        DCNT_EP_POST_WRITE_DATA = 9,
        DCNT_EP_POST_WRITE_IMM = 10,
        DCNT_EP_POST_WRITE_IMM_DATA = 11,
        DCNT_EP_POST_READ = 12,
        DCNT_EP_POST_READ_DATA = 13,
        DCNT_EP_POST_CMP_SWAP = 14,
        DCNT_EP_POST_FETCH_ADD = 15,
        DCNT_EP_RECV = 16,
        DCNT_EP_RECV_DATA = 17,
        DCNT_EP_RECV_UD = 18,
        DCNT_EP_RECV_UD_DATA = 19,
        DCNT_EP_RECV_IMM = 20,
        DCNT_EP_RECV_IMM_DATA = 21,
        DCNT_EP_RECV_RDMA_IMM = 22,
        DCNT_EP_RECV_RDMA_IMM_DATA = 23,
        DCNT_EP_ALL_COUNTERS = 24,
    }

    /// The counters of an EVD. `DCNT_EVD_ALL_COUNTERS` is the number of counters, and as an
    /// argument selects all of them.
    pub type DAT_EVD_COUNTERS = c_uint {
        DCNT_EVD_WAIT = 0,
        DCNT_EVD_WAIT_BLOCKED = 1,
        DCNT_EVD_WAIT_NOTIFY = 2,
        DCNT_EVD_DEQUEUE = 3,
        DCNT_EVD_DEQUEUE_FOUND = 4,
        DCNT_EVD_DEQUEUE_NOT_FOUND = 5,
        DCNT_EVD_DEQUEUE_POLL = 6,
        DCNT_EVD_DEQUEUE_POLL_FOUND = 7,
        DCNT_EVD_CONN_CALLBACK = 8,
        DCNT_EVD_DTO_CALLBACK = 9,
        DCNT_EVD_ALL_COUNTERS = 10,
    }

    /// A group of device counters to start or stop.
    pub type DAT_IA_COUNTER_TYPE = c_uint {
        DCNT_IA_CM = 0,
        DCNT_IA_LNK = 1,
        DCNT_IA_DIAG = 2,
    }

    /// The type of the elements in a reduction.
    pub type DAT_IB_COLLECTIVE_DATA_TYPE = c_uint {
        DAT_IB_COLLECTIVE_TYPE_INT8 = 0,
        DAT_IB_COLLECTIVE_TYPE_UINT8 = 1,
        DAT_IB_COLLECTIVE_TYPE_INT16 = 2,
        DAT_IB_COLLECTIVE_TYPE_UINT16 = 3,
        DAT_IB_COLLECTIVE_TYPE_INT32 = 4,
        DAT_IB_COLLECTIVE_TYPE_UINT32 = 5,
        DAT_IB_COLLECTIVE_TYPE_INT64 = 6,
        DAT_IB_COLLECTIVE_TYPE_UINT64 = 7,
        DAT_IB_COLLECTIVE_TYPE_FLOAT = 8,
        DAT_IB_COLLECTIVE_TYPE_DOUBLE = 9,
        DAT_IB_COLLECTIVE_TYPE_LONG_DOUBLE = 10,
        DAT_IB_COLLECTIVE_TYPE_SHORT_INT = 11,
        DAT_IB_COLLECTIVE_TYPE_2INT = 12,
        DAT_IB_COLLECTIVE_TYPE_FLOAT_INT = 13,
        DAT_IB_COLLECTIVE_TYPE_LONG_INT = 14,
        DAT_IB_COLLECTIVE_TYPE_DOUBLE_INT = 15,
    }

    /// The operator of a reduction.
    pub type DAT_IB_COLLECTIVE_REDUCE_DATA_OP = c_uint {
        DAT_IB_COLLECTIVE_REDUCE_OP_MAX = 0,
        DAT_IB_COLLECTIVE_REDUCE_OP_MIN = 1,
        DAT_IB_COLLECTIVE_REDUCE_OP_SUM = 2,
        DAT_IB_COLLECTIVE_REDUCE_OP_PROD = 3,
        DAT_IB_COLLECTIVE_REDUCE_OP_LAND = 4,
        DAT_IB_COLLECTIVE_REDUCE_OP_BAND = 5,
        DAT_IB_COLLECTIVE_REDUCE_OP_LOR = 6,
        DAT_IB_COLLECTIVE_REDUCE_OP_BOR = 7,
        DAT_IB_COLLECTIVE_REDUCE_OP_LXOR = 8,
        DAT_IB_COLLECTIVE_REDUCE_OP_BXOR = 9,
        DAT_IB_COLLECTIVE_REDUCE_OP_MAXLOC = 10,
        DAT_IB_COLLECTIVE_REDUCE_OP_MINLOC = 11,
    }
}

texts! {
    /// The name of the provider attribute that reports the counters.
    pub const DAT_IB_ATTR_COUNTERS = c"DAT_COUNTERS";
    /// The name of the provider attribute that reports the atomic fetch-and-add.
    pub const DAT_IB_ATTR_FETCH_AND_ADD = c"DAT_IB_FETCH_AND_ADD";
    /// The name of the provider attribute that reports the atomic compare-and-swap.
    pub const DAT_IB_ATTR_CMP_AND_SWAP = c"DAT_IB_CMP_AND_SWAP";
    /// The name of the provider attribute that reports RDMA writes with immediate data.
    pub const DAT_IB_ATTR_IMMED_DATA = c"DAT_IB_IMMED_DATA";
    /// The name of the provider attribute that reports unreliable datagrams.
    pub const DAT_IB_ATTR_UD = c"DAT_IB_UD";
    /// The name of the provider attribute that reports the collective operation that sets the
    /// clock.
    pub const DAT_IB_COLL_SET_CLOCK = c"DAT_COLL_SET_CLOCK";
    /// The name of the provider attribute that reports the collective operation that reads the
    /// clock.
    pub const DAT_IB_COLL_READ_CLOCK = c"DAT_COLL_READ_CLOCK";
    /// The name of the provider attribute that reports the collective operation broadcast.
    pub const DAT_IB_COLL_BROADCAST = c"DAT_COLL_BROADCAST";
    /// The name of the provider attribute that reports the collective operation barrier.
    pub const DAT_IB_COLL_BARRIER = c"DAT_COLL_BARRIER";
    /// The name of the provider attribute that reports the collective operation scatter.
    pub const DAT_IB_COLL_SCATTER = c"DAT_COLL_SCATTER";
    /// The name of the provider attribute that reports the collective operation scatterv.
    pub const DAT_IB_COLL_SCATTERV = c"DAT_COLL_SCATTERV";
    /// The name of the provider attribute that reports the collective operation gather.
    pub const DAT_IB_COLL_GATHER = c"DAT_COLL_GATHER";
    /// The name of the provider attribute that reports the collective operation gatherv.
    pub const DAT_IB_COLL_GATHERV = c"DAT_COLL_GATHERV";
    /// The name of the provider attribute that reports the collective operation allgather.
    pub const DAT_IB_COLL_ALLGATHER = c"DAT_COLL_ALLGATHER";
    /// The name of the provider attribute that reports the collective operation allgatherv.
    pub const DAT_IB_COLL_ALLGATHERV = c"DAT_COLL_ALLGATHERV";
    /// The name of the provider attribute that reports the collective operation alltoall.
    pub const DAT_IB_COLL_ALLTOALL = c"DAT_COLL_ALLTOALL";
    /// The name of the provider attribute that reports the collective operation alltoallv.
    pub const DAT_IB_COLL_ALLTOALLV = c"DAT_COLL_ALLTOALLV";
    /// The name of the provider attribute that reports the collective operation reduce.
    pub const DAT_IB_COLL_REDUCE = c"DAT_COLL_REDUCE";
    /// The name of the provider attribute that reports the collective operation allreduce.
    pub const DAT_IB_COLL_ALLREDUCE = c"DAT_COLL_ALLREDUCE";
    /// The name of the provider attribute that reports the collective operation reduce-scatter.
    pub const DAT_IB_COLL_REDUCE_SCATTER = c"DAT_COLL_REDUCE_SCATTER";
    /// The name of the provider attribute that reports the collective operation scan.
    pub const DAT_IB_COLL_SCAN = c"DAT_COLL_SCAN";
}

records! {
    /// The payload of an extended event, which is in `event_extension_data`.
    #[derive(Debug)]
    pub struct DAT_IB_EXTENSION_EVENT_DATA {
        /// The kind of the extended operation or event.
        pub r#type: DAT_IB_EXT_TYPE,
        /// The outcome of the operation.
        pub status: DAT_IB_STATUS,
        /// The immediate data.
        pub val: DAT_IB_EVENT_VALUE,
        /// The address or the collective group. In C, this is an anonymous union.
        pub detail: DAT_IB_EVENT_DETAIL,
        /// The CM handle of a UD connection, or the context of a collective operation.
        pub context: DAT_CONTEXT,
    }

    /// The type of [`DAT_IB_EXTENSION_EVENT_DATA::val`], which has no name in C.
    pub union DAT_IB_EVENT_VALUE {
        /// The immediate data.
        pub immed: DAT_IB_IMMED_DATA,
    }

    /// The type of [`DAT_IB_EXTENSION_EVENT_DATA::detail`], which has no name in C.
    pub union DAT_IB_EVENT_DETAIL {
        /// The address of a UD peer.
        pub remote_ah: DAT_IB_ADDR_HANDLE,
        /// The collective group.
        pub coll: DAT_IB_COLLECTIVE_EVENT_DATA,
    }

    /// The destination of a datagram.
    #[derive(Debug)]
    pub struct DAT_IB_ADDR_HANDLE {
        /// The address handle, a `struct ibv_ah *`.
        pub ah: *mut ibv_ah,
        /// The queue pair number.
        pub qpn: u32,
        /// The IP address of the peer.
        pub ia_addr: DAT_SOCK_ADDR6,
    }

    /// Immediate data in host byte order.
    #[derive(Debug)]
    pub struct DAT_IB_IMMED_DATA {
        /// The 32 bits of data.
        pub data: u32,
    }

    /// The collective group of an event.
    #[derive(Debug)]
    pub struct DAT_IB_COLLECTIVE_EVENT_DATA {
        /// The handle of the group.
        pub handle: DAT_HANDLE,
        /// The context that was given when the group was created.
        pub context: DAT_CONTEXT,
    }

    /// The distribution of the members of a collective group over nodes.
    #[derive(Debug)]
    pub struct DAT_IB_COLLECTIVE_GROUP {
        /// The number of processes on this node.
        pub local_size: c_int,
        /// The rank of this process on its node.
        pub local_rank: c_int,
        /// The global rank of each local process.
        pub local_ranks: *mut c_int,
        /// The number of nodes, each of which has one external process.
        pub external_size: c_int,
        /// The rank of this process among the external processes, or -1.
        pub external_rank: c_int,
        /// The global rank of each external process.
        pub external_ranks: *mut c_int,
        /// The local rank for each global rank, or -1 for a process on another node.
        pub intranode_table: *mut c_int,
        /// The external rank for each global rank, or -1 for a process that is not external.
        pub internode_table: *mut c_int,
        /// Whether the group consists of all processes.
        pub is_comm_world: c_int,
    }
}

/// An address handle of libibverbs.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_ah {
    _opaque: [u8; 0],
}

impl fmt::Debug for DAT_IB_EVENT_VALUE {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the only member is an integer, and any bits are a valid integer.
        write!(f, "DAT_IB_EVENT_VALUE({:#x})", unsafe { self.immed.data })
    }
}

impl fmt::Debug for DAT_IB_EVENT_DETAIL {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DAT_IB_EVENT_DETAIL { .. }")
    }
}

impl DAT_IB_EXTENSION_EVENT_DATA {
    /// The octets of the data, as [`DAT_EVENT::event_extension_data`] holds them.
    pub fn to_words(&self) -> [u64; 8] {
        const { assert!(size_of::<Self>() == size_of::<[u64; 8]>()) };
        let mut words = [0; 8];
        let data = words.as_mut_ptr().cast::<Self>();
        // Copy each field, because the octets between the fields need not have values.
        // SAFETY: the words have the size and at least the alignment of the record.
        unsafe {
            (&raw mut (*data).r#type).write(self.r#type);
            (&raw mut (*data).status).write(self.status);
            (&raw mut (*data).val).write(self.val);
            (&raw mut (*data).detail).write(self.detail);
            (&raw mut (*data).context).write(self.context);
        }
        words
    }
}
