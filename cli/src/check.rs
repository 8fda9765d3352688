//! `dat check`: reports errors and unusable entries of a registry file, each with its line and
//! column.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use measurement::text_table::{Colour, TERMINAL_WIDTH, colour, wrapped};
use measurement::units::{self, plural};
use registry::entry::{Entry, Origin, Space};
use registry::host::Devices;
use registry::{Candidate, List};
use serde::Serialize;
use telemetry::printable;

use crate::convert::{self, File};
use crate::output::{print, print_json};
use crate::parameters;
pub(crate) use start::inspect;
use start::{LibraryFault, inspect_library};

mod start;

#[derive(Args)]
pub(crate) struct Options {
    /// The file: TOML if its name ends in .toml, dat.conf if it ends in .conf, else decided by its
    /// content
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Also exit with 1 if there are warnings, or entries whose provider was not started
    #[arg(long)]
    strict: bool,
    /// Start the providers of at most this many entries, each in a process of its own; all other
    /// checks cover every entry
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT)]
    limit: usize,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document {
    file: String,
    /// The number of entries that could be parsed.
    entries: usize,
    findings: Vec<Finding>,
    /// The number of entries whose provider was not started, because of the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_started: Option<NonZeroUsize>,
}

/// An error or a warning about one place in the file.
#[derive(Serialize)]
struct Finding {
    severity: Severity,
    /// The line, counted from 1.
    line: usize,
    /// The column in characters, counted from 1.
    column: usize,
    message: String,
    /// The remedy, if one is known.
    help: Option<String>,
    /// Other lines to which this finding also applies.
    #[serde(skip)]
    more: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
enum Severity {
    /// The line contains no valid entry.
    Error,
    /// The entry does not open, or no program can ask for it.
    Warning,
}

/// Checks the file. Returns whether it has no errors (with `--strict`: no findings).
pub(crate) fn run(options: &Options) -> Result<bool> {
    let File { entries, errors, text, is_toml } = convert::read(&options.file)?;
    let mut findings: Vec<Finding> = errors
        .iter()
        .map(|error| Finding::new(Severity::Error, &error.origin, error.kind.to_string(), None))
        .collect();
    if is_toml && options.file.extension().is_none_or(|extension| extension != "toml") {
        let origin = Origin::File { path: options.file.clone().into(), line: 1, column: 1 };
        let message =
            "this is TOML, but the registry reads a file as TOML only if its name ends in .toml"
                .to_owned();
        findings.push(Finding::new(Severity::Error, &origin, message, Some("rename the file")));
    }
    let (warnings, not_started) =
        warnings(&entries, &Devices::of_host(), options.limit, inspect_library);
    findings.extend(warnings);
    findings.sort_by_key(|finding| (finding.line, finding.column));
    let document = Document {
        file: options.file.display().to_string(),
        entries: entries.len(),
        findings,
        not_started: NonZeroUsize::new(not_started),
    };
    match options.json {
        true => print_json(&document)?,
        false => print(&document.text(&text))?,
    }
    let is_failure = |finding: &Finding| options.strict || finding.severity == Severity::Error;
    let is_incomplete = options.strict && document.not_started.is_some();
    Ok(!document.findings.iter().any(is_failure) && !is_incomplete)
}

impl Finding {
    fn new(severity: Severity, origin: &Origin, message: String, help: Option<&str>) -> Finding {
        let (line, column) = place(origin);
        let help = help.map(ToOwned::to_owned);
        Finding { severity, line, column, message, help, more: Vec::new() }
    }

    fn word(&self) -> String {
        match self.severity {
            Severity::Error => colour("error", Colour::Bad),
            Severity::Warning => colour("warning", Colour::Strong),
        }
    }

    /// Returns the key of a finding. Findings with equal keys are of the same kind. The key is the
    /// severity and the remedy. If there is no remedy, the part of the message before the first
    /// quoted value takes its place.
    fn kind(&self) -> (Severity, &str) {
        let before_the_value = || self.message.split(['"', '`']).next().unwrap_or_default();
        (self.severity, self.help.as_deref().unwrap_or_else(before_the_value))
    }

    fn warning(entry: &Entry, message: String, help: &str) -> Finding {
        Finding::new(Severity::Warning, &entry.origin, message, Some(help))
    }
}

/// Calls `inspect` for each entry that programs can ask for, and returns the results: `None` if the
/// entry's library provides the entry, otherwise the reason why not. A library may register one
/// entry and not another, so each entry is inspected. There is one exception: if a library does not
/// load, or if its start does not end, its other entries are not inspected.
///
/// An inspection takes a process, so at most `limit` entries are inspected. The second value is the
/// number of entries that were not inspected because of this limit.
fn faults(
    entries: &[Entry],
    limit: usize,
    mut inspect: impl FnMut(&Entry) -> Option<LibraryFault>,
) -> (Vec<Option<LibraryFault>>, usize) {
    let mut no_providers: HashMap<&str, LibraryFault> = HashMap::new();
    let (mut faults, mut left, mut not_started) = (Vec::new(), limit, 0);
    for (entry, first) in entries.iter().zip(first_duplicates(entries)) {
        let library = entry.library.as_str();
        let fault = if never_requested(entry).is_some() || repeated(entry, first).is_some() {
            None
        } else if let Some(fault) = no_providers.get(library) {
            Some(fault.clone())
        } else if left == 0 {
            not_started += 1;
            None
        } else {
            left -= 1;
            inspect(entry)
        };
        if let Some(fault) = fault.as_ref().filter(|fault| fault.of_library) {
            no_providers.entry(library).or_insert_with(|| fault.clone());
        }
        faults.push(fault);
    }
    (faults, not_started)
}

/// For each subject of a finding, such as a library, the lines of the entries to which the finding
/// applies.
struct Lines<K>(HashMap<K, Vec<usize>>);

impl<K: Eq + Hash> Lines<K> {
    fn new<'e>(entries: impl Iterator<Item = (Option<K>, &'e Entry)>) -> Lines<K> {
        let mut lines: HashMap<K, Vec<usize>> = HashMap::new();
        for (key, entry) in entries {
            if let Some(key) = key {
                lines.entry(key).or_default().push(place(&entry.origin).0);
            }
        }
        Lines(lines)
    }

    /// Returns the lines after `line` to which the finding about `key` also applies, and a remark
    /// that lists them. Only the first call with a `key` returns the lines. Later calls return
    /// `None`, because the finding has been reported.
    fn after(&mut self, key: &K, line: usize) -> Option<(Vec<usize>, String)> {
        let mut lines = self.0.remove(key)?;
        lines.retain(|&other| other > line);
        let remark = match lines.as_slice() {
            [] => String::new(),
            [line] => format!(" (also line {line})"),
            lines => format!(" (also lines {})", units::ranges(lines)),
        };
        Some((lines, remark))
    }
}

/// Returns a warning for each entry that does not open, and for each entry that no program can ask
/// for. Also returns the number of entries whose provider was not started because of `limit`.
fn warnings(
    entries: &[Entry],
    devices: &Devices,
    limit: usize,
    inspect: impl FnMut(&Entry) -> Option<LibraryFault>,
) -> (Vec<Finding>, usize) {
    let (faults, not_started) = faults(entries, limit, inspect);
    let missing: Vec<Option<&str>> = entries.iter().map(|entry| devices.missing(entry)).collect();
    // One finding covers all affected entries of a library, because a distribution's file has
    // dozens of entries for one library.
    let mut faulty = Lines::new(entries.iter().zip(&faults).map(|(entry, fault)| {
        (fault.as_ref().map(|fault| (entry.library.as_str(), fault.why.as_str())), entry)
    }));
    // One finding covers all entries that name the same missing device.
    let mut without_device = Lines::new(missing.iter().copied().zip(entries));
    let mut findings = Vec::new();
    let first_and_other = first_duplicates(entries).into_iter().zip(ambiguous(entries));
    for (index, (entry, (first, other))) in entries.iter().zip(first_and_other).enumerate() {
        if let Some(finding) = never_requested(entry).or_else(|| repeated(entry, first)) {
            findings.push(finding);
            continue;
        }
        findings.extend(other);
        let (line, _) = place(&entry.origin);
        if let Some(LibraryFault { why, remedy, .. }) = &faults[index] {
            let Some((lines, more)) = faulty.after(&(entry.library.as_str(), why), line) else {
                continue;
            };
            let remedy = library_next_to_program(&entry.library).or_else(|| remedy.clone());
            let help =
                format!("{}, or remove the line", remedy.as_deref().unwrap_or("ask its vendor"));
            let finding = Finding::warning(entry, format!("{}: {why}{more}", entry.ia_name), &help);
            findings.push(Finding { more: lines, ..finding });
            continue;
        }
        if let Some(device) = missing[index] {
            let Some((lines, more)) = without_device.after(&device, line) else { continue };
            let message = format!(
                "{}: this host has no network device, RDMA device or address called {device:?}\
                 {more}",
                entry.ia_name
            );
            let help =
                format!("name one that the host has: {}; or remove the line", devices.names());
            let finding = Finding::warning(entry, message, &help);
            findings.push(Finding { more: lines, ..finding });
        } else if let Some(fault) = parameters::fault(entry) {
            let help = "the adapter does not open with these parameters; dat.conf(5) and the \
                        provider's documentation list the keys";
            findings.push(Finding::warning(entry, format!("{}: {fault}", entry.ia_name), help));
        }
    }
    (findings, not_started)
}

/// The unusable entries of the registry file.
pub(crate) struct Unusable {
    /// The lines of the entries.
    pub(crate) lines: Vec<usize>,
    /// How many further entries may be unusable, because their provider was not started.
    pub(crate) not_started: usize,
}

/// Returns the unusable entries of the registry file.
pub(crate) fn unusable_lines(list: &List) -> Unusable {
    let of_file = |candidate: &&Candidate| matches!(candidate.entry.origin, Origin::File { .. });
    let entries: Vec<Entry> = list
        .candidates()
        .into_iter()
        .filter(of_file)
        .map(|candidate| candidate.entry.clone())
        .collect();
    let (findings, not_started) =
        warnings(&entries, &Devices::of_host(), DEFAULT_LIMIT, inspect_library);
    let mut lines: Vec<usize> = findings
        .into_iter()
        .flat_map(|finding| std::iter::once(finding.line).chain(finding.more))
        .collect();
    lines.sort_unstable();
    lines.dedup();
    Unusable { lines, not_started }
}

/// Why a new entry may be unusable.
#[derive(Serialize)]
pub(crate) struct Concern {
    pub(crate) message: String,
    /// The remedy, if one is known.
    pub(crate) help: Option<String>,
}

/// Returns the reasons for which `entry`, which was just added to the file, may be unusable.
pub(crate) fn concerns(path: &Path, entry: &Entry) -> Result<Vec<Concern>> {
    let File { entries, .. } = convert::read(path)?;
    let Some(at) = entries.iter().rposition(|other| other.same_fields(entry)) else {
        return Ok(Vec::new());
    };
    let findings = match repeated(&entries[at], first_duplicates(&entries)[at]) {
        // An entry that the user has marked nondefault gets no warning, because programs are not
        // meant to use it.
        _ if !entry.default => Vec::new(),
        Some(finding) => vec![finding],
        None => warnings(&entries[at..=at], &Devices::of_host(), 1, inspect_library).0,
    };
    Ok(findings
        .into_iter()
        .map(|Finding { message, help, .. }| Concern { message, help })
        .collect())
}

/// Returns the line and the column of an entry.
fn place(origin: &Origin) -> (usize, usize) {
    match origin {
        Origin::File { line, column, .. } => (*line, *column),
        Origin::Builtin | Origin::Program => (0, 0),
    }
}

/// Returns a warning if no program's dat_ia_open can select the entry.
fn never_requested(entry: &Entry) -> Option<Finding> {
    let Entry { ia_name, api, .. } = entry;
    let warning = |message, help| Some(Finding::warning(entry, message, help));
    match (api.space, api.major, api.minor) {
        _ if !entry.default => warning(
            format!("{ia_name} is marked nondefault: no program can open it"),
            "write default, if programs are to use it",
        ),
        (Space::Kernel, ..) => warning(
            format!("{ia_name} is for kDAPL ({api}): no program in user space can open it"),
            "write u2.0 or u1.2, or remove the line",
        ),
        (Space::User, 2, _) => None,
        (Space::User, 1, minor) if minor >= 2 => None,
        (Space::User, 1, _) => warning(
            format!("{ia_name} offers {api}, and uDAPL 1 programs ask for 1.2 or higher"),
            "write u1.2",
        ),
        _ => warning(
            format!("{ia_name} offers {api}, but programs ask only for uDAPL 1.2 and 2.0"),
            "write u2.0 or u1.2",
        ),
    }
}

/// For each entry, returns the first usable entry above it that has the same name, API and thread
/// safety.
fn first_duplicates(entries: &[Entry]) -> Vec<Option<&Entry>> {
    let mut firsts = HashMap::new();
    let mut all = Vec::new();
    for entry in entries {
        let interface = (&entry.ia_name, entry.api, entry.threadsafe);
        all.push(firsts.get(&interface).copied());
        if entry.usable() {
            firsts.entry(interface).or_insert(entry);
        }
    }
    all
}

/// Returns a warning for each entry whose library or parameters differ from those of the first
/// entry with the same name and major version. Which of these entries a program gets depends on the
/// thread safety and the minor version that the program asks for.
fn ambiguous(entries: &[Entry]) -> Vec<Option<Finding>> {
    let mut firsts: HashMap<_, &Entry> = HashMap::new();
    let mut all = Vec::new();
    for entry in entries {
        let Entry { ia_name, api, library, ia_params, .. } = entry;
        let first = entry.usable().then(|| *firsts.entry((ia_name, api.major)).or_insert(entry));
        let other =
            first.filter(|first| first.library != *library || first.ia_params != *ia_params);
        all.push(other.map(|first| {
            let (line, _) = place(&first.origin);
            let message = format!(
                "{ia_name} is also in line {line}, with another library or other parameters: \
                 which of them a program gets depends on the version and thread safety that it \
                 asks for"
            );
            Finding::warning(
                entry,
                message,
                "give them the same library and parameters, or rename one",
            )
        }));
    }
    all
}

/// Returns a warning if an earlier line has the same interface.
fn repeated(entry: &Entry, first: Option<&Entry>) -> Option<Finding> {
    let first = first?;
    let Origin::File { line, .. } = &first.origin else { return None };
    let name = &entry.ia_name;
    let finding = if first.same_fields(entry) {
        Finding::warning(
            entry,
            format!("{name} is the same as in line {line}"),
            "remove one of them",
        )
    } else {
        let message =
            format!("{name} is in line {line} already, with the same API and thread safety");
        Finding::warning(
            entry,
            message,
            "this line is used only if the library of the earlier line cannot be loaded; rename \
             one of the two if programs are to use both",
        )
    };
    Some(finding)
}

/// Returns what to do about a library that the dynamic linker does not find although it came with
/// this program.
fn library_next_to_program(library: &str) -> Option<String> {
    let lib = std::env::current_exe().ok()?.parent()?.parent()?.join("lib");
    let is_there = !library.contains('/') && lib.join(library).is_file();
    is_there.then(|| {
        format!(
            "set LD_LIBRARY_PATH to {0}, which contains the library, or write {0}/{library}",
            lib.display()
        )
    })
}

/// The default limit on the entries of a registry file that are opened, or whose providers are
/// started. There is a limit because each of these entries needs a process, and a file may have any
/// number of entries. Debian's file has 62.
pub(crate) const DEFAULT_LIMIT: usize = 64;

/// How many findings of a kind are printed individually.
const MAX_SHOWN_PER_KIND: usize = 8;
/// How many characters of a line of the file are printed, between the indent and the marks that the
/// line is longer.
const MAX_SHOWN_CHARS: usize = TERMINAL_WIDTH - INDENT.len() - 2 * CUT_COLUMNS;
/// The columns of `… `, which marks that a line has more characters.
const CUT_COLUMNS: usize = 2;
/// The indent of everything that belongs to the finding above it.
const INDENT: &str = "    ";

/// Returns a line of the file with a mark below one of its columns. Of a long line, only the part
/// around the column is returned.
fn line_with_mark(line: &str, column: usize) -> String {
    let at = column.saturating_sub(1);
    let begin = if at < MAX_SHOWN_CHARS { 0 } else { at - MAX_SHOWN_CHARS / 4 };
    let mut shown = line.chars().skip(begin);
    let part: String = shown.by_ref().take(MAX_SHOWN_CHARS).collect();
    let (before, after) =
        (if begin > 0 { "… " } else { "" }, if shown.next().is_some() { " …" } else { "" });
    // The text before the mark becomes blanks, except that tabs stay tabs. So the mark is below the
    // right character.
    let blank = |c| if c == '\t' { c } else { ' ' };
    let indent: String = before.chars().chain(part.chars().take(at - begin)).map(blank).collect();
    format!("{INDENT}{before}{part}{after}\n{INDENT}{indent}^\n")
}

/// Wraps text to the width of a terminal. Lines after the first are indented.
fn paragraph(text: &str) -> String {
    wrapped(text, INDENT) + "\n"
}

impl Document {
    /// Formats the findings like a compiler: the place, the message, and the line with a mark
    /// below.
    fn text(&self, source: &[u8]) -> String {
        // `lines` also removes the carriage return of a line that ends with CRLF. Every other
        // control character except the tab is replaced.
        let source = String::from_utf8_lossy(source);
        let lines: Vec<String> = source
            .lines()
            .map(|line| line.replace(|c: char| c.is_control() && c != '\t', "\u{fffd}"))
            .collect();
        let mut text = String::new();
        let file = printable(&self.file);
        // For each kind of finding: the first finding, the number of findings printed so far, and
        // the lines of the findings that are not printed.
        let mut kinds: HashMap<_, (&Finding, usize, Vec<usize>)> = HashMap::new();
        for finding in &self.findings {
            let Finding { line, column, message, help, .. } = finding;
            let (_, shown, others) =
                kinds.entry(finding.kind()).or_insert((finding, 0, Vec::new()));
            if *shown == MAX_SHOWN_PER_KIND {
                others.push(*line);
                continue;
            }
            *shown += 1;
            let message = printable(message);
            text += &paragraph(&format!("{file}:{line}:{column}: {}: {message}", finding.word()));
            text += &lines
                .get(line.wrapping_sub(1))
                .map_or_else(String::new, |line| line_with_mark(line, *column));
            text += &help.as_ref().map_or_else(String::new, |help| {
                paragraph(&format!("{INDENT}{}", printable(help)))
            });
        }
        let mut kinds: Vec<_> =
            kinds.into_values().filter(|(.., others)| !others.is_empty()).collect();
        kinds.sort_by_key(|(first, ..)| (first.line, first.column));
        for (first, _, others) in kinds {
            let (count, lines) = (others.len(), printable(&units::ranges(&others)));
            text += &paragraph(&format!(
                "{file}: {}: {count} more as in line {}: {lines}",
                first.word(),
                first.line
            ));
        }
        if let Some(count) = self.not_started.map(NonZeroUsize::get) {
            text += &paragraph(&format!(
                "{file}: {}: the {} not started, because there are so many: --limit N starts up \
                 to N, and `dat list NAME` opens the entries of one name",
                colour("note", Colour::Strong),
                match count {
                    1 => "provider of 1 entry was".to_owned(),
                    count => format!("providers of {count} entries were"),
                }
            ));
        }
        let count =
            |severity| self.findings.iter().filter(|finding| finding.severity == severity).count();
        let summary = format!(
            "{}, {}, {}",
            plural(self.entries, "entry", "entries"),
            plural(count(Severity::Error), "error", "errors"),
            plural(count(Severity::Warning), "warning", "warnings")
        );
        text + &colour(&summary, Colour::Faint) + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_an_adapter_would_not_open_with_are_warned_of() {
        let line = "a u2.0 nonthreadsafe default libdat_tcp_emu.so v.1.0 \"crc=maybe\" \"\"";
        let (entries, _) = registry::conf::parse(Path::new("dat.conf"), line.as_bytes());
        let (findings, _) = warnings(&entries, &Devices::default(), DEFAULT_LIMIT, |_| None);
        let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(messages, ["a: ia_params: crc=maybe: expected on or off"]);
        let twice = line.replace("crc=maybe", "crc=on crc=off");
        assert_eq!(
            messages_of(&twice),
            ["a: ia_params: crc=off: the key crc occurs twice; expected it once"]
        );
    }

    #[test]
    fn a_limited_number_of_providers_is_started() {
        let line = |n: usize, library: &str| {
            format!("ia{n} u2.0 nonthreadsafe default {library} v.1.0 \"\" \"\"\n")
        };
        // Of every ten entries, one has a library that does not load.
        let library = |n: usize| if n.is_multiple_of(10) { "gone.so" } else { "x.so" };
        let lines: String = (0..1000).map(|n| line(n, library(n))).collect();
        let (entries, _) = registry::conf::parse(Path::new("dat.conf"), lines.as_bytes());
        let mut started = 0;
        let inspect = |entry: &Entry| {
            started += 1;
            let why = "it is gone".to_owned();
            let fault = LibraryFault { why, remedy: None, of_library: true };
            (entry.library == "gone.so").then_some(fault)
        };
        let (findings, not_started) = warnings(&entries, &Devices::default(), 64, inspect);
        assert_eq!(started, 64);
        assert_eq!(
            (findings.len(), findings[0].more.len()),
            (1, 99),
            "one finding must list all lines of the library"
        );
        assert_eq!(not_started, 900 - 63);
    }

    /// Comparing each device with all others would take minutes.
    #[test]
    fn entries_of_many_devices_are_checked_in_linear_time() {
        let line = |n: usize| {
            format!("ia{n} u2.0 nonthreadsafe default libdat_x.so v.1.0 \"dev{}\" \"\"\n", n / 2)
        };
        let messages = messages_of(&(0..40_000).map(line).collect::<String>());
        assert_eq!(messages.len(), 20_000);
        assert!(messages[0].ends_with("called \"dev0\" (also line 2)"), "{}", messages[0]);
    }

    fn messages_of(lines: &str) -> Vec<String> {
        let (entries, _) = registry::conf::parse(Path::new("dat.conf"), lines.as_bytes());
        let (findings, _) = warnings(&entries, &Devices::default(), DEFAULT_LIMIT, |_| None);
        findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn an_ambiguous_name_is_warned_of() {
        let line = |kind: &str, library: &str, params: &str| {
            format!("a {kind} default {library} v.1.0 \"{params}\" \"\"\n")
        };
        let first = line("u2.0 threadsafe", "x.so", "crc=on");
        for other in [
            line("u2.0 nonthreadsafe", "x.so", ""),
            line("u2.1 threadsafe", "x.so", ""),
            line("u2.0 nonthreadsafe", "y.so", "crc=on"),
        ] {
            let messages = messages_of(&(first.clone() + &other));
            assert_eq!(messages.len(), 1, "{other}: {messages:?}");
            assert!(
                messages[0].starts_with("a is also in line 1, with another library or other"),
                "{messages:?}"
            );
        }
        // There is no warning here: the second entry has the same library and parameters, and the
        // third is for uDAPL 1.2 programs, which do not use the first two entries.
        let same =
            line("u2.0 nonthreadsafe", "x.so", "crc=on") + &line("u1.2 threadsafe", "y.so", "");
        assert_eq!(messages_of(&(first + &same)), [""; 0]);
    }

    #[test]
    fn many_findings_of_a_kind_are_told_in_few_lines() {
        let line = |word: &str| format!("a u2.0 nonthreadsafe {word} x.so v.1.0 \"\" \"\"\n");
        let long = format!(
            "a u2.0 nonthreadsafe default x.so v.1.0 \"{}\" \"\" \"more\"\n",
            "x".repeat(1 << 20)
        );
        let text = line("default").repeat(2000)
            + &(0..2000).map(|n| line(&format!("w{n}"))).collect::<String>()
            + &long;
        let (entries, errors) = registry::conf::parse(Path::new("dat.conf"), text.as_bytes());
        let error = |error: &registry::entry::ParseError| {
            Finding::new(Severity::Error, &error.origin, error.kind.to_string(), None)
        };
        let (mut findings, _) = warnings(&entries, &Devices::default(), DEFAULT_LIMIT, |_| None);
        findings.extend(errors.iter().map(error));
        let document = Document {
            file: "dat.conf".to_owned(),
            entries: entries.len(),
            findings,
            not_started: None,
        };
        let shown = document.text(text.as_bytes());
        assert!(shown.lines().count() < 70 && shown.len() < 8000, "{shown}");
        for part in [
            "\ndat.conf: warning: 1991 more as in line 2: 10-2000\n",
            "\ndat.conf: error: 1992 more as in line 2001: 2009-4000\n",
            "\n2000 entries, 2001 errors, 1999 warnings\n",
            "xxx\" \"\" \"more\"\n",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        // The mark is below the field that is superfluous.
        let lines: Vec<&str> = shown.lines().collect();
        let at = lines
            .iter()
            .position(|line| line.contains("\"more\"") && line.starts_with("    … "))
            .expect("a line shows the field \"more\"");
        let column = |line: &str, what| line.find(what).map(|end| line[..end].chars().count());
        assert_eq!(column(lines[at + 1], "^"), column(lines[at], "\"more\""));
    }
}
