//! What the requester does with answers made by hand, or with none.

use wire::rocev2::{AtomicAckEth, NakCode};

use super::*;
use crate::{Mw, Remote, SendOp, WcOp, WcStatus};

/// A side with what it has sent.
struct Bench {
    side: Side,
    now: Instant,
    /// Its first packet's number.
    psn: Psn,
}

/// IBA's timeout 17.
const TIMEOUT: Duration = Duration::from_nanos(4096 << 17);
const NOWHERE: Remote = Remote { addr: 0x1000, key: 5 };

impl Bench {
    fn new() -> Bench {
        Bench::with(|_| {})
    }

    fn with(change: impl Fn(&mut RcCfg)) -> Bench {
        let now = Instant::now();
        let mut cfg = cfg(1);
        change(&mut cfg);
        Bench { side: Side::new(cfg, now), now, psn: cfg.sq_psn }
    }

    /// What leaves now.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        while self.side.rc.wants_tx() {
            self.side.rc.transmit(self.now, &mut self.side.burst).unwrap();
            sent.append(&mut self.side.sent());
        }
        sent
    }

    fn try_send(&mut self) -> Result<(), Failure> {
        while self.side.rc.wants_tx() {
            self.side.rc.transmit(self.now, &mut self.side.burst)?;
        }
        Ok(())
    }

    fn said(&mut self) -> Vec<String> {
        words(&self.sent())
    }

    /// Time goes to the next deadline.
    fn wait(&mut self) -> Result<Duration, Failure> {
        let at = self.side.rc.deadline().expect("something is waited for");
        let waited = at.saturating_duration_since(self.now);
        self.now = at;
        self.side.rc.expire(at)?;
        Ok(waited)
    }

    fn take(&mut self, packet: &[u8]) -> Result<(), Failure> {
        self.side.take(self.now, packet)
    }

    fn ack(&mut self, ahead: u32) {
        self.take(&answer(Syndrome::ACK, self.psn + ahead)).unwrap();
    }

    fn nak(&mut self, code: NakCode, ahead: u32) -> Result<(), Failure> {
        self.take(&answer(Syndrome::Nak(code), self.psn + ahead))
    }

    fn rnr(&mut self, code: u8, ahead: u32) -> Result<(), Failure> {
        self.take(&answer(Syndrome::Rnr(RnrTimer::from_code(code)), self.psn + ahead))
    }

    fn response(&mut self, position: wire::rocev2::Position, ahead: u32, len: usize) -> Result<(), Failure> {
        let opcode = Opcode::read_response(position);
        let extension = match opcode {
            Opcode::ReadResponseMiddle => Extension::None,
            _ => Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 0 }),
        };
        self.take(&packet(opcode, self.psn + ahead, extension, &vec![9; len]))
    }

    /// Ids and statuses of what has completed.
    fn done(&self) -> Vec<(u64, WcStatus)> {
        self.side.completions().iter().map(|wc| (wc.id, wc.status)).collect()
    }

    /// The same, once all is over.
    fn over(&mut self) -> Vec<(u64, WcStatus)> {
        self.side.rc.flush();
        self.done()
    }
}

fn ok<const N: usize>(ids: [u64; N]) -> [(u64, WcStatus); N] {
    ids.map(|id| (id, WcStatus::Success))
}

#[test]
fn packets_of_messages() {
    let mut bench = Bench::new();
    let buf = bench.side.buf(8 * OCTETS);
    let all = buf.seg(0, 2 * OCTETS + 5);
    bench.side.post(crate::SendWr { solicited: true, ..send(1, &[all]) });
    bench.side.post(send(2, &[]));
    bench.side.post(request(3, SendOp::Send { invalidate: Some(0x55) }, &[buf.seg(0, 3)]));
    bench.side.post(crate::SendWr { solicited: true, ..write(4, &[buf.seg(0, OCTETS + 1)], NOWHERE) });
    bench.side.post(crate::SendWr { solicited: true, ..write_imm(5, &[buf.seg(0, OCTETS)], NOWHERE, 0x77) });
    bench.side.post(read(6, &[buf.seg(0, OCTETS + 1)], NOWHERE));
    bench.side.post(fetch_add(7, &[buf.seg(0, 8)], NOWHERE, 3));
    let psn = |ahead: u32| bench.psn + ahead;
    let expected = [
        format!("{} SEND first 256", psn(0)),
        format!("{} SEND middle 256", psn(1)),
        format!("{} SEND last solicited ask 5", psn(2)),
        format!("{} SEND only ask 0", psn(3)),
        format!("{} SEND only invalidate invalidate=0x00000055 ask 3", psn(4)),
        format!("{} WRITE first of 257 256", psn(5)),
        format!("{} WRITE last ask 1", psn(6)),
        format!("{} WRITE only immediate of 256 immediate=0x77 solicited ask 256", psn(7)),
        format!("{} READ request of 257 ask 0", psn(8)),
        format!("{} FETCH ADD ask 0", psn(10)),
    ];
    assert_eq!(bench.said(), expected);
    assert!(!bench.side.rc.wants_tx());
    assert_eq!(bench.said(), [""; 0]);
}

#[test]
fn a_cumulative_acknowledgement() {
    let mut bench = Bench::new();
    let buf = bench.side.buf(3 * OCTETS);
    for id in 0..4 {
        bench.side.post(send(id, &[buf.seg(0, 3 * OCTETS)]));
    }
    bench.sent();
    bench.ack(1);
    assert_eq!(bench.done(), []);
    bench.ack(6);
    assert_eq!(bench.done(), ok([0, 1]));
    // Old ones, and ones for what was never sent.
    for ahead in [1, 12, 13, 1000] {
        bench.ack(ahead);
        bench.nak(NakCode::RemoteAccess, ahead).unwrap();
        bench.rnr(0, ahead).unwrap();
    }
    assert_eq!(bench.done(), []);
    assert!(!bench.side.rc.wants_tx());
    bench.ack(11);
    assert_eq!(bench.done(), ok([2, 3]));
    assert_eq!(bench.side.rc.deadline(), None);
    assert!(bench.side.rc.is_drained());
    assert_eq!(bench.side.rc.stats().tx_messages, 4);
}

#[test]
#[cfg_attr(miri, ignore = "not a test: its volume takes Miri long and shows it nothing new")]
fn the_window_asks_for_an_acknowledgement_when_it_is_full() {
    for window in [1, 2, 7, 64, 300] {
        let mut bench = Bench::with(|cfg| cfg.window = window);
        let buf = bench.side.buf(1000 * OCTETS);
        bench.side.post(send(1, &[buf.seg(0, 1000 * OCTETS)]));
        let mut ahead = 0;
        while ahead < 1000 {
            let sent = bench.said();
            assert_eq!(sent.len(), (window as usize).min(1000 - ahead as usize));
            let asks: Vec<_> = sent.iter().map(|packet| packet.contains("ask")).collect();
            assert!(asks.chunks_exact(64).all(|some| some.contains(&true)), "{window}");
            assert_eq!(asks.last(), Some(&true), "{window}");
            ahead += sent.len() as u32;
            bench.ack(ahead - 1);
        }
        assert_eq!(bench.done(), ok([1]));
    }
}

#[test]
fn a_sequence_error_goes_back() {
    let mut bench = Bench::new();
    let buf = bench.side.buf(6 * OCTETS);
    for id in 0..3 {
        bench.side.post(send(id, &[buf.seg(0, 2 * OCTETS)]));
    }
    let sent = bench.sent();
    bench.nak(NakCode::SequenceError, 3).unwrap();
    assert_eq!(bench.done(), ok([0]), "it acknowledges what is before");
    assert_eq!(bench.sent(), sent[3..]);
    // A copy of it is not about what has been sent again, if it comes sooner than an answer can.
    bench.now += Duration::from_millis(2);
    bench.ack(3);
    bench.nak(NakCode::SequenceError, 4).unwrap();
    assert_eq!(bench.sent(), sent[4..]);
    assert_eq!(bench.side.rc.stats().sequence_naks, [0, 2]);
    bench.ack(5);
    assert_eq!(bench.done(), ok([1, 2]));
    assert_eq!(bench.side.rc.stats().repeated, 5);
}

#[test]
fn a_copy_of_a_sequence_error_does_nothing() {
    let mut bench = Bench::new();
    let buf = bench.side.buf(6 * OCTETS);
    // A round trip is measured.
    bench.side.post(send(0, &[]));
    bench.sent();
    bench.now += Duration::from_millis(4);
    bench.ack(0);
    bench.side.post(send(1, &[buf.seg(0, 6 * OCTETS)]));
    bench.sent();
    bench.nak(NakCode::SequenceError, 2).unwrap();
    assert_eq!(bench.sent().len(), 5);
    bench.now += Duration::from_millis(1);
    bench.nak(NakCode::SequenceError, 2).unwrap();
    assert_eq!(bench.sent().len(), 0);
    bench.now += Duration::from_millis(3);
    bench.nak(NakCode::SequenceError, 2).unwrap();
    assert_eq!(bench.sent().len(), 5);
}

#[test]
fn each_nak_and_its_status() {
    for (code, status) in [
        (NakCode::InvalidRequest, WcStatus::RemoteResponder),
        (NakCode::RemoteAccess, WcStatus::RemoteAccess),
        (NakCode::RemoteOperational, WcStatus::RemoteResponder),
        (NakCode::InvalidRdRequest, WcStatus::RemoteResponder),
    ] {
        let mut bench = Bench::new();
        let buf = bench.side.buf(2 * OCTETS);
        for id in 0..3 {
            bench.side.post(write(id, &[buf.seg(0, 2 * OCTETS)], NOWHERE));
        }
        bench.sent();
        assert_eq!(bench.nak(code, 3), Err(Failure::Refused(code)));
        assert_eq!(bench.try_send(), Ok(()));
        bench.side.rc.last_words(&mut bench.side.burst);
        assert_eq!(bench.side.sent(), [[]; 0], "the peer knows");
        assert_eq!(
            bench.side.rc.receive(bench.now, &Packet::parse(&answer(Syndrome::ACK, bench.psn)).unwrap()),
            Err(Failure::Refused(code))
        );
        assert_eq!(bench.over(), [(0, WcStatus::Success), (1, status), (2, WcStatus::Flushed)]);
    }
}

#[test]
fn a_reserved_syndrome_makes_no_sense() {
    let mut bench = Bench::new();
    bench.side.post(send(0, &[]));
    bench.sent();
    let reserved = answer(Syndrome::Reserved(0x45), bench.psn);
    assert_eq!(bench.take(&reserved), Err(Failure::BadResponse));
    assert_eq!(bench.over(), [(0, WcStatus::BadResponse)]);
}

#[test]
fn a_receiver_that_is_not_ready_is_waited_for() {
    let mut bench = Bench::new();
    for id in 0..3 {
        bench.side.post(send(id, &[]));
    }
    bench.sent();
    // 1.28 ms.
    bench.rnr(14, 1).unwrap();
    assert_eq!(bench.done(), ok([0]));
    assert_eq!(bench.said(), [""; 0]);
    // What the peer says of the packets behind it does not cut the wait short, nor does a copy make it longer.
    bench.now += Duration::from_millis(1);
    bench.nak(NakCode::SequenceError, 1).unwrap();
    bench.rnr(14, 1).unwrap();
    assert_eq!(bench.said(), [""; 0]);
    assert_eq!(bench.wait(), Ok(Duration::from_micros(280)));
    assert_eq!(bench.said().len(), 2);
    bench.rnr(14, 1).unwrap();
    // An acknowledgement does: it was a late copy.
    bench.ack(1);
    assert_eq!(bench.said().len(), 1);
    bench.ack(2);
    assert_eq!(bench.done(), ok([1, 2]));
    assert_eq!(bench.side.rc.stats().rnr_naks, [0, 3]);
}

#[test]
fn a_receiver_that_is_never_ready() {
    let mut bench = Bench::with(|cfg| cfg.rnr_retries = 3);
    for id in 0..3 {
        bench.side.post(send(id, &[]));
    }
    bench.sent();
    // It counts from the last message that it took.
    for ahead in [0, 1] {
        for _ in 0..3 {
            bench.rnr(1, ahead).unwrap();
            assert_eq!(bench.wait(), Ok(Duration::from_micros(10)));
            assert_eq!(bench.said().len(), 3 - ahead as usize);
        }
    }
    assert_eq!(bench.rnr(1, 1), Err(Failure::ReceiverNotReady));
    let done = [(0, WcStatus::Success), (1, WcStatus::ReceiverNotReady), (2, WcStatus::Flushed)];
    assert_eq!(bench.over(), done);

    // With 7 it is asked for ever.
    let mut bench = Bench::new();
    bench.side.post(send(0, &[]));
    for _ in 0..1000 {
        assert_eq!(bench.said().len(), 1);
        bench.rnr(0, 0).unwrap();
        assert_eq!(bench.wait(), Ok(Duration::from_micros(655_360)));
    }
}

#[test]
fn a_peer_that_is_dead() {
    for retries in [0, 1, 7] {
        let mut bench = Bench::with(|cfg| cfg.retries = retries);
        let buf = bench.side.buf(10 * OCTETS);
        bench.side.post(send(0, &[]));
        bench.side.post(send(1, &[buf.seg(0, 10 * OCTETS)]));
        let (start, sent) = (bench.now, bench.sent());
        assert_eq!(sent.len(), 11);
        let failure = loop {
            match bench.wait() {
                // The oldest alone: it is not known whether more would arrive.
                Ok(_) => assert_eq!(bench.sent(), sent[..1]),
                Err(failure) => break failure,
            }
        };
        assert_eq!(failure, Failure::Silent);
        assert_eq!(bench.now - start, TIMEOUT * (u32::from(retries) + 1));
        let stats = bench.side.rc.stats();
        assert_eq!(stats.timeouts, retries.into());
        // 5, 10, 20 ... 320 ms: seven in each timeout but for the time they take.
        assert_eq!(stats.probes, 6 * (u64::from(retries) + 1), "{stats:?}");
        assert_eq!(bench.over(), [(0, WcStatus::Transport), (1, WcStatus::Flushed)]);
        assert_eq!(bench.side.rc.deadline(), None);
    }
}

#[test]
fn without_a_timeout_there_are_probes_for_ever() {
    let mut bench = Bench::with(|cfg| (cfg.ack_timeout, cfg.retries) = (0, 0));
    bench.side.post(send(0, &[]));
    bench.sent();
    for _ in 0..100 {
        assert!(bench.wait().unwrap() <= Duration::from_secs(1));
        assert_eq!(bench.said().len(), 1);
    }
    bench.ack(0);
    assert_eq!(bench.done(), ok([0]));
}

#[test]
fn a_late_acknowledgement_is_no_loss() {
    let mut bench = Bench::new();
    let buf = bench.side.buf(100 * OCTETS);
    bench.side.post(send(0, &[buf.seg(0, 100 * OCTETS)]));
    assert_eq!(bench.sent().len(), 64);
    bench.wait().unwrap();
    assert_eq!(bench.sent().len(), 1);
    bench.ack(63);
    // The window is as it was.
    assert_eq!(bench.sent().len(), 36);
    assert_eq!(bench.side.rc.stats().repeated, 1);
}

#[test]
#[cfg_attr(miri, ignore = "not a test: its volume takes Miri long and shows it nothing new")]
fn a_loss_halves_the_window_and_it_grows_again() {
    let mut bench = Bench::new();
    let buf = bench.side.buf(2000 * OCTETS);
    bench.side.post(send(0, &[buf.seg(0, 2000 * OCTETS)]));
    assert_eq!(bench.sent().len(), 64);
    bench.nak(NakCode::SequenceError, 0).unwrap();
    assert_eq!(bench.sent().len(), 32);
    let mut acked = 32;
    for grown in 33..=64 {
        bench.ack(acked - 1);
        assert_eq!(bench.sent().len(), grown, "by one with each window");
        acked += grown as u32;
    }
    bench.ack(acked - 1);
    assert_eq!(bench.sent().len(), 64, "and no further");
}

#[test]
fn a_read_and_its_responses() {
    use wire::rocev2::Position::{First, Last, Middle, Only};
    let mut bench = Bench::new();
    let sink = bench.side.buf(3 * OCTETS + 1);
    bench.side.post(send(1, &[]));
    bench.side.post(read(2, &[sink.seg(0, OCTETS + 1), sink.seg(OCTETS + 1, 2 * OCTETS)], NOWHERE));
    bench.side.post(send(3, &[]));
    let sent = bench.sent();
    assert_eq!(sent.len(), 3);
    // It acknowledges what was before it.
    bench.response(First, 1, OCTETS).unwrap();
    assert_eq!(bench.done(), ok([1]));
    // One is missing: the rest is asked for. That what was under way comes as well means nothing.
    bench.response(Last, 4, 1).unwrap();
    let expected = [
        format!("{} READ request of {} ask 0", bench.psn + 2, 2 * OCTETS + 1),
        format!("{} SEND only ask 0", bench.psn + 5),
    ];
    assert_eq!(bench.said(), expected);
    bench.ack(5);
    assert_eq!(bench.said(), [""; 0]);
    assert_eq!(sink.bytes()[OCTETS..], [0; 2 * OCTETS + 1]);
    // The responder may go on where it was, or begin anew.
    bench.response(Middle, 2, OCTETS).unwrap();
    bench.response(First, 3, OCTETS).unwrap();
    // A copy of an old one.
    bench.response(First, 1, OCTETS).unwrap();
    bench.response(Last, 4, 1).unwrap();
    assert_eq!(bench.done(), ok([2]));
    assert_eq!(sink.bytes(), [9; 3 * OCTETS + 1]);
    bench.ack(5);
    assert_eq!(bench.done(), ok([3]));
    bench.response(Only, 5, 1).unwrap();
}

#[test]
fn an_acknowledgement_behind_a_read_shows_that_its_response_is_lost() {
    let mut bench = Bench::new();
    let sink = bench.side.buf(8);
    bench.side.post(send(1, &[]));
    bench.side.post(fetch_add(2, &[sink.seg(0, 8)], NOWHERE, 1));
    bench.side.post(send(3, &[]));
    let sent = bench.sent();
    bench.ack(2);
    assert_eq!(bench.done(), ok([1]));
    assert_eq!(bench.sent(), sent[1..]);
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: 0 };
    let response = Extension::AtomicAck(aeth, AtomicAckEth { original: 0x0102_0304_0506_0708 });
    bench.take(&packet(Opcode::AtomicAcknowledge, bench.psn + 1, response, &[])).unwrap();
    bench.ack(2);
    assert_eq!(bench.done(), ok([2, 3]));
    assert_eq!(sink.number(0), 0x0102_0304_0506_0708);
}

#[test]
fn a_long_read_is_asked_for_in_parts() {
    let mut bench = Bench::with(|cfg| (cfg.window, cfg.initiator_depth) = (16, 2));
    let sink = bench.side.buf(9 * OCTETS);
    bench.side.post(read(1, &[sink.seg(0, 9 * OCTETS)], NOWHERE));
    let asked = |bench: &mut Bench| -> Vec<_> {
        let sent = bench.sent();
        let reth = |bytes: &Vec<u8>| {
            let Packet { bth, extension, .. } = Packet::parse(bytes).unwrap();
            let Extension::Reth(reth) = extension else { panic!("{extension:?}") };
            (bth.psn.distance(PSNS[0]), reth.va - NOWHERE.addr, reth.len)
        };
        sent.iter().map(reth).collect()
    };
    let part = 4 * OCTETS as u32;
    assert_eq!(asked(&mut bench), [(0, 0, part), (4, part.into(), part)]);
    for ahead in 0..4 {
        let position = wire::rocev2::Position::new(ahead == 0, ahead == 3);
        bench.response(position, ahead, OCTETS).unwrap();
    }
    assert_eq!(asked(&mut bench), [(8, u64::from(part) * 2, OCTETS as u32)]);
    for ahead in 4..8 {
        bench.response(wire::rocev2::Position::new(ahead == 4, ahead == 7), ahead, OCTETS).unwrap();
    }
    bench.response(wire::rocev2::Position::Only, 8, OCTETS).unwrap();
    assert_eq!(bench.done(), ok([1]));
    assert_eq!(sink.bytes(), [9; 9 * OCTETS]);
}

#[test]
fn responses_that_make_no_sense() {
    use wire::rocev2::Position::{First, Last, Middle, Only};
    type Case = (&'static str, fn(&mut Bench) -> Result<(), Failure>);
    let cases: [Case; 8] = [
        ("too short", |bench| bench.response(First, 0, OCTETS - 4)),
        ("too long", |bench| bench.response(First, 0, OCTETS + 4)),
        ("the end too soon", |bench| bench.response(Only, 0, OCTETS)),
        ("no end", |bench| {
            bench.response(First, 0, OCTETS)?;
            bench.response(Middle, 1, 5)
        }),
        ("a last one too long", |bench| {
            bench.response(First, 0, OCTETS)?;
            bench.response(Last, 1, 6)
        }),
        ("atomic", |bench| {
            let aeth = Aeth { syndrome: Syndrome::ACK, msn: 0 };
            let response = Extension::AtomicAck(aeth, AtomicAckEth { original: 1 });
            bench.take(&packet(Opcode::AtomicAcknowledge, bench.psn, response, &[]))
        }),
        ("a refusal with data", |bench| {
            let aeth = Extension::Aeth(Aeth { syndrome: Syndrome::Nak(NakCode::RemoteAccess), msn: 0 });
            bench.take(&packet(Opcode::ReadResponseFirst, bench.psn, aeth, &[9; OCTETS]))
        }),
        ("to a SEND", |bench| {
            bench.response(First, 0, OCTETS)?;
            bench.response(Last, 1, 5)?;
            bench.response(Only, 2, 0)
        }),
    ];
    for (name, script) in cases {
        let mut bench = Bench::new();
        let sink = bench.side.buf(OCTETS + 5);
        bench.side.post(read(1, &[sink.seg(0, OCTETS + 5)], NOWHERE));
        bench.side.post(send(2, &[]));
        bench.sent();
        assert_eq!(script(&mut bench), Err(Failure::BadResponse), "{name}");
        let first = match name {
            "to a SEND" => [(1, WcStatus::Success), (2, WcStatus::BadResponse)],
            _ => [(1, WcStatus::BadResponse), (2, WcStatus::Flushed)],
        };
        assert_eq!(bench.over(), first, "{name}");
    }
}

#[test]
fn a_fence_and_the_depth_hold_back() {
    let mut bench = Bench::with(|cfg| cfg.initiator_depth = 2);
    let sink = bench.side.buf(8);
    for id in 0..3 {
        bench.side.post(read(id, &[sink.seg(0, 1)], NOWHERE));
    }
    bench.side.post(crate::SendWr { fence: true, ..send(3, &[]) });
    assert_eq!(bench.said().len(), 2);
    bench.response(wire::rocev2::Position::Only, 0, 1).unwrap();
    assert_eq!(bench.said().len(), 1);
    bench.response(wire::rocev2::Position::Only, 1, 1).unwrap();
    assert_eq!(bench.said().len(), 0);
    bench.response(wire::rocev2::Position::Only, 2, 1).unwrap();
    assert_eq!(bench.said(), [format!("{} SEND only ask 0", bench.psn + 3)]);
    // With a depth of 0 nothing starts, and nothing spins.
    let bench = Bench::with(|cfg| cfg.initiator_depth = 0);
    bench.side.post(read(0, &[], NOWHERE));
    assert!(!bench.side.rc.wants_tx() && !bench.side.rc.is_drained());
}

#[test]
fn a_bind_waits_for_what_is_before_it_and_is_waited_for() {
    let mut bench = Bench::new();
    let shown = bench.side.buf(8);
    let window = Mw::new(&bench.side.keys, bench.side.pd, false);
    bench.side.post(send(1, &[]));
    let key = bench.side.bind(2, &window, Some(shown.view(0, 8)));
    bench.side.post(send(3, &[]));
    assert_eq!(bench.said().len(), 1);
    assert_eq!(window.state(key), crate::BindState::Posted);
    bench.ack(0);
    assert_eq!(bench.said(), [format!("{} SEND only ask 0", bench.psn + 1)]);
    assert_eq!(window.state(key), crate::BindState::Bound);
    bench.ack(1);
    assert_eq!(bench.done(), ok([1, 2, 3]));

    // One that fails ends the connection.
    let mut gone = bench.side.buf(8);
    bench.side.bind(4, &window, Some(gone.view(0, 8)));
    gone.mr = None;
    assert_eq!(bench.try_send(), Err(Failure::Local));
    assert_eq!(bench.over(), [(4, WcStatus::BindFailed)]);
}

#[test]
fn local_memory_that_goes_away() {
    // Of a SEND behind others: these are waited for.
    let mut bench = Bench::new();
    let (buf, mut gone) = (bench.side.buf(8), bench.side.buf(8));
    bench.side.post(send(1, &[buf.seg(0, 8)]));
    bench.side.post(send(2, &[gone.seg(0, 8)]));
    bench.side.post(send(3, &[buf.seg(0, 8)]));
    gone.mr = None;
    assert_eq!(bench.said().len(), 1);
    assert!(!bench.side.rc.wants_tx());
    bench.ack(0);
    assert_eq!(bench.try_send(), Err(Failure::Local));
    let done = [(1, WcStatus::Success), (2, WcStatus::LocalProtection), (3, WcStatus::Flushed)];
    assert_eq!(bench.over(), done);

    // Where a READ goes to.
    let mut bench = Bench::new();
    let mut sink = bench.side.buf(8);
    bench.side.post(read(1, &[sink.seg(0, 8)], NOWHERE));
    bench.sent();
    sink.mr = None;
    assert_eq!(bench.response(wire::rocev2::Position::Only, 0, 8), Err(Failure::Local));
    assert_eq!(bench.over(), [(1, WcStatus::LocalProtection)]);
    assert_eq!(sink.bytes(), [0; 8]);
}

#[test]
fn a_read_into_a_window() {
    let mut bench = Bench::new();
    let sink = bench.side.buf(8);
    let window = Mw::new(&bench.side.keys, bench.side.pd, false);
    let key = bench.side.bind(1, &window, Some(sink.view(0, 4)));
    bench.sent();
    let into = crate::Segment { key, ..sink.seg(0, 4) };
    bench.side.post(request(2, SendOp::ReadToWindow(NOWHERE), &[into]));
    bench.sent();
    bench.response(wire::rocev2::Position::Only, 0, 4).unwrap();
    assert_eq!(bench.done(), ok([1, 2]));
    assert_eq!(sink.bytes(), [9, 9, 9, 9, 0, 0, 0, 0]);
}

#[test]
fn a_message_beyond_the_standard() {
    let mut bench = Bench::new();
    let start = std::ptr::dangling_mut();
    // SAFETY: there is no such memory, but nothing is ever placed in it: the request is too long.
    let region =
        unsafe { crate::Mr::new(&bench.side.keys, bench.side.pd, start, 1 << 32, LOCAL, false) }.unwrap();
    let sink = crate::Segment { addr: start as u64, len: (1 << 31) + 1, key: region.lkey() };
    bench.side.post(send(1, &[]));
    bench.side.post(read(2, &[sink], NOWHERE));
    assert_eq!(bench.said().len(), 1);
    bench.ack(0);
    assert_eq!(bench.try_send(), Err(Failure::Local));
    assert_eq!(bench.over(), [(1, WcStatus::Success), (2, WcStatus::LocalLength)]);
}

#[test]
fn flushed_for_no_fault_of_its_own() {
    let mut bench = Bench::new();
    bench.side.post(send(1, &[]));
    bench.sent();
    bench.side.recv(5, &[]);
    assert_eq!(bench.over(), [(1, WcStatus::Flushed)]);
    assert_eq!(bench.side.received(), [wc(5, WcOp::Recv, 0, WcStatus::Flushed)]);
    bench.side.post(send(2, &[]));
    assert!(!bench.side.rc.wants_tx());
    assert_eq!(bench.over(), [(2, WcStatus::Flushed)]);
    assert_eq!(bench.side.rc.expire(bench.now), Err(Failure::Flushed));
}
