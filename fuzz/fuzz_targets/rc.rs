//! Feeds packets to an established reliable connection. Checks:
//!
//! - The code under test does not panic.
//! - No octet is written outside the memory that the peer may write.
//! - Every request and every receive completes once.
//!
//! The input is a list of packets in a short form: opcode, distance of the PSN from the expected
//! PSN, flags, and the octets after the BTH. So the fuzzer need not find numbers by chance. Memory
//! keys are random in each run. Therefore a packet names the region or the window by a small
//! number, which the target replaces by key and address.
#![no_main]

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use rnic::rc::EarlyPool;
use rnic::{
    Access, BindWr, Burst, Cq, Keys, Mr, Mw, Qp, QpCfg, RcCfg, RecvWr, ReliableConnection, Remote,
    Segment, SendOp, SendWr, View, Wc,
};
use wire::rocev2::{Bth, Opcode, Packet, PathMtu, Psn, RnrTimer};

const REGION_BYTES: usize = 1024;
const GUARD_BYTES: usize = 64;
/// The number of octets of the sink that the window covers. They come after the octets that this
/// side's own requests and receives use.
const WINDOW_BYTES: usize = 10;
const MTU: PathMtu = PathMtu::Octets256;

fuzz_target!(|data: &[u8]| run(data));

fn run(data: &[u8]) {
    let Some((&flags, mut data)) = data.split_first() else { return };
    let keys = Arc::new(Keys::new());
    let pd = keys.pd();
    let mut memory = vec![0xA5u8; 2 * REGION_BYTES + 3 * GUARD_BYTES].into_boxed_slice();
    let start = memory.as_mut_ptr();
    let local = Access { local_read: true, local_write: true, ..Access::default() };
    let open = Access { remote_read: true, remote_write: true, remote_atomic: true, ..local };
    // SAFETY: the memory outlives the regions, which are dropped at the end, and is read only
    // afterwards.
    let (exposed, sink) = unsafe {
        (
            Mr::new(&keys, pd, start.add(GUARD_BYTES), REGION_BYTES, open, false).unwrap(),
            Mr::new(
                &keys,
                pd,
                start.add(2 * GUARD_BYTES + REGION_BYTES),
                REGION_BYTES,
                local,
                false,
            )
            .unwrap(),
        )
    };
    let base = start as u64 + GUARD_BYTES as u64;
    let sink_at = |offset: usize, len: usize| Segment {
        addr: base + (REGION_BYTES + GUARD_BYTES + offset) as u64,
        len: len as u32,
        key: sink.lkey(),
    };

    let cq = Arc::new(Cq::new(64, |_| {}).unwrap());
    let cfg = QpCfg {
        keys: Arc::clone(&keys),
        pd,
        request_cq: Some(Arc::clone(&cq)),
        recv_cq: Some(Arc::clone(&cq)),
        srq: None,
        token: 0,
        max_requests: 8,
        max_recvs: 8,
        max_request_segments: 2,
        max_recv_segments: 2,
    };
    // SAFETY: only this thread uses the queue pair.
    let (qp, work) = unsafe { Qp::new(cfg) }.unwrap();
    let mut now = Instant::now();
    let cfg = RcCfg {
        mtu: MTU,
        ip_mtu: 1500,
        peer_qpn: 5,
        p_key: Bth::DEFAULT_P_KEY,
        sq_psn: Psn::new(0xFF_FFFE),
        rq_psn: Psn::new(0xFF_FFF0),
        initiator_depth: 2,
        responder_resources: u32::from(flags & 3),
        ack_timeout: 10,
        retries: 3,
        rnr_retries: flags >> 2 & 7,
        rnr_timer: RnrTimer::from_code(1),
        window: 1 << (flags >> 5),
    };
    // The pool has memory for the packets of one connection.
    let early_pool = Arc::new(EarlyPool::new(1 << 15));
    let mut rc = ReliableConnection::new(work, cfg, now).with_early_pool(&early_pool);
    let mut burst = Burst::new(8, 1 << 16);

    let window = Mw::new(&keys, pd, flags & 32 != 0);
    let shown = sink_at(REGION_BYTES - WINDOW_BYTES, WINDOW_BYTES);
    let access = Access { remote_read: true, remote_write: true, ..Access::default() };
    let view = View {
        region: &sink,
        addr: shown.addr,
        len: WINDOW_BYTES as u64,
        access,
        zero_based: true,
    };
    // SAFETY: only this thread uses the queue pair.
    let key = unsafe {
        qp.post_bind(&BindWr {
            id: 0,
            window: &window,
            view: Some(view),
            signalled: true,
            quiet: false,
        })
    }
    .unwrap();
    for id in 0..4 {
        let segments = [sink_at(0, 50), sink_at(50, 300)];
        // SAFETY: the memory outlives the engine.
        unsafe { qp.post_recv(&RecvWr { id, segments: &segments, quiet: false }) }.unwrap();
    }
    let at = Remote { addr: 1, key: 2 };
    let requests = [
        (SendOp::Send { invalidate: None }, sink_at(0, 600)),
        (SendOp::Read(at), sink_at(350, 600)),
        (SendOp::FetchAdd { at, add: 1 }, sink_at(950, 8)),
        (SendOp::Write(at), sink_at(0, 300)),
    ];
    for (op, segment) in requests {
        let segments = [segment];
        let (signalled, solicited, fence, quiet) = (true, false, false, false);
        let wr = SendWr { id: 1, op, segments: &segments, signalled, solicited, fence, quiet };
        // SAFETY: the memory outlives the engine.
        unsafe { qp.post_send(&wr) }.unwrap();
    }
    // This call binds the window before the first packet arrives.
    let mut failed = rc.transmit(now, &mut burst).is_err();

    let (mut expected, mut answered) = (cfg.rq_psn, cfg.sq_psn);
    let mut next = || {
        let (&[code, ahead, control, len], rest) = data.split_first_chunk()?;
        let (body, rest) = rest.split_at(usize::from(len).min(rest.len()));
        data = rest;
        let responds = Opcode::from_code(code).is_some_and(Opcode::is_response);
        let next = if responds { &mut answered } else { &mut expected };
        let psn = *next + i32::from(ahead as i8) as u32;
        if ahead == 0 {
            *next = next.next();
        }
        Some((control, packet((code, psn, control), body, (exposed.rkey(), base), key)))
    };
    while !failed
        && !rc.is_peer_close_done()
        && let Some((control, bytes)) = next()
    {
        if control & 8 != 0 {
            rc.start_peer_close(now);
        }
        now += Duration::from_micros(u64::from(control >> 4 & 3) * 1_000);
        burst.clear();
        failed = match Packet::parse(&bytes) {
            Ok(packet) => rc.receive(now, &packet).is_err(),
            Err(_) => false,
        };
        if control & 0x40 != 0 {
            rc.acknowledge(&mut burst);
        }
        failed = failed || rc.transmit(now, &mut burst).is_err() || rc.expire(now).is_err();
        assert_eq!(
            burst.lens().iter().map(|&len| usize::from(len)).sum::<usize>(),
            burst.octets().len()
        );
    }
    if failed {
        rc.transmit_fatal_nak(&mut burst);
    }
    rc.flush();
    assert!(rc.is_drained());
    assert_eq!(early_pool.used(), 0);
    // After the end of the connection, this side only acknowledges packets.
    let mut responder = rc.into_ack_only_responder();
    while let Some((_, bytes)) = next() {
        burst.clear();
        if let Ok(packet) = Packet::parse(&bytes) {
            responder.receive(&packet);
            responder.transmit(&mut burst);
        }
    }

    let mut done = [const { MaybeUninit::<Wc>::uninit() }; 16];
    // SAFETY: only this thread polls the queue.
    assert_eq!(unsafe { cq.poll(&mut done) }, 9, "each posted work request completes once");
    drop((responder, window, exposed, sink));
    assert_eq!(keys.live(), 0);
    for guard in [0, GUARD_BYTES + REGION_BYTES, 2 * (GUARD_BYTES + REGION_BYTES)] {
        assert_eq!(memory[guard..guard + GUARD_BYTES], [0xA5; GUARD_BYTES]);
    }
    // No octet may have been written between the sink of the atomic operation and the window.
    let behind =
        &memory[GUARD_BYTES + REGION_BYTES + GUARD_BYTES..][958..REGION_BYTES - WINDOW_BYTES];
    assert!(behind.iter().all(|&byte| byte == 0xA5));
}

/// Builds a packet from a BTH and the octets `body`, in which it may replace a memory key. The
/// first octet of a RETH or AtomicETH selects the replacement: 1 is key and address of the region,
/// 2 is key and address of the window. In an IETH, 3 is the key of the window.
///
/// This function uses three parts of `control`: AckReq, the pad, and whether the payload is
/// extended to the MTU. The caller uses the other bits: the time, an acknowledgement, the end of
/// the connection.
fn packet(
    (code, psn, control): (u8, Psn, u8),
    body: &[u8],
    region: (u32, u64),
    window: u32,
) -> Vec<u8> {
    let mut bytes = vec![code, (control & 3) << 4, 0xFF, 0xFF, 0, 0, 0, 5, control & 0x80];
    bytes.extend_from_slice(&psn.value().to_be_bytes()[1..]);
    bytes.extend_from_slice(body);
    let header = Opcode::from_code(code).map_or(Bth::SIZE, Opcode::header_len);
    if control & 4 != 0 && bytes.len() < header + MTU.octets() {
        bytes.resize(header + MTU.octets(), 0xEE);
    }
    if let Some(place) = bytes.get_mut(Bth::SIZE..Bth::SIZE + 12) {
        let known = match place[0] {
            1 => Some(region),
            2 => Some((window, 0)),
            _ => None,
        };
        if let Some((key, base)) = known {
            let offset = u64::from(place[7]) + u64::from(place[6] & 3) * 256;
            place[..8].copy_from_slice(&(base + offset).to_be_bytes());
            place[8..].copy_from_slice(&key.to_be_bytes());
        } else if place[0] == 3 {
            place[..4].copy_from_slice(&window.to_be_bytes());
        }
    }
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
