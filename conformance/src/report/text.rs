//! The report as text.

use std::fmt::Write;

use super::record::{Count, Record, Report, Verdict};
use crate::case::Level;

/// Returns one line for each function. If `by_clause` is true, also returns one line for each
/// clause of the function's page.
pub(super) fn write(report: &Report, by_clause: bool) -> String {
    let mut out = String::new();
    let mut rows = Vec::new();
    for function in report.functions() {
        rows.push((function.to_owned(), report.count(|record| record.case.function() == function)));
        for clause in report.clauses(function).into_iter().filter(|_| by_clause) {
            let is_of = |record: &Record| {
                record.case.function() == function && record.case.clause == clause
            };
            rows.push((format!("  {clause}"), report.count(is_of)));
        }
    }
    let width =
        rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max("function".len());
    let _ = writeln!(out, "{}\n", report.target);
    let _ = writeln!(
        out,
        "{:width$} {:>6} {:>7} {:>7} {:>12}",
        "function", "cases", "passed", "failed", "unsupported"
    );
    for (name, row) in rows {
        let _ = writeln!(out, "{name:width$} {}", columns(row));
    }
    let _ = writeln!(out);
    for record in &report.records {
        let (what, reason) = match &record.verdict {
            Verdict::Passed => continue,
            Verdict::Failed { reason } => ("failed", reason),
            Verdict::Unsupported { reason } => ("unsupported", reason),
        };
        let (id, level, clause) = (&record.case.id, record.case.level, record.case.clause);
        let _ = writeln!(out, "{what}: {id} ({level}; {clause}): {reason}");
    }
    for (name, level) in [("MUST", Level::Must), ("SHOULD", Level::Should)] {
        let row = report.count(|record| record.case.level == level);
        let _ = writeln!(out, "{name:width$} {}", columns(row));
    }
    let _ = writeln!(out, "{:width$} {}", "all", columns(report.count(|_| true)));
    out
}

fn columns(count: Count) -> String {
    let Count { cases, passed, failed, unsupported } = count;
    format!("{cases:>6} {passed:>7} {failed:>7} {unsupported:>12}")
}
