//! Loads the libraries, once for each process.

use std::ffi::c_uint;
use std::sync::OnceLock;

use libloading::Library;

use crate::{RdmaCm, Verbs};

/// The functions of libibverbs and librdmacm.
pub struct RdmaCore {
    /// The functions of libibverbs.
    pub verbs: Verbs,
    /// The functions of librdmacm.
    pub cm: RdmaCm,
    /// The function `ibv_is_fork_initialized`, which exists in release 35 or later: see
    /// [`RdmaCore::fork_copies_memory`].
    fork_status: Option<unsafe extern "C" fn() -> c_uint>,
    // The libraries stay loaded forever, because the pointers to their functions exist forever.
    _libraries: [Library; 2],
}

/// The reason why the libraries cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The library is missing, or the dynamic linker cannot load the library.
    #[error("{library} cannot be loaded: install {package} ({reason})")]
    NotLoaded {
        /// The name of the library.
        library: &'static str,
        /// The Debian packages that contain the library.
        package: &'static str,
        /// The message of the dynamic linker.
        reason: String,
    },
    /// The library is too old, or is another library of the same name.
    #[error("{library} is not of rdma-core release 17 or later: {reason}")]
    Symbol {
        /// The name of the library.
        library: &'static str,
        /// The message of the dynamic linker.
        reason: String,
    },
}

impl RdmaCore {
    /// Loads both libraries, which then stay loaded. If a library is missing, the error names the
    /// Debian packages to install. These packages also contain the drivers of devices, which the
    /// library loads as plug-ins.
    ///
    /// # Errors
    /// See [`LoadError`]. The result does not change while the process runs.
    pub fn load() -> Result<&'static RdmaCore, LoadError> {
        static LOADED: OnceLock<Result<RdmaCore, LoadError>> = OnceLock::new();
        LOADED
            .get_or_init(|| Self::open("libibverbs.so.1", "librdmacm.so.1"))
            .as_ref()
            .map_err(Clone::clone)
    }

    fn open(verbs: &'static str, cm: &'static str) -> Result<RdmaCore, LoadError> {
        let verbs_library = open_library(verbs, "libibverbs1 and ibverbs-providers")?;
        let cm_library = open_library(cm, "librdmacm1")?;
        let symbol = |library| move |e| LoadError::Symbol { library, reason: reason(&e) };
        Ok(RdmaCore {
            // SAFETY: the functions are declared as in the library's headers
            // (tests/tests/rdma_core.rs), and the library stays loaded.
            verbs: unsafe { Verbs::find(&verbs_library) }.map_err(symbol(verbs))?,
            // SAFETY: the functions are declared as in the library's headers
            // (tests/tests/rdma_core.rs), and the library stays loaded.
            cm: unsafe { RdmaCm::find(&cm_library) }.map_err(symbol(cm))?,
            // SAFETY: the functions are declared as in the library's headers
            // (tests/tests/rdma_core.rs), and the library stays loaded.
            fork_status: unsafe { verbs_library.get(b"ibv_is_fork_initialized\0") }
                .ok()
                .map(|found| *found),
            _libraries: [verbs_library, cm_library],
        })
    }

    /// Returns whether the kernel copies registered memory for the child of a fork(2), as Linux
    /// 5.12 and later do. On such a kernel, `ibv_fork_init` is not needed. That function marks each
    /// registered page so that a child does not inherit it.
    pub fn fork_copies_memory(&self) -> bool {
        /// The value of `IBV_FORK_UNNEEDED` in `enum ibv_fork_status`.
        const UNNEEDED: c_uint = 2;
        // SAFETY: the function takes no arguments and has no preconditions.
        self.fork_status.is_some_and(|status| unsafe { status() } == UNNEEDED)
    }
}

fn open_library(library: &'static str, package: &'static str) -> Result<Library, LoadError> {
    // SAFETY: loading runs the library's initialisers. Those of rdma-core have no preconditions.
    unsafe { Library::new(library) }.map_err(|e| LoadError::NotLoaded {
        library,
        package,
        reason: reason(&e),
    })
}

/// Returns the message of the dynamic linker, which libloading stores as the source of its error.
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
            .expect("a missing library must not load");
        let text = error.to_string();
        assert!(
            matches!(error, LoadError::NotLoaded { library: "libibverbs-absent.so.1", .. }),
            "{text}"
        );
        assert!(text.contains("install libibverbs1 and ibverbs-providers"), "{text}");
        assert!(text.contains("No such file"), "{text}");
    }

    #[test]
    fn another_library_of_that_name_is_refused() {
        let error =
            RdmaCore::open("libc.so.6", "libc.so.6").err().expect("libc has no functions of verbs");
        let text = error.to_string();
        assert!(matches!(error, LoadError::Symbol { library: "libc.so.6", .. }), "{text}");
        assert!(text.contains("ibv_get_device_name"), "{text}");
    }
}
