//! libdat2.so.2: the C library of uDAPL 2.0.
//!
//! The crate `libdat` has what both C libraries share. This crate has the functions that only 2.0
//! has: those that are forwarded to a provider (`forward`), the one variadic function
//! (`extension`), and the query for related adapters (`related`). Each function is exported as
//! `name@@DAT_2.0` (`libdat2.map`, `build.rs`).

mod extension;
mod forward;
mod related;

use ::registry::Builtin;
use dat_core::export as provider;
use dat_core::provider::Provider;
use libdat::Library;
use provider_softroce::SoftRoce;
use provider_tcp_emu::TcpEmu;
use provider_verbs::Verbs;

/// The providers linked into this library. They are tried after the entries of the registry file.
static BUILTINS: &[Builtin] = &[
    builtin::<TcpEmu>(r#"tcp-emu u2.0 nonthreadsafe default builtin opendat.0.1 "" """#),
    builtin::<TcpEmu>(r#"tcp-emu u2.0 threadsafe default builtin opendat.0.1 "" """#),
    builtin::<SoftRoce>(r#"softroce u2.0 nonthreadsafe default builtin opendat.0.1 "" """#),
    builtin::<SoftRoce>(r#"softroce u2.0 threadsafe default builtin opendat.0.1 "" """#),
    with_devices(builtin::<Verbs>(r#"verbs u2.0 nonthreadsafe default builtin opendat.0.1 "" """#)),
    with_devices(builtin::<Verbs>(r#"verbs u2.0 threadsafe default builtin opendat.0.1 "" """#)),
];

const fn builtin<P: Provider + Default>(line: &'static str) -> Builtin {
    Builtin {
        line,
        init: provider::init::<P, ThisRegistry>,
        fini: provider::fini::<P, ThisRegistry>,
        discover: None,
    }
}

/// The same entry, and one more for each RDMA device of the host.
const fn with_devices(verbs: Builtin) -> Builtin {
    Builtin { discover: Some(provider_verbs::entries), ..verbs }
}

/// The registry with which built-in providers register.
struct ThisRegistry;

impl provider::Registry for ThisRegistry {
    const FNS: dat_sys::RegistryFns = ::registry::FNS;
}

static LIBRARY: Library = Library::new(2, BUILTINS);
