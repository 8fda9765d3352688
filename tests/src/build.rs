//! Builds the C programs of `programs/` against the headers and the library under test.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Dist, Skip, find_program, setting};

/// Returns the command that runs a program which the C compiler has compiled. The setting
/// `emulator` names the program that emulates another processor, with its arguments.
pub fn compiled(program: &Path) -> Command {
    let Some(emulator) = setting("emulator") else { return Command::new(program) };
    let mut words = emulator.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).arg(program);
    command
}

/// Returns the C compiler: that of the variable CC, or else `cc`.
fn compiler() -> Result<PathBuf, Skip> {
    match env::var_os("CC") {
        Some(compiler) => Ok(compiler.into()),
        None => find_program("cc", "gcc"),
    }
}

/// Compiles `programs/<name>.c` and links it with libdat2. The compiled program is in the directory
/// `into`.
pub fn c_program(dist: &Dist, name: &str, into: &Path) -> Result<PathBuf, Skip> {
    build(dist, name, &[], "-ldat2", into)
}

/// Does the same as [`c_program`] with the library of uDAPL 1.2. Defines UDAPL_1_2, for sources
/// that support both versions.
pub fn c_program_1_2(dist: &Dist, name: &str, into: &Path) -> Result<PathBuf, Skip> {
    build(dist, name, &["-DUDAPL_1_2"], "-ldat", into)
}

/// A version of uDAPL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 1.2, with libdat.so.1.
    V1_2,
    /// 2.0, with libdat2.so.2.
    V2_0,
}

impl Version {
    /// The option that defines the version for sources that support both.
    fn define(self) -> &'static str {
        match self {
            Version::V1_2 => "-DUDAPL_1_2",
            Version::V2_0 => "-DUDAPL_2_0",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V1_2 => "1.2",
            Version::V2_0 => "2.0",
        })
    }
}

/// Compiles `programs/reference/<page>.c` and links it with the library of this version. The
/// directory `into` contains the page's example as `example.h`, and gets the program.
pub fn c_example(dist: &Dist, page: &str, version: Version, into: &Path) -> Result<PathBuf, Skip> {
    let library = match version {
        Version::V1_2 => "-ldat",
        Version::V2_0 => "-ldat2",
    };
    let include = format!("-I{}", into.display());
    let program = into.join(format!("{page}-{version}"));
    compile(dist, &format!("reference/{page}"), &program, &[version.define(), &include], &[library])
}

/// Does the same as [`c_program`] with the library of this name, and with gcc's address and
/// undefined-behaviour sanitizers.
pub fn c_program_sanitized(
    dist: &Dist,
    name: &str,
    library: &str,
    into: &Path,
) -> Result<PathBuf, Skip> {
    // The sanitizer is linked statically: the programs are started with another library preloaded,
    // and the sanitizer must be loaded first.
    let options = [
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-static-libasan",
        "-fno-omit-frame-pointer",
    ];
    compile(dist, name, &into.join(name), &options, &[&format!("-l{library}"), "-ldl"])
}

/// Compiles a vendor's provider for this version of uDAPL, `programs/<name>.c` with VENDOR defined.
/// The compiled library is in the directory `into`.
pub fn c_vendor(dist: &Dist, name: &str, version: Version, into: &Path) -> Result<PathBuf, Skip> {
    let options = ["-DVENDOR", version.define(), "-shared", "-fPIC"];
    compile(dist, name, &into.join(name).with_extension("so"), &options, &[])
}

/// Compiles `programs/<name>.c` as a library that can be preloaded. The compiled library is in the
/// directory `into`.
pub fn c_preload(name: &str, into: &Path) -> Result<PathBuf, Skip> {
    let library = into.join(name).with_extension("so");
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name).with_extension("c");
    let mut compile = Command::new(find_program("cc", "gcc")?);
    output_of(
        compile
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"])
            .arg(source)
            .arg("-o")
            .arg(&library),
    );
    Ok(library)
}

/// Compiles and links `programs/open.c` only with the flags that pkg-config prints for `name`
/// (`dat` or `dat2`). `environment` tells pkg-config where to look.
pub fn c_program_by_pkg_config(
    name: &str,
    environment: &[(&str, &Path)],
    into: &Path,
) -> Result<PathBuf, Skip> {
    let mut ask = Command::new(find_program("pkg-config", "pkg-config")?);
    ask.args(["--cflags", "--libs", name]).envs(environment.iter().copied());
    let flags = output_of(&mut ask);
    let program = into.join("open");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/open.c");
    let mut compile = Command::new(find_program("cc", "gcc")?);
    compile.arg(format!("-DUDAT=<{name}/udat.h>")).arg(source).args(flags.split_whitespace());
    output_of(compile.arg("-o").arg(&program));
    Ok(program)
}

/// Returns the output of a command that must succeed.
fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}\n{stderr}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

fn build(
    dist: &Dist,
    name: &str,
    options: &[&str],
    library: &str,
    into: &Path,
) -> Result<PathBuf, Skip> {
    compile(dist, name, &into.join(name), options, &[library, "-ldl"])
}

fn compile(
    dist: &Dist,
    name: &str,
    program: &Path,
    options: &[&str],
    libraries: &[&str],
) -> Result<PathBuf, Skip> {
    let compiler = compiler()?;
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name).with_extension("c");
    let output = Command::new(compiler)
        .args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .args(options)
        .arg("-I")
        .arg(dist.include())
        .arg(&source)
        .arg("-o")
        .arg(program)
        .arg("-L")
        .arg(dist.lib())
        .args(libraries)
        .output()
        .expect("the C compiler starts");
    assert!(
        output.status.success(),
        "{} does not compile:\n{}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(program.to_owned())
}
