//! Reads the sockets of an engine. Decides how often each socket is read.

use std::time::Instant;

use adapter::MakeProgress;
use mio::Interest;
use wire::rocev2::Packet;

use super::Engine;
use super::receive::{receive_cm, receive_datagrams, receive_from_elsewhere};
use crate::cm_packet::GSI;
use crate::delayed_ack::ACK_DELAY_MAX;
use crate::host_probe::{Answer, HostProbe};
use crate::local_address::LocalAddress;
use crate::owner::Owner;
use crate::packet_io::dest_qpn;
use crate::resources::{EngineContext, SocketKey};
use crate::shared_port::{LocalMessage, Origin};
use crate::socket::ReceiveStrategy;

/// The number of reads of one socket before other sockets have their turn.
const READS_PER_TURN: usize = 16;
/// The number of reads of a flooded REQ socket before other sockets have their turn. At
/// eight datagrams each, these reads return about as many datagrams as the socket's buffer holds.
const READS_PER_FLOODED_TURN: usize = 32;
/// After this number of octets, a read looks at the clock. If the acknowledgements of the packets
/// so far are due, it does not keep them back until the end.
const OCTETS_PER_CLOCK_READ: usize = 32 << 10;

impl Engine {
    /// Returns all sockets to the poller that have left it.
    pub(super) fn resume_sockets(&mut self) {
        for (index, local_address) in self.local_addresses.iter_mut().enumerate() {
            if local_address.take_suspended() {
                // The poller has room for the socket, because the socket was registered before.
                let key = SocketKey::Socket(index);
                self.resources
                    .context
                    .resume(key, &local_address.port.socket, Interest::READABLE)
                    .ok();
            }
        }
    }

    /// Whether a pass must run `advance` before it reads sockets.
    #[inline]
    pub(super) fn has_pending_work(&self) -> bool {
        let Engine { local_addresses, resources, unread, .. } = self;
        // The consumer has had time to answer the packets of the last pass. If it has not answered,
        // the acknowledgements of these packets are due.
        resources.has_pending_work()
            || local_addresses.iter().any(|of| of.packet_io.has_too_long())
            || !unread.is_empty()
    }

    /// Reads a socket once. Returns whether it found a packet.
    #[inline]
    pub(super) fn read(&mut self, key: SocketKey, now: impl FnOnce() -> Instant) -> bool {
        let (index, is_req_socket) = match key {
            SocketKey::ReqSocket(index) => (index, true),
            SocketKey::Socket(index) => (index, false),
            _ => return false,
        };
        let Engine { local_addresses, rx, .. } = self;
        let Some(local_address) = local_addresses.get_mut(index) else { return false };
        let found = match is_req_socket {
            false => local_address.port.socket.receive(rx, &mut local_address.receive_strategy),
            true => {
                local_address.port.req_socket.receive(rx, &mut ReceiveStrategy::for_shared_socket())
            }
        };
        if !found {
            return false;
        }
        let mut now = now();
        self.acknowledge_due(now);
        let mut unanswered = 0;
        for n in 0..self.rx.len() {
            if unanswered >= OCTETS_PER_CLOCK_READ {
                unanswered = 0;
                let later = Instant::now();
                if later >= now + ACK_DELAY_MAX {
                    self.finish_read(index, now);
                    self.acknowledge_due(later);
                    now = later;
                }
            }
            let Engine { local_addresses, links, datagram_links, resources, listeners, rx, .. } =
                self;
            let Some(datagrams) = rx.get(n) else { continue };
            unanswered += datagrams.octets.len();
            let local_address = &mut local_addresses[index];
            receive_datagrams(
                &mut EngineContext { local_address, resources, now },
                (links, datagram_links),
                listeners,
                &datagrams,
            );
        }
        self.finish_read(index, now);
        true
    }

    /// Reads the REQ socket after the poller has reported it.
    pub(super) fn read_req_socket(&mut self, index: usize, now: Instant) {
        let key = SocketKey::ReqSocket(index);
        let emptied = (0..READS_PER_TURN).any(|_| !self.read(key, || now));
        let Engine { local_addresses, resources, .. } = self;
        let Some(LocalAddress { req_pacing, port, .. }) = local_addresses.get_mut(index) else {
            return;
        };
        if req_pacing.report(emptied, now) {
            // If the socket cannot be removed from the poller, the engine reads it after the
            // poller's reports and also at the paced times.
            resources.context.suspend(&port.req_socket).ok();
            req_pacing.begin(now);
        }
    }

    /// Reads a REQ socket that is not in the poller.
    pub(super) fn read_flooded_req_socket(&mut self, index: usize, now: Instant) {
        let (mut found, key) = (0, SocketKey::ReqSocket(index));
        for _ in 0..READS_PER_FLOODED_TURN {
            if !self.read(key, || now) {
                break;
            }
            found += self.rx.len();
        }
        let Engine { local_addresses, resources, .. } = self;
        let LocalAddress { req_pacing, port, .. } = &mut local_addresses[index];
        // The interval until the next read starts at the end of this read, so that the whole
        // interval is available for connections.
        if req_pacing.after_read(found, Instant::now())
            && resources.context.rename(key, &port.req_socket, Interest::READABLE).is_ok()
        {
            req_pacing.end();
        }
    }

    /// Reads a socket until it is empty or its turn ends.
    pub(super) fn read_all(&mut self, key: SocketKey) {
        for _ in 0..READS_PER_TURN {
            if !self.read(key, Instant::now) {
                return;
            }
        }
        if !self.unread.contains(&key) {
            self.unread.push(key);
        }
    }

    /// Finishes a read: lets each queue pair that received packets respond, handles the events of
    /// the connection manager, and sends the gathered packets.
    #[inline]
    pub(super) fn finish_read(&mut self, index: usize, now: Instant) {
        let Engine { local_addresses, links, resources, .. } = self;
        let local_address = &mut local_addresses[index];
        while let Some(link) = resources.take_received() {
            if let Some(link) = links.get_mut(link) {
                link.after_receive(&mut EngineContext { local_address, resources, now });
                self.partial = link.is_mid_message();
            }
        }
        self.process_cm_events(index, now);
        self.flush();
    }

    /// Reads messages of other adapters.
    pub(super) fn read_local_messages(&mut self, key: SocketKey, now: Instant) {
        let mut receive_buffer = std::mem::take(&mut self.receive_buffer);
        let local_address = loop {
            let Engine { local_addresses, listeners, .. } = self;
            let (local_address, local_socket) = match key {
                SocketKey::LocalSocket(local_address) => (
                    local_address,
                    local_addresses.get(local_address).map(|s| &s.port.local_socket),
                ),
                SocketKey::Service { listener, local_address } => {
                    let services =
                        listeners.get_mut(listener).map_or(&[][..], |listener| &listener.services);
                    (
                        local_address,
                        services
                            .iter()
                            .find(|(at, _)| *at == local_address)
                            .map(|(_, s)| &s.local_socket),
                    )
                }
                _ => return,
            };
            let message = local_socket
                .and_then(|local_socket| local_socket.receive(&mut receive_buffer).ok().flatten());
            match message {
                None => break local_address,
                Some(LocalMessage::SocketRequest(request)) => {
                    local_addresses[local_address].port.send_shared_sockets(&request)
                }
                Some(LocalMessage::Packet { origin: Origin { from, marked }, packet: octets }) => {
                    let Some((qpn, packet)) = dest_qpn(octets).zip(Packet::parse(octets).ok())
                    else {
                        continue;
                    };
                    let Engine { local_addresses, links, datagram_links, resources, .. } = self;
                    let local_address = &mut local_addresses[local_address];
                    let index = local_address.qpns.find(qpn);
                    if let Some(link) = index.and_then(|index| datagram_links.get_mut(index)) {
                        let ours = local_address.address().ip();
                        link.receive((ours, from, octets.len()), &packet, resources);
                        continue;
                    }
                    let link = index.and_then(|link| links.get_mut(link));
                    match link {
                        Some(link) => match link.peer(from, qpn) {
                            Some(_) => {
                                let cx = &mut EngineContext { local_address, resources, now };
                                link.receive(cx, from, &packet);
                                if marked {
                                    link.note_marked(cx, &packet);
                                }
                            }
                            None => receive_from_elsewhere(link, from, Some(&packet), resources),
                        },
                        None if qpn == GSI => receive_cm(local_address, from, octets, &packet, now),
                        _ => {}
                    }
                }
            }
        };
        self.receive_buffer = receive_buffer;
        if local_address < self.local_addresses.len() {
            self.finish_read(local_address, now);
        }
    }

    /// Reads the answers to host probes. A host reports that no process has the port, or that the
    /// host is up.
    pub(super) fn read_host_answers(&mut self, index: usize, now: Instant) {
        let Engine { local_addresses, links, resources, .. } = self;
        let Some(local_address) = local_addresses.get_mut(index) else { return };
        let answers = local_address.host_probe.as_ref().map_or(Vec::new(), HostProbe::answers);
        for answer in answers {
            let refusal = match answer {
                Answer::Refused(refusal) => refusal,
                Answer::Unresolvable(host, id) => {
                    local_address.sidr.unreachable(id, host);
                    continue;
                }
                Answer::HostUp(host, nonce) => {
                    local_address.hosts.lock().note_answer(host, nonce, now);
                    continue;
                }
            };
            let link = match local_address.owner(refusal.id) {
                Some(Owner::Link(link)) => links.get_mut(link),
                _ => None,
            };
            match link.filter(|link| link.conn() == Some(refusal.id)) {
                Some(link) if link.matches_refusal(&refusal) => {
                    link.on_port_refused(&mut EngineContext { local_address, resources, now });
                }
                Some(_) => {}
                // The connection has no queue pair any more, but its DREQ may still wait for an
                // answer.
                None => local_address.cm.unreachable(now, refusal.id),
            }
        }
        self.process_cm_events(index, now);
    }
}
