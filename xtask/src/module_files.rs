//! Checks that a module `x` with modules of its own is the file `x.rs` beside the directory `x`. A
//! module that several test programs share is `tests/x/mod.rs`, because Cargo takes each file
//! `tests/x.rs` for a program.

use crate::unsafe_files::files;

#[test]
fn a_module_is_a_file_beside_its_directory() {
    let wrong: Vec<_> = files().into_iter().filter(|file| is_misplaced(file)).collect();
    assert!(wrong.is_empty(), "rename x/mod.rs to x.rs: {wrong:#?}");
}

fn is_misplaced(file: &str) -> bool {
    let Some((parent, _)) = file.strip_suffix("/mod.rs").and_then(|dir| dir.rsplit_once('/'))
    else {
        return false;
    };
    let is_shared_by_programs = parent.ends_with("/tests") && !parent.contains("/src/");
    !is_shared_by_programs
}

#[test]
fn misplaced_files_are_found() {
    assert!(is_misplaced("rnic/src/rc/mod.rs"));
    assert!(is_misplaced("rnic/src/rc/tests/requester/mod.rs"));
    assert!(is_misplaced("tests/tests/programs/guest/mod.rs"));
    assert!(!is_misplaced("dat-core/tests/support/mod.rs"));
    assert!(!is_misplaced("rnic/src/rc.rs"));
}
