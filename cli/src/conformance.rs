//! `dat conformance`: the conformance suite over a provider.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use conformance::{Case, Door, Format, Level, Pool, Report, Target};
use serde::Serialize;

use crate::output::{Output, print, print_json};
use crate::progress::Progress;

/// How this program is told to run cases for another of its kind.
const WORKER: &str = "--worker";

/// Options of `dat conformance`. Its exit code is 0 if nothing failed, 1 if something did, 2 if nothing could be asked.
#[derive(Args)]
pub(crate) struct Options {
    /// The cases to run: names, beginnings of names (`dat_ep_create`), or patterns (`*/in-connected`); all if none is given
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// The provider, by its name in the registry; `mem` is the loopback transport
    #[arg(long, visible_aliases = ["adapter", "ia"], value_name = "NAME", default_value = "tcp-emu")]
    provider: String,
    /// Reach it through this libdat2.so.2 or libdat.so.1, not through the registry of this program
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// Look its name up in this registry file, as if DAT_OVERRIDE named it
    #[arg(long, value_name = "FILE")]
    registry: Option<PathBuf>,
    /// Something that a provider has to have and that this one does not is a failure
    #[arg(long)]
    strict: bool,
    /// Write the result to this file as JUnit XML too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Count each clause of a function by itself, too; JSON always does
    #[arg(long)]
    clauses: bool,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
    /// Print the cases and what they require, and run none
    #[arg(long)]
    list: bool,
    /// Run the cases that standard input names
    #[arg(long, hide = true, value_name = "TARGET")]
    worker: Option<String>,
}

/// Runs the suite; answers whether the provider conforms. An error is that it could not be asked.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if let Some(target) = &options.worker {
        conformance::serve(target).context("asked by what is not this program")?;
        return Ok(true);
    }
    let door = match &options.library {
        Some(path) => Door::library(path).map_err(anyhow::Error::msg)?,
        None => Door::Linked,
    };
    let cases = chosen(&options.ids, &door)?;
    if options.list {
        list(&cases, options.json)?;
        return Ok(true);
    }
    if let Some(file) = &options.registry {
        // To the registry a file that is not there is no more than an empty one.
        fs::File::open(file)
            .with_context(|| format!("cannot read the registry file {}", file.display()))?;
    }
    let target = Target { door, provider: options.provider.clone() };
    let (program, argument) =
        (std::env::current_exe().context("where is this program?")?, target.to_argument());
    let registry = options.registry.clone();
    let worker = move |quiet: bool| {
        let mut command = Command::new(&program);
        command.args(["conformance", WORKER, &argument]);
        if let Some(file) = &registry {
            command.env("DAT_OVERRIDE", file);
        }
        if quiet {
            // What the registry says of the mistakes that cases make on purpose.
            command.env("DAT_DBG_TYPE", "0");
        }
        command
    };
    let loud = worker.clone();
    Pool::new(move || loud(false))
        .open()
        // Without the place in the suite's source, which says something of cases only.
        .map_err(|why| why.split(" (rig/").next().unwrap_or(&why).to_owned())
        .map_err(|why| {
            anyhow!("{target} cannot be opened, so that there is nothing to ask: {why}")
        })?;
    let junit = options.junit.as_deref().map(Output::new).transpose()?;
    let mut pool = Pool::new(move || worker(true));
    let progress = Progress::new(cases.len());
    let run = |(done, case)| {
        progress.show(done as f64);
        pool.run(case)
    };
    let records = cases.iter().enumerate().map(run).collect();
    drop(progress);
    let report = Report { target: target.to_string(), records };
    if let Some(junit) = junit {
        junit.fill(&report.write(Format::Junit))?;
    }
    let format = match options {
        Options { json: true, .. } => Format::Json,
        Options { clauses: true, .. } => Format::Clauses,
        _ => Format::Text,
    };
    print(&report.write(format))?;
    Ok(report.is_good(options.strict))
}

fn chosen(ids: &[String], door: &Door) -> Result<Vec<Case>> {
    let all = conformance::all();
    for id in ids {
        let named = all.iter().any(|case| case.is_meant_by(id));
        ensure!(named, "no case is called {id} or begins so; `dat conformance --list` prints all");
    }
    let wanted = |case: &Case| {
        door.has(case) && (ids.is_empty() || ids.iter().any(|id| case.is_meant_by(id)))
    };
    Ok(all.into_iter().filter(wanted).collect())
}

/// A case as machines are told.
#[derive(Serialize)]
struct Item<'a> {
    id: &'a str,
    function: &'a str,
    level: Level,
    clause: &'a str,
    requirement: &'a str,
}

impl<'a> From<&'a Case> for Item<'a> {
    fn from(case: &'a Case) -> Self {
        let Case { id, level, clause, requirement, .. } = case;
        Item { id, function: case.function(), level: *level, clause, requirement }
    }
}

fn list(cases: &[Case], json: bool) -> Result<()> {
    if json {
        let cases: Vec<Item<'_>> = cases.iter().map(Item::from).collect();
        return print_json(&serde_json::json!({ "cases": cases }));
    }
    let width = cases.iter().map(|case| case.id.len()).max().unwrap_or(0);
    let line = |Case { id, clause, requirement, level, .. }: &Case| {
        format!("{id:width$}  {:6}  {requirement} [{clause}]\n", level.to_string())
    };
    print(&cases.iter().map(line).collect::<String>())
}
