//! Messages of the registry. DAT_DBG_TYPE selects the messages, and DAT_DBG_DEST selects their
//! destination.
//!
//! The variables are those of OFED's libdat2. Unlike the messages of OFED's libdat2, those of this
//! registry go to standard error if DAT_DBG_DEST is not set.

use std::ffi::CString;
use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::environment;

/// The category of a message: a bit of DAT_DBG_TYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Category {
    /// A failure. This category is enabled unless DAT_DBG_TYPE is set without this bit.
    Error = 1,
    /// A library is loaded or unloaded.
    Library = 2,
    /// An entry is read or chosen.
    StaticRegistry = 4,
    /// A provider registers or unregisters.
    DynamicRegistry = 8,
}

/// The bits of DAT_DBG_DEST.
const STDOUT: u32 = 1;
const SYSLOG: u32 = 2;

/// Whether [`leave_errors_to_the_caller`] was called.
static ERRORS_LEFT_TO_CALLER: AtomicBool = AtomicBool::new(false);

/// Declares that the program prints returned errors itself. The registry then prints errors only if
/// DAT_DBG_TYPE requests them.
pub fn leave_errors_to_the_caller() {
    ERRORS_LEFT_TO_CALLER.store(true, Ordering::Relaxed);
}

struct Settings {
    /// The value of DAT_DBG_TYPE. `None` if it is not set.
    types: Option<u32>,
    destination: u32,
}

fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings {
        types: variable("DAT_DBG_TYPE"),
        destination: variable("DAT_DBG_DEST").unwrap_or(0),
    })
}

fn variable(name: &str) -> Option<u32> {
    number(environment::variable(name)?.to_str()?)
}

/// Parses a decimal number, or a hexadecimal one after 0x.
fn number(text: &str) -> Option<u32> {
    match text.trim().strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.trim().parse().ok(),
    }
}

/// Whether messages of this category are enabled.
pub fn is_enabled(category: Category) -> bool {
    let default =
        if ERRORS_LEFT_TO_CALLER.load(Ordering::Relaxed) { 0 } else { Category::Error as u32 };
    settings().types.unwrap_or(default) & category as u32 != 0
}

/// The number of characters of a line that are shown.
const MAX_LINE_CHARS: usize = 1000;

/// Makes a text safe for a terminal. Control characters, which a registry file or a provider may
/// have put there, become escapes; line ends and tabs stay. Very long lines are truncated.
pub fn printable(text: &str) -> String {
    let is_harmless = |c: char| !c.is_control() || c == '\n' || c == '\t';
    let mut printable = String::new();
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches('\n');
        let end = content.char_indices().nth(MAX_LINE_CHARS).map(|(end, _)| end);
        for c in content[..end.unwrap_or(content.len())].chars() {
            match is_harmless(c) {
                true => printable.push(c),
                false => printable.extend(c.escape_default()),
            }
        }
        if end.is_some() {
            printable += &format!("… ({} octets)", content.len());
        }
        printable += &line[content.len()..];
    }
    printable
}

/// Writes a message if its category is enabled. The caller indents further lines of the message.
pub fn log(category: Category, message: impl fmt::Display) {
    if !is_enabled(category) {
        return;
    }
    let destination = settings().destination;
    let message = printable(&message.to_string());
    // Errors of printing are ignored, because a closed standard stream must not cause a failure.
    if destination & STDOUT != 0 {
        let _ = writeln!(io::stdout(), "dat: {message}");
    }
    if destination & SYSLOG != 0
        && let Ok(text) = CString::new(format!("dat: {message}"))
    {
        // SAFETY: both strings are NUL-terminated, and the format takes exactly one string.
        unsafe { libc::syslog(libc::LOG_USER | libc::LOG_INFO, c"%s".as_ptr(), text.as_ptr()) };
    }
    if destination & (STDOUT | SYSLOG) == 0 {
        let _ = writeln!(io::stderr(), "dat: {message}");
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINE_CHARS, number, printable};

    #[test]
    fn a_terminal_is_told_nothing() {
        assert_eq!(
            printable("\tname \u{1b}[2J\u{7}\u{9b}\nµ"),
            "\tname \\u{1b}[2J\\u{7}\\u{9b}\nµ"
        );
    }

    #[test]
    fn of_a_long_line_the_beginning_is_shown() {
        let long = "µ".repeat(1 << 20);
        let text = printable(&format!("a\n{long}\nb\n"));
        assert_eq!(text, format!("a\n{}… (2097152 octets)\nb\n", "µ".repeat(MAX_LINE_CHARS)));
        let fits = "x".repeat(MAX_LINE_CHARS);
        assert_eq!(printable(&fits), fits);
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(number("255"), Some(255));
        assert_eq!(number(" 0xff "), Some(255));
        assert_eq!(number(""), None);
        assert_eq!(number("all"), None);
    }
}
