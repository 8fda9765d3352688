//! Manual pages for man(1).

use std::mem;

use anyhow::{Result, bail};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use reference::Page;
use roff::{Inline, Roff, bold, italic, roman};

use super::header::CODE_WIDTH;

/// Renders a page as a manual page.
pub(super) fn render(page: &Page) -> Result<String> {
    let mut manual = Manual::default();
    manual.roff.control("SH", ["NAME"]);
    let summary = page.summary().trim_end_matches('.');
    manual.roff.text([roman(format!("{} - {summary}", page.name))]);
    let body = page.text.split_once("\n## ").map_or("", |(head, _)| &page.text[head.len()..]);
    for event in Parser::new_ext(body, Options::ENABLE_TABLES) {
        manual.add(event)?;
    }
    // The first line tells man(1) that the page has tables. The third argument of the title is the
    // date, which is empty: a page is the same whenever it is made.
    let (name, version) = (&page.name, env!("CARGO_PKG_VERSION"));
    let title = format!(".TH {name} 3dat \"\" \"OpenDAT {version}\" \"OpenDAT\"");
    Ok(format!("'\\\" t\n{title}\n{}", manual.roff.to_roff()))
}

/// The part of the page that is being read.
#[derive(Clone, Copy, Default, PartialEq)]
enum Part {
    #[default]
    Text,
    Heading,
    Code,
    /// The beginning of a list's item, up to a colon.
    Term,
    Item,
    Table,
}

/// A manual page that is being made.
#[derive(Default)]
struct Manual {
    roff: Roff,
    /// The words of the line that is not in `roff` yet.
    line: Vec<Inline>,
    part: Part,
    /// Whether the section refers to other pages.
    is_see_also: bool,
    emphasis: bool,
    /// The number of columns of the table.
    columns: usize,
}

impl Manual {
    fn add(&mut self, event: Event<'_>) -> Result<()> {
        match event {
            Event::Start(Tag::Heading { .. }) => self.part = Part::Heading,
            Event::Start(Tag::Paragraph) if self.part == Part::Text => {
                self.roff.control("PP", []);
            }
            Event::Start(Tag::CodeBlock(_)) => self.part = Part::Code,
            Event::Start(Tag::Item) => {
                self.part = Part::Term;
                self.roff.control("TP", []);
            }
            Event::Start(Tag::Table(columns)) => {
                (self.part, self.columns) = (Part::Table, columns.len());
                self.roff.control("PP", []).control("TS", []);
                self.roff.text([roman("allbox;")]);
                self.roff.text([roman(format!("{}lx.", "l ".repeat(columns.len() - 1)))]);
            }
            Event::Start(Tag::TableCell) => self.line.push(roman("T{\n")),
            Event::End(TagEnd::TableCell) => self.line.push(roman("\nT}\t")),
            Event::End(TagEnd::TableHead | TagEnd::TableRow) => {
                self.line.pop();
                self.line.push(roman("\nT}"));
                self.flush();
            }
            Event::End(TagEnd::Table) => {
                self.part = Part::Text;
                self.roff.control("TE", []);
            }
            Event::End(TagEnd::CodeBlock) => {
                if let Some(Inline::Roman(last)) = self.line.last_mut() {
                    last.truncate(last.trim_end().len());
                }
                // Only a figure is wider than code, and it is as wide as a terminal.
                let is_wide = |inline: &Inline| match inline {
                    Inline::Roman(text) => text.lines().any(|line| line.len() > CODE_WIDTH),
                    _ => false,
                };
                let indent = if self.line.iter().any(is_wide) { "0" } else { "+2n" };
                self.roff.control("PP", []).control("in", [indent]).control("nf", []);
                self.end_block();
                self.roff.control("fi", []).control("in", []);
            }
            Event::End(TagEnd::Item | TagEnd::Heading(_) | TagEnd::Paragraph) => self.end_block(),
            Event::Start(Tag::Emphasis | Tag::Strong) => self.emphasis = true,
            Event::End(TagEnd::Emphasis | TagEnd::Strong) => self.emphasis = false,
            Event::Code(code) => {
                self.line.push(bold(code.into_string()));
                if self.is_see_also {
                    self.line.push(roman("(3dat)"));
                }
            }
            Event::Text(text) => self.add_text(&text),
            Event::SoftBreak => self.line.push(roman(" ")),
            Event::Start(Tag::Paragraph | Tag::List(_) | Tag::Link { .. } | Tag::TableHead)
            | Event::Start(Tag::TableRow)
            | Event::End(TagEnd::List(_) | TagEnd::Link) => {}
            other => bail!("a manual page cannot have {other:?}"),
        }
        Ok(())
    }

    fn add_text(&mut self, text: &str) {
        match self.part {
            Part::Heading => {
                self.is_see_also = text == "See also";
                self.roff.control("SH", [text.to_uppercase().as_str()]);
            }
            Part::Code => self.line.push(roman(text)),
            Part::Term if text.starts_with(':') => {
                self.flush();
                self.part = Part::Item;
                self.line.push(roman(text.trim_start_matches(':').trim_start()));
            }
            _ if self.emphasis => self.line.push(italic(text)),
            _ => self.line.push(roman(text)),
        }
    }

    /// Ends a paragraph, a heading or an item of a list.
    fn end_block(&mut self) {
        // An item without a colon has no term.
        if self.part == Part::Term {
            self.roff.text([roman("\u{2022}")]);
        }
        self.flush();
        self.part = Part::Text;
    }

    fn flush(&mut self) {
        if !self.line.is_empty() {
            self.roff.text(mem::take(&mut self.line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_a_manual_page() {
        let text = "# dat_x\n\nDoes x.\n\n## Arguments\n\n- `a` `b`: The *first*\n  one.\n- `c`: Not \
                    -1.\n\n## Description\n\nA\nparagraph.\n\n| a | b |\n|---|---|\n| 1 | `2` \
                    |\n\n## Example\n\n```c\nint x = '\\0';\n\nreturn;\n```\n\n## See \
                    also\n\n`dat_y`\n";
        let page = Page { path: "x.md".into(), name: "dat_x".into(), text: text.into() };
        let manual = render(&page).unwrap();
        let (title, body) = manual.split_once(".SH NAME\n").unwrap();
        assert!(title.contains("\n.TH dat_x 3dat \"\" \"OpenDAT "), "{title}");
        assert_eq!(
            body,
            "dat_x \\- Does x\n.SH ARGUMENTS\n.TP\n\\fBa\\fR \\fBb\\fR\nThe \\fIfirst\\fR \
             one.\n.TP\n\\fBc\\fR\nNot \\-1.\n.SH DESCRIPTION\n.PP\nA \
             paragraph.\n.PP\n.TS\nallbox;\nl lx.\nT{\na\nT}\tT{\nb\nT}\nT{\n1\nT}\tT{\n\\fB2\\fR\
             \nT}\n.TE\n.SH EXAMPLE\n.PP\n.in +2n\n.nf\nint x = '\\\\0';\n\nreturn;\n.fi\n.in\n\
             .SH \"SEE ALSO\"\n.PP\n\\fBdat_y\\fR(3dat)\n"
        );
    }
}
