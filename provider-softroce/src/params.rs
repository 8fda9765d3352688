//! The ia_params: the keys of [`dat_adapter::params`] and the following keys.
//!
//! | key | value | default |
//! |---|---|---|
//! | `mtu` | maximum payload of a packet: 256, 512, 1024, 2048 or 4096 octets | the interface's |
//! | `gso` | `on`, `off` or `auto`: whether the kernel splits batches into packets | `auto` |
//! | `dscp` | the DSCP in the IP header of packets, 0 to 63 | 0 |
//! | `timeout` | the time to wait for an acknowledgement, 32 to 600,000 ms | 2,147 ms, or the caller's value |
//! | `retries` | how often an unacknowledged packet is sent again, 0 to 7 times | 5 times, or the caller's value |
//! | `net` | an emulated network, see [`netem::Conditions`] | `off` |
//!
//! - `gso=auto` turns batches on if the kernel's IP headers fit the ICRC.
//! - `timeout` is rounded up to 4.096 µs · 2^n.
//! - The defaults of `timeout` and `retries` apply on the side that connects. On the side that
//!   accepts, the default is the value in the connection request.

use std::collections::HashSet;
use std::time::Duration;

use dat_core::OpenError;
use roce::Config;
use wire::cm::Timeout;
use wire::rocev2::PathMtu;

/// Parsed ia_params.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// The parameters that all providers have in common.
    pub common: dat_adapter::Params,
    /// The configuration of the engine in user space.
    pub config: Config,
    /// A key in these parameters that only an engine in user space supports. `None` if there is no
    /// such key.
    pub user_only_key: Option<&'static str>,
}

impl Params {
    /// The names of all keys.
    pub const KEYS: &[&str] = &[
        "mtu", "gso", "dscp", "timeout", "retries", "net", "threads", "spin", "strict", "stats",
        "capture",
    ];

    /// Parses ia_params; see [`dat_adapter::Params::parse`]. `keys` are the keys that the entry may
    /// have. `other` is called for each of them that is not in [`Params::KEYS`].
    ///
    /// # Errors
    /// Those of [`dat_adapter::Params::parse`].
    pub fn parse(
        text: &str,
        defaults: &str,
        keys: &[&str],
        mut other: impl FnMut(&str, &str) -> Result<(), String>,
    ) -> Result<Self, OpenError> {
        let (mut config, mut seen) = (Config::default(), HashSet::new());
        let own = |key: &str, value: &str| {
            seen.insert(key.to_owned());
            set(&mut config, key, value, &mut other)
        };
        let common = dat_adapter::Params::parse(text, defaults, keys, own)?;
        let user_only_key = [
            ("net", !config.conditions.is_off()),
            ("capture", common.adapter.capture.is_some()),
            ("mtu", seen.contains("mtu")),
            ("gso", config.gso.is_some()),
            ("dscp", seen.contains("dscp")),
            ("timeout", seen.contains("timeout")),
            ("retries", seen.contains("retries")),
        ];
        let user_only_key =
            user_only_key.into_iter().find_map(|(key, is_set)| is_set.then_some(key));
        Ok(Params { common, config, user_only_key })
    }

    /// Checks ia_params without asking the host for addresses. The arguments are those of
    /// [`Params::parse`].
    ///
    /// # Errors
    /// Those of [`dat_adapter::Params::check`].
    pub fn check(
        text: &str,
        defaults: &str,
        keys: &[&str],
        mut other: impl FnMut(&str, &str) -> Result<(), String>,
    ) -> Result<(), OpenError> {
        let mut config = Config::default();
        let own = |key: &str, value: &str| set(&mut config, key, value, &mut other);
        dat_adapter::Params::check(text, defaults, keys, own)
    }
}

/// Sets the value of a key that only this provider has. Passes other keys to `other`.
fn set(
    config: &mut Config,
    key: &str,
    value: &str,
    other: &mut impl FnMut(&str, &str) -> Result<(), String>,
) -> Result<(), String> {
    match (key, value) {
        ("mtu", _) => config.mtu = mtu(value)?,
        ("dscp", _) => config.dscp = dscp(value)?,
        ("timeout", _) => config.timeout = Some(ack_timeout(adapter::params::timeout(value)?)),
        ("retries", _) => config.retries = Some(adapter::params::retries(value)?),
        ("gso", "auto") => config.gso = None,
        ("gso", _) => {
            let gso = adapter::params::on(value).map_err(|_| "expected on, off or auto")?;
            config.gso = Some(gso);
        }
        ("net", _) => {
            config.conditions = value.parse().map_err(|e: netem::ConditionsError| e.to_string())?
        }
        _ => return other(key, value),
    }
    Ok(())
}

/// Returns the shortest timeout of the IBA's encoding that is not shorter than `time`.
fn ack_timeout(time: Duration) -> Timeout {
    let codes = (1..=31).map(Timeout::new);
    let covers = |timeout: &Timeout| Duration::from_nanos(4096 << timeout.code()) >= time;
    codes.into_iter().find(covers).unwrap_or(Timeout::MAX)
}

fn dscp(value: &str) -> Result<u8, String> {
    let dscp = value.parse().ok().filter(|&dscp| dscp < 64);
    dscp.ok_or_else(|| "expected 0 to 63".to_owned())
}

fn mtu(value: &str) -> Result<PathMtu, String> {
    let octets = value.parse().unwrap_or(0);
    let mtu = PathMtu::ALL.into_iter().find(|mtu| mtu.octets() == octets);
    mtu.ok_or_else(|| "expected 256, 512, 1024, 2048 or 4096 octets".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Params, OpenError> {
        parse_with(text, "")
    }

    fn parse_with(text: &str, defaults: &str) -> Result<Params, OpenError> {
        Params::parse(text, defaults, Params::KEYS, |_, _| unreachable!("no other keys"))
    }

    fn reason(text: &str) -> String {
        parse(text).expect_err(text).reason
    }

    #[test]
    fn nothing_means_the_defaults() {
        let params = parse("").expect("the parameters are valid");
        assert_eq!(
            (params.config.mtu, params.config.gso, params.config.dscp),
            (PathMtu::Octets4096, None, 0)
        );
        assert!(
            params.common.adapter.bind.is_none()
                && params.config.conditions.is_off()
                && params.user_only_key.is_none()
        );
    }

    #[test]
    fn options() {
        let text = "lo mtu=1024 gso=off dscp=46 net=loss=1%,seed=7 spin=5";
        let params = parse(text).expect("the parameters are valid");
        assert_eq!(
            (params.config.mtu, params.config.gso, params.config.dscp),
            (PathMtu::Octets1024, Some(false), 46)
        );
        assert_eq!(params.config.conditions, "loss=1%,seed=7".parse().expect("conditions"));
        assert_eq!(parse("gso=auto").expect("the parameters are valid").config.gso, None);
        assert!(reason("gso=off gso=auto").contains("the key gso occurs twice"));
    }

    #[test]
    fn keys_of_this_engine_alone_are_noted() {
        let user_only_key = |text| parse(text).expect(text).user_only_key;
        assert_eq!(user_only_key("lo spin=5 net=off gso=auto"), None);
        assert_eq!(
            ["net=loss=1%", "capture=/tmp/x", "mtu=4096", "gso=on", "dscp=8"].map(user_only_key),
            ["net", "capture", "mtu", "gso", "dscp"].map(Some)
        );
        let params = parse_with("", "capture=/tmp/x").expect("the parameters are valid");
        assert_eq!(params.user_only_key, Some("capture"));
    }

    #[test]
    fn defaults_apply_unless_the_entry_says_otherwise() {
        let params = parse_with("", "net=loss=3%").expect("the parameters are valid");
        assert_eq!(params.config.conditions, "loss=3%".parse().expect("conditions"));
        let params =
            parse_with("net=off gso=auto", "net=loss=3% gso=on").expect("the parameters are valid");
        assert!(
            params.config.conditions.is_off() && params.config.gso.is_none(),
            "the IA parameters must override OPENDAT_PARAMS"
        );
        let reason = parse_with("", "mtu=7").expect_err("no path MTU").reason;
        assert_eq!(reason, "OPENDAT_PARAMS: mtu=7: expected 256, 512, 1024, 2048 or 4096 octets");
    }

    #[test]
    fn a_timeout_is_one_of_ibas() {
        let codes =
            |text: &str| parse(text).expect(text).config.timeout.map(|timeout| timeout.code());
        let all = ["", "timeout=32", "timeout=34", "timeout=536", "timeout=537", "timeout=600000"]
            .map(codes);
        assert_eq!(all, [None, Some(13), Some(14), Some(17), Some(18), Some(28)]);
        assert_eq!(parse("retries=0").expect("the parameters are valid").config.retries, Some(0));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert_eq!(
            reason("mtu=1500"),
            "ia_params: mtu=1500: expected 256, 512, 1024, 2048 or 4096 octets"
        );
        assert_eq!(
            reason("timeout=31"),
            "ia_params: timeout=31: expected 32 to 600000 milliseconds"
        );
        assert_eq!(reason("retries=-1"), "ia_params: retries=-1: expected 0 to 7");
        for wrong in ["64", "-1", "ef", ""] {
            assert_eq!(
                reason(&format!("dscp={wrong}")),
                format!("ia_params: dscp={wrong}: expected 0 to 63")
            );
        }
        assert_eq!(reason("gso=no"), "ia_params: gso=no: expected on, off or auto");
        assert!(reason("net=los=1%").starts_with("ia_params: net=los=1%: "));
        assert!(reason("cc=reno").starts_with("ia_params: cc=reno: unknown key; known are mtu,"));
    }
}
