//! The definitions of structures. They are in no source page: the manual pages and the book get
//! them from the headers.

use std::collections::BTreeMap;

use reference::Page;

use super::header::{CODE_WIDTH, Header};

/// The directories of the headers of uDAPL 2.0 and 1.2.
const VERSIONS: [&str; 2] = ["dat2", "dat"];

/// The structures, unions and synonyms of them that the headers of a version define.
struct Definitions<'h>(BTreeMap<&'h str, &'h str>);

/// Returns the page with a section that defines the structures which its functions take. An
/// overview gets the structures that its description names, and the structure that has its own
/// name.
pub(super) fn with_structures(page: &Page, headers: &[Header]) -> String {
    let [new, old] = VERSIONS.map(|version| Definitions::of(headers, version));
    let (roots, definitions) = match page.is_function() {
        true if page.section("Synopsis").contains("<dat2/") => (page.section("Synopsis"), &new),
        true => (page.section("Synopsis"), &old),
        false => (page.section("Description"), &new),
    };
    let mut names = Vec::new();
    for name in words(roots).chain([page.name.to_uppercase().as_str()]) {
        definitions.add(name, &mut names);
    }
    let Some(at) = page.text.find("\n## Example\n").or_else(|| page.text.find("\n## See also\n"))
    else {
        return page.text.clone();
    };
    if names.is_empty() {
        return page.text.clone();
    }
    let code: Vec<_> = names.iter().map(|name| narrowed(definitions.0[name])).collect();
    let has_both = VERSIONS.iter().all(|version| roots.contains(&format!("<{version}/")));
    let differ = names.iter().filter(|name| has_both && new.differ(&old, name));
    let differ: Vec<_> = differ.map(|name| format!("`{name}`")).collect();
    let versions = match &differ[..] {
        [] => String::new(),
        [one] => format!("\nThis is the {one} of uDAPL 2.0. `<dat/udat.h>` has that of 1.2.\n"),
        [others @ .., last] => format!(
            "\nThe definitions of {} and {last} are those of uDAPL 2.0. `<dat/udat.h>` has those \
             of 1.2.\n",
            others.join(", ")
        ),
    };
    let section = format!("\n## Structures\n\n```c\n{}\n```\n{versions}", code.join("\n\n"));
    format!("{}{section}{}", &page.text[..at], &page.text[at..])
}

impl<'h> Definitions<'h> {
    fn of(headers: &'h [Header], version: &str) -> Self {
        let is_of_version = |header: &&Header| {
            header.path.parent().is_some_and(|directory| directory.ends_with(version))
        };
        let mut definitions = BTreeMap::new();
        for header in headers.iter().filter(is_of_version) {
            for (at, _) in header.text.match_indices("\ntypedef ") {
                let text = &header.text[at + 1..];
                let end = match text.lines().next() {
                    Some(line) if !line.ends_with('{') => text.find(';'),
                    Some(line) if line.contains(" struct ") || line.contains(" union ") => {
                        text.find("\n}").and_then(|end| Some(end + text[end..].find(';')?))
                    }
                    _ => None,
                };
                let definition = end.map(|end| &text[..=end]);
                let is_function = |text: &str| !text.contains('{') && text.contains('(');
                let Some(definition) = definition.filter(|text| !is_function(text)) else {
                    continue;
                };
                if let Some(name) = words(definition).last() {
                    definitions.insert(name, definition);
                }
            }
        }
        Definitions(definitions)
    }

    /// Adds a structure to a list, after those of its members. Returns whether the name is that of
    /// a structure.
    fn add(&self, name: &str, names: &mut Vec<&'h str>) -> bool {
        let Some((&name, definition)) = self.0.get_key_value(name) else { return false };
        if names.contains(&name) {
            return true;
        }
        let code = without_comments(definition);
        let members = words(&code).filter(|member| *member != name);
        let structures = members.filter(|member| self.add(member, names)).count();
        // A synonym is listed only if it is one of a structure.
        let is_listed = structures > 0 || definition.contains('{');
        if is_listed {
            names.push(name);
        }
        is_listed
    }

    /// Whether a structure of this version has other members in the other version.
    fn differ(&self, other: &Self, name: &str) -> bool {
        let members = |definitions: &Self| {
            let code = without_comments(definitions.0.get(name).copied().unwrap_or_default());
            code.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        members(self) != members(other)
    }
}

/// The words of a text that can be the name of a structure.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("DAT_"))
}

fn without_comments(code: &str) -> String {
    let mut parts = code.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |code, part| code + part.split_once("*/").map_or("", |(_, after)| after))
}

/// A definition whose lines fit a page. If a member and the comment behind it do not fit, the
/// comment is moved above the member.
fn narrowed(definition: &str) -> String {
    if definition.lines().all(|line| line.len() <= CODE_WIDTH) {
        return definition.to_owned();
    }
    let mut lines: Vec<String> = Vec::new();
    let mut rest = definition.lines();
    while let Some(line) = rest.next() {
        // Comments that are not all behind their members need not be aligned.
        let line = match line.split_once("; ") {
            Some((member, comment)) => format!("{member}; {}", comment.trim_start()),
            None => line.to_owned(),
        };
        if line.len() <= CODE_WIDTH && line.trim() != "/*" {
            lines.push(line);
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let (code, mut comment) = match line.split_once("/*") {
            Some((code, comment)) => (code.trim_end(), comment.trim().to_owned()),
            None => (line.as_str(), String::new()),
        };
        while line.contains("/*") && !comment.ends_with("*/") {
            let Some(line) = rest.next() else { break };
            comment.push(' ');
            comment.push_str(line.trim().trim_start_matches("* "));
        }
        lines.extend(comment_lines(comment.trim_end_matches("*/").trim(), indent));
        if !code.trim().is_empty() {
            lines.push(code.to_owned());
        }
    }
    lines.join("\n")
}

/// The lines of a comment.
fn comment_lines(text: &str, indent: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let (first, next) = (format!("{indent}/* "), format!("{indent} * "));
    let options = textwrap::Options::new(CODE_WIDTH - " */".len())
        .initial_indent(&first)
        .subsequent_indent(&next)
        .break_words(false);
    let mut lines: Vec<_> = textwrap::wrap(text, options).into_iter().map(String::from).collect();
    if let Some(last) = lines.last_mut() {
        last.push_str(" */");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        Page { path: "dat_x.md".into(), name: "dat_x".into(), text: text.into() }
    }

    fn header(version: &str, text: &str) -> Header {
        Header { path: format!("include/{version}/dat.h").into(), text: text.into() }
    }

    const PAGE: &str = "# dat_x\n\nSays x.\n\n## Synopsis\n\n```c\n#include <dat2/udat.h>\n#include \
                        <dat/udat.h>\n\nint dat_x(DAT_P *p, DAT_N n);\n```\n\n## Return \
                        values\n\n- `DAT_A`: So.\n\n## Example\n";

    #[test]
    fn a_page_gets_the_structures_of_its_prototype_after_those_of_their_members() {
        let text = "\ntypedef int DAT_N; /* a number */\ntypedef int (*DAT_F)(DAT_P *);\n\n\
                    typedef enum e {\n    DAT_E\n} DAT_E;\n\n\
                    /* A point. */\ntypedef struct p {\n    DAT_U u; /* DAT_Z */\n    DAT_N n;\n} \
                    DAT_P;\n\ntypedef union u {\n    int i;\n} DAT_V;\ntypedef DAT_V DAT_U;\n\n\
                    typedef struct z {\n    int i;\n} DAT_Z;\n";
        let headers = [header("dat2", text), header("dat", text)];
        let expected = "\n- `DAT_A`: So.\n\n## Structures\n\n```c\ntypedef union u {\n    int \
                        i;\n} DAT_V;\n\ntypedef DAT_V DAT_U;\n\ntypedef struct p {\n    DAT_U u; \
                        /* DAT_Z */\n    DAT_N n;\n} DAT_P;\n```\n\n## Example\n";
        let text = with_structures(&page(PAGE), &headers);
        assert!(text.ends_with(expected), "{text}");
        // A page without structures stays as it is.
        let page = page(&PAGE.replace("DAT_P", "DAT_E"));
        assert_eq!(with_structures(&page, &headers), page.text);
    }

    #[test]
    fn a_structure_that_differs_between_versions_is_named() {
        let old = "\ntypedef struct p {\n    int i; /* old */\n} DAT_P;\n";
        let difference = |new: &str| {
            let headers = [header("dat2", new), header("dat", old)];
            let text = with_structures(&page(PAGE), &headers);
            text.contains("\nThis is the `DAT_P` of uDAPL 2.0. `<dat/udat.h>` has that of 1.2.\n")
        };
        assert!(!difference(&old.replace("old", "new")));
        assert!(difference(&old.replace("int", "long")));
    }

    #[test]
    fn long_lines_are_broken() {
        let long = "The comment of a member whose line is wider than a manual page.";
        let text = format!(
            "struct {{\n    int one; /* Short. */\n    int two; /* {long} */\n    /*\n     * Two\n     \
             * lines.\n     */\n    int three;\n}}"
        );
        let expected = "struct {\n    int one; /* Short. */\n    /* The comment of a member whose \
                        line is wider than a manual\n     * page. */\n    int two;\n    /* Two \
                        lines. */\n    int three;\n}";
        assert_eq!(narrowed(&text), expected);
    }
}
