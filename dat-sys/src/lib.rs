//! The C interface of uDAPL 2.0, and in [`v1`] where 1.2 differs: scalar types, constants, structures, and the function table of a provider, under
//! their C names.
//!
//! Layouts are those of `libdat2.so.2` on LP64 Linux. Enumerations are integers with constants, so that no value a
//! foreign program passes is undefined behaviour; handles are untyped pointers. There is no code here: the functions
//! that consumers call are in libdat2, their meaning in dat-core.
//!
//! Every record has `zeroed()`, to be used as `DAT_EP_ATTR { max_recv_dtos: 8, ..DAT_EP_ATTR::zeroed() }`.

#![no_std]
#![allow(non_camel_case_types, non_snake_case)] // the names are the standard's

pub mod describe;

mod connection;
mod ep;
mod error;
mod evd;
mod event;
mod functions;
mod ia;
pub mod ib;
mod memory;
mod provider;
mod types;
pub mod v1;

#[cfg(test)]
mod layout_tests;

pub use connection::*;
pub use ep::*;
pub use error::*;
pub use evd::*;
pub use event::*;
pub use functions::*;
pub use ia::*;
pub use memory::*;
pub use provider::*;
pub use types::*;
