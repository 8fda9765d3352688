//! `cargo xtask dist`: builds the files that users install, and arranges them as they are
//! installed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, run_with_progress, target, workspace};
use crate::notices;
use crate::reference;

/// A C library of DAT as it is installed.
pub(crate) struct Library {
    /// The cargo package of the library, and the file that cargo builds from the package.
    package: &'static str,
    built: &'static str,
    /// The name of the installed file, and of the links to the file: the soname (with the version
    /// number of the original library) and the name for the linker.
    pub(crate) file: &'static str,
    soname: &'static str,
    pub(crate) link: &'static str,
    /// The library's name for `-l` and pkg-config.
    pub(crate) name: &'static str,
    /// The directory of the library's headers.
    include: &'static str,
    api: &'static str,
}

pub(crate) const LIBRARIES: [Library; 2] = [
    Library {
        package: "libdat1",
        built: "libdat1.so",
        file: "libdat.so.1.0.2",
        soname: "libdat.so.1",
        link: "libdat.so",
        name: "dat",
        include: "dat",
        api: "1.2",
    },
    Library {
        package: "libdat2",
        built: "libdat2.so",
        file: "libdat2.so.2.0.0",
        soname: "libdat2.so.2",
        link: "libdat2.so",
        name: "dat2",
        include: "dat2",
        api: "2.0",
    },
];

/// A plug-in: a built-in adapter as a shared library.
pub(crate) struct Plugin {
    package: String,
    pub(crate) file: String,
}

/// Returns the plug-ins. Each directory of `builtin/plugins` contains one plug-in and has the name
/// of its adapter.
pub(crate) fn plugins() -> Result<Vec<Plugin>> {
    let directory = workspace().join("builtin/plugins");
    let entries = fs::read_dir(&directory).context("cannot list builtin/plugins")?;
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    names.sort();
    let plugin = |name: String| Plugin {
        package: format!("plugin-{name}"),
        file: format!("libdat_{}.so", name.replace('-', "_")),
    };
    Ok(names.into_iter().map(plugin).collect())
}

/// The build profile of the layout.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// The profile for users: the build is optimised as far as possible, and takes minutes.
    Dist,
    /// The profile for the full run of the tests, which is that of `cargo run --release`.
    Release,
    /// The profile for the short run of the tests, whose build includes these files.
    Dev,
}

impl Profile {
    /// Returns the name of the cargo profile, the directory where cargo puts its output, and the
    /// directory of the layout.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Profile::Dist => ("fat-lto", "fat-lto", "dist"),
            Profile::Release => ("release", "release", "test-dist"),
            Profile::Dev => ("dev", "debug", "test-dist"),
        }
    }
}

/// Builds and lays out everything. Returns the root of the layout.
pub(crate) fn build(profile: Profile) -> Result<PathBuf> {
    let (name, ..) = profile.names();
    let mut build = cargo();
    build
        .args(["build", "--profile", name])
        .args(packages()?.iter().flat_map(|package| ["-p", package.as_str()]));
    let (built, _) =
        run_with_progress(&mut build, "building the libraries, the providers and dat")?;
    ensure!(built.success(), "cargo build --profile {name} failed ({built})");
    lay_out(profile)
}

/// Lays out what was built with this profile. Returns the root of the layout.
pub(crate) fn lay_out(profile: Profile) -> Result<PathBuf> {
    let (_, directory, layout) = profile.names();
    let target = target()?;
    let (release, root) = (target.join(directory), target.join(layout));
    // The new layout is built next to the old one and then swapped in, so that nobody sees an
    // incomplete layout.
    let stage = target.join(layout).with_extension("new");
    remove(&stage)?;
    for dir in ["lib/pkgconfig", "bin", "share"] {
        fs::create_dir_all(stage.join(dir)).with_context(|| format!("cannot create {dir}"))?;
    }
    for library in &LIBRARIES {
        library.install(&release, &stage)?;
    }
    for Plugin { file, .. } in plugins()? {
        copy(&release.join(&file), &stage.join("lib").join(&file))?;
    }
    copy(&release.join("dat"), &stage.join("bin/dat"))?;
    install_help(&stage)?;
    copy(&workspace().join("dat.conf"), &stage.join("share/dat.conf"))?;
    install_documents(&stage)?;

    remove(&root)?;
    fs::rename(&stage, &root)
        .with_context(|| format!("cannot move {} into place", stage.display()))?;
    Ok(root)
}

/// Returns the cargo packages that are shipped.
pub(crate) fn packages() -> Result<Vec<String>> {
    let own = LIBRARIES.iter().map(|library| library.package).chain(["cli"]);
    Ok(own.map(str::to_owned).chain(plugins()?.into_iter().map(|plugin| plugin.package)).collect())
}

/// The directories where shells look for completions, and the file names there.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/dat"),
    ("zsh", "share/zsh/site-functions/_dat"),
    ("fish", "share/fish/vendor_completions.d/dat.fish"),
];

/// Installs manual pages and completions, which the program generates.
fn install_help(stage: &Path) -> Result<()> {
    let dat = || Command::new(stage.join("bin/dat"));
    let done = dat()
        .arg("manual")
        .arg(stage.join("share/man/man1"))
        .status()
        .context("dat does not start")?;
    ensure!(done.success(), "dat manual failed ({done})");
    reference::install_manual(&stage.join("share/man/man3"))?;
    let man5 = stage.join("share/man/man5");
    fs::create_dir_all(&man5)?;
    copy(&workspace().join("docs/man/dat.conf.5"), &man5.join("dat.conf.5"))?;
    for (shell, path) in COMPLETIONS {
        let output = dat().args(["completions", shell]).output().context("dat does not start")?;
        ensure!(output.status.success(), "dat completions {shell} failed ({})", output.status);
        let path = stage.join(path);
        fs::create_dir_all(path.parent().unwrap_or(stage))?;
        fs::write(&path, output.stdout)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The directory of the documents, for example `docs/softroce.md`, which the program's help
/// mentions.
pub(crate) const DOCUMENTS: &str = "share/doc/opendat";

/// Documents in the root directory. README.md links to most of them.
const ROOT_DOCUMENTS: [&str; 9] = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "CODE_OF_CONDUCT.md",
    "SECURITY.md",
    "LICENSE",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "dat.conf",
];

fn install_documents(stage: &Path) -> Result<()> {
    let into = stage.join(DOCUMENTS);
    fs::create_dir_all(&into)?;
    for name in ROOT_DOCUMENTS {
        copy(&workspace().join(name), &into.join(name))?;
    }
    copy_files(&workspace().join("cli/schema"), "json", &into.join("cli/schema"))?;
    fs::write(into.join("third-party.txt"), notices::of(&packages()?)?)
        .context("cannot write the notices")?;
    copy_files(&workspace().join("docs"), "md", &into.join("docs"))
}

impl Library {
    fn install(&self, release: &Path, stage: &Path) -> Result<()> {
        let lib = stage.join("lib");
        copy(&release.join(self.built), &lib.join(self.file))?;
        for (link, points_to) in [(self.soname, self.file), (self.link, self.soname)] {
            symlink(points_to, lib.join(link)).with_context(|| format!("cannot link {link}"))?;
        }
        let pc = lib.join("pkgconfig").join(self.name).with_extension("pc");
        // The paths are relative, so that the whole tree can be moved or packed into an archive.
        fs::write(&pc, self.pkg_config("${pcfiledir}/../..", "lib"))
            .with_context(|| format!("cannot write {}", pc.display()))?;
        let headers = workspace().join("libdat/include").join(self.include);
        copy_files(&headers, "h", &stage.join("include").join(self.include))
    }

    /// Returns the pkg-config file of a tree at `prefix` with its libraries in `libdir`.
    pub(crate) fn pkg_config(&self, prefix: &str, libdir: &str) -> String {
        let Library { name, api, .. } = self;
        format!(
            "prefix={prefix}\n\
             libdir=${{prefix}}/{libdir}\n\
             includedir=${{prefix}}/include\n\
             \n\
             Name: {name}\n\
             Description: Direct Access Transport (uDAPL) {api}\n\
             Version: {}\n\
             Cflags: -I${{includedir}}\n\
             Libs: -L${{libdir}} -l{name}\n",
            env!("CARGO_PKG_VERSION")
        )
    }
}

/// Copies the files with the given extension from one directory into another.
fn copy_files(from: &Path, extension: &str, into: &Path) -> Result<()> {
    fs::create_dir_all(into).with_context(|| format!("cannot create {}", into.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            copy(&path, &into.join(path.file_name().unwrap_or_default()))?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

pub(crate) fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    /// Whether a file has sections with symbols or debug information.
    fn has_symbols(program: &Path) -> bool {
        let output = Command::new("readelf").arg("-SW").arg(program).output();
        let text = String::from_utf8(output.expect("readelf starts").stdout).expect("text");
        let has = |name: &str| text.split_whitespace().any(|word| word.starts_with(name));
        assert!(has(".dynsym"), "{text}");
        has(".symtab") || has(".debug_")
    }

    /// `build` copies files as cargo builds them, so the profile must strip them. The tests of a
    /// crate without dependencies stand for what is installed, because they are built in seconds.
    #[test]
    fn what_users_install_is_stripped() {
        let (profile, directory, _) = Profile::Dist.names();
        // Another target directory than that of the workspace, so that cargo waits for no other
        // cargo.
        let target = tempfile::tempdir().expect("a directory");
        let mut build = cargo();
        build.args(["test", "--no-run", "--quiet", "--locked", "--package", "opendat-sys"]);
        build.args(["--lib", "--profile", profile, "--target-dir"]).arg(target.path());
        assert!(build.status().expect("cargo starts").success());
        let built = fs::read_dir(target.path().join(directory).join("deps")).expect("a directory");
        let program = built
            .map(|entry| entry.expect("an entry").path())
            .find(|path| path.extension().is_none())
            .expect("a program");
        assert!(!has_symbols(&program));
        let this = env::current_exe().expect("this program");
        assert!(has_symbols(&this), "this program is not stripped");
    }
}
