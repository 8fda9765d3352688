//! Tests that connections over RoCEv2 leave no resources behind.

#[path = "../../dat-adapter/tests/leaks/mod.rs"]
mod leaks;

use provider_softroce::SoftRoce;

const PROVIDER: SoftRoce = SoftRoce;
const NAME: &str = "softroce";
const PARAMS: &str = "127.0.0.6";
/// The descriptors of two adapters. Each has:
///
/// - 3: the poller (two descriptors) and its waker;
/// - 6: the slot's socket, the REQ socket, the shared sockets, the directory of local sockets, the
///   local socket for messages, and the local socket whose closing tells others that the adapter is
///   gone;
/// - 2: the two ends of the local sockets between the adapters;
/// - 1: the socket from which hosts are probed;
/// - 3: the sending socket, a socket that reserves the sending socket's port, and a socket that is
///   connected to the address that the adapters share.
const FDS: usize = 2 * (3 + 6 + 2 + 1 + 3);
