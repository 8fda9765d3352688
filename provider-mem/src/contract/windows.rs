//! Cases about memory windows, and about addresses that count from zero.

use super::data::{assert_broken, await_writes, refused};
use super::rig::*;
use dat_core::provider::*;

/// Waits until the bind with this id is done.
fn bound<'t, T: Transport>(rig: &Rig<'t, T>, end: &End<'t, T>, id: u64) {
    let wc = rig.completions(&end.requests, 1)[0];
    let want = Wc {
        id,
        qp: TOKEN,
        bytes: 0,
        invalidated: None,
        immediate: None,
        op: WcOp::Bind,
        status: WcStatus::Success,
    };
    assert_eq!(wc, want);
}

pub fn a_window_permits_access_until_it_is_bound_again<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    let area = Buffer::new(b.t, &b.pd, 256, ALL);
    let window = b.window(false);
    let first = b.bind(1, &window, Some(area.view(64, 64)));
    assert_ne!(first, area.mr.rkey());
    bound(&rig, &b, 1);
    assert_eq!(window.state(first), BindState::Bound);
    a.mem.write(0, &pattern(1, 64));
    let at = |key, offset: usize| Remote { key, ..area.remote(offset) };
    a.post(2, SendOp::Write(at(first, 64)), &[a.mem.segment(0, 64)]);
    a.post(3, SendOp::Read(at(first, 100)), &[a.mem.segment(100, 28)]);
    assert_eq!(
        outcomes(&rig.completions(&a.requests, 2)),
        [(2, WcStatus::Success), (3, WcStatus::Success)]
    );
    assert_eq!(area.read(64, 64), pattern(1, 64));
    assert_eq!(a.mem.read(100, 28), pattern(1, 64)[36..]);

    let second = b.bind(4, &window, Some(area.view(0, 64)));
    bound(&rig, &b, 4);
    assert_ne!(second, first);
    assert_eq!((window.state(first), window.state(second)), (BindState::Over, BindState::Bound));
    a.post(5, SendOp::Read(at(second, 0)), &[a.mem.segment(0, 1)]);
    rig.completions(&a.requests, 1);
    refused(&rig, &a, &b, SendOp::Write(at(first, 64)), a.mem.segment(0, 8));
    assert_eq!(area.read(64, 64), pattern(1, 64));

    // The window stays bound after the end of the connection.
    assert_eq!(window.state(second), BindState::Bound);
}

pub fn a_bind_is_carried_out_in_order<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    let window = a.window(false);
    for round in 0..16 {
        // The read uses the window's current key while the next bind is queued behind it.
        let len = 8192;
        b.mem.write(0, &pattern(round, len));
        let before = a.bind(1, &window, Some(a.mem.view(0, len)));
        let sink = Segment { key: before, ..a.mem.segment(0, len) };
        bound(&rig, &a, 1);
        a.post(2, SendOp::ReadToWindow(b.mem.remote(0)), &[sink]);
        let key = a.bind(3, &window, Some(a.mem.view(len, 64)));
        b.recv(4, &[b.mem.segment(40_000, 8)]);
        a.mem.write(len, &pattern(!round, 64));
        a.send(5, &[a.mem.segment(len, 8)]);
        // The peer may use the key of a window once it has received a message that was sent after
        // the bind.
        assert_eq!(outcomes(&rig.completions(&b.recvs, 1)), [(4, WcStatus::Success)]);
        assert_eq!((window.state(before), window.state(key)), (BindState::Over, BindState::Bound));
        b.post(6, SendOp::Read(Remote { key, ..a.mem.remote(len) }), &[b.mem.segment(20_000, 64)]);
        assert_eq!(outcomes(&rig.completions(&b.requests, 1)), [(6, WcStatus::Success)]);
        assert_eq!(b.mem.read(20_000, 64), pattern(!round, 64));
        assert_eq!(
            outcomes(&rig.completions(&a.requests, 3)),
            [2, 3, 5].map(|id| (id, WcStatus::Success))
        );
        assert_eq!(a.mem.read(0, len), pattern(round, len));
    }
}

pub fn windows_are_checked_like_regions<T: Transport>(a: &T, b: &T) {
    let read_only = Access { remote_write: false, ..ALL };
    let write_only = Access { remote_read: false, ..ALL };
    let nothing = Access { remote_read: false, ..read_only };
    // The columns are: the access that the window permits, whether the operation writes, and the
    // offset of the access from the window's start.
    let cases = [
        (read_only, true, 0),
        (write_only, false, 0),
        (nothing, true, 0),
        (nothing, false, 0),
        (ALL, true, 57),
        (ALL, false, 57),
        (ALL, true, -1),
    ];
    for (access, write, offset) in cases {
        let rig = Rig { a, b };
        let (a, b) = rig.pair();
        let area = Buffer::new(b.t, &b.pd, 256, ALL);
        let window = b.window(false);
        let key = b.bind(1, &window, Some(View { access, ..area.view(64, 64) }));
        bound(&rig, &b, 1);
        let at = Remote { addr: area.remote(64).addr.wrapping_add_signed(offset), key };
        a.mem.write(0, &[0x55; 8]);
        let op = if write { SendOp::Write(at) } else { SendOp::Read(at) };
        refused(&rig, &a, &b, op, a.mem.segment(0, 8));
        assert_eq!(area.read(0, 256), [0; 256], "{access:?} {write} {offset}");
        assert_eq!(a.mem.read(0, 8), [0x55; 8]);
    }

    // The window and the connection belong to different domains.
    let rig = Rig { a, b };
    let (_other, home) = rig.pair();
    let (a, b) = rig.pair();
    let area = Buffer::new(home.t, &home.pd, 64, ALL);
    let window = home.window(false);
    let key = home.bind(1, &window, Some(area.view(0, 64)));
    bound(&rig, &home, 1);
    refused(&rig, &a, &b, SendOp::Write(Remote { key, ..area.remote(0) }), a.mem.segment(0, 8));
    assert_eq!(area.read(0, 64), [0; 64]);
}

pub fn a_scoped_window_is_for_one_connection<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    let area = Buffer::new(b.t, &b.pd, 64, ALL);
    let window = b.window(true);
    let key = b.bind(1, &window, Some(area.view(0, 64)));
    bound(&rig, &b, 1);
    let at = Remote { key, ..area.remote(0) };
    a.mem.write(0, b"for me");
    a.post(2, SendOp::Write(at), &[a.mem.segment(0, 6)]);
    await_requests_up_to(&rig, &a, &b, 2);
    assert_eq!(area.read(0, 6), b"for me");

    // The other connection uses the same protection domain, but not the window's queue pair.
    let (x, y) = (End::new(a.t), End::in_domain_of(&b));
    rig.join(&x, &y);
    refused(&rig, &x, &y, SendOp::Write(at), x.mem.segment(0, 8));
    a.post(3, SendOp::Read(at), &[a.mem.segment(8, 6)]);
    assert_eq!(outcomes(&rig.completions(&a.requests, 1)), [(3, WcStatus::Success)]);
    assert_eq!(a.mem.read(8, 6), b"for me");
}

/// Ensures that the requests of `a` up to `id` have taken effect at the peer.
fn await_requests_up_to<'t, T: Transport>(
    rig: &Rig<'t, T>,
    a: &End<'t, T>,
    b: &End<'t, T>,
    id: u64,
) {
    assert_eq!(outcomes(&rig.completions(&a.requests, 1)), [(id, WcStatus::Success)]);
    await_writes(rig, a, b);
}

pub fn addresses_may_count_from_zero<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    let near = Buffer::with(a.t, &a.pd, 3000, ALL, true);
    let far = Buffer::with(b.t, &b.pd, 3000, ALL, true);
    near.write(0, &pattern(7, 3000));
    let local = |addr, len| Segment { addr, len, key: near.mr.lkey() };
    let remote = |addr| Remote { addr, key: far.mr.rkey() };
    b.recv(1, &[Segment { addr: 100, len: 1000, key: far.mr.lkey() }]);
    a.send(2, &[local(2000, 1000)]);
    rig.completions(&b.recvs, 1);
    a.post(3, SendOp::Write(remote(1100)), &[local(0, 1000)]);
    a.post(4, SendOp::Read(remote(100)), &[local(1000, 2000)]);
    assert_eq!(
        outcomes(&rig.completions(&a.requests, 3)),
        [2, 3, 4].map(|id| (id, WcStatus::Success))
    );
    let p = pattern(7, 3000);
    assert_eq!(far.read(100, 2000), [&p[2000..], &p[..1000]].concat());
    assert_eq!(near.read(1000, 2000), far.read(100, 2000));

    // Binds windows with and without zero-based addresses to regions with and without zero-based
    // addresses.
    let plain = Buffer::new(b.t, &b.pd, 3000, ALL);
    for (region, addr) in [(&far, 500), (&plain, plain.remote(500).addr)] {
        for zero_based in [false, true] {
            region.write(0, &pattern(8, 3000));
            let window = b.window(false);
            let view = View { region: &region.mr, addr, len: 64, access: ALL, zero_based };
            let key = b.bind(5, &window, Some(view));
            bound(&rig, &b, 5);
            let addr = if zero_based { 8 } else { region.remote(508).addr };
            a.post(6, SendOp::Read(Remote { addr, key }), &[a.mem.segment(0, 56)]);
            assert_eq!(outcomes(&rig.completions(&a.requests, 1)), [(6, WcStatus::Success)]);
            assert_eq!(a.mem.read(0, 56), region.read(508, 56));
        }
    }
    let past = [local(2999, 2)];
    assert_eq!(a.try_post(7, SEND, &past), Err(PostError::Bounds));
    assert_eq!(
        a.try_post(7, SEND, &[near.segment(0, 8)]),
        Err(PostError::Bounds),
        "a zero-based region must refuse memory addresses"
    );
    refused(&rig, &a, &b, SendOp::Write(far.remote(0)), local(0, 8));
}

pub fn a_send_invalidates_a_window<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    let area = Buffer::new(b.t, &b.pd, 64, ALL);
    let window = b.window(false);
    let key = b.bind(1, &window, Some(area.view(0, 64)));
    bound(&rig, &b, 1);
    a.post(1, SendOp::Write(Remote { key, ..area.remote(0) }), &[a.mem.segment(0, 64)]);
    b.recv(5, &[b.mem.segment(0, 8)]);
    a.mem.write(0, b"revoked!");
    a.post(2, SendOp::Send { invalidate: Some(key) }, &[a.mem.segment(0, 8)]);
    let wc = rig.completions(&b.recvs, 1)[0];
    assert_eq!((wc.id, wc.status, wc.invalidated), (5, WcStatus::Success, Some(key)));
    assert_eq!(b.mem.read(0, 8), b"revoked!");
    rig.completions(&a.requests, 2);
    assert_eq!(window.state(key), BindState::Over);
    // The region still has its own keys, and the window may be bound again.
    a.post(3, SendOp::Write(area.remote(0)), &[a.mem.segment(0, 8)]);
    await_requests_up_to(&rig, &a, &b, 3);
    let again = b.bind(4, &window, Some(area.view(0, 64)));
    bound(&rig, &b, 4);
    a.post(5, SendOp::Write(Remote { key: again, ..area.remote(0) }), &[a.mem.segment(0, 8)]);
    await_requests_up_to(&rig, &a, &b, 5);
    refused(&rig, &a, &b, SendOp::Write(Remote { key, ..area.remote(0) }), a.mem.segment(8, 8));
}

/// Only dat_lmr_free ends a region's context (uDAPL 1.2, dat_lmr_create). So a send cannot
/// invalidate the key of a region. It cannot invalidate an unknown key either.
pub fn a_send_does_not_invalidate_a_region<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let area = [(); 2].map(|()| rig.pair());
    for (n, (a, b)) in area.iter().enumerate() {
        let key = if n == 0 { b.mem.mr.rkey() } else { b.mem.mr.rkey() ^ 0x0101_0101 };
        b.recv(1, &[b.mem.segment(0, 8)]);
        a.post(2, SendOp::Send { invalidate: Some(key) }, &[a.mem.segment(0, 8)]);
        assert_broken(&rig, a);
        assert_broken(&rig, b);
        let received = poll::<T>(&b.recvs, 2);
        assert!(matches!(
            received[..],
            [Wc { id: 1, status: WcStatus::LocalProtection | WcStatus::Flushed, .. }]
        ));
        let sent = outcomes(&poll::<T>(&a.requests, 2));
        match sent[..] {
            [(2, WcStatus::RemoteAccess | WcStatus::Success)] => {}
            // The network has lost the packet with which the peer refuses the message.
            [(2, WcStatus::Flushed)] if losses_are_expected() => {}
            _ => panic!("{sent:?}"),
        }
    }
}

pub fn the_sink_of_a_read_may_be_a_window<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    b.mem.write(0, &pattern(4, 5000));
    let window = a.window(false);
    let key = a.bind(1, &window, Some(View { zero_based: true, ..a.mem.view(300, 6000) }));
    bound(&rig, &a, 1);
    let sink = Segment { addr: 1000, len: 5000, key };
    a.post(2, SendOp::ReadToWindow(b.mem.remote(0)), &[sink]);
    let wc = rig.completions(&a.requests, 1)[0];
    assert_eq!((wc.id, wc.op, wc.bytes, wc.status), (2, WcOp::Read, 5000, WcStatus::Success));
    assert_eq!(a.mem.read(1300, 5000), pattern(4, 5000));
    // The sink of a read may also be named by the key of a region.
    let sink = Segment { key: a.mem.mr.rkey(), ..a.mem.segment(10_000, 5000) };
    a.post(3, SendOp::ReadToWindow(b.mem.remote(0)), &[sink]);
    assert_eq!(outcomes(&rig.completions(&a.requests, 1)), [(3, WcStatus::Success)]);
    assert_eq!(a.mem.read(10_000, 5000), pattern(4, 5000));

    let into = |sink| a.try_post(4, SendOp::ReadToWindow(b.mem.remote(0)), &[sink]);
    assert_eq!(into(Segment { addr: 1001, len: 5000, key }), Err(PostError::Bounds));
    assert_eq!(into(Segment { key: key ^ 0x1234_5678, ..sink }), Err(PostError::Key));
    let read_only = Access { remote_write: false, ..ALL };
    let key = a.bind(5, &window, Some(View { access: read_only, ..a.mem.view(0, 64) }));
    bound(&rig, &a, 5);
    let sink = Segment { key, ..a.mem.segment(0, 8) };
    assert_eq!(into(sink), Err(PostError::Access { write: true }));
    // A window's key is not valid in local segments.
    assert!(a.try_post(4, SEND, &[sink]).is_err());
}

pub fn binds_are_checked<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, _b) = rig.pair();
    let window = a.window(false);
    let area = Buffer::new(a.t, &a.pd, 64, ALL);
    let good = || area.view(0, 64);
    for bad in [
        View { len: 65, ..good() },
        View { addr: good().addr - 1, ..good() },
        View { addr: good().addr + 65, len: 0, ..good() },
        View { addr: u64::MAX - 3, ..good() },
        View { len: u64::MAX, ..good() },
    ] {
        let what = (bad.addr, bad.len);
        assert_eq!(a.try_bind(1, &window, Some(bad)), Err(PostError::Bounds), "{what:x?}");
    }
    let other = a.t.pd().expect("protection domain");
    let foreign = Buffer::new(a.t, &other, 64, ALL);
    assert_eq!(a.try_bind(1, &window, Some(foreign.view(0, 64))), Err(PostError::Domain));
    let elsewhere = a.t.mw(&other, false).expect("memory window");
    assert_eq!(a.try_bind(1, &elsewhere, Some(good())), Err(PostError::Domain));
    assert_eq!(a.try_bind(1, &elsewhere, None), Err(PostError::Domain));
    // A window cannot give peers an access that the owner does not have.
    let no_read = Buffer::new(a.t, &a.pd, 64, Access { local_read: false, ..ALL });
    let no_write =
        Buffer::new(a.t, &a.pd, 64, Access { local_write: false, remote_write: false, ..ALL });
    assert_eq!(
        a.try_bind(1, &window, Some(no_read.view(0, 8))),
        Err(PostError::Access { write: false })
    );
    assert_eq!(
        a.try_bind(1, &window, Some(no_write.view(0, 8))),
        Err(PostError::Access { write: true })
    );
    // A window may give peers access to a region without remote access.
    let private =
        Buffer::new(a.t, &a.pd, 64, Access { remote_read: false, remote_write: false, ..ALL });
    for (id, view) in [(2, private.view(0, 64)), (3, View { len: 0, ..good() })] {
        let key = a.bind(id, &window, Some(view));
        bound(&rig, &a, id);
        assert_eq!(window.state(key), BindState::Bound);
    }
    assert_eq!(a.bind(4, &window, None), 0);
    bound(&rig, &a, 4);
}

pub fn a_flushed_bind_leaves_the_window_unchanged<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    let window = b.window(false);
    let area = Buffer::new(b.t, &b.pd, 64, ALL);
    let key = b.bind(1, &window, Some(area.view(0, 64)));
    bound(&rig, &b, 1);
    a.qp.disconnect(Close::Abrupt);
    for end in [&a, &b] {
        let event = rig.next("the end of the connection", &end.log);
        assert!(matches!(event, Event::Disconnected), "{event:?}");
    }
    // A bind that is posted after the end of the connection is flushed at once.
    let lost = b.bind(2, &window, Some(area.view(0, 8)));
    b.bind(3, &window, None);
    assert_eq!(
        outcomes(&rig.completions(&b.requests, 2)),
        [2, 3].map(|id| (id, WcStatus::Flushed))
    );
    assert_eq!((window.state(key), window.state(lost)), (BindState::Bound, BindState::Over));
    // Drops a queue pair while a bind is queued.
    let d = End::new(b.t);
    let window = d.window(false);
    let queued = d.bind(4, &window, Some(d.mem.view(0, 8)));
    assert_eq!(window.state(queued), BindState::Posted);
    drop(d.qp);
    assert_eq!(window.state(queued), BindState::Over);
}

pub fn a_dropped_window_is_unbound<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    let area = Buffer::new(b.t, &b.pd, 64, ALL);
    let window = b.window(false);
    let key = b.bind(1, &window, Some(area.view(0, 64)));
    bound(&rig, &b, 1);
    drop(window);
    refused(&rig, &a, &b, SendOp::Write(Remote { key, ..area.remote(0) }), a.mem.segment(0, 8));
    assert_eq!(area.read(0, 64), [0; 64]);

    // A window is also unbound when its region is deregistered, although dat-core never does that.
    let (a, b) = rig.pair();
    let area = Buffer::new(b.t, &b.pd, 64, ALL);
    let window = b.window(false);
    let key = b.bind(1, &window, Some(area.view(0, 64)));
    bound(&rig, &b, 1);
    let at = Remote { key, ..area.remote(0) };
    drop(area);
    assert_eq!(window.state(key), BindState::Over);
    refused(&rig, &a, &b, SendOp::Read(at), a.mem.segment(0, 8));
}
