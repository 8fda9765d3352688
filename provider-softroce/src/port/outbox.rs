//! Letters that found a full mailbox. The kernel queues ten per socket (net.unix.max_dgram_qlen),
//! and hundreds of callers may call a server at once.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::mail::Post;
use super::names::Name;

/// The outbox keeps so many letters in all. It drops further ones, as the network may drop packets.
const MAX_LETTERS: usize = 4096;
/// The outbox keeps so many letters to one mailbox, so that there is room for the others.
const MAX_LETTERS_PER_MAILBOX: usize = 1024;
/// The time until the outbox tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// The letters that wait, by mailbox.
#[derive(Default)]
pub(super) struct Outbox {
    /// No queue is empty.
    queues: HashMap<Name, VecDeque<Letter>>,
    /// The number of letters in all queues.
    len: usize,
    due: Option<Instant>,
}

struct Letter {
    from: SocketAddr,
    packet: Vec<u8>,
}

impl Outbox {
    /// Posts a packet, behind the letters that wait for the same mailbox. Returns false if there is
    /// no mailbox of this name.
    pub(super) fn post(
        &mut self,
        to: Name,
        from: SocketAddr,
        packet: &[u8],
        now: Instant,
        send: impl FnOnce(Name, SocketAddr, &[u8]) -> Post,
    ) -> bool {
        if !self.queues.contains_key(&to) {
            match send(to, from, packet) {
                Post::Delivered => return true,
                Post::NoMailbox => return false,
                Post::Full => {}
            }
        }
        let waiting = self.queues.get(&to).map_or(0, VecDeque::len);
        if self.len < MAX_LETTERS && waiting < MAX_LETTERS_PER_MAILBOX {
            let letter = Letter { from, packet: packet.to_vec() };
            self.queues.entry(to).or_default().push_back(letter);
            self.len += 1;
            self.due.get_or_insert(now + RETRY_INTERVAL);
        }
        true
    }

    /// Posts the letters that wait, if it is time.
    pub(super) fn post_again(
        &mut self,
        now: Instant,
        mut send: impl FnMut(Name, SocketAddr, &[u8]) -> Post,
    ) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let Outbox { queues, len, .. } = self;
        queues.retain(|&to, queue| {
            while let Some(Letter { from, packet }) = queue.front() {
                if matches!(send(to, *from, packet), Post::Full) {
                    return true;
                }
                queue.pop_front();
                *len -= 1;
            }
            false
        });
        self.due = (!self.queues.is_empty()).then(|| now + RETRY_INTERVAL);
    }

    /// When to post again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each mailbox: how many more letters it takes, and the ones that it has.
    struct Mailboxes(HashMap<Name, (usize, Vec<u8>)>);

    impl Mailboxes {
        fn new(names: &[Name]) -> Self {
            Mailboxes(names.iter().map(|&name| (name, (0, Vec::new()))).collect())
        }

        fn send(&mut self, to: Name, packet: &[u8]) -> Post {
            match self.0.get_mut(&to) {
                None => Post::NoMailbox,
                Some((0, _)) => Post::Full,
                Some((room, letters)) => {
                    *room -= 1;
                    letters.extend(packet);
                    Post::Delivered
                }
            }
        }

        /// Makes room for so many letters in each mailbox.
        fn empty(&mut self, room: usize) {
            self.0.values_mut().for_each(|mailbox| mailbox.0 = room);
        }

        fn letters(&self, of: Name) -> &[u8] {
            &self.0[&of].1
        }
    }

    const FROM: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 5);
    const A: Name = Name::Slot(7);
    const B: Name = Name::Service(7);

    fn post(outbox: &mut Outbox, to: Name, n: u8, now: Instant, boxes: &mut Mailboxes) -> bool {
        outbox.post(to, FROM, &[n], now, |to, _, packet| boxes.send(to, packet))
    }

    #[test]
    fn letters_to_one_mailbox_keep_their_order() {
        let (mut outbox, mut boxes, now) =
            (Outbox::default(), Mailboxes::new(&[A, B]), Instant::now());
        boxes.empty(1);
        for n in 0..4 {
            assert!(post(&mut outbox, A, n, now, &mut boxes));
        }
        // The mailbox has room again, but earlier letters wait.
        boxes.empty(1);
        assert!(post(&mut outbox, A, 4, now, &mut boxes));
        // This does not affect another mailbox, and the caller learns of a missing one at once.
        assert!(post(&mut outbox, B, 9, now, &mut boxes));
        assert!(!post(&mut outbox, Name::Slot(1), 9, now, &mut boxes));
        assert_eq!((boxes.letters(A), boxes.letters(B)), (&[0][..], &[9][..]));
        let due = outbox.deadline().expect("letters wait");
        outbox.post_again(due - RETRY_INTERVAL / 2, |_, _, _| panic!("it is not time"));
        boxes.empty(3);
        outbox.post_again(due, |to, _, packet| boxes.send(to, packet));
        assert_eq!(boxes.letters(A), [0, 1, 2, 3]);
        assert_eq!(outbox.deadline(), Some(due + RETRY_INTERVAL));
        boxes.empty(3);
        outbox.post_again(due + RETRY_INTERVAL, |to, _, packet| boxes.send(to, packet));
        assert_eq!(boxes.letters(A), [0, 1, 2, 3, 4]);
        assert_eq!((outbox.deadline(), outbox.len), (None, 0));
        // No letter waits any more.
        assert!(post(&mut outbox, A, 5, now, &mut boxes));
        assert_eq!(boxes.letters(A), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn letters_have_an_end() {
        let services: Vec<Name> = (0..8).map(Name::Service).collect();
        let (mut outbox, mut boxes, now) =
            (Outbox::default(), Mailboxes::new(&services), Instant::now());
        for &to in &services {
            for _ in 0..2 * MAX_LETTERS_PER_MAILBOX {
                assert!(post(&mut outbox, to, 0, now, &mut boxes));
            }
        }
        assert_eq!(outbox.len, MAX_LETTERS);
        assert!(outbox.queues.values().all(|queue| queue.len() == MAX_LETTERS_PER_MAILBOX));
        // Letters to mailboxes that no longer exist are dropped.
        outbox.post_again(now + RETRY_INTERVAL, |_, _, _| Post::NoMailbox);
        assert_eq!((outbox.deadline(), outbox.len, outbox.queues.len()), (None, 0, 0));
    }
}
