//! Prints tables with aligned columns, and colours on a terminal.

use std::io::stdout;

use anstyle::{AnsiColor, Style};

/// The alignment of a column.
#[derive(Clone, Copy)]
pub enum Align {
    /// Blanks follow the text.
    Left,
    /// Blanks precede the text.
    Right,
}

/// A table with columns of fixed width, so that rows can be printed before all rows are known.
pub struct TextTable<const N: usize> {
    /// The alignment and the width of each column.
    pub columns: [(Align, usize); N],
}

impl<const N: usize> TextTable<N> {
    /// Returns a line without its newline.
    pub fn row<S: AsRef<str>>(&self, cells: [S; N]) -> String {
        let mut line = String::new();
        for (cell, (align, width)) in cells.iter().zip(self.columns) {
            let cell = cell.as_ref();
            match align {
                Align::Left => line.push_str(&format!("{cell:<width$}  ")),
                Align::Right => line.push_str(&format!("{cell:>width$}  ")),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// The usual width of a terminal.
pub const TERMINAL_WIDTH: usize = 80;

/// Wraps text to the width of a terminal, without a final newline. Each line after the first begins
/// with `indent`. A word that does not fit stays whole.
pub fn wrapped(text: &str, indent: &str) -> String {
    let options = textwrap::Options::new(TERMINAL_WIDTH)
        .subsequent_indent(indent)
        .break_words(false)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .wrap_algorithm(textwrap::WrapAlgorithm::FirstFit);
    textwrap::fill(text, options)
}

/// A colour, named by its meaning.
#[derive(Clone, Copy)]
pub enum Colour {
    /// Something is as it should be.
    Good,
    /// Something is wrong.
    Bad,
    /// A remark.
    Faint,
    /// A heading.
    Strong,
}

/// Colours the text if standard output is a terminal that supports it (<https://no-color.org>).
pub fn colour(text: &str, colour: Colour) -> String {
    if anstream::AutoStream::choice(&stdout()) == anstream::ColorChoice::Never {
        return text.to_owned();
    }
    let style = match colour {
        Colour::Good => AnsiColor::Green.on_default(),
        Colour::Bad => AnsiColor::Red.on_default(),
        Colour::Faint => Style::new().dimmed(),
        Colour::Strong => Style::new().bold(),
    };
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let table = TextTable { columns: [(Align::Left, 6), (Align::Right, 5), (Align::Left, 3)] };
        assert_eq!(table.row(["send", "1 µs", "yes"]), "send     1 µs  yes");
        assert_eq!(table.row(["", "12345", ""]), "        12345");
    }

    #[test]
    fn lines_fit_a_terminal_where_words_do() {
        let long = "x".repeat(90);
        let text = format!("    begins {} {long} ends", "µµµµ ".repeat(20).trim_end());
        let lines = wrapped(&text, "      ");
        let lines: Vec<&str> = lines.lines().collect();
        assert!(
            lines[0].starts_with("    begins µµµµ") && lines[0].chars().count() <= TERMINAL_WIDTH,
            "{lines:?}"
        );
        assert!(lines[1].starts_with("      µµµµ"), "{lines:?}");
        assert_eq!(lines[2..], [format!("      {long}"), "      ends".to_owned()]);
        assert_eq!(wrapped("short", "  "), "short");
    }
}
