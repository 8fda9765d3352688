//! Functions that make and check requests, for use by the cases of several files.

use dat_sys::*;

use crate::check::{Outcome, answers, ensure_equal, ok, one_of, unsupported};
use crate::rig::{EVD_QUEUE_LENGTH, Ep, Pair, Region, Rig, cookie, dto_completion};

/// Calls dat_rmr_bind to bind an RMR to a whole region, with virtual addresses.
pub(super) fn bind(
    rig: &Rig,
    rmr: DAT_RMR_HANDLE,
    region: &Region,
    privileges: DAT_MEM_PRIV_FLAGS,
    ep: DAT_EP_HANDLE,
    id: u64,
    context: &mut DAT_RMR_CONTEXT,
) -> DAT_RETURN {
    let (triplet, flags) = (region.all(), DAT_COMPLETION_DEFAULT_FLAG);
    let va = DAT_VA_TYPE_VA;
    rig.api.dat_rmr_bind(rmr, region.lmr, &triplet, privileges, va, ep, cookie(id), flags, context)
}

/// The types of status that a post may return if a device finds that it may not use the memory.
/// They are less precise than the types that the standard defines.
const MEMORY: &[DAT_RETURN_TYPE] =
    &[DAT_PRIVILEGES_VIOLATION, DAT_PROTECTION_VIOLATION, DAT_INVALID_PARAMETER];

/// Checks a request that names memory which it must not use. Either the post is refused with this
/// type of status, or the request fails when it completes.
#[track_caller]
pub(super) fn refused_or_fails(
    rig: &Rig,
    answer: DAT_RETURN,
    kind: DAT_RETURN_TYPE,
    end: Ep,
) -> Outcome {
    refused_or_fails_with(rig, answer, kind, end, DAT_DTO_COMPLETION_EVENT)
}

/// Does the same as [`refused_or_fails`] for a request whose completion has this event number.
#[track_caller]
pub(super) fn refused_or_fails_with(
    rig: &Rig,
    answer: DAT_RETURN,
    kind: DAT_RETURN_TYPE,
    end: Ep,
    event: DAT_EVENT_NUMBER,
) -> Outcome {
    if answer != DAT_SUCCESS {
        return rig.answers_or(answer, kind, MEMORY);
    }
    ensure_equal(
        "the status of the completion",
        dto_completion(&rig.expect(end.request, event)?).status,
        DAT_DTO_ERR_LOCAL_PROTECTION,
    )
}

/// Checks the receive with cookie 1, which names memory that it must not use. Either the post is
/// refused, or the receive fails when a message arrives. In the second case, no part of the message
/// may be written, and the connection must break.
#[track_caller]
pub(super) fn refused_or_takes_nothing(
    rig: &Rig,
    answer: DAT_RETURN,
    kind: DAT_RETURN_TYPE,
    pair: Pair,
    memory: &Region,
) -> Outcome {
    if answer != DAT_SUCCESS {
        return rig.answers_or(answer, kind, MEMORY);
    }
    let from = rig.memory(5)?;
    from.store(0, &[0xff; 5]);
    ok(rig.send(pair.active.ep, &[from.all()], 2))?;
    rig.completes(pair.passive.recv, 1, DAT_DTO_ERR_LOCAL_PROTECTION)?;
    rig.connection(pair.passive.connect, DAT_CONNECTION_EVENT_BROKEN)?;
    ensure_equal("the memory", memory.load(0, memory.length), vec![0; memory.length as usize])
}

/// Returns a local segment in memory of another zone than the endpoints'.
pub(super) fn strange(rig: &Rig) -> Outcome<DAT_LMR_TRIPLET> {
    Ok(rig.memory_with(rig.new_pz()?, 8, DAT_MEM_PRIV_ALL_FLAG)?.all())
}

/// Returns a local segment of an LMR that was freed.
pub(super) fn freed(rig: &Rig) -> Outcome<DAT_LMR_TRIPLET> {
    let region = rig.memory(8)?;
    ok(rig.api.dat_lmr_free(region.lmr))?;
    Ok(region.all())
}

/// Posts requests to a disconnected endpoint until all slots are occupied, because nobody takes the
/// completions. Then one more request must be refused.
pub(super) fn too_many(rig: &Rig, post: impl Fn(DAT_EP_HANDLE) -> DAT_RETURN) -> Outcome {
    let ep = rig.ended_pair()?.active.ep;
    let max = rig.query(ep)?.ep_attr.max_request_dtos;
    if max >= EVD_QUEUE_LENGTH {
        return unsupported("the EP accepts more requests than an EVD can hold events");
    }
    (0..max).try_for_each(|_| ok(post(ep)))?;
    answers(post(ep), DAT_INSUFFICIENT_RESOURCES)
}

/// Checks what the post of a segment without the local read privilege has returned.
pub(super) fn unreadable(rig: &Rig, answer: DAT_RETURN) -> Outcome {
    match rig.strict_attribute()? {
        Some(true) => answers(answer, DAT_PRIVILEGES_VIOLATION),
        Some(false) => ok(answer),
        // RDMA devices have no access right for local reads, so an adapter over verbs cannot refuse
        // the post.
        None => one_of(answer, &[DAT_SUCCESS, DAT_PRIVILEGES_VIOLATION]),
    }
}
