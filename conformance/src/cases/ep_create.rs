//! dat_ep_create.

use std::ptr::{null, null_mut};

use dat_sys::*;

use super::bad_requests::{self, refused_or_fails};
use crate::case::{Row, must, should};
use crate::check::{Outcome, answers, answers_with, ensure, ensure_equal, ok};
use crate::rig::{Ep, Rig};

pub(super) const CASES: &[Row] = &[
    must("dat_ep_create/unconnected", "DESCRIPTION 2", "A new EP is unconnected.", |rig| {
        rig.state_is(rig.ep()?.ep, DAT_EP_STATE_UNCONNECTED)
    }),
    must("dat_ep_create/idle", "DESCRIPTION 2", "Both queues of a new EP are idle.", |rig| {
        let (mut state, mut recv_idle, mut request_idle) = (0, 0, 0);
        ok(rig.api.dat_ep_get_status(rig.ep()?.ep, &mut state, &mut recv_idle, &mut request_idle))?;
        ensure_equal("idleness", (recv_idle, request_idle), (DAT_TRUE, DAT_TRUE))
    }),
    must(
        "dat_ep_create/parameters",
        "PARAMETERS 1-6",
        "A new EP belongs to the IA, zone and EVDs with which it was created.",
        |rig| {
            let ep = rig.ep()?;
            let param = rig.query(ep.ep)?;
            ensure_equal("ia_handle", param.ia_handle, rig.ia)?;
            ensure_equal("pz_handle", param.pz_handle, rig.pz()?)?;
            ensure_equal("recv_evd_handle", param.recv_evd_handle, ep.recv)?;
            ensure_equal("request_evd_handle", param.request_evd_handle, ep.request)?;
            ensure_equal("connect_evd_handle", param.connect_evd_handle, ep.connect)?;
            ensure_equal("srq_handle", param.srq_handle, DAT_HANDLE_NULL)
        },
    ),
    must(
        "dat_ep_create/handle-type",
        "PARAMETERS 7",
        "The handle that dat_ep_create returns has the type of an EP.",
        |rig| {
            let mut kind = DAT_HANDLE_TYPE::MAX;
            ok(rig.api.dat_get_handle_type(rig.ep()?.ep, &mut kind))?;
            ensure_equal("the type of the handle", kind, DAT_HANDLE_TYPE_EP)
        },
    ),
    must(
        "dat_ep_create/other-pz-in-segment",
        "DESCRIPTION 3",
        "An EP cannot send from memory of a zone that is not its own.",
        |rig| {
            let pair = rig.pair()?;
            let strange = rig.memory_with(rig.new_pz()?, 64, DAT_MEM_PRIV_ALL_FLAG)?;
            refused_or_fails(
                rig,
                rig.send(pair.active.ep, &[strange.all()], 1),
                DAT_PROTECTION_VIOLATION,
                pair.active,
            )
        },
    ),
    must(
        "dat_ep_create/other-pz-at-target",
        "DESCRIPTION 3",
        "The peer of an EP cannot write to memory of a zone that is not the EP's.",
        |rig| {
            let pair = rig.pair()?;
            let strange = rig.memory_with(rig.new_pz()?, 64, DAT_MEM_PRIV_ALL_FLAG)?;
            let from = rig.memory(64)?;
            from.store(0, &[0xff; 64]);
            ok(rig.write(pair.active.ep, &[from.all()], 1, &strange.remote()))?;
            // The transport determines whether the initiator learns the reason of the failure. The
            // connection ends in any case.
            rig.connection(pair.passive.connect, DAT_CONNECTION_EVENT_BROKEN)?;
            ensure_equal("the memory", strange.load(0, 64), vec![0; 64])
        },
    ),
    must(
        "dat_ep_create/completions-go-to-their-evd",
        "DESCRIPTION 4",
        "Receives complete on the receive EVD of the EP. Sends, RDMA writes and RDMA reads \
         complete on its request EVD.",
        |rig| {
            let pair = rig.pair()?;
            let (near, far) = (rig.memory(64)?, rig.memory(64)?);
            let Ep { ep, request, .. } = pair.active;
            ok(rig.recv(pair.passive.ep, &[far.all()], 1))?;
            ok(rig.write(ep, &[near.all()], 2, &far.remote()))?;
            rig.completes(request, 2, DAT_DTO_SUCCESS)?;
            ok(rig.read(ep, &[near.all()], 3, &far.remote()))?;
            rig.completes(request, 3, DAT_DTO_SUCCESS)?;
            ok(rig.send(ep, &[near.all()], 4))?;
            rig.completes(request, 4, DAT_DTO_SUCCESS)?;
            rig.completes(pair.passive.recv, 1, DAT_DTO_SUCCESS)?;
            rig.expect_no_event(pair.active.recv)?;
            rig.expect_no_event(pair.passive.request)
        },
    ),
    must(
        "dat_ep_create/binds-complete-on-request-evd",
        "DESCRIPTION 4",
        "RMR binds complete on the request EVD of the EP to which they are posted.",
        |rig| {
            let pair = rig.pair()?;
            let (rmr, memory, mut context) = (rig.rmr()?, rig.memory(64)?, 0);
            ok(bad_requests::bind(
                rig,
                rmr,
                &memory,
                DAT_MEM_PRIV_ALL_FLAG,
                pair.active.ep,
                7,
                &mut context,
            ))?;
            let bound = rig.bind_completion(pair.active.request)?;
            ensure_equal(
                "cookie and status",
                (bound.cookie, bound.status),
                (7, DAT_RMR_BIND_SUCCESS),
            )
        },
    ),
    must(
        "dat_ep_create/connection-events-go-to-connect-evd",
        "DESCRIPTION 5",
        "The connection events of an EP arrive at its connect EVD and contain the EP.",
        |rig| {
            let (active, passive, listener) = (rig.ep()?, rig.ep()?, rig.listen()?);
            ok(rig.connect(active.ep, listener.qualifier, b""))?;
            ok(rig.accept(rig.request_event(listener.evd)?.cr, passive.ep, b""))?;
            for end in [active, passive] {
                let up = rig.connection(end.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
                ensure_equal("ep_handle", up.ep_handle, end.ep)?;
            }
            ok(rig.api.dat_ep_disconnect(active.ep, DAT_CLOSE_ABRUPT_FLAG))?;
            for end in [active, passive] {
                let down = rig.connection(end.connect, DAT_CONNECTION_EVENT_DISCONNECTED)?;
                ensure_equal("ep_handle", down.ep_handle, end.ep)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_create/attributes",
        "DESCRIPTION 6",
        "The attributes of a new EP are at least as large as requested.",
        |rig| {
            let requested = rig.ep_attr();
            let is = rig.query(rig.ep_with(&requested)?.ep)?.ep_attr;
            let sizes = |attr: &DAT_EP_ATTR| (attr.service_type, attr.qos);
            ensure_equal("service type and QoS", sizes(&is), sizes(&requested))?;
            let flags =
                |attr: &DAT_EP_ATTR| (attr.recv_completion_flags, attr.request_completion_flags);
            ensure_equal("the completion flags", flags(&is), flags(&requested))?;
            for (what, is, requested) in [
                ("max_recv_dtos", is.max_recv_dtos, requested.max_recv_dtos),
                ("max_request_dtos", is.max_request_dtos, requested.max_request_dtos),
                ("max_recv_iov", is.max_recv_iov, requested.max_recv_iov),
                ("max_request_iov", is.max_request_iov, requested.max_request_iov),
                ("max_rdma_read_in", is.max_rdma_read_in, requested.max_rdma_read_in),
                ("max_rdma_read_out", is.max_rdma_read_out, requested.max_rdma_read_out),
            ] {
                ensure(is >= requested, format_args!("{what} is {is}, less than {requested}"))?;
            }
            ensure(
                is.max_message_size >= requested.max_message_size,
                "max_message_size is less than requested",
            )?;
            ensure(
                is.max_rdma_size >= requested.max_rdma_size,
                "max_rdma_size is less than requested",
            )
        },
    ),
    must(
        "dat_ep_create/null-attributes",
        "DESCRIPTION 6",
        "If the consumer passes no attributes, the EP has attributes of the provider's choice, \
         within the limits of the adapter.",
        |rig| {
            let is = rig.query(rig.ep_in(rig.pz()?, None)?.ep)?.ep_attr;
            ensure(
                is.max_recv_dtos >= 0 && is.max_recv_dtos <= rig.attr.max_dto_per_ep,
                "max_recv_dtos is not within the limits of the adapter",
            )?;
            ensure(
                is.max_request_dtos >= 0 && is.max_request_dtos <= rig.attr.max_dto_per_ep,
                "max_request_dtos is not within the limits of the adapter",
            )?;
            ensure(
                is.max_message_size <= rig.attr.max_message_size,
                "max_message_size exceeds the limit of the adapter",
            )?;
            ensure(
                is.max_rdma_read_in <= rig.attr.max_rdma_read_per_ep_in,
                "max_rdma_read_in exceeds the limit of the adapter",
            )?;
            ensure(
                is.max_rdma_read_out <= rig.attr.max_rdma_read_per_ep_out,
                "max_rdma_read_out exceeds the limit of the adapter",
            )
        },
    ),
    should(
        "dat_ep_create/reasonable-defaults",
        "USAGE 7",
        "An EP with the attributes of the provider's choice can be connected, and can send and \
         receive.",
        |rig| {
            let pz = rig.pz()?;
            let pair = rig.pair_of(rig.ep_in(pz, None)?, rig.ep_in(pz, None)?)?;
            let (from, to) = (rig.memory(64)?, rig.memory(64)?);
            ok(rig.recv(pair.passive.ep, &[to.all()], 1))?;
            ok(rig.send(pair.active.ep, &[from.all()], 2))?;
            rig.completes(pair.passive.recv, 1, DAT_DTO_SUCCESS).map(drop)
        },
    ),
    must(
        "dat_ep_create/defaults-can-be-modified",
        "USAGE 6",
        "An EP with the attributes of the provider's choice can be queried, modified and freed.",
        |rig| {
            let ep = rig.ep_in(rig.pz()?, None)?;
            let mut param = rig.query(ep.ep)?;
            param.ep_attr.max_recv_dtos = 5;
            ok(rig.api.dat_ep_modify(ep.ep, DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS, &param))?;
            ensure(
                rig.query(ep.ep)?.ep_attr.max_recv_dtos >= 5,
                "dat_ep_modify has not set max_recv_dtos to 5",
            )?;
            rig.state_is(ep.ep, DAT_EP_STATE_UNCONNECTED)?;
            ok(rig.api.dat_ep_free(ep.ep))
        },
    ),
    must(
        "dat_ep_create/null-recv-evd",
        "PARAMETERS 3",
        "If an EP has no receive EVD, its receives complete without events.",
        |rig| {
            let mut passive = rig.evds_of_an_ep()?;
            let (pz, attr) = (rig.pz()?, rig.ep_attr());
            let Ep { recv, request, connect, .. } = passive;
            let none = DAT_HANDLE_NULL;
            ok(rig.api.dat_ep_create(rig.ia, pz, none, request, connect, &attr, &mut passive.ep))?;
            let pair = rig.pair_of(rig.ep()?, passive)?;
            let (from, to) = (rig.memory(8)?, rig.memory(8)?);
            from.store(0, b"unheard.");
            ok(rig.recv(passive.ep, &[to.all()], 1))?;
            ok(rig.send(pair.active.ep, &[from.all()], 2))?;
            rig.completes(pair.active.request, 2, DAT_DTO_SUCCESS)?;
            // The read follows the send on the same connection, so it returns the data that the
            // send has transferred.
            let back = rig.memory(8)?;
            ok(rig.read(pair.active.ep, &[back.all()], 3, &to.remote()))?;
            rig.completes(pair.active.request, 3, DAT_DTO_SUCCESS)?;
            ensure_equal("the memory of the receive", back.load(0, 8), b"unheard.".to_vec())?;
            rig.expect_no_event(recv)
        },
    ),
    must(
        "dat_ep_create/null-request-evd",
        "PARAMETERS 4",
        "If an EP has no request EVD, its requests complete without events.",
        |rig| {
            let mut active = rig.evds_of_an_ep()?;
            let (pz, attr) = (rig.pz()?, rig.ep_attr());
            let Ep { recv, request, connect, .. } = active;
            let none = DAT_HANDLE_NULL;
            ok(rig.api.dat_ep_create(rig.ia, pz, recv, none, connect, &attr, &mut active.ep))?;
            let pair = rig.pair_of(active, rig.ep()?)?;
            let (from, to) = (rig.memory(8)?, rig.memory(8)?);
            ok(rig.recv(pair.passive.ep, &[to.all()], 1))?;
            ok(rig.send(active.ep, &[from.all()], 2))?;
            rig.completes(pair.passive.recv, 1, DAT_DTO_SUCCESS)?;
            rig.expect_no_event(request)
        },
    ),
    must(
        "dat_ep_create/null-connect-evd",
        "PARAMETERS 5",
        "An EP can be created without a connect EVD, and can get a connect EVD later.",
        |rig| {
            let mut ep = rig.evds_of_an_ep()?;
            let (pz, attr) = (rig.pz()?, rig.ep_attr());
            let none = DAT_HANDLE_NULL;
            ok(rig.api.dat_ep_create(rig.ia, pz, ep.recv, ep.request, none, &attr, &mut ep.ep))?;
            let param = DAT_EP_PARAM { connect_evd_handle: ep.connect, ..DAT_EP_PARAM::zeroed() };
            ok(rig.api.dat_ep_modify(ep.ep, DAT_EP_FIELD_CONNECT_EVD_HANDLE, &param))?;
            rig.pair_of(ep, rig.ep()?).map(drop)
        },
    ),
    must("dat_ep_create/null-ia", "RETURN VALUES 3", "A null IA handle is refused.", |rig| {
        let (evds, mut ep) = (rig.evds_of_an_ep()?, null_mut());
        let Ep { recv, request, connect, .. } = evds;
        let answer = rig.api.dat_ep_create(
            DAT_HANDLE_NULL,
            rig.pz()?,
            recv,
            request,
            connect,
            null(),
            &mut ep,
        );
        answers(answer, DAT_INVALID_HANDLE)
    }),
    must(
        "dat_ep_create/freed-pz",
        "RETURN VALUES 3",
        "The handle of a freed zone is refused.",
        |rig| {
            let pz = rig.new_pz()?;
            ok(rig.api.dat_pz_free(pz))?;
            with_pz(rig, pz)
        },
    ),
    must(
        "dat_ep_create/pz-other-ia",
        "RETURN VALUES 3",
        "dat_ep_create refuses a zone that belongs to another IA.",
        |rig| {
            if rig.provider.pz_support == DAT_PZ_SHAREABLE {
                return crate::check::unsupported("zones are shared by all IAs of this provider");
            }
            with_pz(rig, rig.pz_of(rig.other_ia()?)?)
        },
    ),
    must(
        "dat_ep_create/evd-as-pz",
        "RETURN VALUES 3",
        "dat_ep_create refuses the handle of an object of another type in place of a zone.",
        |rig| with_pz(rig, rig.evd(DAT_EVD_DTO_FLAG)?),
    ),
    must(
        "dat_ep_create/evd-recv-freed",
        "RETURN VALUES 3",
        "dat_ep_create refuses the handle of a freed EVD as the receive EVD.",
        |rig| {
            let evds = rig.evds_of_an_ep()?;
            ok(rig.api.dat_evd_free(evds.recv))?;
            with_evds(rig, evds, DAT_INVALID_HANDLE_EVD_RECV)
        },
    ),
    must(
        "dat_ep_create/evd-request-freed",
        "RETURN VALUES 3",
        "dat_ep_create refuses the handle of a freed EVD as the request EVD.",
        |rig| {
            let evds = rig.evds_of_an_ep()?;
            ok(rig.api.dat_evd_free(evds.request))?;
            with_evds(rig, evds, DAT_INVALID_HANDLE_EVD_REQUEST)
        },
    ),
    must(
        "dat_ep_create/evd-connect-freed",
        "RETURN VALUES 3",
        "dat_ep_create refuses the handle of a freed EVD as the connect EVD.",
        |rig| {
            let evds = rig.evds_of_an_ep()?;
            ok(rig.api.dat_evd_free(evds.connect))?;
            with_evds(rig, evds, DAT_INVALID_HANDLE_EVD_CONN)
        },
    ),
    must(
        "dat_ep_create/evd-recv-other-ia",
        "RETURN VALUES 3",
        "dat_ep_create refuses a receive EVD that belongs to another IA.",
        |rig| {
            let recv = rig.evd_of(rig.other_ia()?, 8, DAT_EVD_DTO_FLAG)?;
            with_evds(rig, Ep { recv, ..rig.evds_of_an_ep()? }, DAT_INVALID_HANDLE_EVD_RECV)
        },
    ),
    must(
        "dat_ep_create/evd-recv-other-stream",
        "RETURN VALUES 3",
        "dat_ep_create refuses a receive EVD that does not have the stream of DTOs.",
        |rig| {
            let recv = rig.evd(DAT_EVD_CONNECTION_FLAG)?;
            with_evds(rig, Ep { recv, ..rig.evds_of_an_ep()? }, DAT_INVALID_HANDLE_EVD_RECV)
        },
    ),
    must(
        "dat_ep_create/evd-request-other-stream",
        "RETURN VALUES 3",
        "dat_ep_create refuses a request EVD that does not have the stream of DTOs.",
        |rig| {
            let request = rig.evd(DAT_EVD_CONNECTION_FLAG)?;
            with_evds(rig, Ep { request, ..rig.evds_of_an_ep()? }, DAT_INVALID_HANDLE_EVD_REQUEST)
        },
    ),
    must(
        "dat_ep_create/evd-connect-other-stream",
        "RETURN VALUES 3",
        "dat_ep_create refuses a connect EVD that does not have the stream of connection events.",
        |rig| {
            let connect = rig.evd(DAT_EVD_DTO_FLAG)?;
            with_evds(rig, Ep { connect, ..rig.evds_of_an_ep()? }, DAT_INVALID_HANDLE_EVD_CONN)
        },
    ),
    must(
        "dat_ep_create/pz-as-evd",
        "RETURN VALUES 3",
        "dat_ep_create refuses the handle of an object of another type in place of an EVD.",
        |rig| {
            let recv = rig.pz()?;
            with_evds(rig, Ep { recv, ..rig.evds_of_an_ep()? }, DAT_INVALID_HANDLE_EVD_RECV)
        },
    ),
    must(
        "dat_ep_create/null-out",
        "RETURN VALUES 4",
        "If the pointer for the new handle is null, dat_ep_create fails and creates no EP.",
        |rig| {
            let (evds, attr) = (rig.evds_of_an_ep()?, rig.ep_attr());
            let Ep { recv, request, connect, .. } = evds;
            let answer =
                rig.api.dat_ep_create(rig.ia, rig.pz()?, recv, request, connect, &attr, null_mut());
            answers(answer, DAT_INVALID_PARAMETER)?;
            // If the failed call had created an EP, the EP would use the EVDs, and they could not
            // be freed.
            ok(rig.api.dat_evd_free(recv))
        },
    ),
    must(
        "dat_ep_create/negative-counts",
        "RETURN VALUES 4",
        "dat_ep_create refuses attributes with negative values.",
        |rig| {
            with_attr(rig, DAT_EP_ATTR { max_recv_dtos: -1, ..rig.ep_attr() })?;
            with_attr(rig, DAT_EP_ATTR { max_request_dtos: -1, ..rig.ep_attr() })?;
            with_attr(rig, DAT_EP_ATTR { max_recv_iov: -1, ..rig.ep_attr() })?;
            with_attr(rig, DAT_EP_ATTR { max_request_iov: -1, ..rig.ep_attr() })?;
            with_attr(rig, DAT_EP_ATTR { max_rdma_read_in: -1, ..rig.ep_attr() })?;
            with_attr(rig, DAT_EP_ATTR { max_rdma_read_out: -1, ..rig.ep_attr() })
        },
    ),
    must(
        "dat_ep_create/recv-flags",
        "RETURN VALUES 4",
        "Receives cannot be suppressed or fenced, so dat_ep_create refuses these receive \
         completion flags.",
        |rig| {
            for recv_completion_flags in
                [DAT_COMPLETION_SUPPRESS_FLAG, DAT_COMPLETION_BARRIER_FENCE_FLAG]
            {
                let attr = DAT_EP_ATTR { recv_completion_flags, ..rig.ep_attr() };
                answers(
                    create(rig, rig.pz()?, rig.evds_of_an_ep()?, &attr),
                    DAT_INVALID_PARAMETER,
                )?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_create/service-type",
        "RETURN VALUES 5",
        "dat_ep_create returns DAT_MODEL_NOT_SUPPORTED for a service type that the provider does \
         not support.",
        |rig| {
            let attr = DAT_EP_ATTR { service_type: 77, ..rig.ep_attr() };
            let answer = create(rig, rig.pz()?, rig.evds_of_an_ep()?, &attr);
            rig.answers_or(answer, DAT_MODEL_NOT_SUPPORTED, &[DAT_INVALID_PARAMETER])
        },
    ),
    must(
        "dat_ep_create/qos",
        "RETURN VALUES 5",
        "dat_ep_create returns DAT_MODEL_NOT_SUPPORTED for a quality of service that the provider \
         does not support.",
        |rig| {
            for qos in
                [DAT_QOS_HIGH_THROUGHPUT, DAT_QOS_LOW_LATENCY, DAT_QOS_ECONOMY, DAT_QOS_PREMIUM]
            {
                let answer = create(
                    rig,
                    rig.pz()?,
                    rig.evds_of_an_ep()?,
                    &DAT_EP_ATTR { qos, ..rig.ep_attr() },
                );
                if qos & rig.provider.dat_qos_supported == 0 {
                    answers(answer, DAT_MODEL_NOT_SUPPORTED)?;
                } else {
                    ok(answer)?;
                }
            }
            Ok(())
        },
    ),
    must("dat_ep_create/connects", "USAGE 1", "dat_ep_connect can connect a new EP.", |rig| {
        rig.request(b"").map(drop)
    }),
    must(
        "dat_ep_create/dup-connects",
        "USAGE 1",
        "dat_ep_dup_connect can connect a new EP.",
        |rig| {
            let (first, second, third, listener) = (rig.ep()?, rig.ep()?, rig.ep()?, rig.listen()?);
            ok(rig.connect(first.ep, listener.qualifier, b""))?;
            ok(rig.accept(rig.request_event(listener.evd)?.cr, second.ep, b""))?;
            rig.connection(first.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
            let (size, data) = (0, null_mut());
            ok(rig.api.dat_ep_dup_connect(
                third.ep,
                first.ep,
                crate::rig::event_timeout_us(),
                size,
                data,
                DAT_QOS_BEST_EFFORT,
            ))?;
            ensure_equal(
                "the qualifier",
                rig.request_event(listener.evd)?.qualifier,
                listener.qualifier,
            )
        },
    ),
    must(
        "dat_ep_create/accepts",
        "USAGE 2",
        "A connection request at a PSP can be accepted with a new EP.",
        |rig| rig.pair().map(drop),
    ),
    must(
        "dat_ep_create/reserves",
        "USAGE 3",
        "An RSP can be created with a new EP. A connection request that arrives at the RSP has \
         this EP.",
        |rig| {
            let (ep, evd, qualifier, mut rsp) =
                (rig.ep()?, rig.evd(DAT_EVD_CR_FLAG)?, rig.free_qualifier()?, null_mut());
            ok(rig.api.dat_rsp_create(rig.ia, qualifier, ep.ep, evd, &mut rsp))?;
            let caller = rig.ep()?;
            ok(rig.connect(caller.ep, qualifier, b""))?;
            let arrival = rig.request_event(evd)?;
            let mut param = DAT_CR_PARAM::zeroed();
            ok(rig.api.dat_cr_query(arrival.cr, DAT_CR_FIELD_ALL, &mut param))?;
            ensure_equal("local_ep_handle", param.local_ep_handle, ep.ep)?;
            ok(rig.accept(arrival.cr, DAT_HANDLE_NULL, b""))?;
            rig.connection(caller.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
            rig.connection(ep.connect, DAT_CONNECTION_EVENT_ESTABLISHED).map(drop)
        },
    ),
    must(
        "dat_ep_create/flags-differ-on-one-request-evd",
        "USAGE 4",
        "EPs that share a request EVD must have the same request completion flags.",
        |rig| {
            let first = rig.ep()?;
            let evds = Ep { request: first.request, ..rig.evds_of_an_ep()? };
            let request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            answers(
                create(
                    rig,
                    rig.pz()?,
                    evds,
                    &DAT_EP_ATTR { request_completion_flags, ..rig.ep_attr() },
                ),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_ep_create/flags-differ-on-one-recv-evd",
        "USAGE 4",
        "EPs that share a receive EVD must have the same receive completion flags.",
        |rig| {
            let first = rig.ep()?;
            let evds = Ep { recv: first.recv, ..rig.evds_of_an_ep()? };
            let recv_completion_flags = DAT_COMPLETION_SOLICITED_WAIT_FLAG;
            answers(
                create(
                    rig,
                    rig.pz()?,
                    evds,
                    &DAT_EP_ATTR { recv_completion_flags, ..rig.ep_attr() },
                ),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_ep_create/unsignalled-request-and-default-recv",
        "USAGE 4",
        "If an EP has one EVD for requests and receives, and requests are unsignalled, receives \
         must be unsignalled, too.",
        |rig| {
            let evds = rig.evds_of_an_ep()?;
            let evds = Ep { recv: evds.request, ..evds };
            let request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            rig.relaxed(
                create(
                    rig,
                    rig.pz()?,
                    evds,
                    &DAT_EP_ATTR { request_completion_flags, ..rig.ep_attr() },
                ),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_ep_create/solicited-wait-evd-for-recv-only",
        "USAGE 4",
        "An EVD whose receives have the flag for solicited wait cannot have another stream.",
        |rig| {
            let evds = rig.evds_of_an_ep()?;
            let both = rig.evd(DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG)?;
            let evds = Ep { recv: both, connect: both, ..evds };
            let recv_completion_flags = DAT_COMPLETION_SOLICITED_WAIT_FLAG;
            answers(
                create(
                    rig,
                    rig.pz()?,
                    evds,
                    &DAT_EP_ATTR { recv_completion_flags, ..rig.ep_attr() },
                ),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_ep_create/unsignalled-recv-and-default-request",
        "USAGE 4",
        "If an EP has one EVD for requests and receives, and receives are unsignalled, requests \
         must be unsignalled, too.",
        |rig| one_evd(rig, DAT_COMPLETION_UNSIGNALLED_FLAG, DAT_COMPLETION_DEFAULT_FLAG),
    ),
    must(
        "dat_ep_create/threshold-and-default",
        "USAGE 4",
        "If an EP has one EVD for requests and receives, one of these streams cannot have the \
         threshold flag and the other one the default flag.",
        |rig| {
            let (threshold, default) =
                (DAT_COMPLETION_EVD_THRESHOLD_FLAG, DAT_COMPLETION_DEFAULT_FLAG);
            one_evd(rig, threshold, default)?;
            one_evd(rig, default, threshold)
        },
    ),
    must(
        "dat_ep_create/solicited-recv-and-request",
        "USAGE 4",
        "If the receives of an EP have the flag for solicited wait, they cannot share an EVD with \
         requests.",
        |rig| one_evd(rig, DAT_COMPLETION_SOLICITED_WAIT_FLAG, DAT_COMPLETION_DEFAULT_FLAG),
    ),
    must(
        "dat_ep_create/unsignalled-beside-connections",
        "USAGE 4",
        "Unsignalled requests or receives cannot use an EVD that also takes connection events.",
        |rig| beside_connections(rig, DAT_COMPLETION_UNSIGNALLED_FLAG),
    ),
    must(
        "dat_ep_create/default-beside-connections",
        "USAGE 4",
        "Requests or receives with the default flags cannot use an EVD that also takes connection \
         events.",
        |rig| beside_connections(rig, DAT_COMPLETION_DEFAULT_FLAG),
    ),
    must(
        "dat_ep_create/threshold-beside-connections",
        "USAGE 4",
        "Requests and receives with the threshold flag can use an EVD that also takes connection \
         events.",
        |rig| {
            let flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
            let all = rig.evd(DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG)?;
            let evds = Ep { recv: all, request: all, connect: all, ..rig.evds_of_an_ep()? };
            ok(create(
                rig,
                rig.pz()?,
                evds,
                &DAT_EP_ATTR {
                    recv_completion_flags: flags,
                    request_completion_flags: flags,
                    ..rig.ep_attr()
                },
            ))
        },
    ),
    must(
        "dat_ep_create/unsignalled-beside-software-events",
        "USAGE 4",
        "Unsignalled requests cannot use an EVD that also takes software events.",
        |rig| {
            let request = rig.evd(DAT_EVD_DTO_FLAG | DAT_EVD_SOFTWARE_FLAG)?;
            let evds = Ep { request, ..rig.evds_of_an_ep()? };
            let request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            let attr = DAT_EP_ATTR { request_completion_flags, ..rig.ep_attr() };
            rig.relaxed(create(rig, rig.pz()?, evds, &attr), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ep_create/same-flags-share-an-evd",
        "USAGE 4",
        "EPs with the same completion flags can share EVDs.",
        |rig| {
            for (recv_completion_flags, request_completion_flags) in [
                (DAT_COMPLETION_DEFAULT_FLAG, DAT_COMPLETION_DEFAULT_FLAG),
                (DAT_COMPLETION_UNSIGNALLED_FLAG, DAT_COMPLETION_UNSIGNALLED_FLAG),
                (DAT_COMPLETION_EVD_THRESHOLD_FLAG, DAT_COMPLETION_EVD_THRESHOLD_FLAG),
            ] {
                let attr = DAT_EP_ATTR {
                    recv_completion_flags,
                    request_completion_flags,
                    ..rig.ep_attr()
                };
                let evds = rig.ep_with(&attr)?;
                ok(create(rig, rig.pz()?, evds, &attr))?;
            }
            Ok(())
        },
    ),
];

/// Checks that an EP cannot have one EVD for receives and requests with these flags.
#[track_caller]
fn one_evd(rig: &Rig, receives: DAT_COMPLETION_FLAGS, requests: DAT_COMPLETION_FLAGS) -> Outcome {
    let evds = rig.evds_of_an_ep()?;
    let evds = Ep { recv: evds.request, ..evds };
    let attr = DAT_EP_ATTR {
        recv_completion_flags: receives,
        request_completion_flags: requests,
        ..rig.ep_attr()
    };
    answers(create(rig, rig.pz()?, evds, &attr), DAT_INVALID_PARAMETER)
}

/// Checks that neither receives nor requests with these flags can use an EVD that also takes
/// connection events.
#[track_caller]
fn beside_connections(rig: &Rig, flags: DAT_COMPLETION_FLAGS) -> Outcome {
    let attr = DAT_EP_ATTR {
        recv_completion_flags: flags,
        request_completion_flags: flags,
        ..rig.ep_attr()
    };
    let (both, evds) = (rig.evd(DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG)?, rig.evds_of_an_ep()?);
    for evds in [Ep { recv: both, ..evds }, Ep { request: both, ..evds }] {
        answers(create(rig, rig.pz()?, evds, &attr), DAT_INVALID_PARAMETER)?;
    }
    Ok(())
}

/// Calls dat_ep_create with these EVDs.
fn create(rig: &Rig, pz: DAT_PZ_HANDLE, evds: Ep, attr: &DAT_EP_ATTR) -> DAT_RETURN {
    let (Ep { recv, request, connect, .. }, mut ep) = (evds, null_mut());
    rig.api.dat_ep_create(rig.ia, pz, recv, request, connect, attr, &mut ep)
}

#[track_caller]
fn with_pz(rig: &Rig, pz: DAT_PZ_HANDLE) -> Outcome {
    let answer = create(rig, pz, rig.evds_of_an_ep()?, &rig.ep_attr());
    answers_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ)
}

#[track_caller]
fn with_evds(rig: &Rig, evds: Ep, subtype: DAT_RETURN_SUBTYPE) -> Outcome {
    answers_with(create(rig, rig.pz()?, evds, &rig.ep_attr()), DAT_INVALID_HANDLE, subtype)
}

#[track_caller]
fn with_attr(rig: &Rig, attr: DAT_EP_ATTR) -> Outcome {
    answers(create(rig, rig.pz()?, rig.evds_of_an_ep()?, &attr), DAT_INVALID_PARAMETER)
}
