//! Datagrams: what is sent, what arrives, and what the events and counters say.

use super::*;
use crate::counters::expect;
use crate::extended::extended_completion;

/// Takes the next event, which must report that a datagram of this length was sent.
pub(super) fn expect_sent(side: &Side, ep: DAT_EP_HANDLE, (of, length): (u64, usize)) {
    let expected = (DAT_IB_DTO_SEND_UD, DAT_IB_UD_SEND);
    assert_eq!(completion(side, ep, expected, (of, length)), 0);
}

/// Takes the next event, which must report that a datagram of this length was received.
pub(super) fn expect_received(side: &Side, ep: DAT_EP_HANDLE, (of, length): (u64, usize)) {
    let expected = (DAT_IB_DTO_RECV_UD, DAT_IB_UD_RECV);
    assert_eq!(completion(side, ep, expected, (of, length + HEADER)), 0);
}

/// Takes the next event, which must be this completion. Returns its immediate data.
fn completion(
    side: &Side,
    ep: DAT_EP_HANDLE,
    (operation, what): (DAT_DTOS, DAT_IB_EXT_TYPE),
    (of, octets): (u64, usize),
) -> u32 {
    let (dto, data) = extended_completion(side);
    assert_eq!((dto.ep_handle, dto.operation, data.r#type), (ep, operation, what));
    assert_eq!((dto.status, data.status), (DAT_DTO_SUCCESS, DAT_OP_SUCCESS));
    // SAFETY: both members are integers.
    let (cookie, immediate) = unsafe { (dto.user_cookie.as_64, data.val.immed.data) };
    assert_eq!((cookie, dto.transfered_length as usize), (of, octets));
    immediate
}

fn nothing_more(side: &Side) {
    assert!(dat!(side.table, evd_dequeue_func(side.evd, &mut DAT_EVENT::zeroed())).is_err());
}

#[test]
fn datagrams_of_all_sizes_are_gathered_and_scattered() {
    for thread_safe in [false, true] {
        let [a, b] = pair(thread_safe);
        let mut source: Vec<u8> = (0..=MAX_DATAGRAM).map(|n| (n % 251) as u8).collect();
        let mut sink = vec![0u8; MAX_DATAGRAM + HEADER];
        let (from, to) = (a.side.register(&mut source), b.side.register(&mut sink));
        let all = MAX_DATAGRAM as u32;
        let cases: [&[(u64, u32)]; 6] = [
            &[],
            &[(0, 0)],
            &[(0, 1)],
            &[(0, 100), (100, 200), (300, 0), (300, 700)],
            &[(0, all)],
            &[(0, all - 1), (4095, 1)],
        ];
        for (n, parts) in cases.into_iter().enumerate() {
            let iov: Vec<_> = parts.iter().map(|&(at, bytes)| from.local(at, bytes)).collect();
            let length: usize = parts.iter().map(|part| part.1 as usize).sum();
            // The first segment ends within the header, and the second one within the message.
            let mut places = [to.local(0, 10), to.local(10, 50), to.local(60, all - 20)];
            let receive = places.as_mut_ptr();
            dat!(b.side.table, ep_post_recv_func(b.ep, 3, receive, cookie(n as u64), 0)).unwrap();
            send(&a.side, a.ep, &iov, &a.other, (10 + n as u64, 0)).unwrap();
            expect_sent(&a.side, a.ep, (10 + n as u64, length));
            expect_received(&b.side, b.ep, (n as u64, length));
            assert!(source[..length] == sink[HEADER..HEADER + length], "{parts:?}");
        }
        let too_long = [from.local(0, all), from.local(0, 1)];
        let refused = Err(Error::of(DAT_LENGTH_ERROR));
        assert_eq!(send(&a.side, a.ep, &too_long, &a.other, (1, 0)), refused);
        assert_eq!(send_immediate(&a.side, a.ep, &too_long, &a.other, (1, 0)), refused);
        nothing_more(&a.side);
        nothing_more(&b.side);
        a.side.close();
        b.side.close();
    }
}

#[test]
fn the_arguments_of_a_send_are_checked() {
    for thread_safe in [false, true] {
        let [a, b] = pair(thread_safe);
        let mut octets = [0u8; 64];
        let lmr = a.side.register(&mut octets);
        let (side, ep, to) = (&a.side, a.ep, &a.other);
        let send = |iov: &[DAT_LMR_TRIPLET], to: &DAT_IB_ADDR_HANDLE| {
            let plain = super::send(side, ep, iov, to, (1, 0));
            assert_eq!(super::send_immediate(side, ep, iov, to, (1, 0)), plain);
            plain
        };
        for qpn in [0, 1 << 24, u32::MAX] {
            assert_eq!(send(&[], &DAT_IB_ADDR_HANDLE { qpn, ..*to }), Err(Error::arg(5)));
        }
        let segment = lmr.local(0, 8);
        assert_eq!(send(&[segment; 5], to), Err(Error::arg(3)));
        assert_eq!(send(&[lmr.local(60, 5)], to), Err(Error::arg(4)));
        let stranger = DAT_LMR_TRIPLET { lmr_context: !segment.lmr_context, ..segment };
        assert_eq!(send(&[stranger], to), Err(Error::of(DAT_PRIVILEGES_VIOLATION)));
        let mut pz = null_mut();
        dat!(side.table, pz_create_func(side.ia, &mut pz)).unwrap();
        let elsewhere = Side { pz, ..*side }.register(&mut octets);
        let violation = Err(Error::of(DAT_PROTECTION_VIOLATION));
        assert_eq!(send(&[elsewhere.local(0, 8)], to), violation);
        for (count, iov, arg) in
            [(u64::MAX, word(&segment), 3), (100, word(&segment), 3), (1, 0, 4)]
        {
            let args = [count, iov, word(to), 1, 0];
            let sent = extended(side.table, ep, DAT_IB_UD_SEND_OP, &args, 4);
            assert_eq!(sent, Err(Error::arg(arg)));
        }
        dat!(side.table, lmr_free_func(lmr.handle)).unwrap();
        assert_eq!(send(&[segment], to), Err(Error::of(DAT_PRIVILEGES_VIOLATION)));
        // A refused post leaves nothing behind: as many datagrams fit as before.
        nothing_more(side);
        for _ in 0..64 {
            super::send(side, ep, &[], to, (1, 0)).unwrap();
        }
        a.side.close();
        b.side.close();
    }
}

#[test]
fn a_datagram_to_nobody_is_lost() {
    let [a, b] = pair(false);
    // No queue pair has this number.
    let nobody = DAT_IB_ADDR_HANDLE { qpn: (1 << 24) - 1, ..a.other };
    send(&a.side, a.ep, &[], &nobody, (1, 0)).unwrap();
    expect_sent(&a.side, a.ep, (1, 0));
    // The peer has no buffer, and later no queue pair.
    send(&a.side, a.ep, &[], &a.other, (2, 0)).unwrap();
    expect_sent(&a.side, a.ep, (2, 0));
    dat!(b.side.table, ep_post_recv_func(b.ep, 0, null_mut(), cookie(3), 0)).unwrap();
    nothing_more(&b.side);
    dat!(b.side.table, ep_free_func(b.ep)).unwrap();
    send(&a.side, a.ep, &[], &a.other, (4, 0)).unwrap();
    expect_sent(&a.side, a.ep, (4, 0));
    a.side.close();
    b.side.close();
}

#[test]
fn a_buffer_that_is_too_small_waits_for_a_shorter_datagram() {
    let [a, b] = pair(false);
    let (mut source, mut sink) = (vec![1u8; 64], vec![0u8; 128]);
    let (from, to) = (a.side.register(&mut source), b.side.register(&mut sink));
    post_recv(&b.side, b.ep, to.local(0, 48), 1);
    post_recv(&b.side, b.ep, to.local(0, 128), 2);
    for (length, received) in [(9, false), (64, false), (8, true), (64, true)] {
        send(&a.side, a.ep, &[from.local(0, length)], &a.other, (3, 0)).unwrap();
        expect_sent(&a.side, a.ep, (3, length as usize));
        if received {
            let expected = if length == 8 { 1 } else { 2 };
            expect_received(&b.side, b.ep, (expected, length as usize));
        }
        nothing_more(&b.side);
    }
    a.side.close();
    b.side.close();
}

#[test]
fn immediate_data_arrive_with_the_datagram() {
    for thread_safe in [false, true] {
        let [a, b] = pair(thread_safe);
        let (mut source, mut sink) = (vec![5u8; 10], vec![0u8; 128]);
        let (from, to) = (a.side.register(&mut source), b.side.register(&mut sink));
        for (iov, length) in [(&[from.local(0, 10)][..], 10), (&[], 0)] {
            post_recv(&b.side, b.ep, to.local(0, 128), 1);
            send_immediate(&a.side, a.ep, iov, &a.other, (0xFEDC_BA98, 0)).unwrap();
            expect_sent(&a.side, a.ep, (77, length));
            let expected = (DAT_IB_DTO_RECV_UD_IMMED, DAT_IB_UD_RECV);
            let immediate = completion(&b.side, b.ep, expected, (1, length + HEADER));
            assert_eq!(immediate, 0xFEDC_BA98);
        }
        a.side.close();
        b.side.close();
    }
}

#[test]
fn suppressed_sends_are_silent() {
    let [a, b] = pair(false);
    for n in 0..200 {
        let flags =
            if n % 10 == 9 { DAT_COMPLETION_DEFAULT_FLAG } else { DAT_COMPLETION_SUPPRESS_FLAG };
        send(&a.side, a.ep, &[], &a.other, (n, flags)).unwrap();
        if n % 10 == 9 {
            expect_sent(&a.side, a.ep, (n, 0));
        }
    }
    nothing_more(&a.side);
    a.side.close();
    b.side.close();
}

/// The sender decides whether a receiver wakes that waits for solicited events only.
#[test]
fn a_solicited_datagram_wakes_its_receiver() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let recv_evd = b.new_evd(DAT_EVD_DTO_FLAG);
    let attr =
        DAT_EP_ATTR { recv_completion_flags: DAT_COMPLETION_SOLICITED_WAIT_FLAG, ..attributes() };
    let (x, mut y) = (new_ep(&a), null_mut());
    dat!(table, ep_create_func(b.ia, b.pz, recv_evd, b.evd, b.evd, &attr, &mut y)).unwrap();
    let [to, _] = introduce((&a, x), (&b, y));
    let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
    let mut wait = || dat!(table, evd_wait_func(recv_evd, 1000, 1, &mut event, &mut more));
    let mut octets = [0u8; HEADER];
    let lmr = b.register(&mut octets);
    for n in 0..3 {
        post_recv(&b, y, lmr.local(0, 40), n);
    }
    assert_eq!(wait(), Err(Error::of(DAT_TIMEOUT_EXPIRED)));
    send(&a, x, &[], &to, (1, DAT_COMPLETION_SOLICITED_WAIT_FLAG)).unwrap();
    wait().unwrap();
    assert_eq!(event.event_number, DAT_IB_DTO_EVENT);
    a.close();
    b.close();
}

#[test]
fn a_shared_receive_queue_serves_datagram_endpoints() {
    for thread_safe in [false, true] {
        let (table, name) = mem(thread_safe);
        let (a, b) = (Side::new(table, &name), Side::new(table, &name));
        let (srq, attr) = (b.new_srq(8), attributes());
        let Side { ia, pz, evd, .. } = b;
        let eps = [(); 2].map(|()| {
            let mut ep = null_mut();
            dat!(table, ep_create_with_srq_func(ia, pz, evd, evd, evd, srq, &attr, &mut ep))
                .unwrap();
            ep
        });
        let x = new_ep(&a);
        let (mut source, mut sink) = (vec![3u8; 16], vec![0u8; 8 * 64]);
        let (from, to) = (a.register(&mut source), b.register(&mut sink));
        for n in 0..4 {
            let mut place = to.local(64 * n, if n == 0 { 40 } else { 64 });
            dat!(table, srq_post_recv_func(srq, 1, &mut place, cookie(n))).unwrap();
        }
        let refused = dat!(table, ep_post_recv_func(eps[0], 0, null_mut(), cookie(0), 0));
        assert!(refused.is_err());
        for (n, (ep, length)) in [(eps[0], 0), (eps[1], 16), (eps[0], 16)].into_iter().enumerate() {
            let [peer, _] = introduce((&a, x), (&b, ep));
            if n == 0 {
                // The first buffer is too small for this datagram, which is lost.
                send(&a, x, &[from.local(0, 16)], &peer, (9, 0)).unwrap();
                expect_sent(&a, x, (9, 16));
            }
            send(&a, x, &[from.local(0, length)], &peer, (9, 0)).unwrap();
            expect_sent(&a, x, (9, length as usize));
            expect_received(&b, ep, (n as u64, length as usize));
        }
        // The endpoints are freed, and the last buffer stays in the queue.
        for ep in eps {
            dat!(table, ep_free_func(ep)).unwrap();
        }
        dat!(table, srq_free_func(srq)).unwrap();
        nothing_more(&b);
        a.close();
        b.close();
    }
}

#[test]
fn counters() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let [x, y] = pair_of([a, b], [&attributes(); 2]);
    let (mut source, mut sink) = (vec![3u8; 16], vec![0u8; 64]);
    let (from, to) = (a.register(&mut source), b.register(&mut sink));
    for n in 0..2 {
        post_recv(&b, y.ep, to.local(0, 64), n);
    }
    send(&a, x.ep, &[from.local(0, 16)], &x.other, (9, 0)).unwrap();
    send_immediate(&a, x.ep, &[from.local(0, 5)], &x.other, (9, 0)).unwrap();
    assert!(send(&a, x.ep, &[], &nowhere(), (9, 0)).is_err());
    for _ in 0..2 {
        extended_completion(&a);
        extended_completion(&b);
    }
    dat!(table, ep_disconnect_func(x.ep, DAT_CLOSE_ABRUPT_FLAG)).unwrap();
    let sent = [
        (DCNT_EP_CONNECT, 1),
        (DCNT_EP_DISCONNECT, 1),
        (DCNT_EP_POST_SEND_UD, 2),
        (DCNT_EP_POST_SEND_UD_DATA, 21),
    ];
    expect(table, x.ep, DCNT_EP_ALL_COUNTERS, &sent);
    let received = [
        (DCNT_EP_POST_RECV, 2),
        (DCNT_EP_POST_RECV_DATA, 128),
        (DCNT_EP_RECV_UD, 2),
        (DCNT_EP_RECV_UD_DATA, 21 + 2 * HEADER as u64),
    ];
    expect(table, y.ep, DCNT_EP_ALL_COUNTERS, &received);
    let value = |side: &Side, counter| crate::counters::value(table, side.ia, counter);
    for (counter, of_a, of_b) in [
        (DCNT_IA_CM_AH_REQ_TX, 1, 0),
        (DCNT_IA_CM_AH_REQ_RX, 0, 1),
        (DCNT_IA_CM_AH_RESOLVED, 1, 1),
        (DCNT_IA_CM_REQ_TX, 0, 0),
        (DCNT_IA_CM_REQ_RX, 0, 0),
        (DCNT_IA_CM_REP_TX, 0, 1),
        (DCNT_IA_CM_ACTIVE_EST, 0, 0),
        (DCNT_IA_CM_PASSIVE_EST, 0, 0),
        (DCNT_IA_SP_CR, 0, 1),
        (DCNT_IA_SP_CR_ACCEPTED, 0, 1),
    ] {
        assert_eq!((value(&a, counter), value(&b, counter)), (of_a, of_b), "counter {counter}");
    }
    a.close();
    b.close();
}

/// The attributes by which programs find out whether there are datagrams, and how long they may be.
#[test]
fn named_attributes() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let mut provider = DAT_PROVIDER_ATTR::zeroed();
    let none = null_mut();
    dat!(table, ia_query_func(side.ia, none, 0, null_mut(), DAT_PROVIDER_FIELD_ALL, &mut provider))
        .unwrap();
    let value = |wanted: &std::ffi::CStr| {
        (0..provider.num_provider_specific_attr as usize).find_map(|n| {
            // SAFETY: the pointer leads to as many attributes as the count says, with terminated
            // texts, as long as the adapter is open.
            unsafe {
                let attr = *provider.provider_specific_attr.add(n);
                let name = std::ffi::CStr::from_ptr(attr.name);
                (name == wanted).then(|| std::ffi::CStr::from_ptr(attr.value))
            }
        })
    };
    assert_eq!(value(DAT_IB_ATTR_UD), Some(c"TRUE"));
    assert_eq!(value(c"DAT_IB_TRANSPORT_MTU"), Some(c"4096"));
    side.close();
}

/// A strict adapter keeps an endpoint to its own attributes.
#[test]
fn a_strict_adapter() {
    let (table, name) = strict_mem();
    let sides = [Side::new(table, &name), Side::new(table, &name)];
    let short = DAT_EP_ATTR { max_message_size: 16, ..attributes() };
    let long = DAT_EP_ATTR { max_message_size: MAX_DATAGRAM as u32 + 1, ..attributes() };
    assert_eq!(create(&sides[0], &long), Err(Error::arg(6)));
    let [a, b] = pair_of(sides, [&short, &attributes()]);
    let mut octets = vec![0u8; 64];
    let lmr = a.side.register(&mut octets);
    send(&a.side, a.ep, &[lmr.local(0, 16)], &a.other, (1, 0)).unwrap();
    expect_sent(&a.side, a.ep, (1, 16));
    let too_long = Err(Error::of(DAT_LENGTH_ERROR));
    assert_eq!(send(&a.side, a.ep, &[lmr.local(0, 17)], &a.other, (1, 0)), too_long);
    a.side.close();
    b.side.close();
}

/// Programs set the sizes in the attributes to values that do not fit, so only a strict adapter
/// checks them. The unsignalled flag is refused unless the endpoint was created with it.
#[test]
fn other_adapters_permit_other_sizes() {
    let (table, name) = mem(false);
    let sides = [Side::new(table, &name), Side::new(table, &name)];
    let none = DAT_EP_ATTR { max_message_size: 0, ..attributes() };
    let long = DAT_EP_ATTR {
        max_message_size: 1 << 20,
        request_completion_flags: DAT_COMPLETION_UNSIGNALLED_FLAG,
        ..attributes()
    };
    let [a, b] = pair_of(sides, [&none, &attributes()]);
    let mut octets = vec![0u8; MAX_DATAGRAM];
    let lmr = a.side.register(&mut octets);
    let all = [lmr.local(0, MAX_DATAGRAM as u32)];
    for flags in [1 << 20, DAT_COMPLETION_UNSIGNALLED_FLAG] {
        assert_eq!(send(&a.side, a.ep, &[], &a.other, (1, flags)), Err(Error::arg(7)));
        assert_eq!(send_immediate(&a.side, a.ep, &[], &a.other, (1, flags)), Err(Error::arg(8)));
    }
    send(&a.side, a.ep, &all, &a.other, (1, 0)).unwrap();
    expect_sent(&a.side, a.ep, (1, MAX_DATAGRAM));
    let requests = a.side.new_evd(DAT_EVD_DTO_FLAG);
    let (Side { ia, pz, evd, .. }, mut quiet) = (a.side, null_mut());
    dat!(table, ep_create_func(ia, pz, evd, requests, evd, &long, &mut quiet)).unwrap();
    let [peer, _] = introduce((&a.side, quiet), (&b.side, b.ep));
    send(&a.side, quiet, &[], &peer, (1, DAT_COMPLETION_UNSIGNALLED_FLAG)).unwrap();
    let mut event = DAT_EVENT::zeroed();
    dat!(table, evd_dequeue_func(requests, &mut event)).unwrap();
    assert_eq!(event.event_number, DAT_IB_DTO_EVENT);
    a.side.close();
    b.side.close();
}
