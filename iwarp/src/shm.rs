//! Shared memory in place of TCP, between two processes of one user on one host.
//!
//! A connection begins over TCP. After some transfers the side that has connected offers a segment
//! of memory with two rings ([`offer`]). Each side then sends its octets by its ring: first it
//! stores how many octets it has sent by TCP, and the other side reads these before it reads the
//! ring. So each side can switch at any octet, and nothing above the socket knows which way an
//! octet took. The TCP connection stays open, because the kernel closes it when a process ends, and
//! so reports the end.
//!
//! | file | content |
//! |---|---|
//! | `forwarded` | offers for connections of another engine of the adapter |
//! | `offer` | how one process offers memory to the other |
//! | `ring_watch` | finds out that the peer does not read |
//! | `segment` | the memory: how it is created, checked and mapped |
//!
//! [`adapter::octet_ring`] is the ring.

mod forwarded;
mod offer;
mod ring_watch;
mod segment;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use adapter::octet_ring::{Consumer, Corrupt, Producer};
use libc::iovec;
use rustix::net::{RecvFlags, SendFlags, recv, send};

pub(crate) use self::forwarded::{ForwardedOffers, OffersOfEngine};
pub(crate) use self::offer::{Offer, OfferDirectory, OfferSocket};
pub(crate) use self::ring_watch::RingWatch;
use self::segment::Segment;
use crate::socket::IoOutcome;

/// The number of transfers after which the side that has connected offers shared memory by default.
/// A connection that is idle needs none.
pub(crate) const TRANSFERS_BEFORE_OFFER: u32 = 4;
/// An offer that found no room in the peer's queue is repeated after this number of transfers.
pub(crate) const TRANSFERS_BEFORE_REPETITION: u32 = 64;
/// The number of connections of an engine that may share memory. The others stay with TCP.
pub(crate) const MAX_SHARED: usize = 256;

/// The memory that a connection shares with its peer.
pub(crate) struct SharedMemory {
    producer: Producer,
    consumer: Consumer,
    /// Dropped after the ends of the rings.
    segment: Segment,
    /// This end of a pair of sockets. An octet wakes the peer.
    wake_socket: UnixStream,
    /// 0 while this side sends by TCP. Afterwards, 1 more than the number of octets that it had
    /// sent by TCP.
    switched: u64,
    /// Whether the peer sends by the ring, and all octets that it had sent by TCP have been read.
    receives: bool,
    /// Whether this side looks at the rings again and again, so that the peer need not wake it.
    polls: bool,
    /// Counts the memory of the adapter.
    _count: Arc<()>,
}

/// What a side offers to its peer.
pub(crate) struct Offered {
    memory: OwnedFd,
    wake_socket: UnixStream,
}

impl Offered {
    /// Offers the memory to the process that has accepted the connection from `local` to `peer`.
    pub(crate) fn send(
        self,
        directory: &mut OfferDirectory,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> io::Result<()> {
        offer::send(directory, local, peer, self.memory.as_fd(), self.wake_socket.as_fd())
    }
}

/// An event of the wake-up socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeUp {
    /// The peer uses the memory, and may have moved a position.
    Accepted,
    /// The peer has not answered the offer yet.
    Pending,
    /// The peer does not want the memory.
    Refused,
    /// A word of the memory is not what the side that owns it has stored.
    Corrupt,
}

impl SharedMemory {
    /// Creates memory, and what is to be offered to the peer. `count` counts the connections with
    /// memory.
    pub(crate) fn create(count: Arc<()>) -> io::Result<(Self, Offered)> {
        let (segment, memory) = Segment::create()?;
        let (own, wake_socket) = UnixStream::pair()?;
        Ok((SharedMemory::new(segment, own, count)?, Offered { memory, wake_socket }))
    }

    /// Maps the memory of an offer. `count` counts the connections with memory.
    pub(crate) fn open(offer: Offer, count: Arc<()>) -> io::Result<Self> {
        SharedMemory::new(Segment::open(offer.memory)?, offer.wake_socket, count)
    }

    /// Tells the peer that its offer is accepted, and switches to sending by the ring. This side
    /// has sent `octets` octets by TCP.
    pub(crate) fn accept(&mut self, octets: u64) {
        self.segment.accept(octets);
        self.switched = octets + 1;
        wake(&self.wake_socket);
    }

    fn new(segment: Segment, wake_socket: UnixStream, count: Arc<()>) -> io::Result<Self> {
        // SAFETY: the members are dropped in the order of their declaration.
        let (producer, consumer) = unsafe { segment.ends() };
        consumer.announce_sleep();
        Ok(SharedMemory {
            producer,
            consumer,
            segment,
            wake_socket,
            switched: 0,
            receives: false,
            polls: false,
            _count: count,
        })
    }

    /// Switches to sending by the ring if the peer uses the memory. This side has sent `octets`
    /// octets by TCP. Returns whether this side sends by the ring.
    #[inline]
    pub(crate) fn switch_if_accepted(&mut self, octets: u64) -> bool {
        if !self.is_sending() && self.segment.is_accepted() {
            self.segment.switch(octets);
            self.switched = octets + 1;
        }
        self.is_sending()
    }

    /// Returns whether the next octets of the peer are in the ring. This side has read `octets`
    /// octets by TCP.
    #[inline]
    pub(crate) fn has_peer_switched(&mut self, octets: u64) -> bool {
        self.receives = self.receives || self.segment.has_peer_switched(octets);
        self.receives
    }

    /// Whether this side sends by the ring.
    #[inline]
    pub(crate) fn is_sending(&self) -> bool {
        self.switched != 0
    }

    /// Whether this side reads the ring.
    #[inline]
    pub(crate) fn is_receiving(&self) -> bool {
        self.receives
    }

    /// Sends the octets of a gather vector by the ring.
    ///
    /// # Safety
    /// Each element of the vector must name readable memory.
    #[inline]
    pub(crate) unsafe fn send(&mut self, iov: &[iovec]) -> IoOutcome {
        let wake_socket = &self.wake_socket;
        // SAFETY: the caller guarantees readable memory.
        match unsafe { self.producer.write(iov, || wake(wake_socket)) } {
            Ok(0) => IoOutcome::WouldBlock,
            Ok(n) => IoOutcome::Octets(n),
            Err(corrupt) => corrupt.into(),
        }
    }

    /// Receives octets of the ring into a scatter vector.
    ///
    /// # Safety
    /// Each element of the vector must name writable memory.
    #[inline]
    pub(crate) unsafe fn receive(&mut self, iov: &[iovec]) -> IoOutcome {
        loop {
            let wake_socket = &self.wake_socket;
            // SAFETY: the caller guarantees writable memory.
            match unsafe { self.consumer.read(iov, || wake(wake_socket)) } {
                Ok(0) if self.is_drained() => return IoOutcome::WouldBlock,
                Ok(0) => {}
                Ok(n) => return IoOutcome::Octets(n),
                Err(corrupt) => return corrupt.into(),
            }
        }
    }

    /// Returns whether the peer's ring has octets.
    pub(crate) fn has_octets(&self) -> bool {
        !self.consumer.is_empty()
    }

    /// Called when this side has found the peer's ring empty. Returns whether this side can rely on
    /// being woken or on its own polling, and need not read the ring again now.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.polls || self.consumer.announce_sleep()
    }

    /// Returns whether a send that found the ring full can continue. If not, the peer wakes this
    /// side later, unless this side polls.
    pub(crate) fn has_room(&mut self) -> bool {
        match self.polls {
            true => self.producer.has_room(),
            false => !self.producer.announce_sleep(),
        }
    }

    /// From now on this side looks at the rings again and again, so the peer need not wake it.
    pub(crate) fn poll(&mut self) {
        self.polls = true;
        self.consumer.stay_awake();
    }

    /// Whether this side looks at the rings again and again.
    #[inline]
    pub(crate) fn polls(&self) -> bool {
        self.polls
    }

    /// From now on the peer wakes this side. `is_blocked`: the last send found the ring full.
    /// Returns whether something can be done now.
    pub(crate) fn sleep(&mut self, is_blocked: bool) -> bool {
        self.polls = false;
        let has_octets = !self.consumer.announce_sleep();
        let has_room = is_blocked && !self.producer.announce_sleep();
        has_octets || has_room
    }

    /// Checks the words that this side has stored, and the peer's positions. Returns how far the
    /// peer has read what this side has sent by the ring, or `None` if it has read everything.
    pub(crate) fn check(&mut self) -> Result<Option<u64>, Corrupt> {
        if self.segment.announced() != self.switched {
            return Err(Corrupt);
        }
        self.consumer.check()?;
        self.producer.check()
    }

    /// Wakes the peer, whether it has asked for that or not.
    pub(crate) fn wake_peer(&self) {
        wake(&self.wake_socket);
    }

    /// Takes the octets of the wake-up socket. A peer that keeps the rules has sent a few. Octets
    /// that remain do no harm, because the poller reports each new one.
    pub(crate) fn on_wake_up(&mut self) -> WakeUp {
        let mut octets = [0; 256];
        match recv(&self.wake_socket, &mut octets, RecvFlags::DONTWAIT) {
            Ok((_, 0)) if !self.segment.is_accepted() => WakeUp::Refused,
            // The peer has closed its end, but somebody has stored that it accepts the offer.
            Ok((_, 0)) if !self.segment.is_acceptance_announced() => WakeUp::Corrupt,
            _ if self.check().is_err() => WakeUp::Corrupt,
            _ if self.segment.is_accepted() => WakeUp::Accepted,
            _ => WakeUp::Pending,
        }
    }

    /// The socket that becomes readable when the peer wakes this side.
    pub(crate) fn wake_socket(&self) -> &impl AsRawFd {
        &self.wake_socket
    }
}

/// Wakes the peer. If the socket is full, the peer has octets left to take and is awake. If the
/// peer has closed its end, TCP reports that.
#[cold]
fn wake(wake_socket: &UnixStream) {
    // The flag is needed although the socket is non-blocking, because the peer can change that.
    let _ = send(wake_socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// The error number of a connection whose shared memory contains a wrong word.
pub(crate) const CORRUPT_ERRNO: i32 = libc::EPROTO;

impl From<Corrupt> for IoOutcome {
    #[cold]
    fn from(_: Corrupt) -> IoOutcome {
        IoOutcome::Failed(io::Error::from_raw_os_error(CORRUPT_ERRNO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the memory of both sides of an offer: first of the offering side, then of the
    /// accepting side.
    pub(super) fn both_sides() -> [SharedMemory; 2] {
        let (offering, Offered { memory, wake_socket }) =
            SharedMemory::create(Arc::default()).expect("memory");
        let segment = Segment::open(memory).expect("the memory is sealed");
        let accepting = SharedMemory::new(segment, wake_socket, Arc::default()).expect("memory");
        [offering, accepting]
    }

    /// The peer may end its connection before this side has accepted its offer.
    #[test]
    fn a_peer_may_end_before_its_offer_is_accepted() {
        let [offering, mut accepting] = both_sides();
        drop(offering);
        accepting.accept(100);
        assert_eq!(accepting.on_wake_up(), WakeUp::Accepted);
    }

    /// The peer may be killed as soon as it has accepted. The memory then still counts as correct.
    #[test]
    fn a_peer_may_be_killed_when_it_has_accepted() {
        let [mut offering, accepting] = both_sides();
        accepting.segment.accept(100);
        drop(accepting);
        assert_eq!(offering.on_wake_up(), WakeUp::Accepted);
    }

    #[test]
    fn a_refused_offer_is_not_accepted_whatever_the_memory_says() {
        let [mut offering, accepting] = both_sides();
        drop(accepting);
        assert_eq!(offering.on_wake_up(), WakeUp::Refused);
        offering.segment.pretend_acceptance();
        assert_eq!(offering.on_wake_up(), WakeUp::Corrupt);
    }
}
