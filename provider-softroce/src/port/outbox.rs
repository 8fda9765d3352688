//! Letters that found a full mailbox. The kernel lets ten wait (net.unix.max_dgram_qlen), and a
//! server may be called by hundreds at once.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::mail::Post;
use super::names::Name;

/// Letters kept at most; the ones after that are lost, as packets may be.
const MOST: usize = 4096;
/// The same for one mailbox, so that the others have room, too.
const MOST_FOR_ONE: usize = 1024;
/// Until they are posted again.
const PAUSE: Duration = Duration::from_millis(1);

/// Where letters wait.
#[derive(Default)]
pub(super) struct Outbox {
    /// The letters to each mailbox; none is empty.
    queues: HashMap<Name, VecDeque<Letter>>,
    /// How many letters there are.
    len: usize,
    due: Option<Instant>,
}

struct Letter {
    from: SocketAddr,
    packet: Vec<u8>,
}

impl Outbox {
    /// Posts a packet, behind those that wait to be posted to the same mailbox. False: there is none
    /// of this name.
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
        if self.len < MOST && waiting < MOST_FOR_ONE {
            let letter = Letter { from, packet: packet.to_vec() };
            self.queues.entry(to).or_default().push_back(letter);
            self.len += 1;
            self.due.get_or_insert(now + PAUSE);
        }
        true
    }

    /// Posts again what waits, if it is time.
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
        self.due = (!self.queues.is_empty()).then(|| now + PAUSE);
    }

    /// When to post again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mailboxes by name, with room for so many letters each.
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

        /// Makes room for some more letters.
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
        // There is room again, but others wait.
        boxes.empty(1);
        assert!(post(&mut outbox, A, 4, now, &mut boxes));
        // Another mailbox is not concerned, and one that is not there is told of at once.
        assert!(post(&mut outbox, B, 9, now, &mut boxes));
        assert!(!post(&mut outbox, Name::Slot(1), 9, now, &mut boxes));
        assert_eq!((boxes.letters(A), boxes.letters(B)), (&[0][..], &[9][..]));
        let due = outbox.deadline().expect("letters wait");
        outbox.post_again(due - PAUSE / 2, |_, _, _| panic!("it is not time"));
        boxes.empty(3);
        outbox.post_again(due, |to, _, packet| boxes.send(to, packet));
        assert_eq!(boxes.letters(A), [0, 1, 2, 3]);
        assert_eq!(outbox.deadline(), Some(due + PAUSE));
        boxes.empty(3);
        outbox.post_again(due + PAUSE, |to, _, packet| boxes.send(to, packet));
        assert_eq!(boxes.letters(A), [0, 1, 2, 3, 4]);
        assert_eq!((outbox.deadline(), outbox.len), (None, 0));
        // Nothing is in front of what comes next.
        assert!(post(&mut outbox, A, 5, now, &mut boxes));
        assert_eq!(boxes.letters(A), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn letters_have_an_end() {
        let services: Vec<Name> = (0..8).map(Name::Service).collect();
        let (mut outbox, mut boxes, now) =
            (Outbox::default(), Mailboxes::new(&services), Instant::now());
        for &to in &services {
            for _ in 0..2 * MOST_FOR_ONE {
                assert!(post(&mut outbox, to, 0, now, &mut boxes));
            }
        }
        assert_eq!(outbox.len, MOST);
        assert!(outbox.queues.values().all(|queue| queue.len() == MOST_FOR_ONE));
        // Those of mailboxes that are gone are dropped.
        outbox.post_again(now + PAUSE, |_, _, _| Post::NoMailbox);
        assert_eq!((outbox.deadline(), outbox.len, outbox.queues.len()), (None, 0, 0));
    }
}
