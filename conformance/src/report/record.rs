//! The verdicts on cases, and the result of a run.

use std::time::Duration;

use crate::calls::Calls;
use crate::case::{Case, Level};
use crate::check::NotPassed;

/// The verdict on a case.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Verdict {
    /// The provider meets the requirement.
    Passed,
    /// The provider violates the requirement.
    Failed {
        /// What the provider did instead of meeting the requirement.
        reason: String,
    },
    /// The provider lacks an optional feature. Such a case does not count as passed.
    Unsupported {
        /// How the provider reports that it lacks the feature.
        reason: String,
    },
}

impl From<Result<(), NotPassed>> for Verdict {
    fn from(outcome: Result<(), NotPassed>) -> Verdict {
        match outcome {
            Ok(()) => Verdict::Passed,
            Err(NotPassed::Failed(reason)) => Verdict::Failed { reason },
            Err(NotPassed::Unsupported(reason)) => Verdict::Unsupported { reason },
        }
    }
}

/// The result of a case.
#[derive(Clone, Debug)]
pub struct Record {
    /// The case.
    pub case: Case,
    /// The verdict on the case.
    pub verdict: Verdict,
    /// What the calls of the case have returned. It is empty if the worker process has died.
    pub calls: Calls,
    /// The duration of the case.
    pub took: Duration,
}

/// The results of a run against one target.
#[derive(Clone, Debug)]
pub struct Report {
    /// The target.
    pub target: String,
    /// The cases, in the order in which they ran.
    pub records: Vec<Record>,
}

/// The number of cases with each kind of verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Count {
    /// The number of all cases.
    pub cases: usize,
    /// The number of cases that have passed.
    pub passed: usize,
    /// The number of cases that have failed.
    pub failed: usize,
    /// The number of cases that are unsupported.
    pub unsupported: usize,
}

impl Report {
    /// Returns whether no case has failed. If `strict` is true, also requires that no case of a
    /// binding requirement is unsupported.
    pub fn is_good(&self, strict: bool) -> bool {
        let must = self.count(|record| record.case.level == Level::Must);
        self.count(|_| true).failed == 0 && (!strict || must.unsupported == 0)
    }

    /// Counts the records that `meant` selects, by their verdicts.
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

    /// Returns the functions that the cases are about, each once, in the order of the cases.
    pub(super) fn functions(&self) -> Vec<&str> {
        let mut functions = Vec::new();
        for record in &self.records {
            if !functions.contains(&record.case.function()) {
                functions.push(record.case.function());
            }
        }
        functions
    }

    /// Returns the clauses that a function's cases are about, each once, in the order of the cases.
    pub(super) fn clauses(&self, function: &str) -> Vec<&'static str> {
        let mut clauses = Vec::new();
        for record in self.records.iter().filter(|record| record.case.function() == function) {
            if !clauses.contains(&record.case.clause) {
                clauses.push(record.case.clause);
            }
        }
        clauses
    }
}
