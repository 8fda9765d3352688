//! `cargo xtask package`: what others install. A tarball of the layout that `cargo xtask dist` makes, to be
//! unpacked anywhere; and packages for Debian, which take the place of its own of DAPL. What these say of
//! themselves is in cli/Cargo.toml.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{target, workspace};
use crate::dist::{self, DOCUMENTS, LIBRARIES, PLUGINS, Profile, remove};
use crate::prerequisites::{is_root, on_path};
use crate::test::{Load, PROGRAMS, Prepared, Stage, Tests};
use crate::tools;

/// Makes them of what users get.
pub(crate) fn run() -> Result<bool> {
    println!("{}", build(&dist::build(Profile::Dist)?)?.display());
    Ok(true)
}

/// Makes them and tries them in a clean Debian. Where that cannot be, it counts as one test that is skipped.
pub(crate) fn stage(tests: &Tests) -> Result<Stage> {
    let (program, filter, dist) =
        (tests.program(PROGRAMS)?, tests.filter.clone(), tests.dist.clone());
    let environment = tests.environment();
    Ok(Stage::new("the packages", move || {
        let mut environment = environment;
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
        let said = [built.stdout, built.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        if built.status.code() == Some(CANNOT_BE_HAD) {
            return Ok(Prepared::Cannot(format!("a clean Debian cannot be had\n{said}")));
        }
        ensure!(
            built.status.success(),
            "tests/packages/build.sh failed ({})\n{said}",
            built.status
        );
        environment.extend([("OPENDAT_PACKAGES", packages), ("OPENDAT_DEBIAN", debian)]);
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

/// How `build.sh` says so.
const CANNOT_BE_HAD: i32 = 77;

/// Programs, and the Debian packages that have them: with which packages are made, and with which they are
/// tried.
const MAKERS: &[(&str, &str)] = &[("dpkg-shlibdeps", "dpkg-dev"), ("gzip", "gzip")];
const TRIAL: &[(&str, &str)] = &[("debootstrap", "debootstrap"), ("unshare", "util-linux")];

fn missing(programs: &[(&str, &str)]) -> Option<String> {
    let (program, package) = programs.iter().find(|(program, _)| !on_path(program))?;
    Some(format!("{program} is not installed (package {package})"))
}

/// Why they cannot be tried here.
fn obstacle() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("they are tried on x86-64".to_owned());
    }
    if !is_root() {
        return Some("this is not root, who may change the root directory".to_owned());
    }
    missing(MAKERS).or_else(|| missing(TRIAL))
}

/// Of what is laid out in `dist`; answers the directory that has them.
fn build(dist: &Path) -> Result<PathBuf> {
    let into = target()?.join("package");
    remove(&into)?;
    fs::create_dir_all(&into).with_context(|| format!("cannot create {}", into.display()))?;
    let name = format!("opendat-{}-{ARCH}-linux", env!("CARGO_PKG_VERSION"));
    let tree = into.join(&name);
    copy_tree(dist, &tree)?;
    strip(&tree)?;

    let tarball = into.join(format!("{name}.tar.gz"));
    // Nobody's files, in an order that is always the same, whoever makes it.
    done(
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

    if let Some(missing) = missing(MAKERS) {
        bail!("{} is made, Debian's packages are not: {missing}", tarball.display());
    }
    let cargo_deb = tools::DEB.provide()?;
    // cargo-deb looks into the target directory, wherever that is, only for paths that begin with
    // target/release.
    let stage = target()?.join("release/package");
    remove(&stage)?;
    lay_out(&tree, &stage)?;
    for variant in [&[][..], &["--variant", "dev"]] {
        done(
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
    name_libraries(&into)?;
    Ok(into)
}

/// For dpkg-shlibdeps (deb-shlibs(5)): what is compiled with ours depends on Debian's names, and so runs over
/// either.
const SHLIBS: &str = "libdat2 2 libdapl2\nlibdat 1 libdat1\n";

/// Says so in the package, since cargo-deb cannot.
fn name_libraries(packages: &Path) -> Result<()> {
    let (open, start) = (packages.join("open"), format!("{RUN}_"));
    for entry in fs::read_dir(packages)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&start) {
            done(Command::new("dpkg-deb").arg("--raw-extract").args([&entry.path(), &open]))?;
            fs::write(open.join("DEBIAN/shlibs"), SHLIBS).context("cannot write shlibs")?;
            let build = ["--root-owner-group", "--build"];
            done(
                Command::new("dpkg-deb")
                    .args(build)
                    .args([&open, &entry.path()])
                    .stdout(Stdio::null()),
            )?;
        }
    }
    remove(&open)
}

/// Takes away what only debuggers read, which is most of it.
fn strip(tree: &Path) -> Result<()> {
    let lib = tree.join("lib");
    let libraries = LIBRARIES.iter().map(|library| library.file);
    let files =
        libraries.chain(PLUGINS.iter().map(|plugin| plugin.file)).map(|file| lib.join(file));
    let unneeded = ["--strip-unneeded", "--remove-section=.comment", "--remove-section=.note"];
    done(Command::new("strip").args(unneeded).args(files).arg(tree.join("bin/dat")))
}

/// The packages: what runs, and what is compiled with.
const RUN: &str = "opendat";
const COMPILE: &str = "opendat-dev";

/// Where Debian has what the tree has. The rest, the licences, Debian says in its own way.
const PLACES: &[(&str, &str, &str)] = &[
    ("bin", RUN, "usr/bin"),
    ("include", COMPILE, "usr/include"),
    ("share/man", RUN, "usr/share/man"),
    ("share/bash-completion", RUN, "usr/share/bash-completion"),
    ("share/fish", RUN, "usr/share/fish"),
    ("share/zsh/site-functions", RUN, "usr/share/zsh/vendor-completions"),
];
const PLACED_DOCUMENTS: &[(&str, &str)] = &[
    ("README.md", "README.md"),
    ("CHANGELOG.md", "changelog"),
    ("dat.conf", "dat.conf"),
    ("CONTRIBUTING.md", "CONTRIBUTING.md"),
    ("SECURITY.md", "SECURITY.md"),
    ("docs", "docs"),
    ("cli/schema", "cli/schema"),
    ("third-party.txt", "third-party.txt"),
];

/// Each package's tree, below `stage`.
fn lay_out(tree: &Path, stage: &Path) -> Result<()> {
    for (from, package, to) in PLACES {
        copy_tree(&tree.join(from), &stage.join(package).join(to))?;
    }
    let documents = tree.join(DOCUMENTS);
    for (from, to) in PLACED_DOCUMENTS {
        copy_tree(&documents.join(from), &stage.join(RUN).join("usr/share/doc/opendat").join(to))?;
    }
    let libdir = format!("lib/{ARCH}-linux-gnu");
    for entry in fs::read_dir(tree.join("lib")).context("the tree has libraries")? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if name == "pkgconfig" {
            continue;
        }
        let package =
            if LIBRARIES.iter().any(|library| name == library.link) { COMPILE } else { RUN };
        copy_tree(&path, &stage.join(package).join("usr").join(&libdir).join(&name))?;
    }
    let pkgconfig = stage.join(COMPILE).join("usr").join(&libdir).join("pkgconfig");
    fs::create_dir_all(&pkgconfig)?;
    for library in &LIBRARIES {
        let path = pkgconfig.join(library.name).with_extension("pc");
        fs::write(&path, library.pkg_config("/usr", &libdir))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    compress(&stage.join(RUN).join("usr/share"))
}

/// The manual and the changelog, as Debian's policy wants it. cargo-deb takes them for programs, since they
/// are where these are.
fn compress(share: &Path) -> Result<()> {
    let mut files = vec![share.join("doc/opendat/changelog")];
    for section in fs::read_dir(share.join("man")).context("there is a manual")? {
        for page in fs::read_dir(section?.path())? {
            files.push(page?.path());
        }
    }
    done(Command::new("gzip").arg("-9n").args(files))
}

/// A file, a link or a directory with all that is in it.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
    }
    done(Command::new("cp").arg("-a").arg("--no-target-directory").args([from, to]))
}

/// Waits for a command that has to succeed.
fn done(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    let status = command.status().with_context(|| format!("{program} does not start"))?;
    ensure!(status.success(), "{program} failed ({status}), see above");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::cargo::workspace;

    /// Debian's tools have no way to say "as that of the workspace".
    #[test]
    fn debians_version_is_that_of_the_workspace() {
        let read = |path: &str| fs::read_to_string(workspace().join(path)).expect("it is there");
        let version = env!("CARGO_PKG_VERSION");
        let changelog = read("cli/debian/changelog");
        assert!(changelog.starts_with(&format!("opendat ({version}-1) ")), "{changelog}");
        assert!(read("cli/Cargo.toml").contains(&format!("\"opendat (= {version}-1)\"")));
    }
}
