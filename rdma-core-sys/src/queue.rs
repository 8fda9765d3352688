//! Queue pairs and their states.

use std::ffi::{c_int, c_uint, c_void};

use crate::describe::{constants, records};
use crate::{ibv_access_flags, ibv_context, ibv_cq, ibv_gid, ibv_mtu, ibv_pd, ibv_srq};

constants! {
    /// The kind of a queue pair.
    pub type ibv_qp_type = c_uint {
        /// Reliable connection.
        IBV_QPT_RC = 2,
    }

    /// Selects the members of [`ibv_qp_attr`] that are set.
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
        /// Receives can be posted.
        IBV_QPS_INIT = 1,
        /// It receives.
        IBV_QPS_RTR = 2,
        /// It also sends.
        IBV_QPS_RTS = 3,
        IBV_QPS_SQD = 4,
        IBV_QPS_SQE = 5,
        /// It flushes all posted requests.
        IBV_QPS_ERR = 6,
        IBV_QPS_UNKNOWN = 7,
    }
}

records! {
    /// Sizes of the queues.
    #[derive(Debug)]
    pub struct ibv_qp_cap {
        /// Requests outstanding.
        pub max_send_wr: u32,
        /// Receives outstanding.
        pub max_recv_wr: u32,
        /// Segments of a request.
        pub max_send_sge: u32,
        /// Segments of a receive.
        pub max_recv_sge: u32,
        /// Bytes of an inline request.
        pub max_inline_data: u32,
    }

    /// Attributes of a new queue pair.
    pub struct ibv_qp_init_attr {
        /// The owner's context.
        pub qp_context: *mut c_void,
        /// The completion queue of requests.
        pub send_cq: *mut ibv_cq,
        /// The completion queue of receives.
        pub recv_cq: *mut ibv_cq,
        /// Shared receive queue instead of its own, or null.
        pub srq: *mut ibv_srq,
        /// Sizes of its queues; updated with the actual sizes.
        pub cap: ibv_qp_cap,
        /// Kind.
        pub qp_type: ibv_qp_type,
        /// If not 0, every request is signalled.
        pub sq_sig_all: c_int,
    }

    /// A queue pair.
    pub struct ibv_qp {
        /// Its device.
        pub context: *mut ibv_context,
        /// The owner's context.
        pub qp_context: *mut c_void,
        /// Its domain.
        pub pd: *mut ibv_pd,
        /// The completion queue of requests.
        pub send_cq: *mut ibv_cq,
        /// The completion queue of receives.
        pub recv_cq: *mut ibv_cq,
        /// Shared receive queue, or null.
        pub srq: *mut ibv_srq,
        /// The kernel's handle.
        pub handle: u32,
        /// Its number on the wire.
        pub qp_num: u32,
        /// The state as far as the library knows.
        pub state: ibv_qp_state,
        /// Kind.
        pub qp_type: ibv_qp_type,
        /// Private to the library.
        pub mutex: libc::pthread_mutex_t,
        /// Private to the library.
        pub cond: libc::pthread_cond_t,
        /// Private to the library.
        pub events_completed: u32,
    }

    /// The global part of an address.
    #[derive(Debug)]
    pub struct ibv_global_route {
        /// Destination.
        pub dgid: ibv_gid,
        /// Flow label.
        pub flow_label: u32,
        /// Source, as an index into the port's table.
        pub sgid_index: u8,
        /// Hop limit.
        pub hop_limit: u8,
        /// Traffic class.
        pub traffic_class: u8,
    }

    /// The address of a peer.
    #[derive(Debug)]
    pub struct ibv_ah_attr {
        /// Global part.
        pub grh: ibv_global_route,
        /// Local identifier.
        pub dlid: u16,
        /// Service level.
        pub sl: u8,
        /// Path bits of the source.
        pub src_path_bits: u8,
        /// Rate, coded.
        pub static_rate: u8,
        /// Whether there is a global part.
        pub is_global: u8,
        /// The port.
        pub port_num: u8,
    }

    /// Attributes of a queue pair, to modify or to query.
    #[derive(Debug)]
    pub struct ibv_qp_attr {
        /// The new state.
        pub qp_state: ibv_qp_state,
        /// The expected current state.
        pub cur_qp_state: ibv_qp_state,
        /// Path MTU.
        pub path_mtu: ibv_mtu,
        /// State of path migration.
        pub path_mig_state: c_uint,
        /// Queue key, for datagrams.
        pub qkey: u32,
        /// First PSN to receive.
        pub rq_psn: u32,
        /// First PSN to send.
        pub sq_psn: u32,
        /// The number of the peer's queue pair.
        pub dest_qp_num: u32,
        /// The access that the peer gets.
        pub qp_access_flags: ibv_access_flags,
        /// Sizes of its queues.
        pub cap: ibv_qp_cap,
        /// The peer.
        pub ah_attr: ibv_ah_attr,
        /// The alternate path.
        pub alt_ah_attr: ibv_ah_attr,
        /// Partition.
        pub pkey_index: u16,
        /// Partition of the alternate path.
        pub alt_pkey_index: u16,
        /// Whether the end of draining is reported.
        pub en_sqd_async_notify: u8,
        /// Whether the send queue is draining.
        pub sq_draining: u8,
        /// Maximum number of outstanding READs and atomics.
        pub max_rd_atomic: u8,
        /// Maximum number of READs and atomics held for the peer.
        pub max_dest_rd_atomic: u8,
        /// The time that an RNR NAK makes the peer wait, coded.
        pub min_rnr_timer: u8,
        /// The port.
        pub port_num: u8,
        /// Time-out of an acknowledgement, coded.
        pub timeout: u8,
        /// Retries after a time-out.
        pub retry_cnt: u8,
        /// Retries after an RNR NAK; 7 means no limit.
        pub rnr_retry: u8,
        /// Port of the alternate path.
        pub alt_port_num: u8,
        /// Time-out of the alternate path.
        pub alt_timeout: u8,
        /// Rate limit of packets.
        pub rate_limit: u32,
    }
}
