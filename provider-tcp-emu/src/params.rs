//! ia_params: what [`adapter::params`] says, and these keys.
//!
//! | key | value | default |
//! |---|---|---|
//! | `crc` | `on`: ask peers for CRCs; `off`: only where the peer asks | `off` |
//! | `cc` | TCP congestion control of all connections | `cubic` or `reno` within the host, else the system's |
//! | `extended` | `on`: immediate data and atomic operations (RFC 7306) with peers that know them; `off`: with none | `on` |
//! | `fpdu` | octets of the largest FPDU sent, 128 to 65536 | 65536; MSS towards strangers |
//! | `timeout` | milliseconds until a quiet peer on another host is asked whether it is there, 32 to 600,000 | 10000 |
//! | `retries` | how often it is asked again, 0 to 7 | 5 |
//! | `rnr` | a message without a receive: `wait`: it waits for one, if the peer is an OpenDAT; `terminate`: it ends the connection | `wait` |

use adapter::params::on;
use dat_core::OpenError;

use crate::socket::Patience;

/// Parsed ia_params.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    /// What every adapter has.
    pub(crate) adapter: adapter::Params,
    /// CRCs are asked for.
    pub(crate) crc: bool,
    /// The operations of RFC 7306 are there for peers that know them.
    pub(crate) extended: bool,
    /// TCP congestion control.
    pub(crate) cc: Option<String>,
    /// Octets of the largest FPDU sent.
    pub(crate) fpdu: usize,
    /// How long peers on other hosts may be silent.
    pub(crate) patience: Patience,
    /// Messages of an OpenDAT wait for receives.
    pub(crate) waits: bool,
}

const FPDU: std::ops::RangeInclusive<usize> = 128..=65536;

impl Params {
    /// Reads ia_params; see [`adapter::params::parse`].
    pub(crate) fn parse(
        text: &str,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, OpenError> {
        let (mut crc, mut extended, mut cc, mut fpdu, mut waits) =
            (false, true, None, *FPDU.end(), true);
        let mut patience = Patience::default();
        let adapter = adapter::params::parse(text, env, |key, value| {
            match (key, value) {
                ("crc", _) => crc = on(value)?,
                ("extended", _) => extended = on(value)?,
                ("cc", "") => return Err("expected the name of a congestion control".into()),
                ("cc", _) => cc = Some(value.to_owned()),
                ("fpdu", _) => fpdu = self::fpdu(value)?,
                ("timeout", _) => patience.timeout = adapter::params::timeout(value)?,
                ("retries", _) => patience.retries = adapter::params::retries(value)?,
                ("rnr", "wait") => waits = true,
                ("rnr", "terminate") => waits = false,
                ("rnr", _) => return Err("expected wait or terminate".into()),
                _ => {
                    return Err(
                        "unknown key; known are crc, extended, rnr, cc, fpdu, timeout, retries, spin, \
                         strict and capture"
                            .into(),
                    );
                }
            }
            Ok(())
        })?;
        Ok(Params { adapter, crc, extended, cc, fpdu, patience, waits })
    }
}

fn fpdu(value: &str) -> Result<usize, String> {
    let octets = value.parse().ok().filter(|octets| FPDU.contains(octets));
    octets.ok_or_else(|| format!("expected {} to {} octets", FPDU.start(), FPDU.end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_core::Error;
    use dat_sys::DAT_INVALID_PARAMETER;
    use std::time::Duration;

    fn parse(text: &str) -> Result<Params, OpenError> {
        Params::parse(text, |_| None)
    }

    fn reason(text: &str) -> String {
        parse(text).expect_err(text).reason
    }

    #[test]
    fn nothing_means_the_defaults() {
        let params = parse(" ").expect("parses");
        assert_eq!(params.adapter.bind, None);
        assert!(
            !params.crc
                && params.extended
                && params.cc.is_none()
                && params.fpdu == 65536
                && params.waits
        );
    }

    #[test]
    fn options() {
        let params = parse("lo crc=on spin=100 cc=reno fpdu=4096").expect("parses");
        assert!(params.crc && params.adapter.bind.is_some_and(|bind| bind.ip().is_loopback()));
        assert_eq!(params.adapter.spin(), Duration::from_micros(100));
        assert_eq!(params.cc.as_deref(), Some("reno"));
        assert_eq!(params.fpdu, 4096);
        assert!(params.extended && !parse("extended=off").expect("parses").extended);
        assert!(
            !parse("rnr=terminate").expect("parses").waits
                && parse("rnr=wait").expect("parses").waits
        );
        assert!(!parse("crc=on crc=off").expect("parses").crc, "the last one counts");
        let patience = parse("timeout=500 retries=7").expect("parses").patience;
        assert_eq!(patience, Patience { timeout: Duration::from_millis(500), retries: 7 });
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert_eq!(reason("crc=maybe"), "ia_params: crc=maybe: expected on or off");
        assert_eq!(reason("extended="), "ia_params: extended=: expected on or off");
        assert_eq!(
            reason("speed=11"),
            "ia_params: speed=11: unknown key; known are crc, extended, rnr, cc, fpdu, timeout, retries, spin, \
             strict and capture"
        );
        assert_eq!(reason("timeout=1"), "ia_params: timeout=1: expected 32 to 600000 milliseconds");
        assert_eq!(reason("retries=8"), "ia_params: retries=8: expected 0 to 7");
        assert_eq!(reason("rnr=7"), "ia_params: rnr=7: expected wait or terminate");
        assert_eq!(reason("fpdu=1"), "ia_params: fpdu=1: expected 128 to 65536 octets");
        assert_eq!(reason("cc="), "ia_params: cc=: expected the name of a congestion control");
        assert_eq!(parse("crc=maybe").expect_err("bad").code, Error::of(DAT_INVALID_PARAMETER));
    }
}
