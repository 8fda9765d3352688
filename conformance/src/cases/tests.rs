use std::collections::HashSet;

use super::all;
use crate::case::{Case, Run, matches_pattern};

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

const DOCUMENT: &str = include_str!("../../../docs/conformance.md");

/// Returns the section of docs/conformance.md with this second-level heading.
fn section(heading: &str) -> &'static str {
    let mut sections = DOCUMENT.split("\n## ");
    let found = sections.find_map(|section| section.strip_prefix(heading)?.strip_prefix('\n'));
    found.unwrap_or_else(|| panic!("docs/conformance.md has no section {heading:?}"))
}

/// Returns the cells of all table rows in a text, without the headers.
fn rows(text: &'static str) -> Vec<Vec<&'static str>> {
    let lines: Vec<_> = text.lines().collect();
    let cells =
        |row: &&'static str| row.trim_matches(['|', ' ']).split(" | ").map(str::trim).collect();
    let is_row = |line: &str| line.starts_with("| ");
    let of_tables = lines.iter().enumerate().filter(|(at, line)| {
        let is_header = lines.get(at + 1).is_some_and(|next| next.starts_with("|--"));
        is_row(line) && !is_header
    });
    of_tables.map(|(_, line)| cells(line)).collect()
}

/// Returns the names of cases in a cell. If a part of the cell begins with "not tested", the rest
/// of the cell gives the reason why there is no case.
fn names(cell: &'static str) -> impl Iterator<Item = &'static str> {
    cell.split(", ")
        .flat_map(|part| part.split("; "))
        .map(str::trim)
        .take_while(|part| !part.starts_with("not tested"))
}

/// Returns the words in the last column of each table about one of the five pages in
/// docs/conformance.md. The words include the names of cases, without the function.
fn documented() -> Vec<(&'static str, HashSet<&'static str>)> {
    let pages = section("The five pages, sentence by sentence").split("\n### ").skip(1);
    let table = |page: &'static str| {
        let (function, rows) = page.split_once('\n').expect("a table below the heading");
        let cells =
            rows.lines().filter_map(|row| row.trim_end_matches(['|', ' ']).rsplit('|').next());
        let words =
            cells.flat_map(str::split_whitespace).map(|word| word.trim_matches([',', ';', ':']));
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
        // All cases of the table of endpoint states count as a single entry.
        let Some((_, words)) = pages.iter().find(|(page, _)| *page == function) else { continue };
        let family =
            |word: &&str| word.strip_suffix('*').is_some_and(|start| about.starts_with(start));
        let named = words.contains(about) || words.contains(&*case.id) || words.iter().any(family);
        assert!(named || about.starts_with("in-"), "{} is not in docs/conformance.md", case.id);
    }
}

#[test]
fn the_document_names_cases_that_there_are() {
    let cases = all();
    for (function, words) in documented() {
        let is_name = |word: &&&str| {
            let plain =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/*".contains(c);
            word.contains('-') && word.chars().all(plain) && !word.starts_with('-')
        };
        for word in words.iter().filter(is_name) {
            let id =
                if word.contains('/') { (*word).to_owned() } else { format!("{function}/{word}") };
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
    for page in section("The five pages, sentence by sentence").split("\n### ").skip(1) {
        let (function, table) = page.split_once('\n').expect("a table below the heading");
        for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
            let cell = row.trim_end_matches(['|', ' ']).rsplit('|').next().expect("a cell");
            let mut words = cell.split_whitespace().map(|word| word.trim_matches([',', ';', ':']));
            let is_case = |word: &str| {
                let id =
                    if word.contains('/') { word.to_owned() } else { format!("{function}/{word}") };
                cases.iter().any(|case| matches_pattern(&id, &case.id))
            };
            let answered =
                cell.contains("not tested") || cell.trim() == "all others" || words.any(is_case);
            assert!(answered, "docs/conformance.md, {function}: {row}");
        }
    }
}

/// Returns the rows of the tables about endpoint states and about corner points in
/// docs/conformance.md.
fn mapped() -> Vec<Vec<&'static str>> {
    [rows(section("The endpoint states")), rows(section("Corner points"))].concat()
}

/// Returns the names of cases in a cell of the tables of return values and attributes. In some
/// cells, words and a colon precede a name.
fn patterns(cell: &'static str) -> impl Iterator<Item = &'static str> {
    names(cell).map(|name| name.rsplit_once(": ").map_or(name, |(_, name)| name))
}

#[test]
fn every_function_has_its_return_values() {
    let (cases, table) = (all(), rows(section("Return values")));
    for row in &table {
        let [function, status, named] = row[..] else { panic!("{row:?}") };
        assert!(function.starts_with("dat_") && status.starts_with("DAT_"), "{row:?}");
        assert!(!named.is_empty(), "{row:?}");
        for pattern in patterns(named) {
            assert!(
                cases.iter().any(|case| matches_pattern(pattern, &case.id)),
                "{row:?}: there is no case {pattern}"
            );
        }
    }
    // The IB extension of OFED has no manual page, so the table has no row for it.
    let described = |case: &&Case| case.is_in_1_2() && case.function() != "dat_extension_op";
    let functions: HashSet<_> =
        cases.iter().filter(described).map(|case| case.function()).collect();
    for function in functions {
        let has_row = table.iter().any(|row| row[0] == function);
        assert!(has_row, "docs/conformance.md, Return values, has nothing about {function}");
    }
}

#[test]
fn every_state_and_corner_point_has_a_case() {
    let (cases, rows) = (all(), mapped());
    assert!(rows.len() > 80, "there are only {} rows", rows.len());
    for row in rows {
        let named = row.last().expect("a cell");
        if named.starts_with("not tested ") {
            continue;
        }
        for pattern in named.split(", ") {
            let there = cases.iter().any(|case| matches_pattern(pattern, &case.id));
            assert!(there, "docs/conformance.md, {:?}: there is no case {pattern}", row[0]);
        }
    }
}

#[test]
fn every_case_is_in_the_document() {
    let (pages, rows) = (documented(), mapped());
    let mut named: Vec<_> =
        rows.iter().filter_map(|row| row.last()).flat_map(|cell| cell.split(", ")).collect();
    let values = self::rows(section("Return values"));
    named.extend(values.iter().filter_map(|row| row.last()).flat_map(|cell| patterns(cell)));
    let is_there = |case: &Case| {
        matches!(case.run, Run::Numbered(..))
            || pages.iter().any(|(page, _)| *page == case.function())
            || named.iter().any(|pattern| matches_pattern(pattern, &case.id))
    };
    let missing: Vec<_> =
        all().into_iter().filter(|case| !is_there(case)).map(|case| case.id).collect();
    assert!(missing.is_empty(), "not in docs/conformance.md: {missing:?}");
}

/// Returns two values for each source file of cases: the source text of each case with the name of
/// the case, and the source text after the table of cases.
fn sources() -> Vec<(Vec<(String, String)>, String)> {
    let files =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/cases")).expect("the sources");
    let paths = files.map(|file| file.expect("a file").path());
    let is_table = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.ends_with(".rs") && !["tests.rs", "mod.rs"].contains(&&*name)
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
fn every_case_that_looks_at_strict_is_in_the_document() {
    let table = rows(section("What differs without strict=on"));
    let mut documented: Vec<&str> = table.iter().flat_map(|row| names(row[0])).collect();
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
    documented.sort_unstable();
    found.sort_unstable();
    assert_eq!(documented, found, "docs/conformance.md must list the cases that depend on strict");
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
    let cases = all();
    for (source, structure) in [
        (ep, "DAT_EP_ATTR"),
        (ep, "DAT_SRQ_ATTR"),
        (evd, "DAT_EVD_PARAM"),
        (ia, "DAT_IA_ATTR"),
        (ia, "DAT_PROVIDER_ATTR"),
    ] {
        let mut parts = section("The attributes").split("\n### Structure ");
        let part = parts.find_map(|part| part.strip_prefix(structure)).expect(structure);
        let table = rows(part);
        let mut returned: Vec<_> = table.iter().flat_map(|row| row[0].split(", ")).collect();
        let mut declared = members(source, structure);
        returned.sort_unstable();
        declared.sort_unstable();
        assert_eq!(returned, declared, "docs/conformance.md, {structure}");
        for row in &table {
            let [member, decision, named] = row[..] else { panic!("{structure}: {row:?}") };
            assert!(!decision.is_empty() && !named.is_empty(), "{structure}, {member}");
            for name in names(named) {
                assert!(
                    cases.iter().any(|case| matches_pattern(name, &case.id)),
                    "{structure}, {member}: no case {name}"
                );
            }
        }
    }
}
