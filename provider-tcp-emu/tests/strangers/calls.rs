//! The setup of a connection: requests and replies of other stacks, and of broken ones.

use std::net::TcpListener;
use std::time::Instant;

use dat_core::provider::{Connect, Remote, SendOp, Transport, WcStatus};
use provider_mem::contract::rig::outcomes;

use super::*;

/// Connects `end` to a plain TCP socket, which checks the MPA request that `end` sends and then
/// sends `answer`.
fn connected<'t>(end: &End<'t, Tcp>, answer: &[u8]) -> TcpStream {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("port");
    end.connect(listener.local_addr().expect("the socket is bound").port(), b"hi", None);
    let mut stranger = prepared(listener.accept().expect("caller").0);
    let request = read::<26>(&mut stranger);
    assert_eq!(
        &request[..20],
        b"MPA ID Req Frame\x19\x02\x00\x06",
        "the request must be enhanced, without markers and CRC"
    );
    assert_eq!(
        &request[20..],
        b"\x80\x04\x80\x04hi",
        "the request must be peer to peer with a WRITE, with both depths"
    );
    stranger.write_all(answer).expect("answer");
    stranger
}

#[test]
fn an_initiator_gives_a_stranger_time_and_keeps_what_it_agreed_on() {
    let t = open();
    let rig = Rig { a: &t, b: &t };
    for (answer, rtr) in [(REPLY, false), (REPLY_P2P, true)] {
        let end = End::new(&t);
        let start = Instant::now();
        let mut stranger = connected(&end, answer);
        match rig.next("the connection", &end.log) {
            Event::Established { depth, private, .. } => {
                assert_eq!((depth.incoming, depth.outgoing), (1, 1));
                assert!(private.is_empty());
            }
            other => panic!("{other:?}"),
        }
        end.send(1, &[end.mem.segment(0, 16)]);
        rig.completions(&end.requests, 1);
        assert!(start.elapsed() >= Duration::from_millis(10));
        if rtr {
            assert_eq!(read::<20>(&mut stranger)[..4], RTR[..]);
        }
        assert_eq!(read_send(&mut stranger)[..16], SEND[..16]);
    }
}

#[test]
fn invalid_replies_reject_the_connection() {
    let t = open();
    let rig = Rig { a: &t, b: &t };
    let answers: [(&[u8], &str); 6] = [
        (b"", "Rejected, not by the peer"),
        (b"MPA ID Rep", "Rejected, not by the peer"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "Rejected, not by the peer"),
        (b"MPA ID Rep Frame\x90\x02\x00\x04\x00\x01\x00\x01", "Rejected, not by the peer"),
        (b"MPA ID Rep Frame\x00\x01\x00\x00", "Rejected, not by the peer"),
        (b"MPA ID Rep Frame\x30\x02\x00\x06\0\0\0\0no", "Rejected by the peer"),
    ];
    for (answer, outcome) in answers {
        for abrupt in [false, true] {
            let end = End::new(&t);
            end.recv(5, &[]);
            let stranger = connected(&end, answer);
            match abrupt && answer.is_empty() {
                true => reset(stranger),
                false => drop(stranger),
            }
            let event = rig.next("the outcome", &end.log);
            assert_eq!(format!("{event:?}"), outcome, "{answer:x?}");
            assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(5, WcStatus::Flushed)]);
        }
    }
}

/// A listening socket, and the caller that `end` sends to it.
fn called<'t>(end: &End<'t, Tcp>) -> (TcpListener, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("port");
    end.connect(listener.local_addr().expect("the socket is bound").port(), b"hi", None);
    let mut caller = prepared(listener.accept().expect("caller").0);
    assert_eq!(read::<26>(&mut caller)[16..18], *b"\x19\x02", "the first request");
    (listener, caller)
}

/// Closes the first call without an answer, and takes the second one, which repeats the request.
fn called_twice<'t>(end: &End<'t, Tcp>, abrupt: bool) -> (TcpListener, TcpStream) {
    let (listener, first) = called(end);
    close(first, abrupt);
    let mut second = prepared(listener.accept().expect("a second call").0);
    assert_eq!(&read::<26>(&mut second), b"MPA ID Req Frame\x19\x02\x00\x06\x80\x04\x80\x04hi");
    (listener, second)
}

fn close(stream: TcpStream, abrupt: bool) {
    match abrupt {
        true => reset(stream),
        false => drop(stream),
    }
}

/// The first request is of revision 2. A peer of revision 1 answers with revision 1, or closes the
/// connection whenever it gets such a request.
#[test]
fn a_peer_of_mpa_revision_1_gets_another_call() {
    let t = open();
    let rig = Rig { a: &t, b: &t };
    for answer in [Some(b"MPA ID Rep Frame\x00\x01\x00\x00"), None] {
        for abrupt in [false, true] {
            let end = End::new(&t);
            let (listener, mut last) = match answer {
                Some(_) => called(&end),
                None => called_twice(&end, abrupt),
            };
            if let Some(answer) = answer {
                last.write_all(answer).expect("answer");
            }
            close(last, abrupt);
            let mut stranger = prepared(listener.accept().expect("a last call").0);
            assert_eq!(&read::<22>(&mut stranger), b"MPA ID Req Frame\x00\x01\x00\x02hi");
            end.log.assert_silent();
            stranger.write_all(b"MPA ID Rep Frame\x00\x01\x00\x03yes").expect("answer");
            match rig.next("the connection", &end.log) {
                Event::Established { depth, private, .. } => {
                    assert_eq!(depth, DEPTH, "revision 1 negotiates no depths");
                    assert_eq!(private, b"yes");
                }
                other => panic!("{other:?}"),
            }
            // The side that has called sends the first frame, without an RTR frame.
            end.send(1, &[end.mem.segment(0, 16)]);
            rig.completions(&end.requests, 1);
            assert_eq!(read_send(&mut stranger)[..16], SEND[..16]);
        }
    }
}

/// The connection to an OpenDAT may end without an answer, too. Then nothing is lost: the second
/// request is like the first one.
#[test]
fn a_peer_that_closes_once_gets_the_same_request_again() {
    let t = open();
    let rig = Rig { a: &t, b: &t };
    for abrupt in [false, true] {
        let end = End::new(&t);
        let (listener, mut second) = called_twice(&end, abrupt);
        second.write_all(REPLY_P2P).expect("answer");
        assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
        assert_no_caller(&listener);
    }
}

#[test]
fn the_last_call_decides() {
    let t = open();
    let rig = Rig { a: &t, b: &t };
    for (answer, outcome) in [
        (&b""[..], "Rejected, not by the peer"),
        (b"MPA ID Rep Frame\x20\x01\x00\x02no", "Rejected by the peer"),
        (REPLY, "Rejected, not by the peer"),
    ] {
        let end = End::new(&t);
        let (listener, second) = called_twice(&end, false);
        drop(second);
        let mut last = prepared(listener.accept().expect("a last call").0);
        read::<22>(&mut last);
        last.write_all(answer).expect("answer");
        drop(last);
        assert_eq!(format!("{:?}", rig.next("the outcome", &end.log)), outcome, "{answer:x?}");
        assert_no_caller(&listener);
    }
    // Nobody listens any more when the second call comes.
    let end = End::new(&t);
    let (listener, first) = called(&end);
    drop(listener);
    drop(first);
    let outcome = format!("{:?}", rig.next("the outcome", &end.log));
    assert_eq!(outcome, "Rejected, not by the peer");
}

/// The outcome of the attempt has arrived, so its last call would wait here.
fn assert_no_caller(listener: &TcpListener) {
    listener.set_nonblocking(true).expect("a socket");
    let error = listener.accept().expect_err("there must be no further call");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_peer_that_answers_gets_no_other_call() {
    let t = open();
    let rig = Rig { a: &t, b: &t };
    for (answer, outcome) in [
        (&b"MPA ID Rep"[..], "Rejected, not by the peer"),
        (b"MPA ID Rep Frame\x30\x02\x00\x06\0\0\0\0no", "Rejected by the peer"),
        (b"MPA ID Rep Frame\x20\x01\x00\x02no", "Rejected by the peer"),
        (b"MPA ID Rep Frame\x32\x02\x00\x04\0\0\0\0", "Rejected, not by the peer"),
    ] {
        let end = End::new(&t);
        let (listener, mut first) = called(&end);
        first.write_all(answer).expect("answer");
        drop(first);
        assert_eq!(format!("{:?}", rig.next("the outcome", &end.log)), outcome, "{answer:x?}");
        assert_no_caller(&listener);
    }
}

/// An OpenDAT that closes a connection without its consumer's answer says so. Otherwise its caller
/// would call again, and the consumer could get two requests. A FIN follows the reply. After a
/// reset, a reply that is lost would not be repeated.
#[test]
fn an_adapter_that_refuses_a_request_says_so() {
    let t = open();
    let rig = Rig { a: &t, b: &t };
    let mut request = REQUEST_P2P.to_vec();
    request[16] = 0x19;
    let refused = *b"MPA ID Rep Frame\x32\x02\x00\x04\0\0\0\0";
    // The backlog is full.
    let service = Service::new(&t, 1);
    let mut first = call(service.port(&t));
    first.write_all(&request).expect("request");
    let (held, ..) = service.request(&rig);
    let mut second = call(service.port(&t));
    second.write_all(&request).expect("request");
    assert_eq!(read::<24>(&mut second), refused, "a request beyond the backlog");
    // The consumer's answer is not valid.
    let end = End::new(&t);
    assert!(end.qp.accept(held, &[0; 600], DEPTH).is_err());
    assert_eq!(read::<24>(&mut first), refused, "an answer with too long private data");
    let mut third = call(service.port(&t));
    third.write_all(&request).expect("request");
    let (held, ..) = service.request(&rig);
    assert!(t.reject(held, &[0; 600]).is_err());
    assert_eq!(read::<24>(&mut third), refused, "a rejection with too long private data");
    let mut fourth = call(service.port(&t));
    fourth.write_all(&request).expect("request");
    drop(service.request(&rig));
    assert_eq!(read::<24>(&mut fourth), refused, "a request that is dropped");
    for mut stranger in [first, second, third, fourth] {
        assert_eq!(stranger.read(&mut [0]).expect("no reset"), 0);
    }

    // One of our own callers calls once, and learns that not the consumer has refused.
    let caller = End::new(&t);
    caller.connect(service.port(&t), b"", None);
    let (held, ..) = service.request(&rig);
    let late = End::new(&t);
    late.connect(service.port(&t), b"", None);
    let outcome = format!("{:?}", rig.next("the outcome", &late.log));
    assert_eq!(outcome, "Rejected, not by the peer");
    drop(held);
    let outcome = format!("{:?}", rig.next("the outcome", &caller.log));
    assert_eq!(outcome, "Rejected, not by the peer");
    assert!(service.log.take().is_none(), "the consumer must get no second request");
}

#[test]
fn a_silent_peer_times_out_and_an_impossible_one_is_unreachable() {
    let t = open();
    let rig = Rig { a: &t, b: &t };
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("port");
    let end = End::new(&t);
    let start = Instant::now();
    let timeout = Duration::from_millis(150);
    end.connect(silent.local_addr().expect("the socket is bound").port(), b"", Some(timeout));
    let event = rig.next("the outcome", &end.log);
    assert_eq!(format!("{event:?}"), "TimedOut");
    assert!(start.elapsed() >= timeout);

    // An adapter at 127.0.0.1 has no route to another host, or to an IPv6 address.
    for addr in ["203.0.113.1:0", "[::1]:0"] {
        let end = End::new(&t);
        let addr: SocketAddr = addr.parse().expect("an address");
        let to = Connect { addr, port: 5000, private: b"", timeout: None, depth: DEPTH };
        end.qp.connect(&to).expect("connect");
        let event = rig.next("the outcome", &end.log);
        assert_eq!(format!("{event:?}"), "Unreachable", "{addr}");
    }
}

/// The end of a raw caller, which sends `frames` after the reply to its request with these flags.
fn with_flags<'t>(rig: &Rig<'t, Tcp>, end: &End<'t, Tcp>, flags: u8, rtr: &[u8]) -> TcpStream {
    let service = Service::new(rig.b, 8);
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    socket.set_tcp_mss(SMALL_MSS).expect("an option");
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, service.port(rig.b)));
    socket.connect(&to.into()).expect("connect");
    let mut stranger = prepared(socket.into());
    let request = [&b"MPA ID Req Frame"[..], &[flags], b"\x02\x00\x04\x80\x04\x80\x04"].concat();
    stranger.write_all(&request).expect("request");
    let (request, ..) = service.request(rig);
    end.qp.accept(request, b"", DEPTH).expect("accept");
    let reply = read::<24>(&mut stranger);
    assert_eq!(reply[20..], *b"\x80\x04\x80\x04", "the reply chooses a WRITE as RTR frame");
    // The octets come one by one.
    for octet in with_crc(rtr, flags) {
        stranger.write_all(&[octet]).expect("first frame");
        rig.a.progress();
    }
    assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
    stranger
}

const SMALL_MSS: u32 = 1400;

const CRC_FLAG: u8 = 0x40;

/// Appends the CRC to a frame. It is zero if the flags do not ask for CRCs.
fn with_crc(frame: &[u8], flags: u8) -> Vec<u8> {
    let crc = if flags & CRC_FLAG == 0 { 0 } else { wire::iwarp::crc::crc32c(frame) };
    [frame, &crc.to_le_bytes()].concat()
}

/// The last two octets of the header of each frame of a write of this many octets that `stranger`
/// receives, and the size of the largest frame.
fn frames_of_write(stranger: &mut TcpStream, octets: usize) -> (Vec<[u8; 2]>, usize) {
    let (mut controls, mut largest, mut left) = (Vec::new(), 0, octets);
    while left > 0 {
        let ulpdu = usize::from(u16::from_be_bytes(read(stranger)));
        let mut frame = vec![0; (2 + ulpdu).next_multiple_of(4) + 4 - 2];
        stranger.read_exact(&mut frame).expect("a frame");
        controls.push([frame[0], frame[1]]);
        largest = largest.max(2 + frame.len());
        left -= ulpdu - 14;
    }
    (controls, largest)
}

/// The private flags of a request are a hint. Another implementation may use these bits for
/// something else, so only the RTR frame proves that the peer is an OpenDAT.
#[test]
fn only_its_first_frame_shows_an_opendat() {
    const LEN: usize = 10_000;
    let t = TcpEmu.open("tcp-emu", "127.0.0.1 shm=off").expect("adapter");
    let rig = Rig { a: &t, b: &t };
    let foreign_rtr = &[RTR, b"\0\0\0\x01\0\0\0\0\0\0\0\0"].concat()[..];
    let our_rtr = b"\x00\x0E\xC1\x40OpenDAT RTR1";
    let almost_ours = b"\x00\x0E\xC1\x40OpenDAT RTR2";
    let cases: [(u8, &[u8], bool); 10] = [
        (0x5C, foreign_rtr, false),
        (0x1C, foreign_rtr, false),
        (0x5D, foreign_rtr, false),
        (0x59, foreign_rtr, false),
        (0x19, foreign_rtr, false),
        (0x19, almost_ours, false),
        (0x18, our_rtr, false),
        (0x10, our_rtr, false),
        (0x19, our_rtr, true),
        (0x59, our_rtr, true),
    ];
    for (flags, rtr, is_opendat) in cases {
        let what = format!("flags {flags:#x}, {rtr:x?}");
        let end = End::new(&t);
        let mut stranger = with_flags(&rig, &end, flags, rtr);
        let atomic = SendOp::FetchAdd { at: Remote { addr: 8, key: 1 }, add: 1 };
        let extended = end.try_post(1, atomic, &[end.mem.segment(0, 8)]);
        assert_eq!(extended.is_ok(), is_opendat, "{what}");
        if is_opendat {
            stranger.read_exact(&mut [0; 2 + 18 + 52 + 4]).expect("the atomic operation");
        }
        let write = SendOp::Write(Remote { addr: 0, key: 1 });
        end.post(2, write, &[end.mem.segment(0, LEN)]);
        let (controls, largest) = frames_of_write(&mut stranger, LEN);
        if is_opendat {
            assert_eq!(controls, [[0xC1, 0x50]], "one large frame that asks for a report: {what}");
            continue;
        }
        assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(2, WcStatus::Success)]);
        assert!(largest <= SMALL_MSS as usize, "{largest} octets are one frame: {what}");
        let (last, others) = controls.split_last().expect("a frame");
        assert!(others.iter().all(|control| *control == [0x81, 0x40]), "{controls:x?}: {what}");
        assert_eq!(*last, [0xC1, 0x40], "{what}");
    }
}
