//! The reference in the book. mdBook calls `cargo xtask reference --book` as a preprocessor
//! (docs/book.toml): the command gets the book as JSON on standard input, adds a part with the
//! pages, makes links of their names in all chapters, and prints the book.

use std::io;

use anyhow::{Context, Result};
use reference::Page;
use serde_json::{Value, json};

/// The directory of the pages in the book.
const DIRECTORY: &str = "reference";

/// Reads the book from standard input, and prints it with the reference.
pub(super) fn preprocess(pages: &[Page]) -> Result<()> {
    let (_, mut book): (Value, Value) =
        serde_json::from_reader(io::stdin()).context("mdBook calls this command with a book")?;
    let sections = book["sections"].as_array_mut().context("the book has no sections")?;
    add(sections, pages);
    serde_json::to_writer(io::stdout(), &book)?;
    Ok(())
}

/// Adds the pages to a book as another part. Makes links to the pages in all chapters.
fn add(sections: &mut Vec<Value>, pages: &[Page]) {
    for section in sections.iter_mut() {
        link_chapter(section, pages, &format!("{DIRECTORY}/"));
    }
    sections.push(json!({ "PartTitle": "Reference of the C functions" }));
    let (functions, overviews): (Vec<_>, Vec<_>) = pages.iter().partition(|p| p.is_function());
    for page in overviews.into_iter().chain(functions) {
        let mut chapter = chapter(page);
        link_chapter(&mut chapter, pages, "");
        sections.push(chapter);
    }
}

fn chapter(page: &Page) -> Value {
    let path = format!("{DIRECTORY}/{}.md", page.name);
    json!({ "Chapter": {
        "name": page.name,
        "content": page.text,
        "number": null,
        "sub_items": [],
        "path": path,
        "source_path": null,
        "parent_names": [],
    } })
}

/// Makes links in a chapter and in the chapters below it. `prefix` leads to the pages.
fn link_chapter(section: &mut Value, pages: &[Page], prefix: &str) {
    let Some(chapter) = section.get_mut("Chapter") else { return };
    if let Some(text) = chapter["content"].as_str() {
        chapter["content"] = with_links(text, pages, prefix).into();
    }
    for below in chapter["sub_items"].as_array_mut().into_iter().flatten() {
        link_chapter(below, pages, prefix);
    }
}

/// The text with links from the names of functions to their pages. Headings, code blocks and
/// existing links stay as they are.
fn with_links(text: &str, pages: &[Page], prefix: &str) -> String {
    let mut is_code = false;
    let lines = text.split_inclusive('\n').map(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        match is_code || is_fence || line.starts_with('#') {
            true => line.to_owned(),
            false => line_with_links(line, pages, prefix),
        }
    });
    lines.collect()
}

fn line_with_links(line: &str, pages: &[Page], prefix: &str) -> String {
    let mut parts = line.split('`');
    let mut linked = parts.next().unwrap_or_default().to_owned();
    // After the text before the first backtick, code and text follow in turn.
    while let Some(code) = parts.next() {
        let Some(text) = parts.next() else {
            return linked + "`" + code;
        };
        linked += &match page_for(code, pages, prefix) {
            Some(page) if !linked.ends_with('[') => {
                format!("[`{code}`]({prefix}{}.md)", page.name)
            }
            _ => format!("`{code}`"),
        };
        linked += text;
    }
    linked
}

/// The page to which a chapter's code leads. Outside of the reference, `dat` is the program.
fn page_for<'p>(code: &str, pages: &'p [Page], prefix: &str) -> Option<&'p Page> {
    let is_program = code == "dat" && !prefix.is_empty();
    pages.iter().find(|page| !is_program && page.documents(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str, text: &str) -> Page {
        Page { path: format!("{name}.md").into(), name: name.into(), text: text.into() }
    }

    #[test]
    fn the_book_gets_the_pages_and_links_to_them() {
        let function = "# dat_x\n\nDoes x.\n\n## Return values\n\nSee `dat` and `dat_y`.\n";
        let pages = [page("dat_x", function), page("dat", "# dat\n\nTells of `dat_x`.\n")];
        let text =
            "# `dat_x`\n\nRun `dat`. Call `dat_x`, or [`dat_x`](a.md).\n\n```c\n`dat_x`\n```\n";
        let mut sections = vec![json!({ "Chapter": {
            "content": text,
            "sub_items": [{ "Chapter": { "content": "`dat_x`", "sub_items": [] } }],
        } })];
        add(&mut sections, &pages);
        let contents = |section: &Value| section["Chapter"]["content"].as_str().map(str::to_owned);
        let expected = "# `dat_x`\n\nRun `dat`. Call [`dat_x`](reference/dat_x.md), or \
                        [`dat_x`](a.md).\n\n```c\n`dat_x`\n```\n";
        assert_eq!(contents(&sections[0]).as_deref(), Some(expected));
        let below = &sections[0]["Chapter"]["sub_items"][0];
        assert_eq!(contents(below).as_deref(), Some("[`dat_x`](reference/dat_x.md)"));
        assert_eq!(sections[1], json!({ "PartTitle": "Reference of the C functions" }));
        assert_eq!(sections[2]["Chapter"]["path"], "reference/dat.md");
        assert_eq!(
            contents(&sections[2]).as_deref(),
            Some("# dat\n\nTells of [`dat_x`](dat_x.md).\n")
        );
        let linked = function.replace("`dat`", "[`dat`](dat.md)");
        assert_eq!(contents(&sections[3]), Some(linked));
    }
}
