//! A file descriptor that is readable or not, as one likes: an eventfd.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use crate::wake::trace;

/// A file descriptor that others poll.
pub(crate) struct Beacon {
    file: File,
    lit: bool,
}

impl Beacon {
    /// Not lit.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: a system call without pointers.
        match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: a new file descriptor, nobody else's.
            fd => Ok(Beacon { file: unsafe { File::from_raw_fd(fd) }, lit: false }),
        }
    }

    /// Makes the file descriptor readable, or not.
    pub(crate) fn show(&mut self, lit: bool) {
        if lit == self.lit {
            return;
        }
        // Neither can fail: a count of 0 takes 1 more, and one of 1 can be read. A consumer that has read it itself has
        // done what the read would.
        let _ = match lit {
            true => {
                trace::ask("file descriptor", self.as_raw_fd() as usize);
                self.file.write(&1u64.to_ne_bytes())
            }
            false => self.file.read(&mut [0; size_of::<u64>()]),
        };
        self.lit = lit;
    }
}

impl AsRawFd for Beacon {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
