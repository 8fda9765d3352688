//! A connection's move from TCP to shared memory (see [`crate::shm`]).

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use mio::Interest;
use rnic::rdmap::setup::Terms;
use tracing::debug;

use super::{Link, Phase};
use crate::engine::{EngineResources, Key};
use crate::linger::LingeringSockets;
use crate::listeners;
use crate::shm::{Doorbell, Offer, SharedMemory, TRANSFERS_BEFORE_OFFER};

/// Whether and when a connection moves to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// It never does, or it has moved or tried to.
    Off,
    /// It moves when the peer offers memory.
    AcceptsOffer,
    /// It offers memory after this number of transfers.
    OffersAfter(u32),
    /// It is to offer memory now.
    OffersNow,
}

impl Sharing {
    /// Counts a transfer.
    #[inline]
    pub(super) fn count_transfer(&mut self) {
        if let Sharing::OffersAfter(left) = self {
            *self = match *left {
                0 => Sharing::OffersNow,
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
        let may_share = resources.params.shm
            // The peer is OpenDAT.
            && terms.extended
            // A capture and a CRC are for the octets of TCP.
            && !terms.crc
            && resources.context.capture().is_none()
            && crate::socket::is_same_host(peer, local);
        match (may_share, connected) {
            (false, _) => Sharing::Off,
            (true, false) => Sharing::AcceptsOffer,
            (true, true) => Sharing::OffersAfter(TRANSFERS_BEFORE_OFFER),
        }
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
        let Some(count) = resources.count_shared_memory() else { return };
        if let Ok((memory, offered)) = SharedMemory::create(count)
            && self.attach(resources, lingering, memory)
            && offered.send(local, peer).is_err()
            && let Phase::Established(conn) = &mut self.phase
        {
            conn.socket.shared_memory = None;
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
        let sharing = std::mem::replace(&mut conn.sharing, Sharing::Off);
        if sharing == Sharing::AcceptsOffer
            && let Some(count) = resources.count_shared_memory()
            && let Ok(memory) = SharedMemory::open(offer, count)
            && self.attach(resources, lingering, memory)
            && let Phase::Established(conn) = &mut self.phase
            && let Some(memory) = &conn.socket.shared_memory
        {
            memory.accept();
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
        let (key, doorbell) = (Key::Doorbell(self.index), memory.doorbell());
        let attached = !listeners::is_scarce(doorbell.as_raw_fd())
            && resources.context.resume(key, doorbell, Interest::READABLE).is_ok();
        if attached {
            let (local, peer) = (conn.local, conn.peer);
            debug!(target: "dat::cm", %local, %peer, "shares memory with the peer");
            conn.socket.shared_memory = Some(Box::new(memory));
        }
        attached
    }

    /// Handles an event of the doorbell.
    pub(crate) fn on_doorbell(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        let Phase::Established(conn) = &mut self.phase else { return };
        let Some(memory) = &mut conn.socket.shared_memory else { return };
        if memory.on_doorbell() == Doorbell::Refused {
            conn.socket.shared_memory = None;
            conn.is_suspended = false;
            return;
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

    /// Returns whether the connection sends by shared memory, which is polled without a system
    /// call.
    #[inline]
    pub(crate) fn sends_by_memory(&self) -> bool {
        matches!(&self.phase, Phase::Established(conn) if conn.socket.sends_by_memory())
    }
}
