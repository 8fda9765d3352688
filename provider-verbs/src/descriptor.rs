//! File descriptors on which threads sleep.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use waiting::cancel;

/// An eventfd(2) on which one thread sleeps. Other threads make it readable.
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<EventFd> {
        Ok(EventFd(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    pub(crate) fn signal(&self) {
        // A write fails if the counter is at its maximum. That is no problem, because the
        // descriptor is then readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Lets one thread sleep on a file descriptor of another object, and lets other threads interrupt
/// the sleep.
pub(crate) struct InterruptibleSleep {
    wakeup: EventFd,
    /// Whether the other object's descriptor has hung up. From then on poll(2) only reports an
    /// error or a hang-up for the descriptor, and never data.
    hung_up: AtomicBool,
}

/// Why a sleep ended.
pub(crate) enum SleepEnd {
    /// The other object's descriptor is readable.
    Readable,
    /// Another thread interrupted the sleep.
    Interrupted,
    TimedOut,
    /// A signal handler ran.
    Signal,
}

impl InterruptibleSleep {
    pub(crate) fn new() -> io::Result<InterruptibleSleep> {
        Ok(InterruptibleSleep { wakeup: EventFd::new()?, hung_up: AtomicBool::new(false) })
    }

    /// Sleeps until one of the events in [`SleepEnd`] happens. A signal without a handler, such as
    /// SIGCONT, does not end the sleep ([`cancel::poll`]).
    pub(crate) fn sleep(&self, other: impl AsFd, limit: Option<Duration>) -> SleepEnd {
        let pollfd = |fd: BorrowedFd<'_>| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut fds = [pollfd(self.wakeup.as_fd()), pollfd(other.as_fd())];
        let looked_at = if self.hung_up.load(Ordering::Relaxed) { 1 } else { 2 };
        match cancel::poll(&mut fds[..looked_at], limit) {
            Ok(0) => return SleepEnd::TimedOut,
            Ok(_) => {}
            Err(_) => return SleepEnd::Signal,
        }
        let [wakeup, other] = fds.map(|fd| fd.revents);
        if wakeup != 0 {
            self.wakeup.clear();
        }
        self.hung_up.fetch_or(other != 0 && other & libc::POLLIN == 0, Ordering::Relaxed);
        if other == 0 { SleepEnd::Interrupted } else { SleepEnd::Readable }
    }

    pub(crate) fn interrupt(&self) {
        self.wakeup.signal();
    }
}

/// Puts the descriptor into non-blocking mode. A read then fails if there is nothing to read.
///
/// # Safety
/// The descriptor is open.
pub(crate) unsafe fn set_nonblocking(fd: RawFd) {
    // SAFETY: the caller guarantees that the descriptor is open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    if let Ok(flags) = fcntl_getfl(fd) {
        let _ = fcntl_setfl(fd, flags | OFlags::NONBLOCK);
    }
}
