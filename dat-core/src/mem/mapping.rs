//! Checks whether this process has memory at a range of addresses, and whether the process may
//! access it as a region's privileges say. Without this check, an access by a peer could end the
//! process by a signal.
//!
//! Since Linux 6.11 the kernel can describe a single mapping (PROCMAP_QUERY). So the cost of a
//! check depends on the number of mappings in the range, and not on the number of pages. On older
//! kernels the whole list of mappings is read. Without /proc, only the existence of memory can be
//! checked.

use std::ffi::c_void;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use crate::allocate::{OBJECT_BYTES, check_room};

/// Why a range of addresses cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MappingError {
    /// There is no memory at some of the addresses.
    NotMapped,
    /// Some of the memory cannot be read.
    NotReadable,
    /// Some of the memory cannot be written.
    NotWritable,
    /// There was no memory for checking the mapping.
    NoMemory,
}

/// Whether memory may be read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protection {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// The open file that lists the process's memory mappings.
#[derive(Default)]
pub(crate) struct Mappings(OnceLock<Option<MapsFile>>);

struct MapsFile {
    /// The process that opened the file. A child process has other mappings.
    process: u32,
    file: File,
}

/// One mapping.
struct Mapping {
    end: usize,
    allows: Protection,
}

/// The path of the file that lists the mappings. It is the path of the current thread, because the
/// path of the process leads to its first thread, which may have ended before the others.
const MAPS_PATH: &str = "/proc/thread-self/maps";

impl Mappings {
    /// Checks that all addresses of a range permit the access `wanted`. `addr + len` must not wrap.
    pub(crate) fn check(
        &self,
        addr: usize,
        len: usize,
        wanted: Protection,
    ) -> Result<(), MappingError> {
        let process = std::process::id();
        let open = || Some(MapsFile { process, file: File::open(MAPS_PATH).ok()? });
        let list = self.0.get_or_init(open).as_ref();
        let reopened = if list.is_some_and(|list| list.process == process) { None } else { open() };
        let Some(list) = reopened.as_ref().or(list.filter(|list| list.process == process)) else {
            return if is_mapped(addr, len) { Ok(()) } else { Err(MappingError::NotMapped) };
        };
        match check_each(addr, len, wanted, |at| query(&list.file, at)) {
            Ok(result) => result,
            // The kernel is older than PROCMAP_QUERY, so read the list as text.
            Err(Unsupported) if check_room(OBJECT_BYTES).is_err() => Err(MappingError::NoMemory),
            Err(Unsupported) => check_by_text(addr, len, wanted),
        }
    }
}

/// The error for a kernel that does not support PROCMAP_QUERY.
struct Unsupported;

/// Checks each mapping in a range. `find` returns the mapping that contains an address. The error
/// for missing memory takes precedence over the error for missing permissions.
fn check_each(
    addr: usize,
    len: usize,
    wanted: Protection,
    mut find: impl FnMut(usize) -> Result<Option<Mapping>, Unsupported>,
) -> Result<Result<(), MappingError>, Unsupported> {
    let (mut at, mut result) = (addr, Ok(()));
    while at < addr + len {
        let Some(Mapping { end, allows }) = find(at)? else {
            return Ok(Err(MappingError::NotMapped));
        };
        if wanted.read && !allows.read {
            result = result.and(Err(MappingError::NotReadable));
        }
        if wanted.write && !allows.write {
            result = result.and(Err(MappingError::NotWritable));
        }
        at = end;
    }
    Ok(result)
}

/// The kernel's `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// The request code of the ioctl: `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::c_ulong =
    3 << 30 | (size_of::<Query>() as libc::c_ulong) << 16 | (b'f' as libc::c_ulong) << 8 | 17;
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;

fn query(list: &File, at: usize) -> Result<Option<Mapping>, Unsupported> {
    let mut query = Query { size: size_of::<Query>() as u64, addr: at as u64, ..Query::default() };
    // SAFETY: the kernel reads and writes one structure of this size. Its two pointers are null,
    // and their lengths are 0.
    let result = unsafe { libc::ioctl(list.as_raw_fd(), PROCMAP_QUERY as _, &raw mut query) };
    if result != 0 {
        // SAFETY: errno is a variable of this thread.
        return match unsafe { *libc::__errno_location() } {
            libc::ENOENT => Ok(None),
            _ => Err(Unsupported),
        };
    }
    let allows = Protection {
        read: query.vma_flags & READABLE != 0,
        write: query.vma_flags & WRITABLE != 0,
    };
    Ok(Some(Mapping { end: query.vma_end as usize, allows }))
}

/// Checks a range by reading the list of mappings as text. The list is sorted by address.
fn check_by_text(addr: usize, len: usize, wanted: Protection) -> Result<(), MappingError> {
    let lines =
        File::open(MAPS_PATH).into_iter().flat_map(|file| BufReader::new(file).split(b'\n'));
    let lines = lines.map_while(Result::ok).map(|line| String::from_utf8_lossy(&line).into_owned());
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return if is_mapped(addr, len) { Ok(()) } else { Err(MappingError::NotMapped) };
    }
    let found =
        check_each(addr, len, wanted, |at| Ok(lines.by_ref().find_map(|line| mapping(&line, at))));
    found.unwrap_or(Err(MappingError::NotMapped))
}

/// Parses a line such as `7f0000000000-7f0000001000 rw-p 00000000 00:00 0`. Returns the mapping if
/// it contains the address.
fn mapping(line: &str, at: usize) -> Option<Mapping> {
    let mut words = line.split(' ');
    let (start, end) = words.next()?.split_once('-')?;
    let [start, end] = [start, end].map(|number| usize::from_str_radix(number, 16).ok());
    let allows = words.next()?.as_bytes();
    let allows =
        Protection { read: allows.first() == Some(&b'r'), write: allows.get(1) == Some(&b'w') };
    (start? <= at && at < end?).then_some(Mapping { end: end?, allows })
}

/// Whether there is memory at all addresses of a range, whatever its permissions are.
fn is_mapped(addr: usize, len: usize) -> bool {
    /// The number of pages that one call checks.
    const PAGES_PER_CALL: usize = 4096;
    // SAFETY: sysconf takes no pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let end = addr + len;
    let mut resident = [0; PAGES_PER_CALL];
    // Use mincore and not msync, because valgrind treats msync as an access to the memory.
    (addr - addr % page..end).step_by(PAGES_PER_CALL * page).all(|start| {
        // SAFETY: the kernel writes only to `resident`, one byte for each page.
        unsafe {
            libc::mincore(
                start as *mut c_void,
                (end - start).min(PAGES_PER_CALL * page),
                resident.as_mut_ptr(),
            ) == 0
                || *libc::__errno_location() != libc::ENOMEM
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;
    const READ: Protection = Protection { read: true, write: false };
    const BOTH: Protection = Protection { read: true, write: true };

    /// Five pages of memory. The first and the last can be read and written. The second can only be
    /// read, the third is not mapped, and the fourth permits no access.
    struct Pages(usize);

    impl Pages {
        fn new() -> Self {
            let map = |at: usize, len, allows, flags| {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
                // SAFETY: the mapped memory belongs to this test.
                let at = unsafe { libc::mmap(at as *mut c_void, len, allows, flags, -1, 0) };
                assert_ne!(at, libc::MAP_FAILED);
                at as usize
            };
            let both = libc::PROT_READ | libc::PROT_WRITE;
            let start = map(0, 5 * PAGE, both, 0);
            map(start + PAGE, PAGE, libc::PROT_READ, libc::MAP_FIXED);
            map(start + 3 * PAGE, PAGE, libc::PROT_NONE, libc::MAP_FIXED);
            // SAFETY: the third of these pages belongs to this test, which does not access it.
            assert_eq!(unsafe { libc::munmap((start + 2 * PAGE) as *mut c_void, PAGE) }, 0);
            Pages(start)
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: `new` has mapped these five pages, and nothing uses them any more.
            unsafe { libc::munmap(self.0 as *mut c_void, 5 * PAGE) };
        }
    }

    #[test]
    fn each_page_is_what_it_was_mapped_as() {
        let pages = Pages::new();
        let mappings = Mappings::default();
        let at = |page: usize| pages.0 + page * PAGE;
        let cases = [
            (at(0), PAGE, BOTH, Ok(())),
            (at(0) + 100, PAGE - 100, BOTH, Ok(())),
            (at(0), PAGE + 1, BOTH, Err(MappingError::NotWritable)),
            (at(0), 2 * PAGE, READ, Ok(())),
            (at(1), 1, BOTH, Err(MappingError::NotWritable)),
            (at(0), 2 * PAGE + 1, READ, Err(MappingError::NotMapped)),
            (at(2), 1, READ, Err(MappingError::NotMapped)),
            (at(3), 1, READ, Err(MappingError::NotReadable)),
            (at(3), 1, Protection { read: false, write: false }, Ok(())),
            (at(4), PAGE, BOTH, Ok(())),
            (at(3), 2 * PAGE, BOTH, Err(MappingError::NotReadable)),
        ];
        for (addr, len, wanted, expected) in cases {
            let page = (addr - pages.0) / PAGE;
            assert_eq!(mappings.check(addr, len, wanted), expected, "{page} {len} {wanted:?}");
            assert_eq!(
                check_by_text(addr, len, wanted),
                expected,
                "page {page}, {len} octets, {wanted:?}: the list was read as text"
            );
            assert_eq!(
                is_mapped(addr, len),
                expected != Err(MappingError::NotMapped),
                "{page} {len}"
            );
        }
        assert_eq!(mappings.check(usize::MAX - PAGE, PAGE, READ), Err(MappingError::NotMapped));
    }

    /// A maps file that another process has opened is not used, because a child process has other
    /// mappings than its parent.
    #[test]
    fn a_maps_file_of_another_process_is_not_used() {
        let pages = Pages::new();
        let mappings = Mappings::default();
        let file = File::open("/proc/1/maps").or_else(|_| File::open("/dev/null")).expect("a file");
        assert!(mappings.0.set(Some(MapsFile { process: 1, file })).is_ok());
        assert_eq!(mappings.check(pages.0, PAGE, BOTH), Ok(()));
        assert_eq!(mappings.check(pages.0 + 2 * PAGE, PAGE, BOTH), Err(MappingError::NotMapped));
    }
}
