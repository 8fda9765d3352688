//! dat_ep_recv_query.

use std::ptr::null_mut;

use dat_sys::*;

use crate::case::{Row, must};
use crate::check::{Outcome, answers, ensure, ensure_equal, ok, supported, unsupported};
use crate::rig::{Ep, Rig};

pub(super) const CASES: &[Row] = &[
    must(
        "dat_ep_recv_query/unsupported-model",
        "DESCRIPTION 2",
        "dat_ep_recv_query returns DAT_MODEL_NOT_SUPPORTED only if the attribute \
         ep_recv_info_supported lists neither count.",
        |rig| {
            let (mut buffers, mut span) = (0, 0);
            let answer = rig.api.dat_ep_recv_query(rig.ep()?.ep, &mut buffers, &mut span);
            match rig.provider.ep_recv_info_supported {
                0 if DAT_GET_TYPE(answer) == DAT_MODEL_NOT_SUPPORTED => Ok(()),
                _ => ok(answer),
            }
        },
    ),
    must(
        "dat_ep_recv_query/posted-without-srq",
        "DESCRIPTION 4",
        "If an EP has no SRQ, dat_ep_recv_query counts a receive buffer as soon as it is posted.",
        |rig| {
            let (ep, memory) = (rig.ep()?, rig.memory(64)?);
            for posted in 0..4 {
                counts(rig, ep.ep, posted, None)?;
                ok(rig.recv(ep.ep, &[memory.all()], posted as u64))?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_recv_query/completed",
        "DESCRIPTION 3",
        "dat_ep_recv_query does not count a receive buffer whose completion has been generated.",
        |rig| {
            let (pair, from, to) = (rig.pair()?, rig.memory(8)?, rig.memory(8)?);
            for id in 0..3 {
                ok(rig.recv(pair.passive.ep, &[to.all()], id))?;
            }
            for sent in 0..3 {
                counts(rig, pair.passive.ep, 3 - sent, None)?;
                ok(rig.send(pair.active.ep, &[from.all()], 10))?;
                rig.completion(pair.passive.recv)?;
            }
            counts(rig, pair.passive.ep, 0, None)
        },
    ),
    must(
        "dat_ep_recv_query/srq-not-taken",
        "DESCRIPTION 4",
        "If an EP has an SRQ, dat_ep_recv_query counts a buffer of the SRQ only after the EP has \
         taken it.",
        |rig| {
            let (srq, memory) = (rig.srq(8)?, rig.memory(8)?);
            let ep = rig.ep_on(srq)?;
            for id in 0..3 {
                ok(rig.recv_srq(srq, &[memory.all()], id))?;
            }
            counts(rig, ep.ep, 0, Some(0))
        },
    ),
    must(
        "dat_ep_recv_query/half-received",
        "DESCRIPTION 3",
        "dat_ep_recv_query counts a buffer into which a message is arriving, because the buffer \
         has not completed.",
        |rig| half_received(rig, || rig.ep(), |ep, to| rig.recv(ep.ep, to, 1)),
    ),
    must(
        "dat_ep_recv_query/half-received-of-srq",
        "DESCRIPTION 4",
        "dat_ep_recv_query counts a buffer of an SRQ into which a message for the EP is arriving.",
        |rig| {
            let srq = rig.srq(2)?;
            half_received(rig, || rig.ep_on(srq), |_, to| rig.recv_srq(srq, to, 1))
        },
    ),
    must(
        "dat_ep_recv_query/null-count",
        "DESCRIPTION 3",
        "The pointer of dat_ep_recv_query for the number of buffers may be null.",
        |rig| {
            let mut span = -7;
            supported(rig.api.dat_ep_recv_query(rig.ep()?.ep, null_mut(), &mut span))?;
            ensure(span >= 0 || span == DAT_VALUE_UNKNOWN, format_args!("the span is {span}"))
        },
    ),
    must(
        "dat_ep_recv_query/null-span",
        "DESCRIPTION 5",
        "The pointer of dat_ep_recv_query for the span of the buffers may be null.",
        |rig| {
            let mut buffers = -7;
            supported(rig.api.dat_ep_recv_query(rig.ep()?.ep, &mut buffers, null_mut()))?;
            ensure(
                buffers >= 0 || buffers == DAT_VALUE_UNKNOWN,
                format_args!("the number is {buffers}"),
            )
        },
    ),
    must(
        "dat_ep_recv_query/span-idle",
        "DESCRIPTION 5",
        "If an EP has an SRQ, the span covers the buffers of the messages that are arriving. It is \
         0 if no message is arriving.",
        |rig| {
            let (srq, memory, from) = (rig.srq(8)?, rig.memory(8)?, rig.memory(8)?);
            let pair = rig.pair_of(rig.ep()?, rig.ep_on(srq)?)?;
            for id in 0..3 {
                ok(rig.recv_srq(srq, &[memory.all()], id))?;
            }
            ok(rig.send(pair.active.ep, &[from.all()], 10))?;
            rig.completion(pair.passive.recv)?;
            counts(rig, pair.passive.ep, 0, Some(0))
        },
    ),
    must(
        "dat_ep_recv_query/unknown",
        "DESCRIPTION 8",
        "If the provider does not know a count, dat_ep_recv_query returns DAT_VALUE_UNKNOWN. No \
         known count is negative.",
        |rig| {
            let (buffers, span) = ask(rig, rig.ep()?.ep)?;
            for (what, value) in [("the number", buffers), ("the span", span)] {
                ensure(
                    value >= 0 || value == DAT_VALUE_UNKNOWN,
                    format_args!("{what} is {value}"),
                )?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_recv_query/attribute",
        "USAGE 1",
        "If ep_recv_info_supported does not list a count, dat_ep_recv_query returns \
         DAT_VALUE_UNKNOWN for it, with and without an SRQ. It returns each count that the \
         attribute lists.",
        |rig| {
            let mut eps = vec![rig.ep()?];
            if rig.provider.srq_supported != DAT_FALSE {
                eps.push(rig.ep_on(rig.srq(2)?)?);
            }
            for ep in eps {
                let (buffers, span) = ask(rig, ep.ep)?;
                let known = usize::from(buffers != DAT_VALUE_UNKNOWN)
                    + usize::from(span != DAT_VALUE_UNKNOWN);
                let supported_count =
                    (rig.provider.ep_recv_info_supported as u32).count_ones() as usize;
                ensure_equal(
                    "the number of bits that are set in ep_recv_info_supported",
                    supported_count,
                    known,
                )?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_recv_query/never-more-than-span",
        "USAGE 7",
        "The number of buffers never exceeds the span of the buffers, even if messages arrive \
         during the query.",
        |rig| {
            let (srq, memory, from) = (rig.srq(16)?, rig.memory(8)?, rig.memory(8)?);
            let pair = rig.pair_of(rig.ep()?, rig.ep_on(srq)?)?;
            for id in 0..12 {
                ok(rig.recv_srq(srq, &[memory.all()], id))?;
            }
            for id in 0..12 {
                ok(rig.send(pair.active.ep, &[from.all()], id))?;
                let (buffers, span) = ask(rig, pair.passive.ep)?;
                if buffers == DAT_VALUE_UNKNOWN || span == DAT_VALUE_UNKNOWN {
                    return unsupported("the provider reports only one of the counts");
                }
                ensure(buffers <= span, format_args!("{buffers} buffers in a span of {span}"))?;
            }
            for _ in 0..12 {
                rig.completion(pair.passive.recv)?;
            }
            counts(rig, pair.passive.ep, 0, Some(0))
        },
    ),
    must(
        "dat_ep_recv_query/changes-nothing",
        "DESCRIPTION 1",
        "A second dat_ep_recv_query returns the same counts as the first, and posted receives stay \
         posted.",
        |rig| {
            let (pair, from, to) = (rig.pair()?, rig.memory(8)?, rig.memory(8)?);
            ok(rig.recv(pair.passive.ep, &[to.all()], 1))?;
            ensure_equal(
                "the second answer",
                ask(rig, pair.passive.ep)?,
                ask(rig, pair.passive.ep)?,
            )?;
            ok(rig.send(pair.active.ep, &[from.all()], 2))?;
            rig.completes(pair.passive.recv, 1, DAT_DTO_SUCCESS).map(drop)
        },
    ),
    must(
        "dat_ep_recv_query/null-handle",
        "RETURN VALUES 3",
        "A null EP handle is refused.",
        |rig| with_handle(rig, DAT_HANDLE_NULL),
    ),
    must(
        "dat_ep_recv_query/freed-handle",
        "RETURN VALUES 3",
        "The handle of a freed EP is refused.",
        |rig| {
            let ep = rig.ep()?.ep;
            ok(rig.api.dat_ep_free(ep))?;
            with_handle(rig, ep)
        },
    ),
    must(
        "dat_ep_recv_query/other-kind-of-handle",
        "RETURN VALUES 3",
        "dat_ep_recv_query refuses the handle of an object that is not an EP.",
        |rig| with_handle(rig, rig.pz()?),
    ),
];

/// Returns both counts of dat_ep_recv_query.
#[track_caller]
fn ask(rig: &Rig, ep: DAT_EP_HANDLE) -> Outcome<(DAT_COUNT, DAT_COUNT)> {
    let (mut buffers, mut span) = (-7, -7);
    supported(rig.api.dat_ep_recv_query(ep, &mut buffers, &mut span))?;
    Ok((buffers, span))
}

/// The size of a message in octets. The message is so large that its sender can be stopped before
/// all of it has arrived.
const LONG: u32 = 32 << 20;
/// The number of attempts. If the sender was stopped too late, the next attempt sends another
/// message.
const TRIES: u32 = 20;

/// Checks that one buffer is counted while a message has arrived only in part. The sender of the
/// message is stopped.
fn half_received(
    rig: &Rig,
    ep: impl Fn() -> Outcome<Ep>,
    post: impl Fn(&Ep, &[DAT_LMR_TRIPLET]) -> DAT_RETURN,
) -> Outcome {
    let to = rig.memory(LONG)?;
    for _ in 0..TRIES {
        to.store(0, &[0]);
        to.store(LONG - 1, &[0]);
        let (ep, mut peer) = rig.connect_to_peer_process(ep()?)?;
        ok(post(&ep, &[to.all()]))?;
        peer.send(LONG)?;
        // The query of the EVD lets the provider make progress. It does not dequeue the completion.
        while to.load(0, 1) == [0] {
            rig.state(ep.ep)?;
        }
        peer.stop_process()?;
        let requested = counts(rig, ep.ep, 1, Some(1));
        if to.load(LONG - 1, 1) == [0] {
            requested?;
            ok(rig.api.dat_ep_disconnect(ep.ep, DAT_CLOSE_ABRUPT_FLAG))?;
            rig.completes(ep.recv, 1, DAT_DTO_ERR_FLUSHED)?;
            return counts(rig, ep.ep, 0, Some(0));
        }
        rig.completes(ep.recv, 1, DAT_DTO_SUCCESS)?;
    }
    unsupported("no query found a message that had arrived only in part")
}

/// Checks that the EP has this number of buffers and this span. A count that the provider does not
/// know is not checked.
#[track_caller]
fn counts(rig: &Rig, ep: DAT_EP_HANDLE, buffers: DAT_COUNT, span: Option<DAT_COUNT>) -> Outcome {
    let (is, is_span) = ask(rig, ep)?;
    if is != DAT_VALUE_UNKNOWN {
        ensure_equal("the number of buffers", is, buffers)?;
    }
    match span {
        Some(span) if is_span != DAT_VALUE_UNKNOWN => ensure_equal("the span", is_span, span),
        _ => Ok(()),
    }
}

#[track_caller]
fn with_handle(rig: &Rig, ep: DAT_EP_HANDLE) -> Outcome {
    answers(rig.api.dat_ep_recv_query(ep, &mut 0, &mut 0), DAT_INVALID_HANDLE)
}
