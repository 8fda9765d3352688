//! Tests that datagrams leave no memory, descriptors or threads behind, and that an end needs no
//! memory for each of its peers. The test counts resources of the whole process, so it is alone in
//! its process.

#[path = "datagrams/ends.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod ends;
#[path = "../../dat-adapter/tests/leaks/usage.rs"]
mod usage;

use std::net::IpAddr;
use std::time::Instant;

use dat_core::provider::{Close, Queue};
use provider_mem::contract::rig::{EVENT_TIMEOUT, End, Event, Rig, Service, pattern};
use provider_softroce::Roce;

use self::ends::*;
use self::usage::{bytes_in_use, footprint};

/// If each of a thousand ends leaked one small object, the process would use more additional memory
/// than this.
const LEAK_THRESHOLD_BYTES: usize = 32 << 10;
const THOUSANDS: usize = 6;

#[test]
fn datagrams_leave_nothing_behind() {
    a_thousand_ends("127.0.0.100", [127, 0, 0, 100].into());
    let params = "127.0.0.101 threads=2 net=loss=0.2%,duplicate=5%,reorder=5%,seed=1";
    a_thousand_ends(params, [127, 0, 0, 101].into());
    a_thousand_peers_need_no_memory();
}

/// Creates and drops a thousand pairs of datagram ends, several times, and checks that no memory,
/// descriptor or thread remains. When the ends are dropped, receives are posted, and datagrams are
/// under way, an address is still being resolved, or a request has no answer.
fn a_thousand_ends(params: &str, ip: IpAddr) {
    let at_first = footprint();
    {
        let (a, b) = (open(params), open(params));
        let rig = Rig { a: &a, b: &b };
        let service = Service::new(&b, 8);
        let to = (ip, service.port(&b));
        let cycle = |n: usize| {
            let (x, y) = (end_with(&a, 8, 4096), end_with(&b, 8, 4096));
            resolve(&x, 1, to, b"");
            // Requests of ends that are gone may still arrive.
            let remote = rig.until("an answer", || {
                while let Some(event) = service.log.take() {
                    let Event::Request { request, .. } = event else { panic!("{event:?}") };
                    if n % 5 != 4 || x.log.take().is_some() {
                        y.qp.answer(request, b"").expect("the request is answered");
                    }
                    if n % 5 == 4 {
                        return Some(None);
                    }
                }
                match x.log.take() {
                    Some(Event::Resolved { remote, .. }) => Some(Some(To::from(remote))),
                    None => None,
                    Some(other) => panic!("{other:?}"),
                }
            });
            for id in 0..4 {
                y.recv(id, &[y.mem.segment(1024 * id as usize, 1024)]);
                if let Some(to) = &remote {
                    send(&x, id, to, None, &[x.mem.segment(0, 100)]);
                }
            }
            match n % 5 {
                0 => drop(rig.completions(&x.requests, 4)),
                1 => x.qp.disconnect(Close::Abrupt),
                2 => drop(y),
                _ => resolve(&x, 2, (ip, to.1 ^ 1), b"nobody is there"),
            }
        };
        (0..1000).for_each(cycle);
        let opened = footprint();
        let mut before = bytes_in_use();
        let leaks_nothing = |_| {
            (0..1000).for_each(cycle);
            let now = bytes_in_use();
            println!("{params}: {before} bytes are in use, then {now}");
            let grown = now.saturating_sub(before);
            before = now;
            grown <= LEAK_THRESHOLD_BYTES
        };
        assert!((0..THOUSANDS).any(leaks_nothing), "each thousand ends leaked memory");
        assert_eq!(footprint(), opened);
    }
    let since = Instant::now();
    while footprint() != at_first && since.elapsed() < EVENT_TIMEOUT {
        std::thread::yield_now();
    }
    assert_eq!(footprint(), at_first, "both adapters were closed {EVENT_TIMEOUT:?} ago");
}

/// One end finds out the addresses of a thousand peers, and exchanges datagrams with each of them.
fn a_thousand_peers_need_no_memory() {
    const PEERS: usize = 1000;
    /// What the passive adapter remembers, so that a repeated request gets the same answer. It
    /// does not remember more than 512 answers to one address.
    const ANSWERS: usize = 512 * 1024;
    let (a, b) = (open("127.0.0.102"), open("127.0.0.102 threads=2"));
    let rig = Rig { a: &a, b: &b };
    let ip: IpAddr = [127, 0, 0, 102].into();
    let hub = end(&a);
    let peers: Vec<_> = (0..PEERS).map(|_| end_with(&b, 8, 512)).collect();
    let service = Service::new(&b, 64);
    let mut addresses = Vec::with_capacity(2 * PEERS + 1);
    let mut talk = |peer: &End<'_, Roce>, n: usize| {
        resolve(&hub, n as u64, (ip, service.port(&b)), b"private data");
        let (asked, ..) = request(&rig, &service);
        let back: To = peer.qp.answer(asked, b"private data").expect("an answer").into();
        let event = rig.next("the address", &hub.log);
        let Event::Resolved { number, remote, .. } = event else { panic!("{event:?}") };
        assert_eq!(number, n as u64);
        addresses.push((To::from(remote), back));
    };
    let exchange = |peer: &End<'_, Roce>, (to, back): (To, To), n| {
        let octets = pattern(n, 64);
        for (from, to, receiver) in [(&hub, to, peer), (peer, back, &hub)] {
            receiver.recv(n, &[receiver.mem.segment(128, HEADER + 64)]);
            from.mem.write(0, &octets);
            send(from, n, &to, None, &[from.mem.segment(0, 64)]);
            rig.completions(&receiver.recvs, 1);
            rig.completions(&from.requests, 1);
            assert!(receiver.mem.read(128 + HEADER, 64) == octets);
        }
    };
    talk(&peers[0], 0);
    let mut growth = Vec::new();
    for _ in 0..2 {
        let before = bytes_in_use();
        for (n, peer) in peers.iter().enumerate() {
            talk(peer, n);
        }
        growth.push(bytes_in_use().saturating_sub(before));
    }
    println!("resolving {PEERS} addresses took {growth:?} octets");
    assert!(growth[0] <= ANSWERS && growth[1] <= LEAK_THRESHOLD_BYTES, "{growth:?}");
    let addresses = std::mem::take(&mut addresses);
    let before = bytes_in_use();
    for (n, (peer, ways)) in peers.iter().zip(&addresses[1..]).enumerate() {
        exchange(peer, *ways, n as u64);
    }
    let grown = bytes_in_use().saturating_sub(before);
    println!("exchanging datagrams with {PEERS} peers took {grown} octets");
    assert!(grown <= LEAK_THRESHOLD_BYTES + PEERS * 64, "{grown}");
}
