//! Counters of the IB extension: what an adapter, an endpoint or an EVD has done since it was
//! created.
//!
//! On the data path a counter costs one addition, without a lock and without an atomic
//! read-modify-write, because only one thread at a time writes to its memory. Therefore a reset
//! must not change the counter. The reset stores the current value as the baseline, and a query
//! reports the difference to the baseline.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_sys::describe::CONSTANTS;
use dat_sys::ib::*;

/// The number of counters of an adapter.
pub const IA: usize = DCNT_IA_ALL_COUNTERS as usize;
/// The number of counters of an endpoint that the C header defines.
pub const EP: usize = DCNT_EP_ALL_COUNTERS as usize;
/// The number of all counters of an endpoint: those that the C header defines, and [`EP_EXTRA`].
pub const EP_ALL: usize = EP + EP_EXTRA.len();
/// The names of the counters of an endpoint that the C header does not define. The first counter
/// counts operations that completed with an error, the second counter operations that were flushed.
/// Only `stats` reports them.
pub const EP_EXTRA: [&str; 2] = ["failed", "flushed"];
/// The index of the counter of operations that completed with an error.
pub const EP_FAILED: u32 = EP as u32;
/// The index of the counter of flushed operations.
pub const EP_FLUSHED: u32 = EP_FAILED + 1;
/// The number of counters of an EVD.
pub const EVD: usize = DCNT_EVD_ALL_COUNTERS as usize;

/// An array of counters. The C header defines the index of each counter.
#[derive(Debug)]
#[repr(align(64))]
pub struct CounterArray<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for CounterArray<N> {
    fn default() -> Self {
        CounterArray(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const N: usize> CounterArray<N> {
    /// Adds `n` to a counter. Only one thread at a time may add to the same counter.
    #[inline(always)]
    pub fn add(&self, counter: u32, n: u64) {
        let count = &self.0[counter as usize];
        count.store(count.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Increments a counter. Several threads may do this at the same time.
    pub fn count(&self, counter: u32) {
        self.0[counter as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> [u64; N] {
        std::array::from_fn(|i| self.0[i].load(Ordering::Relaxed))
    }
}

/// The counters that a query reads, and whether it resets them.
#[derive(Clone, Copy, Debug)]
pub struct CounterQuery {
    /// The index of the counter to read. `None` selects all counters.
    pub which: Option<usize>,
    /// Whether the query also resets the counters that it reads.
    pub reset: bool,
}

impl CounterQuery {
    /// Returns the differences between the current values `now` and the baselines. If the query is
    /// a reset, makes the current values the new baselines.
    fn difference<const N: usize>(self, baselines: &mut [u64; N], now: [u64; N]) -> [u64; N] {
        let counted = std::array::from_fn(|i| now[i].wrapping_sub(baselines[i]));
        if self.reset {
            match self.which {
                Some(i) => baselines[i] = now[i],
                None => *baselines = now,
            }
        }
        counted
    }
}

fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The counters of an adapter. Only control calls and upcalls increment them.
#[derive(Debug, Default)]
pub struct IaCounters {
    tally: CounterArray<IA>,
    baselines: Mutex<IaBaselines>,
}

#[derive(Debug)]
struct IaBaselines {
    reset: [u64; IA],
    /// The values of all counters at the time when counting of connection management was stopped.
    /// `None` if it is not stopped.
    stopped: Option<[u64; IA]>,
}

impl Default for IaBaselines {
    fn default() -> Self {
        IaBaselines { reset: [0; IA], stopped: None }
    }
}

impl IaCounters {
    /// Increments each counter of the list.
    pub fn count(&self, counters: &[DAT_IA_COUNTERS]) {
        counters.iter().for_each(|counter| self.tally.count(*counter));
    }

    /// Implements dat_ib_query_counters.
    pub fn read(&self, query: CounterQuery) -> [u64; IA] {
        let mut baselines = lock(&self.baselines);
        let now = self.now(&baselines);
        query.difference(&mut baselines.reset, now)
    }

    /// Implements dat_ib_start_counter: the counters of connection management count again, from 0.
    pub fn start_cm(&self) {
        let mut baselines = lock(&self.baselines);
        baselines.stopped = None;
        let now = self.now(&baselines);
        baselines.reset[CM].copy_from_slice(&now[CM]);
    }

    /// Implements dat_ib_stop_counter: from now on the counters of connection management keep their
    /// values.
    pub fn stop_cm(&self) {
        let mut baselines = lock(&self.baselines);
        let now = self.now(&baselines);
        baselines.stopped = Some(now);
    }

    fn now(&self, baselines: &IaBaselines) -> [u64; IA] {
        let mut now = self.tally.now();
        if let Some(stopped) = &baselines.stopped {
            now[CM].copy_from_slice(&stopped[CM]);
        }
        now
    }
}

/// The counters of connection management (`DCNT_IA_CM_…`).
const CM: std::ops::Range<usize> = DCNT_IA_CM_LISTEN as usize..DCNT_IA_LNK_ERR_RCV as usize;

/// The counters of an endpoint. They include the counts of all its former queue pairs.
#[derive(Debug)]
pub struct EpCounters(Mutex<EpCounts>);

#[derive(Debug)]
struct EpCounts {
    /// The sums of the counters of former queue pairs, plus the counts of control calls.
    past: [u64; EP_ALL],
    /// One array of counters for each queue pair whose completions may still be taken. Several
    /// threads may count in the same array, because the two queues of a queue pair may have
    /// different EVDs.
    flows: Vec<Arc<CounterArray<EP_ALL>>>,
    reset: [u64; EP_ALL],
}

impl Default for EpCounters {
    fn default() -> Self {
        EpCounters(Mutex::new(EpCounts {
            past: [0; EP_ALL],
            flows: Vec::new(),
            reset: [0; EP_ALL],
        }))
    }
}

impl EpCounters {
    /// Increments a counter that counts control calls.
    pub fn count(&self, counter: DAT_EP_COUNTERS) {
        lock(&self.0).past[counter as usize] += 1;
    }

    /// Adds and returns an array of counters for a new queue pair.
    pub fn flow(&self) -> Arc<CounterArray<EP_ALL>> {
        let mut counts = lock(&self.0);
        let EpCounts { past, flows, .. } = &mut *counts;
        flows.retain_mut(|flow| {
            let Some(unused) = Arc::get_mut(flow) else { return true };
            past.iter_mut().zip(unused.now()).for_each(|(sum, n)| *sum += n);
            false
        });
        let flow = Arc::<CounterArray<EP_ALL>>::default();
        flows.push(Arc::clone(&flow));
        flow
    }

    /// Implements dat_ib_query_counters. The result also contains the counters of [`EP_EXTRA`], at
    /// its end.
    pub fn read(&self, query: CounterQuery) -> [u64; EP_ALL] {
        let mut counts = lock(&self.0);
        let mut now = counts.past;
        for flow in &counts.flows {
            now.iter_mut().zip(flow.now()).for_each(|(sum, n)| *sum += n);
        }
        query.difference(&mut counts.reset, now)
    }
}

/// The counters of an EVD.
#[derive(Debug)]
pub struct EvdCounters {
    /// The counters. The thread that takes events or waits for them increments all counters except
    /// those of callbacks. The thread that makes a callback increments the counters of callbacks.
    pub tally: CounterArray<EVD>,
    reset: Mutex<[u64; EVD]>,
}

impl Default for EvdCounters {
    fn default() -> Self {
        EvdCounters { tally: CounterArray::default(), reset: Mutex::new([0; EVD]) }
    }
}

impl EvdCounters {
    /// Implements dat_ib_query_counters. `empty_polls` says how often the completion queue was
    /// polled and found empty.
    pub fn read(&self, query: CounterQuery, empty_polls: u64) -> [u64; EVD] {
        let mut now = self.tally.now();
        let of = |counter: u32| now[counter as usize];
        let found = of(DCNT_EVD_DEQUEUE_FOUND) + of(DCNT_EVD_DEQUEUE_POLL_FOUND);
        let dequeues = found + of(DCNT_EVD_DEQUEUE_NOT_FOUND);
        let polls = of(DCNT_EVD_DEQUEUE_POLL_FOUND) + empty_polls;
        now[DCNT_EVD_DEQUEUE as usize] = dequeues;
        now[DCNT_EVD_DEQUEUE_POLL as usize] = polls;
        query.difference(&mut lock(&self.reset), now)
    }
}

/// The names of the counters of one type of object. `first` is the name of counter 0.
pub fn names(first: &'static str) -> impl Iterator<Item = &'static str> {
    CONSTANTS
        .iter()
        .copied()
        .flatten()
        .map(|constant| constant.name)
        .skip_while(move |name| *name != first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: CounterQuery = CounterQuery { which: None, reset: false };
    const SENDS: usize = DCNT_EP_POST_SEND as usize;

    #[test]
    fn a_reset_marks_one_counter_or_all() {
        let counters = EpCounters::default();
        let flow = counters.flow();
        flow.add(DCNT_EP_POST_SEND, 1);
        flow.add(DCNT_EP_POST_SEND_DATA, 10);
        counters.count(DCNT_EP_CONNECT);
        assert_eq!(counters.read(CounterQuery { which: Some(SENDS), reset: true })[SENDS], 1);
        flow.add(DCNT_EP_POST_SEND, 1);
        assert_eq!(counters.read(ALL)[..4], [1, 0, 1, 10]);
        counters.read(CounterQuery { which: None, reset: true });
        assert_eq!(counters.read(ALL), [0; EP_ALL]);
    }

    #[test]
    fn an_endpoint_counts_through_its_incarnations() {
        let counters = EpCounters::default();
        let first = counters.flow();
        first.add(DCNT_EP_POST_SEND, 3);
        let second = counters.flow();
        // A completion of the first queue pair may still be taken.
        first.add(DCNT_EP_RECV, 1);
        drop(first);
        second.add(DCNT_EP_POST_SEND, 2);
        drop(second);
        let _third = counters.flow();
        assert_eq!(counters.0.lock().unwrap().flows.len(), 1);
        let counted = counters.read(ALL);
        assert_eq!((counted[SENDS], counted[DCNT_EP_RECV as usize]), (5, 1));
    }

    #[test]
    fn counters_of_connections_stop_and_start() {
        let counters = IaCounters::default();
        let read = |counter: u32| counters.read(ALL)[counter as usize];
        counters.count(&[DCNT_IA_CM_LISTEN, DCNT_IA_PZ_CREATE]);
        counters.stop_cm();
        counters.count(&[DCNT_IA_CM_LISTEN, DCNT_IA_PZ_CREATE]);
        // A second stop does not update the values of the first stop.
        counters.stop_cm();
        assert_eq!((read(DCNT_IA_CM_LISTEN), read(DCNT_IA_PZ_CREATE)), (1, 2));
        counters.start_cm();
        counters.count(&[DCNT_IA_CM_LISTEN]);
        assert_eq!((read(DCNT_IA_CM_LISTEN), read(DCNT_IA_PZ_CREATE)), (1, 2));
    }

    #[test]
    fn names_are_those_of_the_header() {
        let at = |first, counter: u32| names(first).nth(counter as usize).unwrap();
        assert_eq!(at("DCNT_IA_PZ_CREATE", DCNT_IA_DIAG_ERR_SQ_TREE), "DCNT_IA_DIAG_ERR_SQ_TREE");
        assert_eq!(at("DCNT_EP_CONNECT", DCNT_EP_RECV_RDMA_IMM_DATA), "DCNT_EP_RECV_RDMA_IMM_DATA");
        assert_eq!(at("DCNT_EVD_WAIT", DCNT_EVD_DTO_CALLBACK), "DCNT_EVD_DTO_CALLBACK");
    }
}
