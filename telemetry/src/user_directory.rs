//! A directory that only this user can enter. It contains local sockets by which the processes of
//! one user find each other. Because of the directory, no other user can connect to these sockets,
//! send to them or take their names.
//!
//! The directory is `/tmp/opendat-UID`. If /tmp cannot be written to, it is `/dev/shm/opendat-UID`.
//! /run/user/UID is not used, and /dev/shm is only the second choice, because systemd-logind
//! removes a user's files there when the user logs out, although services of the same user
//! continue.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

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

/// The directory of the effective user.
#[derive(Clone, Debug)]
pub struct UserDirectory(PathBuf);

impl UserDirectory {
    /// Finds the directory, or creates it.
    ///
    /// # Errors
    ///
    /// Another user has taken its name or has rights in it, or it cannot be created.
    pub fn find() -> Result<Self, NoDirectory> {
        users_directory(&PLACES.map(Path::new)).map(UserDirectory)
    }

    /// The path of the subdirectory for the network namespace of this thread. The subdirectory need
    /// not exist.
    ///
    /// # Errors
    ///
    /// /proc does not show the namespace.
    pub fn of_network_namespace(&self) -> Result<PathBuf, NoDirectory> {
        let namespace = Path::new("/proc/thread-self/ns/net");
        let namespace =
            fs::metadata(namespace).map_err(|error| (namespace.to_owned(), error))?.ino();
        Ok(self.0.join(format!("{namespace:x}")))
    }

    /// Checks again that only this user has rights in the directory.
    ///
    /// # Errors
    ///
    /// Another user has rights in the directory, or the directory is gone.
    pub fn check(&self) -> Result<(), NoDirectory> {
        is_private(&self.0).map_err(|error| (self.0.clone(), error))
    }
}

/// Creates a directory and its parents, for this user alone. Returns `NotFound` if another process
/// has removed one of these directories during the call. The caller then tries again.
pub fn create_with_parents(directory: &Path) -> io::Result<()> {
    let made = DirBuilder::new().mode(0o700).recursive(true).create(directory);
    match made {
        // The builder found that the directory exists, but another process removed it before the
        // builder could check its type.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match fs::symlink_metadata(directory) {
                Ok(found) if !found.is_dir() => Err(error),
                _ => Err(io::ErrorKind::NotFound.into()),
            }
        }
        made => made,
    }
}

const PREFIX: &str = "opendat-";

/// The name that the directory of this user has in each of the [`PLACES`].
fn directory_name(user: u32) -> String {
    format!("{PREFIX}{user}")
}

/// Returns the user whose directory has this name.
pub fn user_of_name(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// Finds or creates the user's directory in the first of these places that can be written to. If
/// another user has created a directory of that name, this is an error: this process could use
/// another place, but processes that already use the first place would not find it there.
fn users_directory(places: &[&Path]) -> Result<PathBuf, NoDirectory> {
    let mut refused = None;
    for place in places {
        let directory = place.join(directory_name(geteuid().as_raw()));
        let made = check_sticky(place).and_then(|()| {
            match DirBuilder::new().mode(0o700).create(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                made => made,
            }
        });
        match made {
            Ok(()) => {
                return match is_private(&directory) {
                    Ok(()) => Ok(directory),
                    Err(error) => Err((directory, error)),
                };
            }
            Err(error) if cannot_be_written_to(&error) => {
                refused.get_or_insert((directory, error));
            }
            // Do not try the next place, because the error may be temporary, and other processes
            // may use this place.
            Err(error) => return Err((directory, error)),
        }
    }
    Err(refused.expect("the list of places is not empty"))
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

/// Checks that `directory` is a directory of this user in which nobody else has rights.
fn is_private(directory: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(directory)?;
    let what = if !found.is_dir() {
        "it is not a directory and must be removed".to_owned()
    } else if found.uid() != geteuid().as_raw() {
        format!("it belongs to user {} and must be removed", found.uid())
    } else if found.mode() & 0o077 != 0 {
        "other users have rights in it (chmod 700)".to_owned()
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .expect("the owner may change the mode");
    }

    #[test]
    fn only_a_private_directory_is_accepted() {
        let place = tempfile::tempdir().expect("a directory");
        let own = place.path().join(format!("opendat-{}", geteuid().as_raw()));
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
        if geteuid().is_root() {
            chown(&own, Some(65534), None).expect("root may do this");
            assert!(refusal().contains("it belongs to user 65534"));
        }
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
    }
}
