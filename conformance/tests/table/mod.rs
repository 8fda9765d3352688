//! The table of results in docs/conformance.md.
//!
//! It follows from the cases and from the list of what does not pass: the tests of this run fail where that list is not
//! exactly what happens.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use conformance::{Case, Level};
use libtest_mimic::{Failed, Trial};

use super::Setup;
use super::known::{self, How};

/// Where it is, and what is around it.
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/conformance.md");
const HEADING: &str = "## Results\n";
const NEXT: &str = "\n## ";

/// Has the document written instead of compared.
const UPDATE: &str = "CONFORMANCE_UPDATE";

/// The test that the document has the table as it is.
pub(crate) fn trial(setups: &[Setup]) -> Trial {
    let now = table(setups);
    Trial::test("results_in_the_document_are_those_of_this_run", move || check(&now))
}

fn check(now: &str) -> Result<(), Failed> {
    let document = fs::read_to_string(Path::new(DOCUMENT))?;
    let (before, section) =
        document.split_once(HEADING).ok_or("docs/conformance.md has no results")?;
    let (written, after) =
        section.split_at(section.find(NEXT).ok_or("nothing follows the results")?);
    // What is before the table stays.
    let text = written.find("\n| ").map_or(written, |table| &written[..=table]);
    let wanted = format!("{text}{now}");
    if wanted == written {
        return Ok(());
    }
    if std::env::var_os(UPDATE).is_some() {
        return Ok(fs::write(DOCUMENT, [before, HEADING, &wanted, after].concat())?);
    }
    Err(format!("docs/conformance.md has other results; {UPDATE}=1 writes these:\n{now}").into())
}

fn table(setups: &[Setup]) -> String {
    let mut out = String::from(
        "| provider | through | cases | MUST | SHOULD | passed | unsupported | otherwise |\n\
         |---|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for setup in setups {
        let cases = setup.cases();
        let count = |meant: &dyn Fn(&Case) -> bool| cases.iter().filter(|case| meant(case)).count();
        let known =
            |how| count(&|case| known::entry(&setup.test(case)).is_some_and(|(is, _)| is == how));
        let must = count(&|case| case.level == Level::Must);
        let (unsupported, fails) = (known(How::Unsupported), known(How::Fails));
        let (provider, words, all) = (setup.provider, setup.words, cases.len());
        let (should, passed) = (all - must, all - unsupported - fails);
        let _ = writeln!(
            out,
            "| {provider} | {words} | {all} | {must} | {should} | {passed} | {unsupported} | {fails} |"
        );
    }
    out
}
