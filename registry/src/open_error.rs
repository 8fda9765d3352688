//! The error of a failed open. It contains every attempt with its reason, and the names that exist.

use std::fmt;

use dat_sys::*;

use crate::entry::{Entry, Excerpt, Origin};
use crate::list::{List, Mismatch, Wanted};
use crate::load::LoadError;
use crate::status::{Status, in_version};

/// The reasons for which no IA was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError {
    /// The requested name.
    pub name: String,
    /// The requested API major version.
    pub major: u32,
    /// The requested API minor version.
    pub minor: u32,
    /// Whether thread safety was requested.
    pub threadsafe: bool,
    /// The property that no entry has. `None` if entries were tried.
    pub mismatch: Option<Mismatch>,
    /// Every entry that was tried, in order. A built-in provider may have one entry that is
    /// thread-safe and one that is not. If both failed for the same reason, they are one attempt
    /// here.
    pub attempts: Vec<Attempt>,
    /// The names in the registry. The names of built-in entries come first.
    known: Box<[String]>,
    /// The versions that the entries of the name offer, and the origins of these entries.
    offered: Box<[String]>,
    /// Whether the registry file has the name. The name of an entry that is switched off or has a
    /// mistake counts too.
    in_file: bool,
    /// The path of the registry file.
    file: Option<String>,
    /// Whether the registry file could not be read.
    file_unreadable: bool,
    /// Whether built-in entries are turned off.
    builtins_off: bool,
}

/// An entry that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The place of the entry.
    pub origin: Origin,
    /// The library of the entry, for an entry of a file.
    pub library: String,
    /// The IA parameters of the entry.
    pub ia_params: String,
    /// The reason for which the entry did not open.
    pub failure: OpenFailure,
}

/// The reason for which an entry did not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenFailure {
    /// The provider of the entry could not be loaded.
    NotLoaded(LoadError),
    /// The provider of the entry returned this status from `dat_ia_open`.
    Refused(Status),
}

/// The similarity, from 0 to 1, above which the message suggests a known name in place of an
/// unknown one.
const MIN_SIMILARITY: f64 = 0.85;
/// The maximum number of attempts that a message shows.
const MAX_SHOWN_ATTEMPTS: usize = 8;
/// The maximum number of names that a message shows.
const MAX_SHOWN_NAMES: usize = 8;

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
            file_unreadable: list.file_unreadable(),
            builtins_off: list.builtins_off(),
        }
    }

    /// The known name that is most similar to the requested one, if any is similar enough.
    fn similar_name(&self) -> Option<&str> {
        let similarity = |known: &str| strsim::jaro_winkler(known, &self.name);
        let known = self.known.iter().map(|known| (similarity(known), known.as_str()));
        known
            .filter(|(similarity, _)| *similarity > MIN_SIMILARITY)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, known)| known)
    }

    /// The status for the consumer, in the numbers of the requested version: the first status that
    /// a provider returned, or else DAT_PROVIDER_NOT_FOUND with the subtype for the missing
    /// property.
    pub fn status(&self) -> DAT_RETURN {
        let refused = self.attempts.iter().find_map(|attempt| match attempt.failure {
            OpenFailure::Refused(status) => Some(status.word),
            OpenFailure::NotLoaded(_) => None,
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
    pub(crate) fn new(entry: &Entry, failure: OpenFailure) -> Attempt {
        let Entry { origin, library, ia_params, .. } = entry.clone();
        Attempt { origin, library, ia_params, failure }
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
                    ": the registry file has this name, but its entry is switched off or has a \
                     mistake",
                )?;
            } else {
                write!(f, ": {mismatch}")?;
            }
            if mismatch == Mismatch::Name && !self.in_file {
                if let Some(similar_name) = self.similar_name() {
                    write!(f, " (did you mean {similar_name}?)")?;
                }
                let shown =
                    self.known.iter().take(MAX_SHOWN_NAMES).cloned().collect::<Vec<_>>().join(", ");
                match self.known.len() {
                    0 => f.write_str("; none are known")?,
                    1..=MAX_SHOWN_NAMES => write!(f, "; known are {shown}")?,
                    many => write!(f, "; known are {shown} and {} more", many - MAX_SHOWN_NAMES)?,
                }
            }
            if !self.offered.is_empty() {
                let offered = &self.offered[..self.offered.len().min(MAX_SHOWN_NAMES)];
                write!(f, "; there is {}", offered.join(", "))?;
            }
            if let Some(more @ 1..) = self.offered.len().checked_sub(MAX_SHOWN_NAMES) {
                write!(f, " and {more} more")?;
            }
            let file = self.file.as_deref().unwrap_or("none");
            let off = if self.builtins_off {
                "; built-in providers are turned off by builtin=off in OPENDAT_PARAMS"
            } else if self.file_unreadable {
                "; built-in entries are hidden, because the registry file cannot be read"
            } else {
                ""
            };
            write!(f, " (registry file: {file}{off})")?;
        }
        for attempt in self.attempts.iter().take(MAX_SHOWN_ATTEMPTS) {
            write!(f, "\n    {attempt}")?;
        }
        if let Some(more @ 1..) = self.attempts.len().checked_sub(MAX_SHOWN_ATTEMPTS) {
            write!(f, "\n    and {more} more entries of this name")?;
        }
        Ok(())
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attempt { origin, library, ia_params, failure } = self;
        match origin {
            Origin::File { .. } => {
                write!(f, "{origin}: {} {:?}: {failure}", Excerpt(library), Excerpt(ia_params))
            }
            _ if ia_params.is_empty() => write!(f, "{origin}: {failure}"),
            _ => write!(f, "{origin} {:?}: {failure}", Excerpt(ia_params)),
        }
    }
}

impl fmt::Display for OpenFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenFailure::NotLoaded(error) => match error.remedy() {
                Some(remedy) => write!(f, "{error}; {remedy}"),
                None => error.fmt(f),
            },
            OpenFailure::Refused(status) => {
                write!(f, "the provider's dat_ia_open answered {:#010x} ({status})", status.word)
            }
        }
    }
}
