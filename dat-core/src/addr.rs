//! Socket addresses in their C representation.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use ::address::normalized;
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

/// Returns the address as seen from an adapter on the network interface with this index
/// ([`address::with_scope`](::address::with_scope)).
///
/// # Errors
/// `DAT_INVALID_ADDRESS` if the scope remains unknown.
pub(crate) fn with_scope(address: SocketAddr, interface: u32) -> Result<SocketAddr> {
    let malformed = Error::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED);
    ::address::with_scope(address, interface).ok_or(malformed)
}

/// Converts an address that a consumer has passed to its one form ([`normalized`]). Fails with
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
}
