//! Objects that are freed while other threads call functions on them. Each call must succeed,
//! report an invalid handle, or report an aborted wait.

use std::ptr::null_mut;
use std::thread;

use dat_core::Error;
use dat_sys::ib::*;
use dat_sys::*;

use crate::client::{Side, cookie, dat, extended, word};
use crate::random::Random;

const ROUND_COUNT: usize = 10;
const CALLS_PER_OBJECT: usize = 12;

pub(crate) fn race(side: &Side, random: &mut Random) {
    for _ in 0..ROUND_COUNT {
        dispatcher(side, random);
        endpoint(side, random);
        address_handle(side, random);
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

/// Two threads send datagrams through an address handle while a third thread frees it.
fn address_handle(side: &Side, random: &mut Random) {
    let Side { table, ia, pz, .. } = *side;
    let evd = side.new_evd(DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG);
    let side = Side { evd, cr_evd: side.new_evd(DAT_EVD_CR_FLAG), ..*side };
    let attr = DAT_EP_ATTR {
        service_type: DAT_IB_SERVICE_TYPE_UD,
        recv_completion_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        request_completion_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        max_recv_dtos: 1,
        max_request_dtos: 4,
        max_recv_iov: 1,
        max_request_iov: 1,
        ..DAT_EP_ATTR::zeroed()
    };
    let create = || {
        let mut ep = null_mut();
        dat!(table, ep_create_func(ia, pz, evd, evd, evd, &attr, &mut ep)).map(|()| ep)
    };
    // Not every transport has datagrams.
    let created = create().and_then(|ep| Ok((ep, create()?)));
    if let Ok((sender, receiver)) = created {
        let to = introduce(&side, sender, receiver);
        // The second endpoint is of the same zone, and posts are not serialized between endpoints.
        let posting = [sender, receiver].map(Handle);
        let (ah, qpn, pauses) = (Handle(to.ah.cast()), to.qpn, random.below(8));
        thread::scope(|s| {
            for ep in posting {
                s.spawn(move || {
                    let (ep, ah) = (ep.get(), ah.get().cast());
                    let to = DAT_IB_ADDR_HANDLE { ah, qpn, ..DAT_IB_ADDR_HANDLE::zeroed() };
                    for n in 0..CALLS_PER_OBJECT as u64 {
                        let args = [0, 0, word(&to), n, DAT_COMPLETION_SUPPRESS_FLAG.into()];
                        let sent = extended(table, ep, DAT_IB_UD_SEND_OP, &args, 4);
                        // Once the handle is freed, it is an invalid argument.
                        may(sent, &[DAT_INVALID_PARAMETER, DAT_INSUFFICIENT_RESOURCES]);
                    }
                });
            }
            (0..pauses).for_each(|_| thread::yield_now());
            extended(table, sender, DAT_IB_UD_AH_FREE_OP, &[word(&to)], 4).unwrap();
        });
        for ep in posting {
            dat!(table, ep_free_func(ep.get())).unwrap();
        }
    }
    dat!(table, evd_free_func(evd)).unwrap();
    dat!(table, evd_free_func(side.cr_evd)).unwrap();
}

/// Lets an endpoint find out another one. Returns the address of the other one.
fn introduce(side: &Side, from: DAT_EP_HANDLE, to: DAT_EP_HANDLE) -> DAT_IB_ADDR_HANDLE {
    let (psp, qualifier) = side.new_psp(DAT_PSP_CONSUMER_FLAG);
    side.connect(from, qualifier, b"");
    let event = side.next(side.cr_evd);
    assert_eq!(event.event_number, DAT_IB_UD_CONNECTION_REQUEST_EVENT);
    // SAFETY: the number of the event says that this member of the union is valid.
    let cr = unsafe { event.event_data.cr_arrival_event_data }.cr_handle;
    dat!(side.table, cr_accept_func(cr, to, 0, null_mut())).unwrap();
    dat!(side.table, psp_free_func(psp)).unwrap();
    let events = [(); 2].map(|()| side.next(side.evd));
    let data = events.map(|event| {
        assert_eq!(event.event_number, DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED);
        let data = &raw const event.event_extension_data;
        // SAFETY: the number of the event says that its extension data are valid.
        unsafe { data.cast::<DAT_IB_EXTENSION_EVENT_DATA>().read() }
    });
    let active = data.into_iter().find(|data| data.r#type == DAT_IB_UD_REMOTE_AH);
    // SAFETY: the type says that this member of the union is valid.
    unsafe { active.expect("one event is of the active side").detail.remote_ah }
}

fn may(answer: Result<(), Error>, errors: &[DAT_RETURN]) {
    assert!(
        answer.is_ok() || answer.is_err_and(|error| errors.contains(&error.kind())),
        "{answer:?}"
    );
}
