//! Log events, through the crate `tracing`. A program with a subscriber of its own gets them. For
//! other programs [`start`] installs a subscriber if the environment asks for it. Only control
//! operations and failures are logged. An operation that is posted and completes successfully is
//! not.
//!
//! | target | level | what |
//! |---|---|---|
//! | `dat::ia` | info | an adapter is opened or closed |
//! | | warn | an asynchronous error |
//! | `dat::cm` | debug | a connection is requested; a request arrives or is answered |
//! | | info | a connection is established or disconnected |
//! | | warn | an attempt fails; a connection breaks, with the cause in `because` |
//! | `dat::ep` | debug | an endpoint changes its state |
//! | `dat::dto` | warn | an operation completes with an error; `debug` if it was flushed |
//! | | info | a message waits for a receive; once for each such message |
//! | `dat::evd` | warn | there is no room for an event |
//! | `dat::api` | debug | a call is refused; `trace`: each other control call |
//! | `dat::wake` | trace | a thread falls asleep, wakes another, is awake: [`crate::wake::trace`] |
//!
//! Fields:
//!
//! - `ia`: the name of the adapter.
//! - `ep`, `cr`: the handles that the consumer has. For `dat::api`, `handle` is that of the call.
//! - `connection`: a number for each connection of an endpoint and each attempt at one, counted
//!   through the process.
//! - `local` and `peer`: the ends of the connection.

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

/// Installs a subscriber, on the first call, if `OPENDAT_LOG` or `DAPL_DBG_TYPE` asks for one and
/// the program has none.
pub fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| match Settings::from_variables(environment::variable) {
        Ok(None) => {}
        Ok(Some(settings)) => settings.apply(),
        // Continue even if standard error is closed.
        Err(why) => drop(writeln!(io::stderr(), "dat: {why}; logging is off")),
    });
}

/// What is logged, in which format, and where to.
#[derive(Debug)]
struct Settings {
    targets: Targets,
    json: bool,
    destination: Destination,
}

/// The destination according to `DAPL_DBG_DEST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    Stderr,
    Stdout,
    Syslog,
}

/// Bits of `DAPL_DBG_TYPE`, as OFED's providers define them, and the corresponding targets here.
/// The other bits have no counterpart.
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
    fn from_variables(
        variable: impl Fn(&str) -> Option<String>,
    ) -> std::result::Result<Option<Self>, String> {
        let given = |name| variable(name).filter(|value| !value.trim().is_empty());
        let number = |name| match given(name) {
            None => Ok(None),
            Some(text) => environment::number(&text).map(Some).ok_or_else(|| {
                format!("{name}={text}: not a number, which is decimal, or hexadecimal after 0x")
            }),
        };
        let (targets, json) = match given("OPENDAT_LOG") {
            Some(text) => parse(&text).map_err(|why| format!("OPENDAT_LOG={text}: {why}"))?,
            None => match number("DAPL_DBG_TYPE")? {
                None | Some(0) => return Ok(None),
                Some(bits) => (targets_of_bits(bits), false),
            },
        };
        let destination = match number("DAPL_DBG_DEST")?.unwrap_or(0) {
            bits if bits & 2 != 0 => Destination::Syslog,
            bits if bits & 1 != 0 => Destination::Stdout,
            _ => Destination::Stderr,
        };
        Ok(Some(Settings { targets, json, destination }))
    }

    fn apply(self) {
        let format = LineFormat { start: Instant::now(), json: self.json };
        // Text that cannot be written is lost. A report of that on standard error could panic,
        // below a C function.
        let lines = show::layer()
            .with_writer(self.destination)
            .event_format(format)
            .log_internal_errors(false);
        let lines = lines.with_filter(self.targets);
        // A program that has a subscriber of its own keeps it.
        let _ = set_global_default(Registry::default().with(lines));
    }
}

/// Checks that the variables that [`start`] reads are valid.
///
/// # Errors
///
/// The error says what is wrong with the first invalid variable.
pub fn check_environment(
    variable: impl Fn(&str) -> Option<String>,
) -> std::result::Result<(), String> {
    Settings::from_variables(variable).map(drop)
}

/// Checks a value of `OPENDAT_LOG`. Returns the same text.
///
/// # Errors
///
/// The error says what is wrong with the value.
pub fn check(text: &str) -> std::result::Result<String, String> {
    parse(text).map(|_| text.to_owned())
}

/// The targets of events.
const TARGETS: [&str; 8] =
    ["dat", "dat::ia", "dat::cm", "dat::ep", "dat::dto", "dat::evd", "dat::api", "dat::wake"];

/// The level of a log without levels.
pub const DEFAULT_LEVEL: &str = "debug";

/// Parses a value of `OPENDAT_LOG`. Returns the targets, and whether each line is a JSON object.
fn parse(text: &str) -> std::result::Result<(Targets, bool), String> {
    const EXAMPLE: &str = "for example debug, or json,dat::cm=debug,dat::ep=trace";
    let (json, levels): (Vec<_>, Vec<_>) =
        text.split(',').map(str::trim).partition(|word| *word == "json");
    let levels = if levels.is_empty() { DEFAULT_LEVEL.to_owned() } else { levels.join(",") };
    let targets: Targets = levels.parse().map_err(|error| format!("{error}; {EXAMPLE}"))?;
    match targets.iter().find(|(target, _)| !TARGETS.contains(target)) {
        Some((target, _)) => Err(format!("{target} is neither a level nor a target; {EXAMPLE}")),
        None => Ok((targets, !json.is_empty())),
    }
}

/// If several bits have the same target, the most verbose level counts.
fn targets_of_bits(bits: u32) -> Targets {
    let mut targets = Targets::new();
    let mut asked: Vec<_> = BITS.iter().filter(|(bit, ..)| bits & bit != 0).collect();
    asked.sort_by_key(|(.., level)| *level);
    for (_, target, level) in asked {
        targets = targets.with_target(*target, *level);
    }
    targets
}

/// Formats each event as one line, with the process id, since several processes may write to one
/// terminal, and with the seconds since this library was loaded.
struct LineFormat {
    start: Instant,
    json: bool,
}

impl<S, N> FormatEvent<S, N> for LineFormat
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
        let (process, seconds) = (std::process::id(), self.start.elapsed().as_secs_f64());
        let (level, target) = (event.metadata().level(), event.metadata().target());
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { message, others } = fields;
        if self.json {
            let level = level.as_str().to_ascii_lowercase();
            let mut line = json!({
                "process": process, "seconds": seconds, "level": level, "target": target,
                "message": message
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

/// The fields of an event, in the order of the event.
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

/// A destination gets one line with each write.
impl Write for Destination {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Destination::Stderr => io::stderr().write(line),
            Destination::Stdout => io::stdout().write(line),
            Destination::Syslog => {
                let text = CString::new(line.trim_ascii_end()).map_err(io::Error::other)?;
                // SAFETY: both strings are NUL-terminated, and the format contains one string
                // argument.
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

/// Logs the end of a control call, or a refused call on the data path. `handle` is the first
/// argument of the call.
pub(crate) fn log_call(name: &str, handle: usize, result: Result<()>) {
    match result {
        Err(error)
            if let DAT_TIMEOUT_EXPIRED | DAT_INTERRUPTED_CALL | DAT_QUEUE_EMPTY = error.kind() =>
        {
            trace!(target: "dat::api", handle = %Hex(handle), %error, "dat_{name} finds no event");
        }
        Ok(()) => trace!(target: "dat::api", handle = %Hex(handle), "dat_{name}"),
        Err(error) => {
            debug!(target: "dat::api", handle = %Hex(handle), %error, "dat_{name} is refused")
        }
    }
}

/// A new number for a connection, or an attempt at one, of this process.
pub(crate) fn next_connection_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Logs an operation that has completed without success.
pub(crate) fn log_failed_dto(
    ia: &str,
    ep: usize,
    connection: u64,
    dto: &DAT_DTO_COMPLETION_EVENT_DATA,
) {
    // SAFETY: all variants of the union are one word, which has no invalid values.
    let cookie = unsafe { dto.user_cookie.as_64 };
    let operation = operation_name(dto.operation);
    let status = completion_name(dto.status);
    match dto.status {
        DAT_DTO_ERR_FLUSHED => {
            debug!(
                target: "dat::dto", ia, ep = %Hex(ep), connection, operation, cookie, status,
                "flushed"
            )
        }
        _ => {
            warn!(
                target: "dat::dto", ia, ep = %Hex(ep), connection, operation, cookie, status,
                "failed"
            )
        }
    }
}

/// A handle, formatted in hexadecimal as programs print it.
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
        Settings::from_variables(found)
    }

    fn parsed_targets(given: &[(&str, &str)]) -> Vec<String> {
        let settings = settings(given).expect("they are right").expect("something is asked for");
        let mut parsed_targets: Vec<_> =
            settings.targets.iter().map(|(target, level)| format!("{target}={level}")).collect();
        parsed_targets.sort();
        parsed_targets
    }

    #[test]
    fn nothing_is_logged_by_default() {
        for given in
            [&[][..], &[("OPENDAT_LOG", "")], &[("DAPL_DBG_TYPE", "0")], &[("DAPL_DBG_DEST", "1")]]
        {
            assert!(settings(given).expect("they are right").is_none(), "{given:?}");
        }
    }

    #[test]
    fn bits_of_ofed_stand_for_targets() {
        assert_eq!(parsed_targets(&[("DAPL_DBG_TYPE", "0x3")]), ["dat=warn"]);
        assert_eq!(
            parsed_targets(&[("DAPL_DBG_TYPE", "0x8109")]),
            ["dat::api=trace", "dat::cm=trace", "dat=warn"]
        );
        // Bits without a counterpart have no effect.
        assert!(parsed_targets(&[("DAPL_DBG_TYPE", "0x4000")]).is_empty());
    }

    #[test]
    fn opendat_log_takes_precedence() {
        let given = [("OPENDAT_LOG", "dat::ep=debug,warn"), ("DAPL_DBG_TYPE", "all")];
        let settings = settings(&given).expect("they are right").expect("it is asked for");
        assert!(settings.targets.would_enable("dat::ep", &tracing::Level::DEBUG));
        assert!(!settings.targets.would_enable("dat::cm", &tracing::Level::INFO));
        assert!(settings.targets.would_enable("dat::cm", &tracing::Level::WARN));
    }

    #[test]
    fn mistakes_are_named() {
        let why = |given| settings(given).expect_err("it is wrong");
        assert_eq!(
            why(&[("DAPL_DBG_TYPE", "all")]),
            "DAPL_DBG_TYPE=all: not a number, which is decimal, or hexadecimal after 0x"
        );
        assert!(why(&[("OPENDAT_LOG", "dat::ep=loud")]).starts_with("OPENDAT_LOG=dat::ep=loud: "));
        assert_eq!(
            why(&[("OPENDAT_LOG", "degub")]),
            "OPENDAT_LOG=degub: degub is neither a level nor a target; \
             for example debug, or json,dat::cm=debug,dat::ep=trace"
        );
        assert!(why(&[("OPENDAT_LOG", "xml,debug")]).contains("xml is neither a level nor"));
    }

    #[test]
    fn json_is_a_word_of_opendat_log() {
        for (text, json, targets) in [
            ("debug", false, "debug"),
            ("json", true, DEFAULT_LEVEL),
            ("json,dat::cm=trace", true, "dat::cm=trace"),
            (" warn, json ", true, "warn"),
        ] {
            let settings = settings(&[("OPENDAT_LOG", text), ("DAPL_DBG_TYPE", "0x1")]);
            let settings = settings.expect(text).expect(text);
            let targets: Targets = targets.parse().expect("targets");
            assert_eq!((settings.json, settings.targets), (json, targets), "{text}");
        }
    }

    #[test]
    fn destinations_are_those_of_ofed() {
        let to = |dest| settings(&[("OPENDAT_LOG", "info"), ("DAPL_DBG_DEST", dest)]);
        let to = |dest| to(dest).expect("it is right").expect("something is asked for").destination;
        assert_eq!(
            [to("0"), to("1"), to("2")],
            [Destination::Stderr, Destination::Stdout, Destination::Syslog]
        );
    }
}
