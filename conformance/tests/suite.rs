//! The suite over our providers, through both doors, as tests: `PROVIDER::DOOR::CASE`.
#![forbid(unsafe_code)]

mod known;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use conformance::{Case, Door, Level, Pool, Target, Verdict, Version};
use known::How;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use opendat_tests::{Dist, Skip};
use tempfile::TempDir;

/// How this program is told to run cases for another of its kind.
const WORKER: &str = "CONFORMANCE_WORKER";

fn main() {
    if let Ok(target) = std::env::var(WORKER) {
        conformance::serve(&target).expect("a worker is asked properly");
        return;
    }
    let mut arguments = Arguments::from_args();
    // A target's cases run one after the other anyway, and some measure time.
    arguments.test_threads = Some(arguments.test_threads.unwrap_or(2));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let trials = setups(&dir).into_iter().flat_map(trials).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(dir);
    conclusion.exit();
}

/// A target, and the environment that leads to it.
struct Setup {
    provider: &'static str,
    door: &'static str,
    target: Result<Door, Skip>,
    conf: PathBuf,
}

fn setups(dir: &TempDir) -> Vec<Setup> {
    let dist = Dist::locate();
    let ours = || {
        dist.as_ref()
            .map(|dist| Door::Library(dist.lib().join("libdat2.so.2"), Version::V2_0))
            .map_err(Clone::clone)
    };
    let empty = conf(dir, "empty", "");
    let plugin = conf(dir, "mem", &entry("mem", &loopback_plugin(), "conformance"));
    vec![
        Setup { provider: "mem", door: "linked", target: Ok(Door::Linked), conf: empty.clone() },
        Setup { provider: "mem", door: "libdat2", target: ours(), conf: plugin },
        Setup { provider: "tcp-emu", door: "linked", target: Ok(Door::Linked), conf: empty.clone() },
        Setup { provider: "tcp-emu", door: "libdat2", target: ours(), conf: empty },
    ]
}

fn conf(dir: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name).with_extension("conf");
    std::fs::write(&path, text).expect("dat.conf can be written");
    path
}

fn entry(name: &str, library: &Path, params: &str) -> String {
    let line = |safety: &str| {
        format!("{name} u2.0 {safety} default {} opendat.0.1 \"{params}\" \"\"\n", library.display())
    };
    line("nonthreadsafe") + &line("threadsafe")
}

/// `<target>/<profile>/examples/libdat_mem.so`: cargo builds it with this test.
fn loopback_plugin() -> PathBuf {
    let this = std::env::current_exe().expect("this test has a path");
    let profile = this.ancestors().nth(2).expect("this test lies in a target directory");
    profile.join("examples/libdat_mem.so")
}

fn trials(setup: Setup) -> Vec<Trial> {
    let Setup { provider, door, target, conf } = setup;
    let has = |case: &Case| target.as_ref().map_or(true, |target| target.has(case));
    let cases: Vec<_> = conformance::all().into_iter().filter(has).collect();
    let pool = target.map(|target| {
        let target = Target { door: target, provider: provider.into() }.to_argument();
        Arc::new(Mutex::new(Pool::new(move || {
            let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
            command.env(WORKER, &target).env("DAT_OVERRIDE", &conf);
            // What libraries say on standard error of the mistakes that cases make on purpose.
            command.env("DAT_DBG_TYPE", "0").env_remove("OPENDAT_BUILTIN");
            command
        })))
    });
    let trial = |case: Case| {
        let pool = pool.clone();
        let name = format!("{provider}::{door}::{}", case.id);
        Trial::ignorable_test(name, move || match pool {
            Ok(pool) => judge(provider, &case, &pool),
            Err(Skip(reason)) => Ok(Completion::ignored_with(reason)),
        })
    };
    cases.into_iter().map(trial).collect()
}

/// Only what passes is counted. What is known not to pass is no test; what is not known, or passes all the same, is a
/// failure.
fn judge(provider: &str, case: &Case, pool: &Mutex<Pool>) -> Result<Completion, Failed> {
    let verdict = pool.lock().unwrap_or_else(PoisonError::into_inner).run(case).verdict;
    let known = known::entries(provider, &case.id);
    let listed = |hows: &[How]| known.iter().find(|(how, _)| hows.contains(how));
    let no_test = |why: String| Ok(Completion::ignored_with(format!("not a test: {why}")));
    let (what, reason) = match verdict {
        Verdict::Passed => match listed(&[How::Fails, How::Unsupported]) {
            None => return Ok(Completion::Completed),
            Some((how, why)) => {
                let list = "conformance/tests/known/mod.rs";
                return Err(format!("passes, and is listed as {how:?} ({why}): take it out of {list}").into());
            }
        },
        Verdict::Failed { reason } => match listed(&[How::Fails]) {
            Some((_, why)) => return no_test(format!("known to fail: {why}")),
            None => ("", reason),
        },
        Verdict::Unsupported { reason } => match listed(&[How::Unsupported, How::Fleeting]) {
            Some((_, why)) => return no_test(format!("unsupported: {why}")),
            None if case.level == Level::Should => return no_test(format!("unsupported: {reason}")),
            None => ("unsupported: ", reason),
        },
    };
    Err(format!("{} {}: {}\n{what}{reason}", case.level, case.clause, case.requirement).into())
}
