//! The log of a program that has no subscriber of the crate `tracing`. [`start`] installs a
//! subscriber if the environment asks for it. dat-core's module `log` lists the events.

use std::fmt;
use std::sync::Once;

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::subscriber::set_global_default;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{self as show, FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::{LookupSpan, Registry};

use crate::clocks::Clocks;
use crate::complain;
use crate::line::{json_line, process_and_seconds};
use crate::settings::{Settings, parse, settings};

pub use crate::settings::DEFAULT_LEVEL;

/// Installs a subscriber, on the first call, if `OPENDAT_LOG` or `DAPL_DBG_TYPE` asks for a log and
/// the program has no subscriber.
pub fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| match &settings().targets {
        Ok(None) => {}
        Ok(Some(targets)) => install(targets.clone()),
        Err(why) => complain(format_args!("{why}; logging is off")),
    });
}

fn install(targets: Targets) {
    let settings = settings();
    // A line that cannot be written is lost. The crate `tracing_subscriber` would report the loss
    // on standard error, but this report could panic inside of a function that C code has called.
    let lines = show::layer()
        .with_writer(settings.log_destination)
        .event_format(LineFormat { json: settings.json })
        .log_internal_errors(false);
    // The call fails if the program has installed its own subscriber, which then stays.
    if set_global_default(Registry::default().with(lines.with_filter(targets))).is_ok() {
        // Like the subscriber's lines, this line is lost if it cannot be written.
        settings.log_destination.write_line(first_line(settings).as_bytes()).ok();
    }
}

/// The first line of the log, which is there whatever is logged. It says what the clocks showed at
/// the moment from which the seconds in the lines count.
fn first_line(settings: &Settings) -> String {
    const TARGET: &str = "dat";
    const MESSAGE: &str = "the log begins";
    let Clocks { monotonic_ns, realtime_ns } = settings.start;
    if settings.json {
        let mut line = json_line("info", TARGET, MESSAGE);
        line["monotonic_ns"] = monotonic_ns.into();
        line["realtime_ns"] = realtime_ns.into();
        return format!("{line}\n");
    }
    let (process, seconds) = process_and_seconds();
    format!(
        "dat[{process}] {seconds:.6} INFO  {TARGET}: {MESSAGE} monotonic_ns={monotonic_ns} \
         realtime_ns={realtime_ns}\n"
    )
}

/// Checks that the variables that [`start`] reads are valid.
///
/// # Errors
///
/// The error says what is wrong with the first invalid variable.
pub fn check_environment(variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    Settings::from_variables(variable).targets.map(drop)
}

/// Checks a value of `OPENDAT_LOG`. Returns the same text.
///
/// # Errors
///
/// The error says what is wrong with the value.
pub fn check(text: &str) -> Result<String, String> {
    parse(text).map(|_| text.to_owned())
}

/// Formats each event as one line, with the process id and the seconds since the start.
struct LineFormat {
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
        let (level, target) = (event.metadata().level(), event.metadata().target());
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { message, others } = fields;
        if self.json {
            let level = level.as_str().to_ascii_lowercase();
            let mut line = json_line(&level, target, &message);
            for (name, value) in others {
                line[name] = value;
            }
            return writeln!(out, "{line}");
        }
        let (process, seconds) = process_and_seconds();
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

/// The fields of an event. `others` has the order in which the event lists them.
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
