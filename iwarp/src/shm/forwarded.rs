//! Offers that arrive at one engine of an adapter and are for connections of another one.
//!
//! The first engine of an adapter has the listeners, and so all offers arrive there. But a
//! connection belongs to the engine of its queue pair.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adapter::EngineWaker;

use super::Offer;

/// The number of offers that wait for the other engines. If there are more, the oldest is dropped,
/// and its connection stays with TCP.
const MAX_FORWARDED: usize = 256;

/// The forwarded offers of an adapter.
#[derive(Default)]
pub(crate) struct ForwardedOffers {
    state: Mutex<State>,
    /// The engines that have not looked at all offers: one bit for the number of each.
    unseen_by: AtomicU64,
    /// The engines that may have connections for which offers are forwarded.
    wanted_by: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Each offer with the engines that have not looked at it.
    offers: Vec<(Offer, u64)>,
    /// What wakes each engine.
    wakers: Vec<EngineWaker>,
}

/// One engine's access to the forwarded offers of its adapter.
#[derive(Clone)]
pub(crate) struct OffersOfEngine {
    all: Arc<ForwardedOffers>,
    bit: u64,
}

impl OffersOfEngine {
    /// Adds an engine.
    pub(crate) fn new(all: &Arc<ForwardedOffers>, waker: EngineWaker) -> Self {
        let mut state = all.state();
        let bit = 1 << state.wakers.len();
        state.wakers.push(waker);
        OffersOfEngine { all: Arc::clone(all), bit }
    }

    /// From now on this engine wants offers, because it has accepted a request that arrived at
    /// another engine.
    pub(crate) fn want(&self) {
        self.all.wanted_by.fetch_or(self.bit, Ordering::Relaxed);
    }

    /// This engine has no connections any more. It drops the offers that it has not looked at.
    pub(crate) fn refuse_all(&self) {
        if self.all.wanted_by.fetch_and(!self.bit, Ordering::Relaxed) & self.bit != 0 {
            self.look(Some);
        }
    }

    /// Leaves an offer to the other engines.
    pub(crate) fn forward(&self, offer: Offer) {
        let mut state = self.all.state();
        let others = self.all.wanted_by.load(Ordering::Relaxed) & !self.bit;
        if others == 0 {
            return;
        }
        if state.offers.len() >= MAX_FORWARDED {
            state.offers.remove(0);
        }
        state.offers.push((offer, others));
        self.all.unseen_by.fetch_or(others, Ordering::Release);
        let of_others = state.wakers.iter().enumerate().filter(|(n, _)| others >> n & 1 == 1);
        of_others.for_each(|(_, waker)| waker.wake());
    }

    /// Whether there are offers that this engine has not looked at.
    #[inline]
    pub(crate) fn has_unseen(&self) -> bool {
        self.all.unseen_by.load(Ordering::Relaxed) & self.bit != 0
    }

    /// Passes each offer that is new to this engine to `accept`. `accept` returns offers for other
    /// engines.
    #[cold]
    pub(crate) fn look(&self, mut accept: impl FnMut(Offer) -> Option<Offer>) {
        let mut state = self.all.state();
        self.all.unseen_by.fetch_and(!self.bit, Ordering::Acquire);
        let offers = std::mem::take(&mut state.offers);
        state.offers.extend(offers.into_iter().filter_map(|(offer, unseen_by)| {
            let (offer, unseen_by) = match unseen_by & self.bit {
                0 => (offer, unseen_by),
                _ => (accept(offer)?, unseen_by & !self.bit),
            };
            // An offer that no engine wants is for a connection that has ended.
            (unseen_by != 0).then_some((offer, unseen_by))
        }));
    }
}

impl ForwardedOffers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
