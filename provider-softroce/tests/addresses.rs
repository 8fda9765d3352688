//! An adapter that serves every address of the host opens an address when it first needs it.

#[path = "../../dat-core/tests/table/client.rs"]
#[allow(dead_code, unused_imports)] // Other tests use the rest.
mod client;
#[path = "../../dat-core/tests/table/link_local.rs"]
mod link_local;

use std::net::UdpSocket;
use std::process::Command;
use std::ptr::null_mut;

use adapter::netdev;
use client::dat;
use dat_core::Error;
use dat_sys::*;
use provider_softroce::SoftRoce;
use wire::rocev2::UDP_PORT;

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

/// A service point needs every address of the host, and another program uses port 4791 of one of
/// them.
#[test]
fn a_service_point_needs_the_port_of_every_address() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can have a network of its own");
        return;
    }
    let test = || {
        // SAFETY: the call accesses no memory. The system call changes the network of this thread
        // only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNET) }, 0);
        for command in [
            "link set lo up",
            "link add wire type veth peer name other",
            "addr add 10.49.0.1/24 dev wire",
            "addr add 10.49.0.2/24 dev wire",
            "link set wire up",
            "link set other up",
        ] {
            let done = Command::new("ip").args(command.split(' ')).status();
            assert!(done.expect("iproute2 is installed").success(), "ip {command}");
        }
        let table = client::register::<SoftRoce>("taken", "", false);
        let side = client::Side::new(table, "taken");
        let taken = UdpSocket::bind(("10.49.0.2", UDP_PORT)).expect("nobody has the port");
        let (mut psp, flags) = (null_mut(), DAT_PSP_CONSUMER_FLAG);
        let refused = dat!(table, psp_create_func(side.ia, 7, side.cr_evd, flags, &mut psp));
        let no_device = Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE);
        assert_eq!(refused, Err(no_device));
        drop(taken);
        dat!(table, psp_create_func(side.ia, 7, side.cr_evd, flags, &mut psp)).unwrap();
        side.close();
    };
    std::thread::spawn(test).join().expect("no panic");
}

#[test]
fn peers_are_found_by_any_form_of_their_address() {
    link_local::peers_are_found_by_any_form_of_their_address::<SoftRoce>(&link_local::CONNECTIONS);
}

#[test]
fn peers_of_datagrams_are_found_by_any_form_of_their_address() {
    link_local::peers_are_found_by_any_form_of_their_address::<SoftRoce>(&link_local::DATAGRAMS);
}
