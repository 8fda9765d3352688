//! What came of a run, for people and for machines.

mod json;
mod junit;
mod text;

use std::time::Duration;

use crate::case::{Case, Level, Stop};

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Verdict {
    /// The provider does what the standard says.
    Passed,
    /// It does not.
    Failed {
        /// What it does instead.
        reason: String,
    },
    /// The standard lets providers do without, and this one does: no pass.
    Unsupported {
        /// How it says so.
        reason: String,
    },
}

impl From<Result<(), Stop>> for Verdict {
    fn from(outcome: Result<(), Stop>) -> Verdict {
        match outcome {
            Ok(()) => Verdict::Passed,
            Err(Stop::Failed(reason)) => Verdict::Failed { reason },
            Err(Stop::Unsupported(reason)) => Verdict::Unsupported { reason },
        }
    }
}

/// A case that was run.
#[derive(Clone, Debug)]
pub struct Record {
    /// The case.
    pub case: Case,
    /// How it ended.
    pub verdict: Verdict,
    /// How long it took.
    pub took: Duration,
}

/// A run over one target.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was asked.
    pub target: String,
    /// The cases, in the order in which they ran.
    pub records: Vec<Record>,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A line for each function, what failed, totals.
    Text,
    /// As text, with a line for each clause of a function, too.
    Clauses,
    /// One document.
    Json,
    /// JUnit XML, as CI servers read it.
    Junit,
}

/// Verdicts counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Count {
    /// All.
    pub cases: usize,
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Unsupported.
    pub unsupported: usize,
}

impl Report {
    /// The report as text of this format.
    pub fn write(&self, format: Format) -> String {
        match format {
            Format::Text => text::write(self, false),
            Format::Clauses => text::write(self, true),
            Format::Json => json::write(self),
            Format::Junit => junit::write(self),
        }
    }

    /// Whether nothing failed, and, when strict, nothing that a provider has to have was unsupported.
    pub fn is_good(&self, strict: bool) -> bool {
        let must = self.count(|record| record.case.level == Level::Must);
        self.count(|_| true).failed == 0 && (!strict || must.unsupported == 0)
    }

    /// Counts the records that are meant.
    pub fn count(&self, meant: impl Fn(&Record) -> bool) -> Count {
        let mut count = Count::default();
        for record in self.records.iter().filter(|record| meant(record)) {
            count.cases += 1;
            match record.verdict {
                Verdict::Passed => count.passed += 1,
                Verdict::Failed { .. } => count.failed += 1,
                Verdict::Unsupported { .. } => count.unsupported += 1,
            }
        }
        count
    }

    /// The functions, each once, in the order of the cases.
    fn functions(&self) -> Vec<&str> {
        let mut functions = Vec::new();
        for record in &self.records {
            if !functions.contains(&record.case.function()) {
                functions.push(record.case.function());
            }
        }
        functions
    }

    /// The clauses that the cases of a function are of, each once, in their order.
    fn clauses(&self, function: &str) -> Vec<&'static str> {
        let mut clauses = Vec::new();
        for record in self.records.iter().filter(|record| record.case.function() == function) {
            if !clauses.contains(&record.case.clause) {
                clauses.push(record.case.clause);
            }
        }
        clauses
    }
}

#[cfg(test)]
mod tests;
