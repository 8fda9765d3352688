//! What the parts of the engine use in common: the poller, timers, lists of what is to be done.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use adapter::{Context, Counts};
use mio::Token;
use rnic::{RxVec, TxVec};

use super::Engine;
use crate::params::Params;

/// The kit.
pub(crate) struct Kit {
    pub(crate) context: Context<Engine>,
    pub(crate) params: Params,
    timers: BTreeSet<(Instant, Key)>,
    /// Connections that could go on at once: the next pass does.
    pub(crate) again: VecDeque<usize>,
    /// Connections whose end has been seen: they end when the poller has been asked what else there is.
    pub(crate) over: Vec<usize>,
    pub(crate) tx: TxVec,
    pub(crate) rx: RxVec,
    /// What connections did that are over.
    pub(crate) past: Counts,
}

/// Names an object of the engine to timers and poller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// A queue pair.
    Link(usize),
    /// A service point.
    Door(usize),
    /// A caller that no queue pair has been given to.
    Caller(usize),
    /// A socket that waits for its peer to close, too.
    Lingerer(usize),
}

impl From<Key> for Token {
    fn from(key: Key) -> Self {
        Token(match key {
            Key::Link(index) => index << 2,
            Key::Door(index) => index << 2 | 1,
            Key::Caller(index) => index << 2 | 2,
            Key::Lingerer(index) => index << 2 | 3,
        })
    }
}

impl From<Token> for Key {
    fn from(token: Token) -> Self {
        let index = token.0 >> 2;
        [Key::Link, Key::Door, Key::Caller, Key::Lingerer][token.0 & 3](index)
    }
}

/// One timer of an object.
#[derive(Debug, Default)]
pub(crate) struct Timer(Option<Instant>);

impl Kit {
    pub(super) fn new(context: Context<Engine>, params: Params) -> Self {
        Kit {
            context,
            params,
            timers: BTreeSet::new(),
            again: VecDeque::new(),
            over: Vec::new(),
            tx: TxVec::new(),
            rx: RxVec::new(),
            past: Counts::default(),
        }
    }

    /// Sets or stops an object's timer.
    pub(crate) fn set_timer(&mut self, key: Key, timer: &mut Timer, at: Option<Instant>) {
        if timer.0 == at {
            return;
        }
        if let Some(old) = std::mem::replace(&mut timer.0, at) {
            self.timers.remove(&(old, key));
        }
        if let Some(at) = at {
            self.timers.insert((at, key));
        }
    }

    /// When the next timer runs out.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Takes a timer that has run out.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<Key> {
        let &(at, key) = self.timers.first()?;
        (at <= now).then(|| {
            self.timers.pop_first();
            key
        })
    }
}
