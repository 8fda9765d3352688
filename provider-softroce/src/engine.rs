//! Everything that touches sockets, under the engine lock: addresses in use, connections, service points, timers.

mod kit;
mod receive;

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

pub(crate) use self::kit::{Key, Kit};
use self::receive::{dest_qpn, manage, take_in};
use crate::MAX_READ_DEPTH;
use crate::calls::{Calls, Door, RequestId};
use crate::link::{Link, Target, Tools, deadline};
use crate::params::Params;
use crate::port::{Desk, LESS_PATIENCE, Letter, MORE_PATIENCE, PortError, slot_of};
use crate::route::Route;
use crate::scout::{Answer, Scout};
use crate::socket::{Habits, RxBatch};
use crate::station::{GSI, Neighbour, Owner, Station, random};

/// Reads of one socket before others get their turn.
const BURST: usize = 16;
/// The same for a door that is flooded. With eight datagrams each, these read about as many as its
/// buffer holds.
const FLOOD_BURST: usize = 32;
/// Fruitful looks in a row after which a station's socket leaves the poller, whose wake-ups are work for nobody.
const ZEAL: u32 = 64;
/// Passes after which the poller is asked, fruitful or not: new calls come that way, however busy the connections are.
const ASK_EVERY: u32 = 256;
/// Fruitless passes of a consumer that polls without a break, after which the clock is looked at: that takes
/// as long as a tenth of a look at a socket.
const CLOCK_EVERY: u32 = 8;
/// Who takes longer over these has other things to do, and the clock is looked at each time.
const WITHOUT_A_BREAK: Duration = Duration::from_micros(40);

/// The engine.
pub struct Engine {
    kit: Kit,
    stations: Vec<Station>,
    links: Table<Link>,
    calls: Calls,
    /// Letters from other adapters are read to it.
    desk: Desk,
    rx: RxBatch,
    /// Stations with more to be read, where a burst has ended.
    unread: Vec<Key>,
    /// The last look found something, and did not look whether that was all.
    found: bool,
    /// See [`adapter::Engine::take_partial`].
    partial: bool,
    /// Passes of polling consumers.
    passes: u32,
    /// When the engine last went on, and whether it is to at each pass.
    went_on: Instant,
    is_slow: bool,
    params: Params,
    guid: u64,
}

impl Engine {
    /// Uses the one address that is asked for, or all of the host.
    pub(crate) fn new(
        context: Context<Engine>,
        params: Params,
    ) -> std::result::Result<Self, OpenError> {
        let mut engine = Engine {
            kit: Kit::new(context),
            stations: Vec::new(),
            links: Table::new(),
            calls: Calls::default(),
            desk: Desk::default(),
            rx: RxBatch::new(),
            unread: Vec::new(),
            found: false,
            partial: false,
            passes: 0,
            went_on: Instant::now(),
            is_slow: false,
            guid: random() | 1,
            params,
        };
        engine.open_stations()?;
        Ok(engine)
    }

    fn open_stations(&mut self) -> std::result::Result<(), OpenError> {
        if let Some(address) = self.params.adapter.bind {
            return self.open_station(address, MORE_PATIENCE).map(drop).map_err(no_port);
        }
        let own = self.params.adapter.address;
        self.open_station(own, MORE_PATIENCE).map_err(no_port)?;
        let all = netdev::addresses().unwrap_or_default();
        for found in all.iter().filter(|found| found.up && found.addr.ip() != own.ip()) {
            match self.open_station(found.addr, MORE_PATIENCE) {
                // An address that cannot be used yet, or any more, or is one too many.
                Ok(_) | Err(PortError::System(..) | PortError::Descriptors(..)) => {}
                Err(error) => return Err(no_port(error)),
            }
        }
        Ok(())
    }

    fn open_station(
        &mut self,
        address: SocketAddr,
        patience: Duration,
    ) -> std::result::Result<usize, PortError> {
        let capture = self.kit.context.capture().cloned();
        let station = Station::open((address, patience), self.guid, &self.params, capture)?;
        let index = self.stations.len();
        let system = |error| PortError::System(address.ip(), error);
        let readable = Interest::READABLE;
        let Kit { context, .. } = &self.kit;
        context.watch(Key::Socket(index), &station.port.socket, readable).map_err(system)?;
        context.watch(Key::Door(index), &station.port.door, readable).map_err(system)?;
        context.watch(Key::Mailbox(index), &station.port.mailbox, readable).map_err(system)?;
        context.watch(Key::Life(index), &station.port.life.listener, readable).map_err(system)?;
        if let Some(scout) = &station.scout {
            context.watch(Key::Scout(index), scout, readable).map_err(system)?;
        }
        self.stations.push(station);
        // Who listened before listens here, too. Where another adapter does, this one does not.
        for door in self.calls.all() {
            self.listen_at(door, index).ok();
        }
        Ok(index)
    }

    /// Makes a service point known at an address.
    fn listen_at(&mut self, index: usize, station: usize) -> io::Result<()> {
        let Engine { calls, stations, kit, .. } = self;
        let Some(door) = calls.door(index) else { return Ok(()) };
        let service = stations[station].port.listen(ServiceId::tcp(door.port).0)?;
        kit.context.watch(
            Key::Service { door: index, station },
            &service.mailbox,
            Interest::READABLE,
        )?;
        stations[station]
            .cm
            .listen(door.port, door.backlog)
            .map_err(|_| io::ErrorKind::AddrInUse)?;
        door.services.push((station, service));
        Ok(())
    }

    /// The way to a peer: a station, and what fits into packets.
    fn way_to(&mut self, peer: SocketAddr) -> std::result::Result<(usize, PathMtu), LocalFailure> {
        let route =
            Route::to(peer, self.params.adapter.bind).map_err(|error| LocalFailure::of(&error))?;
        let index = self.stations.iter().position(|s| s.address().ip() == route.source.ip());
        let index = match index {
            Some(index) => index,
            None => self.open_station(route.source, LESS_PATIENCE).map_err(local_failure)?,
        };
        Ok((index, route.mtu.min(self.params.mtu)))
    }
}

/// What comes in.
impl Engine {
    /// All sockets are in the poller again.
    fn assemble(&mut self) {
        for (index, station) in self.stations.iter_mut().enumerate() {
            if std::mem::take(&mut station.is_absent) {
                // It was there before, so that there is room for it.
                let key = Key::Socket(index);
                self.kit.context.resume(key, &station.port.socket, Interest::READABLE).ok();
            }
        }
    }

    /// Whether there is more to do in a pass than to look at sockets.
    #[inline]
    fn is_in_a_hurry(&mut self) -> bool {
        let Engine { kit, links, unread, .. } = self;
        // What came in the last pass has had its answer by now, if the consumer gave one.
        kit.owing
            .iter()
            .any(|&link| links.get_mut(link).is_some_and(|link| !link.consumer_has_sent()))
            || !(unread.is_empty() && kit.again.is_empty() && kit.failing.is_empty())
    }

    /// Reads a socket, once; false: nothing was there.
    #[inline]
    fn read(&mut self, key: Key, now: impl FnOnce() -> Instant) -> bool {
        let (station, is_door) = match key {
            Key::Door(station) => (station, true),
            Key::Socket(station) => (station, false),
            _ => return false,
        };
        let Engine { stations, links, kit, calls, rx, .. } = self;
        let Some(place) = stations.get_mut(station) else { return false };
        let found = match is_door {
            false => place.port.socket.receive(rx, &mut place.habits),
            true => place.port.door.receive(rx, &mut Habits::of_shared_socket()),
        };
        if !found {
            return false;
        }
        let now = now();
        for datagrams in (0..rx.len()).filter_map(|n| rx.get(n)) {
            take_in(&mut Tools { station: place, kit, now }, links, calls, &datagrams);
        }
        self.settle(station, now);
        true
    }

    /// Reads the door after the poller has reported it.
    fn read_door(&mut self, index: usize, now: Instant) {
        let key = Key::Door(index);
        let emptied = (0..BURST).any(|_| !self.read(key, || now));
        let Engine { stations, kit, .. } = self;
        let Some(Station { door_pacing, port, .. }) = stations.get_mut(index) else { return };
        if door_pacing.report(emptied, now) {
            // A door that stays in the poller because this fails is read both ways.
            kit.context.suspend(&port.door).ok();
            door_pacing.begin(now);
        }
    }

    /// Reads a door that is not in the poller.
    fn read_flooded_door(&mut self, index: usize, now: Instant) {
        let (mut found, key) = (0, Key::Door(index));
        for _ in 0..FLOOD_BURST {
            if !self.read(key, || now) {
                break;
            }
            found += self.rx.len();
        }
        let Engine { stations, kit, .. } = self;
        let Station { door_pacing, port, .. } = &mut stations[index];
        // The connections get the interval for themselves, however long the reads took.
        if door_pacing.after_read(found, Instant::now())
            && kit.context.rename(key, &port.door, Interest::READABLE).is_ok()
        {
            door_pacing.end();
        }
    }

    /// Reads a socket until it is empty, or others shall have their turn.
    fn read_all(&mut self, key: Key, now: Instant) {
        for _ in 0..BURST {
            if !self.read(key, || now) {
                return;
            }
        }
        if !self.unread.contains(&key) {
            self.unread.push(key);
        }
    }

    /// Does what follows from what came.
    #[inline]
    fn settle(&mut self, index: usize, now: Instant) {
        let Engine { stations, links, kit, .. } = self;
        let station = &mut stations[index];
        while let Some(link) = kit.touched.pop() {
            if let Some(link) = links.get_mut(link) {
                link.after_receive(&mut Tools { station, kit, now });
                self.partial = link.is_mid_message();
            }
        }
        self.settle_messages(index, now);
    }

    /// Tells whom it concerns what the connection manager has to say, and sends its messages.
    fn settle_messages(&mut self, index: usize, now: Instant) {
        let Engine { stations, links, kit, calls, .. } = self;
        let station = &mut stations[index];
        while let Some((id, event)) = station.cm.poll_event() {
            let owner = station.owners.get(&id).copied();
            let tools = &mut Tools { station, kit, now };
            match (event, owner) {
                (cm::Event::Request(request), _) => calls.pass_on(tools, index, id, request),
                (cm::Event::Released { qpn }, _) => {
                    tools.station.qpns.release(qpn);
                    tools.station.owners.remove(&id);
                }
                (_, Some(Owner::Call(call))) => {
                    // The consumer learns of it when it answers.
                    calls.take(call);
                    tools.station.owners.remove(&id);
                }
                (event, Some(Owner::Link(link))) => {
                    if let Some(link) = links.get_mut(link) {
                        link.on_cm_event(tools, id, event);
                    }
                }
                (_, None) => {}
            }
        }
        station.send_messages(&mut kit.burst, now);
    }

    /// Reads letters of other adapters.
    fn read_letters(&mut self, key: Key, now: Instant) {
        let mut desk = std::mem::take(&mut self.desk);
        let station = loop {
            let Engine { stations, calls, .. } = self;
            let (station, mailbox) = match key {
                Key::Mailbox(station) => (station, stations.get(station).map(|s| &s.port.mailbox)),
                Key::Service { door, station } => {
                    let services = calls.door(door).map_or(&[][..], |door| &door.services);
                    (
                        station,
                        services.iter().find(|(at, _)| *at == station).map(|(_, s)| &s.mailbox),
                    )
                }
                _ => return,
            };
            let letter = mailbox.and_then(|mailbox| mailbox.next(&mut desk).ok().flatten());
            match letter {
                None => break station,
                Some(Letter::Hello(newcomer)) => stations[station].port.welcome(&newcomer),
                Some(Letter::Packet { from, packet: octets }) => {
                    let Some((qpn, packet)) = dest_qpn(octets).zip(Packet::parse(octets).ok())
                    else {
                        continue;
                    };
                    let Engine { stations, links, kit, .. } = self;
                    let station = &mut stations[station];
                    let link = station.qpns.find(qpn).and_then(|link| links.get_mut(link));
                    match link {
                        Some(link) => match link.peer(from, qpn) {
                            Some(_) => {
                                link.receive(&mut Tools { station, kit, now }, from, &packet)
                            }
                            None => kit.foreign += 1,
                        },
                        None if qpn == GSI => manage(station, from, &packet, now),
                        _ => {}
                    }
                }
            }
        };
        self.desk = desk;
        if station < self.stations.len() {
            self.settle(station, now);
        }
    }

    /// Hosts have answered that nobody has the port there, or that they live.
    fn read_answers_of_hosts(&mut self, index: usize, now: Instant) {
        let Engine { stations, links, kit, .. } = self;
        let Some(station) = stations.get_mut(index) else { return };
        let answers = station.scout.as_ref().map_or(Vec::new(), Scout::answers);
        for answer in answers {
            let refusal = match answer {
                Answer::Refused(refusal) => refusal,
                Answer::Lives(host, word) => {
                    station.hosts.has_answered(host, word, now);
                    continue;
                }
            };
            let link = match station.owners.get(&refusal.id) {
                Some(&Owner::Link(link)) => links.get_mut(link),
                _ => None,
            };
            match link.filter(|link| link.conn() == Some(refusal.id)) {
                Some(link) if link.matches_refusal(&refusal) => {
                    link.on_port_refused(&mut Tools { station, kit, now });
                }
                Some(_) => {}
                // It has no queue pair any more, and its end is still said.
                None => station.cm.unreachable(now, refusal.id),
            }
        }
        self.settle_messages(index, now);
    }

    /// Calls `f` with a queue pair and the station of its connection, if it has one, and sends the messages
    /// that come of it.
    fn with_link<R>(
        &mut self,
        qp: usize,
        f: impl FnOnce(&mut Link, Option<&mut Tools<'_>>) -> R,
    ) -> Option<R> {
        let now = Instant::now();
        let Engine { stations, links, kit, .. } = self;
        let link = links.get_mut(qp)?;
        let index = link.station();
        let station = index.and_then(|station| stations.get_mut(station));
        let result = match station {
            Some(station) => f(link, Some(&mut Tools { station, kit, now })),
            None => f(link, None),
        };
        if let Some(index) = index {
            self.settle_messages(index, now);
        }
        Some(result)
    }
}

/// Why no packet can leave for a peer.
fn local_failure(error: PortError) -> LocalFailure {
    let why = error.to_string();
    match error {
        PortError::Full(_) | PortError::Descriptors(..) | PortError::NoLocalPort(_) => {
            LocalFailure::Exhausted(why)
        }
        _ => LocalFailure::Lasting(why),
    }
}

fn no_port(error: PortError) -> OpenError {
    let code = match error {
        PortError::System(..) => Error::of(DAT_INVALID_ADDRESS),
        _ => Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE),
    };
    OpenError::new(code, error.to_string())
}

// SAFETY: `Work` goes to a `Link`, which is in the engine as long as it lives; sinks go with links and service points.
unsafe impl adapter::Engine for Engine {
    const NAME: &'static str = "softroce";
    // Newcomers ask for the vault.
    const STARTS_PROGRESS_THREAD: bool = true;
    type RequestId = RequestId;

    fn poll(&mut self) -> Progress {
        self.passes = self.passes.wrapping_add(1);
        let is_time = self.passes.is_multiple_of(CLOCK_EVERY) || self.is_slow;
        let goes_on = is_time || self.found || self.is_in_a_hurry();
        if goes_on {
            let before = self.went_on;
            adapter::Engine::advance(self);
            self.is_slow = self.went_on.saturating_duration_since(before) > WITHOUT_A_BREAK;
        }
        let mut moved = false;
        for index in 0..self.stations.len() {
            if !self.stations[index].qpns.any() || !self.read(Key::Socket(index), Instant::now) {
                continue;
            }
            moved = true;
            let Engine { stations, kit, .. } = self;
            let station = &mut stations[index];
            station.good_looks += 1;
            if station.good_looks.is_multiple_of(ZEAL)
                && !station.is_absent
                && !kit.context.has_sleeper()
            {
                station.is_absent = kit.context.suspend(&station.port.socket).is_ok();
            }
        }
        self.found = moved;
        match moved {
            _ if self.passes.is_multiple_of(ASK_EVERY) => Progress::AskPoller,
            true => Progress::Moved,
            false if goes_on => Progress::Nothing,
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
            Key::Door(station) => self.read_door(station, now),
            Key::Mailbox(_) | Key::Service { .. } => self.read_letters(key, now),
            Key::Life(station) => self.admit(station),
            Key::Guest { station, guest } => {
                let left = self.stations.get_mut(station).and_then(|s| s.port.life.leave(guest));
                left.iter().for_each(|guest| self.kit.context.unwatch(guest));
                self.admit(station);
            }
            Key::Lifeline { station, number } => self.neighbour_is_gone(station, number, now),
            Key::Scout(station) => self.read_answers_of_hosts(station, now),
        }
    }

    fn advance(&mut self) {
        let now = Instant::now();
        self.went_on = now;
        if self.kit.context.has_sleeper() {
            self.assemble();
        }
        while let Some(link) = self.kit.failing.pop() {
            self.with_link(link, |link, tools| link.report_failure(tools));
        }
        for at in (0..self.kit.owing.len()).rev() {
            let link = self.kit.owing[at];
            if self.links.get_mut(link).is_some_and(|link| link.can_delay_ack(now)) {
                continue;
            }
            self.kit.owing.swap_remove(at);
            self.with_link(link, |link, tools| link.acknowledge(tools));
        }
        // Each once: whoever has still more to send is behind them by then.
        for _ in 0..self.kit.again.len() {
            let link = self.kit.again.remove(0);
            self.with_link(link, |link, tools| {
                tools.into_iter().for_each(|tools| link.resume_transmit(tools))
            });
        }
        for _ in 0..self.unread.len() {
            let key = self.unread.remove(0);
            self.read_all(key, now);
        }
        for index in 0..self.stations.len() {
            if self.stations[index].door_pacing.is_due(now) {
                self.read_flooded_door(index, now);
            }
            let station = &mut self.stations[index];
            station.line.go_on(now);
            station.port.go_on(now);
            if station.cm.deadline().is_some_and(|at| at <= now) {
                station.cm.expire(now);
                self.settle_messages(index, now);
            }
        }
        // What has not been read yet may be what they wait for. Were they all to send again first, a thousand
        // of them would keep both sides from reading until their retries are used up.
        let behind = std::mem::take(&mut self.found) || !self.unread.is_empty();
        for _ in 0..if behind { 1 } else { usize::MAX } {
            let Some(link) = self.kit.wheel.pop(now) else { break };
            self.with_link(link, |link, tools| {
                tools.into_iter().for_each(|tools| link.expire(tools))
            });
        }
    }

    fn remaining(&mut self) -> Remaining {
        let Engine { kit, links, stations, unread, .. } = self;
        let more = !(kit.again.is_empty() && kit.failing.is_empty() && unread.is_empty());
        let deadlines = stations.iter().filter_map(Station::deadline).chain(kit.wheel.deadline());
        let acknowledgements =
            kit.owing.iter().filter_map(|&link| links.get_mut(link)?.ack_deadline());
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
        let mut counts = self.kit.past.clone();
        self.links.iter().for_each(|link| link.count(&mut counts));
        let mut list = counts.into_list();
        list.push(("packets-from-elsewhere", self.kit.foreign));
        let passed_over = self.stations.iter().map(|of| of.cm.unanswered() + of.port.dropped());
        list.push(("packets-of-strangers-dropped", passed_over.sum()));
        list
    }

    fn remove_qp(&mut self, qp: usize) {
        let now = Instant::now();
        let Engine { stations, links, kit, .. } = self;
        kit.forget(qp);
        let Some(link) = links.remove(qp) else { return };
        if let Some(index) = link.station() {
            link.close(&mut Tools { station: &mut stations[index], kit, now });
            self.settle_messages(index, now);
        }
    }

    #[inline]
    fn transmit(&mut self, qp: usize) {
        let Engine { stations, links, kit, .. } = self;
        let Some(link) = links.get_mut(qp) else { return };
        match link.station().and_then(|station| stations.get_mut(station)) {
            Some(station) => link.transmit(&mut Tools { station, kit, now: Instant::now() }),
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
        let (index, mtu, local_failure) = match self.way_to(peer) {
            Ok((index, mtu)) => (index, mtu, String::new()),
            Err(local_failure) => (usize::MAX, PathMtu::Octets256, local_failure.answer(peer)?),
        };
        let Engine { stations, links, kit, .. } = self;
        let link = links.get_mut(qp).ok_or(Error::of(DAT_INVALID_STATE))?;
        let mut from = stations.get(index).map_or(peer, Station::address);
        // As from a socket that nobody bound.
        from.set_port(random() as u16 | 0xC000);
        let target = Target {
            to: peer,
            from,
            private: to.private.to_vec(),
            deadline: deadline(now, to.timeout),
            depth: within_limits(to.depth),
            mtu,
        };
        match stations.get_mut(index) {
            Some(station) => link.connect(&mut Tools { station, kit, now }, index, target),
            None => link.fail_connect(kit, target, local_failure),
        }
        if index < self.stations.len() {
            self.settle_messages(index, now);
        }
        Ok(())
    }

    fn accept(
        &mut self,
        qp: usize,
        call: RequestId,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<()> {
        if private.len() > cm::Cm::MAX_ACCEPT_PRIVATE {
            return Err(Error::of(DAT_INVALID_PARAMETER));
        }
        let now = Instant::now();
        let Engine { stations, links, kit, calls, .. } = self;
        let link = links.get_mut(qp).ok_or(Error::of(DAT_INVALID_STATE))?;
        let Some(request) = calls.take(call) else {
            link.fail_accept(kit);
            return Ok(());
        };
        let mut tools = Tools { station: &mut stations[call.station], kit, now };
        link.accept(&mut tools, (call.station, call.id), &request, private, within_limits(depth));
        self.settle_messages(call.station, now);
        Ok(())
    }

    fn disconnect(&mut self, qp: usize, how: Close) {
        self.with_link(qp, |link, tools| match tools {
            Some(tools) => link.disconnect(tools, how),
            None => link.disconnect_unconnected(),
        });
    }

    fn allocated(&mut self, qp: usize) -> Allocated {
        let buffers = self.links.get_mut(qp).map_or(0, |link| link.allocated());
        // Messages are taken in order.
        Allocated { buffers, span: buffers }
    }

    fn listen(&mut self, port: Port, backlog: usize, sink: Sink) -> Result<(usize, u16)> {
        match port {
            Port::Qualifier(qualifier) => {
                let port = adapter::port(qualifier);
                Ok((self.open_door(port, backlog, sink)?, port))
            }
            Port::Any => {
                let tries = (0..TRIES).map(|_| random() as u16 | 0xC000);
                let opened = tries
                    .filter_map(|port| Some((self.open_door(port, backlog, sink).ok()?, port)))
                    .next();
                opened.ok_or(Error::of(DAT_CONN_QUAL_UNAVAILABLE))
            }
        }
    }

    fn close(&mut self, listener: usize) {
        let Some(door) = self.calls.close(listener) else { return };
        for (station, service) in door.services {
            self.kit.context.unwatch(&service.mailbox);
            self.stations[station].cm.unlisten(door.port);
        }
    }

    fn reject(&mut self, call: RequestId, private: &[u8]) -> Result<()> {
        self.turn_down(call, Reason::CONSUMER, private)
    }

    fn refuse(&mut self, call: RequestId) {
        self.turn_down(call, Reason::NO_RESOURCES, &[]).ok();
    }
}

/// Ports that are tried where any will do.
const TRIES: usize = 64;

impl Engine {
    fn open_door(&mut self, port: u16, backlog: usize, sink: Sink) -> Result<usize> {
        if self.calls.has(port) {
            return Err(Error::of(DAT_CONN_QUAL_IN_USE));
        }
        let door = self.calls.open(Door { port, backlog, sink, services: Vec::new() });
        for station in 0..self.stations.len() {
            if let Err(error) = self.listen_at(door, station) {
                adapter::Engine::close(self, door);
                return Err(match error.kind() {
                    io::ErrorKind::AddrInUse => Error::of(DAT_CONN_QUAL_IN_USE),
                    _ => adapter::no_resources(error),
                });
            }
        }
        Ok(door)
    }

    fn turn_down(&mut self, call: RequestId, reason: Reason, private: &[u8]) -> Result<()> {
        // Gone already: so much the better.
        if self.calls.take(call).is_none() {
            return Ok(());
        }
        let now = Instant::now();
        let station = &mut self.stations[call.station];
        station.owners.remove(&call.id);
        let result = station.cm.reject(now, call.id, reason, private);
        self.settle_messages(call.station, now);
        result.map_err(|_| Error::of(DAT_INVALID_PARAMETER))
    }

    /// Peers on this host want to see when this adapter ends.
    fn admit(&mut self, station: usize) {
        let Engine { stations, kit, .. } = self;
        let Some(at) = stations.get_mut(station) else { return };
        at.port.life.admit(|guest, socket| {
            kit.context.watch(Key::Guest { station, guest }, socket, Interest::READABLE)
        });
    }

    /// An adapter of this host has ended, without a word if it was killed: after what it had sent
    /// before, as far as that is read in one go.
    fn neighbour_is_gone(&mut self, index: usize, number: usize, now: Instant) {
        self.read_all(Key::Socket(index), now);
        let Engine { stations, links, kit, .. } = self;
        let Some(station) = stations.get_mut(index) else { return };
        let Some(Neighbour { address, slot, line }) = station.neighbours.remove(number) else {
            return;
        };
        kit.context.unwatch(&line);
        let all: Vec<usize> = links.indices().collect();
        for link in all {
            if let Some(link) = links.get_mut(link)
                && link.station() == Some(index)
                && link.is_connected_to(address, slot)
            {
                link.on_peer_gone(&mut Tools { station, kit, now });
            }
        }
        // Nor does it answer to the ends of connections that have no queue pair here any more.
        station.cm.peers_are_gone(now, |ip, id| ip == address && slot_of(id.0) == slot);
        self.settle_messages(index, now);
    }
}

impl Engine {
    /// Stays until peers have answered to the ends of connections, as long as an abrupt end waits for that:
    /// nobody will say again later what is lost, and a peer with nothing to send would wait for ever.
    fn part(&mut self) {
        loop {
            adapter::Engine::advance(self);
            let now = Instant::now();
            let until = self.stations.iter().filter_map(|station| station.cm.parting_until()).max();
            let Some(until) = until.filter(|&until| until > now) else { return };
            let Remaining { at_once, deadline } = adapter::Engine::remaining(self);
            let next =
                if at_once { now } else { deadline.map_or(until, |deadline| deadline.min(until)) };
            let limit = Timespec::try_from(next.saturating_duration_since(now)).unwrap_or_default();
            let (mut keys, mut fds) = (Vec::new(), Vec::new());
            for (station, at) in self.stations.iter().enumerate() {
                keys.push(Key::Socket(station));
                fds.push(PollFd::new(&at.port.socket, PollFlags::IN));
                for (number, neighbour) in at.neighbours.indices().zip(at.neighbours.iter()) {
                    keys.push(Key::Lifeline { station, number });
                    fds.push(PollFd::new(&neighbour.line, PollFlags::IN));
                }
            }
            // One that fails has waited, or is interrupted: what is due is done either way.
            rustix::event::poll(&mut fds, Some(&limit)).ok();
            let seen = keys.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
            let seen: Vec<Key> = seen.map(|(key, _)| key).collect();
            let now = Instant::now();
            for key in seen {
                match key {
                    Key::Lifeline { station, number } => {
                        self.neighbour_is_gone(station, number, now)
                    }
                    key => self.read_all(key, now),
                }
            }
        }
    }
}

impl Drop for Engine {
    /// What is still in the emulated network arrives.
    fn drop(&mut self) {
        self.part();
        for station in &mut self.stations {
            station.line.flush();
        }
    }
}

fn within_limits(depth: ReadDepth) -> ReadDepth {
    ReadDepth {
        incoming: depth.incoming.min(MAX_READ_DEPTH),
        outgoing: depth.outgoing.min(MAX_READ_DEPTH),
    }
}

/// What upcalls of an engine go to.
pub(crate) type Sink = adapter::Sink<Engine>;
/// What upcalls of an engine say.
pub(crate) type Upcall<'a> = adapter::Upcall<'a, Engine>;
