//! Datagrams between adapters that share an address or have several, between all of their engines.

use std::net::IpAddr;
use std::process::Command;

use dat_core::provider::{Queue, Transport};
use provider_mem::contract::rig::{End, Event, Failure, Rig, Service, pattern};
use provider_softroce::Roce;

use super::ends::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Each of these adapters has an end at each of its engines. Each end finds out the address of each
/// end, and both of them send to each other.
fn everyone_talks_to_everyone(places: &[(&str, &str)], engines: usize) {
    let open_at = |(params, _): &(&str, &str)| open(&format!("{params} threads={engines}"));
    let adapters: Vec<Roce> = places.iter().map(open_at).collect();
    let addresses = places.iter().map(|(_, address)| ip(address));
    // The ends of an adapter exist at the same time, so each of them has its own engine.
    let ends: Vec<(&Roce, IpAddr, End<'_, Roce>)> = adapters
        .iter()
        .zip(addresses)
        .flat_map(|(adapter, at)| (0..engines).map(move |_| (adapter, at, end(adapter))))
        .collect();
    let mut seed = 0;
    for &(a, of_a, ref x) in &ends {
        for &(b, of_b, ref y) in &ends {
            let rig = Rig { a, b };
            let (to_y, to_x) = introduce(&rig, x, (y, of_b));
            for (from, to, receiver, way) in
                [(x, &to_y, y, (of_a, of_b)), (y, &to_x, x, (of_b, of_a))]
            {
                seed += 1;
                deliver(&rig, (from, to), receiver, &pattern(seed, 1 + seed as usize % 1000));
                let header = receiver.mem.read(4096, HEADER);
                assert_eq!(super::ends::addresses(&header), way);
            }
        }
    }
    for (.., end) in &ends {
        end.log.assert_silent();
    }
}

#[test]
fn adapters_at_one_address() {
    everyone_talks_to_everyone(&[("127.0.0.90", "127.0.0.90"); 3], 3);
}

#[test]
fn adapters_at_one_ipv6_address() {
    everyone_talks_to_everyone(&[("::1", "::1"); 3], 2);
}

#[test]
fn adapters_at_several_addresses() {
    let places = ["127.0.0.91", "127.0.0.92", "127.0.0.91", "127.0.0.93"];
    everyone_talks_to_everyone(&places.map(|place| (place, place)), 2);
}

/// The sockets of an adapter may outlive it, because other processes and adapters hold them. No
/// request or reply of the remaining adapters goes to such a socket.
#[test]
fn the_first_adapter_at_an_address_is_closed() {
    let at = "127.0.0.95";
    let first = open(at);
    let [a, b] = [open(at), open(at)];
    drop(end(&first));
    drop(first);
    let (x, y, rig) = (end(&a), end(&b), Rig { a: &a, b: &b });
    let (to_y, to_x) = introduce(&rig, &x, (&y, ip(at)));
    deliver(&rig, (&x, &to_y), &y, b"to the other");
    deliver(&rig, (&y, &to_x), &x, b"and back");

    let closed = Service::new(&b, 8);
    let port = closed.port(&b);
    drop(closed);
    resolve(&x, 2, (ip(at), port), b"");
    match rig.next("a refusal", &x.log) {
        Event::Unresolved { why: Failure::Refused, .. } => {}
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// A host that is up reports that no process has the port, so the attempt does not take a minute.
#[test]
fn nobody_is_at_the_address() {
    let adapter = open("127.0.0.96");
    let (end, rig) = (end(&adapter), Rig { a: &adapter, b: &adapter });
    resolve(&end, 3, (ip("127.0.0.97"), 4000), b"");
    match rig.next("a failure", &end.log) {
        Event::Unresolved { why: Failure::Unreachable, .. } => {}
        other => panic!("expected that the peer is unreachable, got {other:?}"),
    }
}

/// Adapters that serve every address of the host.
#[test]
fn adapters_at_every_address() {
    everyone_talks_to_everyone(&[("", "127.0.0.1"); 2], 3);
    everyone_talks_to_everyone(&[("", "::1"); 2], 2);
}

#[test]
fn datagrams_without_batches_and_over_small_packets() {
    everyone_talks_to_everyone(&[("127.0.0.94 gso=off spin=0", "127.0.0.94"); 2], 2);
}

/// An end of one engine has found out an address that the adapter has not opened in its other
/// engines. Ends of these engines send to it, too.
#[test]
fn an_address_is_used_by_ends_of_all_engines() {
    const ENGINES: usize = 3;
    let ours = open(&format!("threads={ENGINES}"));
    for place in ["127.0.0.95", "::1"] {
        let theirs = open(place);
        let rig = Rig { a: &ours, b: &theirs };
        let receiver = end(&theirs);
        let ends: Vec<_> = (0..2 * ENGINES).map(|_| end(&ours)).collect();
        for asking in &ends[..ENGINES] {
            let (to, _) = introduce(&rig, asking, (&receiver, ip(place)));
            for (n, sending) in ends.iter().enumerate() {
                deliver(&rig, (sending, &to), &receiver, &pattern(n as u64, 500));
            }
        }
    }
}

/// A sender at one address sends to an end through two of its addresses in turn.
#[test]
fn an_end_receives_at_two_addresses_of_its_host() {
    in_a_network(|| {
        let (ours, theirs) = (open("threads=2"), open("10.49.0.1"));
        let rig = Rig { a: &ours, b: &theirs };
        for _ in 0..2 {
            let (receiver, sender) = (end(&ours), end(&theirs));
            let at = [ip("10.49.0.1"), ip("10.49.0.2"), ip("127.0.0.1")];
            let ways = at.map(|at| introduce(&rig, &sender, (&receiver, at)));
            for round in 0..4 {
                for (at, (to, back)) in at.iter().zip(&ways) {
                    deliver(&rig, (&sender, to), &receiver, &pattern(round, 700));
                    let header = receiver.mem.read(4096, HEADER);
                    assert_eq!(addresses(&header), (ip("10.49.0.1"), *at));
                    deliver(&rig, (&receiver, back), &sender, &pattern(round, 300));
                    let header = sender.mem.read(4096, HEADER);
                    assert_eq!(addresses(&header), (*at, ip("10.49.0.1")));
                }
            }
        }
    });
}

/// An adapter that serves every address receives a request at a link-local address. An end of any
/// of its engines answers.
#[test]
fn link_local_addresses() {
    in_a_network(|| {
        for ours in ["", "fe80::49:1"] {
            let ours = open(&format!("{ours} threads=3"));
            let theirs = open("fe80::49:1");
            let rig = Rig { a: &ours, b: &theirs };
            let asking = end(&theirs);
            let ends = [end(&ours), end(&ours), end(&ours)];
            for end in &ends {
                let (to, back) = introduce(&rig, &asking, (end, ip("fe80::49:1")));
                deliver(&rig, (&asking, &to), end, &pattern(1, 900));
                deliver(&rig, (end, &back), &asking, &pattern(2, 900));
            }
        }
    });
}

/// Several adapters at one address listen. Each request finds its service, whichever adapter has
/// read the request.
#[test]
fn requests_find_their_service() {
    let adapters: Vec<Roce> = (0..6).map(|_| open("127.0.0.96 threads=2")).collect();
    let services: Vec<_> = adapters.iter().map(|adapter| Service::new(adapter, 8)).collect();
    let ends: Vec<_> = adapters.iter().map(end).collect();
    for round in 0..5 {
        for (asking, a) in ends.iter().zip(&adapters) {
            for ((service, answering), b) in services.iter().zip(&ends).zip(&adapters) {
                let (rig, port) = (Rig { a, b }, service.port(b));
                resolve(asking, round, (a.attrs().address.ip(), port), &port.to_be_bytes());
                let (asked, _, private) = request(&rig, service);
                assert_eq!(private, port.to_be_bytes());
                let to_asking: To = answering.qp.answer(asked, b"").expect("an answer").into();
                let event = rig.next("the address", &asking.log);
                let Event::Resolved { remote, .. } = event else { panic!("{event:?}") };
                deliver(&rig, (asking, &remote.into()), answering, b"there");
                deliver(&rig, (answering, &to_asking), asking, b"and back");
            }
        }
    }
}

/// Runs a test in a network of its own, with two addresses and a link-local address on one
/// interface.
fn in_a_network(test: impl FnOnce() + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can have a network of its own");
        return;
    }
    let test = || {
        // SAFETY: the call accesses no memory. The system call changes the network of this thread
        // only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNET) }, 0);
        for command in [
            "link set lo up",
            "link add wire type veth peer name other",
            "addr add 10.49.0.1/24 dev wire",
            "addr add 10.49.0.2/24 dev wire",
            "addr add fe80::49:1/64 dev wire nodad",
            "link set wire up",
            "link set other up",
        ] {
            let done = Command::new("ip").args(command.split(' ')).status();
            assert!(done.expect("iproute2 is installed").success(), "ip {command}");
        }
        test();
    };
    std::thread::spawn(test).join().expect("no panic");
}
