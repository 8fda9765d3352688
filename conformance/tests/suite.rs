//! Runs the conformance suite against the providers of this project, through all bindings. Each
//! case is a test with the name `PROVIDER::BINDING::CASE`.
#![forbid(unsafe_code)]

mod reference_pages;
mod results_table;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conformance::{Binding, Case, Known, KnownOutcome, Pool, Record, Target, Verdict, Version};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use opendat_tests::{Dist, PROVIDERS, Skip, enter_own_network, is_short_run};
use reference_pages::Pages;
use tempfile::TempDir;

/// The environment variable that makes this program a worker process, which runs cases.
const WORKER_VARIABLE: &str = "CONFORMANCE_WORKER";

/// The time that a case waits for an event that must happen. It is long, because the machine may be
/// very busy.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if let Ok(target) = std::env::var(WORKER_VARIABLE) {
        conformance::serve(&target).expect("the variable contains a target");
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    if !arguments.list {
        // Other runs on this host may use the same connection qualifiers.
        enter_own_network();
    }
    // The cases of one target run one after the other, even if several targets run at the same
    // time.
    arguments.test_threads = Some(arguments.test_threads.unwrap_or(2));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let setups = setups(&dir);
    let pages = Arc::new(Pages::read().expect("the pages of the reference"));
    let mut trials =
        vec![results_table::trial(&setups), reference_pages::trial(&setups, pages.clone())];
    trials.extend(setups.into_iter().flat_map(|setup| self::trials(setup, &pages)));
    opendat_tests::run(&arguments, trials)
}

/// A target of the suite, and the environment in which its cases run.
#[derive(Clone)]
struct Setup {
    provider: &'static str,
    /// The adapter's name in the registry.
    ia: &'static str,
    /// The word for the binding in the names of tests.
    name: &'static str,
    /// The description of the binding in docs/conformance.md.
    description: &'static str,
    binding: Binding,
    /// The reason for which this host cannot test the target. `None` if it can.
    missing: Option<Skip>,
    /// The path of the registry file.
    conf: PathBuf,
    /// Whether the providers that are built into the library are enabled.
    builtin: bool,
}

fn setups(dir: &TempDir) -> Vec<Setup> {
    let dist = Dist::locate();
    let lib = dist.as_ref().map(Dist::lib).unwrap_or_default();
    let (libdat2, libdat1) = (lib.join("libdat2.so.2"), lib.join("libdat.so.1"));
    let debian = PathBuf::from("/usr/lib/x86_64-linux-gnu/libdat2.so.2");
    let not_built = || dist.as_ref().err().cloned();
    let not_installed = || {
        (!debian.exists())
            .then(|| Skip(format!("no {} (package libdapl2)", debian.display())))
            .or_else(not_built)
    };

    let mem_entry = entry("mem", &mem_plugin(), "conformance");
    let empty = conf(dir, "empty", "");
    let mem = conf(dir, "mem", &mem_entry);
    let mem_1_2 = conf(dir, "mem-1.2", &mem_entry.replace(" u2.0 ", " u1.2 "));
    let strict_entry = entry("mem", &mem_plugin(), "conformance strict=on");
    let strict = conf(dir, "mem-strict", &strict_entry);
    let strict_1_2 = conf(dir, "mem-strict-1.2", &strict_entry.replace(" u2.0 ", " u1.2 "));

    let linked = |provider| Setup {
        provider,
        ia: provider,
        name: "linked",
        description: "the linked-in registry",
        binding: Binding::Linked,
        missing: None,
        conf: empty.clone(),
        builtin: true,
    };
    let by_the_letter = |provider, ia| Setup {
        ia,
        name: "strict",
        description: "the linked-in registry, strict=on",
        ..linked(provider)
    };
    // Targets that use a C library. If there is a registry file, it names the provider, which the
    // library then loads.
    let through =
        |provider, name, description, library: &Path, version, missing, conf: Option<&PathBuf>| {
            Setup {
                provider,
                ia: provider,
                name,
                description,
                binding: Binding::Library(library.to_owned(), version),
                missing,
                conf: conf.unwrap_or(&empty).clone(),
                builtin: conf.is_none(),
            }
        };
    let (v2, v1) = (Version::V2_0, Version::V1_2);
    let loaded = "libdat2.so.2, provider loaded";
    let loaded_strict = "libdat2.so.2, provider loaded, strict=on";
    let loaded_1_2_strict = "libdat.so.1, provider loaded, strict=on";
    let mut setups = vec![
        linked("mem"),
        by_the_letter("mem", "mem-strict"),
        by_the_letter("tcp-emu", "tcp-emu-strict"),
        by_the_letter("softroce", "softroce-strict"),
        through("mem", "libdat2", loaded, &libdat2, v2, not_built(), Some(&mem)),
        through(
            "mem",
            "libdat1",
            "libdat.so.1, provider loaded",
            &libdat1,
            v1,
            not_built(),
            Some(&mem_1_2),
        ),
        through("mem", "libdat2_strict", loaded_strict, &libdat2, v2, not_built(), Some(&strict)),
        through(
            "mem",
            "libdat1_strict",
            loaded_1_2_strict,
            &libdat1,
            v1,
            not_built(),
            Some(&strict_1_2),
        ),
    ];
    // The cases of tcp-emu take one or two seconds. Those of softroce take a minute.
    if let Some(provider) = PROVIDERS.iter().find(|provider| provider.ia == "tcp-emu") {
        let plugin = dist.as_ref().map(|dist| dist.plugin(provider)).unwrap_or_default();
        let strict = conf(dir, "tcp-emu-strict", &entry(provider.ia, &plugin, "strict=on"));
        let (ia, missing) = (provider.ia, not_built());
        setups.push(through(
            ia,
            "plugin_strict",
            loaded_strict,
            &libdat2,
            v2,
            missing.clone(),
            Some(&strict),
        ));
        // By default, a connection moves to shared memory after more transfers than most cases
        // make.
        let shm = conf(dir, "tcp-emu-shm", &entry(provider.ia, &plugin, "shm=1"));
        setups.push(through(
            ia,
            "plugin_shm",
            "libdat2.so.2, provider loaded, shared memory at once",
            &libdat2,
            v2,
            missing,
            Some(&shm),
        ));
    }
    for provider in PROVIDERS {
        let ia = provider.ia;
        let plugin = dist.as_ref().map(|dist| dist.plugin(provider)).unwrap_or_default();
        let conf = Some(&conf(dir, ia, &entry(ia, &plugin, "")));
        let in_debians = "Debian's libdat2.so.2, provider loaded";
        setups.extend([
            linked(ia),
            through(
                ia,
                "libdat2",
                "libdat2.so.2, provider built in",
                &libdat2,
                v2,
                not_built(),
                None,
            ),
            through(ia, "plugin", loaded, &libdat2, v2, not_built(), conf),
            through(ia, "debian", in_debians, &debian, v2, not_installed(), conf),
            through(
                ia,
                "libdat1",
                "libdat.so.1, provider built in",
                &libdat1,
                v1,
                not_built(),
                None,
            ),
        ]);
    }
    setups
}

impl Setup {
    /// Returns all cases that apply to the target.
    fn cases(&self) -> Vec<Case> {
        conformance::all().into_iter().filter(|case| case.is_for(&self.binding)).collect()
    }

    /// Returns the cases that this run includes. For most targets, the short run includes only one
    /// case for each function.
    fn cases_of_run(&self) -> Vec<Case> {
        let mut cases = self.cases();
        if is_short_run() && !["linked", "libdat1"].contains(&self.name) {
            let mut functions = HashSet::new();
            cases.retain(|case| {
                // The one case must not be a case that is known not to pass, because such a case
                // tests nothing.
                self.known(case).is_none()
                    && functions.insert(case.id.split('/').next().map(str::to_owned))
            });
        }
        cases
    }

    /// Returns a pool that runs cases against the target.
    fn pool(&self) -> Pool {
        let (binding, provider) = (self.binding.clone(), self.ia.into());
        let target = Target { binding, provider, event_timeout: EVENT_TIMEOUT };
        let (argument, conf) = (target.to_argument(), self.conf.clone());
        let builtin = if self.builtin { "builtin=on" } else { "builtin=off" };
        Pool::new(&target, move || {
            let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
            command
                .env(WORKER_VARIABLE, &argument)
                .env("DAT_OVERRIDE", &conf)
                .env("OPENDAT_PARAMS", builtin);
            // The variable suppresses messages about errors that cases cause on purpose.
            command.env("DAT_DBG_TYPE", "0");
            command
        })
    }

    /// Returns the entry about a case that is known not to pass over the target.
    fn known(&self, case: &Case) -> Option<&'static Known> {
        conformance::known(self.provider, self.name, &case.id)
    }

    /// Returns the name of a test.
    fn test(&self, case: &Case) -> String {
        format!("{}::{}::{}", self.provider, self.name, case.id)
    }
}

fn conf(dir: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name).with_extension("conf");
    std::fs::write(&path, text).expect("dat.conf can be written");
    path
}

fn entry(name: &str, library: &Path, params: &str) -> String {
    let line = |safety: &str| {
        format!(
            "{name} u2.0 {safety} default {} opendat.0.1 \"{params}\" \"\"\n",
            library.display()
        )
    };
    line("nonthreadsafe") + &line("threadsafe")
}

/// Returns `<target>/<profile>/examples/libdat_mem.so`, which cargo builds with this test.
fn mem_plugin() -> PathBuf {
    let this = std::env::current_exe().expect("this test has a path");
    let profile = this.ancestors().nth(2).expect("this test lies in a target directory");
    profile.join("examples/libdat_mem.so")
}

fn trials(setup: Setup, pages: &Arc<Pages>) -> Vec<Trial> {
    let pool = Arc::new(Mutex::new(setup.pool()));
    let setup = Arc::new(setup);
    let trial = |case: Case| {
        let (setup, pool, pages) = (setup.clone(), pool.clone(), pages.clone());
        Trial::ignorable_test(setup.test(&case), move || match &setup.missing {
            None => judge(&case, &setup, &pool, &pages),
            Some(Skip(reason)) => Ok(Completion::ignored_with(reason)),
        })
    };
    setup.cases_of_run().into_iter().map(trial).collect()
}

/// Runs a case and judges the result. A case that is known not to pass is ignored. A case that
/// passes although it is listed fails the test, and so does a case that does not pass and is not
/// listed. The pages of the reference must list what each call has returned.
fn judge(
    case: &Case,
    setup: &Setup,
    pool: &Mutex<Pool>,
    pages: &Pages,
) -> Result<Completion, Failed> {
    let Record { verdict, calls, .. } =
        pool.lock().unwrap_or_else(PoisonError::into_inner).run(case);
    pages.check(setup, &calls)?;
    let known = setup.known(case);
    let no_test = |why: String| Ok(Completion::ignored_with(format!("not a test: {why}")));
    let listed = known.map(|known| (known.outcome, known.reason));
    let said = match (verdict, listed) {
        (Verdict::Passed, None) => return Ok(Completion::Completed),
        (Verdict::Passed, Some((outcome, why))) => {
            let list = "conformance/src/coverage/known.rs";
            return Err(format!(
                "passes, and is listed as {outcome:?} ({why}): take it out of {list}"
            )
            .into());
        }
        (Verdict::Failed { .. }, Some((KnownOutcome::Fails, why))) => {
            return no_test(format!("known to fail: {why}"));
        }
        (Verdict::Unsupported { .. }, Some((KnownOutcome::Unsupported, why))) => {
            return no_test(format!("unsupported: {why}"));
        }
        (Verdict::Failed { reason }, _) => reason,
        (Verdict::Unsupported { reason }, _) => format!("unsupported: {reason}"),
    };
    Err(format!("{} {}: {}\n{said}", case.level, case.clause, case.requirement).into())
}
