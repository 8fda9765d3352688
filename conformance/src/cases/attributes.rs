//! Cases about attributes of EPs, SRQs, adapters and providers that no other file covers.

use std::ptr::null_mut;

use dat_sys::*;

use crate::case::{Row, must};
use crate::check::{Outcome, answers, ensure, ensure_equal, ok};
use crate::rig::{Pair, Region, Rig};

pub(super) const CASES: &[Row] = &[
    // ---- Endpoints ----
    must(
        "dat_ep_create/max-message-size",
        "PARAMETERS 6; dat_ep_post_send, RETURN VALUES: length error",
        "A message longer than the EP's max_message_size is a length error. A message of exactly \
         this length is sent.",
        |rig| {
            let (pair, from, to) =
                start(rig, &DAT_EP_ATTR { max_message_size: 8, ..rig.ep_attr() })?;
            ok(rig.recv(pair.passive.ep, &[to.all()], 1))?;
            ok(rig.send(pair.active.ep, &[from.part(0, 8)], 2))?;
            rig.completes(pair.passive.recv, 1, DAT_DTO_SUCCESS)?;
            rig.completes(pair.active.request, 2, DAT_DTO_SUCCESS)?;
            ok(rig.recv(pair.passive.ep, &[to.all()], 3))?;
            let answer = rig.send(pair.active.ep, &[from.part(0, 4), from.part(4, 5)], 4);
            rig.relaxed(answer, DAT_LENGTH_ERROR)?;
            if answer == DAT_SUCCESS {
                ensure_equal(
                    "the bytes",
                    rig.completes(pair.passive.recv, 3, DAT_DTO_SUCCESS)?.length,
                    9,
                )?;
                rig.completes(pair.active.request, 4, DAT_DTO_SUCCESS)?;
            }
            // max_message_size does not limit RDMA operations.
            let (ep, request) = (pair.active.ep, pair.active.request);
            ok(rig.write(ep, &[from.all()], 5, &to.remote()))?;
            rig.completes(request, 5, DAT_DTO_SUCCESS).map(drop)
        },
    ),
    must(
        "dat_ep_create/max-rdma-size",
        "PARAMETERS 6; dat_ep_post_rdma_write, RETURN VALUES: length error",
        "An RDMA write or read longer than the EP's max_rdma_size is a length error. An operation \
         of exactly this length is carried out.",
        |rig| {
            let (pair, from, to) = start(rig, &DAT_EP_ATTR { max_rdma_size: 8, ..rig.ep_attr() })?;
            let (ep, request) = (pair.active.ep, pair.active.request);
            ok(rig.write(ep, &[from.part(0, 8)], 1, &to.remote_part(0, 8)))?;
            rig.completes(request, 1, DAT_DTO_SUCCESS)?;
            ok(rig.read(ep, &[from.part(0, 8)], 2, &to.remote_part(0, 8)))?;
            rig.completes(request, 2, DAT_DTO_SUCCESS)?;
            let write = rig.write(ep, &[from.part(0, 9)], 3, &to.remote_part(0, 9));
            rig.relaxed(write, DAT_LENGTH_ERROR)?;
            let read = rig.read(ep, &[from.part(0, 9)], 4, &to.remote_part(0, 9));
            rig.relaxed(read, DAT_LENGTH_ERROR)?;
            for (answer, id) in [(write, 3), (read, 4)] {
                if answer == DAT_SUCCESS {
                    rig.completes(request, id, DAT_DTO_SUCCESS)?;
                }
            }
            // max_rdma_size does not limit messages.
            ok(rig.recv(pair.passive.ep, &[to.all()], 5))?;
            ok(rig.send(ep, &[from.all()], 6))?;
            ensure_equal(
                "the bytes",
                rig.completes(pair.passive.recv, 5, DAT_DTO_SUCCESS)?.length,
                from.length,
            )
        },
    ),
    must(
        "dat_ep_create/request-flags",
        "RETURN VALUES 4",
        "Request completion flags that a request stream cannot have are invalid.",
        |rig| {
            for request_completion_flags in [
                DAT_COMPLETION_SUPPRESS_FLAG,
                DAT_COMPLETION_BARRIER_FENCE_FLAG,
                DAT_COMPLETION_SOLICITED_WAIT_FLAG,
            ] {
                let attr = DAT_EP_ATTR { request_completion_flags, ..rig.ep_attr() };
                answers(try_create(rig, &attr)?, DAT_INVALID_PARAMETER)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_create/read-and-write-iov",
        "RETURN VALUES 4",
        "The IOVs of an EP's RDMA reads and writes can be as long as the adapter's limits, and no \
         longer.",
        |rig| {
            let max_rdma_read_iov = rig.attr.max_iov_segments_per_rdma_read;
            let max_rdma_write_iov = rig.attr.max_iov_segments_per_rdma_write;
            let attr = DAT_EP_ATTR { max_rdma_read_iov, max_rdma_write_iov, ..rig.ep_attr() };
            let is = rig.query(rig.ep_with(&attr)?.ep)?.ep_attr;
            let iovs = (is.max_rdma_read_iov, is.max_rdma_write_iov);
            ensure_equal(
                "the numbers of segments of the EP's reads and writes",
                iovs,
                (max_rdma_read_iov, max_rdma_write_iov),
            )?;
            for attr in [
                DAT_EP_ATTR { max_rdma_read_iov: max_rdma_read_iov.saturating_add(1), ..attr },
                DAT_EP_ATTR { max_rdma_write_iov: max_rdma_write_iov.saturating_add(1), ..attr },
                DAT_EP_ATTR { max_rdma_read_iov: -1, ..attr },
                DAT_EP_ATTR { max_rdma_write_iov: -1, ..attr },
            ] {
                answers(try_create(rig, &attr)?, DAT_INVALID_PARAMETER)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_create/specific-attributes",
        "RETURN VALUES 4",
        "An EP attribute with a name that the provider does not know is invalid. A negative number \
         of named attributes is invalid, too.",
        |rig| {
            let (name, value) = (c"no-such-attribute".as_ptr(), c"1".as_ptr());
            let mut named = DAT_NAMED_ATTR { name, value };
            for attr in [
                DAT_EP_ATTR {
                    ep_transport_specific_count: 1,
                    ep_transport_specific: &mut named,
                    ..rig.ep_attr()
                },
                DAT_EP_ATTR {
                    ep_provider_specific_count: 1,
                    ep_provider_specific: &mut named,
                    ..rig.ep_attr()
                },
            ] {
                answers(try_create(rig, &attr)?, DAT_INVALID_PARAMETER)?;
            }
            for attr in [
                DAT_EP_ATTR { ep_transport_specific_count: -1, ..rig.ep_attr() },
                DAT_EP_ATTR { ep_provider_specific_count: -1, ..rig.ep_attr() },
            ] {
                answers(try_create(rig, &attr)?, DAT_INVALID_PARAMETER)?;
            }
            let is = rig.query(rig.ep()?.ep)?.ep_attr;
            let counts = (is.ep_transport_specific_count, is.ep_provider_specific_count);
            ensure_equal("the numbers of named attributes", counts, (0, 0))
        },
    ),
    must(
        "dat_ep_create_with_srq/soft-watermark",
        "DESCRIPTION 10; dat_ep_set_watermark, DESCRIPTION",
        "The EP gets the soft high watermark in the attributes: if it uses more buffers of the \
         SRQ, an event reports that. A negative watermark is invalid.",
        |rig| soft_watermark(rig, 1, |_| Ok(true)),
    ),
    must(
        "dat_ep_create_with_srq/soft-watermark-of-zero",
        "DESCRIPTION 10; dat_ep_set_watermark, DESCRIPTION",
        "The EP gets a soft high watermark of 0 from the attributes: an event reports the first \
         buffer of the SRQ that the EP uses.",
        |rig| soft_watermark(rig, 0, |rig| rig.is_strict()),
    ),
    must(
        "dat_ep_post_rdma_read/too-many-segments",
        "RETURN VALUES: invalid parameter",
        "A read with more segments than the EP's max_rdma_read_iov is invalid.",
        |rig| {
            let (pair, near, far) =
                start(rig, &DAT_EP_ATTR { max_rdma_read_iov: 1, ..rig.ep_attr() })?;
            let iov = [near.part(0, 4), near.part(4, 4)];
            let answer = rig.read(pair.active.ep, &iov, 1, &far.remote_part(0, 8));
            answers(answer, DAT_INVALID_PARAMETER)?;
            ok(rig.read(pair.active.ep, &iov[..1], 2, &far.remote_part(0, 4)))?;
            rig.completes(pair.active.request, 2, DAT_DTO_SUCCESS).map(drop)
        },
    ),
    // ---- Shared receive queues ----
    must(
        "dat_srq_create/impossible-attributes",
        "RETURN VALUES",
        "Invalid attributes of an SRQ are: more segments than the adapter allows, a low watermark \
         above the length of the queue, and negative values.",
        |rig| {
            rig.srq(4)?;
            let good = DAT_SRQ_ATTR {
                max_recv_dtos: 4,
                max_recv_iov: 1,
                low_watermark: DAT_SRQ_LW_DEFAULT,
            };
            let max_recv_iov = rig.attr.max_iov_segments_per_dto.saturating_add(1);
            for mut attr in [
                DAT_SRQ_ATTR { max_recv_iov, ..good },
                DAT_SRQ_ATTR { max_recv_iov: -1, ..good },
                DAT_SRQ_ATTR { low_watermark: 5, ..good },
                DAT_SRQ_ATTR { low_watermark: -1, ..good },
            ] {
                let mut srq = null_mut();
                let answer = rig.api.dat_srq_create(rig.ia, rig.pz()?, &mut attr, &mut srq);
                answers(answer, DAT_INVALID_PARAMETER)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_srq_create/low-watermark",
        "DESCRIPTION",
        "An SRQ gets the low watermark in its attributes. Because the new queue is empty, an event \
         reports at once that it is below the watermark.",
        |rig| {
            let (mut attr, mut srq) =
                (DAT_SRQ_ATTR { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: 2 }, null_mut());
            if rig.provider.srq_supported == DAT_FALSE {
                return crate::check::unsupported("the provider attribute srq_supported is false");
            }
            ok(rig.api.dat_srq_create(rig.ia, rig.pz()?, &mut attr, &mut srq))?;
            ensure_equal("low_watermark", rig.query_srq(srq)?.low_watermark, 2)?;
            ensure_equal("the object of the event", rig.async_event()?.0, srq)
        },
    ),
    // ---- Event dispatchers ----
    must(
        "dat_evd_create/impossible-parameters",
        "RETURN VALUES",
        "dat_evd_create refuses flags that name no stream, and a negative queue length.",
        |rig| {
            let mut evd = null_mut();
            let mut create = |qlen, flags| {
                rig.api.dat_evd_create(rig.ia, qlen, DAT_HANDLE_NULL, flags, &mut evd)
            };
            answers(create(8, DAT_EVD_DTO_FLAG | 0x4000), DAT_INVALID_PARAMETER)?;
            answers(create(-1, DAT_EVD_DTO_FLAG), DAT_INVALID_PARAMETER)
        },
    ),
    // ---- Adapters and providers ----
    must(
        "dat_ia_query/srq-limits",
        "Interface Adapter Attributes: SRQs; DAPL Provider Attributes: SRQs",
        "The limits of SRQs are positive if and only if SRQs are supported. An SRQ can be as long \
         as the limit.",
        |rig| {
            let there_are = rig.provider.srq_supported != DAT_FALSE;
            for (what, limit) in [
                ("max_srqs", rig.attr.max_srqs),
                ("max_ep_per_srq", rig.attr.max_ep_per_srq),
                ("max_recv_per_srq", rig.attr.max_recv_per_srq),
            ] {
                let otherwise = format_args!("srq_supported is {there_are}, and {what} is {limit}");
                ensure((limit > 0) == there_are, otherwise)?;
            }
            if there_are { rig.srq(rig.attr.max_recv_per_srq).map(drop) } else { Ok(()) }
        },
    ),
    must(
        "dat_ia_query/iov-and-read-limits",
        "Interface Adapter Attributes: RDMA reads",
        "An adapter allows at least as many RDMA reads as one of its EPs. The attributes that \
         guarantee numbers of reads are booleans.",
        |rig| {
            let attr = &rig.attr;
            ensure(attr.max_iov_segments_per_rdma_read > 0, "max_iov_segments_per_rdma_read is 0")?;
            ensure(
                attr.max_iov_segments_per_rdma_write > 0,
                "max_iov_segments_per_rdma_write is 0",
            )?;
            ensure(
                attr.max_rdma_read_in >= attr.max_rdma_read_per_ep_in,
                "max_rdma_read_in is less than max_rdma_read_per_ep_in",
            )?;
            ensure(
                attr.max_rdma_read_out >= attr.max_rdma_read_per_ep_out,
                "max_rdma_read_out is less than max_rdma_read_per_ep_out",
            )?;
            is_truth(
                "max_rdma_read_per_ep_in_guaranteed",
                attr.max_rdma_read_per_ep_in_guaranteed,
            )?;
            is_truth(
                "max_rdma_read_per_ep_out_guaranteed",
                attr.max_rdma_read_per_ep_out_guaranteed,
            )
        },
    ),
    must(
        "dat_ia_query/provider-truth-values",
        "DAPL Provider Attributes",
        "Each boolean attribute of the provider is either DAT_TRUE or DAT_FALSE.",
        |rig| {
            let provider = &rig.provider;
            for (what, value) in [
                ("is_thread_safe", provider.is_thread_safe),
                ("supports_multipath", provider.supports_multipath),
                ("srq_supported", provider.srq_supported),
                ("srq_ep_pz_difference_supported", provider.srq_ep_pz_difference_supported),
                ("lmr_sync_req", provider.lmr_sync_req),
                ("dto_async_return_guaranteed", provider.dto_async_return_guaranteed),
                ("rdma_write_for_rdma_read_req", provider.rdma_write_for_rdma_read_req),
            ] {
                is_truth(what, value)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ia_query/truth-values-of-2-0",
        "2.0 headers: DAT_IA_ATTR, DAT_PROVIDER_ATTR",
        "Each boolean attribute that only uDAPL 2.0 has is either DAT_TRUE or DAT_FALSE.",
        |rig| {
            is_truth("zb_supported", rig.attr.zb_supported)?;
            let (provider, exposure) = (&rig.provider, "rdma_read_lmr_rmr_context_exposure");
            is_truth(exposure, provider.rdma_read_lmr_rmr_context_exposure)?;
            is_truth("is_signal_safe", provider.is_signal_safe)?;
            is_truth("ha_supported", provider.ha_supported)
        },
    ),
    must(
        "dat_ia_query/watermarks",
        "DAPL Provider Attributes: SRQ watermarks",
        "The watermarks of an EP can be set if and only if srq_watermarks_supported lists them.",
        |rig| {
            // The headers have no names for these bits. They are the low watermark of an SRQ, and
            // the soft and the hard watermark of an EP.
            let known = 0x111;
            let named = rig.provider.srq_watermarks_supported;
            ensure(named & !known == 0, format_args!("srq_watermarks_supported is {named:#x}"))?;
            let ep = rig.ep()?.ep;
            for (bit, soft, hard) in
                [(0x10, 5, DAT_WATERMARK_INFINITE), (0x100, DAT_WATERMARK_INFINITE, 5)]
            {
                let answer = rig.api.dat_ep_set_watermark(ep, soft, hard);
                let there = named & bit != 0;
                answers(answer, if there { DAT_SUCCESS } else { DAT_MODEL_NOT_SUPPORTED })?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ia_query/srq-info",
        "DAPL Provider Attributes: SRQ info",
        "dat_srq_query returns a count if and only if srq_info_supported lists the count.",
        |rig| {
            let (named, srq) = (rig.provider.srq_info_supported, rig.srq(4)?);
            let param = rig.query_srq(srq)?;
            for (bit, what, count) in [
                (0x1, "available_dto_count", param.available_dto_count),
                (0x10, "outstanding_dto_count", param.outstanding_dto_count),
            ] {
                let is_reported = count != DAT_VALUE_UNKNOWN;
                ensure_equal(what, is_reported, named & bit != 0)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ia_query/reads-and-remote-write",
        "DAPL Provider Attributes: RDMA write for RDMA read",
        "The local memory of an RDMA read needs the remote write privilege if and only if \
         rdma_write_for_rdma_read_req is true.",
        |rig| {
            let (pair, far) = (rig.pair()?, rig.memory(8)?);
            far.store(0, b"readable");
            let local = DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG;
            let near = rig.memory_with(rig.pz()?, 8, local)?;
            let answer = rig.read(pair.active.ep, &[near.all()], 1, &far.remote());
            if rig.provider.rdma_write_for_rdma_read_req != DAT_FALSE {
                return answers(answer, DAT_PRIVILEGES_VIOLATION);
            }
            ok(answer)?;
            rig.completes(pair.active.request, 1, DAT_DTO_SUCCESS)?;
            ensure_equal("what was read", near.load(0, 8), b"readable".to_vec())
        },
    ),
    must(
        "dat_ia_query/asynchronous-returns",
        "DAPL Provider Attributes: asynchronous return of DTOs",
        "If dto_async_return_guaranteed is true, a post returns before the event of its transfer \
         is dequeued.",
        |rig| {
            if rig.provider.dto_async_return_guaranteed == DAT_FALSE {
                return crate::check::unsupported("dto_async_return_guaranteed is false");
            }
            let (pair, from, to) = start(rig, &rig.ep_attr())?;
            for id in 0..4 {
                ok(rig.recv(pair.passive.ep, &[to.all()], id))?;
                ok(rig.send(pair.active.ep, &[from.all()], id))?;
            }
            (0..4)
                .try_for_each(|id| rig.completes(pair.passive.recv, id, DAT_DTO_SUCCESS).map(drop))
        },
    ),
    must(
        "dat_ia_query/rmr-scopes",
        "2.0 headers: rmr_scope_supported",
        "RMRs with the scope of a zone, or with that of an EP, can be created if and only if \
         rmr_scope_supported lists the scope.",
        |rig| {
            let (scope, pz, mut rmr) = (rig.provider.rmr_scope_supported, rig.pz()?, null_mut());
            let of_zone = rig.api.dat_rmr_create(pz, &mut rmr) == DAT_SUCCESS;
            let of_ep = rig.api.dat_rmr_create_for_ep(pz, &mut rmr) == DAT_SUCCESS;
            // DAT_RMR_SCOPE_EP has the value 0. A provider without RMRs also reports 0, so max_rmrs
            // decides which it is.
            let (zone, ep) = match scope {
                DAT_RMR_SCOPE_EP => (false, rig.attr.max_rmrs > 0),
                DAT_RMR_SCOPE_PZ => (true, false),
                _ => (true, true),
            };
            ensure_equal("whether an RMR of a zone can be created", of_zone, zone)?;
            ensure_equal(
                "whether an RMR of an EP can be created",
                of_ep,
                ep && rig.api.has("dat_rmr_create_for_ep"),
            )
        },
    ),
];

/// Returns two connected EPs with these attributes, and 64 bytes of memory for each of them.
fn start(rig: &Rig, attr: &DAT_EP_ATTR) -> Outcome<(Pair, Region, Region)> {
    Ok((rig.pair_with(attr)?, rig.memory(64)?, rig.memory(64)?))
}

fn try_create(rig: &Rig, attr: &DAT_EP_ATTR) -> Outcome<DAT_RETURN> {
    let (evds, pz, mut ep) = (rig.evds_of_an_ep()?, rig.pz()?, null_mut());
    Ok(rig.api.dat_ep_create(rig.ia, pz, evds.recv, evds.request, evds.connect, attr, &mut ep))
}

/// Checks that an EP with this soft watermark reports the first buffer beyond the watermark. If
/// `is_reported` is false, checks that the EP reports this buffer only after a call of
/// dat_ep_set_watermark.
fn soft_watermark(
    rig: &Rig,
    srq_soft_hw: DAT_COUNT,
    is_reported: impl Fn(&Rig) -> Outcome<bool>,
) -> Outcome {
    let (srq, memory) = (rig.srq(8)?, rig.memory(8)?);
    if rig.provider.srq_watermarks_supported & 0x10 == 0 {
        return crate::check::unsupported(
            "srq_watermarks_supported does not list the soft watermark of EPs",
        );
    }
    let ep = rig.ep_on_with(srq, rig.pz()?, &DAT_EP_ATTR { srq_soft_hw, ..rig.ep_attr() })?;
    let pair = rig.pair_of(rig.ep()?, ep)?;
    let receive = |id| {
        ok(rig.recv_srq(srq, &[memory.all()], id))?;
        ok(rig.send(pair.active.ep, &[], id))?;
        rig.completes(pair.active.request, id, DAT_DTO_SUCCESS)?;
        rig.wait_for_writes(pair)
    };
    for id in 0..srq_soft_hw as u64 {
        receive(id)?;
    }
    rig.expect_no_event(rig.async_evd)?;
    receive(10)?;
    if !is_reported(rig)? {
        rig.expect_no_event(rig.async_evd)?;
        ok(rig.api.dat_ep_set_watermark(ep.ep, srq_soft_hw, DAT_WATERMARK_INFINITE))?;
        receive(11)?;
    }
    ensure_equal("the object of the event", rig.async_event()?.0, ep.ep)
}

#[track_caller]
fn is_truth(what: &str, value: DAT_BOOLEAN) -> Outcome {
    ensure([DAT_FALSE, DAT_TRUE].contains(&value), format_args!("{what} is {value}"))
}
