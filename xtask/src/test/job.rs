//! The parts of a run: jobs and stages. A job is a process that runs tests; a stage prepares jobs.

use std::process::Command;

use anyhow::Result;

/// A process that runs tests.
pub(crate) struct Job {
    /// The job's name on the screen, in the list of failures, and in the name of its log file.
    pub(crate) name: String,
    pub(crate) command: Command,
    pub(crate) runs: Runs,
    pub(crate) load: Load,
}

/// The kind of command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    /// One test program, with the number of its tests.
    Program(usize),
    /// cargo, which first builds, and then runs any number of programs and tests.
    Cargo,
}

/// How a job uses the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// The job computes all the time.
    Computes,
    /// The job starts programs that busy-wait for each other on all processors. Only few such jobs
    /// may run at a time, or the programs would starve each other.
    Spins,
    /// The job has a virtual machine whose kernel must respond in time. Several such jobs may run
    /// at a time, if no job busy-waits.
    Guest,
}

/// A step such as building a virtual machine. When the step is done, the jobs that need it are
/// created. Other jobs run in parallel with the step.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) prepare: Box<dyn FnOnce() -> Result<Prepared> + Send>,
}

/// The result of a stage.
pub(crate) enum Prepared {
    Jobs(Vec<Job>),
    /// The stage is not possible on this machine, for the given reason. The stage counts as one
    /// skipped test.
    Cannot(String),
}

impl Stage {
    pub(crate) fn new(
        name: &'static str,
        prepare: impl FnOnce() -> Result<Prepared> + Send + 'static,
    ) -> Self {
        Self { name, prepare: Box::new(prepare) }
    }

    /// Returns a stage whose jobs need no preparation.
    pub(crate) fn of(name: &'static str, jobs: Vec<Job>) -> Self {
        Self::new(name, || Ok(Prepared::Jobs(jobs)))
    }
}
