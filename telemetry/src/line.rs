//! What the lines of the log and the messages have in common.

use std::fmt;

use serde_json::{Value, json};

use crate::settings::settings;

/// The process ID, because several processes may write to one terminal, and the seconds since the
/// settings were read.
pub(crate) fn process_and_seconds() -> (u32, f64) {
    (std::process::id(), settings().start.elapsed_seconds())
}

/// Creates a line as a JSON object, with the version of this library. The caller may add fields.
pub(crate) fn json_line(level: &str, target: &str, message: &str) -> Value {
    let (process, seconds) = process_and_seconds();
    json!({
        "version": env!("CARGO_PKG_VERSION"), "process": process, "seconds": seconds,
        "level": level, "target": target, "message": message
    })
}

/// A handle or an address, formatted in hexadecimal as programs print it.
#[derive(Debug)]
pub struct Hex(pub usize);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
