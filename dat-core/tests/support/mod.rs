//! Two adapters of the provider mem, and the objects that most tests need.

#![allow(dead_code, unreachable_pub)] // each test file uses its part

use std::sync::atomic::{AtomicU32, Ordering};

use dat_core::conn::Qualifier;
use dat_core::conn::psp::{self, Psp};
use dat_core::ep::{self, Ep, Handles};
use dat_core::evd::{self, Evd};
use dat_core::handle::{self, Node};
use dat_core::ia::{self, AsyncEvd, Entry, Ia};
use dat_core::mem::{Pz, pz};
use dat_core::provider::{Access, Mem as Memory, Region, Segment, Transport};
use dat_sys::*;
use provider_mem::{Adapter, Mem};

pub type T = Adapter;

/// One side of a test: an adapter with a protection zone and one EVD for each stream.
pub struct Side {
    pub ia: &'static Node<Ia<T>>,
    pub pz: &'static Node<Pz<T>>,
    pub recv: &'static Node<Evd<T>>,
    pub request: &'static Node<Evd<T>>,
    pub connect: &'static Node<Evd<T>>,
    pub cr: &'static Node<Evd<T>>,
}

unsafe extern "C" fn no_table(_: *const DAT_PROVIDER, _: *const DAT_PROVIDER_INFO) -> DAT_RETURN {
    DAT_SUCCESS
}

unsafe extern "C" fn no_mapping(_: DAT_IA_HANDLE, _: *mut DAT_IA_HANDLE) -> DAT_RETURN {
    DAT_INVALID_HANDLE
}

/// Returns the name of a fabric that no other test uses.
pub fn fabric() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An entry of a registry without IAs.
pub fn entry(name: &'static str) -> Entry<'static> {
    let registry = RegistryFns {
        add_provider: no_table,
        remove_provider: no_table,
        get_ia_handle: no_mapping,
    };
    Entry { name, provider: name, table: std::ptr::null(), registry, thread_safe: false }
}

pub fn open(fabric: &str) -> &'static Node<Ia<T>> {
    // SAFETY: the call passes no EVD that another thread could free.
    unsafe { ia::open(&Mem, fabric, entry("mem"), AsyncEvd::Exists) }.unwrap()
}

impl Side {
    pub fn new(fabric: &str) -> Side {
        let ia = open(fabric);
        let evd = |flags| evd::create(ia, 64, None, flags).unwrap();
        Side {
            ia,
            pz: pz::create(ia).unwrap(),
            recv: evd(DAT_EVD_DTO_FLAG),
            request: evd(DAT_EVD_DTO_FLAG),
            connect: evd(DAT_EVD_CONNECTION_FLAG),
            cr: evd(DAT_EVD_CR_FLAG),
        }
    }

    pub fn ep(&self) -> &'static Node<Ep<T>> {
        self.ep_with(None)
    }

    pub fn ep_with(&self, attr: Option<&DAT_EP_ATTR>) -> &'static Node<Ep<T>> {
        let handles = Handles {
            pz: Some(self.pz),
            recv: Some(self.recv),
            request: Some(self.request),
            connect: Some(self.connect),
            srq: None,
        };
        ep::create(self.ia, handles, attr).unwrap()
    }

    /// Registers a buffer. The region exists as long as the returned value.
    pub fn register(&self, buffer: &mut [u8]) -> Registered {
        let access = Access {
            local_read: true,
            local_write: true,
            remote_read: true,
            remote_write: true,
            remote_atomic: true,
        };
        let memory = Memory { addr: buffer.as_mut_ptr(), len: buffer.len(), zero_based: false };
        // SAFETY: tests keep their buffers until the end.
        let mr = unsafe { self.ia.transport.mr(&self.pz.pd, memory, access) }.unwrap();
        Registered { addr: memory.addr as u64, len: memory.len as u32, mr }
    }

    /// Takes the next event, which must arrive within ten seconds.
    pub fn next(&self, evd: &Node<Evd<T>>) -> DAT_EVENT {
        // SAFETY: no other thread takes events from the EVD during this call.
        unsafe { evd.wait(10_000_000, 1) }.unwrap().event.unwrap()
    }

    /// Takes the next event, which must be a completion.
    pub fn completion(&self, evd: &Node<Evd<T>>) -> DAT_DTO_COMPLETION_EVENT_DATA {
        let event = self.next(evd);
        assert_eq!(event.event_number, DAT_DTO_COMPLETION_EVENT);
        // SAFETY: the number of the event says that this member of the union is valid.
        unsafe { event.event_data.dto_completion_event_data }
    }

    pub fn empty(&self, evd: &Node<Evd<T>>) -> bool {
        // SAFETY: tests take events from one thread.
        unsafe { evd.dequeue() }.is_err_and(|e| e.kind() == DAT_QUEUE_EMPTY)
    }
}

/// A registered buffer.
pub struct Registered {
    pub addr: u64,
    pub len: u32,
    pub mr: <T as Transport>::Mr,
}

impl Registered {
    pub fn segment(&self) -> Segment {
        Segment { addr: self.addr, len: self.len, key: self.mr.lkey() }
    }
}

/// Creates a connected pair: the active side and its endpoint, and the passive side and its
/// endpoint.
pub fn connected() -> (Side, &'static Node<Ep<T>>, Side, &'static Node<Ep<T>>) {
    let fabric = fabric();
    let (a, b) = (Side::new(&fabric), Side::new(&fabric));
    let (x, y) = (a.ep(), b.ep());
    connect(&a, x, &b, y);
    (a, x, b, y)
}

/// A service point of this side at any qualifier. Requests go to its EVD of requests.
pub fn listen(side: &Side) -> &'static Node<Psp<T>> {
    psp::create(side.ia, Qualifier::Any, side.cr, DAT_PSP_CONSUMER_FLAG).unwrap()
}

pub fn connect(a: &Side, x: &Node<Ep<T>>, b: &Side, y: &Node<Ep<T>>) {
    let psp = listen(b);
    let to = "127.0.0.1:0".parse().unwrap();
    x.connect(
        to,
        psp.qualifier(),
        10_000_000,
        b"hello",
        DAT_QOS_BEST_EFFORT,
        DAT_CONNECT_DEFAULT_FLAG,
    )
    .unwrap();
    let cr = arrival(b);
    // SAFETY: after this call nobody uses a reference to the request.
    unsafe { dat_core::conn::cr::accept(cr, Some(y), b"welcome") }.unwrap();
    assert_eq!(a.next(a.connect).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_eq!(b.next(b.connect).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    // SAFETY: after this call nobody uses a reference to the service point.
    unsafe { dat_core::conn::psp::free(psp) }.unwrap();
}

/// Takes the next event, which must be a connection request.
pub fn arrival(b: &Side) -> &'static Node<dat_core::conn::cr::Cr<T>> {
    let event = b.next(b.cr);
    assert_eq!(event.event_number, DAT_CONNECTION_REQUEST_EVENT);
    // SAFETY: the number of the event says that this member of the union is valid, and the handle
    // is live until the request is answered.
    unsafe { handle::get(event.event_data.cr_arrival_event_data.cr_handle) }.unwrap()
}
