//! Safe, typed access to Direct Access Transport: RDMA through the function table of any DAT
//! provider. The provider may be linked in or loaded, and may come from this project or from a
//! vendor.
//!
//! An [`Adapter`] is opened by name. It creates these objects:
//!
//! - [`EventDispatcher`]s, which report all events.
//! - A [`ProtectionZone`], which registers memory as a [`MemoryRegion`].
//! - [`Endpoint`]s, which connect, send, receive, write and read, or exchange datagrams
//!   ([`EndpointBuilder::datagrams`]).
//! - [`Listener`]s, which report a [`ConnectionRequest`] for each peer that calls.
//!
//! A client reads the memory of a server by RDMA, here in one program. `examples/hello.rs` has the
//! two sides in two programs. The other examples are longer.
//!
//! ```
//! use dat::{Access, Adapter, Flags, RemoteRegion};
//!
//! let adapter = Adapter::open("tcp-emu")?;
//! let zone = adapter.zone()?;
//!
//! let mut server_events = adapter.dispatcher(8)?;
//! let offered = zone.register(b"hello".to_vec(), Access::ALL)?;
//! let mut server = adapter.endpoint().zone(&zone).events(&server_events).create()?;
//! let listener = adapter.listen_any(&server_events)?;
//!
//! let mut events = adapter.dispatcher(8)?;
//! let region = zone.register(vec![0; 5], Access::LOCAL)?;
//! let mut client = adapter.endpoint().zone(&zone).events(&events).create()?;
//! client.connect("127.0.0.1".parse()?, listener.qualifier(), b"private data", None)?;
//!
//! let request = server_events.wait(None)?.request()?;
//! request.accept(&mut server, &offered.remote().to_bytes())?;
//! // The server's private data, or an error with the reason.
//! let answer = events.wait(None)?.established()?;
//! let remote = RemoteRegion::from_bytes(&answer).ok_or("the answer does not describe memory")?;
//!
//! client.post_read(&[region.segment(0..5)?], remote.segment(0..5)?, 1, Flags::default())?;
//! assert_eq!(events.wait(None)?.completion()?.length, 5);
//! assert_eq!(region.to_vec(0..5)?, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What makes it safe
//!
//! *Memory.* Posted operations and peers may change a registered region at any time. So safe code
//! never has a reference into the region. It copies bytes into and out of the region
//! ([`MemoryRegion::store`], [`MemoryRegion::load`]), and the memory stays in place until the
//! provider has deregistered the region. A post names memory by key, and providers check every key,
//! so even a stale [`Segment`] never gives access to unregistered memory. [`MemoryRegion::as_ptr`]
//! gives direct access.
//!
//! *Threads.* A provider need not be thread-safe. With such a provider two threads must not use the
//! same object at the same time, but may use different objects. Therefore every method that uses an
//! object takes `&mut self`. The borrow checker costs less than a lock.
//!
//! *Lifetimes.* Objects may be dropped in any order. Each keeps the objects that it depends on
//! alive. The adapter closes last.
//!
//! # Cost
//!
//! A post or a dequeue is one call through the provider's table. It does not allocate, lock or
//! count references.
//!
//! # Errors and messages
//!
//! The crate writes nothing to the standard streams, unless the environment asks for the log
//! (`OPENDAT_LOG`). An [`Error`] contains everything that is known about a failure: the call, the
//! status word of C, the numbers that explain it (such as a length and its limit), and the messages
//! of the providers. Mistakes in the registry's file are in [`Registry::list`], as
//! [`errors`](registry::List::errors).
//!
//! # Event loops
//!
//! A [`NotificationDescriptor`] has a file descriptor that is readable while there are events, for
//! poll(2), epoll(7) and event loops. The feature `async` adds the module `asynchronous`: futures
//! and streams, on any runtime.
//!
//! # Vendor providers
//!
//! A provider in a shared library looks for three functions in the program that loads it. Such a
//! program has [`export_symbols!`]`();` at its crate root and, in its build script, this line for
//! each of `dat_registry_add_provider`, `dat_registry_remove_provider` and `dats_get_ia_handle`:
//! `println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={symbol}");`

// The layers, from top to bottom. First futures and streams, and methods that combine others:
#[cfg(feature = "async")]
pub mod asynchronous;
mod expect;

// The objects and their operations:
mod adapter;
mod datagrams;
mod dispatcher;
mod endpoint;
mod extended;
mod listener;
mod memory;
mod notification;
mod post;
mod srq;

// What operations and queries report:
mod error;
mod event;
mod standard;

// The common part of objects, the owners of events, addresses, and the registry:
mod address;
mod object;
mod owners;
mod providers;

pub use adapter::{Adapter, Attributes};
pub use address::{Address, NotAnAddress};
pub use datagrams::DatagramPeer;
pub use dispatcher::{DispatcherId, Drain, EventDispatcher, Incoming, Streams};
pub use endpoint::{Close, Endpoint, EndpointBuilder, EndpointId, EndpointState};
pub use error::{Error, ErrorKind, Result};
pub use event::{AsynchronousError, Completion, ConnectionEvent, Event, Operation, Status};
pub use expect::Unexpected;
pub use listener::{ConnectionRequest, Listener};
pub use memory::{Access, MemoryRegion, ProtectionZone, RemoteRegion, RemoteSegment, Segment};
pub use notification::{NotificationDescriptor, NotificationObject};
pub use post::Flags;
pub use providers::{builtins, registry};
pub use registry::{Registry, export_symbols};
pub use srq::SharedReceiveQueue;
pub use standard::{StandardAttributes, Value};

/// The tests of documents run the program in README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
