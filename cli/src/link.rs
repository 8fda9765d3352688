//! A DAT connection between the two processes, with the memory that they use on each other.
//!
//! Every receive takes a whole message, up to the largest, into one place; as many as [`RECEIVES`] are always posted. A
//! message without content is a note. A sender stays within what is posted at the other side: notes from there say that
//! another [`CREDIT`] were posted.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dat::{
    Access, Adapter, Address, Close, Completion, Endpoint, Event, EventDispatcher, Flags,
    MemoryRegion, RemoteRegion, Segment, Status,
};

use crate::measure::{Operation, PATIENCE, WORD, Wait};

/// Receives that are always posted.
pub(crate) const RECEIVES: usize = 512;
/// After so many messages of a stream the receiver sends a note.
pub(crate) const CREDIT: usize = 128;
/// Requests outstanding at most, notes included; besides each, a write that does not complete by itself.
pub(crate) const REQUESTS: usize = 128;
/// RDMA reads outstanding at most, each way; more wait at the reader.
const READS: usize = 16;
/// Bytes behind the incoming data, which nothing may change.
pub(crate) const GUARD: usize = 64;

/// What each side tells the other in private data, before the description of its memory.
const GREETING: &[u8] = b"opendat 1 ";

/// One end of a DAT connection.
pub(crate) struct Link {
    endpoint: Endpoint,
    /// First the outgoing data, then the incoming, then the guard.
    pub(crate) memory: MemoryRegion<'static>,
    peer: RemoteRegion,
    /// Bytes of the largest message.
    largest: usize,
    receives: EventDispatcher,
    requests: EventDispatcher,
    connections: EventDispatcher,
    /// Requests that have not completed.
    pub(crate) outstanding: usize,
    /// Receives that have completed and not been posted again.
    taken: usize,
    marks: Marks,
    pace: Pace,
    wait: Wait,
}

/// The last numbers that were written for a peer that watches its memory, and seen in our own.
#[derive(Default)]
struct Marks {
    sent: u8,
    seen: u8,
}

/// How often DAT has been called besides, over all messages: most take less time than there is between two calls.
struct Pace {
    since: Instant,
    /// Calls that were due so far. Those of a time in which nobody watched are made good by one.
    due: u128,
}

impl Pace {
    /// Whether a call is due, of so many a millisecond.
    fn is_due(&mut self, now: Instant, calls: u32) -> bool {
        let due = (now - self.since).as_micros() * u128::from(calls) / 1000;
        std::mem::replace(&mut self.due, due) < due
    }
}

/// A link that waits for its peer.
pub(crate) struct Listening {
    link: Link,
    listener: dat::Listener,
}

impl Listening {
    /// Listens on a free connection qualifier.
    pub(crate) fn new(adapter: &Adapter, largest: usize, wait: Wait) -> Result<Self> {
        let link = Link::new(adapter, largest, wait)?;
        let listener = adapter.listen_any(&link.connections)?;
        Ok(Listening { link, listener })
    }

    pub(crate) fn qualifier(&self) -> u64 {
        self.listener.qualifier()
    }

    /// Takes the first request that knows the greeting.
    pub(crate) fn accept(mut self) -> Result<Link> {
        let request = self
            .link
            .connections
            .wait(Some(PATIENCE))
            .context("waiting for the client")?
            .request()?;
        self.link.peer = introduction(&request.private_data()?)?;
        let own = self.link.introduce();
        request.accept(&mut self.link.endpoint, &own)?;
        self.link.established()?;
        Ok(self.link)
    }
}

impl Link {
    fn new(adapter: &Adapter, largest: usize, wait: Wait) -> Result<Self> {
        let limits = adapter.attributes();
        ensure!(
            largest <= limits.max_message as usize,
            "adapter {} sends at most {} bytes at once; needed are {largest}",
            limits.adapter,
            limits.max_message
        );
        // Incoming data are aligned as atomic operations want it.
        let largest = largest.next_multiple_of(WORD);
        let zone = adapter.zone()?;
        let access =
            if limits.extended { Access::ALL | Access::REMOTE_ATOMIC } else { Access::ALL };
        let memory = zone.register(vec![0; 2 * largest + GUARD], access)?;
        let receives = adapter.dispatcher(RECEIVES)?;
        let requests = adapter.dispatcher(2 * REQUESTS)?;
        let connections = adapter.dispatcher(8)?;
        let mut endpoint = adapter
            .endpoint()
            .zone(&zone)
            .receives(&receives)
            .requests(&requests)
            .connections(&connections)
            .max_receives(RECEIVES)
            .max_requests(2 * REQUESTS)
            .max_reads(READS.min(limits.max_reads_out), READS.min(limits.max_reads_in))
            .create()?;
        let incoming = memory.segment(largest..2 * largest)?;
        for _ in 0..RECEIVES {
            endpoint.post_receive(&[incoming], 0)?;
        }
        let peer = memory.remote(); // until the peer has introduced itself
        Ok(Link {
            endpoint,
            memory,
            peer,
            largest,
            receives,
            requests,
            connections,
            outstanding: 0,
            taken: 0,
            marks: Marks::default(),
            pace: Pace { since: Instant::now(), due: 0 },
            wait,
        })
    }

    /// Connects to a peer that is [`Listening`].
    pub(crate) fn connect(
        adapter: &Adapter,
        peer: Address,
        qualifier: u64,
        largest: usize,
        wait: Wait,
    ) -> Result<Self> {
        let mut link = Link::new(adapter, largest, wait)?;
        let own = link.introduce();
        link.endpoint.connect(peer, qualifier, &own, Some(PATIENCE))?;
        let answer = link.established().with_context(|| format!("connecting to {peer}"))?;
        link.peer = introduction(&answer)?;
        Ok(link)
    }

    fn introduce(&self) -> Vec<u8> {
        [GREETING, &self.memory.remote().to_bytes()].concat()
    }

    fn established(&mut self) -> Result<Vec<u8>> {
        Ok(self
            .connections
            .wait(Some(PATIENCE))
            .context("waiting for the connection")?
            .established()?)
    }

    /// Ends the connection, or sees it end.
    pub(crate) fn disconnect(mut self) -> Result<()> {
        self.endpoint.disconnect(Close::Graceful)?;
        Ok(self
            .connections
            .wait(Some(PATIENCE))
            .context("waiting for the disconnection")?
            .disconnected()?)
    }

    /// The outgoing data, of some size.
    pub(crate) fn outgoing(&self, size: usize) -> Result<Segment> {
        Ok(self.memory.segment(0..size)?)
    }

    /// Where incoming data begins in the memory.
    pub(crate) fn incoming_at(&self) -> usize {
        self.largest
    }

    /// Posts a send of the outgoing data.
    #[inline]
    pub(crate) fn send(&mut self, data: Segment) -> Result<()> {
        self.endpoint.post_send(&[data], 0, Flags::default())?;
        self.outstanding += 1;
        Ok(())
    }

    /// Posts a note.
    #[inline]
    pub(crate) fn note(&mut self) -> Result<()> {
        self.endpoint.post_send(&[], 0, Flags::default())?;
        self.outstanding += 1;
        Ok(())
    }

    /// Posts an RDMA write of the outgoing data to where the peer has incoming data.
    #[inline]
    pub(crate) fn write(&mut self, size: usize) -> Result<()> {
        self.post_write(size, Flags::default())?;
        self.outstanding += 1;
        Ok(())
    }

    /// As [`write`](Self::write), and a note that announces it. Only the note reports that it is done, and with it the
    /// write.
    #[inline]
    pub(crate) fn write_and_note(&mut self, size: usize) -> Result<()> {
        self.post_write(size, Flags::SUPPRESS)?;
        self.note()
    }

    #[inline]
    fn post_write(&mut self, size: usize, flags: Flags) -> Result<()> {
        let local = self.memory.segment(0..size)?;
        let remote = self.peer.segment(self.largest..self.largest + size)?;
        Ok(self.endpoint.post_write(&[local], remote, 0, flags)?)
    }

    /// As [`write`](Self::write), with another number in the last octet each time. It does not report that it is done.
    pub(crate) fn write_marked(&mut self, size: usize) -> Result<()> {
        self.marks.sent = self.marks.sent.wrapping_add(1);
        self.memory.store(size - 1, &[self.marks.sent])?;
        self.post_write(size, Flags::SUPPRESS)
    }

    /// Reads the last octet of what the peer writes until it is the next number, and looks for a completion,
    /// of which there is none, so many times a millisecond.
    pub(crate) fn watch(&mut self, size: usize, calls: u32) -> Result<()> {
        const LOOKS: u32 = 32;
        self.marks.seen = self.marks.seen.wrapping_add(1);
        let start = Instant::now();
        let mut last = [0];
        loop {
            for _ in 0..LOOKS {
                self.memory.load(self.largest + size - 1, &mut last)?;
                if last == [self.marks.seen] {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            ensure!(
                now - start < PATIENCE,
                "waited {} s for what the other process has written",
                PATIENCE.as_secs()
            );
            if self.pace.is_due(now, calls) {
                ensure!(
                    self.requests.dequeue()?.is_none(),
                    "a write completed that was not to tell of it"
                );
            }
        }
    }

    /// Posts what is answered: an RDMA read, or an atomic operation on the first of the peer's outgoing data.
    #[inline]
    pub(crate) fn ask(&mut self, operation: Operation, size: usize) -> Result<()> {
        if !operation.is_atomic() {
            return self.read(size);
        }
        let local = self.memory.segment(self.largest..self.largest + WORD)?;
        let remote = self.peer.segment(0..WORD)?;
        match operation {
            Operation::CompareSwap => {
                self.endpoint.post_compare_swap(local, remote, (0, 0), 0, Flags::default())?;
            }
            _ => self.endpoint.post_fetch_add(local, remote, 1, 0, Flags::default())?,
        }
        self.outstanding += 1;
        Ok(())
    }

    /// How it waits from here on.
    pub(crate) fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }

    /// Posts an RDMA read of the peer's outgoing data to where we have incoming data.
    #[inline]
    fn read(&mut self, size: usize) -> Result<()> {
        let local = self.memory.segment(self.largest..self.largest + size)?;
        let remote = self.peer.segment(0..size)?;
        self.endpoint.post_read(&[local], remote, 0, Flags::default())?;
        self.outstanding += 1;
        Ok(())
    }

    /// Waits for a message; its length. The receive is posted again.
    #[inline]
    pub(crate) fn receive(&mut self) -> Result<usize> {
        let length = self.take()?;
        self.post_receives()?;
        Ok(length)
    }

    /// Waits for a message; its length. The receive is posted by [`post_receives`](Self::post_receives), once
    /// there is time.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<usize> {
        self.take_within(PATIENCE)
    }

    #[inline]
    fn take_within(&mut self, limit: Duration) -> Result<usize> {
        let completion = next(&mut self.receives, self.wait, "a message", limit)?;
        self.taken += 1;
        Ok(completion.length as usize)
    }

    /// Posts again what was taken.
    #[inline]
    pub(crate) fn post_receives(&mut self) -> Result<()> {
        while self.taken > 0 {
            self.taken -= 1;
            let incoming = self.memory.segment(self.largest..2 * self.largest)?;
            self.endpoint.post_receive(&[incoming], 0)?;
        }
        Ok(())
    }

    /// A message, if there is one.
    #[inline]
    pub(crate) fn try_receive(&mut self) -> Result<Option<usize>> {
        match self.receives.dequeue()? {
            Some(event) => {
                let length = successful(event)?.length as usize;
                self.taken += 1;
                self.post_receives()?;
                Ok(Some(length))
            }
            None => Ok(None),
        }
    }

    /// Waits for a message that has to be a note.
    pub(crate) fn receive_note(&mut self) -> Result<()> {
        self.receive_note_within(PATIENCE)
    }

    /// As [`receive_note`](Self::receive_note), for so long.
    pub(crate) fn receive_note_within(&mut self, limit: Duration) -> Result<()> {
        let length = self.take_within(limit)?;
        self.post_receives()?;
        match length {
            0 => Ok(()),
            length => bail!("expected a note, got a message of {length} bytes"),
        }
    }

    /// Takes the completions of requests that are known to be there.
    #[inline]
    pub(crate) fn reap(&mut self) -> Result<()> {
        while self.outstanding > 0
            && let Some(event) = self.requests.dequeue()?
        {
            successful(event)?;
            self.outstanding -= 1;
        }
        Ok(())
    }

    /// Waits until at most `left` requests are outstanding.
    #[inline]
    pub(crate) fn complete(&mut self, left: usize) -> Result<()> {
        while self.outstanding > left {
            next(&mut self.requests, self.wait, "a completion", PATIENCE)?;
            self.outstanding -= 1;
        }
        Ok(())
    }
}

/// The memory of a peer, from its private data.
fn introduction(private_data: &[u8]) -> Result<RemoteRegion> {
    private_data
        .strip_prefix(GREETING)
        .and_then(RemoteRegion::from_bytes)
        .context("the private data of the other process did not arrive as it was sent")
}

#[inline]
fn next(
    events: &mut EventDispatcher,
    wait: Wait,
    what: &str,
    limit: Duration,
) -> Result<Completion> {
    let event = match wait {
        Wait::Block => events.wait(Some(limit)).with_context(|| format!("waiting for {what}"))?,
        Wait::Poll => {
            let mut patience = wait.patience(limit);
            loop {
                match events.dequeue()? {
                    Some(event) => break event,
                    None => patience.spend(what)?,
                }
            }
        }
    };
    successful(event)
}

#[inline]
fn successful(event: Event) -> Result<Completion> {
    match event {
        Event::Completion(completion) if completion.status == Status::Success => Ok(completion),
        Event::Completion(failed) => bail!("{} failed: {}", failed.operation, failed.status),
        other => bail!("expected a completion, got {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Calls that are due when somebody looks at the clock each `step` microseconds, for `steps` times.
    fn calls(step: u64, steps: u32, calls: u32) -> usize {
        let since = Instant::now();
        let mut pace = Pace { since, due: 0 };
        (1..=steps)
            .filter(|&at| pace.is_due(since + at * Duration::from_micros(step), calls))
            .count()
    }

    #[test]
    fn calls_are_counted_over_all_messages() {
        assert_eq!(calls(7, 1000, 1), 7, "each look is a message of its own");
        assert_eq!(calls(7, 1000, 100), 700);
        assert_eq!(calls(7, 1000, 0), 0);
        assert_eq!(calls(5000, 2, 1), 2, "what is late is made good by one");
    }
}
