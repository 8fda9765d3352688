//! A queue pair and its connection: from the first SYN to the last completion.
//!
//! ```text
//! Idle ── connect ──► Connecting ── reply ──► Established ──► Ended
//!      ── accept ───────────────────────────► Established
//! ```
//!
//! All posted work completes before the event that reports the end of the connection.
//!
//! `receive_wait` handles a message of the peer that waits for a receive. `fault_check` handles
//! transfers that may have stopped at memory that is no longer mapped. `sharing` moves a connection
//! from TCP to shared memory.

mod established;
mod fault_check;
mod receive_wait;
mod setup;
mod sharing;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;
use std::{fmt, io};

use adapter::{Counts, QpShared};
use rnic::rdmap::setup::{FrameMissing, Gate};
use rnic::{Failure, Work};
use work::Close;
use work::cause::Cause;

use self::established::{Established, ReadOutcome, WriteOutcome};
use self::fault_check::FaultCheck;
use self::receive_wait::WindowWatch;
use self::setup::Connecting;
use crate::linger::LingeringSockets;
use crate::resources::{EngineEvent, EngineResources, ObjectKey, Sink, Timer};
use crate::socket::READ_WRITE;

/// The number of scatter reads of one connection in one turn.
const MAX_READS_PER_TURN: usize = 16;

/// The engine's view of a queue pair.
pub(crate) struct Link {
    index: usize,
    sink: Sink,
    shared: Arc<QpShared>,
    phase: Phase,
    pub(crate) timer: Timer,
    /// The number of consecutive reads of shared memory without data.
    pub(crate) empty_reads: u32,
    /// The number of reads with data since the poller last reported the connection, or since the
    /// socket last returned to the poller.
    pub(crate) successful_reads: u32,
}

type Phase = adapter::LinkPhase<Box<Connecting>, Box<Established>>;

/// The reason for which a connection ends.
enum EndReason {
    /// The consumer of this side disconnects.
    Local,
    /// The peer closed or reset the connection between messages.
    Peer,
    /// The network failed, or the peer left in the middle of a message.
    Lost(Loss),
    /// One side violated the protocol.
    Protocol(Failure),
}

impl EndReason {
    /// The cause for the program, if the stream has not reported it. `announced` says whether the
    /// consumer knows that the connection is established, and `closing` whether it has
    /// disconnected.
    fn cause(&self, announced: bool, closing: bool) -> Option<Cause> {
        match self {
            EndReason::Protocol(_) => None,
            EndReason::Local => Some(Cause::Disconnected { by_peer: false }),
            _ if !announced => Some(Cause::AcceptFailed),
            EndReason::Peer => Some(Cause::Disconnected { by_peer: !closing }),
            EndReason::Lost(loss) => Some(match loss {
                Loss::Connection(errno) => Cause::ConnectionLost { errno: *errno },
                Loss::PartialMessage => Cause::PartialMessage,
                Loss::FirstFrame(_) | Loss::Poller => Cause::Broken { why: Some(loss.to_string()) },
            }),
        }
    }
}

/// The loss that broke a connection.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// The TCP connection is lost, with the error number if there is one.
    Connection(Option<i32>),
    /// The rest of a message is lost.
    PartialMessage,
    /// The peer's first frame did not arrive.
    FirstFrame(FrameMissing),
    /// The events of the poller are lost, because there is no memory to watch the socket.
    Poller,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Connection(None) => f.write_str("the TCP connection was lost"),
            Loss::Connection(Some(errno)) => {
                write!(f, "the TCP connection was lost: {}", io::Error::from_raw_os_error(*errno))
            }
            Loss::PartialMessage => {
                f.write_str("the peer closed the connection in the middle of a message")
            }
            Loss::FirstFrame(missing) => missing.fmt(f),
            Loss::Poller => f.write_str("out of memory for watching the connection"),
        }
    }
}

impl Link {
    pub(crate) fn new(index: usize, sink: Sink, shared: Arc<QpShared>, work: Work) -> Self {
        Link {
            index,
            sink,
            shared,
            phase: Phase::Idle(work),
            timer: Timer::default(),
            empty_reads: 0,
            successful_reads: 0,
        }
    }

    pub(crate) fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established(_))
    }

    /// Returns whether a message of the peer has arrived only in part.
    pub(crate) fn is_mid_message(&self) -> bool {
        matches!(&self.phase, Phase::Established(conn) if conn.stream.is_mid_message())
    }

    /// Returns whether the connection waits for room in the socket's send buffer.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(&self.phase, Phase::Established(conn) if !conn.writable)
    }

    /// Records that the poller has reported the socket.
    pub(crate) fn reported(&mut self) {
        if let Phase::Established(conn) = &mut self.phase {
            conn.socket.reported();
        }
    }

    /// Adds the counters of the established connection.
    pub(crate) fn count(&self, counts: &mut Counts) {
        if let Phase::Established(conn) = &self.phase {
            counts.add(&conn.stream.stats().list());
        }
    }

    /// Returns the number of receive buffers that the queue pair has and that have not completed.
    pub(crate) fn allocated(&self) -> usize {
        match &self.phase {
            Phase::Idle(work) | Phase::Ended(work) => work.allocated(),
            Phase::Connecting(connecting) => connecting.work.allocated(),
            Phase::Established(conn) => conn.stream.work().allocated(),
            Phase::Disconnecting(_) | Phase::Transition => 0,
        }
    }

    #[inline]
    fn established_mut(&mut self) -> Option<&mut Established> {
        match &mut self.phase {
            Phase::Established(conn) => Some(conn),
            _ => None,
        }
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::Link(self.index)
    }

    fn set_timer(&mut self, resources: &mut EngineResources, at: Option<Instant>) {
        resources.set_timer(self.key(), &mut self.timer, at);
    }

    /// Sets the timer to the connection's next deadline.
    fn renew_timer(&mut self, resources: &mut EngineResources) {
        if let Phase::Established(conn) = &self.phase {
            let at = conn.deadline();
            self.set_timer(resources, at);
        }
    }
}

/// The methods for the established connection, and for the end of a connection or attempt.
impl Link {
    /// Receives until the socket is empty or the turn is over. Returns whether data arrived.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) -> bool {
        self.receive_until(resources, lingering, false)
    }

    /// Receives like [`Self::receive`]. With `until_end`, a short read does not stop the loop. This
    /// is necessary if the poller will not report the end of the stream again.
    pub(crate) fn receive_until(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        until_end: bool,
    ) -> bool {
        let Phase::Established(conn) = &mut self.phase else {
            self.continue_connecting(resources, lingering);
            return false;
        };
        if conn.pending_end.is_some() {
            return false;
        }
        let (mut progress, mut until_end) = (false, until_end);
        for _ in 0..MAX_READS_PER_TURN {
            match conn.receive(resources, &self.sink, &self.shared) {
                Ok(ReadOutcome::WouldBlock) => {
                    return self.after_receive(resources, lingering, progress, false);
                }
                Ok(ReadOutcome::Progress { drained }) => {
                    progress = true;
                    if drained && !until_end && !conn.send_failed {
                        return self.after_receive(resources, lingering, progress, false);
                    }
                }
                Ok(ReadOutcome::NoReceive) => {
                    return self.wait_for_receive(resources, lingering, progress);
                }
                Ok(ReadOutcome::Resumed) => {
                    // Read again: while the message waited, the poller may have reported events
                    // that it does not repeat.
                    (progress, until_end) = (true, true);
                }
                Err(end @ EndReason::Protocol(_)) => {
                    self.end(resources, lingering, end);
                    return true;
                }
                Err(end) => {
                    conn.pending_end = Some(end);
                    resources.closed.push(self.index);
                    self.after_receive(resources, lingering, progress, false);
                    return true;
                }
            }
        }
        self.after_receive(resources, lingering, progress, true)
    }

    /// Ends the connection if the end of its stream has been seen. The caller must have handled all
    /// earlier events of other sockets.
    pub(crate) fn finish_closed(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        if let Phase::Established(conn) = &mut self.phase
            && let Some(end) = conn.pending_end.take()
        {
            self.end(resources, lingering, end);
        }
    }

    #[inline]
    fn after_receive(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        progress: bool,
        more: bool,
    ) -> bool {
        if more {
            self.queue_pending(resources);
        }
        if progress {
            self.after_frames(resources, lingering);
        }
        progress
    }

    /// Continues after frames have arrived. The first frame may allow this side to send (see
    /// [`Gate`]). A frame may also be an RDMA READ of the peer, to which this side must respond.
    fn after_frames(&mut self, resources: &mut EngineResources, lingering: &mut LingeringSockets) {
        let Phase::Established(conn) = &mut self.phase else { return };
        if conn.fault_check == FaultCheck::Requested {
            self.schedule_fault_check(resources);
        }
        let Phase::Established(conn) = &mut self.phase else { return };
        let opened = conn.gate != Gate::Open && !conn.stream.is_held() && {
            conn.gate = Gate::Open;
            true
        };
        let transmit = opened || conn.closing || (conn.writable && conn.stream.wants_tx());
        let can_wait = !opened && !conn.closing && conn.stream.owes_only_report();
        if opened {
            self.renew_timer(resources);
        }
        match transmit {
            // The consumer may be about to send something. Then the report travels with it.
            true if can_wait => resources.queue_report(self.index),
            true => self.transmit(resources, lingering),
            false => {}
        }
        self.offer_if_due(resources, lingering);
    }

    /// Sends all frames that are ready.
    pub(crate) fn transmit(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        match &mut self.phase {
            Phase::Established(conn) => match conn.transmit(resources) {
                Ok(_) if conn.window_watch == WindowWatch::Requested => {
                    self.start_window_watch(resources, lingering)
                }
                Ok(WriteOutcome::Done) if conn.is_suspended && !conn.writable => {
                    self.resume_polling(resources, lingering)
                }
                Ok(WriteOutcome::Done) => {}
                Ok(WriteOutcome::More) => self.queue_pending(resources),
                Err(end) => self.end(resources, lingering, end),
            },
            Phase::Ended(work) => work.flush(),
            _ => {}
        }
        if self.established_mut().is_some_and(|conn| conn.fault_check == FaultCheck::Requested) {
            self.schedule_fault_check(resources);
        }
        self.watch_ring(resources);
        self.offer_if_due(resources, lingering);
    }

    /// Handles a writable socket: its send buffer has room, or an attempt to connect has ended.
    pub(crate) fn writable(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        match &mut self.phase {
            Phase::Established(conn) if !conn.writable => {
                conn.writable = true;
                self.transmit(resources, lingering);
            }
            Phase::Connecting(_) => self.continue_connecting(resources, lingering),
            _ => {}
        }
    }

    /// Removes the socket from the poller, because consumers read it in each pass. Returns false if
    /// the socket must stay in the poller.
    pub(crate) fn suspend_polling(&mut self, resources: &EngineResources) -> bool {
        match &mut self.phase {
            // The socket must stay in the poller if the connection waits for room in the send
            // buffer, or if a message waits for a receive. In these states only the poller reports
            // the room, or the peer's end. With shared memory, only the poller reports the peer's
            // end at any time.
            Phase::Established(conn)
                if conn.writable
                    && !conn.is_suspended
                    && !conn.stream.is_stalled()
                    && conn.socket.shared_memory.is_none() =>
            {
                conn.is_suspended = resources.context.suspend(&conn.socket).is_ok();
                conn.is_suspended
            }
            _ => false,
        }
    }

    /// Returns the socket to the poller if the socket has left the poller.
    pub(crate) fn resume_polling(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        self.successful_reads = 0;
        let key = self.key();
        if let Phase::Established(conn) = &mut self.phase
            && std::mem::take(&mut conn.is_suspended)
            && resources.context.resume(key, &conn.socket, READ_WRITE).is_err()
        {
            // There is no memory to register the socket. The poller would never report this
            // connection again, so the connection ends.
            self.end(resources, lingering, EndReason::Lost(Loss::Poller));
        }
    }

    /// Queues the link, because it can continue at once.
    fn queue_pending(&mut self, resources: &mut EngineResources) {
        if let Phase::Established(conn) = &mut self.phase
            && !std::mem::replace(&mut conn.is_pending, true)
        {
            resources.pending.push_back(self.index);
        }
    }

    /// Sends the report of placed writes that the connection still owes its peer.
    #[inline]
    pub(crate) fn send_report(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        if let Phase::Established(conn) = &self.phase
            && conn.stream.owes_report()
        {
            self.transmit(resources, lingering);
        }
    }

    /// Continues the work for which the link was queued.
    pub(crate) fn run_pending(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        let Phase::Established(conn) = &mut self.phase else { return };
        conn.is_pending = false;
        if conn.send_failed && !conn.announced {
            return self.end(resources, lingering, EndReason::Peer);
        }
        // If no RTR frame will come, the passive side is established as soon as its reply is sent.
        if matches!(conn.gate, Gate::FirstFrame(_)) && !conn.announced {
            conn.announce(&self.sink, &[]);
        }
        self.receive_until(resources, lingering, true);
        self.transmit(resources, lingering);
    }

    /// Handles the timer of the link.
    pub(crate) fn expire(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        now: Instant,
    ) {
        match &mut self.phase {
            Phase::Connecting(connecting) => {
                let why = connecting.socket.as_ref().err().cloned();
                let because = why.as_ref().map(|why| why as &dyn Display);
                let timed_out = connecting.has_consumer_timeout && because.is_none();
                self.fail(
                    resources,
                    if timed_out {
                        EngineEvent::TimedOut
                    } else {
                        EngineEvent::Unreachable { because }
                    },
                );
            }
            Phase::Established(conn) if conn.has_receive_wait_expired(now) => {
                let end = conn.end_reason();
                self.end(resources, lingering, end);
            }
            Phase::Established(conn) if conn.fault_check.is_due(now) => {
                self.run_fault_check(resources, lingering)
            }
            Phase::Established(conn) if conn.ring_watch.is_some_and(|w| w.deadline() <= now) => {
                self.check_ring(resources, lingering)
            }
            Phase::Established(conn) => {
                if let Err(end) = conn.check_window(now, resources.config.peer_timeout) {
                    return self.end(resources, lingering, end);
                }
                match conn.gate.expire(now) {
                    Ok(nudge) if conn.gate.is_open() => {
                        if nudge {
                            conn.stream.queue_rtr();
                        }
                        conn.stream.release();
                        self.renew_timer(resources);
                        self.transmit(resources, lingering);
                    }
                    Ok(_) => self.renew_timer(resources),
                    Err(missing) => {
                        self.end(resources, lingering, EndReason::Lost(Loss::FirstFrame(missing)))
                    }
                }
            }
            _ => {}
        }
    }

    /// Ends the connection or the attempt on behalf of the consumer.
    pub(crate) fn disconnect(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        how: Close,
    ) {
        match (&mut self.phase, how) {
            (Phase::Established(conn), Close::Graceful) if conn.announced => {
                conn.closing = true;
                conn.gate.limit(Instant::now());
                self.transmit(resources, lingering);
                self.renew_timer(resources);
            }
            (Phase::Established(_), _) => {
                self.send_report(resources, lingering);
                self.end(resources, lingering, EndReason::Local)
            }
            (Phase::Connecting(_), _) => self.fail(resources, EngineEvent::Disconnected),
            (Phase::Idle(_), _) => {
                if let Some(work) = self.phase.take_idle() {
                    self.finish(resources, work);
                }
                self.sink.call(EngineEvent::Disconnected);
            }
            _ => {}
        }
    }

    fn end(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        end: EndReason,
    ) {
        let Some(conn) = self.phase.take_established() else { return };
        resources.ended_counts.add(&conn.stream.stats().list());
        let Established { mut stream, mut socket, announced, closing, send_failed, .. } = *conn;
        if let EndReason::Protocol(Failure { by_peer: false, .. }) = end {
            // The TERMINATE is sent only if that is possible at once (RFC 5040, section 5.4).
            socket.send_bytes(&stream.terminate());
        }
        // The peer still reads what is in the memory.
        socket.drop_shared_memory(&resources.context);
        self.set_timer(resources, None);
        if let Some(cause) = end.cause(announced, closing) {
            self.sink.call(EngineEvent::Cause(cause));
        }
        stream.flush();
        let is_foreign_peer = !stream.is_extended();
        self.finish(resources, stream.into_work());
        match end {
            EndReason::Peer | EndReason::Lost(_) => resources.context.unwatch(&socket),
            EndReason::Local | EndReason::Protocol(_) if send_failed => {
                resources.context.unwatch(&socket)
            }
            EndReason::Local if is_foreign_peer => lingering.add_of_foreign_peer(resources, socket),
            EndReason::Local | EndReason::Protocol(_) => lingering.add(resources, socket),
        }
        self.sink.call(match &end {
            EndReason::Local => EngineEvent::Disconnected,
            _ if !announced => EngineEvent::AcceptFailed,
            _ if closing => EngineEvent::Disconnected,
            EndReason::Peer => EngineEvent::Disconnected,
            EndReason::Lost(because) => EngineEvent::Broken { because: Some(because) },
            EndReason::Protocol(because) => EngineEvent::Broken { because: Some(because) },
        });
    }

    /// Flushes all posted work. Work that is posted later is flushed, too.
    fn finish(&mut self, resources: &mut EngineResources, work: Work) {
        self.phase.end(&self.shared, work);
        // This queue pair may have been the next to take a buffer of a shared receive queue. Then
        // another queue pair is the next one now, and continues.
        if let Phase::Ended(work) = &self.phase {
            resources.pending.extend(work.next_waiting());
        }
    }

    /// Removes the queue pair. Afterwards there are no events for it.
    pub(crate) fn close(
        mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        self.set_timer(resources, None);
        match std::mem::take(&mut self.phase) {
            Phase::Established(mut conn) => {
                conn.socket.drop_shared_memory(&resources.context);
                resources.ended_counts.add(&conn.stream.stats().list());
                lingering.add(resources, conn.socket);
                let mut work = conn.stream.into_work();
                work.stop_waiting();
                resources.pending.extend(work.next_waiting());
            }
            Phase::Connecting(connecting) => {
                if let Ok(socket) = &connecting.socket {
                    resources.context.unwatch(socket);
                }
            }
            _ => {}
        }
    }
}
