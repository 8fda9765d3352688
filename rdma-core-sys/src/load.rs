//! The libraries, opened once for a process.

use std::ffi::c_uint;
use std::sync::OnceLock;

use libloading::Library;

use crate::{RdmaCm, Verbs};

/// The functions of libibverbs and librdmacm.
pub struct RdmaCore {
    /// Those of libibverbs.
    pub verbs: Verbs,
    /// Those of librdmacm.
    pub cm: RdmaCm,
    /// Of release 35 or later: see [`RdmaCore::children_have_copies`].
    fork_status: Option<unsafe extern "C" fn() -> c_uint>,
    // Kept as long as the pointers are: for ever.
    _libraries: [Library; 2],
}

/// Why there are none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The library is not there, or the dynamic linker does not like it.
    #[error("{library} cannot be loaded: install {package} ({reason})")]
    Absent {
        /// Its name.
        library: &'static str,
        /// Debian's packages.
        package: &'static str,
        /// The dynamic linker's words.
        reason: String,
    },
    /// It is too old, or another library of that name.
    #[error("{library} is not of rdma-core release 17 or later: {reason}")]
    Symbol {
        /// Its name.
        library: &'static str,
        /// The dynamic linker's words.
        reason: String,
    },
}

impl RdmaCore {
    /// Both libraries, which stay loaded. The drivers of devices come with the package that a failure names, as plug-ins.
    ///
    /// # Errors
    /// As the type says; the answer is the same for the life of the process.
    pub fn load() -> Result<&'static RdmaCore, LoadError> {
        static LOADED: OnceLock<Result<RdmaCore, LoadError>> = OnceLock::new();
        LOADED
            .get_or_init(|| Self::open("libibverbs.so.1", "librdmacm.so.1"))
            .as_ref()
            .map_err(Clone::clone)
    }

    fn open(verbs: &'static str, cm: &'static str) -> Result<RdmaCore, LoadError> {
        let verbs_library = library(verbs, "libibverbs1 and ibverbs-providers")?;
        let cm_library = library(cm, "librdmacm1")?;
        let symbol = |library| move |e| LoadError::Symbol { library, reason: reason(&e) };
        Ok(RdmaCore {
            // SAFETY: the functions are declared as in its headers (tests/tests/rdma_core.rs), and it is kept.
            verbs: unsafe { Verbs::find(&verbs_library) }.map_err(symbol(verbs))?,
            // SAFETY: as above.
            cm: unsafe { RdmaCm::find(&cm_library) }.map_err(symbol(cm))?,
            // SAFETY: as above.
            fork_status: unsafe { verbs_library.get(b"ibv_is_fork_initialized\0") }
                .ok()
                .map(|found| *found),
            _libraries: [verbs_library, cm_library],
        })
    }

    /// The kernel copies registered memory for the child of a fork(2) (Linux 5.12), so that `ibv_fork_init`, which keeps it from
    /// children page by page, is not needed.
    pub fn children_have_copies(&self) -> bool {
        /// `IBV_FORK_UNNEEDED` of `enum ibv_fork_status`.
        const UNNEEDED: c_uint = 2;
        // SAFETY: no arguments.
        self.fork_status.is_some_and(|status| unsafe { status() } == UNNEEDED)
    }
}

fn library(library: &'static str, package: &'static str) -> Result<Library, LoadError> {
    // SAFETY: the libraries of rdma-core have no initialisers that depend on anything.
    unsafe { Library::new(library) }.map_err(|e| LoadError::Absent {
        library,
        package,
        reason: reason(&e),
    })
}

/// The dynamic linker's own words, which libloading has as the source.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_absent_is_named_with_its_package() {
        let error = RdmaCore::open("libibverbs-absent.so.1", "librdmacm.so.1")
            .err()
            .expect("there is none");
        let text = error.to_string();
        assert!(
            matches!(error, LoadError::Absent { library: "libibverbs-absent.so.1", .. }),
            "{text}"
        );
        assert!(text.contains("install libibverbs1 and ibverbs-providers"), "{text}");
        assert!(text.contains("No such file"), "{text}");
    }

    #[test]
    fn another_library_of_that_name_is_refused() {
        let error = RdmaCore::open("libc.so.6", "libc.so.6").err().expect("no verbs in there");
        let text = error.to_string();
        assert!(matches!(error, LoadError::Symbol { library: "libc.so.6", .. }), "{text}");
        assert!(text.contains("ibv_get_device_name"), "{text}");
    }
}
