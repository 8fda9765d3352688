//! Cases about arguments that a call must refuse, and that no other file tests.

use std::ptr::{from_ref, null, null_mut};

use dat_sys::*;

use super::bad_requests;
use super::ep_states::reach::{WITHOUT_ZONE, reach};
use crate::case::{Row, must};
use crate::check::{Outcome, answers, ensure_equal, ok, supported};
use crate::rig::{Ep, Rig, cookie, event_timeout_us};

const NONE: DAT_HANDLE = DAT_HANDLE_NULL;
/// A mask bit that only the mask for endpoints defines.
const STRANGE: u32 = 0x4000_0000;
/// A number that is none of the values of an enumeration.
const NO_VALUE: u32 = 0x4000;

/// Returns the case `null-structure` of a function that returns parameters: this call of the
/// function, which asks for all parameters, must be refused.
macro_rules! null_structure {
    ($function:literal, $clause:literal, |$rig:ident| $call:expr) => {
        must(
            concat!($function, "/null-structure"),
            $clause,
            concat!(
                $function,
                " refuses a null pointer for the structure if it has to return parameters."
            ),
            |$rig| answers($call, DAT_INVALID_PARAMETER),
        )
    };
}

pub(super) const CASES: &[Row] = &[
    // ---- Queries ----
    null_structure!("dat_cno_query", "RETURN VALUES: invalid parameter", |rig| rig
        .api
        .dat_cno_query(rig.cno()?, DAT_CNO_FIELD_ALL, null_mut())),
    null_structure!("dat_cr_query", "RETURN VALUES: invalid parameter", |rig| rig
        .api
        .dat_cr_query(rig.request(b"")?.1.cr, DAT_CR_FIELD_ALL, null_mut())),
    null_structure!("dat_ep_query", "RETURN VALUES: invalid parameter", |rig| rig
        .api
        .dat_ep_query(rig.ep()?.ep, DAT_EP_FIELD_ALL, null_mut())),
    null_structure!("dat_lmr_query", "RETURN VALUES: invalid parameter", |rig| rig
        .api
        .dat_lmr_query(rig.memory(8)?.lmr, DAT_LMR_FIELD_ALL, null_mut())),
    null_structure!("dat_rmr_query", "RETURN VALUES: invalid parameter", |rig| rig
        .api
        .dat_rmr_query(rig.rmr()?, DAT_RMR_FIELD_ALL, null_mut())),
    null_structure!("dat_psp_query", "RETURN VALUES: invalid parameter", |rig| rig
        .api
        .dat_psp_query(rig.listen()?.psp, DAT_PSP_FIELD_ALL, null_mut())),
    null_structure!("dat_rsp_query", "RETURN VALUES: invalid parameter", |rig| rig
        .api
        .dat_rsp_query(reserved(rig)?, DAT_RSP_FIELD_ALL, null_mut())),
    null_structure!("dat_pz_query", "RETURN VALUES: invalid parameter", |rig| rig
        .api
        .dat_pz_query(rig.pz()?, DAT_PZ_FIELD_ALL, null_mut())),
    null_structure!("dat_srq_query", "RETURN VALUES: invalid parameter", |rig| rig
        .api
        .dat_srq_query(rig.srq(4)?, DAT_SRQ_FIELD_ALL, null_mut())),
    must(
        "dat_csp_query/bad-arguments",
        "2.0 headers: dat_csp_query",
        "dat_csp_query refuses a null handle, an undefined bit of the mask, and a null pointer for \
         the structure.",
        |rig| {
            let (csp, mut param) = (rig.common_point()?.csp, DAT_CSP_PARAM::zeroed());
            let all = DAT_CSP_FIELD_ALL;
            answers(rig.api.dat_csp_query(NONE, all, &mut param), DAT_INVALID_HANDLE)?;
            answers(rig.api.dat_csp_query(csp, STRANGE, &mut param), DAT_INVALID_PARAMETER)?;
            answers(rig.api.dat_csp_query(csp, all, null_mut()), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_get_consumer_context/null-out",
        "RETURN VALUES: invalid parameter",
        "dat_get_consumer_context refuses a null pointer for the context.",
        |rig| {
            answers(rig.api.dat_get_consumer_context(rig.pz()?, null_mut()), DAT_INVALID_PARAMETER)
        },
    ),
    // ---- Adapters and the registry ----
    must(
        "dat_ia_openv/no-queue",
        "dat_ia_open, RETURN VALUES: invalid parameter",
        "dat_ia_openv refuses to create an asynchronous EVD for no event, or for more events than \
         an EVD can have.",
        |rig| {
            let open = |qlen| rig.openv(rig.name(), qlen, &mut { NONE }, &mut null_mut());
            answers(open(0), DAT_INVALID_PARAMETER)?;
            answers(open(-1), DAT_INVALID_PARAMETER)?;
            let Some(beyond) = rig.attr.max_evd_qlen.checked_add(1) else { return Ok(()) };
            rig.answers_or(open(beyond), DAT_INSUFFICIENT_RESOURCES, &[DAT_INVALID_PARAMETER])
        },
    ),
    must(
        "dat_ia_openv/higher-minor-version",
        "dat_ia_open, RETURN VALUES: provider not found",
        "dat_ia_openv does not open an adapter that implements only a lower minor version.",
        |rig| {
            let (mut evd, name) = (NONE, rig.name().as_ptr().cast_mut());
            let answer = rig.api.dat_ia_openv(name, 8, &mut evd, &mut null_mut(), 2, 9, DAT_FALSE);
            answers(answer, DAT_PROVIDER_NOT_FOUND)
        },
    ),
    must(
        "dat_registry_list_providers/no-room",
        "RETURN VALUES: invalid parameter",
        "dat_registry_list_providers refuses an array without room for an entry.",
        |rig| {
            let mut places = [null_mut(); 1];
            answers(
                rig.api.dat_registry_list_providers(0, &mut 0, places.as_mut_ptr()),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_registry_providers_related/arguments",
        "2.0 headers: dat_registry_providers_related",
        "dat_registry_providers_related accepts two names of adapters, and refuses a null pointer \
         in place of each argument.",
        |rig| {
            let (mut answer, name) = (0, rig.name().as_ptr());
            let related = |first, second, answer: *mut DAT_HA_RELATIONSHIP| {
                rig.api.dat_registry_providers_related(first, second, answer)
            };
            ok(related(name, name, &mut answer))?;
            answers(related(null(), name, &mut answer), DAT_INVALID_PARAMETER)?;
            answers(related(name, null(), &mut answer), DAT_INVALID_PARAMETER)?;
            answers(related(name, name, null_mut()), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_registry_remove_provider/null-arguments",
        "RETURN VALUES: invalid parameter",
        "dat_registry_remove_provider refuses null pointers for the function table and for the \
         description.",
        |rig| {
            let (table, info) = (DAT_PROVIDER::zeroed(), DAT_PROVIDER_INFO::zeroed());
            answers(rig.api.dat_registry_remove_provider(null(), &info), DAT_INVALID_PARAMETER)?;
            answers(rig.api.dat_registry_remove_provider(&table, null()), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_strerror/null-texts",
        "RETURN VALUES",
        "dat_strerror refuses a null pointer for each of the two texts.",
        |rig| {
            let mut text = null();
            answers(
                rig.api.dat_strerror(DAT_SUCCESS, null_mut(), &mut text),
                DAT_INVALID_PARAMETER,
            )?;
            answers(rig.api.dat_strerror(DAT_SUCCESS, &mut text, null_mut()), DAT_INVALID_PARAMETER)
        },
    ),
    // ---- Event dispatchers and CNOs ----
    must(
        "dat_cno_fd_create/bad-arguments",
        "2.0 headers: dat_cno_fd_create",
        "dat_cno_fd_create refuses a null handle, and null pointers for the descriptor and for the \
         new handle.",
        |rig| {
            let (mut fd, mut cno) = (-1, null_mut());
            let create = |ia, fd: *mut DAT_FD, cno: *mut DAT_CNO_HANDLE| {
                rig.api.dat_cno_fd_create(ia, fd, cno)
            };
            answers(create(NONE, &mut fd, &mut cno), DAT_INVALID_HANDLE)?;
            answers(create(rig.ia, null_mut(), &mut cno), DAT_INVALID_PARAMETER)?;
            answers(create(rig.ia, &mut fd, null_mut()), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_cno_trigger/bad-arguments",
        "2.0 headers: dat_cno_trigger",
        "dat_cno_trigger refuses a null handle and a null pointer for the EVD. If no EVD has \
         triggered the CNO, the call fails.",
        |rig| {
            let (cno, mut evd) = (rig.cno()?, null_mut());
            answers(rig.api.dat_cno_trigger(NONE, &mut evd), DAT_INVALID_HANDLE)?;
            answers(rig.api.dat_cno_trigger(cno, null_mut()), DAT_INVALID_PARAMETER)?;
            answers(rig.api.dat_cno_trigger(cno, &mut evd), DAT_QUEUE_EMPTY)
        },
    ),
    must(
        "dat_cno_wait/null-out",
        "RETURN VALUES: invalid parameter",
        "dat_cno_wait refuses a null pointer for the EVD.",
        |rig| answers(rig.api.dat_cno_wait(rig.cno()?, 0, null_mut()), DAT_INVALID_PARAMETER),
    ),
    must(
        "dat_evd_modify_cno/not-a-cno",
        "RETURN VALUES: invalid handle",
        "dat_evd_modify_cno refuses the handle of an object that is not a CNO.",
        |rig| {
            answers(
                rig.api.dat_evd_modify_cno(rig.evd(DAT_EVD_SOFTWARE_FLAG)?, rig.pz()?),
                DAT_INVALID_HANDLE,
            )
        },
    ),
    must(
        "dat_evd_resize/waited-for",
        "RETURN VALUES: invalid state",
        "An EVD on which a thread waits cannot be resized.",
        |rig| {
            let evd = rig.evd(DAT_EVD_SOFTWARE_FLAG)?;
            let mut answer = DAT_SUCCESS;
            rig.while_waiting(evd, || {
                answer = rig.api.dat_evd_resize(evd, 200);
                ok(rig.post_se(evd, 1))
            })?;
            answers(answer, DAT_INVALID_STATE)
        },
    ),
    must(
        "dat_evd_wait/threshold-on-unsignalled-requests",
        "RETURN VALUES: invalid state",
        "If the EVD gets only unsignalled completions, dat_evd_wait returns an invalid state for a \
         threshold above 1.",
        |rig| {
            let request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            let ep = rig.ep_with(&DAT_EP_ATTR { request_completion_flags, ..rig.ep_attr() })?;
            let (status, _) = rig.wait(ep.request, 0, 2, &mut DAT_EVENT::zeroed());
            // The providers of OFED return DAT_INVALID_PARAMETER for a threshold above 1.
            rig.answers_or(status, DAT_INVALID_STATE, &[DAT_INVALID_PARAMETER])
        },
    ),
    // ---- Endpoints ----
    must(
        "dat_ep_create_with_srq/bad-evds",
        "RETURN VALUES: invalid handle",
        "dat_ep_create_with_srq refuses the handle of an object that is not an EVD for the \
         completions of requests and for connection events.",
        |rig| {
            let (srq, pz, Ep { recv, request, connect, .. }) =
                (rig.srq(4)?, rig.pz()?, rig.evds_of_an_ep()?);
            let create = |request, connect| {
                rig.api.dat_ep_create_with_srq(
                    rig.ia,
                    pz,
                    recv,
                    request,
                    connect,
                    srq,
                    &rig.ep_attr(),
                    &mut null_mut(),
                )
            };
            answers(create(pz, connect), DAT_INVALID_HANDLE)?;
            answers(create(request, pz), DAT_INVALID_HANDLE)
        },
    ),
    must(
        "dat_ep_create_with_srq/service-type",
        "RETURN VALUES: model not supported",
        "dat_ep_create_with_srq refuses a type of service that the standard does not define.",
        |rig| {
            let (srq, Ep { recv, request, connect, .. }) = (rig.srq(4)?, rig.evds_of_an_ep()?);
            let attr = DAT_EP_ATTR { service_type: NO_VALUE, ..rig.ep_attr() };
            let (pz, mut ep) = (rig.pz()?, null_mut());
            let answer = rig
                .api
                .dat_ep_create_with_srq(rig.ia, pz, recv, request, connect, srq, &attr, &mut ep);
            rig.answers_or(answer, DAT_MODEL_NOT_SUPPORTED, &[DAT_INVALID_PARAMETER])
        },
    ),
    must(
        "dat_ep_modify/not-these-objects",
        "RETURN VALUES: invalid handle",
        "dat_ep_modify refuses the handle of an object of another type for the zone and for each \
         EVD, and the EP keeps its objects.",
        |rig| {
            let (ep, other) = (rig.ep()?, rig.cno()?);
            let param = DAT_EP_PARAM {
                pz_handle: other,
                recv_evd_handle: other,
                request_evd_handle: other,
                connect_evd_handle: other,
                ..DAT_EP_PARAM::zeroed()
            };
            for field in [
                DAT_EP_FIELD_PZ_HANDLE,
                DAT_EP_FIELD_RECV_EVD_HANDLE,
                DAT_EP_FIELD_REQUEST_EVD_HANDLE,
                DAT_EP_FIELD_CONNECT_EVD_HANDLE,
            ] {
                answers(rig.api.dat_ep_modify(ep.ep, field, &param), DAT_INVALID_HANDLE)?;
            }
            let param = rig.query(ep.ep)?;
            ensure_equal(
                "the objects",
                (param.pz_handle, param.recv_evd_handle, param.request_evd_handle),
                (rig.pz()?, ep.recv, ep.request),
            )
        },
    ),
    must(
        "dat_ep_modify/service-type",
        "RETURN VALUES: model not supported",
        "dat_ep_modify refuses a type of service that the standard does not define.",
        |rig| {
            let ep_attr = DAT_EP_ATTR { service_type: NO_VALUE, ..rig.ep_attr() };
            let param = DAT_EP_PARAM { ep_attr, ..DAT_EP_PARAM::zeroed() };
            let field = DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE;
            rig.answers_or(
                rig.api.dat_ep_modify(rig.ep()?.ep, field, &param),
                DAT_MODEL_NOT_SUPPORTED,
                &[DAT_INVALID_PARAMETER],
            )
        },
    ),
    must(
        "dat_ep_set_watermark/negative-hard",
        "RETURN VALUES: invalid parameter",
        "dat_ep_set_watermark refuses a negative hard watermark, except for DAT_WATERMARK_INFINITE.",
        |rig| {
            let infinite = DAT_WATERMARK_INFINITE;
            answers(rig.api.dat_ep_set_watermark(rig.ep()?.ep, infinite, -5), DAT_INVALID_PARAMETER)
        },
    ),
    // ---- Connections ----
    must(
        "dat_ep_common_connect/bad-arguments",
        "2.0 headers: dat_ep_common_connect",
        "dat_ep_common_connect refuses a null handle, a null address, an address of a family that \
         the provider does not know, more private data than the provider permits, and a null \
         pointer for private data.",
        |rig| {
            let (ep, point) = (rig.ep()?.ep, rig.common_point()?);
            let more = rig.provider.max_private_data_size.saturating_add(1);
            let data = rig.allocate(more as usize);
            let connect = |ep, address, size, data| {
                rig.api.dat_ep_common_connect(ep, address, event_timeout_us(), size, data)
            };
            let mut strange = DAT_SOCK_ADDR { sa_family: 0x7777, sa_data: [0; 14] };
            answers(connect(NONE, point.address, 0, null_mut()), DAT_INVALID_HANDLE)?;
            answers(connect(ep, null_mut(), 0, null_mut()), DAT_INVALID_ADDRESS)?;
            answers(connect(ep, &mut strange, 0, null_mut()), DAT_INVALID_ADDRESS)?;
            answers(connect(ep, point.address, more, data), DAT_INVALID_PARAMETER)?;
            answers(connect(ep, point.address, 8, null_mut()), DAT_INVALID_PARAMETER)?;
            rig.state_is(ep, DAT_EP_STATE_UNCONNECTED)
        },
    ),
    must(
        "dat_ep_common_connect/no-time",
        "2.0: as dat_ep_connect, RETURN VALUES: invalid parameter",
        "dat_ep_common_connect refuses a time limit of 0.",
        |rig| {
            let (ep, address) = (rig.ep()?.ep, rig.common_point()?.address);
            answers(
                rig.api.dat_ep_common_connect(ep, address, 0, 0, null_mut()),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_ep_common_connect/no-connect-evd",
        "2.0: as dat_ep_connect, RETURN VALUES: invalid state",
        "dat_ep_common_connect refuses an EP without an EVD for connection events.",
        |rig| {
            let (ep, address) = (without_connect_evd(rig)?, rig.common_point()?.address);
            let time = event_timeout_us();
            answers(
                rig.api.dat_ep_common_connect(ep, address, time, 0, null_mut()),
                DAT_INVALID_STATE,
            )
        },
    ),
    must(
        "dat_ep_dup_connect/null-private-data",
        "RETURN VALUES: invalid parameter",
        "dat_ep_dup_connect refuses a null pointer for private data.",
        |rig| {
            answers(dup_connect(rig, rig.ep()?.ep, event_timeout_us(), 8)?, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ep_dup_connect/no-time",
        "RETURN VALUES: invalid parameter",
        "dat_ep_dup_connect refuses a time limit of 0.",
        |rig| answers(dup_connect(rig, rig.ep()?.ep, 0, 0)?, DAT_INVALID_PARAMETER),
    ),
    must(
        "dat_ep_dup_connect/no-connect-evd",
        "RETURN VALUES: invalid state",
        "dat_ep_dup_connect refuses an EP without an EVD for connection events.",
        |rig| {
            let ep = without_connect_evd(rig)?;
            answers(dup_connect(rig, ep, event_timeout_us(), 0)?, DAT_INVALID_STATE)
        },
    ),
    must(
        "dat_ep_dup_connect/model-without-zone",
        "RETURN VALUES: invalid state",
        "dat_ep_dup_connect refuses a model without a zone, which cannot be connected.",
        |rig| {
            for state in WITHOUT_ZONE {
                let (model, ep) = (reach(rig, state)?.ep, rig.ep()?.ep);
                let (time, qos) = (event_timeout_us(), DAT_QOS_BEST_EFFORT);
                let answer = rig.api.dat_ep_dup_connect(ep, model, time, 0, null_mut(), qos);
                answers(answer, DAT_INVALID_STATE)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_cr_accept/no-connect-evd",
        "RETURN VALUES: invalid state",
        "dat_cr_accept refuses an EP without an EVD for connection events, and the request stays \
         pending.",
        |rig| {
            let (caller, arrival) = rig.request(b"")?;
            answers(rig.accept(arrival.cr, without_connect_evd(rig)?, b""), DAT_INVALID_STATE)?;
            ok(rig.accept(arrival.cr, rig.ep()?.ep, b""))?;
            rig.connection(caller.connect, DAT_CONNECTION_EVENT_ESTABLISHED).map(drop)
        },
    ),
    must(
        "dat_cr_reject/bad-private-data",
        "2.0, RETURN VALUES: invalid parameter",
        "dat_cr_reject refuses more private data than the provider permits and a null pointer for \
         private data, and the request stays pending.",
        |rig| {
            let (caller, arrival) = rig.request(b"")?;
            let more = rig.provider.max_private_data_size.saturating_add(1);
            let data = rig.allocate(more as usize);
            answers(rig.api.dat_cr_reject(arrival.cr, more, data), DAT_INVALID_PARAMETER)?;
            answers(rig.api.dat_cr_reject(arrival.cr, 8, null_mut()), DAT_INVALID_PARAMETER)?;
            ok(rig.reject(arrival.cr, b""))?;
            rig.connection(caller.connect, DAT_CONNECTION_EVENT_PEER_REJECTED).map(drop)
        },
    ),
    must(
        "dat_psp_create/bad-arguments",
        "RETURN VALUES: invalid parameter",
        "dat_psp_create refuses a null pointer for the new handle, and the qualifier 0.",
        |rig| {
            let (evd, qualifier, mut psp) =
                (rig.evd(DAT_EVD_CR_FLAG)?, rig.free_qualifier()?, null_mut());
            let create = |qualifier, psp: *mut DAT_PSP_HANDLE| {
                rig.api.dat_psp_create(rig.ia, qualifier, evd, DAT_PSP_CONSUMER_FLAG, psp)
            };
            answers(create(qualifier, null_mut()), DAT_INVALID_PARAMETER)?;
            rig.answers_or(create(0, &mut psp), DAT_INVALID_PARAMETER, &[DAT_CONN_QUAL_UNAVAILABLE])
        },
    ),
    must(
        "dat_psp_create_any/bad-arguments",
        "RETURN VALUES: invalid parameter, invalid handle",
        "dat_psp_create_any refuses null pointers for the qualifier and for the new handle, and an \
         EVD without the stream of connection requests.",
        |rig| {
            let (evd, other) = (rig.evd(DAT_EVD_CR_FLAG)?, rig.evd(DAT_EVD_DTO_FLAG)?);
            let (mut qualifier, mut psp) = (0, null_mut());
            let create = |qualifier: *mut DAT_CONN_QUAL, evd, psp: *mut DAT_PSP_HANDLE| {
                rig.api.dat_psp_create_any(rig.ia, qualifier, evd, DAT_PSP_CONSUMER_FLAG, psp)
            };
            answers(create(null_mut(), evd, &mut psp), DAT_INVALID_PARAMETER)?;
            answers(create(&mut qualifier, evd, null_mut()), DAT_INVALID_PARAMETER)?;
            rig.answers_or(
                create(&mut qualifier, other, &mut psp),
                DAT_INVALID_HANDLE,
                &[DAT_INVALID_PARAMETER],
            )
        },
    ),
    must(
        "dat_rsp_create/bad-arguments",
        "RETURN VALUES: invalid handle, invalid parameter",
        "dat_rsp_create refuses a null IA, an EVD without the stream of connection requests, the \
         qualifier 0, and a null pointer for the new handle. The EP stays unconnected.",
        |rig| {
            let (ep, qualifier) = (rig.ep()?.ep, rig.free_qualifier()?);
            let (evd, other) = (rig.evd(DAT_EVD_CR_FLAG)?, rig.evd(DAT_EVD_DTO_FLAG)?);
            let mut rsp = null_mut();
            let create = |ia, qualifier, evd, rsp: *mut DAT_RSP_HANDLE| {
                rig.api.dat_rsp_create(ia, qualifier, ep, evd, rsp)
            };
            answers(create(NONE, qualifier, evd, &mut rsp), DAT_INVALID_HANDLE)?;
            rig.answers_or(
                create(rig.ia, qualifier, other, &mut rsp),
                DAT_INVALID_HANDLE,
                &[DAT_INVALID_PARAMETER],
            )?;
            rig.answers_or(
                create(rig.ia, 0, evd, &mut rsp),
                DAT_INVALID_PARAMETER,
                &[DAT_CONN_QUAL_UNAVAILABLE],
            )?;
            answers(create(rig.ia, qualifier, evd, null_mut()), DAT_INVALID_PARAMETER)?;
            rig.state_is(ep, DAT_EP_STATE_UNCONNECTED)
        },
    ),
    must(
        "dat_csp_create/bad-address",
        "2.0 headers: dat_csp_create",
        "dat_csp_create refuses a null IA, a null pointer for the new handle, an address of a \
         family that the provider does not know, and an address that the host does not have.",
        |rig| {
            let (address, evd) = (rig.common_point()?.address, rig.evd(DAT_EVD_CR_FLAG)?);
            let mut csp = null_mut();
            let create = |ia, address, csp: *mut DAT_CSP_HANDLE| {
                let mut comm = DAT_COMM { domain: 2, r#type: 1, protocol: 6 };
                rig.api.dat_csp_create(ia, &mut comm, address, evd, csp)
            };
            answers(create(NONE, address, &mut csp), DAT_INVALID_HANDLE)?;
            answers(create(rig.ia, address, null_mut()), DAT_INVALID_PARAMETER)?;
            let mut strange = DAT_SOCK_ADDR { sa_family: 0x7777, sa_data: [0; 14] };
            answers(create(rig.ia, &mut strange, &mut csp), DAT_INVALID_ADDRESS)?;
            // 192.0.2.1 is an address for documents (RFC 5737), which no host has.
            let sa_data = [0, 0, 192_u8, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0];
            let mut foreign = DAT_SOCK_ADDR { sa_family: 2, sa_data: sa_data.map(|b| b as _) };
            rig.answers_or(
                create(rig.ia, &mut foreign, &mut csp),
                DAT_INVALID_ADDRESS,
                &[DAT_CONN_QUAL_UNAVAILABLE],
            )
        },
    ),
    // ---- Memory ----
    must(
        "dat_lmr_create/not-these-values",
        "RETURN VALUES: invalid parameter, invalid handle",
        "dat_lmr_create refuses an undefined type of memory, an undefined type of addresses, the \
         handle of an object that is not an LMR, and a null pointer for the new handle.",
        |rig| {
            let (pz, at) = (rig.pz()?, DAT_REGION_DESCRIPTION { for_va: rig.allocate(64) });
            let not_an_lmr = DAT_REGION_DESCRIPTION { for_lmr_handle: pz };
            let mut lmr = null_mut();
            let create = |kind, region, va, lmr: *mut DAT_LMR_HANDLE| {
                let (all, length) = (DAT_MEM_PRIV_ALL_FLAG, 64);
                let (mut local, mut remote, mut size, mut address) = (0, 0, 0, 0);
                rig.api.dat_lmr_create(
                    rig.ia,
                    kind,
                    region,
                    length,
                    pz,
                    all,
                    va,
                    lmr,
                    &mut local,
                    &mut remote,
                    &mut size,
                    &mut address,
                )
            };
            let (kind, va) = (DAT_MEM_TYPE_VIRTUAL, DAT_VA_TYPE_VA);
            answers(create(NO_VALUE, at, va, &mut lmr), DAT_INVALID_PARAMETER)?;
            let view = create(DAT_MEM_TYPE_LMR, not_an_lmr, va, &mut lmr);
            rig.answers_or(view, DAT_INVALID_HANDLE, &[DAT_INVALID_PARAMETER])?;
            answers(create(kind, at, va, null_mut()), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_lmr_create/type-of-addresses",
        "2.0, RETURN VALUES: invalid parameter",
        "dat_lmr_create refuses a type of addresses that the standard does not define.",
        |rig| {
            let (pz, at) = (rig.pz()?, DAT_REGION_DESCRIPTION { for_va: rig.allocate(64) });
            answers(
                rig.api.dat_lmr_create(
                    rig.ia,
                    DAT_MEM_TYPE_VIRTUAL,
                    at,
                    64,
                    pz,
                    DAT_MEM_PRIV_ALL_FLAG,
                    NO_VALUE,
                    &mut null_mut(),
                    &mut 0,
                    &mut 0,
                    &mut 0,
                    &mut 0,
                ),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_lmr_create/beyond-the-last-address",
        "RETURN VALUES: invalid parameter",
        "dat_lmr_create refuses memory that would end after the highest address.",
        |rig| {
            let (at, pz, mut region) = (rig.allocate(64), rig.pz()?, rig.memory(8)?);
            rig.answers_or(
                rig.register(at, DAT_VLEN::MAX - 1, pz, DAT_MEM_PRIV_ALL_FLAG, &mut region),
                DAT_INVALID_PARAMETER,
                &[DAT_LENGTH_ERROR, DAT_INSUFFICIENT_RESOURCES],
            )
        },
    ),
    must(
        "dat_lmr_create/protected-memory",
        "RETURN VALUES: privileges violation",
        "An LMR cannot have a privilege to read or to write memory that the process itself must \
         not read or write, be it a local privilege or one of peers.",
        |rig| {
            let (pz, mut region) = (rig.pz()?, rig.memory(8)?);
            for (protection, privileges) in [
                (libc::PROT_NONE, DAT_MEM_PRIV_LOCAL_READ_FLAG),
                (libc::PROT_NONE, DAT_MEM_PRIV_REMOTE_READ_FLAG),
                (libc::PROT_READ, DAT_MEM_PRIV_LOCAL_WRITE_FLAG),
                (libc::PROT_READ, DAT_MEM_PRIV_REMOTE_WRITE_FLAG),
            ] {
                let page = rig.page(protection)?;
                rig.answers_or(
                    rig.register(page, 64, pz, privileges, &mut region),
                    DAT_PRIVILEGES_VIOLATION,
                    &[DAT_INVALID_PARAMETER, DAT_INSUFFICIENT_RESOURCES],
                )?;
            }
            Ok(())
        },
    ),
    must(
        "dat_lmr_sync_rdma_read/too-many-segments",
        "2.0, RETURN VALUES: invalid parameter",
        "dat_lmr_sync_rdma_read refuses a number of segments that no array in memory can have.",
        |rig| {
            answers(
                rig.api.dat_lmr_sync_rdma_read(rig.ia, &rig.memory(8)?.all(), DAT_VLEN::MAX),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_lmr_sync_rdma_write/too-many-segments",
        "2.0, RETURN VALUES: invalid parameter",
        "dat_lmr_sync_rdma_write refuses a number of segments that no array in memory can have.",
        |rig| {
            answers(
                rig.api.dat_lmr_sync_rdma_write(rig.ia, &rig.memory(8)?.all(), DAT_VLEN::MAX),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_rmr_create/null-out",
        "RETURN VALUES: invalid parameter",
        "dat_rmr_create refuses a null pointer for the new handle.",
        |rig| {
            let _ = rig.rmr()?;
            answers(rig.api.dat_rmr_create(rig.pz()?, null_mut()), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_rmr_create_for_ep/bad-arguments",
        "2.0 headers: dat_rmr_create_for_ep",
        "dat_rmr_create_for_ep refuses a null handle and a null pointer for the new handle.",
        |rig| {
            let mut rmr = null_mut();
            supported(rig.api.dat_rmr_create_for_ep(rig.pz()?, &mut rmr))?;
            answers(rig.api.dat_rmr_create_for_ep(NONE, &mut rmr), DAT_INVALID_HANDLE)?;
            answers(rig.api.dat_rmr_create_for_ep(rig.pz()?, null_mut()), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_rmr_bind/bad-arguments",
        "RETURN VALUES: invalid handle, invalid parameter",
        "dat_rmr_bind refuses the handle of an object that is not an EP, undefined privileges, and \
         null pointers for the triplet and for the new context.",
        |rig| {
            let (pair, memory, pz, mut context) = (rig.pair()?, rig.memory(64)?, rig.pz()?, 0);
            let rmr = rig.rmr()?;
            let bind = |triplet: *const DAT_LMR_TRIPLET, privileges, ep, context: *mut _| {
                let (lmr, va) = (memory.lmr, DAT_VA_TYPE_VA);
                let (id, flags) = (cookie(1), DAT_COMPLETION_DEFAULT_FLAG);
                rig.api.dat_rmr_bind(rmr, lmr, triplet, privileges, va, ep, id, flags, context)
            };
            let (ep, all) = (pair.active.ep, DAT_MEM_PRIV_ALL_FLAG);
            let triplet = memory.all();
            answers(bind(&triplet, all, pz, &mut context), DAT_INVALID_HANDLE)?;
            answers(bind(&triplet, NO_VALUE, ep, &mut context), DAT_INVALID_PARAMETER)?;
            answers(bind(&triplet, all, ep, null_mut()), DAT_INVALID_PARAMETER)?;
            answers(bind(null(), all, ep, &mut context), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_rmr_bind/not-these-values",
        "2.0, RETURN VALUES: invalid handle, invalid parameter",
        "dat_rmr_bind refuses the handle of an object that is not an LMR, and a type of addresses \
         that the standard does not define.",
        |rig| {
            let (pair, memory, rmr, mut context) = (rig.pair()?, rig.memory(64)?, rig.rmr()?, 0);
            let mut bind = |lmr, va| {
                let (ep, id, flags) = (pair.active.ep, cookie(1), DAT_COMPLETION_DEFAULT_FLAG);
                let (all, triplet) = (DAT_MEM_PRIV_ALL_FLAG, memory.all());
                rig.api.dat_rmr_bind(rmr, lmr, &triplet, all, va, ep, id, flags, &mut context)
            };
            answers(bind(rig.pz()?, DAT_VA_TYPE_VA), DAT_INVALID_HANDLE)?;
            answers(bind(memory.lmr, NO_VALUE), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_rmr_bind/request-evd",
        "RETURN VALUES: invalid state",
        "dat_rmr_bind refuses an EP whose EVD for requests does not accept the completions of \
         binds.",
        |rig| {
            let (mut ep, memory, rmr) = (rig.evds_of_an_ep()?, rig.memory(64)?, rig.rmr()?);
            ep.request = rig.evd(DAT_EVD_DTO_FLAG)?;
            let (Ep { recv, request, connect, .. }, pz) = (ep, rig.pz()?);
            let attr = rig.ep_attr();
            ok(rig.api.dat_ep_create(rig.ia, pz, recv, request, connect, &attr, &mut ep.ep))?;
            let (end, mut context) = (rig.pair_of(ep, rig.ep()?)?.active.ep, 0);
            let all = DAT_MEM_PRIV_ALL_FLAG;
            answers(
                bad_requests::bind(rig, rmr, &memory, all, end, 1, &mut context),
                DAT_INVALID_STATE,
            )
        },
    ),
    must(
        "dat_rmr_bind/read-privilege",
        "RETURN VALUES: privileges violation",
        "An RMR cannot grant the privilege to read from a region that cannot be read.",
        |rig| {
            let (pair, rmr, mut context) = (rig.pair()?, rig.rmr()?, 0);
            let memory = rig.memory_with(rig.pz()?, 64, DAT_MEM_PRIV_LOCAL_WRITE_FLAG)?;
            let (ep, read) = (pair.active.ep, DAT_MEM_PRIV_REMOTE_READ_FLAG);
            let answer = bad_requests::bind(rig, rmr, &memory, read, ep, 1, &mut context);
            // RDMA devices have no access right for local reads, so an adapter over verbs cannot
            // refuse the bind.
            rig.answers_or(answer, DAT_PRIVILEGES_VIOLATION, &[DAT_SUCCESS])
        },
    ),
    must(
        "dat_rmr_bind/unknown-flags",
        "RETURN VALUES: invalid parameter",
        "dat_rmr_bind refuses completion flags that the standard does not define.",
        |rig| bind_with(rig, NO_VALUE),
    ),
    must(
        "dat_rmr_bind/unsignalled-not-configured",
        "RETURN VALUES: invalid parameter",
        "A bind with the unsignalled flag is invalid if the EP was created without that flag.",
        |rig| bind_with(rig, DAT_COMPLETION_UNSIGNALLED_FLAG),
    ),
    must(
        "dat_srq_create/null-arguments",
        "RETURN VALUES: invalid handle, invalid parameter",
        "dat_srq_create refuses a null IA and a null pointer for the new handle.",
        |rig| {
            rig.srq(4)?;
            let (pz, low_watermark, mut srq) = (rig.pz()?, DAT_SRQ_LW_DEFAULT, null_mut());
            let mut attr = DAT_SRQ_ATTR { max_recv_dtos: 4, max_recv_iov: 2, low_watermark };
            answers(rig.api.dat_srq_create(NONE, pz, &mut attr, &mut srq), DAT_INVALID_HANDLE)?;
            answers(
                rig.api.dat_srq_create(rig.ia, pz, &mut attr, null_mut()),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
];

/// Checks that a bind with these completion flags is invalid.
#[track_caller]
fn bind_with(rig: &Rig, flags: DAT_COMPLETION_FLAGS) -> Outcome {
    let (pair, memory, rmr, mut context) = (rig.pair()?, rig.memory(64)?, rig.rmr()?, 0);
    let (all, va, ep) = (DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, pair.active.ep);
    let (lmr, triplet, id) = (memory.lmr, memory.all(), cookie(1));
    answers(
        rig.api.dat_rmr_bind(rmr, lmr, &triplet, all, va, ep, id, flags, &mut context),
        DAT_INVALID_PARAMETER,
    )
}

/// Creates a reserved service point (RSP).
fn reserved(rig: &Rig) -> Outcome<DAT_RSP_HANDLE> {
    let (evd, mut rsp) = (rig.evd(DAT_EVD_CR_FLAG)?, null_mut());
    ok(rig.api.dat_rsp_create(rig.ia, rig.free_qualifier()?, rig.ep()?.ep, evd, &mut rsp))?;
    Ok(rsp)
}

/// Creates an endpoint without an EVD for connection events.
fn without_connect_evd(rig: &Rig) -> Outcome<DAT_EP_HANDLE> {
    let (Ep { recv, request, .. }, pz, mut ep) = (rig.evds_of_an_ep()?, rig.pz()?, null_mut());
    let attr = rig.ep_attr();
    ok(rig.api.dat_ep_create(rig.ia, pz, recv, request, NONE, from_ref(&attr), &mut ep))?;
    Ok(ep)
}

/// Calls dat_ep_dup_connect with the endpoint of an existing connection as the model, whose service
/// point still listens, and with private data of this size at a null pointer.
fn dup_connect(
    rig: &Rig,
    ep: DAT_EP_HANDLE,
    time: DAT_TIMEOUT,
    size: DAT_COUNT,
) -> Outcome<DAT_RETURN> {
    let (model, qos) = (rig.pair()?.active.ep, DAT_QOS_BEST_EFFORT);
    Ok(rig.api.dat_ep_dup_connect(ep, model, time, size, null_mut(), qos))
}
