//! Tests of two threads on a thread-safe adapter, in situations that random calls rarely reach.

#[path = "table/client.rs"]
#[allow(dead_code)] // the other tests' part
mod client;
#[path = "support/queried_registry.rs"]
mod queried_registry;

use std::cell::Cell;
use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use client::{ProviderTable, Side, dat, info, mem, open, table, unique};
use dat_core::Error;
use dat_core::export::{self, AnyProvider};
use dat_core::handle;
use dat_sys::*;
use provider_mem::Mem;
use queried_registry::{NEXT, QUERIED_REGISTRY};
use waiting::nesting::{self, Activity};

fn query(table: ProviderTable, ia: DAT_IA_HANDLE) -> Result<(), Error> {
    let (mut evd, mut attr, mut provider) =
        (null_mut(), DAT_IA_ATTR::zeroed(), DAT_PROVIDER_ATTR::zeroed());
    dat!(table, ia_query_func(ia, &mut evd, 0, &mut attr, 0, &mut provider))
}

/// A thread that closes the adapter has the adapter's lock and waits for another thread's call that
/// creates an object. If a signal handler interrupts that call and queries the adapter, the query
/// must not wait for the lock forever.
#[test]
fn an_adapter_is_closed_while_an_object_is_created() {
    let name = unique("mem");
    let (mem, params) = (AnyProvider::of::<Mem>(), CString::new(name.as_str()).unwrap());
    // SAFETY: the provider info is a complete record, and `params` is NUL-terminated.
    unsafe { export::init(mem, QUERIED_REGISTRY, &info(&name, 2, 0, true), params.as_ptr()) };
    let table = table(&name).expect("the adapter is registered");
    let (ia, _) = open(table, &name);
    let mut pz = null_mut();
    dat!(table, pz_create_func(ia, &mut pz)).unwrap();
    let mut memory = vec![0u8; 4096];
    let (mut lmr, mut context, mut remote) = (null_mut(), 0, 0);
    static START: Barrier = Barrier::new(2);
    static REFUSAL: Mutex<Option<Error>> = Mutex::new(None);
    let address = ia as usize;
    *NEXT.lock().unwrap() = Some(Box::new(move || {
        START.wait();
        // This call is made inside another call, as in a signal handler.
        let refused =
            std::iter::repeat_with(|| query(table, address as DAT_IA_HANDLE).err()).find_map(|e| e);
        *REFUSAL.lock().unwrap() = refused;
    }));
    thread::scope(|s| {
        let closer = s.spawn(move || {
            START.wait();
            dat!(table, ia_close_func(address as DAT_IA_HANDLE, DAT_CLOSE_ABRUPT_FLAG))
        });
        let made = dat!(
            table,
            lmr_create_func(
                ia,
                DAT_MEM_TYPE_VIRTUAL,
                DAT_REGION_DESCRIPTION { for_va: memory.as_mut_ptr().cast() },
                4096,
                pz,
                DAT_MEM_PRIV_ALL_FLAG,
                DAT_VA_TYPE_VA,
                &mut lmr,
                &mut context,
                &mut remote,
                null_mut(),
                null_mut(),
            )
        );
        assert_eq!(made, Ok(()));
        assert_eq!(closer.join().expect("no panic"), Ok(()));
    });
    assert_eq!(
        *REFUSAL.lock().unwrap(),
        Some(Error::of(DAT_ABORT)),
        "a call must be refused while the adapter is being closed"
    );
    assert!(handle::slot(lmr).is_some(), "{lmr:p} is a handle");
    assert!(handle::live_slot(lmr).is_err(), "the region must have gone with its adapter");
}

static TABLE: AtomicPtr<DAT_PROVIDER> = AtomicPtr::new(null_mut());
static EVD: AtomicUsize = AtomicUsize::new(0);
/// The status that the call in the handler returned, or NOT_CALLED if no call was made yet.
static STATUS: AtomicU32 = AtomicU32::new(NOT_CALLED);
const NOT_CALLED: u32 = u32::MAX;
const CALLED: u32 = u32::MAX - 1;

extern "C" fn post_to_the_freed_evd(_: c_int) {
    STATUS.store(CALLED, Ordering::SeqCst);
    let evd = EVD.load(Ordering::SeqCst) as DAT_EVD_HANDLE;
    while handle::live_slot(evd).is_ok() {
        thread::yield_now();
    }
    let event = DAT_EVENT { event_number: DAT_SOFTWARE_EVENT, ..DAT_EVENT::zeroed() };
    // SAFETY: the table belongs to the test and is never freed.
    let post = unsafe { (*TABLE.load(Ordering::SeqCst)).evd_post_se_func }
        .expect("the table has the function");
    // SAFETY: any word may be the handle, and the event is complete.
    STATUS.store(unsafe { post(evd, &event) }, Ordering::SeqCst);
}

/// dat_evd_free waits for the thread that is in dat_evd_wait. Meanwhile a signal handler of that
/// thread also uses the EVD.
#[test]
fn a_waiter_in_a_signal_handler_uses_the_evd_that_is_freed() {
    let (table, name) = mem(true);
    let side = Side::new(table, &name);
    let evd = side.new_evd(DAT_EVD_SOFTWARE_FLAG);
    TABLE.store(std::ptr::from_ref(table).cast_mut(), Ordering::SeqCst);
    EVD.store(evd as usize, Ordering::SeqCst);
    let handler = post_to_the_freed_evd as extern "C" fn(c_int);
    // SAFETY: the handler interrupts no allocation, so it may call functions that allocate memory.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    let wait = |evd: usize, timeout| {
        let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
        dat!(table, evd_wait_func(evd as DAT_EVD_HANDLE, timeout, 1, &mut event, &mut more))
    };
    thread::scope(|s| {
        let address = evd as usize;
        let (tell, told) = std::sync::mpsc::channel();
        let waiter = s.spawn(move || {
            // SAFETY: pthread_self returns the identity of this thread.
            tell.send(unsafe { libc::pthread_self() }).unwrap();
            wait(address, DAT_TIMEOUT_INFINITE)
        });
        let thread = told.recv().unwrap();
        // When the thread waits, only that thread can take events.
        let mut event = DAT_EVENT::zeroed();
        let mut dequeue = || dat!(table, evd_dequeue_func(evd, &mut event)).unwrap_err();
        while dequeue() != Error::state(DAT_INVALID_STATE_EVD_WAITER) {
            thread::yield_now();
        }
        // SAFETY: the thread has not ended, since its wait has not ended.
        assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
        while STATUS.load(Ordering::SeqCst) == NOT_CALLED {
            thread::yield_now();
        }
        dat!(table, evd_free_func(evd)).unwrap();
        assert_eq!(waiter.join().expect("no panic"), Err(Error::of(DAT_ABORT)));
    });
    let answer = client::result(STATUS.load(Ordering::SeqCst)).unwrap_err();
    assert_eq!(answer.kind(), DAT_INVALID_HANDLE);
    dat!(table, ia_close_func(side.ia, DAT_CLOSE_ABRUPT_FLAG)).unwrap();
}

thread_local! {
    /// Whether this thread cannot start threads.
    static NO_THREADS: Cell<bool> = const { Cell::new(false) };
}

/// Takes the place of the C library's function.
///
/// # Safety
///
/// The requirements are those of pthread_create.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    body: *mut c_void,
    argument: *mut c_void,
) -> c_int {
    type Create = unsafe extern "C" fn(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        *mut c_void,
        *mut c_void,
    ) -> c_int;
    if NO_THREADS.get() {
        return libc::EAGAIN;
    }
    // SAFETY: the C library has a function of this name and type.
    let create: Create =
        unsafe { std::mem::transmute(libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr())) };
    // SAFETY: the caller fulfils the contract of this function.
    unsafe { create(thread, attributes, body, argument) }
}

static WAITED: AtomicUsize = AtomicUsize::new(0);
static FREED: AtomicU32 = AtomicU32::new(NOT_CALLED);

extern "C" fn free_without_a_thread(_: c_int) {
    let evd = WAITED.load(Ordering::SeqCst) as DAT_EVD_HANDLE;
    // SAFETY: the table belongs to the test and is never freed.
    let free = unsafe { (*TABLE_OF_WAITED.load(Ordering::SeqCst)).evd_free_func }
        .expect("the table has the function");
    NO_THREADS.set(true);
    // SAFETY: any word may be the handle.
    FREED.store(unsafe { free(evd) }, Ordering::SeqCst);
    NO_THREADS.set(false);
}

static TABLE_OF_WAITED: AtomicPtr<DAT_PROVIDER> = AtomicPtr::new(null_mut());

/// A signal handler frees the EVD on which its thread waits. No thread can be started that would
/// free the EVD when the wait has ended, so dat_ia_close frees it.
#[test]
fn an_evd_that_no_thread_can_free_is_freed_at_the_close() {
    let (table, name) = mem(true);
    let side = Side::new(table, &name);
    let evd = side.new_evd(DAT_EVD_SOFTWARE_FLAG);
    TABLE_OF_WAITED.store(std::ptr::from_ref(table).cast_mut(), Ordering::SeqCst);
    WAITED.store(evd as usize, Ordering::SeqCst);
    let handler = free_without_a_thread as extern "C" fn(c_int);
    // SAFETY: the handler interrupts no allocation, so it may call functions that allocate memory.
    unsafe { libc::signal(libc::SIGUSR2, handler as libc::sighandler_t) };
    thread::scope(|s| {
        let address = evd as usize;
        let (tell, told) = std::sync::mpsc::channel();
        let waiter = s.spawn(move || {
            // SAFETY: pthread_self returns the identity of this thread.
            tell.send(unsafe { libc::pthread_self() }).unwrap();
            let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
            let evd = address as DAT_EVD_HANDLE;
            dat!(table, evd_wait_func(evd, DAT_TIMEOUT_INFINITE, 1, &mut event, &mut more))
        });
        let thread = told.recv().unwrap();
        let mut event = DAT_EVENT::zeroed();
        let mut dequeue = || dat!(table, evd_dequeue_func(evd, &mut event)).unwrap_err();
        while dequeue() != Error::state(DAT_INVALID_STATE_EVD_WAITER) {
            thread::yield_now();
        }
        // The free is refused if the signal comes before the thread sleeps.
        let mut status = NOT_CALLED;
        while status != DAT_SUCCESS {
            FREED.store(NOT_CALLED, Ordering::SeqCst);
            // SAFETY: the thread has not ended, since its wait has not ended.
            assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR2) }, 0);
            while FREED.load(Ordering::SeqCst) == NOT_CALLED {
                thread::yield_now();
            }
            status = FREED.load(Ordering::SeqCst);
            let kind = DAT_GET_TYPE(status);
            assert!(matches!(kind, DAT_SUCCESS | DAT_INSUFFICIENT_RESOURCES), "{status:#x}");
        }
        assert_eq!(waiter.join().expect("no panic"), Err(Error::of(DAT_ABORT)));
    });
    assert!(handle::live_slot(evd).is_err(), "the handle is that of an EVD that is freed");
    dat!(table, ia_close_func(side.ia, DAT_CLOSE_ABRUPT_FLAG)).unwrap();
}

static CLOSED_IA: AtomicUsize = AtomicUsize::new(0);
static CLOSED: AtomicU32 = AtomicU32::new(NOT_CALLED);
static TABLE_OF_CLOSED: AtomicPtr<DAT_PROVIDER> = AtomicPtr::new(null_mut());

extern "C" fn close_without_a_thread(_: c_int) {
    // If the signal comes before the thread sleeps, the next one will do.
    if nesting::activity() != Activity::Sleep {
        return;
    }
    let ia = CLOSED_IA.load(Ordering::SeqCst) as DAT_IA_HANDLE;
    // SAFETY: the table belongs to the test and is never freed.
    let close = unsafe { (*TABLE_OF_CLOSED.load(Ordering::SeqCst)).ia_close_func }
        .expect("the table has the function");
    NO_THREADS.set(true);
    // SAFETY: any word may be the handle.
    CLOSED.store(unsafe { close(ia, DAT_CLOSE_ABRUPT_FLAG) }, Ordering::SeqCst);
    NO_THREADS.set(false);
}

/// A signal handler closes the adapter on whose EVD its thread waits. No thread can be started that
/// would close the adapter, so the adapter stays open.
#[test]
fn an_adapter_that_no_thread_can_close_stays_open() {
    let (table, name) = mem(true);
    let side = Side::new(table, &name);
    let evd = side.new_evd(DAT_EVD_SOFTWARE_FLAG);
    TABLE_OF_CLOSED.store(std::ptr::from_ref(table).cast_mut(), Ordering::SeqCst);
    CLOSED_IA.store(side.ia as usize, Ordering::SeqCst);
    let handler = close_without_a_thread as extern "C" fn(c_int);
    // SAFETY: the handler interrupts no allocation, so it may call functions that allocate memory.
    unsafe { libc::signal(libc::SIGURG, handler as libc::sighandler_t) };
    thread::scope(|s| {
        let address = evd as usize;
        let (tell, told) = std::sync::mpsc::channel();
        let waiter = s.spawn(move || {
            // SAFETY: pthread_self returns the identity of this thread.
            tell.send(unsafe { libc::pthread_self() }).unwrap();
            let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
            let evd = address as DAT_EVD_HANDLE;
            dat!(table, evd_wait_func(evd, DAT_TIMEOUT_INFINITE, 1, &mut event, &mut more))
        });
        let thread = told.recv().unwrap();
        while CLOSED.load(Ordering::SeqCst) == NOT_CALLED {
            // SAFETY: the thread has not ended, since its wait has not ended.
            assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGURG) }, 0);
            thread::yield_now();
        }
        dat!(table, evd_free_func(evd)).unwrap();
        assert_eq!(waiter.join().expect("no panic"), Err(Error::of(DAT_ABORT)));
    });
    let answer = client::result(CLOSED.load(Ordering::SeqCst)).unwrap_err();
    assert_eq!(answer.kind(), DAT_INSUFFICIENT_RESOURCES);
    dat!(table, evd_free_func(side.new_evd(DAT_EVD_SOFTWARE_FLAG))).unwrap();
    dat!(table, ia_close_func(side.ia, DAT_CLOSE_ABRUPT_FLAG)).unwrap();
}
