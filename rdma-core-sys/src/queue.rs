//! Queue pairs and their states, and the addresses of peers.

use std::ffi::{c_int, c_uint, c_void};

use crate::describe::{constants, records};
use crate::{ibv_access_flags, ibv_context, ibv_cq, ibv_gid, ibv_mtu, ibv_pd, ibv_srq};

constants! {
    /// The kind of a queue pair.
    pub type ibv_qp_type = c_uint {
        /// A queue pair for a reliable connection.
        IBV_QPT_RC = 2,
        /// A queue pair for unreliable datagrams.
        IBV_QPT_UD = 4,
    }

    /// A mask that selects the members of [`ibv_qp_attr`] that are set.
    pub type ibv_qp_attr_mask = c_int {
        IBV_QP_STATE = 1 << 0,
        IBV_QP_CUR_STATE = 1 << 1,
        IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
        IBV_QP_ACCESS_FLAGS = 1 << 3,
        IBV_QP_PKEY_INDEX = 1 << 4,
        IBV_QP_PORT = 1 << 5,
        IBV_QP_QKEY = 1 << 6,
        IBV_QP_AV = 1 << 7,
        IBV_QP_PATH_MTU = 1 << 8,
        IBV_QP_TIMEOUT = 1 << 9,
        IBV_QP_RETRY_CNT = 1 << 10,
        IBV_QP_RNR_RETRY = 1 << 11,
        IBV_QP_RQ_PSN = 1 << 12,
        IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
        IBV_QP_ALT_PATH = 1 << 14,
        IBV_QP_MIN_RNR_TIMER = 1 << 15,
        IBV_QP_SQ_PSN = 1 << 16,
        IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
        IBV_QP_PATH_MIG_STATE = 1 << 18,
        IBV_QP_CAP = 1 << 19,
        IBV_QP_DEST_QPN = 1 << 20,
    }

    /// The state of a queue pair.
    pub type ibv_qp_state = c_uint {
        IBV_QPS_RESET = 0,
        /// The state in which receives can be posted.
        IBV_QPS_INIT = 1,
        /// The state in which the queue pair receives messages.
        IBV_QPS_RTR = 2,
        /// The state in which the queue pair receives and sends messages.
        IBV_QPS_RTS = 3,
        IBV_QPS_SQD = 4,
        IBV_QPS_SQE = 5,
        /// The error state, in which the queue pair flushes all posted requests.
        IBV_QPS_ERR = 6,
        IBV_QPS_UNKNOWN = 7,
    }
}

records! {
    /// The sizes of the queues of a queue pair.
    #[derive(Debug)]
    pub struct ibv_qp_cap {
        /// The maximum number of outstanding requests.
        pub max_send_wr: u32,
        /// The maximum number of outstanding receives.
        pub max_recv_wr: u32,
        /// The maximum number of segments of a request.
        pub max_send_sge: u32,
        /// The maximum number of segments of a receive.
        pub max_recv_sge: u32,
        /// The maximum size of an inline request in bytes.
        pub max_inline_data: u32,
    }

    /// The attributes of a new queue pair.
    pub struct ibv_qp_init_attr {
        /// The context that the owner has set.
        pub qp_context: *mut c_void,
        /// The completion queue of requests.
        pub send_cq: *mut ibv_cq,
        /// The completion queue of receives.
        pub recv_cq: *mut ibv_cq,
        /// The shared receive queue that replaces the queue pair's own receive queue, or null.
        pub srq: *mut ibv_srq,
        /// The requested sizes of the queues. The call replaces them by the actual sizes.
        pub cap: ibv_qp_cap,
        /// The kind of the queue pair.
        pub qp_type: ibv_qp_type,
        /// If this is not 0, every request is signalled.
        pub sq_sig_all: c_int,
    }

    /// A queue pair.
    pub struct ibv_qp {
        /// The device to which the queue pair belongs.
        pub context: *mut ibv_context,
        /// The context that the owner has set.
        pub qp_context: *mut c_void,
        /// The protection domain of the queue pair.
        pub pd: *mut ibv_pd,
        /// The completion queue of requests.
        pub send_cq: *mut ibv_cq,
        /// The completion queue of receives.
        pub recv_cq: *mut ibv_cq,
        /// The shared receive queue, or null.
        pub srq: *mut ibv_srq,
        /// The kernel's handle of the queue pair.
        pub handle: u32,
        /// The number of the queue pair on the wire.
        pub qp_num: u32,
        /// The state as far as the library knows.
        pub state: ibv_qp_state,
        /// The kind of the queue pair.
        pub qp_type: ibv_qp_type,
        /// Only the library uses this member.
        pub mutex: libc::pthread_mutex_t,
        /// Only the library uses this member.
        pub cond: libc::pthread_cond_t,
        /// Only the library uses this member.
        pub events_completed: u32,
    }

    /// The global part of a peer's address.
    #[derive(Debug)]
    pub struct ibv_global_route {
        /// The address of the destination.
        pub dgid: ibv_gid,
        /// The flow label.
        pub flow_label: u32,
        /// The source address, as an index into the port's table of GIDs.
        pub sgid_index: u8,
        /// The hop limit.
        pub hop_limit: u8,
        /// The traffic class.
        pub traffic_class: u8,
    }

    /// The address of a peer.
    #[derive(Debug)]
    pub struct ibv_ah_attr {
        /// The global part of the address.
        pub grh: ibv_global_route,
        /// The local identifier.
        pub dlid: u16,
        /// The service level.
        pub sl: u8,
        /// The path bits of the source.
        pub src_path_bits: u8,
        /// The rate, as a code.
        pub static_rate: u8,
        /// Whether the address has a global part.
        pub is_global: u8,
        /// The port.
        pub port_num: u8,
    }

    /// An address handle: the address of a peer, as datagrams use it.
    pub struct ibv_ah {
        /// The device to which the address handle belongs.
        pub context: *mut ibv_context,
        /// The protection domain of the address handle.
        pub pd: *mut ibv_pd,
        /// The kernel's handle of the address handle.
        pub handle: u32,
    }

    /// The attributes of a queue pair, to modify or to query.
    #[derive(Debug)]
    pub struct ibv_qp_attr {
        /// The new state.
        pub qp_state: ibv_qp_state,
        /// The expected current state.
        pub cur_qp_state: ibv_qp_state,
        /// The path MTU.
        pub path_mtu: ibv_mtu,
        /// The state of the path migration.
        pub path_mig_state: c_uint,
        /// The queue key, for datagrams.
        pub qkey: u32,
        /// The first PSN to receive.
        pub rq_psn: u32,
        /// The first PSN to send.
        pub sq_psn: u32,
        /// The number of the peer's queue pair.
        pub dest_qp_num: u32,
        /// The access that the peer gets.
        pub qp_access_flags: ibv_access_flags,
        /// The sizes of the queues.
        pub cap: ibv_qp_cap,
        /// The address of the peer.
        pub ah_attr: ibv_ah_attr,
        /// The address of the peer on the alternate path.
        pub alt_ah_attr: ibv_ah_attr,
        /// The index of the partition key.
        pub pkey_index: u16,
        /// The index of the partition key for the alternate path.
        pub alt_pkey_index: u16,
        /// Whether an asynchronous event reports that the send queue has drained.
        pub en_sqd_async_notify: u8,
        /// Whether the send queue is draining.
        pub sq_draining: u8,
        /// The maximum number of outstanding READs and atomic operations.
        pub max_rd_atomic: u8,
        /// The maximum number of READs and atomic operations held for the peer.
        pub max_dest_rd_atomic: u8,
        /// The time that an RNR NAK makes the peer wait, as a code of the InfiniBand specification.
        pub min_rnr_timer: u8,
        /// The port.
        pub port_num: u8,
        /// The ACK timeout: 4.096 µs times 2 to the power of this value. The value 0 means no
        /// timeout.
        pub timeout: u8,
        /// The number of retries after a time-out.
        pub retry_cnt: u8,
        /// The number of retries after an RNR NAK. The value 7 means no limit.
        pub rnr_retry: u8,
        /// The port of the alternate path.
        pub alt_port_num: u8,
        /// The ACK timeout of the alternate path, in the same form as `timeout`.
        pub alt_timeout: u8,
        /// The rate limit of packets.
        pub rate_limit: u32,
    }
}
