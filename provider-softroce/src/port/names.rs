//! The names by which the adapters of one address find each other: local sockets in a directory
//! that only their user can enter ([`UserDirectory`]). The kernel keeps other users from connecting
//! to these sockets, from sending to them and from taking their names.
//!
//! The directory is `/tmp/opendat-UID/NETNS/v3-ADDRESS`. Adapters of earlier versions of OpenDAT,
//! whose slots or messages differ, use another directory, so that they find the port taken. Each
//! network namespace has its own ports and therefore its own directories. systemd-tmpfiles removes
//! old files from /tmp, but skips directories that a process has locked. Therefore each adapter
//! holds a shared lock on its directory. An adapter that ends tries to lock the directory
//! exclusively. This succeeds only for the last adapter, which then removes the directory.
//!
//! The file of a socket outlives a process that is killed. The kernel then refuses connections to
//! that socket, and the next process that wants the name removes the file. While this process
//! checks and removes the file, it holds a lock. Without the lock it could remove the file of
//! another process that has just taken the name.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use telemetry::user_directory::{NoDirectory, UserDirectory, create_with_parents};

use super::local_socket::LocalSocket;
use super::{SLOTS, Slot};

/// The time to wait for a lock that other processes hold only for a moment.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest path of a local socket, with its NUL.
const SOCKET_PATH_MAX_BYTES: usize = 108;

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
    Slot(Slot),
    /// The adapter that listens for this service.
    Service(u64),
    /// The adapter that last listened for this service and still has requests for it.
    ClosedService(u64),
}

/// The names of one address. The directory exists as long as this value or a [`SocketFile`] does.
#[derive(Clone)]
pub(super) struct Names(Arc<Directory>);

struct Directory {
    path: PathBuf,
    /// The open directory, with a shared lock.
    lock: File,
}

impl Drop for Directory {
    /// The last owner removes the directory. A process that opens the directory at the same time
    /// waits for the lock, then sees that the directory no longer exists, and creates a new
    /// directory.
    fn drop(&mut self) {
        if self.lock.try_lock().is_ok() {
            fs::remove_dir_all(&self.path).ok();
            // Removing the parent succeeds only with the last directory of the network namespace.
            self.path.parent().map(fs::remove_dir);
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
    path: PathBuf,
    _directory: Arc<Directory>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
    }
}

/// The name of a service that no longer has a listener ([`Name::ClosedService`]): a link to the
/// local socket of the adapter that has the requests. It is prepared when the listener is created,
/// so that closing a listener needs no memory.
///
/// If another adapter starts to listen for the same service, the repetitions of these requests go
/// to that adapter, which takes them for new requests.
pub(crate) struct ClosedService {
    path: PathBuf,
    socket: PathBuf,
    was_linked: bool,
    _directory: Arc<Directory>,
}

impl ClosedService {
    /// Makes the name lead to this adapter. The name may lead to another adapter that closed its
    /// listener for the same service earlier. The new link replaces that link.
    pub(crate) fn link(&mut self) -> io::Result<()> {
        self.was_linked = true;
        match symlink(&self.socket, &self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                remove_if_there(&self.path)?;
                symlink(&self.socket, &self.path)
            }
            linked => linked,
        }
    }

    /// Whether the link exists and leads to this adapter.
    fn is_linked(&self) -> bool {
        let mut target = [MaybeUninit::uninit(); SOCKET_PATH_MAX_BYTES];
        rustix::fs::readlinkat_raw(rustix::fs::CWD, &self.path, &mut target)
            .is_ok_and(|(target, _)| *target == *self.socket.as_os_str().as_bytes())
    }
}

impl Drop for ClosedService {
    fn drop(&mut self) {
        if self.was_linked && self.is_linked() {
            fs::remove_file(&self.path).ok();
        }
    }
}

impl Names {
    /// Opens the directory of an address and creates it if necessary.
    pub(super) fn new(address: SocketAddr) -> Result<Self, NoDirectory> {
        let of_user = UserDirectory::find()?;
        let directory = of_user.of_network_namespace()?.join(name_of(address));
        let names = Names::at(directory.clone()).map_err(|error| (directory, error))?;
        // Another process may have removed the user's directory in the meantime, and another user
        // may have created it again.
        of_user.check()?;
        Ok(names)
    }

    pub(super) fn at(path: PathBuf) -> io::Result<Self> {
        let lock = retry_until_timeout(|| {
            create_with_parents(&path)?;
            let lock = File::open(&path)?;
            lock.try_lock_shared()?;
            let is_there = fs::metadata(&path)?.ino() == lock.metadata()?.ino();
            is_there.then_some(lock).ok_or(io::ErrorKind::NotFound.into())
        })?;
        Ok(Names(Arc::new(Directory { path, lock })))
    }

    #[cfg(test)]
    pub(super) fn directory(&self) -> &Path {
        &self.0.path
    }

    fn path(&self, name: Name) -> PathBuf {
        self.0.path.join(match name {
            Name::Slot(slot) => format!("slot-{slot}"),
            Name::Service(service) => format!("service-{service:x}"),
            Name::ClosedService(service) => format!("closed-{service:x}"),
        })
    }

    /// The services for which the directory has a socket file.
    fn services(&self) -> HashSet<u64> {
        self.numbers("service-", 16).collect()
    }

    /// The numbers that follow `prefix` in the names of files.
    fn numbers<N: TryFrom<u64>>(&self, prefix: &str, radix: u32) -> impl Iterator<Item = N> {
        let files = fs::read_dir(&self.0.path).into_iter().flatten().flatten();
        files.filter_map(move |file| {
            let number = file.file_name().to_str()?.strip_prefix(prefix)?.to_owned();
            N::try_from(u64::from_str_radix(&number, radix).ok()?).ok()
        })
    }

    /// The socket address of a name.
    pub(super) fn address(&self, name: Name) -> io::Result<SocketAddrUnix> {
        Ok(SocketAddrUnix::new(self.path(name))?)
    }

    /// Whether a process has the socket of this name.
    pub(super) fn is_taken(&self, name: Name) -> io::Result<bool> {
        Ok(self.is_taken_with(&UnixDatagram::unbound()?, name))
    }

    /// The slots that are taken. The iterator checks each slot only when it reaches that slot.
    pub(super) fn taken_slots(&self) -> io::Result<impl Iterator<Item = Slot>> {
        let probe = UnixDatagram::unbound()?;
        Ok(SLOTS.filter(move |&slot| self.is_taken_with(&probe, Name::Slot(slot))))
    }

    /// The slots for which the directory has a socket file, except one, the highest first. Their
    /// processes may have been killed.
    pub(super) fn listed_slots(&self, except: Slot) -> impl Iterator<Item = Slot> + use<> {
        let mut slots: Vec<Slot> = self.numbers("slot-", 10).filter(|&n| n != except).collect();
        slots.sort_unstable();
        slots.into_iter().rev()
    }

    /// Whether a process has the socket of this name. The test connects `probe` to the socket.
    /// Connecting a datagram socket does not involve the other process. The name is free only if
    /// the error means that no process has it. A name that cannot be tested counts as taken.
    fn is_taken_with(&self, probe: &UnixDatagram, name: Name) -> bool {
        probe.connect(self.path(name)).err().is_none_or(|error| !means_no_owner(&error))
    }

    /// Takes the first free slot.
    pub(super) fn claim_slot(&self) -> io::Result<Option<(Slot, LocalSocket)>> {
        let _lock = self.lock()?;
        let probe = UnixDatagram::unbound()?;
        let slot = SLOTS.into_iter().find(|&slot| !self.is_taken_with(&probe, Name::Slot(slot)));
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
    pub(super) fn closed_service(&self, service: u64, slot: Slot) -> ClosedService {
        let (path, socket) = (self.path(Name::ClosedService(service)), self.path(Name::Slot(slot)));
        ClosedService { path, socket, was_linked: false, _directory: Arc::clone(&self.0) }
    }

    /// Takes a free name. The caller must hold the lock.
    fn bind(&self, name: Name) -> io::Result<LocalSocket> {
        let path = self.path(name);
        remove_if_there(&path)?;
        LocalSocket::new(UnixDatagram::bind(&path)?, self.file(path))
    }

    /// Binds the liveness socket of a slot. Only the owner of the slot calls this, so no other
    /// process has the name.
    pub(super) fn bind_liveness(&self, slot: Slot) -> io::Result<(UnixListener, SocketFile)> {
        let path = liveness_path(&self.0.path, slot);
        remove_if_there(&path)?;
        Ok((UnixListener::bind(&path)?, self.file(path)))
    }

    fn file(&self, path: PathBuf) -> SocketFile {
        SocketFile { path, _directory: Arc::clone(&self.0) }
    }

    /// Connects to the liveness socket of the adapter that has this slot at this address. The
    /// address may be any address of this host. The adapter need not accept the connection. Returns
    /// `ConnectionRefused` if no adapter of this user has the slot. Does not block: returns
    /// `WouldBlock` if the kernel's queue of connections is full.
    pub(super) fn connect_liveness(
        &self,
        address: SocketAddr,
        slot: Slot,
    ) -> io::Result<UnixStream> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let path = liveness_path(&self.0.path.with_file_name(name_of(address)), slot);
        match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?).map_err(io::Error::from) {
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

    fn lock_file(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        options.open(self.0.path.join(name))
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

fn liveness_path(directory: &Path, slot: Slot) -> PathBuf {
    directory.join(format!("life-{slot}"))
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

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether an error means that no process has a socket: its file does not exist, or the kernel
/// refuses connections to it.
pub(super) fn means_no_owner(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use std::fs::TryLockError;

    use telemetry::user_directory::PLACES;

    use super::*;

    fn names() -> (tempfile::TempDir, Names) {
        let root = tempfile::tempdir().expect("a directory");
        let names = Names::at(root.path().join("4").join("address")).expect("a directory");
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
            UnixListener::bind(liveness_path(names.directory(), 0))
                .expect("the socket can be bound"),
        );
        assert_eq!(names.taken_slots().expect("descriptors").next(), None);
        let (slot, local_socket) = names.claim_slot().expect("no error").expect("a slot");
        assert_eq!(slot, 0);
        drop(names.bind_liveness(0).expect("the slot is free"));
        let service = names.claim_service(7).expect("the service is free");
        assert_eq!(
            names.claim_service(7).map(drop).expect_err("a service in use must be refused").kind(),
            io::ErrorKind::AddrInUse
        );
        assert_eq!(names.claim_slot().expect("no error").map(|(slot, _)| slot), Some(1));
        drop(local_socket);
        assert!(!names.path(Name::Slot(0)).exists());
        assert!(names.is_taken(Name::Service(7)).expect("descriptors"));
        drop(service);
    }

    #[test]
    fn the_last_adapter_removes_the_directory() {
        let root = tempfile::tempdir().expect("a directory");
        let (namespace, at) =
            (root.path().join("4"), |name: &str| root.path().join("4").join(name));
        let (first, second) = (
            Names::at(at("address")).expect("the directory can be made"),
            Names::at(at("address")).expect("the directory is found again"),
        );
        let (life, _) = (first.bind_liveness(0).expect("the slot is free"), drop(first));
        // A killed process leaves the file of its socket behind.
        drop(UnixDatagram::bind(second.path(Name::Service(8))).expect("the socket can be bound"));
        drop(second);
        assert!(at("address/life-0").exists(), "the file must exist while an adapter has it");
        let other = Names::at(at("other")).expect("the directory can be made");
        drop(life);
        assert!(!at("address").exists() && namespace.exists());
        drop(other);
        assert!(!namespace.exists() && root.path().exists());
    }

    #[test]
    fn many_adapters_open_and_close_at_once() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("4").join("address");
        std::thread::scope(|scope| {
            for service in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let names = Names::at(path.clone()).expect("a directory");
                        let local_socket =
                            names.claim_service(service).expect("the service is free");
                        drop(names.claim_slot().expect("no error").expect("a slot is free"));
                        assert!(names.path(Name::Service(service)).exists());
                        drop(names);
                        drop(local_socket);
                    }
                });
            }
        });
        assert!(!path.exists());
    }

    /// Several threads create, open and remove the same directory at the same time.
    #[test]
    fn directories_come_and_go_at_once() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("4").join("address");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        drop(Names::at(path.clone()).expect("a directory"));
                    }
                });
            }
        });
    }

    /// A name counts as free only if the kernel reports that no process has it.
    #[test]
    fn a_name_that_cannot_be_tested_is_taken() {
        let (_root, names) = names();
        // This socket is a stream socket. The kernel refuses to connect a datagram socket to it,
        // but with an error that does not say that the name is free.
        let _of_another_type =
            UnixListener::bind(names.path(Name::Slot(0))).expect("the socket can be bound");
        assert_eq!(names.claim_slot().expect("no error").map(|(slot, _)| slot), Some(1));
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
