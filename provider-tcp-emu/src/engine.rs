//! Everything that touches sockets, under one lease: connections, service points, timers.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Instant;

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rnic::{RxVec, TxVec};
use socket2::Socket;
use std::os::fd::AsRawFd;

use crate::board::{Board, Mail};
use crate::call::Calls;
use crate::drive::Drive;
use crate::lease::Serve;
use crate::linger::Lingerers;
use crate::link::{Link, Progress};
use crate::params::Params;
use crate::table::Table;
use crate::transport::Tcp;

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
pub(crate) struct Engine {
    pub(crate) kit: Kit,
    pub(crate) links: Table<Link>,
    pub(crate) calls: Calls,
    pub(crate) lingerers: Lingerers,
    /// Recently active connections, the most recent first.
    hot: Vec<usize>,
    /// Of these, the ones that have left the poller. They are back in it before anybody sleeps there.
    absent: Vec<usize>,
    /// Fruitless passes of polling consumers in a row.
    fruitless: u32,
    /// Marked queue pairs, while they are dealt with; kept for its memory.
    marked: Vec<usize>,
    /// Mail, while it is read; likewise.
    mail: Mail,
}

/// What the parts of the engine use in common.
pub(crate) struct Kit {
    pub(crate) drive: Weak<Drive>,
    pub(crate) board: Arc<Board>,
    pub(crate) params: Arc<Params>,
    registry: Registry,
    timers: BTreeSet<(Instant, Key)>,
    /// Connections that could go on at once: the next pass does.
    pub(crate) again: VecDeque<usize>,
    /// Connections whose end has been seen: they end when the poller has been asked what else there is.
    pub(crate) over: Vec<usize>,
    pub(crate) tx: TxVec,
    pub(crate) rx: RxVec,
}

/// Names an object of the engine to timers and poller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// A queue pair.
    Link(usize),
    /// A service point.
    Door(usize),
    /// A caller that no queue pair has been given to.
    Caller(usize),
    /// A socket that waits for its peer to close, too.
    Lingerer(usize),
}

impl Key {
    /// The poller's waker has the one token that is no key's.
    pub(crate) const WAKER: Token = Token(usize::MAX);

    fn token(self) -> Token {
        Token(match self {
            Key::Link(index) => index << 2,
            Key::Door(index) => index << 2 | 1,
            Key::Caller(index) => index << 2 | 2,
            Key::Lingerer(index) => index << 2 | 3,
        })
    }

    fn of(token: Token) -> Option<Self> {
        let index = token.0 >> 2;
        match token {
            Key::WAKER => None,
            Token(n) => Some([Key::Link, Key::Door, Key::Caller, Key::Lingerer][n & 3](index)),
        }
    }
}

/// What came of a consumer's pass.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Something moved.
    Fruitful,
    /// Nothing did.
    Fruitless,
    /// The poller may know of something that the pass did not look at.
    Ask,
}

/// One timer of an object.
#[derive(Debug, Default)]
pub(crate) struct Timer(Option<Instant>);

impl Kit {
    /// Sets or stops an object's timer.
    pub(crate) fn set_timer(&mut self, key: Key, timer: &mut Timer, at: Option<Instant>) {
        if timer.0 == at {
            return;
        }
        if let Some(old) = std::mem::replace(&mut timer.0, at) {
            self.timers.remove(&(old, key));
        }
        if let Some(at) = at {
            self.timers.insert((at, key));
        }
    }

    /// The poller reports a socket from now on, edge triggered; what is there already, at once.
    pub(crate) fn watch(&self, key: Key, socket: &Socket, interest: Interest) -> std::io::Result<()> {
        self.registry.register(&mut SourceFd(&socket.as_raw_fd()), key.token(), interest)?;
        self.board.sockets_changed(1);
        Ok(())
    }

    /// The poller reports a watched socket by another name, and what is there already at once.
    pub(crate) fn rename(&self, key: Key, socket: &Socket, interest: Interest) -> std::io::Result<()> {
        match self.registry.reregister(&mut SourceFd(&socket.as_raw_fd()), key.token(), interest) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => self.resume(key, socket, interest),
            result => result,
        }
    }

    /// The poller reports a watched socket no more, until `resume` or `rename`.
    pub(crate) fn suspend(&self, socket: &Socket) -> std::io::Result<()> {
        self.registry.deregister(&mut SourceFd(&socket.as_raw_fd()))
    }

    /// The poller reports a suspended socket again, and what is there already at once.
    pub(crate) fn resume(&self, key: Key, socket: &Socket, interest: Interest) -> std::io::Result<()> {
        self.registry.register(&mut SourceFd(&socket.as_raw_fd()), key.token(), interest)
    }

    /// The poller forgets a watched socket, which is about to be closed.
    pub(crate) fn unwatch(&self, socket: &Socket) {
        // Fails only for one that is suspended.
        self.registry.deregister(&mut SourceFd(&socket.as_raw_fd())).ok();
        self.board.sockets_changed(-1);
    }
}

impl Engine {
    pub(crate) fn new(
        drive: Weak<Drive>,
        board: Arc<Board>,
        params: Arc<Params>,
        registry: Registry,
    ) -> Self {
        let kit = Kit {
            drive,
            board,
            params,
            registry,
            timers: BTreeSet::new(),
            again: VecDeque::new(),
            over: Vec::new(),
            tx: TxVec::new(),
            rx: RxVec::new(),
        };
        Engine {
            kit,
            links: Table::new(),
            calls: Calls::default(),
            lingerers: Lingerers::default(),
            hot: Vec::with_capacity(HOT + 1),
            absent: Vec::new(),
            fruitless: 0,
            marked: Vec::new(),
            mail: Mail::default(),
        }
    }

    /// A pass of a consumer's thread that found its queue empty: looks at hot sockets without asking the poller.
    pub(crate) fn poll_pass(&mut self) -> Pass {
        self.kit.board.consumer_made_progress();
        self.serve();
        let (mut moved, mut blocked, mut stale) = (false, false, false);
        for i in 0..self.hot.len() {
            let Some(link) = self.hot.get(i).and_then(|&i| self.links.get_mut(i)) else { continue };
            match link.receive(&mut self.kit, &mut self.lingerers) {
                Progress::None => link.idle_looks += 1,
                Progress::Some => {
                    moved = true;
                    link.idle_looks = 0;
                    link.good_looks += 1;
                    if link.good_looks.is_multiple_of(ZEAL)
                        && !self.kit.board.is_asleep()
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
            self.hot.retain(|&i| links.get_mut(i).is_some_and(|l| l.is_up() && l.idle_looks <= PATIENCE));
            self.assemble();
        }
        let cold = self.links.len() > self.hot.len();
        match blocked || self.has_ends() || (!moved && (cold || self.fruitless.is_multiple_of(ASK_EVERY))) {
            true => Pass::Ask,
            false if moved => Pass::Fruitful,
            false => Pass::Fruitless,
        }
    }

    /// What the poller reported, behind what it reported while somebody else had the lease.
    ///
    /// What a peer did on one connection before it ended another is seen in that order. But a look at a connection may see
    /// its end before anybody has asked the poller about the others; so it only makes a note, and `end` is later.
    pub(crate) fn deliver<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>) {
        self.open_mail();
        events.into_iter().for_each(|event| self.see(event));
    }

    /// Whether connections are over that have not ended yet.
    pub(crate) fn has_ends(&self) -> bool {
        !self.kit.over.is_empty()
    }

    /// These connections, to be ended when all that the poller knows has been delivered.
    pub(crate) fn take_over(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.kit.over)
    }

    /// Ends them.
    pub(crate) fn end(&mut self, over: Vec<usize>) {
        for index in over {
            if let Some(link) = self.links.get_mut(index) {
                link.end_if_over(&mut self.kit, &mut self.lingerers);
            }
        }
    }

    fn open_mail(&mut self) {
        if !self.kit.board.has_mail() {
            return;
        }
        let mut mail = std::mem::take(&mut self.mail);
        self.kit.board.swap_mail(&mut mail);
        for call in mail.refused.drain(..) {
            self.calls.refuse(&mut self.kit, call);
        }
        mail.events.drain(..).for_each(|event| self.see(&event));
        self.mail = mail;
    }

    fn see(&mut self, event: &Event) {
        match Key::of(event.token()) {
            Some(Key::Link(index)) => self.ready(index, event),
            Some(Key::Door(index)) => self.calls.answer_door(&mut self.kit, index),
            Some(Key::Caller(index)) => self.calls.hear_caller(&mut self.kit, &mut self.lingerers, index),
            Some(Key::Lingerer(index)) => self.lingerers.readable(&mut self.kit, index),
            None => {}
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
            link.receive_until(&mut self.kit, &mut self.lingerers, until_end);
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

    /// Sends what a queue pair has been given.
    pub(crate) fn transmit(&mut self, index: usize) {
        let Some(link) = self.links.get_mut(index) else { return };
        link.transmit(&mut self.kit, &mut self.lingerers);
        if self.hot.len() < HOT && !self.hot.contains(&index) {
            self.heat(index);
        }
    }

    /// Whether there is something to do at once.
    pub(crate) fn has_leftover(&self) -> bool {
        !self.kit.again.is_empty() || self.has_ends()
    }

    /// When the next timer is due.
    pub(crate) fn alarm(&self) -> Option<Instant> {
        self.kit.timers.first().map(|&(at, _)| at)
    }

    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(&(at, key)) = self.kit.timers.first() {
            if at > now {
                break;
            }
            self.kit.timers.pop_first();
            match key {
                Key::Link(index) => {
                    if let Some(link) = self.links.get_mut(index) {
                        link.timer = Timer(None);
                        link.expire(&mut self.kit, &mut self.lingerers, now);
                    }
                }
                Key::Door(index) => self.calls.reopen_door(&mut self.kit, index),
                Key::Caller(index) => self.calls.give_up_caller(&mut self.kit, index),
                Key::Lingerer(index) => self.lingerers.give_up(&mut self.kit, index),
            }
        }
    }

    /// Takes a queue pair away; a connection it has ends.
    pub(crate) fn remove_link(&mut self, index: usize) {
        // The mark of the queue pair must not stay in the stack, and what others have marked must not be lost.
        self.serve();
        self.hot.retain(|&i| i != index);
        self.kit.again.retain(|&i| i != index);
        if let Some(link) = self.links.remove(index) {
            link.close(&mut self.kit, &mut self.lingerers);
        }
    }
}

impl Serve for Engine {
    /// Does what was published, what was left over and what is due.
    fn serve(&mut self) {
        self.kit.board.begin_pass();
        if !self.absent.is_empty() && self.kit.board.is_asleep() {
            self.assemble();
        }
        if !self.kit.board.dirty.is_empty() {
            let mut marked = std::mem::take(&mut self.marked);
            self.kit.board.dirty.take(|index| marked.push(index));
            marked.drain(..).for_each(|index| self.transmit(index));
            self.marked = marked;
        }
        self.open_mail();
        // Each once: whoever has still more to do is behind them by then.
        for _ in 0..self.kit.again.len() {
            if let Some(link) = self.kit.again.pop_front().and_then(|index| self.links.get_mut(index)) {
                link.go_on(&mut self.kit, &mut self.lingerers);
            }
        }
        if !self.kit.timers.is_empty() {
            self.expire();
        }
    }

    fn leave(&mut self) {
        let (leftover, alarm) = (self.has_leftover(), self.alarm());
        self.kit.board.leave(leftover, alarm);
    }
}

/// What upcalls of an engine go to.
pub(crate) type Sink = dat_core::provider::Sink<Tcp>;
/// What upcalls of an engine say.
pub(crate) type Upcall<'a> = dat_core::provider::Upcall<'a, Tcp>;
