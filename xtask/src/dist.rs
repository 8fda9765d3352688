//! `cargo xtask dist`: what a user installs, laid out as it is installed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, target, workspace};

/// A C library of DAT as it is installed.
struct Library {
    /// What cargo calls its package and builds.
    package: &'static str,
    built: &'static str,
    /// The file, and what leads to it: the soname (whose number is the original's) and the name for the linker.
    file: &'static str,
    soname: &'static str,
    link: &'static str,
    /// For `-l` and pkg-config.
    name: &'static str,
    /// Of its headers.
    include: &'static str,
    api: &'static str,
}

const LIBRARIES: [Library; 2] = [
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

/// The loadable form of a provider.
struct Plugin {
    package: &'static str,
    file: &'static str,
}

const PLUGINS: [Plugin; 3] = [
    Plugin { package: "provider-tcp-emu-plugin", file: "libdat_tcp_emu.so" },
    Plugin { package: "provider-softroce-plugin", file: "libdat_softroce.so" },
    Plugin { package: "provider-verbs-plugin", file: "libdat_verbs.so" },
];

/// Builds and lays out everything; answers the root of the layout.
pub(crate) fn build() -> Result<PathBuf> {
    let built = cargo()
        .args(["build", "--release", "-p", "cli"])
        .args(LIBRARIES.iter().flat_map(|library| ["-p", library.package]))
        .args(PLUGINS.iter().flat_map(|plugin| ["-p", plugin.package]))
        .status()
        .context("cargo does not start")?;
    ensure!(built.success(), "cargo build --release failed ({built})");

    let target = target()?;
    let (release, root) = (target.join("release"), target.join("dist"));
    // Laid out beside and swapped in: whoever looks never sees half of it.
    let stage = target.join("dist.new");
    remove(&stage)?;
    for dir in ["lib/pkgconfig", "bin", "share"] {
        fs::create_dir_all(stage.join(dir)).with_context(|| format!("cannot create {dir}"))?;
    }
    for library in &LIBRARIES {
        library.install(&release, &stage)?;
    }
    for Plugin { file, .. } in &PLUGINS {
        copy(&release.join(file), &stage.join("lib").join(file))?;
    }
    copy(&release.join("dat"), &stage.join("bin/dat"))?;
    install_help(&stage)?;
    copy(&workspace().join("dat.conf"), &stage.join("share/dat.conf"))?;

    remove(&root)?;
    fs::rename(&stage, &root).with_context(|| format!("cannot move {} into place", stage.display()))?;
    Ok(root)
}

/// Where shells look for completions, and their names there.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/dat"),
    ("zsh", "share/zsh/site-functions/_dat"),
    ("fish", "share/fish/vendor_completions.d/dat.fish"),
];

/// Manual pages and completions, which the program writes itself.
fn install_help(stage: &Path) -> Result<()> {
    let dat = || Command::new(stage.join("bin/dat"));
    let done =
        dat().arg("manual").arg(stage.join("share/man/man1")).status().context("dat does not start")?;
    ensure!(done.success(), "dat manual failed ({done})");
    for (shell, path) in COMPLETIONS {
        let output = dat().args(["completions", shell]).output().context("dat does not start")?;
        ensure!(output.status.success(), "dat completions {shell} failed ({})", output.status);
        let path = stage.join(path);
        fs::create_dir_all(path.parent().unwrap_or(stage))?;
        fs::write(&path, output.stdout).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

impl Library {
    fn install(&self, release: &Path, stage: &Path) -> Result<()> {
        let lib = stage.join("lib");
        copy(&release.join(self.built), &lib.join(self.file))?;
        for (link, points_to) in [(self.soname, self.file), (self.link, self.soname)] {
            symlink(points_to, lib.join(link)).with_context(|| format!("cannot link {link}"))?;
        }
        let pc = lib.join("pkgconfig").join(self.name).with_extension("pc");
        fs::write(&pc, self.pkg_config()).with_context(|| format!("cannot write {}", pc.display()))?;
        self.install_headers(&stage.join("include").join(self.include))
    }

    fn install_headers(&self, include: &Path) -> Result<()> {
        fs::create_dir_all(include).with_context(|| format!("cannot create {}", include.display()))?;
        let source = workspace().join("libdat/include").join(self.include);
        let entries = fs::read_dir(&source).with_context(|| format!("no headers in {}", source.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "h") {
                copy(&path, &include.join(path.file_name().unwrap_or_default()))?;
            }
        }
        Ok(())
    }

    /// Relocatable: the whole tree may be moved or packed.
    fn pkg_config(&self) -> String {
        let Library { name, api, .. } = self;
        format!(
            "prefix=${{pcfiledir}}/../..\n\
             libdir=${{prefix}}/lib\n\
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

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}
