//! Everything that touches sockets, under the engine lock: connections, service points, timers.

mod kit;

use std::sync::Arc;
use std::time::Instant;

use adapter::{Context, Progress, Remaining, Shared, Table, no_memory, no_resources};
use dat_core::provider::{Allocated, Close, Connect, Port, ReadDepth};
use dat_core::{Error, Result};
use dat_sys::DAT_INVALID_STATE;
use mio::event::Event;
use rnic::Work;
use rnic::rdmap::setup::MAX_READ_DEPTH;

pub(crate) use self::kit::{Key, Kit, Timer};
use crate::call::{Calls, RequestId};
use crate::linger::Lingerers;
use crate::link::{Link, Target};
use crate::params::Params;
use crate::socket;

/// Connections that are looked at in each pass of a polling consumer, without asking the poller.
const HOT: usize = 8;
/// Fruitless looks at a hot connection after which the poller shall tell of it, if there are others.
const PATIENCE: u32 = 256;
/// Fruitful looks in a row after which a hot connection leaves the poller: its wake-ups are work for nobody, and take
/// part of a microsecond from each message.
const ZEAL: u32 = 64;
/// Fruitless passes after which the poller is asked, although all connections are hot: new calls come that way.
const ASK_EVERY: u32 = 256;

/// The engine.
pub struct Engine {
    kit: Kit,
    links: Table<Link>,
    calls: Calls,
    lingerers: Lingerers,
    /// Recently active connections, the most recent first.
    hot: Vec<usize>,
    /// Of these, the ones that have left the poller. They are back in it before anybody sleeps there.
    absent: Vec<usize>,
    /// Fruitless passes of polling consumers in a row.
    fruitless: u32,
    /// See [`adapter::Engine::take_partial`].
    partial: bool,
}

impl Engine {
    pub(crate) fn new(context: Context<Engine>, params: Params) -> Self {
        Engine {
            kit: Kit::new(context, params),
            links: Table::new(),
            calls: Calls::default(),
            lingerers: Lingerers::default(),
            hot: Vec::with_capacity(HOT + 1),
            absent: Vec::new(),
            fruitless: 0,
            partial: false,
        }
    }

    fn ready(&mut self, index: usize, event: &Event) {
        let Some(link) = self.links.get_mut(index) else { return };
        if event.is_writable() || event.is_error() {
            link.writable(&mut self.kit, &mut self.lingerers);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            (link.idle_looks, link.good_looks) = (0, 0);
            // The end of the stream is reported once: a read that gives less than asked must not stop before it.
            let until_end = event.is_read_closed() || event.is_error();
            if until_end {
                link.peer_has_ended();
            }
            link.receive_until(&mut self.kit, &mut self.lingerers, until_end);
            self.partial = link.is_mid_message();
        }
        self.heat(index);
    }

    /// Puts a connection first among the hot ones.
    fn heat(&mut self, index: usize) {
        if self.hot.first() == Some(&index) {
            return;
        }
        self.hot.retain(|&i| i != index);
        self.hot.insert(0, index);
        if self.hot.len() > HOT {
            self.hot.truncate(HOT);
            self.assemble();
        }
    }

    /// All connections are back in the poller.
    fn assemble(&mut self) {
        while let Some(index) = self.absent.pop() {
            if let Some(link) = self.links.get_mut(index) {
                link.enter_poller(&mut self.kit, &mut self.lingerers);
            }
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(key) = self.kit.next_due(now) {
            match key {
                Key::Link(index) => {
                    if let Some(link) = self.links.get_mut(index) {
                        link.timer = Timer::default();
                        link.expire(&mut self.kit, &mut self.lingerers, now);
                    }
                }
                Key::Door(index) => {
                    self.calls.reopen_door(&mut self.kit, &mut self.lingerers, index)
                }
                Key::Caller(index) => self.calls.give_up_caller(&mut self.kit, index),
                Key::Lingerer(index) => self.lingerers.expire(&mut self.kit, index),
            }
        }
    }
}

// SAFETY: `Work` goes to a `Link`, which is in the engine as long as it lives; sinks go with links and service points.
unsafe impl adapter::Engine for Engine {
    const NAME: &'static str = "tcp-emu";
    type RequestId = RequestId;

    #[inline]
    fn poll(&mut self) -> Progress {
        self.advance();
        let (mut moved, mut blocked, mut stale) = (false, false, false);
        for i in 0..self.hot.len() {
            let Some(link) = self.hot.get(i).and_then(|&i| self.links.get_mut(i)) else { continue };
            match link.receive(&mut self.kit, &mut self.lingerers) {
                false => link.idle_looks += 1,
                true => {
                    moved = true;
                    self.partial = link.is_mid_message();
                    link.idle_looks = 0;
                    link.good_looks += 1;
                    if link.good_looks.is_multiple_of(ZEAL)
                        && !self.kit.context.has_sleeper()
                        && link.leave_poller(&self.kit)
                    {
                        self.absent.push(self.hot[i]);
                    }
                }
            }
            blocked |= link.is_blocked();
            stale |= !link.is_up() || link.idle_looks > PATIENCE;
        }
        self.fruitless = if moved { 0 } else { self.fruitless.wrapping_add(1) };
        if stale && self.links.len() > 1 {
            let links = &mut self.links;
            self.hot.retain(|&i| {
                links.get_mut(i).is_some_and(|l| l.is_up() && l.idle_looks <= PATIENCE)
            });
            self.assemble();
        }
        let cold = self.links.len() > self.hot.len();
        match blocked
            || self.has_closed()
            || (!moved && (cold || self.fruitless.is_multiple_of(ASK_EVERY)))
        {
            true => Progress::AskPoller,
            false if moved => Progress::Moved,
            false => Progress::Nothing,
        }
    }

    #[inline]
    fn take_partial(&mut self) -> bool {
        std::mem::take(&mut self.partial)
    }

    fn on_event(&mut self, event: &Event) {
        match Key::from(event.token()) {
            Key::Link(index) => self.ready(index, event),
            Key::Door(index) => self.calls.answer_door(&mut self.kit, &mut self.lingerers, index),
            Key::Caller(index) => self.calls.hear_caller(&mut self.kit, &mut self.lingerers, index),
            Key::Lingerer(index) => self.lingerers.readable(&mut self.kit, index),
        }
    }

    #[inline]
    fn advance(&mut self) {
        if !self.absent.is_empty() && self.kit.context.has_sleeper() {
            self.assemble();
        }
        // Each once: whoever has still more to do is behind them by then.
        for _ in 0..self.kit.again.len() {
            if let Some(link) =
                self.kit.again.pop_front().and_then(|index| self.links.get_mut(index))
            {
                link.go_on(&mut self.kit, &mut self.lingerers);
            }
        }
        if self.kit.alarm().is_some() {
            self.expire();
        }
    }

    fn remaining(&mut self) -> Remaining {
        Remaining {
            at_once: !self.kit.again.is_empty() || self.has_closed(),
            deadline: self.kit.alarm(),
        }
    }

    fn has_closed(&self) -> bool {
        !self.kit.over.is_empty()
    }

    fn take_closed(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.kit.over)
    }

    fn finish_closed(&mut self, over: Vec<usize>) {
        for index in over {
            if let Some(link) = self.links.get_mut(index) {
                link.end_if_over(&mut self.kit, &mut self.lingerers);
            }
        }
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
        counts.into_list()
    }

    fn remove_qp(&mut self, qp: usize) {
        self.hot.retain(|&i| i != qp);
        self.kit.again.retain(|&i| i != qp);
        if let Some(link) = self.links.remove(qp) {
            link.close(&mut self.kit, &mut self.lingerers);
        }
    }

    fn transmit(&mut self, qp: usize) {
        let Some(link) = self.links.get_mut(qp) else { return };
        link.transmit(&mut self.kit, &mut self.lingerers);
        if link.is_stalled() {
            link.receive_until(&mut self.kit, &mut self.lingerers, true);
        }
        if self.hot.len() < HOT && !self.hot.contains(&qp) {
            self.heat(qp);
        }
    }

    fn connect(&mut self, qp: usize, to: &Connect<'_>) -> Result<()> {
        let mut addr = to.addr;
        addr.set_port(adapter::port(to.port));
        let depth = within_limits(to.depth);
        let target = Target { to: addr, private: to.private, timeout: to.timeout, depth };
        self.links.get_mut(qp).ok_or(Error::of(DAT_INVALID_STATE))?.dial(&mut self.kit, &target)
    }

    fn accept(
        &mut self,
        qp: usize,
        call: RequestId,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<()> {
        let link = self.links.get_mut(qp).ok_or(Error::of(DAT_INVALID_STATE))?;
        match self.calls.take(&mut self.kit, call) {
            Some(caller) => link.answer(&mut self.kit, caller, private, within_limits(depth)),
            None => {
                link.answer_nobody(&mut self.kit);
                Ok(())
            }
        }
    }

    fn disconnect(&mut self, qp: usize, how: Close) {
        if let Some(link) = self.links.get_mut(qp) {
            link.disconnect(&mut self.kit, &mut self.lingerers, how);
        }
    }

    fn allocated(&mut self, qp: usize) -> Allocated {
        let buffers = self.links.get_mut(qp).map_or(0, |link| link.allocated());
        // TCP delivers messages in order.
        Allocated { buffers, span: buffers }
    }

    fn listen(&mut self, port: Port, backlog: usize, sink: Sink) -> Result<(usize, u16)> {
        let socket = socket::listen(self.kit.params.adapter.bind, port)?;
        let address = socket.local_addr().ok().and_then(|a| a.as_socket());
        let port = address.map_or(0, |address| address.port());
        let index = self.calls.open(&mut self.kit, socket, backlog, sink).map_err(no_resources)?;
        Ok((index, port))
    }

    fn close(&mut self, listener: usize) {
        self.calls.close(&mut self.kit, listener);
    }

    fn reject(&mut self, call: RequestId, private: &[u8]) -> Result<()> {
        self.calls.reject(&mut self.kit, &mut self.lingerers, call, private)
    }

    fn refuse(&mut self, call: RequestId) {
        self.calls.refuse(&mut self.kit, call);
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
