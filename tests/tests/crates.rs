//! Checks the crates that are published, which are those without `publish = false`: that their
//! metadata are complete, that they depend only on published crates, and that they compile from
//! their packages.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use opendat_tests::is_short_run;
use serde_json::Value;

fn main() -> ExitCode {
    let packages = match published() {
        Ok(packages) => packages,
        Err(error) => {
            eprintln!("the published crates are unknown: {error}");
            return ExitCode::FAILURE;
        }
    };
    let names: Vec<String> = packages.iter().map(name_of).collect();
    let mut trials: Vec<Trial> = packages
        .into_iter()
        .map(|package| {
            let (title, names) =
                (format!("crates::metadata::{}", name_of(&package)), names.clone());
            Trial::test(title, move || {
                metadata_are_complete(&package, &names).map_err(Failed::from)
            })
        })
        .collect();
    // cargo makes packages of all crates at once, because they depend on each other.
    trials
        .push(Trial::test("crates::packages", move || make_packages(&names).map_err(Failed::from)));
    opendat_tests::run(&Arguments::from_args(), trials)
}

/// Returns the published packages as `cargo metadata` describes them.
fn published() -> Result<Vec<Value>, String> {
    let text = output_of(cargo().args(["metadata", "--no-deps", "--format-version=1"]))?;
    let metadata: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    Ok(packages.iter().filter(|package| package["publish"].is_null()).cloned().collect())
}

fn name_of(package: &Value) -> String {
    package["name"].as_str().unwrap_or_default().to_owned()
}

fn metadata_are_complete(package: &Value, published: &[String]) -> Result<(), String> {
    let name = name_of(package);
    if name != "opendat" && !name.starts_with("opendat-") {
        return Err(format!("the name {name} does not begin with opendat"));
    }
    for field in ["description", "license", "repository", "readme", "rust_version"] {
        if package[field].as_str().is_none_or(str::is_empty) {
            return Err(format!("{name} has no {field}"));
        }
    }
    for (field, max) in [("keywords", 5), ("categories", 5)] {
        let count = package[field].as_array().map_or(0, Vec::len);
        if count == 0 || count > max {
            return Err(format!("{name} has {count} {field}; 1 to {max} are allowed"));
        }
    }
    let dependencies = package["dependencies"].as_array().ok_or("no list of dependencies")?;
    for dependency in dependencies.iter().filter(|dependency| dependency["path"].is_string()) {
        // A dependency of tests has no version. cargo removes it from the package.
        let (needed, version) = (name_of(dependency), dependency["req"].as_str());
        let of_tests = dependency["kind"] == "dev" && version == Some("*");
        if !of_tests && !published.contains(&needed) {
            return Err(format!("{name} depends on {needed}, which is not published"));
        }
        if !of_tests && version == Some("*") {
            return Err(format!("{name} does not say which version of {needed} it needs"));
        }
    }
    let files = output_of(cargo().args(["package", "--list", "--allow-dirty", "-p", &name]))?;
    for file in ["LICENSE-APACHE", "LICENSE-MIT", "README.md"] {
        if !files.lines().any(|line| line == file) {
            return Err(format!("the package of {name} does not contain {file}"));
        }
    }
    Ok(())
}

/// Makes the packages, and compiles them outside the workspace. The short run only makes them.
fn make_packages(names: &[String]) -> Result<(), String> {
    // Another target directory than that of the workspace, so that cargo waits for no other cargo.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("crates");
    let package = |network: &[&str]| {
        let mut command = cargo();
        // cargo would compile each package with copies of the others that it keeps from an earlier
        // run, if their version is the same. Therefore the test compiles them itself.
        command.args(["package", "--allow-dirty", "--locked", "--no-verify"]).args(network);
        command.args(names.iter().flat_map(|name| ["-p", name]));
        output_of(command.env("CARGO_TARGET_DIR", &target))
    };
    // Without the network, cargo has every dependency that was ever downloaded. This is usually
    // enough, except that the packages also list dependencies of other systems.
    package(&["--offline"]).or_else(|_| package(&[]))?;
    if is_short_run() {
        return Ok(());
    }
    compile(names, &target).map_err(|error| format!("the packages do not compile: {error}"))
}

/// Unpacks the packages into a workspace of their own, and compiles them there.
fn compile(names: &[String], target: &Path) -> Result<(), String> {
    let text_of = |error: std::io::Error| error.to_string();
    let version = env!("CARGO_PKG_VERSION");
    let directory = tempfile::tempdir().map_err(text_of)?;
    let mut manifest = String::from("[workspace]\nresolver = \"3\"\nmembers = [\"*\"]\n");
    manifest += "[patch.crates-io]\n";
    for name in names {
        let package = target.join(format!("package/{name}-{version}.crate"));
        // The files get the present time, so that cargo compiles them again.
        let mut unpack = Command::new("tar");
        output_of(unpack.arg("-xmzf").arg(package).arg("-C").arg(directory.path()))?;
        manifest += &format!("{name} = {{ path = \"{name}-{version}\" }}\n");
    }
    fs::write(directory.path().join("Cargo.toml"), manifest).map_err(text_of)?;
    let lock = workspace().join("Cargo.lock");
    fs::copy(lock, directory.path().join("Cargo.lock")).map_err(text_of)?;
    let check = |what: &[&str]| {
        let with = |network: &[&str]| {
            let mut command = cargo();
            command.args(["check", "--quiet"]).args(what).args(network);
            output_of(command.current_dir(directory.path()).env("CARGO_TARGET_DIR", target))
        };
        with(&["--offline"]).or_else(|_| with(&[]))
    };
    check(&["--workspace"])?;
    check(&["-p", "opendat", "--all-features", "--lib", "--examples"]).map(drop)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace());
    cargo
}

/// Returns what a command prints, or what it complains about if it fails.
fn output_of(command: &mut Command) -> Result<String, String> {
    let output =
        command.output().map_err(|error| format!("the command does not start: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}
