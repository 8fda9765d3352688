//! Generates the table of results in docs/conformance.md.
//!
//! The table is computed from the cases and from the list of cases that are known not to pass. If
//! the list were wrong, the tests of the suite would fail.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use conformance::{Case, KnownOutcome, Level};
use libtest_mimic::{Failed, Trial};

use super::Setup;

/// The document with the table, and the headings before and after the table.
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/conformance.md");
const HEADING: &str = "## Results\n";
const NEXT_HEADING: &str = "\n## ";

/// The environment variable that makes the test write the table into the document instead of
/// comparing it.
const UPDATE_VARIABLE: &str = "CONFORMANCE_UPDATE";

/// Returns the test that checks that the table in the document is current.
pub(crate) fn trial(setups: &[Setup]) -> Trial {
    let now = table(setups);
    Trial::test("results_in_the_document_are_those_of_this_run", move || check(&now))
}

fn check(now: &str) -> Result<(), Failed> {
    let document = fs::read_to_string(Path::new(DOCUMENT))?;
    let (before, section) =
        document.split_once(HEADING).ok_or("docs/conformance.md has no heading \"Results\"")?;
    let (written, after) = section.split_at(
        section.find(NEXT_HEADING).ok_or("docs/conformance.md has no heading after the results")?,
    );
    // The text between the heading and the table is kept.
    let text = written.find("\n| ").map_or(written, |table| &written[..=table]);
    let wanted = format!("{text}{now}");
    if wanted == written {
        return Ok(());
    }
    if std::env::var_os(UPDATE_VARIABLE).is_some() {
        return Ok(fs::write(DOCUMENT, [before, HEADING, &wanted, after].concat())?);
    }
    Err(format!("docs/conformance.md has other results; {UPDATE_VARIABLE}=1 writes these:\n{now}")
        .into())
}

fn table(setups: &[Setup]) -> String {
    let mut out = String::from(
        "| provider | through | cases | MUST | SHOULD | passed | unsupported | others |\n\
         |---|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for setup in setups {
        let cases = setup.cases();
        let count = |meant: &dyn Fn(&Case) -> bool| cases.iter().filter(|case| meant(case)).count();
        let known = |outcome| {
            count(&|case| setup.known(case).is_some_and(|known| known.outcome == outcome))
        };
        let must = count(&|case| case.level == Level::Must);
        let (unsupported, fails) = (known(KnownOutcome::Unsupported), known(KnownOutcome::Fails));
        let (provider, description, all) = (setup.provider, setup.description, cases.len());
        let (should, passed) = (all - must, all - unsupported - fails);
        let _ = writeln!(
            out,
            "| {provider} | {description} | {all} | {must} | {should} | {passed} | {unsupported} \
             | {fails} |"
        );
    }
    out
}
