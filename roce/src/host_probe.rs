//! Asks a peer's host whether any process has the port there, and whether the host is up.
//!
//! If no process has a port, the host answers a datagram to that port with an ICMP error. The
//! sender's kernel delivers the error to the source port of the datagram. If several sockets share
//! that port, the kernel selects one of them by the two addresses. This is rarely the socket that
//! has sent the datagram. Therefore the adapter sends probes from a socket with a port of its own.
//! It sends a probe with each REQ, SIDR REQ and DREQ, and at each timeout of a connection:
//!
//! | probe | sent to | an ICMP error means |
//! |---|---|---|
//! | port | port 4791: a DREP without a DREQ, which adapters ignore | no process has the port |
//! | host | the discard service, a random nonce | the host is up; the error repeats the nonce |
//!
//! Hardly any host has a discard service, so a host that is up refuses the host probe. If it does
//! not refuse the port probe, a process has the port but does not answer.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

use rnic::cm::ConnId;
use rnic::cm::sidr::ResolveId;
use wire::cm::{Drep, Mad, Message};
use wire::rocev2::{Icrc, Opcode, packet_len};

use crate::cm_packet::cm_packet;
use crate::socket::{SendFailure, Udp};

/// The socket from which probes are sent.
pub(crate) struct HostProbe {
    socket: Udp,
    address: SocketAddr,
}

/// The offsets of a message's transaction id and of the sender's communication id, behind BTH and
/// DETH.
const TRANSACTION_OFFSET: usize = packet_len(Opcode::DatagramSendOnly, 0) + 8;
const LOCAL_ID_OFFSET: usize = packet_len(Opcode::DatagramSendOnly, 0) + 24;

/// What waits for the answer to a probe of the port. The upper half of the transaction ID has the
/// number of this variant, and the lower half the queue pair number.
#[derive(Clone, Copy)]
enum Asker {
    Connection = 0,
    Resolution = 1,
}

/// The port of the discard service (RFC 863).
const DISCARD_PORT: u16 = 9;

/// The answer of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// No process has the port.
    Refused(Refusal),
    /// No process of this host has the port. A service ID resolution was waiting for the answer.
    Unresolvable(IpAddr, ResolveId),
    /// The host is up and has repeated this nonce.
    HostUp(IpAddr, u64),
}

/// A host's report that no process has the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) host: IpAddr,
    /// The connection and the queue pair for which the probe was sent.
    pub(crate) id: ConnId,
    pub(crate) qpn: u32,
}

impl HostProbe {
    /// Creates the socket that probes the hosts of a local address's peers.
    pub(crate) fn new(address: SocketAddr) -> io::Result<Self> {
        let mut address = address;
        address.set_port(0);
        let socket = Udp::bind_exclusive(address)?;
        socket.enable_error_queue()?;
        socket.drop_incoming()?;
        Ok(HostProbe { address: socket.local_addr()?, socket })
    }

    /// Asks a host whether any process has the port. `id` and `qpn` name the connection and the
    /// queue pair that are waiting for an answer.
    pub(crate) fn probe_port(&self, host: SocketAddr, id: ConnId, qpn: u32) {
        self.send_drep(host, id.0, Asker::Connection, qpn);
    }

    /// Asks a host whether any process has the port, for a service ID resolution.
    pub(crate) fn probe_port_for(&self, host: SocketAddr, resolution: ResolveId) {
        self.send_drep(host, resolution.0, Asker::Resolution, 0);
    }

    fn send_drep(&self, host: SocketAddr, id: u32, asker: Asker, qpn: u32) {
        let Some(icrc) = Icrc::new(self.address, host) else { return };
        // The probe is a DREP without a DREQ, for no connection of that host. The DREP arrives at
        // the REQ socket, where every adapter ignores it.
        let drep = Drep { local_id: id, remote_id: 0, private: &[] };
        let transaction = u64::from(asker as u32) << 32 | u64::from(qpn);
        let mad = Mad { transaction, message: Message::Drep(drep) }.emit();
        let packet = cm_packet(&mad, 0);
        let mut octets = vec![0; packet.len() + Icrc::SIZE];
        packet.emit(&mut octets);
        icrc.seal(0, &mut octets);
        // If the probe is lost, it is repeated with the next timeout.
        self.socket.send(host, &octets, octets.len());
    }

    /// Asks a host whether it is up. The host's ICMP error repeats the nonce.
    pub(crate) fn probe_host(&self, host: SocketAddr, nonce: u64) {
        let mut port = host;
        port.set_port(DISCARD_PORT);
        let octets = nonce.to_be_bytes();
        self.socket.send(port, &octets, octets.len());
    }

    /// Returns the answers of hosts that have arrived since the last call.
    pub(crate) fn answers(&self) -> Vec<Answer> {
        let mut answers = Vec::new();
        self.socket.read_errors(|report| {
            if report.to.port() == DISCARD_PORT {
                if let (SendFailure::Refused, Some(&nonce)) =
                    (report.cause, report.packet.first_chunk())
                {
                    answers.push(Answer::HostUp(report.to.ip(), u64::from_be_bytes(nonce)));
                }
                return;
            }
            // The host's ICMP error quotes the packet. A program that forges the error without
            // having seen the packet would have to guess its contents.
            let word =
                |at: usize| Some(u32::from_be_bytes(*report.packet.get(at..)?.first_chunk()?));
            let [asker, qpn] = [TRANSACTION_OFFSET, TRANSACTION_OFFSET + 4].map(word);
            if let (SendFailure::Refused, Some(asker), Some(qpn), Some(id)) =
                (report.cause, asker, qpn, word(LOCAL_ID_OFFSET))
            {
                let host = report.to.ip();
                answers.push(match asker == Asker::Resolution as u32 {
                    true => Answer::Unresolvable(host, ResolveId(id)),
                    false => Answer::Refused(Refusal { host, id: ConnId(id), qpn }),
                });
            }
        });
        answers
    }
}

impl AsRawFd for HostProbe {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use wire::rocev2::Packet;

    use super::*;
    use crate::socket::{ReceiveStrategy, RxBatch};

    #[test]
    fn hosts_report_that_no_process_has_the_port() {
        for ip in ["127.0.0.1", "::1"] {
            let bind = || {
                Udp::bind_exclusive(SocketAddr::new(ip.parse().expect("an address"), 0))
                    .expect("a socket")
            };
            let (taken, free) = (bind(), bind());
            let [used, unused] =
                [&taken, &free].map(|socket| socket.local_addr().expect("the socket is bound"));
            drop(free);
            let (probe, mut unread) = (HostProbe::new(used).expect("a port"), RxBatch::new());
            probe.probe_port(used, ConnId(0x0102_0304), 9);
            assert!(probe.answers().is_empty());
            assert!(taken.receive(&mut unread, &mut ReceiveStrategy::default()));
            let (at, asks) = (probe.address, unread.get(0).expect("a datagram"));
            let icrc = Icrc::new(at, used).expect("both addresses are of one family");
            let (octets, _) = icrc.recover(0, asks.octets).expect("a right checksum");
            let packet = Packet::parse(octets).expect("a packet");
            let Mad { message, .. } = Mad::parse(packet.payload).expect("a message");
            let drep =
                Drep { local_id: 0x0102_0304, remote_id: 0, private: &[0; Drep::MAX_PRIVATE] };
            assert_eq!((asks.from, message), (at, Message::Drep(drep)));
            let ids = [5, 7].map(ConnId);
            ids.into_iter().for_each(|id| probe.probe_port(unused, id, 9));
            probe.probe_port_for(unused, ResolveId(5));
            let host = unused.ip();
            let [a, b] = ids.map(|id| Answer::Refused(Refusal { host, id, qpn: 9 }));
            assert_eq!(probe.answers(), [a, b, Answer::Unresolvable(host, ResolveId(5))]);
            assert!(probe.answers().is_empty());
            // If a process has the port of the discard service, no answer comes.
            probe.probe_host(unused, 0x0102_0304_0506_0708);
            let answers = probe.answers();
            assert!(
                answers
                    .iter()
                    .all(|&answer| answer == Answer::HostUp(unused.ip(), 0x0102_0304_0506_0708)),
                "{answers:?}"
            );
        }
    }

    /// Incoming datagrams cannot fill the buffer in which the kernel keeps the answers.
    #[test]
    fn datagrams_do_not_suppress_answers() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let [stranger, unused] = [any, any].map(|any| Udp::bind_exclusive(any).expect("a socket"));
        let probe = HostProbe::new(any).expect("a port");
        let (datagram, mut room) = (vec![0; 60_000], 2 * probe.socket.receive_buffer());
        while let Some(left) = room.checked_sub(datagram.len()) {
            stranger.send(probe.address, &datagram, datagram.len());
            room = left;
        }
        // These datagrams would fill the remaining space.
        for _ in 0..4000 {
            stranger.send(probe.address, b"!", 1);
        }
        let host = unused.local_addr().expect("the socket is bound");
        drop(unused);
        probe.probe_port(host, ConnId(5), 9);
        let refusal = Refusal { host: host.ip(), id: ConnId(5), qpn: 9 };
        assert_eq!(probe.answers(), [Answer::Refused(refusal)]);
    }
}
