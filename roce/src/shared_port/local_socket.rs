//! Messages between adapters of one address: packets that another adapter must handle, and requests
//! of new adapters for the shared sockets. Only processes of the same user can send such messages,
//! because other users cannot enter the directory of the local sockets.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};

use super::socket_files::{self, Name, Names, SocketFile};

/// The message that requests the shared sockets. It carries a descriptor: one end of a socket pair.
/// The receiver sends the shared sockets to that end.
pub(super) const SOCKET_REQUEST: &[u8] = b"hello";
/// The length of the header of a forwarded packet: the sender's address, scope and port, and
/// whether the packet is marked.
const HEADER_BYTES: usize = 16 + 4 + 2 + 1;
/// The maximum length of a message: the largest path MTU with all extension headers, and some
/// reserve.
const MESSAGE_MAX_BYTES: usize = HEADER_BYTES + 4096 + 256;

/// A non-blocking local socket with a name.
pub(crate) struct LocalSocket {
    _file: SocketFile,
    socket: UnixDatagram,
}

/// A message that has been received.
pub(crate) enum LocalMessage<'a> {
    /// A new adapter requests the shared sockets.
    SocketRequest(SocketRequest),
    /// A packet and its origin. The adapter that forwards the packet has checked it and removed its
    /// ICRC.
    Packet { origin: Origin, packet: &'a [u8] },
}

/// The origin of a forwarded packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The address of the sender.
    pub(crate) from: SocketAddr,
    /// Whether a switch has marked the packet.
    pub(crate) marked: bool,
}

impl From<SocketAddr> for Origin {
    /// The origin of a packet without a mark.
    fn from(from: SocketAddr) -> Self {
        Origin { from, marked: false }
    }
}

/// The result of sending a message.
pub(super) enum SendOutcome {
    Sent,
    /// The receiver's queue is full.
    Full,
    /// No socket has this name.
    NoReceiver,
}

/// A request for the shared sockets: the connection over which the answer is sent.
pub(crate) struct SocketRequest(pub(super) UnixStream);

/// The buffer into which a message is read.
pub(crate) struct ReceiveBuffer(Box<[u8; MESSAGE_MAX_BYTES]>);

impl Default for ReceiveBuffer {
    fn default() -> Self {
        ReceiveBuffer(Box::new([0; MESSAGE_MAX_BYTES]))
    }
}

impl LocalSocket {
    pub(super) fn new(socket: UnixDatagram, file: SocketFile) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(LocalSocket { _file: file, socket })
    }

    /// Sends a packet to another local socket.
    pub(super) fn send(
        &self,
        names: &Names,
        to: Name,
        Origin { from, marked }: Origin,
        packet: &[u8],
    ) -> SendOutcome {
        if packet.len() > MESSAGE_MAX_BYTES - HEADER_BYTES {
            // No receiver accepts a packet of this length, so it is dropped.
            return SendOutcome::Sent;
        }
        let (ip, scope) = match from {
            SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
        };
        let mut message = [0; MESSAGE_MAX_BYTES];
        message[..16].copy_from_slice(&ip.octets());
        message[16..20].copy_from_slice(&scope.to_ne_bytes());
        message[20..22].copy_from_slice(&from.port().to_ne_bytes());
        message[22] = marked.into();
        message[HEADER_BYTES..HEADER_BYTES + packet.len()].copy_from_slice(packet);
        let message = &message[..HEADER_BYTES + packet.len()];
        let sent = names.with_address(to, |to| {
            Ok(rustix::net::sendto(&self.socket, message, SendFlags::empty(), to)?)
        });
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => SendOutcome::Full,
            Err(error) if socket_files::means_no_owner(&error) => SendOutcome::NoReceiver,
            // After any other failure the packet counts as lost, as in a network.
            Ok(_) | Err(_) => SendOutcome::Sent,
        }
    }

    /// Receives the next message.
    pub(crate) fn receive<'a>(
        &self,
        buffer: &'a mut ReceiveBuffer,
    ) -> io::Result<Option<LocalMessage<'a>>> {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut iov = [IoSliceMut::new(&mut buffer.0[..])];
            let received = match rustix::net::recvmsg(
                &self.socket,
                &mut iov,
                &mut control,
                RecvFlags::CMSG_CLOEXEC,
            ) {
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => continue,
                result => result?,
            };
            let descriptor = control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                _ => None,
            });
            let len = received.bytes;
            if &buffer.0[..len] == SOCKET_REQUEST {
                match descriptor {
                    Some(descriptor) => {
                        return Ok(Some(LocalMessage::SocketRequest(SocketRequest(
                            descriptor.into(),
                        ))));
                    }
                    // The process has reached its limit of descriptors, so the kernel has closed
                    // the descriptor in the message. The requester sees that the other end of its
                    // socket pair is closed.
                    None => continue,
                }
            }
            if len >= HEADER_BYTES {
                let (header, packet) = buffer.0[..len].split_at(HEADER_BYTES);
                let origin = Origin { from: parse_sender(header), marked: header[22] != 0 };
                return Ok(Some(LocalMessage::Packet { origin, packet }));
            }
        }
    }
}

fn parse_sender(header: &[u8]) -> SocketAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&header[..16]);
    let scope = u32::from_ne_bytes([header[16], header[17], header[18], header[19]]);
    let (ip, port) = (Ipv6Addr::from(octets), u16::from_ne_bytes([header[20], header[21]]));
    address::normalized(SocketAddrV6::new(ip, port, 0, scope).into())
}

impl AsFd for LocalSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for LocalSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
