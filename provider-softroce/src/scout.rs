//! Whether anybody at all has the port on a peer's host, and whether the host lives.
//!
//! A host answers each datagram to a port that nobody has with an ICMP error. But where sockets share a port
//! the kernel reports such an error to one that it picks by the two addresses, hardly ever to the one that
//! has sent. So who asks for a connection, and who hears nothing over one, also sends a message from a port
//! of its own: one that is an answer to nothing, so that whoever has the port passes over it. And it sends a
//! datagram with a random word to the port of the discard service, which hardly anybody has: a host that refuses
//! that one, and not the other, is there, and has somebody who does not answer. Its refusal repeats the word.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

use rnic::cm::ConnId;
use wire::cm::{Drep, Mad, Message};
use wire::rocev2::{Icrc, Opcode, packet_len};

use crate::socket::Udp;
use crate::station::datagram;

/// The port of its own.
pub(crate) struct Scout {
    socket: Udp,
    address: SocketAddr,
}

/// Where a message has, behind BTH and DETH, its transaction and the ID of who sends it.
const TRANSACTION: usize = packet_len(Opcode::DatagramSendOnly, 0) + 8;
const LOCAL_ID: usize = packet_len(Opcode::DatagramSendOnly, 0) + 24;

/// The discard service's (RFC 863).
const DISCARD: u16 = 9;

/// A host's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nobody has the port.
    Refused(Refusal),
    /// It lives: it repeats this word.
    Lives(IpAddr, u64),
}

/// A host has said that nobody has the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) host: IpAddr,
    /// The connection, and the queue pair, that it was asked for.
    pub(crate) id: ConnId,
    pub(crate) qpn: u32,
}

impl Scout {
    /// For the peers of an address.
    pub(crate) fn new(address: SocketAddr) -> io::Result<Self> {
        let mut address = address;
        address.set_port(0);
        let socket = Udp::bind_alone(address)?;
        socket.hear_of_errors()?;
        socket.be_deaf()?;
        Ok(Scout { address: socket.local_addr()?, socket })
    }

    /// Asks a peer's host, for a connection, and because of what was sent to this queue pair.
    pub(crate) fn probe_port(&self, host: SocketAddr, id: ConnId, qpn: u32) {
        let Some(icrc) = Icrc::new(self.address, host) else { return };
        // A DREP where there was no DREQ, for no connection of the host's: it comes to the door there, and
        // all look there.
        let drep = Drep { local_id: id.0, remote_id: 0, private: &[] };
        let mad = Mad { transaction: qpn.into(), message: Message::Drep(drep) }.emit();
        let packet = datagram(&mad, 0);
        let mut octets = vec![0; packet.len() + Icrc::SIZE];
        packet.emit(&mut octets);
        icrc.seal(0, &mut octets);
        // What is not answered is asked again.
        self.socket.send(host, &octets, octets.len());
    }

    /// Asks a peer's host whether it lives, with a word that is to be repeated.
    pub(crate) fn probe_host(&self, host: SocketAddr, word: u64) {
        let mut port = host;
        port.set_port(DISCARD);
        let octets = word.to_be_bytes();
        self.socket.send(port, &octets, octets.len());
    }

    /// The answers of hosts since the last call.
    pub(crate) fn answers(&self) -> Vec<Answer> {
        let mut answers = Vec::new();
        self.socket.errors(|back| {
            if back.to.port() == DISCARD {
                if let (true, Some(&word)) = (back.refused, back.packet.first_chunk()) {
                    answers.push(Answer::Lives(back.to.ip(), u64::from_be_bytes(word)));
                }
                return;
            }
            // The host repeats what it was asked. A program elsewhere would have to guess it.
            let word = |at: usize| Some(u32::from_be_bytes(*back.packet.get(at..)?.first_chunk()?));
            if let (true, Some(qpn), Some(id)) =
                (back.refused, word(TRANSACTION + 4), word(LOCAL_ID))
            {
                answers.push(Answer::Refused(Refusal { host: back.to.ip(), id: ConnId(id), qpn }));
            }
        });
        answers
    }
}

impl AsRawFd for Scout {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use wire::rocev2::Packet;

    use super::*;
    use crate::socket::{Habits, RxBatch};

    #[test]
    fn hosts_say_that_nobody_has_the_port() {
        for ip in ["127.0.0.1", "::1"] {
            let bind = || {
                Udp::bind_alone(SocketAddr::new(ip.parse().expect("an address"), 0))
                    .expect("a socket")
            };
            let (taken, free) = (bind(), bind());
            let [there, nobody] = [&taken, &free].map(|socket| socket.local_addr().expect("bound"));
            drop(free);
            let (scout, mut unread) = (Scout::new(there).expect("a port"), RxBatch::new());
            scout.probe_port(there, ConnId(0x0102_0304), 9);
            assert!(scout.answers().is_empty());
            assert!(taken.receive(&mut unread, &mut Habits::default()));
            let (at, asks) = (scout.address, unread.get(0).expect("a datagram"));
            let icrc = Icrc::new(at, there).expect("one family");
            let (octets, _) = icrc.recover(0, asks.octets).expect("a right checksum");
            let packet = Packet::parse(octets).expect("a packet");
            let Mad { message, .. } = Mad::parse(packet.payload).expect("a message");
            let drep =
                Drep { local_id: 0x0102_0304, remote_id: 0, private: &[0; Drep::MAX_PRIVATE] };
            assert_eq!((asks.from, message), (at, Message::Drep(drep)));
            let ids = [5, 7].map(ConnId);
            ids.into_iter().for_each(|id| scout.probe_port(nobody, id, 9));
            let refused = ids.map(|id| Answer::Refused(Refusal { host: nobody.ip(), id, qpn: 9 }));
            assert_eq!(scout.answers(), refused);
            assert!(scout.answers().is_empty());
            // Where somebody has the port of the discard service, nothing comes.
            scout.probe_host(nobody, 0x0102_0304_0506_0708);
            let answers = scout.answers();
            assert!(
                answers
                    .iter()
                    .all(|&answer| answer == Answer::Lives(nobody.ip(), 0x0102_0304_0506_0708)),
                "{answers:?}"
            );
        }
    }

    /// Nobody can fill the buffer in which the kernel keeps what hosts say.
    #[test]
    fn datagrams_do_not_keep_answers_out() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let [stranger, nobody] = [any, any].map(|any| Udp::bind_alone(any).expect("a socket"));
        let scout = Scout::new(any).expect("a port");
        let (datagram, mut room) = (vec![0; 60_000], 2 * scout.socket.receive_buffer());
        while let Some(left) = room.checked_sub(datagram.len()) {
            stranger.send(scout.address, &datagram, datagram.len());
            room = left;
        }
        // These would fill what is left.
        for _ in 0..4000 {
            stranger.send(scout.address, b"!", 1);
        }
        let host = nobody.local_addr().expect("bound");
        drop(nobody);
        scout.probe_port(host, ConnId(5), 9);
        let refusal = Refusal { host: host.ip(), id: ConnId(5), qpn: 9 };
        assert_eq!(scout.answers(), [Answer::Refused(refusal)]);
    }
}
