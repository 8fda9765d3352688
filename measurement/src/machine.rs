//! Describes a measurement for later readers: the time, the version, the command line and the
//! machine.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cpu;
use serde::Serialize;

/// The circumstances of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct MeasurementInfo {
    /// The start time in UTC, such as `2026-11-25T07:03:04Z`.
    pub date: String,
    /// The version of this program. Every JSON document has it already.
    #[serde(skip)]
    pub version: &'static str,
    /// The command line.
    pub command: String,
    /// The model of the processors.
    pub cpu: String,
    /// The number of processors that this process may use.
    pub processors: usize,
    /// The release of the kernel.
    pub kernel: String,
}

impl MeasurementInfo {
    /// Describes a measurement that this process, a run of `program`, begins now.
    pub fn now(program: &str) -> MeasurementInfo {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let arguments = std::env::args_os().skip(1);
        let arguments = arguments.map(|argument| quoted(&argument.to_string_lossy()));
        MeasurementInfo {
            date: date(since.as_secs()),
            version: env!("CARGO_PKG_VERSION"),
            command: std::iter::once(program.to_owned())
                .chain(arguments)
                .collect::<Vec<_>>()
                .join(" "),
            cpu: model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            processors: cpu::allowed().len(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
        }
    }
}

/// Quotes an argument for a shell.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_=,./:+@%".contains(c);
    match !argument.is_empty() && argument.chars().all(is_plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', "'\\''")),
    }
}

/// Returns the processor's model name from /proc/cpuinfo, or the architecture if the file contains
/// no name.
fn model(cpuinfo: &str) -> String {
    let named = cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    named.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Formats seconds since 1970 as a date and time in UTC.
fn date(seconds: u64) -> String {
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{:02}Z", days + 1, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command `date --utc --date=@SECONDS` prints the expected values.
    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(date(1_764_054_185), "2025-11-25T07:03:05Z");
        assert_eq!(date(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn a_command_line_can_be_typed_again() {
        assert_eq!(quoted("--sizes=64,4K"), "--sizes=64,4K");
        assert_eq!([quoted(""), quoted("a b"), quoted("it's")], ["''", "'a b'", "'it'\\''s'"]);
    }

    #[test]
    fn the_model_is_the_first_that_is_named() {
        let cpuinfo =
            "processor\t: 0\nmodel\t\t: 85\nmodel name\t: A CPU @ 2 GHz\nmodel name\t: B\n";
        assert_eq!(model(cpuinfo), "A CPU @ 2 GHz");
        assert_eq!(model("processor: 0\n"), std::env::consts::ARCH);
    }
}
