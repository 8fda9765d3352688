//! Tests of the reactions to responses.

use wire::rocev2::AtomicAckEth;

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
    // A response is missing, so the requester asks for the rest. Further responses that were under
    // way have no effect.
    fixture.response(Last, 4, 1).unwrap();
    let expected = [
        format!("{} READ request of {} ask 0", fixture.psn + 2, 2 * OCTETS + 1),
        format!("{} SEND only ask 0", fixture.psn + 5),
    ];
    assert_eq!(fixture.sent_words(), expected);
    fixture.ack(5);
    assert_eq!(fixture.sent_words(), [""; 0]);
    assert_eq!(sink.bytes()[OCTETS..], [0; 2 * OCTETS + 1]);
    // The responder may continue the old response or start a new response.
    fixture.response(Middle, 2, OCTETS).unwrap();
    fixture.response(First, 3, OCTETS).unwrap();
    // The packet is a copy of an old response.
    fixture.response(First, 1, OCTETS).unwrap();
    fixture.response(Last, 4, 1).unwrap();
    assert_eq!(fixture.done(), ok([2]));
    assert_eq!(sink.bytes(), [9; 3 * OCTETS + 1]);
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

#[test]
fn a_long_read_is_asked_for_in_parts() {
    let mut fixture = Fixture::with(|cfg| (cfg.window, cfg.initiator_depth) = (16, 2));
    let sink = fixture.side.buf(9 * OCTETS);
    fixture.side.post(read(1, &[sink.seg(0, 9 * OCTETS)], NOWHERE));
    let asked = |fixture: &mut Fixture| -> Vec<_> {
        let sent = fixture.sent();
        let reth = |bytes: &Vec<u8>| {
            let Packet { bth, extension, .. } = Packet::parse(bytes).unwrap();
            let Extension::Reth(reth) = extension else { panic!("{extension:?}") };
            (bth.psn.distance(PSNS[0]), reth.va - NOWHERE.addr, reth.len)
        };
        sent.iter().map(reth).collect()
    };
    let part = 4 * OCTETS as u32;
    assert_eq!(asked(&mut fixture), [(0, 0, part), (4, part.into(), part)]);
    for ahead in 0..4 {
        let position = wire::rocev2::Position::new(ahead == 0, ahead == 3);
        fixture.response(position, ahead, OCTETS).unwrap();
    }
    assert_eq!(asked(&mut fixture), [(8, u64::from(part) * 2, OCTETS as u32)]);
    for ahead in 4..8 {
        fixture
            .response(wire::rocev2::Position::new(ahead == 4, ahead == 7), ahead, OCTETS)
            .unwrap();
    }
    fixture.response(wire::rocev2::Position::Only, 8, OCTETS).unwrap();
    assert_eq!(fixture.done(), ok([1]));
    assert_eq!(sink.bytes(), [9; 9 * OCTETS]);
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
    assert_eq!(sink.bytes(), [9, 9, 9, 9, 0, 0, 0, 0]);
}
