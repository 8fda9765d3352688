//! Tests of remote memory regions: how they are bound, what peers may then do, and other uses of
//! their contexts.

use std::ptr::{null, null_mut};

use dat_core::Error;
use dat_sys::*;

use crate::client::*;

const PEERS: DAT_MEM_PRIV_FLAGS = DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG;

fn rmr(side: &Side) -> DAT_RMR_HANDLE {
    let mut rmr = null_mut();
    dat!(side.table, rmr_create_func(side.pz, &mut rmr)).unwrap();
    rmr
}

/// The arguments of dat_rmr_bind that the tests vary.
#[derive(Clone, Copy)]
struct Bind {
    rmr: DAT_RMR_HANDLE,
    lmr: DAT_LMR_HANDLE,
    to: DAT_LMR_TRIPLET,
    privileges: DAT_MEM_PRIV_FLAGS,
    va_type: DAT_VA_TYPE,
    ep: DAT_EP_HANDLE,
    flags: DAT_COMPLETION_FLAGS,
}

impl Bind {
    fn new(rmr: DAT_RMR_HANDLE, ep: DAT_EP_HANDLE, lmr: &Lmr, to: DAT_LMR_TRIPLET) -> Self {
        Bind { rmr, lmr: lmr.handle, to, privileges: PEERS, va_type: DAT_VA_TYPE_VA, ep, flags: 0 }
    }

    fn none(rmr: DAT_RMR_HANDLE, ep: DAT_EP_HANDLE) -> Self {
        Bind::new(rmr, ep, &Lmr::default(), DAT_LMR_TRIPLET::zeroed())
    }

    fn post(&self, side: &Side, value: u64) -> Result<DAT_RMR_CONTEXT, Error> {
        let &Bind { rmr, lmr, to, privileges, va_type, ep, flags } = self;
        let mut context = 77;
        dat!(
            side.table,
            rmr_bind_func(
                rmr,
                lmr,
                &to,
                privileges,
                va_type,
                ep,
                cookie(value),
                flags,
                &mut context
            )
        )
        .map(|()| context)
    }

    /// Posts the bind and waits for its event.
    fn post_and_wait(&self, side: &Side) -> DAT_RMR_CONTEXT {
        let context = self.post(side, 5).unwrap();
        assert_eq!(next_bind(side), (self.rmr, 5, DAT_RMR_BIND_SUCCESS));
        context
    }
}

/// Takes the next event, which must be the completion of a bind. Returns the RMR, the cookie and
/// the status.
fn next_bind(side: &Side) -> (DAT_RMR_HANDLE, u64, DAT_RMR_BIND_COMPLETION_STATUS) {
    let event = side.next(side.evd);
    assert_eq!(event.event_number, DAT_RMR_BIND_COMPLETION_EVENT);
    // SAFETY: the number of the event says that this member of the union is valid, and an integer
    // may have any bits.
    unsafe {
        let data = event.event_data.rmr_completion_event_data;
        (data.rmr_handle, data.user_cookie.as_64, data.status)
    }
}

fn query(side: &Side, rmr: DAT_RMR_HANDLE) -> DAT_RMR_PARAM {
    let mut param = DAT_RMR_PARAM::zeroed();
    dat!(side.table, rmr_query_func(rmr, DAT_RMR_FIELD_ALL, &mut param)).unwrap();
    param
}

/// The address, length and context of an RMR's segment.
fn triplet(shown: &DAT_LMR_TRIPLET) -> (DAT_VADDR, DAT_SEG_LENGTH, DAT_LMR_CONTEXT) {
    (shown.virtual_address, shown.segment_length, shown.lmr_context)
}

fn is_bound(side: &Side, rmr: DAT_RMR_HANDLE) -> bool {
    query(side, rmr).rmr_context != 0
}

fn empty(side: &Side) -> bool {
    let mut event = DAT_EVENT::zeroed();
    dat!(side.table, evd_dequeue_func(side.evd, &mut event)) == Err(Error::of(DAT_QUEUE_EMPTY))
}

fn at(lmr: &Lmr, from: u64, bytes: u32, rmr_context: DAT_RMR_CONTEXT) -> DAT_RMR_TRIPLET {
    DAT_RMR_TRIPLET { rmr_context, ..lmr.remote(from, bytes) }
}

#[test]
fn an_rmr_reports_its_binding() {
    let [(a, x), (b, y)] = connected(false);
    let t = b.table;
    let (mut near, mut far) = ([9u8; 64], [0u8; 64]);
    let (from, to) = (a.register(&mut near), b.register(&mut far));
    let window = rmr(&b);
    let unbound = query(&b, window);
    assert_eq!((unbound.ia_handle, unbound.pz_handle), (consumer_handle(b.ia), b.pz));
    assert_eq!(
        (unbound.rmr_scope, unbound.rmr_context, unbound.mem_priv),
        (DAT_RMR_SCOPE_PZ, 0, 0)
    );
    assert_eq!(triplet(&unbound.lmr_triplet), (0, 0, 0));

    let bind = Bind::new(window, y, &to, to.local(16, 32));
    let first = bind.post_and_wait(&b);
    assert!(first != 0 && first != to.rmr_context);
    let param = query(&b, window);
    assert_eq!((triplet(&param.lmr_triplet), param.mem_priv), (triplet(&to.local(16, 32)), PEERS));
    assert_eq!((param.rmr_context, param.va_type, param.pz_handle), (first, DAT_VA_TYPE_VA, b.pz));
    dat!(
        t,
        ep_post_rdma_write_func(
            x,
            1,
            &mut from.local(0, 32),
            cookie(1),
            &at(&to, 16, 32, first),
            0
        )
    )
    .unwrap();
    assert_eq!(a.completion().status, DAT_DTO_SUCCESS);

    // Each bind creates a new context. If the bind is zero-based, peers use offsets from the start
    // of the window.
    let privileges = DAT_MEM_PRIV_REMOTE_READ_FLAG;
    let second = Bind { va_type: DAT_VA_TYPE_ZB, privileges, ..bind }.post_and_wait(&b);
    assert_ne!(first, second);
    let param = query(&b, window);
    assert_eq!(
        (param.rmr_context, param.va_type, param.mem_priv),
        (second, DAT_VA_TYPE_ZB, privileges)
    );
    let zero = DAT_RMR_TRIPLET { virtual_address: 0, segment_length: 8, rmr_context: second };
    dat!(t, ep_post_rdma_read_func(x, 1, &mut from.local(0, 8), cookie(2), &zero, 0)).unwrap();
    assert_eq!(a.completion().status, DAT_DTO_SUCCESS);

    // Length 0 unbinds the RMR.
    Bind::none(window, y).post_and_wait(&b);
    assert_eq!(triplet(&query(&b, window).lmr_triplet), (0, 0, 0));
    assert!(!is_bound(&b, window));
    dat!(t, ep_post_rdma_read_func(x, 1, &mut from.local(0, 8), cookie(3), &zero, 0)).unwrap();
    assert_eq!(a.completion().status, DAT_DTO_ERR_REMOTE_ACCESS);
    for side in [&a, &b] {
        assert_eq!(side.next(side.evd).event_number, DAT_CONNECTION_EVENT_BROKEN);
    }
    a.close();
    b.close();
    assert_eq!(far[16..48], [9; 32]);
}

#[test]
fn undefined_flags_of_a_bind_are_refused() {
    for [(a, _), (b, y)] in [connected(false), strictly_connected()] {
        let mut memory = [0u8; 64];
        let lmr = b.register(&mut memory);
        let window = rmr(&b);
        for flags in [
            DAT_COMPLETION_SOLICITED_WAIT_FLAG,
            DAT_COMPLETION_UNSIGNALLED_FLAG,
            DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG,
            0x40,
        ] {
            let bind = Bind { flags, ..Bind::new(window, y, &lmr, lmr.local(0, 64)) };
            assert_eq!(bind.post(&b, 5), Err(Error::arg(8)), "{flags:#x}");
        }
        a.close();
        b.close();
    }
}

#[test]
fn a_bind_is_checked_before_it_is_posted() {
    let [(a, x), (b, y)] = connected(false);
    let t = b.table;
    let mut memory = [0u8; 64];
    let lmr = b.register(&mut memory);
    let window = rmr(&b);
    let good = Bind::new(window, y, &lmr, lmr.local(0, 64));
    let refused = |bind: Bind, error: Error| assert_eq!(bind.post(&b, 1), Err(error));

    refused(Bind { rmr: y, ..good }, Error::handle(DAT_INVALID_HANDLE_RMR));
    for lmr in [null_mut(), window, b.pz] {
        refused(Bind { lmr, ..good }, Error::handle(DAT_INVALID_HANDLE_LMR));
    }
    for ep in [null_mut(), window] {
        refused(Bind { ep, ..good }, Error::handle(DAT_INVALID_HANDLE_EP));
    }
    // The endpoint belongs to another adapter.
    refused(Bind { ep: x, ..good }, Error::handle(DAT_INVALID_HANDLE_EP));
    refused(Bind { ep: x, ..Bind::none(window, x) }, Error::handle(DAT_INVALID_HANDLE_EP));
    refused(Bind { rmr: rmr(&a), ..good }, Error::handle(DAT_INVALID_HANDLE_LMR));
    let mut out = 0;
    let args = (window, lmr.handle, &good.to, PEERS, DAT_VA_TYPE_VA, y);
    assert_eq!(
        dat!(
            t,
            rmr_bind_func(args.0, args.1, null(), args.3, args.4, args.5, cookie(0), 0, &mut out)
        ),
        Err(Error::arg(3))
    );
    assert_eq!(
        dat!(
            t,
            rmr_bind_func(args.0, args.1, args.2, args.3, args.4, args.5, cookie(0), 0, null_mut())
        ),
        Err(Error::arg(9))
    );

    let around = DAT_LMR_TRIPLET { virtual_address: u64::MAX - 3, ..good.to };
    let before = DAT_LMR_TRIPLET { virtual_address: lmr.address - 1, ..good.to };
    let unknown = DAT_LMR_TRIPLET { lmr_context: lmr.context ^ 1, ..good.to };
    for to in [lmr.local(1, 64), lmr.local(0, 65), around, before, unknown] {
        refused(Bind { to, ..good }, Error::arg(3));
    }
    refused(Bind { privileges: 0x40, ..good }, Error::arg(4));
    refused(Bind { va_type: 2, ..good }, Error::arg(5));
    // A remote privilege requires that the owner has the same local privilege (uDAPL 1.2,
    // dat_rmr_bind).
    let mut spare = [0u8; 8];
    let mut of = |privileges| {
        let lmr = b.register_as(&mut spare, privileges, DAT_VA_TYPE_VA);
        Bind::new(window, y, &lmr, lmr.local(0, 8))
    };
    let lacks = |subtype| Error::new(DAT_PRIVILEGES_VIOLATION, subtype);
    refused(of(DAT_MEM_PRIV_LOCAL_WRITE_FLAG), lacks(DAT_PRIVILEGES_READ));
    refused(of(DAT_MEM_PRIV_LOCAL_READ_FLAG), lacks(DAT_PRIVILEGES_WRITE));
    for (local, remote) in [
        (DAT_MEM_PRIV_LOCAL_READ_FLAG, DAT_MEM_PRIV_REMOTE_READ_FLAG),
        (DAT_MEM_PRIV_LOCAL_WRITE_FLAG, DAT_MEM_PRIV_REMOTE_WRITE_FLAG),
        (DAT_MEM_PRIV_NONE_FLAG, DAT_MEM_PRIV_NONE_FLAG),
    ] {
        Bind { privileges: remote, ..of(local) }.post_and_wait(&b);
    }
    // Local privileges do not affect peers.
    let all = Bind { privileges: DAT_MEM_PRIV_ALL_FLAG, ..good };
    all.post_and_wait(&b);
    assert_eq!(query(&b, window).mem_priv, DAT_MEM_PRIV_ALL_FLAG);
    a.close();
    b.close();
}

#[test]
fn region_rmr_and_endpoint_are_in_one_zone() {
    let [(a, _), (mut b, y)] = connected(false);
    let t = b.table;
    let mut memory = [0u8; 64];
    let (here, window) = (b.register(&mut memory), rmr(&b));
    let home = std::mem::replace(&mut b.pz, null_mut());
    dat!(t, pz_create_func(b.ia, &mut b.pz)).unwrap();
    let (there, foreign) = (b.register(&mut memory), rmr(&b));
    let violation = Err(Error::of(DAT_PROTECTION_VIOLATION));
    for (window, lmr) in [(foreign, &here), (window, &there), (foreign, &there)] {
        assert_eq!(Bind::new(window, y, lmr, lmr.local(0, 8)).post(&b, 1), violation);
    }
    assert_eq!(Bind::none(foreign, y).post(&b, 1), violation);
    Bind::new(window, y, &here, here.local(0, 8)).post_and_wait(&b);
    // While an RMR exists, its protection zone is in use.
    dat!(t, lmr_free_func(there.handle)).unwrap();
    assert_eq!(dat!(t, pz_free_func(b.pz)), Err(Error::state(DAT_INVALID_STATE_PZ_IN_USE)));
    dat!(t, rmr_free_func(foreign)).unwrap();
    dat!(t, pz_free_func(b.pz)).unwrap();
    b.pz = home;
    a.close();
    b.close();
}

#[test]
fn a_region_is_in_use_while_an_rmr_is_bound_to_it() {
    let [(a, _), (b, y)] = connected(false);
    let t = b.table;
    let mut memory = [0u8; 64];
    let in_use = Err(Error::state(DAT_INVALID_STATE_LMR_IN_USE));
    let (window, other) = (rmr(&b), rmr(&b));
    let (first, second) = (b.register(&mut memory), b.register(&mut memory));
    Bind::new(window, y, &first, first.local(0, 8)).post_and_wait(&b);
    assert_eq!(dat!(t, lmr_free_func(first.handle)), in_use);
    // The RMR is bound to another region, and the bind causes no event.
    let quiet = DAT_COMPLETION_SUPPRESS_FLAG;
    Bind { flags: quiet, ..Bind::new(window, y, &second, second.local(0, 8)) }.post(&b, 1).unwrap();
    assert!(empty(&b));
    dat!(t, lmr_free_func(first.handle)).unwrap();
    Bind::new(other, y, &second, second.local(8, 8)).post_and_wait(&b);
    Bind::none(window, y).post_and_wait(&b);
    assert_eq!(
        dat!(t, lmr_free_func(second.handle)),
        in_use,
        "the region must be in use by the other window"
    );
    // An RMR may be freed while it is bound (uDAPL 1.2, dat_rmr_free).
    dat!(t, rmr_free_func(other)).unwrap();
    assert_eq!(dat!(t, rmr_free_func(other)), Err(Error::handle(DAT_INVALID_HANDLE_RMR)));
    dat!(t, lmr_free_func(second.handle)).unwrap();
    a.close();
    b.close();
}

#[test]
fn a_freed_rmr_permits_no_access() {
    let [(a, x), (b, y)] = connected(false);
    let t = b.table;
    let (mut near, mut far) = ([9u8; 8], [0u8; 8]);
    let (from, to) = (a.register(&mut near), b.register(&mut far));
    let window = rmr(&b);
    let context = Bind::new(window, y, &to, to.local(0, 8)).post_and_wait(&b);
    dat!(t, rmr_free_func(window)).unwrap();
    dat!(
        t,
        ep_post_rdma_write_func(x, 1, &mut from.local(0, 8), cookie(1), &at(&to, 0, 8, context), 0)
    )
    .unwrap();
    assert_eq!(a.completion().status, DAT_DTO_ERR_REMOTE_ACCESS);
    a.close();
    b.close();
    assert_eq!(far, [0; 8]);
}

#[test]
fn binds_need_a_connected_or_disconnected_endpoint() {
    let [(a, x), (b, y)] = connected(false);
    let t = b.table;
    let mut memory = [0u8; 8];
    let (lmr, window) = (b.register(&mut memory), rmr(&b));
    let idle = b.new_ep();
    let bind = Bind::new(window, idle, &lmr, lmr.local(0, 8));
    assert_eq!(bind.post(&b, 1), Err(Error::state(DAT_INVALID_STATE_EP_UNCONNECTED)));

    let held = Bind { ep: y, ..bind }.post_and_wait(&b);
    dat!(t, ep_disconnect_func(x, DAT_CLOSE_ABRUPT_FLAG)).unwrap();
    assert_eq!(b.next(b.evd).event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
    // The bind is flushed, so the RMR stays bound as before. The report of a flush cannot be
    // suppressed.
    let flags = DAT_COMPLETION_SUPPRESS_FLAG;
    let lost = Bind { ep: y, flags, ..bind }.post(&b, 2).unwrap();
    assert_eq!(next_bind(&b), (window, 2, DAT_DTO_ERR_FLUSHED));
    Bind::none(window, y).post(&b, 3).unwrap();
    assert_eq!(next_bind(&b), (window, 3, DAT_DTO_ERR_FLUSHED));
    assert_ne!(lost, held);
    assert_eq!(query(&b, window).rmr_context, held);
    a.close();
    b.close();
}

#[test]
fn binds_complete_on_the_request_evd() {
    let (t, name) = mem(false);
    let (a, b) = (Side::new(t, &name), Side::new(t, &name));
    let mut memory = [0u8; 8];
    let (lmr, window) = (b.register(&mut memory), rmr(&b));
    // The first endpoint's request EVD takes no completions of binds. The second bind asks for an
    // unsignalled completion. The third endpoint has no request EVD.
    let dtos = b.new_evd(DAT_EVD_DTO_FLAG);
    let quiet = Side { evd: b.new_evd(DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG), ..b };
    for (request, unsignalled) in [(dtos, false), (quiet.evd, true), (null_mut(), false)] {
        let mut param = DAT_EP_PARAM::zeroed();
        let probe = b.new_ep();
        dat!(t, ep_query_func(probe, DAT_EP_FIELD_ALL, &mut param)).unwrap();
        dat!(t, ep_free_func(probe)).unwrap();
        if unsignalled {
            param.ep_attr.request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
        }
        let (x, mut y) = (a.new_ep(), null_mut());
        dat!(t, ep_create_func(b.ia, b.pz, b.evd, request, b.evd, &param.ep_attr, &mut y)).unwrap();
        let (psp, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
        a.connect(x, qualifier, b"");
        dat!(t, cr_accept_func(b.arrival(), y, 0, null_mut())).unwrap();
        for side in [&a, &b] {
            assert_eq!(side.next(side.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
        }
        let bind = Bind::new(window, y, &lmr, lmr.local(0, 8));
        let flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
        if request == dtos {
            assert_eq!(bind.post(&b, 1), Err(Error::state(DAT_INVALID_STATE_EP_EVD_REQUEST)));
        } else if unsignalled {
            Bind { flags, ..bind }.post_and_wait(&quiet);
            Bind { flags: DAT_COMPLETION_BARRIER_FENCE_FLAG, ..bind }.post_and_wait(&quiet);
        } else {
            let context = bind.post(&b, 1).unwrap();
            assert_eq!((query(&b, window).rmr_context, empty(&b)), (context, true));
        }
        dat!(t, psp_free_func(psp)).unwrap();
    }
    a.close();
    b.close();
}

#[test]
fn only_the_peer_of_its_endpoint_may_use_an_rmr() {
    let (t, name) = mem(false);
    let [(a, x), (b, y)] = connected_by(t, &name);
    let (w, z) = (a.new_ep(), b.new_ep());
    let (psp, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    a.connect(w, qualifier, b"");
    dat!(t, cr_accept_func(b.arrival(), z, 0, null_mut())).unwrap();
    for side in [&a, &b] {
        assert_eq!(side.next(side.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    }
    dat!(t, psp_free_func(psp)).unwrap();
    let (mut near, mut far) = ([9u8; 8], [0u8; 8]);
    let (from, to) = (a.register(&mut near), b.register(&mut far));
    let mut scoped = null_mut();
    dat!(t, rmr_create_for_ep_func(b.pz, &mut scoped)).unwrap();
    assert_eq!(query(&b, scoped).rmr_scope, DAT_RMR_SCOPE_EP);
    let context = Bind::new(scoped, y, &to, to.local(0, 8)).post_and_wait(&b);
    let write = |ep| {
        dat!(
            t,
            ep_post_rdma_write_func(
                ep,
                1,
                &mut from.local(0, 8),
                cookie(1),
                &at(&to, 0, 8, context),
                0
            )
        )
        .unwrap();
        a.completion().status
    };
    assert_eq!(write(x), DAT_DTO_SUCCESS);
    assert_eq!(write(w), DAT_DTO_ERR_REMOTE_ACCESS);
    assert_eq!(b.next(b.evd).event_number, DAT_CONNECTION_EVENT_BROKEN);
    a.close();
    b.close();
}

#[test]
fn a_send_invalidates_a_context() {
    let [(a, x), (b, y)] = connected(false);
    let t = b.table;
    let (mut near, mut far) = ([9u8; 8], [0u8; 64]);
    let (from, to) = (a.register(&mut near), b.register(&mut far));
    let window = rmr(&b);
    let context = Bind::new(window, y, &to, to.local(0, 8)).post_and_wait(&b);
    let send = |value, flags, invalidate, context| {
        let mut iov = from.local(0, 8);
        dat!(
            t,
            ep_post_send_with_invalidate_func(
                x,
                1,
                &mut iov,
                cookie(value),
                flags,
                invalidate,
                context
            )
        )
    };
    for value in 0..2 {
        dat!(t, ep_post_recv_func(y, 1, &mut to.local(8, 8), cookie(value), 0)).unwrap();
    }
    assert_eq!(send(1, 0x40, DAT_TRUE, context), Err(Error::arg(5)));
    assert_eq!(send(1, 0, 2, context), Err(Error::arg(6)));
    assert_eq!(send(1, 0, DAT_TRUE, 0), Err(Error::arg(7)));
    // Without the flag, the operation is an ordinary send.
    send(1, 0, DAT_FALSE, context).unwrap();
    let received = b.completion();
    assert_eq!((received.operation, received.rmr_context), (DAT_DTO_RECEIVE, 0));
    assert!(is_bound(&b, window));
    send(2, 0, DAT_TRUE, context).unwrap();
    let received = b.completion();
    assert_eq!(
        (received.status, received.operation),
        (DAT_DTO_SUCCESS, DAT_DTO_RECEIVE_WITH_INVALIDATE)
    );
    assert_eq!((received.rmr_context, received.transfered_length), (context, 8));
    for _ in 0..2 {
        assert_eq!(a.completion().operation, DAT_DTO_SEND);
    }
    assert!(!is_bound(&b, window));
    dat!(t, lmr_free_func(to.handle)).unwrap();

    // The context of an LMR cannot be invalidated (uDAPL 1.2, dat_lmr_create).
    let to = b.register(&mut far);
    dat!(t, ep_post_recv_func(y, 1, &mut to.local(8, 8), cookie(3), 0)).unwrap();
    send(4, 0, DAT_TRUE, to.rmr_context).unwrap();
    assert_eq!(a.completion().status, DAT_DTO_ERR_REMOTE_ACCESS);
    assert_ne!(b.completion().status, DAT_DTO_SUCCESS);
    for side in [&a, &b] {
        assert_eq!(side.next(side.evd).event_number, DAT_CONNECTION_EVENT_BROKEN);
    }
    a.close();
    b.close();
}

#[test]
fn a_read_goes_where_an_rmr_context_says() {
    let [(a, x), (b, _)] = connected(false);
    let t = a.table;
    let (mut near, mut far) = ([0u8; 64], [9u8; 64]);
    let (to, from) = (a.register(&mut near), b.register(&mut far));
    let window = rmr(&a);
    let bind = Bind::new(window, x, &to, to.local(0, 32));
    let context = Bind { va_type: DAT_VA_TYPE_ZB, ..bind }.post_and_wait(&a);
    let sink = |at, bytes| DAT_RMR_TRIPLET {
        virtual_address: at,
        segment_length: bytes,
        rmr_context: context,
    };
    let read = |sink: &DAT_RMR_TRIPLET, bytes, flags| {
        dat!(t, ep_post_rdma_read_to_rmr_func(x, sink, cookie(1), &from.remote(0, bytes), flags))
    };
    read(&sink(8, 24), 16, DAT_COMPLETION_BARRIER_FENCE_FLAG).unwrap();
    let done = a.completion();
    assert_eq!(
        (done.status, done.operation, done.transfered_length),
        (DAT_DTO_SUCCESS, DAT_DTO_RDMA_READ, 16)
    );

    assert_eq!(read(&sink(0, 8), 9, 0), Err(Error::of(DAT_LENGTH_ERROR)));
    assert_eq!(read(&sink(25, 8), 8, 0), Err(Error::arg(2)));
    assert_eq!(read(&to.remote(0, 8), 8, 0x40), Err(Error::arg(5)));
    let unknown = DAT_RMR_TRIPLET { rmr_context: context ^ 1, ..sink(0, 8) };
    assert_eq!(read(&unknown, 8, 0), Err(Error::of(DAT_PRIVILEGES_VIOLATION)));
    let (any, no) = (from.remote(0, 8), null());
    assert_eq!(
        dat!(t, ep_post_rdma_read_to_rmr_func(x, no, cookie(1), &any, 0)),
        Err(Error::arg(2))
    );
    assert_eq!(
        dat!(t, ep_post_rdma_read_to_rmr_func(x, &sink(0, 8), cookie(1), no, 0)),
        Err(Error::arg(4))
    );
    let context = Bind { privileges: DAT_MEM_PRIV_REMOTE_READ_FLAG, ..bind }.post_and_wait(&a);
    let unwritable = Err(Error::new(DAT_PRIVILEGES_VIOLATION, DAT_PRIVILEGES_RDMA_WRITE));
    assert_eq!(read(&at(&to, 0, 8, context), 8, 0), unwritable);
    // The context of an LMR may also be used as a sink.
    read(&to.remote(40, 8), 8, 0).unwrap();
    assert_eq!(a.completion().status, DAT_DTO_SUCCESS);
    a.close();
    b.close();
    let expected: Vec<u8> = (0..64)
        .map(|n| if (8..24).contains(&n) || (40..48).contains(&n) { 9 } else { 0 })
        .collect();
    assert_eq!(near[..], expected);
}

#[test]
fn rmrs_are_freed_with_their_adapter() {
    let [(a, _), (b, y)] = connected(true);
    let mut memory = [0u8; 8];
    let (lmr, window) = (b.register(&mut memory), rmr(&b));
    Bind::new(window, y, &lmr, lmr.local(0, 8)).post_and_wait(&b);
    rmr(&b);
    assert_eq!(
        dat!(b.table, ia_close_func(b.ia, DAT_CLOSE_GRACEFUL_FLAG)),
        Err(Error::state(DAT_INVALID_STATE_IA_IN_USE))
    );
    b.close();
    let mut param = DAT_RMR_PARAM::zeroed();
    assert_eq!(
        dat!(a.table, rmr_query_func(window, DAT_RMR_FIELD_ALL, &mut param)),
        Err(Error::handle(DAT_INVALID_HANDLE_RMR))
    );
    a.close();
}

#[test]
fn threads_bind_through_one_endpoint() {
    let [(a, _), (b, y)] = connected(true);
    let endpoint = y as usize;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let b = &b;
            scope.spawn(move || {
                let y = endpoint as DAT_EP_HANDLE;
                let (mut memory, window) = ([0u8; 64], rmr(b));
                let quiet = |bind| Bind { flags: DAT_COMPLETION_SUPPRESS_FLAG, ..bind };
                for _ in 0..200 {
                    let lmr = b.register(&mut memory);
                    let context =
                        quiet(Bind::new(window, y, &lmr, lmr.local(0, 64))).post(b, 1).unwrap();
                    assert_eq!(query(b, window).rmr_context, context);
                    let in_use = Error::state(DAT_INVALID_STATE_LMR_IN_USE);
                    assert_eq!(dat!(b.table, lmr_free_func(lmr.handle)), Err(in_use));
                    Bind::none(window, y).post(b, 2).unwrap();
                    // Each thread waits for one completion, and it may get the completion of
                    // another thread.
                    assert!(!empty(b));
                    dat!(b.table, lmr_free_func(lmr.handle)).unwrap();
                }
                dat!(b.table, rmr_free_func(window)).unwrap();
            });
        }
    });
    assert!(empty(&b));
    a.close();
    b.close();
}
