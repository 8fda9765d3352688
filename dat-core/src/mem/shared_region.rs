//! Shared memory regions: a cookie names memory that several processes have mapped.
//!
//! In user space each process registers its own mapping, with its own contexts, privileges and zone
//! (uDAPL 1.2, dat_lmr_create: the scope of a context is the consumer's address space). Only the
//! cookie is shared: while any process has a region with a cookie, no process can use the same
//! cookie for other memory. All 40 bytes of a cookie count.
//!
//! The processes of one user coordinate through one file for each cookie, in a directory of shared
//! memory. Each process that has the region holds a shared lock on the file. The lock ends with the
//! process, even if the process is killed. The last process removes the file when it releases the
//! cookie or exits. The file of a process that is killed stays until a process of this user claims
//! a cookie.

use std::ffi::c_char;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use dat_sys::*;
use telemetry::threads;

use crate::allocate::{ADAPTER_BYTES, check_room};
use crate::error::{Error, Result};

/// The cookie that names a shared region.
pub type Cookie = [c_char; DAT_LMR_COOKIE_SIZE];

/// The right to use a cookie. Dropping the value releases the cookie.
pub struct CookieClaim {
    cookie: Cookie,
    _file: Arc<ClaimFile>,
}

/// The file of a cookie, which this process has locked.
struct ClaimFile {
    file: File,
    path: PathBuf,
    inode: u64,
    /// The process that has locked the file. A child process inherits the lock, but not the claim.
    process: u32,
}

/// The files of this process. A process may exit without freeing its regions.
static FILES: Mutex<Vec<Weak<ClaimFile>>> = Mutex::new(Vec::new());

/// The directory that contains the file of each cookie.
const COOKIE_DIRECTORY: &str = "/dev/shm";

impl CookieClaim {
    /// Claims a cookie for `len` bytes of memory at `addr`. Each provider has its own cookies.
    /// Errors:
    ///
    /// - `DAT_INVALID_STATE`: the memory is not shared.
    /// - `DAT_INVALID_PARAMETER`, argument 3: the cookie names other memory.
    /// - `DAT_INVALID_PARAMETER`, argument 4: the cookie names the same memory with another length.
    pub(super) fn new(provider: &str, cookie: Cookie, addr: u64, len: u64) -> Result<Self> {
        // Check for more room than the list of mappings and the file names need. Read the list of
        // this thread, because the process's first thread may have ended before the others. The
        // list need not be UTF-8.
        check_room(ADAPTER_BYTES)?;
        let maps = fs::read("/proc/thread-self/maps").map_err(|_| Error::of(DAT_INTERNAL_ERROR))?;
        let maps = String::from_utf8_lossy(&maps);
        // If the platform did not create the buffer as shared memory, the standard requires
        // `DAT_INVALID_STATE` (uDAPL 1.2, dat_lmr_create).
        let memory = mapped_object(&maps, addr, len).ok_or(Error::of(DAT_INVALID_STATE))?;
        match CookieClaim::claim_file(
            Path::new(COOKIE_DIRECTORY),
            provider,
            cookie,
            &format!("{memory} {len}"),
        ) {
            Ok(Ok(claim)) => Ok(claim),
            Ok(Err(other)) if other.rsplit_once(' ').is_some_and(|(named, _)| named == memory) => {
                Err(Error::arg(4))
            }
            Ok(Err(_)) => Err(Error::arg(3)),
            Err(_) => Err(Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY_REGION)),
        }
    }

    /// The cookie.
    pub(super) fn cookie(&self) -> &Cookie {
        &self.cookie
    }

    /// Claims a cookie as [`CookieClaim::new`] does. `memory` describes the memory. If the cookie
    /// is already claimed for other memory, returns the description of that other memory in
    /// `Ok(Err)`.
    fn claim_file(
        directory: &Path,
        provider: &str,
        cookie: Cookie,
        memory: &str,
    ) -> io::Result<std::result::Result<Self, String>> {
        let user = fs::metadata("/proc/self")?.uid();
        remove_stale(directory, user);
        let hex: String = cookie.iter().map(|byte| format!("{:02x}", *byte as u8)).collect();
        let path = directory.join(format!("opendat-{user}-{}-{hex}", provider.replace('/', "-")));
        loop {
            let mut options = OpenOptions::new();
            options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW);
            let mut file = options.open(&path)?;
            let own = file.metadata()?;
            if own.uid() != user {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let exclusive = match file.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => false,
                Err(TryLockError::Error(e)) => return Err(e),
            };
            if exclusive && path_has_inode(&path, own.ino()) {
                // No process has the region. Processes that have ended have left the content of the
                // file, so overwrite it.
                file.set_len(0)?;
                file.write_all(memory.as_bytes())?;
            }
            // Changing an exclusive lock to a shared one is not atomic, so another process may
            // write to the file in between. Only the content that is read from now on counts.
            file.lock_shared()?;
            let mut named = String::new();
            file.rewind()?;
            file.read_to_string(&mut named)?;
            let process = std::process::id();
            let file = ClaimFile { file, path: path.clone(), inode: own.ino(), process };
            match named {
                // Try again: the process that created the file has removed it again, or has not
                // written to it yet.
                _ if !path_has_inode(&path, own.ino()) => {}
                named if named.is_empty() => {}
                named if named == memory => {
                    let file = Arc::new(file);
                    file.release_at_exit();
                    return Ok(Ok(CookieClaim { cookie, _file: file }));
                }
                other => return Ok(Err(other)),
            }
        }
    }
}

impl ClaimFile {
    /// Releases the cookie when this process exits, unless that has happened before.
    fn release_at_exit(self: &Arc<Self>) {
        static REGISTERED: Once = Once::new();
        // Without memory for the registration, the file stays until another claim removes it.
        REGISTERED.call_once(|| _ = threads::at_exit(release_all));
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| file.strong_count() > 0);
        files.push(Arc::downgrade(self));
    }

    /// Releases the cookie. The last process that has the file open removes it, whether it had the
    /// region or only checked the cookie. Meanwhile the exclusive lock keeps other processes from
    /// joining.
    fn release(&self) {
        if self.process == std::process::id()
            && self.file.try_lock().is_ok()
            && path_has_inode(&self.path, self.inode)
        {
            // A failure to remove the file is harmless, because an old file is overwritten.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for ClaimFile {
    fn drop(&mut self) {
        self.release();
    }
}

/// Releases the cookies of this process, which exits.
extern "C" fn release_all() {
    if let Ok(files) = FILES.try_lock() {
        files.iter().filter_map(Weak::upgrade).for_each(|file| file.release());
    }
}

/// Removes the files of this user's processes that have ended without releasing their cookies. A
/// file that no process has locked belongs to nobody.
fn remove_stale(directory: &Path, user: u32) {
    let prefix = format!("opendat-{user}-");
    // Another user may have created a pipe of such a name. O_NONBLOCK keeps open() from waiting.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_claim =
            name.to_str().and_then(|name| name.strip_prefix(&prefix)).is_some_and(|rest| {
                rest.rsplit_once('-').is_some_and(|(_, hex)| hex.len() == 2 * DAT_LMR_COOKIE_SIZE)
            });
        let path = entry.path();
        if is_claim
            && let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(&path)
            && file.try_lock().is_ok()
            && file
                .metadata()
                .is_ok_and(|own| own.uid() == user && path_has_inode(&path, own.ino()))
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Whether a path leads to the file with this inode number.
fn path_has_inode(path: &Path, inode: u64) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.ino() == inode)
}

/// Describes the shared object that is mapped at `addr` for `len` bytes. The description consists
/// of device, inode and offset, so it is equal in all processes. Returns `None` if the range is not
/// completely inside one object that is mapped as shared.
fn mapped_object(maps: &str, addr: u64, len: u64) -> Option<String> {
    let end = addr.checked_add(len)?;
    let mut first: Option<(&str, &str, u64)> = None;
    let mut covered = addr;
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (from, to) = fields.next()?.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        if to <= covered || covered >= end {
            continue;
        }
        let (rights, offset) = (fields.next()?, u64::from_str_radix(fields.next()?, 16).ok()?);
        let (device, inode) = (fields.next()?, fields.next()?);
        // The offset of the byte at `addr` inside the object.
        let start = offset.wrapping_add(addr.wrapping_sub(from));
        let known = *first.get_or_insert((device, inode, start));
        if from > covered || !rights.ends_with('s') || known != (device, inode, start) {
            return None;
        }
        covered = to;
    }
    let (device, inode, offset) = first.filter(|_| covered >= end)?;
    Some(format!("{device} {inode} {offset:x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
        1000-3000 rw-s 00000000 00:01 77                         /memfd:a (deleted)\n\
        3000-5000 r--s 00002000 00:01 77                         /memfd:a (deleted)\n\
        5000-6000 rw-s 00009000 00:01 77                         /memfd:a (deleted)\n\
        6000-7000 rw-s 00000000 00:01 78 \n\
        7000-8000 rw-p 00001000 00:01 78 \n\
        9000-a000 rw-s 00001000 fe:02 79                         /tmp/with spaces\n";

    #[test]
    fn shared_memory_is_known_by_what_is_mapped() {
        let found = |addr, len| mapped_object(MAPS, addr, len);
        assert_eq!(found(0x1000, 0x1000).as_deref(), Some("00:01 77 0"));
        assert_eq!(
            found(0x1010, 0x3ff0).as_deref(),
            Some("00:01 77 10"),
            "two mappings of one object must be found as one"
        );
        assert_eq!(found(0x4800, 1).as_deref(), Some("00:01 77 3800"));
        assert_eq!(found(0x9fff, 1).as_deref(), Some("fe:02 79 1fff"));
        let not: [(u64, u64); 8] = [
            (0x4800, 0x1000),  // the same object, elsewhere
            (0x5800, 0x1000),  // two objects
            (0x6800, 0x1000),  // partly private
            (0x7000, 1),       // private
            (0x8000, 1),       // nothing
            (0x9800, 0x1000),  // partly nothing
            (0x800, 0x1000),   // nothing at first
            (u64::MAX - 3, 8), // around the end
        ];
        for (addr, len) in not {
            assert_eq!(found(addr, len), None, "{addr:#x} {len:#x}");
        }
    }

    #[test]
    fn a_cookie_names_one_memory_while_it_is_claimed() {
        let directory =
            std::env::temp_dir().join(format!("opendat-cookies-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let claim =
            |cookie, memory| CookieClaim::claim_file(&directory, "mem", cookie, memory).unwrap();
        let cookie: Cookie = std::array::from_fn(|n| n as c_char);
        let mut other = cookie;
        // A NUL does not end a cookie, so the last byte counts as well.
        other[39] ^= 1;

        let first = claim(cookie, "a 1").unwrap();
        let second = claim(cookie, "a 1").unwrap();
        assert_eq!(claim(cookie, "b 1").err().as_deref(), Some("a 1"));
        let third = claim(other, "b 1").unwrap();
        assert!(
            CookieClaim::claim_file(&directory, "another/provider", cookie, "b 1").unwrap().is_ok()
        );
        drop(first);
        assert_eq!(
            claim(cookie, "b 1").err().as_deref(),
            Some("a 1"),
            "the second claim must still hold the cookie"
        );
        drop(second);
        assert_eq!(
            fs::read_dir(&directory).unwrap().count(),
            1,
            "only the third claim's file may be left"
        );
        let again = claim(cookie, "b 1").unwrap();
        drop((again, third));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);

        // A file that a killed process has left is ignored.
        let path = claim(cookie, "a 1").unwrap()._file.path.clone();
        fs::write(path, "a 1").unwrap();
        drop(claim(cookie, "b 1").unwrap());
        // The next claim removes the files of all processes that have ended.
        for n in 0..50 {
            let hex = format!("{n:02x}").repeat(DAT_LMR_COOKIE_SIZE);
            let user = fs::metadata("/proc/self").unwrap().uid();
            fs::write(directory.join(format!("opendat-{user}-mem-{hex}")), "a 1").unwrap();
        }
        fs::write(directory.join("another-file"), "").unwrap();
        let held = claim(other, "b 1").unwrap();
        let beside = claim(cookie, "b 1").unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
        drop((held, beside));
        fs::remove_file(directory.join("another-file")).unwrap();
        fs::remove_dir(&directory).unwrap();
    }

    /// [`processes_that_exit_leave_no_files`] starts a process that claims a cookie. This variable
    /// names the directory for the claim.
    const CLAIMS_IN: &str = "OPENDAT_TEST_CLAIMS_IN";
    /// The exit code of a process that has claimed a cookie.
    const CLAIMED: i32 = 33;

    #[test]
    fn processes_that_exit_leave_no_files() {
        if let Some(directory) = std::env::var_os(CLAIMS_IN) {
            let process = std::process::id().to_ne_bytes();
            let cookie = std::array::from_fn(|n| process[n % process.len()] as c_char);
            let claim = CookieClaim::claim_file(Path::new(&directory), "mem", cookie, "a 1");
            std::mem::forget(claim.unwrap());
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
            std::process::exit(CLAIMED);
        }
        let directory = std::env::temp_dir().join(format!("opendat-exits-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        for _ in 0..50 {
            let ran = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "mem::shared_region::tests::processes_that_exit_leave_no_files"])
                .env(CLAIMS_IN, &directory)
                .output()
                .unwrap();
            let output = String::from_utf8_lossy(&ran.stdout);
            assert_eq!(ran.status.code(), Some(CLAIMED), "{output}");
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        }
        fs::remove_dir(&directory).unwrap();
    }

    #[test]
    fn claims_race_without_two_winners() {
        let directory = std::env::temp_dir().join(format!("opendat-race-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let holders = [const { std::sync::atomic::AtomicUsize::new(0) }; 2];
        std::thread::scope(|scope| {
            for n in 0..4 {
                let (directory, holders) = (&directory, &holders);
                scope.spawn(move || {
                    use std::sync::atomic::Ordering::SeqCst;
                    for _ in 0..300 {
                        let mine = n % 2;
                        if let Ok(claim) =
                            CookieClaim::claim_file(directory, "mem", [7; 40], ["a", "b"][mine])
                                .unwrap()
                        {
                            holders[mine].fetch_add(1, SeqCst);
                            assert_eq!(holders[1 - mine].load(SeqCst), 0);
                            holders[mine].fetch_sub(1, SeqCst);
                            drop(claim);
                        }
                    }
                });
            }
        });
        fs::remove_dir(&directory).unwrap();
    }
}
