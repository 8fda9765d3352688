//! Opening an IA: from a name to an open adapter, trying entry after entry, keeping each reason.

use std::fmt;
use std::ptr::null_mut;
use std::sync::OnceLock;

use dat_sys::*;

use crate::dynamic::{self, Table};
use crate::entry::{Entry, Origin};
use crate::list::{Builtin, Candidate, List, Mismatch, Wanted};
use crate::load::{self, LoadError, Provider};
use crate::report::{About, say};
use crate::status::Status;
use crate::{handle, ia};

/// The registry of a program or library: its entries, read when first needed, and its built-in providers.
///
/// What registered itself, and which IAs are open, is one for the whole process.
#[derive(Debug)]
pub struct Registry {
    builtins: &'static [Builtin],
    list: OnceLock<List>,
}

/// What `dat_ia_open` is given.
#[derive(Debug)]
pub struct Request<'a> {
    /// Name, version, thread safety.
    pub wanted: Wanted<'a>,
    /// Least length of the asynchronous EVD's queue, in events; for the provider.
    pub async_evd_qlen: DAT_COUNT,
    /// In: DAT_HANDLE_NULL for a new asynchronous EVD, or one to share. Out: the IA's.
    pub async_evd: DAT_EVD_HANDLE,
}

/// An open IA.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// The consumer's handle: a small integer.
    pub ia: DAT_IA_HANDLE,
    /// The provider's handle: what its functions take.
    pub provider_ia: DAT_IA_HANDLE,
    /// The provider's functions; valid until [`close`](crate::close).
    pub table: *const DAT_PROVIDER,
    /// The asynchronous EVD of the IA.
    pub async_evd: DAT_EVD_HANDLE,
}

impl Registry {
    /// A registry that reads the entries of the environment ([`List::from_environment`]) when first used.
    pub const fn new(builtins: &'static [Builtin]) -> Registry {
        Registry { builtins, list: OnceLock::new() }
    }

    /// A registry of given entries.
    pub fn with_list(list: List) -> Registry {
        Registry { builtins: &[], list: OnceLock::from(list) }
    }

    /// The entries; mistakes in their sources are reported once, when they are read.
    pub fn list(&self) -> &List {
        self.list.get_or_init(|| {
            let list = List::from_environment(self.builtins);
            for error in list.errors() {
                say(About::Error, error);
            }
            list
        })
    }

    /// Opens an IA: every fitting entry in order, until the provider of one opens.
    ///
    /// # Errors
    ///
    /// [`OpenError`] holds the status for the consumer and every attempt with its reason. It is also reported
    /// ([`report`](crate::report)); attempts before one that succeeds are reported as library messages only.
    pub fn open(&self, request: &Request<'_>) -> Result<Opened, OpenError> {
        let (candidates, mismatch) = match self.list().find(&request.wanted) {
            Ok(candidates) => (candidates, None),
            Err(mismatch) => (Vec::new(), Some(mismatch)),
        };
        let mut attempts = Vec::new();
        for candidate in candidates {
            match open_candidate(candidate, request) {
                Ok(opened) => {
                    self.report_success(request, &attempts);
                    return Ok(opened);
                }
                Err(why) => attempts.push(Attempt::new(&candidate.entry, why)),
            }
        }
        if mismatch.is_some() {
            match self.open_registered(request) {
                Some(Ok(opened)) => return Ok(opened),
                Some(Err(attempt)) => attempts.push(attempt),
                None => {}
            }
        }
        let mismatch = mismatch.filter(|_| attempts.is_empty());
        Err(self.failure(request, mismatch, attempts))
    }

    /// A name that only a provider registered by the program itself has.
    fn open_registered(&self, request: &Request<'_>) -> Option<Result<Opened, Attempt>> {
        let (table, interface) = dynamic::find(&request.wanted).ok()?.into_iter().next()?;
        let attempt = |status| Attempt {
            origin: Origin::Builtin,
            library: "registered by the program".into(),
            ia_params: String::new(),
            why: Why::Refused(status),
        };
        Some(open_with(Provider::foreign(table, interface), request).map_err(attempt))
    }

    fn report_success(&self, request: &Request<'_>, failed: &[Attempt]) {
        for attempt in failed {
            say(
                About::StaticRegistry,
                format_args!("{}: {attempt}; the next entry opened", request.wanted.name),
            );
        }
    }

    fn failure(
        &self,
        request: &Request<'_>,
        mismatch: Option<Mismatch>,
        attempts: Vec<Attempt>,
    ) -> OpenError {
        let Wanted { name, major, minor, threadsafe } = request.wanted;
        let error = OpenError {
            name: name.to_owned(),
            major,
            minor,
            threadsafe,
            mismatch,
            attempts,
            known: self.list().names(),
            file: self.list().file().map(|path| path.display().to_string()),
        };
        say(About::Error, &error);
        error
    }
}

/// Opens an IA of one entry, whatever others there are of its name, and reports nothing: for listings and checks.
///
/// # Errors
///
/// Why the entry does not open.
pub fn open_candidate(candidate: &Candidate, request: &Request<'_>) -> Result<Opened, Why> {
    let provider = load::acquire(candidate).map_err(Why::NotLoaded)?;
    open_with(provider, request).map_err(Why::Refused)
}

/// Opens an IA of a provider that is in memory; the provider goes again where that fails.
fn open_with(provider: Provider, request: &Request<'_>) -> Result<Opened, DAT_RETURN> {
    let provider_table = provider.table;
    let Table(table) = provider_table;
    // The name of the entry, as the provider registered it.
    let name = provider.interface.to_c().ia_name;
    // SAFETY: `provider` keeps the table in memory.
    let open = unsafe { (*table).ia_open_func }.ok_or(DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE))?;
    let mut async_evd = request.async_evd;
    let mut provider_ia = DAT_HANDLE_NULL;
    // SAFETY: the provider's own function; the name is NUL-terminated and the out arguments are writable. Providers
    // take the name without const but only read it.
    let status =
        unsafe { open(name.as_ptr().cast_mut(), request.async_evd_qlen, &mut async_evd, &mut provider_ia) };
    if status != DAT_SUCCESS {
        return Err(status);
    }
    let ia = ia::enter(provider_ia, provider);
    // SAFETY: as above, with the handle that the provider just gave.
    if unsafe { supports_extensions(table, provider_ia) } {
        handle::set_extended(provider_table);
    }
    Ok(Opened { ia, provider_ia, table, async_evd })
}

/// # Safety
///
/// `provider_ia` is an open IA of the provider whose table this is.
unsafe fn supports_extensions(table: *const DAT_PROVIDER, provider_ia: DAT_IA_HANDLE) -> bool {
    let mut attr = DAT_IA_ATTR::zeroed();
    // SAFETY: the provider's own function and handle; with an empty mask and null it fills in no provider attributes.
    let status = unsafe {
        (*table)
            .ia_query_func
            .map(|query| query(provider_ia, null_mut(), DAT_IA_FIELD_ALL, &mut attr, 0, null_mut()))
    };
    status == Some(DAT_SUCCESS) && attr.extension_supported != 0
}

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
    /// Every entry that was tried, in order.
    pub attempts: Vec<Attempt>,
    /// The names that the registry has.
    known: Vec<String>,
    /// The registry file.
    file: Option<String>,
}

/// An entry that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Where the entry is.
    pub origin: Origin,
    /// Its library.
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
    Refused(DAT_RETURN),
}

impl OpenError {
    /// The status for the consumer: what the first provider that was asked said, else DAT_PROVIDER_NOT_FOUND with the
    /// subtype of what is missing.
    pub fn status(&self) -> DAT_RETURN {
        let refused = self.attempts.iter().find_map(|attempt| match attempt.why {
            Why::Refused(status) => Some(status),
            Why::NotLoaded(_) => None,
        });
        let subtype = match self.mismatch {
            None | Some(Mismatch::Name) => DAT_NAME_NOT_REGISTERED,
            Some(Mismatch::Major) => DAT_MAJOR_NOT_FOUND,
            Some(Mismatch::Minor) => DAT_MINOR_NOT_FOUND,
            Some(Mismatch::ThreadSafety) => DAT_THREAD_SAFETY_NOT_FOUND,
        };
        refused.unwrap_or(DAT_ERROR(DAT_PROVIDER_NOT_FOUND, subtype))
    }
}

impl Attempt {
    fn new(entry: &Entry, why: Why) -> Attempt {
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
            write!(f, ": {mismatch}")?;
            if mismatch == Mismatch::Name {
                match self.known.len() {
                    0 => f.write_str("; none are known")?,
                    1..=8 => write!(f, "; known are {}", self.known.join(", "))?,
                    many => write!(f, "; {many} others are known")?,
                }
                write!(f, " (registry file: {})", self.file.as_deref().unwrap_or("none"))?;
            }
        }
        for attempt in &self.attempts {
            write!(f, "\n    {attempt}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {:?}: {}", self.origin, self.library, self.ia_params, self.why)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::NotLoaded(error) => error.fmt(f),
            Why::Refused(status) => {
                write!(f, "the provider's dat_ia_open answered {status:#010x} ({})", Status(*status))
            }
        }
    }
}
