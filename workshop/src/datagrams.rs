//! Datagrams between two endpoints, next to those of plain UDP sockets.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use dat::{
    Access, Adapter, Address, DatagramPeer, Endpoint, EventDispatcher, Flags, MemoryRegion, Segment,
};
use measurement::connection::expect_success;
use measurement::measure::{Workload, latency_trial};
use measurement::plain_sockets::PlainSockets;
use measurement::schedule::{Trial, Value};
use measurement::wait_mode::{CONNECT_TIMEOUT, PEER_TIMEOUT, Role, WaitMode, round_trips};

use crate::udp::{ask_for_arrivals, count_arrivals};
use crate::workload::datagrams_trial;

/// The number of receives that are always posted.
const POSTED_RECEIVES: usize = 512;
/// The maximum number of outstanding sends.
const MAX_SENDS: usize = 128;
/// The number of sends of a ping-pong after which their completions are taken.
const SENDS_PER_REAP: usize = 8;

/// A datagram endpoint that sends to the datagram endpoint of the other process.
pub(crate) struct Datagrams {
    endpoint: Endpoint,
    peer: DatagramPeer,
    receives: EventDispatcher,
    sends: EventDispatcher,
    _connections: EventDispatcher,
    _memory: MemoryRegion<'static>,
    size: usize,
    outgoing: Segment,
    incoming: Segment,
    /// The number of sends that have not completed.
    outstanding: usize,
    /// The number of receives that have completed and were not posted again.
    unposted_receives: usize,
}

impl Datagrams {
    /// Creates the endpoint. The client finds out the endpoint of the server by a request.
    pub(crate) fn connect(
        size: usize,
        adapter: &Adapter,
        server: Address,
        sockets: &mut PlainSockets,
        role: Role,
    ) -> Result<Self> {
        let received = Endpoint::DATAGRAM_HEADER + size;
        let zone = adapter.zone()?;
        let memory = zone.register(vec![0; size + received], Access::LOCAL)?;
        let (outgoing, incoming) =
            (memory.segment(0..size)?, memory.segment(size..size + received)?);
        let receives = adapter.dispatcher(POSTED_RECEIVES)?;
        let sends = adapter.dispatcher(MAX_SENDS)?;
        let mut connections = adapter.dispatcher(8)?;
        let mut endpoint = adapter
            .endpoint()
            .datagrams()
            .zone(&zone)
            .receives(&receives)
            .requests(&sends)
            .connections(&connections)
            .max_receives(POSTED_RECEIVES)
            .max_requests(MAX_SENDS)
            .create()
            .context("creating an endpoint for datagrams")?;
        for _ in 0..POSTED_RECEIVES {
            endpoint.post_receive(&[incoming], 0)?;
        }
        let listener = match role {
            Role::Server => Some(adapter.listen_any(&connections)?),
            Role::Client => None,
        };
        let qualifier = listener.as_ref().map_or(0, dat::Listener::qualifier);
        let qualifier = sockets.tell(Role::Server, role, qualifier)?;
        let mut next =
            || connections.wait(Some(CONNECT_TIMEOUT)).context("waiting for the peer's address");
        match role {
            Role::Server => next()?.request()?.accept(&mut endpoint, &[])?,
            Role::Client => endpoint.connect(server, qualifier, &[], Some(CONNECT_TIMEOUT))?,
        }
        let peer = next()?.peer().map_err(|error| endpoint.explain(error))?;
        sockets.barrier()?;
        Ok(Datagrams {
            endpoint,
            peer,
            receives,
            sends,
            _connections: connections,
            _memory: memory,
            size,
            outgoing,
            incoming,
            outstanding: 0,
            unposted_receives: 0,
        })
    }

    /// Runs a workload. Returns the client's measurement.
    pub(crate) fn run(
        &mut self,
        workload: Workload,
        sockets: &mut PlainSockets,
        role: Role,
        count: usize,
    ) -> Result<Trial<Value>> {
        sockets.barrier()?;
        let start = Instant::now();
        Ok(match workload {
            Workload::Stream { size, window, .. } => {
                let (arrived, seconds) = self.stream(sockets, role, count, window)?;
                datagrams_trial(seconds, size, count, arrived)
            }
            _ => latency_trial(start, &self.ping_pong(role, count)?),
        })
    }

    /// Runs `count` round trips. Returns half of each round trip's time at the client, in seconds.
    /// Within a host no datagram of these round trips is lost.
    fn ping_pong(&mut self, role: Role, count: usize) -> Result<Vec<f64>> {
        let send = |datagrams: &mut Self| {
            datagrams.send()?;
            datagrams.tidy()
        };
        let times = round_trips(role, count, self, send, Self::receive)?;
        self.complete(0)?;
        Ok(times)
    }

    /// Sends `count` datagrams, with at most `window` outstanding. The server receives at the same
    /// time. Returns how many have arrived, and the client's seconds until it knows that. If the
    /// server is too slow, datagrams are lost.
    fn stream(
        &mut self,
        sockets: &mut PlainSockets,
        role: Role,
        count: usize,
        window: usize,
    ) -> Result<(usize, f64)> {
        let start = Instant::now();
        let arrived = match role {
            Role::Client => {
                for _ in 0..count {
                    self.complete(window - 1)?;
                    self.send()?;
                }
                self.complete(0)?;
                ask_for_arrivals(sockets)?
            }
            Role::Server => count_arrivals(sockets, count, || {
                let has_received = self.try_receive()?;
                self.post_receives()?;
                Ok(has_received)
            })?,
        };
        Ok((arrived, start.elapsed().as_secs_f64()))
    }

    #[inline]
    fn send(&mut self) -> Result<()> {
        self.endpoint.post_datagram(&[self.outgoing], &self.peer, 0, Flags::default())?;
        self.outstanding += 1;
        Ok(())
    }

    /// Takes the completions of earlier sends and posts receives again, while a datagram is on its
    /// way.
    #[inline]
    fn tidy(&mut self) -> Result<()> {
        self.post_receives()?;
        if self.outstanding > SENDS_PER_REAP {
            while let Some(event) = self.sends.dequeue()? {
                expect_success(event)?;
                self.outstanding -= 1;
            }
        }
        Ok(())
    }

    #[inline]
    fn post_receives(&mut self) -> Result<()> {
        while self.unposted_receives > 0 {
            self.unposted_receives -= 1;
            self.endpoint.post_receive(&[self.incoming], 0)?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<()> {
        let mut limit = WaitMode::Poll.poll_limit(PEER_TIMEOUT);
        while !self.try_receive()? {
            limit.check("a datagram")?;
        }
        Ok(())
    }

    /// Returns whether a datagram has arrived.
    #[inline]
    fn try_receive(&mut self) -> Result<bool> {
        let Some(event) = self.receives.dequeue()? else { return Ok(false) };
        let length = expect_success(event)?.length as usize;
        let expected = Endpoint::DATAGRAM_HEADER + self.size;
        ensure!(length == expected, "expected {expected} bytes, got {length}");
        self.unposted_receives += 1;
        Ok(true)
    }

    /// Waits until at most `left` sends are outstanding.
    #[inline]
    fn complete(&mut self, left: usize) -> Result<()> {
        let mut limit = WaitMode::Poll.poll_limit(PEER_TIMEOUT);
        while self.outstanding > left {
            match self.sends.dequeue()? {
                Some(event) => {
                    expect_success(event)?;
                    self.outstanding -= 1;
                }
                None => limit.check("a completion")?,
            }
        }
        Ok(())
    }
}
