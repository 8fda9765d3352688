//! The test that connections leave nothing behind.

#[path = "../../../dat-adapter/tests/leaks/mod.rs"]
mod leaks;

use dat_loop::Loop;

const PROVIDER: Loop = Loop;
const NAME: &str = "loop";
const PARAMS: &str = "127.0.0.1";
/// The descriptors of two adapters. Each has a poller (twice), the poller's waker, and the event fd
/// of its queue.
const FDS: usize = 2 * 4;
