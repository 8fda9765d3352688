//! Compares the results of this library with those of OFED's (libdat2 2.1.10) for the same calls.
//!
//! Each library produces a transcript of the same calls. [`DIFFERENCES`] lists the calls whose
//! results differ, both results, and why the result of this library is right.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::io::Read as _;
use std::ptr::{null, null_mut, without_provenance_mut};

use crate::support::{Child, Vendor, load, original, ours};
use dat_sys::*;
use libloading::os::unix::Library;

/// Functions that are forwarded to a provider, with the subtype of DAT_INVALID_HANDLE for an
/// invalid first argument.
const FUNCTIONS: &[(DAT_RETURN_SUBTYPE, &str)] = &[
    (
        DAT_INVALID_HANDLE_IA,
        "dat_ia_query dat_cno_create dat_cno_fd_create dat_evd_create dat_ep_create \
         dat_ep_create_with_srq \
         dat_lmr_create dat_lmr_sync_rdma_read dat_lmr_sync_rdma_write dat_psp_create \
         dat_psp_create_any \
         dat_rsp_create dat_csp_create dat_pz_create dat_srq_create dat_ia_close",
    ),
    (
        DAT_INVALID_HANDLE1,
        "dat_set_consumer_context dat_get_consumer_context dat_get_handle_type dat_extension_op",
    ),
    (
        DAT_INVALID_HANDLE_CNO,
        "dat_cno_modify_agent dat_cno_query dat_cno_free dat_cno_wait dat_cno_trigger",
    ),
    (DAT_INVALID_HANDLE_CR, "dat_cr_query dat_cr_accept dat_cr_reject dat_cr_handoff"),
    (
        DAT_INVALID_HANDLE_EVD_REQUEST,
        "dat_evd_query dat_evd_modify_cno dat_evd_enable dat_evd_disable dat_evd_set_unwaitable \
         dat_evd_clear_unwaitable dat_evd_wait dat_evd_dequeue dat_evd_post_se dat_evd_resize \
         dat_evd_free",
    ),
    (
        DAT_INVALID_HANDLE_EP,
        "dat_ep_query dat_ep_modify dat_ep_connect dat_ep_dup_connect dat_ep_common_connect \
         dat_ep_disconnect \
         dat_ep_post_send dat_ep_post_send_with_invalidate dat_ep_post_recv dat_ep_post_rdma_read \
         dat_ep_post_rdma_read_to_rmr dat_ep_post_rdma_write dat_ep_get_status dat_ep_recv_query \
         dat_ep_set_watermark dat_ep_reset dat_ep_free",
    ),
    (DAT_INVALID_HANDLE_LMR, "dat_lmr_query dat_lmr_free"),
    (DAT_INVALID_HANDLE_RMR, "dat_rmr_query dat_rmr_bind dat_rmr_free"),
    (DAT_INVALID_HANDLE_PSP, "dat_psp_query dat_psp_free"),
    (DAT_INVALID_HANDLE_RSP, "dat_rsp_query dat_rsp_free"),
    (DAT_INVALID_HANDLE_CSP, "dat_csp_query dat_csp_free"),
    (DAT_INVALID_HANDLE_PZ, "dat_rmr_create dat_rmr_create_for_ep dat_pz_query dat_pz_free"),
    (
        DAT_INVALID_HANDLE_SRQ,
        "dat_srq_query dat_srq_post_recv dat_srq_resize dat_srq_set_lw dat_srq_free",
    ),
];

fn functions() -> impl Iterator<Item = (&'static str, DAT_RETURN_SUBTYPE)> {
    FUNCTIONS
        .iter()
        .flat_map(|(subtype, names)| names.split_whitespace().map(move |name| (name, *subtype)))
}

const CONF: &str = "\
fake   u2.0 nonthreadsafe default LIB fake.1.0 \"extension=yes\" \"\"
plain  u2.0 nonthreadsafe default LIB fake.1.0 \"\" \"\"
old    u1.2 nonthreadsafe default LIB fake.1.0 \"\" \"\"
safe   u2.0 threadsafe default LIB fake.1.0 \"\" \"\"
minor  u2.1 nonthreadsafe default LIB fake.1.0 \"\" \"\"
nolib  u2.0 nonthreadsafe default /nonexistent/lib.so fake.1.0 \"\" \"\"
refuse u2.0 nonthreadsafe default LIB fake.1.0 \"open=0x00040000\" \"\"
dup    u2.0 nonthreadsafe default /nonexistent/lib.so fake.1.0 \"\" \"\"
dup    u2.0 nonthreadsafe default LIB fake.1.0 \"\" \"\"
kernel k2.0 nonthreadsafe default LIB fake.1.0 \"\" \"\"
off    u2.0 nonthreadsafe nondefault LIB fake.1.0 \"\" \"\"
";

/// A difference that the test expects: the calls, the result of OFED's library, the result of our
/// library, and the reason. The first three are patterns, in which `*` stands for any text.
struct Difference {
    call: &'static str,
    original: &'static str,
    ours: &'static str,
    #[expect(dead_code, reason = "for the reader")]
    why: &'static str,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        call: "*",
        original: "not exported",
        ours: "*",
        why: "the original declares ten functions in its headers but does not export them",
    },
    Difference {
        call: "dat_*(* pointer)",
        original: "signal *",
        ours: "0x800500*",
        why: "the original follows any pointer that is not null",
    },
    Difference {
        call: "dat_*(*integer*)",
        original: "signal *",
        ours: "0x800500*",
        why: "the original follows a small number as if it were a pointer",
    },
    Difference {
        call: "list *",
        original: "* old-1.2-0 safe-2.0-1 minor-2.1-0 nolib-2.0-0 *",
        ours: "* minor-2.1-0 refuse-2.0-0 nolib-2.0-0 dup-2.0-0 old-1.2-0",
        why: "a program may request only a few entries, so entries that it can open come first",
    },
    Difference {
        call: "open wrong major",
        original: "0x800a0064",
        ours: "0x800a0065",
        why: "the standard requires DAT_MAJOR_NOT_FOUND; the original reports no reason",
    },
    Difference {
        call: "open 1.2",
        original: "0x00000000",
        ours: "0x800a0065",
        why: "a provider of 1.2 has other structures and would misread those of this library",
    },
    Difference {
        call: "open wrong minor",
        original: "0x800a0064",
        ours: "0x800a0066",
        why: "DAT_MINOR_NOT_FOUND",
    },
    Difference {
        call: "open thread-safe",
        original: "0x800a0064",
        ours: "0x800a0067",
        why: "DAT_THREAD_SAFETY_NOT_FOUND",
    },
    Difference {
        call: "open higher minor",
        original: "0x800a0064",
        ours: "0x00000000",
        why: "the standard lets a provider have a higher minor version; the original wants \
              equality",
    },
    Difference {
        call: "open, provider is thread-safe",
        original: "0x800a0064",
        ours: "0x00000000",
        why: "a thread-safe provider serves a consumer that does not ask for thread safety",
    },
    Difference {
        call: "strerror type 0x1*",
        original: "0x00060000 unknown error (null)",
        ours: "0x00000000 DAT_* ''",
        why: "the original has no names for types from DAT_CONN_QUAL_UNAVAILABLE on",
    },
    Difference {
        call: "strerror type 0x180000",
        original: "0x00060000 unknown error (null)",
        ours: "0x80060025 unknown error ''",
        why: "an undefined type: our errors have the class bit, and the second text is never null",
    },
    Difference {
        call: "strerror subtype 0x5*",
        original: "0x00060000 DAT_INVALID_STATE unknown minor error",
        ours: "0x00000000 DAT_INVALID_STATE DAT_INVALID_STATE_SRQ_*",
        why: "the original has no names for the subtypes about SRQ states",
    },
    Difference {
        call: "strerror subtype 0x68",
        original: "0x00060000 DAT_PROVIDER_NOT_FOUND unknown minor error",
        ours: "0x80060025 DAT_PROVIDER_NOT_FOUND unknown minor error",
        why: "an undefined subtype: our errors have the class bit",
    },
    Difference {
        call: "strerror minor null pointer",
        original: "0x00000000",
        ours: "0x80060027",
        why: "a null pointer is an error; the original ignores it",
    },
    Difference {
        call: "dat_extension_op(*)",
        original: "0xbfff0000",
        ours: "0x8005001b",
        why: "before an IA with extensions is open, the original ignores the handle",
    },
    Difference {
        call: "open query without name",
        original: "0x80050027",
        ours: "0x80060027",
        why: "the name is a parameter, not a handle; the original returns the type of a handle \
              error with the subtype of a parameter error",
    },
    Difference {
        call: "empty slot in the table",
        original: "signal *",
        ours: "0xbfff0000",
        why: "a function that is not in the provider's table is not implemented",
    },
    Difference {
        call: "strerror subtype 0x3d",
        original: "* DAT_INVALID_STATE_EP_EVD_RCV",
        ours: "* DAT_INVALID_STATE_EP_EVD_RECV",
        why: "the original misspells the name",
    },
    Difference {
        call: "list null element",
        original: "0x80060027 count 0",
        ours: "0x80060027 count 8",
        why: "a failed call returns the number of all entries",
    },
    Difference {
        call: "* null pointer",
        original: "signal *",
        ours: "0x8006002*",
        why: "a null pointer is an error",
    },
];

#[test]
fn answers_are_those_of_the_original_but_for_known_differences() {
    let Some(original) = original() else { return };
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf(CONF);
    let theirs = transcript(&Child::new("differential::child", &original, &vendor.conf()).run());
    let our = transcript(&Child::new("differential::child", ours(), &vendor.conf()).run());
    assert_eq!(our.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    assert!(our.len() > 500, "only {} calls were made; expected more than 500", our.len());
    let mut unexpected = String::new();
    let mut used = vec![0; DIFFERENCES.len()];
    for (call, answer) in &our {
        let their = &theirs[call];
        if answer == their {
            continue;
        }
        let known = DIFFERENCES.iter().position(|d| {
            matches(d.call, call) && matches(d.original, their) && matches(d.ours, answer)
        });
        match known {
            Some(index) => used[index] += 1,
            None => {
                let _ = writeln!(unexpected, "{call}: original {their}, ours {answer}");
            }
        }
    }
    assert_eq!(unexpected, "");
    let unused: Vec<_> =
        DIFFERENCES.iter().zip(used).filter(|(_, n)| *n == 0).map(|(d, _)| d.call).collect();
    assert_eq!(unused, [""; 0], "these expected differences did not occur");
}

/// Checks the statuses on which programs rely against values that were measured with OFED's
/// library. OFED's library need not be installed.
#[test]
fn answers_are_the_measured_ones() {
    let Some(vendor) = Vendor::build() else { return };
    vendor.write_conf(CONF);
    let answers = transcript(&Child::new("differential::child", ours(), &vendor.conf()).run());
    for (name, subtype) in functions() {
        for handle in HANDLES {
            let expected = format!("{:#010x}", DAT_ERROR(DAT_INVALID_HANDLE, subtype));
            assert_eq!(answers[&format!("{name}({handle})")], expected, "{name}({handle})");
        }
    }
    for (call, answer) in [
        ("open unknown name", "0x800a0064"),
        ("open wrong major", "0x800a0065"),
        ("open wrong minor", "0x800a0066"),
        ("open thread-safe", "0x800a0067"),
        ("open null name", "0x80060025"),
        ("open name of 256", "0x80060025"),
        ("open name of 255", "0x800a0064"),
        ("open null IA", "0x8005000b"),
        ("open missing library", "0x800a0064"),
        ("open refused", "0x00040000"),
        ("list max 0", "0x80060025 count 8"),
        ("list max 2", "0x00000000 count 2 fake-2.0-0 plain-2.0-0"),
        (
            "list all",
            "0x00000000 count 8 fake-2.0-0 plain-2.0-0 safe-2.0-1 minor-2.1-0 refuse-2.0-0 \
             nolib-2.0-0 dup-2.0-0 old-1.2-0",
        ),
        ("list null element", "0x80060027 count 8"),
        ("strerror type 0x50000", "0x00000000 DAT_INVALID_HANDLE ''"),
        ("strerror subtype 0x64", "0x00000000 DAT_PROVIDER_NOT_FOUND DAT_NAME_NOT_REGISTERED"),
        ("strerror type 0x180000", "0x80060025 unknown error ''"),
        ("strerror major null pointer", "0x80060026"),
        ("extension on IA", "0x00000000 0x987654321a 42"),
    ] {
        assert_eq!(answers.get(call).map(String::as_str), Some(answer), "{call}");
    }
}

/// `*` in a pattern stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let (first, rest) = match pattern.split_once('*') {
        None => return pattern == text,
        Some(parts) => parts,
    };
    let Some(text) = text.strip_prefix(first) else { return false };
    (0..=text.len()).filter(|&at| text.is_char_boundary(at)).any(|at| matches(rest, &text[at..]))
}

fn transcript(output: &str) -> BTreeMap<String, String> {
    output
        .lines()
        .filter_map(|line| line.split_once("@ ")?.1.split_once(" = "))
        .map(|(call, answer)| (call.to_owned(), answer.to_owned()))
        .collect()
}

const HANDLES: &[&str] = &[
    "null",
    "integer 1",
    "integer 63",
    "integer 64",
    "integer 1000",
    "odd pointer",
    "unmapped pointer",
    "zeros pointer",
    "nonsense pointer",
    "text pointer",
    "kernel pointer",
];

fn handle(name: &str) -> DAT_HANDLE {
    static ZEROS: [u64; 4] = [0; 4];
    static NONSENSE: [u64; 4] = [0x0101_0101_0101_0100; 4];
    static TEXT: &[u8; 16] = b"not a DAT object";
    match name {
        "null" => null_mut(),
        "odd pointer" => (&raw const ZEROS).cast_mut().wrapping_byte_add(1).cast(),
        "unmapped pointer" => without_provenance_mut(0x7eee_dead_b000),
        "zeros pointer" => (&raw const ZEROS).cast_mut().cast(),
        "nonsense pointer" => (&raw const NONSENSE).cast_mut().cast(),
        "text pointer" => TEXT.as_ptr().cast_mut().cast(),
        "kernel pointer" => without_provenance_mut(0xffff_8000_0000_1000),
        integer => {
            let number = integer.strip_prefix("integer ").expect("a known name");
            without_provenance_mut(number.parse().expect("a number"))
        }
    }
}

/// In a child process: makes the calls and prints `@ call = answer` for each.
#[test]
#[ignore = "not a test: the other tests run this in a child process for each library"]
fn child() {
    let Some(library) = load(true) else { return };
    let calls = Calls(&library);
    calls.bad_handles();
    calls.names();
    calls.lists();
    calls.registration();
    calls.adapters();
    calls.extensions();
    calls.messages();
}

struct Calls<'a>(&'a Library);

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
type List =
    unsafe extern "C" fn(DAT_COUNT, *mut DAT_COUNT, *mut *mut DAT_PROVIDER_INFO) -> DAT_RETURN;
type Register = unsafe extern "C" fn(*const DAT_PROVIDER, *const DAT_PROVIDER_INFO) -> DAT_RETURN;
type Strerror =
    unsafe extern "C" fn(DAT_RETURN, *mut *const c_char, *mut *const c_char) -> DAT_RETURN;
type Extension = unsafe extern "C" fn(DAT_HANDLE, c_int, ...) -> DAT_RETURN;
type Translate = unsafe extern "C" fn(DAT_IA_HANDLE, *mut DAT_IA_HANDLE) -> DAT_RETURN;
/// Any function with integer and pointer arguments. On x86_64 surplus arguments are ignored.
type Any = unsafe extern "C" fn(DAT_HANDLE, [usize; 2], [usize; 2], [usize; 2]) -> DAT_RETURN;

// SAFETY of all calls below: the functions have these types in both libraries. Calls that may crash
// run in a process of their own; all others get valid arguments.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Calls<'_> {
    fn function<T: Copy>(&self, name: &str) -> T {
        *unsafe { self.0.get::<T>(name) }.expect("the library exports the function")
    }

    fn bad_handles(&self) {
        for (name, _) in functions() {
            let function = unsafe { self.0.get::<Any>(name) };
            for which in HANDLES {
                let answer = match &function {
                    Err(_) => "not exported".to_owned(),
                    Ok(function) => guarded(|| {
                        status(unsafe { function(handle(which), [0; 2], [0; 2], [0; 2]) })
                    }),
                };
                record(&format!("{name}({which})"), answer);
            }
        }
    }

    /// Opens an IA and closes it again.
    fn try_open(&self, name: &str, major: u32, minor: u32, threadsafe: DAT_BOOLEAN) -> String {
        let name = CString::new(name).expect("no NUL");
        let (mut evd, mut ia) = (null_mut(), null_mut());
        let open = self.function::<Open>("dat_ia_openv");
        let answer = unsafe { open(name.as_ptr(), 8, &mut evd, &mut ia, major, minor, threadsafe) };
        if answer == DAT_SUCCESS {
            assert_eq!(
                unsafe { self.function::<Close>("dat_ia_close")(ia, DAT_CLOSE_ABRUPT_FLAG) },
                DAT_SUCCESS
            );
        }
        status(answer)
    }

    fn names(&self) {
        record("open unknown name", self.try_open("none", 2, 0, DAT_FALSE));
        record("open wrong major", self.try_open("old", 2, 0, DAT_FALSE));
        record("open wrong minor", self.try_open("fake", 2, 1, DAT_FALSE));
        record("open thread-safe", self.try_open("fake", 2, 0, DAT_TRUE));
        record("open higher minor", self.try_open("minor", 2, 0, DAT_FALSE));
        record("open, provider is thread-safe", self.try_open("safe", 2, 0, DAT_FALSE));
        record("open thread-safe from thread-safe", self.try_open("safe", 2, 0, DAT_TRUE));
        record("open kernel entry", self.try_open("kernel", 2, 0, DAT_FALSE));
        record("open nondefault entry", self.try_open("off", 2, 0, DAT_FALSE));
        record("open missing library", self.try_open("nolib", 2, 0, DAT_FALSE));
        record("open refused", self.try_open("refuse", 2, 0, DAT_FALSE));
        record("open duplicate, first missing", self.try_open("dup", 2, 0, DAT_FALSE));
        record("open 1.2", self.try_open("old", 1, 2, DAT_FALSE));
        record("open name of 255", self.try_open(&"n".repeat(255), 2, 0, DAT_FALSE));
        record("open name of 256", self.try_open(&"n".repeat(256), 2, 0, DAT_FALSE));
        let open = self.function::<Open>("dat_ia_openv");
        let (mut evd, mut ia) = (null_mut(), null_mut());
        record(
            "open null name",
            status(unsafe { open(null(), 8, &mut evd, &mut ia, 2, 0, DAT_FALSE) }),
        );
        let name = c"fake".as_ptr();
        record(
            "open null IA",
            status(unsafe { open(name, 8, &mut evd, null_mut(), 2, 0, DAT_FALSE) }),
        );
    }

    fn lists(&self) {
        let list = self.function::<List>("dat_registry_list_providers");
        let with = |max: usize, null_at: Option<usize>| {
            let mut infos = [DAT_PROVIDER_INFO::zeroed(); 16];
            let mut pointers = infos.each_mut().map(|info| info as *mut DAT_PROVIDER_INFO);
            if let Some(at) = null_at {
                pointers[at] = null_mut();
            }
            let mut count = -1;
            let answer = unsafe { list(max as DAT_COUNT, &mut count, pointers.as_mut_ptr()) };
            let mut text = format!("{} count {count}", status(answer));
            if answer == DAT_SUCCESS {
                for info in &infos[..count as usize] {
                    let name = unsafe { CStr::from_ptr(info.ia_name.as_ptr()) }.to_string_lossy();
                    let (major, minor) = (info.dapl_version_major, info.dapl_version_minor);
                    let _ = write!(text, " {name}-{major}.{minor}-{}", info.is_thread_safe);
                }
            }
            text
        };
        record("list max 0", with(0, None));
        record("list max 2", with(2, None));
        record("list all", with(16, None));
        record("list null element", with(4, Some(2)));
        record("list null element unused", with(16, Some(12)));
        let mut count = 0;
        record("list null array", guarded(|| status(unsafe { list(4, &mut count, null_mut()) })));
        record(
            "list count null pointer",
            guarded(|| status(unsafe { list(4, null_mut(), null_mut()) })),
        );
    }

    fn registration(&self) {
        static TABLE: DAT_PROVIDER = DAT_PROVIDER::zeroed();
        static OTHER: DAT_PROVIDER = DAT_PROVIDER::zeroed();
        let add = self.function::<Register>("dat_registry_add_provider");
        let remove = self.function::<Register>("dat_registry_remove_provider");
        let mut info = DAT_PROVIDER_INFO { dapl_version_major: 2, ..DAT_PROVIDER_INFO::zeroed() };
        info.ia_name[0] = b'x' as c_char;
        unsafe {
            record("add null table", status(add(null(), &info)));
            record("add info null pointer", guarded(|| status(add(&TABLE, null()))));
            record("remove unknown", status(remove(&TABLE, &info)));
            record("add", status(add(&TABLE, &info)));
            record("add again", status(add(&TABLE, &info)));
            record("add other of the same name", status(add(&OTHER, &info)));
            record("remove null table", guarded(|| status(remove(null(), &info))));
            record("remove info null pointer", guarded(|| status(remove(&TABLE, null()))));
            record("remove", status(remove(&TABLE, &info)));
            record("remove again", status(remove(&TABLE, &info)));
        }
    }

    fn adapters(&self) {
        let open = self.function::<Open>("dat_ia_openv");
        let close = self.function::<Close>("dat_ia_close");
        let translate = self.function::<Translate>("dats_get_ia_handle");
        let back = |handle: DAT_IA_HANDLE| {
            let mut out = null_mut();
            (unsafe { translate(handle, &mut out) }, out)
        };
        let mut opened = Vec::new();
        for round in 0..3 {
            let (mut evd, mut ia) = (null_mut(), null_mut());
            let answer = unsafe { open(c"plain".as_ptr(), 8, &mut evd, &mut ia, 2, 0, DAT_FALSE) };
            record(&format!("open {round}"), format!("{} {}", status(answer), ia.addr()));
            opened.push(ia);
        }
        let (answer, provider) = back(opened[1]);
        record("translate integer", format!("{} {}", status(answer), !provider.is_null()));
        let (answer, integer) = back(provider);
        record("translate pointer", format!("{} {}", status(answer), integer.addr()));
        for which in ["null", "integer 63", "integer 64", "zeros pointer"] {
            record(&format!("translate {which}"), status(back(handle(which)).0));
        }
        let get_type = self.function::<unsafe extern "C" fn(DAT_HANDLE, *mut u32) -> DAT_RETURN>(
            "dat_get_handle_type",
        );
        let mut kind = 99;
        record(
            "type of IA",
            format!("{} {kind}", status(unsafe { get_type(opened[0], &mut kind) })),
        );
        record("type of IA is", kind.to_string());
        let pz_create = self.function::<Translate>("dat_pz_create");
        let pz_free =
            self.function::<unsafe extern "C" fn(DAT_HANDLE) -> DAT_RETURN>("dat_pz_free");
        let mut pz = null_mut();
        record("pz_create", status(unsafe { pz_create(opened[0], &mut pz) }));
        unsafe { get_type(pz, &mut kind) };
        record("type of PZ is", kind.to_string());
        record("pz_free", status(unsafe { pz_free(pz) }));
        record(
            "empty slot in the table",
            guarded(|| {
                let srq_create = self.function::<Any>("dat_srq_create");
                status(unsafe { srq_create(opened[0], [0; 2], [0; 2], [0; 2]) })
            }),
        );
        record("close 1", status(unsafe { close(opened[1], DAT_CLOSE_ABRUPT_FLAG) }));
        record("close 1 again", status(unsafe { close(opened[1], DAT_CLOSE_ABRUPT_FLAG) }));
        record("translate closed", status(back(opened[1]).0));
        let (mut evd, mut ia) = (null_mut(), null_mut());
        unsafe { open(c"plain".as_ptr(), 8, &mut evd, &mut ia, 2, 0, DAT_FALSE) };
        record("open reuses", ia.addr().to_string());
        for ia in [opened[0], ia, opened[2]] {
            record(
                &format!("close {} at the end", ia.addr()),
                status(unsafe { close(ia, DAT_CLOSE_ABRUPT_FLAG) }),
            );
        }
    }

    fn extensions(&self) {
        let open = self.function::<Open>("dat_ia_openv");
        let close = self.function::<Close>("dat_ia_close");
        let extension = self.function::<Extension>("dat_extension_op");
        let (mut evd, mut ia) = (null_mut(), null_mut());
        let on = |handle: DAT_HANDLE| {
            let mut out = [0_i64; 2];
            let answer = unsafe {
                extension(
                    handle,
                    7,
                    10_i64,
                    1_i64,
                    2_i64,
                    3_i64,
                    4_i64,
                    5_i64,
                    6_i64,
                    7_i64,
                    8_i64,
                    9_i64,
                    10.5_f64,
                    out.as_mut_ptr(),
                )
            };
            match answer {
                DAT_SUCCESS => format!("{} {:#x} {}", status(answer), out[0], out[1]),
                _ => status(answer),
            }
        };
        unsafe { open(c"plain".as_ptr(), 8, &mut evd, &mut ia, 2, 0, DAT_FALSE) };
        record("extension without support", on(ia));
        unsafe { close(ia, DAT_CLOSE_ABRUPT_FLAG) };
        // The EVD of the previous IA does not exist any more.
        evd = null_mut();
        unsafe { open(c"fake".as_ptr(), 8, &mut evd, &mut ia, 2, 0, DAT_FALSE) };
        record("extension on IA", on(ia));
        record("extension on EVD", on(evd));
        record("extension on null", on(null_mut()));
        record("extension unknown", status(unsafe { extension(ia, 8) }));
        unsafe { close(ia, DAT_CLOSE_ABRUPT_FLAG) };

        let mut queried: DAT_HANDLE = null_mut();
        let none: *const c_char = null();
        let answer =
            unsafe { extension(null_mut::<c_void>(), 0x1000, c"fake".as_ptr(), &raw mut queried) };
        record("open query", format!("{} {}", status(answer), !queried.is_null()));
        record("close query", status(unsafe { extension(queried, 0x2000) }));
        let answer =
            unsafe { extension(null_mut::<c_void>(), 0x1000, c"none".as_ptr(), &raw mut queried) };
        record("open query of an unknown name", status(answer));
        record(
            "open query without name",
            status(unsafe { extension(null_mut::<c_void>(), 0x1000, none, none) }),
        );
        record("close query of null", status(unsafe { extension(null_mut::<c_void>(), 0x2000) }));
    }

    fn messages(&self) {
        let strerror = self.function::<Strerror>("dat_strerror");
        let text = |status_word: DAT_RETURN| {
            let (mut major, mut minor) = (null(), null());
            let answer = unsafe { strerror(status_word, &mut major, &mut minor) };
            let [major, minor] = [major, minor].map(|text| {
                if text.is_null() {
                    return "(null)".into();
                }
                let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
                if text.is_empty() { "''".into() } else { text }
            });
            format!("{} {major} {minor}", status(answer))
        };
        for kind in (0..=0x18).map(|n| n << 16).chain([DAT_EXTENSION_BASE, DAT_NOT_IMPLEMENTED]) {
            record(&format!("strerror type {kind:#x}"), text(DAT_CLASS_ERROR | kind));
        }
        for subtype in 0..=DAT_THREAD_SAFETY_NOT_FOUND + 1 {
            let kind = if subtype >= DAT_NAME_NOT_REGISTERED {
                DAT_PROVIDER_NOT_FOUND
            } else {
                DAT_INVALID_STATE
            };
            record(&format!("strerror subtype {subtype:#x}"), text(DAT_ERROR(kind, subtype)));
        }
        record("strerror without class", text(DAT_INTERNAL_ERROR));
        record("strerror success", text(DAT_SUCCESS));
        let mut out = null();
        record(
            "strerror major null pointer",
            guarded(|| status(unsafe { strerror(0, null_mut(), &mut out) })),
        );
        let mut out = null();
        record(
            "strerror minor null pointer",
            guarded(|| status(unsafe { strerror(0, &mut out, null_mut()) })),
        );
    }
}

fn status(status: DAT_RETURN) -> String {
    format!("{status:#010x}")
}

fn record(call: &str, answer: String) {
    println!("@ {call} = {answer}");
}

/// Makes a call in a child process, because the call may crash.
fn guarded(call: impl FnOnce() -> String) -> String {
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the child makes one call, writes to the pipe and exits without running anything else.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        let answer = call();
        let _ = std::io::Write::write_all(&mut writer, answer.as_bytes());
        // SAFETY: _exit only ends this process.
        unsafe { libc::_exit(0) };
    }
    drop(writer);
    let mut answer = String::new();
    reader.read_to_string(&mut answer).expect("the child writes text");
    let mut ended = 0;
    // SAFETY: this waits for the child that was just created.
    assert_eq!(unsafe { libc::waitpid(child, &mut ended, 0) }, child);
    if libc::WIFSIGNALED(ended) { format!("signal {}", libc::WTERMSIG(ended)) } else { answer }
}
