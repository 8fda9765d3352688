//! A connection's move from TCP to shared memory (see [`crate::shm`]).

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Instant;

use adapter::octet_ring::Corrupt;
use mio::Interest;
use rnic::rdmap::setup::Terms;
use tracing::debug;

use super::established::Established;
use super::{EndReason, Link, Loss, Phase};
use crate::linger::LingeringSockets;
use crate::resources::{EngineResources, ObjectKey};
use crate::shm::{
    CORRUPT_ERRNO, MAX_SHARED, Offer, RingWatch, SharedMemory, TRANSFERS_BEFORE_REPETITION, WakeUp,
};
use crate::socket;

/// Whether and when a connection moves to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// The connection never moves to shared memory, has already moved, or has tried to move and
    /// failed.
    Off,
    /// The connection moves when the peer offers memory.
    AcceptsOffer,
    /// This side offers memory after this number of transfers.
    OffersAfter(u32),
    /// This side is to offer memory now.
    OffersNow,
    /// This side has offered memory, and the peer has not answered.
    Offered,
}

impl Sharing {
    /// Counts a transfer.
    #[inline]
    pub(super) fn count_transfer(&mut self) {
        if let Sharing::OffersAfter(left) = self {
            *self = match *left {
                0 | 1 => Sharing::OffersNow,
                left => Sharing::OffersAfter(left - 1),
            };
        }
    }

    /// The state of a new connection between two addresses. `connected`: this side has connected.
    pub(super) fn of(
        resources: &EngineResources,
        terms: &Terms,
        (local, peer): (SocketAddr, SocketAddr),
        connected: bool,
    ) -> Self {
        let transfers = match resources.config.shm {
            _ if !crate::socket::is_same_host(peer, local) => Err("the peer is on another host"),
            None => Err("shm=off"),
            _ if resources.context.capture().is_some() => Err("there is a capture"),
            _ if terms.crc => Err("CRCs are in use"),
            _ if !terms.extended => Err("RFC 7306 is not in use"),
            Some(transfers) => Ok(transfers),
        };
        match transfers {
            Ok(transfers) if connected => Sharing::OffersAfter(transfers),
            Ok(_) => Sharing::AcceptsOffer,
            Err(reason) => {
                log_stay(local, peer, reason);
                Sharing::Off
            }
        }
    }
}

/// A reason for which a connection stays with TCP.
const NOT_ATTACHED: &str = "there are too few descriptors, or the connection has ended";

/// Logs why a connection stays with TCP.
fn log_stay(local: SocketAddr, peer: SocketAddr, reason: impl Display) {
    debug!(target: "dat::cm", %local, %peer, %reason, "stays with TCP");
}

fn log_stay_of_many(local: SocketAddr, peer: SocketAddr) {
    let reason = format_args!("{MAX_SHARED} connections of this engine share memory");
    log_stay(local, peer, reason);
}

impl Established {
    fn log_move(&self) {
        let (local, peer) = (self.local, self.peer);
        debug!(target: "dat::cm", %local, %peer, "moves from TCP to shared memory");
    }
}

impl Link {
    /// Offers memory to the peer if that is due. If it fails, the connection stays with TCP.
    #[inline]
    pub(super) fn offer_if_due(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        if matches!(&self.phase, Phase::Established(conn) if conn.sharing == Sharing::OffersNow) {
            self.offer(resources, lingering);
        }
    }

    #[cold]
    fn offer(&mut self, resources: &mut EngineResources, lingering: &mut LingeringSockets) {
        let Phase::Established(conn) = &mut self.phase else { return };
        conn.sharing = Sharing::Off;
        let (local, peer) = (conn.local, conn.peer);
        let Some(count) = resources.count_shared_memory() else {
            return log_stay_of_many(local, peer);
        };
        let (memory, offered) = match SharedMemory::create(count) {
            Ok(created) => created,
            Err(error) => return log_stay(local, peer, error),
        };
        if !self.attach(resources, lingering, memory) {
            return log_stay(local, peer, NOT_ATTACHED);
        }
        let directory = resources.offer_directory.as_mut().ok_or(io::ErrorKind::NotFound.into());
        let sent = directory.and_then(|directory| offered.send(directory, local, peer));
        let Phase::Established(conn) = &mut self.phase else { return };
        match sent {
            Ok(()) => conn.sharing = Sharing::Offered,
            Err(error) => {
                conn.socket.drop_shared_memory(&resources.context);
                match error.kind() {
                    io::ErrorKind::WouldBlock => {
                        conn.sharing = Sharing::OffersAfter(TRANSFERS_BEFORE_REPETITION)
                    }
                    _ => log_stay(
                        local,
                        peer,
                        format_args!("the peer takes no offers of this process ({error})"),
                    ),
                }
            }
        }
    }

    /// Accepts the offer of a peer. Returns the offer if it is for another connection.
    pub(crate) fn accept_offer(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        offer: Offer,
    ) -> Option<Offer> {
        let Phase::Established(conn) = &mut self.phase else { return Some(offer) };
        let is_same = |a: SocketAddr, b: SocketAddr| (a.ip(), a.port()) == (b.ip(), b.port());
        if !is_same(conn.local, offer.local) || !is_same(conn.peer, offer.peer) {
            return Some(offer);
        }
        let (local, peer) = (conn.local, conn.peer);
        let sharing = std::mem::replace(&mut conn.sharing, Sharing::Off);
        if sharing != Sharing::AcceptsOffer {
            return None;
        }
        let Some(count) = resources.count_shared_memory() else {
            log_stay_of_many(local, peer);
            return None;
        };
        let memory = match SharedMemory::open(offer, count) {
            Ok(memory) => memory,
            Err(error) => {
                log_stay(local, peer, format_args!("the offer cannot be used ({error})"));
                return None;
            }
        };
        if self.attach(resources, lingering, memory)
            && let Phase::Established(conn) = &mut self.phase
        {
            conn.socket.accept_shared_memory();
            conn.log_move();
        } else {
            log_stay(local, peer, NOT_ATTACHED);
        }
        None
    }

    /// Gives the connection its memory. Returns false if there are too few descriptors, or the
    /// connection has ended.
    fn attach(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        memory: SharedMemory,
    ) -> bool {
        // Only the poller reports the end of the connection.
        self.resume_polling(resources, lingering);
        let Phase::Established(conn) = &mut self.phase else { return false };
        let (key, wake_socket) = (ObjectKey::WakeSocket(self.index), memory.wake_socket());
        let attached = !socket::is_scarce(wake_socket.as_raw_fd())
            && resources.context.resume(key, wake_socket, Interest::READABLE).is_ok();
        if attached {
            conn.socket.shared_memory = Some(Box::new(memory));
        }
        attached
    }

    /// Handles an event of the wake-up socket.
    pub(crate) fn on_wake_up(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        let Phase::Established(conn) = &mut self.phase else { return };
        let Some(memory) = &mut conn.socket.shared_memory else { return };
        match memory.on_wake_up() {
            WakeUp::Refused => {
                conn.socket.drop_shared_memory(&resources.context);
                log_stay(conn.local, conn.peer, "the peer has refused the offer");
                return;
            }
            WakeUp::Accepted if conn.sharing == Sharing::Offered => {
                conn.sharing = Sharing::Off;
                conn.socket.switch_if_accepted();
                conn.log_move();
            }
            WakeUp::Corrupt => return self.end_by_corruption(resources, lingering),
            WakeUp::Accepted | WakeUp::Pending => {}
        }
        self.continue_blocked_send(resources, lingering);
        self.receive(resources, lingering);
    }

    /// Continues a send that found the peer's ring full, if there is room now.
    pub(crate) fn continue_blocked_send(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        if let Phase::Established(conn) = &mut self.phase
            && !conn.writable
            && conn.socket.has_room()
        {
            self.writable(resources, lingering);
        }
    }

    /// Returns whether the connection has shared memory.
    #[inline]
    pub(crate) fn has_shared_memory(&self) -> bool {
        matches!(&self.phase, Phase::Established(conn) if conn.socket.shared_memory.is_some())
    }

    fn shared_memory_mut(&mut self) -> Option<&mut SharedMemory> {
        match &mut self.phase {
            Phase::Established(conn) => conn.socket.shared_memory.as_deref_mut(),
            _ => None,
        }
    }

    /// Returns whether each pass of progress reads the connection's ring, so that the peer need not
    /// wake this side.
    #[inline]
    pub(crate) fn polls_memory(&self) -> bool {
        match &self.phase {
            Phase::Established(conn) => {
                conn.socket.shared_memory.as_ref().is_some_and(|memory| memory.polls())
            }
            _ => false,
        }
    }

    /// From now on each pass of progress reads the connection's ring. Returns false if they did
    /// before.
    #[inline]
    pub(crate) fn poll_memory(&mut self) -> bool {
        match self.shared_memory_mut() {
            Some(memory) if !memory.polls() => {
                memory.poll();
                true
            }
            _ => false,
        }
    }

    /// From now on passes do not read the connection's ring, and the peer wakes this side.
    pub(crate) fn let_peer_wake(&mut self, resources: &mut EngineResources) {
        if let Phase::Established(conn) = &mut self.phase
            && let Some(memory) = &mut conn.socket.shared_memory
            && memory.sleep(!conn.writable)
        {
            // If the ring is still full, the next send finds that out.
            conn.writable = true;
            self.queue_pending(resources);
        }
        self.watch_ring(resources);
    }

    /// Starts to watch the ring if the peer has octets to read and passes do not read this side's
    /// ring.
    #[inline]
    pub(super) fn watch_ring(&mut self, resources: &mut EngineResources) {
        if let Phase::Established(conn) = &mut self.phase
            && let Some(memory) = &mut conn.socket.shared_memory
            && !memory.polls()
            && conn.ring_watch.is_none()
        {
            conn.ring_watch = RingWatch::start(memory, Instant::now);
            if conn.ring_watch.is_some() {
                self.renew_timer(resources);
            }
        }
    }

    /// Checks the memory, and wakes a peer that has read nothing since the last check. A connection
    /// with a wrong word ends.
    pub(super) fn check_ring(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        let watch = self.established_mut().and_then(|conn| conn.ring_watch.take());
        self.renew_timer(resources);
        self.continue_blocked_send(resources, lingering);
        self.receive(resources, lingering);
        let (Some(watch), Some(memory)) = (watch, self.shared_memory_mut()) else { return };
        match watch.check(memory, Instant::now()) {
            Ok(next) => {
                if let Some(conn) = self.established_mut() {
                    conn.ring_watch = next;
                }
                self.renew_timer(resources);
            }
            Err(Corrupt) => self.end_by_corruption(resources, lingering),
        }
    }

    fn end_by_corruption(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        self.end(resources, lingering, EndReason::Lost(Loss::Connection(Some(CORRUPT_ERRNO))));
    }
}
