//! The conformance suite in the guest: over our provider for the kernel's rxe, and over Debian's. Each case is a test; what is
//! known not to pass is named with its reason in `known`, and counted neither way.

mod known;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use conformance::{Door, Version};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use opendat_tests::{Skip, Stop};

use super::machine::{Guest, Machine};
use super::within::REGISTRIES;
use known::known;

/// A run takes minutes, and says nothing before its end.
const LIMIT: Duration = Duration::from_secs(900);

/// A provider, asked through our libdat2.
struct Target {
    provider: &'static str,
}

static TARGETS: [Target; 2] = [Target { provider: "verbs" }, Target { provider: "ofa" }];

/// How a case ended.
#[derive(Debug)]
enum Verdict {
    Passed,
    Failed(String),
    Unsupported(String),
}

type Verdicts = HashMap<String, Verdict>;

/// One run of the suite over each target, both at the same time.
struct Runs {
    /// The cases that are wanted of each.
    wanted: Vec<Vec<String>>,
    verdicts: OnceLock<Result<Vec<Verdicts>, Stop>>,
}

pub(super) fn trials(machine: &Arc<Machine>, arguments: &Arguments) -> Vec<Trial> {
    // Not this one, but one like it: some cases are for the registry of Rust programs only.
    let door = Door::Library("libdat2.so.2".into(), Version::V2_0);
    let tests = TARGETS.iter().map(|target| {
        let cases = conformance::all().into_iter().filter(|case| door.has(case));
        cases.map(|case| (case.id.clone(), format!("guest::conformance::{}::{}", target.provider, case.id)))
    });
    let tests: Vec<Vec<(String, String)>> = tests.map(Iterator::collect).collect();
    let is_wanted = |name: &str| match &arguments.filter {
        Some(filter) if arguments.exact => name == filter,
        Some(filter) => name.contains(filter.as_str()),
        None => true,
    };
    let wanted = tests.iter().zip(&TARGETS).map(|(tests, target)| {
        let wanted = tests.iter().filter(|(case, name)| is_wanted(name) && !target.leaves_out(case));
        wanted.map(|(case, _)| case.clone()).collect()
    });
    let runs = Arc::new(Runs { wanted: wanted.collect(), verdicts: OnceLock::new() });
    let mut trials = Vec::new();
    for (index, (tests, target)) in tests.into_iter().zip(&TARGETS).enumerate() {
        for (case, name) in tests {
            let (machine, runs) = (Arc::clone(machine), Arc::clone(&runs));
            trials.push(Trial::ignorable_test(name, move || {
                if target.leaves_out(&case) {
                    return no_test(format!("not asked: {}", known(&target.test(&case)).unwrap_or_default()));
                }
                match runs.verdicts.get_or_init(|| runs.ask(&machine)) {
                    Ok(verdicts) => target.judge(&case, verdicts[index].get(&case)),
                    Err(Stop::Skip(Skip(reason))) => Ok(Completion::ignored_with(reason)),
                    Err(Stop::Fail(why)) => Err(Failed::from(why)),
                }
            }));
        }
    }
    trials
}

impl Runs {
    fn ask(&self, machine: &Machine) -> Result<Vec<Verdicts>, Stop> {
        let guest = machine.settled()?;
        guest.run("dmesg -c >/dev/null")?;
        let verdicts = thread::scope(|scope| {
            let ask = |(target, wanted): (&'static Target, &Vec<String>)| {
                let line = target.line(wanted);
                scope.spawn(move || if line.is_empty() { Ok(Verdicts::new()) } else { ask(guest, &line) })
            };
            let asked: Vec<_> = TARGETS.iter().zip(&self.wanted).map(ask).collect();
            asked.into_iter().map(|asked| asked.join().expect("no panic")).collect::<Result<_, _>>()
        })?;
        // Debian's provider passes on bad pointers and crashes; what is ours does not.
        let crashes = guest.run("dmesg | grep -E 'segfault at .* in (dat\\[|libdat2|libdat_)'; true")?;
        match crashes.lines().find(|line| line.contains("segfault")) {
            None => Ok(verdicts),
            Some(crash) => Err(Stop::Fail(format!("code of ours has crashed: {crash}"))),
        }
    }
}

/// What the suite says of each case.
fn ask(guest: &Guest, line: &str) -> Result<Verdicts, Stop> {
    let said = guest.run_for(line, LIMIT)?;
    let json = said.get(said.find('{').unwrap_or(0)..=said.rfind('}').unwrap_or(0)).unwrap_or_default();
    let document: serde_json::Value =
        serde_json::from_str(json).map_err(|error| format!("{error}: the suite says\n{said}"))?;
    let of = |case: &serde_json::Value| {
        let text = |key: &str| case[key].as_str().map(str::to_owned);
        let reason = text("reason").unwrap_or_default();
        let verdict = match text("verdict")?.as_str() {
            "passed" => Verdict::Passed,
            "unsupported" => Verdict::Unsupported(reason),
            _ => Verdict::Failed(reason),
        };
        Some((text("id")?, verdict))
    };
    Ok(document["cases"].as_array().into_iter().flatten().filter_map(of).collect())
}

impl Target {
    fn test(&self, case: &str) -> String {
        format!("{}::{case}", self.provider)
    }

    fn leaves_out(&self, case: &str) -> bool {
        known::hangs(&self.test(case))
    }

    /// What the guest is to run; nothing if nothing is wanted.
    fn line(&self, wanted: &[String]) -> String {
        if wanted.is_empty() {
            return String::new();
        }
        let (_, ours) = REGISTRIES[0];
        // It ends with 1 where a case has failed, which is not the last word. What processes say that die is not JSON.
        format!(
            "{ours} /tmp/dist/bin/dat conformance --provider {} --library /tmp/dist/lib/libdat2.so.2 --json {} 2>/dev/null; true",
            self.provider,
            wanted.join(" ")
        )
    }

    /// Only what passes is counted.
    fn judge(&self, case: &str, verdict: Option<&Verdict>) -> Result<Completion, Failed> {
        let Some(verdict) = verdict else { return Err("the suite has no verdict".into()) };
        if self.provider == "ofa"
            && let Some(why) = known::ofa(case, verdict)
        {
            return no_test(why);
        }
        let test = self.test(case);
        if let (Verdict::Failed(reason), Some(why)) = (verdict, known::sometimes(&test)) {
            return no_test(format!("{why}: {reason}"));
        }
        match (verdict, known(&test)) {
            (Verdict::Passed, None) => Ok(Completion::Completed),
            (Verdict::Passed, Some(why)) => {
                Err(format!("passes, and is listed ({why}): take it out of guest/conformance/known.rs")
                    .into())
            }
            (Verdict::Unsupported(reason), _) => no_test(format!("unsupported: {reason}")),
            (Verdict::Failed(reason), Some(why)) => no_test(format!("known to fail: {why}: {reason}")),
            (Verdict::Failed(reason), None) => Err(reason.as_str().into()),
        }
    }
}

fn no_test(why: String) -> Result<Completion, Failed> {
    Ok(Completion::ignored_with(format!("not a test: {why}")))
}
