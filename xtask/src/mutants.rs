//! `cargo xtask mutants`: changes the product's code, one change at a time. A changed program is
//! called a mutant, and the tests must notice each mutant.
//!
//! cargo-mutants makes the changes. Each mutant first runs the quick tests of its own crate.
//! Mutants that survive one round of tests go to the next round.

mod survivors;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use self::survivors::reason;
use crate::cargo::{cargo, target, workspace};
use crate::tools;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Maximum number of mutants per subject [default: 110 of ep, evd and srq, 20 of each other
    /// subject]
    #[arg(long)]
    at_most: Option<usize>,
    /// The seed that selects mutants if not all are tested
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Do not test mutants again that the previous run has caught
    #[arg(long)]
    survivors_only: bool,
    /// Test only the mutants of these subjects, such as ep or rdmap
    subjects: Vec<String>,
}

/// A part of the product whose mutants are counted together.
struct Subject {
    name: &'static str,
    package: &'static Package,
    /// The prefix of the paths of the subject's files.
    path: &'static str,
    /// The minimum percentage of the subject's mutants that the tests must catch.
    min_percent: Option<usize>,
}

/// A crate, and the rounds of tests that its mutants go through.
#[derive(PartialEq)]
struct Package {
    name: &'static str,
    rounds: &'static [Round],
}

/// A round of tests: the tests of a package, selected by arguments of `cargo test`. A run of the
/// tests that takes longer than `seconds` counts as hung.
#[derive(PartialEq)]
struct Round {
    tests_of: &'static str,
    arguments: &'static [&'static str],
    seconds: u32,
}

/// The rounds of dat-core leave out tests of racing threads, because these tests catch a mutant
/// only by chance.
static DAT_CORE: Package = Package {
    name: "opendat-core",
    rounds: &[
        Round {
            tests_of: "opendat-core",
            arguments: &[
                "--lib",
                "--test=endpoints",
                "--test=events",
                "--test=leaks",
                "--test=limits",
                "--test=points",
                "--test=table",
                "--test=upcalls",
            ],
            seconds: 30,
        },
        Round {
            tests_of: "conformance",
            arguments: &["--test=suite", "--", "mem::linked::"],
            seconds: 180,
        },
        Round {
            tests_of: "opendat-core",
            arguments: &["--test=model", "--", "--skip=threads::"],
            seconds: 180,
        },
    ],
};
static RNIC: Package = Package {
    name: "opendat-rnic",
    rounds: &[
        Round { tests_of: "opendat-rnic", arguments: &[], seconds: 60 },
        Round {
            tests_of: "conformance",
            arguments: &["--test=suite", "--", "::linked::"],
            seconds: 300,
        },
    ],
};

const MIN_CAUGHT_PERCENT: usize = 92;
/// The maximum number of mutants that are tested for a subject: `MUTANTS_WITH_MINIMUM` if the
/// subject has a minimum percentage, otherwise `MUTANTS_WITHOUT_MINIMUM`. Testing all mutants would
/// take more than three hours on two processors.
const MUTANTS_WITH_MINIMUM: usize = 110;
const MUTANTS_WITHOUT_MINIMUM: usize = 20;

static SUBJECTS: [Subject; 9] = [
    Subject {
        name: "ep",
        package: &DAT_CORE,
        path: "dat-core/src/ep",
        min_percent: Some(MIN_CAUGHT_PERCENT),
    },
    Subject {
        name: "evd",
        package: &DAT_CORE,
        path: "dat-core/src/evd",
        min_percent: Some(MIN_CAUGHT_PERCENT),
    },
    Subject {
        name: "srq",
        package: &DAT_CORE,
        path: "dat-core/src/srq.rs",
        min_percent: Some(MIN_CAUGHT_PERCENT),
    },
    Subject { name: "mem", package: &DAT_CORE, path: "dat-core/src/mem", min_percent: None },
    Subject { name: "conn", package: &DAT_CORE, path: "dat-core/src/conn", min_percent: None },
    Subject { name: "cno", package: &DAT_CORE, path: "dat-core/src/cno.rs", min_percent: None },
    Subject { name: "qp", package: &RNIC, path: "rnic/src/qp", min_percent: None },
    Subject { name: "rdmap", package: &RNIC, path: "rnic/src/rdmap", min_percent: None },
    Subject { name: "rc", package: &RNIC, path: "rnic/src/rc", min_percent: None },
];

/// The results of a subject's mutants.
struct Counts {
    /// The number of mutants that compile.
    tried: usize,
    caught: usize,
    /// The number of mutants that were not caught and that no test can catch: see [`survivors`].
    equivalent: usize,
    survivors: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let program = tools::MUTANTS.provide()?;
    let known: Vec<_> = SUBJECTS.iter().map(|subject| subject.name).collect();
    let unknown = options.subjects.iter().find(|name| !known.contains(&name.as_str()));
    ensure!(
        unknown.is_none(),
        "there is no subject {}; there are {}",
        unknown.map_or("", String::as_str),
        known.join(", ")
    );
    let mut good = true;
    println!("seed {}", options.seed);
    for package in [&DAT_CORE, &RNIC] {
        let is_selected = |subject: &&Subject| {
            let named = options.subjects.iter().any(|name| name == subject.name);
            *subject.package == *package && (named || options.subjects.is_empty())
        };
        let subjects: Vec<_> = SUBJECTS.iter().filter(is_selected).collect();
        if !subjects.is_empty() {
            good &= test_package(&program, package, &subjects, options)?;
        }
    }
    Ok(good)
}

fn test_package(
    program: &Path,
    package: &Package,
    subjects: &[&Subject],
    options: &Options,
) -> Result<bool> {
    let all = list(program, package)?;
    let of = |subject: &Subject, mutants: &[String]| -> Vec<String> {
        mutants.iter().filter(|mutant| mutant.starts_with(subject.path)).cloned().collect()
    };
    let mut chosen = Vec::new();
    let mut total = Vec::new();
    for subject in subjects {
        let mutants = of(subject, &all);
        total.push(mutants.len());
        let at_most = options.at_most.unwrap_or(if subject.min_percent.is_some() {
            MUTANTS_WITH_MINIMUM
        } else {
            MUTANTS_WITHOUT_MINIMUM
        });
        chosen.extend(sample(mutants, at_most, options.seed));
    }
    let out = target()?.join("mutants").join(package.name);
    if !options.survivors_only && out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("{} stays", out.display()))?;
    }
    fs::create_dir_all(&out).with_context(|| format!("{} cannot be made", out.display()))?;
    let (mut caught, mut missed) = (BTreeSet::new(), BTreeSet::new());
    for (number, round) in package.rounds.iter().enumerate() {
        let again = number > 0 || options.survivors_only;
        println!(
            "{} against the tests of {} {}",
            package.name,
            round.tests_of,
            round.arguments.join(" ")
        );
        test(program, package, &chosen, &out, round, again)?;
        let (caught_now, missed_now) = outcomes(&out)?;
        // Remove the caught mutants from the list, because cargo-mutants would run mutants that
        // hang again in each round.
        chosen.retain(|mutant| !caught_now.contains(mutant));
        caught.extend(caught_now);
        missed = missed_now.difference(&caught).cloned().collect();
        if missed.is_empty() {
            break;
        }
    }

    let mut good = true;
    for (subject, total) in subjects.iter().zip(total) {
        let counts = counts(subject.path, &caught, &missed);
        let not_equivalent = counts.tried - counts.equivalent;
        let percent = (counts.caught * 100).checked_div(not_equivalent).unwrap_or(100);
        for survivor in &counts.survivors {
            println!("survivor: {survivor}");
        }
        println!(
            "{}::{}: {total} mutants, {} tried, {} caught, {} equivalent, {} survive: \
             {percent} %",
            package.name,
            subject.name,
            counts.tried,
            counts.caught,
            counts.equivalent,
            counts.survivors.len()
        );
        if subject.min_percent.is_some_and(|min_percent| percent < min_percent) {
            println!("below the minimum of {MIN_CAUGHT_PERCENT} %");
            good = false;
        }
    }
    Ok(good)
}

/// Returns the mutants of a package in cargo-mutants' notation: `FILE:LINE:COLUMN: CHANGE`.
fn list(program: &Path, package: &Package) -> Result<Vec<String>> {
    let listed = Command::new(program)
        .args(["mutants", "--list", "-p", package.name])
        .current_dir(workspace())
        .output()
        .context("cargo-mutants does not start")?;
    ensure!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8_lossy(&listed.stdout);
    // Remove the mutants of test code that cargo-mutants does not recognise as test code.
    Ok(listed
        .lines()
        .filter(|mutant| !mutant.contains("/loom_tests.rs:"))
        .map(str::to_owned)
        .collect())
}

/// Runs a round of tests against mutants. Fails if the tests do not pass without a mutant. If
/// `again`, mutants that were caught before are left out.
fn test(
    program: &Path,
    package: &Package,
    mutants: &[String],
    out: &Path,
    round: &Round,
    again: bool,
) -> Result<()> {
    let Round { tests_of, arguments, seconds } = *round;
    let mut without_mutant = cargo();
    without_mutant
        .args(["test", "--quiet", "--profile", "mutants", "-p", tests_of])
        .args(arguments);
    let without_mutant =
        without_mutant.stdout(Stdio::null()).status().context("cargo does not start")?;
    ensure!(without_mutant.success(), "the tests fail without a mutant");
    let files: BTreeSet<_> = mutants.iter().filter_map(|mutant| mutant.split(':').next()).collect();
    let mut command = Command::new(program);
    command
        .args(["mutants", "-p", package.name, "--test-package", tests_of])
        .args(["--profile", "mutants", "--jobs", "2", "--baseline", "skip"])
        .args([
            "--timeout",
            &seconds.to_string(),
            "--build-timeout",
            "300",
            "--no-times",
            "--colors",
            "never",
            "-o",
        ])
        .arg(out)
        .args(again.then_some("--iterate"))
        .args(
            mutants
                .iter()
                .flat_map(|mutant| ["-F".to_owned(), format!("^{}$", escape_regex(mutant))]),
        )
        // If a mutant removes a field from a struct expression, the pattern made from its name
        // matches every mutant of the package. The run is limited to the files of the chosen
        // mutants, so that such a pattern adds only the other mutants of these files.
        .args(files.into_iter().flat_map(|file| ["-f", file]))
        .arg("--")
        .args(arguments)
        // A property test that fails here need not search for a minimal input.
        .env("RUST_BACKTRACE", "0")
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .current_dir(workspace());
    let status = command.status().context("cargo-mutants does not start")?;
    // The exit codes of cargo-mutants: 2 if some mutants survive, 3 if some hang. Both are reported
    // below.
    ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo-mutants: {status}");
    Ok(())
}

/// Escapes text for a regular expression.
fn escape_regex(text: &str) -> String {
    let mut escape_regex = String::new();
    for c in text.chars() {
        match c {
            // In a regular expression, `\<` and `\>` would match the beginning and the end of a
            // word.
            '<' => escape_regex.push_str(r"\x3c"),
            '>' => escape_regex.push_str(r"\x3e"),
            c if c.is_ascii_punctuation() => escape_regex.extend(['\\', c]),
            c => escape_regex.push(c),
        }
    }
    escape_regex
}

/// Returns the caught and the missed mutants. A mutant that hangs counts as caught, because
/// somebody who runs the tests notices the hang.
fn outcomes(out: &Path) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let out = out.join("mutants.out");
    let names = |file: PathBuf| -> BTreeSet<String> {
        fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
    };
    let missed_file = out.join("missed.txt");
    ensure!(missed_file.exists(), "{} is missing", missed_file.display());
    let [missed, caught, hung, unviable, before] =
        ["missed.txt", "caught.txt", "timeout.txt", "unviable.txt", "previously_caught.txt"]
            .map(|name| names(out.join(name)));
    let caught =
        caught.into_iter().chain(hung).chain(before).filter(|name| !unviable.contains(name));
    Ok((caught.collect(), missed))
}

/// Returns the results of the mutants in files with this path prefix.
fn counts(path: &str, caught: &BTreeSet<String>, missed: &BTreeSet<String>) -> Counts {
    let of = |mutants: &BTreeSet<String>| -> Vec<String> {
        mutants.iter().filter(|mutant| mutant.starts_with(path)).cloned().collect()
    };
    let (equivalent, survivors): (Vec<_>, Vec<_>) =
        of(missed).into_iter().partition(|mutant| reason(mutant).is_some());
    let (caught, equivalent) = (of(caught).len(), equivalent.len());
    Counts { tried: caught + equivalent + survivors.len(), caught, equivalent, survivors }
}

/// Returns at most `at_most` mutants, selected by the seed.
fn sample(mut mutants: Vec<String>, at_most: usize, seed: u64) -> Vec<String> {
    if mutants.len() > at_most {
        mutants.sort_by_key(|mutant| hash(seed, mutant));
        mutants.truncate(at_most);
        mutants.sort();
    }
    mutants
}

/// Computes the FNV-1a hash, which is the same in every version of the compiler.
fn hash(seed: u64, text: &str) -> u64 {
    let bytes = seed.to_le_bytes().into_iter().chain(text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_the_seeds() {
        let mutants: Vec<_> = (0..100).map(|n| format!("mutant {n}")).collect();
        let of = |seed| sample(mutants.clone(), 10, seed);
        assert_eq!(of(1).len(), 10);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert_eq!(sample(mutants.clone(), 100, 1), mutants);
    }

    #[test]
    fn what_survives_and_can_be_told_counts() {
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let counts = counts("ep/", &names(&["ep/a", "evd/a"]), &names(&["ep/b", "ep/c", "evd/b"]));
        assert_eq!((counts.tried, counts.caught, counts.equivalent), (3, 1, 0));
        assert_eq!(counts.survivors, ["ep/b", "ep/c"]);
    }

    #[test]
    fn a_name_is_a_pattern_of_itself_alone() {
        assert_eq!(
            escape_regex("a.rs:1:2: replace < with >"),
            r"a\.rs\:1\:2\: replace \x3c with \x3e"
        );
    }
}
