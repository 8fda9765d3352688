//! The engine of an adapter: connections, listeners and timers. The engine lock protects all of
//! them.

mod direct_connection;
mod polled_rings;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use adapter::{
    Error, MakeProgress, Progress, QpShared, Remaining, Result, Slab, Target, no_memory,
    no_resources,
};
use mio::Interest;
use mio::event::Event;
use rnic::Work;
use tracing::debug;
use work::{Close, ReadDepth};

use self::direct_connection::DirectConnection;
use self::polled_rings::PolledRings;
use crate::linger::LingeringSockets;
use crate::link::Link;
use crate::listeners::{Listeners, WaitingRequest, refuse};
use crate::resources::{EngineResources, ObjectKey, Sink, Timer};
use crate::shm::{Offer, OfferSocket};
use crate::socket;

/// After this number of successful reads, the direct connection (`direct_connection`) is removed
/// from the poller, unless a thread sleeps there. The engine reads this connection without asking
/// the poller, and each report of the poller would cost a part of a microsecond.
const READS_BEFORE_SUSPENSION: u32 = 64;

/// The number of offers of shared memory that are read in one turn.
const MAX_OFFERS_PER_TURN: usize = 64;

/// The engine of an open adapter.
pub struct Engine {
    resources: EngineResources,
    links: Slab<Link>,
    listeners: Listeners,
    lingering: LingeringSockets,
    /// The connection that a consumer's pass reads without asking the poller.
    direct: DirectConnection,
    /// The direct connection, if it has left the poller. It returns before a thread sleeps there.
    suspended: Option<usize>,
    /// The connections whose shared memory each pass of a consumer reads.
    polled_rings: PolledRings,
    /// Whether the data that arrived last end in the middle of a message: the result of
    /// [`adapter::MakeProgress::take_partial`].
    partial: bool,
}

impl Engine {
    pub(crate) fn new(resources: EngineResources) -> Self {
        Engine {
            resources,
            links: Slab::new(),
            listeners: Listeners::default(),
            lingering: LingeringSockets::default(),
            direct: DirectConnection::default(),
            suspended: None,
            polled_rings: PolledRings::default(),
            partial: false,
        }
    }

    fn on_link_event(&mut self, index: usize, event: &Event) {
        let Some(link) = self.links.get_mut(index) else { return };
        if event.is_writable() || event.is_error() {
            link.writable(&mut self.resources, &mut self.lingering);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            link.successful_reads = 0;
            // The poller reports the end of the stream only once. So the link must receive until
            // the end, even after a short read.
            let until_end = event.is_read_closed() || event.is_error();
            link.reported();
            if until_end {
                link.peer_has_ended();
            }
            let has_moved = link.receive_until(&mut self.resources, &mut self.lingering, until_end);
            self.partial = link.is_mid_message();
            if has_moved && !link.has_shared_memory() {
                self.direct.has_reported(index, self.partial);
                if self.suspended != self.direct.connection() {
                    self.resume_suspended();
                }
            }
        }
    }

    /// Accepts the offers of shared memory that have arrived.
    fn accept_offers(&mut self) {
        for _ in 0..MAX_OFFERS_PER_TURN {
            let Some(offers) = &self.resources.offers else { return };
            let Some(offer) = offers.receive() else { return };
            if let Some(offer) = self.accept_offer(offer) {
                self.resources.forwarded_offers.forward(offer);
            }
        }
        // The poller reports the remaining offers again.
        if let Some(offers) = &self.resources.offers {
            self.resources.context.rename(ObjectKey::Offers, offers, Interest::READABLE).ok();
        }
    }

    /// Accepts an offer for one of the engine's connections. Returns an offer for any other
    /// connection.
    fn accept_offer(&mut self, offer: Offer) -> Option<Offer> {
        let (resources, lingering) = (&mut self.resources, &mut self.lingering);
        let mut offer = Some(offer);
        for link in self.links.iter_mut() {
            offer = link.accept_offer(resources, lingering, offer?);
        }
        offer
    }

    /// Looks at the offers that another engine has received.
    #[cold]
    fn accept_forwarded_offers(&mut self) {
        let forwarded = self.resources.forwarded_offers.clone();
        forwarded.look(|offer| self.accept_offer(offer));
    }

    /// Makes this adapter receive the offers of shared memory from peers that connect to a
    /// listener.
    fn expect_offers(&mut self, listener: SocketAddr) -> io::Result<()> {
        let resources = &mut self.resources;
        if resources.config.shm.is_none() || resources.context.capture().is_some() {
            return Ok(());
        }
        if resources.offers.is_none() {
            let offers = OfferSocket::open()?;
            resources.context.resume(ObjectKey::Offers, &offers, Interest::READABLE)?;
            resources.offers = Some(offers);
        }
        resources.offers.as_mut().map_or(Ok(()), |offers| offers.publish(listener))
    }

    /// Returns the suspended connection to the poller, if there is one.
    fn resume_suspended(&mut self) {
        if let Some(link) = self.suspended.take().and_then(|index| self.links.get_mut(index)) {
            link.resume_polling(&mut self.resources, &mut self.lingering);
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(key) = self.resources.take_expired(now) {
            match key {
                ObjectKey::Link(index) => {
                    if let Some(link) = self.links.get_mut(index) {
                        link.timer = Timer::default();
                        link.expire(&mut self.resources, &mut self.lingering, now);
                    }
                }
                ObjectKey::Listener(index) => self.listeners.listener_timer_expired(
                    &mut self.resources,
                    &mut self.lingering,
                    index,
                ),
                ObjectKey::Caller(index) => self.listeners.caller_timer_expired(
                    &mut self.resources,
                    &mut self.lingering,
                    index,
                    now,
                ),
                ObjectKey::LingeringSocket(index) => {
                    self.lingering.expire(&mut self.resources, index)
                }
                // These have no timers.
                ObjectKey::WakeSocket(_) | ObjectKey::Offers => {}
            }
        }
    }
}

impl MakeProgress for Engine {
    const NAME: &'static str = "tcp-emu";
    type RequestData = WaitingRequest;

    #[inline]
    fn poll(&mut self) -> Progress {
        self.advance();
        let shared_has_moved = self.poll_shared_memory();
        let has_others = self.links.len() > 1;
        let Some(index) = self.direct.next_pass(has_others) else {
            let (has_moved, is_busy) = (shared_has_moved, !self.resources.pending.is_empty());
            let spares_poller = self.direct.connection().is_none()
                && self.polled_rings.spares_poller(has_moved, is_busy);
            return match (spares_poller && !self.has_closed(), has_moved) {
                (false, _) => Progress::AskPoller,
                (true, true) => Progress::Moved,
                (true, false) => Progress::Nothing,
            };
        };
        let link = match self.links.get_mut(index) {
            Some(link) if link.is_established() && !link.has_shared_memory() => link,
            _ => {
                self.direct.has_ended();
                return Progress::AskPoller;
            }
        };
        let has_moved = link.receive(&mut self.resources, &mut self.lingering);
        if has_moved {
            self.partial = link.is_mid_message();
            self.direct.has_read();
            link.successful_reads += 1;
            if link.successful_reads.is_multiple_of(READS_BEFORE_SUSPENSION)
                && !self.resources.context.has_sleeper()
                && link.suspend_polling(&self.resources)
            {
                self.suspended = Some(index);
            }
        }
        match (link.is_blocked() || self.has_closed(), has_moved || shared_has_moved) {
            (true, _) => Progress::AskPoller,
            (false, true) => Progress::Moved,
            (false, false) => Progress::Nothing,
        }
    }

    #[inline]
    fn take_partial(&mut self) -> bool {
        std::mem::take(&mut self.partial)
    }

    fn on_event(&mut self, event: &Event) {
        match ObjectKey::from(event.token()) {
            ObjectKey::Link(index) => self.on_link_event(index, event),
            ObjectKey::Listener(index) => {
                self.listeners.accept_callers(&mut self.resources, &mut self.lingering, index)
            }
            ObjectKey::Caller(index) => {
                self.listeners.caller_readable(&mut self.resources, &mut self.lingering, index)
            }
            ObjectKey::LingeringSocket(index) => {
                self.lingering.readable(&mut self.resources, index)
            }
            ObjectKey::WakeSocket(index) => self.on_wake_up(index),
            ObjectKey::Offers => self.accept_offers(),
        }
    }

    #[inline]
    fn advance(&mut self) {
        if self.resources.forwarded_offers.has_unseen() {
            self.accept_forwarded_offers();
        }
        if self.listeners.has_deferred() && self.resources.unconfirmed.take_change() {
            self.listeners.admit_deferred(&mut self.resources, &mut self.lingering);
        }
        if self.resources.context.has_sleeper() {
            if self.suspended.is_some() {
                self.resume_suspended();
            }
            self.let_peers_wake();
        }
        // Each link has one turn per pass. A link with more work queues itself again, behind the
        // others.
        for _ in 0..self.resources.pending.len() {
            if let Some(link) =
                self.resources.pending.pop_front().and_then(|index| self.links.get_mut(index))
            {
                link.run_pending(&mut self.resources, &mut self.lingering);
            }
        }
        while let Some(index) = self.resources.reports.pop() {
            if let Some(link) = self.links.get_mut(index) {
                link.send_report(&mut self.resources, &mut self.lingering);
            }
        }
        if self.resources.next_deadline().is_some() {
            self.expire();
        }
    }

    fn remaining(&mut self) -> Remaining {
        Remaining {
            at_once: !self.resources.pending.is_empty()
                || !self.resources.reports.is_empty()
                || self.has_closed(),
            deadline: self.resources.next_deadline(),
        }
    }

    fn has_closed(&self) -> bool {
        !self.resources.closed.is_empty()
    }

    fn take_closed(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.resources.closed)
    }

    fn finish_closed(&mut self, closed: Vec<usize>) {
        // The poller does not report the connections that passes read directly. Their peers may
        // have sent data on them before they closed other connections.
        if !closed.is_empty() {
            self.poll_shared_memory();
            if let Some(link) = self.suspended.and_then(|index| self.links.get_mut(index)) {
                link.receive(&mut self.resources, &mut self.lingering);
            }
        }
        for index in closed {
            if let Some(link) = self.links.get_mut(index) {
                link.finish_closed(&mut self.resources, &mut self.lingering);
            }
        }
    }

    fn transmit(&mut self, qp: usize) {
        self.poll_ring_of(qp);
        let Some(link) = self.links.get_mut(qp) else { return };
        link.transmit(&mut self.resources, &mut self.lingering);
        if link.is_stalled() {
            link.receive_until(&mut self.resources, &mut self.lingering, true);
        }
    }

    fn refuse(&mut self, request: WaitingRequest) {
        refuse(&mut self.resources, &mut self.lingering, request);
    }
}

// SAFETY: a `Work` belongs to a `Link`, which the engine removes in `remove_qp`. Sinks belong to
// links and listeners, and the engine calls no sink after it has removed the sink's owner.
unsafe impl adapter::Engine for Engine {
    const CAN_BE_SEVERAL: bool = true;

    fn add_qp(&mut self, sink: Sink, work: Work) -> Result<Arc<QpShared>> {
        self.links.reserve().map_err(no_memory)?;
        let index = self.links.next_index();
        let shared = Arc::new(QpShared::new(index));
        self.links.insert(Link::new(index, sink, Arc::clone(&shared), work));
        Ok(shared)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let mut counts = self.resources.ended_counts.clone();
        self.links.iter().for_each(|link| link.count(&mut counts));
        let mut list = counts.into_list();
        list.push(("shared-memory-connections", self.resources.shared_memory_connections()));
        list
    }

    fn remove_qp(&mut self, qp: usize) {
        if self.direct.connection() == Some(qp) {
            self.direct.has_ended();
        }
        self.polled_rings.remove(qp);
        self.resources.pending.retain(|&i| i != qp);
        self.resources.reports.retain(|&i| i != qp);
        if let Some(link) = self.links.remove(qp) {
            link.close(&mut self.resources, &mut self.lingering);
        }
        if self.links.is_empty() {
            self.resources.forwarded_offers.refuse_all();
        }
    }

    fn connect(&mut self, qp: usize, to: &Target<'_>) -> Result<()> {
        let link = self.links.get_mut(qp).ok_or(Error::InvalidState)?;
        link.connect(&mut self.resources, to)
    }

    fn accept(
        &mut self,
        qp: usize,
        request: WaitingRequest,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<()> {
        let link = self.links.get_mut(qp).ok_or(Error::InvalidState)?;
        if !request.is_watched {
            self.resources.forwarded_offers.want();
        }
        link.accept(&mut self.resources, &mut self.lingering, request, private, depth)
    }

    fn disconnect(&mut self, qp: usize, how: Close) {
        if let Some(link) = self.links.get_mut(qp) {
            link.disconnect(&mut self.resources, &mut self.lingering, how);
        }
    }

    fn allocated(&mut self, qp: usize) -> usize {
        self.links.get_mut(qp).map_or(0, |link| link.allocated())
    }

    fn listen(&mut self, port: Option<u16>, backlog: usize, sink: Sink) -> Result<(usize, u16)> {
        let socket = socket::listen(self.resources.bind, port)?;
        let address = socket.local_addr().ok().and_then(|a| a.as_socket());
        let port = address.map_or(0, |address| address.port());
        if let Some(listener) = address
            && let Err(error) = self.expect_offers(listener)
        {
            // The connections of this host stay with TCP.
            debug!(target: "dat::ia", "no shared memory with processes of this host: {error}");
        }
        let index = self
            .listeners
            .open(&mut self.resources, socket, backlog, sink)
            .map_err(no_resources)?;
        Ok((index, port))
    }

    fn close(&mut self, listener: usize) {
        self.listeners.close(&mut self.resources, &mut self.lingering, listener);
    }

    fn hand_over(&mut self, mut request: WaitingRequest) -> WaitingRequest {
        self.resources.context.unwatch(&request.socket);
        request.is_watched = false;
        request
    }

    fn reject(&mut self, request: WaitingRequest, private: &[u8]) -> Result<()> {
        self.listeners.reject(&mut self.resources, &mut self.lingering, request, private)
    }
}
