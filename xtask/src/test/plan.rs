//! The test programs of the workspace, and the jobs that run them. Most programs run as one job. A
//! long program runs as several jobs, each with a share of the tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::job::{Job, Load, Runs};
use crate::cargo::{cargo, run_with_progress, workspace};

/// A test program that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The program's name, made of its package's directory and its target: `dat-core lib`.
    name: String,
    directory: PathBuf,
    executable: PathBuf,
}

/// How the tests of a program are divided into jobs. Tests run in the same job if the first `parts`
/// parts of their names agree. `load` says how each job uses the machine.
struct Shares {
    program: &'static str,
    parts: usize,
    load: Load,
}

/// The programs that would take long as one job. All of these programs support the setting `share`
/// (`opendat_tests::run`).
const SHARES: &[Shares] = &[
    Shares { program: "conformance suite", parts: 2, load: Load::Computes },
    Shares { program: "tests programs", parts: 3, load: Load::Spins },
    Shares { program: "tests behaviour", parts: 1, load: Load::Spins },
    Shares { program: "tests attacks", parts: 1, load: Load::Spins },
    Shares { program: "tests mpi", parts: 3, load: Load::Spins },
    Shares { program: "tests sanitizers", parts: 1, load: Load::Spins },
];

/// The setting that selects the tests whose names begin with one of its values. With `!` before the
/// values, the setting selects all other tests.
const SHARE: &str = "share";

/// The environment of test programs.
#[derive(Clone)]
pub(crate) struct Environment {
    /// The value of `OPENDAT_DIST`: the layout under test.
    pub(crate) dist: PathBuf,
    /// The settings in `OPENDAT_TEST` (`opendat_tests::setting`).
    pub(crate) settings: Vec<(&'static str, PathBuf)>,
}

impl Environment {
    /// Returns the environment with one more setting.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<PathBuf>) -> Self {
        self.settings.push((name, value.into()));
        self
    }

    /// Sets the environment of a command. The settings in this process's own `OPENDAT_TEST` apply
    /// too, except for the selection of tests.
    pub(crate) fn apply(&self, command: &mut Command) {
        let own = std::env::var("OPENDAT_TEST").unwrap_or_default();
        let selects = |word: &&str| matches!(word.split('=').next(), Some("short" | "share"));
        let inherited = own.split(';').filter(|word| !selects(word)).map(str::to_owned);
        let settings = self.settings.iter();
        let settings = settings.map(|(name, value)| format!("{name}={}", value.display()));
        let words: Vec<String> = settings.chain(inherited).collect();
        command.env("OPENDAT_DIST", &self.dist).env("OPENDAT_TEST", words.join(";"));
    }
}

/// Builds all test programs of the workspace, and with the profile `dev` also what is installed: a
/// separate build would compile most crates a second time, because it has no dev-dependencies, and
/// these enable features of crates that many others need.
pub(crate) fn build() -> Result<Vec<Program>> {
    let mut build = cargo();
    build.args(["build", "--workspace", "--lib", "--tests", "--examples"]);
    build.arg("--message-format=json-render-diagnostics");
    let (status, text) = run_with_progress(&mut build, "building the tests")?;
    ensure!(status.success(), "the tests are not compiled, see above ({status})");
    Ok(programs(&text, workspace()))
}

/// A line of cargo's JSON output.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Built>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Built {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Reads the programs from cargo's output.
fn programs(text: &str, workspace: &Path) -> Vec<Program> {
    let program = |line: &str| {
        let Message { reason, manifest_path, target, profile, executable } =
            serde_json::from_str(line).ok()?;
        let (target, profile, executable) = (target?, profile?, executable?);
        if reason != "compiler-artifact" || !profile.test {
            return None;
        }
        let directory = manifest_path.parent()?;
        let package = directory.strip_prefix(workspace).unwrap_or(directory).display();
        let what = if target.kind.iter().any(|kind| kind == "test") {
            &*target.name
        } else {
            &*target.kind[0]
        };
        Some(Program {
            name: format!("{package} {what}"),
            directory: directory.to_owned(),
            executable,
        })
    };
    text.lines().filter_map(program).collect()
}

impl Program {
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name == name
    }

    /// Returns a command that runs the program's tests one after the other, so that the time of
    /// each test is known.
    fn command(&self, environment: &Environment, filter: Option<&str>) -> Command {
        let mut command = Command::new(&self.executable);
        command
            .current_dir(&self.directory)
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .args(["--color=never", "--test-threads=1"])
            .args(filter);
        environment.apply(&mut command);
        command
    }

    /// Returns the names of the program's tests.
    fn list(&self, environment: &Environment, filter: Option<&str>) -> Result<Vec<String>> {
        let mut list = self.command(environment, filter);
        let output = list.arg("--list").stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("{} does not start", self.name))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "{} does not list its tests ({})\n{text}",
            self.name,
            output.status
        );
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// Returns the jobs that run the program's tests.
    pub(crate) fn jobs(&self, environment: &Environment, filter: Option<&str>) -> Result<Vec<Job>> {
        let tests = self.list(environment, filter)?;
        let Some(shares) = SHARES.iter().find(|shares| self.is(shares.program)) else {
            let job = self.job(self.name.clone(), environment, filter, tests.len(), Load::Computes);
            return Ok(if tests.is_empty() { Vec::new() } else { vec![job] });
        };
        let job = |(start, tests): (String, usize)| {
            let name = format!("{} {}", self.name, start.trim_end_matches("::"));
            let environment = environment.clone().with(SHARE, start);
            self.job(name, &environment, filter, tests, shares.load)
        };
        Ok(count_by_start(&tests, shares.parts).into_iter().map(job).collect())
    }

    /// Returns a job with this name for a share of the tests, if the share is not empty.
    pub(crate) fn job_of_share(
        &self,
        name: &str,
        share: &str,
        environment: &Environment,
        filter: Option<&str>,
        load: Load,
    ) -> Result<Option<Job>> {
        let environment = environment.clone().with(SHARE, share);
        let tests = self.list(&environment, filter)?.len();
        Ok((tests > 0).then(|| self.job(name.to_owned(), &environment, filter, tests, load)))
    }

    fn job(
        &self,
        name: String,
        environment: &Environment,
        filter: Option<&str>,
        tests: usize,
        load: Load,
    ) -> Job {
        let mut command = self.command(environment, filter);
        // Show the output of tests that pass, because such a test may have printed SKIP.
        command.arg("--show-output");
        Job { name, command, runs: Runs::Program(tests), load }
    }
}

/// Counts the tests by the first `parts` parts of their names. A name that has fewer parts is
/// counted separately.
fn count_by_start(tests: &[String], parts: usize) -> BTreeMap<String, usize> {
    let mut starts = BTreeMap::new();
    for test in tests {
        let end = test.match_indices("::").nth(parts - 1).map_or(test.len(), |(at, _)| at + 2);
        *starts.entry(test[..end].to_owned()).or_default() += 1;
    }
    starts
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Program, count_by_start, programs};

    #[test]
    fn programs_are_what_cargo_has_built_for_tests() {
        let line = |kind: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/dat-core/Cargo.toml","target":{{"name":"model","kind":["{kind}"]}},"profile":{{"test":{test}}},"executable":{executable},"fresh":true}}"#
            )
        };
        let text = [
            line("lib", true, r#""/t/a""#),
            line("lib", false, "null"),
            line("test", true, r#""/t/b""#),
            line("bin", false, r#""/t/c""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
            "no JSON".to_owned(),
        ];
        let program = |name: &str, executable: &str| Program {
            name: name.to_owned(),
            directory: PathBuf::from("/w/dat-core"),
            executable: PathBuf::from(executable),
        };
        assert_eq!(
            programs(&text.join("\n"), Path::new("/w")),
            [program("dat-core lib", "/t/a"), program("dat-core model", "/t/b")]
        );
    }

    #[test]
    fn tests_are_shared_out_by_how_they_begin() {
        let tests = ["a::b::one", "a::b::two", "a::c::one", "alone"].map(str::to_owned);
        let shares: Vec<_> = count_by_start(&tests, 2).into_iter().collect();
        let expected = [("a::b::", 2), ("a::c::", 1), ("alone", 1)];
        assert_eq!(shares, expected.map(|(start, count)| (start.to_owned(), count)));
    }
}
