//! A message of the peer that waits for a receive.
//!
//! While a message waits, the connection sends but does not receive. What the peer sends fills the
//! socket's receive buffer, until TCP's flow control stops the peer. The message waits until a
//! receive is posted or either side ends the connection.
//!
//! [`WindowWatch`] is the sender's side: it keeps TCP from giving up a peer whose receive window is
//! closed because a message waits there.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use adapter::Shared;
use rnic::Arrival;
use rnic::rdmap::setup::Terms;
use socket2::Socket;

use super::established::{Established, ReadOutcome};
use super::{EndReason, Link, Loss, Phase};
use crate::engine::{EngineResources, Upcall};
use crate::linger::LingeringSockets;
use crate::socket::{self, PeerTimeout, Unacknowledged};

/// How long messages that arrived before the peer's end wait for receives. Then the consumer is
/// told of the end, since it may be waiting for nothing else.
const RECEIVE_WAIT_AFTER_END: Duration = Duration::from_secs(3);
/// How often the window of a peer is checked within [`PeerTimeout::total`].
const CHECKS_PER_TIMEOUT: u32 = 3;

/// The state while a message waits for a receive.
#[derive(Default)]
pub(super) struct ReceiveWait {
    /// The threads that post receives know that one is needed.
    requested: bool,
    /// The consumer has been told.
    reported: bool,
    /// The peer has ended the stream. The poller does not report this again.
    pub(super) peer_has_ended: bool,
    /// When the connection ends although a message waits. It is set after the peer has ended the
    /// stream.
    pub(super) deadline: Option<Instant>,
}

/// Watches the peer's receive window. Otherwise TCP would break the connection while a message
/// waits at the peer for a receive and fills its receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowWatch {
    /// None is needed. Within a host, TCP sets no limit. Peers that are not OpenDAT do not let
    /// messages wait.
    Off,
    /// Nothing has been sent since the last check.
    Idle,
    /// Something has been sent, but the timer is not set yet.
    Requested,
    /// The timer is set to this time.
    At(Instant),
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

    /// Schedules the first check.
    fn schedule(&mut self, now: Instant, peer_timeout: PeerTimeout) {
        *self = WindowWatch::At(now + peer_timeout.total() / CHECKS_PER_TIMEOUT);
    }

    pub(super) fn deadline(self) -> Option<Instant> {
        match self {
            WindowWatch::At(at) => Some(at),
            WindowWatch::Off | WindowWatch::Idle | WindowWatch::Requested => None,
        }
    }

    /// Checks the window if a check is due.
    pub(super) fn expire(&mut self, now: Instant, socket: &Socket, peer_timeout: PeerTimeout) {
        if self.deadline().is_none_or(|at| at > now) {
            return;
        }
        let unacknowledged = socket::unacknowledged(socket);
        socket::set_user_timeout(
            socket,
            (unacknowledged != Unacknowledged::NoWindow).then_some(peer_timeout),
        );
        *self = if unacknowledged == Unacknowledged::Nothing {
            WindowWatch::Idle
        } else {
            WindowWatch::At(now + peer_timeout.total() / CHECKS_PER_TIMEOUT)
        };
    }
}

impl Established {
    /// Takes the message that waits, if there is a receive for it now.
    #[cold]
    pub(super) fn resume_message(
        &mut self,
        resources: &mut EngineResources,
        shared: &Shared,
    ) -> Result<ReadOutcome, EndReason> {
        if !std::mem::replace(&mut self.receive_wait.requested, true) {
            // The request must precede the look at the queue. Then a receive that is posted
            // meanwhile is noticed either by its poster or here.
            shared.want_receives(true);
            self.stream.wait_for_recv(shared.index());
        }
        if !self.stream.resume().map_err(EndReason::Protocol)? {
            return Ok(ReadOutcome::NoReceive);
        }
        shared.want_receives(false);
        self.receive_wait = ReceiveWait {
            peer_has_ended: self.receive_wait.peer_has_ended,
            ..ReceiveWait::default()
        };
        // The shared receive queue may have more buffers, for the next queue pair that waits.
        resources.pending.extend(self.stream.work().next_waiting());
        Ok(ReadOutcome::Resumed)
    }

    /// Returns the waiting message if the consumer must be told and has not been. The consumer need
    /// not be told while the shared receive queue has buffers and other queue pairs are to take
    /// them first.
    fn take_unreported_arrival(&mut self) -> Option<Arrival> {
        let arrival = self.stream.stalled()?;
        let unreported = !self.receive_wait.reported && self.stream.work().next_waiting().is_none();
        self.receive_wait.reported |= unreported;
        unreported.then_some(arrival)
    }

    /// Returns whether a message still waits although the peer ended the stream
    /// [`RECEIVE_WAIT_AFTER_END`] ago.
    pub(super) fn has_receive_wait_expired(&self, now: Instant) -> bool {
        self.stream.is_stalled() && self.receive_wait.deadline.is_some_and(|at| at <= now)
    }

    /// Returns why the stream ended if reading does not tell.
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
            self.sink.call(Upcall::ReceiverNotReady { octets, whole });
        }
        if (conn.receive_wait.peer_has_ended || conn.send_failed)
            && conn.receive_wait.deadline.is_none()
        {
            conn.receive_wait.deadline = Some(Instant::now() + RECEIVE_WAIT_AFTER_END);
            self.renew_timer(resources);
        }
        // While nothing is read, only the poller can report the peer's end.
        self.resume_polling(resources, lingering);
        self.after_receive(resources, lingering, progress, false)
    }

    /// Starts the supervision of the peer's window after a send.
    #[cold]
    pub(super) fn start_window_watch(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        if let Phase::Established(conn) = &mut self.phase {
            conn.window_watch.schedule(Instant::now(), resources.params.peer_timeout);
        }
        self.renew_timer(resources);
        // `Link::transmit` stopped to start the watch. Other work may be left.
        self.transmit(resources, lingering);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use rnic::rdmap::setup::Rtr;

    use super::*;

    /// Returns the watch of a connection to a peer at this address.
    fn watch_of(peer: &str, extended: bool) -> WindowWatch {
        let at = |address: &str| SocketAddr::new(address.parse().expect("an address"), 4791);
        let terms =
            Terms { ird: 1, ord: 1, crc: false, large_fpdus: true, extended, rtr: Rtr::None };
        WindowWatch::of(&terms, at(peer), at("198.51.100.1"))
    }

    const OTHER_HOST: &str = "198.51.100.2";

    #[test]
    fn only_opendat_peers_on_other_hosts_are_watched() {
        assert_eq!(watch_of(OTHER_HOST, true), WindowWatch::Idle);
        assert_eq!(
            watch_of(OTHER_HOST, false),
            WindowWatch::Off,
            "another implementation that does not read is dead"
        );
        assert_eq!(watch_of("198.51.100.1", true), WindowWatch::Off);
    }

    /// TCP gives up a peer whose window is closed for 60 s, like one that does not answer. A check
    /// in time prevents that.
    #[test]
    fn a_peer_with_a_closed_window_is_not_taken_for_dead() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let local = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
        let (mut remote, _) = listener.accept().expect("a caller");
        local.set_nonblocking(true).expect("nonblocking");
        let local = Socket::from(local);
        socket::enable_keepalive(&local, PeerTimeout::default());
        let limit = || local.tcp_user_timeout().expect("an option");
        assert!(limit().is_some());

        let (peer_timeout, interval) =
            (PeerTimeout::default(), PeerTimeout::default().total() / CHECKS_PER_TIMEOUT);
        let mut window_watch = watch_of(OTHER_HOST, true);
        assert_eq!((window_watch, window_watch.deadline()), (WindowWatch::Idle, None));
        window_watch.request();
        assert_eq!(window_watch, WindowWatch::Requested);
        let start = Instant::now();
        window_watch = WindowWatch::At(start);
        window_watch.expire(start, &local, peer_timeout);
        assert_eq!(window_watch, WindowWatch::Idle, "nothing is in flight");

        let octets = [7; 1 << 16];
        let mut sent = 0;
        // Writes until both buffers are full and the other side has closed its window.
        while socket::unacknowledged(&local) != Unacknowledged::NoWindow {
            sent += (&local).write(&octets).unwrap_or(0);
        }
        window_watch = WindowWatch::At(start + interval);
        window_watch.expire(start, &local, peer_timeout);
        assert_eq!(
            (window_watch, limit().is_some()),
            (WindowWatch::At(start + interval), true),
            "not yet"
        );
        window_watch.expire(start + interval, &local, peer_timeout);
        assert_eq!((window_watch, limit()), (WindowWatch::At(start + 2 * interval), None));

        // Simulates ten minutes. TCP's keep-alive stays enabled, so that a dead host is still
        // detected.
        let mut now = start + interval;
        while now < start + 30 * interval {
            now = window_watch.deadline().expect("a next check");
            window_watch.expire(now, &local, peer_timeout);
            assert_eq!((window_watch, limit()), (WindowWatch::At(now + interval), None));
            assert!(local.keepalive().expect("an option"));
        }

        let mut all = vec![0; sent];
        remote.read_exact(&mut all).expect("what was sent");
        while socket::unacknowledged(&local) != Unacknowledged::Nothing {
            std::thread::yield_now();
        }
        window_watch.expire(now + interval, &local, peer_timeout);
        assert_eq!(
            (window_watch, limit().is_some()),
            (WindowWatch::Idle, true),
            "one that does not answer is dead again"
        );
    }
}
