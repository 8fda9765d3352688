//! A connected socket, and the record of what it moves if the adapter is captured.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use capture::{Capture, Direction, Flow};
use socket2::Socket;

use crate::socket::{self, Moved};

/// The socket. What is no transfer is called on it directly.
pub(crate) struct Connection {
    socket: Socket,
    record: Option<Box<Record>>,
}

/// What is being recorded of it.
struct Record {
    flow: Flow,
    /// The octets of one system call; kept for its memory.
    octets: Vec<u8>,
}

impl Connection {
    /// A socket of which nothing is recorded, for example since it is not connected yet.
    pub(crate) fn new(socket: Socket) -> Self {
        Connection { socket, record: None }
    }

    /// It is connected, and was `opened` by this side or by the peer.
    pub(crate) fn begin_record(
        &mut self,
        capture: Option<&Capture>,
        local: SocketAddr,
        peer: SocketAddr,
        opened: Direction,
    ) {
        let flow = capture.and_then(|capture| capture.tcp(Instant::now(), local, peer, opened));
        self.record = flow.map(|flow| Box::new(Record { flow, octets: Vec::new() }));
    }

    /// Sends what a gather vector names. `ends_record`: what is sent after it is to begin a TCP segment.
    ///
    /// # Safety
    /// The vector names readable memory, or such as is not there any more.
    #[inline]
    pub(crate) unsafe fn send(&mut self, iov: &[libc::iovec], ends_record: bool) -> Moved {
        // SAFETY: the caller's promise.
        let moved = unsafe { socket::send(&self.socket, iov, ends_record) };
        if let Some(record) = &mut self.record {
            // SAFETY: the caller's promise.
            unsafe { record.sent(iov, &moved) };
        }
        moved
    }

    /// Receives to where a scatter vector says.
    ///
    /// # Safety
    /// The vector names writable memory, or such as is not there any more.
    #[inline]
    pub(crate) unsafe fn receive(&mut self, iov: &[libc::iovec]) -> Moved {
        // SAFETY: the caller's promise.
        let moved = unsafe { socket::receive(&self.socket, iov) };
        if let Some(record) = &mut self.record {
            // SAFETY: the caller's promise; what can be written can be read.
            unsafe { record.received(iov, &moved) };
        }
        moved
    }

    /// Sends a few octets.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> Moved {
        let iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: the vector names `bytes`.
        unsafe { self.send(&[iov], false) }
    }

    /// Receives a few octets.
    pub(crate) fn receive_bytes(&mut self, bytes: &mut [u8]) -> Moved {
        let iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: the vector names `bytes`.
        unsafe { self.receive(&[iov]) }
    }

    /// This side will send no more.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)?;
        if let Some(record) = &mut self.record {
            record.flow.finish(Instant::now(), Direction::Out);
        }
        Ok(())
    }

    /// Closes with a RST: the peer's stack learns that nobody took its call.
    pub(crate) fn reset(mut self) {
        self.socket.set_linger(Some(Duration::ZERO)).ok();
        if let Some(record) = &mut self.record {
            record.flow.reset(Instant::now(), Direction::Out);
        }
    }
}

impl Record {
    /// An attempt that failed moved nothing, and what the peer has sent before is still to come.
    ///
    /// # Safety
    /// The vector names readable memory.
    #[cold]
    unsafe fn sent(&mut self, iov: &[libc::iovec], moved: &Moved) {
        if let &Moved::Octets(n) = moved {
            // SAFETY: the caller's promise.
            unsafe { self.note(Direction::Out, iov, n) };
        }
    }

    /// # Safety
    /// The vector names readable memory.
    #[cold]
    unsafe fn received(&mut self, iov: &[libc::iovec], moved: &Moved) {
        match *moved {
            Moved::Octets(0) => self.flow.finish(Instant::now(), Direction::In),
            // SAFETY: the caller's promise.
            Moved::Octets(n) => unsafe { self.note(Direction::In, iov, n) },
            Moved::Nothing | Moved::Fault => {}
            Moved::Gone(_) => self.flow.reset(Instant::now(), Direction::In),
        }
    }

    /// Records the first `n` octets of a vector.
    ///
    /// # Safety
    /// The vector names readable memory.
    unsafe fn note(&mut self, direction: Direction, iov: &[libc::iovec], n: usize) {
        self.octets.clear();
        self.octets.reserve(n);
        for part in iov {
            let held = self.octets.len();
            let octets = part.iov_len.min(n - held);
            // SAFETY: the caller's promise for the source, which may be memory of the consumer, so no reference is made to
            // it; `reserve` for the target, of which no more than `n` octets are used.
            unsafe {
                part.iov_base
                    .cast::<u8>()
                    .copy_to_nonoverlapping(self.octets.as_mut_ptr().add(held), octets);
                self.octets.set_len(held + octets);
            }
        }
        self.flow.data(Instant::now(), direction, &self.octets);
    }
}

impl Deref for Connection {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        &self.socket
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
