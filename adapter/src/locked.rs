//! What the engine lock protects: the engine, and the work that other threads have deferred to its holder.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::event::Event;

use crate::engine::{Engine, Progress, Remaining};
use crate::engine_lock::Deferring;
use crate::reactor::{POLLING_INTERVAL_LIMIT, WAKER};
use crate::shared::{DeferredWork, SharedState};

/// How long a consumer's call waits for the rest of a message while nothing comes.
const STAY: Duration = Duration::from_micros(100);
/// How long it waits in all.
const LONGEST_STAY: Duration = Duration::from_micros(200);

/// What came of staying.
pub(crate) struct MessageWait {
    /// The poller may know of something that the passes did not look at.
    pub(crate) ask: bool,
    /// The message is complete.
    pub(crate) complete: bool,
}

/// See above.
pub(crate) struct LockedEngine<E: Engine> {
    pub(crate) engine: E,
    shared: Arc<SharedState<E>>,
    /// What is being taken over; kept for its memory.
    deferred: DeferredWork<E::RequestId>,
    /// The shared state need not be told what is left to do: that has not changed, or nobody would read it.
    is_silent: bool,
    /// The holder of the lock looks at what is left before it sleeps.
    pub(crate) is_sleepers: bool,
}

impl<E: Engine> LockedEngine<E> {
    pub(crate) fn new(engine: E, shared: Arc<SharedState<E>>) -> Self {
        LockedEngine {
            engine,
            shared,
            deferred: DeferredWork::default(),
            is_silent: false,
            is_sleepers: false,
        }
    }

    /// A pass of a consumer's thread that found its queue empty.
    #[inline]
    pub(crate) fn poll_pass(&mut self) -> Progress {
        self.shared.consumer_made_progress();
        self.pass()
    }

    #[inline]
    fn pass(&mut self) -> Progress {
        let is_new = self.take_published();
        let pass = self.engine.poll();
        self.is_silent = match pass {
            Progress::Idle => !is_new,
            // Whoever falls asleep later serves first, and so does the background thread at its next tick.
            Progress::Moved => !self.shared.is_asleep(),
            Progress::Nothing | Progress::AskPoller => false,
        };
        pass
    }

    /// A part of a message has come: makes more passes until the message is complete or nothing comes any more.
    ///
    /// A consumer that sees the first octets of a message in its memory may watch memory for the last ones,
    /// and not call again. One of these passes in each [`POLLING_INTERVAL_LIMIT`] counts as the consumer's: a
    /// call that takes long is as good as polling for as long as it takes, and not for longer.
    #[cold]
    pub(crate) fn stay(&mut self) -> MessageWait {
        let start = Instant::now();
        let (mut last, mut counted) = (start, start);
        let mut stay = MessageWait { ask: false, complete: false };
        loop {
            let pass = self.pass();
            stay.ask |= pass == Progress::AskPoller;
            stay.complete = pass == Progress::Moved && !self.engine.take_partial();
            let now = Instant::now();
            if pass == Progress::Moved {
                last = now;
            }
            if now - counted >= POLLING_INTERVAL_LIMIT {
                counted = now;
                self.shared.consumer_made_progress();
            }
            if stay.complete || now - last > STAY || now - start > LONGEST_STAY {
                return stay;
            }
        }
    }

    /// Does what was published; false: nothing was.
    #[inline]
    fn take_published(&mut self) -> bool {
        self.shared.begin_pass();
        let is_new = !self.shared.doorbells.is_empty() || self.shared.has_deferred();
        if is_new {
            self.shared.doorbells.take(|qp| self.engine.transmit(qp));
            self.take_deferred();
        }
        is_new
    }

    /// What the poller reported, behind what it reported while another thread held the lock.
    pub(crate) fn deliver<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>) {
        self.take_deferred();
        events.into_iter().for_each(|event| deliver_to(&mut self.engine, event));
    }

    fn take_deferred(&mut self) {
        if !self.shared.has_deferred() {
            return;
        }
        self.shared.swap_deferred(&mut self.deferred);
        let DeferredWork { refused, events } = &mut self.deferred;
        refused.drain(..).for_each(|call| self.engine.refuse(call));
        events.drain(..).for_each(|event| deliver_to(&mut self.engine, &event));
    }

    /// Takes a queue pair away.
    pub(crate) fn remove_qp(&mut self, qp: usize) {
        // Its mark must not stay in the stack, and what others have marked must not be lost.
        self.run_deferred();
        self.engine.remove_qp(qp);
    }
}

fn deliver_to<E: Engine>(engine: &mut E, event: &Event) {
    if event.token() != WAKER {
        engine.on_event(event);
    }
}

impl<E: Engine> Deferring for LockedEngine<E> {
    /// Does what was published, what was left over and what is due.
    fn run_deferred(&mut self) {
        self.is_silent = false;
        self.take_published();
        self.engine.advance();
    }

    fn before_unlock(&mut self) {
        if std::mem::take(&mut self.is_silent) {
            return;
        }
        let Remaining { at_once, deadline } = self.engine.remaining();
        self.shared.publish_remaining(at_once, deadline, std::mem::take(&mut self.is_sleepers));
    }
}
