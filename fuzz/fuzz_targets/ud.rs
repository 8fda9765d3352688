//! Feeds packets to a datagram queue pair, with posts of the consumer between them. Checks:
//!
//! - The code under test does not panic.
//! - No octet is written outside the posted receives.
//! - No packet makes the queue pair fail.
//! - Every request and every receive completes once, in order.
//! - Each packet counts once.
//!
//! The input is a list of steps in a short form. A packet starts as a valid datagram, because the
//! fuzzer would not find the Q_Key by chance. Then some of its octets are changed.
#![no_main]

use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use rnic::rc::burst::ICRC_SIZE;
use rnic::ud::HEADER_SIZE;
use rnic::{
    Access, Burst, Cq, DatagramQp, DatagramWr, Destination, Keys, Mr, Pd, Qp, QpCfg, RecvWr,
    Segment, Srq, UdCfg, Wc, WcOp, WcStatus, Work,
};
use wire::rocev2::{Bth, Deth, Extension, Opcode, Packet, PathMtu, Psn};

const REGION_BYTES: usize = 1024;
const GUARD_BYTES: usize = 64;
const Q_KEY: u32 = 0x0123_4567;
const MTU: PathMtu = PathMtu::Octets256;
/// The host from which all packets come.
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const HEADER: [u8; HEADER_SIZE] = [0x5A; HEADER_SIZE];
/// The maximum number of outstanding receives, and the maximum number of outstanding requests.
const DEPTH: usize = 8;

fuzz_target!(|data: &[u8]| run(data));

fn run(data: &[u8]) {
    let Some((&flags, mut data)) = data.split_first() else { return };
    let keys = Arc::new(Keys::new());
    let pd = keys.pd();
    let mut memory = vec![0xA5u8; REGION_BYTES + 2 * GUARD_BYTES].into_boxed_slice();
    let start = memory.as_mut_ptr().wrapping_add(GUARD_BYTES);
    let local = Access { local_read: true, local_write: true, ..Access::default() };
    // SAFETY: the memory outlives the region, which is dropped at the end, and is read only
    // afterwards.
    let region = unsafe { Mr::new(&keys, pd, start, REGION_BYTES, local, false) }.unwrap();
    let srq = (flags & 1 != 0).then(|| Arc::new(Srq::new(&keys, pd, DEPTH, 2, || {}).unwrap()));
    let (cq, qp, work) = queue_pair(&keys, pd, &srq);
    let cfg = UdCfg { q_key: Q_KEY, mtu: MTU, p_key: Bth::DEFAULT_P_KEY };
    let mut fuzz = Fuzz { ud: DatagramQp::new(work, cfg), srq, cq, qp, next: [0; 2], done: [0; 2] };
    let mut burst = Burst::new(4, 1 << 14);
    let (mut packets, mut looped) = (0, Vec::new());
    let segment = |at: u8, len: u8| {
        let at = usize::from(at) * 2;
        let len = (usize::from(len) * 2).min(REGION_BYTES - at);
        Segment { addr: start as u64 + at as u64, len: len as u32, key: region.lkey() }
    };

    while let Some((&[step, pick, at, len], after)) = data.split_first_chunk() {
        data = after;
        match step & 3 {
            0 => {
                let (body, after) = data.split_at(usize::from(len).min(data.len()));
                data = after;
                packets += fuzz.receive(&packet(pick, at, body));
            }
            1 => fuzz.post_recv(&[segment(at, len), segment(len, pick)]),
            2 => fuzz.post_datagram(pick, &[segment(at, len), segment(len, pick)]),
            _ => {
                burst.clear();
                if let Some(to) = fuzz.ud.next() {
                    fuzz.ud.transmit(to, 9, &mut burst).unwrap();
                }
                let mut rest = burst.octets();
                looped.clear();
                for &len in burst.lens() {
                    let (datagram, after) = rest.split_at(len.into());
                    looped.push(datagram[..datagram.len() - ICRC_SIZE].to_vec());
                    rest = after;
                }
                assert!(rest.is_empty());
                packets += looped.iter().map(|bytes| fuzz.receive(bytes)).sum::<u64>();
            }
        }
        fuzz.poll(WcStatus::Success);
    }

    let counts = fuzz.ud.stats().list();
    let received =
        counts.iter().filter(|(name, _)| !name.ends_with("sent") && !name.ends_with("send"));
    assert_eq!(received.map(|(_, count)| count).sum::<u64>(), packets);
    fuzz.ud.flush();
    fuzz.poll(WcStatus::Flushed);
    let shared = fuzz.srq.as_ref().map_or(0, |srq| srq.available()) as u64;
    assert_eq!(fuzz.done, [fuzz.next[0], fuzz.next[1] - shared]);
    drop((fuzz, region));
    assert_eq!(keys.live(), 0);
    for guard in [0, GUARD_BYTES + REGION_BYTES] {
        assert_eq!(memory[guard..guard + GUARD_BYTES], [0xA5; GUARD_BYTES]);
    }
}

fn queue_pair(keys: &Arc<Keys>, pd: Pd, srq: &Option<Arc<Srq>>) -> (Arc<Cq>, Arc<Qp>, Work) {
    let cq = Arc::new(Cq::new(4 * DEPTH, |_| {}).unwrap());
    let cfg = QpCfg {
        keys: Arc::clone(keys),
        pd,
        request_cq: Some(Arc::clone(&cq)),
        recv_cq: Some(Arc::clone(&cq)),
        srq: srq.clone(),
        token: 0,
        max_requests: DEPTH,
        max_recvs: DEPTH,
        max_request_segments: 2,
        max_recv_segments: 2,
    };
    // SAFETY: only this thread uses the queue pair.
    let (qp, work) = unsafe { Qp::new(cfg) }.unwrap();
    (cq, qp, work)
}

/// The queue pair, and the numbers of requests and receives that were posted and have completed.
struct Fuzz {
    ud: DatagramQp,
    srq: Option<Arc<Srq>>,
    cq: Arc<Cq>,
    qp: Arc<Qp>,
    next: [u64; 2],
    done: [u64; 2],
}

impl Fuzz {
    /// Passes a packet to the engine. Returns the number of packets, 0 or 1.
    fn receive(&mut self, bytes: &[u8]) -> u64 {
        let Ok(packet) = Packet::parse(bytes) else { return 0 };
        self.ud.receive(&packet, HOST, &HEADER).unwrap();
        1
    }

    fn post_recv(&mut self, segments: &[Segment]) {
        if self.next[1] - self.done[1] == DEPTH as u64 {
            return;
        }
        let wr = RecvWr { id: self.next[1], segments, quiet: false };
        // SAFETY: the memory outlives the engine, and only this thread posts.
        let is_posted = unsafe {
            match &self.srq {
                Some(srq) => srq.post_recv(&wr).map(drop),
                None => self.qp.post_recv(&wr),
            }
        };
        self.next[1] += u64::from(is_posted.is_ok());
    }

    fn post_datagram(&mut self, pick: u8, segments: &[Segment]) {
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, pick & 1));
        let wr = DatagramWr {
            id: self.next[0],
            to: Destination { address, route: u32::from(pick & 2), qpn: pick.into(), q_key: Q_KEY },
            immediate: (pick & 4 != 0).then_some(pick.into()),
            segments,
            signalled: true,
            solicited: pick & 8 != 0,
            quiet: pick & 16 != 0,
        };
        // SAFETY: the memory outlives the engine, and only this thread posts.
        self.next[0] += u64::from(unsafe { self.qp.post_datagram(&wr) }.is_ok());
    }

    /// Takes the completions, all of which must have this status.
    fn poll(&mut self, status: WcStatus) {
        let mut done = [const { MaybeUninit::<Wc>::uninit() }; 4 * DEPTH];
        // SAFETY: only this thread polls the queue, and `poll` has written `n` completions.
        let done = unsafe {
            let n = self.cq.poll(&mut done);
            done[..n].iter().map(|wc| wc.assume_init_read()).collect::<Vec<Wc>>()
        };
        for wc in done {
            let kind = usize::from(wc.op == WcOp::Recv);
            assert_eq!((wc.id, wc.status), (self.done[kind], status));
            assert!(wc.op == WcOp::Send || status != WcStatus::Success || wc.bytes >= 40);
            self.done[kind] += 1;
        }
    }
}

/// Builds a datagram with the payload `body`. `pick` says which part of it is changed: the octet at
/// the offset `at`, the length, or the opcode.
fn packet(pick: u8, at: u8, body: &[u8]) -> Vec<u8> {
    let deth = Deth { q_key: Q_KEY, source_qpn: 9 };
    let (opcode, extension) = match pick & 1 {
        0 => (Opcode::DatagramSendOnly, Extension::Deth(deth)),
        _ => (Opcode::DatagramSendOnlyImmediate, Extension::DethImmediate(deth, 7)),
    };
    let bth = Bth { solicited: pick & 2 != 0, ..Bth::new(opcode, 5, Psn::new(0)) };
    let packet = Packet { bth, extension, payload: body };
    let mut bytes = vec![0; packet.len()];
    packet.emit(&mut bytes);
    match pick >> 2 & 3 {
        1 => {
            let at = usize::from(at) % bytes.len();
            bytes[at] ^= pick >> 4 | 1;
        }
        2 => bytes.truncate(usize::from(at)),
        3 => bytes[0] = at,
        _ => {}
    }
    bytes
}
