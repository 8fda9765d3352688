//! The common part of all software adapters: objects over rnic's queues, and the threads that make
//! progress. It knows no programming interface: the crate `dat-adapter` makes an adapter a
//! transport of dat-core.
//!
//! # Example
//!
//! A user describes an adapter in words: an address, keys that all adapters have, and keys of its
//! protocol such as `crc`. Its [`Config`] and its protocol's configuration come from them:
//!
//! ```
//! use std::time::Duration;
//!
//! use adapter::params::{self, Words};
//!
//! let parse = |text| {
//!     let mut crc = true;
//!     let own = |_key: &str, value: &str| {
//!         crc = params::on(value)?;
//!         Ok(())
//!     };
//!     // `crc=off` is the value of OPENDAT_PARAMS, with the defaults of all adapters.
//!     let (defaults, keys) = ("crc=off", &["spin", "crc"]);
//!     let words = Words { name: "the entry", text, defaults, keys, default_keys: &[] };
//!     params::parse(&words, own).map(|config| (config, crc))
//! };
//! let (config, crc) = parse("127.0.0.1 spin=50")?;
//! assert_eq!(config.bind, Some("127.0.0.1:0".parse()?));
//! assert_eq!(config.spin(), Duration::from_micros(50));
//! assert!(!crc);
//!
//! let error = parse("127.0.0.1 crc=maybe").unwrap_err();
//! assert_eq!(error.reason, "the entry: crc=maybe: expected on or off");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Files
//!
//! A file uses only files below it:
//!
//! | file | contents |
//! |---|---|
//! | `objects` | the objects of an adapter over rnic and the engine: [`Adapter::open`], [`Qp`], … |
//! | `engine` | the part that a provider supplies: [`Engine`] |
//! | `event` | the events that an engine reports: [`Event`], [`Sink`] |
//! | `context` | the engine's access to its adapter: [`Context`] |
//! | `adapter` | an open adapter: [`Adapter`], and the [`Limits`] of its protocol |
//! | `connection_request` | connection requests for the consumer: [`ConnectionRequest`], and their [`Backlog`] |
//! | `engines` | the engines of an adapter, and the threads that make progress with them |
//! | `reactor` | which thread makes progress: a consumer's or the progress thread |
//! | `locked_engine` | the state behind the engine lock: the engine and deferred work |
//! | `progress` | the calls by which threads make progress with an engine: [`MakeProgress`] |
//! | `engine_lock` | the engine lock, whose holder also does the work that other threads publish |
//! | `engine_shared` | the state that threads read and write without the lock |
//! | `link_phase` | the phases of a queue pair in an engine: [`LinkPhase`] |
//! | `qp_shared` | the part of a queue pair that posting threads and the engine share |
//! | `doorbells` | queue pairs with new requests, as a lock-free stack |
//! | [`octet_ring`] | a ring of octets in memory that two processes share |
//! | `sync` | the atomic types of the lock-free modules, and a function that locks a mutex |
//! | `counts` | sums of the counters of connections: [`Counts`] |
//! | [`params`] | parameters in words, from which a [`Config`] comes |
//! | `config` | the configuration that all adapters have in common: [`Config`] |
//! | [`netdev`] | the host's network devices and addresses |
//! | `local_failure` | the reasons why this host cannot connect to a peer: [`LocalFailure`] |
//! | `error` | the errors of calls: [`Error`], [`OpenError`] |
//! | [`half_open`] | lists of callers that have connected and not sent a request yet |
//! | `slab` | a table that names objects by small numbers: [`Slab`] |
//!
//! # How to build an adapter on this
//!
//! 1. Write an [`Engine`], which also implements [`MakeProgress`]. The engine holds the sockets,
//!    connections and timers of one open adapter as plain data. It never locks, blocks or starts a
//!    thread, because its caller holds the engine lock. The engine is called
//!    - when a socket has an event ([`MakeProgress::on_event`]) or a consumer polls
//!      ([`MakeProgress::poll`]);
//!    - when a queue pair has requests to send ([`MakeProgress::transmit`]): at once for a single
//!      request, once for a batch;
//!    - in every pass except a consumer's poll, for timers and leftover work
//!      ([`MakeProgress::advance`]);
//!    - when the consumer calls a function such as [`Qp::connect`] or [`Adapter::listen`].
//! 2. Register the engine's sockets with the poller through the [`Context`] that the engine was
//!    created with. Use edge-triggered events and a separate token for each socket. Keep queue
//!    pairs in a [`Slab`]; the index in the slab is the name of the queue pair. For each queue
//!    pair, the engine receives its [`rnic::Work`], which takes requests and completes them, and a
//!    sink for the events of the connection. A [`LinkPhase`] holds the `Work`, or the connection
//!    that owns the `Work`. The data with which the engine later answers a connection request
//!    travel with the request to the consumer ([`Context::request`]).
//! 3. Before the engine lock is released, [`MakeProgress::remaining`] returns what is left to do:
//!    more work at once, or a deadline. A pass must end soon, so the engine limits its bursts and
//!    leaves the rest for the next pass.
//! 4. Write a function that opens an adapter with [`Adapter::open`], as the crates `iwarp` and
//!    `roce` do.
//!
//! The crate `dat-adapter` says how to make the adapter a provider of DAT, and how to test it.
//!
//! The compiler specializes everything for the one engine: there is no dynamic dispatch between
//! this crate and the engine.

mod adapter;
mod config;
mod connection_request;
mod context;
mod counts;
mod doorbells;
mod engine;
mod engine_lock;
mod engine_shared;
mod engines;
mod error;
mod event;
pub mod half_open;
mod link_phase;
mod local_failure;
mod locked_engine;
pub mod netdev;
mod objects;
pub mod octet_ring;
pub mod params;
mod progress;
mod qp_shared;
mod reactor;
mod slab;
mod sync;

pub use adapter::{Adapter, Limits, UnusedQps};
pub use config::Config;
pub use connection_request::{Backlog, ConnectionRequest};
pub use context::{Context, EngineWaker};
pub use counts::Counts;
pub use engine::{DatagramEnd, Engine, RequesterCfg, ResponderCfg, Target};
pub use error::{Error, OpenError, Result, no_memory, no_resources};
pub use event::{Event, PeerAddress, RemoteQp, Sink};
pub use link_phase::LinkPhase;
pub use local_failure::LocalFailure;
pub use objects::{ConcurrentCq, Cq, Listener, Mr, Mw, Qp, QpCfg, Srq};
pub use progress::{MakeProgress, Progress, Remaining};
pub use qp_shared::QpShared;
pub use reactor::progress_thread::abort_on_panic;
pub use slab::Slab;
