//! Who is still there: a killed adapter sends no DREQ, and its peers would wait for acknowledgements in vain.
//!
//! On one host it need not come to that. Each adapter has a local socket that the others connect to who have
//! connections with it; the kernel closes it with the process, and they hear of it at once.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};

use adapter::{Table, half_open};

use super::names::{Names, SocketFile};

/// The own socket, and those who have connected to it.
pub(crate) struct Life {
    _file: SocketFile,
    pub(crate) listener: UnixListener,
    guests: Table<UnixStream>,
}

impl Life {
    pub(super) fn new(names: &Names, slot: u8) -> io::Result<Self> {
        let (listener, file) = names.bind_life(slot)?;
        listener.set_nonblocking(true)?;
        Ok(Life { _file: file, listener, guests: Table::new() })
    }

    /// Takes in who waits, as long as they have their share of the process's descriptors alone; `watch` is given
    /// the number of each. Who is not taken in waits on, and sees the end just the same.
    pub(crate) fn admit(&mut self, watch: impl Fn(usize, &UnixStream) -> io::Result<()>) {
        let most = half_open::share_of_descriptors();
        while self.guests.len() < most
            && let Ok((guest, _)) = self.listener.accept()
        {
            if watch(self.guests.next_index(), &guest).is_ok() {
                self.guests.insert(guest);
            }
        }
    }

    /// A guest has gone.
    pub(crate) fn leave(&mut self, guest: usize) -> Option<UnixStream> {
        self.guests.remove(guest)
    }
}

/// A connection to another adapter's socket. [`super::Port::lifeline`] makes it.
pub(crate) struct Lifeline(pub(super) UnixStream);

impl AsFd for Lifeline {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Lifeline {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
