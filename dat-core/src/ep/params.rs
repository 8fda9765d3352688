//! Endpoint attributes: their defaults, the checks of their values, and the states in which
//! dat_ep_modify may change them.

use dat_sys::ib::DAT_IB_SERVICE_TYPE_UD;
use dat_sys::*;

use super::post::MAX_SEGMENTS;
use super::state::State;
use super::watermark;
use crate::error::{Error, Result};
use crate::evd::{Evd, Stream, StreamOf};
use crate::provider::{Attrs, ServiceType, Transport};

/// The attributes of an endpoint that is created without attributes. The standard requires
/// reasonable defaults (uDAPL 1.2, dat_ep_create). [`choose_flags`] chooses the completion flags.
pub(super) fn defaults(limits: &Attrs, service: ServiceType) -> DAT_EP_ATTR {
    let dtos = limits.max_dtos.min(64) as DAT_COUNT;
    let iov = limits.max_segments.min(4) as DAT_COUNT;
    let (service_type, max_message_size) = match service {
        ServiceType::Connection => (DAT_SERVICE_TYPE_RC, limits.max_message),
        ServiceType::Datagram => (DAT_IB_SERVICE_TYPE_UD, limits.max_datagram.unwrap_or(0)),
    };
    DAT_EP_ATTR {
        service_type,
        max_message_size,
        max_rdma_size: limits.max_message,
        qos: DAT_QOS_BEST_EFFORT,
        recv_completion_flags: DAT_COMPLETION_DEFAULT_FLAG,
        request_completion_flags: DAT_COMPLETION_DEFAULT_FLAG,
        max_recv_dtos: dtos,
        max_request_dtos: dtos,
        max_recv_iov: iov,
        max_request_iov: iov,
        max_rdma_read_in: limits.max_read_depth.min(4) as DAT_COUNT,
        max_rdma_read_out: limits.max_read_depth.min(4) as DAT_COUNT,
        srq_soft_hw: DAT_WATERMARK_INFINITE,
        max_rdma_read_iov: limits.max_read_segments.min(4) as DAT_COUNT,
        max_rdma_write_iov: iov,
        ..DAT_EP_ATTR::zeroed()
    }
}

/// The completion flags of both streams, as parameters of dat_ep_modify.
pub(super) const COMPLETION_FLAGS: DAT_EP_PARAM_MASK =
    DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS | DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS;

/// Chooses the completion flags that `unset` selects, for streams that feed these EVDs. The
/// threshold flag is the only one that is valid if other events feed the EVD, too. On all other
/// EVDs, the default flag lets endpoints with and without attributes share the EVD. Both flags have
/// the same effect.
pub(super) fn choose_flags<T: Transport>(
    attr: &mut DAT_EP_ATTR,
    unset: DAT_EP_PARAM_MASK,
    [recv, request]: [Option<&Evd<T>>; 2],
) {
    let choose = |evd: Option<&Evd<T>>| match evd {
        Some(evd) if evd.other_streams() != 0 => DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        _ => DAT_COMPLETION_DEFAULT_FLAG,
    };
    if unset & DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS != 0 {
        attr.recv_completion_flags = choose(recv);
    }
    if unset & DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS != 0 {
        attr.request_completion_flags = choose(request);
    }
}

/// The stream of completions of receives.
pub(super) fn recv_stream(attr: &DAT_EP_ATTR) -> Stream {
    Stream { of: StreamOf::Receives, flags: attr.recv_completion_flags }
}

/// The stream of completions of requests.
pub(super) fn request_stream(attr: &DAT_EP_ATTR) -> Stream {
    Stream { of: StreamOf::Requests, flags: attr.request_completion_flags }
}

/// The service that the attributes request. If there is no such service, the error is
/// `DAT_MODEL_NOT_SUPPORTED`.
pub(super) fn service(attr: &DAT_EP_ATTR) -> Result<ServiceType> {
    match attr.service_type {
        DAT_SERVICE_TYPE_RC => Ok(ServiceType::Connection),
        DAT_IB_SERVICE_TYPE_UD => Ok(ServiceType::Datagram),
        _ => Err(Error::of(DAT_MODEL_NOT_SUPPORTED)),
    }
}

/// Checks attributes against the adapter's limits. `arg` is the argument position of the attributes
/// in the call. For an endpoint on a shared receive queue, max_recv_iov is not checked (uDAPL 1.2,
/// dat_ep_create_with_srq).
pub(super) fn check(attr: &DAT_EP_ATTR, limits: &Attrs, on_srq: bool, arg: u32) -> Result<()> {
    let max_message = match service(attr)? {
        ServiceType::Connection => limits.max_message,
        ServiceType::Datagram => {
            let max = limits.max_datagram.ok_or(Error::of(DAT_MODEL_NOT_SUPPORTED))?;
            if limits.permits_large_datagram_size() { limits.max_message } else { max }
        }
    };
    check_qos(attr.qos)?;
    let is_within =
        |value: DAT_COUNT, limit: usize| usize::try_from(value).is_ok_and(|v| v <= limit);
    let reads = limits.max_read_depth as usize;
    let fits = recv_stream(attr).is_valid()
        && request_stream(attr).is_valid()
        && attr.max_message_size <= max_message
        && attr.max_rdma_size <= limits.max_message
        && is_within(attr.max_recv_dtos, limits.max_dtos)
        && is_within(attr.max_request_dtos, limits.max_dtos)
        && (on_srq || is_within(attr.max_recv_iov, limits.max_segments))
        && is_within(attr.max_request_iov, limits.max_segments)
        && is_within(attr.max_rdma_read_iov, limits.max_read_segments.min(MAX_SEGMENTS))
        && is_within(attr.max_rdma_write_iov, limits.max_segments)
        && is_within(attr.max_rdma_read_in, reads)
        && is_within(attr.max_rdma_read_out, reads)
        && watermark::is_valid(attr.srq_soft_hw)
        // The standard defines no named attributes of endpoints, and this library has none.
        && attr.ep_transport_specific_count == 0
        && attr.ep_provider_specific_count == 0;
    if fits { Ok(()) } else { Err(Error::arg(arg)) }
}

/// The attributes that an endpoint keeps after they have been checked. Named attributes are not
/// kept, because they are in the consumer's memory.
pub(super) fn without_named_attrs(attr: &DAT_EP_ATTR) -> DAT_EP_ATTR {
    let none = DAT_EP_ATTR::zeroed();
    DAT_EP_ATTR {
        ep_transport_specific_count: none.ep_transport_specific_count,
        ep_transport_specific: none.ep_transport_specific,
        ep_provider_specific_count: none.ep_provider_specific_count,
        ep_provider_specific: none.ep_provider_specific,
        ..*attr
    }
}

/// The soft high watermark that the attributes request. In the standard, 0 is a watermark like any
/// other (uDAPL 1.2, dat_ep_set_watermark).
pub(super) fn soft_watermark(attr: &DAT_EP_ATTR, limits: &Attrs) -> DAT_COUNT {
    match attr.srq_soft_hw {
        0 if limits.ignores_soft_watermark_of_0() => DAT_WATERMARK_INFINITE,
        mark => mark,
    }
}

/// Checks the quality of service. Only best effort is supported. For any other value the call fails
/// at once with `DAT_MODEL_NOT_SUPPORTED` (uDAPL 1.2, dat_ep_connect).
pub(super) fn check_qos(qos: DAT_QOS) -> Result<()> {
    if qos == DAT_QOS_BEST_EFFORT { Ok(()) } else { Err(Error::of(DAT_MODEL_NOT_SUPPORTED)) }
}

/// The parameters that dat_ep_modify never changes.
const FIXED: DAT_EP_PARAM_MASK = DAT_EP_FIELD_IA_HANDLE
    | DAT_EP_FIELD_EP_STATE
    | DAT_EP_FIELD_COMM
    | DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR
    | DAT_EP_FIELD_LOCAL_PORT_QUAL
    | DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR
    | DAT_EP_FIELD_REMOTE_PORT_QUAL
    | DAT_EP_FIELD_SRQ_HANDLE;

/// The parameters that dat_ep_modify can change only while the endpoint is quiescent.
const QUIESCENT: DAT_EP_PARAM_MASK = DAT_EP_FIELD_PZ_HANDLE;

/// The parameters that dat_ep_modify can change only while the endpoint is unconnected.
const UNCONNECTED: DAT_EP_PARAM_MASK = DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR
    | DAT_EP_FIELD_EP_ATTR_TRANSPORT_SPECIFIC_ATTR
    | DAT_EP_FIELD_EP_ATTR_NUM_PROVIDER_ATTR
    | DAT_EP_FIELD_EP_ATTR_PROVIDER_SPECIFIC_ATTR;

/// Checks that dat_ep_modify may change the parameters of `mask` in this state (uDAPL 1.2,
/// dat_ep_modify, list of parameters). Most parameters can be changed until a connection is
/// requested or accepted. The completion flags of receives cannot be changed once receives are
/// `posted`.
pub(super) fn check_modify(mask: DAT_EP_PARAM_MASK, state: State, posted: bool) -> Result<()> {
    use State::*;
    if mask & FIXED != 0 || mask & !DAT_EP_FIELD_ALL != 0 {
        return Err(Error::arg(2));
    }
    if mask == 0 {
        return Ok(());
    }
    let unconnected = matches!(state, Unconnected | UnconfiguredUnconnected);
    let quiescent = unconnected
        || matches!(
            state,
            TentativePending | UnconfiguredTentative | UnconfiguredPassive | UnconfiguredReserved
        );
    let may_change = quiescent || matches!(state, Reserved | PassivePending);
    let may_change =
        may_change && !(posted && mask & DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS != 0);
    let legal = may_change
        && (mask & QUIESCENT == 0 || quiescent)
        && (mask & UNCONNECTED == 0 || unconnected);
    if legal { Ok(()) } else { Err(state.refusal()) }
}

/// Copies the attributes that `mask` selects.
pub(super) fn merge(into: &mut DAT_EP_ATTR, from: &DAT_EP_ATTR, mask: DAT_EP_PARAM_MASK) {
    macro_rules! copy {
        ($($bit:ident => $field:ident),* $(,)?) => {
            $(if mask & $bit != 0 { into.$field = from.$field; })*
        };
    }
    copy! {
        DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE => service_type,
        DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE => max_message_size,
        DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE => max_rdma_size,
        DAT_EP_FIELD_EP_ATTR_QOS => qos,
        DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS => recv_completion_flags,
        DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS => request_completion_flags,
        DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS => max_recv_dtos,
        DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS => max_request_dtos,
        DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV => max_recv_iov,
        DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV => max_request_iov,
        DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN => max_rdma_read_in,
        DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT => max_rdma_read_out,
        DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW => srq_soft_hw,
        DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV => max_rdma_read_iov,
        DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV => max_rdma_write_iov,
        DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR => ep_transport_specific_count,
        DAT_EP_FIELD_EP_ATTR_NUM_PROVIDER_ATTR => ep_provider_specific_count,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_refused_in_states_where_they_cannot_change() {
        let bits = |of: DAT_EP_PARAM_MASK| {
            (0..u32::BITS).map(|bit| 1 << bit).filter(move |bit| of & bit != 0)
        };
        assert_eq!(bits(FIXED).count(), 8);
        for state in [State::Unconnected, State::Reserved, State::Connected] {
            assert!(bits(FIXED).all(|bit| check_modify(bit, state, false) == Err(Error::arg(2))));
        }
        assert_eq!(bits(UNCONNECTED).count(), 4);
        for bit in bits(UNCONNECTED) {
            assert_eq!(check_modify(bit, State::Unconnected, false), Ok(()));
            let answer = check_modify(bit, State::Reserved, false);
            assert_eq!(answer, Err(State::Reserved.refusal()), "{bit:#x}");
        }
        // This bit stands for no parameter.
        assert_eq!(check_modify(!DAT_EP_FIELD_ALL, State::Unconnected, false), Err(Error::arg(2)));
    }
}
