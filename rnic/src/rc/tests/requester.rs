//! Tests of the packets that the requester sends, and of its reactions to responses made by hand
//! and to silence.

mod causes;
mod challenge;
mod path_check;
mod peer_close;
mod responses;
mod waiting;

use wire::rocev2::NakCode;

use super::*;
use crate::{Mw, Remote, SendOp, WcOp, WcStatus};

/// A side, and the PSN of its first packet.
struct Fixture {
    side: Side,
    now: Instant,
    /// The PSN of the side's first packet.
    psn: Psn,
}

/// The timeout that IBA defines for the code 17.
const TIMEOUT: Duration = Duration::from_nanos(4096 << 17);
const NOWHERE: Remote = Remote { addr: 0x1000, key: 5 };

impl Fixture {
    fn new() -> Fixture {
        Fixture::with(|_| {})
    }

    fn with(change: impl Fn(&mut RcCfg)) -> Fixture {
        let now = Instant::now();
        let mut cfg = cfg(1);
        change(&mut cfg);
        Fixture { side: Side::new(cfg, now), now, psn: cfg.sq_psn }
    }

    /// The packets that are sent now.
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

    fn sent_words(&mut self) -> Vec<String> {
        words(&self.sent())
    }

    /// Advances the clock to the next deadline. Returns the time that has passed.
    fn wait(&mut self) -> Result<Duration, Failure> {
        let at = self.side.rc.deadline().expect("a deadline is set");
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

    fn response(
        &mut self,
        position: wire::rocev2::Position,
        ahead: u32,
        len: usize,
    ) -> Result<(), Failure> {
        let opcode = Opcode::read_response(position);
        let extension = match opcode {
            Opcode::ReadResponseMiddle => Extension::None,
            _ => Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 0 }),
        };
        self.take(&packet(opcode, self.psn + ahead, extension, &vec![9; len]))
    }

    /// The ids and statuses of the completions.
    fn done(&self) -> Vec<(u64, WcStatus)> {
        self.side.completions().iter().map(|wc| (wc.id, wc.status)).collect()
    }

    /// Flushes the queue pair. Returns the ids and statuses of the completions.
    fn flush(&mut self) -> Vec<(u64, WcStatus)> {
        self.side.rc.flush();
        self.done()
    }
}

fn ok<const N: usize>(ids: [u64; N]) -> [(u64, WcStatus); N] {
    ids.map(|id| (id, WcStatus::Success))
}

#[test]
fn packets_of_messages() {
    let mut fixture = Fixture::new();
    let buf = fixture.side.buf(8 * OCTETS);
    let all = buf.seg(0, 2 * OCTETS + 5);
    fixture.side.post(crate::SendWr { solicited: true, ..send(1, &[all]) });
    fixture.side.post(send(2, &[]));
    fixture.side.post(request(3, SendOp::Send { invalidate: Some(0x55) }, &[buf.seg(0, 3)]));
    fixture
        .side
        .post(crate::SendWr { solicited: true, ..write(4, &[buf.seg(0, OCTETS + 1)], NOWHERE) });
    fixture.side.post(crate::SendWr {
        solicited: true,
        ..write_imm(5, &[buf.seg(0, OCTETS)], NOWHERE, 0x77)
    });
    fixture.side.post(read(6, &[buf.seg(0, OCTETS + 1)], NOWHERE));
    fixture.side.post(fetch_add(7, &[buf.seg(0, 8)], NOWHERE, 3));
    let psn = |ahead: u32| fixture.psn + ahead;
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
    assert_eq!(fixture.sent_words(), expected);
    assert!(!fixture.side.rc.wants_tx());
    assert_eq!(fixture.sent_words(), [""; 0]);
}

#[test]
fn packets_are_of_the_partition() {
    let mut fixture = Fixture::with(|cfg| cfg.p_key = 0x7FFF);
    fixture.side.post(send(1, &[]));
    let sent = fixture.sent();
    assert_eq!(Packet::parse(&sent[0]).unwrap().bth.p_key, 0x7FFF);
}

#[test]
fn a_fence_and_the_depth_hold_back() {
    let mut fixture = Fixture::with(|cfg| cfg.initiator_depth = 2);
    let sink = fixture.side.buf(8);
    for id in 0..3 {
        fixture.side.post(read(id, &[sink.seg(0, 1)], NOWHERE));
    }
    fixture.side.post(crate::SendWr { fence: true, ..send(3, &[]) });
    assert_eq!(fixture.sent_words().len(), 2);
    fixture.response(wire::rocev2::Position::Only, 0, 1).unwrap();
    assert_eq!(fixture.sent_words().len(), 1);
    fixture.response(wire::rocev2::Position::Only, 1, 1).unwrap();
    assert_eq!(fixture.sent_words().len(), 0);
    fixture.response(wire::rocev2::Position::Only, 2, 1).unwrap();
    assert_eq!(fixture.sent_words(), [format!("{} SEND only ask 0", fixture.psn + 3)]);
    // With an initiator depth of 0 no READ starts, and the requester does not report that it is
    // ready.
    let fixture = Fixture::with(|cfg| cfg.initiator_depth = 0);
    fixture.side.post(read(0, &[], NOWHERE));
    assert!(!fixture.side.rc.wants_tx() && !fixture.side.rc.is_drained());
}

#[test]
fn a_bind_waits_for_what_is_before_it_and_is_waited_for() {
    let mut fixture = Fixture::new();
    let shown = fixture.side.buf(8);
    let window = Mw::new(&fixture.side.keys, fixture.side.pd, false);
    fixture.side.post(send(1, &[]));
    let key = fixture.side.bind(2, &window, Some(shown.view(0, 8)));
    fixture.side.post(send(3, &[]));
    assert_eq!(fixture.sent_words().len(), 1);
    assert_eq!(window.state(key), crate::BindState::Posted);
    fixture.ack(0);
    assert_eq!(fixture.sent_words(), [format!("{} SEND only ask 0", fixture.psn + 1)]);
    assert_eq!(window.state(key), crate::BindState::Bound);
    fixture.ack(1);
    assert_eq!(fixture.done(), ok([1, 2, 3]));

    // A bind that fails ends the connection.
    let mut gone = fixture.side.buf(8);
    fixture.side.bind(4, &window, Some(gone.view(0, 8)));
    gone.mr = None;
    assert_eq!(fixture.try_send(), Err(Failure::Local));
    assert_eq!(fixture.flush(), [(4, WcStatus::BindFailed)]);
}

#[test]
fn local_memory_that_goes_away() {
    // The memory of a SEND is deregistered while earlier SENDs are in flight. The earlier SENDs
    // complete first.
    let mut fixture = Fixture::new();
    let (buf, mut gone) = (fixture.side.buf(8), fixture.side.buf(8));
    fixture.side.post(send(1, &[buf.seg(0, 8)]));
    fixture.side.post(send(2, &[gone.seg(0, 8)]));
    fixture.side.post(send(3, &[buf.seg(0, 8)]));
    gone.mr = None;
    assert_eq!(fixture.sent_words().len(), 1);
    assert!(!fixture.side.rc.wants_tx());
    fixture.ack(0);
    assert_eq!(fixture.try_send(), Err(Failure::Local));
    let done = [(1, WcStatus::Success), (2, WcStatus::LocalProtection), (3, WcStatus::Flushed)];
    assert_eq!(fixture.flush(), done);

    // The memory into which a READ places data is deregistered.
    let mut fixture = Fixture::new();
    let mut sink = fixture.side.buf(8);
    fixture.side.post(read(1, &[sink.seg(0, 8)], NOWHERE));
    fixture.sent();
    sink.mr = None;
    assert_eq!(fixture.response(wire::rocev2::Position::Only, 0, 8), Err(Failure::Local));
    assert_eq!(fixture.flush(), [(1, WcStatus::LocalProtection)]);
    assert_eq!(sink.octets(), [0; 8]);
}

#[test]
fn a_message_beyond_the_standard() {
    let mut fixture = Fixture::new();
    let start = std::ptr::dangling_mut();
    // SAFETY: the memory does not exist, but no octet is ever placed in it, because the request is
    // too long.
    let region = unsafe {
        crate::Mr::new(&fixture.side.keys, fixture.side.pd, start, 1 << 32, LOCAL, false)
    }
    .unwrap();
    let sink = crate::Segment { addr: start as u64, len: (1 << 31) + 1, key: region.lkey() };
    fixture.side.post(send(1, &[]));
    fixture.side.post(read(2, &[sink], NOWHERE));
    assert_eq!(fixture.sent_words().len(), 1);
    fixture.ack(0);
    assert_eq!(fixture.try_send(), Err(Failure::Local));
    assert_eq!(fixture.flush(), [(1, WcStatus::Success), (2, WcStatus::LocalLength)]);
}

#[test]
fn flushed_for_no_fault_of_its_own() {
    let mut fixture = Fixture::new();
    fixture.side.post(send(1, &[]));
    fixture.sent();
    fixture.side.recv(5, &[]);
    assert_eq!(fixture.flush(), [(1, WcStatus::Flushed)]);
    assert_eq!(fixture.side.received(), [wc(5, WcOp::Recv, 0, WcStatus::Flushed)]);
    fixture.side.post(send(2, &[]));
    assert!(!fixture.side.rc.wants_tx());
    assert_eq!(fixture.flush(), [(2, WcStatus::Flushed)]);
    assert_eq!(fixture.side.rc.expire(fixture.now), Err(Failure::Flushed));
}
