//! The wire: each open adapter has a queue, into which others put messages.
//!
//! Messages are read in the order in which they were sent, and none is lost. So nothing has to be
//! acknowledged, and everything that a peer did before it ended a connection is seen before the
//! end.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use rustix::event::{EventfdFlags, eventfd};
use work::ReadDepth;

/// A message between adapters.
pub(crate) enum Message {
    /// To a listener: a queue pair requests a connection, with private data.
    ConnectRequest(ConnectionEnd, Vec<u8>),
    /// To the connecting side: the consumer accepts, with private data.
    Accept(ConnectionEnd, Vec<u8>),
    /// To the connecting side: the consumer rejects, with private data.
    Reject(Vec<u8>),
    /// To the accepting side: the connecting side has received the accept.
    Ready,
    /// iWARP frames.
    Frames(Vec<u8>),
    /// The receiver has received this number of octets of frames.
    Credit(usize),
    /// The other end of the connection does not exist or has been dropped.
    Closed,
}

/// One end of a connection or of a connection attempt. Dropping this value notifies the other end.
pub struct ConnectionEnd {
    pub(crate) peer: Destination,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) depth: ReadDepth,
}

impl Drop for ConnectionEnd {
    fn drop(&mut self) {
        self.peer.send(Message::Closed);
    }
}

/// The queue of messages to an adapter.
pub(crate) struct MessageQueue {
    messages: Mutex<Vec<(usize, Message)>>,
    /// A file that is readable as long as there are messages. It wakes a thread that sleeps in the
    /// adapter's poller.
    pub(crate) event_fd: File,
}

/// A queue pair or a listener in any adapter of the process.
#[derive(Clone)]
pub(crate) struct Destination {
    pub(crate) queue: Weak<MessageQueue>,
    pub(crate) id: usize,
}

impl Destination {
    pub(crate) fn send(&self, message: Message) {
        // If the queue does not exist any more, the peer's adapter has been closed. The message is
        // then dropped. If it contains a connection end, the drop notifies the sender.
        let Some(queue) = self.queue.upgrade() else { return };
        let mut messages = lock(&queue.messages);
        if messages.is_empty() {
            // The counter never overflows, because `take` resets it.
            (&queue.event_fd).write_all(&1_u64.to_ne_bytes()).ok();
        }
        messages.push((self.id, message));
    }
}

impl MessageQueue {
    pub(crate) fn new() -> io::Result<Self> {
        let event_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(MessageQueue { messages: Mutex::default(), event_fd: event_fd.into() })
    }

    /// Takes all messages with the IDs of their receivers.
    pub(crate) fn take(&self) -> Vec<(usize, Message)> {
        let mut messages = lock(&self.messages);
        if !messages.is_empty() {
            (&self.event_fd).read_exact(&mut [0; 8]).ok();
        }
        std::mem::take(&mut messages)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
