//! An established connection, which moves frames to and from the socket.

use std::net::SocketAddr;
use std::time::Instant;

use adapter::QpShared;
use rnic::rdmap::setup::{Gate, Recognition, SIGNATURE};
use rnic::{Stream, StreamCfg};
use tracing::info;
use work::ReadDepth;

use super::fault_check::FaultCheck;
use super::receive_wait::{ReceiveWait, WindowWatch};
use super::sharing::Sharing;
use super::{EndReason, Loss};
use crate::connection::Connection;
use crate::resources::{EngineEvent, EngineResources, Sink};
use crate::shm::RingWatch;
use crate::socket::IoOutcome;
use crate::unconfirmed::UnconfirmedRequest;

/// The number of gather writes of one connection in one turn.
const MAX_WRITES_PER_TURN: usize = 16;

/// An established connection.
pub(super) struct Established {
    pub(super) stream: Stream,
    pub(super) socket: Connection,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) depth: ReadDepth,
    pub(super) gate: Gate,
    /// If the caller claims to be an OpenDAT: what finds out whether it is one, and the parameters
    /// that hold if it is. Until then, `sharing` and `window_watch` have their states for an
    /// OpenDAT: nothing is sent yet, and only an OpenDAT offers memory.
    pub(super) recognition: Option<Box<(Recognition, StreamCfg)>>,
    /// Counts the acceptance until the caller has confirmed it by its first frame.
    pub(super) place: Option<UnconfirmedRequest>,
    /// Whether the consumer knows that the connection is established.
    pub(super) announced: bool,
    /// Whether the log says that requests wait for the caller's first frame.
    hold_is_logged: bool,
    /// Whether a graceful disconnect is in progress.
    pub(super) closing: bool,
    /// Whether the latest send took all octets that were ready.
    pub(super) writable: bool,
    /// Whether a send has failed. The octets that the peer sent earlier must still be read.
    pub(super) send_failed: bool,
    /// The error number of the failed send, or of the failed read behind a waiting message.
    pub(super) send_errno: Option<i32>,
    /// Whether the link is queued in `EngineResources::pending`.
    pub(super) is_pending: bool,
    /// Whether the socket has left the poller.
    pub(super) is_suspended: bool,
    /// Whether and when the connection moves to shared memory.
    pub(super) sharing: Sharing,
    /// The watch on the ring of shared memory.
    pub(super) ring_watch: Option<RingWatch>,
    /// The state while a message of the peer waits for a receive.
    pub(super) receive_wait: ReceiveWait,
    /// The watch on the peer's receive window.
    pub(super) window_watch: WindowWatch,
    /// The check for memory that is no longer mapped.
    pub(super) fault_check: FaultCheck,
    /// The end of the stream, if it has been read. [`adapter::MakeProgress::finish_closed`] reports
    /// it after the earlier events of other sockets.
    pub(super) pending_end: Option<EndReason>,
}

pub(super) enum ReadOutcome {
    /// No octets are waiting in the socket.
    WouldBlock,
    /// Octets arrived.
    /// `drained`: the read was short, so the socket is empty.
    Progress { drained: bool },
    /// A message waits for a receive.
    NoReceive,
    /// The message that waited has been taken.
    Resumed,
}

pub(super) enum WriteOutcome {
    /// No frame is ready, or the socket is full.
    Done,
    /// The turn is over, but more frames may be ready.
    More,
}

impl Established {
    pub(super) fn new(
        stream: Stream,
        socket: Connection,
        peer: SocketAddr,
        local: SocketAddr,
        depth: ReadDepth,
        gate: Gate,
    ) -> Self {
        Established {
            stream,
            socket,
            peer,
            local,
            depth,
            gate,
            recognition: None,
            place: None,
            announced: false,
            hold_is_logged: false,
            closing: false,
            writable: true,
            send_failed: false,
            send_errno: None,
            is_pending: false,
            is_suspended: false,
            sharing: Sharing::Off,
            ring_watch: None,
            receive_wait: ReceiveWait::default(),
            window_watch: WindowWatch::Off,
            fault_check: FaultCheck::None,
            pending_end: None,
        }
    }

    /// Returns the time at which the connection's next timer expires.
    pub(super) fn deadline(&self) -> Option<Instant> {
        [
            self.gate.deadline(),
            self.receive_wait.deadline,
            self.window_watch.deadline(),
            self.fault_check.deadline(),
            self.ring_watch.map(RingWatch::deadline),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(super) fn announce(&mut self, sink: &Sink, private: &[u8]) {
        self.announced = true;
        self.place = None;
        let Established { peer, local, depth, .. } = *self;
        sink.call(EngineEvent::Established { private, peer, local, depth });
    }

    /// Does one scatter read. If a message waits for a receive, tries to process that message
    /// instead.
    #[inline]
    pub(super) fn receive(
        &mut self,
        resources: &mut EngineResources,
        sink: &Sink,
        shared: &QpShared,
    ) -> Result<ReadOutcome, EndReason> {
        if self.stream.is_stalled() {
            return self.resume_message(resources, shared);
        }
        if !self.announced && self.recognition.is_some() {
            return self.recognise(sink);
        }
        self.stream.rx(&mut resources.rx).map_err(EndReason::Protocol)?;
        // SAFETY: the stream has just filled the vector with memory that may be written.
        let outcome = unsafe { self.socket.receive(resources.rx.iov()) };
        let Some(n) = self.arrived(outcome)? else { return Ok(ReadOutcome::WouldBlock) };
        if !self.announced {
            // These octets are the RTR frame, or the first frame that replaces it. The consumer
            // must learn that the connection is established before it gets a completion.
            self.announce(sink, &[]);
        }
        self.sharing.count_transfer();
        let drained = n < resources.rx.octets() && self.socket.is_drained();
        if self.stream.may_fault_behind(&resources.rx, n) && !self.socket.receives_by_memory() {
            self.fault_check.request();
        }
        self.stream.rx_done(&mut resources.rx, n).map_err(EndReason::Protocol)?;
        // If the message waits for a receive, do not report the socket as drained. The caller then
        // calls again and gets `NoReceive`.
        Ok(ReadOutcome::Progress { drained: drained && !self.stream.is_stalled() })
    }

    /// Reads the first octets of the peer, which show whether it is an OpenDAT.
    #[cold]
    fn recognise(&mut self, sink: &Sink) -> Result<ReadOutcome, EndReason> {
        let Some(mut recognition) = self.recognition.take() else {
            return Ok(ReadOutcome::WouldBlock);
        };
        let (first, cfg) = &mut *recognition;
        let mut octets = [0; SIGNATURE.len()];
        let outcome = self.socket.receive_bytes(&mut octets[..first.wants()]);
        let Some(n) = self.arrived(outcome)? else {
            self.recognition = Some(recognition);
            return Ok(ReadOutcome::WouldBlock);
        };
        match first.feed(&octets[..n]) {
            None => self.recognition = Some(recognition),
            Some((octets, is_opendat)) => {
                match is_opendat {
                    true => self.stream.peer_is_opendat(cfg),
                    false => {
                        (self.sharing, self.window_watch) = (Sharing::Off, WindowWatch::Off);
                    }
                }
                // The consumer may use what the peer supports as soon as it learns of the
                // connection.
                self.announce(sink, &[]);
                self.stream.rx_octets(octets).map_err(EndReason::Protocol)?;
            }
        }
        Ok(ReadOutcome::Progress { drained: false })
    }

    /// Returns the number of octets of a read, or `None` if there are none yet.
    #[inline]
    fn arrived(&mut self, outcome: IoOutcome) -> Result<Option<usize>, EndReason> {
        match outcome {
            IoOutcome::Octets(n @ 1..) => Ok(Some(n)),
            IoOutcome::WouldBlock if self.send_failed => {
                Err(EndReason::Lost(Loss::Connection(self.send_errno)))
            }
            IoOutcome::WouldBlock => Ok(None),
            // A send may already have taken the error that ended the connection from the socket. So
            // `end_reason` also considers the error of the last failed send.
            IoOutcome::Octets(0) => Err(self.end_of_stream(self.end_reason())),
            IoOutcome::Fault => Err(EndReason::Protocol(self.stream.rx_fault())),
            IoOutcome::Failed(e) if is_reset(&e) => Err(self.end_of_stream(EndReason::Peer)),
            IoOutcome::Failed(e) => Err(EndReason::Lost(Loss::Connection(e.raw_os_error()))),
        }
    }

    /// Returns the reason for which the stream is over: `end`, or the loss of a message if the
    /// stream ends in the middle of that message.
    pub(super) fn end_of_stream(&self, end: EndReason) -> EndReason {
        if self.stream.is_mid_message() { EndReason::Lost(Loss::PartialMessage) } else { end }
    }

    /// Does gather writes until no frame is ready, the socket is full, or the turn is over.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        resources: &mut EngineResources,
    ) -> Result<WriteOutcome, EndReason> {
        for _ in 0..MAX_WRITES_PER_TURN {
            if !self.writable {
                return Ok(WriteOutcome::Done);
            }
            let ready = self.stream.tx(&mut resources.tx).map_err(EndReason::Protocol)?;
            if ready == 0 {
                if matches!(self.gate, Gate::FirstFrame(_)) {
                    self.log_hold();
                }
                // After a disconnect, the consumer posts no receive for a message of the peer that
                // waits. The responses to this side's READs come behind that message and cannot
                // arrive. So do not wait for them.
                return match self.closing && (self.stream.is_drained() || self.stream.is_stalled())
                {
                    true => Err(EndReason::Local),
                    false => Ok(WriteOutcome::Done),
                };
            }
            let sent = match self.send(resources)? {
                IoOutcome::Octets(n) => n,
                IoOutcome::WouldBlock | IoOutcome::Fault => 0,
                IoOutcome::Failed(e) => {
                    self.send_errno = e.raw_os_error();
                    // Do not end the connection yet, because the peer's last messages may still be
                    // in the socket.
                    self.writable = false;
                    self.send_failed = true;
                    self.stream.tx_done(&mut resources.tx, 0);
                    return Ok(WriteOutcome::More);
                }
            };
            self.window_watch.request();
            self.sharing.count_transfer();
            // After a short write, the poller reports when there is room.
            self.writable = sent == resources.tx.octets() || self.socket.has_room();
            if sent > 0 && !self.writable && !self.socket.sends_by_memory() {
                self.fault_check.request();
            }
            self.stream.tx_done(&mut resources.tx, sent);
        }
        Ok(WriteOutcome::More)
    }

    /// Logs once that requests wait for the caller's first frame.
    #[cold]
    fn log_hold(&mut self) {
        if !self.stream.is_drained() && !std::mem::replace(&mut self.hold_is_logged, true) {
            let (peer, local) = (self.peer, self.local);
            info!(target: "dat::cm", %local, %peer, "requests wait for the caller's first message");
        }
    }

    /// Sends the gathered frames. If some of their memory is no longer mapped (EFAULT), the kernel
    /// takes none of them, and this method sends only the first message. If the memory of the first
    /// message is not mapped either, the connection ends.
    #[inline]
    fn send(&mut self, resources: &mut EngineResources) -> Result<IoOutcome, EndReason> {
        // SAFETY: the stream has just gathered registered memory.
        match unsafe { self.socket.send(resources.tx.iov(), resources.tx.ends_record()) } {
            IoOutcome::Fault => {
                self.stream.tx_fault(&mut resources.tx).map_err(EndReason::Protocol)?;
                // SAFETY: `tx_fault` has shortened the vector to its first message, so the memory
                // is still registered.
                let outcome =
                    unsafe { self.socket.send(resources.tx.iov(), resources.tx.ends_record()) };
                if let IoOutcome::Fault = outcome {
                    self.stream.tx_fault(&mut resources.tx).map_err(EndReason::Protocol)?;
                }
                Ok(outcome)
            }
            outcome => Ok(outcome),
        }
    }
}

/// Returns whether the peer has reset the connection.
pub(super) fn is_reset(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ECONNRESET | libc::EPIPE))
}
