//! Building the C programs of `programs/` against the headers and the library under test.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Dist, Skip, find_program};

/// Compiles `programs/<name>.c` and links it with libdat2; the program is left in `into`.
pub fn c_program(dist: &Dist, name: &str, into: &Path) -> Result<PathBuf, Skip> {
    build(dist, name, "-ldat2", into)
}

/// As [`c_program`], with the library of uDAPL 1.2.
pub fn c_program_1_2(dist: &Dist, name: &str, into: &Path) -> Result<PathBuf, Skip> {
    build(dist, name, "-ldat", into)
}

fn build(dist: &Dist, name: &str, library: &str, into: &Path) -> Result<PathBuf, Skip> {
    let compiler = find_program("cc", "gcc")?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name).with_extension("c");
    let program = into.join(name);
    let output = Command::new(compiler)
        .args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .arg("-I")
        .arg(dist.include())
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(dist.lib())
        .args([library, "-ldl"])
        .output()
        .expect("the C compiler starts");
    assert!(
        output.status.success(),
        "{} does not compile:\n{}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(program)
}
