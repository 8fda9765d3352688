//! `dat list`: which adapters there are by name, and why one does not open.

use std::io::{Write, stdout};

use anyhow::Result;
use clap::Args;
use registry::{Candidate, Entry, List, Request, Wanted, close, open_candidate};
use serde::Serialize;

use crate::table::{Colour, colour};

#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON document instead of text
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
    entries: Vec<Item>,
    /// What in the file could not be used.
    errors: Vec<String>,
}

/// Lists; true when nothing in the registry's file has a mistake.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let list = List::from_environment(dat::builtins());
    let document = Document {
        file: list.file().map(|path| path.display().to_string()),
        entries: list.candidates().iter().map(item).collect(),
        errors: list.errors().iter().map(ToString::to_string).collect(),
    };
    if options.json {
        writeln!(stdout(), "{}", serde_json::to_string_pretty(&document)?)?;
    } else {
        print(&document)?;
    }
    Ok(document.errors.is_empty())
}

fn item(candidate: &Candidate) -> Item {
    let Entry { ia_name, api, threadsafe, library, provider_version, ia_params, origin, .. } =
        &candidate.entry;
    Item {
        name: ia_name.clone(),
        api: api.to_string(),
        thread_safe: *threadsafe,
        library: candidate.builtin.is_none().then(|| library.clone()),
        version: provider_version.to_string(),
        parameters: ia_params.clone(),
        origin: origin.to_string(),
        state: state(candidate),
    }
}

fn state(candidate: &Candidate) -> State {
    let Entry { ia_name, api, threadsafe, default, .. } = &candidate.entry;
    if !default {
        return State::Unused("marked nondefault");
    }
    if !candidate.entry.usable() {
        return State::Unused("not for programs in user space");
    }
    if api.major != 2 {
        return State::Unused("of another version of the API; this program speaks 2.0");
    }
    let request = Request {
        wanted: Wanted { name: ia_name, major: api.major, minor: api.minor, threadsafe: *threadsafe },
        async_evd_qlen: 8,
        async_evd: std::ptr::null_mut(),
    };
    match open_candidate(candidate, &request) {
        Ok(opened) => {
            close(opened.ia, 0); // DAT_CLOSE_ABRUPT_FLAG
            State::Opens
        }
        Err(why) => State::Fails(why.to_string()),
    }
}

fn print(document: &Document) -> Result<()> {
    let mut out = stdout().lock();
    let file = document.file.as_deref().unwrap_or("none");
    writeln!(out, "{}", colour(&format!("registry file: {file}"), Colour::Faint))?;
    let width = document.entries.iter().map(|item| item.name.chars().count()).max().unwrap_or(0);
    for item in &document.entries {
        let (state, reason) = match &item.state {
            State::Opens => (colour("opens ", Colour::Good), None),
            State::Fails(reason) => (colour("fails ", Colour::Bad), Some(reason.as_str())),
            State::Unused(reason) => (colour("unused", Colour::Faint), Some(*reason)),
        };
        let parameters = match item.parameters.as_str() {
            "" => String::new(),
            parameters => format!(" {parameters:?}"),
        };
        let library = item.library.as_deref().unwrap_or("linked in");
        writeln!(
            out,
            "{:<width$}  {state}  {}  {library}{parameters}  {}",
            item.name, item.api, item.origin
        )?;
        if let Some(reason) = reason {
            writeln!(out, "{:<width$}  {reason}", "")?;
        }
    }
    if document.entries.is_empty() {
        writeln!(out, "no entries")?;
    }
    for error in &document.errors {
        writeln!(out, "{} {error}", colour("error:", Colour::Bad))?;
    }
    Ok(())
}
