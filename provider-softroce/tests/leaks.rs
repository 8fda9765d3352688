//! What connections leave behind, over RoCEv2.

#[path = "../../adapter/tests/leaks/mod.rs"]
mod leaks;

use provider_softroce::SoftRoce;

const PROVIDER: SoftRoce = SoftRoce;
const NAME: &str = "softroce";
const PARAMS: &str = "127.0.0.6 engine=user";
/// Of each: the poller, twice, and its waker; the slot, the door, the vault, the directory of local sockets,
/// the mailbox, and the socket by which others see its end; the two ends of such sockets between them; the
/// port from which hosts are asked; the port that packets leave from, and the quicker way from there to the
/// address that they share.
const FDS: usize = 2 * (3 + 6 + 2 + 1 + 2);
