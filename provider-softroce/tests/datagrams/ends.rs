//! Ends that exchange datagrams over softroce, at any addresses.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dat_core::provider::{
    Completions, Connect, Datagram, Provider, QpCfg, Queue, RemoteQp, Segment, ServiceType,
    Transport, Wc, WcStatus,
};
use provider_mem::contract::rig::{ALL, Buffer, DEPTH, End, Event, Log, QUEUE, Rig, Service, cfg};
use provider_softroce::{Roce, SoftRoce};

/// The number of octets before each message in a receive buffer.
pub(crate) const HEADER: usize = 40;

/// Where datagrams go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct To {
    pub(crate) address: <Roce as Transport>::Address,
    pub(crate) qpn: u32,
}

impl From<RemoteQp<Roce>> for To {
    fn from(remote: RemoteQp<Roce>) -> Self {
        To { address: remote.address, qpn: remote.qpn }
    }
}

pub(crate) fn open(params: &str) -> Roce {
    SoftRoce.open("datagrams", params).unwrap_or_else(|error| panic!("{params}: {error}"))
}

/// Creates an end that sends and receives datagrams.
pub(crate) fn end(t: &Roce) -> End<'_, Roce> {
    end_with(t, 2 * QUEUE, 1 << 16)
}

/// Creates such an end with completion queues of `depth` and `len` bytes of registered memory.
pub(crate) fn end_with(t: &Roce, depth: usize, len: usize) -> End<'_, Roce> {
    let pd = Arc::new(t.pd().expect("protection domain"));
    let (log, requests_log, recvs_log) = (Log::new(t), Log::new(t), Log::new(t));
    let requests = t.cq(depth, requests_log.sink()).expect("completion queue");
    let recvs = t.cq(depth, recvs_log.sink()).expect("completion queue");
    requests.require_upcalls(true);
    recvs.require_upcalls(true);
    let service = ServiceType::Datagram;
    let cfg = QpCfg { service, ..cfg::<Roce>(&pd, &requests, &recvs, None) };
    let qp = t.qp(cfg, log.sink()).expect("queue pair");
    let mem = Buffer::new(t, &pd, len, ALL);
    End { qp, requests, recvs, mem, pd, log, requests_log, recvs_log, t }
}

/// Starts to resolve the address of a service.
pub(crate) fn resolve(end: &End<'_, Roce>, number: u64, (ip, port): (IpAddr, u16), private: &[u8]) {
    resolve_within(end, number, (ip, port), private, None);
}

pub(crate) fn resolve_within(
    end: &End<'_, Roce>,
    number: u64,
    (ip, port): (IpAddr, u16),
    private: &[u8],
    timeout: Option<Duration>,
) {
    let addr = SocketAddr::new(ip, 0);
    let to = Connect { addr, port, private, timeout, depth: DEPTH };
    end.qp.resolve(number, &to).expect("the attempt begins");
}

/// Takes a request for datagrams at a service. Returns the request, its source and its private
/// data.
pub(crate) fn request(
    rig: &Rig<'_, Roce>,
    service: &Service<'_, Roce>,
) -> (<Roce as Transport>::ConnectionRequest, SocketAddr, Vec<u8>) {
    match rig.next("a request for datagrams", &service.log) {
        Event::Request { request, service: ServiceType::Datagram, from, private, .. } => {
            (request, from, private)
        }
        other => panic!("expected a request for datagrams, got {other:?}"),
    }
}

/// Lets `asking` resolve a service at this address that answers with `answering`. Returns where
/// each of them sends, `asking` first.
pub(crate) fn introduce(
    rig: &Rig<'_, Roce>,
    asking: &End<'_, Roce>,
    (answering, at): (&End<'_, Roce>, IpAddr),
) -> (To, To) {
    let service = Service::new(answering.t, 8);
    resolve(asking, 7, (at, service.port(answering.t)), b"hello");
    let (asked, _, private) = request(rig, &service);
    assert_eq!(private, b"hello");
    let passive = answering.qp.answer(asked, b"welcome").expect("the request is answered");
    match rig.next("the address", &asking.log) {
        Event::Resolved { number: 7, remote, private, .. } => {
            assert_eq!(private, b"welcome");
            (remote.into(), passive.into())
        }
        other => panic!("expected an address, got {other:?}"),
    }
}

/// Posts a datagram.
pub(crate) fn send(
    from: &End<'_, Roce>,
    id: u64,
    to: &To,
    immediate: Option<u32>,
    segments: &[Segment],
) {
    let wr = Datagram::<Roce> {
        id,
        address: &to.address,
        qpn: to.qpn,
        immediate,
        segments,
        signalled: true,
        solicited: false,
        quiet: false,
    };
    // SAFETY: the cases keep their buffers until the requests are done.
    unsafe { from.qp.post_datagram(&wr) }.expect("the post succeeds");
}

/// Sends a datagram, and waits until it has arrived. Returns the completion of its receive.
/// Nothing may be lost.
pub(crate) fn deliver(
    rig: &Rig<'_, Roce>,
    (from, to): (&End<'_, Roce>, &To),
    receiver: &End<'_, Roce>,
    octets: &[u8],
) -> Wc {
    receiver.recv(1, &[receiver.mem.segment(4096, HEADER + 4096)]);
    from.mem.write(0, octets);
    send(from, 2, to, Some(octets.len() as u32), &[from.mem.segment(0, octets.len())]);
    let sent = rig.completions(&from.requests, 1)[0];
    assert_eq!((sent.id, sent.status), (2, WcStatus::Success));
    let received = rig.completions(&receiver.recvs, 1)[0];
    assert_eq!((received.id, received.status), (1, WcStatus::Success));
    assert_eq!(received.bytes as usize, HEADER + octets.len());
    assert_eq!(received.immediate, Some(octets.len() as u32));
    assert!(receiver.mem.read(4096 + HEADER, octets.len()) == octets);
    received
}

/// The addresses of the sender and of the receiver in the header before a received datagram.
pub(crate) fn addresses(header: &[u8]) -> (IpAddr, IpAddr) {
    let (v6, v4) = header.split_at(20);
    if v6.iter().all(|octet| *octet == 0) {
        let at = |offset: usize| <[u8; 4]>::try_from(&v4[offset..offset + 4]).expect("4 octets");
        return (at(12).into(), at(16).into());
    }
    let at = |offset: usize| <[u8; 16]>::try_from(&header[offset..offset + 16]).expect("16 octets");
    (at(8).into(), at(24).into())
}

/// The value of a counter of an adapter.
pub(crate) fn counter(adapter: &Roce, name: &str) -> u64 {
    let counters = adapter.counters();
    let found = counters.iter().find(|(counter, _)| *counter == name);
    found.unwrap_or_else(|| panic!("no counter {name}: {counters:?}")).1
}
