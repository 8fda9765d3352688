//! Tests of endpoints that are not completely configured, and of endpoints that the provider
//! creates for a request.

use std::ptr::{null, null_mut};

use dat_core::Error;
use dat_sys::*;

use crate::client::*;

fn state(side: &Side, ep: DAT_EP_HANDLE) -> DAT_EP_STATE {
    let mut state = DAT_EP_STATE::MAX;
    dat!(side.table, ep_get_status_func(ep, &mut state, null_mut(), null_mut())).unwrap();
    state
}

fn bare(side: &Side) -> DAT_EP_HANDLE {
    let (mut ep, none) = (null_mut(), null_mut());
    dat!(side.table, ep_create_func(side.ia, none, none, none, none, null(), &mut ep)).unwrap();
    ep
}

/// Calls dat_ep_modify to set an endpoint's protection zone or its EVDs. The zone may be NULL.
fn modify(
    side: &Side,
    ep: DAT_EP_HANDLE,
    mask: DAT_EP_PARAM_MASK,
    pz: DAT_PZ_HANDLE,
) -> Result<(), Error> {
    let mut param = DAT_EP_PARAM::zeroed();
    param.pz_handle = pz;
    (param.recv_evd_handle, param.request_evd_handle) = (side.evd, side.evd);
    param.connect_evd_handle = side.evd;
    dat!(side.table, ep_modify_func(ep, mask, &param))
}

const PZ: DAT_EP_PARAM_MASK = DAT_EP_FIELD_PZ_HANDLE;
const CONNECT: DAT_EP_PARAM_MASK = DAT_EP_FIELD_CONNECT_EVD_HANDLE;
const DTOS: DAT_EP_PARAM_MASK = DAT_EP_FIELD_RECV_EVD_HANDLE | DAT_EP_FIELD_REQUEST_EVD_HANDLE;

#[test]
fn an_endpoint_without_a_zone_is_unconfigured() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let ep = bare(&a);
    assert_eq!(state(&a, ep), DAT_EP_STATE_UNCONFIGURED_UNCONNECTED);
    let unconfigured = Err(Error::state(DAT_INVALID_STATE_EP_UNCONFIGURED));
    assert_eq!(dat!(table, ep_post_recv_func(ep, 0, null_mut(), cookie(0), 0)), unconfigured);
    assert_eq!(dat!(table, ep_post_send_func(ep, 0, null_mut(), cookie(0), 0)), unconfigured);
    assert_eq!(dat!(table, ep_disconnect_func(ep, DAT_CLOSE_ABRUPT_FLAG)), unconfigured);
    assert_eq!(dat!(table, ep_reset_func(ep)), Ok(()));

    let (_, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    let address = dat_core::addr::SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let to = address.as_ptr();
    let connect = || {
        let nothing = null_mut();
        dat!(
            table,
            ep_connect_func(
                ep,
                to,
                qualifier,
                TEN_SECONDS,
                0,
                nothing,
                0,
                DAT_CONNECT_DEFAULT_FLAG
            )
        )
    };
    assert_eq!(connect(), Err(Error::state(DAT_INVALID_STATE_EP_PZ)));
    assert_eq!(modify(&a, ep, PZ, a.pz), Ok(()));
    assert_eq!(state(&a, ep), DAT_EP_STATE_UNCONNECTED);
    assert_eq!(connect(), Err(Error::state(DAT_INVALID_STATE_EP_EVD_CONNECT)));
    assert_eq!(modify(&a, ep, CONNECT, a.pz), Ok(()));

    // The zone can be removed from the endpoint again.
    assert_eq!(modify(&a, ep, PZ, null_mut()), Ok(()));
    assert_eq!(state(&a, ep), DAT_EP_STATE_UNCONFIGURED_UNCONNECTED);
    assert_eq!(connect(), Err(Error::state(DAT_INVALID_STATE_EP_PZ)));
    assert_eq!(modify(&a, ep, PZ, a.pz), Ok(()));
    assert_eq!(connect(), Ok(()));
    assert_eq!(state(&a, ep), DAT_EP_STATE_ACTIVE_CONNECTION_PENDING);
    a.close();
    b.close();
}

#[test]
fn a_reserved_endpoint_is_configured_before_it_accepts() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let (ep, mut rsp) = (bare(&b), null_mut());
    dat!(table, rsp_create_func(b.ia, 4711, ep, b.cr_evd, &mut rsp)).unwrap();
    assert_eq!(state(&b, ep), DAT_EP_STATE_UNCONFIGURED_RESERVED);
    a.connect(a.new_ep(), 4711, b"");
    let request = b.arrival();
    assert_eq!(state(&b, ep), DAT_EP_STATE_UNCONFIGURED_PASSIVE);
    let accept = || dat!(table, cr_accept_func(request, null_mut(), 0, null_mut()));
    assert_eq!(accept(), Err(Error::state(DAT_INVALID_STATE_EP_UNCONFPASSIVE)));
    assert_eq!(modify(&b, ep, PZ | CONNECT | DTOS, b.pz), Ok(()));
    assert_eq!(state(&b, ep), DAT_EP_STATE_PASSIVE_CONNECTION_PENDING);
    // The zone of an endpoint that has a connection request cannot be changed any more. Other
    // parameters can be changed.
    let settled = Err(Error::state(DAT_INVALID_STATE_EP_PASSCONNPENDING));
    assert_eq!(modify(&b, ep, PZ, b.pz), settled);
    assert_eq!(modify(&b, ep, DTOS, b.pz), Ok(()));
    assert_eq!(accept(), Ok(()));
    assert_eq!(b.next(b.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    a.close();
    b.close();
}

#[test]
fn a_tentative_endpoint_needs_a_zone_and_an_evd() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let (_, qualifier) = b.new_psp(DAT_PSP_PROVIDER_FLAG);
    let x = a.new_ep();
    a.connect(x, qualifier, b"");
    let request = b.arrival();
    let mut param = DAT_CR_PARAM::zeroed();
    dat!(table, cr_query_func(request, DAT_CR_FIELD_ALL, &mut param)).unwrap();
    let ep = param.local_ep_handle;
    assert_eq!(state(&b, ep), DAT_EP_STATE_UNCONFIGURED_TENTATIVE);
    let mut param = DAT_EP_PARAM::zeroed();
    dat!(table, ep_query_func(ep, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    let given = [
        param.pz_handle,
        param.recv_evd_handle,
        param.request_evd_handle,
        param.connect_evd_handle,
    ];
    assert_eq!(given, [null_mut(); 4]);

    // The refused calls do not affect the connection request.
    let accept = || dat!(table, cr_accept_func(request, null_mut(), 0, null_mut()));
    assert_eq!(accept(), Err(Error::state(DAT_INVALID_STATE_EP_UNCONFTENTATIVE)));
    assert_eq!(modify(&b, ep, DTOS, null_mut()), Ok(()));
    assert_eq!(state(&b, ep), DAT_EP_STATE_UNCONFIGURED_TENTATIVE);
    assert_eq!(modify(&b, ep, PZ, b.pz), Ok(()));
    assert_eq!(state(&b, ep), DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING);
    assert_eq!(accept(), Err(Error::state(DAT_INVALID_STATE_EP_EVD_CONNECT)));
    assert_eq!(modify(&b, ep, PZ, null_mut()), Ok(()));
    assert_eq!(state(&b, ep), DAT_EP_STATE_UNCONFIGURED_TENTATIVE);
    assert_eq!(modify(&b, ep, PZ | CONNECT, b.pz), Ok(()));
    assert_eq!(
        dat!(table, ep_free_func(ep)),
        Err(Error::state(DAT_INVALID_STATE_EP_TENTCONNPENDING))
    );
    // The attributes of the transport and of the provider can be changed only while the endpoint is
    // unconnected.
    let number = DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR;
    let late = Err(Error::state(DAT_INVALID_STATE_EP_TENTCONNPENDING));
    assert_eq!(modify(&b, ep, number, b.pz), late);
    dat!(table, ep_post_recv_func(ep, 0, null_mut(), cookie(5), 0)).unwrap();
    assert_eq!(accept(), Ok(()));
    assert_eq!(b.next(b.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_eq!(state(&b, ep), DAT_EP_STATE_CONNECTED);
    dat!(table, ep_post_send_func(x, 0, null_mut(), cookie(0), 0)).unwrap();
    assert_eq!(b.completion().ep_handle, ep);

    // The endpoint of a rejected request goes back to the provider.
    let caller = a.new_ep();
    a.connect(caller, qualifier, b"");
    let request = b.arrival();
    let mut param = DAT_CR_PARAM::zeroed();
    dat!(table, cr_query_func(request, DAT_CR_FIELD_ALL, &mut param)).unwrap();
    dat!(table, cr_reject_func(request, 0, null_mut())).unwrap();
    let gone =
        dat!(table, ep_get_status_func(param.local_ep_handle, null_mut(), null_mut(), null_mut()));
    assert_eq!(gone, Err(Error::handle(DAT_INVALID_HANDLE_EP)));
    a.close();
    b.close();
}

/// By a NULL EVD the consumer says that it does not want completions. Then it may post any number
/// of requests.
#[test]
fn completions_without_an_evd_are_not_counted() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let eps = [a, b].map(|side| {
        let mut param = DAT_EP_PARAM::zeroed();
        let (model, mut ep, none) = (side.new_ep(), null_mut(), null_mut());
        dat!(table, ep_query_func(model, DAT_EP_FIELD_ALL, &mut param)).unwrap();
        (param.ep_attr.max_recv_dtos, param.ep_attr.max_request_dtos) = (2, 2);
        dat!(
            table,
            ep_create_func(side.ia, side.pz, none, none, side.evd, &param.ep_attr, &mut ep)
        )
        .unwrap();
        ep
    });
    let (_, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    a.connect(eps[0], qualifier, b"");
    dat!(table, cr_accept_func(b.arrival(), eps[1], 0, null_mut())).unwrap();
    for side in [a, b] {
        assert_eq!(side.next(side.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    }
    let full = Err(Error::of(DAT_INSUFFICIENT_RESOURCES));
    for _ in 0..4 {
        let recv = || dat!(table, ep_post_recv_func(eps[1], 0, null_mut(), cookie(0), 0));
        assert_eq!([recv(), recv(), recv()], [Ok(()), Ok(()), full]);
        for _ in 0..2 {
            dat!(table, ep_post_send_func(eps[0], 0, null_mut(), cookie(0), 0)).unwrap();
        }
    }
    a.close();
    b.close();
}
