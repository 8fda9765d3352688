//! One open adapter: its queue pairs, its service points, who has called there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use adapter::{Context, Progress, Remaining, Shared, netdev};
use dat_core::provider::{Allocated, Close, Connect, Port, ReadDepth};
use dat_core::{Error, Result};
use dat_sys::{DAT_CONN_QUAL_IN_USE, DAT_CONN_QUAL_UNAVAILABLE, DAT_INVALID_STATE};
use mio::event::Event;
use mio::{Interest, Token};
use rnic::{TxVec, Work};

use crate::inbox::{Address, Inbox, Line, Word, lock};
use crate::link::Link;

/// The service points of the process.
static PORTS: Mutex<BTreeMap<u16, Address>> = Mutex::new(BTreeMap::new());
/// The first of the ports that are nobody's by convention (RFC 6335, section 6).
const DYNAMIC: u16 = 49152;

pub(crate) type Sink = adapter::Sink<Engine>;
pub(crate) type Upcall<'a> = adapter::Upcall<'a, Engine>;

// ANCHOR: engine
/// The engine.
pub struct Engine {
    context: Context<Engine>,
    ip: IpAddr,
    inbox: Arc<Inbox>,
    links: HashMap<usize, Link>,
    doors: HashMap<usize, Door>,
    /// Who waits for the consumer's answer: the service point, the line to the caller.
    calls: HashMap<usize, (usize, Line)>,
    /// When queue pairs that have called give up; those that were answered stay here until then.
    deadlines: BTreeSet<(Instant, usize)>,
    tx: TxVec,
}

/// A service point.
struct Door {
    sink: Sink,
    port: u16,
    backlog: usize,
}

/// Names a queue pair, a service point or a call. Never used twice: what is said too late finds nobody.
fn number() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

impl Engine {
    pub(crate) fn new(context: Context<Engine>, ip: IpAddr) -> io::Result<Self> {
        let inbox = Arc::new(Inbox::new()?);
        context.watch(Token(0), &inbox.bell, Interest::READABLE)?;
        let (links, doors, calls, deadlines) = Default::default();
        Ok(Engine { context, ip, inbox, links, doors, calls, deadlines, tx: TxVec::new() })
    }

    /// Reads what is there by now. True: there was something.
    fn read(&mut self) -> bool {
        let letters = self.inbox.take();
        let any = !letters.is_empty();
        for (to, word) in letters {
            match word {
                Word::Call(line, private) => self.ring(to, line, &private),
                word => self.step(to, |link| link.hear(word)),
            }
        }
        any
    }

    /// Does something to a queue pair, and sends what is ready after that.
    fn step(&mut self, qp: usize, step: impl FnOnce(&mut Link)) {
        if let Some(link) = self.links.get_mut(&qp) {
            step(link);
            link.transmit(&mut self.tx);
        }
    }

    /// Ends the attempts whose time is over. True: there was one.
    fn expire(&mut self) -> bool {
        let mut any = false;
        while let Some(&(at, qp)) = self.deadlines.first()
            && at <= Instant::now()
        {
            self.deadlines.pop_first();
            self.step(qp, |link| link.give_up(Upcall::TimedOut));
            any = true;
        }
        any
    }
    // ANCHOR_END: engine

    // ANCHOR: ring
    /// Somebody calls at a service point. Where nobody is in, or too many wait, the line is dropped.
    fn ring(&mut self, to: usize, line: Line, private: &[u8]) {
        let unanswered = self.calls.values().filter(|(door, _)| *door == to).count();
        let Some(door) = self.doors.get(&to).filter(|door| unanswered < door.backlog) else {
            return;
        };
        let call = number();
        let Some(request) = self.context.request(call) else { return };
        let (from, local) = (line.remote, line.local);
        self.calls.insert(call, (to, line));
        door.sink.call(Upcall::Request { request, from, to: local, private });
    }
    // ANCHOR_END: ring

    fn address(&self, number: usize) -> Address {
        Address { inbox: Arc::downgrade(&self.inbox), number }
    }
}

// ANCHOR: progress
// SAFETY: `Work` goes to a `Link`, which the engine has as long as it lives; sinks go with links and service points.
unsafe impl adapter::Engine for Engine {
    const NAME: &'static str = "loop";
    type RequestId = usize;

    fn poll(&mut self) -> Progress {
        match self.read() | self.expire() {
            true => Progress::Moved,
            false => Progress::Idle,
        }
    }

    fn on_event(&mut self, _: &Event) {
        self.read();
    }

    fn advance(&mut self) {
        self.read();
        self.expire();
    }

    fn remaining(&mut self) -> Remaining {
        Remaining { at_once: false, deadline: self.deadlines.first().map(|&(at, _)| at) }
    }
    // ANCHOR_END: progress

    // ANCHOR: qp
    fn add_qp(&mut self, sink: Sink, work: Work) -> Result<Arc<Shared>> {
        let number = number();
        let shared = Arc::new(Shared::new(number));
        self.links.insert(number, Link::new(sink, Arc::clone(&shared), work));
        Ok(shared)
    }

    fn remove_qp(&mut self, qp: usize) {
        self.links.remove(&qp);
    }

    fn transmit(&mut self, qp: usize) {
        self.step(qp, |_| {});
    }

    fn disconnect(&mut self, qp: usize, how: Close) {
        self.step(qp, |link| link.disconnect(how));
    }

    fn allocated(&mut self, qp: usize) -> Allocated {
        let buffers = self.links.get(&qp).map_or(0, Link::allocated);
        // Messages come in order.
        Allocated { buffers, span: buffers }
    }
    // ANCHOR_END: qp

    // ANCHOR: connect
    fn connect(&mut self, qp: usize, to: &Connect<'_>) -> Result<()> {
        self.step(qp, Link::call);
        if !netdev::is_own(to.addr.ip()) {
            self.step(qp, |link| {
                link.give_up(Upcall::Unreachable {
                    because: Some(&"the loop leads to this host alone"),
                })
            });
            return Ok(());
        }
        let port = adapter::port(to.port);
        // As the other side sees it. The caller's port is for show.
        let line = Line {
            peer: self.address(qp),
            local: SocketAddr::new(to.addr.ip(), port),
            remote: SocketAddr::new(self.ip, qp as u16 | DYNAMIC),
            depth: turned(to.depth),
        };
        let door = lock(&PORTS).get(&port).cloned();
        if let Some(door) = door {
            door.tell(Word::Call(line, to.private.to_vec()));
        }
        let deadline = to.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.deadlines.extend(deadline.map(|at| (at, qp)));
        Ok(())
    }

    fn accept(&mut self, qp: usize, call: usize, private: &[u8], depth: ReadDepth) -> Result<()> {
        let (_, mut line) = self.calls.remove(&call).ok_or(Error::of(DAT_INVALID_STATE))?;
        // Neither side reads more at a time than the other holds.
        line.depth.incoming = line.depth.incoming.min(depth.incoming);
        line.depth.outgoing = line.depth.outgoing.min(depth.outgoing);
        let (caller, local, remote) = (line.peer.clone(), line.remote, line.local);
        let callers = Line { peer: self.address(qp), local, remote, depth: turned(line.depth) };
        self.step(qp, |link| link.answer(line));
        caller.tell(Word::Accept(callers, private.to_vec()));
        Ok(())
    }

    fn reject(&mut self, call: usize, private: &[u8]) -> Result<()> {
        if let Some((_, line)) = self.calls.remove(&call) {
            line.peer.tell(Word::Reject(private.to_vec()));
        }
        Ok(())
    }

    fn refuse(&mut self, call: usize) {
        self.calls.remove(&call);
    }
    // ANCHOR_END: connect

    // ANCHOR: listen
    fn listen(&mut self, port: Port, backlog: usize, sink: Sink) -> Result<(usize, u16)> {
        let mut ports = lock(&PORTS);
        let is_free = |port: &u16| !ports.contains_key(port);
        let (port, why_not) = match port {
            Port::Qualifier(qualifier) => {
                (Some(adapter::port(qualifier)).filter(is_free), DAT_CONN_QUAL_IN_USE)
            }
            Port::Any => ((DYNAMIC..=u16::MAX).find(is_free), DAT_CONN_QUAL_UNAVAILABLE),
        };
        let (port, number) = (port.ok_or(Error::of(why_not))?, number());
        ports.insert(port, self.address(number));
        self.doors.insert(number, Door { sink, port, backlog });
        Ok((number, port))
    }

    fn close(&mut self, listener: usize) {
        if let Some(door) = self.doors.remove(&listener) {
            lock(&PORTS).remove(&door.port);
        }
    }
    // ANCHOR_END: listen
}

/// The same depth, as the other side sees it.
fn turned(ReadDepth { incoming, outgoing }: ReadDepth) -> ReadDepth {
    ReadDepth { incoming: outgoing, outgoing: incoming }
}
