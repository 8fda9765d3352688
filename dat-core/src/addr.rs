//! Socket addresses in their C representation.

use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use dat_sys::*;

use crate::error::{Error, Result};

/// A socket address in its C representation. Consumers get pointers to it.
#[derive(Clone, Copy)]
pub struct SockAddr(libc::sockaddr_storage);

impl SockAddr {
    /// Creates a value that stands for no address: its address family is 0.
    pub const fn none() -> Self {
        // SAFETY: all zeroes is a valid sockaddr_storage.
        SockAddr(unsafe { std::mem::zeroed() })
    }

    /// A pointer to the address, for C code.
    pub fn as_ptr(&self) -> DAT_IA_ADDRESS_PTR {
        std::ptr::from_ref(&self.0).cast_mut().cast()
    }

    /// The first part of the address, which is a whole IPv4 or IPv6 address.
    pub fn to_sockaddr6(self) -> DAT_SOCK_ADDR6 {
        const { assert!(size_of::<DAT_SOCK_ADDR6>() <= size_of::<libc::sockaddr_storage>()) };
        // SAFETY: a sockaddr_storage is larger than a DAT_SOCK_ADDR6, all its octets are
        // initialized, and both consist of integers.
        unsafe { self.as_ptr().cast::<DAT_SOCK_ADDR6>().read_unaligned() }
    }

    /// Converts the address to a Rust type. Returns `None` if this value stands for no address.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        // SAFETY: the content is as long as its address family says, or its address family is 0.
        unsafe { parse(self.as_ptr()) }.ok()
    }
}

impl From<SocketAddr> for SockAddr {
    fn from(addr: SocketAddr) -> Self {
        let mut storage = SockAddr::none();
        match addr {
            SocketAddr::V4(v4) => {
                let sin = libc::sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is large and aligned enough for any sockaddr.
                unsafe { (&raw mut storage.0).cast::<libc::sockaddr_in>().write(sin) }
            }
            SocketAddr::V6(v6) => {
                let sin6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: sockaddr_storage is large and aligned enough for any sockaddr.
                unsafe { (&raw mut storage.0).cast::<libc::sockaddr_in6>().write(sin6) }
            }
        }
        storage
    }
}

/// Returns the only form in which addresses are stored and compared. An IPv4-mapped IPv6 address
/// becomes the IPv4 address, because the sockets of some providers carry only one address family.
/// Only a link-local address has a scope. No address has a flow label.
pub fn normalized(address: SocketAddr) -> SocketAddr {
    let SocketAddr::V6(v6) = address else { return address };
    match v6.ip().to_ipv4_mapped() {
        Some(ip) => (ip, v6.port()).into(),
        None => {
            let scope = if v6.ip().is_unicast_link_local() { v6.scope_id() } else { 0 };
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope).into()
        }
    }
}

/// Returns the address as seen from an adapter on the network interface with this index: a
/// link-local address without a scope gets the index as its scope. The index is 0 if the adapter is
/// not bound to one interface.
///
/// # Errors
/// `DAT_INVALID_ADDRESS` if the scope remains unknown, because the address exists on each
/// interface.
pub fn with_scope(mut address: SocketAddr, interface: u32) -> Result<SocketAddr> {
    match &mut address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            if interface == 0 {
                return Err(Error::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED));
            }
            v6.set_scope_id(interface);
        }
        _ => {}
    }
    Ok(address)
}

/// Parses an IPv4 or IPv6 address, and returns it with port 0. An IPv6 address may be in brackets.
/// It may have a scope, the name or the index of a network interface, as in `fe80::1%eth0`. Returns
/// `None` if the text is no address, or if this host has no interface with that name.
pub fn from_text(text: &str) -> Option<SocketAddr> {
    let unbracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let inside = unbracketed.unwrap_or(text);
    let (ip, scope) = match inside.split_once('%') {
        Some((ip, scope)) => (ip.parse::<Ipv6Addr>().ok()?.into(), scope_of(scope)?),
        None => (inside.parse().ok()?, 0),
    };
    match ip {
        IpAddr::V4(_) if unbracketed.is_some() => None,
        IpAddr::V4(ip) => Some((ip, 0).into()),
        IpAddr::V6(ip) => Some(normalized(SocketAddrV6::new(ip, 0, 0, scope).into())),
    }
}

/// Returns the scope that a text denotes: an index, or the name of an interface.
fn scope_of(text: &str) -> Option<u32> {
    let index = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    index.or_else(|| interface_index(text)).filter(|&scope| scope != 0)
}

/// Returns the index of the network interface with this name, if this host has one.
pub fn interface_index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name is a C string.
    Some(unsafe { libc::if_nametoindex(name.as_ptr()) }).filter(|&index| index != 0)
}

/// Converts an address that a consumer has passed to its [normalized] form. Fails with
/// `DAT_INVALID_ADDRESS` if the pointer is NULL or if the address is neither an IPv4 address nor an
/// IPv6 address.
///
/// # Safety
/// If the pointer is not NULL, it leads to a readable address that is as long as its family says.
pub unsafe fn parse(ptr: DAT_IA_ADDRESS_PTR) -> Result<SocketAddr> {
    if ptr.is_null() {
        return Err(Error::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED));
    }
    let raw: *const libc::sockaddr = ptr.cast_const().cast();
    // SAFETY: the caller guarantees that the pointer is valid. Consumers need not align the
    // address.
    match i32::from(unsafe { (&raw const (*raw).sa_family).read_unaligned() }) {
        libc::AF_INET => {
            // SAFETY: this is an IPv4 address, and the caller guarantees that it is as long as its
            // family says.
            let sin = unsafe { raw.cast::<libc::sockaddr_in>().read_unaligned() };
            Ok((Ipv4Addr::from(u32::from_be(sin.sin_addr.s_addr)), u16::from_be(sin.sin_port))
                .into())
        }
        libc::AF_INET6 => {
            // SAFETY: this is an IPv6 address, and the caller guarantees that it is as long as its
            // family says.
            let sin6 = unsafe { raw.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
            let port = u16::from_be(sin6.sin6_port);
            Ok(normalized(SocketAddrV6::new(ip, port, 0, sin6.sin6_scope_id).into()))
        }
        _ => Err(Error::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNSUPPORTED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_trip_through_c() {
        for text in ["127.0.0.1:7", "[::1]:4791", "[fe80::1%3]:1"] {
            let addr: SocketAddr = text.parse().unwrap();
            let c = SockAddr::from(addr);
            // SAFETY: `c` is a valid address, created above.
            assert_eq!(unsafe { parse(c.as_ptr()) }.unwrap(), addr);
        }
        let mapped = SockAddr::from("[::ffff:192.0.2.7]:7".parse::<SocketAddr>().unwrap());
        // SAFETY: `mapped` is a valid address, created above.
        assert_eq!(unsafe { parse(mapped.as_ptr()) }.unwrap(), "192.0.2.7:7".parse().unwrap());
        // SAFETY: the first pointer is NULL, and the second leads to a complete sockaddr_storage.
        unsafe {
            assert!(parse(std::ptr::null_mut()).is_err());
            assert!(parse(SockAddr::none().as_ptr()).is_err());
        }
    }

    #[test]
    fn addresses_have_one_form() {
        for (given, form) in [
            ("[::ffff:192.0.2.7]:7", "192.0.2.7:7"),
            ("192.0.2.7:7", "192.0.2.7:7"),
            ("[fd00::1%9]:7", "[fd00::1]:7"),
            ("[fe80::1%9]:7", "[fe80::1%9]:7"),
        ] {
            assert_eq!(normalized(given.parse().unwrap()), form.parse().unwrap(), "{given}");
        }
        let labelled = SocketAddrV6::new("fd00::1".parse().unwrap(), 7, 5, 0).into();
        assert_eq!(normalized(labelled), "[fd00::1]:7".parse().unwrap());
    }

    #[test]
    fn a_link_local_address_gets_the_scope_of_the_adapter() {
        let on = |interface, text: &str| with_scope(text.parse().unwrap(), interface);
        assert_eq!(on(3, "[fe80::1]:7"), Ok("[fe80::1%3]:7".parse().unwrap()));
        assert_eq!(on(3, "[fe80::1%4]:7"), Ok("[fe80::1%4]:7".parse().unwrap()));
        assert_eq!(on(0, "[fe80::1%4]:7"), Ok("[fe80::1%4]:7".parse().unwrap()));
        let malformed = Error::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED);
        assert_eq!(on(0, "[fe80::1]:7"), Err(malformed));
        for text in ["[fd00::1]:7", "192.0.2.7:7"] {
            assert_eq!([on(0, text), on(3, text)], [Ok(text.parse().unwrap()); 2]);
        }
    }

    #[test]
    fn texts_of_addresses() {
        let lo = interface_index("lo").unwrap();
        for (text, address) in [
            ("192.0.2.7", "192.0.2.7:0".to_owned()),
            ("::ffff:192.0.2.7", "192.0.2.7:0".to_owned()),
            ("::1", "[::1]:0".to_owned()),
            ("[::1]", "[::1]:0".to_owned()),
            ("fe80::1%4", "[fe80::1%4]:0".to_owned()),
            ("[fe80::1%lo]", format!("[fe80::1%{lo}]:0")),
        ] {
            assert_eq!(from_text(text), Some(address.parse().unwrap()), "{text}");
        }
        for text in [
            "",
            "lo",
            "[192.0.2.7]",
            "192.0.2.7%lo",
            "fe80::1%",
            "fe80::1%0",
            "fe80::1%no-such",
            "fe80::1%4%4",
            "[::1",
            "::1]",
            "fe80::1%4294967296",
            "fe80::1%l\0o",
        ] {
            assert_eq!(from_text(text), None, "{text}");
        }
    }
}
