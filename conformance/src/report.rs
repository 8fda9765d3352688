//! The result of a run, as text, JSON and JUnit XML.

mod json;
mod junit;
mod record;
mod text;

pub use self::record::{Record, Report, Verdict};

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text, with a line for each function, then the failures and the totals.
    Text,
    /// Text, with a line for each function and a line for each of its clauses, then the failures
    /// and the totals.
    Clauses,
    /// One JSON document.
    Json,
    /// JUnit XML for CI servers.
    Junit,
}

impl Report {
    /// Returns the report in this format.
    pub fn write(&self, format: Format) -> String {
        match format {
            Format::Text => text::write(self, false),
            Format::Clauses => text::write(self, true),
            Format::Json => json::write(self),
            Format::Junit => junit::write(self),
        }
    }
}

#[cfg(test)]
mod tests;
