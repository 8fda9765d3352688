//! The engine of an adapter, which consists of all objects that touch sockets: local addresses,
//! connections, listeners and timers. The engine lock protects it.

mod addresses;
mod local_peers;
mod receive;
mod resolution;
mod shutdown;
mod sockets;

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adapter::{
    Context, DatagramEnd, Error, MakeProgress, OpenError, PeerAddress, Progress, QpShared,
    Remaining, RequesterCfg, ResponderCfg, Result, Slab, Target, no_memory,
};
use mio::event::Event;
use rnic::Work;
use rnic::cm;
use rnic::rc::EarlyPool;
use wire::cm::{Reason, SidrStatus};
use wire::rocev2::PathMtu;
use work::{Close, ReadDepth};

use crate::config::Config;
use crate::datagram_link::{self, DatagramLink, DatagramLinks};
use crate::hosts::HostsOfAdapter;
use crate::link::{self, Link};
use crate::listeners::{ConnectionRequest, Listener, Listeners, PendingRequest, RequestLocation};
use crate::local_address::{LocalAddress, assign_everywhere, random};
use crate::owner::{LocalRequest, Owner};
use crate::packet_io::TooLong;
use crate::resources::{EngineContext, EngineResources, Sink, SocketKey};
use crate::shared_port::{PortSlot, ReceiveBuffer, SLOTS, Service};
use crate::socket::RxBatch;

/// After this number of passes, the poller is checked even if packets keep arriving, because the
/// poller reports new connection requests.
const PASSES_PER_POLLER_CHECK: u32 = 256;
/// After this number of passes without packets, a consumer that polls without a pause reads the
/// clock. It does not read the clock in each pass, because this takes a tenth of the time that
/// reading a socket takes.
const PASSES_PER_CLOCK_READ: u32 = 8;
/// If [`PASSES_PER_CLOCK_READ`] passes take longer than this time, the consumer does other work
/// between polls. Then each pass reads the clock.
const BUSY_POLL_INTERVAL_MAX: Duration = Duration::from_micros(40);

/// The engine of one adapter.
pub struct Engine {
    resources: EngineResources,
    local_addresses: Vec<LocalAddress>,
    /// Whether the adapter has opened all addresses of the host, which the first listener does.
    all_addresses_are_open: bool,
    /// The slots that the engine may take at an address.
    slots: Range<PortSlot>,
    links: Slab<Link>,
    datagram_links: DatagramLinks,
    listeners: Listeners,
    /// The buffer into which messages from other adapters are read.
    receive_buffer: ReceiveBuffer,
    rx: RxBatch,
    /// The sockets whose turn of reads ended before they were empty. They may have more packets.
    unread: Vec<SocketKey>,
    /// Whether the last poll found packets. More packets may wait, because a poll reads each socket
    /// only once.
    found_packets: bool,
    /// Whether the data that arrived last end in the middle of a message: the result of
    /// [`adapter::MakeProgress::take_partial`].
    partial: bool,
    /// The number of passes that consumers have made by polling.
    passes: u32,
    /// The time at which `advance` last ran.
    last_advance: Instant,
    /// Whether the consumer polls so rarely that each pass runs `advance`.
    polls_rarely: bool,
    /// The one address that is served. `None` for all addresses of the host.
    bind: Option<SocketAddr>,
    config: Config,
    /// The longest datagram that the consumer may send.
    mtu: PathMtu,
    guid: u64,
    hosts: Arc<HostsOfAdapter>,
}

impl Engine {
    /// Opens the address that `adapter` specifies, or the main address of the host.
    pub(crate) fn new(
        context: Context<Engine>,
        adapter: &adapter::Config,
        config: Config,
        hosts: Arc<HostsOfAdapter>,
        early_pool: Arc<EarlyPool>,
        mtu: PathMtu,
    ) -> std::result::Result<Self, OpenError> {
        let mut engine = Engine {
            resources: EngineResources::new(context, early_pool),
            local_addresses: Vec::new(),
            all_addresses_are_open: false,
            slots: SLOTS,
            links: Slab::new(),
            datagram_links: DatagramLinks::default(),
            listeners: Listeners::default(),
            receive_buffer: ReceiveBuffer::default(),
            rx: RxBatch::new(),
            unread: Vec::new(),
            found_packets: false,
            partial: false,
            passes: 0,
            last_advance: Instant::now(),
            polls_rarely: false,
            guid: random() | 1,
            bind: adapter.bind,
            config,
            mtu,
            hosts,
        };
        match engine.config.numbers_at_creation {
            true => engine.open_addresses_with_one_slot(adapter)?,
            false => engine.open_main_address(adapter)?,
        }
        Ok(engine)
    }
}

impl Engine {
    /// Delivers the events of the connection manager to their owners and sends its messages.
    fn process_cm_events(&mut self, index: usize, now: Instant) {
        let Engine { local_addresses, links, resources, listeners, .. } = self;
        let local_address = &mut local_addresses[index];
        while let Some((id, event)) = local_address.cm.poll_event() {
            let owner = local_address.owner(id);
            if let cm::Event::Accepted(_) = event {
                // The RTU leaves before the consumer learns of the connection. The consumer may
                // stop its process then, and without an RTU the peer would give the connection up.
                local_address.send_messages(now);
                local_address.packet_io.flush();
            }
            let cx = &mut EngineContext { local_address, resources, now };
            match (event, owner) {
                (cm::Event::Request(request), _) => {
                    listeners.deliver_request(cx, index, id, request)
                }
                (cm::Event::PathMtuRefused { from, proposed, largest }, _) => {
                    cx.resources.refused_requests.log(now, from, proposed, largest);
                }
                (cm::Event::Released { qpn }, _) => {
                    cx.local_address.qpns.release(qpn);
                    cx.local_address.remove_owner(id);
                }
                (_, Some(Owner::Request(_))) => {
                    // The request has ended, for example because the peer has withdrawn it. The
                    // consumer is not told. If the consumer later accepts the request, accepting
                    // fails.
                    cx.local_address.remove_owner(id);
                }
                (event, Some(Owner::Link(link))) => {
                    if let Some(link) = links.get_mut(link) {
                        link.on_cm_event(cx, id, event);
                    }
                }
                (_, None) => {}
            }
        }
        if local_address.send_messages(now) {
            resources.note_outgoing();
        }
        self.process_sidr_events(index, now);
        let Engine { local_addresses, resources, .. } = self;
        if local_addresses[index].send_messages(now) {
            resources.note_outgoing();
        }
    }

    /// Sends all acknowledgements that waited for an answer of the consumer.
    fn acknowledge_pending(&mut self) {
        while let Some(link) = self.resources.take_held_ack() {
            if self.links.get_mut(link).is_some_and(Link::take_ack_pending) {
                self.with_link(link, |link, cx| link.acknowledge(cx));
            }
        }
    }

    /// Sends the acknowledgements that have waited for too long. Call this before work that may
    /// take long.
    #[inline]
    fn acknowledge_due(&mut self, now: Instant) {
        if self.resources.held_acks_are_due(now) {
            self.acknowledge_pending();
            self.flush();
        }
    }

    /// Ends the connections whose packets were too long for the interface of a local address.
    #[cold]
    fn end_links_of(&mut self, index: usize, too_long: &[TooLong], now: Instant) {
        let Engine { local_addresses, links, resources, .. } = self;
        let indices: Vec<usize> = links.indices().collect();
        for link in indices {
            if let Some(link) = links.get_mut(link)
                && link.local_address() == Some(index)
            {
                let local_address = &mut local_addresses[index];
                link.on_too_long(&mut EngineContext { local_address, resources, now }, too_long);
            }
        }
        self.process_cm_events(index, now);
    }

    /// Calls `f` with a queue pair. If the queue pair has a connection, also passes the context of
    /// its local address to `f`. Then handles the events of the connection manager and sends its
    /// messages.
    fn with_link<R>(
        &mut self,
        qp: usize,
        f: impl FnOnce(&mut Link, Option<&mut EngineContext<'_>>) -> R,
    ) -> Option<R> {
        let now = Instant::now();
        let Engine { local_addresses, links, resources, .. } = self;
        let link = links.get_mut(qp)?;
        let index = link.local_address();
        let local_address = index.and_then(|local_address| local_addresses.get_mut(local_address));
        let result = match local_address {
            Some(local_address) => {
                f(link, Some(&mut EngineContext { local_address, resources, now }))
            }
            None => f(link, None),
        };
        if let Some(index) = index {
            self.process_cm_events(index, now);
        }
        Some(result)
    }
}

impl MakeProgress for Engine {
    const NAME: &'static str = "softroce";
    type RequestData = PendingRequest;

    fn poll(&mut self) -> Progress {
        self.passes = self.passes.wrapping_add(1);
        let is_clock_due = self.passes.is_multiple_of(PASSES_PER_CLOCK_READ) || self.polls_rarely;
        let advances = is_clock_due || self.found_packets || self.has_pending_work();
        if advances {
            let before = self.last_advance;
            self.advance();
            self.polls_rarely =
                self.last_advance.saturating_duration_since(before) > BUSY_POLL_INTERVAL_MAX;
        }
        // Packets that were gathered so far do not wait for the reads.
        self.flush();
        let mut moved = false;
        for index in 0..self.local_addresses.len() {
            if !self.local_addresses[index].qpns.any()
                || !self.read(SocketKey::Socket(index), Instant::now)
            {
                continue;
            }
            moved = true;
            let Engine { local_addresses, resources, .. } = self;
            let local_address = &mut local_addresses[index];
            if local_address.note_read() && !resources.context.has_sleeper() {
                let is_suspended = resources.context.suspend(&local_address.port.socket).is_ok();
                local_address.set_suspended(is_suspended);
            }
        }
        self.found_packets = moved;
        match moved {
            _ if self.passes.is_multiple_of(PASSES_PER_POLLER_CHECK) => Progress::AskPoller,
            true => Progress::Moved,
            false if advances => Progress::Nothing,
            false => Progress::Idle,
        }
    }

    fn take_partial(&mut self) -> bool {
        std::mem::take(&mut self.partial)
    }

    fn on_event(&mut self, event: &Event) {
        let (key, now) = (SocketKey::from(event.token()), Instant::now());
        match key {
            SocketKey::Socket(_) => self.read_all(key),
            SocketKey::ReqSocket(local_address) => self.read_req_socket(local_address, now),
            SocketKey::LocalSocket(_) | SocketKey::Service { .. } => {
                self.read_local_messages(key, now)
            }
            SocketKey::LivenessListener(local_address) => {
                self.accept_liveness_connections(local_address)
            }
            SocketKey::LivenessWatcher { local_address, watcher } => {
                let removed = self
                    .local_addresses
                    .get_mut(local_address)
                    .and_then(|s| s.port.liveness.remove(watcher));
                removed.iter().for_each(|watcher| self.resources.context.unwatch(watcher));
                self.accept_liveness_connections(local_address);
            }
            SocketKey::LivenessConnection { local_address, number } => {
                self.on_local_peer_ended(local_address, number, now)
            }
            SocketKey::HostProbe(local_address) => self.read_host_answers(local_address, now),
        }
    }

    fn advance(&mut self) {
        let now = Instant::now();
        self.last_advance = now;
        if self.resources.context.has_sleeper() {
            self.resume_sockets();
        }
        for index in 0..self.local_addresses.len() {
            self.local_addresses[index].packet_io.send_unsent(now);
            if self.local_addresses[index].packet_io.has_too_long() {
                let too_long = self.local_addresses[index].packet_io.take_too_long();
                self.end_links_of(index, &too_long, now);
            }
        }
        while let Some(link) = self.resources.take_failed() {
            if let Some(link) = self.datagram_links.get_mut(link) {
                link.report_failure();
            }
            self.with_link(link, |link, cx| link.report_failure(cx));
        }
        self.acknowledge_pending();
        // Each queue pair gets one turn. A queue pair that has more to send is appended to the
        // list.
        for _ in 0..self.resources.queued_to_transmit().len() {
            let Some(link) = self.resources.take_turn() else { break };
            self.transmit_datagrams(link, now);
            self.with_link(link, |link, cx| cx.into_iter().for_each(|cx| link.resume_transmit(cx)));
        }
        for _ in 0..self.unread.len() {
            let key = self.unread.remove(0);
            self.read_all(key);
        }
        for index in 0..self.local_addresses.len() {
            if self.local_addresses[index].req_pacing.is_due(now) {
                self.read_flooded_req_socket(index, now);
            }
            let local_address = &mut self.local_addresses[index];
            local_address.packet_io.send_due(now);
            local_address.port.retry_sends(now);
            if local_address.sidr.deadline().is_some_and(|at| at <= now) {
                local_address.sidr.expire(now);
                local_address.remove_closed_services();
                self.process_cm_events(index, now);
            }
            let local_address = &mut self.local_addresses[index];
            if local_address.cm.deadline().is_some_and(|at| at <= now) {
                local_address.cm.expire(now);
                local_address.remove_closed_services();
                self.process_cm_events(index, now);
            }
        }
        // A timer may wait for an acknowledgement that has arrived but has not been read. If a
        // thousand queue pairs retransmitted before reading, neither side would read in time, and
        // their retries would be used up.
        let behind = std::mem::take(&mut self.found_packets) || !self.unread.is_empty();
        for _ in 0..if behind { 1 } else { usize::MAX } {
            let Some(link) = self.resources.take_expired(now) else { break };
            self.with_link(link, |link, cx| cx.into_iter().for_each(|cx| link.expire(cx)));
        }
    }

    fn flush(&mut self) {
        if self.resources.take_outgoing() {
            self.local_addresses
                .iter_mut()
                .for_each(|local_address| local_address.packet_io.flush());
        }
    }

    fn remaining(&mut self) -> Remaining {
        let Engine { resources, links, local_addresses, unread, .. } = self;
        // While a socket has no room, its queue pairs wait for the deadline of the packet I/O.
        let can_transmit = |&link: &usize| {
            links.get_mut(link).is_some_and(|link| !link.has_unsent(local_addresses))
        };
        let more = resources.queued_to_transmit().iter().any(can_transmit)
            || resources.has_failed()
            || !unread.is_empty()
            || local_addresses.iter().any(|of| of.packet_io.has_too_long());
        let deadlines =
            local_addresses.iter().filter_map(LocalAddress::deadline).chain(resources.deadline());
        Remaining { at_once: more, deadline: deadlines.min() }
    }

    #[inline]
    fn transmit(&mut self, qp: usize) {
        let now = Instant::now();
        if qp >= datagram_link::FIRST_INDEX {
            self.transmit_datagrams(qp, now);
            return self.acknowledge_due(now);
        }
        let Engine { local_addresses, links, resources, .. } = self;
        let Some(link) = links.get_mut(qp) else { return };
        match link.local_address().and_then(|local_address| local_addresses.get_mut(local_address))
        {
            Some(local_address) => {
                link.transmit(&mut EngineContext { local_address, resources, now })
            }
            None => link.flush_ended(),
        }
        // The consumer may post to many queue pairs before it makes the next pass.
        self.acknowledge_due(now);
    }

    fn refuse(&mut self, request: PendingRequest) {
        let status = SidrStatus::NO_QP;
        self.reject_request(request, (Reason::NO_RESOURCES, status), &[]).ok();
    }
}

// SAFETY: each `Work` belongs to a `Link`, and the engine owns the `Link` for as long as it lives.
// Sinks are dropped with their links and listeners.
unsafe impl adapter::Engine for Engine {
    // The progress thread must run from the start, because adapters that open later request the
    // shared sockets from this adapter at any time.
    const STARTS_PROGRESS_THREAD: bool = true;
    const CAN_BE_SEVERAL: bool = true;

    fn add_qp(&mut self, sink: Sink, work: Work) -> Result<Arc<QpShared>> {
        self.links.reserve().map_err(no_memory)?;
        let number = self.number_at_creation()?;
        let index = self.links.next_index();
        let shared = Arc::new(QpShared::new(index));
        self.links.insert(Link::new((index, number), sink, Arc::clone(&shared), work));
        Ok(shared)
    }

    fn number(&mut self, qp: usize) -> Option<u32> {
        match self.datagram_links.get_mut(qp) {
            Some(link) => link.number(),
            None => self.links.get_mut(qp)?.number,
        }
    }

    fn add_datagram_qp(&mut self, sink: Sink, work: Work) -> Result<Arc<QpShared>> {
        let index = self.datagram_links.reserve()?;
        let number = self.number_at_creation()?;
        let shared = Arc::new(QpShared::new(index));
        let mut link =
            DatagramLink::new((index, number), sink, Arc::clone(&shared), work, self.mtu);
        if number.is_some() {
            for (at, local_address) in self.local_addresses.iter_mut().enumerate() {
                link.qpn_at(at, local_address);
            }
        }
        self.datagram_links.insert(link);
        Ok(shared)
    }

    fn resolve(&mut self, qp: usize, number: u64, to: &Target<'_>) -> Result<()> {
        self.start_resolution(qp, number, to)
    }

    fn prepare_answer(
        &mut self,
        qp: usize,
        request: &PendingRequest,
    ) -> Result<(DatagramEnd, PeerAddress)> {
        self.prepare_datagram_answer(qp, request)
    }

    fn answer(&mut self, request: PendingRequest, own: DatagramEnd, private: &[u8]) -> Result<u32> {
        self.answer_datagram_request(request, own, private)
    }

    fn max_qps(&self) -> usize {
        let of_addresses = self.local_addresses.iter().map(|of| of.qpns.capacity());
        of_addresses.min().unwrap_or(usize::MAX)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let mut counts = self.resources.ended_counts.clone();
        self.links.iter().for_each(|link| link.count(&mut counts));
        let mut list = counts.into_list();
        let mut counts = self.resources.ended_datagram_counts.clone();
        self.datagram_links.iter().for_each(|link| link.count(&mut counts));
        list.extend(counts.into_list());
        list.push(("packets-from-elsewhere", self.resources.foreign_packets));
        let dropped =
            |of: &LocalAddress| of.cm.unanswered() + of.sidr.dropped() + of.port.dropped();
        let dropped = self.local_addresses.iter().map(dropped);
        list.push(("packets-of-strangers-dropped", dropped.sum()));
        list
    }

    fn remove_qp(&mut self, qp: usize) {
        let now = Instant::now();
        let Engine { local_addresses, links, resources, .. } = self;
        resources.forget(qp);
        if let Some(link) = self.datagram_links.remove(qp) {
            link.close(local_addresses, &mut resources.ended_datagram_counts);
            self.cancel_resolutions(qp);
            return;
        }
        let Some(link) = links.remove(qp) else { return };
        if let Some(number) = link.number {
            local_addresses.iter_mut().for_each(|of| of.qpns.unreserve(number));
        }
        if let Some(index) = link.local_address() {
            link.close(&mut EngineContext {
                local_address: &mut local_addresses[index],
                resources,
                now,
            });
            self.process_cm_events(index, now);
        }
    }

    fn connect(&mut self, qp: usize, to: &Target<'_>) -> Result<()> {
        if to.private.len() > cm::Cm::MAX_CONNECT_PRIVATE {
            return Err(Error::InvalidArgument);
        }
        let now = Instant::now();
        let peer = to.peer;
        let (index, mtu, local_failure) = match self.route_to(peer) {
            Ok((index, mtu)) => (index, mtu, String::new()),
            Err(local_failure) => (usize::MAX, PathMtu::Octets256, local_failure.answer(peer)?),
        };
        let Engine { local_addresses, links, resources, .. } = self;
        let link = links.get_mut(qp).ok_or(Error::InvalidState)?;
        let mut from = local_addresses.get(index).map_or(peer, LocalAddress::address);
        // Choose a source port in the ephemeral range. The kernel uses this range for sockets that
        // are not bound.
        from.set_port(random() as u16 | 0xC000);
        let target = link::Target {
            to: peer,
            from,
            private: to.private.to_vec(),
            deadline: to.deadline,
            depth: to.depth,
            mtu,
            own_mtu: mtu,
        };
        match local_addresses.get_mut(index) {
            Some(local_address) => {
                link.connect(&mut EngineContext { local_address, resources, now }, index, target)
            }
            None => link.fail_connect(resources, target, local_failure),
        }
        if index < self.local_addresses.len() {
            self.process_cm_events(index, now);
        }
        Ok(())
    }

    fn accept(
        &mut self,
        qp: usize,
        request: PendingRequest,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<()> {
        if private.len() > cm::Cm::MAX_ACCEPT_PRIVATE {
            return Err(Error::InvalidArgument);
        }
        let now = Instant::now();
        let PendingRequest::Connection(ConnectionRequest { place, request }) = request else {
            return Err(Error::InvalidState);
        };
        let local_request = self.open_request(place, now);
        let Engine { local_addresses, links, resources, .. } = self;
        let link = links.get_mut(qp).ok_or(Error::InvalidState)?;
        let Some(local_request) = local_request else {
            link.fail_accept(resources);
            return Ok(());
        };
        let index = local_request.local_address;
        let local_address = &mut local_addresses[index];
        let mut cx = EngineContext { local_address, resources, now };
        link.accept(&mut cx, local_request, &request, private, depth);
        self.process_cm_events(index, now);
        Ok(())
    }

    fn establish_responder(&mut self, qp: usize, cfg: &ResponderCfg) -> Result<()> {
        let now = Instant::now();
        if self.bind.is_some() && !self.local_addresses.iter().any(|of| of.is_at(cfg.local)) {
            return Err(Error::NoSuchAddress);
        }
        let index = self.index_of(cfg.local).map_err(|error| addresses::code_of(&error))?;
        // Packets that lie unread may belong to an earlier connection of the queue pair. Read now,
        // they are dropped, because the queue pair is not connected.
        self.read_all(SocketKey::Socket(index));
        let Engine { local_addresses, links, resources, .. } = self;
        let link = links.get_mut(qp).ok_or(Error::InvalidState)?;
        let local_address = &mut local_addresses[index];
        let mut cx = EngineContext { local_address, resources, now };
        link.establish_responder(&mut cx, index, cfg)
    }

    fn establish_requester(&mut self, qp: usize, cfg: &RequesterCfg) -> Result<()> {
        let establish = |link: &mut Link, cx: Option<&mut EngineContext<'_>>| {
            link.establish_requester(cx.ok_or(Error::InvalidState)?, cfg)
        };
        self.with_link(qp, establish).unwrap_or(Err(Error::InvalidState))
    }

    fn reset(&mut self, qp: usize) -> Result<()> {
        self.with_link(qp, Link::reset).unwrap_or(Err(Error::NotSupported))?;
        self.resources.forget(qp);
        Ok(())
    }

    fn hand_over(&mut self, request: PendingRequest) -> PendingRequest {
        let now = Instant::now();
        let PendingRequest::Connection(ConnectionRequest { place, request }) = request else {
            return request;
        };
        let Some(LocalRequest { local_address: index, id, .. }) = self.open_request(place, now)
        else {
            let place = RequestLocation::Nowhere;
            return PendingRequest::Connection(ConnectionRequest { place, request });
        };
        let local_address = &mut self.local_addresses[index];
        local_address.remove_owner(id);
        let handed_over = local_address.cm.hand_over(now, id);
        let place = handed_over.map_or(RequestLocation::Nowhere, |handed_over| {
            RequestLocation::HandedOver(local_address.address(), handed_over)
        });
        self.process_cm_events(index, now);
        PendingRequest::Connection(ConnectionRequest { place, request })
    }

    fn disconnect(&mut self, qp: usize, how: Close) {
        // Datagrams that are posted need no answer of the peer, so they still leave.
        self.transmit_datagrams(qp, Instant::now());
        if let Some(link) = self.datagram_links.get_mut(qp) {
            return link.disconnect();
        }
        self.with_link(qp, |link, cx| match cx {
            Some(cx) => link.disconnect(cx, how),
            None => link.disconnect_unconnected(),
        });
    }

    fn allocated(&mut self, qp: usize) -> usize {
        match self.datagram_links.get_mut(qp) {
            Some(link) => link.allocated(),
            None => self.links.get_mut(qp).map_or(0, |link| link.allocated()),
        }
    }

    fn listen(&mut self, port: Option<u16>, backlog: usize, sink: Sink) -> Result<(usize, u16)> {
        self.open_all_addresses()?;
        match port {
            Some(port) => Ok((self.open_listener(port, backlog, sink)?, port)),
            None => {
                let tries = (0..RANDOM_PORT_TRIES).map(|_| random() as u16 | 0xC000);
                let opened = tries
                    .filter_map(|port| {
                        Some((self.open_listener(port, backlog, sink.clone()).ok()?, port))
                    })
                    .next();
                opened.ok_or(Error::PortUnavailable)
            }
        }
    }

    fn close(&mut self, index: usize) {
        let Some(listener) = self.listeners.remove(index) else { return };
        for (local_address, service) in listener.services {
            self.resources.context.unwatch(&service.local_socket);
            // Call `unlisten` before the local socket is dropped. `unlisten` may create a second
            // name for the service, and dropping the local socket removes the first name. In this
            // order one of the two names always exists.
            let Service { local_socket, closed } = service;
            self.local_addresses[local_address].unlisten(listener.port, closed);
            drop(local_socket);
        }
    }

    fn reject(&mut self, request: PendingRequest, private: &[u8]) -> Result<()> {
        self.reject_request(request, (Reason::CONSUMER, SidrStatus::REJECT), private)
    }
}

/// The number of random ports that are tried if the consumer accepts any port.
const RANDOM_PORT_TRIES: usize = 64;

impl Engine {
    /// Assigns the number that a queue pair has from its creation on, if the adapter is configured
    /// for such numbers.
    fn number_at_creation(&mut self) -> Result<Option<u32>> {
        if !self.config.numbers_at_creation {
            return Ok(None);
        }
        assign_everywhere(&mut self.local_addresses).map(Some).ok_or(Error::NoQueuePair)
    }

    fn open_listener(&mut self, port: u16, backlog: usize, sink: Sink) -> Result<usize> {
        if self.listeners.has_port(port) {
            return Err(Error::PortTaken);
        }
        let listener =
            self.listeners.insert(Listener { port, backlog, sink, services: Vec::new() });
        for local_address in 0..self.local_addresses.len() {
            if let Err(error) = self.listen_at(listener, local_address) {
                adapter::Engine::close(self, listener);
                return Err(match error.kind() {
                    io::ErrorKind::AddrInUse => Error::PortTaken,
                    _ => adapter::no_resources(error),
                });
            }
        }
        Ok(listener)
    }

    fn reject_request(
        &mut self,
        request: PendingRequest,
        (reason, status): (Reason, SidrStatus),
        private: &[u8],
    ) -> Result<()> {
        let request = match request {
            PendingRequest::Connection(request) => request,
            PendingRequest::Datagram(request) => {
                return self.refuse_datagram_request(&request, status, private);
            }
        };
        let now = Instant::now();
        // If the peer has withdrawn the request, there is nothing to reject.
        let Some(LocalRequest { local_address: index, id, .. }) =
            self.open_request(request.place, now)
        else {
            return Ok(());
        };
        let local_address = &mut self.local_addresses[index];
        local_address.remove_owner(id);
        let result = local_address.cm.reject(now, id, reason, private);
        self.process_cm_events(index, now);
        result.map_err(|_| Error::InvalidArgument)
    }

    /// Finds a request that the consumer answers. Adopts it if another engine has handed it over.
    /// Returns `None` if the request no longer waits for an answer.
    fn open_request(&mut self, place: RequestLocation, now: Instant) -> Option<LocalRequest> {
        let (address, handed_over) = match place {
            RequestLocation::Here(request) => {
                let local_address = &self.local_addresses[request.local_address];
                return local_address.has_request(request).then_some(request);
            }
            RequestLocation::HandedOver(address, handed_over) => (address, handed_over),
            RequestLocation::Nowhere => return None,
        };
        // If this engine cannot open the address, the request is dropped. The peer repeats it, and
        // the repetition is a new request.
        let index = self.index_of(address).ok()?;
        let local_address = &mut self.local_addresses[index];
        let Some(id) = local_address.cm.adopt(handed_over) else {
            self.process_cm_events(index, now);
            return None;
        };
        let serial = self.listeners.next_serial();
        local_address.set_owner(id, Owner::Request(serial));
        Some(LocalRequest { local_address: index, id, serial })
    }
}
