//! Arguments that several commands have: hosts and sizes.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use anyhow::{Context, Result, ensure};

use crate::tasks::bench::MAX_MESSAGE_BYTES;

/// The TCP port of `dat serve`, at which clients' requests arrive. The data use other ports.
pub(crate) const SERVE_PORT: u16 = 7471;

/// Returns the address of the host where `dat serve` runs: the argument HOST.
pub(crate) fn resolve(host: &str) -> Result<SocketAddr> {
    ensure!(
        !host.trim().is_empty(),
        "HOST is an empty string; to use a process on this host, leave HOST out"
    );
    if let Some(address) = ipv6(host)? {
        return Ok(address);
    }
    if let Some((name, port)) = host.rsplit_once(':')
        && (!name.contains(':') || name.ends_with(']'))
    {
        let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
        ensure!(
            is_port,
            "{port:?} is not a port: expected a number from 1 to 65535 after the colon, as in \
             {name}:{}",
            SERVE_PORT
        );
    }
    let found = match host.to_socket_addrs() {
        Ok(found) => Ok(found),
        Err(_) => (host, SERVE_PORT).to_socket_addrs(),
    };
    let found = found.with_context(|| {
        format!("finding {host}: expected a host name or an address, as in 192.0.2.7 or node7:7471")
    })?;
    let all: Vec<SocketAddr> = found.collect();
    // tcp-emu and softroce serve IPv4 by default, so an IPv4 address is preferred.
    let best = all.iter().find(|address| address.is_ipv4()).or(all.first());
    best.copied().with_context(|| format!("{host} has no address"))
}

/// Parses an IPv6 address: without brackets it has no port, and behind brackets a port may follow.
/// A link-local address may have a scope, the name or the number of a network device. Returns
/// `None` if the text is something else.
fn ipv6(host: &str) -> Result<Option<SocketAddr>> {
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (inside, port) = bracketed.unwrap_or((host, ""));
    let (ip, scope) = inside.split_once('%').map_or((inside, None), |(ip, of)| (ip, Some(of)));
    let Ok(ip) = ip.parse::<Ipv6Addr>() else { return Ok(None) };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => SERVE_PORT,
        text => text.and_then(|text| text.parse().ok()).filter(|&port| port != 0).with_context(
            || {
                format!(
                    "{port:?} is not a port: expected a number from 1 to 65535 after the colon, as \
                     in [{inside}]:{SERVE_PORT}"
                )
            },
        )?,
    };
    let scope = scope.map_or(Ok(0), |name| {
        let number = name.parse().ok().or_else(|| address::interface_index(name));
        number.with_context(|| {
            format!("{name:?} is not a network device; `ip link` lists their names and numbers")
        })
    })?;
    Ok(Some(address::normalized(SocketAddrV6::new(ip, port, 0, scope).into())))
}

/// Parses a size in bytes: `64`, `4K`, `1M`.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix(['M', 'm']).map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    let size = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    size.filter(|size| (1..=MAX_MESSAGE_BYTES).contains(size))
        .ok_or_else(|| format!("expected 1 to {} bytes, as in 64, 4K or 1M", MAX_MESSAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_has_a_port_behind_brackets_only() {
        for (text, address) in [
            ("fd00::2", "[fd00::2]:7471"),
            ("fd00::1:2", "[fd00::1:2]:7471"),
            ("[fd00::1:2]", "[fd00::1:2]:7471"),
            ("[fd00::1]:2", "[fd00::1]:2"),
            ("fe80::1%4", "[fe80::1%4]:7471"),
            ("[fe80::1%4]:9", "[fe80::1%4]:9"),
            ("fe80::1%lo", "[fe80::1%1]:7471"),
            ("::ffff:192.0.2.7", "192.0.2.7:7471"),
        ] {
            assert_eq!(resolve(text).expect(text), address.parse().expect(address), "{text}");
        }
        for (text, why) in [
            ("[fd00::1]:0", "is not a port"),
            ("[fd00::1]:x", "is not a port"),
            ("[fd00::1]7", "is not a port"),
            ("fe80::1%no-such-device", "is not a network device"),
            ("fe80::1%", "is not a network device"),
            ("fe80::1%../lo", "is not a network device"),
        ] {
            let error = resolve(text).expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_host_has_the_port_of_dat_serve_unless_it_says_another() {
        assert_eq!(resolve("192.0.2.7").expect("an address").to_string(), "192.0.2.7:7471");
        assert_eq!(resolve("192.0.2.7:80").expect("an address").to_string(), "192.0.2.7:80");
        assert_eq!(resolve("::1").expect("an address").to_string(), "[::1]:7471");
        assert_eq!(resolve("[::1]:80").expect("an address").to_string(), "[::1]:80");
        let why = |host: &str| resolve(host).expect_err("no host").to_string();
        assert!(why("no such host").contains("expected a host name or an address"));
        assert!(why(" ").contains("leave HOST out"));
        for port in ["99999", "0", "http", ""] {
            let host = format!("192.0.2.7:{port}");
            let why = why(&host);
            assert!(
                why.starts_with(&format!("{port:?} is not a port"))
                    && why.ends_with("as in 192.0.2.7:7471"),
                "{why}"
            );
        }
    }
}
