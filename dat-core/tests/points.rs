//! Service points of uDAPL 2.0, requests that one service point hands off to another, and CNOs with
//! a file descriptor.

mod support;

use dat_core::conn::{Qualifier, cr, csp, psp, rsp};
use dat_core::ep::state::State;
use dat_core::error::Error;
use dat_core::handle::Node;

use dat_core::{cno, evd};
use dat_sys::*;
use provider_mem::Adapter;
use support::*;

const TCP: DAT_COMM = DAT_COMM { domain: libc::AF_INET, r#type: libc::SOCK_STREAM, protocol: 0 };

fn address(port: u64) -> std::net::SocketAddr {
    format!("127.0.0.1:{port}").parse().unwrap()
}

/// Calls dat_cr_handoff.
fn hand_off(request: &Node<cr::Cr<Adapter>>, qualifier: DAT_CONN_QUAL) {
    // SAFETY: after this call nobody uses a reference to the request.
    unsafe { cr::begin_hand_off(request, qualifier) }.unwrap().hand_off(qualifier);
}

#[test]
fn a_common_service_point_is_reached_by_its_address() {
    let fabric = fabric();
    let (a, b) = (Side::new(&fabric), Side::new(&fabric));
    let (x, y) = (a.ep(), b.ep());
    let csp = csp::create(b.ia, &TCP, address(0), b.cr).unwrap();
    let mut param = DAT_CSP_PARAM { ..zeroed_csp() };
    csp.query(&mut param);
    // SAFETY: the pointer is valid as long as the service point.
    assert_eq!(unsafe { *param.comm }, TCP);
    assert_eq!(param.evd_handle, b.cr.handle());
    // SAFETY: the pointer is valid as long as the service point.
    let listens_at = unsafe { dat_core::addr::parse(param.address_ptr) }.unwrap();
    assert_eq!(listens_at, address(csp.qualifier()));

    x.common_connect(listens_at, 10_000_000, b"hello").unwrap();
    let event = b.next(b.cr);
    // SAFETY: this is a connection request, as `arrival` asserts below.
    let request = unsafe { event.event_data.cr_arrival_event_data };
    // SAFETY: all members of the union are the same word.
    assert_eq!(unsafe { request.sp_handle.csp_handle }, csp.handle());
    assert_eq!(request.conn_qual, csp.qualifier());
    // SAFETY: the handle is live until the request is answered.
    let request = unsafe { dat_core::handle::get(request.cr_handle) }.unwrap();
    // SAFETY: after this call nobody uses a reference to the request.
    unsafe { cr::accept(request, Some(y), b"") }.unwrap();
    assert_eq!(a.next(a.connect).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    // SAFETY: after this call nobody uses a reference to the service point.
    unsafe { csp::free(csp) }.unwrap();
}

fn zeroed_csp() -> DAT_CSP_PARAM {
    DAT_CSP_PARAM {
        ia_handle: std::ptr::null_mut(),
        comm: std::ptr::null_mut(),
        address_ptr: std::ptr::null_mut(),
        evd_handle: std::ptr::null_mut(),
    }
}

#[test]
fn arguments_of_a_common_service_point_are_checked() {
    let fabric = fabric();
    let a = Side::new(&fabric);
    let refusal = |comm: DAT_COMM, to: &str| {
        csp::create(a.ia, &comm, to.parse().unwrap(), a.cr).err().unwrap()
    };
    let odd = Error::of(DAT_COMM_NOT_SUPPORTED);
    assert_eq!(refusal(DAT_COMM { r#type: libc::SOCK_DGRAM, ..TCP }, "127.0.0.1:0"), odd);
    assert_eq!(refusal(DAT_COMM { protocol: libc::IPPROTO_UDP, ..TCP }, "127.0.0.1:0"), odd);
    assert_eq!(refusal(TCP, "[::1]:0"), odd);
    assert_eq!(refusal(TCP, "203.0.113.7:0").kind(), DAT_INVALID_ADDRESS);
    let not_for_requests = csp::create(a.ia, &TCP, address(0), a.connect).err();
    assert_eq!(not_for_requests, Some(Error::handle(DAT_INVALID_HANDLE_EVD_CR)));
    let first = csp::create(a.ia, &TCP, address(0), a.cr).unwrap();
    let again = csp::create(a.ia, &TCP, address(first.qualifier()), a.cr).err();
    assert_eq!(again, Some(Error::of(DAT_PORT_IN_USE)));

    // The service point accepts only requests to its own address, which differs from the adapter's
    // address.
    let port = first.qualifier();
    // SAFETY: after this call nobody uses a reference to the service point.
    unsafe { csp::free(first) }.unwrap();
    csp::create(a.ia, &TCP, format!("127.0.0.2:{port}").parse().unwrap(), a.cr).unwrap();
    let b = Side::new(&fabric);
    let ep = b.ep();
    ep.common_connect(address(port), 10_000_000, b"").unwrap();
    assert_eq!(b.next(b.connect).event_number, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);

    // The errors name other argument positions than in dat_ep_connect.
    let ep = b.ep();
    assert_eq!(ep.common_connect(address(port), 1, &[0; 1 << 16]), Err(Error::arg(4)));
    assert_eq!(ep.common_connect(address(0), 1, b"").unwrap_err().kind(), DAT_INVALID_ADDRESS);
    assert_eq!(
        ep.dup_connect(a.ep().dup_source(), 1, b"", DAT_QOS_BEST_EFFORT).unwrap_err().kind(),
        DAT_INVALID_STATE
    );
}

#[test]
fn a_request_is_handed_off_to_another_service_point() {
    let fabric = fabric();
    let (a, b) = (Side::new(&fabric), Side::new(&fabric));
    let front = psp::create(b.ia, Qualifier::Any, b.cr, DAT_PSP_CONSUMER_FLAG).unwrap();
    let second_desk = evd::create(b.ia, 4, None, DAT_EVD_CR_FLAG).unwrap();
    let back = psp::create(b.ia, Qualifier::Any, second_desk, DAT_PSP_CONSUMER_FLAG).unwrap();
    let (x, y) = (a.ep(), b.ep());
    x.connect(address(0), front.qualifier(), 10_000_000, b"hello", DAT_QOS_BEST_EFFORT, 0).unwrap();
    let request = arrival(&b);
    let stale = request.handle();
    // SAFETY: the call is refused and changes nothing.
    assert_eq!(unsafe { cr::begin_hand_off(request, 0) }.err(), Some(Error::arg(2)));
    hand_off(request, back.qualifier());
    // SAFETY: the function accepts any word as a handle.
    let found = unsafe { dat_core::handle::get::<cr::Cr<T>>(stale) };
    assert!(found.is_err(), "the handle must be dead");

    let event = b.next(second_desk);
    // SAFETY: the number of the event says that this member of the union is valid.
    let data = unsafe { event.event_data.cr_arrival_event_data };
    assert_eq!(
        (event.event_number, data.conn_qual),
        (DAT_CONNECTION_REQUEST_EVENT, back.qualifier())
    );
    // SAFETY: the handle is live until the request is answered.
    let request = unsafe { dat_core::handle::get::<cr::Cr<T>>(data.cr_handle) }.unwrap();
    let mut param = DAT_CR_PARAM::zeroed();
    request.query(&mut param);
    // SAFETY: the private data belongs to the request.
    let private = unsafe { std::slice::from_raw_parts(param.private_data.cast::<u8>(), 5) };
    assert_eq!((param.private_data_size, private), (5, &b"hello"[..]));
    // SAFETY: after this call nobody uses a reference to the request.
    unsafe { cr::accept(request, Some(y), b"") }.unwrap();
    assert_eq!(a.next(a.connect).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_eq!(b.next(b.connect).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
}

#[test]
fn a_request_for_a_reserved_endpoint_is_handed_off_and_back() {
    let fabric = fabric();
    let (a, b) = (Side::new(&fabric), Side::new(&fabric));
    let front = psp::create(b.ia, Qualifier::Any, b.cr, DAT_PSP_CONSUMER_FLAG).unwrap();
    let (x, y) = (a.ep(), b.ep());
    let reserved = rsp::create(b.ia, front.qualifier() + 1, y, b.cr).unwrap();
    x.connect(address(0), front.qualifier(), 10_000_000, b"", DAT_QOS_BEST_EFFORT, 0).unwrap();
    // SAFETY: `hand_off` is the last use of the request.
    hand_off(arrival(&b), reserved.qualifier());
    assert_eq!(y.state(), State::PassivePending);
    // The request is handed off to the first service point, so the endpoint that was reserved for
    // it becomes unconnected again.
    // SAFETY: after this call nobody uses a reference to the request.
    hand_off(arrival(&b), front.qualifier());
    assert_eq!(y.state(), State::Unconnected);
    // SAFETY: after this call nobody uses a reference to the request.
    unsafe { cr::accept(arrival(&b), Some(y), b"") }.unwrap();
    assert_eq!(a.next(a.connect).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
}

#[test]
fn a_request_handed_off_to_no_service_point_is_a_non_peer_reject() {
    let fabric = fabric();
    let (a, b) = (Side::new(&fabric), Side::new(&fabric));
    let front = psp::create(b.ia, Qualifier::Any, b.cr, DAT_PSP_CONSUMER_FLAG).unwrap();
    let x = a.ep();
    x.connect(address(0), front.qualifier(), 10_000_000, b"", DAT_QOS_BEST_EFFORT, 0).unwrap();
    // SAFETY: after this call nobody uses a reference to the request.
    hand_off(arrival(&b), 0xffff_ffff);
    assert_eq!(a.next(a.connect).event_number, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
}

/// Nobody can answer a request whose event is lost with its EVD (uDAPL 1.2, dat_evd_free), so the
/// peer is refused, and nothing of the request stays.
#[test]
fn a_request_that_waits_in_a_freed_evd_is_refused() {
    for flags in [DAT_PSP_CONSUMER_FLAG, DAT_PSP_PROVIDER_FLAG] {
        let fabric = fabric();
        let (a, b) = (Side::new(&fabric), Side::new(&fabric));
        let desk = evd::create(b.ia, 4, None, DAT_EVD_CR_FLAG).unwrap();
        let objects = b.ia.object_count();
        let point = psp::create(b.ia, Qualifier::Any, desk, flags).unwrap();
        let x = a.ep();
        let to = point.qualifier();
        x.connect(address(0), to, 10_000_000, b"", DAT_QOS_BEST_EFFORT, 0).unwrap();
        // SAFETY: after these calls nobody uses a reference to the objects.
        unsafe {
            psp::free(point).unwrap();
            evd::free(desk).unwrap();
        }
        assert_eq!(a.next(a.connect).event_number, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
        assert_eq!(b.ia.object_count(), objects - 1);
    }
}

#[test]
fn no_service_point_has_the_qualifier_0() {
    let side = Side::new(&fabric());
    let refused = Some(Error::arg(2));
    let point = psp::create(side.ia, Qualifier::Exactly(0), side.cr, DAT_PSP_CONSUMER_FLAG);
    assert_eq!(point.err(), refused);
    let ep = side.ep();
    assert_eq!(rsp::create(side.ia, 0, ep, side.cr).err(), refused);
    assert_eq!(ep.state(), State::Unconnected);
}

/// Whether poll(2) reports at this moment that the file descriptor is readable.
fn readable(fd: DAT_FD) -> bool {
    let mut fd = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: the array has one element and outlives the call.
    unsafe { libc::poll(&mut fd, 1, 0) == 1 && fd.revents == libc::POLLIN }
}

#[test]
fn a_file_descriptor_is_readable_while_there_are_triggers() {
    let ia = open(&fabric());
    let (cno, fd) = cno::create_with_fd(ia).unwrap();
    assert_eq!(cno.fd(), Some(fd));
    let soft = || evd::create(ia, 4, Some(cno), DAT_EVD_SOFTWARE_FLAG).unwrap();
    let (first, second) = (soft(), soft());
    let event = DAT_EVENT { event_number: DAT_SOFTWARE_EVENT, ..DAT_EVENT::zeroed() };
    assert!(!readable(fd));
    assert_eq!(cno.wait(0), Err(Error::of(DAT_QUEUE_EMPTY)));

    first.post_software(&event).unwrap();
    second.post_software(&event).unwrap();
    assert!(readable(fd));
    assert_eq!(cno.wait(0), Ok(first.handle()));
    assert!(readable(fd), "the other EVD must also have triggered the CNO");
    assert_eq!(cno.wait(0), Ok(second.handle()));
    assert!(!readable(fd));

    // If the consumer empties an EVD without having been notified, the trigger of the EVD is
    // withdrawn.
    first.post_software(&event).unwrap();
    // SAFETY: only this thread takes events from the EVD.
    while unsafe { first.dequeue() }.is_ok() {}
    assert!(!readable(fd));

    // The file descriptor belongs to the CNO and is closed together with the CNO.
    for evd in [first, second] {
        // SAFETY: after this call nobody uses a reference to the EVD.
        unsafe { evd::free(evd) }.unwrap();
    }
    // SAFETY: after this call nobody uses a reference to the CNO.
    unsafe { cno::free(cno) }.unwrap();
    // SAFETY: the call only checks whether the descriptor is open.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, -1);
}

/// A timeout must be positive (uDAPL 1.2, dat_ep_connect).
#[test]
fn a_timeout_of_0_is_refused() {
    let side = Side::new(&fabric());
    let ep = side.ep();
    let called = ep.connect(address(0), 9, 0, b"", DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG);
    assert_eq!(called, Err(Error::arg(4)));
}
