//! What a run is made of: processes that run tests, and the stages that bring them.

use std::process::Command;

use anyhow::Result;

/// A process that runs tests.
pub(crate) struct Job {
    /// What it is called on the screen, in the list of failures and in the name of its log.
    pub(crate) name: String,
    pub(crate) command: Command,
    pub(crate) runs: Runs,
    pub(crate) load: Load,
}

/// What a job's command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    /// One program with so many tests.
    Program(usize),
    /// cargo, which builds first, and then runs as many programs and tests as there are.
    Cargo,
}

/// What a job does to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// It computes all the time.
    Computes,
    /// It starts programs that take all processors while they wait for each other: few at a time, or each
    /// would wait for the others' turns.
    Spins,
    /// It has a virtual machine, whose kernel is to answer in time: several at a time, when nothing spins.
    Guest,
}

/// Something that must be made before there are jobs, such as a virtual machine. It is made beside the jobs
/// of others.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) prepare: Box<dyn FnOnce() -> Result<Prepared> + Send>,
}

/// What comes of a stage.
pub(crate) enum Prepared {
    Jobs(Vec<Job>),
    /// Why it cannot be had here, which counts as one test that is skipped.
    Cannot(String),
}

impl Stage {
    pub(crate) fn new(
        name: &'static str,
        prepare: impl FnOnce() -> Result<Prepared> + Send + 'static,
    ) -> Self {
        Self { name, prepare: Box::new(prepare) }
    }

    /// Jobs that need no preparation.
    pub(crate) fn of(name: &'static str, jobs: Vec<Job>) -> Self {
        Self::new(name, || Ok(Prepared::Jobs(jobs)))
    }
}
