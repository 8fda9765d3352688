//! What a run shows: a line for each failure, and how far it is. On a terminal the last line is redrawn;
//! elsewhere a new one is printed every ten seconds.

use std::env;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Where it is shown.
pub(crate) struct Screen {
    terminal: bool,
    colour: bool,
    /// When the line that tells how far it is was printed last.
    told: Option<Instant>,
}

/// So long nothing new may be seen.
const SILENCE: Duration = Duration::from_secs(10);
/// What a terminal shows without breaking the line, if it does not say how wide it is.
const WIDTH: usize = 80;

#[derive(Clone, Copy)]
pub(crate) enum Colour {
    Red,
    Green,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let terminal = io::stdout().is_terminal();
        let colour = terminal && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { terminal, colour, told: None }
    }

    /// Prints something that stays.
    pub(crate) fn say(&mut self, text: impl Display) {
        println!("{}{text}", self.erase());
    }

    /// The same beginning with a coloured word.
    pub(crate) fn mark(&mut self, colour: Colour, word: &str, text: impl Display) {
        let code = match colour {
            Colour::Red => 31,
            Colour::Green => 32,
        };
        if self.colour {
            self.say(format!("\x1b[1;{code}m{word}\x1b[0m {text}"))
        } else {
            self.say(format!("{word} {text}"))
        }
    }

    /// Shows how far it is, unless that was shown a moment ago.
    pub(crate) fn progress(&mut self, line: impl FnOnce() -> String) {
        if self.terminal {
            let line: String = line().chars().take(columns()).collect();
            print!("{}{line}", self.erase());
            io::stdout().flush().ok();
        } else if self.told.is_none_or(|told| told.elapsed() >= SILENCE) {
            println!("{}", line());
            self.told = Some(Instant::now());
        }
    }

    /// Takes the line away that tells how far it is.
    pub(crate) fn clear(&mut self) {
        print!("{}", self.erase());
    }

    fn erase(&self) -> &'static str {
        if self.terminal { "\r\x1b[2K" } else { "" }
    }
}

/// What shells tell, where they export it, less one column for the cursor.
fn columns() -> usize {
    env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok())
        .unwrap_or(WIDTH)
        .saturating_sub(1)
}

/// `2:05` or `1:02:05`.
pub(crate) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

/// A time that is not known to the second: `less than a minute`, `about 3 min`.
pub(crate) fn about(time: Duration) -> String {
    match (time.as_secs() + 30) / 60 {
        0 => "less than a minute".to_owned(),
        minutes => format!("about {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{about, clock};

    #[test]
    fn times_are_read_easily() {
        let seconds = Duration::from_secs;
        assert_eq!([5, 125, 3725].map(|time| clock(seconds(time))), ["0:05", "2:05", "1:02:05"]);
        assert_eq!(
            [29, 30, 200].map(|time| about(seconds(time))),
            ["less than a minute", "about 1 min", "about 3 min"]
        );
    }
}
