//! The states of datagram endpoints: what each call does in them, and what is refused.

use super::*;

const ACTIVE: DAT_EP_STATE = DAT_EP_STATE_ACTIVE_CONNECTION_PENDING;
const COMPLETION: DAT_EP_STATE = DAT_EP_STATE_COMPLETION_PENDING;

/// The endpoint's part of a connection has no meaning for datagrams, so these calls are refused in
/// all states.
fn refuses_posts_of_connections(side: &Side, ep: DAT_EP_HANDLE, expected: Error) {
    let (table, none, expected) = (side.table, null_mut(), Err(expected));
    let remote = DAT_RMR_TRIPLET { segment_length: 8, ..DAT_RMR_TRIPLET::zeroed() };
    let at = &raw const remote;
    assert_eq!(dat!(table, ep_post_send_func(ep, 0, none, cookie(0), 0)), expected);
    assert_eq!(dat!(table, ep_post_rdma_write_func(ep, 0, none, cookie(0), at, 0)), expected);
    let empty = DAT_RMR_TRIPLET::zeroed();
    assert_eq!(dat!(table, ep_post_rdma_read_func(ep, 0, none, cookie(0), &empty, 0)), expected);
    let send =
        dat!(table, ep_post_send_with_invalidate_func(ep, 0, none, cookie(0), 0, DAT_FALSE, 0));
    assert_eq!(send, expected);
    let args = [0, 0, 0, word(&remote), 0, 0];
    assert_eq!(extended(table, ep, DAT_IB_RDMA_WRITE_IMMED_OP, &args, 4), expected);
    let mut octets = [0u8; 8];
    let lmr = side.register(&mut octets);
    let sink = lmr.local(0, 8);
    let args = [1, word(&sink), 0, word(&remote), 0];
    assert_eq!(extended(table, ep, DAT_IB_FETCH_AND_ADD_OP, &args, 4), expected);
    let (mut rmr, mut context) = (null_mut(), 0);
    dat!(table, rmr_create_func(side.pz, &mut rmr)).unwrap();
    let bind = dat!(
        table,
        rmr_bind_func(
            rmr,
            lmr.handle,
            &sink,
            DAT_MEM_PRIV_REMOTE_READ_FLAG,
            DAT_VA_TYPE_VA,
            ep,
            cookie(0),
            0,
            &mut context
        )
    );
    assert_eq!(bind, expected);
    dat!(table, rmr_free_func(rmr)).unwrap();
    dat!(table, lmr_free_func(lmr.handle)).unwrap();
}

fn disconnect(side: &Side, ep: DAT_EP_HANDLE) {
    for flags in [DAT_CLOSE_ABRUPT_FLAG, DAT_CLOSE_GRACEFUL_FLAG] {
        let before = state(side, ep);
        dat!(side.table, ep_disconnect_func(ep, flags)).unwrap();
        assert_eq!(state(side, ep), before);
    }
    assert_eq!(dat!(side.table, ep_disconnect_func(ep, 2)), Err(Error::arg(2)));
    assert!(dat!(side.table, evd_dequeue_func(side.evd, &mut DAT_EVENT::zeroed())).is_err());
}

#[test]
fn each_call_in_each_state() {
    for thread_safe in [false, true] {
        let [a, b] = pair(thread_safe);
        let (table, ep) = (a.side.table, new_ep(&a.side));
        let reset = |ep| dat!(table, ep_reset_func(ep));
        let refused = |subtype| Error::state(subtype);

        // An unconnected endpoint knows no peer. It does not send to the peers of others, either.
        assert_eq!(state(&a.side, ep), DAT_EP_STATE_UNCONNECTED);
        disconnect(&a.side, ep);
        let unconnected = refused(DAT_INVALID_STATE_EP_UNCONNECTED);
        assert_eq!(send(&a.side, ep, &[], &a.other, (1, 0)), Err(unconnected));
        refuses_posts_of_connections(&a.side, ep, unconnected);
        dat!(table, ep_post_recv_func(ep, 0, null_mut(), cookie(0), 0)).unwrap();
        reset(ep).unwrap();

        for (peer, expected, subtype) in [
            (a, ACTIVE, DAT_INVALID_STATE_EP_ACTCONNPENDING),
            (b, COMPLETION, DAT_INVALID_STATE_EP_COMPLPENDING),
        ] {
            assert_eq!(state(&peer.side, peer.ep), expected);
            disconnect(&peer.side, peer.ep);
            refuses_posts_of_connections(&peer.side, peer.ep, refused(subtype));
            assert_eq!(reset(peer.ep), Err(refused(subtype)));
            let size = DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE;
            let modified = dat!(table, ep_modify_func(peer.ep, size, &DAT_EP_PARAM::zeroed()));
            assert_eq!(modified, Err(refused(subtype)));
            let dup = dat!(
                table,
                ep_dup_connect_func(ep, peer.ep, TEN_SECONDS, 0, null_mut(), DAT_QOS_BEST_EFFORT)
            );
            assert!(dup.is_err());
            send(&peer.side, peer.ep, &[], &peer.other, (5, 0)).unwrap();
            transfer::expect_sent(&peer.side, peer.ep, (5, 0));
        }
        dat!(table, ep_free_func(a.ep)).unwrap();
        a.side.close();
        b.side.close();
    }
}

/// Memory that is gone when a datagram arrives ends the endpoint. After a reset it works again, and
/// the peers that it knew are known.
#[test]
fn an_endpoint_fails_with_its_memory_and_is_reset() {
    for thread_safe in [false, true] {
        let [a, b] = pair(thread_safe);
        let table = b.side.table;
        let mut octets = vec![0u8; 100];
        let lmr = b.side.register(&mut octets);
        post_recv(&b.side, b.ep, lmr.local(0, 100), 1);
        post_recv(&b.side, b.ep, lmr.local(0, 100), 2);
        dat!(table, lmr_free_func(lmr.handle)).unwrap();
        send(&a.side, a.ep, &[], &a.other, (3, 0)).unwrap();
        transfer::expect_sent(&a.side, a.ep, (3, 0));
        for status in [DAT_DTO_ERR_LOCAL_PROTECTION, DAT_DTO_ERR_FLUSHED] {
            let (dto, data) = crate::extended::extended_completion(&b.side);
            assert_eq!((dto.ep_handle, dto.status), (b.ep, status));
            assert_eq!((data.r#type, data.status), (DAT_IB_UD_RECV, DAT_IB_OP_ERR));
        }
        let event = b.side.next(b.side.evd);
        assert_eq!(event.event_number, DAT_CONNECTION_EVENT_BROKEN);
        // SAFETY: the number of the event says that this member of the union is valid.
        assert_eq!(unsafe { event.event_data.connect_event_data }.ep_handle, b.ep);
        assert_eq!(state(&b.side, b.ep), DAT_EP_STATE_DISCONNECTED);

        // Posts are flushed. Nothing arrives any more.
        dat!(table, ep_post_recv_func(b.ep, 0, null_mut(), cookie(4), 0)).unwrap();
        send(&b.side, b.ep, &[], &b.other, (5, 0)).unwrap();
        for operation in [DAT_IB_DTO_RECV_UD, DAT_IB_DTO_SEND_UD] {
            let (dto, _) = crate::extended::extended_completion(&b.side);
            assert_eq!((dto.operation, dto.status), (operation, DAT_DTO_ERR_FLUSHED));
        }
        send(&a.side, a.ep, &[], &a.other, (6, 0)).unwrap();
        transfer::expect_sent(&a.side, a.ep, (6, 0));
        let foreign = Error::handle(DAT_INVALID_HANDLE_EP);
        refuses_posts_of_connections(&b.side, b.ep, foreign);
        let disconnected = Err(Error::state(DAT_INVALID_STATE_EP_DISCONNECTED));
        assert_eq!(connect_to(&b.side, b.ep, (LOCALHOST, 1), b"", TEN_SECONDS), disconnected);
        disconnect(&b.side, b.ep);

        dat!(table, ep_reset_func(b.ep)).unwrap();
        assert_eq!(state(&b.side, b.ep), DAT_EP_STATE_UNCONNECTED);
        introduce((&a.side, a.ep), (&b.side, b.ep));
        send(&b.side, b.ep, &[], &b.other, (7, 0)).unwrap();
        transfer::expect_sent(&b.side, b.ep, (7, 0));
        a.side.close();
        b.side.close();
    }
}

#[test]
fn an_endpoint_keeps_its_service() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let (datagrams, connected) = (new_ep(&side), side.new_ep());
    let modify = |ep, service_type| {
        let mut param = DAT_EP_PARAM::zeroed();
        param.ep_attr.service_type = service_type;
        dat!(table, ep_modify_func(ep, DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE, &param))
    };
    let refused = Err(Error::of(DAT_MODEL_NOT_SUPPORTED));
    assert_eq!(modify(datagrams, DAT_SERVICE_TYPE_RC), refused);
    assert_eq!(modify(connected, DAT_IB_SERVICE_TYPE_UD), refused);
    assert_eq!(modify(datagrams, 7), refused);
    modify(datagrams, DAT_IB_SERVICE_TYPE_UD).unwrap();
    modify(connected, DAT_SERVICE_TYPE_RC).unwrap();
    let attr = DAT_EP_ATTR { service_type: 7, ..attributes() };
    assert_eq!(create(&side, &attr), refused.map(|()| null_mut()));
    side.close();
}

#[test]
fn the_arguments_of_a_connect_are_checked() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let ep = new_ep(&side);
    let long = [0; 257];
    assert_eq!(connect_to(&side, ep, (LOCALHOST, 1), &long, TEN_SECONDS), Err(Error::arg(5)));
    let Side { ia, pz, evd, .. } = side;
    let mut unready = null_mut();
    let attr = attributes();
    dat!(table, ep_create_func(ia, pz, evd, evd, null_mut(), &attr, &mut unready)).unwrap();
    let refused = Err(Error::state(DAT_INVALID_STATE_EP_EVD_CONNECT));
    assert_eq!(connect_to(&side, unready, (LOCALHOST, 1), b"", TEN_SECONDS), refused);
    side.close();
}
