//! Tests with providers of other vendors: a small one in C that logs its calls, and OFED's own.

use std::cell::RefCell;
use std::ffi::CString;
use std::path::Path;
use std::ptr::{self, null_mut};
use std::sync::{Mutex, PoisonError};

use dat_sys::*;
use registry::status::Status;
use registry::{
    Api, Builtin, Builtins, List, OpenFailure, OpenRequest, Opened, Origin, Registry, Wanted, abi,
    close, ia, open_candidate, table_of,
};
use support::Vendor;

mod support;

registry::export_symbols!();

const SUCCESS: DAT_RETURN = DAT_SUCCESS;

fn request(name: &str) -> OpenRequest<'_> {
    OpenRequest {
        wanted: Wanted { name, major: 2, minor: 0, threadsafe: false },
        async_evd_qlen: 8,
        async_evd: null_mut(),
    }
}

/// Returns built-in adapters with one entry each, which is not thread-safe.
fn builtins(adapters: &'static [&'static [Builtin]]) -> Builtins {
    Builtins { adapters, api: Api::U2_0, threadsafe: &[false] }
}

fn registry(conf: &Path, adapters: &'static [&'static [Builtin]]) -> Registry {
    let list = List::new(Some(conf.into()), None, builtins(adapters));
    assert!(list.errors().is_empty(), "{:?}", list.errors());
    Registry::with_list(list)
}

fn refused(word: DAT_RETURN) -> OpenFailure {
    OpenFailure::Refused(Status { word, major: 2 })
}

fn close_abruptly(opened: Opened) {
    assert_eq!(close(opened.ia, DAT_CLOSE_ABRUPT_FLAG), SUCCESS);
}

/// Other registries also load a provider without dat_provider_fini. This registry unregisters the
/// provider's tables itself.
#[test]
fn a_provider_without_dat_provider_fini_works() {
    let Some(vendor) = Vendor::build_with(&["-DNO_FINI"]) else { return };
    vendor.write_conf("short u2.0 nonthreadsafe default LIB fake.1.0 \"LOG\" \"\"");
    let registry = registry(&vendor.conf(), &[]);
    for _ in 0..2 {
        let opened = registry.open(&request("short")).expect("the adapter opens");
        assert_eq!(vendor.log(), ["init short 2.0 0", "open short 8"]);
        close_abruptly(opened);
        assert_eq!(vendor.log(), ["close 0"]);
        assert!(!vendor.is_loaded());
    }
}

/// If the registry called dlopen for a FIFO, the call would wait until a program writes to the
/// FIFO.
#[test]
fn a_library_that_is_a_fifo_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let fifo = directory.path().join("libprovider.so");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo starts");
    assert!(made.success());
    let error = registry::check_loads(&fifo.to_string_lossy())
        .expect_err("a FIFO must not load as a library");
    assert_eq!(error.to_string(), format!("{}: it is not a regular file", fifo.display()));
}

#[test]
fn a_provider_is_loaded_started_opened_closed_finished_and_unloaded() {
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf("one u2.0 threadsafe default LIB fake.1.0 \"LOG\" \"\"");
    let registry = registry(&vendor.conf(), &[]);
    assert!(!vendor.is_loaded());
    let opened = registry.open(&request("one")).expect("the adapter opens");
    assert!(vendor.is_loaded());
    // The provider receives the thread safety of the entry, not the thread safety that the consumer
    // requested.
    assert_eq!(vendor.log(), ["init one 2.0 1", "open one 8"]);
    assert_eq!(table_of(opened.provider_ia), Some(opened.table));
    assert!(!opened.async_evd.is_null());
    close_abruptly(opened);
    assert_eq!(vendor.log(), ["close 0", "fini one"]);
    assert!(!vendor.is_loaded());
    assert_eq!(
        close(opened.ia, DAT_CLOSE_ABRUPT_FLAG),
        DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA)
    );
}

#[test]
fn a_second_ia_shares_the_provider_and_the_last_one_ends_it() {
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf("two u2.0 nonthreadsafe default LIB fake.1.0 \"LOG\" \"\"");
    let registry = registry(&vendor.conf(), &[]);
    let first = registry.open(&request("two")).expect("the adapter opens");
    let second = registry.open(&request("two")).expect("the adapter opens a second time");
    assert_ne!(first.ia, second.ia);
    assert_eq!(vendor.log(), ["init two 2.0 0", "open two 8", "open two 8"]);
    close_abruptly(first);
    assert_eq!(vendor.log(), ["close 0"]);
    assert_eq!(table_of(second.provider_ia), Some(second.table));
    close_abruptly(second);
    assert_eq!(vendor.log(), ["close 0", "fini two"]);
    assert!(!vendor.is_loaded());
}

#[test]
fn handles_are_small_integers_that_translate_both_ways() {
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf("many u2.0 nonthreadsafe default LIB fake.1.0 \"\" \"\"");
    let registry = registry(&vendor.conf(), &[]);
    let opened: Vec<_> =
        (0..100).map(|_| registry.open(&request("many")).expect("the adapter opens")).collect();
    for one in &opened {
        assert!((1..512).contains(&one.ia.addr()));
        assert_eq!(ia::provider_ia(one.ia), Some(one.provider_ia));
        assert_eq!(ia::translate(one.ia), Some(one.provider_ia));
        assert_eq!(ia::translate(one.provider_ia), Some(one.ia));
        assert_eq!(ia::object(one.ia), Some(one.provider_ia));
        assert_eq!(ia::object(one.provider_ia), Some(one.provider_ia));
    }
    let last = opened[99];
    opened.into_iter().for_each(close_abruptly);
    assert_eq!(ia::provider_ia(last.ia), None);
    assert_eq!(ia::translate(last.provider_ia), None);
    assert_eq!(ia::provider_ia(null_mut()), None);
}

#[test]
fn duplicates_are_tried_in_order_until_one_can_be_loaded() {
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf(
        "dup u2.0 nonthreadsafe default /nonexistent/lib.so fake.1.0 \"\" \"\"\n\
         dup u2.0 nonthreadsafe default /nonexistent/other.so fake.1.0 \"\" \"\"\n\
         dup u2.0 nonthreadsafe default LIB fake.1.0 \"LOG\" \"\"\n",
    );
    let registry = registry(&vendor.conf(), &[]);
    let opened = registry.open(&request("dup")).expect("the third entry opens");
    assert_eq!(vendor.log(), ["init dup 2.0 0", "open dup 8"]);
    close_abruptly(opened);
    assert_eq!(vendor.log(), ["close 0", "fini dup"]);
    assert!(!vendor.is_loaded());
}

#[test]
fn every_failure_keeps_its_reason() {
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf(
        "bad u2.0 nonthreadsafe default /nonexistent/lib.so fake.1.0 \"\" \"\"\n\
         bad u2.0 nonthreadsafe default LIB fake.1.0 \"open=0x00040000\" \"\"\n\
         bad u2.0 nonthreadsafe default LIB fake.1.0 \"\" \"\"\n\
         alien u2.0 nonthreadsafe default libm.so.6 fake.1.0 \"\" \"\"\n\
         alien u2.0 nonthreadsafe default LIB fake.1.0 \"\" \"\"\n\
         mute u2.0 nonthreadsafe default LIB fake.1.0 \"register=no\" \"\"\n\
         mute u2.0 nonthreadsafe default LIB fake.1.0 \"\" \"\"\n",
    );
    let registry = registry(&vendor.conf(), &[]);
    let error = registry.open(&request("bad")).expect_err("no entry may open");
    // The status of the first provider that loads is passed on unchanged. Statuses of OFED's
    // providers have no class. The next entry is not tried, because it has other parameters.
    assert_eq!(error.status(), 0x0004_0000);
    let lines: Vec<_> = error
        .attempts
        .iter()
        .map(|attempt| match &attempt.origin {
            Origin::File { line, column, .. } => (*line, *column),
            _ => (0, 0),
        })
        .collect();
    assert_eq!(lines, [(1, 1), (2, 1)]);
    let failures: Vec<_> =
        error.attempts.iter().map(|attempt| attempt.failure.to_string()).collect();
    assert!(
        failures[0].contains(
            "/nonexistent/lib.so: cannot open shared object \
                                  file"
        ),
        "{}",
        failures[0]
    );
    assert_eq!(error.attempts[1].failure, refused(0x0004_0000));
    assert!(failures[1].contains("0x00040000 (DAT_INTERNAL_ERROR)"), "{}", failures[1]);
    let text = error.to_string();
    assert!(text.starts_with("cannot open IA \"bad\" (u2.0)\n"), "{text}");
    assert!(text.contains("dat.conf:2:1: "), "{text}");
    // As in OFED's registry, the first library that loads is final, even if it is not a provider.
    let error = registry.open(&request("alien")).expect_err("no entry may open");
    let failures: Vec<_> =
        error.attempts.iter().map(|attempt| attempt.failure.to_string()).collect();
    assert!(
        matches!(
            &failures[..],
            [failure] if failure.contains("not a DAT provider")
                && failure.contains("dat_provider_init")
        ),
        "{failures:?}"
    );
    let error = registry.open(&request("mute")).expect_err("no entry may open");
    let failures: Vec<_> =
        error.attempts.iter().map(|attempt| attempt.failure.to_string()).collect();
    assert_eq!(failures, ["its dat_provider_init did not register mute for u2.0"]);
    assert!(!vendor.is_loaded());
}

#[test]
fn many_failures_are_told_in_few_lines() {
    let dir = tempfile::tempdir().expect("a directory");
    let conf = dir.path().join("dat.conf");
    let line = |n: usize| {
        let params = "x".repeat(if n == 0 { 1 << 20 } else { n });
        format!("many u2.0 nonthreadsafe default /nonexistent/{n}.so fake.1.0 \"{params}\" \"\"\n")
    };
    std::fs::write(&conf, (0..2000).map(line).collect::<String>())
        .expect("the file can be written");
    let error = registry(&conf, &[]).open(&request("many")).expect_err("no entry may open");
    let text = error.to_string();
    assert_eq!((error.attempts.len(), text.lines().count()), (2000, 10));
    assert!(
        text.len() < 5000 && text.ends_with("\n    and 1992 more entries of this name"),
        "{text}"
    );
}

#[test]
fn a_long_value_is_told_in_part() {
    let dir = tempfile::tempdir().expect("a directory");
    let conf = dir.path().join("dat.conf");
    let library = "l".repeat(1 << 20);
    let line = format!("long u2.0 nonthreadsafe default {library} fake.1.0 \"{library}\" \"\"\n");
    std::fs::write(&conf, line).expect("the file can be written");
    let text = registry(&conf, &[])
        .open(&request("long"))
        .expect_err("the library must not load")
        .to_string();
    assert!(text.len() < 2000 && text.contains("(1048576 octets)"), "{} octets", text.len());
    assert!(text.contains("cannot open shared object file"), "{text}");
}

#[test]
fn each_entry_can_be_tried_by_itself() {
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf(
        "each u2.0 nonthreadsafe default LIB fake.1.0 \"open=0x80030003\" \"\"\n\
         each u2.0 nonthreadsafe default LIB fake.1.0 \"LOG\" \"\"\n",
    );
    let registry = registry(&vendor.conf(), &[]);
    let [first, second] = registry.list().candidates()[..] else {
        panic!("two entries must be listed")
    };
    assert_eq!(open_candidate(first, &request("each")).err(), Some(refused(0x8003_0003)));
    close_abruptly(open_candidate(second, &request("each")).expect("the adapter opens"));
    assert_eq!(vendor.log(), ["init each 2.0 0", "open each 8", "close 0", "fini each"]);
}

#[test]
fn what_no_entry_offers_has_its_subtype() {
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf("some u2.0 nonthreadsafe default LIB fake.1.0 \"\" \"\"\n");
    let registry = registry(&vendor.conf(), &[]);
    let status = |name, major, minor, threadsafe| {
        let wanted = Wanted { name, major, minor, threadsafe };
        registry
            .open(&OpenRequest { wanted, ..request("") })
            .expect_err("the entry must not open")
            .status()
    };
    assert_eq!(status("none", 2, 0, false), 0x800a_0064);
    assert_eq!(status("some", 3, 0, false), 0x800a_0065);
    assert_eq!(status("some", 1, 0, false), 0x800a_0063, "the status must have the number of 1.2");
    assert_eq!(status("some", 2, 1, false), 0x800a_0066);
    assert_eq!(status("some", 2, 0, true), 0x800a_0067);
    assert!(!vendor.is_loaded());
}

#[test]
fn an_unknown_name_says_which_are_known_and_what_is_turned_off() {
    static BUILTINS: &[&[Builtin]] = &[&[Builtin { name: "inside", ..builtin::BUILTIN }]];
    let directory = tempfile::tempdir().expect("a directory");
    let conf = directory.path().join("dat.conf");
    let line = |n| format!("n{n} u2.0 nonthreadsafe default n.so fake.1.0 \"\" \"\"\n");
    let text = |entries, opendat_params: &str| {
        std::fs::write(&conf, (0..entries).map(line).collect::<String>())
            .expect("the file can be written");
        let list =
            List::new(Some(conf.clone().into()), Some(opendat_params.into()), builtins(BUILTINS));
        let error = Registry::with_list(list)
            .open(&request("x"))
            .expect_err("an unknown entry must not open")
            .to_string();
        error.replace(&conf.display().to_string(), "FILE")
    };
    let unknown = "cannot open IA \"x\" (u2.0): no entry has this name";
    let off = "; built-in providers are turned off by builtin=off in OPENDAT_PARAMS";
    assert_eq!(
        text(1, "builtin=on"),
        format!("{unknown}; known are inside, n0 (registry file: FILE)")
    );
    assert_eq!(
        text(0, "builtin=off"),
        format!("{unknown}; none are known (registry file: FILE{off})")
    );
    let eight = "inside, n0, n1, n2, n3, n4, n5, n6";
    assert_eq!(
        text(9, ""),
        format!("{unknown}; known are {eight} and 2 more (registry file: FILE)")
    );
}

#[test]
fn a_builtin_provider_that_fails_is_reported_once() {
    const DEAF: Builtin = Builtin {
        name: "deaf",
        params: "",
        table: |_, _| Err("it is deaf".to_owned()),
        discover: None,
    };
    let builtins = Builtins { threadsafe: &[false, true], ..builtins(&[&[DEAF]]) };
    let registry = Registry::with_list(List::new(Some("/dev/null".into()), None, builtins));
    let error = registry.open(&request("deaf")).expect_err("the entry must not open");
    assert_eq!(
        error.to_string(),
        "cannot open IA \"deaf\" (u2.0)\n    built in: its function table cannot be registered: \
         it is deaf"
    );
}

#[test]
fn a_name_that_the_program_has_registered_is_not_built_in() {
    let _alone = BUILTIN_TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    static BUILTINS: &[&[Builtin]] = &[&[Builtin { name: "taken", ..builtin::BUILTIN }]];
    let mut info = DAT_PROVIDER_INFO { dapl_version_major: 2, ..DAT_PROVIDER_INFO::zeroed() };
    for (to, from) in info.ia_name.iter_mut().zip(b"taken") {
        *to = *from as _;
    }
    let table = &raw const builtin::TABLE;
    // SAFETY: the table is static and the info complete.
    assert_eq!(unsafe { abi::add_provider(table, &info) }, SUCCESS);
    let error = registry(Path::new("/dev/null"), BUILTINS)
        .open(&request("taken"))
        .expect_err("the entry must not open");
    assert_eq!(
        error.to_string(),
        "cannot open IA \"taken\" (u2.0)\n    built in \"inside\": its function table cannot \
         be registered: DAT_PROVIDER_ALREADY_REGISTERED"
    );
    // SAFETY: the table is static and the info complete.
    assert_eq!(unsafe { abi::remove_provider(table, &info) }, SUCCESS);
}

/// Serialises the tests that register the table below.
static BUILTIN_TABLE: Mutex<()> = Mutex::new(());

#[test]
fn an_entry_of_the_file_hides_a_builtin_one() {
    let _alone = BUILTIN_TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    static BUILTINS: &[&[Builtin]] = &[&[Builtin { name: "shadow", ..builtin::BUILTIN }]];
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf(
        "shadow u2.0 nonthreadsafe default LIB fake.1.0 \"LOG open=0x80030003\" \"\"\n",
    );
    let error = registry(&vendor.conf(), BUILTINS)
        .open(&request("shadow"))
        .expect_err("the provider must refuse");
    assert_eq!(vendor.log(), ["init shadow 2.0 0", "open shadow 8", "fini shadow"]);
    assert_eq!((error.attempts.len(), error.status()), (1, 0x8003_0003));
    vendor.write_conf("shadow u2.0 nonthreadsafe default /nonexistent/lib.so fake.1.0 \"\" \"\"\n");
    registry(&vendor.conf(), BUILTINS)
        .open(&request("shadow"))
        .expect_err("no other provider may open");

    vendor.write_conf("");
    let opened = registry(&vendor.conf(), BUILTINS)
        .open(&request("shadow"))
        .expect("the built-in provider opens");
    assert_eq!(table_of(opened.provider_ia), Some(&raw const builtin::TABLE));
    close_abruptly(opened);
    assert_eq!(table_of(opened.provider_ia), None);

    vendor.write_conf("shadow u2.0 nonthreadsafe default LIB fake.1.0 \"LOG\" \"\"\n");
    let opened = registry(&vendor.conf(), BUILTINS)
        .open(&request("shadow"))
        .expect("the entry of the file opens");
    assert_ne!(table_of(opened.provider_ia), Some(&raw const builtin::TABLE));
    close_abruptly(opened);
}

#[test]
fn an_ia_may_have_another_table_than_the_one_that_is_registered() {
    static BUILTINS: &[&[Builtin]] = &[&[Builtin { name: "two", ..two_tables::BUILTIN }]];
    let registry = registry(Path::new("/dev/null"), BUILTINS);
    let [one, two] = [(); 2].map(|()| registry.open(&request("two")).expect("the adapter opens"));
    let own = &raw const two_tables::OWN;
    for opened in [one, two] {
        assert_eq!((opened.table, table_of(opened.provider_ia)), (own, Some(own)));
        assert!(ia::open_under("two").contains(&(opened.provider_ia, own)));
    }
    close_abruptly(one);
    assert_eq!(table_of(two.provider_ia), Some(own), "the other adapter must still be open");
    close_abruptly(two);
    assert_eq!(table_of(two.provider_ia), None);
    assert_eq!(two_tables::CLOSED.load(std::sync::atomic::Ordering::Relaxed), 2);
}

/// A provider that registers one function table, while its adapters use another table.
mod two_tables {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static REGISTERED: DAT_PROVIDER =
        DAT_PROVIDER { ia_open_func: Some(open), ..DAT_PROVIDER::zeroed() };
    pub(super) static OWN: DAT_PROVIDER =
        DAT_PROVIDER { ia_close_func: Some(close), ..DAT_PROVIDER::zeroed() };
    pub(super) static CLOSED: AtomicU32 = AtomicU32::new(0);

    pub(super) const BUILTIN: Builtin =
        Builtin { name: "", params: "", table: |_, _| Ok(&raw const REGISTERED), discover: None };

    unsafe extern "C" fn open(
        _: DAT_NAME_PTR,
        _: DAT_COUNT,
        _: *mut DAT_EVD_HANDLE,
        ia: *mut DAT_IA_HANDLE,
    ) -> DAT_RETURN {
        // The object consists only of the address of its table.
        let object: &'static mut &'static DAT_PROVIDER = Box::leak(Box::new(&OWN));
        // SAFETY: the registry's contract guarantees valid pointers.
        unsafe { ia.write(ptr::from_mut(object).cast()) };
        SUCCESS
    }

    unsafe extern "C" fn close(_: DAT_IA_HANDLE, _: DAT_CLOSE_FLAGS) -> DAT_RETURN {
        CLOSED.fetch_add(1, Ordering::Relaxed);
        SUCCESS
    }
}

/// The smallest possible provider, which is linked into the test.
mod builtin {
    use super::*;

    pub(super) static TABLE: DAT_PROVIDER = DAT_PROVIDER {
        ia_open_func: Some(open),
        ia_close_func: Some(close),
        ..DAT_PROVIDER::zeroed()
    };

    struct Object(
        #[expect(dead_code, reason = "handles are read by their first word")] &'static DAT_PROVIDER,
    );
    static OBJECT: Object = Object(&TABLE);

    pub(super) const BUILTIN: Builtin = Builtin {
        name: "",
        params: "inside",
        table: |_, params| {
            assert_eq!(params, "inside");
            Ok(&raw const TABLE)
        },
        discover: None,
    };

    unsafe extern "C" fn open(
        _: DAT_NAME_PTR,
        _: DAT_COUNT,
        _: *mut DAT_EVD_HANDLE,
        ia: *mut DAT_IA_HANDLE,
    ) -> DAT_RETURN {
        // SAFETY: the registry's contract guarantees valid pointers.
        unsafe { ia.write(ptr::from_ref(&OBJECT).cast_mut().cast()) };
        SUCCESS
    }

    unsafe extern "C" fn close(_: DAT_IA_HANDLE, _: DAT_CLOSE_FLAGS) -> DAT_RETURN {
        SUCCESS
    }
}

#[test]
fn an_ia_that_its_provider_does_not_close_stays_open() {
    let Some(vendor) = Vendor::build() else { return };
    vendor
        .write_conf("busy u2.0 nonthreadsafe default LIB fake.1.0 \"LOG close=0x80070050\" \"\"\n");
    let registry = registry(&vendor.conf(), &[]);
    let opened = registry.open(&request("busy")).expect("the adapter opens");
    assert_eq!(close(opened.ia, DAT_CLOSE_GRACEFUL_FLAG), 0x8007_0050);
    assert_eq!(ia::provider_ia(opened.ia), Some(opened.provider_ia));
    close_abruptly(opened);
    assert_eq!(vendor.log(), ["init busy 2.0 0", "open busy 8", "close 1", "close 0", "fini busy"]);
}

#[test]
fn a_provider_that_forgets_to_unregister_is_forgotten() {
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf("keep u2.0 nonthreadsafe default LIB fake.1.0 \"keep=yes\" \"\"\n");
    let registry = registry(&vendor.conf(), &[]);
    for _ in 0..3 {
        let opened = registry.open(&request("keep")).expect("the adapter opens each time");
        close_abruptly(opened);
        assert!(!vendor.is_loaded());
        assert_eq!(table_of(opened.provider_ia), None);
        assert!(!registry::handle::is_registered(opened.table));
    }
}

#[test]
fn a_provider_may_register_itself_and_only_goes_when_unused() {
    let _alone = BUILTIN_TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    static TABLE: DAT_PROVIDER = DAT_PROVIDER::zeroed();
    let info = |name: &str| {
        let name = CString::new(name).expect("no NUL");
        let mut info = DAT_PROVIDER_INFO { dapl_version_major: 2, ..DAT_PROVIDER_INFO::zeroed() };
        for (to, from) in info.ia_name.iter_mut().zip(name.as_bytes_with_nul()) {
            *to = *from as _;
        }
        info
    };
    let mut endless = info("x");
    endless.ia_name.fill(b'x' as _);
    let table = &raw const builtin::TABLE;
    let (own, other) = (info("own"), info("other"));
    // SAFETY: the tables are static and the infos are complete. A null pointer causes an error
    // status.
    unsafe {
        assert_eq!(abi::add_provider(ptr::null(), &own), 0x8006_0025);
        assert_eq!(abi::add_provider(table, ptr::null()), 0x8006_0026);
        assert_eq!(abi::add_provider(table, &endless), 0x8006_0026);
        assert_eq!(abi::add_provider(table, &own), SUCCESS);
        assert_eq!(abi::add_provider(table, &own), DAT_ERROR(DAT_PROVIDER_ALREADY_REGISTERED, 0));
        assert_eq!(abi::add_provider(&TABLE, &own), DAT_ERROR(DAT_PROVIDER_ALREADY_REGISTERED, 0));
        assert_eq!(abi::add_provider(table, &other), SUCCESS);
        assert_eq!(abi::remove_provider(&TABLE, &own), 0x800a_0064);

        let opened = Registry::with_list(List::default())
            .open(&request("own"))
            .expect("the adapter opens by its name");
        assert_eq!(table_of(opened.provider_ia), Some(table));
        assert_eq!(abi::remove_provider(table, &own), DAT_ERROR(DAT_PROVIDER_IN_USE, 0));
        close_abruptly(opened);
        assert_eq!(abi::remove_provider(table, &own), SUCCESS);
        // The table is still registered as "other".
        assert_eq!(table_of(opened.provider_ia), Some(table));
        assert_eq!(abi::remove_provider(table, &other), SUCCESS);
        assert_eq!(abi::remove_provider(table, &other), 0x800a_0064);
    }
    let error = Registry::with_list(List::default())
        .open(&request("own"))
        .expect_err("an adapter that is no longer registered must not open");
    assert_eq!(error.status(), 0x800a_0064);
}

#[test]
fn eight_threads_open_and_close_without_disturbing_each_other() {
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf(
        "a u2.0 nonthreadsafe default LIB fake.1.0 \"\" \"\"\n\
         b u2.0 nonthreadsafe default LIB fake.1.0 \"\" \"\"\n",
    );
    let registry = registry(&vendor.conf(), &[]);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let registry = &registry;
            scope.spawn(move || {
                for _ in 0..125 {
                    let opened =
                        registry.open(&request(["a", "b"][thread % 2])).expect("the adapter opens");
                    assert_eq!(table_of(opened.provider_ia), Some(opened.table));
                    close_abruptly(opened);
                }
            });
        }
    });
    assert!(!vendor.is_loaded());
}

/// OFED's providers, as distributions ship them. Loading them needs no RDMA device.
#[test]
fn ofed_providers_load_register_and_say_why_they_do_not_open() {
    for (library, params) in [
        ("libdaplofa.so.2", "ib0 0"),
        ("libdaploscm.so.2", "mlx4_0 1"),
        ("libdaploucm.so.2", "mlx4_0 1"),
    ] {
        // SAFETY: this loads a provider library whose constructors do nothing unusual.
        if let Err(error) = unsafe { libloading::Library::new(library) }
            && std::error::Error::source(&error)
                .is_some_and(|why| why.to_string().contains("No such file"))
        {
            println!("SKIP: {library} is not installed (package libdapl2)");
            continue;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let conf = directory.path().join("dat.conf");
        let line = format!(
            "ofed-{params} u2.0 nonthreadsafe default {library} dapl.2.0 \"{params}\" \"\"\n"
        );
        let name = line.split(" u2.0").next().expect("a name").replace(' ', "-");
        std::fs::write(&conf, line.replacen(&format!("ofed-{params}"), &name, 1))
            .expect("the file can be written");
        let error = match registry(&conf, &[]).open(&request(&name)) {
            Ok(opened) => {
                println!("{library}: there is a device");
                close_abruptly(opened);
                continue;
            }
            Err(error) => error,
        };
        // A refusal by the provider shows that the provider was loaded and has registered.
        let OpenFailure::Refused(Status { word: status, .. }) = error.attempts[0].failure else {
            panic!("{error}")
        };
        assert_ne!(status, SUCCESS);
        assert_eq!(error.status(), status);
        assert!(error.to_string().contains(library), "{error}");
        let maps =
            std::fs::read_to_string("/proc/self/maps").expect("the process's own memory map");
        // The probe above has been dropped, so the library is mapped only if the registry still
        // holds it.
        assert!(!maps.contains(library), "{library} is unloaded after the failed open");
    }
}

/// A layered provider opens an IA of another provider when it is started, and closes that IA when
/// it is finished. An attempt to open an IA of the provider itself fails.
#[test]
fn a_provider_may_open_another_one_while_it_is_started_and_finished() {
    // The registry calls the provider in the thread that opens and closes the IA.
    thread_local! {
        static LAYERED: RefCell<Option<(Registry, Option<Opened>)>> = const { RefCell::new(None) };
    }
    unsafe extern "C" fn call(starts: i32) {
        LAYERED.with_borrow_mut(|layered| {
            let (registry, lower) = layered.as_mut().expect("the test has set the registry");
            let itself = registry.open(&request("upper"));
            assert!(itself.is_err(), "a provider must not open itself");
            if starts == 1 {
                *lower = Some(registry.open(&request("lower")).expect("the lower IA opens"));
                return;
            }
            // The lower provider stays loaded while another one of its IAs is opened.
            let again = registry.open(&request("lower")).expect("the lower IA opens again");
            close_abruptly(again);
            close_abruptly(lower.take().expect("the lower IA is open"));
        });
    }
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf(&format!(
        "upper u2.0 nonthreadsafe default LIB fake.1.0 \"LOG call={:#x}\" \"\"\n\
         lower u2.0 nonthreadsafe default LIB fake.1.0 \"LOG\" \"\"\n",
        call as unsafe extern "C" fn(i32) as usize
    ));
    let of_test = registry(&vendor.conf(), &[]);
    LAYERED.set(Some((registry(&vendor.conf(), &[]), None)));
    let upper = of_test.open(&request("upper")).expect("the upper IA opens");
    assert_eq!(
        vendor.log(),
        ["init upper 2.0 0", "init lower 2.0 0", "open lower 8", "open upper 8"]
    );
    close_abruptly(upper);
    assert_eq!(
        vendor.log(),
        ["close 0", "fini upper", "open lower 8", "close 0", "close 0", "fini lower"]
    );
    assert!(!vendor.is_loaded());
}
