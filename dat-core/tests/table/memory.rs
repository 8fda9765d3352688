//! Tests of protection zones, regions and shared receive queues.

use std::ptr::null_mut;

use dat_core::Error;
use dat_sys::*;

use crate::client::*;

/// Calls dat_lmr_create. The parameters of this function are the arguments that the tests vary.
fn create(
    side: &Side,
    (kind, region): (DAT_MEM_TYPE, DAT_REGION_DESCRIPTION),
    length: u64,
    pz: DAT_PZ_HANDLE,
    privileges: DAT_MEM_PRIV_FLAGS,
    va_type: DAT_VA_TYPE,
) -> Result<Lmr, Error> {
    let mut lmr = Lmr::default();
    dat!(
        side.table,
        lmr_create_func(
            side.ia,
            kind,
            region,
            length,
            pz,
            privileges,
            va_type,
            &mut lmr.handle,
            &mut lmr.context,
            &mut lmr.rmr_context,
            &mut lmr.size,
            &mut lmr.address,
        )
    )
    .map(|()| lmr)
}

fn at(addr: *mut u8) -> (DAT_MEM_TYPE, DAT_REGION_DESCRIPTION) {
    (DAT_MEM_TYPE_VIRTUAL, DAT_REGION_DESCRIPTION { for_va: addr.cast() })
}

fn query(side: &Side, lmr: DAT_LMR_HANDLE) -> DAT_LMR_PARAM {
    let mut param = DAT_LMR_PARAM::zeroed();
    dat!(side.table, lmr_query_func(lmr, DAT_LMR_FIELD_ALL, &mut param)).unwrap();
    param
}

#[test]
fn unmapped_memory_is_not_registered() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let mut buffer = vec![0u8; 3 << 16];
    let register = |addr: *mut u8, length| {
        create(&side, at(addr), length, side.pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA).map(drop)
    };
    // Any part of one page or of several pages can be registered. The first page of the address
    // space and the kernel's half of the address space cannot be registered.
    assert_eq!(register(buffer.as_mut_ptr().wrapping_add(7), (3 << 16) - 7), Ok(()));
    assert_eq!(register(16 as *mut u8, 1), Err(Error::arg(3)));
    assert_eq!(register((1usize << 63) as *mut u8, 4096), Err(Error::arg(3)));
    // The range begins in memory and ends at addresses without memory.
    assert_eq!(register(buffer.as_mut_ptr(), 1 << 46), Err(Error::arg(3)));
}

/// Memory is refused if its mapping lacks a permission that the region's privileges require. If
/// such memory could be registered, an access by a peer would end the process by a signal. A device
/// refuses to pin such memory, too.
#[test]
fn memory_without_the_required_permissions_is_not_registered() {
    const PAGE: usize = 4096;
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let (none, read, both) = (libc::PROT_NONE, libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the mapping belongs to this test.
    let start = unsafe { libc::mmap(null_mut(), 2 * PAGE, both, kind, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let register =
        |privileges| create(&side, at(start.cast()), 2 * PAGE as u64, side.pz, privileges, 0);
    let violation = |subtype| Some(Error::new(DAT_PRIVILEGES_VIOLATION, subtype));
    let [local_read, local_write] = [DAT_MEM_PRIV_LOCAL_READ_FLAG, DAT_MEM_PRIV_LOCAL_WRITE_FLAG];
    let [remote_read, remote_write] =
        [DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_MEM_PRIV_REMOTE_WRITE_FLAG];
    let cases = [
        (both, DAT_MEM_PRIV_ALL_FLAG, None),
        (read, local_read | remote_read, None),
        (read, 0, None),
        (read, DAT_MEM_PRIV_ALL_FLAG, violation(DAT_PRIVILEGES_WRITE)),
        (read, local_write, violation(DAT_PRIVILEGES_WRITE)),
        (read, local_read | remote_write, violation(DAT_PRIVILEGES_RDMA_WRITE)),
        (none, DAT_MEM_PRIV_ALL_FLAG, violation(DAT_PRIVILEGES_READ)),
        (none, local_read, violation(DAT_PRIVILEGES_READ)),
        (none, remote_read, violation(DAT_PRIVILEGES_RDMA_READ)),
    ];
    for (allowed, privileges, expected) in cases {
        // The second of the two pages is checked in the same manner as the first.
        // SAFETY: nobody uses the two pages.
        unsafe { assert_eq!(libc::mprotect(start.wrapping_byte_add(PAGE), PAGE, allowed), 0) };
        let made = register(privileges);
        assert_eq!(made.as_ref().err().copied(), expected, "{allowed} {privileges:#x}");
        if let Ok(lmr) = made {
            // An LMR that is created from the region is checked, too.
            let of = (DAT_MEM_TYPE_LMR, DAT_REGION_DESCRIPTION { for_lmr_handle: lmr.handle });
            let view = create(&side, of, 0, side.pz, DAT_MEM_PRIV_ALL_FLAG, 0);
            assert_eq!(view.is_ok(), allowed == both);
            view.into_iter().for_each(|view| dat!(table, lmr_free_func(view.handle)).unwrap());
            dat!(table, lmr_free_func(lmr.handle)).unwrap();
        }
    }
    side.close();
    // SAFETY: the memory is not registered any more.
    unsafe { libc::munmap(start, 2 * PAGE) };
}

#[test]
fn a_region_is_checked_before_it_is_registered() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let mut buffer = [0u8; 64];
    let here = at(buffer.as_mut_ptr());
    let all = DAT_MEM_PRIV_ALL_FLAG;
    let pz = side.pz;
    let refused = |region, length, privileges, va_type| {
        create(&side, region, length, pz, privileges, va_type)
            .expect_err("the region must be refused")
    };
    assert_eq!(refused(at(null_mut()), 64, all, 0), Error::arg(3));
    assert_eq!(refused(here, 0, all, 0), Error::of(DAT_LENGTH_ERROR));
    assert_eq!(refused(here, u64::MAX, all, 0), Error::arg(4));
    assert_eq!(refused((7, here.1), 64, all, 0), Error::arg(2));
    assert_eq!(refused(here, 64, 0x80, 0), Error::arg(6));
    assert_eq!(refused(here, 64, all, 9), Error::arg(7));
    let none = (DAT_MEM_TYPE_LMR, DAT_REGION_DESCRIPTION { for_lmr_handle: pz });
    assert_eq!(refused(none, 0, all, 0), Error::handle(DAT_INVALID_HANDLE_LMR));
    // The refused calls have left no objects behind.
    dat!(table, pz_free_func(pz)).unwrap();
    side.close();
}

#[test]
fn a_region_reports_its_parameters() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let mut buffer = [0u8; 64];
    let local = DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG;
    for privileges in (0..=DAT_MEM_PRIV_ALL_FLAG).filter(|p| p & !DAT_MEM_PRIV_ALL_FLAG == 0) {
        let lmr = create(&side, at(buffer.as_mut_ptr()), 64, side.pz, privileges, 0).unwrap();
        assert!(lmr.size >= 64 && lmr.address <= buffer.as_ptr() as u64);
        // Without a remote privilege there is no RMR context (uDAPL 1.2, dat_lmr_create).
        assert_eq!(lmr.rmr_context == 0, privileges & !local == 0, "{privileges:#x}");
        let param = query(&side, lmr.handle);
        assert_eq!((param.ia_handle, param.pz_handle), (consumer_handle(side.ia), side.pz));
        assert_eq!(
            (param.mem_type, param.length, param.mem_priv),
            (DAT_MEM_TYPE_VIRTUAL, 64, privileges)
        );
        assert_eq!((param.lmr_context, param.rmr_context), (lmr.context, lmr.rmr_context));
        assert_eq!((param.registered_size, param.registered_address), (lmr.size, lmr.address));
        // SAFETY: the type says that this member of the union is valid.
        assert_eq!(unsafe { param.region_desc.for_va }, buffer.as_mut_ptr().cast());
        dat!(table, lmr_free_func(lmr.handle)).unwrap();
    }
    side.close();
}

#[test]
fn a_zero_based_region_is_named_by_offsets() {
    let [(a, x), (b, y)] = connected(false);
    let t = a.table;
    let (mut near, mut far) = ([7u8; 64], [0u8; 64]);
    let from = a.register_as(&mut near, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_ZB);
    let to = b.register_as(&mut far, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_ZB);
    let param = query(&a, from.handle);
    assert_eq!((param.va_type, param.registered_address), (DAT_VA_TYPE_ZB, near.as_ptr() as u64));
    let local =
        |lmr: &Lmr, at, bytes| DAT_LMR_TRIPLET { virtual_address: at, ..lmr.local(0, bytes) };
    let remote = |at, bytes| DAT_RMR_TRIPLET { virtual_address: at, ..to.remote(0, bytes) };
    dat!(t, ep_post_recv_func(y, 1, &mut local(&to, 8, 8), cookie(1), 0)).unwrap();
    dat!(t, ep_post_send_func(x, 1, &mut local(&from, 56, 8), cookie(2), 0)).unwrap();
    dat!(t, ep_post_rdma_write_func(x, 1, &mut local(&from, 0, 8), cookie(3), &remote(56, 8), 0))
        .unwrap();
    for side in [&a, &a, &b] {
        assert_eq!(side.completion().status, DAT_DTO_SUCCESS);
    }
    assert_eq!(
        dat!(t, ep_post_send_func(x, 1, &mut local(&from, 57, 8), cookie(4), 0)),
        Err(Error::arg(3))
    );
    assert_eq!(
        dat!(t, ep_post_send_func(x, 1, &mut from.local(0, 8), cookie(4), 0)),
        Err(Error::arg(3))
    );
    for (segment, expected) in [
        (local(&from, 0, 64), Ok(())),
        (local(&from, 1, 64), Err(Error::arg(2))),
        (from.local(0, 1), Err(Error::arg(2))),
    ] {
        assert_eq!(dat!(t, lmr_sync_rdma_read_func(a.ia, &segment, 1)), expected);
        assert_eq!(dat!(t, lmr_sync_rdma_write_func(a.ia, &segment, 1)), expected);
    }
    a.close();
    b.close();
    assert_eq!((far[8..16].to_vec(), far[56..].to_vec()), (vec![7; 8], vec![7; 8]));
}

#[test]
fn an_lmr_created_from_an_lmr_has_the_same_memory() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let mut other_pz = null_mut();
    dat!(table, pz_create_func(side.ia, &mut other_pz)).unwrap();
    let mut buffer = [0u8; 64];
    let base = side.register(&mut buffer);
    let of = (DAT_MEM_TYPE_LMR, DAT_REGION_DESCRIPTION { for_lmr_handle: base.handle });
    let view = create(&side, of, 999, other_pz, DAT_MEM_PRIV_LOCAL_READ_FLAG, 0).unwrap();
    assert_eq!((view.size, view.address, view.rmr_context), (base.size, base.address, 0));
    assert_ne!(view.context, base.context);
    let param = query(&side, view.handle);
    assert_eq!((param.mem_type, param.length, param.pz_handle), (DAT_MEM_TYPE_LMR, 64, other_pz));
    // SAFETY: the type says that this member of the union is valid.
    assert_eq!(unsafe { param.region_desc.for_lmr_handle }, base.handle);
    // The new LMR stays valid when the region from which it was created is freed, and it uses its
    // own zone.
    dat!(table, lmr_free_func(base.handle)).unwrap();
    assert_eq!(query(&side, view.handle).registered_address, base.address);
    assert_eq!(dat!(table, pz_free_func(other_pz)), Err(Error::state(DAT_INVALID_STATE_PZ_IN_USE)));
    dat!(table, lmr_free_func(view.handle)).unwrap();
    dat!(table, pz_free_func(other_pz)).unwrap();
    side.close();
}

#[test]
fn a_zone_is_in_use_while_it_contains_objects() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let in_use = Err(Error::state(DAT_INVALID_STATE_PZ_IN_USE));
    let mut buffer = [0u8; 8];
    let lmr = side.register(&mut buffer).handle;
    assert_eq!(dat!(table, pz_free_func(side.pz)), in_use);
    dat!(table, lmr_free_func(lmr)).unwrap();
    let ep = side.new_ep();
    assert_eq!(dat!(table, pz_free_func(side.pz)), in_use);
    dat!(table, ep_free_func(ep)).unwrap();
    let srq = side.new_srq(1);
    assert_eq!(dat!(table, pz_free_func(side.pz)), in_use);
    dat!(table, srq_free_func(srq)).unwrap();
    dat!(table, pz_free_func(side.pz)).unwrap();
    side.close();
}

#[test]
fn synchronising_checks_segments() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let mut buffer = [0u8; 64];
    let lmr = side.register(&mut buffer);
    let sync = |segments: &[DAT_LMR_TRIPLET]| {
        let (iov, n) = (segments.as_ptr(), segments.len() as u64);
        let read = dat!(table, lmr_sync_rdma_read_func(side.ia, iov, n));
        assert_eq!(dat!(table, lmr_sync_rdma_write_func(side.ia, iov, n)), read);
        read
    };
    let beyond = |by: u64| DAT_LMR_TRIPLET {
        virtual_address: lmr.address.wrapping_add(by),
        ..lmr.local(0, 8)
    };
    assert_eq!(sync(&[]), Ok(()));
    assert_eq!(sync(&[lmr.local(0, 64), lmr.local(63, 1), DAT_LMR_TRIPLET::zeroed()]), Ok(()));
    assert_eq!(sync(&[lmr.local(0, 64), beyond(57)]), Err(Error::arg(2)));
    assert_eq!(sync(&[beyond(u64::MAX)]), Err(Error::arg(2)));
    assert_eq!(
        sync(&[DAT_LMR_TRIPLET { virtual_address: u64::MAX - 3, ..lmr.local(0, 8) }]),
        Err(Error::arg(2))
    );
    assert_eq!(
        sync(&[DAT_LMR_TRIPLET { lmr_context: lmr.context ^ 1, ..lmr.local(0, 8) }]),
        Err(Error::arg(2))
    );
    assert_eq!(
        dat!(table, lmr_sync_rdma_read_func(side.ia, std::ptr::null(), 1)),
        Err(Error::arg(2))
    );
    let some = [lmr.local(0, 1)];
    assert_eq!(
        dat!(table, lmr_sync_rdma_read_func(side.ia, some.as_ptr(), u64::MAX)),
        Err(Error::arg(3))
    );
    side.close();
}

fn counts(side: &Side, srq: DAT_SRQ_HANDLE) -> [DAT_COUNT; 3] {
    let mut param = DAT_SRQ_PARAM::zeroed();
    dat!(side.table, srq_query_func(srq, DAT_SRQ_FIELD_ALL, &mut param)).unwrap();
    assert_eq!(param.srq_state, DAT_SRQ_STATE_OPERATIONAL);
    [param.max_recv_dtos, param.available_dto_count, param.outstanding_dto_count]
}

#[test]
fn an_srq_is_checked_before_it_is_created() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let create = |max_recv_dtos, max_recv_iov, low_watermark| {
        let mut attr = DAT_SRQ_ATTR { max_recv_dtos, max_recv_iov, low_watermark };
        let mut srq = null_mut();
        dat!(table, srq_create_func(side.ia, side.pz, &mut attr, &mut srq))
    };
    for (dtos, iov, mark) in [(0, 1, 0), (-1, 1, 0), (4, -1, 0), (4, 33, 0), (4, 1, -1), (4, 1, 5)]
    {
        assert_eq!(create(dtos, iov, mark), Err(Error::arg(3)), "{dtos} {iov} {mark}");
    }
    let too_deep = Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_SRQ);
    assert_eq!(create(DAT_COUNT::MAX, 1, 0), Err(too_deep));
    assert_eq!(create(4, 0, 0), Ok(()));
    side.close();
}

#[test]
fn an_srq_reports_each_low_watermark_once() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let srq = side.new_srq(4);
    for i in 0..3 {
        dat!(table, srq_post_recv_func(srq, 0, null_mut(), cookie(i))).unwrap();
    }
    assert_eq!(dat!(table, srq_set_lw_func(srq, -1)), Err(Error::arg(2)));
    assert_eq!(dat!(table, srq_set_lw_func(srq, 5)), Err(Error::arg(2)));
    let mut event = DAT_EVENT::zeroed();
    dat!(table, srq_set_lw_func(srq, 3)).unwrap();
    assert_eq!(
        dat!(table, evd_dequeue_func(side.async_evd, &mut event)),
        Err(Error::of(DAT_QUEUE_EMPTY))
    );
    dat!(table, srq_set_lw_func(srq, 4)).unwrap();
    dat!(table, evd_dequeue_func(side.async_evd, &mut event)).unwrap();
    // SAFETY: the event is an asynchronous error, so this member of the union is valid.
    let error = unsafe { event.event_data.asynch_error_event_data };
    assert_eq!((error.dat_handle, error.reason as u32), (srq, DAT_SRQ_LOW_WATERMARK_EVENT));
    assert_eq!(
        dat!(table, evd_dequeue_func(side.async_evd, &mut event)),
        Err(Error::of(DAT_QUEUE_EMPTY))
    );
    // A queue can be resized neither below the watermark nor below the number of outstanding
    // buffers (uDAPL 1.2, dat_srq_resize).
    assert_eq!(dat!(table, srq_resize_func(srq, 3)), Err(Error::of(DAT_INVALID_STATE)));
    dat!(table, srq_set_lw_func(srq, 0)).unwrap();
    assert_eq!(dat!(table, srq_resize_func(srq, 2)), Err(Error::of(DAT_INVALID_STATE)));
    assert_eq!(dat!(table, srq_resize_func(srq, 0)), Err(Error::arg(2)));
    dat!(table, srq_resize_func(srq, 3)).unwrap();
    let full = Err(Error::of(DAT_INSUFFICIENT_RESOURCES));
    assert_eq!(dat!(table, srq_post_recv_func(srq, 0, null_mut(), cookie(9))), full);
    assert_eq!(counts(&side, srq), [3, 3, 3]);
    side.close();
}

#[test]
fn an_srq_counts_what_is_available_and_what_is_outstanding() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let srq = b.new_srq(10);
    let x = a.new_ep();
    let mut param = DAT_EP_PARAM::zeroed();
    dat!(table, ep_query_func(x, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    let mut y = null_mut();
    let evd = b.evd;
    dat!(table, ep_create_with_srq_func(b.ia, b.pz, evd, evd, evd, srq, &param.ep_attr, &mut y))
        .unwrap();
    dat!(table, ep_query_func(y, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    assert_eq!(param.srq_handle, srq);
    assert_eq!(dat!(table, srq_free_func(srq)), Err(Error::state(DAT_INVALID_STATE_SRQ_IN_USE)));

    let mut buffer = [0u8; 32];
    let lmr = b.register(&mut buffer);
    for i in 0..3 {
        dat!(table, srq_post_recv_func(srq, 1, &mut lmr.local(8 * i, 8), cookie(i))).unwrap();
    }
    let (_, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    a.connect(x, qualifier, b"");
    dat!(table, cr_accept_func(b.arrival(), y, 0, null_mut())).unwrap();
    assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_eq!(b.next(b.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);

    // The following calls are the example in uDAPL 1.2, dat_srq_query.
    assert_eq!(counts(&b, srq), [10, 3, 3]);
    let mut hello = *b"hello";
    let greeting = a.register(&mut hello);
    dat!(table, ep_post_send_func(x, 1, &mut greeting.local(0, 5), cookie(7), 0)).unwrap();
    assert_eq!(a.completion().status, DAT_DTO_SUCCESS);
    assert_eq!(counts(&b, srq), [10, 2, 3]);
    let received = b.completion();
    assert_eq!(
        (received.ep_handle, received.status, received.transfered_length),
        (y, DAT_DTO_SUCCESS, 5)
    );
    assert_eq!(counts(&b, srq), [10, 2, 2]);
    // SAFETY: the member of the union is an integer, for which any bits are valid.
    let slot = unsafe { received.user_cookie.as_64 } as usize;
    assert_eq!(&buffer[8 * slot..8 * slot + 5], b"hello");

    // A receive cannot be posted to an endpoint on an SRQ.
    let own = dat!(table, ep_post_recv_func(y, 1, &mut lmr.local(0, 8), cookie(0), 0));
    assert!(own.is_err());
    dat!(table, ep_free_func(y)).unwrap();
    dat!(table, srq_free_func(srq)).unwrap();
    a.close();
    b.close();
}

/// The buffer of a message that was received and never dequeued does not stay outstanding forever.
#[test]
fn a_freed_evd_returns_the_buffers_of_its_completions() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let srq = b.new_srq(10);
    let x = a.new_ep();
    let mut param = DAT_EP_PARAM::zeroed();
    dat!(table, ep_query_func(x, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    let (mut recv, mut y) = (null_mut(), null_mut());
    dat!(table, evd_create_func(b.ia, 8, null_mut(), DAT_EVD_DTO_FLAG, &mut recv)).unwrap();
    let attr = &param.ep_attr;
    dat!(table, ep_create_with_srq_func(b.ia, b.pz, recv, b.evd, b.evd, srq, attr, &mut y))
        .unwrap();
    for i in 0..4 {
        dat!(table, srq_post_recv_func(srq, 0, null_mut(), cookie(i))).unwrap();
    }
    let (_, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    a.connect(x, qualifier, b"");
    dat!(table, cr_accept_func(b.arrival(), y, 0, null_mut())).unwrap();
    assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    for i in 0..3 {
        dat!(table, ep_post_send_func(x, 0, null_mut(), cookie(i), 0)).unwrap();
        assert_eq!(a.completion().status, DAT_DTO_SUCCESS);
    }
    let mut event = DAT_EVENT::zeroed();
    dat!(table, evd_dequeue_func(recv, &mut event)).unwrap();
    assert_eq!(counts(&b, srq), [10, 1, 3]);
    dat!(table, ep_free_func(y)).unwrap();
    assert_eq!(counts(&b, srq), [10, 1, 3]);
    dat!(table, evd_free_func(recv)).unwrap();
    assert_eq!(counts(&b, srq), [10, 1, 1]);
    dat!(table, srq_free_func(srq)).unwrap();
    a.close();
    b.close();
}
