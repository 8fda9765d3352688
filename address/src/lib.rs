//! The addresses of peers and of this host: their one form, the interface of a link-local address,
//! and their texts.
//!
//! ```
//! let address = address::from_text("::ffff:192.0.2.7");
//! assert_eq!(address, Some(([192, 0, 2, 7], 0).into()), "an IPv4 address has one form");
//! ```

use std::ffi::CString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

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
/// not bound to one interface. Returns `None` if the scope remains unknown, because the address
/// exists on each interface.
pub fn with_scope(mut address: SocketAddr, interface: u32) -> Option<SocketAddr> {
    match &mut address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            if interface == 0 {
                return None;
            }
            v6.set_scope_id(interface);
        }
        _ => {}
    }
    Some(address)
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(on(3, "[fe80::1]:7"), Some("[fe80::1%3]:7".parse().unwrap()));
        assert_eq!(on(3, "[fe80::1%4]:7"), Some("[fe80::1%4]:7".parse().unwrap()));
        assert_eq!(on(0, "[fe80::1%4]:7"), Some("[fe80::1%4]:7".parse().unwrap()));
        assert_eq!(on(0, "[fe80::1]:7"), None);
        for text in ["[fd00::1]:7", "192.0.2.7:7"] {
            assert_eq!([on(0, text), on(3, text)], [Some(text.parse().unwrap()); 2]);
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
