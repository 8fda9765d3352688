//! The test that connections leave nothing behind.

#[path = "../../../adapter/tests/leaks/mod.rs"]
mod leaks;

use dat_loop::Loop;

const PROVIDER: Loop = Loop;
const NAME: &str = "loop";
const PARAMS: &str = "127.0.0.1";
/// For each adapter: the poller (twice), its waker, the event fd of its queue.
const FDS: usize = 2 * 4;
