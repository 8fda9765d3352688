//! The state behind the engine lock: the engine, and the work that other threads have deferred to
//! the holder.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::event::Event;

use crate::engine_lock::Deferring;
use crate::engine_shared::{DeferredCalls, EngineShared, WAKER};
use crate::progress::{MakeProgress, Progress, Remaining};

/// A consumer that calls less often than once in this time does not count as polling. The progress
/// thread serves the data that arrive between the consumer's calls.
pub(crate) const POLLING_INTERVAL_LIMIT: Duration = Duration::from_micros(50);
/// How long a consumer's call waits for the rest of a message while no data arrive.
const MESSAGE_IDLE_LIMIT: Duration = Duration::from_micros(100);
/// The maximum time that a consumer's call waits for the rest of a message.
const MESSAGE_WAIT_LIMIT: Duration = Duration::from_micros(200);

/// The outcome of a consumer's wait for the rest of a message.
pub(crate) struct MessageWait {
    /// Whether the poller may have events that the passes did not handle.
    pub(crate) ask_poller: bool,
    /// Whether the message is complete.
    pub(crate) complete: bool,
}

/// The value behind the engine lock: the engine, and its deferred work.
pub(crate) struct LockedEngine<E: MakeProgress> {
    pub(crate) engine: E,
    shared: Arc<EngineShared<E::RequestData>>,
    /// The deferred work that this thread is doing now. The value is kept so that its memory is
    /// reused.
    deferred: DeferredCalls<E::RequestData>,
    /// Whether the lock can be released without publishing the remaining work: the work has not
    /// changed, or nobody reads it.
    skips_publishing: bool,
    /// Whether the holder of the lock checks the remaining work itself before it sleeps.
    pub(crate) holder_checks: bool,
}

impl<E: MakeProgress> LockedEngine<E> {
    pub(crate) fn new(engine: E, shared: Arc<EngineShared<E::RequestData>>) -> Self {
        LockedEngine {
            engine,
            shared,
            deferred: DeferredCalls::default(),
            skips_publishing: false,
            holder_checks: false,
        }
    }

    /// Makes a pass for a consumer's thread that has found its queue empty.
    #[inline]
    pub(crate) fn poll_pass(&mut self) -> Progress {
        self.shared.consumer_made_progress();
        self.pass()
    }

    #[inline]
    fn pass(&mut self) -> Progress {
        let is_new = self.take_published();
        let pass = self.engine.poll();
        self.skips_publishing = match pass {
            Progress::Idle => !is_new,
            // If no thread is asleep, nobody reads the published work. A thread that falls asleep
            // later serves the engine first, and the progress thread serves the engine when it
            // takes over.
            Progress::Moved => !self.shared.is_asleep(),
            Progress::Nothing | Progress::AskPoller => false,
        };
        pass
    }

    /// Makes passes until the message of which the first part has arrived is complete, or until no
    /// more data arrive.
    ///
    /// A consumer that sees the first octets of a message in its memory may watch memory for the
    /// last octets instead of calling again. In each [`POLLING_INTERVAL_LIMIT`], one of these
    /// passes counts as a pass of the consumer. So a consumer in a long call counts as polling, but
    /// only until the call returns.
    #[cold]
    pub(crate) fn wait_for_message(&mut self) -> MessageWait {
        let start = Instant::now();
        let (mut last, mut counted) = (start, start);
        let mut wait = MessageWait { ask_poller: false, complete: false };
        loop {
            let pass = self.pass();
            wait.ask_poller |= pass == Progress::AskPoller;
            wait.complete = pass == Progress::Moved && !self.engine.take_partial();
            let now = Instant::now();
            if pass == Progress::Moved {
                last = now;
            }
            if now - counted >= POLLING_INTERVAL_LIMIT {
                counted = now;
                self.shared.consumer_made_progress();
            }
            if wait.complete || now - last > MESSAGE_IDLE_LIMIT || now - start > MESSAGE_WAIT_LIMIT
            {
                return wait;
            }
        }
    }

    /// Does the work that threads have published. Returns false if there was none.
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

    /// Delivers `events`, which come from the poller. Before them, delivers the events that the
    /// poller reported while another thread held the lock.
    pub(crate) fn deliver<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>) {
        self.take_deferred();
        events.into_iter().for_each(|event| deliver_to(&mut self.engine, event));
    }

    fn take_deferred(&mut self) {
        if !self.shared.has_deferred() {
            return;
        }
        self.shared.swap_deferred(&mut self.deferred);
        let DeferredCalls { refused, events } = &mut self.deferred;
        refused.drain(..).for_each(|request| self.engine.refuse(request));
        events.drain(..).for_each(|event| deliver_to(&mut self.engine, &event));
    }
}

fn deliver_to<E: MakeProgress>(engine: &mut E, event: &Event) {
    if event.token() != WAKER {
        engine.on_event(event);
    }
}

impl<E: MakeProgress> Deferring for LockedEngine<E> {
    /// Does the published work, the leftover work, and the work of timers that have expired.
    fn run_deferred(&mut self) {
        self.skips_publishing = false;
        self.take_published();
        self.engine.advance();
    }

    fn before_unlock(&mut self) {
        self.engine.flush();
        if std::mem::take(&mut self.skips_publishing) {
            return;
        }
        let Remaining { at_once, deadline } = self.engine.remaining();
        self.shared.publish_remaining(at_once, deadline, std::mem::take(&mut self.holder_checks));
    }
}
