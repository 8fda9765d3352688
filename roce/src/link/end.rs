//! How connections end.
//!
//! The side that closes a connection does not wait for more messages. It completes all posted work,
//! sends a DREQ, and continues to answer repeated requests ([`Disconnecting`]) until the DREP
//! arrives. The side that receives the DREQ repeats the requests in flight until they are settled
//! ([`ReliableConnection::start_peer_close`](rnic::ReliableConnection::start_peer_close)),
//! completes all posted work, and sends the DREP. So a request that was carried out is not reported
//! as lost only because its acknowledgement was lost.

use rnic::cm::Ending;
use rnic::rc::{Failure, OldestPacket, RepeatedRead};
use wire::rocev2::{Icrc, Psn};
use work::Close;
use work::cause::Cause;

use super::disconnecting::Disconnecting;
use super::established::{Established, Sends};
use super::{Conn, Link, Phase};
use crate::local_address::LocalAddress;
use crate::packet_io::{TooLong, ip_packet_len};
use crate::resources::{EngineContext, EngineEvent};

/// The reason for which a connection ends.
pub(super) enum End {
    /// The consumer of this side disconnects.
    Local(Close),
    /// The peer has disconnected.
    Peer,
    /// The queue pair failed, and has reported the cause.
    Failed(Failure),
    /// The connection broke for a cause that the queue pair does not know.
    Broken(Cause),
    /// The peer never confirmed the acceptance.
    NotAccepted,
}

impl End {
    /// The cause for the program, if the queue pair has not reported it. `reported` says whether
    /// the consumer knows that the connection is established, and `closing` whether it has
    /// disconnected.
    fn cause(&self, reported: bool, closing: bool) -> Option<Cause> {
        match self {
            End::Local(_) => Some(Cause::Disconnected { by_peer: false }),
            End::Failed(_) => None,
            _ if !reported => Some(Cause::AcceptFailed),
            End::Peer | End::NotAccepted => Some(Cause::Disconnected { by_peer: !closing }),
            End::Broken(cause) => Some(cause.clone()),
        }
    }
}

/// The disconnect of the peer.
#[derive(Clone, Copy)]
pub(super) struct PeerDisconnect {
    /// Whether the peer reports that the connection broke on its side.
    pub(super) broke: bool,
}

impl Established {
    /// Returns how a failure of the queue pair ends the connection.
    pub(super) fn end_by_failure(&self, failure: Failure) -> End {
        match failure {
            Failure::PathMtu => {
                let len = match self.rc.oldest_packet() {
                    Some(OldestPacket::Request(len) | OldestPacket::Response(len)) => len,
                    None => 0,
                };
                let octets = self.ip_packet_len(len);
                End::Broken(Cause::PacketsTooLong { octets, path: None })
            }
            failure => End::Failed(failure),
        }
    }

    /// The length of the IP packet that carries a packet of this length, without its ICRC.
    fn ip_packet_len(&self, len: usize) -> usize {
        ip_packet_len(self.peer.address.ip(), len + Icrc::SIZE)
    }

    /// Returns why the connection breaks, if the peer does not acknowledge the oldest packet and a
    /// router has reported that the path does not carry packets of this length.
    #[cold]
    pub(super) fn request_too_long(&self, local_address: &mut LocalAddress) -> Option<Cause> {
        let Some(OldestPacket::Request(len)) = self.rc.oldest_packet() else { return None };
        self.too_long(local_address, len, |psn| self.rc.may_have_sent(psn))
    }

    /// Returns why the connection breaks, if a router has reported that the path does not carry the
    /// responses to a READ, which the peer has requested again.
    #[cold]
    pub(super) fn response_too_long(
        &self,
        local_address: &mut LocalAddress,
        read: RepeatedRead,
    ) -> Option<Cause> {
        self.too_long(local_address, read.packet_len(), |psn| read.contains(psn))
    }

    /// Returns why the connection breaks, if a router has reported that the path does not carry a
    /// packet of this length, without its ICRC. `may_be_quoted` says whether the report may quote
    /// the packet with this PSN.
    fn too_long(
        &self,
        local_address: &mut LocalAddress,
        len: usize,
        may_be_quoted: impl Fn(Psn) -> bool,
    ) -> Option<Cause> {
        let octets = self.ip_packet_len(len);
        let packet_io = &mut local_address.packet_io;
        let path = packet_io.reported_path(&self.peer, self.peer_qpn, may_be_quoted)?;
        (path < octets).then_some(Cause::PacketsTooLong { octets, path: Some(path) })
    }

    /// Returns how the connection ends because the peer has disconnected. Returns `None` if the
    /// peer has not disconnected.
    pub(super) fn end_by_peer(&self) -> Option<End> {
        self.peer_disconnect.map(
            |PeerDisconnect { broke }| {
                if broke { End::Broken(Cause::BrokenByPeer) } else { End::Peer }
            },
        )
    }
}

impl Link {
    /// Closes the connection, or cancels the attempt to connect, for the consumer.
    pub(crate) fn disconnect(&mut self, cx: &mut EngineContext<'_>, how: Close) {
        match (&mut self.phase, how) {
            // An abrupt end, too, waits until the peer may learn that its last message has arrived.
            (Phase::Established(established), _)
                if established.conn.id.is_some()
                    && established.sends != Sends::Nothing
                    && (how == Close::Graceful || established.rc.withholds_ack()) =>
            {
                established.closing = Some(how);
                self.transmit(cx);
            }
            (Phase::Established(_), _) => self.end(cx, End::Local(how)),
            (Phase::Connecting(connecting), _) => {
                if let Some((Conn { id: Some(id), .. }, _)) = connecting.attempt {
                    cx.local_address.cm.forget(cx.now, id);
                }
                self.fail(EngineEvent::Disconnected);
            }
            (Phase::Idle(_) | Phase::Disconnecting(_) | Phase::Ended(_) | Phase::Transition, _) => {
            }
        }
    }

    /// Disconnects a queue pair that has no connection.
    pub(crate) fn disconnect_unconnected(&mut self) {
        let work = self.phase.take_idle();
        let work = work.or_else(|| Some(self.phase.take_connecting()?.work));
        let Some(work) = work else { return };
        self.phase.end(&self.shared, work);
        self.sink.call(EngineEvent::Disconnected);
    }

    /// Handles the disconnect of the peer, which may have carried out requests that are still in
    /// flight.
    pub(super) fn on_peer_disconnecting(&mut self, cx: &mut EngineContext<'_>, broke: bool) {
        if let Phase::Established(established) = &mut self.phase {
            established.peer_disconnect = Some(PeerDisconnect { broke });
            established.rc.start_peer_close(cx.now);
            self.transmit(cx);
        }
    }

    /// Handles the peer's answer to the DREQ, or the fact that no answer will come.
    pub(super) fn on_disconnected(&mut self, cx: &mut EngineContext<'_>) {
        let disconnecting = match std::mem::take(&mut self.phase) {
            Phase::Disconnecting(disconnecting) => disconnecting,
            other => {
                self.phase = other;
                return match self.phase {
                    Phase::Connecting(_) => self.fail(EngineEvent::Disconnected),
                    Phase::Established(ref established) => {
                        let end = established.end_by_peer().unwrap_or(End::Peer);
                        self.end(cx, end);
                    }
                    _ => {}
                };
            }
        };
        cx.release_qpn(disconnecting.conn.qpn, disconnecting.conn.id);
        self.phase.end(&self.shared, disconnecting.responder.into_work());
        self.sink.call(EngineEvent::Disconnected);
    }

    /// Handles a report of the peer's host that no process has the port. An attempt to connect
    /// fails at once. A connection breaks only if no packet has come from the peer for a while,
    /// because a firewall whose rules are being changed reports the same.
    pub(crate) fn on_port_refused(&mut self, cx: &mut EngineContext<'_>) {
        if let Phase::Established(established) = &mut self.phase
            && !established.port_refusals.note_refusal(established.rc.stats().rx_packets, cx.now)
        {
            return;
        }
        self.on_peer_gone(cx);
    }

    /// Handles packets that were too long for the interface. The path MTU of a connection cannot
    /// change, so the connection ends if it needs such a packet. A connection does not need the
    /// check packet of its path.
    pub(crate) fn on_too_long(&mut self, cx: &mut EngineContext<'_>, too_long: &[TooLong]) {
        let Phase::Established(established) = &self.phase else { return };
        let of_connection = |packet: &&TooLong| {
            (packet.peer, packet.qpn) == (established.peer.address.ip(), established.peer_qpn)
                && !established.rc.is_path_check(packet.psn)
        };
        if let Some(&TooLong { octets, mtu, .. }) = too_long.iter().find(of_connection) {
            self.end(cx, End::Broken(Cause::PacketsTooLong { octets, path: Some(mtu) }));
        }
    }

    /// Ends the connection because the path does not carry its packets. For a while, requests of
    /// the peer must propose a smaller path MTU.
    #[cold]
    pub(super) fn end_too_long(&mut self, cx: &mut EngineContext<'_>, cause: Cause) {
        if let (Phase::Established(established), Cause::PacketsTooLong { path: Some(path), .. }) =
            (&self.phase, &cause)
        {
            let peer = established.peer.address.ip();
            cx.local_address.hosts.lock().note_path(peer, *path, cx.now);
        }
        self.end(cx, End::Broken(cause));
    }

    /// Handles the end of the peer's process, or a report of its host that no process has the port.
    pub(crate) fn on_peer_gone(&mut self, cx: &mut EngineContext<'_>) {
        let conn = self.conn();
        match &self.phase {
            // If the peer disconnected before its process ended, that disconnect ends the
            // connection.
            Phase::Established(established) => {
                let end = established.end_by_peer().unwrap_or(End::Broken(Cause::ProcessGone));
                self.end(cx, end);
            }
            Phase::Connecting(connecting) => {
                if let Some((Conn { id: Some(id), .. }, _)) = connecting.attempt {
                    cx.local_address.cm.forget(cx.now, id);
                }
                self.sink.call(EngineEvent::Cause(Cause::NoAdapter));
                self.fail(EngineEvent::Unreachable { because: None });
            }
            Phase::Disconnecting(_) => self.on_disconnected(cx),
            Phase::Idle(_) | Phase::Ended(_) | Phase::Transition => {}
        }
        // A message about the end of the connection is useless, because no process would receive
        // it.
        if let Some(conn) = conn {
            cx.local_address.cm.unreachable(cx.now, conn);
        }
    }

    /// Ends the connection.
    pub(super) fn end(&mut self, cx: &mut EngineContext<'_>, end: End) {
        let Some(mut established) = self.phase.take_established() else { return };
        cx.resources.ended_counts.add(&established.rc.stats().list());
        let burst = cx.burst_to(&established.peer);
        match end {
            End::Failed(_) | End::Broken(_) => established.rc.transmit_fatal_nak(burst),
            End::Local(_) => established.rc.acknowledge_finally(burst),
            // Before the end, send the acknowledgement that the peer has requested.
            End::Peer | End::NotAccepted => established.rc.acknowledge(burst),
        }
        let reported = established.sends != Sends::Nothing;
        let (closing, conn) = (established.closing.is_some(), established.conn);
        if let Some(cause) = end.cause(reported, closing) {
            self.sink.call(EngineEvent::Cause(cause));
        }
        let cm = &mut cx.local_address.cm;
        match (&end, conn.id) {
            (End::Local(how), Some(id)) => {
                let ending = match how {
                    Close::Graceful => Ending::Graceful,
                    Close::Abrupt => Ending::Abrupt,
                };
                cm.disconnect(cx.now, id, ending);
                self.shared.end();
                self.phase = Phase::Disconnecting(Box::new(Disconnecting::new(*established)));
                return;
            }
            // The connection manager answers the peer's DREQ.
            (End::Peer, Some(id)) => cm.disconnect(cx.now, id, Ending::Graceful),
            (End::Failed(_) | End::Broken(_), Some(id)) => cm.break_off(cx.now, id),
            (End::NotAccepted, _) | (_, None) => {}
        }
        cx.release_qpn(conn.qpn, conn.id);
        established.rc.flush();
        self.phase.end(&self.shared, established.rc.into_work());
        self.sink.call(match &end {
            _ if !reported => EngineEvent::AcceptFailed,
            _ if closing => EngineEvent::Disconnected,
            End::Failed(because) => EngineEvent::Broken { because: Some(because) },
            End::Broken(_) => EngineEvent::Broken { because: None },
            End::Local(_) | End::Peer | End::NotAccepted => EngineEvent::Disconnected,
        });
    }

    /// Removes the queue pair. No events follow.
    pub(crate) fn close(mut self, cx: &mut EngineContext<'_>) {
        let conn = match std::mem::take(&mut self.phase) {
            Phase::Established(established) => {
                cx.resources.ended_counts.add(&established.rc.stats().list());
                Some(established.conn)
            }
            Phase::Disconnecting(disconnecting) => Some(disconnecting.conn),
            Phase::Connecting(connecting) => connecting.attempt.map(|(conn, _)| conn),
            Phase::Idle(_) | Phase::Ended(_) | Phase::Transition => None,
        };
        if let Some(conn) = conn {
            cx.release_qpn(conn.qpn, conn.id);
            conn.id.into_iter().for_each(|id| cx.local_address.cm.forget(cx.now, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::rocev2::{Opcode, packet_len};

    use super::*;

    #[test]
    fn a_packet_has_the_length_of_its_ip_packet() {
        let middle = packet_len(Opcode::SendMiddle, 4096) + Icrc::SIZE;
        let of = |peer: &str| ip_packet_len(peer.parse().expect("an address"), middle);
        assert_eq!(["10.0.0.2", "fd00::2"].map(of), [4140, 4160]);
    }
}
