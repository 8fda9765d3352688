//! Checks the table in docs/architecture.md, section "The crates": it has every crate of the
//! workspace, and its last column has the workspace crates that the crate depends on, as Cargo
//! knows them. A crate depends only on crates that stand below it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::cargo::{cargo, workspace};

const PAGE: &str = "docs/architecture.md";
const HEADING: &str = "\n## The crates\n";

#[test]
fn the_table_of_crates_has_the_dependencies_that_cargo_knows() {
    let rows = rows(&fs::read_to_string(workspace().join(PAGE)).expect("the page is there"));
    let mut below: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(below.len(), rows.len(), "{PAGE} has a row twice");
    let real = dependencies();
    assert_eq!(below, real.keys().map(String::as_str).collect(), "{PAGE} and the workspace");
    for row in &rows {
        assert_eq!(row.uses(), real[&row.name], "{PAGE} and Cargo.toml of {}", row.name);
    }
    for row in &rows {
        below.remove(row.name.as_str());
        let above: Vec<_> = row.uses.iter().filter(|used| !below.contains(used.as_str())).collect();
        assert!(above.is_empty(), "{PAGE}: {} stands below {above:?}, which it uses", row.name);
    }
}

/// The crates that know no programming interface, not even through the crates that they use.
const NEUTRAL: [&str; 9] =
    ["roce", "iwarp", "adapter", "rnic", "wire", "work", "netem", "capture", "waiting"];

#[test]
fn engines_know_no_programming_interface() {
    let crates = dependencies();
    let reached_from = |name: &str| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![name.to_owned()]);
        while let Some(next) = open.pop() {
            open.extend(crates[&next].difference(&reached).cloned());
            reached.insert(next);
        }
        reached
    };
    for name in NEUTRAL {
        let reached = reached_from(name);
        let interfaces: Vec<_> = ["dat-core", "dat-sys", "dat-adapter"]
            .into_iter()
            .filter(|of| reached.contains(*of))
            .collect();
        assert!(interfaces.is_empty(), "{name} reaches {interfaces:?}");
    }
    let reached = reached_from("dat-core");
    assert!(!reached.contains("adapter") && !reached.contains("rnic"), "{reached:?}");
}

/// A row of the table: a crate, and the crates that it uses.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    uses: Vec<String>,
}

impl Row {
    fn uses(&self) -> BTreeSet<String> {
        self.uses.iter().cloned().collect()
    }
}

/// Returns the rows of the table in the section. The first cell of a row is the name of a crate in
/// backticks; the names in the last cell are separated by commas.
fn rows(page: &str) -> Vec<Row> {
    let (_, section) = page.split_once(HEADING).expect("the page has the section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let lines = section.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix('|'));
    let cells = lines.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    cells
        .map(|cells| {
            let [name, _, uses] = cells[..] else { panic!("a row has three cells: {cells:?}") };
            let uses = uses.split(", ").filter(|used| !used.is_empty()).map(str::to_owned);
            Row { name: name.trim_end_matches('`').to_owned(), uses: uses.collect() }
        })
        .collect()
}

/// Returns the workspace crates that each workspace crate depends on. The dependencies of tests,
/// examples and benchmarks do not count.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("a JSON document");
    let list = |value: &Value| value.as_array().expect("a list").clone();
    list(&metadata["packages"])
        .iter()
        .map(|package| {
            let uses = list(&package["dependencies"])
                .iter()
                .filter(|used| used["path"].is_string() && used["kind"].is_null())
                .map(crate_name)
                .collect();
            (crate_name(package), uses)
        })
        .collect()
}

/// Returns the name of a package as the sources have it: `opendat-core` is `dat-core`, and
/// `opendat-wire` is `wire`.
fn crate_name(package: &Value) -> String {
    let name = package["name"].as_str().expect("a package has a name");
    match name {
        "opendat" | "opendat-core" | "opendat-sys" => &name["open".len()..],
        _ => name.strip_prefix("opendat-").unwrap_or(name),
    }
    .to_owned()
}

#[test]
fn rows_are_read_from_their_section_only() {
    let page = "| `x` | other | y |\n\n## The crates\n\n| crate | contents | uses |\n|---|---|---|\n\
                | `a` | it uses `b` | b, c-d |\n| `b` | it uses nothing | |\n\n## More\n\n| `z` | |";
    let row = |name: &str, uses: &[&str]| Row {
        name: name.to_owned(),
        uses: uses.iter().map(|used| (*used).to_owned()).collect(),
    };
    assert_eq!(rows(page), [row("a", &["b", "c-d"]), row("b", &[])]);
}
