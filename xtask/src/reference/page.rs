//! A page of the reference: Markdown with a fixed set of headings.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// A function's prototype, and the directive that includes its header.
pub(super) struct Prototype {
    pub(super) include: String,
    pub(super) text: String,
}

/// A page.
pub(super) struct Page {
    pub(super) path: PathBuf,
    /// The function, or the subject of an overview.
    pub(super) name: String,
    pub(super) text: String,
}

/// The headings in their order, and whether the page of each function has them.
const HEADINGS: [(&str, bool); 13] = [
    ("Synopsis", true),
    ("Arguments", true),
    ("Description", true),
    ("States", false),
    ("Ownership", false),
    ("Completion", false),
    ("Threads", true),
    ("Return values", true),
    ("Errors", false),
    ("Versions", false),
    ("Providers", false),
    ("Example", true),
    ("See also", true),
];

impl Page {
    pub(super) fn read(path: PathBuf) -> Result<Self> {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Page { path, name, text })
    }

    /// The sentence that says what the function does.
    pub(super) fn summary(&self) -> &str {
        self.text.split("\n\n").nth(1).unwrap_or_default().trim()
    }

    /// The functions that the page documents: the function of its name, and those with a prototype
    /// in the page's synopsis.
    pub(super) fn documents(&self, function: &str) -> bool {
        self.name == function || self.section("Synopsis").contains(&format!(" {function}("))
    }

    /// Whether the page documents a function. The others are overviews.
    pub(super) fn is_function(&self) -> bool {
        self.text.contains("\n## Return values\n")
    }

    /// The text under a heading, or nothing.
    pub(super) fn section(&self, heading: &str) -> &str {
        let marker = format!("\n## {heading}\n");
        let Some((_, rest)) = self.text.split_once(&marker) else { return "" };
        rest.split_once("\n## ").map_or(rest, |(section, _)| section).trim()
    }

    /// The items of a list under a heading. An item is one line.
    pub(super) fn items(&self, heading: &str) -> Vec<String> {
        let mut items: Vec<String> = Vec::new();
        for line in self.section(heading).lines() {
            match (line.strip_prefix("- "), items.last_mut()) {
                (Some(item), _) => items.push(item.to_owned()),
                (None, Some(last)) if line.starts_with("  ") => {
                    last.push(' ');
                    last.push_str(line.trim());
                }
                _ => {}
            }
        }
        items
    }

    /// The pages to which the last section refers.
    pub(super) fn see_also(&self) -> Vec<String> {
        let code = self.section("See also").split('`').skip(1).step_by(2);
        code.filter(|name| name.starts_with("dat")).map(str::to_owned).collect()
    }

    /// The text with these prototypes as the synopsis. Overviews have none.
    pub(super) fn with_synopsis(&self, prototypes: &[Prototype]) -> String {
        if prototypes.is_empty() {
            return self.text.clone();
        }
        let blocks: String = match prototypes {
            [new, old] if new.text == old.text => {
                let includes =
                    format!("{} // uDAPL 2.0\n{} // uDAPL 1.2", new.include, old.include);
                format!("```c\n{includes}\n\n{}\n```\n\n", new.text)
            }
            _ => prototypes
                .iter()
                .map(|Prototype { include, text }| format!("```c\n{include}\n\n{text}\n```\n\n"))
                .collect(),
        };
        let (head, rest) = match self.text.split_once("\n## Synopsis\n") {
            Some((head, rest)) => (head, rest.split_once("\n## ").map_or("", |(_, rest)| rest)),
            None => self.text.split_once("\n## ").unwrap_or((&self.text, "")),
        };
        format!("{head}\n## Synopsis\n\n{blocks}## {rest}")
    }

    /// The rules that the page breaks.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut report = |what: String| problems.push(format!("{}: {what}", self.path.display()));
        if !self.text.starts_with(&format!("# {}\n\n", self.name)) {
            report(format!("the first line is not \"# {}\"", self.name));
        }
        let summary = self.summary();
        if summary.lines().count() != 1 || !summary.ends_with('.') || summary.len() > 80 {
            report("the second paragraph is not one sentence of at most 80 characters".into());
        }
        if !self.is_function() {
            return problems;
        }
        let headings: Vec<_> = self.text.lines().filter_map(|l| l.strip_prefix("## ")).collect();
        let positions: Vec<_> = headings
            .iter()
            .map(|heading| HEADINGS.iter().position(|(name, _)| name == heading))
            .collect();
        if positions.contains(&None) || !positions.is_sorted() {
            report(format!("unknown headings, or not in order: {headings:?}"));
        }
        for (heading, is_required) in HEADINGS {
            if is_required && !headings.contains(&heading) {
                report(format!("no heading {heading:?}"));
            }
        }
        if !self.items("Return values").iter().any(|item| item.starts_with("`DAT_")) {
            report("no list of return values".into());
        }
        problems
    }
}
