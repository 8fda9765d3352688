use std::time::Duration;

use super::record::Count;
use super::*;
use crate::calls::Calls;
use crate::case::Level;

fn report() -> Report {
    let verdicts = [
        Verdict::Passed,
        Verdict::Failed { reason: "a < b & \"c\"\u{1}\n".into() },
        Verdict::Unsupported { reason: "it's not there".into() },
    ];
    let cases = crate::all().into_iter().zip(verdicts);
    let took = Duration::from_millis(1500);
    let records = cases.map(|(case, verdict)| Record { case, verdict, calls: Calls::new(), took });
    Report { target: "x".into(), records: records.collect() }
}

#[test]
fn junit_is_escaped_and_counts_what_is_in_it() {
    let xml = report().write(Format::Junit);
    assert!(xml.contains("message=\"a &lt; b &amp; &quot;c&quot;\u{fffd}&#10;\""), "{xml}");
    assert!(xml.contains("<skipped message=\"it&apos;s not there\">"), "{xml}");
    assert!(
        xml.contains(
            "<testsuites name=\"x\" tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\">"
        ),
        "{xml}"
    );
    assert!(xml.contains("time=\"1.500\"/>"), "{xml}");
    assert_eq!(xml.matches("<testcase ").count(), 3);
    assert_eq!(xml.matches("<testsuite ").count(), xml.matches("</testsuite>").count());
}

#[test]
fn unsupported_is_neither_passed_nor_failed() {
    let report = report();
    assert_eq!(report.count(|_| true), Count { cases: 3, passed: 1, failed: 1, unsupported: 1 });
    let text = report.write(Format::Text);
    let totals: Vec<_> = text.lines().last().unwrap_or_default().split_whitespace().collect();
    assert_eq!(totals, ["all", "3", "1", "1", "1"]);
}

#[test]
fn only_strict_minds_what_is_unsupported() {
    let mut report = report();
    assert!(!report.is_good(false));
    report.records.retain(|record| !matches!(record.verdict, Verdict::Failed { .. }));
    report.records.iter_mut().for_each(|record| record.case.level = Level::Must);
    assert!(report.is_good(false));
    assert!(!report.is_good(true));
}

#[test]
fn json_has_the_same_cases() {
    let document: serde_json::Value =
        serde_json::from_str(&report().write(Format::Json)).expect("JSON");
    assert_eq!(document["all"]["failed"], 1);
    assert_eq!(document["cases"].as_array().map(Vec::len), Some(3));
    assert_eq!(document["cases"][2]["reason"], "it's not there");
}

#[test]
fn clauses_are_counted_one_by_one() {
    let report = report();
    let document: serde_json::Value =
        serde_json::from_str(&report.write(Format::Json)).expect("JSON");
    let clauses = document["clauses"].as_array().expect("clauses");
    let cases = clauses.iter().filter_map(|clause| clause["cases"].as_u64()).sum::<u64>();
    assert_eq!(cases, 3);
    let text = report.write(Format::Clauses);
    for record in &report.records {
        assert!(
            text.lines().any(|line| line.starts_with(&format!("  {}", record.case.clause))),
            "{text}"
        );
    }
    assert_eq!(text.lines().count(), report.write(Format::Text).lines().count() + clauses.len());
}
