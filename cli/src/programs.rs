//! Finds the library that a program loads if it is linked with uDAPL.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sonames of uDAPL 2.0 and 1.2.
pub(crate) const SONAMES: [&str; 2] = ["libdat2.so.2", "libdat.so.1"];

/// Returns the path at which the dynamic linker finds a library for a program that is started from
/// here (ld.so(8)). The linker searches the directories of LD_LIBRARY_PATH, and then its cache.
pub(crate) fn library_path(soname: &str) -> Option<PathBuf> {
    let directories = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let named = env::split_paths(&directories)
        .map(|directory| directory.join(soname))
        .find(|path| path.is_file());
    named.or_else(|| {
        let ldconfig = ["/sbin/ldconfig", "/usr/sbin/ldconfig"]
            .into_iter()
            .find(|path| Path::new(path).exists())?;
        let output = Command::new(ldconfig).arg("-p").output().ok()?;
        in_cache(&String::from_utf8_lossy(&output.stdout), soname)
    })
}

/// Returns the first entry of `ldconfig -p` with this name for this processor architecture.
fn in_cache(listed: &str, soname: &str) -> Option<PathBuf> {
    let of_this_machine = env::consts::ARCH.replace('_', "-");
    listed.lines().find_map(|line| {
        let (name, path) = line.trim().split_once(" => ")?;
        let (name, kind) = name.split_once(' ')?;
        (name == soname && kind.contains(&of_this_machine)).then(|| path.into())
    })
}

/// Returns whether a file is a library of OpenDAT, or a program with that library linked in. Only
/// these files contain the name of the variable OPENDAT_PARAMS.
pub(crate) fn is_ours(file: &Path) -> bool {
    fs::read(file).is_ok_and(|text| has(&text, "OPENDAT_PARAMS"))
}

/// Returns the DAT library that a program would load, if that library is not OpenDAT's.
pub(crate) fn foreign_library_of(program: &OsStr) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places = env::split_paths(&path)
        .map(|directory| directory.join(program))
        .filter(|file| file.is_file());
    let is_path = program.as_encoded_bytes().contains(&b'/');
    let text = fs::read(if is_path { program.into() } else { places.next()? }).ok()?;
    let wanted =
        SONAMES.into_iter().filter(|soname| has(&text, soname) && !has(&text, "OPENDAT_PARAMS"));
    wanted.filter_map(library_path).find(|library| !is_ours(library))
}

fn has(text: &[u8], word: &str) -> bool {
    text.windows(word.len()).any(|window| window == word.as_bytes())
}

/// Returns the directory of OpenDAT's libraries if OpenDAT was not installed into the system. That
/// directory, `lib`, is next to the directory of this program.
pub(crate) fn own_library_directory() -> Option<PathBuf> {
    let directory = env::current_exe().ok()?.parent()?.parent()?.join("lib");
    (directory.file_name() == Some(OsStr::new("lib")) && directory.join(SONAMES[0]).is_file())
        .then_some(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_lists_other_machines_too() {
        let arch = env::consts::ARCH.replace('_', "-");
        let listed = format!(
            "1 libs found in cache `/etc/ld.so.cache'\n\
             \tlibdat2.so.2 (libc6) => /lib32/libdat2.so.2\n\
             \tlibdat2.so.20 (libc6,{arch}) => /lib/libdat2.so.20\n\
             \tlibdat2.so.2 (libc6,{arch}) => /lib/libdat2.so.2\n"
        );
        assert_eq!(in_cache(&listed, "libdat2.so.2"), Some("/lib/libdat2.so.2".into()));
        assert_eq!(in_cache(&listed, "libdat.so.1"), None);
    }

    #[test]
    fn others_are_not_ours() {
        let dir = tempfile::tempdir().expect("a directory");
        let [ours, other] = ["ours", "other"].map(|name| dir.path().join(name));
        fs::write(&ours, b"\x7fELF...OPENDAT_PARAMS\0").expect("the file can be written");
        fs::write(&other, b"\x7fELF...DAT_OVERRIDE\0").expect("the file can be written");
        assert!(is_ours(&ours) && !is_ours(&other) && !is_ours(dir.path()));
    }
}
