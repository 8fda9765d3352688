//! The tests of all software adapters.

#[path = "../../../dat-adapter/tests/suite/mod.rs"]
mod suite;

use dat_core::provider::Provider;
use dat_loop::Loop;

type Tested = <Loop as Provider>::Transport;

const PROVIDER: Loop = Loop;
const NAME: &str = "loop";
const WIRES: &[&str] = &["127.0.0.1", "127.0.0.1 spin=0"];
