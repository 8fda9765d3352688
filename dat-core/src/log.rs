//! What happens, told to whoever asks: events of the crate `tracing`. A program with a subscriber of its own gets them; for
//! any other [`start`] makes one if the environment asks for it. Only control operations and failures are told: an operation
//! that is posted and completes with success says nothing.
//!
//! | target | level | what |
//! |---|---|---|
//! | `dat::ia` | info | an adapter is opened, closed |
//! | | warn | an asynchronous error |
//! | `dat::cm` | debug | a connection is asked for, a request arrives, is accepted, rejected, handed off |
//! | | info | a connection is established, disconnected |
//! | | warn | an attempt fails; a connection breaks, `because` of what |
//! | `dat::ep` | debug | an endpoint goes from one state to another |
//! | `dat::dto` | warn | an operation completes with an error; `debug` if it was flushed |
//! | | info | a message waits for a receive; once for each that does |
//! | `dat::evd` | warn | an event finds no room |
//! | `dat::api` | debug | a call is refused; `trace`: each control call that is not |
//! | `dat::wake` | trace | a thread falls asleep, is asked to wake up, is awake ([`trace`](crate::wake::trace)) |
//!
//! Fields: `ia`, the adapter's name; `ep`, `cr`, the handles that the consumer has, for `dat::api` that of the call, `handle`;
//! `connection`, a number for each connection of an endpoint, and attempt at one, which counts through the process; `local` and
//! `peer`, its ends.

use std::ffi::CString;
use std::fmt;
use std::io::{self, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dat_sys::describe::{completion_name, operation_name};
use dat_sys::*;
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::set_global_default;
use tracing::{Event, Subscriber, debug, trace, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{self as show, FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::{LookupSpan, Registry};

use crate::environment;
use crate::error::Result;

/// Makes a subscriber, the first time, if `OPENDAT_LOG` or `DAPL_DBG_TYPE` asks for one and the program has none.
pub fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| match Settings::of(environment::variable) {
        Ok(None) => {}
        Ok(Some(settings)) => settings.apply(),
        // A closed standard error is not worth failing for.
        Err(why) => drop(writeln!(io::stderr(), "dat: {why}; nothing is logged")),
    });
}

/// What is told, how, and to whom.
#[derive(Debug)]
struct Settings {
    what: Targets,
    json: bool,
    to: Destination,
}

/// As `DAPL_DBG_DEST` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    Stderr,
    Stdout,
    Syslog,
}

/// Bits of `DAPL_DBG_TYPE`, as OFED's providers have them, and what answers them here. The others have no counterpart.
const BITS: &[(u32, &str, LevelFilter)] = &[
    (0x1, "dat", LevelFilter::WARN),          // ERR
    (0x2, "dat", LevelFilter::WARN),          // WARN
    (0x4, "dat::evd", LevelFilter::TRACE),    // EVD
    (0x8, "dat::cm", LevelFilter::TRACE),     // CM
    (0x10, "dat::ep", LevelFilter::TRACE),    // EP
    (0x80, "dat::dto", LevelFilter::TRACE),   // DTO_COMP_ERR
    (0x100, "dat::api", LevelFilter::TRACE),  // API
    (0x200, "dat::api", LevelFilter::TRACE),  // RTN
    (0x400, "dat::api", LevelFilter::DEBUG),  // EXCEPTION
    (0x8000, "dat::cm", LevelFilter::INFO),   // CM_EST
    (0x1_0000, "dat::cm", LevelFilter::WARN), // CM_WARN
    (0x8_0000, "dat::cm", LevelFilter::WARN), // CM_ERRS
];

impl Settings {
    fn of(variable: impl Fn(&str) -> Option<String>) -> std::result::Result<Option<Self>, String> {
        let given = |name| variable(name).filter(|value| !value.trim().is_empty());
        let number = |name| match given(name) {
            None => Ok(None),
            Some(text) => environment::number(&text).map(Some).ok_or_else(|| {
                format!("{name}={text}: a number is needed, decimal or 0x and hexadecimal")
            }),
        };
        let what = match given("OPENDAT_LOG") {
            Some(text) => words(&text).map_err(|why| format!("OPENDAT_LOG={text}: {why}"))?,
            None => match number("DAPL_DBG_TYPE")? {
                None | Some(0) => return Ok(None),
                Some(bits) => of_bits(bits),
            },
        };
        let json = match given("OPENDAT_LOG_FORMAT").as_deref() {
            None | Some("text") => false,
            Some("json") => true,
            Some(other) => {
                return Err(format!("OPENDAT_LOG_FORMAT={other}: text or json is needed"));
            }
        };
        let to = match number("DAPL_DBG_DEST")?.unwrap_or(0) {
            bits if bits & 2 != 0 => Destination::Syslog,
            bits if bits & 1 != 0 => Destination::Stdout,
            _ => Destination::Stderr,
        };
        Ok(Some(Settings { what, json, to }))
    }

    fn apply(self) {
        let format = Lines { began: Instant::now(), json: self.json };
        // What cannot be written is lost. Telling that on standard error could panic, below a C function.
        let lines =
            show::layer().with_writer(self.to).event_format(format).log_internal_errors(false);
        let lines = lines.with_filter(self.what);
        // A program that has a subscriber of its own keeps it.
        let _ = set_global_default(Registry::default().with(lines));
    }
}

/// Whether the variables that [`start`] heeds can be understood.
///
/// # Errors
///
/// The first that cannot, with what is wrong with it.
pub fn check_environment(
    variable: impl Fn(&str) -> Option<String>,
) -> std::result::Result<(), String> {
    Settings::of(variable).map(drop)
}

/// Whether `OPENDAT_LOG` may be this: the text again.
///
/// # Errors
///
/// What is wrong with it.
pub fn check(text: &str) -> std::result::Result<String, String> {
    words(text).map(|_| text.to_owned())
}

/// What events there are.
const TARGETS: [&str; 8] =
    ["dat", "dat::ia", "dat::cm", "dat::ep", "dat::dto", "dat::evd", "dat::api", "dat::wake"];

fn words(text: &str) -> std::result::Result<Targets, String> {
    const EXAMPLE: &str = "for example debug, or dat::cm=debug,dat::ep=trace";
    let what: Targets = text.trim().parse().map_err(|error| format!("{error}; {EXAMPLE}"))?;
    match what.iter().find(|(target, _)| !TARGETS.contains(target)) {
        Some((target, _)) => Err(format!("{target} is no level and no target; {EXAMPLE}")),
        None => Ok(what),
    }
}

/// Of two bits for one target the one that says more counts.
fn of_bits(bits: u32) -> Targets {
    let mut what = Targets::new();
    let mut asked: Vec<_> = BITS.iter().filter(|(bit, ..)| bits & bit != 0).collect();
    asked.sort_by_key(|(.., level)| *level);
    for (_, target, level) in asked {
        what = what.with_target(*target, *level);
    }
    what
}

/// A line for each event, with the process, since several may write to one terminal, and the seconds since it loaded us.
struct Lines {
    began: Instant,
    json: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (process, seconds) = (std::process::id(), self.began.elapsed().as_secs_f64());
        let (level, target) = (event.metadata().level(), event.metadata().target());
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { message, others } = fields;
        if self.json {
            let level = level.as_str().to_ascii_lowercase();
            let mut line = json!({
                "process": process, "seconds": seconds, "level": level, "target": target, "message": message
            });
            for (name, value) in others {
                line[name] = value;
            }
            return writeln!(out, "{line}");
        }
        write!(out, "dat[{process}] {seconds:.6} {level:5} {target}: {message}")?;
        for (name, value) in &others {
            match value {
                Value::String(text) => write!(out, " {name}={text}")?,
                other => write!(out, " {name}={other}")?,
            }
        }
        writeln!(out)
    }
}

/// What an event says, in its order.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.others.push((name, format!("{value:?}").into())),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.others.push((field.name(), value.into()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.others.push((field.name(), value.into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.others.push((field.name(), value.into()));
    }
}

impl<'a> MakeWriter<'a> for Destination {
    type Writer = Destination;

    fn make_writer(&'a self) -> Destination {
        *self
    }
}

/// What is written at once is one line.
impl Write for Destination {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Destination::Stderr => io::stderr().write(line),
            Destination::Stdout => io::stdout().write(line),
            Destination::Syslog => {
                let text = CString::new(line.trim_ascii_end()).map_err(io::Error::other)?;
                // SAFETY: both strings are NUL-terminated, and the format takes one of them.
                unsafe {
                    libc::syslog(libc::LOG_USER | libc::LOG_INFO, c"%s".as_ptr(), text.as_ptr())
                };
                Ok(line.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Destination::Stdout => io::stdout().flush(),
            Destination::Stderr | Destination::Syslog => Ok(()),
        }
    }
}

/// A control call has ended, or one of the data path was refused. `handle` is its first argument.
pub(crate) fn called(name: &str, handle: usize, result: Result<()>) {
    match result {
        Err(error)
            if let DAT_TIMEOUT_EXPIRED | DAT_INTERRUPTED_CALL | DAT_QUEUE_EMPTY = error.kind() =>
        {
            trace!(target: "dat::api", handle = %Hex(handle), %error, "dat_{name} has nothing");
        }
        Ok(()) => trace!(target: "dat::api", handle = %Hex(handle), "dat_{name}"),
        Err(error) => {
            debug!(target: "dat::api", handle = %Hex(handle), %error, "dat_{name} is refused")
        }
    }
}

/// A number for one more connection, or attempt at one, of this process.
pub(crate) fn connection() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// An operation has completed, and not with success.
pub(crate) fn failed(ia: &str, ep: usize, connection: u64, dto: &DAT_DTO_COMPLETION_EVENT_DATA) {
    // SAFETY: a word, whatever it is read as.
    let cookie = unsafe { dto.user_cookie.as_64 };
    let operation = operation_name(dto.operation);
    let status = completion_name(dto.status);
    match dto.status {
        DAT_DTO_ERR_FLUSHED => {
            debug!(target: "dat::dto", ia, ep = %Hex(ep), connection, operation, cookie, status, "flushed")
        }
        _ => {
            warn!(target: "dat::dto", ia, ep = %Hex(ep), connection, operation, cookie, status, "failed")
        }
    }
}

/// A handle, as programs print it.
pub(crate) struct Hex(pub(crate) usize);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(given: &[(&str, &str)]) -> std::result::Result<Option<Settings>, String> {
        let found = |name: &str| {
            given.iter().find(|(given, _)| *given == name).map(|(_, value)| value.to_string())
        };
        Settings::of(found)
    }

    fn told(given: &[(&str, &str)]) -> Vec<String> {
        let settings = settings(given).expect("they are right").expect("something is asked for");
        let mut told: Vec<_> =
            settings.what.iter().map(|(target, level)| format!("{target}={level}")).collect();
        told.sort();
        told
    }

    #[test]
    fn nothing_is_told_unasked() {
        for given in
            [&[][..], &[("OPENDAT_LOG", "")], &[("DAPL_DBG_TYPE", "0")], &[("DAPL_DBG_DEST", "1")]]
        {
            assert!(settings(given).expect("they are right").is_none(), "{given:?}");
        }
    }

    #[test]
    fn bits_of_ofed_stand_for_targets() {
        assert_eq!(told(&[("DAPL_DBG_TYPE", "0x3")]), ["dat=warn"]);
        assert_eq!(
            told(&[("DAPL_DBG_TYPE", "0x8109")]),
            ["dat::api=trace", "dat::cm=trace", "dat=warn"]
        );
        // Bits without a counterpart ask for nothing.
        assert!(told(&[("DAPL_DBG_TYPE", "0x4000")]).is_empty());
    }

    #[test]
    fn what_is_asked_for_by_name_counts() {
        let given = [("OPENDAT_LOG", "dat::ep=debug,warn"), ("DAPL_DBG_TYPE", "all")];
        let settings = settings(&given).expect("they are right").expect("it is asked for");
        assert!(settings.what.would_enable("dat::ep", &tracing::Level::DEBUG));
        assert!(!settings.what.would_enable("dat::cm", &tracing::Level::INFO));
        assert!(settings.what.would_enable("dat::cm", &tracing::Level::WARN));
    }

    #[test]
    fn mistakes_are_named() {
        let why = |given| settings(given).expect_err("it is wrong");
        assert_eq!(
            why(&[("DAPL_DBG_TYPE", "all")]),
            "DAPL_DBG_TYPE=all: a number is needed, decimal or 0x and hexadecimal"
        );
        assert!(why(&[("OPENDAT_LOG", "dat::ep=loud")]).starts_with("OPENDAT_LOG=dat::ep=loud: "));
        assert_eq!(
            why(&[("OPENDAT_LOG", "degub")]),
            "OPENDAT_LOG=degub: degub is no level and no target; for example debug, or dat::cm=debug,dat::ep=trace"
        );
        assert_eq!(
            why(&[("OPENDAT_LOG", "debug"), ("OPENDAT_LOG_FORMAT", "xml")]),
            "OPENDAT_LOG_FORMAT=xml: text or json is needed"
        );
    }

    #[test]
    fn destinations_are_those_of_ofed() {
        let to = |dest| settings(&[("OPENDAT_LOG", "info"), ("DAPL_DBG_DEST", dest)]);
        let to = |dest| to(dest).expect("it is right").expect("something is asked for").to;
        assert_eq!(
            [to("0"), to("1"), to("2")],
            [Destination::Stderr, Destination::Stdout, Destination::Syslog]
        );
    }
}
