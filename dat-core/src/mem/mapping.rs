//! What the mappings of this process allow: whether there is memory at some addresses, and whether it can be
//! used as a region's privileges say. A peer's access to what cannot be used would end the process by a
//! signal.
//!
//! Linux tells of one mapping at a time (PROCMAP_QUERY, since 6.11), so that the cost is that of the mappings
//! and not of the pages. Before, the whole list is read; without /proc, only whether there is memory can be
//! told.

use std::ffi::c_void;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use crate::allocate::{OBJECT, find_room};

/// Why a range of addresses cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// There is no memory at some of them.
    Memory,
    /// Some of it cannot be read.
    Read,
    /// Some of it cannot be written.
    Write,
    /// There is no memory to find out.
    Room,
}

/// What a region's memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// The list of the process's mappings.
#[derive(Default)]
pub(crate) struct Mappings(OnceLock<Option<List>>);

struct List {
    /// Whose it is: a child has mappings of its own.
    process: u32,
    file: File,
}

/// A mapping, or what is known of one.
struct Mapping {
    end: usize,
    allows: Use,
}

/// Not that of the process's first thread, which may have ended before the others.
const LIST: &str = "/proc/thread-self/maps";

impl Mappings {
    /// Whether all of a range can be used so; `addr + len` must not wrap.
    pub(crate) fn allow(&self, addr: usize, len: usize, wanted: Use) -> Result<(), Lack> {
        let process = std::process::id();
        let open = || Some(List { process, file: File::open(LIST).ok()? });
        let list = self.0.get_or_init(open).as_ref();
        let anew = if list.is_some_and(|list| list.process == process) { None } else { open() };
        let Some(list) = anew.as_ref().or(list.filter(|list| list.process == process)) else {
            return if is_mapped(addr, len) { Ok(()) } else { Err(Lack::Memory) };
        };
        match each(addr, len, wanted, |at| query(&list.file, at)) {
            Ok(result) => result,
            // The kernel is older, and the list is text.
            Err(Unsupported) if find_room(OBJECT).is_err() => Err(Lack::Room),
            Err(Unsupported) => in_text(addr, len, wanted),
        }
    }
}

/// The kernel does not answer such questions.
struct Unsupported;

/// Goes from mapping to mapping; `find` gives the one that has an address. That there is no memory counts
/// more than what cannot be done with it.
fn each(
    addr: usize,
    len: usize,
    wanted: Use,
    mut find: impl FnMut(usize) -> Result<Option<Mapping>, Unsupported>,
) -> Result<Result<(), Lack>, Unsupported> {
    let (mut at, mut result) = (addr, Ok(()));
    while at < addr + len {
        let Some(Mapping { end, allows }) = find(at)? else { return Ok(Err(Lack::Memory)) };
        if wanted.read && !allows.read {
            result = result.and(Err(Lack::Read));
        }
        if wanted.write && !allows.write {
            result = result.and(Err(Lack::Write));
        }
        at = end;
    }
    Ok(result)
}

/// The kernel's `procmap_query`.
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

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::c_ulong =
    3 << 30 | (size_of::<Query>() as libc::c_ulong) << 16 | (b'f' as libc::c_ulong) << 8 | 17;
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;

fn query(list: &File, at: usize) -> Result<Option<Mapping>, Unsupported> {
    let mut query = Query { size: size_of::<Query>() as u64, addr: at as u64, ..Query::default() };
    // SAFETY: the kernel reads and writes one structure of this size; its two pointers are null, with lengths of 0.
    let result = unsafe { libc::ioctl(list.as_raw_fd(), PROCMAP_QUERY as _, &raw mut query) };
    if result != 0 {
        // SAFETY: this thread's.
        return match unsafe { *libc::__errno_location() } {
            libc::ENOENT => Ok(None),
            _ => Err(Unsupported),
        };
    }
    let allows =
        Use { read: query.vma_flags & READABLE != 0, write: query.vma_flags & WRITABLE != 0 };
    Ok(Some(Mapping { end: query.vma_end as usize, allows }))
}

/// The same by the list as text, which is in order.
fn in_text(addr: usize, len: usize, wanted: Use) -> Result<(), Lack> {
    let lines = File::open(LIST).into_iter().flat_map(|file| BufReader::new(file).split(b'\n'));
    let lines = lines.map_while(Result::ok).map(|line| String::from_utf8_lossy(&line).into_owned());
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return if is_mapped(addr, len) { Ok(()) } else { Err(Lack::Memory) };
    }
    let found =
        each(addr, len, wanted, |at| Ok(lines.by_ref().find_map(|line| mapping(&line, at))));
    found.unwrap_or(Err(Lack::Memory))
}

/// A line, such as `7f0000000000-7f0000001000 rw-p 00000000 00:00 0`, if its mapping has the address.
fn mapping(line: &str, at: usize) -> Option<Mapping> {
    let mut words = line.split(' ');
    let (start, end) = words.next()?.split_once('-')?;
    let [start, end] = [start, end].map(|number| usize::from_str_radix(number, 16).ok());
    let allows = words.next()?.as_bytes();
    let allows = Use { read: allows.first() == Some(&b'r'), write: allows.get(1) == Some(&b'w') };
    (start? <= at && at < end?).then_some(Mapping { end: end?, allows })
}

/// Whether there is memory at all of these addresses, whatever may be done with it.
fn is_mapped(addr: usize, len: usize) -> bool {
    /// Pages in one look.
    const PAGES: usize = 4096;
    // SAFETY: no pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let end = addr + len;
    let mut resident = [0; PAGES];
    // mincore, and not msync, which would be as good: valgrind takes that for a use of what is there.
    (addr - addr % page..end).step_by(PAGES * page).all(|start| {
        // SAFETY: nothing but `resident` is written, a byte for each page.
        unsafe {
            libc::mincore(
                start as *mut c_void,
                (end - start).min(PAGES * page),
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
    const READ: Use = Use { read: true, write: false };
    const BOTH: Use = Use { read: true, write: true };

    /// Five pages: to be read and written, to be read, none, no access, to be read and written.
    struct Pages(usize);

    impl Pages {
        fn new() -> Self {
            let map = |at: usize, len, allows, flags| {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
                // SAFETY: a mapping of our own.
                let at = unsafe { libc::mmap(at as *mut c_void, len, allows, flags, -1, 0) };
                assert_ne!(at, libc::MAP_FAILED);
                at as usize
            };
            let both = libc::PROT_READ | libc::PROT_WRITE;
            let start = map(0, 5 * PAGE, both, 0);
            map(start + PAGE, PAGE, libc::PROT_READ, libc::MAP_FIXED);
            map(start + 3 * PAGE, PAGE, libc::PROT_NONE, libc::MAP_FIXED);
            // SAFETY: the third of these pages.
            assert_eq!(unsafe { libc::munmap((start + 2 * PAGE) as *mut c_void, PAGE) }, 0);
            Pages(start)
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: all of what `new` has mapped.
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
            (at(0), PAGE + 1, BOTH, Err(Lack::Write)),
            (at(0), 2 * PAGE, READ, Ok(())),
            (at(1), 1, BOTH, Err(Lack::Write)),
            (at(0), 2 * PAGE + 1, READ, Err(Lack::Memory)),
            (at(2), 1, READ, Err(Lack::Memory)),
            (at(3), 1, READ, Err(Lack::Read)),
            (at(3), 1, Use { read: false, write: false }, Ok(())),
            (at(4), PAGE, BOTH, Ok(())),
            (at(3), 2 * PAGE, BOTH, Err(Lack::Read)),
        ];
        for (addr, len, wanted, expected) in cases {
            let page = (addr - pages.0) / PAGE;
            assert_eq!(mappings.allow(addr, len, wanted), expected, "{page} {len} {wanted:?}");
            assert_eq!(
                in_text(addr, len, wanted),
                expected,
                "{page} {len} {wanted:?}, by the text"
            );
            assert_eq!(is_mapped(addr, len), expected != Err(Lack::Memory), "{page} {len}");
        }
        assert_eq!(mappings.allow(usize::MAX - PAGE, PAGE, READ), Err(Lack::Memory));
    }

    /// A child has other mappings.
    #[test]
    fn a_list_of_another_process_is_not_believed() {
        let pages = Pages::new();
        let mappings = Mappings::default();
        let file = File::open("/proc/1/maps").or_else(|_| File::open("/dev/null")).expect("a file");
        assert!(mappings.0.set(Some(List { process: 1, file })).is_ok());
        assert_eq!(mappings.allow(pages.0, PAGE, BOTH), Ok(()));
        assert_eq!(mappings.allow(pages.0 + 2 * PAGE, PAGE, BOTH), Err(Lack::Memory));
    }
}
