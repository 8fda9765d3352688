//! The ia_params: the keys of [`adapter::params`] and the following ones.
//!
//! | key | value | default |
//! |---|---|---|
//! | `engine` | `user`, `kernel` or `auto` (below) | `auto` |
//! | `mtu` | maximum payload of a packet: 256, 512, 1024, 2048 or 4096 octets | the interface's |
//! | `gso` | `on`, `off` or `auto`: whether the kernel splits batches into packets | `auto` |
//! | `timeout` | milliseconds to await an acknowledgement, 32 to 600,000 | 537, or the caller's |
//! | `retries` | how often an unacknowledged packet is sent again, 0 to 7 | 6, or the caller's |
//! | `net` | an emulated network, see [`netem::Conditions`] | `off` |
//!
//! - `engine`: `user` is this engine. `kernel` is the kernel's rxe, which is created if necessary.
//!   `auto` is the kernel's rxe if there is one, else this engine.
//! - `gso=auto` turns batches on if the kernel's IP headers fit the ICRC.
//! - `timeout` is rounded up to 4.096 µs · 2^n.
//! - The environment variables `OPENDAT_MTU` and `OPENDAT_NET` are the defaults of `mtu` and `net`.

use std::time::Duration;

use adapter::params::variable;
use dat_core::OpenError;
use netem::Conditions;
use wire::cm::Timeout;
use wire::rocev2::PathMtu;

/// Parsed ia_params.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    /// The parameters that all providers have in common.
    pub(crate) adapter: adapter::Params,
    /// The engine that runs the protocol.
    pub(crate) engine: EngineChoice,
    /// The maximum path MTU.
    pub(crate) mtu: PathMtu,
    /// Whether the kernel splits batches into packets. `None`: the self-test decides that.
    pub(crate) gso: Option<bool>,
    /// The time to wait for an acknowledgement. `None`: the default, or the caller's value.
    pub(crate) timeout: Option<Timeout>,
    /// The number of times that a packet is sent again. `None`: the default, or the caller's value.
    pub(crate) retries: Option<u8>,
    /// The conditions of the emulated network.
    pub(crate) conditions: Conditions,
    /// The first key in the ia_params that only the engine in user space supports.
    pub(crate) user_only_key: Option<&'static str>,
}

/// The choice of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EngineChoice {
    /// The kernel's rxe if there is one, else the engine in user space.
    #[default]
    Auto,
    /// The engine in user space.
    User,
    /// The kernel's rxe.
    Kernel,
}

impl Params {
    /// Reads ia_params; see [`adapter::params::parse`].
    pub(crate) fn parse(
        text: &str,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, OpenError> {
        let (mut engine, mut gso) = (EngineChoice::default(), None);
        let (mut timeout, mut retries) = (None, None);
        let mut mtu = variable(&env, "OPENDAT_MTU", self::mtu)?;
        let mut conditions = variable(&env, "OPENDAT_NET", str::parse)?.unwrap_or(Conditions::OFF);
        let adapter = adapter::params::parse(text, env, |key, value| {
            match (key, value) {
                ("engine", _) => engine = self::engine_choice(value)?,
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
                        "unknown key; known are engine, mtu, gso, timeout, retries, net, spin, \
                         strict and capture"
                            .into(),
                    );
                }
            }
            Ok(())
        })?;
        let user_only_key = [
            ("net", !conditions.is_off()),
            ("capture", adapter.capture.is_some()),
            ("mtu", mtu.is_some()),
            ("gso", gso.is_some()),
            ("timeout", timeout.is_some()),
            ("retries", retries.is_some()),
        ];
        let user_only_key =
            user_only_key.into_iter().find_map(|(key, is_set)| is_set.then_some(key));
        let mtu = mtu.unwrap_or(PathMtu::Octets4096);
        Ok(Params { adapter, engine, mtu, gso, timeout, retries, conditions, user_only_key })
    }
}

fn engine_choice(value: &str) -> Result<EngineChoice, String> {
    Ok(match value {
        "auto" => EngineChoice::Auto,
        "user" => EngineChoice::User,
        "kernel" => EngineChoice::Kernel,
        _ => return Err("expected auto, user or kernel".into()),
    })
}

/// Returns the shortest timeout of the IBA's encoding that is not shorter than `time`.
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
            (params.engine, params.mtu, params.gso),
            (EngineChoice::Auto, PathMtu::Octets4096, None)
        );
        assert!(
            params.adapter.bind.is_none()
                && params.conditions.is_off()
                && params.user_only_key.is_none()
        );
    }

    #[test]
    fn options() {
        let text = "lo engine=user mtu=1024 gso=off net=loss=1%,seed=7 spin=5";
        let params = parse(text).expect("parses");
        assert_eq!(
            (params.engine, params.mtu, params.gso),
            (EngineChoice::User, PathMtu::Octets1024, Some(false))
        );
        assert_eq!(params.conditions, "loss=1%,seed=7".parse().expect("conditions"));
        assert_eq!(
            parse("gso=off gso=auto").expect("parses").gso,
            None,
            "the last value of a key must win"
        );
    }

    #[test]
    fn keys_of_this_engine_alone_are_noted() {
        let user_only_key = |text| parse(text).expect(text).user_only_key;
        assert_eq!(user_only_key("lo engine=kernel spin=5 net=off gso=auto"), None);
        assert_eq!(
            ["net=loss=1%", "capture=/tmp/x", "mtu=4096", "gso=on"].map(user_only_key),
            ["net", "capture", "mtu", "gso"].map(Some)
        );
        let env = |name: &str| (name == "OPENDAT_CAPTURE").then(|| "/tmp/x".to_owned());
        assert_eq!(Params::parse("", env).expect("parses").user_only_key, Some("capture"));
    }

    #[test]
    fn environment_variables_apply_unless_the_entry_says_otherwise() {
        let env = |name: &str| (name == "OPENDAT_NET").then(|| "loss=3%".to_owned());
        let params = Params::parse("", env).expect("parses");
        assert_eq!(params.conditions, "loss=3%".parse().expect("conditions"));
        let params = Params::parse("net=off", env).expect("parses");
        assert!(
            params.conditions.is_off(),
            "the parameters of the entry must win over the variable"
        );
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
            "ia_params: cc=reno: unknown key; known are engine, mtu, gso, timeout, retries, net, \
             spin, strict and capture"
        );
    }
}
