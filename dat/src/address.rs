//! Addresses of adapters.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::{fmt, io};

use dat_core::addr::{self, SockAddr};
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
    /// The address in its normalized form, with port 0.
    normalized: SocketAddr,
}

impl Address {
    /// The IP address.
    pub fn ip(&self) -> IpAddr {
        self.normalized.ip()
    }

    /// Returns the address with this port, as sockets need it.
    pub fn with_port(&self, port: u16) -> SocketAddr {
        let mut address = self.normalized;
        address.set_port(port);
        address
    }

    /// Reads the address that a provider points to, if its family is IPv4 or IPv6.
    ///
    /// # Safety
    ///
    /// `ptr` must be null or point to an address of the length that its family requires.
    pub(crate) unsafe fn read(ptr: DAT_IA_ADDRESS_PTR) -> Option<Self> {
        // SAFETY: the caller guarantees that the address is as long as its family says.
        unsafe { addr::parse(ptr) }.ok().map(Into::into)
    }

    /// Converts the address to C.
    pub(crate) fn to_c(self) -> SockAddr {
        self.normalized.into()
    }
}

/// An IPv4-mapped IPv6 address becomes the IPv4 address.
impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        SocketAddr::new(ip, 0).into()
    }
}

/// Converts a socket address, without its port. An IPv4-mapped IPv6 address becomes the IPv4
/// address, and only a link-local address keeps its scope.
impl From<SocketAddr> for Address {
    fn from(mut address: SocketAddr) -> Self {
        address.set_port(0);
        Address { normalized: ::address::normalized(address) }
    }
}

/// Parses an IPv4 or IPv6 address. A scope is the number or the name of a network interface, as in
/// `fe80::1%3` and `fe80::1%eth0`.
impl FromStr for Address {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let not_an_address = || NotAnAddress { text: text.to_owned() };
        ::address::from_text(text).map(Into::into).ok_or_else(not_an_address)
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
        match self.normalized {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => write!(f, "{}%{}", v6.ip(), v6.scope_id()),
            address => address.ip().fmt(f),
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
            let c = address.to_c();
            // SAFETY: the address was just created.
            assert_eq!(unsafe { Address::read(c.as_ptr()) }, Some(address));
            assert_eq!(address.to_string(), text);
            assert_eq!(Address::from(address.with_port(7)), address);
        }
        // SAFETY: a null pointer is permitted.
        assert_eq!(unsafe { Address::read(std::ptr::null_mut()) }, None);
        assert!("fe80::1%eth0%".parse::<Address>().is_err());
        assert_eq!("fe80::1%lo".parse::<Address>(), "fe80::1%1".parse());
    }

    #[test]
    fn an_ipv4_mapped_address_is_the_ipv4_address() {
        let [mapped, ipv4] = ["::ffff:192.0.2.7", "192.0.2.7"].map(|text| text.parse::<Address>());
        assert_eq!(mapped, ipv4);
        let mapped = "::ffff:192.0.2.7".parse::<IpAddr>().expect("an IP address");
        assert_eq!(Ok(Address::from(mapped)), ipv4);
    }
}
