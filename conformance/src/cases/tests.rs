use std::collections::HashSet;

use super::all;
use crate::case::{Case, Run, fits};

#[test]
fn a_name_is_a_function_and_words() {
    let mut seen = HashSet::new();
    for case in all() {
        let (function, about) = case.id.split_once('/').expect(&case.id);
        assert!(function == "rust" || function.starts_with("dat_"), "{}", case.id);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(!about.is_empty() && about.chars().all(plain), "{}", case.id);
        assert!(case.requirement.ends_with('.') && !case.clause.is_empty(), "{}", case.id);
        assert!(seen.insert(case.id.clone()), "{} is there twice", case.id);
    }
}

#[test]
fn stars_stand_for_any_text() {
    let all = all();
    let meant = |pattern: &str| all.iter().filter(|case| case.is_meant_by(pattern)).count();
    assert_eq!(meant(""), all.len());
    assert_eq!(meant("*"), all.len());
    assert_eq!(meant("dat_ep_reset/in-connected"), 3, "the paths too: a beginning");
    assert_eq!(meant("dat_ep_reset*/in-connected"), 1, "a star asks for all of the name");
    assert_eq!(meant("*_reset*in-*connected"), 4, "{:?}", all.len());
    assert_eq!(meant("dat_ep_reset/*reset*"), 0, "no part of a name fits twice");
    assert_eq!(meant("no-such*"), 0);
}

/// docs/conformance.md: of each of the five pages, the names that its table mentions, without the function.
fn documented() -> Vec<(&'static str, HashSet<&'static str>)> {
    let pages = include_str!("../../../docs/conformance.md").split("\n### ").skip(1);
    let table = |page: &'static str| {
        let (function, rows) = page.split_once('\n').expect("a table below the heading");
        let cells = rows.lines().filter_map(|row| row.trim_end_matches(['|', ' ']).rsplit('|').next());
        let words = cells.flat_map(str::split_whitespace).map(|word| word.trim_matches([',', ';', ':']));
        (function, words.collect())
    };
    pages.map(table).collect()
}

#[test]
fn every_case_of_the_five_pages_is_in_the_document() {
    let pages = documented();
    assert_eq!(pages.len(), 5);
    for case in all() {
        let (function, about) = case.id.split_once('/').expect(&case.id);
        // The matrix is one entry.
        let Some((_, words)) = pages.iter().find(|(page, _)| *page == function) else { continue };
        let family = |word: &&str| word.strip_suffix('*').is_some_and(|start| about.starts_with(start));
        let named = words.contains(about) || words.contains(&*case.id) || words.iter().any(family);
        assert!(named || about.starts_with("in-"), "{} is not in docs/conformance.md", case.id);
    }
}

#[test]
fn the_document_names_cases_that_there_are() {
    let cases = all();
    for (function, words) in documented() {
        let is_name = |word: &&&str| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/*".contains(c);
            word.contains('-') && word.chars().all(plain) && !word.starts_with('-')
        };
        for word in words.iter().filter(is_name) {
            let id = if word.contains('/') { (*word).to_owned() } else { format!("{function}/{word}") };
            let there = match id.strip_suffix('*') {
                Some(start) => cases.iter().any(|case| case.id.starts_with(start)),
                None => cases.iter().any(|case| case.id == id),
            };
            assert!(there, "docs/conformance.md, {function}: there is no case {id}");
        }
    }
}

#[test]
fn every_sentence_of_the_five_pages_has_a_case_or_says_why_not() {
    let cases = all();
    for page in include_str!("../../../docs/conformance.md").split("\n### ").skip(1) {
        let (function, table) = page.split_once('\n').expect("a table below the heading");
        for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
            let cell = row.trim_end_matches(['|', ' ']).rsplit('|').next().expect("a cell");
            let mut words = cell.split_whitespace().map(|word| word.trim_matches([',', ';', ':']));
            let is_case = |word: &str| {
                let id = if word.contains('/') { word.to_owned() } else { format!("{function}/{word}") };
                cases.iter().any(|case| fits(&id, &case.id))
            };
            let answered = cell.contains("n/t") || cell.trim() == "all others" || words.any(is_case);
            assert!(answered, "docs/conformance.md, {function}: {row}");
        }
    }
}

/// docs/conformance.md: the rows of the tables below these headings, cell by cell, without the header.
fn mapped() -> Vec<Vec<&'static str>> {
    let sections = include_str!("../../../docs/conformance.md").split("\n## ");
    let maps = sections.filter(|section| {
        section.starts_with("The endpoint states\n") || section.starts_with("Corner points\n")
    });
    let rows = maps.flat_map(|map| map.lines().filter(|line| line.starts_with("| ")).skip(1));
    rows.map(|row| row.trim_matches(['|', ' ']).split('|').map(str::trim).collect()).collect()
}

#[test]
fn every_state_and_corner_point_has_a_case() {
    let (cases, rows) = (all(), mapped());
    assert!(rows.len() > 80, "{} rows", rows.len());
    for row in rows {
        let named = row.last().expect("a cell");
        if named.starts_with("n/t ") {
            continue;
        }
        for pattern in named.split(", ") {
            let there = cases.iter().any(|case| fits(pattern, &case.id));
            assert!(there, "docs/conformance.md, {:?}: there is no case {pattern}", row[0]);
        }
    }
}

#[test]
fn every_case_is_in_the_document() {
    let (pages, rows) = (documented(), mapped());
    let patterns: Vec<_> =
        rows.iter().filter_map(|row| row.last()).flat_map(|cell| cell.split(", ")).collect();
    let is_there = |case: &Case| {
        matches!(case.run, Run::Cell(_))
            || pages.iter().any(|(page, _)| *page == case.function())
            || patterns.iter().any(|pattern| fits(pattern, &case.id))
    };
    let missing: Vec<_> = all().into_iter().filter(|case| !is_there(case)).map(|case| case.id).collect();
    assert!(missing.is_empty(), "not in docs/conformance.md: {missing:?}");
}
