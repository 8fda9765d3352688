//! Work requests.

use std::ffi::{c_int, c_uint};

use crate::describe::{constants, records};
use crate::{ibv_ah, ibv_mw, ibv_mw_bind_info};

constants! {
    /// The kind of a request.
    pub type ibv_wr_opcode = c_uint {
        IBV_WR_RDMA_WRITE = 0,
        IBV_WR_RDMA_WRITE_WITH_IMM = 1,
        IBV_WR_SEND = 2,
        IBV_WR_SEND_WITH_IMM = 3,
        IBV_WR_RDMA_READ = 4,
        IBV_WR_ATOMIC_CMP_AND_SWP = 5,
        IBV_WR_ATOMIC_FETCH_AND_ADD = 6,
        IBV_WR_LOCAL_INV = 7,
        IBV_WR_BIND_MW = 8,
        IBV_WR_SEND_WITH_INV = 9,
    }

    /// Flags of a request.
    pub type ibv_send_flags = c_uint {
        /// The request starts only after all earlier READs and atomic operations have completed.
        IBV_SEND_FENCE = 1 << 0,
        /// The request leaves a completion even if it succeeds.
        IBV_SEND_SIGNALED = 1 << 1,
        /// The request wakes a receiver that waits only for solicited completions.
        IBV_SEND_SOLICITED = 1 << 2,
        /// The data are copied when the request is posted, and the keys of its segments are
        /// ignored.
        IBV_SEND_INLINE = 1 << 3,
    }
}

records! {
    /// A segment of local memory.
    #[derive(Debug, PartialEq, Eq)]
    pub struct ibv_sge {
        /// The address of the first byte.
        pub addr: u64,
        /// The length in bytes.
        pub length: u32,
        /// The key of the region.
        pub lkey: u32,
    }

    /// A part of the peer's memory.
    #[derive(Debug)]
    pub struct ibv_wr_rdma {
        /// The address of the first byte.
        pub remote_addr: u64,
        /// The key of the peer's memory.
        pub rkey: u32,
    }

    /// The target of an atomic operation, and its operands.
    #[derive(Debug)]
    pub struct ibv_wr_atomic {
        /// The address of the first byte.
        pub remote_addr: u64,
        /// The expected value of a compare-and-swap, or the addend of a fetch-and-add.
        pub compare_add: u64,
        /// The new value of a compare-and-swap.
        pub swap: u64,
        /// The key of the peer's memory.
        pub rkey: u32,
    }

    /// The peer of a datagram.
    pub struct ibv_wr_ud {
        /// The address handle of the peer.
        pub ah: *mut ibv_ah,
        /// The number of the peer's queue pair.
        pub remote_qpn: u32,
        /// The queue key of the peer.
        pub remote_qkey: u32,
    }

    /// The target of a request. The opcode of the request selects the valid member.
    pub union ibv_wr_target {
        /// The target of a READ or WRITE.
        pub rdma: ibv_wr_rdma,
        /// The target of an atomic operation.
        pub atomic: ibv_wr_atomic,
        /// The destination of a datagram.
        pub ud: ibv_wr_ud,
    }

    /// The bind of a window of type 2.
    pub struct ibv_wr_bind_mw {
        /// The window.
        pub mw: *mut ibv_mw,
        /// The new key of the window, which may differ from its current key in the last octet.
        pub rkey: u32,
        /// The memory to which the window is bound.
        pub bind_info: ibv_mw_bind_info,
    }

    /// A request.
    pub struct ibv_send_wr {
        /// A number that identifies the request in its completion.
        pub wr_id: u64,
        /// The next request to post, or null.
        pub next: *mut ibv_send_wr,
        /// The segments of local memory.
        pub sg_list: *mut ibv_sge,
        /// The number of segments.
        pub num_sge: c_int,
        /// The kind of the request.
        pub opcode: ibv_wr_opcode,
        /// Flags of a request.
        pub send_flags: ibv_send_flags,
        /// The immediate data in network byte order, or the key to invalidate in host byte order
        /// (`invalidate_rkey` in C).
        pub imm_data: u32,
        /// The target of the request.
        pub wr: ibv_wr_target,
        /// A member that only XRC uses.
        pub qp_type: u32,
        /// The bind, if the request binds a window. In C, this is part of an anonymous union.
        pub bind_mw: ibv_wr_bind_mw,
    }

    /// A receive buffer.
    pub struct ibv_recv_wr {
        /// A number that identifies the request in its completion.
        pub wr_id: u64,
        /// The next request to post, or null.
        pub next: *mut ibv_recv_wr,
        /// The segments of local memory.
        pub sg_list: *mut ibv_sge,
        /// The number of segments.
        pub num_sge: c_int,
    }
}
