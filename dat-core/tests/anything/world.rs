//! Random calls of several threads, including frees, on thread-safe adapters. The threads call
//! every function of the table on handles that other threads free at the same time, on stale
//! handles and on handles of other types. Each call must return a status, and the process must not
//! crash.
//!
//! `OPENDAT_TEST="calls=N;seed=N"` sets the number of calls and the seed of the random sequence.

use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use dat_core::Error;
use dat_core::addr::SockAddr;
use dat_sys::ib::*;
use dat_sys::*;

use crate::calls::CALLS;
use crate::client::{ProviderTable, dat, extended, word};
use crate::random::{Random, setting};

const THREADS: u64 = 8;
/// The number of adapters. Most calls use only objects of one adapter.
const ADAPTER_COUNT: usize = 2;
/// The number of handles of each type that the threads know at one time, for each adapter.
const HANDLES_PER_KIND: usize = 3;
/// The length in octets of the memory that all threads register and nobody else uses.
pub(crate) const MEMORY: usize = 8192;
/// If no thread ends a call within this time, the test assumes that all threads hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// The type of a handle. The variants are in the order in which the objects are created.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ia,
    Cno,
    Evd,
    Pz,
    Lmr,
    Rmr,
    Srq,
    Ep,
    DatagramEp,
    Psp,
    Rsp,
    Csp,
    Cr,
    /// The address handle of a datagram endpoint's peer.
    Address,
}

const KINDS: [Kind; 14] = [
    Kind::Ia,
    Kind::Cno,
    Kind::Evd,
    Kind::Pz,
    Kind::Lmr,
    Kind::Rmr,
    Kind::Srq,
    Kind::Ep,
    Kind::DatagramEp,
    Kind::Psp,
    Kind::Rsp,
    Kind::Csp,
    Kind::Cr,
    Kind::Address,
];

/// The data that all threads share.
pub(crate) struct World {
    pub(crate) table: ProviderTable,
    pub(crate) name: CString,
    pub(crate) address: SockAddr,
    pub(crate) memory: *mut u8,
    /// The length of one transfer in octets.
    pub(crate) octets: u32,
    handles: [[[AtomicUsize; HANDLES_PER_KIND]; ADAPTER_COUNT]; KINDS.len()],
    pub(crate) qualifier: AtomicU64,
    pub(crate) lmr_context: AtomicU32,
    pub(crate) rmr_context: AtomicU32,
    /// The number of a datagram queue pair.
    pub(crate) qpn: AtomicU32,
    /// The context of an event about a peer of a datagram endpoint.
    pub(crate) peer_context: AtomicU64,
    calls: AtomicU64,
    /// For each function, the number of calls that succeeded and the number of calls that reported
    /// an invalid handle.
    answers: [[AtomicU64; 2]; CALLS.len()],
}

// SAFETY: handles of a thread-safe adapter may be used from any thread. Nobody follows `memory`.
unsafe impl Send for World {}
// SAFETY: handles of a thread-safe adapter may be used from any thread. Nobody follows `memory`.
unsafe impl Sync for World {}

/// One thread that makes calls.
pub(crate) struct Caller<'a> {
    pub(crate) world: &'a World,
    random: Random,
    /// The adapter whose objects the current call uses.
    group: usize,
}

/// Makes `calls` calls with the table of a provider, or `short` calls in a short run. Each transfer
/// has a length of `octets`.
pub(crate) fn run(calls: u64, short: u64, octets: u32, table: ProviderTable, name: &str) {
    let calls = if setting("short").is_some() { short } else { calls };
    let calls = setting("calls").unwrap_or(calls);
    let seed = setting("seed").unwrap_or(1);
    println!("{calls} calls, seed {seed}");
    let world = World {
        table,
        name: CString::new(name).expect("a name"),
        address: SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0))),
        memory: Box::leak(vec![0; MEMORY].into_boxed_slice()).as_mut_ptr(),
        octets,
        handles: Default::default(),
        qualifier: AtomicU64::new(1),
        lmr_context: AtomicU32::new(0),
        rmr_context: AtomicU32::new(0),
        qpn: AtomicU32::new(1),
        peer_context: AtomicU64::new(0),
        calls: AtomicU64::new(0),
        answers: [const { [const { AtomicU64::new(0) }; 2] }; CALLS.len()],
    };
    let (done, ended) = channel::<()>();
    thread::scope(|s| {
        let world = &world;
        s.spawn(move || world.watch(&ended));
        for index in 0..THREADS {
            let done = done.clone();
            let mut caller = Caller { world, random: Random(seed * 1000 + index), group: 0 };
            s.spawn(move || {
                (0..calls / THREADS).for_each(|_| caller.call_random());
                drop(done);
            });
        }
        drop(done);
    });
    let mut last = Caller { world: &world, random: Random(seed), group: 0 };
    for group in 0..ADAPTER_COUNT {
        last.free(Kind::Ia, world.handles[Kind::Ia as usize][group][0].load(Ordering::SeqCst));
    }
    assert_eq!(
        dat_core::handle::live_count(),
        0,
        "handles are left after the adapters were closed"
    );
    world.check_calls();
}

impl World {
    /// Ends the process if no thread makes calls any more.
    fn watch(&self, ended: &std::sync::mpsc::Receiver<()>) {
        let mut before = u64::MAX;
        while ended.recv_timeout(HANG_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            let now = self.calls.load(Ordering::Relaxed);
            if now == before {
                eprintln!("no call has ended in {HANG_TIMEOUT:?}, after {now}");
                std::process::abort();
            }
            before = now;
        }
    }

    /// Checks that every function was called. The number of successful calls is only printed,
    /// because for some functions, such as dat_ep_dup_connect, chance decides whether their objects
    /// are in a state in which the call succeeds.
    fn check_calls(&self) {
        let mut missing = Vec::new();
        for ((name, _), [good, stale]) in CALLS.iter().zip(&self.answers) {
            let (good, stale) = (good.load(Ordering::Relaxed), stale.load(Ordering::Relaxed));
            println!("{name}: {good} successes, {stale} invalid handles");
            if good + stale == 0 {
                missing.push(name);
            }
        }
        assert!(missing.is_empty(), "never called: {missing:?}");
    }
}

impl Caller<'_> {
    /// Makes one call of a random function.
    fn call_random(&mut self) {
        let which = self.choose();
        self.group = self.below(ADAPTER_COUNT);
        let answer = CALLS[which].1(self);
        self.world.calls.fetch_add(1, Ordering::Relaxed);
        let [good, stale] = &self.world.answers[which];
        match answer {
            Ok(()) => good.fetch_add(1, Ordering::Relaxed),
            Err(error) if error.kind() == DAT_INVALID_HANDLE => {
                stale.fetch_add(1, Ordering::Relaxed)
            }
            Err(error) => {
                // The status of a call in which the library has panicked. The panic ends at the C
                // boundary.
                assert_ne!(error.kind(), DAT_INTERNAL_ERROR, "{}", CALLS[which].0);
                0
            }
        };
    }

    /// Chooses a function. Functions that free or end an object are chosen less often than those
    /// that create one, so that there are objects to use.
    fn choose(&mut self) -> usize {
        const ENDING_CALLS: [&str; 6] =
            ["_free", "_close", "_reject", "_handoff", "_disconnect", "_reset"];
        const STARTING_CALLS: [&str; 5] =
            ["_create", "_accept", "_connect", "_dequeue", "_post_recv"];
        loop {
            let which = self.below(CALLS.len());
            let (name, _) = CALLS[which];
            let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
            let often = if has(&ENDING_CALLS) {
                1
            } else if has(&STARTING_CALLS) {
                16
            } else {
                8
            };
            if self.below(16) < often {
                return which;
            }
        }
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.random.below(limit as u64) as usize
    }

    /// Returns true once in `times` calls, on average.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns a handle that the threads know. Most of the handles are of this type.
    pub(crate) fn pick(&mut self, kind: Kind) -> *mut std::ffi::c_void {
        let (kind, group) = match self.below(64) {
            0 => return null_mut(),
            1 => (KINDS[self.below(KINDS.len())], self.group),
            2..=4 => (kind, self.below(ADAPTER_COUNT)),
            // All functions of endpoints are also called with endpoints for datagrams.
            5..=24 if kind == Kind::Ep => (Kind::DatagramEp, self.group),
            _ => (kind, self.group),
        };
        let place = self.place(kind);
        self.world.handles[kind as usize][group][place].load(Ordering::Relaxed) as *mut _
    }

    /// Returns a random index into the known handles of this type. Only one handle of an adapter is
    /// known in each group, so most calls of a group use the same adapter.
    fn place(&mut self, kind: Kind) -> usize {
        if kind == Kind::Ia { 0 } else { self.below(HANDLES_PER_KIND) }
    }

    /// Makes a new handle known to all threads, instead of an older handle. The object of the older
    /// handle is freed, although other threads may use it.
    pub(crate) fn publish(
        &mut self,
        kind: Kind,
        handle: *mut std::ffi::c_void,
        made: Result<(), Error>,
    ) -> Result<(), Error> {
        if made.is_ok() {
            let place = self.place(kind);
            let places = &self.world.handles[kind as usize][self.group];
            let before = places[place].swap(handle as usize, Ordering::Relaxed);
            self.free(kind, before);
        }
        made
    }

    /// Frees an object, even if other threads use it.
    fn free(&mut self, kind: Kind, handle: usize) {
        let (table, handle) = (self.world.table, handle as *mut _);
        let _ = match kind {
            Kind::Ia => dat!(table, ia_close_func(handle, DAT_CLOSE_ABRUPT_FLAG)),
            Kind::Cno => dat!(table, cno_free_func(handle)),
            Kind::Evd => dat!(table, evd_free_func(handle)),
            Kind::Pz => dat!(table, pz_free_func(handle)),
            Kind::Lmr => dat!(table, lmr_free_func(handle)),
            Kind::Rmr => dat!(table, rmr_free_func(handle)),
            Kind::Srq => dat!(table, srq_free_func(handle)),
            Kind::Ep | Kind::DatagramEp => dat!(table, ep_free_func(handle)),
            Kind::Psp => dat!(table, psp_free_func(handle)),
            Kind::Rsp => dat!(table, rsp_free_func(handle)),
            Kind::Csp => dat!(table, csp_free_func(handle)),
            Kind::Cr => dat!(table, cr_reject_func(handle, 0, null_mut())),
            Kind::Address => {
                let (ep, peer) = (self.pick(Kind::DatagramEp), self.peer(handle));
                extended(table, ep, DAT_IB_UD_AH_FREE_OP, &[word(&peer)], 4)
            }
        };
    }

    /// The address of a datagram queue pair.
    pub(crate) fn peer(&self, address: *mut std::ffi::c_void) -> DAT_IB_ADDR_HANDLE {
        let qpn = self.world.qpn.load(Ordering::Relaxed);
        DAT_IB_ADDR_HANDLE { ah: address.cast(), qpn, ..DAT_IB_ADDR_HANDLE::zeroed() }
    }

    /// Makes the new handles that an event contains known to all threads.
    pub(crate) fn publish_handles_of(&mut self, event: &DAT_EVENT) {
        match event.event_number {
            DAT_CONNECTION_REQUEST_EVENT | DAT_IB_UD_CONNECTION_REQUEST_EVENT => {
                // SAFETY: the number of the event says that this member of the union is valid.
                let request = unsafe { event.event_data.cr_arrival_event_data }.cr_handle;
                let _ = self.publish(Kind::Cr, request, Ok(()));
                // Few other calls accept such a request with an endpoint for datagrams.
                if event.event_number == DAT_IB_UD_CONNECTION_REQUEST_EVENT {
                    let ep = self.pick(Kind::DatagramEp);
                    let _ = dat!(self.world.table, cr_accept_func(request, ep, 0, null_mut()));
                }
            }
            DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED => {
                let data = &raw const event.event_extension_data;
                // SAFETY: the number of the event says that these members of the unions are valid.
                let (peer, context) = unsafe {
                    let data = data.cast::<DAT_IB_EXTENSION_EVENT_DATA>().read();
                    (data.detail.remote_ah, data.context.as_64)
                };
                self.world.qpn.store(peer.qpn, Ordering::Relaxed);
                self.world.peer_context.store(context, Ordering::Relaxed);
                let _ = self.publish(Kind::Address, peer.ah.cast(), Ok(()));
            }
            _ => {}
        }
    }
}
