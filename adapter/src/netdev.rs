//! The host's network devices and their addresses.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

/// One address of a network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetAddr {
    /// The name of the device.
    pub device: String,
    /// The address with port 0. A link-local address includes its scope.
    pub addr: SocketAddr,
    /// Whether the device is up.
    pub up: bool,
}

impl NetAddr {
    /// Ranks the address by how well it identifies its device to other hosts. The best address has
    /// the smallest rank.
    fn rank(&self) -> u8 {
        match self.addr.ip() {
            IpAddr::V4(_) => 0,
            IpAddr::V6(ip) if !ip.is_unicast_link_local() => 1,
            IpAddr::V6(_) => 2,
        }
    }
}

/// Returns all addresses of all devices.
pub fn addresses() -> io::Result<Vec<NetAddr>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: getifaddrs stores a list through the valid pointer; the list is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: each entry of the list is valid until freeifaddrs.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: the addresses of the list are null or complete for their family.
        let Some(addr) = (unsafe { socket_addr(entry.ifa_addr) }) else { continue };
        // SAFETY: the names of the list are C strings.
        let device = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        found.push(NetAddr { device, addr, up: entry.ifa_flags & libc::IFF_UP as u32 != 0 });
    }
    // SAFETY: the list came from getifaddrs, and nothing points into it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// Returns the MTU of a device: the maximum size of an IP packet, in octets.
pub fn mtu(device: &str) -> io::Result<usize> {
    // SAFETY: an ifreq is plain data, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let (name, place) = (device.as_bytes(), &mut request.ifr_name);
    if name.len() >= place.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, &from) in place.iter_mut().zip(name) {
        *to = from as libc::c_char;
    }
    // The ioctl works with any kind of socket.
    let socket = UnixDatagram::unbound()?;
    // SAFETY: the request has a terminated name, and the kernel writes its answer in place.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel answers this request in this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.max(0) as usize)
}

/// Returns whether `ip` is an address of this host.
pub fn is_own(ip: IpAddr) -> bool {
    let listed = || addresses().unwrap_or_default().iter().any(|found| found.addr.ip() == ip);
    // All addresses of 127/8 belong to this host, although the list contains only one of them.
    ip.is_loopback() || listed()
}

/// Returns the index of the interface that has a local address, or 0 if it is not known.
pub fn interface_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => v6.scope_id(),
        _ => {
            let all = addresses().unwrap_or_default();
            let found = all.iter().find(|found| found.addr.ip() == address.ip());
            found.and_then(|found| address::interface_index(&found.device)).unwrap_or(0)
        }
    }
}

/// Returns the best address of a device: IPv4 before IPv6, global before link-local.
pub fn of_device<'a>(all: &'a [NetAddr], device: &str) -> Option<&'a NetAddr> {
    all.iter().filter(|a| a.device == device).min_by_key(|a| a.rank())
}

/// Returns the address by which other hosts know this host best: an address of a device that is up
/// and is not the loopback device. If there is none, returns the loopback address.
pub fn of_host(all: &[NetAddr]) -> SocketAddr {
    all.iter()
        .filter(|a| a.up && !a.addr.ip().is_loopback())
        .min_by_key(|a| a.rank())
        .map_or(SocketAddr::from(([127, 0, 0, 1], 0)), |a| a.addr)
}

/// Converts a socket address of C.
///
/// # Safety
/// `addr` is null or points to a socket address that is complete for its family.
unsafe fn socket_addr(addr: *const libc::sockaddr) -> Option<SocketAddr> {
    // SAFETY: the caller guarantees that `addr` is null or valid.
    let family = i32::from(unsafe { addr.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: the family says that this is a sockaddr_in. The read needs no alignment.
            let v4 = unsafe { addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(SocketAddrV4::new(u32::from_be(v4.sin_addr.s_addr).into(), 0).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that this is a sockaddr_in6. The read needs no alignment.
            let v6 = unsafe { addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(address::normalized(SocketAddrV6::new(ip, 0, 0, v6.sin6_scope_id).into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(device: &str, addr: &str, up: bool) -> NetAddr {
        NetAddr {
            device: device.into(),
            addr: SocketAddr::new(addr.parse().expect("an address"), 0),
            up,
        }
    }

    #[test]
    fn the_loopback_is_found() {
        let all = addresses().expect("devices");
        assert!(
            all.iter().any(|a| a.device == "lo" && a.addr.ip().is_loopback() && a.up),
            "{all:?}"
        );
    }

    #[test]
    fn a_device_has_an_mtu() {
        // IPv6 requires that every device has an MTU of at least 1280 octets.
        assert!(mtu("lo").expect("there always is one") >= 1280);
        for name in ["nosuchdevice", "a name that is too long for a device", ""] {
            mtu(name).expect_err(name);
        }
    }

    #[test]
    fn the_best_address_wins() {
        let mut all = vec![
            of("lo", "127.0.0.1", true),
            of("eth0", "fe80::1", true),
            of("eth0", "fd00::2", true),
            of("eth1", "10.0.0.1", false),
        ];
        assert_eq!(
            of_device(&all, "eth0").map(|a| a.addr.ip()),
            Some("fd00::2".parse().expect("an address"))
        );
        assert_eq!(of_device(&all, "eth7"), None);
        assert_eq!(of_host(&all).ip(), "fd00::2".parse::<IpAddr>().expect("an address"));
        all.push(of("eth2", "192.0.2.1", true));
        assert_eq!(of_host(&all).ip(), "192.0.2.1".parse::<IpAddr>().expect("an address"));
        assert_eq!(of_host(&all[..1]).ip(), "127.0.0.1".parse::<IpAddr>().expect("an address"));
    }
}
