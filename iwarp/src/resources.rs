//! The state that all parts of the engine share: the poller, the timers, and the lists of pending
//! work.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use adapter::{Context, Counts};
use mio::Token;
use rnic::{RxVec, TxVec};

use crate::Engine;
use crate::config::Config;
use crate::shm::{ForwardedOffers, MAX_SHARED, OfferDirectory, OfferSocket, OffersOfEngine};
use crate::unconfirmed::Unconfirmed;

/// The poller, timers, configuration and work lists of an engine.
pub(crate) struct EngineResources {
    pub(crate) context: Context<Engine>,
    /// The one address that is served. `None` for all addresses of the host.
    pub(crate) bind: Option<SocketAddr>,
    pub(crate) config: Config,
    timers: BTreeSet<(Instant, ObjectKey)>,
    /// The links that can continue at once. The next pass continues them.
    pub(crate) pending: VecDeque<usize>,
    /// The links that owe their peers a report of placed writes. The next pass sends it.
    pub(crate) reports: Vec<usize>,
    /// The links that have seen the end of their stream. They report the end after the poller has
    /// reported all events that came before.
    pub(crate) closed: Vec<usize>,
    pub(crate) tx: TxVec,
    pub(crate) rx: RxVec,
    /// The socket at which processes of this host offer shared memory. It exists from the first
    /// listener on.
    pub(crate) offers: Option<OfferSocket>,
    /// The directory to whose sockets this engine sends offers, if there is one.
    pub(crate) offer_directory: Option<OfferDirectory>,
    /// The offers for connections of other engines of the adapter.
    pub(crate) forwarded_offers: OffersOfEngine,
    /// The requests and acceptances of all engines of the adapter that are not confirmed.
    pub(crate) unconfirmed: Arc<Unconfirmed>,
    /// Counts the connections that share memory: each of them holds a reference to this value.
    sharing: Arc<()>,
    /// The counters of connections that have ended.
    pub(crate) ended_counts: Counts,
}

/// The key by which the poller and the timers name an object of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ObjectKey {
    /// A queue pair.
    Link(usize),
    /// A listener.
    Listener(usize),
    /// A caller that has no queue pair yet.
    Caller(usize),
    /// A socket that waits until its peer closes.
    LingeringSocket(usize),
    /// The socket by which the peer of a queue pair with shared memory wakes this side.
    WakeSocket(usize),
    /// The socket at which offers of shared memory arrive.
    Offers,
}

impl From<ObjectKey> for Token {
    fn from(key: ObjectKey) -> Self {
        Token(match key {
            ObjectKey::Link(index) => index << 3,
            ObjectKey::Listener(index) => index << 3 | 1,
            ObjectKey::Caller(index) => index << 3 | 2,
            ObjectKey::LingeringSocket(index) => index << 3 | 3,
            ObjectKey::WakeSocket(index) => index << 3 | 4,
            ObjectKey::Offers => 5,
        })
    }
}

impl From<Token> for ObjectKey {
    fn from(token: Token) -> Self {
        let index = token.0 >> 3;
        match token.0 & 7 {
            0 => ObjectKey::Link(index),
            1 => ObjectKey::Listener(index),
            2 => ObjectKey::Caller(index),
            3 => ObjectKey::LingeringSocket(index),
            4 => ObjectKey::WakeSocket(index),
            _ => ObjectKey::Offers,
        }
    }
}

/// The timer of one object.
#[derive(Debug, Default)]
pub(crate) struct Timer(Option<Instant>);

impl EngineResources {
    /// Makes the next pass send the report that a link owes.
    #[inline]
    pub(crate) fn queue_report(&mut self, link: usize) {
        if self.reports.last() != Some(&link) {
            self.reports.push(link);
        }
    }

    pub(crate) fn new(
        context: Context<Engine>,
        bind: Option<SocketAddr>,
        config: Config,
        offer_directory: Option<OfferDirectory>,
        offers: &Arc<ForwardedOffers>,
        unconfirmed: &Arc<Unconfirmed>,
    ) -> Self {
        EngineResources {
            forwarded_offers: OffersOfEngine::new(offers, context.waker()),
            context,
            bind,
            config,
            timers: BTreeSet::new(),
            pending: VecDeque::new(),
            reports: Vec::new(),
            closed: Vec::new(),
            tx: TxVec::new(),
            rx: RxVec::new(),
            offers: None,
            offer_directory,
            unconfirmed: Arc::clone(unconfirmed),
            sharing: Arc::default(),
            ended_counts: Counts::default(),
        }
    }

    /// Counts one more connection that shares memory, until the result is dropped. Returns `None`
    /// if there are too many.
    pub(crate) fn count_shared_memory(&self) -> Option<Arc<()>> {
        (Arc::strong_count(&self.sharing) <= MAX_SHARED).then(|| Arc::clone(&self.sharing))
    }

    /// The number of connections that share memory.
    pub(crate) fn shared_memory_connections(&self) -> u64 {
        Arc::strong_count(&self.sharing) as u64 - 1
    }

    /// Sets an object's timer, or stops it if `at` is `None`.
    pub(crate) fn set_timer(&mut self, key: ObjectKey, timer: &mut Timer, at: Option<Instant>) {
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

    /// Returns the time at which the next timer expires.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Takes one timer that has expired.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Option<ObjectKey> {
        let &(at, key) = self.timers.first()?;
        (at <= now).then(|| {
            self.timers.pop_first();
            key
        })
    }
}

/// The receiver of an engine's events.
pub(crate) type Sink = adapter::Sink<Engine>;
/// An event that an engine reports.
pub(crate) type EngineEvent<'a> = adapter::Event<'a, Engine>;
