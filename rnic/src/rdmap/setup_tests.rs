//! Tests of both roles against each other, and against octets that siw sends. A, C and D are flags
//! of RFC 6581: peer-to-peer model, WRITE as RTR frame, READ as RTR frame.

use super::*;

const OFFER: Offer = Offer { ird: 4, ord: 8, crc: false, extended: true };

fn at(ms: u64) -> Instant {
    use std::sync::OnceLock;
    static ZERO: OnceLock<Instant> = OnceLock::new();
    *ZERO.get_or_init(Instant::now) + Duration::from_millis(ms)
}

fn initiator(offer: Offer, private: &[u8]) -> (Initiator, Vec<u8>) {
    Initiator::new(offer, private, at(0) + REPLY_TIMEOUT).expect("the private data fit")
}

/// Feeds a frame in pieces. Each piece has the number of octets that `wants` asks for, but at most
/// `step`. Checks that the side asks for no octet behind the frame and, unless the reply is
/// `Failed`, consumes all of the frame.
fn feed_reply<'a>(side: &'a mut Initiator, frame: &[u8], step: usize) -> Reply<'a> {
    let mut rest = frame;
    loop {
        let (now, later) = rest.split_at(side.wants().min(step).min(rest.len()));
        rest = later;
        assert!(!now.is_empty(), "the setup must not ask for more octets than the frame has");
        // An early return would keep the borrow for the whole loop.
        if let Some(reply) = side.feed(now) {
            let reply: Reply<'a> = leaked(reply);
            assert!(
                rest.is_empty() || reply == Reply::Failed,
                "the setup stopped in the middle of the frame"
            );
            return reply;
        }
    }
}

/// Ends the borrow by leaking a copy.
fn leaked<'a>(reply: Reply<'_>) -> Reply<'a> {
    let leak = |private: &[u8]| -> &'a [u8] { private.to_vec().leak() };
    match reply {
        Reply::Accepted { terms, private } => Reply::Accepted { terms, private: leak(private) },
        Reply::Rejected { private } => Reply::Rejected { private: leak(private) },
        Reply::Failed => Reply::Failed,
        Reply::Older => Reply::Older,
    }
}

fn feed_request(frame: &[u8], step: usize) -> Call {
    let mut side = Responder::new(at(0) + REQUEST_TIMEOUT);
    let mut rest = frame;
    loop {
        let (now, later) = rest.split_at(side.wants().min(step).min(rest.len()));
        rest = later;
        assert!(!now.is_empty(), "the setup must not ask for more octets than the frame has");
        if let Some(call) = side.feed(now) {
            return call;
        }
    }
}

fn request(frame: &[u8]) -> MpaRequest {
    match feed_request(frame, usize::MAX) {
        Call::Request(request) => request,
        other => panic!("not a request: {other:?}"),
    }
}

fn frame(key: &[u8; 16], tail: &[u8]) -> Vec<u8> {
    [&key[..], tail].concat()
}

const REQ: &[u8; 16] = b"MPA ID Req Frame";
const REP: &[u8; 16] = b"MPA ID Rep Frame";

#[test]
fn two_of_ours_agree() {
    for step in [1, 3, 20, 1000] {
        for crc in [(false, false), (true, false), (false, true), (true, true)] {
            let (mut ours, sent) = initiator(Offer { crc: crc.0, ..OFFER }, b"hello");
            let Call::Request(request) = feed_request(&sent, step) else { panic!("refused") };
            assert_eq!(request.private(), b"hello");
            let (reply, passive) = request
                .accept(Offer { ird: 2, ord: 16, crc: crc.1, ..OFFER }, b"welcome")
                .expect("the private data fit");
            let Reply::Accepted { terms: active, private } = feed_reply(&mut ours, &reply, step)
            else {
                panic!("refused")
            };
            assert_eq!(private, b"welcome");
            let crc = crc.0 || crc.1;
            let ours = Terms { ird: 0, ord: 0, crc, extended: true, rtr: Rtr::Write };
            assert_eq!(passive, Terms { ird: 2, ord: 4, ..ours });
            assert_eq!(active, Terms { ird: 4, ord: 2, ..ours });
            assert!(
                Gate::initiator(&active, at(0)).is_open(),
                "there must be no delay towards an OpenDAT peer"
            );
            assert_eq!(Gate::responder(&passive, at(0)), Gate::Rtr(at(5000)));
        }
    }
}

#[test]
fn rfc_7306_takes_two() {
    for (active, passive) in [(true, false), (false, true), (false, false)] {
        let (mut ours, sent) = initiator(Offer { extended: active, ..OFFER }, b"");
        let (reply, theirs) = request(&sent)
            .accept(Offer { extended: passive, ..OFFER }, b"")
            .expect("the private data fit");
        let Reply::Accepted { terms, .. } = feed_reply(&mut ours, &reply, 64) else {
            panic!("refused")
        };
        assert!(
            !terms.extended && !theirs.extended,
            "the caller offers extensions: {active}; the callee offers them: {passive}"
        );
        assert!(
            !Gate::initiator(&terms, at(0)).is_open(),
            "the peer may run another implementation, so there must be a delay"
        );
    }
}

/// Another implementation may use the private flags for something else.
#[test]
fn flags_alone_do_not_agree_on_rfc_7306() {
    let asked = |tail: &[u8]| {
        request(&frame(REQ, tail)).accept(OFFER, b"").expect("the private data fit").1.extended
    };
    assert!(asked(b"\x19\x02\x00\x04\x80\x01\x80\x01"));
    // Only a WRITE as RTR frame carries the signature, and the last two requests do not ask for
    // one.
    for tail in [
        b"\x5C\x02\x00\x04\x80\x01\x80\x01",
        b"\x18\x02\x00\x04\x80\x01\x80\x01",
        b"\x11\x02\x00\x04\x80\x01\x80\x01",
        b"\x19\x02\x00\x04\x80\x01\x40\x01",
        b"\x19\x02\x00\x04\x00\x01\x00\x01",
    ] {
        assert!(!asked(tail), "{tail:x?}");
    }
    for (tail, extended) in [
        (b"\x1A\x02\x00\x04\x80\x01\x80\x01", true),
        (b"\x12\x02\x00\x04\x80\x01\x80\x01", false),
        (b"\x1A\x02\x00\x04\x00\x01\x00\x01", false),
        (b"\x1D\x02\x00\x04\x80\x01\x80\x01", false),
    ] {
        let (mut ours, _) = initiator(OFFER, b"");
        let Reply::Accepted { terms, .. } = feed_reply(&mut ours, &frame(REP, tail), 24) else {
            panic!("refused")
        };
        assert_eq!(terms.extended, extended, "{tail:x?}");
    }
}

#[test]
fn an_opendat_is_recognised_by_its_first_octets() {
    for step in [1, 3, 16] {
        let mut first = Recognition::default();
        for (at, octets) in SIGNATURE.chunks(step).enumerate() {
            assert_eq!(first.wants(), SIGNATURE.len() - at * step);
            let known = first.feed(octets);
            let is_last = (at + 1) * step >= SIGNATURE.len();
            assert_eq!(known, is_last.then_some((&SIGNATURE[..], true)));
        }
        for wrong in 0..SIGNATURE.len() {
            let mut octets = SIGNATURE;
            octets[wrong] ^= 1;
            let mut first = Recognition::default();
            let (found, len) = octets
                .chunks(step)
                .find_map(|octets| {
                    first.feed(octets).map(|(octets, is_opendat)| (is_opendat, octets.len()))
                })
                .expect("a result");
            assert!(!found && len > wrong && len <= wrong / step * step + step);
        }
    }
}

#[test]
fn private_data_has_its_limits() {
    let most = vec![7; MAX_PRIVATE];
    let (mut ours, sent) = initiator(OFFER, &most);
    let request = request(&sent);
    assert_eq!(request.private(), most);
    let reply = request.reject(&most).expect("the private data fit");
    assert_eq!(feed_reply(&mut ours, &reply, 64), Reply::Rejected { private: &most });
    let beyond = vec![7; mpa::MAX_PRIVATE_DATA];
    assert!(Initiator::new(OFFER, &beyond, at(0)).is_err());
    assert!(request.accept(OFFER, &beyond).is_err());
    assert!(request.reject(&[0; MAX_PRIVATE + 1]).is_err());
}

#[test]
fn a_refusal_carries_the_header_of_ofed() {
    let (mut ours, sent) = initiator(OFFER, b"");
    let reply = request(&sent).reject(b"no").expect("the private data fit");
    assert_eq!(reply, frame(REP, b"\x30\x02\x00\x0A\0\0\0\0\x02\0\x02\0no"));
    assert_eq!(feed_reply(&mut ours, &reply, 7), Reply::Rejected { private: b"no" });
}

#[test]
fn a_refusal_is_of_the_callers_revision() {
    let reply =
        request(&frame(REQ, b"\x00\x01\x00\x00")).reject(b"no").expect("the private data fit");
    assert_eq!(reply, frame(REP, b"\x20\x01\x00\x06\x02\0\x02\0no"));
}

#[test]
fn a_refusal_without_the_header_or_the_enhanced_data_is_one_too() {
    for (tail, private) in [
        (&b"\x30\x02\x00\x06\0\0\0\0no"[..], &b"no"[..]),
        (b"\x20\x02\x00\x02no", b"no"),
        (b"\x20\x01\x00\x00", b""),
        (b"\x30\x02\x00\x08\0\0\0\0\x02\0\x02\0", b""),
    ] {
        let (mut ours, _) = initiator(OFFER, b"");
        assert_eq!(feed_reply(&mut ours, &frame(REP, tail), 100), Reply::Rejected { private });
    }
}

#[test]
fn replies_of_siw() {
    let accepted = |tail: &[u8]| {
        let (mut ours, _) = initiator(OFFER, b"");
        match feed_reply(&mut ours, &frame(REP, tail), 100) {
            Reply::Accepted { terms, .. } => terms,
            other => panic!("{other:?}"),
        }
    };
    // siw sends this reply to a request without flags.
    let plain = Terms { ird: 1, ord: 1, crc: false, extended: false, rtr: Rtr::None };
    assert_eq!(accepted(b"\x10\x02\x00\x04\x00\x01\x00\x01"), plain);
    // siw sends this reply to a request with the flags A and C.
    assert_eq!(accepted(b"\x10\x02\x00\x04\x80\x01\x80\x01"), Terms { rtr: Rtr::Write, ..plain });
    // The reply switches CRC on although neither side asked for it.
    assert_eq!(accepted(b"\x50\x02\x00\x04\x00\x01\x00\x01"), Terms { crc: true, ..plain });
    // The first reply names more READs than this side has offered. The second reply leaves the
    // depths open.
    assert_eq!(accepted(b"\x10\x02\x00\x04\x00\x05\x00\x05"), Terms { ird: 5, ord: 5, ..plain });
    assert_eq!(accepted(b"\x10\x02\x00\x04\x3F\xFF\x3F\xFF"), Terms { ird: 4, ord: 8, ..plain });
    // siw copies unknown bits of the request. A copied bit is not an agreement.
    assert_eq!(accepted(b"\x1C\x02\x00\x04\x80\x01\x80\x01"), Terms { rtr: Rtr::Write, ..plain });
    assert_eq!(Gate::initiator(&plain, at(0)), Gate::Delay(at(10)));
}

/// The peer's program has seen no request, or its connection ends. So a second attempt is right.
#[test]
fn a_peer_of_revision_1_is_called_again() {
    let offer = Offer { crc: true, ..OFFER };
    let (mut first, _) = initiator(offer, b"hi");
    assert_eq!(feed_reply(&mut first, &frame(REP, b"\x00\x01\x00\x02no"), 24), Reply::Older);
    let (second, sent) = first.next_attempt().expect("a second attempt");
    assert_eq!(sent, frame(REQ, b"\x40\x01\x00\x02hi"));
    assert_eq!(second.deadline(), first.deadline(), "the time limit is for all attempts");
    assert!(second.is_revision_1() && second.next_attempt().is_none(), "this is the last attempt");

    // The peer has closed two connections without a reply.
    let (first, _) = initiator(OFFER, b"hi");
    let first = repetition(&first);
    let (mut second, sent) = first.next_attempt().expect("a last attempt");
    assert_eq!(sent, frame(REQ, b"\x00\x01\x00\x02hi"));
    let (reply, passive) = request(&sent).accept(OFFER, b"yes").expect("the private data fit");
    let old = Terms { ird: 4, ord: 8, crc: false, extended: false, rtr: Rtr::None };
    assert_eq!(passive, old);
    assert_eq!(
        feed_reply(&mut second, &reply, 7),
        Reply::Accepted { terms: old, private: b"yes" },
        "revision 1 negotiates no depths"
    );
    for (tail, outcome) in [
        (&b"\x20\x01\x00\x02no"[..], Reply::Rejected { private: b"no" }),
        (b"\x10\x02\x00\x04\x00\x01\x00\x01", Reply::Failed),
        (b"\x80\x01\x00\x00", Reply::Failed),
    ] {
        let (mut second, _) = first.next_attempt().expect("a last attempt");
        assert_eq!(feed_reply(&mut second, &frame(REP, tail), 24), outcome, "{tail:x?}");
    }
}

/// The second attempt after a first one without a reply.
fn repetition(first: &Initiator) -> Initiator {
    let (second, sent) = first.next_attempt().expect("a second attempt");
    assert!(!second.is_revision_1() && sent == initiator(first.offer, &first.private).1);
    assert_eq!(second.deadline(), first.deadline(), "the time limit is for all attempts");
    second
}

/// The connection to an OpenDAT may end without a reply, too. Then the two still agree on all that
/// they have in common.
#[test]
fn one_lost_reply_does_not_make_a_peer_older() {
    let (first, _) = initiator(OFFER, b"hi");
    let mut second = repetition(&first);
    let (_, sent) = initiator(OFFER, b"hi");
    let (reply, passive) = request(&sent).accept(OFFER, b"").expect("the private data fit");
    let Reply::Accepted { terms, .. } = feed_reply(&mut second, &reply, 24) else {
        panic!("the reply accepts the request")
    };
    assert!(terms.extended && passive.extended);

    // A reply of revision 1 to the repetition is answered like such a reply to the first request.
    let mut second = repetition(&first);
    assert_eq!(feed_reply(&mut second, &frame(REP, b"\x00\x01\x00\x00"), 24), Reply::Older);
    let (third, sent) = second.next_attempt().expect("a last attempt");
    assert_eq!(sent, frame(REQ, b"\x00\x01\x00\x02hi"));
    assert!(third.is_revision_1() && third.next_attempt().is_none());
}

#[test]
fn a_peer_that_has_answered_is_not_called_again() {
    let (mut ours, _) = initiator(OFFER, b"");
    assert_eq!(ours.feed(b"MPA ID Rep"), None);
    assert!(ours.next_attempt().is_none(), "the connection has ended in the middle of a reply");
    let (mut ours, _) = initiator(OFFER, b"");
    assert_eq!(ours.feed(b"HTTP"), Some(Reply::Failed));
    assert!(ours.next_attempt().is_none());
}

/// The adapter of an OpenDAT answers a request that its program has not seen. So its caller knows
/// that there is no need for a second attempt.
#[test]
fn an_adapter_says_that_not_its_program_refuses() {
    for extended in [true, false] {
        let (mut ours, sent) = initiator(Offer { extended, ..OFFER }, b"");
        let reply = request(&sent).refuse();
        assert_eq!(reply, frame(REP, b"\x32\x02\x00\x04\0\0\0\0"));
        assert_eq!(feed_reply(&mut ours, &reply, 5), Reply::Failed);
        assert!(ours.next_attempt().is_none());
    }
    for (asked, told) in [
        (&b"\x10\x02\x00\x04\x00\x01\x00\x01"[..], &b"\x30\x02\x00\x04\0\0\0\0"[..]),
        (b"\x00\x02\x00\x00", b"\x20\x02\x00\x00"),
        (b"\x00\x01\x00\x00", b"\x20\x01\x00\x00"),
    ] {
        assert_eq!(request(&frame(REQ, asked)).refuse(), frame(REP, told));
    }
}

#[test]
fn replies_that_fail() {
    for tail in [
        &b"\x00\x02\x00\x00"[..],            // no enhanced data
        b"\x80\x01\x00\x00",                 // revision 1 with markers
        b"\x32\x02\x00\x04\0\0\0\0",         // an OpenDAT's adapter refuses
        b"\x90\x02\x00\x04\x00\x01\x00\x01", // markers
        b"\x10\x03\x00\x04\x00\x01\x00\x01", // unknown revision
        b"\x10\x02\x00\x02\x00\x01\x00\x01", // enhanced data cut
        b"\x10\x02\xFF\xFF\x00\x01\x00\x01", // far too long
    ] {
        let (mut ours, _) = initiator(OFFER, b"");
        assert_eq!(feed_reply(&mut ours, &frame(REP, tail), 24), Reply::Failed, "{tail:x?}");
    }
    let (mut ours, _) = initiator(OFFER, b"");
    assert_eq!(
        ours.feed(b"HTTP"),
        Some(Reply::Failed),
        "the frame must be refused before it is complete"
    );
    let (mut ours, sent) = initiator(OFFER, b"");
    assert_eq!(
        feed_reply(&mut ours, &sent, 20),
        Reply::Failed,
        "a reply with our own role must be refused"
    );
}

#[test]
fn requests_of_siw() {
    // The program dapltest sends this request.
    let dapltest = frame(REQ, b"\x10\x02\x00\x22\x00\x04\x00\x04DAPL and RDMA rule! Test 4321.");
    let Call::Request(request) = feed_request(&dapltest, 5) else { panic!("refused") };
    assert_eq!(request.private(), b"DAPL and RDMA rule! Test 4321.");
    let (reply, terms) =
        request.accept(Offer { ird: 1, ord: 1, ..OFFER }, b"").expect("the private data fit");
    assert_eq!(reply, frame(REP, b"\x10\x02\x00\x04\x00\x01\x00\x01"));
    assert_eq!(terms, Terms { ird: 1, ord: 1, crc: false, extended: false, rtr: Rtr::None });
    assert_eq!(Gate::responder(&terms, at(0)), Gate::FirstFrame(None));
}

#[test]
fn models_of_other_initiators() {
    let terms =
        |tail: &[u8]| request(&frame(REQ, tail)).accept(OFFER, b"").expect("the private data fit");
    // The request has the flags A and D, so the reply names a READ.
    let (reply, read) = terms(b"\x10\x02\x00\x04\x80\x01\x40\x01");
    assert_eq!((&reply[20..], read.rtr), (&b"\x80\x01\x40\x01"[..], Rtr::Read));
    // The request has the flags A and C, so the reply names a WRITE.
    let (reply, write) = terms(b"\x10\x02\x00\x04\x80\x01\x80\x01");
    assert_eq!((&reply[20..], write.rtr), (&b"\x80\x01\x80\x01"[..], Rtr::Write));
    // The request has the flags A, C and D. The reply chooses the WRITE, which needs no answer.
    assert_eq!(terms(b"\x10\x02\x00\x04\x80\x01\xC0\x01").1.rtr, Rtr::Write);
    // The request has only the flag A. The reply chooses nothing that the request does not offer.
    let (reply, none) = terms(b"\x10\x02\x00\x04\x80\x01\x00\x01");
    assert_eq!((&reply[20..], none.rtr), (&b"\x80\x01\x00\x01"[..], Rtr::None));
    // A request of revision 1 gets a reply of revision 1.
    let (reply, old) = terms(b"\x00\x01\x00\x00");
    assert_eq!(reply, frame(REP, b"\x00\x01\x00\x00"));
    // A request of revision 2 without enhanced data gets a reply without enhanced data.
    let (reply, plain) = terms(b"\x00\x02\x00\x00");
    assert_eq!((&reply, plain), (&frame(REP, b"\x00\x02\x00\x00"), old));
    assert_eq!(old, Terms { ird: 4, ord: 8, crc: false, extended: false, rtr: Rtr::None });
}

#[test]
fn requests_that_cannot_be_served() {
    let refusal = Call::Refuse(frame(REP, b"\x30\x02\x00\x04\0\0\0\0"));
    assert_eq!(
        feed_request(&frame(REQ, b"\x90\x02\x00\x04\x00\x01\x00\x01"), 9),
        refusal,
        "a request with markers must be refused"
    );
    assert_eq!(
        feed_request(&frame(REQ, b"\x10\x02\x00\x04\xC0\x01\x00\x01"), 9),
        refusal,
        "a request for an RTR by SEND only must be refused"
    );
    assert_eq!(feed_request(b"GET / HTTP/1.1\r\n\r\n..", 4), Call::Stranger);
    assert_eq!(
        feed_request(&frame(REP, b"\x10\x02\x00\x04\x00\x01\x00\x01"), 4),
        Call::Stranger,
        "a peer that sends a reply where a request is expected must count as a stranger"
    );
    assert_eq!(
        feed_request(&frame(REQ, b"\x10\x02\x02\x01"), 20),
        Call::Stranger,
        "the sender of 513 octets of private data must count as a stranger"
    );
}

#[test]
fn a_gate_opens_by_frame_or_time() {
    let mut gate = Gate::FirstFrame(None);
    assert_eq!((gate.deadline(), gate.expire(at(1_000_000))), (None, Ok(false)));
    assert!(!gate.is_open(), "RFC 5044, section 7.1.3: no time opens this gate");
    assert!(gate.frame_arrived(), "the first frame must open the gate");
    assert!(gate.is_open() && gate.deadline().is_none() && !gate.frame_arrived());

    let mut gate = Gate::Delay(at(10));
    assert!(!gate.frame_arrived(), "only time may open the initiator's gate");
    assert_eq!(gate.expire(at(10)), Ok(false));
    assert!(gate.is_open() && gate.deadline() == Some(at(30)));

    let mut gate = Gate::Rtr(at(5000));
    assert_eq!(gate.expire(at(4999)), Ok(false));
    assert!(!gate.is_open());
    assert_eq!(gate.expire(at(5000)), Err(FrameMissing::Rtr));
    assert!(gate.frame_arrived() && gate.is_open());
}

/// After a graceful disconnect, the called side waits for the first frame for a limited time.
#[test]
fn a_disconnect_does_not_wait_for_a_silent_caller_for_ever() {
    let mut gate = Gate::FirstFrame(None);
    gate.limit(at(100));
    assert_eq!((gate.deadline(), gate.expire(at(5_099))), (Some(at(5_100)), Ok(false)));
    gate.limit(at(200));
    assert!(!gate.is_open() && gate.deadline() == Some(at(5_100)), "a repetition wins no time");
    assert_eq!(gate.expire(at(5_100)), Err(FrameMissing::First));
    assert!(gate.frame_arrived() && gate.is_open(), "the frame still opens the gate");

    for mut gate in [Gate::Open, Gate::Delay(at(10)), Gate::Probe(at(30), 0), Gate::Rtr(at(10))] {
        let before = gate;
        gate.limit(at(0));
        assert_eq!(gate, before);
    }
}

#[test]
fn a_silent_peer_gets_a_limited_number_of_probes() {
    let mut gate = Gate::Delay(at(10));
    assert_eq!(gate.expire(at(10)), Ok(false));
    let mut nudges = Vec::new();
    while let Some(due) = gate.deadline() {
        assert!(gate.is_open());
        assert_eq!(gate.expire(due - Duration::from_millis(1)), Ok(false));
        assert_eq!(gate.expire(due), Ok(true));
        nudges.push(due);
    }
    assert_eq!(nudges, [30, 70, 150, 310, 630, 1270, 2550, 5110].map(at));

    let mut gate = Gate::Probe(at(30), 0);
    assert!(!gate.frame_arrived(), "the gate was open already");
    assert_eq!(gate, Gate::Open, "a frame of the peer must open the gate");
}
