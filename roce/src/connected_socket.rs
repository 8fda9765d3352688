//! A faster path to peers at the same address: a connected socket.
//!
//! The kernel caches the route of a connected socket, which saves a twelfth of the time that a
//! small packet takes. However, the kernel numbers the packets of such a socket in the IPv4
//! identification field, which the ICRC covers, and the first number is unknown. Therefore this
//! side first sends trial packets whose headers the kernel returns (see
//! [`selftest`](crate::selftest)). From the number of the last trial packet, it counts the
//! following packets.
//!
//! Every peer at this adapter's own address is an adapter of this provider, because only such
//! adapters share the port. Packets to that address do not leave the host. Therefore packets of the
//! connected socket and packets of the unconnected socket do not overtake each other.

use std::net::SocketAddr;

use wire::rocev2::Icrc;

use crate::selftest;
use crate::socket::{Sent, Udp};

/// A connected socket that knows which IPv4 identification the kernel gives to the next packet.
pub(crate) struct ConnectedSocket {
    socket: Udp,
    icrc: Icrc,
    /// The IPv4 identification of the next packet.
    next_id: u16,
}

impl ConnectedSocket {
    /// Creates a socket that is connected to `to`, an address of this host. Its source port is the
    /// one that the other sockets of this adapter share. Returns `None` if this kernel does not
    /// number packets as expected.
    pub(crate) fn new(from: SocketAddr, to: SocketAddr) -> Option<Self> {
        let socket = Udp::bind_send_only(from, to).ok()?;
        socket.connect(to).ok()?;
        let next_id = match to {
            SocketAddr::V4(_) => next_id(&socket, SocketAddr::new(from.ip(), 0))?,
            // The IPv6 header has no identification field.
            SocketAddr::V6(_) => 0,
        };
        Some(ConnectedSocket { socket, icrc: Icrc::new(from, to)?, next_id })
    }

    /// Writes the ICRC into the next packet. Returns the packet's IPv4 identification.
    #[inline]
    pub(crate) fn seal(&self, datagram: &mut [u8]) -> u16 {
        self.icrc.seal(self.next_id, datagram);
        self.next_id
    }

    /// Sends a packet. Returns false on a failure. The socket must not be used after a failure,
    /// because it is unknown whether the kernel has counted the packet.
    #[inline]
    pub(crate) fn send(&mut self, datagram: &[u8]) -> bool {
        self.next_id = self.next_id.wrapping_add(1);
        self.socket.send_connected(datagram) == Sent::All
    }
}

/// Returns the IPv4 identification of a connected socket's next packet.
fn next_id(socket: &Udp, from: SocketAddr) -> Option<u16> {
    // The trial packets can go to another address than the later packets, because the kernel counts
    // all packets of the socket together.
    let sink = Udp::bind_exclusive(from).ok()?;
    let to = sink.local_addr().ok()?;
    let trial_header =
        || selftest::sent_header(socket, to, &[0; 64], 64).filter(|header| header.dont_fragment);
    let (first, second) = (trial_header()?.id, trial_header()?.id);
    let next = second.wrapping_add(1);
    (second == first.wrapping_add(1) && socket.return_sent_packets(false).is_ok()).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{ReceiveStrategy, RxBatch};

    #[test]
    fn packets_are_numbered_as_the_kernel_does() {
        let target =
            Udp::bind_exclusive("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        let address = target.local_addr().expect("the socket is bound");
        let sender = Udp::bind_send_only("127.0.0.1:0".parse().expect("an address"), address)
            .expect("a socket");
        let from = sender.local_addr().expect("the socket is bound");
        let mut connected =
            ConnectedSocket::new(from, address).expect("the kernel numbers packets as expected");
        let (mut batch, mut strategy) = (RxBatch::new(), ReceiveStrategy::default());
        for _ in 0..5 {
            let mut datagram = [7; 80];
            let id = connected.seal(&mut datagram);
            assert!(connected.send(&datagram));
            assert!(target.receive(&mut batch, &mut strategy));
            let arrived = batch.get(0).expect("a datagram");
            assert_eq!((arrived.from, arrived.octets), (from, &datagram[..]));
            let (_, ip) = Icrc::new(from, address)
                .expect("both addresses are of one family")
                .recover(id, &datagram)
                .expect("the datagram has a valid ICRC");
            assert_eq!(ip.id, id);
        }
        // Send a sixth packet, whose header the kernel returns. The packet may go to any address,
        // because the kernel counts all packets of the socket together.
        let sink =
            Udp::bind_exclusive("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        let to = sink.local_addr().expect("the socket is bound");
        let header = selftest::sent_header(&connected.socket, to, &[0; 64], 64).expect("a header");
        assert_eq!((header.id, header.dont_fragment), (connected.next_id, true));
    }

    #[test]
    fn a_socket_that_fails_is_not_used_again() {
        let target =
            Udp::bind_exclusive("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        let address = target.local_addr().expect("the socket is bound");
        let sender = Udp::bind_send_only("127.0.0.1:0".parse().expect("an address"), address)
            .expect("a socket");
        let from = sender.local_addr().expect("the socket is bound");
        let mut connected =
            ConnectedSocket::new(from, address).expect("the kernel numbers packets as expected");
        drop(target);
        // The host answers the first packet with an ICMP error. The second call of `send` reports
        // that error.
        connected.send(&[0; 80]);
        assert!(!connected.send(&[0; 80]));
    }
}
