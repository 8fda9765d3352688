//! Tests that connections over TCP leave no resources behind.

#[path = "../../dat-adapter/tests/leaks/mod.rs"]
mod leaks;

use provider_tcp_emu::TcpEmu;

const PROVIDER: TcpEmu = TcpEmu;
const NAME: &str = "tcp-emu";
const PARAMS: &str = "127.0.0.1";
/// The descriptors of two adapters. Each has the poller (two descriptors) and its waker. The one
/// that listens also has the socket at which offers of shared memory arrive.
const FDS: usize = 2 * 3 + 1;
