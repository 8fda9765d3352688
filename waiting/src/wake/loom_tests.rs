//! The models show that no wake-up is lost. If a wake-up were lost, the thread in the model would
//! sleep forever, which loom reports.

use loom::sync::atomic::AtomicBool;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::*;

/// Models a thread that sleeps until a flag is set, as a call that waits for an event does. Another
/// thread sets the flag and wakes the sleeper.
fn model(sleep: impl Fn(&Wake, &Poller) + Copy + Send + Sync + 'static) {
    loom::model(move || {
        let shared = Arc::new((Wake::new(), AtomicBool::new(false), Poller::default()));
        let teller = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (wake, news, poller) = &*shared;
                news.store(true, Ordering::Release);
                if wake.signal() {
                    poller.interrupt();
                }
            })
        };
        let (wake, news, poller) = &*shared;
        loop {
            wake.reset();
            if news.load(Ordering::Acquire) {
                break;
            }
            sleep(wake, poller);
        }
        teller.join().unwrap();
    });
}

/// Models the poller in which a transport sleeps. An interrupt ends the current sleep or the next
/// one.
#[derive(Default)]
struct Poller {
    interrupted: Mutex<bool>,
    changed: Condvar,
}

impl Poller {
    fn interrupt(&self) {
        *self.interrupted.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn poll(&self) {
        let mut interrupted = self.interrupted.lock().unwrap();
        while !*interrupted {
            interrupted = self.changed.wait(interrupted).unwrap();
        }
        *interrupted = false;
    }
}

#[test]
fn loom_a_parked_thread_is_woken() {
    model(|wake, _| {
        wake.park(None);
    });
}

#[test]
fn loom_a_polling_thread_is_woken() {
    model(|wake, poller| {
        if wake.enter_poller() {
            poller.poll();
            wake.leave_poller();
        }
    });
}

/// The sleeping thread changes from the poller to the futex, as a thread does when another thread
/// begins to drive the transport.
#[test]
fn loom_a_thread_that_leaves_the_poller_to_park_is_woken() {
    model(|wake, _| {
        if wake.enter_poller() && !wake.leave_poller() {
            wake.park(None);
        }
    });
}
