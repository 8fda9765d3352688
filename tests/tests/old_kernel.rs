//! Runs our providers as on an old kernel: `programs/without.c` refuses what such a kernel lacks.
//! docs/using.md, section "What it needs from the kernel", has a table of these features.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use libtest_mimic::Arguments;
use opendat_tests::{Dist, Skip, Stop, c_program, enter_own_network, has_own_network, run, trial};
use tempfile::TempDir;

/// The exit status of `without` on a kernel that cannot refuse anything.
const NO_SECCOMP: i32 = 77;

/// A row of the table in docs/using.md.
struct Feature {
    name: String,
    is_required: bool,
}

fn features() -> Vec<Feature> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/using.md");
    let page = fs::read_to_string(page).expect("the page");
    let (_, section) =
        page.split_once("\n## What it needs from the kernel\n").expect("the section");
    let section = section.split("\n## ").next().unwrap_or(section);
    // A row is `| membarrier | 4.14 | … |`. Some features of the table cannot be refused.
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.filter(|row| !row.contains("not emulated in the tests"));
    let feature = |row: &str| Feature {
        name: row.split('`').next().unwrap_or(row).to_owned(),
        is_required: row.contains("(required)"),
    };
    rows.map(feature).collect()
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if !arguments.list {
        enter_own_network();
    }
    let test = |name: &str, run: fn(&OldKernel) -> Result<(), Stop>| {
        trial(name.to_owned(), move || run(&OldKernel::new()?))
    };
    let trials = vec![
        test("providers_work_without_every_optional_feature", providers_work),
        test("a_required_feature_that_is_missing_is_reported", a_required_feature_is_missing),
    ];
    run(&arguments, trials)
}

struct OldKernel {
    dist: Dist,
    _dir: TempDir,
    without: PathBuf,
}

impl OldKernel {
    fn new() -> Result<OldKernel, Skip> {
        let dist = Dist::locate()?;
        let dir = tempfile::tempdir().expect("a directory");
        let without = c_program(&dist, "without", dir.path())?;
        let kernel = OldKernel { dist, _dir: dir, without };
        match kernel.run(&["membarrier"], &["--version"]).status.code() {
            Some(NO_SECCOMP) => Err(Skip("this kernel has no seccomp(2)".to_owned())),
            _ => Ok(kernel),
        }
    }

    /// Runs the program dat on a kernel without these features.
    fn run(&self, features: &[&str], arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.without);
        command
            .arg(features.join(","))
            .arg(self.dist.dat())
            .args(arguments)
            .env("LD_LIBRARY_PATH", self.dist.lib())
            .env("DAT_OVERRIDE", "/dev/null");
        command.output().expect("the program starts")
    }

    fn succeeds(&self, features: &[&str], arguments: &[&str]) -> Result<(), Stop> {
        let output = self.run(features, arguments);
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("dat {}: {}", arguments.join(" "), text(&output)).into()),
        }
    }
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    format!("{}\n{}", output.status, String::from_utf8_lossy(&both))
}

fn providers_work(kernel: &OldKernel) -> Result<(), Stop> {
    let features = features();
    let optional = features.iter().filter(|feature| !feature.is_required);
    let optional: Vec<&str> = optional.map(|feature| feature.name.as_str()).collect();
    if optional.len() < 7 {
        return Err(format!("the table has only {optional:?}").into());
    }
    for adapter in ["tcp-emu", "softroce"] {
        for operation in ["send", "write", "read"] {
            let arguments = ["--count", "100", "--interval", "0", "--quiet"];
            let ping = ["ping", "--adapter", adapter, "--operation", operation];
            kernel.succeeds(&optional, &[&ping[..], &arguments].concat())?;
        }
        let suite = ["conformance", "--provider", adapter, "dat_ep_post_*", "dat_evd_*"];
        kernel.succeeds(&optional, &suite)?;
    }
    Ok(())
}

fn a_required_feature_is_missing(kernel: &OldKernel) -> Result<(), Stop> {
    // If another process has an adapter on the port, that process has used the feature already.
    if !has_own_network() {
        return Err(Skip("this user may not create a network namespace".to_owned()).into());
    }
    let features = features().into_iter().filter(|feature| feature.is_required);
    let required: Vec<String> = features.map(|feature| feature.name).collect();
    if required != ["SO_ATTACH_REUSEPORT_CBPF"] {
        return Err(format!("the test does not know what needs {required:?}").into());
    }
    let output = kernel.run(&[&required[0]], &["ping", "--adapter", "softroce", "--count", "1"]);
    let said = text(&output);
    let reason = ["UDP port 4791", "Protocol not available"];
    if output.status.success() || !reason.iter().all(|words| said.contains(words)) {
        return Err(format!("the output lacks {reason:?}: {said}").into());
    }
    // tcp-emu does not need the feature.
    kernel.succeeds(&[&required[0]], &["ping", "--count", "1"])
}
