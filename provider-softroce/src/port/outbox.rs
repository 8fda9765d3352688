//! Letters that found a full mailbox. The kernel lets ten wait (net.unix.max_dgram_qlen), and a server may be called by
//! hundreds at once.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::mail::{Mailbox, Post};
use super::names::{Name, Names};

/// Letters kept at most; the ones after that are lost, as packets may be.
const MOST: usize = 4096;
/// Until they are posted again.
const PAUSE: Duration = Duration::from_millis(1);

/// Where letters wait.
#[derive(Default)]
pub(super) struct Outbox {
    letters: VecDeque<Letter>,
    due: Option<Instant>,
}

struct Letter {
    to: Name,
    from: SocketAddr,
    packet: Vec<u8>,
}

impl Outbox {
    /// Posts a packet, behind those that wait to be posted to the same mailbox. False: there is none of this name.
    pub(super) fn post(
        &mut self,
        (by, names): (&Mailbox, &Names),
        to: Name,
        from: SocketAddr,
        packet: &[u8],
        now: Instant,
    ) -> bool {
        let waits = self.letters.iter().any(|letter| letter.to == to);
        match if waits { Post::Full } else { by.send(names, to, from, packet) } {
            Post::Delivered => true,
            Post::NoMailbox => false,
            Post::Full => {
                if self.letters.len() < MOST {
                    self.letters.push_back(Letter { to, from, packet: packet.to_vec() });
                    self.due.get_or_insert(now + PAUSE);
                }
                true
            }
        }
    }

    /// Posts again what waits, if it is time.
    pub(super) fn post_again(&mut self, by: &Mailbox, names: &Names, now: Instant) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let mut full: Vec<Name> = Vec::new();
        self.letters.retain(|Letter { to, from, packet }| {
            if full.contains(to) {
                return true;
            }
            let again = matches!(by.send(names, *to, *from, packet), Post::Full);
            if again {
                full.push(*to);
            }
            again
        });
        self.due = (!self.letters.is_empty()).then(|| now + PAUSE);
    }

    /// When to post again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }
}
