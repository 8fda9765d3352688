//! Whose a packet is that has come: a queue pair's, the connection manager's, or another adapter's of this address.

use std::net::SocketAddr;
use std::time::Instant;

use adapter::Table;
use wire::cm::{Mad, Message};
use wire::rocev2::{Deth, Extension, Opcode, Packet};

use crate::calls::Calls;
use crate::line::check_strangers;
use crate::link::{Link, Tools};
use crate::port::slot_of;
use crate::socket::Datagrams;
use crate::station::{GSI, Station};

/// Takes in what one sender sent.
#[inline]
pub(super) fn take_in(
    tools: &mut Tools<'_>,
    links: &mut Table<Link>,
    calls: &Calls,
    datagrams: &Datagrams<'_>,
) {
    let (ours, from) = (tools.station.address(), datagrams.from);
    let mut of_peer = false;
    for (place, datagram) in datagrams.octets.chunks(datagrams.size).enumerate() {
        // Who it claims to be for says whose checksum it should have.
        let Some(qpn) = dest_qpn(datagram) else { continue };
        let link = tools.station.qpns.find(qpn).and_then(|link| links.get_mut(link));
        let checked = match link {
            Some(link) => match link.peer(from, qpn) {
                Some(peer) => {
                    let checked = peer.check(ours, from, place, datagram);
                    of_peer |= checked.is_some();
                    checked
                }
                // Not from its peer: forged, or late.
                None => {
                    tools.kit.foreign += 1;
                    continue;
                }
            },
            // No queue pair of this adapter has the number.
            None if qpn != GSI
                && slot_of(qpn) == tools.station.port.slot()
                && !tools.station.line.is_captured() =>
            {
                continue;
            }
            None => check_strangers(ours, from, place, datagram),
        };
        let Some((octets, ip)) = checked else { continue };
        tools.station.line.received(tools.now, from, ip, datagram);
        let Ok(packet) = Packet::parse(octets) else { continue };
        match tools.station.qpns.find(qpn).and_then(|link| links.get_mut(link)) {
            Some(link) => link.receive(tools, from, &packet),
            None => stray(tools, calls, (from, of_peer), octets, &packet),
        }
    }
}

/// A packet that is not for a queue pair of this adapter. `of_peer` says that its batch begins with
/// a valid packet of a peer, which has the same source port.
fn stray(
    tools: &mut Tools<'_>,
    calls: &Calls,
    (from, of_peer): (SocketAddr, bool),
    octets: &[u8],
    packet: &Packet<'_>,
) {
    let Tools { station, now, .. } = tools;
    let qpn = packet.bth.dest_qpn;
    if qpn != GSI {
        // The kernel put packets of several queue pairs into one batch.
        let slot = slot_of(qpn);
        if slot != station.port.slot() {
            station.port.forward(slot, (from, of_peer), octets, *now);
        }
        return;
    }
    let Ok(mad) = Mad::parse(packet.payload) else { return };
    let elsewhere = match &mad.message {
        Message::Req(req) => {
            let here = req.service.tcp_port().is_some_and(|port| calls.has(port));
            !here && station.port.forward_request(req.service.0, from, octets, *now)
        }
        // Somebody asks whether anybody has the port.
        Message::Drep(drep) if drep.remote_id == 0 => return,
        other => match slot_of(receivers_id(other)) {
            slot if slot == station.port.slot() => false,
            slot => {
                station.port.forward(slot, (from, of_peer), octets, *now);
                true
            }
        },
    };
    if !elsewhere {
        manage(station, from, packet, *now);
    }
}

/// A packet for the connection manager.
pub(super) fn manage(station: &mut Station, from: SocketAddr, packet: &Packet<'_>, now: Instant) {
    let Extension::Deth(deth) = packet.extension else { return };
    if packet.bth.opcode == Opcode::DatagramSendOnly && deth.q_key == Deth::GSI_Q_KEY {
        let to = station.address().ip();
        // What makes no sense is dropped.
        station.cm.receive(now, from.ip(), to, packet.payload).ok();
    }
}

/// By what its receiver knows the connection that a message is about.
fn receivers_id(message: &Message<'_>) -> u32 {
    match message {
        Message::Req(_) => 0,
        Message::Mra(mra) => mra.remote_id,
        Message::Rej(rej) => rej.remote_id,
        Message::Rep(rep) => rep.remote_id,
        Message::Rtu(rtu) => rtu.remote_id,
        Message::Dreq(dreq) => dreq.remote_id,
        Message::Drep(drep) => drep.remote_id,
    }
}

/// The queue pair that a packet is for, before anything else of it has been looked at.
#[inline]
pub(super) fn dest_qpn(packet: &[u8]) -> Option<u32> {
    let &[_, high, middle, low] = packet.get(4..)?.first_chunk()?;
    Some(u32::from_be_bytes([0, high, middle, low]))
}
