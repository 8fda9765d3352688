//! Cases about the effects of operations on memory, and about their completions.

use super::rig::*;
use dat_core::provider::*;

pub fn sends_arrive_in_order_and_complete<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    for (from, to) in [(&a, &b), (&b, &a)] {
        for i in 0..16 {
            to.recv(100 + i as u64, &[to.mem.segment(i * 1024, 1024)]);
        }
        for i in 0..16 {
            from.mem.write(i * 1024, &pattern(i as u64, 1024));
            from.send(i as u64, &[from.mem.segment(i * 1024, 64 * i + 1)]);
        }
        for (i, wc) in rig.completions(&from.requests, 16).into_iter().enumerate() {
            let want = Wc {
                id: i as u64,
                qp: TOKEN,
                bytes: 64 * i as u32 + 1,
                invalidated: None,
                immediate: None,
                op: WcOp::Send,
                status: WcStatus::Success,
            };
            assert_eq!(wc, want);
        }
        for (i, wc) in rig.completions(&to.recvs, 16).into_iter().enumerate() {
            let want = Wc {
                id: 100 + i as u64,
                qp: TOKEN,
                bytes: 64 * i as u32 + 1,
                invalidated: None,
                immediate: None,
                op: WcOp::Recv,
                status: WcStatus::Success,
            };
            assert_eq!(wc, want);
            assert_eq!(to.mem.read(i * 1024, 64 * i + 1), pattern(i as u64, 1024)[..64 * i + 1]);
        }
    }
}

pub fn every_size_arrives<T: Transport>(a: &T, b: &T) {
    // A larger size would cost Miri more time and test nothing new.
    const MAX: usize = if cfg!(miri) { 128 } else { 1 << 20 };
    let rig = Rig { a, b };
    let (a, b) = (End::with(a, 8, 2 * MAX), End::with(b, 8, 2 * MAX));
    rig.join(&a, &b);
    for (i, len) in [1, 2, 3, 63, 64, 65, 1459, 1460, 4095, 65535, 65536, 300_001, MAX]
        .into_iter()
        .filter(|&len| len <= MAX)
        .enumerate()
    {
        let i = i as u64;
        a.mem.write(0, &pattern(i, len));
        b.recv(i, &[b.mem.segment(0, MAX)]);
        a.send(i, &[a.mem.segment(0, len)]);
        let recv = rig.completions(&b.recvs, 1)[0];
        assert_eq!((recv.id, recv.bytes as usize, recv.status), (i, len, WcStatus::Success));
        assert!(b.mem.read(0, len) == pattern(i, len), "{len} bytes sent");
        rig.completions(&a.requests, 1);

        a.post(i, SendOp::Read(b.mem.remote(0)), &[a.mem.segment(MAX, len)]);
        let read = rig.completions(&a.requests, 1)[0];
        assert_eq!(
            (read.op, read.bytes as usize, read.status),
            (WcOp::Read, len, WcStatus::Success)
        );
        assert!(a.mem.read(MAX, len) == pattern(i, len), "{len} bytes read");

        a.mem.write(0, &pattern(!i, len));
        a.post(i, SendOp::Write(b.mem.remote(MAX)), &[a.mem.segment(0, len)]);
        let write = rig.completions(&a.requests, 1)[0];
        assert_eq!(
            (write.op, write.bytes as usize, write.status),
            (WcOp::Write, len, WcStatus::Success)
        );
        await_writes(&rig, &a, &b);
        assert!(b.mem.read(MAX, len) == pattern(!i, len), "{len} bytes written");
    }
}

/// Ensures that all writes of `a` have arrived: sends a message, which does not overtake the
/// writes.
pub(super) fn await_writes<'t, T: Transport>(rig: &Rig<'t, T>, a: &End<'t, T>, b: &End<'t, T>) {
    b.recv(0, &[]);
    a.send(0, &[]);
    assert_eq!(outcomes(&rig.completions(&b.recvs, 1)), [(0, WcStatus::Success)]);
    assert_eq!(outcomes(&rig.completions(&a.requests, 1)), [(0, WcStatus::Success)]);
}

pub fn segments_are_gathered_and_scattered<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    a.mem.write(0, &pattern(1, 1000));
    // The message has 100 + 0 + 7 + 393 bytes, out of order in memory. The buffer has 1 + 250 + 0 +
    // 300, so the last segment is not filled.
    b.recv(
        1,
        &[
            b.mem.segment(500, 1),
            b.mem.segment(0, 250),
            b.mem.segment(900, 0),
            b.mem.segment(2000, 300),
        ],
    );
    a.send(
        1,
        &[
            a.mem.segment(600, 100),
            a.mem.segment(0, 0),
            a.mem.segment(5, 7),
            a.mem.segment(100, 393),
        ],
    );
    assert_eq!(rig.completions(&b.recvs, 1)[0].bytes, 500);
    rig.completions(&a.requests, 1);

    let p = pattern(1, 1000);
    let message = [&p[600..700], &p[5..12], &p[100..493]].concat();
    assert_eq!(b.mem.read(500, 1), message[..1]);
    assert_eq!(b.mem.read(0, 250), message[1..251]);
    assert_eq!(b.mem.read(2000, 249), message[251..]);
    assert_eq!(
        b.mem.read(2249, 51),
        [0; 51],
        "no byte may be written after the end of the message"
    );
    assert_eq!(b.mem.read(250, 250), [0; 250]);
}

pub fn writes_land_where_they_should<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    a.mem.write(0, &pattern(2, 3000));
    let segments = [a.mem.segment(2000, 1000), a.mem.segment(0, 1), a.mem.segment(1, 998)];
    a.post(1, SendOp::Write(b.mem.remote(10_001)), &segments);
    assert_eq!(outcomes(&rig.completions(&a.requests, 1)), [(1, WcStatus::Success)]);
    await_writes(&rig, &a, &b);
    let p = pattern(2, 3000);
    assert_eq!(b.mem.read(10_001, 1999), [&p[2000..], &p[..999]].concat());
    assert_eq!((b.mem.read(10_000, 1), b.mem.read(12_000, 1)), (vec![0], vec![0]));
    b.recvs_log.assert_silent();
}

pub fn reads_fetch_what_is_there<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    b.mem.write(77, &pattern(3, 5000));
    let segments = [a.mem.segment(9000, 1), a.mem.segment(0, 4000), a.mem.segment(6000, 999)];
    let segments = &segments[..segments.len().min(a.t.attrs().max_read_segments)];
    a.post(1, SendOp::Read(b.mem.remote(77)), segments);
    let wc = rig.completions(&a.requests, 1)[0];
    let len: u32 = segments.iter().map(|s| s.len).sum();
    assert_eq!((wc.op, wc.bytes, wc.status), (WcOp::Read, len, WcStatus::Success));
    let p = pattern(3, 5000);
    let parts = [(9000, 0..1), (0, 1..4001), (6000, 4001..5000)];
    for (offset, range) in parts.into_iter().take(segments.len()) {
        assert_eq!(a.mem.read(offset, range.len()), p[range]);
    }
    assert_eq!(a.mem.read(4000, 100), [0; 100]);
}

pub fn empty_operations_complete<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    // The key of an empty remote access is not checked.
    let nowhere = Remote { addr: 0x10, key: 0xdead };
    b.recv(7, &[b.mem.segment(0, 16)]);
    b.recv(8, &[]);
    a.send(1, &[]);
    a.post(2, SendOp::Write(nowhere), &[]);
    a.post(3, SendOp::Read(nowhere), &[a.mem.segment(0, 0)]);
    // The key of an empty local segment is not checked.
    a.send(4, &[Segment::default()]);
    let wcs = rig.completions(&a.requests, 4);
    assert_eq!(outcomes(&wcs), [1, 2, 3, 4].map(|id| (id, WcStatus::Success)));
    let wcs = rig.completions(&b.recvs, 2);
    assert_eq!(outcomes(&wcs), [7, 8].map(|id| (id, WcStatus::Success)));
    assert!(wcs.iter().all(|wc| wc.bytes == 0));
    assert_eq!(b.mem.read(0, 16), [0; 16]);
}

pub fn a_fence_waits_for_reads<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    for round in 0..20 {
        b.mem.write(0, &pattern(round, 8192));
        b.recv(round, &[b.mem.segment(16384, 8192)]);
        // The data that was read is sent back at once. Without the fence the send might start
        // before the data have arrived.
        let segments = [a.mem.segment(0, 8192)];
        a.post(1, SendOp::Read(b.mem.remote(0)), &segments);
        a.post_wr(&SendWr { fence: true, ..signalled(2, SEND, &segments) });
        rig.completions(&b.recvs, 1);
        assert_eq!(b.mem.read(16384, 8192), pattern(round, 8192));
        assert_eq!(
            outcomes(&rig.completions(&a.requests, 2)),
            [(1, WcStatus::Success), (2, WcStatus::Success)]
        );
    }
}

pub fn many_requests_in_both_directions<T: Transport>(a: &T, b: &T) {
    const SIZE: usize = 500;
    const AREA_BYTES: usize = 32 * SIZE;
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    for end in [&a, &b] {
        for i in 0..32 {
            end.recv(i as u64, &[end.mem.segment(AREA_BYTES + i * SIZE, SIZE)]);
        }
    }
    for i in 0..32 {
        for (end, peer, seed) in [(&a, &b, 1000), (&b, &a, 2000)] {
            end.mem.write(i * SIZE, &pattern(seed + i as u64, SIZE));
            let local = [end.mem.segment(i * SIZE, SIZE)];
            end.send(2 * i as u64, &local);
            end.post(
                2 * i as u64 + 1,
                SendOp::Write(peer.mem.remote(2 * AREA_BYTES + i * SIZE)),
                &local,
            );
        }
    }
    for (end, seed) in [(&a, 2000), (&b, 1000)] {
        let want: Vec<_> = (0..64).map(|id| (id, WcStatus::Success)).collect();
        assert_eq!(outcomes(&rig.completions(&end.requests, 64)), want);
        assert_eq!(outcomes(&rig.completions(&end.recvs, 32)), want[..32]);
        for i in 0..32 {
            assert_eq!(end.mem.read(AREA_BYTES + i * SIZE, SIZE), pattern(seed + i as u64, SIZE));
        }
    }
    await_writes(&rig, &a, &b);
    await_writes(&rig, &b, &a);
    for (end, seed) in [(&a, 2000), (&b, 1000)] {
        for i in 0..32 {
            assert_eq!(
                end.mem.read(2 * AREA_BYTES + i * SIZE, SIZE),
                pattern(seed + i as u64, SIZE)
            );
        }
    }
}

/// A message that is too long for its buffer ends the connection. Memory after the buffer is not
/// overwritten.
pub fn too_long_a_message_breaks_the_connection<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    b.recv(1, &[b.mem.segment(0, 10)]);
    b.recv(2, &[b.mem.segment(100, 100)]);
    a.recv(3, &[a.mem.segment(100, 100)]);
    a.mem.write(0, &[0xaa; 11]);
    a.send(4, &[a.mem.segment(0, 11)]);
    assert_broken(&rig, &a);
    assert_broken(&rig, &b);
    assert_eq!(
        outcomes(&poll::<T>(&b.recvs, 3)),
        [(1, WcStatus::LocalLength), (2, WcStatus::Flushed)]
    );
    assert_eq!(outcomes(&poll::<T>(&a.recvs, 2)), [(3, WcStatus::Flushed)]);
    let sent = outcomes(&poll::<T>(&a.requests, 2));
    match sent[..] {
        [(4, WcStatus::RemoteResponder | WcStatus::Success)] => {}
        // The network has lost the packet with which the peer refuses the message.
        [(4, WcStatus::Flushed)] if losses_are_expected() => {}
        _ => panic!("{sent:?}"),
    }
    assert_eq!(b.mem.read(10, 190), [0; 190]);
}

pub fn forbidden_remote_access_breaks_the_connection<T: Transport>(a: &T, b: &T) {
    type Target<T> = fn(&End<'_, T>, &Buffer<T>) -> Remote;
    let read_only = Access { remote_write: false, ..ALL };
    let write_only = Access { remote_read: false, ..ALL };
    let cases: [(&str, Access, bool, Target<T>); 7] = [
        ("write without the right", read_only, true, |_, m| m.remote(0)),
        ("read without the right", write_only, false, |_, m| m.remote(0)),
        ("write past the end", ALL, true, |_, m| m.remote(64 - 7)),
        ("read past the end", ALL, false, |_, m| m.remote(64 - 7)),
        ("write before the start", ALL, true, |_, m| Remote {
            addr: m.remote(0).addr - 1,
            ..m.remote(0)
        }),
        ("read through an unknown key", ALL, false, |_, m| Remote {
            key: m.remote(0).key ^ 0x5a5a,
            ..m.remote(0)
        }),
        ("write around the end of memory", ALL, true, |_, m| Remote {
            addr: u64::MAX - 3,
            ..m.remote(0)
        }),
    ];
    for (what, access, write, target) in cases {
        let rig = Rig { a, b };
        let (a, b) = rig.pair();
        let extra = Buffer::new(b.t, &b.pd, 64, access);
        let remote = target(&b, &extra);
        let op = if write { SendOp::Write(remote) } else { SendOp::Read(remote) };
        a.mem.write(0, &[0x55; 8]);
        refused(&rig, &a, &b, op, a.mem.segment(0, 8));
        assert_eq!(extra.read(0, 64), [0; 64], "{what}");
        assert_eq!(a.mem.read(0, 8), [0x55; 8], "{what}");
    }

    // The region belongs to another domain.
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    let other = b.t.pd().expect("protection domain");
    let extra = Buffer::new(b.t, &other, 64, ALL);
    refused(&rig, &a, &b, SendOp::Write(extra.remote(0)), a.mem.segment(0, 8));
    drop(extra);

    // The region was deregistered.
    let (a, b) = rig.pair();
    let extra = Buffer::new(b.t, &b.pd, 64, ALL);
    let stale = extra.remote(0);
    drop(extra);
    refused(&rig, &a, &b, SendOp::Read(stale), a.mem.segment(0, 8));

    // A region without remote access has no remote key.
    let (a, _b) = rig.pair();
    let local = Access { remote_read: false, remote_write: false, ..ALL };
    assert_eq!(Buffer::new(a.t, &a.pd, 64, local).mr.rkey(), 0);
}

/// Checks that the peer refuses `op`. Both ends of the connection break, and all work requests are
/// flushed.
pub(super) fn refused<'t, T: Transport>(
    rig: &Rig<'t, T>,
    a: &End<'t, T>,
    b: &End<'t, T>,
    op: SendOp,
    local: Segment,
) {
    b.recv(21, &[b.mem.segment(0, 1)]);
    a.recv(22, &[a.mem.segment(16, 1)]);
    a.post(20, op, &[local]);
    assert_broken(rig, a);
    assert_broken(rig, b);
    let wcs = poll::<T>(&a.requests, 8);
    let wc = wcs.last().expect("a completion");
    assert_eq!(wc.id, 20);
    match wc.op {
        // The network has lost the peer's refusal, so the requester only learns that the connection
        // broke.
        _ if wc.status == WcStatus::Flushed && losses_are_expected() => {}
        // On a wire without acknowledgements, the write has completed with success before the peer
        // checks the access.
        WcOp::Write => {
            assert!(matches!(wc.status, WcStatus::RemoteAccess | WcStatus::Success), "{wc:?}")
        }
        // The peer reports this status if the target of an atomic operation is not aligned.
        WcOp::FetchAdd if wc.status == WcStatus::RemoteResponder => {}
        _ => assert!(matches!(wc.status, WcStatus::RemoteAccess | WcStatus::Flushed), "{wc:?}"),
    }
    assert_eq!(outcomes(&poll::<T>(&b.recvs, 2)), [(21, WcStatus::Flushed)]);
    assert_eq!(outcomes(&poll::<T>(&a.recvs, 2)), [(22, WcStatus::Flushed)]);
}

pub(super) fn assert_broken<'t, T: Transport>(rig: &Rig<'t, T>, end: &End<'t, T>) {
    let event = rig.next("the end of the connection", &end.log);
    assert!(matches!(event, Event::Broken), "expected Broken, got {event:?}");
}

pub fn posts_are_checked<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    let (good, zero) = (a.mem.segment(0, 8), a.mem.remote(0));
    let other_pd = a.t.pd().expect("protection domain");
    let foreign = Buffer::new(a.t, &other_pd, 64, ALL);
    let no_read = Buffer::new(a.t, &a.pd, 64, Access { local_read: false, ..ALL });
    let no_write =
        Buffer::new(a.t, &a.pd, 64, Access { local_write: false, remote_write: false, ..ALL });

    let past = Segment { len: (1 << 16) + 1, ..good };
    let before = Segment { addr: good.addr - 1, ..good };
    let around = Segment { addr: u64::MAX - 3, ..good };
    let unknown = Segment { key: good.key ^ 0x1234_5678, ..good };
    use PostError::{Bounds, Key};
    for (bad, error) in [(past, Bounds), (before, Bounds), (around, Bounds), (unknown, Key)] {
        assert_eq!(a.try_post(1, SEND, &[good, bad]), Err(error), "{bad:?}");
        assert_eq!(recv(&a, &[bad]), Err(error), "{bad:?}");
    }
    let foreign = [foreign.segment(0, 8)];
    assert_eq!(a.try_post(1, SEND, &foreign), Err(PostError::Domain));
    assert_eq!(recv(&a, &foreign), Err(PostError::Domain));
    let (unreadable, unwritable) = ([no_read.segment(0, 8)], [no_write.segment(0, 8)]);
    assert_eq!(a.try_post(1, SEND, &unreadable), Err(PostError::Access { write: false }));
    assert_eq!(
        a.try_post(1, SendOp::Write(zero), &unreadable),
        Err(PostError::Access { write: false })
    );
    assert_eq!(
        a.try_post(1, SendOp::Read(zero), &unwritable),
        Err(PostError::Access { write: true })
    );
    assert_eq!(recv(&a, &unwritable), Err(PostError::Access { write: true }));
    // The key of a deregistered region is unknown.
    let stale = unwritable;
    drop(no_write);
    assert_eq!(a.try_post(1, SEND, &stale), Err(PostError::Key));

    // None of the refused requests was queued, and the connection still works.
    for i in 0..QUEUE as u64 {
        recv(&b, &[b.mem.segment(0, 8)]).unwrap_or_else(|e| panic!("receive {i}: {e:?}"));
    }
    assert_eq!(recv(&b, &[b.mem.segment(0, 8)]), Err(PostError::Full));
    a.mem.write(0, b"still ok");
    a.send(9, &[good]);
    assert_eq!(outcomes(&rig.completions(&a.requests, 1)), [(9, WcStatus::Success)]);
    rig.completions(&b.recvs, 1);
    assert_eq!(b.mem.read(0, 8), b"still ok");
    recv(&b, &[b.mem.segment(0, 8)]).expect("room for one more");
}

fn recv<T: Transport>(end: &End<'_, T>, segments: &[Segment]) -> Result<(), PostError> {
    // SAFETY: the receive is refused, or the buffer outlives the case.
    unsafe { end.qp.post_recv(&RecvWr { id: 0, segments, quiet: false }) }
}
