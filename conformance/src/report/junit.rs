//! The report as JUnit XML, with one test suite for each function. An unsupported case becomes
//! `skipped`, because CI servers know no state that is closer.

use std::fmt::Write;

use super::record::{Count, Record, Report, Verdict};

pub(super) fn write(report: &Report) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let all = report.count(|_| true);
    let _ = writeln!(out, "<testsuites name=\"{}\"{}>", escaped(&report.target), counts(all));
    for function in report.functions() {
        let of_function = |record: &Record| record.case.function() == function;
        let _ = writeln!(
            out,
            "  <testsuite name=\"{}\"{}>",
            escaped(function),
            counts(report.count(of_function))
        );
        for record in report.records.iter().filter(|record| of_function(record)) {
            case(&mut out, record);
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

fn case(out: &mut String, record: &Record) {
    let Record { case, verdict, took, .. } = record;
    let (name, class) = (escaped(&case.id), escaped(case.function()));
    let _ = write!(
        out,
        "    <testcase classname=\"{class}\" name=\"{name}\" time=\"{:.3}\"",
        took.as_secs_f64()
    );
    let (element, reason) = match verdict {
        Verdict::Passed => return out.push_str("/>\n"),
        Verdict::Failed { reason } => ("failure", reason),
        Verdict::Unsupported { reason } => ("skipped", reason),
    };
    let requirement = format!("{} {}: {}", case.level, case.clause, case.requirement);
    let (reason, requirement) = (escaped(reason), escaped(&requirement));
    let _ = writeln!(
        out,
        ">\n      <{element} message=\"{reason}\">{requirement}</{element}>\n    </testcase>"
    );
}

fn counts(count: Count) -> String {
    let Count { cases, failed, unsupported, .. } = count;
    format!(" tests=\"{cases}\" failures=\"{failed}\" errors=\"0\" skipped=\"{unsupported}\"")
}

/// Escapes text for XML. Characters that XML 1.0 does not allow become U+FFFD.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' | '\r' | '\t' => {
                let _ = write!(out, "&#{};", c as u32);
            }
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
