//! Tests with peers that are not OpenDAT. Raw sockets play other stacks, broken stacks, and
//! programs that are no RDMA stacks.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dat_core::provider::{Close, Connect, Provider, Queue, Transport, WcStatus};
use provider_loopback::contract::rig::{DEPTH, End, Event, Rig, Service, outcomes, pattern};
use provider_tcp_emu::{Tcp, TcpEmu};
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

/// Reads until the peer closes. A reset counts as an end, too.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    all
}

/// A stranger that has connected to `end` and was accepted.
fn accepted<'t>(rig: &Rig<'t, Tcp>, end: &End<'t, Tcp>) -> TcpStream {
    let service = Service::new(rig.b, 8);
    let mut stranger = call(service.port(rig.b));
    stranger.write_all(REQUEST).expect("request");
    let (request, _, _, private) = service.request(rig);
    assert!(private.is_empty());
    end.qp.accept(request, b"", DEPTH).expect("accept");
    assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
    assert_eq!(read::<24>(&mut stranger), REPLY);
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
        b"MPA ID Req Frame\x1C\x02\x00\x06",
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
fn a_responder_keeps_quiet_until_the_first_frame_or_a_grace_period() {
    let t = open();
    let rig = Rig { a: &t, b: &t };
    for speaks_first in [true, false] {
        let end = End::new(&t);
        end.recv(9, &[end.mem.segment(0, 64)]);
        // Take the time now, before the grace period begins.
        let start = Instant::now();
        let mut stranger = accepted(&rig, &end);
        end.send(1, &[end.mem.segment(64, 16)]);
        if speaks_first {
            stranger.write_all(SEND).expect("frame");
            let wc = rig.completions(&end.recvs, 1)[0];
            assert_eq!((wc.id, wc.bytes), (9, 16));
            assert_eq!(end.mem.read(0, 16), b"sixteen octets!!");
        }
        rig.completions(&end.requests, 1);
        let waited = start.elapsed();
        assert_eq!(read::<40>(&mut stranger)[..4], SEND[..4]);
        if !speaks_first {
            assert!(
                waited >= Duration::from_millis(80),
                "the first frame was sent after {waited:?}"
            );
        }
    }
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
        assert_eq!(read::<40>(&mut stranger)[..16], SEND[..16]);
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
        let caller = |_| {
            let end = End::new(&t);
            let mut stranger = call(service.port(&t));
            stranger.write_all(REQUEST_P2P).expect("request");
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
