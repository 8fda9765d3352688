//! Messages that wait because the receiver's queue is full. The kernel queues ten messages per
//! socket (net.unix.max_dgram_qlen), and hundreds of clients may connect to a server at once.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::local_socket::SendOutcome;
use super::names::Name;

/// The maximum number of messages that wait in all. Further messages are dropped, as a network may
/// drop packets.
const MAX_MESSAGES: usize = 4096;
/// The maximum number of messages that wait for one receiver, so that there is room for those of
/// others.
const MAX_MESSAGES_PER_RECEIVER: usize = 1024;
/// The time until sending is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// The messages that wait, by receiver.
#[derive(Default)]
pub(super) struct SendQueue {
    /// The messages for each receiver. None of the queues is empty.
    queues: HashMap<Name, VecDeque<Message>>,
    /// The number of messages in all queues.
    len: usize,
    due: Option<Instant>,
}

struct Message {
    from: SocketAddr,
    packet: Vec<u8>,
}

impl SendQueue {
    /// Sends a packet, after the messages that wait for the same receiver. Returns false if no
    /// socket has this name.
    pub(super) fn send(
        &mut self,
        to: Name,
        from: SocketAddr,
        packet: &[u8],
        now: Instant,
        send: impl FnOnce(Name, SocketAddr, &[u8]) -> SendOutcome,
    ) -> bool {
        if !self.queues.contains_key(&to) {
            match send(to, from, packet) {
                SendOutcome::Sent => return true,
                SendOutcome::NoReceiver => return false,
                SendOutcome::Full => {}
            }
        }
        let waiting = self.queues.get(&to).map_or(0, VecDeque::len);
        if self.len < MAX_MESSAGES && waiting < MAX_MESSAGES_PER_RECEIVER {
            let message = Message { from, packet: packet.to_vec() };
            self.queues.entry(to).or_default().push_back(message);
            self.len += 1;
            self.due.get_or_insert(now + RETRY_INTERVAL);
        }
        true
    }

    /// Sends the messages that wait, if it is time to try again.
    pub(super) fn retry(
        &mut self,
        now: Instant,
        mut send: impl FnMut(Name, SocketAddr, &[u8]) -> SendOutcome,
    ) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let SendQueue { queues, len, .. } = self;
        queues.retain(|&to, queue| {
            while let Some(Message { from, packet }) = queue.front() {
                if matches!(send(to, *from, packet), SendOutcome::Full) {
                    return true;
                }
                queue.pop_front();
                *len -= 1;
            }
            false
        });
        self.due = (!self.queues.is_empty()).then(|| now + RETRY_INTERVAL);
    }

    /// The time at which to try again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each receiver, the number of further messages that it accepts, and the messages that it
    /// has.
    struct Receivers(HashMap<Name, (usize, Vec<u8>)>);

    impl Receivers {
        fn new(names: &[Name]) -> Self {
            Receivers(names.iter().map(|&name| (name, (0, Vec::new()))).collect())
        }

        fn send(&mut self, to: Name, packet: &[u8]) -> SendOutcome {
            match self.0.get_mut(&to) {
                None => SendOutcome::NoReceiver,
                Some((0, _)) => SendOutcome::Full,
                Some((room, messages)) => {
                    *room -= 1;
                    messages.extend(packet);
                    SendOutcome::Sent
                }
            }
        }

        /// Makes room for this number of messages at each receiver.
        fn make_room(&mut self, room: usize) {
            self.0.values_mut().for_each(|receiver| receiver.0 = room);
        }

        fn messages(&self, of: Name) -> &[u8] {
            &self.0[&of].1
        }
    }

    const FROM: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 5);
    const A: Name = Name::Slot(7);
    const B: Name = Name::Service(7);

    fn send(
        send_queue: &mut SendQueue,
        to: Name,
        n: u8,
        now: Instant,
        receivers: &mut Receivers,
    ) -> bool {
        send_queue.send(to, FROM, &[n], now, |to, _, packet| receivers.send(to, packet))
    }

    #[test]
    fn messages_to_one_receiver_keep_their_order() {
        let (mut send_queue, mut receivers, now) =
            (SendQueue::default(), Receivers::new(&[A, B]), Instant::now());
        receivers.make_room(1);
        for n in 0..4 {
            assert!(send(&mut send_queue, A, n, now, &mut receivers));
        }
        // The receiver has room again, but earlier messages wait.
        receivers.make_room(1);
        assert!(send(&mut send_queue, A, 4, now, &mut receivers));
        // Another receiver is not affected, and the caller learns at once that a receiver does not
        // exist.
        assert!(send(&mut send_queue, B, 9, now, &mut receivers));
        assert!(!send(&mut send_queue, Name::Slot(1), 9, now, &mut receivers));
        assert_eq!((receivers.messages(A), receivers.messages(B)), (&[0][..], &[9][..]));
        let due = send_queue.deadline().expect("messages wait");
        send_queue.retry(due - RETRY_INTERVAL / 2, |_, _, _| panic!("it is not time"));
        receivers.make_room(3);
        send_queue.retry(due, |to, _, packet| receivers.send(to, packet));
        assert_eq!(receivers.messages(A), [0, 1, 2, 3]);
        assert_eq!(send_queue.deadline(), Some(due + RETRY_INTERVAL));
        receivers.make_room(3);
        send_queue.retry(due + RETRY_INTERVAL, |to, _, packet| receivers.send(to, packet));
        assert_eq!(receivers.messages(A), [0, 1, 2, 3, 4]);
        assert_eq!((send_queue.deadline(), send_queue.len), (None, 0));
        // No message waits any more.
        assert!(send(&mut send_queue, A, 5, now, &mut receivers));
        assert_eq!(receivers.messages(A), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn messages_have_an_end() {
        let services: Vec<Name> = (0..8).map(Name::Service).collect();
        let (mut send_queue, mut receivers, now) =
            (SendQueue::default(), Receivers::new(&services), Instant::now());
        for &to in &services {
            for _ in 0..2 * MAX_MESSAGES_PER_RECEIVER {
                assert!(send(&mut send_queue, to, 0, now, &mut receivers));
            }
        }
        assert_eq!(send_queue.len, MAX_MESSAGES);
        assert!(send_queue.queues.values().all(|queue| queue.len() == MAX_MESSAGES_PER_RECEIVER));
        // Messages to receivers that no longer exist are dropped.
        send_queue.retry(now + RETRY_INTERVAL, |_, _, _| SendOutcome::NoReceiver);
        assert_eq!((send_queue.deadline(), send_queue.len, send_queue.queues.len()), (None, 0, 0));
    }
}
