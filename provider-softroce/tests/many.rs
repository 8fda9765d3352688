//! Many adapters share the port of one address, each with a connection that carries a message.

use std::time::Instant;

use dat_core::provider::{Provider, Queue, Transport, WcStatus};
use provider_mem::contract::rig::{DEPTH, End, Event, Rig, Service, outcomes};
use provider_softroce::{Roce, SoftRoce};

/// The number of adapters, if the process may have enough descriptors.
const ADAPTERS: usize = 300;
/// The number of descriptors that an adapter and its connection need at most.
const DESCRIPTORS_PER_ADAPTER: usize = 40;

fn open() -> Roce {
    SoftRoce.open("many", "127.0.0.70 threads=1 spin=0").expect("the adapter opens")
}

/// The number of descriptors that the process may have.
fn descriptor_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| limit as usize)
}

#[test]
fn many_adapters_have_connections() {
    let count = ADAPTERS.min(descriptor_limit() / DESCRIPTORS_PER_ADAPTER);
    let start = Instant::now();
    let adapters: Vec<Roce> = (0..=count).map(|_| open()).collect();
    println!("{count} adapters and a server opened in {:?}", start.elapsed());
    // The first 63 adapters have large slots.
    for (at, adapter) in adapters.iter().enumerate() {
        assert_eq!(adapter.attrs().max_eps, if at < 63 { 65_536 } else { 8_126 }, "adapter {at}");
    }
    let (server, callers) = adapters.split_first().expect("adapters");
    let service = Service::new(server, 8);
    let mut ends = Vec::new();
    for caller in callers {
        let rig = Rig { a: caller, b: server };
        let (active, passive) = (End::with(caller, 4, 64), End::with(server, 4, 64));
        active.connect(service.port(server), b"", None);
        let (request, ..) = service.request(&rig);
        passive.qp.accept(request, b"", DEPTH).expect("the request is accepted");
        for end in [&active, &passive] {
            match rig.next("the connection", &end.log) {
                Event::Established { .. } => {}
                other => panic!("expected a connection, got {other:?}"),
            }
        }
        ends.push((rig, active, passive));
    }
    println!("connected after {:?}", start.elapsed());
    // All connections exist at the same time.
    for (at, (rig, active, passive)) in ends.iter().enumerate() {
        let message = format!("message {at}");
        passive.recv(1, &[passive.mem.segment(0, 64)]);
        active.mem.write(0, message.as_bytes());
        active.send(2, &[active.mem.segment(0, message.len())]);
        assert_eq!(outcomes(&rig.completions(&passive.recvs, 1)), [(1, WcStatus::Success)]);
        assert_eq!(outcomes(&rig.completions(&active.requests, 1)), [(2, WcStatus::Success)]);
        assert_eq!(passive.mem.read(0, message.len()), message.as_bytes());
    }
    println!("messages sent after {:?}", start.elapsed());
}
