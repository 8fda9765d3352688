//! Checks the promise of docs/unsafe.md: only the files that the document lists have unsafe code,
//! besides tests, benchmarks and examples.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::cargo::workspace;

const LIST: &str = "docs/unsafe.md";

#[test]
fn unsafe_code_is_only_in_the_files_that_are_listed() {
    let found = files_with_unsafe();
    let listed = listed();
    // An entry that ends with a slash is a directory.
    let covers = |entry: &str, file: &str| {
        if entry.ends_with('/') { file.starts_with(entry) } else { file == entry }
    };
    let missing: Vec<_> =
        found.iter().filter(|file| !listed.iter().any(|entry| covers(entry, file))).collect();
    let stale: Vec<_> =
        listed.iter().filter(|entry| !found.iter().any(|file| covers(entry, file))).collect();
    assert!(missing.is_empty(), "unsafe code in files that {LIST} does not list: {missing:#?}");
    assert!(stale.is_empty(), "{LIST} lists files without unsafe code: {stale:#?}");
}

/// Returns the files and directories that docs/unsafe.md lists.
fn listed() -> BTreeSet<String> {
    let text = fs::read_to_string(workspace().join(LIST)).expect("the list is there");
    let (_, list) = text.split_once("\n## The files\n").expect("the page has the section");
    list.split("\n- ").skip(1).flat_map(files_of).collect()
}

/// Returns the files of an item of the list: a directory in backticks, the reason, a colon, and the
/// names of the files in the directory. Without a colon, the item stands for the whole directory.
fn files_of(item: &str) -> Vec<String> {
    let names = |text: &str| -> Vec<String> {
        text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let (before, after) = item.split_once(':').unwrap_or((item, ""));
    let directory = names(before).into_iter().next().expect("an item names a directory");
    match names(after) {
        files if files.is_empty() => vec![directory],
        files => files.iter().map(|file| format!("{directory}{file}")).collect(),
    }
}

/// Returns whether docs/unsafe.md must list the file if the file has unsafe code.
fn is_listed_kind(file: &str) -> bool {
    let is_for_tests = |part: &str| matches!(part, "tests" | "benches" | "examples" | "fuzz");
    !file.split('/').any(is_for_tests)
        && !file.ends_with("/tests.rs")
        && !file.ends_with("_tests.rs")
}

fn files_with_unsafe() -> BTreeSet<String> {
    files()
        .into_iter()
        .filter(|file| file.ends_with(".rs") && is_listed_kind(file))
        .filter(|file| {
            let text = fs::read_to_string(workspace().join(file)).expect("a source file");
            text.lines().any(has_unsafe)
        })
        .collect()
}

/// Returns the files of the workspace, without build results and hidden files.
pub(crate) fn files() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    visit(workspace(), &mut found);
    found
}

fn visit(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).expect("a directory of the workspace").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if name == "target" || name.to_string_lossy().starts_with('.') {
            continue;
        }
        if path.is_dir() {
            visit(&path, found);
        } else {
            let relative = path.strip_prefix(workspace()).expect("the file is below the workspace");
            found.insert(relative.to_string_lossy().into_owned());
        }
    }
}

/// Returns whether a line of code contains the keyword `unsafe`: a block, a function, an
/// implementation, a trait, a foreign type, an attribute.
fn has_unsafe(line: &str) -> bool {
    let outside_of_strings: String = line.split('"').step_by(2).collect();
    let code = outside_of_strings.split("//").next().unwrap_or_default();
    code.match_indices("unsafe").any(|(at, word)| {
        let after = &code[at + word.len()..];
        let starts = |words: &[&str]| words.iter().any(|word| after.trim_start().starts_with(word));
        let alone = code[..at]
            .chars()
            .next_back()
            .is_none_or(|before| !before.is_alphanumeric() && before != '_');
        alone
            && (after.starts_with('(')
                || starts(&["{", "fn ", "fn(", "impl ", "impl<", "trait ", "extern "]))
    })
}

#[test]
fn unsafe_is_found_as_a_keyword_only() {
    assert!(has_unsafe("    unsafe { *p }"));
    assert!(has_unsafe("pub unsafe fn f() {}"));
    assert!(has_unsafe("unsafe impl<T> Send for X<T> {}"));
    assert!(has_unsafe("#[unsafe(no_mangle)]"));
    assert!(has_unsafe("type F = unsafe extern fn();"));
    assert!(!has_unsafe("#![forbid(unsafe_code)]"));
    assert!(!has_unsafe("// unsafe { }"));
}

#[test]
fn items_of_the_list_are_read() {
    assert_eq!(
        files_of("`a/src/` has rings: `b.rs`,\n  `c/d.rs`."),
        ["a/src/b.rs", "a/src/c/d.rs"]
    );
    assert_eq!(files_of("`a/src/` declares types. All files count."), ["a/src/"]);
}
