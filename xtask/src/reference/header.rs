//! The C headers: their prototypes, and the comments that come from the reference.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use reference::{Page, Prototype};

/// The width of a comment.
const WIDTH: usize = 100;
/// The width of code on a page: that of a terminal, less the indent of a manual page.
pub(super) const CODE_WIDTH: usize = 71;
/// The beginning of a prototype.
const EXTERN: &str = "extern ";
/// The end of each comment that comes from the reference.
const MANUAL: &str = "(3dat).\n */\n";

/// A header.
pub(super) struct Header {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Header {
    pub(super) fn read(path: PathBuf) -> Result<Self> {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Header { path, text })
    }

    /// The names of all functions that the header declares.
    pub(super) fn functions(&self) -> Vec<String> {
        let declared = self.text.match_indices("\nextern ").filter_map(|(at, _)| {
            let (declaration, _) = self.text[at + 1..].split_once('(')?;
            declaration.split_whitespace().next_back().map(str::to_owned)
        });
        declared.filter(|name| name.starts_with("dat_")).collect()
    }

    /// The position of a function's prototype, and its length.
    fn find(&self, function: &str) -> Option<(usize, usize)> {
        self.text.match_indices("\nextern ").find_map(|(before, _)| {
            let at = before + 1;
            let len = self.text[at..].find(";\n")? + 1;
            let (head, _) = self.text[at..][..len].split_once('(')?;
            (head.split_whitespace().next_back() == Some(function)).then_some((at, len))
        })
    }

    /// A function's prototype.
    pub(super) fn prototype(&self, function: &str) -> Option<Prototype> {
        let (at, len) = self.find(function)?;
        let version = self.path.parent()?.file_name()?.to_string_lossy();
        let own = self.path.file_name()?.to_string_lossy();
        let file = if own.starts_with("dat_") { own.as_ref() } else { "udat.h" };
        let text = self.text[at..][..len].replacen(EXTERN, "", 1).replacen("DAT_API ", "", 1);
        Some(Prototype { include: format!("#include <{version}/{file}>"), text: narrowed(&text) })
    }

    /// The names of all macros with arguments.
    fn macros(&self) -> Vec<String> {
        let defined = self.text.split("\n#define ").skip(1);
        let names =
            defined.filter_map(|definition| Some(definition.lines().next()?.split_once('(')?.0));
        names.filter(|name| name.starts_with("dat_")).map(str::to_owned).collect()
    }

    /// The position of a macro's definition, and the length of its first line.
    fn find_macro(&self, name: &str) -> Option<(usize, usize)> {
        let at = self.text.find(&format!("\n#define {name}("))? + 1;
        Some((at, self.text[at..].find('\n')?))
    }

    /// Whether the header declares a function, or defines a macro, that the page documents.
    pub(super) fn declares(&self, page: &Page) -> bool {
        self.functions().iter().chain(&self.macros()).any(|name| page.documents(name))
    }

    /// Puts comments above the prototypes of the functions, and above the macros, that the page
    /// documents.
    pub(super) fn set_comments(&mut self, page: &Page) {
        for function in self.functions().into_iter().chain(self.macros()) {
            if page.documents(&function) {
                self.set_comment(&function, page);
            }
        }
    }

    fn set_comment(&mut self, function: &str, page: &Page) {
        let Some((at, len)) = self.find(function).or_else(|| self.find_macro(function)) else {
            return;
        };
        let prototype = &self.text[at..][..len];
        let comment = comment(page, prototype);
        let before = &self.text[..at];
        let start = match before.ends_with(MANUAL) {
            true => before.rfind("/*").unwrap_or(at),
            false => at,
        };
        self.text.replace_range(start..at, &comment);
    }
}

/// A prototype whose lines fit a page.
fn narrowed(prototype: &str) -> String {
    let Some((head, arguments)) = prototype.split_once('(') else { return prototype.to_owned() };
    if prototype.lines().all(|line| line.len() <= CODE_WIDTH) {
        return prototype.to_owned();
    }
    let arguments = arguments.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut narrow = format!("{head}(");
    let mut columns = CODE_WIDTH;
    // Each line has as many whole arguments as fit.
    for argument in arguments.split_inclusive(", ").map(str::trim_end) {
        if columns + 1 + argument.len() > CODE_WIDTH {
            narrow += "\n    ";
            columns = 4;
        } else {
            narrow += " ";
            columns += 1;
        }
        narrow += argument;
        columns += argument.len();
    }
    narrow
}

/// The comment for a function: what it does, and its arguments with their rules for NULL.
fn comment(page: &Page, prototype: &str) -> String {
    let mut lines = vec![plain(page.summary())];
    for item in page.items("Arguments") {
        let item = plain(&shortened(&item));
        // A page has the arguments of both versions.
        let name = item.split([':', ' ']).next().unwrap_or_default();
        let has = prototype.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == name);
        if has {
            lines.extend(wrapped(&item, "    "));
        }
    }
    let text: String = lines.iter().map(|line| format!(" * {line}\n")).collect();
    format!("/*\n{text} * See {}{MANUAL}", page.name)
}

/// The text without Markdown. A name that is cut short, as in `DAT_IA_FIELD_...`, gets no full stop
/// behind its dots.
fn plain(text: &str) -> String {
    text.replace(['`', '*'], "").replace("....", "...")
}

/// The first sentence of a text, and all other sentences that are about NULL.
fn shortened(text: &str) -> String {
    let mut sentences = sentences(text).into_iter();
    let first = sentences.next().unwrap_or_default();
    let others = sentences.filter(|sentence| sentence.contains("NULL"));
    std::iter::once(first).chain(others).collect::<Vec<_>>().join(" ")
}

/// The sentences of a text.
fn sentences(text: &str) -> Vec<&str> {
    let mut rest = text;
    let mut sentences = Vec::new();
    let ends = text.match_indices(". ").map(|(at, _)| at);
    // A name that is cut short ends in dots of its own.
    for end in ends.filter(|&at| !text[..at].ends_with('.')) {
        let (sentence, after) = rest.split_at(end + 1 - (text.len() - rest.len()));
        sentences.push(sentence);
        rest = &after[1..];
    }
    sentences.push(rest);
    sentences
}

/// The lines of a text. All except the first begin with `indent`.
fn wrapped(text: &str, indent: &str) -> Vec<String> {
    let options = textwrap::Options::new(WIDTH - " * ".len())
        .subsequent_indent(indent)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::wrap(text, options).into_iter().map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let text = "# dat_x_free\n\nFrees an X.\n\n## Arguments\n\n- `x_handle`: The *X*. It may \
                    be used. NULL is refused.\n- `flags`: Only in 1.2.\n\n## Return values\n\n- `DAT_SUCCESS`: So.\n";
        Page { path: "dat_x_free.md".into(), name: "dat_x_free".into(), text: text.into() }
    }

    #[test]
    fn a_comment_is_put_above_the_prototype_and_replaced_the_next_time() {
        let text = "#include <a.h>\n\nextern DAT_RETURN DAT_API dat_x_free(X x_handle);\n";
        let mut header = Header { path: "include/dat2/udat.h".into(), text: text.into() };
        for summary in ["Frees an X.", "Ends an X."] {
            let mut page = page();
            page.text = page.text.replace("Frees an X.", summary);
            header.set_comments(&page);
            assert!(header.prototype("dat_x_free").is_some(), "{}", header.text);
            let expected = format!(
                "#include <a.h>\n\n/*\n * {summary}\n * x_handle: The X. NULL is refused.\n * \
                 See dat_x_free(3dat).\n */\nextern DAT_RETURN DAT_API dat_x_free(X x_handle);\n"
            );
            assert_eq!(header.text, expected);
        }
        assert_eq!(header.functions(), ["dat_x_free"]);
    }

    #[test]
    fn sentences_end_with_full_stops() {
        let text = "See `DAT_X_...`. Then i.e. NULL. And 2.0 too.";
        assert_eq!(sentences(text), ["See `DAT_X_...`.", "Then i.e.", "NULL.", "And 2.0 too."]);
        assert_eq!(plain(&shortened(text)), "See DAT_X_... NULL.");
        assert_eq!(shortened("One sentence"), "One sentence");
    }

    #[test]
    fn a_macro_gets_a_comment_too() {
        let text = "#include <a.h>\n\n#define dat_x_free(x_handle) \\\n    dat_op(x_handle)\n";
        let mut header = Header { path: "include/dat2/x.h".into(), text: text.into() };
        for _ in 0..2 {
            header.set_comments(&page());
            let expected = "#include <a.h>\n\n/*\n * Frees an X.\n * x_handle: The X. NULL is \
                            refused.\n * See dat_x_free(3dat).\n */\n#define dat_x_free(x_handle) \\\n    \
                            dat_op(x_handle)\n";
            assert_eq!(header.text, expected);
        }
    }

    #[test]
    fn a_long_prototype_is_broken_between_arguments() {
        let prototype = "DAT_RETURN dat_x(\n    DAT_LMR_TRIPLET *first_argument_of_the_function, \
                         DAT_RMR_TRIPLET *second_argument,\n    DAT_COUNT third);";
        let expected = "DAT_RETURN dat_x(\n    DAT_LMR_TRIPLET *first_argument_of_the_function,\n    \
                        DAT_RMR_TRIPLET *second_argument, DAT_COUNT third);";
        assert_eq!(narrowed(prototype), expected);
        assert_eq!(narrowed("int dat_x(void);"), "int dat_x(void);");
    }

    #[test]
    fn a_page_gets_the_prototypes() {
        let text = "\nextern DAT_RETURN DAT_API dat_x_free(X x_handle);\n";
        let header = Header { path: "include/dat2/udat.h".into(), text: text.into() };
        let prototypes = [header.prototype("dat_x_free").unwrap()];
        let mut page = page();
        for _ in 0..2 {
            page.text = page.with_synopsis(&prototypes);
            let expected = "Frees an X.\n\n## Synopsis\n\n```c\n#include <dat2/udat.h>\n\n\
                            DAT_RETURN dat_x_free(X x_handle);\n```\n\nLink with `-ldat2`.\n\n\
                            ## Arguments\n\n";
            assert!(page.text.contains(expected), "{}", page.text);
        }
    }
}
