//! What a provider supplies: the engine of one open adapter.

use std::sync::Arc;
use std::time::Instant;

use dat_core::Result;
use dat_core::provider::{Allocated, Close, Connect, Port, ReadDepth};
use mio::event::Event;
use rnic::Work;

use crate::transport::{Adapter, Shared};

/// Connections, service points and timers of an adapter: all that touches sockets. The caller holds the
/// engine lock, so there is one call at a time.
///
/// Objects are named by small numbers, which the engine chooses. It makes upcalls whenever it likes, as dat-core's
/// [contract](dat_core::provider) says.
///
/// # Safety
/// What [`Engine::add_qp`] is given of a queue pair, and whatever is made of it, is used inside these calls
/// alone, and not any more after [`Engine::remove_qp`]. After that or [`Engine::close`] the sink that came
/// with the object is not called any more.
pub unsafe trait Engine: Send + Sized + 'static {
    /// The provider's name, for its thread.
    const NAME: &'static str;
    /// The adapter has news before it listens or connects, so that its background thread starts when it is opened.
    const STARTS_PROGRESS_THREAD: bool = false;
    /// Names somebody who called at a service point, and whose request the consumer has. Never used twice.
    type RequestId: Copy + Send + 'static;

    /// Called when a consumer's thread polls, perhaps a million times a second. It looks at the sockets that
    /// are likely to have news, without asking the poller, and does what [`advance`](Self::advance) does
    /// where it is time.
    fn poll(&mut self) -> Progress;
    /// The poller has reported a socket. Edges are reported once: the engine keeps in mind what it leaves there.
    fn on_event(&mut self, event: &Event);
    /// Any other pass, after marked queue pairs have transmitted: what was left over, and what is due.
    fn advance(&mut self);
    /// Says what is still to do, before the engine lock is released. It is called again if work comes in meanwhile.
    fn remaining(&mut self) -> Remaining;

    /// Whether what came last was a part of a message whose rest has not come; asked once for each part.
    fn take_partial(&mut self) -> bool {
        false
    }

    /// Whether connections are over that have not ended yet.
    ///
    /// What a peer did on one connection before it ended another is to be seen in that order. But a look at a
    /// socket may see its end before anybody has asked the poller about the others; so an engine with a
    /// socket for each connection only makes a note, and [`Engine::finish_closed`] is called when all that
    /// the poller knew has been seen.
    fn has_closed(&self) -> bool {
        false
    }
    /// These connections, taken from the engine.
    fn take_closed(&mut self) -> Vec<usize> {
        Vec::new()
    }
    /// Ends them.
    fn finish_closed(&mut self, _closed: Vec<usize>) {}

    /// A new queue pair: where its upcalls go, and the side of its queues that completes.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES` when the wire has no names left.
    fn add_qp(&mut self, sink: Sink<Self>, work: Work) -> Result<Arc<Shared>>;
    /// A queue pair goes away, and its connection with it: no upcalls any more.
    fn remove_qp(&mut self, qp: usize);
    /// Sends what a queue pair has been given; where its connection has ended, flushes it; where a message
    /// has waited for a receive and there is one, takes it.
    fn transmit(&mut self, qp: usize);
    /// See [`Queue::connect`](dat_core::provider::Queue::connect).
    fn connect(&mut self, qp: usize, to: &Connect<'_>) -> Result<()>;
    /// See [`Queue::accept`](dat_core::provider::Queue::accept).
    fn accept(
        &mut self,
        qp: usize,
        call: Self::RequestId,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<()>;
    /// See [`Queue::disconnect`](dat_core::provider::Queue::disconnect).
    fn disconnect(&mut self, qp: usize, how: Close);
    /// See [`Queue::allocated`](dat_core::provider::Queue::allocated).
    fn allocated(&mut self, qp: usize) -> Allocated;

    /// What its connections have done, those that are over included. See
    /// [`Transport::counters`](dat_core::provider::Transport::counters).
    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Opens a service point; says its number and its port. See
    /// [`Transport::listen`](dat_core::provider::Transport::listen).
    fn listen(&mut self, port: Port, backlog: usize, sink: Sink<Self>) -> Result<(usize, u16)>;
    /// Closes a service point. Callers whose requests the consumer has wait on for its answer.
    fn close(&mut self, listener: usize);
    /// The consumer refuses a request, with private data.
    fn reject(&mut self, call: Self::RequestId, private: &[u8]) -> Result<()>;
    /// The consumer has dropped a request.
    fn refuse(&mut self, call: Self::RequestId);
}

/// What came of a consumer's pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something moved.
    Moved,
    /// Nothing did.
    Nothing,
    /// Nothing did, and what [`Engine::remaining`] said last is true still.
    Idle,
    /// The poller may know of something that the pass did not look at.
    AskPoller,
}

/// What is still to do when the engine lock is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    /// There is more to do at once.
    pub at_once: bool,
    /// When the next timer is due.
    pub deadline: Option<Instant>,
}

/// What upcalls of an engine go to.
pub type Sink<E> = dat_core::provider::Sink<Adapter<E>>;
/// What upcalls of an engine say.
pub type Upcall<'a, E> = dat_core::provider::Upcall<'a, Adapter<E>>;
