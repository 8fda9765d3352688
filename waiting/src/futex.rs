//! A word that threads sleep on (futex(2)).

#[cfg(not(loom))]
use std::ffi::c_long;
#[cfg(not(loom))]
use std::io;
use std::ops::Deref;
use std::time::Duration;

#[cfg(not(loom))]
use telemetry::trace;

#[cfg(not(loom))]
use crate::cancel::{self, By};
use crate::sync::atomic::AtomicU32;

/// The reason for which a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// The thread was signalled. This may be spurious, so the thread must check its condition
    /// again.
    Woken,
    /// The deadline has passed.
    TimedOut,
    /// A signal handler has interrupted the sleep.
    Interrupted,
}

/// An atomic word, and the threads that sleep until it changes.
#[derive(Debug, Default)]
pub struct Futex {
    word: AtomicU32,
    #[cfg(loom)]
    kernel: modelled::Kernel,
}

impl Deref for Futex {
    type Target = AtomicU32;
    #[inline]
    fn deref(&self) -> &AtomicU32 {
        &self.word
    }
}

#[cfg(not(loom))]
impl Futex {
    /// Creates a word with this value.
    pub const fn new(word: u32) -> Self {
        Futex { word: AtomicU32::new(word) }
    }

    /// Sleeps while the word is `expected`. Returns `None` if the thread was woken or if the word
    /// had another value. In both cases the caller must check its condition again.
    pub fn wait(&self, expected: u32, timeout: Option<Duration>) -> Option<WakeReason> {
        self.wait_by(expected, timeout, |call| match call() {
            -1 => Err(io::Error::last_os_error()),
            result => Ok(result),
        })
    }

    /// Sleeps as [`Futex::wait`] does. If this thread waits for an event
    /// ([`cancel::begin_wait`]), the sleep may end the thread.
    pub fn sleep(&self, expected: u32, timeout: Option<Duration>) -> Option<WakeReason> {
        // SAFETY: the call only makes the system call. A wake-up that is lost is no loss, because
        // the thread takes no event.
        self.wait_by(expected, timeout, |call| unsafe { cancel::sleep(By::Syscall, call) })
    }

    fn wait_by(
        &self,
        expected: u32,
        timeout: Option<Duration>,
        by: impl FnOnce(&mut dyn FnMut() -> c_long) -> io::Result<c_long>,
    ) -> Option<WakeReason> {
        let ts = timeout.map(|d| libc::timespec {
            tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(d.subsec_nanos()),
        });
        let ts = ts.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
        let _record = trace::sleep(TRACE_NAME, self.key(), timeout);
        let word = self.word.as_ptr();
        // SAFETY: `word` and `ts` outlive the call. FUTEX_WAIT only reads them.
        let slept =
            by(&mut || unsafe { cancel::syscall(libc::SYS_futex, word, WAIT, expected, ts) });
        match slept {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Some(WakeReason::Interrupted),
            Err(e) if e.raw_os_error() == Some(libc::ETIMEDOUT) => Some(WakeReason::TimedOut),
            _ => None,
        }
    }

    fn key(&self) -> usize {
        self.word.as_ptr().addr()
    }

    /// Wakes one sleeping thread.
    pub fn wake_one(&self) {
        self.wake(1);
    }

    /// Wakes all sleeping threads.
    pub fn wake_all(&self) {
        self.wake(i32::MAX);
    }

    fn wake(&self, threads: i32) {
        trace::log_wake(TRACE_NAME, self.key());
        // SAFETY: FUTEX_WAKE uses the address only as a key. Waking no thread is harmless.
        unsafe { libc::syscall(libc::SYS_futex, self.word.as_ptr(), WAKE, threads) };
    }
}

/// The name that futexes have in the trace of wake-ups.
#[cfg(not(loom))]
const TRACE_NAME: &str = "futex";
#[cfg(not(loom))]
const WAIT: i32 = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
#[cfg(not(loom))]
const WAKE: i32 = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;

/// Models for loom what the kernel guarantees: it checks the word and puts the thread to sleep
/// under a lock that a wake-up also takes.
#[cfg(loom)]
mod modelled {
    use loom::sync::{Condvar, Mutex};

    use super::*;
    use crate::sync::atomic::Ordering;

    #[derive(Debug, Default)]
    pub(super) struct Kernel {
        lock: Mutex<()>,
        sleepers: Condvar,
    }

    #[allow(missing_docs)] // documented on the real type above
    impl Futex {
        pub fn new(word: u32) -> Self {
            Futex { word: AtomicU32::new(word), kernel: Kernel::default() }
        }

        pub fn wait(&self, expected: u32, _: Option<Duration>) -> Option<WakeReason> {
            let lock = self.kernel.lock.lock().unwrap();
            if self.word.load(Ordering::SeqCst) == expected {
                drop(self.kernel.sleepers.wait(lock).unwrap());
            }
            None
        }

        pub fn sleep(&self, expected: u32, timeout: Option<Duration>) -> Option<WakeReason> {
            self.wait(expected, timeout)
        }

        pub fn wake_one(&self) {
            let _lock = self.kernel.lock.lock().unwrap();
            self.kernel.sleepers.notify_one();
        }

        pub fn wake_all(&self) {
            let _lock = self.kernel.lock.lock().unwrap();
            self.kernel.sleepers.notify_all();
        }
    }
}
