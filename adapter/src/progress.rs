//! The calls by which threads make progress with an engine.

use std::time::Instant;

use mio::event::Event;

/// The part of an engine that makes progress. The caller of each method holds the engine lock, so
/// there is one call at a time.
pub trait MakeProgress: Send + Sized + 'static {
    /// The name of the provider. The progress thread has the same name.
    const NAME: &'static str;
    /// The engine's data about a connection request. The consumer holds them until it answers the
    /// request.
    type RequestData: Send + Sync + 'static;

    /// Makes progress when a consumer's thread polls, perhaps a million times a second. The engine
    /// reads the sockets that are likely to have data, without asking the poller, and does the work
    /// of [`advance`](Self::advance) when that work is due.
    fn poll(&mut self) -> Progress;
    /// Handles an event of the poller. The poller reports each event only once, so the engine must
    /// remember a socket from which it has not read all data.
    fn on_event(&mut self, event: &Event);
    /// Continues leftover work and serves timers. Every pass except [`poll`](Self::poll) calls
    /// this, after the queue pairs with a doorbell have transmitted.
    fn advance(&mut self);
    /// Sends what the engine has gathered but not sent yet. The adapter calls this each time before
    /// it releases the engine lock, and before [`remaining`](Self::remaining).
    fn flush(&mut self) {}
    /// Returns the work that remains when the engine lock is about to be released. If more work
    /// arrives before the lock is released, this method is called again.
    fn remaining(&mut self) -> Remaining;

    /// Returns whether the data that arrived last belong to an incomplete message. Returns true
    /// only once for each arrival of data.
    fn take_partial(&mut self) -> bool {
        false
    }

    /// Returns whether the engine has closed connections whose end it has not reported to the
    /// consumer yet.
    ///
    /// If a peer sends data on one connection and then ends another one, the consumer must see the
    /// data first. But the engine may read the end of the second connection before the poller has
    /// reported the data of the first one. So an engine with one socket per connection only records
    /// the end. The adapter calls [`finish_closed`](Self::finish_closed) when all events of the
    /// poller have been handled.
    fn has_closed(&self) -> bool {
        false
    }
    /// Removes the list of closed connections that are not reported yet from the engine and returns
    /// it.
    fn take_closed(&mut self) -> Vec<usize> {
        Vec::new()
    }
    /// Reports to the consumer the end of the connections that `take_closed` has returned.
    fn finish_closed(&mut self, _closed: Vec<usize>) {}

    /// Transmits the requests of a queue pair, or flushes them if its connection has ended. If a
    /// message waits for a receive, and the consumer has posted a receive, takes the message.
    fn transmit(&mut self, qp: usize);
    /// Refuses a connection request that the consumer has dropped without an answer. By default,
    /// only drops the engine's data about the request.
    fn refuse(&mut self, _request: Self::RequestData) {}
}

/// The outcome of a pass of a consumer's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Data moved.
    Moved,
    /// No data moved.
    Nothing,
    /// No data moved, and the latest result of [`MakeProgress::remaining`] is still valid.
    Idle,
    /// The poller may have events that the pass did not handle.
    AskPoller,
}

/// The work that remains when the engine lock is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    /// Whether the engine can do more work at once.
    pub at_once: bool,
    /// The time at which the next timer expires.
    pub deadline: Option<Instant>,
}
