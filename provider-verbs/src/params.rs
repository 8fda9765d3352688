//! The ia_params: the local address, `spin`, `strict` and `stats`.
//!
//! ```text
//! where = network device | address | host name | RDMA device [ port ]
//! ```
//!
//! Without `where`, the adapter uses the first address that has a device. Connections are made
//! between IP addresses. So an RDMA device and its port (default 1) mean the network device that
//! the port serves according to sysfs. The remaining syntax is that of [`dat_adapter::params`],
//! except that this provider cannot capture packets.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use dat_adapter::params::invalid;
use dat_core::{Error, OpenError};
use dat_sys::DAT_INVALID_ADDRESS;

/// The directory in which the kernel lists RDMA devices.
pub const SYSFS: &str = "/sys/class/infiniband";

/// Parsed ia_params.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// The local address. `None` for the first address that has a device.
    pub bind: Option<SocketAddr>,
    /// The time that a blocking wait polls before it sleeps. The default is zero, because devices
    /// raise interrupts and are fast even if no thread polls.
    pub spin: Duration,
    /// Whether the adapter is strict: see [`dat_adapter::Params::strict`].
    pub strict: bool,
    /// Whether the counters are available: see [`dat_adapter::Params::stats`].
    pub stats: bool,
}

impl Params {
    /// Parses ia_params; see [`dat_adapter::Params::parse`]. `sysfs` is [`SYSFS`], except in tests.
    ///
    /// # Errors
    /// `DAT_INVALID_ADDRESS` for an address or device that this host does not have,
    /// `DAT_INVALID_PARAMETER` for everything else.
    pub fn parse(text: &str, sysfs: &Path, defaults: &str) -> Result<Self, OpenError> {
        refuse_capture(text)?;
        let words: Vec<_> = text.split_whitespace().collect();
        let (place, rest) = match words[..] {
            [device, port, ref rest @ ..] if is_device(sysfs, device) && is_number(port) => {
                (Some(network_device(sysfs, device, port)?), rest)
            }
            [device, ref rest @ ..] if is_device(sysfs, device) => {
                (Some(network_device(sysfs, device, "1")?), rest)
            }
            ref words => (None, words),
        };
        let words: Vec<_> = place.iter().map(String::as_str).chain(rest.iter().copied()).collect();
        let dat_adapter::Params { adapter, strict, stats } =
            dat_adapter::Params::parse(&words.join(" "), defaults, KEYS, own)?;
        Ok(Params { bind: adapter.bind, spin: adapter.spin.unwrap_or_default(), strict, stats })
    }
}

/// Checks the syntax of ia_params, without checking whether the host has the address or device; see
/// [`dat_adapter::Params::check`].
pub(crate) fn check(text: &str, defaults: &str) -> Result<(), OpenError> {
    refuse_capture(text)?;
    dat_adapter::Params::check(text, defaults, KEYS, own)
}

/// The names of all keys.
pub const KEYS: &[&str] = &["spin", "strict", "stats"];

/// Handles the keys that only this provider has. There are no such keys.
fn own(key: &str, _: &str) -> Result<(), String> {
    unreachable!("{key} is not in KEYS")
}

fn refuse_capture(text: &str) -> Result<(), OpenError> {
    let why = "capture: packets of an RDMA device do not pass through this process; see tcpdump(8)";
    match text.split_whitespace().any(|word| word.starts_with("capture=")) {
        true => Err(invalid(why.into())),
        false => Ok(()),
    }
}

fn is_number(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit())
}

fn is_device(sysfs: &Path, name: &str) -> bool {
    // A word with these characters is a path and not a device name.
    !name.contains('/') && !name.starts_with('.') && sysfs.join(name).is_dir()
}

/// Returns the network device that a port serves. Of the port's GIDs that belong to a network
/// device, the first determines the result.
fn network_device(sysfs: &Path, device: &str, port: &str) -> Result<String, OpenError> {
    let ports = sysfs.join(device).join("ports");
    let none = |reason: String| {
        OpenError::new(Error::of(DAT_INVALID_ADDRESS), format!("ia_params: {reason}"))
    };
    let port = match port {
        // Registry entries of OFED have port 0, because OFED's providers do not number ports. Port
        // 0 stands for port 1.
        "0" => "1",
        port => port,
    };
    if !ports.join(port).is_dir() {
        return Err(none(format!("{device} has no port {port}")));
    }
    let ndevs = ports.join(port).join("gid_attrs/ndevs");
    (0..)
        .map(|gid| ndevs.join(gid.to_string()))
        .take_while(|file| file.exists())
        // The file of an unused GID cannot be read, and is skipped.
        .find_map(|file| fs::read_to_string(file).ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .ok_or_else(|| {
            none(format!(
                "port {port} of {device} serves no network device: use an address instead"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a sysfs with the device `rxe0`. Its first port serves the loopback device, and its
    /// second port serves no network device.
    fn sysfs() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let ndevs = root.path().join("rxe0/ports/1/gid_attrs/ndevs");
        fs::create_dir_all(&ndevs).expect("directories");
        fs::write(ndevs.join("0"), "lo\n").expect("a file");
        fs::create_dir_all(root.path().join("rxe0/ports/2/gid_attrs/ndevs")).expect("directories");
        root
    }

    fn parse(text: &str) -> Result<Params, OpenError> {
        Params::parse(text, sysfs().path(), "")
    }

    fn reason(text: &str) -> String {
        parse(text).expect_err(text).reason
    }

    #[test]
    fn without_parameters_any_address_will_do() {
        assert_eq!(parse("").expect("the parameters are valid").bind, None);
    }

    #[test]
    fn a_wait_polls_only_if_asked_to() {
        assert_eq!(parse("").expect("the parameters are valid").spin, Duration::ZERO);
        let params = Params::parse("", sysfs().path(), "spin=9").expect("the parameters are valid");
        assert_eq!(params.spin, Duration::from_micros(9));
    }

    #[test]
    fn a_device_and_port_stand_for_their_network_device() {
        for text in
            ["rxe0", "rxe0 1", "rxe0 0", "rxe0 1 spin=7", "rxe0 spin=7", "lo", "lo 0", "127.0.0.1"]
        {
            let params = parse(text).expect(text);
            assert!(
                params.bind.is_some_and(|bind| bind.ip().is_loopback() && bind.port() == 0),
                "{text}"
            );
            assert!(!text.contains("spin") || params.spin == Duration::from_micros(7), "{text}");
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert_eq!(reason("rxe0 3"), "ia_params: rxe0 has no port 3");
        assert_eq!(
            reason("rxe0 2"),
            "ia_params: port 2 of rxe0 serves no network device: use an address instead"
        );
        assert_eq!(
            parse("rxe0 3").expect_err("the device has no port with this number").code,
            Error::of(DAT_INVALID_ADDRESS)
        );
        assert_eq!(
            reason("rxe0 mtu=1"),
            "ia_params: mtu=1: unknown key; known are spin, strict and stats"
        );
        assert_eq!(reason("lo rxe0"), "ia_params: \"rxe0\": expected key=value after the address");
        assert!(
            reason("capture=/tmp/x").starts_with("ia_params: capture: "),
            "{}",
            reason("capture=/tmp/x")
        );
        assert!(reason("../rxe0").contains("neither a network device"), "{}", reason("../rxe0"));
    }

    #[test]
    fn defaults_of_other_providers_are_ignored() {
        assert!(Params::parse("", sysfs().path(), "capture=/tmp/x mtu=7").is_ok());
    }
}
