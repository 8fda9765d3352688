//! Calls that make objects while there is no memory left: they are refused, and leave nothing behind.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

use dat_core::Error;
use dat_core::ep::{self, Handles};
use dat_core::evd;
use dat_core::handle::Node;
use dat_core::ia::{self, AsyncEvd, Entry, Ia};
use dat_core::mem::lmr::{self, Lmr, Memory};
use dat_core::mem::{Pz, pz};
use dat_core::srq;
use dat_sys::*;
use provider_tcp_emu::{Tcp, TcpEmu};

/// The system's allocator, which can be told to have nothing for this thread.
struct Scarce;

#[derive(Clone, Copy)]
struct Scarcity {
    /// What is smaller is always there.
    from: usize,
    /// So many more are given.
    left: usize,
}

const PLENTY: Scarcity = Scarcity { from: usize::MAX, left: usize::MAX };

thread_local! {
    static SCARCITY: Cell<Scarcity> = const { Cell::new(PLENTY) };
}

impl Scarce {
    fn gives(size: usize) -> bool {
        // A thread that ends has none any more.
        let asked = SCARCITY.try_with(|scarcity| {
            let Scarcity { from, left } = scarcity.get();
            if size < from {
                return true;
            }
            scarcity.set(Scarcity { from, left: left.saturating_sub(1) });
            left > 0
        });
        asked.unwrap_or(true)
    }
}

// SAFETY: it is the system's allocator, or there is no memory.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        if Scarce::gives(layout.size()) { unsafe { System.alloc(layout) } } else { null_mut() }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        if Scarce::gives(layout.size()) { unsafe { System.alloc_zeroed(layout) } } else { null_mut() }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        if Scarce::gives(size) { unsafe { System.realloc(at, layout, size) } } else { null_mut() }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Scarce = Scarce;

/// Makes `call` while one allocation of at least `from` octets more is given each time, until it succeeds; how often it was refused.
fn refusals<T>(from: usize, mut call: impl FnMut() -> Result<T, Error>) -> (T, usize) {
    for left in 0.. {
        SCARCITY.set(Scarcity { from, left });
        let result = call();
        SCARCITY.set(PLENTY);
        match result {
            Ok(made) => return (made, left),
            Err(error) => assert_eq!(error.kind(), DAT_INSUFFICIENT_RESOURCES, "{error}"),
        }
    }
    unreachable!("an allocation for each number")
}

unsafe extern "C" fn no_table(_: *const DAT_PROVIDER, _: *const DAT_PROVIDER_INFO) -> DAT_RETURN {
    DAT_SUCCESS
}

unsafe extern "C" fn no_mapping(_: DAT_IA_HANDLE, _: *mut DAT_IA_HANDLE) -> DAT_RETURN {
    DAT_INVALID_HANDLE
}

fn open() -> &'static Node<Ia<Tcp>> {
    let registry =
        RegistryFns { add_provider: no_table, remove_provider: no_table, get_ia_handle: no_mapping };
    let entry =
        Entry { name: "lo", provider: "tcp-emu", table: std::ptr::null(), registry, thread_safe: false };
    // SAFETY: no dispatcher is given.
    unsafe { ia::open(&TcpEmu, "lo", entry, AsyncEvd::Elsewhere) }.unwrap()
}

/// The first region, and one for which a table of regions has to grow.
#[test]
fn a_region_needs_memory() {
    let ia = open();
    let zone: &Node<Pz<Tcp>> = pz::create(ia).unwrap();
    let mut buffer = [0u8; 16];
    let addr = buffer.as_mut_ptr();
    let register = || {
        let memory = Memory::Virtual { addr: addr.cast(), length: 16 };
        // SAFETY: the buffer outlives the adapter.
        unsafe { lmr::create(ia, memory, zone, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA) }
    };
    let mut made: Vec<&Node<Lmr<Tcp>>> = Vec::new();
    let mut refused = 0;
    for _ in 0..300 {
        let objects = ia.object_count();
        let (region, times) = refusals(0, register);
        assert_eq!(ia.object_count(), objects + 1, "what was refused left nothing behind");
        made.push(region);
        refused += times;
    }
    assert!(refused > made.len(), "each takes one allocation at least, and tables grow: {refused} refusals");
    let contexts: std::collections::HashSet<_> = made.iter().map(|region| region.context()).collect();
    assert_eq!(contexts.len(), made.len());
    // SAFETY: nobody uses it any more.
    unsafe { ia::close(ia, DAT_CLOSE_ABRUPT_FLAG) }.unwrap();
}

/// What the consumer chooses the size of.
#[test]
fn queues_need_memory() {
    const LARGE: usize = 16 << 10;
    let ia = open();
    let zone = pz::create(ia).unwrap();
    let streams = DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG;
    let (events, refused) = refusals(LARGE, || evd::create(ia, 8192, None, streams));
    assert!(refused > 0);
    let attr = DAT_SRQ_ATTR { max_recv_dtos: 4096, max_recv_iov: 4, low_watermark: 0 };
    let (_, refused) = refusals(LARGE, || srq::create(ia, zone, &attr));
    assert!(refused > 0);
    let attr = DAT_EP_ATTR {
        service_type: DAT_SERVICE_TYPE_RC,
        qos: DAT_QOS_BEST_EFFORT,
        max_recv_dtos: 4096,
        max_request_dtos: 4096,
        max_recv_iov: 4,
        max_request_iov: 4,
        srq_soft_hw: DAT_HW_DEFAULT,
        ..DAT_EP_ATTR::zeroed()
    };
    let handles = || Handles {
        pz: Some(zone),
        recv: Some(events),
        request: Some(events),
        connect: Some(events),
        srq: None,
    };
    let (_, refused) = refusals(LARGE, || ep::create(ia, handles(), Some(&attr)));
    assert!(refused >= 3, "both queues and the cookies: {refused}");
    // SAFETY: nobody uses it any more.
    unsafe { ia::close(ia, DAT_CLOSE_ABRUPT_FLAG) }.unwrap();
}
