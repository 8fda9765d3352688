//! Measures the cost of a message in the engines alone: two streams in one thread, with a memory
//! copy in place of TCP. `cargo bench -p opendat-rnic --bench stream [FILTER]`

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rnic::{
    Access, Cq, Keys, Mr, Pd, Qp, QpCfg, RecvWr, Remote, RxVec, Segment, SendOp, SendWr, Stream,
    StreamCfg, TxVec, Wc,
};

struct Side {
    qp: Arc<Qp>,
    cq: Arc<Cq>,
    stream: Stream,
    memory: Box<[u8]>,
    mr: Mr,
}

impl Side {
    fn new(keys: &Arc<Keys>, pd: Pd, len: usize) -> Side {
        let cq = Arc::new(Cq::new(1024, |_| {}).unwrap());
        let cfg = QpCfg {
            keys: Arc::clone(keys),
            pd,
            request_cq: Some(Arc::clone(&cq)),
            recv_cq: Some(Arc::clone(&cq)),
            srq: None,
            token: 0,
            max_requests: 256,
            max_recvs: 256,
            max_request_segments: 4,
            max_recv_segments: 4,
        };
        // SAFETY: everything runs in one thread.
        let (qp, work) = unsafe { Qp::new(cfg) }.unwrap();
        let stream = Stream::new(
            work,
            StreamCfg {
                mulpdu: 65535,
                crc: false,
                extended: true,
                completes_placed: false,
                ird: 16,
                ord: 16,
                hold: false,
                segment: 0,
                waits: true,
            },
        );
        let mut memory = vec![1; len].into_boxed_slice();
        let access = Access {
            local_read: true,
            local_write: true,
            remote_read: true,
            remote_write: true,
            ..Access::default()
        };
        // SAFETY: the memory lives as long as the region, and only the engines use it.
        let mr = unsafe { Mr::new(keys, pd, memory.as_mut_ptr(), len, access, false) }.unwrap();
        Side { qp, cq, stream, memory, mr }
    }

    fn segment(&self, len: usize) -> Segment {
        Segment { addr: self.memory.as_ptr() as u64, len: len as u32, key: self.mr.lkey() }
    }

    fn drain(&self) -> usize {
        let mut out = [const { MaybeUninit::<Wc>::uninit() }; 32];
        let mut all = 0;
        loop {
            // SAFETY: everything runs in one thread.
            match unsafe { self.cq.poll(&mut out) } {
                0 => return all,
                n => all += n,
            }
        }
    }
}

/// Moves all octets that `from` has to send. Returns the time spent on sending and on receiving.
fn carry(from: &mut Side, to: &mut Side, tx: &mut TxVec, rx: &mut RxVec) -> (Duration, Duration) {
    let (mut sending, mut receiving) = (Duration::ZERO, Duration::ZERO);
    loop {
        let start = Instant::now();
        let n = from.stream.tx(tx).unwrap();
        sending += start.elapsed();
        if n == 0 {
            return (sending, receiving);
        }
        let mut source = tx.iov().iter().copied();
        let mut piece = source.next();
        while piece.is_some() {
            let start = Instant::now();
            to.stream.rx(rx).unwrap();
            let mut read = 0;
            for place in rx.iov() {
                let mut at = 0;
                while let Some(from) = piece.as_mut().filter(|_| at < place.iov_len) {
                    let n = from.iov_len.min(place.iov_len - at);
                    // SAFETY: both pieces are valid until the streams are called again.
                    unsafe {
                        let target = place.iov_base.cast::<u8>().add(at);
                        target.copy_from_nonoverlapping(from.iov_base.cast::<u8>(), n);
                        from.iov_base = from.iov_base.add(n);
                    }
                    from.iov_len -= n;
                    (at, read) = (at + n, read + n);
                    if from.iov_len == 0 {
                        piece = source.next();
                    }
                }
            }
            to.stream.rx_done(rx, read).unwrap();
            receiving += start.elapsed();
        }
        let start = Instant::now();
        from.stream.tx_done(tx, n);
        sending += start.elapsed();
    }
}

fn run(what: &str, window: usize, len: usize, op: fn(&Side) -> SendOp, rounds: usize) {
    if std::env::args().skip(1).any(|filter| !filter.starts_with('-') && !what.contains(&filter)) {
        return;
    }
    let keys = Arc::new(Keys::new());
    let pd = keys.pd();
    let (mut a, mut b) = (Side::new(&keys, pd, len), Side::new(&keys, pd, len));
    let (mut tx, mut rx) = (TxVec::new(), RxVec::new());
    let op = op(&b);
    let (from, to) = ([a.segment(len)], [b.segment(len)]);
    let mut best = [f64::MAX; 5];
    for _ in 0..rounds {
        let mut spent = [Duration::ZERO; 5];
        for _ in 0..20 {
            let start = Instant::now();
            if matches!(op, SendOp::Send { .. }) {
                for id in 0..window as u64 {
                    // SAFETY: everything runs in one thread, and the memory outlives the stream.
                    unsafe { b.qp.post_recv(&RecvWr { id, segments: &to, quiet: false }) }.unwrap();
                }
            }
            let posted = Instant::now();
            for id in 0..window as u64 {
                let wr = SendWr {
                    id,
                    op,
                    segments: &from,
                    signalled: true,
                    solicited: false,
                    fence: false,
                    quiet: false,
                };
                // SAFETY: everything runs in one thread, and the memory outlives the stream.
                unsafe { a.qp.post_send(black_box(&wr)) }.unwrap();
            }
            let ready = Instant::now();
            let (sending, receiving) = carry(&mut a, &mut b, &mut tx, &mut rx);
            let carried = Instant::now();
            let done = a.drain() + b.drain();
            assert!(done >= window);
            spent[0] += start.elapsed();
            spent[1] += (posted - start) + carried.elapsed();
            spent[2] += ready - posted;
            spent[3] += sending;
            spent[4] += receiving;
        }
        for (best, spent) in best.iter_mut().zip(spent) {
            *best = best.min(spent.as_nanos() as f64 / (20 * window) as f64);
        }
    }
    let [all, recv_poll, post, send, receive] = best;
    let rate = len as f64 / all;
    println!(
        "{what:<28} {all:>9.1} ns  = recv+poll {recv_poll:.1} + post {post:.1} + tx {send:.1} \
         + copy, rx {receive:.1}  ({rate:.1} GB/s)"
    );
}

fn main() {
    let send: fn(&Side) -> SendOp = |_| SendOp::Send { invalidate: None };
    let write: fn(&Side) -> SendOp =
        |b| SendOp::Write(Remote { addr: b.memory.as_ptr() as u64, key: b.mr.rkey() });
    run("64 B send, window 64", 64, 64, send, 2000);
    run("64 B send, window 1", 1, 64, send, 2000);
    run("64 B write, window 64", 64, 64, write, 2000);
    run("4 KiB write, window 64", 64, 4 << 10, write, 500);
    run("16 KiB write, window 64", 64, 16 << 10, write, 200);
    run("1 MiB write, window 16", 16, 1 << 20, write, 10);
}
