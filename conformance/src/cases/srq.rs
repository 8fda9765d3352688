//! Cases about shared receive queues (SRQs).

use std::ptr::null_mut;

use dat_sys::*;

use super::bad_requests::refused_or_takes_nothing;
use crate::case::{Row, must};
use crate::check::{Outcome, answers, ensure, ensure_equal, ok, supported, unsupported};
use crate::rig::{Rig, cookie};

pub(super) const CASES: &[Row] = &[
    must(
        "dat_srq_create/at-least",
        "DESCRIPTION",
        "A new SRQ has at least the requested length, has the default low watermark, and can be \
         used.",
        |rig| {
            let param = rig.query_srq(rig.srq(7)?)?;
            ensure(
                param.max_recv_dtos >= 7,
                format_args!("max_recv_dtos is {}", param.max_recv_dtos),
            )?;
            ensure(
                param.max_recv_iov >= 2,
                format_args!("max_recv_iov is {}", param.max_recv_iov),
            )?;
            ensure_equal("IA and zone", (param.ia_handle, param.pz_handle), (rig.ia, rig.pz()?))?;
            ensure_equal("low_watermark", param.low_watermark, DAT_SRQ_LW_DEFAULT)?;
            ensure_equal("srq_state", param.srq_state, DAT_SRQ_STATE_OPERATIONAL)
        },
    ),
    must(
        "dat_srq_create/handle-type",
        "PARAMETERS",
        "The handle that dat_srq_create returns has the type of an SRQ.",
        |rig| {
            let mut kind = 0;
            ok(rig.api.dat_get_handle_type(rig.srq(4)?, &mut kind))?;
            ensure_equal("the type of the handle", kind, DAT_HANDLE_TYPE_SRQ)
        },
    ),
    must(
        "dat_srq_create/bad-arguments",
        "RETURN VALUES",
        "dat_srq_create refuses a null zone, null attributes, and a negative number of receives.",
        |rig| {
            rig.srq(4)?;
            let (pz, mut srq) = (rig.pz()?, null_mut());
            let attr =
                |max_recv_dtos| DAT_SRQ_ATTR { max_recv_dtos, max_recv_iov: 1, low_watermark: 0 };
            answers(
                rig.api.dat_srq_create(rig.ia, DAT_HANDLE_NULL, &mut attr(4), &mut srq),
                DAT_INVALID_HANDLE,
            )?;
            answers(
                rig.api.dat_srq_create(rig.ia, pz, null_mut(), &mut srq),
                DAT_INVALID_PARAMETER,
            )?;
            answers(
                rig.api.dat_srq_create(rig.ia, pz, &mut attr(-1), &mut srq),
                DAT_INVALID_PARAMETER,
            )?;
            let more = rig.attr.max_recv_per_srq.saturating_add(1);
            let answer = rig.api.dat_srq_create(rig.ia, pz, &mut attr(more), &mut srq);
            rig.answers_or(answer, DAT_INSUFFICIENT_RESOURCES, &[DAT_INVALID_PARAMETER])
        },
    ),
    must(
        "dat_srq_free/in-use",
        "RETURN VALUES",
        "An SRQ that an EP uses cannot be freed.",
        |rig| {
            let srq = rig.srq(4)?;
            let ep = rig.ep_on(srq)?;
            answers(rig.api.dat_srq_free(srq), DAT_INVALID_STATE)?;
            ok(rig.api.dat_ep_free(ep.ep))?;
            ok(rig.api.dat_srq_free(srq))?;
            answers(rig.api.dat_srq_free(srq), DAT_INVALID_HANDLE)
        },
    ),
    must(
        "dat_srq_query/counts",
        "USAGE: example",
        "An SRQ for 10 receives has 3 posted: available 3, outstanding 3. An EP takes one: \
         available 2, outstanding 3. Its event is dequeued: 2 and 2.",
        |rig| {
            let (srq, memory) = (rig.srq(10)?, rig.memory(8)?);
            let pair = rig.pair_of(rig.ep()?, rig.ep_on(srq)?)?;
            for id in 0..3 {
                ok(rig.recv_srq(srq, &[memory.all()], id))?;
            }
            counts(rig, srq, 3, 3)?;
            ok(rig.send(pair.active.ep, &[], 9))?;
            rig.completion(pair.passive.recv)?;
            counts(rig, srq, 2, 2)
        },
    ),
    must(
        "dat_srq_query/unknown",
        "DESCRIPTION",
        "If the provider does not know a count of an SRQ, dat_srq_query returns DAT_VALUE_UNKNOWN.",
        |rig| {
            let param = rig.query_srq(rig.srq(4)?)?;
            for count in [param.available_dto_count, param.outstanding_dto_count] {
                ensure(
                    count == 0 || count == DAT_VALUE_UNKNOWN,
                    format_args!("the count is {count}"),
                )?;
            }
            Ok(())
        },
    ),
    must(
        "dat_srq_post_recv/order",
        "DESCRIPTION",
        "The messages of one connection arrive in order. Each message uses one buffer of the SRQ.",
        |rig| {
            let (srq, memory, from) = (rig.srq(8)?, rig.memory(64)?, rig.memory(8)?);
            let pair = rig.pair_of(rig.ep()?, rig.ep_on(srq)?)?;
            for id in 0..6 {
                ok(rig.recv_srq(srq, &[memory.part(8 * id, 8)], id.into()))?;
            }
            for n in 0..6 {
                ok(rig.send(pair.active.ep, &[from.part(0, n)], 9))?;
            }
            let mut cookies = Vec::new();
            for n in 0..6 {
                let dto = rig.completion(pair.passive.recv)?;
                ensure_equal("the bytes", dto.length, n)?;
                cookies.push(dto.cookie);
            }
            cookies.sort();
            ensure_equal("the buffers", cookies, (0..6).collect())
        },
    ),
    must(
        "dat_srq_post_recv/too-many",
        "RETURN VALUES",
        "dat_srq_post_recv refuses a buffer if the SRQ has no free slot.",
        |rig| {
            let (srq, memory) = (rig.srq(3)?, rig.memory(8)?);
            let max = rig.query_srq(srq)?.max_recv_dtos;
            (0..max).try_for_each(|id| ok(rig.recv_srq(srq, &[memory.all()], id as u64)))?;
            answers(rig.recv_srq(srq, &[memory.all()], 99), DAT_INSUFFICIENT_RESOURCES)
        },
    ),
    must(
        "dat_srq_post_recv/bad-arguments",
        "RETURN VALUES",
        "dat_srq_post_recv refuses a segment beyond its LMR, too many segments, a negative number \
         of segments, and a wrong handle.",
        |rig| {
            let (srq, memory) = (rig.srq(3)?, rig.memory(8)?);
            let max = rig.query_srq(srq)?.max_recv_iov as usize;
            answers(
                rig.recv_srq(srq, &vec![memory.part(0, 1); max + 1], 1),
                DAT_INVALID_PARAMETER,
            )?;
            answers(
                rig.api.dat_srq_post_recv(srq, -1, null_mut(), cookie(1)),
                DAT_INVALID_PARAMETER,
            )?;
            for srq in [DAT_HANDLE_NULL, rig.ep()?.ep] {
                answers(rig.recv_srq(srq, &[memory.all()], 1), DAT_INVALID_HANDLE)?;
            }
            let pair = rig.pair_of(rig.ep()?, rig.ep_on(srq)?)?;
            let answer = rig.recv_srq(srq, &[memory.part(4, 5)], 1);
            refused_or_takes_nothing(rig, answer, DAT_INVALID_PARAMETER, pair, &memory)
        },
    ),
    must(
        "dat_srq_post_recv/needs-local-write",
        "RETURN VALUES",
        "A receive of an SRQ cannot use memory without the local write privilege.",
        |rig| {
            let (srq, memory) =
                (rig.srq(3)?, rig.memory_with(rig.pz()?, 8, DAT_MEM_PRIV_LOCAL_READ_FLAG)?);
            let pair = rig.pair_of(rig.ep()?, rig.ep_on(srq)?)?;
            let answer = rig.recv_srq(srq, &[memory.all()], 1);
            refused_or_takes_nothing(rig, answer, DAT_PRIVILEGES_VIOLATION, pair, &memory)
        },
    ),
    must(
        "dat_srq_post_recv/freed-lmr",
        "RETURN VALUES",
        "A receive of an SRQ with a segment of a freed LMR is a privileges violation.",
        |rig| {
            let (srq, memory) = (rig.srq(3)?, rig.memory(8)?);
            let pair = rig.pair_of(rig.ep()?, rig.ep_on(srq)?)?;
            ok(rig.api.dat_lmr_free(memory.lmr))?;
            let answer = rig.recv_srq(srq, &[memory.all()], 1);
            refused_or_takes_nothing(rig, answer, DAT_PRIVILEGES_VIOLATION, pair, &memory)
        },
    ),
    must(
        "dat_srq_post_recv/stays-after-disconnect",
        "DESCRIPTION",
        "When an EP disconnects, the buffers of its SRQ that no EP has taken are not flushed.",
        |rig| {
            let (srq, memory) = (rig.srq(8)?, rig.memory(8)?);
            let first = rig.pair_of(rig.ep()?, rig.ep_on(srq)?)?;
            ok(rig.recv_srq(srq, &[memory.all()], 5))?;
            ok(rig.api.dat_ep_disconnect(first.active.ep, DAT_CLOSE_ABRUPT_FLAG))?;
            rig.connection(first.passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED)?;
            rig.expect_no_event(first.passive.recv)?;
            let second = rig.pair_of(rig.ep()?, rig.ep_on(srq)?)?;
            ok(rig.send(second.active.ep, &[], 1))?;
            rig.completes(second.passive.recv, 5, DAT_DTO_SUCCESS).map(drop)
        },
    ),
    must(
        "dat_srq_resize/grows",
        "DESCRIPTION",
        "An SRQ that dat_srq_resize makes longer holds more buffers, and no buffer is lost.",
        |rig| {
            let (srq, memory) = (rig.srq(3)?, rig.memory(8)?);
            for id in 0..3 {
                ok(rig.recv_srq(srq, &[memory.all()], id))?;
            }
            supported(rig.api.dat_srq_resize(srq, 8))?;
            let max = rig.query_srq(srq)?.max_recv_dtos;
            ensure(max >= 8, format_args!("max_recv_dtos is {max}"))?;
            (3..8).try_for_each(|id| ok(rig.recv_srq(srq, &[memory.all()], id)))?;
            counts(rig, srq, 8, 8)
        },
    ),
    must(
        "dat_srq_resize/below-outstanding",
        "RETURN VALUES",
        "dat_srq_resize cannot make an SRQ shorter than the number of outstanding receives, or \
         shorter than its low watermark.",
        |rig| {
            let (srq, memory) = (rig.srq(8)?, rig.memory(8)?);
            for id in 0..5 {
                ok(rig.recv_srq(srq, &[memory.all()], id))?;
            }
            answers(rig.api.dat_srq_resize(srq, 4), DAT_INVALID_STATE)?;
            counts(rig, srq, 5, 5)?;
            let marked = rig.srq(8)?;
            supported(rig.api.dat_srq_set_lw(marked, 6))?;
            answers(rig.api.dat_srq_resize(marked, 5), DAT_INVALID_STATE)?;
            answers(rig.api.dat_srq_resize(srq, -1), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_srq_set_lw/once",
        "DESCRIPTION",
        "An event reports once that an SRQ has fewer buffers than its low watermark. After the \
         watermark is set again, an event can report that again.",
        |rig| {
            let (srq, memory) = (low(rig)?, rig.memory(8)?);
            let pair = rig.pair_of(rig.ep()?, rig.ep_on(srq)?)?;
            for id in 0..6 {
                ok(rig.recv_srq(srq, &[memory.all()], id))?;
            }
            supported(rig.api.dat_srq_set_lw(srq, 5))?;
            rig.expect_no_event(rig.async_evd)?;
            ok(rig.send(pair.active.ep, &[], 9))?;
            rig.completion(pair.passive.recv)?;
            rig.completes(pair.active.request, 9, DAT_DTO_SUCCESS)?;
            // The number of buffers equals the watermark, so the SRQ is not below it.
            rig.expect_no_event(rig.async_evd)?;
            ok(rig.send(pair.active.ep, &[], 9))?;
            rig.completion(pair.passive.recv)?;
            // Four buffers are left, one fewer than the watermark.
            reported(rig, srq)?;
            ok(rig.send(pair.active.ep, &[], 9))?;
            rig.completion(pair.passive.recv)?;
            rig.expect_no_event(rig.async_evd)?;
            // Three buffers are left, which equals the new watermark.
            ok(rig.api.dat_srq_set_lw(srq, 3))?;
            rig.expect_no_event(rig.async_evd)?;
            ok(rig.send(pair.active.ep, &[], 9))?;
            rig.completion(pair.passive.recv)?;
            reported(rig, srq)
        },
    ),
    must(
        "dat_srq_set_lw/at-once",
        "DESCRIPTION",
        "If an SRQ already has fewer buffers than the new low watermark, an event reports that at \
         once.",
        |rig| {
            let srq = low(rig)?;
            supported(rig.api.dat_srq_set_lw(srq, 2))?;
            reported(rig, srq)
        },
    ),
    must(
        "dat_srq_set_lw/out-of-range",
        "RETURN VALUES",
        "dat_srq_set_lw refuses a low watermark above the length of the SRQ, or below 0.",
        |rig| {
            let srq = low(rig)?;
            let max = rig.query_srq(srq)?.max_recv_dtos;
            answers(rig.api.dat_srq_set_lw(srq, max + 1), DAT_INVALID_PARAMETER)?;
            answers(rig.api.dat_srq_set_lw(srq, -5), DAT_INVALID_PARAMETER)
        },
    ),
];

/// Creates an SRQ. If the provider does not support low watermarks, the case is unsupported.
fn low(rig: &Rig) -> Outcome<DAT_SRQ_HANDLE> {
    let srq = rig.srq(8)?;
    match rig.provider.srq_watermarks_supported {
        0 => unsupported("the provider attribute srq_watermarks_supported is 0"),
        _ => Ok(srq),
    }
}

/// Checks the number of buffers that no EP has taken, and the number of buffers whose completion
/// has not been dequeued. A number that the provider does not know is not checked.
#[track_caller]
fn counts(rig: &Rig, srq: DAT_SRQ_HANDLE, available: DAT_COUNT, outstanding: DAT_COUNT) -> Outcome {
    let param = rig.query_srq(srq)?;
    for (what, is, wanted) in [
        ("available_dto_count", param.available_dto_count, available),
        ("outstanding_dto_count", param.outstanding_dto_count, outstanding),
    ] {
        ensure(
            is == wanted || is == DAT_VALUE_UNKNOWN,
            format_args!("{what} is {is}, not {wanted}"),
        )?;
    }
    Ok(())
}

/// Checks that the next asynchronous event reports that the SRQ is below its low watermark. The
/// standard does not define the number of this event, so any number is accepted.
#[track_caller]
fn reported(rig: &Rig, srq: DAT_SRQ_HANDLE) -> Outcome {
    let about = rig.async_event()?;
    ensure_equal(
        "the object and the reason of the event",
        about,
        (srq, DAT_SRQ_LOW_WATERMARK_EVENT as DAT_COUNT),
    )
}
