//! The engine of an adapter, which consists of all objects that touch sockets: local addresses,
//! connections, listeners and timers. The engine lock protects it.

mod receive;
mod resources;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adapter::{Context, LocalFailure, Progress, Remaining, Shared, Table, netdev, no_memory};
use dat_core::provider::{Allocated, Close, Connect, Port, ReadDepth};
use dat_core::{Error, OpenError, Result};
use dat_sys::*;
use mio::Interest;
use mio::event::Event;
use rnic::Work;
use rnic::cm;
use rustix::event::{PollFd, PollFlags, Timespec};
use wire::cm::{Reason, ServiceId};
use wire::rocev2::{Packet, PathMtu};

use self::receive::{dest_qpn, receive_cm, receive_datagrams};
pub(crate) use self::resources::{EngineResources, Key};
use crate::MAX_READ_DEPTH;
use crate::host_probe::{Answer, HostProbe};
use crate::link::{EngineContext, Link, Target, deadline};
use crate::listeners::{Listener, Listeners, RequestId};
use crate::local_address::{GSI, LocalAddress, LocalPeer, Owner, random};
use crate::params::Params;
use crate::port::{
    LocalMessage, OPEN_TIMEOUT, OPEN_TIMEOUT_CONNECTING, PortError, ReceiveBuffer, slot_of,
};
use crate::route::Route;
use crate::socket::{ReceiveStrategy, RxBatch};

/// The number of reads of one socket before other sockets have their turn.
const READS_PER_TURN: usize = 16;
/// The number of reads of a flooded strangers' socket before other sockets have their turn. At
/// eight datagrams each, these reads return about as many datagrams as the socket's buffer holds.
const READS_PER_FLOODED_TURN: usize = 32;
/// After this number of reads that find packets, a slot's socket leaves the poller. Consumers poll
/// the socket anyway, so the poller's wake-ups would only cost time.
const READS_BEFORE_SUSPEND: u32 = 64;
/// After this number of passes, the poller is checked even if packets keep arriving, because the
/// poller reports new connection requests.
const PASSES_PER_POLLER_CHECK: u32 = 256;
/// After this number of passes without packets, a consumer that polls without a pause reads the
/// clock. Reading the clock takes a tenth of the time of reading a socket.
const PASSES_PER_CLOCK_READ: u32 = 8;
/// If that number of passes takes longer than this time, the consumer does other work between
/// polls. Then each pass reads the clock.
const BUSY_POLL_INTERVAL_MAX: Duration = Duration::from_micros(40);

/// The engine of one adapter.
pub struct Engine {
    resources: EngineResources,
    local_addresses: Vec<LocalAddress>,
    links: Table<Link>,
    listeners: Listeners,
    /// The buffer into which messages from other adapters are read.
    receive_buffer: ReceiveBuffer,
    rx: RxBatch,
    /// The sockets that may have more to read because their last turn ended before they were empty.
    unread: Vec<Key>,
    /// Whether the last poll found packets. It did not check whether there are more packets.
    found_packets: bool,
    /// The result of [`adapter::Engine::take_partial`].
    partial: bool,
    /// The number of passes that consumers have made by polling.
    passes: u32,
    /// The time at which `advance` last ran.
    last_advance: Instant,
    /// Whether the consumer polls so rarely that each pass runs `advance`.
    polls_rarely: bool,
    params: Params,
    guid: u64,
}

impl Engine {
    /// Opens the address that the parameters specify, or all addresses of the host.
    pub(crate) fn new(
        context: Context<Engine>,
        params: Params,
    ) -> std::result::Result<Self, OpenError> {
        let mut engine = Engine {
            resources: EngineResources::new(context),
            local_addresses: Vec::new(),
            links: Table::new(),
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
            params,
        };
        engine.open_local_addresses()?;
        Ok(engine)
    }

    fn open_local_addresses(&mut self) -> std::result::Result<(), OpenError> {
        if let Some(address) = self.params.adapter.bind {
            return self.open_local_address(address, OPEN_TIMEOUT).map(drop).map_err(open_error);
        }
        let own = self.params.adapter.address;
        self.open_local_address(own, OPEN_TIMEOUT).map_err(open_error)?;
        let all = netdev::addresses().unwrap_or_default();
        for found in all.iter().filter(|found| found.up && found.addr.ip() != own.ip()) {
            match self.open_local_address(found.addr, OPEN_TIMEOUT) {
                // The address cannot be used yet, cannot be used any more, or the limit of
                // descriptors is reached. The adapter works without that address.
                Ok(_) | Err(PortError::System(..) | PortError::Descriptors(..)) => {}
                Err(error) => return Err(open_error(error)),
            }
        }
        Ok(())
    }

    fn open_local_address(
        &mut self,
        address: SocketAddr,
        timeout: Duration,
    ) -> std::result::Result<usize, PortError> {
        let capture = self.resources.context.capture().cloned();
        let local_address =
            LocalAddress::open((address, timeout), self.guid, &self.params, capture)?;
        let index = self.local_addresses.len();
        let system = |error| PortError::System(address.ip(), error);
        let readable = Interest::READABLE;
        let EngineResources { context, .. } = &self.resources;
        context.watch(Key::Socket(index), &local_address.port.socket, readable).map_err(system)?;
        context
            .watch(Key::StrangersSocket(index), &local_address.port.strangers_socket, readable)
            .map_err(system)?;
        context
            .watch(Key::LocalSocket(index), &local_address.port.local_socket, readable)
            .map_err(system)?;
        context
            .watch(Key::LivenessListener(index), &local_address.port.liveness.listener, readable)
            .map_err(system)?;
        if let Some(host_probe) = &local_address.host_probe {
            context.watch(Key::HostProbe(index), host_probe, readable).map_err(system)?;
        }
        self.local_addresses.push(local_address);
        // Existing listeners also listen at the new address. A listener whose service another
        // adapter already has at this address does not.
        for listener in self.listeners.indices() {
            self.listen_at(listener, index).ok();
        }
        Ok(index)
    }

    /// Registers a listener at a local address.
    fn listen_at(&mut self, index: usize, local_address: usize) -> io::Result<()> {
        let Engine { listeners, local_addresses, resources, .. } = self;
        let Some(listener) = listeners.get_mut(index) else { return Ok(()) };
        let service =
            local_addresses[local_address].port.listen(ServiceId::tcp(listener.port).0)?;
        resources.context.watch(
            Key::Service { listener: index, local_address },
            &service.local_socket,
            Interest::READABLE,
        )?;
        local_addresses[local_address]
            .cm
            .listen(listener.port, listener.backlog)
            .map_err(|_| io::ErrorKind::AddrInUse)?;
        listener.services.push((local_address, service));
        Ok(())
    }

    /// Returns the local address that leads to a peer and the path MTU. Opens the address if
    /// necessary.
    fn route_to(
        &mut self,
        peer: SocketAddr,
    ) -> std::result::Result<(usize, PathMtu), LocalFailure> {
        let route =
            Route::to(peer, self.params.adapter.bind).map_err(|error| LocalFailure::of(&error))?;
        let index = self.local_addresses.iter().position(|s| s.address().ip() == route.source.ip());
        let index = match index {
            Some(index) => index,
            None => self
                .open_local_address(route.source, OPEN_TIMEOUT_CONNECTING)
                .map_err(local_failure)?,
        };
        Ok((index, route.mtu.min(self.params.mtu)))
    }
}

/// The receiving part of the engine.
impl Engine {
    /// Puts all sockets that have left the poller back into it.
    fn resume_sockets(&mut self) {
        for (index, local_address) in self.local_addresses.iter_mut().enumerate() {
            if std::mem::take(&mut local_address.is_suspended) {
                // The socket was registered before, so there is room for it.
                let key = Key::Socket(index);
                self.resources
                    .context
                    .resume(key, &local_address.port.socket, Interest::READABLE)
                    .ok();
            }
        }
    }

    /// Whether a pass must run `advance` before it reads sockets.
    #[inline]
    fn has_pending_work(&mut self) -> bool {
        let Engine { resources, links, unread, .. } = self;
        // The consumer has had time to answer the packets of the last pass. If it has not answered,
        // the acknowledgements of these packets are due.
        resources
            .ack_pending
            .iter()
            .any(|&link| links.get_mut(link).is_some_and(|link| !link.consumer_has_sent()))
            || !(unread.is_empty()
                && resources.transmit_pending.is_empty()
                && resources.failed.is_empty())
    }

    /// Reads a socket once. Returns whether it found a packet.
    #[inline]
    fn read(&mut self, key: Key, now: impl FnOnce() -> Instant) -> bool {
        let (index, is_strangers) = match key {
            Key::StrangersSocket(index) => (index, true),
            Key::Socket(index) => (index, false),
            _ => return false,
        };
        let Engine { local_addresses, links, resources, listeners, rx, .. } = self;
        let Some(local_address) = local_addresses.get_mut(index) else { return false };
        let found = match is_strangers {
            false => local_address.port.socket.receive(rx, &mut local_address.receive_strategy),
            true => local_address
                .port
                .strangers_socket
                .receive(rx, &mut ReceiveStrategy::for_shared_socket()),
        };
        if !found {
            return false;
        }
        let now = now();
        for datagrams in (0..rx.len()).filter_map(|n| rx.get(n)) {
            receive_datagrams(
                &mut EngineContext { local_address, resources, now },
                links,
                listeners,
                &datagrams,
            );
        }
        self.finish_read(index, now);
        true
    }

    /// Reads the strangers' socket after the poller has reported it.
    fn read_strangers_socket(&mut self, index: usize, now: Instant) {
        let key = Key::StrangersSocket(index);
        let emptied = (0..READS_PER_TURN).any(|_| !self.read(key, || now));
        let Engine { local_addresses, resources, .. } = self;
        let Some(LocalAddress { strangers_pacing, port, .. }) = local_addresses.get_mut(index)
        else {
            return;
        };
        if strangers_pacing.report(emptied, now) {
            // If suspending the socket fails, it stays in the poller and is read in both ways.
            resources.context.suspend(&port.strangers_socket).ok();
            strangers_pacing.begin(now);
        }
    }

    /// Reads a strangers' socket that is not in the poller.
    fn read_flooded_strangers_socket(&mut self, index: usize, now: Instant) {
        let (mut found, key) = (0, Key::StrangersSocket(index));
        for _ in 0..READS_PER_FLOODED_TURN {
            if !self.read(key, || now) {
                break;
            }
            found += self.rx.len();
        }
        let Engine { local_addresses, resources, .. } = self;
        let LocalAddress { strangers_pacing, port, .. } = &mut local_addresses[index];
        // The next read follows one interval after the end of this read, so that connections get
        // the full interval.
        if strangers_pacing.after_read(found, Instant::now())
            && resources.context.rename(key, &port.strangers_socket, Interest::READABLE).is_ok()
        {
            strangers_pacing.end();
        }
    }

    /// Reads a socket until it is empty or its turn ends.
    fn read_all(&mut self, key: Key, now: Instant) {
        for _ in 0..READS_PER_TURN {
            if !self.read(key, || now) {
                return;
            }
        }
        if !self.unread.contains(&key) {
            self.unread.push(key);
        }
    }

    /// Finishes a read: lets each queue pair that received packets respond, then handles the events
    /// of the connection manager.
    #[inline]
    fn finish_read(&mut self, index: usize, now: Instant) {
        let Engine { local_addresses, links, resources, .. } = self;
        let local_address = &mut local_addresses[index];
        while let Some(link) = resources.received.pop() {
            if let Some(link) = links.get_mut(link) {
                link.after_receive(&mut EngineContext { local_address, resources, now });
                self.partial = link.is_mid_message();
            }
        }
        self.process_cm_events(index, now);
    }

    /// Delivers the events of the connection manager to their owners and sends its messages.
    fn process_cm_events(&mut self, index: usize, now: Instant) {
        let Engine { local_addresses, links, resources, listeners, .. } = self;
        let local_address = &mut local_addresses[index];
        while let Some((id, event)) = local_address.cm.poll_event() {
            let owner = local_address.owners.get(&id).copied();
            let cx = &mut EngineContext { local_address, resources, now };
            match (event, owner) {
                (cm::Event::Request(request), _) => {
                    listeners.deliver_request(cx, index, id, request)
                }
                (cm::Event::Released { qpn }, _) => {
                    cx.local_address.qpns.release(qpn);
                    cx.local_address.owners.remove(&id);
                }
                (_, Some(Owner::Request(request_id))) => {
                    // The consumer learns that the request no longer exists when it answers the
                    // request.
                    listeners.take_request(request_id);
                    cx.local_address.owners.remove(&id);
                }
                (event, Some(Owner::Link(link))) => {
                    if let Some(link) = links.get_mut(link) {
                        link.on_cm_event(cx, id, event);
                    }
                }
                (_, None) => {}
            }
        }
        local_address.send_messages(&mut resources.burst, now);
    }

    /// Reads messages of other adapters.
    fn read_local_messages(&mut self, key: Key, now: Instant) {
        let mut receive_buffer = std::mem::take(&mut self.receive_buffer);
        let local_address = loop {
            let Engine { local_addresses, listeners, .. } = self;
            let (local_address, local_socket) = match key {
                Key::LocalSocket(local_address) => (
                    local_address,
                    local_addresses.get(local_address).map(|s| &s.port.local_socket),
                ),
                Key::Service { listener, local_address } => {
                    let services =
                        listeners.get_mut(listener).map_or(&[][..], |listener| &listener.services);
                    (
                        local_address,
                        services
                            .iter()
                            .find(|(at, _)| *at == local_address)
                            .map(|(_, s)| &s.local_socket),
                    )
                }
                _ => return,
            };
            let message = local_socket
                .and_then(|local_socket| local_socket.receive(&mut receive_buffer).ok().flatten());
            match message {
                None => break local_address,
                Some(LocalMessage::SocketRequest(request)) => {
                    local_addresses[local_address].port.send_shared_sockets(&request)
                }
                Some(LocalMessage::Packet { from, packet: octets }) => {
                    let Some((qpn, packet)) = dest_qpn(octets).zip(Packet::parse(octets).ok())
                    else {
                        continue;
                    };
                    let Engine { local_addresses, links, resources, .. } = self;
                    let local_address = &mut local_addresses[local_address];
                    let link = local_address.qpns.find(qpn).and_then(|link| links.get_mut(link));
                    match link {
                        Some(link) => match link.peer(from, qpn) {
                            Some(_) => link.receive(
                                &mut EngineContext { local_address, resources, now },
                                from,
                                &packet,
                            ),
                            None => resources.foreign_packets += 1,
                        },
                        None if qpn == GSI => receive_cm(local_address, from, &packet, now),
                        _ => {}
                    }
                }
            }
        };
        self.receive_buffer = receive_buffer;
        if local_address < self.local_addresses.len() {
            self.finish_read(local_address, now);
        }
    }

    /// Reads the answers of hosts: that no process has the port, or that the host is up.
    fn read_host_answers(&mut self, index: usize, now: Instant) {
        let Engine { local_addresses, links, resources, .. } = self;
        let Some(local_address) = local_addresses.get_mut(index) else { return };
        let answers = local_address.host_probe.as_ref().map_or(Vec::new(), HostProbe::answers);
        for answer in answers {
            let refusal = match answer {
                Answer::Refused(refusal) => refusal,
                Answer::HostUp(host, nonce) => {
                    local_address.hosts.note_answer(host, nonce, now);
                    continue;
                }
            };
            let link = match local_address.owners.get(&refusal.id) {
                Some(&Owner::Link(link)) => links.get_mut(link),
                _ => None,
            };
            match link.filter(|link| link.conn() == Some(refusal.id)) {
                Some(link) if link.matches_refusal(&refusal) => {
                    link.on_port_refused(&mut EngineContext { local_address, resources, now });
                }
                Some(_) => {}
                // The connection has no queue pair any more, but its DREQ may still wait for an
                // answer.
                None => local_address.cm.unreachable(now, refusal.id),
            }
        }
        self.process_cm_events(index, now);
    }

    /// Calls `f` with a queue pair and, if it has a connection, the context of its local address.
    /// Then handles the events of the connection manager and sends its messages.
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

/// Converts the reason for which no packet can be sent to a peer.
fn local_failure(error: PortError) -> LocalFailure {
    let why = error.to_string();
    match error {
        PortError::Full(_) | PortError::Descriptors(..) | PortError::NoLocalPort(_) => {
            LocalFailure::Exhausted(why)
        }
        _ => LocalFailure::Lasting(why),
    }
}

fn open_error(error: PortError) -> OpenError {
    let code = match error {
        PortError::System(..) => Error::of(DAT_INVALID_ADDRESS),
        _ => Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE),
    };
    OpenError::new(code, error.to_string())
}

// SAFETY: each `Work` belongs to a `Link`, and the engine owns the `Link` for as long as it lives.
// Sinks are dropped with their links and listeners.
unsafe impl adapter::Engine for Engine {
    const NAME: &'static str = "softroce";
    // Adapters that open later request the shared sockets from this one at any time.
    const STARTS_PROGRESS_THREAD: bool = true;
    type RequestId = RequestId;

    fn poll(&mut self) -> Progress {
        self.passes = self.passes.wrapping_add(1);
        let is_clock_due = self.passes.is_multiple_of(PASSES_PER_CLOCK_READ) || self.polls_rarely;
        let advances = is_clock_due || self.found_packets || self.has_pending_work();
        if advances {
            let before = self.last_advance;
            adapter::Engine::advance(self);
            self.polls_rarely =
                self.last_advance.saturating_duration_since(before) > BUSY_POLL_INTERVAL_MAX;
        }
        let mut moved = false;
        for index in 0..self.local_addresses.len() {
            if !self.local_addresses[index].qpns.any()
                || !self.read(Key::Socket(index), Instant::now)
            {
                continue;
            }
            moved = true;
            let Engine { local_addresses, resources, .. } = self;
            let local_address = &mut local_addresses[index];
            local_address.successful_reads += 1;
            if local_address.successful_reads.is_multiple_of(READS_BEFORE_SUSPEND)
                && !local_address.is_suspended
                && !resources.context.has_sleeper()
            {
                local_address.is_suspended =
                    resources.context.suspend(&local_address.port.socket).is_ok();
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
        let (key, now) = (Key::from(event.token()), Instant::now());
        match key {
            Key::Socket(_) => self.read_all(key, now),
            Key::StrangersSocket(local_address) => self.read_strangers_socket(local_address, now),
            Key::LocalSocket(_) | Key::Service { .. } => self.read_local_messages(key, now),
            Key::LivenessListener(local_address) => self.accept_liveness_connections(local_address),
            Key::LivenessWatcher { local_address, watcher } => {
                let removed = self
                    .local_addresses
                    .get_mut(local_address)
                    .and_then(|s| s.port.liveness.remove(watcher));
                removed.iter().for_each(|watcher| self.resources.context.unwatch(watcher));
                self.accept_liveness_connections(local_address);
            }
            Key::LivenessConnection { local_address, number } => {
                self.on_local_peer_ended(local_address, number, now)
            }
            Key::HostProbe(local_address) => self.read_host_answers(local_address, now),
        }
    }

    fn advance(&mut self) {
        let now = Instant::now();
        self.last_advance = now;
        if self.resources.context.has_sleeper() {
            self.resume_sockets();
        }
        while let Some(link) = self.resources.failed.pop() {
            self.with_link(link, |link, cx| link.report_failure(cx));
        }
        for at in (0..self.resources.ack_pending.len()).rev() {
            let link = self.resources.ack_pending[at];
            if self.links.get_mut(link).is_some_and(|link| link.can_delay_ack(now)) {
                continue;
            }
            self.resources.ack_pending.swap_remove(at);
            self.with_link(link, |link, cx| link.acknowledge(cx));
        }
        // Each queue pair gets one turn. A queue pair that has more to send is appended to the
        // list.
        for _ in 0..self.resources.transmit_pending.len() {
            let link = self.resources.transmit_pending.remove(0);
            self.with_link(link, |link, cx| cx.into_iter().for_each(|cx| link.resume_transmit(cx)));
        }
        for _ in 0..self.unread.len() {
            let key = self.unread.remove(0);
            self.read_all(key, now);
        }
        for index in 0..self.local_addresses.len() {
            if self.local_addresses[index].strangers_pacing.is_due(now) {
                self.read_flooded_strangers_socket(index, now);
            }
            let local_address = &mut self.local_addresses[index];
            local_address.packet_io.send_due(now);
            local_address.port.retry_sends(now);
            if local_address.cm.deadline().is_some_and(|at| at <= now) {
                local_address.cm.expire(now);
                local_address.remove_closed_services();
                self.process_cm_events(index, now);
            }
        }
        // The timers may be waiting for acknowledgements that have arrived but have not been read.
        // If a thousand queue pairs retransmitted before reading, neither side would read in time,
        // and their retries would be used up.
        let behind = std::mem::take(&mut self.found_packets) || !self.unread.is_empty();
        for _ in 0..if behind { 1 } else { usize::MAX } {
            let Some(link) = self.resources.wheel.pop(now) else { break };
            self.with_link(link, |link, cx| cx.into_iter().for_each(|cx| link.expire(cx)));
        }
    }

    fn remaining(&mut self) -> Remaining {
        let Engine { resources, links, local_addresses, unread, .. } = self;
        let more = !(resources.transmit_pending.is_empty()
            && resources.failed.is_empty()
            && unread.is_empty());
        let deadlines = local_addresses
            .iter()
            .filter_map(LocalAddress::deadline)
            .chain(resources.wheel.deadline());
        let acknowledgements =
            resources.ack_pending.iter().filter_map(|&link| links.get_mut(link)?.ack_deadline());
        Remaining { at_once: more, deadline: deadlines.chain(acknowledgements).min() }
    }

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
        list.push(("packets-from-elsewhere", self.resources.foreign_packets));
        let dropped = self.local_addresses.iter().map(|of| of.cm.unanswered() + of.port.dropped());
        list.push(("packets-of-strangers-dropped", dropped.sum()));
        list
    }

    fn remove_qp(&mut self, qp: usize) {
        let now = Instant::now();
        let Engine { local_addresses, links, resources, .. } = self;
        resources.forget(qp);
        let Some(link) = links.remove(qp) else { return };
        if let Some(index) = link.local_address() {
            link.close(&mut EngineContext {
                local_address: &mut local_addresses[index],
                resources,
                now,
            });
            self.process_cm_events(index, now);
        }
    }

    #[inline]
    fn transmit(&mut self, qp: usize) {
        let Engine { local_addresses, links, resources, .. } = self;
        let Some(link) = links.get_mut(qp) else { return };
        match link.local_address().and_then(|local_address| local_addresses.get_mut(local_address))
        {
            Some(local_address) => {
                link.transmit(&mut EngineContext { local_address, resources, now: Instant::now() })
            }
            None => link.flush_ended(),
        }
    }

    fn connect(&mut self, qp: usize, to: &Connect<'_>) -> Result<()> {
        if to.private.len() > cm::Cm::MAX_CONNECT_PRIVATE {
            return Err(Error::of(DAT_INVALID_PARAMETER));
        }
        let now = Instant::now();
        let mut peer = to.addr;
        peer.set_port(adapter::port(to.port));
        let (index, mtu, local_failure) = match self.route_to(peer) {
            Ok((index, mtu)) => (index, mtu, String::new()),
            Err(local_failure) => (usize::MAX, PathMtu::Octets256, local_failure.answer(peer)?),
        };
        let Engine { local_addresses, links, resources, .. } = self;
        let link = links.get_mut(qp).ok_or(Error::of(DAT_INVALID_STATE))?;
        let mut from = local_addresses.get(index).map_or(peer, LocalAddress::address);
        // The port is in the ephemeral range, like that of a socket that has not been bound.
        from.set_port(random() as u16 | 0xC000);
        let target = Target {
            to: peer,
            from,
            private: to.private.to_vec(),
            deadline: deadline(now, to.timeout),
            depth: within_limits(to.depth),
            mtu,
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
        request_id: RequestId,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<()> {
        if private.len() > cm::Cm::MAX_ACCEPT_PRIVATE {
            return Err(Error::of(DAT_INVALID_PARAMETER));
        }
        let now = Instant::now();
        let Engine { local_addresses, links, resources, listeners, .. } = self;
        let link = links.get_mut(qp).ok_or(Error::of(DAT_INVALID_STATE))?;
        let Some(request) = listeners.take_request(request_id) else {
            link.fail_accept(resources);
            return Ok(());
        };
        let mut cx = EngineContext {
            local_address: &mut local_addresses[request_id.local_address],
            resources,
            now,
        };
        link.accept(
            &mut cx,
            (request_id.local_address, request_id.id),
            &request,
            private,
            within_limits(depth),
        );
        self.process_cm_events(request_id.local_address, now);
        Ok(())
    }

    fn disconnect(&mut self, qp: usize, how: Close) {
        self.with_link(qp, |link, cx| match cx {
            Some(cx) => link.disconnect(cx, how),
            None => link.disconnect_unconnected(),
        });
    }

    fn allocated(&mut self, qp: usize) -> Allocated {
        let buffers = self.links.get_mut(qp).map_or(0, |link| link.allocated());
        // Messages complete receives in order.
        Allocated { buffers, span: buffers }
    }

    fn listen(&mut self, port: Port, backlog: usize, sink: Sink) -> Result<(usize, u16)> {
        match port {
            Port::Qualifier(qualifier) => {
                let port = adapter::port(qualifier);
                Ok((self.open_listener(port, backlog, sink)?, port))
            }
            Port::Any => {
                let tries = (0..RANDOM_PORT_TRIES).map(|_| random() as u16 | 0xC000);
                let opened = tries
                    .filter_map(|port| Some((self.open_listener(port, backlog, sink).ok()?, port)))
                    .next();
                opened.ok_or(Error::of(DAT_CONN_QUAL_UNAVAILABLE))
            }
        }
    }

    fn close(&mut self, index: usize) {
        let Some(listener) = self.listeners.remove(index) else { return };
        for (local_address, service) in listener.services {
            self.resources.context.unwatch(&service.local_socket);
            // The service's name goes last, so that one of its two names always exists.
            self.local_addresses[local_address].unlisten(listener.port);
            drop(service);
        }
    }

    fn reject(&mut self, request_id: RequestId, private: &[u8]) -> Result<()> {
        self.reject_request(request_id, Reason::CONSUMER, private)
    }

    fn refuse(&mut self, request_id: RequestId) {
        self.reject_request(request_id, Reason::NO_RESOURCES, &[]).ok();
    }
}

/// The number of random ports that are tried if the consumer accepts any port.
const RANDOM_PORT_TRIES: usize = 64;

impl Engine {
    fn open_listener(&mut self, port: u16, backlog: usize, sink: Sink) -> Result<usize> {
        if self.listeners.has_port(port) {
            return Err(Error::of(DAT_CONN_QUAL_IN_USE));
        }
        let listener =
            self.listeners.insert(Listener { port, backlog, sink, services: Vec::new() });
        for local_address in 0..self.local_addresses.len() {
            if let Err(error) = self.listen_at(listener, local_address) {
                adapter::Engine::close(self, listener);
                return Err(match error.kind() {
                    io::ErrorKind::AddrInUse => Error::of(DAT_CONN_QUAL_IN_USE),
                    _ => adapter::no_resources(error),
                });
            }
        }
        Ok(listener)
    }

    fn reject_request(
        &mut self,
        request_id: RequestId,
        reason: Reason,
        private: &[u8],
    ) -> Result<()> {
        // The peer has withdrawn the request, so there is nothing to reject.
        if self.listeners.take_request(request_id).is_none() {
            return Ok(());
        }
        let now = Instant::now();
        let local_address = &mut self.local_addresses[request_id.local_address];
        local_address.owners.remove(&request_id.id);
        let result = local_address.cm.reject(now, request_id.id, reason, private);
        self.process_cm_events(request_id.local_address, now);
        result.map_err(|_| Error::of(DAT_INVALID_PARAMETER))
    }

    /// Accepts the connections by which peers on this host notice when this adapter's process ends.
    fn accept_liveness_connections(&mut self, local_address: usize) {
        let Engine { local_addresses, resources, .. } = self;
        let Some(at) = local_addresses.get_mut(local_address) else { return };
        at.port.liveness.accept(|watcher, socket| {
            resources.context.watch(
                Key::LivenessWatcher { local_address, watcher },
                socket,
                Interest::READABLE,
            )
        });
    }

    /// Handles the end of an adapter on this host, which has sent no DREQ if it was killed. First
    /// handles the packets that it sent before, as far as one turn of reading finds them.
    fn on_local_peer_ended(&mut self, index: usize, number: usize, now: Instant) {
        self.read_all(Key::Socket(index), now);
        let Engine { local_addresses, links, resources, .. } = self;
        let Some(local_address) = local_addresses.get_mut(index) else { return };
        let Some(LocalPeer { address, slot, liveness }) = local_address.local_peers.remove(number)
        else {
            return;
        };
        resources.context.unwatch(&liveness);
        let all: Vec<usize> = links.indices().collect();
        for link in all {
            if let Some(link) = links.get_mut(link)
                && link.local_address() == Some(index)
                && link.is_connected_to(address, slot)
            {
                link.on_peer_gone(&mut EngineContext { local_address, resources, now });
            }
        }
        // The adapter that ended does not answer the DREQs of connections without a queue pair
        // either.
        local_address.cm.peers_are_gone(now, |ip, id| ip == address && slot_of(id.0) == slot);
        self.process_cm_events(index, now);
    }
}

impl Engine {
    /// Waits until peers have answered the DREQs of abrupt disconnects, up to their deadline. After
    /// the end of this process, no process would repeat a lost DREQ, and a peer with nothing to
    /// send would wait forever.
    fn await_disconnects(&mut self) {
        loop {
            adapter::Engine::advance(self);
            let now = Instant::now();
            let until = self
                .local_addresses
                .iter()
                .filter_map(|local_address| local_address.cm.parting_until())
                .max();
            let Some(until) = until.filter(|&until| until > now) else { return };
            let Remaining { at_once, deadline } = adapter::Engine::remaining(self);
            let next =
                if at_once { now } else { deadline.map_or(until, |deadline| deadline.min(until)) };
            let limit = Timespec::try_from(next.saturating_duration_since(now)).unwrap_or_default();
            let (mut keys, mut fds) = (Vec::new(), Vec::new());
            for (local_address, at) in self.local_addresses.iter().enumerate() {
                keys.push(Key::Socket(local_address));
                fds.push(PollFd::new(&at.port.socket, PollFlags::IN));
                for (number, local_peer) in at.local_peers.indices().zip(at.local_peers.iter()) {
                    keys.push(Key::LivenessConnection { local_address, number });
                    fds.push(PollFd::new(&local_peer.liveness, PollFlags::IN));
                }
            }
            // If the poll fails, a signal has interrupted it. In any case the loop continues with
            // the work that is due.
            rustix::event::poll(&mut fds, Some(&limit)).ok();
            let seen = keys.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
            let seen: Vec<Key> = seen.map(|(key, _)| key).collect();
            let now = Instant::now();
            for key in seen {
                match key {
                    Key::LivenessConnection { local_address, number } => {
                        self.on_local_peer_ended(local_address, number, now)
                    }
                    key => self.read_all(key, now),
                }
            }
        }
    }
}

impl Drop for Engine {
    /// Waits for disconnects, then delivers the packets that are still in the emulated network.
    fn drop(&mut self) {
        self.await_disconnects();
        for local_address in &mut self.local_addresses {
            local_address.packet_io.flush();
        }
    }
}

fn within_limits(depth: ReadDepth) -> ReadDepth {
    ReadDepth {
        incoming: depth.incoming.min(MAX_READ_DEPTH),
        outgoing: depth.outgoing.min(MAX_READ_DEPTH),
    }
}

/// The receiver of an engine's upcalls.
pub(crate) type Sink = adapter::Sink<Engine>;
/// An upcall of an engine.
pub(crate) type Upcall<'a> = adapter::Upcall<'a, Engine>;
