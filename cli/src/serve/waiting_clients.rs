//! The clients of `dat serve` that have not sent their whole plan yet.
//!
//! A client that sends nothing costs a descriptor and no thread. If there are too many clients, the
//! oldest of the address with the most clients is disconnected, so that silent clients do not block
//! others. A client whose plan has arrived stays connected, even if nobody has read the plan yet.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use adapter::Slab;
use adapter::half_open::HalfOpen;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::SockRef;

/// The maximum octets of a plan.
const MAX_PLAN_BYTES: usize = 64 << 10;
/// The maximum number of clients that have not sent their plan yet. The maximum is lower if these
/// clients would use more than a quarter of the process's descriptors.
const MAX_WAITING_CLIENTS: u64 = 4096;
/// How long a client may take to send its plan.
const PLAN_TIMEOUT: Duration = Duration::from_secs(10);
/// A client is not disconnected to make room for another before it has had this much time. Until
/// then, further clients wait in the kernel. An honest client sends its plan at once, but the
/// system may run other processes first.
const MIN_PLAN_TIME: Duration = Duration::from_millis(50);
/// How often clients are checked for [`PLAN_TIMEOUT`].
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the server waits after `accept` has failed, for example because the process has no free
/// descriptor.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// The number of clients that are accepted before the plans of other clients are read.
const MAX_ACCEPTS_PER_TURN: usize = 64;

/// The token of the listener in the poller. The token of a client is its index.
const LISTENER: Token = Token(usize::MAX);

/// The listener, and the clients that have not sent their whole plan yet.
pub(super) struct WaitingClients {
    listener: TcpListener,
    poll: Poll,
    events: Events,
    clients: Slab<Client>,
    /// The indices of the clients, by address and age.
    half_open: HalfOpen<usize>,
    max_clients: usize,
    /// Clients whose plan has arrived.
    complete: VecDeque<(TcpStream, Vec<u8>)>,
    /// Whether further clients may wait to be accepted.
    can_accept: bool,
    /// The time before which the server accepts no further client, if any.
    accept_at: Option<Instant>,
    checked_at: Instant,
}

struct Client {
    stream: TcpStream,
    address: IpAddr,
    accepted_at: Instant,
    received: Vec<u8>,
}

impl WaitingClients {
    /// Accepts clients from now on.
    pub(super) fn new(listener: TcpListener) -> io::Result<Self> {
        let poll = Poll::new()?;
        listener.set_nonblocking(true)?;
        let descriptor = listener.as_raw_fd();
        poll.registry().register(&mut SourceFd(&descriptor), LISTENER, Interest::READABLE)?;
        let max_clients = MAX_WAITING_CLIENTS.min(raise_descriptor_limit() / 4).max(1);
        Ok(WaitingClients {
            listener,
            poll,
            events: Events::with_capacity(1024),
            clients: Slab::new(),
            half_open: HalfOpen::default(),
            max_clients: max_clients as usize,
            complete: VecDeque::new(),
            can_accept: true,
            accept_at: None,
            checked_at: Instant::now(),
        })
    }

    /// Waits for a client's plan. Returns the client and what it has sent, which may be anything.
    pub(super) fn next(&mut self) -> io::Result<(TcpStream, Vec<u8>)> {
        loop {
            if let Some(complete) = self.complete.pop_front() {
                return Ok(complete);
            }
            let timeout = self.timeout(Instant::now());
            match self.poll.poll(&mut self.events, timeout) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let ready: Vec<Token> = self.events.iter().map(|event| event.token()).collect();
            for token in ready {
                match token {
                    LISTENER => self.can_accept = true,
                    Token(index) => self.read(index),
                }
            }
            self.disconnect_silent(Instant::now());
            self.accept();
        }
    }

    fn timeout(&self, now: Instant) -> Option<Duration> {
        let accept_at = self.can_accept.then(|| self.accept_at.unwrap_or(now));
        let check_at = (!self.clients.is_empty()).then(|| self.checked_at + CHECK_INTERVAL);
        let next = accept_at.into_iter().chain(check_at).min();
        next.map(|at| at.saturating_duration_since(now))
    }

    fn accept(&mut self) {
        for _ in 0..MAX_ACCEPTS_PER_TURN {
            let now = Instant::now();
            if !self.can_accept || self.accept_at.is_some_and(|at| now < at) {
                return;
            }
            self.accept_at = self.make_room(now);
            if self.accept_at.is_some() {
                return;
            }
            match self.listener.accept() {
                // If the poller cannot watch the client, for lack of memory, the client is
                // disconnected.
                Ok((stream, peer)) => drop(self.add(stream, peer.ip(), now)),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => self.can_accept = false,
                    // The client has disconnected already, or a signal has interrupted the call.
                    // Neither affects the next client.
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => self.accept_at = Some(now + ACCEPT_RETRY_DELAY),
                },
            }
        }
    }

    fn add(&mut self, stream: TcpStream, address: IpAddr, now: Instant) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let (descriptor, index) = (stream.as_raw_fd(), self.clients.next_index());
        // The poller also reports data that arrived before this registration.
        let mut source = SourceFd(&descriptor);
        self.poll.registry().register(&mut source, Token(index), Interest::READABLE)?;
        self.clients.insert(Client { stream, address, accepted_at: now, received: Vec::new() });
        self.half_open.add(address, index);
        Ok(())
    }

    /// Makes room for another client. If there is no room yet, returns the time at which to try
    /// again.
    fn make_room(&mut self, now: Instant) -> Option<Instant> {
        while let Some(&oldest) = self.half_open.one_too_many(self.max_clients - 1) {
            // The plan of this client may have arrived after the poller was last called.
            self.read(oldest);
            let Some(client) = self.clients.get_mut(oldest) else { continue };
            let until = client.accepted_at + MIN_PLAN_TIME;
            if now < until {
                return Some(until);
            }
            self.disconnect(oldest);
        }
        None
    }

    /// Reads what a client has sent. The client is removed if its plan is complete or if it has
    /// disconnected.
    fn read(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let mut piece = [0; 4096];
        loop {
            match client.stream.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => {
                    let piece = &piece[..length];
                    client.received.extend_from_slice(piece);
                    if piece.contains(&b'\n') || client.received.len() >= MAX_PLAN_BYTES {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    client.received.clear();
                    break;
                }
            }
        }
        if let Some(Client { stream, received, .. }) = self.remove(index)
            && !received.is_empty()
            && stream.set_nonblocking(false).is_ok()
        {
            self.complete.push_back((stream, received));
        }
    }

    fn remove(&mut self, index: usize) -> Option<Client> {
        let client = self.clients.remove(index)?;
        self.half_open.remove(client.address, |&of| of == index);
        let _ = self.poll.registry().deregister(&mut SourceFd(&client.stream.as_raw_fd()));
        Some(client)
    }

    /// Disconnects a client with a RST, so that no state of the connection stays on this host.
    fn disconnect(&mut self, index: usize) {
        if let Some(client) = self.remove(index) {
            let _ = SockRef::from(&client.stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// Disconnects the clients that have not sent their plan in time.
    fn disconnect_silent(&mut self, now: Instant) {
        if now < self.checked_at + CHECK_INTERVAL {
            return;
        }
        self.checked_at = now;
        let all: Vec<usize> = self.clients.indices().collect();
        for index in all {
            self.read(index);
            let client = self.clients.get_mut(index);
            if client.is_some_and(|client| now >= client.accepted_at + PLAN_TIMEOUT) {
                self.disconnect(index);
            }
        }
    }
}

/// Raises the limit on the descriptors of this process as far as the system permits. Returns the
/// new limit.
fn raise_descriptor_limit() -> u64 {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
