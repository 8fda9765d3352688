//! What a provider supplies: the engine of an open adapter.

use std::sync::Arc;
use std::time::Instant;

use dat_core::Result;
use dat_core::provider::{Allocated, Close, Connect, Port, ReadDepth};
use mio::event::Event;
use rnic::Work;

use crate::transport::{Adapter, Shared};

/// Connections, listeners and timers of an adapter: everything that touches sockets. The caller of
/// each method holds the engine lock, so there is one call at a time.
///
/// The engine chooses small numbers as the names of its objects. It may make upcalls at any time,
/// within dat-core's [contract](dat_core::provider).
///
/// # Safety
/// The engine uses the arguments of [`Engine::add_qp`], and everything derived from them, only
/// inside of the methods of this trait and not after [`Engine::remove_qp`]. After `remove_qp` or
/// [`Engine::close`] the engine does not call the sink of the removed object any more.
pub unsafe trait Engine: Send + Sized + 'static {
    /// The name of the provider, which is also the name of its thread.
    const NAME: &'static str;
    /// Whether the adapter has work before it listens or connects, so that its progress thread
    /// starts when the adapter is opened.
    const STARTS_PROGRESS_THREAD: bool = false;
    /// The name of a connection request that the consumer has not answered. No name is used twice.
    type RequestId: Copy + Send + 'static;

    /// Makes progress when a consumer's thread polls, perhaps a million times a second. The engine
    /// reads the sockets that are likely to have data, without asking the poller, and does the work
    /// of [`advance`](Self::advance) when that work is due.
    fn poll(&mut self) -> Progress;
    /// Handles an event of the poller. The poller reports an edge once, so the engine must remember
    /// a socket that it does not read empty.
    fn on_event(&mut self, event: &Event);
    /// Continues leftover work and serves timers. Every pass except [`poll`](Self::poll) calls
    /// this, after the queue pairs with a doorbell have transmitted.
    fn advance(&mut self);
    /// Returns the work that remains when the engine lock is about to be released. If more work
    /// arrives before the lock is released, this method is called again.
    fn remaining(&mut self) -> Remaining;

    /// Returns whether the data that arrived last belong to a message of which a part is still
    /// missing. Returns true only once for each arrival of data.
    fn take_partial(&mut self) -> bool {
        false
    }

    /// Returns whether connections are closed whose end has not been reported yet.
    ///
    /// If a peer sends data on one connection and then ends another one, the consumer must see the
    /// data first. But reading one socket may show its end before the poller was asked about the
    /// others. So an engine with one socket per connection only records the end. The adapter calls
    /// [`Engine::finish_closed`] when all events of the poller have been handled.
    fn has_closed(&self) -> bool {
        false
    }
    /// Takes the connections that are closed and not yet reported from the engine.
    fn take_closed(&mut self) -> Vec<usize> {
        Vec::new()
    }
    /// Reports the end of the connections that `take_closed` has returned.
    fn finish_closed(&mut self, _closed: Vec<usize>) {}

    /// Adds a queue pair. `sink` receives its upcalls; `work` is the side of its queues that
    /// completes.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES` if the protocol has no queue pair number left.
    fn add_qp(&mut self, sink: Sink<Self>, work: Work) -> Result<Arc<Shared>>;
    /// Removes a queue pair and its connection. Afterwards there are no upcalls for the queue pair.
    fn remove_qp(&mut self, qp: usize);
    /// Transmits the requests of a queue pair. If its connection has ended, flushes them. If a
    /// message waits for a receive, and a receive is posted now, takes the message.
    fn transmit(&mut self, qp: usize);
    /// Requests a connection: see [`Queue::connect`](dat_core::provider::Queue::connect).
    fn connect(&mut self, qp: usize, to: &Connect<'_>) -> Result<()>;
    /// Accepts a connection request: see [`Queue::accept`](dat_core::provider::Queue::accept).
    fn accept(
        &mut self,
        qp: usize,
        call: Self::RequestId,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<()>;
    /// Ends a connection: see [`Queue::disconnect`](dat_core::provider::Queue::disconnect).
    fn disconnect(&mut self, qp: usize, how: Close);
    /// Counts receive buffers: see [`Queue::allocated`](dat_core::provider::Queue::allocated).
    fn allocated(&mut self, qp: usize) -> Allocated;

    /// The counters of the adapter's connections, including those that have ended. See
    /// [`Transport::counters`](dat_core::provider::Transport::counters).
    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Opens a listener and returns its number and its port. See
    /// [`Transport::listen`](dat_core::provider::Transport::listen).
    fn listen(&mut self, port: Port, backlog: usize, sink: Sink<Self>) -> Result<(usize, u16)>;
    /// Closes a listener. Requests that the consumer already has stay valid.
    fn close(&mut self, listener: usize);
    /// Rejects a request with the consumer's private data.
    fn reject(&mut self, call: Self::RequestId, private: &[u8]) -> Result<()>;
    /// Refuses a request that the consumer has dropped.
    fn refuse(&mut self, call: Self::RequestId);
}

/// The outcome of a pass of a consumer's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Data moved.
    Moved,
    /// No data moved.
    Nothing,
    /// No data moved, and the latest result of [`Engine::remaining`] is still valid.
    Idle,
    /// The poller may know of events that the pass did not handle.
    AskPoller,
}

/// The work that remains when the engine lock is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    /// More work can be done at once.
    pub at_once: bool,
    /// The time at which the next timer expires.
    pub deadline: Option<Instant>,
}

/// The receiver of an engine's upcalls.
pub type Sink<E> = dat_core::provider::Sink<Adapter<E>>;
/// An upcall of an engine.
pub type Upcall<'a, E> = dat_core::provider::Upcall<'a, Adapter<E>>;
