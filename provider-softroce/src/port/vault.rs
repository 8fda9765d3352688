//! Where the sockets are kept: see the [module above](super).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{self, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use super::DOOR;
use super::mail::{self, Mailbox, Newcomer};
use crate::socket::Udp;

/// Sockets in the vault.
const SOCKETS: usize = DOOR as usize + 1;

/// The end of a pair of local sockets in whose queue the descriptors are.
pub(super) struct Vault(UnixDatagram);

impl Vault {
    pub(super) fn new(sockets: &[Udp]) -> io::Result<Self> {
        let (sender, vault) = UnixDatagram::pair()?;
        let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        rustix::net::sendmsg(&sender, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
        Ok(Vault(vault))
    }

    /// Duplicates of some of the sockets.
    pub(super) fn take<const N: usize>(&self, wanted: [usize; N]) -> io::Result<[OwnedFd; N]> {
        let mut fds: Vec<Option<OwnedFd>> =
            receive(self.0.as_fd(), RecvFlags::PEEK)?.1.into_iter().map(Some).collect();
        if fds.len() != SOCKETS {
            // The kernel gives as many as there is room for.
            return Err(rustix::io::Errno::MFILE.into());
        }
        Ok(wanted.map(|n| fds[n].take().expect("each is wanted once")))
    }

    /// Sends it to a newcomer.
    pub(super) fn give(&self, from: &Mailbox, newcomer: &Newcomer) -> io::Result<()> {
        let fds = [self.0.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let iov = [IoSlice::new(&[0])];
        rustix::net::sendmsg_addr(from, &newcomer.0, &iov, &mut control, SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Asks who has a name for the vault.
    pub(super) fn ask(whom: &net::SocketAddr, patience: Duration) -> io::Result<Self> {
        let deadline = Instant::now() + patience;
        let socket = mail::unnamed()?;
        // The mailbox of one that does not look may be full.
        socket.set_write_timeout(Some(patience))?;
        socket.send_to_addr(mail::HELLO, whom)?;
        loop {
            let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
            socket.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
            // Anyone can send here; what counts is from ourselves, which is to say from our user.
            let (ours, fds) = receive(socket.as_fd(), RecvFlags::empty())?;
            if let (true, Some(vault)) = (ours, fds.into_iter().next()) {
                return Ok(Vault(vault.into()));
            }
        }
    }
}

/// The descriptors of a message, and whether it is from a process of our user's.
fn receive(socket: BorrowedFd<'_>, flags: RecvFlags) -> io::Result<(bool, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut octet = [0];
    let mut iov = [IoSliceMut::new(&mut octet)];
    rustix::net::recvmsg(socket, &mut iov, &mut control, flags | RecvFlags::CMSG_CLOEXEC)?;
    let (mut ours, mut fds) = (false, Vec::new());
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(rights) => fds.extend(rights),
            RecvAncillaryMessage::ScmCredentials(of) => ours = mail::is_ours(&of),
            _ => {}
        }
    }
    Ok((ours, fds))
}
