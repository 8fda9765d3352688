//! The static registry: which entries there are, where they came from, and which of them fit a consumer.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use dat_sys::{DAT_PROVIDER_FINI_FUNC, DAT_PROVIDER_INIT_FUNC};

use crate::entry::{Entry, Origin, ParseError, Space};
use crate::environment::variable;
use crate::host::Host;
use crate::{conf, toml};

/// The file used when DAT_OVERRIDE names none.
pub const DEFAULT_FILE: &str = "/etc/dat.conf";

/// Octets that a registry file may have: 16 MiB. A device that never ends is none.
const LARGEST: u64 = 16 << 20;

/// The text of a registry file.
///
/// # Errors
///
/// It cannot be read, is neither a regular file nor /dev/null, or has more than 16 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    // A pipe that nobody writes to would be waited for.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let kind = file.metadata()?;
    let is_null = kind.file_type().is_char_device() && kind.rdev() == libc::makedev(1, 3);
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() && !is_null {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file, as registry files are",
        ));
    }
    file.take(LARGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LARGEST {
        let why = "more than 16 MiB: no registry file is so large";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    if text.contains(&0) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is no text, as registry files are",
        ));
    }
    Ok(text)
}

/// A provider linked into this program or library.
#[derive(Debug)]
pub struct Builtin {
    /// Its dat.conf line; the library field is for people ("builtin"), nothing is loaded.
    pub line: &'static str,
    /// What a loadable provider exports as `dat_provider_init`.
    pub init: DAT_PROVIDER_INIT_FUNC,
    /// What a loadable provider exports as `dat_provider_fini`.
    pub fini: DAT_PROVIDER_FINI_FUNC,
    /// More entries, for what it finds on this host; but for their names and parameters they are as the line.
    /// Called at most once for a [`List`], when a name is wanted that is in no line.
    pub found: Option<Find>,
}

/// IA names, and the IA parameters of each.
pub type Find = fn() -> Vec<(String, String)>;

/// All entries, in the order in which they are tried: the file's, the built-in ones, and those that built-in
/// providers find.
///
/// A name that is in the file is the file's alone, also where its entry is switched off or has a mistake:
/// what the file says of it, an address or CRCs, say, must not be lost because a built-in entry serves in its
/// place.
#[derive(Debug, Default)]
pub struct List {
    /// The file's and the built-in ones.
    fixed: Vec<Candidate>,
    /// The built-in ones, hidden or not.
    builtin: Vec<Candidate>,
    /// The names that are in the file.
    names_of_file: HashSet<String>,
    found: OnceLock<Vec<Candidate>>,
    errors: Vec<ListError>,
    file: Option<PathBuf>,
    builtins_off: bool,
}

/// An entry, and its code when that is linked in.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The entry.
    pub entry: Entry,
    /// Present for a built-in entry.
    pub builtin: Option<&'static Builtin>,
}

/// Something in the registry's sources that could not be used; the rest was.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The file could not be read.
    #[error("cannot read the registry file {}{}: {source}", path.display(), named_by(*overridden))]
    File {
        /// The file.
        path: PathBuf,
        /// Whether DAT_OVERRIDE named it.
        overridden: bool,
        /// Why.
        source: std::io::Error,
    },
    /// DAT_OVERRIDE is there and empty.
    #[error("DAT_OVERRIDE names no file: it is set and empty; name a registry file, or unset it")]
    EmptyOverride,
    /// An entry has a mistake.
    #[error(transparent)]
    Entry(#[from] ParseError),
    /// A built-in line has a mistake: an error in the program that contains it.
    #[error("built-in entry {0:?}: {1}")]
    Builtin(&'static str, String),
}

fn named_by(overridden: bool) -> &'static str {
    if overridden { " (named by DAT_OVERRIDE)" } else { "" }
}

impl List {
    /// The entries of this process: the file that DAT_OVERRIDE names, else /etc/dat.conf if it is there, then
    /// `builtins` unless OPENDAT_BUILTIN is 0.
    pub fn from_environment(builtins: &'static [Builtin]) -> List {
        List::new(variable("DAT_OVERRIDE"), variable("OPENDAT_BUILTIN"), builtins)
    }

    /// As [`List::from_environment`], with the two variables given.
    pub fn new(
        dat_override: Option<OsString>,
        opendat_builtin: Option<OsString>,
        builtins: &'static [Builtin],
    ) -> List {
        let mut list = List::default();
        match dat_override {
            Some(path) if path.is_empty() => list.errors.push(ListError::EmptyOverride),
            // A missing file is an error here, and /etc/dat.conf does not replace it: as in the original.
            Some(path) => list.read(Path::new(&path), true),
            None if Path::new(DEFAULT_FILE).exists() => list.read(Path::new(DEFAULT_FILE), false),
            None => {}
        }
        list.builtins_off =
            !builtins.is_empty() && opendat_builtin.is_some_and(|value| value == "0");
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
        if errors.iter().any(|error| error.name.is_none()) {
            // Nobody can tell whose mistake it is, so each word of the file may be its name.
            let text = String::from_utf8_lossy(&text);
            let words = text.split(|c: char| c.is_whitespace() || "\"'=,#[]{}".contains(c));
            self.names_of_file.extend(words.map(str::to_owned));
        }
        self.fixed.extend(entries.into_iter().map(|entry| Candidate { entry, builtin: None }));
        self.errors.extend(errors.into_iter().map(ListError::Entry));
        self.file = Some(path.into());
    }

    fn add_builtins(&mut self, builtins: &'static [Builtin]) {
        for builtin in builtins {
            match conf::parse_line(builtin.line) {
                Ok(Some((_, entry))) => {
                    self.builtin.push(Candidate { entry, builtin: Some(builtin) })
                }
                Ok(None) => self.errors.push(ListError::Builtin(builtin.line, "no entry".into())),
                Err((_, mistake)) => {
                    self.errors.push(ListError::Builtin(builtin.line, mistake.to_string()))
                }
            }
        }
        let shown = self.builtin.iter().filter(|candidate| !self.is_hidden(candidate));
        self.fixed.extend(shown.cloned().collect::<Vec<_>>());
    }

    /// Whether the file has its name.
    fn is_hidden(&self, builtin: &Candidate) -> bool {
        self.is_in_file(&builtin.entry.ia_name)
    }

    /// Every entry, unused ones (kernel, `nondefault`) and duplicates too, in the order in which they are tried.
    pub fn candidates(&self) -> Vec<&Candidate> {
        self.fixed.iter().chain(self.found()).collect()
    }

    /// What the built-in providers find on this host. Who opens an adapter of another name does not wait for it.
    fn found(&self) -> &[Candidate] {
        self.found.get_or_init(|| {
            let entries = |candidate: &Candidate| {
                let builtin = candidate.builtin?;
                let entries = builtin.found?().into_iter().map({
                    let template = candidate.entry.clone();
                    move |(ia_name, ia_params)| Entry { ia_name, ia_params, ..template.clone() }
                });
                Some(entries.map(move |entry| Candidate { entry, builtin: Some(builtin) }))
            };
            let found = self.builtin.iter().filter_map(entries).flatten();
            found.filter(|candidate| !self.is_hidden(candidate)).collect()
        })
    }

    /// What could not be read.
    pub fn errors(&self) -> &[ListError] {
        &self.errors
    }

    /// The file that was read, if any.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether the file has this name. An entry that is switched off or has a mistake counts, too.
    pub(crate) fn is_in_file(&self, name: &str) -> bool {
        self.names_of_file.contains(name)
    }

    /// Whether there are built-in entries that OPENDAT_BUILTIN turned off.
    pub fn builtins_off(&self) -> bool {
        self.builtins_off
    }

    /// As [`List::interfaces`], in the order that suits a consumer of this major version on this host.
    /// Entries of that version come first. Among these, and among the others, entries that cannot open as far
    /// as the host knows come last ([`Host::may_open`]). Otherwise the order is that of the registry.
    /// Consumers ask for a few and take one of these.
    pub fn interfaces_for(&self, major: u32, host: &Host) -> Vec<&Entry> {
        let mut interfaces = self.interfaces();
        interfaces.sort_by_cached_key(|entry| (entry.api.major != major, !host.may_open(entry)));
        interfaces
    }

    /// What a consumer can open, as `dat_registry_list_providers` tells it: usable entries, duplicates once.
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

    /// The names that a consumer can open, each once; those of built-in entries first.
    pub fn names(&self) -> Vec<String> {
        let (builtin, others): (Vec<_>, Vec<_>) =
            self.interfaces().into_iter().partition(|entry| entry.origin == Origin::Builtin);
        let mut seen = HashSet::new();
        let names = builtin.into_iter().chain(others).map(|entry| &entry.ia_name);
        names.filter(|name| seen.insert(*name)).cloned().collect()
    }

    /// The entries that fit, in the order to try them: the file's before the built-in ones, and among these
    /// exact matches before a higher minor version or thread safety that was not asked for.
    pub fn find(&self, wanted: &Wanted<'_>) -> Result<Vec<&Candidate>, Mismatch> {
        let is_named = |c: &&Candidate| c.entry.usable() && c.entry.ia_name == wanted.name;
        let mut named: Vec<_> = self.fixed.iter().filter(is_named).collect();
        if named.is_empty() {
            named = self.found().iter().filter(is_named).collect();
        }
        let mut fitting = wanted.filter(named, |c| Offer::from(&c.entry))?;
        fitting.sort_by_key(|c| {
            (c.entry.origin == Origin::Builtin, !wanted.is_exact(&Offer::from(&c.entry)))
        });
        Ok(fitting)
    }
}

/// What a consumer asks for in `dat_ia_open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// IA name.
    pub name: &'a str,
    /// API major version; must be equal.
    pub major: u32,
    /// API minor version; a provider's may be higher (dat_ia_open: "or higher").
    pub minor: u32,
    /// Whether the consumer needs a thread-safe provider; one that does not may get one.
    pub threadsafe: bool,
}

/// What an entry or a registered provider offers under a name.
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

    /// Keeps those of equal name that fit, or says what was missing last.
    pub(crate) fn filter<T>(
        &self,
        mut found: Vec<T>,
        offer: impl Fn(&T) -> Offer,
    ) -> Result<Vec<T>, Mismatch> {
        let checks: [(Mismatch, &dyn Fn(Offer) -> bool); 4] = [
            (Mismatch::Name, &|_| true),
            (Mismatch::Major, &|offer| offer.major == self.major),
            (Mismatch::Minor, &|offer| offer.minor >= self.minor),
            (Mismatch::ThreadSafety, &|offer| offer.threadsafe || !self.threadsafe),
        ];
        for (mismatch, fits) in checks {
            found.retain(|item| fits(offer(item)));
            if found.is_empty() {
                return Err(mismatch);
            }
        }
        Ok(found)
    }
}

/// What no entry of the wanted name offers; the subtypes of DAT_PROVIDER_NOT_FOUND.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mismatch {
    /// Nothing has this name.
    Name,
    /// The name is there, for another major version.
    Major,
    /// The major version is there, with a lower minor version.
    Minor,
    /// The version is there, but not thread-safe.
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
