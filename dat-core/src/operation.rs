//! The constants that the standard and OFED's IB extension have for operations.

use dat_sys::ib::*;
use dat_sys::*;

use crate::provider::WcOp;

/// The constants of an operation.
pub(crate) struct Constants {
    /// The operation in the event of its completion.
    pub(crate) dto: DAT_DTOS,
    /// The type of the extension data in this event, if the event has any.
    pub(crate) extension: Option<DAT_IB_EXT_TYPE>,
    /// The counter of its posts, if there is one.
    pub(crate) posts: Option<DAT_EP_COUNTERS>,
    /// The counter of the bytes of its posts, if there is one.
    pub(crate) bytes: Option<DAT_EP_COUNTERS>,
}

impl Constants {
    /// The constants of the operation that a completion of this kind reports. The kind
    /// [`WcOp::Recv`] has several operations. These are the constants of a plain receive.
    #[inline(always)]
    #[rustfmt::skip] // One operation is one line, with the counters below.
    pub(crate) const fn of(op: WcOp) -> Self {
        match op {
            WcOp::Send => row(DAT_DTO_SEND, None,
                Some(DCNT_EP_POST_SEND), Some(DCNT_EP_POST_SEND_DATA)),
            WcOp::Write => row(DAT_DTO_RDMA_WRITE, None,
                Some(DCNT_EP_POST_WRITE), Some(DCNT_EP_POST_WRITE_DATA)),
            WcOp::WriteImm => row(DAT_IB_DTO_RDMA_WRITE_IMMED, Some(DAT_IB_RDMA_WRITE_IMMED),
                Some(DCNT_EP_POST_WRITE_IMM), Some(DCNT_EP_POST_WRITE_IMM_DATA)),
            WcOp::Read => row(DAT_DTO_RDMA_READ, None,
                Some(DCNT_EP_POST_READ), Some(DCNT_EP_POST_READ_DATA)),
            WcOp::FetchAdd => row(DAT_IB_DTO_FETCH_ADD, Some(DAT_IB_FETCH_AND_ADD),
                Some(DCNT_EP_POST_FETCH_ADD), None),
            WcOp::CompareSwap => row(DAT_IB_DTO_CMP_SWAP, Some(DAT_IB_CMP_AND_SWAP),
                Some(DCNT_EP_POST_CMP_SWAP), None),
            WcOp::Bind => row(DAT_DTO_BIND_MW, None, None, None),
            WcOp::Recv => row(DAT_DTO_RECEIVE, None,
                Some(DCNT_EP_POST_RECV), Some(DCNT_EP_POST_RECV_DATA)),
            WcOp::RecvMessageImm => row(DAT_IB_DTO_RECV_MSG_IMMED, Some(DAT_IB_RECV_IMMED_DATA),
                Some(DCNT_EP_POST_RECV), Some(DCNT_EP_POST_RECV_DATA)),
        }
    }
}

#[inline(always)]
const fn row(
    dto: DAT_DTOS,
    extension: Option<DAT_IB_EXT_TYPE>,
    posts: Option<DAT_EP_COUNTERS>,
    bytes: Option<DAT_EP_COUNTERS>,
) -> Constants {
    Constants { dto, extension, posts, bytes }
}
