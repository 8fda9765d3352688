//! Messages to the user, in plain words. All crates of the library write messages to one
//! destination in one format.

use std::cell::RefCell;
use std::fmt;

use crate::line::json_line;
use crate::settings::settings;

/// The category of a message. The variable DAT_DBG_TYPE selects categories, with the same bits as
/// in OFED's libdat2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// A failure. This category is enabled if DAT_DBG_TYPE is not set or has the bit of failures.
    Error,
    /// A failure that the returned error reports in full. This category is enabled only if
    /// DAT_DBG_TYPE is set and has the bit of failures.
    ReturnedError,
    /// A library is loaded or unloaded.
    Library,
    /// An entry of the registry is read or chosen.
    StaticRegistry,
    /// A provider registers or unregisters.
    DynamicRegistry,
}

impl Category {
    /// The bit of DAT_DBG_TYPE that enables the category.
    fn bit(self) -> u32 {
        match self {
            Category::Error | Category::ReturnedError => 1,
            Category::Library => 2,
            Category::StaticRegistry => 4,
            Category::DynamicRegistry => 8,
        }
    }

    /// Whether messages of the category are written. `types` is the value of DAT_DBG_TYPE, if it is
    /// set.
    fn is_enabled(self, types: Option<u32>) -> bool {
        types.map_or(self == Category::Error, |types| types & self.bit() != 0)
    }

    /// The level that a message of the category has in JSON.
    fn level(self) -> &'static str {
        match self {
            Category::Error | Category::ReturnedError => WARN,
            Category::Library | Category::StaticRegistry | Category::DynamicRegistry => "debug",
        }
    }
}

/// The level that failures have in JSON.
const WARN: &str = "warn";

/// Writes a message if its category is enabled. If the message has several lines, the caller
/// indents all lines after the first.
pub fn report(mut category: Category, message: impl fmt::Display) {
    if category == Category::Error && collect_one(&message) {
        category = Category::ReturnedError;
    }
    if category.is_enabled(settings().message_types) {
        write(category.level(), &message.to_string());
    }
}

thread_local! {
    /// The failures that this thread has reported in [`collect`], while that function runs.
    static COLLECTED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Calls a function. Failures that this thread reports meanwhile are returned, because the caller
/// makes them a part of its own error. They are written only if [`Category::ReturnedError`] is
/// enabled.
pub fn collect<R>(call: impl FnOnce() -> R) -> (R, Vec<String>) {
    let outer = COLLECTED.replace(Some(Vec::new()));
    let result = call();
    (result, COLLECTED.replace(outer).unwrap_or_default())
}

/// Keeps the message if this thread is in [`collect`]. Returns whether it is.
fn collect_one(message: &impl fmt::Display) -> bool {
    // While the thread ends, the list may be gone already.
    let keep = |messages: &RefCell<Option<Vec<String>>>| match &mut *messages.borrow_mut() {
        Some(messages) => {
            messages.push(printable(&message.to_string()));
            true
        }
        None => false,
    };
    COLLECTED.try_with(keep).unwrap_or(false)
}

/// Writes a message about a failure that nothing else reports to the user. No variable disables
/// such messages.
pub fn complain(message: impl fmt::Display) {
    write(WARN, &message.to_string());
}

fn write(level: &str, message: &str) {
    let (settings, message) = (settings(), printable(message));
    let line = match settings.json {
        true => format!("{}\n", json_line(level, "dat", &message)),
        false => format!("dat: {message}\n"),
    };
    // If a standard stream is closed, the error is ignored.
    let _ = settings.message_destination.write_line(line.as_bytes());
}

/// The maximum number of characters of a line that are written.
const MAX_LINE_CHARS: usize = 1000;

/// Makes a text safe for a terminal. Control characters become escapes, because a registry file or
/// a provider may contain any characters. Line ends and tabs stay. Very long lines are truncated.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_reported_unless_they_are_returned_or_turned_off() {
        let enabled = |types| {
            let all = [
                Category::Error,
                Category::ReturnedError,
                Category::Library,
                Category::StaticRegistry,
                Category::DynamicRegistry,
            ];
            all.map(|category| category.is_enabled(types))
        };
        assert_eq!(enabled(None), [true, false, false, false, false]);
        assert_eq!(enabled(Some(0)), [false; 5]);
        assert_eq!(enabled(Some(1)), [true, true, false, false, false]);
        assert_eq!(enabled(Some(10)), [false, false, true, false, true]);
    }

    #[test]
    fn failures_are_returned_to_a_caller_that_collects_them() {
        let (result, messages) = collect(|| {
            report(Category::Error, "one \u{7}");
            report(Category::Library, "not a failure");
            let ((), inner) = collect(|| report(Category::Error, "two"));
            report(Category::Error, "three");
            (7, inner)
        });
        assert_eq!(result, (7, vec!["two".to_owned()]));
        assert_eq!(messages, ["one \\u{7}", "three"]);
        assert!(!collect_one(&"nobody collects"));
    }

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
}
