//! `cargo xtask test`: runs the tests of the workspace and counts them as one run.
//!
//! The short run leaves out tests that take long and rarely find anything that other tests miss.
//! The test programs see the setting `short` in `OPENDAT_TEST` and choose their tests accordingly.
//! `--all` runs all tests. A run with a filter runs all tests whose names contain it.

mod job;
mod job_slots;
mod kill;
mod plan;
mod process;
mod run;
mod screen;
mod tally;
mod times;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};

pub(crate) use job::{Job, Load, Prepared, Runs, Stage};
pub(crate) use plan::{Environment, Program};

use crate::cargo::target;
use crate::dist::Profile;
use crate::{dist, guest, loom, mpi, package, prerequisites};
use run::Run;
use screen::{Colour, Screen, clock};
use tally::Tally;
use times::Times;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run everything: also the virtual machine, the packages, MPI, valgrind, sanitizers, fuzz
    /// targets, and every library and registry
    #[arg(long)]
    all: bool,
    /// Count a skipped test as a failure
    #[arg(long)]
    strict: bool,
    /// Run the tests this many times
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: usize,
    /// Run only the tests whose names contain this text, including tests that only --all runs
    filter: Option<String>,
}

/// How long jobs take on two processors. To update these files, copy target/test-times and
/// target/test-times-all here.
const TYPICAL_TIMES_SHORT: &str = include_str!("test/times/short");
/// The times of the full run. A later line replaces an earlier line of the same job, so the times
/// of the short run count only for jobs that have no time of the full run.
const TYPICAL_TIMES: &str =
    concat!(include_str!("test/times/short"), include_str!("test/times/all"));

/// The prefixes of the names of tests that need more packages than the short run installs. Only the
/// full run has these tests. They use a release build.
const FULL_RUN_PREFIXES: [&str; 4] = ["guest::", "packages::", "mpi::", "valgrind::"];

/// A description of the tests that the short run leaves out, which its output mentions at the end.
const LEFT_OUT: &str = "the virtual machine with the kernel's rxe and siw, packages in a clean \
                        Debian, MPI, valgrind, sanitizers, fuzz targets, most of Debian's \
                        programs, most cases over other libraries and registries, loom's longest \
                        models";

/// Shows progress and prints `N passed, N failed, N skipped` over all tests as the last line.
/// Returns whether the run has succeeded.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let everything = options.all || options.filter.is_some();
    let needs_full = |filter: &str| FULL_RUN_PREFIXES.iter().any(|names| filter.contains(names));
    let full = options.all || options.filter.as_deref().is_some_and(needs_full);
    prerequisites::provide(full);
    let built = plan::build().and_then(|programs| {
        let dist = if full { dist::build(Profile::Release) } else { dist::lay_out(Profile::Dev) };
        Ok((dist?, programs))
    });
    let (dist, programs) = match built {
        Ok(built) => built,
        Err(error) => {
            return Ok(verdict(
                &Tally::of_failure("building", &format!("{error:#}")),
                options.strict,
            ));
        }
    };
    let tests = Tests { everything, dist, programs, filter: options.filter.clone() };
    let rounds = options.repeat.max(1);
    let mut tally = Tally::default();
    for round in 1..=rounds {
        if rounds > 1 {
            println!("round {round} of {rounds}");
        }
        let times = match (everything, &options.filter) {
            (_, Some(_)) => None,
            (true, None) => Some("test-times-all"),
            (false, None) => Some("test-times"),
        };
        let logs =
            if round == 1 { PathBuf::new() } else { PathBuf::from(format!("round-{round}")) };
        tally.add(run_stages(tests.stages()?, &logs, times)?);
        if rounds > 1 {
            println!("after {round} of {rounds} rounds: {} failed", tally.failed());
        }
    }
    if !everything {
        println!("left out (cargo xtask test --all runs all of it): {LEFT_OUT}");
    }
    Ok(verdict(&tally, options.strict))
}

/// Runs only the jobs of the given stages.
pub(crate) fn run_only(stages: Vec<Stage>) -> Result<bool> {
    Ok(verdict(&run_stages(stages, Path::new(""), None)?, false))
}

/// Runs stages. `logs` is a directory in target/test-logs. `times` is the file that stores the
/// duration of each job, if this is a complete run.
fn run_stages(stages: Vec<Stage>, logs: &Path, times: Option<&str>) -> Result<Tally> {
    let began = Instant::now();
    let target = target()?;
    let whole = times.is_some();
    let typical = if times == Some("test-times") { TYPICAL_TIMES_SHORT } else { TYPICAL_TIMES };
    let mut times = Times::load(target.join(times.unwrap_or("test-times-all")), typical);
    let mut screen = Screen::new();
    let outcome =
        Run::new(&mut screen, &mut times, target.join("test-logs").join(logs)).run(stages);
    if whole {
        times.save();
    }
    println!("the tests took {}; the longest of them:", clock(began.elapsed()));
    for (time, name) in outcome.slowest {
        println!("{:>7.1} s  {name}", time.as_secs_f64());
    }
    Ok(outcome.tally)
}

/// The settings of a run: whether it runs all tests, the directory of the libraries, the test
/// programs, and the filter for the names of tests.
pub(crate) struct Tests {
    everything: bool,
    pub(crate) dist: PathBuf,
    programs: Vec<Program>,
    pub(crate) filter: Option<String>,
}

impl Tests {
    fn stages(&self) -> Result<Vec<Stage>> {
        let filter = self.filter.as_deref();
        let mut jobs = Vec::new();
        for program in self.programs.iter().filter(|program| !program.is(MPI)) {
            jobs.extend(program.jobs(&self.environment(), filter)?);
        }
        let mut stages = vec![Stage::of("the tests", jobs)];
        let wanted = |names: &str| filter.map_or(self.everything, |filter| filter.contains(names));
        if wanted("guest::") {
            stages.push(guest::stage(self)?);
        }
        if wanted("packages::") {
            stages.push(package::stage(self)?);
        }
        if wanted("mpi::") {
            stages.push(self.mpi()?);
        }
        if filter.is_none_or(|filter| filter.contains("(line")) {
            stages.push(Stage::of("examples in documents", vec![documents()]));
        }
        if filter.is_none_or(|filter| filter.contains("loom_")) {
            stages.push(Stage::of("loom", vec![loom::job(self.everything, filter)?]));
        }
        Ok(stages)
    }

    /// Returns the environment of all test programs.
    pub(crate) fn environment(&self) -> Environment {
        let environment = Environment { dist: self.dist.clone(), settings: Vec::new() };
        if self.everything { environment } else { environment.with("short", "1") }
    }

    pub(crate) fn program(&self, name: &str) -> Result<Program> {
        let program = self.programs.iter().find(|program| program.is(name));
        program.cloned().with_context(|| format!("there is no program with tests called {name}"))
    }

    fn mpi(&self) -> Result<Stage> {
        let (program, filter, mut environment) =
            (self.program(MPI)?, self.filter.clone(), self.environment());
        Ok(Stage::new("MPI", move || {
            // Without Intel MPI, the tests report that they are skipped.
            environment.settings.extend(mpi::provide().map(|root| ("mpi", root)));
            Ok(Prepared::Jobs(program.jobs(&environment, filter.as_deref())?))
        }))
    }
}

const MPI: &str = "tests mpi";
/// The test program with the tests that use Debian's programs.
pub(crate) const PROGRAMS: &str = "tests programs";

/// Returns the job that runs the examples in the documentation of the crates.
fn documents() -> Job {
    let mut command = crate::cargo::cargo();
    command.args([
        "test",
        "--workspace",
        "--doc",
        "--no-fail-fast",
        "--color=never",
        "--",
        "--color=never",
    ]);
    Job {
        name: "examples in documents".to_owned(),
        command,
        runs: Runs::Cargo,
        load: Load::Computes,
    }
}

fn verdict(tally: &Tally, strict: bool) -> bool {
    let complaint = if tally.failed() > 0 {
        Some("a test failed")
    } else if strict && tally.skipped() > 0 {
        Some("a test was skipped, which --strict forbids")
    } else if tally.passed() == 0 {
        Some("no test ran")
    } else {
        None
    };
    let mut screen = Screen::new();
    match complaint {
        Some(complaint) => screen.print_marked(Colour::Red, "\nfailed:", complaint),
        None => screen.print_marked(Colour::Green, "\npassed", ""),
    }
    println!("\n{tally}");
    complaint.is_none()
}
