//! An adapter that serves every address of the host opens an address when it first needs it.

#[path = "../../dat-core/tests/table/client.rs"]
#[allow(dead_code, unused_imports)] // Other tests use the rest.
mod client;

use adapter::netdev;
use dat_sys::DAT_PSP_CONSUMER_FLAG;
use provider_softroce::SoftRoce;

/// The descriptors of an open address: the slot's socket, the REQ socket, the shared sockets, the
/// directory of local sockets, the local socket for messages, the liveness listener, the socket
/// from which hosts are probed, the sending socket, and the socket that reserves its port.
const FDS_OF_ADDRESS: usize = 9;
/// The descriptors of an adapter: the poller (two descriptors) and its waker.
const FDS_OF_ADAPTER: usize = 3;

fn fds() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc lists the descriptors").count()
}

#[test]
fn only_a_listener_needs_every_address() {
    let table = client::register::<SoftRoce>("addresses", "", false);
    let before = fds();
    let side = client::Side::new(table, "addresses");
    assert_eq!(fds() - before, FDS_OF_ADAPTER + FDS_OF_ADDRESS);
    let opened = fds();
    let (_psp, _) = side.new_psp(DAT_PSP_CONSUMER_FLAG);
    let addresses = netdev::addresses()
        .expect("the host lists its addresses")
        .iter()
        .filter(|found| found.up)
        .count();
    if addresses > 1 {
        assert!(fds() - opened > FDS_OF_ADDRESS, "{addresses} addresses");
    }
    side.close();
}
