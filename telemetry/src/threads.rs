//! The threads that the library starts, and the blocking of signals. [`watch_for_termination`] is
//! for programs that finish their output before a signal ends them.

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

/// The signals that ask a program to end.
const TERMINATION_SIGNALS: [libc::c_int; 2] = [libc::SIGINT, libc::SIGTERM];

/// Blocks SIGINT and SIGTERM in the calling thread, and in the threads and processes that it starts
/// later. When one of them arrives, `act` is called with its number, in a thread of its own. A
/// signal that the process ignores stays ignored. The caller must be the only thread of the process
/// that does not block these signals.
pub fn watch_for_termination(mut act: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    // SAFETY: all zeroes are a valid value of the set and of the action. The set is initialized
    // before it is used, and the calls only write to these variables.
    let watched = unsafe {
        let mut watched: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut watched);
        for signal in TERMINATION_SIGNALS {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            if action.sa_sigaction != libc::SIG_IGN {
                libc::sigaddset(&mut watched, signal);
            }
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &watched, std::ptr::null_mut());
        watched
    };
    Builder::new().name("termination".to_owned()).spawn(move || {
        loop {
            let mut signal = 0;
            // SAFETY: the set is initialized, and the call writes only to `signal`.
            if unsafe { libc::sigwait(&watched, &mut signal) } == 0 {
                act(signal);
            }
        }
    })?;
    Ok(())
}

/// Starts a thread that handles none of the signals that are sent to the process. Signal handlers
/// belong to the program, and may end the process or close objects that this thread uses. The
/// program cannot cancel the thread either.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = BlockedSignals::all_except(&FAULT_SIGNALS);
    unblock_faults();
    let body = move || {
        let _uncancellable = Uncancellable::new();
        body()
    };
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

/// While this value exists, pthread_cancel(3) does not end the thread that created it. If the
/// thread is cancelled meanwhile, it ends at the next cancellation point after the value is
/// dropped.
///
/// A cancelled thread unwinds its stack from the system call that it is in. This unwinding must not
/// pass frames of Rust that have destructors.
pub struct Uncancellable {
    /// The state that this value restores.
    before: libc::c_int,
    /// A pointer type is not `Send`. So the value stays in the thread whose state it restores.
    not_send: PhantomData<*const ()>,
}

/// The states of a thread that may be cancelled and of one that may not (pthread.h).
const PTHREAD_CANCEL_ENABLE: libc::c_int = 0;
const PTHREAD_CANCEL_DISABLE: libc::c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

impl Uncancellable {
    /// Disables the cancellation of the calling thread.
    #[inline]
    pub fn new() -> Self {
        let mut before = PTHREAD_CANCEL_DISABLE;
        if !cfg!(miri) {
            // SAFETY: the call writes only to `before`. Disabling ends no thread.
            unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut before) };
        }
        Uncancellable { before, not_send: PhantomData }
    }

    /// Whether the thread may be cancelled while no such value exists.
    pub fn was_cancellable(&self) -> bool {
        self.before == PTHREAD_CANCEL_ENABLE
    }
}

impl Default for Uncancellable {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Uncancellable {
    #[inline]
    fn drop(&mut self) {
        if !cfg!(miri) {
            // SAFETY: the call writes only to `before`. The thread does not end in this call, but
            // at a cancellation point, because the type of its cancellation is deferred: of all
            // functions of DAT, none may be called while the type is asynchronous (POSIX).
            unsafe { pthread_setcancelstate(self.before, &mut self.before) };
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

    /// That signals arrive is tested with the program `dat` (`cli/tests/interrupted.rs`).
    #[test]
    fn the_signals_that_end_a_program_are_blocked_and_awaited() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let watched = std::thread::spawn(move || {
            watch_for_termination(move |signal| sender.send(signal).unwrap()).unwrap();
            (is_blocked(libc::SIGTERM), is_blocked(libc::SIGHUP))
        });
        assert_eq!(watched.join().unwrap(), (true, false));
        // No signal has arrived, and the thread that waits for one still runs.
        assert_eq!(receiver.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty));
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

/// Makes this process call a function when it exits normally. Returns false if there is no memory
/// for that. The function must not panic, and must not wait for a lock: a signal handler that has
/// interrupted the owner of the lock may call exit(3).
pub fn at_exit(function: extern "C" fn()) -> bool {
    // SAFETY: the function has no arguments, and exists as long as the library that contains this
    // code. The C library calls it at the latest when it unloads that library.
    unsafe { libc::atexit(function) == 0 }
}
