//! Requests at each kind of service point, and requests of one service that meet an endpoint of the
//! other one.

use super::*;

const RSP_QUALIFIER: DAT_CONN_QUAL = 50_100;

fn reserve(side: &Side, ep: DAT_EP_HANDLE) -> DAT_RSP_HANDLE {
    let mut rsp = null_mut();
    let Side { table, ia, cr_evd, .. } = *side;
    dat!(table, rsp_create_func(ia, RSP_QUALIFIER, ep, cr_evd, &mut rsp)).unwrap();
    rsp
}

#[test]
fn a_reserved_service_point_answers_with_its_endpoint() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let (x, y, connected) = (new_ep(&a), new_ep(&b), a.new_ep());
    let rsp = reserve(&b, y);
    assert_eq!(state(&b, y), DAT_EP_STATE_RESERVED);
    let busy = Err(Error::state(DAT_INVALID_STATE_EP_RESERVED));
    assert_eq!(connect_to(&b, y, (LOCALHOST, 1), b"", TEN_SECONDS), busy);

    // A request for a connection cannot be accepted with this endpoint, so it does not count.
    a.connect(connected, RSP_QUALIFIER, b"");
    assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
    assert_eq!(state(&b, y), DAT_EP_STATE_RESERVED);

    connect_to(&a, x, (LOCALHOST, RSP_QUALIFIER), b"ask", TEN_SECONDS).unwrap();
    let ArrivedRequest { cr, arrival, private } = request(&b);
    // SAFETY: an RSP has received the request.
    assert_eq!(unsafe { arrival.sp_handle.rsp_handle }, rsp);
    assert_eq!(private, b"ask");
    let mut param = DAT_CR_PARAM::zeroed();
    dat!(table, cr_query_func(cr, DAT_CR_FIELD_ALL, &mut param)).unwrap();
    assert_eq!(param.local_ep_handle, y);
    assert_eq!(state(&b, y), DAT_EP_STATE_PASSIVE_CONNECTION_PENDING);
    let given = Err(Error::handle(DAT_INVALID_HANDLE_EP));
    assert_eq!(accept(&b, cr, new_ep(&b), b""), given);
    // Another request cannot be accepted with an endpoint that belongs to this one.
    let (_, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    connect_to(&a, x, (LOCALHOST, qualifier), b"", TEN_SECONDS).unwrap();
    let second = request(&b).cr;
    let pending = Err(Error::state(DAT_INVALID_STATE_EP_PASSCONNPENDING));
    assert_eq!(accept(&b, second, y, b""), pending);
    accept(&b, cr, null_mut(), b"answer").unwrap();
    assert_eq!(established(&a).private, b"answer");
    assert_eq!(established(&b).private, b"ask");
    assert_eq!(state(&b, y), DAT_EP_STATE_COMPLETION_PENDING);
    accept(&b, second, y, b"").unwrap();
    a.close();
    b.close();
}

#[test]
fn a_rejected_endpoint_of_a_reserved_service_point_is_unconnected() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let (x, y) = (new_ep(&a), new_ep(&b));
    reserve(&b, y);
    connect_to(&a, x, (LOCALHOST, RSP_QUALIFIER), b"", TEN_SECONDS).unwrap();
    dat!(table, cr_reject_func(request(&b).cr, 0, null_mut())).unwrap();
    assert_eq!(peer_event(&a).number, DAT_IB_UD_CONNECTION_REJECT_EVENT);
    assert_eq!(state(&b, y), DAT_EP_STATE_UNCONNECTED);
    a.close();
    b.close();
}

#[test]
fn a_reserved_service_point_for_connections_refuses_datagrams() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let (x, connected, y) = (new_ep(&a), a.new_ep(), b.new_ep());
    reserve(&b, y);
    connect_to(&a, x, (LOCALHOST, RSP_QUALIFIER), b"", TEN_SECONDS).unwrap();
    assert_eq!(peer_event(&a).number, DAT_IB_UD_CONNECTION_ERROR_EVENT);
    a.connect(connected, RSP_QUALIFIER, b"");
    dat!(table, cr_accept_func(b.arrival(), null_mut(), 0, null_mut())).unwrap();
    assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    a.close();
    b.close();
}

#[test]
fn the_provider_creates_an_endpoint_of_the_requested_service() {
    for thread_safe in [false, true] {
        let (table, name) = mem(thread_safe);
        let (a, b) = (Side::new(table, &name), Side::new(table, &name));
        let x = new_ep(&a);
        let (_, qualifier) = b.new_psp(DAT_PSP_PROVIDER_FLAG);
        connect_to(&a, x, (LOCALHOST, qualifier), b"ask", TEN_SECONDS).unwrap();
        let cr = request(&b).cr;
        let mut param = DAT_CR_PARAM::zeroed();
        dat!(table, cr_query_func(cr, DAT_CR_FIELD_ALL, &mut param)).unwrap();
        let y = param.local_ep_handle;
        let mut configured = DAT_EP_PARAM::zeroed();
        dat!(table, ep_query_func(y, DAT_EP_FIELD_ALL, &mut configured)).unwrap();
        let DAT_EP_ATTR { service_type, max_message_size, .. } = configured.ep_attr;
        assert_eq!(
            (service_type, max_message_size as usize),
            (DAT_IB_SERVICE_TYPE_UD, MAX_DATAGRAM)
        );
        assert_eq!(state(&b, y), DAT_EP_STATE_UNCONFIGURED_TENTATIVE);
        assert_eq!(accept(&b, cr, null_mut(), b"").map_err(|e| e.kind()), Err(DAT_INVALID_STATE));

        let Side { pz, evd, .. } = b;
        (configured.pz_handle, configured.connect_evd_handle) = (pz, evd);
        (configured.recv_evd_handle, configured.request_evd_handle) = (evd, evd);
        let mask = DAT_EP_FIELD_PZ_HANDLE
            | DAT_EP_FIELD_CONNECT_EVD_HANDLE
            | DAT_EP_FIELD_RECV_EVD_HANDLE
            | DAT_EP_FIELD_REQUEST_EVD_HANDLE;
        dat!(table, ep_modify_func(y, mask, &configured)).unwrap();
        assert_eq!(state(&b, y), DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING);
        accept(&b, cr, null_mut(), b"answer").unwrap();
        let (to_y, to_x) = (established(&a), established(&b));
        assert_eq!((to_y.private, to_x.ep), (b"answer".to_vec(), y));
        send(&b, y, &[], &to_x.peer, (1, 0)).unwrap();
        transfer::expect_sent(&b, y, (1, 0));
        a.close();
        b.close();
    }
}

#[test]
fn a_request_survives_an_endpoint_of_the_other_service() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let (datagrams, connected) = (new_ep(&b), b.new_ep());
    let (_, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    let wrong = Err(Error::handle(DAT_INVALID_HANDLE_EP));

    connect_to(&a, new_ep(&a), (LOCALHOST, qualifier), b"", TEN_SECONDS).unwrap();
    let cr = request(&b).cr;
    assert_eq!(accept(&b, cr, connected, b""), wrong);
    assert_eq!(state(&b, connected), DAT_EP_STATE_UNCONNECTED);
    accept(&b, cr, datagrams, b"").unwrap();
    established(&a);
    established(&b);

    a.connect(a.new_ep(), qualifier, b"");
    let cr = b.arrival();
    assert_eq!(accept(&b, cr, datagrams, b""), wrong);
    assert_eq!(state(&b, datagrams), DAT_EP_STATE_COMPLETION_PENDING);
    accept(&b, cr, connected, b"").unwrap();
    assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    a.close();
    b.close();
}

#[test]
fn a_request_is_handed_off_with_its_service() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let (x, y) = (new_ep(&a), new_ep(&b));
    let (_, first) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    let (psp, second) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    connect_to(&a, x, (LOCALHOST, first), b"ask", TEN_SECONDS).unwrap();
    dat!(table, cr_handoff_func(request(&b).cr, second)).unwrap();
    let ArrivedRequest { cr, arrival, private } = request(&b);
    // SAFETY: a PSP has received the request.
    assert_eq!(unsafe { arrival.sp_handle.psp_handle }, psp);
    assert_eq!((arrival.conn_qual, private.as_slice()), (second, &b"ask"[..]));
    accept(&b, cr, y, b"answer").unwrap();
    assert_eq!(established(&a).private, b"answer");
    assert_eq!(established(&b).private, b"ask");
    a.close();
    b.close();
}
