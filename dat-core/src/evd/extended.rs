//! Completions of the IB extension's operations: events of a number of their own, which say more than others.

use dat_sys::ib::*;

use crate::provider::{Wc, WcOp, WcStatus};

/// What the event of a completion carries besides the usual; none: it is no extended one.
#[inline(always)]
pub(super) fn data(wc: &Wc) -> Option<DAT_IB_EXTENSION_EVENT_DATA> {
    match (wc.op, wc.immediate) {
        (WcOp::Send | WcOp::Write | WcOp::Read | WcOp::Bind, _) | (WcOp::Recv, None) => None,
        (WcOp::Recv, Some(data)) => Some(record(DAT_IB_RDMA_WRITE_IMMED_DATA, wc.status, data)),
        (WcOp::WriteImm, _) => Some(record(DAT_IB_RDMA_WRITE_IMMED, wc.status, 0)),
        (WcOp::FetchAdd, _) => Some(record(DAT_IB_FETCH_AND_ADD, wc.status, 0)),
        (WcOp::CompareSwap, _) => Some(record(DAT_IB_CMP_AND_SWAP, wc.status, 0)),
    }
}

#[cold]
fn record(what: DAT_IB_EXT_TYPE, status: WcStatus, immediate: u32) -> DAT_IB_EXTENSION_EVENT_DATA {
    DAT_IB_EXTENSION_EVENT_DATA {
        r#type: what,
        status: if status == WcStatus::Success { DAT_OP_SUCCESS } else { DAT_IB_OP_ERR },
        val: DAT_IB_EVENT_VALUE { immed: DAT_IB_IMMED_DATA { data: immediate } },
        ..DAT_IB_EXTENSION_EVENT_DATA::zeroed()
    }
}
