//! A message of the peer that waits for a receive.
//!
//! While a message waits, the connection sends but does not receive, except to find the peer's
//! reports of placed writes ([`Stream::rx_ahead`](rnic::Stream::rx_ahead)). What the peer sends
//! fills the socket's receive buffer, until TCP's flow control stops the peer. The message waits
//! until a receive is posted or either side ends the connection.
//!
//! [`WindowWatch`] works on the sender's side. A message that waits at the peer may close the
//! peer's receive window. The watch keeps TCP from giving up such a peer, as long as the peer
//! answers TCP's window probes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use adapter::QpShared;
use rnic::Arrival;
use rnic::rdmap::setup::Terms;

use super::established::{Established, ReadOutcome};
use super::{EndReason, Link, Loss, Phase};
use crate::linger::LingeringSockets;
use crate::resources::{EngineEvent, EngineResources};
use crate::socket::{self, IoOutcome, PeerTimeout, Unacknowledged};

/// The time for which messages wait for receives after the peer has ended the stream. After this
/// time the consumer is told of the end, because a consumer that waits only for this event posts no
/// receive.
const RECEIVE_WAIT_AFTER_END: Duration = Duration::from_secs(3);
/// The number of octets of one read behind a message that waits.
const READ_AHEAD_OCTETS: usize = 4096;
/// How often the window of a peer is checked within [`PeerTimeout::total`].
const CHECKS_PER_TIMEOUT: u32 = 3;

/// The state while a message waits for a receive.
#[derive(Default)]
pub(super) struct ReceiveWait {
    /// Whether the threads that post receives have been told that a message waits for one.
    requested: bool,
    /// Whether the consumer has been told that a message waits.
    reported: bool,
    /// Whether the peer has ended the stream. The poller reports the end only once.
    pub(super) peer_has_ended: bool,
    /// The time at which the connection ends although a message waits. It is set when the peer has
    /// ended the stream.
    pub(super) deadline: Option<Instant>,
}

/// Watches the peer's receive window. Without the watch, TCP would break the connection when a
/// message waits at the peer for a receive and the peer's receive buffer is full.
///
/// While the window is closed, TCP itself applies no limit. Its keep-alive is inactive while octets
/// wait to be sent. Its user timeout is switched off, because it would also end the connection to a
/// peer that answers. So the watch ends the connection if the peer leaves window probes unanswered
/// for [`PeerTimeout::total`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowWatch {
    /// No watch is needed. Either the peer is on the same host, where TCP has no time limit, or the
    /// peer is not OpenDAT and does not let messages wait.
    Off,
    /// Nothing has been sent since the last check.
    Idle,
    /// Something has been sent, but the timer is not set yet.
    Requested,
    /// The timer is set.
    Scheduled {
        at: Instant,
        /// Each check since this time has found an unanswered window probe. `None` if the latest
        /// check has found none.
        unanswered_since: Option<Instant>,
    },
}

impl WindowWatch {
    pub(super) fn of(terms: &Terms, peer: SocketAddr, local: SocketAddr) -> Self {
        if terms.extended && !socket::is_same_host(peer, local) {
            WindowWatch::Idle
        } else {
            WindowWatch::Off
        }
    }

    /// Requests a check after something was sent.
    #[inline]
    pub(super) fn request(&mut self) {
        if *self == WindowWatch::Idle {
            *self = WindowWatch::Requested;
        }
    }

    /// Schedules the next check.
    fn schedule(
        &mut self,
        now: Instant,
        peer_timeout: PeerTimeout,
        unanswered_since: Option<Instant>,
    ) {
        let at = now + peer_timeout.total() / CHECKS_PER_TIMEOUT;
        *self = WindowWatch::Scheduled { at, unanswered_since };
    }

    pub(super) fn deadline(self) -> Option<Instant> {
        match self {
            WindowWatch::Scheduled { at, .. } => Some(at),
            WindowWatch::Off | WindowWatch::Idle | WindowWatch::Requested => None,
        }
    }

    /// Handles the result of a check. Returns `false` if the peer no longer answers.
    fn on_check(
        &mut self,
        now: Instant,
        unacknowledged: Unacknowledged,
        peer_timeout: PeerTimeout,
    ) -> bool {
        let since = match (unacknowledged, *self) {
            (Unacknowledged::Nothing, _) => {
                *self = WindowWatch::Idle;
                return true;
            }
            (
                Unacknowledged::ProbeUnanswered,
                WindowWatch::Scheduled { unanswered_since: Some(since), .. },
            ) => Some(since),
            (Unacknowledged::ProbeUnanswered, _) => Some(now),
            (Unacknowledged::InFlight | Unacknowledged::NoWindow, _) => None,
        };
        self.schedule(now, peer_timeout, since);
        since.is_none_or(|since| now < since + peer_timeout.total())
    }
}

impl Established {
    /// Takes the message that waits, if there is a receive for it now.
    #[cold]
    pub(super) fn resume_message(
        &mut self,
        resources: &mut EngineResources,
        shared: &QpShared,
    ) -> Result<ReadOutcome, EndReason> {
        if !std::mem::replace(&mut self.receive_wait.requested, true) {
            // First make the request, then look at the queue. In this order a receive that is
            // posted at the same time is noticed: either the posting thread sees the request, or
            // this thread sees the receive.
            shared.want_receives(true);
            self.stream.wait_for_recv(shared.index());
        }
        if !self.stream.resume().map_err(EndReason::Protocol)? {
            self.read_ahead();
            return Ok(ReadOutcome::NoReceive);
        }
        shared.want_receives(false);
        self.receive_wait = ReceiveWait {
            peer_has_ended: self.receive_wait.peer_has_ended,
            ..ReceiveWait::default()
        };
        // The shared receive queue may have more buffers. Then the next queue pair that waits
        // continues.
        resources.pending.extend(self.stream.work().next_waiting());
        Ok(ReadOutcome::Resumed)
    }

    /// Reads what the peer has sent after the message that waits, if a report of placed writes may
    /// be part of it.
    fn read_ahead(&mut self) {
        let mut octets = [0; READ_AHEAD_OCTETS];
        loop {
            let wanted = self.stream.wants_ahead().min(octets.len());
            if wanted == 0 {
                return;
            }
            match self.socket.receive_bytes(&mut octets[..wanted]) {
                IoOutcome::Octets(n @ 1..) => self.stream.rx_ahead(&octets[..n]),
                IoOutcome::WouldBlock => return,
                outcome => {
                    if let IoOutcome::Failed(error) = outcome {
                        // The socket tells its error only once.
                        self.send_errno = self.send_errno.or(error.raw_os_error());
                    }
                    self.receive_wait.peer_has_ended = true;
                    return;
                }
            }
        }
    }

    /// Returns the waiting message if the consumer must be told of it and has not been told. The
    /// consumer need not be told while the shared receive queue has buffers that other queue pairs
    /// take first.
    fn take_unreported_arrival(&mut self) -> Option<Arrival> {
        let arrival = self.stream.stalled()?;
        let unreported = !self.receive_wait.reported && self.stream.work().next_waiting().is_none();
        self.receive_wait.reported |= unreported;
        unreported.then_some(arrival)
    }

    /// Returns whether a message still waits although [`RECEIVE_WAIT_AFTER_END`] has passed since
    /// the peer ended the stream.
    pub(super) fn has_receive_wait_expired(&self, now: Instant) -> bool {
        self.stream.is_stalled() && self.receive_wait.deadline.is_some_and(|at| at <= now)
    }

    /// Checks the peer's window if a check is due. Fails if the peer no longer answers.
    pub(super) fn check_window(
        &mut self,
        now: Instant,
        peer_timeout: PeerTimeout,
    ) -> Result<(), EndReason> {
        if self.window_watch.deadline().is_none_or(|at| at > now) {
            return Ok(());
        }
        let unacknowledged = socket::check_unacknowledged(&self.socket, peer_timeout);
        match self.window_watch.on_check(now, unacknowledged, peer_timeout) {
            true => Ok(()),
            false => Err(EndReason::Lost(Loss::Connection(Some(libc::ETIMEDOUT)))),
        }
    }

    /// Returns the reason for which the stream ended. It follows from the error of the socket or of
    /// the last send, because a read may have returned only the end of the stream.
    pub(super) fn end_reason(&self) -> EndReason {
        let error = self.socket.take_error().ok().flatten();
        match error.and_then(|error| error.raw_os_error()).or(self.send_errno) {
            None | Some(libc::ECONNRESET | libc::EPIPE) => EndReason::Peer,
            errno => EndReason::Lost(Loss::Connection(errno)),
        }
    }
}

impl Link {
    /// Returns whether a message waits for a receive.
    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        matches!(&self.phase, Phase::Established(conn) if conn.stream.is_stalled())
    }

    /// Records that the poller has reported the end of the stream.
    pub(crate) fn peer_has_ended(&mut self) {
        if let Phase::Established(conn) = &mut self.phase {
            conn.receive_wait.peer_has_ended = true;
        }
    }

    /// Handles a message that has no receive.
    #[cold]
    pub(super) fn wait_for_receive(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        progress: bool,
    ) -> bool {
        let Phase::Established(conn) = &mut self.phase else { return progress };
        if let Some(Arrival { octets, whole }) = conn.take_unreported_arrival() {
            self.sink.call(EngineEvent::ReceiverNotReady { octets, whole });
        }
        if (conn.receive_wait.peer_has_ended || conn.send_failed)
            && conn.receive_wait.deadline.is_none()
        {
            conn.receive_wait.deadline = Some(Instant::now() + RECEIVE_WAIT_AFTER_END);
            self.renew_timer(resources);
        }
        // Return the socket to the poller, because only the poller can report the peer's end while
        // this side does not read.
        self.resume_polling(resources, lingering);
        self.after_receive(resources, lingering, progress, false)
    }

    /// Starts to watch the peer's receive window after a send.
    #[cold]
    pub(super) fn start_window_watch(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        if let Phase::Established(conn) = &mut self.phase {
            conn.window_watch.schedule(Instant::now(), resources.config.peer_timeout, None);
        }
        self.renew_timer(resources);
        // `Link::transmit` has stopped early to start the watch. It continues here, because more
        // frames may be ready.
        self.transmit(resources, lingering);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use rnic::rdmap::setup::Rtr;
    use socket2::Socket;

    use super::*;

    /// Returns the watch of a connection to a peer at this address.
    fn watch_of(peer: &str, extended: bool) -> WindowWatch {
        let at = |address: &str| SocketAddr::new(address.parse().expect("an address"), 4791);
        let terms = Terms { ird: 1, ord: 1, crc: false, extended, rtr: Rtr::None };
        WindowWatch::of(&terms, at(peer), at("198.51.100.1"))
    }

    const OTHER_HOST: &str = "198.51.100.2";

    #[test]
    fn only_opendat_peers_on_other_hosts_are_watched() {
        assert_eq!(watch_of(OTHER_HOST, true), WindowWatch::Idle);
        assert_eq!(
            watch_of(OTHER_HOST, false),
            WindowWatch::Off,
            "another implementation that does not read counts as dead"
        );
        assert_eq!(watch_of("198.51.100.1", true), WindowWatch::Off);
    }

    const LIMITS: PeerTimeout = PeerTimeout { timeout: Duration::from_secs(10), retries: 5 };
    const INTERVAL: Duration = Duration::from_secs(20);

    /// Makes a scheduled watch check the window `n` intervals after `start`, with this result.
    /// Returns whether the peer still counts as alive.
    fn check(watch: &mut WindowWatch, start: Instant, n: u32, found: Unacknowledged) -> bool {
        watch.on_check(start + n * INTERVAL, found, LIMITS)
    }

    #[test]
    fn a_watch_checks_until_everything_is_acknowledged() {
        let mut watch = watch_of(OTHER_HOST, true);
        assert_eq!(watch.deadline(), None);
        watch.request();
        assert_eq!(watch, WindowWatch::Requested);
        let start = Instant::now();
        watch.schedule(start, LIMITS, None);
        for n in 1..100 {
            assert_eq!(watch.deadline(), Some(start + n * INTERVAL));
            let found = [Unacknowledged::InFlight, Unacknowledged::NoWindow][n as usize % 2];
            assert!(check(&mut watch, start, n, found), "the peer answers");
        }
        assert!(check(&mut watch, start, 100, Unacknowledged::Nothing));
        assert_eq!(watch, WindowWatch::Idle);
    }

    /// TCP itself would probe the window for a quarter of an hour.
    #[test]
    fn a_peer_that_leaves_window_probes_unanswered_is_given_up() {
        let (mut watch, start) = (watch_of(OTHER_HOST, true), Instant::now());
        watch.schedule(start, LIMITS, None);
        for n in 1..=3 {
            assert!(check(&mut watch, start, n, Unacknowledged::ProbeUnanswered), "not yet");
        }
        assert!(check(&mut watch, start, 4, Unacknowledged::NoWindow), "the peer has answered");
        for n in 5..=7 {
            assert!(check(&mut watch, start, n, Unacknowledged::ProbeUnanswered), "not yet");
        }
        assert!(!check(&mut watch, start, 8, Unacknowledged::ProbeUnanswered), "60 s are over");
    }

    /// While TCP_USER_TIMEOUT is set, TCP gives up a peer whose window has been closed for 60 s,
    /// even if the peer answers. The check removes the option while the window is closed.
    #[test]
    fn a_peer_with_a_closed_window_is_not_taken_for_dead() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let local = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
        let (mut remote, _) = listener.accept().expect("a caller");
        local.set_nonblocking(true).expect("nonblocking");
        let local = Socket::from(local);
        socket::enable_keepalive(&local, LIMITS);
        let limit = || local.tcp_user_timeout().expect("an option");
        let check = || socket::check_unacknowledged(&local, LIMITS);
        assert_eq!((check(), limit().is_some()), (Unacknowledged::Nothing, true));

        let octets = [7; 1 << 16];
        let mut sent = 0;
        // Write until this side's send buffer and the other side's receive buffer are full. Then
        // the other side has closed its window. A probe of the window may be under way.
        while !matches!(check(), Unacknowledged::NoWindow | Unacknowledged::ProbeUnanswered) {
            sent += (&local).write(&octets).unwrap_or(0);
        }
        assert_eq!(limit(), None);
        // TCP's keep-alive stays enabled.
        assert!(local.keepalive().expect("an option"));

        let mut all = vec![0; sent];
        remote.read_exact(&mut all).expect("what was sent");
        while check() != Unacknowledged::Nothing {
            std::thread::yield_now();
        }
        assert!(limit().is_some(), "a peer that does not answer is given up again");
    }
}
