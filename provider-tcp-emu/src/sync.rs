//! The atomic types of the lock-free parts. With `--cfg loom` these are loom's types, with which
//! loom tries every interleaving.

#[cfg(loom)]
pub(crate) use loom::sync::atomic;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic;
