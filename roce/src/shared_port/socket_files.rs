//! The names by which the adapters of one address find each other: local sockets in a directory
//! that only their user can enter ([`UserDirectory`]). The kernel keeps other users from connecting
//! to these sockets, from sending to them and from taking their names.
//!
//! The directory is `NETNS/v3-ADDRESS` in the directory of the user, which is `/tmp/opendat-UID` if
//! nothing prevents that. Adapters of earlier versions of OpenDAT, whose slots or messages differ,
//! use another directory, so that they find the port taken. Each network namespace has its own
//! ports and therefore its own directories. systemd-tmpfiles removes old files from /tmp, but skips
//! directories that a process has locked. Therefore each adapter holds a shared lock on its
//! directory. An adapter that ends tries to lock the directory exclusively. This succeeds only for
//! the last adapter, which then removes the directory.
//!
//! A program may change its root or its mounts while it has an adapter. Therefore all files are
//! named relative to the open directory, and [`outside`] makes the calls that need a path.
//!
//! The file of a socket outlives a process that is killed. The kernel then refuses connections to
//! that socket, and the next process that wants the name removes the file. While this process
//! checks and removes the file, it holds a lock. Without the lock it could remove the file of
//! another process that has just taken the name.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, readlinkat_raw, symlinkat, unlinkat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use telemetry::user_directory::{NoDirectory, UserDirectory, id_of, leads_to};

use super::local_socket::LocalSocket;
use super::{PortSlot, SLOTS, outside};

/// The time to wait for a lock that other processes hold only for a moment.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest path of a local socket, with its NUL.
const SOCKET_PATH_MAX_BYTES: usize = 108;

/// The number of connections that wait for a liveness listener to accept them. The kernel has a
/// limit of its own.
const LIVENESS_BACKLOG: i32 = 4096;

/// The time for which a list of services is used before the directory is read again.
const SERVICES_AGE: Duration = Duration::from_millis(100);

/// The services for which adapters of this address listened when the directory was last read.
#[derive(Default)]
pub(super) struct Services {
    known: HashSet<u64>,
    /// The time at which the directory was last read.
    read: Option<Instant>,
}

impl Services {
    /// Whether an adapter listened for the service when the directory was last read, at most
    /// `SERVICES_AGE` ago.
    pub(super) fn has(&mut self, names: &Names, service: u64, now: Instant) -> bool {
        if self.read.is_none_or(|read| now >= read + SERVICES_AGE) {
            (self.known, self.read) = (names.services(), Some(now));
        }
        self.known.contains(&service)
    }

    /// Records that no adapter listens for the service any more.
    pub(super) fn remove(&mut self, service: u64) {
        self.known.remove(&service);
    }
}

/// The name of a receiver of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// The adapter that has this slot.
    Slot(PortSlot),
    /// The adapter that listens for this service.
    Service(u64),
    /// The adapter that last listened for this service and still has requests for it.
    ClosedService(u64),
}

impl Name {
    /// The name of the socket's file.
    fn file(self) -> String {
        match self {
            Name::Slot(slot) => format!("slot-{slot}"),
            Name::Service(service) => format!("service-{service:x}"),
            Name::ClosedService(service) => format!("closed-{service:x}"),
        }
    }
}

/// The names of one address. The directory exists as long as this value or a [`SocketFile`] does.
#[derive(Clone)]
pub(super) struct Names(Arc<Directory>);

struct Directory {
    /// The path of the directory when it was opened.
    path: PathBuf,
    /// The open directory, with a shared lock.
    lock: File,
    /// The device and the number of the directory.
    id: (u64, u64),
}

impl Directory {
    /// Calls `call` with the socket address of a file in this directory, or in the directory of
    /// another address. The path need not lead there any more, for example after chroot(2).
    fn with_address<T>(
        &self,
        path: &Path,
        mut call: impl FnMut(&SocketAddrUnix) -> io::Result<T>,
    ) -> io::Result<T> {
        if leads_to(&self.path, self.id) {
            return call(&SocketAddrUnix::new(path)?);
        }
        let namespace = self.path.parent().unwrap_or(&self.path);
        let relative = path.strip_prefix(namespace).map_err(io::Error::other)?;
        let address = SocketAddrUnix::new(relative)?;
        outside::in_parent_of(self.lock.as_fd(), || call(&address))
    }

    /// The names of the files.
    fn files(&self) -> io::Result<impl Iterator<Item = CString> + use<>> {
        let entries = Dir::read_from(&self.lock)?;
        Ok(entries.flatten().map(|entry| entry.file_name().to_owned()))
    }

    fn remove_if_there(&self, file: &str) -> io::Result<()> {
        match unlinkat(&self.lock, file, AtFlags::empty()) {
            Err(error) if error != Errno::NOENT => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Removes the directory and its files, and then its parent if that is empty.
    fn remove(&self) -> io::Result<()> {
        for file in self.files()? {
            unlinkat(&self.lock, file, AtFlags::empty()).ok();
        }
        let parent_of = |directory: BorrowedFd<'_>| {
            openat(directory, "..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        };
        let mut directory = parent_of(self.lock.as_fd())?;
        for path in self.path.ancestors().take(2) {
            let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
            unlinkat(&directory, name, AtFlags::REMOVEDIR)?;
            directory = parent_of(directory.as_fd())?;
        }
        Ok(())
    }
}

impl Drop for Directory {
    /// The last owner removes the directory. A process that opens the directory at the same time
    /// waits for the lock, then sees that the directory no longer exists, and creates a new
    /// directory.
    fn drop(&mut self) {
        if self.lock.try_lock().is_ok() {
            // Removing the parent succeeds only with the last directory of the network namespace.
            self.remove().ok();
        }
    }
}

/// The lock for binding sockets to the port. Only one process at a time can hold it.
pub(super) struct BindLock(
    #[expect(dead_code, reason = "closing the file releases the lock")] File,
);

/// The file of a local socket. The owner drops this value before it closes the socket. Therefore
/// this value never removes the file of the name's next owner.
pub(super) struct SocketFile {
    file: String,
    directory: Arc<Directory>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.directory.remove_if_there(&self.file).ok();
    }
}

/// The name of a service that no longer has a listener ([`Name::ClosedService`]): a link to the
/// local socket of the adapter that has the requests. It is prepared when the listener is created,
/// so that closing a listener needs no memory.
///
/// If another adapter starts to listen for the same service, the repetitions of these requests go
/// to that adapter, which takes them for new requests.
pub(crate) struct ClosedService {
    file: String,
    /// The file of the socket, to which the link leads.
    socket: String,
    was_linked: bool,
    directory: Arc<Directory>,
}

impl ClosedService {
    /// Makes the name lead to this adapter. The name may lead to another adapter that closed its
    /// listener for the same service earlier. The new link replaces that link.
    pub(crate) fn link(&mut self) -> io::Result<()> {
        self.was_linked = true;
        let link = || symlinkat(self.socket.as_str(), &self.directory.lock, self.file.as_str());
        match link() {
            Err(Errno::EXIST) => {
                self.directory.remove_if_there(&self.file)?;
                Ok(link()?)
            }
            linked => Ok(linked?),
        }
    }

    /// Whether the link exists and leads to this adapter.
    fn is_linked(&self) -> bool {
        let mut target = [MaybeUninit::uninit(); SOCKET_PATH_MAX_BYTES];
        readlinkat_raw(&self.directory.lock, self.file.as_str(), &mut target)
            .is_ok_and(|(target, _)| *target == *self.socket.as_bytes())
    }
}

impl Drop for ClosedService {
    fn drop(&mut self) {
        if self.was_linked && self.is_linked() {
            self.directory.remove_if_there(&self.file).ok();
        }
    }
}

impl Names {
    /// Opens the directory of an address and creates it if necessary.
    pub(super) fn new(address: SocketAddr) -> Result<Self, NoDirectory> {
        Names::open(UserDirectory::find, &name_of(address))
    }

    /// Opens a directory in the directory of the user. Other processes, which end, may remove both
    /// meanwhile.
    fn open(
        find: impl Fn() -> Result<UserDirectory, NoDirectory>,
        name: &str,
    ) -> Result<Self, NoDirectory> {
        let mut path = PathBuf::new();
        let opened = retry_until_timeout(|| {
            let of_user = match find() {
                Ok(of_user) => of_user,
                Err(no_directory) => return Ok(Err(no_directory)),
            };
            path = of_user.path_of(name);
            let lock = of_user.open(name)?;
            lock.try_lock_shared()?;
            let id = id_of(&lock)?;
            leads_to(&path, id).then_some(Ok((lock, id))).ok_or(io::ErrorKind::NotFound.into())
        });
        match opened {
            Ok(Ok((lock, id))) => Ok(Names(Arc::new(Directory { path, lock, id }))),
            Ok(Err(no_directory)) => Err(no_directory),
            Err(error) => Err((path, error)),
        }
    }

    /// Opens a directory in the directory that the user has at a place.
    #[cfg(test)]
    pub(super) fn at(place: &Path, name: &str) -> Result<Self, NoDirectory> {
        Names::open(|| UserDirectory::find_in(&[place]), name)
    }

    #[cfg(test)]
    pub(super) fn directory(&self) -> &Path {
        &self.0.path
    }

    fn path(&self, name: Name) -> PathBuf {
        self.0.path.join(name.file())
    }

    /// The services for which the directory has a socket file.
    fn services(&self) -> HashSet<u64> {
        self.numbers("service-", 16).collect()
    }

    /// The numbers that follow `prefix` in the names of files.
    fn numbers<N: TryFrom<u64>>(&self, prefix: &str, radix: u32) -> impl Iterator<Item = N> {
        let files = self.0.files().into_iter().flatten();
        files.filter_map(move |file| {
            let number = file.to_str().ok()?.strip_prefix(prefix)?;
            N::try_from(u64::from_str_radix(number, radix).ok()?).ok()
        })
    }

    /// The socket address of a name.
    pub(super) fn address(&self, name: Name) -> io::Result<SocketAddrUnix> {
        Ok(SocketAddrUnix::new(self.path(name))?)
    }

    /// Calls `call` with the socket address of a name, wherever the program's root is now.
    pub(super) fn with_address<T>(
        &self,
        name: Name,
        call: impl FnMut(&SocketAddrUnix) -> io::Result<T>,
    ) -> io::Result<T> {
        self.0.with_address(&self.path(name), call)
    }

    /// Whether a process has the socket of this name.
    pub(super) fn is_taken(&self, name: Name) -> io::Result<bool> {
        Ok(self.is_taken_with(&UnixDatagram::unbound()?, name))
    }

    /// The slots that are taken. The iterator checks each slot only when it reaches that slot.
    pub(super) fn taken_slots(&self) -> io::Result<impl Iterator<Item = PortSlot>> {
        let probe = UnixDatagram::unbound()?;
        Ok(SLOTS.filter(move |&slot| self.is_taken_with(&probe, Name::Slot(slot))))
    }

    /// The slots for which the directory has a socket file, except one, the highest first. Their
    /// processes may have been killed.
    pub(super) fn listed_slots(&self, except: PortSlot) -> impl Iterator<Item = PortSlot> + use<> {
        let mut slots: Vec<PortSlot> = self.numbers("slot-", 10).filter(|&n| n != except).collect();
        slots.sort_unstable();
        slots.into_iter().rev()
    }

    /// Whether a process has the socket of this name. The test connects `probe` to the socket.
    /// Connecting a datagram socket does not involve the other process. The name is free only if
    /// the error means that no process has it. A name that cannot be tested counts as taken.
    fn is_taken_with(&self, probe: &UnixDatagram, name: Name) -> bool {
        let connected = self.with_address(name, |address| Ok(connect(probe, address)?));
        connected.err().is_none_or(|error| !means_no_owner(&error))
    }

    /// Takes the first free slot of `slots`.
    pub(super) fn claim_slot(
        &self,
        mut slots: Range<PortSlot>,
    ) -> io::Result<Option<(PortSlot, LocalSocket)>> {
        let _lock = self.lock()?;
        let probe = UnixDatagram::unbound()?;
        let slot = slots.find(|&slot| !self.is_taken_with(&probe, Name::Slot(slot)));
        slot.map(|slot| Ok((slot, self.bind(Name::Slot(slot))?))).transpose()
    }

    /// Takes the name of a service. Returns `AddrInUse` if a process has that name.
    pub(super) fn claim_service(&self, service: u64) -> io::Result<LocalSocket> {
        let (_lock, name) = (self.lock()?, Name::Service(service));
        if self.is_taken(name)? {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        self.bind(name)
    }

    /// Prepares the link that a service gets if its listener closes while requests are open. The
    /// link leads to the adapter that has this slot.
    pub(super) fn closed_service(&self, service: u64, slot: PortSlot) -> ClosedService {
        let [file, socket] = [Name::ClosedService(service), Name::Slot(slot)].map(Name::file);
        ClosedService { file, socket, was_linked: false, directory: Arc::clone(&self.0) }
    }

    /// Takes a free name. The caller must hold the lock.
    fn bind(&self, name: Name) -> io::Result<LocalSocket> {
        let (socket, file) = (UnixDatagram::unbound()?, name.file());
        self.0.remove_if_there(&file)?;
        self.with_address(name, |address| Ok(bind(&socket, address)?))
            .map_err(|error| self.name_file(&file, error))?;
        LocalSocket::new(socket, self.file(file))
    }

    /// Binds the liveness socket of a slot. Only the owner of the slot calls this, so no other
    /// process has the name.
    pub(super) fn bind_liveness(&self, slot: PortSlot) -> io::Result<(UnixListener, SocketFile)> {
        let (socket, file) = (local_stream(SocketFlags::empty())?, liveness_file(slot));
        self.0.remove_if_there(&file)?;
        let path = self.0.path.join(&file);
        self.0
            .with_address(&path, |address| Ok(bind(&socket, address)?))
            .map_err(|error| self.name_file(&file, error))?;
        listen(&socket, LIVENESS_BACKLOG)?;
        Ok((socket.into(), self.file(file)))
    }

    fn file(&self, file: String) -> SocketFile {
        SocketFile { file, directory: Arc::clone(&self.0) }
    }

    /// Connects to the liveness socket of the adapter that has this slot at this address. The
    /// address may be any address of this host. The adapter need not accept the connection. Returns
    /// `ConnectionRefused` if no adapter of this user has the slot. Does not block: returns
    /// `WouldBlock` if the kernel's queue of connections is full.
    pub(super) fn connect_liveness(
        &self,
        address: SocketAddr,
        slot: PortSlot,
    ) -> io::Result<UnixStream> {
        let socket = local_stream(SocketFlags::NONBLOCK)?;
        let path = self.0.path.with_file_name(name_of(address)).join(liveness_file(slot));
        match self.0.with_address(&path, |address| Ok(connect(&socket, address)?)) {
            Ok(()) => Ok(socket.into()),
            Err(error) if means_no_owner(&error) => Err(io::ErrorKind::ConnectionRefused.into()),
            Err(error) => Err(error),
        }
    }

    /// Takes the lock for binding sockets to the port. Returns `TimedOut` if another process holds
    /// it.
    pub(super) fn lock_binding(&self) -> io::Result<BindLock> {
        let lock = self.lock_file("founding.lock")?;
        lock.try_lock().map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        Ok(BindLock(lock))
    }

    /// Takes the lock that a process must hold while it takes a name.
    fn lock(&self) -> io::Result<File> {
        let lock = self.lock_file("names.lock")?;
        retry_until_timeout(|| Ok(lock.try_lock()?))?;
        Ok(lock)
    }

    /// Adds the path of a file to an error that depends on the file system.
    fn name_file(&self, file: &str, error: io::Error) -> io::Error {
        use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        match error.kind() {
            PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull => {
                let what = format!("{}: {error}", self.0.path.join(file).display());
                io::Error::new(error.kind(), what)
            }
            _ => error,
        }
    }

    fn lock_file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let opened = openat(&self.0.lock, name, flags, Mode::RUSR | Mode::WUSR);
        Ok(opened.map_err(|error| self.name_file(name, error.into()))?.into())
    }
}

/// Returns the name of an address's directory. The name is short, because the path of a local
/// socket has at most 107 octets. The longest path has 107 octets, with the user's directory in
/// /dev/shm.
fn name_of(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(v4) => format!("v3-{}", v4.ip()),
        SocketAddr::V6(v6) => format!("v3-{:032x}-{:x}", u128::from(*v6.ip()), v6.scope_id()),
    }
}

fn liveness_file(slot: PortSlot) -> String {
    format!("life-{slot}")
}

fn local_stream(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Repeats `attempt` while it fails with `WouldBlock` or `NotFound`, which other processes can
/// cause for a short time. Returns `TimedOut` if it still fails after `LOCK_TIMEOUT`.
fn retry_until_timeout<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotFound) => {}
            result => return result,
        }
        if start.elapsed() >= LOCK_TIMEOUT {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether an error means that no process has a socket: its file does not exist, or the kernel
/// refuses connections to it.
pub(super) fn means_no_owner(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, TryLockError};

    use telemetry::user_directory::PLACES;

    use super::*;

    fn names() -> (tempfile::TempDir, Names) {
        let root = tempfile::tempdir().expect("a directory");
        let names = Names::at(root.path(), "address").expect("a directory");
        (root, names)
    }

    /// The names of a killed process are free, although it leaves the files of its sockets.
    #[test]
    fn the_names_of_killed_processes_are_free() {
        let (_root, names) = names();
        for name in [Name::Slot(0), Name::Service(7)] {
            drop(UnixDatagram::bind(names.path(name)).expect("the address is free"));
        }
        drop(
            UnixListener::bind(names.directory().join(liveness_file(0)))
                .expect("the socket can be bound"),
        );
        assert_eq!(names.taken_slots().expect("descriptors").next(), None);
        let (slot, local_socket) = names.claim_slot(SLOTS).expect("no error").expect("a slot");
        assert_eq!(slot, 0);
        drop(names.bind_liveness(0).expect("the slot is free"));
        let service = names.claim_service(7).expect("the service is free");
        assert_eq!(
            names.claim_service(7).map(drop).expect_err("a service in use must be refused").kind(),
            io::ErrorKind::AddrInUse
        );
        assert_eq!(names.claim_slot(SLOTS).expect("no error").map(|(slot, _)| slot), Some(1));
        drop(local_socket);
        assert!(!names.path(Name::Slot(0)).exists());
        assert!(names.is_taken(Name::Service(7)).expect("descriptors"));
        drop(service);
    }

    /// After chroot(2) no path leads to the directory. Here it is moved away.
    #[test]
    fn names_do_not_need_the_path_of_the_directory() {
        let (_root, names) = names();
        let moved = tempfile::tempdir().expect("a directory");
        let namespace = names.directory().parent().expect("it has a parent");
        let new_path = moved.path().join(namespace.file_name().expect("it has a name"));
        fs::rename(namespace, &new_path).expect("the directory can be moved");
        let (slot, socket) = names.claim_slot(SLOTS).expect("no error").expect("a slot");
        let life = names.bind_liveness(slot).expect("the slot is free");
        let mut closed = names.closed_service(7, slot);
        closed.link().expect("a link");
        for file in ["slot-0", "life-0", "closed-7"] {
            assert!(new_path.join("address").join(file).exists(), "{file}");
        }
        for name in [Name::Slot(0), Name::ClosedService(7)] {
            assert!(names.is_taken(name).expect("descriptors"), "{name:?}");
        }
        assert!(!names.is_taken(Name::Slot(1)).expect("descriptors"));
        assert_eq!(names.listed_slots(9).collect::<Vec<_>>(), [0]);
        drop((socket, life, closed, names));
        assert!(!new_path.exists(), "the last owner removes the directory");
    }

    #[test]
    fn the_last_adapter_removes_the_directory() {
        let root = tempfile::tempdir().expect("a directory");
        let first = Names::at(root.path(), "address").expect("the directory can be made");
        let second = Names::at(root.path(), "address").expect("the directory is found again");
        let namespace = first.directory().parent().expect("it has a parent").to_owned();
        let at = |name: &str| namespace.join(name);
        let (life, _) = (first.bind_liveness(0).expect("the slot is free"), drop(first));
        // A killed process leaves the file of its socket behind.
        drop(UnixDatagram::bind(second.path(Name::Service(8))).expect("the socket can be bound"));
        drop(second);
        assert!(at("address/life-0").exists(), "the file must exist while an adapter has it");
        let other = Names::at(root.path(), "other").expect("the directory can be made");
        drop(life);
        assert!(!at("address").exists() && namespace.exists());
        drop(other);
        assert!(!namespace.exists() && namespace.parent().is_some_and(Path::exists));
    }

    #[test]
    fn many_adapters_open_and_close_at_once() {
        let root = tempfile::tempdir().expect("a directory");
        std::thread::scope(|scope| {
            for service in 0..4 {
                let place = root.path();
                scope.spawn(move || {
                    for _ in 0..200 {
                        let names = Names::at(place, "address").expect("a directory");
                        let local_socket =
                            names.claim_service(service).expect("the service is free");
                        drop(names.claim_slot(SLOTS).expect("no error").expect("a slot is free"));
                        assert!(names.path(Name::Service(service)).exists());
                        drop(names);
                        drop(local_socket);
                    }
                });
            }
        });
        let of_user = UserDirectory::find_in(&[root.path()]).expect("there is a directory");
        assert!(!of_user.path_of("address").exists());
    }

    /// Several threads create, open and remove the same directory at the same time.
    #[test]
    fn directories_come_and_go_at_once() {
        let root = tempfile::tempdir().expect("a directory");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        drop(Names::at(root.path(), "address").expect("a directory"));
                    }
                });
            }
        });
    }

    /// A name counts as free only if the kernel reports that no process has it.
    #[test]
    fn a_name_that_cannot_be_tested_is_taken() {
        let (_root, names) = names();
        // This socket is a stream socket. If a datagram socket connects to it, the kernel returns
        // another error than for a free name.
        let _of_another_type =
            UnixListener::bind(names.path(Name::Slot(0))).expect("the socket can be bound");
        assert_eq!(names.claim_slot(SLOTS).expect("no error").map(|(slot, _)| slot), Some(1));
        assert!(names.path(Name::Slot(0)).exists());
    }

    /// systemd-tmpfiles skips a directory that it cannot lock, so a directory in use is not
    /// removed.
    #[test]
    fn a_directory_in_use_is_not_removed_as_too_old() {
        let (_root, names) = names();
        let cleaner = File::open(names.directory()).expect("the file exists");
        assert!(matches!(cleaner.try_lock(), Err(TryLockError::WouldBlock)));
    }

    #[test]
    fn paths_are_short_enough() {
        let longest: SocketAddr =
            "[fe80:1111:2222:3333:4444:5555:6666:7777%4294967295]:1".parse().expect("an address");
        let user = format!("opendat-{}", u32::MAX);
        for root in PLACES {
            let path =
                format!("{root}/{user}/{:x}/{}/service-{:x}", u32::MAX, name_of(longest), u64::MAX);
            SocketAddrUnix::new(path).expect("the path fits in a socket address");
        }
    }

    /// The reason "Read-only file system" alone would not say which file is meant. The limit of
    /// descriptors has nothing to do with a file, and is recognized by its number.
    #[test]
    fn errors_of_the_file_system_name_the_file() {
        let (_root, names) = names();
        let named = |errno| names.name_file("founding.lock", io::Error::from_raw_os_error(errno));
        for errno in [libc::EROFS, libc::EACCES, libc::ENOSPC, libc::EDQUOT] {
            let error = named(errno);
            let path = names.directory().join("founding.lock");
            assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
            assert_eq!(error.kind(), io::Error::from_raw_os_error(errno).kind());
        }
        assert_eq!(named(libc::EMFILE).raw_os_error(), Some(libc::EMFILE));
    }

    #[test]
    fn one_process_binds_at_a_time() {
        let (_root, names) = names();
        let lock = names.lock_binding().expect("the lock is free");
        assert_eq!(
            names.lock_binding().map(drop).expect_err("the lock is held").kind(),
            io::ErrorKind::TimedOut
        );
        drop(lock);
        names.lock_binding().expect("the lock is free again");
    }
}
