//! Conversion of work requests to verbs.

use std::ptr;

use dat_core::provider::{Datagram, PostError, RecvWr, Remote, Segment, SendOp, SendWr};
use rdma_core_sys::*;

use crate::Adapter;
use crate::device::KernelDriver;

/// The bit of a work request's ID that says that the request is a marker. The low bits say which
/// marker.
pub(crate) const MARKER: u64 = 1 << 63;
/// The bit of a work request's ID that says that the request is a receive.
pub(crate) const RECEIVE: u64 = 1 << 62;
/// The bit of a work request's ID that says that the request is a receive of a shared receive
/// queue.
pub(crate) const SHARED: u64 = 1 << 61;

/// Converts a request. Its completion contains `wr_id`.
#[inline]
pub(crate) fn request(wr: &SendWr<'_>, wr_id: u64) -> ibv_send_wr {
    let flag = |wanted, flag| if wanted { flag } else { 0 };
    let rdma =
        |to: Remote| ibv_wr_target { rdma: ibv_wr_rdma { remote_addr: to.addr, rkey: to.key } };
    let atomic = |at: Remote, compare_add, swap| ibv_wr_target {
        atomic: ibv_wr_atomic { remote_addr: at.addr, compare_add, swap, rkey: at.key },
    };
    let (opcode, imm_data, target) = match wr.op {
        SendOp::Send { invalidate: None } => (IBV_WR_SEND, 0, ibv_wr_target::zeroed()),
        SendOp::Send { invalidate: Some(key) } => {
            (IBV_WR_SEND_WITH_INV, key, ibv_wr_target::zeroed())
        }
        SendOp::SendImm { immediate } => (IBV_WR_SEND_WITH_IMM, immediate, ibv_wr_target::zeroed()),
        SendOp::Write(to) => (IBV_WR_RDMA_WRITE, 0, rdma(to)),
        SendOp::Read(from) | SendOp::ReadToWindow(from) => (IBV_WR_RDMA_READ, 0, rdma(from)),
        SendOp::WriteImm { to, immediate } => (IBV_WR_RDMA_WRITE_WITH_IMM, immediate, rdma(to)),
        SendOp::FetchAdd { at, add } => (IBV_WR_ATOMIC_FETCH_AND_ADD, 0, atomic(at, add, 0)),
        SendOp::CompareSwap { at, compare, swap } => {
            (IBV_WR_ATOMIC_CMP_AND_SWP, 0, atomic(at, compare, swap))
        }
    };
    ibv_send_wr {
        wr_id,
        sg_list: segments(wr.segments),
        num_sge: wr.segments.len() as i32,
        opcode,
        send_flags: flag(wr.solicited, IBV_SEND_SOLICITED) | flag(wr.fence, IBV_SEND_FENCE),
        imm_data,
        wr: target,
        ..ibv_send_wr::zeroed()
    }
}

/// Converts a datagram. Its completion contains `wr_id`.
#[inline]
pub(crate) fn datagram(wr: &Datagram<'_, Adapter>, wr_id: u64) -> ibv_send_wr {
    let solicited = if wr.solicited { IBV_SEND_SOLICITED } else { 0 };
    ibv_send_wr {
        wr_id,
        sg_list: segments(wr.segments),
        num_sge: wr.segments.len() as i32,
        opcode: if wr.immediate.is_some() { IBV_WR_SEND_WITH_IMM } else { IBV_WR_SEND },
        send_flags: IBV_SEND_SIGNALED | solicited,
        imm_data: wr.immediate.unwrap_or(0),
        wr: ibv_wr_target { ud: wr.address.destination(wr.qpn) },
        ..ibv_send_wr::zeroed()
    }
}

/// Converts a receive. Its completion contains `wr_id`.
#[inline]
pub(crate) fn receive(wr: &RecvWr<'_>, wr_id: u64, driver: Option<KernelDriver>) -> ibv_recv_wr {
    let list = match wr.segments {
        // siw's library refuses a receive without a segment.
        [] if driver == Some(KernelDriver::Siw) => &[EMPTY_SEGMENT],
        list => list,
    };
    ibv_recv_wr {
        wr_id,
        next: ptr::null_mut(),
        sg_list: segments(list),
        num_sge: list.len() as i32,
    }
}

const EMPTY_SEGMENT: Segment = Segment { addr: 0, len: 0, key: 0 };

/// Converts segments without copying: both types have the same layout of 16 bytes, which are
/// address, length and key. The library does not write through the pointer, although its C type
/// would allow it.
fn segments(segments: &[Segment]) -> *mut ibv_sge {
    const {
        use std::mem::offset_of;
        assert!(
            size_of::<Segment>() == size_of::<ibv_sge>()
                && align_of::<Segment>() == align_of::<ibv_sge>()
        );
        assert!(offset_of!(Segment, addr) == offset_of!(ibv_sge, addr));
        assert!(offset_of!(Segment, len) == offset_of!(ibv_sge, length));
        assert!(offset_of!(Segment, key) == offset_of!(ibv_sge, lkey));
    }
    segments.as_ptr().cast_mut().cast()
}

/// Converts the errno that posting returns. siw's library returns the errno negated.
pub(crate) fn post_error(errno: i32) -> std::result::Result<(), PostError> {
    match errno.abs() {
        0 => Ok(()),
        libc::ENOMEM => Err(PostError::Full),
        libc::EINVAL => Err(PostError::Bounds),
        _ => Err(PostError::Unsupported),
    }
}
