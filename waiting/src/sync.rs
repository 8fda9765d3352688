//! The atomic types of this crate. With `--cfg loom` they are the types of loom, which explores
//! every interleaving of threads.

#[cfg(loom)]
pub(crate) use loom::sync::atomic;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic;
