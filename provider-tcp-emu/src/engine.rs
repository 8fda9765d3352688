//! The engine of an adapter: connections, listeners and timers. The engine lock protects all of
//! them.

mod resources;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use adapter::{
    Context, MakeProgress, Progress, Remaining, Shared, Table, Target, no_memory, no_resources,
};
use dat_core::provider::{Close, ReadDepth};
use dat_core::{Error, Result};
use dat_sys::DAT_INVALID_STATE;
use mio::Interest;
use mio::event::Event;
use rnic::Work;
use tracing::debug;

pub(crate) use self::resources::{EngineResources, Key, Timer};
use crate::linger::LingeringSockets;
use crate::link::Link;
use crate::listeners::{Listeners, Request};
use crate::params::Params;
use crate::shm::OfferSocket;
use crate::socket;

/// The number of connections that each pass of a polling consumer reads without asking the poller.
const MAX_POLLED: usize = 8;
/// After this number of consecutive reads without data, passes no longer read the connection if the
/// adapter has other connections. The poller then reports the connection again.
const MAX_EMPTY_READS: u32 = 256;
/// After this number of successful reads, a polled connection leaves the poller. The poller's
/// wake-ups are not needed then, and they would cost each message a part of a microsecond.
const READS_BEFORE_SUSPENSION: u32 = 64;
/// The number of consecutive passes without data after which the poller is asked although all
/// connections are polled. Only the poller reports new callers.
const EMPTY_PASSES_PER_POLL: u32 = 256;

/// The engine of an open adapter.
pub struct Engine {
    resources: EngineResources,
    links: Table<Link>,
    listeners: Listeners,
    lingering: LingeringSockets,
    /// The connections that each pass of a polling consumer reads, at most [`MAX_POLLED`]. The most
    /// recently active connection is first.
    polled: Vec<usize>,
    /// The polled connections whose sockets have left the poller. The sockets return to the poller
    /// before a thread sleeps there.
    suspended: Vec<usize>,
    /// The number of consecutive passes of polling consumers without data.
    empty_passes: u32,
    /// Whether the data that arrived last end in the middle of a message: the result of
    /// [`adapter::MakeProgress::take_partial`].
    partial: bool,
}

impl Engine {
    pub(crate) fn new(context: Context<Engine>, params: Params) -> Self {
        Engine {
            resources: EngineResources::new(context, params),
            links: Table::new(),
            listeners: Listeners::default(),
            lingering: LingeringSockets::default(),
            polled: Vec::with_capacity(MAX_POLLED + 1),
            suspended: Vec::new(),
            empty_passes: 0,
            partial: false,
        }
    }

    fn on_link_event(&mut self, index: usize, event: &Event) {
        let Some(link) = self.links.get_mut(index) else { return };
        if event.is_writable() || event.is_error() {
            link.writable(&mut self.resources, &mut self.lingering);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            (link.empty_reads, link.successful_reads) = (0, 0);
            // The poller reports the end of the stream only once. So the link must receive until
            // the end, even after a short read.
            let until_end = event.is_read_closed() || event.is_error();
            link.reported();
            if until_end {
                link.peer_has_ended();
            }
            link.receive_until(&mut self.resources, &mut self.lingering, until_end);
            self.partial = link.is_mid_message();
        }
        self.poll_first(index);
    }

    fn on_doorbell(&mut self, index: usize) {
        let Some(link) = self.links.get_mut(index) else { return };
        (link.empty_reads, link.successful_reads) = (0, 0);
        link.on_doorbell(&mut self.resources, &mut self.lingering);
        self.partial = link.is_mid_message();
        self.poll_first(index);
    }

    /// Accepts the offers of shared memory that have arrived.
    fn accept_offers(&mut self) {
        while let Some(offer) = self.resources.offers.as_ref().and_then(OfferSocket::receive) {
            let (resources, lingering) = (&mut self.resources, &mut self.lingering);
            let mut offer = Some(offer);
            for link in self.links.iter_mut() {
                let Some(left) = offer.take() else { break };
                offer = link.accept_offer(resources, lingering, left);
            }
        }
    }

    /// Makes the offers of those who connect to a listener arrive at this adapter.
    fn expect_offers(&mut self, listener: SocketAddr) -> io::Result<()> {
        let resources = &mut self.resources;
        if !resources.params.shm || resources.context.capture().is_some() {
            return Ok(());
        }
        if resources.offers.is_none() {
            let offers = OfferSocket::open()?;
            resources.context.resume(Key::Offers, &offers, Interest::READABLE)?;
            resources.offers = Some(offers);
        }
        resources.offers.as_mut().map_or(Ok(()), |offers| offers.publish(listener))
    }

    /// Moves a connection to the front of the polled connections.
    fn poll_first(&mut self, index: usize) {
        if self.polled.first() == Some(&index) {
            return;
        }
        self.polled.retain(|&i| i != index);
        self.polled.insert(0, index);
        if self.polled.len() > MAX_POLLED {
            self.polled.truncate(MAX_POLLED);
            self.resume_suspended();
        }
    }

    /// Returns all suspended connections to the poller.
    fn resume_suspended(&mut self) {
        while let Some(index) = self.suspended.pop() {
            if let Some(link) = self.links.get_mut(index) {
                link.resume_polling(&mut self.resources, &mut self.lingering);
            }
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(key) = self.resources.take_expired(now) {
            match key {
                Key::Link(index) => {
                    if let Some(link) = self.links.get_mut(index) {
                        link.timer = Timer::default();
                        link.expire(&mut self.resources, &mut self.lingering, now);
                    }
                }
                Key::Listener(index) => self.listeners.listener_timer_expired(
                    &mut self.resources,
                    &mut self.lingering,
                    index,
                ),
                Key::Caller(index) => self.listeners.reset_caller(&mut self.resources, index),
                Key::LingeringSocket(index) => self.lingering.expire(&mut self.resources, index),
                // These have no timers.
                Key::Doorbell(_) | Key::Offers => {}
            }
        }
    }
}

impl MakeProgress for Engine {
    const NAME: &'static str = "tcp-emu";
    type Request = Request;

    #[inline]
    fn poll(&mut self) -> Progress {
        self.advance();
        let (mut has_moved, mut blocked, mut stale) = (false, false, false);
        for i in 0..self.polled.len() {
            let Some(link) = self.polled.get(i).and_then(|&i| self.links.get_mut(i)) else {
                continue;
            };
            match link.receive(&mut self.resources, &mut self.lingering) {
                false => link.empty_reads += 1,
                true => {
                    has_moved = true;
                    self.partial = link.is_mid_message();
                    link.empty_reads = 0;
                    link.successful_reads += 1;
                    if (link.sends_by_memory()
                        || link.successful_reads.is_multiple_of(READS_BEFORE_SUSPENSION))
                        && !self.resources.context.has_sleeper()
                        && link.suspend_polling(&self.resources)
                    {
                        self.suspended.push(self.polled[i]);
                    }
                }
            }
            if link.is_blocked() {
                match link.sends_by_memory() {
                    true => link.continue_blocked_send(&mut self.resources, &mut self.lingering),
                    false => blocked = true,
                }
            }
            stale |= !link.is_established() || link.empty_reads > MAX_EMPTY_READS;
        }
        self.empty_passes = if has_moved { 0 } else { self.empty_passes.wrapping_add(1) };
        if stale && self.links.len() > 1 {
            let links = &mut self.links;
            self.polled.retain(|&i| {
                links
                    .get_mut(i)
                    .is_some_and(|l| l.is_established() && l.empty_reads <= MAX_EMPTY_READS)
            });
            self.resume_suspended();
        }
        let has_unpolled = self.links.len() > self.polled.len();
        match blocked
            || self.has_closed()
            || (!has_moved
                && (has_unpolled || self.empty_passes.is_multiple_of(EMPTY_PASSES_PER_POLL)))
        {
            true => Progress::AskPoller,
            false if has_moved => Progress::Moved,
            false => Progress::Nothing,
        }
    }

    #[inline]
    fn take_partial(&mut self) -> bool {
        std::mem::take(&mut self.partial)
    }

    fn on_event(&mut self, event: &Event) {
        match Key::from(event.token()) {
            Key::Link(index) => self.on_link_event(index, event),
            Key::Listener(index) => {
                self.listeners.accept_callers(&mut self.resources, &mut self.lingering, index)
            }
            Key::Caller(index) => {
                self.listeners.caller_readable(&mut self.resources, &mut self.lingering, index)
            }
            Key::LingeringSocket(index) => self.lingering.readable(&mut self.resources, index),
            Key::Doorbell(index) => self.on_doorbell(index),
            Key::Offers => self.accept_offers(),
        }
    }

    #[inline]
    fn advance(&mut self) {
        if !self.suspended.is_empty() && self.resources.context.has_sleeper() {
            self.resume_suspended();
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
        if self.resources.next_deadline().is_some() {
            self.expire();
        }
    }

    fn remaining(&mut self) -> Remaining {
        Remaining {
            at_once: !self.resources.pending.is_empty() || self.has_closed(),
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
        for index in closed {
            if let Some(link) = self.links.get_mut(index) {
                link.finish_closed(&mut self.resources, &mut self.lingering);
            }
        }
    }

    fn transmit(&mut self, qp: usize) {
        let Some(link) = self.links.get_mut(qp) else { return };
        link.transmit(&mut self.resources, &mut self.lingering);
        if link.is_stalled() {
            link.receive_until(&mut self.resources, &mut self.lingering, true);
        }
        if self.polled.len() < MAX_POLLED && !self.polled.contains(&qp) {
            self.poll_first(qp);
        }
    }

    fn refuse(&mut self, request: Request) {
        self.listeners.refuse(&mut self.resources, request);
    }
}

// SAFETY: a `Work` belongs to a `Link`, which the engine removes in `remove_qp`. Sinks belong to
// links and listeners, and the engine calls no sink after it has removed the sink's owner.
unsafe impl adapter::Engine for Engine {
    fn add_qp(&mut self, sink: Sink, work: Work) -> Result<Arc<Shared>> {
        self.links.reserve().map_err(no_memory)?;
        let index = self.links.next_index();
        let shared = Arc::new(Shared::new(index));
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
        self.polled.retain(|&i| i != qp);
        self.resources.pending.retain(|&i| i != qp);
        if let Some(link) = self.links.remove(qp) {
            link.close(&mut self.resources, &mut self.lingering);
        }
    }

    fn connect(&mut self, qp: usize, to: &Target<'_>) -> Result<()> {
        let link = self.links.get_mut(qp).ok_or(Error::of(DAT_INVALID_STATE))?;
        link.connect(&mut self.resources, to)
    }

    fn accept(
        &mut self,
        qp: usize,
        request: Request,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<()> {
        let link = self.links.get_mut(qp).ok_or(Error::of(DAT_INVALID_STATE))?;
        link.accept(&mut self.resources, request, private, depth)
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
        let socket = socket::listen(self.resources.params.adapter.bind, port)?;
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
        self.listeners.close(&mut self.resources, listener);
    }

    fn reject(&mut self, request: Request, private: &[u8]) -> Result<()> {
        self.listeners.reject(&mut self.resources, &mut self.lingering, request, private)
    }
}

/// The receiver of an engine's upcalls.
pub(crate) type Sink = adapter::Sink<Engine>;
/// An upcall of an engine.
pub(crate) type Upcall<'a> = adapter::Upcall<'a, Engine>;
