//! Creates an endpoint and brings it into a given state.

use std::ptr::null_mut;

use dat_sys::*;

use crate::check::{Outcome, failed, ok, supported, unsupported};
use crate::rig::{Ep, Rig};

/// The states of endpoints that have no protection zone.
pub(in crate::cases) const WITHOUT_ZONE: [DAT_EP_STATE; 4] = [
    DAT_EP_STATE_UNCONFIGURED_UNCONNECTED,
    DAT_EP_STATE_UNCONFIGURED_RESERVED,
    DAT_EP_STATE_UNCONFIGURED_PASSIVE,
    DAT_EP_STATE_UNCONFIGURED_TENTATIVE,
];

/// Returns a new endpoint in this state.
pub(in crate::cases) fn reach(rig: &Rig, state: DAT_EP_STATE) -> Outcome<Ep> {
    let ep = match state {
        DAT_EP_STATE_UNCONNECTED => rig.ep()?,
        DAT_EP_STATE_UNCONFIGURED_UNCONNECTED => unconfigured(rig)?,
        DAT_EP_STATE_RESERVED => reserved(rig, rig.ep()?)?.0,
        DAT_EP_STATE_UNCONFIGURED_RESERVED => reserved(rig, unconfigured(rig)?)?.0,
        DAT_EP_STATE_PASSIVE_CONNECTION_PENDING => passive(rig, rig.ep()?)?,
        DAT_EP_STATE_UNCONFIGURED_PASSIVE => passive(rig, unconfigured(rig)?)?,
        DAT_EP_STATE_ACTIVE_CONNECTION_PENDING => rig.request(b"")?.0,
        DAT_EP_STATE_UNCONFIGURED_TENTATIVE => tentative(rig)?,
        DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING => configured(rig, tentative(rig)?)?,
        DAT_EP_STATE_CONNECTED => connected(rig)?,
        DAT_EP_STATE_DISCONNECT_PENDING => disconnecting(rig)?,
        DAT_EP_STATE_DISCONNECTED => rig.ended_pair()?.active,
        DAT_EP_STATE_COMPLETION_PENDING => completing(rig)?,
        _ => return several_paths(rig, state),
    };
    match rig.state(ep.ep)? {
        is if is == state => Ok(ep),
        is => Err(failed(format_args!("the EP is in state {is}, not in {state}"))),
    }
}

/// Returns an endpoint without a zone. If the provider does not support such endpoints, the case is
/// unsupported.
fn unconfigured(rig: &Rig) -> Outcome<Ep> {
    let mut ep = rig.evds_of_an_ep()?;
    let (none, attr) = (DAT_HANDLE_NULL, rig.ep_attr());
    let Ep { recv, request, connect, .. } = ep;
    match rig.api.dat_ep_create(rig.ia, none, recv, request, connect, &attr, &mut ep.ep) {
        DAT_SUCCESS => Ok(ep),
        _ => unsupported("the provider does not support EPs without a zone"),
    }
}

/// Returns an endpoint that is reserved for an RSP, and the qualifier and the EVD of the RSP.
fn reserved(rig: &Rig, ep: Ep) -> Outcome<(Ep, DAT_CONN_QUAL, DAT_EVD_HANDLE)> {
    let (evd, qualifier, mut rsp) = (rig.evd(DAT_EVD_CR_FLAG)?, rig.free_qualifier()?, null_mut());
    ok(rig.api.dat_rsp_create(rig.ia, qualifier, ep.ep, evd, &mut rsp))?;
    Ok((ep, qualifier, evd))
}

/// Returns an endpoint whose RSP has got a connection request.
fn passive(rig: &Rig, ep: Ep) -> Outcome<Ep> {
    let (ep, qualifier, evd) = reserved(rig, ep)?;
    let caller = rig.ep()?;
    ok(rig.connect(caller.ep, qualifier, b""))?;
    rig.request_event(evd)?;
    Ok(ep)
}

/// Returns an endpoint that the provider has created for a connection request. It has no zone and
/// no EVDs yet.
fn tentative(rig: &Rig) -> Outcome<Ep> {
    if rig.provider.ep_creator == DAT_PSP_CREATES_EP_NEVER {
        return unsupported("the provider attribute ep_creator is DAT_PSP_CREATES_EP_NEVER");
    }
    let listener = rig.listen_for(DAT_PSP_PROVIDER_FLAG, 8)?;
    let caller = rig.ep()?;
    ok(rig.connect(caller.ep, listener.qualifier, b""))?;
    let arrival = rig.request_event(listener.evd)?;
    let mut param = DAT_CR_PARAM::zeroed();
    ok(rig.api.dat_cr_query(arrival.cr, DAT_CR_FIELD_ALL, &mut param))?;
    Ok(Ep { ep: param.local_ep_handle, ..rig.evds_of_an_ep()? })
}

/// Sets the zone and the EVDs of an endpoint.
fn configured(rig: &Rig, ep: Ep) -> Outcome<Ep> {
    let param = DAT_EP_PARAM {
        pz_handle: rig.pz()?,
        recv_evd_handle: ep.recv,
        request_evd_handle: ep.request,
        connect_evd_handle: ep.connect,
        ..DAT_EP_PARAM::zeroed()
    };
    let mask = DAT_EP_FIELD_PZ_HANDLE
        | DAT_EP_FIELD_RECV_EVD_HANDLE
        | DAT_EP_FIELD_REQUEST_EVD_HANDLE
        | DAT_EP_FIELD_CONNECT_EVD_HANDLE;
    ok(rig.api.dat_ep_modify(ep.ep, mask, &param))?;
    Ok(ep)
}

/// Returns a connected endpoint whose peer has posted receives.
fn connected(rig: &Rig) -> Outcome<Ep> {
    let (pair, memory) = (rig.pair()?, rig.memory(64)?);
    ok(rig.recv(pair.passive.ep, &[memory.all()], 0))?;
    Ok(pair.active)
}

/// Returns an endpoint that is disconnecting gracefully. The disconnect cannot finish, because the
/// process of the peer is stopped and has not answered an RDMA read.
fn disconnecting(rig: &Rig) -> Outcome<Ep> {
    let ((ep, peer), memory) = (rig.pair_with_peer_process()?, rig.memory(64)?);
    peer.stop_process()?;
    let remote = DAT_RMR_TRIPLET { segment_length: memory.length, ..peer.memory };
    ok(rig.read(ep.ep, &[memory.all()], 0, &remote))?;
    ok(rig.api.dat_ep_disconnect(ep.ep, DAT_CLOSE_GRACEFUL_FLAG))?;
    rig.keep(peer);
    Ok(ep)
}

/// Returns an endpoint that has accepted a connection request. The process that connects is
/// stopped, so it does not confirm the connection.
fn completing(rig: &Rig) -> Outcome<Ep> {
    let ((_, mut peer), listener, ep) = (rig.pair_with_peer_process()?, rig.listen()?, rig.ep()?);
    peer.connect(listener.qualifier)?;
    let arrival = rig.request_event(listener.evd)?;
    peer.stop_process()?;
    ok(rig.accept(arrival.cr, ep.ep, b""))?;
    rig.keep(peer);
    Ok(ep)
}

/// Returns an endpoint in one of the two connected states of multi-path: over one path, or over
/// several.
fn several_paths(rig: &Rig, state: DAT_EP_STATE) -> Outcome<Ep> {
    if rig.provider.supports_multipath == DAT_FALSE {
        return unsupported("the provider attribute supports_multipath is false");
    }
    let flags = match state {
        DAT_EP_STATE_CONNECTED_MULTI_PATH => DAT_CONNECT_MULTIPATH_REQUIRED_FLAG,
        _ => DAT_CONNECT_MULTIPATH_REQUESTED_FLAG,
    };
    let (active, passive, listener, qos) =
        (rig.ep()?, rig.ep()?, rig.listen()?, DAT_QOS_BEST_EFFORT);
    let (address, timeout) = (rig.attr.ia_address_ptr, crate::rig::event_timeout_us());
    let answer = rig.api.dat_ep_connect(
        active.ep,
        address,
        listener.qualifier,
        timeout,
        0,
        null_mut(),
        qos,
        flags,
    );
    supported(answer)?;
    ok(rig.accept(rig.request_event(listener.evd)?.cr, passive.ep, b""))?;
    rig.connection(active.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
    match rig.state(active.ep)? {
        is if is == state => Ok(active),
        is => unsupported(format_args!("a connection with these flags is in state {is}")),
    }
}
