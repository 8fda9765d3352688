//! `dat check`: what is wrong with a registry file, and what in it will never be of use, each with its place.

use std::collections::HashSet;
use std::io::{Read, Write, stdout};
use std::net::Shutdown;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use registry::entry::{Entry, Origin, Space};
use registry::{Candidate, List};
use serde::Serialize;

use crate::convert::{self, File};
use crate::devices::Devices;
use crate::parent;
use crate::table::{Colour, colour};

#[derive(Args)]
pub(crate) struct Options {
    /// The file: TOML if its name ends in .toml, eight fields a line if it ends in .conf, else as its content looks
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
    /// Entries that could be read.
    entries: usize,
    findings: Vec<Finding>,
}

/// Something to be mended, or to be known.
#[derive(Serialize)]
struct Finding {
    severity: Severity,
    /// From 1.
    line: usize,
    /// From 1, in characters.
    column: usize,
    message: String,
    /// What to do.
    help: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Severity {
    /// The line gives no entry.
    Error,
    /// The entry will not open, or never be asked.
    Warning,
}

/// Checks; true if there is nothing wrong.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let File { entries, errors, text, .. } = convert::read(&options.file)?;
    let mut findings: Vec<Finding> = errors
        .iter()
        .map(|error| Finding::new(Severity::Error, &error.origin, error.kind.to_string(), None))
        .collect();
    findings.extend(warnings(&entries, &Devices::of_host(), library));
    findings.sort_by_key(|finding| (finding.line, finding.column));
    let document = Document { file: options.file.display().to_string(), entries: entries.len(), findings };
    match options.json {
        true => writeln!(stdout(), "{}", serde_json::to_string_pretty(&document)?)?,
        false => write!(stdout(), "{}", document.text(&text))?,
    }
    let bad = |finding: &Finding| options.strict || finding.severity == Severity::Error;
    Ok(!document.findings.iter().any(bad))
}

impl Finding {
    fn new(severity: Severity, origin: &Origin, message: String, help: Option<&str>) -> Finding {
        let (line, column) = match origin {
            Origin::File { line, column, .. } => (*line, *column),
            Origin::Builtin | Origin::Program => (0, 0),
        };
        Finding { severity, line, column, message, help: help.map(ToOwned::to_owned) }
    }

    fn warning(entry: &Entry, message: String, help: &str) -> Finding {
        Finding::new(Severity::Warning, &entry.origin, message, Some(help))
    }
}

/// Why a library is no provider.
type Inspect = fn(&str) -> Option<String>;

/// What will not open, or never be asked for.
fn warnings(entries: &[Entry], devices: &Devices, inspect: Inspect) -> Vec<Finding> {
    let (mut inspected, mut gone) = (HashSet::new(), HashSet::new());
    let mut findings = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if let Some(finding) = never_asked(entry).or_else(|| repeated(entry, &entries[..index])) {
            findings.push(finding);
            continue;
        }
        // Once for each library: a distribution's file has dozens of entries of one.
        if inspected.insert(&entry.library)
            && let Some(why) = inspect(&entry.library)
        {
            let others = entries.iter().filter(|other| other.library == entry.library).count() - 1;
            let more = match others {
                0 => String::new(),
                _ => format!(" (and {} more of this library)", plural(others, "entry", "entries")),
            };
            gone.insert(&entry.library);
            let help = "install what it belongs to, give its full path, or take the line out";
            findings.push(Finding::warning(entry, format!("{}: {why}{more}", entry.ia_name), help));
        }
        if gone.contains(&entry.library) {
            continue;
        }
        if let Some(device) = devices.missing(entry) {
            let message = format!(
                "{}: this host has no network device, RDMA device or address called {device:?}",
                entry.ia_name
            );
            let help = format!("those that it has are {}; or take the line out", devices.names());
            findings.push(Finding::warning(entry, message, &help));
        }
    }
    findings
}

/// Whether some entries of a registry's file will not open, or never be asked for.
pub(crate) fn warns_of(list: &List) -> bool {
    let of_file = |candidate: &&Candidate| matches!(candidate.entry.origin, Origin::File { .. });
    let entries: Vec<Entry> =
        list.candidates().into_iter().filter(of_file).map(|candidate| candidate.entry.clone()).collect();
    !warnings(&entries, &Devices::of_host(), library).is_empty()
}

/// A line that no program's dat_ia_open comes to.
fn never_asked(entry: &Entry) -> Option<Finding> {
    let Entry { ia_name, api, .. } = entry;
    let warning = |message, help| Some(Finding::warning(entry, message, help));
    match (api.space, api.major, api.minor) {
        _ if !entry.default => warning(
            format!("{ia_name} is marked nondefault: no program can open it"),
            "write default, if it is to be used",
        ),
        (Space::Kernel, ..) => warning(
            format!("{ia_name} is for kDAPL ({api}): no program in user space can open it"),
            "write u2.0 or u1.2, or take the line out",
        ),
        (Space::User, 2, _) => None,
        (Space::User, 1, minor) if minor >= 2 => None,
        (Space::User, 1, _) => warning(
            format!("{ia_name} offers {api}, and programs of uDAPL 1 ask for 1.2 or higher"),
            "write u1.2",
        ),
        _ => warning(
            format!("{ia_name} offers {api}, which no program asks for: there are uDAPL 1.2 and 2.0"),
            "write u2.0 or u1.2",
        ),
    }
}

/// An interface that a line before has, too.
fn repeated(entry: &Entry, before: &[Entry]) -> Option<Finding> {
    let first = before.iter().find(|first| first.usable() && first.same_interface(entry))?;
    let Origin::File { line, .. } = &first.origin else { return None };
    let name = &entry.ia_name;
    let finding = if first.same_fields(entry) {
        Finding::warning(entry, format!("{name} is the same as in line {line}"), "take one of them out")
    } else {
        let message = format!("{name} is in line {line} already, with the same API and thread safety");
        Finding::warning(entry, message, "this line is tried where that one does not open; else rename it")
    };
    Some(finding)
}

/// Loads a library in a process of its own, which it may crash.
fn library(name: &str) -> Option<String> {
    let answer = || -> Result<Option<String>> {
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command.args(["inspect", name]);
        let mut socket = parent::connect(&mut command)?;
        socket.shutdown(Shutdown::Write)?;
        let output = command.output().context("starting this program")?;
        drop(command);
        let mut answer = String::new();
        socket.read_to_string(&mut answer).context("reading its answer")?;
        Ok(serde_json::from_str(&answer)
            .unwrap_or_else(|_| Some(format!("loading {name} ends a program ({})", output.status))))
    };
    answer().unwrap_or_else(|error| Some(format!("{error:#}")))
}

#[derive(Args)]
pub(crate) struct Inspection {
    /// The library
    library: String,
}

/// Loads a library, and tells the parent why it is no provider.
pub(crate) fn inspect(inspection: &Inspection) -> Result<bool> {
    parent::say(&registry::inspect(&inspection.library).err().map(|error| error.to_string()));
    Ok(true)
}

impl Document {
    /// As compilers have it: the place, the finding, and the line with a mark below.
    fn text(&self, source: &[u8]) -> String {
        let source = String::from_utf8_lossy(source);
        let lines: Vec<&str> = source.lines().collect();
        let mut text = String::new();
        for Finding { severity, line, column, message, help } in &self.findings {
            let word = match severity {
                Severity::Error => colour("error", Colour::Bad),
                Severity::Warning => colour("warning", Colour::Strong),
            };
            text += &format!("{}:{line}:{column}: {word}: {message}\n", self.file);
            if let Some(source) = lines.get(line.wrapping_sub(1)) {
                // Tabs stay tabs, so that the mark is where it belongs.
                let indent: String =
                    source.chars().take(column - 1).map(|c| if c == '\t' { c } else { ' ' }).collect();
                text += &format!("    {source}\n    {indent}^\n");
            }
            text += &help.as_ref().map_or_else(String::new, |help| format!("    {help}\n"));
        }
        let count = |severity| self.findings.iter().filter(|finding| finding.severity == severity).count();
        let summary = format!(
            "{}, {}, {}",
            plural(self.entries, "entry", "entries"),
            plural(count(Severity::Error), "error", "errors"),
            plural(count(Severity::Warning), "warning", "warnings")
        );
        text + &colour(&summary, Colour::Faint) + "\n"
    }
}

fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
