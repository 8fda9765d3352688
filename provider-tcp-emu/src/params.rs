//! The ia_params: the keys of [`dat_adapter::params`], and the following ones.
//!
//! - `completion`: `placed`: a signalled RDMA write to another OpenDAT completes when it is placed
//!   in the peer's memory; `local`: it completes when TCP has accepted it. The default is `placed`.
//! - `crc`: `on` requests CRCs from peers; `off` uses them only if the peer requests them. The
//!   default is `off`.
//! - `cc`: the TCP congestion control of all connections. The default is `cubic` or `reno` for
//!   connections within the host, and the system's default for other connections.
//! - `extended`: `on` offers immediate data and atomic operations (RFC 7306) to peers that support
//!   them; `off` never offers them. The default is `on`.
//! - `fpdu`: the number of octets of the largest FPDU that is sent, 128 to 65536. The default is
//!   65536. If the peer accepts no FPDUs above the MSS, the MSS is the limit.
//! - `timeout`: the time in milliseconds, 32 to 600,000, after which TCP probes a silent peer on
//!   another host, and the time between two probes. The default is 10000.
//! - `retries`: the number of times that TCP repeats a probe, 0 to 7. The default is 5.
//! - `rnr`: what happens to a message without a posted receive. `wait`: the message waits for a
//!   receive if its sender is an OpenDAT; `terminate`: the message ends the connection. The default
//!   is `wait`.
//! - `shm`: the number of transfers, 1 to 1,000,000, after which a connection between processes of
//!   one user on this host moves from TCP to shared memory. A transfer is a read or write of the
//!   socket. The side that connects decides. `on` means 4, and `off` at either side keeps the
//!   connection with TCP. The default is `on`.

use adapter::params::on;
use dat_core::OpenError;
use iwarp::Config;

/// Parsed ia_params.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    /// The parameters that all adapters share.
    pub(crate) common: dat_adapter::Params,
    /// The configuration of the adapter.
    pub(crate) config: Config,
}

/// The largest value of `shm`.
const TRANSFERS_BEFORE_OFFER_MAX: u32 = 1_000_000;
const FPDU_OCTETS: std::ops::RangeInclusive<usize> = 128..=65536;

/// The names of all keys.
pub const KEYS: &[&str] = &[
    "completion",
    "crc",
    "extended",
    "rnr",
    "cc",
    "fpdu",
    "timeout",
    "retries",
    "shm",
    "threads",
    "spin",
    "strict",
    "stats",
    "capture",
];

impl Params {
    /// Parses ia_params; see [`dat_adapter::Params::parse`].
    pub(crate) fn parse(text: &str, defaults: &str) -> Result<Self, OpenError> {
        let mut config = Config::default();
        let own = |key: &str, value: &str| set(&mut config, key, value);
        let common = dat_adapter::Params::parse(text, defaults, KEYS, own)?;
        Ok(Params { common, config })
    }

    /// Checks ia_params without asking the host for addresses; see [`dat_adapter::Params::check`].
    pub(crate) fn check(text: &str, defaults: &str) -> Result<(), OpenError> {
        let mut config = Config::default();
        let own = |key: &str, value: &str| set(&mut config, key, value);
        dat_adapter::Params::check(text, defaults, KEYS, own)
    }
}

/// Sets the value of a key that only this provider has.
fn set(config: &mut Config, key: &str, value: &str) -> Result<(), String> {
    match (key, value) {
        ("completion", "placed") => config.completes_placed = true,
        ("completion", "local") => config.completes_placed = false,
        ("completion", _) => return Err("expected placed or local".into()),
        ("crc", _) => config.crc = on(value)?,
        ("extended", _) => config.extended = on(value)?,
        ("cc", "") => return Err("expected the name of a congestion control".into()),
        ("cc", _) => config.cc = Some(value.to_owned()),
        ("fpdu", _) => config.fpdu = parse_fpdu(value)?,
        ("timeout", _) => config.peer_timeout.timeout = adapter::params::timeout(value)?,
        ("retries", _) => config.peer_timeout.retries = adapter::params::retries(value)?,
        ("shm", _) => config.shm = parse_shm(value)?,
        ("rnr", "wait") => config.rnr_wait = true,
        ("rnr", "terminate") => config.rnr_wait = false,
        ("rnr", _) => return Err("expected wait or terminate".into()),
        _ => unreachable!("{key} is not in KEYS"),
    }
    Ok(())
}

fn parse_fpdu(value: &str) -> Result<usize, String> {
    let octets = value.parse().ok().filter(|octets| FPDU_OCTETS.contains(octets));
    octets
        .ok_or_else(|| format!("expected {} to {} octets", FPDU_OCTETS.start(), FPDU_OCTETS.end()))
}

fn parse_shm(value: &str) -> Result<Option<u32>, String> {
    match value {
        "on" => Ok(Some(Config::TRANSFERS_BEFORE_OFFER)),
        "off" => Ok(None),
        _ => match value.parse() {
            Ok(transfers)
                if !value.starts_with('+')
                    && (1..=TRANSFERS_BEFORE_OFFER_MAX).contains(&transfers) =>
            {
                Ok(Some(transfers))
            }
            _ => Err(format!("expected on, off, or 1 to {TRANSFERS_BEFORE_OFFER_MAX} transfers")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_core::Error;
    use dat_sys::DAT_INVALID_PARAMETER;
    use iwarp::PeerTimeout;
    use std::time::Duration;

    fn parse(text: &str) -> Result<Params, OpenError> {
        Params::parse(text, "")
    }

    fn reason(text: &str) -> String {
        parse(text).expect_err(text).reason
    }

    #[test]
    fn nothing_means_the_defaults() {
        let params = parse(" ").expect("parses");
        assert_eq!((params.common.adapter.bind, params.config), (None, Config::default()));
    }

    #[test]
    fn options() {
        let params = parse("lo crc=on spin=100 cc=reno fpdu=4096").expect("parses");
        assert!(
            params.config.crc
                && params.common.adapter.bind.is_some_and(|bind| bind.ip().is_loopback())
        );
        assert_eq!(params.common.adapter.spin(), Duration::from_micros(100));
        assert_eq!(params.config.cc.as_deref(), Some("reno"));
        assert_eq!(params.config.fpdu, 4096);
        assert!(params.config.extended && !parse("extended=off").expect("parses").config.extended);
        assert!(
            !parse("rnr=terminate").expect("parses").config.rnr_wait
                && parse("rnr=wait").expect("parses").config.rnr_wait
        );
        assert!(!parse("crc=off").expect("parses").config.crc);
        let completes_placed = |text| parse(text).expect("parses").config.completes_placed;
        assert!(completes_placed("completion=placed") && !completes_placed("completion=local"));
        let shm = |text| parse(text).expect("parses").config.shm;
        assert_eq!([shm(""), shm("shm=on"), shm("shm=1")], [Some(4), Some(4), Some(1)]);
        assert_eq!(shm("shm=off"), None);
        assert!(reason("crc=on crc=off").contains("the key crc occurs twice"));
        let peer_timeout = parse("timeout=500 retries=7").expect("parses").config.peer_timeout;
        assert_eq!(peer_timeout, PeerTimeout { timeout: Duration::from_millis(500), retries: 7 });
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert_eq!(reason("crc=maybe"), "ia_params: crc=maybe: expected on or off");
        assert_eq!(reason("extended="), "ia_params: extended=: expected on or off");
        for shm in ["shm=0", "shm=1000001", "shm=+5", "shm=yes"] {
            assert_eq!(
                reason(shm),
                format!("ia_params: {shm}: expected on, off, or 1 to 1000000 transfers")
            );
        }
        assert_eq!(
            reason("speed=11"),
            "ia_params: speed=11: unknown key; known are completion, crc, extended, rnr, cc, fpdu, \
             timeout, retries, shm, threads, spin, strict, stats and capture"
        );
        assert_eq!(reason("timeout=1"), "ia_params: timeout=1: expected 32 to 600000 milliseconds");
        assert_eq!(reason("retries=8"), "ia_params: retries=8: expected 0 to 7");
        for threads in ["threads=0", "threads=65", "threads=many"] {
            assert_eq!(reason(threads), format!("ia_params: {threads}: expected 1 to 64"));
        }
        assert_eq!(reason("completion=on"), "ia_params: completion=on: expected placed or local");
        assert_eq!(reason("rnr=7"), "ia_params: rnr=7: expected wait or terminate");
        assert_eq!(reason("fpdu=1"), "ia_params: fpdu=1: expected 128 to 65536 octets");
        assert_eq!(reason("cc="), "ia_params: cc=: expected the name of a congestion control");
        assert_eq!(parse("crc=maybe").expect_err("bad").code, Error::of(DAT_INVALID_PARAMETER));
    }
}
