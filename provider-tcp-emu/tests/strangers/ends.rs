//! The end of a connection with a peer that is not OpenDAT.

use std::time::Instant;

use dat_core::provider::{Close, Transport, WcStatus};
use provider_mem::contract::rig::{outcomes, pattern};

use super::*;

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
