//! The events that report completions of the IB extension's operations. These events have their own
//! event numbers and carry additional data.

use dat_sys::ib::*;

use crate::provider::{Wc, WcOp, WcStatus};

/// Whether the event of a completion carries extension data.
#[inline(always)]
pub(super) fn is_extended(wc: &Wc) -> bool {
    match wc.op {
        WcOp::Send | WcOp::Write | WcOp::Read | WcOp::Bind => false,
        WcOp::Recv => wc.immediate.is_some(),
        WcOp::RecvMessageImm | WcOp::WriteImm | WcOp::FetchAdd | WcOp::CompareSwap => true,
    }
}

/// Writes the extension data of an event. `is_datagram` says whether the completion is one of a
/// queue pair that sends and receives datagrams.
///
/// # Safety
/// `data` may be written to.
#[cold]
pub(super) unsafe fn write(
    is_datagram: bool,
    (op, immediate, status): (WcOp, Option<u32>, WcStatus),
    data: *mut DAT_IB_EXTENSION_EVENT_DATA,
) {
    let (what, immediate) = match op {
        WcOp::Recv if is_datagram => (DAT_IB_UD_RECV, immediate.unwrap_or(0)),
        _ if is_datagram => (DAT_IB_UD_SEND, 0),
        WcOp::Recv => (DAT_IB_RDMA_WRITE_IMMED_DATA, immediate.unwrap_or(0)),
        WcOp::RecvMessageImm => (DAT_IB_RECV_IMMED_DATA, immediate.unwrap_or(0)),
        WcOp::FetchAdd => (DAT_IB_FETCH_AND_ADD, 0),
        WcOp::CompareSwap => (DAT_IB_CMP_AND_SWAP, 0),
        WcOp::Send | WcOp::Write | WcOp::Read | WcOp::Bind | WcOp::WriteImm => {
            (DAT_IB_RDMA_WRITE_IMMED, 0)
        }
    };
    // SAFETY: the caller guarantees that `data` may be written to.
    unsafe {
        data.write(DAT_IB_EXTENSION_EVENT_DATA {
            r#type: what,
            status: if status == WcStatus::Success { DAT_OP_SUCCESS } else { DAT_IB_OP_ERR },
            val: DAT_IB_EVENT_VALUE { immed: DAT_IB_IMMED_DATA { data: immediate } },
            ..DAT_IB_EXTENSION_EVENT_DATA::zeroed()
        });
    }
}
