//! `dat conformance`: the conformance suite over a provider.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use conformance::{Case, Door, Format, Pool, Report, Target};

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
    #[arg(long, value_name = "NAME", default_value = "tcp-emu")]
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
        list(&cases)?;
        return Ok(true);
    }
    if let Some(file) = &options.registry {
        // To the registry a file that is not there is no more than an empty one.
        fs::File::open(file).with_context(|| format!("cannot read the registry file {}", file.display()))?;
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
        .map_err(|why| anyhow!("{target} cannot be opened, so that there is nothing to ask: {why}"))?;
    let mut pool = Pool::new(move || worker(true));
    let progress = Progress::new(cases.len());
    let run = |(done, case)| {
        progress.show(done);
        pool.run(case)
    };
    let records = cases.iter().enumerate().map(run).collect();
    drop(progress);
    let report = Report { target: target.to_string(), records };
    if let Some(file) = &options.junit {
        fs::write(file, report.write(Format::Junit))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let text = report.write(if options.json { Format::Json } else { Format::Text });
    io::stdout().write_all(text.as_bytes())?;
    Ok(report.is_good(options.strict))
}

fn chosen(ids: &[String], door: &Door) -> Result<Vec<Case>> {
    let all = conformance::all();
    for id in ids {
        let named = all.iter().any(|case| case.is_meant_by(id));
        ensure!(named, "no case is called {id} or begins so; `dat conformance --list` prints all");
    }
    let wanted =
        |case: &Case| door.has(case) && (ids.is_empty() || ids.iter().any(|id| case.is_meant_by(id)));
    Ok(all.into_iter().filter(wanted).collect())
}

fn list(cases: &[Case]) -> Result<()> {
    let mut out = io::stdout().lock();
    let width = cases.iter().map(|case| case.id.len()).max().unwrap_or(0);
    for case in cases {
        let Case { id, clause, requirement, .. } = case;
        writeln!(out, "{id:width$}  {:6}  {requirement} [{clause}]", case.level.to_string())?;
    }
    Ok(())
}
