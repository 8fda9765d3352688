//! Compares what the calls of the cases return with the pages of the reference.
//!
//! A page must list each status that its function returns to a case; each case checks this when it
//! runs. A case must provoke each status that a page lists, or `unprovoked.rs` must say why no case
//! can; one test checks this.

mod unprovoked;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
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

/// The targets whose cases together provoke the values, as the providers and the words for the
/// bindings. The library of each version has functions that the linked registry lacks. In memory, a
/// connection ends at once, so tcp-emu provokes the states of a connection that is ending; and
/// tcp-emu lacks datagrams.
const TARGETS: &[(&str, &str)] = &[
    ("mem", "linked"),
    ("mem", "strict"),
    ("mem", "libdat2"),
    ("mem", "libdat1"),
    ("tcp-emu", "linked"),
];

/// The pages of the reference.
pub(crate) struct Pages {
    pages: Vec<Page>,
    listed: BTreeSet<Value>,
}

impl Pages {
    pub(crate) fn read() -> Result<Self, String> {
        let pages = reference::pages().map_err(|error| error.to_string())?;
        let listed = pages.iter().flat_map(listed).collect();
        Ok(Self { pages, listed })
    }

    /// Returns the value that a call has returned, once for each page that documents the function.
    fn values(&self, call: &Call) -> impl Iterator<Item = Value> {
        let (kind, subtype) = status_names(call.status).unwrap_or(("an undefined type", ""));
        let pages = self.pages.iter().filter(|page| page.documents(&call.function));
        pages.map(move |page| (page.name.clone(), kind.to_owned(), subtype.to_owned()))
    }

    /// Checks that the pages list what the calls of a case have returned over the target.
    pub(crate) fn check(&self, setup: &Setup, calls: &BTreeSet<Call>) -> Result<(), String> {
        let compared = calls.iter().filter(|call| is_compared(setup, call));
        let values: BTreeSet<_> = compared.flat_map(|call| self.values(call)).collect();
        let missing: Vec<_> = values.difference(&self.listed).map(text).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(format!("returned, but not listed by the page: {}", missing.join(", "))),
        }
    }
}

/// Whether the page of the function must list the status of a call over the target.
fn is_compared(setup: &Setup, call: &Call) -> bool {
    match setup.name {
        // Debian's registry returns other values than ours.
        "debian" => false,
        // In uDAPL 1.2, some functions have fewer arguments, so their positions are other ones.
        name if name.starts_with("libdat1") => DAT_GET_TYPE(call.status) != DAT_INVALID_PARAMETER,
        _ => true,
    }
}

/// Returns the test that a case provokes each value that a page lists.
pub(crate) fn trial(setups: &[Setup], pages: Arc<Pages>) -> Trial {
    let is_run = |setup: &&Setup| TARGETS.contains(&(setup.provider, setup.name));
    let setups: Vec<_> = setups.iter().filter(is_run).cloned().collect();
    let name = "cases_provoke_what_the_reference_lists";
    trial_that_may_skip(name.into(), move || check(&setups, &pages))
}

fn check(setups: &[Setup], pages: &Pages) -> Result<(), Stop> {
    let mut provoked = provoked(setups, pages)?;
    // The operations of the IB extension are calls of dat_extension_op.
    let of_extension = provoked.iter().filter(|((page, ..), _)| page.starts_with("dat_ib_"));
    let of_extension = of_extension.map(|((_, kind, subtype), case)| {
        (("dat_extension_op".to_owned(), kind.clone(), subtype.clone()), case.clone())
    });
    provoked.extend(of_extension.collect::<Vec<_>>());
    let problems = unprovoked::problems(&pages.listed, &provoked);
    match problems.is_empty() {
        true => Ok(()),
        false => Err(format!("{}\n", problems.join("\n")).into()),
    }
}

/// Runs the cases over all targets. Returns the values that their calls have returned, each with a
/// case that got it.
fn provoked(setups: &[Setup], pages: &Pages) -> Result<BTreeMap<Value, String>, Skip> {
    if let Some(skip) = setups.iter().find_map(|setup| setup.missing.clone()) {
        return Err(skip);
    }
    let mut all = BTreeMap::new();
    thread::scope(|scope| {
        let runs: Vec<_> = setups.iter().map(|setup| scope.spawn(|| calls(setup))).collect();
        for (call, case) in runs.into_iter().flat_map(|run| run.join().expect("no panic")) {
            for value in pages.values(&call) {
                all.entry(value).or_insert_with(|| case.clone());
            }
        }
    });
    Ok(all)
}

/// Runs all cases of a target. Returns the calls, each with the name of the test that made it.
fn calls(setup: &Setup) -> Vec<(Call, String)> {
    let mut pool = setup.pool();
    let mut all = Vec::new();
    for case in setup.cases() {
        let calls = pool.run(&case).calls.into_iter().filter(|call| is_compared(setup, call));
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
