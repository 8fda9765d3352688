//! A software adapter as a transport of dat-core: this crate translates between the objects, events
//! and errors of the crate `adapter`, which know no programming interface, and those of DAT. All
//! calls of the data path are inlined. The files from top to bottom:
//!
//! | file | contents |
//! |---|---|
//! | `transport` | an open adapter: [`Adapter`] |
//! | `queue` | queue pairs: [`Qp`] |
//! | `completion` | completion queues: [`Cq`] |
//! | `receive` | shared receive queues: [`Srq`] |
//! | `memory` | protection domains, regions and windows: [`Pd`], [`Mr`], [`Mw`] |
//! | `upcall` | events of an engine as upcalls of dat-core |
//! | [`params`] | the parameters of an entry: [`Params`] |
//! | `error` | errors of an adapter as errors of DAT: [`error`], [`open_error`] |
//! # Example
//!
//! The software adapter of the crate `iwarp` becomes a transport, whose limits and objects are
//! those of DAT:
//!
//! ```
//! use dat_adapter::{Adapter, Params, open_error};
//! use dat_core::provider::Transport;
//!
//! let keys = ["spin", "strict", "stats"];
//! let own = |key: &str, _: &str| Err(format!("{key} has no meaning here"));
//! let params = Params::parse("127.0.0.1 strict=on", "", &keys, own)?;
//! let iwarp = iwarp::open("iw0", &params.adapter, Default::default()).map_err(open_error)?;
//! let named = vec![("transport".to_owned(), "iWARP".to_owned())];
//!
//! let transport = Adapter::new("iw0", iwarp, &params, named);
//! assert!(transport.attrs().strict && transport.attrs().atomics);
//! let domain = transport.pd().map_err(|error| error.to_string())?;
//! assert!(transport.mw(&domain, true).is_ok(), "iWARP has windows of one queue pair");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How to write a provider over this
//!
//! 1. Write an [`adapter::Engine`]; the crate `adapter` says how.
//! 2. Parse ia_params with [`Params::parse`], which handles addresses, `OPENDAT_PARAMS` and the
//!    common keys, and asks for the provider's own keys.
//! 3. Implement `Provider` of dat-core. Its transport is an `Adapter<YourEngine>`. Its `open` opens
//!    an [`adapter::Adapter`] and passes it to [`Adapter::new`].
//! 4. Start with these tests: `provider_mem::transport_contract!` over a pair of adapters, and
//!    `dat-adapter/tests/suite`, as `provider-tcp-emu/tests/adapter.rs` includes it.
//!
//! `examples/provider-loop` is a small provider; docs/writing-a-provider.md explains it.

mod completion;
mod error;
mod memory;
pub mod params;
mod queue;
mod receive;
mod transport;
mod upcall;

pub use completion::Cq;
pub use error::{error, open_error};
pub use memory::{Mr, Mw, Pd};
pub use params::Params;
pub use queue::Qp;
pub use receive::Srq;
pub use transport::Adapter;
