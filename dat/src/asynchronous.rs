//! Futures and streams for DAT, on any runtime (feature `async`).
//!
//! An [`AsyncAdapter`] has one queue for all events. A task that it spawns takes the events and
//! wakes the futures that wait for them:
//!
//! - An [`AsyncEndpoint`] connects, accepts, sends, receives, writes and reads.
//! - An [`AsyncListener`] is a stream of connection requests.
//! - An [`AsyncSharedReceiveQueue`] receives for several endpoints.
//!
//! An [`EventStream`] is the layer below: the events of a queue of its own, as a stream.
//!
//! The [`Runtime`] watches file descriptors and runs tasks. `Tokio` is tokio (feature `tokio`). To
//! use another one, implement the two functions of the trait.
//!
//! # Buffers and cancellation
//!
//! An operation owns its buffer and returns it when it has completed, successfully or not. It is
//! posted when the method is called, not when the future is polled, so operations are performed in
//! the order of the calls. Dropping the future does not take the operation back: the buffer stays
//! registered until the operation has completed, and is dropped then.
//!
//! There is one exception. If no more events can be taken ([`OperationError::Stopped`]), each
//! future returns its buffer at once, although the adapter may still use it. Close the adapter, or
//! deregister the buffer, before you use its bytes again.
//!
//! # Cost
//!
//! Each operation takes a lock twice, and each event wakes a task. Programs that need the lowest
//! latency use the methods of [`Endpoint`](crate::Endpoint) and poll.

mod adapter;
mod adapter_shared;
mod connections;
mod endpoint;
mod error;
mod listener;
mod operation_slots;
mod runtime;
mod stream;
mod transfer;

pub use adapter::AsyncAdapter;
pub use endpoint::{AsyncEndpoint, AsyncSharedReceiveQueue, Closed};
pub use error::{OperationError, TransferError};
pub use listener::AsyncListener;
#[cfg(feature = "tokio")]
pub use runtime::Tokio;
pub use runtime::{Runtime, Task, Watch};
pub use stream::EventStream;
pub use transfer::Transfer;
