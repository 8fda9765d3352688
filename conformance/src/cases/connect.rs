//! Cases that establish and end connections.

use std::ptr::null_mut;

use dat_sys::*;

use crate::case::{Row, must};
use crate::check::{Outcome, answers, ensure, ensure_equal, ok};
use crate::rig::{Ep, event_timeout_us, private, until};

pub(super) const CASES: &[Row] = &[
    must(
        "dat_ep_connect/private-data",
        "DESCRIPTION: private data",
        "The private data of dat_ep_connect arrive with the connection request. The private data \
         of dat_cr_accept arrive with the established event.",
        |rig| {
            let (active, passive, listener) = (rig.ep()?, rig.ep()?, rig.listen()?);
            ok(rig.connect(active.ep, listener.qualifier, b"a question"))?;
            let arrival = rig.request_event(listener.evd)?;
            let mut param = DAT_CR_PARAM::zeroed();
            ok(rig.api.dat_cr_query(arrival.cr, DAT_CR_FIELD_ALL, &mut param))?;
            ensure(
                param.private_data_size >= 10,
                format_args!(
                    "only {} bytes of private data arrived with the request",
                    param.private_data_size
                ),
            )?;
            ensure_equal(
                "the private data of the request",
                private(param.private_data, 10),
                b"a question".to_vec(),
            )?;
            ok(rig.accept(arrival.cr, passive.ep, b"an answer"))?;
            let up = rig.connection(active.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
            ensure(
                up.private_data_size >= 9,
                format_args!(
                    "only {} bytes of private data arrived with the answer",
                    up.private_data_size
                ),
            )?;
            ensure_equal(
                "the private data of the answer",
                private(up.private_data, 9),
                b"an answer".to_vec(),
            )?;
            let up = rig.connection(passive.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
            ensure_equal(
                "the size of the private data that the passive side gets",
                up.private_data_size,
                0,
            )
        },
    ),
    must(
        "dat_ep_connect/answer-stays",
        "DESCRIPTION: private data",
        "The private data in the answer to a connection request stay valid until the EP is reset \
         or freed.",
        |rig| {
            let (active, passive, listener) = (rig.ep()?, rig.ep()?, rig.listen()?);
            ok(rig.connect(active.ep, listener.qualifier, b""))?;
            ok(rig.accept(rig.request_event(listener.evd)?.cr, passive.ep, b"keep me"))?;
            let up = rig.connection(active.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
            ok(rig.api.dat_ep_disconnect(active.ep, DAT_CLOSE_ABRUPT_FLAG))?;
            rig.connection(active.connect, DAT_CONNECTION_EVENT_DISCONNECTED)?;
            ensure_equal(
                "the private data of the answer",
                private(up.private_data, 7),
                b"keep me".to_vec(),
            )
        },
    ),
    must(
        "dat_ep_connect/no-listener",
        "DESCRIPTION: events",
        "If nobody listens on the qualifier, the caller gets a non-peer rejection.",
        |rig| {
            let (ep, qualifier) = (rig.ep()?, rig.free_qualifier()?);
            ok(rig.connect(ep.ep, qualifier, b""))?;
            let down = rig.connection(ep.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED)?;
            ensure_equal("ep_handle", down.ep_handle, ep.ep)?;
            rig.state_is(ep.ep, DAT_EP_STATE_DISCONNECTED)
        },
    ),
    must(
        "dat_ep_connect/failure-flushes-receives",
        "state transitions",
        "If a connection attempt fails, the receives that were posted to the EP are flushed.",
        |rig| {
            let (ep, qualifier, memory) = (rig.ep()?, rig.free_qualifier()?, rig.memory(8)?);
            ok(rig.recv(ep.ep, &[memory.all()], 1))?;
            ok(rig.connect(ep.ep, qualifier, b""))?;
            rig.connection(ep.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED)?;
            rig.completes(ep.recv, 1, DAT_DTO_ERR_FLUSHED).map(drop)
        },
    ),
    must(
        "dat_ep_connect/times-out",
        "DESCRIPTION: timeout",
        "If nobody answers a connection attempt within its time limit, the attempt times out.",
        |rig| {
            let (ep, listener) = (rig.ep()?, rig.listen()?);
            ok(rig.connect_within(ep.ep, listener.qualifier, b"", 100_000))?;
            rig.request_event(listener.evd)?;
            rig.connection(ep.connect, DAT_CONNECTION_EVENT_TIMED_OUT)?;
            rig.state_is(ep.ep, DAT_EP_STATE_DISCONNECTED)
        },
    ),
    must(
        "dat_ep_connect/no-connect-evd",
        "RETURN VALUES: invalid state",
        "An EP without a connect EVD cannot be connected.",
        |rig| {
            let evds = Ep { connect: DAT_HANDLE_NULL, ..rig.evds_of_an_ep()? };
            let (pz, attr, mut ep, Ep { recv, request, connect, .. }) =
                (rig.pz()?, rig.ep_attr(), null_mut(), evds);
            ok(rig.api.dat_ep_create(rig.ia, pz, recv, request, connect, &attr, &mut ep))?;
            answers(rig.connect(ep, rig.listen()?.qualifier, b""), DAT_INVALID_STATE)
        },
    ),
    must(
        "dat_ep_connect/too-much-private-data",
        "RETURN VALUES: invalid parameter",
        "More private data than the provider allows is an invalid parameter, and the EP stays \
         unconnected.",
        |rig| {
            let (ep, listener) = (rig.ep()?, rig.listen()?);
            let too_much = vec![0; rig.provider.max_private_data_size as usize + 1];
            answers(rig.connect(ep.ep, listener.qualifier, &too_much), DAT_INVALID_PARAMETER)?;
            rig.state_is(ep.ep, DAT_EP_STATE_UNCONNECTED)
        },
    ),
    must(
        "dat_ep_connect/null-private-data",
        "RETURN VALUES: invalid parameter",
        "Private data with a null pointer, and private data of a negative size, are invalid.",
        |rig| {
            let (ep, listener, address) = (rig.ep()?, rig.listen()?, rig.attr.ia_address_ptr);
            for size in [4, -1] {
                let answer = rig.api.dat_ep_connect(
                    ep.ep,
                    address,
                    listener.qualifier,
                    event_timeout_us(),
                    size,
                    null_mut(),
                    DAT_QOS_BEST_EFFORT,
                    DAT_CONNECT_DEFAULT_FLAG,
                );
                answers(answer, DAT_INVALID_PARAMETER)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_connect/address-family",
        "RETURN VALUES: invalid address",
        "An address of a family that the provider does not know is an invalid address.",
        |rig| {
            let (ep, listener) = (rig.ep()?, rig.listen()?);
            let mut address = DAT_SOCK_ADDR { sa_family: 0x7777, sa_data: [0; 14] };
            let answer = rig.api.dat_ep_connect(
                ep.ep,
                &mut address,
                listener.qualifier,
                event_timeout_us(),
                0,
                null_mut(),
                DAT_QOS_BEST_EFFORT,
                DAT_CONNECT_DEFAULT_FLAG,
            );
            answers(answer, DAT_INVALID_ADDRESS)
        },
    ),
    must("dat_ep_connect/null-address", "RETURN VALUES", "A null address is refused.", |rig| {
        let (ep, listener) = (rig.ep()?, rig.listen()?);
        let answer = rig.api.dat_ep_connect(
            ep.ep,
            null_mut(),
            listener.qualifier,
            event_timeout_us(),
            0,
            null_mut(),
            DAT_QOS_BEST_EFFORT,
            DAT_CONNECT_DEFAULT_FLAG,
        );
        rig.answers_or(answer, DAT_INVALID_ADDRESS, &[DAT_INVALID_PARAMETER])
    }),
    must(
        "dat_ep_connect/unknown-flags",
        "RETURN VALUES: invalid parameter",
        "Connect flags that the standard does not know are refused.",
        |rig| {
            let (ep, listener, address) = (rig.ep()?, rig.listen()?, rig.attr.ia_address_ptr);
            let answer = rig.api.dat_ep_connect(
                ep.ep,
                address,
                listener.qualifier,
                event_timeout_us(),
                0,
                null_mut(),
                DAT_QOS_BEST_EFFORT,
                0x80,
            );
            rig.answers_or(answer, DAT_INVALID_PARAMETER, &[DAT_MODEL_NOT_SUPPORTED])
        },
    ),
    must(
        "dat_ep_connect/bad-handle",
        "RETURN VALUES: invalid handle",
        "A null handle, a freed handle and the handle of an object of another type are refused.",
        |rig| {
            let (ep, listener) = (rig.ep()?.ep, rig.listen()?);
            ok(rig.api.dat_ep_free(ep))?;
            for ep in [DAT_HANDLE_NULL, ep, rig.pz()?] {
                answers(rig.connect(ep, listener.qualifier, b""), DAT_INVALID_HANDLE)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_query/ports",
        "dat_ep_connect: local_port_qual",
        "The connection request and the passive EP have the port of the active EP as the remote \
         port. The active EP has the address of its peer.",
        |rig| {
            let (active, passive, listener) = (rig.ep()?, rig.ep()?, rig.listen()?);
            ok(rig.connect(active.ep, listener.qualifier, b""))?;
            let arrival = rig.request_event(listener.evd)?;
            let mut request = DAT_CR_PARAM::zeroed();
            ok(rig.api.dat_cr_query(arrival.cr, DAT_CR_FIELD_ALL, &mut request))?;
            ok(rig.accept(arrival.cr, passive.ep, b""))?;
            rig.connection(active.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
            rig.connection(passive.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
            let (near, far) = (rig.query(active.ep)?, rig.query(passive.ep)?);
            ensure_equal(
                "remote_port_qual of the request",
                request.remote_port_qual,
                near.local_port_qual,
            )?;
            ensure_equal(
                "remote_port_qual of the passive EP",
                far.remote_port_qual,
                near.local_port_qual,
            )?;
            ensure(!near.remote_ia_address_ptr.is_null(), "the active EP has no remote address")
        },
    ),
    must(
        "dat_ep_dup_connect/model-not-connected",
        "RETURN VALUES: invalid state",
        "dat_ep_dup_connect refuses to duplicate the connection of an EP that is not connected.",
        |rig| {
            let (ep, model) = (rig.ep()?, rig.ep()?);
            let answer = rig.api.dat_ep_dup_connect(
                ep.ep,
                model.ep,
                event_timeout_us(),
                0,
                null_mut(),
                DAT_QOS_BEST_EFFORT,
            );
            answers(answer, DAT_INVALID_STATE)
        },
    ),
    must(
        "dat_ep_dup_connect/bad-model",
        "RETURN VALUES: invalid handle",
        "dat_ep_dup_connect refuses to duplicate the connection of a null EP or of an object that \
         is not an EP.",
        |rig| {
            let ep = rig.ep()?;
            for model in [DAT_HANDLE_NULL, rig.pz()?] {
                let answer = rig.api.dat_ep_dup_connect(
                    ep.ep,
                    model,
                    event_timeout_us(),
                    0,
                    null_mut(),
                    DAT_QOS_BEST_EFFORT,
                );
                answers(answer, DAT_INVALID_HANDLE)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_disconnect/graceful-completes-first",
        "DESCRIPTION",
        "A graceful disconnect first completes the posted operations. The disconnected event \
         follows their completions.",
        |rig| {
            let mut active = rig.evds_of_an_ep()?;
            let all = rig.evd(DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG)?;
            (active.request, active.connect) = (all, all);
            let request_completion_flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
            let (pz, attr) = (rig.pz()?, DAT_EP_ATTR { request_completion_flags, ..rig.ep_attr() });
            ok(rig.api.dat_ep_create(rig.ia, pz, active.recv, all, all, &attr, &mut active.ep))?;
            let pair = rig.pair_of(active, rig.ep()?)?;
            let (from, to) = (rig.memory(1 << 20)?, rig.memory(1 << 20)?);
            for id in 0..8 {
                ok(rig.write(active.ep, &[from.all()], id, &to.remote()))?;
            }
            ok(rig.api.dat_ep_disconnect(active.ep, DAT_CLOSE_GRACEFUL_FLAG))?;
            for id in 0..8 {
                rig.completes(all, id, DAT_DTO_SUCCESS)?;
            }
            rig.connection(all, DAT_CONNECTION_EVENT_DISCONNECTED)?;
            rig.connection(pair.passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED).map(drop)
        },
    ),
    must(
        "dat_ep_disconnect/abrupt-flushes-in-order",
        "DESCRIPTION",
        "An abrupt disconnect completes the outstanding operations in order. If one is flushed, \
         all later ones are flushed, too.",
        |rig| {
            let pair = rig.pair()?;
            let memory = rig.memory(8)?;
            for id in 0..6 {
                ok(rig.recv(pair.active.ep, &[memory.all()], id))?;
            }
            ok(rig.api.dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG))?;
            for id in 0..6 {
                rig.completes(pair.active.recv, id, DAT_DTO_ERR_FLUSHED)?;
            }
            rig.connection(pair.active.connect, DAT_CONNECTION_EVENT_DISCONNECTED).map(drop)
        },
    ),
    must(
        "dat_ep_disconnect/peer-is-told",
        "DESCRIPTION",
        "dat_ep_disconnect also disconnects the peer's EP, whose receives are flushed.",
        |rig| {
            let (pair, memory) = (rig.pair()?, rig.memory(8)?);
            ok(rig.recv(pair.passive.ep, &[memory.all()], 1))?;
            ok(rig.api.dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG))?;
            rig.connection(pair.passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED)?;
            rig.completes(pair.passive.recv, 1, DAT_DTO_ERR_FLUSHED)?;
            rig.state_is(pair.passive.ep, DAT_EP_STATE_DISCONNECTED)
        },
    ),
    must(
        "dat_ep_disconnect/one-event",
        "DESCRIPTION",
        "An EP that is disconnected several times reports only one disconnected event.",
        |rig| {
            let pair = rig.ended_pair()?;
            ok(rig.api.dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG))?;
            ok(rig.api.dat_ep_disconnect(pair.active.ep, DAT_CLOSE_GRACEFUL_FLAG))?;
            rig.expect_no_event(pair.active.connect)
        },
    ),
    must(
        "dat_ep_disconnect/pending-attempt",
        "state transitions",
        "If dat_ep_disconnect ends a pending connection attempt, the EP reports a disconnected \
         event.",
        |rig| {
            let (ep, _) = rig.request(b"")?;
            ok(rig.api.dat_ep_disconnect(ep.ep, DAT_CLOSE_GRACEFUL_FLAG))?;
            rig.connection(ep.connect, DAT_CONNECTION_EVENT_DISCONNECTED)?;
            rig.state_is(ep.ep, DAT_EP_STATE_DISCONNECTED)
        },
    ),
    must(
        "dat_ep_disconnect/unknown-flags",
        "RETURN VALUES: invalid parameter",
        "Close flags that the standard does not know are invalid.",
        |rig| {
            let pair = rig.pair()?;
            answers(rig.api.dat_ep_disconnect(pair.active.ep, 0x40), DAT_INVALID_PARAMETER)?;
            rig.state_is(pair.active.ep, DAT_EP_STATE_CONNECTED)
        },
    ),
    must(
        "dat_ep_reset/connects-again",
        "DESCRIPTION",
        "After a reset, an EP can be connected again and can transfer data.",
        |rig| {
            let pair = rig.ended_pair()?;
            ok(rig.api.dat_ep_reset(pair.active.ep))?;
            ok(rig.api.dat_ep_reset(pair.passive.ep))?;
            let pair = rig.pair_of(pair.passive, pair.active)?;
            let (from, to) = (rig.memory(8)?, rig.memory(8)?);
            ok(rig.recv(pair.passive.ep, &[to.all()], 1))?;
            ok(rig.send(pair.active.ep, &[from.all()], 2))?;
            rig.completes(pair.passive.recv, 1, DAT_DTO_SUCCESS).map(drop)
        },
    ),
    must(
        "dat_ep_reset/keeps-early-receives",
        "DESCRIPTION",
        "A reset of an unconnected EP keeps the receives that were posted to the EP.",
        |rig| {
            let (passive, to, from) = (rig.ep()?, rig.memory(8)?, rig.memory(8)?);
            ok(rig.recv(passive.ep, &[to.all()], 5))?;
            ok(rig.api.dat_ep_reset(passive.ep))?;
            let pair = rig.pair_of(rig.ep()?, passive)?;
            ok(rig.send(pair.active.ep, &[from.all()], 1))?;
            rig.completes(passive.recv, 5, DAT_DTO_SUCCESS).map(drop)
        },
    ),
    must(
        "dat_ep_free/disconnects",
        "DESCRIPTION",
        "Freeing a connected EP disconnects its peer.",
        |rig| {
            let pair = rig.pair()?;
            ok(rig.api.dat_ep_free(pair.active.ep))?;
            rig.connection(pair.passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED).map(drop)
        },
    ),
    must(
        "dat_psp_create/reports-requests",
        "DESCRIPTION",
        "The event of a connection request contains the PSP, its qualifier, its address, and the \
         handle of the request.",
        |rig| {
            let (ep, listener) = (rig.ep()?, rig.listen()?);
            ok(rig.connect(ep.ep, listener.qualifier, b""))?;
            let arrival = rig.request_event(listener.evd)?;
            ensure_equal(
                "the sp_handle and the qualifier",
                (arrival.sp, arrival.qualifier),
                (listener.psp, listener.qualifier),
            )?;
            ensure(!arrival.address.is_null(), "local_ia_address_ptr is null")?;
            let mut kind = DAT_HANDLE_TYPE::MAX;
            ok(rig.api.dat_get_handle_type(arrival.cr, &mut kind))?;
            ensure_equal("the type of the request's handle", kind, DAT_HANDLE_TYPE_CR)
        },
    ),
    must(
        "dat_psp_create/qualifier-in-use",
        "RETURN VALUES",
        "No PSP can be created with the qualifier of another PSP.",
        |rig| {
            let listener = rig.listen()?;
            let evd = rig.evd(DAT_EVD_CR_FLAG)?;
            let answer = rig.api.dat_psp_create(
                rig.ia,
                listener.qualifier,
                evd,
                DAT_PSP_CONSUMER_FLAG,
                &mut null_mut(),
            );
            answers(answer, DAT_CONN_QUAL_IN_USE)
        },
    ),
    must(
        "dat_psp_create/free-again",
        "dat_psp_free, DESCRIPTION",
        "The qualifier of a freed PSP can be used again.",
        |rig| {
            let (qualifier, evd, mut psp) =
                (rig.free_qualifier()?, rig.evd(DAT_EVD_CR_FLAG)?, null_mut());
            ok(rig.api.dat_psp_create(rig.ia, qualifier, evd, DAT_PSP_CONSUMER_FLAG, &mut psp))?;
            let mut param = DAT_PSP_PARAM::zeroed();
            ok(rig.api.dat_psp_query(psp, DAT_PSP_FIELD_ALL, &mut param))?;
            let returned = (param.ia_handle, param.conn_qual, param.evd_handle, param.psp_flags);
            ensure_equal(
                "what dat_psp_query returns",
                returned,
                (rig.ia, qualifier, evd, DAT_PSP_CONSUMER_FLAG),
            )
        },
    ),
    must(
        "dat_psp_create/evd-of-other-stream",
        "RETURN VALUES",
        "dat_psp_create refuses an EVD that does not have the stream of connection requests.",
        |rig| {
            let evd = rig.evd(DAT_EVD_DTO_FLAG)?;
            let answer = rig.api.dat_psp_create(
                rig.ia,
                rig.free_qualifier()?,
                evd,
                DAT_PSP_CONSUMER_FLAG,
                &mut null_mut(),
            );
            answers(answer, DAT_INVALID_HANDLE)
        },
    ),
    must(
        "dat_psp_create/backlog",
        "DESCRIPTION: backlog",
        "If more connection requests arrive than the PSP's EVD can hold, the surplus callers get a \
         non-peer rejection.",
        |rig| {
            let listener = rig.listen_for(DAT_PSP_CONSUMER_FLAG, 1)?;
            let room = rig.query_evd(listener.evd)?.evd_qlen;
            let callers = (0..room + 1).map(|_| rig.ep()).collect::<Outcome<Vec<_>>>()?;
            for caller in &callers {
                ok(rig.connect(caller.ep, listener.qualifier, b""))?;
            }
            // Which of the requests is refused depends on the order in which they arrive.
            let is_refusal =
                |e: &DAT_EVENT| e.event_number == DAT_CONNECTION_EVENT_NON_PEER_REJECTED;
            let mut refused = 0;
            until(
                || {
                    let events = callers.iter().filter_map(|caller| rig.drain(caller.connect).ok());
                    refused += events.flatten().filter(is_refusal).count();
                    refused > 0
                },
                "a caller is refused",
            )?;
            ensure_equal("the number of callers that are refused", refused, 1)
        },
    ),
    must(
        "dat_psp_create_any/qualifier",
        "DESCRIPTION",
        "dat_psp_create_any chooses a free qualifier and returns it.",
        |rig| {
            let (one, two) = (rig.listen()?, rig.listen()?);
            ensure(one.qualifier != two.qualifier, "two PSPs have the same qualifier")?;
            let mut param = DAT_PSP_PARAM::zeroed();
            ok(rig.api.dat_psp_query(one.psp, DAT_PSP_FIELD_ALL, &mut param))?;
            ensure_equal("conn_qual", param.conn_qual, one.qualifier)
        },
    ),
    must(
        "dat_psp_free/pending-requests-stay",
        "DESCRIPTION",
        "A request that arrived before its PSP was freed can still be accepted. Later requests are \
         rejected.",
        |rig| {
            let (early, late, passive, listener) = (rig.ep()?, rig.ep()?, rig.ep()?, rig.listen()?);
            ok(rig.connect(early.ep, listener.qualifier, b""))?;
            let arrival = rig.request_event(listener.evd)?;
            ok(rig.api.dat_psp_free(listener.psp))?;
            ok(rig.connect(late.ep, listener.qualifier, b""))?;
            rig.connection(late.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED)?;
            ok(rig.accept(arrival.cr, passive.ep, b""))?;
            rig.connection(early.connect, DAT_CONNECTION_EVENT_ESTABLISHED).map(drop)
        },
    ),
    must(
        "dat_rsp_create/one-request",
        "DESCRIPTION",
        "An RSP accepts one connection request. The next request gets a non-peer rejection.",
        |rig| {
            let (ep, evd, qualifier, mut rsp) =
                (rig.ep()?, rig.evd(DAT_EVD_CR_FLAG)?, rig.free_qualifier()?, null_mut());
            ok(rig.api.dat_rsp_create(rig.ia, qualifier, ep.ep, evd, &mut rsp))?;
            let (first, second) = (rig.ep()?, rig.ep()?);
            ok(rig.connect(first.ep, qualifier, b""))?;
            rig.request_event(evd)?;
            ok(rig.connect(second.ep, qualifier, b""))?;
            rig.connection(second.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED).map(drop)
        },
    ),
    must(
        "dat_rsp_query/parameters",
        "DESCRIPTION",
        "dat_rsp_query returns the parameters with which the RSP was created.",
        |rig| {
            let (ep, evd, qualifier, mut rsp) =
                (rig.ep()?, rig.evd(DAT_EVD_CR_FLAG)?, rig.free_qualifier()?, null_mut());
            ok(rig.api.dat_rsp_create(rig.ia, qualifier, ep.ep, evd, &mut rsp))?;
            let mut param = DAT_RSP_PARAM::zeroed();
            ok(rig.api.dat_rsp_query(rsp, DAT_RSP_FIELD_ALL, &mut param))?;
            let returned = (param.ia_handle, param.conn_qual, param.evd_handle, param.ep_handle);
            ensure_equal("what dat_rsp_query returns", returned, (rig.ia, qualifier, evd, ep.ep))
        },
    ),
    must(
        "dat_rsp_free/releases-the-ep",
        "DESCRIPTION",
        "After an RSP has been freed, its EP is unconnected again.",
        |rig| {
            let (ep, evd, qualifier, mut rsp) =
                (rig.ep()?, rig.evd(DAT_EVD_CR_FLAG)?, rig.free_qualifier()?, null_mut());
            ok(rig.api.dat_rsp_create(rig.ia, qualifier, ep.ep, evd, &mut rsp))?;
            ok(rig.api.dat_rsp_free(rsp))?;
            rig.state_is(ep.ep, DAT_EP_STATE_UNCONNECTED)
        },
    ),
    must(
        "dat_cr_accept/without-ep",
        "RETURN VALUES: invalid handle",
        "If the consumer creates the EPs of a PSP, dat_cr_accept needs an EP. A call without an EP \
         does not affect the request.",
        |rig| {
            let (caller, arrival) = rig.request(b"")?;
            answers(rig.accept(arrival.cr, DAT_HANDLE_NULL, b""), DAT_INVALID_HANDLE)?;
            ok(rig.accept(arrival.cr, rig.ep()?.ep, b""))?;
            rig.connection(caller.connect, DAT_CONNECTION_EVENT_ESTABLISHED).map(drop)
        },
    ),
    must(
        "dat_cr_accept/with-ep-at-rsp",
        "RETURN VALUES: invalid handle",
        "A request at an RSP has the EP of the RSP. dat_cr_accept refuses another EP.",
        |rig| {
            let (ep, evd, qualifier, mut rsp) =
                (rig.ep()?, rig.evd(DAT_EVD_CR_FLAG)?, rig.free_qualifier()?, null_mut());
            ok(rig.api.dat_rsp_create(rig.ia, qualifier, ep.ep, evd, &mut rsp))?;
            ok(rig.connect(rig.ep()?.ep, qualifier, b""))?;
            answers(rig.accept(rig.request_event(evd)?.cr, rig.ep()?.ep, b""), DAT_INVALID_HANDLE)
        },
    ),
    must(
        "dat_cr_accept/too-much-private-data",
        "RETURN VALUES: invalid parameter",
        "dat_cr_accept refuses too much private data, and private data with a null pointer. \
         Neither call affects the request.",
        |rig| {
            let ((_, arrival), ep) = (rig.request(b"")?, rig.ep()?);
            let too_much = vec![0; rig.provider.max_private_data_size as usize + 1];
            answers(rig.accept(arrival.cr, ep.ep, &too_much), DAT_INVALID_PARAMETER)?;
            answers(
                rig.api.dat_cr_accept(arrival.cr, ep.ep, 3, null_mut()),
                DAT_INVALID_PARAMETER,
            )?;
            ok(rig.accept(arrival.cr, ep.ep, b""))
        },
    ),
    must(
        "dat_cr_accept/handle-is-dead",
        "DESCRIPTION",
        "The handle of a connection request is refused after the request was accepted, rejected or \
         handed off.",
        |rig| {
            let (_, accepted) = rig.request(b"")?;
            ok(rig.accept(accepted.cr, rig.ep()?.ep, b""))?;
            let (_, rejected) = rig.request(b"")?;
            ok(rig.reject(rejected.cr, b""))?;
            let (_, handed) = rig.request(b"")?;
            ok(rig.api.dat_cr_handoff(handed.cr, rig.listen()?.qualifier))?;
            for cr in [accepted.cr, rejected.cr, handed.cr] {
                answers(rig.accept(cr, rig.ep()?.ep, b""), DAT_INVALID_HANDLE)?;
                answers(
                    rig.api.dat_cr_query(cr, DAT_CR_FIELD_ALL, &mut DAT_CR_PARAM::zeroed()),
                    DAT_INVALID_HANDLE,
                )?;
            }
            Ok(())
        },
    ),
    must(
        "dat_cr_accept/provider-made-ep",
        "DESCRIPTION",
        "If the provider creates the EPs of a PSP, a request is accepted with the EP of the \
         request, after the consumer has configured this EP.",
        |rig| {
            if rig.provider.ep_creator == DAT_PSP_CREATES_EP_NEVER {
                return crate::check::unsupported(
                    "the provider attribute ep_creator is DAT_PSP_CREATES_EP_NEVER",
                );
            }
            let (caller, listener) = (rig.ep()?, rig.listen_for(DAT_PSP_PROVIDER_FLAG, 8)?);
            ok(rig.connect(caller.ep, listener.qualifier, b""))?;
            let (arrival, mut request) = (rig.request_event(listener.evd)?, DAT_CR_PARAM::zeroed());
            ok(rig.api.dat_cr_query(arrival.cr, DAT_CR_FIELD_ALL, &mut request))?;
            let created = rig.query(request.local_ep_handle)?;
            let nothing = [
                created.pz_handle,
                created.recv_evd_handle,
                created.request_evd_handle,
                created.connect_evd_handle,
            ];
            ensure_equal("the zone and the EVDs of the EP", nothing, [DAT_HANDLE_NULL; 4])?;
            let evds = rig.evds_of_an_ep()?;
            let param = DAT_EP_PARAM {
                pz_handle: rig.pz()?,
                recv_evd_handle: evds.recv,
                request_evd_handle: evds.request,
                connect_evd_handle: evds.connect,
                ..DAT_EP_PARAM::zeroed()
            };
            let evd_fields = DAT_EP_FIELD_RECV_EVD_HANDLE
                | DAT_EP_FIELD_REQUEST_EVD_HANDLE
                | DAT_EP_FIELD_CONNECT_EVD_HANDLE;
            ok(rig.api.dat_ep_modify(
                request.local_ep_handle,
                DAT_EP_FIELD_PZ_HANDLE | evd_fields,
                &param,
            ))?;
            ok(rig.accept(arrival.cr, DAT_HANDLE_NULL, b""))?;
            rig.connection(evds.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
            rig.connection(caller.connect, DAT_CONNECTION_EVENT_ESTABLISHED).map(drop)
        },
    ),
    must(
        "dat_cr_reject/peer-is-told",
        "DESCRIPTION",
        "If the peer rejects a connection request, the caller gets a peer rejection, and its EP is \
         disconnected.",
        |rig| {
            let (caller, arrival) = rig.request(b"")?;
            ok(rig.reject(arrival.cr, b""))?;
            rig.connection(caller.connect, DAT_CONNECTION_EVENT_PEER_REJECTED)?;
            rig.state_is(caller.ep, DAT_EP_STATE_DISCONNECTED)
        },
    ),
    must(
        "dat_cr_reject/private-data",
        "2.0 headers: private data of dat_cr_reject",
        "The private data of dat_cr_reject arrive with the rejection event.",
        |rig| {
            let (caller, arrival) = rig.request(b"")?;
            ok(rig.reject(arrival.cr, b"no, thank you"))?;
            let down = rig.connection(caller.connect, DAT_CONNECTION_EVENT_PEER_REJECTED)?;
            ensure(
                down.private_data_size >= 13,
                format_args!(
                    "only {} bytes of private data arrived with the rejection",
                    down.private_data_size
                ),
            )?;
            ensure_equal(
                "the private data",
                private(down.private_data, 13),
                b"no, thank you".to_vec(),
            )
        },
    ),
    must(
        "dat_cr_reject/reserved-ep",
        "state transitions",
        "After a request at an RSP has been rejected, the EP of the RSP is unconnected again.",
        |rig| {
            let (ep, evd, qualifier, mut rsp) =
                (rig.ep()?, rig.evd(DAT_EVD_CR_FLAG)?, rig.free_qualifier()?, null_mut());
            ok(rig.api.dat_rsp_create(rig.ia, qualifier, ep.ep, evd, &mut rsp))?;
            ok(rig.connect(rig.ep()?.ep, qualifier, b""))?;
            ok(rig.reject(rig.request_event(evd)?.cr, b""))?;
            rig.state_is(ep.ep, DAT_EP_STATE_UNCONNECTED)
        },
    ),
    must(
        "dat_cr_reject/tentative-ep",
        "state transitions",
        "If the provider has created an EP for a request, a rejection of the request frees the EP.",
        |rig| {
            if rig.provider.ep_creator == DAT_PSP_CREATES_EP_NEVER {
                return crate::check::unsupported(
                    "the provider attribute ep_creator is DAT_PSP_CREATES_EP_NEVER",
                );
            }
            let (caller, listener) = (rig.ep()?, rig.listen_for(DAT_PSP_PROVIDER_FLAG, 8)?);
            ok(rig.connect(caller.ep, listener.qualifier, b""))?;
            let (arrival, mut request) = (rig.request_event(listener.evd)?, DAT_CR_PARAM::zeroed());
            ok(rig.api.dat_cr_query(arrival.cr, DAT_CR_FIELD_ALL, &mut request))?;
            ok(rig.reject(arrival.cr, b""))?;
            let mut param = DAT_EP_PARAM::zeroed();
            answers(
                rig.api.dat_ep_query(request.local_ep_handle, DAT_EP_FIELD_ALL, &mut param),
                DAT_INVALID_HANDLE,
            )
        },
    ),
    must(
        "dat_cr_handoff/to-another-psp",
        "DESCRIPTION",
        "A request that is handed off arrives at the PSP of the other qualifier. Its old handle is \
         invalid.",
        |rig| {
            let (caller, arrival) = rig.request(b"pass it on")?;
            let other = rig.listen()?;
            ok(rig.api.dat_cr_handoff(arrival.cr, other.qualifier))?;
            let moved = rig.request_event(other.evd)?;
            ensure_equal("the qualifier", moved.qualifier, other.qualifier)?;
            answers(rig.reject(arrival.cr, b""), DAT_INVALID_HANDLE)?;
            let mut param = DAT_CR_PARAM::zeroed();
            ok(rig.api.dat_cr_query(moved.cr, DAT_CR_FIELD_ALL, &mut param))?;
            ensure_equal(
                "the private data",
                private(param.private_data, 10),
                b"pass it on".to_vec(),
            )?;
            ok(rig.accept(moved.cr, rig.ep()?.ep, b""))?;
            rig.connection(caller.connect, DAT_CONNECTION_EVENT_ESTABLISHED).map(drop)
        },
    ),
    must(
        "dat_cr_handoff/nobody-there",
        "DESCRIPTION",
        "If a request is handed off to a qualifier on which nobody listens, the caller gets a \
         non-peer rejection.",
        |rig| {
            let (caller, arrival) = rig.request(b"")?;
            ok(rig.api.dat_cr_handoff(arrival.cr, rig.free_qualifier()?))?;
            rig.connection(caller.connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED).map(drop)
        },
    ),
    must(
        "dat_cr_handoff/bad-handle",
        "RETURN VALUES",
        "dat_cr_handoff refuses a null handle.",
        |rig| answers(rig.api.dat_cr_handoff(DAT_HANDLE_NULL, 1), DAT_INVALID_HANDLE),
    ),
    must(
        "dat_ep_common_connect/connects",
        "2.0 headers: dat_csp_create, dat_ep_common_connect",
        "dat_ep_common_connect can connect to a common service point, at the address that \
         dat_csp_query returns.",
        |rig| {
            let (point, ep) = (rig.common_point()?, rig.ep()?);
            ok(rig.api.dat_ep_common_connect(
                ep.ep,
                point.address,
                event_timeout_us(),
                2,
                b"hi".as_ptr().cast_mut().cast(),
            ))?;
            let (arrival, mut param) = (rig.request_event(point.evd)?, DAT_CR_PARAM::zeroed());
            ensure_equal("the service point", arrival.sp, point.csp)?;
            ok(rig.api.dat_cr_query(arrival.cr, DAT_CR_FIELD_ALL, &mut param))?;
            ensure_equal("the private data", private(param.private_data, 2), b"hi".to_vec())?;
            ok(rig.accept(arrival.cr, rig.ep()?.ep, b""))?;
            rig.connection(ep.connect, DAT_CONNECTION_EVENT_ESTABLISHED).map(drop)
        },
    ),
    must(
        "dat_csp_create/in-use",
        "2.0 headers: DAT_PORT_IN_USE, DAT_COMM_NOT_SUPPORTED",
        "The port of a common service point is in use until the service point is freed. An unknown \
         communicator is not supported.",
        |rig| {
            const TCP: DAT_COMM = DAT_COMM { domain: 2, r#type: 1, protocol: 6 };
            let (point, mut csp) = (rig.common_point()?, null_mut());
            let mut create = |mut comm: DAT_COMM| {
                rig.api.dat_csp_create(rig.ia, &mut comm, point.address, point.evd, &mut csp)
            };
            answers(create(TCP), DAT_PORT_IN_USE)?;
            answers(create(DAT_COMM { domain: 99, ..TCP }), DAT_COMM_NOT_SUPPORTED)
        },
    ),
    must(
        "dat_csp_create/bad-arguments",
        "2.0 headers: dat_csp_create",
        "dat_csp_create refuses a null address, a null communicator, and an EVD without the stream \
         of connection requests.",
        |rig| {
            const TCP: DAT_COMM = DAT_COMM { domain: 2, r#type: 1, protocol: 6 };
            let (point, mut comm, mut csp) = (rig.common_point()?, TCP, null_mut());
            let create = rig.api.dat_csp_create(rig.ia, &mut comm, null_mut(), point.evd, &mut csp);
            rig.answers_or(create, DAT_INVALID_ADDRESS, &[DAT_INVALID_PARAMETER])?;
            let create =
                rig.api.dat_csp_create(rig.ia, null_mut(), point.address, point.evd, &mut csp);
            answers(create, DAT_INVALID_PARAMETER)?;
            let (other, address) = (rig.evd(DAT_EVD_DTO_FLAG)?, rig.attr.ia_address_ptr);
            let create = rig.api.dat_csp_create(rig.ia, &mut comm, address, other, &mut csp);
            rig.answers_or(create, DAT_INVALID_HANDLE, &[DAT_INVALID_PARAMETER])
        },
    ),
    must(
        "dat_csp_query/parameters",
        "2.0 headers: DAT_CSP_PARAM",
        "dat_csp_query returns the parameters with which the common service point was created.",
        |rig| {
            let (point, mut param) = (rig.common_point()?, DAT_CSP_PARAM::zeroed());
            ok(rig.api.dat_csp_query(point.csp, DAT_CSP_FIELD_ALL, &mut param))?;
            ensure_equal(
                "the IA and the EVD",
                (param.ia_handle, param.evd_handle),
                (rig.ia, point.evd),
            )
        },
    ),
    must(
        "dat_csp_free/dead",
        "2.0 headers: dat_csp_free",
        "After a common service point has been freed, its handle is refused, and other service \
         points continue to listen.",
        |rig| {
            let (free, point, ep) = (rig.common_point()?, rig.common_point()?, rig.ep()?);
            ok(rig.api.dat_csp_free(free.csp))?;
            answers(rig.api.dat_csp_free(free.csp), DAT_INVALID_HANDLE)?;
            ok(rig.api.dat_ep_common_connect(
                ep.ep,
                point.address,
                event_timeout_us(),
                0,
                null_mut(),
            ))?;
            rig.request_event(point.evd).map(drop)
        },
    ),
];
