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

    /// Which members of [`ibv_qp_attr`] are set.
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
        /// Takes receives.
        IBV_QPS_INIT = 1,
        /// Receives.
        IBV_QPS_RTR = 2,
        /// Sends.
        IBV_QPS_RTS = 3,
        IBV_QPS_SQD = 4,
        IBV_QPS_SQE = 5,
        /// Flushes whatever is posted.
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
        /// Bytes of a request that carries its data itself.
        pub max_inline_data: u32,
    }

    /// How to make a queue pair.
    pub struct ibv_qp_init_attr {
        /// The owner's.
        pub qp_context: *mut c_void,
        /// Where requests complete.
        pub send_cq: *mut ibv_cq,
        /// Where receives complete.
        pub recv_cq: *mut ibv_cq,
        /// Shared receive queue instead of its own, or null.
        pub srq: *mut ibv_srq,
        /// Sizes; comes back with what there is.
        pub cap: ibv_qp_cap,
        /// Kind.
        pub qp_type: ibv_qp_type,
        /// Not 0: every request is signalled.
        pub sq_sig_all: c_int,
    }

    /// A queue pair.
    pub struct ibv_qp {
        /// Its device.
        pub context: *mut ibv_context,
        /// The owner's.
        pub qp_context: *mut c_void,
        /// Its domain.
        pub pd: *mut ibv_pd,
        /// Where requests complete.
        pub send_cq: *mut ibv_cq,
        /// Where receives complete.
        pub recv_cq: *mut ibv_cq,
        /// Shared receive queue, or null.
        pub srq: *mut ibv_srq,
        /// The kernel's name for it.
        pub handle: u32,
        /// Its number on the wire.
        pub qp_num: u32,
        /// As the library knows it.
        pub state: ibv_qp_state,
        /// Kind.
        pub qp_type: ibv_qp_type,
        /// The library's.
        pub mutex: libc::pthread_mutex_t,
        /// The library's.
        pub cond: libc::pthread_cond_t,
        /// The library's.
        pub events_completed: u32,
    }

    /// The global part of an address.
    #[derive(Debug)]
    pub struct ibv_global_route {
        /// Destination.
        pub dgid: ibv_gid,
        /// Flow label.
        pub flow_label: u32,
        /// Source, by its place in the port's table.
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
        /// Bits of the source.
        pub src_path_bits: u8,
        /// Rate, coded.
        pub static_rate: u8,
        /// There is a global part.
        pub is_global: u8,
        /// The port.
        pub port_num: u8,
    }

    /// What may be changed of a queue pair, and asked.
    #[derive(Debug)]
    pub struct ibv_qp_attr {
        /// State to go to.
        pub qp_state: ibv_qp_state,
        /// State it is supposed to be in.
        pub cur_qp_state: ibv_qp_state,
        /// Path MTU.
        pub path_mtu: ibv_mtu,
        /// State of path migration.
        pub path_mig_state: c_uint,
        /// Of datagrams.
        pub qkey: u32,
        /// First PSN to receive.
        pub rq_psn: u32,
        /// First PSN to send.
        pub sq_psn: u32,
        /// The peer's number.
        pub dest_qp_num: u32,
        /// What the peer may do.
        pub qp_access_flags: ibv_access_flags,
        /// Sizes.
        pub cap: ibv_qp_cap,
        /// The peer.
        pub ah_attr: ibv_ah_attr,
        /// Another way to it.
        pub alt_ah_attr: ibv_ah_attr,
        /// Partition.
        pub pkey_index: u16,
        /// That of the other way.
        pub alt_pkey_index: u16,
        /// Tell of the end of draining.
        pub en_sqd_async_notify: u8,
        /// Is draining.
        pub sq_draining: u8,
        /// READs and atomics outstanding.
        pub max_rd_atomic: u8,
        /// READs and atomics held for the peer.
        pub max_dest_rd_atomic: u8,
        /// What an RNR NAK asks the peer to wait, coded.
        pub min_rnr_timer: u8,
        /// The port.
        pub port_num: u8,
        /// Time-out of an acknowledgement, coded.
        pub timeout: u8,
        /// Retries after a time-out.
        pub retry_cnt: u8,
        /// Retries after an RNR NAK; 7: no limit.
        pub rnr_retry: u8,
        /// Port of the other way.
        pub alt_port_num: u8,
        /// Time-out of the other way.
        pub alt_timeout: u8,
        /// Of packets.
        pub rate_limit: u32,
    }
}
