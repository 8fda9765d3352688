//! The default registry, and the providers that are linked in.

use registry::{Builtin, Registry};

/// The providers linked into this crate, which its features select.
pub const fn builtins() -> &'static [Builtin] {
    BUILTINS
}

/// The registry of [`Adapter::open`](crate::Adapter::open): the file that DAT_OVERRIDE names, or
/// else /etc/dat.conf, followed by [`builtins`]. It is read on first use.
pub fn registry() -> &'static Registry {
    static REGISTRY: Registry = Registry::new(BUILTINS);
    &REGISTRY
}

// The entries are not thread-safe, because this crate uses each object in only one thread at a
// time. So posts need no lock.
const BUILTINS: &[Builtin] = &[
    #[cfg(feature = "tcp-emu")]
    Builtin {
        line: r#"tcp-emu u2.0 nonthreadsafe default builtin opendat.0.1 "" """#,
        init: dat_core::export::init::<provider_tcp_emu::TcpEmu, ThisRegistry>,
        fini: dat_core::export::fini::<provider_tcp_emu::TcpEmu, ThisRegistry>,
        discover: None,
    },
    #[cfg(feature = "softroce")]
    Builtin {
        line: r#"softroce u2.0 nonthreadsafe default builtin opendat.0.1 "" """#,
        init: dat_core::export::init::<provider_softroce::SoftRoce, ThisRegistry>,
        fini: dat_core::export::fini::<provider_softroce::SoftRoce, ThisRegistry>,
        discover: None,
    },
    #[cfg(feature = "verbs")]
    Builtin {
        line: r#"verbs u2.0 nonthreadsafe default builtin opendat.0.1 "" """#,
        init: dat_core::export::init::<provider_verbs::Verbs, ThisRegistry>,
        fini: dat_core::export::fini::<provider_verbs::Verbs, ThisRegistry>,
        discover: Some(provider_verbs::entries),
    },
];

/// The registry with which built-in providers register.
#[cfg(any(feature = "tcp-emu", feature = "softroce", feature = "verbs"))]
struct ThisRegistry;

#[cfg(any(feature = "tcp-emu", feature = "softroce", feature = "verbs"))]
impl dat_core::export::Registry for ThisRegistry {
    const FNS: dat_sys::RegistryFns = registry::FNS;
}
