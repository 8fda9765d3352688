//! dat_ep_post_rdma_write.

use std::ptr::{null, null_mut};

use dat_sys::*;

use super::bad_requests::refused_or_fails;
use crate::case::{Row, must};
use crate::check::{Outcome, answers, ensure, ensure_equal, failed, ok, one_of};
use crate::rig::{Pair, Region, Rig, cookie};

pub(super) const CASES: &[Row] = &[
    must(
        "dat_ep_post_rdma_write/transfers-all",
        "DESCRIPTION 1",
        "An RDMA write copies all data of the local IOV to the remote buffer.",
        |rig| {
            let (pair, from, to) = start(rig, 70_000)?;
            let data: Vec<u8> = (0..70_000_u32).map(|n| (n % 251) as u8).collect();
            from.store(0, &data);
            ok(rig.write(pair.active.ep, &[from.all()], 1, &to.remote()))?;
            done(rig, pair, 1)?;
            ensure_equal("the remote buffer", to.load(0, 70_000) == data, true)
        },
    ),
    must(
        "dat_ep_post_rdma_write/only-there",
        "DESCRIPTION 1",
        "An RDMA write writes only to the remote buffer.",
        |rig| {
            let (pair, from, to) = start(rig, 64)?;
            from.store(0, &[0xff; 64]);
            ok(rig.write(pair.active.ep, &[from.part(0, 8)], 1, &to.remote_part(16, 8)))?;
            done(rig, pair, 1)?;
            let mut wanted = vec![0; 64];
            wanted[16..24].fill(0xff);
            ensure_equal("the remote memory", to.load(0, 64), wanted)
        },
    ),
    must(
        "dat_ep_post_rdma_write/shorter-than-remote",
        "DESCRIPTION 1",
        "The remote buffer of an RDMA write may be longer than the data.",
        |rig| {
            let (pair, from, to) = start(rig, 64)?;
            from.store(0, &[7; 64]);
            ok(rig.write(pair.active.ep, &[from.part(0, 8)], 1, &to.remote()))?;
            done(rig, pair, 1)?;
            ensure_equal("the remote memory", to.load(0, 9), vec![7, 7, 7, 7, 7, 7, 7, 7, 0])
        },
    ),
    must(
        "dat_ep_post_rdma_write/iov-order",
        "DESCRIPTION 2",
        "An RDMA write uses the segments in the order of the IOV.",
        |rig| {
            let (pair, from, to) = start(rig, 8)?;
            from.store(0, b"worldwow");
            ok(rig.write(pair.active.ep, &[from.part(5, 3), from.part(0, 5)], 1, &to.remote()))?;
            done(rig, pair, 1)?;
            ensure_equal("the remote buffer", to.load(0, 8), b"wowworld".to_vec())
        },
    ),
    must(
        "dat_ep_post_rdma_write/segments-beyond-count",
        "PARAMETERS 2",
        "An RDMA write uses only the given number of segments of the IOV.",
        |rig| {
            let (pair, from, to) = start(rig, 8)?;
            from.store(0, b"onetwo..");
            let mut iov = [from.part(0, 3), from.part(3, 3)];
            let (remote, flags) = (to.remote(), DAT_COMPLETION_DEFAULT_FLAG);
            ok(rig.api.dat_ep_post_rdma_write(
                pair.active.ep,
                1,
                iov.as_mut_ptr(),
                cookie(1),
                &remote,
                flags,
            ))?;
            done(rig, pair, 1)?;
            ensure_equal("the remote buffer", to.load(0, 8), b"one\0\0\0\0\0".to_vec())
        },
    ),
    must(
        "dat_ep_post_rdma_write/no-segments",
        "PARAMETERS 2",
        "An RDMA write without segments succeeds and writes nothing.",
        |rig| {
            let (pair, _, to) = start(rig, 8)?;
            ok(rig.write(pair.active.ep, &[], 1, &to.remote()))?;
            ensure_equal("the bytes", done(rig, pair, 1)?, 0)?;
            ensure_equal("the remote buffer", to.load(0, 8), vec![0; 8])
        },
    ),
    must(
        "dat_ep_post_rdma_write/empty-segments",
        "DESCRIPTION 2",
        "A segment of length 0 adds no data to an RDMA write, whatever the other members of the \
         segment are.",
        |rig| {
            let (pair, from, to) = start(rig, 8)?;
            from.store(0, b"abcdefgh");
            let nothing =
                DAT_LMR_TRIPLET { virtual_address: 1, segment_length: 0, lmr_context: 0x1234_5678 };
            ok(rig.write(pair.active.ep, &[nothing, from.all()], 1, &to.remote()))?;
            done(rig, pair, 1)?;
            ensure_equal("the remote buffer", to.load(0, 8), b"abcdefgh".to_vec())
        },
    ),
    must(
        "dat_ep_post_rdma_write/not-reported-at-target",
        "DESCRIPTION 1",
        "An RDMA write is not reported to the peer and uses no receive.",
        |rig| {
            let (pair, from, to) = start(rig, 8)?;
            let spare = rig.memory(8)?;
            ok(rig.recv(pair.passive.ep, &[spare.all()], 9))?;
            ok(rig.write(pair.active.ep, &[from.all()], 1, &to.remote()))?;
            done(rig, pair, 1)?;
            // The send follows the write, and the receive must complete with the send.
            ok(rig.send(pair.active.ep, &[from.part(0, 3)], 2))?;
            ensure_equal(
                "the bytes of the receive",
                rig.completes(pair.passive.recv, 9, DAT_DTO_SUCCESS)?.length,
                3,
            )
        },
    ),
    must(
        "dat_ep_post_rdma_write/completion",
        "DESCRIPTION 5",
        "A DTO completion event on the request EVD reports the end of an RDMA write, with EP, \
         cookie, status and length.",
        |rig| {
            let (pair, from, to) = start(rig, 64)?;
            ok(rig.write(
                pair.active.ep,
                &[from.part(0, 20), from.part(20, 22)],
                u64::MAX - 3,
                &to.remote(),
            ))?;
            let dto = rig.completion(pair.active.request)?;
            ensure_equal(
                "the completion",
                (dto.ep, dto.cookie, dto.status, dto.length),
                (pair.active.ep, u64::MAX - 3, DAT_DTO_SUCCESS, 42),
            )
        },
    ),
    must(
        "dat_ep_post_rdma_write/operation",
        "2.0 headers: operation of a DTO completion",
        "The completion of an RDMA write has the operation code of an RDMA write.",
        |rig| {
            let (pair, from, to) = start(rig, 8)?;
            ok(rig.write(pair.active.ep, &[from.all()], 1, &to.remote()))?;
            ensure_equal(
                "operation",
                rig.completion(pair.active.request)?.operation,
                DAT_DTO_RDMA_WRITE,
            )
        },
    ),
    must(
        "dat_ep_post_rdma_write/suppressed",
        "PARAMETERS 6",
        "A suppressed write that succeeds is not reported. The next write without suppression is \
         reported.",
        |rig| {
            let (pair, from, to) = start(rig, 8)?;
            ok(rig.write_with(
                pair.active.ep,
                &[from.all()],
                1,
                &to.remote(),
                DAT_COMPLETION_SUPPRESS_FLAG,
            ))?;
            ok(rig.write(pair.active.ep, &[from.all()], 2, &to.remote()))?;
            done(rig, pair, 2)?;
            rig.expect_no_event(pair.active.request)
        },
    ),
    must(
        "dat_ep_post_rdma_write/suppressed-failure",
        "PARAMETERS 6",
        "A suppressed write that fails is reported: only success is suppressed.",
        |rig| {
            let pair = rig.ended_pair()?;
            let (from, to) = (rig.memory(8)?, rig.memory(8)?);
            ok(rig.write_with(
                pair.active.ep,
                &[from.all()],
                1,
                &to.remote(),
                DAT_COMPLETION_SUPPRESS_FLAG,
            ))?;
            rig.completes(pair.active.request, 1, DAT_DTO_ERR_FLUSHED).map(drop)
        },
    ),
    must(
        "dat_ep_post_rdma_write/unsignalled-not-configured",
        "DESCRIPTION 5",
        "A write with the unsignalled flag is invalid if the EP was created without that flag.",
        |rig| {
            let (pair, from, to) = start(rig, 8)?;
            let flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            let answer = rig.write_with(pair.active.ep, &[from.all()], 1, &to.remote(), flags);
            answers(answer, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ep_post_rdma_write/unsignalled",
        "DESCRIPTION 5",
        "If the EP was created for unsignalled completions, the completion of an unsignalled write \
         is queued as an event.",
        |rig| {
            let request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            let pair = rig.pair_with(&DAT_EP_ATTR { request_completion_flags, ..rig.ep_attr() })?;
            let (from, to) = (rig.memory(8)?, rig.memory(8)?);
            let flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
            ok(rig.write_with(pair.active.ep, &[from.all()], 1, &to.remote(), flags))?;
            ok(rig.write(pair.active.ep, &[from.all()], 2, &to.remote()))?;
            rig.completes(pair.active.request, 1, DAT_DTO_SUCCESS)?;
            rig.completes(pair.active.request, 2, DAT_DTO_SUCCESS).map(drop)
        },
    ),
    must(
        "dat_ep_post_rdma_write/barrier-fence",
        "PARAMETERS 6",
        "A write with a barrier fence begins after the preceding reads have completed.",
        |rig| {
            // The read is so large that it takes some time.
            const SIZE: u32 = 1 << 20;
            let (pair, near, far) = start(rig, SIZE)?;
            far.store(0, &[1; SIZE as usize]);
            let other = rig.memory(SIZE)?;
            other.store(0, &[2; SIZE as usize]);
            // The read must return the data that are in the memory now. The write then overwrites
            // them.
            ok(rig.read(pair.active.ep, &[near.all()], 1, &far.remote()))?;
            let flags = DAT_COMPLETION_BARRIER_FENCE_FLAG;
            ok(rig.write_with(pair.active.ep, &[other.all()], 2, &far.remote(), flags))?;
            rig.completes(pair.active.request, 1, DAT_DTO_SUCCESS)?;
            rig.completes(pair.active.request, 2, DAT_DTO_SUCCESS)?;
            ensure_equal(
                "whether the read has returned the data before the write",
                near.load(0, SIZE) == vec![1; SIZE as usize],
                true,
            )
        },
    ),
    must(
        "dat_ep_post_rdma_write/unknown-flags",
        "RETURN VALUES 3",
        "dat_ep_post_rdma_write refuses completion flags that the standard does not define.",
        |rig| {
            let (pair, from, to) = start(rig, 8)?;
            let answer = rig.write_with(pair.active.ep, &[from.all()], 1, &to.remote(), 0x4000);
            answers(answer, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ep_post_rdma_write/same-cookie",
        "DESCRIPTION 6",
        "Several writes may have the same cookie. Writes complete in order, each with its own \
         cookie.",
        |rig| {
            let (pair, from, to) = start(rig, 8)?;
            for id in [5, 5, 0, 5] {
                ok(rig.write(pair.active.ep, &[from.all()], id, &to.remote()))?;
            }
            for id in [5, 5, 0, 5] {
                rig.completes(pair.active.request, id, DAT_DTO_SUCCESS)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_post_rdma_write/flushed-when-disconnected",
        "DESCRIPTION 7",
        "A write on a disconnected EP is accepted, and flushed at once.",
        |rig| {
            let pair = rig.ended_pair()?;
            let (from, to) = (rig.memory(8)?, rig.memory(8)?);
            ok(rig.write(pair.active.ep, &[from.all()], 1, &to.remote()))?;
            // The flush must already have happened, so the case does not wait for the completion.
            let mut event = DAT_EVENT::zeroed();
            ok(rig.api.dat_evd_dequeue(pair.active.request, &mut event))?;
            let dto = crate::rig::dto_completion(&event);
            ensure_equal("cookie and status", (dto.cookie, dto.status), (1, DAT_DTO_ERR_FLUSHED))
        },
    ),
    must(
        "dat_ep_post_rdma_write/out-of-resources",
        "RETURN VALUES 2",
        "If max_request_dtos requests are outstanding, a further write returns \
         DAT_INSUFFICIENT_RESOURCES.",
        |rig| {
            let pair = rig.ended_pair()?;
            let max = rig.query(pair.active.ep)?.ep_attr.max_request_dtos;
            let (from, to) = (rig.memory(8)?, rig.memory(8)?);
            // A flushed DTO occupies its slot until its event is dequeued. The EVD has room for the
            // events of all slots.
            if max >= crate::rig::EVD_QUEUE_LENGTH {
                return crate::check::unsupported(
                    "the EP accepts more requests than an EVD can hold events",
                );
            }
            for id in 0..max {
                ok(rig.write(pair.active.ep, &[from.all()], id as u64, &to.remote()))?;
            }
            answers(
                rig.write(pair.active.ep, &[from.all()], 99, &to.remote()),
                DAT_INSUFFICIENT_RESOURCES,
            )
        },
    ),
    must(
        "dat_ep_post_rdma_write/outside-lmr",
        "RETURN VALUES 3",
        "A write is invalid if a segment begins before its LMR or ends after its LMR.",
        |rig| {
            let (from, to) = (rig.memory(64)?, rig.memory(64)?);
            let before = DAT_LMR_TRIPLET { virtual_address: from.address - 1, ..from.part(0, 8) };
            let wraps = DAT_LMR_TRIPLET { virtual_address: u64::MAX - 3, ..from.part(0, 8) };
            for segment in [from.part(60, 5), from.part(64, 1), before, wraps] {
                let pair = rig.pair()?;
                let answer = rig.write(pair.active.ep, &[segment], 1, &to.remote());
                refused_or_fails(rig, answer, DAT_INVALID_PARAMETER, pair.active)?;
            }
            let pair = rig.pair()?;
            ok(rig.write(pair.active.ep, &[from.part(60, 4)], 2, &to.remote()))?;
            done(rig, pair, 2).map(drop)
        },
    ),
    must(
        "dat_ep_post_rdma_write/negative-count",
        "RETURN VALUES 3",
        "dat_ep_post_rdma_write refuses a negative number of segments.",
        |rig| {
            let (pair, from, to) = start(rig, 8)?;
            let (mut iov, remote) = ([from.all()], to.remote());
            let answer = rig.api.dat_ep_post_rdma_write(
                pair.active.ep,
                -1,
                iov.as_mut_ptr(),
                cookie(1),
                &remote,
                0,
            );
            answers(answer, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ep_post_rdma_write/too-many-segments",
        "RETURN VALUES 3",
        "dat_ep_post_rdma_write refuses more segments than the EP allows.",
        |rig| {
            for (max_request_iov, max_rdma_write_iov) in [(1, 2), (2, 1), (2, 0)] {
                let attr = DAT_EP_ATTR { max_request_iov, max_rdma_write_iov, ..rig.ep_attr() };
                let (pair, from, to) = (rig.pair_with(&attr)?, rig.memory(64)?, rig.memory(64)?);
                // 0 stands for max_request_iov.
                let max = if max_rdma_write_iov > 0 { max_rdma_write_iov } else { max_request_iov };
                let iov = vec![from.part(0, 1); max as usize + 1];
                answers(rig.write(pair.active.ep, &iov, 1, &to.remote()), DAT_INVALID_PARAMETER)?;
                ok(rig.write(pair.active.ep, &iov[1..], 2, &to.remote()))?;
                rig.completes(pair.active.request, 2, DAT_DTO_SUCCESS)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ep_post_rdma_write/null-iov",
        "RETURN VALUES 3",
        "dat_ep_post_rdma_write refuses a null pointer for the IOV if the number of segments is \
         positive.",
        |rig| {
            let (pair, _, to) = start(rig, 8)?;
            let remote = to.remote();
            let answer = rig.api.dat_ep_post_rdma_write(
                pair.active.ep,
                1,
                null_mut(),
                cookie(1),
                &remote,
                0,
            );
            answers(answer, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ep_post_rdma_write/null-remote-buffer",
        "RETURN VALUES 3",
        "dat_ep_post_rdma_write refuses a null pointer for the remote buffer.",
        |rig| {
            let (pair, from, _) = start(rig, 8)?;
            let mut iov = [from.all()];
            let answer = rig.api.dat_ep_post_rdma_write(
                pair.active.ep,
                1,
                iov.as_mut_ptr(),
                cookie(1),
                null(),
                0,
            );
            answers(answer, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ep_post_rdma_write/null-handle",
        "RETURN VALUES 4",
        "A null EP handle is refused.",
        |rig| with_handle(rig, DAT_HANDLE_NULL),
    ),
    must(
        "dat_ep_post_rdma_write/freed-handle",
        "RETURN VALUES 4",
        "The handle of a freed EP is refused.",
        |rig| {
            let ep = rig.ep()?.ep;
            ok(rig.api.dat_ep_free(ep))?;
            with_handle(rig, ep)
        },
    ),
    must(
        "dat_ep_post_rdma_write/other-kind-of-handle",
        "RETURN VALUES 4",
        "dat_ep_post_rdma_write refuses the handle of an object that is not an EP.",
        |rig| with_handle(rig, rig.pz()?),
    ),
    must(
        "dat_ep_post_rdma_write/remote-too-small",
        "RETURN VALUES 6",
        "A write of more data than the remote buffer can hold is a length error.",
        |rig| {
            let (pair, from, to) = start(rig, 64)?;
            from.store(0, &[7; 64]);
            let answer = rig.write(pair.active.ep, &[from.all()], 1, &to.remote_part(0, 63));
            answers(answer, DAT_LENGTH_ERROR)?;
            ensure_equal("the remote memory", to.load(0, 64), vec![0; 64])
        },
    ),
    must(
        "dat_ep_post_rdma_write/local-pz",
        "RETURN VALUES 7",
        "A write from memory of another zone than the EP's is a protection violation.",
        |rig| {
            let (pair, _, to) = start(rig, 64)?;
            let strange = rig.memory_with(rig.new_pz()?, 64, DAT_MEM_PRIV_ALL_FLAG)?;
            let answer = rig.write(pair.active.ep, &[strange.all()], 1, &to.remote());
            refused_or_fails(rig, answer, DAT_PROTECTION_VIOLATION, pair.active)
        },
    ),
    must(
        "dat_ep_post_rdma_write/remote-pz",
        "RETURN VALUES 7",
        "If the RMR context belongs to another zone than the remote EP, nothing is written, and \
         the connection breaks with a protection violation.",
        |rig| {
            let pair = rig.pair()?;
            let strange = rig.memory_with(rig.new_pz()?, 64, DAT_MEM_PRIV_ALL_FLAG)?;
            remote_fails(rig, pair, &strange)
        },
    ),
    must(
        "dat_ep_post_rdma_write/freed-lmr",
        "RETURN VALUES 8",
        "A write with a local segment of a freed LMR is refused.",
        |rig| {
            let (pair, from, to) = start(rig, 64)?;
            ok(rig.api.dat_lmr_free(from.lmr))?;
            let answer = rig.write(pair.active.ep, &[from.all()], 1, &to.remote());
            refused_or_fails(rig, answer, DAT_PRIVILEGES_VIOLATION, pair.active)
        },
    ),
    must(
        "dat_ep_post_rdma_write/no-local-read",
        "RETURN VALUES 8",
        "A write from memory without the local read privilege is a privileges violation.",
        |rig| {
            let (pair, _, to) = start(rig, 64)?;
            let from = rig.memory_with(rig.pz()?, 64, DAT_MEM_PRIV_LOCAL_WRITE_FLAG)?;
            from.store(0, &[0xa5; 64]);
            let answer = rig.write(pair.active.ep, &[from.all()], 1, &to.remote());
            match rig.strict_attribute()? {
                Some(true) => answers(answer, DAT_PRIVILEGES_VIOLATION)?,
                Some(false) => ok(answer)?,
                // RDMA devices have no access right for local reads, so an adapter over verbs
                // cannot refuse them (`coverage/exceptions.rs`).
                None if answer != DAT_SUCCESS => answers(answer, DAT_PRIVILEGES_VIOLATION)?,
                None => {}
            }
            if answer == DAT_SUCCESS {
                done(rig, pair, 1)?;
                return ensure_equal("the remote buffer", to.load(0, 64), vec![0xa5; 64]);
            }
            ensure_equal("the remote buffer", to.load(0, 64), vec![0; 64])
        },
    ),
    must(
        "dat_ep_post_rdma_write/no-remote-write",
        "RETURN VALUES 8",
        "If the remote buffer does not have the remote write privilege, nothing is written, and \
         the connection breaks.",
        |rig| {
            let pair = rig.pair()?;
            let read_only = DAT_MEM_PRIV_LOCAL_READ_FLAG
                | DAT_MEM_PRIV_LOCAL_WRITE_FLAG
                | DAT_MEM_PRIV_REMOTE_READ_FLAG;
            let to = rig.memory_with(rig.pz()?, 64, read_only)?;
            remote_fails(rig, pair, &to)
        },
    ),
    must(
        "dat_ep_post_rdma_write/freed-remote-lmr",
        "RETURN VALUES 8",
        "If the remote buffer belongs to a freed LMR, nothing is written, and the connection \
         breaks.",
        |rig| {
            let (pair, _, to) = start(rig, 64)?;
            ok(rig.api.dat_lmr_free(to.lmr))?;
            remote_fails(rig, pair, &to)
        },
    ),
    must(
        "dat_ep_post_rdma_write/outside-remote-lmr",
        "RETURN VALUES 7",
        "If the remote buffer extends beyond its LMR, nothing is written, and the connection \
         breaks.",
        |rig| {
            let (pair, from, to) = start(rig, 64)?;
            from.store(0, &[0xff; 64]);
            ok(rig.write(pair.active.ep, &[from.all()], 1, &to.remote_part(1, 64)))?;
            broken(rig, pair)?;
            ensure_equal("the last byte", to.load(63, 1), vec![0])
        },
    ),
];

/// Returns two connected endpoints, and memory at each of them.
fn start(rig: &Rig, length: u32) -> Outcome<(Pair, Region, Region)> {
    Ok((rig.pair()?, rig.memory(length)?, rig.memory(length)?))
}

/// Checks that the write with this cookie has succeeded, and returns the bytes in the remote
/// memory.
#[track_caller]
fn done(rig: &Rig, pair: Pair, id: u64) -> Outcome<u32> {
    let length = rig.completes(pair.active.request, id, DAT_DTO_SUCCESS)?.length;
    rig.wait_for_writes(pair)?;
    Ok(length)
}

#[track_caller]
fn with_handle(rig: &Rig, ep: DAT_EP_HANDLE) -> Outcome {
    let memory = rig.memory(8)?;
    answers(rig.write(ep, &[memory.all()], 1, &memory.remote()), DAT_INVALID_HANDLE)
}

/// Checks that a write to memory for which the peer does not grant the write privilege fails.
#[track_caller]
fn remote_fails(rig: &Rig, pair: Pair, to: &Region) -> Outcome {
    let from = rig.memory(64)?;
    from.store(0, &[0xff; 64]);
    match rig.write(pair.active.ep, &[from.all()], 1, &to.remote()) {
        DAT_SUCCESS => broken(rig, pair)?,
        // The standard lets a provider detect the error during the post. No provider of this
        // project can do that.
        answer => one_of(answer, &[DAT_PROTECTION_VIOLATION, DAT_PRIVILEGES_VIOLATION])?,
    }
    ensure(to.load(0, 64) == vec![0; 64], "the memory has been written to")
}

/// Checks that both endpoints get an event that says that the connection has broken.
#[track_caller]
fn broken(rig: &Rig, pair: Pair) -> Outcome {
    for end in [pair.passive, pair.active] {
        let event = rig.event(end.connect)?;
        let ends = [DAT_CONNECTION_EVENT_BROKEN, DAT_CONNECTION_EVENT_DISCONNECTED];
        if !ends.contains(&event.event_number) {
            return Err(failed(format_args!("the event is {:#x}", event.event_number)));
        }
    }
    rig.state_is(pair.active.ep, DAT_EP_STATE_DISCONNECTED)
}
