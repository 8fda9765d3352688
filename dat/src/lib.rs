//! Safe, typed access to Direct Access Transport: RDMA through the function table of any DAT provider, linked in or
//! loaded, ours or a vendor's.
//!
//! An [`Adapter`] is opened by name. It makes [`EventDispatcher`]s, on which everything is reported;
//! a [`ProtectionZone`], in which memory becomes a [`MemoryRegion`]; [`Endpoint`]s that connect, send, receive, write
//! and read; and [`Listener`]s, which report a [`ConnectionRequest`] for each caller. `examples/hello.rs` shows
//! most of it on one screen.
//!
//! ```no_run
//! use dat::{Access, Adapter};
//!
//! let adapter = Adapter::open("tcp-emu")?;
//! let mut events = adapter.dispatcher(16)?;
//! let zone = adapter.zone()?;
//! let mut region = zone.register(vec![0; 4096], Access::LOCAL)?;
//! let mut endpoint = adapter.endpoint().zone(&zone).events(&events).create()?;
//! endpoint.connect("192.0.2.7".parse()?, 7777, b"private data", None)?;
//! let answer = events.wait(None)?.established()?; // the peer's private data, or an error that says why not
//! region.store(0, b"hello")?;
//! endpoint.post_send(&[region.segment(0..5)?], 1, Default::default())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What makes it safe
//!
//! *Memory.* A registered region belongs to the adapter as much as to the program: posted operations and peers change
//! it at any time. So safe code never holds a reference into it, but copies in and out
//! ([`MemoryRegion::store`], [`MemoryRegion::load`]), and the memory stays where it is until the provider has given the
//! region up. A post names memory by key, and providers check every key, so that no [`Segment`], however
//! stale, reaches memory that is not registered. [`MemoryRegion::as_ptr`] is there for more.
//!
//! *Threads.* A provider need not be thread-safe, in which case one object must not be used by two threads at once
//! (different ones may). Here whatever uses an object takes `&mut self`: the borrow checker is cheaper than a lock.
//!
//! *Lifetimes.* Objects may be dropped in any order. Each keeps alive what it depends on; the adapter closes last.
//!
//! # Cost
//!
//! A post or a dequeue is one call through the provider's table, with nothing allocated, counted or locked on the way.
//!
//! # Vendor providers
//!
//! A provider that is a shared library looks for three functions in the program that loads it. To load one, a program
//! has [`export_symbols!`]`();` at its root and, in its build script, for each of `dat_registry_add_provider`,
//! `dat_registry_remove_provider` and `dats_get_ia_handle`:
//! `println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={symbol}");`

mod adapter;
mod address;
mod dispatcher;
mod endpoint;
mod error;
mod event;
mod expect;
mod extended;
mod listener;
mod memory;
mod object;
mod post;
mod providers;
mod srq;
mod standard;

pub use adapter::{Adapter, Attributes};
pub use address::Address;
pub use dispatcher::{DispatcherId, EventDispatcher, NotificationObject, Streams};
pub use endpoint::{Close, Endpoint, EndpointBuilder, EndpointId, EndpointState};
pub use error::{Error, ErrorKind, Result};
pub use event::{AsynchronousError, Completion, ConnectionEvent, Event, Operation, Status};
pub use expect::Unexpected;
pub use listener::{ConnectionRequest, Listener};
pub use memory::{Access, MemoryRegion, ProtectionZone, RemoteRegion, RemoteSegment, Segment};
pub use post::Flags;
pub use providers::{builtins, registry};
pub use registry::{Registry, export_symbols};
pub use srq::SharedReceiveQueue;
pub use standard::{StandardAttributes, Value};
