//! Cases about sends, receives and RDMA reads, and about the completion flags of all DTOs.

use std::ptr::null_mut;

use dat_sys::*;

use super::bad_requests::{self, refused_or_fails, refused_or_takes_nothing};
use crate::case::{Row, must};
use crate::check::{Outcome, answers, ensure_equal, ok, unsupported};
use crate::rig::{Pair, Rig, cookie, until};

pub(super) const CASES: &[Row] = &[
    must(
        "dat_ep_post_send/message",
        "DESCRIPTION",
        "A message arrives completely. The completions on both sides have the EP, cookie, length \
         and status.",
        |rig| {
            let (pair, from, to) = (rig.pair()?, rig.memory(64)?, rig.memory(64)?);
            from.store(0, b"forty-two bytes of no particular meaning!!");
            ok(rig.recv(pair.passive.ep, &[to.all()], 0xfeed_face_cafe_beef))?;
            ok(rig.send(pair.active.ep, &[from.part(0, 42)], u64::MAX))?;
            let received = rig.completion(pair.passive.recv)?;
            ensure_equal(
                "the EP and cookie of the receive",
                (received.ep, received.cookie),
                (pair.passive.ep, 0xfeed_face_cafe_beef),
            )?;
            ensure_equal(
                "the status and bytes of the receive",
                (received.status, received.length),
                (DAT_DTO_SUCCESS, 42),
            )?;
            let sent = rig.completion(pair.active.request)?;
            ensure_equal(
                "the EP, cookie and status of the send",
                (sent.ep, sent.cookie, sent.status),
                (pair.active.ep, u64::MAX, DAT_DTO_SUCCESS),
            )?;
            ensure_equal("the message", to.load(0, 42), from.load(0, 42))
        },
    ),
    must(
        "dat_ep_post_send/operation",
        "2.0 headers: operation of a DTO completion",
        "The completions of a send and of a receive have the operation codes of these DTOs.",
        |rig| {
            let (pair, memory) = (rig.pair()?, rig.memory(8)?);
            ok(rig.recv(pair.passive.ep, &[memory.all()], 1))?;
            ok(rig.send(pair.active.ep, &[], 2))?;
            ensure_equal(
                "the operation of the send's completion",
                rig.completion(pair.active.request)?.operation,
                DAT_DTO_SEND,
            )?;
            ensure_equal(
                "the operation of the receive's completion",
                rig.completion(pair.passive.recv)?.operation,
                DAT_DTO_RECEIVE,
            )
        },
    ),
    must(
        "dat_ep_post_send/empty",
        "DESCRIPTION",
        "An empty message uses one receive. The send may have segments of length 0 or no segments.",
        |rig| {
            let (pair, memory) = (rig.pair()?, rig.memory(8)?);
            for segments in [&[][..], &[memory.part(0, 0)]] {
                ok(rig.recv(pair.passive.ep, &[], 1))?;
                ok(rig.send(pair.active.ep, segments, 2))?;
                ensure_equal(
                    "the bytes",
                    rig.completes(pair.passive.recv, 1, DAT_DTO_SUCCESS)?.length,
                    0,
                )?;
                rig.completes(pair.active.request, 2, DAT_DTO_SUCCESS)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_post_send/scatter",
        "dat_ep_post_recv, DESCRIPTION",
        "A message fills the segments of a receive in the order of the segments.",
        |rig| {
            let (pair, from, to) = (rig.pair()?, rig.memory(8)?, rig.memory(8)?);
            from.store(0, b"abcdefgh");
            ok(rig.recv(pair.passive.ep, &[to.part(5, 3), to.part(0, 5)], 1))?;
            ok(rig.send(pair.active.ep, &[from.part(0, 6)], 2))?;
            rig.completes(pair.passive.recv, 1, DAT_DTO_SUCCESS)?;
            ensure_equal("the memory", to.load(0, 8), b"def\0\0abc".to_vec())
        },
    ),
    must(
        "dat_ep_post_send/in-order",
        "DESCRIPTION",
        "Messages arrive in the order in which they were posted, and complete in this order on \
         both sides.",
        |rig| {
            let (pair, from, to) = (rig.pair()?, rig.memory(16)?, rig.memory(16)?);
            for n in 0..10 {
                ok(rig.recv(pair.passive.ep, &[to.all()], n))?;
            }
            for n in 0..10 {
                ok(rig.send(pair.active.ep, &[from.part(0, n)], n.into()))?;
            }
            for n in 0..10 {
                rig.completes(pair.active.request, n.into(), DAT_DTO_SUCCESS)?;
                ensure_equal(
                    "the bytes",
                    rig.completes(pair.passive.recv, n.into(), DAT_DTO_SUCCESS)?.length,
                    n,
                )?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_post_send/too-long-for-receive",
        "dat_ep_post_recv: length",
        "If a message is longer than the receive, the receive completes with a local length error, \
         and the connection breaks.",
        |rig| {
            let (pair, from, to) = (rig.pair()?, rig.memory(16)?, rig.memory(16)?);
            ok(rig.recv(pair.passive.ep, &[to.part(0, 8)], 1))?;
            ok(rig.send(pair.active.ep, &[from.part(0, 9)], 2))?;
            rig.completes(pair.passive.recv, 1, DAT_DTO_ERR_LOCAL_LENGTH)?;
            rig.connection(pair.passive.connect, DAT_CONNECTION_EVENT_BROKEN)?;
            ensure_equal("the byte after the buffer of the receive", to.load(8, 1), vec![0])
        },
    ),
    must(
        "dat_ep_post_send/too-many",
        "RETURN VALUES: insufficient resources",
        "dat_ep_post_send refuses a send if the EP has no free slot for a request.",
        |rig| {
            let pair = rig.ended_pair()?;
            let max = rig.query(pair.active.ep)?.ep_attr.max_request_dtos;
            if max >= crate::rig::EVD_QUEUE_LENGTH {
                return unsupported("the EP accepts more requests than an EVD can hold events");
            }
            (0..max).try_for_each(|id| ok(rig.send(pair.active.ep, &[], id as u64)))?;
            answers(rig.send(pair.active.ep, &[], 99), DAT_INSUFFICIENT_RESOURCES)?;
            rig.completes(pair.active.request, 0, DAT_DTO_ERR_FLUSHED)?;
            // One request has completed, so the queue has room for one more.
            ok(rig.send(pair.active.ep, &[], 100))
        },
    ),
    must(
        "dat_ep_post_send/bad-arguments",
        "RETURN VALUES: invalid parameter",
        "dat_ep_post_send refuses a segment beyond its LMR, too many segments, a negative number \
         of segments, and null pointers.",
        |rig| {
            let (pair, memory) = (rig.pair()?, rig.memory(8)?);
            let max = rig
                .query(pair.active.ep)?
                .ep_attr
                .max_request_iov
                .max(rig.ep_attr().max_rdma_write_iov);
            let ep = pair.active.ep;
            answers(
                rig.send(ep, &vec![memory.part(0, 1); max as usize + 1], 1),
                DAT_INVALID_PARAMETER,
            )?;
            answers(
                rig.api.dat_ep_post_send(ep, -1, null_mut(), cookie(1), 0),
                DAT_INVALID_PARAMETER,
            )?;
            answers(
                rig.api.dat_ep_post_send(ep, 1, null_mut(), cookie(1), 0),
                DAT_INVALID_PARAMETER,
            )?;
            rig.state_is(ep, DAT_EP_STATE_CONNECTED)?;
            let answer = rig.send(ep, &[memory.part(4, 5)], 1);
            refused_or_fails(rig, answer, DAT_INVALID_PARAMETER, pair.active)
        },
    ),
    must(
        "dat_ep_post_send/unsignalled-not-configured",
        "DESCRIPTION: completion flags",
        "A send with the unsignalled flag is invalid if the EP was created without that flag.",
        |rig| {
            let pair = rig.pair()?;
            ok(rig.recv(pair.passive.ep, &[], 0))?;
            let answer = rig.send_with(pair.active.ep, &[], 1, DAT_COMPLETION_UNSIGNALLED_FLAG);
            answers(answer, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ep_post_send/suppressed",
        "DESCRIPTION: completion flags",
        "A suppressed send that succeeds is not reported. Its slot is free after a later reported \
         send has completed.",
        |rig| {
            let attr = DAT_EP_ATTR { max_request_dtos: 4, ..rig.ep_attr() };
            let (pair, memory) = (rig.pair_with(&attr)?, rig.memory(8)?);
            for round in 0..4 {
                for n in 0..4 {
                    ok(rig.recv(pair.passive.ep, &[memory.all()], n))?;
                    let flags = if n == 3 {
                        DAT_COMPLETION_DEFAULT_FLAG
                    } else {
                        DAT_COMPLETION_SUPPRESS_FLAG
                    };
                    ok(rig.send_with(pair.active.ep, &[], 10 * round + n, flags))?;
                }
                rig.completes(pair.active.request, 10 * round + 3, DAT_DTO_SUCCESS)?;
                rig.expect_no_event(pair.active.request)?;
                (0..4).try_for_each(|n| {
                    rig.completes(pair.passive.recv, n, DAT_DTO_SUCCESS).map(drop)
                })?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_post_send/suppressed-only",
        "DESCRIPTION: completion flags",
        "A suppressed send that has completed occupies no slot, even if no reported send follows.",
        |rig| {
            let attr = DAT_EP_ATTR { max_request_dtos: 4, ..rig.ep_attr() };
            let (pair, memory) = (rig.pair_with(&attr)?, rig.memory(8)?);
            let suppress = DAT_COMPLETION_SUPPRESS_FLAG;
            for n in 0..40 {
                ok(rig.recv(pair.passive.ep, &[memory.all()], n))?;
                let mut answer = DAT_SUCCESS;
                until(
                    || {
                        answer = rig.send_with(pair.active.ep, &[], n, suppress);
                        DAT_GET_TYPE(answer) != DAT_INSUFFICIENT_RESOURCES
                    },
                    "a suppressed send finds a free slot after the earlier sends have completed",
                )?;
                ok(answer)?;
                rig.completes(pair.passive.recv, n, DAT_DTO_SUCCESS)?;
            }
            let (mut state, mut recv_idle, mut request_idle) = (0, 0, DAT_FALSE);
            let mut status = DAT_SUCCESS;
            until(
                || {
                    let ep = pair.active.ep;
                    status = rig.api.dat_ep_get_status(
                        ep,
                        &mut state,
                        &mut recv_idle,
                        &mut request_idle,
                    );
                    status != DAT_SUCCESS || request_idle == DAT_TRUE
                },
                "the request queue is idle",
            )?;
            ok(status)?;
            rig.expect_no_event(pair.active.request)
        },
    ),
    must(
        "dat_ep_post_send/solicited-wait",
        "DESCRIPTION: completion flags",
        "A solicited send wakes a thread that waits for solicited events. Any other send only \
         queues its completion.",
        |rig| {
            let recv_completion_flags = DAT_COMPLETION_SOLICITED_WAIT_FLAG;
            let passive = rig.ep_with(&DAT_EP_ATTR { recv_completion_flags, ..rig.ep_attr() })?;
            let (pair, memory) = (rig.pair_of(rig.ep()?, passive)?, rig.memory(8)?);
            for id in [1, 2] {
                ok(rig.recv(passive.ep, &[memory.all()], id))?;
            }
            let woken = rig.while_waiting(passive.recv, || {
                ok(rig.send(pair.active.ep, &[], 3))?;
                ok(rig.send_with(pair.active.ep, &[], 4, DAT_COMPLETION_SOLICITED_WAIT_FLAG))
            })?;
            ok(woken)?;
            // The wait has dequeued the first completion. The second completion is still queued.
            rig.completes(passive.recv, 2, DAT_DTO_SUCCESS).map(drop)
        },
    ),
    must(
        "dat_ep_post_recv/early",
        "DESCRIPTION",
        "A receive that is posted before the connection takes the first message of the connection.",
        |rig| {
            let (passive, from, to) = (rig.ep()?, rig.memory(8)?, rig.memory(8)?);
            ok(rig.recv(passive.ep, &[to.all()], 1))?;
            let pair = rig.pair_of(rig.ep()?, passive)?;
            from.store(0, b"earliest");
            ok(rig.send(pair.active.ep, &[from.all()], 2))?;
            rig.completes(passive.recv, 1, DAT_DTO_SUCCESS)?;
            ensure_equal("the message", to.load(0, 8), b"earliest".to_vec())
        },
    ),
    must(
        "dat_ep_post_recv/flags",
        "DESCRIPTION: completion flags",
        "Receives cannot be suppressed or fenced. They can be unsignalled only if the EP was \
         created for that.",
        |rig| {
            let (ep, memory) = (rig.ep()?, rig.memory(8)?);
            let fence = DAT_COMPLETION_BARRIER_FENCE_FLAG;
            for flags in [DAT_COMPLETION_SUPPRESS_FLAG, fence, DAT_COMPLETION_UNSIGNALLED_FLAG] {
                answers(rig.recv_with(ep.ep, &[memory.all()], 1, flags), DAT_INVALID_PARAMETER)?;
            }
            let recv_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            let ep = rig.ep_with(&DAT_EP_ATTR { recv_completion_flags, ..rig.ep_attr() })?;
            ok(rig.recv_with(ep.ep, &[memory.all()], 1, DAT_COMPLETION_UNSIGNALLED_FLAG))
        },
    ),
    must(
        "dat_ep_post_recv/needs-local-write",
        "RETURN VALUES: privileges (the page says read; dat_srq_post_recv says write)",
        "A receive cannot use memory without the local write privilege.",
        |rig| {
            let (pair, memory) =
                (rig.pair()?, rig.memory_with(rig.pz()?, 8, DAT_MEM_PRIV_LOCAL_READ_FLAG)?);
            let answer = rig.recv(pair.passive.ep, &[memory.all()], 1);
            refused_or_takes_nothing(rig, answer, DAT_PRIVILEGES_VIOLATION, pair, &memory)
        },
    ),
    must(
        "dat_ep_post_recv/freed-lmr",
        "RETURN VALUES: privileges",
        "A receive with a segment of a freed LMR is a privileges violation.",
        |rig| {
            let (pair, memory) = (rig.pair()?, rig.memory(8)?);
            ok(rig.api.dat_lmr_free(memory.lmr))?;
            let answer = rig.recv(pair.passive.ep, &[memory.all()], 1);
            refused_or_takes_nothing(rig, answer, DAT_PRIVILEGES_VIOLATION, pair, &memory)
        },
    ),
    must(
        "dat_ep_post_recv/other-pz",
        "RETURN VALUES: protection",
        "A receive into memory of another zone than the EP's is a protection violation.",
        |rig| {
            let (pair, memory) =
                (rig.pair()?, rig.memory_with(rig.new_pz()?, 8, DAT_MEM_PRIV_ALL_FLAG)?);
            let answer = rig.recv(pair.passive.ep, &[memory.all()], 1);
            refused_or_takes_nothing(rig, answer, DAT_PROTECTION_VIOLATION, pair, &memory)
        },
    ),
    must(
        "dat_ep_post_recv/too-many",
        "RETURN VALUES: insufficient resources",
        "dat_ep_post_recv refuses a receive if the EP has no free slot for it.",
        |rig| {
            let (ep, memory) = (rig.ep()?, rig.memory(8)?);
            let max = rig.query(ep.ep)?.ep_attr.max_recv_dtos;
            (0..max).try_for_each(|id| ok(rig.recv(ep.ep, &[memory.all()], id as u64)))?;
            answers(rig.recv(ep.ep, &[memory.all()], 99), DAT_INSUFFICIENT_RESOURCES)
        },
    ),
    must(
        "dat_ep_post_recv/bad-arguments",
        "RETURN VALUES: invalid parameter",
        "dat_ep_post_recv refuses a segment beyond its LMR, too many segments, and a negative \
         number of segments.",
        |rig| {
            let (pair, memory) = (rig.pair()?, rig.memory(8)?);
            let ep = pair.passive.ep;
            let max = rig.query(ep)?.ep_attr.max_recv_iov;
            answers(
                rig.recv(ep, &vec![memory.part(0, 1); max as usize + 1], 1),
                DAT_INVALID_PARAMETER,
            )?;
            answers(
                rig.api.dat_ep_post_recv(ep, -1, null_mut(), cookie(1), 0),
                DAT_INVALID_PARAMETER,
            )?;
            answers(
                rig.api.dat_ep_post_recv(ep, 1, null_mut(), cookie(1), 0),
                DAT_INVALID_PARAMETER,
            )?;
            let answer = rig.recv(ep, &[memory.part(4, 5)], 1);
            refused_or_takes_nothing(rig, answer, DAT_INVALID_PARAMETER, pair, &memory)
        },
    ),
    must(
        "dat_ep_post_rdma_read/reads",
        "DESCRIPTION",
        "An RDMA read copies the remote buffer into the local segments in their order. The \
         completion has the length.",
        |rig| {
            if rig.attr.max_iov_segments_per_rdma_read < 2 {
                return unsupported("the IA attribute max_iov_segments_per_rdma_read is 1");
            }
            let (pair, near, far) = (rig.pair()?, rig.memory(8)?, rig.memory(8)?);
            far.store(0, b"abcdefgh");
            ok(rig.read(
                pair.active.ep,
                &[near.part(6, 2), near.part(0, 4)],
                1,
                &far.remote_part(1, 5),
            ))?;
            ensure_equal(
                "the bytes",
                rig.completes(pair.active.request, 1, DAT_DTO_SUCCESS)?.length,
                5,
            )?;
            ensure_equal("the memory", near.load(0, 8), b"def\0\0\0bc".to_vec())
        },
    ),
    must(
        "dat_ep_post_rdma_read/operation",
        "2.0 headers: operation of a DTO completion",
        "The completion of an RDMA read has the operation code of an RDMA read.",
        |rig| {
            let (pair, near, far) = (rig.pair()?, rig.memory(8)?, rig.memory(8)?);
            ok(rig.read(pair.active.ep, &[near.all()], 1, &far.remote()))?;
            ensure_equal(
                "operation",
                rig.completion(pair.active.request)?.operation,
                DAT_DTO_RDMA_READ,
            )
        },
    ),
    must(
        "dat_ep_post_rdma_read/longer-than-local",
        "RETURN VALUES: length error",
        "A read of more remote data than the local segments can hold is a length error.",
        |rig| {
            let (pair, near, far) = (rig.pair()?, rig.memory(16)?, rig.memory(16)?);
            far.store(0, &[7; 16]);
            let answer = rig.read(pair.active.ep, &[near.part(0, 8)], 1, &far.remote());
            answers(answer, DAT_LENGTH_ERROR)?;
            ensure_equal("the memory", near.load(0, 16), vec![0; 16])
        },
    ),
    must(
        "dat_ep_post_rdma_read/empty",
        "DESCRIPTION",
        "An RDMA read of length 0 succeeds.",
        |rig| {
            let (pair, near, far) = (rig.pair()?, rig.memory(8)?, rig.memory(8)?);
            ok(rig.read(pair.active.ep, &[near.part(0, 0)], 1, &far.remote_part(0, 0)))?;
            ensure_equal(
                "the bytes",
                rig.completes(pair.active.request, 1, DAT_DTO_SUCCESS)?.length,
                0,
            )
        },
    ),
    must(
        "dat_ep_post_rdma_read/no-remote-read",
        "RETURN VALUES: privileges",
        "A read of remote memory without the remote read privilege fails with a remote access \
         error, and the connection breaks.",
        |rig| {
            let write_only = DAT_MEM_PRIV_LOCAL_READ_FLAG
                | DAT_MEM_PRIV_LOCAL_WRITE_FLAG
                | DAT_MEM_PRIV_REMOTE_WRITE_FLAG;
            let (pair, near, far) =
                (rig.pair()?, rig.memory(8)?, rig.memory_with(rig.pz()?, 8, write_only)?);
            far.store(0, &[5; 8]);
            ok(rig.read(pair.active.ep, &[near.all()], 1, &far.remote()))?;
            rig.completes(pair.active.request, 1, DAT_DTO_ERR_REMOTE_ACCESS)?;
            rig.connection(pair.active.connect, DAT_CONNECTION_EVENT_BROKEN)?;
            ensure_equal("the memory", near.load(0, 8), vec![0; 8])
        },
    ),
    must(
        "dat_ep_post_rdma_read/more-than-the-depth",
        "DESCRIPTION",
        "If more reads are posted than can be in progress, the surplus reads wait, and all \
         complete in order.",
        |rig| {
            let (pair, near, far) = (rig.pair()?, rig.memory(8)?, rig.memory(8)?);
            for id in 0..12 {
                ok(rig.read(pair.active.ep, &[near.all()], id, &far.remote()))?;
            }
            (0..12).try_for_each(|id| {
                rig.completes(pair.active.request, id, DAT_DTO_SUCCESS).map(drop)
            })
        },
    ),
    must(
        "dat_ep_post_send_with_invalidate/kills-a-context",
        "2.0 headers: dat_ep_post_send_with_invalidate",
        "When the receive of the message completes, the RMR context in the send is invalid. The \
         completion contains this context.",
        |rig| {
            let (pair, memory, from) = (rig.pair()?, rig.memory(64)?, rig.memory(8)?);
            let (mut rmr, mut context) = (null_mut(), 0);
            // Over verbs devices, a peer cannot invalidate an RMR that is bound for all EPs of a
            // zone.
            match rig.api.dat_rmr_create_for_ep(rig.pz()?, &mut rmr) {
                answer if DAT_GET_TYPE(answer) == DAT_MODEL_NOT_SUPPORTED => rmr = rig.rmr()?,
                answer => ok(answer)?,
            }
            ok(bad_requests::bind(
                rig,
                rmr,
                &memory,
                DAT_MEM_PRIV_ALL_FLAG,
                pair.passive.ep,
                1,
                &mut context,
            ))?;
            rig.bind_completion(pair.passive.request)?;
            ok(rig.recv(pair.passive.ep, &[memory.part(0, 8)], 2))?;
            let mut iov = [from.all()];
            ok(rig.api.dat_ep_post_send_with_invalidate(
                pair.active.ep,
                1,
                iov.as_mut_ptr(),
                cookie(3),
                0,
                DAT_TRUE,
                context,
            ))?;
            let dto = rig.completes(pair.passive.recv, 2, DAT_DTO_SUCCESS)?;
            ensure_equal(
                "what was invalidated",
                (dto.operation, dto.invalidated),
                (DAT_DTO_RECEIVE_WITH_INVALIDATE, context),
            )?;
            rig.completes(pair.active.request, 3, DAT_DTO_SUCCESS)?;
            ok(rig.write(pair.active.ep, &[from.all()], 4, &memory.remote_through(context, 0, 8)))?;
            rig.connection(pair.passive.connect, DAT_CONNECTION_EVENT_BROKEN).map(drop)
        },
    ),
    must(
        "dat_ep_get_status/idle",
        "DESCRIPTION",
        "A queue of an EP is idle if and only if no request or receive is outstanding on it.",
        |rig| {
            let (pair, memory) = (rig.pair()?, rig.memory(8)?);
            idle(rig, pair, (DAT_TRUE, DAT_TRUE))?;
            ok(rig.recv(pair.passive.ep, &[memory.all()], 1))?;
            idle(rig, pair, (DAT_FALSE, DAT_TRUE))?;
            ok(rig.send(pair.active.ep, &[], 2))?;
            rig.completes(pair.passive.recv, 1, DAT_DTO_SUCCESS)?;
            idle(rig, pair, (DAT_TRUE, DAT_TRUE))
        },
    ),
    must(
        "dat_ep_set_watermark/hard",
        "DESCRIPTION",
        "An EP may use as many buffers of an SRQ as its hard watermark says. One more buffer \
         breaks its connection.",
        |rig| {
            let (srq, memory) = (rig.srq(16)?, rig.memory(8)?);
            let ep = rig.ep_on(srq)?;
            crate::check::supported(rig.api.dat_ep_set_watermark(
                ep.ep,
                DAT_WATERMARK_INFINITE,
                2,
            ))?;
            let pair = rig.pair_of(rig.ep()?, ep)?;
            for id in 0..4 {
                ok(rig.recv_srq(srq, &[memory.all()], id))?;
            }
            for id in 0..2 {
                ok(rig.send(pair.active.ep, &[], id))?;
                rig.completes(pair.active.request, id, DAT_DTO_SUCCESS)?;
            }
            // The read succeeds only if the connection exists, and completes only after the peer
            // has received both messages.
            rig.wait_for_writes(pair)?;
            rig.expect_no_event(ep.connect)?;
            rig.state_is(ep.ep, DAT_EP_STATE_CONNECTED)?;
            ok(rig.send(pair.active.ep, &[], 2))?;
            rig.connection(ep.connect, DAT_CONNECTION_EVENT_BROKEN).map(drop)
        },
    ),
    must(
        "dat_ep_set_watermark/soft",
        "DESCRIPTION",
        "If an EP uses more buffers of an SRQ than its soft watermark, one event on the \
         asynchronous EVD reports that.",
        |rig| {
            let (srq, memory) = (rig.srq(16)?, rig.memory(8)?);
            let ep = rig.ep_on(srq)?;
            crate::check::supported(rig.api.dat_ep_set_watermark(
                ep.ep,
                2,
                DAT_WATERMARK_INFINITE,
            ))?;
            let pair = rig.pair_of(rig.ep()?, ep)?;
            for id in 0..4 {
                ok(rig.recv_srq(srq, &[memory.all()], id))?;
            }
            for id in 0..2 {
                ok(rig.send(pair.active.ep, &[], id))?;
            }
            // The data of the read arrive after the peer has received both messages.
            let near = rig.memory(8)?;
            ok(rig.read(pair.active.ep, &[near.all()], 9, &memory.remote()))?;
            (0..3).try_for_each(|_| rig.completion(pair.active.request).map(drop))?;
            // The EP uses as many buffers as the soft watermark, so it does not exceed the
            // watermark.
            rig.expect_no_event(rig.async_evd)?;
            // One more buffer exceeds the soft watermark, and an event must report that.
            ok(rig.send(pair.active.ep, &[], 2))?;
            let event = rig.event(rig.async_evd)?;
            let is_trouble = event.event_number & 0x8000 != 0;
            crate::check::ensure(
                is_trouble,
                format_args!("the event is {:#x}", event.event_number),
            )?;
            // Yet another buffer beyond the watermark is not reported again.
            ok(rig.send(pair.active.ep, &[], 3))?;
            (0..4).try_for_each(|_| rig.completion(ep.recv).map(drop))?;
            rig.expect_no_event(rig.async_evd)
        },
    ),
    must(
        "dat_ep_set_watermark/bad-handle",
        "RETURN VALUES",
        "dat_ep_set_watermark refuses a null handle.",
        |rig| answers(rig.api.dat_ep_set_watermark(DAT_HANDLE_NULL, 1, 1), DAT_INVALID_HANDLE),
    ),
];

/// Checks whether the receive queue and the request queue of the passive side are idle.
#[track_caller]
fn idle(rig: &Rig, pair: Pair, wanted: (DAT_BOOLEAN, DAT_BOOLEAN)) -> Outcome {
    let (mut state, mut recv, mut request) = (0, 7, 7);
    ok(rig.api.dat_ep_get_status(pair.passive.ep, &mut state, &mut recv, &mut request))?;
    ensure_equal(
        "whether the receive queue and the request queue are idle",
        (recv, request),
        wanted,
    )
}
