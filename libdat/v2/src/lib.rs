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

/// The providers linked into this library, tried after the entries of the registry file.
static BUILTINS: &[Builtin] = &[];

static REGISTRY: Registry = Registry::new(BUILTINS);
