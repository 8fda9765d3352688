//! The conformance suite in the guest: over our provider for the kernel's rxe, and over Debian's. Each case is a test; what is
//! known not to pass is named with its reason in `known`, and counted neither way.

mod known;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use conformance::{Binding, Version};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use opendat_tests::{Skip, Stop};

use super::machine::{Guest, Machine};
use super::within::REGISTRIES;
use known::known;

/// A run takes minutes, and says nothing before its end.
const LIMIT: Duration = Duration::from_secs(1100);

/// A provider on a device, asked through our libdat2.
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

/// How a case ended.
#[derive(Clone, Debug)]
enum Verdict {
    Passed,
    Failed(String),
    Unsupported(String),
}

type Verdicts = HashMap<String, Verdict>;

pub(super) fn trials(machine: &Arc<Machine>, arguments: &Arguments) -> Vec<Trial> {
    // Not this one, but one like it: some cases are for the registry of Rust programs only.
    let binding = Binding::Library("libdat2.so.2".into(), Version::V2_0);
    let is_wanted = |name: &str| match &arguments.filter {
        Some(filter) if arguments.exact => name == filter,
        Some(filter) => name.contains(filter.as_str()),
        None => true,
    };
    let mut trials = Vec::new();
    for target in &TARGETS {
        let cases =
            conformance::all().into_iter().filter(|case| binding.has(case)).map(|case| case.id);
        let cases = cases.map(|case| (format!("guest::conformance::{}", target.test(&case)), case));
        let cases: Vec<(String, String)> = cases.collect();
        let wanted =
            cases.iter().filter(|(name, case)| is_wanted(name) && !target.leaves_out(case));
        let wanted: Arc<[String]> = wanted.map(|(_, case)| case.clone()).collect();
        for (name, case) in cases {
            let (machine, wanted) = (Arc::clone(machine), Arc::clone(&wanted));
            trials.push(Trial::ignorable_test(name, move || {
                if target.leaves_out(&case) {
                    return no_test(format!(
                        "not asked: {}",
                        known(&target.test(&case)).unwrap_or_default()
                    ));
                }
                match target.verdicts.get_or_init(|| target.ask_in(&machine, &wanted)) {
                    Ok(verdicts) => target.judge(&case, verdicts.get(&case)),
                    Err(Stop::Skip(Skip(reason))) => Ok(Completion::ignored_with(reason)),
                    Err(Stop::Fail(why)) => Err(Failed::from(why.clone())),
                }
            }));
        }
    }
    if arguments.filter.is_none() {
        let machine = Arc::clone(machine);
        // How many pass is OFED's matter: that is printed. What dies or panics is judged case by case.
        trials.push(opendat_tests::trial(
            "guest::conformance::ofa::each_case_is_asked".to_owned(),
            move || {
                let [.., ofa] = &TARGETS;
                let cases: Vec<_> =
                    conformance::all().into_iter().filter(|case| binding.has(case)).collect();
                let cases: Vec<_> = cases
                    .into_iter()
                    .map(|case| case.id)
                    .filter(|case| !ofa.leaves_out(case))
                    .collect();
                let verdicts = ofa.verdicts.get_or_init(|| ofa.ask_in(&machine, &cases)).clone()?;
                let passed =
                    verdicts.values().filter(|verdict| matches!(verdict, Verdict::Passed)).count();
                println!("{passed} of {} cases pass over OFED's provider", cases.len());
                let missing: Vec<_> =
                    cases.iter().filter(|case| !verdicts.contains_key(*case)).collect();
                match missing.is_empty() {
                    true => Ok(()),
                    false => Err(format!("the suite has no verdict on {missing:?}").into()),
                }
            },
        ));
    }
    trials
}

/// How long a case waits over a provider of ours for what must happen, in seconds: an emulated machine beside others is slow. Over
/// OFED's provider some wait in vain, as long as the suite has them wait by itself.
const PATIENCE: u32 = 30;

impl Target {
    fn test(&self, case: &str) -> String {
        format!("{}::{case}", self.name)
    }

    fn leaves_out(&self, case: &str) -> bool {
        known::hangs(&self.test(case))
    }

    fn ask_in(&self, machine: &Machine, cases: &[String]) -> Result<Verdicts, Stop> {
        machine.run((self.device, 1500), true, |guest| self.ask(guest, cases))
    }

    /// What the suite says of these cases, in one run of it; of one that may have died of what a case before it left behind, once
    /// more by itself.
    fn ask(&self, guest: &Guest, cases: &[String]) -> Result<Verdicts, Stop> {
        let mut verdicts = self.run(guest, cases)?;
        let may_be_late = |(case, verdict): (&String, &Verdict)| {
            known::may_be_late(case, verdict).then(|| case.clone())
        };
        let again: Vec<String> = verdicts.iter().filter_map(may_be_late).collect();
        for case in again.iter().filter(|_| self.provider == "ofa") {
            eprintln!("{case}: {:?}; asked again, by itself", verdicts[case]);
            verdicts.extend(self.run(guest, std::slice::from_ref(case))?);
        }
        Ok(verdicts)
    }

    fn run(&self, guest: &Guest, cases: &[String]) -> Result<Verdicts, Stop> {
        let (_, ours) = REGISTRIES[0];
        let patience = match self.provider {
            "ofa" => String::new(),
            _ => format!("{}={PATIENCE}", conformance::TIMEOUT_VARIABLE),
        };
        // It ends with 1 where a case has failed, which is not the last word. What processes say that die is not JSON.
        let line = format!(
            "{ours} {patience} /tmp/dist/bin/dat conformance --provider {} --library /tmp/dist/lib/libdat2.so.2 --json {} 2>/dev/null; true",
            self.provider,
            cases.join(" ")
        );
        let said = guest.run_for(&line, LIMIT)?;
        let json = said
            .get(said.find('{').unwrap_or(0)..=said.rfind('}').unwrap_or(0))
            .unwrap_or_default();
        let document: serde_json::Value = serde_json::from_str(json)
            .map_err(|error| format!("{error}: the suite says\n{said}"))?;
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

    /// Only what passes is counted.
    fn judge(&self, case: &str, verdict: Option<&Verdict>) -> Result<Completion, Failed> {
        let Some(verdict) = verdict else { return Err("the suite has no verdict".into()) };
        if self.provider == "ofa"
            && let Some(why) = known::ofa(case, verdict)
        {
            return no_test(why);
        }
        let test = self.test(case);
        if let Verdict::Failed(reason) = verdict
            && !known::may_be_known(reason)
        {
            return Err(reason.as_str().into());
        }
        if let (Verdict::Failed(reason), Some(why)) = (verdict, known::sometimes(&test)) {
            return no_test(format!("{why}: {reason}"));
        }
        match (verdict, known(&test)) {
            (Verdict::Passed, None) => Ok(Completion::Completed),
            (Verdict::Passed, Some(why)) => Err(format!(
                "passes, and is listed ({why}): take it out of guest/conformance/known.rs"
            )
            .into()),
            (Verdict::Unsupported(reason), _) => no_test(format!("unsupported: {reason}")),
            (Verdict::Failed(reason), Some(why)) => {
                no_test(format!("known to fail: {why}: {reason}"))
            }
            (Verdict::Failed(reason), None) => Err(reason.as_str().into()),
        }
    }
}

fn no_test(why: String) -> Result<Completion, Failed> {
    Ok(Completion::ignored_with(format!("not a test: {why}")))
}
