//! Support for test programs with their own `main`: it selects the tests that run, and reports
//! tests that cannot run on this machine.

use std::env;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::Skip;

/// The reason why a test has not passed: it was skipped, or it has failed.
#[derive(Clone, Debug)]
pub enum Stop {
    /// The test cannot run here.
    Skip(Skip),
    /// The test has failed.
    Fail(String),
}

impl From<Skip> for Stop {
    fn from(skip: Skip) -> Self {
        Self::Skip(skip)
    }
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Fail(why)
    }
}

/// Returns whether this is the short run (`cargo xtask test` without `--all`). The short run leaves
/// out tests that take long and rarely find anything that other tests miss.
pub fn is_short_run() -> bool {
    setting("short").is_some()
}

/// The setting that selects the tests of this process. The value has prefixes of the tests' names,
/// separated by commas. After `!`, the prefixes are those of the tests that other processes run.
pub const SHARE: &str = "share";

/// Returns a setting of the tests. The environment variable `OPENDAT_TEST` contains the settings,
/// separated by semicolons, each as `NAME=VALUE`. `cargo xtask test` sets it.
pub fn setting(name: &str) -> Option<String> {
    let settings = env::var("OPENDAT_TEST").ok()?;
    let found =
        settings.split(';').find_map(|setting| setting.strip_prefix(name)?.strip_prefix('='));
    found.map(str::to_owned)
}

/// Runs the tests that this process must run, and leaves the others to other processes.
pub fn run(arguments: &Arguments, mut trials: Vec<Trial>) -> ExitCode {
    if let Some(share) = setting(SHARE) {
        trials.retain(|trial| is_of(&share, trial.name()));
    }
    libtest_mimic::run(arguments, trials).exit_code()
}

fn is_of(share: &str, name: &str) -> bool {
    let begins = |starts: &str| starts.split(',').any(|start| name.starts_with(start));
    match share.strip_prefix('!') {
        Some(others) => !begins(others),
        None => begins(share),
    }
}

/// Returns a test with this name.
pub fn trial(name: String, run: impl FnOnce() -> Result<(), Stop> + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || match run() {
        Ok(()) => Ok(Completion::Completed),
        Err(Stop::Skip(Skip(reason))) => Ok(Completion::ignored_with(reason)),
        Err(Stop::Fail(why)) => Err(Failed::from(why)),
    })
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn each_test_is_of_one_share() {
        let tests = ["a::one", "b::one", "c::a::one"];
        let of = |share: &str| tests.map(|test| is_of(share, test));
        assert_eq!(of("a::"), [true, false, false]);
        assert_eq!(of("a::,b::"), [true, true, false]);
        assert_eq!(of("!a::,b::"), [false, false, true]);
    }
}
