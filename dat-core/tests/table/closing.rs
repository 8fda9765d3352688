//! dat_ia_close.

use std::ptr::null_mut;

use dat_core::cno::Cno;
use dat_core::mem_transport::Adapter;
use dat_core::{Error, handle};
use dat_sys::*;

use crate::client::*;

#[test]
fn a_graceful_close_waits_for_the_last_object() {
    let (t, name) = loopback(false);
    let (ia, _) = open(t, &name);
    assert_eq!(dat!(t, ia_close_func(ia, 2)), Err(Error::arg(2)));
    let in_use = Err(Error::state(DAT_INVALID_STATE_IA_IN_USE));
    let close = || dat!(t, ia_close_func(ia, DAT_CLOSE_GRACEFUL_FLAG));
    let (mut pz, mut cno, mut evd) = (null_mut(), null_mut(), null_mut());
    dat!(t, pz_create_func(ia, &mut pz)).unwrap();
    assert_eq!(close(), in_use);
    dat!(t, pz_free_func(pz)).unwrap();
    dat!(t, cno_create_func(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &mut cno)).unwrap();
    assert_eq!(close(), in_use);
    dat!(t, evd_create_func(ia, 4, cno, DAT_EVD_DEFAULT_FLAG, &mut evd)).unwrap();
    assert_eq!(close(), in_use);
    dat!(t, evd_free_func(evd)).unwrap();
    assert_eq!(close(), in_use);
    dat!(t, cno_free_func(cno)).unwrap();
    assert_eq!(close(), Ok(()));
    assert_eq!(close(), Err(Error::handle(DAT_INVALID_HANDLE_IA)));
}

/// Every kind of object in every state that one side alone, and two together, can bring about; then both adapters are
/// closed, while threads wait and one more connection is being made.
fn crowd(thread_safe: bool) -> Vec<usize> {
    let [(a, x), (b, y)] = connected(thread_safe);
    let t = a.table;
    let mut buffer = [0u8; 64];
    let mut all = Vec::new();
    for side in [&a, &b] {
        let lmr = side.register(&mut buffer);
        let of = DAT_REGION_DESCRIPTION { for_lmr_handle: lmr.handle };
        let (kind, none, no, mut view) = (DAT_MEM_TYPE_LMR, null_mut(), null_mut(), null_mut());
        dat!(t, lmr_create_func(side.ia, kind, of, 0, side.pz, 0, 0, &mut view, none, none, no, no)).unwrap();
        let srq = side.new_srq(4);
        dat!(t, srq_post_recv_func(srq, 1, &mut lmr.local(0, 8), cookie(1))).unwrap();
        let mut param = DAT_EP_PARAM::zeroed();
        dat!(t, ep_query_func(x, DAT_EP_FIELD_ALL, &mut param)).unwrap();
        let (mut on_srq, evd) = (null_mut(), side.evd);
        let (ia, pz, attr) = (side.ia, side.pz, &param.ep_attr);
        dat!(t, ep_create_with_srq_func(ia, pz, evd, evd, evd, srq, attr, &mut on_srq)).unwrap();
        let cno = side.new_cno();
        dat!(t, evd_modify_cno_func(side.cr_evd, cno)).unwrap();
        let mut unconfigured = null_mut();
        let nil = null_mut();
        dat!(t, ep_create_func(ia, nil, nil, nil, nil, std::ptr::null(), &mut unconfigured)).unwrap();
        all.extend([side.ia, side.async_evd, side.pz, side.evd, side.cr_evd]);
        all.extend([lmr.handle, view, srq, on_srq, cno, unconfigured]);
    }
    all.extend([x, y]);
    // Unfinished transfers.
    let lmr = b.register(&mut buffer);
    dat!(t, ep_post_recv_func(y, 1, &mut lmr.local(0, 8), cookie(2), 0)).unwrap();
    dat!(t, ep_post_send_func(y, 1, &mut lmr.local(0, 8), cookie(3), 0)).unwrap();
    all.push(lmr.handle);
    // Requests that nobody answers: at a consumer's service point, at a provider's, and at a reserved one.
    let (reserved, idle) = (b.new_ep(), b.new_ep());
    let (mut rsp, mut idle_rsp) = (null_mut(), null_mut());
    let (consumers, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    let (providers, other) = b.new_psp(DAT_PSP_PROVIDER_FLAG);
    dat!(t, rsp_create_func(b.ia, 50_000, reserved, b.cr_evd, &mut rsp)).unwrap();
    dat!(t, rsp_create_func(b.ia, 50_001, idle, b.cr_evd, &mut idle_rsp)).unwrap();
    all.extend([reserved, idle, rsp, idle_rsp, consumers, providers]);
    for qualifier in [qualifier, other, 50_000] {
        let ep = a.new_ep();
        a.connect(ep, qualifier, b"please");
        all.extend([ep, b.arrival()]);
    }
    // Threads that wait on either side.
    std::thread::scope(|s| {
        for side in [a, b] {
            let aborted = Err(Error::of(DAT_ABORT));
            let busy = side.new_evd(DAT_EVD_SOFTWARE_FLAG) as usize;
            let cno = side.new_cno() as usize;
            s.spawn(move || {
                let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
                let forever = DAT_TIMEOUT_INFINITE;
                let busy = busy as DAT_EVD_HANDLE;
                assert_eq!(dat!(side.table, evd_wait_func(busy, forever, 1, &mut event, &mut more)), aborted);
            });
            s.spawn(move || {
                let side = side; // the whole of it, which is Send
                let mut evd = side.evd;
                let cno = cno as DAT_CNO_HANDLE;
                assert_eq!(dat!(side.table, cno_wait_func(cno, DAT_TIMEOUT_INFINITE, &mut evd)), aborted);
                assert!(evd.is_null());
            });
            // A thread waits once a second one is refused.
            let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
            let second = Err(Error::state(DAT_INVALID_STATE_EVD_WAITER));
            let busy = busy as DAT_EVD_HANDLE;
            while dat!(side.table, evd_wait_func(busy, 0, 1, &mut event, &mut more)) != second {
                std::thread::yield_now();
            }
            let cno = cno as DAT_CNO_HANDLE;
            // SAFETY: nobody frees it before the close below.
            while !unsafe { handle::get::<Cno<Adapter>>(cno) }.unwrap().has_waiters() {
                std::thread::yield_now();
            }
            all.extend([busy, cno]);
        }
        // The peers of `b` hear of it before their own adapter goes.
        b.close();
        let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
        let mut heard = [0; 4];
        for number in &mut heard {
            let _ = dat!(t, evd_wait_func(a.evd, TEN_SECONDS, 1, &mut event, &mut more));
            *number = event.event_number;
        }
        a.close();
        heard.sort_unstable();
        let (refused, gone) = (DAT_CONNECTION_EVENT_NON_PEER_REJECTED, DAT_CONNECTION_EVENT_DISCONNECTED);
        assert_eq!(heard, [refused, refused, refused, gone]);
    });
    all.into_iter().map(|handle| handle as usize).collect()
}

#[test]
fn an_abrupt_close_takes_everything_along() {
    for thread_safe in [false, true] {
        let (t, _) = loopback(thread_safe);
        for handle in crowd(thread_safe) {
            let mut kind = 0;
            assert_eq!(
                dat!(t, get_handle_type_func(handle as DAT_HANDLE, &mut kind)),
                Err(Error::handle(DAT_INVALID_HANDLE1)),
                "{handle:#x} is alive"
            );
        }
    }
}
