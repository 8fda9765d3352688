//! Cases about endpoints for datagrams: how they find out their peers, and their states. No manual
//! page describes them. The sources are the header of OFED's extension 2.0.9 and the behaviour of
//! OFED's library 2.1.10 (docs/compatibility.md, Datagrams).

use dat_sys::ib::*;
use dat_sys::*;

use super::extension::{DATAGRAMS, needs};
use crate::case::{Row, must};
use crate::check::{Outcome, answers, answers_with, ensure, ensure_equal, ok};
use crate::rig::{Ep, Listener, PeerEvent, RequestEvent, Rig, to_port};

const HEADER: &str = "2.0.9, dat_ib_extensions.h: UD events";
const BEHAVIOUR: &str = "OFED 2.1.10: dat_ep_connect and dat_cr_accept of a UD endpoint";

pub(super) const CASES: &[Row] = &[
    must(
        "dat_extension_op/ud-service-type",
        "2.0.9, dat_ib_extensions.h: DAT_IB_SERVICE_TYPE_UD",
        "An endpoint with this service type can be created. It is unconnected, and its attributes \
         say what it is.",
        |rig| {
            needs(rig, DATAGRAMS)?;
            let ep = rig.datagram_ep()?;
            rig.state_is(ep.ep, DAT_EP_STATE_UNCONNECTED)?;
            let service_type = rig.query(ep.ep)?.ep_attr.service_type;
            ensure_equal("service_type", service_type, DAT_IB_SERVICE_TYPE_UD)?;
            ok(rig.api.dat_ep_free(ep.ep))
        },
    ),
    must(
        "dat_extension_op/ud-request",
        HEADER,
        "dat_ep_connect of an endpoint for datagrams becomes a DAT_IB_UD_CONNECTION_REQUEST_EVENT \
         at the service point, with its private data and its qualifier.",
        |rig| {
            let Asked { listener, request, .. } = asked(rig, b"who are you?")?;
            let RequestEvent { cr, sp, qualifier, .. } = request;
            ensure_equal(
                "the service point and its qualifier",
                (sp, qualifier),
                (listener.psp, listener.qualifier),
            )?;
            let mut param = DAT_CR_PARAM::zeroed();
            ok(rig.api.dat_cr_query(cr, DAT_CR_FIELD_ALL, &mut param))?;
            let private = crate::rig::private(param.private_data, param.private_data_size);
            arrived("the private data of the request", &private, b"who are you?")?;
            ensure(param.local_ep_handle.is_null(), "the request of a PSP has an endpoint")
        },
    ),
    must(
        "dat_extension_op/ud-established",
        HEADER,
        "After dat_cr_accept, both sides get a DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED. The active \
         side's has the type DAT_IB_UD_REMOTE_AH and the private data of the accept. The passive \
         side's has the type DAT_IB_UD_PASSIVE_REMOTE_AH and the private data of the request.",
        |rig| {
            let Asked { active, listener, request } = asked(rig, b"request")?;
            let passive = rig.datagram_ep()?;
            ok(rig.accept(request.cr, passive.ep, b"accept"))?;
            let near = rig.known_peer(active)?;
            let expected = (active.ep, DAT_IB_UD_REMOTE_AH, DAT_OP_SUCCESS);
            ensure_equal("the active event", (near.ep, near.kind, near.outcome), expected)?;
            arrived("the private data of the active event", &near.private, b"accept")?;
            let far = rig.known_peer(passive)?;
            let expected = (passive.ep, DAT_IB_UD_PASSIVE_REMOTE_AH, DAT_OP_SUCCESS);
            ensure_equal("the passive event", (far.ep, far.kind, far.outcome), expected)?;
            arrived("the private data of the passive event", &far.private, b"request")?;
            for PeerEvent { peer, .. } in [&near, &far] {
                ensure(!peer.ah.is_null(), "the address handle is NULL")?;
                ensure(peer.qpn >> 24 == 0, format_args!("the QPN is {:#x}", peer.qpn))?;
            }
            ensure(near.peer.qpn > 1, format_args!("the QPN is {:#x}", near.peer.qpn))?;
            if let Some(address) = to_port(&near.peer) {
                let port = u64::from(address.port());
                ensure_equal("the port of the peer", port, listener.qualifier)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_extension_op/ud-rejected",
        HEADER,
        "After dat_cr_reject, the active side gets a DAT_IB_UD_CONNECTION_REJECT_EVENT with the \
         private data of the call. Its endpoint can still find out peers.",
        |rig| {
            let Asked { active, request, .. } = asked(rig, b"")?;
            ok(rig.reject(request.cr, b"no, thank you"))?;
            let event = rig.peer_event(active)?;
            let expected = (DAT_IB_UD_CONNECTION_REJECT_EVENT, DAT_IB_UD_CONNECT_REJECT);
            ensure_equal("the event", (event.number, event.kind), expected)?;
            arrived("the private data", &event.private, b"no, thank you")?;
            rig.introduce(active, rig.datagram_ep()?).map(drop)
        },
    ),
    must(
        "dat_extension_op/ud-nobody-listens",
        HEADER,
        "If no service point has the qualifier, an event reports it. The endpoint can still find \
         out peers.",
        |rig| {
            needs(rig, DATAGRAMS)?;
            let ep = rig.datagram_ep()?;
            ok(rig.connect(ep.ep, rig.free_qualifier()?, b""))?;
            let event = rig.peer_event(ep)?;
            let expected = (DAT_IB_UD_CONNECTION_ERROR_EVENT, DAT_IB_UD_CONNECT_ERROR);
            ensure_equal("the event", (event.number, event.kind), expected)?;
            ensure_equal("the status", event.outcome, DAT_IB_OP_ERR)?;
            rig.introduce(ep, rig.datagram_ep()?).map(drop)
        },
    ),
    must(
        "dat_extension_op/ud-times-out",
        "2.0, dat_ep_connect: timeout",
        "A request that nobody answers in time ends with an event. The endpoint can still find out \
         peers.",
        |rig| {
            needs(rig, DATAGRAMS)?;
            let (ep, listener) = (rig.datagram_ep()?, rig.listen()?);
            ok(rig.connect_within(ep.ep, listener.qualifier, b"", 100_000))?;
            let event = rig.peer_event(ep)?;
            ensure_equal("the event", event.number, DAT_IB_UD_CONNECTION_ERROR_EVENT)?;
            rig.introduce(ep, rig.datagram_ep()?).map(drop)
        },
    ),
    must(
        "dat_extension_op/ud-many-peers",
        BEHAVIOUR,
        "One endpoint can find out many peers, and can answer many requests, also at the same time.",
        |rig| {
            const PEERS: usize = 8;
            needs(rig, DATAGRAMS)?;
            let one = rig.datagram_ep()?;
            let peers = (0..PEERS).map(|_| rig.datagram_ep()).collect::<Outcome<Vec<_>>>()?;
            let (here, there) = (rig.listen()?, rig.listen()?);
            for (n, peer) in peers.iter().enumerate() {
                ok(rig.connect(one.ep, there.qualifier, &[n as u8 + 1]))?;
                ok(rig.connect(peer.ep, here.qualifier, &[n as u8 + 1]))?;
            }
            for peer in &peers {
                ok(rig.accept(rig.datagram_request(there.evd)?.cr, peer.ep, b""))?;
                ok(rig.accept(rig.datagram_request(here.evd)?.cr, one.ep, b""))?;
            }
            let mut kinds = [0; 2];
            for _ in 0..2 * PEERS {
                let passive = rig.known_peer(one)?.kind == DAT_IB_UD_PASSIVE_REMOTE_AH;
                kinds[usize::from(passive)] += 1;
            }
            ensure_equal("the active and passive events", kinds, [PEERS; 2])?;
            for peer in peers {
                rig.known_peer(peer)?;
                rig.known_peer(peer)?;
            }
            rig.expect_no_event(one.connect)
        },
    ),
    must(
        "dat_extension_op/ud-states",
        BEHAVIOUR,
        "dat_ep_connect makes an endpoint for datagrams active, dat_cr_accept makes it completion \
         pending, each from both states. An event about a peer does not change the state.",
        |rig| {
            let Asked { active, listener, request } = asked(rig, b"")?;
            let passive = rig.datagram_ep()?;
            let (asks, has_answered) =
                (DAT_EP_STATE_ACTIVE_CONNECTION_PENDING, DAT_EP_STATE_COMPLETION_PENDING);
            rig.state_is(active.ep, asks)?;
            ok(rig.accept(request.cr, passive.ep, b""))?;
            for (ep, state) in [(active, asks), (passive, has_answered)] {
                rig.known_peer(ep)?;
                rig.state_is(ep.ep, state)?;
            }
            ok(rig.connect(passive.ep, listener.qualifier, b""))?;
            rig.state_is(passive.ep, asks)?;
            ok(rig.accept(rig.datagram_request(listener.evd)?.cr, active.ep, b""))?;
            rig.state_is(active.ep, has_answered)
        },
    ),
    must(
        "dat_extension_op/ud-disconnect",
        BEHAVIOUR,
        "dat_ep_disconnect of an endpoint for datagrams succeeds in every state, and has no effect.",
        |rig| {
            needs(rig, DATAGRAMS)?;
            let unconnected = rig.datagram_ep()?;
            let pair = rig.datagram_pair()?;
            for ep in [unconnected, pair.active, pair.passive] {
                let before = rig.state(ep.ep)?;
                for how in [DAT_CLOSE_GRACEFUL_FLAG, DAT_CLOSE_ABRUPT_FLAG] {
                    ok(rig.api.dat_ep_disconnect(ep.ep, how))?;
                    rig.state_is(ep.ep, before)?;
                }
                rig.expect_no_event(ep.connect)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_extension_op/ud-reset",
        BEHAVIOUR,
        "dat_ep_reset of an endpoint for datagrams has no effect while the endpoint is \
         unconnected. It is refused after a connect or accept.",
        |rig| {
            needs(rig, DATAGRAMS)?;
            ok(rig.api.dat_ep_reset(rig.datagram_ep()?.ep))?;
            let pair = rig.datagram_pair()?;
            for (ep, subtype) in [
                (pair.active, DAT_INVALID_STATE_EP_ACTCONNPENDING),
                (pair.passive, DAT_INVALID_STATE_EP_COMPLPENDING),
            ] {
                answers_with(rig.api.dat_ep_reset(ep.ep), DAT_INVALID_STATE, subtype)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_extension_op/ud-accept-wrong-service",
        "OFED 2.1.10: DAT_INVALID_HANDLE of dat_cr_accept",
        "A request of one service cannot be accepted with an endpoint of the other one. It can \
         still be accepted with another endpoint.",
        |rig| {
            let Asked { active, listener, request } = asked(rig, b"")?;
            let (datagrams, connected) = (rig.datagram_ep()?, rig.ep()?);
            answers(rig.accept(request.cr, connected.ep, b""), DAT_INVALID_HANDLE)?;
            ok(rig.accept(request.cr, datagrams.ep, b""))?;
            rig.known_peer(active)?;
            let caller = rig.ep()?;
            ok(rig.connect(caller.ep, listener.qualifier, b""))?;
            let request = rig.request_event(listener.evd)?;
            answers(rig.accept(request.cr, datagrams.ep, b""), DAT_INVALID_HANDLE)?;
            ok(rig.accept(request.cr, connected.ep, b""))?;
            rig.connection(caller.connect, DAT_CONNECTION_EVENT_ESTABLISHED).map(drop)
        },
    ),
    must(
        "dat_extension_op/ud-rsp",
        BEHAVIOUR,
        "A reserved service point with an endpoint for datagrams answers with this endpoint.",
        |rig| {
            needs(rig, DATAGRAMS)?;
            let (active, reserved) = (rig.datagram_ep()?, rig.datagram_ep()?);
            let (evd, qualifier) = (rig.evd(DAT_EVD_CR_FLAG)?, rig.free_qualifier()?);
            let mut rsp = DAT_HANDLE_NULL;
            crate::check::supported(rig.api.dat_rsp_create(
                rig.ia,
                qualifier,
                reserved.ep,
                evd,
                &mut rsp,
            ))?;
            ok(rig.connect(active.ep, qualifier, b"request"))?;
            let request = rig.datagram_request(evd)?;
            rig.state_is(reserved.ep, DAT_EP_STATE_PASSIVE_CONNECTION_PENDING)?;
            ok(rig.accept(request.cr, DAT_HANDLE_NULL, b"accept"))?;
            arrived("the accept's private data", &rig.known_peer(active)?.private, b"accept")?;
            let event = rig.known_peer(reserved)?;
            arrived("the request's private data", &event.private, b"request")
        },
    ),
    must(
        "dat_extension_op/ud-cm-free",
        "2.0.9, dat_ib_extensions.h: dat_ib_ud_cm_free",
        "dat_ib_ud_cm_free frees what an event about a peer names. The address handle stays valid. \
         The operation refuses an endpoint for connections.",
        |rig| {
            let Asked { active, request, .. } = asked(rig, b"request")?;
            let passive = rig.datagram_ep()?;
            ok(rig.accept(request.cr, passive.ep, b""))?;
            for ep in [active, passive] {
                let event = rig.known_peer(ep)?;
                ok(free_private(rig, ep.ep, event.context))?;
                ok(super::datagram_posts::send(rig, ep.ep, &[], &event.peer, 1, 0))?;
                rig.expect(ep.request, DAT_IB_DTO_EVENT)?;
            }
            for other in [rig.ep()?.ep, rig.pz()?, DAT_HANDLE_NULL] {
                answers(free_private(rig, other, 1), DAT_INVALID_HANDLE)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_extension_op/ud-ah-free",
        "2.0.9, dat_ib_extensions.h: dat_ib_ud_ah_free",
        "dat_ib_ud_ah_free frees an address handle, which dat_ep_free otherwise does. The other \
         address handles of the endpoint stay valid. The operation refuses an endpoint for \
         connections.",
        |rig| {
            needs(rig, DATAGRAMS)?;
            let pair = rig.datagram_pair()?;
            let active = pair.active;
            let [again, _] = rig.introduce(active, pair.passive)?;
            answers(free_address(rig, rig.ep()?.ep, &again), DAT_INVALID_HANDLE)?;
            ok(free_address(rig, active.ep, &again))?;
            ok(super::datagram_posts::send(rig, active.ep, &[], &pair.to_passive, 1, 0))?;
            rig.expect(active.request, DAT_IB_DTO_EVENT)?;
            answers(free_address(rig, DAT_HANDLE_NULL, &pair.to_passive), DAT_INVALID_HANDLE)?;
            ok(rig.api.dat_ep_free(active.ep))?;
            ok(rig.api.dat_ep_free(pair.passive.ep))
        },
    ),
    must(
        "dat_extension_op/ud-freed-twice",
        "2.0, dat_ep_free: DAT_INVALID_HANDLE",
        "An address handle and a context are freed once.",
        |rig| {
            needs(rig, DATAGRAMS)?;
            let Asked { active, request, .. } = asked(rig, b"")?;
            ok(rig.accept(request.cr, rig.datagram_ep()?.ep, b""))?;
            let event = rig.known_peer(active)?;
            ok(free_private(rig, active.ep, event.context))?;
            answers(free_private(rig, active.ep, event.context), DAT_INVALID_HANDLE)?;
            ok(free_address(rig, active.ep, &event.peer))?;
            answers(free_address(rig, active.ep, &event.peer), DAT_INVALID_PARAMETER)
        },
    ),
];

/// An endpoint for datagrams that has asked a service point.
struct Asked {
    active: Ep,
    listener: Listener,
    request: RequestEvent,
}

fn asked(rig: &Rig, private: &[u8]) -> Outcome<Asked> {
    needs(rig, DATAGRAMS)?;
    let (active, listener) = (rig.datagram_ep()?, rig.listen()?);
    ok(rig.connect(active.ep, listener.qualifier, private))?;
    let request = rig.datagram_request(listener.evd)?;
    Ok(Asked { active, listener, request })
}

fn free_private(rig: &Rig, ep: DAT_EP_HANDLE, context: u64) -> DAT_RETURN {
    rig.api.dat_extension_op(ep, DAT_IB_UD_CM_FREE_OP, [context, 0, 0, 0, 0, 0])
}

fn free_address(rig: &Rig, ep: DAT_EP_HANDLE, address: &DAT_IB_ADDR_HANDLE) -> DAT_RETURN {
    let words = [super::extension::word(address), 0, 0, 0, 0, 0];
    rig.api.dat_extension_op(ep, DAT_IB_UD_AH_FREE_OP, words)
}

/// Checks that private data have arrived. A wire whose field for private data has a fixed length
/// may append zeros.
#[track_caller]
fn arrived(what: &str, private: &[u8], sent: &[u8]) -> Outcome {
    let (start, rest) = private.split_at_checked(sent.len()).unwrap_or((private, &[1]));
    let is_same = start == sent && rest.iter().all(|&octet| octet == 0);
    ensure(is_same, format_args!("{what}: {private:?}, not {sent:?}"))
}
