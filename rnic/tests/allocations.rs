//! The data paths of a reliable connection and of a datagram queue pair do not allocate memory.
//! After the first messages, no packet, message, deadline or loss causes an allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rnic::rc::Wheel;
use rnic::rc::burst::ICRC_SIZE;
use rnic::{
    Access, Burst, Cq, DatagramQp, DatagramWr, Destination, Keys, Mr, Qp, QpCfg, RcCfg, RecvWr,
    ReliableConnection, Remote, Segment, SendOp, SendWr, UdCfg, WcStatus,
};
use wire::rocev2::{Bth, Packet, PathMtu, Psn, RnrTimer};

struct CountingAllocator;

thread_local! {
    /// The number of allocations by this thread. The test harness uses another thread.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all calls are passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // The counter no longer exists when a thread ends.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller fulfils the requirements of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfils the requirements of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MTU: PathMtu = PathMtu::Octets256;
const LEN: usize = 10 * 256 + 1;

struct End {
    keys: Arc<Keys>,
    cq: Arc<Cq>,
    qp: Arc<Qp>,
    rc: ReliableConnection,
    burst: Burst,
    memory: Box<[u8]>,
    mr: Option<Mr>,
    completed: usize,
}

impl End {
    fn new(psns: [u32; 2], now: Instant) -> End {
        let keys = Arc::new(Keys::new());
        let pd = keys.pd();
        let cq = Arc::new(Cq::new(64, |_| {}).unwrap());
        let cfg = QpCfg {
            keys: Arc::clone(&keys),
            pd,
            request_cq: Some(Arc::clone(&cq)),
            recv_cq: Some(Arc::clone(&cq)),
            srq: None,
            token: 0,
            max_requests: 16,
            max_recvs: 16,
            max_request_segments: 1,
            max_recv_segments: 1,
        };
        // SAFETY: the test runs in one thread.
        let (qp, work) = unsafe { Qp::new(cfg) }.unwrap();
        let cfg = RcCfg {
            mtu: MTU,
            ip_mtu: MTU.octets(),
            peer_qpn: 2,
            p_key: Bth::DEFAULT_P_KEY,
            sq_psn: Psn::new(psns[0]),
            rq_psn: Psn::new(psns[1]),
            initiator_depth: 4,
            responder_resources: 4,
            ack_timeout: 17,
            retries: 7,
            rnr_retries: 7,
            rnr_timer: RnrTimer::from_code(12),
            window: 64,
        };
        let mut memory = vec![0u8; LEN].into_boxed_slice();
        let all = Access {
            local_read: true,
            local_write: true,
            remote_read: true,
            remote_write: true,
            remote_atomic: true,
        };
        // SAFETY: the test drops the region before the memory, and accesses the memory nowhere
        // else.
        let mr = unsafe { Mr::new(&keys, pd, memory.as_mut_ptr(), LEN, all, false) }.unwrap();
        let rc = ReliableConnection::new(work, cfg, now).with_early_pool(&Arc::default());
        let burst = Burst::new(64, 1 << 18);
        End { keys, cq, qp, rc, burst, memory, mr: Some(mr), completed: 0 }
    }

    fn segment(&self, len: usize) -> Segment {
        let key = self.mr.as_ref().unwrap().lkey();
        Segment { addr: self.memory.as_ptr() as u64, len: len as u32, key }
    }

    fn remote(&self) -> Remote {
        let Segment { addr, key, .. } = self.segment(0);
        Remote { addr, key }
    }

    fn post(&self, op: SendOp, len: usize) {
        let segments = [self.segment(len)];
        let (signalled, solicited, fence, quiet) = (true, false, false, false);
        let wr = SendWr { id: 0, op, segments: &segments, signalled, solicited, fence, quiet };
        // SAFETY: the test runs in one thread, and the memory outlives the engine.
        unsafe { self.qp.post_send(&wr) }.unwrap();
    }

    fn receive(&self) {
        let segments = [self.segment(LEN)];
        // SAFETY: the test runs in one thread, and the memory outlives the engine.
        unsafe { self.qp.post_recv(&RecvWr { id: 0, segments: &segments, quiet: false }) }.unwrap();
    }

    /// Passes the packets that are ready to the peer, except each `lost`th packet.
    fn run(&mut self, peer: &mut End, now: Instant, sent: &mut usize, lost: usize) -> bool {
        self.burst.clear();
        self.rc.transmit(now, &mut self.burst).unwrap();
        if self.burst.is_empty() {
            self.rc.acknowledge(&mut self.burst);
        }
        let mut at = 0;
        for &len in self.burst.lens() {
            let end = at + usize::from(len);
            *sent += 1;
            if !sent.is_multiple_of(lost) {
                let packet = Packet::parse(&self.burst.octets()[at..end - ICRC_SIZE]).unwrap();
                peer.rc.receive(now, &packet).unwrap();
            }
            at = end;
        }
        // SAFETY: the test runs in one thread.
        self.completed +=
            unsafe { self.cq.poll_with(64, |wc| assert_eq!(wc.status, WcStatus::Success)) };
        at > 0
    }
}

#[test]
fn no_allocation_after_the_first_messages() {
    let mut now = Instant::now();
    let (mut a, mut b) = (End::new([1, 2], now), End::new([2, 1], now));
    let mut wheel = Wheel::new(now);
    let (mut sent, mut before) = (0, 0);
    for round in 0..500 {
        if round == 250 {
            before = ALLOCATIONS.get();
        }
        let at = b.remote();
        b.receive();
        b.receive();
        a.post(SendOp::Send { invalidate: None }, LEN);
        a.post(SendOp::Write(at), LEN);
        a.post(SendOp::Read(at), LEN);
        a.post(SendOp::WriteImm { to: at, immediate: 1 }, 1);
        let at = Remote { addr: at.addr.next_multiple_of(8), ..at };
        a.post(SendOp::FetchAdd { at, add: 1 }, 8);
        while a.completed < 5 * (round + 1) {
            let moved = a.run(&mut b, now, &mut sent, 50) | b.run(&mut a, now, &mut sent, 50);
            wheel.set(0, a.rc.deadline());
            wheel.set(1, b.rc.deadline());
            if !moved {
                now = wheel.deadline().map_or(now + Duration::from_millis(1), |at| at.max(now));
                while let Some(key) = wheel.pop(now) {
                    let end = if key == 0 { &mut a } else { &mut b };
                    end.rc.expire(now).unwrap();
                    wheel.set(key, end.rc.deadline());
                }
            }
        }
    }
    assert_eq!(ALLOCATIONS.get(), before, "messages caused allocations");
    assert!(a.rc.stats().sent_again > 100 && a.rc.stats().tx_messages == 2500);
    // A READ counts once for each of its parts.
    assert!(b.rc.stats().rx_messages >= 2500);
    for end in [&mut a, &mut b] {
        end.mr = None;
        assert_eq!(end.keys.live(), 0);
    }
}

#[test]
fn no_allocation_for_datagrams() {
    const PAYLOAD: usize = 256;
    let End { keys, cq, qp, rc, mut burst, memory, mr, .. } = End::new([1, 2], Instant::now());
    let cfg = UdCfg { q_key: 1, mtu: MTU, p_key: Bth::DEFAULT_P_KEY };
    let mut ud = DatagramQp::new(rc.into_work(), cfg);
    let to = Destination { address: IpAddr::V6(Ipv6Addr::LOCALHOST), route: 0, qpn: 2, q_key: 1 };
    let key = mr.as_ref().unwrap().lkey();
    let segment = |len: usize| [Segment { addr: memory.as_ptr() as u64, len: len as u32, key }];
    let (source, sink) = (segment(PAYLOAD), segment(LEN));
    let before = ALLOCATIONS.get();
    for id in 0..500 {
        // The last datagram finds no receive.
        for n in 0..3 {
            let (immediate, signalled) = (Some(n), true);
            let (segments, solicited, quiet) = (&source, true, false);
            let wr = DatagramWr { id, to, immediate, segments, signalled, solicited, quiet };
            // SAFETY: the test runs in one thread, and the memory outlives the engine.
            unsafe { qp.post_datagram(&wr) }.unwrap();
            if n > 0 {
                // SAFETY: the test runs in one thread, and the memory outlives the engine.
                unsafe { qp.post_recv(&RecvWr { id, segments: &sink, quiet: false }) }.unwrap();
            }
        }
        burst.clear();
        while let Some(to) = ud.next() {
            ud.transmit(to, 1, &mut burst).unwrap();
        }
        let mut rest = burst.octets();
        for &len in burst.lens() {
            let (datagram, after) = rest.split_at(len.into());
            let packet = Packet::parse(&datagram[..datagram.len() - ICRC_SIZE]).unwrap();
            ud.receive(&packet, to.address, &[0; 40]).unwrap();
            rest = after;
        }
        // SAFETY: the test runs in one thread.
        let done = unsafe { cq.poll_with(64, |wc| assert_eq!(wc.status, WcStatus::Success)) };
        assert_eq!(done, 5);
    }
    assert_eq!(ALLOCATIONS.get(), before, "datagrams caused allocations");
    assert_eq!((ud.stats().rx_datagrams, ud.stats().rx_no_receive), (1000, 500));
    drop((ud, mr));
    assert_eq!(keys.live(), 0);
}
