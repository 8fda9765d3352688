//! Opening devices: where there is one, and where there is none.

use std::net::SocketAddr;
use std::path::Path;

use dat_core::Error;
use dat_sys::{DAT_INVALID_ADDRESS, DAT_PROVIDER_NOT_FOUND};
use provider_verbs::device::Device;
use provider_verbs::params::SYSFS;

#[test]
fn without_a_device_the_error_says_what_is_missing() {
    let error = Device::open(Some(LOOPBACK.into())).err().expect("the loopback has no device");
    let missing = [Error::of(DAT_PROVIDER_NOT_FOUND), Error::of(DAT_INVALID_ADDRESS)];
    assert!(missing.contains(&error.code), "{error:?}");
    let words =
        ["install libibverbs1", "install librdmacm1", "is there an RDMA device", "127.0.0.1 is of no RDMA"];
    assert!(words.iter().any(|word| error.reason.contains(word)), "{error}");
}

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

#[test]
#[ignore = "not a test: of a host with an RDMA device"]
fn a_device_is_found_by_its_address() {
    let device = Device::open(None).unwrap_or_else(|e| panic!("{e}"));
    assert!(Path::new(SYSFS).join(&device.name).exists(), "{}", device.name);
    let attrs = device.attrs("verbs");
    println!("{attrs:#?}");
    assert_eq!((attrs.address, attrs.address.port()), (device.address, 0));
    assert!(attrs.max_dtos > 0 && attrs.max_segments > 0 && attrs.max_message > 0 && attrs.max_regions > 0);

    let again = Device::open(Some(device.address)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((again.name.as_str(), again.port), (device.name.as_str(), device.port));
    let error = Device::open(Some(SocketAddr::from(LOOPBACK))).err().expect("the loopback has no device");
    assert!(error.reason.contains("127.0.0.1 is of no RDMA device"), "{error}");
}
