//! The atomics of the lock-free parts; under `--cfg loom` those of loom, which tries every interleaving.

#[cfg(loom)]
pub(crate) use loom::{sync::atomic, thread::yield_now};
#[cfg(not(loom))]
pub(crate) use std::{sync::atomic, thread::yield_now};
