//! Who is behind a name when a program says no more than the name.

use registry::{Builtin, Registry};

/// The providers linked into this crate, as its features say.
pub const fn builtins() -> &'static [Builtin] {
    BUILTINS
}

/// The registry that [`Adapter::open`](crate::Adapter::open) asks: the file that DAT_OVERRIDE names, else
/// /etc/dat.conf, then [`builtins`]. It is read when first used.
pub fn registry() -> &'static Registry {
    static REGISTRY: Registry = Registry::new(BUILTINS);
    &REGISTRY
}

// Not thread-safe: here an object is used by one thread at a time anyway, so its posts need no lock.
const BUILTINS: &[Builtin] = &[
    #[cfg(feature = "tcp-emu")]
    Builtin {
        line: r#"tcp-emu u2.0 nonthreadsafe default builtin opendat.0.1 "" """#,
        init: dat_core::export::init::<provider_tcp_emu::TcpEmu, Linked>,
        fini: dat_core::export::fini::<provider_tcp_emu::TcpEmu, Linked>,
        discover: None,
    },
    #[cfg(feature = "softroce")]
    Builtin {
        line: r#"softroce u2.0 nonthreadsafe default builtin opendat.0.1 "" """#,
        init: dat_core::export::init::<provider_softroce::SoftRoce, Linked>,
        fini: dat_core::export::fini::<provider_softroce::SoftRoce, Linked>,
        discover: None,
    },
    #[cfg(feature = "verbs")]
    Builtin {
        line: r#"verbs u2.0 nonthreadsafe default builtin opendat.0.1 "" """#,
        init: dat_core::export::init::<provider_verbs::Verbs, Linked>,
        fini: dat_core::export::fini::<provider_verbs::Verbs, Linked>,
        discover: Some(provider_verbs::entries),
    },
];

/// Providers that are linked in register with the registry that is.
#[cfg(any(feature = "tcp-emu", feature = "softroce", feature = "verbs"))]
struct Linked;

#[cfg(any(feature = "tcp-emu", feature = "softroce", feature = "verbs"))]
impl dat_core::export::Registry for Linked {
    const FNS: dat_sys::RegistryFns = registry::FNS;
}
