//! An engine, and what is left for it to do: what the lease is about.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::event::Event;

use crate::board::{Board, Mail};
use crate::drive::{RARELY, WAKER};
use crate::engine::{Engine, Left, Pass};
use crate::lease::Serve;

/// How long a consumer's call waits for the rest of a message while nothing comes.
const STAY: Duration = Duration::from_micros(100);
/// How long it waits in all.
const LONGEST_STAY: Duration = Duration::from_micros(200);

/// What came of staying.
pub(crate) struct Stay {
    /// The poller may know of something that the passes did not look at.
    pub(crate) ask: bool,
    /// The message is complete.
    pub(crate) complete: bool,
}

/// The desk.
pub(crate) struct Desk<E: Engine> {
    pub(crate) engine: E,
    board: Arc<Board<E>>,
    /// Mail, while it is read; kept for its memory.
    mail: Mail<E::Call>,
    /// The board need not be told what is left to do: that has not changed, or nobody would read it.
    is_silent: bool,
    /// Whoever has the lease looks at what is left before it sleeps.
    pub(crate) is_sleepers: bool,
}

impl<E: Engine> Desk<E> {
    pub(crate) fn new(engine: E, board: Arc<Board<E>>) -> Self {
        Desk { engine, board, mail: Mail::default(), is_silent: false, is_sleepers: false }
    }

    /// A pass of a consumer's thread that found its queue empty.
    #[inline]
    pub(crate) fn poll_pass(&mut self) -> Pass {
        self.board.consumer_made_progress();
        self.pass()
    }

    #[inline]
    fn pass(&mut self) -> Pass {
        let is_new = self.take_published();
        let pass = self.engine.look();
        self.is_silent = match pass {
            Pass::Idle => !is_new,
            // Whoever falls asleep later serves first, and so does the background thread at its next tick.
            Pass::Fruitful => !self.board.is_asleep(),
            Pass::Fruitless | Pass::Ask => false,
        };
        pass
    }

    /// A part of a message has come: makes more passes until the message is complete or nothing comes any more.
    ///
    /// A consumer that sees the first octets of a message in its memory may watch memory for the last ones, and not call
    /// again. One of these passes in each [`RARELY`] counts as the consumer's: a call that takes long is as good as polling
    /// for as long as it takes, and not for longer.
    #[cold]
    pub(crate) fn stay(&mut self) -> Stay {
        let start = Instant::now();
        let (mut last, mut counted) = (start, start);
        let mut stay = Stay { ask: false, complete: false };
        loop {
            let pass = self.pass();
            stay.ask |= pass == Pass::Ask;
            stay.complete = pass == Pass::Fruitful && !self.engine.take_partial();
            let now = Instant::now();
            if pass == Pass::Fruitful {
                last = now;
            }
            if now - counted >= RARELY {
                counted = now;
                self.board.consumer_made_progress();
            }
            if stay.complete || now - last > STAY || now - start > LONGEST_STAY {
                return stay;
            }
        }
    }

    /// Does what was published; false: nothing was.
    #[inline]
    fn take_published(&mut self) -> bool {
        self.board.begin_pass();
        let is_new = !self.board.dirty.is_empty() || self.board.has_mail();
        if is_new {
            self.board.dirty.take(|qp| self.engine.transmit(qp));
            self.open_mail();
        }
        is_new
    }

    /// What the poller reported, behind what it reported while somebody else had the lease.
    pub(crate) fn deliver<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>) {
        self.open_mail();
        events.into_iter().for_each(|event| see(&mut self.engine, event));
    }

    fn open_mail(&mut self) {
        if !self.board.has_mail() {
            return;
        }
        self.board.swap_mail(&mut self.mail);
        let Mail { refused, events } = &mut self.mail;
        refused.drain(..).for_each(|call| self.engine.refuse(call));
        events.drain(..).for_each(|event| see(&mut self.engine, &event));
    }

    /// Takes a queue pair away.
    pub(crate) fn remove_qp(&mut self, qp: usize) {
        // Its mark must not stay in the stack, and what others have marked must not be lost.
        self.serve();
        self.engine.remove_qp(qp);
    }
}

fn see<E: Engine>(engine: &mut E, event: &Event) {
    if event.token() != WAKER {
        engine.see(event);
    }
}

impl<E: Engine> Serve for Desk<E> {
    /// Does what was published, what was left over and what is due.
    fn serve(&mut self) {
        self.is_silent = false;
        self.take_published();
        self.engine.go_on();
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.is_silent) {
            return;
        }
        let Left { more, alarm } = self.engine.leave();
        self.board.leave(more, alarm, std::mem::take(&mut self.is_sleepers));
    }
}
