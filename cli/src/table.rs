//! Aligned columns, and colours where a person looks.

use std::io::{IsTerminal, stdout};

/// How a column is aligned.
#[derive(Clone, Copy)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Columns of fixed width, so that rows can be printed as they come.
pub(crate) struct Table<const N: usize> {
    pub(crate) columns: [(Align, usize); N],
}

impl<const N: usize> Table<N> {
    /// A line without its end.
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

/// A colour, by what it says.
#[derive(Clone, Copy)]
pub(crate) enum Colour {
    Good,
    Bad,
    Faint,
    Strong,
}

/// The text in colour, if standard output is a terminal that wants it (<https://no-color.org>).
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
}
