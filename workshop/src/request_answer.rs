//! Requests of a client over many connections, with DAT and with plain TCP sockets that an epoll
//! instance watches. The server answers each with a message of the same size. One thread of each
//! process polls for the messages of all connections.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dat::{
    Access, Adapter, Address, Endpoint, Event, EventDispatcher, Flags, MemoryRegion, Segment,
};
use measurement::connection::expect_success;
use measurement::measure::bandwidth_trial;
use measurement::plain_sockets::{PlainSockets, prepare};
use measurement::schedule::{Trial, Value};
use measurement::wait_mode::{CONNECT_TIMEOUT, PEER_TIMEOUT, Role, WaitMode};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// The number of events that one call of epoll_wait returns, as in the provider.
const EVENT_CAPACITY: usize = 256;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct RequestAnswer {
    /// The size of requests and answers.
    pub(crate) size: usize,
    pub(crate) connections: usize,
    /// The number of unanswered requests, over all connections.
    pub(crate) outstanding: usize,
}

/// The connections of one process.
pub(crate) trait Connections {
    /// Sends a message over a connection.
    fn send(&mut self, connection: usize) -> Result<()>;

    /// Returns the connection of a message if one has arrived.
    fn receive(&mut self) -> Result<Option<usize>>;
}

impl RequestAnswer {
    /// Returns whether the figure is the time of a request. Otherwise the figure is the rate of
    /// requests, given in bytes per second.
    pub(crate) fn is_latency(&self) -> bool {
        self.outstanding == 1
    }

    /// Runs `count` requests. Each is sent over the next connection. Returns the client's
    /// measurement.
    pub(crate) fn run(
        &self,
        connections: &mut impl Connections,
        sockets: &mut PlainSockets,
        role: Role,
        count: usize,
    ) -> Result<Trial<Value>> {
        sockets.barrier()?;
        let start = Instant::now();
        let mut next = (0..self.connections).cycle();
        let mut limit = WaitMode::Poll.poll_limit(PEER_TIMEOUT);
        let (mut sent, mut received) = (0, 0);
        while received < count {
            while role == Role::Client && sent < count && sent - received < self.outstanding {
                connections.send(next.next().context("no connection")?)?;
                sent += 1;
            }
            match connections.receive()? {
                Some(connection) => {
                    received += 1;
                    if role == Role::Server {
                        connections.send(connection)?;
                    }
                }
                None => limit.check("a message")?,
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        Ok(match self.is_latency() {
            true => Trial {
                operations: count,
                seconds,
                sample: Value { value: seconds / count as f64, tail: 1.0 },
            },
            false => bandwidth_trial(seconds, self.size, count),
        })
    }
}

/// The endpoints of one process. They have the same dispatchers and the same memory.
pub(crate) struct Endpoints {
    endpoints: Vec<Endpoint>,
    receives: EventDispatcher,
    _requests: EventDispatcher,
    _connections: EventDispatcher,
    _memory: MemoryRegion<'static>,
    outgoing: Segment,
    incoming: Segment,
}

impl Endpoints {
    pub(crate) fn connect(
        requests: RequestAnswer,
        adapter: &Adapter,
        server: Address,
        sockets: &mut PlainSockets,
        role: Role,
    ) -> Result<Self> {
        let RequestAnswer { size, connections: count, outstanding } = requests;
        // Each connection needs a descriptor here and another one for the plain socket.
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        let zone = adapter.zone()?;
        let memory = zone.register(vec![0; 2 * size], Access::ALL)?;
        let (outgoing, incoming) = (memory.segment(0..size)?, memory.segment(size..2 * size)?);
        let receives = adapter.dispatcher(outstanding)?;
        let requests = adapter.dispatcher(1)?;
        let mut connections = adapter.dispatcher(8)?;
        let create = || -> Result<Endpoint> {
            Ok(adapter
                .endpoint()
                .zone(&zone)
                .receives(&receives)
                .requests(&requests)
                .connections(&connections)
                .max_receives(outstanding)
                .max_requests(outstanding)
                .create()?)
        };
        let mut endpoints = (0..count).map(|_| create()).collect::<Result<Vec<_>>>()?;
        for (index, endpoint) in endpoints.iter_mut().enumerate() {
            for _ in 0..outstanding {
                endpoint.post_receive(&[incoming], index as u64)?;
            }
        }
        let listener = match role {
            Role::Server => Some(adapter.listen_any(&connections)?),
            Role::Client => None,
        };
        let qualifier = listener.as_ref().map_or(0, dat::Listener::qualifier);
        let qualifier = sockets.tell(Role::Server, role, qualifier)?;
        let (mut begun, mut established) = (0, 0);
        while established < count {
            if role == Role::Client {
                endpoints[begun].connect(server, qualifier, &[], Some(CONNECT_TIMEOUT))?;
                begun += 1;
            }
            match connections.wait(Some(CONNECT_TIMEOUT)).context("waiting for a connection")? {
                Event::ConnectionRequest(request) => {
                    request.accept(&mut endpoints[begun], &[])?;
                    begun += 1;
                }
                event => {
                    event.established()?;
                    established += 1;
                }
            }
        }
        Ok(Endpoints {
            endpoints,
            receives,
            _requests: requests,
            _connections: connections,
            _memory: memory,
            outgoing,
            incoming,
        })
    }
}

impl Connections for Endpoints {
    fn send(&mut self, connection: usize) -> Result<()> {
        Ok(self.endpoints[connection].post_send(&[self.outgoing], 0, Flags::SUPPRESS)?)
    }

    fn receive(&mut self) -> Result<Option<usize>> {
        let Some(event) = self.receives.dequeue()? else { return Ok(None) };
        let connection = expect_success(event)?.cookie as usize;
        self.endpoints[connection].post_receive(&[self.incoming], connection as u64)?;
        Ok(Some(connection))
    }
}

/// The plain TCP sockets of one process.
pub(crate) struct WatchedSockets {
    poll: Poll,
    events: Events,
    sockets: Vec<TcpStream>,
    /// The number of bytes of an incomplete message, for each socket.
    partial: Vec<usize>,
    /// The connections of the messages that have been read.
    arrived: VecDeque<usize>,
    size: usize,
    buffer: Vec<u8>,
}

impl WatchedSockets {
    pub(crate) fn connect(
        requests: RequestAnswer,
        sockets: &mut PlainSockets,
        role: Role,
    ) -> Result<Self> {
        let RequestAnswer { size, connections, .. } = requests;
        let mut sockets = connect_more(sockets, role, connections)?;
        let poll = Poll::new()?;
        for (index, socket) in sockets.iter_mut().enumerate() {
            poll.registry().register(socket, Token(index), Interest::READABLE)?;
        }
        Ok(WatchedSockets {
            poll,
            events: Events::with_capacity(EVENT_CAPACITY),
            partial: vec![0; sockets.len()],
            sockets,
            arrived: VecDeque::new(),
            size,
            buffer: vec![0; 64 << 10],
        })
    }

    /// Reads the sockets that epoll reports. A short read has emptied its socket.
    fn read(&mut self) -> Result<()> {
        let WatchedSockets { poll, events, sockets, partial, arrived, size, buffer } = self;
        poll.poll(events, Some(Duration::ZERO))?;
        for connection in events.iter().map(|event| event.token().0) {
            let mut drained = false;
            while !drained {
                let read = match sockets[connection].read(buffer) {
                    Ok(read) => read,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) => return Err(e).context("reading TCP data"),
                };
                ensure!(read > 0, "the other process closed a TCP connection");
                let octets = partial[connection] + read;
                partial[connection] = octets % *size;
                arrived.extend(std::iter::repeat_n(connection, octets / *size));
                drained = read < buffer.len();
            }
        }
        Ok(())
    }
}

/// Opens `count` further TCP connections to the other process, whose sockets are non-blocking.
fn connect_more(sockets: &mut PlainSockets, role: Role, count: usize) -> Result<Vec<TcpStream>> {
    let (local, peer) = (sockets.socket().local_addr()?.ip(), sockets.socket().peer_addr()?.ip());
    let listener = TcpListener::bind((local, 0))?;
    let port = sockets.tell(Role::Server, role, listener.local_addr()?.port().into())?;
    let server = (peer, u16::try_from(port)?);
    let connect = |_| -> Result<TcpStream> {
        let stream = match role {
            Role::Client => std::net::TcpStream::connect(server)?,
            Role::Server => listener.accept()?.0,
        };
        prepare(&stream)?;
        stream.set_nonblocking(true)?;
        Ok(TcpStream::from_std(stream))
    };
    (0..count).map(connect).collect::<Result<_>>().context("connecting further TCP sockets")
}

impl Connections for WatchedSockets {
    fn send(&mut self, connection: usize) -> Result<()> {
        let sent = self.sockets[connection].write(&self.buffer[..self.size])?;
        ensure!(sent == self.size, "a socket took {sent} of {} bytes", self.size);
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<usize>> {
        if self.arrived.is_empty() {
            self.read()?;
        }
        Ok(self.arrived.pop_front())
    }
}
