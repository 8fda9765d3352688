//! Feeds octets to an established connection, with and without CRC. Checks:
//!
//! - The code under test does not panic.
//! - No octet is written outside the memory that the peer may write.
//! - Every request and every receive has completed at the end.
//!
//! The input is a list of frames in a short form (length, then ULPDU). The target adds the MPA
//! framing, so that the fuzzer need not find lengths, pads and CRCs by chance. The first octet of
//! the input selects the options. STags are random in each run. Therefore a frame names the region
//! or the window by a small number, which the target replaces by the STag.
#![no_main]

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use rnic::{
    Access, BindWr, Cq, Keys, Mr, Mw, Qp, QpCfg, RecvWr, Remote, RxVec, Segment, SendOp, SendWr,
    Stream, StreamCfg, TxVec, View, Wc,
};

const REGION_BYTES: usize = 256;
const GUARD_BYTES: usize = 64;
/// The number of octets of the sink that the window covers. They come after the octets that this
/// side's own requests and receives use.
const WINDOW_BYTES: usize = 10;

thread_local! {
    /// All streams share these vectors, as in an adapter, because the vectors are large.
    static VECS: RefCell<(TxVec, RxVec)> = RefCell::default();
}

fuzz_target!(|data: &[u8]| VECS.with_borrow_mut(|(tx, rx)| run(data, tx, rx)));

fn run(data: &[u8], tx: &mut TxVec, rx: &mut RxVec) {
    let Some((&flags, mut data)) = data.split_first() else { return };
    let (crc, raw, direct, extended) =
        (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0, flags & 16 != 0);

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
        max_requests: 4,
        max_recvs: 8,
        max_request_segments: 2,
        max_recv_segments: 2,
    };
    // SAFETY: only this thread uses the queue pair.
    let (qp, work) = unsafe { Qp::new(cfg) }.unwrap();
    let window = Mw::new(&keys, pd, flags & 32 != 0);
    let shown = sink_at(240, WINDOW_BYTES);
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
            id: 8,
            window: &window,
            view: Some(view),
            signalled: true,
            quiet: false,
        })
    }
    .unwrap();
    let mut stream = Stream::new(
        work,
        StreamCfg {
            mulpdu: 128,
            crc,
            extended,
            completes_placed: true,
            ird: 2,
            ord: 2,
            hold: flags & 8 != 0,
            segment: 134,
            waits: flags & 16 != 0,
        },
    );
    for id in 0..4 {
        let segments = [sink_at(0, 50), sink_at(50, 100)];
        // SAFETY: the memory outlives the stream.
        unsafe { qp.post_recv(&RecvWr { id, segments: &segments, quiet: false }) }.unwrap();
    }
    for id in 0..2 {
        let at = Remote { addr: 1, key: 2 };
        let (op, len) = match extended && id == 0 {
            true => (SendOp::FetchAdd { at, add: 1 }, 8),
            false => (SendOp::Read(at), 40),
        };
        let segments = [sink_at(150 + 40 * id, len)];
        let wr = SendWr {
            id: 9,
            op,
            segments: &segments,
            signalled: true,
            solicited: false,
            fence: false,
            quiet: false,
        };
        // SAFETY: the memory outlives the stream.
        unsafe { qp.post_send(&wr) }.unwrap();
    }

    let mut failed = false;
    while let (Some((&len, rest)), false) = (data.split_first(), failed) {
        let (frame, rest) = rest.split_at(usize::from(len).min(rest.len()));
        data = rest;
        let bytes =
            if raw { frame.to_vec() } else { fpdu(frame, crc, (exposed.rkey(), base), key) };
        failed = match direct {
            false => stream.rx_octets(&bytes).is_err(),
            true => feed_in_place(&mut stream, rx, &bytes).is_err(),
        };
        match stream.tx(tx) {
            Ok(n) => stream.tx_done(tx, n.min(usize::from(len))),
            Err(_) => failed = true,
        }
    }
    if failed {
        stream.terminate();
    }
    stream.flush();
    assert!(stream.is_drained());

    let mut done = [const { MaybeUninit::<Wc>::uninit() }; 8];
    // SAFETY: only this thread polls the queue.
    assert_eq!(unsafe { cq.poll(&mut done) }, 7, "each posted work request completes once");
    drop((window, exposed, sink));
    assert_eq!(keys.live(), 0);
    for guard in [0, GUARD_BYTES + REGION_BYTES, 2 * (GUARD_BYTES + REGION_BYTES)] {
        assert_eq!(memory[guard..guard + GUARD_BYTES], [0xA5; GUARD_BYTES]);
    }
    // Behind the sink of the second request, only the octets of the window may have been written.
    let behind = &memory[GUARD_BYTES + REGION_BYTES + GUARD_BYTES..][230..REGION_BYTES];
    assert_eq!((&behind[..10], &behind[10 + WINDOW_BYTES..]), (&[0xA5; 10][..], &[0xA5; 6][..]));
}

/// Frames a ULPDU for MPA. May replace an STag in a tagged segment, a READ request or an atomic
/// request. The first octet of the STag selects the replacement: 1 is STag and address of the
/// region, 2 is STag and address of the window, 3 is only the window's STag, which a SEND may
/// invalidate.
fn fpdu(ulpdu: &[u8], crc: bool, region: (u32, u64), window: u32) -> Vec<u8> {
    let mut bytes = (ulpdu.len() as u16).to_be_bytes().to_vec();
    bytes.extend_from_slice(ulpdu);
    for at in [2 + 2, 2 + 18 + 8, 2 + 18 + 16] {
        let Some(place) = bytes.get_mut(at..at + 12) else { continue };
        let (stag, base) = match place[0] {
            1 => region,
            2 | 3 => (window, 0),
            _ => continue,
        };
        let alone = place[0] == 3;
        let offset = u64::from(place[11]) + u64::from(place[10] & 1) * 256;
        place[..4].copy_from_slice(&stag.to_be_bytes());
        if !alone {
            place[4..].copy_from_slice(&(base + offset).to_be_bytes());
        }
    }
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let sum = if crc { crc32c(&bytes) } else { 0 };
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// An independent implementation of the CRC, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            crc >> 1 ^ if crc & 1 != 0 { 0x82F6_3B78 } else { 0 }
        })
    })
}

/// Feeds octets as a read from a socket does: directly into the memory that the stream names.
fn feed_in_place(
    stream: &mut Stream,
    rx: &mut RxVec,
    mut bytes: &[u8],
) -> Result<(), rnic::Failure> {
    while !bytes.is_empty() {
        stream.rx(rx)?;
        let mut n = 0;
        for place in rx.iov() {
            let (now, later) = bytes.split_at(place.iov_len.min(bytes.len()));
            // SAFETY: the place is valid until the stream is called again.
            unsafe {
                place.iov_base.cast::<u8>().copy_from_nonoverlapping(now.as_ptr(), now.len())
            };
            (n, bytes) = (n + now.len(), later);
        }
        stream.rx_done(rx, n)?;
    }
    Ok(())
}
