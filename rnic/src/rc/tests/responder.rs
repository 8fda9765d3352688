//! Tests of the responder with packets made by hand.

use std::sync::atomic::{AtomicBool, Ordering};

use wire::rocev2::{AtomicAckEth, AtomicEth, NakCode};

use super::*;
use crate::{Arrival, Mw, Remote, Segment, WcOp, WcStatus};

/// A side, and the PSN of its peer's next packet.
struct Fixture {
    side: Side,
    now: Instant,
    psn: Psn,
}

const FULL: [u8; OCTETS] = [7; OCTETS];

impl Fixture {
    fn new() -> Fixture {
        Fixture::with(|_| {})
    }

    fn with(change: impl Fn(&mut RcCfg)) -> Fixture {
        let now = Instant::now();
        let mut cfg = cfg(1);
        change(&mut cfg);
        Fixture { side: Side::new(cfg, now), now, psn: cfg.rq_psn }
    }

    /// Passes a packet with the expected PSN to the engine.
    fn take(
        &mut self,
        opcode: Opcode,
        extension: Extension,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let psn = self.psn;
        self.psn = psn.next();
        self.side.take(self.now, &packet(opcode, psn, extension, payload))
    }

    fn send(&mut self, payload: &[u8]) {
        self.take(Opcode::SendOnly, Extension::None, payload).unwrap();
    }

    /// The packets that the side sends when no more packets arrive.
    fn sent_words(&mut self) -> Vec<String> {
        while self.side.rc.wants_tx() {
            self.side.rc.transmit(self.now, &mut self.side.burst).unwrap();
        }
        self.side.rc.acknowledge(&mut self.side.burst);
        words(&self.side.sent())
    }

    /// The packets that the side sends after a failure.
    fn last(&mut self) -> Vec<String> {
        self.side.rc.transmit_fatal_nak(&mut self.side.burst);
        self.side.rc.transmit_fatal_nak(&mut self.side.burst);
        words(&self.side.sent())
    }

    fn psn(&self, ahead: i32) -> Psn {
        self.psn + ahead as u32
    }
}

fn reth(to: Remote, len: usize) -> Reth {
    Reth { va: to.addr, r_key: to.key, len: len as u32 }
}

#[test]
fn one_acknowledgement_for_all() {
    let mut fixture = Fixture::new();
    let sink = fixture.side.buf(OCTETS);
    for id in 0..100 {
        fixture.side.recv(id, &[sink.seg(0, OCTETS)]);
    }
    for _ in 0..3 {
        fixture.send(b"abc");
        assert!(
            fixture.side.rc.owes_ack() && !fixture.side.rc.wants_tx(),
            "the acknowledgement can wait"
        );
    }
    let last = fixture.psn(-1);
    assert_eq!(fixture.sent_words(), [format!("{last} ACK ACK 0")]);
    assert_eq!(fixture.sent_words(), [""; 0]);
    assert!(!fixture.side.rc.owes_ack() && fixture.side.rc.is_drained());
    // The acknowledgement waits only until 16 packets have requested one.
    for _ in 0..15 {
        fixture.send(b"abc");
    }
    assert!(!fixture.side.rc.wants_tx());
    fixture.send(b"abc");
    assert!(fixture.side.rc.wants_tx());
    assert_eq!(fixture.sent_words(), [format!("{} ACK ACK 0", fixture.psn(-1))]);
    assert_eq!(fixture.side.rc.stats().rx_messages, 19);
    assert_eq!(fixture.side.received().len(), 19);
}

#[test]
fn what_is_not_asked_for_is_not_acknowledged() {
    let mut fixture = Fixture::new();
    let target = fixture.side.buf(4 * OCTETS);
    let mut first = packet(
        Opcode::WriteFirst,
        fixture.psn,
        Extension::Reth(reth(target.remote(0), 2 * OCTETS)),
        &FULL,
    );
    // This packet does not request an acknowledgement: its AckReq bit is 0.
    first[8] = 0;
    fixture.side.take(fixture.now, &first).unwrap();
    assert!(!fixture.side.rc.owes_ack());
    fixture.psn = fixture.psn.next();
    fixture.take(Opcode::WriteLast, Extension::None, &FULL).unwrap();
    assert!(fixture.side.rc.owes_ack());
}

#[test]
fn a_gap_is_told_once_and_again_when_the_peer_has_started_over() {
    let mut fixture = Fixture::new();
    // There is no memory for packets that come early.
    fixture.side.rc = fixture.side.rc.with_early_pool(&Arc::new(EarlyPool::new(0)));
    let sink = fixture.side.buf(OCTETS);
    for id in 0..9 {
        fixture.side.recv(id, &[sink.seg(0, OCTETS)]);
    }
    let expected = fixture.psn;
    let told = [
        format!("{} ACK ACK 0", expected.previous()),
        format!("{expected} ACK NAK PSN sequence error 0"),
    ];
    let at = |ahead: u32| packet(Opcode::SendOnly, expected + ahead, Extension::None, b"x");
    fixture.side.take(fixture.now, &at(2)).unwrap();
    assert_eq!(fixture.sent_words(), told);
    for ahead in [3, 4, 9] {
        fixture.side.take(fixture.now, &at(ahead)).unwrap();
        assert_eq!(fixture.sent_words(), [""; 0]);
    }
    fixture.side.take(fixture.now, &at(1)).unwrap();
    assert_eq!(fixture.sent_words(), told);
    fixture.side.take(fixture.now, &at(2)).unwrap();
    assert_eq!(fixture.sent_words(), [""; 0]);
    // If the missing packet is only late, the NAK that has not been sent yet is withdrawn.
    fixture.side.take(fixture.now, &at(1)).unwrap();
    fixture.side.take(fixture.now, &at(0)).unwrap();
    fixture.side.take(fixture.now, &at(1)).unwrap();
    assert_eq!(fixture.sent_words(), [format!("{} ACK ACK 0", expected + 1)]);
    assert_eq!(fixture.side.received().len(), 2);
    assert_eq!(fixture.side.rc.stats().out_of_order, 7);
}

#[test]
fn a_duplicate_is_acknowledged_and_not_executed() {
    let mut fixture = Fixture::new();
    let (sink, target) = (fixture.side.buf(OCTETS), fixture.side.buf(OCTETS));
    fixture.side.recv(1, &[sink.seg(0, OCTETS)]);
    fixture.side.recv(2, &[sink.seg(0, OCTETS)]);
    let first = fixture.psn;
    fixture.take(Opcode::WriteOnly, Extension::Reth(reth(target.remote(0), 3)), b"abc").unwrap();
    fixture.send(b"abc");
    assert_eq!(fixture.sent_words(), [format!("{} ACK ACK 0", fixture.psn(-1))]);
    target.octets_mut().fill(0);
    let again =
        packet(Opcode::WriteOnly, first, Extension::Reth(reth(target.remote(0), 3)), b"abc");
    fixture.side.take(fixture.now, &again).unwrap();
    let again = packet(Opcode::SendOnly, first.next(), Extension::None, b"abc");
    fixture.side.take(fixture.now, &again).unwrap();
    assert_eq!(target.octets(), [0; OCTETS]);
    assert_eq!(fixture.side.received().len(), 1);
    assert_eq!(fixture.sent_words(), [format!("{} ACK ACK 0", fixture.psn(-1))]);
    assert_eq!(fixture.side.rc.stats().duplicates, 2);
    // A packet with a PSN far behind, and a packet of another partition, are ignored.
    fixture
        .side
        .take(fixture.now, &packet(Opcode::SendOnly, first - 1000, Extension::None, b"abc"))
        .unwrap();
    let mut foreign = packet(Opcode::SendOnly, fixture.psn, Extension::None, b"abc");
    foreign[2..4].copy_from_slice(&[0x80, 0x01]);
    fixture.side.take(fixture.now, &foreign).unwrap();
    assert_eq!(fixture.side.received().len(), 0);
}

#[test]
fn responses_to_a_read_come_before_later_acknowledgements() {
    let mut fixture = Fixture::new();
    let (sink, shown) = (fixture.side.buf(OCTETS), fixture.side.buf(3 * OCTETS));
    fixture.side.recv(1, &[sink.seg(0, OCTETS)]);
    fixture.send(b"abc");
    let first = fixture.psn;
    fixture
        .take(Opcode::ReadRequest, Extension::Reth(reth(shown.remote(0), 2 * OCTETS + 1)), &[])
        .unwrap();
    fixture.psn = first + 3;
    fixture.take(Opcode::WriteOnly, Extension::Reth(reth(shown.remote(0), 3)), b"abc").unwrap();
    assert!(!fixture.side.rc.owes_ack(), "the acknowledgement must not precede the responses");
    assert!(!fixture.side.rc.is_drained());
    let responses = [
        format!("{first} READ response first ACK {OCTETS}"),
        format!("{} READ response middle {OCTETS}", first + 1),
        format!("{} READ response last ACK 1", first + 2),
        format!("{} ACK ACK 0", first + 3),
    ];
    assert_eq!(fixture.sent_words(), responses);
    // If all earlier requests are acknowledged, a READ needs no acknowledgement besides its
    // response.
    fixture.take(Opcode::ReadRequest, Extension::Reth(reth(shown.remote(0), 1)), &[]).unwrap();
    assert_eq!(fixture.sent_words(), [format!("{} READ response only ACK 1", first + 4)]);
    assert!(!fixture.side.rc.owes_ack() && fixture.side.rc.is_drained());
}

#[test]
fn responses_to_a_read_come_before_a_later_nak() {
    let mut fixture = Fixture::new();
    let shown = fixture.side.buf(100 * OCTETS);
    let first = fixture.psn;
    fixture
        .take(Opcode::ReadRequest, Extension::Reth(reth(shown.remote(0), 100 * OCTETS)), &[])
        .unwrap();
    for ahead in 164..180 {
        let behind = packet(Opcode::SendOnly, first + ahead, Extension::None, b"x");
        fixture.side.take(fixture.now, &behind).unwrap();
    }
    let mut said = Vec::new();
    while fixture.side.rc.wants_tx() {
        fixture.side.rc.transmit(fixture.now, &mut fixture.side.burst).unwrap();
        said.append(&mut words(&fixture.side.sent()));
    }
    // The NAK acknowledges nothing but the packets before the READ.
    assert_eq!(said.len(), 101);
    assert_eq!(said[100], format!("{} ACK NAK PSN sequence error 0", first + 100));
}

#[test]
fn no_receive_buffer() {
    let mut fixture = Fixture::new();
    let (sink, target) = (fixture.side.buf(OCTETS), fixture.side.buf(2 * OCTETS));
    let psn = fixture.psn;
    fixture.send(b"abc");
    let not_ready = [format!("{psn} ACK RNR NAK 640µs 0")];
    assert_eq!(fixture.sent_words(), not_ready);
    let stalled = |octets| Some(Arrival { octets, whole: true });
    assert_eq!(fixture.side.rc.take_rnr_arrival(), stalled(3));
    // These packets were already under way when the NAK was sent.
    fixture.send(b"def");
    assert_eq!(fixture.sent_words(), [""; 0]);
    fixture.psn = psn;
    fixture.send(b"abc");
    assert_eq!(fixture.sent_words(), not_ready);
    assert_eq!(fixture.side.rc.take_rnr_arrival(), None, "the message is reported once");
    fixture.side.recv(1, &[sink.seg(0, OCTETS)]);
    fixture.psn = psn;
    fixture.send(b"abc");
    assert_eq!(fixture.sent_words(), [format!("{psn} ACK ACK 0")]);
    // A WRITE with immediate data needs a receive for its last packet only.
    let to = Extension::Reth(reth(target.remote(0), OCTETS + 1));
    fixture.take(Opcode::WriteFirst, to, &FULL).unwrap();
    let psn = fixture.psn;
    fixture.take(Opcode::WriteLastImmediate, Extension::Immediate(5_u32.to_be()), b"x").unwrap();
    assert_eq!(fixture.sent_words(), [format!("{psn} ACK RNR NAK 640µs 0")]);
    assert_eq!(fixture.side.rc.take_rnr_arrival(), stalled(OCTETS as u32 + 1));
    fixture.side.recv(2, &[]);
    fixture.psn = psn;
    fixture.take(Opcode::WriteLastImmediate, Extension::Immediate(5_u32.to_be()), b"x").unwrap();
    assert_eq!(fixture.sent_words(), [format!("{psn} ACK ACK 0")]);
    let written = wc(2, WcOp::Recv, OCTETS + 1, WcStatus::Success);
    let received = [wc(1, WcOp::Recv, 3, WcStatus::Success), Wc { immediate: Some(5), ..written }];
    assert_eq!(fixture.side.received(), received);
    assert_eq!(fixture.side.rc.stats().tx_rnr_naks, 3);
}

/// Each RNR NAK for the same packet lets the peer wait longer, up to 0.64 ms.
#[test]
fn a_peer_that_comes_too_early_again_waits_longer() {
    let mut fixture = Fixture::with(|cfg| cfg.rnr_timer = RnrTimer::from_code(6));
    let sink = fixture.side.buf(OCTETS);
    for _ in 0..2 {
        let psn = fixture.psn;
        for micros in [80, 120, 160, 240, 320, 480, 640, 640] {
            fixture.psn = psn;
            fixture.send(b"abc");
            assert_eq!(fixture.sent_words(), [format!("{psn} ACK RNR NAK {micros}µs 0")]);
        }
        fixture.side.recv(1, &[sink.seg(0, OCTETS)]);
        fixture.psn = psn;
        fixture.send(b"abc");
        assert_eq!(fixture.sent_words().len(), 1);
    }
}

/// The announcement is a duplicate of the last acknowledgement.
#[test]
fn a_receive_is_announced_to_a_peer_that_waits() {
    let mut fixture = Fixture::new();
    let sink = fixture.side.buf(OCTETS);
    assert!(!fixture.side.rc.is_peer_waiting_for_receive());
    fixture.send(b"abc");
    assert!(!fixture.side.rc.is_peer_waiting_for_receive(), "the RNR NAK has not been sent");
    assert_eq!(fixture.sent_words().len(), 1);
    assert!(fixture.side.rc.is_peer_waiting_for_receive());
    fixture.side.recv(1, &[sink.seg(0, OCTETS)]);
    fixture.side.rc.announce_receive();
    let last = fixture.psn - 2;
    assert_eq!(fixture.sent_words(), [format!("{last} ACK ACK 0")]);
    assert!(!fixture.side.rc.is_peer_waiting_for_receive());
    fixture.psn = last.next();
    fixture.send(b"abc");
    assert_eq!(fixture.sent_words(), [format!("{} ACK ACK 0", last.next())]);
    assert!(!fixture.side.rc.is_peer_waiting_for_receive());
}

#[test]
fn sends_bring_immediate_data_and_invalidate() {
    let mut fixture = Fixture::new();
    let (sink, shown) = (fixture.side.buf(2 * OCTETS), fixture.side.buf(OCTETS));
    let window = Mw::new(&fixture.side.keys, fixture.side.pd, true);
    let key = fixture.side.bind(1, &window, Some(shown.view(0, OCTETS)));
    assert_eq!(fixture.sent_words(), [""; 0]);
    for id in 0..3 {
        fixture.side.recv(id, &[sink.seg(0, 2 * OCTETS)]);
    }
    fixture.take(Opcode::SendOnlyImmediate, Extension::Immediate(9_u32.to_be()), b"abc").unwrap();
    fixture.take(Opcode::SendFirst, Extension::None, &FULL).unwrap();
    fixture.take(Opcode::SendLastImmediate, Extension::Immediate(10_u32.to_be()), b"abc").unwrap();
    fixture.take(Opcode::SendOnlyInvalidate, Extension::Invalidate(key), &[]).unwrap();
    let got = |id, op, len| wc(id, op, len, WcStatus::Success);
    let received = [
        Wc { immediate: Some(9), ..got(0, WcOp::RecvMessageImm, 3) },
        Wc { immediate: Some(10), ..got(1, WcOp::RecvMessageImm, OCTETS + 3) },
        Wc { invalidated: Some(key), ..got(2, WcOp::Recv, 0) },
    ];
    assert_eq!(fixture.side.received(), received);
    let to = Remote { addr: shown.addr(), key };
    let failure = fixture.take(Opcode::WriteOnly, Extension::Reth(reth(to, 1)), b"x").unwrap_err();
    assert_eq!(failure, Failure::Refusing(NakCode::RemoteAccess));
}

/// A sequence of packets, the last of which is refused.
type Script = Vec<(Opcode, Extension, Vec<u8>)>;

#[test]
fn each_reason_to_refuse() {
    use Opcode::*;
    let none = Extension::None;
    let side = Side::new(cfg(1), Instant::now());
    let open = side.buf(8 * OCTETS);
    let (keys, pd) = (Arc::clone(&side.keys), side.pd);
    let silent = Buf::new(&keys, pd, 64, LOCAL);
    let foreign = Buf::new(&keys, keys.pd(), 64, ALL);
    let write = |len| Extension::Reth(reth(open.remote(0), len));
    let at = |remote: Remote, len| Extension::Reth(reth(remote, len));
    let add = |remote: Remote| {
        Extension::Atomic(AtomicEth {
            va: remote.addr,
            r_key: remote.key,
            swap_or_add: 1,
            compare: 0,
        })
    };
    let (full, over) = (FULL.to_vec(), vec![0; OCTETS + 4]);
    let none_such = Remote { addr: open.addr(), key: !open.key() };
    let beyond = open.remote(8 * OCTETS - 1);
    let x = || b"x".to_vec();
    let invalid: [Script; 26] = [
        vec![(SendMiddle, none, full.clone())],
        vec![(SendLast, none, x())],
        vec![(WriteMiddle, none, full.clone())],
        vec![(WriteLast, none, x())],
        vec![(SendFirst, none, full.clone()), (SendFirst, none, full.clone())],
        vec![(SendFirst, none, full.clone()), (SendOnly, none, x())],
        vec![(SendFirst, none, full.clone()), (WriteLast, none, x())],
        vec![(SendFirst, none, full.clone()), (WriteOnly, write(1), x())],
        vec![(SendFirst, none, full.clone()), (ReadRequest, write(1), vec![])],
        vec![(SendFirst, none, full.clone()), (FetchAdd, add(open.remote(0)), vec![])],
        vec![
            (WriteFirst, write(2 * OCTETS), full.clone()),
            (WriteFirst, write(2 * OCTETS), full.clone()),
        ],
        vec![(WriteFirst, write(2 * OCTETS), full.clone()), (SendLast, none, x())],
        vec![(SendFirst, none, x())],
        vec![(SendFirst, none, full.clone()), (SendMiddle, none, x())],
        vec![(SendFirst, none, full.clone()), (SendLast, none, vec![])],
        vec![(SendOnly, none, over.clone())],
        vec![(WriteOnly, write(OCTETS + 4), over.clone())],
        // The length in the RETH differs from the length of the payload.
        vec![(WriteOnly, write(2), x())],
        vec![(WriteOnly, write(0), x())],
        vec![(WriteFirst, write(OCTETS), full.clone())],
        vec![(WriteFirst, write(2 * OCTETS), full.clone()), (WriteLast, none, x())],
        vec![(WriteFirst, write(OCTETS + 1), full.clone()), (WriteMiddle, none, full.clone())],
        vec![(WriteFirst, write((1 << 31) + 1), full.clone())],
        vec![(ReadRequest, write((1 << 31) + 1), vec![])],
        vec![(FetchAdd, add(open.remote(4)), vec![])],
        // The peer sends more READs than the connection's depth allows.
        vec![(ReadRequest, write(1), vec![]); 5],
    ];
    let access: [Script; 9] = [
        vec![(WriteOnly, at(none_such, 1), x())],
        vec![(WriteOnly, at(silent.remote(0), 1), x())],
        vec![(WriteOnly, at(foreign.remote(0), 1), x())],
        vec![(WriteOnly, at(beyond, 2), b"xy".to_vec())],
        vec![(WriteFirst, at(open.remote(4 * OCTETS + 1), 4 * OCTETS), full.clone())],
        vec![(ReadRequest, at(silent.remote(0), 1), vec![])],
        vec![(ReadRequest, at(Remote { addr: u64::MAX, ..open.remote(0) }, 2), vec![])],
        vec![(CompareSwap, add(foreign.remote(0)), vec![])],
        // A peer must not invalidate a region's key.
        vec![(SendOnlyInvalidate, Extension::Invalidate(open.key()), vec![])],
    ];
    drop(side);
    let scripts = invalid.into_iter().map(|script| (script, NakCode::InvalidRequest));
    for (script, code) in
        scripts.chain(access.into_iter().map(|script| (script, NakCode::RemoteAccess)))
    {
        let now = Instant::now();
        let queues = Queues::of(None, pd, Arc::clone(&keys));
        let mut fixture = Fixture { side: Side::of(queues, cfg(1), now), now, psn: cfg(1).rq_psn };
        let sink = fixture.side.buf(4 * OCTETS);
        fixture.side.recv(1, &[sink.seg(0, 4 * OCTETS)]);
        let name = format!("{:?}", script.iter().map(|(opcode, ..)| opcode).collect::<Vec<_>>());
        let last = script.len() - 1;
        for (n, (opcode, extension, payload)) in script.into_iter().enumerate() {
            let result = fixture.take(opcode, extension, &payload);
            match n == last {
                false => assert_eq!(result, Ok(()), "{name}"),
                true => assert_eq!(result, Err(Failure::Refusing(code)), "{name}"),
            }
        }
        let nak = format!("{} ACK NAK {code} 0", fixture.psn(-1));
        assert_eq!(fixture.last(), [nak], "{name}");
        let repeated = fixture.take(SendOnly, none, &[]);
        assert_eq!(repeated, Err(Failure::Refusing(code)), "{name}: no request may be accepted");
        assert_eq!(fixture.last(), [""; 0]);
        fixture.side.rc.flush();
        assert_eq!(fixture.side.received(), [wc(1, WcOp::Recv, 0, WcStatus::Flushed)], "{name}");
        assert!(fixture.side.rc.is_drained());
    }
    for buf in [&silent, &foreign] {
        assert!(buf.octets().iter().all(|&octet| octet == 0));
    }
}

#[test]
fn a_send_longer_than_its_buffer() {
    let mut fixture = Fixture::new();
    let sink = fixture.side.buf(OCTETS + 5);
    fixture.side.recv(1, &[sink.seg(0, OCTETS), sink.seg(OCTETS, 5)]);
    fixture.take(Opcode::SendFirst, Extension::None, &FULL).unwrap();
    let failure = fixture.take(Opcode::SendLast, Extension::None, b"123456").unwrap_err();
    assert_eq!(failure, Failure::Refusing(NakCode::InvalidRequest));
    assert_eq!(fixture.side.received(), [wc(1, WcOp::Recv, OCTETS + 6, WcStatus::LocalLength)]);
    assert_eq!(fixture.last(), [format!("{} ACK NAK invalid request 0", fixture.psn(-1))]);
}

#[test]
fn a_message_may_be_denied_its_buffer() {
    for imm in [false, true] {
        let now = Instant::now();
        let (queues, mut work) = Queues::new(None, Arc::new(Keys::new()));
        let allowed = Arc::new(AtomicBool::new(true));
        let watched = Arc::clone(&allowed);
        work.watch_receives(move || watched.load(Ordering::Relaxed));
        let mut fixture =
            Fixture { side: Side::of((queues, work), cfg(1), now), now, psn: cfg(1).rq_psn };
        let zero = Extension::RethImmediate(Reth { va: 0, r_key: 0, len: 0 }, 3);
        let (opcode, extension) = match imm {
            true => (Opcode::WriteOnlyImmediate, zero),
            false => (Opcode::SendOnly, Extension::None),
        };
        fixture.side.recv(1, &[]);
        fixture.side.recv(2, &[]);
        fixture.take(opcode, extension, &[]).unwrap();
        allowed.store(false, Ordering::Relaxed);
        let failure = fixture.take(opcode, extension, &[]).unwrap_err();
        assert_eq!(failure, Failure::Refusing(NakCode::RemoteOperational));
        assert_eq!(fixture.side.received().len(), 1);
        fixture.side.rc.flush();
        assert_eq!(fixture.side.received(), [wc(2, WcOp::Recv, 0, WcStatus::Flushed)]);
    }
}

#[test]
fn nothing_is_read_or_written_without_a_look_at_the_key() {
    let mut fixture = Fixture::new();
    let nowhere = Extension::Reth(Reth { va: 5, r_key: 6, len: 0 });
    fixture.take(Opcode::WriteOnly, nowhere, &[]).unwrap();
    fixture.take(Opcode::ReadRequest, nowhere, &[]).unwrap();
    assert_eq!(fixture.sent_words(), [format!("{} READ response only ACK 0", fixture.psn(-1))]);
}

#[test]
fn memory_that_goes_away() {
    // The target of a WRITE is deregistered between two packets.
    let mut fixture = Fixture::new();
    let mut target = fixture.side.buf(4 * OCTETS);
    let to = Extension::Reth(reth(target.remote(0), 3 * OCTETS));
    fixture.take(Opcode::WriteFirst, to, &FULL).unwrap();
    target.mr = None;
    let failure = fixture.take(Opcode::WriteMiddle, Extension::None, &FULL).unwrap_err();
    assert_eq!(failure, Failure::Refusing(NakCode::RemoteAccess));
    assert_eq!(target.octets()[OCTETS..], [0; 3 * OCTETS]);

    // The source of a READ is deregistered between two bursts. The packets that have been sent are
    // counted.
    let mut fixture = Fixture::new();
    let mut shown = fixture.side.buf(100 * OCTETS);
    let first = fixture.psn;
    fixture
        .take(Opcode::ReadRequest, Extension::Reth(reth(shown.remote(0), 100 * OCTETS)), &[])
        .unwrap();
    fixture.side.rc.transmit(fixture.now, &mut fixture.side.burst).unwrap();
    assert_eq!(fixture.side.sent().len(), 64);
    shown.mr = None;
    let failure = fixture.side.rc.transmit(fixture.now, &mut fixture.side.burst).unwrap_err();
    assert_eq!(failure, Failure::Refusing(NakCode::RemoteAccess));
    assert_eq!(fixture.last(), [format!("{} ACK NAK remote access error 0", first + 64)]);

    // A receive buffer is deregistered.
    let mut fixture = Fixture::new();
    let mut sink = fixture.side.buf(2 * OCTETS);
    fixture.side.recv(1, &[sink.seg(0, 2 * OCTETS)]);
    fixture.take(Opcode::SendFirst, Extension::None, &FULL).unwrap();
    sink.mr = None;
    let failure = fixture.take(Opcode::SendLast, Extension::None, b"x").unwrap_err();
    assert_eq!(failure, Failure::Refusing(NakCode::RemoteOperational));
    assert_eq!(fixture.side.received(), [wc(1, WcOp::Recv, OCTETS, WcStatus::LocalProtection)]);
}

/// The responses to a READ have arrived, and the programs have agreed that the memory is no longer
/// needed. Then the network delivers the request once more.
#[test]
fn a_late_duplicate_of_a_read_does_not_end_the_connection() {
    let mut fixture = Fixture::new();
    let (sink, mut shown) = (fixture.side.buf(OCTETS), fixture.side.buf(OCTETS));
    fixture.side.recv(1, &[sink.seg(0, OCTETS)]);
    let first = fixture.psn;
    let read = packet(Opcode::ReadRequest, first, Extension::Reth(reth(shown.remote(0), 8)), &[]);
    let response = [format!("{first} READ response only ACK 8")];
    fixture.side.take(fixture.now, &read).unwrap();
    assert_eq!(fixture.sent_words(), response);
    fixture.side.take(fixture.now, &read).unwrap();
    assert_eq!(fixture.sent_words(), response);
    shown.mr = None;
    fixture.side.take(fixture.now, &read).unwrap();
    assert_eq!(fixture.sent_words(), [""; 0]);
    assert!(fixture.side.rc.is_drained());
    fixture.psn = first + 1;
    fixture.send(b"abc");
    assert_eq!(fixture.sent_words(), [format!("{} ACK ACK 0", first + 1)]);
}

/// The responses to a READ are lost, and the memory is gone when the peer asks again. The READ
/// fails, so the peer does not ask for ever.
#[test]
fn a_read_whose_memory_is_gone_fails_if_the_peer_keeps_asking() {
    let mut fixture = Fixture::new();
    let mut shown = fixture.side.buf(OCTETS);
    let first = fixture.psn;
    let read = packet(Opcode::ReadRequest, first, Extension::Reth(reth(shown.remote(0), 8)), &[]);
    fixture.side.take(fixture.now, &read).unwrap();
    assert_eq!(fixture.sent_words(), [format!("{first} READ response only ACK 8")]);
    shown.mr = None;
    let mut repeat = || {
        fixture.side.take(fixture.now, &read)?;
        fixture.side.rc.transmit(fixture.now, &mut fixture.side.burst)
    };
    let ended = (1..100).find_map(|n| Some((n, repeat().err()?)));
    assert_eq!(ended, Some((5, Failure::Refusing(NakCode::RemoteAccess))));
    assert_eq!(fixture.last(), [format!("{first} ACK NAK remote access error 0")]);
}

#[test]
fn a_read_is_asked_for_again() {
    let mut fixture = Fixture::new();
    let mut rng = Rng(1);
    let shown = fixture.side.buf(4 * OCTETS).filled(&mut rng);
    let first = fixture.psn;
    let ask = |psn: Psn, from: usize, len: usize| {
        packet(Opcode::ReadRequest, psn, Extension::Reth(reth(shown.remote(from), len)), &[])
    };
    fixture.side.take(fixture.now, &ask(first, 0, 3 * OCTETS + 1)).unwrap();
    assert_eq!(fixture.sent_words().len(), 4);
    // A request for the second half is a READ of its own and reads the memory again.
    shown.octets_mut()[2 * OCTETS] ^= 1;
    fixture.side.take(fixture.now, &ask(first + 2, 2 * OCTETS, OCTETS + 1)).unwrap();
    fixture.side.rc.transmit(fixture.now, &mut fixture.side.burst).unwrap();
    let sent = fixture.side.sent();
    let expected = [
        format!("{} READ response first ACK {OCTETS}", first + 2),
        format!("{} READ response last ACK 1", first + 3),
    ];
    assert_eq!(words(&sent), expected);
    assert_eq!(Packet::parse(&sent[0]).unwrap().payload, &shown.octets()[2 * OCTETS..3 * OCTETS]);
    // The peer requests a part of the READ again.
    fixture.side.take(fixture.now, &ask(first + 1, OCTETS, 2 * OCTETS)).unwrap();
    assert_eq!(fixture.sent_words().len(), 2);
    // The following requests are not part of the original request: they have another address, a
    // greater length or another PSN.
    for other in [
        ask(first, OCTETS, OCTETS),
        ask(first + 1, OCTETS, 3 * OCTETS),
        ask(first - 1, 0, 1),
        ask(first + 1, OCTETS + 1, OCTETS),
    ] {
        fixture.side.take(fixture.now, &other).unwrap();
        assert_eq!(fixture.sent_words(), [""; 0]);
    }
    // The responder resources have room for four requests. So the fourth further READ displaces the
    // first READ.
    for n in 0..4 {
        fixture.side.take(fixture.now, &ask(first + 4 + n, 0, 1)).unwrap();
        assert_eq!(fixture.sent_words().len(), 1);
    }
    fixture.side.take(fixture.now, &ask(first, 0, 3 * OCTETS + 1)).unwrap();
    assert_eq!(fixture.sent_words(), [""; 0]);
}

/// The peer requests responses again before all responses have been sent. If it requests only a
/// piece, it still waits for the responses after the piece.
#[test]
fn a_piece_that_is_asked_for_again_does_not_displace_the_rest() {
    let mut fixture = Fixture::new();
    let shown = fixture.side.buf(100 * OCTETS);
    let first = fixture.psn;
    let ask = |from: u32, packets: usize| {
        let to = shown.remote(from as usize * OCTETS);
        let reth = Extension::Reth(reth(to, packets * OCTETS));
        packet(Opcode::ReadRequest, first + from, reth, &[])
    };
    let psns = |fixture: &mut Fixture| {
        fixture.side.rc.transmit_responses(fixture.now, &mut fixture.side.burst).unwrap();
        let sent = fixture.side.sent();
        let psns = sent.iter().map(|packet| Packet::parse(packet).unwrap().bth.psn);
        (psns.map(|psn| psn.distance(first)).collect::<Vec<_>>(), words(&sent))
    };
    fixture.side.take(fixture.now, &ask(0, 100)).unwrap();
    assert_eq!(psns(&mut fixture).0, Vec::from_iter(0..64));
    fixture.side.take(fixture.now, &ask(10, 5)).unwrap();
    let (sent, words) = psns(&mut fixture);
    assert_eq!(sent, (10..15).chain(64..100).collect::<Vec<_>>());
    for (at, opcode) in [(0, "first"), (1, "middle"), (4, "last"), (5, "first"), (40, "last")] {
        assert!(words[at].contains(opcode), "{at}: {}", words[at]);
    }
    assert!(!fixture.side.rc.wants_tx());

    // A request for another piece replaces the piece, and the rest remains.
    let mut fixture = Fixture::new();
    let shown = fixture.side.buf(200 * OCTETS);
    let ask = |from: u32, packets: usize| {
        let to = shown.remote(from as usize * OCTETS);
        let reth = Extension::Reth(reth(to, packets * OCTETS));
        packet(Opcode::ReadRequest, first + from, reth, &[])
    };
    fixture.side.take(fixture.now, &ask(0, 200)).unwrap();
    psns(&mut fixture);
    psns(&mut fixture);
    fixture.side.take(fixture.now, &ask(10, 90)).unwrap();
    assert_eq!(psns(&mut fixture).0, Vec::from_iter(10..74));
    fixture.side.take(fixture.now, &ask(12, 88)).unwrap();
    assert_eq!(psns(&mut fixture).0, Vec::from_iter(12..76));
    assert_eq!(psns(&mut fixture).0, (76..100).chain(128..168).collect::<Vec<_>>());
    // A peer that keeps nothing requests all responses from the missing one on.
    fixture.side.take(fixture.now, &ask(150, 50)).unwrap();
    assert_eq!(psns(&mut fixture).0, Vec::from_iter(150..200));
    assert!(!fixture.side.rc.wants_tx());
}

/// The owner learns of responses that the peer has requested again after they were sent.
#[test]
fn repeated_reads_are_told() {
    let mut fixture = Fixture::new();
    let shown = fixture.side.buf(100 * OCTETS);
    let first = fixture.psn;
    let ask = |from: u32, len: usize| {
        let to = shown.remote(from as usize * OCTETS);
        packet(Opcode::ReadRequest, first + from, Extension::Reth(reth(to, len)), &[])
    };
    let told = |fixture: &mut Fixture| fixture.side.rc.take_repeated_read();
    fixture.side.take(fixture.now, &ask(0, 99 * OCTETS + 1)).unwrap();
    fixture.side.take(fixture.now, &ask(0, 99 * OCTETS + 1)).unwrap();
    assert_eq!(told(&mut fixture), None, "no response has been sent");
    fixture.side.rc.transmit(fixture.now, &mut fixture.side.burst).unwrap();
    assert_eq!(fixture.side.sent().len(), 64);
    fixture.side.take(fixture.now, &ask(2, 97 * OCTETS + 1)).unwrap();
    let read = told(&mut fixture).expect("responses were sent before");
    let contained: Vec<_> = (0..100).filter(|&ahead| read.contains(first + ahead)).collect();
    assert_eq!(contained, Vec::from_iter(2..64));
    // BTH and AETH precede the payload.
    assert_eq!(read.packet_len(), 12 + 4 + OCTETS);
    assert_eq!(told(&mut fixture), None);
    while fixture.side.rc.wants_tx() {
        fixture.side.rc.transmit(fixture.now, &mut fixture.side.burst).unwrap();
        fixture.side.sent();
    }
    fixture.side.take(fixture.now, &ask(99, 1)).unwrap();
    let read = told(&mut fixture).expect("responses were sent before");
    assert!(read.contains(first + 99) && !read.contains(first + 98));
    assert_eq!(read.packet_len(), 12 + 4 + 4, "the payload is padded");
}

/// Responses may leave before requests may.
#[test]
fn responses_are_sent_without_requests() {
    let mut fixture = Fixture::new();
    let shown = fixture.side.buf(OCTETS);
    fixture.side.post(super::send(1, &[]));
    assert!(fixture.side.rc.wants_tx() && !fixture.side.rc.wants_to_respond());
    let first = fixture.psn;
    fixture.take(Opcode::ReadRequest, Extension::Reth(reth(shown.remote(0), 8)), &[]).unwrap();
    assert!(fixture.side.rc.wants_to_respond());
    fixture.side.rc.transmit_responses(fixture.now, &mut fixture.side.burst).unwrap();
    assert!(!fixture.side.rc.wants_to_respond());
    let sent = words(&fixture.side.sent());
    assert_eq!(sent, [format!("{first} READ response only ACK 8")]);
    assert_eq!(fixture.sent_words().len(), 1, "the request follows");
}

#[test]
fn an_atomic_operation_is_performed_once() {
    let mut fixture = Fixture::new();
    let counter = fixture.side.buf(16);
    counter.set_number(8, 40);
    let Remote { addr: va, key: r_key } = counter.remote(8);
    let add = Extension::Atomic(AtomicEth { va, r_key, swap_or_add: 2, compare: 0 });
    let swap = Extension::Atomic(AtomicEth { va, r_key, swap_or_add: 7, compare: 42 });
    let psn = fixture.psn;
    let requests = [
        packet(Opcode::FetchAdd, psn, add, &[]),
        packet(Opcode::CompareSwap, psn + 1, swap, &[]),
        packet(Opcode::CompareSwap, psn + 2, swap, &[]),
    ];
    for _ in 0..3 {
        for (request, original) in requests.iter().zip([40, 42, 7]) {
            fixture.side.take(fixture.now, request).unwrap();
            fixture.side.rc.transmit(fixture.now, &mut fixture.side.burst).unwrap();
            let sent = fixture.side.sent();
            let Extension::AtomicAck(_, ack) = Packet::parse(&sent[0]).unwrap().extension else {
                panic!()
            };
            assert_eq!((ack, sent.len()), (AtomicAckEth { original }, 1));
        }
        assert_eq!(counter.number(8), 7);
    }
    // A READ request with the PSN of an earlier atomic operation is not a repetition, and gets no
    // answer.
    let read = packet(Opcode::ReadRequest, psn, Extension::Reth(reth(counter.remote(0), 1)), &[]);
    fixture.side.take(fixture.now, &read).unwrap();
    assert_eq!(fixture.sent_words(), [""; 0]);
}

#[test]
fn without_resources_there_are_no_reads() {
    for opcode in [Opcode::ReadRequest, Opcode::FetchAdd] {
        let mut fixture = Fixture::with(|cfg| cfg.responder_resources = 0);
        let shown = fixture.side.buf(8);
        let Remote { addr: va, key: r_key } = shown.remote(0);
        let extension = match opcode {
            Opcode::ReadRequest => Extension::Reth(Reth { va, r_key, len: 1 }),
            _ => Extension::Atomic(AtomicEth { va, r_key, swap_or_add: 1, compare: 0 }),
        };
        let failure = fixture.take(opcode, extension, &[]).unwrap_err();
        assert_eq!(failure, Failure::Refusing(NakCode::InvalidRequest));
        assert_eq!(shown.number(0), 0);
    }
}

#[test]
fn a_shared_queue_serves_and_runs_dry() {
    let now = Instant::now();
    let keys = Arc::new(Keys::new());
    let pd = keys.pd();
    let srq = Arc::new(Srq::new(&keys, pd, 4, SEGMENTS, || {}).unwrap());
    let sink = Buf::new(&keys, pd, 8, LOCAL);
    let segments: [Segment; 1] = [sink.seg(0, 8)];
    share(&srq, 5, &segments).unwrap();
    let side = Side::with_srq(cfg(1), Some((Arc::clone(&srq), pd)), keys, now);
    let mut fixture = Fixture { side, now, psn: cfg(1).rq_psn };
    fixture.send(b"abc");
    fixture.send(b"abc");
    let naked = fixture.psn(-1);
    assert_eq!(fixture.sent_words(), [format!("{naked} ACK RNR NAK 640µs 0")]);
    share(&srq, 6, &segments).unwrap();
    fixture.psn = naked;
    fixture.send(b"def");
    assert_eq!(fixture.sent_words(), [format!("{naked} ACK ACK 0")]);
    let got = |id| wc(id, WcOp::Recv, 3, WcStatus::Success);
    assert_eq!(fixture.side.received(), [got(5), got(6)]);
}

/// A send with immediate data takes a buffer of a shared receive queue, or waits for one. Its
/// immediate data belong to the completion of the buffer that it takes in the end.
#[test]
fn a_send_with_immediate_data_waits_for_a_shared_buffer() {
    let now = Instant::now();
    let keys = Arc::new(Keys::new());
    let pd = keys.pd();
    let srq = Arc::new(Srq::new(&keys, pd, 4, SEGMENTS, || {}).unwrap());
    let sink = Buf::new(&keys, pd, 2 * OCTETS, LOCAL);
    let side = Side::with_srq(cfg(1), Some((Arc::clone(&srq), pd)), keys, now);
    let mut fixture = Fixture { side, now, psn: cfg(1).rq_psn };
    let immediate = |n| Extension::Immediate(convert_immediate(n));
    let first = fixture.psn(0);
    // The immediate data of a long message are in its last packet.
    fixture.take(Opcode::SendFirst, Extension::None, &[1; OCTETS]).unwrap();
    fixture.take(Opcode::SendLastImmediate, immediate(7), b"abc").unwrap();
    assert_eq!(fixture.sent_words(), [format!("{first} ACK RNR NAK 640µs 0")]);
    assert_eq!(fixture.side.received(), []);
    assert!(sink.octets().iter().all(|&octet| octet == 0));
    let segments: [Segment; 1] = [sink.seg(0, 2 * OCTETS)];
    share(&srq, 5, &segments).unwrap();
    fixture.psn = first;
    fixture.take(Opcode::SendFirst, Extension::None, &[2; OCTETS]).unwrap();
    fixture.take(Opcode::SendLastImmediate, immediate(8), b"def").unwrap();
    let received = |id, octets, n| {
        let wc = wc(id, WcOp::RecvMessageImm, octets, WcStatus::Success);
        Wc { immediate: Some(n), ..wc }
    };
    assert_eq!(fixture.side.received(), [received(5, OCTETS + 3, 8)]);
    assert_eq!(sink.octets()[..OCTETS + 3], [&[2; OCTETS][..], b"def"].concat());
    let last = fixture.psn(-1);
    assert_eq!(fixture.sent_words(), [format!("{last} ACK ACK 0")]);
    // An empty message takes a buffer, too.
    let empty = fixture.psn(0);
    fixture.take(Opcode::SendOnlyImmediate, immediate(9), b"").unwrap();
    assert_eq!(fixture.sent_words(), [format!("{empty} ACK RNR NAK 640µs 0")]);
    share(&srq, 6, &[]).unwrap();
    fixture.psn = empty;
    fixture.take(Opcode::SendOnlyImmediate, immediate(9), b"").unwrap();
    assert_eq!(fixture.side.received(), [received(6, 0, 9)]);
    assert_eq!(srq.available(), 0);
}
