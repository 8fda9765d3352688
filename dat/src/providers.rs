//! The default registry, and the adapters that are built in.

use registry::{Api, Builtins, Registry};

/// The adapters that are built into this crate, which its features select.
pub fn builtins() -> Builtins {
    BUILTINS
}

/// The registry of [`Adapter::open`](crate::Adapter::open): the file that DAT_OVERRIDE names, or
/// else /etc/dat.conf, followed by [`builtins`]. It is read on first use.
pub fn registry() -> &'static Registry {
    static REGISTRY: Registry = Registry::new(BUILTINS);
    &REGISTRY
}

// The entries are not thread-safe, because in this crate only one thread at a time uses an object.
// So posts need no lock.
const BUILTINS: Builtins =
    Builtins { adapters: &[builtin::ADAPTERS], api: Api::U2_0, threadsafe: &[false] };
