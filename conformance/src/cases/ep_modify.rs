//! Cases about three subjects: which attributes of an endpoint can be changed and when, the names
//! of its states, and the options of a connection.

use std::ptr::null_mut;

use dat_sys::*;

use crate::case::{Row, must};
use crate::check::{Outcome, answers, answers_with, ensure_equal, ok};
use crate::rig::{Rig, event_timeout_us};

pub(super) const CASES: &[Row] = &[
    must(
        "dat_ep_modify/every-attribute",
        "DESCRIPTION: list of parameters",
        "The zone, EVDs and attributes of an unconnected EP can be modified. dat_ep_query returns \
         the new values.",
        |rig| {
            let (ep, other) = (rig.ep()?, rig.evds_of_an_ep()?);
            let ep_attr = DAT_EP_ATTR {
                max_message_size: 4096,
                max_rdma_size: 8192,
                max_recv_dtos: 5,
                max_request_dtos: 6,
                max_recv_iov: 1,
                max_request_iov: 1,
                max_rdma_read_in: 1,
                max_rdma_read_out: 1,
                max_rdma_read_iov: 1,
                max_rdma_write_iov: 1,
                ..rig.ep_attr()
            };
            let param = DAT_EP_PARAM {
                pz_handle: rig.new_pz()?,
                recv_evd_handle: other.recv,
                request_evd_handle: other.request,
                connect_evd_handle: other.connect,
                ep_attr,
                ..DAT_EP_PARAM::zeroed()
            };
            let fields = DAT_EP_FIELD_PZ_HANDLE
                | DAT_EP_FIELD_RECV_EVD_HANDLE
                | DAT_EP_FIELD_REQUEST_EVD_HANDLE
                | DAT_EP_FIELD_CONNECT_EVD_HANDLE
                | DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE
                | DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE
                | DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS
                | DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS
                | DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV
                | DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV
                | DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN
                | DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT
                | DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV
                | DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV;
            ok(rig.api.dat_ep_modify(ep.ep, fields, &param))?;
            let is = rig.query(ep.ep)?;
            ensure_equal("the zone", is.pz_handle, param.pz_handle)?;
            let evds = |param: &DAT_EP_PARAM| {
                [param.recv_evd_handle, param.request_evd_handle, param.connect_evd_handle]
            };
            ensure_equal("the EVDs", evds(&is), evds(&param))?;
            let sizes = |attr: &DAT_EP_ATTR| {
                let sizes = [attr.max_message_size, attr.max_rdma_size];
                let dtos = [
                    attr.max_recv_dtos,
                    attr.max_request_dtos,
                    attr.max_recv_iov,
                    attr.max_request_iov,
                ];
                let reads = [attr.max_rdma_read_in, attr.max_rdma_read_out];
                (sizes, dtos, reads, [attr.max_rdma_read_iov, attr.max_rdma_write_iov])
            };
            ensure_equal("the attributes", sizes(&is.ep_attr), sizes(&ep_attr))
        },
    ),
    must(
        "dat_ep_modify/never",
        "DESCRIPTION: list of parameters",
        "dat_ep_modify cannot change the IA, state, addresses, ports or SRQ of an EP.",
        |rig| {
            let (ep, param) = (rig.ep()?, DAT_EP_PARAM::zeroed());
            for field in [
                DAT_EP_FIELD_IA_HANDLE,
                DAT_EP_FIELD_EP_STATE,
                DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR,
                DAT_EP_FIELD_LOCAL_PORT_QUAL,
                DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR,
                DAT_EP_FIELD_REMOTE_PORT_QUAL,
                DAT_EP_FIELD_SRQ_HANDLE,
            ] {
                answers(rig.api.dat_ep_modify(ep.ep, field, &param), DAT_INVALID_PARAMETER)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_modify/recv-flags-with-receives",
        "DESCRIPTION: list of parameters",
        "After a receive was posted to an EP, the completion flags of receives cannot be modified. \
         The completion flags of requests can.",
        |rig| {
            let (ep, memory) = (rig.ep()?, rig.memory(8)?);
            let param = DAT_EP_PARAM { ep_attr: rig.ep_attr(), ..DAT_EP_PARAM::zeroed() };
            let recv_flags = DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS;
            ok(rig.api.dat_ep_modify(ep.ep, recv_flags, &param))?;
            ok(rig.recv(ep.ep, &[memory.all()], 1))?;
            answers(rig.api.dat_ep_modify(ep.ep, recv_flags, &param), DAT_INVALID_STATE)?;
            ok(rig.api.dat_ep_modify(ep.ep, DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS, &param))
        },
    ),
    must(
        "dat_ep_modify/fewer-receives-than-posted",
        "DESCRIPTION: list of parameters",
        "A max_recv_dtos below the number of posted receives is refused, and no receive is lost. A \
         max_recv_dtos of that number is accepted.",
        |rig| {
            let (ep, memory) = (rig.ep()?, rig.memory(8)?);
            for id in 1..=3 {
                ok(rig.recv(ep.ep, &[memory.all()], id))?;
            }
            let modify = |max_recv_dtos| {
                let ep_attr = DAT_EP_ATTR { max_recv_dtos, ..rig.ep_attr() };
                let param = DAT_EP_PARAM { ep_attr, ..DAT_EP_PARAM::zeroed() };
                rig.api.dat_ep_modify(ep.ep, DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS, &param)
            };
            answers(modify(2), DAT_INVALID_PARAMETER)?;
            ok(modify(3))?;
            let pair = rig.pair_of(rig.ep()?, ep)?;
            for id in 1..=3 {
                ok(rig.send(pair.active.ep, &[], 10 + id))?;
                rig.completes(pair.passive.recv, id, DAT_DTO_SUCCESS)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_modify/bad-arguments",
        "RETURN VALUES",
        "dat_ep_modify refuses unknown fields and a null EP.",
        |rig| {
            let (ep, param) =
                (rig.ep()?, DAT_EP_PARAM { ep_attr: rig.ep_attr(), ..DAT_EP_PARAM::zeroed() });
            answers(
                rig.api.dat_ep_modify(ep.ep, DAT_EP_FIELD_ALL + 1, &param),
                DAT_INVALID_PARAMETER,
            )?;
            answers(rig.api.dat_ep_modify(DAT_HANDLE_NULL, 0, &param), DAT_INVALID_HANDLE)
        },
    ),
    must(
        "dat_ep_free/subtypes",
        "RETURN VALUES: invalid state",
        "If dat_ep_free refuses an EP because of its state, the subtype of the status names the \
         state.",
        |rig| {
            let (ep, evd, qualifier) =
                (rig.ep()?, rig.evd(DAT_EVD_CR_FLAG)?, rig.free_qualifier()?);
            ok(rig.api.dat_rsp_create(rig.ia, qualifier, ep.ep, evd, &mut null_mut()))?;
            let refused =
                |subtype| answers_with(rig.api.dat_ep_free(ep.ep), DAT_INVALID_STATE, subtype);
            refused(DAT_INVALID_STATE_EP_RESERVED)?;
            ok(rig.connect(rig.ep()?.ep, qualifier, b""))?;
            rig.request_event(evd)?;
            refused(DAT_INVALID_STATE_EP_PASSCONNPENDING)
        },
    ),
    must(
        "dat_ep_connect/timeouts",
        "RETURN VALUES: invalid parameter",
        "dat_ep_connect refuses a time limit of 0. The time limit may be infinite.",
        |rig| {
            let (ep, listener) = (rig.ep()?, rig.listen()?);
            answers(rig.connect_within(ep.ep, listener.qualifier, b"", 0), DAT_INVALID_PARAMETER)?;
            rig.state_is(ep.ep, DAT_EP_STATE_UNCONNECTED)?;
            ok(rig.connect_within(ep.ep, listener.qualifier, b"", DAT_TIMEOUT_INFINITE))?;
            // No connection attempt ends before the passive side answers the request.
            let arrival = rig.request_event(listener.evd)?;
            let (status, _) = rig.wait(ep.connect, 50_000, 1, &mut DAT_EVENT::zeroed());
            answers(status, DAT_TIMEOUT_EXPIRED)?;
            rig.state_is(ep.ep, DAT_EP_STATE_ACTIVE_CONNECTION_PENDING)?;
            ok(rig.accept(arrival.cr, rig.ep()?.ep, b""))?;
            rig.connection(ep.connect, DAT_CONNECTION_EVENT_ESTABLISHED).map(drop)
        },
    ),
    must(
        "dat_ep_connect/quality-of-service",
        "RETURN VALUES: model not supported",
        "dat_ep_connect refuses a quality of service that the provider does not support.",
        |rig| {
            not_supported(
                rig,
                DAT_QOS_PREMIUM,
                DAT_CONNECT_DEFAULT_FLAG,
                rig.provider.dat_qos_supported,
            )
        },
    ),
    must(
        "dat_ep_connect/several-paths",
        "2.0, RETURN VALUES: model not supported",
        "dat_ep_connect refuses to connect over several paths if the provider has only one path.",
        |rig| {
            let several =
                if rig.provider.supports_multipath == DAT_FALSE { 0 } else { DAT_QOS::MAX };
            not_supported(rig, DAT_QOS_BEST_EFFORT, DAT_CONNECT_MULTIPATH_REQUIRED_FLAG, several)
        },
    ),
    must(
        "dat_registry_add_provider/twice",
        "RETURN VALUES",
        "A provider can be registered only once under one name, and can be removed only once.",
        |rig| {
            let (table, mut info) = (DAT_PROVIDER::zeroed(), DAT_PROVIDER_INFO::zeroed());
            for (to, from) in info.ia_name.iter_mut().zip(b"conformance") {
                *to = *from as std::ffi::c_char;
            }
            (info.dapl_version_major, info.dapl_version_minor) = (2, 0);
            ok(rig.api.dat_registry_add_provider(&table, &info))?;
            answers(
                rig.api.dat_registry_add_provider(&table, &info),
                DAT_PROVIDER_ALREADY_REGISTERED,
            )?;
            ok(rig.api.dat_registry_remove_provider(&table, &info))?;
            let answer = rig.api.dat_registry_remove_provider(&table, &info);
            rig.answers_or(answer, DAT_PROVIDER_NOT_FOUND, &[DAT_INVALID_PARAMETER])
        },
    ),
];

/// Checks that dat_ep_connect refuses an option that the provider lacks. `has` are the qualities of
/// service that the provider has, or all bits if it has the option in `flags`.
#[track_caller]
fn not_supported(rig: &Rig, qos: DAT_QOS, flags: DAT_CONNECT_FLAGS, has: DAT_QOS) -> Outcome {
    let (ep, listener, address) = (rig.ep()?, rig.listen()?, rig.attr.ia_address_ptr);
    let answer = rig.api.dat_ep_connect(
        ep.ep,
        address,
        listener.qualifier,
        event_timeout_us(),
        0,
        null_mut(),
        qos,
        flags,
    );
    match qos & has == qos && has != 0 {
        true => ok(answer),
        false => {
            answers(answer, DAT_MODEL_NOT_SUPPORTED)?;
            rig.state_is(ep.ep, DAT_EP_STATE_UNCONNECTED)
        }
    }
}
