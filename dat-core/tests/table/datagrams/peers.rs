//! How endpoints find out their peers.

use std::time::Duration;

use super::*;

#[test]
fn both_sides_learn_each_other_and_exchange_datagrams() {
    for thread_safe in [false, true] {
        let (table, name) = mem(thread_safe);
        let (a, b) = (Side::new(table, &name), Side::new(table, &name));
        let (x, y) = (new_ep(&a), new_ep(&b));
        let (psp, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
        connect_to(&a, x, (LOCALHOST, qualifier), b"who are you?", TEN_SECONDS).unwrap();
        assert_eq!(state(&a, x), DAT_EP_STATE_ACTIVE_CONNECTION_PENDING);

        let ArrivedRequest { cr, arrival, private } = request(&b);
        // SAFETY: a PSP has received the request.
        assert_eq!(unsafe { arrival.sp_handle.psp_handle }, psp);
        assert_eq!((arrival.conn_qual, private.as_slice()), (qualifier, &b"who are you?"[..]));
        let mut param = DAT_CR_PARAM::zeroed();
        dat!(table, cr_query_func(cr, DAT_CR_FIELD_ALL, &mut param)).unwrap();
        assert!(param.local_ep_handle.is_null());
        accept(&b, cr, y, b"me").unwrap();
        assert_eq!(accept(&b, cr, y, b"me"), Err(Error::handle(DAT_INVALID_HANDLE_CR)));
        assert_eq!(state(&b, y), DAT_EP_STATE_COMPLETION_PENDING);

        let active = established(&a);
        assert_eq!((active.ep, active.what, active.status), (x, DAT_IB_UD_REMOTE_AH, 0));
        assert_eq!(active.private, b"me");
        assert_eq!(socket_addr(&active.peer), SocketAddr::new(LOCALHOST, qualifier as u16));
        let passive = established(&b);
        let what = DAT_IB_UD_PASSIVE_REMOTE_AH;
        assert_eq!((passive.ep, passive.what, passive.status), (y, what, 0));
        assert_eq!(passive.private, b"who are you?");
        assert_eq!(socket_addr(&passive.peer).ip(), LOCALHOST);
        for event in [&active, &passive] {
            assert!(!event.peer.ah.is_null() && event.peer.qpn > 1 && event.context != 0);
        }
        assert_ne!(active.peer.qpn, passive.peer.qpn);
        assert_eq!(active.own_qpn, passive.peer.qpn);
        assert_eq!(passive.own_qpn, active.peer.qpn);
        // The event changes the states of neither endpoint.
        assert_eq!(state(&a, x), DAT_EP_STATE_ACTIVE_CONNECTION_PENDING);
        assert_eq!(state(&b, y), DAT_EP_STATE_COMPLETION_PENDING);

        let (mut source, mut sink) = (vec![7u8; 64], vec![0u8; 256]);
        for ((from, ep, peer), (to, target)) in
            [((&a, x, active.peer), (&b, y)), ((&b, y, passive.peer), (&a, x))]
        {
            sink.fill(0);
            let (from_memory, to_memory) = (from.register(&mut source), to.register(&mut sink));
            post_recv(to, target, to_memory.local(0, 200), 2);
            send(from, ep, &[from_memory.local(0, 64)], &peer, (1, 0)).unwrap();
            transfer::expect_sent(from, ep, (1, 64));
            transfer::expect_received(to, target, (2, 64));
            assert_eq!((&sink[HEADER..104], &sink[104..]), (&[7; 64][..], &[0; 152][..]));
            for (side, memory) in [(from, from_memory), (to, to_memory)] {
                dat!(side.table, lmr_free_func(memory.handle)).unwrap();
            }
        }
        a.close();
        b.close();
    }
}

/// Takes the next event, which must report that a peer was not found. Checks its data.
fn unresolved(side: &Side, ep: DAT_EP_HANDLE, of: (IpAddr, DAT_CONN_QUAL)) -> PeerEvent {
    let event = peer_event(side);
    assert_eq!((event.ep, event.status), (ep, DAT_IB_OP_ERR));
    let what = match event.number {
        DAT_IB_UD_CONNECTION_REJECT_EVENT => DAT_IB_UD_CONNECT_REJECT,
        _ => DAT_IB_UD_CONNECT_ERROR,
    };
    assert_eq!(event.what, what);
    assert!(event.peer.ah.is_null() && event.context != 0);
    assert_eq!((event.peer.qpn, event.own_qpn), (0, 0));
    assert_eq!(socket_addr(&event.peer), SocketAddr::new(of.0, of.1 as u16));
    event
}

/// A failure concerns one peer. The endpoint stays usable.
#[test]
fn failures_are_reported_and_the_endpoint_stays_usable() {
    for thread_safe in [false, true] {
        let (table, name) = mem(thread_safe);
        let (a, b) = (Side::new(table, &name), Side::new(table, &name));
        let (x, y) = (new_ep(&a), new_ep(&b));
        let (psp, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
        let (there, error) = ((LOCALHOST, qualifier), DAT_IB_UD_CONNECTION_ERROR_EVENT);

        connect_to(&a, x, there, b"", TEN_SECONDS).unwrap();
        let (size, data) = c_bytes(b"no, thanks");
        dat!(table, cr_reject_func(request(&b).cr, size, data)).unwrap();
        let rejected = unresolved(&a, x, there);
        assert_eq!(rejected.number, DAT_IB_UD_CONNECTION_REJECT_EVENT);
        assert_eq!(rejected.private, b"no, thanks");
        free_private(&a, x, rejected.context).unwrap();

        // Nothing listens there.
        connect_to(&a, x, (LOCALHOST, 1), b"", TEN_SECONDS).unwrap();
        let refused = unresolved(&a, x, (LOCALHOST, 1));
        assert_eq!((refused.number, refused.private), (error, Vec::new()));

        let unreachable = (IpAddr::from([192, 0, 2, 1]), qualifier);
        connect_to(&a, x, unreachable, b"", TEN_SECONDS).unwrap();
        assert_eq!(unresolved(&a, x, unreachable).number, error);
        assert!(crate::causes::last_cause(&a, x).contains("192.0.2.1"));

        // The consumer does not answer in time, and answers too late.
        connect_to(&a, x, there, b"", 1_000_000).unwrap();
        let late = request(&b).cr;
        provider_mem::advance(&name, Duration::from_secs(2));
        assert_eq!(unresolved(&a, x, there).number, error);
        accept(&b, late, y, b"").unwrap();
        assert_eq!(established(&b).private, b"");

        // The service point is freed before the consumer takes the request.
        connect_to(&a, x, there, b"", TEN_SECONDS).unwrap();
        dat!(table, psp_free_func(psp)).unwrap();
        dat!(table, cr_reject_func(request(&b).cr, 0, null_mut())).unwrap();
        assert_eq!(unresolved(&a, x, there).number, DAT_IB_UD_CONNECTION_REJECT_EVENT);

        assert_eq!(state(&a, x), DAT_EP_STATE_ACTIVE_CONNECTION_PENDING);
        introduce((&a, x), (&b, y));
        a.close();
        b.close();
    }
}

#[test]
fn a_full_backlog_refuses_the_peer() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let mut cr_evd = null_mut();
    dat!(table, evd_create_func(b.ia, 1, null_mut(), DAT_EVD_CR_FLAG, &mut cr_evd)).unwrap();
    let (_, qualifier) = Side { cr_evd, ..b }.new_psp(DAT_PSP_CONSUMER_FLAG);
    let x = new_ep(&a);
    let (mut event, there) = (DAT_EVENT::zeroed(), (LOCALHOST, qualifier));
    let waiting = (0..1000).find(|_| {
        connect_to(&a, x, there, b"", TEN_SECONDS).unwrap();
        dat!(table, evd_dequeue_func(a.evd, &mut event)).is_ok()
    });
    assert!(waiting.is_some_and(|n| n > 0), "{waiting:?} requests wait");
    assert_eq!(event.event_number, DAT_IB_UD_CONNECTION_ERROR_EVENT);
    a.close();
    b.close();
}

#[test]
fn one_endpoint_has_many_peers() {
    const PEERS: usize = 20;
    for thread_safe in [false, true] {
        let (table, name) = mem(thread_safe);
        let (a, b) = (Side::new(table, &name), Side::new(table, &name));
        let x = new_ep(&a);
        let eps: Vec<_> = (0..PEERS).map(|_| new_ep(&b)).collect();
        let (_, of_b) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
        let (_, of_a) = a.new_psp(DAT_PSP_CONSUMER_FLAG);
        // Both sides ask at the same time. So the one endpoint asks and answers by turns, and all
        // its requests wait at once.
        for (n, y) in eps.iter().enumerate() {
            connect_to(&a, x, (LOCALHOST, of_b), &[n as u8], TEN_SECONDS).unwrap();
            connect_to(&b, *y, (LOCALHOST, of_a), &[n as u8], TEN_SECONDS).unwrap();
        }
        for _ in 0..PEERS {
            let ArrivedRequest { cr, private, .. } = request(&b);
            accept(&b, cr, eps[usize::from(private[0])], &private).unwrap();
            assert_eq!(state(&b, eps[usize::from(private[0])]), DAT_EP_STATE_COMPLETION_PENDING);
            let ArrivedRequest { cr, private, .. } = request(&a);
            accept(&a, cr, x, &private).unwrap();
            assert_eq!(state(&a, x), DAT_EP_STATE_COMPLETION_PENDING);
            connect_to(&a, x, (LOCALHOST, 1), b"", TEN_SECONDS).unwrap();
            assert_eq!(state(&a, x), DAT_EP_STATE_ACTIVE_CONNECTION_PENDING);
        }
        let events: Vec<_> = (0..3 * PEERS).map(|_| peer_event(&a)).collect();
        let failed = events.iter().filter(|e| e.number == DAT_IB_UD_CONNECTION_ERROR_EVENT);
        assert_eq!(failed.count(), PEERS);

        let (mut source, mut sink) = (vec![0u8; PEERS], vec![0u8; 64]);
        for (n, byte) in source.iter_mut().enumerate() {
            *byte = n as u8;
        }
        let (from, to) = (a.register(&mut source), b.register(&mut sink));
        for what in [DAT_IB_UD_REMOTE_AH, DAT_IB_UD_PASSIVE_REMOTE_AH] {
            let of_kind: Vec<_> = events.iter().filter(|event| event.what == what).collect();
            assert_eq!(of_kind.len(), PEERS);
            for event in of_kind {
                let n = event.private[0];
                let y = eps[usize::from(n)];
                post_recv(&b, y, to.local(0, 64), n.into());
                send(&a, x, &[from.local(n.into(), 1)], &event.peer, (n.into(), 0)).unwrap();
                transfer::expect_sent(&a, x, (n.into(), 1));
            }
        }
        // The events of `b` that report its peers precede the completions.
        for _ in 0..2 * PEERS {
            established(&b);
        }
        for _ in 0..2 * PEERS {
            let (dto, _) = crate::extended::extended_completion(&b);
            // SAFETY: the cookie is an integer.
            let n = unsafe { dto.user_cookie.as_64 } as usize;
            assert_eq!(dto.ep_handle, eps[n]);
        }
        a.close();
        b.close();
    }
}

/// An endpoint may resolve its own address.
#[test]
fn an_endpoint_is_its_own_peer() {
    for thread_safe in [false, true] {
        let (table, name) = mem(thread_safe);
        let side = Side::new(table, &name);
        let ep = new_ep(&side);
        let (_, qualifier) = side.new_psp(DAT_PSP_CONSUMER_FLAG);
        connect_to(&side, ep, (LOCALHOST, qualifier), b"ask", TEN_SECONDS).unwrap();
        accept(&side, request(&side).cr, ep, b"answer").unwrap();
        let mut events = [established(&side), established(&side)];
        events.sort_by_key(|event| event.what);
        assert_eq!(events[0].private, b"answer");
        assert_eq!(events[1].private, b"ask");
        assert_eq!(events[0].peer.qpn, events[1].peer.qpn);
        side.close();
    }
}

/// The caller's endpoint is freed, or reset, before the answer comes.
#[test]
fn an_attempt_ends_with_its_endpoint() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let (x, y) = (new_ep(&a), new_ep(&b));
    let (_, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    connect_to(&a, x, (LOCALHOST, qualifier), b"", TEN_SECONDS).unwrap();
    let cr = request(&b).cr;
    dat!(table, ep_free_func(x)).unwrap();
    // The side that answers does not know that nobody waits. It does not learn the queue pair.
    accept(&b, cr, y, b"").unwrap();
    assert_eq!(established(&b).peer.qpn, 0);
    assert!(dat!(table, evd_dequeue_func(a.evd, &mut DAT_EVENT::zeroed())).is_err());
    introduce((&a, new_ep(&a)), (&b, y));
    a.close();
    b.close();
}
