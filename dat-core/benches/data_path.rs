//! Measures the cost of dat-core itself: one post with the dequeue of its completion, and one
//! registration of 1 GiB. The calls go through the function table to a transport that only queues
//! the completion. Prints the times for the plain table and for the thread-safe table.
//!
//! `cargo bench -p opendat-core --bench data_path`

use std::cell::UnsafeCell;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use dat_core::addr::SockAddr;
use dat_core::error::Result;
use dat_core::export::{self, AnyProvider};
use dat_core::provider::*;
use dat_core::{Error, OpenError};
use dat_sys::*;
use waiting::{Wake, WakeReason};

const RING: usize = 64;

/// A ring of completions. The thread that posts writes them, and the thread that dequeues reads
/// them. In this benchmark both are the same thread.
struct Ring(UnsafeCell<[MaybeUninit<Wc>; RING]>, UnsafeCell<(usize, usize)>);

// SAFETY: the benchmark has one thread.
unsafe impl Sync for Ring {}
// SAFETY: the benchmark has one thread.
unsafe impl Send for Ring {}

impl Ring {
    #[inline]
    fn push(&self, wc: Wc) {
        // SAFETY: there is one thread, and fewer than RING completions are outstanding.
        unsafe {
            let ends = &mut *self.1.get();
            (*self.0.get())[ends.1 % RING].write(wc);
            ends.1 += 1;
        }
    }
}

#[derive(Default)]
struct BenchProvider;
/// An object that this adapter does not support.
struct UnsupportedObject;
struct Adapter(Attrs);
struct Cq(Arc<Ring>);
struct Qp(Arc<Ring>, Token, Sink<Adapter>);

impl Provider for BenchProvider {
    type Transport = Adapter;
    const NAME: &'static str = "nothing";
    fn open(&self, _: &str, _: &str) -> std::result::Result<Adapter, OpenError> {
        Ok(Adapter(Attrs {
            adapter: "nothing".into(),
            vendor: "nobody".into(),
            address: ([127, 0, 0, 1], 0).into(),
            interface: 0,
            max_eps: 1,
            max_dtos: RING,
            max_segments: 4,
            max_read_segments: 4,
            max_read_depth: 4,
            max_evds: 8,
            max_evd_depth: RING,
            max_regions: 1,
            max_windows: 0,
            window_scopes: DAT_RMR_SCOPE_ANY,
            atomics: false,
            immediate: false,
            max_region_size: u64::MAX,
            max_pds: 1,
            max_message: u32::MAX,
            max_datagram: None,
            max_private: 64,
            max_srqs: 0,
            max_srq_depth: 0,
            srq_across_pds: false,
            knows_allocated: true,
            pins: false,
            zero_based: true,
            quiet: true,
            strict: false,
            stats: false,
            optimal_alignment: 64,
            named: Vec::new(),
        }))
    }
}

fn absent<T>() -> Result<T> {
    Err(Error::of(DAT_NOT_IMPLEMENTED))
}

// SAFETY: a queue pair calls its sink only in `connect`, nobody else calls any sink, and no region
// is accessed.
unsafe impl Transport for Adapter {
    type Pd = ();
    type Mr = UnsupportedObject;
    type Mw = std::convert::Infallible;
    type Cq = Cq;
    type Srq = UnsupportedObject;
    type Qp = Qp;
    type Address = std::convert::Infallible;
    type Listener = ();
    type ConnectionRequest = ();

    fn attrs(&self) -> &Attrs {
        &self.0
    }
    fn pd(&self) -> Result<()> {
        Ok(())
    }
    unsafe fn mr(&self, _: &(), _: Mem, _: Access) -> Result<UnsupportedObject> {
        Ok(UnsupportedObject)
    }
    fn cq(&self, _: usize, _: Sink<Self>) -> Result<Cq> {
        let slots = UnsafeCell::new([MaybeUninit::uninit(); RING]);
        Ok(Cq(Arc::new(Ring(slots, UnsafeCell::new((0, 0))))))
    }
    fn srq(&self, _: &(), _: usize, _: usize, _: Sink<Self>) -> Result<UnsupportedObject> {
        absent()
    }
    fn qp(&self, cfg: QpCfg<'_, Self>, sink: Sink<Self>) -> Result<Qp> {
        Ok(Qp(cfg.request_cq.ok_or(Error::of(DAT_INVALID_STATE))?.0.clone(), cfg.token, sink))
    }
    fn listen(&self, _: Option<u16>, _: usize, _: Sink<Self>) -> Result<()> {
        absent()
    }
    fn port(&self, _: &()) -> u16 {
        0
    }
    fn reject(&self, _: (), _: &[u8]) -> Result<()> {
        absent()
    }
    fn sleep(&self, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        wake.park(deadline)
    }
}

impl Region for UnsupportedObject {
    fn lkey(&self) -> u32 {
        0
    }
    fn rkey(&self) -> u32 {
        0
    }
}

impl Receives for UnsupportedObject {
    unsafe fn post_recv(&self, _: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        Err(PostError::Unsupported)
    }
    fn set_low_watermark(&self, _: usize) {}
    fn resize(&self, _: usize) -> Result<()> {
        absent()
    }
    fn available(&self) -> usize {
        0
    }
}

// SAFETY: everything between the ends of the ring was pushed, in this order, and all of it is
// returned.
unsafe impl Completions for Cq {
    #[inline]
    unsafe fn poll(&self, out: &mut Polled<'_>) {
        // SAFETY: there is one thread, and everything between the ends was pushed.
        unsafe {
            let ends = &mut *self.0.1.get();
            while ends.0 != ends.1 && out.room() > 0 {
                out.push((*self.0.0.get())[ends.0 % RING].assume_init());
                ends.0 += 1;
            }
        }
    }
    unsafe fn arm(&self, _: bool) -> bool {
        true
    }
    unsafe fn resize(&self, _: usize) -> Result<()> {
        absent()
    }
}

// SAFETY: a request completes where it is posted. Receives are refused, and no request is reported
// as carried out.
unsafe impl Queue<Adapter> for Qp {
    #[inline]
    unsafe fn post_send(&self, wr: &SendWr<'_>) -> std::result::Result<(), PostError> {
        let wc = Wc {
            id: wr.id,
            qp: self.1,
            bytes: 0,
            invalidated: None,
            immediate: None,
            op: WcOp::Send,
            status: WcStatus::Success,
        };
        self.0.push(wc);
        Ok(())
    }
    unsafe fn post_recv(&self, _: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        Err(PostError::Unsupported)
    }
    fn connect(&self, to: &Connect<'_>) -> Result<()> {
        let (peer, local) = (to.addr, to.addr);
        self.2.call(Upcall::Established { private: &[], peer, local, depth: to.depth });
        Ok(())
    }
    fn accept(&self, (): (), _: &[u8], _: ReadDepth) -> Result<()> {
        absent()
    }
    fn disconnect(&self, _: Close) {}
    fn allocated(&self) -> Option<Allocated> {
        Some(Allocated::default())
    }
    unsafe fn carried_out(&self) -> u64 {
        0
    }
}

static TABLE: AtomicPtr<DAT_PROVIDER> = AtomicPtr::new(null_mut());

unsafe extern "C" fn add(table: *const DAT_PROVIDER, _: *const DAT_PROVIDER_INFO) -> DAT_RETURN {
    TABLE.store(table.cast_mut(), Ordering::SeqCst);
    DAT_SUCCESS
}

unsafe extern "C" fn remove(_: *const DAT_PROVIDER, _: *const DAT_PROVIDER_INFO) -> DAT_RETURN {
    DAT_SUCCESS
}

unsafe extern "C" fn same(ia: DAT_IA_HANDLE, out: *mut DAT_IA_HANDLE) -> DAT_RETURN {
    // SAFETY: `out` may be written to.
    unsafe { out.write(ia) };
    DAT_SUCCESS
}

const REGISTRY: RegistryFns =
    RegistryFns { add_provider: add, remove_provider: remove, get_ia_handle: same };

/// The number of rounds in a sample. Samples are short, so that some of them are not interrupted by
/// other work on the machine.
const ROUNDS: u32 = 100_000;
const SAMPLES: usize = 500;

/// The length of the region in bytes.
const REGION: usize = 1 << 30;
const REGISTRATIONS: usize = 10_001;

/// Measures, in nanoseconds, a post with its dequeue (the best sample) and dat_lmr_create (the
/// median).
fn measure(thread_safe: bool) -> (f64, f64) {
    let name = CString::new(if thread_safe { "safe" } else { "plain" }).unwrap_or_default();
    let mut info = DAT_PROVIDER_INFO::zeroed();
    for (to, from) in info.ia_name.iter_mut().zip(name.as_bytes()) {
        *to = *from as _;
    }
    (info.dapl_version_major, info.is_thread_safe) = (2, thread_safe.into());
    // SAFETY: all arguments are as the standard's prototypes say, and there is one thread.
    unsafe {
        export::init(AnyProvider::of::<BenchProvider>(), REGISTRY, &info, c"".as_ptr());
        let table = &*TABLE.load(Ordering::SeqCst);
        let (mut ia, mut evd, mut pz, mut ep) = (null_mut(), null_mut(), null_mut(), null_mut());
        let mut async_evd = DAT_HANDLE_NULL;
        let check = |status: DAT_RETURN| assert_eq!(status, DAT_SUCCESS);
        check(table.ia_open_func.unwrap()(name.as_ptr().cast_mut(), 1, &mut async_evd, &mut ia));
        check(table.pz_create_func.unwrap()(ia, &mut pz));
        let depth = RING as DAT_COUNT;
        let flags = DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG;
        check(table.evd_create_func.unwrap()(ia, depth, null_mut(), flags, &mut evd));
        check(table.ep_create_func.unwrap()(ia, pz, evd, evd, evd, null(), &mut ep));
        let to = SockAddr::from(SocketAddr::from(([127, 0, 0, 1], 0)));
        check(table.ep_connect_func.unwrap()(
            ep,
            to.as_ptr(),
            1,
            DAT_TIMEOUT_INFINITE,
            0,
            null_mut(),
            0,
            0,
        ));
        let mut event = DAT_EVENT::zeroed();
        check(table.evd_dequeue_func.unwrap()(evd, &mut event));
        assert_eq!(event.event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
        let mut best = Duration::MAX;
        for _ in 0..SAMPLES {
            let start = Instant::now();
            for i in 0..ROUNDS {
                // A consumer calls a function of the table through the first word of the handle.
                let table = &**ep.cast::<*const DAT_PROVIDER>();
                let cookie = DAT_DTO_COOKIE { as_64: i.into() };
                check(table.ep_post_send_func.unwrap()(ep, 0, null_mut(), cookie, 0));
                let table = &**evd.cast::<*const DAT_PROVIDER>();
                check(table.evd_dequeue_func.unwrap()(evd, &mut event));
            }
            best = best.min(start.elapsed());
        }
        assert_eq!(
            event.event_data.dto_completion_event_data.user_cookie.as_64,
            u64::from(ROUNDS) - 1
        );
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let memory = libc::mmap(null_mut(), REGION, access, flags, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        let mut times: Vec<Duration> = (0..REGISTRATIONS)
            .map(|_| {
                let (mut lmr, mut lkey, mut rkey, mut size, mut at) = (null_mut(), 0, 0, 0, 0);
                let region = DAT_REGION_DESCRIPTION { for_va: memory };
                let start = Instant::now();
                check(table.lmr_create_func.unwrap()(
                    ia,
                    DAT_MEM_TYPE_VIRTUAL,
                    region,
                    REGION as DAT_VLEN,
                    pz,
                    DAT_MEM_PRIV_ALL_FLAG,
                    DAT_VA_TYPE_VA,
                    &mut lmr,
                    &mut lkey,
                    &mut rkey,
                    &mut size,
                    &mut at,
                ));
                let took = start.elapsed();
                check(table.lmr_free_func.unwrap()(lmr));
                took
            })
            .collect();
        times.sort_unstable();
        assert_eq!(libc::munmap(memory, REGION), 0);
        check(table.ia_close_func.unwrap()(ia, DAT_CLOSE_ABRUPT_FLAG));
        (best.as_secs_f64() * 1e9 / f64::from(ROUNDS), times[REGISTRATIONS / 2].as_secs_f64() * 1e9)
    }
}

fn main() {
    for (what, thread_safe) in [("plain", false), ("thread-safe", true)] {
        let (each, registration) = measure(thread_safe);
        println!(
            "{what:>11}: {each:5.1} ns for a post and a dequeue, \
             {registration:.0} ns to register 1 GiB"
        );
    }
}
