//! `dat list`: which adapters there are by name, and why one does not open.

use std::io::{Read, Write, stdout};
use std::net::Shutdown;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use dat::Adapter;
use registry::{Candidate, Entry, List, Origin};
use serde::Serialize;

use crate::parent;
use text::{View, text};

mod text;

#[derive(Args)]
pub(crate) struct Options {
    /// Only the entries that open
    #[arg(long, conflicts_with = "all")]
    usable: bool,
    /// Each entry by itself, also where many fail for the same reason, with all that its library printed
    #[arg(long)]
    all: bool,
    /// Print one JSON document instead of text: every entry, with everything
    #[arg(long, conflicts_with_all = ["usable", "all"])]
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
}

/// Lists; true when nothing in the registry's file has a mistake.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let list = List::from_environment(dat::builtins());
    let document = Document {
        file: list.file().map(|path| path.display().to_string()),
        builtins_off: list.builtins_off(),
        entries: list.candidates().into_iter().enumerate().map(item).collect(),
        errors: list.errors().iter().map(ToString::to_string).collect(),
    };
    if options.json {
        writeln!(stdout(), "{}", serde_json::to_string_pretty(&document)?)?;
    } else {
        let view = match options {
            Options { usable: true, .. } => View::Usable,
            Options { all: true, .. } => View::All,
            _ => View::Grouped,
        };
        write!(stdout(), "{}", text(&document, view))?;
    }
    Ok(document.errors.is_empty())
}

fn item((index, candidate): (usize, &Candidate)) -> Item {
    let Entry { ia_name, api, threadsafe, library, provider_version, ia_params, origin, .. } =
        &candidate.entry;
    let (state, attributes) = state(index, candidate);
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

fn state(index: usize, candidate: &Candidate) -> (State, Vec<(String, String)>) {
    let Entry { api, default, .. } = &candidate.entry;
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
    match ask(index) {
        Ok(Ok(attributes)) => (State::Opens, attributes),
        Ok(Err(reason)) => without(State::Fails(reason)),
        Err(error) => without(State::Fails(format!("{error:#}"))),
    }
}

/// Opens an entry, likewise: why it does not.
pub(crate) fn open(index: usize) -> std::result::Result<(), String> {
    match ask(index) {
        Ok(answer) => answer.map(drop),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// What an entry says of itself when it opens, else why it does not.
type Answer = std::result::Result<Vec<(String, String)>, String>;

/// Opens an entry in a process of its own, which a foreign library may crash, and in which it may print what it likes.
/// Why it does not open comes with what the library printed.
fn ask(index: usize) -> Result<Answer> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(&program);
    command.args(["probe", &index.to_string()]);
    let mut socket = parent::connect(&mut command)?;
    socket.shutdown(Shutdown::Write)?; // there is nothing to be read for a library either
    let output = command.output().with_context(|| format!("starting {}", program.display()))?;
    drop(command); // and with it our copy of the process's end of the socket
    let mut answer = String::new();
    socket.read_to_string(&mut answer).context("reading the answer of the process that opens it")?;
    let mut reason = match serde_json::from_str::<Answer>(&answer) {
        Ok(Ok(attributes)) => return Ok(Ok(attributes)),
        Ok(Err(reason)) => reason,
        Err(_) => format!("opening it ended the program ({})", output.status),
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    for line in printed.lines().chain(complaints.lines()) {
        reason += &format!("\n{line}");
    }
    Ok(Err(reason))
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
    let answer: Answer = Adapter::open_entry(candidate).map(|adapter| adapter.attributes().named.clone());
    parent::say(&answer);
    Ok(true)
}
