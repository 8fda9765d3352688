//! Callers that send no request, half of one, noise, or no first frame.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_core::provider::{Transport, WcStatus};
use provider_mem::contract::rig::{outcomes, pattern};
use rustix::process::{Resource, getrlimit};

use super::*;

/// Locks out the other tests that have many callers without a request. Such callers at all adapters
/// of a process share one limit, so these tests must run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
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

/// A consumer that accepts each request with one of its endpoints.
struct Server<'t> {
    rig: Rig<'t, Tcp>,
    service: Service<'t, Tcp>,
    free: Vec<End<'t, Tcp>>,
    /// The endpoints that a caller has, with the caller's address. The callers do not confirm.
    held: Vec<(SocketAddr, End<'t, Tcp>)>,
}

impl Server<'_> {
    /// Accepts the next request. Returns the caller's address.
    fn accept_next(&mut self) -> SocketAddr {
        let (request, from, ..) = self.service.request(&self.rig);
        // On a busy machine the adapter may have given up callers. Their endpoints are replaced.
        for (_, end) in self.held.extract_if(.., |(_, end)| end.log.take().is_some()) {
            self.free.push(End::new(self.rig.a));
            drop(end);
        }
        let end = self.free.pop().expect("an endpoint for each request");
        end.qp.accept(request, b"", DEPTH).expect("accept");
        self.held.push((from, end));
        from
    }
}

/// Requests of one address whose callers never confirm an acceptance do not take all endpoints.
/// When acceptances are confirmed, the consumer gets another request of this address.
///
/// iwarp/src/unconfirmed.rs has tests with their own clock, which hold how many.
#[test]
fn callers_that_do_not_confirm_leave_endpoints_to_others() {
    const ENDPOINTS: usize = 16;
    const SILENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
    const NEWCOMERS: [u8; 4] = [3, 4, 5, 6];
    let t = TcpEmu.open("tcp-emu", "").expect("adapter");
    let service = Service::new(&t, 2 * ENDPOINTS);
    let port = service.port(&t);
    let free = (0..ENDPOINTS).map(|_| End::new(&t)).collect();
    let mut server = Server { rig: Rig { a: &t, b: &t }, service, free, held: Vec::new() };

    // The consumer accepts the first request before the others arrive.
    let mut silent = vec![call_from(SILENT, port)];
    assert_eq!(server.accept_next().ip(), SILENT);
    silent.extend((1..ENDPOINTS).map(|_| call_from(SILENT, port)));
    let newcomers = NEWCOMERS.map(|n| call_from(Ipv4Addr::new(127, 0, 0, n), port));
    let mut waiting: Vec<_> =
        newcomers.iter().map(|caller| caller.local_addr().expect("connected")).collect();
    while !waiting.is_empty() {
        let from = server.accept_next();
        waiting.retain(|newcomer| *newcomer != from);
    }

    // The endpoints of confirmed acceptances stay in use, and another request gets an endpoint.
    let is_silent = |(from, _): &mut (SocketAddr, _)| from.ip() == SILENT;
    let confirmed: Vec<_> = server.held.extract_if(.., is_silent).collect();
    for (from, end) in &confirmed {
        let is_its_own = |s: &&mut TcpStream| s.local_addr().expect("connected") == *from;
        let stranger = silent.iter_mut().find(is_its_own).expect("its socket");
        // If the adapter has given up the caller, the event says so.
        let _ = stranger.write_all(&[RTR, &[0; 16]].concat());
        server.rig.next("the outcome", &end.log);
    }
    assert_eq!(server.accept_next().ip(), SILENT);
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
