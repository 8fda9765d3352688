//! A quicker way to peers at the same address: a connected socket.
//!
//! The kernel keeps the route of a connected socket, which saves a twelfth of the time of a small packet. But
//! it counts the packets of such a socket in IPv4's identification, from anywhere on, and the ICRC covers
//! that. So trial packets are sent, whose headers come back (see [`selftest`](crate::selftest)), and the rest
//! is counted here, too.
//!
//! At this address there are adapters of this kind alone, which share the port. And what goes to it does not
//! leave the host: none of the two sockets' packets overtake each other.

use std::net::SocketAddr;

use wire::rocev2::Icrc;

use crate::selftest;
use crate::socket::{Sent, Udp};

/// The way.
pub(crate) struct Express {
    socket: Udp,
    icrc: Icrc,
    /// The identification of the next packet.
    next_id: u16,
}

impl Express {
    /// From a port that other sockets of ours send from, too, to an address of this host. None: this kernel
    /// does not number packets as expected.
    pub(crate) fn new(from: SocketAddr, to: SocketAddr) -> Option<Self> {
        let socket = Udp::bind_to_send(from, to).ok()?;
        socket.connect(to).ok()?;
        let next_id = match to {
            SocketAddr::V4(_) => next_id(&socket, SocketAddr::new(from.ip(), 0))?,
            // Nothing in IPv6's header depends on it.
            SocketAddr::V6(_) => 0,
        };
        Some(Express { socket, icrc: Icrc::new(from, to)?, next_id })
    }

    /// Writes the ICRC of the next packet into it; says the packet's identification.
    #[inline]
    pub(crate) fn seal(&self, datagram: &mut [u8]) -> u16 {
        self.icrc.seal(self.next_id, datagram);
        self.next_id
    }

    /// Sends this packet. False: nobody knows whether the kernel has counted it, so this was the last.
    #[inline]
    pub(crate) fn send(&mut self, datagram: &[u8]) -> bool {
        self.next_id = self.next_id.wrapping_add(1);
        self.socket.send_connected(datagram) == Sent::All
    }
}

/// The identification of a connected socket's next packet.
fn next_id(socket: &Udp, from: SocketAddr) -> Option<u16> {
    // What is sent elsewhere is counted just so.
    let sink = Udp::bind_alone(from).ok()?;
    let to = sink.local_addr().ok()?;
    let trial =
        || selftest::header_of(socket, to, &[0; 64], 64).filter(|header| header.dont_fragment);
    let (first, second) = (trial()?.id, trial()?.id);
    let next = second.wrapping_add(1);
    (second == first.wrapping_add(1) && socket.ask_for_headers(false).is_ok()).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{Habits, RxBatch};

    #[test]
    fn packets_are_numbered_as_the_kernel_does() {
        let target = Udp::bind_alone("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        let address = target.local_addr().expect("bound");
        let sender = Udp::bind_to_send("127.0.0.1:0".parse().expect("an address"), address)
            .expect("a socket");
        let from = sender.local_addr().expect("bound");
        let mut express = Express::new(from, address).expect("this kernel does");
        let (mut batch, mut habits) = (RxBatch::new(), Habits::default());
        for _ in 0..5 {
            let mut datagram = [7; 80];
            let id = express.seal(&mut datagram);
            assert!(express.send(&datagram));
            assert!(target.receive(&mut batch, &mut habits));
            let arrived = batch.get(0).expect("a datagram");
            assert_eq!((arrived.from, arrived.octets), (from, &datagram[..]));
            let (_, ip) = Icrc::new(from, address)
                .expect("one family")
                .recover(id, &datagram)
                .expect("sealed");
            assert_eq!(ip.id, id);
        }
        // The kernel shows the header of the sixth, to wherever it goes.
        let sink = Udp::bind_alone("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        let to = sink.local_addr().expect("bound");
        let header = selftest::header_of(&express.socket, to, &[0; 64], 64).expect("a header");
        assert_eq!((header.id, header.dont_fragment), (express.next_id, true));
    }

    #[test]
    fn a_socket_that_fails_is_not_used_again() {
        let target = Udp::bind_alone("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        let address = target.local_addr().expect("bound");
        let sender = Udp::bind_to_send("127.0.0.1:0".parse().expect("an address"), address)
            .expect("a socket");
        let from = sender.local_addr().expect("bound");
        let mut express = Express::new(from, address).expect("a way");
        drop(target);
        // The first is what the answer is about that nobody has the port.
        express.send(&[0; 80]);
        assert!(!express.send(&[0; 80]));
    }
}
