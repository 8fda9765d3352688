//! The tests of every software adapter, over TCP.

#[path = "../../dat-adapter/tests/suite/mod.rs"]
mod suite;

use provider_tcp_emu::{Tcp as Tested, TcpEmu};

const PROVIDER: TcpEmu = TcpEmu;
const NAME: &str = "tcp-emu";
const WIRES: &[&str] = &["127.0.0.1", "127.0.0.1 crc=on", "::1"];
