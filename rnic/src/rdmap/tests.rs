//! Tests of streams. They run against each other over pipes in memory, and against octets made by
//! hand.

mod close;
mod errors;
mod extended;
mod fault;
mod hostile;
mod lengths;
mod not_ready;
mod placement;
mod transfer;
mod windows;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::tests::*;
use crate::*;

/// One end of a connection.
pub(crate) struct Side {
    pub(crate) queues: Queues,
    pub(crate) stream: Stream,
    pub(crate) tx: TxVec,
    pub(crate) rx: RxVec,
}

impl Deref for Side {
    type Target = Queues;

    fn deref(&self) -> &Queues {
        &self.queues
    }
}

pub(crate) fn cfg() -> StreamCfg {
    StreamCfg {
        mulpdu: 65535,
        crc: false,
        extended: false,
        completes_placed: false,
        ird: 4,
        ord: 4,
        hold: false,
        segment: 0,
        waits: false,
    }
}

impl Side {
    pub(crate) fn new(cfg: StreamCfg) -> Side {
        Side::with_srq(cfg, None, Arc::new(Keys::new()))
    }

    pub(crate) fn with_srq(cfg: StreamCfg, srq: Option<(Arc<Srq>, Pd)>, keys: Arc<Keys>) -> Side {
        let (queues, work) = Queues::new(srq, keys);
        Side { queues, stream: Stream::new(work, cfg), tx: TxVec::new(), rx: RxVec::new() }
    }
}

/// Two ends and the TCP connection between them, which accepts and delivers octets in portions of
/// any size.
pub(crate) struct Pair {
    pub(crate) a: Side,
    pub(crate) b: Side,
    to_b: Pipe,
    to_a: Pipe,
    pub(crate) rng: Rng,
    /// The maximum number of octets in flight, in each direction.
    window: usize,
    /// The maximum size of a portion.
    portion: usize,
}

/// The octets in flight.
#[derive(Default)]
struct Pipe {
    octets: Vec<u8>,
    taken: usize,
}

impl Pipe {
    fn len(&self) -> usize {
        self.octets.len() - self.taken
    }
}

impl Pair {
    pub(crate) fn new(cfg: StreamCfg, seed: u64) -> Pair {
        Pair::of(Side::new(cfg), Side::new(cfg), seed)
    }

    pub(crate) fn of(a: Side, b: Side, seed: u64) -> Pair {
        let (to_a, to_b) = (Pipe::default(), Pipe::default());
        Pair { a, b, to_b, to_a, rng: Rng(seed), window: 4 << 20, portion: 2 << 20 }
    }

    /// Makes one call of each kind at each end. Returns whether any octets moved.
    pub(crate) fn step(&mut self) -> Result<bool, Failure> {
        let Pair { a, b, to_b, to_a, rng, window, portion } = self;
        let mut moved = step_tx(a, to_b, rng, *window, *portion)?;
        moved |= step_rx(b, to_b, rng, *portion)?;
        moved |= step_tx(b, to_a, rng, *window, *portion)?;
        moved |= step_rx(a, to_a, rng, *portion)?;
        Ok(moved)
    }

    /// Runs until no octets are in transit and neither side has anything to send.
    pub(crate) fn drive(&mut self) -> Result<(), Failure> {
        while self.step()? {}
        Ok(())
    }
}

/// Returns the first `n` octets of a vector.
pub(crate) fn gathered(tx: &TxVec, n: usize) -> Vec<u8> {
    let mut octets = Vec::with_capacity(tx.octets());
    for v in tx.iov() {
        // SAFETY: the memory is valid until the stream is called again.
        octets.extend_from_slice(unsafe {
            std::slice::from_raw_parts(v.iov_base.cast::<u8>(), v.iov_len)
        });
    }
    octets.truncate(n);
    octets
}

/// Copies octets into the memory of a vector, as many as fit. Returns their number.
pub(crate) fn scatter(rx: &RxVec, octets: &[u8]) -> usize {
    let mut rest = octets;
    for v in rx.iov() {
        let (now, later) = rest.split_at(v.iov_len.min(rest.len()));
        // SAFETY: the memory is valid until the stream is called again.
        unsafe { v.iov_base.cast::<u8>().copy_from_nonoverlapping(now.as_ptr(), now.len()) };
        rest = later;
    }
    octets.len() - rest.len()
}

fn step_tx(
    side: &mut Side,
    out: &mut Pipe,
    rng: &mut Rng,
    window: usize,
    portion: usize,
) -> Result<bool, Failure> {
    let wants = side.stream.wants_tx();
    let octets = side.stream.tx(&mut side.tx)?;
    // `wants_tx` is also true for a bind, which has been carried out when `tx` returns.
    assert_eq!(octets > 0, side.stream.wants_tx() && wants, "`wants_tx` and `tx` must agree");
    assert_eq!(octets, side.tx.iov().iter().map(|v| v.iov_len).sum::<usize>());
    let accepted = rng.chunk(portion).min(octets).min(window.saturating_sub(out.len()));
    out.octets.extend(gathered(&side.tx, accepted));
    side.stream.tx_done(&mut side.tx, accepted);
    Ok(accepted > 0)
}

fn step_rx(
    side: &mut Side,
    input: &mut Pipe,
    rng: &mut Rng,
    portion: usize,
) -> Result<bool, Failure> {
    if side.stream.is_stalled() {
        return side.stream.resume();
    }
    if input.len() == 0 {
        return Ok(false);
    }
    side.stream.rx(&mut side.rx)?;
    let n = rng.chunk(portion).min(input.len()).min(side.rx.octets());
    assert_eq!(scatter(&side.rx, &input.octets[input.taken..][..n]), n);
    input.taken += n;
    if input.len() == 0 || input.taken > 4 << 20 {
        input.octets.drain(..std::mem::take(&mut input.taken));
    }
    side.stream.rx_done(&mut side.rx, n)?;
    Ok(true)
}
