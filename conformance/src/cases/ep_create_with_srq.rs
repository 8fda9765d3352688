//! dat_ep_create_with_srq.

use std::ptr::{from_ref, null, null_mut};

use dat_sys::*;

use super::bad_requests::{refused_or_fails, refused_or_takes_nothing};
use crate::case::{Row, must, should};
use crate::check::{
    Outcome, answers, answers_with, ensure, ensure_equal, failed, ok, supported, unsupported,
};
use crate::rig::{Ep, Rig, event_timeout_us, until};

pub(super) const CASES: &[Row] = &[
    must(
        "dat_ep_create_with_srq/unconnected",
        "DESCRIPTION 2",
        "A new EP is unconnected.",
        |rig| rig.state_is(rig.ep_on(rig.srq(8)?)?.ep, DAT_EP_STATE_UNCONNECTED),
    ),
    must(
        "dat_ep_create_with_srq/parameters",
        "PARAMETERS 1-6",
        "A new EP belongs to the IA, zone, EVDs and SRQ with which it was created.",
        |rig| {
            let srq = rig.srq(8)?;
            let ep = rig.ep_on(srq)?;
            let param = rig.query(ep.ep)?;
            ensure_equal("srq_handle", param.srq_handle, srq)?;
            ensure_equal("pz_handle", param.pz_handle, rig.pz()?)?;
            ensure_equal("recv_evd_handle", param.recv_evd_handle, ep.recv)?;
            ensure_equal("request_evd_handle", param.request_evd_handle, ep.request)?;
            ensure_equal("connect_evd_handle", param.connect_evd_handle, ep.connect)
        },
    ),
    must(
        "dat_ep_create_with_srq/handle-type",
        "PARAMETERS 8",
        "The handle that dat_ep_create_with_srq returns has the type of an EP.",
        |rig| {
            let mut kind = DAT_HANDLE_TYPE::MAX;
            ok(rig.api.dat_get_handle_type(rig.ep_on(rig.srq(8)?)?.ep, &mut kind))?;
            ensure_equal("the type of the handle", kind, DAT_HANDLE_TYPE_EP)
        },
    ),
    must(
        "dat_ep_create_with_srq/null-recv-evd",
        "PARAMETERS 3",
        "If an EP on an SRQ has no receive EVD, its receives complete without events.",
        |rig| {
            let (srq, memory, from) = (rig.srq(8)?, rig.memory(8)?, rig.memory(8)?);
            let passive = Ep { recv: DAT_HANDLE_NULL, ..rig.evds_of_an_ep()? };
            let passive = create(rig, rig.pz()?, passive, srq, Some(&rig.ep_attr()))?;
            let pair = rig.pair_of(rig.ep()?, passive)?;
            from.store(0, b"unheard.");
            ok(rig.recv_srq(srq, &[memory.all()], 1))?;
            ok(rig.send(pair.active.ep, &[from.all()], 2))?;
            rig.completes(pair.active.request, 2, DAT_DTO_SUCCESS)?;
            let back = rig.memory(8)?;
            ok(rig.read(pair.active.ep, &[back.all()], 3, &memory.remote()))?;
            rig.completes(pair.active.request, 3, DAT_DTO_SUCCESS)?;
            ensure_equal("the memory of the receive", back.load(0, 8), b"unheard.".to_vec())
        },
    ),
    must(
        "dat_ep_create_with_srq/null-recv-evd-frees-buffers",
        "PARAMETERS 3",
        "If an EP has no receive EVD, a message that uses a buffer of the SRQ frees the buffer's \
         slot in the SRQ.",
        |rig| {
            let (srq, memory) = (rig.srq(3)?, rig.memory(8)?);
            let passive = Ep { recv: DAT_HANDLE_NULL, ..rig.evds_of_an_ep()? };
            let passive = create(rig, rig.pz()?, passive, srq, Some(&rig.ep_attr()))?;
            let pair = rig.pair_of(rig.ep()?, passive)?;
            for id in 0..4 * rig.query_srq(srq)?.max_recv_dtos as u64 {
                until(
                    || rig.recv_srq(srq, &[memory.all()], id) == DAT_SUCCESS,
                    "there is room for a buffer",
                )?;
                ok(rig.send(pair.active.ep, &[], id))?;
                rig.completes(pair.active.request, id, DAT_DTO_SUCCESS)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_create_with_srq/null-request-evd",
        "PARAMETERS 4",
        "An EP on an SRQ can be created without a request EVD.",
        |rig| {
            let evds = Ep { request: DAT_HANDLE_NULL, ..rig.evds_of_an_ep()? };
            create(rig, rig.pz()?, evds, rig.srq(8)?, Some(&rig.ep_attr())).map(drop)
        },
    ),
    must(
        "dat_ep_create_with_srq/null-connect-evd",
        "PARAMETERS 5",
        "An EP on an SRQ can be created without a connect EVD.",
        |rig| {
            let evds = Ep { connect: DAT_HANDLE_NULL, ..rig.evds_of_an_ep()? };
            create(rig, rig.pz()?, evds, rig.srq(8)?, Some(&rig.ep_attr())).map(drop)
        },
    ),
    must(
        "dat_ep_create_with_srq/null-attributes",
        "PARAMETERS 7",
        "dat_ep_create_with_srq refuses a null pointer for the attributes.",
        |rig| {
            let answer = try_create(rig, rig.pz()?, rig.evds_of_an_ep()?, rig.srq(8)?, None).1;
            answers(answer, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ep_create_with_srq/other-pz-in-segment",
        "DESCRIPTION 3",
        "An EP on an SRQ cannot send from memory of a zone that is not its own.",
        |rig| {
            let pair = rig.pair_of(rig.ep_on(rig.srq(8)?)?, rig.ep()?)?;
            let strange = rig.memory_with(rig.new_pz()?, 64, DAT_MEM_PRIV_ALL_FLAG)?;
            let answer = rig.send(pair.active.ep, &[strange.all()], 1);
            refused_or_fails(rig, answer, DAT_PROTECTION_VIOLATION, pair.active)
        },
    ),
    must(
        "dat_ep_create_with_srq/recv-of-other-pz",
        "DESCRIPTION 3",
        "A receive that is posted to an SRQ must use memory of the SRQ's zone. Memory of another \
         zone is a protection violation.",
        |rig| {
            let srq = rig.srq(8)?;
            let pair = rig.pair_of(rig.ep()?, rig.ep_on(srq)?)?;
            let strange = rig.memory_with(rig.new_pz()?, 64, DAT_MEM_PRIV_ALL_FLAG)?;
            let answer = rig.recv_srq(srq, &[strange.all()], 1);
            refused_or_takes_nothing(rig, answer, DAT_PROTECTION_VIOLATION, pair, &strange)
        },
    ),
    must(
        "dat_ep_create_with_srq/different-pz",
        "DESCRIPTION 3",
        "The zones of an EP and its SRQ can differ if and only if srq_ep_pz_difference_supported \
         is true. Receives use memory of the SRQ's zone.",
        |rig| {
            let other = rig.new_pz()?;
            let (srq, evds) = (rig.srq_in(other, 8)?, rig.evds_of_an_ep()?);
            let (passive, answer) = try_create(rig, rig.pz()?, evds, srq, Some(&rig.ep_attr()));
            if rig.provider.srq_ep_pz_difference_supported == DAT_FALSE {
                return answers(answer, DAT_INVALID_PARAMETER);
            }
            ok(answer)?;
            let pair = rig.pair_of(rig.ep()?, passive)?;
            let (from, to) = (rig.memory(8)?, rig.memory_with(other, 8, DAT_MEM_PRIV_ALL_FLAG)?);
            from.store(0, b"crossing");
            ok(rig.recv_srq(srq, &[to.all()], 1))?;
            ok(rig.send(pair.active.ep, &[from.all()], 2))?;
            rig.completes(passive.recv, 1, DAT_DTO_SUCCESS)?;
            ensure_equal("the message", to.load(0, 8), b"crossing".to_vec())
        },
    ),
    must(
        "dat_ep_create_with_srq/completions-go-to-their-evd",
        "DESCRIPTION 4",
        "A receive completes on the receive EVD of the EP that took it from the SRQ. A request \
         completes on the EP's request EVD.",
        |rig| {
            let (srq, memory) = (rig.srq(8)?, rig.memory(64)?);
            let (one, two) = (
                rig.pair_of(rig.ep()?, rig.ep_on(srq)?)?,
                rig.pair_of(rig.ep()?, rig.ep_on(srq)?)?,
            );
            for id in [1, 2] {
                ok(rig.recv_srq(srq, &[memory.all()], id))?;
            }
            for pair in [one, two] {
                ok(rig.send(pair.active.ep, &[memory.part(0, 8)], 9))?;
                rig.completes(pair.active.request, 9, DAT_DTO_SUCCESS)?;
                let dto = rig.completion(pair.passive.recv)?;
                ensure_equal(
                    "EP and status",
                    (dto.ep, dto.status),
                    (pair.passive.ep, DAT_DTO_SUCCESS),
                )?;
            }
            ok(rig.write(one.passive.ep, &[memory.part(0, 8)], 5, &memory.remote_part(8, 8)))?;
            rig.completes(one.passive.request, 5, DAT_DTO_SUCCESS).map(drop)
        },
    ),
    must(
        "dat_ep_create_with_srq/connection-events",
        "DESCRIPTION 5",
        "The connection events of an EP on an SRQ arrive at the EP's connect EVD.",
        |rig| {
            let pair = rig.pair_of(rig.ep_on(rig.srq(8)?)?, rig.ep()?)?;
            ok(rig.api.dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG))?;
            rig.connection(pair.active.connect, DAT_CONNECTION_EVENT_DISCONNECTED).map(drop)
        },
    ),
    must(
        "dat_ep_create_with_srq/takes-from-srq",
        "DESCRIPTION 6",
        "An EP on an SRQ takes its receive buffers from the SRQ.",
        |rig| {
            let srq = rig.srq(8)?;
            receives(rig, srq, rig.ep_on(srq)?)
        },
    ),
    must(
        "dat_ep_create_with_srq/reset",
        "DESCRIPTION 7",
        "An EP on an SRQ uses the same SRQ after a reset.",
        |rig| {
            let srq = rig.srq(8)?;
            let ep = rig.ep_on(srq)?;
            let pair = rig.pair_of(rig.ep()?, ep)?;
            ok(rig.api.dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG))?;
            rig.connection(ep.connect, DAT_CONNECTION_EVENT_DISCONNECTED)?;
            ok(rig.api.dat_ep_reset(ep.ep))?;
            rig.state_is(ep.ep, DAT_EP_STATE_UNCONNECTED)?;
            ensure_equal("srq_handle", rig.query(ep.ep)?.srq_handle, srq)?;
            receives(rig, srq, ep)
        },
    ),
    must(
        "dat_ep_create_with_srq/srq-cannot-be-replaced",
        "DESCRIPTION 8",
        "dat_ep_modify cannot change or remove the SRQ of an EP.",
        |rig| {
            let (srq, other) = (rig.srq(8)?, rig.srq(8)?);
            let ep = rig.ep_on(srq)?;
            for srq_handle in [other, DAT_HANDLE_NULL] {
                let param = DAT_EP_PARAM { srq_handle, ..DAT_EP_PARAM::zeroed() };
                let answer = rig.api.dat_ep_modify(ep.ep, DAT_EP_FIELD_SRQ_HANDLE, &param);
                rig.answers_or(answer, DAT_INVALID_PARAMETER, &[DAT_INVALID_STATE])?;
            }
            ensure_equal("srq_handle", rig.query(ep.ep)?.srq_handle, srq)
        },
    ),
    must(
        "dat_ep_create_with_srq/free-lets-go",
        "DESCRIPTION 8",
        "As long as an EP exists, its SRQ is in use and cannot be freed.",
        |rig| {
            let srq = rig.srq(8)?;
            let ep = rig.ep_on(srq)?;
            answers(rig.api.dat_srq_free(srq), DAT_INVALID_STATE)?;
            ok(rig.api.dat_ep_free(ep.ep))?;
            ok(rig.api.dat_srq_free(srq))
        },
    ),
    must(
        "dat_ep_create_with_srq/no-post-recv",
        "DESCRIPTION 9",
        "dat_ep_post_recv refuses receives to an EP that has an SRQ.",
        |rig| {
            let (ep, memory) = (rig.ep_on(rig.srq(8)?)?, rig.memory(8)?);
            let answer = rig.recv(ep.ep, &[memory.all()], 1);
            rig.answers_or(answer, DAT_INVALID_STATE, &[DAT_INVALID_PARAMETER, DAT_INVALID_HANDLE])
        },
    ),
    must(
        "dat_ep_create_with_srq/requests-at-least",
        "DESCRIPTION 11",
        "The max_request_dtos and max_request_iov of an EP on an SRQ are at least the requested \
         values.",
        |rig| {
            let requested =
                DAT_EP_ATTR { max_request_dtos: 11, max_request_iov: 1, ..rig.ep_attr() };
            let is = attributes(rig, &requested)?;
            ensure(
                is.max_request_dtos >= 11,
                format_args!("max_request_dtos is {}", is.max_request_dtos),
            )?;
            ensure(
                is.max_request_iov >= 1,
                format_args!("max_request_iov is {}", is.max_request_iov),
            )
        },
    ),
    must(
        "dat_ep_create_with_srq/exact",
        "DESCRIPTION 11",
        "An EP on an SRQ has exactly the requested number of receives, message and RDMA sizes, and \
         numbers of RDMA reads.",
        |rig| {
            let requested = DAT_EP_ATTR {
                max_recv_dtos: 3,
                max_message_size: 1000,
                max_rdma_size: 2000,
                max_rdma_read_in: rig.attr.max_rdma_read_per_ep_in.min(1),
                max_rdma_read_out: rig.attr.max_rdma_read_per_ep_out.min(2),
                ..rig.ep_attr()
            };
            let is = attributes(rig, &requested)?;
            ensure_equal("max_recv_dtos", is.max_recv_dtos, requested.max_recv_dtos)?;
            ensure_equal("max_message_size", is.max_message_size, requested.max_message_size)?;
            ensure_equal("max_rdma_size", is.max_rdma_size, requested.max_rdma_size)?;
            ensure_equal("max_rdma_read_in", is.max_rdma_read_in, requested.max_rdma_read_in)?;
            ensure_equal("max_rdma_read_out", is.max_rdma_read_out, requested.max_rdma_read_out)
        },
    ),
    must(
        "dat_ep_create_with_srq/exact-others",
        "DESCRIPTION 11",
        "An EP on an SRQ has exactly the requested flags, service type, watermark and IOVs of \
         RDMA. Its max_recv_iov is ignored.",
        |rig| {
            let requested = DAT_EP_ATTR { max_recv_iov: 1_000_000, ..rig.ep_attr() };
            let is = attributes(rig, &requested)?;
            ensure_equal("service_type", is.service_type, requested.service_type)?;
            ensure_equal("qos", is.qos, requested.qos)?;
            ensure_equal(
                "recv_completion_flags",
                is.recv_completion_flags,
                requested.recv_completion_flags,
            )?;
            ensure_equal(
                "request_completion_flags",
                is.request_completion_flags,
                requested.request_completion_flags,
            )?;
            ensure_equal("srq_soft_hw", is.srq_soft_hw, requested.srq_soft_hw)?;
            ensure_equal("max_rdma_read_iov", is.max_rdma_read_iov, requested.max_rdma_read_iov)?;
            ensure_equal("max_rdma_write_iov", is.max_rdma_write_iov, requested.max_rdma_write_iov)
        },
    ),
    must(
        "dat_ep_create_with_srq/cannot-satisfy",
        "DESCRIPTION 11",
        "dat_ep_create_with_srq fails if the provider cannot satisfy any one of the requested \
         attributes.",
        |rig| {
            let limits = &rig.attr;
            let above = |limit: DAT_COUNT| limit.saturating_add(1);
            for attr in [
                DAT_EP_ATTR { max_request_dtos: above(limits.max_dto_per_ep), ..rig.ep_attr() },
                DAT_EP_ATTR {
                    max_request_iov: above(limits.max_iov_segments_per_dto),
                    ..rig.ep_attr()
                },
                DAT_EP_ATTR {
                    max_rdma_read_in: above(limits.max_rdma_read_per_ep_in),
                    ..rig.ep_attr()
                },
                DAT_EP_ATTR {
                    max_rdma_read_out: above(limits.max_rdma_read_per_ep_out),
                    ..rig.ep_attr()
                },
            ] {
                let answer =
                    try_create(rig, rig.pz()?, rig.evds_of_an_ep()?, rig.srq(8)?, Some(&attr)).1;
                rig.answers_or(answer, DAT_INVALID_PARAMETER, &[DAT_INSUFFICIENT_RESOURCES])?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_create_with_srq/read-iov-too-large",
        "RETURN VALUES 4",
        "dat_ep_create_with_srq refuses an RDMA read IOV beyond the adapter's limit.",
        |rig| {
            let max_rdma_read_iov = rig.attr.max_iov_segments_per_rdma_read.saturating_add(1);
            let attr = DAT_EP_ATTR { max_rdma_read_iov, ..rig.ep_attr() };
            let answer =
                try_create(rig, rig.pz()?, rig.evds_of_an_ep()?, rig.srq(8)?, Some(&attr)).1;
            answers(answer, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ep_create_with_srq/null-srq",
        "RETURN VALUES 3",
        "A null SRQ handle is refused.",
        |rig| with_srq(rig, DAT_HANDLE_NULL),
    ),
    must(
        "dat_ep_create_with_srq/freed-srq",
        "RETURN VALUES 3",
        "The handle of a freed SRQ is refused.",
        |rig| {
            let srq = rig.srq(8)?;
            ok(rig.api.dat_srq_free(srq))?;
            with_srq(rig, srq)
        },
    ),
    must(
        "dat_ep_create_with_srq/pz-as-srq",
        "RETURN VALUES 3",
        "dat_ep_create_with_srq refuses the handle of an object of another type in place of an \
         SRQ.",
        |rig| with_srq(rig, rig.pz()?),
    ),
    must(
        "dat_ep_create_with_srq/srq-of-other-ia",
        "RETURN VALUES 3",
        "dat_ep_create_with_srq refuses an SRQ that belongs to another IA.",
        |rig| {
            let ia = rig.other_ia()?;
            let (pz, mut srq) = (rig.pz_of(ia)?, null_mut());
            let mut attr = DAT_SRQ_ATTR {
                max_recv_dtos: 8,
                max_recv_iov: 1,
                low_watermark: DAT_SRQ_LW_DEFAULT,
            };
            supported(rig.api.dat_srq_create(ia, pz, &mut attr, &mut srq))?;
            with_srq(rig, srq)
        },
    ),
    must(
        "dat_ep_create_with_srq/null-ia",
        "RETURN VALUES 3",
        "A null IA handle is refused.",
        |rig| {
            let (srq, attr, mut ep) = (rig.srq(8)?, rig.ep_attr(), null_mut());
            let Ep { recv, request, connect, .. } = rig.evds_of_an_ep()?;
            let answer = rig.api.dat_ep_create_with_srq(
                DAT_HANDLE_NULL,
                rig.pz()?,
                recv,
                request,
                connect,
                srq,
                &attr,
                &mut ep,
            );
            answers(answer, DAT_INVALID_HANDLE)
        },
    ),
    must(
        "dat_ep_create_with_srq/freed-pz",
        "RETURN VALUES 3",
        "The handle of a freed zone is refused.",
        |rig| {
            let (pz, srq, evds) = (rig.new_pz()?, rig.srq(8)?, rig.evds_of_an_ep()?);
            ok(rig.api.dat_pz_free(pz))?;
            let answer = try_create(rig, pz, evds, srq, Some(&rig.ep_attr())).1;
            answers_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ)
        },
    ),
    must(
        "dat_ep_create_with_srq/freed-recv-evd",
        "RETURN VALUES 3",
        "dat_ep_create_with_srq refuses the handle of a freed EVD as the receive EVD.",
        |rig| {
            let (srq, evds) = (rig.srq(8)?, rig.evds_of_an_ep()?);
            ok(rig.api.dat_evd_free(evds.recv))?;
            let answer = try_create(rig, rig.pz()?, evds, srq, Some(&rig.ep_attr())).1;
            answers_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_RECV)
        },
    ),
    must(
        "dat_ep_create_with_srq/null-out",
        "RETURN VALUES 4",
        "If the pointer for the new handle is null, dat_ep_create_with_srq fails and creates no \
         EP.",
        |rig| {
            let (srq, attr, evds) = (rig.srq(8)?, rig.ep_attr(), rig.evds_of_an_ep()?);
            let Ep { recv, request, connect, .. } = evds;
            let answer = rig.api.dat_ep_create_with_srq(
                rig.ia,
                rig.pz()?,
                recv,
                request,
                connect,
                srq,
                &attr,
                null_mut(),
            );
            answers(answer, DAT_INVALID_PARAMETER)?;
            ok(rig.api.dat_srq_free(srq))
        },
    ),
    must(
        "dat_ep_create_with_srq/connects",
        "USAGE 1",
        "dat_ep_connect and dat_ep_dup_connect can connect a new EP on an SRQ.",
        |rig| {
            let srq = rig.srq(8)?;
            let (first, second, third, listener) =
                (rig.ep_on(srq)?, rig.ep()?, rig.ep_on(srq)?, rig.listen()?);
            ok(rig.connect(first.ep, listener.qualifier, b""))?;
            ok(rig.accept(rig.request_event(listener.evd)?.cr, second.ep, b""))?;
            rig.connection(first.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
            ok(rig.api.dat_ep_dup_connect(
                third.ep,
                first.ep,
                event_timeout_us(),
                0,
                null_mut(),
                DAT_QOS_BEST_EFFORT,
            ))?;
            rig.request_event(listener.evd).map(drop)
        },
    ),
    must(
        "dat_ep_create_with_srq/accepts",
        "USAGE 2",
        "A connection request at a PSP can be accepted with a new EP on an SRQ.",
        |rig| rig.pair_of(rig.ep()?, rig.ep_on(rig.srq(8)?)?).map(drop),
    ),
    must(
        "dat_ep_create_with_srq/reserves",
        "USAGE 3",
        "An RSP can be created with a new EP on an SRQ.",
        |rig| {
            let ep = rig.ep_on(rig.srq(8)?)?;
            let (evd, qualifier, mut rsp) =
                (rig.evd(DAT_EVD_CR_FLAG)?, rig.free_qualifier()?, null_mut());
            ok(rig.api.dat_rsp_create(rig.ia, qualifier, ep.ep, evd, &mut rsp))?;
            rig.state_is(ep.ep, DAT_EP_STATE_RESERVED)
        },
    ),
    must(
        "dat_ep_create_with_srq/flags-differ-on-one-request-evd",
        "USAGE 4",
        "EPs that share a request EVD must have the same request completion flags.",
        |rig| {
            let srq = rig.srq(8)?;
            let evds = Ep { request: rig.ep_on(srq)?.request, ..rig.evds_of_an_ep()? };
            let request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            let attr = DAT_EP_ATTR { request_completion_flags, ..rig.ep_attr() };
            answers(try_create(rig, rig.pz()?, evds, srq, Some(&attr)).1, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ep_create_with_srq/flags-differ-on-one-recv-evd",
        "USAGE 4",
        "EPs that share a receive EVD must have the same receive completion flags.",
        |rig| {
            let srq = rig.srq(8)?;
            let evds = Ep { recv: rig.ep_on(srq)?.recv, ..rig.evds_of_an_ep()? };
            let recv_completion_flags = DAT_COMPLETION_SOLICITED_WAIT_FLAG;
            let attr = DAT_EP_ATTR { recv_completion_flags, ..rig.ep_attr() };
            answers(try_create(rig, rig.pz()?, evds, srq, Some(&attr)).1, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ep_create_with_srq/signalled-receives",
        "USAGE 4",
        "The completion of a receive from an SRQ is signalled: it wakes a thread that waits on the \
         EVD.",
        |rig| {
            let (srq, memory) = (rig.srq(8)?, rig.memory(8)?);
            let pair = rig.pair_of(rig.ep()?, rig.ep_on(srq)?)?;
            ok(rig.recv_srq(srq, &[memory.all()], 1))?;
            let woken = rig.while_waiting(pair.passive.recv, || {
                ok(rig.send(pair.active.ep, &[memory.part(0, 4)], 2))
            })?;
            ok(woken)
        },
    ),
    must(
        "dat_ep_create_with_srq/solicited-wait",
        "USAGE 4",
        "An EVD whose receives have the flag for solicited wait cannot have another stream.",
        |rig| {
            let both = rig.evd(DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG)?;
            let evds = Ep { recv: both, connect: both, ..rig.evds_of_an_ep()? };
            let recv_completion_flags = DAT_COMPLETION_SOLICITED_WAIT_FLAG;
            let attr = DAT_EP_ATTR { recv_completion_flags, ..rig.ep_attr() };
            answers(
                try_create(rig, rig.pz()?, evds, rig.srq(8)?, Some(&attr)).1,
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_ep_create_with_srq/threshold",
        "USAGE 4",
        "If a DTO stream of an EVD has the threshold flag, all its DTO streams must have it. Other \
         streams can share the EVD.",
        |rig| {
            let srq = rig.srq(8)?;
            let threshold = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
            let attr = DAT_EP_ATTR {
                recv_completion_flags: threshold,
                request_completion_flags: threshold,
                ..rig.ep_attr()
            };
            let both = rig.evd(DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG)?;
            let evds = Ep { recv: both, request: both, connect: both, ..rig.evds_of_an_ep()? };
            create(rig, rig.pz()?, evds, srq, Some(&attr))?;
            let default = rig.ep_attr();
            answers(try_create(rig, rig.pz()?, evds, srq, Some(&default)).1, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ep_create_with_srq/eps-of-different-pz",
        "USAGE 6",
        "EPs on one SRQ can have different zones if srq_ep_pz_difference_supported is true.",
        |rig| {
            if rig.provider.srq_ep_pz_difference_supported == DAT_FALSE {
                return unsupported(
                    "the provider attribute srq_ep_pz_difference_supported is false",
                );
            }
            let srq = rig.srq(8)?;
            let (one, two) = (rig.new_pz()?, rig.new_pz()?);
            rig.ep_on_with(srq, one, &rig.ep_attr())?;
            rig.ep_on_with(srq, two, &rig.ep_attr()).map(drop)
        },
    ),
    must(
        "dat_ep_create_with_srq/rdma-stays-in-its-zone",
        "USAGE 7",
        "If the zones of an EP and its SRQ differ, the EP's peer can write to memory of the EP's \
         zone, but not to memory of the SRQ's zone.",
        |rig| {
            if rig.provider.srq_ep_pz_difference_supported == DAT_FALSE {
                return unsupported(
                    "the provider attribute srq_ep_pz_difference_supported is false",
                );
            }
            let (srq, own) = (rig.srq(8)?, rig.new_pz()?);
            let pair = rig.pair_of(rig.ep()?, rig.ep_on_with(srq, own, &rig.ep_attr())?)?;
            let (from, of_srq) = (rig.memory(8)?, rig.memory(8)?);
            let of_ep = rig.memory_with(own, 8, DAT_MEM_PRIV_ALL_FLAG)?;
            ok(rig.write(pair.active.ep, &[from.all()], 1, &of_ep.remote()))?;
            rig.completes(pair.active.request, 1, DAT_DTO_SUCCESS)?;
            from.store(0, &[0xff; 8]);
            ok(rig.write(pair.active.ep, &[from.all()], 2, &of_srq.remote()))?;
            rig.connection(pair.passive.connect, DAT_CONNECTION_EVENT_BROKEN)?;
            ensure_equal("the memory", of_srq.load(0, 8), vec![0; 8])
        },
    ),
    should(
        "dat_ep_create_with_srq/ready-to-connect",
        "USAGE 8",
        "A new EP can be connected even if other EPs have just been disconnected and freed.",
        |rig| {
            let srq = rig.srq(8)?;
            for _ in 0..8 {
                let pair = rig.pair_of(rig.ep_on(srq)?, rig.ep_on(srq)?)?;
                ok(rig.api.dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG))?;
                rig.connection(pair.passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED)?;
                ok(rig.api.dat_ep_free(pair.active.ep))?;
                ok(rig.api.dat_ep_free(pair.passive.ep))?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_create_with_srq/attributes-survive-connecting",
        "USAGE 11",
        "A connection does not change the attributes that the consumer has specified for the EP.",
        |rig| {
            let srq = rig.srq(8)?;
            let requested = DAT_EP_ATTR { max_recv_dtos: 5, ..rig.ep_attr() };
            let pair = rig.pair_of(
                rig.ep_on_with(srq, rig.pz()?, &requested)?,
                rig.ep_on_with(srq, rig.pz()?, &requested)?,
            )?;
            for end in [pair.active, pair.passive] {
                let is = rig.query(end.ep)?.ep_attr;
                let fields = |a: &DAT_EP_ATTR| {
                    [
                        a.max_recv_dtos,
                        a.max_rdma_read_in,
                        a.max_rdma_read_out,
                        a.max_rdma_read_iov,
                        a.max_rdma_write_iov,
                    ]
                };
                ensure_equal("the counts", fields(&is), fields(&requested))?;
                let sizes = |a: &DAT_EP_ATTR| (a.max_message_size, a.max_rdma_size);
                ensure_equal("the sizes", sizes(&is), sizes(&requested))?;
            }
            Ok(())
        },
    ),
    should(
        "dat_ep_create_with_srq/reads-default-to-none",
        "USAGE 11",
        "If an EP allows no RDMA reads, a connection attempt does not fail because of that.",
        |rig| {
            let none = DAT_EP_ATTR { max_rdma_read_in: 0, max_rdma_read_out: 0, ..rig.ep_attr() };
            let srq = rig.srq(8)?;
            let passive = rig.ep_on_with(srq, rig.pz()?, &none)?;
            rig.pair_of(rig.ep_on(srq)?, passive).map(drop)
        },
    ),
    must(
        "dat_ep_create_with_srq/reads-have-resources",
        "USAGE 12",
        "An EP has resources for as many RDMA reads, each with as many segments, as its attributes \
         say.",
        |rig| {
            let attr = rig.ep_attr();
            if attr.max_rdma_read_out == 0 {
                return unsupported("the adapter does not support RDMA reads");
            }
            let pair = rig.pair_of(rig.ep_on_with(rig.srq(8)?, rig.pz()?, &attr)?, rig.ep()?)?;
            let (near, far) = (rig.memory(4096)?, rig.memory(4096)?);
            far.store(0, &[9; 4096]);
            let pieces = attr.max_rdma_read_iov.max(1) as u32;
            let iov: Vec<_> =
                (0..pieces).map(|n| near.part(n * (4096 / pieces), 4096 / pieces)).collect();
            let length = pieces * (4096 / pieces);
            for id in 0..attr.max_rdma_read_out as u64 {
                ok(rig.read(pair.active.ep, &iov, id, &far.remote_part(0, length)))?;
            }
            for id in 0..attr.max_rdma_read_out as u64 {
                rig.completes(pair.active.request, id, DAT_DTO_SUCCESS)?;
            }
            ensure_equal("what was read", near.load(0, length) == vec![9; length as usize], true)
        },
    ),
];

/// Calls dat_ep_create_with_srq with these EVDs.
fn try_create(
    rig: &Rig,
    pz: DAT_PZ_HANDLE,
    mut ep: Ep,
    srq: DAT_SRQ_HANDLE,
    attr: Option<&DAT_EP_ATTR>,
) -> (Ep, DAT_RETURN) {
    let Ep { recv, request, connect, .. } = ep;
    let attr = attr.map_or(null(), from_ref);
    let answer =
        rig.api.dat_ep_create_with_srq(rig.ia, pz, recv, request, connect, srq, attr, &mut ep.ep);
    (ep, answer)
}

#[track_caller]
fn create(
    rig: &Rig,
    pz: DAT_PZ_HANDLE,
    evds: Ep,
    srq: DAT_SRQ_HANDLE,
    attr: Option<&DAT_EP_ATTR>,
) -> Outcome<Ep> {
    let (ep, answer) = try_create(rig, pz, evds, srq, attr);
    ok(answer)?;
    Ok(ep)
}

/// Creates an EP with the requested attributes. Returns the attributes that it has.
#[track_caller]
fn attributes(rig: &Rig, requested: &DAT_EP_ATTR) -> Outcome<DAT_EP_ATTR> {
    let ep = create(rig, rig.pz()?, rig.evds_of_an_ep()?, rig.srq(8)?, Some(requested))?;
    Ok(rig.query(ep.ep)?.ep_attr)
}

#[track_caller]
fn with_srq(rig: &Rig, srq: DAT_SRQ_HANDLE) -> Outcome {
    if rig.provider.srq_supported == DAT_FALSE {
        return unsupported("the provider attribute srq_supported is false");
    }
    let answer = try_create(rig, rig.pz()?, rig.evds_of_an_ep()?, srq, Some(&rig.ep_attr())).1;
    answers_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_SRQ)
}

/// Connects the EP, and sends it a message, which must arrive in a buffer of the SRQ.
#[track_caller]
fn receives(rig: &Rig, srq: DAT_SRQ_HANDLE, ep: Ep) -> Outcome {
    let (from, to) = (rig.memory(8)?, rig.memory(8)?);
    from.store(0, b"by a SRQ");
    ok(rig.recv_srq(srq, &[to.all()], 77))?;
    let pair = rig.pair_of(rig.ep()?, ep)?;
    ok(rig.send(pair.active.ep, &[from.all()], 1))?;
    let dto = rig.completes(ep.recv, 77, DAT_DTO_SUCCESS)?;
    ensure_equal("EP and bytes", (dto.ep, dto.length), (ep.ep, 8))?;
    match to.load(0, 8) == b"by a SRQ" {
        true => Ok(()),
        false => Err(failed("the message is not in the buffer")),
    }
}
