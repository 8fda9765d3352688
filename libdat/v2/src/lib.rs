//! libdat2.so.2: the C library of uDAPL 2.0.
//!
//! Functions that concern an object go to the provider behind its handle (`forward`); the registry itself answers
//! others (`registry`, `strerror`); `extension` is the one variadic function. Each is exported as `name@@DAT_2.0`
//! (`export`, `libdat2.map`, `build.rs`).

#[macro_use]
mod export;
mod extension;
mod forward;
mod registry;
mod strerror;

use ::registry::{Builtin, Registry};
use dat_core::export as provider;
use provider_tcp_emu::TcpEmu;

/// The providers linked into this library, tried after the entries of the registry file.
static BUILTINS: &[Builtin] = &[tcp_emu(NONTHREADSAFE), tcp_emu(THREADSAFE)];

const NONTHREADSAFE: &str = r#"tcp-emu u2.0 nonthreadsafe default builtin opendat.0.1 "" """#;
const THREADSAFE: &str = r#"tcp-emu u2.0 threadsafe default builtin opendat.0.1 "" """#;

const fn tcp_emu(line: &'static str) -> Builtin {
    Builtin { line, init: provider::init::<TcpEmu, This>, fini: provider::fini::<TcpEmu, This> }
}

/// What built-in providers register with.
struct This;

impl provider::Registry for This {
    const FNS: dat_sys::RegistryFns = ::registry::FNS;
}

static REGISTRY: Registry = Registry::new(BUILTINS);
