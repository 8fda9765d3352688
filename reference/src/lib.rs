//! The pages of the reference of DAT's functions, in `dat-sys/reference`. A page is Markdown with a
//! fixed set of headings.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Reads all pages, in the order of their names.
///
/// # Errors
///
/// Fails if there are no pages or if one of them cannot be read.
pub fn pages() -> Result<Vec<Page>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dat-sys/reference");
    let entries = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
    let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|e| e.path())).collect();
    let mut paths = paths?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    ensure!(!paths.is_empty(), "{}: no pages", directory.display());
    paths.into_iter().map(Page::read).collect()
}

/// A function's prototype, and the directive that includes its header.
#[derive(Debug)]
pub struct Prototype {
    /// The directive.
    pub include: String,
    /// The prototype.
    pub text: String,
}

/// A page.
#[derive(Debug)]
pub struct Page {
    /// The file.
    pub path: PathBuf,
    /// The function, or the subject of an overview.
    pub name: String,
    /// The text of the file.
    pub text: String,
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

/// The abbreviations of DAT's objects, which each page explains.
const ABBREVIATIONS: [&str; 12] =
    ["IA", "EVD", "CNO", "PZ", "LMR", "RMR", "EP", "SRQ", "PSP", "RSP", "CSP", "CR"];

impl Page {
    fn read(path: PathBuf) -> Result<Self> {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Page { path, name, text })
    }

    /// The sentence that says what the function does.
    pub fn summary(&self) -> &str {
        self.text.split("\n\n").nth(1).unwrap_or_default().trim()
    }

    /// The functions that the page documents: the function of its name, and those with a prototype
    /// in the page's synopsis.
    pub fn documents(&self, function: &str) -> bool {
        self.name == function
            || self.section("Synopsis").contains(function)
                && self.names_in_synopsis().any(|name| name == function)
    }

    /// Whether the page documents a function. The others are overviews.
    pub fn is_function(&self) -> bool {
        self.text.contains("\n## Return values\n")
    }

    /// The text under a heading, or nothing.
    pub fn section(&self, heading: &str) -> &str {
        let marker = format!("\n## {heading}\n");
        let Some((_, rest)) = self.text.split_once(&marker) else { return "" };
        rest.split_once("\n## ").map_or(rest, |(section, _)| section).trim()
    }

    /// The items of a list under a heading. An item is one line.
    pub fn items(&self, heading: &str) -> Vec<String> {
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

    /// The statuses under "Return values", each as the name of its type and of its subtype. The
    /// name of the subtype is empty if the status has none.
    pub fn return_values(&self) -> Vec<(String, String)> {
        let items = self.items("Return values");
        let heads = items.iter().filter_map(|item| statuses_at_the_beginning(item));
        heads.flatten().map(|(kind, subtype)| (kind.to_owned(), subtype.to_owned())).collect()
    }

    /// The pages to which the last section refers.
    pub fn see_also(&self) -> Vec<String> {
        let code = self.section("See also").split('`').skip(1).step_by(2);
        code.filter(|name| name.starts_with("dat")).map(str::to_owned).collect()
    }

    /// The functions with a prototype in the synopsis, except the function after which the page is
    /// named.
    pub fn other_functions(&self) -> Vec<String> {
        self.names_in_synopsis().filter(|name| *name != self.name).map(str::to_owned).collect()
    }

    fn names_in_synopsis(&self) -> impl Iterator<Item = &str> {
        let synopsis = self.section("Synopsis");
        // A name comes after its type, which may be a pointer.
        synopsis.match_indices([' ', '*']).filter_map(|(at, _)| {
            let rest = &synopsis[at + 1..];
            let (name, _) = rest.starts_with("dat_").then(|| rest.split_once('('))??;
            name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then_some(name)
        })
    }

    /// The text with these prototypes as the synopsis, and with the options of the linker. Code
    /// without the page's own function stays. Overviews have no synopsis.
    pub fn with_synopsis(&self, prototypes: &[Prototype]) -> String {
        if !self.is_function() {
            return self.text.clone();
        }
        let own = format!(" {}(", self.name);
        let stays = |block: &&str| prototypes.is_empty() || !block.contains(&own);
        let others = self.section("Synopsis").split("```").skip(1).step_by(2).filter(stays);
        let others: String = others.map(|block| format!("```{block}```\n\n")).collect();
        let blocks = match prototypes {
            [new, old] if new.text == old.text => {
                let includes =
                    format!("{} // uDAPL 2.0\n{} // uDAPL 1.2", new.include, old.include);
                format!("```c\n{includes}\n\n{}\n```\n\n", new.text)
            }
            _ => prototypes
                .iter()
                .map(|Prototype { include, text }| format!("```c\n{include}\n\n{text}\n```\n\n"))
                .collect(),
        } + &others;
        let link = match ["<dat2/", "<dat/"].map(|version| blocks.contains(version)) {
            [true, true] => "Link with `-ldat2` for uDAPL 2.0, or with `-ldat` for uDAPL 1.2.",
            [true, false] => "Link with `-ldat2`.",
            _ => "Link with `-ldat`.",
        };
        let (head, rest) = match self.text.split_once("\n## Synopsis\n") {
            Some((head, rest)) => (head, rest.split_once("\n## ").map_or("", |(_, rest)| rest)),
            None => self.text.split_once("\n## ").unwrap_or((&self.text, "")),
        };
        format!("{head}\n## Synopsis\n\n{blocks}{link}\n\n## {rest}")
    }

    /// The abbreviations that the page uses before it explains them, as in "endpoint (EP)".
    fn unexplained_abbreviations(&self) -> Vec<&'static str> {
        let mut text = String::new();
        for (at, part) in self.text.split("```").enumerate().filter(|(at, _)| at % 2 == 0) {
            // The summary of a page has only one line, so its abbreviations are explained later.
            let part =
                if at == 0 { part.splitn(3, "\n\n").nth(2).unwrap_or_default() } else { part };
            text.extend(part.split('`').step_by(2));
        }
        let words: Vec<&str> =
            text.split(|c: char| !(c.is_alphanumeric() || "_()".contains(c))).collect();
        let is_unexplained = |abbreviation: &&str| {
            let first = words.iter().find(|word| {
                let name = word.trim_matches(['(', ')']);
                name.strip_suffix('s').unwrap_or(name) == *abbreviation
            });
            let is_in_summary = self.summary().contains(&format!("({abbreviation})"));
            !is_in_summary
                && first.is_some_and(|word| !(word.starts_with('(') && word.ends_with(')')))
        };
        ABBREVIATIONS.into_iter().filter(is_unexplained).collect()
    }

    /// The rules that the page breaks.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut report = |what: String| problems.push(format!("{}: {what}", self.path.display()));
        if !self.text.starts_with(&format!("# {}\n\n", self.name)) {
            report(format!("the first line is not \"# {}\"", self.name));
        }
        let summary = self.summary();
        if summary.lines().count() != 1 || !summary.ends_with('.') || summary.len() > 80 {
            report("the second paragraph is not one sentence of at most 80 characters".into());
        }
        // The overview `dat` lists what the abbreviations stand for.
        if self.name != "dat" {
            for abbreviation in self.unexplained_abbreviations() {
                report(format!("{abbreviation} is used before it is explained"));
            }
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
        if self.return_values().is_empty() {
            report("no list of return values".into());
        }
        for item in self.items("Return values") {
            if statuses_at_the_beginning(&item).is_none() {
                report(format!("an item does not begin with a type and its subtypes: {item}"));
            }
        }
        problems
    }
}

/// The statuses with which an item of a list begins: a type, or a type and one or more of its
/// subtypes, and a colon. The type and the subtypes are code. Returns nothing if the item begins
/// with something else.
fn statuses_at_the_beginning(item: &str) -> Option<Vec<(&str, &str)>> {
    let (head, _) = item.split_once(": ")?;
    let words: Vec<_> = head.split('`').collect();
    let is_list = words.iter().step_by(2).all(|between| ["", " ", ", ", " or "].contains(between));
    let mut names = words.into_iter().skip(1).step_by(2);
    let kind = names.next().filter(|kind| is_list && kind.starts_with("DAT_"))?;
    let subtypes: Vec<_> = names.collect();
    if subtypes.is_empty() {
        return Some(vec![(kind, "")]);
    }
    Some(subtypes.into_iter().map(|subtype| (kind, subtype)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_lists_a_type_with_its_subtypes() {
        assert_eq!(statuses_at_the_beginning("`DAT_A`: It: is."), Some(vec![("DAT_A", "")]));
        assert_eq!(
            statuses_at_the_beginning("`DAT_A` `DAT_B`, `DAT_C` or `DAT_D`: So."),
            Some(vec![("DAT_A", "DAT_B"), ("DAT_A", "DAT_C"), ("DAT_A", "DAT_D")])
        );
    }

    fn page(text: &str) -> Page {
        Page { path: "dat_x.md".into(), name: "dat_x".into(), text: text.into() }
    }

    #[test]
    fn the_synopsis_has_the_prototype_other_functions_and_the_library() {
        let page = page(
            "# dat_x\n\nSays x.\n\n## Synopsis\n\n```c\nint dat_x(old);\n```\n\n```c\nint \
             *dat_y(void);\n```\n\n## Arguments\n\nNone.\n\n## Return values\n\n- `DAT_A`: So.\n",
        );
        assert_eq!(page.other_functions(), ["dat_y"]);
        let [include, text] = ["#include <dat2/udat.h>", "int dat_x(void);"].map(str::to_owned);
        let text = page.with_synopsis(&[Prototype { include, text }]);
        let expected = "## Synopsis\n\n```c\n#include <dat2/udat.h>\n\nint dat_x(void);\n```\n\n\
                        ```c\nint *dat_y(void);\n```\n\nLink with `-ldat2`.\n\n## Arguments\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn abbreviations_are_explained_at_their_first_use() {
        let used = |text: &str| {
            page(&format!("# dat_x\n\nFrees an EP.\n\n{text}")).unexplained_abbreviations()
        };
        assert_eq!(used("The endpoint (EP) of the interface adapters (IAs)."), [""; 0]);
        assert_eq!(used("The EP, `EVD` and PZs."), ["PZ", "EP"]);
        assert_eq!(used("```c\nEP\n```\n\nAn endpoint (EP)."), [""; 0]);
    }

    #[test]
    fn other_items_list_nothing() {
        for item in ["`DAT_A`", "A: b", "`a`: b", "`DAT_A` with a subtype: b", "`DAT_A` `DAT_B"] {
            assert_eq!(statuses_at_the_beginning(item), None, "{item}");
        }
    }
}
