//! The atomics of the lock-free parts. Under `--cfg loom` they are those of loom, which explores
//! every interleaving.

#[cfg(loom)]
pub(crate) use loom::{sync::atomic, thread::yield_now};
#[cfg(not(loom))]
pub(crate) use std::{sync::atomic, thread::yield_now};
