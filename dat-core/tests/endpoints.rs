//! Endpoints, completions and connections over the provider mem.

mod support;

use dat_core::conn::{cr, rsp};
use dat_core::ep::{self, PinnedParams, state::State};
use dat_core::error::Error;
use dat_core::provider::{Region, Remote, Segment};
use dat_sys::*;
use support::*;

#[test]
fn a_message_arrives_with_cookie_length_and_operation() {
    let (a, x, b, y) = connected();
    let (mut from, mut to) = (*b"forty-two bytes of no particular meaning!!", [0u8; 64]);
    let (src, dst) = (a.register(&mut from), b.register(&mut to));
    // SAFETY: the buffers outlive the test.
    unsafe {
        y.post_recv(&[dst.segment()], 0xfeed_face_cafe_beef, 0).unwrap();
        x.post_send(&[src.segment()], u64::MAX, 0).unwrap();
    }
    let received = b.completion(b.recv);
    assert_eq!(
        (received.status, received.transfered_length, received.operation),
        (DAT_DTO_SUCCESS, 42, DAT_DTO_RECEIVE)
    );
    // SAFETY: all members of the cookie union are integers, for which all bits are valid.
    assert_eq!(unsafe { received.user_cookie.as_64 }, 0xfeed_face_cafe_beef);
    let sent = a.completion(a.request);
    assert_eq!((sent.status, sent.operation), (DAT_DTO_SUCCESS, DAT_DTO_SEND));
    // SAFETY: all members of the cookie union are integers, for which all bits are valid.
    assert_eq!(unsafe { sent.user_cookie.as_64 }, u64::MAX);
    assert_eq!(to[..42], from);
}

#[test]
fn the_lengths_of_both_sides_of_a_transfer_must_fit() {
    let (a, x, b, _) = connected();
    let (mut near, mut far) = ([1u8; 64], [2u8; 64]);
    let (near_mr, far_mr) = (a.register(&mut near), b.register(&mut far));
    let remote = Remote { addr: far_mr.addr, key: far_mr.mr.rkey() };
    // SAFETY: the buffers outlive the test.
    unsafe {
        // A remote segment must not be too short for a write, or longer than the local buffer of a
        // read (uDAPL 1.2, dat_ep_post_rdma_write and dat_ep_post_rdma_read).
        let refused = Err(Error::of(DAT_LENGTH_ERROR));
        assert_eq!(x.post_rdma_write(&[near_mr.segment()], 5, remote, 63, 0), refused);
        assert_eq!(x.post_rdma_read(&[near_mr.segment()], 6, remote, 65, 0), refused);
        x.post_rdma_write(&[near_mr.segment()], 5, remote, 64, 0).unwrap();
        assert_eq!(a.completion(a.request).transfered_length, 64);
        assert_eq!((near, far), ([1; 64], [1; 64]));
        far.fill(2);
        // A read transfers the length of the remote segment, not that of the local buffer.
        x.post_rdma_read(&[near_mr.segment()], 7, remote, 10, 0).unwrap();
    }
    assert_eq!(a.completion(a.request).transfered_length, 10);
    assert_eq!((near[..10].to_vec(), near[10..].to_vec()), (vec![2; 10], vec![1; 54]));
}

#[test]
fn depth_counts_until_completions_are_dequeued() {
    let (a, x, b, y) = connected();
    let mut buffer = [0u8; 8];
    let mr = b.register(&mut buffer);
    let mut small = DAT_EP_PARAM::zeroed();
    x.query(&mut small);
    let depth = small.ep_attr.max_request_dtos as u64;
    // SAFETY: the sends have length zero, and the buffer outlives the test.
    unsafe {
        for i in 0..depth {
            y.post_recv(&[mr.segment()], i, 0).unwrap();
            x.post_send(&[], i, 0).unwrap();
        }
        assert_eq!(x.post_send(&[], depth, 0), Err(Error::of(DAT_INSUFFICIENT_RESOURCES)));
        a.completion(a.request);
        b.completion(b.recv);
        y.post_recv(&[mr.segment()], depth, 0).unwrap();
        x.post_send(&[], depth, 0).unwrap();
    }
    for i in 1..=depth {
        // SAFETY: all members of the cookie union are integers, for which all bits are valid.
        assert_eq!(unsafe { a.completion(a.request).user_cookie.as_64 }, i);
    }
    assert!(a.empty(a.request));
    // SAFETY: no other thread posts during this call.
    assert!(unsafe { x.status() }.2);
}

#[test]
fn abrupt_disconnect_flushes_and_reports_once_on_each_side() {
    let (a, x, b, y) = connected();
    let mut buffer = [0u8; 8];
    let mr = b.register(&mut buffer);
    // SAFETY: the buffer outlives the test.
    unsafe { y.post_recv(&[mr.segment()], 5, 0).unwrap() };
    x.disconnect(DAT_CLOSE_ABRUPT_FLAG).unwrap();
    x.disconnect(DAT_CLOSE_ABRUPT_FLAG).unwrap();
    assert_eq!(a.next(a.connect).event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
    assert_eq!(b.next(b.connect).event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
    assert_eq!(b.completion(b.recv).status, DAT_DTO_ERR_FLUSHED);
    assert!(a.empty(a.connect) && b.empty(b.connect));
    assert_eq!((x.state(), y.state()), (State::Disconnected, State::Disconnected));
    // In the state Disconnected a post is flushed at once (uDAPL 1.2, dat_ep_post_send).
    // SAFETY: the post has no segments.
    unsafe { x.post_send(&[], 9, 0).unwrap() };
    assert_eq!(a.completion(a.request).status, DAT_DTO_ERR_FLUSHED);
}

#[test]
fn a_reset_endpoint_connects_again() {
    let (a, x, b, y) = connected();
    for _ in 0..3 {
        y.disconnect(DAT_CLOSE_GRACEFUL_FLAG).unwrap();
        a.next(a.connect);
        b.next(b.connect);
        x.reset().unwrap();
        y.reset().unwrap();
        connect(&a, x, &b, y);
    }
    assert_eq!(x.state(), State::Connected);
}

/// An endpoint that has accepted a request knows no service point of its peer, even if it was the
/// side that connected in an earlier connection.
#[test]
fn an_endpoint_that_has_accepted_is_no_model_for_another() {
    let (a, x, b, y) = connected();
    y.disconnect(DAT_CLOSE_GRACEFUL_FLAG).unwrap();
    a.next(a.connect);
    b.next(b.connect);
    x.reset().unwrap();
    y.reset().unwrap();
    connect(&b, y, &a, x);
    let connected = Err(Error::state(DAT_INVALID_STATE_EP_CONNECTED));
    assert_eq!(a.ep().dup_connect(x.dup_source(), 10_000_000, &[], 0), connected);
    assert_eq!(b.ep().dup_connect(y.dup_source(), 10_000_000, &[], 0), Ok(()));
}

#[test]
fn an_endpoint_of_a_request_knows_the_addresses_of_the_connection() {
    let fabric = fabric();
    let (a, b) = (Side::new(&fabric), Side::new(&fabric));
    let (x, y) = (a.ep(), b.ep());
    let point = rsp::create(b.ia, 4711, y, b.cr).unwrap();
    x.connect("127.0.0.1:0".parse().unwrap(), 4711, 10_000_000, &[], 0, 0).unwrap();
    let request = arrival(&b);
    assert_eq!(y.state(), State::PassivePending);
    let pending = addresses(y);
    assert_eq!(pending[0].1, 4711);
    assert!(pending.iter().all(|(family, _)| *family == libc::AF_INET));
    // SAFETY: after this call nobody uses a reference to the request.
    unsafe { cr::accept(request, None, &[]) }.unwrap();
    assert_eq!(b.next(b.connect).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_eq!(addresses(y), pending);
    // SAFETY: after this call nobody uses a reference to the service point.
    unsafe { rsp::free(point) }.unwrap();

    // A rejected request leaves no addresses.
    let (x, y) = (a.ep(), b.ep());
    let point = rsp::create(b.ia, 4712, y, b.cr).unwrap();
    x.connect("127.0.0.1:0".parse().unwrap(), 4712, 10_000_000, &[], 0, 0).unwrap();
    // SAFETY: after this call nobody uses a reference to the request.
    unsafe { cr::begin_reject(arrival(&b), &[]) }.unwrap().reject(&[]).unwrap();
    assert_eq!(y.state(), State::Unconnected);
    assert_eq!(addresses(y), [(libc::AF_UNSPEC, 0); 2]);
    // SAFETY: after this call nobody uses a reference to the service point.
    unsafe { rsp::free(point) }.unwrap();
}

/// The families of the local and the remote address that dat_ep_query reports, with their ports.
fn addresses(ep: &ep::Ep<T>) -> [(i32, u64); 2] {
    let mut param = DAT_EP_PARAM::zeroed();
    ep.query(&mut param);
    [
        (param.local_ia_address_ptr, param.local_port_qual),
        (param.remote_ia_address_ptr, param.remote_port_qual),
    ]
    // SAFETY: the pointers lead to addresses in the endpoint.
    .map(|(address, port)| (unsafe { (*address).sa_family }.into(), port))
}

#[test]
fn completions_survive_the_endpoint() {
    let (a, x, _b, _y) = connected();
    // SAFETY: the posts have no segments. Nothing is received, so the sends stay outstanding.
    unsafe {
        x.post_send(&[], 1, 0).unwrap();
        x.post_send(&[], 2, 0).unwrap();
    }
    let handle = x.handle();
    // SAFETY: after this call nobody uses a reference to the endpoint.
    unsafe { ep::free(x) }.unwrap();
    for cookie in 1..=2 {
        let completion = a.completion(a.request);
        assert_eq!((completion.ep_handle, completion.status), (handle, DAT_DTO_ERR_FLUSHED));
        // SAFETY: all members of the cookie union are integers, for which all bits are valid.
        assert_eq!(unsafe { completion.user_cookie.as_64 }, cookie);
    }
}

#[test]
fn a_reject_carries_private_data_and_frees_the_request() {
    let fabric = fabric();
    let (a, b) = (Side::new(&fabric), Side::new(&fabric));
    let (psp, x) = (listen(&b), a.ep());
    x.connect("127.0.0.1:0".parse().unwrap(), psp.qualifier(), 10_000_000, b"please", 0, 0)
        .unwrap();
    let request = arrival(&b);
    let handle = request.handle();
    let mut param = DAT_CR_PARAM::zeroed();
    request.query(&mut param);
    assert_eq!(param.private_data_size, 6);
    // SAFETY: after this call nobody uses a reference to the request.
    unsafe { cr::begin_reject(request, b"no") }.unwrap().reject(b"no").unwrap();
    // SAFETY: the handle may be stale, in which case the call returns an error.
    assert!(unsafe { dat_core::handle::get::<cr::Cr<T>>(handle) }.is_err());
    let event = a.next(a.connect);
    assert_eq!(event.event_number, DAT_CONNECTION_EVENT_PEER_REJECTED);
    // SAFETY: the number of the event says that this member of the union is valid, and the data
    // belongs to the endpoint.
    let private = unsafe {
        let data = event.event_data.connect_event_data;
        std::slice::from_raw_parts(data.private_data.cast::<u8>(), data.private_data_size as usize)
    };
    assert_eq!(private, b"no");
    assert_eq!(x.state(), State::Disconnected);
}

#[test]
fn a_reserved_endpoint_takes_one_request() {
    let fabric = fabric();
    let (a, b) = (Side::new(&fabric), Side::new(&fabric));
    let (x, second, y) = (a.ep(), a.ep(), b.ep());
    let point = rsp::create(b.ia, 4711, y, b.cr).unwrap();
    assert_eq!(y.state(), State::Reserved);
    // SAFETY: the call is refused and frees nothing.
    assert_eq!(unsafe { ep::free(y) }, Err(Error::state(DAT_INVALID_STATE_EP_RESERVED)));
    let to = "127.0.0.1:0".parse().unwrap();
    x.connect(to, 4711, 10_000_000, &[], 0, 0).unwrap();
    second.connect(to, 4711, 10_000_000, &[], 0, 0).unwrap();
    let request = arrival(&b);
    assert_eq!(y.state(), State::PassivePending);
    assert_eq!(
        // SAFETY: the call is refused and changes nothing.
        unsafe { cr::accept(request, Some(y), &[]) },
        Err(Error::handle(DAT_INVALID_HANDLE_EP))
    );
    // SAFETY: after this call nobody uses a reference to the request.
    unsafe { cr::accept(request, None, &[]) }.unwrap();
    // SAFETY: after this call nobody uses a reference to the service point.
    unsafe { rsp::free(point) }.unwrap();
    assert_eq!(b.next(b.connect).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    let mut seen = [a.next(a.connect).event_number, a.next(a.connect).event_number];
    seen.sort_unstable();
    assert_eq!(seen, [DAT_CONNECTION_EVENT_ESTABLISHED, DAT_CONNECTION_EVENT_NON_PEER_REJECTED]);
    // The service point has handled its only request, so the endpoint is freed like any connected
    // one.
    // SAFETY: after this call nobody uses a reference to the endpoint.
    unsafe { ep::free(y) }.unwrap();
}

#[test]
fn a_tentative_endpoint_is_configured_and_accepted() {
    let fabric = fabric();
    let (a, b) = (Side::new(&fabric), Side::new(&fabric));
    let psp = dat_core::conn::psp::create(
        b.ia,
        dat_core::conn::Qualifier::Any,
        b.cr,
        DAT_PSP_PROVIDER_FLAG,
    )
    .unwrap();
    let x = a.ep();
    x.connect("127.0.0.1:0".parse().unwrap(), psp.qualifier(), 10_000_000, &[], 0, 0).unwrap();
    let request = arrival(&b);
    let mut param = DAT_CR_PARAM::zeroed();
    request.query(&mut param);
    // SAFETY: the handle came with the request and is live.
    let y = unsafe { dat_core::handle::get::<ep::Ep<T>>(param.local_ep_handle) }.unwrap();
    assert_eq!(y.state(), State::UnconfiguredTentative);
    let mut given = DAT_EP_PARAM::zeroed();
    given.pz_handle = b.pz.handle();
    given.recv_evd_handle = b.recv.handle();
    given.request_evd_handle = b.request.handle();
    given.connect_evd_handle = b.connect.handle();
    let mask = DAT_EP_FIELD_PZ_HANDLE
        | DAT_EP_FIELD_RECV_EVD_HANDLE
        | DAT_EP_FIELD_REQUEST_EVD_HANDLE
        | DAT_EP_FIELD_CONNECT_EVD_HANDLE;
    // SAFETY: the handles are live.
    unsafe { y.modify(mask, &given, PinnedParams::pin(mask, &given)).unwrap() };
    // SAFETY: after this call nobody uses a reference to the request.
    unsafe { cr::accept(request, None, &[]) }.unwrap();
    assert_eq!(b.next(b.connect).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_eq!(y.state(), State::Connected);
}

#[test]
fn modify_keeps_posted_receives() {
    let fabric = fabric();
    let (a, b) = (Side::new(&fabric), Side::new(&fabric));
    let (x, y) = (a.ep(), b.ep());
    let mut buffer = [0u8; 8];
    let mr = b.register(&mut buffer);
    // SAFETY: the buffer outlives the test.
    unsafe { y.post_recv(&[mr.segment()], 77, 0).unwrap() };
    let mut param = DAT_EP_PARAM::zeroed();
    param.ep_attr.max_request_dtos = 3;
    let mask = DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS;
    // SAFETY: `param` names no handles.
    unsafe { y.modify(mask, &param, PinnedParams::pin(mask, &param)).unwrap() };
    connect(&a, x, &b, y);
    // SAFETY: the request has no segments, so no memory must stay valid.
    unsafe { x.post_send(&[], 1, 0).unwrap() };
    // SAFETY: all members of the cookie union are integers, for which all bits are valid.
    assert_eq!(unsafe { b.completion(b.recv).user_cookie.as_64 }, 77);
}

/// A dat_ep_modify that selects no parameter changes nothing, so no state forbids it.
#[test]
fn modify_of_nothing_is_always_permitted() {
    let (_a, x, _b, _) = connected();
    let param = DAT_EP_PARAM::zeroed();
    // SAFETY: `param` names no handles.
    assert_eq!(unsafe { x.modify(0, &param, PinnedParams::pin(0, &param)) }, Ok(()));
}

/// A message of the maximum length that dat_ia_query reports can be posted. One byte more is
/// refused at once.
#[test]
fn a_post_is_limited_to_the_reported_maximum() {
    let (a, x, _b, _) = connected();
    let mut buffer = [0u8; 1];
    let src = a.register(&mut buffer);
    let most = Segment { len: u32::MAX, ..src.segment() };
    // SAFETY: none of these posts is carried out.
    let post = |segments: &[Segment]| unsafe { x.post_send(segments, 1, 0) };
    assert_eq!(
        post(&[most]),
        Err(Error::arg(3)),
        "the length is legal, but the segment exceeds the region"
    );
    assert_eq!(post(&[most, src.segment()]), Err(Error::of(DAT_LENGTH_ERROR)));
}
