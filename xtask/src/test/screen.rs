//! Prints the output of a run: a line per failure, and the progress. On a terminal the last line is
//! redrawn; elsewhere a new line is printed every ten seconds.

use std::env;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The destination of the output.
pub(crate) struct Screen {
    terminal: bool,
    colour: bool,
    /// The time at which the progress was last printed.
    printed_at: Option<Instant>,
}

/// The interval at which the progress is printed if the line is not redrawn.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// The width that is assumed for a terminal that does not report its width.
const DEFAULT_WIDTH: usize = 80;

#[derive(Clone, Copy)]
pub(crate) enum Colour {
    Red,
    Green,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let terminal = io::stdout().is_terminal();
        let colour = terminal && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { terminal, colour, printed_at: None }
    }

    /// Prints text that stays on the screen.
    pub(crate) fn print(&mut self, text: impl Display) {
        println!("{}{text}", self.erase());
    }

    /// Prints text that begins with a coloured word.
    pub(crate) fn print_marked(&mut self, colour: Colour, word: &str, text: impl Display) {
        let code = match colour {
            Colour::Red => 31,
            Colour::Green => 32,
        };
        if self.colour {
            self.print(format!("\x1b[1;{code}m{word}\x1b[0m {text}"))
        } else {
            self.print(format!("{word} {text}"))
        }
    }

    /// Shows the progress, unless it was shown a moment ago.
    pub(crate) fn progress(&mut self, line: impl FnOnce() -> String) {
        if self.terminal {
            let line: String = line().chars().take(columns()).collect();
            print!("{}{line}", self.erase());
            io::stdout().flush().ok();
        } else if self.printed_at.is_none_or(|printed_at| printed_at.elapsed() >= PROGRESS_INTERVAL)
        {
            println!("{}", line());
            self.printed_at = Some(Instant::now());
        }
    }

    /// Removes the progress line.
    pub(crate) fn clear(&mut self) {
        print!("{}", self.erase());
    }

    fn erase(&self) -> &'static str {
        if self.terminal { "\r\x1b[2K" } else { "" }
    }
}

/// Returns the width that the shell exports, minus one column for the cursor.
fn columns() -> usize {
    env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok())
        .unwrap_or(DEFAULT_WIDTH)
        .saturating_sub(1)
}

/// Formats a duration: `2:05` or `1:02:05`.
pub(crate) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::clock;

    #[test]
    fn times_are_read_easily() {
        let seconds = Duration::from_secs;
        assert_eq!([5, 125, 3725].map(|time| clock(seconds(time))), ["0:05", "2:05", "1:02:05"]);
    }
}
