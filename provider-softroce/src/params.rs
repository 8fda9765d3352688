//! ia_params: what [`adapter::params`] says, and these keys.
//!
//! | key | value | default |
//! |---|---|---|
//! | `engine` | `user`: this one; `kernel`: the kernel's rxe, which is made if need be; `auto`: the kernel's where there is one | `auto` |
//! | `mtu` | octets of payload in a packet at most: 256, 512, 1024, 2048 or 4096; also `OPENDAT_MTU` | what the interface carries |
//! | `gso` | `on`, `off`: whether the kernel cuts batches into packets; `auto`: where its IP headers are as they should | `auto` |
//! | `timeout` | milliseconds that an acknowledgement is waited for, 32 to 600,000, rounded up to 4.096 µs · 2^n | 537, or the caller's |
//! | `retries` | how often a packet is sent again that is not acknowledged, 0 to 7 | 6, or what the caller asks for |
//! | `net` | an emulated network, as [`netem::Conditions`] says; also `OPENDAT_NET` | `off` |

use std::time::Duration;

use adapter::params::variable;
use dat_core::OpenError;
use netem::Conditions;
use wire::cm::Timeout;
use wire::rocev2::PathMtu;

/// Parsed ia_params.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    /// What every adapter has.
    pub(crate) adapter: adapter::Params,
    /// Whose implementation of the protocol.
    pub(crate) which: Which,
    /// The largest path MTU.
    pub(crate) mtu: PathMtu,
    /// Whether the kernel cuts batches; none: as the self-test says.
    pub(crate) gso: Option<bool>,
    /// How long an acknowledgement is waited for; none: as usual, or as the caller asks.
    pub(crate) timeout: Option<Timeout>,
    /// How often a packet is sent again; likewise.
    pub(crate) retries: Option<u8>,
    /// The network in between.
    pub(crate) conditions: Conditions,
    /// A wish that only this engine can fulfil: its key.
    pub(crate) own: Option<&'static str>,
}

/// Which engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Which {
    /// The kernel's where there is one.
    #[default]
    Auto,
    /// This one.
    User,
    /// The kernel's.
    Kernel,
}

impl Params {
    /// Reads ia_params; see [`adapter::params::parse`].
    pub(crate) fn parse(
        text: &str,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, OpenError> {
        let (mut which, mut gso) = (Which::default(), None);
        let (mut timeout, mut retries) = (None, None);
        let mut mtu = variable(&env, "OPENDAT_MTU", self::mtu)?;
        let mut conditions = variable(&env, "OPENDAT_NET", str::parse)?.unwrap_or(Conditions::OFF);
        let adapter = adapter::params::parse(text, env, |key, value| {
            match (key, value) {
                ("engine", _) => which = self::which(value)?,
                ("mtu", _) => mtu = Some(self::mtu(value)?),
                ("timeout", _) => timeout = Some(ack_timeout(adapter::params::timeout(value)?)),
                ("retries", _) => retries = Some(adapter::params::retries(value)?),
                ("gso", "auto") => gso = None,
                ("gso", _) => {
                    gso = Some(adapter::params::on(value).map_err(|_| "expected on, off or auto")?);
                }
                ("net", _) => {
                    conditions = value.parse().map_err(|e: netem::ConditionsError| e.to_string())?
                }
                _ => {
                    return Err(
                        "unknown key; known are engine, mtu, gso, timeout, retries, net, spin, strict \
                         and capture"
                            .into(),
                    );
                }
            }
            Ok(())
        })?;
        let own = [
            ("net", !conditions.is_off()),
            ("capture", adapter.capture.is_some()),
            ("mtu", mtu.is_some()),
            ("gso", gso.is_some()),
            ("timeout", timeout.is_some()),
            ("retries", retries.is_some()),
        ];
        let own = own.into_iter().find_map(|(key, is_there)| is_there.then_some(key));
        let mtu = mtu.unwrap_or(PathMtu::Octets4096);
        Ok(Params { adapter, which, mtu, gso, timeout, retries, conditions, own })
    }
}

fn which(value: &str) -> Result<Which, String> {
    Ok(match value {
        "auto" => Which::Auto,
        "user" => Which::User,
        "kernel" => Which::Kernel,
        _ => return Err("expected auto, user or kernel".into()),
    })
}

/// The shortest of IBA's that is not below it.
fn ack_timeout(time: Duration) -> Timeout {
    let codes = (1..=31).map(Timeout::new);
    let covers = |timeout: &Timeout| Duration::from_nanos(4096 << timeout.code()) >= time;
    codes.into_iter().find(covers).unwrap_or(Timeout::MAX)
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
        Params::parse(text, |_| None)
    }

    fn reason(text: &str) -> String {
        parse(text).expect_err(text).reason
    }

    #[test]
    fn nothing_means_the_defaults() {
        let params = parse("").expect("parses");
        assert_eq!(
            (params.which, params.mtu, params.gso),
            (Which::Auto, PathMtu::Octets4096, None)
        );
        assert!(
            params.adapter.bind.is_none() && params.conditions.is_off() && params.own.is_none()
        );
    }

    #[test]
    fn options() {
        let text = "lo engine=user mtu=1024 gso=off net=loss=1%,seed=7 spin=5";
        let params = parse(text).expect("parses");
        assert_eq!(
            (params.which, params.mtu, params.gso),
            (Which::User, PathMtu::Octets1024, Some(false))
        );
        assert_eq!(params.conditions, "loss=1%,seed=7".parse().expect("conditions"));
        assert_eq!(parse("gso=off gso=auto").expect("parses").gso, None, "the last one counts");
    }

    #[test]
    fn what_only_this_engine_can_do_is_noted() {
        let own = |text| parse(text).expect(text).own;
        assert_eq!(own("lo engine=kernel spin=5 net=off gso=auto"), None);
        assert_eq!(
            ["net=loss=1%", "capture=/tmp/x", "mtu=4096", "gso=on"].map(own),
            ["net", "capture", "mtu", "gso"].map(Some)
        );
        let env = |name: &str| (name == "OPENDAT_CAPTURE").then(|| "/tmp/x".to_owned());
        assert_eq!(Params::parse("", env).expect("parses").own, Some("capture"));
    }

    #[test]
    fn the_environment_serves_programs_whose_entry_nobody_wants_to_change() {
        let env = |name: &str| (name == "OPENDAT_NET").then(|| "loss=3%".to_owned());
        let params = Params::parse("", env).expect("parses");
        assert_eq!(params.conditions, "loss=3%".parse().expect("conditions"));
        let params = Params::parse("net=off", env).expect("parses");
        assert!(params.conditions.is_off(), "the entry wins");
        let env = |value: &'static str| {
            move |name: &str| (name != "OPENDAT_SPIN_US").then(|| value.to_owned())
        };
        assert_eq!(
            Params::parse("", env("")).expect("as if they were not set"),
            parse("").expect("parses")
        );
        let reason = Params::parse("", env("7")).expect_err("no path MTU").reason;
        assert_eq!(reason, "OPENDAT_MTU=7: expected 256, 512, 1024, 2048 or 4096 octets");
    }

    #[test]
    fn a_timeout_is_one_of_ibas() {
        let codes = |text: &str| parse(text).expect(text).timeout.map(|timeout| timeout.code());
        let all = ["", "timeout=32", "timeout=34", "timeout=536", "timeout=537", "timeout=600000"]
            .map(codes);
        assert_eq!(all, [None, Some(13), Some(14), Some(17), Some(18), Some(28)]);
        assert_eq!(parse("retries=0").expect("parses").retries, Some(0));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert_eq!(reason("engine=fast"), "ia_params: engine=fast: expected auto, user or kernel");
        assert_eq!(
            reason("mtu=1500"),
            "ia_params: mtu=1500: expected 256, 512, 1024, 2048 or 4096 octets"
        );
        assert_eq!(
            reason("timeout=31"),
            "ia_params: timeout=31: expected 32 to 600000 milliseconds"
        );
        assert_eq!(reason("retries=-1"), "ia_params: retries=-1: expected 0 to 7");
        assert_eq!(reason("gso=no"), "ia_params: gso=no: expected on, off or auto");
        assert!(reason("net=los=1%").starts_with("ia_params: net=los=1%: "));
        assert_eq!(
            reason("cc=reno"),
            "ia_params: cc=reno: unknown key; known are engine, mtu, gso, timeout, retries, net, spin, strict and \
             capture"
        );
    }
}
