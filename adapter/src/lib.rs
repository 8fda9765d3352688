//! What every software adapter is made of, whatever its wire: dat-core's objects over rnic's queues, and the
//! threads that make progress. From top to bottom:
//!
//! | file | what |
//! |---|---|
//! | `engine` | what a provider supplies: [`Engine`] |
//! | `context` | what its engine has of the adapter: [`Context`] |
//! | `transport` | dat-core's contract, over rnic's queues and the engine: [`Adapter`] and its objects |
//! | `counts` | sums of what connections have done: [`Counts`] |
//! | `reactor` | which thread makes progress: a consumer that polls, one that blocks, the progress thread |
//! | `locked` | the state that the engine lock protects: the engine, and the work that others have deferred |
//! | `engine_lock` | the lock itself: a thread that finds it taken may leave its work to the holder |
//! | `shared` | what threads can read and write without the lock |
//! | `doorbells` | queue pairs with new requests, as a lock-free stack |
//! | [`params`], [`netdev`] | what is the same in all ia_params; the host's devices and addresses |
//! | `local_failure` | why this host cannot begin to call a peer: [`LocalFailure`] |
//! | [`half_open`] | callers that have not sent a request yet |
//! | `table` | objects by small numbers: [`Table`] |
//!
//! # How to build a provider on this
//!
//! 1. Write an [`Engine`]: sockets, connections and timers of one open adapter, as plain data. It never locks, blocks
//!    or starts a thread. Its caller holds the engine lock. It is called
//!    - when a socket has news ([`Engine::on_event`]), or a consumer polls ([`Engine::poll`]);
//!    - when a queue pair has something to send ([`Engine::transmit`]): at once for a lone request, once for a batch;
//!    - in every pass, for timers and what was left over ([`Engine::advance`]);
//!    - by the consumer's calls, each named as in dat-core ([`Engine::connect`], [`Engine::listen`], …).
//! 2. It gives its sockets to the poller through the [`Context`] it was made with, edge triggered, each by a token of
//!    its own. It keeps queue pairs in a [`Table`]; the number in there is the queue pair's name. What it is handed of
//!    a queue pair is [`rnic::Work`], the side of the queues that completes; news of a connection go to the sink
//!    beside it.
//! 3. Before the engine lock is released, [`Engine::remaining`] says what is left to do: more at once, or a time to be
//!    called at. A pass must end, so bursts are limited; what does not fit is left over.
//! 4. Parse ia_params with [`params::parse`], which knows addresses and `spin`, and asks for the provider's own keys.
//! 5. `impl Provider`, its transport an `Adapter<YourEngine>`, its `open` little more than [`Adapter::open`].
//! 6. Its first tests: `provider_loopback::transport_contract!` over a pair of adapters, and `adapter/tests/suite`, as
//!    `provider-tcp-emu/tests/adapter.rs` includes it.
//!
//! `examples/provider-loop` is a small one; docs/writing-a-provider.md walks through it.
//!
//! Everything is compiled for the one engine: no call between here and there is dynamic.

mod context;
mod counts;
mod doorbells;
mod engine;
mod engine_lock;
pub mod half_open;
mod local_failure;
mod locked;
pub mod netdev;
pub mod params;
mod reactor;
mod shared;
mod sync;
mod table;
mod transport;

pub use context::Context;
pub use counts::Counts;
pub use dat_core::error::no_memory;
pub use engine::{Engine, Progress, Remaining, Sink, Upcall};
pub use local_failure::LocalFailure;
pub use params::Params;
pub use reactor::abort_on_panic;
pub use table::Table;
pub use transport::{
    Adapter, Cq, Listener, Mr, Mw, Pd, Qp, Request, Shared, Srq, Wire, no_resources, port,
};
