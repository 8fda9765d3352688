//! What a sleeping thread and the one that wakes it share.

pub mod trace;

use std::time::Instant;

use crate::futex::Futex;
use crate::nesting;
use crate::sync::atomic::Ordering;

/// A one-shot signal that a thread can sleep on: on a futex, or, while it drives a transport, inside the transport's poller.
#[derive(Debug, Default)]
pub struct Wake {
    state: Futex,
}

const AWAKE: u32 = 0;
const SIGNALLED: u32 = 1;
const PARKED: u32 = 2;
const POLLING: u32 = 3;

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    /// Signalled (or spuriously: look again).
    Woken,
    /// The deadline passed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

impl Wake {
    /// Not signalled.
    pub fn new() -> Self {
        Wake { state: Futex::new(AWAKE) }
    }

    /// Forgets a signal; to be called before the condition is checked for the last time.
    pub fn reset(&self) {
        self.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// Whether it was signalled since the last reset.
    pub fn is_signalled(&self) -> bool {
        self.state.load(Ordering::Acquire) == SIGNALLED
    }

    /// Signals. True: the sleeper sits in a transport's poller, the caller must `interrupt` the transport.
    #[must_use]
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

    /// Announces that the sleeper is about to block in a poller. False: signalled already, do not block.
    #[must_use]
    pub fn enter_poller(&self) -> bool {
        self.state.compare_exchange(AWAKE, POLLING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The sleeper is out of the poller. True: it was signalled meanwhile.
    pub fn leave_poller(&self) -> bool {
        self.state.compare_exchange(POLLING, AWAKE, Ordering::AcqRel, Ordering::Acquire).is_err()
    }

    /// Sleeps on a futex until signalled or the deadline.
    pub fn park(&self, deadline: Option<Instant>) -> Slept {
        if self.state.compare_exchange(AWAKE, PARKED, Ordering::AcqRel, Ordering::Acquire).is_err()
        {
            return Slept::Woken;
        }
        let asleep = nesting::sleep();
        let slept = loop {
            let left = match deadline.map(|d| d.checked_duration_since(Instant::now())) {
                Some(None) => break Slept::TimedOut,
                Some(left) => left,
                None => None,
            };
            match self.state.wait(PARKED, left) {
                Some(slept) => break slept,
                None if self.is_signalled() => return Slept::Woken,
                None => {}
            }
        };
        drop(asleep);
        match self.state.compare_exchange(PARKED, AWAKE, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => slept,
            Err(_) => Slept::Woken,
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
        assert_eq!(wake.park(None), Slept::Woken);
        wake.reset();
        assert_eq!(wake.park(Some(Instant::now())), Slept::TimedOut);
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
            assert_eq!(sleeper.join().unwrap(), Slept::Woken);
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
