//! Objects that are freed while other threads call functions on them. Each call must succeed,
//! report an invalid handle, or report an aborted wait.

use std::ptr::null_mut;
use std::thread;

use dat_core::Error;
use dat_sys::*;

use crate::client::{Side, cookie, dat};
use crate::random::Random;

const ROUND_COUNT: usize = 10;
const CALLS_PER_OBJECT: usize = 12;

pub(crate) fn race(side: &Side, random: &mut Random) {
    for _ in 0..ROUND_COUNT {
        dispatcher(side, random);
        endpoint(side, random);
    }
}

/// A handle that is passed to another thread.
#[derive(Clone, Copy)]
struct Handle(*mut std::ffi::c_void);

// SAFETY: handles of a thread-safe adapter may be used from any thread.
unsafe impl Send for Handle {}

impl Handle {
    fn get(self) -> *mut std::ffi::c_void {
        self.0
    }
}

fn dispatcher(side: &Side, random: &mut Random) {
    let Side { table, .. } = *side;
    let evd = Handle(side.new_evd(DAT_EVD_SOFTWARE_FLAG));
    let pauses = random.below(8);
    thread::scope(|s| {
        s.spawn(move || {
            let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
            // Whatever the other threads do, this loop ends at the latest when the EVD is freed.
            loop {
                let evd = evd.get();
                match dat!(
                    table,
                    evd_wait_func(evd, DAT_TIMEOUT_INFINITE, 1, &mut event, &mut more)
                ) {
                    Ok(()) => assert_eq!(event.event_number, DAT_SOFTWARE_EVENT),
                    Err(error) => break may(Err(error), &[DAT_ABORT, DAT_INVALID_HANDLE]),
                }
            }
        });
        s.spawn(move || {
            let mut event = DAT_EVENT::zeroed();
            for n in 0..CALLS_PER_OBJECT {
                let evd = evd.get();
                event.event_number = DAT_SOFTWARE_EVENT;
                may(dat!(table, evd_post_se_func(evd, &event)), &[DAT_INVALID_HANDLE]);
                let mut taken = DAT_EVENT::zeroed();
                let none = [DAT_QUEUE_EMPTY, DAT_INVALID_STATE, DAT_INVALID_HANDLE];
                may(dat!(table, evd_dequeue_func(evd, &mut taken)), &none);
                let qlen = 64 + n as DAT_COUNT;
                may(
                    dat!(table, evd_resize_func(evd, qlen)),
                    &[DAT_INVALID_STATE, DAT_INVALID_HANDLE],
                );
            }
        });
        (0..pauses).for_each(|_| thread::yield_now());
        dat!(table, evd_free_func(evd.get())).unwrap();
    });
}

fn endpoint(side: &Side, random: &mut Random) {
    let Side { table, ia, pz, .. } = *side;
    let evd = side.new_evd(DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG);
    let mut ep = null_mut();
    dat!(table, ep_create_func(ia, pz, evd, evd, evd, std::ptr::null(), &mut ep)).unwrap();
    let (ep, pauses) = (Handle(ep), random.below(8));
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(move || {
                for n in 0..CALLS_PER_OBJECT {
                    let ep = ep.get();
                    let cookie = cookie(n as u64);
                    let full = [DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_HANDLE];
                    may(dat!(table, ep_post_recv_func(ep, 0, null_mut(), cookie, 0)), &full);
                    let mut state = 0;
                    let status =
                        dat!(table, ep_get_status_func(ep, &mut state, null_mut(), null_mut()));
                    may(status, &[DAT_INVALID_HANDLE]);
                    let refused = [DAT_INVALID_STATE, DAT_INVALID_HANDLE];
                    may(dat!(table, ep_disconnect_func(ep, DAT_CLOSE_ABRUPT_FLAG)), &refused);
                }
            });
        }
        (0..pauses).for_each(|_| thread::yield_now());
        dat!(table, ep_free_func(ep.get())).unwrap();
    });
    dat!(table, evd_free_func(evd)).unwrap();
}

fn may(answer: Result<(), Error>, errors: &[DAT_RETURN]) {
    assert!(
        answer.is_ok() || answer.is_err_and(|error| errors.contains(&error.kind())),
        "{answer:?}"
    );
}
