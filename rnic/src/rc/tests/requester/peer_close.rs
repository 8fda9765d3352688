//! The peer closes the connection: it accepts no new requests, but may have carried out those in
//! flight.

use super::*;

const MS: Duration = Duration::from_millis(1);

impl Bench {
    fn start_peer_close(&mut self) {
        self.side.rc.start_peer_close(self.now);
    }

    /// Waits until the close is done. Returns how long that took, and the packets sent meanwhile
    /// with their times.
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
    let mut bench = Bench::new();
    assert!(!bench.side.rc.is_peer_close_done());
    bench.start_peer_close();
    assert!(bench.side.rc.is_peer_close_done());
    assert_eq!(bench.side.rc.deadline(), None);

    // A request that is posted but not sent stays unsent.
    let mut bench = Bench::new();
    bench.side.post(send(1, &[]));
    bench.ack(0);
    bench.start_peer_close();
    assert!(bench.side.rc.is_peer_close_done() && !bench.side.rc.wants_tx());
    assert_eq!(bench.flush(), [(1, WcStatus::Flushed)]);
}

#[test]
fn what_was_taken_is_asked_for_at_once() {
    let mut bench = Bench::new();
    let buf = bench.side.buf(4 * OCTETS);
    bench.side.post(send(1, &[buf.seg(0, 4 * OCTETS)]));
    bench.side.post(send(2, &[]));
    bench.sent();
    bench.side.post(send(3, &[]));
    bench.start_peer_close();
    assert!(!bench.side.rc.is_peer_close_done());
    assert_eq!(bench.sent_words(), [format!("{} SEND first ask 256", bench.psn)]);
    bench.ack(4);
    assert!(bench.side.rc.is_peer_close_done());
    assert_eq!(bench.sent_words(), [""; 0]);
    assert_eq!(
        bench.flush(),
        [(1, WcStatus::Success), (2, WcStatus::Success), (3, WcStatus::Flushed)]
    );
}

/// The peer does not answer for a message that it has received in part. Earlier messages complete
/// nevertheless.
#[test]
fn what_was_taken_in_part_is_not_done() {
    let mut bench = Bench::new();
    let buf = bench.side.buf(4 * OCTETS);
    bench.side.post(send(1, &[]));
    bench.side.post(send(2, &[buf.seg(0, 4 * OCTETS)]));
    let sent = bench.sent();
    bench.start_peer_close();
    assert_eq!(bench.sent(), sent[..1]);
    bench.now += 2 * MS;
    bench.ack(2);
    let (time, _) = bench.wait_until_done();
    assert_eq!(time, 50 * MS, "the silence counts from the last answer");
    assert_eq!(bench.flush(), [(1, WcStatus::Success), (2, WcStatus::Flushed)]);
}

/// This is what a kernel does whose queue pair is gone.
#[test]
fn a_peer_that_answers_nothing() {
    let mut bench = Bench::new();
    bench.side.post(send(1, &[]));
    let first = bench.sent_words();
    // The peer had already been silent for long.
    for _ in 0..4 {
        bench.wait().unwrap();
        bench.sent();
    }
    bench.start_peer_close();
    bench.start_peer_close();
    let (time, said) = bench.wait_until_done();
    assert_eq!(time, 50 * MS);
    assert_eq!(said, [0, 5, 15, 35].map(|at| (at * MS, first.clone())));
    assert_eq!(bench.flush(), [(1, WcStatus::Flushed)]);
    assert_eq!(bench.side.rc.deadline(), None);
}

#[test]
fn a_peer_that_is_far_away() {
    let mut bench = Bench::new();
    bench.side.post(send(1, &[]));
    bench.sent();
    bench.now += 20 * MS;
    bench.ack(0);
    bench.side.post(send(2, &[]));
    let second = bench.sent_words();
    bench.start_peer_close();
    let (time, said) = bench.wait_until_done();
    assert_eq!(time, 320 * MS);
    assert_eq!(said, [0, 80, 240].map(|at| (at * MS, second.clone())));
}

/// Whatever the peer answers, the close takes only a limited time.
#[test]
fn a_peer_that_takes_its_time() {
    let mut bench = Bench::new();
    let buf = bench.side.buf(1000 * OCTETS);
    bench.side.post(send(1, &[buf.seg(0, 60 * OCTETS)]));
    bench.sent();
    let start = bench.now;
    bench.start_peer_close();
    for ahead in 0.. {
        bench.now += 49 * MS;
        bench.side.rc.expire(bench.now).unwrap();
        if bench.side.rc.is_peer_close_done() {
            break;
        }
        bench.sent();
        bench.ack(ahead);
    }
    let time = bench.now - start;
    assert!((2000 * MS..2049 * MS).contains(&time), "{time:?}");
    assert_eq!(bench.flush(), [(1, WcStatus::Flushed)]);
}

/// The number of retries that was agreed on is not exceeded.
#[test]
fn a_peer_that_was_to_be_given_up_sooner() {
    let mut bench = Bench::with(|cfg| (cfg.ack_timeout, cfg.retries) = (1, 0));
    bench.side.post(send(1, &[]));
    bench.sent();
    bench.start_peer_close();
    assert_eq!(bench.wait_until_done().0, 32 * MS);
    assert_eq!(bench.flush(), [(1, WcStatus::Flushed)]);
}

/// A receiver that was not ready will not become ready any more.
#[test]
fn what_the_peer_had_no_buffer_for_is_given_up() {
    let mut bench = Bench::new();
    bench.side.post(send(1, &[]));
    bench.side.post(send(2, &[]));
    bench.sent();
    bench.rnr(0, 1).unwrap();
    bench.start_peer_close();
    assert!(bench.side.rc.is_peer_close_done());
    assert_eq!(bench.flush(), [(1, WcStatus::Success), (2, WcStatus::Flushed)]);
}

/// The rest of a message that did not fit into the window is not sent, because it cannot be
/// received.
#[test]
fn a_message_that_was_sent_in_part_is_given_up() {
    let mut bench = Bench::with(|cfg| cfg.window = 4);
    let buf = bench.side.buf(8 * OCTETS);
    bench.side.post(send(1, &[buf.seg(0, 2 * OCTETS)]));
    bench.side.post(send(2, &[buf.seg(0, 6 * OCTETS)]));
    assert_eq!(bench.sent().len(), 4);
    bench.start_peer_close();
    assert_eq!(bench.sent_words(), [format!("{} SEND first ask 256", bench.psn)]);
    bench.ack(0);
    assert!(!bench.side.rc.is_peer_close_done());
    bench.sent();
    bench.ack(2);
    assert!(bench.side.rc.is_peer_close_done());
    assert_eq!(bench.flush(), [(1, WcStatus::Success), (2, WcStatus::Flushed)]);

    // A window that waits to be bound is not bound either.
    let mut bench = Bench::new();
    let (shown, window) = (bench.side.buf(8), Mw::new(&bench.side.keys, bench.side.pd, false));
    bench.side.post(send(1, &[]));
    bench.sent();
    let key = bench.side.bind(2, &window, Some(shown.view(0, 8)));
    bench.start_peer_close();
    bench.sent();
    bench.ack(0);
    assert!(bench.side.rc.is_peer_close_done() && !bench.side.rc.wants_tx());
    assert_eq!(bench.flush(), [(1, WcStatus::Success), (2, WcStatus::Flushed)]);
    assert_ne!(window.state(key), crate::BindState::Bound);
}

#[test]
fn reads_are_asked_for_again() {
    let mut bench = Bench::new();
    let buf = bench.side.buf(3 * OCTETS);
    bench.side.post(read(1, &[buf.seg(0, 3 * OCTETS)], NOWHERE));
    bench.sent();
    bench.response(wire::rocev2::Position::First, 0, OCTETS).unwrap();
    bench.start_peer_close();
    assert_eq!(bench.sent_words(), [format!("{} READ request of 512 ask 0", bench.psn + 1)]);
    bench.response(wire::rocev2::Position::First, 1, OCTETS).unwrap();
    assert!(!bench.side.rc.is_peer_close_done());
    bench.response(wire::rocev2::Position::Last, 2, OCTETS).unwrap();
    assert!(bench.side.rc.is_peer_close_done());
    assert_eq!(bench.flush(), ok([1]));
}
