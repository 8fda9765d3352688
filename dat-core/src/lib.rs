//! The semantics of Direct Access Transport, written once for all providers and generic over a
//! [`provider::Transport`].
//!
//! A provider supplies a transport. This crate implements everything that the standard says about
//! adapters, endpoints, event dispatchers, memory and connections.
//!
//! # Example
//!
//! The transport of `Mem` is the memory of its process. This crate makes of it the table of C
//! functions that a registry and its consumers call. The functions obey the standard: an event
//! dispatcher (EVD) gives back each event once, and knows when its handle is no longer valid.
//!
//! ```
//! use std::ptr::null_mut;
//!
//! use dat_core::export::{AnyProvider, register};
//! use dat_sys::*;
//! use provider_mem::Mem;
//!
//! let mut info = DAT_PROVIDER_INFO { dapl_version_major: 2, ..DAT_PROVIDER_INFO::zeroed() };
//! info.ia_name[..3].copy_from_slice(&b"mem".map(|octet| octet as _));
//! let table = register(AnyProvider::of::<Mem>(), registry::FNS, &info, "a fabric")?;
//!
//! let (mut ia, mut errors, mut evd) = (null_mut(), null_mut(), null_mut());
//! let mut event = DAT_EVENT { event_number: DAT_SOFTWARE_EVENT, ..DAT_EVENT::zeroed() };
//! // SAFETY: tables are never freed, and the pointers lead to what the prototypes say.
//! unsafe {
//!     let table = &*table;
//!     let dequeue = table.evd_dequeue_func.unwrap();
//!     let name = c"mem".as_ptr().cast_mut();
//!     assert_eq!(table.ia_open_func.unwrap()(name, 8, &mut errors, &mut ia), DAT_SUCCESS);
//!     let create = table.evd_create_func.unwrap();
//!     assert_eq!(create(ia, 8, null_mut(), DAT_EVD_SOFTWARE_FLAG, &mut evd), DAT_SUCCESS);
//!     assert_eq!(table.evd_post_se_func.unwrap()(evd, &event), DAT_SUCCESS);
//!     assert_eq!(dequeue(evd, &mut event), DAT_SUCCESS);
//!     assert_eq!(event.evd_handle, evd);
//!     assert_eq!(DAT_GET_TYPE(dequeue(evd, &mut event)), DAT_QUEUE_EMPTY);
//!     assert_eq!(table.ia_close_func.unwrap()(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
//!     assert_eq!(DAT_GET_TYPE(dequeue(evd, &mut event)), DAT_INVALID_HANDLE);
//! }
//! # Ok::<(), String>(())
//! ```

// The layers, from top to bottom. `export` is the C interface at the top.
pub mod export;

// The objects of the standard. They refer to one another.
pub mod cno;
pub mod conn;
pub mod ep;
pub mod evd;
pub mod ia;
pub mod mem;
pub mod srq;

// Where these objects do not obey the letter of the standard.
mod relaxed;

// Causes of failures, counters, log events and statistics of adapters and their objects.
pub mod cause;
pub mod counters;
pub mod log;
mod stats;

// The parts of which objects consist.
pub mod addr;
mod agent;
mod allocate;
pub mod error;
mod event_fd;
pub mod handle;
mod operation;
mod sync;

// What a provider supplies.
pub mod provider;

pub use error::{Error, OpenError, Result};
