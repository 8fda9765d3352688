//! How a thread sleeps and how another thread wakes it, even if the program cancels the sleeping
//! thread or a signal handler interrupts it. Every crate that sleeps on behalf of a consumer's
//! thread uses this one. A file uses only files below it:
//!
//! | file | contents |
//! |---|---|
//! | `wake` | a one-shot signal for one sleeping thread: [`Wake`] |
//! | `futex` | a word that threads sleep on: [`Futex`] |
//! | [`cancel`] | the end of a thread that waits, by pthread_cancel(3) or pthread_exit(3) |
//! | [`nesting`] | calls that a signal handler makes after it has interrupted another call |
//! | [`barrier`] | a memory fence in every thread of the process |
//! | `sync` | the atomic types of the lock-free modules |
//!
//! A thread that waits for an event resets its signal, checks its condition and only then sleeps:
//!
//! ```
//! use std::sync::atomic::{AtomicBool, Ordering};
//! use waiting::Wake;
//!
//! let (wake, arrived) = (Wake::new(), AtomicBool::new(false));
//! std::thread::scope(|threads| {
//!     threads.spawn(|| loop {
//!         wake.reset();
//!         if arrived.load(Ordering::Acquire) {
//!             break;
//!         }
//!         wake.park(None);
//!     });
//!     arrived.store(true, Ordering::Release);
//!     let in_poller = wake.signal();
//!     assert!(!in_poller, "the thread sleeps on the futex, so no poller must be interrupted");
//! });
//! ```

pub mod barrier;
pub mod cancel;
mod futex;
pub mod nesting;
mod sync;
mod wake;

pub use futex::{Futex, WakeReason};
pub use wake::Wake;
