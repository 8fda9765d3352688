//! The route to a peer: the local address that leads to it, and the path MTU.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use adapter::netdev::{self, NetAddr};
use socket2::{Domain, Socket, Type};
use wire::rocev2::PathMtu;

use crate::shared_port::UDP_PORT;

/// The MTU of an interface whose MTU is not known.
const ETHERNET_MTU: usize = 1500;

/// The route to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The source address of packets, with port 0.
    pub(crate) source: SocketAddr,
    /// The path MTU.
    pub(crate) mtu: PathMtu,
}

impl Route {
    /// Asks the kernel for the route to a peer, restricted to the source address `from` if there is
    /// one.
    pub(crate) fn to(peer: SocketAddr, from: Option<SocketAddr>) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(peer), Type::DGRAM.cloexec(), None)?;
        if let Some(from) = from {
            socket.bind(&from.into())?;
        }
        let mut peer = peer;
        peer.set_port(UDP_PORT);
        // Connecting a UDP socket sends no packet.
        socket.connect(&peer.into())?;
        let mut source = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::Unsupported)?;
        source.set_port(0);
        let mtu = PathMtu::of_interface(ip_mtu(&socket, peer)?);
        Ok(Route { source, mtu: mtu.unwrap_or(PathMtu::Octets256) })
    }

    /// Returns the MTU of the interface of a local address, in octets of an IP packet. `host` has
    /// the addresses of the host, but only the first of the loopback addresses. So the other
    /// loopback addresses are taken to be on the same interface.
    pub(crate) fn ip_mtu_of(address: SocketAddr, host: &[NetAddr]) -> usize {
        let ip = address.ip();
        let listed = host.iter().find(|found| found.addr.ip() == ip);
        let interface = listed.or_else(|| {
            host.iter().find(|found| ip.is_loopback() && found.addr.ip().is_loopback())
        });
        interface.and_then(|found| netdev::mtu(&found.device).ok()).unwrap_or(ETHERNET_MTU)
    }
}

/// Returns the MTU, in octets of an IP packet, from a socket to the peer that it is connected to.
fn ip_mtu(socket: &Socket, peer: SocketAddr) -> io::Result<usize> {
    let (level, option) = match peer {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let mut value: libc::c_int = 0;
    let mut len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` and `len` are valid for writes during the call, and `len` is the size of
    // `value`.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &mut len)
    };
    if result == 0 { Ok(value.max(0) as usize) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(ip: &str) -> SocketAddr {
        SocketAddr::new(ip.parse().expect("an address"), 0)
    }

    #[test]
    fn the_loopback_leads_to_itself() {
        for ip in ["127.0.0.1", "::1"] {
            let route = Route::to(addr(ip), None).expect("a route");
            assert_eq!(route, Route { source: addr(ip), mtu: PathMtu::Octets4096 });
        }
        let host = netdev::addresses().expect("the host lists its addresses");
        for address in ["127.0.0.1:4791", "127.0.0.9:4791", "[::1]:4791"] {
            assert_eq!(
                PathMtu::of_interface(Route::ip_mtu_of(address.parse().expect(address), &host)),
                Some(PathMtu::Octets4096),
                "{address}"
            );
        }
        let from = Some(addr("127.0.0.9"));
        assert_eq!(Route::to(addr("127.0.0.1"), from).expect("a route").source, addr("127.0.0.9"));
    }
}
