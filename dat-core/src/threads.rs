//! Threads of the library.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread that takes none of the process's signals: their handlers are the program's, and may end the process, or close what
/// this thread works on.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let before = block_signals();
    let spawned = Builder::new().name(name.to_owned()).spawn(body);
    if let Some(before) = before {
        // SAFETY: a mask that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    }
    spawned
}

/// Blocks all signals but those of this thread's own faults; a new thread inherits that. The answer is what was blocked before.
fn block_signals() -> Option<libc::sigset_t> {
    if cfg!(miri) {
        return None;
    }
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    // SAFETY: all zeroes are a value of the set; it is filled in before it is used.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        for fault in faults {
            libc::sigdelset(&mut all, fault);
        }
        (libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) == 0).then_some(before)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn is_blocked(signal: i32) -> bool {
        // SAFETY: the set is filled in before it is asked.
        unsafe {
            let mut now: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut now);
            libc::sigismember(&now, signal) == 1
        }
    }

    #[test]
    fn signals_are_left_to_the_programs_threads() {
        let inside = spawn("a-thread", || (is_blocked(libc::SIGINT), is_blocked(libc::SIGSEGV))).unwrap();
        assert_eq!(inside.join().unwrap(), (true, false));
        assert!(!is_blocked(libc::SIGINT));
    }
}
