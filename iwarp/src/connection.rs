//! A connected socket, and the shared memory that takes its place if both ends are on one host. If
//! the adapter is captured, the socket's traffic is recorded here.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use adapter::Context;
use capture::{Capture, Direction, Flow};
use socket2::Socket;

use crate::Engine;
use crate::shm::SharedMemory;
use crate::socket::{self, IoOutcome};

/// A socket whose transfers are captured, and whose octets may move through shared memory. It
/// dereferences to the socket for all other operations.
pub(crate) struct Connection {
    socket: Socket,
    captured: Option<Box<CapturedFlow>>,
    /// The numbers of octets that TCP has sent and received.
    sent: u64,
    received: u64,
    pub(crate) shared_memory: Option<Box<SharedMemory>>,
    /// Whether the poller has reported the socket since it was last read. Once the peer sends by
    /// shared memory, the socket only tells the end of the connection.
    is_reported: bool,
}

/// The capture of one connection.
struct CapturedFlow {
    flow: Flow,
    /// The octets of the latest system call. The buffer is reused.
    octets: Vec<u8>,
}

impl Connection {
    /// Wraps a socket that is not captured, for example because it is not connected yet.
    pub(crate) fn new(socket: Socket) -> Self {
        Connection {
            socket,
            captured: None,
            sent: 0,
            received: 0,
            shared_memory: None,
            is_reported: false,
        }
    }

    /// Starts the capture of a connected socket. `opened` says which side opened the connection.
    pub(crate) fn start_capture(
        &mut self,
        capture: Option<&Capture>,
        local: SocketAddr,
        peer: SocketAddr,
        opened: Direction,
    ) {
        let flow = capture.and_then(|capture| capture.tcp(Instant::now(), local, peer, opened));
        self.captured = flow.map(|flow| Box::new(CapturedFlow { flow, octets: Vec::new() }));
    }

    /// Sends the octets of a gather vector. With `ends_record`, the octets that are sent next begin
    /// a new TCP segment.
    ///
    /// # Safety
    /// Each element of the vector must name memory that is readable or no longer mapped.
    #[inline]
    pub(crate) unsafe fn send(&mut self, iov: &[libc::iovec], ends_record: bool) -> IoOutcome {
        if let Some(memory) = &mut self.shared_memory
            && memory.switch_if_accepted(self.sent)
        {
            // SAFETY: the caller guarantees that `iov` names memory that is readable. Memory that
            // is no longer mapped ends the process (docs/tcp-emu.md).
            return unsafe { memory.send(iov) };
        }
        // SAFETY: the caller guarantees that `iov` names memory that is readable or no longer
        // mapped.
        let outcome = unsafe { socket::send(&self.socket, iov, ends_record) };
        if let IoOutcome::Octets(n) = outcome {
            self.sent += n as u64;
        }
        if let Some(captured) = &mut self.captured {
            // SAFETY: the caller guarantees that `iov` names memory that is readable or no longer
            // mapped, and the kernel has read the part that was sent.
            unsafe { captured.record_sent(iov, &outcome) };
        }
        outcome
    }

    /// Receives octets into a scatter vector.
    ///
    /// # Safety
    /// Each element of the vector must name memory that is writable or no longer mapped.
    #[inline]
    pub(crate) unsafe fn receive(&mut self, iov: &[libc::iovec]) -> IoOutcome {
        let outcome = loop {
            while let Some(memory) = &mut self.shared_memory
                && memory.has_peer_switched(self.received)
            {
                // SAFETY: the caller guarantees that `iov` names memory that is writable. Memory
                // that is no longer mapped ends the process (docs/tcp-emu.md).
                match unsafe { memory.receive(iov) } {
                    IoOutcome::WouldBlock if self.is_reported => {
                        if let Some(end) = self.receive_end() {
                            return end;
                        }
                    }
                    outcome => return outcome,
                }
            }
            // SAFETY: the caller guarantees that `iov` names memory that is writable or no longer
            // mapped.
            let outcome = unsafe { socket::receive(&self.socket, iov) };
            match &outcome {
                IoOutcome::Octets(n @ 1..) => self.received += *n as u64,
                // Since the check above, the peer may have switched to the shared memory and closed
                // the socket.
                IoOutcome::Octets(0) | IoOutcome::Failed(_) if self.has_peer_switched() => {
                    self.is_reported = true;
                    continue;
                }
                _ => {}
            }
            break outcome;
        };
        if let Some(captured) = &mut self.captured {
            // SAFETY: the caller guarantees writable memory, and the kernel has written the part
            // that was received. Writable memory is readable.
            unsafe { captured.record_received(iov, &outcome) };
        }
        outcome
    }

    fn has_peer_switched(&mut self) -> bool {
        let octets = self.received;
        self.shared_memory.as_mut().is_some_and(|memory| memory.has_peer_switched(octets))
    }

    /// Ends the use of shared memory.
    pub(crate) fn drop_shared_memory(&mut self, context: &Context<Engine>) {
        if let Some(memory) = self.shared_memory.take() {
            // Another process may have a copy of the socket, which would keep it in the poller.
            context.suspend(memory.wake_socket()).ok();
        }
    }

    /// Accepts the peer's offer of this shared memory, and switches to sending by it.
    pub(crate) fn accept_shared_memory(&mut self) {
        if let Some(memory) = &mut self.shared_memory {
            memory.accept(self.sent);
        }
    }

    /// Switches to sending by shared memory if both sides use the memory. So the peer need not look
    /// at the socket any more, even if this side sends nothing.
    pub(crate) fn switch_if_accepted(&mut self) {
        if let Some(memory) = &mut self.shared_memory {
            memory.switch_if_accepted(self.sent);
        }
    }

    /// Whether this side sends by shared memory.
    #[inline]
    pub(crate) fn sends_by_memory(&self) -> bool {
        self.shared_memory.as_ref().is_some_and(|memory| memory.is_sending())
    }

    /// Whether this side receives by shared memory.
    #[inline]
    pub(crate) fn receives_by_memory(&self) -> bool {
        self.shared_memory.as_ref().is_some_and(|memory| memory.is_receiving())
    }

    /// Returns whether a send that has moved too few octets can continue at once. If not, the
    /// poller or the next pass reports when it can.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        match &mut self.shared_memory {
            Some(memory) if memory.is_sending() => memory.has_room(),
            _ => false,
        }
    }

    /// Returns whether the next octets can wait, because the poller or the next pass will report
    /// them. If not, a read that has moved too few octets is repeated at once.
    #[inline]
    pub(crate) fn is_drained(&mut self) -> bool {
        // The octets that were read by TCP may have been the last ones before the peer switched to
        // the ring. For octets in the ring the peer has already sent a wake-up, so nothing else
        // reports them.
        match &mut self.shared_memory {
            Some(memory) => !memory.has_peer_switched(self.received) || memory.is_drained(),
            None => true,
        }
    }

    /// Records that the poller has reported the socket.
    pub(crate) fn reported(&mut self) {
        self.is_reported = true;
    }

    /// Reads the socket of a peer that sends by shared memory, after the ring was empty. Returns
    /// `None` if the peer has closed the socket and the ring has octets now, which the peer wrote
    /// before.
    #[cold]
    fn receive_end(&mut self) -> Option<IoOutcome> {
        let mut octet = 0_u8;
        let iov = libc::iovec { iov_base: (&raw mut octet).cast(), iov_len: 1 };
        // SAFETY: the vector names one writable octet.
        let end = match unsafe { socket::receive(&self.socket, &[iov]) } {
            IoOutcome::WouldBlock => {
                self.is_reported = false;
                return Some(IoOutcome::WouldBlock);
            }
            // A peer that sends by shared memory sends nothing by TCP.
            IoOutcome::Octets(1..) => IoOutcome::Failed(io::Error::from_raw_os_error(libc::EPROTO)),
            end => end,
        };
        let has_octets = self.shared_memory.as_ref().is_some_and(|memory| memory.has_octets());
        (!has_octets).then_some(end)
    }

    /// Sends a slice.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> IoOutcome {
        let iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: the vector names `bytes`, which is readable.
        unsafe { self.send(&[iov], false) }
    }

    /// Receives into a slice.
    pub(crate) fn receive_bytes(&mut self, bytes: &mut [u8]) -> IoOutcome {
        let iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: the vector names `bytes`, which is writable.
        unsafe { self.receive(&[iov]) }
    }

    /// Shuts down the sending side: the peer receives a FIN.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)?;
        if let Some(captured) = &mut self.captured {
            captured.flow.finish(Instant::now(), Direction::Out);
        }
        Ok(())
    }

    /// Closes the socket with a RST, so that the peer's stack learns that its call was not
    /// accepted.
    pub(crate) fn reset(mut self) {
        self.socket.set_linger(Some(Duration::ZERO)).ok();
        if let Some(captured) = &mut self.captured {
            captured.flow.reset(Instant::now(), Direction::Out);
        }
    }
}

impl CapturedFlow {
    /// Records the octets of a send. A failed send is not recorded, because it moved no octets. The
    /// end of the connection is not recorded yet either, because octets that the peer sent before
    /// may still have to be read.
    ///
    /// # Safety
    /// As many octets of the vector as `outcome` says must be readable.
    #[cold]
    unsafe fn record_sent(&mut self, iov: &[libc::iovec], outcome: &IoOutcome) {
        if let &IoOutcome::Octets(n) = outcome {
            // SAFETY: the caller guarantees that the part of the vector that was moved is readable.
            unsafe { self.record(Direction::Out, iov, n) };
        }
    }

    /// Records the octets of a receive, or the end of the stream.
    ///
    /// # Safety
    /// As many octets of the vector as `outcome` says must be readable.
    #[cold]
    unsafe fn record_received(&mut self, iov: &[libc::iovec], outcome: &IoOutcome) {
        match *outcome {
            IoOutcome::Octets(0) => self.flow.finish(Instant::now(), Direction::In),
            // SAFETY: the caller guarantees that the part of the vector that was moved is readable.
            IoOutcome::Octets(n) => unsafe { self.record(Direction::In, iov, n) },
            IoOutcome::WouldBlock | IoOutcome::Fault => {}
            IoOutcome::Failed(_) => self.flow.reset(Instant::now(), Direction::In),
        }
    }

    /// Records the first `n` octets of a vector.
    ///
    /// # Safety
    /// These octets must be readable.
    unsafe fn record(&mut self, direction: Direction, iov: &[libc::iovec], n: usize) {
        self.octets.clear();
        self.octets.reserve(n);
        for part in iov {
            let copied = self.octets.len();
            let octets = part.iov_len.min(n - copied);
            // SAFETY: The caller guarantees that the source is readable. It may be memory of the
            // consumer, so no reference to it is created. `reserve` guarantees that the target has
            // room for `n` octets, and no more are written.
            unsafe {
                part.iov_base
                    .cast::<u8>()
                    .copy_to_nonoverlapping(self.octets.as_mut_ptr().add(copied), octets);
                self.octets.set_len(copied + octets);
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
