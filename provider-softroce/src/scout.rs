//! Whether anybody at all has the port on a peer's host.
//!
//! If nobody has, the host answers each datagram with an ICMP error. But where sockets share a port the kernel reports such an
//! error to one that it picks by the two addresses, hardly ever to the one that has sent. So who asks for a connection, and
//! who hears nothing over one that it has asked for, also sends a datagram from a port of its own. It is too short for a
//! packet: nobody takes it for one.
//!
//! The other side does not: the host of who has asked for a connection may let in what belongs to that alone, and refuse the
//! rest in the same words.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

use rnic::cm::ConnId;

use crate::socket::{Habits, RxBatch, Udp};

/// The port of its own.
pub(crate) struct Scout(Udp);

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
        Ok(Scout(socket))
    }

    /// Asks a peer's host, for a connection. It goes where packets for this queue pair go.
    pub(crate) fn ask(&self, host: SocketAddr, id: ConnId, qpn: u32) {
        let ([a, b, c, d], [_, high, middle, low]) = (id.0.to_be_bytes(), qpn.to_be_bytes());
        // What is not answered is asked again.
        self.0.send(host, &[a, b, c, d, 0, high, middle, low], 8);
    }

    /// What hosts have said since. `unread` is for what nobody has asked for.
    pub(crate) fn refusals(&self, unread: &mut RxBatch) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        self.0.errors(|back| {
            // The host repeats what it was asked. A program elsewhere would have to guess it.
            if let (true, &[a, b, c, d, 0, high, middle, low]) = (back.refused, back.packet) {
                let [id, qpn] = [[a, b, c, d], [0, high, middle, low]].map(u32::from_be_bytes);
                refusals.push(Refusal { host: back.to.ip(), id: ConnId(id), qpn });
            }
        });
        self.0.receive(unread, &mut Habits::default());
        refusals
    }
}

impl AsRawFd for Scout {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_say_that_nobody_has_the_port() {
        for ip in ["127.0.0.1", "::1"] {
            let bind =
                || Udp::bind_alone(SocketAddr::new(ip.parse().expect("an address"), 0)).expect("a socket");
            let (taken, free) = (bind(), bind());
            let [there, nobody] = [&taken, &free].map(|socket| socket.local_addr().expect("bound"));
            drop(free);
            let (scout, mut unread) = (Scout::new(there).expect("a port"), RxBatch::new());
            scout.ask(there, ConnId(0x0102_0304), 9);
            assert!(scout.refusals(&mut unread).is_empty());
            assert!(taken.receive(&mut unread, &mut Habits::default()));
            assert_eq!(unread.get(0).expect("a datagram").octets, [1, 2, 3, 4, 0, 0, 0, 9]);
            let ids = [5, 7].map(ConnId);
            ids.into_iter().for_each(|id| scout.ask(nobody, id, 9));
            assert_eq!(scout.refusals(&mut unread), ids.map(|id| Refusal { host: nobody.ip(), id, qpn: 9 }));
            assert!(scout.refusals(&mut unread).is_empty());
        }
    }
}
