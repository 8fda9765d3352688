//! One open adapter: its queue pairs, listeners and pending connection requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use adapter::{
    Backlog, Context, Error, MakeProgress, Progress, QpShared, Remaining, Result, Target, netdev,
};
use mio::event::Event;
use mio::{Interest, Token};
use rnic::{TxVec, Work};
use work::{Close, ReadDepth, ServiceType};

use crate::link::Link;
use crate::message::{ConnectionEnd, Destination, Message, MessageQueue, lock};

/// The listeners of the process, by port.
static LISTENERS_BY_PORT: Mutex<BTreeMap<u16, Destination>> = Mutex::new(BTreeMap::new());
/// The first dynamic port (RFC 6335, section 6).
const FIRST_DYNAMIC_PORT: u16 = 49152;

pub(crate) type Sink = adapter::Sink<Engine>;
pub(crate) type EngineEvent<'a> = adapter::Event<'a, Engine>;

// ANCHOR: engine
/// The engine of one open adapter.
pub struct Engine {
    context: Context<Engine>,
    ip: IpAddr,
    queue: Arc<MessageQueue>,
    links: HashMap<usize, Link>,
    listeners: HashMap<usize, Listener>,
    /// The times at which connection attempts time out, each with the ID of its queue pair. If an
    /// attempt was answered, its time stays in the set but has no effect.
    deadlines: BTreeSet<(Instant, usize)>,
    tx: TxVec,
}
// ANCHOR_END: engine

/// A listener.
struct Listener {
    sink: Sink,
    port: u16,
    backlog: Backlog,
}

/// Returns an ID for a queue pair or a listener. IDs are never reused, so a late message has no
/// receiver.
fn next_id() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

impl Engine {
    pub(crate) fn new(context: Context<Engine>, ip: IpAddr) -> io::Result<Self> {
        let queue = Arc::new(MessageQueue::new()?);
        context.watch(Token(0), &queue.event_fd, Interest::READABLE)?;
        let (links, listeners, deadlines) = Default::default();
        Ok(Engine { context, ip, queue, links, listeners, deadlines, tx: TxVec::new() })
    }

    /// Handles all messages in the queue. Returns whether there were any.
    fn handle_messages(&mut self) -> bool {
        let messages = self.queue.take();
        let any = !messages.is_empty();
        for (to, message) in messages {
            match message {
                Message::ConnectRequest(end, private) => self.on_connect_request(to, end, &private),
                message => self.with_link(to, |link| link.on_message(message)),
            }
        }
        any
    }

    /// Performs an action on a queue pair, and then sends what is ready.
    fn with_link(&mut self, qp: usize, action: impl FnOnce(&mut Link)) {
        if let Some(link) = self.links.get_mut(&qp) {
            action(link);
            link.transmit(&mut self.tx);
        }
    }

    /// Ends the connection attempts that have timed out. Returns whether there were any.
    fn expire(&mut self) -> bool {
        let mut any = false;
        while let Some(&(at, qp)) = self.deadlines.first()
            && at <= Instant::now()
        {
            self.deadlines.pop_first();
            self.with_link(qp, |link| link.abort_connect(EngineEvent::TimedOut));
            any = true;
        }
        any
    }

    /// Handles a connection request. Without a listener, or with a full backlog, it drops the
    /// connection end, which notifies the peer.
    fn on_connect_request(&mut self, to: usize, end: ConnectionEnd, private: &[u8]) {
        let Some(listener) = self.listeners.get(&to) else { return };
        let (from, to) = (end.remote, end.local);
        if let Ok(request) = self.context.request(Some(&listener.backlog), end) {
            let service = ServiceType::Connection;
            listener.sink.call(EngineEvent::Request { request, service, from, to, private });
        }
    }

    fn destination(&self, id: usize) -> Destination {
        Destination { queue: Arc::downgrade(&self.queue), id }
    }
}

// ANCHOR: progress
impl MakeProgress for Engine {
    const NAME: &'static str = "loop";
    type RequestData = ConnectionEnd;

    fn poll(&mut self) -> Progress {
        match self.handle_messages() | self.expire() {
            true => Progress::Moved,
            false => Progress::Idle,
        }
    }

    fn on_event(&mut self, _: &Event) {
        self.handle_messages();
    }

    fn advance(&mut self) {
        self.handle_messages();
        self.expire();
    }

    fn remaining(&mut self) -> Remaining {
        Remaining { at_once: false, deadline: self.deadlines.first().map(|&(at, _)| at) }
    }

    fn transmit(&mut self, qp: usize) {
        self.with_link(qp, |_| {});
    }
}
// ANCHOR_END: progress

// SAFETY: a `Work` belongs to a `Link`, and the engine keeps the link as long as the work lives.
// Sinks are dropped with links and listeners.
unsafe impl adapter::Engine for Engine {
    fn add_qp(&mut self, sink: Sink, work: Work) -> Result<Arc<QpShared>> {
        let id = next_id();
        let shared = Arc::new(QpShared::new(id));
        self.links.insert(id, Link::new(sink, Arc::clone(&shared), work));
        Ok(shared)
    }

    fn remove_qp(&mut self, qp: usize) {
        self.links.remove(&qp);
    }

    fn disconnect(&mut self, qp: usize, how: Close) {
        self.with_link(qp, |link| link.disconnect(how));
    }

    fn allocated(&mut self, qp: usize) -> usize {
        self.links.get(&qp).map_or(0, Link::allocated)
    }

    fn connect(&mut self, qp: usize, to: &Target<'_>) -> Result<()> {
        self.with_link(qp, Link::connecting);
        if !netdev::is_own(to.peer.ip()) {
            let because = Some(&"the loop reaches only this host" as &dyn Display);
            self.with_link(qp, |link| link.abort_connect(EngineEvent::Unreachable { because }));
            return Ok(());
        }
        // The connection from the peer's point of view, so `local` is the peer's address. The
        // caller's port has no meaning.
        let end = ConnectionEnd {
            peer: self.destination(qp),
            local: to.peer,
            remote: SocketAddr::new(self.ip, qp as u16 | FIRST_DYNAMIC_PORT),
            depth: swapped(to.depth),
        };
        let listener = lock(&LISTENERS_BY_PORT).get(&to.peer.port()).cloned();
        if let Some(listener) = listener {
            listener.send(Message::ConnectRequest(end, to.private.to_vec()));
        }
        self.deadlines.extend(to.deadline.map(|at| (at, qp)));
        Ok(())
    }

    fn accept(
        &mut self,
        qp: usize,
        mut end: ConnectionEnd,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<()> {
        // No side may have more reads in progress than the other side can serve at a time.
        end.depth.incoming = end.depth.incoming.min(depth.incoming);
        end.depth.outgoing = end.depth.outgoing.min(depth.outgoing);
        let (peer, local, remote) = (end.peer.clone(), end.remote, end.local);
        let peers_end =
            ConnectionEnd { peer: self.destination(qp), local, remote, depth: swapped(end.depth) };
        self.with_link(qp, |link| link.accept(end));
        peer.send(Message::Accept(peers_end, private.to_vec()));
        Ok(())
    }

    fn reject(&mut self, end: ConnectionEnd, private: &[u8]) -> Result<()> {
        end.peer.send(Message::Reject(private.to_vec()));
        Ok(())
    }

    fn listen(&mut self, port: Option<u16>, backlog: usize, sink: Sink) -> Result<(usize, u16)> {
        let mut ports = lock(&LISTENERS_BY_PORT);
        let is_free = |port: &u16| !ports.contains_key(port);
        let (port, error) = match port {
            Some(_) => (port.filter(is_free), Error::PortTaken),
            None => ((FIRST_DYNAMIC_PORT..=u16::MAX).find(is_free), Error::PortUnavailable),
        };
        let (port, id) = (port.ok_or(error)?, next_id());
        ports.insert(port, self.destination(id));
        self.listeners.insert(id, Listener { sink, port, backlog: Backlog::new(backlog) });
        Ok((id, port))
    }

    fn close(&mut self, listener: usize) {
        if let Some(listener) = self.listeners.remove(&listener) {
            lock(&LISTENERS_BY_PORT).remove(&listener.port);
        }
    }
}

/// Returns this depth from the peer's point of view: reads that are incoming here are outgoing at
/// the peer.
fn swapped(ReadDepth { incoming, outgoing }: ReadDepth) -> ReadDepth {
    ReadDepth { incoming: outgoing, outgoing: incoming }
}
