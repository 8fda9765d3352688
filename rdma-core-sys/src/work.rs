//! Work requests.

use std::ffi::{c_int, c_uint, c_void};

use crate::describe::{constants, records};
use crate::{ibv_mw, ibv_mw_bind_info};

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
        /// Starts only after all earlier READs and atomics.
        IBV_SEND_FENCE = 1 << 0,
        /// Success is reported.
        IBV_SEND_SIGNALED = 1 << 1,
        /// Wakes a receiver that waits for solicited completions only.
        IBV_SEND_SOLICITED = 1 << 2,
        /// Its data are copied at the post; keys are ignored.
        IBV_SEND_INLINE = 1 << 3,
    }
}

records! {
    /// A segment of local memory.
    #[derive(Debug, PartialEq, Eq)]
    pub struct ibv_sge {
        /// Address of the first byte.
        pub addr: u64,
        /// Length in bytes.
        pub length: u32,
        /// The region's key.
        pub lkey: u32,
    }

    /// Remote memory.
    #[derive(Debug)]
    pub struct ibv_wr_rdma {
        /// Address of the first byte.
        pub remote_addr: u64,
        /// The peer's key.
        pub rkey: u32,
    }

    /// The target of an atomic operation, and its operands.
    #[derive(Debug)]
    pub struct ibv_wr_atomic {
        /// Address of the first byte.
        pub remote_addr: u64,
        /// The expected value, or the addend.
        pub compare_add: u64,
        /// The replacement.
        pub swap: u64,
        /// The peer's key.
        pub rkey: u32,
    }

    /// The peer of a datagram.
    pub struct ibv_wr_ud {
        /// Address handle.
        pub ah: *mut c_void,
        /// The number of its queue pair.
        pub remote_qpn: u32,
        /// Its queue key.
        pub remote_qkey: u32,
    }

    /// The target, by opcode.
    pub union ibv_wr_target {
        /// For READs and WRITEs.
        pub rdma: ibv_wr_rdma,
        /// For atomic operations.
        pub atomic: ibv_wr_atomic,
        /// For datagrams.
        pub ud: ibv_wr_ud,
    }

    /// Bind of a window of type 2.
    pub struct ibv_wr_bind_mw {
        /// The window.
        pub mw: *mut ibv_mw,
        /// Its new key, which may differ from the window's current key in the last octet.
        pub rkey: u32,
        /// The memory to bind to.
        pub bind_info: ibv_mw_bind_info,
    }

    /// A request.
    pub struct ibv_send_wr {
        /// Identifies the request in its completion.
        pub wr_id: u64,
        /// The next one to post, or null.
        pub next: *mut ibv_send_wr,
        /// Local memory.
        pub sg_list: *mut ibv_sge,
        /// Segments.
        pub num_sge: c_int,
        /// The kind of the request.
        pub opcode: ibv_wr_opcode,
        /// Flags of a request.
        pub send_flags: ibv_send_flags,
        /// Immediate data in network byte order, or the key to invalidate in host byte order
        /// (`invalidate_rkey` in C).
        pub imm_data: u32,
        /// The target.
        pub wr: ibv_wr_target,
        /// XRC only.
        pub qp_type: u32,
        /// For binds only. In C it is part of an anonymous union.
        pub bind_mw: ibv_wr_bind_mw,
    }

    /// A receive buffer.
    pub struct ibv_recv_wr {
        /// Identifies the request in its completion.
        pub wr_id: u64,
        /// The next one to post, or null.
        pub next: *mut ibv_recv_wr,
        /// Local memory.
        pub sg_list: *mut ibv_sge,
        /// Segments.
        pub num_sge: c_int,
    }
}
