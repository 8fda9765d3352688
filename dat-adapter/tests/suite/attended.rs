//! Tests consumers that sleep in poll(2) on the file descriptor of a notification object, without
//! calling DAT.

use std::time::{Duration, Instant};

use dat_core::conn::Qualifier;
use dat_core::conn::cr::Cr;
use dat_core::conn::{cr, psp};
use dat_core::ep::{self, Ep, Handles};
use dat_core::evd::{self, Evd};
use dat_core::handle::{self, Node};
use dat_core::ia::{self, AsyncEvd, Entry, Ia};
use dat_core::mem::pz;
use dat_core::{Error, cno};
use dat_sys::*;

use crate::{NAME, PROVIDER, Tested};

unsafe extern "C" fn no_table(_: *const DAT_PROVIDER, _: *const DAT_PROVIDER_INFO) -> DAT_RETURN {
    DAT_SUCCESS
}

unsafe extern "C" fn no_mapping(_: DAT_IA_HANDLE, _: *mut DAT_IA_HANDLE) -> DAT_RETURN {
    DAT_INVALID_HANDLE
}

const PATIENCE: Duration = Duration::from_secs(60);

/// An adapter with a single event dispatcher, which triggers a notification object with a file
/// descriptor.
struct Side {
    ia: &'static Node<Ia<Tested>>,
    ep: &'static Node<Ep<Tested>>,
    all: &'static Node<Evd<Tested>>,
    cno: &'static Node<cno::Cno<Tested>>,
    fd: DAT_FD,
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
        let (cno, fd) = cno::create_with_fd(ia).unwrap();
        let flags = DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG;
        let all = evd::create(ia, 64, Some(cno), flags).unwrap();
        let handles = Handles {
            pz: Some(pz::create(ia).unwrap()),
            recv: Some(all),
            request: Some(all),
            connect: Some(all),
            srq: None,
        };
        Side { ia, ep: ep::create(ia, handles, None).unwrap(), all, cno, fd }
    }

    /// Returns the next event. Sleeps until there is an event, without calling DAT.
    fn next(&self) -> DAT_EVENT {
        let start = Instant::now();
        loop {
            // SAFETY: only one thread dequeues.
            if let Ok(event) = unsafe { self.all.dequeue() } {
                return event;
            }
            let mut fd = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: the array has one element, which outlives the call.
            let found = unsafe { libc::poll(&mut fd, 1, PATIENCE.as_millis() as libc::c_int) };
            assert!(found == 1 && start.elapsed() < PATIENCE, "no event within {PATIENCE:?}");
            match self.cno.wait(0) {
                Ok(evd) => assert_eq!(evd, self.all.handle()),
                Err(e) => assert_eq!(e, Error::of(DAT_QUEUE_EMPTY)),
            }
        }
    }

    fn expect(&self, number: DAT_EVENT_NUMBER) -> DAT_EVENT {
        let event = self.next();
        assert_eq!(event.event_number, number);
        event
    }
}

#[test]
fn both_sides_may_sleep_outside() {
    const ROUNDS: u64 = 500;
    let (a, b) = (Side::new(), Side::new());
    let psp = psp::create(b.ia, Qualifier::Any, b.all, DAT_PSP_CONSUMER_FLAG).unwrap();
    let qualifier = psp.qualifier();
    std::thread::scope(|s| {
        s.spawn(|| {
            let arrived = b.expect(DAT_CONNECTION_REQUEST_EVENT);
            // SAFETY: the handle of a connection request is live until the request is answered.
            let request = unsafe {
                handle::get::<Cr<Tested>>(arrived.event_data.cr_arrival_event_data.cr_handle)
            };
            // SAFETY: the receive has no segments, so no memory must stay valid.
            unsafe { b.ep.post_recv(&[], 0, 0) }.unwrap();
            // SAFETY: after this call nobody uses a reference to the request.
            unsafe { cr::accept(request.unwrap(), Some(b.ep), b"") }.unwrap();
            b.expect(DAT_CONNECTION_EVENT_ESTABLISHED);
            answer(&b, ROUNDS, false);
            b.expect(DAT_CONNECTION_EVENT_DISCONNECTED);
        });
        let to = "127.0.0.1:0".parse().unwrap();
        // SAFETY: the receive has no segments, so no memory must stay valid.
        unsafe { a.ep.post_recv(&[], 0, 0) }.unwrap();
        a.ep.connect(to, qualifier, 10_000_000, b"", DAT_QOS_BEST_EFFORT, 0).unwrap();
        a.expect(DAT_CONNECTION_EVENT_ESTABLISHED);
        answer(&a, ROUNDS, true);
        a.ep.disconnect(DAT_CLOSE_GRACEFUL_FLAG).unwrap();
        a.expect(DAT_CONNECTION_EVENT_DISCONNECTED);
    });
    for side in [a, b] {
        // SAFETY: after this call nobody uses a reference to the adapter.
        unsafe { ia::close(side.ia, DAT_CLOSE_ABRUPT_FLAG) }.unwrap();
    }
}

/// Sends a message for each message that arrives. If `first` is true, also sends one before any has
/// arrived.
fn answer(side: &Side, rounds: u64, first: bool) {
    // SAFETY: the send has no segments.
    let send = |i| unsafe { side.ep.post_send(&[], i, DAT_COMPLETION_DEFAULT_FLAG) }.unwrap();
    let (mut sent, mut received) = (0, 0);
    if first {
        send(0);
    }
    while received < rounds || sent < rounds {
        // SAFETY: the event number says which member is valid.
        let data =
            unsafe { side.expect(DAT_DTO_COMPLETION_EVENT).event_data.dto_completion_event_data };
        assert_eq!(data.status, DAT_DTO_SUCCESS);
        // SAFETY: the cookie is a plain word.
        let cookie = unsafe { data.user_cookie.as_64 };
        if data.operation == DAT_DTO_SEND {
            assert_eq!(cookie, sent);
            sent += 1;
            continue;
        }
        assert_eq!(cookie, received);
        received += 1;
        if received < rounds {
            // SAFETY: the receive has no segments, so no memory must stay valid.
            unsafe { side.ep.post_recv(&[], received, 0) }.unwrap();
        }
        match first {
            true if received < rounds => send(received),
            true => {}
            false => send(received - 1),
        }
    }
}
