//! The threads that the library starts, and the blocking of signals.

use std::io;
use std::marker::PhantomData;
use std::thread::{Builder, JoinHandle};

/// The signals that the kernel sends to a thread because of a fault of that thread. They are never
/// blocked.
const FAULT_SIGNALS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
/// The signals by which a user ends or stops a program.
const USER_SIGNALS: [libc::c_int; 5] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP];

/// Starts a thread that handles none of the signals that are sent to the process. Signal handlers
/// belong to the program, and may end the process or close objects that this thread uses.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = BlockedSignals::all_except(&FAULT_SIGNALS);
    unblock_faults();
    Builder::new().name(name.to_owned()).spawn(body)
}

/// Unblocks the signals of faults. If they were blocked, a fault would kill the process without a
/// call of the program's handler.
fn unblock_faults() {
    if cfg!(miri) {
        return;
    }
    // SAFETY: all zeroes are a valid value of the set. It is initialized before it is used.
    unsafe {
        let mut faults: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut faults);
        for signal in FAULT_SIGNALS {
            libc::sigaddset(&mut faults, signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &faults, std::ptr::null_mut());
    }
}

/// While this value exists, signals are blocked in the thread that created it. The function that
/// creates the value says which signals. A blocked signal is handled when the value is dropped.
pub struct BlockedSignals {
    /// The signal mask to restore. `None` if the mask could not be changed.
    before: Option<libc::sigset_t>,
    /// A pointer type is not `Send`. So the value stays in the thread whose mask it restores.
    not_send: PhantomData<*const ()>,
}

impl BlockedSignals {
    /// Blocks all signals except those of faults and those by which a user ends a program, for a
    /// control call that consists of many system calls. Several system calls start again after each
    /// signal handler, so a timer that fires often enough would keep these calls from ending.
    pub fn during_a_call() -> Self {
        Self::all_except(&[FAULT_SIGNALS.as_slice(), &USER_SIGNALS].concat())
    }

    /// Blocks all signals except those of faults as long as the value exists, for a thread that
    /// holds a lock which a signal handler may need. A handler that interrupts the thread would
    /// wait for that lock without end.
    pub fn under_lock() -> Self {
        Self::all_except(&FAULT_SIGNALS)
    }

    /// Blocks all signals except `signals`. Signals that are blocked already stay blocked.
    fn all_except(signals: &[libc::c_int]) -> Self {
        let before = if cfg!(miri) {
            None
        } else {
            // SAFETY: all zeroes are a valid value of the set. Both sets are initialized before
            // they are used.
            unsafe {
                let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
                    (std::mem::zeroed(), std::mem::zeroed());
                libc::sigfillset(&mut all);
                for &signal in signals {
                    libc::sigdelset(&mut all, signal);
                }
                (libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before) == 0).then_some(before)
            }
        };
        BlockedSignals { before, not_send: PhantomData }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // SAFETY: the mask is one that this thread had.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn is_blocked(signal: i32) -> bool {
        // SAFETY: the set is initialized before it is read.
        unsafe {
            let mut now: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut now);
            libc::sigismember(&now, signal) == 1
        }
    }

    #[test]
    fn library_threads_block_signals() {
        let inside =
            spawn("a-thread", || (is_blocked(libc::SIGINT), is_blocked(libc::SIGSEGV))).unwrap();
        assert_eq!(inside.join().unwrap(), (true, false));
        assert!(!is_blocked(libc::SIGINT));
    }

    #[test]
    fn only_user_signals_interrupt_a_call() {
        {
            let _blocked = BlockedSignals::during_a_call();
            for signal in
                [libc::SIGALRM, libc::SIGPROF, libc::SIGUSR1, libc::SIGCHLD, libc::SIGRTMIN()]
            {
                assert!(is_blocked(signal), "signal {signal}");
            }
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGSEGV, libc::SIGBUS] {
                assert!(!is_blocked(signal), "signal {signal}");
            }
        }
        assert!(!is_blocked(libc::SIGALRM));
    }
}
