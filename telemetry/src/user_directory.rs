//! A directory that only this user can enter. It contains local sockets by which the processes of
//! one user find each other. Because of the directory, no other user can connect to these sockets,
//! send to them or take their names.
//!
//! The directory is `/tmp/opendat-UID`. If /tmp cannot be written to, it is `/dev/shm/opendat-UID`.
//! /run/user/UID is not used, and /dev/shm is only the second choice, because systemd-logind
//! removes a user's files there when the user logs out, although services of the same user
//! continue.
//!
//! Anybody can create a file of that name first. Then the directory is `opendat.RANDOM` at the same
//! place. Nobody can know that name before it exists, and afterwards only this user can remove it.
//! The processes of the user find it by its owner and its mode, also when the usual name is free
//! again. What another user has under such a name, for example a file system of his own, is
//! ignored, whatever happens when it is opened.
//!
//! Processes that start at the same moment may create several directories, because no lock at a
//! place is safe from other users. They agree on one of them as follows. A process uses a
//! directory only after it has created a subdirectory in it, or has found that subdirectory.
//! Before it creates the subdirectory, it looks for all directories of this user, prefers one that
//! is not empty, and removes all others that are empty. If it cannot remove one of these, another
//! process has just begun to use it, and this process looks again. Only an empty directory can be
//! removed, and nothing can be created in a directory that has been removed. So of two processes
//! that prefer different directories, one fails and looks again.
//!
//! The last process in a network namespace removes the subdirectory, and then the directory may be
//! removed, too. Therefore a process creates its files relative to the open directory, never by its
//! path, which would create the directory again without an agreement.

use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags, Stat, StatVfsMountFlags, fstat, fstatvfs,
    mkdirat, openat, stat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// The possible parents of the directory. Each process uses the first parent that it can write to,
/// so that all processes choose the same parent.
pub const PLACES: [&str; 2] = ["/tmp", "/dev/shm"];
/// Mode bits of a directory: others may write to it, and only the owner of a file in it may rename
/// or remove that file.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// The path of a directory that cannot be used, and the reason.
pub type NoDirectory = (PathBuf, io::Error);

/// The open directory of the effective user. Dropping the value removes the subdirectory for the
/// network namespace if it is empty.
#[derive(Debug)]
pub struct UserDirectory {
    path: PathBuf,
    opened: OwnedFd,
    /// The name of the subdirectory for the network namespace.
    namespace: String,
}

impl UserDirectory {
    /// Finds the directory, or creates it. Its files belong to the network namespace of this
    /// thread.
    ///
    /// # Errors
    ///
    /// Another user has rights in the directory, the user has a file of another kind in its place,
    /// or it cannot be created. Or /proc does not show the network namespace of this thread.
    pub fn find() -> Result<Self, NoDirectory> {
        UserDirectory::find_in(&PLACES.map(Path::new))
    }

    /// Finds or creates the directory in the first of these places that can be written to.
    ///
    /// # Errors
    ///
    /// As for [`Self::find`].
    ///
    /// # Panics
    ///
    /// If the list of places is empty.
    pub fn find_in(places: &[&Path]) -> Result<Self, NoDirectory> {
        let namespace = name_of_network_namespace()?;
        let Candidate { path, opened, .. } = users_directory(places, &namespace)?;
        Ok(UserDirectory { path, opened, namespace })
    }

    /// The path of the directory when it was found.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the directory `NETNS/NAME` in this one, where NETNS stands for the network
    /// namespace.
    #[must_use]
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(&self.namespace).join(name)
    }

    /// Opens the directory `NETNS/NAME`, and creates it if necessary. Returns `NotFound` if another
    /// process has removed this directory or a part of its path. The caller then finds the
    /// directory of the user again.
    ///
    /// # Errors
    ///
    /// The directory is gone, or cannot be created or opened.
    pub fn open(&self, name: &str) -> io::Result<File> {
        let namespace = open_or_create(&self.opened, &self.namespace, OFlags::PATH)?;
        Ok(open_or_create(&namespace, name, OFlags::RDONLY)?.into())
    }
}

impl Drop for UserDirectory {
    fn drop(&mut self) {
        unlinkat(&self.opened, &self.namespace, AtFlags::REMOVEDIR).ok();
    }
}

fn open_or_create(parent: impl AsFd, name: &str, access: OFlags) -> Result<OwnedFd, Errno> {
    match mkdirat(&parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    let flags = access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Opens the directory `NETNS/NAME` of the user, and lets `create` create files in it. `create`
/// gets the path of the directory and the open directory. If other processes, which end, remove the
/// directory meanwhile, everything is repeated.
///
/// # Errors
///
/// There is no directory, or `create` has failed.
pub fn create_files<T>(
    name: &str,
    mut create: impl FnMut(&Path, &File) -> io::Result<T>,
) -> Result<T, NoDirectory> {
    let mut attempt_count = 0;
    loop {
        let of_user = UserDirectory::find()?;
        let path = of_user.path_of(name);
        let created = of_user.open(name).and_then(|opened| {
            let created = create(&path, &opened)?;
            let is_there = leads_to(&path, id_of(&opened)?);
            is_there.then_some(created).ok_or(io::ErrorKind::NotFound.into())
        });
        attempt_count += 1;
        match created {
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && attempt_count < ATTEMPT_COUNT => {}
            created => return created.map_err(|error| (path, error)),
        }
    }
}

/// Returns whether this user has a directory of this path in which nobody else has rights.
#[must_use]
pub fn is_private_directory(path: &Path) -> bool {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| is_private(&found))
}

/// Returns whether a path leads to the directory with this device and number. If the directory was
/// removed, another user may have a directory of the same path.
#[must_use]
pub fn leads_to(path: &Path, id: (u64, u64)) -> bool {
    stat(path).is_ok_and(|found| (found.st_dev, found.st_ino) == id)
}

/// The device and the number of an open file.
///
/// # Errors
///
/// The file system fails.
pub fn id_of(opened: impl AsFd) -> io::Result<(u64, u64)> {
    let found = fstat(opened)?;
    Ok((found.st_dev, found.st_ino))
}

/// The usual name of a user's directory begins with this.
const PREFIX: &str = "opendat-";
/// The name of a user's directory begins with this if another user has taken the usual one. The
/// whole name is not longer than the longest usual name, because the paths of sockets are limited.
const RANDOM_PREFIX: &str = "opendat.";

/// How often a process looks for a directory. It looks again if another process of the user, which
/// has started at the same moment, has removed the directory that this process would use.
const ATTEMPT_COUNT: u32 = 100;

/// The name of the subdirectory for the network namespace of this thread.
fn name_of_network_namespace() -> Result<String, NoDirectory> {
    let namespace = Path::new("/proc/thread-self/ns/net");
    let found = fs::metadata(namespace).map_err(|error| (namespace.to_owned(), error))?;
    Ok(format!("{:x}", found.ino()))
}

/// The usual name that the directory of this user has in each of the [`PLACES`].
fn directory_name(user: u32) -> String {
    format!("{PREFIX}{user}")
}

/// Returns the user whose directory this is, judging by its name, or by its owner if the name does
/// not contain the user.
pub fn user_of(directory: &Path) -> Option<u32> {
    let name = directory.file_name()?.to_str()?;
    if is_random(name) {
        return fs::symlink_metadata(directory).ok().map(|found| found.uid());
    }
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// Returns whether [`create`] may have made up this name.
fn is_random(name: &str) -> bool {
    name.strip_prefix(RANDOM_PREFIX).is_some_and(|random| {
        random.len() == 10 && random.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Returns whether there is a file of this path, and this user owns it.
fn is_own(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.uid() == geteuid().as_raw())
}

/// A directory of this user in which nobody else has rights.
#[derive(Debug)]
struct Candidate {
    path: PathBuf,
    opened: OwnedFd,
    id: (u64, u64),
}

impl Candidate {
    /// Opens a directory. Returns `None` if it is not a candidate.
    ///
    /// Another user can make anything happen when this process opens his file: his own file system
    /// may be mounted there, and refuse everybody else or fail. So a failure is an error only if
    /// this process lacks descriptors or memory.
    fn open(path: PathBuf) -> io::Result<Option<Self>> {
        let none_if_foreign = |error| match error {
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Err(io::Error::from(error)),
            _ => Ok(None),
        };
        // A file of another user is not even opened, because there may be many.
        match statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if is_private(&found) => {}
            Ok(_) => return Ok(None),
            Err(error) => return none_if_foreign(error),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match openat(CWD, &path, flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(error) => return none_if_foreign(error),
        };
        match fstat(&opened) {
            Ok(found) => {
                let id = (found.st_dev, found.st_ino);
                Ok(is_private(&found).then_some(Candidate { path, opened, id }))
            }
            Err(error) => none_if_foreign(error),
        }
    }

    fn contains(&self, name: &str) -> bool {
        statat(&self.opened, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn is_empty(&self) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let is_own_link = |entry: &DirEntry| matches!(entry.file_name().to_bytes(), b"." | b"..");
        let read = || {
            let mut entries = Dir::new(openat(&self.opened, ".", flags, Mode::empty())?)?;
            Ok(entries.all(|entry| entry.is_ok_and(|entry| is_own_link(&entry))))
        };
        match read() {
            // The directory has been removed, or its content cannot be read. It counts as empty,
            // which does no harm: a directory with content cannot be removed.
            Err(Errno::NOENT | Errno::ACCESS) => Ok(true),
            read => Ok(read?),
        }
    }

    /// Checks that the directory is not on a read-only file system. The directory may have been
    /// created when the file system was not read-only.
    fn check_file_system(&self) -> io::Result<()> {
        match fstatvfs(&self.opened)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
            true => Err(Errno::ROFS.into()),
            false => Ok(()),
        }
    }
}

/// Returns whether this is a directory of this user in which nobody else has rights.
fn is_private(found: &Stat) -> bool {
    let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
    is_directory && found.st_uid == geteuid().as_raw() && found.st_mode & 0o077 == 0
}

/// Returns the candidates at a place: the one with the usual name, then the others by their names.
fn candidates(place: &Path, usual: &Path) -> io::Result<Vec<Candidate>> {
    let mut random = Vec::new();
    match fs::read_dir(place) {
        // If this user may not read `place`, no process of the user has created a directory with a
        // random name there.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        entries => {
            for entry in entries? {
                let entry = entry?;
                if entry.file_name().to_str().is_some_and(is_random) {
                    random.extend(Candidate::open(entry.path())?);
                }
            }
        }
    }
    random.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Candidate::open(usual.to_owned())?.into_iter().chain(random).collect())
}

/// Creates a directory at a place: with the usual name, or with a random name if another user has
/// taken the usual one.
fn create(place: &Path, usual: &Path) -> io::Result<()> {
    let make = |path: &Path| match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    };
    if make(usual)? || is_own(usual) {
        return Ok(());
    }
    // Nobody would find the directory in a place that this user cannot read.
    fs::read_dir(place)?;
    let random = RandomState::new().hash_one(std::process::id());
    make(&place.join(format!("{RANDOM_PREFIX}{:010x}", random & 0xff_ffff_ffff))).map(drop)
}

/// Agrees with other processes on one of these candidates. Creates a subdirectory in it, and
/// removes the others that are empty. Returns its number, or `None` if another process agreed on
/// something else in the meantime.
///
/// `earlier` are the candidates that this process saw before it looked for all `candidates`. Only
/// one of these can be chosen. If each process chose one that was created while it looked, it could
/// have overlooked an older one, which another process then chooses.
fn agree(
    earlier: &[Candidate],
    candidates: &[Candidate],
    subdirectory: &str,
) -> io::Result<Option<usize>> {
    let is_empty: Vec<bool> =
        candidates.iter().map(Candidate::is_empty).collect::<Result<_, _>>()?;
    let preferred = is_empty.iter().position(|is_empty| !is_empty).unwrap_or(0);
    let Some(chosen) = candidates.get(preferred) else { return Ok(None) };
    let is_chosen = |candidate: &Candidate| candidate.id == chosen.id;
    if !earlier.iter().any(is_chosen) {
        return Ok(None);
    }
    chosen.check_file_system()?;
    let others = candidates.iter().zip(is_empty).filter(|(other, _)| !is_chosen(other));
    for (other, _) in others.filter(|(_, is_empty)| *is_empty) {
        match fs::remove_dir(&other.path) {
            // Another process has just begun to use it.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Ok(None),
            _ => {}
        }
    }
    match mkdirat(&chosen.opened, subdirectory, Mode::RWXU) {
        // Another process has removed the chosen one.
        Err(Errno::NOENT) => Ok(None),
        // If the user has no right to write to the directory, the caller reports that when it
        // creates its files. This process must not use another directory than others do.
        Ok(()) | Err(Errno::EXIST | Errno::ACCESS) => Ok(Some(preferred)),
        Err(error) => Err(error.into()),
    }
}

/// Finds or creates the user's directory in the first of these places that can be written to.
fn users_directory(places: &[&Path], subdirectory: &str) -> Result<Candidate, NoDirectory> {
    let mut refused: Option<NoDirectory> = None;
    for place in places {
        let directory = place.join(directory_name(geteuid().as_raw()));
        let found = check_sticky(place).and_then(|()| {
            // If the user has a file of the usual name that cannot be used, the user must know.
            if let Err(error) = check_own(&directory) {
                return Ok(Err((directory.clone(), error)));
            }
            find_at(place, &directory, subdirectory).map(Ok)
        });
        match found {
            Ok(found) => return found,
            Err(error) if cannot_be_written_to(&error) => {
                refused = Some(match refused {
                    None => (directory, error),
                    // The error says that no place is left, because one is enough.
                    Some((first, why)) => {
                        let why_all = format!("{why}; nor can {}: {error}", directory.display());
                        (first, io::Error::new(why.kind(), why_all))
                    }
                });
            }
            // Do not try the next place, because the error may be temporary, and other processes
            // may use this place.
            Err(error) => return Err((directory, error)),
        }
    }
    Err(refused.expect("the list of places is not empty"))
}

/// Finds or creates the user's directory at a place, and a subdirectory in it. `usual` is its usual
/// path.
fn find_at(place: &Path, usual: &Path, subdirectory: &str) -> io::Result<Candidate> {
    for _ in 0..ATTEMPT_COUNT {
        let mut found = Vec::from_iter(Candidate::open(usual.to_owned())?);
        if !found.iter().any(|usual| usual.contains(subdirectory)) {
            found = candidates(place, usual)?;
        }
        if let Some(n) = found.iter().position(|candidate| candidate.contains(subdirectory)) {
            let in_use = found.swap_remove(n);
            return in_use.check_file_system().map(|()| in_use);
        }
        if found.is_empty() {
            create(place, usual)?;
            found = candidates(place, usual)?;
        }
        let mut all = candidates(place, usual)?;
        if let Some(n) = agree(&found, &all, subdirectory)? {
            return Ok(all.swap_remove(n));
        }
    }
    Err(io::Error::other("it is removed again and again"))
}

fn cannot_be_written_to(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), NotADirectory | NotFound | PermissionDenied | ReadOnlyFilesystem)
}

/// Checks that nobody except the owner of a directory can remove or rename what this user creates
/// in it.
fn check_sticky(place: &Path) -> io::Result<()> {
    let mode = fs::metadata(place)?.mode();
    if mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0 {
        let what = format!("{} has no sticky bit (chmod +t)", place.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

/// Checks that this user has no file of this path, except a directory in which nobody else has
/// rights.
fn check_own(directory: &Path) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(directory) else { return Ok(()) };
    let what = match () {
        () if found.uid() != geteuid().as_raw() => return Ok(()),
        () if !found.is_dir() => "it is not a directory and must be removed",
        () if found.mode() & 0o077 != 0 => "other users have rights in it (chmod 700)",
        () => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

#[cfg(test)]
mod tests;
