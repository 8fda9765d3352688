//! Tests of opening a device on a host without a device. `guest::engines::` and `guest::verbs::`
//! open real devices.

use dat_core::Error;
use dat_sys::{DAT_INVALID_ADDRESS, DAT_PROVIDER_NOT_FOUND};
use provider_verbs::device::Device;

#[test]
fn without_a_device_the_error_says_what_is_missing() {
    let error =
        Device::open(Some(LOOPBACK.into())).err().expect("no RDMA device has the loopback address");
    let missing = [Error::of(DAT_PROVIDER_NOT_FOUND), Error::of(DAT_INVALID_ADDRESS)];
    assert!(missing.contains(&error.code), "{error:?}");
    let words = [
        "install libibverbs1",
        "install librdmacm1",
        "is there an RDMA device",
        "no RDMA device has the address 127.0.0.1",
    ];
    assert!(words.iter().any(|word| error.reason.contains(word)), "{error}");
}

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);
