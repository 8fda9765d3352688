//! The parts of `libibverbs.so.1` and `librdmacm.so.1` that a verbs provider needs, under their C
//! names: structures, constants, functions.
//!
//! Nothing links against the libraries. [`RdmaCore::load`] opens them for the first adapter, and
//! names the package to install if they are missing. So the project builds and runs on hosts
//! without RDMA software.
//! # Example
//!
//! An event channel of rdma_cm is created. On a host without the libraries, the error names the
//! packages to install; on a host without a device, errno has the reason:
//!
//! ```
//! use rdma_core_sys::{LoadError, RdmaCore};
//!
//! match RdmaCore::load() {
//!     Ok(RdmaCore { cm, .. }) => {
//!         // SAFETY: the function takes no arguments.
//!         let channel = unsafe { (cm.rdma_create_event_channel)() };
//!         if channel.is_null() {
//!             let error = std::io::Error::last_os_error();
//!             assert_ne!(error.raw_os_error(), Some(0), "no device: {error}");
//!         } else {
//!             // SAFETY: the channel exists, and nothing uses it after it is destroyed.
//!             unsafe {
//!                 assert!((*channel).fd >= 0, "a thread waits for events on this descriptor");
//!                 (cm.rdma_destroy_event_channel)(channel);
//!             }
//!         }
//!     }
//!     Err(LoadError::NotLoaded { library, package, .. }) => {
//!         assert!(library.starts_with("lib"), "install {package}");
//!     }
//!     Err(error) => panic!("{error}"),
//! }
//! ```
//!
//! | file | what |
//! |---|---|
//! | `device` | devices, their contexts and ports, asynchronous events |
//! | `memory` | protection domains, regions, windows |
//! | `completion` | completion queues, their channels, work completions |
//! | `queue` | queue pairs and their states, the addresses of peers |
//! | `receive` | shared receive queues |
//! | `work` | work requests |
//! | `cm` | rdma_cm: identifiers, event channels, events |
//! | `load` | the libraries: [`RdmaCore`], [`LoadError`] |
//! | `verbs`, `rdmacm` | their functions: [`Verbs`], [`RdmaCm`] |
//! | `inline` | the inline functions and macros of the C headers |
//! | [`describe`] | these declarations as data; `tests/tests/rdma_core.rs` compares them with C |
//!
//! Layouts are those of LP64 Linux. Enumerations are integers with constants, because a newer
//! library may return other values. Only fields that exist in every rdma-core since release 17
//! (2018) are used. Since then, structures have grown only at the end, so it does not matter that
//! the caller assumes a smaller size.

#![allow(non_camel_case_types)] // The names are those of the C headers.

mod cm;
mod completion;
pub mod describe;
mod device;
mod inline;
mod load;
mod memory;
mod queue;
mod rdmacm;
mod receive;
mod verbs;
mod work;

pub use cm::*;
pub use completion::*;
pub use device::*;
pub use load::{LoadError, RdmaCore};
pub use memory::*;
pub use queue::*;
pub use rdmacm::RdmaCm;
pub use receive::*;
pub use verbs::Verbs;
pub use work::*;
