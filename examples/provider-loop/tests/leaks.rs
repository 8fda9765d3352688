//! What connections leave behind.

#[path = "../../../adapter/tests/leaks/mod.rs"]
mod leaks;

use dat_loop::Loop;

const PROVIDER: Loop = Loop;
const NAME: &str = "loop";
const PARAMS: &str = "127.0.0.1";
/// Of each: the poller, twice, its waker, the inbox's bell.
const FDS: usize = 2 * 4;
