//! The atomic types that the lock-free parts of this crate use. Under `--cfg loom` they are the
//! types of loom, which explores every interleaving of threads.

#[cfg(loom)]
pub(crate) use loom::{sync::atomic, thread::yield_now};
#[cfg(not(loom))]
pub(crate) use std::{sync::atomic, thread::yield_now};
