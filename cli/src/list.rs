//! `dat list`: which adapters there are by name, and why one does not open.

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

use crate::check::{START_LIMIT, end_within};
use crate::output::{print, print_json};
use crate::parent;
use crate::progress::Progress;
use text::{Fold, View, text};

mod text;

#[derive(Args)]
pub(crate) struct Options {
    /// Only the entries whose name contains one of these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Only the entries that open
    #[arg(long, conflicts_with = "all")]
    usable: bool,
    /// Each entry by itself, also where many fail for the same reason, with all that its library printed
    #[arg(long)]
    all: bool,
    /// Print lines of any length, where the default is to fold them at 80 columns
    #[arg(long, conflicts_with = "json")]
    wide: bool,
    /// Print one JSON document instead of text: every entry, or with --usable those that open, with everything, in the order in
    /// which the registry asks them
    #[arg(long)]
    json: bool,
}

/// An entry, as machines are told.
#[derive(Serialize)]
struct Item {
    name: String,
    /// The API and its version, `u2.0`.
    api: String,
    thread_safe: bool,
    /// The library; nothing for what is linked into this program.
    library: Option<String>,
    version: String,
    parameters: String,
    /// `file:line:column`, or `built in`.
    origin: String,
    #[serde(skip)]
    line: Option<usize>,
    /// What it says of itself when it is open: names and values.
    attributes: Vec<(String, String)>,
    #[serde(flatten)]
    state: State,
}

#[derive(Serialize)]
#[serde(tag = "state", content = "reason", rename_all = "snake_case")]
enum State {
    Opens,
    Fails(String),
    /// The entry is not for programs like this one.
    Unused(&'static str),
}

#[derive(Serialize)]
struct Document {
    /// The registry file.
    file: Option<String>,
    /// Whether OPENDAT_BUILTIN=0 turned the built-in entries off.
    builtins_off: bool,
    entries: Vec<Item>,
    /// What in the file could not be used.
    errors: Vec<String>,
    /// What is to be known besides.
    #[serde(skip)]
    hint: Option<&'static str>,
}

/// Where entries of a file fail, as those that distributions ship do, and there is no device.
const NO_DEVICE: &str = "this host has no RDMA device: tcp-emu and softroce need none, and are built in; `dat register NAME \
                         libdat_tcp_emu.so` puts one under the name that a program asks for";

impl Document {
    /// What goes to a terminal: a registry file may hold anything.
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

/// Lists; true when nothing in the registry's file has a mistake.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let list = List::from_environment(dat::builtins());
    let is_asked = |candidate: &Candidate| {
        let has = |name: &String| candidate.entry.ia_name.contains(name.as_str());
        options.names.is_empty() || options.names.iter().any(has)
    };
    // An entry keeps its place in the registry, by which it is opened.
    let candidates: Vec<(usize, &Candidate)> = list
        .candidates()
        .into_iter()
        .enumerate()
        .filter(|(_, candidate)| is_asked(candidate))
        .collect();
    ensure!(
        !candidates.is_empty() || options.names.is_empty(),
        "no entry has {} in its name; `dat list` without a name shows all",
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

/// Libraries that do not load, and why: whatever their entries are for, they are asked once.
type Broken = HashMap<String, String>;

fn item(index: usize, candidate: &Candidate, broken: &mut Broken) -> Item {
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
    broken: &mut Broken,
) -> (State, Vec<(String, String)>) {
    let Entry { api, default, library, .. } = &candidate.entry;
    let without = |state| (state, Vec::new());
    if !default {
        return without(State::Unused("marked nondefault"));
    }
    if !candidate.entry.usable() {
        return without(State::Unused("not for programs in user space"));
    }
    if api.major != 2 {
        return without(State::Unused("of another version of the API; this program speaks 2.0"));
    }
    if candidate.builtin.is_none()
        && let Some(reason) = broken.get(library)
    {
        return without(State::Fails(reason.clone()));
    }
    match ask(index) {
        Ok(Answer::Opens(attributes)) => (State::Opens, attributes),
        Ok(Answer::Fails(reason)) => without(State::Fails(reason)),
        Ok(Answer::Broken(reason)) => {
            broken.insert(library.clone(), reason.clone());
            without(State::Fails(reason))
        }
        Err(error) => without(State::Fails(format!("{error:#}"))),
    }
}

/// Opens an entry, likewise: why it does not.
pub(crate) fn open(index: usize) -> std::result::Result<(), String> {
    match ask(index) {
        Ok(Answer::Opens(_)) => Ok(()),
        Ok(Answer::Fails(reason) | Answer::Broken(reason)) => Err(reason),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// What came of opening an entry.
#[derive(Serialize, Deserialize)]
enum Answer {
    /// It opens, and says so of itself: names and values.
    Opens(Vec<(String, String)>),
    /// Why it does not.
    Fails(String),
    /// Why no entry of its library does.
    Broken(String),
}

/// Opens an entry in a process of its own, which a foreign library may crash or keep from ending, and in which it may print what
/// it likes. Why it does not open comes with what the library printed.
fn ask(index: usize) -> Result<Answer> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(&program);
    command.args(["probe", &index.to_string()]);
    answer_of(command, START_LIMIT).with_context(|| format!("running {}", program.display()))
}

/// Runs a process that opens an entry, and returns what it says of the entry.
fn answer_of(mut command: Command, limit: Duration) -> Result<Answer> {
    // A file takes whatever a library prints, also from a process that the library leaves behind.
    let file = |name| rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map(File::from);
    let printed = [file("stdout")?, file("stderr")?];
    let [output, complaints] = [printed[0].try_clone()?, printed[1].try_clone()?];
    command.stdout(output).stderr(complaints);
    let socket = parent::connect(&mut command)?;
    socket.shutdown(Shutdown::Write)?; // there is nothing to be read for a library either
    let mut child = command.spawn()?;
    drop(command); // and with it our copy of the process's end of the socket
    let status = end_within(&mut child, limit)?;
    // A process that the library has left behind may keep the other end of the socket open.
    socket.set_nonblocking(true)?;
    let mut answer = String::new();
    let _ = BufReader::new(socket).read_line(&mut answer);
    let reason = match (serde_json::from_str::<Answer>(&answer), status) {
        (Ok(Answer::Fails(reason)), _) => reason,
        (Ok(answer), Some(_)) => return Ok(answer),
        (Err(_), Some(status)) => format!("opening it ended the program ({status})"),
        // Other entries of its library would take as long.
        (_, None) => {
            let reason = format!("opening it does not end within {} s", limit.as_secs_f32());
            return Ok(Answer::Broken(with_printed(reason, printed)?));
        }
    };
    Ok(Answer::Fails(with_printed(reason, printed)?))
}

/// The reason, and what the library has printed.
fn with_printed(mut reason: String, printed: [File; 2]) -> Result<String> {
    for mut file in printed {
        for line in text_of(&mut file)?.lines() {
            reason += &format!("\n{line}");
        }
    }
    Ok(reason)
}

fn text_of(file: &mut File) -> std::io::Result<String> {
    /// This is far more than anybody reads.
    const LONGEST: u64 = 1 << 20;
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[derive(Args)]
pub(crate) struct Probe {
    /// Which entry of the list, from 0
    index: usize,
}

/// Opens one entry and closes it, and tells the parent why not.
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
    parent::say(&answer);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of an entry when opening it is this script. Its standard input is the socket.
    fn opened(script: &str, limit: Duration) -> Answer {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        answer_of(command, limit).expect("sh starts")
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
            "opening it ended the program (exit status: 3)\nout"
        );
        let much = "head -c 3000000 /dev/zero; echo '{\"Opens\":[[\"a\",\"b\"]]}' >&0";
        assert!(
            matches!(opened(much, Duration::MAX), Answer::Opens(pairs) if pairs == [("a".into(), "b".into())])
        );
    }
}
