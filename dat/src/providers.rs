//! Who is behind a name when a program says no more than the name.

use registry::{Builtin, Registry};

/// The providers linked into this crate, as its features say.
pub const fn builtins() -> &'static [Builtin] {
    BUILTINS
}

#[cfg(feature = "tcp-emu")]
const BUILTINS: &[Builtin] = &[];
#[cfg(not(feature = "tcp-emu"))]
const BUILTINS: &[Builtin] = &[];

/// The registry that [`Adapter::open`](crate::Adapter::open) asks: the file that DAT_OVERRIDE names, else
/// /etc/dat.conf, then [`builtins`]. It is read when first used.
pub fn registry() -> &'static Registry {
    static REGISTRY: Registry = Registry::new(BUILTINS);
    &REGISTRY
}
