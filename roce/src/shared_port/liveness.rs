//! Detects that an adapter on the same host has ended. A killed adapter sends no DREQ, and its
//! peers would wait for acknowledgements until their retries are used up.
//!
//! Each adapter has a local socket to which the peers of its connections connect. When the process
//! ends, the kernel closes these connections, and the peers notice it at once.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};

use adapter::{Slab, half_open};

use super::PortSlot;
use super::socket_files::{Names, SocketFile};

/// The listening socket of this adapter, and the connections of its peers.
pub(crate) struct LivenessListener {
    _file: SocketFile,
    pub(crate) listener: UnixListener,
    watchers: Slab<UnixStream>,
}

impl LivenessListener {
    pub(super) fn new(names: &Names, slot: PortSlot) -> io::Result<Self> {
        let (listener, file) = names.bind_liveness(slot)?;
        listener.set_nonblocking(true)?;
        Ok(LivenessListener { _file: file, listener, watchers: Slab::new() })
    }

    /// Accepts waiting connections, up to their share of the process's descriptors. Calls `watch`
    /// with the number of each connection. A connection that is not accepted stays in the kernel's
    /// queue. Its peer still notices the end of this process, because the kernel then closes the
    /// connection.
    pub(crate) fn accept(&mut self, watch: impl Fn(usize, &UnixStream) -> io::Result<()>) {
        let max = half_open::share_of_descriptors();
        while self.watchers.len() < max
            && let Ok((watcher, _)) = self.listener.accept()
        {
            if watch(self.watchers.next_index(), &watcher).is_ok() {
                self.watchers.insert(watcher);
            }
        }
    }

    /// Removes a connection that the peer has closed.
    pub(crate) fn remove(&mut self, watcher: usize) -> Option<UnixStream> {
        self.watchers.remove(watcher)
    }
}

/// A connection to the liveness socket of another adapter: see [`super::Port::connect_liveness`].
pub(crate) struct LivenessConnection(pub(super) UnixStream);

impl AsFd for LivenessConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for LivenessConnection {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
