use std::collections::HashSet;
use std::path::Path;

use super::all;
use crate::case::Run;

#[test]
fn a_name_is_a_function_and_words() {
    let mut seen = HashSet::new();
    for case in all() {
        let (function, about) = case.id.split_once('/').expect(&case.id);
        assert!(function == "rust" || function.starts_with("dat_"), "{}", case.id);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(!about.is_empty() && about.chars().all(plain), "{}", case.id);
        assert!(case.requirement.ends_with('.') && !case.clause.is_empty(), "{}", case.id);
        assert!(seen.insert(case.id.clone()), "the name {} occurs twice", case.id);
    }
}

#[test]
fn stars_stand_for_any_text() {
    let all = all();
    let meant = |pattern: &str| all.iter().filter(|case| case.is_selected_by(pattern)).count();
    assert_eq!(meant(""), all.len());
    assert_eq!(meant("*"), all.len());
    assert_eq!(
        meant("dat_ep_reset/in-connected"),
        3,
        "a path must select the cases that begin with it"
    );
    assert_eq!(
        meant("dat_ep_reset*/in-connected"),
        1,
        "a pattern with a star must match the whole name"
    );
    assert_eq!(meant("*_reset*in-*connected"), 4, "{:?}", all.len());
    assert_eq!(
        meant("dat_ep_reset/*reset*"),
        0,
        "two patterns must not match the same part of a name"
    );
    assert_eq!(meant("no-such*"), 0);
}

/// The place of a case in the source is its row, a macro that makes its row, or the table of
/// endpoint states.
#[test]
fn the_source_of_a_case_is_its_row() {
    for case in all() {
        let source = case.source();
        let (file, line) = source.split_once(':').expect(&source);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        let text = std::fs::read_to_string(&path).expect(&source);
        let line: usize = line.parse().expect(&source);
        let row: Vec<&str> = text.lines().skip(line - 1).take(2).collect();
        let has = |name: &str| row.iter().any(|line| line.contains(&format!("\"{name}\"")));
        let is_row = has(&case.id) || (row[0].contains("!(") && has(case.function()));
        let is_numbered = matches!(case.run, Run::Numbered(..)) && file.ends_with("/ep_states.rs");
        assert!(is_row || is_numbered, "{}: {source}: {row:?}", case.id);
    }
}
