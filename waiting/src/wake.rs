//! The state that a sleeping thread shares with the thread that wakes it.

use std::time::Instant;

use crate::futex::{Futex, WakeReason};
use crate::nesting;
use crate::sync::atomic::Ordering;

/// A one-shot signal for a thread that sleeps. The thread sleeps on a futex or, while it serves
/// sockets, in a poller.
#[derive(Debug, Default)]
pub struct Wake {
    state: Futex,
}

const AWAKE: u32 = 0;
const SIGNALLED: u32 = 1;
const PARKED: u32 = 2;
const POLLING: u32 = 3;

impl Wake {
    /// Creates a `Wake` that is not signalled.
    pub fn new() -> Self {
        Wake { state: Futex::new(AWAKE) }
    }

    /// Resets the signal. The sleeping thread calls this before it checks its condition for the
    /// last time.
    #[inline]
    pub fn reset(&self) {
        self.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// Whether `signal` was called since the last reset.
    #[inline]
    pub fn is_signalled(&self) -> bool {
        self.state.load(Ordering::Acquire) == SIGNALLED
    }

    /// Signals the sleeper. Returns true if the sleeper is in a poller: the caller must then
    /// interrupt that poller.
    #[must_use]
    #[inline]
    pub fn signal(&self) -> bool {
        match self.state.swap(SIGNALLED, Ordering::AcqRel) {
            PARKED => {
                self.state.wake_all();
                false
            }
            POLLING => true,
            _ => false,
        }
    }

    /// Announces that the sleeper is about to block in a poller. Returns false if the sleeper was
    /// signalled already. Then it must not block.
    #[must_use]
    pub fn enter_poller(&self) -> bool {
        self.state.compare_exchange(AWAKE, POLLING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Announces that the sleeper has left the poller. Returns whether `signal` was called since
    /// `enter_poller`.
    pub fn leave_poller(&self) -> bool {
        self.state.compare_exchange(POLLING, AWAKE, Ordering::AcqRel, Ordering::Acquire).is_err()
    }

    /// Sleeps on a futex until a signal or the deadline.
    pub fn park(&self, deadline: Option<Instant>) -> WakeReason {
        if self.state.compare_exchange(AWAKE, PARKED, Ordering::AcqRel, Ordering::Acquire).is_err()
        {
            return WakeReason::Woken;
        }
        let asleep = nesting::sleep();
        let slept = loop {
            let left = match deadline.map(|d| d.checked_duration_since(Instant::now())) {
                Some(None) => break WakeReason::TimedOut,
                Some(left) => left,
                None => None,
            };
            match self.state.sleep(PARKED, left) {
                Some(slept) => break slept,
                None if self.is_signalled() => return WakeReason::Woken,
                None => {}
            }
        };
        drop(asleep);
        match self.state.compare_exchange(PARKED, AWAKE, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => slept,
            Err(_) => WakeReason::Woken,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_signal_before_the_sleep_is_not_lost() {
        let wake = Wake::new();
        assert!(!wake.signal());
        assert_eq!(wake.park(None), WakeReason::Woken);
        wake.reset();
        assert_eq!(wake.park(Some(Instant::now())), WakeReason::TimedOut);
    }

    #[test]
    fn a_parked_thread_is_woken() {
        let wake = Wake::new();
        std::thread::scope(|s| {
            let sleeper = s.spawn(|| wake.park(None));
            while wake.state.load(Ordering::Acquire) != PARKED {
                std::hint::spin_loop();
            }
            assert!(!wake.signal());
            assert_eq!(sleeper.join().unwrap(), WakeReason::Woken);
        });
    }

    #[test]
    fn signalling_a_poller_asks_for_an_interrupt() {
        let wake = Wake::new();
        assert!(wake.enter_poller());
        assert!(wake.signal());
        assert!(wake.leave_poller());
        assert!(!wake.enter_poller());
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
