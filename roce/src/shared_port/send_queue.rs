//! Messages that wait because the receiver's queue is full. The kernel queues ten messages per
//! socket (net.unix.max_dgram_qlen), and hundreds of clients may connect to a server at once.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use rnic::rate_limit::network;

use super::local_socket::{Origin, SendOutcome};
use super::socket_files::Name;

/// The maximum number of messages that wait in all. Further messages are dropped, as a network may
/// drop packets.
const MAX_MESSAGES: usize = 4096;
/// The maximum number of messages that wait for one receiver, so that room is left for messages to
/// other receivers. Beyond this number, a new message replaces a message from the sender address
/// that has the most messages. So a flood from one address does not displace messages from other
/// addresses.
const MAX_MESSAGES_PER_RECEIVER: usize = 1024;
/// The maximum number of addresses that are compared when no room is left. If messages from more
/// addresses wait for a receiver, a new message to it is dropped: an attacker may forge addresses,
/// and each comparison takes longer than the drop of a message.
const MAX_COMPARED_ADDRESSES: usize = 64;
/// The time after which sending is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// The messages that wait, by receiver.
#[derive(Default)]
pub(super) struct SendQueue {
    /// The queues by receiver. A queue that becomes empty is removed.
    queues: HashMap<Name, ReceiverQueue>,
    /// The number of messages in all queues.
    len: usize,
    due: Option<Instant>,
}

/// The messages that wait for one receiver, the oldest first.
#[derive(Default)]
struct ReceiverQueue {
    messages: VecDeque<Message>,
    /// The number of waiting messages from each sender. The key is the part of the sender's address
    /// that [`network`] returns.
    by_address: HashMap<IpAddr, usize>,
}

struct Message {
    origin: Origin,
    packet: Vec<u8>,
}

impl ReceiverQueue {
    fn push(&mut self, message: Message) {
        *self.by_address.entry(network(message.origin.from.ip())).or_default() += 1;
        self.messages.push_back(message);
    }

    /// Removes the message at this position.
    fn remove(&mut self, position: usize) {
        let Some(message) = self.messages.remove(position) else { return };
        let address = network(message.origin.from.ip());
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
    }

    /// Makes room for a message from the address `from`: removes the newest message of the sender
    /// that has the most messages. Does so only if that sender has at least two messages more than
    /// `from`. Returns whether a message was removed.
    fn make_room(&mut self, from: IpAddr) -> bool {
        if self.by_address.len() > MAX_COMPARED_ADDRESSES {
            return false;
        }
        let own = self.by_address.get(&network(from)).copied().unwrap_or(0);
        let most = self.by_address.iter().max_by_key(|&(_, &count)| count);
        let Some((&address, _)) = most.filter(|&(_, &count)| count > own + 1) else { return false };
        let newest = self.messages.iter().rposition(|of| network(of.origin.from.ip()) == address);
        newest.map(|position| self.remove(position)).is_some()
    }
}

impl SendQueue {
    /// Sends a packet, or appends it to the queue if the receiver has no room or earlier messages
    /// wait for it. Returns false if no socket has this name.
    pub(super) fn send(
        &mut self,
        to: Name,
        origin: Origin,
        packet: &[u8],
        now: Instant,
        send: impl FnOnce(Name, Origin, &[u8]) -> SendOutcome,
    ) -> bool {
        if !self.queues.contains_key(&to) {
            match send(to, origin, packet) {
                SendOutcome::Sent => return true,
                SendOutcome::NoReceiver => return false,
                SendOutcome::Full => {}
            }
        }
        let waiting = self.queues.get(&to).map_or(0, |queue| queue.messages.len());
        let has_room = self.len < MAX_MESSAGES && waiting < MAX_MESSAGES_PER_RECEIVER;
        if !has_room {
            if !self.queues.get_mut(&to).is_some_and(|queue| queue.make_room(origin.from.ip())) {
                return true;
            }
            self.len -= 1;
        }
        self.queues.entry(to).or_default().push(Message { origin, packet: packet.to_vec() });
        self.len += 1;
        self.due.get_or_insert(now + RETRY_INTERVAL);
        true
    }

    /// Sends the waiting messages if [`deadline`](Self::deadline) has passed.
    pub(super) fn retry(
        &mut self,
        now: Instant,
        mut send: impl FnMut(Name, Origin, &[u8]) -> SendOutcome,
    ) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let SendQueue { queues, len, .. } = self;
        queues.retain(|&to, queue| {
            while let Some(Message { origin, packet }) = queue.messages.front() {
                if matches!(send(to, *origin, packet), SendOutcome::Full) {
                    return true;
                }
                queue.remove(0);
                *len -= 1;
            }
            false
        });
        self.due = (!self.queues.is_empty()).then(|| now + RETRY_INTERVAL);
    }

    /// The time at which to call [`retry`](Self::retry).
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// For each receiver, the number of messages for which it still has room, and the messages that
    /// it has received.
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
        send_queue.send(to, FROM.into(), &[n], now, |to, _, packet| receivers.send(to, packet))
    }

    #[test]
    fn messages_to_one_receiver_keep_their_order() {
        let (mut send_queue, mut receivers, now) =
            (SendQueue::default(), Receivers::new(&[A, B]), Instant::now());
        receivers.make_room(1);
        for n in 0..4 {
            assert!(send(&mut send_queue, A, n, now, &mut receivers));
        }
        // The receiver has room again, but the new message must wait behind the earlier messages.
        receivers.make_room(1);
        assert!(send(&mut send_queue, A, 4, now, &mut receivers));
        // The full queue of one receiver does not affect messages to another receiver. If a
        // receiver does not exist, the caller learns this at once.
        assert!(send(&mut send_queue, B, 9, now, &mut receivers));
        assert!(!send(&mut send_queue, Name::Slot(1), 9, now, &mut receivers));
        assert_eq!((receivers.messages(A), receivers.messages(B)), (&[0][..], &[9][..]));
        let due = send_queue.deadline().expect("messages wait");
        send_queue.retry(due - RETRY_INTERVAL / 2, |_, _, _| panic!("no message may be sent yet"));
        receivers.make_room(3);
        send_queue.retry(due, |to, _, packet| receivers.send(to, packet));
        assert_eq!(receivers.messages(A), [0, 1, 2, 3]);
        assert_eq!(send_queue.deadline(), Some(due + RETRY_INTERVAL));
        receivers.make_room(3);
        send_queue.retry(due + RETRY_INTERVAL, |to, _, packet| receivers.send(to, packet));
        assert_eq!(receivers.messages(A), [0, 1, 2, 3, 4]);
        assert_eq!((send_queue.deadline(), send_queue.len), (None, 0));
        // No earlier message waits, so this message is sent at once.
        assert!(send(&mut send_queue, A, 5, now, &mut receivers));
        assert_eq!(receivers.messages(A), [0, 1, 2, 3, 4, 5]);
    }

    /// A flood from one address fills the queue. Messages from other addresses are not dropped, and
    /// keep their order.
    #[test]
    fn a_flood_displaces_no_message_of_others() {
        let (mut send_queue, mut receivers, now) =
            (SendQueue::default(), Receivers::new(&[A]), Instant::now());
        let mut send_from = |address: [u8; 4], n: u8| {
            let from = SocketAddr::new(IpAddr::from(address), 5);
            send_queue.send(A, from.into(), &[n], now, |to, _, packet| receivers.send(to, packet));
        };
        for n in 1..=3 {
            for _ in 0..2 * MAX_MESSAGES_PER_RECEIVER {
                send_from([10, 0, 0, 9], 0);
            }
            send_from([10, 0, 0, n], n);
        }
        for _ in 0..2 * MAX_MESSAGES_PER_RECEIVER {
            send_from([10, 0, 0, 9], 0);
        }
        assert_eq!(send_queue.len, MAX_MESSAGES_PER_RECEIVER);
        receivers.make_room(MAX_MESSAGES_PER_RECEIVER);
        send_queue.retry(now + RETRY_INTERVAL, |to, _, packet| receivers.send(to, packet));
        let sent = receivers.messages(A);
        assert_eq!(sent.len(), MAX_MESSAGES_PER_RECEIVER);
        assert_eq!(sent.iter().copied().filter(|&n| n > 0).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((send_queue.len, send_queue.queues.len()), (0, 0));
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
        assert!(send_queue.queues.values().all(|queue| {
            queue.messages.len() == MAX_MESSAGES_PER_RECEIVER
                && queue.by_address.values().sum::<usize>() == queue.messages.len()
        }));
        // Messages to receivers that no longer exist are dropped.
        send_queue.retry(now + RETRY_INTERVAL, |_, _, _| SendOutcome::NoReceiver);
        assert_eq!((send_queue.deadline(), send_queue.len, send_queue.queues.len()), (None, 0, 0));
    }
}
