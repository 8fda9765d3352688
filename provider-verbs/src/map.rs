//! What verbs and rdma_cm say, in dat-core's words. Tables; nothing here touches a device.

use dat_core::provider::{Access, WcOp, WcStatus};
use rdma_core_sys::*;

use crate::device::Software;

/// How a work request ended. RC queue pairs know only the first fifteen or so; whatever else a device may say, it gave up.
pub fn status(status: ibv_wc_status) -> WcStatus {
    match status {
        IBV_WC_SUCCESS => WcStatus::Success,
        IBV_WC_WR_FLUSH_ERR => WcStatus::Flushed,
        IBV_WC_LOC_LEN_ERR => WcStatus::LocalLength,
        IBV_WC_LOC_QP_OP_ERR | IBV_WC_LOC_EEC_OP_ERR => WcStatus::LocalEp,
        IBV_WC_LOC_PROT_ERR | IBV_WC_LOC_ACCESS_ERR => WcStatus::LocalProtection,
        IBV_WC_MW_BIND_ERR => WcStatus::BindFailed,
        IBV_WC_BAD_RESP_ERR => WcStatus::BadResponse,
        IBV_WC_REM_ACCESS_ERR => WcStatus::RemoteAccess,
        IBV_WC_REM_INV_REQ_ERR | IBV_WC_REM_OP_ERR | IBV_WC_REM_ABORT_ERR => {
            WcStatus::RemoteResponder
        }
        IBV_WC_RNR_RETRY_EXC_ERR => WcStatus::ReceiverNotReady,
        _ => WcStatus::Transport,
    }
}

/// How a request ended that did not succeed, in the words of the kernel's drivers (Linux 6.12) or of hardware. `unfit`: the
/// device cannot read or write where it says. `first`: none of its queue pair did so before, and nobody ended the connection.
pub fn request(
    driver: Option<Software>,
    ended: ibv_wc_status,
    op: WcOp,
    unfit: bool,
    first: bool,
) -> WcStatus {
    match (driver, ended) {
        // `rxe_requester` notes why it fails a request, and `flush_send_wqe` completes that like those behind it.
        (Some(Software::Rxe), IBV_WC_WR_FLUSH_ERR) if unfit && first => WcStatus::LocalProtection,
        (Some(Software::Rxe), IBV_WC_LOC_QP_OP_ERR) if op == WcOp::Bind => WcStatus::BindFailed,
        // `siw_qp_sq_process` has one word for whatever is wrong here.
        (Some(Software::Siw), IBV_WC_LOC_QP_OP_ERR) if unfit => WcStatus::LocalProtection,
        _ => status(ended),
    }
}

/// The same of a receive; `unfit`: no message can be written to its buffer.
pub fn receive(driver: Option<Software>, ended: ibv_wc_status, unfit: bool) -> WcStatus {
    match (driver, ended) {
        // `send_data_in` has one word for a message that is too long and for a buffer that it cannot write to.
        (Some(Software::Rxe), IBV_WC_LOC_QP_OP_ERR) if unfit => WcStatus::LocalProtection,
        (Some(Software::Rxe), IBV_WC_LOC_QP_OP_ERR) => WcStatus::LocalLength,
        // `check_rkey` has refused what the immediate data would have told of; this side did nothing wrong.
        (Some(Software::Rxe), IBV_WC_REM_ACCESS_ERR) => WcStatus::Flushed,
        // `siw_rdmap_complete` has one word for whatever is wrong here.
        (Some(Software::Siw), IBV_WC_GENERAL_ERR) if unfit => WcStatus::LocalProtection,
        _ => status(ended),
    }
}

/// What a region allows. Verbs do not grant remote writing without local writing, and cannot refuse local reading.
pub fn access(access: Access, zero_based: bool) -> ibv_access_flags {
    let Access { local_read: _, local_write, remote_read, remote_write, remote_atomic } = access;
    let flag = |wanted, flag| if wanted { flag } else { 0 };
    flag(local_write || remote_write || remote_atomic, IBV_ACCESS_LOCAL_WRITE)
        | flag(remote_read, IBV_ACCESS_REMOTE_READ)
        | flag(remote_write, IBV_ACCESS_REMOTE_WRITE)
        | flag(remote_atomic, IBV_ACCESS_REMOTE_ATOMIC)
        | flag(zero_based, IBV_ACCESS_ZERO_BASED)
}

/// What an event of rdma_cm means for a connection, or for an attempt to make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmNews {
    /// The peer's address is known: find the way.
    Resolved,
    /// The way is known: call.
    Routed,
    /// A peer calls.
    Request,
    /// The peer has accepted: make the queue pair ready, and say so.
    Response,
    /// It is up.
    Established,
    /// The peer's consumer said no, with the private data that follow [`REJECT_HEADER`].
    RejectedByPeer,
    /// Its provider or its host did: nobody listens, no room, a reason of the protocol.
    Rejected,
    /// Nobody answers at this address.
    Unreachable,
    /// It could not be made for a reason on this side.
    Failed,
    /// Either side ended it.
    Disconnected,
    /// Its device is gone.
    Gone,
    /// Nothing that matters to it.
    Nothing,
}

/// The words of an event. `private`: what came with it.
///
/// A rejection by a consumer has status 28 (IBA 12.6.7.2, "consumer reject") and starts with [`REJECT_HEADER`], as
/// libdaplofa's do; without it, it is what the kernel sends for a program that has died, or rdma_reject for one of
/// another kind. Rejections over iWARP have a negative errno instead.
pub fn cm_news(event: rdma_cm_event_type, status: i32, private: &[u8]) -> CmNews {
    match event {
        RDMA_CM_EVENT_ADDR_RESOLVED => CmNews::Resolved,
        RDMA_CM_EVENT_ROUTE_RESOLVED => CmNews::Routed,
        RDMA_CM_EVENT_CONNECT_REQUEST => CmNews::Request,
        RDMA_CM_EVENT_CONNECT_RESPONSE => CmNews::Response,
        RDMA_CM_EVENT_ESTABLISHED => CmNews::Established,
        RDMA_CM_EVENT_ADDR_ERROR | RDMA_CM_EVENT_ROUTE_ERROR | RDMA_CM_EVENT_UNREACHABLE => {
            CmNews::Unreachable
        }
        RDMA_CM_EVENT_CONNECT_ERROR => CmNews::Failed,
        RDMA_CM_EVENT_REJECTED => {
            let by_consumer = status == CONSUMER_REJECT || status < 0;
            match by_consumer && private.starts_with(&REJECT_HEADER) {
                true => CmNews::RejectedByPeer,
                false => CmNews::Rejected,
            }
        }
        RDMA_CM_EVENT_DISCONNECTED => CmNews::Disconnected,
        RDMA_CM_EVENT_DEVICE_REMOVAL => CmNews::Gone,
        // The address has moved to another device, a connection stays where it is; a timewait is over; multicast.
        _ => CmNews::Nothing,
    }
}

/// The reason of a rejection that says: the consumer.
const CONSUMER_REJECT: i32 = 28;

/// What comes before the private data of a rejection: the versions of DAT and of libdaplofa's protocol, both 2.0.
pub const REJECT_HEADER: [u8; 4] = [2, 0, 2, 0];

/// What an asynchronous event of a device means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceNews {
    /// The completion queue has overrun.
    CqOverflow,
    /// The queue pair is in the error state.
    QpBroken,
    /// The queue pair has data of a connection that is not quite made yet.
    QpEstablished,
    /// The queue pair takes no more from its shared receive queue.
    QpDrained,
    /// The shared receive queue is of no use.
    SrqBroken,
    /// It has fewer buffers than its limit.
    SrqLimit,
    /// The device is of no use.
    DeviceFatal,
    /// A port is down.
    PortDown,
    /// Nothing that matters.
    Nothing,
}

/// The words of an asynchronous event.
pub fn device_news(event: ibv_event_type) -> DeviceNews {
    match event {
        IBV_EVENT_CQ_ERR => DeviceNews::CqOverflow,
        IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => DeviceNews::QpBroken,
        IBV_EVENT_COMM_EST => DeviceNews::QpEstablished,
        IBV_EVENT_QP_LAST_WQE_REACHED => DeviceNews::QpDrained,
        IBV_EVENT_SRQ_ERR => DeviceNews::SrqBroken,
        IBV_EVENT_SRQ_LIMIT_REACHED => DeviceNews::SrqLimit,
        IBV_EVENT_DEVICE_FATAL => DeviceNews::DeviceFatal,
        IBV_EVENT_PORT_ERR => DeviceNews::PortDown,
        _ => DeviceNews::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_the_word_that_libdaplofa_gives_it() {
        let words: Vec<_> = (IBV_WC_SUCCESS..=IBV_WC_GENERAL_ERR).map(status).collect();
        use WcStatus::*;
        assert_eq!(
            words,
            [
                Success,
                LocalLength,
                LocalEp,
                LocalEp,
                LocalProtection,
                Flushed,
                BindFailed,
                BadResponse,
                LocalProtection,
                RemoteResponder,
                RemoteAccess,
                RemoteResponder,
                Transport,
                ReceiverNotReady,
                Transport,
                Transport,
                RemoteResponder,
                Transport,
                Transport,
                Transport,
                Transport,
                Transport,
            ]
        );
        assert_eq!(status(1000), Transport, "of a newer library");
    }

    #[test]
    fn words_of_the_kernels_drivers_are_told_by_what_they_are_of() {
        use WcStatus::*;
        let receives = |driver, ended| [true, false].map(|unfit| receive(driver, ended, unfit));
        let send = |driver, ended, unfit, first| request(driver, ended, WcOp::Send, unfit, first);
        let sends = |driver, ended| [true, false].map(|unfit| send(driver, ended, unfit, true));
        let rxe = Some(Software::Rxe);
        assert_eq!(receives(rxe, IBV_WC_LOC_QP_OP_ERR), [LocalProtection, LocalLength]);
        assert_eq!(request(rxe, IBV_WC_LOC_QP_OP_ERR, WcOp::Bind, false, true), BindFailed);
        assert_eq!(send(rxe, IBV_WC_WR_FLUSH_ERR, true, false), Flushed);
        assert_eq!(sends(rxe, IBV_WC_LOC_QP_OP_ERR), [LocalEp; 2]);
        assert_eq!(receives(rxe, IBV_WC_REM_ACCESS_ERR), [Flushed; 2]);
        assert_eq!(sends(rxe, IBV_WC_REM_ACCESS_ERR), [RemoteAccess; 2]);
        assert_eq!(sends(rxe, IBV_WC_WR_FLUSH_ERR), [LocalProtection, Flushed]);
        assert_eq!(receives(rxe, IBV_WC_WR_FLUSH_ERR), [Flushed; 2]);
        let siw = Some(Software::Siw);
        assert_eq!(sends(siw, IBV_WC_LOC_QP_OP_ERR), [LocalProtection, LocalEp]);
        assert_eq!(send(siw, IBV_WC_LOC_QP_OP_ERR, true, false), LocalProtection);
        assert_eq!(receives(siw, IBV_WC_GENERAL_ERR), [LocalProtection, Transport]);
        for ended in [IBV_WC_WR_FLUSH_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_ACCESS_ERR] {
            assert_eq!(
                [sends(None, ended), receives(None, ended)],
                [[status(ended); 2]; 2],
                "hardware"
            );
        }
    }

    #[test]
    fn remote_writing_needs_local_writing() {
        let nothing = Access::default();
        assert_eq!(access(nothing, false), 0);
        assert_eq!(access(Access { local_read: true, ..nothing }, true), IBV_ACCESS_ZERO_BASED);
        assert_eq!(access(Access { remote_read: true, ..nothing }, false), IBV_ACCESS_REMOTE_READ);
        assert_eq!(
            access(Access { remote_write: true, ..nothing }, false),
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
        );
        assert_eq!(
            access(Access { remote_atomic: true, ..nothing }, false),
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC
        );
    }

    #[test]
    fn a_rejection_is_the_consumers_if_it_says_so_in_libdaplofas_way() {
        let rejected = |status, private: &[u8]| cm_news(RDMA_CM_EVENT_REJECTED, status, private);
        assert_eq!(rejected(28, &[2, 0, 2, 0, b'n', b'o']), CmNews::RejectedByPeer);
        assert_eq!(rejected(28, &[0; 148]), CmNews::Rejected, "of a program that died");
        assert_eq!(rejected(28, &[]), CmNews::Rejected);
        assert_eq!(rejected(8, &[2, 0, 2, 0]), CmNews::Rejected, "no such service");
        assert_eq!(rejected(-111, &[2, 0, 2, 0]), CmNews::RejectedByPeer, "iWARP");
    }

    #[test]
    fn every_event_of_rdma_cm_has_a_meaning() {
        let words: Vec<_> = (RDMA_CM_EVENT_ADDR_RESOLVED..=RDMA_CM_EVENT_TIMEWAIT_EXIT + 1)
            .map(|event| cm_news(event, 0, &[]))
            .collect();
        use CmNews::*;
        assert_eq!(
            words,
            [
                Resolved,
                Unreachable,
                Routed,
                Unreachable,
                Request,
                Response,
                Failed,
                Unreachable,
                Rejected,
                Established,
                Disconnected,
                Gone,
                Nothing,
                Nothing,
                Nothing,
                Nothing,
                Nothing,
            ]
        );
    }

    #[test]
    fn every_event_of_a_device_has_a_meaning() {
        let words: Vec<_> = (IBV_EVENT_CQ_ERR..=IBV_EVENT_WQ_FATAL).map(device_news).collect();
        use DeviceNews::*;
        assert_eq!(
            words,
            [
                CqOverflow,
                QpBroken,
                QpBroken,
                QpBroken,
                QpEstablished,
                Nothing,
                Nothing,
                Nothing,
                DeviceFatal,
                Nothing,
                PortDown,
                Nothing,
                Nothing,
                Nothing,
                SrqBroken,
                SrqLimit,
                QpDrained,
                Nothing,
                Nothing,
                Nothing,
            ]
        );
    }
}
