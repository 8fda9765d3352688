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
    for name in
        ["opendat.build.a1b2c3", "opendat.ABCDEF0123", "opendat.000000000", "opendat.00000000000"]
    {
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
            !names.map(|name| place.join(name)).contains(&found) && is_private_directory(&found)
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
