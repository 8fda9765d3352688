//! Tests of an adapter with several engines: a request arrives at the engine that has the
//! listeners, and the queue pair that accepts it belongs to another engine.

use std::time::Duration;

use dat_core::provider::{Close, Provider, Queue, WcStatus};
use provider_mem::contract::rig::{DEPTH, End, Event, Rig, Service, outcomes};
use provider_softroce::{Roce, SoftRoce};

/// The number of engines of each adapter.
const ENGINES: usize = 4;

fn open(params: &str) -> Roce {
    SoftRoce.open("engines", params).unwrap_or_else(|e| panic!("{params}: {e}"))
}

/// Sends a message each way and then ends the connection.
fn use_connection(rig: &Rig<'_, Roce>, a: &End<'_, Roce>, b: &End<'_, Roce>, at: usize) {
    for (from, to) in [(a, b), (b, a)] {
        let message = format!("message over connection {at}");
        to.recv(1, &[to.mem.segment(4096, 256)]);
        from.mem.write(0, message.as_bytes());
        from.send(2, &[from.mem.segment(0, message.len())]);
        assert_eq!(outcomes(&rig.completions(&to.recvs, 1)), [(1, WcStatus::Success)]);
        assert_eq!(outcomes(&rig.completions(&from.requests, 1)), [(2, WcStatus::Success)]);
        assert_eq!(to.mem.read(4096, message.len()), message.as_bytes());
    }
}

fn connections_of_all_engines(params: &str) {
    let params = format!("{params} threads={ENGINES}");
    let (a, b) = (open(&params), open(&params));
    let rig = Rig { a: &a, b: &b };
    let service = Service::new(&b, 2 * ENGINES);
    // All ends exist at the same time, so each of the first `ENGINES` ends has its own engine.
    let ends: Vec<_> = (0..2 * ENGINES).map(|_| (End::new(&a), End::new(&b))).collect();
    for (at, (active, passive)) in ends.iter().enumerate() {
        active.connect(service.port(&b), format!("call {at}").as_bytes(), None);
        let (request, _, _, private) = service.request(&rig);
        assert!(private.starts_with(format!("call {at}").as_bytes()));
        passive.qp.accept(request, b"answer", DEPTH).expect("the request is accepted");
        for end in [active, passive] {
            match rig.next("the connection", &end.log) {
                Event::Established { .. } => {}
                other => panic!("expected a connection, got {other:?}"),
            }
        }
    }
    for (at, (active, passive)) in ends.iter().enumerate() {
        use_connection(&rig, active, passive, at);
    }
    for (at, (active, passive)) in ends.iter().enumerate() {
        [active, passive][at % 2].qp.disconnect(Close::Graceful);
        for end in [active, passive] {
            match rig.next("the end", &end.log) {
                Event::Disconnected => {}
                other => panic!("expected the end, got {other:?}"),
            }
        }
    }
}

#[test]
fn requests_reach_the_engine_that_accepts_them() {
    connections_of_all_engines("127.0.0.60");
}

#[test]
fn requests_reach_the_engine_over_ipv6() {
    connections_of_all_engines("::1");
}

#[test]
fn requests_reach_the_engine_over_a_bad_network() {
    connections_of_all_engines("127.0.0.61 net=loss=10%,duplicate=10%,reorder=10%,seed=3");
}

/// The caller gives up before its request is accepted by a queue pair of another engine.
#[test]
fn a_withdrawn_request_is_not_accepted() {
    let params = format!("127.0.0.62 threads={ENGINES}");
    let (a, b) = (open(&params), open(&params));
    let rig = Rig { a: &a, b: &b };
    let service = Service::new(&b, 4);
    let passive: Vec<_> = (0..ENGINES).map(|_| End::new(&b)).collect();
    for end in &passive {
        let caller = End::new(&a);
        caller.connect(service.port(&b), b"", Some(Duration::from_millis(200)));
        let (request, ..) = service.request(&rig);
        match rig.next("the time limit", &caller.log) {
            Event::TimedOut => {}
            other => panic!("expected a timeout, got {other:?}"),
        }
        end.qp.accept(request, b"", DEPTH).expect("the call begins");
        match rig.next("the failure", &end.log) {
            Event::AcceptFailed => {}
            other => panic!("expected a failure, got {other:?}"),
        }
    }
}
