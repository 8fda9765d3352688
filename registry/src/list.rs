//! The static registry: all entries, their origins, and the selection of those that fit a consumer.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use dat_sys::{DAT_PROVIDER, DAT_PROVIDER_INFO};
use telemetry::environment::os_variable;

use crate::entry::{Api, Entry, Origin, ParseError, ProviderVersion, Space};
use crate::host::Host;
use crate::{conf, toml};

/// The registry file if DAT_OVERRIDE is not set.
pub const DEFAULT_FILE: &str = "/etc/dat.conf";

/// The maximum size of a registry file in octets: 16 MiB. The limit stops the read of an endless
/// device.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Reads the text of a registry file.
///
/// # Errors
///
/// The file cannot be read, is neither a regular file nor /dev/null, contains a NUL, or has more
/// than 16 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    // Without O_NONBLOCK, opening a pipe without a writer would block.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let kind = file.metadata()?;
    let is_null = kind.file_type().is_char_device() && kind.rdev() == libc::makedev(1, 3);
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() && !is_null {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a registry file must be a regular file",
        ));
    }
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let why = "a registry file must not exceed 16 MiB";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    if text.contains(&0) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a registry file must be text, but this file contains a NUL",
        ));
    }
    Ok(text)
}

/// An adapter whose provider is linked into this program or library.
#[derive(Debug)]
pub struct Builtin {
    /// The IA name of the adapter.
    pub name: &'static str,
    /// The IA parameters of the adapter.
    pub params: &'static str,
    /// Returns the adapter's function table.
    pub table: TableFn,
    /// Returns further adapters of the provider, for the devices of this host. A [`List`] calls
    /// this function at most once, and only if no other entry has a requested name or if all
    /// entries are listed.
    pub discover: Option<DiscoverFn>,
}

/// Returns the function table for an entry and its IA parameters. The table is never freed.
pub type TableFn = fn(&DAT_PROVIDER_INFO, &str) -> Result<*const DAT_PROVIDER, String>;

/// Returns IA names, each with its IA parameters.
pub type DiscoverFn = fn() -> Vec<(String, String)>;

/// The built-in adapters of a program or library, and the entries for them.
#[derive(Clone, Copy, Debug)]
pub struct Builtins {
    /// The adapters, in the order of their entries.
    pub adapters: &'static [&'static [Builtin]],
    /// The API of the entries.
    pub api: Api,
    /// For each entry of an adapter, whether the entry is thread-safe.
    pub threadsafe: &'static [bool],
}

impl Builtins {
    /// No adapters.
    pub const NONE: Builtins = Builtins { adapters: &[], api: Api::U2_0, threadsafe: &[] };
}

/// All entries in the order in which they are tried: first the entries of the file, then the
/// built-in entries, and last the entries that built-in providers discover on this host.
///
/// A name in the file hides all built-in entries of that name, even if the entry in the file is
/// switched off or has a mistake. Otherwise a built-in entry could serve the name without the
/// parameters of the file, for example an address or CRCs. A file that cannot be read may contain
/// any name, so it hides all built-in entries.
#[derive(Debug, Default)]
pub struct List {
    /// The entries of the file, then the built-in entries that are not hidden.
    fixed: Vec<Candidate>,
    /// All built-in entries, hidden or not.
    builtin: Vec<Candidate>,
    /// The names in the file.
    names_of_file: HashSet<String>,
    discovered: OnceLock<Vec<Candidate>>,
    errors: Vec<ListError>,
    file: Option<PathBuf>,
    file_unreadable: bool,
    builtins_off: bool,
}

/// The words of a text that may be names.
fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| c.is_whitespace() || "\"'=,#[]{}".contains(c));
    words.map(str::to_owned)
}

/// An entry, with its code if the code is linked in.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The entry.
    pub entry: Entry,
    /// The code of a built-in entry. `None` for an entry of the file.
    pub builtin: Option<&'static Builtin>,
}

/// An error in the sources of the registry's entries. The parts of the sources without errors are
/// used.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The file could not be read.
    #[error("cannot read the registry file {}{}: {source}", path.display(), named_by(*overridden))]
    File {
        /// The path of the file.
        path: PathBuf,
        /// Whether DAT_OVERRIDE names the file.
        overridden: bool,
        /// The reason.
        source: std::io::Error,
    },
    /// DAT_OVERRIDE is set and empty.
    #[error("DAT_OVERRIDE names no file: it is set and empty; name a registry file, or unset it")]
    EmptyOverride,
    /// An entry has a mistake.
    #[error(transparent)]
    Entry(#[from] ParseError),
}

fn named_by(overridden: bool) -> &'static str {
    if overridden { " (named by DAT_OVERRIDE)" } else { "" }
}

impl List {
    /// Returns the entries of this process. The entries of the registry file come first. That is
    /// the file that DAT_OVERRIDE names, or else /etc/dat.conf if it exists. The entries of
    /// `builtins` follow, unless OPENDAT_PARAMS contains `builtin=off`.
    pub fn from_environment(builtins: Builtins) -> List {
        List::new(os_variable("DAT_OVERRIDE"), os_variable("OPENDAT_PARAMS"), builtins)
    }

    /// Like [`List::from_environment`], with explicit values of the two variables.
    pub fn new(
        dat_override: Option<OsString>,
        opendat_params: Option<OsString>,
        builtins: Builtins,
    ) -> List {
        let mut list = List::default();
        match dat_override {
            Some(path) if path.is_empty() => {
                list.errors.push(ListError::EmptyOverride);
                list.file_unreadable = true;
            }
            // A missing file that DAT_OVERRIDE names is an error, as in OFED's registry.
            // /etc/dat.conf is not read in its place.
            Some(path) => list.read(Path::new(&path), true),
            None => match fs::symlink_metadata(DEFAULT_FILE) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // /etc/dat.conf may be a link whose target does not exist. That is an error,
                // because the administrator has meant a file to be there.
                _ => list.read(Path::new(DEFAULT_FILE), false),
            },
        }
        let has_builtins = builtins.adapters.iter().any(|adapters| !adapters.is_empty());
        // The providers report mistakes in OPENDAT_PARAMS.
        let is_off = |text: &OsString| {
            text.to_string_lossy().split_whitespace().any(|word| word == "builtin=off")
        };
        list.builtins_off = has_builtins && opendat_params.as_ref().is_some_and(is_off);
        if !list.builtins_off {
            list.add_builtins(builtins);
        }
        list
    }

    fn read(&mut self, path: &Path, overridden: bool) {
        let text = match read(path) {
            Ok(text) => text,
            Err(source) => {
                self.errors.push(ListError::File { path: path.into(), overridden, source });
                self.file_unreadable = true;
                return;
            }
        };
        let is_toml = path.extension().is_some_and(|extension| extension == "toml");
        let (entries, errors) =
            if is_toml { toml::parse(path, &text) } else { conf::parse(path, &text) };
        let is_for_users = |entry: &&Entry| entry.api.space == Space::User;
        let names = entries.iter().filter(is_for_users).map(|entry| entry.ia_name.clone());
        self.names_of_file =
            names.chain(errors.iter().filter_map(|error| error.name.clone())).collect();
        // The name that was read from a faulty line is unreliable, and some faulty entries have no
        // known name. So each word of the faulty line counts as a name. If an entry has no known
        // name, each word of the file does.
        let text = String::from_utf8_lossy(&text);
        if errors.iter().any(|error| error.name.is_none()) {
            self.names_of_file.extend(words(&text));
        } else if !is_toml {
            let lines: Vec<&str> = text.split('\n').collect();
            for error in &errors {
                if let Origin::File { line, .. } = error.origin {
                    self.names_of_file.extend(words(lines[line - 1]));
                }
            }
        }
        self.fixed.extend(entries.into_iter().map(|entry| Candidate { entry, builtin: None }));
        self.errors.extend(errors.into_iter().map(ListError::Entry));
        self.file = Some(path.into());
    }

    fn add_builtins(&mut self, builtins: Builtins) {
        for builtin in builtins.adapters.iter().copied().flatten() {
            let entries = builtins.threadsafe.iter().map(|&threadsafe| Entry {
                ia_name: builtin.name.into(),
                api: builtins.api,
                threadsafe,
                default: true,
                library: "builtin".into(),
                provider_version: ProviderVersion { id: "opendat".into(), major: 0, minor: 1 },
                ia_params: builtin.params.into(),
                platform_params: String::new(),
                origin: Origin::Builtin,
            });
            self.builtin.extend(entries.map(|entry| Candidate { entry, builtin: Some(builtin) }));
        }
        let visible = self.builtin.iter().filter(|candidate| !self.is_hidden(candidate));
        self.fixed.extend(visible.cloned().collect::<Vec<_>>());
    }

    /// Whether the registry file has, or may have, an entry with the name of this built-in entry.
    fn is_hidden(&self, builtin: &Candidate) -> bool {
        self.file_unreadable || self.is_in_file(&builtin.entry.ia_name)
    }

    /// Every entry in the order in which they are tried, including unused ones (kernel,
    /// `nondefault`) and duplicates.
    pub fn candidates(&self) -> Vec<&Candidate> {
        self.fixed.iter().chain(self.discovered()).collect()
    }

    /// The entries that the built-in providers discover on this host. They are discovered only when
    /// a caller needs them.
    fn discovered(&self) -> &[Candidate] {
        self.discovered.get_or_init(|| {
            if self.file_unreadable {
                return Vec::new();
            }
            // A built-in adapter has one candidate for each thread safety. They all get the same
            // devices, so each adapter searches for devices only once.
            let mut devices_of = HashMap::new();
            let entries = |candidate: &Candidate| {
                let builtin = candidate.builtin?;
                let discover = builtin.discover?;
                let devices = devices_of.entry(builtin.name).or_insert_with(discover).clone();
                let entries = devices.into_iter().map({
                    let template = candidate.entry.clone();
                    move |(ia_name, ia_params)| Entry { ia_name, ia_params, ..template.clone() }
                });
                Some(entries.map(move |entry| Candidate { entry, builtin: Some(builtin) }))
            };
            let discovered = self.builtin.iter().filter_map(entries).flatten();
            discovered.filter(|candidate| !self.is_hidden(candidate)).collect()
        })
    }

    /// The errors in the sources of the entries.
    pub fn errors(&self) -> &[ListError] {
        &self.errors
    }

    /// The file that was read, if any.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether the file has this name. The name of an entry that is switched off or has a mistake
    /// counts too.
    pub(crate) fn is_in_file(&self, name: &str) -> bool {
        self.names_of_file.contains(name)
    }

    /// Whether there is a file that could not be read. Such a file hides all built-in entries.
    pub fn file_unreadable(&self) -> bool {
        self.file_unreadable
    }

    /// Whether OPENDAT_PARAMS turned off built-in entries.
    pub fn builtins_off(&self) -> bool {
        self.builtins_off
    }

    /// Like [`List::interfaces`], in the best order for a consumer of this major version on this
    /// host:
    ///
    /// 1. Entries of the consumer's major version come before others.
    /// 2. Within these two groups, entries that are known not to open ([`Host::may_open`]) come
    ///    last.
    /// 3. Apart from these rules, the interfaces have the order of the registry.
    ///
    /// The order matters because consumers ask for a few entries and use one of them.
    pub fn interfaces_for(&self, major: u32, host: &Host) -> Vec<&Entry> {
        let mut interfaces = self.interfaces();
        interfaces.sort_by_cached_key(|entry| (entry.api.major != major, !host.may_open(entry)));
        interfaces
    }

    /// The entries that a consumer can open, as `dat_registry_list_providers` returns them: usable
    /// entries, without duplicates.
    pub fn interfaces(&self) -> Vec<&Entry> {
        let mut seen = HashSet::new();
        let mut interfaces = Vec::new();
        for Candidate { entry, .. } in self.candidates() {
            if entry.usable() && seen.insert((&entry.ia_name, entry.api, entry.threadsafe)) {
                interfaces.push(entry);
            }
        }
        interfaces
    }

    /// The names that a consumer can open, without duplicates. The names of built-in entries come
    /// first.
    pub fn names(&self) -> Vec<String> {
        let (builtin, others): (Vec<_>, Vec<_>) =
            self.interfaces().into_iter().partition(|entry| entry.origin == Origin::Builtin);
        let mut seen = HashSet::new();
        let names = builtin.into_iter().chain(others).map(|entry| &entry.ia_name);
        names.filter(|name| seen.insert(*name)).cloned().collect()
    }

    /// The entries that fit, in the order in which they are tried. Entries of the file come before
    /// built-in entries. Within both groups, exact matches come first. Entries with a higher minor
    /// version, or with thread safety that was not requested, follow.
    pub fn find(&self, wanted: &Wanted<'_>) -> Result<Vec<&Candidate>, Mismatch> {
        let is_named = |c: &&Candidate| c.entry.usable() && c.entry.ia_name == wanted.name;
        let mut named: Vec<_> = self.fixed.iter().filter(is_named).collect();
        if named.is_empty() {
            named = self.discovered().iter().filter(is_named).collect();
        }
        let mut fitting = wanted.filter(named, |c| Offer::from(&c.entry))?;
        fitting.sort_by_key(|c| {
            (c.entry.origin == Origin::Builtin, !wanted.is_exact(&Offer::from(&c.entry)))
        });
        Ok(fitting)
    }
}

/// The properties that a consumer requests in `dat_ia_open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The IA name.
    pub name: &'a str,
    /// The API major version. The provider's major version must be equal.
    pub major: u32,
    /// The API minor version. The provider's minor version may be higher (dat_ia_open: "or
    /// higher").
    pub minor: u32,
    /// Whether the consumer needs a thread-safe provider. A consumer that does not may get either
    /// kind.
    pub threadsafe: bool,
}

/// The properties that an entry or a registered provider offers under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) threadsafe: bool,
}

impl From<&Entry> for Offer {
    fn from(entry: &Entry) -> Offer {
        Offer { major: entry.api.major, minor: entry.api.minor, threadsafe: entry.threadsafe }
    }
}

impl Wanted<'_> {
    pub(crate) fn is_exact(&self, offer: &Offer) -> bool {
        *offer == Offer { major: self.major, minor: self.minor, threadsafe: self.threadsafe }
    }

    /// Keeps the items that fit the request. All items must have the requested name. If no item is
    /// left, returns the first property that no item has.
    pub(crate) fn filter<T>(
        &self,
        mut items: Vec<T>,
        offer: impl Fn(&T) -> Offer,
    ) -> Result<Vec<T>, Mismatch> {
        let checks: [(Mismatch, &dyn Fn(Offer) -> bool); 4] = [
            (Mismatch::Name, &|_| true),
            (Mismatch::Major, &|offer| offer.major == self.major),
            (Mismatch::Minor, &|offer| offer.minor >= self.minor),
            (Mismatch::ThreadSafety, &|offer| offer.threadsafe || !self.threadsafe),
        ];
        for (mismatch, fits) in checks {
            items.retain(|item| fits(offer(item)));
            if items.is_empty() {
                return Err(mismatch);
            }
        }
        Ok(items)
    }
}

/// The property that no entry of the wanted name has. The variants are the subtypes of
/// DAT_PROVIDER_NOT_FOUND.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mismatch {
    /// No entry has this name.
    Name,
    /// Entries of this name exist only for other major versions.
    Major,
    /// Entries of this major version exist only with a lower minor version.
    Minor,
    /// Entries of this version exist, but none is thread-safe.
    ThreadSafety,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mismatch::Name => "no entry has this name",
            Mismatch::Major => "no entry of this name has this major version",
            Mismatch::Minor => "no entry of this name has this minor version or a higher one",
            Mismatch::ThreadSafety => "no entry of this name and version is thread-safe",
        })
    }
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
