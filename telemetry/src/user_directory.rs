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
    /// may be mounted there, and refuse everybody else or fail. So only what this process lacks is
    /// an error.
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
            // It has been removed, or nobody can tell. If it is not empty, it cannot be removed.
            Err(Errno::NOENT | Errno::ACCESS) => Ok(true),
            read => Ok(read?),
        }
    }

    /// Checks that the directory is not on a read-only file system. It may be from a time at which
    /// the file system was not read-only.
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
        // Without the right to read the place, no process creates a directory with a random name.
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
mod tests {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::*;

    /// Returns the path of the directory, with a subdirectory in it.
    fn users_directory(places: &[&Path]) -> Result<PathBuf, NoDirectory> {
        super::users_directory(places, SUBDIRECTORY).map(|found| found.path)
    }

    const SUBDIRECTORY: &str = "4";

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .expect("the owner may change the mode");
    }

    #[test]
    fn only_a_private_directory_is_accepted() {
        let place = tempfile::tempdir().expect("a directory");
        let own = place.path().join(directory_name(geteuid().as_raw()));
        let open = || users_directory(&[place.path()]);
        let refusal = || {
            let (path, error) = open().expect_err("the directory must be refused");
            assert_eq!(
                (path.as_path(), error.kind()),
                (own.as_path(), io::ErrorKind::PermissionDenied)
            );
            error.to_string()
        };
        assert_eq!(open().expect("the directory is made"), own);
        assert_eq!(open().expect("the directory is found"), own);
        assert_eq!(fs::metadata(&own).expect("the file exists").mode() & 0o7777, 0o700);
        set_mode(&own, 0o750);
        assert!(refusal().contains("other users have rights in it"));
        set_mode(&own, 0o700);
        // A symbolic link is refused even if its target belongs to this user, because the creator
        // of the link can change it.
        fs::rename(&own, place.path().join("elsewhere")).expect("the path can be renamed");
        symlink(place.path().join("elsewhere"), &own).expect("a link");
        assert!(refusal().contains("it is not a directory"));
        fs::remove_file(&own).expect("the file can be removed");
        fs::write(&own, "").expect("the file can be written");
        assert!(refusal().contains("it is not a directory"));
        fs::remove_file(&own).expect("the file can be removed");
        // Without a sticky bit on the parent, any user could replace the directory.
        set_mode(place.path(), 0o777);
        assert!(refusal().contains("no sticky bit"));
        set_mode(place.path(), 0o1777);
        open().expect("a directory that nobody can replace is accepted");
    }

    /// Another user creates a directory, a link to one and a file in place of the directory.
    #[test]
    fn a_name_that_another_user_takes_first_keeps_nobody_out() {
        if !geteuid().is_root() {
            println!("SKIP: only root can create the files of another user");
            return;
        }
        let place = tempfile::tempdir().expect("a directory");
        let usual = place.path().join(directory_name(geteuid().as_raw()));
        let open = || users_directory(&[place.path()]).expect("there is a directory");
        let takes: [fn(&Path); 3] = [
            |path| fs::create_dir(path).expect("a directory"),
            |path| symlink("/", path).expect("a link"),
            |path| fs::write(path, "").expect("a file"),
        ];
        let foreign = place.path().join("opendat.0000000000");
        fs::create_dir(&foreign).expect("a directory");
        lchown(&foreign, Some(65534), None).expect("root may do this");
        for take in takes {
            take(&usual);
            lchown(&usual, Some(65534), None).expect("root may do this");
            let own = open();
            assert!(own != usual && own != foreign && is_private_directory(&own));
            assert_eq!(open(), own, "another process finds the same directory");
            assert_eq!(user_of(&own), Some(geteuid().as_raw()));
            fs::remove_dir(&usual).or_else(|_| fs::remove_file(&usual)).expect("a file");
            assert_eq!(open(), own, "also when the usual name is free again");
            fs::remove_dir_all(&own).expect("the directory can be removed");
            assert_eq!(open(), usual);
            fs::remove_dir_all(&usual).expect("the directory can be removed");
        }
    }

    fn make_private(path: PathBuf) -> PathBuf {
        DirBuilder::new().mode(0o700).create(&path).expect("a new directory");
        path
    }

    /// One process looks, another user removes the file with the usual name, and the process then
    /// creates the usual directory. In the meantime, another process of the user has begun to use a
    /// directory with a random name.
    #[test]
    fn a_usual_directory_beside_one_in_use_is_given_up() {
        let place = tempfile::tempdir().expect("a directory");
        let in_use = make_private(place.path().join("opendat.5555555555"));
        make_private(in_use.join("contents"));
        let usual = place.path().join(directory_name(geteuid().as_raw()));
        for name in ["opendat.0000000000", "opendat.ffffffffff"] {
            make_private(place.path().join(name));
        }
        make_private(usual.clone());
        for _ in 0..2 {
            let found = users_directory(&[place.path()]).expect("there is a directory");
            assert_eq!(found, in_use);
            let left = fs::read_dir(place.path()).expect("the place can be read").count();
            assert_eq!(left, 1, "only the directory in use is left");
        }
    }

    /// A process has looked, but has not yet begun to use what it has found. Another process
    /// prefers another directory.
    #[test]
    fn a_process_whose_choice_is_removed_looks_again() {
        let place = tempfile::tempdir().expect("a directory");
        let usual = place.path().join(directory_name(geteuid().as_raw()));
        let random = make_private(place.path().join("opendat.5555555555"));
        let seen = candidates(place.path(), &usual).expect("the place can be read");
        assert_eq!(seen.len(), 1);
        make_private(usual.clone());
        let open = || users_directory(&[place.path()]).expect("there is a directory");
        assert_eq!(open(), usual);
        assert_eq!(agree(&seen, &seen, SUBDIRECTORY).expect("no error"), None);
        // Not even a new directory of this name is used.
        make_private(random.clone());
        assert_eq!(agree(&seen, &seen, SUBDIRECTORY).expect("no error"), None);
        assert_eq!(open(), usual);
        // The first process was faster.
        fs::remove_dir_all(&usual).expect("the directory can be removed");
        let seen = candidates(place.path(), &usual).expect("the place can be read");
        let created_since = agree(&[], &seen, SUBDIRECTORY).expect("no error");
        assert_eq!(created_since, None, "an older one may have been overlooked");
        assert_eq!(agree(&seen, &seen, SUBDIRECTORY).expect("no error"), Some(0));
        make_private(usual.clone());
        assert_eq!(open(), random);
    }

    /// Another user takes the usual name and gives it up, again and again, while several processes
    /// start.
    #[test]
    fn processes_that_start_at_the_same_moment_find_one_directory() {
        use std::sync::atomic::{AtomicBool, Ordering};

        if !geteuid().is_root() {
            println!("SKIP: only root can create the files of another user");
            return;
        }
        for _ in 0..50 {
            let place = tempfile::tempdir().expect("a directory");
            let usual = place.path().join(directory_name(geteuid().as_raw()));
            set_mode(place.path(), 0o1777);
            let have_started = AtomicBool::new(false);
            let all: Vec<PathBuf> = std::thread::scope(|scope| {
                scope.spawn(|| {
                    // SAFETY: the call changes only the rights of this thread to files.
                    unsafe { libc::setfsuid(65534) };
                    while !have_started.load(Ordering::Relaxed) {
                        if fs::create_dir(&usual).is_ok() {
                            fs::remove_dir(&usual).ok();
                        }
                    }
                });
                let open = || users_directory(&[place.path()]);
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
                let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
                have_started.store(true, Ordering::Relaxed);
                let found = ended.into_iter().map(|ended| ended.expect("no panic"));
                found.map(|found| found.expect("there is a directory")).collect()
            });
            assert!(all.iter().all(|directory| *directory == all[0]), "{all:?}");
        }
    }

    /// Such directories belong to other programs.
    #[test]
    fn other_names_are_not_taken_for_random_ones() {
        let place = tempfile::tempdir().expect("a directory");
        let usual = place.path().join(directory_name(geteuid().as_raw()));
        for name in [
            "opendat.build.a1b2c3",
            "opendat.ABCDEF0123",
            "opendat.000000000",
            "opendat.00000000000",
        ] {
            let other = make_private(place.path().join(name));
            assert_eq!(user_of(&other), None);
        }
        let found = users_directory(&[place.path()]).expect("the directory is made");
        assert_eq!(found, usual);
        let left = fs::read_dir(place.path()).expect("the place can be read").count();
        assert_eq!(left, 5);
    }

    /// The directory was removed after it had been found, and another user has taken its name.
    #[test]
    fn a_directory_that_is_removed_is_not_created_again_by_its_path() {
        let place = tempfile::tempdir().expect("a directory");
        let find = || UserDirectory::find_in(&[place.path()]).expect("there is a directory");
        let first = find();
        let own = first.path().to_owned();
        fs::remove_dir_all(&own).expect("the directory can be removed");
        let is_gone = |found: &UserDirectory| {
            let opened = found.open("sockets");
            assert_eq!(opened.expect_err("it is gone").kind(), io::ErrorKind::NotFound);
        };
        is_gone(&first);
        assert!(!own.exists());
        // Another directory of the same path is another directory.
        let second = find();
        is_gone(&first);
        let opened = second.open("sockets").expect("the new directory is there");
        let id = id_of(&opened).expect("the directory is open");
        assert!(leads_to(&second.path_of("sockets"), id));
        fs::rename(&own, place.path().join("elsewhere")).expect("the path can be renamed");
        make_private(own.clone());
        fs::create_dir_all(second.path_of("sockets")).expect("a directory");
        assert!(!leads_to(&second.path_of("sockets"), id));
    }

    #[test]
    fn the_last_one_removes_the_subdirectory_of_the_namespace() {
        let place = tempfile::tempdir().expect("a directory");
        let found = UserDirectory::find_in(&[place.path()]).expect("there is a directory");
        let subdirectory = found.path_of("sockets");
        let namespace = subdirectory.parent().expect("it has a parent").to_owned();
        assert!(namespace.exists());
        found.open("sockets").expect("a directory");
        drop(found);
        assert!(subdirectory.exists(), "it is in use");
        fs::remove_dir(&subdirectory).expect("it is empty");
        drop(UserDirectory::find_in(&[place.path()]).expect("there is a directory"));
        assert!(!namespace.exists());
    }

    /// A directory was empty when this process looked. Before this process removes it, another one
    /// begins to use it: here another directory, which is in use, takes its name.
    #[test]
    fn a_directory_that_another_process_begins_to_use_is_not_passed_over() {
        let place = tempfile::tempdir().expect("a directory");
        let usual = place.path().join(directory_name(geteuid().as_raw()));
        make_private(make_private(usual.clone()).join("contents"));
        let random = make_private(place.path().join("opendat.5555555555"));
        let seen = candidates(place.path(), &usual).expect("the place can be read");
        fs::rename(&random, place.path().join("elsewhere")).expect("the path can be renamed");
        make_private(make_private(random).join("contents"));
        assert_eq!(agree(&seen, &seen, SUBDIRECTORY).expect("no error"), None);
        // Directories that were in use before are left alone.
        let seen = candidates(place.path(), &usual).expect("the place can be read");
        assert_eq!(agree(&seen, &seen, SUBDIRECTORY).expect("no error"), Some(0));
    }

    /// The variable that names the place in a process that [`in_mount_namespace`] starts.
    const IN_PLACE: &str = "OPENDAT_TEST_PLACE";

    /// Runs a test again as another process, in a mount namespace of its own, after a shell has
    /// executed `mounts`. `$1` is the place.
    fn in_mount_namespace(test: &str, place: &Path, mounts: &str) {
        let ran = std::process::Command::new("unshare")
            .args(["--mount", "--", "sh", "-ec"])
            .arg(format!("{mounts}\nexec \"$2\" --exact user_directory::tests::{test}"))
            .arg("sh")
            .arg(place)
            .arg(std::env::current_exe().expect("this program"))
            .env(IN_PLACE, place)
            .output()
            .expect("util-linux is installed");
        let output = String::from_utf8_lossy(&ran.stdout);
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && output.contains("1 passed"), "{output}{errors}");
    }

    #[test]
    fn a_read_only_directory() {
        if let Some(place) = std::env::var_os(IN_PLACE) {
            // SAFETY: the call changes only the user of this thread.
            unsafe { libc::syscall(libc::SYS_setresuid, 65534, 0, 0) };
            let [first, second] = ["first", "second"].map(|name| Path::new(&place).join(name));
            let directory = users_directory(&[&first, &second]).expect("the second is suitable");
            assert_eq!(directory.parent(), Some(&*second));
            let (path, error) = users_directory(&[&first]).expect_err("no other place");
            assert_eq!(
                (path.parent(), error.kind()),
                (Some(&*first), io::ErrorKind::ReadOnlyFilesystem)
            );
            // Another user has made a link to a read-only file system, which says nothing about the
            // place.
            let linked = Path::new(&place).join("linked");
            let link = linked.join(directory_name(geteuid().as_raw()));
            symlink(&first, &link).expect("a link");
            lchown(&link, Some(65534), None).expect("root may do this");
            let directory = users_directory(&[&linked]).expect("the place is suitable");
            assert_eq!(directory.parent(), Some(&*linked));
            return;
        }
        if !geteuid().is_root() {
            println!("SKIP: only root can mount a file system");
            return;
        }
        let place = tempfile::tempdir().expect("a directory");
        for name in ["first", "second", "linked"] {
            fs::create_dir(place.path().join(name)).expect("a directory");
        }
        let made = users_directory(&[&place.path().join("first")]).expect("the place is suitable");
        assert!(made.is_dir());
        let mounts = "mount --bind \"$1/first\" \"$1/first\"
                      mount -o remount,bind,ro \"$1/first\"";
        in_mount_namespace("a_read_only_directory", place.path(), mounts);
    }

    /// Other users have mounted file systems of their own where the directory may be. Some of these
    /// file systems let nobody else in, and one has lost its process.
    #[test]
    fn file_systems_of_other_users_keep_nobody_out() {
        let usual_name = directory_name(geteuid().as_raw());
        let names = [usual_name.as_str(), "opendat.0123456789", "opendat.9876543210"];
        if let Some(place) = std::env::var_os(IN_PLACE) {
            let place = Path::new(&place);
            let [usual, refusing, broken] = names.map(|name| place.join(name));
            for (foreign, expected) in [(&refusing, libc::EACCES), (&broken, libc::ENOTCONN)] {
                let error = fs::symlink_metadata(foreign).expect_err("the kernel refuses");
                assert_eq!(error.raw_os_error(), Some(expected));
            }
            let found = users_directory(&[place]).expect("the place is suitable");
            assert!(
                !names.map(|name| place.join(name)).contains(&found)
                    && is_private_directory(&found)
            );
            assert_eq!(users_directory(&[place]).expect("the same one"), found);
            assert!(Candidate::open(usual).expect("no error").is_none());
            return;
        }
        if !geteuid().is_root() || File::open("/dev/fuse").is_err() {
            println!("SKIP: only root can mount another user's file system, and needs /dev/fuse");
            return;
        }
        let place = tempfile::tempdir().expect("a directory");
        for name in names {
            let foreign = place.path().join(name);
            fs::create_dir(&foreign).expect("a directory");
            lchown(&foreign, Some(65534), None).expect("root may do this");
        }
        let mounts = format!(
            "mount_of() {{
                 exec 3<>/dev/fuse
                 mount -i -t fuse -o \"fd=3,rootmode=40000,user_id=$1,group_id=$1\" none \"$2\"
             }}
             mount_of 0 \"$1/opendat.9876543210\"
             mount_of 65534 \"$1/opendat.0123456789\"
             mount_of 65534 \"$1/{usual_name}\""
        );
        in_mount_namespace("file_systems_of_other_users_keep_nobody_out", place.path(), &mounts);
    }

    #[test]
    fn the_next_place_is_used_if_one_does_not_exist() {
        let place = tempfile::tempdir().expect("a directory");
        let missing = place.path().join("missing");
        let directory =
            users_directory(&[&missing, place.path()]).expect("the second place is suitable");
        assert_eq!(directory.parent(), Some(place.path()));
        let (path, error) =
            users_directory(&[&missing, &missing]).expect_err("no directory may be found");
        assert!(path.starts_with(&missing));
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains(&format!("; nor can {}", missing.display())), "{error}");
    }
}
