//! Limits how many queue pairs one address occupies without having confirmed the acceptance.
//!
//! An accepted caller that has promised an RTR frame occupies a queue pair until this frame
//! arrives, which may take [`REQUEST_TIMEOUT`](rnic::rdmap::setup::REQUEST_TIMEOUT). So a request
//! of an address that has its share of the queue pairs ([`may_hold_another`]) is deferred. The
//! consumer gets the request when one of the acceptances of this address is confirmed or ends.
//!
//! A consumer may wait for several requests before it accepts one. So whenever it has accepted no
//! request of an address for [`RETRY_AFTER`], it gets as many further requests of this address as
//! it already has.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use adapter::EngineWaker;
use rnic::rate_limit::{may_hold_another, network};

/// How often a deferred request is looked at although no other request has been confirmed.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The requests and acceptances of all engines of an adapter that are not confirmed.
#[derive(Default)]
pub(crate) struct Unconfirmed {
    state: Mutex<State>,
    /// Whether a request has been confirmed or has ended since deferred requests began to wait for
    /// that.
    has_changed: AtomicBool,
}

#[derive(Default)]
struct State {
    by_address: HashMap<IpAddr, Held>,
    /// The number of requests that wait for the consumer's decision.
    undecided: usize,
    /// What wakes the engine that has deferred requests.
    waker: Option<EngineWaker>,
}

/// What one address holds.
#[derive(Clone, Copy)]
struct Held {
    undecided: usize,
    accepted: usize,
    /// When the latest request was admitted.
    admitted_at: Instant,
    /// The number of undecided requests up to which the consumer gets further requests. It is used
    /// while the consumer has accepted none.
    wanted: usize,
}

/// A request that is not confirmed. It counts until it is dropped.
pub(crate) struct UnconfirmedRequest {
    all: Arc<Unconfirmed>,
    address: IpAddr,
    is_accepted: bool,
}

impl Unconfirmed {
    /// Admits a request of this address while `free` queue pairs are not in use. Returns `None` if
    /// the request must be deferred. `is_last_look` says whether the request is refused otherwise.
    pub(crate) fn admit(
        self: &Arc<Self>,
        address: IpAddr,
        free: usize,
        now: Instant,
        is_last_look: bool,
    ) -> Option<UnconfirmedRequest> {
        let address = network(address);
        let state = &mut *self.state();
        let nothing = Held { undecided: 0, accepted: 0, admitted_at: now, wanted: 0 };
        let held = state.by_address.entry(address).or_insert(nothing);
        if held.accepted > 0 {
            held.wanted = 0;
        } else if now >= held.admitted_at + RETRY_AFTER {
            held.wanted = 2 * held.undecided;
        }
        let is_wanted = held.undecided < held.wanted || is_last_look && held.accepted == 0;
        let held_count = held.undecided + held.accepted;
        if !is_wanted && !may_hold_another(held_count, free, state.undecided) {
            return None;
        }
        held.undecided += 1;
        held.admitted_at = now;
        state.undecided += 1;
        Some(UnconfirmedRequest { all: Arc::clone(self), address, is_accepted: false })
    }

    /// Records an engine that has deferred requests. The next change of the unconfirmed requests
    /// wakes this engine.
    pub(crate) fn wake_at_change(&self, waker: EngineWaker) {
        self.state().waker = Some(waker);
    }

    /// Returns whether there was a change for which an engine waits.
    pub(crate) fn take_change(&self) -> bool {
        self.has_changed.load(Ordering::Relaxed) && self.has_changed.swap(false, Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnconfirmedRequest {
    /// The consumer has accepted the request.
    pub(crate) fn accept(&mut self) {
        if !std::mem::replace(&mut self.is_accepted, true) {
            let mut state = self.all.state();
            state.undecided -= 1;
            if let Some(held) = state.by_address.get_mut(&self.address) {
                held.undecided -= 1;
                held.accepted += 1;
            }
        }
    }
}

impl Drop for UnconfirmedRequest {
    fn drop(&mut self) {
        let mut state = self.all.state();
        if !self.is_accepted {
            state.undecided -= 1;
        }
        if let Some(held) = state.by_address.get_mut(&self.address) {
            match self.is_accepted {
                true => held.accepted -= 1,
                false => held.undecided -= 1,
            }
            if held.accepted + held.undecided == 0 {
                state.by_address.remove(&self.address);
            }
        }
        if let Some(waker) = state.waker.take() {
            self.all.has_changed.store(true, Ordering::Release);
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTACKER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 2));

    /// A time, always the same.
    fn start() -> Instant {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        *START
    }

    /// Admits as many requests of this address as possible. The consumer accepts each at once, if
    /// `accepts`, with one of the queue pairs.
    fn fill(
        all: &Arc<Unconfirmed>,
        address: IpAddr,
        free: &mut usize,
        accepts: bool,
    ) -> Vec<UnconfirmedRequest> {
        let mut places = Vec::new();
        while let Some(mut place) = all.admit(address, *free, start(), false) {
            if accepts {
                place.accept();
                *free -= 1;
            }
            places.push(place);
        }
        places
    }

    #[test]
    fn an_address_leaves_queue_pairs_to_others() {
        for accepts in [true, false] {
            let (all, mut free) = (Arc::new(Unconfirmed::default()), 16);
            let held = fill(&all, ATTACKER, &mut free, accepts);
            assert_eq!(held.len(), 8, "accepted at once: {accepts}");
            assert_eq!(fill(&all, OTHER, &mut free, accepts).len(), 4);
            drop(held);
            assert!(all.admit(ATTACKER, free, start(), false).is_some());
            assert!(all.state().by_address.is_empty() && all.state().undecided == 0);
        }
    }

    /// Whenever the consumer has accepted no request of an address for some time, it gets as many
    /// further requests as it already has.
    #[test]
    fn a_deferred_request_waits_for_acceptances_but_not_for_the_consumer() {
        let (all, mut free) = (Arc::new(Unconfirmed::default()), 16);
        let mut held = fill(&all, ATTACKER, &mut free, false);
        let mut now = start();
        for expected in [16, 32, 64] {
            now += RETRY_AFTER;
            let just_before = now - Duration::from_nanos(1);
            assert!(all.admit(ATTACKER, free, just_before, false).is_none());
            held.extend(std::iter::from_fn(|| all.admit(ATTACKER, free, now, false)));
            assert_eq!(held.len(), expected);
        }
        held.push(all.admit(ATTACKER, free, now, true).expect("it would be refused"));
        held[0].accept();
        now += RETRY_AFTER;
        for is_last_look in [false, true] {
            let late = all.admit(ATTACKER, free - 1, now, is_last_look);
            assert!(late.is_none(), "an acceptance is unconfirmed");
        }
    }

    /// All acceptances of an address end at the same moment. The many requests that wait meanwhile
    /// do not take all queue pairs.
    #[test]
    fn an_address_whose_acceptances_end_leaves_queue_pairs_to_others() {
        let (all, mut free) = (Arc::new(Unconfirmed::default()), 16);
        let held = fill(&all, ATTACKER, &mut free, true);
        free += held.len();
        drop(held);
        let now = start() + Duration::from_secs(5);
        let next = std::iter::from_fn(|| all.admit(ATTACKER, free, now, false));
        assert_eq!(next.take(100).collect::<Vec<_>>().len(), 8);
    }

    #[test]
    fn the_end_of_a_place_is_told_once() {
        let (all, mut free) = (Arc::new(Unconfirmed::default()), 16);
        let mut held = fill(&all, ATTACKER, &mut free, true);
        held.pop();
        assert!(!all.take_change(), "nobody waits");
        let woken = Arc::new(AtomicBool::new(false));
        let wakes = Arc::clone(&woken);
        all.wake_at_change(EngineWaker::new(move || wakes.store(true, Ordering::Relaxed)));
        drop(held);
        assert!(woken.load(Ordering::Relaxed) && all.take_change() && !all.take_change());
    }
}
