//! Letters between adapters of one address: packets that came to the wrong one, and newcomers' wish for the
//! vault. Only processes of the own user can send one, because only they can enter the directory of the
//! mailboxes.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};

use super::names::{self, Name, Names, SocketFile};

/// What a newcomer says. A descriptor comes with it: the end of a socket pair that the vault is to be sent to.
pub(super) const HELLO: &[u8] = b"hello";
/// In front of a packet: its sender's address, scope and port.
const HEAD: usize = 16 + 4 + 2;
/// The longest packet, at the largest path MTU with all extension headers, and more.
const LONGEST: usize = HEAD + 4096 + 256;

/// A local socket with a name, read without blocking.
pub(crate) struct Mailbox {
    _file: SocketFile,
    socket: UnixDatagram,
}

/// Something that was in a mailbox.
pub(crate) enum Letter<'a> {
    /// An adapter that wants the vault.
    Hello(Newcomer),
    /// A packet, checked and without its ICRC, and who sent it.
    Packet { from: SocketAddr, packet: &'a [u8] },
}

/// What became of a letter.
pub(super) enum Post {
    Delivered,
    /// The mailbox has room for no more now.
    Full,
    /// There is none of this name.
    NoMailbox,
}

/// The way to an adapter that has no slot yet.
pub(crate) struct Newcomer(pub(super) UnixStream);

/// Where a letter is read to.
pub(crate) struct Desk(Box<[u8; LONGEST]>);

impl Default for Desk {
    fn default() -> Self {
        Desk(Box::new([0; LONGEST]))
    }
}

impl Mailbox {
    pub(super) fn new(socket: UnixDatagram, file: SocketFile) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Mailbox { _file: file, socket })
    }

    /// Sends a packet to another mailbox.
    pub(super) fn send(&self, names: &Names, to: Name, from: SocketAddr, packet: &[u8]) -> Post {
        if packet.len() > LONGEST - HEAD {
            // Nothing that anybody would take in.
            return Post::Delivered;
        }
        let (ip, scope) = match from {
            SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
        };
        let mut letter = [0; LONGEST];
        letter[..16].copy_from_slice(&ip.octets());
        letter[16..20].copy_from_slice(&scope.to_ne_bytes());
        letter[20..HEAD].copy_from_slice(&from.port().to_ne_bytes());
        letter[HEAD..HEAD + packet.len()].copy_from_slice(packet);
        let letter = &letter[..HEAD + packet.len()];
        let sent = names
            .address(to)
            .and_then(|to| Ok(rustix::net::sendto(&self.socket, letter, SendFlags::empty(), &to)?));
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Post::Full,
            Err(error) if names::is_nobody(&error) => Post::NoMailbox,
            // Lost, as packets may be.
            Ok(_) | Err(_) => Post::Delivered,
        }
    }

    /// The next letter.
    pub(crate) fn next<'a>(&self, desk: &'a mut Desk) -> io::Result<Option<Letter<'a>>> {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut iov = [IoSliceMut::new(&mut desk.0[..])];
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
            if &desk.0[..len] == HELLO {
                match descriptor {
                    Some(descriptor) => {
                        return Ok(Some(Letter::Hello(Newcomer(descriptor.into()))));
                    }
                    // No descriptor was left for it. The newcomer sees that nobody has the other end any more.
                    None => continue,
                }
            }
            if len >= HEAD {
                let (head, packet) = desk.0[..len].split_at(HEAD);
                return Ok(Some(Letter::Packet { from: sender(head), packet }));
            }
        }
    }
}

fn sender(head: &[u8]) -> SocketAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&head[..16]);
    let scope = u32::from_ne_bytes([head[16], head[17], head[18], head[19]]);
    let (ip, port) = (Ipv6Addr::from(octets), u16::from_ne_bytes([head[20], head[21]]));
    match ip.to_ipv4_mapped() {
        Some(v4) => SocketAddr::new(v4.into(), port),
        None => SocketAddrV6::new(ip, port, 0, scope).into(),
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Mailbox {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
