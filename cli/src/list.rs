//! `dat list`: lists the adapters by name, and why those that do not open fail.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::net::Shutdown;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use dat::Adapter;
use registry::host::names_in;
use registry::report::printable;
use registry::{Candidate, Entry, List, Origin};
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

use crate::check::{START_LIMIT, wait_within};
use crate::output::{print, print_json};
use crate::parent;
use crate::progress::Progress;
use text::{Fold, View, text};

mod text;

#[derive(Args)]
pub(crate) struct Options {
    /// Only entries whose name contains one of these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Only entries that open
    #[arg(long, conflicts_with = "all")]
    usable: bool,
    /// List each entry separately, even if many fail for the same reason, with everything that its
    /// library printed
    #[arg(long)]
    all: bool,
    /// Do not fold lines at 80 columns
    #[arg(long, conflicts_with = "json")]
    wide: bool,
    /// Print one JSON document instead of text, with all details: every entry, or with --usable
    /// those that open, in the order in which the registry tries them
    #[arg(long)]
    json: bool,
}

/// An entry in the JSON output.
#[derive(Serialize)]
struct Item {
    name: String,
    /// The API and its version, `u2.0`.
    api: String,
    thread_safe: bool,
    /// The library, or `None` for a provider that is linked into this program.
    library: Option<String>,
    version: String,
    parameters: String,
    /// `file:line:column`, or `built in`.
    origin: String,
    #[serde(skip)]
    line: Option<usize>,
    /// The adapter's own attributes, if it opens: names and values.
    attributes: Vec<(String, String)>,
    #[serde(flatten)]
    state: State,
}

#[derive(Serialize)]
#[serde(tag = "state", content = "reason", rename_all = "snake_case")]
enum State {
    Opens,
    Fails(String),
    /// This program cannot use the entry.
    Unused(&'static str),
}

#[derive(Serialize)]
struct Document {
    /// The registry file.
    file: Option<String>,
    /// Whether OPENDAT_BUILTIN=0 turned the built-in entries off.
    builtins_off: bool,
    entries: Vec<Item>,
    /// The errors in the file.
    errors: Vec<String>,
    /// Additional advice.
    #[serde(skip)]
    hint: Option<&'static str>,
}

/// The advice if entries of a file fail, as those that distributions ship do, and the host has no
/// device.
const NO_DEVICE: &str = "this host has no RDMA device: tcp-emu and softroce need none, and are \
                         built in; `dat register NAME libdat_tcp_emu.so` adds one under the \
                         name that a program asks for";

impl Document {
    /// Replaces control characters, since a registry file may contain anything.
    fn printable(self) -> Document {
        let text = |text: String| printable(&text);
        let item = |item: Item| Item {
            name: printable(&item.name),
            library: item.library.map(text),
            origin: printable(&item.origin),
            attributes: item
                .attributes
                .into_iter()
                .map(|(name, value)| (text(name), text(value)))
                .collect(),
            state: match item.state {
                State::Fails(reason) => State::Fails(printable(&reason)),
                state => state,
            },
            ..item
        };
        Document {
            file: self.file.map(text),
            entries: self.entries.into_iter().map(item).collect(),
            errors: self.errors.into_iter().map(text).collect(),
            ..self
        }
    }
}

/// Lists the entries. Returns whether the registry file has no errors.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let list = List::from_environment(dat::builtins());
    let is_asked = |candidate: &Candidate| {
        let has = |name: &String| candidate.entry.ia_name.contains(name.as_str());
        options.names.is_empty() || options.names.iter().any(has)
    };
    // Entries keep their index in the registry, by which they are opened.
    let candidates: Vec<(usize, &Candidate)> = list
        .candidates()
        .into_iter()
        .enumerate()
        .filter(|(_, candidate)| is_asked(candidate))
        .collect();
    ensure!(
        !candidates.is_empty() || options.names.is_empty(),
        "no entry has {} in its name; `dat list` without a name lists all",
        options.names.join(" or ")
    );
    let progress = Progress::new(candidates.len());
    let mut broken = HashMap::new();
    let entries = candidates.into_iter().enumerate().map(|(done, (index, candidate))| {
        progress.show(done as f64);
        item(index, candidate, &mut broken)
    });
    let entries = entries.collect();
    drop(progress);
    let mut document = Document {
        file: list.file().map(|path| path.display().to_string()),
        builtins_off: list.builtins_off(),
        entries,
        errors: list.errors().iter().map(ToString::to_string).collect(),
        hint: None,
    };
    let fails = |item: &Item| item.library.is_some() && matches!(item.state, State::Fails(_));
    let is_alone = names_in(Path::new("/sys/class/infiniband")).is_empty();
    document.hint = (is_alone && document.entries.iter().any(fails)).then_some(NO_DEVICE);
    let is_clean = document.errors.is_empty();
    if options.json {
        if options.usable {
            document.entries.retain(|item| matches!(item.state, State::Opens));
        }
        print_json(&document)?;
    } else {
        let view = match options {
            Options { usable: true, .. } => View::Usable,
            Options { all: true, .. } => View::All,
            _ => View::Grouped,
        };
        let fold = if options.wide { Fold::Never } else { Fold::AtWidth };
        print(&text(&document.printable(), view, fold))?;
    }
    Ok(is_clean)
}

/// Libraries that do not load, and why. They are tried once for all of their entries.
type BrokenLibraries = HashMap<String, String>;

fn item(index: usize, candidate: &Candidate, broken: &mut BrokenLibraries) -> Item {
    let Entry { ia_name, api, threadsafe, library, provider_version, ia_params, origin, .. } =
        &candidate.entry;
    let (state, attributes) = state(index, candidate, broken);
    Item {
        name: ia_name.clone(),
        api: api.to_string(),
        thread_safe: *threadsafe,
        library: candidate.builtin.is_none().then(|| library.clone()),
        version: provider_version.to_string(),
        parameters: ia_params.clone(),
        origin: origin.to_string(),
        line: match origin {
            Origin::File { line, .. } => Some(*line),
            _ => None,
        },
        attributes,
        state,
    }
}

fn state(
    index: usize,
    candidate: &Candidate,
    broken: &mut BrokenLibraries,
) -> (State, Vec<(String, String)>) {
    let Entry { api, default, library, .. } = &candidate.entry;
    let without = |state| (state, Vec::new());
    if !default {
        return without(State::Unused("marked nondefault"));
    }
    if !candidate.entry.usable() {
        return without(State::Unused("for kernel space only"));
    }
    if api.major != 2 {
        return without(State::Unused("for another version of the API; this program uses 2.0"));
    }
    if candidate.builtin.is_none()
        && let Some(reason) = broken.get(library)
    {
        return without(State::Fails(reason.clone()));
    }
    match probe_entry(index) {
        Ok(Answer::Opens(attributes)) => (State::Opens, attributes),
        Ok(Answer::Fails(reason)) => without(State::Fails(reason)),
        Ok(Answer::Broken(reason)) => {
            broken.insert(library.clone(), reason.clone());
            without(State::Fails(reason))
        }
        Err(error) => without(State::Fails(format!("{error:#}"))),
    }
}

/// Opens an entry in a process of its own. Returns why it does not open.
pub(crate) fn open(index: usize) -> std::result::Result<(), String> {
    match probe_entry(index) {
        Ok(Answer::Opens(_)) => Ok(()),
        Ok(Answer::Fails(reason) | Answer::Broken(reason)) => Err(reason),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// The result of opening an entry.
#[derive(Serialize, Deserialize)]
enum Answer {
    /// The entry opens. Contains the adapter's attributes: names and values.
    Opens(Vec<(String, String)>),
    /// The entry does not open, for this reason.
    Fails(String),
    /// No entry of the library opens, for this reason.
    Broken(String),
}

/// Opens an entry in a process of its own, because a foreign library may crash, hang, or print
/// anything. The reason why it does not open includes what the library printed.
fn probe_entry(index: usize) -> Result<Answer> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(&program);
    command.args(["probe", &index.to_string()]);
    run_probe(command, START_LIMIT).with_context(|| format!("running {}", program.display()))
}

/// Runs a process that opens an entry, and returns its answer.
fn run_probe(mut command: Command, limit: Duration) -> Result<Answer> {
    // A file takes any amount of output, also from a process that the library leaves running.
    let file = |name| rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map(File::from);
    let printed = [file("stdout")?, file("stderr")?];
    let [output, complaints] = [printed[0].try_clone()?, printed[1].try_clone()?];
    command.stdout(output).stderr(complaints);
    let socket = parent::connect(&mut command)?;
    socket.shutdown(Shutdown::Write)?; // a library that reads standard input reads its end
    let mut child = command.spawn()?;
    drop(command); // closes our copy of the child's end of the socket
    let status = wait_within(&mut child, limit)?;
    // A process that the library has left running may keep the other end of the socket open.
    socket.set_nonblocking(true)?;
    let mut answer = String::new();
    let _ = BufReader::new(socket).read_line(&mut answer);
    let reason = match (serde_json::from_str::<Answer>(&answer), status) {
        (Ok(Answer::Fails(reason)), _) => reason,
        (Ok(answer), Some(_)) => return Ok(answer),
        (Err(_), Some(status)) => format!("opening it terminated the program ({status})"),
        // Other entries of the library would take as long.
        (_, None) => {
            let reason = format!("opening it does not end within {} s", limit.as_secs_f32());
            return Ok(Answer::Broken(append_output(reason, printed)?));
        }
    };
    Ok(Answer::Fails(append_output(reason, printed)?))
}

/// Appends what the library has printed to the reason.
fn append_output(mut reason: String, printed: [File; 2]) -> Result<String> {
    for mut file in printed {
        for line in read_output(&mut file)?.lines() {
            reason += &format!("\n{line}");
        }
    }
    Ok(reason)
}

fn read_output(file: &mut File) -> std::io::Result<String> {
    /// More than anybody reads.
    const MAX_OUTPUT_BYTES: u64 = 1 << 20;
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[derive(Args)]
pub(crate) struct Probe {
    /// The index of the entry in the list, from 0
    index: usize,
}

/// Opens and closes one entry, and sends the result to the parent.
pub(crate) fn probe(probe: &Probe) -> Result<bool> {
    let list = List::from_environment(dat::builtins());
    let candidate =
        list.candidates().into_iter().nth(probe.index).context("the registry has no such entry")?;
    let answer = match Adapter::open_entry(candidate) {
        Ok(adapter) => Answer::Opens(adapter.attributes().named.clone()),
        Err(reason)
            if candidate.builtin.is_none()
                && registry::check_loads(&candidate.entry.library).is_err() =>
        {
            Answer::Broken(reason)
        }
        Err(reason) => Answer::Fails(reason),
    };
    parent::send(&answer);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the answer when opening an entry is this script. The script's standard input is the
    /// socket.
    fn opened(script: &str, limit: Duration) -> Answer {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run_probe(command, limit).expect("sh starts")
    }

    fn fails(script: &str, limit: Duration) -> String {
        match opened(script, limit) {
            Answer::Fails(reason) => reason,
            _ => panic!("{script}: it does not fail"),
        }
    }

    #[test]
    fn an_entry_whose_opening_does_not_end_is_stopped_at_the_limit() {
        let answer = opened("echo said; exec sleep 1000", Duration::from_millis(50));
        let Answer::Broken(reason) = answer else {
            panic!("others of its library would be asked, too")
        };
        assert!(reason.starts_with("opening it does not end within 0.05 s"), "{reason}");
    }

    #[test]
    fn what_is_printed_comes_with_the_reason_but_not_with_an_answer() {
        let fails_with = "echo out; echo err >&2; echo '{\"Fails\":\"why\"}' >&0";
        assert_eq!(fails(fails_with, Duration::MAX), "why\nout\nerr");
        assert_eq!(
            fails("echo out; exit 3", Duration::MAX),
            "opening it terminated the program (exit status: 3)\nout"
        );
        let much = "head -c 3000000 /dev/zero; echo '{\"Opens\":[[\"a\",\"b\"]]}' >&0";
        assert!(matches!(opened(much, Duration::MAX), Answer::Opens(pairs)
                if pairs == [("a".into(), "b".into())]));
    }
}
