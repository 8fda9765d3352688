//! Runs the conformance suite in the guest: over this project's provider for the kernel's rxe and
//! siw, and over Debian's provider. Each case is a test. A case that is known not to pass is listed
//! with its reason in `known`, and counts as neither passed nor failed.

mod known;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use conformance::{Binding, Version};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use opendat_tests::{Skip, Stop};

use super::in_guest::REGISTRIES;
use super::machine::{Guest, Machine};
use known::known;

/// The time limit of a run, which takes minutes and prints nothing before its end.
const LIMIT: Duration = Duration::from_secs(1100);

/// A provider on a device, called through this project's libdat2.
struct Target {
    name: &'static str,
    provider: &'static str,
    device: &'static str,
    verdicts: OnceLock<Result<Verdicts, Stop>>,
}

static TARGETS: [Target; 3] = [
    target("verbs", "verbs", "rxe"),
    target("verbs_on_siw", "verbs", "siw"),
    target("ofa", "ofa", "rxe"),
];

const fn target(name: &'static str, provider: &'static str, device: &'static str) -> Target {
    Target { name, provider, device, verdicts: OnceLock::new() }
}

/// The result of a conformance case.
#[derive(Clone, Debug)]
enum Verdict {
    Passed,
    Failed(String),
    Unsupported(String),
}

type Verdicts = HashMap<String, Verdict>;

pub(super) fn trials(machine: &Arc<Machine>, arguments: &Arguments) -> Vec<Trial> {
    // The binding is used only to select cases: some cases are only for the registry of Rust
    // programs.
    let binding = Binding::Library("libdat2.so.2".into(), Version::V2_0);
    let is_wanted = |name: &str| match &arguments.filter {
        Some(filter) if arguments.exact => name == filter,
        Some(filter) => name.contains(filter.as_str()),
        None => true,
    };
    let mut trials = Vec::new();
    for target in &TARGETS {
        let cases =
            conformance::all().into_iter().filter(|case| case.is_for(&binding)).map(|case| case.id);
        let cases = cases.map(|case| (format!("guest::conformance::{}", target.test(&case)), case));
        let cases: Vec<(String, String)> = cases.collect();
        let wanted =
            cases.iter().filter(|(name, case)| is_wanted(name) && !target.leaves_out(case));
        let wanted: Arc<[String]> = wanted.map(|(_, case)| case.clone()).collect();
        for (name, case) in cases {
            let (machine, wanted) = (Arc::clone(machine), Arc::clone(&wanted));
            trials.push(Trial::ignorable_test(name, move || {
                if target.leaves_out(&case) {
                    return not_counted(format!(
                        "not run: {}",
                        known(&target.test(&case)).unwrap_or_default()
                    ));
                }
                match target.verdicts.get_or_init(|| target.run_cases_in(&machine, &wanted)) {
                    Ok(verdicts) => target.judge(&case, verdicts.get(&case)),
                    Err(Stop::Skip(Skip(reason))) => Ok(Completion::ignored_with(reason)),
                    Err(Stop::Fail(why)) => Err(Failed::from(why.clone())),
                }
            }));
        }
    }
    if arguments.filter.is_none() {
        let machine = Arc::clone(machine);
        // The number of cases that pass over OFED's provider is printed and not judged. Cases that
        // end the process or panic are judged one by one.
        trials.push(opendat_tests::trial(
            "guest::conformance::ofa::each_case_is_asked".to_owned(),
            move || {
                let [.., ofa] = &TARGETS;
                let cases: Vec<_> =
                    conformance::all().into_iter().filter(|case| case.is_for(&binding)).collect();
                let cases: Vec<_> = cases
                    .into_iter()
                    .map(|case| case.id)
                    .filter(|case| !ofa.leaves_out(case))
                    .collect();
                let verdicts =
                    ofa.verdicts.get_or_init(|| ofa.run_cases_in(&machine, &cases)).clone()?;
                let passed =
                    verdicts.values().filter(|verdict| matches!(verdict, Verdict::Passed)).count();
                println!("{passed} of {} cases pass over OFED's provider", cases.len());
                let missing: Vec<_> =
                    cases.iter().filter(|case| !verdicts.contains_key(*case)).collect();
                match missing.is_empty() {
                    true => Ok(()),
                    false => Err(format!("the suite has no verdict for {missing:?}").into()),
                }
            },
        ));
    }
    trials
}

/// The time in seconds for which a case over one of this project's providers waits for an event
/// that must happen. The time is long because an emulated machine next to other work is slow. Over
/// OFED's provider some cases wait in vain, so they have the suite's default.
const EVENT_LIMIT_SECONDS: u32 = 30;

impl Target {
    fn test(&self, case: &str) -> String {
        format!("{}::{case}", self.name)
    }

    fn leaves_out(&self, case: &str) -> bool {
        known::hangs(&self.test(case))
    }

    fn run_cases_in(&self, machine: &Machine, cases: &[String]) -> Result<Verdicts, Stop> {
        machine.run((self.device, 1500), true, |guest| self.run_cases(guest, cases))
    }

    /// Runs these cases in one run of the suite and returns their verdicts. A case that may have
    /// died because of an earlier case runs once more by itself.
    fn run_cases(&self, guest: &Guest, cases: &[String]) -> Result<Verdicts, Stop> {
        let mut verdicts = self.run(guest, cases)?;
        let may_be_late = |(case, verdict): (&String, &Verdict)| {
            known::may_be_late(case, verdict).then(|| case.clone())
        };
        let again: Vec<String> = verdicts.iter().filter_map(may_be_late).collect();
        for case in again.iter().filter(|_| self.provider == "ofa") {
            eprintln!("{case}: {:?}; run again by itself", verdicts[case]);
            verdicts.extend(self.run(guest, std::slice::from_ref(case))?);
        }
        Ok(verdicts)
    }

    fn run(&self, guest: &Guest, cases: &[String]) -> Result<Verdicts, Stop> {
        let (_, ours) = REGISTRIES[0];
        let limit = match self.provider {
            "ofa" => String::new(),
            _ => format!("--event-timeout {EVENT_LIMIT_SECONDS}"),
        };
        // The suite's exit status 1, which means that a case has failed, does not count here.
        // Processes that die print lines that are not JSON.
        let line = format!(
            "{ours} /tmp/dist/bin/dat conformance {limit} --provider {} \
             --library /tmp/dist/lib/libdat2.so.2 --json {} 2>/dev/null; true",
            self.provider,
            cases.join(" ")
        );
        let output = guest.run_for(&line, LIMIT)?;
        let json = output
            .get(output.find('{').unwrap_or(0)..=output.rfind('}').unwrap_or(0))
            .unwrap_or_default();
        let document: serde_json::Value = serde_json::from_str(json)
            .map_err(|error| format!("{error}: the suite printed\n{output}"))?;
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

    /// Turns the verdict of the suite into a test result. The test counts as passed only if the
    /// case has passed.
    fn judge(&self, case: &str, verdict: Option<&Verdict>) -> Result<Completion, Failed> {
        let Some(verdict) = verdict else {
            return Err("the suite has no verdict for this case".into());
        };
        if self.provider == "ofa"
            && let Some(why) = known::reason_over_ofed(case, verdict)
        {
            return not_counted(why);
        }
        let test = self.test(case);
        if let Verdict::Failed(reason) = verdict
            && !known::may_be_known(reason)
        {
            return Err(reason.as_str().into());
        }
        if let (Verdict::Failed(reason), Some(why)) = (verdict, known::flaky(&test)) {
            return not_counted(format!("{why}: {reason}"));
        }
        match (verdict, known(&test)) {
            (Verdict::Passed, None) => Ok(Completion::Completed),
            (Verdict::Passed, Some(why)) => Err(format!(
                "the case passes, but is listed ({why}): remove it from guest/conformance/known.rs"
            )
            .into()),
            (Verdict::Unsupported(reason), _) => not_counted(format!("unsupported: {reason}")),
            (Verdict::Failed(reason), Some(why)) => {
                not_counted(format!("known to fail: {why}: {reason}"))
            }
            (Verdict::Failed(reason), None) => Err(reason.as_str().into()),
        }
    }
}

fn not_counted(why: String) -> Result<Completion, Failed> {
    Ok(Completion::ignored_with(format!("not a test: {why}")))
}
