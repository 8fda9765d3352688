//! Opens an IA by name. Tries one entry after the other, and records the reason of each failure.

use std::ptr::null_mut;
use std::sync::OnceLock;

use dat_sys::*;
use telemetry::{Category, report};

use crate::dynamic::{self, FunctionTable};
use crate::entry::Origin;
use crate::list::{Builtins, Candidate, List, Mismatch, Wanted};
use crate::load::{self, Provider};
use crate::open_error::{Attempt, OpenError, OpenFailure};
use crate::status::{Status, in_version};
use crate::{handle, ia};

/// The number of errors in the registry's sources that are reported.
const MAX_REPORTED_ERRORS: usize = 8;

/// The registry of a program or library: its entries, read when first needed, and its built-in
/// providers.
///
/// The registered providers and the open IAs are global to the process.
#[derive(Debug)]
pub struct Registry {
    builtins: Builtins,
    list: OnceLock<List>,
    /// The category of the errors that [`open`](Self::open) returns.
    open_errors: Category,
}

/// The arguments of `dat_ia_open`.
#[derive(Debug)]
pub struct OpenRequest<'a> {
    /// The name, version and thread safety that the consumer requests.
    pub wanted: Wanted<'a>,
    /// The minimum queue length of the asynchronous EVD, in events. It is passed to the provider.
    pub async_evd_qlen: DAT_COUNT,
    /// The asynchronous EVD to share, or DAT_HANDLE_NULL for a new one.
    pub async_evd: DAT_EVD_HANDLE,
}

/// An open IA.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// The consumer's handle, which is a small integer.
    pub ia: DAT_IA_HANDLE,
    /// The provider's handle, which the provider's functions take.
    pub provider_ia: DAT_IA_HANDLE,
    /// The provider's functions. The pointer is valid until [`close`](crate::close).
    pub table: *const DAT_PROVIDER,
    /// The asynchronous EVD of the IA.
    pub async_evd: DAT_EVD_HANDLE,
}

impl Registry {
    /// A registry that reads the entries of the environment ([`List::from_environment`]) on first
    /// use.
    pub const fn new(builtins: Builtins) -> Registry {
        Registry { builtins, list: OnceLock::new(), open_errors: Category::ReturnedError }
    }

    /// Makes [`open`](Self::open) also report its errors to the user. C programs need the reports,
    /// because they get only the status.
    pub const fn reporting_open_errors(mut self) -> Registry {
        self.open_errors = Category::Error;
        self
    }

    /// A registry of given entries.
    pub fn with_list(list: List) -> Registry {
        Registry { list: OnceLock::from(list), ..Registry::new(Builtins::NONE) }
    }

    /// Reads the entries if they have not been read yet, and does not report the errors in their
    /// sources. A process uses this function if its parent has reported these errors.
    pub fn read_silently(&self) {
        self.list.get_or_init(|| List::from_environment(self.builtins));
    }

    /// The list of entries. Errors in their sources are reported once, when the list is read.
    pub fn list(&self) -> &List {
        self.list.get_or_init(|| {
            let list = List::from_environment(self.builtins);
            for error in list.errors().iter().take(MAX_REPORTED_ERRORS) {
                report(Category::Error, error);
            }
            if let (Some(more @ 1..), Some(file)) =
                (list.errors().len().checked_sub(MAX_REPORTED_ERRORS), list.file())
            {
                report(
                    Category::Error,
                    format_args!("{more} more mistakes: `dat check {}` shows them", file.display()),
                );
            }
            list
        })
    }

    /// Opens an IA. The registry tries the fitting entries in order until the library of one entry
    /// can be loaded. The result of that provider is final: if it rejects its parameters, no entry
    /// with other parameters is tried.
    ///
    /// # Errors
    ///
    /// [`OpenError`] contains the status for the consumer, and every attempt with the reason of its
    /// failure. If a later attempt succeeds, the failed ones are reported only as messages of the
    /// registry.
    pub fn open(&self, request: &OpenRequest<'_>) -> Result<Opened, OpenError> {
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
                Err(failure) => {
                    let is_last =
                        !matches!(&failure, OpenFailure::NotLoaded(error) if error.is_not_loaded());
                    let attempt = Attempt::new(&candidate.entry, failure);
                    // A provider may have one entry that is thread-safe and one that is not. If
                    // both fail for the same reason, only one attempt is recorded.
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

    /// Reports that the program asks the library of this registry for an IA of another version of
    /// uDAPL, whose structures differ.
    pub fn report_other_version(&self, name: &str, asked: (u32, u32), library: u32) {
        report(self.open_errors, other_version(name, asked, library));
    }

    /// Opens an IA of a provider that the program itself registered, for names without an entry.
    fn open_registered(&self, request: &OpenRequest<'_>) -> Option<Result<Opened, Attempt>> {
        let (table, interface) = dynamic::find(&request.wanted).ok()?.into_iter().next()?;
        let attempt = |status| Attempt {
            origin: Origin::Program,
            library: String::new(),
            ia_params: String::new(),
            failure: OpenFailure::Refused(status),
        };
        Some(open_with(Provider::foreign(table, interface), request).map_err(attempt))
    }

    fn report_success(&self, request: &OpenRequest<'_>, failed: &[Attempt]) {
        for attempt in failed {
            report(
                Category::StaticRegistry,
                format_args!("{}: {attempt}; the next entry opened", request.wanted.name),
            );
        }
    }

    fn failure(
        &self,
        request: &OpenRequest<'_>,
        mismatch: Option<Mismatch>,
        attempts: Vec<Attempt>,
    ) -> OpenError {
        let error = OpenError::new(&request.wanted, mismatch, attempts, self.list());
        report(self.open_errors, &error);
        error
    }
}

fn other_version(name: &str, (major, minor): (u32, u32), library: u32) -> String {
    format!(
        "cannot open IA {name:?} (u{major}.{minor}): the program has called a library of uDAPL \
         {library}; link it with the library whose headers it includes"
    )
}

/// Opens an IA of this entry, regardless of other entries of the same name. Does not report an
/// error to the user, because the caller lists or checks many entries.
///
/// # Errors
///
/// Returns why the entry does not open.
pub fn open_candidate(
    candidate: &Candidate,
    request: &OpenRequest<'_>,
) -> Result<Opened, OpenFailure> {
    let provider = load::acquire(candidate).map_err(OpenFailure::NotLoaded)?;
    open_with(provider, request).map_err(OpenFailure::Refused)
}

/// Opens an IA of a loaded provider and releases the provider if that fails. The only table word
/// used, `ia_open_func`, is the same in every version.
fn open_with(provider: Provider, request: &OpenRequest<'_>) -> Result<Opened, Status> {
    let major = provider.interface.major;
    let FunctionTable(table) = provider.table;
    // `name` is the name under which the provider has registered.
    let name = provider.interface.to_c().ia_name;
    // SAFETY: `provider` keeps the table in memory.
    let Some(open) = (unsafe { (*table).ia_open_func }) else {
        let word = in_version(major, DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE));
        return Err(Status { word, major });
    };
    let mut async_evd = request.async_evd;
    let mut provider_ia = DAT_HANDLE_NULL;
    // SAFETY: the name is NUL-terminated and the out arguments are writable. Providers take the
    // name without const but only read it.
    let status = unsafe {
        open(name.as_ptr().cast_mut(), request.async_evd_qlen, &mut async_evd, &mut provider_ia)
    };
    if status != DAT_SUCCESS {
        return Err(Status { word: status, major });
    }
    let (ia, ia_table) = match ia::insert(provider_ia, provider) {
        Ok(inserted) => inserted,
        Err(provider) => {
            // SAFETY: `provider` keeps the table in memory. The function gets the provider's own
            // handle, which nobody else has.
            unsafe {
                (*table).ia_close_func.map(|close| close(provider_ia, DAT_CLOSE_ABRUPT_FLAG))
            };
            drop(provider);
            let word = in_version(major, DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_NO_SUBTYPE));
            return Err(Status { word, major });
        }
    };
    let FunctionTable(table) = ia_table;
    // A provider of uDAPL 1.2 is not queried, because that version has no extensions, and its query
    // fills in another structure.
    // SAFETY: the provider is loaded, and it has just returned this handle.
    if major >= 2 && unsafe { supports_extensions(table, provider_ia) } {
        handle::set_has_extensions(ia_table);
    }
    Ok(Opened { ia, provider_ia, table, async_evd })
}

/// Asks a provider whether it supports extensions.
///
/// # Safety
///
/// `provider_ia` must be an open IA of a uDAPL 2.0 provider, and `table` the table of that
/// provider.
unsafe fn supports_extensions(table: *const DAT_PROVIDER, provider_ia: DAT_IA_HANDLE) -> bool {
    let mut attr = DAT_IA_ATTR::zeroed();
    // SAFETY: the call passes the provider's own handle to its function. With an empty mask and a
    // null pointer, the function fills in no provider attributes.
    let status = unsafe {
        (*table)
            .ia_query_func
            .map(|query| query(provider_ia, null_mut(), DAT_IA_FIELD_ALL, &mut attr, 0, null_mut()))
    };
    status == Some(DAT_SUCCESS) && attr.extension_supported != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_another_version_learns_what_to_link() {
        assert_eq!(
            other_version("tcp-emu", (1, 2), 2),
            "cannot open IA \"tcp-emu\" (u1.2): the program has called a library of uDAPL 2; link \
             it with the library whose headers it includes"
        );
    }
}
