//! Tests of messages for which no receive is posted. Raw sockets send these messages. They act as
//! OpenDAT peers, but can send anything.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use dat_core::provider::{Close, Provider, Queue, Remote, SendOp, Transport, WcStatus};
use provider_mem::contract::rig::{DEPTH, End, Event, Rig, Service, arm, outcomes};
use provider_tcp_emu::{Tcp, TcpEmu};

/// The MPA request of an OpenDAT peer: the peer-to-peer model, and the operations of RFC 7306.
const REQUEST: &[u8] = b"MPA ID Req Frame\x19\x02\x00\x04\x80\x04\x80\x04";
/// The numbers of octets of a message and of the frame that carries it.
const LEN: usize = 1024;
const FRAME: usize = 2 + 18 + LEN + 4;

/// Returns the frame of a SEND without CRC.
fn frame(msn: u32) -> Vec<u8> {
    let mut frame = ((18 + LEN) as u16).to_be_bytes().to_vec();
    frame.extend(b"\x41\x43\0\0\0\0\0\0\0\0");
    frame.extend(msn.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend([msn as u8; LEN]);
    frame.extend([0; 4]);
    frame
}

fn open(params: &str) -> Tcp {
    TcpEmu.open("tcp-emu", params).expect("adapter")
}

/// A peer that has connected to `end`, was accepted, and has sent its RTR.
fn accepted<'t>(rig: &Rig<'t, Tcp>, end: &End<'t, Tcp>) -> TcpStream {
    let service = Service::new(rig.b, 8);
    let port = service.port(rig.b);
    let mut peer = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect");
    peer.set_nodelay(true).expect("nodelay");
    peer.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
    peer.write_all(REQUEST).expect("request");
    let (request, ..) = service.request(rig);
    end.qp.accept(request, b"", DEPTH).expect("accept");
    let mut reply = [0; 24];
    peer.read_exact(&mut reply).expect("reply");
    assert_eq!(reply[16], 0x1A, "the reply offers the operations of RFC 7306");
    peer.write_all(b"\x00\x0E\xC1\x40OpenDAT RTR1\0\0\0\0").expect("first frame");
    assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
    peer
}

fn counter(t: &Tcp, name: &str) -> u64 {
    t.counters().iter().find(|(counter, _)| counter == name).expect("a counter").1
}

/// Waits until this number of messages have found no receive.
fn until_stalled(rig: &Rig<'_, Tcp>, times: u64) {
    rig.until("a message without a receive", || {
        (counter(rig.b, "messages-without-receive") >= times).then_some(())
    });
}

/// One message waits for a receive. The messages behind it fill the buffers of the socket, and take
/// no other memory. Other connections continue.
#[test]
fn a_flood_without_receives_costs_the_buffers_of_a_socket() {
    const LIMIT: usize = 64 << 20;
    let t = open("127.0.0.1");
    let rig = Rig { a: &t, b: &t };
    let end = End::new(&t);
    let mut peer = accepted(&rig, &end);
    let (a, b) = rig.pair();
    peer.set_nonblocking(true).expect("nonblocking");
    let (mut sent, mut rest, mut refusals) = (0, Vec::new(), 0);
    // Send until the buffers of the sockets are full, because the adapter does not read.
    while sent < LIMIT && refusals < 1000 {
        if rest.is_empty() {
            rest = frame((sent / FRAME) as u32 + 1);
        }
        match peer.write(&rest) {
            Ok(n) => {
                rest.drain(..n);
                (sent, refusals) = (sent + n, 0);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                refusals += 1;
                t.progress();
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!(sent < LIMIT, "the peer took all octets, although no receive was posted");
    let taken = counter(&t, "octets-received");
    assert!(taken <= 1 << 17, "{taken} octets are held in this process");
    end.log.assert_silent();
    b.recv(1, &[]);
    a.send(1, &[]);
    assert_eq!(outcomes(&rig.completions(&b.recvs, 1)), [(1, WcStatus::Success)]);

    // All messages must arrive.
    for id in 0..(sent / FRAME) as u64 {
        end.recv(id, &[end.mem.segment(0, LEN)]);
        assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(id, WcStatus::Success)]);
        assert_eq!(end.mem.read(0, LEN), [(id + 1) as u8; LEN]);
    }
}

/// Makes a connection. If `polled`, consumers have polled it for so long that its socket has left
/// the poller. Otherwise no consumer has polled it.
fn prepared<'t>(rig: &Rig<'t, Tcp>, end: &End<'t, Tcp>, polled: bool) -> (TcpStream, u32) {
    let mut peer = accepted(rig, end);
    let before = if polled { 300 } else { 0 };
    for msn in 1..=before {
        end.recv(0, &[end.mem.segment(0, LEN)]);
        peer.write_all(&frame(msn)).expect("frame");
        rig.completions(&end.recvs, 1);
    }
    (peer, before)
}

fn end(peer: TcpStream, abrupt: bool) {
    if abrupt {
        socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).expect("linger");
    }
}

#[test]
fn what_came_before_the_peers_end_can_be_received() {
    for (polled, abrupt) in [(false, false), (true, false), (false, true), (true, true)] {
        while !receives_what_came_before_the_end(polled, abrupt) {}
    }
}

/// Returns false if this thread was delayed for so long that the adapter ended the connection
/// before the receives were posted.
fn receives_what_came_before_the_end(polled: bool, abrupt: bool) -> bool {
    let t = open("127.0.0.1");
    let rig = Rig { a: &t, b: &t };
    let here = End::new(&t);
    let (mut peer, before) = prepared(&rig, &here, polled);
    (1..=3).for_each(|n| peer.write_all(&frame(before + n)).expect("frame"));
    until_stalled(&rig, 1);
    let start = Instant::now();
    end(peer, abrupt);
    for n in 1..=3 {
        here.recv(n, &[here.mem.segment(0, LEN)]);
        let received = outcomes(&rig.completions(&here.recvs, 1));
        if received == [(n, WcStatus::Flushed)] && start.elapsed() > Duration::from_secs(3) {
            return false;
        }
        assert_eq!(received, [(n, WcStatus::Success)], "polled {polled}, abrupt {abrupt}");
    }
    assert!(matches!(rig.next("the end", &here.log), Event::Disconnected));
    true
}

/// A consumer that posts no receive still gets the event for the peer's end.
#[test]
fn the_peers_end_is_told_where_its_last_message_finds_no_receive() {
    for (polled, abrupt) in [(false, false), (true, true)] {
        let t = open("127.0.0.1");
        let rig = Rig { a: &t, b: &t };
        let here = End::new(&t);
        let (mut peer, before) = prepared(&rig, &here, polled);
        peer.write_all(&frame(before + 1)).expect("frame");
        until_stalled(&rig, 1);
        end(peer, abrupt);
        assert!(matches!(rig.next("the end", &here.log), Event::Disconnected));
        here.recv(1, &[]);
        assert_eq!(outcomes(&rig.completions(&here.recvs, 1)), [(1, WcStatus::Flushed)]);
    }
}

/// A graceful close waits for operations that can still be carried out. It does not wait for a READ
/// whose response would arrive behind a message that has no receive.
#[test]
fn a_graceful_close_does_not_wait_for_what_comes_behind_a_message_without_a_receive() {
    let t = open("127.0.0.1");
    let rig = Rig { a: &t, b: &t };
    let here = End::new(&t);
    let mut peer = accepted(&rig, &here);
    peer.write_all(&frame(1)).expect("frame");
    until_stalled(&rig, 1);
    here.send(1, &[here.mem.segment(0, 8)]);
    here.post(2, SendOp::Read(Remote { addr: 1, key: 2 }), &[here.mem.segment(0, 8)]);
    here.qp.disconnect(Close::Graceful);
    assert!(matches!(rig.next("the end", &here.log), Event::Disconnected));
    let ended = [(1, WcStatus::Success), (2, WcStatus::Flushed)];
    assert_eq!(outcomes(&rig.completions(&here.requests, 2)), ended);
    // The peer has received both messages and the end of the stream.
    let mut all = Vec::new();
    peer.read_to_end(&mut all).expect("what was sent");
    assert_eq!(all.len(), (2 + 18 + 8 + 4) + (2 + 18 + 28 + 4));
}

/// One thread sleeps until the message arrives, and another thread posts the receive for it.
#[test]
fn a_thread_that_sleeps_for_a_message_is_woken_by_the_post_of_its_receive() {
    let t = open("127.0.0.1");
    let rig = Rig { a: &t, b: &t };
    for msn in 0..50 {
        let here = End::new(&t);
        let mut peer = accepted(&rig, &here);
        peer.write_all(&frame(1)).expect("frame");
        until_stalled(&rig, msn + 1);
        assert!(arm::<Tcp>(&here.recvs, false));
        std::thread::scope(|scope| {
            scope.spawn(|| t.sleep(&here.recvs_log.wake, None));
            here.recv(7, &[here.mem.segment(0, LEN)]);
        });
        assert!(matches!(here.recvs_log.take(), Some(Event::CqReady)));
        assert_eq!(outcomes(&rig.completions(&here.recvs, 1)), [(7, WcStatus::Success)]);
    }
}

#[test]
fn with_rnr_terminate_the_connection_ends_instead() {
    let t = open("127.0.0.1 rnr=terminate");
    let rig = Rig { a: &t, b: &t };
    let here = End::new(&t);
    let mut peer = accepted(&rig, &here);
    peer.write_all(&frame(1)).expect("frame");
    assert!(matches!(rig.next("the end", &here.log), Event::Broken));
    let mut last = Vec::new();
    peer.read_to_end(&mut last).expect("a TERMINATE");
    assert_eq!(
        last[2..4],
        [0x41, 0x47],
        "the frame must be an untagged TERMINATE, the last of its message"
    );
    assert_eq!(last[20..22], [0x12, 0x02], "the cause must be: DDP, untagged buffer, no buffer");
}
