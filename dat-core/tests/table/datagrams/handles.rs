//! Address handles and the contexts of events: how they are freed, and where they may be used.

use super::*;

const NO_HANDLE: Result<(), Error> = Err(Error::arg(3));

#[test]
fn what_an_event_names_is_freed_once() {
    for thread_safe in [false, true] {
        let [a, b] = pair(thread_safe);
        let (table, side) = (a.side.table, &a.side);
        free_address(side, a.ep, &a.other).unwrap();
        assert_eq!(free_address(side, a.ep, &a.other), NO_HANDLE);
        assert_eq!(send(side, a.ep, &[], &a.other, (1, 0)), Err(Error::arg(5)));
        // The arguments are no address handles.
        for ah in [null_mut(), a.ep, side.pz, 8 as DAT_HANDLE] {
            let wrong = DAT_IB_ADDR_HANDLE { ah: ah.cast(), ..a.other };
            assert_eq!(free_address(side, a.ep, &wrong), NO_HANDLE);
            assert_eq!(send(side, a.ep, &[], &wrong, (1, 0)), Err(Error::arg(5)));
        }
        assert_eq!(extended(table, a.ep, DAT_IB_UD_AH_FREE_OP, &[0], 4), NO_HANDLE);
        let args = [0, 0, 0, 1, 0];
        assert_eq!(extended(table, a.ep, DAT_IB_UD_SEND_OP, &args, 4), Err(Error::arg(5)));

        let (_, qualifier) = b.side.new_psp(DAT_PSP_CONSUMER_FLAG);
        connect_to(side, a.ep, (LOCALHOST, qualifier), b"ask", TEN_SECONDS).unwrap();
        accept(&b.side, request(&b.side).cr, b.ep, b"answer").unwrap();
        let no_context = Err(Error::handle(DAT_INVALID_HANDLE_EP));
        for (side, ep) in [(&a.side, a.ep), (&b.side, b.ep)] {
            let event = established(side);
            // Each context belongs to one endpoint.
            assert_eq!(free_private(side, new_ep(side), event.context), no_context);
            free_private(side, ep, event.context).unwrap();
            assert_eq!(free_private(side, ep, event.context), no_context);
            assert_eq!(free_private(side, ep, 0), no_context);
            // Its address handle is still valid.
            send(side, ep, &[], &event.peer, (1, 0)).unwrap();
            transfer::expect_sent(side, ep, (1, 0));
        }
        a.side.close();
        b.side.close();
    }
}

#[test]
fn an_address_handle_serves_all_endpoints_of_its_zone() {
    for thread_safe in [false, true] {
        let [a, b] = pair(thread_safe);
        let table = a.side.table;
        let second = new_ep(&a.side);
        let of_second = introduce((&a.side, second), (&b.side, b.ep))[0];
        send(&a.side, second, &[], &a.other, (1, 0)).unwrap();
        transfer::expect_sent(&a.side, second, (1, 0));
        // The handle ends with the endpoint that has found out the peer. Any other endpoint of the
        // adapter may free it before.
        free_address(&a.side, a.ep, &of_second).unwrap();
        dat!(table, ep_free_func(a.ep)).unwrap();
        assert_eq!(send(&a.side, second, &[], &a.other, (1, 0)), Err(Error::arg(5)));
        assert_eq!(free_address(&a.side, second, &a.other), NO_HANDLE);

        // It does not serve another zone or adapter.
        let mut pz = null_mut();
        dat!(table, pz_create_func(b.side.ia, &mut pz)).unwrap();
        let elsewhere = new_ep(&Side { pz, ..b.side });
        introduce((&b.side, elsewhere), (&a.side, second));
        let foreign = Err(Error::of(DAT_PROTECTION_VIOLATION));
        assert_eq!(send(&b.side, elsewhere, &[], &b.other, (1, 0)), foreign);
        assert_eq!(send(&a.side, second, &[], &b.other, (1, 0)), foreign);
        assert_eq!(free_address(&a.side, second, &b.other), NO_HANDLE);
        send(&b.side, b.ep, &[], &b.other, (1, 0)).unwrap();
        a.side.close();
        b.side.close();
    }
}

/// An address handle belongs to the zone in which the endpoint was when it found out the peer. So
/// the handle ends when the endpoint moves to another zone.
#[test]
fn an_address_handle_does_not_move_to_another_zone() {
    let [a, b] = pair(false);
    let (table, mut pz) = (b.side.table, null_mut());
    dat!(table, pz_create_func(b.side.ia, &mut pz)).unwrap();
    let mut octets = vec![0u8; 100];
    let lmr = b.side.register(&mut octets);
    post_recv(&b.side, b.ep, lmr.local(0, 100), 1);
    dat!(table, lmr_free_func(lmr.handle)).unwrap();
    send(&a.side, a.ep, &[], &a.other, (2, 0)).unwrap();
    crate::extended::extended_completion(&b.side);
    assert_eq!(b.side.next(b.side.evd).event_number, DAT_CONNECTION_EVENT_BROKEN);
    dat!(table, ep_reset_func(b.ep)).unwrap();
    let param = DAT_EP_PARAM { pz_handle: pz, ..DAT_EP_PARAM::zeroed() };
    dat!(table, ep_modify_func(b.ep, DAT_EP_FIELD_PZ_HANDLE, &param)).unwrap();
    assert_eq!(free_address(&b.side, b.ep, &b.other), NO_HANDLE);
    dat!(table, pz_free_func(b.side.pz)).unwrap();
    a.side.close();
    b.side.close();
}

#[test]
fn the_operations_need_a_datagram_endpoint() {
    for thread_safe in [false, true] {
        let [a, b] = pair(thread_safe);
        let (table, connected) = (a.side.table, a.side.new_ep());
        for ep in [connected, a.side.evd, b.side.pz] {
            let wrong = Err(Error::handle(DAT_INVALID_HANDLE_EP));
            assert_eq!(send(&a.side, ep, &[], &a.other, (1, 0)), wrong);
            assert_eq!(send_immediate(&a.side, ep, &[], &a.other, (1, 0)), wrong);
            assert_eq!(free_private(&a.side, ep, 1), wrong);
            assert_eq!(free_address(&a.side, ep, &a.other), wrong);
            // The endpoint is checked before the address handle.
            assert_eq!(send(&a.side, ep, &[], &nowhere(), (1, 0)), wrong);
        }
        // The handle still exists.
        let mut kind = 0;
        dat!(table, get_handle_type_func(a.other.ah.cast(), &mut kind)).unwrap();
        assert_eq!(kind, DAT_IB_HANDLE_TYPE_EXT);
        a.side.close();
        b.side.close();
    }
}

#[test]
fn a_graceful_close_waits_for_endpoints_and_their_address_handles() {
    let [a, b] = pair(false);
    let (table, Side { ia, pz, evd, cr_evd, .. }) = (a.side.table, a.side);
    let close = || dat!(table, ia_close_func(ia, DAT_CLOSE_GRACEFUL_FLAG));
    let in_use = Err(Error::state(DAT_INVALID_STATE_IA_IN_USE));
    assert_eq!(close(), in_use);
    // The address handle ends with its endpoint.
    dat!(table, ep_free_func(a.ep)).unwrap();
    let mut kind = 0;
    let stale = Err(Error::handle(DAT_INVALID_HANDLE1));
    assert_eq!(dat!(table, get_handle_type_func(a.other.ah.cast(), &mut kind)), stale);
    dat!(table, evd_free_func(evd)).unwrap();
    dat!(table, evd_free_func(cr_evd)).unwrap();
    dat!(table, pz_free_func(pz)).unwrap();
    assert_eq!(close(), Ok(()));
    b.side.close();
    assert_eq!(dat!(table, get_handle_type_func(b.other.ah.cast(), &mut kind)), stale);
}
