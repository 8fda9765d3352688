//! Descriptors that threads sleep on.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
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

/// Where one thread sleeps on another descriptor, and others interrupt it. Cheaper than to say each time what is slept on.
pub(crate) struct Bed {
    epoll: OwnedFd,
    bell: Bell,
}

/// Why a sleep ended.
pub(crate) enum Roused {
    /// There is news at the descriptor, since the last sleep or before.
    News,
    /// Somebody has interrupted it.
    Interrupted,
    TimedOut,
    /// A signal handler ran.
    Signal,
}

const NEWS: u64 = 0;
const BELL: u64 = 1;

impl Bed {
    /// Beside a descriptor. What comes there wakes once, whether it is taken then or not.
    pub(crate) fn beside(fd: impl AsFd) -> io::Result<Bed> {
        let (epoll, bell) = (epoll::create(CreateFlags::CLOEXEC)?, Bell::new()?);
        for (fd, data) in [(fd.as_fd(), NEWS), (bell.as_fd(), BELL)] {
            epoll::add(&epoll, fd, EventData::new_u64(data), EventFlags::IN | EventFlags::ET)?;
        }
        Ok(Bed { epoll, bell })
    }

    pub(crate) fn sleep(&self, limit: Option<&Timespec>) -> Roused {
        // Only a signal handler interrupts this: epoll_wait(2) ends for any signal, such as SIGCONT.
        match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], limit) {
            Ok(0) => return Roused::TimedOut,
            Ok(_) => {}
            Err(_) => return Roused::Signal,
        }
        let mut events = [MaybeUninit::<Event>::uninit(); 2];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, &mut events, Some(&now)) {
            Ok((found, _)) if found.iter().any(|event| event.data.u64() == NEWS) => Roused::News,
            Ok(_) => Roused::Interrupted,
            Err(_) => Roused::Signal,
        }
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
