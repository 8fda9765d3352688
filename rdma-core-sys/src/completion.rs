//! Completion queues, their channels, work completions.

use std::ffi::{c_int, c_uint, c_void};

use crate::describe::{constants, records};
use crate::ibv_context;

constants! {
    /// The status of a work request.
    pub type ibv_wc_status = c_uint {
        IBV_WC_SUCCESS = 0,
        IBV_WC_LOC_LEN_ERR = 1,
        IBV_WC_LOC_QP_OP_ERR = 2,
        IBV_WC_LOC_EEC_OP_ERR = 3,
        IBV_WC_LOC_PROT_ERR = 4,
        IBV_WC_WR_FLUSH_ERR = 5,
        IBV_WC_MW_BIND_ERR = 6,
        IBV_WC_BAD_RESP_ERR = 7,
        IBV_WC_LOC_ACCESS_ERR = 8,
        IBV_WC_REM_INV_REQ_ERR = 9,
        IBV_WC_REM_ACCESS_ERR = 10,
        IBV_WC_REM_OP_ERR = 11,
        IBV_WC_RETRY_EXC_ERR = 12,
        IBV_WC_RNR_RETRY_EXC_ERR = 13,
        IBV_WC_LOC_RDD_VIOL_ERR = 14,
        IBV_WC_REM_INV_RD_REQ_ERR = 15,
        IBV_WC_REM_ABORT_ERR = 16,
        IBV_WC_INV_EECN_ERR = 17,
        IBV_WC_INV_EEC_STATE_ERR = 18,
        IBV_WC_FATAL_ERR = 19,
        IBV_WC_RESP_TIMEOUT_ERR = 20,
        IBV_WC_GENERAL_ERR = 21,
    }

    /// The operation that a completion reports. It is defined only if the status is success.
    pub type ibv_wc_opcode = c_uint {
        IBV_WC_SEND = 0,
        IBV_WC_RDMA_WRITE = 1,
        IBV_WC_RDMA_READ = 2,
        IBV_WC_COMP_SWAP = 3,
        IBV_WC_FETCH_ADD = 4,
        IBV_WC_BIND_MW = 5,
        IBV_WC_LOCAL_INV = 6,
        /// This bit marks the completion of a receive.
        IBV_WC_RECV = 1 << 7,
        IBV_WC_RECV_RDMA_WITH_IMM = IBV_WC_RECV + 1,
    }

    /// Flags of a completion.
    pub type ibv_wc_flags = c_uint {
        IBV_WC_GRH = 1 << 0,
        /// The member [`ibv_wc::imm_data`] contains immediate data.
        IBV_WC_WITH_IMM = 1 << 1,
        /// The checksum of a datagram is correct.
        IBV_WC_IP_CSUM_OK = 1 << 2,
        /// The member [`ibv_wc::imm_data`] contains an invalidated key.
        IBV_WC_WITH_INV = 1 << 3,
    }
}

records! {
    /// A channel that reports completion events of completion queues.
    pub struct ibv_comp_channel {
        /// The device to which the channel belongs.
        pub context: *mut ibv_context,
        /// The file descriptor, which is readable when there is an event.
        pub fd: c_int,
        /// The number of completion queues that use this channel.
        pub refcnt: c_int,
    }

    /// A completion queue.
    pub struct ibv_cq {
        /// The device to which the completion queue belongs.
        pub context: *mut ibv_context,
        /// The channel that reports the completion events of the queue.
        pub channel: *mut ibv_comp_channel,
        /// The context that the owner has set.
        pub cq_context: *mut c_void,
        /// The kernel's handle of the completion queue.
        pub handle: u32,
        /// The number of completions that the queue can hold.
        pub cqe: c_int,
        /// Only the library uses this member.
        pub mutex: libc::pthread_mutex_t,
        /// Only the library uses this member.
        pub cond: libc::pthread_cond_t,
        /// Only the library uses this member.
        pub comp_events_completed: u32,
        /// Only the library uses this member.
        pub async_events_completed: u32,
    }

    /// A work completion.
    #[derive(Debug)]
    pub struct ibv_wc {
        /// The ID of the work request.
        pub wr_id: u64,
        /// The status of the work request.
        pub status: ibv_wc_status,
        /// The operation, if the work request has succeeded.
        pub opcode: ibv_wc_opcode,
        /// The vendor's error code.
        pub vendor_err: u32,
        /// The number of bytes that were received or fetched.
        pub byte_len: u32,
        /// The immediate data in network byte order, or the invalidated key in host byte order
        /// (`invalidated_rkey` in C).
        pub imm_data: u32,
        /// The number of the queue pair.
        pub qp_num: u32,
        /// The number of the sender's queue pair (datagrams).
        pub src_qp: u32,
        /// The flags of the completion, see [`ibv_wc_flags`].
        pub wc_flags: ibv_wc_flags,
        /// The index of the partition key.
        pub pkey_index: u16,
        /// The local identifier of the sender.
        pub slid: u16,
        /// The service level.
        pub sl: u8,
        /// The path bits of the destination.
        pub dlid_path_bits: u8,
    }
}
