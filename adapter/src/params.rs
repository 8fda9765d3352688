//! Parameters in words: the address, how long to poll, the capture file, and the keys of a protocol
//! and of a programming interface.
//!
//! ```text
//! words = [ place [ number ] ] { key "=" value }            separated by blanks
//! place = network device | IPv4 or IPv6 address | host name
//! ```
//!
//! A key that occurs twice is an error, because one of its values would have no effect.
//!
//! The environment variable `OPENDAT_PARAMS` contains such keys, without a place. They are the
//! defaults of all adapters that the process opens: a key of the adapter's own words wins over
//! them. So it may also have keys that are not meant for this adapter: [`Words::default_keys`].
//!
//! Without `place`, the adapter serves every address of the host. The number has no effect. It is
//! allowed because entries for OFED's providers contain a port number there (`"eth0 0"`).
//!
//! - `capture`: a pcapng file that records what sockets send and receive, with `,max=SIZE` up to
//!   this size (docs/capture.md). The default is none.
//! - `spin`: how many µs a blocking wait polls before it sleeps. A software adapter does so unless
//!   polling has made waits longer. The default is 30. On a host with one processor and over verbs
//!   devices, the default is 0.
//! - `threads`: how many threads of the program can move data of a software adapter at the same
//!   time, 1 to 64. The default is the number of processors that the process may use, but at most
//!   8.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use telemetry::environment;

use crate::config::{Config, MAX_ENGINES};
use crate::error::{Error, OpenError};

/// The words of one adapter.
#[derive(Clone, Copy, Debug)]
pub struct Words<'t> {
    /// The name of the words in messages.
    pub name: &'t str,
    /// The words.
    pub text: &'t str,
    /// The value of `OPENDAT_PARAMS`; see [`defaults`].
    pub defaults: &'t str,
    /// All keys that the words may have.
    pub keys: &'t [&'t str],
    /// Further keys that the defaults may have, for example those of other adapters.
    pub default_keys: &'t [&'t str],
}

const MAX_SPIN_US: u64 = 1_000_000;

/// The environment variable with the defaults of all adapters.
const VARIABLE: &str = "OPENDAT_PARAMS";

/// The error for a word that is not UTF-8. Such a word contains U+FFFD in place of the invalid
/// octets.
const NOT_UTF_8: &str = "expected UTF-8";

/// Returns the value of the environment variable `OPENDAT_PARAMS`.
pub fn defaults() -> String {
    environment::variable(VARIABLE).unwrap_or_default()
}

/// Parses words, and looks up their place on the host ([`Config::new`]). For each key that is not
/// common to all adapters, calls `own` with the key and its value: first for the keys in the
/// defaults, then for those in the words. The error of `own` says what was expected. `own` is also
/// called for each of [`Words::default_keys`], and may ignore it.
///
/// # Errors
/// [`Error::InvalidArgument`] for what [`read`] refuses, else those of [`Config::new`].
pub fn parse(
    words: &Words<'_>,
    own: impl FnMut(&str, &str) -> Result<(), String>,
) -> Result<Config, OpenError> {
    let Unlocated { place, threads, spin, capture } = read(words, own)?;
    let config = Config::new(place);
    let config = config.map_err(|error| in_source(words.name, error.code, error.reason))?;
    Ok(Config { threads, spin, capture, ..config })
}

/// Parsed words whose place has not been looked up on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unlocated<'t> {
    /// The word that names the address to serve; `None` for all addresses of the host.
    pub place: Option<&'t str>,
    /// As [`Config::threads`].
    pub threads: Option<usize>,
    /// As [`Config::spin`].
    pub spin: Option<Duration>,
    /// As [`Config::capture`].
    pub capture: Option<String>,
}

/// Parses words like [`parse`], but does not look up the place on the host or with its resolver. A
/// program that checks many adapters calls this once for each.
///
/// # Errors
/// [`Error::InvalidArgument`] for a word that is out of place, an unknown key, a key that occurs
/// twice, or an invalid value, in the words or in the defaults.
pub fn read<'t>(
    words: &Words<'t>,
    mut own: impl FnMut(&str, &str) -> Result<(), String>,
) -> Result<Unlocated<'t>, OpenError> {
    let &Words { name, text, defaults, keys, default_keys } = words;
    let invalid = |source, reason| in_source(source, Error::InvalidArgument, reason);
    let (places, options): (Vec<_>, Vec<_>) =
        text.split_whitespace().partition(|word| !word.contains('='));
    let place = match places[..] {
        [] => None,
        [place] => Some(place),
        [place, port] if port.bytes().all(|b| b.is_ascii_digit()) => Some(place),
        [_, word, ..] => {
            let reason = format!("\"{word}\": expected key=value after the address");
            return Err(invalid(name, reason));
        }
    };
    let mut params = Unlocated { place, ..Unlocated::default() };
    for (source, words) in [(VARIABLE, defaults.split_whitespace().collect()), (name, options)] {
        let mut seen = HashSet::new();
        for word in words {
            let set = match word.split_once('=') {
                _ if word.contains(char::REPLACEMENT_CHARACTER) => Err(NOT_UTF_8.into()),
                None => Err(format!("expected key=value; an address belongs in {name}")),
                // This check also sees unknown keys, but the first occurrence of an unknown key has
                // already been refused as unknown.
                Some((key, _)) if !seen.insert(key) => {
                    Err(format!("the key {key} occurs twice; expected it once"))
                }
                Some((key, value)) if !keys.contains(&key) => match source {
                    VARIABLE if default_keys.contains(&key) => own(key, value),
                    VARIABLE => Err(unknown(default_keys)),
                    _ => Err(unknown(keys)),
                },
                Some(("threads", value)) => {
                    self::threads(value).map(|threads| params.threads = Some(threads))
                }
                Some(("spin", value)) => self::spin(value).map(|spin| params.spin = Some(spin)),
                Some(("capture", file)) => capture::check(file)
                    .map(|()| params.capture = Some(file.to_owned()))
                    .map_err(|e| e.to_string()),
                Some((key, value)) => own(key, value),
            };
            set.map_err(|e| invalid(source, format!("{word}: {e}")))?;
        }
    }
    Ok(params)
}

/// Returns the error for a key that is not one of `keys`.
fn unknown(keys: &[&str]) -> String {
    let (last, others) = keys.split_last().expect("every adapter has a key");
    format!("unknown key; known are {} and {last}", others.join(", "))
}

/// Parses the value of a key that is either `on` or `off`.
pub fn on(value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected on or off".into()),
    }
}

/// Parses the value of `timeout`, for protocols that detect the loss of a peer themselves: the time
/// to wait for an answer before the peer is asked again.
pub fn timeout(value: &str) -> Result<Duration, String> {
    match value.parse() {
        Ok(ms) if TIMEOUT_RANGE_MS.contains(&ms) => Ok(Duration::from_millis(ms)),
        _ => Err(format!(
            "expected {} to {} milliseconds",
            TIMEOUT_RANGE_MS.start(),
            TIMEOUT_RANGE_MS.end()
        )),
    }
}

/// Parses the value of `retries`: how many times a peer that does not answer is asked again.
pub fn retries(value: &str) -> Result<u8, String> {
    match value.parse() {
        Ok(n) if n <= MAX_RETRIES => Ok(n),
        _ => Err(format!("expected 0 to {MAX_RETRIES}")),
    }
}

const TIMEOUT_RANGE_MS: RangeInclusive<u64> = 32..=600_000;
const MAX_RETRIES: u8 = 7;

fn threads(value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(threads @ 1..=MAX_ENGINES) => Ok(threads),
        _ => Err(format!("expected 1 to {MAX_ENGINES}")),
    }
}

fn spin(value: &str) -> Result<Duration, String> {
    match value.parse() {
        Ok(us @ 0..=MAX_SPIN_US) => Ok(Duration::from_micros(us)),
        _ => Err(format!("expected 0 to {MAX_SPIN_US} microseconds")),
    }
}

/// The error for parameters. `source` is the name of the words or of the variable.
pub fn in_source(source: &str, code: Error, reason: String) -> OpenError {
    OpenError::new(code, format!("{source}: {}", shortened(reason)))
}

/// Shortens a reason that repeats a long value. Only the middle is removed: the beginning and the
/// end stay, because the end says what was expected.
fn shortened(reason: String) -> String {
    /// The number of characters that stay at the beginning, and the number that stay at the end.
    const KEPT_CHARS: usize = 200;
    let begin = reason.char_indices().nth(KEPT_CHARS).map(|(at, _)| at);
    let end = reason.char_indices().nth_back(KEPT_CHARS - 1).map(|(at, _)| at);
    match (begin, end) {
        (Some(begin), Some(end)) if begin < end => {
            format!("{}… ({} octets) …{}", &reason[..begin], reason.len(), &reason[end..])
        }
        _ => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netdev;

    fn parse(text: &str) -> Result<Config, OpenError> {
        with(text, "")
    }

    fn words<'t>(text: &'t str, defaults: &'t str) -> Words<'t> {
        let keys = &["threads", "spin", "capture"];
        Words { name: "the entry", text, defaults, keys, default_keys: &["crc", "mtu"] }
    }

    fn with(text: &str, defaults: &str) -> Result<Config, OpenError> {
        super::parse(&words(text, defaults), |key, value| match key {
            "mtu" => value.parse::<u16>().map(drop).map_err(|_| "expected octets".to_owned()),
            _ => unreachable!("no other keys are known"),
        })
    }

    fn reason(text: &str) -> String {
        parse(text).expect_err(text).reason
    }

    /// A variable that is not UTF-8 is an error. If it were ignored, its valid keys would have no
    /// effect.
    #[test]
    fn a_variable_that_is_not_utf_8_is_refused() {
        let error = with("lo", "spin=1 capture=/tmp/\u{fffd}.pcapng").expect_err("refused");
        assert_eq!(error.reason, "OPENDAT_PARAMS: capture=/tmp/\u{fffd}.pcapng: expected UTF-8");
    }

    #[test]
    fn nothing_means_every_address() {
        let params = parse(" ").expect("parses");
        assert_eq!(params.bind, None);
        assert!(!params.address.ip().is_unspecified());
    }

    #[test]
    fn one_address_by_number_device_or_name() {
        for text in ["127.0.0.1", "lo", "localhost", "lo 0"] {
            let bind = parse(text).expect(text).bind.expect(text);
            assert!(bind.ip().is_loopback() && bind.port() == 0, "{text}: {bind}");
        }
        for text in ["127.0.0.9", "::ffff:127.0.0.9"] {
            assert_eq!(
                parse(text).expect(text).bind,
                Some("127.0.0.9:0".parse().expect("an address"))
            );
        }
        if netdev::addresses()
            .expect("devices")
            .iter()
            .any(|d| d.addr.ip() == std::net::Ipv6Addr::LOCALHOST)
        {
            for text in ["::1", "[::1]", "[::1%lo]"] {
                assert_eq!(
                    parse(text).expect(text).bind,
                    Some("[::1]:0".parse().expect("an address"))
                );
            }
        }
    }

    #[test]
    fn the_caller_is_asked_for_its_own_keys() {
        let mut asked = Vec::new();
        let own = |key: &str, value: &str| {
            asked.push(format!("{key}: {value}"));
            Ok(())
        };
        let params = super::parse(
            &Words {
                keys: &["crc", "cc", "rnr", "spin"],
                ..words("crc=on spin=100 lo cc= rnr=a=b", "rnr=c mtu=1024")
            },
            own,
        )
        .expect("parses");
        assert_eq!(asked, ["rnr: c", "mtu: 1024", "crc: on", "cc: ", "rnr: a=b"]);
        assert!(params.bind.is_some_and(|bind| bind.ip().is_loopback()));
        assert_eq!(params.spin, Some(Duration::from_micros(100)));
        assert_eq!(
            reason("bad=1"),
            "the entry: bad=1: unknown key; known are threads, spin and capture"
        );
        let long = reason(&format!("bad={}", "µ".repeat(1 << 20)));
        assert!(
            long.len() < 1000
                && long.ends_with("µ: unknown key; known are threads, spin and capture"),
            "{long}"
        );
    }

    #[test]
    fn a_key_that_occurs_twice_is_refused() {
        let keys = &["crc", "", "spin", "capture"];
        let reason = |text| {
            let error =
                super::parse(&Words { keys, ..words(text, "") }, |_, _| Ok(())).expect_err(text);
            assert_eq!(error.code, Error::InvalidArgument, "{text}");
            error.reason
        };
        assert_eq!(
            reason("crc=on lo crc=off"),
            "the entry: crc=off: the key crc occurs twice; expected it once"
        );
        for (text, key) in [
            ("crc=on crc=on", "crc"),
            ("spin=1 crc=on spin=1", "spin"),
            ("capture=a capture=b", "capture"),
            ("=a =b", ""),
        ] {
            let expected = format!("the key {key} occurs twice; expected it once");
            assert!(reason(text).ends_with(&expected), "{text}");
        }
        assert!(super::tests::reason("bad=1 bad=2").starts_with("the entry: bad=1: unknown key"));
        // The same key in the environment variable is not a repetition, and the value in the entry
        // wins.
        let params = with("spin=8 capture=/tmp/b", "capture=/tmp/a spin=7").expect("two sources");
        assert_eq!(params.spin(), Duration::from_micros(8));
        assert_eq!(params.capture.as_deref(), Some("/tmp/b"));
    }

    #[test]
    fn what_is_wrong_with_a_key_is_found_without_its_device() {
        assert!(reason("no-such-device0.invalid bad=1").contains("bad=1: unknown key"));
        let words = words("no-such-device0.invalid 1 threads=3", "");
        let read = super::read(&words, |_, _| Ok(())).expect("the host is not asked");
        assert_eq!((read.place, read.threads), (Some("no-such-device0.invalid"), Some(3)));
    }

    #[test]
    fn the_environment_has_defaults_and_the_entry_wins() {
        assert_eq!(with("", "spin=7").expect("parses").spin(), Duration::from_micros(7));
        assert_eq!(with("spin=8", "spin=7").expect("parses").spin(), Duration::from_micros(8));
        let capture = |text, defaults| with(text, defaults).expect(text).capture;
        assert_eq!(capture("", "capture=/tmp/a spin=1").as_deref(), Some("/tmp/a"));
        assert_eq!(capture("capture=/tmp/b=%p", "capture=/tmp/a").as_deref(), Some("/tmp/b=%p"));
        let nothing = parse("").expect("parses");
        assert_eq!((nothing.spin, &nothing.capture), (None, &None));
        assert_eq!(with("", " ").expect("empty means unset"), nothing);
        assert_eq!(with("", "mtu=7").expect("a key of others"), nothing);
        assert_eq!(reason("capture="), "the entry: capture=: expected the name of a file");
        assert_eq!(capture("capture=/tmp/a,max=1G", "").as_deref(), Some("/tmp/a,max=1G"));
        assert_eq!(
            reason("capture=a,max=1"),
            "the entry: capture=a,max=1: max=1: expected at least 4K octets, as in 64M or 1G"
        );
        assert!(
            reason("capture=%x").starts_with("the entry: capture=%x: expected %p (process id)")
        );
    }

    #[test]
    fn errors_name_the_environment_variable() {
        let reason = |defaults| {
            let error = with("spin=8", defaults).expect_err(defaults);
            assert_eq!(error.code, Error::InvalidArgument, "{defaults}");
            error.reason
        };
        assert_eq!(
            reason("spin=soon"),
            "OPENDAT_PARAMS: spin=soon: expected 0 to 1000000 microseconds"
        );
        assert_eq!(
            reason("spin=1 lo"),
            "OPENDAT_PARAMS: lo: expected key=value; an address belongs in the entry"
        );
        assert_eq!(
            reason("mut=1024"),
            "OPENDAT_PARAMS: mut=1024: unknown key; known are crc and mtu"
        );
        assert_eq!(
            reason("mtu=1024 mtu=1024"),
            "OPENDAT_PARAMS: mtu=1024: the key mtu occurs twice; expected it once"
        );
        assert_eq!(reason("mtu=all"), "OPENDAT_PARAMS: mtu=all: expected octets");
        assert!(super::tests::reason("mtu=7").contains("unknown key"));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert_eq!(on("maybe"), Err("expected on or off".into()));
        assert_eq!(reason("spin=-1"), "the entry: spin=-1: expected 0 to 1000000 microseconds");
        assert_eq!(reason("lo eth0"), "the entry: \"eth0\": expected key=value after the address");
        assert_eq!(
            reason("203.0.113.77"),
            "the entry: 203.0.113.77 is not an address of this host"
        );
        let unknown = reason("no-such-device0.invalid");
        assert!(
            unknown.starts_with(
                "the entry: \"no-such-device0.invalid\" is neither a network device with an \
                 address nor"
            ),
            "{unknown}"
        );
        assert_eq!(parse("spin=soon").expect_err("bad").code, Error::InvalidArgument);
        assert_eq!(parse("203.0.113.77").expect_err("bad").code, Error::NoSuchAddress);
    }
}
