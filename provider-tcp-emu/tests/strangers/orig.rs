//! Tests with peers that are not OpenDAT. Raw sockets play other stacks, broken stacks, and
//! programs that are no RDMA stacks.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dat_core::provider::{Close, Connect, Provider, Queue, Remote, SendOp, Transport, WcStatus};
use provider_loopback::contract::rig::{DEPTH, End, Event, Rig, Service, outcomes, pattern};
use provider_tcp_emu::{Tcp, TcpEmu};
use rnic::rdmap::setup::REQUEST_TIMEOUT;
use rustix::process::{Resource, getrlimit};

/// siw's request as initiator: no peer-to-peer model, one RDMA read each way.
const REQUEST: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x04\x00\x01\x00\x01";
/// siw's request as initiator with the peer-to-peer model. It promises an RDMA WRITE as the first
/// frame.
const REQUEST_P2P: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x04\x80\x01\x80\x01";
/// siw's replies as responder, to a request without and with the peer-to-peer model.
const REPLY: &[u8] = b"MPA ID Rep Frame\x10\x02\x00\x04\x00\x01\x00\x01";
const REPLY_P2P: &[u8] = b"MPA ID Rep Frame\x10\x02\x00\x04\x80\x01\x80\x01";
/// A SEND of 16 octets, MSN 1, CRC off.
const SEND: &[u8] = b"\x00\x22\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0sixteen octets!!\0\0\0\0";
/// The zero-length RDMA WRITE that serves as RTR.
const RTR: &[u8] = b"\x00\x0e\xC1\x40";

/// Locks out the other tests that have many callers without a request. Such callers at all adapters
/// of a process share one limit, so these tests must run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open() -> Tcp {
    TcpEmu.open("tcp-emu", "127.0.0.1").expect("adapter")
}

fn call(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect");
    prepared(stream)
}

fn prepared(stream: TcpStream) -> TcpStream {
    stream.set_nodelay(true).expect("nodelay");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
    stream
}

fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("linger");
}

fn read<const N: usize>(stream: &mut TcpStream) -> [u8; N] {
    let mut octets = [0; N];
    stream.read_exact(&mut octets).expect("octets");
    octets
}

/// Reads the SEND of 16 octets that a caller of this adapter sends. A caller that is slow sends
/// probes first, which are like RTR frames.
fn read_send(stranger: &mut TcpStream) -> [u8; 40] {
    let mut frame = [0; 40];
    let (first, rest) = frame.split_at_mut(20);
    loop {
        stranger.read_exact(first).expect("octets");
        if first[..4] != *RTR {
            break;
        }
    }
    stranger.read_exact(rest).expect("octets");
    frame
}

/// The connection still exists, too.
fn assert_has_received_nothing(stranger: &TcpStream) {
    stranger.set_nonblocking(true).expect("a socket");
    let error = stranger.peek(&mut [0]).expect_err("nothing has arrived");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    stranger.set_nonblocking(false).expect("a socket");
}

/// Reads until the peer closes. A reset counts as an end, too.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    all
}

/// A stranger that has connected to `end` and was accepted.
fn accepted<'t>(rig: &Rig<'t, Tcp>, end: &End<'t, Tcp>) -> TcpStream {
    accepted_after(rig, end, REQUEST)
}

/// A stranger like that of [`accepted`] that sends this request, which offers no RTR frame.
fn accepted_after<'t>(rig: &Rig<'t, Tcp>, end: &End<'t, Tcp>, request: &[u8]) -> TcpStream {
    let service = Service::new(rig.b, 8);
    let mut stranger = call(service.port(rig.b));
    stranger.write_all(request).expect("request");
    let (call, _, _, private) = service.request(rig);
    assert!(private.is_empty());
    end.qp.accept(call, b"", DEPTH).expect("accept");
    assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
    assert_eq!(read::<24>(&mut stranger)[20..], request[20..], "the depths and the model");
    stranger
}

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

/// A caller without the peer-to-peer model must send the first frame (RFC 5044, section 7.1.3). A
/// test in rnic, which has its own clock, shows that the gate opens at no time without this frame.
#[test]
fn a_responder_keeps_quiet_until_the_first_frame() {
    let t = open();
    let rig = Rig { a: &t, b: &t };
    for request in [REQUEST, b"MPA ID Req Frame\x10\x02\x00\x04\x80\x01\x00\x01"] {
        let end = End::new(&t);
        end.recv(9, &[end.mem.segment(0, 64)]);
        let mut stranger = accepted_after(&rig, &end, request);
        end.send(1, &[end.mem.segment(64, 16)]);
        assert_has_received_nothing(&stranger);
        stranger.write_all(SEND).expect("frame");
        let wc = rig.completions(&end.recvs, 1)[0];
        assert_eq!((wc.id, wc.bytes), (9, 16));
        assert_eq!(end.mem.read(0, 16), b"sixteen octets!!");
        rig.completions(&end.requests, 1);
        assert_eq!(read_send(&mut stranger)[..4], SEND[..4]);
    }
}

/// The caller never sends, so a graceful disconnect cannot send what was posted.
#[test]
fn a_graceful_disconnect_gives_up_on_a_silent_caller() {
    let t = open();
    let rig = Rig { a: &t, b: &t };
    let end = End::new(&t);
    let mut stranger = accepted(&rig, &end);
    end.send(1, &[end.mem.segment(64, 16)]);
    end.qp.disconnect(Close::Graceful);
    assert!(matches!(rig.next("the end", &end.log), Event::Disconnected));
    assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(1, WcStatus::Flushed)]);
    assert!(rest(&mut stranger).is_empty(), "nothing must be sent before the first frame");
}

#[test]
fn a_stranger_has_time_to_finish_its_last_message() {
    for closes in [false, true] {
        let t = open();
        let rig = Rig { a: &t, b: &t };
        let end = End::new(&t);
        end.recv(9, &[end.mem.segment(0, 64)]);
        let mut stranger = accepted(&rig, &end);
        stranger.write_all(SEND).expect("frame");
        rig.completions(&end.recvs, 1);
        let start = Instant::now();
        end.qp.disconnect(Close::Graceful);
        assert!(matches!(rig.next("the end", &end.log), Event::Disconnected));
        let peer = std::thread::spawn(move || {
            assert!(rest(&mut stranger).is_empty());
            start.elapsed()
        });
        if closes {
            drop(end);
            drop(t);
        } else {
            while !peer.is_finished() {
                t.progress();
            }
        }
        let waited = peer.join().expect("the thread ends");
        assert!(waited >= Duration::from_millis(15), "the stranger saw the end after {waited:?}");
    }
}

/// After a caller has sent invalid octets, the listener leaves the poller for a millisecond. A
/// caller that calls during this millisecond is still accepted.
#[test]
fn callers_who_babble_keep_nobody_out() {
    let t = open();
    let rig = Rig { a: &t, b: &t };
    let service = Service::new(&t, 8);
    let port = service.port(&t);
    for _ in 0..50 {
        let mut babblers: Vec<TcpStream> = (0..10).map(|_| call(port)).collect();
        for babbler in &mut babblers {
            babbler.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("octets");
        }
        let end = End::new(&t);
        let mut caller = call(port);
        caller.write_all(REQUEST).expect("request");
        let (request, ..) = service.request(&rig);
        end.qp.accept(request, b"", DEPTH).expect("accept");
        assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
        assert_eq!(read::<24>(&mut caller), REPLY);
        for babbler in &mut babblers {
            assert!(rest(babbler).is_empty(), "a caller that sends no request must get no answer");
        }
    }
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

#[test]
fn a_strangers_disconnect_differs_from_its_death() {
    let t = open();
    let rig = Rig { a: &t, b: &t };
    // The columns are: the octets of a frame that arrive, whether the end is a reset, and the
    // event.
    let cases = [
        (0, false, "Disconnected"),
        (0, true, "Disconnected"),
        (30, false, "Broken"),
        (30, true, "Broken"),
    ];
    for (octets, abrupt, outcome) in cases {
        let end = End::new(&t);
        end.recv(0, &[end.mem.segment(0, 64)]);
        end.recv(1, &[end.mem.segment(64, 64)]);
        end.recv(2, &[end.mem.segment(128, 64)]);
        let mut stranger = accepted(&rig, &end);
        stranger.write_all(SEND).expect("frame");
        rig.completions(&end.recvs, 1);
        stranger.write_all(&SEND[..octets]).expect("part of a frame");
        match abrupt {
            true => reset(stranger),
            false => drop(stranger),
        }
        let event = rig.next("the end", &end.log);
        assert_eq!(format!("{event:?}"), outcome, "{octets} octets, abrupt: {abrupt}");
        let flushed = rig.completions(&end.recvs, 2);
        assert_eq!(outcomes(&flushed), [(1, WcStatus::Flushed), (2, WcStatus::Flushed)]);
    }
}

/// Requests of one address whose callers never confirm an acceptance do not take all endpoints.
/// When an acceptance is confirmed or ends, the consumer gets the next request of this address.
///
/// The callers are given up after a time limit. An attempt for which a busy machine needs longer
/// proves nothing, so it is repeated.
#[test]
fn callers_that_do_not_confirm_leave_endpoints_to_others() {
    const ATTEMPTS: usize = 10;
    for attempt in 1..=ATTEMPTS {
        let start = Instant::now();
        match std::panic::catch_unwind(silent_callers_leave_endpoints_to_others) {
            Ok(()) => return,
            Err(_) if start.elapsed() >= REQUEST_TIMEOUT && attempt < ATTEMPTS => {}
            Err(failure) => std::panic::resume_unwind(failure),
        }
    }
}

fn silent_callers_leave_endpoints_to_others() {
    const ENDPOINTS: usize = 16;
    const SILENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
    const NEWCOMER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
    let t = TcpEmu.open("tcp-emu", "").expect("adapter");
    let rig = Rig { a: &t, b: &t };
    let service = Service::new(&t, 2 * ENDPOINTS);
    let port = service.port(&t);
    let rtr = [RTR, &[0; 16]].concat();
    let mut free: Vec<_> = (0..ENDPOINTS).map(|_| End::new(&t)).collect();
    let mut held = Vec::new();

    // The consumer accepts the first request before the others arrive.
    let mut silent = vec![call_from(SILENT, port)];
    held.push(accept_next(&rig, &service, &mut free));
    silent.extend((1..ENDPOINTS).map(|_| call_from(SILENT, port)));
    while held.len() < ENDPOINTS / 2 {
        held.push(accept_next(&rig, &service, &mut free));
    }
    // A confirmation, and the end of an acceptance whose endpoint is replaced, make room for one
    // request each.
    for confirms in [true, false] {
        let (from, end) = held.remove(0);
        let at = silent.iter().position(|s| s.local_addr().expect("connected") == from);
        let mut stranger = silent.remove(at.expect("its socket"));
        if confirms {
            stranger.write_all(&rtr).expect("first frame");
        } else {
            free.push(End::new(&t));
            reset(stranger);
        }
        let event = format!("{:?}", rig.next("the outcome", &end.log));
        assert_eq!(event.starts_with("Established"), confirms, "{event}");
        held.push(accept_next(&rig, &service, &mut free));
    }
    assert!(held.iter().all(|(from, _)| from.ip() == SILENT));
    let is_held = |s: &TcpStream| {
        let address = s.local_addr().expect("connected");
        held.iter().any(|(from, _)| *from == address)
    };
    let (_accepted, deferred): (Vec<_>, Vec<_>) = silent.into_iter().partition(is_held);
    assert_eq!(deferred.len(), ENDPOINTS - 2 - held.len());

    // No further request of this address takes an endpoint from a newcomer. They all still wait.
    for _ in 0..free.len() {
        let mut stranger = call_from(NEWCOMER, port);
        let (from, end) = accept_next(&rig, &service, &mut free);
        assert_eq!(from.ip(), NEWCOMER);
        deferred.iter().for_each(assert_has_received_nothing);
        read::<24>(&mut stranger);
        stranger.write_all(&rtr).expect("first frame");
        assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
        held.push((from, end));
    }
    assert_eq!(held.len(), ENDPOINTS - 1);
}

/// A stranger that calls from this address of the host, and promises a first frame.
fn call_from(address: Ipv4Addr, port: u16) -> TcpStream {
    call_with(address, port, REQUEST_P2P)
}

/// A stranger that calls from this address of the host, and sends these octets.
fn call_with(address: Ipv4Addr, port: u16, octets: &[u8]) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    socket.bind(&SocketAddr::from((address, 0)).into()).expect("an address");
    socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).expect("connect");
    let mut stranger = prepared(socket.into());
    stranger.write_all(octets).expect("octets");
    stranger
}

/// Accepts the next request with an endpoint that is free. Returns the caller's address, too.
fn accept_next<'t>(
    rig: &Rig<'t, Tcp>,
    service: &Service<'t, Tcp>,
    free: &mut Vec<End<'t, Tcp>>,
) -> (SocketAddr, End<'t, Tcp>) {
    let (request, from, ..) = service.request(rig);
    let end = free.pop().expect("an endpoint for each request");
    end.qp.accept(request, b"", DEPTH).expect("accept");
    (from, end)
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

/// A frame establishes one connection, and then another connection ends. The two events come in
/// this order. However, the consumer polls the second connection directly, and learns of the first
/// one only when the poller reports it. The connections have the same engine: different engines
/// report in any order.
#[test]
fn what_came_before_an_end_elsewhere_is_seen_before_it() {
    let t = TcpEmu.open("tcp-emu", "127.0.0.1 threads=1").expect("open");
    let rig = Rig { a: &t, b: &t };
    let mut rtr = [0; 20];
    rtr[..4].copy_from_slice(RTR);
    for _ in 0..50 {
        let service = Service::new(&t, 8);
        // Each has an address of its own, because none confirms before all are accepted.
        let caller = |n: u8| {
            let end = End::new(&t);
            let mut stranger = call_from(Ipv4Addr::new(127, 0, 0, 2 + n), service.port(&t));
            let (request, ..) = service.request(&rig);
            end.qp.accept(request, b"", DEPTH).expect("accept");
            assert_eq!(read::<24>(&mut stranger)[..16], REPLY[..16]);
            (end, stranger)
        };
        // There are more connections than one pass reads.
        let mut callers: Vec<_> = (0..12).map(caller).collect();
        for (end, stranger) in &mut callers[1..] {
            stranger.write_all(&rtr).expect("first frame");
            assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
        }
        callers[0].1.write_all(&rtr).expect("first frame");
        let (last, stranger) = callers.pop().expect("a caller");
        drop(stranger);
        // Make progress only until the end is reported, because the other event must come before
        // it.
        let end = rig.until("the end", || {
            t.progress();
            last.log.take()
        });
        assert!(matches!(end, Event::Disconnected));
        assert!(matches!(callers[0].0.log.take(), Some(Event::Established { .. })));
    }
}

#[test]
fn a_broken_rule_is_answered_with_terminate() {
    let t = open();
    let rig = Rig { a: &t, b: &t };
    let end = End::new(&t);
    // No receive is posted.
    let mut stranger = accepted(&rig, &end);
    stranger.write_all(SEND).expect("frame");
    assert_eq!(format!("{:?}", rig.next("the end", &end.log)), "Broken");
    let last = rest(&mut stranger);
    assert_eq!(
        last[2..4],
        [0x41, 0x47],
        "the frame must be an untagged TERMINATE, the last of its message"
    );
    assert_eq!(last[20..22], [0x12, 0x02], "the cause must be: DDP, untagged buffer, no buffer");
}

/// Callers that send half a request or random octets do not affect other callers.
#[test]
fn noise_before_a_connection_is_ignored() {
    let _alone = alone();
    let t = open();
    let rig = Rig { a: &t, b: &t };
    let service = Service::new(&t, 8);
    let port = service.port(&t);
    let mut held = Vec::new();
    for i in 0..300u64 {
        let mut stranger = call(port);
        let mut noise = pattern(i, 1 + i as usize % 600);
        match i % 4 {
            0 => {}
            1 => noise = REQUEST[..i as usize % REQUEST.len()].to_vec(),
            2 => noise.splice(..0, REQUEST[..20].iter().copied()).for_each(drop),
            _ => {
                noise = REQUEST.to_vec();
                let at = i as usize / 4 % 20;
                noise[at] ^= 1 << (i % 8);
            }
        }
        // The adapter may close the connection before all octets are written.
        let _ = stranger.write_all(&noise);
        match i % 3 {
            0 => reset(stranger),
            1 => drop(stranger),
            _ => held.push(stranger),
        }
        t.progress();
    }
    // Some of the noise may be a valid request, which the test ignores.
    while service.log.take().is_some() {}
    drop(held);
    let (a, b) = (End::new(&t), End::new(&t));
    rig.join(&a, &b);
    b.recv(1, &[]);
    a.send(1, &[]);
    assert_eq!(outcomes(&rig.completions(&b.recvs, 1)), [(1, WcStatus::Success)]);
}

/// Callers that never finish their request do not keep others from connecting, because the adapter
/// closes the oldest of them.
#[test]
fn silent_callers_make_room() {
    let _alone = alone();
    let ours = open();
    let rig = Rig { a: &ours, b: &ours };
    let service = Service::new(rig.b, 8);
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = (limit / 4).min(1024) as usize;
    let mut silent: Vec<_> = (0..most + 8)
        .map(|_| {
            let mut stream = call(service.port(rig.b));
            // Send one octet, because the kernel holds back connections on which no octets are
            // sent.
            stream.write_all(&REQUEST[..1]).expect("room");
            rig.a.progress();
            stream
        })
        .collect();
    // The first callers have been closed, although the kernel has accepted all callers.
    rig.until("the end of the oldest", || {
        silent[0].set_nonblocking(true).expect("a socket");
        let mut octet = [0];
        match silent[0].read(&mut octet) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
            _ => Some(()),
        }
    });
    let mut stranger = call(service.port(rig.b));
    stranger.write_all(REQUEST).expect("request");
    let (request, ..) = service.request(&rig);
    let end = End::new(rig.a);
    end.qp.accept(request, b"", DEPTH).expect("accept");
    assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
    assert_eq!(read::<24>(&mut stranger), REPLY);
    drop(silent);
}

/// A caller must not be closed to make room if the rest of its request has arrived. This holds even
/// if the adapter accepts the next caller before it reads the rest.
#[test]
fn a_caller_whose_request_has_arrived_makes_no_room() {
    let _alone = alone();
    let t = open();
    let rig = Rig { a: &t, b: &t };
    let service = Service::new(&t, 8);
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = (limit / 4).min(1024) as usize;
    let begin = || {
        let mut stream = call(service.port(&t));
        stream.write_all(&REQUEST[..1]).expect("room");
        stream
    };
    let mut callers: VecDeque<_> = (0..most)
        .map(|_| {
            let stream = begin();
            t.progress();
            stream
        })
        .collect();
    let (mut tries, mut served) = (0, 0);
    while tries < 20 {
        // The poller first reports another caller, which is one too many. Then it reports that the
        // request of the oldest caller is complete.
        callers.push_back(begin());
        let mut oldest = callers.pop_front().expect("a caller");
        if oldest.write_all(&REQUEST[1..]).is_err() {
            // The progress thread has already accepted the new caller and closed the oldest one.
            continue;
        }
        tries += 1;
        oldest.set_nonblocking(true).expect("a socket");
        served += rig.until("the request, or the end of its caller", || {
            let mut octet = [0];
            match (service.log.take(), oldest.peek(&mut octet)) {
                (Some(_), _) => Some(1),
                (None, Err(error)) if error.kind() == std::io::ErrorKind::WouldBlock => None,
                (None, _) => Some(0),
            }
        });
    }
    // Some requests may fail: the progress thread may read from a caller just before the rest of
    // the request arrives, and then close that caller.
    assert!(served > tries / 2, "{served} of {tries} requests were served");
}

/// Callers of one address whose requests wait for the consumer's decision on others count among
/// those without a request. When there are too many of these, the consumer gets the oldest request.
#[test]
fn deferred_requests_make_no_room_before_the_consumer_has_them() {
    const BUSIEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
    let _alone = alone();
    let t = TcpEmu.open("tcp-emu", "").expect("adapter");
    let rig = Rig { a: &t, b: &t };
    let service = Service::new(&t, 8);
    let port = service.port(&t);
    // The consumer could accept one request. So a second one of the same address is deferred.
    let _endpoint = End::new(&t);
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = (limit / 4).min(1024) as u16;
    let begin = |n: u16| {
        let [high, low] = n.to_be_bytes();
        let stream = call_with(Ipv4Addr::new(127, 1, high, low), port, &REQUEST[..1]);
        t.progress();
        stream
    };
    let _others: Vec<_> = (1..most - 1).map(begin).collect();
    let callers = [(); 3].map(|()| call_from(BUSIEST, port));
    let _newest = begin(most);
    let requests = callers.each_ref().map(|_| service.request(&rig));
    assert!(requests.iter().all(|(_, from, ..)| from.ip() == BUSIEST));
    callers.iter().for_each(assert_has_received_nothing);
}

/// Noise after a valid setup ends only that connection.
#[test]
fn noise_in_a_connection_ends_it() {
    let t = open();
    let rig = Rig { a: &t, b: &t };
    let (a, b) = rig.pair();
    for i in 0..100 {
        let end = End::new(&t);
        let guard = pattern(1, 1 << 16);
        end.mem.write(0, &guard);
        end.recv(0, &[end.mem.segment(1024, 64)]);
        let mut stranger = accepted(&rig, &end);
        let mut noise = match i % 2 {
            0 => SEND.repeat(3),
            _ => pattern(i, 2000),
        };
        let at = i as usize * 7 % noise.len();
        noise[at] ^= 1 << (i % 8);
        let _ = stranger.write_all(&noise);
        drop(stranger);
        let event = format!("{:?}", rig.next("the end", &end.log));
        assert!(event == "Broken" || event == "Disconnected", "{event}");
        // Only the memory of a posted receive may have changed.
        let after = end.mem.read(0, 1 << 16);
        assert!(after[..1024] == guard[..1024] && after[1088..] == guard[1088..], "noise {i}");
    }
    b.recv(1, &[]);
    a.send(1, &[]);
    assert_eq!(outcomes(&rig.completions(&b.recvs, 1)), [(1, WcStatus::Success)]);
}
