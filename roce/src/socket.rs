//! UDP sockets with the options that RoCEv2 needs.
//!
//! The ICRC covers the identification and the flags in the IPv4 header. A UDP socket can neither
//! set nor read these fields. But their values are predictable: an *unconnected* socket that
//! forbids fragmentation sends identification 0, and in a batch that the kernel splits into packets
//! (UDP_SEGMENT), packet k has identification k. Therefore the sockets here are not connected,
//! except for [`ConnectedSocket`](crate::connected_socket::ConnectedSocket), and they always forbid
//! fragmentation.
//!
//! The kernel believes any ICMP message that says that a router carries only shorter packets.
//! Therefore the sockets ignore the path MTU that the kernel has learned (IP_PMTUDISC_PROBE). The
//! kernel refuses only packets that are longer than the MTU of the interface. The engine reads the
//! ICMP messages itself and [checks](crate::path_reports) them.

mod errors;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use socket2::{Domain, Protocol, SockFilter, Socket, Type};

pub(crate) use self::errors::SendFailure;
pub(crate) use self::receive::{Datagrams, ReceiveStrategy, RxBatch};
pub(crate) use self::send::{MAX_BATCH_BYTES, MAX_SEGMENTS, Sent};

/// The size of a socket's send and receive buffers in octets. If the system does not allow this
/// size, the buffers get the largest size that it allows.
const BUFFER_MAX_BYTES: usize = 16 << 20;
/// The size, in octets, of the receive buffer of a socket that is only used for sending. The buffer
/// holds the packets that the kernel returns after sending.
const SEND_ONLY_BUFFER_BYTES: usize = 16 << 10;

/// A non-blocking UDP socket.
pub(crate) struct Udp(Socket);

impl Udp {
    /// Creates a socket that shares its address with no other socket.
    pub(crate) fn bind_exclusive(address: SocketAddr) -> io::Result<Self> {
        let socket = Self::new(address)?;
        socket.0.bind(&address.into())?;
        Ok(socket)
    }

    /// Checks that no socket is bound to an address. Returns `AddrInUse` if there is one.
    pub(crate) fn check_free(address: SocketAddr) -> io::Result<()> {
        Self::unconfigured(address)?.0.bind(&address.into())
    }

    /// Creates a socket that shares its address with other sockets of the same user. Call
    /// [configure](Self::configure) before using it.
    pub(crate) fn bind_shared(address: SocketAddr) -> io::Result<Self> {
        let socket = Self::unconfigured(address)?;
        socket.0.set_reuse_port(true)?;
        socket.0.bind(&address.into())?;
        Ok(socket)
    }

    /// Creates a socket that shares its port with other sockets of the same user and is only used
    /// for sending. Datagrams that arrive at the socket are not read. `to` is an address to
    /// which the socket will send.
    pub(crate) fn bind_send_only(address: SocketAddr, to: SocketAddr) -> io::Result<Self> {
        let socket = Self::bind_shared(address)?;
        socket.configure(to)?;
        socket.0.set_recv_buffer_size(SEND_ONLY_BUFFER_BYTES)?;
        Ok(socket)
    }

    /// Creates a socket that reserves a free port on all addresses of the host, of IPv4 and IPv6,
    /// and returns the port. Only sockets of this user that [share](Self::bind_shared) the port can
    /// be bound to it. Without the reservation, another user could bind the port on another address
    /// and send packets whose source is our address and port (IP_PKTINFO). Datagrams that arrive at
    /// the socket are dropped. Returns `AddrInUse` if each port is in use on some address.
    pub(crate) fn reserve_port() -> io::Result<(Self, u16)> {
        let (kind, protocol) = (Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP));
        // A socket of IPv6 can send to IPv4 addresses, so a reservation for IPv4 alone would not
        // be enough.
        let (socket, any) = match Socket::new(Domain::IPV6, kind, protocol) {
            Ok(socket) => {
                socket.set_only_v6(false)?;
                (socket, IpAddr::from(Ipv6Addr::UNSPECIFIED))
            }
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
                (Socket::new(Domain::IPV4, kind, protocol)?, Ipv4Addr::UNSPECIFIED.into())
            }
            Err(error) => return Err(error),
        };
        // The socket does not share the port while it is bound. So the kernel picks a port that no
        // socket has, not even one of this user. If another socket of this user shared the port,
        // the kernel would not check the sockets of other users.
        socket.bind(&SocketAddr::new(any, 0).into())?;
        socket.set_reuse_port(true)?;
        let socket = Udp(socket);
        socket.drop_incoming()?;
        let port = socket.local_addr()?.port();
        Ok((socket, port))
    }

    fn new(address: SocketAddr) -> io::Result<Self> {
        let socket = Self::unconfigured(address)?;
        socket.configure(address)?;
        Ok(socket)
    }

    fn unconfigured(address: SocketAddr) -> io::Result<Self> {
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

    /// Sets the options that RoCEv2 needs.
    pub(crate) fn configure(&self, address: SocketAddr) -> io::Result<()> {
        match address {
            SocketAddr::V4(_) => {
                self.set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
            }
            SocketAddr::V6(_) => {
                let probe = libc::IPV6_PMTUDISC_PROBE;
                self.set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, probe)?;
                // Accept packets without a UDP checksum, because the kernel's rxe and RDMA adapters
                // send such packets.
                self.set(libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)?;
            }
        }
        self.set_gro(true);
        for (plain, force) in
            [(libc::SO_RCVBUF, libc::SO_RCVBUFFORCE), (libc::SO_SNDBUF, libc::SO_SNDBUFFORCE)]
        {
            // Only a privileged process can exceed the system's limit. For other processes the
            // limit applies.
            if self.set(libc::SOL_SOCKET, force, BUFFER_MAX_BYTES as libc::c_int).is_err() {
                self.set(libc::SOL_SOCKET, plain, BUFFER_MAX_BYTES as libc::c_int)?;
            }
        }
        Ok(())
    }

    fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: `value` is valid for reads during the call, and its size is passed.
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

    /// Sets whether the kernel merges packets into batches (UDP_GRO). If the kernel does not
    /// support UDP_GRO, packets arrive one by one, which is slower.
    fn set_gro(&self, on: bool) {
        self.set(libc::IPPROTO_UDP, libc::UDP_GRO, on.into()).ok();
    }

    /// Sets the traffic class of the packets that the socket sends: the DSCP in the upper 6 bits,
    /// and the ECN codepoint in the lower 2 bits. With IPv4 this octet is the TOS.
    pub(crate) fn set_traffic_class(&self, traffic_class: u8) -> io::Result<()> {
        let (level, option) = match self.local_addr()? {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        self.set(level, option, traffic_class.into())
    }

    /// The traffic class of the packets that the socket sends.
    #[cfg(test)]
    pub(crate) fn traffic_class(&self) -> io::Result<u32> {
        match self.local_addr()? {
            SocketAddr::V4(_) => self.0.tos_v4(),
            SocketAddr::V6(_) => self.0.tclass_v6(),
        }
    }

    /// Makes the kernel report the traffic class of the packets that arrive from now on, which
    /// contains the marks of switches.
    pub(crate) fn report_traffic_class(&self) -> io::Result<()> {
        let (level, option) = match self.local_addr()? {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVTOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
        };
        self.set(level, option, 1)
    }

    /// Enables the error queue, which [`read_errors`](Self::read_errors) reads. From now on, an
    /// ICMP error also makes the next call of [`send`](Self::send) try twice.
    ///
    /// An ICMP error quotes a packet. The kernel reports the error to the socket that would receive
    /// an answer to that packet, even if another socket has sent it. Do not use the error queue if
    /// several unconnected sockets are bound to one address and port, because any of them may get
    /// the report. A socket that is bound to the port on all addresses gets none of these reports,
    /// and a connected socket gets only those about packets to its peer.
    pub(crate) fn enable_error_queue(&self) -> io::Result<()> {
        match self.local_addr()? {
            SocketAddr::V4(_) => self.set(libc::IPPROTO_IP, libc::IP_RECVERR, 1),
            SocketAddr::V6(_) => self.set(libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
        }
    }

    /// Drops all datagrams that arrive from now on, so that they cannot take the buffer space that
    /// [`read_errors`](Self::read_errors) needs.
    pub(crate) fn drop_incoming(&self) -> io::Result<()> {
        self.0.attach_filter(&[SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0)])
    }

    /// Sets whether the kernel returns sent packets in the error queue (with their timestamps).
    pub(crate) fn return_sent_packets(&self, on: bool) -> io::Result<()> {
        let when = if on {
            libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE
        } else {
            0
        };
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, when as libc::c_int)
    }

    /// Connects the socket, which then receives only from this address.
    /// [`send_connected`](Self::send_connected) sends to this address.
    pub(crate) fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.0.connect(&to.into())
    }

    /// The size of the receive buffer in octets, as the kernel counts them.
    pub(crate) fn receive_buffer(&self) -> usize {
        self.0.recv_buffer_size().unwrap_or(0)
    }

    /// The address that the socket is bound to.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

/// The bits of the traffic class that contain the ECN codepoint (RFC 3168).
const ECN_MASK: u8 = 0b11;
/// The ECN codepoint of a packet whose sender reacts to marks: ECT(0).
pub(crate) const ECN_CAPABLE: u8 = 0b10;
/// The ECN codepoint of a packet that a switch has marked: CE.
pub(crate) const ECN_MARKED: u8 = 0b11;

/// Accepts IPv6 datagrams without a checksum. The crate libc does not define this option.
const UDP_NO_CHECK6_RX: libc::c_int = 102;

impl From<OwnedFd> for Udp {
    /// Converts the descriptor of a configured socket.
    fn from(fd: OwnedFd) -> Self {
        let udp = Udp(fd.into());
        // The previous owner of the socket may have turned UDP_GRO off.
        udp.set_gro(true);
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

/// Converts a socket address that the kernel has written.
fn address_of(storage: &libc::sockaddr_storage, len: libc::socklen_t) -> Option<SocketAddr> {
    // SAFETY: the kernel has written the address and its length. SockAddr reads only the fields of
    // the address family.
    unsafe {
        socket2::SockAddr::new(
            std::ptr::from_ref(storage).cast::<socket2::SockAddrStorage>().read(),
            len,
        )
    }
    .as_socket()
}
