//! The atomics of the lock-free parts. With `--cfg loom` they are loom's, which tries every
//! interleaving.

#[cfg(loom)]
pub(crate) use loom::{hint::spin_loop, sync::atomic};
#[cfg(not(loom))]
pub(crate) use std::{hint::spin_loop, sync::atomic};
