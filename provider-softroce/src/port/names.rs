//! Where the adapters of one address find each other: local sockets in a directory that only their user can
//! enter ([`UserDirectory`]). The kernel keeps every other user from connecting to them, from sending to
//! them and from taking their names.
//!
//! The directory is `/tmp/opendat-UID/NETNS/ADDRESS`. Each network namespace has its own ports, and so its
//! own directories. systemd-tmpfiles removes old files from /tmp, but enters no directory that somebody has
//! locked: each adapter holds a shared lock on its directory. By these locks the last adapter knows that it
//! is the last one, and removes the directory.
//!
//! A socket's file outlives a process that is killed. Nobody answers behind it then: the kernel refuses who
//! connects, and who wants the name removes the file. That takes a lock, so that nobody removes the file of
//! one who has just taken the name.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_core::user_directory::{NoDirectory, UserDirectory};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::SLOTS;
use super::mail::Mailbox;

/// How long to wait for a lock that others hold for a moment only.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// A list of services is used for so long.
const SERVICES_AGE: Duration = Duration::from_millis(100);

/// The services that adapters of this address listen for, as of the last look at the directory.
#[derive(Default)]
pub(super) struct Services {
    known: HashSet<u64>,
    /// The time of the last look.
    read: Option<Instant>,
}

impl Services {
    /// Whether an adapter listened for the service at the last look, at most `SERVICES_AGE` ago.
    pub(super) fn has(&mut self, names: &Names, service: u64, now: Instant) -> bool {
        if self.read.is_none_or(|read| now >= read + SERVICES_AGE) {
            (self.known, self.read) = (names.services(), Some(now));
        }
        self.known.contains(&service)
    }

    /// No adapter listens for the service any more.
    pub(super) fn remove(&mut self, service: u64) {
        self.known.remove(&service);
    }
}

/// Where letters go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// The adapter that has this slot.
    Slot(u8),
    /// The adapter that listens for this service.
    Service(u64),
}

/// The names of one address. Whoever has this, or a socket's file, keeps the directory.
#[derive(Clone)]
pub(super) struct Names(Arc<Directory>);

struct Directory {
    path: PathBuf,
    /// Holds a shared lock.
    lock: File,
}

impl Drop for Directory {
    /// The last one removes it. Whoever comes meanwhile waits for the lock, then sees that the directory has
    /// gone, and makes a new one.
    fn drop(&mut self) {
        if self.lock.try_lock().is_ok() {
            fs::remove_dir_all(&self.path).ok();
            // If that was the last one of the network namespace.
            self.path.parent().map(fs::remove_dir);
        }
    }
}

/// While this exists, nobody else binds sockets to the port.
pub(super) struct Founding(#[expect(dead_code, reason = "the lock goes with it")] File);

/// The file of a local socket. Its owner drops it before the socket, so that it never removes the file of the
/// next owner.
pub(super) struct SocketFile {
    path: PathBuf,
    _directory: Arc<Directory>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
    }
}

impl Names {
    /// Makes the directory of an address, or finds it.
    pub(super) fn new(address: SocketAddr) -> Result<Self, NoDirectory> {
        let of_user = UserDirectory::find()?;
        let directory = of_user.of_network_namespace()?.join(name_of(address));
        let names = Names::at(directory.clone()).map_err(|error| (directory, error))?;
        // Somebody may have removed it meanwhile, and another user may have made it.
        of_user.check()?;
        Ok(names)
    }

    pub(super) fn at(path: PathBuf) -> io::Result<Self> {
        let lock = with_patience(|| {
            DirBuilder::new().mode(0o700).recursive(true).create(&path)?;
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
        })
    }

    /// The services for which the directory has a socket file.
    fn services(&self) -> HashSet<u64> {
        let files = fs::read_dir(&self.0.path).into_iter().flatten().flatten();
        files
            .filter_map(|file| {
                let name = file.file_name();
                u64::from_str_radix(name.to_str()?.strip_prefix("service-")?, 16).ok()
            })
            .collect()
    }

    /// The address of a mailbox.
    pub(super) fn address(&self, name: Name) -> io::Result<SocketAddrUnix> {
        Ok(SocketAddrUnix::new(self.path(name))?)
    }

    /// Whether somebody has a mailbox of this name.
    pub(super) fn is_alive(&self, name: Name) -> io::Result<bool> {
        Ok(self.lives(&UnixDatagram::unbound()?, name))
    }

    /// The slots that somebody has, as they are when the iterator looks at them.
    pub(super) fn alive(&self) -> io::Result<impl Iterator<Item = u8>> {
        let probe = UnixDatagram::unbound()?;
        Ok(SLOTS.filter(move |&slot| self.lives(&probe, Name::Slot(slot))))
    }

    /// The same, with a socket to try it with. Connecting a datagram socket asks nothing of the other side.
    /// Only a refusal means that there is nobody: a name that cannot be tried may be somebody's.
    fn lives(&self, probe: &UnixDatagram, name: Name) -> bool {
        probe.connect(self.path(name)).err().is_none_or(|error| !is_nobody(&error))
    }

    /// Takes the first free slot.
    pub(super) fn claim_slot(&self) -> io::Result<Option<(u8, Mailbox)>> {
        let _lock = self.lock()?;
        let probe = UnixDatagram::unbound()?;
        let slot = SLOTS.into_iter().find(|&slot| !self.lives(&probe, Name::Slot(slot)));
        slot.map(|slot| Ok((slot, self.bind(Name::Slot(slot))?))).transpose()
    }

    /// Listens for a service. `AddrInUse`: somebody does.
    pub(super) fn claim_service(&self, service: u64) -> io::Result<Mailbox> {
        let (_lock, name) = (self.lock()?, Name::Service(service));
        if self.is_alive(name)? {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        self.bind(name)
    }

    /// Takes a name that nobody has, under the lock.
    fn bind(&self, name: Name) -> io::Result<Mailbox> {
        let path = self.path(name);
        remove_if_there(&path)?;
        Mailbox::new(UnixDatagram::bind(&path)?, self.file(path))
    }

    /// The socket by which peers see that the owner of a slot lives. The owner calls this, so there is no other owner.
    pub(super) fn bind_life(&self, slot: u8) -> io::Result<(UnixListener, SocketFile)> {
        let path = life(&self.0.path, slot);
        remove_if_there(&path)?;
        Ok((UnixListener::bind(&path)?, self.file(path)))
    }

    fn file(&self, path: PathBuf) -> SocketFile {
        SocketFile { path, _directory: Arc::clone(&self.0) }
    }

    /// Connects to the owner of a slot of any address, whether it looks or not. `ConnectionRefused`: this
    /// user has no such adapter on this host. Does not wait: `WouldBlock` where as many have come as the
    /// kernel keeps for it.
    pub(super) fn visit(&self, address: SocketAddr, slot: u8) -> io::Result<UnixStream> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let path = life(&self.0.path.with_file_name(name_of(address)), slot);
        match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?).map_err(io::Error::from) {
            Ok(()) => Ok(socket.into()),
            Err(error) if is_nobody(&error) => Err(io::ErrorKind::ConnectionRefused.into()),
            Err(error) => Err(error),
        }
    }

    /// `TimedOut`: somebody else founds.
    pub(super) fn found(&self) -> io::Result<Founding> {
        let lock = self.lock_file("founding.lock")?;
        lock.try_lock().map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        Ok(Founding(lock))
    }

    /// Whoever takes a name holds this lock.
    fn lock(&self) -> io::Result<File> {
        let lock = self.lock_file("names.lock")?;
        with_patience(|| Ok(lock.try_lock()?))?;
        Ok(lock)
    }

    fn lock_file(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        options.open(self.0.path.join(name))
    }
}

/// The name of an address's directory. The path of a local socket has 107 octets at most. The longest path
/// here, with the directory in /dev/shm, has 104.
fn name_of(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(v4) => v4.ip().to_string(),
        SocketAddr::V6(v6) => format!("{:032x}-{:x}", u128::from(*v6.ip()), v6.scope_id()),
    }
}

fn life(directory: &Path, slot: u8) -> PathBuf {
    directory.join(format!("life-{slot}"))
}

/// Tries again what others are in the way of for a moment. `TimedOut`: they still are.
fn with_patience<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotFound) => {}
            result => return result,
        }
        if start.elapsed() >= LOCK_PATIENCE {
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

/// There is no such socket, or nobody has it any more.
pub(super) fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use std::fs::TryLockError;

    use dat_core::user_directory::PLACES;

    use super::*;

    fn names() -> (tempfile::TempDir, Names) {
        let place = tempfile::tempdir().expect("a directory");
        let names = Names::at(place.path().join("4").join("address")).expect("a directory");
        (place, names)
    }

    /// What a process leaves that is killed: files, and nobody behind them.
    #[test]
    fn the_names_of_the_dead_are_free() {
        let (_place, names) = names();
        for name in [Name::Slot(0), Name::Service(7)] {
            drop(UnixDatagram::bind(names.path(name)).expect("bound"));
        }
        drop(UnixListener::bind(life(names.directory(), 0)).expect("bound"));
        assert_eq!(names.alive().expect("descriptors").next(), None);
        let (slot, mailbox) = names.claim_slot().expect("no error").expect("a slot");
        assert_eq!(slot, 0);
        drop(names.bind_life(0).expect("free"));
        let service = names.claim_service(7).expect("free");
        assert_eq!(
            names.claim_service(7).map(drop).expect_err("taken").kind(),
            io::ErrorKind::AddrInUse
        );
        assert_eq!(names.claim_slot().expect("no error").map(|(slot, _)| slot), Some(1));
        drop(mailbox);
        assert!(!names.path(Name::Slot(0)).exists());
        assert!(names.is_alive(Name::Service(7)).expect("descriptors"));
        drop(service);
    }

    #[test]
    fn the_last_one_removes_the_directory() {
        let place = tempfile::tempdir().expect("a directory");
        let (namespace, at) =
            (place.path().join("4"), |name: &str| place.path().join("4").join(name));
        let (first, second) =
            (Names::at(at("address")).expect("made"), Names::at(at("address")).expect("found"));
        let (life, _) = (first.bind_life(0).expect("free"), drop(first));
        // What a process leaves that is killed.
        drop(UnixDatagram::bind(second.path(Name::Service(8))).expect("bound"));
        drop(second);
        assert!(at("address/life-0").exists(), "somebody has the file");
        let other = Names::at(at("other")).expect("made");
        drop(life);
        assert!(!at("address").exists() && namespace.exists());
        drop(other);
        assert!(!namespace.exists() && place.path().exists());
    }

    #[test]
    fn many_come_and_go_at_once() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("4").join("address");
        std::thread::scope(|scope| {
            for service in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let names = Names::at(path.clone()).expect("a directory");
                        let mailbox = names.claim_service(service).expect("free");
                        drop(names.claim_slot().expect("no error").expect("free"));
                        assert!(names.path(Name::Service(service)).exists());
                        drop(names);
                        drop(mailbox);
                    }
                });
            }
        });
        assert!(!path.exists());
    }

    /// Only the kernel's word that nobody has a name frees it.
    #[test]
    fn a_name_that_cannot_be_tried_is_somebodys() {
        let (_place, names) = names();
        // The kernel refuses to connect a datagram socket to it, with another error.
        let _of_another_type = UnixListener::bind(names.path(Name::Slot(0))).expect("bound");
        assert_eq!(names.claim_slot().expect("no error").map(|(slot, _)| slot), Some(1));
        assert!(names.path(Name::Slot(0)).exists());
    }

    /// systemd-tmpfiles enters no directory whose lock it does not get.
    #[test]
    fn a_directory_in_use_is_not_removed_as_too_old() {
        let (_place, names) = names();
        let cleaner = File::open(names.directory()).expect("it is there");
        assert!(matches!(cleaner.try_lock(), Err(TryLockError::WouldBlock)));
    }

    #[test]
    fn names_are_short_enough() {
        let longest: SocketAddr =
            "[fe80:1111:2222:3333:4444:5555:6666:7777%4294967295]:1".parse().expect("an address");
        let user = format!("opendat-{}", u32::MAX);
        for place in PLACES {
            let path = format!(
                "{place}/{user}/{:x}/{}/service-{:x}",
                u32::MAX,
                name_of(longest),
                u64::MAX
            );
            SocketAddrUnix::new(path).expect("it fits");
        }
    }

    #[test]
    fn one_founds_at_a_time() {
        let (_place, names) = names();
        let founding = names.found().expect("nobody does");
        assert_eq!(
            names.found().map(drop).expect_err("somebody does").kind(),
            io::ErrorKind::TimedOut
        );
        drop(founding);
        names.found().expect("nobody does any more");
    }
}
