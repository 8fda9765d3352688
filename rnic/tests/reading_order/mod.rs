//! Checks that files stand in an order in which each uses only files that are explained already.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The files or modules in the order of the table in a module's documentation.
pub(crate) fn listed(module: &str) -> Vec<&str> {
    let rows = module.lines().filter_map(|line| line.strip_prefix("//! | "));
    rows.filter_map(|row| row.split('`').nth(1)).collect()
}

/// The code of a file, without comments and unit tests.
pub(crate) fn code(source: &str) -> String {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    code.lines().filter(is_code).collect::<Vec<_>>().join("\n")
}

/// The identifier at the start of a text.
pub(crate) fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// What is wrong with the modules in `src`, which stand in `lib.rs` from top to bottom: a module
/// uses only modules below it. `src` has a file, a directory or both for each module, and no other
/// files. Files named `tests.rs` or `loom_tests.rs` are not checked.
#[allow(dead_code, reason = "each test program that includes this module uses a part of it")]
pub(crate) fn upward_uses(src: &Path) -> Vec<String> {
    let table = fs::read_to_string(src.join("lib.rs")).expect("lib.rs");
    let modules = listed(&table);
    let files = files_below(src);
    let module_of = |file: &str| identifier(file).to_owned();
    let present: BTreeSet<_> =
        files.iter().map(|(name, _)| module_of(name)).filter(|name| name != "lib").collect();
    let rows: BTreeSet<_> = modules.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(present, rows, "the modules and the table in lib.rs");
    assert_eq!(modules.len(), rows.len(), "a module stands in the table twice");
    let place = |name: &str| modules.iter().position(|&module| module == name);
    let mut found = Vec::new();
    for (name, source) in &files {
        let Some(at) = place(&module_of(name)) else { continue };
        for used in code(source).split("crate::").skip(1).map(identifier) {
            if place(used).is_some_and(|used| used < at) {
                found.push(format!("{name} uses `crate::{used}`, which stands above it"));
            }
        }
    }
    found
}

/// The files below a directory, with their paths from there and their text.
fn files_below(src: &Path) -> Vec<(String, String)> {
    let (mut files, mut open) = (Vec::new(), vec![src.to_owned()]);
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            match path.extension() {
                None => open.push(path),
                Some(_) if name == "tests.rs" || name == "loom_tests.rs" => {}
                Some(_) => {
                    let text = fs::read_to_string(&path).expect("a source file");
                    let from_src = path.strip_prefix(src).expect("it is below");
                    files.push((from_src.display().to_string(), text));
                }
            }
        }
    }
    files
}
