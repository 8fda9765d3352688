//! Tests of registration, dat_ia_open, and the EVD of asynchronous errors.

use std::ffi::CString;
use std::ptr::null_mut;

use dat_core::export::{self, AnyProvider};
use dat_core::provider::Provider;
use dat_core::{Error, OpenError};
use dat_sys::*;
use provider_mem::{Adapter, Mem};

use crate::client::*;

#[test]
fn every_word_of_the_table_is_filled() {
    let (table, name) = mem(false);
    const WORDS: usize = 81;
    assert_eq!(size_of::<DAT_PROVIDER>(), WORDS * size_of::<usize>());
    // SAFETY: the table consists of pointers and optional functions.
    let words = unsafe { &*std::ptr::from_ref(table).cast::<[usize; WORDS]>() };
    // Word 1 of the table is reserved for the provider.
    let empty: Vec<_> = (0..WORDS).filter(|i| words[*i] == 0).collect();
    assert_eq!(empty, [1]);
    // SAFETY: the name is NUL-terminated.
    let device_name = unsafe { std::ffi::CStr::from_ptr(table.device_name) };
    assert_eq!(device_name.to_str(), Ok(name.as_str()));
}

#[test]
fn a_name_that_is_registered_again_gets_its_former_table() {
    let name = unique("again");
    let first = register::<Mem>(&name, "one", false);
    // SAFETY: the arguments are complete.
    unsafe { export::fini(REGISTRY, &info(&name, 2, 0, false)) };
    assert!(table(&name).is_none());
    let (c_name, mut evd, mut ia) = (CString::new(name.as_str()).unwrap(), null_mut(), null_mut());
    let opened = dat!(first, ia_open_func(c_name.as_ptr().cast_mut(), 1, &mut evd, &mut ia));
    assert_eq!(opened, Err(Error::new(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED)));
    assert!(std::ptr::eq(first, register::<Mem>(&name, "two", false)));
    assert!(!std::ptr::eq(first, register::<Mem>(&unique("again"), "two", false)));
}

#[test]
fn only_what_can_be_served_is_registered() {
    for (major, minor) in [(1, 1), (1, 3), (2, 1), (3, 0)] {
        let name = unique("old");
        // SAFETY: the arguments are complete.
        unsafe {
            export::init(
                AnyProvider::of::<Mem>(),
                REGISTRY,
                &info(&name, major, minor, false),
                c"".as_ptr(),
            )
        };
        assert!(table(&name).is_none(), "u{major}.{minor}");
    }
    // SAFETY: NULL pointers are permitted.
    unsafe {
        export::init(AnyProvider::of::<Mem>(), REGISTRY, std::ptr::null(), std::ptr::null());
        export::fini(REGISTRY, std::ptr::null());
        export::fini(REGISTRY, &info("never registered", 2, 0, false));
    }
    let unterminated =
        DAT_PROVIDER_INFO { ia_name: [1; DAT_NAME_MAX_LENGTH], ..info("", 2, 0, false) };
    // SAFETY: the arguments are complete.
    unsafe { export::init(AnyProvider::of::<Mem>(), REGISTRY, &unterminated, c"".as_ptr()) };
}

#[test]
fn the_entry_decides_thread_safety() {
    for thread_safe in [false, true] {
        let (table, name) = mem(thread_safe);
        let (ia, _) = open(table, &name);
        let mut attr = DAT_PROVIDER_ATTR::zeroed();
        dat!(
            table,
            ia_query_func(ia, null_mut(), 0, null_mut(), DAT_PROVIDER_FIELD_ALL, &mut attr)
        )
        .unwrap();
        assert_eq!(attr.is_thread_safe != DAT_FALSE, thread_safe);
        dat!(table, ia_close_func(ia, DAT_CLOSE_GRACEFUL_FLAG)).unwrap();
    }
}

#[test]
fn open_checks_its_arguments() {
    let (table, name) = mem(false);
    let name = CString::new(name).unwrap();
    let name = name.as_ptr().cast_mut();
    let (mut evd, mut ia) = (DAT_HANDLE_NULL, null_mut());
    assert_eq!(dat!(table, ia_open_func(null_mut(), 8, &mut evd, &mut ia)), Err(Error::arg(1)));
    assert_eq!(
        dat!(table, ia_open_func(c"\xff".as_ptr().cast_mut(), 8, &mut evd, &mut ia)),
        Err(Error::arg(1))
    );
    assert_eq!(dat!(table, ia_open_func(name, 0, &mut evd, &mut ia)), Err(Error::arg(2)));
    assert_eq!(dat!(table, ia_open_func(name, -1, &mut evd, &mut ia)), Err(Error::arg(2)));
    assert_eq!(
        dat!(table, ia_open_func(name, DAT_COUNT::MAX, &mut evd, &mut ia)),
        Err(Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEVD))
    );
    assert_eq!(dat!(table, ia_open_func(name, 8, null_mut(), &mut ia)), Err(Error::arg(3)));
    assert_eq!(dat!(table, ia_open_func(name, 8, &mut evd, null_mut())), Err(Error::arg(4)));
    assert_eq!(
        dat!(table, ia_open_func(c"nobody".as_ptr().cast_mut(), 8, &mut evd, &mut ia)),
        Err(Error::new(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED))
    );
    let invalid = Err(Error::handle(DAT_INVALID_HANDLE_EVD_ASYNC));
    for garbage in [2usize, 64, 0xdead_beef] {
        let mut evd = garbage as DAT_EVD_HANDLE;
        assert_eq!(dat!(table, ia_open_func(name, 8, &mut evd, &mut ia)), invalid, "{garbage:#x}");
        assert_eq!(evd as usize, garbage);
    }
    assert!(evd.is_null() && ia.is_null());
}

#[test]
fn an_adapter_may_report_to_an_evd_that_exists_elsewhere() {
    let (table, name) = mem(false);
    let c_name = CString::new(name).unwrap();
    let (mut evd, mut ia) = (DAT_EVD_ASYNC_EXISTS, null_mut());
    dat!(table, ia_open_func(c_name.as_ptr().cast_mut(), 0, &mut evd, &mut ia)).unwrap();
    assert_eq!(evd, DAT_EVD_ASYNC_EXISTS);
    let mut told = null_mut();
    dat!(table, ia_query_func(ia, &mut told, 0, null_mut(), 0, null_mut())).unwrap();
    assert_eq!(told, DAT_EVD_OUT_OF_SCOPE);
    dat!(table, ia_close_func(ia, DAT_CLOSE_GRACEFUL_FLAG)).unwrap();
}

#[test]
fn adapters_share_an_evd_until_either_is_closed() {
    let (table, name) = mem(false);
    let c_name = CString::new(name.as_str()).unwrap();
    let shared = |evd: DAT_EVD_HANDLE| {
        let (mut given, mut ia) = (evd, null_mut());
        dat!(table, ia_open_func(c_name.as_ptr().cast_mut(), 0, &mut given, &mut ia)).map(|()| {
            assert_eq!(given, evd);
            ia
        })
    };
    let asks = |ia| {
        let mut evd = null_mut();
        dat!(table, ia_query_func(ia, &mut evd, 0, null_mut(), 0, null_mut())).unwrap();
        evd
    };
    let (owner, evd) = open(table, &name);
    let (first, second) = (shared(evd).unwrap(), shared(evd).unwrap());
    assert_eq!([asks(owner), asks(first), asks(second)], [evd; 3]);
    assert_eq!(dat!(table, evd_free_func(evd)), Err(Error::state(DAT_INVALID_STATE_EVD_IN_USE)));
    dat!(table, ia_close_func(first, DAT_CLOSE_GRACEFUL_FLAG)).unwrap();
    assert_eq!(asks(owner), evd);
    dat!(table, ia_close_func(owner, DAT_CLOSE_GRACEFUL_FLAG)).unwrap();
    assert_eq!(asks(second), DAT_EVD_OUT_OF_SCOPE);
    assert_eq!(shared(evd), Err(Error::handle(DAT_INVALID_HANDLE_EVD_ASYNC)));
    dat!(table, ia_close_func(second, DAT_CLOSE_ABRUPT_FLAG)).unwrap();

    // Only some EVDs take asynchronous errors. EVDs of other adapters are refused.
    let side = Side::new(table, &name);
    assert_eq!(shared(side.evd), Err(Error::handle(DAT_INVALID_HANDLE_EVD_ASYNC)));
    let (other_table, other_name) = mem(false);
    let (other, other_evd) = open(other_table, &other_name);
    assert_eq!(shared(other_evd), Err(Error::handle(DAT_INVALID_HANDLE_EVD_ASYNC)));
    dat!(other_table, ia_close_func(other, DAT_CLOSE_ABRUPT_FLAG)).unwrap();
    side.close();
}

/// A provider whose `open` fails or panics.
#[derive(Default)]
struct Broken;

impl Provider for Broken {
    type Transport = Adapter;
    const NAME: &'static str = "broken";

    fn open(&self, _: &str, params: &str) -> Result<Adapter, OpenError> {
        assert_ne!(params, "panic", "the test asked for this panic");
        Err(OpenError::new(
            Error::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNREACHABLE),
            "no such device",
        ))
    }
}

#[test]
fn errors_and_panics_of_a_provider_become_statuses() {
    for (params, error) in [
        ("eth9", Error::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNREACHABLE)),
        ("panic", Error::of(DAT_INTERNAL_ERROR)),
    ] {
        let name = unique("broken");
        let table = register::<Broken>(&name, params, false);
        let (c_name, mut evd, mut ia) = (CString::new(name).unwrap(), null_mut(), null_mut());
        let opened = dat!(table, ia_open_func(c_name.as_ptr().cast_mut(), 1, &mut evd, &mut ia));
        assert_eq!(opened, Err(error));
    }
}
