//! A file descriptor whose readability the program sets: eventfd(2).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use telemetry::threads::Uncancellable;
use telemetry::trace;

/// A file descriptor that other code passes to poll(2).
pub(crate) struct EventFd {
    file: File,
    readable: bool,
}

impl EventFd {
    /// Creates a file descriptor that is not readable.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: eventfd(2) takes no pointers.
        match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: this is a new file descriptor that nobody else owns.
            fd => Ok(EventFd { file: unsafe { File::from_raw_fd(fd) }, readable: false }),
        }
    }

    /// Makes the file descriptor readable or unreadable.
    pub(crate) fn set_readable(&mut self, readable: bool) {
        if readable == self.readable {
            return;
        }
        let _uncancellable = Uncancellable::new();
        // Ignore the result. A counter of 0 can always be incremented, and a counter of 1 can
        // always be read. If the consumer itself has read the counter, it is already 0, and the
        // read fails without harm.
        let _ = match readable {
            true => {
                trace::log_wake("file descriptor", self.as_raw_fd() as usize);
                self.file.write(&1u64.to_ne_bytes())
            }
            false => self.file.read(&mut [0; size_of::<u64>()]),
        };
        self.readable = readable;
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
