//! How one process offers shared memory to another process of the same user.
//!
//! An adapter with listeners has a datagram socket in the [directory of the user](UserDirectory),
//! which other users cannot enter. For each TCP listener a symbolic link leads to that socket. The
//! link is named after the listener's address, so the side that has connected finds the socket of
//! the adapter that has accepted the connection. It sends the offer in one datagram: the addresses
//! of the connection, the memory, and one end of a pair of sockets, by which the sides wake each
//! other.
//!
//! The addresses make sure that the offer belongs to the connection: a relay between the two
//! processes, or a process in another network namespace, has other addresses.

use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_passcred, socket_domain, socket_type};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType, UCred,
    recvmsg, sendmsg_addr,
};
use rustix::process::{getegid, geteuid, getpid};
use telemetry::user_directory::{UserDirectory, create_files, is_private_directory};

/// The directory of the sockets and links, below that of the network namespace.
const DIRECTORY: &str = "tcp-emu";
/// The first octets of an offer. They change with the layout of the offer or of the memory.
const MAGIC: [u8; 8] = *b"OpenDAT\x01";
/// The size of an address in an offer: 16 octets of IPv6 address, IPv4 addresses as mapped ones,
/// and the port.
const ADDRESS_BYTES: usize = 18;
const OFFER_BYTES: usize = MAGIC.len() + 2 * ADDRESS_BYTES;
/// The descriptors of an offer: the memory, and the receiver's end of the pair of sockets.
const DESCRIPTORS: usize = 2;

/// An offer of shared memory for one connection.
pub(crate) struct Offer {
    /// The receiver's address of the connection.
    pub(crate) local: SocketAddr,
    /// The sender's address of the connection.
    pub(crate) peer: SocketAddr,
    /// The file of the memory.
    pub(super) memory: OwnedFd,
    /// The receiver's end of the pair of sockets.
    pub(super) wake_socket: UnixStream,
}

/// The addresses of an offer, in octets.
fn emit(receiver: SocketAddr, sender: SocketAddr) -> [u8; OFFER_BYTES] {
    let mut octets = [0; OFFER_BYTES];
    let (magic, addresses) = octets.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    for (to, address) in addresses.chunks_exact_mut(ADDRESS_BYTES).zip([receiver, sender]) {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        to[..16].copy_from_slice(&ip.octets());
        to[16..].copy_from_slice(&address.port().to_be_bytes());
    }
    octets
}

/// Reads the addresses of an offer: the receiver's and the sender's.
fn parse(octets: &[u8]) -> Option<[SocketAddr; 2]> {
    let addresses = octets.strip_prefix(&MAGIC)?;
    let (addresses, []) = addresses.as_chunks::<ADDRESS_BYTES>() else { return None };
    let addresses: &[_; 2] = addresses.try_into().ok()?;
    Some(addresses.map(|address| {
        let (ip, port) = address.split_at(16);
        let ip: [u8; 16] = ip.try_into().expect("16 octets");
        let port = u16::from_be_bytes([port[0], port[1]]);
        SocketAddr::new(IpAddr::from(ip).to_canonical(), port)
    }))
}

/// The name of a listener's link.
fn link_name(ip: Option<IpAddr>, port: u16) -> String {
    match ip.filter(|ip| !ip.is_unspecified()) {
        Some(ip) => format!("{ip}-{port}"),
        None => format!("any-{port}"),
    }
}

/// The directory of the sockets to which offers are sent. To find it can take long, because other
/// users may have created any number of files beside it. So it is found once.
#[derive(Clone, Debug)]
pub(crate) struct OfferDirectory {
    of_user: PathBuf,
    path: PathBuf,
}

impl OfferDirectory {
    pub(crate) fn find() -> io::Result<Self> {
        let of_user = UserDirectory::find().map_err(|(_, error)| error)?;
        let path = of_user.path_of(DIRECTORY);
        Ok(OfferDirectory { of_user: of_user.path().to_owned(), path })
    }

    /// Returns the path of the directory. It need not exist. If the directory of the user is gone
    /// or belongs to somebody else now, the user has another one.
    fn path(&mut self) -> io::Result<&Path> {
        if !is_private_directory(&self.of_user) {
            *self = OfferDirectory::find()?;
        }
        Ok(&self.path)
    }
}

/// Offers memory to the process that has accepted the connection from `local` to `peer`.
pub(super) fn send(
    directory: &mut OfferDirectory,
    local: SocketAddr,
    peer: SocketAddr,
    memory: BorrowedFd<'_>,
    wake_socket: BorrowedFd<'_>,
) -> io::Result<()> {
    let directory = directory.path()?;
    let socket = UnixDatagram::unbound()?;
    let octets = emit(peer, local);
    let credentials = UCred { pid: getpid(), uid: geteuid(), gid: getegid() };
    let descriptors = [memory, wake_socket];
    let mut result = Ok(());
    // A listener at one address precedes one at all addresses, as in TCP.
    for name in [link_name(Some(peer.ip()), peer.port()), link_name(None, peer.port())] {
        let to = SocketAddrUnix::new(directory.join(name))?;
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS), ScmCredentials(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        control.push(SendAncillaryMessage::ScmCredentials(credentials));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg_addr(&socket, &to, &[IoSlice::new(&octets)], &mut control, flags) {
            Ok(_) => return Ok(()),
            // The peer's queue of offers is full.
            Err(Errno::AGAIN) => return Err(Errno::AGAIN.into()),
            Err(error) => result = Err(error.into()),
        }
    }
    result
}

/// Returns whether a descriptor is a local stream socket.
fn is_stream(descriptor: &OwnedFd) -> bool {
    socket_domain(descriptor) == Ok(AddressFamily::UNIX)
        && socket_type(descriptor) == Ok(SocketType::STREAM)
}

/// The socket at which offers arrive, and the links that lead to it.
pub(crate) struct OfferSocket {
    socket: UnixDatagram,
    directory: PathBuf,
    /// The name of the socket's file.
    name: String,
    /// The names of the links.
    links: Vec<String>,
}

impl OfferSocket {
    /// Creates the socket, in a directory that only this user can enter.
    pub(crate) fn open() -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Copies of this code in one process have counters of their own.
        let copy = (&raw const COUNT).addr();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{copy:x}-{count}", std::process::id());
        let created = create_files(DIRECTORY, |directory, opened| {
            remove_stale(directory, opened)?;
            let socket = UnixDatagram::bind(directory.join(&name))?;
            let (directory, name) = (directory.to_owned(), name.clone());
            Ok(OfferSocket { socket, directory, name, links: Vec::new() })
        });
        let opened = created.map_err(|(_, error)| error)?;
        opened.socket.set_nonblocking(true)?;
        set_socket_passcred(&opened.socket, true)?;
        Ok(opened)
    }

    /// Makes a link for a listener. A link of the same name belongs to a listener that is closed.
    /// The link remains after the listener is closed, for the connections that it has accepted.
    pub(crate) fn publish(&mut self, listener: SocketAddr) -> io::Result<()> {
        let name = link_name(Some(listener.ip()), listener.port());
        let link = self.directory.join(&name);
        let unready = self.directory.join(format!("{}.new", self.name));
        symlink(&self.name, &unready)?;
        fs::rename(&unready, &link)?;
        if !self.links.contains(&name) {
            self.links.push(name);
        }
        Ok(())
    }

    /// Receives an offer. Drops datagrams that are not offers of a process of this user.
    pub(crate) fn receive(&self) -> Option<Offer> {
        loop {
            let mut octets = [0; OFFER_BYTES + 1];
            let mut space = [MaybeUninit::uninit();
                rustix::cmsg_space!(ScmRights(DESCRIPTORS), ScmCredentials(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut iov = [IoSliceMut::new(&mut octets)];
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let received = match recvmsg(&self.socket, &mut iov, &mut control, flags) {
                Err(Errno::INTR) => continue,
                received => received.ok()?,
            };
            let (mut descriptors, mut user) = (Vec::new(), None);
            for message in control.drain() {
                match message {
                    RecvAncillaryMessage::ScmRights(received) => descriptors.extend(received),
                    RecvAncillaryMessage::ScmCredentials(of) => user = Some(of.uid),
                    _ => {}
                }
            }
            let descriptors: Result<[OwnedFd; DESCRIPTORS], _> = descriptors.try_into();
            let addresses = octets.get(..received.bytes).and_then(parse);
            if let (Some([local, peer]), Ok([memory, wake_socket])) = (addresses, descriptors)
                && user == Some(geteuid())
                && !received.flags.contains(ReturnFlags::CTRUNC)
                && is_stream(&wake_socket)
            {
                let wake_socket = UnixStream::from(wake_socket);
                return Some(Offer { local, peer, memory, wake_socket });
            }
        }
    }
}

impl AsRawFd for OfferSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for OfferSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for OfferSocket {
    /// Removes the socket's file and its links, and the directories if they are empty.
    fn drop(&mut self) {
        for name in &self.links {
            let link = self.directory.join(name);
            // A listener of another adapter may have replaced the link meanwhile.
            if fs::read_link(&link).is_ok_and(|to| to == Path::new(&self.name)) {
                fs::remove_file(&link).ok();
            }
        }
        fs::remove_file(self.directory.join(&self.name)).ok();
        self.directory.ancestors().take(2).for_each(|directory| drop(fs::remove_dir(directory)));
    }
}

/// Removes the files of processes that were killed. Only files in the open directory are removed,
/// wherever its path leads now.
fn remove_stale(directory: &Path, opened: &File) -> io::Result<()> {
    let probe = UnixDatagram::unbound()?;
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        // The kernel refuses a name that nobody has, or that leads nowhere.
        let gone = match probe.connect(directory.join(&name)) {
            Err(error) => {
                matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
            }
            Ok(()) => false,
        };
        if gone {
            unlinkat(opened, &name, AtFlags::empty()).ok();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// To find the directory, a process may have to read all of /tmp.
    #[test]
    fn a_directory_is_found_once_as_long_as_it_is_there() {
        let place = tempfile::tempdir().expect("a directory");
        let set_mode = |mode| fs::set_permissions(place.path(), Permissions::from_mode(mode));
        set_mode(0o700).expect("the own directory");
        let of_user = place.path().to_owned();
        let path = of_user.join("namespace").join(DIRECTORY);
        let mut known = OfferDirectory { of_user, path: path.clone() };
        assert_eq!(known.path().expect("the directory is there"), path);
        assert!(!path.exists());
        // A directory of this name in which others have rights is not used.
        set_mode(0o755).expect("the own directory");
        let found = known.path().expect("there is a directory").to_owned();
        assert_eq!(found, OfferDirectory::find().expect("there is a directory").path);
    }

    #[test]
    fn an_offer_is_read_as_it_was_written() {
        for (a, b) in [("127.0.0.1:5", "127.0.0.2:65535"), ("[::1]:5", "[fe80::1]:1")] {
            let (a, b) = (a.parse().expect("an address"), b.parse().expect("an address"));
            assert_eq!(parse(&emit(a, b)), Some([a, b]));
        }
        let octets = emit(([127, 0, 0, 1], 5).into(), ([127, 0, 0, 2], 6).into());
        (0..octets.len()).for_each(|len| assert_eq!(parse(&octets[..len]), None));
        assert_eq!(parse(&[&octets[..], &[0]].concat()), None);
    }
}
