//! What this host has, as far as that tells, without opening it, whether an entry can open.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};

use crate::entry::{Entry, Origin};
use crate::environment::variable;

/// Where this host has libraries, and its devices.
#[derive(Debug)]
pub struct Host {
    libraries: Libraries,
    devices: Devices,
}

impl Host {
    /// This host, as this process sees it.
    pub fn of_process() -> Host {
        Host::new(Path::new("/"), variable("LD_LIBRARY_PATH"), directories_of_process())
    }

    /// A host whose files are below `root`. `library_path` is a list of directories with colons between them; these and
    /// `directories` are not below `root`.
    pub fn new(root: &Path, library_path: Option<OsString>, directories: Vec<PathBuf>) -> Host {
        Host {
            libraries: Libraries::new(root, library_path, directories),
            devices: Devices::below(root),
        }
    }

    /// False where it is known that the entry cannot open: its library is in no place where the dynamic linker looks, it names a
    /// device that is not there, or it is one of OFED's providers and there is no RDMA device at all.
    pub fn may_open(&self, entry: &Entry) -> bool {
        entry.origin == Origin::Builtin
            || (self.libraries.may_have(&entry.library)
                && self.devices.missing(entry).is_none()
                && !self.devices.lacks_rdma(entry))
    }
}

/// Where the dynamic linker finds libraries (ld.so(8)).
#[derive(Debug)]
struct Libraries {
    directories: Vec<PathBuf>,
    /// Names in its cache.
    cached: HashSet<String>,
}

/// Where it looks after its cache.
const STANDARD: &[&str] = &["lib", "usr/lib", "lib64", "usr/lib64"];

impl Libraries {
    fn new(
        root: &Path,
        library_path: Option<OsString>,
        mut directories: Vec<PathBuf>,
    ) -> Libraries {
        // An empty element is the current directory, as for the linker.
        directories.extend(library_path.iter().flat_map(std::env::split_paths));
        for directory in STANDARD {
            let directory = root.join(directory);
            directories.push(directory.join(MULTIARCH));
            directories.push(directory);
        }
        let cached = fs::read(root.join("etc/ld.so.cache")).map(|cache| names_in_cache(&cache));
        Libraries { directories, cached: cached.unwrap_or_default() }
    }

    /// False where the library is known to be nowhere.
    fn may_have(&self, library: &str) -> bool {
        if library.contains('/') {
            // A path with a dollar sign may contain `$ORIGIN`, which the linker alone can tell.
            return library.contains('$') || Path::new(library).exists();
        }
        self.cached.contains(library)
            || self.directories.iter().any(|dir| dir.join(library).exists())
    }
}

/// Debian's directory for libraries of this machine.
#[cfg(target_arch = "aarch64")]
const MULTIARCH: &str = "aarch64-linux-gnu";
/// Debian's directory for libraries of this machine.
#[cfg(not(target_arch = "aarch64"))]
const MULTIARCH: &str = "x86_64-linux-gnu";

/// The names of libraries in an ld.so.cache. Its last part is a table of texts that end in NUL: the name of each library and the path
/// of its file. What comes before the texts gives some words that are no name, and no entry has.
fn names_in_cache(cache: &[u8]) -> HashSet<String> {
    let texts = cache.split(|&octet| octet == 0).filter_map(|text| std::str::from_utf8(text).ok());
    texts.filter_map(|text| text.rsplit('/').next()).map(ToOwned::to_owned).collect()
}

/// The directories of all files that this process has mapped. A program may bring its own search path (`DT_RUNPATH`), which is mostly
/// where its libraries are.
fn directories_of_process() -> Vec<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let mut directories: Vec<PathBuf> =
        paths.filter_map(Path::parent).map(Path::to_path_buf).collect();
    directories.sort();
    directories.dedup();
    directories
}

/// What the IA parameters of an entry may name.
#[derive(Debug, Default)]
pub struct Devices {
    /// Network devices.
    pub network: Vec<String>,
    /// RDMA devices.
    pub rdma: Vec<String>,
}

impl Devices {
    /// Those of this host.
    pub fn of_host() -> Devices {
        Devices::below(Path::new("/"))
    }

    fn below(root: &Path) -> Devices {
        Devices {
            network: names_in(&root.join("sys/class/net")),
            rdma: names_in(&root.join("sys/class/infiniband")),
        }
    }

    /// What the entry names and this host has not. Only providers that are known to read their parameters so are judged.
    pub fn missing<'e>(&self, entry: &'e Entry) -> Option<&'e str> {
        let known = ["libdapl", "libdat_"].iter().any(|start| file_name(entry).starts_with(start));
        let name = place(entry)?;
        let has = |names: &[String]| names.iter().any(|has| has == name);
        let there = match name.parse::<IpAddr>() {
            Ok(address) => is_own(address),
            // A name with a dot is a host's, which takes a network to judge.
            Err(_) => name.contains('.') || has(&self.network) || has(&self.rdma),
        };
        (known && !there).then_some(name)
    }

    /// Whether the entry is for one of OFED's providers, which all need an RDMA device, and there is none.
    fn lacks_rdma(&self, entry: &Entry) -> bool {
        file_name(entry).starts_with("libdapl") && self.rdma.is_empty()
    }

    /// The names, for people.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.network.iter().chain(&self.rdma).map(String::as_str).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

/// The device, address or host that an entry names.
pub fn place(entry: &Entry) -> Option<&str> {
    entry.ia_params.split_whitespace().next().filter(|word| !word.contains('='))
}

/// What a directory lists, in order; nothing where there is none.
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

/// Whether the address is one of this host: a socket can then be bound to it. Where that fails for another reason than that it is not,
/// it may be one.
fn is_own(address: IpAddr) -> bool {
    match UdpSocket::bind((address, 0)) {
        Ok(_) => true,
        Err(error) => error.kind() != ErrorKind::AddrNotAvailable,
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
