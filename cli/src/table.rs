//! Prints tables with aligned columns, and colours on a terminal.

use std::io::{IsTerminal, stdout};

/// The alignment of a column.
#[derive(Clone, Copy)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table with columns of fixed width, so that rows can be printed before all rows are known.
pub(crate) struct Table<const N: usize> {
    pub(crate) columns: [(Align, usize); N],
}

impl<const N: usize> Table<N> {
    /// Returns a line without its newline.
    pub(crate) fn row<S: AsRef<str>>(&self, cells: [S; N]) -> String {
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
pub(crate) const TERMINAL_WIDTH: usize = 80;

/// Wraps text to the width of a terminal, without a final newline. Each line after the first begins
/// with `indent`. A word that does not fit stays whole.
pub(crate) fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for (index, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if index > 0 && column + 1 + length > TERMINAL_WIDTH {
            lines.push('\n');
            lines.push_str(indent);
            column = indent.chars().count();
        } else if index > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    lines
}

/// A colour, named by its meaning.
#[derive(Clone, Copy)]
pub(crate) enum Colour {
    Good,
    Bad,
    Faint,
    Strong,
}

/// Colours the text if standard output is a terminal that supports it (<https://no-color.org>).
pub(crate) fn colour(text: &str, colour: Colour) -> String {
    let wanted = stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    let code = match colour {
        Colour::Good => 32,
        Colour::Bad => 31,
        Colour::Faint => 2,
        Colour::Strong => 1,
    };
    if wanted { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let table = Table { columns: [(Align::Left, 6), (Align::Right, 5), (Align::Left, 3)] };
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
