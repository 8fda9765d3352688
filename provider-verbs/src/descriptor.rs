//! Descriptors that threads sleep on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use dat_core::nesting;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// A descriptor that one thread sleeps on and others make readable.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    pub(crate) fn ring(&self) {
        // Full is rung.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn settle(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Where one thread sleeps on another descriptor, and others interrupt it.
pub(crate) struct Bed {
    bell: Bell,
    /// The other descriptor will never have anything to read again, and says so for ever.
    over: AtomicBool,
}

/// Why a sleep ended.
pub(crate) enum Roused {
    /// There is something to read from the other descriptor.
    News,
    /// Somebody has interrupted it.
    Interrupted,
    TimedOut,
    /// A signal handler ran.
    Signal,
}

impl Bed {
    pub(crate) fn new() -> io::Result<Bed> {
        Ok(Bed { bell: Bell::new()?, over: AtomicBool::new(false) })
    }

    /// Only a signal handler interrupts this: poll(2) goes on after a signal without one, such as SIGCONT, where epoll_wait(2) ends.
    pub(crate) fn sleep(&self, beside: impl AsFd, limit: Option<&Timespec>) -> Roused {
        let mut fds = [PollFd::new(&self.bell, PollFlags::IN), PollFd::new(&beside, PollFlags::IN)];
        let looked_at = if self.over.load(Ordering::Relaxed) { 1 } else { 2 };
        let asleep = nesting::sleep();
        let polled = poll(&mut fds[..looked_at], limit);
        drop(asleep);
        match polled {
            Ok(0) => return Roused::TimedOut,
            Ok(_) => {}
            Err(_) => return Roused::Signal,
        }
        let [bell, news] = fds.map(|fd| fd.revents());
        if !bell.is_empty() {
            self.bell.settle();
        }
        self.over.fetch_or(!news.is_empty() && !news.contains(PollFlags::IN), Ordering::Relaxed);
        if news.is_empty() { Roused::Interrupted } else { Roused::News }
    }

    pub(crate) fn interrupt(&self) {
        self.bell.ring();
    }
}

/// Makes reading from it fail where it would wait.
///
/// # Safety
/// The descriptor is open.
pub(crate) unsafe fn unblock(fd: RawFd) {
    // SAFETY: as the caller promised.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    if let Ok(flags) = fcntl_getfl(fd) {
        let _ = fcntl_setfl(fd, flags | OFlags::NONBLOCK);
    }
}
