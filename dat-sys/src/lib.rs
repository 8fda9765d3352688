//! The C interface of uDAPL 2.0, and in [`v1`] the parts of 1.2 that differ: scalar types,
//! constants, structures, and the function table of a provider, under their C names.
//!
//! Layouts are those of `libdat2.so.2` on LP64 Linux. Enumerations are integers with constants, so
//! that a foreign program may pass any number without undefined behaviour. Handles are untyped
//! pointers. Except for [`VaList`], this crate has no code: libdat2 has the functions that
//! consumers call, and dat-core implements them.
//!
//! Every record has `zeroed()`, for use as `DAT_EP_ATTR { max_recv_dtos: 8, ..DAT_EP_ATTR::zeroed()
//! }`.
//! # Example
//!
//! A provider fills in the function table. The first word of each of its objects is the address of
//! the table, so that a consumer finds the functions by the handle:
//!
//! ```
//! use std::ptr::from_mut;
//!
//! use dat_sys::*;
//!
//! unsafe extern "C" fn dequeue(_: DAT_EVD_HANDLE, _: *mut DAT_EVENT) -> DAT_RETURN {
//!     DAT_ERROR(DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE)
//! }
//! let table = DAT_PROVIDER { evd_dequeue_func: Some(dequeue), ..DAT_PROVIDER::zeroed() };
//! let mut object = &table;
//! let evd: DAT_EVD_HANDLE = from_mut(&mut object).cast();
//!
//! let mut event = DAT_EVENT::zeroed();
//! // SAFETY: the object begins with the address of its table, and `dequeue` accepts any pointer.
//! let status = unsafe {
//!     let table = *evd.cast::<*const DAT_PROVIDER>();
//!     (*table).evd_dequeue_func.unwrap()(evd, &mut event)
//! };
//! assert_eq!(DAT_GET_TYPE(status), DAT_QUEUE_EMPTY);
//! assert_eq!(describe::status_names(status), Some(("DAT_QUEUE_EMPTY", "")));
//! ```

#![no_std]
#![allow(non_camel_case_types, non_snake_case)] // The names are the standard's.

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
pub mod opendat;
mod provider;
mod types;
pub mod v1;
mod va_list;

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
pub use va_list::VaList;
