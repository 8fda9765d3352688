//! Verifies what docs/ci.md offers to the CI of other projects, as far as this works without a
//! hosting service and a container engine: the steps of `action.yml`, and what the image of
//! `Containerfile` contains and runs. The program under test is that of the tutorial.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use opendat_tests::{Dist, Skip, find_program, skip};
use tempfile::TempDir;

/// The networks of the tests, which are fewer than those of `ci/rdma-matrix`.
const NETWORKS: &str = "off loss=1%,reorder=1%";

/// A lock that every test holds while the tutorial's program uses its port.
static FIXED_PORT: Mutex<()> = Mutex::new(());

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = workspace().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn skip_if_missing(test: impl FnOnce() -> Result<(), Skip>) {
    if let Err(reason) = test() {
        skip(&reason);
    }
}

/// Returns a directory with the tutorial's program, and a Makefile that tests it.
fn project() -> Result<TempDir, Skip> {
    for (program, package) in [("make", "make"), ("cc", "gcc"), ("pkg-config", "pkg-config")] {
        find_program(program, package)?;
    }
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["Makefile", "hello.c"] {
        let from = workspace().join("examples/hello").join(name);
        fs::copy(from, dir.path().join(name)).expect("the file exists");
    }
    Ok(dir)
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    format!("{}\n{}", output.status, String::from_utf8_lossy(&both))
}

/// Checks that the program has passed over each adapter and in each of [`NETWORKS`].
fn assert_every_run_passed(output: &Output) {
    let said = text(output);
    assert!(output.status.success(), "{said}");
    for run in ["tcp-emu, network off", "softroce, network off", "softroce, network loss=1%"] {
        let passed = |line: &str| line.contains(run) && line.ends_with(": passed");
        assert!(said.lines().any(passed), "{run}: {said}");
    }
    assert_eq!(said.matches(": passed").count(), 3, "{said}");
}

// ---- The action ----

/// A step of the action that runs in a shell.
#[derive(Default)]
struct Step {
    script: String,
    environment: BTreeMap<String, String>,
}

/// Returns the steps of `action.yml` that run in a shell. Understands only the parts of YAML that
/// this file uses.
fn steps(action: &str) -> Vec<Step> {
    let (_, steps) = action.split_once("\n  steps:\n").expect("steps");
    let steps = steps.strip_prefix("    - ").expect("a step").split("\n    - ");
    steps.filter_map(step).collect()
}

fn step(text: &str) -> Option<Step> {
    let mut step = Step::default();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(script) = line.trim_start().strip_prefix("run: ") {
            step.script = match script {
                "|" => {
                    let mut script = String::new();
                    while let Some(line) = lines.next_if(|line| line.starts_with("        ")) {
                        script += &format!("{line}\n");
                    }
                    script
                }
                quoted => quoted.trim_matches('\'').to_owned(),
            };
        } else if line.trim() == "env:" {
            let lines = lines.by_ref().filter_map(|line| line.trim().split_once(": "));
            step.environment = lines.map(|(name, value)| (name.into(), value.into())).collect();
        }
    }
    (!step.script.is_empty()).then_some(step)
}

/// Returns the defaults of the action's inputs.
fn inputs(action: &str) -> BTreeMap<String, String> {
    let (_, inputs) = action.split_once("\ninputs:\n").expect("inputs");
    let inputs = inputs.split("\nruns:").next().unwrap_or(inputs);
    let mut found = BTreeMap::new();
    let mut name = "";
    for line in inputs.lines() {
        if let Some(input) = line.strip_prefix("  ").and_then(|line| line.strip_suffix(':')) {
            name = input;
            found.insert(name.to_owned(), String::new());
        } else if let Some(default) = line.trim().strip_prefix("default: ") {
            found.insert(name.to_owned(), default.trim_matches('"').to_owned());
        }
    }
    found
}

/// Runs the steps of the action with the inputs of `examples/ci/rdma.yml`.
#[test]
fn the_action_tests_a_program_in_every_network() {
    skip_if_missing(|| {
        let dist = Dist::locate()?;
        let project = project()?;
        let _turn = FIXED_PORT.lock().unwrap_or_else(PoisonError::into_inner);
        // The hosting service has copied the repository to this directory.
        let copy = tempfile::tempdir().expect("a directory");
        fs::create_dir(copy.path().join("ci")).expect("a directory");
        for name in ["action.yml", "ci/rdma-matrix", "Cargo.toml"] {
            fs::copy(workspace().join(name), copy.path().join(name)).expect("a copy");
        }
        // In place of cargo, a script "builds" the layout that is under test.
        let build = format!(
            "#!/bin/sh\n[ \"$*\" = 'xtask dist' ] && mkdir target && ln -s '{}' target/dist\n",
            dist.root().display()
        );
        let programs = copy.path().join("programs");
        fs::create_dir(&programs).expect("a directory");
        executable(&programs.join("cargo"), &build);
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("a path"));

        let (action, workflow) = (read("action.yml"), read("examples/ci/rdma.yml"));
        let mut inputs = inputs(&action);
        let with = workflow.split("with: {").nth(1).and_then(|rest| rest.split('}').next());
        for pair in with.expect("inputs").split(", ") {
            let (name, value) = pair.trim().split_once(": ").expect("an input");
            let known = inputs.insert(name.to_owned(), value.to_owned());
            assert!(known.is_some(), "the action has no input {name}");
        }
        inputs.insert("networks".to_owned(), NETWORKS.to_owned());

        let steps = steps(&action);
        assert_eq!(steps.len(), 3, "{action}");
        let mut last = None;
        for step in steps {
            let value = |text: &String| {
                let text = inputs.iter().fold(text.clone(), |text, (name, value)| {
                    text.replace(&format!("${{{{ inputs.{name} }}}}"), value)
                });
                let workspace = project.path().display().to_string();
                let text = text.replace("${{ github.workspace }}", &workspace);
                assert!(!text.contains("${{"), "{text}");
                text
            };
            let output = Command::new("bash")
                .args(["--noprofile", "--norc", "-eo", "pipefail", "-c", &step.script])
                .current_dir(project.path())
                .env("PATH", &path)
                .env("DAT_OVERRIDE", "/dev/null")
                .env("GITHUB_ACTION_PATH", copy.path())
                .env("GITHUB_OUTPUT", copy.path().join("output"))
                .env_remove("LD_LIBRARY_PATH")
                .envs(step.environment.iter().map(|(name, text)| (name, value(text))))
                .output()
                .expect("bash starts");
            assert!(output.status.success(), "{}: {}", step.script, text(&output));
            last = Some(output);
        }
        assert_every_run_passed(&last.expect("a step"));
        let hash = fs::read_to_string(copy.path().join("output")).expect("the first step's output");
        assert_eq!(hash.trim().len(), "hash=".len() + 64, "{hash}");
        let captures = project.path().join(&inputs["captures"]);
        assert!(!captures.exists(), "captures of runs that passed are removed");
        Ok(())
    });
}

/// A run that fails leaves its captures, and the other runs are made all the same.
#[test]
fn a_failed_run_is_reported_with_its_captures() {
    skip_if_missing(|| {
        let dist = Dist::locate()?;
        let project = project()?;
        let _turn = FIXED_PORT.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = tempfile::tempdir().expect("a directory");
        let output = matrix(copy.path(), &dist)
            .args(["bash", "-c", "make test && [ $DAT_IA = tcp-emu ]"])
            .current_dir(project.path())
            .env("NETWORKS", "loss=1%,reorder=1%")
            .env("DAT_OVERRIDE", "/dev/null")
            .output()
            .expect("the script starts");
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("tcp-emu, network off: passed"), "{said}");
        assert!(said.contains("softroce, network loss=1%,reorder=1%: FAILED (1)"), "{said}");
        let captures = project.path().join("rdma-captures/softroce-loss1-reorder1");
        assert!(fs::read_dir(captures).expect("the captures").count() >= 2, "{said}");
        Ok(())
    });
}

/// A run that does not end is ended, and the table at the end says so.
#[test]
fn a_run_that_takes_longer_than_the_limit_is_ended() {
    skip_if_missing(|| {
        let dist = Dist::locate()?;
        let copy = tempfile::tempdir().expect("a directory");
        let output = matrix(copy.path(), &dist)
            .args(["sleep", "1000000"])
            .current_dir(copy.path())
            .envs([("ADAPTERS", "softroce"), ("NETWORKS", "off"), ("LIMIT", "1s")])
            .output()
            .expect("the script starts");
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let (_, table) = said.split_once("\nadapter    network").expect("a table");
        let row = table.lines().find(|line| line.starts_with("softroce   off")).expect("a row");
        assert!(row.contains("  FAILED: ended after ") && row.ends_with("(LIMIT=1s)"), "{said}");
        Ok(())
    });
}

/// A run that does not end must not fill the disk with captures.
#[test]
fn captures_have_a_limit() {
    skip_if_missing(|| {
        let dist = Dist::locate()?;
        for (variables, limit) in [(&[][..], "100M"), (&[("CAPTURE_MAX", "3G")], "3G")] {
            let copy = tempfile::tempdir().expect("a directory");
            let output = matrix(copy.path(), &dist)
                .args(["sh", "-c", "echo parameters: $OPENDAT_PARAMS"])
                .current_dir(copy.path())
                .envs(variables.iter().copied())
                .output()
                .expect("the script starts");
            let said = text(&output);
            let parameters = said.lines().filter(|line| line.starts_with("parameters: "));
            let expected = format!("/%p-%n.pcapng,max={limit}");
            assert!(parameters.clone().all(|line| line.ends_with(&expected)), "{said}");
            assert_eq!(parameters.count(), 5, "{said}");
        }
        Ok(())
    });
}

/// Returns the script, in a directory that is laid out like a clone.
fn matrix(clone: &Path, dist: &Dist) -> Command {
    for name in ["ci", "target"] {
        fs::create_dir_all(clone.join(name)).expect("a directory");
    }
    let script = clone.join("ci/rdma-matrix");
    fs::copy(workspace().join("ci/rdma-matrix"), &script).expect("a copy");
    symlink(dist.root(), clone.join("target/dist")).expect("a link");
    Command::new(script)
}

/// The page lists the script's own defaults.
#[test]
fn the_page_has_the_defaults_of_the_script() {
    let (script, page) = (read("ci/rdma-matrix"), read("docs/ci.md"));
    for variable in ["ADAPTERS", "NETWORKS", "CAPTURE_MAX", "LIMIT"] {
        let start = format!("${{{variable}:-");
        let (_, rest) = script.split_once(&start).unwrap_or_else(|| panic!("no {start}"));
        let default = rest.split('}').next().expect("a default");
        assert!(page.contains(&format!("| `{default}` |")), "{variable}: {default}");
    }
}

fn executable(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
}

// ---- The image ----

/// The last stage of `Containerfile`.
#[derive(Default)]
struct Image {
    /// The files that are copied from the first stage: from where, and to where.
    copies: Vec<(String, String)>,
    environment: Vec<String>,
    entry_point: String,
}

fn image() -> Image {
    let file = read("Containerfile");
    let (build, last) = file.rsplit_once("\nFROM ").expect("two stages");
    assert!(build.contains(" AS build\nCOPY . /opendat\nRUN cd /opendat && cargo xtask dist"));
    let mut image = Image::default();
    for line in last.lines() {
        match line.split_once(' ') {
            Some(("COPY", what)) => {
                let what = what.strip_prefix("--from=build ").expect("from the first stage");
                let (from, to) = what.split_once(' ').expect("two paths");
                image.copies.push((from.to_owned(), to.to_owned()));
            }
            Some(("ENV", variable)) => image.environment.push(variable.to_owned()),
            Some(("ENTRYPOINT", program)) => {
                image.entry_point = program.trim_matches(['[', ']', '"']).to_owned();
            }
            _ => {}
        }
    }
    image
}

/// The first stage has the oldest compiler that OpenDAT supports.
#[test]
fn the_image_is_built_with_the_compiler_of_the_workspace() {
    let version = env!("CARGO_PKG_RUST_VERSION");
    let file = read("Containerfile");
    assert!(file.contains(&format!("\nFROM rust:{version}-bookworm AS build\n")), "{file}");
}

/// Lays the image out in a namespace where /opt is empty, and runs its entry point.
#[test]
fn the_image_tests_a_program_in_every_network() {
    skip_if_missing(|| {
        let dist = Dist::locate()?;
        let project = project()?;
        let _turn = FIXED_PORT.lock().unwrap_or_else(PoisonError::into_inner);
        let unshare = find_program("unshare", "util-linux")?;
        let own_opt = |script: &str| {
            let mut command = Command::new(&unshare);
            command.args(["--map-root-user", "--mount", "sh", "-ec"]);
            command.arg(format!("mount -t tmpfs none /opt\n{script}"));
            command
        };
        let trial = own_opt("").output().expect("unshare starts");
        if !trial.status.success() {
            return Err(Skip(format!("no namespace of its own for /opt: {}", text(&trial))));
        }
        let image = image();
        let mut script = String::new();
        for (from, to) in &image.copies {
            let from: PathBuf = match from.strip_prefix("/opendat/").expect("a path of the clone") {
                "target/dist" => dist.root().to_owned(),
                other => workspace().join(other),
            };
            script += &format!("mkdir -p $(dirname {to})\ncp -a '{}' {to}\n", from.display());
        }
        script += &format!(
            "exec env -i {} DAT_OVERRIDE=/dev/null NETWORKS='{NETWORKS}' {} make test\n",
            image.environment.join(" "),
            image.entry_point
        );
        let output = own_opt(&script).current_dir(project.path()).output().expect("unshare starts");
        assert_every_run_passed(&output);
        Ok(())
    });
}
