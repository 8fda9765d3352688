//! How the library is loaded and unloaded: symbol versions, scopes, messages and leaks.

use std::ffi::{CString, c_char};
use std::path::Path;
use std::process::Command;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use crate::support::{Child, Vendor, load, ours};
use dat_sys::*;
use libloading::os::unix::Library;

/// The functions that the library must export: the functions of the standard, the functions that
/// OFED adds, and the functions that OFED declares in its headers but does not export.
const FUNCTIONS: &str = "\
    dat_ia_openv dat_ia_query dat_ia_close dat_set_consumer_context dat_get_consumer_context \
    dat_get_handle_type \
    dat_cno_create dat_cno_modify_agent dat_cno_query dat_cno_free dat_cno_wait \
    dat_cr_query dat_cr_accept dat_cr_reject dat_cr_handoff \
    dat_evd_create dat_evd_query dat_evd_modify_cno dat_evd_enable dat_evd_disable dat_evd_wait \
    dat_evd_resize \
    dat_evd_post_se dat_evd_dequeue dat_evd_free dat_evd_set_unwaitable dat_evd_clear_unwaitable \
    dat_ep_create dat_ep_create_with_srq dat_ep_query dat_ep_modify dat_ep_connect \
    dat_ep_dup_connect \
    dat_ep_disconnect dat_ep_post_send dat_ep_post_recv dat_ep_post_rdma_read \
    dat_ep_post_rdma_write \
    dat_ep_get_status dat_ep_free dat_ep_reset dat_ep_recv_query dat_ep_set_watermark \
    dat_lmr_create dat_lmr_query dat_lmr_free dat_lmr_sync_rdma_read dat_lmr_sync_rdma_write \
    dat_rmr_create dat_rmr_query dat_rmr_bind dat_rmr_free \
    dat_psp_create dat_psp_create_any dat_psp_query dat_psp_free dat_rsp_create dat_rsp_query \
    dat_rsp_free \
    dat_pz_create dat_pz_query dat_pz_free \
    dat_srq_create dat_srq_free dat_srq_post_recv dat_srq_query dat_srq_resize dat_srq_set_lw \
    dat_registry_add_provider dat_registry_remove_provider dat_registry_list_providers \
    dat_strerror \
    dat_extension_op dats_get_ia_handle \
    dat_cno_fd_create dat_cno_trigger dat_csp_create dat_csp_query dat_csp_free \
    dat_ep_common_connect \
    dat_ep_post_rdma_read_to_rmr dat_ep_post_send_with_invalidate dat_rmr_create_for_ep \
    dat_registry_providers_related";

#[test]
fn every_function_has_its_version_and_nothing_else_is_exported() {
    let output = match Command::new("nm").args(["-D", "--defined-only"]).arg(ours()).output() {
        Ok(output) => output,
        Err(error) => {
            println!("SKIP: nm does not run ({error}; package binutils)");
            return;
        }
    };
    let text = String::from_utf8(output.stdout).expect("nm writes text");
    let mut exported: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_once(" T ").map(|(_, symbol)| symbol.to_owned()))
        .collect();
    let mut expected: Vec<_> =
        FUNCTIONS.split_whitespace().map(|name| format!("{name}@@DAT_2.0")).collect();
    exported.sort();
    expected.sort();
    assert_eq!(expected.len(), 84);
    assert_eq!(exported, expected);
    let others: Vec<_> = text.lines().filter(|line| !line.contains(" T ")).collect();
    assert!(others.iter().all(|line| line.ends_with(" A DAT_2.0")), "{others:?}");
}

#[test]
fn the_dynamic_linker_finds_every_function_under_its_version() {
    Child::new("loading::child_looks_functions_up", ours(), Path::new("/dev/null")).run();
}

#[test]
#[ignore = "not a test: the test above runs this in a child process"]
fn child_looks_functions_up() {
    let Some(library) = load(false) else { return };
    let library = library.into_raw();
    for name in FUNCTIONS.split_whitespace() {
        let name = CString::new(name).expect("no NUL");
        // SAFETY: this only looks up a name in an open library.
        let address = unsafe { libc::dlvsym(library, name.as_ptr(), c"DAT_2.0".as_ptr()) };
        assert!(!address.is_null(), "{name:?}");
    }
}

type Open = unsafe extern "C" fn(
    *const c_char,
    DAT_COUNT,
    *mut DAT_EVD_HANDLE,
    *mut DAT_IA_HANDLE,
    u32,
    u32,
    DAT_BOOLEAN,
) -> DAT_RETURN;
type Close = unsafe extern "C" fn(DAT_IA_HANDLE, DAT_CLOSE_FLAGS) -> DAT_RETURN;

fn open(library: &Library, name: &str) -> Result<DAT_IA_HANDLE, DAT_RETURN> {
    let name = CString::new(name).expect("no NUL");
    let (mut evd, mut ia) = (null_mut(), null_mut());
    // SAFETY: the function has this type, and the arguments are valid.
    let status = unsafe {
        let open = library.get::<Open>("dat_ia_openv").expect("the library exports the function");
        open(name.as_ptr(), 8, &mut evd, &mut ia, 2, 0, DAT_FALSE)
    };
    if status == DAT_SUCCESS { Ok(ia) } else { Err(status) }
}

fn close(library: &Library, ia: DAT_IA_HANDLE) {
    // SAFETY: the function has this type.
    let status = unsafe {
        library.get::<Close>("dat_ia_close").expect("the library exports the function")(
            ia,
            DAT_CLOSE_ABRUPT_FLAG,
        )
    };
    assert_eq!(status, DAT_SUCCESS);
}

/// OFED's library fails this test with "undefined symbol: dat_registry_add_provider".
#[test]
fn a_library_that_was_opened_locally_still_loads_providers() {
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf("v u2.0 nonthreadsafe default LIB fake.1.0 \"LOG\" \"\"\n");
    Child::new("loading::child_opened_locally", ours(), &vendor.conf()).run();
    assert_eq!(vendor.log(), ["init v 2.0 0", "open v 8", "close 0", "fini v"]);
}

#[test]
#[ignore = "not a test: the test above runs this in a child process"]
fn child_opened_locally() {
    let Some(library) = load(false) else { return };
    let ia = open(&library, "v").expect("the adapter opens");
    close(&library, ia);
}

/// A program may exit, and a plug-in may be unloaded, while IAs are open.
#[test]
fn ending_with_open_adapters_is_no_crash() {
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf("v u2.0 nonthreadsafe default LIB fake.1.0 \"\" \"\"\n");
    Child::new("loading::child_leaves_adapters_open", ours(), &vendor.conf()).run();
}

#[test]
#[ignore = "not a test: the test above runs this in a child process"]
fn child_leaves_adapters_open() {
    for _ in 0..2 {
        let Some(library) = load(false) else { return };
        open(&library, "v").expect("the adapter opens");
        library.close().expect("dlclose");
    }
}

/// A program may close the library while a thread of a built-in provider runs, with and without
/// open objects.
#[test]
fn closing_the_library_leaves_the_provider_its_code() {
    let child = Child::new("loading::child_closes_a_busy_library", ours(), Path::new("/dev/null"));
    child.env("OPENDAT_PARAMS", "builtin=on").run();
}

#[test]
#[ignore = "not a test: the test above runs this in a child process"]
fn child_closes_a_busy_library() {
    let threads = || std::fs::read_dir("/proc/self/task").expect("procfs").count();
    let before = threads();
    for round in 0..40 {
        let Some(library) = load(false) else { return };
        let ia = open(&library, "tcp-emu").expect("the adapter opens");
        listen(&library, ia);
        // The kernel lists a thread for a moment after it has ended and was joined.
        let (expected, since) = (before + 1 + round / 2, Instant::now());
        while threads() > expected && since.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        assert_eq!(threads(), expected, "a listener needs the provider's thread");
        if round % 2 == 0 {
            close(&library, ia);
        }
        library.close().expect("dlclose");
    }
    // The process exits while half of the adapters are open.
}

/// Creates a service point through the provider's table.
fn listen(library: &Library, ia: DAT_IA_HANDLE) {
    type Mapped = unsafe extern "C" fn(DAT_IA_HANDLE, *mut DAT_IA_HANDLE) -> DAT_RETURN;
    let (mut handle, mut evd, mut psp, mut qualifier) = (null_mut(), null_mut(), null_mut(), 0);
    // SAFETY: the functions have these types, the arguments are valid, and a handle points to its
    // table.
    unsafe {
        let mapped =
            library.get::<Mapped>("dats_get_ia_handle").expect("the library exports the function");
        assert_eq!(mapped(ia, &mut handle), DAT_SUCCESS);
        let table = &**handle.cast::<*const DAT_PROVIDER>();
        let create = table.evd_create_func.expect("every slot is filled");
        assert_eq!(create(handle, 8, null_mut(), DAT_EVD_CR_FLAG, &mut evd), DAT_SUCCESS);
        let create = table.psp_create_any_func.expect("every slot is filled");
        assert_eq!(
            create(handle, &mut qualifier, evd, DAT_PSP_CONSUMER_FLAG, &mut psp),
            DAT_SUCCESS
        );
    }
}

#[test]
fn opening_and_closing_leaves_nothing_behind() {
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf(
        "v u2.0 nonthreadsafe default /nonexistent/lib.so fake.1.0 \"\" \"\"\n\
         no u2.0 nonthreadsafe default LIB fake.1.0 \"open=0x80030003\" \"\"\n\
         v u2.0 nonthreadsafe default LIB fake.1.0 \"\" \"\"\n",
    );
    Child::new("loading::child_opens_a_thousand_times", ours(), &vendor.conf()).run();
}

#[test]
#[ignore = "not a test: the test above runs this in a child process"]
fn child_opens_a_thousand_times() {
    let cycle = || {
        let Some(library) = load(false) else { return };
        open(&library, "no").expect_err("the provider must refuse");
        let ia = open(&library, "v").expect("the adapter opens");
        assert_eq!(ia.addr(), 1);
        close(&library, ia);
        library.close().expect("dlclose");
    };
    let count = |directory: &str| std::fs::read_dir(directory).expect("procfs").count();
    let footprint = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
        let libraries = maps.lines().filter(|line| line.contains(".so")).count();
        (count("/proc/self/fd"), count("/proc/self/task"), libraries)
    };
    let bytes_in_use = || {
        // SAFETY: the function takes no arguments.
        let info = unsafe { libc::mallinfo2() };
        info.uordblks + info.hblkhd
    };
    (0..100).for_each(|_| cycle());
    let (before, bytes) = (footprint(), bytes_in_use());
    (0..1000).for_each(|_| cycle());
    assert_eq!(footprint(), before);
    let grown = bytes_in_use().saturating_sub(bytes);
    // A leak of one object in each of the 1,000 cycles would use more memory than this.
    assert!(grown <= 16 << 10, "{grown} bytes more are in use");
}

/// By default, errors are reported only on standard error. A failed attempt is not reported if
/// another entry of the same name opens.
#[test]
fn messages_say_where_and_why() {
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf(
        "v u2.0 nonthreadsafe default /nonexistent/lib.so fake.1.0 \"\" \"\"\r\n\
         v u2.0 nonthreadsafe default LIB fake.1.0 \"\" \"\"\r\n\
         w u2.0 nonthreadsafe default /nonexistent/lib.so fake.1.0 \"x \"\" \"\"\r\n\
         w u2.0 nonthreadsafe default /nonexistent/lib.so fake.1.0 \"\" \"\"\r\n",
    );
    let conf = vendor.conf().display().to_string();
    let child = || Child::new("loading::child_fails_to_open", ours(), &vendor.conf());
    let mistake = format!(
        "dat: {conf}:3:66: this quote is never closed; expected a second \" on the same line\n"
    );
    let failure = format!(
        "dat: cannot open IA \"w\" (u2.0)\n    {conf}:4:1: /nonexistent/lib.so \"\": \
         /nonexistent/lib.so: cannot open shared object file: No such file or directory; \
         install the package that contains it, or give its full path in the entry\n"
    );
    let (stdout, stderr) = output_of(child());
    assert_eq!(stderr, format!("{mistake}{failure}"));
    assert!(!stdout.contains("dat: "), "{stdout}");

    let (_, stderr) = output_of(child().env("DAT_DBG_TYPE", "0"));
    assert_eq!(stderr, "");

    let (stdout, stderr) = output_of(child().env("DAT_DBG_DEST", "1"));
    assert_eq!(stderr, "");
    assert!(stdout.contains(&mistake) && stdout.contains(&failure), "{stdout}");

    // If all messages are enabled, the failed attempt is reported even though the next entry
    // opened.
    let (_, stderr) = output_of(child().env("DAT_DBG_TYPE", "0xff"));
    assert!(
        stderr.contains(&format!("{conf}:1:1: ")) && stderr.contains("the next entry opened"),
        "{stderr}"
    );
}

#[test]
fn a_missing_registry_file_is_said_once_and_nothing_replaces_it() {
    let (_, stderr) = output_of(Child::new(
        "loading::child_finds_nothing",
        ours(),
        Path::new("/nonexistent/dat.conf"),
    ));
    assert_eq!(
        stderr,
        "dat: cannot read the registry file /nonexistent/dat.conf (named by DAT_OVERRIDE): \
         No such file or directory (os error 2)\n\
         dat: cannot open IA \"v\" (u2.0): no entry has this name; none are known \
         (registry file: none; built-in providers are turned off by builtin=off in OPENDAT_PARAMS)\n"
    );
}

fn output_of(child: Child) -> (String, String) {
    let output = child.output();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{stdout}{stderr}");
    (stdout, stderr)
}

#[test]
#[ignore = "not a test: a test above runs this in a child process"]
fn child_fails_to_open() {
    let Some(library) = load(true) else { return };
    let ia = open(&library, "v").expect("the second entry opens");
    close(&library, ia);
    assert_eq!(open(&library, "w"), Err(0x800a_0064));
}

#[test]
#[ignore = "not a test: a test above runs this in a child process"]
fn child_finds_nothing() {
    let Some(library) = load(true) else { return };
    assert_eq!(open(&library, "v"), Err(0x800a_0064));
}

/// Programs linked against this library must find the ten functions that OFED's library lacks.
#[test]
fn providers_are_asked_whether_they_are_related() {
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf(
        "a u2.0 nonthreadsafe default LIB fake.1.0 \"\" \"\"\n\
         b u2.0 nonthreadsafe default LIB fake.1.0 \"\" \"\"\n",
    );
    Child::new("loading::child_asks_for_relations", ours(), &vendor.conf()).run();
}

#[test]
#[ignore = "not a test: the test above runs this in a child process"]
fn child_asks_for_relations() {
    let Some(library) = load(true) else { return };
    type Related =
        unsafe extern "C" fn(*const c_char, *const c_char, *mut DAT_HA_RELATIONSHIP) -> DAT_RETURN;
    // SAFETY: the function has this type.
    let related = *unsafe { library.get::<Related>("dat_registry_providers_related") }
        .expect("the library exports the function");
    let ask = |one: &str, two: &str| {
        let (one, two) = (CString::new(one).expect("no NUL"), CString::new(two).expect("no NUL"));
        let mut answer = 99;
        // SAFETY: the arguments are valid.
        let status = unsafe { related(one.as_ptr(), two.as_ptr(), &mut answer) };
        if status == DAT_SUCCESS { Ok(answer) } else { Err(status) }
    };
    assert_eq!(ask("a", "b"), Ok(DAT_HA_UNKNOWN)); // No IA is open.
    let ia = open(&library, "a").expect("the adapter opens");
    assert_eq!(ask("a", "b"), Ok(DAT_HA_FALSE));
    assert_eq!(ask("b", "a"), Ok(DAT_HA_FALSE));
    assert_eq!(ask("a", "a"), Ok(DAT_HA_TRUE));
    assert_eq!(ask("a", "none"), Err(0x800a_0064));
    // A provider that the program itself registers has a name, too.
    static TABLE: DAT_PROVIDER = DAT_PROVIDER::zeroed();
    type Register =
        unsafe extern "C" fn(*const DAT_PROVIDER, *const DAT_PROVIDER_INFO) -> DAT_RETURN;
    // SAFETY: the function has this type.
    let add = *unsafe { library.get::<Register>("dat_registry_add_provider") }
        .expect("the library exports the function");
    let mut info = DAT_PROVIDER_INFO { dapl_version_major: 2, ..DAT_PROVIDER_INFO::zeroed() };
    info.ia_name[0] = b'x' as c_char;
    // SAFETY: the arguments are valid, and the table stays in memory.
    assert_eq!(unsafe { add(&TABLE, &info) }, DAT_SUCCESS);
    assert_eq!(ask("a", "x"), Ok(DAT_HA_FALSE));
    assert_eq!(ask("x", "x"), Ok(DAT_HA_UNKNOWN));
    close(&library, ia);
}
