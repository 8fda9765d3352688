//! Responses to requests.

use wire::rocev2::AtomicAckEth;

use super::*;

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
    // Old PSNs, and PSNs that were never sent.
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
        bench.side.rc.transmit_fatal_nak(&mut bench.side.burst);
        assert_eq!(bench.side.sent(), [[]; 0], "the peer already knows of the failure");
        assert_eq!(
            bench
                .side
                .rc
                .receive(bench.now, &Packet::parse(&answer(Syndrome::ACK, bench.psn)).unwrap()),
            Err(Failure::Refused(code))
        );
        assert_eq!(bench.flush(), [(0, WcStatus::Success), (1, status), (2, WcStatus::Flushed)]);
    }
}

#[test]
fn a_reserved_syndrome_makes_no_sense() {
    let mut bench = Bench::new();
    bench.side.post(send(0, &[]));
    bench.sent();
    let reserved = answer(Syndrome::Reserved(0x45), bench.psn);
    assert_eq!(bench.take(&reserved), Err(Failure::BadResponse));
    assert_eq!(bench.flush(), [(0, WcStatus::BadResponse)]);
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
    // The response acknowledges everything before it.
    bench.response(First, 1, OCTETS).unwrap();
    assert_eq!(bench.done(), ok([1]));
    // A response is missing: the requester asks for the rest. Further responses that were under way
    // have no effect.
    bench.response(Last, 4, 1).unwrap();
    let expected = [
        format!("{} READ request of {} ask 0", bench.psn + 2, 2 * OCTETS + 1),
        format!("{} SEND only ask 0", bench.psn + 5),
    ];
    assert_eq!(bench.sent_words(), expected);
    bench.ack(5);
    assert_eq!(bench.sent_words(), [""; 0]);
    assert_eq!(sink.bytes()[OCTETS..], [0; 2 * OCTETS + 1]);
    // The responder may continue the old response or start a new one.
    bench.response(Middle, 2, OCTETS).unwrap();
    bench.response(First, 3, OCTETS).unwrap();
    // A copy of an old response.
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
            let aeth =
                Extension::Aeth(Aeth { syndrome: Syndrome::Nak(NakCode::RemoteAccess), msn: 0 });
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
        assert_eq!(bench.flush(), first, "{name}");
    }
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
