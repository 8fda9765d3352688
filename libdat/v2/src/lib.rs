//! libdat2.so.2: the C library of uDAPL 2.0.
//!
//! The crate `libdat` has the code that both C libraries share. This crate adds the types of 2.0,
//! and two functions that only 2.0 has: the one variadic function (`extension`), and the query for
//! related adapters (`related`). Each function is exported as `name@@DAT_2.0` (`libdat2.map`,
//! `build.rs`).

mod extension;
mod related;

use ::registry::Api;
use dat_sys::*;
use libdat::Library;

static LIBRARY: Library = Library::new(Api::U2_0, &[builtin::ADAPTERS]);

dat_sys::provider_functions!(2.0 => libdat::forward, "DAT_2.0");
