//! Cases about threads that wait, about signals, and about proxy agents.

use std::ptr::null_mut;

use dat_sys::*;

use crate::case::{Row, must};
use crate::check::{answers, ensure, ensure_equal, failed, ok, unsupported};
use crate::rig::{AgentCalls, event_timeout_us};

pub(super) const CASES: &[Row] = &[
    must(
        "dat_evd_wait/interrupted",
        "RETURN VALUES: interrupted call",
        "A signal ends dat_evd_wait with DAT_INTERRUPTED_CALL. The wait dequeues no event.",
        |rig| {
            let evd = rig.evd(DAT_EVD_SOFTWARE_FLAG)?;
            let (api, number) = (rig.api, evd as usize);
            let answer = rig.interrupted(|| {
                let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
                api.dat_evd_wait(
                    number as DAT_EVD_HANDLE,
                    event_timeout_us(),
                    1,
                    &mut event,
                    &mut more,
                )
            })?;
            answers(answer, DAT_INTERRUPTED_CALL)?;
            ok(rig.post_se(evd, 1))?;
            rig.expect(evd, DAT_SOFTWARE_EVENT).map(drop)
        },
    ),
    must(
        "dat_evd_wait/unsignalled-completion",
        "DESCRIPTION",
        "An unsignalled completion does not end dat_evd_wait. The next signalled completion does, \
         and the EVD then has both.",
        |rig| {
            // The waiting thread may sleep for a short time before it looks for events. An attempt
            // during such a sleep proves nothing, so there are several attempts.
            const TRIES: usize = 50;
            let request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            let pair = rig.pair_with(&DAT_EP_ATTR { request_completion_flags, ..rig.ep_attr() })?;
            let (other, from, to) = (rig.pair()?, rig.memory(8)?, rig.memory(16)?);
            for _ in 0..TRIES {
                to.store(0, &[0; 8]);
                from.store(0, &[7; 8]);
                let (answer, more) = rig.while_waiting_beside(pair.active.request, || {
                    let (first, flags) = (to.remote_part(0, 8), DAT_COMPLETION_UNSIGNALLED_FLAG);
                    ok(rig.write_with(pair.active.ep, &[from.all()], 1, &first, flags))?;
                    while to.load(0, 8) != [7; 8] {
                        std::thread::yield_now();
                    }
                    // If the first event wakes the waiting thread, the thread runs before these
                    // later completions have all been dequeued.
                    for id in 0..20 {
                        ok(rig.write(other.active.ep, &[from.all()], id, &to.remote_part(8, 8)))?;
                        rig.completes(other.active.request, id, DAT_DTO_SUCCESS)?;
                    }
                    ok(rig.write(pair.active.ep, &[from.all()], 2, &first))
                })?;
                ok(answer)?;
                rig.completes(pair.active.request, 2, DAT_DTO_SUCCESS)?;
                if more == 1 {
                    return Ok(());
                }
            }
            Err(failed("the unsignalled completion ends the wait"))
        },
    ),
    must(
        "dat_evd_wait/failed-unsignalled-completion",
        "dat_ep_post_rdma_read, DESCRIPTION: completion flags",
        "An unsignalled read that fails ends dat_evd_wait, although one that succeeds does not.",
        |rig| {
            let request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            let pair = rig.pair_with(&DAT_EP_ATTR { request_completion_flags, ..rig.ep_attr() })?;
            let unreadable = DAT_MEM_PRIV_ALL_FLAG & !DAT_MEM_PRIV_REMOTE_READ_FLAG;
            let (from, to) = (rig.memory_with(rig.pz()?, 8, unreadable)?, rig.memory(8)?);
            let (answer, more) = rig.while_waiting_beside(pair.active.request, || {
                let flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
                ok(rig.read_with(pair.active.ep, &[to.all()], 1, &from.remote(), flags))
            })?;
            ok(answer)?;
            ensure_equal("the number of events left", more, 0)
        },
    ),
    must(
        "dat_cno_wait/interrupted",
        "RETURN VALUES: interrupted call",
        "A signal ends dat_cno_wait with DAT_INTERRUPTED_CALL.",
        |rig| {
            let (api, number) = (rig.api, rig.cno()? as usize);
            let answer = rig.interrupted(|| {
                api.dat_cno_wait(number as DAT_CNO_HANDLE, event_timeout_us(), &mut null_mut())
            })?;
            answers(answer, DAT_INTERRUPTED_CALL)
        },
    ),
    must(
        "dat_cno_wait/several-waiters",
        "DESCRIPTION",
        "If several threads wait on one CNO, each trigger ends the wait of one thread.",
        |rig| {
            let cno = rig.cno()?;
            let evd = || rig.evd_with(rig.ia, 8, cno, DAT_EVD_SOFTWARE_FLAG);
            let mut evds = [evd()?, evd()?, evd()?];
            let woken = rig.while_waiting_on_cno(cno, 3, || {
                evds.iter().try_for_each(|evd| ok(rig.post_se(*evd, 1)))
            })?;
            woken.iter().try_for_each(|(answer, _)| ok(*answer))?;
            let mut returned: Vec<_> = woken.into_iter().map(|(_, evd)| evd).collect();
            returned.sort();
            evds.sort();
            ensure_equal("the EVDs", returned, evds.to_vec())
        },
    ),
    must(
        "dat_ia_close/wakes-cno-waiters",
        "dat_cno_wait, DESCRIPTION",
        "When an adapter is closed, all threads that wait on its CNOs are woken and get no EVD.",
        |rig| {
            let (ia, mut cno) = (rig.other_ia()?, null_mut());
            ok(rig.api.dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &mut cno))?;
            rig.evd_with(ia, 8, cno, DAT_EVD_SOFTWARE_FLAG)?;
            let woken = rig.while_waiting_on_cno(cno, 2, || {
                ok(rig.api.dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG))
            })?;
            rig.forget_ia(ia);
            for (answer, evd) in woken {
                ensure(
                    DAT_GET_TYPE(answer) != DAT_QUEUE_EMPTY,
                    "the wait was not woken and timed out",
                )?;
                ensure_equal("the EVD", evd, DAT_HANDLE_NULL)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_evd_free/wakes-cno-waiters",
        "dat_cno_wait, DESCRIPTION",
        "When the last EVD of a CNO is freed, all threads that wait on the CNO are woken and its \
         agent is called, without an EVD.",
        |rig| {
            let ((agent, calls), mut cno) = (AgentCalls::agent(), null_mut());
            ok(rig.api.dat_cno_create(rig.ia, agent, &mut cno))?;
            let evd = || rig.evd_with(rig.ia, 8, cno, DAT_EVD_SOFTWARE_FLAG);
            let (first, last) = (evd()?, evd()?);
            let woken = rig.while_waiting_on_cno(cno, 2, || {
                ok(rig.api.dat_evd_free(first))?;
                ok(rig.api.dat_evd_free(last))
            })?;
            for (answer, evd) in woken {
                ensure(
                    DAT_GET_TYPE(answer) != DAT_QUEUE_EMPTY,
                    "the wait was not woken and timed out",
                )?;
                ensure_equal("the EVD", evd, DAT_HANDLE_NULL)?;
            }
            calls.until(1)?;
            ensure_equal("the agent's EVD", calls.last(), DAT_HANDLE_NULL)?;
            ensure_equal("the number of calls of the agent", calls.count(), 1)?;
            // Afterwards, the CNO and the adapter still work.
            let evd = evd()?;
            ok(rig.post_se(evd, 1))?;
            let mut returned = null_mut();
            ok(rig.api.dat_cno_wait(cno, event_timeout_us(), &mut returned))?;
            ensure_equal("the EVD", returned, evd)
        },
    ),
    must(
        "dat_cno_free/waited-for",
        "RETURN VALUES: invalid state",
        "A CNO on which threads wait cannot be freed.",
        |rig| {
            let cno = rig.cno()?;
            let evd = rig.evd(DAT_EVD_SOFTWARE_FLAG)?;
            let woken = rig.while_waiting_on_cno(cno, 1, || {
                answers(rig.api.dat_cno_free(cno), DAT_INVALID_STATE)?;
                ok(rig.api.dat_evd_modify_cno(evd, cno))?;
                ok(rig.post_se(evd, 1))
            })?;
            woken.iter().try_for_each(|(answer, _)| ok(*answer))?;
            ok(rig.api.dat_evd_free(evd))?;
            ok(rig.api.dat_cno_free(cno))
        },
    ),
    must(
        "dat_cno_create/agent",
        "DESCRIPTION: agent",
        "A trigger of a CNO calls the CNO's agent with the EVD, and also wakes a thread that waits \
         on the CNO.",
        |rig| {
            let ((agent, calls), mut cno) = (AgentCalls::agent(), null_mut());
            ok(rig.api.dat_cno_create(rig.ia, agent, &mut cno))?;
            let evd = rig.evd_with(rig.ia, 8, cno, DAT_EVD_SOFTWARE_FLAG)?;
            let woken = rig.while_waiting_on_cno(cno, 1, || ok(rig.post_se(evd, 1)))?;
            ensure_equal("the waiter's EVD", woken, vec![(DAT_SUCCESS, evd)])?;
            calls.until(1)?;
            ensure_equal("the agent's EVD", calls.last(), evd)
        },
    ),
    must(
        "dat_cno_modify_agent/any-trigger",
        "DESCRIPTION",
        "An agent that dat_cno_modify_agent gives to an existing CNO is called for every trigger, \
         until the agent is removed.",
        |rig| {
            let ((agent, calls), cno) = (AgentCalls::agent(), rig.cno()?);
            let evd = rig.evd_with(rig.ia, 8, cno, DAT_EVD_SOFTWARE_FLAG)?;
            ok(rig.api.dat_cno_modify_agent(cno, agent))?;
            for count in 1..=2 {
                ok(rig.post_se(evd, count))?;
                calls.until(count)?;
                rig.expect(evd, DAT_SOFTWARE_EVENT)?;
            }
            ok(rig.api.dat_cno_modify_agent(cno, DAT_OS_WAIT_PROXY_AGENT_NULL))?;
            let returned = calls.count();
            ok(rig.post_se(evd, 3))?;
            ensure_equal("the EVD", rig.while_waiting_on_cno(cno, 0, || Ok(()))?.len(), 0)?;
            let mut woken = null_mut();
            ok(rig.api.dat_cno_wait(cno, event_timeout_us(), &mut woken))?;
            ensure_equal("the number of calls of the agent", calls.count(), returned)
        },
    ),
    must(
        "dat_ia_close/calls-agents-off",
        "dat_cno_create, DESCRIPTION: agent",
        "When an adapter is closed, the agents of its CNOs are called without an EVD.",
        |rig| {
            let (ia, (agent, calls), mut cno) = (rig.other_ia()?, AgentCalls::agent(), null_mut());
            ok(rig.api.dat_cno_create(ia, agent, &mut cno))?;
            rig.evd_with(ia, 8, cno, DAT_EVD_SOFTWARE_FLAG)?;
            ok(rig.api.dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG))?;
            rig.forget_ia(ia);
            calls.until(1)?;
            ensure_equal("the EVD", calls.last(), DAT_HANDLE_NULL)
        },
    ),
    must(
        "dat_evd_dequeue/exactly-once",
        "ATTRIBUTES: safe",
        "If several threads dequeue from one EVD of a thread-safe adapter, each event is dequeued \
         once.",
        |rig| {
            const EVENTS: usize = 200;
            let (mut async_evd, mut ia, name) =
                (DAT_HANDLE_NULL, null_mut(), rig.name().as_ptr().cast_mut());
            match rig.api.dat_ia_openv(name, 8, &mut async_evd, &mut ia, 2, 0, DAT_TRUE) {
                DAT_SUCCESS => {}
                _ => return unsupported("there is no thread-safe provider of this name"),
            }
            let evd = rig.evd_of(ia, EVENTS as DAT_COUNT, DAT_EVD_SOFTWARE_FLAG)?;
            (1..=EVENTS).try_for_each(|value| ok(rig.post_se(evd, value)))?;
            let mut taken = rig.dequeue_together(evd, 3, EVENTS);
            taken.sort();
            ensure_equal(
                "whether the threads have taken each event once",
                taken == (1..=EVENTS).collect::<Vec<_>>(),
                true,
            )?;
            ok(rig.api.dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG))
        },
    ),
];
