//! Opening an IA: from a name to an open adapter, trying entry after entry, keeping each reason.

use std::ptr::null_mut;
use std::sync::OnceLock;

use dat_sys::*;

use crate::dynamic::{self, Table};
use crate::entry::Origin;
use crate::list::{Builtin, Candidate, List, Mismatch, Wanted};
use crate::load::{self, Provider};
use crate::open_error::{Attempt, OpenError, Why};
use crate::report::{About, say};
use crate::status::{Status, in_version};
use crate::{handle, ia};

/// Of the mistakes in the registry's sources, so many are told.
const MISTAKES: usize = 8;

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
            for error in list.errors().iter().take(MISTAKES) {
                say(About::Error, error);
            }
            if let (Some(more @ 1..), Some(file)) =
                (list.errors().len().checked_sub(MISTAKES), list.file())
            {
                say(
                    About::Error,
                    format_args!("{more} more mistakes: `dat check {}` shows them", file.display()),
                );
            }
            list
        })
    }

    /// Opens an IA. The fitting entries are tried in order until the library of one can be loaded; the answer
    /// of its provider is final. So an adapter that refuses its parameters is not replaced by another one
    /// with other parameters.
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
                Err(why) => {
                    let is_last = !matches!(&why, Why::NotLoaded(error) if error.is_not_loaded());
                    let attempt = Attempt::new(&candidate.entry, why);
                    // Entries that differ in thread safety alone.
                    if attempts.last() != Some(&attempt) {
                        attempts.push(attempt);
                    }
                    if is_last {
                        break;
                    }
                }
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
            origin: Origin::Program,
            library: String::new(),
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
        let error = OpenError::new(&request.wanted, mismatch, attempts, self.list());
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

/// Opens an IA of a provider that is in memory; the provider goes again where that fails. The word of the table that is
/// used, `ia_open_func`, is the same in every version.
fn open_with(provider: Provider, request: &Request<'_>) -> Result<Opened, Status> {
    let major = provider.interface.major;
    let Table(table) = provider.table;
    // The name of the entry, as the provider registered it.
    let name = provider.interface.to_c().ia_name;
    // SAFETY: `provider` keeps the table in memory.
    let Some(open) = (unsafe { (*table).ia_open_func }) else {
        let word = in_version(major, DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE));
        return Err(Status { word, major });
    };
    let mut async_evd = request.async_evd;
    let mut provider_ia = DAT_HANDLE_NULL;
    // SAFETY: the provider's own function; the name is NUL-terminated and the out arguments are writable. Providers
    // take the name without const but only read it.
    let status = unsafe {
        open(name.as_ptr().cast_mut(), request.async_evd_qlen, &mut async_evd, &mut provider_ia)
    };
    if status != DAT_SUCCESS {
        return Err(Status { word: status, major });
    }
    let (ia, of_ia) = ia::enter(provider_ia, provider);
    let Table(table) = of_ia;
    // uDAPL 1.2 has no extensions, and another structure to ask for.
    // SAFETY: as above, with the handle that the provider just gave.
    if major >= 2 && unsafe { supports_extensions(table, provider_ia) } {
        handle::set_extended(of_ia);
    }
    Ok(Opened { ia, provider_ia, table, async_evd })
}

/// # Safety
///
/// `provider_ia` is an open IA of the provider whose table, of uDAPL 2.0, this is.
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
