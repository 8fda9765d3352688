//! The exported function table, called as C calls it, over the loopback transport.

mod arguments;
mod client;
mod closing;
mod counters;
mod crowd;
mod dispatchers;
mod extended;
mod flags;
mod handles;
mod memory;
mod opening;
mod places;
mod queries;
mod shared;
mod transfer;
mod unconfigured;
mod watermarks;
mod windows;
