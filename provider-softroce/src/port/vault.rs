//! Where the sockets are kept, so that nobody's death closes one and nobody needs a descriptor for each.
//!
//! A part of them is a message with their descriptors in the queue of a local socket, which is never taken, only looked at:
//! MSG_PEEK gives duplicates. A part lives as long as somebody holds that local socket, and who holds one holds all before it:
//! so places come and go at the end alone, and none moves.
//!
//! | part | places | of the slots |
//! |---|---|---|
//! | 0 | 0 to 15 | the door, 0 to 14 |
//! | 1 | 16 to 31 | 15 to 30 |
//! | 2 | 32 to 63 | 31 to 62 |
//! | 3 | 64 to 127 | 63 to 126 |

use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix,
};

use super::mail::{self, Newcomer};
use super::steer::{self, DOOR, PLACES, place_of};
use crate::socket::Udp;

/// Sockets of the first part.
const FIRST: usize = 16;
/// Sockets of a part at most.
const LARGEST: usize = PLACES / 2;
/// Parts at most.
const PARTS: usize = (PLACES / FIRST).ilog2() as usize + 1;
/// How long a datagram from this host to itself may take.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// The places whose sockets are in a part.
const fn places(part: usize) -> Range<usize> {
    match part {
        0 => 0..FIRST,
        _ => FIRST << (part - 1)..FIRST << part,
    }
}

/// The parts that there are, as far as their holder knows: of each the end of a pair of local sockets in whose queue the
/// descriptors are.
pub(super) struct Vault(Vec<UnixDatagram>);

impl Vault {
    /// Binds the sockets of the first part.
    pub(super) fn found(address: SocketAddr) -> io::Result<Self> {
        // Sockets that share a port would let others in that share it, too: those of an adapter that is just closing.
        Udp::is_free(address)?;
        let sockets = bind(address, 0)?;
        Ok(Vault(vec![put_away(&sockets)?]))
    }

    /// Binds the sockets of one more part. `TimedOut`: others have that part, or are just closing it.
    pub(super) fn grow(&mut self, address: SocketAddr) -> io::Result<()> {
        let part = self.0.len();
        let sockets = bind(address, part)?;
        if !are_in_their_places(address, part, &sockets)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.0.push(put_away(&sockets)?);
        Ok(())
    }

    /// Whether the socket of a slot is in it.
    pub(super) fn has(&self, slot: u8) -> bool {
        (0..self.0.len()).any(|part| places(part).contains(&place_of(slot)))
    }

    #[cfg(test)]
    pub(super) fn duplicate(&self) -> io::Result<Self> {
        self.0.iter().map(UnixDatagram::try_clone).collect::<io::Result<_>>().map(Vault)
    }

    /// The one with more parts.
    pub(super) fn or(self, other: Vault) -> Self {
        if other.0.len() > self.0.len() { other } else { self }
    }

    /// Duplicates of the sockets of some slots, which it has.
    pub(super) fn take<const N: usize>(&self, slots: [u8; N]) -> io::Result<[OwnedFd; N]> {
        let mut taken = slots.map(|_| None);
        for (part, socket) in self.0.iter().enumerate() {
            let places = places(part);
            let wanted = slots
                .map(|slot| place_of(slot).checked_sub(places.start).filter(|n| *n < places.len()));
            if wanted.iter().all(Option::is_none) {
                continue;
            }
            let fds = receive(socket.as_fd(), RecvFlags::PEEK)?;
            let mut fds: Vec<Option<OwnedFd>> = fds.into_iter().map(Some).collect();
            for (taken, n) in
                taken.iter_mut().zip(wanted).filter_map(|(taken, n)| Some((taken, n?)))
            {
                *taken = fds[n].take();
            }
        }
        Ok(taken.map(|fd| fd.expect("each is there, and wanted once")))
    }

    /// Sends it to a newcomer.
    pub(super) fn give(&self, newcomer: &Newcomer) -> io::Result<()> {
        let fds: Vec<BorrowedFd<'_>> = self.0.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PARTS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let iov = [IoSlice::new(&[0])];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&newcomer.0, &iov, &mut control, flags)?;
        Ok(())
    }

    /// Asks who has a mailbox for the vault. The answer comes over a socket pair, which nobody else has an end of.
    pub(super) fn ask(whom: &SocketAddrUnix, patience: Duration) -> io::Result<Self> {
        let deadline = Instant::now() + patience;
        let time_left = || {
            let left =
                deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
            left.ok_or(io::Error::from(io::ErrorKind::TimedOut))
        };
        let (socket, (answer, theirs)) = (UnixDatagram::unbound()?, UnixStream::pair()?);
        // A signal's handler may interrupt a call. Each call gets only the time that is left.
        uninterrupted(|| {
            // The mailbox of one that does not look may be full.
            socket.set_write_timeout(Some(time_left()?))?;
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let theirs = [theirs.as_fd()];
            control.push(SendAncillaryMessage::ScmRights(&theirs));
            let iov = [IoSlice::new(mail::HELLO)];
            Ok(rustix::net::sendmsg_addr(&socket, whom, &iov, &mut control, SendFlags::empty())?)
        })?;
        drop(theirs);
        let fds = uninterrupted(|| {
            answer.set_read_timeout(Some(time_left()?))?;
            receive(answer.as_fd(), RecvFlags::empty())
        })?;
        // Whoever was asked may end without an answer.
        let is_answer = !fds.is_empty();
        let vault = Vault(fds.into_iter().map(UnixDatagram::from).collect());
        is_answer.then_some(vault).ok_or(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Calls `f` again when a signal's handler has interrupted it.
fn uninterrupted<T>(mut f: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match f() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Binds the sockets of a part, behind those of the parts before it. Those of slots are prepared by who takes them.
fn bind(address: SocketAddr, part: usize) -> io::Result<Vec<Udp>> {
    let sockets: Vec<Udp> =
        places(part).map(|_| Udp::bind_shared(address)).collect::<io::Result<_>>()?;
    if part == 0 {
        let door = &sockets[place_of(DOOR)];
        door.prepare(address)?;
        steer::attach(door)?;
    }
    Ok(sockets)
}

/// Whether what is meant for the slots of a part comes to its sockets: it does not where others have bound some there before, even
/// if they are just closing them.
fn are_in_their_places(address: SocketAddr, part: usize, sockets: &[Udp]) -> io::Result<bool> {
    let mut from = address;
    from.set_port(0);
    let from = Udp::bind_alone(from)?;
    let mark = RandomState::new().hash_one(part).to_ne_bytes();
    for (place, socket) in places(part).zip(sockets) {
        // Only the door, in the first part, has a place before its slot.
        let datagram = steer::datagram_for((place - 1) as u8, mark);
        from.send(address, &datagram, datagram.len());
        let comes = || -> io::Result<bool> {
            let deadline = Instant::now() + ON_ITS_WAY;
            let mut octets = [0; 17];
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                let limit = Timespec::try_from(left).unwrap_or_default();
                match rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&limit)) {
                    // A signal's handler has run. The next call waits for what is left of the time.
                    Err(Errno::INTR) => continue,
                    Ok(0) => return Ok(false),
                    polled => polled?,
                };
                // Others' datagrams may have come before.
                let (length, _) = rustix::net::recv(socket, &mut octets[..], RecvFlags::DONTWAIT)?;
                if octets[..length] == datagram {
                    return Ok(true);
                }
            }
        };
        if !comes()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Puts sockets where nobody's end closes them, but that of the last one who holds the place.
fn put_away(sockets: &[Udp]) -> io::Result<UnixDatagram> {
    let (sender, place) = UnixDatagram::pair()?;
    let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LARGEST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(&sender, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(place)
}

/// The descriptors of a message.
fn receive(socket: BorrowedFd<'_>, flags: RecvFlags) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LARGEST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut octet = [0];
    let mut iov = [IoSliceMut::new(&mut octet)];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(socket, &mut iov, &mut control, flags)?;
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // The process may have no more descriptors.
        return Err(Errno::MFILE.into());
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(fds)
}
