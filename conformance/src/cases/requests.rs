//! Functions that make and check requests, for use by the cases of several files.

use dat_sys::*;

use crate::check::{Outcome, ensure_equal, ok};
use crate::rig::{Ep, Pair, Region, Rig, cookie};

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
    if answer != DAT_SUCCESS {
        return rig.answers_or(answer, kind, MEMORY);
    }
    ensure_equal(
        "the status of the completion",
        rig.completion(end.request)?.status,
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
