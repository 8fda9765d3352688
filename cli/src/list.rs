//! `dat list`: lists the adapters by name. For each adapter that does not open, the list shows why.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use clap::Args;
use registry::host::names_in;
use registry::{Candidate, Entry, List, Origin};

use crate::check::DEFAULT_LIMIT;
use crate::output::{print, print_json};
use crate::progress::Progress;
use document::{Document, Item, NO_DEVICE, NOT_OPENED, State};
use isolated_open::{Answer, open_isolated};
pub(crate) use isolated_open::{open, open_received};
use opener::Opener;
pub(crate) use opener::any_opens;
use text::{Fold, View, text};

mod document;
mod isolated_open;
mod opener;
mod text;

#[derive(Args)]
pub(crate) struct Options {
    /// List only entries whose name contains one of these texts. An entry whose name equals one of
    /// them is opened before the others
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// List only entries that open
    #[arg(long, conflicts_with = "all")]
    usable: bool,
    /// Open at most this many entries of the registry file, each in a process of its own; the
    /// others are shown as not opened. Equal entries are opened once. The limit does not apply to
    /// built-in entries
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT)]
    limit: usize,
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

/// Lists the entries. Returns whether the registry file has no errors.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let list = List::from_environment(dat::builtins());
    let is_asked = |candidate: &Candidate| {
        let has = |name: &String| candidate.entry.ia_name.contains(name.as_str());
        options.names.is_empty() || options.names.iter().any(has)
    };
    let candidates: Vec<&Candidate> =
        list.candidates().into_iter().filter(|candidate| is_asked(candidate)).collect();
    ensure!(
        !candidates.is_empty() || options.names.is_empty(),
        "no entry has {} in its name; `dat list` without a name lists all",
        options.names.join(" or ")
    );
    let (named, others): (Vec<&Candidate>, Vec<&Candidate>) = candidates
        .iter()
        .filter(|candidate| unused(&candidate.entry).is_none())
        .partition(|candidate| options.names.contains(&candidate.entry.ia_name));
    let limit = options.limit.max(options.names.len());
    let progress = Progress::new((named.len() + others.len()).min(limit));
    let count = AtomicUsize::new(0);
    let done = || progress.show((count.fetch_add(1, Ordering::Relaxed) + 1) as f64);
    let mut opener = Opener::new(limit, open_isolated);
    opener.open(&named, done);
    opener.open(&others, done);
    let entries: Vec<Item> = candidates
        .into_iter()
        .map(|candidate| item(candidate, || opener.answer(candidate)))
        .collect();
    drop(progress);
    let is_unopened = |item: &&Item| matches!(item.state, State::NotOpened(_));
    let mut document = Document {
        not_opened: entries.iter().filter(is_unopened).count(),
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

fn item(candidate: &Candidate, answer: impl FnOnce() -> Option<Answer>) -> Item {
    let Entry { ia_name, api, threadsafe, library, provider_version, ia_params, origin, .. } =
        &candidate.entry;
    let (state, attributes) = match unused(&candidate.entry).map(State::Unused) {
        Some(state) => (state, Vec::new()),
        None => match answer() {
            Some(Answer::Opens(attributes)) => (State::Opens, attributes),
            Some(Answer::Fails(reason) | Answer::Broken(reason)) => {
                (State::Fails(reason), Vec::new())
            }
            None => (State::NotOpened(NOT_OPENED), Vec::new()),
        },
    };
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

/// Returns why this program cannot use the entry, or `None` if it can.
pub(crate) fn unused(entry: &Entry) -> Option<&'static str> {
    if !entry.default {
        Some("marked nondefault")
    } else if !entry.usable() {
        Some("for kernel space only")
    } else if entry.api.major != 2 {
        Some("for another version of the API; this program uses 2.0")
    } else {
        None
    }
}
