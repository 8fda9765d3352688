//! The slots in an endpoint's queues: every request and every receive must occupy exactly one slot
//! until it ends.

use std::ptr::null_mut;

use dat_core::Error;
use dat_sys::*;

use crate::client::*;

/// The maximum number of requests and of receives of the endpoint.
const QUEUE_DEPTH: DAT_COUNT = 4;

struct Pair {
    a: Side,
    x: DAT_EP_HANDLE,
    b: Side,
    y: DAT_EP_HANDLE,
}

impl Pair {
    fn new() -> Pair {
        let (table, name) = mem(false);
        let (a, b) = (Side::new(table, &name), Side::new(table, &name));
        let (x, y) = (ep_with_short_queues(&a), b.new_ep());
        let (_, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
        a.connect(x, qualifier, b"");
        dat!(table, cr_accept_func(b.arrival(), y, 0, null_mut())).unwrap();
        assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
        assert_eq!(b.next(b.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
        Pair { a, x, b, y }
    }

    fn send(&self, id: u64, flags: DAT_COMPLETION_FLAGS) -> Result<(), Error> {
        dat!(self.a.table, ep_post_send_func(self.x, 0, null_mut(), cookie(id), flags))
    }

    fn recv(&self, id: u64) {
        dat!(self.b.table, ep_post_recv_func(self.y, 0, null_mut(), cookie(id), 0)).unwrap();
    }

    fn requests_idle(&self) -> bool {
        let (mut state, mut receives, mut requests) = (0, DAT_FALSE, DAT_FALSE);
        dat!(self.a.table, ep_get_status_func(self.x, &mut state, &mut receives, &mut requests))
            .unwrap();
        requests == DAT_TRUE
    }

    fn completes(&self, id: u64) {
        assert_eq!(cookie_and_status(&self.a.next(self.a.evd)), (id, DAT_DTO_SUCCESS));
    }
}

/// The cookie and the status of a completion.
fn cookie_and_status(event: &DAT_EVENT) -> (u64, DAT_DTO_COMPLETION_STATUS) {
    assert_eq!(event.event_number, DAT_DTO_COMPLETION_EVENT);
    // SAFETY: the number of the event says that this member of the union is valid. Cookies are
    // numbers here.
    unsafe {
        let data = event.event_data.dto_completion_event_data;
        (data.user_cookie.as_64, data.status)
    }
}

/// Creates an endpoint with short queues.
fn ep_with_short_queues(side: &Side) -> DAT_EP_HANDLE {
    let ep = side.new_ep();
    let mut param = DAT_EP_PARAM::zeroed();
    (param.ep_attr.max_request_dtos, param.ep_attr.max_recv_dtos) = (QUEUE_DEPTH, QUEUE_DEPTH);
    let mask = DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS | DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS;
    dat!(side.table, ep_modify_func(ep, mask, &param)).unwrap();
    ep
}

/// Suppressed requests cause no events, but their slots in the queue become free.
#[test]
fn an_endpoint_can_always_post_suppressed() {
    let p = Pair::new();
    for id in 0..10 * QUEUE_DEPTH as u64 {
        p.recv(id);
        assert_eq!(p.send(id, DAT_COMPLETION_SUPPRESS_FLAG), Ok(()), "{id}");
        assert!(p.requests_idle(), "{id} was carried out");
        assert_eq!(cookie_and_status(&p.b.next(p.b.evd)), (id, DAT_DTO_SUCCESS));
    }
    p.recv(99);
    p.send(99, 0).unwrap();
    p.completes(99);
    p.a.close();
    p.b.close();
}

/// A request whose completion was not taken keeps its slot and its cookie, no matter which
/// suppressed requests are posted after it.
#[test]
fn a_completion_that_was_not_taken_keeps_its_cookie() {
    let p = Pair::new();
    p.recv(1);
    p.send(1, 0).unwrap();
    for id in 2..20 {
        p.recv(id);
        assert_eq!(p.send(id, DAT_COMPLETION_SUPPRESS_FLAG), Ok(()), "{id}");
    }
    assert!(!p.requests_idle(), "the first request keeps its slot until its completion is taken");
    p.completes(1);
    assert!(p.requests_idle());
    p.a.close();
    p.b.close();
}

/// A request that was not carried out keeps its slot, so the queue is full at exactly its maximum
/// length.
#[test]
fn suppressed_requests_that_wait_keep_their_places() {
    let p = Pair::new();
    let full = Err(Error::of(DAT_INSUFFICIENT_RESOURCES));
    for id in 0..QUEUE_DEPTH as u64 {
        assert_eq!(p.send(id, DAT_COMPLETION_SUPPRESS_FLAG), Ok(()), "{id}");
    }
    assert_eq!(p.send(9, DAT_COMPLETION_SUPPRESS_FLAG), full);
    assert_eq!(p.send(9, 0), full);
    assert!(!p.requests_idle());
    p.recv(1);
    assert_eq!(p.send(10, 0), Ok(()), "a request was carried out, so its slot must be free");
    assert_eq!(p.send(9, 0), full);
    // A request that fails is reported exactly once, even if its completion is suppressed.
    dat!(p.a.table, ep_disconnect_func(p.x, DAT_CLOSE_ABRUPT_FLAG)).unwrap();
    for id in [1, 2, 3, 10] {
        assert_eq!(cookie_and_status(&p.a.next(p.a.evd)), (id, DAT_DTO_ERR_FLUSHED));
    }
    assert_eq!(p.a.next(p.a.evd).event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
    p.a.close();
    p.b.close();
}

/// dat_ep_modify refuses attributes that leave no room for the posted receives (uDAPL 1.2,
/// dat_ep_modify). No receive is lost or changed.
#[test]
fn modify_keeps_room_for_posted_receives() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let ep = ep_with_short_queues(&side);
    for id in 1..=3 {
        dat!(table, ep_post_recv_func(ep, 0, null_mut(), cookie(id), 0)).unwrap();
    }
    let modify = |count| {
        let mut param = DAT_EP_PARAM::zeroed();
        param.ep_attr.max_recv_dtos = count;
        dat!(table, ep_modify_func(ep, DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS, &param))
    };
    assert_eq!(modify(2), Err(Error::arg(3)));
    let mut param = DAT_EP_PARAM::zeroed();
    dat!(table, ep_query_func(ep, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    assert_eq!(param.ep_attr.max_recv_dtos, QUEUE_DEPTH);
    assert_eq!(modify(3), Ok(()));
    let fourth = dat!(table, ep_post_recv_func(ep, 0, null_mut(), cookie(4), 0));
    assert_eq!(fourth, Err(Error::of(DAT_INSUFFICIENT_RESOURCES)));

    // All three receives are still posted.
    let peer = Side::new(table, &name);
    let (other, (_, qualifier)) = (peer.new_ep(), peer.new_psp(DAT_PSP_CONSUMER_FLAG));
    side.connect(ep, qualifier, b"");
    dat!(table, cr_accept_func(peer.arrival(), other, 0, null_mut())).unwrap();
    assert_eq!(side.next(side.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    for id in 1..=3 {
        dat!(table, ep_post_send_func(other, 0, null_mut(), cookie(0), 0)).unwrap();
        assert_eq!(cookie_and_status(&side.next(side.evd)), (id, DAT_DTO_SUCCESS));
    }
    side.close();
    peer.close();
}

/// An unsignalled request wakes no waiter, but its completion is queued and keeps its slot until it
/// is taken.
#[test]
fn an_endpoint_can_always_post_unsignalled() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let x = ep_with_short_queues(&a);
    let mut param = DAT_EP_PARAM::zeroed();
    param.ep_attr.request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
    // An EVD for unsignalled requests takes no connection events.
    param.request_evd_handle = a.new_evd(DAT_EVD_DTO_FLAG);
    let mask = DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS | DAT_EP_FIELD_REQUEST_EVD_HANDLE;
    dat!(table, ep_modify_func(x, mask, &param)).unwrap();
    let (_, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    let y = b.new_ep();
    a.connect(x, qualifier, b"");
    dat!(table, cr_accept_func(b.arrival(), y, 0, null_mut())).unwrap();
    assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_eq!(b.next(b.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    let p = Pair { a, x, b, y };
    let completes = |id| {
        let event = p.a.next(param.request_evd_handle);
        assert_eq!(cookie_and_status(&event), (id, DAT_DTO_SUCCESS));
    };
    let unsignalled = DAT_COMPLETION_UNSIGNALLED_FLAG;
    // The requests are posted one at a time.
    for id in 0..10 * QUEUE_DEPTH as u64 {
        p.recv(id);
        assert_eq!(p.send(id, unsignalled), Ok(()), "{id}");
        completes(id);
        assert!(p.requests_idle());
        assert_eq!(cookie_and_status(&p.b.next(p.b.evd)), (id, DAT_DTO_SUCCESS));
    }
    // The maximum number of requests is posted in each round.
    for round in 0..10 {
        for id in 0..QUEUE_DEPTH as u64 {
            p.recv(id);
            assert_eq!(p.send(id, unsignalled), Ok(()), "{round}, {id}");
        }
        assert_eq!(p.send(9, unsignalled), Err(Error::of(DAT_INSUFFICIENT_RESOURCES)), "{round}");
        assert_eq!(
            p.send(9, DAT_COMPLETION_SUPPRESS_FLAG),
            Err(Error::of(DAT_INSUFFICIENT_RESOURCES))
        );
        (0..QUEUE_DEPTH as u64).for_each(completes);
        for id in 0..QUEUE_DEPTH as u64 {
            assert_eq!(cookie_and_status(&p.b.next(p.b.evd)), (id, DAT_DTO_SUCCESS));
        }
    }
    p.a.close();
    p.b.close();
}

/// Calls dat_srq_query. Returns the numbers of available and of outstanding buffers.
fn shared_buffers(side: &Side, srq: DAT_SRQ_HANDLE) -> (DAT_COUNT, DAT_COUNT) {
    let mut param = DAT_SRQ_PARAM::zeroed();
    dat!(side.table, srq_query_func(srq, DAT_SRQ_FIELD_ALL, &mut param)).unwrap();
    (param.available_dto_count, param.outstanding_dto_count)
}

/// An endpoint of `b` on a shared queue of four buffers, with the EVD `recv` for receives. The
/// endpoint is connected to an endpoint of `a`.
fn on_a_shared_queue(
    a: &Side,
    b: &Side,
    recv: DAT_EVD_HANDLE,
) -> (DAT_EP_HANDLE, DAT_EP_HANDLE, DAT_SRQ_HANDLE) {
    let table = a.table;
    let (x, srq, mut y) = (a.new_ep(), b.new_srq(4), null_mut());
    let attr = DAT_EP_ATTR {
        srq_soft_hw: DAT_WATERMARK_INFINITE,
        recv_completion_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        request_completion_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        ..DAT_EP_ATTR::zeroed()
    };
    dat!(table, ep_create_with_srq_func(b.ia, b.pz, recv, b.evd, b.evd, srq, &attr, &mut y))
        .unwrap();
    let (_, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    a.connect(x, qualifier, b"");
    dat!(table, cr_accept_func(b.arrival(), y, 0, null_mut())).unwrap();
    for _ in 0..4 {
        dat!(table, srq_post_recv_func(srq, 0, null_mut(), cookie(1))).unwrap();
    }
    (x, y, srq)
}

/// Nobody can take the receive completions of an endpoint that has no receive EVD. So the buffer of
/// a message goes back to the shared receive queue as soon as the message has arrived.
#[test]
fn a_shared_buffer_with_an_unreported_completion_is_returned() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let (x, y, srq) = on_a_shared_queue(&a, &b, null_mut());
    // An endpoint without an EVD for receives never holds more than one buffer.
    dat!(table, ep_set_watermark_func(y, DAT_WATERMARK_INFINITE, 1)).unwrap();
    for sent in 1..=4 {
        dat!(table, ep_post_send_func(x, 0, null_mut(), cookie(sent), 0)).unwrap();
        assert_eq!(shared_buffers(&b, srq), (4 - sent as DAT_COUNT, 4 - sent as DAT_COUNT));
        let (mut state, mut receives, mut requests) = (0, 0, 0);
        dat!(table, ep_get_status_func(y, &mut state, &mut receives, &mut requests)).unwrap();
        assert_eq!((state, receives), (DAT_EP_STATE_CONNECTED, DAT_TRUE));
    }
    dat!(table, srq_resize_func(srq, 1)).unwrap();
    a.close();
    b.close();
}

/// If an EVD that overflows has lost the completions of buffers, the buffers return to the shared
/// queue when the endpoint and the EVD are freed.
#[test]
fn a_shared_buffer_with_a_lost_completion_is_returned() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let mut small = null_mut();
    dat!(table, evd_create_func(b.ia, 1, null_mut(), DAT_EVD_DTO_FLAG, &mut small)).unwrap();
    let (x, y, srq) = on_a_shared_queue(&a, &b, small);
    for sent in 1..=3 {
        dat!(table, ep_post_send_func(x, 0, null_mut(), cookie(sent), 0)).unwrap();
    }
    assert_eq!(b.next(b.async_evd).event_number, DAT_ASYNC_ERROR_EVD_OVERFLOW);
    assert_eq!(shared_buffers(&b, srq), (1, 4));
    dat!(table, ep_free_func(y)).unwrap();
    dat!(table, evd_free_func(small)).unwrap();
    assert_eq!(shared_buffers(&b, srq), (1, 1));
    dat!(table, srq_free_func(srq)).unwrap();
    a.close();
    b.close();
}

/// An endpoint that loses its protection zone keeps its posted receives, and queries still report
/// them.
#[test]
fn receives_without_a_zone_are_still_there() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let ep = ep_with_short_queues(&side);
    for id in 1..=3 {
        dat!(table, ep_post_recv_func(ep, 0, null_mut(), cookie(id), 0)).unwrap();
    }
    for zone in [null_mut(), side.pz, null_mut()] {
        let param = DAT_EP_PARAM { pz_handle: zone, ..DAT_EP_PARAM::zeroed() };
        dat!(table, ep_modify_func(ep, DAT_EP_FIELD_PZ_HANDLE, &param)).unwrap();
        let (mut state, mut receives, mut requests) = (0, 0, 0);
        dat!(table, ep_get_status_func(ep, &mut state, &mut receives, &mut requests)).unwrap();
        assert_eq!((receives, requests), (DAT_FALSE, DAT_TRUE));
        let (mut buffers, mut span) = (0, 0);
        dat!(table, ep_recv_query_func(ep, &mut buffers, &mut span)).unwrap();
        assert_eq!((buffers, span), (3, 3));
    }
    side.close();
}
