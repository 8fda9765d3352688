//! A side of explicit connections: an adapter with memory and a completion queue.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use adapter::params::Words;
use adapter::{
    Adapter, ConcurrentCq, Event, Mr, Qp, QpCfg, RequesterCfg, ResponderCfg, Sink, Srq, netdev,
    params,
};
use rnic::{CqEvent, Pd, RecvWr, Segment, SendOp, SendWr, WcOp, WcStatus};
use roce::{Config, Engine};
use wire::rocev2::{Icrc, Packet, UDP_PORT};
use work::{Access, ServiceType};

/// The longest time to wait for something that must happen.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const MESSAGE: usize = 64;
/// The number of receive buffers and of requests of a queue pair.
pub(crate) const DEPTH: usize = 64;

/// An adapter whose queue pairs have numbers from their creation on.
pub(crate) struct Side {
    pub(crate) adapter: Adapter<Engine>,
    pub(crate) pd: Pd,
    pub(crate) cq: ConcurrentCq<Engine>,
    /// The number of events of the completion queue.
    pub(crate) ready: Arc<AtomicUsize>,
    /// Names of the events of all queue pairs.
    events: Arc<Mutex<Vec<String>>>,
    /// The memory, which peers may read and write.
    pub(crate) region: Mr<Engine>,
    /// The message to be sent, and then the receive buffers.
    pub(crate) memory: Box<[u8]>,
    /// The number of queue pairs so far, each of which has its number as its token.
    qps: AtomicU64,
}

impl Side {
    pub(crate) fn open(text: &str) -> Side {
        Side::with(text, Config { numbers_at_creation: true, ..Config::default() })
    }

    pub(crate) fn with(text: &str, config: Config) -> Side {
        let keys = &["spin", "threads"];
        let words = Words { name: "the test", text, defaults: "", keys, default_keys: &[] };
        let address = params::parse(&words, |_, _| Ok(()));
        let adapter = roce::open("explicit", &address.expect("an address of this host"), config)
            .expect("the adapter opens");
        let ready = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ready);
        let notify = move |event| {
            assert_eq!(event, CqEvent::Ready);
            count.fetch_add(1, Ordering::SeqCst);
        };
        let cq = adapter.concurrent_cq(4 * DEPTH, notify).expect("there is memory");
        let mut memory = vec![0; MESSAGE * (DEPTH + 1)].into_boxed_slice();
        let pd = adapter.pd();
        let access = Access {
            local_read: true,
            local_write: true,
            remote_read: true,
            remote_write: true,
            remote_atomic: true,
        };
        let place = (memory.as_mut_ptr(), memory.len());
        // SAFETY: the memory is dropped after the region.
        let region = unsafe { adapter.mr(pd, place, access, true) }.expect("there is memory");
        let (events, qps) = (Arc::default(), AtomicU64::new(0));
        Side { adapter, pd, cq, ready, events, region, memory, qps }
    }

    pub(crate) fn qp(&self) -> Qp<Engine> {
        self.qp_of(ServiceType::Connection, None)
    }

    pub(crate) fn qp_of(&self, service: ServiceType, srq: Option<&Srq<Engine>>) -> Qp<Engine> {
        let events = Arc::clone(&self.events);
        let sink = Sink::new(move |event: Event<'_, Engine>| {
            let name = match event {
                Event::Broken { .. } => "broken".to_owned(),
                Event::Disconnected => "disconnected".to_owned(),
                Event::Cause(cause) => format!("{cause:?}"),
                _ => "another event".to_owned(),
            };
            events.lock().expect("no panic").push(name);
        });
        let queue = Some(self.cq.queue());
        let cfg = QpCfg {
            pd: self.pd,
            request_cq: queue,
            recv_cq: queue,
            srq,
            service,
            token: self.qps.fetch_add(1, Ordering::Relaxed),
            solicits_all_receives: false,
            max_requests: DEPTH,
            max_recvs: DEPTH,
            max_request_segments: 1,
            max_recv_segments: 1,
        };
        self.adapter.qp(cfg, sink, || true).expect("a queue pair")
    }

    pub(crate) fn segment(&self, place: usize) -> [Segment; 1] {
        let key = self.region.region().expect("the region exists").lkey();
        [Segment { addr: (place * MESSAGE) as u64, len: MESSAGE as u32, key }]
    }

    pub(crate) fn receive(&self, qp: &Qp<Engine>, id: u64) {
        let segments = &self.segment(1 + id as usize % DEPTH);
        // SAFETY: one thread posts, and the memory outlives the queue pairs.
        unsafe { qp.post_recv(&RecvWr { id, segments, quiet: false }) }.expect("there is room");
    }

    pub(crate) fn send(&self, qp: &Qp<Engine>, id: u64) {
        self.post(qp, id, SendOp::Send { invalidate: None });
    }

    pub(crate) fn post(&self, qp: &Qp<Engine>, id: u64, op: SendOp) {
        let wr = SendWr {
            id,
            op,
            segments: &self.segment(0),
            signalled: true,
            solicited: false,
            fence: false,
            quiet: false,
        };
        // SAFETY: one thread posts, and the memory outlives the queue pairs.
        unsafe { qp.post_send(&wr) }.expect("there is room");
    }

    /// Makes a pass of progress, and takes all completions.
    pub(crate) fn poll(&self, completions: &mut Vec<(WcOp, u64, WcStatus)>) {
        self.adapter.progress_on(self.cq.queue());
        self.cq.poll_with(usize::MAX, |wc| completions.push((wc.op, wc.id, wc.status)));
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let counters = self.adapter.counters();
        counters.iter().find(|(of, _)| of == name).expect("the counter exists").1
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.events.lock().expect("no panic").clone()
    }
}

/// The parameters of a connection from the point of view of one side, whose own numbers come first.
pub(crate) fn cfgs(
    [local, peer]: [SocketAddr; 2],
    peer_number: u32,
    [own_psn, peer_psn]: [u32; 2],
) -> (ResponderCfg, RequesterCfg) {
    let responder = ResponderCfg {
        local,
        peer: peer.ip(),
        peer_number,
        path_mtu: 1024,
        first_psn: peer_psn,
        read_depth: 1,
        rnr_timer: 1,
    };
    let requester = RequesterCfg { first_psn: own_psn, ..PATIENT };
    (responder, requester)
}

/// Gives up after 34 s: 4.3 s for each of eight tries.
pub(crate) const PATIENT: RequesterCfg =
    RequesterCfg { first_psn: 0, read_depth: 1, ack_timeout: 20, retries: 7, rnr_retries: 7 };
/// Gives up after 0.1 s: 34 ms for each of four tries. For requests that nobody answers.
pub(crate) const IMPATIENT: RequesterCfg = RequesterCfg { ack_timeout: 13, retries: 3, ..PATIENT };

pub(crate) fn at(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an address"), 0)
}

pub(crate) fn number(qp: &Qp<Engine>) -> u32 {
    qp.number().expect("the number is known at the creation")
}

/// Makes progress at both sides until the condition holds.
pub(crate) fn until(sides: [&Side; 2], mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < limit, "{:?}", sides.map(Side::events));
        sides.iter().for_each(|side| side.adapter.progress());
        std::thread::yield_now();
    }
}

/// Waits until each side has this number of completions, and returns them in the order of each.
pub(crate) fn completions(
    sides: [&Side; 2],
    numbers: [usize; 2],
) -> [Vec<(WcOp, u64, WcStatus)>; 2] {
    let mut found = [Vec::new(), Vec::new()];
    until(sides, || {
        sides.iter().zip(&mut found).for_each(|(side, found)| side.poll(found));
        found.iter().zip(numbers).all(|(found, number)| found.len() >= number)
    });
    found
}

/// Connects two queue pairs in both directions.
pub(crate) fn connect(qps: [&Qp<Engine>; 2], [a, b]: [SocketAddr; 2]) {
    let psns = [0xff_fffe, 77];
    let (responder, requester) = cfgs([a, b], number(qps[1]), psns);
    let (of_peer, requester_of_peer) = cfgs([b, a], number(qps[0]), [psns[1], psns[0]]);
    qps[0].establish_responder(&responder).expect("the first responder starts");
    qps[1].establish_responder(&of_peer).expect("the second responder starts");
    qps[0].establish_requester(&requester).expect("the first requester starts");
    qps[1].establish_requester(&requester_of_peer).expect("the second requester starts");
}

pub(crate) const OK: WcStatus = WcStatus::Success;

/// All addresses of this host.
pub(crate) fn addresses_of_host() -> Vec<SocketAddr> {
    let host = netdev::addresses().expect("this host has addresses");
    let addresses: Vec<SocketAddr> =
        host.iter().filter(|found| found.up).map(|found| found.addr).collect();
    assert!(addresses.iter().any(|address| address.ip().is_loopback()));
    addresses
}

/// A program that makes packets of its own.
pub(crate) struct Stranger {
    pub(crate) socket: UdpSocket,
    to: SocketAddr,
    icrc: Icrc,
}

impl Stranger {
    pub(crate) fn new(from: SocketAddr, mut to: SocketAddr) -> Stranger {
        to.set_port(UDP_PORT);
        let socket = UdpSocket::bind(from).expect("the address is free");
        socket.set_nonblocking(true).expect("the socket is open");
        let from = socket.local_addr().expect("the socket is bound");
        let icrc = Icrc::new(from, to).expect("addresses of one family");
        Stranger { socket, to, icrc }
    }

    pub(crate) fn send(&self, packet: &Packet<'_>) {
        let mut datagram = vec![0; packet.len() + Icrc::SIZE];
        packet.emit(&mut datagram[..packet.len()]);
        self.icrc.seal(0, &mut datagram);
        self.socket.send_to(&datagram, self.to).expect("the datagram is sent");
    }

    /// Calls `look` with each packet that has arrived.
    pub(crate) fn receive(&self, mut look: impl FnMut(&Packet<'_>)) {
        let mut buffer = [0; 8192];
        while let Ok(len) = self.socket.recv(&mut buffer) {
            look(&Packet::parse(&buffer[..len - Icrc::SIZE]).expect("a packet"));
        }
    }
}
