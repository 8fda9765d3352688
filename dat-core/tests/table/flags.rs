//! Tests of completion flags: which endpoints may share an EVD, and which completions trigger its
//! CNO.

use std::ptr::{null, null_mut};

use dat_core::Error;
use dat_sys::*;

use crate::client::*;

const PLAIN: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;
const THRESHOLD: DAT_COMPLETION_FLAGS = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
const UNSIGNALLED: DAT_COMPLETION_FLAGS = DAT_COMPLETION_UNSIGNALLED_FLAG;
const SOLICITED: DAT_COMPLETION_FLAGS = DAT_COMPLETION_SOLICITED_WAIT_FLAG;

/// The flags for receives and for requests, and the EVDs for receives and for requests.
type StreamFlags = (DAT_COMPLETION_FLAGS, DAT_COMPLETION_FLAGS, DAT_EVD_HANDLE, DAT_EVD_HANDLE);

fn attributes(
    side: &Side,
    recv: DAT_COMPLETION_FLAGS,
    request: DAT_COMPLETION_FLAGS,
) -> DAT_EP_ATTR {
    let (ep, mut param) = (side.new_ep(), DAT_EP_PARAM::zeroed());
    dat!(side.table, ep_query_func(ep, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    dat!(side.table, ep_free_func(ep)).unwrap();
    DAT_EP_ATTR { recv_completion_flags: recv, request_completion_flags: request, ..param.ep_attr }
}

fn create(
    side: &Side,
    (recv, request, recv_evd, request_evd): StreamFlags,
) -> Result<DAT_EP_HANDLE, Error> {
    let attr = attributes(side, recv, request);
    let Side { table, ia, pz, evd, .. } = *side;
    let mut ep = null_mut();
    dat!(table, ep_create_func(ia, pz, recv_evd, request_evd, evd, &attr, &mut ep)).map(|()| ep)
}

fn config(side: &Side, evd: DAT_EVD_HANDLE) -> DAT_EVD_STATE {
    let mut param = DAT_EVD_PARAM::zeroed();
    dat!(side.table, evd_query_func(evd, DAT_EVD_FIELD_EVD_STATE, &mut param)).unwrap();
    param.evd_state & DAT_EVD_STATE_CONFIG_THRESHOLD
}

fn wait(side: &Side, evd: DAT_EVD_HANDLE, threshold: DAT_COUNT) -> Result<DAT_COUNT, Error> {
    let (mut event, mut more) = (DAT_EVENT::zeroed(), -1);
    dat!(side.table, evd_wait_func(evd, 0, threshold, &mut event, &mut more)).map(|()| more)
}

/// The flags of all completion streams of an EVD must match (uDAPL 1.2, dat_ep_create). Intel MPI
/// and MVAPICH2 need the exception that unsignalled requests may share an EVD with receives of
/// default flags. A strict adapter makes no exception.
#[test]
fn flags_of_streams_on_one_evd_must_match() {
    for ((table, name), strict) in [(mem(false), false), (strict_mem(), true)] {
        let side = Side::new(table, &name);
        let none = null_mut();
        for first in [PLAIN, THRESHOLD, UNSIGNALLED, SOLICITED] {
            let shared = side.new_evd(DAT_EVD_DTO_FLAG);
            let ep = create(&side, (first, PLAIN, shared, none)).unwrap();
            for second in [PLAIN, THRESHOLD, UNSIGNALLED, SOLICITED] {
                let refused_unless =
                    |matches: bool| if matches { Ok(()) } else { Err(Error::arg(6)) };
                let receives = create(&side, (second, PLAIN, shared, none));
                let expected = refused_unless(first == second);
                assert_eq!(receives.map(free(&side)), expected, "{first:#x} and {second:#x}");
                if second != SOLICITED {
                    let of_mpi = (first, second) == (PLAIN, UNSIGNALLED) && !strict;
                    let matches = first == second || of_mpi;
                    let expected = refused_unless(matches);
                    let requests = create(&side, (PLAIN, second, none, shared));
                    assert_eq!(
                        requests.map(free(&side)),
                        expected,
                        "{first:#x} and requests of {second:#x}, strict: {strict}"
                    );
                    // Let both streams of one endpoint use the same EVD.
                    let other = side.new_evd(DAT_EVD_DTO_FLAG);
                    let both = create(&side, (first, second, other, other)).map(free(&side));
                    assert_eq!(both, expected, "{first:#x} and {second:#x} of one endpoint");
                    dat!(table, evd_free_func(other)).expect("the EVD must be unused");
                }
            }
            dat!(table, ep_free_func(ep)).unwrap();
        }
        // Requests with other flags may not follow unsignalled requests, on whichever EVD.
        let evd = side.new_evd(DAT_EVD_DTO_FLAG);
        create(&side, (PLAIN, UNSIGNALLED, none, evd)).unwrap();
        for flags in [PLAIN, THRESHOLD] {
            let requests = create(&side, (PLAIN, flags, none, evd)).map(drop);
            assert_eq!(requests, Err(Error::arg(6)), "{flags:#x}");
        }
        let receives = create(&side, (PLAIN, PLAIN, evd, none)).map(drop);
        assert_eq!(receives, if strict { Err(Error::arg(6)) } else { Ok(()) });
        side.close();
    }
}

/// Returns a function that frees an endpoint.
fn free(side: &Side) -> impl Fn(DAT_EP_HANDLE) + use<> {
    let table = side.table;
    move |ep| dat!(table, ep_free_func(ep)).unwrap()
}

#[test]
fn an_evd_reports_its_configuration_until_the_last_endpoint_is_freed() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let evd = side.new_evd(DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG);
    let none = null_mut();
    let wrong = |subtype| Err(Error::state(subtype));
    for (flags, expected, two) in [
        (PLAIN, DAT_EVD_STATE_CONFIG_THRESHOLD, Err(Error::of(DAT_TIMEOUT_EXPIRED))),
        (THRESHOLD, DAT_EVD_STATE_CONFIG_THRESHOLD, Err(Error::of(DAT_TIMEOUT_EXPIRED))),
        (UNSIGNALLED, DAT_EVD_STATE_CONFIG_NOTIFY, wrong(DAT_INVALID_STATE_EVD_CONFIG_NOTIFY)),
        (SOLICITED, DAT_EVD_STATE_CONFIG_SOLICITED, wrong(DAT_INVALID_STATE_EVD_CONFIG_SOLICITED)),
    ] {
        let eps = [(); 2].map(|()| create(&side, (flags, PLAIN, evd, none)).unwrap());
        for ep in eps {
            assert_eq!(config(&side, evd), expected);
            // The threshold must be 1 if the consumer controls the notification (uDAPL 1.2,
            // dat_evd_wait).
            assert_eq!(wait(&side, evd, 2), two);
            assert_eq!(wait(&side, evd, 1), Err(Error::of(DAT_TIMEOUT_EXPIRED)));
            dat!(table, ep_free_func(ep)).unwrap();
        }
        assert_eq!(config(&side, evd), DAT_EVD_STATE_CONFIG_THRESHOLD);
    }
    side.close();
}

/// If an EVD also takes events that are not completions, its completion streams may only notify by
/// threshold (uDAPL 1.2, dat_ep_create).
#[test]
fn an_evd_with_other_streams_takes_only_thresholds() {
    for ((table, name), strict) in [(mem(false), false), (strict_mem(), true)] {
        let side = Side::new(table, &name);
        let none = null_mut();
        for other in [
            DAT_EVD_SOFTWARE_FLAG,
            DAT_EVD_CR_FLAG,
            DAT_EVD_CONNECTION_FLAG,
            DAT_EVD_ASYNC_FLAG,
            DAT_EVD_SOFTWARE_FLAG | DAT_EVD_CONNECTION_FLAG,
        ] {
            let evd = side.new_evd(DAT_EVD_DTO_FLAG | other);
            let ep = create(&side, (THRESHOLD, THRESHOLD, evd, evd)).unwrap();
            dat!(table, ep_free_func(ep)).unwrap();
            let refused = Err(Error::arg(6));
            for flags in [UNSIGNALLED, SOLICITED] {
                assert_eq!(create(&side, (flags, PLAIN, evd, none)), refused);
            }
            assert_eq!(create(&side, (PLAIN, PLAIN, none, evd)), refused);
            // Intel MPI needs unsignalled requests and default receives beside software events.
            let beside_software = other == DAT_EVD_SOFTWARE_FLAG && !strict;
            let of_mpi = if beside_software { Ok(()) } else { Err(Error::arg(6)) };
            for (recv, request) in [(evd, none), (none, evd), (evd, evd)] {
                let both = create(&side, (PLAIN, UNSIGNALLED, recv, request)).map(free(&side));
                assert_eq!(both, of_mpi, "{other:#x}");
            }
        }
        let (srq, mut ep) = (side.new_srq(4), null_mut());
        let attr = attributes(&side, SOLICITED, PLAIN);
        let Side { ia, pz, evd, .. } = side;
        let on_srq =
            dat!(table, ep_create_with_srq_func(ia, pz, evd, evd, evd, srq, &attr, &mut ep));
        assert_eq!(on_srq, Err(Error::arg(7)));
        side.close();
    }
}

/// Without attributes, each stream of an endpoint has the threshold flag if its EVD also takes
/// other events, and otherwise the default flag, with which it can share the EVD with endpoints
/// whose attributes are 0.
#[test]
fn flags_that_the_consumer_does_not_set_fit_the_evds() {
    for (table, name) in [mem(false), strict_mem()] {
        let side = Side::new(table, &name);
        let Side { ia, pz, evd: connect, .. } = side;
        let none = null_mut();
        let own = side.new_evd(DAT_EVD_DTO_FLAG);
        let binds = side.new_evd(DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG);
        let mixed = side.new_evd(DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG);
        let of = |evd| if evd == mixed { THRESHOLD } else { PLAIN };
        let flags = |ep| {
            let mut param = DAT_EP_PARAM::zeroed();
            dat!(table, ep_query_func(ep, DAT_EP_FIELD_ALL, &mut param)).unwrap();
            (param.ep_attr.recv_completion_flags, param.ep_attr.request_completion_flags)
        };
        let without_attributes = |recv, request| {
            let mut ep = null_mut();
            dat!(table, ep_create_func(ia, pz, recv, request, connect, null(), &mut ep)).unwrap();
            ep
        };
        create(&side, (PLAIN, PLAIN, own, binds)).unwrap();
        create(&side, (THRESHOLD, THRESHOLD, mixed, mixed)).unwrap();
        for recv in [none, own, binds, mixed] {
            for request in [none, own, binds, mixed] {
                let ep = without_attributes(recv, request);
                assert_eq!(flags(ep), (of(recv), of(request)));
                dat!(table, ep_free_func(ep)).unwrap();
            }
        }

        // As long as the consumer does not set the flags, they follow the EVDs.
        let ep = without_attributes(own, own);
        let modify = |mask, value, evd| {
            let mut param = DAT_EP_PARAM::zeroed();
            param.ep_attr.recv_completion_flags = value;
            (param.recv_evd_handle, param.request_evd_handle) = (evd, evd);
            dat!(table, ep_modify_func(ep, mask, &param))
        };
        let (recv, request) = (DAT_EP_FIELD_RECV_EVD_HANDLE, DAT_EP_FIELD_REQUEST_EVD_HANDLE);
        let recv_flags = DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS;
        modify(recv, 0, mixed).unwrap();
        assert_eq!(flags(ep), (THRESHOLD, PLAIN));
        modify(request, 0, mixed).unwrap();
        assert_eq!(flags(ep), (THRESHOLD, THRESHOLD));
        // A refused call sets no flags.
        assert_eq!(modify(recv_flags, UNSIGNALLED, none), Err(Error::arg(3)));
        modify(recv | request, 0, own).unwrap();
        assert_eq!(flags(ep), (PLAIN, PLAIN));
        modify(recv_flags, PLAIN, none).unwrap();
        assert_eq!(modify(recv, 0, mixed), Err(Error::arg(3)));
        assert_eq!(flags(ep), (PLAIN, PLAIN));
        modify(request, 0, mixed).unwrap();
        assert_eq!(flags(ep), (PLAIN, THRESHOLD));
        side.close();
    }
}

#[test]
fn modified_flags_must_match_those_of_the_evd() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let (shared, other) = (side.new_evd(DAT_EVD_DTO_FLAG), side.new_evd(DAT_EVD_DTO_FLAG));
    let ep = create(&side, (UNSIGNALLED, PLAIN, shared, null_mut())).unwrap();
    let second = create(&side, (UNSIGNALLED, PLAIN, shared, null_mut())).unwrap();
    let modify = |ep, mask, flags, evd| {
        let mut param = DAT_EP_PARAM::zeroed();
        (param.ep_attr.recv_completion_flags, param.recv_evd_handle) = (flags, evd);
        param.request_evd_handle = evd;
        dat!(table, ep_modify_func(ep, mask, &param))
    };
    let (flags, recv, request) = (
        DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS,
        DAT_EP_FIELD_RECV_EVD_HANDLE,
        DAT_EP_FIELD_REQUEST_EVD_HANDLE,
    );
    let refused = Err(Error::arg(3));
    assert_eq!(modify(ep, flags, SOLICITED, shared), refused);
    assert_eq!(
        modify(ep, request, PLAIN, shared),
        refused,
        "plain requests must not share an EVD with unsignalled receives"
    );
    // After a refused call the EVD is unchanged.
    assert_eq!(config(&side, shared), DAT_EVD_STATE_CONFIG_NOTIFY);
    assert_eq!(dat!(table, evd_free_func(shared)), Err(Error::state(DAT_INVALID_STATE_EVD_IN_USE)));
    assert_eq!(modify(ep, flags | recv, SOLICITED, other), Ok(()));
    assert_eq!(config(&side, other), DAT_EVD_STATE_CONFIG_SOLICITED);
    // If an endpoint is the only one on its EVD, its flags may be changed.
    assert_eq!(modify(second, flags, THRESHOLD, shared), Ok(()));
    assert_eq!(config(&side, shared), DAT_EVD_STATE_CONFIG_THRESHOLD);

    // The completion flags of receives can only be changed before receives are posted (uDAPL 1.2,
    // dat_ep_modify).
    dat!(table, ep_post_recv_func(ep, 0, null_mut(), cookie(1), 0)).unwrap();
    let late = Err(Error::state(DAT_INVALID_STATE_EP_UNCONNECTED));
    assert_eq!(modify(ep, flags, UNSIGNALLED, other), late);
    let mut param = DAT_EP_PARAM::zeroed();
    dat!(table, ep_query_func(ep, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    assert_eq!((param.ep_attr.recv_completion_flags, param.recv_evd_handle), (SOLICITED, other));
    side.close();
}

/// Two connected endpoints. The second one is created with the completion flags that the test
/// passes, and each of its EVDs has a CNO.
struct Pair {
    a: Side,
    x: DAT_EP_HANDLE,
    b: Side,
    y: DAT_EP_HANDLE,
    recv: (DAT_EVD_HANDLE, DAT_CNO_HANDLE),
    request: (DAT_EVD_HANDLE, DAT_CNO_HANDLE),
}

impl Pair {
    fn new(recv_flags: DAT_COMPLETION_FLAGS, request_flags: DAT_COMPLETION_FLAGS) -> Pair {
        Pair::on(recv_flags, request_flags, false)
    }

    /// Creates a pair. If `shared` is true, both streams of the second endpoint use one EVD.
    fn on(
        recv_flags: DAT_COMPLETION_FLAGS,
        request_flags: DAT_COMPLETION_FLAGS,
        shared: bool,
    ) -> Pair {
        let (table, name) = mem(false);
        let (a, b) = (Side::new(table, &name), Side::new(table, &name));
        let watched = |side: &Side| {
            let (evd, cno) = (side.new_evd(DAT_EVD_DTO_FLAG), side.new_cno());
            dat!(table, evd_modify_cno_func(evd, cno)).unwrap();
            (evd, cno)
        };
        let recv = watched(&b);
        let request = if shared { recv } else { watched(&b) };
        let y = create(&b, (recv_flags, request_flags, recv.0, request.0)).unwrap();
        let x = a.new_ep();
        let (_, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
        a.connect(x, qualifier, b"");
        dat!(table, cr_accept_func(b.arrival(), y, 0, null_mut())).unwrap();
        assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
        assert_eq!(b.next(b.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
        Pair { a, x, b, y, recv, request }
    }

    fn send(
        &self,
        (side, ep): (&Side, DAT_EP_HANDLE),
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<(), Error> {
        dat!(side.table, ep_post_send_func(ep, 0, null_mut(), cookie(0), flags))
    }

    fn recv(
        &self,
        (side, ep): (&Side, DAT_EP_HANDLE),
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<(), Error> {
        dat!(side.table, ep_post_recv_func(ep, 0, null_mut(), cookie(0), flags))
    }

    fn triggered(&self, cno: DAT_CNO_HANDLE) -> bool {
        let mut evd = null_mut();
        dat!(self.b.table, cno_wait_func(cno, 0, &mut evd)).is_ok()
    }

    /// Takes all events of the EVD. Returns their number.
    fn drain(&self, evd: DAT_EVD_HANDLE) -> usize {
        let mut event = DAT_EVENT::zeroed();
        (0..).take_while(|_| dat!(self.b.table, evd_dequeue_func(evd, &mut event)).is_ok()).count()
    }

    fn close(self) {
        self.a.close();
        self.b.close();
    }
}

#[test]
fn unsignalled_completions_are_queued_and_wake_nobody() {
    let p = Pair::new(UNSIGNALLED, UNSIGNALLED);
    let (x, y) = ((&p.a, p.x), (&p.b, p.y));
    for _ in 0..8 {
        p.recv(x, 0).unwrap();
    }
    // First, test completions of requests.
    p.drain(p.request.0);
    p.send(y, UNSIGNALLED).unwrap();
    assert!(!p.triggered(p.request.1));
    p.send(y, 0).unwrap();
    assert!(p.triggered(p.request.1));
    assert_eq!(p.drain(p.request.0), 2);

    // Then test completions of receives. The sender's solicited flag has no effect on them.
    p.drain(p.recv.0);
    p.recv(y, UNSIGNALLED).unwrap();
    p.send(x, SOLICITED).unwrap();
    assert!(!p.triggered(p.recv.1));
    p.recv(y, 0).unwrap();
    p.send(x, 0).unwrap();
    assert!(p.triggered(p.recv.1));
    assert_eq!(p.drain(p.recv.0), 2);

    // The completion of a failed receive always notifies.
    p.recv(y, UNSIGNALLED).unwrap();
    dat!(p.b.table, ep_disconnect_func(p.y, DAT_CLOSE_ABRUPT_FLAG)).unwrap();
    assert!(p.triggered(p.recv.1));
    p.close();
}

#[test]
fn a_solicited_wait_ends_when_the_sender_says_so() {
    let p = Pair::new(SOLICITED, PLAIN);
    let (x, y) = ((&p.a, p.x), (&p.b, p.y));
    for _ in 0..2 {
        p.recv(y, 0).unwrap();
    }
    p.drain(p.recv.0);
    p.send(x, 0).unwrap();
    assert!(!p.triggered(p.recv.1));
    p.send(x, SOLICITED).unwrap();
    assert!(p.triggered(p.recv.1));
    assert_eq!(p.drain(p.recv.0), 2);
    p.close();
}

#[test]
fn undefined_flags_of_an_endpoint_are_refused() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let (recv, request) = (side.new_evd(DAT_EVD_DTO_FLAG), side.new_evd(DAT_EVD_DTO_FLAG));
    let (suppress, fence) = (DAT_COMPLETION_SUPPRESS_FLAG, DAT_COMPLETION_BARRIER_FENCE_FLAG);
    for flags in [suppress, fence, SOLICITED | fence, UNSIGNALLED | suppress, 0x40] {
        for wish in [(flags, PLAIN, recv, null_mut()), (PLAIN, flags, null_mut(), request)] {
            assert_eq!(create(&side, wish), Err(Error::arg(6)), "{flags:#x}");
        }
    }
    assert_eq!(create(&side, (PLAIN, SOLICITED, null_mut(), request)), Err(Error::arg(6)));
    side.close();
}

#[test]
fn flags_of_a_post_are_those_of_its_endpoint() {
    let p = Pair::new(PLAIN, THRESHOLD);
    let (x, y) = ((&p.a, p.x), (&p.b, p.y));
    for flags in [UNSIGNALLED, DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG, 0x40] {
        assert_eq!(p.send(y, flags), Err(Error::arg(5)), "{flags:#x}");
    }
    // A receive cannot have any of these flags (uDAPL 1.2, dat_ep_modify).
    let fence = DAT_COMPLETION_BARRIER_FENCE_FLAG;
    for flags in [UNSIGNALLED, DAT_COMPLETION_SUPPRESS_FLAG, fence, SOLICITED, 0x40] {
        assert_eq!(p.recv(y, flags), Err(Error::arg(5)), "{flags:#x}");
    }
    for flags in [DAT_COMPLETION_SUPPRESS_FLAG, SOLICITED, fence] {
        p.recv(x, 0).unwrap();
        assert_eq!(p.send(y, flags), Ok(()), "{flags:#x}");
    }
    assert_eq!(p.drain(p.request.0), 2, "the suppressed completion must not be reported");

    let mut buffer = [0u8; 8];
    let lmr = p.b.register(&mut buffer);
    // Only a send can be solicited (uDAPL 1.2, dat_ep_post_rdma_write and dat_ep_post_rdma_read).
    let (mut local, remote) = (lmr.local(0, 8), lmr.remote(0, 8));
    let refused = Err(Error::arg(6));
    let (table, y, id) = (p.b.table, p.y, cookie(6));
    let write = dat!(table, ep_post_rdma_write_func(y, 1, &mut local, id, &remote, SOLICITED));
    let read = dat!(table, ep_post_rdma_read_func(y, 1, &mut local, id, &remote, SOLICITED));
    assert_eq!((write, read), (refused, refused));
    // The library reports a failure even if the completion is suppressed.
    let nowhere = DAT_RMR_TRIPLET { rmr_context: 0, ..lmr.remote(0, 8) };
    let (mut from, quiet) = (lmr.local(0, 8), DAT_COMPLETION_SUPPRESS_FLAG);
    dat!(p.b.table, ep_post_rdma_write_func(p.y, 1, &mut from, cookie(7), &nowhere, quiet))
        .unwrap();
    let event = p.b.next(p.request.0);
    // SAFETY: the EVD takes only completions.
    let data = unsafe { event.event_data.dto_completion_event_data };
    assert_eq!(data.status, DAT_DTO_ERR_REMOTE_ACCESS);
    p.close();
}

/// Two streams on one EVD. The flags of a completion's own stream decide whether the completion
/// notifies.
#[test]
fn on_a_shared_evd_each_stream_keeps_its_own_flags() {
    // Every receive notifies. A request notifies if it is posted signalled.
    let p = Pair::on(PLAIN, UNSIGNALLED, true);
    let (x, y) = ((&p.a, p.x), (&p.b, p.y));
    let (evd, cno) = p.recv;
    for _ in 0..4 {
        p.recv(x, 0).unwrap();
        p.recv(y, 0).unwrap();
    }
    p.drain(evd);
    p.send(y, UNSIGNALLED).unwrap();
    assert!(!p.triggered(cno), "an unsignalled request must not trigger the CNO");
    p.send(x, 0).unwrap();
    assert!(p.triggered(cno), "a receive of a stream with the default flag must trigger the CNO");
    assert_eq!(p.drain(evd), 2);
    p.send(y, 0).unwrap();
    assert!(p.triggered(cno), "a request that was posted signalled must trigger the CNO");
    assert_eq!(p.drain(evd), 1);
    p.close();
}
