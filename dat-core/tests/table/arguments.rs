//! NULL pointers and invalid numbers cause DAT_INVALID_PARAMETER with the position of the argument.

use std::ptr::{null, null_mut};

use dat_core::Error;
use dat_sys::*;

use crate::client::*;

#[test]
fn out_arguments_are_required() {
    let (t, name) = mem(false);
    let side = Side::new(t, &name);
    let Side { ia, pz, evd, cr_evd, .. } = side;
    let ep = side.new_ep();
    let cno = side.new_cno();
    let srq = side.new_srq(4);
    let mut attr = DAT_SRQ_ATTR { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: 0 };
    let mut param = DAT_EP_PARAM::zeroed();
    dat!(t, ep_query_func(ep, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    let ep_attr = &raw const param.ep_attr;
    let (mut any, mut word, mut more, mut event) = (null_mut(), 0u64, 0, DAT_EVENT::zeroed());
    let consumer = DAT_PSP_CONSUMER_FLAG;
    let memory = DAT_REGION_DESCRIPTION { for_va: (&raw mut word).cast() };
    let virt = DAT_MEM_TYPE_VIRTUAL;
    let no32 = null_mut();
    let answers = [
        (2, dat!(t, pz_create_func(ia, null_mut()))),
        (5, dat!(t, evd_create_func(ia, 1, null_mut(), DAT_EVD_SOFTWARE_FLAG, null_mut()))),
        (3, dat!(t, cno_create_func(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, null_mut()))),
        (3, dat!(t, cno_wait_func(cno, 0, null_mut()))),
        (7, dat!(t, ep_create_func(ia, pz, evd, evd, evd, null(), null_mut()))),
        (8, dat!(t, ep_create_with_srq_func(ia, pz, evd, evd, evd, srq, ep_attr, null_mut()))),
        (7, dat!(t, ep_create_with_srq_func(ia, pz, evd, evd, evd, srq, null(), &mut any))),
        (3, dat!(t, ep_modify_func(ep, DAT_EP_FIELD_PZ_HANDLE, null()))),
        (
            8,
            dat!(
                t,
                lmr_create_func(
                    ia,
                    virt,
                    memory,
                    8,
                    pz,
                    0,
                    0,
                    null_mut(),
                    no32,
                    no32,
                    &mut word,
                    &mut word
                )
            ),
        ),
        (5, dat!(t, psp_create_func(ia, 7, cr_evd, consumer, null_mut()))),
        (2, dat!(t, psp_create_any_func(ia, null_mut(), cr_evd, consumer, &mut any))),
        (5, dat!(t, psp_create_any_func(ia, &mut word, cr_evd, consumer, null_mut()))),
        (5, dat!(t, rsp_create_func(ia, 7, ep, cr_evd, null_mut()))),
        (3, dat!(t, srq_create_func(ia, pz, null_mut(), &mut any))),
        (4, dat!(t, srq_create_func(ia, pz, &mut attr, null_mut()))),
        (4, dat!(t, evd_wait_func(evd, 0, 1, null_mut(), &mut more))),
        (5, dat!(t, evd_wait_func(evd, 0, 1, &mut event, null_mut()))),
        (2, dat!(t, evd_dequeue_func(evd, null_mut()))),
        (2, dat!(t, evd_post_se_func(evd, null()))),
        (2, dat!(t, get_consumer_context_func(evd, null_mut()))),
        (2, dat!(t, get_handle_type_func(evd, null_mut()))),
    ];
    for (i, (arg, answer)) in answers.into_iter().enumerate() {
        assert_eq!(answer, Err(Error::arg(arg)), "line {i}");
    }
    assert!(any.is_null());
    side.close();
}

#[test]
fn queries_need_a_known_mask_and_a_record() {
    let (t, name) = mem(false);
    let side = Side::new(t, &name);
    let ep = side.new_ep();
    let cno = side.new_cno();
    let srq = side.new_srq(4);
    let (psp, qualifier) = side.new_psp(DAT_PSP_CONSUMER_FLAG);
    let mut buffer = [0; 8];
    let lmr = side.register(&mut buffer).handle;
    let peer = side.new_ep();
    side.connect(peer, qualifier, b"");
    let cr = side.arrival();
    macro_rules! judge {
        ($($func:ident($handle:expr, $record:ident, $all:expr);)*) => {$(
            let mut record = $record::zeroed();
            let name = stringify!($func);
            assert_eq!(dat!(t, $func($handle, 0, null_mut())), Ok(()), "{name}");
            assert_eq!(dat!(t, $func($handle, $all, &mut record)), Ok(()), "{name}");
            assert_eq!(dat!(t, $func($handle, 1, null_mut())), Err(Error::arg(3)), "{name}");
            assert_eq!(dat!(t, $func($handle, 1 << 31, &mut record)), Err(Error::arg(2)), "{name}");
        )*};
    }
    judge! {
        pz_query_func(side.pz, DAT_PZ_PARAM, DAT_PZ_FIELD_ALL);
        lmr_query_func(lmr, DAT_LMR_PARAM, DAT_LMR_FIELD_ALL);
        evd_query_func(side.evd, DAT_EVD_PARAM, DAT_EVD_FIELD_ALL);
        cno_query_func(cno, DAT_CNO_PARAM, DAT_CNO_FIELD_ALL);
        ep_query_func(ep, DAT_EP_PARAM, DAT_EP_FIELD_ALL);
        psp_query_func(psp, DAT_PSP_PARAM, DAT_PSP_FIELD_ALL);
        cr_query_func(cr, DAT_CR_PARAM, DAT_CR_FIELD_ALL);
        srq_query_func(srq, DAT_SRQ_PARAM, DAT_SRQ_FIELD_ALL);
    }
    side.close();
}

#[test]
fn posts_need_the_segments_they_count() {
    for thread_safe in [false, true] {
        let [(a, x), (b, _)] = connected(thread_safe);
        let t = a.table;
        let srq = a.new_srq(4);
        let mut buffer = [0u8; 64];
        let lmr = a.register(&mut buffer);
        let mut iov = [lmr.local(0, 8); 65];
        let remote = lmr.remote(0, 8);
        let there = iov.as_mut_ptr();
        // The number of segments exceeds the maximum, so the segments are not read.
        let cases =
            [(1, null_mut(), 3), (-1, there, 2), (65, there, 2), (DAT_COUNT::MAX, there, 2)];
        for (count, iov, arg) in cases {
            let expected = Err(Error::arg(arg));
            assert_eq!(dat!(t, ep_post_send_func(x, count, iov, cookie(1), 0)), expected);
            assert_eq!(dat!(t, ep_post_recv_func(x, count, iov, cookie(1), 0)), expected);
            assert_eq!(dat!(t, srq_post_recv_func(srq, count, iov, cookie(1))), expected);
            assert_eq!(
                dat!(t, ep_post_rdma_read_func(x, count, iov, cookie(1), &remote, 0)),
                expected
            );
            assert_eq!(
                dat!(t, ep_post_rdma_write_func(x, count, iov, cookie(1), &remote, 0)),
                expected
            );
        }
        let misaligned = iov.as_mut_ptr().wrapping_byte_add(1);
        // The library reads segments that are not aligned. These segments name no region.
        let stranger = Err(Error::of(DAT_PRIVILEGES_VIOLATION));
        assert_eq!(dat!(t, ep_post_send_func(x, 1, misaligned, cookie(1), 0)), stranger);
        let one = iov.as_mut_ptr();
        assert_eq!(
            dat!(t, ep_post_rdma_read_func(x, 1, one, cookie(1), null(), 0)),
            Err(Error::arg(5))
        );
        assert_eq!(
            dat!(t, ep_post_rdma_write_func(x, 1, one, cookie(1), null(), 0)),
            Err(Error::arg(5))
        );
        // The segment is outside the region.
        let mut outside = lmr.local(60, 8);
        assert_eq!(
            dat!(t, ep_post_send_func(x, 1, &mut outside, cookie(1), 0)),
            Err(Error::arg(3))
        );
        a.close();
        b.close();
    }
}

#[test]
fn private_data_is_as_long_as_it_says() {
    let (t, name) = mem(false);
    let (a, b) = (Side::new(t, &name), Side::new(t, &name));
    let (x, y) = (a.new_ep(), b.new_ep());
    let (_, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    let address = dat_core::addr::SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let mut long = [0u8; 257];
    let connect = |size, data| {
        let to = address.as_ptr();
        dat!(t, ep_connect_func(x, to, qualifier, TEN_SECONDS, size, data, 0, 0))
    };
    assert_eq!(connect(-1, long.as_mut_ptr().cast()), Err(Error::arg(5)));
    assert_eq!(connect(1, null_mut()), Err(Error::arg(6)));
    assert_eq!(connect(257, long.as_mut_ptr().cast()), Err(Error::arg(5)));
    assert_eq!(connect(256, long.as_mut_ptr().cast()), Ok(()));
    let cr = b.arrival();
    let mut param = DAT_CR_PARAM::zeroed();
    dat!(t, cr_query_func(cr, DAT_CR_FIELD_ALL, &mut param)).unwrap();
    assert_eq!((param.private_data_size, param.private_data.is_null()), (256, false));
    for (size, data, arg) in
        [(-1, long.as_mut_ptr().cast(), 0), (1, null_mut(), 1), (257, long.as_mut_ptr().cast(), 0)]
    {
        assert_eq!(dat!(t, cr_accept_func(cr, y, size, data)), Err(Error::arg(3 + arg)));
        assert_eq!(dat!(t, cr_reject_func(cr, size, data)), Err(Error::arg(2 + arg)));
    }
    dat!(t, cr_reject_func(cr, 3, c"bye".as_ptr().cast_mut().cast())).unwrap();
    let event = a.next(a.evd);
    assert_eq!(event.event_number, DAT_CONNECTION_EVENT_PEER_REJECTED);
    a.close();
    b.close();
}

#[test]
fn addresses_are_of_a_known_family() {
    let (t, name) = mem(false);
    let side = Side::new(t, &name);
    let ep = side.new_ep();
    let connect = |to| dat!(t, ep_connect_func(ep, to, 1, TEN_SECONDS, 0, null_mut(), 0, 0));
    let malformed = Err(Error::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED));
    assert_eq!(connect(null_mut()), malformed);
    let mut unix = DAT_SOCK_ADDR { sa_family: 1, sa_data: [0; 14] };
    let unsupported = Err(Error::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNSUPPORTED));
    assert_eq!(connect(&mut unix), unsupported);
    side.close();
}
