//! EVDs and CNOs over the provider mem.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use dat_core::cno::{self, Cno};
use dat_core::error::Error;
use dat_core::{ep, evd, handle, ia};
use dat_sys::*;
use support::*;

fn software(cookie: usize) -> DAT_EVENT {
    let mut event = DAT_EVENT::zeroed();
    event.event_number = DAT_SOFTWARE_EVENT;
    event.event_data.software_event_data = DAT_SOFTWARE_EVENT_DATA { pointer: cookie as *mut _ };
    event
}

#[test]
fn software_events_come_in_order_and_fill_the_queue() {
    let ia = open(&fabric());
    let evd = evd::create(ia, 3, None, DAT_EVD_SOFTWARE_FLAG).unwrap();
    for i in 0..3 {
        evd.post_software(&software(i)).unwrap();
    }
    assert_eq!(evd.post_software(&software(3)), Err(Error::of(DAT_QUEUE_FULL)));
    for i in 0..3 {
        // SAFETY: only this thread takes events from the EVD.
        let event = unsafe { evd.dequeue() }.unwrap();
        // SAFETY: the event is a software event.
        assert_eq!(unsafe { event.event_data.software_event_data.pointer } as usize, i);
    }
    assert_eq!(evd.post_software(&DAT_EVENT::zeroed()), Err(Error::arg(2)));
    // SAFETY: after this call nobody uses a reference to the EVD.
    unsafe { evd::free(evd) }.unwrap();
}

#[test]
fn a_wait_checks_its_threshold_and_times_out_with_the_count() {
    let ia = open(&fabric());
    let evd = evd::create(ia, 4, None, DAT_EVD_SOFTWARE_FLAG).unwrap();
    // SAFETY: no other thread takes events from the EVD during this call.
    assert_eq!(unsafe { evd.wait(0, 0) }.err(), Some(Error::arg(3)));
    // SAFETY: no other thread takes events from the EVD during this call.
    assert_eq!(unsafe { evd.wait(0, 5) }.err(), Some(Error::arg(3)));
    evd.post_software(&software(1)).unwrap();
    // SAFETY: no other thread takes events from the EVD during this call.
    let waited = unsafe { evd.wait(1000, 2) }.unwrap();
    assert_eq!((waited.event.err(), waited.more), (Some(Error::of(DAT_TIMEOUT_EXPIRED)), 1));
    evd.post_software(&software(2)).unwrap();
    // SAFETY: no other thread takes events from the EVD during this call.
    let waited = unsafe { evd.wait(1000, 2) }.unwrap();
    assert_eq!((waited.event.is_ok(), waited.more), (true, 1));
}

#[test]
fn one_waiter_owns_the_evd_until_it_is_unwaitable() {
    let ia = open(&fabric());
    let evd = evd::create(ia, 4, None, DAT_EVD_SOFTWARE_FLAG).unwrap();
    std::thread::scope(|s| {
        // SAFETY: no other thread takes events from the EVD during this call.
        let waiter = s.spawn(|| unsafe { evd.wait(DAT_TIMEOUT_INFINITE, 1) }.err());
        let refused = Some(Error::state(DAT_INVALID_STATE_EVD_WAITER));
        // SAFETY: no other thread dequeues. Dequeuing is refused as soon as a thread waits.
        while unsafe { evd.dequeue() }.err() != refused {
            std::thread::yield_now();
        }
        // SAFETY: no other thread takes events from the EVD during this call.
        assert_eq!(unsafe { evd.wait(0, 1) }.err(), refused);
        evd.set_waitable(false);
        assert_eq!(waiter.join().unwrap(), Some(Error::state(DAT_INVALID_STATE_EVD_UNWAITABLE)));
    });
    assert_eq!(
        // SAFETY: no other thread takes events from the EVD during this call.
        unsafe { evd.wait(0, 1) }.err(),
        Some(Error::state(DAT_INVALID_STATE_EVD_UNWAITABLE))
    );
    evd.set_waitable(true);
    evd.post_software(&software(0)).unwrap();
    // SAFETY: no other thread takes events from the EVD during this call.
    assert!(unsafe { evd.wait(0, 1) }.unwrap().event.is_ok());
}

#[test]
fn freeing_an_evd_ends_the_wait_on_it() {
    let ia = open(&fabric());
    let evd = evd::create(ia, 4, None, DAT_EVD_SOFTWARE_FLAG).unwrap();
    std::thread::scope(|s| {
        // SAFETY: no other thread takes events from the EVD during this call.
        let waiter = s.spawn(|| unsafe { evd.wait(DAT_TIMEOUT_INFINITE, 1) }.err());
        // SAFETY: no other thread dequeues. Dequeuing is refused as soon as a thread waits.
        while unsafe { evd.dequeue() }.err() != Some(Error::state(DAT_INVALID_STATE_EVD_WAITER)) {
            std::thread::yield_now();
        }
        // SAFETY: after this call nobody uses a reference to the EVD.
        unsafe { evd::free(evd) }.unwrap();
        assert_eq!(waiter.join().unwrap(), Some(Error::of(DAT_ABORT)));
    });
}

#[test]
fn only_enabled_evds_trigger_a_cno() {
    let ia = open(&fabric());
    // SAFETY: the CNO has no agent, so no function of the consumer is called.
    let cno = unsafe { cno::create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL) }.unwrap();
    let evd = evd::create(ia, 4, Some(cno), DAT_EVD_SOFTWARE_FLAG).unwrap();
    assert_eq!(cno.wait(0).err(), Some(Error::of(DAT_QUEUE_EMPTY)));
    evd.post_software(&software(0)).unwrap();
    assert_eq!(cno.wait(0), Ok(evd.handle()));
    // SAFETY: no other thread takes events from the EVD during this call.
    unsafe { evd.set_enabled(false) };
    evd.post_software(&software(1)).unwrap();
    assert_eq!(cno.wait(0).err(), Some(Error::of(DAT_QUEUE_EMPTY)));
    assert_eq!(
        // SAFETY: the call is refused and frees nothing.
        unsafe { cno::free(cno) }.map(drop),
        Err(Error::state(DAT_INVALID_STATE_CNO_IN_USE))
    );
    // SAFETY: no other thread takes events from the EVD during this call.
    unsafe { evd.set_cno(None) }.unwrap();
    // SAFETY: after this call nobody uses a reference to the CNO.
    unsafe { cno::free(cno) }.map(drop).unwrap();
}

#[test]
fn a_cno_is_triggered_again_while_events_remain() {
    let ia = open(&fabric());
    // SAFETY: the CNO has no agent, so no function of the consumer is called.
    let cno = unsafe { cno::create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL) }.unwrap();
    let evd = evd::create(ia, 4, Some(cno), DAT_EVD_SOFTWARE_FLAG).unwrap();
    for cookie in 0..2 {
        evd.post_software(&software(cookie)).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(cno.wait(0), Ok(evd.handle()));
        // SAFETY: only this thread takes events from the EVD.
        assert!(unsafe { evd.dequeue() }.is_ok());
    }
    assert_eq!(cno.wait(0).err(), Some(Error::of(DAT_QUEUE_EMPTY)));
}

/// The number of times that an EVD was seen empty determines how long the flows of freed endpoints
/// are kept.
#[test]
fn an_evd_counts_how_often_it_was_seen_empty() {
    let side = Side::new(&fabric());
    let empty_polls = side.recv.empty_polls();
    for _ in 0..3 {
        let before = empty_polls.load(Ordering::Relaxed);
        assert!(side.empty(side.recv));
        assert!(empty_polls.load(Ordering::Relaxed) > before);
    }
}

#[test]
fn completions_trigger_a_cno_each_time_the_queue_was_emptied() {
    let (a, x, b, y) = connected();
    // SAFETY: the CNO has no agent, so no function of the consumer is called.
    let cno = unsafe { cno::create(b.ia, DAT_OS_WAIT_PROXY_AGENT_NULL) }.unwrap();
    // SAFETY: no other thread takes events from the EVD during this call.
    unsafe { b.recv.set_cno(Some(cno)) }.unwrap();
    for round in 0..3 {
        // SAFETY: the requests have no segments, so no memory must stay valid.
        unsafe {
            y.post_recv(&[], round, 0).unwrap();
            x.post_send(&[], round, 0).unwrap();
        }
        assert_eq!(cno.wait(10_000_000), Ok(b.recv.handle()));
        b.completion(b.recv);
        assert!(b.empty(b.recv));
        a.completion(a.request);
    }
}

#[test]
fn a_cno_stays_triggered_until_the_queue_is_empty() {
    let (a, x, b, y) = connected();
    // SAFETY: the CNO has no agent, so no function of the consumer is called.
    let cno = unsafe { cno::create(b.ia, DAT_OS_WAIT_PROXY_AGENT_NULL) }.unwrap();
    // SAFETY: no other thread takes events from the EVD during this call.
    unsafe { b.recv.set_cno(Some(cno)) }.unwrap();
    // SAFETY: the requests have no segments, so no memory must stay valid.
    unsafe {
        for i in 0..3 {
            y.post_recv(&[], i, 0).unwrap();
            x.post_send(&[], i, 0).unwrap();
        }
    }
    for _ in 0..3 {
        a.completion(a.request);
        assert_eq!(cno.wait(10_000_000), Ok(b.recv.handle()));
        // SAFETY: only this thread takes events from the EVD.
        assert!(unsafe { b.recv.dequeue() }.is_ok());
    }
    assert!(b.empty(b.recv));
    assert_eq!(cno.wait(0).err(), Some(Error::of(DAT_QUEUE_EMPTY)));
}

/// Returns an agent that calls `f` with each EVD. The closure `f` exists as long as the test
/// program.
fn agent(f: impl Fn(DAT_EVD_HANDLE) + Send + Sync + 'static) -> DAT_OS_WAIT_PROXY_AGENT {
    type Call = Box<dyn Fn(DAT_EVD_HANDLE) + Send + Sync>;
    unsafe extern "C" fn call(instance: DAT_PVOID, evd: DAT_EVD_HANDLE) {
        // SAFETY: `instance` is the closure that is leaked below.
        let f = unsafe { &*instance.cast::<Call>() };
        f(evd);
    }
    let f: Call = Box::new(f);
    let instance_data = Box::into_raw(Box::new(f)).cast();
    DAT_OS_WAIT_PROXY_AGENT { instance_data, proxy_agent_func: Some(call) }
}

/// Returns an agent that reports each EVD with which the library calls it.
fn recording_agent() -> (DAT_OS_WAIT_PROXY_AGENT, Receiver<usize>) {
    let (tell, told) = channel();
    (agent(move |evd| tell.send(evd as usize).unwrap()), told)
}

const AGENT_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn an_agent_is_called_besides_waiters() {
    let (agent, told) = recording_agent();
    let ia = open(&fabric());
    // SAFETY: the agent may be called until the test program ends.
    let cno = unsafe { cno::create(ia, agent) }.unwrap();
    let evd = evd::create(ia, 4, Some(cno), DAT_EVD_SOFTWARE_FLAG).unwrap();
    evd.post_software(&software(0)).unwrap();
    assert_eq!(told.recv_timeout(AGENT_TIMEOUT), Ok(evd.handle() as usize));
    assert_eq!(cno.wait(0), Ok(evd.handle()));
}

#[test]
fn an_agent_may_be_changed_and_removed() {
    let ((one, told_one), (two, told_two)) = (recording_agent(), recording_agent());
    let ia = open(&fabric());
    // SAFETY: the CNO has no agent, so no function of the consumer is called.
    let cno = unsafe { cno::create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL) }.unwrap();
    let evd = evd::create(ia, 4, Some(cno), DAT_EVD_SOFTWARE_FLAG).unwrap();
    evd.post_software(&software(0)).unwrap();
    // SAFETY: the agent may be called until the test program ends.
    unsafe { cno.set_agent(one) }.unwrap();
    evd.post_software(&software(1)).unwrap();
    assert_eq!(told_one.recv_timeout(AGENT_TIMEOUT), Ok(evd.handle() as usize));
    // SAFETY: the agent may be called until the test program ends.
    unsafe { cno.set_agent(two) }.unwrap();
    evd.post_software(&software(2)).unwrap();
    assert_eq!(told_two.recv_timeout(AGENT_TIMEOUT), Ok(evd.handle() as usize));
    // SAFETY: the CNO has no agent, so no function of the consumer is called.
    unsafe { cno.set_agent(DAT_OS_WAIT_PROXY_AGENT_NULL) }.unwrap();
    evd.post_software(&software(3)).unwrap();
    // SAFETY: after this call nobody uses a reference to the EVD.
    unsafe { evd::free(evd) }.unwrap();
    // Freeing the CNO ends the thread of the agent, so the agent is not called any more.
    // SAFETY: after this call nobody uses a reference to the CNO.
    unsafe { cno::free(cno) }.map(drop).unwrap();
    assert!(told_one.try_recv().is_err() && told_two.try_recv().is_err());
}

/// When the last EVD of a CNO is freed, its waiters leave (uDAPL 1.2, dat_cno_wait).
#[test]
fn freeing_the_last_evd_of_a_cno_ends_the_waits_on_it() {
    let (agent, told) = recording_agent();
    let ia = open(&fabric());
    // SAFETY: the agent may be called until the test program ends.
    let cno = unsafe { cno::create(ia, agent) }.unwrap();
    let evds = [(); 2].map(|()| evd::create(ia, 4, Some(cno), DAT_EVD_SOFTWARE_FLAG).unwrap());
    std::thread::scope(|s| {
        let waiter = s.spawn(|| cno.wait(DAT_TIMEOUT_INFINITE).map(|evd| evd as usize));
        while !cno.has_waiters() {
            std::thread::yield_now();
        }
        // The other EVD gets an event. If the waiter had left when the first EVD was freed, it
        // would not report this event.
        // SAFETY: after this call nobody uses a reference to the EVD.
        unsafe { evd::free(evds[0]) }.unwrap();
        evds[1].post_software(&software(0)).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(evds[1].handle() as usize));
        assert_eq!(told.recv_timeout(AGENT_TIMEOUT), Ok(evds[1].handle() as usize));

        let waiter = s.spawn(|| cno.wait(DAT_TIMEOUT_INFINITE).map(|evd| evd as usize));
        while !cno.has_waiters() {
            std::thread::yield_now();
        }
        // SAFETY: after this call nobody uses a reference to the EVD.
        unsafe { evd::free(evds[1]) }.unwrap();
        assert_eq!(waiter.join().unwrap(), Err(Error::of(DAT_ABORT)));
        assert_eq!(told.recv_timeout(AGENT_TIMEOUT), Ok(0));
    });
    // SAFETY: after this call nobody uses a reference to the CNO.
    unsafe { cno::free(cno) }.map(drop).unwrap();
}

#[test]
fn an_abrupt_close_is_the_last_call_of_an_agent() {
    let (agent, told) = recording_agent();
    let ia = open(&fabric());
    // SAFETY: the agent may be called until the test program ends.
    let cno = unsafe { cno::create(ia, agent) }.unwrap();
    evd::create(ia, 4, Some(cno), DAT_EVD_SOFTWARE_FLAG).unwrap();
    // SAFETY: after this call nobody uses a reference to the adapter.
    unsafe { ia::close(ia, DAT_CLOSE_ABRUPT_FLAG) }.unwrap();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [0]);
}

/// A wait does not return an EVD that triggers during the close, because the EVD is about to be
/// freed.
#[test]
fn a_wait_during_an_abrupt_close_returns_no_evd() {
    let ia = open(&fabric());
    // SAFETY: the CNO has no agent, so no function of the consumer is called.
    let cno = unsafe { cno::create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL) }.unwrap();
    let evd = evd::create(ia, 4, Some(cno), DAT_EVD_SOFTWARE_FLAG).unwrap();
    evd.post_software(&software(0)).unwrap();
    ia.set_closing();
    assert_eq!(cno.wait(DAT_TIMEOUT_INFINITE), Err(Error::of(DAT_ABORT)));
    // SAFETY: no other thread takes events from the EVD during this call.
    assert_eq!(unsafe { evd.wait(DAT_TIMEOUT_INFINITE, 1) }.err(), Some(Error::of(DAT_ABORT)));
    // SAFETY: after this call nobody uses a reference to the adapter.
    unsafe { ia::close(ia, DAT_CLOSE_ABRUPT_FLAG) }.unwrap();
}

/// The library holds no lock while an agent runs.
#[test]
fn an_agent_may_call_any_function_and_free_its_own_object() {
    let (a, x, b, y) = connected();
    let (tell, told) = channel();
    let (recv, request, connect, cr) = (b.recv, b.request, b.connect, b.cr);
    let handle = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&handle);
    let agent = agent(move |evd| {
        assert_eq!(evd, recv.handle());
        // SAFETY: nobody else takes events from the EVD.
        let event = unsafe { recv.dequeue() }.unwrap();
        y.disconnect(DAT_CLOSE_ABRUPT_FLAG).unwrap();
        // SAFETY: after this call nobody uses a reference to the endpoint.
        unsafe { ep::free(y) }.unwrap();
        for evd in [recv, request, connect, cr] {
            // SAFETY: after this call nobody uses a reference to the EVD.
            unsafe { evd::free(evd) }.unwrap();
        }
        let own = own.load(Ordering::Relaxed) as DAT_CNO_HANDLE;
        // SAFETY: the test does not use the CNO any more.
        unsafe { cno::free(handle::get::<Cno<T>>(own).unwrap()) }.map(drop).unwrap();
        tell.send(event.event_number).unwrap();
    });
    // SAFETY: the agent may be called until the test program ends.
    let cno = unsafe { cno::create(b.ia, agent) }.unwrap();
    handle.store(cno.handle() as usize, Ordering::Relaxed);
    // SAFETY: the receive has no segments, so no memory must stay valid.
    unsafe { y.post_recv(&[], 0, 0) }.unwrap();
    // SAFETY: no other thread takes events from the EVD during this call.
    unsafe { recv.set_cno(Some(cno)) }.unwrap();
    // SAFETY: no other thread takes events from the EVD during this call.
    unsafe { x.post_send(&[], 0, 0) }.unwrap();
    assert_eq!(told.recv_timeout(AGENT_TIMEOUT), Ok(DAT_DTO_COMPLETION_EVENT));
    assert_eq!(a.next(a.connect).event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
}

#[test]
fn resize_loses_nothing() {
    let ia = open(&fabric());
    let evd = evd::create(ia, 4, None, DAT_EVD_SOFTWARE_FLAG).unwrap();
    for i in 0..4 {
        evd.post_software(&software(i)).unwrap();
    }
    // SAFETY: only this thread takes events from the EVD.
    unsafe {
        assert_eq!(evd.resize(3).err().map(Error::kind), Some(DAT_INVALID_STATE));
        evd.resize(8).unwrap();
        evd.post_software(&software(4)).unwrap();
        for i in 0..5 {
            assert_eq!(evd.dequeue().unwrap().event_data.software_event_data.pointer as usize, i);
        }
    }
}
