//! Tests of memory regions that several processes have mapped.

use std::ffi::c_char;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::ptr::null_mut;

use dat_core::Error;
use dat_sys::*;

use crate::client::*;

const REGION_BYTES: usize = 8192;

/// A mapped file.
struct Mapping {
    start: *mut u8,
}

impl Mapping {
    fn new(path: &Path, sharing: i32) -> Self {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .unwrap();
        file.set_len(REGION_BYTES as u64).unwrap();
        Self::of(&file, sharing)
    }

    fn of(file: &File, sharing: i32) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: this is a new mapping. Only the part that the file covers is used.
        let start =
            unsafe { libc::mmap(null_mut(), REGION_BYTES, access, sharing, file.as_raw_fd(), 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Mapping { start: start.cast() }
    }

    fn bytes(&self) -> &'static mut [u8] {
        // SAFETY: the memory is mapped until `self` is dropped, at the end of the test. Others
        // write to it only between calls.
        unsafe { std::slice::from_raw_parts_mut(self.start, REGION_BYTES) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `of` has mapped the memory.
        unsafe { libc::munmap(self.start.cast(), REGION_BYTES) };
    }
}

/// Creates a file that only this process uses.
fn scratch(what: &str) -> PathBuf {
    std::env::temp_dir().join(format!("opendat-{what}-{}", std::process::id()))
}

type Cookie = [c_char; DAT_LMR_COOKIE_SIZE];

/// Returns a cookie that only this test run uses.
fn name(run: u32, last: c_char) -> Cookie {
    let mut cookie: Cookie = [0; DAT_LMR_COOKIE_SIZE];
    for (to, from) in cookie[1..].iter_mut().zip(run.to_le_bytes()) {
        *to = from as c_char;
    }
    cookie[DAT_LMR_COOKIE_SIZE - 1] = last;
    cookie
}

fn register(
    side: &Side,
    start: *mut u8,
    length: usize,
    cookie: Option<&mut Cookie>,
) -> Result<Lmr, Error> {
    let shared_memory_id = cookie.map_or(null_mut(), std::ptr::from_mut);
    let shared = DAT_SHARED_MEMORY { virtual_address: start.cast(), shared_memory_id };
    let region = DAT_REGION_DESCRIPTION { for_shared_memory: shared };
    let mut lmr = Lmr::default();
    dat!(
        side.table,
        lmr_create_func(
            side.ia,
            DAT_MEM_TYPE_SHARED_VIRTUAL,
            region,
            length as DAT_VLEN,
            side.pz,
            DAT_MEM_PRIV_ALL_FLAG,
            DAT_VA_TYPE_VA,
            &mut lmr.handle,
            &mut lmr.context,
            &mut lmr.rmr_context,
            &mut lmr.size,
            &mut lmr.address,
        )
    )
    .map(|()| lmr)
}

#[test]
fn a_shared_region_is_checked() {
    let (table, ia) = mem(false);
    let side = Side::new(table, &ia);
    let path = scratch("judged");
    let (shared, private) =
        (Mapping::new(&path, libc::MAP_SHARED), Mapping::new(&path, libc::MAP_PRIVATE));
    let (run, at) = (std::process::id(), shared.start);
    let mut id = name(run, 1);
    assert_eq!(register(&side, null_mut(), 64, Some(&mut id)).unwrap_err(), Error::arg(3));
    assert_eq!(register(&side, at, 64, None).unwrap_err(), Error::arg(3));
    assert_eq!(register(&side, at, 0, Some(&mut id)).unwrap_err(), Error::of(DAT_LENGTH_ERROR));
    assert_eq!(register(&side, at, usize::MAX, Some(&mut id)).unwrap_err(), Error::arg(4));
    // The platform must have created the memory as shared (uDAPL 1.2, dat_lmr_create).
    for not_shared in [private.start, [0u8; 64].as_mut_ptr()] {
        assert_eq!(
            register(&side, not_shared, 64, Some(&mut id)).unwrap_err(),
            Error::of(DAT_INVALID_STATE)
        );
    }

    // The consumer need not keep its own copy of the cookie.
    let lmr = register(&side, at, 4096, Some(&mut name(run, 1))).unwrap();
    let mut param = DAT_LMR_PARAM::zeroed();
    dat!(table, lmr_query_func(lmr.handle, DAT_LMR_FIELD_ALL, &mut param)).unwrap();
    assert_eq!((param.mem_type, param.length), (DAT_MEM_TYPE_SHARED_VIRTUAL, 4096));
    // SAFETY: the type selects the member, and the cookie lives as long as the region.
    unsafe {
        let DAT_SHARED_MEMORY { virtual_address, shared_memory_id } =
            param.region_desc.for_shared_memory;
        assert_eq!((virtual_address, *shared_memory_id), (at.cast(), name(run, 1)));
    }
    // If the same memory is mapped a second time and registered, the new region has its own
    // contexts.
    let again = Mapping::new(&path, libc::MAP_SHARED);
    let second = register(&side, again.start, 4096, Some(&mut id)).unwrap();
    assert!(second.context != lmr.context && second.rmr_context != lmr.rmr_context);
    // A cookie names only one piece of memory, and all 40 bytes of the cookie count.
    assert_eq!(register(&side, at, 4095, Some(&mut id)).unwrap_err(), Error::arg(4));
    // SAFETY: the address is inside the mapping.
    let behind = unsafe { at.add(4096) };
    assert_eq!(register(&side, behind, 4096, Some(&mut id)).unwrap_err(), Error::arg(3));
    register(&side, behind, 4096, Some(&mut name(run, 2))).unwrap();
    for lmr in [lmr, second] {
        dat!(table, lmr_free_func(lmr.handle)).unwrap();
    }
    register(&side, behind, 4096, Some(&mut id)).unwrap();
    side.close();
    fs::remove_file(path).unwrap();
}

/// Two processes have mapped the same memory. The peer of one process writes data that the other
/// process can read.
#[test]
fn processes_share_a_region() {
    let path = scratch("processes");
    let memory = Mapping::new(&path, libc::MAP_SHARED);
    let [(a, x), (b, _)] = connected(false);
    let run = std::process::id();
    let lmr = register(&b, memory.start, REGION_BYTES, Some(&mut name(run, 3))).unwrap();
    let mut source = [0x5a; 64];
    let from = a.register(&mut source);

    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "shared_regions::another_process", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut told = |what: &str| assert!(lines.any(|line| line.ends_with(what)), "{what}");
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{run} {}", path.display()).unwrap();
    told("registered");
    dat!(
        a.table,
        ep_post_rdma_write_func(x, 1, &mut from.local(0, 64), cookie(1), &lmr.remote(100, 64), 0)
    )
    .unwrap();
    assert_eq!(a.completion().status, DAT_DTO_SUCCESS);
    stdin.write_all(b"written\n").unwrap();
    told("read");
    // The child uses the cookie as well, so the cookie stays in use.
    dat!(b.table, lmr_free_func(lmr.handle)).unwrap();
    let elsewhere = Mapping::new(&scratch("elsewhere"), libc::MAP_SHARED);
    let refused = register(&b, elsewhere.start, REGION_BYTES, Some(&mut name(run, 3)));
    assert_eq!(refused.unwrap_err(), Error::arg(3));
    // The cookie is in use until the child ends, no matter why it ends.
    child.kill().unwrap();
    child.wait().unwrap();
    register(&b, elsewhere.start, REGION_BYTES, Some(&mut name(run, 3))).unwrap();
    a.close();
    b.close();
    assert_eq!(memory.bytes()[100..164], source);
    for path in [path, scratch("elsewhere")] {
        fs::remove_file(path).unwrap();
    }
}

#[test]
#[ignore = "not a test: the other process of processes_share_a_region"]
fn another_process() {
    let mut told = String::new();
    std::io::stdin().read_line(&mut told).unwrap();
    let (run, path) = told.trim_end().split_once(' ').unwrap();
    let memory = Mapping::new(Path::new(path), libc::MAP_SHARED);
    let (table, ia) = mem(false);
    let side = Side::new(table, &ia);
    let mut id = name(run.parse().unwrap(), 3);
    let private = Mapping::new(&scratch("private"), libc::MAP_SHARED);
    assert_eq!(
        register(&side, private.start, REGION_BYTES, Some(&mut id)).unwrap_err(),
        Error::arg(3)
    );
    fs::remove_file(scratch("private")).unwrap();
    register(&side, memory.start, REGION_BYTES, Some(&mut id)).unwrap();
    println!("registered");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    assert_eq!(memory.bytes()[100..164], [0x5a; 64]);
    println!("read");
    // The parent kills this process here.
    std::io::stdin().read_line(&mut line).unwrap();
}
