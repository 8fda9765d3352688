//! Tests of data transfers through the function table, and of what the tables of thread-safe
//! adapters guarantee.

use std::collections::HashSet;
use std::ptr::null_mut;

use dat_core::Error;
use dat_sys::*;

use crate::client::*;

/// A record of a program that contains segments which are not aligned.
#[repr(C, packed)]
struct Unaligned<T>(u8, T);

#[test]
fn triplets_may_be_unaligned() {
    let [(a, x), (b, y)] = connected(false);
    let t = a.table;
    let (mut source, mut target): (Vec<u8>, Vec<u8>) = ((0..64).collect(), vec![0; 64]);
    let (from, to) = (a.register(&mut source), b.register(&mut target));

    let mut into = Unaligned(0, [to.local(0, 8), to.local(32, 8)]);
    dat!(t, ep_post_recv_func(y, 2, (&raw mut into.1).cast(), cookie(1), 0)).unwrap();
    let mut out_of = Unaligned(0, [from.local(8, 12)]);
    dat!(t, ep_post_send_func(x, 1, (&raw mut out_of.1).cast(), cookie(2), 0)).unwrap();
    assert_eq!((a.completion().status, b.completion().transfered_length), (DAT_DTO_SUCCESS, 12));

    let at = Unaligned(0, to.remote(48, 12));
    dat!(
        t,
        ep_post_rdma_write_func(x, 1, (&raw mut out_of.1).cast(), cookie(3), &raw const at.1, 0)
    )
    .unwrap();
    assert_eq!(a.completion().status, DAT_DTO_SUCCESS);
    let synced = Unaligned(0, [from.local(0, 8)]);
    dat!(t, lmr_sync_rdma_read_func(a.ia, (&raw const synced.1).cast(), 1)).unwrap();
    a.close();
    b.close();
    assert_eq!(
        (&target[..8], &target[32..36], &target[48..60]),
        (&source[8..16], &source[16..20], &source[8..20])
    );
}

#[test]
fn send_write_and_read_move_the_bytes() {
    for thread_safe in [false, true] {
        let [(a, x), (b, y)] = connected(thread_safe);
        let t = a.table;
        let mut source: Vec<u8> = (0..=255).collect();
        let mut target = vec![0u8; 256];
        let from = a.register(&mut source);
        let to = b.register(&mut target);

        // Send a message from two segments, in reverse order.
        let big = u64::MAX - 5;
        dat!(
            t,
            ep_post_recv_func(
                y,
                2,
                [to.local(0, 3), to.local(10, 50)].as_mut_ptr(),
                cookie(big),
                0
            )
        )
        .unwrap();
        let mut iov = [from.local(128, 4), from.local(0, 4)];
        dat!(t, ep_post_send_func(x, 2, iov.as_mut_ptr(), cookie(1), 0)).unwrap();
        let sent = a.completion();
        assert_eq!(
            (sent.ep_handle, sent.status, sent.operation),
            (x, DAT_DTO_SUCCESS, DAT_DTO_SEND)
        );
        let received = b.completion();
        assert_eq!((received.ep_handle, received.status), (y, DAT_DTO_SUCCESS));
        assert_eq!((received.operation, received.transfered_length), (DAT_DTO_RECEIVE, 8));
        // SAFETY: the member of the union is an integer, for which any bits are valid.
        assert_eq!(unsafe { (sent.user_cookie.as_64, received.user_cookie.as_64) }, (1, big));

        dat!(
            t,
            ep_post_rdma_write_func(
                x,
                1,
                &mut from.local(0, 64),
                cookie(2),
                &to.remote(100, 64),
                0
            )
        )
        .unwrap();
        assert_eq!(a.completion().operation, DAT_DTO_RDMA_WRITE);
        // Send the data back into the end of the source buffer.
        dat!(
            t,
            ep_post_rdma_read_func(
                x,
                1,
                &mut from.local(192, 64),
                cookie(3),
                &to.remote(100, 64),
                0
            )
        )
        .unwrap();
        let read = a.completion();
        assert_eq!((read.operation, read.transfered_length), (DAT_DTO_RDMA_READ, 64));

        let (mut state, mut idle) = (0, [DAT_FALSE; 2]);
        let [recv_idle, request_idle] = &mut idle;
        dat!(t, ep_get_status_func(x, &mut state, recv_idle, request_idle)).unwrap();
        assert_eq!((state, idle), (DAT_EP_STATE_CONNECTED, [DAT_TRUE; 2]));
        dat!(t, ep_get_status_func(x, null_mut(), null_mut(), null_mut())).unwrap();

        dat!(t, ep_disconnect_func(x, DAT_CLOSE_GRACEFUL_FLAG)).unwrap();
        for side in [&a, &b] {
            assert_eq!(side.next(side.evd).event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
        }
        a.close();
        b.close();
        assert_eq!(target[..3], [128, 129, 130]);
        assert_eq!(target[10..15], [131, 0, 1, 2, 3]);
        assert_eq!(target[100..164], source[..64]);
        assert_eq!(source[192..], source[..64]);
    }
}

#[test]
fn events_come_by_waiting_and_by_polling() {
    let (t, name) = mem(false);
    let side = Side::new(t, &name);
    let (mut event, mut more) = (DAT_EVENT::zeroed(), -1);
    let empty = Err(Error::of(DAT_QUEUE_EMPTY));
    assert_eq!(dat!(t, evd_dequeue_func(side.evd, &mut event)), empty);
    for i in 1..=3usize {
        let mut software = DAT_EVENT::zeroed();
        software.event_number = DAT_SOFTWARE_EVENT;
        software.event_data.software_event_data =
            DAT_SOFTWARE_EVENT_DATA { pointer: i as DAT_PVOID };
        dat!(t, evd_post_se_func(side.evd, &software)).unwrap();
    }
    // A wait that times out leaves all events in the queue and reports their number.
    let expired = Err(Error::of(DAT_TIMEOUT_EXPIRED));
    assert_eq!(dat!(t, evd_wait_func(side.evd, 0, 4, &mut event, &mut more)), expired);
    assert_eq!((more, event.event_number), (3, 0));
    dat!(t, evd_wait_func(side.evd, 0, 3, &mut event, &mut more)).unwrap();
    assert_eq!(more, 2);
    dat!(t, evd_resize_func(side.evd, 2)).unwrap();
    assert_eq!(dat!(t, evd_resize_func(side.evd, 1)), Err(Error::of(DAT_INVALID_STATE)));
    for i in 2..=3 {
        dat!(t, evd_dequeue_func(side.evd, &mut event)).unwrap();
        // SAFETY: the event is a software event.
        assert_eq!(unsafe { event.event_data.software_event_data }.pointer as usize, i);
    }

    let cno = side.new_cno();
    let mut which = side.evd;
    assert_eq!(dat!(t, cno_wait_func(cno, 0, &mut which)), empty);
    assert!(which.is_null());
    dat!(t, evd_modify_cno_func(side.evd, cno)).unwrap();
    assert_eq!(dat!(t, cno_free_func(cno)), Err(Error::state(DAT_INVALID_STATE_CNO_IN_USE)));
    let mut software = DAT_EVENT::zeroed();
    software.event_number = DAT_SOFTWARE_EVENT;
    dat!(t, evd_post_se_func(side.evd, &software)).unwrap();
    dat!(t, cno_wait_func(cno, TEN_SECONDS, &mut which)).unwrap();
    assert_eq!(which, side.evd);
    side.close();
}

#[test]
fn an_endpoint_is_reset_modified_and_connected_again() {
    let [(a, x), (b, y)] = connected(false);
    let t = a.table;
    dat!(t, ep_disconnect_func(x, DAT_CLOSE_ABRUPT_FLAG)).unwrap();
    for side in [&a, &b] {
        assert_eq!(side.next(side.evd).event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
    }
    let mut param = DAT_EP_PARAM::zeroed();
    for ep in [x, y] {
        dat!(t, ep_reset_func(ep)).unwrap();
        dat!(t, ep_query_func(ep, DAT_EP_FIELD_ALL, &mut param)).unwrap();
        assert_eq!(param.ep_state, DAT_EP_STATE_UNCONNECTED);
        param.ep_attr.max_request_dtos = 3;
        dat!(t, ep_modify_func(ep, DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS, &param)).unwrap();
    }
    // This connection uses a reserved service point.
    let (psp, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    dat!(t, psp_free_func(psp)).unwrap();
    let mut rsp = null_mut();
    dat!(t, rsp_create_func(b.ia, qualifier, y, b.cr_evd, &mut rsp)).unwrap();
    a.connect(x, qualifier, b"again");
    let cr = b.arrival();
    let mut request = DAT_CR_PARAM::zeroed();
    dat!(t, cr_query_func(cr, DAT_CR_FIELD_ALL, &mut request)).unwrap();
    assert_eq!((request.local_ep_handle, request.private_data_size), (y, 5));
    dat!(t, cr_accept_func(cr, null_mut(), 0, null_mut())).unwrap();
    dat!(t, rsp_free_func(rsp)).unwrap();
    for side in [&a, &b] {
        assert_eq!(side.next(side.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    }
    // No service point listens any more, so the duplicate of the connection is refused.
    let z = a.new_ep();
    dat!(t, ep_dup_connect_func(z, x, TEN_SECONDS, 0, null_mut(), DAT_QOS_BEST_EFFORT)).unwrap();
    assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
    a.close();
    b.close();
}

#[test]
fn a_thread_safe_endpoint_takes_posts_of_all_threads() {
    const THREADS: u64 = 4;
    const POSTS_PER_THREAD: u64 = 500;
    let [(a, x), (b, y)] = connected(true);
    let (x, y) = (x as usize, y as usize);
    let full = Error::of(DAT_INSUFFICIENT_RESOURCES);
    let post = |f: &dyn Fn() -> Result<(), Error>| {
        loop {
            match f() {
                Err(error) if error == full => std::thread::yield_now(),
                answer => break answer.unwrap(),
            }
        }
    };
    // On each side, two threads take completions with dat_evd_dequeue.
    let drain = |side: Side, left: &std::sync::atomic::AtomicI64| {
        let mut cookies = Vec::new();
        use std::sync::atomic::Ordering::Relaxed;
        while left.load(Relaxed) > 0 {
            let mut event = DAT_EVENT::zeroed();
            match dat!(side.table, evd_dequeue_func(side.evd, &mut event)) {
                Ok(()) => {
                    // SAFETY: only completions are expected, and integers may have any bits.
                    let (status, cookie) = unsafe {
                        let data = event.event_data.dto_completion_event_data;
                        (data.status, data.user_cookie.as_64)
                    };
                    assert_eq!(
                        (event.event_number, status),
                        (DAT_DTO_COMPLETION_EVENT, DAT_DTO_SUCCESS)
                    );
                    cookies.push(cookie);
                    left.fetch_sub(1, Relaxed);
                }
                Err(error) => {
                    if error != Error::of(DAT_QUEUE_EMPTY) {
                        // The other threads stop when this count is 0.
                        left.store(0, Relaxed);
                        panic!("{error}");
                    }
                    std::thread::yield_now();
                }
            }
        }
        cookies
    };
    let lefts =
        [&a, &b].map(|_| std::sync::atomic::AtomicI64::new((THREADS * POSTS_PER_THREAD) as i64));
    let taken = std::thread::scope(|s| {
        let takers: Vec<_> = [(a, &lefts[0]), (a, &lefts[0]), (b, &lefts[1]), (b, &lefts[1])]
            .into_iter()
            .map(|(side, left)| s.spawn(move || drain(side, left)))
            .collect();
        for thread in 0..THREADS {
            s.spawn(move || {
                for i in 0..POSTS_PER_THREAD {
                    let cookie = cookie(thread * POSTS_PER_THREAD + i);
                    post(&|| {
                        dat!(
                            b.table,
                            ep_post_recv_func(y as DAT_EP_HANDLE, 0, null_mut(), cookie, 0)
                        )
                    });
                    post(&|| {
                        dat!(
                            a.table,
                            ep_post_send_func(x as DAT_EP_HANDLE, 0, null_mut(), cookie, 0)
                        )
                    });
                }
            });
        }
        takers.into_iter().map(|taker| taker.join().unwrap()).collect::<Vec<_>>()
    });
    for side in [[&taken[0], &taken[1]], [&taken[2], &taken[3]]] {
        let all: Vec<u64> = side.into_iter().flatten().copied().collect();
        let different: HashSet<u64> = all.iter().copied().collect();
        assert_eq!(
            (all.len() as u64, different.len() as u64),
            (THREADS * POSTS_PER_THREAD, THREADS * POSTS_PER_THREAD)
        );
    }
    a.close();
    b.close();
}
