//! The kernel's own RoCEv2, rxe: whether a network device has one, making one, and running it through provider-verbs.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use adapter::netdev::{self, NetAddr};
use dat_core::provider::Provider;
use dat_core::{Error, OpenError};
use dat_sys::{DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_ADDRESS, DAT_RESOURCE_DEVICE};
use provider_verbs::params::SYSFS;
use provider_verbs::{Adapter, Verbs};

use crate::netlink;
use crate::params::Params;

/// An rxe device, and an address of the network device that it is on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rxe {
    /// Its name, as in `rxe0`.
    pub(crate) name: String,
    netdev: String,
    address: IpAddr,
}

/// A new device has its addresses only when the kernel's workers have come to it.
const PATIENCE: Duration = Duration::from_secs(5);
const MEANWHILE: Duration = Duration::from_millis(10);

/// The rxe device of the address that is asked for, or of the first address of the host that has one. No library is opened
/// for that, and where there is no RDMA device at all it costs one look into sysfs.
pub(crate) fn find(bind: Option<SocketAddr>) -> Option<Rxe> {
    find_in(Path::new(SYSFS), bind, &netdev::addresses().unwrap_or_default())
}

fn find_in(sysfs: &Path, bind: Option<SocketAddr>, addresses: &[NetAddr]) -> Option<Rxe> {
    let devices: Vec<_> = fs::read_dir(sysfs).ok()?.flatten().collect();
    let rxe_of = |found: &NetAddr| {
        let of = devices.iter().find(|device| {
            // Only rxe has this file.
            let parent = fs::read_to_string(device.path().join("parent")).unwrap_or_default();
            parent.trim() == found.device
        });
        Some(Rxe {
            name: of?.file_name().into_string().ok()?,
            netdev: found.device.clone(),
            address: found.addr.ip(),
        })
    };
    places(bind, addresses).into_iter().find_map(rxe_of)
}

/// The addresses that an adapter may be of, the best one first.
fn places(bind: Option<SocketAddr>, addresses: &[NetAddr]) -> Vec<&NetAddr> {
    let mut places: Vec<_> = addresses
        .iter()
        .filter(|found| match bind {
            Some(bind) => found.addr.ip() == bind.ip(),
            None => found.up && !found.addr.ip().is_loopback(),
        })
        .collect();
    let own = netdev::of_host(addresses).ip();
    places.sort_by_key(|found| (found.addr.ip() != own, found.addr.is_ipv6()));
    places
}

/// Opens an adapter of it; `why` is told to who asks for its attributes.
///
/// # Errors
/// As provider-verbs has them.
pub(crate) fn open(ia: &str, rxe: &Rxe, params: &Params, why: &str) -> Result<Adapter, OpenError> {
    let spin =
        params.adapter.spin.map_or_else(String::new, |spin| format!("spin={}", spin.as_micros()));
    let strict = if params.adapter.strict { "strict=on" } else { "" };
    let adapter = Verbs.open(ia, &format!("{} {spin} {strict}", rxe.address))?;
    Ok(adapter
        .with_attribute("engine", &format!("the kernel's {} on {}: {why}", rxe.name, rxe.netdev)))
}

/// For `engine=kernel`: the device that is there, or a new one.
///
/// # Errors
/// `DAT_INVALID_ADDRESS` where there can be none, `DAT_INSUFFICIENT_RESOURCES` where none can be made, `DAT_PROVIDER_NOT_FOUND`
/// where none could be used; as [`open`].
pub(crate) fn open_or_make(ia: &str, params: &Params) -> Result<Adapter, OpenError> {
    let bind = params.adapter.bind;
    if let Some(rxe) = find(bind) {
        return open(ia, &rxe, params, "engine=kernel");
    }
    let addresses = netdev::addresses().unwrap_or_default();
    let place = places(bind, &addresses).into_iter().find(|found| !found.addr.ip().is_loopback());
    let netdev = &place.ok_or_else(no_place)?.device;
    provider_verbs::device::libraries()?;
    let name = format!("rxe_{netdev}");
    match netlink::add_rxe(&name, netdev) {
        // Another process was faster, and may have another name for it.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && find(bind).is_some() => {}
        made => made.map_err(|e| cannot_be_made(&name, netdev, &e))?,
    }
    let since = Instant::now();
    loop {
        let opened = match find(bind) {
            Some(rxe) => open(ia, &rxe, params, "engine=kernel, made for it"),
            None => Err(no_place()),
        };
        match opened {
            Err(_) if since.elapsed() < PATIENCE => std::thread::sleep(MEANWHILE),
            opened => return opened,
        }
    }
}

fn no_place() -> OpenError {
    OpenError::new(
        Error::of(DAT_INVALID_ADDRESS),
        "engine=kernel: the kernel's rxe needs a network device with an address, and not the loopback's: say which one, \
         as in \"eth0 engine=kernel\"",
    )
}

fn cannot_be_made(name: &str, netdev: &str, error: &io::Error) -> OpenError {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "only root may make one, of a device that is no VLAN: have it made before, or say engine=user"
        }
        io::ErrorKind::AlreadyExists => {
            "that name, or a device of this one, is there, see rdma link show"
        }
        _ => "the kernel has no rxe, or cannot load it (modprobe rdma_rxe)",
    };
    OpenError::new(
        Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE),
        format!(
            "engine=kernel: {netdev} has no rxe device, and rdma link add {name} type rxe netdev {netdev}: {error}: {hint}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(device: &str, addr: &str, up: bool) -> NetAddr {
        NetAddr {
            device: device.into(),
            addr: SocketAddr::new(addr.parse().expect("an address"), 0),
            up,
        }
    }

    #[test]
    fn the_device_of_an_address_is_found_by_what_sysfs_says() {
        let sysfs = tempfile::tempdir().expect("a directory");
        for (device, parent) in [("rxe0", Some("eth1\n")), ("siw0", None), ("mlx5_0", None)] {
            fs::create_dir(sysfs.path().join(device)).expect("a directory");
            if let Some(parent) = parent {
                fs::write(sysfs.path().join(device).join("parent"), parent).expect("a file");
            }
        }
        let addresses = [
            address("lo", "127.0.0.1", true),
            address("eth0", "10.0.0.1", true),
            address("eth1", "fd00::1", true),
            address("eth1", "10.0.1.1", true),
        ];
        let found = |bind: Option<&str>| {
            let bind = bind.map(|ip| SocketAddr::new(ip.parse().expect("an address"), 0));
            find_in(sysfs.path(), bind, &addresses)
                .map(|rxe| (rxe.name, rxe.netdev, rxe.address.to_string()))
        };
        let rxe0 = |address: &str| Some(("rxe0".to_owned(), "eth1".to_owned(), address.to_owned()));
        assert_eq!(found(Some("10.0.1.1")), rxe0("10.0.1.1"));
        assert_eq!(found(Some("fd00::1")), rxe0("fd00::1"));
        assert_eq!(found(None), rxe0("10.0.1.1"));
        assert_eq!(found(Some("10.0.0.1")), None);
        assert_eq!(found(Some("127.0.0.1")), None);
        assert_eq!(find_in(Path::new("/nonexistent"), None, &addresses), None);
    }
}
