//! The test that connections over RoCEv2 leave nothing behind.

#[path = "../../adapter/tests/leaks/mod.rs"]
mod leaks;

use provider_softroce::SoftRoce;

const PROVIDER: SoftRoce = SoftRoce;
const NAME: &str = "softroce";
const PARAMS: &str = "127.0.0.6";
/// The descriptors of two adapters. Each has the poller (two descriptors) and its waker; the slot,
/// the REQ socket, the shared sockets, the directory of local sockets, the local socket for
/// messages, and the one by which others notice its end; the two ends of local sockets between the
/// adapters; the socket from which hosts are probed; the socket that packets leave from, the one
/// that reserves its port, and a connected socket from there to the address that the adapters
/// share.
const FDS: usize = 2 * (3 + 6 + 2 + 1 + 3);
