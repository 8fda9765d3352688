//! UDP sockets, as RoCEv2 needs them.
//!
//! The ICRC covers the IPv4 header's identification and flags, which a UDP socket neither sets nor shows.
//! What is certain: an *unconnected* socket that forbids fragmentation sends identification 0, and in a batch
//! that the kernel cuts into packets (UDP_SEGMENT) the k-th has k. So a socket here is not connected but for
//! [`Express`](crate::express::Express), and its path MTU discovery is always on.

mod errors;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use socket2::{Domain, Protocol, SockFilter, Socket, Type};

pub(crate) use self::receive::{Datagrams, Habits, RxBatch};
pub(crate) use self::send::{MAX_BATCH, MAX_SEGMENTS, Sent};

/// Octets that may wait in a socket: as many as the system allows up to this.
const BUFFER: usize = 16 << 20;
/// The same, where what waits is never read: enough for what the kernel gives back of a packet that has left.
const SMALL_BUFFER: usize = 16 << 10;

/// A UDP socket that does not block.
pub(crate) struct Udp(Socket);

impl Udp {
    /// One that has its address for itself.
    pub(crate) fn bind_alone(address: SocketAddr) -> io::Result<Self> {
        let socket = Self::new(address)?;
        socket.0.bind(&address.into())?;
        Ok(socket)
    }

    /// Whether nobody has an address; `AddrInUse`: somebody does.
    pub(crate) fn is_free(address: SocketAddr) -> io::Result<()> {
        Self::unprepared(address)?.0.bind(&address.into())
    }

    /// One that shares its address with others of this kind, of the same user. Before it is used it is to be
    /// [prepared](Self::prepare).
    pub(crate) fn bind_shared(address: SocketAddr) -> io::Result<Self> {
        let socket = Self::unprepared(address)?;
        socket.0.set_reuse_port(true)?;
        socket.0.bind(&address.into())?;
        Ok(socket)
    }

    /// One that shares its address with others of this kind, of the same user, and reads nothing: what
    /// anybody sends there is dropped. `to`: an address that it will send to.
    pub(crate) fn bind_to_send(address: SocketAddr, to: SocketAddr) -> io::Result<Self> {
        let socket = Self::bind_shared(address)?;
        socket.prepare(to)?;
        socket.0.set_recv_buffer_size(SMALL_BUFFER)?;
        Ok(socket)
    }

    fn new(address: SocketAddr) -> io::Result<Self> {
        let socket = Self::unprepared(address)?;
        socket.prepare(address)?;
        Ok(socket)
    }

    fn unprepared(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::DGRAM.nonblocking().cloexec(),
            Some(Protocol::UDP),
        )?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        Ok(Udp(socket))
    }

    /// Gives a socket of this address all that RoCEv2 needs.
    pub(crate) fn prepare(&self, address: SocketAddr) -> io::Result<()> {
        match address {
            SocketAddr::V4(_) => {
                self.set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
            }
            SocketAddr::V6(_) => {
                self.set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
                // Kernel rxe and adapters send without a checksum.
                self.set(libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)?;
            }
        }
        self.gather(true);
        for (plain, force) in
            [(libc::SO_RCVBUF, libc::SO_RCVBUFFORCE), (libc::SO_SNDBUF, libc::SO_SNDBUFFORCE)]
        {
            // Beyond the system's limit only for the privileged; what there is will do.
            if self.set(libc::SOL_SOCKET, force, BUFFER as libc::c_int).is_err() {
                self.set(libc::SOL_SOCKET, plain, BUFFER as libc::c_int)?;
            }
        }
        Ok(())
    }

    fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: an integer, alive during the call.
        let result = unsafe {
            libc::setsockopt(
                self.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Whether packets that came as a batch are read as one (UDP_GRO). Without it, as where the kernel does
    /// not know it, they come one by one: slower, but whole.
    fn gather(&self, on: bool) {
        self.set(libc::IPPROTO_UDP, libc::UDP_GRO, on.into()).ok();
    }

    /// The network's errors are kept for [`errors`](Self::errors). Not for sockets that share a port: the
    /// kernel picks one of those without asking who has sent.
    pub(crate) fn hear_of_errors(&self) -> io::Result<()> {
        match self.local_addr()? {
            SocketAddr::V4(_) => self.set(libc::IPPROTO_IP, libc::IP_RECVERR, 1),
            SocketAddr::V6(_) => self.set(libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
        }
    }

    /// It receives nothing from now on. Datagrams that anybody sends to it are dropped, and leave the room in
    /// its buffer to [`errors`](Self::errors).
    pub(crate) fn be_deaf(&self) -> io::Result<()> {
        self.0.attach_filter(&[SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0)])
    }

    /// Whether the kernel gives packets back that have left, in the error queue.
    pub(crate) fn ask_for_headers(&self, on: bool) -> io::Result<()> {
        let when = if on {
            libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE
        } else {
            0
        };
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, when as libc::c_int)
    }

    /// From now on it receives from this address alone, and [`send_connected`](Self::send_connected) sends there.
    pub(crate) fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.0.connect(&to.into())
    }

    /// Octets that may wait in it to be read, as the kernel counts them.
    pub(crate) fn receive_buffer(&self) -> usize {
        self.0.recv_buffer_size().unwrap_or(0)
    }

    /// Its address.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

/// Accept IPv6 datagrams without a checksum; libc does not have it.
const UDP_NO_CHECK6_RX: libc::c_int = 102;

impl From<OwnedFd> for Udp {
    /// A duplicate of such a socket.
    fn from(fd: OwnedFd) -> Self {
        let udp = Udp(fd.into());
        // Its last owner may have done without.
        udp.gather(true);
        udp
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Udp {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A socket address as the kernel writes it.
fn address_of(storage: &libc::sockaddr_storage, len: libc::socklen_t) -> Option<SocketAddr> {
    // SAFETY: the kernel's, with its length; SockAddr looks at no more than the family has.
    unsafe {
        socket2::SockAddr::new(
            std::ptr::from_ref(storage).cast::<socket2::SockAddrStorage>().read(),
            len,
        )
    }
    .as_socket()
}
