//! Messages for people: what DAT_DBG_TYPE asks for, to where DAT_DBG_DEST says.
//!
//! The variables are those of OFED's libdat2. Unlike there, nothing goes to standard output unless asked:
//! without DAT_DBG_DEST messages go to standard error.

use std::ffi::CString;
use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::environment;

/// What a message is about: a bit of DAT_DBG_TYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum About {
    /// Something failed; on unless DAT_DBG_TYPE says otherwise.
    Error = 1,
    /// Loading and unloading of libraries.
    Library = 2,
    /// Entries read and chosen.
    StaticRegistry = 4,
    /// Providers registering and unregistering.
    DynamicRegistry = 8,
}

/// Bits of DAT_DBG_DEST.
const STDOUT: u32 = 1;
const SYSLOG: u32 = 2;

/// See [`leave_errors_to_the_caller`].
static HUSHED: AtomicBool = AtomicBool::new(false);

/// From here on the program prints errors itself, as they are returned; DAT_DBG_TYPE asks for them all the same.
pub fn leave_errors_to_the_caller() {
    HUSHED.store(true, Ordering::Relaxed);
}

struct Settings {
    /// None: as DAT_DBG_TYPE does not say.
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

/// Decimal or 0x and hexadecimal.
fn number(text: &str) -> Option<u32> {
    match text.trim().strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.trim().parse().ok(),
    }
}

/// Whether messages about this are wanted.
pub fn wants(about: About) -> bool {
    let unasked = if HUSHED.load(Ordering::Relaxed) { 0 } else { About::Error as u32 };
    settings().types.unwrap_or(unasked) & about as u32 != 0
}

/// Characters of a line that are shown.
const LONGEST_LINE: usize = 1000;

/// For a terminal: control characters, which a registry file or a provider may have put there, as escapes; lines and tabs stay.
/// Of a line that is very long, the beginning is shown.
pub fn printable(text: &str) -> String {
    let is_harmless = |c: char| !c.is_control() || c == '\n' || c == '\t';
    let mut printable = String::new();
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches('\n');
        let end = content.char_indices().nth(LONGEST_LINE).map(|(end, _)| end);
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

/// Writes a message, if messages about this are wanted. Its further lines are indented by their author.
pub fn say(about: About, message: impl fmt::Display) {
    if !wants(about) {
        return;
    }
    let destination = settings().destination;
    let message = printable(&message.to_string());
    // A closed standard stream is not worth failing for.
    if destination & STDOUT != 0 {
        let _ = writeln!(io::stdout(), "dat: {message}");
    }
    if destination & SYSLOG != 0
        && let Ok(text) = CString::new(format!("dat: {message}"))
    {
        // SAFETY: both strings are NUL-terminated, and the format takes one of them.
        unsafe { libc::syslog(libc::LOG_USER | libc::LOG_INFO, c"%s".as_ptr(), text.as_ptr()) };
    }
    if destination & (STDOUT | SYSLOG) == 0 {
        let _ = writeln!(io::stderr(), "dat: {message}");
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_LINE, number, printable};

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
        assert_eq!(text, format!("a\n{}… (2097152 octets)\nb\n", "µ".repeat(LONGEST_LINE)));
        let fits = "x".repeat(LONGEST_LINE);
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
