//! Sockets whose connection has ended here, until their peers have heard of it.
//!
//! A socket that is closed with octets unread sends a RST, and a RST may overtake the last messages and the TERMINATE on
//! their way to the peer. So the socket says that it will send no more, drops what still comes, and is closed when the peer
//! closes its side, or is too slow.

use std::time::{Duration, Instant};

use adapter::Table;
use mio::Interest;

use crate::connection::Connection;
use crate::engine::{Key, Kit, Timer};
use crate::socket::Moved;

/// How long the peer has to close its side.
const PATIENCE: Duration = Duration::from_secs(1);
/// How much later a stranger sees the end. siw fails a message that the peer has received when it sees the peer's end before
/// its sender is done with it (siw_qp_sq_proc_tx asks for `tx_suspend` after a segment); the peer may well have ended because of that message.
const RESPECT: Duration = Duration::from_millis(20);
/// Octets dropped before others get their turn.
const BURST: usize = 4 << 20;

/// The sockets.
#[derive(Default)]
pub(crate) struct Lingerers(Table<Lingerer>);

struct Lingerer {
    socket: Connection,
    timer: Timer,
    /// When it says that it will send no more, if it has not.
    ends_at: Option<Instant>,
}

impl Lingerers {
    /// Ends the sending side of a watched socket, and takes it over.
    pub(crate) fn add(&mut self, kit: &mut Kit, mut socket: Connection) {
        match socket.finish() {
            Ok(()) => self.take_over(kit, socket, None),
            Err(_) => kit.context.unwatch(&socket),
        }
    }

    /// The same, of one whose peer may be no OpenDAT, and has something to finish.
    pub(crate) fn add_of_stranger(&mut self, kit: &mut Kit, socket: Connection) {
        self.take_over(kit, socket, Some(Instant::now() + RESPECT));
    }

    fn take_over(&mut self, kit: &mut Kit, socket: Connection, ends_at: Option<Instant>) {
        let key = Key::Lingerer(self.0.next_index());
        if kit.context.rename(key, &socket, Interest::READABLE).is_err() {
            kit.context.unwatch(&socket);
            return;
        }
        let mut timer = Timer::default();
        kit.set_timer(key, &mut timer, Some(ends_at.unwrap_or_else(|| Instant::now() + PATIENCE)));
        self.0.insert(Lingerer { socket, timer, ends_at });
    }

    /// Its timer has run out.
    pub(crate) fn expire(&mut self, kit: &mut Kit, index: usize) {
        let Some(lingerer) = self.0.get_mut(index) else { return };
        if lingerer.ends_at.take().is_some() && lingerer.socket.finish().is_ok() {
            let patience = Some(Instant::now() + PATIENCE);
            return kit.set_timer(Key::Lingerer(index), &mut lingerer.timer, patience);
        }
        self.give_up(kit, index);
    }

    /// Drops what has come.
    pub(crate) fn readable(&mut self, kit: &mut Kit, index: usize) {
        let Some(lingerer) = self.0.get_mut(index) else { return };
        let mut dropped = 0;
        let mut octets = [0; 16 << 10];
        while dropped < BURST {
            match lingerer.socket.receive_bytes(&mut octets) {
                Moved::Octets(n @ 1..) => dropped += n,
                Moved::Nothing => return,
                Moved::Octets(0) | Moved::Fault | Moved::Gone(_) => break,
            }
        }
        // The peer has closed too, or does not think of it.
        self.give_up(kit, index);
    }

    /// Closes.
    pub(crate) fn give_up(&mut self, kit: &mut Kit, index: usize) {
        if let Some(mut lingerer) = self.0.remove(index) {
            kit.set_timer(Key::Lingerer(index), &mut lingerer.timer, None);
            kit.context.unwatch(&lingerer.socket);
        }
    }
}

impl Drop for Lingerers {
    /// The adapter is closed: whoever has not yet said its end stays as long as it would.
    fn drop(&mut self) {
        if let Some(at) = self.0.iter().filter_map(|lingerer| lingerer.ends_at).max() {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
        }
    }
}
