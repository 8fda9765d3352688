//! Cases about posts that must be refused, and that no other file tests.

use std::ptr::null_mut;

use dat_sys::*;

use super::bad_requests::{freed, refused_or_fails, strange, too_many, unreadable};
use super::ep_states::reach::{WITHOUT_ZONE, reach};
use crate::case::{Row, must, should};
use crate::check::{Outcome, answers, ok, supported};
use crate::rig::{Rig, cookie};

const NONE: DAT_HANDLE = DAT_HANDLE_NULL;
const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;
/// Completion flags that the standard does not define.
const UNKNOWN_FLAGS: DAT_COMPLETION_FLAGS = 0x4000;

pub(super) const CASES: &[Row] = &[
    must(
        "dat_ep_post_send/no-local-read",
        "RETURN VALUES: privileges violation",
        "A send from memory without the local read privilege is a privileges violation.",
        |rig| {
            let (pair, to) = (rig.pair()?, rig.memory(8)?);
            let from = rig.memory_with(rig.pz()?, 8, DAT_MEM_PRIV_LOCAL_WRITE_FLAG)?;
            ok(rig.recv(pair.passive.ep, &[to.all()], 1))?;
            unreadable(rig, rig.send(pair.active.ep, &[from.all()], 2))
        },
    ),
    should(
        "dat_ep_post_recv/no-zone",
        "dat_ep_create, DESCRIPTION: no zone",
        "A receive cannot be posted to an EP without a zone, because no memory belongs to its zone.",
        |rig| {
            for state in WITHOUT_ZONE {
                let answer = rig.recv(reach(rig, state)?.ep, &[rig.memory(8)?.all()], 1);
                rig.answers_or(answer, DAT_INVALID_STATE, &[DAT_PROTECTION_VIOLATION])?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_post_rdma_read/null-remote-buffer",
        "RETURN VALUES: invalid parameter",
        "dat_ep_post_rdma_read refuses a null pointer for the remote buffer.",
        |rig| {
            let (pair, mut iov) = (rig.pair()?, [rig.memory(8)?.all()]);
            let (ep, at) = (pair.active.ep, iov.as_mut_ptr());
            answers(
                rig.api.dat_ep_post_rdma_read(ep, 1, at, cookie(1), null_mut(), DEFAULT),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_ep_post_rdma_read/unknown-flags",
        "RETURN VALUES: invalid parameter",
        "dat_ep_post_rdma_read refuses completion flags that the standard does not define.",
        |rig| {
            let (pair, mut iov, far) = (rig.pair()?, [rig.memory(8)?.all()], rig.memory(8)?);
            let (ep, at, id, flags) = (pair.active.ep, iov.as_mut_ptr(), cookie(1), UNKNOWN_FLAGS);
            answers(
                rig.api.dat_ep_post_rdma_read(ep, 1, at, id, &far.remote(), flags),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    // ---- Sends that invalidate ----
    must(
        "dat_ep_post_send_with_invalidate/bad-arguments",
        "2.0: as dat_ep_post_send, RETURN VALUES",
        "dat_ep_post_send_with_invalidate refuses a null handle, a negative number of segments, a \
         null pointer for the segments, an undefined truth value, and the invalidation of the \
         context 0.",
        |rig| {
            let (ep, mut iov) = (rig.pair()?.active.ep, [rig.memory(8)?.all()]);
            let at = iov.as_mut_ptr();
            let send = |ep, count, iov, invalidate, context| {
                let (api, id) = (rig.api, cookie(1));
                api.dat_ep_post_send_with_invalidate(
                    ep, count, iov, id, DEFAULT, invalidate, context,
                )
            };
            answers(send(NONE, 1, at, DAT_FALSE, 0), DAT_INVALID_HANDLE)?;
            answers(send(ep, -1, at, DAT_FALSE, 0), DAT_INVALID_PARAMETER)?;
            answers(send(ep, 1, null_mut(), DAT_FALSE, 0), DAT_INVALID_PARAMETER)?;
            answers(send(ep, 1, at, 7, 0), DAT_INVALID_PARAMETER)?;
            answers(send(ep, 1, at, DAT_TRUE, 0), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ep_post_send_with_invalidate/unknown-flags",
        "2.0: as dat_ep_post_send, RETURN VALUES: invalid parameter",
        "dat_ep_post_send_with_invalidate refuses completion flags that the standard does not \
         define.",
        |rig| {
            let (pair, from) = (rig.pair()?, rig.memory(8)?);
            ok(rig.recv(pair.passive.ep, &[rig.memory(8)?.all()], 1))?;
            answers(
                send_with(rig, pair.active.ep, from.all(), UNKNOWN_FLAGS),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_ep_post_send_with_invalidate/too-long",
        "2.0: as dat_ep_post_send, RETURN VALUES: length error",
        "A message longer than the EP's max_message_size is a length error.",
        |rig| {
            let pair = rig.pair_with(&DAT_EP_ATTR { max_message_size: 8, ..rig.ep_attr() })?;
            ok(rig.recv(pair.passive.ep, &[rig.memory(9)?.all()], 1))?;
            rig.relaxed(
                send_with(rig, pair.active.ep, rig.memory(9)?.all(), DEFAULT),
                DAT_LENGTH_ERROR,
            )
        },
    ),
    must(
        "dat_ep_post_send_with_invalidate/too-many",
        "2.0: as dat_ep_post_send, RETURN VALUES: insufficient resources",
        "dat_ep_post_send_with_invalidate refuses a send if the EP has no free slot for a request.",
        |rig| {
            let from = rig.memory(8)?;
            too_many(rig, |ep| send_with(rig, ep, from.all(), DEFAULT))
        },
    ),
    must(
        "dat_ep_post_send_with_invalidate/local-memory",
        "2.0: as dat_ep_post_send, RETURN VALUES: protection and privileges violation",
        "dat_ep_post_send_with_invalidate refuses a segment of another zone or of a freed LMR, and \
         a segment without the local read privilege.",
        |rig| {
            let (strange, freed) = (strange(rig)?, freed(rig)?);
            for (segment, kind) in
                [(strange, DAT_PROTECTION_VIOLATION), (freed, DAT_PRIVILEGES_VIOLATION)]
            {
                let pair = rig.pair()?;
                let answer = send_with(rig, pair.active.ep, segment, DEFAULT);
                refused_or_fails(rig, answer, kind, pair.active)?;
            }
            let (pair, to) = (rig.pair()?, rig.memory(8)?);
            let from = rig.memory_with(rig.pz()?, 8, DAT_MEM_PRIV_LOCAL_WRITE_FLAG)?;
            ok(rig.recv(pair.passive.ep, &[to.all()], 1))?;
            unreadable(rig, send_with(rig, pair.active.ep, from.all(), DEFAULT))
        },
    ),
    // ---- Reads into the memory of an RMR ----
    must(
        "dat_ep_post_rdma_read_to_rmr/bad-arguments",
        "2.0: as dat_ep_post_rdma_read, RETURN VALUES",
        "dat_ep_post_rdma_read_to_rmr refuses a null handle, null pointers for both segments, a \
         local segment outside of its memory, and one that is shorter than the remote segment.",
        |rig| {
            let (ep, near, far) = (reader(rig)?, rig.memory(8)?, rig.memory(8)?);
            let read = |ep, local: *const _, remote: *const _| {
                rig.api.dat_ep_post_rdma_read_to_rmr(ep, local, cookie(1), remote, DEFAULT)
            };
            let (local, remote) = (near.remote(), far.remote());
            answers(read(NONE, &local, &remote), DAT_INVALID_HANDLE)?;
            answers(read(ep, null_mut(), &remote), DAT_INVALID_PARAMETER)?;
            answers(read(ep, &local, null_mut()), DAT_INVALID_PARAMETER)?;
            answers(read(ep, &near.remote_part(4, 8), &remote), DAT_INVALID_PARAMETER)?;
            answers(read(ep, &near.remote_part(0, 7), &remote), DAT_LENGTH_ERROR)
        },
    ),
    must(
        "dat_ep_post_rdma_read_to_rmr/unknown-flags",
        "2.0: as dat_ep_post_rdma_read, RETURN VALUES: invalid parameter",
        "dat_ep_post_rdma_read_to_rmr refuses completion flags that the standard does not define.",
        |rig| {
            let (ep, near, far) = (reader(rig)?, rig.memory(8)?.remote(), rig.memory(8)?.remote());
            answers(
                rig.api.dat_ep_post_rdma_read_to_rmr(ep, &near, cookie(1), &far, UNKNOWN_FLAGS),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_ep_post_rdma_read_to_rmr/too-many",
        "2.0: as dat_ep_post_rdma_read, RETURN VALUES: insufficient resources",
        "dat_ep_post_rdma_read_to_rmr refuses a read if the EP has no free slot for a request.",
        |rig| {
            reader(rig)?;
            let (near, far) = (rig.memory(8)?.remote(), rig.memory(8)?.remote());
            too_many(rig, |ep| {
                rig.api.dat_ep_post_rdma_read_to_rmr(ep, &near, cookie(1), &far, DEFAULT)
            })
        },
    ),
    must(
        "dat_ep_post_rdma_read_to_rmr/local-memory",
        "2.0: as dat_ep_post_rdma_read, RETURN VALUES: protection and privileges violation",
        "dat_ep_post_rdma_read_to_rmr refuses local memory of a freed LMR, of another zone, or \
         without the remote write privilege.",
        |rig| {
            let (ep, far, freed) = (reader(rig)?, rig.memory(8)?.remote(), rig.memory(8)?);
            let strange = rig.memory_with(rig.new_pz()?, 8, DAT_MEM_PRIV_ALL_FLAG)?;
            let privileges = DAT_MEM_PRIV_ALL_FLAG & !DAT_MEM_PRIV_REMOTE_WRITE_FLAG;
            let read_only = rig.memory_with(rig.pz()?, 8, privileges)?;
            ok(rig.api.dat_lmr_free(freed.lmr))?;
            let read =
                |local| rig.api.dat_ep_post_rdma_read_to_rmr(ep, &local, cookie(1), &far, DEFAULT);
            answers(read(freed.remote()), DAT_PRIVILEGES_VIOLATION)?;
            answers(read(strange.remote()), DAT_PROTECTION_VIOLATION)?;
            answers(read(read_only.remote()), DAT_PRIVILEGES_VIOLATION)
        },
    ),
];

/// Sends a segment without an invalidation.
fn send_with(
    rig: &Rig,
    ep: DAT_EP_HANDLE,
    segment: DAT_LMR_TRIPLET,
    flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    let (mut iov, id) = ([segment], cookie(1));
    rig.api.dat_ep_post_send_with_invalidate(ep, 1, iov.as_mut_ptr(), id, flags, DAT_FALSE, 0)
}

/// Returns a connected endpoint. If the provider cannot read into the memory of an RMR, the case is
/// unsupported.
fn reader(rig: &Rig) -> Outcome<DAT_EP_HANDLE> {
    let (pair, near, far) = (rig.pair()?, rig.memory(8)?.remote(), rig.memory(8)?.remote());
    let ep = pair.active.ep;
    supported(rig.api.dat_ep_post_rdma_read_to_rmr(ep, &near, cookie(9), &far, DEFAULT))?;
    rig.completes(pair.active.request, 9, DAT_DTO_SUCCESS)?;
    Ok(ep)
}
