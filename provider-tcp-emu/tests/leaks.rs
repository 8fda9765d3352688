//! What connections leave behind, over TCP.

#[path = "../../adapter/tests/leaks/mod.rs"]
mod leaks;

use provider_tcp_emu::TcpEmu;

const PROVIDER: TcpEmu = TcpEmu;
const NAME: &str = "tcp-emu";
const PARAMS: &str = "127.0.0.1";
/// Of each: the poller, twice, and its waker.
const FDS: usize = 2 * 3;
