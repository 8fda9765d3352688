//! Tests of EVDs: which streams an EVD accepts, and what happens when an EVD overflows.

use std::ptr::{null, null_mut};

use dat_core::Error;
use dat_sys::*;

use crate::client::*;

/// Several streams can feed one EVD if each pair of them can feed one EVD (uDAPL 1.2,
/// dat_ia_query).
#[test]
fn streams_merge_as_the_attribute_says() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let mut provider = DAT_PROVIDER_ATTR::zeroed();
    let mask = DAT_PROVIDER_FIELD_EVD_STREAM_MERGING_SUPPORTED;
    dat!(table, ia_query_func(side.ia, null_mut(), 0, null_mut(), mask, &mut provider)).unwrap();
    let streams = [
        DAT_EVD_SOFTWARE_FLAG,
        DAT_EVD_CR_FLAG,
        DAT_EVD_DTO_FLAG,
        DAT_EVD_CONNECTION_FLAG,
        DAT_EVD_RMR_BIND_FLAG,
        DAT_EVD_ASYNC_FLAG,
    ];
    for chosen in 1u32..1 << streams.len() {
        let members = || (0..streams.len()).filter(|i| chosen & 1 << i != 0);
        let merge = |i: usize, j: usize| provider.evd_stream_merging_supported[i][j] == DAT_TRUE;
        let mergeable = members().all(|i| members().all(|j| merge(i, j)));
        let flags = members().fold(0, |flags, i| flags | streams[i]);
        let mut evd = null_mut();
        let made = dat!(table, evd_create_func(side.ia, 4, null_mut(), flags, &mut evd));
        assert_eq!(made.is_ok(), mergeable, "{flags:#x}");
        dat!(table, evd_free_func(evd)).unwrap();
    }
    for flags in [0, 0x200, DAT_EVD_DTO_FLAG | 0x4000] {
        let mut evd = null_mut();
        let made = dat!(table, evd_create_func(side.ia, 4, null_mut(), flags, &mut evd));
        assert_eq!(made, Err(Error::arg(4)), "{flags:#x}");
    }
    side.close();
}

#[test]
fn an_overflowed_evd_delivers_only_earlier_events() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let (mut small, mut y) = (null_mut(), null_mut());
    let streams = DAT_EVD_DTO_FLAG | DAT_EVD_SOFTWARE_FLAG;
    dat!(table, evd_create_func(b.ia, 2, null_mut(), streams, &mut small)).unwrap();
    dat!(table, ep_create_func(b.ia, b.pz, small, b.evd, b.evd, null(), &mut y)).unwrap();
    let x = a.new_ep();
    let (_, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    a.connect(x, qualifier, b"");
    dat!(table, cr_accept_func(b.arrival(), y, 0, null_mut())).unwrap();
    assert_eq!(b.next(b.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    for i in 0..6 {
        dat!(table, ep_post_recv_func(y, 0, null_mut(), cookie(i), 0)).unwrap();
    }
    let send = || dat!(table, ep_post_send_func(x, 0, null_mut(), cookie(0), 0)).unwrap();
    (0..4).for_each(|_| send());

    let event = b.next(b.async_evd);
    // SAFETY: the event is an asynchronous error, so this member of the union is valid.
    let error = unsafe { event.event_data.asynch_error_event_data };
    let said = (event.event_number, error.dat_handle, error.reason as u32);
    assert_eq!(said, (DAT_ASYNC_ERROR_EVD_OVERFLOW, small, DAT_EVD_OVERFLOW_ERROR));
    let mut event = DAT_EVENT::zeroed();
    let broken = Err(Error::of(DAT_INVALID_STATE));
    let software = DAT_EVENT { event_number: DAT_SOFTWARE_EVENT, ..DAT_EVENT::zeroed() };
    assert_eq!(dat!(table, evd_post_se_func(small, &software)), broken);
    assert_eq!(dat!(table, evd_resize_func(small, 16)), broken);

    for i in 0..2 {
        dat!(table, evd_dequeue_func(small, &mut event)).unwrap();
        // SAFETY: the event is a completion, whose cookie is a plain word.
        assert_eq!(unsafe { event.event_data.dto_completion_event_data.user_cookie.as_64 }, i);
    }
    // Later completions for which there is room again are lost as well, because they would follow a
    // gap.
    send();
    let mut more = 0;
    assert_eq!(dat!(table, evd_dequeue_func(small, &mut event)), broken);
    for threshold in [1, 2] {
        let infinite = DAT_TIMEOUT_INFINITE;
        assert_eq!(
            dat!(table, evd_wait_func(small, infinite, threshold, &mut event, &mut more)),
            broken
        );
    }
    // The overflow is reported once.
    let empty = Err(Error::of(DAT_QUEUE_EMPTY));
    assert_eq!(dat!(table, evd_dequeue_func(b.async_evd, &mut event)), empty);
    dat!(table, ep_free_func(y)).unwrap();
    assert_eq!(dat!(table, evd_free_func(small)), Ok(()));
    a.close();
    b.close();
}

/// A software event that finds the queue full causes no overflow (uDAPL 1.2, dat_evd_post_se).
#[test]
fn a_full_evd_refuses_a_software_event_and_continues() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let mut evd = null_mut();
    dat!(table, evd_create_func(side.ia, 2, null_mut(), DAT_EVD_SOFTWARE_FLAG, &mut evd)).unwrap();
    let mut event = DAT_EVENT { event_number: DAT_SOFTWARE_EVENT, ..DAT_EVENT::zeroed() };
    let post = || dat!(table, evd_post_se_func(evd, &event));
    assert_eq!([post(), post(), post()], [Ok(()), Ok(()), Err(Error::of(DAT_QUEUE_FULL))]);
    dat!(table, evd_dequeue_func(evd, &mut event)).unwrap();
    assert_eq!(dat!(table, evd_post_se_func(evd, &event)), Ok(()));
    let empty = Err(Error::of(DAT_QUEUE_EMPTY));
    assert_eq!(dat!(table, evd_dequeue_func(side.async_evd, &mut event)), empty);
    side.close();
}

/// dat_evd_wait takes all completions from the transport in order to count them. The completions
/// that remain must still trigger the CNO.
#[test]
fn completions_that_a_waiter_counted_and_left_trigger_the_cno() {
    let [(a, x), (b, y)] = connected(false);
    let table = b.table;
    let cno = b.new_cno();
    dat!(table, evd_modify_cno_func(b.evd, cno)).unwrap();
    for i in 0..3 {
        dat!(table, ep_post_recv_func(y, 0, null_mut(), cookie(i), 0)).unwrap();
    }
    (0..3).for_each(|i| dat!(table, ep_post_send_func(x, 0, null_mut(), cookie(i), 0)).unwrap());
    let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
    dat!(table, evd_wait_func(b.evd, TEN_SECONDS, 3, &mut event, &mut more)).unwrap();
    assert_eq!(more, 2);
    let triggered = || {
        let mut evd = null_mut();
        dat!(table, cno_wait_func(cno, 0, &mut evd)).map(|()| assert_eq!(evd, b.evd))
    };
    for _ in 0..2 {
        triggered().unwrap();
        dat!(table, evd_dequeue_func(b.evd, &mut event)).unwrap();
    }
    assert_eq!(triggered(), Err(Error::of(DAT_QUEUE_EMPTY)));
    a.close();
    b.close();
}
