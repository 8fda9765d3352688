//! Tests that a proxy agent may call into the adapter whose engine has just woken it.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use dat_core::cno;
use dat_core::conn::Qualifier;
use dat_core::conn::cr::Cr;
use dat_core::conn::{cr, psp};
use dat_core::ep::{self, Ep, Handles};
use dat_core::evd::{self, Evd};
use dat_core::handle::{self, Node};
use dat_core::ia::{self, AsyncEvd, Entry, Ia};
use dat_core::mem::pz;
use dat_sys::*;

use crate::{NAME, PROVIDER, Tested};

unsafe extern "C" fn no_table(_: *const DAT_PROVIDER, _: *const DAT_PROVIDER_INFO) -> DAT_RETURN {
    DAT_SUCCESS
}

unsafe extern "C" fn no_mapping(_: DAT_IA_HANDLE, _: *mut DAT_IA_HANDLE) -> DAT_RETURN {
    DAT_INVALID_HANDLE
}

const PATIENCE: Duration = Duration::from_secs(60);

/// An adapter with an endpoint and an event dispatcher for each event stream.
struct Side {
    ia: &'static Node<Ia<Tested>>,
    ep: &'static Node<Ep<Tested>>,
    recv: &'static Node<Evd<Tested>>,
    connect: &'static Node<Evd<Tested>>,
    cr: &'static Node<Evd<Tested>>,
}

impl Side {
    fn new() -> Side {
        let registry = RegistryFns {
            add_provider: no_table,
            remove_provider: no_table,
            get_ia_handle: no_mapping,
        };
        let entry = Entry {
            name: "lo",
            provider: NAME,
            table: std::ptr::null(),
            registry,
            thread_safe: false,
        };
        // SAFETY: no dispatcher is passed.
        let ia = unsafe { ia::open(&PROVIDER, "127.0.0.1", entry, AsyncEvd::Exists) }.unwrap();
        let evd = |flags| evd::create(ia, 16, None, flags).unwrap();
        let (recv, connect) = (evd(DAT_EVD_DTO_FLAG), evd(DAT_EVD_CONNECTION_FLAG));
        let handles = Handles {
            pz: Some(pz::create(ia).unwrap()),
            recv: Some(recv),
            request: Some(evd(DAT_EVD_DTO_FLAG)),
            connect: Some(connect),
            srq: None,
        };
        Side {
            ia,
            ep: ep::create(ia, handles, None).unwrap(),
            recv,
            connect,
            cr: evd(DAT_EVD_CR_FLAG),
        }
    }
}

fn next(evd: &Node<Evd<Tested>>) -> DAT_EVENT {
    // SAFETY: no other thread takes events from the EVD during this call.
    unsafe { evd.wait(PATIENCE.as_micros() as DAT_TIMEOUT, 1) }.unwrap().event.unwrap()
}

fn connected() -> (Side, Side) {
    let (a, b) = (Side::new(), Side::new());
    let psp = psp::create(b.ia, Qualifier::Any, b.cr, DAT_PSP_CONSUMER_FLAG).unwrap();
    let to = "127.0.0.1:0".parse().unwrap();
    let (qos, flags) = (DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG);
    a.ep.connect(to, psp.qualifier(), PATIENCE.as_micros() as DAT_TIMEOUT, b"", qos, flags)
        .unwrap();
    // SAFETY: the handle of a connection request is live until the request is answered.
    let request =
        unsafe { handle::get::<Cr<Tested>>(next(b.cr).event_data.cr_arrival_event_data.cr_handle) };
    // SAFETY: after this call nobody uses a reference to the request.
    unsafe { cr::accept(request.unwrap(), Some(b.ep), b"") }.unwrap();
    for side in [&a, &b] {
        assert_eq!(next(side.connect).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    }
    (a, b)
}

/// The agent runs while another thread holds the engine lock. The test covers both cases: that
/// thread is the progress thread, or it is a consumer's thread that polls.
#[test]
fn an_agent_may_dequeue_disconnect_and_free() {
    for polls in [false, true] {
        let (a, b) = connected();
        let (tell, told) = channel();
        let (ep, recv) = (b.ep, b.recv);
        let work = move || {
            // SAFETY: nobody else dequeues from this dispatcher.
            let event = unsafe { recv.dequeue() }.unwrap();
            ep.disconnect(DAT_CLOSE_ABRUPT_FLAG).unwrap();
            // SAFETY: after this call nobody uses a reference to the endpoint.
            unsafe { ep::free(ep) }.unwrap();
            tell.send(event.event_number).unwrap();
        };
        type Callback = Box<dyn Fn() + Send + Sync>;
        unsafe extern "C" fn call(work: DAT_PVOID, evd: DAT_EVD_HANDLE) {
            if !evd.is_null() {
                // SAFETY: `work` points to the box below, which outlives the adapter.
                let work = unsafe { &*work.cast::<Callback>() };
                work();
            }
        }
        let mut work: Callback = Box::new(work);
        let agent = DAT_OS_WAIT_PROXY_AGENT {
            instance_data: (&raw mut work).cast(),
            proxy_agent_func: Some(call),
        };
        // SAFETY: the agent's function and data are valid.
        let cno = unsafe { cno::create(b.ia, agent) }.unwrap();
        // SAFETY: the receive has no segments, so no memory must stay valid.
        unsafe { b.ep.post_recv(&[], 0, 0) }.unwrap();
        // SAFETY: no other thread takes events from the EVD during this call.
        unsafe { b.recv.set_cno(Some(cno)) }.unwrap();
        // SAFETY: the send has no segments.
        unsafe { a.ep.post_send(&[], 0, 0) }.unwrap();
        let start = Instant::now();
        let mut number = None;
        while number.is_none() && start.elapsed() < PATIENCE {
            if polls {
                // SAFETY: nobody else dequeues from this dispatcher.
                assert!(unsafe { b.cr.dequeue() }.is_err());
                number = told.try_recv().ok();
            } else {
                number = told.recv_timeout(PATIENCE).ok();
            }
        }
        assert_eq!(number, Some(DAT_DTO_COMPLETION_EVENT));
        assert_eq!(next(a.connect).event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
        for side in [a, b] {
            // SAFETY: after this call nobody uses a reference to the adapter.
            unsafe { ia::close(side.ia, DAT_CLOSE_ABRUPT_FLAG) }.unwrap();
        }
    }
}
