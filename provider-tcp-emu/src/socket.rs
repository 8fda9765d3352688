//! TCP sockets: how they are made, bound and tuned.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::time::Duration;

use adapter::LocalFailure;
use dat_core::Error;
use dat_core::provider::Port;
use dat_sys::{
    DAT_CONN_QUAL_IN_USE, DAT_CONN_QUAL_UNAVAILABLE, DAT_INSUFFICIENT_RESOURCES,
    DAT_RESOURCE_MEMORY,
};
use rnic::rdmap::setup::REQUEST_TIMEOUT;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// Connections within the host get the first of these that the system allows: bbr, where it is the system's default,
/// paces, which halves the bandwidth of a loopback.
const LOCAL_CONGESTION_CONTROL: [&[u8]; 2] = [b"cubic", b"reno"];
/// How long a peer on another host may answer nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// Until it is asked, and asked again.
    pub(crate) timeout: Duration,
    /// How often it is asked again.
    pub(crate) retries: u8,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { timeout: Duration::from_secs(10), retries: 5 }
    }
}

impl Patience {
    /// After this it is gone.
    pub(crate) fn silence(self) -> Duration {
        self.timeout * (u32::from(self.retries) + 1)
    }
}

/// Calls that wait in the kernel while this process is busy; how many wait for the consumer is counted elsewhere.
const KERNEL_BACKLOG: i32 = 4096;

/// A socket that listens on one address, or on all of them in both families.
pub(crate) fn listen(bind: Option<SocketAddr>, port: Port) -> Result<Socket, Error> {
    let port = match port {
        Port::Any => 0,
        Port::Qualifier(qualifier) => match adapter::port(qualifier) {
            0 => return Err(Error::of(DAT_CONN_QUAL_UNAVAILABLE)),
            port => port,
        },
    };
    let listener = match bind {
        Some(mut addr) => {
            addr.set_port(port);
            bound(addr)
        }
        None => match bound((Ipv6Addr::UNSPECIFIED, port).into()) {
            // A host without IPv6.
            Err(e)
                if matches!(e.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) =>
            {
                bound((Ipv4Addr::UNSPECIFIED, port).into())
            }
            result => result,
        },
    };
    listener.map_err(|e| match e.raw_os_error() {
        Some(libc::EADDRINUSE) => Error::of(DAT_CONN_QUAL_IN_USE),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
            Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY)
        }
        _ => Error::of(DAT_CONN_QUAL_UNAVAILABLE),
    })
}

fn bound(addr: SocketAddr) -> io::Result<Socket> {
    let socket = stream(addr)?;
    if addr.is_ipv6() {
        socket.set_only_v6(!addr.ip().is_unspecified())?;
    }
    // For connections in TIME_WAIT; two listeners on one port exclude each other all the same.
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    defer_accept(&socket);
    socket.listen(KERNEL_BACKLOG)?;
    Ok(socket)
}

/// The kernel keeps callers until they have said something, as whoever calls does at once (RFC 5044, section 7.1).
/// Those who say nothing then take no descriptor.
fn defer_accept(socket: &Socket) {
    let seconds = REQUEST_TIMEOUT.as_secs() as libc::c_int;
    // SAFETY: a socket, and one integer. Where the kernel cannot do it, callers come before they speak.
    unsafe {
        let (value, length) =
            ((&raw const seconds).cast(), size_of::<libc::c_int>() as libc::socklen_t);
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            value,
            length,
        );
    }
}

/// A socket on its way to a peer; it becomes writable when it has arrived, or failed.
pub(crate) fn connect(bind: Option<SocketAddr>, to: SocketAddr) -> Result<Socket, LocalFailure> {
    let local_failure = |error: io::Error| LocalFailure::of(&error);
    let socket = stream(to).map_err(local_failure)?;
    // Else its local port, in TIME_WAIT, would keep a service point from being opened there.
    socket.set_reuse_address(true).map_err(local_failure)?;
    if let Some(from) = bind {
        // Of two families one cannot call the other.
        if from.is_ipv4() != to.is_ipv4() {
            return Err(LocalFailure::lasting(
                "the peer's address is of another family than the adapter's",
            ));
        }
        socket.bind(&from.into()).map_err(local_failure)?;
    }
    match socket.connect(&to.into()) {
        Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(LocalFailure::of_connect(&e)),
        _ => Ok(socket),
    }
}

fn stream(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(addr),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    // Until the peer is known, as for one on this host: a congestion control that paces (bbr) and is replaced only
    // after the connection has begun leaves its pacing behind.
    SYSTEM_CONGESTION_CONTROL.get_or_init(|| {
        let name = socket.tcp_congestion().unwrap_or_default();
        name.into_iter().take_while(|octet| *octet != 0).collect()
    });
    LOCAL_CONGESTION_CONTROL.iter().any(|name| socket.set_tcp_congestion(name).is_ok());
    Ok(socket)
}

/// What sockets begin with, unless told otherwise.
static SYSTEM_CONGESTION_CONTROL: OnceLock<Vec<u8>> = OnceLock::new();

/// Sets the options of a connected socket; returns its peer's and its own address. None of the options is vital.
pub(crate) fn tune(
    socket: &Socket,
    cc: Option<&str>,
    patience: Patience,
) -> io::Result<(SocketAddr, SocketAddr)> {
    let (peer, local) = addresses(socket)?;
    socket.set_tcp_nodelay(true)?;
    let same_host = is_same_host(peer, local);
    match cc {
        Some(name) => {
            socket.set_tcp_congestion(name.as_bytes()).ok();
        }
        None if same_host => {}
        None => {
            if let Some(name) = SYSTEM_CONGESTION_CONTROL.get() {
                socket.set_tcp_congestion(name).ok();
            }
        }
    }
    // Within the host, the kernel itself says when a peer has gone; a stopped one (in a debugger) may take its time.
    if !same_host {
        watch_peer(socket, patience);
    }
    Ok((peer, local))
}

/// Has TCP find out that the peer's host has died, also while nothing is sent.
pub(crate) fn watch_peer(socket: &Socket, patience: Patience) {
    // TCP counts these in seconds.
    let every = Duration::from_secs(patience.timeout.as_millis().div_ceil(1000) as u64);
    let retries = u32::from(patience.retries) + 1;
    let probes = TcpKeepalive::new().with_time(every).with_interval(every).with_retries(retries);
    socket.set_tcp_keepalive(&probes).ok();
    limit_wait(socket, Some(patience));
}

/// Whether a connection stays within the host.
pub(crate) fn is_same_host(peer: SocketAddr, local: SocketAddr) -> bool {
    peer.ip().is_loopback() || peer.ip() == local.ip()
}

/// What of all that a socket was given the peer has not got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// Nothing.
    Nothing,
    /// Something is on its way, or lost.
    UnderWay,
    /// The peer's host has no room for more, and has acknowledged all before.
    NoRoom,
}

/// How far the peer's host has come with what a socket was given.
pub(crate) fn unsent(socket: &Socket) -> Unsent {
    const SIOCOUTQNSD: libc::c_ulong = 0x894B;
    let count = |request: libc::c_ulong| {
        let mut octets: libc::c_int = 0;
        // SAFETY: the requests write one integer.
        let answer = unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut octets) };
        if answer == 0 { octets } else { 0 }
    };
    match (count(libc::TIOCOUTQ), count(SIOCOUTQNSD)) {
        (0, _) => Unsent::Nothing,
        (unacknowledged, unsent) if unacknowledged == unsent && !has_room(socket) => Unsent::NoRoom,
        _ => Unsent::UnderWay,
    }
}

/// Whether the peer's last acknowledgement left room for a segment. Then what has not been sent is kept back
/// by this host: its link is down, say. Kernels before 5.4 do not tell, which counts as no room.
fn has_room(socket: &Socket) -> bool {
    /// Places in `struct tcp_info`, in words of 32 bits: `tcpi_snd_mss` and `tcpi_snd_wnd`.
    const SEGMENT: usize = 4;
    const WINDOW: usize = 57;
    let mut info = [0u32; WINDOW + 1];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: room for the answer, of this length.
    let answer = unsafe {
        let to = info.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, to, &mut length)
    };
    answer == 0 && length as usize == size_of_val(&info) && info[WINDOW] >= info[SEGMENT].max(1)
}

/// Whether a peer that has no room for what it is sent is given up, as one that does not answer is. (TCP
/// makes no difference: TCP_USER_TIMEOUT counts for both.)
pub(crate) fn limit_wait(socket: &Socket, limit: Option<Patience>) {
    socket.set_tcp_user_timeout(limit.map(Patience::silence)).ok();
}

/// Whether the system knows a congestion control and lets this process use it.
pub(crate) fn check_congestion_control(name: &str) -> io::Result<()> {
    let any = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
        .or_else(|_| Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP)))?;
    any.set_tcp_congestion(name.as_bytes())
}

/// Whether connections can be made from an address.
pub(crate) fn check_local(addr: SocketAddr) -> io::Result<()> {
    stream(addr)?.bind(&addr.into())
}

/// What one system call did.
#[derive(Debug)]
pub(crate) enum Moved {
    /// This many octets; receiving, 0 is the end of the stream.
    Octets(usize),
    /// Nothing: the socket is full, or empty.
    Nothing,
    /// Nothing: the vector names memory that is not there any more, or cannot be used so.
    Fault,
    /// The connection is gone.
    Gone(io::Error),
}

/// Sends what a gather vector names. `ends_record`: what is sent after it is to begin a TCP segment.
///
/// # Safety
/// The vector names readable memory, or such as is not there any more.
#[inline]
pub(crate) unsafe fn send(socket: &Socket, iov: &[libc::iovec], ends_record: bool) -> Moved {
    let fd = socket.as_raw_fd();
    let flags = if ends_record { libc::MSG_NOSIGNAL | libc::MSG_EOR } else { libc::MSG_NOSIGNAL };
    retry(|| match iov {
        // SAFETY: the caller's promise.
        [one] => unsafe { send_one(fd, one, flags) },
        _ => {
            // SAFETY: a message header of zeros is an empty one.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = iov.as_ptr().cast_mut();
            message.msg_iovlen = iov.len() as _;
            // SAFETY: the caller's promise; sendmsg does not write to the vector.
            unsafe { libc::sendmsg(fd, &message, flags) }
        }
    })
}

/// Receives to where a scatter vector says.
///
/// # Safety
/// The vector names writable memory, or such as is not there any more.
#[inline]
pub(crate) unsafe fn receive(socket: &Socket, iov: &[libc::iovec]) -> Moved {
    let fd = socket.as_raw_fd();
    retry(|| match iov {
        // SAFETY: the caller's promise.
        [one] => unsafe { recv(fd, one) },
        // SAFETY: the caller's promise.
        _ => unsafe { libc::readv(fd, iov.as_ptr(), iov.len() as libc::c_int) },
    })
}

/// `recv` and `send` without the C library's: those are cancellation points, which in a process with threads takes two
/// atomic operations a call.
///
/// # Safety
/// The element names writable memory.
#[inline]
unsafe fn recv(fd: libc::c_int, to: &libc::iovec) -> isize {
    const NO: usize = 0;
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_recvfrom, fd, to.iov_base, to.iov_len, NO, NO, NO) as isize }
}

/// See [`recv`].
///
/// # Safety
/// The element names readable memory.
#[inline]
unsafe fn send_one(fd: libc::c_int, from: &libc::iovec, flags: libc::c_int) -> isize {
    const NO: usize = 0;
    // SAFETY: the caller's promise.
    unsafe {
        libc::syscall(libc::SYS_sendto, fd, from.iov_base, from.iov_len, flags, NO, NO) as isize
    }
}

/// Whether the peer of a socket that has nothing to read is still there.
pub(crate) fn is_alive(socket: &Socket) -> bool {
    let mut octet = 0u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: `octet` is one writable octet.
    let peeked =
        retry(|| unsafe { libc::recv(socket.as_raw_fd(), (&raw mut octet).cast(), 1, flags) });
    matches!(peeked, Moved::Nothing | Moved::Octets(1))
}

/// TCP's maximum segment size on a connection.
pub(crate) fn mss(socket: &Socket) -> usize {
    socket.tcp_mss().map_or(536, |mss| mss as usize)
}

#[inline]
fn retry(mut call: impl FnMut() -> isize) -> Moved {
    loop {
        let n = call();
        if n >= 0 {
            return Moved::Octets(n as usize);
        }
        // Most looks find nothing, so this is the path to be short.
        // SAFETY: the address of this thread's errno.
        match unsafe { *libc::__errno_location() } {
            libc::EAGAIN => return Moved::Nothing,
            libc::EINTR => {}
            libc::EFAULT => return Moved::Fault,
            errno => return Moved::Gone(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// A connected socket's peer and its own address.
pub(crate) fn addresses(socket: &Socket) -> io::Result<(SocketAddr, SocketAddr)> {
    Ok((canonical(socket.peer_addr()?)?, canonical(socket.local_addr()?)?))
}

/// An address as its host writes it: those of IPv4 callers of a socket for both families are IPv4 ones.
fn canonical(addr: socket2::SockAddr) -> io::Result<SocketAddr> {
    let addr = addr.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok(match addr.ip() {
        IpAddr::V4(_) => addr,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => (v4, addr.port()).into(),
            None => addr,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_belongs_to_one_listener() {
        for bind in [None, Some(SocketAddr::from(([127, 0, 0, 1], 0)))] {
            let first = listen(bind, Port::Any).expect("any port");
            let port = first.local_addr().expect("bound").as_socket().expect("IP").port();
            assert!(port >= 1024);
            let again = listen(bind, Port::Qualifier(port.into()));
            assert_eq!(again.expect_err("taken"), Error::of(DAT_CONN_QUAL_IN_USE));
            drop(first);
            listen(bind, Port::Qualifier(port.into())).expect("free again");
        }
    }

    #[test]
    fn qualifier_zero_and_foreign_addresses_are_unavailable() {
        let unavailable = Error::of(DAT_CONN_QUAL_UNAVAILABLE);
        assert_eq!(listen(None, Port::Qualifier(0)).expect_err("no port"), unavailable);
        let foreign = SocketAddr::from(([203, 0, 113, 77], 0));
        assert_eq!(listen(Some(foreign), Port::Any).expect_err("not ours"), unavailable);
    }

    #[test]
    fn families_do_not_mix() {
        let from = SocketAddr::from(([127, 0, 0, 1], 0));
        let to = SocketAddr::from((Ipv6Addr::LOCALHOST, 9));
        assert!(matches!(connect(Some(from), to), Err(LocalFailure::Lasting(_))));
    }

    #[test]
    fn unknown_congestion_controls_are_found_out() {
        assert!(check_congestion_control("reno").is_ok());
        assert!(check_congestion_control("no-such-thing").is_err());
    }
}
