//! Tests the C ABI on arm64. libdat2 and the tests are compiled for arm64, and QEMU's emulation of
//! user programs runs them on this machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, run_with_progress, target, workspace};
use crate::dist::remove;
use crate::prerequisites::on_path;
use crate::test::{Job, Load, Prepared, Runs, Stage};

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// The emulator, and where it finds the C library of arm64.
const EMULATOR: &str = "qemu-aarch64-static -L /usr/aarch64-linux-gnu";
const C_COMPILER: &str = "aarch64-linux-gnu-gcc";
const CXX_COMPILER: &str = "aarch64-linux-gnu-g++";
/// The programs that the tests need, each with its Debian package.
const TOOLS: [(&str, &str); 3] = [
    (C_COMPILER, "gcc-aarch64-linux-gnu"),
    (CXX_COMPILER, "g++-aarch64-linux-gnu"),
    ("qemu-aarch64-static", "qemu-user-static"),
];

/// The test programs of the crate `tests` that run, each with a filter for its tests: our C headers
/// compared with dat-sys, and a C program whose calls depend on the calling convention.
const PROGRAMS: [(&str, &str); 2] =
    [("headers", "headers_agree_with_dat_sys"), ("behaviour", "tcp-emu::extended_operations")];
/// The headers in /usr/include are not those of arm64.
const SKIPPED: &str = "ofed_headers";

/// Builds libdat2 for arm64, and returns the jobs that test it. If a tool is missing, the stage
/// counts as one skipped test.
pub(crate) fn stage() -> Stage {
    Stage::new("the C ABI on arm64", || {
        if let Some((tool, package)) = TOOLS.iter().find(|(tool, _)| !on_path(tool)) {
            return Ok(Prepared::Cannot(format!("{tool} is not installed (package {package})")));
        }
        if !library_directory(&["--target", TARGET])?.exists() {
            return Ok(Prepared::Cannot(format!(
                "Rust's library for arm64 is missing: rustup target add {TARGET}"
            )));
        }
        let mut build = arm64_cargo()?;
        build.args(["build", "--target", TARGET, "-p", "libdat2"]);
        let (built, _) = run_with_progress(&mut build, "building libdat2 for arm64")?;
        ensure!(built.success(), "libdat2 is not compiled for arm64, see above ({built})");
        let layout = lay_out()?;
        let jobs = PROGRAMS.iter().map(|program| job(program, &layout));
        Ok(Prepared::Jobs(jobs.collect::<Result<_>>()?))
    })
}

/// Returns the directory of Rust's library for a target (`--target NAME`), or for this machine.
fn library_directory(target: &[&str]) -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--print", "target-libdir"]).args(target).current_dir(workspace());
    let output = command.output().context("rustc does not start")?;
    ensure!(output.status.success(), "rustc does not know the target ({})", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}

fn directory() -> Result<PathBuf> {
    Ok(target()?.join("arm64"))
}

/// Returns a command for cargo that compiles and runs programs of arm64.
fn arm64_cargo() -> Result<Command> {
    // .cargo/config.toml selects the linker lld. The C compiler finds the lld that is installed
    // with Rust.
    let lld = library_directory(&[])?.with_file_name("bin/gcc-ld");
    let mut command = cargo();
    command
        .env("CARGO_TARGET_DIR", directory()?)
        .env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
            format!("-Clink-arg=-B{}", lld.display()),
        )
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", C_COMPILER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", EMULATOR)
        .env("CC", C_COMPILER)
        .env("CXX", CXX_COMPILER);
    Ok(command)
}

/// Lays out the library and the headers as `cargo xtask dist` does.
fn lay_out() -> Result<PathBuf> {
    let layout = directory()?.join("dist");
    remove(&layout)?;
    fs::create_dir_all(layout.join("lib")).context("cannot create the layout of arm64")?;
    let built = directory()?.join(TARGET).join("debug/libdat2.so");
    let links = [
        (built, "lib/libdat2.so.2"),
        (PathBuf::from("libdat2.so.2"), "lib/libdat2.so"),
        (workspace().join("libdat/include"), "include"),
    ];
    for (to, name) in links {
        symlink(to, layout.join(name)).with_context(|| format!("cannot create {name}"))?;
    }
    Ok(layout)
}

fn job((program, filter): &(&str, &str), layout: &Path) -> Result<Job> {
    let mut command = arm64_cargo()?;
    command
        .args(["test", "--target", TARGET, "-p", "opendat-tests", "--color=never"])
        .args([
            "--test",
            program,
            "--",
            "--color=never",
            "--show-output",
            "--skip",
            SKIPPED,
            filter,
        ])
        .env("OPENDAT_DIST", layout)
        // The tests stay in this network, because the emulator cannot start itself in another one.
        .env("OPENDAT_TEST", format!("emulator={EMULATOR};own-network=on"));
    let name = format!("arm64 {program}");
    Ok(Job { name, command, runs: Runs::Cargo, load: Load::Computes })
}
