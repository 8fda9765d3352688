//! Cases about consumer notification objects (CNOs).

use std::ptr::null_mut;

use dat_sys::*;

use crate::case::{Row, must};
use crate::check::{Outcome, answers, ensure_equal, ok};
use crate::rig::{Rig, event_timeout_us, until};

pub(super) const CASES: &[Row] = &[
    must(
        "dat_cno_wait/triggered",
        "DESCRIPTION",
        "An event on an EVD of the CNO wakes the thread that waits on the CNO. dat_cno_wait \
         returns the EVD.",
        |rig| {
            let (cno, evd) = both(rig)?;
            ok(rig.post_se(evd, 1))?;
            ensure_equal("the EVD", wait(rig, cno, event_timeout_us())?, evd)
        },
    ),
    must(
        "dat_cno_wait/times-out",
        "RETURN VALUES",
        "If no event arrives in time, dat_cno_wait returns DAT_QUEUE_EMPTY and a null EVD.",
        |rig| {
            let (cno, _) = both(rig)?;
            let mut evd = rig.async_evd;
            answers(rig.api.dat_cno_wait(cno, 1000, &mut evd), DAT_QUEUE_EMPTY)?;
            ensure_equal("the EVD", evd, DAT_HANDLE_NULL)
        },
    ),
    must(
        "dat_cno_wait/each-evd",
        "DESCRIPTION",
        "If several EVDs of a CNO have events, successive calls of dat_cno_wait return each of \
         them.",
        |rig| {
            let (cno, one) = both(rig)?;
            let two = rig.evd_with(rig.ia, 8, cno, DAT_EVD_SOFTWARE_FLAG)?;
            ok(rig.post_se(one, 1))?;
            ok(rig.post_se(two, 1))?;
            let mut returned =
                [wait(rig, cno, event_timeout_us())?, wait(rig, cno, event_timeout_us())?];
            let mut wanted = [one, two];
            returned.sort();
            wanted.sort();
            ensure_equal("the EVDs", returned, wanted)
        },
    ),
    must(
        "dat_cno_wait/not-while-waited-for",
        "dat_evd_wait, DESCRIPTION",
        "An event that wakes a thread that waits on the EVD does not trigger the CNO of the EVD.",
        |rig| {
            let (cno, evd) = both(rig)?;
            ok(rig.while_waiting(evd, || ok(rig.post_se(evd, 1)))?)?;
            answers(rig.api.dat_cno_wait(cno, 0, &mut null_mut()), DAT_QUEUE_EMPTY)
        },
    ),
    must(
        "dat_cno_wait/completion",
        "DESCRIPTION",
        "The completion of a DTO on an EVD triggers the EVD's CNO.",
        |rig| {
            let cno = rig.cno()?;
            let pair = rig.pair()?;
            ok(rig.api.dat_evd_modify_cno(pair.passive.recv, cno))?;
            let (from, to) = (rig.memory(8)?, rig.memory(8)?);
            ok(rig.recv(pair.passive.ep, &[to.all()], 1))?;
            ok(rig.send(pair.active.ep, &[from.all()], 2))?;
            ensure_equal("the EVD", wait(rig, cno, event_timeout_us())?, pair.passive.recv)?;
            rig.completes(pair.passive.recv, 1, DAT_DTO_SUCCESS).map(drop)
        },
    ),
    must(
        "dat_cno_wait/unsignalled-completion",
        "DESCRIPTION",
        "An unsignalled completion does not trigger the CNO of its EVD. A signalled completion \
         does.",
        |rig| {
            let request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            let pair = rig.pair_with(&DAT_EP_ATTR { request_completion_flags, ..rig.ep_attr() })?;
            let (cno, from, to) = (rig.cno()?, rig.memory(8)?, rig.memory(8)?);
            ok(rig.api.dat_evd_modify_cno(pair.active.request, cno))?;
            let flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            ok(rig.write_with(pair.active.ep, &[from.all()], 1, &to.remote(), flags))?;
            // A completion triggers the CNO before it can be dequeued. So a trigger that has not
            // happened by now never will.
            let mut event = DAT_EVENT::zeroed();
            let dequeue =
                || rig.api.dat_evd_dequeue(pair.active.request, &mut event) == DAT_SUCCESS;
            until(dequeue, "the write completes")?;
            answers(rig.api.dat_cno_wait(cno, 0, &mut null_mut()), DAT_QUEUE_EMPTY)?;
            ok(rig.write(pair.active.ep, &[from.all()], 2, &to.remote()))?;
            ensure_equal("the EVD", wait(rig, cno, event_timeout_us())?, pair.active.request)?;
            rig.completes(pair.active.request, 2, DAT_DTO_SUCCESS).map(drop)
        },
    ),
    must(
        "dat_cno_wait/failed-unsignalled-completion",
        "dat_ep_post_rdma_read, DESCRIPTION: completion flags",
        "An unsignalled read that fails triggers the CNO of its EVD, although one that succeeds \
         does not.",
        |rig| {
            let request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            let pair = rig.pair_with(&DAT_EP_ATTR { request_completion_flags, ..rig.ep_attr() })?;
            let (cno, to) = (rig.cno()?, rig.memory(8)?);
            let unreadable = DAT_MEM_PRIV_ALL_FLAG & !DAT_MEM_PRIV_REMOTE_READ_FLAG;
            let from = rig.memory_with(rig.pz()?, 8, unreadable)?;
            ok(rig.api.dat_evd_modify_cno(pair.active.request, cno))?;
            // A write may have completed when the peer refuses it, because over iWARP it completes
            // when its data have left.
            let flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            ok(rig.read_with(pair.active.ep, &[to.all()], 1, &from.remote(), flags))?;
            ensure_equal("the EVD", wait(rig, cno, event_timeout_us())?, pair.active.request)
        },
    ),
    must(
        "dat_cno_wait/bad-handle",
        "RETURN VALUES",
        "A null handle, a freed handle and the handle of an object of another type are refused.",
        |rig| {
            let cno = rig.cno()?;
            ok(rig.api.dat_cno_free(cno))?;
            for cno in [DAT_HANDLE_NULL, cno, rig.pz()?] {
                answers(rig.api.dat_cno_wait(cno, 0, &mut null_mut()), DAT_INVALID_HANDLE)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_evd_disable/no-trigger",
        "DESCRIPTION",
        "Events on a disabled EVD are queued, but do not trigger the EVD's CNO.",
        |rig| {
            let (cno, evd) = both(rig)?;
            ok(rig.api.dat_evd_disable(evd))?;
            ensure_equal("the state", rig.query_evd(evd)?.evd_state & 0x3, DAT_EVD_STATE_DISABLED)?;
            ok(rig.post_se(evd, 1))?;
            answers(rig.api.dat_cno_wait(cno, 0, &mut null_mut()), DAT_QUEUE_EMPTY)?;
            rig.expect(evd, DAT_SOFTWARE_EVENT).map(drop)
        },
    ),
    must(
        "dat_evd_enable/triggers-again",
        "DESCRIPTION",
        "Events on an EVD that is enabled again trigger the EVD's CNO.",
        |rig| {
            let (cno, evd) = both(rig)?;
            ok(rig.api.dat_evd_disable(evd))?;
            ok(rig.api.dat_evd_enable(evd))?;
            ensure_equal("the state", rig.query_evd(evd)?.evd_state & 0x3, DAT_EVD_STATE_ENABLED)?;
            ok(rig.post_se(evd, 1))?;
            ensure_equal("the EVD", wait(rig, cno, event_timeout_us())?, evd)
        },
    ),
    must(
        "dat_evd_modify_cno/new-one-only",
        "DESCRIPTION",
        "An EVD is disabled, gets another CNO, and is enabled again. Its events then trigger only \
         the new CNO.",
        |rig| {
            let (old, evd) = both(rig)?;
            let new = rig.cno()?;
            ok(rig.api.dat_evd_disable(evd))?;
            ok(rig.api.dat_evd_modify_cno(evd, new))?;
            ok(rig.api.dat_evd_enable(evd))?;
            ensure_equal("cno_handle", rig.query_evd(evd)?.cno_handle, new)?;
            ok(rig.post_se(evd, 1))?;
            ensure_equal("the EVD", wait(rig, new, event_timeout_us())?, evd)?;
            answers(rig.api.dat_cno_wait(old, 0, &mut null_mut()), DAT_QUEUE_EMPTY)
        },
    ),
    must(
        "dat_evd_modify_cno/none",
        "DESCRIPTION",
        "If dat_evd_modify_cno gets a null CNO, the EVD has no CNO afterwards.",
        |rig| {
            let (cno, evd) = both(rig)?;
            ok(rig.api.dat_evd_modify_cno(evd, DAT_HANDLE_NULL))?;
            ok(rig.post_se(evd, 1))?;
            answers(rig.api.dat_cno_wait(cno, 0, &mut null_mut()), DAT_QUEUE_EMPTY)?;
            ok(rig.api.dat_cno_free(cno))
        },
    ),
    must(
        "dat_cno_free/in-use",
        "RETURN VALUES",
        "A CNO that an EVD triggers cannot be freed.",
        |rig| {
            let (cno, evd) = both(rig)?;
            answers(rig.api.dat_cno_free(cno), DAT_INVALID_STATE)?;
            ok(rig.api.dat_evd_free(evd))?;
            ok(rig.api.dat_cno_free(cno))
        },
    ),
    must(
        "dat_cno_query/parameters",
        "DESCRIPTION",
        "dat_cno_query returns the IA of the CNO. For a CNO without an agent, it returns no proxy.",
        |rig| {
            let mut param = DAT_CNO_PARAM::zeroed();
            ok(rig.api.dat_cno_query(rig.cno()?, DAT_CNO_FIELD_ALL, &mut param))?;
            ensure_equal("ia_handle", param.ia_handle, rig.ia)?;
            ensure_equal("proxy_type", param.proxy_type, DAT_PROXY_TYPE_NONE)
        },
    ),
    must(
        "dat_cno_create/bad-ia",
        "RETURN VALUES",
        "dat_cno_create refuses a null IA handle and a null pointer for the new handle.",
        |rig| {
            let none = DAT_OS_WAIT_PROXY_AGENT_NULL;
            answers(
                rig.api.dat_cno_create(DAT_HANDLE_NULL, none, &mut null_mut()),
                DAT_INVALID_HANDLE,
            )?;
            answers(rig.api.dat_cno_create(rig.ia, none, null_mut()), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_cno_trigger/wakes",
        "2.0 headers: dat_cno_trigger",
        "dat_cno_trigger triggers a CNO without an event, and returns the EVD that triggered the \
         CNO last.",
        |rig| {
            let (cno, evd) = both(rig)?;
            ok(rig.post_se(evd, 1))?;
            let mut returned = null_mut();
            ok(rig.api.dat_cno_trigger(cno, &mut returned))?;
            ensure_equal("the EVD", returned, evd)
        },
    ),
    must(
        "dat_cno_fd_create/descriptor",
        "2.0 headers: dat_cno_fd_create",
        "A CNO can be created with a file descriptor. dat_cno_query reports that the CNO has a \
         file descriptor.",
        |rig| {
            let (mut fd, mut cno) = (-1, null_mut());
            ok(rig.api.dat_cno_fd_create(rig.ia, &mut fd, &mut cno))?;
            crate::check::ensure(fd >= 0, format_args!("the descriptor is {fd}"))?;
            let mut param = DAT_CNO_PARAM::zeroed();
            ok(rig.api.dat_cno_query(cno, DAT_CNO_FIELD_ALL, &mut param))?;
            ensure_equal("proxy_type", param.proxy_type, DAT_PROXY_TYPE_FD)
        },
    ),
];

/// Creates a CNO and an EVD that triggers it.
fn both(rig: &Rig) -> Outcome<(DAT_CNO_HANDLE, DAT_EVD_HANDLE)> {
    let cno = rig.cno()?;
    Ok((cno, rig.evd_with(rig.ia, 8, cno, DAT_EVD_SOFTWARE_FLAG)?))
}

#[track_caller]
fn wait(rig: &Rig, cno: DAT_CNO_HANDLE, timeout: DAT_TIMEOUT) -> Outcome<DAT_EVD_HANDLE> {
    let mut evd = null_mut();
    ok(rig.api.dat_cno_wait(cno, timeout, &mut evd))?;
    Ok(evd)
}
