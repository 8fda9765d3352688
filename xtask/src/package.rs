//! `cargo xtask package`: makes the packages for users. These are a tarball of the layout of `cargo
//! xtask dist`, which can be unpacked anywhere, and packages for Debian, which replace Debian's own
//! DAPL packages. cli/Cargo.toml has the metadata of the packages.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{target, workspace};
use crate::dist::{self, DOCUMENTS, LIBRARIES, Profile, remove};
use crate::prerequisites::{is_root, on_path};
use crate::test::{Load, PROGRAMS, Prepared, Stage, Tests};
use crate::tools;

/// Makes the packages from the release build.
pub(crate) fn run() -> Result<bool> {
    println!("{}", build(&dist::build(Profile::Dist)?)?.display());
    Ok(true)
}

/// Makes the packages and tests them in a clean Debian. If no clean Debian is available, the stage
/// counts as one skipped test.
pub(crate) fn stage(tests: &Tests) -> Result<Stage> {
    let (program, filter, dist) =
        (tests.program(PROGRAMS)?, tests.filter.clone(), tests.dist.clone());
    let environment = tests.environment();
    Ok(Stage::new("the packages", move || {
        if let Some(reason) = obstacle() {
            return Ok(Prepared::Cannot(reason));
        }
        if let Err(error) = tools::DEB.provide() {
            return Ok(Prepared::Cannot(format!("{error:#}")));
        }
        let packages = build(&dist)?;
        let debian = target()?.join("debian-12");
        let built = Command::new("timeout")
            .arg("1200")
            .arg(workspace().join("tests/packages/build.sh"))
            .arg(&debian)
            .output();
        let built = built.context("tests/packages/build.sh does not start")?;
        let output = [built.stdout, built.stderr].concat();
        let output = String::from_utf8_lossy(&output);
        if built.status.code() == Some(UNAVAILABLE_EXIT_CODE) {
            return Ok(Prepared::Cannot(format!("a clean Debian is not available\n{output}")));
        }
        ensure!(
            built.status.success(),
            "tests/packages/build.sh failed ({})\n{output}",
            built.status
        );
        let environment = environment.with("packages", packages).with("debian", debian);
        let job = program.job_of_share(
            "packages",
            "packages::",
            &environment,
            filter.as_deref(),
            Load::Spins,
        )?;
        Ok(Prepared::Jobs(job.into_iter().collect()))
    }))
}

/// The exit code of `build.sh` if a clean Debian is not available.
const UNAVAILABLE_EXIT_CODE: i32 = 77;

/// The programs that make packages, and the programs that test packages, each with the Debian
/// package that contains the program.
const BUILD_TOOLS: &[(&str, &str)] = &[("dpkg-shlibdeps", "dpkg-dev"), ("gzip", "gzip")];
const TEST_TOOLS: &[(&str, &str)] = &[("debootstrap", "debootstrap"), ("unshare", "util-linux")];

fn missing(programs: &[(&str, &str)]) -> Option<String> {
    let (program, package) = programs.iter().find(|(program, _)| !on_path(program))?;
    Some(format!("{program} is not installed (package {package})"))
}

/// Returns the reason why the packages cannot be tested on this machine, if there is one.
fn obstacle() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the packages are tested only on x86-64".to_owned());
    }
    if !is_root() {
        return Some("chroot needs root".to_owned());
    }
    missing(BUILD_TOOLS).or_else(|| missing(TEST_TOOLS))
}

/// Makes the packages from the layout in `dist`. Returns their directory.
fn build(dist: &Path) -> Result<PathBuf> {
    let into = target()?.join("package");
    remove(&into)?;
    fs::create_dir_all(&into).with_context(|| format!("cannot create {}", into.display()))?;
    let name = format!("opendat-{}-{ARCH}-linux", env!("CARGO_PKG_VERSION"));
    let tree = into.join(&name);
    copy_tree(dist, &tree)?;
    strip(&tree)?;

    let tarball = into.join(format!("{name}.tar.gz"));
    // The owner and the order of the files are fixed, so that the tarball is the same whoever makes
    // it.
    run_checked(
        Command::new("tar")
            .args([
                "--sort=name",
                "--owner=0",
                "--group=0",
                "--numeric-owner",
                "--mode=u+rwX,go+rX,go-w",
            ])
            .arg("-C")
            .arg(&into)
            .arg("-czf")
            .args([tarball.as_os_str(), name.as_ref()]),
    )?;

    if let Some(missing) = missing(BUILD_TOOLS) {
        bail!("{} is made, Debian's packages are not: {missing}", tarball.display());
    }
    let cargo_deb = tools::DEB.provide()?;
    // cargo-deb finds files in the actual target directory only if their paths begin with
    // target/release.
    let stage = target()?.join("release/package");
    remove(&stage)?;
    lay_out(&tree, &stage)?;
    for variant in [&[][..], &["--variant", "dev"]] {
        run_checked(
            Command::new(&cargo_deb)
                .args(["deb", "--no-build", "--quiet", "--locked", "--package", "cli"])
                .args(variant)
                .arg("--output")
                .arg(&into)
                .current_dir(workspace())
                .env("CARGO_TARGET_DIR", target()?),
        )?;
    }
    remove(&tree)?;
    remove(&stage)?;
    add_library_dependencies(&into)?;
    write_checksums(&into)?;
    Ok(into)
}

/// The file with the checksums of the packages, which `sha256sum --check` reads.
const CHECKSUMS: &str = "SHA256SUMS";

/// Writes the checksums of all files in a directory.
fn write_checksums(packages: &Path) -> Result<()> {
    let entries = fs::read_dir(packages)?.map(|entry| Ok(entry?.file_name()));
    let mut names = entries.collect::<Result<Vec<_>>>()?;
    names.sort();
    let output = Command::new("sha256sum").arg("--").args(names).current_dir(packages).output();
    let output = output.context("sha256sum does not start")?;
    ensure!(output.status.success(), "sha256sum failed ({})", output.status);
    fs::write(packages.join(CHECKSUMS), output.stdout).context("cannot write the checksums")
}

/// The contents of a file for dpkg-shlibdeps (deb-shlibs(5)). With this file, packages of programs
/// that are compiled with our libraries depend on the names of Debian's packages. So the programs
/// run with Debian's packages or with ours.
const SHLIBS: &str = "libdat2 2 libdapl2\nlibdat 1 libdat1\n";

/// Adds the file `shlibs` to the runtime package, because cargo-deb cannot.
fn add_library_dependencies(packages: &Path) -> Result<()> {
    let (open, start) = (packages.join("open"), format!("{RUNTIME_PACKAGE}_"));
    for entry in fs::read_dir(packages)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&start) {
            run_checked(
                Command::new("dpkg-deb").arg("--raw-extract").args([&entry.path(), &open]),
            )?;
            fs::write(open.join("DEBIAN/shlibs"), SHLIBS).context("cannot write shlibs")?;
            let build = ["--root-owner-group", "--build"];
            run_checked(
                Command::new("dpkg-deb")
                    .args(build)
                    .args([&open, &entry.path()])
                    .stdout(Stdio::null()),
            )?;
        }
    }
    remove(&open)
}

/// Removes the sections that Debian's packages do not have.
fn strip(tree: &Path) -> Result<()> {
    let lib = tree.join("lib");
    let plugins = dist::plugins()?.into_iter().map(|plugin| lib.join(plugin.file));
    let files = LIBRARIES.iter().map(|library| lib.join(library.file)).chain(plugins);
    let unneeded = ["--strip-unneeded", "--remove-section=.comment", "--remove-section=.note"];
    run_checked(Command::new("strip").args(unneeded).args(files).arg(tree.join("bin/dat")))
}

/// The names of the two packages: the runtime package and the development package.
const RUNTIME_PACKAGE: &str = "opendat";
const DEVELOPMENT_PACKAGE: &str = "opendat-dev";

/// The directories of the layout, each with the Debian package and the directory of the package to
/// which its files are copied. The licences are missing, because Debian has a path of its own for
/// them.
const DEBIAN_PATHS: &[(&str, &str, &str)] = &[
    ("bin", RUNTIME_PACKAGE, "usr/bin"),
    ("include", DEVELOPMENT_PACKAGE, "usr/include"),
    ("share/man/man1", RUNTIME_PACKAGE, "usr/share/man/man1"),
    ("share/man/man3", DEVELOPMENT_PACKAGE, "usr/share/man/man3"),
    ("share/man/man5", RUNTIME_PACKAGE, "usr/share/man/man5"),
    ("share/bash-completion", RUNTIME_PACKAGE, "usr/share/bash-completion"),
    ("share/fish", RUNTIME_PACKAGE, "usr/share/fish"),
    ("share/zsh/site-functions", RUNTIME_PACKAGE, "usr/share/zsh/vendor-completions"),
];
const DEBIAN_DOCUMENTS: &[(&str, &str)] = &[
    ("README.md", "README.md"),
    ("CHANGELOG.md", "changelog"),
    ("dat.conf", "dat.conf"),
    ("CONTRIBUTING.md", "CONTRIBUTING.md"),
    ("CODE_OF_CONDUCT.md", "CODE_OF_CONDUCT.md"),
    ("SECURITY.md", "SECURITY.md"),
    ("docs", "docs"),
    ("cli/schema", "cli/schema"),
    ("third-party.txt", "third-party.txt"),
];

/// Lays out each package's tree below `stage`.
fn lay_out(tree: &Path, stage: &Path) -> Result<()> {
    for (from, package, to) in DEBIAN_PATHS {
        copy_tree(&tree.join(from), &stage.join(package).join(to))?;
    }
    let documents = tree.join(DOCUMENTS);
    for (from, to) in DEBIAN_DOCUMENTS {
        copy_tree(
            &documents.join(from),
            &stage.join(RUNTIME_PACKAGE).join("usr/share/doc/opendat").join(to),
        )?;
    }
    let libdir = format!("lib/{ARCH}-linux-gnu");
    for entry in fs::read_dir(tree.join("lib")).context("the tree has libraries")? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if name == "pkgconfig" {
            continue;
        }
        let package = if LIBRARIES.iter().any(|library| name == library.link) {
            DEVELOPMENT_PACKAGE
        } else {
            RUNTIME_PACKAGE
        };
        copy_tree(&path, &stage.join(package).join("usr").join(&libdir).join(&name))?;
    }
    let pkgconfig = stage.join(DEVELOPMENT_PACKAGE).join("usr").join(&libdir).join("pkgconfig");
    fs::create_dir_all(&pkgconfig)?;
    for library in &LIBRARIES {
        let path = pkgconfig.join(library.name).with_extension("pc");
        fs::write(&path, library.pkg_config("/usr", &libdir))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    compress(stage)
}

/// Compresses the manual pages and the changelog, as Debian's policy requires. cargo-deb does not
/// do this, because it takes files whose paths begin with target/release for programs.
fn compress(stage: &Path) -> Result<()> {
    let mut files = vec![stage.join(RUNTIME_PACKAGE).join("usr/share/doc/opendat/changelog")];
    for package in [RUNTIME_PACKAGE, DEVELOPMENT_PACKAGE] {
        let manual = stage.join(package).join("usr/share/man");
        for section in fs::read_dir(manual).context("there is a manual")? {
            for page in fs::read_dir(section?.path())? {
                files.push(page?.path());
            }
        }
    }
    run_checked(Command::new("gzip").arg("-9n").args(files))
}

/// Copies a file, a link, or a directory with its contents.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
    }
    run_checked(Command::new("cp").arg("-a").arg("--no-target-directory").args([from, to]))
}

/// Runs a command, and fails if the command fails.
fn run_checked(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    let status = command.status().with_context(|| format!("{program} does not start"))?;
    ensure!(status.success(), "{program} failed ({status}), see above");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use std::process::Command;

    use super::{CHECKSUMS, write_checksums};
    use crate::cargo::workspace;

    #[test]
    fn checksums_are_those_of_the_files() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["opendat_1_amd64.deb", "opendat-1.tar.gz"] {
            fs::write(dir.path().join(name), name).expect("a file");
        }
        write_checksums(dir.path()).expect("checksums");
        let check = || {
            let mut check = Command::new("sha256sum");
            check.args(["--check", "--strict", CHECKSUMS]).current_dir(dir.path());
            check.output().expect("sha256sum starts")
        };
        let output = check();
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stdout).matches(": OK").count(), 2);
        fs::write(dir.path().join("opendat-1.tar.gz"), "another").expect("a file");
        assert!(!check().status.success());
    }

    /// The version in the metadata for Debian must be the version of the workspace. A test checks
    /// this, because Debian's tools cannot read the version of the workspace.
    #[test]
    fn debians_version_is_that_of_the_workspace() {
        let read =
            |path: &str| fs::read_to_string(workspace().join(path)).expect("the file exists");
        let version = env!("CARGO_PKG_VERSION");
        let changelog = read("cli/debian/changelog");
        assert!(changelog.starts_with(&format!("opendat ({version}-1) ")), "{changelog}");
        assert!(read("cli/Cargo.toml").contains(&format!("\"opendat (= {version}-1)\"")));
    }
}
