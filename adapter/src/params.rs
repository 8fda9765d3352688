//! The common part of all ia_params: the address, how long to poll, the capture file, whether the
//! counters are available, and how strict to be.
//!
//! ```text
//! ia_params = [ where [ number ] ] { key "=" value }        words, separated by blanks
//! where     = network device | IPv4 or IPv6 address | host name
//! ```
//!
//! A key that occurs twice is an error, because one of its values would have no effect.
//!
//! The environment variable `OPENDAT_PARAMS` contains such keys, without an address. They are the
//! defaults of all adapters that the process opens: a key in ia_params wins over them. In this
//! variable, an adapter ignores two kinds of keys: the keys of other providers, and `builtin`,
//! which is for the registry.
//!
//! Without `where`, the adapter serves every address of the host. The number has no effect. It is
//! allowed because entries for OFED's providers contain a port number there (`"eth0 0"`).
//!
//! - `capture`: a pcapng file that records what sockets send and receive, with `,max=SIZE` up to
//!   this size (docs/capture.md). The default is none.
//! - `spin`: how many µs a blocking wait polls before it sleeps. A software adapter does so unless
//!   polling has made waits longer. The default is 30. On a host with one processor and over verbs
//!   devices, the default is 0.
//! - `stats`: `on` makes the adapter's counters available to `dat top`. The default is `off`.
//! - `strict`: `on` makes no exception from the letter of the standard, even where a program needs
//!   one (docs/compatibility.md). The default is `off`.
//! - `threads`: how many threads of the program can move data of a software adapter at the same
//!   time, 1 to 64. The default is the number of processors that the process may use, but at most
//!   8.

use std::collections::HashSet;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::thread::available_parallelism;
use std::time::Duration;

use telemetry::environment;

use crate::engines::MAX_ENGINES;
use crate::error::{Error, OpenError, no_resources};
use crate::netdev::{self, NetAddr};

/// Parsed ia_params, except for the provider's own keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// The one address that is served, with port 0; `None` for all addresses of the host.
    pub bind: Option<SocketAddr>,
    /// The address that the adapter reports as its own, with port 0.
    pub address: SocketAddr,
    /// All addresses of the host.
    pub host: Vec<NetAddr>,
    /// How many threads can move data at the same time: the maximum number of engines of the
    /// adapter; `None` if not specified.
    pub threads: Option<usize>,
    /// How long a blocking wait polls before it sleeps; `None` if not specified.
    pub spin: Option<Duration>,
    /// The capture file, as [`capture::Capture::open`] takes it.
    pub capture: Option<String>,
    /// Whether the adapter is strict: it makes no exception from the letter of the standard, even
    /// where a program needs one.
    pub strict: bool,
    /// Whether the adapter's counters are available to other processes.
    pub stats: bool,
}

/// The default of `threads` on a host with many processors. A thread that uses the endpoints of all
/// engines asks the poller of each.
const DEFAULT_THREADS_MAX: usize = 8;
const MAX_SPIN_US: u64 = 1_000_000;
const DEFAULT_SPIN: Duration = Duration::from_micros(30);

/// The environment variable with the defaults of all adapters.
const VARIABLE: &str = "OPENDAT_PARAMS";

/// The error for a word of `OPENDAT_PARAMS` that is not of the form key=value.
const NO_KEY: &str = "expected key=value; an address belongs in the ia_params of an entry";

/// The error for a word that is not UTF-8. Such a word contains U+FFFD in place of the invalid
/// octets.
const NOT_UTF_8: &str = "expected UTF-8";

/// All keys of all providers of this project.
pub const KEYS: &[&str] = &[
    "crc",
    "extended",
    "rnr",
    "cc",
    "fpdu",
    "engine",
    "mtu",
    "gso",
    "dscp",
    "timeout",
    "retries",
    "shm",
    "completion",
    "net",
    "threads",
    "spin",
    "strict",
    "stats",
    "capture",
];

/// Returns the value of the environment variable `OPENDAT_PARAMS`.
pub fn defaults() -> String {
    environment::variable(VARIABLE).unwrap_or_default()
}

/// Parses ia_params. `defaults` is the value of `OPENDAT_PARAMS`. `keys` are all keys that the
/// provider has. For each key that is not common to all providers, `parse` calls `own` with the key
/// and its value: first for the keys in `defaults`, then for those in ia_params. The error of `own`
/// says what was expected. `parse` uses the resolver of the host only for a name that is neither an
/// address nor a device.
///
/// # Errors
/// [`Error::InvalidArgument`] for what [`read`] refuses, else [`Error::NoSuchAddress`] for an
/// address that is not of this host.
pub fn parse(
    text: &str,
    defaults: &str,
    keys: &[&str],
    own: impl FnMut(&str, &str) -> Result<(), String>,
) -> Result<Params, OpenError> {
    let Unlocated { place, threads, spin, capture, strict, stats } =
        read(text, defaults, keys, own)?;
    let host = netdev::addresses().map_err(|e| {
        let reason = format!("listing network devices: {e}");
        let error = match e.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => no_resources(e),
            _ => Error::NoSuchAddress,
        };
        OpenError::new(error, reason)
    })?;
    let bind = place.map(|place| locate(place, &host)).transpose()?;
    let address = bind.unwrap_or_else(|| netdev::of_host(&host));
    Ok(Params { bind, address, host, threads, spin, capture, strict, stats })
}

/// Parsed ia_params whose address has not been looked up on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unlocated<'t> {
    /// The word that names the address to serve; `None` for all addresses of the host.
    pub place: Option<&'t str>,
    /// As [`Params::threads`].
    pub threads: Option<usize>,
    /// As [`Params::spin`].
    pub spin: Option<Duration>,
    /// As [`Params::capture`].
    pub capture: Option<String>,
    /// As [`Params::strict`].
    pub strict: bool,
    /// As [`Params::stats`].
    pub stats: bool,
}

/// Parses ia_params like [`parse`], but does not look up the address on the host or with its
/// resolver. A program that checks many entries calls this once for each entry.
///
/// # Errors
/// [`Error::InvalidArgument`] for a word that is out of place, an unknown key, a key that occurs
/// twice, or an invalid value, in ia_params or in `OPENDAT_PARAMS`.
pub fn read<'t>(
    text: &'t str,
    defaults: &str,
    keys: &[&str],
    mut own: impl FnMut(&str, &str) -> Result<(), String>,
) -> Result<Unlocated<'t>, OpenError> {
    let (places, options): (Vec<_>, Vec<_>) =
        text.split_whitespace().partition(|word| !word.contains('='));
    let place = match places[..] {
        [] => None,
        [place] => Some(place),
        [place, port] if port.bytes().all(|b| b.is_ascii_digit()) => Some(place),
        [_, word, ..] => {
            return Err(invalid(format!("\"{word}\": expected key=value after the address")));
        }
    };
    let mut params = Unlocated { place, ..Unlocated::default() };
    for (source, words) in [(VARIABLE, defaults.split_whitespace().collect()), (IA_PARAMS, options)]
    {
        let mut seen = HashSet::new();
        for word in words {
            let set = match word.split_once('=') {
                _ if word.contains(char::REPLACEMENT_CHARACTER) => Err(NOT_UTF_8.into()),
                None => Err(NO_KEY.into()),
                // This check also sees unknown keys, but the first occurrence of an unknown key has
                // already been refused as unknown.
                Some((key, _)) if !seen.insert(key) => {
                    Err(format!("the key {key} occurs twice; expected it once"))
                }
                Some(("builtin", value)) if source == VARIABLE => on(value).map(drop),
                Some((key, _)) if !keys.contains(&key) => match source {
                    VARIABLE if KEYS.contains(&key) => Ok(()),
                    VARIABLE => Err(unknown(&[&["builtin"], KEYS].concat())),
                    _ => Err(unknown(keys)),
                },
                Some(("threads", value)) => {
                    self::threads(value).map(|threads| params.threads = Some(threads))
                }
                Some(("spin", value)) => self::spin(value).map(|spin| params.spin = Some(spin)),
                Some(("capture", file)) => capture::check(file)
                    .map(|()| params.capture = Some(file.to_owned()))
                    .map_err(|e| e.to_string()),
                Some(("strict", value)) => on(value).map(|strict| params.strict = strict),
                Some(("stats", value)) => on(value).map(|stats| params.stats = stats),
                Some((key, value)) => own(key, value),
            };
            set.map_err(|e| invalid_in(source, format!("{word}: {e}")))?;
        }
    }
    Ok(params)
}

/// Returns the error for a key that is not one of `keys`.
fn unknown(keys: &[&str]) -> String {
    let (last, others) = keys.split_last().expect("every provider has a key");
    format!("unknown key; known are {} and {last}", others.join(", "))
}

impl Params {
    /// The maximum number of engines of the adapter. More engines than processors would not make
    /// progress at the same time.
    pub fn engines(&self) -> usize {
        let of_processors = || available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(|| of_processors().min(DEFAULT_THREADS_MAX))
    }

    /// How long a blocking wait polls before it sleeps.
    pub fn spin(&self) -> Duration {
        self.spin.unwrap_or_else(|| default_spin(online_processors()))
    }
}

/// Parses the value of a key that is either `on` or `off`.
pub fn on(value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected on or off".into()),
    }
}

/// Parses the value of `timeout`, for providers that detect the loss of a peer themselves: the time
/// that such a provider waits for an answer before it asks the peer again.
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

/// Parses the value of `retries`: how many times the provider asks a peer again that does not
/// answer.
pub fn retries(value: &str) -> Result<u8, String> {
    match value.parse() {
        Ok(n) if n <= MAX_RETRIES => Ok(n),
        _ => Err(format!("expected 0 to {MAX_RETRIES}")),
    }
}

const TIMEOUT_RANGE_MS: RangeInclusive<u64> = 32..=600_000;
const MAX_RETRIES: u8 = 7;

/// Returns the default of `spin`. With a single processor the default is 0, because polling would
/// keep the sender of the message from running.
fn default_spin(processors: libc::c_long) -> Duration {
    if processors >= 2 { DEFAULT_SPIN } else { Duration::ZERO }
}

/// Returns the number of processors of the host. The number that the calling thread may use does
/// not matter: a consumer that is bound to one processor leaves the others to its peers.
fn online_processors() -> libc::c_long {
    // SAFETY: sysconf takes no pointers.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }
}

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

/// Returns the local address that a word denotes.
fn locate(place: &str, devices: &[NetAddr]) -> Result<SocketAddr, OpenError> {
    if let Some(address) = address::from_text(place) {
        return local(address, devices)
            .ok_or_else(|| no_address(format!("{place} is not an address of this host")));
    }
    if let Some(found) = netdev::of_device(devices, place) {
        return match found.up {
            true => Ok(found.addr),
            false => Err(no_address(format!("network device {place} is down"))),
        };
    }
    let addrs: Vec<SocketAddr> = (place, 0)
        .to_socket_addrs()
        .map_err(|e| {
            no_address(format!(
                "\"{place}\" is neither a network device with an address nor a host name that \
                 resolves: {e}"
            ))
        })?
        .collect();
    addrs.iter().find_map(|&a| local(a, devices)).ok_or_else(|| {
        let ips: Vec<String> = addrs.iter().map(|a| a.ip().to_string()).collect();
        no_address(format!("{place} resolves to {}, which is not this host", ips.join(", ")))
    })
}

/// Returns the address if it belongs to this host, with its scope. If the scope is not given and
/// several devices have the address, the address of the first device is returned.
fn local(address: SocketAddr, devices: &[NetAddr]) -> Option<SocketAddr> {
    let address = ::address::normalized(address);
    let ip = address.ip();
    let is_it = |of: SocketAddr| {
        of.ip() == ip
            && ::address::with_scope(address, netdev::interface_of(of))
                .is_some_and(|address| address == of)
    };
    let exact = devices.iter().map(|device| device.addr).find(|&of| is_it(of));
    // All addresses of 127/8 belong to this host, although the device lists only one of them.
    exact.or_else(|| (ip.is_ipv4() && ip.is_loopback()).then(|| SocketAddr::new(ip, 0)))
}

/// The name of ia_params in messages.
const IA_PARAMS: &str = "ia_params";

/// Creates the error for invalid ia_params.
pub fn invalid(reason: String) -> OpenError {
    invalid_in(IA_PARAMS, reason)
}

/// Creates the error for invalid parameters. `source` is ia_params or the name of the variable.
fn invalid_in(source: &str, reason: String) -> OpenError {
    OpenError::new(Error::InvalidArgument, format!("{source}: {}", shortened(reason)))
}

fn no_address(reason: String) -> OpenError {
    OpenError::new(Error::NoSuchAddress, format!("ia_params: {}", shortened(reason)))
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

    fn parse(text: &str) -> Result<Params, OpenError> {
        with(text, "")
    }

    const COMMON: &[&str] = &["spin", "strict", "stats", "capture"];

    fn with(text: &str, defaults: &str) -> Result<Params, OpenError> {
        super::parse(text, defaults, COMMON, |_, _| unreachable!("no other keys are known"))
    }

    fn reason(text: &str) -> String {
        parse(text).expect_err(text).reason
    }

    /// A variable that is not UTF-8 is an error. If it were ignored, its valid keys would have no
    /// effect.
    #[test]
    fn a_variable_that_is_not_utf_8_is_refused() {
        let error = with("lo", "strict=on capture=/tmp/\u{fffd}.pcapng").expect_err("refused");
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
    fn the_provider_is_asked_for_its_own_keys() {
        let mut asked = Vec::new();
        let own = |key: &str, value: &str| {
            asked.push(format!("{key}: {value}"));
            Ok(())
        };
        let params = super::parse("crc=on spin=100 lo cc= rnr=a=b", "rnr=c mtu=1024", KEYS, own)
            .expect("parses");
        assert_eq!(asked, ["rnr: c", "mtu: 1024", "crc: on", "cc: ", "rnr: a=b"]);
        assert!(params.bind.is_some_and(|bind| bind.ip().is_loopback()));
        assert_eq!(params.spin, Some(Duration::from_micros(100)));
        assert_eq!(
            reason("bad=1"),
            "ia_params: bad=1: unknown key; known are spin, strict, stats and capture"
        );
        let long = reason(&format!("bad={}", "µ".repeat(1 << 20)));
        assert!(
            long.len() < 1000
                && long.ends_with("µ: unknown key; known are spin, strict, stats and capture"),
            "{long}"
        );
    }

    #[test]
    fn a_key_that_occurs_twice_is_refused() {
        let reason = |text| {
            let error =
                super::parse(text, "", &["crc", "", "spin", "strict", "capture"], |_, _| Ok(()))
                    .expect_err(text);
            assert_eq!(error.code, Error::InvalidArgument, "{text}");
            error.reason
        };
        assert_eq!(
            reason("crc=on lo crc=off"),
            "ia_params: crc=off: the key crc occurs twice; expected it once"
        );
        for (text, key) in [
            ("crc=on crc=on", "crc"),
            ("spin=1 crc=on spin=1", "spin"),
            ("strict=on strict=off", "strict"),
            ("capture=a capture=b", "capture"),
            ("=a =b", ""),
        ] {
            let expected = format!("the key {key} occurs twice; expected it once");
            assert!(reason(text).ends_with(&expected), "{text}");
        }
        assert!(super::tests::reason("bad=1 bad=2").starts_with("ia_params: bad=1: unknown key"));
        // The same key in the environment variable is not a repetition, and the value in the entry
        // wins.
        let params = with("spin=8 capture=/tmp/b", "capture=/tmp/a spin=7").expect("two sources");
        assert_eq!(params.spin(), Duration::from_micros(8));
        assert_eq!(params.capture.as_deref(), Some("/tmp/b"));
    }

    #[test]
    fn what_is_wrong_with_a_key_is_found_without_its_device() {
        assert!(reason("no-such-device0.invalid bad=1").contains("bad=1: unknown key"));
        let text = "no-such-device0.invalid 1 strict=on";
        let read = super::read(text, "", COMMON, |_, _| Ok(())).expect("the host is not asked");
        assert_eq!((read.place, read.strict), (Some("no-such-device0.invalid"), true));
    }

    #[test]
    fn the_environment_has_defaults_and_the_entry_wins() {
        assert_eq!(with("", "spin=7").expect("parses").spin(), Duration::from_micros(7));
        assert_eq!(with("spin=8", "spin=7").expect("parses").spin(), Duration::from_micros(8));
        assert!(!with("strict=off", "strict=on").expect("parses").strict);
        let capture = |text, defaults| with(text, defaults).expect(text).capture;
        assert_eq!(capture("", "capture=/tmp/a spin=1").as_deref(), Some("/tmp/a"));
        assert_eq!(capture("capture=/tmp/b=%p", "capture=/tmp/a").as_deref(), Some("/tmp/b=%p"));
        let nothing = parse("").expect("parses");
        assert_eq!((nothing.spin, &nothing.capture), (None, &None));
        assert_eq!(with("", " ").expect("empty means unset"), nothing);
        assert_eq!(with("", "mtu=7 builtin=off").expect("keys of others"), nothing);
        assert_eq!(reason("capture="), "ia_params: capture=: expected the name of a file");
        assert_eq!(capture("capture=/tmp/a,max=1G", "").as_deref(), Some("/tmp/a,max=1G"));
        assert_eq!(
            reason("capture=a,max=1"),
            "ia_params: capture=a,max=1: max=1: expected at least 4K octets, as in 64M or 1G"
        );
        assert!(
            reason("capture=%x").starts_with("ia_params: capture=%x: expected %p (process id)")
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
            "OPENDAT_PARAMS: lo: expected key=value; an address belongs in the ia_params of an entry"
        );
        let unknown = reason("mut=1024");
        assert!(
            unknown.starts_with("OPENDAT_PARAMS: mut=1024: unknown key; known are builtin, crc,"),
            "{unknown}"
        );
        assert_eq!(
            reason("mtu=1024 mtu=1024"),
            "OPENDAT_PARAMS: mtu=1024: the key mtu occurs twice; expected it once"
        );
        assert_eq!(reason("builtin=0"), "OPENDAT_PARAMS: builtin=0: expected on or off");
        assert!(super::tests::reason("builtin=off").contains("unknown key"));
    }

    #[test]
    fn one_processor_does_not_spin() {
        assert_eq!(
            [-1, 1, 2, 64].map(default_spin),
            [Duration::ZERO, Duration::ZERO, DEFAULT_SPIN, DEFAULT_SPIN]
        );
    }

    /// The default of `spin` does not depend on the processors that the thread is bound to: a
    /// consumer that is bound to one processor leaves the other processors to its peers.
    #[test]
    fn affinity_does_not_count() {
        let spin = parse("").expect("parses").spin();
        let bound = std::thread::spawn(|| {
            // SAFETY: the set belongs to this thread, is zeroed, and is alive during the calls.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::sched_getaffinity(0, size_of_val(&set), &mut set);
                let first = (0..libc::CPU_SETSIZE as usize)
                    .find(|&cpu| libc::CPU_ISSET(cpu, &set))
                    .expect("one");
                libc::CPU_ZERO(&mut set);
                libc::CPU_SET(first, &mut set);
                assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
            }
            parse("").expect("parses").spin()
        });
        assert_eq!(bound.join().expect("no panic"), spin);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert_eq!(on("maybe"), Err("expected on or off".into()));
        assert_eq!(reason("spin=-1"), "ia_params: spin=-1: expected 0 to 1000000 microseconds");
        assert_eq!(reason("lo eth0"), "ia_params: \"eth0\": expected key=value after the address");
        assert_eq!(
            reason("203.0.113.77"),
            "ia_params: 203.0.113.77 is not an address of this host"
        );
        let unknown = reason("no-such-device0.invalid");
        assert!(
            unknown.starts_with(
                "ia_params: \"no-such-device0.invalid\" is neither a network device with an address \
                 nor"
            ),
            "{unknown}"
        );
        assert_eq!(parse("spin=soon").expect_err("bad").code, Error::InvalidArgument);
        assert_eq!(parse("203.0.113.77").expect_err("bad").code, Error::NoSuchAddress);
    }
}
