//! Addresses of adapters.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;
use std::{fmt, io};

use dat_sys::DAT_IA_ADDRESS_PTR;

/// The address of an adapter: an IP address, with a scope for IPv6. It has no port, because in DAT
/// the port is the connection qualifier or port qualifier.
///
/// ```
/// let address: dat::Address = "192.0.2.7".parse()?;
/// assert_eq!(address.ip().to_string(), "192.0.2.7");
/// # Ok::<(), dat::NotAnAddress>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    ip: IpAddr,
    scope: u32,
}

impl Address {
    /// The IP address.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Returns the address with this port, as sockets need it.
    pub fn with_port(&self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(ip) => (ip, port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.scope).into(),
        }
    }

    /// Reads the address that a provider points to, if its family is IPv4 or IPv6.
    ///
    /// # Safety
    ///
    /// `ptr` must be null or point to an address of the length that its family requires.
    pub(crate) unsafe fn read(ptr: DAT_IA_ADDRESS_PTR) -> Option<Self> {
        if ptr.is_null() {
            return None;
        }
        let raw: *const libc::sockaddr = ptr.cast_const().cast();
        // SAFETY: the caller guarantees that the address is valid. Providers need not align it.
        match i32::from(unsafe { (&raw const (*raw).sa_family).read_unaligned() }) {
            libc::AF_INET => {
                // SAFETY: the caller guarantees that the address is as long as its family says.
                // Providers need not align it.
                let sin = unsafe { raw.cast::<libc::sockaddr_in>().read_unaligned() };
                Some(IpAddr::from(Ipv4Addr::from(u32::from_be(sin.sin_addr.s_addr))).into())
            }
            libc::AF_INET6 => {
                // SAFETY: the caller guarantees that the address is as long as its family says.
                // Providers need not align it.
                let sin6 = unsafe { raw.cast::<libc::sockaddr_in6>().read_unaligned() };
                let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
                Some(Address { ip: ip.into(), scope: sin6.sin6_scope_id })
            }
            _ => None,
        }
    }

    /// Converts the address to C.
    pub(crate) fn to_c(self) -> libc::sockaddr_in6 {
        match self.ip {
            IpAddr::V4(ip) => {
                let sin = libc::sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: 0,
                    sin_addr: libc::in_addr { s_addr: u32::from(ip).to_be() },
                    sin_zero: [0; 8],
                };
                // SAFETY: all-zero bytes are a valid value of this type.
                let mut storage: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
                // SAFETY: a sockaddr_in6 has sufficient size and alignment for a sockaddr_in.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(sin) };
                storage
            }
            IpAddr::V6(ip) => libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                sin6_scope_id: self.scope,
            },
        }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        Address { ip, scope: 0 }
    }
}

/// Converts a socket address, without its port.
impl From<SocketAddr> for Address {
    fn from(addr: SocketAddr) -> Self {
        let scope = if let SocketAddr::V6(v6) = addr { v6.scope_id() } else { 0 };
        Address { ip: addr.ip(), scope }
    }
}

/// Parses an IPv4 or IPv6 address. A scope is a number, as in `fe80::1%3`.
impl FromStr for Address {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        match text.parse::<IpAddr>() {
            Ok(ip) => Ok(ip.into()),
            Err(_) => format!("[{text}]:0")
                .parse::<SocketAddrV6>()
                .map(|a| SocketAddr::V6(a).into())
                .map_err(|_| NotAnAddress { text: text.to_owned() }),
        }
    }
}

/// A text that is not an [`Address`]. It converts to [`io::Error`].
///
/// ```
/// let error = "example.org".parse::<dat::Address>().unwrap_err();
/// assert_eq!(error.to_string(), "\"example.org\" is not an IP address");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct NotAnAddress {
    text: String,
}

impl Error for NotAnAddress {}

impl From<NotAnAddress> for io::Error {
    fn from(error: NotAnAddress) -> Self {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}

/// `Debug` prints the same text as `Display`, because it is used when `main` returns the error.
impl fmt::Debug for NotAnAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NotAnAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an IP address", self.text)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            0 => self.ip.fmt(f),
            scope => write!(f, "{}%{scope}", self.ip),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_trip_through_c() {
        for text in ["127.0.0.1", "::1", "fe80::1%3"] {
            let address: Address = text.parse().expect(text);
            let mut c = address.to_c();
            // SAFETY: the address was just created.
            assert_eq!(unsafe { Address::read((&raw mut c).cast()) }, Some(address));
            assert_eq!(address.to_string(), text);
            assert_eq!(Address::from(address.with_port(7)), address);
        }
        // SAFETY: a null pointer is permitted.
        assert_eq!(unsafe { Address::read(std::ptr::null_mut()) }, None);
        assert!("fe80::1%eth0%".parse::<Address>().is_err());
    }
}
