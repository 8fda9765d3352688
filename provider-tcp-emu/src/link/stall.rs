//! While a message of the peer waits for a receive.
//!
//! Nothing is read then. What the peer goes on sending fills the socket's buffer, until TCP's flow control
//! stops it. What this side sends goes out. The message waits until there is a receive, or either side ends
//! the connection.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use adapter::Shared;
use rnic::Arrival;
use rnic::rdmap::setup::Terms;
use socket2::Socket;

use super::up::{Received, Up};
use super::{End, Link, Loss, Phase};
use crate::engine::{Kit, Upcall};
use crate::linger::Lingerers;
use crate::socket::{self, Patience, Unsent};

/// How long messages that came before the peer's end wait for receives. Then the consumer is told of the end:
/// it may be waiting for that and for nothing else.
const AFTER_END: Duration = Duration::from_secs(3);
/// So often TCP is asked whether a peer on another host has room, within what it lets the peer be without.
const LOOKS: u32 = 3;

/// What is to be known while the stream is stalled.
#[derive(Default)]
pub(super) struct Stall {
    /// Whoever posts receives knows that one is waited for.
    asked: bool,
    /// The consumer has been told.
    told: bool,
    /// The peer has ended the stream. Of that nobody tells twice.
    pub(super) peer_has_ended: bool,
    /// When it is given up, since that is so.
    pub(super) until: Option<Instant>,
}

/// Whether TCP is to be kept from taking a peer for dead that has no room for what it is sent, since a
/// message waits there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    /// No: TCP sets no limit within a host. And strangers do not wait.
    Near,
    /// Nothing has been sent since the last look.
    Quiet,
    /// Something has, and nobody has set the timer.
    Sent,
    /// The next look.
    LookAt(Instant),
}

impl Window {
    pub(super) fn of(terms: &Terms, peer: SocketAddr, local: SocketAddr) -> Self {
        if terms.extended && !socket::is_same_host(peer, local) {
            Window::Quiet
        } else {
            Window::Near
        }
    }

    /// Something has been given to TCP.
    #[inline]
    pub(super) fn sent(&mut self) {
        if *self == Window::Quiet {
            *self = Window::Sent;
        }
    }

    /// TCP is to be asked from now on.
    fn watch(&mut self, now: Instant, patience: Patience) {
        *self = Window::LookAt(now + patience.silence() / LOOKS);
    }

    pub(super) fn deadline(self) -> Option<Instant> {
        match self {
            Window::LookAt(at) => Some(at),
            Window::Near | Window::Quiet | Window::Sent => None,
        }
    }

    /// A timer has run out.
    pub(super) fn expire(&mut self, now: Instant, socket: &Socket, patience: Patience) {
        if self.deadline().is_none_or(|at| at > now) {
            return;
        }
        let unsent = socket::unsent(socket);
        socket::limit_wait(socket, (unsent != Unsent::NoRoom).then_some(patience));
        *self = if unsent == Unsent::Nothing {
            Window::Quiet
        } else {
            Window::LookAt(now + patience.silence() / LOOKS)
        };
    }
}

impl Up {
    /// Takes the message that waits, if there is a receive for it by now.
    #[cold]
    pub(super) fn resume(&mut self, kit: &mut Kit, shared: &Shared) -> Result<Received, End> {
        if !std::mem::replace(&mut self.stall.asked, true) {
            // First this, then the look: a receive that is posted meanwhile is seen by one of the two.
            shared.want_receives(true);
            self.stream.wait_for_recv(shared.index());
        }
        if !self.stream.resume().map_err(End::Protocol)? {
            return Ok(Received::Stalled);
        }
        shared.want_receives(false);
        self.stall = Stall { peer_has_ended: self.stall.peer_has_ended, ..Stall::default() };
        // More buffers of a shared receive queue: its next.
        kit.again.extend(self.stream.work().next_waiting());
        Ok(Received::Resumed)
    }

    /// What the consumer has not been told yet. Nothing, where others are before it in the line for a shared
    /// receive queue that has buffers.
    fn news(&mut self) -> Option<Arrival> {
        let arrival = self.stream.stalled()?;
        let news = !self.stall.told && self.stream.work().next_waiting().is_none();
        self.stall.told |= news;
        news.then_some(arrival)
    }

    /// The peer has ended the stream a while ago, and still a message waits.
    pub(super) fn has_waited_long_enough(&self, now: Instant) -> bool {
        self.stream.is_stalled() && self.stall.until.is_some_and(|at| at <= now)
    }

    /// How the stream ended whose end cannot be read.
    pub(super) fn how_it_ended(&self) -> End {
        let error = self.socket.take_error().ok().flatten();
        match error.and_then(|error| error.raw_os_error()).or(self.errno) {
            None | Some(libc::ECONNRESET | libc::EPIPE) => End::Peer,
            errno => End::Lost(Loss::Connection(errno)),
        }
    }
}

impl Link {
    /// Whether a message waits for a receive.
    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        matches!(&self.phase, Phase::Up(up) if up.stream.is_stalled())
    }

    /// The poller says that nothing more will come.
    pub(crate) fn peer_has_ended(&mut self) {
        if let Phase::Up(up) = &mut self.phase {
            up.stall.peer_has_ended = true;
        }
    }

    /// A message waits, and there is no receive for it.
    #[cold]
    pub(super) fn stand_still(
        &mut self,
        kit: &mut Kit,
        lingerers: &mut Lingerers,
        progress: bool,
    ) -> bool {
        let Phase::Up(up) = &mut self.phase else { return progress };
        if let Some(Arrival { octets, whole }) = up.news() {
            self.sink.call(Upcall::ReceiverNotReady { octets, whole });
        }
        if (up.stall.peer_has_ended || up.hung_up) && up.stall.until.is_none() {
            up.stall.until = Some(Instant::now() + AFTER_END);
            self.renew_timer(kit);
        }
        // Nobody but the poller tells now that the peer has ended.
        self.enter_poller(kit, lingerers);
        self.after_receive(kit, lingerers, progress, false)
    }

    /// Something has been sent to a peer that may make us wait.
    #[cold]
    pub(super) fn watch_window(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        if let Phase::Up(up) = &mut self.phase {
            up.window.watch(Instant::now(), kit.params.patience);
        }
        self.renew_timer(kit);
        // Now for what else there is to do.
        self.transmit(kit, lingerers);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use rnic::rdmap::setup::Rtr;

    use super::*;

    /// A connection to a peer with this address, which is of this project or not.
    fn towards(peer: &str, extended: bool) -> Window {
        let at = |address: &str| SocketAddr::new(address.parse().expect("an address"), 4791);
        let terms =
            Terms { ird: 1, ord: 1, crc: false, large_fpdus: true, extended, rtr: Rtr::None };
        Window::of(&terms, at(peer), at("198.51.100.1"))
    }

    const OTHER_HOST: &str = "198.51.100.2";

    #[test]
    fn only_peers_of_this_project_on_other_hosts_are_watched() {
        assert_eq!(towards(OTHER_HOST, true), Window::Quiet);
        assert_eq!(
            towards(OTHER_HOST, false),
            Window::Near,
            "a stranger that does not read is dead"
        );
        assert_eq!(towards("198.51.100.1", true), Window::Near);
    }

    /// TCP gives up a peer that has no room for a minute, as one that answers nothing. A look in time keeps
    /// it from that.
    #[test]
    fn a_peer_without_room_is_not_taken_for_dead() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
        let (mut far, _) = listener.accept().expect("a caller");
        near.set_nonblocking(true).expect("nonblocking");
        let near = Socket::from(near);
        socket::watch_peer(&near, Patience::default());
        let limit = || near.tcp_user_timeout().expect("an option");
        assert!(limit().is_some());

        let (patience, tick) = (Patience::default(), Patience::default().silence() / LOOKS);
        let mut window = towards(OTHER_HOST, true);
        assert_eq!((window, window.deadline()), (Window::Quiet, None));
        window.sent();
        assert_eq!(window, Window::Sent);
        let start = Instant::now();
        window = Window::LookAt(start);
        window.expire(start, &near, patience);
        assert_eq!(window, Window::Quiet, "nothing is under way");

        let octets = [7; 1 << 16];
        let mut sent = 0;
        // Until both buffers are full and the other side has said that it has no room.
        while socket::unsent(&near) != Unsent::NoRoom {
            sent += (&near).write(&octets).unwrap_or(0);
        }
        window = Window::LookAt(start + tick);
        window.expire(start, &near, patience);
        assert_eq!((window, limit().is_some()), (Window::LookAt(start + tick), true), "not yet");
        window.expire(start + tick, &near, patience);
        assert_eq!((window, limit()), (Window::LookAt(start + 2 * tick), None));

        // Ten minutes, by the clock that is handed in. TCP's keep-alive goes on, which finds a host that has died.
        let mut now = start + tick;
        while now < start + 30 * tick {
            now = window.deadline().expect("there is a next look");
            window.expire(now, &near, patience);
            assert_eq!((window, limit()), (Window::LookAt(now + tick), None));
            assert!(near.keepalive().expect("an option"));
        }

        let mut all = vec![0; sent];
        far.read_exact(&mut all).expect("what was sent");
        while socket::unsent(&near) != Unsent::Nothing {
            std::thread::yield_now();
        }
        window.expire(now + tick, &near, patience);
        assert_eq!(
            (window, limit().is_some()),
            (Window::Quiet, true),
            "one that does not answer is dead again"
        );
    }
}
