//! Tests of a peer that closes the connection. It accepts no new requests, but may have carried out
//! requests in flight.

use super::*;

const MS: Duration = Duration::from_millis(1);

impl Fixture {
    fn start_peer_close(&mut self) {
        self.side.rc.start_peer_close(self.now);
    }

    /// Waits until the close is done. Returns how long the close took, and the packets that were
    /// sent in this time, each with the time when it was sent.
    fn wait_until_done(&mut self) -> (Duration, Vec<(Duration, Vec<String>)>) {
        let (start, mut said) = (self.now, vec![(Duration::ZERO, self.sent_words())]);
        while !self.side.rc.is_peer_close_done() {
            self.wait().unwrap();
            let now = self.sent_words();
            if !now.is_empty() {
                said.push((self.now - start, now));
            }
        }
        (self.now - start, said)
    }
}

#[test]
fn nothing_is_in_flight() {
    let mut fixture = Fixture::new();
    assert!(!fixture.side.rc.is_peer_close_done());
    fixture.start_peer_close();
    assert!(fixture.side.rc.is_peer_close_done());
    assert_eq!(fixture.side.rc.deadline(), None);

    // A request that is posted but not sent stays unsent.
    let mut fixture = Fixture::new();
    fixture.side.post(send(1, &[]));
    fixture.ack(0);
    fixture.start_peer_close();
    assert!(fixture.side.rc.is_peer_close_done() && !fixture.side.rc.wants_tx());
    assert_eq!(fixture.flush(), [(1, WcStatus::Flushed)]);
}

#[test]
fn what_was_taken_is_asked_for_at_once() {
    let mut fixture = Fixture::new();
    let buf = fixture.side.buf(4 * OCTETS);
    fixture.side.post(send(1, &[buf.seg(0, 4 * OCTETS)]));
    fixture.side.post(send(2, &[]));
    fixture.sent();
    fixture.side.post(send(3, &[]));
    fixture.start_peer_close();
    assert!(!fixture.side.rc.is_peer_close_done());
    assert_eq!(fixture.sent_words(), [format!("{} SEND first ask 256", fixture.psn)]);
    fixture.ack(4);
    assert!(fixture.side.rc.is_peer_close_done());
    assert_eq!(fixture.sent_words(), [""; 0]);
    assert_eq!(
        fixture.flush(),
        [(1, WcStatus::Success), (2, WcStatus::Success), (3, WcStatus::Flushed)]
    );
}

/// The peer received a message in part and does not acknowledge it. Earlier messages complete
/// successfully.
#[test]
fn what_was_taken_in_part_is_not_done() {
    let mut fixture = Fixture::new();
    let buf = fixture.side.buf(4 * OCTETS);
    fixture.side.post(send(1, &[]));
    fixture.side.post(send(2, &[buf.seg(0, 4 * OCTETS)]));
    let sent = fixture.sent();
    fixture.start_peer_close();
    assert_eq!(fixture.sent(), sent[..1]);
    fixture.now += 2 * MS;
    fixture.ack(2);
    let (time, _) = fixture.wait_until_done();
    assert_eq!(time, 50 * MS, "the silence must count from the last answer");
    assert_eq!(fixture.flush(), [(1, WcStatus::Success), (2, WcStatus::Flushed)]);
}

/// A peer in the kernel whose queue pair is gone does not answer at all.
#[test]
fn a_peer_that_answers_nothing() {
    let mut fixture = Fixture::new();
    fixture.side.post(send(1, &[]));
    let first = fixture.sent_words();
    // The peer has been silent for a long time before the close.
    for _ in 0..4 {
        fixture.wait().unwrap();
        fixture.sent();
    }
    fixture.start_peer_close();
    fixture.start_peer_close();
    let (time, said) = fixture.wait_until_done();
    assert_eq!(time, 50 * MS);
    assert_eq!(said, [0, 5, 15, 35].map(|at| (at * MS, first.clone())));
    assert_eq!(fixture.flush(), [(1, WcStatus::Flushed)]);
    assert_eq!(fixture.side.rc.deadline(), None);
}

#[test]
fn a_peer_that_is_far_away() {
    let mut fixture = Fixture::new();
    fixture.side.post(send(1, &[]));
    fixture.sent();
    fixture.now += 20 * MS;
    fixture.ack(0);
    fixture.side.post(send(2, &[]));
    let second = fixture.sent_words();
    fixture.start_peer_close();
    let (time, said) = fixture.wait_until_done();
    assert_eq!(time, 320 * MS);
    assert_eq!(said, [0, 80, 240].map(|at| (at * MS, second.clone())));
}

/// Whatever the peer answers, the close takes only a limited time.
#[test]
fn a_peer_that_takes_its_time() {
    let mut fixture = Fixture::new();
    let buf = fixture.side.buf(1000 * OCTETS);
    fixture.side.post(send(1, &[buf.seg(0, 60 * OCTETS)]));
    fixture.sent();
    let start = fixture.now;
    fixture.start_peer_close();
    for ahead in 0.. {
        fixture.now += 49 * MS;
        fixture.side.rc.expire(fixture.now).unwrap();
        if fixture.side.rc.is_peer_close_done() {
            break;
        }
        fixture.sent();
        fixture.ack(ahead);
    }
    let time = fixture.now - start;
    assert!((2000 * MS..2049 * MS).contains(&time), "{time:?}");
    assert_eq!(fixture.flush(), [(1, WcStatus::Flushed)]);
}

/// During a close, a request is not repeated more often than the connection's retry count allows.
#[test]
fn a_peer_that_was_to_be_given_up_sooner() {
    let mut fixture = Fixture::with(|cfg| (cfg.ack_timeout, cfg.retries) = (1, 0));
    fixture.side.post(send(1, &[]));
    fixture.sent();
    fixture.start_peer_close();
    assert_eq!(fixture.wait_until_done().0, 32 * MS);
    assert_eq!(fixture.flush(), [(1, WcStatus::Flushed)]);
}

/// A peer that had no receive buffer when it began to close the connection will not post one any
/// more.
#[test]
fn what_the_peer_had_no_buffer_for_is_given_up() {
    let mut fixture = Fixture::new();
    fixture.side.post(send(1, &[]));
    fixture.side.post(send(2, &[]));
    fixture.sent();
    fixture.rnr(0, 1).unwrap();
    fixture.start_peer_close();
    assert!(fixture.side.rc.is_peer_close_done());
    assert_eq!(fixture.flush(), [(1, WcStatus::Success), (2, WcStatus::Flushed)]);
}

/// The rest of a message that did not fit into the window is not sent, because the peer cannot
/// receive it.
#[test]
fn a_message_that_was_sent_in_part_is_given_up() {
    let mut fixture = Fixture::with(|cfg| cfg.window = 4);
    let buf = fixture.side.buf(8 * OCTETS);
    fixture.side.post(send(1, &[buf.seg(0, 2 * OCTETS)]));
    fixture.side.post(send(2, &[buf.seg(0, 6 * OCTETS)]));
    assert_eq!(fixture.sent().len(), 4);
    fixture.start_peer_close();
    assert_eq!(fixture.sent_words(), [format!("{} SEND first ask 256", fixture.psn)]);
    fixture.ack(0);
    assert!(!fixture.side.rc.is_peer_close_done());
    fixture.sent();
    fixture.ack(2);
    assert!(fixture.side.rc.is_peer_close_done());
    assert_eq!(fixture.flush(), [(1, WcStatus::Success), (2, WcStatus::Flushed)]);

    // A bind that waits for earlier requests is not carried out after the peer has begun to close
    // the connection.
    let mut fixture = Fixture::new();
    let (shown, window) =
        (fixture.side.buf(8), Mw::new(&fixture.side.keys, fixture.side.pd, false));
    fixture.side.post(send(1, &[]));
    fixture.sent();
    let key = fixture.side.bind(2, &window, Some(shown.view(0, 8)));
    fixture.start_peer_close();
    fixture.sent();
    fixture.ack(0);
    assert!(fixture.side.rc.is_peer_close_done() && !fixture.side.rc.wants_tx());
    assert_eq!(fixture.flush(), [(1, WcStatus::Success), (2, WcStatus::Flushed)]);
    assert_ne!(window.state(key), crate::BindState::Bound);
}

#[test]
fn reads_are_asked_for_again() {
    let mut fixture = Fixture::new();
    let buf = fixture.side.buf(3 * OCTETS);
    fixture.side.post(read(1, &[buf.seg(0, 3 * OCTETS)], NOWHERE));
    fixture.sent();
    fixture.response(wire::rocev2::Position::First, 0, OCTETS).unwrap();
    fixture.start_peer_close();
    assert_eq!(fixture.sent_words(), [format!("{} READ request of 256 ask 0", fixture.psn + 1)]);
    fixture.response(wire::rocev2::Position::First, 1, OCTETS).unwrap();
    assert!(!fixture.side.rc.is_peer_close_done());
    fixture.response(wire::rocev2::Position::Last, 2, OCTETS).unwrap();
    assert!(fixture.side.rc.is_peer_close_done());
    assert_eq!(fixture.flush(), ok([1]));
}
