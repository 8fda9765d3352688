//! Checks for the programs and packages that the tests need besides Rust. Missing packages are
//! installed if possible. Packages that are still missing are reported, and the tests that need
//! them are skipped.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::run_with_progress;

/// A program or file that a test needs, and the Debian package that contains it.
struct Prerequisite {
    /// Whether only the full run of the tests needs the package.
    full: bool,
    what: &'static str,
    file: &'static str,
    package: &'static str,
    why: &'static str,
}

const PREREQUISITES: &[Prerequisite] = &[
    any_run("dtest", "/usr/bin/dtest", "dapl2-utils", "unmodified programs"),
    any_run("dapltest", "/usr/bin/dapltest", "dapl2-utils", "unmodified programs"),
    any_run(
        "Debian's libdat2",
        "/usr/lib/x86_64-linux-gnu/libdat2.so.2",
        "libdapl2",
        "our provider under a foreign registry",
    ),
    any_run(
        "Debian's DAT headers",
        "/usr/include/dat2/udat.h",
        "libdapl-dev",
        "comparison of the C ABI",
    ),
    any_run(
        "libibverbs' headers",
        "/usr/include/infiniband/verbs.h",
        "libibverbs-dev",
        "layouts of libibverbs",
    ),
    any_run(
        "librdmacm's headers",
        "/usr/include/rdma/rdma_cma.h",
        "librdmacm-dev",
        "layouts of librdmacm",
    ),
    any_run("gcc", "/usr/bin/gcc", "gcc", "C programs"),
    any_run("g++", "/usr/bin/g++", "g++", "C++ programs and libFuzzer"),
    any_run("libc headers", "/usr/include/stdio.h", "libc6-dev", "C programs"),
    any_run("make", "/usr/bin/make", "make", "the examples of the guide"),
    any_run("pkg-config", "/usr/bin/pkg-config", "pkg-config", "the shipped pkg-config file"),
    any_run("tshark", "/usr/bin/tshark", "tshark", "captures, decoded by Wireshark"),
    full_run("valgrind", "/usr/bin/valgrind", "valgrind", "dtest under valgrind"),
    any_run(
        "scapy",
        "/usr/lib/python3/dist-packages/scapy/contrib/roce.py",
        "python3-scapy",
        "an independent implementation of the ICRC",
    ),
    any_run(
        "jsonschema",
        "/usr/lib/python3/dist-packages/jsonschema/__init__.py",
        "python3-jsonschema",
        "the schemas of the output of `dat`",
    ),
    any_run(
        "ip",
        "/usr/bin/ip",
        "iproute2",
        "network namespaces, for free ports and for a second host",
    ),
    any_run("nft", "/usr/sbin/nft", "nftables", "networks that lose packets"),
    full_run(
        "debootstrap",
        "/usr/sbin/debootstrap",
        "debootstrap",
        "our packages in a clean \
                                                                     Debian",
    ),
    full_run(
        "dpkg-shlibdeps",
        "/usr/bin/dpkg-shlibdeps",
        "dpkg-dev",
        "what our packages depend \
                                                                       on",
    ),
    any_run("chromium", "/usr/bin/chromium", "chromium", "the page of dat bench in a browser"),
    any_run("python3", "/usr/bin/python3", "python3", "Intel MPI's programs"),
    full_run(
        "venv",
        "/usr/share/doc/python3-venv",
        "python3-venv",
        "Intel MPI, which pip \
                                                                     installs",
    ),
    any_run(
        "gdb",
        "/usr/bin/gdb",
        "gdb",
        "backtraces of a program that hangs; no test depends on \
                                           it",
    ),
];

const fn any_run(
    what: &'static str,
    file: &'static str,
    package: &'static str,
    why: &'static str,
) -> Prerequisite {
    Prerequisite { full: false, what, file, package, why }
}

const fn full_run(
    what: &'static str,
    file: &'static str,
    package: &'static str,
    why: &'static str,
) -> Prerequisite {
    Prerequisite { full: true, ..any_run(what, file, package, why) }
}

/// Installs missing packages that the run needs, if this program runs as root on a machine with
/// apt. Reports the packages that are still missing.
pub(crate) fn provide(everything: bool) {
    let missing = || missing().filter(|need| everything || !need.full);
    let packages: Vec<&str> = missing().map(|need| need.package).collect();
    if packages.is_empty() {
        return;
    }
    if !is_root() || !Path::new("/usr/bin/apt-get").exists() {
        eprintln!(
            "not installed, because this is not root on a machine with apt: {}",
            packages.join(" ")
        );
    } else {
        println!("installing {}", packages.join(" "));
        // An outdated package list is the usual reason for a failed installation. A failed update
        // is not fatal.
        apt(&["update"]);
        for package in packages {
            // Packages are installed one by one, so that a package that this release lacks does not
            // affect the others.
            apt(&["install", "-y", "--no-install-recommends", package]);
        }
    }
    for need in missing() {
        eprintln!("missing: {} (package {}), needed for {}", need.what, need.package, need.why);
    }
}

fn missing() -> impl Iterator<Item = &'static Prerequisite> {
    PREREQUISITES.iter().filter(|need| !PathBuf::from(need.file).exists())
}

fn apt(arguments: &[&str]) {
    let mut apt = Command::new("apt-get");
    apt.arg("-qq").args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    let what = format!("apt-get {}", arguments.join(" "));
    match run_with_progress(&mut apt, &what) {
        Ok((status, _)) if status.success() => {}
        Ok((status, _)) => eprintln!("{what} failed ({status})"),
        Err(error) => eprintln!("{error:#}"),
    }
}

/// Returns whether the effective user, who owns /proc/self, is root.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}

#[cfg(test)]
mod tests {
    use super::PREREQUISITES;
    use crate::cargo::workspace;

    /// CONTRIBUTING.md has a command that installs all packages, for users who are not root.
    #[test]
    fn contributors_are_told_every_package() {
        let text = std::fs::read_to_string(workspace().join("CONTRIBUTING.md")).expect("the file");
        let lines: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("sudo apt install ")).collect();
        let [short, full] = lines[..] else { panic!("{lines:?}") };
        for need in PREREQUISITES {
            let line = if need.full { full } else { short };
            assert!(line.split(' ').any(|word| word == need.package), "{}", need.package);
        }
    }
}
