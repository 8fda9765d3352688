//! Checks the interface of the crate: that it is the one in `public-api.txt`, and that every public
//! type has an example.
//!
//! The compiler warns of each `pub` that programs cannot reach (`unreachable_pub`), so the
//! interface is every item in `src/` that has the word `pub`, and every implementation of a trait.
//! The test reads the source as rustfmt formats it. After an intended change, update the file with
//! `UPDATE_PUBLIC_API=1 cargo test -p opendat --test public_api`, and say in CHANGELOG.md whether
//! programs must change.

use std::fs;
use std::path::{Path, PathBuf};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The source files, by their paths below `src/`, without tests.
fn sources() -> Vec<(String, String)> {
    fn visit(directory: &Path, prefix: &str, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = format!("{prefix}{}", path.file_name().expect("a name").display());
            if path.is_dir() {
                visit(&path, &format!("{name}/"), found);
            } else {
                let text = fs::read_to_string(&path).expect("a source file");
                // Tests are the last part of a file.
                let end = text.find("\n#[cfg(test)]\n").unwrap_or(text.len());
                found.push((name, text[..end].to_owned()));
            }
        }
    }
    let mut found = Vec::new();
    visit(&directory().join("src"), "", &mut found);
    found.sort();
    found
}

/// What a line begins.
enum Part {
    /// An item that ends at the end of a line with one of these characters.
    UpTo(&'static [char]),
    /// An item that ends at the next line that is a closing brace.
    Whole,
    /// A macro, whose items are where it is called.
    MacroRules,
    Nothing,
}

fn part(line: &str) -> Part {
    let code = line.trim_start();
    let is_at_margin = code.len() == line.len();
    let is_call = || {
        let name = code.strip_suffix("! {").unwrap_or_default();
        !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    };
    let has_body = || ["pub enum", "pub trait"].iter().any(|start| code.starts_with(start));
    if code.starts_with("macro_rules!") {
        Part::MacroRules
    } else if is_at_margin && (has_body() || is_call()) {
        Part::Whole
    } else if code.starts_with("pub use") {
        Part::UpTo(&[';'])
    } else if let Some(item) = code.strip_prefix("pub ") {
        let kinds = ["fn", "async", "unsafe", "const", "struct", "type", "static", "mod"];
        let is_field = !kinds.contains(&item.split(' ').next().unwrap_or_default());
        Part::UpTo(if is_field { &[','] } else { &['{', ';'] })
    } else if is_at_margin && (code.starts_with("impl") || code.starts_with("unsafe impl")) {
        Part::UpTo(&['{', '}'])
    } else if ["#[derive(", "#[non_exhaustive]", "#[cfg(feature"]
        .iter()
        .any(|a| code.starts_with(a))
    {
        Part::UpTo(&[']'])
    } else {
        Part::Nothing
    }
}

/// The items that can belong to the interface, one a line.
fn items(source: &str) -> Vec<String> {
    let mut items = Vec::new();
    let mut lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    while let Some(line) = lines.next() {
        let mut item = vec![line.trim()];
        match part(line) {
            Part::Nothing => continue,
            Part::UpTo(ends) => {
                while !item.last().is_some_and(|line| line.ends_with(ends)) {
                    let Some(line) = lines.next() else { break };
                    item.push(line.trim());
                }
            }
            Part::Whole => {
                item.extend(lines.by_ref().take_while(|line| *line != "}").map(str::trim))
            }
            Part::MacroRules => {
                lines.by_ref().take_while(|line| *line != "}").for_each(drop);
                continue;
            }
        }
        let item = item.into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        items.push(item.trim_end_matches(['{', ' ']).to_owned());
    }
    items
}

/// The items that belong to the interface. Attributes and blocks of methods belong to the item that
/// follows. Implementations of traits belong to the types that they name.
fn interface(items: &[String], types: &[String]) -> Vec<String> {
    let is_public = |(index, item): &(usize, &String)| {
        if item.contains("impl") && item.contains(" for ") {
            let mut words = item.split(|c: char| !c.is_alphanumeric() && c != '_');
            return words.any(|word| types.iter().any(|name| name == word));
        }
        let belongs_to_next = |item: &&String| item.starts_with("#[") || item.starts_with("impl");
        let next = items[*index..].iter().find(|item| !belongs_to_next(item));
        let blocks = items[*index + 1..].iter().take_while(|item| item.starts_with("impl")).count();
        // A block that another block follows has no public method.
        !item.starts_with("#[") && !item.starts_with("impl")
            || blocks == 0 && next.is_some_and(|next| !next.starts_with("impl"))
    };
    items.iter().enumerate().filter(is_public).map(|(_, item)| item.clone()).collect()
}

/// The identifier at the beginning of a text.
fn identifier(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

#[test]
fn the_interface_is_the_one_that_was_reviewed() {
    let files: Vec<_> =
        sources().into_iter().map(|(name, source)| (name, items(&source))).collect();
    let declared = |item: &String| {
        let words = item.split_once("pub ")?.1.split_once(' ')?;
        ["struct", "enum", "trait"].contains(&words.0).then(|| identifier(words.1).to_owned())
    };
    let types: Vec<String> =
        files.iter().flat_map(|(_, items)| items).filter_map(declared).collect();
    let mut text = String::new();
    for (name, items) in files {
        let items = interface(&items, &types);
        if !items.is_empty() {
            text += &format!("{name}\n    {}\n", items.join("\n    "));
        }
    }
    let file = directory().join("public-api.txt");
    if std::env::var_os("UPDATE_PUBLIC_API").is_some() {
        fs::write(&file, &text).expect("the file can be written");
    }
    let reviewed = fs::read_to_string(&file).expect("public-api.txt");
    let changed = |a: &str, b: &str| {
        let b: Vec<&str> = b.lines().collect();
        a.lines().filter(|line| !b.contains(line)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(
        text == reviewed,
        "the interface has changed; see the head of this file\nnew: {:#?}\ngone: {:#?}",
        changed(&text, &reviewed),
        changed(&reviewed, &text)
    );
}

#[test]
fn every_public_type_has_an_example() {
    let mut without = Vec::new();
    for (name, source) in sources() {
        let mut has_example = false;
        for line in source.lines().map(str::trim) {
            let declares = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
            let is_number = line.contains(" of DAT_") && line.ends_with(';');
            if line.starts_with("///") {
                has_example |= line.contains("```");
            } else if is_number || declares.iter().any(|start| line.starts_with(start)) {
                // `$type` is the name in a macro, whose callers have the example.
                if !has_example && !line.contains("$type") {
                    without.push(format!("{name}: {line}"));
                }
                has_example = false;
            } else if !line.starts_with("#[") {
                has_example = false;
            }
        }
    }
    assert!(without.is_empty(), "types without an example: {without:#?}");
}
