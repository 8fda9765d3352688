//! A queue pair and its connection: from the first SYN to the last completion.
//!
//! ```text
//! Idle ─ dial ──► Dialing ─ reply ──► Up ──► Ended        everything posted completes before the upcall
//!      ─ answer ────────────────────► Up                  that says how it ended
//! ```
//!
//! `stall` has what is done while a message of the peer waits for a receive, `doubt` what is done about
//! memory that may be gone.

mod doubt;
mod setup;
mod stall;
mod up;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;
use std::{fmt, io};

use adapter::{Counts, Shared};
use dat_core::provider::Close;
use rnic::rdmap::setup::{Gate, RtrMissing};
use rnic::{Failure, Work};

use self::doubt::Doubt;
use self::setup::Dialing;
pub(crate) use self::setup::Target;
use self::stall::Window;
use self::up::{Received, Sent, Up};
use crate::call::READ_WRITE;
use crate::engine::{Key, Kit, Sink, Timer, Upcall};
use crate::linger::Lingerers;

/// Scatter reads of one connection before others get their turn.
const RX_BURST: usize = 16;

/// A queue pair, as the engine sees it.
pub(crate) struct Link {
    index: usize,
    sink: Sink,
    shared: Arc<Shared>,
    phase: Phase,
    pub(crate) timer: Timer,
    /// Looks in a row that found nothing.
    pub(crate) idle_looks: u32,
    /// Looks that found something, since the poller last had to tell of it.
    pub(crate) good_looks: u32,
}

enum Phase {
    Idle(Work),
    Dialing(Box<Dialing>),
    Up(Box<Up>),
    Ended(Work),
    /// While one of the others becomes another.
    Between,
}

/// Why a connection ends.
enum End {
    /// This side's consumer wants it.
    Local,
    /// The peer closed, or reset the connection, between messages.
    Peer,
    /// The network failed, or the peer vanished in the middle of a message.
    Lost(Loss),
    /// One side broke the rules of the protocol.
    Protocol(Failure),
}

/// What was lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// The TCP connection; an error number, if there is one.
    Connection(Option<i32>),
    /// The rest of a message.
    Rest,
    /// The frame that was promised when the connection was set up.
    FirstFrame(RtrMissing),
    /// Whoever would tell of the connection.
    Watch,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Connection(None) => f.write_str("the TCP connection was lost"),
            Loss::Connection(Some(errno)) => {
                write!(f, "the TCP connection was lost: {}", io::Error::from_raw_os_error(*errno))
            }
            Loss::Rest => f.write_str("the peer has left in the middle of a message"),
            Loss::FirstFrame(missing) => missing.fmt(f),
            Loss::Watch => f.write_str("no memory to watch the connection"),
        }
    }
}

impl Link {
    pub(crate) fn new(index: usize, sink: Sink, shared: Arc<Shared>, work: Work) -> Self {
        Link {
            index,
            sink,
            shared,
            phase: Phase::Idle(work),
            timer: Timer::default(),
            idle_looks: 0,
            good_looks: 0,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up(_))
    }

    /// Whether a message of the peer has come in part.
    pub(crate) fn is_mid_message(&self) -> bool {
        matches!(&self.phase, Phase::Up(up) if up.stream.is_mid_message())
    }

    /// Whether something waits for room in the socket.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(&self.phase, Phase::Up(up) if !up.writable)
    }

    /// What its connection has done, if it is up.
    pub(crate) fn count(&self, counts: &mut Counts) {
        if let Phase::Up(up) = &self.phase {
            counts.add(&up.stream.stats().list());
        }
    }

    /// Receive buffers that belong to it and have not completed.
    pub(crate) fn allocated(&self) -> usize {
        match &self.phase {
            Phase::Idle(work) | Phase::Ended(work) => work.allocated(),
            Phase::Dialing(dialing) => dialing.work.allocated(),
            Phase::Up(up) => up.stream.work().allocated(),
            Phase::Between => 0,
        }
    }

    #[inline]
    fn up_mut(&mut self) -> Option<&mut Up> {
        match &mut self.phase {
            Phase::Up(up) => Some(up),
            _ => None,
        }
    }

    fn key(&self) -> Key {
        Key::Link(self.index)
    }

    fn set_timer(&mut self, kit: &mut Kit, at: Option<Instant>) {
        kit.set_timer(self.key(), &mut self.timer, at);
    }

    /// Sets the timer of a connection.
    fn renew_timer(&mut self, kit: &mut Kit) {
        if let Phase::Up(up) = &self.phase {
            let at = up.deadline();
            self.set_timer(kit, at);
        }
    }
}

/// The connection.
impl Link {
    /// Looks for octets, once or until there are none for the time being.
    #[inline]
    pub(crate) fn receive(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) -> bool {
        self.receive_until(kit, lingerers, false)
    }

    /// As `receive`; `until_end`: the stream has an end, and no other sign of it will come.
    pub(crate) fn receive_until(
        &mut self,
        kit: &mut Kit,
        lingerers: &mut Lingerers,
        until_end: bool,
    ) -> bool {
        let Phase::Up(up) = &mut self.phase else {
            self.dialing(kit, lingerers);
            return false;
        };
        if up.over.is_some() {
            return false;
        }
        let (mut progress, mut until_end) = (false, until_end);
        for _ in 0..RX_BURST {
            match up.receive(kit, &self.sink, &self.shared) {
                Ok(Received::Nothing) => {
                    return self.after_receive(kit, lingerers, progress, false);
                }
                Ok(Received::Some { drained }) => {
                    progress = true;
                    if drained && !until_end && !up.hung_up {
                        return self.after_receive(kit, lingerers, progress, false);
                    }
                }
                Ok(Received::Stalled) => return self.stand_still(kit, lingerers, progress),
                Ok(Received::Resumed) => {
                    // What the poller has told meanwhile, it does not tell again.
                    (progress, until_end) = (true, true);
                }
                Err(end @ End::Protocol(_)) => {
                    self.end(kit, lingerers, end);
                    return true;
                }
                Err(end) => {
                    up.over = Some(end);
                    kit.over.push(self.index);
                    self.after_receive(kit, lingerers, progress, false);
                    return true;
                }
            }
        }
        self.after_receive(kit, lingerers, progress, true)
    }

    /// Whatever came elsewhere before the end of this stream has been seen.
    pub(crate) fn end_if_over(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        if let Phase::Up(up) = &mut self.phase
            && let Some(end) = up.over.take()
        {
            self.end(kit, lingerers, end);
        }
    }

    #[inline]
    fn after_receive(
        &mut self,
        kit: &mut Kit,
        lingerers: &mut Lingerers,
        progress: bool,
        more: bool,
    ) -> bool {
        if more {
            self.again(kit);
        }
        if progress {
            self.after_frames(kit, lingerers);
        }
        progress
    }

    /// Frames came: a gate may have opened, and reads of the peer wait for their answers.
    fn after_frames(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        let Phase::Up(up) = &mut self.phase else { return };
        if up.doubt == Doubt::New {
            self.ask_later(kit);
        }
        let Phase::Up(up) = &mut self.phase else { return };
        let opened = up.gate != Gate::Open && !up.stream.is_held() && {
            up.gate = Gate::Open;
            true
        };
        let transmit = opened || up.closing || (up.writable && up.stream.wants_tx());
        if opened {
            self.renew_timer(kit);
        }
        if transmit {
            self.transmit(kit, lingerers);
        }
    }

    /// Sends what is ready.
    pub(crate) fn transmit(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        match &mut self.phase {
            Phase::Up(up) => match up.transmit(kit) {
                Ok(_) if up.window == Window::Sent => self.watch_window(kit, lingerers),
                Ok(Sent::All) if up.absent && !up.writable => self.enter_poller(kit, lingerers),
                Ok(Sent::All) => {}
                Ok(Sent::More) => self.again(kit),
                Err(end) => self.end(kit, lingerers, end),
            },
            Phase::Ended(work) => work.flush(),
            Phase::Idle(_) | Phase::Dialing(_) | Phase::Between => {}
        }
        if self.up_mut().is_some_and(|up| up.doubt == Doubt::New) {
            self.ask_later(kit);
        }
    }

    /// The socket has room again, or an attempt to connect has ended.
    pub(crate) fn writable(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        match &mut self.phase {
            Phase::Up(up) if !up.writable => {
                up.writable = true;
                self.transmit(kit, lingerers);
            }
            Phase::Dialing(_) => self.dialing(kit, lingerers),
            _ => {}
        }
    }

    /// The poller need not tell of this connection, since consumers look at it all the time. False: it is to stay.
    pub(crate) fn leave_poller(&mut self, kit: &Kit) -> bool {
        match &mut self.phase {
            // One that waits for room needs to be told.
            Phase::Up(up) if up.writable && !up.absent && !up.stream.is_stalled() => {
                up.absent = kit.context.suspend(&up.socket).is_ok();
                up.absent
            }
            _ => false,
        }
    }

    /// It must tell again.
    pub(crate) fn enter_poller(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        self.good_looks = 0;
        let key = self.key();
        if let Phase::Up(up) = &mut self.phase
            && std::mem::take(&mut up.absent)
            && kit.context.resume(key, &up.socket, READ_WRITE).is_err()
        {
            // Out of memory for the poller: nobody would ever hear of this connection.
            self.end(kit, lingerers, End::Lost(Loss::Watch));
        }
    }

    /// Notes that there is more to do.
    fn again(&mut self, kit: &mut Kit) {
        if let Phase::Up(up) = &mut self.phase
            && !std::mem::replace(&mut up.queued, true)
        {
            kit.again.push_back(self.index);
        }
    }

    /// Does it.
    pub(crate) fn go_on(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        let Phase::Up(up) = &mut self.phase else { return };
        up.queued = false;
        if up.hung_up && !up.announced {
            return self.end(kit, lingerers, End::Peer);
        }
        // Without an RTR frame to come the passive side is up as soon as its reply is out.
        if let Gate::FirstFrame(_) = up.gate
            && !up.announced
        {
            up.announce(&self.sink, &[]);
        }
        self.receive_until(kit, lingerers, true);
        self.transmit(kit, lingerers);
    }

    /// A timer has run out.
    pub(crate) fn expire(&mut self, kit: &mut Kit, lingerers: &mut Lingerers, now: Instant) {
        match &mut self.phase {
            Phase::Dialing(dialing) => {
                let why = dialing.socket.as_ref().err().cloned();
                let because = why.as_ref().map(|why| why as &dyn Display);
                let timed_out = dialing.limited && because.is_none();
                self.fail(
                    kit,
                    if timed_out { Upcall::TimedOut } else { Upcall::Unreachable { because } },
                );
            }
            Phase::Up(up) if up.has_waited_long_enough(now) => {
                let end = up.how_it_ended();
                self.end(kit, lingerers, end);
            }
            Phase::Up(up) if up.doubt.is_due(now) => self.ask(kit, lingerers),
            Phase::Up(up) => {
                up.window.expire(now, &up.socket, kit.params.patience);
                match up.gate.expire(now) {
                    Ok(nudge) if up.gate.is_open() => {
                        if nudge {
                            up.stream.queue_rtr();
                        }
                        up.stream.release();
                        self.renew_timer(kit);
                        self.transmit(kit, lingerers);
                    }
                    Ok(_) => self.renew_timer(kit),
                    Err(missing) => self.end(kit, lingerers, End::Lost(Loss::FirstFrame(missing))),
                }
            }
            Phase::Ended(_) => self.sink.call(Upcall::AcceptFailed),
            Phase::Idle(_) | Phase::Between => {}
        }
    }

    /// Ends the connection, or the attempt, as the consumer wants.
    pub(crate) fn disconnect(&mut self, kit: &mut Kit, lingerers: &mut Lingerers, how: Close) {
        match (&mut self.phase, how) {
            (Phase::Up(up), Close::Graceful) if up.announced => {
                up.closing = true;
                self.transmit(kit, lingerers);
            }
            (Phase::Up(_), _) => self.end(kit, lingerers, End::Local),
            (Phase::Dialing(_), _) => self.fail(kit, Upcall::Disconnected),
            (Phase::Idle(_), _) => {
                if let Phase::Idle(work) = std::mem::replace(&mut self.phase, Phase::Between) {
                    self.finish(kit, work);
                }
                self.sink.call(Upcall::Disconnected);
            }
            (Phase::Ended(_) | Phase::Between, _) => {}
        }
    }

    fn end(&mut self, kit: &mut Kit, lingerers: &mut Lingerers, end: End) {
        let Phase::Up(up) = std::mem::replace(&mut self.phase, Phase::Between) else { return };
        kit.past.add(&up.stream.stats().list());
        let Up { mut stream, mut socket, announced, closing, hung_up, .. } = *up;
        if let End::Protocol(Failure { by_peer: false, .. }) = end {
            // Best effort, as the standard says (RFC 5040, section 5.4).
            socket.send_bytes(&stream.terminate());
        }
        self.set_timer(kit, None);
        stream.flush();
        let is_stranger = !stream.is_extended();
        self.finish(kit, stream.into_work());
        match end {
            End::Peer | End::Lost(_) => kit.context.unwatch(&socket),
            End::Local | End::Protocol(_) if hung_up => kit.context.unwatch(&socket),
            End::Local if is_stranger => lingerers.add_of_stranger(kit, socket),
            End::Local | End::Protocol(_) => lingerers.add(kit, socket),
        }
        self.sink.call(match &end {
            End::Local => Upcall::Disconnected,
            _ if !announced => Upcall::AcceptFailed,
            _ if closing => Upcall::Disconnected,
            End::Peer => Upcall::Disconnected,
            End::Lost(because) => Upcall::Broken { because },
            End::Protocol(because) => Upcall::Broken { because },
        });
    }

    /// Completes all that is posted, and sees to it that what is posted later is completed, too.
    fn finish(&mut self, kit: &mut Kit, mut work: Work) {
        self.shared.end();
        work.flush();
        // It may have been the next that takes a buffer of a shared receive queue.
        kit.again.extend(work.next_waiting());
        self.phase = Phase::Ended(work);
    }

    /// The queue pair goes away: no upcalls any more.
    pub(crate) fn close(mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        self.set_timer(kit, None);
        match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Up(up) => {
                kit.past.add(&up.stream.stats().list());
                lingerers.add(kit, up.socket);
                let mut work = up.stream.into_work();
                work.stop_waiting();
                kit.again.extend(work.next_waiting());
            }
            Phase::Dialing(dialing) => {
                if let Ok(socket) = &dialing.socket {
                    kit.context.unwatch(socket);
                }
            }
            Phase::Idle(_) | Phase::Ended(_) | Phase::Between => {}
        }
    }
}
