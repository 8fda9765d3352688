//! A test with one object of every type.

use std::ptr::null_mut;

use dat_core::cno::Cno;
use dat_core::{Error, handle};
use dat_sys::ib::*;
use dat_sys::*;
use provider_mem::Adapter;

use crate::client::*;

/// Creates objects of every type in every state that one side alone or both sides together can
/// cause. Then closes both adapters while threads wait and one more connection is being
/// established.
pub(crate) fn one_of_everything(t: ProviderTable, name: &str) -> Vec<usize> {
    let [(a, x), (b, y)] = connected_by(t, name);
    let mut buffer = [0u8; 64];
    let mut all: Vec<DAT_HANDLE> = Vec::new();
    for side in [&a, &b] {
        let lmr = side.register(&mut buffer);
        let of = DAT_REGION_DESCRIPTION { for_lmr_handle: lmr.handle };
        let (kind, none, no, mut view) = (DAT_MEM_TYPE_LMR, null_mut(), null_mut(), null_mut());
        dat!(
            t,
            lmr_create_func(side.ia, kind, of, 0, side.pz, 0, 0, &mut view, none, none, no, no)
        )
        .unwrap();
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
        dat!(t, ep_create_func(ia, nil, nil, nil, nil, std::ptr::null(), &mut unconfigured))
            .unwrap();
        all.extend([side.ia, side.async_evd, side.pz, side.evd, side.cr_evd]);
        all.extend([lmr.handle, view, srq, on_srq, cno, unconfigured]);
    }
    all.extend([x, y]);
    // Some transfers are unfinished.
    let lmr = b.register(&mut buffer);
    dat!(t, ep_post_recv_func(y, 1, &mut lmr.local(0, 8), cookie(2), 0)).unwrap();
    dat!(t, ep_post_send_func(y, 1, &mut lmr.local(0, 8), cookie(3), 0)).unwrap();
    all.push(lmr.handle);
    // Some requests are not answered. They arrive at a PSP whose consumer creates the endpoints, at
    // a PSP whose provider creates them, and at a reserved service point.
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
    // Datagram endpoints: two that know each other, and one whose request is not answered.
    let mut param = DAT_EP_PARAM::zeroed();
    dat!(t, ep_query_func(x, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    param.ep_attr.service_type = DAT_IB_SERVICE_TYPE_UD;
    let datagrams = |side: &Side| {
        let (mut ep, evd) = (null_mut(), side.evd);
        dat!(t, ep_create_func(side.ia, side.pz, evd, evd, evd, &param.ep_attr, &mut ep)).unwrap();
        ep
    };
    let (caller, answering, waiting) = (datagrams(&a), datagrams(&b), datagrams(&a));
    for ep in [caller, waiting] {
        a.connect(ep, qualifier, b"please");
        let event = b.next(b.cr_evd);
        assert_eq!(event.event_number, DAT_IB_UD_CONNECTION_REQUEST_EVENT);
        // SAFETY: the number of the event says that this member of the union is valid.
        let cr = unsafe { event.event_data.cr_arrival_event_data }.cr_handle;
        all.extend([ep, cr]);
        if ep == waiting {
            continue;
        }
        dat!(t, cr_accept_func(cr, answering, 0, null_mut())).unwrap();
        for side in [&a, &b] {
            let event = side.next(side.evd);
            assert_eq!(event.event_number, DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED);
            let data = &raw const event.event_extension_data;
            // SAFETY: the number of the event says that its extension data are valid.
            let data = unsafe { data.cast::<DAT_IB_EXTENSION_EVENT_DATA>().read() };
            // SAFETY: as above, for this member of the union.
            all.push(unsafe { data.detail.remote_ah }.ah.cast());
        }
    }
    dat!(t, ep_post_recv_func(answering, 0, null_mut(), cookie(4), 0)).unwrap();
    all.push(answering);
    // Some threads wait on both sides.
    std::thread::scope(|s| {
        for side in [a, b] {
            let aborted = Err(Error::of(DAT_ABORT));
            let busy = side.new_evd(DAT_EVD_SOFTWARE_FLAG) as usize;
            let cno = side.new_cno() as usize;
            let second = Err(Error::state(DAT_INVALID_STATE_EVD_WAITER));
            s.spawn(move || {
                let busy = busy as DAT_EVD_HANDLE;
                let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
                let mut wait = || {
                    dat!(
                        side.table,
                        evd_wait_func(busy, DAT_TIMEOUT_INFINITE, 1, &mut event, &mut more)
                    )
                };
                // Another thread finds out by calls of dat_evd_wait whether this thread waits. If a
                // call of the other thread comes first, this wait is refused and must be repeated.
                let mut answer = wait();
                while answer == second {
                    answer = wait();
                }
                assert_eq!(answer, aborted);
            });
            s.spawn(move || {
                let side = side; // the whole of it, which is Send
                let mut evd = side.evd;
                let cno = cno as DAT_CNO_HANDLE;
                assert_eq!(
                    dat!(side.table, cno_wait_func(cno, DAT_TIMEOUT_INFINITE, &mut evd)),
                    aborted
                );
                assert!(evd.is_null());
            });
            // The thread waits once a second waiter is refused.
            let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
            let busy = busy as DAT_EVD_HANDLE;
            while dat!(side.table, evd_wait_func(busy, 0, 1, &mut event, &mut more)) != second {
                std::thread::yield_now();
            }
            let cno = cno as DAT_CNO_HANDLE;
            // SAFETY: nobody frees the CNO before the close below.
            while !unsafe { handle::get::<Cno<Adapter>>(cno) }.unwrap().has_waiters() {
                std::thread::yield_now();
            }
            all.extend([busy, cno]);
        }
        // The endpoints of `a` that were connected to `b` report the end of their connections
        // before `a` is closed.
        b.close();
        let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
        let mut heard = [0; 5];
        for number in &mut heard {
            let _ = dat!(t, evd_wait_func(a.evd, TEN_SECONDS, 1, &mut event, &mut more));
            *number = event.event_number;
        }
        a.close();
        heard.sort_unstable();
        let (refused, gone) =
            (DAT_CONNECTION_EVENT_NON_PEER_REJECTED, DAT_CONNECTION_EVENT_DISCONNECTED);
        let unresolved = DAT_IB_UD_CONNECTION_ERROR_EVENT;
        assert_eq!(heard, [refused, refused, refused, gone, unresolved]);
    });
    all.into_iter().map(|handle| handle as usize).collect()
}
