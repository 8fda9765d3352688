//! Debian's unmodified programs over our library and our provider: server and client on one host, over loopback.
//!
//! Each program runs under three registries (see `Registry`): ours with its built-in entry, ours with the loadable
//! provider named in dat.conf, and Debian's own libdat2.so.2 with the same; dtest once more under valgrind. A verdict is read from the exit code
//! and from the output: several of these programs exit with 0 whatever happened.
//!
//! Left out are the datagram modes (`-u`) of `dtestcm` and `dtestsrq`; that of `dtestx` is refused.
#![forbid(unsafe_code)]

mod connections;
mod dapltest;
mod dtest;
mod dtestx;
mod network;
mod pair;
mod rendezvous;

use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use opendat_tests::{Dist, Registry, Skip};

/// One run of a program: its name and what runs and judges it.
struct Case {
    name: String,
    run: Run,
}

type Run = Box<dyn Fn(&Registry) -> Result<(), Stop> + Send>;

impl Case {
    fn new(name: impl Into<String>, run: impl Fn(&Registry) -> Result<(), Stop> + Send + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Why a run is not a pass.
enum Stop {
    Skip(Skip),
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

fn main() {
    let mut arguments = Arguments::from_args();
    if !arguments.list {
        network::enter_own();
    }
    // One at a time: dtest's ports are fixed, and polling programs want the processors for themselves.
    arguments.test_threads = Some(1);

    let dist = Dist::locate();
    let registry = |make: &dyn Fn(&Dist) -> Result<Registry, Skip>| dist.clone().and_then(|dist| make(&dist));
    let mut trials = Vec::new();
    trials.extend(under("builtin", registry(&|dist| Ok(Registry::builtin(dist))), every_case()));
    trials.extend(under(
        "valgrind",
        registry(&|dist| Ok(Registry::builtin(dist))),
        vec![dtest::under_valgrind()],
    ));
    trials.extend(under("plugin", registry(&|dist| Ok(Registry::plugin(dist))), some_cases()));
    trials.extend(under("debian", registry(&Registry::debian), every_case_debian_survives()));
    libtest_mimic::run(&arguments, trials).exit();
}

fn every_case() -> Vec<Case> {
    let mut cases = dtest::cases();
    cases.extend(dapltest::cases());
    cases.push(dapltest::queryinfo("fft_queryinfo", dapltest::QUERYINFO_CASES));
    cases.extend(connections::cases());
    cases.extend(dtestx::cases());
    cases
}

/// The other entry into the same code: one case of each program is enough.
fn some_cases() -> Vec<Case> {
    vec![dtest::plain(), dapltest::small_transaction(), dapltest::quit(), dtestx::plain()]
}

/// Debian's libdat2 calls through whatever handle it is given. The cases of queryinfo that hand the (small integer)
/// IA handle to a function of another object therefore crash in it before our provider is asked.
fn every_case_debian_survives() -> Vec<Case> {
    let mut cases = dtest::cases();
    cases.extend(dapltest::cases());
    let survived = dapltest::QUERYINFO_CASES.iter().copied().filter(|case| ![13, 15].contains(case));
    cases.push(dapltest::queryinfo("fft_queryinfo", &survived.collect::<Vec<_>>()));
    cases.extend(connections::cases());
    cases.extend(dtestx::cases());
    cases
}

fn under(name: &str, registry: Result<Registry, Skip>, cases: Vec<Case>) -> Vec<Trial> {
    let registry = Arc::new(registry);
    let trial = |case: Case| {
        let registry = Arc::clone(&registry);
        Trial::ignorable_test(format!("{name}::{}", case.name), move || {
            let outcome = match registry.as_ref() {
                Ok(registry) => (case.run)(registry),
                Err(skip) => Err(Stop::Skip(skip.clone())),
            };
            match outcome {
                Ok(()) => Ok(Completion::Completed),
                Err(Stop::Skip(Skip(reason))) => Ok(Completion::ignored_with(reason)),
                Err(Stop::Fail(why)) => Err(Failed::from(why)),
            }
        })
    };
    cases.into_iter().map(trial).collect()
}
