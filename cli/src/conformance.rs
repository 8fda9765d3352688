//! `dat conformance`: runs the conformance suite against a provider.

mod describe;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use conformance::{
    Binding, Case, DEFAULT_EVENT_TIMEOUT, Format, MAX_EVENT_TIMEOUT, Pool, Report, Target,
};

use crate::output::{Output, print};
use crate::progress::Progress;

/// The option with which this program starts itself to run cases.
const WORKER: &str = "--worker";

/// Options of `dat conformance`. Its exit code is 0 if nothing failed, 1 if something did, 2 if
/// nothing could be tested.
#[derive(Args)]
pub(crate) struct Options {
    /// The cases: names, prefixes of names (`dat_ep_create`), or patterns (`*/in-connected`); all
    /// by default
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// The provider, by its name in the registry; `mem` is the provider mem
    #[arg(long, visible_aliases = ["adapter", "ia"], value_name = "NAME", default_value = "tcp-emu")]
    provider: String,
    /// Call the provider through this libdat2.so.2 or libdat.so.1 instead of this program's
    /// registry
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// Look the provider up in this registry file, as if DAT_OVERRIDE named it
    #[arg(long, value_name = "FILE")]
    registry: Option<PathBuf>,
    /// Wait this many seconds for each event that must happen; a busy host needs more than a quiet
    /// one
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = DEFAULT_EVENT_TIMEOUT.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..=MAX_EVENT_TIMEOUT.as_secs())
    )]
    event_timeout: u64,
    /// Count a missing feature that the standard requires as a failure
    #[arg(long)]
    strict: bool,
    /// Also write the result to this file as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Also print the counts for each clause of a function; the JSON output always contains these
    /// counts
    #[arg(long)]
    clauses: bool,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
    /// Print the cases and what they require, without running them
    #[arg(long, conflicts_with_all = ["explain", "returns"])]
    list: bool,
    /// Explain the cases without running them: the part of the standard that each tests, the
    /// statuses that it expects, and where it is known not to pass. For a whole function, also
    /// print what no case tests
    #[arg(long, conflicts_with = "returns")]
    explain: bool,
    /// Print which cases cause which return values of the functions, or why none does, without
    /// running them
    #[arg(long)]
    returns: bool,
    /// Run the cases that standard input names
    #[arg(long, hide = true, value_name = "TARGET")]
    worker: Option<String>,
}

/// Runs the suite. Returns whether the provider conforms, or an error if it could not be tested.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if let Some(target) = &options.worker {
        conformance::serve(target).context("--worker is for internal use by `dat`")?;
        return Ok(true);
    }
    if options.explain || options.returns {
        let cases = select_cases(&options.ids, |_| true)?;
        match options.explain {
            true => describe::explain(&options.ids, cases, options.json)?,
            false => describe::returns(&cases, options.json)?,
        }
        return Ok(true);
    }
    let binding = match &options.library {
        Some(path) => Binding::library(path).map_err(anyhow::Error::msg)?,
        None => Binding::Linked,
    };
    let cases = select_cases(&options.ids, |case| case.is_for(&binding))?;
    if options.list {
        describe::list(&cases, options.json)?;
        return Ok(true);
    }
    if let Some(file) = &options.registry {
        // The file is opened here, so that a missing file is reported once and by name. A DAT
        // library may ignore a missing file.
        fs::File::open(file)
            .with_context(|| format!("cannot read the registry file {}", file.display()))?;
    }
    let event_timeout = Duration::from_secs(options.event_timeout);
    let target = Target { binding, provider: options.provider.clone(), event_timeout };
    let (program, argument) =
        (std::env::current_exe().context("finding this program")?, target.to_argument());
    let registry = options.registry.clone();
    let worker = move |quiet: bool| {
        let mut command = Command::new(&program);
        command.args(["conformance", WORKER, &argument]);
        if let Some(file) = &registry {
            command.env("DAT_OVERRIDE", file);
        }
        if quiet {
            // This variable suppresses the registry's messages about errors that cases cause on
            // purpose.
            command.env("DAT_DBG_TYPE", "0");
        }
        command
    };
    let loud = worker.clone();
    Pool::new(&target, move || loud(false))
        .open()
        // The error ends with a position in the suite's source, which only helps to find a failed
        // case. So the position is cut off.
        .map_err(|why| why.split(" (rig/").next().unwrap_or(&why).to_owned())
        .map_err(|why| anyhow!("{target} cannot be opened, so there is nothing to test: {why}"))?;
    let junit = options.junit.as_deref().map(Output::new).transpose()?;
    let mut pool = Pool::new(&target, move || worker(true));
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

/// Returns the cases that the IDs select and that are possible.
fn select_cases(ids: &[String], is_possible: impl Fn(&Case) -> bool) -> Result<Vec<Case>> {
    let all = conformance::all();
    for id in ids {
        let named = all.iter().any(|case| case.is_selected_by(id));
        ensure!(
            named,
            "no case is called {id} or begins with it; `dat conformance --list` prints all"
        );
    }
    let wanted = |case: &Case| {
        is_possible(case) && (ids.is_empty() || ids.iter().any(|id| case.is_selected_by(id)))
    };
    Ok(all.into_iter().filter(wanted).collect())
}
