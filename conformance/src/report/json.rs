//! For programs.

use serde::Serialize;

use super::{Count, Report, Verdict};
use crate::case::Level;

#[derive(Serialize)]
struct Document<'a> {
    target: &'a str,
    must: Count,
    should: Count,
    all: Count,
    cases: Vec<Line<'a>>,
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
        target: &report.target,
        must: of(Level::Must),
        should: of(Level::Should),
        all: report.count(|_| true),
        cases: lines.collect(),
    };
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}
