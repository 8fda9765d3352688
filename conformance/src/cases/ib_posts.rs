//! The posts of the IB extension: the calls, and cases about posts that must be refused.

use std::ptr::null;

use dat_sys::ib::*;
use dat_sys::*;

use super::bad_requests::{freed, refused_or_fails_with, strange, too_many, unreadable};
use super::extension::{CMP_SWAP, FETCH_ADD, IMMEDIATE, needs};
use crate::case::{Row, must};
use crate::check::{Outcome, answers, ok};
use crate::rig::{Region, Rig};

/// A kind of post of the IB extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IbPost {
    /// dat_ib_post_rdma_write_immed.
    WriteImmed,
    /// dat_ib_post_fetch_and_add.
    FetchAdd,
    /// dat_ib_post_cmp_and_swap.
    CmpSwap,
}

use IbPost::*;

const ALL: [IbPost; 3] = [WriteImmed, FetchAdd, CmpSwap];
const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

impl IbPost {
    /// Checks that the provider lists the operation. If it does not, the case is unsupported.
    pub(super) fn is_listed(self, rig: &Rig) -> Outcome {
        needs(
            rig,
            match self {
                WriteImmed => IMMEDIATE,
                FetchAdd => FETCH_ADD,
                CmpSwap => CMP_SWAP,
            },
        )
    }

    /// Posts the operation with one local and one remote segment.
    pub(super) fn post(
        self,
        rig: &Rig,
        ep: DAT_EP_HANDLE,
        local: *const DAT_LMR_TRIPLET,
        cookie: u64,
        remote: *const DAT_RMR_TRIPLET,
        flags: DAT_COMPLETION_FLAGS,
    ) -> DAT_RETURN {
        let (local, remote) = (local.expose_provenance() as u64, remote.expose_provenance() as u64);
        let flags = flags.into();
        let (op, words) = match self {
            WriteImmed => (DAT_IB_RDMA_WRITE_IMMED_OP, [1, local, cookie, remote, 7, flags]),
            FetchAdd => (DAT_IB_FETCH_AND_ADD_OP, [1, local, cookie, remote, flags, 0]),
            CmpSwap => (DAT_IB_CMP_AND_SWAP_OP, [0, 1, local, cookie, remote, flags]),
        };
        rig.api.dat_extension_op(ep, op, words)
    }
}

/// Registers memory for which all posts of the extension may be used.
pub(super) fn memory(rig: &Rig, length: u32) -> Outcome<Region> {
    let atomic = match FetchAdd.is_listed(rig) {
        Ok(()) => DAT_IB_MEM_PRIV_REMOTE_ATOMIC,
        Err(_) => 0,
    };
    rig.memory_with(rig.pz()?, length, DAT_MEM_PRIV_ALL_FLAG | atomic)
}

/// Runs a check for each of the posts. If the provider does not list one of them, the case is
/// unsupported.
fn each(rig: &Rig, posts: &[IbPost], check: impl Fn(IbPost) -> Outcome) -> Outcome {
    posts.iter().try_for_each(|post| post.is_listed(rig).and_then(|()| check(*post)))
}

pub(super) const CASES: &[Row] = &[
    must(
        "dat_extension_op/post-bad-arguments",
        "2.0: as dat_ep_post_rdma_write, RETURN VALUES",
        "Each post of the extension refuses a null handle, the handle of an object that is not an \
         EP, and null pointers for both segments.",
        |rig| {
            each(rig, &ALL, |post| {
                let (ep, zone) = (rig.pair()?.active.ep, rig.pz()?);
                let (near, far) = (rig.memory(8)?.all(), memory(rig, 8)?.remote());
                let post = |ep, local, remote| post.post(rig, ep, local, 1, remote, DEFAULT);
                answers(post(DAT_HANDLE_NULL, &near, &far), DAT_INVALID_HANDLE)?;
                answers(post(zone, &near, &far), DAT_INVALID_HANDLE)?;
                answers(post(ep, null(), &far), DAT_INVALID_PARAMETER)?;
                answers(post(ep, &near, null()), DAT_INVALID_PARAMETER)
            })
        },
    ),
    must(
        "dat_extension_op/write-immed-negative-count",
        "2.0: as dat_ep_post_rdma_write, RETURN VALUES: invalid parameter",
        "A write with immediate data cannot have a negative number of segments.",
        |rig| {
            WriteImmed.is_listed(rig)?;
            let (far, count) = (rig.memory(8)?.remote(), -1_i64 as u64);
            let far = (&raw const far).expose_provenance() as u64;
            let words = [count, 0, 1, far, 7, DEFAULT.into()];
            answers(
                rig.api.dat_extension_op(rig.pair()?.active.ep, DAT_IB_RDMA_WRITE_IMMED_OP, words),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_extension_op/post-unknown-flags",
        "2.0: as dat_ep_post_rdma_write, RETURN VALUES: invalid parameter",
        "Each post of the extension refuses completion flags that the standard does not define.",
        |rig| {
            each(rig, &ALL, |post| {
                let (pair, near, far) = (rig.pair()?, rig.memory(8)?, memory(rig, 8)?);
                ok(rig.recv(pair.passive.ep, &[], 2))?;
                answers(
                    post.post(rig, pair.active.ep, &near.all(), 1, &far.remote(), 0x4000),
                    DAT_INVALID_PARAMETER,
                )
            })
        },
    ),
    must(
        "dat_extension_op/cmp-and-swap-too-short",
        "2.0, dat_ib_post_cmp_and_swap",
        "A compare-and-swap with a local segment of fewer than 8 bytes is a length error.",
        |rig| {
            CmpSwap.is_listed(rig)?;
            let (ep, near, far) = (rig.pair()?.active.ep, rig.memory(8)?, memory(rig, 8)?);
            rig.answers_or(
                CmpSwap.post(rig, ep, &near.part(0, 7), 1, &far.remote(), DEFAULT),
                DAT_LENGTH_ERROR,
                &[DAT_INVALID_PARAMETER],
            )
        },
    ),
    must(
        "dat_extension_op/post-too-many",
        "2.0: as dat_ep_post_rdma_write, RETURN VALUES: insufficient resources",
        "Each post of the extension is refused if the EP has no free slot for a request.",
        |rig| {
            each(rig, &ALL, |post| {
                let (near, far) = (rig.memory(8)?.all(), memory(rig, 8)?.remote());
                too_many(rig, |ep| post.post(rig, ep, &near, 1, &far, DEFAULT))
            })
        },
    ),
    must(
        "dat_extension_op/post-local-memory",
        "2.0: as dat_ep_post_rdma_write, RETURN VALUES: protection and privileges violation",
        "Each post of the extension refuses a local segment of another zone and of a freed LMR.",
        |rig| {
            each(rig, &ALL, |post| {
                let far = memory(rig, 8)?.remote();
                for (segment, kind) in [
                    (strange(rig)?, DAT_PROTECTION_VIOLATION),
                    (freed(rig)?, DAT_PRIVILEGES_VIOLATION),
                ] {
                    let pair = rig.pair()?;
                    let answer = post.post(rig, pair.active.ep, &segment, 1, &far, DEFAULT);
                    refused_or_fails_with(rig, answer, kind, pair.active, DAT_IB_DTO_EVENT)?;
                }
                Ok(())
            })
        },
    ),
    must(
        "dat_extension_op/cmp-and-swap-no-local-write",
        "2.0: as dat_ep_post_rdma_read, RETURN VALUES: privileges violation",
        "A compare-and-swap refuses a local segment without the local write privilege.",
        |rig| {
            CmpSwap.is_listed(rig)?;
            let (pair, far) = (rig.pair()?, memory(rig, 8)?.remote());
            let near = rig.memory_with(rig.pz()?, 8, DAT_MEM_PRIV_LOCAL_READ_FLAG)?;
            let answer = CmpSwap.post(rig, pair.active.ep, &near.all(), 1, &far, DEFAULT);
            refused_or_fails_with(
                rig,
                answer,
                DAT_PRIVILEGES_VIOLATION,
                pair.active,
                DAT_IB_DTO_EVENT,
            )
        },
    ),
    must(
        "dat_extension_op/write-immed-no-local-read",
        "2.0: as dat_ep_post_rdma_write, RETURN VALUES: privileges violation",
        "A write with immediate data from memory without the local read privilege is a privileges \
         violation.",
        |rig| {
            WriteImmed.is_listed(rig)?;
            let (pair, far) = (rig.pair()?, rig.memory(8)?.remote());
            let near = rig.memory_with(rig.pz()?, 8, DAT_MEM_PRIV_LOCAL_WRITE_FLAG)?;
            ok(rig.recv(pair.passive.ep, &[], 2))?;
            unreadable(rig, WriteImmed.post(rig, pair.active.ep, &near.all(), 1, &far, DEFAULT))
        },
    ),
];
