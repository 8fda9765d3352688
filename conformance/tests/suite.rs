//! The suite over our providers, through all doors, as tests: `PROVIDER::DOOR::CASE`.
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
    /// What leads there, as the names of the tests say it.
    door: &'static str,
    target: Result<Door, Skip>,
    /// The registry file.
    conf: PathBuf,
    /// Whether the library's own providers are looked at too.
    builtin: bool,
}

fn setups(dir: &TempDir) -> Vec<Setup> {
    let dist = Dist::locate();
    let library = |name: &str, version| {
        let dist = dist.as_ref().map_err(Clone::clone)?;
        Ok(Door::Library(dist.lib().join(name), version))
    };
    let ours = || library("libdat2.so.2", Version::V2_0);
    let empty = conf(dir, "empty", "");
    let mem = conf(dir, "mem", &entry("mem", &loopback_plugin(), "conformance"));
    let mem_1_2 = entry("mem", &loopback_plugin(), "conformance").replace(" u2.0 ", " u1.2 ");
    let mem_1_2 = conf(dir, "mem-1.2", &mem_1_2);
    let plugin = dist.as_ref().map(Dist::plugin).unwrap_or_default();
    let tcp = conf(dir, "tcp-emu", &entry("tcp-emu", &plugin, ""));
    let setup = |provider, door, target, conf: &PathBuf, builtin| {
        let conf = conf.clone();
        Setup { provider, door, target, conf, builtin }
    };
    vec![
        setup("mem", "linked", Ok(Door::Linked), &empty, true),
        setup("mem", "libdat2", ours(), &mem, false),
        setup("tcp-emu", "linked", Ok(Door::Linked), &empty, true),
        setup("tcp-emu", "libdat2", ours(), &empty, true),
        setup("tcp-emu", "plugin", ours(), &tcp, false),
        setup("tcp-emu", "debian", debian(), &tcp, false),
        setup("mem", "libdat1", library("libdat.so.1", Version::V1_2), &mem_1_2, false),
        setup("tcp-emu", "libdat1", library("libdat.so.1", Version::V1_2), &empty, true),
    ]
}

/// The distribution's own library.
fn debian() -> Result<Door, Skip> {
    let path = Path::new("/usr/lib/x86_64-linux-gnu/libdat2.so.2");
    match path.exists() {
        true => Ok(Door::Library(path.to_owned(), Version::V2_0)),
        false => Err(Skip(format!("no {} (package libdapl2)", path.display()))),
    }
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
    let Setup { provider, door, target, conf, builtin } = setup;
    let has = |case: &Case| target.as_ref().map_or(true, |target| target.has(case));
    let cases: Vec<_> = conformance::all().into_iter().filter(has).collect();
    let pool = target.map(|target| {
        let target = Target { door: target, provider: provider.into() }.to_argument();
        Arc::new(Mutex::new(Pool::new(move || {
            let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
            command.env(WORKER, &target).env("DAT_OVERRIDE", &conf);
            // What libraries say on standard error of the mistakes that cases make on purpose.
            command.env("DAT_DBG_TYPE", "0");
            command.env("OPENDAT_BUILTIN", if builtin { "1" } else { "0" });
            command
        })))
    });
    let trial = |case: Case| {
        let pool = pool.clone();
        let name = format!("{provider}::{door}::{}", case.id);
        Trial::ignorable_test(name.clone(), move || match pool {
            Ok(pool) => judge(&name, &case, &pool),
            Err(Skip(reason)) => Ok(Completion::ignored_with(reason)),
        })
    };
    cases.into_iter().map(trial).collect()
}

/// Only what passes is counted. What is known not to pass is no test; what is not known, or passes all the same, is a
/// failure.
fn judge(test: &str, case: &Case, pool: &Mutex<Pool>) -> Result<Completion, Failed> {
    let verdict = pool.lock().unwrap_or_else(PoisonError::into_inner).run(case).verdict;
    let no_test = |why: String| Ok(Completion::ignored_with(format!("not a test: {why}")));
    let said = match (verdict, known::entry(test)) {
        (Verdict::Passed, None) => return Ok(Completion::Completed),
        (Verdict::Passed, Some((how, why))) => {
            let list = "conformance/tests/known/mod.rs";
            return Err(format!("passes, and is listed as {how:?} ({why}): take it out of {list}").into());
        }
        (Verdict::Failed { .. }, Some((How::Fails, why))) => return no_test(format!("known to fail: {why}")),
        (Verdict::Unsupported { .. }, Some((How::Unsupported, why))) => {
            return no_test(format!("unsupported: {why}"));
        }
        (Verdict::Unsupported { reason }, None) if case.level == Level::Should => {
            return no_test(format!("unsupported: {reason}"));
        }
        (Verdict::Failed { reason }, _) => reason,
        (Verdict::Unsupported { reason }, _) => format!("unsupported: {reason}"),
    };
    Err(format!("{} {}: {}\n{said}", case.level, case.clause, case.requirement).into())
}
