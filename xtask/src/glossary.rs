//! Holds the names of crates, modules and types against docs/glossary.md, section "Words of names":
//! a word of its first table is used only in the directories of its row, no name consists only of a
//! word of its last paragraph, and the second table has the exceptions.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;

use crate::cargo::workspace;
use crate::unsafe_files::files;

const PAGE: &str = "docs/glossary.md";
const HEADING: &str = "\n## Words of names\n";

#[test]
fn a_word_of_the_glossary_names_one_thing() {
    let page = fs::read_to_string(workspace().join(PAGE)).expect("the page is there");
    let complaints = Rules::of(&page).complaints(&names());
    assert!(complaints.is_empty(), "{PAGE}:\n{}", complaints.join("\n"));
}

/// What the section requires.
#[derive(Debug, Default)]
struct Rules {
    /// Words, and the directories in which names use them.
    words: Vec<(String, Vec<String>)>,
    /// Names that may break a rule, and the directory of each.
    exceptions: Vec<(String, String)>,
    /// Words that are no name by themselves, in their singular.
    never_alone: BTreeSet<String>,
}

/// The name of a crate, a module or a type.
#[derive(Debug)]
struct Name {
    kind: &'static str,
    text: String,
    file: String,
}

impl Rules {
    /// Reads the section. The first cell of a row of a table is a word, or a name in backticks, and
    /// the second one has directories in backticks. The words that are never alone are those in
    /// backticks in the last paragraph.
    fn of(page: &str) -> Rules {
        let (_, section) = page.split_once(HEADING).expect("the page has the section");
        let section = section.split("\n## ").next().unwrap_or(section).trim();
        let mut rules = Rules::default();
        let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
        for line in section.lines().filter(|line| line.starts_with('|')) {
            let cells: Vec<String> = cells(line);
            let [_, first, directories, _, _] = &cells[..] else {
                panic!("{PAGE}: a row of this section has three cells: {line}")
            };
            let mut directories = in_backticks(directories);
            match in_backticks(first).pop() {
                Some(name) => rules.exceptions.extend(directories.pop().map(|at| (name, at))),
                None if directories.is_empty() => {} // the heading of a table, or the line below
                None => rules.words.push((first.clone(), directories)),
            }
        }
        let last = section.split("\n\n").last().unwrap_or_default();
        rules.never_alone = in_backticks(last).iter().map(|word| word.to_lowercase()).collect();
        rules
    }

    /// Returns a sentence for each name that breaks a rule and for each row that nothing needs.
    fn complaints(&self, names: &[Name]) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut needed = BTreeSet::new();
        for name in names {
            let foreign = self.foreign_word(name);
            let words = words(&name.text);
            let complaint = match (foreign, &words[..]) {
                (Some((word, directories)), _) => format!(
                    "{name}: \"{word}\" is a word of {}. Choose another word, or add a row with the \
                     reason to the exceptions.",
                    directories.join(", ")
                ),
                (None, [word]) if self.never_alone.contains(word) => format!(
                    "{name}: the name does not say which {word}. Put a word before it that does, \
                     or add a row with the reason to the exceptions."
                ),
                _ => continue,
            };
            let row = |(text, at): &(String, String)| self::words(text) == words && name.is_in(at);
            match self.exceptions.iter().position(row) {
                Some(row) => drop(needed.insert(row)),
                None => complaints.push(complaint),
            }
        }
        let stale = self.exceptions.iter().enumerate().filter(|(row, _)| !needed.contains(row));
        for (_, (name, at)) in stale {
            complaints.push(format!("`{name}`: no name in {at} needs this row. Delete the row."));
        }
        for (word, directories) in &self.words {
            for at in directories {
                let uses = |name: &Name| name.is_in(at) && words(&name.text).contains(word);
                if !names.iter().any(uses) {
                    complaints.push(format!("\"{word}\": no name in {at} has this word."));
                }
            }
        }
        complaints
    }

    /// If the name has a word of the first table, and is neither in one of its directories nor in a
    /// test, returns the row.
    fn foreign_word(&self, name: &Name) -> Option<&(String, Vec<String>)> {
        if name.file.split('/').any(|part| part == "tests" || part == "tests.rs") {
            return None;
        }
        let words = words(&name.text);
        self.words.iter().find(|(word, directories)| {
            words.contains(word) && !directories.iter().any(|at| name.is_in(at))
        })
    }
}

impl Name {
    fn is_in(&self, directory: &str) -> bool {
        self.file.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}` in {}", self.kind, self.text, self.file)
    }
}

/// Returns the texts between pairs of backticks.
fn in_backticks(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns the words of a name in `CamelCase`, `snake_case` or with hyphens, in lower case and in
/// their singular.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = '_';
    for c in name.chars() {
        let starts = !before.is_alphanumeric() || c.is_uppercase() && before.is_lowercase();
        if c.is_alphanumeric() {
            match words.last_mut() {
                Some(word) if !starts => word.extend(c.to_lowercase()),
                _ => words.push(c.to_lowercase().collect()),
            }
        }
        before = c;
    }
    for word in &mut words {
        if word.ends_with('s') && !word.ends_with("ss") {
            word.pop();
        }
    }
    words
}

/// Returns the names of all crates, modules and types of the workspace, except in examples.
fn names() -> Vec<Name> {
    let is_example = |file: &String| file.split('/').any(|part| part == "examples");
    let files = files().into_iter().filter(|file| !is_example(file));
    files
        .flat_map(|file| match file.rsplit('/').next() {
            Some("Cargo.toml") => crate_name(&file).into_iter().collect(),
            _ if file.ends_with(".rs") => names_in(&file),
            _ => Vec::new(),
        })
        .collect()
}

/// Returns the name of a crate, which is that of the directory with its manifest.
fn crate_name(manifest: &str) -> Option<Name> {
    let directory = manifest.strip_suffix("/Cargo.toml")?;
    let text = directory.rsplit('/').next().unwrap_or(directory).to_owned();
    Some(Name { kind: "crate", text, file: manifest.to_owned() })
}

/// Returns the names of a source file: that of its module, and those of its types.
fn names_in(file: &str) -> Vec<Name> {
    let text = fs::read_to_string(workspace().join(file)).expect("a source file");
    let path = file.strip_suffix(".rs").unwrap_or(file);
    let module = path.strip_suffix("/mod").unwrap_or(path).rsplit('/').next();
    let module = module.filter(|name| !matches!(*name, "lib" | "main" | "build"));
    let named =
        |kind| move |text: &str| Name { kind, text: text.to_owned(), file: file.to_owned() };
    let types = text.lines().filter_map(type_name);
    module.map(named("module")).into_iter().chain(types.map(named("type"))).collect()
}

/// Returns the name of the type that the line declares.
fn type_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let line = line.strip_prefix("unsafe ").unwrap_or(line);
    let (keyword, rest) = line.split_once(' ')?;
    let is_type = matches!(keyword, "struct" | "enum" | "trait" | "type" | "union");
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (is_type && name.starts_with(char::is_uppercase)).then_some(name)
}

#[test]
fn names_are_found() {
    assert_eq!(type_name("pub(crate) struct Ring<T> {"), Some("Ring"));
    assert_eq!(type_name("    type Request = ();"), Some("Request"));
    assert_eq!(type_name("unsafe trait Region: Send {"), Some("Region"));
    assert_eq!(type_name("// type Request = ();"), None);
    assert_eq!(type_name("let type_of = Type::X;"), None);
    assert_eq!(words("EngineLocks"), ["engine", "lock"]);
    assert_eq!(words("provider-tcp-emu"), ["provider", "tcp", "emu"]);
    assert_eq!(words("DAT_EP_HANDLE"), ["dat", "ep", "handle"]);
    assert_eq!(words("progress"), ["progress"]);
}

#[test]
fn each_rule_finds_what_breaks_it() {
    let page = "x\n## Words of names\n\n| word | in | meaning |\n|---|---|---|\n\
                | link | `roce` | m |\n| probe | `roce` | m |\n\n\
                | name | in | reason |\n|---|---|---|\n| `HardLink` | `cli` | r |\n\
                | `WebLink` | `cli` | r |\n\nNever alone: `Table`.\n";
    let name = |text: &str, file: &str| Name { kind: "type", text: text.into(), file: file.into() };
    let names = [
        name("Link", "roce/src/link.rs"),
        name("links", "netem/src/link.rs"),
        name("HardLink", "cli/src/file.rs"),
        name("Tables", "cli/src/file.rs"),
        name("KeyTable", "cli/src/file.rs"),
    ];
    let complaints = Rules::of(page).complaints(&names);
    let starts = [
        "type `links` in netem/src/link.rs: \"link\" is a word of roce.",
        "type `Tables` in cli/src/file.rs: the name does not say which table.",
        "`WebLink`: no name in cli needs this row.",
        "\"probe\": no name in roce has this word.",
    ];
    assert_eq!(complaints.len(), starts.len(), "{complaints:#?}");
    for (complaint, start) in complaints.iter().zip(starts) {
        assert!(complaint.starts_with(start), "{complaint}");
    }
}
