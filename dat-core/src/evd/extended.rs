//! The events that report completions of the IB extension's operations. These events have their own
//! event numbers and carry additional data.

use dat_sys::ib::*;

use crate::operation::Constants;
use crate::provider::{Wc, WcOp, WcStatus};

/// The type of the extension data in the event of a completion, if the event has any.
/// `is_datagram` says whether the completion is one of a queue pair that sends and receives
/// datagrams.
#[inline(always)]
pub(super) fn data_type(is_datagram: bool, wc: &Wc) -> Option<DAT_IB_EXT_TYPE> {
    match wc.op {
        WcOp::Recv if is_datagram => Some(DAT_IB_UD_RECV),
        _ if is_datagram => Some(DAT_IB_UD_SEND),
        WcOp::Recv => wc.immediate.map(|_| DAT_IB_RDMA_WRITE_IMMED_DATA),
        op => Constants::of(op).extension,
    }
}

/// Writes the extension data of an event.
///
/// # Safety
/// `data` may be written to.
#[cold]
pub(super) unsafe fn write(
    what: DAT_IB_EXT_TYPE,
    (immediate, status): (Option<u32>, WcStatus),
    data: *mut DAT_IB_EXTENSION_EVENT_DATA,
) {
    let immediate = immediate.unwrap_or(0);
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
