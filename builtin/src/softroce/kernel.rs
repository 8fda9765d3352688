//! The kernel's implementation of RoCEv2, which is called rxe. This module finds or creates the rxe
//! device of a network device, and opens adapters on it through provider-verbs.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use adapter::netdev::{self, NetAddr};
use dat_core::export::Opened;
use dat_core::{Error, OpenError};
use dat_sys::{DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_ADDRESS, DAT_RESOURCE_DEVICE};
use provider_softroce::Params;
use provider_verbs::params::SYSFS;

use super::netlink;

/// An rxe device and an address of its network device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rxe {
    /// The name of the device, for example `rxe0`.
    pub(crate) name: String,
    netdev: String,
    address: IpAddr,
}

/// The time that a new device may take to become usable. The kernel's workers give it addresses
/// some time after its creation.
const DEVICE_READY_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two attempts to use a new device.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Returns the rxe device of the address `bind`. Without `bind`, returns the rxe device of the
/// first address of the host that has an rxe device. This function loads no library. If the kernel
/// has no RDMA subsystem, the function only looks for one directory of sysfs.
pub(crate) fn find(bind: Option<SocketAddr>) -> Option<Rxe> {
    let sysfs = Path::new(SYSFS);
    if !sysfs.exists() {
        return None;
    }
    find_in(sysfs, bind, &netdev::addresses().unwrap_or_default())
}

fn find_in(sysfs: &Path, bind: Option<SocketAddr>, addresses: &[NetAddr]) -> Option<Rxe> {
    let devices: Vec<_> = fs::read_dir(sysfs).ok()?.flatten().collect();
    let rxe_of = |found: &NetAddr| {
        let of = devices.iter().find(|device| {
            // Only rxe devices have the file `parent`.
            let parent = fs::read_to_string(device.path().join("parent")).unwrap_or_default();
            parent.trim() == found.device
        });
        Some(Rxe {
            name: of?.file_name().into_string().ok()?,
            netdev: found.device.clone(),
            address: found.addr.ip(),
        })
    };
    candidates(bind, addresses).into_iter().find_map(rxe_of)
}

/// The addresses that an adapter may use, the best one first.
fn candidates(bind: Option<SocketAddr>, addresses: &[NetAddr]) -> Vec<&NetAddr> {
    let mut candidates: Vec<_> = addresses
        .iter()
        .filter(|found| match bind {
            Some(bind) => found.addr.ip() == bind.ip(),
            None => found.up && !found.addr.ip().is_loopback(),
        })
        .collect();
    let own = netdev::of_host(addresses).ip();
    candidates.sort_by_key(|found| (found.addr.ip() != own, found.addr.is_ipv6()));
    candidates
}

/// Opens an adapter of the device. The adapter's attribute `engine` contains `why`, the reason for
/// using rxe.
///
/// # Errors
/// Returns the errors of provider-verbs.
pub(crate) fn open(ia: &str, rxe: &Rxe, params: &Params, why: &str) -> Result<Opened, OpenError> {
    let spin = params
        .common
        .adapter
        .spin
        .map_or_else(String::new, |spin| format!("spin={}", spin.as_micros()));
    // `strict` and `stats` are always in the parameters, so that OPENDAT_PARAMS does not override
    // their values.
    let on = |switch| if switch { "on" } else { "off" };
    let (strict, stats) = (on(params.common.strict), on(params.common.stats));
    let params = format!("{} {spin} strict={strict} stats={stats}", rxe.address);
    let engine = format!("the kernel's {} on {}: {why}", rxe.name, rxe.netdev);
    provider_verbs::open(ia, &params, ("engine", &engine))
}

/// Opens an adapter for `engine=kernel`, on the existing rxe device or on a new one.
///
/// # Errors
/// - `DAT_INVALID_ADDRESS`: no network device can have an rxe device.
/// - `DAT_INSUFFICIENT_RESOURCES`: the device cannot be created.
/// - `DAT_PROVIDER_NOT_FOUND`: the libraries of provider-verbs are missing.
/// - The errors of [`open`].
pub(crate) fn open_or_create(ia: &str, params: &Params) -> Result<Opened, OpenError> {
    let bind = params.common.adapter.bind;
    if let Some(rxe) = find(bind) {
        return open(ia, &rxe, params, "engine=kernel");
    }
    let addresses = netdev::addresses().unwrap_or_default();
    let candidate =
        candidates(bind, &addresses).into_iter().find(|found| !found.addr.ip().is_loopback());
    let netdev = &candidate.ok_or_else(no_usable_address)?.device;
    provider_verbs::device::libraries()?;
    let name = format!("rxe_{netdev}");
    match netlink::add_rxe(&name, netdev) {
        // Another process has created an rxe device since the first call of `find`, perhaps with
        // another name.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && find(bind).is_some() => {}
        result => result.map_err(|e| creation_error(&name, netdev, &e))?,
    }
    let since = Instant::now();
    loop {
        let opened = match find(bind) {
            Some(rxe) => open(ia, &rxe, params, "engine=kernel, created for it"),
            None => Err(no_usable_address()),
        };
        match opened {
            Err(_) if since.elapsed() < DEVICE_READY_TIMEOUT => std::thread::sleep(RETRY_INTERVAL),
            opened => return opened,
        }
    }
}

fn no_usable_address() -> OpenError {
    OpenError::new(
        Error::of(DAT_INVALID_ADDRESS),
        "engine=kernel: the kernel's rxe needs a network device, other than the loopback device, \
         that has an address: specify one, as in \"eth0 engine=kernel\"",
    )
}

fn creation_error(name: &str, netdev: &str, error: &io::Error) -> OpenError {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "only root may create an rxe device, and not on a VLAN: create it beforehand, or use \
             engine=user"
        }
        io::ErrorKind::AlreadyExists => {
            "an RDMA device with this name or on this network device exists already (rdma link \
             show)"
        }
        _ => "the kernel has no rxe or cannot load it (modprobe rdma_rxe)",
    };
    OpenError::new(
        Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE),
        format!(
            "engine=kernel: {netdev} has no rxe device, and \"rdma link add {name} type rxe netdev \
             {netdev}\" fails: {error}: {hint}"
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
