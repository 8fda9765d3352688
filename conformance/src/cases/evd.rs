//! Event dispatchers.

use std::ptr::null_mut;

use dat_sys::*;

use crate::case::{Row, must};
use crate::check::{
    Outcome, answers, answers_with, ensure, ensure_equal, ok, one_of, supported, unsupported,
};
use crate::rig::{EVD_QUEUE_LENGTH, Ep, Rig, async_error, event_timeout_us, software_value, until};

pub(super) const CASES: &[Row] = &[
    // dat_evd_create has no manual page. The headers, other pages and the behavior of OFED's
    // library define it.
    must(
        "dat_evd_create/queue-length-is-a-minimum",
        "headers: evd_min_qlen",
        "The queue of a new EVD holds at least the requested number of events.",
        |rig| {
            let evd = rig.evd_of(rig.ia, 10, DAT_EVD_SOFTWARE_FLAG)?;
            ensure(rig.query_evd(evd)?.evd_qlen >= 10, "evd_qlen is less than 10")?;
            (0..10).try_for_each(|n| ok(rig.post_se(evd, n)))
        },
    ),
    must(
        "dat_evd_create/no-queue",
        "headers: evd_min_qlen",
        "dat_evd_create refuses a queue length of 0 or less.",
        |rig| {
            for qlen in [0, -1, DAT_COUNT::MIN] {
                let mut evd = null_mut();
                let answer = rig.api.dat_evd_create(
                    rig.ia,
                    qlen,
                    DAT_HANDLE_NULL,
                    DAT_EVD_DTO_FLAG,
                    &mut evd,
                );
                answers(answer, DAT_INVALID_PARAMETER)?;
            }
            Ok(())
        },
    ),
    must("dat_evd_create/null-ia", "headers: ia_handle", "A null IA handle is refused.", |rig| {
        let answer = rig.api.dat_evd_create(
            DAT_HANDLE_NULL,
            8,
            DAT_HANDLE_NULL,
            DAT_EVD_DTO_FLAG,
            &mut null_mut(),
        );
        answers(answer, DAT_INVALID_HANDLE)
    }),
    must(
        "dat_evd_create/freed-cno",
        "headers: cno_handle",
        "dat_evd_create refuses an invalid CNO handle.",
        |rig| {
            let cno = rig.cno()?;
            ok(rig.api.dat_cno_free(cno))?;
            let answer = rig.api.dat_evd_create(rig.ia, 8, cno, DAT_EVD_DTO_FLAG, &mut null_mut());
            answers_with(answer, DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO)
        },
    ),
    must(
        "dat_evd_create/no-streams",
        "headers: DAT_EVD_FLAGS",
        "dat_evd_create refuses flags without a stream, and unknown flags.",
        |rig| {
            for flags in [0, 0x4000_0000] {
                let answer =
                    rig.api.dat_evd_create(rig.ia, 8, DAT_HANDLE_NULL, flags, &mut null_mut());
                answers(answer, DAT_INVALID_PARAMETER)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_evd_create/null-out",
        "headers: evd_handle",
        "If the pointer for the new handle is null, dat_evd_create fails and creates no EVD.",
        |rig| {
            let answer =
                rig.api.dat_evd_create(rig.ia, 8, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, null_mut());
            answers(answer, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_evd_query/parameters",
        "DESCRIPTION",
        "dat_evd_query returns the parameters with which the EVD was created.",
        |rig| {
            let cno = rig.cno()?;
            let evd = rig.evd_with(rig.ia, 8, cno, DAT_EVD_DTO_FLAG | DAT_EVD_SOFTWARE_FLAG)?;
            let param = rig.query_evd(evd)?;
            ensure_equal("ia_handle", param.ia_handle, rig.ia)?;
            ensure_equal("cno_handle", param.cno_handle, cno)?;
            ensure_equal("evd_flags", param.evd_flags, DAT_EVD_DTO_FLAG | DAT_EVD_SOFTWARE_FLAG)?;
            let both = DAT_EVD_STATE_ENABLED | DAT_EVD_STATE_WAITABLE;
            ensure_equal("evd_state", param.evd_state & 0xf, both)
        },
    ),
    must(
        "dat_evd_query/null",
        "RETURN VALUES",
        "If the mask of dat_evd_query requests fields, the pointer for them must not be null. The \
         mask must have only defined bits.",
        |rig| {
            let evd = rig.evd(DAT_EVD_DTO_FLAG)?;
            answers(
                rig.api.dat_evd_query(evd, DAT_EVD_FIELD_ALL, null_mut()),
                DAT_INVALID_PARAMETER,
            )?;
            answers(
                rig.api.dat_evd_query(evd, 0x100, &mut DAT_EVD_PARAM::zeroed()),
                DAT_INVALID_PARAMETER,
            )?;
            ok(rig.api.dat_evd_query(evd, 0, null_mut()))
        },
    ),
    must(
        "dat_evd_wait/event",
        "DESCRIPTION",
        "dat_evd_wait dequeues the first event and returns the number of events that are still \
         queued.",
        |rig| {
            let evd = soft(rig, 3)?;
            let mut event = DAT_EVENT::zeroed();
            let (status, more) = rig.wait(evd, event_timeout_us(), 1, &mut event);
            ok(status)?;
            ensure_equal(
                "the first event and the number of remaining events",
                (software_value(&event), more),
                (0, 2),
            )
        },
    ),
    must(
        "dat_evd_wait/threshold-reached",
        "DESCRIPTION: threshold",
        "If as many events are queued as the threshold, dat_evd_wait dequeues one. At least \
         threshold - 1 events are left.",
        |rig| {
            let evd = soft(rig, 5)?;
            let mut event = DAT_EVENT::zeroed();
            let (status, more) = rig.wait(evd, event_timeout_us(), 3, &mut event);
            ok(status)?;
            ensure_equal(
                "the first event and the number of remaining events",
                (software_value(&event), more),
                (0, 4),
            )
        },
    ),
    must(
        "dat_evd_wait/threshold-not-reached",
        "DESCRIPTION: threshold, timeout",
        "If fewer events are queued than the threshold, dat_evd_wait times out, dequeues no event, \
         and returns the number of queued events.",
        |rig| {
            let evd = soft(rig, 2)?;
            let mut event = DAT_EVENT::zeroed();
            let (status, more) = rig.wait(evd, 1000, 3, &mut event);
            answers(status, DAT_TIMEOUT_EXPIRED)?;
            ensure_equal("nmore", more, 2)?;
            ensure_equal("the number of events that are still queued", rig.drain(evd)?.len(), 2)
        },
    ),
    must(
        "dat_evd_wait/threshold-wakes",
        "DESCRIPTION: threshold",
        "The event that reaches the threshold of dat_evd_wait wakes the waiting thread.",
        |rig| {
            let evd = soft(rig, 1)?;
            let mut event = DAT_EVENT::zeroed();
            let api = rig.api;
            let number = evd as usize;
            let post = std::thread::spawn(move || {
                let event = DAT_EVENT { event_number: DAT_SOFTWARE_EVENT, ..DAT_EVENT::zeroed() };
                api.dat_evd_post_se(number as DAT_EVD_HANDLE, &event)
            });
            let (status, more) = rig.wait(evd, event_timeout_us(), 2, &mut event);
            ok(status)?;
            ensure_equal("nmore", more, 1)?;
            ok(post.join().unwrap_or(DAT_ERROR(DAT_INTERNAL_ERROR, 0)))
        },
    ),
    must(
        "dat_evd_wait/threshold-range",
        "RETURN VALUES: invalid parameter",
        "dat_evd_wait refuses a threshold below 1 or above the length of the queue.",
        |rig| {
            let evd = soft(rig, 1)?;
            let qlen = rig.query_evd(evd)?.evd_qlen;
            for threshold in [0, -1, qlen.saturating_add(1)] {
                let (status, _) = rig.wait(evd, 0, threshold, &mut DAT_EVENT::zeroed());
                answers(status, DAT_INVALID_PARAMETER)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_evd_wait/threshold-on-unsignalled",
        "RETURN VALUES: invalid state",
        "If a stream of the EVD is unsignalled or has solicited wait, dat_evd_wait returns an \
         invalid state for a threshold above 1.",
        |rig| {
            let recv_completion_flags = DAT_COMPLETION_SOLICITED_WAIT_FLAG;
            let ep = rig.ep_with(&DAT_EP_ATTR { recv_completion_flags, ..rig.ep_attr() })?;
            let (status, _) = rig.wait(ep.recv, 0, 2, &mut DAT_EVENT::zeroed());
            // The providers of OFED return DAT_INVALID_PARAMETER for a threshold above 1.
            rig.answers_or(status, DAT_INVALID_STATE, &[DAT_INVALID_PARAMETER])
        },
    ),
    must(
        "dat_evd_wait/poll",
        "DESCRIPTION: timeout",
        "With a time limit of 0, dat_evd_wait takes an event or times out at once.",
        |rig| {
            let evd = soft(rig, 1)?;
            ok(rig.wait(evd, 0, 1, &mut DAT_EVENT::zeroed()).0)?;
            let (status, more) = rig.wait(evd, 0, 1, &mut DAT_EVENT::zeroed());
            answers(status, DAT_TIMEOUT_EXPIRED)?;
            ensure_equal("nmore", more, 0)
        },
    ),
    must(
        "dat_evd_wait/times-out",
        "DESCRIPTION: timeout",
        "dat_evd_wait returns when its time limit has passed, and not earlier.",
        |rig| {
            let evd = soft(rig, 0)?;
            let begun = std::time::Instant::now();
            answers(rig.wait(evd, 20_000, 1, &mut DAT_EVENT::zeroed()).0, DAT_TIMEOUT_EXPIRED)?;
            let took = begun.elapsed();
            ensure(
                took.as_micros() >= 20_000,
                format_args!("dat_evd_wait returned after only {took:?}"),
            )
        },
    ),
    must(
        "dat_evd_wait/infinite",
        "DESCRIPTION: timeout",
        "dat_evd_wait without a time limit returns when an event arrives.",
        |rig| {
            let evd = soft(rig, 1)?;
            ok(rig.wait(evd, DAT_TIMEOUT_INFINITE, 1, &mut DAT_EVENT::zeroed()).0)
        },
    ),
    must(
        "dat_evd_wait/null-arguments",
        "RETURN VALUES: invalid parameter",
        "dat_evd_wait refuses null pointers for the event and for the number of events.",
        |rig| {
            let (evd, mut event, mut more) = (soft(rig, 1)?, DAT_EVENT::zeroed(), 0);
            answers(rig.api.dat_evd_wait(evd, 0, 1, null_mut(), &mut more), DAT_INVALID_PARAMETER)?;
            answers(
                rig.api.dat_evd_wait(evd, 0, 1, &mut event, null_mut()),
                DAT_INVALID_PARAMETER,
            )?;
            ensure_equal("the number of events that are still queued", rig.drain(evd)?.len(), 1)
        },
    ),
    must(
        "dat_evd_wait/null-handle",
        "RETURN VALUES: invalid handle",
        "dat_evd_wait refuses a null EVD handle and the handle of a freed EVD.",
        |rig| {
            let evd = soft(rig, 0)?;
            ok(rig.api.dat_evd_free(evd))?;
            for evd in [DAT_HANDLE_NULL, evd] {
                answers(rig.wait(evd, 0, 1, &mut DAT_EVENT::zeroed()).0, DAT_INVALID_HANDLE)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_evd_wait/one-waiter",
        "DESCRIPTION: only one waiter",
        "While a thread waits on an EVD, dat_evd_wait and dat_evd_dequeue of another thread return \
         an invalid state.",
        |rig| {
            let evd = soft(rig, 0)?;
            let woken = rig.while_waiting(evd, || {
                answers(rig.wait(evd, 0, 1, &mut DAT_EVENT::zeroed()).0, DAT_INVALID_STATE)?;
                answers(rig.api.dat_evd_dequeue(evd, &mut DAT_EVENT::zeroed()), DAT_INVALID_STATE)?;
                ok(rig.post_se(evd, 1))
            })?;
            ok(woken)
        },
    ),
    must(
        "dat_evd_set_unwaitable/wakes-the-waiter",
        "DESCRIPTION",
        "dat_evd_set_unwaitable wakes a thread that waits on the EVD. The wait returns an invalid \
         state.",
        |rig| {
            let evd = soft(rig, 0)?;
            let woken = rig.while_waiting(evd, || ok(rig.api.dat_evd_set_unwaitable(evd)))?;
            answers(woken, DAT_INVALID_STATE)
        },
    ),
    must(
        "dat_evd_set_unwaitable/blocks-waits",
        "DESCRIPTION",
        "dat_evd_wait on an unwaitable EVD returns an invalid state, with or without queued \
         events. dat_evd_dequeue succeeds.",
        |rig| {
            let evd = soft(rig, 1)?;
            ok(rig.api.dat_evd_set_unwaitable(evd))?;
            ensure_equal(
                "the state",
                rig.query_evd(evd)?.evd_state & 0xc,
                DAT_EVD_STATE_UNWAITABLE,
            )?;
            answers(
                rig.wait(evd, event_timeout_us(), 1, &mut DAT_EVENT::zeroed()).0,
                DAT_INVALID_STATE,
            )?;
            ok(rig.api.dat_evd_dequeue(evd, &mut DAT_EVENT::zeroed()))?;
            answers(rig.wait(evd, 0, 1, &mut DAT_EVENT::zeroed()).0, DAT_INVALID_STATE)
        },
    ),
    must(
        "dat_evd_clear_unwaitable/waits-again",
        "DESCRIPTION",
        "After dat_evd_clear_unwaitable, dat_evd_wait on the EVD succeeds again.",
        |rig| {
            let evd = soft(rig, 1)?;
            ok(rig.api.dat_evd_set_unwaitable(evd))?;
            ok(rig.api.dat_evd_clear_unwaitable(evd))?;
            ensure_equal("the state", rig.query_evd(evd)?.evd_state & 0xc, DAT_EVD_STATE_WAITABLE)?;
            ok(rig.wait(evd, event_timeout_us(), 1, &mut DAT_EVENT::zeroed()).0)
        },
    ),
    must(
        "dat_evd_dequeue/order",
        "DESCRIPTION",
        "Events are dequeued in the order in which they were posted, each event once. Then the \
         queue is empty.",
        |rig| {
            let evd = soft(rig, 20)?;
            let values: Vec<_> = rig.drain(evd)?.iter().map(software_value).collect();
            ensure_equal("the events", values, (0..20).collect())?;
            rig.expect_no_event(evd)
        },
    ),
    must(
        "dat_evd_dequeue/null-event",
        "RETURN VALUES",
        "dat_evd_dequeue refuses a null pointer for the event.",
        |rig| {
            let evd = soft(rig, 1)?;
            answers(rig.api.dat_evd_dequeue(evd, null_mut()), DAT_INVALID_PARAMETER)?;
            ensure_equal("the number of events that are still queued", rig.drain(evd)?.len(), 1)
        },
    ),
    must(
        "dat_evd_dequeue/bad-handle",
        "RETURN VALUES",
        "A null handle, a freed handle and the handle of an object of another type are refused.",
        |rig| {
            let evd = soft(rig, 0)?;
            ok(rig.api.dat_evd_free(evd))?;
            for evd in [DAT_HANDLE_NULL, evd, rig.pz()?] {
                answers(
                    rig.api.dat_evd_dequeue(evd, &mut DAT_EVENT::zeroed()),
                    DAT_INVALID_HANDLE,
                )?;
            }
            Ok(())
        },
    ),
    must(
        "dat_evd_post_se/delivered",
        "DESCRIPTION",
        "A software event is delivered with the pointer with which it was posted.",
        |rig| {
            let evd = soft(rig, 0)?;
            ok(rig.post_se(evd, 0xabcd_ef01))?;
            ensure_equal(
                "the pointer",
                software_value(&rig.expect(evd, DAT_SOFTWARE_EVENT)?),
                0xabcd_ef01,
            )
        },
    ),
    must(
        "dat_evd_post_se/other-stream",
        "RETURN VALUES",
        "dat_evd_post_se refuses an EVD without the stream of software events.",
        |rig| {
            let answer = rig.post_se(rig.evd(DAT_EVD_DTO_FLAG)?, 1);
            rig.answers_or(answer, DAT_INVALID_PARAMETER, &[DAT_INVALID_HANDLE, DAT_INVALID_STATE])
        },
    ),
    must(
        "dat_evd_post_se/other-number",
        "RETURN VALUES",
        "dat_evd_post_se refuses an event that is not a software event.",
        |rig| {
            let evd = soft(rig, 0)?;
            let event = DAT_EVENT { event_number: DAT_DTO_COMPLETION_EVENT, ..DAT_EVENT::zeroed() };
            answers(rig.api.dat_evd_post_se(evd, &event), DAT_INVALID_PARAMETER)?;
            answers(rig.api.dat_evd_post_se(evd, std::ptr::null()), DAT_INVALID_PARAMETER)?;
            rig.expect_no_event(evd)
        },
    ),
    must(
        "dat_evd_post_se/full",
        "RETURN VALUES",
        "If the queue is full, dat_evd_post_se refuses the event. No event is lost, and no \
         overflow is reported.",
        |rig| {
            let evd = rig.evd_of(rig.ia, 4, DAT_EVD_SOFTWARE_FLAG)?;
            let qlen = rig.query_evd(evd)?.evd_qlen;
            for n in 0..qlen {
                ok(rig.post_se(evd, n as usize))?;
            }
            answers(rig.post_se(evd, 99), DAT_QUEUE_FULL)?;
            ensure_equal("the number of queued events", rig.drain(evd)?.len(), qlen as usize)?;
            rig.expect_no_event(rig.async_evd)
        },
    ),
    must(
        "dat_evd_resize/grows",
        "DESCRIPTION",
        "A queue that dat_evd_resize makes longer holds more events, and no event is lost.",
        |rig| {
            let evd = rig.evd_of(rig.ia, 4, DAT_EVD_SOFTWARE_FLAG)?;
            (0..4).try_for_each(|n| ok(rig.post_se(evd, n)))?;
            ok(rig.api.dat_evd_resize(evd, 12))?;
            ensure(rig.query_evd(evd)?.evd_qlen >= 12, "evd_qlen is less than 12")?;
            (4..12).try_for_each(|n| ok(rig.post_se(evd, n)))?;
            let values: Vec<_> = rig.drain(evd)?.iter().map(software_value).collect();
            ensure_equal("the events", values, (0..12).collect())
        },
    ),
    must(
        "dat_evd_resize/below-fill",
        "RETURN VALUES",
        "dat_evd_resize cannot make a queue shorter than the number of queued events.",
        |rig| {
            let evd = soft(rig, 20)?;
            answers(rig.api.dat_evd_resize(evd, 10), DAT_INVALID_STATE)?;
            ensure_equal("the number of queued events", rig.drain(evd)?.len(), 20)
        },
    ),
    must(
        "dat_evd_resize/no-queue",
        "RETURN VALUES",
        "dat_evd_resize refuses a queue length of 0 or less.",
        |rig| {
            let evd = soft(rig, 0)?;
            answers(rig.api.dat_evd_resize(evd, 0), DAT_INVALID_PARAMETER)?;
            answers(rig.api.dat_evd_resize(evd, -4), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_evd_resize/while-connected",
        "DESCRIPTION",
        "No completion is lost while the queue of its EVD is resized.",
        |rig| {
            let (pair, from, to) = (rig.pair()?, rig.memory(8)?, rig.memory(8)?);
            for id in 0..4 {
                ok(rig.write(pair.active.ep, &[from.all()], id, &to.remote()))?;
            }
            supported(rig.api.dat_evd_resize(pair.active.request, 2 * EVD_QUEUE_LENGTH))?;
            for id in 0..4 {
                rig.completes(pair.active.request, id, DAT_DTO_SUCCESS)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_evd_free/fed-by-ep",
        "RETURN VALUES",
        "An EVD that an EP uses cannot be freed, whether for receives, for requests or for \
         connection events.",
        |rig| {
            let Ep { ep, recv, request, connect } = rig.ep()?;
            for evd in [recv, request, connect] {
                answers(rig.api.dat_evd_free(evd), DAT_INVALID_STATE)?;
            }
            ok(rig.api.dat_ep_free(ep))?;
            for evd in [recv, request, connect] {
                ok(rig.api.dat_evd_free(evd))?;
            }
            Ok(())
        },
    ),
    must(
        "dat_evd_free/fed-by-psp",
        "RETURN VALUES",
        "An EVD that a PSP uses cannot be freed.",
        |rig| {
            let listener = rig.listen()?;
            answers(rig.api.dat_evd_free(listener.evd), DAT_INVALID_STATE)?;
            ok(rig.api.dat_psp_free(listener.psp))?;
            ok(rig.api.dat_evd_free(listener.evd))
        },
    ),
    must(
        "dat_evd_free/fed-by-rsp",
        "RETURN VALUES",
        "An EVD that an RSP uses cannot be freed.",
        |rig| {
            let (ep, evd, qualifier, mut rsp) =
                (rig.ep()?, rig.evd(DAT_EVD_CR_FLAG)?, rig.free_qualifier()?, null_mut());
            ok(rig.api.dat_rsp_create(rig.ia, qualifier, ep.ep, evd, &mut rsp))?;
            answers(rig.api.dat_evd_free(evd), DAT_INVALID_STATE)?;
            ok(rig.api.dat_rsp_free(rsp))?;
            ok(rig.api.dat_evd_free(evd))
        },
    ),
    must(
        "dat_evd_free/with-events",
        "DESCRIPTION",
        "An EVD that contains events can be freed.",
        |rig| ok(rig.api.dat_evd_free(soft(rig, 3)?)),
    ),
    must(
        "dat_evd_free/twice",
        "RETURN VALUES",
        "dat_evd_free refuses the handle of an EVD that has already been freed.",
        |rig| {
            let evd = soft(rig, 0)?;
            ok(rig.api.dat_evd_free(evd))?;
            answers(rig.api.dat_evd_free(evd), DAT_INVALID_HANDLE)
        },
    ),
    must(
        "dat_evd_create/overflow",
        "dat_evd_create: asynchronous errors; evd_min_qlen",
        "Completions for which the queue has no room are reported as an EVD overflow. If the queue \
         is longer than it reports, no completion is lost.",
        |rig| {
            let Some((request, event)) = overflow(rig, DAT_EVD_DTO_FLAG, A_SECOND)? else {
                return Ok(());
            };
            ensure_equal("the event", event.event_number, DAT_ASYNC_ERROR_EVD_OVERFLOW)?;
            ensure_equal(
                "EVD and reason",
                async_error(&event),
                (request, DAT_EVD_OVERFLOW_ERROR as DAT_COUNT),
            )
        },
    ),
    must(
        "dat_evd_dequeue/after-overflow",
        "dat_evd_create: asynchronous errors; RETURN VALUES: invalid state",
        "An EVD that has lost events is in an invalid state for dat_evd_dequeue, dat_evd_wait and \
         dat_evd_post_se as soon as the remaining events have been taken.",
        |rig| {
            let streams = DAT_EVD_DTO_FLAG | DAT_EVD_SOFTWARE_FLAG;
            let Some((evd, _)) = overflow(rig, streams, event_timeout_us())? else {
                return unsupported("the queue is longer than it reports, so no event was lost");
            };
            let mut event = DAT_EVENT::zeroed();
            // A device may still add events while the others are taken.
            let (mut answer, mut waited) = (DAT_SUCCESS, DAT_SUCCESS);
            while waited == DAT_SUCCESS {
                answer = rig.api.dat_evd_dequeue(evd, &mut event);
                if answer != DAT_SUCCESS {
                    waited = rig.wait(evd, 0, 1, &mut event).0;
                }
            }
            rig.answers_or(answer, DAT_INVALID_STATE, &[DAT_QUEUE_EMPTY])?;
            rig.answers_or(waited, DAT_INVALID_STATE, &[DAT_TIMEOUT_EXPIRED])?;
            rig.answers_or(rig.post_se(evd, 1), DAT_INVALID_STATE, &[DAT_SUCCESS])
        },
    ),
];

/// The number of completions that the case causes beyond the queue's reported length. A provider is
/// unlikely to round the length up by this number.
const MORE: u64 = 600;
const A_SECOND: DAT_TIMEOUT = 1_000_000;

/// Creates an EVD for these streams, and causes more completions than the reported length of its
/// queue. Returns the EVD and the event that reports the overflow, or `None` if the queue had room
/// for all completions. If the event does not arrive within `patience`, takes the completions, so
/// that the operations of a provider with a longer queue end.
fn overflow(
    rig: &Rig,
    streams: DAT_EVD_FLAGS,
    patience: DAT_TIMEOUT,
) -> Outcome<Option<(DAT_EVD_HANDLE, DAT_EVENT)>> {
    let mut ep = rig.evds_of_an_ep()?;
    ep.request = rig.evd_of(rig.ia, 1, streams)?;
    let count = rig.query_evd(ep.request)?.evd_qlen as u64 + MORE;
    let attr = DAT_EP_ATTR {
        request_completion_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        max_request_dtos: count as DAT_COUNT + 8,
        ..rig.ep_attr()
    };
    let (pz, Ep { recv, request, connect, .. }) = (rig.pz()?, ep);
    ok(rig.api.dat_ep_create(rig.ia, pz, recv, request, connect, &attr, &mut ep.ep))?;
    let pair = rig.pair_of(ep, rig.ep()?)?;
    let (from, to) = (rig.memory(8)?, rig.memory(8)?);
    ok(rig.recv(pair.passive.ep, &[], 0))?;
    let write = |id| rig.write(pair.active.ep, &[from.all()], id, &to.remote());
    let posted = (0..count).take_while(|&id| write(id) == DAT_SUCCESS).count();
    // An overflow may already have broken the connection.
    let last = rig.send(pair.active.ep, &[], count);
    one_of(last, &[DAT_SUCCESS, DAT_INVALID_STATE])?;
    // Whether the send succeeds or fails, each operation before it either has been executed
    // now or will never be.
    rig.completion(pair.passive.recv)?;
    let mut event = DAT_EVENT::zeroed();
    let mut has_overflowed = rig.wait(rig.async_evd, patience, 1, &mut event).0 == DAT_SUCCESS;
    if !has_overflowed {
        let (all, mut taken) = (posted + usize::from(last == DAT_SUCCESS), 0);
        until(
            || {
                taken += rig.drain(request).map_or(0, |events| events.len());
                has_overflowed = taken < all
                    && rig.api.dat_evd_dequeue(rig.async_evd, &mut event) == DAT_SUCCESS;
                taken >= all || has_overflowed
            },
            "all operations have completed, or the overflow is reported",
        )?;
        if !has_overflowed {
            ensure_equal("the completions, without an overflow", taken, all)?;
            return Ok(None);
        }
    }
    Ok(Some((request, event)))
}

/// Creates an EVD that contains this number of software events.
fn soft(rig: &Rig, events: usize) -> Outcome<DAT_EVD_HANDLE> {
    let evd = rig.evd(DAT_EVD_SOFTWARE_FLAG)?;
    (0..events).try_for_each(|n| ok(rig.post_se(evd, n)))?;
    Ok(evd)
}
