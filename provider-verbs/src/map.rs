//! Conversion of statuses, access flags and events of verbs and rdma_cm to dat-core's types. The
//! conversions are tables, and none of them accesses a device.

use std::io;

use dat_core::provider::{Access, WcOp, WcStatus};
use rdma_core_sys::*;
use wire::cm::{SidrStatus, sidr_trailer};

use crate::device::KernelDriver;

/// Converts the status of a completion. RC queue pairs report only about the first fifteen
/// statuses. Any other status counts as a transport error.
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

/// Converts the status of a request that did not succeed. The same status has different meanings
/// for different drivers (Linux 6.12).
///
/// - `inaccessible`: the device cannot access the local segments of the request.
/// - `first`: the request is the first of its queue pair that fails, and neither side has ended the
///   connection.
pub fn request(
    driver: Option<KernelDriver>,
    ended: ibv_wc_status,
    op: WcOp,
    inaccessible: bool,
    first: bool,
) -> WcStatus {
    match (driver, ended) {
        // rxe gives a failed request the same status as the requests that are flushed after it
        // (`flush_send_wqe`), although `rxe_requester` knows why the request fails.
        (Some(KernelDriver::Rxe), IBV_WC_WR_FLUSH_ERR) if inaccessible && first => {
            WcStatus::LocalProtection
        }
        (Some(KernelDriver::Rxe), IBV_WC_LOC_QP_OP_ERR) if op == WcOp::Bind => WcStatus::BindFailed,
        // siw (`siw_qp_sq_process`) reports every local error of a request with this status.
        (Some(KernelDriver::Siw), IBV_WC_LOC_QP_OP_ERR) if inaccessible => {
            WcStatus::LocalProtection
        }
        _ => status(ended),
    }
}

/// Converts the status of a receive that did not succeed. `inaccessible` says that the device
/// cannot write to the buffer.
pub fn receive(driver: Option<KernelDriver>, ended: ibv_wc_status, inaccessible: bool) -> WcStatus {
    match (driver, ended) {
        // rxe (`send_data_in`) uses the same status for a message that is too long and for a buffer
        // that it cannot write to.
        (Some(KernelDriver::Rxe), IBV_WC_LOC_QP_OP_ERR) if inaccessible => {
            WcStatus::LocalProtection
        }
        (Some(KernelDriver::Rxe), IBV_WC_LOC_QP_OP_ERR) => WcStatus::LocalLength,
        // rxe (`check_rkey`) has refused an RDMA write whose immediate data this receive would have
        // reported. This side has made no error, so the receive counts as flushed.
        (Some(KernelDriver::Rxe), IBV_WC_REM_ACCESS_ERR) => WcStatus::Flushed,
        // siw (`siw_rdmap_complete`) reports every error of a receive with this status.
        (Some(KernelDriver::Siw), IBV_WC_GENERAL_ERR) if inaccessible => WcStatus::LocalProtection,
        _ => status(ended),
    }
}

/// Converts the access rights of a region. In verbs, the right to write remotely requires the right
/// to write locally, and local reading is always allowed.
pub fn access(access: Access, zero_based: bool) -> ibv_access_flags {
    let Access { local_read: _, local_write, remote_read, remote_write, remote_atomic } = access;
    let flag = |wanted, flag| if wanted { flag } else { 0 };
    flag(local_write || remote_write || remote_atomic, IBV_ACCESS_LOCAL_WRITE)
        | flag(remote_read, IBV_ACCESS_REMOTE_READ)
        | flag(remote_write, IBV_ACCESS_REMOTE_WRITE)
        | flag(remote_atomic, IBV_ACCESS_REMOTE_ATOMIC)
        | flag(zero_based, IBV_ACCESS_ZERO_BASED)
}

/// The meaning of an event of rdma_cm for a connection or for an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmEvent {
    /// The peer's address is resolved. The next step is to resolve the route.
    AddressResolved,
    /// The route is resolved. The next step is the connection request.
    RouteResolved,
    /// A peer requests a connection.
    Request,
    /// The peer has accepted. The next steps are the transition of the queue pair and the
    /// confirmation.
    Response,
    /// The connection is established.
    Established,
    /// The peer's consumer has rejected the request, with the private data behind
    /// [`REJECT_HEADER`].
    RejectedByPeer,
    /// The peer's provider or host has rejected the request: no program listens, resources are
    /// exhausted, or the protocol is violated.
    Rejected,
    /// The peer does not answer at its address.
    Unreachable,
    /// The connection could not be established for a reason on this side.
    Failed,
    /// Either side has ended the connection.
    Disconnected,
    /// The device of the connection has been removed.
    DeviceRemoved,
    /// The event does not concern the connection.
    Ignored,
}

/// Converts an event of rdma_cm. `private` contains the event's private data.
///
/// A rejection by a consumer has status 28 (IBA 12.6.7.2, "consumer reject") and starts with
/// [`REJECT_HEADER`], as the rejections of libdaplofa do. A rejection without the header was sent
/// by the kernel for a program that has died, or by a program that does not use DAT and has called
/// rdma_reject. Over iWARP the status is a negative errno and not 28.
pub fn cm_event(event: rdma_cm_event_type, status: i32, private: &[u8]) -> CmEvent {
    match event {
        RDMA_CM_EVENT_ADDR_RESOLVED => CmEvent::AddressResolved,
        RDMA_CM_EVENT_ROUTE_RESOLVED => CmEvent::RouteResolved,
        RDMA_CM_EVENT_CONNECT_REQUEST => CmEvent::Request,
        RDMA_CM_EVENT_CONNECT_RESPONSE => CmEvent::Response,
        RDMA_CM_EVENT_ESTABLISHED => CmEvent::Established,
        RDMA_CM_EVENT_ADDR_ERROR | RDMA_CM_EVENT_ROUTE_ERROR | RDMA_CM_EVENT_UNREACHABLE => {
            CmEvent::Unreachable
        }
        RDMA_CM_EVENT_CONNECT_ERROR => CmEvent::Failed,
        RDMA_CM_EVENT_REJECTED => {
            let by_consumer = status == CONSUMER_REJECT || status < 0;
            match by_consumer && private.starts_with(&REJECT_HEADER) {
                true => CmEvent::RejectedByPeer,
                false => CmEvent::Rejected,
            }
        }
        RDMA_CM_EVENT_DISCONNECTED => CmEvent::Disconnected,
        RDMA_CM_EVENT_DEVICE_REMOVAL => CmEvent::DeviceRemoved,
        // The other events concern multicast, or report that the address has moved to another
        // device or that the time-wait state has ended. None of them affects the connection.
        _ => CmEvent::Ignored,
    }
}

/// The reason for which the address of a datagram service could not be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// The peer's consumer has rejected the request.
    Rejected {
        /// The private data of the peer's consumer.
        private: Vec<u8>,
    },
    /// The peer's host has refused the request.
    Refused(SidrStatus),
    /// The peer's host does not answer.
    NoAnswer,
    /// The request could not be sent.
    Unreachable(String),
}

/// Converts an event of rdma_cm that ends an attempt to resolve the address of a datagram service.
/// Returns `None` if the event does not end the attempt. `private` contains the event's private
/// data.
///
/// A service that refuses has a positive status, which is that of the SIDR REP. The kernel uses the
/// status of a rejection also if the program has died or its backlog is full, but without private
/// data. A consumer of this provider always sends a trailer.
pub fn unresolved(event: rdma_cm_event_type, status: i32, private: &[u8]) -> Option<Unresolved> {
    Some(match (event, status) {
        (RDMA_CM_EVENT_UNREACHABLE, 1..=255) => match SidrStatus(status as u8) {
            SidrStatus::REJECT if private.iter().any(|&octet| octet != 0) => {
                Unresolved::Rejected { private: sidr_trailer::parse_rep(private).0.to_vec() }
            }
            status => Unresolved::Refused(status),
        },
        (RDMA_CM_EVENT_UNREACHABLE, NO_ANSWER) => Unresolved::NoAnswer,
        (
            RDMA_CM_EVENT_ADDR_ERROR
            | RDMA_CM_EVENT_ROUTE_ERROR
            | RDMA_CM_EVENT_UNREACHABLE
            | RDMA_CM_EVENT_CONNECT_ERROR
            | RDMA_CM_EVENT_REJECTED,
            _,
        ) => Unresolved::Unreachable(io::Error::from_raw_os_error(-status).to_string()),
        (RDMA_CM_EVENT_DEVICE_REMOVAL, _) => {
            Unresolved::Unreachable("the device is gone".to_owned())
        }
        _ => return None,
    })
}

/// The status of an event that reports that the peer has not answered.
const NO_ANSWER: i32 = -libc::ETIMEDOUT;

/// Converts the code of an MTU to bytes.
pub fn mtu(code: ibv_mtu) -> u32 {
    128 << code.clamp(IBV_MTU_256, IBV_MTU_4096)
}

/// The reason code of a rejection by a consumer.
const CONSUMER_REJECT: i32 = 28;

/// The octets in front of the private data of a rejection: the versions of DAT and of libdaplofa's
/// protocol, both 2.0.
pub const REJECT_HEADER: [u8; 4] = [2, 0, 2, 0];

/// The meaning of an asynchronous event of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The completion queue has overrun.
    CqOverflow,
    /// The queue pair is in the error state.
    QpBroken,
    /// The queue pair has received data, although its connection is not completely established.
    QpEstablished,
    /// The queue pair takes no more buffers from its shared receive queue.
    QpDrained,
    /// The shared receive queue has failed.
    SrqBroken,
    /// The shared receive queue has fewer buffers than its limit.
    SrqLimit,
    /// The device has failed.
    DeviceFatal,
    /// A port is down.
    PortDown,
    /// The event concerns no object.
    Ignored,
}

/// Converts an asynchronous event of a device.
pub fn device_event(event: ibv_event_type) -> DeviceEvent {
    match event {
        IBV_EVENT_CQ_ERR => DeviceEvent::CqOverflow,
        IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => {
            DeviceEvent::QpBroken
        }
        IBV_EVENT_COMM_EST => DeviceEvent::QpEstablished,
        IBV_EVENT_QP_LAST_WQE_REACHED => DeviceEvent::QpDrained,
        IBV_EVENT_SRQ_ERR => DeviceEvent::SrqBroken,
        IBV_EVENT_SRQ_LIMIT_REACHED => DeviceEvent::SrqLimit,
        IBV_EVENT_DEVICE_FATAL => DeviceEvent::DeviceFatal,
        IBV_EVENT_PORT_ERR => DeviceEvent::PortDown,
        _ => DeviceEvent::Ignored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_mapped_as_in_libdaplofa() {
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
        assert_eq!(
            status(1000),
            Transport,
            "an unknown status of a newer library must be a transport error"
        );
    }

    #[test]
    fn ambiguous_statuses_of_the_kernels_drivers_are_disambiguated() {
        use WcStatus::*;
        let receives =
            |driver, ended| [true, false].map(|inaccessible| receive(driver, ended, inaccessible));
        let send = |driver, ended, inaccessible, first| {
            request(driver, ended, WcOp::Send, inaccessible, first)
        };
        let sends = |driver, ended| {
            [true, false].map(|inaccessible| send(driver, ended, inaccessible, true))
        };
        let rxe = Some(KernelDriver::Rxe);
        assert_eq!(receives(rxe, IBV_WC_LOC_QP_OP_ERR), [LocalProtection, LocalLength]);
        assert_eq!(request(rxe, IBV_WC_LOC_QP_OP_ERR, WcOp::Bind, false, true), BindFailed);
        assert_eq!(send(rxe, IBV_WC_WR_FLUSH_ERR, true, false), Flushed);
        assert_eq!(sends(rxe, IBV_WC_LOC_QP_OP_ERR), [LocalEp; 2]);
        assert_eq!(receives(rxe, IBV_WC_REM_ACCESS_ERR), [Flushed; 2]);
        assert_eq!(sends(rxe, IBV_WC_REM_ACCESS_ERR), [RemoteAccess; 2]);
        assert_eq!(sends(rxe, IBV_WC_WR_FLUSH_ERR), [LocalProtection, Flushed]);
        assert_eq!(receives(rxe, IBV_WC_WR_FLUSH_ERR), [Flushed; 2]);
        let siw = Some(KernelDriver::Siw);
        assert_eq!(sends(siw, IBV_WC_LOC_QP_OP_ERR), [LocalProtection, LocalEp]);
        assert_eq!(send(siw, IBV_WC_LOC_QP_OP_ERR, true, false), LocalProtection);
        assert_eq!(receives(siw, IBV_WC_GENERAL_ERR), [LocalProtection, Transport]);
        for ended in [IBV_WC_WR_FLUSH_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_ACCESS_ERR] {
            assert_eq!(
                [sends(None, ended), receives(None, ended)],
                [[status(ended); 2]; 2],
                "the status of a hardware device must not be reinterpreted"
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
    fn a_rejection_is_the_consumers_if_it_has_libdaplofas_header() {
        let rejected = |status, private: &[u8]| cm_event(RDMA_CM_EVENT_REJECTED, status, private);
        assert_eq!(rejected(28, &[2, 0, 2, 0, b'n', b'o']), CmEvent::RejectedByPeer);
        assert_eq!(
            rejected(28, &[0; 148]),
            CmEvent::Rejected,
            "a rejection for a dead program must not be attributed to the peer's consumer"
        );
        assert_eq!(rejected(28, &[]), CmEvent::Rejected);
        assert_eq!(
            rejected(8, &[2, 0, 2, 0]),
            CmEvent::Rejected,
            "a rejection of an unknown service must not be attributed to the peer's consumer"
        );
        assert_eq!(
            rejected(-111, &[2, 0, 2, 0]),
            CmEvent::RejectedByPeer,
            "over iWARP, a rejection with the header must be attributed to the peer's consumer"
        );
    }

    #[test]
    fn a_datagram_service_is_unresolved_for_a_reason() {
        let unreachable =
            |status, private: &[u8]| unresolved(RDMA_CM_EVENT_UNREACHABLE, status, private);
        let nothing = [0; 136];
        let rejected = |private: &[u8]| Some(Unresolved::Rejected { private: private.to_vec() });
        let refused = |status| Some(Unresolved::Refused(status));
        assert_eq!(unreachable(2, &sidr_trailer::emit_rep(b"no")), rejected(b"no"));
        assert_eq!(unreachable(2, &sidr_trailer::emit_rep(b"")), rejected(b""));
        let mut of_others = nothing;
        of_others[0] = b'n';
        assert_eq!(unreachable(2, &of_others), rejected(&of_others));
        assert_eq!(
            unreachable(2, &nothing),
            refused(SidrStatus::REJECT),
            "a rejection for a dead program must not be attributed to the peer's consumer"
        );
        assert_eq!(unreachable(1, &nothing), refused(SidrStatus::UNSUPPORTED));
        assert_eq!(unreachable(3, &nothing), refused(SidrStatus::NO_QP));
        assert_eq!(unreachable(-110, &[]), Some(Unresolved::NoAnswer));
        for event in [RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ROUTE_ERROR] {
            let why = match unresolved(event, -libc::EHOSTUNREACH, &[]) {
                Some(Unresolved::Unreachable(why)) => why,
                other => panic!("{other:?}"),
            };
            assert!(why.starts_with("No route to host"), "{why}");
        }
        for event in [RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_TIMEWAIT_EXIT] {
            assert_eq!(unresolved(event, 0, &[]), None);
        }
    }

    #[test]
    fn an_mtu_is_converted_to_bytes() {
        let bytes: Vec<_> = (IBV_MTU_256..=IBV_MTU_4096).map(mtu).collect();
        assert_eq!(bytes, [256, 512, 1024, 2048, 4096]);
        assert_eq!(
            [mtu(0), mtu(100)],
            [256, 4096],
            "an unknown code of a newer library must not overflow"
        );
    }

    #[test]
    fn every_event_of_rdma_cm_has_a_meaning() {
        let words: Vec<_> = (RDMA_CM_EVENT_ADDR_RESOLVED..=RDMA_CM_EVENT_TIMEWAIT_EXIT + 1)
            .map(|event| cm_event(event, 0, &[]))
            .collect();
        use CmEvent::*;
        assert_eq!(
            words,
            [
                AddressResolved,
                Unreachable,
                RouteResolved,
                Unreachable,
                Request,
                Response,
                Failed,
                Unreachable,
                Rejected,
                Established,
                Disconnected,
                DeviceRemoved,
                Ignored,
                Ignored,
                Ignored,
                Ignored,
                Ignored,
            ]
        );
    }

    #[test]
    fn every_event_of_a_device_has_a_meaning() {
        let words: Vec<_> = (IBV_EVENT_CQ_ERR..=IBV_EVENT_WQ_FATAL).map(device_event).collect();
        use DeviceEvent::*;
        assert_eq!(
            words,
            [
                CqOverflow,
                QpBroken,
                QpBroken,
                QpBroken,
                QpEstablished,
                Ignored,
                Ignored,
                Ignored,
                DeviceFatal,
                Ignored,
                PortDown,
                Ignored,
                Ignored,
                Ignored,
                SrqBroken,
                SrqLimit,
                QpDrained,
                Ignored,
                Ignored,
                Ignored,
            ]
        );
    }
}
