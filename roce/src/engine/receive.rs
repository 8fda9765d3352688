//! Dispatches received packets: to a queue pair, to the connection manager, or to another adapter
//! of this address.

use std::net::SocketAddr;
use std::time::Instant;

use adapter::Slab;
use wire::cm::{Mad, Message, ServiceId};
use wire::rocev2::{Deth, Extension, Opcode, Packet};

use crate::cm_packet::GSI;
use crate::datagram_link::DatagramLinks;
use crate::link::Link;
use crate::listeners::Listeners;
use crate::local_address::LocalAddress;
use crate::packet_io::{check_unknown, dest_qpn};
use crate::resources::{EngineContext, EngineResources};
use crate::shared_port::{Origin, slot_of};
use crate::socket::Datagrams;

/// Processes the datagrams of one sender.
#[inline]
pub(super) fn receive_datagrams(
    cx: &mut EngineContext<'_>,
    (links, datagram_links): (&mut Slab<Link>, &mut DatagramLinks),
    listeners: &Listeners,
    datagrams: &Datagrams<'_>,
) {
    let (ours, from) = (cx.local_address.address(), datagrams.from);
    let mut of_peer = false;
    for (position, datagram) in datagrams.octets.chunks(datagrams.size).enumerate() {
        // The destination queue pair determines which ICRC the packet must have.
        let Some(qpn) = dest_qpn(datagram) else { continue };
        let index = cx.local_address.qpns.find(qpn);
        if let Some(link) = index.and_then(|index| datagram_links.get_mut(index)) {
            let EngineContext { local_address, resources, now } = cx;
            let place = (&mut **local_address, &mut **resources);
            link.receive_octets(place, datagrams, (position, datagram), *now);
            continue;
        }
        let link = index.and_then(|link| links.get_mut(link));
        let checked = match link {
            Some(link) => match link.peer(from, qpn) {
                Some(peer) => {
                    let last = &mut cx.local_address.last_source;
                    let checked = peer.check(ours, from, position, datagram, last);
                    of_peer |= checked.is_some();
                    checked
                }
                None => {
                    // The ICRC of other packets need not be checked, because nothing is done with
                    // them.
                    let packet = Some(datagram)
                        .filter(|datagram| datagram[0] == Opcode::CongestionNotification.code())
                        .and_then(|datagram| check_unknown(ours, from, position, datagram))
                        .and_then(|(octets, _)| Packet::parse(octets).ok());
                    receive_from_elsewhere(link, from, packet.as_ref(), cx.resources);
                    continue;
                }
            },
            // The queue pair number belongs to this adapter's slot, but no queue pair has it.
            None if qpn != GSI
                && slot_of(qpn) == cx.local_address.port.slot()
                && !cx.local_address.packet_io.is_captured() =>
            {
                continue;
            }
            None => check_unknown(ours, from, position, datagram),
        };
        let Some((octets, ip)) = checked else { continue };
        cx.local_address.packet_io.capture_received(cx.now, from, ip, datagram);
        let Ok(packet) = Packet::parse(octets) else { continue };
        match cx.local_address.qpns.find(qpn).and_then(|link| links.get_mut(link)) {
            Some(link) => {
                link.receive(cx, from, &packet);
                if datagrams.marked {
                    link.note_marked(cx, &packet);
                }
            }
            None => {
                let origin = Origin { from, marked: datagrams.marked };
                dispatch_other(cx, listeners, (origin, of_peer), octets, &packet)
            }
        }
    }
}

/// Handles a packet for a queue pair that is not from the port of its peer. A congestion
/// notification counts if it has the peer's address. All other packets are forged or late.
#[cold]
pub(super) fn receive_from_elsewhere(
    link: &mut Link,
    from: SocketAddr,
    packet: Option<&Packet<'_>>,
    resources: &mut EngineResources,
) {
    let is_notification =
        |packet: &&Packet<'_>| packet.bth.opcode == Opcode::CongestionNotification;
    match packet.filter(is_notification) {
        Some(packet) if link.is_peer_address(from.ip(), packet.bth.dest_qpn) => {
            link.receive_unproven_notification(packet);
        }
        _ => resources.foreign_packets += 1,
    }
}

/// Handles a packet that is not for a queue pair of this adapter. `of_peer` says that an earlier
/// packet of the same batch was a valid packet of a peer. All packets of a batch have the same
/// source address and port.
fn dispatch_other(
    cx: &mut EngineContext<'_>,
    listeners: &Listeners,
    (origin, of_peer): (Origin, bool),
    octets: &[u8],
    packet: &Packet<'_>,
) {
    let EngineContext { local_address, now, .. } = cx;
    let from = origin.from;
    let qpn = packet.bth.dest_qpn;
    if qpn != GSI {
        // The packet may be for a queue pair of another adapter, because the kernel may merge
        // packets for several adapters into one batch (GRO).
        let slot = slot_of(qpn);
        if slot != local_address.port.slot() {
            local_address.port.forward(slot, (origin, of_peer), octets, *now);
        }
        return;
    }
    let Ok(mad) = Mad::parse(packet.payload) else { return };
    let is_forwarded = match &mad.message {
        Message::Req(req) => {
            let here = req.service.tcp_port().is_some_and(|port| listeners.has_port(port))
                || local_address.cm.has_request(from.ip(), req);
            !here && local_address.port.forward_request(req.service.0, from, octets, *now)
        }
        // One listener takes both kinds of requests, so for both kinds the service ID of the TCP
        // port names the listener.
        Message::SidrReq(req) => {
            let port = req.service.udp_port();
            let here = port.is_none_or(|port| listeners.has_port(port))
                || local_address.sidr.has_request(from.ip(), mad.transaction, req);
            let service = ServiceId::tcp(port.unwrap_or_default());
            !here && local_address.port.forward_request(service.0, from, octets, *now)
        }
        // The message only probes whether a process has the port (see `host_probe`).
        Message::Drep(drep) if drep.remote_id == 0 => return,
        other => match slot_of(receiver_comm_id(other)) {
            slot if slot == local_address.port.slot() => false,
            slot => {
                local_address.port.forward(slot, (origin, of_peer), octets, *now);
                true
            }
        },
    };
    if !is_forwarded {
        receive_cm(local_address, from, octets, packet, *now);
    }
}

/// Passes a packet to the connection manager.
pub(super) fn receive_cm(
    local_address: &mut LocalAddress,
    from: SocketAddr,
    octets: &[u8],
    packet: &Packet<'_>,
    now: Instant,
) {
    let Extension::Deth(deth) = packet.extension else { return };
    if packet.bth.opcode == Opcode::DatagramSendOnly && deth.q_key == Deth::GSI_Q_KEY {
        // The request may have been handed over to another engine.
        if let Ok(Mad { message: Message::Req(req), .. }) = Mad::parse(packet.payload)
            && let Some(id) = local_address.cm.adopter(from.ip(), &req)
        {
            return local_address.port.forward(slot_of(id.0), (from.into(), false), octets, now);
        }
        let to = local_address.address().ip();
        if let Ok(mad @ Mad { message: Message::SidrReq(_) | Message::SidrRep(_), .. }) =
            Mad::parse(packet.payload)
        {
            return local_address.sidr.receive(now, from.ip(), to, &mad);
        }
        // Invalid messages are dropped.
        local_address.cm.receive(now, from.ip(), to, packet.payload).ok();
    }
}

/// Returns the communication id by which the receiver of a message knows the connection.
fn receiver_comm_id(message: &Message<'_>) -> u32 {
    match message {
        Message::Req(_) => 0,
        Message::Mra(mra) => mra.remote_id,
        Message::Rej(rej) => rej.remote_id,
        Message::Rep(rep) => rep.remote_id,
        Message::Rtu(rtu) => rtu.remote_id,
        Message::Dreq(dreq) => dreq.remote_id,
        Message::Drep(drep) => drep.remote_id,
        Message::SidrReq(sidr) => sidr.request_id,
        Message::SidrRep(sidr) => sidr.request_id,
    }
}
