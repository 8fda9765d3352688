//! The report as JSON.

use serde::Serialize;

use super::record::{Count, Record, Report, Verdict};
use crate::case::Level;

#[derive(Serialize)]
struct Document<'a> {
    /// The version of the suite, which is also that of the program `dat`.
    version: &'static str,
    target: &'a str,
    must: Count,
    should: Count,
    all: Count,
    clauses: Vec<Clause<'a>>,
    cases: Vec<Line<'a>>,
}

/// The results of all cases about one clause of a function's page.
#[derive(Serialize)]
struct Clause<'a> {
    function: &'a str,
    clause: &'a str,
    #[serde(flatten)]
    count: Count,
}

#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    function: &'a str,
    level: Level,
    clause: &'a str,
    requirement: &'a str,
    seconds: f64,
    #[serde(flatten)]
    verdict: &'a Verdict,
}

pub(super) fn write(report: &Report) -> String {
    let of = |level| report.count(|record| record.case.level == level);
    let lines = report.records.iter().map(|record| Line {
        id: &record.case.id,
        function: record.case.function(),
        level: record.case.level,
        clause: record.case.clause,
        requirement: &record.case.requirement,
        seconds: record.took.as_secs_f64(),
        verdict: &record.verdict,
    });
    let document = Document {
        version: env!("CARGO_PKG_VERSION"),
        target: &report.target,
        must: of(Level::Must),
        should: of(Level::Should),
        all: report.count(|_| true),
        clauses: report
            .functions()
            .into_iter()
            .flat_map(|function| clauses(report, function))
            .collect(),
        cases: lines.collect(),
    };
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

fn clauses<'a>(report: &'a Report, function: &'a str) -> impl Iterator<Item = Clause<'a>> {
    report.clauses(function).into_iter().map(move |clause| {
        let is_of =
            |record: &Record| record.case.function() == function && record.case.clause == clause;
        Clause { function, clause, count: report.count(is_of) }
    })
}
