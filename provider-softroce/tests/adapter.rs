//! The tests of every software adapter, over RoCEv2.

#[path = "../../dat-adapter/tests/suite/mod.rs"]
mod suite;

use provider_softroce::{Roce as Tested, SoftRoce};

const PROVIDER: SoftRoce = SoftRoce;
const NAME: &str = "softroce";
const WIRES: &[&str] = &["127.0.0.1", "127.0.0.5 mtu=1024", "::1"];
