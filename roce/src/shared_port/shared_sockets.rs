//! Keeps the shared sockets open while any adapter uses them. An adapter does not need one
//! descriptor for each socket.
//!
//! The sockets are divided into parts. Each part is stored as a message with the sockets'
//! descriptors, in the receive queue of a local socket. The message is never removed: reading it
//! with MSG_PEEK returns duplicates. A part exists as long as a process holds that local socket,
//! and a process that holds one part holds all parts before it. So sockets are added and closed at
//! the end of the order only, and none changes its position.
//!
//! | part | positions | sockets |
//! |---|---|---|
//! | 0 | 0 to 15 | the REQ socket, slots 0 to 14 |
//! | 1 | 16 to 31 | slots 15 to 30 |
//! | 2 | 32 to 63 | slots 31 to 62 |
//! | 3 | 64 to 127 | slots 63 to 126 |
//! | 4 to 18 | 64 positions each, up to 1087 | 64 slots each, up to 1086 |

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

use super::is_descriptor_limit;
use super::local_socket::{self, SocketRequest};
use super::socket_choice::{self, POSITIONS, PortSlot, REQ_SLOT, position_of};
use crate::socket::Udp;

/// The number of sockets in the first part.
const FIRST_PART_COUNT: usize = 16;
/// The maximum number of sockets in a part. An adapter that opens briefly needs this number of
/// descriptors.
const PART_COUNT_MAX: usize = 64;
/// The number of the first part that has the maximum number of sockets.
const FIRST_LARGEST_PART: usize = (PART_COUNT_MAX / FIRST_PART_COUNT).ilog2() as usize + 1;
/// The maximum number of parts.
const PARTS_MAX: usize = FIRST_LARGEST_PART + POSITIONS / PART_COUNT_MAX - 1;
/// The time that a datagram from this host to itself may take.
const DELIVERY_TIMEOUT: Duration = Duration::from_millis(100);

const _: () = assert!(positions(PARTS_MAX - 1).end == POSITIONS);

/// The positions of the sockets of a part.
const fn positions(part: usize) -> Range<usize> {
    match part {
        0 => 0..FIRST_PART_COUNT,
        1..FIRST_LARGEST_PART => FIRST_PART_COUNT << (part - 1)..FIRST_PART_COUNT << part,
        _ => {
            let start = PART_COUNT_MAX * (part - FIRST_LARGEST_PART + 1);
            start..start + PART_COUNT_MAX
        }
    }
}

/// The parts that this adapter knows. Each element is one end of a pair of local sockets. The
/// receive queue of that end contains the descriptors of the part's sockets.
pub(super) struct SharedSockets(Vec<UnixDatagram>);

impl SharedSockets {
    /// Binds the sockets of the first part.
    pub(super) fn bind_first(address: SocketAddr) -> io::Result<Self> {
        // Check that no socket is bound to the address. Otherwise binding shared sockets would also
        // succeed while another adapter is closing its sockets.
        Udp::check_free(address)?;
        let sockets = bind(address, 0)?;
        Ok(SharedSockets(vec![store_descriptors(&sockets)?]))
    }

    /// Binds the sockets of one more part. Returns `TimedOut` if other adapters have that part or
    /// are closing it.
    pub(super) fn bind_more(&mut self, address: SocketAddr) -> io::Result<()> {
        let part = self.0.len();
        let sockets = bind(address, part)?;
        if !are_steered_to(address, part, &sockets)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.0.push(store_descriptors(&sockets)?);
        Ok(())
    }

    /// Whether the socket of a slot is in one of the parts.
    pub(super) fn has_slot(&self, slot: PortSlot) -> bool {
        (0..self.0.len()).any(|part| positions(part).contains(&position_of(slot)))
    }

    #[cfg(test)]
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        self.0.iter().map(UnixDatagram::try_clone).collect::<io::Result<_>>().map(SharedSockets)
    }

    /// Returns the set that has more parts.
    pub(super) fn or_larger(self, other: SharedSockets) -> Self {
        if other.0.len() > self.0.len() { other } else { self }
    }

    /// Returns duplicates of the sockets of some slots. The known parts must contain all of these
    /// slots.
    pub(super) fn duplicate<const N: usize>(
        &self,
        slots: [PortSlot; N],
    ) -> io::Result<[OwnedFd; N]> {
        let mut taken = slots.map(|_| None);
        for (part, socket) in self.0.iter().enumerate() {
            let positions = positions(part);
            let wanted = slots.map(|slot| {
                position_of(slot).checked_sub(positions.start).filter(|n| *n < positions.len())
            });
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
        Ok(taken.map(|fd| fd.expect("each slot is in a known part and requested once")))
    }

    /// Sends all parts to an adapter that has requested them.
    pub(super) fn send_to(&self, request: &SocketRequest) -> io::Result<()> {
        let fds: Vec<BorrowedFd<'_>> = self.0.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PARTS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let iov = [IoSlice::new(&[0])];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&request.0, &iov, &mut control, flags)?;
        Ok(())
    }

    /// Receives the answer to a request.
    fn receive_answer(answer: &UnixStream) -> io::Result<Self> {
        let fds = uninterrupted(|| receive(answer.as_fd(), RecvFlags::DONTWAIT))?;
        // No descriptors arrive if the adapter has ended before it could answer.
        let is_answer = !fds.is_empty();
        let sockets = SharedSockets(fds.into_iter().map(UnixDatagram::from).collect());
        is_answer.then_some(sockets).ok_or(io::ErrorKind::UnexpectedEof.into())
    }
}

/// The requests for the shared sockets that are not answered yet. There can be several requests,
/// because on a busy host an answer may come after the next adapter has been asked.
#[derive(Default)]
pub(super) struct SocketRequests(Vec<UnixStream>);

impl SocketRequests {
    /// Requests the shared sockets from the adapter at a local socket. The answer arrives over a
    /// socket pair, so no other process can send it.
    pub(super) fn add(&mut self, to: &SocketAddrUnix, timeout: Duration) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        let (socket, (answer, theirs)) = (UnixDatagram::unbound()?, UnixStream::pair()?);
        uninterrupted(|| {
            let left = deadline.saturating_duration_since(Instant::now());
            // Limit the time to send, because the queue of an adapter that does not read may be
            // full. A timeout of zero would mean no limit.
            socket.set_write_timeout(Some(left.max(Duration::from_micros(1))))?;
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let theirs = [theirs.as_fd()];
            control.push(SendAncillaryMessage::ScmRights(&theirs));
            let iov = [IoSlice::new(local_socket::SOCKET_REQUEST)];
            Ok(rustix::net::sendmsg_addr(&socket, to, &iov, &mut control, SendFlags::empty())?)
        })?;
        self.0.push(answer);
        Ok(())
    }

    /// Waits for the first answer. Returns `None` if no answer arrives by `deadline`, or if all
    /// adapters that were asked have ended.
    pub(super) fn first_answer(&mut self, deadline: Instant) -> io::Result<Option<SharedSockets>> {
        while !self.0.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let limit = Timespec::try_from(left).unwrap_or_default();
            let mut fds: Vec<_> =
                self.0.iter().map(|answer| PollFd::new(answer, PollFlags::IN)).collect();
            match rustix::event::poll(&mut fds, Some(&limit)) {
                Ok(0) => return Ok(None),
                // A signal has interrupted the call. The next call waits for the remaining time.
                Err(Errno::INTR) => continue,
                polled => polled?,
            };
            let ready = fds.iter().position(|fd| !fd.revents().is_empty());
            let answer = self.0.swap_remove(ready.expect("poll has returned at least one"));
            match SharedSockets::receive_answer(&answer) {
                Ok(sockets) => return Ok(Some(sockets)),
                Err(error) if is_descriptor_limit(&error) => return Err(error),
                // The adapter that was asked has ended.
                Err(_) => {}
            }
        }
        Ok(None)
    }
}

/// Calls `f` again if a signal handler has interrupted it.
fn uninterrupted<T>(mut f: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match f() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Binds the sockets of a part. The sockets of all earlier parts must be bound before. Each adapter
/// configures the socket of its own slot.
fn bind(address: SocketAddr, part: usize) -> io::Result<Vec<Udp>> {
    let sockets: Vec<Udp> =
        positions(part).map(|_| Udp::bind_shared(address)).collect::<io::Result<_>>()?;
    if part == 0 {
        let req_socket = &sockets[position_of(REQ_SLOT)];
        req_socket.configure(address)?;
        socket_choice::attach(req_socket)?;
    }
    Ok(sockets)
}

/// Whether packets for the slots of a part arrive at its sockets. They arrive elsewhere if another
/// process bound sockets to the port earlier, even if that process is closing them.
fn are_steered_to(address: SocketAddr, part: usize, sockets: &[Udp]) -> io::Result<bool> {
    let mut from = address;
    from.set_port(0);
    let from = Udp::bind_exclusive(from)?;
    let mark = RandomState::new().hash_one(part).to_ne_bytes();
    for (position, socket) in positions(part).zip(sockets) {
        // The slot is the position minus 1. Only position 0, the REQ socket, has no such slot. It
        // is in the first part, which this function never checks.
        let datagram = socket_choice::datagram_for((position - 1) as PortSlot, mark);
        from.send(address, &datagram, datagram.len());
        let arrives = || -> io::Result<bool> {
            let deadline = Instant::now() + DELIVERY_TIMEOUT;
            let mut octets = [0; 17];
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                let limit = Timespec::try_from(left).unwrap_or_default();
                match rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&limit)) {
                    // A signal has interrupted the call. The next call waits for the time that is
                    // left.
                    Err(Errno::INTR) => continue,
                    Ok(0) => return Ok(false),
                    polled => polled?,
                };
                // Datagrams of other senders may have arrived before the expected datagram.
                let (length, _) = rustix::net::recv(socket, &mut octets[..], RecvFlags::DONTWAIT)?;
                if octets[..length] == datagram {
                    return Ok(true);
                }
            }
        };
        if !arrives()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Stores descriptors in the receive queue of a local socket. The sockets stay open until the last
/// process that holds that local socket ends.
fn store_descriptors(sockets: &[Udp]) -> io::Result<UnixDatagram> {
    let (sender, holder) = UnixDatagram::pair()?;
    let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PART_COUNT_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(&sender, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(holder)
}

/// Receives the descriptors of a message.
fn receive(socket: BorrowedFd<'_>, flags: RecvFlags) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PART_COUNT_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut octet = [0];
    let mut iov = [IoSliceMut::new(&mut octet)];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(socket, &mut iov, &mut control, flags)?;
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // The limit of descriptors is reached.
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
