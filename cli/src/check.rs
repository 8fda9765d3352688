//! `dat check`: reports errors and unusable entries of a registry file, each with its line and
//! column.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, BufReader};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use registry::entry::{Entry, Origin, Space};
use registry::host::Devices;
use registry::report::printable;
use registry::{Candidate, List, LoadError};
use serde::{Deserialize, Serialize};

use crate::convert::{self, File};
use crate::output::{print, print_json};
use crate::table::{Colour, colour};
use crate::units::{self, plural};
use crate::{parameters, parent};

#[derive(Args)]
pub(crate) struct Options {
    /// The file: TOML if its name ends in .toml, dat.conf if it ends in .conf, else decided by its
    /// content
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Exit with 1 for warnings, too
    #[arg(long)]
    strict: bool,
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
}

/// An error or a warning about one place in the file.
#[derive(Serialize)]
struct Finding {
    severity: Severity,
    /// Counted from 1.
    line: usize,
    /// In characters, counted from 1.
    column: usize,
    message: String,
    /// What to do.
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
    findings.extend(warnings(&entries, &Devices::of_host(), inspect_library));
    findings.sort_by_key(|finding| (finding.line, finding.column));
    let document =
        Document { file: options.file.display().to_string(), entries: entries.len(), findings };
    match options.json {
        true => print_json(&document)?,
        false => print(&document.text(&text))?,
    }
    let is_failure = |finding: &Finding| options.strict || finding.severity == Severity::Error;
    Ok(!document.findings.iter().any(is_failure))
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

    /// Returns a key that is equal for findings that differ only in a value of the line.
    fn kind(&self) -> (Severity, &str) {
        let before_the_value = || self.message.split('"').next().unwrap_or_default();
        (self.severity, self.help.as_deref().unwrap_or_else(before_the_value))
    }

    fn warning(entry: &Entry, message: String, help: &str) -> Finding {
        Finding::new(Severity::Warning, &entry.origin, message, Some(help))
    }
}

/// Why a library does not provide an entry, and what to do about it, if that is known.
#[derive(Clone, Serialize, Deserialize)]
struct LibraryFault {
    why: String,
    remedy: Option<String>,
    /// The fault affects every entry that names the library: the library is not a provider at all,
    /// or its start does not end.
    of_library: bool,
}

impl LibraryFault {
    /// A fault that says nothing about other entries of the library and has no known remedy.
    fn of_entry(why: String) -> LibraryFault {
        LibraryFault { why, remedy: None, of_library: false }
    }
}

/// Returns why an entry's library does not provide it, or `None` if it does.
type Inspect = fn(&Entry) -> Option<LibraryFault>;

/// Returns what `inspect` finds for each entry that programs can ask for. A library may register
/// one entry and not another, so each is inspected. A library that does not load, or whose start
/// does not end, is not tried again.
fn faults(entries: &[Entry], inspect: Inspect) -> Vec<Option<LibraryFault>> {
    let mut no_providers: HashMap<&str, LibraryFault> = HashMap::new();
    let mut faults = Vec::new();
    for (entry, first) in entries.iter().zip(first_duplicates(entries)) {
        let library = entry.library.as_str();
        let fault = if never_requested(entry).is_some() || repeated(entry, first).is_some() {
            None
        } else {
            no_providers.get(library).cloned().or_else(|| inspect(entry))
        };
        if let Some(fault) = fault.as_ref().filter(|fault| fault.of_library) {
            no_providers.entry(library).or_insert_with(|| fault.clone());
        }
        faults.push(fault);
    }
    faults
}

/// Returns a warning for each entry that does not open or that no program can ask for.
fn warnings(entries: &[Entry], devices: &Devices, inspect: Inspect) -> Vec<Finding> {
    let faults = faults(entries, inspect);
    let (mut reported, mut absent) = (HashSet::new(), HashSet::new());
    let mut findings = Vec::new();
    let first_and_other = first_duplicates(entries).into_iter().zip(ambiguous(entries));
    for (index, (entry, (first, other))) in entries.iter().zip(first_and_other).enumerate() {
        if let Some(finding) = never_requested(entry).or_else(|| repeated(entry, first)) {
            findings.push(finding);
            continue;
        }
        findings.extend(other);
        if let Some(LibraryFault { why, remedy, .. }) = &faults[index] {
            // One finding covers all affected entries of a library: a distribution's file has
            // dozens.
            if !reported.insert((&entry.library, why)) {
                continue;
            }
            let same = entries.iter().zip(&faults).skip(index + 1).filter(|(other, fault)| {
                other.library == entry.library
                    && fault.as_ref().is_some_and(|fault| fault.why == *why)
            });
            let lines: Vec<usize> = same.map(|(other, _)| place(&other.origin).0).collect();
            let more = match lines.as_slice() {
                [] => String::new(),
                [line] => format!(" (also line {line})"),
                lines => format!(" (also lines {})", units::ranges(lines)),
            };
            let remedy = library_next_to_program(&entry.library).or_else(|| remedy.clone());
            let help =
                format!("{}, or remove the line", remedy.as_deref().unwrap_or("ask its vendor"));
            let finding = Finding::warning(entry, format!("{}: {why}{more}", entry.ia_name), &help);
            findings.push(Finding { more: lines, ..finding });
            continue;
        }
        if let Some(device) = devices.missing(entry) {
            // One finding per device.
            if !absent.insert(device) {
                continue;
            }
            let same = entries
                .iter()
                .skip(index + 1)
                .filter(|other| devices.missing(other) == Some(device));
            let lines: Vec<usize> = same.map(|other| place(&other.origin).0).collect();
            let more = match lines.as_slice() {
                [] => String::new(),
                [line] => format!(" (also line {line})"),
                lines => format!(" (also lines {})", units::ranges(lines)),
            };
            let message = format!(
                "{}: this host has no network device, RDMA device or address called {device:?}\
                 {more}",
                entry.ia_name
            );
            let help = format!("the host has {}; or remove the line", devices.names());
            let finding = Finding::warning(entry, message, &help);
            findings.push(Finding { more: lines, ..finding });
        } else if let Some(fault) = parameters::fault(entry) {
            let help = "its adapter does not open with them; dat.conf(5) and the provider's \
                        documentation list the keys";
            findings.push(Finding::warning(entry, format!("{}: {fault}", entry.ia_name), help));
        }
    }
    findings
}

/// Returns the lines of the registry file whose entries are unusable.
pub(crate) fn unusable_lines(list: &List) -> Vec<usize> {
    let of_file = |candidate: &&Candidate| matches!(candidate.entry.origin, Origin::File { .. });
    let entries: Vec<Entry> = list
        .candidates()
        .into_iter()
        .filter(of_file)
        .map(|candidate| candidate.entry.clone())
        .collect();
    let findings = warnings(&entries, &Devices::of_host(), inspect_library);
    let mut lines: Vec<usize> = findings
        .into_iter()
        .flat_map(|finding| std::iter::once(finding.line).chain(finding.more))
        .collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// Why a new entry may be unusable.
#[derive(Serialize)]
pub(crate) struct Concern {
    pub(crate) message: String,
    /// What to do.
    pub(crate) help: Option<String>,
}

/// Returns the concerns about the last entry in the file that equals this one.
pub(crate) fn concerns(path: &Path, entry: &Entry) -> Result<Vec<Concern>> {
    let File { entries, .. } = convert::read(path)?;
    let Some(at) = entries.iter().rposition(|other| other.same_fields(entry)) else {
        return Ok(Vec::new());
    };
    let findings = match repeated(&entries[at], first_duplicates(&entries)[at]) {
        // The user has asked for an entry that programs do not use.
        _ if !entry.default => Vec::new(),
        Some(finding) => vec![finding],
        None => warnings(&entries[at..=at], &Devices::of_host(), inspect_library),
    };
    Ok(findings
        .into_iter()
        .map(|Finding { message, help, .. }| Concern { message, help })
        .collect())
}

/// Returns line and column.
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
            "write default, if it is to be used",
        ),
        (Space::Kernel, ..) => warning(
            format!("{ia_name} is for kDAPL ({api}): no program in user space can open it"),
            "write u2.0 or u1.2, or remove the line",
        ),
        (Space::User, 2, _) => None,
        (Space::User, 1, minor) if minor >= 2 => None,
        (Space::User, 1, _) => warning(
            format!("{ia_name} offers {api}, and programs of uDAPL 1 ask for 1.2 or higher"),
            "write u1.2",
        ),
        _ => warning(
            format!("{ia_name} offers {api}, but programs ask only for uDAPL 1.2 and 2.0"),
            "write u2.0 or u1.2",
        ),
    }
}

/// Returns for each entry the first usable one before it with the same name, API and thread safety.
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
/// entry with the same name and major version. Which of them a program gets depends on the thread
/// safety and the minor version that it asks for.
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
            "this line is used only if the library of that one cannot be loaded; otherwise \
             rename it",
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
        format!("set LD_LIBRARY_PATH to {0}, where it is, or write {0}/{library}", lib.display())
    })
}

/// How long a provider may take to start: far more than any needs.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(10);

/// Starts an entry's provider in a process of its own, because the provider may crash or hang.
fn inspect_library(entry: &Entry) -> Option<LibraryFault> {
    let answer = || {
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command.args(["inspect", registry::conf::write(std::slice::from_ref(entry)).trim_end()]);
        start(command, &entry.library, START_LIMIT)
    };
    answer().unwrap_or_else(|error| Some(LibraryFault::of_entry(format!("{error:#}"))))
}

/// Runs a process that starts a library, and returns what it reports. A process that reports
/// nothing or does not end is a fault of the library.
fn start(mut command: Command, library: &str, limit: Duration) -> Result<Option<LibraryFault>> {
    // Nobody reads what the library prints, so it must not fill a pipe.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let socket = parent::connect(&mut command)?;
    socket.shutdown(Shutdown::Write)?;
    let mut child = command.spawn().context("starting this program")?;
    drop(command);
    let Some(status) = wait_within(&mut child, limit).context("waiting for this program")? else {
        let why = format!("starting {library} does not end within {} s", limit.as_secs_f32());
        // Other entries of the library would take as long.
        return Ok(Some(LibraryFault { why, remedy: None, of_library: true }));
    };
    // A process that the library has left running may keep the other end of the socket open.
    socket.set_nonblocking(true)?;
    let mut answer = String::new();
    let _ = BufReader::new(socket).read_line(&mut answer);
    Ok(serde_json::from_str(&answer).unwrap_or_else(|_| {
        Some(LibraryFault::of_entry(format!(
            "starting {library} terminates the program ({status})"
        )))
    }))
}

/// Waits until a process ends. A process that still runs after `limit` is killed; the result is
/// then `None`.
pub(crate) fn wait_within(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(2));
    }
}

#[derive(Args)]
pub(crate) struct Inspection {
    /// The entry, as a line of dat.conf
    entry: String,
}

/// Starts an entry's provider, and tells the parent why it is not a provider.
pub(crate) fn inspect(inspection: &Inspection) -> Result<bool> {
    let (entries, _) = registry::conf::parse(Path::new("dat.conf"), inspection.entry.as_bytes());
    let entry = entries.first().context("no entry of dat.conf")?;
    let fault = registry::check_starts(entry).err();
    parent::send(&fault.map(|error| LibraryFault {
        why: error.to_string(),
        of_library: matches!(error, LoadError::Open(_) | LoadError::Symbol(_)),
        remedy: error.remedy().map(|remedy| remedy.replace("in the entry", "in this line")),
    }));
    Ok(true)
}

/// How many findings of a kind are printed individually.
const MAX_SHOWN_PER_KIND: usize = 8;
/// How many characters of a line are printed.
const MAX_SHOWN_CHARS: usize = 200;

/// Returns a line of the file with a mark below one of its columns. Of a long line, only the part
/// around the column is returned.
fn line_with_mark(line: &str, column: usize) -> String {
    let at = column.saturating_sub(1);
    let begin = if at < MAX_SHOWN_CHARS { 0 } else { at - MAX_SHOWN_CHARS / 4 };
    let mut shown = line.chars().skip(begin);
    let part: String = shown.by_ref().take(MAX_SHOWN_CHARS).collect();
    let (before, after) =
        (if begin > 0 { "… " } else { "" }, if shown.next().is_some() { " …" } else { "" });
    // Tabs stay tabs, so that the mark is below the right character.
    let blank = |c| if c == '\t' { c } else { ' ' };
    let indent: String = before.chars().chain(part.chars().take(at - begin)).map(blank).collect();
    format!("    {before}{part}{after}\n    {indent}^\n")
}

impl Document {
    /// Formats the findings like a compiler: the place, the message, and the line with a mark
    /// below.
    fn text(&self, source: &[u8]) -> String {
        let source = String::from_utf8_lossy(source)
            .replace(|c: char| c.is_control() && c != '\n' && c != '\t', "\u{fffd}");
        let lines: Vec<&str> = source.lines().collect();
        let mut text = String::new();
        let file = printable(&self.file);
        // For each kind: its first finding, how many are printed, and the lines of the others.
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
            text +=
                &format!("{file}:{line}:{column}: {}: {}\n", finding.word(), printable(message));
            text += &lines
                .get(line.wrapping_sub(1))
                .map_or_else(String::new, |line| line_with_mark(line, *column));
            text += &help
                .as_ref()
                .map_or_else(String::new, |help| format!("    {}\n", printable(help)));
        }
        let mut kinds: Vec<_> =
            kinds.into_values().filter(|(.., others)| !others.is_empty()).collect();
        kinds.sort_by_key(|(first, ..)| (first.line, first.column));
        for (first, _, others) in kinds {
            let (count, lines) = (others.len(), printable(&units::ranges(&others)));
            text += &format!(
                "{file}: {}: {count} more as in line {}: {lines}\n",
                first.word(),
                first.line
            );
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
    use std::fs;

    use super::*;

    #[test]
    fn parameters_that_an_adapter_would_not_open_with_are_warned_of() {
        let line = "a u2.0 nonthreadsafe default libdat_tcp_emu.so v.1.0 \"crc=maybe\" \"\"";
        let (entries, _) = registry::conf::parse(Path::new("dat.conf"), line.as_bytes());
        let findings = warnings(&entries, &Devices::default(), |_| None);
        let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(messages, ["a: ia_params: crc=maybe: expected on or off"]);
    }

    fn messages(lines: &str) -> Vec<String> {
        let (entries, _) = registry::conf::parse(Path::new("dat.conf"), lines.as_bytes());
        let findings = warnings(&entries, &Devices::default(), |_| None);
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
            let messages = messages(&(first.clone() + &other));
            assert_eq!(messages.len(), 1, "{other}: {messages:?}");
            assert!(
                messages[0].starts_with("a is also in line 1, with another library or other"),
                "{messages:?}"
            );
        }
        // Programs that ask for a different thread safety get the same adapter, and u1.2 programs
        // use another library.
        let same =
            line("u2.0 nonthreadsafe", "x.so", "crc=on") + &line("u1.2 threadsafe", "y.so", "");
        assert_eq!(messages(&(first + &same)), [""; 0]);
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
        let mut findings = warnings(&entries, &Devices::default(), |_| None);
        findings.extend(errors.iter().map(error));
        let document = Document { file: "dat.conf".to_owned(), entries: entries.len(), findings };
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
            .expect("it");
        let column = |line: &str, what| line.find(what).map(|end| line[..end].chars().count());
        assert_eq!(column(lines[at + 1], "^"), column(lines[at], "\"more\""));
    }

    /// Returns the fault of a library whose start is this script. The script's standard input is
    /// the socket.
    fn started(script: &str, limit: Duration) -> Option<LibraryFault> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        start(command, "libx.so", limit).expect("sh starts")
    }

    /// Like `started`, without a time limit.
    fn why(script: &str) -> Option<String> {
        started(script, Duration::MAX).map(|fault| fault.why)
    }

    #[test]
    fn a_library_whose_start_does_not_end_is_stopped_at_the_limit() {
        let fault = started("exec sleep 1000", Duration::from_millis(50)).expect("a fault");
        assert_eq!(fault.why, "starting libx.so does not end within 0.05 s");
        assert!(fault.of_library, "it is not tried again");
    }

    #[test]
    fn a_process_that_is_stopped_is_reaped() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep starts");
        assert_eq!(wait_within(&mut child, Duration::ZERO).expect("it is killed"), None);
        assert!(!Path::new(&format!("/proc/{}", child.id())).exists());
    }

    #[test]
    fn a_library_that_prints_much_is_heard() {
        assert_eq!(
            why("head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; echo null >&0"),
            None
        );
    }

    #[test]
    fn nobody_waits_for_a_process_that_a_library_leaves_behind() {
        let dir = tempfile::tempdir().expect("a directory");
        let fifo = dir.path().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo starts");
        assert!(made.success());
        // The process has the socket as its descriptor 3, and runs until the FIFO is written.
        let stays = format!("exec 3<&0; cat {} &", fifo.display());
        assert_eq!(why(&format!("{stays} echo null >&0")), None);
        fs::write(&fifo, "").expect("it reads");
        let ends = "starting libx.so terminates the program (exit status: 3)";
        assert_eq!(why(&format!("{stays} exit 3")).as_deref(), Some(ends));
        fs::write(&fifo, "").expect("it reads");
    }
}
