//! Cases about statuses that the manual pages list and that no other file tests.

use std::ptr::{null, null_mut};

use dat_sys::*;

use super::bad_requests::{self, refused_or_fails};
use crate::case::{Row, must};
use crate::check::{Outcome, answers, ok, unsupported};
use crate::rig::{Rig, cookie, event_timeout_us};

const NONE: DAT_HANDLE = DAT_HANDLE_NULL;
/// A mask bit that only the mask for endpoints defines.
const STRANGE: u32 = 0x4000_0000;

/// Returns the case `null-handle` of a function: this call of the function with a null handle must
/// be refused.
macro_rules! null_handle {
    ($function:literal, |$rig:ident| $call:expr) => {
        must(
            concat!($function, "/null-handle"),
            "RETURN VALUES: invalid handle",
            "A null handle is refused.",
            |$rig| answers($call, DAT_INVALID_HANDLE),
        )
    };
}

pub(super) const CASES: &[Row] = &[
    // ---- Handles ----
    null_handle!("dat_cno_query", |rig| rig.api.dat_cno_query(
        NONE,
        DAT_CNO_FIELD_ALL,
        &mut DAT_CNO_PARAM::zeroed()
    )),
    null_handle!("dat_cno_free", |rig| rig.api.dat_cno_free(NONE)),
    null_handle!("dat_cno_modify_agent", |rig| rig
        .api
        .dat_cno_modify_agent(NONE, DAT_OS_WAIT_PROXY_AGENT::zeroed())),
    null_handle!("dat_cr_query", |rig| rig.api.dat_cr_query(
        NONE,
        DAT_CR_FIELD_ALL,
        &mut DAT_CR_PARAM::zeroed()
    )),
    null_handle!("dat_cr_accept", |rig| rig.accept(NONE, rig.ep()?.ep, b"")),
    null_handle!("dat_cr_reject", |rig| rig.api.dat_cr_reject(NONE, 0, null_mut())),
    null_handle!("dat_evd_enable", |rig| rig.api.dat_evd_enable(NONE)),
    null_handle!("dat_evd_disable", |rig| rig.api.dat_evd_disable(NONE)),
    null_handle!("dat_evd_set_unwaitable", |rig| rig.api.dat_evd_set_unwaitable(NONE)),
    null_handle!("dat_evd_clear_unwaitable", |rig| rig.api.dat_evd_clear_unwaitable(NONE)),
    null_handle!("dat_evd_modify_cno", |rig| rig.api.dat_evd_modify_cno(NONE, NONE)),
    null_handle!("dat_evd_post_se", |rig| rig.post_se(NONE, 1)),
    null_handle!("dat_evd_resize", |rig| rig.api.dat_evd_resize(NONE, 8)),
    null_handle!("dat_evd_free", |rig| rig.api.dat_evd_free(NONE)),
    null_handle!("dat_evd_query", |rig| rig.api.dat_evd_query(
        NONE,
        DAT_EVD_FIELD_ALL,
        &mut DAT_EVD_PARAM::zeroed()
    )),
    null_handle!("dat_ep_query", |rig| rig.api.dat_ep_query(
        NONE,
        DAT_EP_FIELD_ALL,
        &mut DAT_EP_PARAM::zeroed()
    )),
    null_handle!("dat_ep_get_status", |rig| rig
        .api
        .dat_ep_get_status(NONE, &mut 0, &mut 0, &mut 0)),
    null_handle!("dat_ep_disconnect", |rig| rig.api.dat_ep_disconnect(NONE, DAT_CLOSE_ABRUPT_FLAG)),
    null_handle!("dat_ep_dup_connect", |rig| rig.api.dat_ep_dup_connect(
        NONE,
        rig.ep()?.ep,
        event_timeout_us(),
        0,
        null_mut(),
        DAT_QOS_BEST_EFFORT,
    )),
    null_handle!("dat_ep_reset", |rig| rig.api.dat_ep_reset(NONE)),
    null_handle!("dat_ep_free", |rig| rig.api.dat_ep_free(NONE)),
    null_handle!("dat_ep_post_send", |rig| rig.send(NONE, &[], 1)),
    null_handle!("dat_ep_post_recv", |rig| rig.recv(NONE, &[], 1)),
    null_handle!("dat_ep_post_rdma_read", |rig| rig.read(NONE, &[], 1, &rig.memory(8)?.remote())),
    null_handle!("dat_lmr_create", |rig| rig.api.dat_lmr_create(
        NONE,
        DAT_MEM_TYPE_VIRTUAL,
        DAT_REGION_DESCRIPTION { for_va: rig.allocate(64) },
        64,
        rig.pz()?,
        DAT_MEM_PRIV_ALL_FLAG,
        DAT_VA_TYPE_VA,
        &mut null_mut(),
        &mut 0,
        &mut 0,
        &mut 0,
        &mut 0,
    )),
    null_handle!("dat_lmr_query", |rig| rig.api.dat_lmr_query(
        NONE,
        DAT_LMR_FIELD_ALL,
        &mut DAT_LMR_PARAM::zeroed()
    )),
    null_handle!("dat_lmr_free", |rig| rig.api.dat_lmr_free(NONE)),
    null_handle!("dat_lmr_sync_rdma_read", |rig| rig.api.dat_lmr_sync_rdma_read(
        NONE,
        &rig.memory(8)?.all(),
        1
    )),
    null_handle!("dat_lmr_sync_rdma_write", |rig| rig.api.dat_lmr_sync_rdma_write(
        NONE,
        &rig.memory(8)?.all(),
        1
    )),
    null_handle!("dat_rmr_create", |rig| rig.api.dat_rmr_create(NONE, &mut null_mut())),
    null_handle!("dat_rmr_query", |rig| rig.api.dat_rmr_query(
        NONE,
        DAT_RMR_FIELD_ALL,
        &mut DAT_RMR_PARAM::zeroed()
    )),
    null_handle!("dat_rmr_bind", |rig| bad_requests::bind(
        rig,
        NONE,
        &rig.memory(8)?,
        DAT_MEM_PRIV_ALL_FLAG,
        rig.ep()?.ep,
        1,
        &mut 0,
    )),
    null_handle!("dat_rmr_free", |rig| rig.api.dat_rmr_free(NONE)),
    null_handle!("dat_psp_create", |rig| rig.api.dat_psp_create(
        NONE,
        rig.free_qualifier()?,
        rig.evd(DAT_EVD_CR_FLAG)?,
        DAT_PSP_CONSUMER_FLAG,
        &mut null_mut(),
    )),
    null_handle!("dat_psp_create_any", |rig| rig.api.dat_psp_create_any(
        NONE,
        &mut 0,
        rig.evd(DAT_EVD_CR_FLAG)?,
        DAT_PSP_CONSUMER_FLAG,
        &mut null_mut(),
    )),
    null_handle!("dat_psp_query", |rig| rig.api.dat_psp_query(
        NONE,
        DAT_PSP_FIELD_ALL,
        &mut DAT_PSP_PARAM::zeroed()
    )),
    null_handle!("dat_psp_free", |rig| rig.api.dat_psp_free(NONE)),
    null_handle!("dat_rsp_create", |rig| rig.api.dat_rsp_create(
        rig.ia,
        rig.free_qualifier()?,
        NONE,
        rig.evd(DAT_EVD_CR_FLAG)?,
        &mut null_mut(),
    )),
    null_handle!("dat_rsp_query", |rig| rig.api.dat_rsp_query(
        NONE,
        DAT_RSP_FIELD_ALL,
        &mut DAT_RSP_PARAM::zeroed()
    )),
    null_handle!("dat_rsp_free", |rig| rig.api.dat_rsp_free(NONE)),
    null_handle!("dat_pz_create", |rig| rig.api.dat_pz_create(NONE, &mut null_mut())),
    null_handle!("dat_pz_query", |rig| rig.api.dat_pz_query(
        NONE,
        DAT_PZ_FIELD_ALL,
        &mut DAT_PZ_PARAM::zeroed()
    )),
    null_handle!("dat_pz_free", |rig| rig.api.dat_pz_free(NONE)),
    null_handle!("dat_srq_query", |rig| rig.api.dat_srq_query(
        NONE,
        DAT_SRQ_FIELD_ALL,
        &mut DAT_SRQ_PARAM::zeroed()
    )),
    null_handle!("dat_srq_resize", |rig| rig.api.dat_srq_resize(NONE, 8)),
    null_handle!("dat_srq_set_lw", |rig| rig.api.dat_srq_set_lw(NONE, 1)),
    null_handle!("dat_srq_free", |rig| rig.api.dat_srq_free(NONE)),
    null_handle!("dat_ia_close", |rig| rig.api.dat_ia_close(NONE, DAT_CLOSE_ABRUPT_FLAG)),
    // ---- Masks ----
    must(
        "dat_cno_query/unknown-field",
        "RETURN VALUES: invalid parameter",
        "dat_cno_query refuses a mask with an undefined bit.",
        |rig| {
            answers(
                rig.api.dat_cno_query(rig.cno()?, STRANGE, &mut DAT_CNO_PARAM::zeroed()),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_cr_query/unknown-field",
        "RETURN VALUES: invalid parameter",
        "dat_cr_query refuses a mask with an undefined bit.",
        |rig| {
            answers(
                rig.api.dat_cr_query(rig.request(b"")?.1.cr, STRANGE, &mut DAT_CR_PARAM::zeroed()),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_evd_query/unknown-field",
        "RETURN VALUES: invalid parameter",
        "dat_evd_query refuses a mask with an undefined bit.",
        |rig| {
            answers(
                rig.api.dat_evd_query(
                    rig.evd(DAT_EVD_DTO_FLAG)?,
                    STRANGE,
                    &mut DAT_EVD_PARAM::zeroed(),
                ),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_ep_query/unknown-field",
        "RETURN VALUES: invalid parameter",
        "dat_ep_query refuses a mask with an undefined bit.",
        |rig| {
            answers(
                rig.api.dat_ep_query(
                    rig.ep()?.ep,
                    DAT_EP_FIELD_ALL + 1,
                    &mut DAT_EP_PARAM::zeroed(),
                ),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_lmr_query/unknown-field",
        "RETURN VALUES: invalid parameter",
        "dat_lmr_query refuses a mask with an undefined bit.",
        |rig| {
            answers(
                rig.api.dat_lmr_query(rig.memory(8)?.lmr, STRANGE, &mut DAT_LMR_PARAM::zeroed()),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_rmr_query/unknown-field",
        "RETURN VALUES: invalid parameter",
        "dat_rmr_query refuses a mask with an undefined bit.",
        |rig| {
            answers(
                rig.api.dat_rmr_query(rig.rmr()?, STRANGE, &mut DAT_RMR_PARAM::zeroed()),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_psp_query/unknown-field",
        "RETURN VALUES: invalid parameter",
        "dat_psp_query refuses a mask with an undefined bit.",
        |rig| {
            answers(
                rig.api.dat_psp_query(rig.listen()?.psp, STRANGE, &mut DAT_PSP_PARAM::zeroed()),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_rsp_query/unknown-field",
        "RETURN VALUES: invalid parameter",
        "dat_rsp_query refuses a mask with an undefined bit.",
        |rig| {
            answers(
                rig.api.dat_rsp_query(reserved(rig)?, STRANGE, &mut DAT_RSP_PARAM::zeroed()),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_pz_query/unknown-field",
        "RETURN VALUES: invalid parameter",
        "dat_pz_query refuses a mask with an undefined bit.",
        |rig| {
            answers(
                rig.api.dat_pz_query(rig.pz()?, STRANGE, &mut DAT_PZ_PARAM::zeroed()),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_srq_query/unknown-field",
        "RETURN VALUES: invalid parameter",
        "dat_srq_query refuses a mask with an undefined bit.",
        |rig| {
            answers(
                rig.api.dat_srq_query(rig.srq(4)?, STRANGE, &mut DAT_SRQ_PARAM::zeroed()),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    // ---- Other arguments ----
    must(
        "dat_pz_create/null-out",
        "RETURN VALUES: invalid parameter",
        "If the pointer for the new handle is null, dat_pz_create fails and creates no zone.",
        |rig| answers(rig.api.dat_pz_create(rig.ia, null_mut()), DAT_INVALID_PARAMETER),
    ),
    must(
        "dat_cno_create/null-out",
        "RETURN VALUES: invalid parameter",
        "If the pointer for the new handle is null, dat_cno_create fails and creates no CNO.",
        |rig| {
            answers(
                rig.api.dat_cno_create(rig.ia, DAT_OS_WAIT_PROXY_AGENT::zeroed(), null_mut()),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_psp_create/unknown-flags",
        "RETURN VALUES: invalid parameter",
        "dat_psp_create refuses flags that do not name a kind of service point.",
        |rig| {
            answers(
                rig.api.dat_psp_create(
                    rig.ia,
                    rig.free_qualifier()?,
                    rig.evd(DAT_EVD_CR_FLAG)?,
                    0x40,
                    &mut null_mut(),
                ),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_psp_create_any/unknown-flags",
        "RETURN VALUES: invalid parameter",
        "dat_psp_create_any refuses flags that do not name a kind of service point.",
        |rig| {
            answers(
                rig.api.dat_psp_create_any(
                    rig.ia,
                    &mut 0,
                    rig.evd(DAT_EVD_CR_FLAG)?,
                    0x40,
                    &mut null_mut(),
                ),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_rsp_create/qualifier-in-use",
        "RETURN VALUES",
        "No RSP can be created with a qualifier on which a service point listens.",
        |rig| {
            answers(
                rig.api.dat_rsp_create(
                    rig.ia,
                    rig.listen()?.qualifier,
                    rig.ep()?.ep,
                    rig.evd(DAT_EVD_CR_FLAG)?,
                    &mut null_mut(),
                ),
                DAT_CONN_QUAL_IN_USE,
            )
        },
    ),
    must(
        "dat_ep_set_watermark/negative",
        "RETURN VALUES: invalid parameter",
        "dat_ep_set_watermark refuses a negative watermark, except for DAT_WATERMARK_INFINITE.",
        |rig| {
            answers(
                rig.api.dat_ep_set_watermark(rig.ep()?.ep, -5, DAT_WATERMARK_INFINITE),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_srq_resize/negative",
        "RETURN VALUES: invalid parameter",
        "dat_srq_resize refuses a negative queue length.",
        |rig| answers(rig.api.dat_srq_resize(rig.srq(4)?, -1), DAT_INVALID_PARAMETER),
    ),
    must(
        "dat_evd_resize/negative",
        "RETURN VALUES: invalid parameter",
        "dat_evd_resize refuses a negative queue length.",
        |rig| {
            answers(rig.api.dat_evd_resize(rig.evd(DAT_EVD_DTO_FLAG)?, -1), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_evd_resize/too-long",
        "RETURN VALUES: insufficient resources",
        "dat_evd_resize refuses a queue length above the adapter's limit.",
        |rig| {
            answers(
                rig.api.dat_evd_resize(rig.evd(DAT_EVD_DTO_FLAG)?, beyond(rig.attr.max_evd_qlen)?),
                DAT_INSUFFICIENT_RESOURCES,
            )
        },
    ),
    must(
        "dat_srq_resize/too-long",
        "RETURN VALUES: insufficient resources",
        "dat_srq_resize refuses a queue length above the adapter's limit.",
        |rig| {
            answers(
                rig.api.dat_srq_resize(rig.srq(4)?, beyond(rig.attr.max_recv_per_srq)?),
                DAT_INSUFFICIENT_RESOURCES,
            )
        },
    ),
    must(
        "dat_strerror/unknown-status",
        "RETURN VALUES",
        "dat_strerror refuses a status that the standard does not define.",
        |rig| {
            answers(
                rig.api.dat_strerror(DAT_ERROR(0x3ff_0000, 0), &mut null(), &mut null()),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    null_handle!("dat_set_consumer_context", |rig| rig
        .api
        .dat_set_consumer_context(NONE, cookie(1))),
    must(
        "dat_cr_handoff/no-qualifier",
        "RETURN VALUES: invalid parameter",
        "dat_cr_handoff refuses qualifier 0, and the request stays pending.",
        |rig| {
            let (caller, arrival) = rig.request(b"")?;
            answers(rig.api.dat_cr_handoff(arrival.cr, 0), DAT_INVALID_PARAMETER)?;
            ok(rig.accept(arrival.cr, rig.ep()?.ep, b""))?;
            rig.connection(caller.connect, DAT_CONNECTION_EVENT_ESTABLISHED).map(drop)
        },
    ),
    must(
        "dat_ep_dup_connect/impossible",
        "RETURN VALUES: invalid parameter, model not supported",
        "dat_ep_dup_connect refuses too much private data, and a quality of service that the \
         provider does not support.",
        |rig| {
            let (pair, ep) = (rig.pair()?, rig.ep()?);
            let more = rig.provider.max_private_data_size.saturating_add(1);
            let data = rig.allocate(more as usize);
            let dup = |size, data, qos| {
                rig.api.dat_ep_dup_connect(
                    ep.ep,
                    pair.active.ep,
                    event_timeout_us(),
                    size,
                    data,
                    qos,
                )
            };
            answers(dup(more, data, DAT_QOS_BEST_EFFORT), DAT_INVALID_PARAMETER)?;
            rig.state_is(ep.ep, DAT_EP_STATE_UNCONNECTED)?;
            if rig.provider.dat_qos_supported & DAT_QOS_PREMIUM != 0 {
                return Ok(());
            }
            answers(dup(0, null_mut(), DAT_QOS_PREMIUM), DAT_MODEL_NOT_SUPPORTED)?;
            rig.state_is(ep.ep, DAT_EP_STATE_UNCONNECTED)
        },
    ),
    must(
        "dat_registry_add_provider/null-arguments",
        "RETURN VALUES: invalid parameter",
        "dat_registry_add_provider refuses null pointers for the function table and for the \
         description.",
        |rig| {
            let (table, info) = (DAT_PROVIDER::zeroed(), DAT_PROVIDER_INFO::zeroed());
            answers(rig.api.dat_registry_add_provider(null(), &info), DAT_INVALID_PARAMETER)?;
            answers(rig.api.dat_registry_add_provider(&table, null()), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_srq_resize/below-low-watermark",
        "RETURN VALUES: invalid state",
        "dat_srq_resize cannot make an SRQ shorter than its low watermark.",
        |rig| {
            let srq = rig.srq(8)?;
            ok(rig.api.dat_srq_set_lw(srq, 4))?;
            answers(rig.api.dat_srq_resize(srq, 3), DAT_INVALID_STATE)
        },
    ),
    must(
        "dat_srq_post_recv/other-pz",
        "RETURN VALUES: protection violation",
        "A receive of an SRQ into memory of another zone than the SRQ's is a protection violation.",
        |rig| {
            let (srq, memory) =
                (rig.srq(3)?, rig.memory_with(rig.new_pz()?, 8, DAT_MEM_PRIV_ALL_FLAG)?);
            let pair = rig.pair_of(rig.ep()?, rig.ep_on(srq)?)?;
            let answer = rig.recv_srq(srq, &[memory.all()], 1);
            bad_requests::refused_or_takes_nothing(
                rig,
                answer,
                DAT_PROTECTION_VIOLATION,
                pair,
                &memory,
            )
        },
    ),
    must(
        "dat_ep_post_rdma_read/local-memory",
        "RETURN VALUES: protection and privileges violation, invalid parameter",
        "dat_ep_post_rdma_read refuses a local segment of another zone, without the local write \
         privilege, of a freed LMR, or outside of its LMR.",
        |rig| {
            let far = rig.memory(8)?;
            let (outside, freed) = (rig.memory(8)?.part(4, 8), rig.memory(8)?);
            ok(rig.api.dat_lmr_free(freed.lmr))?;
            let strange = rig.memory_with(rig.new_pz()?, 8, DAT_MEM_PRIV_ALL_FLAG)?;
            let read_only = rig.memory_with(rig.pz()?, 8, DAT_MEM_PRIV_LOCAL_READ_FLAG)?;
            for (segment, kind) in [
                (outside, DAT_INVALID_PARAMETER),
                (freed.all(), DAT_PRIVILEGES_VIOLATION),
                (strange.all(), DAT_PROTECTION_VIOLATION),
                (read_only.all(), DAT_PRIVILEGES_VIOLATION),
            ] {
                let pair = rig.pair()?;
                let answer = rig.read(pair.active.ep, &[segment], 1, &far.remote());
                refused_or_fails(rig, answer, kind, pair.active)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_post_rdma_read/too-many",
        "RETURN VALUES: insufficient resources",
        "dat_ep_post_rdma_read refuses a read if the EP has no free slot for a request.",
        |rig| {
            let (pair, near, far) = (rig.ended_pair()?, rig.memory(8)?, rig.memory(8)?);
            let max = rig.query(pair.active.ep)?.ep_attr.max_request_dtos;
            if max >= crate::rig::EVD_QUEUE_LENGTH {
                return unsupported("the EP accepts more requests than an EVD can hold events");
            }
            let read = |id| rig.read(pair.active.ep, &[near.all()], id, &far.remote());
            (0..max).try_for_each(|id| ok(read(id as u64)))?;
            answers(read(99), DAT_INSUFFICIENT_RESOURCES)
        },
    ),
];

/// Creates a reserved service point (RSP).
fn reserved(rig: &Rig) -> Outcome<DAT_RSP_HANDLE> {
    let (evd, mut rsp) = (rig.evd(DAT_EVD_CR_FLAG)?, null_mut());
    ok(rig.api.dat_rsp_create(rig.ia, rig.free_qualifier()?, rig.ep()?.ep, evd, &mut rsp))?;
    Ok(rsp)
}

/// Returns a number that is one above a limit.
fn beyond(limit: DAT_COUNT) -> Outcome<DAT_COUNT> {
    match limit.checked_add(1) {
        Some(more) => Ok(more),
        None => unsupported("there is no number above the limit"),
    }
}
