//! What the tests need from the machine besides Rust. Missing packages are installed when we may; what then
//! still is missing is said here, and the tests that need it report themselves as skipped.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::watch;

/// Something a test looks for, and the Debian package that brings it.
struct Need {
    /// Only the full run needs it.
    full: bool,
    what: &'static str,
    file: &'static str,
    package: &'static str,
    why: &'static str,
}

const NEEDS: &[Need] = &[
    need("dtest", "/usr/bin/dtest", "dapl2-utils", "unmodified programs"),
    need("dapltest", "/usr/bin/dapltest", "dapl2-utils", "unmodified programs"),
    need(
        "Debian's libdat2",
        "/usr/lib/x86_64-linux-gnu/libdat2.so.2",
        "libdapl2",
        "our provider under a foreign registry",
    ),
    need(
        "Debian's DAT headers",
        "/usr/include/dat2/udat.h",
        "libdapl-dev",
        "comparison of the C ABI",
    ),
    need(
        "libibverbs' headers",
        "/usr/include/infiniband/verbs.h",
        "libibverbs-dev",
        "layouts of libibverbs",
    ),
    need(
        "librdmacm's headers",
        "/usr/include/rdma/rdma_cma.h",
        "librdmacm-dev",
        "layouts of librdmacm",
    ),
    need("gcc", "/usr/bin/gcc", "gcc", "C programs"),
    need("g++", "/usr/bin/g++", "g++", "C++ programs and libFuzzer"),
    need("libc headers", "/usr/include/stdio.h", "libc6-dev", "C programs"),
    need("pkg-config", "/usr/bin/pkg-config", "pkg-config", "the shipped pkg-config file"),
    need("tshark", "/usr/bin/tshark", "tshark", "captures as Wireshark sees them"),
    full("valgrind", "/usr/bin/valgrind", "valgrind", "dtest under valgrind"),
    need(
        "scapy",
        "/usr/lib/python3/dist-packages/scapy/contrib/roce.py",
        "python3-scapy",
        "an ICRC that is not of our making",
    ),
    need(
        "ip",
        "/usr/bin/ip",
        "iproute2",
        "network namespaces: one so that no port is found in use, one for another host",
    ),
    need("nft", "/usr/sbin/nft", "nftables", "a wire that loses packets"),
    full("debootstrap", "/usr/sbin/debootstrap", "debootstrap", "our packages in a clean Debian"),
    full("dpkg-shlibdeps", "/usr/bin/dpkg-shlibdeps", "dpkg-dev", "what our packages depend on"),
    need(
        "chromium",
        "/usr/bin/chromium",
        "chromium",
        "the page of dat bench, as a browser shows it",
    ),
    need("python3", "/usr/bin/python3", "python3", "Intel MPI's programs"),
    full("venv", "/usr/share/doc/python3-venv", "python3-venv", "Intel MPI, which pip installs"),
    need("gdb", "/usr/bin/gdb", "gdb", "backtraces of a program that hangs; no test depends on it"),
];

const fn need(
    what: &'static str,
    file: &'static str,
    package: &'static str,
    why: &'static str,
) -> Need {
    Need { full: false, what, file, package, why }
}

const fn full(
    what: &'static str,
    file: &'static str,
    package: &'static str,
    why: &'static str,
) -> Need {
    Need { full: true, ..need(what, file, package, why) }
}

/// Installs what is missing of what the run needs, when this is root on a machine with apt, and says what
/// remains missing.
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
        // An outdated list of packages is the usual reason for a failed install; a failed update is not
        // fatal.
        apt(&["update"]);
        for package in packages {
            // One by one: a package that this release lacks does not keep the others away.
            apt(&["install", "-y", "--no-install-recommends", package]);
        }
    }
    for need in missing() {
        eprintln!("missing: {} (package {}), needed for {}", need.what, need.package, need.why);
    }
}

fn missing() -> impl Iterator<Item = &'static Need> {
    NEEDS.iter().filter(|need| !PathBuf::from(need.file).exists())
}

fn apt(arguments: &[&str]) {
    let mut apt = Command::new("apt-get");
    apt.arg("-qq").args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    let what = format!("apt-get {}", arguments.join(" "));
    match watch(&mut apt, &what) {
        Ok((status, _)) if status.success() => {}
        Ok((status, _)) => eprintln!("{what} failed ({status})"),
        Err(error) => eprintln!("{error:#}"),
    }
}

/// The owner of /proc/self is our effective user.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}
