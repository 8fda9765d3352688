//! The atomic types of the lock-free parts. Under `--cfg loom` they are the types of loom, which
//! tries every interleaving.

#[cfg(loom)]
pub(crate) use loom::{hint::spin_loop, sync::atomic, thread::yield_now};
#[cfg(not(loom))]
pub(crate) use std::{hint::spin_loop, sync::atomic, thread::yield_now};
