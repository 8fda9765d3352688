//! Tests of the reactions to responses.

use std::collections::VecDeque;

use wire::rocev2::{AtomicAckEth, Position};

use super::*;

#[test]
fn a_cumulative_acknowledgement() {
    let mut fixture = Fixture::new();
    let buf = fixture.side.buf(3 * OCTETS);
    for id in 0..4 {
        fixture.side.post(send(id, &[buf.seg(0, 3 * OCTETS)]));
    }
    fixture.sent();
    fixture.ack(1);
    assert_eq!(fixture.done(), []);
    fixture.ack(6);
    assert_eq!(fixture.done(), ok([0, 1]));
    // Responses with old PSNs, and with PSNs that were never sent, are ignored.
    for ahead in [1, 12, 13, 1000] {
        fixture.ack(ahead);
        fixture.nak(NakCode::RemoteAccess, ahead).unwrap();
        fixture.rnr(0, ahead).unwrap();
    }
    assert_eq!(fixture.done(), []);
    assert!(!fixture.side.rc.wants_tx());
    fixture.ack(11);
    assert_eq!(fixture.done(), ok([2, 3]));
    assert_eq!(fixture.side.rc.deadline(), None);
    assert!(fixture.side.rc.is_drained());
    assert_eq!(fixture.side.rc.stats().tx_messages, 4);
}

#[test]
fn each_nak_and_its_status() {
    for (code, status) in [
        (NakCode::InvalidRequest, WcStatus::RemoteResponder),
        (NakCode::RemoteAccess, WcStatus::RemoteAccess),
        (NakCode::RemoteOperational, WcStatus::RemoteResponder),
        (NakCode::InvalidRdRequest, WcStatus::RemoteResponder),
    ] {
        let mut fixture = Fixture::new();
        let buf = fixture.side.buf(2 * OCTETS);
        for id in 0..3 {
            fixture.side.post(write(id, &[buf.seg(0, 2 * OCTETS)], NOWHERE));
        }
        fixture.sent();
        assert_eq!(fixture.nak(code, 3), Err(Failure::Refused(code)));
        assert_eq!(fixture.try_send(), Ok(()));
        fixture.side.rc.transmit_fatal_nak(&mut fixture.side.burst);
        assert_eq!(fixture.side.sent(), [[]; 0], "the peer already knows of the failure");
        assert_eq!(
            fixture
                .side
                .rc
                .receive(fixture.now, &Packet::parse(&answer(Syndrome::ACK, fixture.psn)).unwrap()),
            Err(Failure::Refused(code))
        );
        assert_eq!(fixture.flush(), [(0, WcStatus::Success), (1, status), (2, WcStatus::Flushed)]);
    }
}

#[test]
fn a_reserved_syndrome_makes_no_sense() {
    let mut fixture = Fixture::new();
    fixture.side.post(send(0, &[]));
    fixture.sent();
    let reserved = answer(Syndrome::Reserved(0x45), fixture.psn);
    assert_eq!(fixture.take(&reserved), Err(Failure::BadResponse));
    assert_eq!(fixture.flush(), [(0, WcStatus::BadResponse)]);
}

#[test]
fn a_read_and_its_responses() {
    use wire::rocev2::Position::{First, Last, Middle, Only};
    let mut fixture = Fixture::new();
    let sink = fixture.side.buf(3 * OCTETS + 1);
    fixture.side.post(send(1, &[]));
    fixture.side.post(read(
        2,
        &[sink.seg(0, OCTETS + 1), sink.seg(OCTETS + 1, 2 * OCTETS)],
        NOWHERE,
    ));
    fixture.side.post(send(3, &[]));
    let sent = fixture.sent();
    assert_eq!(sent.len(), 3);
    // The response acknowledges all packets before it.
    fixture.response(First, 1, OCTETS).unwrap();
    assert_eq!(fixture.done(), ok([1]));
    // Two responses are missing, so the requester asks for them. The later one is kept.
    fixture.response(Last, 4, 1).unwrap();
    let missing = format!("{} READ request of {} ask 0", fixture.psn + 2, 2 * OCTETS);
    assert_eq!(fixture.sent_words(), [missing]);
    fixture.ack(5);
    assert_eq!(fixture.sent_words(), [""; 0]);
    assert_eq!(sink.octets()[OCTETS..3 * OCTETS], [0; 2 * OCTETS]);
    assert_eq!(sink.octets()[3 * OCTETS..], [9]);
    // The responder may continue the old response or start a new response.
    fixture.response(Middle, 2, OCTETS).unwrap();
    fixture.response(First, 3, OCTETS).unwrap();
    // The packet is a copy of an old response.
    fixture.response(First, 1, OCTETS).unwrap();
    fixture.response(Last, 4, 1).unwrap();
    assert_eq!(fixture.done(), ok([2]));
    assert_eq!(sink.octets(), [9; 3 * OCTETS + 1]);
    fixture.ack(5);
    assert_eq!(fixture.done(), ok([3]));
    fixture.response(Only, 5, 1).unwrap();
}

#[test]
fn an_acknowledgement_behind_a_read_shows_that_its_response_is_lost() {
    let mut fixture = Fixture::new();
    let sink = fixture.side.buf(8);
    fixture.side.post(send(1, &[]));
    fixture.side.post(fetch_add(2, &[sink.seg(0, 8)], NOWHERE, 1));
    fixture.side.post(send(3, &[]));
    let sent = fixture.sent();
    fixture.ack(2);
    assert_eq!(fixture.done(), ok([1]));
    assert_eq!(fixture.sent(), sent[1..]);
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: 0 };
    let response = Extension::AtomicAck(aeth, AtomicAckEth { original: 0x0102_0304_0506_0708 });
    fixture.take(&packet(Opcode::AtomicAcknowledge, fixture.psn + 1, response, &[])).unwrap();
    fixture.ack(2);
    assert_eq!(fixture.done(), ok([2, 3]));
    assert_eq!(sink.number(0), 0x0102_0304_0506_0708);
}

/// A responder acknowledges the PSN of a READ or an atomic operation, or a PSN within a READ, but
/// its response is lost (kernel rxe does so after an atomic operation). Nothing completes without
/// its data, and the request is sent again.
#[test]
fn an_acknowledgement_is_no_response() {
    for (reads, acknowledged) in [(false, 1), (true, 1), (true, 2), (true, 3)] {
        let mut fixture = Fixture::new();
        let sink = fixture.side.buf(3 * OCTETS);
        fixture.side.post(send(1, &[]));
        let (octets, number) = ([sink.seg(0, 3 * OCTETS)], [sink.seg(0, 8)]);
        let request = match reads {
            true => read(2, &octets, NOWHERE),
            false => fetch_add(2, &number, NOWHERE, 1),
        };
        fixture.side.post(request);
        let sent = fixture.sent();
        fixture.ack(acknowledged);
        assert_eq!(fixture.done(), ok([1]), "the PSN of a request that awaits data");
        assert_eq!(fixture.sent(), sent[1..]);
        if reads {
            fixture.response(Position::First, 1, OCTETS).unwrap();
            fixture.ack(acknowledged);
            fixture.response(Position::Middle, 2, OCTETS).unwrap();
            fixture.ack(acknowledged);
            assert_eq!(fixture.done(), []);
            fixture.response(Position::Last, 3, OCTETS).unwrap();
        } else {
            let aeth = Aeth { syndrome: Syndrome::ACK, msn: 0 };
            let response = Extension::AtomicAck(aeth, AtomicAckEth { original: 5 });
            let psn = fixture.psn + 1;
            fixture.take(&packet(Opcode::AtomicAcknowledge, psn, response, &[])).unwrap();
        }
        assert_eq!(fixture.done(), ok([2]));
    }
}

/// The peer has no receive buffer for the message after READs and atomic operations. It announces
/// one with the acknowledgement of the message before them, or of one of them.
#[test]
fn a_receive_is_announced_without_the_psn_of_a_read() {
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: 0 };
    for announced in [-1, 0, 1, 2, 3] {
        let mut fixture = Fixture::new();
        let sink = fixture.side.buf(OCTETS);
        fixture.side.post(send(1, &[]));
        fixture.side.post(read(2, &[sink.seg(0, 8)], NOWHERE));
        fixture.side.post(fetch_add(3, &[sink.seg(0, 8)], NOWHERE, 1));
        fixture.side.post(send(4, &[]));
        let sent = fixture.sent();
        fixture.ack(0);
        fixture.response(Position::Only, 1, 8).unwrap();
        let response = Extension::AtomicAck(aeth, AtomicAckEth { original: 5 });
        let psn = fixture.psn + 2;
        fixture.take(&packet(Opcode::AtomicAcknowledge, psn, response, &[])).unwrap();
        fixture.rnr(0, 3).unwrap();
        assert_eq!(fixture.sent(), [[]; 0], "the peer is not ready");
        fixture.take(&answer(Syndrome::ACK, fixture.psn + announced as u32)).unwrap();
        let continues = (0..3).contains(&announced);
        assert_eq!(fixture.sent() == sent[3..], continues, "{announced}");
        // The next acknowledgement of the message itself completes it.
        let done = ok([1, 2, 3, 4]);
        let done = if announced == 3 { &done[..] } else { &done[..3] };
        assert_eq!(fixture.done(), done);
    }
}

#[test]
fn a_long_read_is_asked_for_in_parts() {
    let mut fixture = Fixture::with(|cfg| (cfg.window, cfg.initiator_depth) = (16, 2));
    let sink = fixture.side.buf(17 * OCTETS);
    fixture.side.post(read(1, &[sink.seg(0, 17 * OCTETS)], NOWHERE));
    // With a depth of two, each part is half of the window.
    let part = 8 * OCTETS as u32;
    assert_eq!(fixture.reads(), [(0, 0, part), (8, part.into(), part)]);
    for ahead in 0..8 {
        assert_eq!(fixture.reads(), []);
        let position = wire::rocev2::Position::new(ahead == 0, ahead == 7);
        fixture.response(position, ahead, OCTETS).unwrap();
    }
    assert_eq!(fixture.reads(), [(16, u64::from(part) * 2, OCTETS as u32)]);
    for ahead in 8..16 {
        fixture
            .response(wire::rocev2::Position::new(ahead == 8, ahead == 15), ahead, OCTETS)
            .unwrap();
    }
    fixture.response(wire::rocev2::Position::Only, 16, OCTETS).unwrap();
    assert_eq!(fixture.done(), ok([1]));
    assert_eq!(sink.octets(), [9; 17 * OCTETS]);
}

impl Fixture {
    /// The READ requests that are sent now: the number of the packet, the offset and the length.
    fn reads(&mut self) -> Vec<(i32, u64, u32)> {
        let reth = |octets: &Vec<u8>| {
            let Packet { bth, extension, .. } = Packet::parse(octets).unwrap();
            let Extension::Reth(reth) = extension else { panic!("{extension:?}") };
            (bth.psn.distance(PSNS[0]), reth.va - NOWHERE.addr, reth.len)
        };
        self.sent().iter().map(reth).collect()
    }
}

/// A part is requested when the window has room for all its responses.
#[test]
fn a_read_stays_within_the_window() {
    let mut fixture = Fixture::with(|cfg| (cfg.window, cfg.initiator_depth) = (64, 4));
    let buf = fixture.side.buf(400 * OCTETS);
    fixture.side.post(write(0, &[buf.seg(0, 24 * OCTETS)], NOWHERE));
    fixture.side.post(read(1, &[buf.seg(0, 400 * OCTETS)], NOWHERE));
    let packets = |ahead: u32, packets: u32| {
        let from = u64::from(ahead - 24) * OCTETS as u64;
        (ahead as i32, from, packets * OCTETS as u32)
    };
    assert_eq!(fixture.sent().len(), 24 + 2, "40 packets are free, which are two parts of 16");
    fixture.ack(7);
    assert_eq!(fixture.reads(), [packets(56, 16)]);
    fixture.ack(22);
    assert_eq!(fixture.reads(), []);
    fixture.ack(23);
    assert_eq!(fixture.reads(), [packets(72, 16)]);
}

/// The sender of responses has no window, so a mark makes the requester ask for less at a time.
#[test]
fn a_marked_response_makes_the_requester_ask_for_less() {
    let asked_for_at_the_end = |is_marked: bool| {
        let mut fixture = Fixture::with(|cfg| (cfg.window, cfg.initiator_depth) = (64, 16));
        let sink = fixture.side.buf(400 * OCTETS);
        fixture.side.post(read(1, &[sink.seg(0, 400 * OCTETS)], NOWHERE));
        let mut parts = VecDeque::new();
        for _ in 0..12 {
            parts.extend(fixture.reads());
            let (first, _, octets) = parts.pop_front().expect("responses are awaited");
            let packets = octets / OCTETS as u32;
            for n in 0..packets {
                let position = Position::new(n == 0, n + 1 == packets);
                fixture.response(position, first as u32 + n, OCTETS).unwrap();
                if is_marked {
                    let Side { rc, burst, .. } = &mut fixture.side;
                    rc.note_marked(Opcode::ReadResponseMiddle, fixture.now, burst);
                    assert!(burst.is_empty(), "the responder needs no CNP");
                }
            }
        }
        parts.extend(fixture.reads());
        parts.iter().map(|(_, _, octets)| octets).sum::<u32>()
    };
    let (marked, unmarked) = (asked_for_at_the_end(true), asked_for_at_the_end(false));
    assert!(marked < unmarked / 2, "{marked} {unmarked}");
}

/// The window has become smaller than a part. The part is repeated in pieces within the part, one
/// after the other. Late responses to the original request are welcome.
#[test]
fn a_part_is_repeated_in_pieces() {
    use wire::rocev2::Position::{First, Last, Middle, Only};
    let mut fixture = Fixture::with(|cfg| (cfg.window, cfg.initiator_depth) = (16, 1));
    let sink = fixture.side.buf(20 * OCTETS);
    fixture.side.post(read(1, &[sink.seg(0, 20 * OCTETS)], NOWHERE));
    let packets = |ahead: u32, packets: u32| {
        (ahead as i32, u64::from(ahead) * OCTETS as u64, packets * OCTETS as u32)
    };
    assert_eq!(fixture.reads(), [packets(0, 16)]);
    fixture.wait().unwrap();
    assert_eq!(fixture.reads(), [packets(0, 1)]);
    fixture.response(Only, 0, OCTETS).unwrap();
    assert_eq!(fixture.reads(), [packets(1, 2)]);
    // The first response belongs to the original request, the second one ends the piece.
    fixture.response(Middle, 1, OCTETS).unwrap();
    assert_eq!(fixture.reads(), [], "the first piece must be complete before the next one");
    fixture.response(Last, 2, OCTETS).unwrap();
    assert_eq!(fixture.reads(), [packets(3, 4)]);
    for ahead in 3..16 {
        let position = if ahead == 15 { Last } else { Middle };
        fixture.response(position, ahead, OCTETS).unwrap();
    }
    // The rest of the READ is a new part. The repetition was in vain, so the window is open again.
    assert_eq!(fixture.reads(), [packets(16, 4)]);
    fixture.response(First, 16, OCTETS).unwrap();
    // A new part ends at its end, and not before.
    assert_eq!(fixture.response(Last, 17, OCTETS), Err(Failure::BadResponse));
}

/// Two gaps are closed one after the other, without a request for anything else.
#[test]
fn only_missing_responses_are_requested_again() {
    use wire::rocev2::Position::{First, Last, Middle, Only};
    let mut fixture = Fixture::with(|cfg| cfg.initiator_depth = 1);
    let sink = fixture.side.buf(20 * OCTETS);
    fixture.side.post(read(1, &[sink.seg(0, 20 * OCTETS)], NOWHERE));
    let packets = |ahead: u32, packets: u32| {
        (ahead as i32, u64::from(ahead) * OCTETS as u64, packets * OCTETS as u32)
    };
    assert_eq!(fixture.reads(), [packets(0, 20)]);
    fixture.now += Duration::from_millis(2);
    fixture.response(First, 0, OCTETS).unwrap();
    // The responses 1, 2 and 10 are lost.
    for ahead in (3..10).chain(11..19) {
        fixture.response(Middle, ahead, OCTETS).unwrap();
    }
    fixture.response(Last, 19, OCTETS).unwrap();
    assert_eq!(fixture.reads(), [packets(1, 2)]);
    fixture.now += Duration::from_millis(2);
    fixture.response(First, 1, OCTETS).unwrap();
    assert_eq!(fixture.reads(), []);
    fixture.response(Last, 2, OCTETS).unwrap();
    assert_eq!(fixture.reads(), [packets(10, 1)]);
    assert_eq!(fixture.done(), []);
    fixture.now += Duration::from_millis(2);
    fixture.response(Only, 10, OCTETS).unwrap();
    assert_eq!(fixture.done(), ok([1]));
    assert_eq!(sink.octets(), [9; 20 * OCTETS]);
    assert_eq!(fixture.side.rc.stats().sent_again, 2);
    assert_eq!(fixture.side.rc.deadline(), None);
}

/// The request for a missing response is lost, too.
#[test]
fn a_missing_response_is_requested_once_in_a_round_trip() {
    use wire::rocev2::Position::{First, Middle};
    let mut fixture = Fixture::with(|cfg| cfg.initiator_depth = 1);
    let sink = fixture.side.buf(20 * OCTETS);
    fixture.side.post(read(1, &[sink.seg(0, 20 * OCTETS)], NOWHERE));
    fixture.sent();
    fixture.now += Duration::from_millis(2);
    fixture.response(First, 0, OCTETS).unwrap();
    for ahead in 2..6 {
        fixture.response(Middle, ahead, OCTETS).unwrap();
        let count = usize::from(ahead == 2);
        assert_eq!(fixture.sent_words().len(), count, "response {ahead}");
    }
    fixture.now += Duration::from_millis(2);
    fixture.response(Middle, 6, OCTETS).unwrap();
    assert_eq!(fixture.sent_words().len(), 1);
}

#[test]
fn responses_that_make_no_sense() {
    use wire::rocev2::Position::{First, Last, Middle, Only};
    type Case = (&'static str, fn(&mut Fixture) -> Result<(), Failure>);
    let cases: [Case; 8] = [
        ("too short", |fixture| fixture.response(First, 0, OCTETS - 4)),
        ("too long", |fixture| fixture.response(First, 0, OCTETS + 4)),
        ("the end too soon", |fixture| fixture.response(Only, 0, OCTETS)),
        ("no end", |fixture| {
            fixture.response(First, 0, OCTETS)?;
            fixture.response(Middle, 1, 5)
        }),
        ("a last one too long", |fixture| {
            fixture.response(First, 0, OCTETS)?;
            fixture.response(Last, 1, 6)
        }),
        ("atomic", |fixture| {
            let aeth = Aeth { syndrome: Syndrome::ACK, msn: 0 };
            let response = Extension::AtomicAck(aeth, AtomicAckEth { original: 1 });
            fixture.take(&packet(Opcode::AtomicAcknowledge, fixture.psn, response, &[]))
        }),
        ("a refusal with data", |fixture| {
            let aeth =
                Extension::Aeth(Aeth { syndrome: Syndrome::Nak(NakCode::RemoteAccess), msn: 0 });
            fixture.take(&packet(Opcode::ReadResponseFirst, fixture.psn, aeth, &[9; OCTETS]))
        }),
        ("to a SEND", |fixture| {
            fixture.response(First, 0, OCTETS)?;
            fixture.response(Last, 1, 5)?;
            fixture.response(Only, 2, 0)
        }),
    ];
    for (name, script) in cases {
        let mut fixture = Fixture::new();
        let sink = fixture.side.buf(OCTETS + 5);
        fixture.side.post(read(1, &[sink.seg(0, OCTETS + 5)], NOWHERE));
        fixture.side.post(send(2, &[]));
        fixture.sent();
        assert_eq!(script(&mut fixture), Err(Failure::BadResponse), "{name}");
        let first = match name {
            "to a SEND" => [(1, WcStatus::Success), (2, WcStatus::BadResponse)],
            _ => [(1, WcStatus::BadResponse), (2, WcStatus::Flushed)],
        };
        assert_eq!(fixture.flush(), first, "{name}");
    }
}

#[test]
fn a_read_into_a_window() {
    let mut fixture = Fixture::new();
    let sink = fixture.side.buf(8);
    let window = Mw::new(&fixture.side.keys, fixture.side.pd, false);
    let key = fixture.side.bind(1, &window, Some(sink.view(0, 4)));
    fixture.sent();
    let into = crate::Segment { key, ..sink.seg(0, 4) };
    fixture.side.post(request(2, SendOp::ReadToWindow(NOWHERE), &[into]));
    fixture.sent();
    fixture.response(wire::rocev2::Position::Only, 0, 4).unwrap();
    assert_eq!(fixture.done(), ok([1, 2]));
    assert_eq!(sink.octets(), [9, 9, 9, 9, 0, 0, 0, 0]);
}
