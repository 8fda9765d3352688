//! Tests of the IB extension if one adapter or both adapters are opened without it
//! (`extended=off`).

use std::time::{Duration, Instant};

use dat_core::Error;
use dat_core::conn::cr::{self, Cr};
use dat_core::conn::psp;
use dat_core::ep::{self, Atomic, Ep, Handles};
use dat_core::evd::{self, Evd};
use dat_core::handle::{self, Node};
use dat_core::ia::{self, AsyncEvd, Entry, Ia};
use dat_core::mem::pz;
use dat_core::provider::{Remote, Segment};
use dat_sys::ib::*;
use dat_sys::*;
use provider_tcp_emu::{Tcp, TcpEmu};

unsafe extern "C" fn no_table(_: *const DAT_PROVIDER, _: *const DAT_PROVIDER_INFO) -> DAT_RETURN {
    DAT_SUCCESS
}

unsafe extern "C" fn no_mapping(_: DAT_IA_HANDLE, _: *mut DAT_IA_HANDLE) -> DAT_RETURN {
    DAT_INVALID_HANDLE
}

const EVENT_LIMIT: DAT_TIMEOUT = 60_000_000;

struct Side {
    ia: &'static Node<Ia<Tcp>>,
    ep: &'static Node<Ep<Tcp>>,
    all: &'static Node<Evd<Tcp>>,
}

impl Side {
    fn new(params: &str) -> Side {
        let registry = RegistryFns {
            add_provider: no_table,
            remove_provider: no_table,
            get_ia_handle: no_mapping,
        };
        let entry = Entry {
            name: "lo",
            provider: "tcp-emu",
            table: std::ptr::null(),
            registry,
            thread_safe: false,
        };
        // SAFETY: the call names no dispatcher.
        let ia = unsafe { ia::open(&TcpEmu, params, entry, AsyncEvd::Exists) }.unwrap();
        let all =
            evd::create(ia, 64, None, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG)
                .unwrap();
        let pz = Some(pz::create(ia).unwrap());
        let handles =
            Handles { pz, recv: Some(all), request: Some(all), connect: Some(all), srq: None };
        Side { ia, ep: ep::create(ia, handles, None).unwrap(), all }
    }

    fn expect(&self, number: DAT_EVENT_NUMBER) -> DAT_EVENT {
        // SAFETY: no other thread takes events from the EVD during this call.
        let event = unsafe { self.all.wait(EVENT_LIMIT, 1) }.unwrap().event.unwrap();
        assert_eq!(event.event_number, number);
        event
    }

    /// Returns whether the adapter's provider names all three operations. It must name all or none.
    fn names_operations(&self) -> bool {
        let mut attr = DAT_PROVIDER_ATTR::zeroed();
        self.ia.provider_attributes(&mut attr);
        let name = |n: usize| {
            // SAFETY: there are as many attributes as the count says, with terminated names, while
            // the adapter is open.
            unsafe { std::ffi::CStr::from_ptr((*attr.provider_specific_attr.add(n)).name) }
        };
        let names: Vec<_> = (0..attr.num_provider_specific_attr as usize).map(name).collect();
        let of_three =
            [DAT_IB_ATTR_IMMED_DATA, DAT_IB_ATTR_FETCH_AND_ADD, DAT_IB_ATTR_CMP_AND_SWAP];
        let named = of_three.iter().filter(|name| names.contains(name)).count();
        assert!(names.contains(&DAT_IB_ATTR_COUNTERS) && (named == 0 || named == 3), "{names:?}");
        named == 3
    }

    /// Tries each operation, and returns the results.
    fn try_all(&self) -> [Result<(), Error>; 3] {
        let (at, flags) = (Remote { addr: 0, key: 0 }, DAT_COMPLETION_DEFAULT_FLAG);
        let sink = Segment { addr: 0, len: 8, key: 0 };
        let swap = Atomic::CompareSwap { compare: 0, swap: 1 };
        // SAFETY: each post is refused, because no segment can be valid.
        unsafe {
            [
                self.ep.post_rdma_write_immed(&[], 1, (at, 0), 7, flags),
                self.ep.post_atomic(Atomic::FetchAdd(1), sink, 2, (at, 8), flags),
                self.ep.post_atomic(swap, sink, 3, (at, 8), flags),
            ]
        }
    }
}

/// Connects two sides in one thread.
fn connect(a: &Side, b: &Side) {
    let psp =
        psp::create(b.ia, dat_core::conn::Qualifier::Any, b.all, DAT_PSP_CONSUMER_FLAG).unwrap();
    let to = "127.0.0.1:0".parse().unwrap();
    a.ep.connect(to, psp.qualifier(), EVENT_LIMIT, b"", DAT_QOS_BEST_EFFORT, 0).unwrap();
    let start = Instant::now();
    // Each side makes progress when it is polled.
    let request = loop {
        assert!(
            start.elapsed() < Duration::from_micros(EVENT_LIMIT.into()),
            "no connection request arrived"
        );
        // SAFETY: only this thread takes events from the EVD.
        let _ = unsafe { a.all.dequeue() };
        // SAFETY: only this thread takes events from the EVD.
        if let Ok(event) = unsafe { b.all.dequeue() } {
            assert_eq!(event.event_number, DAT_CONNECTION_REQUEST_EVENT);
            // SAFETY: the event's number says which member is valid. The request exists until it is
            // answered.
            break unsafe {
                handle::get::<Cr<Tcp>>(event.event_data.cr_arrival_event_data.cr_handle)
            }
            .unwrap();
        }
    };
    // SAFETY: nothing uses the request any more.
    unsafe { cr::accept(request, Some(b.ep), b"") }.unwrap();
    a.expect(DAT_CONNECTION_EVENT_ESTABLISHED);
    b.expect(DAT_CONNECTION_EVENT_ESTABLISHED);
}

#[test]
fn the_extension_needs_both_sides() {
    for (active, passive) in [
        ("lo extended=off", "lo"),
        ("lo", "lo extended=off"),
        ("lo extended=off", "lo extended=off"),
    ] {
        let (a, b) = (Side::new(active), Side::new(passive));
        for (side, params) in [(&a, active), (&b, passive)] {
            assert_eq!(side.names_operations(), !params.contains("off"), "{params}");
        }
        connect(&a, &b);
        for (from, to) in [(&a, &b), (&b, &a)] {
            let unsupported = Err(Error::of(DAT_MODEL_NOT_SUPPORTED));
            assert_eq!(from.try_all(), [unsupported; 3], "{active} to {passive}");
            // The connection works as before, and the refused operations have used no resources.
            // SAFETY: the requests have no segments, so no memory must stay valid.
            unsafe {
                to.ep.post_recv(&[], 5, DAT_COMPLETION_DEFAULT_FLAG).unwrap();
                from.ep.post_send(&[], 6, DAT_COMPLETION_DEFAULT_FLAG).unwrap();
            }
            for side in [from, to] {
                // SAFETY: the event's number says which member is valid.
                let dto = unsafe {
                    side.expect(DAT_DTO_COMPLETION_EVENT).event_data.dto_completion_event_data
                };
                assert_eq!(dto.status, DAT_DTO_SUCCESS);
            }
        }
        for side in [a, b] {
            // SAFETY: nothing uses the adapter any more.
            unsafe { ia::close(side.ia, DAT_CLOSE_ABRUPT_FLAG) }.unwrap();
        }
    }
}
