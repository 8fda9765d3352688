//! Compiles and runs the example of each page of the reference (`dat-sys/reference`). The program
//! `programs/reference/PAGE.c` calls the functions of the page's example. A test runs it over each
//! provider, with the libraries of both versions of uDAPL if 1.2 has the function and the page does
//! not say that the example is for 2.0.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use libtest_mimic::Arguments;
use opendat_tests::{
    Dist, PROVIDERS, Registry, Stop, Version, c_example, ends_with_ok, enter_own_network, trial,
};

/// The time limit of a program on a busy machine. It only ends a program that hangs.
const LIMIT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if !arguments.list {
        enter_own_network();
    }
    let pages = names(&workspace().join("dat-sys/reference"), "md");
    let programs = names(&workspace().join("tests/programs/reference"), "c");
    let mut trials = vec![trial("each_program_has_a_page".into(), {
        let without: Vec<_> = programs.difference(&pages).cloned().collect();
        move || match without.is_empty() {
            true => Ok(()),
            false => Err(Stop::Fail(format!("no pages: {without:?}"))),
        }
    })];
    trials.extend(pages.into_iter().map(|page| trial(page.clone(), move || run(&page))));
    opendat_tests::run(&arguments, trials)
}

/// Runs the example of a page.
fn run(page: &str) -> Result<(), Stop> {
    let path = workspace().join("dat-sys/reference").join(page).with_extension("md");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let example = example(&text).ok_or(format!("{}: no example in C", path.display()))?;
    let dist = Dist::locate()?;
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("example.h"), example).expect("the file can be written");
    for version in versions(&text) {
        let program = c_example(&dist, page, version, dir.path())?;
        for provider in PROVIDERS {
            let registry = match version {
                Version::V1_2 => Registry::builtin_1_2(&dist, provider),
                Version::V2_0 => Registry::builtin(&dist, provider),
            };
            let label = format!("{page}, uDAPL {version}, {}", provider.ia);
            ends_with_ok(&label, Command::new(&program), &registry, LIMIT)?;
        }
    }
    Ok(())
}

/// Returns the versions for which the example of a page is written. An overview has no synopsis.
fn versions(text: &str) -> Vec<Version> {
    let is_overview = !text.contains("\n## Synopsis\n");
    let is_of_1_2 = is_overview || text.contains("\n#include <dat/");
    match is_of_1_2 && !text.contains("The example is for uDAPL 2.0.") {
        true => vec![Version::V2_0, Version::V1_2],
        false => vec![Version::V2_0],
    }
}

/// Returns the code under the heading "Example".
fn example(text: &str) -> Option<&str> {
    let (_, section) = text.split_once("\n## Example\n")?;
    let (_, code) = section.split_once("```c\n")?;
    Some(code.split_once("```\n")?.0)
}

/// Returns the names, without this extension, of the files in a directory that have it.
fn names(directory: &Path, extension: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect("the directory can be read");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect()
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_owned()
}
