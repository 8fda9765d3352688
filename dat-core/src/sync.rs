//! The atomic types of the lock-free parts. Under `--cfg loom` these are the types of loom, which
//! explores every interleaving.

#[cfg(loom)]
pub(crate) use loom::{sync::atomic, thread::yield_now};
#[cfg(not(loom))]
pub(crate) use std::{sync::atomic, thread::yield_now};
