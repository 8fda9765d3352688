//! Cases about immediate data and atomic operations. A transport that does not support these
//! operations declares that in its attributes and refuses them. A transport that supports these
//! operations refuses them if the peer does not support them.

use super::data::{await_writes, refused};
use super::rig::*;
use dat_core::provider::*;

const ATOMIC: Access = Access { remote_atomic: true, ..ALL };

/// Returns whether both sides support immediate data. If only one side supports them, neither side
/// can use them.
fn both_support_immediate<T: Transport>(rig: &Rig<'_, T>) -> bool {
    rig.a.attrs().immediate && rig.b.attrs().immediate
}

/// Returns whether both sides support atomic operations. If only one side supports them, neither
/// side can use them.
fn both_support_atomics<T: Transport>(rig: &Rig<'_, T>) -> bool {
    rig.a.attrs().atomics && rig.b.attrs().atomics
}

fn immediate(to: Remote, immediate: u32) -> SendOp {
    SendOp::WriteImm { to, immediate }
}

pub fn unsupported_operations_are_refused<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    let at = b.mem.remote(0);
    let (immediate_data, atomics) = (both_support_immediate(&rig), both_support_atomics(&rig));
    for (op, is_supported) in [
        (immediate(at, 1), immediate_data),
        (SendOp::FetchAdd { at, add: 1 }, atomics),
        (SendOp::CompareSwap { at, compare: 0, swap: 1 }, atomics),
    ] {
        let unconnected = End::new(a.t);
        let answer = unconnected.try_post(1, op, &[unconnected.mem.segment(0, 8)]);
        assert!(matches!(answer, Ok(()) | Err(PostError::Unsupported)), "{answer:?}");
        if !is_supported {
            for end in [&a, &b] {
                assert_eq!(
                    end.try_post(1, op, &[end.mem.segment(0, 8)]),
                    Err(PostError::Unsupported)
                );
            }
        }
    }
    await_writes(&rig, &a, &b);
}

pub fn a_write_with_immediate_data_is_one_operation<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    if !both_support_immediate(&rig) {
        return;
    }
    let (a, b) = rig.pair();
    for (from, to) in [(&a, &b), (&b, &a)] {
        for (n, len) in [0, 1, 1000, 40_000].into_iter().enumerate() {
            // The write with immediate data is posted between two sends. Each of the three messages
            // takes the next buffer, whatever its size.
            let data = pattern(n as u64, len);
            from.mem.write(0, &data);
            for id in 0..3 {
                to.recv(id, &[to.mem.segment(60_000, if id == 1 { 0 } else { 8 })]);
            }
            from.send(10, &[from.mem.segment(0, 4)]);
            let number = 0xFEDC_0000 + n as u32;
            from.post(11, immediate(to.mem.remote(8), number), &[from.mem.segment(0, len)]);
            from.send(12, &[from.mem.segment(0, 5)]);

            let done = rig.completions(&from.requests, 3);
            assert_eq!(outcomes(&done), [10, 11, 12].map(|id| (id, WcStatus::Success)));
            assert_eq!(
                (done[1].op, done[1].bytes as usize, done[1].immediate),
                (WcOp::WriteImm, len, None)
            );
            let taken = rig.completions(&to.recvs, 3);
            assert_eq!(outcomes(&taken), [0, 1, 2].map(|id| (id, WcStatus::Success)));
            let seen =
                taken.iter().map(|wc| (wc.op, wc.bytes as usize, wc.immediate)).collect::<Vec<_>>();
            let plain = |bytes| (WcOp::Recv, bytes, None);
            assert_eq!(seen, [plain(4), (WcOp::Recv, len, Some(number)), plain(5)]);
            assert!(to.mem.read(8, len) == data, "{len} bytes");
        }
    }
}

pub fn atomic_operations_return_the_old_value<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    if !both_support_atomics(&rig) {
        return;
    }
    let (a, b) = rig.pair();
    let target = Buffer::new(b.t, &b.pd, 64, ATOMIC);
    let at = target.remote(16);
    target.write(16, &u64::to_ne_bytes(40));
    let originals = [
        (SendOp::FetchAdd { at, add: 2 }, 40),
        (SendOp::CompareSwap { at, compare: 42, swap: u64::MAX }, 42),
        (SendOp::CompareSwap { at, compare: 42, swap: 7 }, u64::MAX),
        (SendOp::FetchAdd { at, add: 3 }, u64::MAX),
    ];
    // More reads and atomic operations are posted than may be outstanding. The fences make each
    // atomic operation wait for the reads before it.
    for (n, (op, _)) in originals.into_iter().enumerate() {
        let n_8 = 8 * n;
        let segments = [a.mem.segment(n_8, 3), a.mem.segment(n_8 + 3, 5)];
        a.post_wr(&SendWr { fence: true, ..signalled(n as u64, op, &segments) });
        a.post(10 + n as u64, SendOp::Read(at), &[a.mem.segment(100 + n_8, 8)]);
    }
    let done = rig.completions(&a.requests, 8);
    assert!(done.iter().all(|wc| (wc.bytes, wc.status) == (8, WcStatus::Success)), "{done:?}");
    let ops = [WcOp::FetchAdd, WcOp::CompareSwap, WcOp::CompareSwap, WcOp::FetchAdd];
    for (n, op) in ops.into_iter().enumerate() {
        assert_eq!(
            (done[2 * n].id, done[2 * n].op, done[2 * n + 1].id),
            (n as u64, op, 10 + n as u64)
        );
        assert_eq!(a.mem.read(8 * n, 8), originals[n].1.to_ne_bytes());
    }
    for (n, value) in [42, u64::MAX, u64::MAX, 2].into_iter().enumerate() {
        assert_eq!(a.mem.read(100 + 8 * n, 8), u64::to_ne_bytes(value), "read {n}");
    }
    assert_eq!(target.read(16, 8), 2u64.to_ne_bytes());
    assert!(poll::<T>(&b.requests, 1).is_empty() && poll::<T>(&b.recvs, 1).is_empty());
    await_writes(&rig, &a, &b);
}

pub fn atomic_operations_are_checked<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    if !both_support_atomics(&rig) {
        return;
    }
    // The three cases are: the peer lacks the access right, the target is unaligned, and the target
    // is past the end of the region.
    for (access, offset) in [(ALL, 0), (ATOMIC, 4), (ATOMIC, 64)] {
        let (a, b) = rig.pair();
        let target = Buffer::new(b.t, &b.pd, 64, access);
        let at = Remote { addr: target.remote(0).addr + offset, ..target.remote(0) };
        refused(&rig, &a, &b, SendOp::FetchAdd { at, add: 1 }, a.mem.segment(0, 8));
        assert_eq!(target.read(0, 64), [0; 64]);
    }
    let (a, b) = rig.pair();
    let no_write =
        Buffer::new(a.t, &a.pd, 64, Access { local_write: false, remote_write: false, ..ALL });
    let op = SendOp::FetchAdd { at: b.mem.remote(0), add: 1 };
    assert_eq!(
        a.try_post(1, op, &[no_write.segment(0, 8)]),
        Err(PostError::Access { write: true })
    );
    for segments in [&[][..], &[a.mem.segment(0, 7)], &[a.mem.segment(0, 8), a.mem.segment(8, 8)]] {
        assert_eq!(a.try_post(1, op, segments), Err(PostError::Bounds));
    }
    await_writes(&rig, &a, &b);
}
