//! The libraries and devices of this host. They show that some entries cannot be opened, without an
//! attempt to open these entries.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};

use telemetry::environment::os_variable;

use crate::entry::{Entry, Origin};

/// The directories of this host's libraries, and its devices.
#[derive(Debug)]
pub struct Host {
    libraries: Libraries,
    devices: Devices,
}

impl Host {
    /// This host, as this process sees it.
    pub fn of_process() -> Host {
        Host::new(Path::new("/"), os_variable("LD_LIBRARY_PATH"), directories_of_process())
    }

    /// A host whose files are below `root`. `library_path` is a list of directories separated by
    /// colons. The directories of `library_path` and `directories` are not relative to `root`.
    pub fn new(root: &Path, library_path: Option<OsString>, directories: Vec<PathBuf>) -> Host {
        Host {
            libraries: Libraries::new(root, library_path, directories),
            devices: Devices::below(root),
        }
    }

    /// Whether it may be possible to open the entry. False if any of these conditions is known to
    /// hold:
    ///
    /// - The dynamic linker does not find the entry's library.
    /// - The entry names a device that this host does not have.
    /// - The entry belongs to one of OFED's providers, and this host has no RDMA device.
    pub fn may_open(&self, entry: &Entry) -> bool {
        entry.origin == Origin::Builtin
            || (self.libraries.may_have(&entry.library)
                && self.devices.missing(entry).is_none()
                && !self.devices.lacks_rdma(entry))
    }
}

/// The places where the dynamic linker finds libraries (ld.so(8)).
#[derive(Debug)]
struct Libraries {
    directories: Vec<PathBuf>,
    /// The names in the dynamic linker's cache.
    cached: HashSet<String>,
}

/// The directories that the dynamic linker searches after its cache.
const STANDARD_DIRECTORIES: &[&str] = &["lib", "usr/lib", "lib64", "usr/lib64"];

impl Libraries {
    fn new(
        root: &Path,
        library_path: Option<OsString>,
        mut directories: Vec<PathBuf>,
    ) -> Libraries {
        // An empty element means the current directory, as it does for the dynamic linker.
        directories.extend(library_path.iter().flat_map(std::env::split_paths));
        for directory in STANDARD_DIRECTORIES {
            let directory = root.join(directory);
            directories.push(directory.join(MULTIARCH));
            directories.push(directory);
        }
        let cached = fs::read(root.join("etc/ld.so.cache")).map(|cache| names_in_cache(&cache));
        Libraries { directories, cached: cached.unwrap_or_default() }
    }

    /// Whether the library may exist. False if it is known not to exist.
    fn may_have(&self, library: &str) -> bool {
        if library.contains('/') {
            // A path with a dollar sign may contain `$ORIGIN`, which only the linker can expand.
            return library.contains('$') || Path::new(library).exists();
        }
        self.cached.contains(library)
            || self.directories.iter().any(|dir| dir.join(library).exists())
    }
}

/// Debian's directory name for libraries of this architecture.
#[cfg(target_arch = "aarch64")]
const MULTIARCH: &str = "aarch64-linux-gnu";
/// Debian's directory name for libraries of this architecture.
#[cfg(not(target_arch = "aarch64"))]
const MULTIARCH: &str = "x86_64-linux-gnu";

/// The names of libraries in an ld.so.cache. The last part of the cache is a table of strings that
/// end in NUL: the name and the file path of each library. The bytes before that table also yield
/// some words that are not library names. These words are harmless, because no entry has such a
/// library name.
fn names_in_cache(cache: &[u8]) -> HashSet<String> {
    let texts = cache.split(|&octet| octet == 0).filter_map(|text| std::str::from_utf8(text).ok());
    texts.filter_map(|text| text.rsplit('/').next()).map(ToOwned::to_owned).collect()
}

/// The directories of all files that this process has mapped. A program may have a search path of
/// its own (`DT_RUNPATH`), which usually names the directories of its libraries.
fn directories_of_process() -> Vec<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let mut directories: Vec<PathBuf> =
        paths.filter_map(Path::parent).map(Path::to_path_buf).collect();
    directories.sort();
    directories.dedup();
    directories
}

/// The devices that IA parameters may name.
#[derive(Debug, Default)]
pub struct Devices {
    /// The names of network devices.
    pub network: Vec<String>,
    /// The names of RDMA devices.
    pub rdma: Vec<String>,
}

impl Devices {
    /// The devices of this host.
    pub fn of_host() -> Devices {
        Devices::below(Path::new("/"))
    }

    fn below(root: &Path) -> Devices {
        Devices {
            network: names_in(&root.join("sys/class/net")),
            rdma: names_in(&root.join("sys/class/infiniband")),
        }
    }

    /// Returns the device or address that the entry names, if this host does not have it. Returns
    /// `None` for providers that are not known to interpret their parameters in this way.
    pub fn missing<'e>(&self, entry: &'e Entry) -> Option<&'e str> {
        let known = ["libdapl", "libdat_"].iter().any(|start| file_name(entry).starts_with(start));
        let name = device_parameter(entry)?;
        let has = |names: &[String]| names.iter().any(|has| has == name);
        // The scope of a link-local address is not checked: without it, no socket can be bound.
        let address = name.trim_start_matches('[').trim_end_matches(']');
        let address = address.split_once('%').map_or(address, |(address, _scope)| address);
        let there = match address.parse::<IpAddr>() {
            Ok(address) => is_own(address),
            // A name with a dot is a host name. Checking it would require a network.
            Err(_) => name.contains('.') || has(&self.network) || has(&self.rdma),
        };
        (known && !there).then_some(name)
    }

    /// Whether the entry belongs to one of OFED's providers, which all need an RDMA device, and
    /// this host has no RDMA device.
    fn lacks_rdma(&self, entry: &Entry) -> bool {
        file_name(entry).starts_with("libdapl") && self.rdma.is_empty()
    }

    /// The names of all devices, for messages.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.network.iter().chain(&self.rdma).map(String::as_str).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

/// The device, address or host name in an entry's IA parameters.
pub fn device_parameter(entry: &Entry) -> Option<&str> {
    entry.ia_params.split_whitespace().next().filter(|word| !word.contains('='))
}

/// The names in a directory, sorted. Empty if there is no such directory.
pub fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn file_name(entry: &Entry) -> &str {
    entry.library.rsplit('/').next().unwrap_or_default()
}

/// Whether the address belongs to this host. The test is to bind a socket to the address. Only the
/// error "address not available" means no, because any other error may have another cause.
fn is_own(address: IpAddr) -> bool {
    match UdpSocket::bind((address, 0)) {
        Ok(_) => true,
        Err(error) => error.kind() != ErrorKind::AddrNotAvailable,
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
