//! A directory that only this user can enter, for local sockets by which processes of one user find each
//! other. The kernel keeps every other user from connecting to them, from sending to them and from taking
//! their names.
//!
//! It is `/tmp/opendat-UID`, or in /dev/shm where /tmp cannot be written to. /dev/shm is not the first
//! choice, and /run/user/UID is none, because systemd-logind removes what a user has there when the user logs
//! out, while services of the same user go on.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Places for it. The first one that can be written to counts, so that all processes choose the same one.
pub const PLACES: [&str; 2] = ["/tmp", "/dev/shm"];
/// Bits of a directory's mode: others may write to it, and only the owner of a file in it may rename or
/// remove that file.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Why there is no directory: which one it is about, and what is wrong with it.
pub type NoDirectory = (PathBuf, io::Error);

/// The directory of the effective user.
#[derive(Clone, Debug)]
pub struct UserDirectory(PathBuf);

impl UserDirectory {
    /// Makes it, or finds it.
    ///
    /// # Errors
    ///
    /// Another user has taken its name or has rights in it, or it cannot be made.
    pub fn find() -> Result<Self, NoDirectory> {
        users_directory(&PLACES.map(Path::new)).map(UserDirectory)
    }

    /// The name of its part for the network namespace of this thread. The part need not exist.
    ///
    /// # Errors
    ///
    /// /proc does not tell the namespace.
    pub fn of_network_namespace(&self) -> Result<PathBuf, NoDirectory> {
        let namespace = Path::new("/proc/thread-self/ns/net");
        let namespace =
            fs::metadata(namespace).map_err(|error| (namespace.to_owned(), error))?.ino();
        Ok(self.0.join(format!("{namespace:x}")))
    }

    /// Looks again whether it is this user's alone.
    ///
    /// # Errors
    ///
    /// It is not.
    pub fn check(&self) -> Result<(), NoDirectory> {
        is_private(&self.0).map_err(|error| (self.0.clone(), error))
    }
}

const PREFIX: &str = "opendat-";

/// The directory's name in one of the [`PLACES`].
fn name_of(user: u32) -> String {
    format!("{PREFIX}{user}")
}

/// Whose directory has this name.
pub fn user_of_name(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// Makes the user's directory in the first of these places that can be written to, or finds it there. Where
/// another user has made it first, that is an error: another place would do for this process, but not for
/// those that have found the right one before.
fn users_directory(places: &[&Path]) -> Result<PathBuf, NoDirectory> {
    let mut refused = None;
    for place in places {
        let directory = place.join(name_of(geteuid().as_raw()));
        let made = stays_ours(place).and_then(|()| {
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
            // It may pass, and others have found the place before or will find it.
            Err(error) => return Err((directory, error)),
        }
    }
    Err(refused.expect("there are some places"))
}

fn cannot_be_written_to(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), NotADirectory | NotFound | PermissionDenied | ReadOnlyFilesystem)
}

/// Whether nobody else can remove or rename what we make in a directory, apart from the directory's owner.
fn stays_ours(place: &Path) -> io::Result<()> {
    let mode = fs::metadata(place)?.mode();
    if mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0 {
        let what = format!("{} has no sticky bit (chmod +t)", place.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

/// Whether this is a directory of ours which nobody else has rights in.
fn is_private(directory: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(directory)?;
    let what = if !found.is_dir() {
        "it is not a directory: it must be removed".to_owned()
    } else if found.uid() != geteuid().as_raw() {
        format!("it belongs to user {}: it must be removed", found.uid())
    } else if found.mode() & 0o077 != 0 {
        "others have rights in it (chmod 700)".to_owned()
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
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its owner may");
    }

    #[test]
    fn only_a_directory_of_ours_alone_will_do() {
        let place = tempfile::tempdir().expect("a directory");
        let own = place.path().join(format!("opendat-{}", geteuid().as_raw()));
        let open = || users_directory(&[place.path()]);
        let refusal = || {
            let (path, error) = open().expect_err("refused");
            assert_eq!(
                (path.as_path(), error.kind()),
                (own.as_path(), io::ErrorKind::PermissionDenied)
            );
            error.to_string()
        };
        assert_eq!(open().expect("it is made"), own);
        assert_eq!(open().expect("it is found"), own);
        assert_eq!(fs::metadata(&own).expect("it is there").mode() & 0o7777, 0o700);
        set_mode(&own, 0o750);
        assert!(refusal().contains("others have rights in it"));
        set_mode(&own, 0o700);
        if geteuid().is_root() {
            chown(&own, Some(65534), None).expect("root may");
            assert!(refusal().contains("it belongs to user 65534"));
        }
        // What a link leads to may be ours, and who made the link may lead it elsewhere.
        fs::rename(&own, place.path().join("elsewhere")).expect("renamed");
        symlink(place.path().join("elsewhere"), &own).expect("a link");
        assert!(refusal().contains("it is not a directory"));
        fs::remove_file(&own).expect("removed");
        fs::write(&own, "").expect("written");
        assert!(refusal().contains("it is not a directory"));
        fs::remove_file(&own).expect("removed");
        // Anybody could put another one in its place.
        set_mode(place.path(), 0o777);
        assert!(refusal().contains("no sticky bit"));
        set_mode(place.path(), 0o1777);
        open().expect("nobody can");
    }

    #[test]
    fn another_place_serves_where_there_is_none() {
        let place = tempfile::tempdir().expect("a directory");
        let missing = place.path().join("missing");
        let directory = users_directory(&[&missing, place.path()]).expect("the second one");
        assert_eq!(directory.parent(), Some(place.path()));
        let (path, error) = users_directory(&[&missing, &missing]).expect_err("nowhere");
        assert!(path.starts_with(&missing));
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
