use std::collections::HashSet;

use super::attributes::STRUCTURES;
use super::exceptions::{ROOM, STRICT};
use super::explain::{Located, located};
use super::sentences::PAGES;
use super::states::STATES;
use super::subjects::SUBJECTS;
use super::values::VALUES;
use super::{Point, patterns};
use crate::case::{Case, Run, matches_pattern};
use crate::cases::all;

/// Checks that each name and pattern in a list of cases matches a case.
#[track_caller]
fn assert_there_are(cases: &[Case], function: &str, list: &str) {
    for pattern in patterns(function, list) {
        let there = cases.iter().any(|case| matches_pattern(&pattern, &case.id));
        assert!(there, "{function}: there is no case {pattern}");
    }
}

#[test]
fn every_point_has_a_case_or_says_why_not() {
    let cases = all();
    for Located { function, point, .. } in located() {
        let Point { place, about, cases: list, untested } = point;
        assert!(!about.is_empty(), "{function}, {place}");
        assert!(!list.is_empty() || !untested.is_empty(), "{function}, {place}: {about}");
        assert_there_are(&cases, function, list);
    }
    let others = STATES.len() + SUBJECTS.len();
    assert!(others > 80, "there are only {others} states and subjects");
}

#[test]
fn every_case_of_the_five_pages_is_about_a_sentence() {
    assert_eq!(PAGES.len(), 5);
    for case in all() {
        let page = PAGES.iter().find(|(function, _)| *function == case.function());
        let Some((function, sentences)) = page else { continue };
        let named = sentences
            .iter()
            .flat_map(|sentence| patterns(function, sentence.cases))
            .any(|pattern| matches_pattern(&pattern, &case.id));
        let is_state = matches!(case.run, Run::Numbered(..));
        assert!(named || is_state, "no sentence names {}", case.id);
    }
}

#[test]
fn every_function_has_its_return_values() {
    let cases = all();
    for value in VALUES {
        let (function, status) = (value.function, value.status);
        assert!(function.starts_with("dat_") && status.starts_with("DAT_"), "{value:?}");
        assert_ne!(value.cases.is_empty(), value.unprovoked.is_empty(), "{value:?}");
        assert_there_are(&cases, function, value.cases);
        assert_there_are(&cases, function, value.in_completion);
        let same = VALUES.iter().filter(|of| (of.function, of.status) == (function, status));
        assert_eq!(same.count(), 1, "{function}, {status}");
    }
    // The IB extension of OFED has no manual page, so the table has no row for it.
    let described = |case: &&Case| case.is_in_1_2() && case.function() != "dat_extension_op";
    let functions: HashSet<_> =
        cases.iter().filter(described).map(|case| case.function()).collect();
    for function in functions {
        let has_row = VALUES.iter().any(|value| value.function == function);
        assert!(has_row, "there is no return value of {function}");
    }
}

#[test]
fn every_case_is_in_a_table() {
    let attributes: HashSet<_> = STRUCTURES.iter().map(|(structure, ..)| *structure).collect();
    let points = located().filter(|located| !attributes.contains(located.of));
    let mut named: Vec<String> = points
        .flat_map(|located| patterns(located.function, located.point.cases).collect::<Vec<_>>())
        .collect();
    named.extend(VALUES.iter().flat_map(|value| patterns(value.function, value.cases)));
    named.extend(VALUES.iter().flat_map(|value| patterns(value.function, value.in_completion)));
    let is_there = |case: &Case| {
        matches!(case.run, Run::Numbered(..))
            || named.iter().any(|pattern| matches_pattern(pattern, &case.id))
    };
    let missing: Vec<_> =
        all().into_iter().filter(|case| !is_there(case)).map(|case| case.id).collect();
    assert!(missing.is_empty(), "in no table: {missing:?}");
}

/// Returns two values for each source file of cases: the source text of each case with the name of
/// the case, and the source text after the table of cases.
fn sources() -> Vec<(Vec<(String, String)>, String)> {
    let files =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/cases")).expect("the sources");
    let paths = files.map(|file| file.expect("a file").path());
    let is_table = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.ends_with(".rs") && name != "tests.rs"
    };
    let parsed = paths.filter(is_table).map(|path| {
        let text = std::fs::read_to_string(path).expect("a source");
        let (table, helpers) = text.split_once("\n];\n").unwrap_or((&text, ""));
        let rows = table.split("\n    must(").flat_map(|part| part.split("\n    should(")).skip(1);
        let named =
            rows.filter_map(|row| Some((row.split('"').nth(1)?.to_owned(), row.to_owned())));
        (named.collect(), helpers.to_owned())
    });
    parsed.collect()
}

/// Returns whether a piece of source code depends on the adapter's attribute `strict`.
fn looks_at_strict(source: &str) -> bool {
    ["relaxed(", "is_strict(", "strict_attribute(", "unreadable("]
        .iter()
        .any(|call| source.contains(call))
}

#[test]
fn every_case_that_looks_at_strict_is_listed() {
    let mut listed: Vec<String> =
        STRICT.iter().flat_map(|entry| patterns("", entry.cases)).collect();
    let mut found = Vec::new();
    for (rows, helpers) in sources() {
        let looking: Vec<_> = helpers
            .split("\nfn ")
            .skip(1)
            .filter(|helper| looks_at_strict(helper))
            .filter_map(|helper| helper.split_once('(').map(|(name, _)| format!("{name}(")))
            .collect();
        let looks = |row: &str| {
            looks_at_strict(row) || looking.iter().any(|name| row.contains(name.as_str()))
        };
        found.extend(rows.into_iter().filter(|(_, row)| looks(row)).map(|(id, _)| id));
    }
    listed.sort_unstable();
    found.sort_unstable();
    assert_eq!(listed, found, "exceptions.rs must list the cases that depend on strict");
}

#[test]
fn room_is_about_cases() {
    let cases = all();
    for entry in ROOM {
        assert!(!entry.cases.is_empty());
        assert_there_are(&cases, "", entry.cases);
    }
}

/// Returns the names of a structure's members, as dat-sys declares them.
fn members(source: &'static str, structure: &str) -> Vec<&'static str> {
    let (_, body) = source.split_once(&format!("pub struct {structure} {{")).expect(structure);
    let (body, _) = body.split_once('}').expect("the end of a structure");
    let members = body.lines().filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(':'));
    members.map(|(name, _)| name).collect()
}

#[test]
fn every_attribute_is_decided() {
    let (ep, evd, ia) = (
        include_str!("../../../dat-sys/src/ep.rs"),
        include_str!("../../../dat-sys/src/evd.rs"),
        include_str!("../../../dat-sys/src/ia.rs"),
    );
    let sources = [
        ("DAT_EP_ATTR", ep),
        ("DAT_SRQ_ATTR", ep),
        ("DAT_EVD_PARAM", evd),
        ("DAT_IA_ATTR", ia),
        ("DAT_PROVIDER_ATTR", ia),
    ];
    assert_eq!(sources.len(), STRUCTURES.len());
    for (structure, source) in sources {
        let (_, _, points) =
            STRUCTURES.iter().find(|(name, ..)| *name == structure).expect(structure);
        let mut listed: Vec<_> = points.iter().flat_map(|point| point.place.split(", ")).collect();
        let mut declared = members(source, structure);
        listed.sort_unstable();
        declared.sort_unstable();
        assert_eq!(listed, declared, "{structure}");
    }
}
