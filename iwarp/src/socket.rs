//! TCP sockets: how they are created, bound and configured, and the system calls that move octets.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;
use std::time::Duration;

use adapter::{Error, LocalFailure};
use mio::Interest;
use rnic::rdmap::setup::REQUEST_TIMEOUT;
use rustix::process::{Resource, getrlimit};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// The congestion controls for connections within the host, in the order of preference. The
/// system's default may be bbr, whose pacing halves the bandwidth of the loopback device.
const LOCAL_CONGESTION_CONTROL: [&[u8]; 2] = [b"cubic", b"reno"];
/// The times that decide when a silent peer on another host counts as dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerTimeout {
    /// The time after which TCP probes a silent peer, and the time between two probes.
    pub timeout: Duration,
    /// How often TCP repeats the probe.
    pub retries: u8,
}

impl Default for PeerTimeout {
    fn default() -> Self {
        PeerTimeout { timeout: Duration::from_secs(10), retries: 5 }
    }
}

impl PeerTimeout {
    /// Returns how long the peer may be silent in all.
    pub(crate) fn total(self) -> Duration {
        self.timeout * (u32::from(self.retries) + 1)
    }
}

/// The number of callers that the kernel queues while this process is busy. The listener's own
/// backlog limits the requests that wait for the program.
const KERNEL_BACKLOG: i32 = 4096;

/// Creates a socket that listens at a port, or at any free port if `port` is `None`. It listens on
/// the address `bind`, or on all addresses of both families if `bind` is `None`.
pub(crate) fn listen(bind: Option<SocketAddr>, port: Option<u16>) -> Result<Socket, Error> {
    let port = match port {
        Some(0) => return Err(Error::PortUnavailable),
        port => port.unwrap_or(0),
    };
    let listener = match bind {
        Some(mut addr) => {
            addr.set_port(port);
            bind_and_listen(addr)
        }
        None => match bind_and_listen((Ipv6Addr::UNSPECIFIED, port).into()) {
            // The host has no IPv6.
            Err(e)
                if matches!(e.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) =>
            {
                bind_and_listen((Ipv4Addr::UNSPECIFIED, port).into())
            }
            result => result,
        },
    };
    listener.map_err(|e| match e.raw_os_error() {
        Some(libc::EADDRINUSE) => Error::PortTaken,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => Error::NoMemory,
        _ => Error::PortUnavailable,
    })
}

fn bind_and_listen(addr: SocketAddr) -> io::Result<Socket> {
    let socket = new_tcp_socket(addr)?;
    if addr.is_ipv6() {
        socket.set_only_v6(!addr.ip().is_unspecified())?;
    }
    // This option allows a port that has connections in TIME_WAIT. Two listeners on one port still
    // exclude each other.
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    defer_accept(&socket);
    socket.listen(KERNEL_BACKLOG)?;
    Ok(socket)
}

/// Makes the kernel hold back connections until they have sent octets. An initiator sends its
/// request at once (RFC 5044, section 7.1), so a connection that sends nothing takes no descriptor.
fn defer_accept(socket: &Socket) {
    let seconds = REQUEST_TIMEOUT.as_secs() as libc::c_int;
    // SAFETY: the arguments name a socket and one readable integer. A kernel without this option
    // reports connections before they have sent octets, which is allowed.
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

/// Starts to connect. The socket becomes writable when it has connected or failed.
pub(crate) fn connect(bind: Option<SocketAddr>, to: SocketAddr) -> Result<Socket, LocalFailure> {
    let local_failure = |error: io::Error| LocalFailure::of(&error);
    let socket = new_tcp_socket(to).map_err(local_failure)?;
    // Without this option, the local port of an ended connection (TIME_WAIT) would prevent a
    // listener on that port.
    socket.set_reuse_address(true).map_err(local_failure)?;
    if let Some(from) = bind {
        // A socket cannot connect to an address of another family.
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

fn new_tcp_socket(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(addr),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    // Every socket starts with the congestion control for peers on this host. If bbr were replaced
    // only after the connection was established, its pacing would stay.
    SYSTEM_CONGESTION_CONTROL.get_or_init(|| {
        let name = socket.tcp_congestion().unwrap_or_default();
        name.into_iter().take_while(|octet| *octet != 0).collect()
    });
    LOCAL_CONGESTION_CONTROL.iter().any(|name| socket.set_tcp_congestion(name).is_ok());
    Ok(socket)
}

/// The congestion control that new sockets have by default.
static SYSTEM_CONGESTION_CONTROL: OnceLock<Vec<u8>> = OnceLock::new();

/// Sets the options of a connected socket. Returns its peer's address and its own. Only TCP_NODELAY
/// must succeed.
pub(crate) fn configure_connected(
    socket: &Socket,
    cc: Option<&str>,
    peer_timeout: PeerTimeout,
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
    // Within the host, the kernel reports when a peer has ended, so no timeout is needed. A peer
    // that is stopped, for example in a debugger, must not count as dead.
    if !same_host {
        enable_keepalive(socket, peer_timeout);
    }
    Ok((peer, local))
}

/// Makes TCP detect that the peer's host is dead, even while nothing is sent.
pub(crate) fn enable_keepalive(socket: &Socket, peer_timeout: PeerTimeout) {
    // TCP counts the intervals in seconds.
    let interval = Duration::from_secs(peer_timeout.timeout.as_millis().div_ceil(1000) as u64);
    let retries = u32::from(peer_timeout.retries) + 1;
    let probes =
        TcpKeepalive::new().with_time(interval).with_interval(interval).with_retries(retries);
    socket.set_tcp_keepalive(&probes).ok();
    set_user_timeout(socket, Some(peer_timeout));
}

/// Returns whether a connection stays within the host.
pub(crate) fn is_same_host(peer: SocketAddr, local: SocketAddr) -> bool {
    peer.ip().is_loopback() || peer.ip() == local.ip()
}

/// The state of the octets that were written to a socket and that the peer has not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unacknowledged {
    /// Everything is acknowledged.
    Nothing,
    /// Octets are in flight or lost.
    InFlight,
    /// The peer has acknowledged everything that was sent, and its window has no room for the rest.
    /// The peer has answered all of TCP's window probes.
    NoWindow,
    /// The peer's window has no room for the rest, and the peer has not answered the last window
    /// probe.
    ProbeUnanswered,
}

/// Returns the state of the octets that the peer has not acknowledged. Removes TCP_USER_TIMEOUT
/// while the peer's window is closed, so that TCP has no limit then. That option does not
/// distinguish a peer that does not answer from a peer whose window stays closed.
pub(crate) fn check_unacknowledged(socket: &Socket, limit: PeerTimeout) -> Unacknowledged {
    let unacknowledged = unacknowledged(socket);
    let is_window_closed =
        matches!(unacknowledged, Unacknowledged::NoWindow | Unacknowledged::ProbeUnanswered);
    set_user_timeout(socket, (!is_window_closed).then_some(limit));
    unacknowledged
}

fn unacknowledged(socket: &Socket) -> Unacknowledged {
    const SIOCOUTQNSD: libc::c_ulong = 0x894B;
    let count = |request: libc::c_ulong| {
        let mut octets: libc::c_int = 0;
        // SAFETY: the requests write one integer.
        let answer = unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut octets) };
        if answer == 0 { octets } else { 0 }
    };
    match (count(libc::TIOCOUTQ), count(SIOCOUTQNSD)) {
        (0, _) => Unacknowledged::Nothing,
        (unacknowledged, unsent) if unacknowledged == unsent => held_back(socket),
        _ => Unacknowledged::InFlight,
    }
}

/// Returns why TCP has sent none of the unacknowledged octets. If the window in the peer's last
/// acknowledgement has room for a segment, this host holds the octets back, for example because its
/// network device is down. Kernels before 5.4 do not report the window. Then the window is taken to
/// have no room.
fn held_back(socket: &Socket) -> Unacknowledged {
    /// The indices of `tcpi_snd_mss` and `tcpi_snd_wnd` in `struct tcp_info`, in words of 32 bits.
    const SND_MSS: usize = 4;
    const SND_WND: usize = 57;
    /// The octet `tcpi_probes`: the number of window probes since the last acknowledgement.
    const PROBES: usize = 3;
    /// One probe may be under way or lost. A second one is sent only if the first is unanswered.
    const UNANSWERED_PROBE_COUNT: u8 = 2;
    let mut info = [0u32; SND_WND + 1];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the buffer has room for an answer of this length.
    let answer = unsafe {
        let to = info.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, to, &mut length)
    };
    let is_known = answer == 0 && length as usize == size_of_val(&info);
    if is_known && info[SND_WND] >= info[SND_MSS].max(1) {
        Unacknowledged::InFlight
    } else if info[0].to_ne_bytes()[PROBES] >= UNANSWERED_PROBE_COUNT {
        Unacknowledged::ProbeUnanswered
    } else {
        Unacknowledged::NoWindow
    }
}

/// Sets or removes the limit after which TCP gives up a peer.
fn set_user_timeout(socket: &Socket, limit: Option<PeerTimeout>) {
    socket.set_tcp_user_timeout(limit.map(PeerTimeout::total)).ok();
}

/// Checks that the system has a congestion control and lets this process use it.
pub(crate) fn check_congestion_control(name: &str) -> io::Result<()> {
    let any = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
        .or_else(|_| Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP)))?;
    any.set_tcp_congestion(name.as_bytes())
}

/// Checks that sockets can be bound to an address.
pub(crate) fn check_bind(addr: SocketAddr) -> io::Result<()> {
    new_tcp_socket(addr)?.bind(&addr.into())
}

/// The outcome of one system call.
#[derive(Debug)]
pub(crate) enum IoOutcome {
    /// This many octets were moved. For a receive, 0 is the end of the stream.
    Octets(usize),
    /// Nothing was moved, because the socket is full or empty.
    WouldBlock,
    /// Nothing was moved, because the vector names memory that is unmapped or has the wrong
    /// protection.
    Fault,
    /// The connection has failed.
    Failed(io::Error),
}

/// Sends the octets of a gather vector. With `ends_record`, the octets that are sent next begin a
/// new TCP segment.
///
/// # Safety
/// Each element of the vector must name memory that is readable or no longer mapped.
#[inline]
pub(crate) unsafe fn send(socket: &Socket, iov: &[libc::iovec], ends_record: bool) -> IoOutcome {
    let fd = socket.as_raw_fd();
    let flags = if ends_record { libc::MSG_NOSIGNAL | libc::MSG_EOR } else { libc::MSG_NOSIGNAL };
    retry_interrupted(|| match iov {
        // SAFETY: the caller fulfils the contract of this function.
        [one] => unsafe { sendto(fd, one, flags) },
        _ => {
            // SAFETY: a `msghdr` of zeros is a valid, empty one.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = iov.as_ptr().cast_mut();
            message.msg_iovlen = iov.len() as _;
            // SAFETY: the caller fulfils the contract of this function. `sendmsg` does not write to
            // the vector.
            unsafe { libc::sendmsg(fd, &message, flags) }
        }
    })
}

/// Receives octets into a scatter vector.
///
/// # Safety
/// Each element of the vector must name memory that is writable or no longer mapped.
#[inline]
pub(crate) unsafe fn receive(socket: &Socket, iov: &[libc::iovec]) -> IoOutcome {
    let fd = socket.as_raw_fd();
    retry_interrupted(|| match iov {
        // SAFETY: the caller fulfils the contract of this function.
        [one] => unsafe { recvfrom(fd, one) },
        // SAFETY: the caller fulfils the contract of this function.
        _ => unsafe { libc::readv(fd, iov.as_ptr(), iov.len() as libc::c_int) },
    })
}

/// Receives with the bare system call. The C library's `recv` and `send` are cancellation points,
/// which cost two atomic operations per call in a process with threads.
///
/// # Safety
/// The element must name memory that is writable or no longer mapped.
#[inline]
unsafe fn recvfrom(fd: libc::c_int, to: &libc::iovec) -> isize {
    const UNUSED: usize = 0;
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        libc::syscall(libc::SYS_recvfrom, fd, to.iov_base, to.iov_len, UNUSED, UNUSED, UNUSED)
            as isize
    }
}

/// Sends with the bare system call; see [`recvfrom`].
///
/// # Safety
/// The element must name memory that is readable or no longer mapped.
#[inline]
unsafe fn sendto(fd: libc::c_int, from: &libc::iovec, flags: libc::c_int) -> isize {
    const UNUSED: usize = 0;
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        libc::syscall(libc::SYS_sendto, fd, from.iov_base, from.iov_len, flags, UNUSED, UNUSED)
            as isize
    }
}

/// Returns whether the connection of a socket still exists: the peer has neither closed nor reset
/// it.
pub(crate) fn has_peer(socket: &Socket) -> bool {
    let mut octet = 0u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: `octet` is one writable octet.
    let peeked = retry_interrupted(|| unsafe {
        libc::recv(socket.as_raw_fd(), (&raw mut octet).cast(), 1, flags)
    });
    matches!(peeked, IoOutcome::WouldBlock | IoOutcome::Octets(1))
}

/// Returns the maximum segment size of a connection.
pub(crate) fn mss(socket: &Socket) -> usize {
    socket.tcp_mss().map_or(536, |mss| mss as usize)
}

#[inline]
fn retry_interrupted(mut call: impl FnMut() -> isize) -> IoOutcome {
    loop {
        let n = call();
        if n >= 0 {
            return IoOutcome::Octets(n as usize);
        }
        // Most receives find an empty socket, so that case is first.
        // SAFETY: `__errno_location` returns the valid address of this thread's errno.
        match unsafe { *libc::__errno_location() } {
            libc::EAGAIN => return IoOutcome::WouldBlock,
            libc::EINTR => {}
            libc::EFAULT => return IoOutcome::Fault,
            errno => return IoOutcome::Failed(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Returns the peer's address and this side's address of a connected socket.
pub(crate) fn addresses(socket: &Socket) -> io::Result<(SocketAddr, SocketAddr)> {
    Ok((canonical(socket.peer_addr()?)?, canonical(socket.local_addr()?)?))
}

/// Converts an IPv4-mapped IPv6 address, which a socket for both families reports, to IPv4.
fn canonical(address: socket2::SockAddr) -> io::Result<SocketAddr> {
    address
        .as_socket()
        .map(address::normalized)
        .ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

/// The events of a connection that the poller reports.
pub(crate) const READ_WRITE: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// Returns whether the number of the descriptor shows that the process has used half of its
/// descriptors. The other half is kept for new connections.
pub(crate) fn is_scarce(descriptor: RawFd) -> bool {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    descriptor as u64 >= limit / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_belongs_to_one_listener() {
        for bind in [None, Some(SocketAddr::from(([127, 0, 0, 1], 0)))] {
            let first = listen(bind, None).expect("any port");
            let port = first.local_addr().expect("bound").as_socket().expect("IP").port();
            assert!(port >= 1024);
            let again = listen(bind, Some(port));
            assert_eq!(again.expect_err("taken"), Error::PortTaken);
            drop(first);
            listen(bind, Some(port)).expect("free again");
        }
    }

    #[test]
    fn qualifier_zero_and_foreign_addresses_are_unavailable() {
        let unavailable = Error::PortUnavailable;
        assert_eq!(listen(None, Some(0)).expect_err("no port"), unavailable);
        let foreign = SocketAddr::from(([203, 0, 113, 77], 0));
        assert_eq!(listen(Some(foreign), None).expect_err("not ours"), unavailable);
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
