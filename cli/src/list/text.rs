//! Formats the list as text: first the entries that open, then those that fail, last those that
//! this program cannot use. Registry files of distributions have dozens of entries for devices that
//! do not exist, so entries that fail for the same reason are grouped.

use std::collections::HashMap;
use std::fmt::Write;

use measurement::text_table::{Colour, TERMINAL_WIDTH, colour, wrapped};
use measurement::units::{plural, ranges};
use registry::entry::Excerpt;

use super::document::{Document, Item, State};

/// Which entries are shown, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// All entries. The entries of one library that fail for the same reason are shown as one
    /// group.
    Grouped,
    /// All entries, each separately.
    All,
    /// Only entries that open.
    Usable,
}

/// Whether long lines are folded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    AtWidth,
    Never,
}

const INDENT: &str = "    ";
/// The maximum number of errors shown.
const MAX_SHOWN_ERRORS: usize = 8;

/// Returns the list, the errors of the registry file, and a summary.
pub(super) fn text(document: &Document, view: View, fold: Fold) -> String {
    let mut text = String::new();
    let groups = groups(&document.entries, view);
    let alone = groups.iter().filter(|group| group.len() == 1);
    let width = alone.map(|group| group[0].name.chars().count()).max().unwrap_or(0);
    for group in groups {
        // Writing to a string does not fail.
        let _ = match group[..] {
            [item] => write_item(&mut text, item, width),
            _ => write_group(&mut text, &group, document.file.as_deref()),
        };
    }
    let mut text = fold_lines(&text, fold);
    let more = match (document.errors.len().checked_sub(MAX_SHOWN_ERRORS), &document.file) {
        (Some(more @ 1..), Some(file)) => {
            Some(format!("{more} more errors: `dat check {file}` lists them"))
        }
        _ => None,
    };
    for error in document.errors.iter().take(MAX_SHOWN_ERRORS).chain(&more) {
        text +=
            &format!("{} {}\n", colour("error:", Colour::Bad), fold_after("error: ", error, fold));
    }
    let hint = document.hint.filter(|_| view != View::Usable).map(ToOwned::to_owned);
    for note in hint.into_iter().chain(not_opened(document)) {
        text +=
            &format!("{} {}\n", colour("note:", Colour::Strong), fold_after("note: ", &note, fold));
    }
    text + &colour(&fold_lines(&summary(document), fold), Colour::Faint) + "\n"
}

/// If some entries were not opened, returns a sentence that says how many and why.
fn not_opened(document: &Document) -> Option<String> {
    let count = document.not_opened;
    (count > 0).then(|| {
        format!(
            "{} not opened, because there are so many: `dat list NAME` opens those of one name, \
             and `dat list --limit N` opens up to N entries",
            if count == 1 { "1 entry was".to_owned() } else { format!("{count} entries were") }
        )
    })
}

/// Folds each line. Continuation lines are indented further.
fn fold_lines(text: &str, fold: Fold) -> String {
    let fold = |line: &str| {
        let indent = &line[..line.len() - line.trim_start().len()];
        // A line with colors is not folded: its escape sequences would count as text, and such
        // lines are short.
        if fold == Fold::Never || line.contains('\x1b') {
            line.to_owned()
        } else {
            wrapped(line, &format!("{indent}  "))
        }
    };
    let end = if text.ends_with('\n') { "\n" } else { "" };
    text.lines().map(fold).collect::<Vec<_>>().join("\n") + end
}

/// Folds a text whose first line begins with `word`. Returns the text without `word`.
fn fold_after(word: &str, text: &str, fold: Fold) -> String {
    let line = fold_lines(&format!("{word}{text}"), fold);
    line.strip_prefix(word).unwrap_or(&line).to_owned()
}

/// Groups the entries, in this order: entries that open, entries that fail, entries that were not
/// opened, and entries that this program cannot use. Within each of these kinds, the groups are in
/// the order of the list.
fn groups(items: &[Item], view: View) -> Vec<Vec<&Item>> {
    let mut groups: Vec<Vec<&Item>> = Vec::new();
    let mut group_of: HashMap<_, usize> = HashMap::new();
    for item in items {
        match (item.why(), view) {
            (Some(_), View::Usable) => {}
            (Some(why), View::Grouped) => {
                let group = *group_of.entry(why).or_insert(groups.len());
                match groups.get_mut(group) {
                    Some(group) => group.push(item),
                    None => groups.push(vec![item]),
                }
            }
            (None, _) | (_, View::All) => groups.push(vec![item]),
        }
    }
    groups.sort_by_key(|group| match group[0].state {
        State::Opens => 0,
        State::Fails(_) => 1,
        State::NotOpened(_) => 2,
        State::Unused(_) => 3,
    });
    groups
}

impl Item {
    /// Returns the library and why the entry is unusable or not opened. What the library printed is
    /// left out, because it contains times and process IDs.
    fn why(&self) -> Option<(Option<&str>, &str, Option<&str>)> {
        let reason = match &self.state {
            State::Opens => return None,
            State::Fails(reason) => reason.lines().next().unwrap_or_default(),
            // All entries that were not opened form one group, because the limit does not depend on
            // the library.
            State::NotOpened(reason) => return Some((None, reason, None)),
            State::Unused(reason) => reason,
        };
        Some((self.library.as_deref(), reason, self.provider_message()))
    }

    /// Returns the reason that a provider of OpenDAT has printed after the entry's name. The texts
    /// of other providers contain process IDs and times, so that no two are equal. They do not
    /// count.
    fn provider_message(&self) -> Option<&str> {
        let State::Fails(reason) = &self.state else { return None };
        reason.lines().find_map(|line| Some(line.strip_prefix("dat: ")?.split_once("): ")?.1))
    }

    fn builtin(&self) -> bool {
        self.library.is_none()
    }

    fn word(&self) -> String {
        match self.state {
            State::Opens => colour("opens ", Colour::Good),
            State::Fails(_) => colour("fails ", Colour::Bad),
            State::NotOpened(_) => colour("not opened", Colour::Faint),
            State::Unused(_) => colour("unused", Colour::Faint),
        }
    }

    /// Returns why the entry is unusable or not opened, line by line.
    fn reason(&self) -> std::str::Lines<'_> {
        match &self.state {
            State::Opens => "",
            State::Fails(reason) => reason.as_str(),
            State::NotOpened(reason) | State::Unused(reason) => reason,
        }
        .lines()
    }
}

fn write_item(text: &mut String, item: &Item, width: usize) -> std::fmt::Result {
    writeln!(text, "{:<width$}  {}  {}", item.name, item.word(), item.origin)?;
    let mut details = vec![item.api.clone()];
    details.extend(item.thread_safe.then(|| "threadsafe".to_owned()));
    details.push(item.library.clone().unwrap_or_else(|| "linked in".to_owned()));
    details
        .extend((!item.parameters.is_empty()).then(|| format!("{:?}", Excerpt(&item.parameters))));
    writeln!(text, "    {}", details.join(" "))?;
    item.attributes.iter().try_for_each(|(name, value)| writeln!(text, "    {name}: {value}"))?;
    item.reason().try_for_each(|line| writeln!(text, "    {line}"))
}

fn write_group(text: &mut String, group: &[&Item], file: Option<&str>) -> std::fmt::Result {
    let first = group[0];
    match (&first.state, first.library.as_deref()) {
        (State::NotOpened(_), _) => writeln!(text, "{} entries  {}", group.len(), first.word())?,
        (_, library) => {
            let library = library.unwrap_or("linked in");
            writeln!(text, "{} entries  {}  {library}", group.len(), first.word())?;
        }
    }
    for (index, line) in first.reason().enumerate() {
        let whose = if index == 0 { String::new() } else { format!("{}: ", first.name) };
        writeln!(text, "    {whose}{line}")?;
    }
    let mut names: Vec<&str> = group.iter().map(|item| item.name.as_str()).collect();
    names.dedup();
    write_words(text, names, " ")?;
    let lines: Vec<usize> = group.iter().filter_map(|item| item.line).collect();
    match file {
        Some(file) if !lines.is_empty() => {
            let places = format!("{file}:{}", ranges(&lines));
            write_words(text, places.split_inclusive(','), "")
        }
        _ => Ok(()),
    }
}

/// Writes words, as many per line as fit.
fn write_words<'a>(
    text: &mut String,
    words: impl IntoIterator<Item = &'a str>,
    between: &str,
) -> std::fmt::Result {
    let mut line = String::new();
    for word in words {
        if INDENT.len() + line.len() + between.len() + word.len() > TERMINAL_WIDTH
            && !line.is_empty()
        {
            writeln!(text, "{INDENT}{line}")?;
            line.clear();
        }
        line = if line.is_empty() { word.to_owned() } else { line + between + word };
    }
    writeln!(text, "{INDENT}{line}")
}

fn summary(document: &Document) -> String {
    let count = |builtin: bool| {
        let items = document.entries.iter().filter(move |item| item.builtin() == builtin);
        (items.clone().count(), items.filter(|item| matches!(item.state, State::Opens)).count())
    };
    let file = match (&document.file, count(false)) {
        (None, _) => "no registry file".to_owned(),
        (Some(file), (0, _)) => format!("no entry of {file}"),
        (Some(file), (total, usable)) => {
            let entries = plural(total, "entry", "entries");
            match document.not_opened {
                0 => format!("{entries} of {file}, {}", verdict(total, usable)),
                count => format!("{entries} of {file}, {usable} ready, {count} not opened"),
            }
        }
    };
    let builtin = match count(true) {
        _ if document.builtins_off => {
            "the built-in entries are turned off by builtin=off in OPENDAT_PARAMS".to_owned()
        }
        (0, _) if document.file.is_none() && !document.errors.is_empty() => {
            "the built-in entries are hidden".to_owned()
        }
        (0, _) => "none built in".to_owned(),
        (total, usable) => format!("{total} built in, {}", verdict(total, usable)),
    };
    format!("{file}; {builtin}")
}

fn verdict(total: usize, usable: usize) -> String {
    match (total, usable) {
        (1, 0) => "not usable".to_owned(),
        (1, _) => "ready".to_owned(),
        (_, 0) => "none usable".to_owned(),
        (total, usable) if total == usable => "all ready".to_owned(),
        (_, usable) => format!("{usable} ready"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, library: Option<&str>, state: State) -> Item {
        Item {
            name: name.to_owned(),
            api: "u2.0".to_owned(),
            thread_safe: false,
            library: library.map(ToOwned::to_owned),
            version: "x.1.0".to_owned(),
            parameters: String::new(),
            origin: "FILE:1:1".to_owned(),
            line: None,
            attributes: Vec::new(),
            state,
        }
    }

    /// A registry file as distributions ship it: dozens of devices that do not exist.
    fn stale() -> Document {
        let entries = (0..60).map(|n| {
            let library = ["libscm.so", "libucm.so", "libgone.so"][n % 3];
            let reason = match library {
                "libgone.so" => "libgone.so: cannot open shared object file".to_owned(),
                _ => format!("the provider refused\n{n} us: no device"),
            };
            let item = item(&format!("device{n}"), Some(library), State::Fails(reason));
            Item { line: Some(n + 1), ..item }
        });
        let builtin = Item { origin: "built in".to_owned(), ..item("emu", None, State::Opens) };
        let entries = entries.chain([builtin]).collect();
        Document {
            file: Some("FILE".to_owned()),
            builtins_off: false,
            entries,
            errors: Vec::new(),
            not_opened: 0,
            hint: None,
        }
    }

    #[test]
    fn what_fails_for_the_same_reason_is_said_once() {
        let text = text(&stale(), View::Grouped, Fold::AtWidth);
        assert!(text.lines().count() <= 23, "{text}");
        assert!(text.lines().all(|line| line.len() <= TERMINAL_WIDTH), "{text}");
        assert!(text.starts_with(
            "emu  opens   built in\n    u2.0 linked in\n20 entries  fails   libscm.so\n    \
             the provider refused\n    device0: 0 us: no device\n    \
             device0 device3 device6 "
        ));
        assert_eq!(text.matches("cannot open shared object file").count(), 1, "{text}");
        for n in 0..60 {
            assert!(
                text.split_whitespace().any(|word| word == format!("device{n}")),
                "{n}: {text}"
            );
        }
        assert!(text.ends_with("\n60 entries of FILE, none usable; 1 built in, ready\n"), "{text}");
    }

    #[test]
    fn many_mistakes_and_long_values_are_shown_in_part() {
        let errors = (1..=2000).map(|line| format!("FILE:{line}:1: an error")).collect();
        let entry =
            Item { parameters: "x".repeat(1 << 20), ..item("long", Some("a.so"), State::Opens) };
        let document = Document { errors, entries: vec![entry], ..stale() };
        for fold in [Fold::AtWidth, Fold::Never] {
            let text = text(&document, View::All, fold);
            assert!(text.lines().count() < 20 && text.len() < 2000, "{text}");
            assert!(text.contains("(1048576 octets)"), "{text}");
            assert!(
                text.contains("\nerror: 1992 more errors: `dat check FILE` lists them\n"),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_usable_comes_first_and_what_is_not_for_us_last() {
        let state = |name: &str, state: State| item(name, Some(name), state);
        let entries = vec![
            state("unused", State::Unused("marked nondefault")),
            state("fails", State::Fails("it is gone".to_owned())),
            state("first", State::Opens),
            state("second", State::Opens),
        ];
        let document = Document {
            file: None,
            builtins_off: false,
            entries,
            errors: Vec::new(),
            not_opened: 0,
            hint: None,
        };
        for view in [View::Grouped, View::All] {
            let text = text(&document, view, Fold::AtWidth);
            let names: Vec<&str> = text.lines().filter(|line| line.contains("  FILE")).collect();
            let names: Vec<&str> = names.iter().filter_map(|line| line.split(' ').next()).collect();
            assert_eq!(names, ["first", "second", "fails", "unused"], "{text}");
        }
    }

    #[test]
    fn long_lines_are_folded_unless_they_are_to_be_wide() {
        let reason = format!("{} ends", "a reason of many words, ".repeat(9));
        let attributes = vec![("engine".to_owned(), "words ".repeat(30))];
        let fails = item("fails", Some("lib.so"), State::Fails(reason.clone()));
        let opens = Item { attributes, ..item("opens", None, State::Opens) };
        let document = Document {
            file: Some("FILE".to_owned()),
            builtins_off: false,
            entries: vec![fails, opens],
            errors: vec![reason.clone()],
            not_opened: 0,
            hint: Some(super::super::document::NO_DEVICE),
        };
        let narrow = text(&document, View::Grouped, Fold::AtWidth);
        assert!(narrow.lines().all(|line| line.chars().count() <= TERMINAL_WIDTH), "{narrow}");
        assert!(narrow.contains("\n      words words"), "{narrow}");
        let wide = text(&document, View::Grouped, Fold::Never);
        assert!(
            wide.contains(&format!("\n    {reason}\n"))
                && wide.contains(&format!("error: {reason}\n")),
            "{wide}"
        );
        let words = |text: &str| text.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&narrow), words(&wide));
    }

    #[test]
    fn lines_of_a_group_are_named() {
        let fails = |n: usize| {
            let reason = "libgone.so: cannot open shared object file".to_owned();
            Item {
                line: Some(n),
                ..item(&format!("ia{n}"), Some("libgone.so"), State::Fails(reason))
            }
        };
        let entries = [2, 3, 4, 9, 11, 12].map(fails).into();
        let document = Document {
            file: Some("FILE".to_owned()),
            builtins_off: true,
            entries,
            errors: Vec::new(),
            not_opened: 0,
            hint: None,
        };
        assert!(text(&document, View::Grouped, Fold::Never).contains("\n    FILE:2-4,9,11-12\n"));
    }

    #[test]
    fn what_was_not_opened_is_said_once_and_at_the_end() {
        // Comparing each group with all others would take minutes.
        let fails = |n: usize| {
            let library = format!("lib{n}.so");
            item(&format!("fails{n}"), Some(&library), State::Fails(format!("{library} is gone")))
        };
        let left = |n: usize| {
            let library = format!("lib{n}.so");
            item(
                &format!("left{n}"),
                Some(&library),
                State::NotOpened(super::super::document::NOT_OPENED),
            )
        };
        let mut entries: Vec<Item> = (0..20_000).map(fails).chain((0..3).map(left)).collect();
        entries.push(item("opens", Some("x.so"), State::Opens));
        let document = Document { entries, not_opened: 3, ..stale() };
        let shown = text(&document, View::Grouped, Fold::AtWidth);
        assert!(shown.contains("\n3 entries  not opened\n"), "{shown}");
        assert!(shown.contains("\n    left0 left1 left2\n"), "{shown}");
        for view in [View::Grouped, View::Usable] {
            let shown = text(&document, view, Fold::Never);
            let last: Vec<&str> = shown.lines().rev().take(2).collect();
            assert_eq!(last[0], "20004 entries of FILE, 1 ready, 3 not opened; none built in");
            assert!(
                last[1].starts_with("note: 3 entries were not opened, because "),
                "{}",
                last[1]
            );
        }
    }

    #[test]
    fn all_of_them_or_those_that_open() {
        let all = text(&stale(), View::All, Fold::AtWidth);
        assert_eq!(all.matches(" us: no device").count(), 40, "{all}");
        assert_eq!(all.matches("FILE:1:1").count(), 60, "{all}");
        assert_eq!(
            text(&stale(), View::Usable, Fold::AtWidth),
            "emu  opens   built in\n    u2.0 linked in\n\
             60 entries of FILE, none usable; 1 built in, ready\n"
        );
    }

    #[test]
    fn the_summary_counts_what_there_is() {
        let opens = || item("a", Some("a.so"), State::Opens);
        let unused = || item("b", Some("a.so"), State::Unused("marked nondefault"));
        let of = |file: Option<&str>, builtins_off, entries| {
            summary(&Document {
                file: file.map(Into::into),
                builtins_off,
                entries,
                errors: Vec::new(),
                not_opened: 0,
                hint: None,
            })
        };
        assert_eq!(of(None, false, vec![]), "no registry file; none built in");
        let unreadable = Document {
            file: None,
            builtins_off: false,
            entries: Vec::new(),
            errors: vec!["cannot read F".into()],
            not_opened: 0,
            hint: None,
        };
        assert_eq!(summary(&unreadable), "no registry file; the built-in entries are hidden");
        assert_eq!(
            of(Some("F"), true, vec![]),
            "no entry of F; the built-in entries are turned off by builtin=off in OPENDAT_PARAMS"
        );
        assert_eq!(of(Some("F"), false, vec![opens()]), "1 entry of F, ready; none built in");
        assert_eq!(of(Some("F"), false, vec![unused()]), "1 entry of F, not usable; none built in");
        assert_eq!(
            of(Some("F"), false, vec![opens(), unused()]),
            "2 entries of F, 1 ready; none built in"
        );
        assert_eq!(
            of(Some("F"), false, vec![opens(), opens()]),
            "2 entries of F, all ready; none built in"
        );
    }
}
