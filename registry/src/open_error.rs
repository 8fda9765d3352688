//! Why no IA was opened: every attempt with its reason, and the names there are.

use std::fmt;

use dat_sys::*;

use crate::entry::{Entry, Origin, Shown};
use crate::list::{List, Mismatch, Wanted};
use crate::load::LoadError;
use crate::status::{Status, in_version};

/// Why no IA was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError {
    /// The name asked for.
    pub name: String,
    /// The API major version asked for.
    pub major: u32,
    /// The API minor version asked for.
    pub minor: u32,
    /// Whether thread safety was asked for.
    pub threadsafe: bool,
    /// What no entry offers; `None` when entries were tried.
    pub mismatch: Option<Mismatch>,
    /// Every entry that was tried, in order. Built-in entries that differ in thread safety alone and failed for the
    /// same reason count as one.
    pub attempts: Vec<Attempt>,
    /// The names that the registry has, those of built-in entries first.
    known: Box<[String]>,
    /// What the entries of the name offer, and where they are.
    offered: Box<[String]>,
    /// Whether the registry file has the name. An entry that is switched off or has a mistake counts, too.
    in_file: bool,
    /// The registry file.
    file: Option<String>,
    /// Whether built-in entries are turned off.
    builtins_off: bool,
}

/// An entry that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Where the entry is.
    pub origin: Origin,
    /// Its library, for an entry of a file.
    pub library: String,
    /// Its IA parameters.
    pub ia_params: String,
    /// Why it did not open.
    pub why: Why,
}

/// Why an entry did not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its provider could not be brought in.
    NotLoaded(LoadError),
    /// Its provider was asked and refused, with this status.
    Refused(Status),
}

/// From here on a name may be a slip of another, of 1.
const ALIKE: f64 = 0.85;
/// Of the entries that were tried, so many are shown.
const ATTEMPTS: usize = 8;
/// A list of names is cut to so many.
const NAMES: usize = 8;

impl OpenError {
    pub(crate) fn new(
        wanted: &Wanted<'_>,
        mismatch: Option<Mismatch>,
        attempts: Vec<Attempt>,
        list: &List,
    ) -> OpenError {
        let Wanted { name, major, minor, threadsafe } = *wanted;
        OpenError {
            name: name.to_owned(),
            major,
            minor,
            threadsafe,
            mismatch,
            attempts,
            known: list.names().into(),
            offered: list
                .interfaces()
                .into_iter()
                .filter(|entry| entry.ia_name == name)
                .map(offer)
                .collect(),
            in_file: list.is_in_file(name),
            file: list.file().map(|path| path.display().to_string()),
            builtins_off: list.builtins_off(),
        }
    }

    /// The known name that is most like the one asked for, if one is.
    fn alike(&self) -> Option<&str> {
        let likeness = |known: &str| strsim::jaro_winkler(known, &self.name);
        let known = self.known.iter().map(|known| (likeness(known), known.as_str()));
        known
            .filter(|(likeness, _)| *likeness > ALIKE)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, known)| known)
    }

    /// The status for the consumer: what the first provider that was asked said, else DAT_PROVIDER_NOT_FOUND with the
    /// subtype of what is missing, in the numbers of the version asked for.
    pub fn status(&self) -> DAT_RETURN {
        let refused = self.attempts.iter().find_map(|attempt| match attempt.why {
            Why::Refused(status) => Some(status.word),
            Why::NotLoaded(_) => None,
        });
        let subtype = match self.mismatch {
            None | Some(Mismatch::Name) => DAT_NAME_NOT_REGISTERED,
            Some(Mismatch::Major) => DAT_MAJOR_NOT_FOUND,
            Some(Mismatch::Minor) => DAT_MINOR_NOT_FOUND,
            Some(Mismatch::ThreadSafety) => DAT_THREAD_SAFETY_NOT_FOUND,
        };
        refused.unwrap_or(in_version(self.major, DAT_ERROR(DAT_PROVIDER_NOT_FOUND, subtype)))
    }
}

fn offer(entry: &Entry) -> String {
    let safety = if entry.threadsafe { "thread-safe" } else { "not thread-safe" };
    format!("{} {safety} ({})", entry.api, entry.origin)
}

impl Attempt {
    pub(crate) fn new(entry: &Entry, why: Why) -> Attempt {
        let Entry { origin, library, ia_params, .. } = entry.clone();
        Attempt { origin, library, ia_params, why }
    }
}

impl std::error::Error for OpenError {}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OpenError { name, major, minor, .. } = self;
        let safety = if self.threadsafe { ", thread-safe" } else { "" };
        write!(f, "cannot open IA {name:?} (u{major}.{minor}{safety})")?;
        if let Some(mismatch) = self.mismatch {
            if mismatch == Mismatch::Name && self.in_file {
                f.write_str(
                    ": the registry file has this name, but its entry is switched off or has a mistake",
                )?;
            } else {
                write!(f, ": {mismatch}")?;
            }
            if mismatch == Mismatch::Name && !self.in_file {
                if let Some(alike) = self.alike() {
                    write!(f, " (did you mean {alike}?)")?;
                }
                let shown = self.known.iter().take(NAMES).cloned().collect::<Vec<_>>().join(", ");
                match self.known.len() {
                    0 => f.write_str("; none are known")?,
                    1..=NAMES => write!(f, "; known are {shown}")?,
                    many => write!(f, "; known are {shown} and {} more", many - NAMES)?,
                }
            }
            if !self.offered.is_empty() {
                let offered = &self.offered[..self.offered.len().min(NAMES)];
                write!(f, "; there is {}", offered.join(", "))?;
            }
            if let Some(more @ 1..) = self.offered.len().checked_sub(NAMES) {
                write!(f, " and {more} more")?;
            }
            let file = self.file.as_deref().unwrap_or("none");
            let off = if self.builtins_off {
                "; built-in providers are turned off by OPENDAT_BUILTIN=0"
            } else {
                ""
            };
            write!(f, " (registry file: {file}{off})")?;
        }
        for attempt in self.attempts.iter().take(ATTEMPTS) {
            write!(f, "\n    {attempt}")?;
        }
        if let Some(more @ 1..) = self.attempts.len().checked_sub(ATTEMPTS) {
            write!(f, "\n    and {more} more entries of this name")?;
        }
        Ok(())
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attempt { origin, library, ia_params, why } = self;
        match origin {
            Origin::File { .. } => {
                write!(f, "{origin}: {} {:?}: {why}", Shown(library), Shown(ia_params))
            }
            _ if ia_params.is_empty() => write!(f, "{origin}: {why}"),
            _ => write!(f, "{origin} {:?}: {why}", Shown(ia_params)),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::NotLoaded(error) => match error.remedy() {
                Some(remedy) => write!(f, "{error}; {remedy}"),
                None => error.fmt(f),
            },
            Why::Refused(status) => {
                write!(f, "the provider's dat_ia_open answered {:#010x} ({status})", status.word)
            }
        }
    }
}
