//! Compares what the calls of the cases return with the pages of the reference.
//!
//! A page must list each status that its function returns to a case. A case must provoke each
//! status that a page lists, or `unprovoked.rs` must say why no case can.

mod unprovoked;

use std::collections::BTreeMap;
use std::thread;

use conformance::Call;
use dat_sys::describe::status_names;
use dat_sys::{DAT_GET_TYPE, DAT_INVALID_PARAMETER};
use libtest_mimic::Trial;
use opendat_tests::{Skip, Stop, trial as trial_that_may_skip};
use reference::Page;

use super::Setup;

/// A function, a type and a subtype. The subtype is empty if the status has none.
type Value = (String, String, String);

/// The targets whose cases are compared with the pages, as the providers and the words for the
/// bindings. With `strict=on`, more calls fail. The library of each version has functions that the
/// linked registry lacks.
const TARGETS: &[(&str, &str)] = &[
    ("mem", "linked"),
    ("mem", "strict"),
    ("tcp-emu", "linked"),
    ("tcp-emu", "strict"),
    ("softroce", "linked"),
    ("softroce", "strict"),
    ("tcp-emu", "libdat2"),
    ("tcp-emu", "libdat1"),
];

/// Returns the test.
pub(crate) fn trial(setups: &[Setup]) -> Trial {
    let is_compared = |setup: &&Setup| TARGETS.contains(&(setup.provider, setup.name));
    let setups: Vec<_> = setups.iter().filter(is_compared).cloned().collect();
    let name = "cases_return_what_the_reference_lists";
    trial_that_may_skip(name.into(), move || check(&setups))
}

fn check(setups: &[Setup]) -> Result<(), Stop> {
    let pages = reference::pages().map_err(|error| error.to_string())?;
    let mut provoked = provoked(setups, &pages)?;
    let listed: Vec<Value> = pages.iter().flat_map(listed).collect();
    let mut problems: Vec<String> = provoked
        .iter()
        .filter(|(value, _)| !listed.contains(value))
        .map(|(value, case)| format!("{}: not on the page, but {case} gets it", text(value)))
        .collect();
    // The operations of the IB extension are calls of dat_extension_op.
    let of_extension = provoked.iter().filter(|((page, ..), _)| page.starts_with("dat_ib_"));
    let of_extension = of_extension.map(|((_, kind, subtype), case)| {
        (("dat_extension_op".to_owned(), kind.clone(), subtype.clone()), case.clone())
    });
    provoked.extend(of_extension.collect::<Vec<_>>());
    problems.extend(unprovoked::problems(&listed, &provoked));
    match problems.is_empty() {
        true => Ok(()),
        false => Err(format!("{}\n", problems.join("\n")).into()),
    }
}

/// Runs the cases over all targets. Returns the values that their calls have returned, each with a
/// case that got it.
fn provoked(setups: &[Setup], pages: &[Page]) -> Result<BTreeMap<Value, String>, Skip> {
    if let Some(skip) = setups.iter().find_map(|setup| setup.missing.clone()) {
        return Err(skip);
    }
    let mut all = BTreeMap::new();
    thread::scope(|scope| {
        let runs: Vec<_> = setups.iter().map(|setup| scope.spawn(|| calls(setup))).collect();
        for (call, case) in runs.into_iter().flat_map(|run| run.join().expect("no panic")) {
            let (kind, subtype) = status_names(call.status).unwrap_or(("an undefined type", ""));
            for page in pages.iter().filter(|page| page.documents(&call.function)) {
                let value = (page.name.clone(), kind.to_owned(), subtype.to_owned());
                all.entry(value).or_insert_with(|| case.clone());
            }
        }
    });
    Ok(all)
}

/// Runs all cases of a target. Returns the calls, each with the name of the test that made it.
fn calls(setup: &Setup) -> Vec<(Call, String)> {
    // In uDAPL 1.2, some functions have fewer arguments, so their positions are other ones.
    let is_compared =
        |call: &Call| setup.name != "libdat1" || DAT_GET_TYPE(call.status) != DAT_INVALID_PARAMETER;
    let mut pool = setup.pool();
    let mut all = Vec::new();
    for case in setup.cases() {
        let calls = pool.run(&case).calls.into_iter().filter(is_compared);
        all.extend(calls.map(|call| (call, setup.test(&case))));
    }
    all
}

fn listed(page: &Page) -> Vec<Value> {
    let values = page.return_values().into_iter();
    values.map(|(kind, subtype)| (page.name.clone(), kind, subtype)).collect()
}

fn text((function, kind, subtype): &Value) -> String {
    format!("{function}: {kind} {subtype}").trim_end().to_owned()
}
