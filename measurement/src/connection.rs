//! A DAT connection between the two processes, with the memory that they use for it.
//!
//! All receives use the same buffer, which takes the largest message. [`POSTED_RECEIVES`] of them
//! are always posted. A message of no octets is a notification. A sender sends no more messages
//! than the other side has receives for: each notification from the other side permits another
//! [`MESSAGES_PER_CREDIT`] messages.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dat::{
    Access, Adapter, Address, Close, Completion, ConnectionEvent, Endpoint, Event, EventDispatcher,
    Flags, MemoryRegion, RemoteRegion, Segment, Status,
};

use crate::operation::{ATOMIC_BYTES, Operation};
use crate::wait_mode::{CONNECT_TIMEOUT, PEER_TIMEOUT, WaitMode};

/// The number of receives that are always posted.
pub const POSTED_RECEIVES: usize = 512;
/// The receiver of a stream sends a notification after this many messages.
pub const MESSAGES_PER_CREDIT: usize = 128;
/// The maximum number of outstanding requests, including notifications. Each of them may follow a
/// write without a completion, so an endpoint has room for twice this number.
pub const MAX_REQUESTS: usize = 128;
/// The maximum number of outstanding RDMA reads in each direction. The requester does not start
/// further reads before one of these completes.
const MAX_READS: usize = 16;
/// The number of bytes after the incoming data that must stay unchanged.
pub const GUARD_BYTES: usize = 64;

/// The prefix of the private data of each side. The description of the side's memory follows it.
const PRIVATE_DATA_PREFIX: &[u8] = b"opendat 1 ";

/// One end of a DAT connection.
pub struct Connection {
    endpoint: Endpoint,
    /// The outgoing data, then the incoming data, then the guard.
    pub memory: MemoryRegion<'static>,
    peer: RemoteRegion,
    /// The size of the largest message in bytes.
    largest: usize,
    receives: EventDispatcher,
    /// The completions of requests.
    pub requests: EventDispatcher,
    connections: EventDispatcher,
    /// The number of requests that have not completed.
    pub outstanding: usize,
    /// The number of receives that have completed and were not posted again.
    unposted_receives: usize,
    wait: WaitMode,
}

/// A connection that waits for its peer.
pub struct Listening {
    connection: Connection,
    listener: dat::Listener,
}

impl Listening {
    /// Listens on a free connection qualifier.
    pub fn new(adapter: &Adapter, largest: usize, wait: WaitMode) -> Result<Self> {
        let connection = Connection::new(adapter, largest, wait)?;
        let listener = adapter.listen_any(&connection.connections)?;
        Ok(Listening { connection, listener })
    }

    /// Returns the connection qualifier.
    pub fn qualifier(&self) -> u64 {
        self.listener.qualifier()
    }

    /// Accepts the first request whose private data are valid.
    pub fn accept(mut self) -> Result<Connection> {
        let request = self
            .connection
            .connections
            .wait(Some(CONNECT_TIMEOUT))
            .context("waiting for the client")?
            .request()?;
        self.connection.peer = peer_memory(&request.private_data()?)?;
        let own = self.connection.own_private_data();
        request.accept(&mut self.connection.endpoint, &own)?;
        self.connection.established()?;
        Ok(self.connection)
    }
}

impl Connection {
    fn new(adapter: &Adapter, largest: usize, wait: WaitMode) -> Result<Self> {
        let limits = adapter.attributes();
        ensure!(
            largest <= limits.max_message as usize,
            "adapter {} sends at most {} bytes at once, but {largest} are needed",
            limits.adapter,
            limits.max_message
        );
        // Atomic operations need aligned incoming data.
        let largest = largest.next_multiple_of(ATOMIC_BYTES);
        let zone = adapter.zone()?;
        let access =
            if limits.extended { Access::ALL | Access::REMOTE_ATOMIC } else { Access::ALL };
        let memory = zone.register(vec![0; 2 * largest + GUARD_BYTES], access)?;
        let receives = adapter.dispatcher(POSTED_RECEIVES)?;
        let requests = adapter.dispatcher(2 * MAX_REQUESTS)?;
        let connections = adapter.dispatcher(8)?;
        let mut endpoint = adapter
            .endpoint()
            .zone(&zone)
            .receives(&receives)
            .requests(&requests)
            .connections(&connections)
            .max_receives(POSTED_RECEIVES)
            .max_requests(2 * MAX_REQUESTS)
            .max_reads(MAX_READS.min(limits.max_reads_out), MAX_READS.min(limits.max_reads_in))
            .create()?;
        let incoming = memory.segment(largest..2 * largest)?;
        for _ in 0..POSTED_RECEIVES {
            endpoint.post_receive(&[incoming], 0)?;
        }
        let peer = memory.remote(); // replaced when the peer's private data arrive
        Ok(Connection {
            endpoint,
            memory,
            peer,
            largest,
            receives,
            requests,
            connections,
            outstanding: 0,
            unposted_receives: 0,
            wait,
        })
    }

    /// Connects to a peer that is [`Listening`].
    pub fn connect(
        adapter: &Adapter,
        peer: Address,
        qualifier: u64,
        largest: usize,
        wait: WaitMode,
    ) -> Result<Self> {
        let mut connection = Connection::new(adapter, largest, wait)?;
        let own = connection.own_private_data();
        connection.endpoint.connect(peer, qualifier, &own, Some(CONNECT_TIMEOUT))?;
        let answer = connection.established().with_context(|| format!("connecting to {peer}"))?;
        connection.peer = peer_memory(&answer)?;
        Ok(connection)
    }

    fn own_private_data(&self) -> Vec<u8> {
        [PRIVATE_DATA_PREFIX, &self.memory.remote().to_bytes()].concat()
    }

    fn established(&mut self) -> Result<Vec<u8>> {
        let event =
            self.connections.wait(Some(CONNECT_TIMEOUT)).context("waiting for the connection")?;
        if let Event::Connection { event: ConnectionEvent::NonPeerRejected, .. } = event {
            // The server has said that it listens.
            bail!(
                "refused, although the other process listens: either the adapter connects only \
                 within one process, or the other process has too many requests to answer"
            );
        }
        Ok(event.established()?)
    }

    /// Disconnects, or waits for the peer's disconnect.
    pub fn disconnect(mut self) -> Result<()> {
        self.endpoint.disconnect(Close::Graceful)?;
        Ok(self
            .connections
            .wait(Some(CONNECT_TIMEOUT))
            .context("waiting for the disconnection")?
            .disconnected()?)
    }

    /// Returns the segment of the outgoing data of this size.
    pub fn outgoing(&self, size: usize) -> Result<Segment> {
        Ok(self.memory.segment(0..size)?)
    }

    /// Returns the offset at which incoming data begin in the memory.
    pub fn incoming_offset(&self) -> usize {
        self.largest
    }

    /// Posts a send of the outgoing data.
    #[inline]
    pub fn send(&mut self, data: Segment) -> Result<()> {
        self.endpoint.post_send(&[data], 0, Flags::default())?;
        self.outstanding += 1;
        Ok(())
    }

    /// Posts a notification.
    #[inline]
    pub fn notify(&mut self) -> Result<()> {
        self.endpoint.post_send(&[], 0, Flags::default())?;
        self.outstanding += 1;
        Ok(())
    }

    /// Posts an RDMA write from the outgoing data to the peer's incoming data.
    #[inline]
    pub fn write(&mut self, size: usize) -> Result<()> {
        self.post_write(size, Flags::default())?;
        self.outstanding += 1;
        Ok(())
    }

    /// Posts a write as [`write`](Self::write) does, and a notification after it. Only the
    /// notification has a completion, which also covers the write.
    #[inline]
    pub fn write_and_notify(&mut self, size: usize) -> Result<()> {
        self.post_write(size, Flags::SUPPRESS)?;
        self.notify()
    }

    /// Posts a write as [`write`](Self::write) does, with these flags. It does not count as
    /// outstanding.
    #[inline]
    pub fn post_write(&mut self, size: usize, flags: Flags) -> Result<()> {
        let local = self.memory.segment(0..size)?;
        let remote = self.peer.segment(self.largest..self.largest + size)?;
        Ok(self.endpoint.post_write(&[local], remote, 0, flags)?)
    }

    /// Posts an RDMA read, or an atomic operation on the first word of the peer's outgoing data.
    #[inline]
    pub fn post_read_or_atomic(&mut self, operation: Operation, size: usize) -> Result<()> {
        if !operation.is_atomic() {
            return self.read(size);
        }
        let local = self.memory.segment(self.largest..self.largest + ATOMIC_BYTES)?;
        let remote = self.peer.segment(0..ATOMIC_BYTES)?;
        match operation {
            Operation::CompareSwap => {
                self.endpoint.post_compare_swap(local, remote, (0, 0), 0, Flags::default())?;
            }
            _ => self.endpoint.post_fetch_add(local, remote, 1, 0, Flags::default())?,
        }
        self.outstanding += 1;
        Ok(())
    }

    /// Sets how later calls wait.
    pub fn set_wait(&mut self, wait: WaitMode) {
        self.wait = wait;
    }

    /// Posts an RDMA read from the peer's outgoing data to the incoming data of this side.
    #[inline]
    fn read(&mut self, size: usize) -> Result<()> {
        let local = self.memory.segment(self.largest..self.largest + size)?;
        let remote = self.peer.segment(0..size)?;
        self.endpoint.post_read(&[local], remote, 0, Flags::default())?;
        self.outstanding += 1;
        Ok(())
    }

    /// Waits for a message and posts the receive again. Returns the length of the message.
    #[inline]
    pub fn receive(&mut self) -> Result<usize> {
        let length = self.take_message()?;
        self.post_receives()?;
        Ok(length)
    }

    /// Waits for a message and returns its length. [`post_receives`](Self::post_receives) posts the
    /// receive again when there is time.
    #[inline]
    pub fn take_message(&mut self) -> Result<usize> {
        self.take_message_within(PEER_TIMEOUT)
    }

    #[inline]
    fn take_message_within(&mut self, limit: Duration) -> Result<usize> {
        let completion = next_completion(&mut self.receives, self.wait, "a message", limit)?;
        self.unposted_receives += 1;
        Ok(completion.length as usize)
    }

    /// Posts the completed receives again.
    #[inline]
    pub fn post_receives(&mut self) -> Result<()> {
        while self.unposted_receives > 0 {
            self.unposted_receives -= 1;
            let incoming = self.memory.segment(self.largest..2 * self.largest)?;
            self.endpoint.post_receive(&[incoming], 0)?;
        }
        Ok(())
    }

    /// Returns the length of a message if one has arrived.
    #[inline]
    pub fn try_receive(&mut self) -> Result<Option<usize>> {
        match self.receives.dequeue()? {
            Some(event) => {
                let length = expect_success(event)?.length as usize;
                self.unposted_receives += 1;
                self.post_receives()?;
                Ok(Some(length))
            }
            None => Ok(None),
        }
    }

    /// Waits for a message that must be a notification.
    pub fn receive_notification(&mut self) -> Result<()> {
        self.receive_notification_within(PEER_TIMEOUT)
    }

    /// As [`receive_notification`](Self::receive_notification), with a time limit.
    pub fn receive_notification_within(&mut self, limit: Duration) -> Result<()> {
        let length = self.take_message_within(limit)?;
        self.post_receives()?;
        match length {
            0 => Ok(()),
            length => bail!("expected a notification, got a message of {length} bytes"),
        }
    }

    /// Takes the completions that have already arrived.
    #[inline]
    pub fn reap(&mut self) -> Result<()> {
        while self.outstanding > 0
            && let Some(event) = self.requests.dequeue()?
        {
            expect_success(event)?;
            self.outstanding -= 1;
        }
        Ok(())
    }

    /// Waits until at most `left` requests are outstanding.
    #[inline]
    pub fn complete(&mut self, left: usize) -> Result<()> {
        while self.outstanding > left {
            next_completion(&mut self.requests, self.wait, "a completion", PEER_TIMEOUT)?;
            self.outstanding -= 1;
        }
        Ok(())
    }
}

/// Decodes a peer's memory from its private data.
fn peer_memory(private_data: &[u8]) -> Result<RemoteRegion> {
    private_data
        .strip_prefix(PRIVATE_DATA_PREFIX)
        .and_then(RemoteRegion::from_bytes)
        .context("the private data of the other process did not arrive as it was sent")
}

#[inline]
fn next_completion(
    events: &mut EventDispatcher,
    wait: WaitMode,
    what: &str,
    limit: Duration,
) -> Result<Completion> {
    let event = match wait {
        // Not `with_context`, which would copy each event.
        WaitMode::Block => match events.wait(Some(limit)) {
            Ok(event) => event,
            Err(error) => return Err(error).with_context(|| format!("waiting for {what}")),
        },
        WaitMode::Poll => {
            let mut poll_limit = wait.poll_limit(limit);
            loop {
                match events.dequeue()? {
                    Some(event) => break event,
                    None => poll_limit.check(what)?,
                }
            }
        }
    };
    expect_success(event)
}

/// Returns the completion of an operation that succeeded.
#[inline]
pub fn expect_success(event: Event) -> Result<Completion> {
    match event {
        Event::Completion(completion) if completion.status == Status::Success => Ok(completion),
        Event::Completion(failed) => bail!("{} failed: {}", failed.operation, failed.status),
        other => bail!("expected a completion, got {other:?}"),
    }
}
