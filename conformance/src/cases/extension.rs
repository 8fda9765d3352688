//! Cases about the IB extension: immediate data, atomic operations, counters. The header of OFED's
//! extension 2.0.9 contains the requirements. Where the header says nothing, the operations must
//! behave as other DTOs do (uDAPL 2.0, pages of the RDMA functions).

use dat_sys::ib::*;
use dat_sys::opendat::DAT_OPENDAT_POST_SEND_UD_IMMED_OP;
use dat_sys::*;

use crate::binding::extension::Words;
use crate::case::{Row, must};
use crate::check::{Outcome, answers, ensure, ensure_equal, failed, ok, one_of, unsupported};
use crate::rig::{Pair, Region, Rig, dto_completion, event_timeout_us, named, until};

pub(super) const CASES: &[Row] = &[
    must(
        "dat_extension_op/attributes",
        "2.0 headers: extension_supported, extension_version",
        "A provider that lists operations of the IB extension reports in its attributes that it \
         has the extension, and the version.",
        |rig| {
            let any = [IMMEDIATE, FETCH_ADD, CMP_SWAP, COUNTERS]
                .into_iter()
                .any(|name| has(rig, name) == Ok(true));
            if !any {
                return unsupported("the provider lists no operation of the IB extension");
            }
            ensure_equal("extension_supported", rig.attr.extension_supported, DAT_EXTENSION_IB)?;
            ensure(
                rig.attr.extension_version >= 200,
                format_args!("version {}", rig.attr.extension_version),
            )
        },
    ),
    must(
        "dat_extension_op/unknown-operation",
        "2.0 headers: DAT_NOT_IMPLEMENTED",
        "dat_extension_op does not execute an undefined operation. It returns \"not implemented\" \
         or \"not supported\".",
        |rig| {
            let answer = rig.api.dat_extension_op(rig.ep()?.ep, 0x7ff, [0; 6]);
            rig.answers_or(answer, DAT_GET_TYPE(DAT_NOT_IMPLEMENTED), &[DAT_MODEL_NOT_SUPPORTED])
        },
    ),
    must(
        "dat_extension_op/null-handle",
        "2.0 headers: DAT_INVALID_HANDLE",
        "dat_extension_op returns DAT_INVALID_HANDLE for an invalid handle.",
        |rig| {
            answers(
                rig.api.dat_extension_op(DAT_HANDLE_NULL, FETCH_ADD_OP, [0; 6]),
                DAT_INVALID_HANDLE,
            )
        },
    ),
    must(
        "dat_extension_op/datagrams-by-name-only",
        "2.0, dat_ep_create: service_type; DAT_IB_ATTR_UD",
        "If the provider does not list the attribute DAT_IB_UD, endpoints for datagrams are not \
         supported.",
        |rig| {
            if has(rig, DATAGRAMS)? {
                return unsupported("the provider lists DAT_IB_UD");
            }
            let attr = DAT_EP_ATTR { service_type: DAT_IB_SERVICE_TYPE_UD, ..rig.ep_attr() };
            let mut ep = DAT_HANDLE_NULL;
            let none = DAT_HANDLE_NULL;
            let created =
                rig.api.dat_ep_create(rig.ia, rig.pz()?, none, none, none, &attr, &mut ep);
            rig.answers_or(created, DAT_MODEL_NOT_SUPPORTED, &[DAT_INVALID_PARAMETER])
        },
    ),
    // ---- Immediate data ----
    must(
        "dat_extension_op/write-immed",
        "2.0, dat_ib_post_rdma_write_immed",
        "The data and the 32 bits of immediate data arrive. Both completions are a \
         DAT_IB_DTO_EVENT with the operation and the number of bytes.",
        |rig| {
            let Immediate { pair, from, to } = immediate(rig)?;
            from.store(0, b"written, and told of");
            ok(rig.recv(pair.passive.ep, &[], 7))?;
            ok(write_immed(
                rig,
                pair,
                &[from.part(0, 20)],
                8,
                &to.remote_part(4, 40),
                0xdead_beef,
                0,
            ))?;
            let sent = extended(rig, pair.active.request)?;
            ensure_equal(
                "the request",
                sent,
                Extended::good(DAT_IB_DTO_RDMA_WRITE_IMMED, DAT_IB_RDMA_WRITE_IMMED, 8, 20),
            )?;
            let received = extended(rig, pair.passive.recv)?;
            let expected =
                Extended::good(DAT_IB_DTO_RECV_IMMED, DAT_IB_RDMA_WRITE_IMMED_DATA, 7, 20);
            ensure_equal("the receive", received, Extended { immediate: 0xdead_beef, ..expected })?;
            ensure_equal("the data", to.load(0, 24), b"\0\0\0\0written, and told of".to_vec())
        },
    ),
    must(
        "dat_extension_op/write-immed-empty",
        "2.0, dat_ib_post_rdma_write_immed",
        "A write with immediate data and length 0, with or without segments, delivers its 32 bits, \
         whatever their value is.",
        |rig| {
            let Immediate { pair, from, to } = immediate(rig)?;
            for (n, number) in [0, 1, u32::MAX].into_iter().enumerate() {
                let segments = if n == 0 { &[][..] } else { &[from.part(0, 0)] };
                ok(rig.recv(pair.passive.ep, &[], 1))?;
                ok(write_immed(rig, pair, segments, 2, &to.remote(), number, 0))?;
                let received = extended(rig, pair.passive.recv)?;
                ensure_equal(
                    "the bytes and the immediate data of the receive",
                    (received.length, received.immediate),
                    (0, number),
                )?;
                ensure_equal(
                    "the bytes of the request",
                    extended(rig, pair.active.request)?.length,
                    0,
                )?;
            }
            Ok(())
        },
    ),
    must(
        "dat_extension_op/write-immed-takes-a-receive",
        "2.0, dat_ib_post_rdma_write_immed: note to consumers",
        "A write with immediate data uses one receive, in order with messages. It does not write \
         to the buffer of the receive.",
        |rig| {
            let Immediate { pair, from, to } = immediate(rig)?;
            let buffers = rig.memory(24)?;
            buffers.store(0, &[0x5a; 24]);
            for n in 0..3 {
                ok(rig.recv(pair.passive.ep, &[buffers.part(8 * n, 8)], n.into()))?;
            }
            from.store(0, b"messages");
            ok(rig.send(pair.active.ep, &[from.part(0, 8)], 10))?;
            ok(write_immed(rig, pair, &[from.part(0, 8)], 11, &to.remote(), 5, 0))?;
            ok(rig.send(pair.active.ep, &[from.part(0, 8)], 12))?;
            rig.completes(pair.passive.recv, 0, DAT_DTO_SUCCESS)?;
            ensure_equal(
                "the cookie of the second receive",
                extended(rig, pair.passive.recv)?.cookie,
                1,
            )?;
            rig.completes(pair.passive.recv, 2, DAT_DTO_SUCCESS)?;
            ensure_equal("the buffers", buffers.load(0, 24), b"messagesZZZZZZZZmessages".to_vec())?;
            rig.completes(pair.active.request, 10, DAT_DTO_SUCCESS)?;
            ensure_equal(
                "the cookie of the second request",
                extended(rig, pair.active.request)?.cookie,
                11,
            )?;
            rig.completes(pair.active.request, 12, DAT_DTO_SUCCESS).map(drop)
        },
    ),
    must(
        "dat_extension_op/write-immed-suppressed",
        "2.0, dat_ib_post_rdma_write_immed: completion flags",
        "A write with immediate data and a suppressed completion is reported only to the peer.",
        |rig| {
            let Immediate { pair, from, to } = immediate(rig)?;
            ok(rig.recv(pair.passive.ep, &[], 1))?;
            ok(rig.recv(pair.passive.ep, &[], 2))?;
            let suppress = DAT_COMPLETION_SUPPRESS_FLAG;
            ok(write_immed(rig, pair, &[from.part(0, 8)], 3, &to.remote(), 9, suppress))?;
            ok(rig.send(pair.active.ep, &[], 4))?;
            ensure_equal(
                "the immediate data that the peer gets",
                extended(rig, pair.passive.recv)?.immediate,
                9,
            )?;
            rig.completes(pair.active.request, 4, DAT_DTO_SUCCESS)?;
            rig.expect_no_event(pair.active.request)
        },
    ),
    must(
        "dat_extension_op/write-immed-solicited-wait",
        "2.0, dat_ib_post_rdma_write_immed: completion flags",
        "If receives have solicited wait, a solicited write with immediate data triggers the CNO of \
         the EVD. Any other write with immediate data only queues its completion.",
        |rig| {
            needs(rig, IMMEDIATE)?;
            let recv_completion_flags = DAT_COMPLETION_SOLICITED_WAIT_FLAG;
            let passive = rig.ep_with(&DAT_EP_ATTR { recv_completion_flags, ..rig.ep_attr() })?;
            let (pair, from, to) =
                (rig.pair_of(rig.ep()?, passive)?, rig.memory(8)?, rig.memory(8)?);
            let (cno, mut woken) = (rig.cno()?, DAT_HANDLE_NULL);
            ok(rig.api.dat_evd_modify_cno(passive.recv, cno))?;
            for id in [1, 2] {
                ok(rig.recv(passive.ep, &[], id))?;
            }
            ok(write_immed(rig, pair, &[from.all()], 3, &to.remote(), 5, 0))?;
            // A completion triggers the CNO before it can be dequeued. So a trigger that has not
            // happened by now never will.
            let mut event = DAT_EVENT::zeroed();
            let dequeue = || rig.api.dat_evd_dequeue(passive.recv, &mut event) == DAT_SUCCESS;
            until(dequeue, "the receive completes")?;
            answers(rig.api.dat_cno_wait(cno, 0, &mut woken), DAT_QUEUE_EMPTY)?;
            let solicited = DAT_COMPLETION_SOLICITED_WAIT_FLAG;
            ok(write_immed(rig, pair, &[from.all()], 4, &to.remote(), 6, solicited))?;
            ok(rig.api.dat_cno_wait(cno, event_timeout_us(), &mut woken))?;
            ensure_equal("the EVD", woken, passive.recv)?;
            ensure_equal("the immediate data", extended(rig, passive.recv)?.immediate, 6)
        },
    ),
    must(
        "dat_extension_op/write-immed-too-long",
        "2.0, dat_ep_post_rdma_write, RETURN VALUES: DAT_LENGTH_ERROR",
        "A write with immediate data that does not fit into the remote segment is refused, and \
         nothing is written.",
        |rig| {
            let Immediate { pair, from, to } = immediate(rig)?;
            from.store(0, &[1; 64]);
            ok(rig.recv(pair.passive.ep, &[], 1))?;
            let answer = write_immed(rig, pair, &[from.all()], 2, &to.remote_part(0, 63), 1, 0);
            answers(answer, DAT_LENGTH_ERROR)?;
            rig.expect_no_event(pair.passive.recv)?;
            ensure_equal("the target", to.load(0, 64), vec![0; 64])
        },
    ),
    must(
        "dat_extension_op/write-immed-no-remote-write",
        "2.0, dat_ep_post_rdma_write, RETURN VALUES: DAT_PRIVILEGES_VIOLATION",
        "If the remote memory does not have the remote write privilege, nothing is written or \
         reported, and the connection breaks.",
        |rig| {
            let Immediate { pair, from, .. } = immediate(rig)?;
            let to = rig.memory_with(
                rig.pz()?,
                64,
                DAT_MEM_PRIV_ALL_FLAG & !DAT_MEM_PRIV_REMOTE_WRITE_FLAG,
            )?;
            // If the provider gives this memory no RMR context, the write must fail in the same
            // way.
            from.store(0, &[1; 64]);
            ok(rig.recv(pair.passive.ep, &[], 1))?;
            ok(write_immed(rig, pair, &[from.all()], 2, &to.remote(), 1, 0))?;
            broken(rig, pair)?;
            rig.completes(pair.passive.recv, 1, DAT_DTO_ERR_FLUSHED)?;
            ensure_equal("the target", to.load(0, 64), vec![0; 64])
        },
    ),
    // ---- Atomic operations ----
    must(
        "dat_extension_op/fetch-and-add",
        "2.0, dat_ib_post_fetch_and_add",
        "Fetch-and-add increases the 64 bits at the target modulo 2^64 and returns the old value.",
        |rig| {
            let Atomics { pair, sink, target } = atomics(rig, FETCH_ADD)?;
            for (n, (before, add)) in
                [(40, 2), (u64::MAX, 2), (7, 0), (5, u64::MAX)].into_iter().enumerate()
            {
                store(&target, 8, before);
                ok(fetch_add(
                    rig,
                    pair,
                    add,
                    &sink.part(0, 8),
                    n as u64,
                    &target.remote_part(8, 8),
                    0,
                ))?;
                let done = extended(rig, pair.active.request)?;
                let expected =
                    Extended::good(DAT_IB_DTO_FETCH_ADD, DAT_IB_FETCH_AND_ADD, n as u64, 8);
                ensure_equal("the completion", done, expected)?;
                ensure_equal(
                    "the number at the target before the operation",
                    load(&sink, 0),
                    before,
                )?;
                ensure_equal(
                    "the number at the target after the operation",
                    load(&target, 8),
                    before.wrapping_add(add),
                )?;
            }
            ensure_equal(
                "the memory on both sides of the target",
                (load(&target, 0), load(&target, 16)),
                (0, 0),
            )
        },
    ),
    must(
        "dat_extension_op/cmp-and-swap",
        "2.0, dat_ib_post_cmp_and_swap",
        "Compare-and-swap replaces the 64 bits at the target if they have the expected value. It \
         always returns the old value.",
        |rig| {
            let Atomics { pair, sink, target } = atomics(rig, CMP_SWAP)?;
            let there = 0x1234_5678_9abc_def0;
            for (n, compare) in [there, there ^ 1, there ^ 1 << 63].into_iter().enumerate() {
                store(&target, 8, there);
                let at = target.remote_part(8, 8);
                ok(cmp_swap(rig, pair, (compare, 42), &sink.part(8, 8), n as u64, &at))?;
                let done = extended(rig, pair.active.request)?;
                let expected =
                    Extended::good(DAT_IB_DTO_CMP_SWAP, DAT_IB_CMP_AND_SWAP, n as u64, 8);
                ensure_equal("the completion", done, expected)?;
                ensure_equal(
                    "the number at the target before the operation",
                    load(&sink, 8),
                    there,
                )?;
                ensure_equal(
                    "the number at the target after the operation",
                    load(&target, 8),
                    if compare == there { 42 } else { there },
                )?;
            }
            Ok(())
        },
    ),
    must(
        "dat_extension_op/atomic-among-connections",
        "2.0, dat_ib_post_fetch_and_add: modeled after InfiniBand's",
        "Additions over several connections at the same time are atomic: each addition returns a \
         different old value.",
        |rig| {
            const EACH: u64 = 32;
            let Atomics { pair, sink, target } = atomics(rig, FETCH_ADD)?;
            let pairs = [pair, rig.pair()?, rig.pair()?];
            let all = rig.memory(8 * 3 * EACH as u32)?;
            let mut posted = [0; 3];
            let mut found = Vec::new();
            // Post as many operations as the endpoint accepts without waiting for a completion.
            while found.len() < 3 * EACH as usize {
                for (n, pair) in pairs.into_iter().enumerate() {
                    while posted[n] < EACH {
                        let place = 8 * (n as u32 * EACH as u32 + posted[n] as u32);
                        let into = all.part(place, 8);
                        match fetch_add(
                            rig,
                            pair,
                            1,
                            &into,
                            place.into(),
                            &target.remote_part(0, 8),
                            0,
                        ) {
                            status if DAT_GET_TYPE(status) == DAT_INSUFFICIENT_RESOURCES => break,
                            status => ok(status)?,
                        }
                        posted[n] += 1;
                    }
                }
                for pair in pairs {
                    for event in rig.drain(pair.active.request)? {
                        ensure_equal("the status", dto_completion(&event).status, DAT_DTO_SUCCESS)?;
                        found.push(load(&all, dto_completion(&event).cookie as u32));
                    }
                }
                // The loop dequeues without waiting, because the peer's side must also make
                // progress.
                let mut event = DAT_EVENT::zeroed();
                rig.wait(pair.passive.recv, 1000, 1, &mut event);
            }
            found.sort_unstable();
            ensure_equal("the sorted list of all results", found, (0..3 * EACH).collect())?;
            ensure_equal(
                "the numbers at the target and in the sink",
                (load(&target, 0), load(&sink, 0)),
                (3 * EACH, 0),
            )
        },
    ),
    must(
        "dat_extension_op/atomic-fence",
        "2.0, dat_ib_post_fetch_and_add: DAT_COMPLETION_BARRIER_FENCE_FLAG",
        "An operation with a barrier fence starts after the result of the preceding atomic \
         operation has arrived.",
        |rig| {
            let Atomics { pair, sink, target } = atomics(rig, FETCH_ADD)?;
            let to = rig.memory(8)?;
            store(&target, 0, 0x0102_0304_0506_0708);
            ok(rig.recv(pair.passive.ep, &[to.all()], 1))?;
            ok(fetch_add(rig, pair, 1, &sink.part(0, 8), 2, &target.remote_part(0, 8), 0))?;
            ok(rig.send_with(
                pair.active.ep,
                &[sink.part(0, 8)],
                3,
                DAT_COMPLETION_BARRIER_FENCE_FLAG,
            ))?;
            rig.completes(pair.passive.recv, 1, DAT_DTO_SUCCESS)?;
            ensure_equal("the message that was sent", load(&to, 0), 0x0102_0304_0506_0708)?;
            ensure_equal(
                "the cookie of the first completion",
                extended(rig, pair.active.request)?.cookie,
                2,
            )?;
            rig.completes(pair.active.request, 3, DAT_DTO_SUCCESS).map(drop)
        },
    ),
    must(
        "dat_extension_op/atomic-not-aligned",
        "2.0, dat_ib_post_fetch_and_add: modeled after InfiniBand's, InfiniBand 9.4.5",
        "An atomic operation at an address that is not a multiple of 8 changes nothing. Either it \
         is refused, or it fails and breaks the connection.",
        |rig| {
            let Atomics { pair, sink, target } = atomics(rig, FETCH_ADD)?;
            remote_fails(rig, pair, &sink, &target, &target.remote_part(4, 8))
        },
    ),
    must(
        "dat_extension_op/atomic-no-privilege",
        "2.0 headers: DAT_IB_MEM_PRIV_REMOTE_ATOMIC",
        "An atomic operation on memory without the privilege for atomic operations changes nothing \
         and breaks the connection.",
        |rig| {
            let Atomics { pair, sink, .. } = atomics(rig, FETCH_ADD)?;
            let target = rig.memory(64)?;
            remote_fails(rig, pair, &sink, &target, &target.remote_part(8, 8))
        },
    ),
    must(
        "dat_extension_op/atomic-outside",
        "2.0, dat_ep_post_rdma_read, RETURN VALUES: DAT_PROTECTION_VIOLATION",
        "An atomic operation beyond the end of the target's region changes nothing, and the \
         connection breaks.",
        |rig| {
            let Atomics { pair, sink, target } = atomics(rig, FETCH_ADD)?;
            remote_fails(rig, pair, &sink, &target, &target.remote_part(64, 8))
        },
    ),
    must(
        "dat_extension_op/atomic-no-local-write",
        "2.0, dat_ep_post_rdma_read, RETURN VALUES: DAT_PRIVILEGES_VIOLATION",
        "If the local segment does not have the write privilege, the atomic operation is refused \
         without an effect at the target, or fails.",
        |rig| {
            let Atomics { pair, target, .. } = atomics(rig, FETCH_ADD)?;
            let sink = rig.memory_with(rig.pz()?, 64, DAT_MEM_PRIV_LOCAL_READ_FLAG)?;
            let answer = fetch_add(rig, pair, 1, &sink.part(0, 8), 1, &target.remote_part(0, 8), 0);
            match answer {
                DAT_SUCCESS => {
                    let status = extended(rig, pair.active.request)?.status;
                    ensure_equal(
                        "the status of the completion",
                        status,
                        DAT_DTO_ERR_LOCAL_PROTECTION,
                    )?;
                }
                answer => answers(answer, DAT_PRIVILEGES_VIOLATION)?,
            }
            ensure_equal("the sink", load(&sink, 0), 0)?;
            // If the post succeeds, the provider detects the error only when the peer's answer
            // arrives. By then, the peer has carried out the addition.
            ensure_equal("the target", load(&target, 0), u64::from(answer == DAT_SUCCESS))
        },
    ),
    must(
        "dat_extension_op/atomic-too-short",
        "2.0, dat_ib_post_cmp_and_swap",
        "An atomic operation with a local or remote segment of fewer than 8 bytes is a length \
         error.",
        |rig| {
            let Atomics { pair, sink, target } = atomics(rig, FETCH_ADD)?;
            for local in [7, 0] {
                let answer =
                    fetch_add(rig, pair, 1, &sink.part(0, local), 1, &target.remote_part(0, 8), 0);
                rig.answers_or(answer, DAT_LENGTH_ERROR, &[DAT_INVALID_PARAMETER])?;
            }
            let answer = fetch_add(rig, pair, 1, &sink.part(0, 8), 1, &target.remote_part(0, 7), 0);
            answers(answer, DAT_LENGTH_ERROR)?;
            ensure_equal("the target", load(&target, 0), 0)
        },
    ),
    // ---- Behavior that all DTOs share ----
    must(
        "dat_extension_op/flushed",
        "2.0, dat_ep_disconnect: posts after it",
        "On a disconnected endpoint, each operation of the extension is flushed, and its event is \
         an event of the extension.",
        |rig| {
            let Atomics { pair, sink, target } = atomics(rig, FETCH_ADD)?;
            has(rig, IMMEDIATE)
                .and_then(|has| if has { Ok(()) } else { unsupported(IMMEDIATE) })?;
            ok(rig.api.dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG))?;
            rig.connection(pair.active.connect, DAT_CONNECTION_EVENT_DISCONNECTED)?;
            let at = target.remote_part(0, 8);
            ok(fetch_add(rig, pair, 1, &sink.part(0, 8), 1, &at, 0))?;
            ok(cmp_swap(rig, pair, (0, 1), &sink.part(0, 8), 2, &at))?;
            ok(write_immed(rig, pair, &[sink.part(0, 8)], 3, &at, 1, 0))?;
            for (cookie, kind) in
                [(1, DAT_IB_FETCH_AND_ADD), (2, DAT_IB_CMP_AND_SWAP), (3, DAT_IB_RDMA_WRITE_IMMED)]
            {
                let flushed = extended(rig, pair.active.request)?;
                ensure_equal(
                    "the cookie and kind of the flushed request",
                    (flushed.cookie, flushed.kind),
                    (cookie, kind),
                )?;
                ensure_equal(
                    "the status and outcome of the flushed request",
                    (flushed.status, flushed.outcome),
                    (DAT_DTO_ERR_FLUSHED, DAT_IB_OP_ERR),
                )?;
            }
            ensure_equal("the target", load(&target, 0), 0)
        },
    ),
    must(
        "dat_extension_op/unconnected",
        "2.0, dat_ep_post_rdma_write, RETURN VALUES: DAT_INVALID_STATE",
        "dat_extension_op refuses an operation on an endpoint that was never connected.",
        |rig| {
            let Atomics { sink, target, .. } = atomics(rig, FETCH_ADD)?;
            let ep = rig.ep()?;
            let pair = Pair { active: ep, passive: ep };
            let answer = fetch_add(rig, pair, 1, &sink.part(0, 8), 1, &target.remote_part(0, 8), 0);
            answers(answer, DAT_INVALID_STATE)
        },
    ),
    must(
        "dat_extension_op/not-an-endpoint",
        "2.0 headers: DAT_INVALID_HANDLE",
        "dat_extension_op refuses an operation of endpoints if the handle is not the handle of an \
         endpoint.",
        |rig| {
            let Atomics { pair, sink, target } = atomics(rig, FETCH_ADD)?;
            for handle in [rig.pz()?, pair.active.request] {
                let words = [1, word(&sink.part(0, 8)), 1, word(&target.remote_part(0, 8)), 0, 0];
                answers(rig.api.dat_extension_op(handle, FETCH_ADD_OP, words), DAT_INVALID_HANDLE)?;
            }
            Ok(())
        },
    ),
    // ---- Counters ----
    must(
        "dat_extension_op/counters",
        "2.0, dat_ib_query_counters",
        "An endpoint counts its posts and their bytes. A reset sets the counters to 0. A single \
         counter can be queried.",
        |rig| {
            let pair = counting(rig)?;
            let memory = rig.memory(64)?;
            for n in 0..3 {
                ok(rig.recv(pair.passive.ep, &[memory.all()], n))?;
                ok(rig.send(pair.active.ep, &[memory.part(0, 20)], n))?;
                rig.completes(pair.passive.recv, n, DAT_DTO_SUCCESS)?;
                rig.completes(pair.active.request, n, DAT_DTO_SUCCESS)?;
            }
            let counted = |ep, counter: u32, reset: bool| {
                let mut values = [u64::MAX; DCNT_EP_ALL_COUNTERS as usize];
                let words = [
                    counter.into(),
                    (&raw mut values).expose_provenance() as u64,
                    reset.into(),
                    0,
                    0,
                    0,
                ];
                ok(rig.api.dat_extension_op(ep, DAT_IB_QUERY_COUNTERS_OP, words)).map(|()| values)
            };
            let (sends, bytes) = (DCNT_EP_POST_SEND as usize, DCNT_EP_POST_SEND_DATA as usize);
            let all = counted(pair.active.ep, DCNT_EP_ALL_COUNTERS, false)?;
            ensure_equal(
                "the counters of sends and of their bytes",
                (all[sends], all[bytes]),
                (3, 60),
            )?;
            let one = counted(pair.active.ep, DCNT_EP_POST_SEND, true)?;
            ensure_equal(
                "the values when only the counter of sends is queried",
                (one[sends], one[bytes]),
                (3, u64::MAX),
            )?;
            let all = counted(pair.active.ep, DCNT_EP_ALL_COUNTERS, false)?;
            ensure_equal(
                "the two counters after the counter of sends was reset",
                (all[sends], all[bytes]),
                (0, 60),
            )?;
            let all = counted(pair.passive.ep, DCNT_EP_ALL_COUNTERS, false)?;
            let of = |counter: u32| all[counter as usize];
            ensure_equal(
                "the counters of posted receives and of their bytes",
                (of(DCNT_EP_POST_RECV), of(DCNT_EP_POST_RECV_DATA)),
                (3, 192),
            )?;
            ensure_equal(
                "the counters of received messages and of their bytes",
                (of(DCNT_EP_RECV), of(DCNT_EP_RECV_DATA)),
                (3, 60),
            )
        },
    ),
    must(
        "dat_extension_op/counters-of-objects",
        "2.0, dat_ib_query_counters",
        "Adapters, endpoints and event dispatchers have counters. A protection zone has no \
         counters.",
        |rig| {
            let pair = counting(rig)?;
            let query = |handle, all: u32| {
                let mut values = [0u64; DCNT_IA_ALL_COUNTERS as usize];
                let words = [all.into(), (&raw mut values).expose_provenance() as u64, 0, 0, 0, 0];
                (rig.api.dat_extension_op(handle, DAT_IB_QUERY_COUNTERS_OP, words), values)
            };
            let (answer, values) = query(rig.ia, DCNT_IA_ALL_COUNTERS);
            ok(answer)?;
            ensure_equal(
                "the counter of created endpoints",
                values[DCNT_IA_EP_CREATE as usize],
                2,
            )?;
            ok(query(pair.active.ep, DCNT_EP_ALL_COUNTERS).0)?;
            let (answer, values) = query(pair.active.connect, DCNT_EVD_ALL_COUNTERS);
            ok(answer)?;
            ensure(
                values[DCNT_EVD_WAIT as usize] > 0,
                "the connect EVD has not counted the wait for the connection",
            )?;
            answers(query(rig.pz()?, 0).0, DAT_INVALID_HANDLE)
        },
    ),
    must(
        "dat_extension_op/counters-bad-arguments",
        "2.0, dat_ib_query_counters, dat_ib_print_counters",
        "The query and the print of counters refuse a counter that the object does not have. The \
         query refuses a null pointer for the values. The print refuses the handle of an object \
         without counters.",
        |rig| {
            let ep = counting(rig)?.active.ep;
            let mut values = [0_u64; DCNT_EP_ALL_COUNTERS as usize];
            let (at, unknown) = ((&raw mut values).expose_provenance() as u64, 0x4000);
            let call = |handle, op, words, kind| {
                answers(rig.api.dat_extension_op(handle, op, words), kind)
            };
            let (query, print) = (DAT_IB_QUERY_COUNTERS_OP, DAT_IB_PRINT_COUNTERS_OP);
            let one = DCNT_EP_POST_SEND.into();
            call(ep, query, [unknown, at, 0, 0, 0, 0], DAT_INVALID_PARAMETER)?;
            call(ep, query, [one, 0, 0, 0, 0, 0], DAT_INVALID_PARAMETER)?;
            call(ep, print, [unknown, 0, 0, 0, 0, 0], DAT_INVALID_PARAMETER)?;
            call(rig.pz()?, print, [one, 0, 0, 0, 0, 0], DAT_INVALID_HANDLE)?;
            call(ep, print, [one, 0, 0, 0, 0, 0], DAT_SUCCESS)
        },
    ),
    must(
        "dat_extension_op/counters-start-and-stop",
        "2.0, dat_ib_start_counter, dat_ib_stop_counter",
        "The counters of an adapter can be started and stopped. An undefined group of counters, a \
         null handle and the handle of an object that is not an adapter are refused.",
        |rig| {
            needs(rig, COUNTERS)?;
            let zone = rig.pz()?;
            for op in [DAT_IB_STOP_COUNTERS_OP, DAT_IB_START_COUNTERS_OP] {
                let call = |handle, group: u32| {
                    rig.api.dat_extension_op(handle, op, [group.into(), 0, 0, 0, 0, 0])
                };
                ok(call(rig.ia, DCNT_IA_CM))?;
                answers(call(DAT_HANDLE_NULL, DCNT_IA_CM), DAT_INVALID_HANDLE)?;
                answers(call(zone, DCNT_IA_CM), DAT_INVALID_HANDLE)?;
                answers(call(rig.ia, 0x4000), DAT_INVALID_PARAMETER)?;
                one_of(call(rig.ia, DCNT_IA_LNK), &[DAT_SUCCESS, DAT_MODEL_NOT_SUPPORTED])?;
            }
            Ok(())
        },
    ),
    must(
        "dat_extension_op/known-but-unsupported",
        "2.0 headers: DAT_MODEL_NOT_SUPPORTED",
        "An operation that the extension has and that the provider does not list is not supported.",
        |rig| {
            if has(rig, DATAGRAMS)? {
                return unsupported("the provider lists DAT_IB_UD");
            }
            let ep = rig.ep()?.ep;
            let own = DAT_OPENDAT_POST_SEND_UD_IMMED_OP as u32;
            for op in [DAT_IB_UD_SEND_OP, DAT_IB_UD_CM_FREE_OP, DAT_IB_UD_AH_FREE_OP, own] {
                let answer = rig.api.dat_extension_op(ep, op, [0; 6]);
                let also = &[DAT_GET_TYPE(DAT_NOT_IMPLEMENTED)];
                rig.answers_or(answer, DAT_MODEL_NOT_SUPPORTED, also)?;
            }
            Ok(())
        },
    ),
];

pub(super) const IMMEDIATE: &str = "DAT_IB_IMMED_DATA";
pub(super) const FETCH_ADD: &str = "DAT_IB_FETCH_AND_ADD";
pub(super) const CMP_SWAP: &str = "DAT_IB_CMP_AND_SWAP";
pub(super) const DATAGRAMS: &str = "DAT_IB_UD";
const COUNTERS: &str = "DAT_COUNTERS";
const FETCH_ADD_OP: u32 = DAT_IB_FETCH_AND_ADD_OP;

/// Returns whether the provider lists an operation in its named attributes.
fn has(rig: &Rig, name: &str) -> Outcome<bool> {
    let DAT_PROVIDER_ATTR { num_provider_specific_attr, provider_specific_attr, .. } = rig.provider;
    let attributes =
        named("provider attributes", num_provider_specific_attr, provider_specific_attr)?;
    Ok(attributes.iter().any(|(known, value)| known == name && value != "FALSE"))
}

/// Checks that the provider lists an operation. If it does not, the case is unsupported.
pub(super) fn needs(rig: &Rig, name: &str) -> Outcome {
    if has(rig, name)? {
        Ok(())
    } else {
        unsupported(format_args!("the provider does not list {name}"))
    }
}

/// Returns two connected endpoints. If the provider has no counters, the case is unsupported.
fn counting(rig: &Rig) -> Outcome<Pair> {
    needs(rig, COUNTERS)?;
    rig.pair()
}

/// Two connected endpoints, and 64 bytes of memory at each of them for writes with immediate data.
struct Immediate {
    pair: Pair,
    from: Region,
    to: Region,
}

fn immediate(rig: &Rig) -> Outcome<Immediate> {
    needs(rig, IMMEDIATE)?;
    Ok(Immediate { pair: rig.pair()?, from: rig.memory(64)?, to: rig.memory(64)? })
}

/// Two connected endpoints, and 64 bytes of memory at each of them for atomic operations.
struct Atomics {
    pair: Pair,
    sink: Region,
    target: Region,
}

fn atomics(rig: &Rig, name: &str) -> Outcome<Atomics> {
    needs(rig, name)?;
    let privileges = DAT_MEM_PRIV_ALL_FLAG | DAT_IB_MEM_PRIV_REMOTE_ATOMIC;
    let target = rig.memory_with(rig.pz()?, 64, privileges)?;
    Ok(Atomics { pair: rig.pair()?, sink: rig.memory(64)?, target })
}

/// Converts a reference to a word, as an argument of dat_extension_op.
pub(super) fn word<V>(place: &V) -> u64 {
    std::ptr::from_ref(place).expose_provenance() as u64
}

fn write_immed(
    rig: &Rig,
    pair: Pair,
    segments: &[DAT_LMR_TRIPLET],
    cookie: u64,
    to: &DAT_RMR_TRIPLET,
    immediate: u32,
    flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    let iov = segments.as_ptr().expose_provenance() as u64;
    let words: Words =
        [segments.len() as u64, iov, cookie, word(to), immediate.into(), flags.into()];
    rig.api.dat_extension_op(pair.active.ep, DAT_IB_RDMA_WRITE_IMMED_OP, words)
}

fn fetch_add(
    rig: &Rig,
    pair: Pair,
    add: u64,
    sink: &DAT_LMR_TRIPLET,
    cookie: u64,
    at: &DAT_RMR_TRIPLET,
    flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    let words = [add, word(sink), cookie, word(at), flags.into(), 0];
    rig.api.dat_extension_op(pair.active.ep, FETCH_ADD_OP, words)
}

fn cmp_swap(
    rig: &Rig,
    pair: Pair,
    (compare, swap): (u64, u64),
    sink: &DAT_LMR_TRIPLET,
    cookie: u64,
    at: &DAT_RMR_TRIPLET,
) -> DAT_RETURN {
    let words = [compare, swap, word(sink), cookie, word(at), DAT_COMPLETION_DEFAULT_FLAG.into()];
    rig.api.dat_extension_op(pair.active.ep, DAT_IB_CMP_AND_SWAP_OP, words)
}

/// The completion of an extended operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extended {
    operation: DAT_DTOS,
    status: DAT_DTO_COMPLETION_STATUS,
    cookie: u64,
    length: u32,
    kind: DAT_IB_EXT_TYPE,
    outcome: DAT_IB_STATUS,
    /// The immediate data. 0 if the operation has no immediate data.
    immediate: u32,
}

impl Extended {
    fn good(operation: DAT_DTOS, kind: DAT_IB_EXT_TYPE, cookie: u64, length: u32) -> Extended {
        let (status, outcome) = (DAT_DTO_SUCCESS, DAT_OP_SUCCESS);
        Extended { operation, status, cookie, length, kind, outcome, immediate: 0 }
    }
}

/// Returns the next event, which must be the completion of an extended operation.
#[track_caller]
fn extended(rig: &Rig, evd: DAT_EVD_HANDLE) -> Outcome<Extended> {
    let event = rig.expect(evd, DAT_IB_DTO_EVENT)?;
    // The first words of the extension data form a structure of 32-bit members.
    let member = |n: usize| {
        let bytes = event.event_extension_data[n / 2].to_ne_bytes();
        u32::from_ne_bytes(std::array::from_fn(|i| bytes[4 * (n % 2) + i]))
    };
    let dto = dto_completion(&event);
    let returned = member(0) == DAT_IB_RDMA_WRITE_IMMED_DATA;
    Ok(Extended {
        operation: dto.operation,
        status: dto.status,
        cookie: dto.cookie,
        length: dto.length,
        kind: member(0),
        outcome: member(1),
        immediate: if returned { member(2) } else { 0 },
    })
}

/// Checks that an atomic addition which must not be carried out fails. Neither the target nor the
/// local memory may change.
fn remote_fails(
    rig: &Rig,
    pair: Pair,
    sink: &Region,
    target: &Region,
    at: &DAT_RMR_TRIPLET,
) -> Outcome {
    store(sink, 0, 77);
    let before = target.load(0, 64);
    match fetch_add(rig, pair, 1, &sink.part(0, 8), 1, at, 0) {
        DAT_SUCCESS => {
            let failed = extended(rig, pair.active.request)?;
            ensure(
                failed.status != DAT_DTO_SUCCESS,
                "the completion says that the addition has succeeded",
            )?;
            ensure_equal(
                "kind and outcome",
                (failed.kind, failed.outcome),
                (DAT_IB_FETCH_AND_ADD, DAT_IB_OP_ERR),
            )?;
            broken(rig, pair)?;
        }
        refused => one_of(
            refused,
            &[DAT_INVALID_ADDRESS, DAT_INVALID_PARAMETER, DAT_PRIVILEGES_VIOLATION],
        )?,
    }
    ensure_equal("the target", target.load(0, 64), before)?;
    ensure_equal("the sink", load(sink, 0), 77)
}

/// Checks that both endpoints get an event about the end of the connection.
fn broken(rig: &Rig, pair: Pair) -> Outcome {
    for end in [pair.passive, pair.active] {
        let event = rig.event(end.connect)?;
        if ![DAT_CONNECTION_EVENT_BROKEN, DAT_CONNECTION_EVENT_DISCONNECTED]
            .contains(&event.event_number)
        {
            return Err(failed(format_args!("the event is {:#x}", event.event_number)));
        }
    }
    Ok(())
}

fn store(region: &Region, at: u32, value: u64) {
    region.store(at, &value.to_ne_bytes());
}

fn load(region: &Region, at: u32) -> u64 {
    let bytes = region.load(at, 8);
    u64::from_ne_bytes(std::array::from_fn(|i| bytes[i]))
}
